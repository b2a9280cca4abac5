//go:build linux && !android && !fileproc_unix && !fileproc_generic && !fileproc_nouring

package fileproc

import (
	"errors"
	"sync/atomic"

	"github.com/fileproc/fileproc/internal/uring"
	"golang.org/x/sys/unix"
)

// ringAhead reads ahead by io_uring. Android kills processes that try it.
type ringAhead struct {
	ring  *uring.Ring
	want  int // as in callAhead
	check cacheCheck
}

// rings is how many there are in all runs.
var rings atomic.Int64

// newRingAhead returns nil where there is no io_uring: before Linux 5.17, or
// where it is forbidden (in containers by default, by sysctl, by seccomp), or
// its resources have run out, or too many descriptors would be those of rings.
func newRingAhead(limit int64) readAhead {
	var ring *uring.Ring
	err := errors.ErrUnsupported
	if rings.Add(1) <= int64(descriptorBudget().rings) {
		ring, err = uring.New(aheadDepth, aheadSize)
	}
	if err != nil {
		rings.Add(-1)
		return nil
	}
	return &ringAhead{ring: ring, want: aheadWant(limit)}
}

func (a *ringAhead) read(d directory, names []string) bool {
	dir, ok := d.(*linuxDir)
	// A direct open, which makes no descriptor, refuses O_CLOEXEC.
	return ok && a.check.good(dir) &&
		a.ring.Read(dir.fd, names, fileFlags&^unix.O_CLOEXEC, a.want, unix.RWF_NOWAIT) == nil
}

func (a *ringAhead) get(i int, f *File) bool {
	p := a.ring.Bytes(i)
	if len(p) == 0 || !isWhole(len(p), a.want) {
		return false
	}
	f.data = p
	return true
}

func (a *ringAhead) uncached(i int) bool { return a.ring.Err(i) == unix.EAGAIN }

func (a *ringAhead) close() {
	a.ring.Close()
	rings.Add(-1)
}
