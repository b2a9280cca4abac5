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

// grow is called because calls block. It lets four times as many workers run, if all
// are busy.
func (p *pool) grow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.idle > 0 {
		return
	}
	if p.started >= p.limit+p.aside {
		p.limit = max(p.workers, min(4*p.limit, p.maxWorkers, p.maxGrown))
	}
	p.wakeOne(nil, 0)
}

// mostAside is how many workers may wait aside at a time.
const mostAside = 256

// stepAside lets one more worker run in the place of the caller's worker, which is
// about to wait for long. It returns false if no more workers may wait aside.
func (p *pool) stepAside() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.begun || p.aside >= p.maxAside {
		return false
	}
	p.aside++
	p.wakeOne(nil, 0)
	return true
}

// stepBack ends what stepAside has begun.
func (p *pool) stepBack() {
	p.mu.Lock()
	p.aside--
	p.cond.Broadcast() // one worker is too many now: if it waits, it is dismissed
	p.mu.Unlock()
}

// shrink dismisses half of the workers, but none of those that run while no calls
// block.
func (p *pool) shrink() {
	p.mu.Lock()
	p.limit = max(p.limit/2, p.workers)
	p.cond.Broadcast()
	p.mu.Unlock()
}

// limitGrowth lets the pool grow to no more than most workers.
func (p *pool) limitGrowth(most int) {
	p.mu.Lock()
	p.maxGrown = most
	p.limit = max(p.workers, min(p.limit, most))
	p.cond.Broadcast()
	p.mu.Unlock()
}

// disableGrowth keeps the pool, from now on, to the workers that run while no
// calls block.
func (p *pool) disableGrowth() {
	p.mu.Lock()
	p.maxWorkers, p.limit = p.workers, p.workers
	p.mu.Unlock()
}
