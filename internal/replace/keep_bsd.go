//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package replace

import (
	"github.com/fileproc/fileproc/internal/sys"
	"golang.org/x/sys/unix"
)

// keptFlags of chflags(1) are nodump, opaque and hidden. Immutable files cannot be renamed, and systems set the others.
const keptFlags = 0x1 | 0x8 | 0x8000

func keepFlags(_, new int, was, now sys.Stat) error {
	if (was.Flags^now.Flags)&keptFlags == 0 {
		return nil
	}
	if err := unix.Fchflags(new, int(now.Flags&^keptFlags|was.Flags&keptFlags)); err != nil {
		return &sys.Error{Op: "fchflags", Err: err}
	}
	return nil
}
