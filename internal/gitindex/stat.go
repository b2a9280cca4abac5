package gitindex

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"io"
	"strings"
	"time"
)

// A Stat is what the index says of a file in the work tree.
type Stat struct {
	ChangeTime, ModTime Time
	Inode, UID, GID     uint32
	Size                uint32 // see HasSize
	IsLink              bool
	IsExecutable        bool
	IsInConflict        bool
	IsAssumed           bool // to be unchanged
	IsOutside           bool // a sparse checkout
	IsToBeAdded         bool
}

// Stat returns what the index says of e, which is no directory.
func (e *Entry) Stat() Stat {
	number := func(at int) uint32 { return binary.BigEndian.Uint32(e.head[at:]) }
	mode, flags, more := number(modeAt), e.head[hashAt+e.hashSize()], byte(0)
	if flags&0x40 != 0 {
		more = e.head[hashAt+e.hashSize()+2]
	}
	return Stat{
		ChangeTime: Time{number(0), number(4)}, ModTime: Time{number(8), number(12)}, Inode: number(20), UID: number(28), GID: number(32), Size: number(sizeAt),
		IsLink: mode>>12 == 0o12, IsExecutable: mode&0o100 != 0,
		IsInConflict: flags&0x30 != 0, IsAssumed: flags&0x80 != 0, IsOutside: more&0x40 != 0, IsToBeAdded: more&0x20 != 0,
	}
}

// HasSize reports whether a file of this size has the size that the index says. If that is 0, git wants to compare the content,
// unless e is empty. So for a multiple of 4 GiB, git from 2.43 on writes another number.
func (e *Entry) HasSize(size int64) bool {
	low := uint32(size)
	if low == 0 && size > 0 {
		low = 1 << 31
	}
	return binary.BigEndian.Uint32(e.head[sizeAt:]) == low && (low > 0 || e.IsOf(strings.NewReader(""), 0))
}

func (e *Entry) hashSize() int {
	if len(e.head) >= hashAt+sha256.Size+2 {
		return sha256.Size
	}
	return sha1.Size
}

// IsOf reports whether the content of e is what r gives, of this size.
func (e *Entry) IsOf(r io.Reader, size int64) bool {
	var h hash.Hash = sha1.New()
	if e.hashSize() == sha256.Size {
		h = sha256.New()
	}
	fmt.Fprintf(h, "blob %d\x00", size)
	n, err := io.Copy(h, r)
	return err == nil && n == size && bytes.Equal(h.Sum(nil), e.ID())
}

// ID returns git's hash of the content of e, which must not be changed.
func (e *Entry) ID() []byte { return e.head[hashAt : hashAt+e.hashSize()] }

// A Time has the lowest bits of the seconds since 1970, and the nanoseconds, which are 0 if who wrote the index has none.
type Time struct{ sec, nsec uint32 }

// Is reports whether t is u, as far as t says.
func (t Time) Is(u time.Time) bool {
	return t.sec == uint32(u.Unix()) && (t.nsec == 0 || t.nsec == uint32(u.Nanosecond()))
}

// IsBefore reports whether t is before u.
func (t Time) IsBefore(u time.Time) bool {
	s := uint32(u.Unix())
	return t.sec < s || t.sec == s && t.nsec != 0 && t.nsec < uint32(u.Nanosecond())
}
