// Package backend lists directories and opens what is in them. There is one backend for
// Linux, one for other Unix systems, and one that uses package os alone; a build has one of
// the three. A fourth is for an fs.FS. A backend knows nothing of a run: its caller filters,
// sorts, retries and counts.
package backend

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"github.com/fileproc/fileproc/internal/content"
	"github.com/fileproc/fileproc/internal/gitrepo"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/replace"
	"github.com/fileproc/fileproc/internal/sys"
)

// A Directory is an open directory of an operating system, of an fs.FS, or of a test.
//
// No method follows a symbolic link in the last component. Errors are *sys.Error
// where the system call is known. The error for an entry that is not what the
// listing said is sys.ErrChanged.
//
// One goroutine at a time calls List; several may call the other methods, also
// during List. Nothing is called after Close.
type Directory interface {
	// List adds some entries to l, without "." and "..", and reports whether the
	// listing goes on.
	List(l *Listing) (more bool, err error)
	// OpenDir opens a subdirectory.
	OpenDir(name names.Name) (Directory, error)
	// Open opens a file for reading, without waiting for the writer of a FIFO. The
	// result need not be a regular file: the reader checks that. It may reuse
	// spare, a closed handle that the same backend returned before.
	Open(name names.Name, spare content.File) (content.File, error)
	// Stat returns the metadata of an entry of any type.
	Stat(name names.Name) (sys.Stat, error)
	// OpenFile opens a regular file for File.Open. The result's Name is path.
	OpenFile(name names.Name, path string) (*os.File, error)
	// Identity distinguishes the directory from all others that exist now.
	Identity() (Identity, error)
	Close()
}

// A Searchable is a directory of a system that can open a directory only to reach what is
// below it. Such an open needs no right to list the directory.
type Searchable interface {
	OpenDirToSearch(name names.Name) (Directory, error)
}

// OpenDirToSearch is parent.OpenDir for a directory that will not be listed. If parent is
// a Searchable, the right to search the directory is enough, as it is for paths that the
// kernel resolves.
func OpenDirToSearch(parent Directory, name names.Name) (Directory, error) {
	d, err := parent.OpenDir(name)
	if p, ok := parent.(Searchable); ok && errors.Is(err, fs.ErrPermission) {
		return p.OpenDirToSearch(name)
	}
	return d, err
}

// A MetadataList is a directory whose listing may have metadata. On Windows, fetching the
// metadata of each file takes a hundred times as long.
type MetadataList interface {
	// ListedStat returns what the listing said of an entry, but only once: a second
	// call for the entry wants to know what has changed.
	ListedStat(name names.Name) (sys.Stat, bool)
}

// An Informed is a directory that can look an entry up as package os does: for os.SameFile,
// and for what the system says beyond a sys.Stat.
type Informed interface {
	// Info returns the fs.FileInfo of an entry, with the Name as.
	Info(name names.Name, as string) (fs.FileInfo, error)
}

// A LinkReader is a directory that can read the text of a symbolic link in it.
type LinkReader interface {
	ReadLink(name names.Name) (string, error)
}

// An Attributed is a directory that has extended attributes.
type Attributed interface {
	Xattrs() (map[string][]byte, error)
}

// An AnyAttributed is a directory that has the metadata and the extended attributes of an entry
// of any type. It opens the entry only to look at it.
type AnyAttributed interface {
	XattrsOf(name names.Name) (sys.Stat, map[string][]byte, error)
}

// A Replacer is a directory in which files can be replaced.
type Replacer interface {
	// Replace gives the file name new content, unless check returns an error. It returns the
	// metadata that the file then has. If durable is set, all is then on the disk.
	Replace(name names.Name, content []byte, check replace.Check, durable bool) (sys.Stat, error)
}

// A Cleaner is a directory in which a run that was killed may have left a temporary file.
type Cleaner interface {
	// Clean removes the temporary file name if no process uses it any more.
	Clean(name names.Name) error
}

// A Divisible is a directory whose listing can go on in two directories at the same time.
type Divisible interface {
	// Halve ends the listing in the middle of what is left, and returns a directory that lists
	// the rest. It returns false if that is impossible, or if fewer than least bytes are left.
	Halve(least int64) (latter Directory, ok bool)
}

// A GitDir is a directory of the operating system, which may be the top of a repository.
type GitDir interface {
	// GitAt returns an At that reaches git's files from the open directory. If it
	// returns nil without an error, path, the directory's own, leads to the directory
	// at this moment, and the caller must use path.
	GitAt(path string) (gitrepo.At, error)
}

// GitAt is d.GitAt if d is a GitDir, and else returns nil.
func GitAt(d Directory, path string) (gitrepo.At, error) {
	if g, ok := d.(GitDir); ok {
		return g.GitAt(path)
	}
	return nil, nil
}

// An Identity says which directory it is of.
type Identity interface {
	// Same reports whether both are of the same directory.
	Same(Identity) bool
	// Inode is equal for identities of the same directory, and for few others.
	Inode() (device, inode uint64)
}

// A Listing is what one call of Directory.List gives.
type Listing struct {
	Entries []Entry
	Errs    []error // about entries whose names are unknown
	records []byte  // memory that the Linux backend uses
}

// listings are kept from run to run.
var listings = sync.Pool{New: func() any { return new(Listing) }}

// NewListing returns an empty Listing, to be released.
func NewListing() *Listing { return listings.Get().(*Listing) }

// Release lets others use l. The caller must not use it any more.
func (l *Listing) Release() {
	l.Reset()
	listings.Put(l)
}

// An Entry is an entry as the backend found it. Its name is valid until the
// listing is reused.
type Entry struct {
	Name  []byte
	Type  fs.FileMode // sys.TypeUnknown where the file system does not say
	Inode uint64      // a hint for the order on the disk; 0 where listings have none
}

// Add adds an entry. It keeps name.
func (l *Listing) Add(name []byte, typ fs.FileMode, inode uint64) {
	l.Entries = append(l.Entries, Entry{name, typ, inode})
}

// Reset empties l, which can then be used for another call.
func (l *Listing) Reset() {
	clear(l.Entries) // lets the names go
	l.Entries, l.Errs, l.records = l.Entries[:0], nil, l.records[:0]
}

// BadName is the failure of an entry whose listed name is not a single name.
func BadName(name []byte) error {
	return fmt.Errorf("%q cannot be the name of an entry: %w", name, fs.ErrInvalid)
}
