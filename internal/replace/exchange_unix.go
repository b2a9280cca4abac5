//go:build !fileproc_generic && (aix || dragonfly || freebsd || netbsd || openbsd || solaris)

package replace

import (
	"errors"

	"github.com/fileproc/fileproc/internal/names"
	"golang.org/x/sys/unix"
)

// exchange is not to be had: see Pending.rename.
func exchange(int, names.Name, names.Name) error { return unix.ENOSYS }

func renameNew(int, names.Name, names.Name) error { return unix.ENOSYS }

func isOverlay(int) bool { return false }

func checkDir(int) (uint32, error) { return 0, nil }

func keepProject(int, int, uint32) error { return nil }

func startWriteback(int) {}

// flush sends an open file or directory to the disk.
func flush(fd int) error { return unix.Fsync(fd) }

// OpenSync fails: no call here makes a whole file system durable and reports what it could not write.
func OpenSync(int) (Syncer, error) { return -1, errors.ErrUnsupported }

func (Syncer) Sync() error { return errors.ErrUnsupported }
