//go:build !fileproc_generic && (aix || darwin || dragonfly || freebsd || netbsd || openbsd || solaris || (linux && fileproc_unix))

package fileproc

import (
	"os"

	"github.com/fileproc/fileproc/internal/names"
	"golang.org/x/sys/unix"
)

const backendName = "unix"

// unixDir lists with package os.
type unixDir struct {
	fdDir
	file *os.File // owns the descriptor
}

var _ directory = (*unixDir)(nil)

func newDir(fd int, name string) directory {
	return &unixDir{fdDir{fd: fd}, os.NewFile(uintptr(fd), name)}
}

func (d *unixDir) list(l *listing) (bool, error) { return listFile(d.file, l, 0, nil) }

func (d *unixDir) close() { d.file.Close() }

func openat(dirfd int, name names.Name, flags int) (int, error) {
	return ignoringEINTR(func() (int, error) { return unix.Openat(dirfd, name.String(), flags, 0) })
}

// readCached is not supported.
func readCached(int, []byte) (int, error) { return 0, unix.EOPNOTSUPP }
