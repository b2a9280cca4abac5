//go:build !fileproc_generic && (aix || darwin || dragonfly || freebsd || netbsd || openbsd || solaris)

package replace

import (
	"errors"

	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
	"golang.org/x/sys/unix"
)

// appendOnly are uappnd and sappnd of chflags(1).
const appendOnly = 0x4 | 0x40000

// checkDir fails for a directory whose entries cannot be removed: the temporary file would stay.
func checkDir(dir int) (project uint32, err error) {
	if s, err := sys.Fstat(dir); err == nil && s.Flags&appendOnly != 0 {
		return 0, &sys.Error{Op: "renameat", Err: unix.EPERM}
	}
	return 0, nil
}

func isOverlay(int) bool { return false }

func isSMB(int) bool { return false }

func keepProject(int, int, uint32) error { return nil }

func startWriteback(int) {}

// OpenSync fails: no call here makes a whole file system durable and reports what it could not write.
func OpenSync(int, names.Name) (Syncer, error) { return -1, errors.ErrUnsupported }

func (Syncer) Sync() error { return errors.ErrUnsupported }
