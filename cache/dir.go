package cache

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// ErrNotRegular is the error of Dir.Open for what is neither a regular file nor a
// directory: a FIFO, a socket, a device.
var ErrNotRegular = errors.New("not a regular file")

// Dir is a directory of the operating system as a source. All is opened through
// [os.Root]: no name and no link leads outside.
type Dir struct {
	root *os.Root
}

var _ interface {
	fs.StatFS
	fs.ReadLinkFS
} = (*Dir)(nil)

// OpenDir opens the directory name.
func OpenDir(name string) (*Dir, error) {
	root, err := os.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	return &Dir{root}, nil
}

// Close releases the directory. Files that are open stay so.
func (d *Dir) Close() error { return d.root.Close() }

// Open opens a regular file or a directory. It never waits for the other side of
// a FIFO.
func (d *Dir) Open(name string) (fs.File, error) {
	if err := valid("open", name); err != nil {
		return nil, err
	}
	f, err := d.root.OpenFile(name, os.O_RDONLY|openFlags, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		err = &fs.PathError{Op: "open", Path: name, Err: ErrNotRegular}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Stat returns metadata; of a link, of what it leads to.
func (d *Dir) Stat(name string) (fs.FileInfo, error) {
	if err := valid("stat", name); err != nil {
		return nil, err
	}
	return d.root.Stat(name)
}

// Lstat returns metadata; of a link, its own.
func (d *Dir) Lstat(name string) (fs.FileInfo, error) {
	if err := valid("lstat", name); err != nil {
		return nil, err
	}
	return d.root.Lstat(name)
}

// ReadLink returns where a link leads.
func (d *Dir) ReadLink(name string) (string, error) {
	if err := valid("readlink", name); err != nil {
		return "", err
	}
	return d.root.Readlink(name)
}

func valid(op, name string) error {
	if !fs.ValidPath(name) {
		return &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	return nil
}

func isDirectory(op, name string) error {
	return &fs.PathError{Op: op, Path: name, Err: syscall.EISDIR}
}
