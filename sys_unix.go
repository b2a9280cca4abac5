//go:build unix

package fileproc

import (
	"errors"
	"io/fs"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// isScarce reports whether err says that there are no descriptors left.
func isScarce(err error) bool { return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) }

// isLeased reports whether err, from an open that does not wait, says that
// another process holds a lease on the file. It has been asked to release it.
func isLeased(err error) bool { return errors.Is(err, unix.EAGAIN) }

// descriptorBudget is how the run's descriptors are shared out. Below 64
// descriptors Linux needs not grow the process's table, for which all its
// threads wait; and a walk seldom has more than a few dozen levels to come back
// to. Under a low limit a third of it is for directories. Of what is in flight,
// for which there are workers while calls block, each takes a descriptor or two:
// an eighth of the limit at most.
//
// The first timer of a process takes two more, for the runtime's poller, and
// ends it if there are none. So it is set now: to wait for a descriptor is too late.
var descriptorBudget = sync.OnceValue(func() budget {
	time.AfterFunc(time.Hour, func() {}).Stop()
	b := fullBudget
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return b
	}
	most := uint64(l.Cur) // on some systems a signed number
	if most < 3*uint64(fullBudget.open) {
		n := int(most) / 3
		b.open, b.listings = n/2, max(1, n/2)
	}
	b.inFlight = int(min(most/16, maxInFlight))
	b.rings = int(min(most/4, maxWorkers))
	return b
})

// minMapped is the size in bytes from which a file's content is kept in memory
// of its own. The garbage collector would let go of such a buffer only some
// time after the next one has been made.
const minMapped = 1 << 20

func allocLarge(size int64) ([]byte, error) {
	if size > int64(^uint(0)>>1) {
		return nil, unix.ENOMEM
	}
	if size < minMapped {
		return make([]byte, size), nil
	}
	return unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
}

func freeLarge(p []byte) {
	if len(p) >= minMapped {
		unix.Munmap(p) // fails only for what Mmap has not returned
	}
}

func inodeOf(info fs.FileInfo) (device, inode uint64) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Dev), uint64(st.Ino)
	}
	return 0, 0
}
