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

// A searchable is a directory of a system that opens directories for what is below
// them alone, which needs no right to list them.
type searchable interface {
	openDirToSearch(name names.Name) (directory, error)
}

// openDirToSearch is parent.openDir for a directory that is not listed: the right to
// search it is enough, as it is for paths that the kernel resolves, if parent is
// searchable.
func openDirToSearch(parent directory, name names.Name) (directory, error) {
	d, err := parent.openDir(name)
	if p, ok := parent.(searchable); ok && errors.Is(err, fs.ErrPermission) {
		return p.openDirToSearch(name)
	}
	return d, err
}

// A metadataList is a directory whose listing may have metadata. On Windows a look at
// each file takes a hundred times as long.
type metadataList interface {
	// listedStat returns what the listing said of an entry, once: who asks again wants
	// to know what has changed.
	listedStat(name names.Name) (sys.Stat, bool)
}

// A gitDir is a directory of the system, in which a repository may have its top.
type gitDir interface {
	// gitAt returns what reaches git's files from the open directory. Nil says that
	// path, the directory's own, leads to it at this moment and has to do.
	gitAt(path string) (gitrepo.At, error)
}

// An identity is equal to another if both are of the same directory.
type identity interface {
	same(identity) bool
	// inode is the same for all identities that are equal, and for few others.
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

// statOfStored is sys.StatOf for an fs.FS. Some, object stores among them, call
// a file fs.ModeIrregular, since they know nothing else about it.
func statOfStored(info fs.FileInfo) sys.Stat {
	s := sys.StatOfInfo(info)
	s.Mode &^= fs.ModeIrregular
	return s
}

// A soleFile is the directory of a root that leads to a file: it lists that one
// alone. Root is opened once, and what is read and looked up is the open file. Only
// who wants a second handle opens root again, which must then lead to the same file.
type soleFile struct {
	name   names.Name
	file   content.File
	isRead bool
	reopen func() (fs.File, error)
}

var _ directory = (*soleFile)(nil)

// openSoleFile opens root if that leads to a file. NotDir is why it cannot be opened
// as a directory. What root is counts once it is open, but to open a device may have
// an effect, and that of a FIFO may wait.
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

// newSoleFile returns the directory of the file name, if s is a file's.
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

// keptOpen is a file that stays open when its content has been read.
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
