package cachefile

import (
	"encoding/binary"
	"io/fs"
	"math"

	"github.com/fileproc/fileproc/internal/fsinfo"
)

// An Identity is what runs compare to decide whether a file is unchanged: metadata without
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
	OutcomeBinary          // Options.SkipBinary has skipped it
	tombstone              // in the log only: deletes the record that has this identity
)

// A Record is what is kept of one file.
type Record struct {
	Path    string
	ID      Identity
	Outcome Outcome
	Result  []byte
}

// Noted returns the record of a file that was met, but whose result is not kept.
func Noted(path string) Record {
	return Record{Path: path, ID: Identity{Identity: fsinfo.Identity{Size: NoSize}}, Outcome: OutcomeSkipped}
}

// A View is a record that aliases the loaded file: Dir, Name and Result must not be changed.
type View struct {
	Dir, Name []byte // the path; Dir has a slash at its end, or is empty
	ID        Identity
	Outcome   Outcome
	Result    []byte
}

// Path returns the path.
func (v View) Path() string { return string(v.Dir) + string(v.Name) }

// isAfter reports whether a file with this identity may have changed after the time sure.
func (id Identity) isAfter(sure int64) bool { return sure < math.MaxInt64 && id.Newest() > sure }

// An entry is a record in the file: a part of fixed size, and a tail. The tail follows the
// fixed part in the log and lies elsewhere in a snapshot. The fixed part has inode (8),
// ctime (8), mtime and btime less ctime (4 each), size (4), where the tail begins (4), mode
// (2), flags (1), and the high byte of where the tail begins. The tail has the values that
// do not fit, the lengths of name and result as varints, and then name and result. In the
// log, the name is the path.
type entry struct {
	fixed, long, name, result []byte
}

const (
	entrySize = 36

	flagOutcome = 3
	flagUnfit   = 1 << 2 // size and mode are in the tail (8, 4)
	flagMtime   = 1 << 3 // mtime is in the tail (8)
	flagBtime   = 1 << 4 // btime is in the tail (8)
	flagNoBtime = 1 << 5 // btime is 0
	flagContent = 1 << 6 // the hash of the content is in the tail (16)
	flagsKnown  = 1<<7 - 1

	maxPath       = 1<<20 - 1
	maxResult     = 1 << 28
	maxRecordHead = entrySize + 12 + 8 + 8 + 16 + 3 + 5
)

// appendEntry appends the tail of a record to tails, and returns its fixed part too, without where the tail begins.
func appendEntry(tails []byte, name []byte, id Identity, outcome Outcome, result []byte) ([entrySize]byte, []byte) {
	le := binary.LittleEndian
	flags := byte(outcome)
	fits := func(flag byte, ok bool) bool {
		if !ok {
			flags |= flag
		}
		return ok
	}
	mtime, btime := id.ModTime-id.ChangeTime, id.BirthTime-id.ChangeTime // both may overflow: adding ChangeTime gives the right value all the same
	size, mode := uint32(id.Size), uint16(id.Mode)
	if !fits(flagUnfit, uint64(id.Size) == uint64(size) && uint32(id.Mode) == uint32(mode)) {
		tails = le.AppendUint32(le.AppendUint64(tails, uint64(id.Size)), uint32(id.Mode))
		size, mode = 0, 0
	}
	if !fits(flagMtime, mtime == int64(int32(mtime))) {
		tails, mtime = le.AppendUint64(tails, uint64(id.ModTime)), 0
	}
	if !fits(flagNoBtime, id.BirthTime != 0) {
		btime = 0
	} else if !fits(flagBtime, btime == int64(int32(btime))) {
		tails, btime = le.AppendUint64(tails, uint64(id.BirthTime)), 0
	}
	if !fits(flagContent, id.Content == [16]byte{}) {
		tails = append(tails, id.Content[:]...)
	}
	tails = appendNamed(tails, name, result)
	var fixed [entrySize]byte
	le.PutUint64(fixed[:], id.Inode)
	le.PutUint64(fixed[8:], uint64(id.ChangeTime))
	le.PutUint32(fixed[16:], uint32(mtime))
	le.PutUint32(fixed[20:], uint32(btime))
	le.PutUint32(fixed[24:], size)
	le.PutUint16(fixed[32:], mode)
	fixed[34] = flags
	return fixed, tails
}

