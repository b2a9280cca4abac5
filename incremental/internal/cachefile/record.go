package cachefile

import (
	"encoding/binary"
	"io/fs"
	"math"

	"github.com/fileproc/fileproc/internal/fsinfo"
)

// An Identity is what is compared to decide that a file is unchanged: metadata without
// a device, or a size and a hash of the content.
type Identity struct {
	fsinfo.Identity
	Content [16]byte
}

// NoSize is the size in a record that Noted returns. No file has it.
const NoSize = -1

// An Outcome is what became of a file.
type Outcome uint8

const (
	OutcomeResult  Outcome = iota
	OutcomeSkipped         // fn has skipped it
	OutcomeBinary          // Options.SkipBinary has
	tombstone              // in the log only: deletes the record that has this identity
)

// A Record is what is kept of one file.
type Record struct {
	Path    string
	ID      Identity
	Outcome Outcome
	Result  []byte
}

// Noted returns the record of a file that was met but not kept.
func Noted(path string) Record {
	return Record{Path: path, ID: Identity{Identity: fsinfo.Identity{Size: NoSize}}, Outcome: OutcomeSkipped}
}

// A View is a record that aliases the loaded file: Path and Result must not be changed.
type View struct {
	Path    []byte
	ID      Identity
	Outcome Outcome
	Result  []byte
}

// A record in the file: length of the result (4 bytes), length of the path and
// flags (20 and 12 bits), the identity, path, result, zeros up to a multiple
// of 8. The identity has mtime (8), size (4 or 8), inode (4 or 8), mode (2 or 4),
// ctime and btime (8, or 0 if they equal mtime or btime is 0), content (0 or 16).
// The short forms save 20 bytes in most records.
const (
	flagOutcome  = 3
	flagSize8    = 1 << 2
	flagInode8   = 1 << 3
	flagMode4    = 1 << 4
	flagCtime    = 1 << 5 // else it is mtime
	flagBtime    = 1 << 6 // else it is 0 or mtime
	flagBtimeIsM = 1 << 7
	flagContent  = 1 << 8
	flagsKnown   = 1<<9 - 1

	pathBits      = 20
	maxPath       = 1<<pathBits - 1
	maxResult     = 1 << 28
	align         = 8
	minRecord     = 8 + 8 + 4 + 4 + 2 + 6 // aligned
	maxRecordHead = 8 + 8 + 8 + 8 + 4 + 8 + 8 + 16 + align
)

func appendRecord(b []byte, r Record) []byte {
	le := binary.LittleEndian
	flags := uint32(r.Outcome)
	set := func(flag uint32, on bool) bool {
		if on {
			flags |= flag
		}
		return on
	}
	start := len(b)
	b = le.AppendUint32(b, uint32(len(r.Result)))
	b = le.AppendUint32(b, 0)
	b = le.AppendUint64(b, uint64(r.ID.ModTime))
	if set(flagSize8, uint64(r.ID.Size) >= 1<<32) {
		b = le.AppendUint64(b, uint64(r.ID.Size))
	} else {
		b = le.AppendUint32(b, uint32(r.ID.Size))
	}
	if set(flagInode8, r.ID.Inode >= 1<<32) {
		b = le.AppendUint64(b, r.ID.Inode)
	} else {
		b = le.AppendUint32(b, uint32(r.ID.Inode))
	}
	if set(flagMode4, r.ID.Mode >= 1<<16) {
		b = le.AppendUint32(b, uint32(r.ID.Mode))
	} else {
		b = le.AppendUint16(b, uint16(r.ID.Mode))
	}
	if set(flagCtime, r.ID.ChangeTime != r.ID.ModTime) {
		b = le.AppendUint64(b, uint64(r.ID.ChangeTime))
	}
	if !set(flagBtimeIsM, r.ID.BirthTime == r.ID.ModTime) && set(flagBtime, r.ID.BirthTime != 0) {
		b = le.AppendUint64(b, uint64(r.ID.BirthTime))
	}
	if set(flagContent, r.ID.Content != [16]byte{}) {
		b = append(b, r.ID.Content[:]...)
	}
	le.PutUint32(b[start+4:], uint32(len(r.Path))|flags<<pathBits)
	b = append(b, r.Path...)
	b = append(b, r.Result...)
	for (len(b)-start)%align != 0 {
		b = append(b, 0)
	}
	return b
}

