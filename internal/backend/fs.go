package backend

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"sort"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/fileproc/fileproc/internal/content"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/replace"
	"github.com/fileproc/fileproc/internal/sys"
)

// listSize is how many entries listFile asks package os, or an fs.FS, for at a time.
const listSize = 256

// listFile is Directory.List for directories with ReadDir. It ignores the type bits in
// regular. Unless note is nil, it calls note for each entry.
func listFile(f fs.ReadDirFile, l *Listing, regular fs.FileMode, note func(fs.DirEntry)) (bool, error) {
	_, goesOn := f.(*os.File)
	for listed := 0; listed < listSize; {
		entries, err := f.ReadDir(listSize)
		for _, e := range entries {
			if note != nil {
				note(e)
			}
			name := e.Name()
			l.Add(unsafe.Slice(unsafe.StringData(name), len(name)), e.Type()&^regular, 0)
		}
		listed += len(entries)
		if goesOn && isEntryError(err) {
			l.Errs = append(l.Errs, sys.AsError("readdir", err))
			continue
		}
		switch {
		case err == io.EOF, err == nil && len(entries) == 0: // without io.EOF, an fs.FS breaks the contract of ReadDir
			return false, nil
		case err != nil:
			return false, sys.AsError("readdir", err)
		}
	}
	return true, nil
}

// isEntryError reports whether err, from package os, is about the type of one entry. The
// error does not have the entry's name, and the listing goes on after it. From another
// fs.FS, such an error may be about the directory and come again for ever.
func isEntryError(err error) bool {
	e, ok := err.(*fs.PathError)
	return ok && (e.Op == "fstatat" || e.Op == "lstat")
}

// FSDir is a directory of an fs.FS, which opens by path alone. So FSDir is a path, and
// during the listing also an open file.
type FSDir struct {
	fsys fs.FS
	name string  // the path, or its last element if up is set: with whole paths, memory would grow with the square of the depth
	file fs.File // nil once the listing is over
	up   *FSDir  // the directory above, if Options.Files named this one and nothing has opened it; else nil
	// named says that Options.Files may name the files that are opened in the directory.
	// Nothing has listed them, and one may be a FIFO, whose open would wait.
	named bool
	// checked is set once it is known whether a directory that was named is one. It has
	// nil, or the reason why it is none.
	checked atomic.Pointer[error]
}

var _ Directory = (*FSDir)(nil)

var (
	errNotListable  = &sys.Error{Op: "readdir", Err: errors.New("not a directory that can be listed")}
	errNotDirectory = &sys.Error{Op: "readdir", Err: errors.New("not a directory")}
)

func openFS(fsys fs.FS, name string) (Directory, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, asFSError(err)
	}
	if _, ok := f.(fs.ReadDirFile); !ok {
		f.Close()
		return nil, errNotListable
	}
	if info, err := f.Stat(); err == nil && !info.IsDir() {
		f.Close()
		return nil, errNotDirectory
	}
	return &FSDir{fsys: fsys, name: name, file: f}, nil
}

// OpenFSRoot opens root, which may lead to a file. Named says that Options.Files names what
// is opened below root.
func OpenFSRoot(fsys fs.FS, root string, named bool) (Directory, error) {
	if named && root == "." { // it is always there, and is not listed
		return &FSDir{fsys: fsys, name: ".", named: true}, nil
	}
	if root != "." { // "." is always a directory
		if mode, waits := sys.OpenOfFSWaits(fsys, root); waits {
			return nil, &sys.Error{Op: "open", Err: irregularRoot(mode)}
		}
	}
	f, err := fsys.Open(root)
	if err != nil {
		return nil, sys.AsError("open", err) // nothing has listed root, so it has not changed
	}
	_, listable := f.(fs.ReadDirFile)
	switch info, err := f.Stat(); {
	case err == nil && !info.IsDir():
		return newSoleFile(&SoleFile{
			name: names.New(path.Base(root)), file: fsFile{f}, reopen: func() (fs.File, error) { return fsys.Open(root) },
			parent: func() (Directory, names.Name, error) {
				return &FSDir{fsys: fsys, name: path.Dir(root)}, names.New(path.Base(root)), nil
			},
		}, StatOfStored(info))
	case !listable:
		f.Close()
		return nil, errNotListable
	}
	return &FSDir{fsys: fsys, name: root, file: f, named: named}, nil
}

// OpenGiven is OpenDirToSearch for a directory in which Options.Files names entries. It
// does not open a directory of an fs.FS, whose files are opened by their paths: in an
// object store, the open would list the directory.
func OpenGiven(parent Directory, name names.Name) (Directory, error) {
	if d, ok := parent.(*FSDir); ok {
		return &FSDir{fsys: d.fsys, name: name.String(), up: d, named: true}, nil
	}
	return OpenDirToSearch(parent, name)
}

