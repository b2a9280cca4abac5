// Package dirent parses the records that Linux's getdents64 writes.
//
// It makes no system call and builds on every platform, so the parser can be tested and fuzzed anywhere.
package dirent

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// The values of Record.Type. A file system may report Unknown for any entry; the caller must then stat the entry.
const (
	Unknown   = 0
	FIFO      = 1
	CharDev   = 2
	Directory = 4
	BlockDev  = 6
	Regular   = 8
	Symlink   = 10
	Socket    = 12
	Whiteout  = 14
)

// The layout of struct linux_dirent64, which is the same on every architecture:
//
//	u64 d_ino; s64 d_off; u16 d_reclen; u8 d_type; char d_name[];
const (
	offOffset    = 8
	reclenOffset = 16
	typeOffset   = 18
	nameOffset   = 19
)

// ErrMalformed is wrapped by every error of Next.
var ErrMalformed = errors.New("dirent: malformed directory record")

// A Record is one directory entry.
type Record struct {
	Ino  uint64
	Off  int64  // a cookie for lseek: the position of the next entry
	Name []byte // borrowed from the buffer; never empty, contains no NUL
	Type uint8
}

// Next parses the record at the head of buf and returns what follows it.
//
// Next skips no entry: the caller handles ".", "..", and a name with a slash. On success rest is shorter than buf, and on
// failure rest is nil, so a loop while rest is not empty always ends. Nothing can be parsed after a malformed record,
// since its length cannot be trusted.
func Next(buf []byte) (rec Record, rest []byte, err error) {
	// A record has a header and at least one byte of name; the NUL is checked below.
	if len(buf) <= nameOffset {
		return Record{}, nil, malformed(buf)
	}
	reclen := int(binary.NativeEndian.Uint16(buf[reclenOffset:]))
	if reclen <= nameOffset || reclen > len(buf) {
		return Record{}, nil, malformed(buf)
	}
	name := buf[nameOffset:reclen]
	end := bytes.IndexByte(name, 0)
	if end <= 0 {
		return Record{}, nil, malformed(buf)
	}
	return Record{
		Ino:  binary.NativeEndian.Uint64(buf),
		Off:  int64(binary.NativeEndian.Uint64(buf[offOffset:])),
		Name: name[:end:end],
		Type: buf[typeOffset],
	}, buf[reclen:], nil
}

// malformed returns an error that says what is wrong with the record at the head of buf. It is not part of Next, which
// keeps formatting and its allocation out of the loop over good records.
//
//go:noinline
func malformed(buf []byte) error {
	if len(buf) <= nameOffset {
		return fmt.Errorf("%w: %d bytes left, too few for a record", ErrMalformed, len(buf))
	}
	reclen := int(binary.NativeEndian.Uint16(buf[reclenOffset:]))
	if reclen <= nameOffset {
		return fmt.Errorf("%w: length %d is too short for a name", ErrMalformed, reclen)
	}
	if reclen > len(buf) {
		return fmt.Errorf("%w: length %d with %d bytes left", ErrMalformed, reclen, len(buf))
	}
	name := buf[nameOffset:reclen]
	if name[0] == 0 {
		return fmt.Errorf("%w: empty name", ErrMalformed)
	}
	return fmt.Errorf("%w: name %q has no terminating NUL", ErrMalformed, name)
}
