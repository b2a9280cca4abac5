package backend

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"

	"github.com/fileproc/fileproc/internal/content"
	"github.com/fileproc/fileproc/internal/fsinfo"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/replace"
	"github.com/fileproc/fileproc/internal/sys"
)

// A SoleFile is the directory of a root that leads to a file: it lists only that file.
// Root is opened once; reads and look-ups use the open file. Only a second handle needs
// another open of root, which must then lead to the same file.
type SoleFile struct {
	Directory // nil: rootFile lists it
	name      names.Name
	file      content.File
	isRead    bool
	reopen    func() (fs.File, error)
	parent    func() (Directory, names.Name, error) // opens the directory that has the file; nil for a stream
	current   *atomic.Pointer[fs.FileInfo]          // of the file at root; nil with an fs.FS
}

// Name returns the name of the file.
func (d *SoleFile) Name() names.Name { return d.name }

// Stream returns the type of the file if that is a FIFO or a device, and otherwise 0.
func (d *SoleFile) Stream() fs.FileMode {
	if f, ok := d.file.(*streamFile); ok {
		return f.info.Mode().Type()
	}
	return 0
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
			return 0, sys.AsError("fstat", cmp.Or(err, sys.ErrChanged))
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

var _ Directory = (*SoleFile)(nil)

// OpenSoleFile opens root if root leads to a file. NotDir is the reason why root cannot be
// opened as a directory. OpenDir opens the directory that has the file, to replace it. What
// counts is the type of the open file. But OpenSoleFile asks for root's type before the open,
// too: to open a device may have an effect, and the open of a FIFO may wait.
func OpenSoleFile(root string, notDir error, openDir func(string) (Directory, error)) (Directory, error) {
	info, err := os.Stat(root)
	switch {
	case err != nil || info.IsDir():
		return nil, notDir
	case info.Mode()&(fs.ModeNamedPipe|fs.ModeDevice) != 0:
		return &SoleFile{name: names.New(filepath.Base(root)), file: &streamFile{polledFile{info: info}, root},
			reopen: func() (fs.File, error) { return os.Open(os.DevNull) }}, nil // a worker that waits for a descriptor opens it to see whether one is free
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
	d := &SoleFile{name: names.New(filepath.Base(root)), file: &file, current: new(atomic.Pointer[fs.FileInfo])}
	d.current.Store(&info)
	d.reopen = func() (fs.File, error) {
		again, err := os.OpenFile(root, os.O_RDONLY|sys.OpenFlags, 0)
		if err != nil {
			return nil, err
		}
		if now, err := again.Stat(); err != nil || !os.SameFile(*d.current.Load(), now) {
			again.Close()
			return nil, cmp.Or(err, sys.ErrChanged)
		}
		return again, nil
	}
	d.parent = func() (Directory, names.Name, error) {
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
func newSoleFile(d *SoleFile, s sys.Stat) (Directory, error) {
	if !s.Mode.IsRegular() {
		d.Close()
		return nil, sys.AsError("open", irregularRoot(s.Mode))
	}
	return d, nil
}

func irregularRoot(mode fs.FileMode) error {
	return fmt.Errorf("neither a directory nor a regular file: %v", mode)
}

// OpenDir opens d itself once more, as ".".
func (d *SoleFile) OpenDir(name names.Name) (Directory, error) {
	if name != names.Dot {
		return nil, errNotDirectory
	}
	f, err := d.reopen()
	if err != nil {
		return nil, sys.AsError("open", err)
	}
	return &SoleFile{name: d.name, file: fsFile{f}, reopen: d.reopen, current: d.current}, nil
}

func (d *SoleFile) Open(names.Name, content.File) (content.File, error) {
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

func (d *SoleFile) Stat(names.Name) (sys.Stat, error) {
	if f, ok := d.file.(*polledFile); ok {
		return f.fsFile.Stat() // as it is now
	}
	return d.file.Stat()
}

func (d *SoleFile) Info(names.Name, string) (fs.FileInfo, error) {
	switch f := d.file.(type) {
	case *polledFile:
		return f.File.Stat() // as it is now
	case *streamFile:
		return f.info, nil
	}
	return nil, &sys.Error{Op: "stat", Err: errors.ErrUnsupported}
}

func (d *SoleFile) OpenFile(names.Name, string) (*os.File, error) {
	if _, ok := d.file.(*polledFile); !ok {
		return nil, &sys.Error{Op: "open", Err: errors.ErrUnsupported}
	}
	f, err := d.reopen()
	if err != nil {
		return nil, sys.AsError("open", err)
	}
	return f.(*os.File), nil
}

// Identity returns the identity of the file. A stream has none, so the directory cache never
// closes and reopens it: what has been read would be lost.
func (d *SoleFile) Identity() (Identity, error) {
	switch d.file.(type) {
	case *streamFile:
		return nil, &sys.Error{Op: "open", Err: errors.ErrUnsupported}
	case *polledFile:
		return osFile{*d.current.Load()}, nil
	}
	return ByPath{}, nil
}

// InParent calls use with the directory that has the file, and the file's name there. If use
// replaces the file, d is of the new one.
func (d *SoleFile) InParent(use func(Directory, names.Name) error) error {
	if d.parent == nil {
		return ErrNotReplaceable
	}
	parent, name, err := d.parent()
	if err != nil {
		return err
	}
	defer parent.Close()
	if f, ok := d.file.(*polledFile); ok && runtime.GOOS == "windows" { // d's handle would forbid the rename
		f.Close()
		defer func() {
			if again, err := d.reopen(); err == nil {
				*f = newPolledFile(again.(*os.File), *d.current.Load())
			}
		}()
	}
	if err = use(parent, name); replace.IsDone(err) && d.current != nil {
		if now, e := parent.(Informed).Info(name, name.String()); e == nil { // otherwise the next open finds a change
			d.current.Store(&now)
		}
	}
	return err
}

func (d *SoleFile) Close() { d.file.Close() }

// NewSoleFile returns the directory of a root that is the file f, of which s is the
// metadata. Reopen opens it again.
func NewSoleFile(name string, f content.File, s sys.Stat, reopen func() (fs.File, error)) (Directory, error) {
	return newSoleFile(&SoleFile{name: names.New(name), file: f, reopen: reopen}, s)
}
