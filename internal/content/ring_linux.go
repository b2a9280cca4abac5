//go:build linux && !android && !fileproc_unix && !fileproc_generic && !fileproc_nouring

package content

import (
	"sync/atomic"

	"github.com/fileproc/fileproc/internal/descriptors"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
	"github.com/fileproc/fileproc/internal/uring"
	"golang.org/x/sys/unix"
)

// A ringGroup is a groupReader that uses io_uring. Android kills processes that try to.
type ringGroup struct {
	ring *uring.Ring
	most int // as callGroup.most
	want int // as callGroup.want
}

// rings counts the io_urings of all runs. A run keeps its rings until it ends.
var rings atomic.Int64

// mostRings returns how many io_urings all runs together may have. Tests set it.
var mostRings = func() int64 { return int64(min(descriptors.Limit()/4, 1<<16)) }

// newRingGroup returns nil if io_uring cannot be used: before Linux 5.17, if it
// is forbidden (in containers by default, by sysctl, by seccomp), if its
// resources have run out, if rings already have their share of descriptors,
// or if few descriptors are left.
func newRingGroup(limit int64) groupReader {
	ring := newRing(func() (*uring.Ring, error) { return uring.New(readaheadDepth, readaheadSize/2) })
	if ring == nil {
		return nil
	}
	return &ringGroup{ring: ring, most: bytesWanted(limit)}
}

func newRing(try func() (*uring.Ring, error)) *uring.Ring {
	if rings.Add(1) <= mostRings() {
		if ring, err := try(); err == nil {
			if descriptors.LeavesReserve(ring.FD(), 0) == nil {
				return ring
			}
			ring.Close()
		}
	}
	rings.Add(-1)
	return nil
}

func closeRing(r *uring.Ring) {
	r.Close()
	rings.Add(-1)
}

func (a *ringGroup) read(d Dir, files []names.Name) bool {
	a.want = min(a.most, a.ring.Room(len(files)))
	// A direct open, which makes no descriptor, refuses O_CLOEXEC.
	return d.Kind == OnDiskForRings &&
		a.ring.Read(d.FD, files, sys.FileFlags&^unix.O_CLOEXEC, a.want, unix.RWF_NOWAIT) == nil
}

func (a *ringGroup) get(i int, c *Content) bool {
	p := a.ring.Bytes(i)
	if len(p) == 0 || !sys.IsWhole(len(p), a.want) {
		return false
	}
	c.Data = p
	return true
}

func (a *ringGroup) isUncached(i int) bool { return a.ring.Err(i) == unix.EAGAIN }

func (a *ringGroup) close() {
	closeRing(a.ring)
}

// A windowRing reads open files together.
type windowRing struct {
	ring  *uring.Ring
	reads []uring.FileRead
}

// newWindowRing returns nil if newRingGroup would, and otherwise also the memory into
// which the ring reads.
func newWindowRing() (*windowRing, []byte) {
	ring := newRing(func() (*uring.Ring, error) { return uring.NewForFiles(WindowMax, windowBuffer+windowStart) })
	if ring == nil {
		return nil, nil
	}
	return &windowRing{ring: ring}, ring.Memory()
}

// read reads those files whose indexes are in reads. It reports whether that was possible.
// It calls submitted when it has made the requests.
func (r *windowRing) read(files []windowEntry, reads []int, flags uint32, submitted func()) bool {
	r.reads = r.reads[:0]
	for _, i := range reads {
		f := &files[i]
		at := f.at
		if at < 0 {
			at = windowBuffer // the bytes there are not used
		}
		r.reads = append(r.reads, uring.FileRead{FD: int32(f.fd), At: uint32(at), Len: uint32(f.want)})
	}
	if r.ring.ReadFiles(r.reads, flags, submitted) != nil {
		return false
	}
	for k, i := range reads {
		files[i].read(r.ring.Count(k))
	}
	return true
}

func (r *windowRing) close() { closeRing(r.ring) }