func appendNamed(tails, name, result []byte) []byte {
	tails = binary.AppendUvarint(tails, uint64(len(name)))
	tails = binary.AppendUvarint(tails, uint64(len(result)))
	return append(append(tails, name...), result...)
}

func (e *entry) appendTail(tails []byte) []byte {
	return appendNamed(append(tails, e.long...), e.name, e.result)
}

// noted returns the entry of a file that was there and of which nothing else is known.
func noted(name []byte) entry {
	e, _, _ := parse(appendRecord(nil, Noted(string(name))))
	return e
}

// putTail sets where the tail of an entry begins.
func putTail(fixed []byte, at uint64) {
	binary.LittleEndian.PutUint32(fixed[28:], uint32(at))
	fixed[35] = byte(at >> 32)
}

// parseEntry returns the entry with this fixed part, whose tail is at the beginning of tail,
// and the length of that tail. It returns false for an entry that no writer makes, so that a
// hostile file cannot cause a panic.
func parseEntry(fixed, tail []byte) (e entry, size int, ok bool) {
	e.fixed = fixed
	flags := e.flags()
	if flags&^flagsKnown != 0 {
		return entry{}, 0, false
	}
	if flags&(flagUnfit|flagMtime|flagBtime|flagContent) != 0 {
		size = int(flags&flagUnfit*3 + flags&flagMtime + flags&flagBtime/2 + flags&flagContent/4)
		if size > len(tail) {
			return entry{}, 0, false
		}
		e.long = tail[:size]
	}
	nameLen, k := length(tail[size:], maxPath)
	size += k
	resultLen, j := length(tail[size:], maxResult)
	size += j
	end := size + nameLen
	if k == 0 || j == 0 || end > len(tail)-resultLen {
		return entry{}, 0, false
	}
	e.name = tail[size:end:end]
	size, end = end, end+resultLen
	e.result = tail[size:end:end]
	return e, end, true
}

// length returns the varint at the beginning of b, and how many bytes it has: 0 if there is
// none, or if its value is more than most.
func length(b []byte, most uint64) (n, size int) {
	if len(b) > 0 && b[0] < 0x80 { // nearly all are short
		return int(b[0]), 1
	}
	v, size := binary.Uvarint(b)
	if size <= 0 || v > most {
		return 0, 0
	}
	return int(v), size
}

// appendRecord appends a record of the log.
func appendRecord(b []byte, r Record) []byte {
	start := len(b)
	fixed, b := appendEntry(append(b, make([]byte, entrySize)...), []byte(r.Path), r.ID, r.Outcome, r.Result)
	copy(b[start:], fixed[:])
	return b
}

// parse returns the record of the log at the beginning of b, and its length.
func parse(b []byte) (e entry, size int, ok bool) {
	if len(b) < entrySize {
		return entry{}, 0, false
	}
	e, size, ok = parseEntry(b[:entrySize], b[entrySize:])
	return e, entrySize + size, ok
}

func (e *entry) flags() uint32    { return uint32(e.fixed[34]) }
func (e *entry) outcome() Outcome { return Outcome(e.flags() & flagOutcome) }
func (e *entry) inode() uint64    { return binary.LittleEndian.Uint64(e.fixed) }

func (e *entry) identity() (id Identity) {
	le := binary.LittleEndian
	f, long, flags := e.fixed, e.long, e.flags()
	id.Inode, id.ChangeTime = le.Uint64(f), int64(le.Uint64(f[8:]))
	id.ModTime = id.ChangeTime + int64(int32(le.Uint32(f[16:])))
	id.Size, id.Mode = int64(le.Uint32(f[24:])), fs.FileMode(le.Uint16(f[32:]))
	if flags&flagNoBtime == 0 {
		id.BirthTime = id.ChangeTime + int64(int32(le.Uint32(f[20:])))
	}
	if len(long) == 0 {
		return id
	}
	if flags&flagUnfit != 0 {
		id.Size, id.Mode, long = int64(le.Uint64(long)), fs.FileMode(le.Uint32(long[8:])), long[12:]
	}
	if flags&flagMtime != 0 {
		id.ModTime, long = int64(le.Uint64(long)), long[8:]
	}
	if flags&flagBtime != 0 {
		id.BirthTime, long = int64(le.Uint64(long)), long[8:]
	}
	if flags&flagContent != 0 {
		copy(id.Content[:], long)
	}
	return id
}
