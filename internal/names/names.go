// Package names holds the names that a directory lists.
package names

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"unsafe"
)

// A Name is the name of an entry. Only an Arena makes Names. It puts a zero byte behind each
// in memory, so a system call can take Pointer without a copy.
type Name struct{ s string }

// Dot is the name of a directory's entry for itself.
var Dot = New(".")

// New returns a Name with memory of its own.
func New(name string) Name { return new(Arena).Add([]byte(name)) }

func (n Name) String() string { return n.s }

// Bytes returns the name's own bytes, which must not be changed.
func (n Name) Bytes() []byte { return unsafe.Slice(unsafe.StringData(n.s), len(n.s)) }

// Pointer returns the name as a C string. The caller keeps n alive.
func (n Name) Pointer() unsafe.Pointer { return unsafe.Pointer(unsafe.StringData(n.s)) }

const (
	minBlock = 128
	maxBlock = 64 << 10
)

// An Arena holds names in blocks. It writes no part of a block twice, so callers may keep a name
// for ever (and with it the name's block, of at most maxBlock bytes or one
// name). The blocks grow, so that a small run takes little memory.
type Arena struct {
	block []byte
	size  int
}

// Add returns a copy of name.
func (a *Arena) Add(name []byte) Name {
	if cap(a.block)-len(a.block) < len(name)+1 {
		a.size = min(max(2*a.size, minBlock), maxBlock)
		a.block = make([]byte, 0, max(a.size, len(name)+1))
	}
	start := len(a.block)
	a.block = append(append(a.block, name...), 0)
	return Name{unsafe.String(unsafe.SliceData(a.block[start:]), len(name))}
}

// Valid reports whether name is one component of a path. A name from a listing may be invalid: an
// fs.FS may be wrong or hostile, or a file system's image damaged.
func Valid(name []byte) bool {
	return len(name) > 0 && !IsDot(name) && bytes.IndexByte(name, '/') < 0
}

// IsLocal reports whether a valid name can open nothing but the entry, of the system's files.
// Windows has another separator besides the slash, drives and devices, and removes dots and
// spaces from the end of a name.
func IsLocal(name []byte) bool {
	return filepath.Separator == '/' ||
		bytes.IndexByte(name, filepath.Separator) < 0 && len(bytes.TrimRight(name, ". ")) == len(name) && filepath.IsLocal(string(name))
}

// Below returns a function that makes names which a caller gives relative to root, if they are below it: it takes off "./",
// as find prints it, and from an absolute path what leads to root. It returns any other name as it is. Root is of the
// operating system's files unless isFS is set, and then no absolute path is below it.
func Below(root string, isFS bool) func(name string) string {
	absolute := sync.OnceValue(func() string {
		abs, err := filepath.Abs(root)
		if err != nil || HasDotDot(root) {
			return ""
		}
		return strings.TrimSuffix(filepath.ToSlash(abs), "/") + "/"
	})
	return func(name string) string {
		if !isFS && filepath.IsAbs(name) && absolute() != "" {
			if rel := strings.TrimPrefix(filepath.ToSlash(name), absolute()); rel != "" {
				name = rel
			}
		}
		for len(name) > 2 && name[:2] == "./" {
			name = name[2:]
		}
		return name
	}
}

// Mark returns the name of the file that m, of Options.SkipMarked, stands for, and whether
// root is not marked by it.
func Mark(m string) (name string, belowRoot bool) { return strings.CutPrefix(m, "*/") }

// HasDotDot reports whether a path has an element "..". Behind a symbolic link it need not lead to
// where Join, Clean and Abs say.
func HasDotDot(path string) bool {
	return strings.Contains(path, "..") && slices.Contains(strings.Split(filepath.ToSlash(path), "/"), "..")
}

// IsDot reports whether name is "." or "..".
func IsDot(name []byte) bool {
	return name[0] == '.' && (len(name) == 1 || len(name) == 2 && name[1] == '.')
}