// join returns the path of the entry name, or d's own if that is ".", for which only a
// directory is asked that has been opened: its up is nil.
func (d *FSDir) join(name string) string {
	if name == "." {
		return d.name
	}
	size := len(name)
	for up := d; up != nil; up = up.up {
		size += len(up.name) + 1
	}
	p := make([]byte, size)
	end := size - copy(p[size-len(name):], name)
	for up := d; up != nil && up.name != "."; up = up.up {
		p[end-1] = '/'
		end -= 1 + copy(p[end-1-len(up.name):], up.name)
	}
	return unsafe.String(&p[end], size-end)
}

// why returns the reason why an entry of d cannot be opened: err, or an error that says
// that d, or a directory above it, is none.
func (d *FSDir) why(err error) error {
	if d.up == nil {
		return err
	}
	notDir := d.checkDir()
	if notDir == nil {
		return err
	}
	var above []*FSDir // the highest that is no directory has the reason; a search finds it with few opens, which may take long
	for up := d.up; up.up != nil; up = up.up {
		above = append(above, up)
	}
	none := sort.Search(len(above), func(i int) bool {
		err := above[i].checkDir()
		notDir = cmp.Or(err, notDir)
		return err == nil
	})
	for _, below := range append(above[:none], d) {
		below.note(notDir)
	}
	return notDir
}

// checkDir returns why d, which was named, is no directory, or nil.
func (d *FSDir) checkDir() error {
	if known := d.checked.Load(); known != nil {
		return *known
	}
	sub, err := openSubdir(d.fsys, d.up.join(d.name), true)
	if err == nil {
		sub.Close()
		d.note(nil)
	}
	return err
}

// note keeps notDir, which checkDir then returns, unless it is an error that may pass.
func (d *FSDir) note(notDir error) {
	if notDir == nil || errors.Is(notDir, sys.ErrChanged) {
		d.checked.Store(&notDir)
	}
}

// asFSError is sys.AsError for the open or the stat of an entry.
func asFSError(err error) error {
	err = sys.AsError("open", err)
	if e := err.(*sys.Error); errors.Is(err, fs.ErrNotExist) {
		e.Err = sys.Changed{Err: e.Err}
	}
	return err
}

func (d *FSDir) List(l *Listing) (bool, error) {
	more, err := listFile(d.file.(fs.ReadDirFile), l, fs.ModeIrregular, nil)
	if !more {
		d.Close()
	}
	return more, err
}

func (d *FSDir) OpenDir(name names.Name) (Directory, error) {
	sub, err := openSubdir(d.fsys, d.join(name.String()), d.named)
	if err != nil {
		return nil, d.why(err)
	}
	return sub, nil
}

func openSubdir(fsys fs.FS, name string, named bool) (Directory, error) {
	var sub Directory
	waits := false
	err := error(errNotDirectory)
	if named {
		_, waits = sys.OpenOfFSWaits(fsys, name)
	}
	if !waits {
		sub, err = openFS(fsys, name)
	}
	if err == errNotListable || err == errNotDirectory {
		err = &sys.Error{Op: "readdir", Err: sys.Changed{Err: errors.Unwrap(err)}}
	}
	return sub, err
}

func (d *FSDir) Open(name names.Name, _ content.File) (content.File, error) {
	p := d.join(name.String())
	if d.named {
		if mode, waits := sys.OpenOfFSWaits(d.fsys, p); waits {
			return nil, sys.CheckRegular("stat", mode)
		}
	}
	f, err := d.fsys.Open(p)
	if err != nil {
		return nil, d.why(asFSError(err))
	}
	return fsFile{f}, nil
}

func (d *FSDir) Stat(name names.Name) (sys.Stat, error) {
	info, err := fs.Lstat(d.fsys, d.join(name.String()))
	if err != nil {
		return sys.Stat{}, d.why(asFSError(err))
	}
	return StatOfStored(info), nil
}

// Type returns the type of an entry. Unlike Stat, it does not look for the reason of an
// error, which takes more opens.
func (d *FSDir) Type(name names.Name) (fs.FileMode, error) {
	info, err := fs.Lstat(d.fsys, d.join(name.String()))
	if err != nil {
		return 0, asFSError(err)
	}
	return info.Mode().Type() &^ fs.ModeIrregular, nil
}

func (d *FSDir) ReadLink(name names.Name) (string, error) {
	l, ok := d.fsys.(fs.ReadLinkFS)
	if !ok {
		return "", errors.ErrUnsupported
	}
	text, err := l.ReadLink(d.join(name.String()))
	if err != nil {
		return "", d.why(asFSError(err))
	}
	return text, nil
}

func (d *FSDir) OpenFile(names.Name, string) (*os.File, error) {
	return nil, &sys.Error{Op: "open", Err: errors.ErrUnsupported}
}

// ErrNotReplaceable is the error of Replace where files cannot be replaced.
var ErrNotReplaceable = &sys.Error{Op: "replace", Err: errors.ErrUnsupported}

