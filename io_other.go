//go:build fileproc_generic || !(aix || darwin || dragonfly || freebsd || linux || netbsd || openbsd || solaris)

package fileproc

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

const backendName = "generic"

// rootDir is a directory as an os.Root, which never leads outside. It follows
// links that stay inside, so what was opened is compared with what the name
// itself is.
type rootDir struct {
	root *os.Root
	file *os.File // nil once the listing is over
}

var _ directory = (*rootDir)(nil)

func openRoot(name string) (directory, error) {
	root, err := os.OpenRoot(name)
	if err != nil {
		return nil, asSysError("open", err)
	}
	return newRootDir(root)
}

func newRootDir(root *os.Root) (directory, error) {
	f, err := root.Open(".")
	if err != nil {
		root.Close()
		return nil, asSysError("openat", err)
	}
	return &rootDir{root, f}, nil
}

// asRootError is asSysError for what opens or looks up an entry of root. A name
// that leads outside is a link that has taken the place of what was listed; the
// error for it has no name, so it is had from a path that does lead outside.
func asRootError(root *os.Root, err error) error {
	e := asSysError("openat", err).(*sysError)
	_, outside := root.Lstat("..")
	escapes, _ := asSysError("lstat", outside).(*sysError)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || outside != nil && errors.Is(err, escapes.err) {
		e.err = changed{e.err}
	}
	return e
}

func (d *rootDir) list(s *sink) (bool, error) {
	more, err := listFile(d.file, s, 0)
	if !more {
		d.file.Close()
		d.file = nil
	}
	return more, err
}

func (d *rootDir) openDir(name string) (directory, error) {
	listed, err := d.root.Lstat(name)
	if err != nil {
		return nil, asRootError(d.root, err)
	}
	if !listed.IsDir() {
		return nil, &sysError{"openat", ErrChanged}
	}
	// The dot keeps a FIFO that took the directory's place from being opened,
	// which would wait for a writer.
	root, err := d.root.OpenRoot(name + "/.")
	if err != nil {
		return nil, asRootError(d.root, err)
	}
	opened, err := root.Stat(".")
	if err == nil && !os.SameFile(listed, opened) {
		err = ErrChanged
	}
	if err != nil {
		root.Close()
		return nil, asRootError(d.root, err)
	}
	return newRootDir(root)
}

func (d *rootDir) open(name string, _ content) (content, error) {
	f, err := d.openRegular(name)
	if err != nil {
		return nil, err
	}
	return fsFile{f}, nil
}

func (d *rootDir) openRegular(name string) (*os.File, error) {
	listed, err := d.root.Lstat(name)
	if err != nil {
		return nil, asRootError(d.root, err)
	}
	if !listed.Mode().IsRegular() {
		return nil, &sysError{"lstat", changed{&notRegular{listed.Mode()}}}
	}
	f, err := d.root.OpenFile(name, os.O_RDONLY|openNonblock, 0)
	if err != nil {
		return nil, asRootError(d.root, err)
	}
	opened, err := f.Stat()
	if err == nil && !os.SameFile(listed, opened) {
		err = ErrChanged
	}
	if err != nil {
		f.Close()
		return nil, asRootError(d.root, err)
	}
	return f, nil
}

func (d *rootDir) stat(name string) (Stat, error) {
	info, err := d.root.Lstat(name)
	if err != nil {
		return Stat{}, asRootError(d.root, err)
	}
	return statOfInfo(info), nil
}

func (d *rootDir) openFile(name, _ string) (*os.File, error) { return d.openRegular(name) }

func (d *rootDir) identity() (identity, error) {
	info, err := d.root.Stat(".")
	if err != nil {
		return nil, asRootError(d.root, err)
	}
	return osFile{info}, nil
}

type osFile struct{ fs.FileInfo }

func (f osFile) same(other identity) bool {
	o, ok := other.(osFile)
	return ok && os.SameFile(f.FileInfo, o.FileInfo)
}

func (f osFile) inode() (device, number uint64) {
	number, device = inodeOf(f.FileInfo)
	return device, number
}

func (d *rootDir) close() {
	if d.file != nil {
		d.file.Close()
	}
	d.root.Close()
}
