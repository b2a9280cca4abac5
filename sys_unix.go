//go:build unix

package fileproc

import (
	"errors"
	"io/fs"
	"math"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// isScarce reports whether err says that no descriptor is free.
func isScarce(err error) bool { return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) }

// isLeased reports whether err, from an open that does not wait, says that
// another process holds a lease on the file. It has been asked to release it.
func isLeased(err error) bool { return errors.Is(err, unix.EAGAIN) }

// isOtherKind reports whether err, from an open, says that the name is not a
// regular file or directory: links that lead to each other; a socket or a device.
func isOtherKind(err error) bool { return errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) }

// descriptorBudget is how a run divides its descriptors. Below 64, Linux need
// not grow the process's table, for which all threads wait; and a walk seldom
// returns to more than a few dozen levels. Under a low limit, directories get a
// third of it. Files in flight, a descriptor or two each, get an eighth of it
// at most.
//
// The first timer of a process takes two descriptors for the runtime's poller,
// and ends the process if there are none. So it is set here, before any are
// scarce.
var descriptorBudget = sync.OnceValue(func() budget {
	time.AfterFunc(time.Hour, func() {}).Stop()
	b := fullBudget
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return b
	}
	most := uint64(l.Cur) // signed on some systems
	if most < 3*uint64(fullBudget.open) {
		n := int(most) / 3
		b.open, b.listings = n/2, max(1, n/2)
	}
	b.inFlight = int(min(most/16, maxInFlight))
	b.rings = int(min(most/4, workersLimit))
	b.window = int(min(most/2/maxColdWorkers, windowMax))
	b.half = int(min(most/2, math.MaxInt32))
	return b
})

// allocLarge makes a mapping of its own. The garbage collector would free a buffer
// of more than 1 MiB only after the next is made. unix.Mmap would hold a lock of all
// mappings during the call, and Munmap, which takes longest, as well.
func allocLarge(size int64) ([]byte, error) {
	if size > math.MaxInt {
		return nil, unix.ENOMEM
	}
	p, err := unix.MmapPtr(-1, 0, nil, uintptr(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(p), size), nil
}

// freeLarge frees what allocLarge has returned, whose capacity nobody has changed.
func freeLarge(p []byte) {
	unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(p)), uintptr(cap(p))) // fails only for what MmapPtr did not return
}

// addSystemStat adds to s what only the system's own form of info has.
func addSystemStat(s *Stat, info fs.FileInfo) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		s.Device, s.Inode = uint64(st.Dev), uint64(st.Ino)
		s.ChangeTime, s.BirthTime = timesOf(st)
	}
}
