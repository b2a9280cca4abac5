package fileproc

import (
	"errors"
	"io/fs"
	"os"
	"sync"

	"github.com/fileproc/fileproc/internal/content"
	"github.com/fileproc/fileproc/internal/gitrepo"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/replace"
	"github.com/fileproc/fileproc/internal/sys"
)

// A directory is the seam between the core and a backend: an open directory of
// an operating system, of an fs.FS, or of a test. A backend lists and reads; it
// knows nothing of a run.
//
// No method follows a symbolic link in the last component. Errors are *sys.Error
// where the system call is known. The error for an entry that is not what the
// listing said is ErrChanged.
//
// One goroutine at a time calls list; several may call the other methods, also
// during list. Nothing is called after close.
type directory interface {
	// list adds some entries to l, without "." and "..", and reports whether the
	// listing goes on.
	list(l *listing) (more bool, err error)
	// openDir opens a subdirectory.
	openDir(name names.Name) (directory, error)
	// open opens a file for reading, without waiting for the writer of a FIFO. The
	// result need not be a regular file: the reader checks that. It may reuse
	// spare, a closed handle that the same backend returned before.
	open(name names.Name, spare content.File) (content.File, error)
	// stat returns the metadata of an entry of any type.
	stat(name names.Name) (sys.Stat, error)
	// openFile opens a regular file for File.Open. The result's Name is path.
	openFile(name names.Name, path string) (*os.File, error)
	// identity distinguishes the directory from all others that exist now.
	identity() (identity, error)
	close()
}

// A searchable is a directory of a system that can open a directory only to reach what is
// below it. Such an open needs no right to list the directory.
type searchable interface {
	openDirToSearch(name names.Name) (directory, error)
}

// openDirToSearch is parent.openDir for a directory that will not be listed. If parent is
// searchable, the right to search the directory is enough, as it is for paths that the
// kernel resolves.
func openDirToSearch(parent directory, name names.Name) (directory, error) {
	d, err := parent.openDir(name)
	if p, ok := parent.(searchable); ok && errors.Is(err, fs.ErrPermission) {
		return p.openDirToSearch(name)
	}
	return d, err
}

// A metadataList is a directory whose listing may have metadata. On Windows, fetching the
// metadata of each file takes a hundred times as long.
type metadataList interface {
	// listedStat returns what the listing said of an entry, but only once: a second
	// call for the entry wants to know what has changed.
	listedStat(name names.Name) (sys.Stat, bool)
}

// An informed is a directory that can look an entry up as package os does: for os.SameFile,
// and for what the system says beyond a sys.Stat.
type informed interface {
	// info returns the fs.FileInfo of an entry, with the Name as.
	info(name names.Name, as string) (fs.FileInfo, error)
}

// A linkReader is a directory that can read the text of a symbolic link in it.
type linkReader interface {
	readLink(name names.Name) (string, error)
}

// An attributed is a directory that has extended attributes.
type attributed interface {
	xattrs() (map[string][]byte, error)
}

// A replacer is a directory in which files can be replaced.
type replacer interface {
	// replace gives the file name new content, unless check returns an error. It returns the
	// metadata that the file then has.
	replace(name names.Name, content []byte, check replace.Check) (sys.Stat, error)
}

// A cleaner is a directory in which a run that was killed may have left a temporary file.
type cleaner interface {
	// clean removes the temporary file name if no process uses it any more.
	clean(name names.Name) error
}

// A divisible is a directory whose listing can go on in two directories at the same time.
type divisible interface {
	// halve ends the listing in the middle of what is left, and returns a directory that lists
	// the rest. It returns false if that is impossible, or if fewer than least bytes are left.
	halve(least int64) (latter directory, ok bool)
}

// A gitDir is a directory of the operating system, which may be the top of a repository.
type gitDir interface {
	// gitAt returns an At that reaches git's files from the open directory. If it
	// returns nil without an error, path, the directory's own, leads to the directory
	// at this moment, and the caller must use path.
	gitAt(path string) (gitrepo.At, error)
}

// An identity says which directory it is of.
type identity interface {
	// same reports whether both are of the same directory.
	same(identity) bool
	// inode is equal for identities of the same directory, and for few others.
	inode() (device, inode uint64)
}

// A listing is what one call of directory.list gives.
type listing struct {
	entries []listedEntry
	errs    []error // about entries whose names are unknown
	records []byte  // memory that the Linux backend uses
}

// listings are kept from run to run.
var listings = sync.Pool{New: func() any { return new(listing) }}

// A listedEntry is an entry as the backend found it. Its name is valid until the
// listing is reused.
type listedEntry struct {
	name  []byte
	typ   fs.FileMode // sys.TypeUnknown where the file system does not say
	inode uint64      // a hint for the order on the disk; 0 where listings have none
}

func (l *listing) add(name []byte, typ fs.FileMode, inode uint64) {
	l.entries = append(l.entries, listedEntry{name, typ, inode})
}

func (l *listing) reset() {
	clear(l.entries) // lets the names go
	l.entries, l.errs, l.records = l.entries[:0], nil, l.records[:0]
}
