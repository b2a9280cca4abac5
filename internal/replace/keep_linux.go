package replace

import (
	"github.com/fileproc/fileproc/internal/sys"
	"golang.org/x/sys/unix"
)

// The flags of chattr(1), from include/uapi/linux/fs.h.
const (
	flagImmutable = 0x10
	flagAppend    = 0x20
	// keptFlags are those that a file keeps: s, u, c, S, d, A, no compression, j, t, fs-verity (which no new file can have), C and x.
	keptFlags = 0x1 | 0x2 | 0x4 | 0x8 | 0x40 | 0x80 | 0x400 | 0x4000 | 0x8000 | 0x100000 | 0x800000 | 0x2000000
)

// keepFlags comes before the content: btrfs sets C for empty files alone. A file system without flags answers with an error.
func keepFlags(old, new int, _, _ sys.Stat) error {
	was, err := unix.IoctlGetUint32(old, unix.FS_IOC_GETFLAGS)
	if err != nil {
		return nil
	}
	if was&(flagImmutable|flagAppend) != 0 {
		return &sys.Error{Op: "renameat2", Err: unix.EPERM}
	}
	now, err := unix.IoctlGetUint32(new, unix.FS_IOC_GETFLAGS)
	if err == nil && (was^now)&keptFlags != 0 {
		err = unix.IoctlSetPointerInt(new, unix.FS_IOC_SETFLAGS, int(now&^keptFlags|was&keptFlags))
	}
	if err != nil {
		return &sys.Error{Op: "ioctl", Err: err}
	}
	return nil
}
