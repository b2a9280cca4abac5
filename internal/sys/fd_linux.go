//go:build linux && !fileproc_unix && !fileproc_generic

package sys

import (
	"io/fs"
	"unsafe"

	"github.com/fileproc/fileproc/internal/names"
	"golang.org/x/sys/unix"
)

// Backend names the io_*.go whose code lists and opens.
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

// ReadCached reads the part of the file's beginning that the page cache has. It passes
// an offset so that the read of a FIFO fails (ESPIPE): its content could be as short as
// that of a small file. Linux has had the flag since 4.14. EOPNOTSUPP means an older
// kernel, or a file system without such a read: FUSE, proc, sysfs, overlayfs,
// and tmpfs.
func ReadCached(fd int, p []byte) (int, error) {
	return unix.Preadv2(fd, [][]byte{p}, 0, unix.RWF_NOWAIT)
}

// DirentType is fileType for the type in a directory record, which is an inode's mode
// without the lower 12 bits.
func DirentType(t uint8) fs.FileMode { return fileType(uint32(t) << 12) }
