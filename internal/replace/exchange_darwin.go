//go:build !fileproc_generic

package replace

import (
	"errors"

	"github.com/fileproc/fileproc/internal/names"
	"golang.org/x/sys/unix"
)

func exchange(dir int, a, b names.Name) error {
	return unix.RenameatxNp(dir, a.String(), dir, b.String(), unix.RENAME_SWAP)
}

func renameNew(dir int, a, b names.Name) error {
	return unix.RenameatxNp(dir, a.String(), dir, b.String(), unix.RENAME_EXCL)
}

func isOverlay(int) bool { return false }

func checkDir(int) (uint32, error) { return 0, nil }

func keepProject(int, int, uint32) error { return nil }

func startWriteback(int) {}

// OpenSync fails: no call here makes a whole file system durable and reports what it could not write.
func OpenSync(int) (Syncer, error) { return -1, errors.ErrUnsupported }

func (Syncer) Sync() error { return errors.ErrUnsupported }

// flush sends an open file or directory to the disk. Fsync alone would leave it in the disk's own cache. SMB has only fsync.
func flush(fd int) error {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_FULLFSYNC, 0)
	if err == unix.ENOTSUP || err == unix.ENOTTY || err == unix.EINVAL {
		err = unix.Fsync(fd)
	}
	return err
}
