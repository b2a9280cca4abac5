package fileproc

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/fileproc/fileproc/internal/content"
	"github.com/fileproc/fileproc/internal/fsinfo"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/replace"
	"github.com/fileproc/fileproc/internal/sys"
)

// listSize is how many entries listFile asks package os, or an fs.FS, for at a time.
const listSize = 256

// listFile is directory.list for directories with ReadDir. It ignores the type bits in
// regular. Unless note is nil, it calls note for each entry.
func listFile(f fs.ReadDirFile, l *listing, regular fs.FileMode, note func(fs.DirEntry)) (bool, error) {
	_, goesOn := f.(*os.File)
	for listed := 0; listed < listSize; {
		entries, err := f.ReadDir(listSize)
		for _, e := range entries {
			if note != nil {
				note(e)
			}
			name := e.Name()
			l.add(unsafe.Slice(unsafe.StringData(name), len(name)), e.Type()&^regular, 0)
		}
		listed += len(entries)
		if goesOn && isEntryError(err) {
			l.errs = append(l.errs, sys.AsError("readdir", err))
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

// fsDir is a directory of an fs.FS, which opens by path alone. So fsDir is a path, and
// during the listing also an open file.
type fsDir struct {
	fsys fs.FS
	name string  // the path, or its last element if up is set: with whole paths, memory would grow with the square of the depth
	file fs.File // nil once the listing is over
	up   *fsDir  // the directory above, if Options.Files named this one and nothing has opened it; else nil
	// named says that Options.Files may name the files that are opened in the directory.
	// Nothing has listed them, and one may be a FIFO, whose open would wait.
	named bool
	// checked is set once it is known whether a directory that was named is one. It has
	// nil, or the reason why it is none.
	checked atomic.Pointer[error]
}

var _ directory = (*fsDir)(nil)

var (
	errNotListable  = &sys.Error{Op: "readdir", Err: errors.New("not a directory that can be listed")}
	errNotDirectory = &sys.Error{Op: "readdir", Err: errors.New("not a directory")}
)

func openFS(fsys fs.FS, name string) (directory, error) {
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
	return &fsDir{fsys: fsys, name: name, file: f}, nil
}

// openFSRoot opens root, which may lead to a file.
func openFSRoot(fsys fs.FS, root string, named bool) (directory, error) {
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
		return newSoleFile(&soleFile{
			name: names.New(path.Base(root)), file: fsFile{f}, reopen: func() (fs.File, error) { return fsys.Open(root) },
			parent: func() (directory, names.Name, error) {
				return &fsDir{fsys: fsys, name: path.Dir(root)}, names.New(path.Base(root)), nil
			},
		}, statOfStored(info))
	case !listable:
		f.Close()
		return nil, errNotListable
	}
	return &fsDir{fsys: fsys, name: root, file: f, named: named}, nil
}

// openGiven is openDirToSearch for a directory in which Options.Files names entries. It
// does not open a directory of an fs.FS, whose files are opened by their paths: in an
// object store, the open would list the directory.
func openGiven(parent directory, name names.Name) (directory, error) {
	if d, ok := parent.(*fsDir); ok {
		return &fsDir{fsys: d.fsys, name: name.String(), up: d, named: true}, nil
	}
	return openDirToSearch(parent, name)
}

// join returns the path of the entry name, or d's own if that is ".", for which only a
// directory is asked that has been opened: its up is nil.
func (d *fsDir) join(name string) string {
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
func (d *fsDir) why(err error) error {
	if d.up == nil {
		return err
	}
	notDir := d.checkDir()
	if notDir == nil {
		return err
	}
	var above []*fsDir // the highest that is no directory has the reason; a search finds it with few opens, which may take long
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
func (d *fsDir) checkDir() error {
	if known := d.checked.Load(); known != nil {
		return *known
	}
	sub, err := openSubdir(d.fsys, d.up.join(d.name), true)
	if err == nil {
		sub.close()
		d.note(nil)
	}
	return err
}

// note keeps notDir, which checkDir then returns, unless it is an error that may pass.
func (d *fsDir) note(notDir error) {
	if notDir == nil || errors.Is(notDir, ErrChanged) {
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

func (d *fsDir) list(l *listing) (bool, error) {
	more, err := listFile(d.file.(fs.ReadDirFile), l, fs.ModeIrregular, nil)
	if !more {
		d.close()
	}
	return more, err
}

func (d *fsDir) openDir(name names.Name) (directory, error) {
	sub, err := openSubdir(d.fsys, d.join(name.String()), d.named)
	if err != nil {
		return nil, d.why(err)
	}
	return sub, nil
}

func openSubdir(fsys fs.FS, name string, named bool) (directory, error) {
	var sub directory
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

func (d *fsDir) open(name names.Name, _ content.File) (content.File, error) {
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

func (d *fsDir) stat(name names.Name) (sys.Stat, error) {
	info, err := fs.Lstat(d.fsys, d.join(name.String()))
	if err != nil {
		return sys.Stat{}, d.why(asFSError(err))
	}
	return statOfStored(info), nil
}

func (d *fsDir) readLink(name names.Name) (string, error) {
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

func (d *fsDir) openFile(names.Name, string) (*os.File, error) {
	return nil, &sys.Error{Op: "open", Err: errors.ErrUnsupported}
}

var errNotReplaceable = &sys.Error{Op: "replace", Err: errors.ErrUnsupported}

// replace writes through the method WriteFile of a cache.Store or of a cache.FS.
func (d *fsDir) replace(name names.Name, content []byte, check replace.Check) (s sys.Stat, err error) {
	var write func(string, []byte) (fs.FileInfo, error)
	switch fsys := d.fsys.(type) {
	case interface {
		WriteFile(string, []byte) (fs.FileInfo, error)
	}:
		write = fsys.WriteFile
	case interface{ WriteFile(string, []byte) error }:
		write = func(name string, content []byte) (fs.FileInfo, error) { return nil, fsys.WriteFile(name, content) }
	default:
		return s, errNotReplaceable
	}
	f, err := d.open(name, nil)
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
		return d.stat(name)
	}
	return statOfStored(info), nil
}

func (d *fsDir) identity() (identity, error) { return fsIdentity{}, nil }

// An fsIdentity equals all others: a node finds its directory by path, which does not
// change.
type fsIdentity struct{}

func (fsIdentity) same(identity) bool { return true }

func (fsIdentity) inode() (device, inode uint64) { return 0, 0 }

func (d *fsDir) close() {
	if d.file != nil {
		f := d.file
		d.file = nil // also when Close panics
		f.Close()
	}
}

// statOfStored is sys.StatOfInfo for an fs.FS. Some fs.FS, object stores among them, give
// files the type fs.ModeIrregular, since they know no more about a file.
func statOfStored(info fs.FileInfo) sys.Stat {
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
	return statOfStored(info), nil
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

func (f osFile) same(other identity) bool {
	o, ok := other.(osFile)
	return ok && os.SameFile(f.FileInfo, o.FileInfo)
}

func (f osFile) inode() (device, inode uint64) {
	s := sys.StatOfInfo(f.FileInfo)
	return s.Device, s.Inode
}

// A soleFile is the directory of a root that leads to a file: it lists only that file.
// Root is opened once; reads and look-ups use the open file. Only a second handle needs
// another open of root, which must then lead to the same file.
type soleFile struct {
	directory // nil: rootFile lists it
	name      names.Name
	file      content.File
	isRead    bool
	reopen    func() (fs.File, error)
	parent    func() (directory, names.Name, error) // opens the directory that has the file; nil for a stream
	current   *atomic.Pointer[fs.FileInfo]          // of the file at root; nil with an fs.FS
}

// A streamFile is what root leads to if that is a FIFO or a device. The first read opens it:
// a run that reads nothing waits for no writer, and leaves the device alone.
type streamFile struct {
	polledFile
	path string
}

func (f *streamFile) IsStream() bool { return true }

func (f *streamFile) Read(p []byte) (int, error) {
	if f.File == nil {
		opened, err := os.OpenFile(f.path, os.O_RDONLY|sys.OpenFlags, 0)
		if err != nil {
			return 0, sys.AsError("open", err)
		}
		if now, err := opened.Stat(); err != nil || !os.SameFile(f.info, now) {
			opened.Close()
			return 0, sys.AsError("fstat", cmp.Or(err, ErrChanged))
		}
		f.polledFile = newPolledFile(opened, f.info)
	}
	if !sys.WaitReadable(f.File.(*os.File), content.WaitSlice) {
		return 0, content.ErrWouldBlock
	}
	return f.polledFile.Read(p)
}

func (f *streamFile) Close() {
	if f.File != nil {
		f.File.Close()
	}
}

var _ directory = (*soleFile)(nil)

// openSoleFile opens root if root leads to a file. NotDir is the reason why root cannot be
// opened as a directory. OpenDir opens the directory that has the file, to replace it. What
// counts is the type of the open file. But openSoleFile asks for root's type before the open,
// too: to open a device may have an effect, and the open of a FIFO may wait.
func openSoleFile(root string, notDir error, openDir func(string) (directory, error)) (directory, error) {
	info, err := os.Stat(root)
	switch {
	case err != nil || info.IsDir():
		return nil, notDir
	case info.Mode()&(fs.ModeNamedPipe|fs.ModeDevice) != 0:
		return &soleFile{name: names.New(filepath.Base(root)), file: &streamFile{polledFile{info: info}, root},
			reopen: func() (fs.File, error) { return os.Open(os.DevNull) }}, nil // see worker.hasDescriptor
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
	d := &soleFile{name: names.New(filepath.Base(root)), file: &file, current: new(atomic.Pointer[fs.FileInfo])}
	d.current.Store(&info)
	d.reopen = func() (fs.File, error) {
		again, err := os.OpenFile(root, os.O_RDONLY|sys.OpenFlags, 0)
		if err != nil {
			return nil, err
		}
		if now, err := again.Stat(); err != nil || !os.SameFile(*d.current.Load(), now) {
			again.Close()
			return nil, cmp.Or(err, ErrChanged)
		}
		return again, nil
	}
	d.parent = func() (directory, names.Name, error) {
		real, err := fsinfo.RealPath(root)
		if err != nil {
			return nil, names.Name{}, sys.AsError("readlink", err)
		}
		dir, name := filepath.Split(real)
		parent, err := openDir(dir)
		return parent, names.New(name), err
	}
	return newSoleFile(d, sys.StatOfInfo(info))
}

// newSoleFile returns d, if s, the metadata of its file, is that of a regular file.
func newSoleFile(d *soleFile, s sys.Stat) (directory, error) {
	if !s.Mode.IsRegular() {
		d.close()
		return nil, sys.AsError("open", irregularRoot(s.Mode))
	}
	return d, nil
}

func irregularRoot(mode fs.FileMode) error {
	return fmt.Errorf("neither a directory nor a regular file: %v", mode)
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
	return &soleFile{name: d.name, file: fsFile{f}, reopen: d.reopen, current: d.current}, nil
}

func (d *soleFile) open(names.Name, content.File) (content.File, error) {
	if f, ok := d.file.(*streamFile); ok {
		return keptOpen{f}, nil
	}
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

// IsStream is content.Stream.
func (k keptOpen) IsStream() bool {
	_, ok := k.File.(*streamFile)
	return ok
}

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

func (d *soleFile) info(names.Name, string) (fs.FileInfo, error) {
	switch f := d.file.(type) {
	case *polledFile:
		return f.File.Stat() // as it is now
	case *streamFile:
		return f.info, nil
	}
	return nil, &sys.Error{Op: "stat", Err: errors.ErrUnsupported}
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

// identity returns that of the file. A stream has none, and so is not closed to be opened
// again: what has been read would not come again.
func (d *soleFile) identity() (identity, error) {
	switch d.file.(type) {
	case *streamFile:
		return nil, &sys.Error{Op: "open", Err: errors.ErrUnsupported}
	case *polledFile:
		return osFile{*d.current.Load()}, nil
	}
	return fsIdentity{}, nil
}

// inParent calls use with the directory that has the file, and the file's name there. If use
// replaces the file, d is of the new one.
func (d *soleFile) inParent(use func(directory, names.Name) error) error {
	if d.parent == nil {
		return errNotReplaceable
	}
	parent, name, err := d.parent()
	if err != nil {
		return err
	}
	defer parent.close()
	if err = use(parent, name); err == nil && d.current != nil {
		var now fs.FileInfo
		if now, err = parent.(informed).info(name, name.String()); err == nil {
			d.current.Store(&now)
		}
	}
	return err
}

func (d *soleFile) close() { d.file.Close() }