// A span is an encoded record: b is all of it, padding included.
type span struct {
	b               []byte
	pathAt, pathLen int
	resultLen       int
}

// parse returns the record at place in buf. It returns false for whatever is
// not a record within buf, so that a hostile file cannot cause a panic.
func parse(buf []byte, place uint64) (span, bool) {
	if place >= uint64(len(buf)) || len(buf)-int(place) < minRecord {
		return span{}, false
	}
	b := buf[place:]
	resultLen := binary.LittleEndian.Uint32(b)
	word := binary.LittleEndian.Uint32(b[4:])
	flags := word >> pathBits
	if resultLen > maxResult || flags&^flagsKnown != 0 {
		return span{}, false
	}
	s := span{pathAt: 26, pathLen: int(word & maxPath), resultLen: int(resultLen)}
	s.pathAt += int(flags & flagSize8)              // 4 more bytes: the value of the flag
	s.pathAt += int(flags & flagInode8 >> 1)        // 4
	s.pathAt += int(flags & flagMode4 >> 3)         // 2
	s.pathAt += int(flags & flagCtime >> 2)         // 8
	s.pathAt += int(flags & flagBtime >> 3)         // 8
	s.pathAt += int(flags & flagContent / (1 << 4)) // 16
	size := (s.pathAt + s.pathLen + s.resultLen + align - 1) &^ (align - 1)
	if size > len(b) {
		return span{}, false
	}
	s.b = b[:size]
	return s, true
}

func (s span) flags() uint32    { return binary.LittleEndian.Uint32(s.b[4:]) >> pathBits }
func (s span) outcome() Outcome { return Outcome(s.flags() & flagOutcome) }
func (s span) path() []byte     { return s.b[s.pathAt : s.pathAt+s.pathLen : s.pathAt+s.pathLen] }

// isAfter reports whether the file may have changed after the time sure.
func (s span) isAfter(sure int64) bool { return sure < math.MaxInt64 && s.identity().Newest() > sure }

// noted returns the record of a file of which no more is known than that it was there.
func (s span) noted() span {
	s, _ = parse(appendRecord(nil, Noted(string(s.path()))), 0)
	return s
}

func (s span) result() []byte {
	at := s.pathAt + s.pathLen
	return s.b[at : at+s.resultLen : at+s.resultLen]
}

func (s span) view() View {
	return View{Path: s.path(), ID: s.identity(), Outcome: s.outcome(), Result: s.result()}
}

func (s span) identity() Identity {
	le := binary.LittleEndian
	flags, b := s.flags(), s.b[8:s.pathAt]
	var id Identity
	id.ModTime, b = int64(le.Uint64(b)), b[8:]
	if flags&flagSize8 != 0 {
		id.Size, b = int64(le.Uint64(b)), b[8:]
	} else {
		id.Size, b = int64(le.Uint32(b)), b[4:]
	}
	if flags&flagInode8 != 0 {
		id.Inode, b = le.Uint64(b), b[8:]
	} else {
		id.Inode, b = uint64(le.Uint32(b)), b[4:]
	}
	if flags&flagMode4 != 0 {
		id.Mode, b = fs.FileMode(le.Uint32(b)), b[4:]
	} else {
		id.Mode, b = fs.FileMode(le.Uint16(b)), b[2:]
	}
	id.ChangeTime = id.ModTime
	if flags&flagCtime != 0 {
		id.ChangeTime, b = int64(le.Uint64(b)), b[8:]
	}
	switch {
	case flags&flagBtime != 0:
		id.BirthTime, b = int64(le.Uint64(b)), b[8:]
	case flags&flagBtimeIsM != 0:
		id.BirthTime = id.ModTime
	}
	if flags&flagContent != 0 {
		copy(id.Content[:], b)
	}
	return id
}
