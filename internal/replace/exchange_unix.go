//go:build !fileproc_generic && (aix || dragonfly || freebsd || netbsd || openbsd || solaris)

package replace

import (
	"github.com/fileproc/fileproc/internal/names"
	"golang.org/x/sys/unix"
)

// exchange is not to be had: see Pending.rename.
func exchange(int, names.Name, names.Name) error { return unix.ENOSYS }

func renameNew(int, names.Name, names.Name) error { return unix.ENOSYS }

// flush sends an open file or directory to the disk.
func flush(fd int) error { return unix.Fsync(fd) }
