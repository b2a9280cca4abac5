//go:build linux && !android && !fileproc_unix && !fileproc_generic && !fileproc_nouring

package fileproc

import (
	"errors"
	"sync/atomic"

	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/uring"
	"golang.org/x/sys/unix"
)

// A ringGroup is a groupReader that uses io_uring. Android kills processes that try.
type ringGroup struct {
	ring  *uring.Ring
	want  int // as callGroup.want
	check cacheCheck
}

// rings counts the io_urings of all runs.
var rings atomic.Int64

// newRingGroup returns nil where there is no io_uring: before Linux 5.17, where it
// is forbidden (in containers by default, by sysctl, by seccomp), where its
// resources have run out, or when rings already have their share of descriptors.
func newRingGroup(limit int64) groupReader {
	var ring *uring.Ring
	err := errors.ErrUnsupported
	if rings.Add(1) <= int64(descriptorBudget().rings) {
		ring, err = uring.New(readaheadDepth, readaheadSize)
	}
	if err != nil {
		rings.Add(-1)
		return nil
	}
	return &ringGroup{ring: ring, want: bytesWanted(limit)}
}

func (a *ringGroup) read(d directory, files []names.Name) bool {
	dir, ok := d.(*linuxDir)
	// A direct open, which makes no descriptor, refuses O_CLOEXEC.
	return ok && a.check.allows(dir) &&
		a.ring.Read(dir.fd, files, fileFlags&^unix.O_CLOEXEC, a.want, unix.RWF_NOWAIT) == nil
}

func (a *ringGroup) get(i int, c *content) bool {
	p := a.ring.Bytes(i)
	if len(p) == 0 || !isWhole(len(p), a.want) {
		return false
	}
	c.data = p
	return true
}

func (a *ringGroup) isUncached(i int) bool { return a.ring.Err(i) == unix.EAGAIN }

func (a *ringGroup) close() {
	a.ring.Close()
	rings.Add(-1)
}
