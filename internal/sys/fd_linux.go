//go:build linux && !fileproc_unix && !fileproc_generic

package sys

import (
	"io/fs"
	"unsafe"

	"github.com/fileproc/fileproc/internal/names"
	"golang.org/x/sys/unix"
)

// Backend is which io_*.go lists and opens.
const Backend = "linux"

// Openat is unix.Openat without its copy of the name.
func Openat(dirfd int, name names.Name, flags int) (int, error) {
	return IgnoringEINTR(func() (int, error) {
		fd, _, errno := unix.Syscall6(unix.SYS_OPENAT, uintptr(dirfd), uintptr(name.Pointer()), uintptr(flags|unix.O_LARGEFILE), 0, 0, 0)
		if errno != 0 {
			return -1, errno
		}
		return int(fd), nil
	})
}

// Openat2 is unix.Openat2 without its copy of the name.
func Openat2(dirfd int, name names.Name, how *unix.OpenHow) (int, error) {
	how.Flags |= unix.O_LARGEFILE
	fd, _, errno := unix.Syscall6(unix.SYS_OPENAT2, uintptr(dirfd), uintptr(name.Pointer()), uintptr(unsafe.Pointer(how)), unsafe.Sizeof(*how), 0, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

// ReadCached reads what the page cache has of the file's beginning. It passes
// an offset so that a FIFO, whose content could be as short as a small file's,
// refuses (ESPIPE). Linux has the flag since 4.14. EOPNOTSUPP means an older
// kernel, or a file system without such a read: FUSE, proc, sysfs, overlayfs,
// and tmpfs.
func ReadCached(fd int, p []byte) (int, error) {
	return unix.Preadv2(fd, [][]byte{p}, 0, unix.RWF_NOWAIT)
}

// DirentType is fileType of a record. Its type is an inode's mode without the
// lower 12 bits.
func DirentType(t uint8) fs.FileMode { return fileType(uint32(t) << 12) }
