// Package replace gives files new content by a temporary file in the same directory, which takes the file's name. At each
// moment the name has the old content or the new one. What others save meanwhile stays.
package replace

import (
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
)

// The name of a temporary file is a prefix, 128 random bits in hexadecimal, and a suffix.
const (
	prefix = ".fileproc-"
	suffix = ".tmp"
	// NameLength is the length of the name of a temporary file.
	NameLength = len(prefix) + 32 + len(suffix)
)

// LeadsToTemporary is IsTemporary for the last name of a path with slashes.
func LeadsToTemporary(path string) bool {
	at := len(path) - NameLength
	return at >= 0 && (at == 0 || path[at-1] == '/') && IsTemporary([]byte(path[at:]))
}

// StaleAfter is the age from which a temporary file counts as that of a killed process. Groups are made durable long before,
// unless their worker gets no more files for so long. Another run may then remove their temporary files: the files keep the old
// content, and fail with ErrChanged. Tests set it.
var StaleAfter = time.Hour

// IsTemporary reports whether name has the form of a temporary file's.
func IsTemporary(name []byte) bool {
	if len(name) != NameLength || string(name[:len(prefix)]) != prefix || string(name[NameLength-len(suffix):]) != suffix {
		return false
	}
	for _, c := range name[len(prefix) : NameLength-len(suffix)] {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// IsStale reports whether s is of a temporary file that nobody uses any more. Its ModTime may be that of a file which it has
// replaced, so ChangeTime decides where there is one.
func IsStale(s sys.Stat) bool {
	newest := s.ModTime
	if s.ChangeTime.After(newest) {
		newest = s.ChangeTime
	}
	return s.Mode.IsRegular() && time.Since(newest) > StaleAfter
}

func newName() names.Name {
	var random [16]byte
	for i, bits := 0, uint64(0); i < len(random); i++ {
		if i%8 == 0 {
			bits = rand.Uint64()
		}
		random[i] = byte(bits >> (i % 8 * 8))
	}
	return names.New(prefix + hex.EncodeToString(random[:]) + suffix)
}

// An Old is the file to be replaced, open for reading. As in content.File, a Read of 0 bytes without an error is the end.
type Old interface{ Read(p []byte) (int, error) }

// A Check returns nil if a file is still what the caller has read. Now is the file's metadata.
type Check func(now sys.Stat, content Old) error

// A Pending is new content in a temporary file, which does not have the name of the file yet.
type Pending struct {
	Name, Temporary names.Name
	old, new        sys.Stat // of the file to be replaced, and of the temporary file
}

// AfterPrepare is called between the look at the file and the exchange of names. Tests set it.
var AfterPrepare = func() {}

var errNotKept = errors.New("the new file cannot have the owner, mode or attributes of the old one")

// An unfinished is the error of what comes after the exchange of names: the file has its new content.
type unfinished struct {
	error
	but string
}

func (u unfinished) Error() string {
	return "the file has the new content, but " + u.but + ": " + u.error.Error()
}
func (u unfinished) Unwrap() error { return u.error }

func asUnfinished(err error, but string) error {
	if e, ok := err.(*sys.Error); ok {
		return &sys.Error{Op: e.Op, Err: unfinished{e.Err, but}}
	}
	return err
}

// AsUnsynced marks err, unless it is nil, as that of a last sync: the disk has perhaps the old content.
func AsUnsynced(err error) error { return asUnfinished(err, "not for sure on the disk") }

// IsDone reports whether the file has its new content, although perhaps not on the disk.
func IsDone(err error) bool {
	_, ok := errors.AsType[unfinished](err)
	return err == nil || ok
}

func changed(op string) error { return &sys.Error{Op: op, Err: sys.ErrChanged} }

// isFile reports whether a and b are of the same file with the same content, mode and owner. It does not compare the change
// time, which a rename sets.
func isFile(a, b sys.Stat) bool {
	return a.Device == b.Device && a.Inode == b.Inode && isLike(a, b)
}

func isLike(a, b sys.Stat) bool {
	return a.Size == b.Size && a.ModTime.Equal(b.ModTime) && a.Mode == b.Mode && a.UID == b.UID && a.GID == b.GID
}

// isKept returns nil if the new file, which has been written, has what the old file had. A write takes setuid and setgid away.
func isKept(was, is sys.Stat) error {
	if was.Mode.Perm() != is.Mode.Perm() || was.UID != is.UID || was.GID != is.GID {
		return &sys.Error{Op: "fchmod", Err: errNotKept}
	}
	return nil
}
