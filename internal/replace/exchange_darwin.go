//go:build !fileproc_generic

package replace

import (
	"github.com/fileproc/fileproc/internal/names"
	"golang.org/x/sys/unix"
)

func exchange(dir int, a, b names.Name) error {
	return unix.RenameatxNp(dir, a.String(), dir, b.String(), unix.RENAME_SWAP)
}

func renameNew(dir int, a, b names.Name) error {
	return unix.RenameatxNp(dir, a.String(), dir, b.String(), unix.RENAME_EXCL)
}

// flush sends an open file or directory to the disk. Fsync alone would leave it in the disk's own cache. SMB has only fsync.
func flush(fd int) error {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_FULLFSYNC, 0)
	if err == unix.ENOTSUP || err == unix.ENOTTY || err == unix.EINVAL {
		err = unix.Fsync(fd)
	}
	return err
}