// Replace writes through the method WriteFile of a cache.Store or of a cache.FS.
func (d *FSDir) Replace(name names.Name, content []byte, check replace.Check, _ bool) (s sys.Stat, err error) {
	var write func(string, []byte) (fs.FileInfo, error)
	switch fsys := d.fsys.(type) {
	case interface {
		WriteFile(string, []byte) (fs.FileInfo, error)
	}:
		write = fsys.WriteFile
	case interface{ WriteFile(string, []byte) error }:
		write = func(name string, content []byte) (fs.FileInfo, error) { return nil, fsys.WriteFile(name, content) }
	default:
		return s, ErrNotReplaceable
	}
	f, err := d.Open(name, nil)
	if err != nil {
		return s, err
	}
	if s, err = f.Stat(); err == nil {
		err = check(s, f)
	}
	f.Close()
	if err != nil {
		return s, err
	}
	info, err := write(d.join(name.String()), content)
	switch {
	case err != nil:
		return s, sys.AsError("write", err)
	case info == nil:
		if now, err := d.Stat(name); err == nil { // otherwise File.Unchanged finds a change
			s = now
		}
		return s, nil
	}
	return StatOfStored(info), nil
}

func (d *FSDir) Identity() (Identity, error) { return ByPath{}, nil }

// ByPath is the Identity of a directory that is found by a path that does not change. It
// equals all others.
type ByPath struct{}

func (ByPath) Same(Identity) bool { return true }

func (ByPath) Inode() (device, inode uint64) { return 0, 0 }

func (d *FSDir) Close() {
	if d.file != nil {
		f := d.file
		d.file = nil // also when Close panics
		f.Close()
	}
}

// StatOfStored is sys.StatOfInfo for an fs.FS. Some fs.FS, object stores among them, give
// files the type fs.ModeIrregular, since they know no more about a file.
func StatOfStored(info fs.FileInfo) sys.Stat {
	s := sys.StatOfInfo(info)
	s.Mode &^= fs.ModeIrregular
	return s
}

// fsFile is an open file of an fs.FS. For a file of package os, it has all but Stat.
type fsFile struct{ fs.File }

func (f fsFile) Cached([]byte) (int, bool) { return 0, false }

func (f fsFile) Read(p []byte) (int, error) {
	// An io.Reader may return no bytes before its end.
	for range 100 {
		n, err := f.File.Read(p)
		switch {
		case err != nil && err != io.EOF: // also if content came with the error, which need not come again
			return 0, sys.AsError("read", err)
		case n > 0 || err == io.EOF:
			return n, nil
		}
	}
	return 0, &sys.Error{Op: "read", Err: io.ErrNoProgress}
}

// Skip is that of content.Skipper.
func (f fsFile) Skip(n int64) bool {
	s, ok := f.File.(io.Seeker)
	if ok {
		_, err := s.Seek(n, io.SeekStart)
		ok = err == nil
	}
	return ok
}

func (f fsFile) Stat() (sys.Stat, error) {
	info, err := f.File.Stat()
	if err != nil {
		return sys.Stat{}, sys.AsError("stat", err)
	}
	return StatOfStored(info), nil
}

func (f fsFile) Close() { f.File.Close() }

// polledFile is an open file of package os with the metadata from its open.
type polledFile struct {
	fsFile
	info        fs.FileInfo
	hasDeadline bool
}

func newPolledFile(f *os.File, info fs.FileInfo) polledFile {
	// Few regular files support a deadline: only those that the runtime's poller
	// accepts, such as /proc/kmsg and files on FUSE.
	return polledFile{fsFile{f}, info, f.SetReadDeadline(time.Time{}) == nil}
}

func (f *polledFile) Read(p []byte) (int, error) {
	if f.hasDeadline {
		f.File.(*os.File).SetReadDeadline(time.Now().Add(content.WaitSlice)) // cannot fail: it has a deadline
	}
	n, err := f.fsFile.Read(p)
	switch {
	case f.hasDeadline && errors.Is(err, os.ErrDeadlineExceeded):
		return 0, content.ErrWouldBlock
	case err != nil && sys.IsLeased(err): // EAGAIN, from a file without deadlines
		time.Sleep(content.WaitSlice)
		return 0, content.ErrWouldBlock
	}
	return n, err
}

// IsRemote is content.Remote.
func (f *polledFile) IsRemote() bool { return sys.IsRemote(f.info) }

func (f *polledFile) Stat() (sys.Stat, error) { return sys.StatOfInfo(f.info), nil }

// An osFile is the identity of what package os has opened.
type osFile struct{ fs.FileInfo }

func (f osFile) Same(other Identity) bool {
	o, ok := other.(osFile)
	return ok && os.SameFile(f.FileInfo, o.FileInfo)
}

func (f osFile) Inode() (device, inode uint64) {
	s := sys.StatOfInfo(f.FileInfo)
	return s.Device, s.Inode
}
