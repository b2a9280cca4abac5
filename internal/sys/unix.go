//go:build unix

package sys

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const NoFollow = 0

func IsReparsePoint(fs.FileInfo) bool { return false }
func IsRemote(fs.FileInfo) bool       { return false }

// IsScarce reports whether err says that no descriptor is free.
func IsScarce(err error) bool { return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) }

// IsLeased reports whether err, from an open that does not wait, says that
// another process holds a lease on the file. The kernel has asked that process to release it.
func IsLeased(err error) bool { return errors.Is(err, unix.EAGAIN) }

// IsInterrupted reports whether err says that a call was interrupted each time that it
// was made.
func IsInterrupted(err error) bool { return errors.Is(err, unix.EINTR) }

// IsOtherKind reports whether err, from an open, says that the name is not a
// regular file or directory: it is a link or part of a loop of links, or a socket or a device.
func IsOtherKind(err error) bool { return errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) }

// WaitReadable waits, for d at most, until a read of f does not wait, and reports whether that
// is so. A FIFO to which nobody has written yet is not readable; one that its last writer has
// closed is.
func WaitReadable(f *os.File, d time.Duration) bool {
	c, err := f.SyscallConn()
	if err != nil {
		return true // the read says why
	}
	n := 0
	_ = c.Control(func(fd uintptr) {
		n, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(d.Milliseconds()))
	})
	return n > 0 || err != nil && err != unix.EINTR
}

// DescriptorLimit returns how many descriptors this process may have.
//
// The first timer of a process takes two descriptors for the runtime's poller,
// and ends the process if there are none. So DescriptorLimit sets a timer, before
// descriptors are scarce.
var DescriptorLimit = sync.OnceValue(func() uint64 {
	time.AfterFunc(time.Hour, func() {}).Stop()
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return math.MaxUint64
	}
	return uint64(l.Cur) // signed on some systems
})

// AllocLarge makes a separate mapping. The garbage collector would free a buffer
// of more than 1 MiB only after the next is made. unix.Mmap and unix.Munmap would hold a lock
// for all mappings during the call, and Munmap takes longest.
func AllocLarge(size int64) ([]byte, error) {
	if size > math.MaxInt-largeSkew {
		return nil, unix.ENOMEM
	}
	p, err := unix.MmapPtr(-1, 0, nil, uintptr(size+largeSkew), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, err
	}
	b := unsafe.Slice((*byte)(p), size+largeSkew)
	if runtime.GOOS == "linux" && size >= hugeFrom {
		_ = unix.Madvise(b, madvHugePage) // where there are none, or not enough, b gets other pages
	}
	return b[largeSkew:], nil
}

const largeSkew = 16 // as content.skew

// hugeFrom is the size in bytes from which memory should have huge pages: freeing
// 32 MiB in pages of 4 KiB takes some 10 ms, for which a run that is stopped waits.
const hugeFrom = 2 << 20

const madvHugePage = 14 // unix.MADV_HUGEPAGE, which only Linux has

// FreeLarge frees memory of AllocLarge. p must have the capacity that AllocLarge gave it.
func FreeLarge(p []byte) {
	if cap(p) == 0 {
		return
	}
	unix.MunmapPtr(unsafe.Add(unsafe.Pointer(unsafe.SliceData(p)), -largeSkew), uintptr(cap(p)+largeSkew)) // fails only for what MmapPtr did not return
}

// addSystemStat adds to s the fields that only info.Sys has.
func addSystemStat(s *Stat, info fs.FileInfo) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		s.Device, s.Inode, s.Rdev = uint64(st.Dev), uint64(st.Ino), uint64(st.Rdev)
		s.UID, s.GID, s.Links, s.Blocks, s.Flags = st.Uid, st.Gid, uint64(st.Nlink), st.Blocks, flagsOf(st)
		s.ChangeTime, s.BirthTime = timesOf(st)
	}
}

// ProcessorTime returns the processor time that this process has used, or elapsed time if the system does not tell.
func ProcessorTime() time.Duration {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		return time.Since(begun)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
