//go:build linux && !fileproc_unix && !fileproc_generic

package sys

import (
	"io/fs"
	"math"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/fileproc/fileproc/internal/knobs"
	"github.com/fileproc/fileproc/internal/names"
	"golang.org/x/sys/unix"
)

// Backend names the backend whose code lists and opens.
const Backend = "linux"

// Getdents, Fstatfs and Statx are those of package unix. Tests replace them by functions of a
// file system of their own.
var (
	Getdents = unix.Getdents
	Fstatfs  = unix.Fstatfs
	Statx    = unix.Statx
)

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

const (
	// maxCached is how many bytes ReadCached reads at most: copying them takes some 0.1 ms.
	maxCached = 1 << 20
	// rawFrom is the size in bytes of a read that may take longer than 20 µs.
	rawFrom = 64 << 10
)

// ReadCached reads the part of a file, from an offset on, that the page cache has. It
// passes the offset so that the read of a FIFO fails (ESPIPE): its content could be as short as
// that of a small file. Linux has had the flag since 4.14. EOPNOTSUPP means an older
// kernel, or a file system without such a read: FUSE, proc, sysfs, overlayfs,
// and tmpfs.
//
// Go's monitor thread gives a processor to another thread when a call takes longer than
// 20 µs. So a large read is not reported to Go's scheduler, unless the read before found that
// content is not cached: then the call begins to read ahead, and may wait for the disk to
// tell where the content is. All goroutines would wait with it.
func ReadCached(fd int, p []byte, offset int64) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	part := unix.Iovec{Base: &p[0]}
	part.SetLen(min(len(p), maxCached))
	low, high := uintptr(offset), uintptr(uint64(offset)>>32) // of which a 64-bit kernel ignores the second
	var n uintptr
	var errno syscall.Errno
	if isRaw(len(p)) {
		n, _, errno = syscall.RawSyscall6(unix.SYS_PREADV2, uintptr(fd), uintptr(unsafe.Pointer(&part)), 1, low, high, unix.RWF_NOWAIT)
	} else {
		n, _, errno = syscall.Syscall6(unix.SYS_PREADV2, uintptr(fd), uintptr(unsafe.Pointer(&part)), 1, low, high, unix.RWF_NOWAIT)
	}
	if asked := min(len(p), maxCached); errno == 0 || errno == unix.EAGAIN {
		if is := errno != 0 || int(n) < asked && n > 0 && !IsWhole(int(n), asked); is != uncached.Load() {
			uncached.Store(is)
		}
	}
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// aheadStep is the distance in bytes of the reads of ReadAhead. The kernel reads ahead at least so
// much at a time, by default.
const aheadStep = 128 << 10

// ReadAhead begins to read a file ahead, from where its content is not in the page cache, and does
// not wait. It returns the offset from which the next call goes on. The kernel marks a page of what it
// reads ahead. A read of this page makes it read ahead more, also if the page is not there yet and
// the read returns at once. Unlike those of posix_fadvise(2), the kernel's pages are large, and so
// copied faster. The first byte of p is overwritten.
func ReadAhead(fd int, p []byte, from, end int64) int64 {
	part := unix.Iovec{Base: &p[0]}
	part.SetLen(1)
	for ; from < end; from += aheadStep {
		n, _, errno := syscall.Syscall6(unix.SYS_PREADV2, uintptr(fd), uintptr(unsafe.Pointer(&part)), 1, uintptr(from), uintptr(uint64(from)>>32), unix.RWF_NOWAIT)
		if errno != unix.EAGAIN && (errno != 0 || n == 0) { // the end of the file
			return math.MaxInt64
		}
	}
	return from
}

// uncached says that the last ReadCached did not find all that it asked for in the page cache.
var uncached atomic.Bool

// isRaw reports whether a read of size bytes is not reported to Go's scheduler.
func isRaw(size int) bool { return size >= rawFrom && !knobs.Reported && !uncached.Load() }

// DirentType is fileType for the type in a directory record, which is an inode's mode
// without the lower 12 bits.
func DirentType(t uint8) fs.FileMode { return fileType(uint32(t) << 12) }
