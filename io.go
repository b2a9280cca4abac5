package fileproc

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/fileproc/fileproc/internal/content"
	"github.com/fileproc/fileproc/internal/gitrepo"
	"github.com/fileproc/fileproc/internal/names"
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

// statOfStored is sys.StatOfInfo for an fs.FS. Some fs.FS, object stores among them, give
// files the type fs.ModeIrregular, since they know no more about a file.
func statOfStored(info fs.FileInfo) sys.Stat {
	s := sys.StatOfInfo(info)
	s.Mode &^= fs.ModeIrregular
	return s
}

// A soleFile is the directory of a root that leads to a file: it lists only that file.
// Root is opened once; reads and look-ups use the open file. Only a second handle needs
// another open of root, which must then lead to the same file.
type soleFile struct {
	name   names.Name
	file   content.File
	isRead bool
	reopen func() (fs.File, error)
}

var _ directory = (*soleFile)(nil)

// openSoleFile opens root if root leads to a file. NotDir is the reason why root cannot be
// opened as a directory. What counts is the type of the open file. But openSoleFile asks
// for root's type before the open, too: to open a device may have an effect, and the open
// of a FIFO may wait.
func openSoleFile(root string, notDir error) (directory, error) {
	info, err := os.Stat(root)
	switch {
	case err != nil || info.IsDir():
		return nil, notDir
	case !info.Mode().IsRegular():
		return nil, &sys.Error{Op: "open", Err: irregularRoot(info.Mode())}
	}
	f, err := os.OpenFile(root, os.O_RDONLY|sys.OpenFlags, 0)
	if err != nil {
		return nil, sys.AsError("open", err)
	}
	if info, err = f.Stat(); err != nil {
		f.Close()
		return nil, sys.AsError("fstat", err)
	}
	file := newPolledFile(f, info)
	return newSoleFile(filepath.Base(root), &file, sys.StatOfInfo(info), func() (fs.File, error) {
		again, err := os.OpenFile(root, os.O_RDONLY|sys.OpenFlags, 0)
		if err != nil {
			return nil, err
		}
		if now, err := again.Stat(); err != nil || !os.SameFile(info, now) {
			again.Close()
			return nil, cmp.Or(err, ErrChanged)
		}
		return again, nil
	})
}

// newSoleFile returns the directory of the file name, if s is that of a regular file.
func newSoleFile(name string, f content.File, s sys.Stat, reopen func() (fs.File, error)) (directory, error) {
	if !s.Mode.IsRegular() {
		f.Close()
		return nil, sys.AsError("open", irregularRoot(s.Mode))
	}
	return &soleFile{name: names.New(name), file: f, reopen: reopen}, nil
}

func irregularRoot(mode fs.FileMode) error {
	return fmt.Errorf("neither a directory nor a regular file: %v", mode)
}

func (d *soleFile) list(l *listing) (bool, error) {
	l.add(d.name.Bytes(), 0, 0)
	return false, nil
}

// openDir opens d itself once more, as ".".
func (d *soleFile) openDir(name names.Name) (directory, error) {
	if name != names.Dot {
		return nil, errNotDirectory
	}
	f, err := d.reopen()
	if err != nil {
		return nil, sys.AsError("open", err)
	}
	return &soleFile{name: d.name, file: fsFile{f}, reopen: d.reopen}, nil
}

func (d *soleFile) open(names.Name, content.File) (content.File, error) {
	if !d.isRead {
		d.isRead = true
		return keptOpen{d.file}, nil
	}
	f, err := d.reopen()
	if err != nil {
		return nil, sys.AsError("open", err)
	}
	return fsFile{f}, nil
}

// A keptOpen is a file that stays open after its content has been read.
type keptOpen struct{ content.File }

func (keptOpen) Close() {}

// IsRemote is content.Remote.
func (k keptOpen) IsRemote() bool {
	f, ok := k.File.(content.Remote)
	return ok && f.IsRemote()
}

func (d *soleFile) stat(names.Name) (sys.Stat, error) {
	if f, ok := d.file.(*polledFile); ok {
		return f.fsFile.Stat() // as it is now
	}
	return d.file.Stat()
}

func (d *soleFile) openFile(names.Name, string) (*os.File, error) {
	if _, ok := d.file.(*polledFile); !ok {
		return nil, &sys.Error{Op: "open", Err: errors.ErrUnsupported}
	}
	f, err := d.reopen()
	if err != nil {
		return nil, sys.AsError("open", err)
	}
	return f.(*os.File), nil
}

func (d *soleFile) identity() (identity, error) { return fsIdentity{}, nil } // there is no other

func (d *soleFile) close() { d.file.Close() }
