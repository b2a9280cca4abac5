package incremental

import (
	"encoding/binary"
	"math"
)

// An identity is what is compared to decide that a file is unchanged.
// Times are nanoseconds since 1970. content is a hash in content mode, else zero.
type identity struct {
	size                int64
	mtime, ctime, btime int64
	inode               uint64
	mode                uint32
	content             [16]byte
}

// newest returns the time of the last change that id shows.
func (id identity) newest() int64 { return max(id.mtime, id.ctime, id.btime) }

// noSize is the size in the record of a file that was met but not kept. No file has it.
const noSize = -1

type outcome uint8

const (
	outcomeResult outcome = iota
	outcomeSkipped
	outcomeBinary
	tombstone // in the log only: deletes the record that has this identity
)

// A record is what is kept of one file.
type record struct {
	path    string
	id      identity
	outcome outcome
	result  []byte
}

// A recordView is a record that aliases the loaded file: path and result must not be changed.
type recordView struct {
	path    []byte
	id      identity
	outcome outcome
	result  []byte
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

func appendRecord(b []byte, r record) []byte {
	le := binary.LittleEndian
	flags := uint32(r.outcome)
	set := func(flag uint32, on bool) bool {
		if on {
			flags |= flag
		}
		return on
	}
	start := len(b)
	b = le.AppendUint32(b, uint32(len(r.result)))
	b = le.AppendUint32(b, 0)
	b = le.AppendUint64(b, uint64(r.id.mtime))
	if set(flagSize8, uint64(r.id.size) >= 1<<32) {
		b = le.AppendUint64(b, uint64(r.id.size))
	} else {
		b = le.AppendUint32(b, uint32(r.id.size))
	}
	if set(flagInode8, r.id.inode >= 1<<32) {
		b = le.AppendUint64(b, r.id.inode)
	} else {
		b = le.AppendUint32(b, uint32(r.id.inode))
	}
	if set(flagMode4, r.id.mode >= 1<<16) {
		b = le.AppendUint32(b, r.id.mode)
	} else {
		b = le.AppendUint16(b, uint16(r.id.mode))
	}
	if set(flagCtime, r.id.ctime != r.id.mtime) {
		b = le.AppendUint64(b, uint64(r.id.ctime))
	}
	if !set(flagBtimeIsM, r.id.btime == r.id.mtime) && set(flagBtime, r.id.btime != 0) {
		b = le.AppendUint64(b, uint64(r.id.btime))
	}
	if set(flagContent, r.id.content != [16]byte{}) {
		b = append(b, r.id.content[:]...)
	}
	le.PutUint32(b[start+4:], uint32(len(r.path))|flags<<pathBits)
	b = append(b, r.path...)
	b = append(b, r.result...)
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
func (s span) outcome() outcome { return outcome(s.flags() & flagOutcome) }
func (s span) path() []byte     { return s.b[s.pathAt : s.pathAt+s.pathLen : s.pathAt+s.pathLen] }

// isAfter reports whether the file may have changed after the time sure.
func (s span) isAfter(sure int64) bool { return sure < math.MaxInt64 && s.identity().newest() > sure }

// noted returns the record of a file of which no more is known than that it was there.
func (s span) noted() span {
	s, _ = parse(appendRecord(nil, record{path: string(s.path()), id: identity{size: noSize}, outcome: outcomeSkipped}), 0)
	return s
}

func (s span) result() []byte {
	at := s.pathAt + s.pathLen
	return s.b[at : at+s.resultLen : at+s.resultLen]
}

func (s span) view() recordView {
	return recordView{path: s.path(), id: s.identity(), outcome: s.outcome(), result: s.result()}
}

func (s span) identity() identity {
	le := binary.LittleEndian
	flags, b := s.flags(), s.b[8:s.pathAt]
	var id identity
	id.mtime, b = int64(le.Uint64(b)), b[8:]
	if flags&flagSize8 != 0 {
		id.size, b = int64(le.Uint64(b)), b[8:]
	} else {
		id.size, b = int64(le.Uint32(b)), b[4:]
	}
	if flags&flagInode8 != 0 {
		id.inode, b = le.Uint64(b), b[8:]
	} else {
		id.inode, b = uint64(le.Uint32(b)), b[4:]
	}
	if flags&flagMode4 != 0 {
		id.mode, b = le.Uint32(b), b[4:]
	} else {
		id.mode, b = uint32(le.Uint16(b)), b[2:]
	}
	id.ctime = id.mtime
	if flags&flagCtime != 0 {
		id.ctime, b = int64(le.Uint64(b)), b[8:]
	}
	switch {
	case flags&flagBtime != 0:
		id.btime, b = int64(le.Uint64(b)), b[8:]
	case flags&flagBtimeIsM != 0:
		id.btime = id.mtime
	}
	if flags&flagContent != 0 {
		copy(id.content[:], b)
	}
	return id
}
