//go:build !fileproc_generic && (aix || darwin || dragonfly || freebsd || netbsd || openbsd || solaris || (linux && fileproc_unix))

package fileproc

import (
	"os"

	"golang.org/x/sys/unix"
)

const backendName = "unix"

// unixDir lists with package os.
type unixDir struct {
	fdDir
	file *os.File // owns the descriptor
}

var _ directory = (*unixDir)(nil)

func newUnixDir(fd int, name string) directory {
	return &unixDir{fdDir{fd: fd}, os.NewFile(uintptr(fd), name)}
}

func openRoot(root string) (directory, error) {
	var fd int
	err := ignoringEINTR(func() (err error) {
		fd, err = unix.Open(root, dirFlags, 0)
		return err
	})
	if err != nil {
		return nil, &sysError{"open", err}
	}
	return newUnixDir(fd, root), nil
}

func (d *unixDir) openDir(name string) (directory, error) {
	fd, err := d.openSub(name)
	if err != nil {
		return nil, err
	}
	return newUnixDir(fd, name), nil
}

func (d *unixDir) list(s *sink) (bool, error) { return listFile(d.file, s, 0, nil) }

func (d *unixDir) close() { d.file.Close() }

func openat(dirfd int, name string, flags int) (int, error) {
	var fd int
	err := ignoringEINTR(func() (err error) {
		fd, err = unix.Openat(dirfd, name, flags, 0)
		return err
	})
	return fd, err
}

// readCached has no counterpart here.
func readCached(int, []byte) (int, error) { return 0, unix.EOPNOTSUPP }
