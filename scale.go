package fileproc

import (
	"time"

	"github.com/fileproc/fileproc/internal/knobs"
)

const (
	// timedEvery is how many calls go untimed between two that are timed, while calls
	// do not block.
	timedEvery = 16
	// shrinkAfter is how many of a worker's timed calls in a row must not block for
	// the pool to shrink.
	shrinkAfter = 16
)

// A latencyMeter finds out whether a worker's calls block.
type latencyMeter struct {
	reads, opens, lists latencyProbe
	unblocked           int           // timed calls in a row that did not block
	waited              time.Duration // for a slot, or to copy, since a call was timed
}

// A latencyProbe is the part of a latencyMeter for one kind of call.
type latencyProbe struct {
	untimed int // calls before the next that is timed
	quick   int // timed calls in a row that were not slow
	slow    bool
}

// isDue reports whether the next call is to be timed.
func (c *latencyProbe) isDue(p *pool) bool {
	c.untimed--
	return c.untimed < 0 || p.extra.Load() > 0
}

// copied tells m that the call that it gets next has copied n bytes, which is no waiting. A copy
// from the page cache counts as 1 byte a nanosecond. Where the page cache had nothing, or
// the file system does not say, it counts as 4, so that a fast disk is still noticed.
func (m *latencyMeter) copied(n int, uncached bool) {
	d := time.Duration(n)
	if uncached {
		d /= 4
	}
	m.waited += d
}

// blocks is told that a call of the kind c took d, and reports whether calls block.
// A single call that is a bit slow does not say so: it may have lacked a processor. The
// wait for a slot does not count, because a call that ends before a callback is free
// for its file delays nobody.
func (m *latencyMeter) blocks(c *latencyProbe, p *pool, d time.Duration) bool {
	d -= m.waited
	m.waited = 0
	blocks := c.slow || d > 10*knobs.SlowCall
	c.slow = d > knobs.SlowCall
	if c.quick++; c.slow {
		c.quick = 0
	}
	if !c.slow {
		c.untimed = timedEvery
		if m.unblocked++; m.unblocked >= shrinkAfter && p.extra.Load() > 0 {
			m.unblocked = 0
			p.shrink()
		}
		return false
	}
	m.unblocked = 0
	return blocks
}
