package scale

import (
	"iter"
	"slices"
)

// A clock runs processes in the order of simulated nanoseconds. Each process has a core of its own.
type clock struct {
	now   float64
	ready []*process // the next one at the end
}

type process struct {
	*clock
	at     float64 // when it continues
	resume func() (struct{}, bool)
	pause  func(struct{}) bool
}

// A line is a lock, or a cache line that is written. One process at a time has it, in the order of their requests. A use takes hold
// nanoseconds, and move nanoseconds more if another process had it before.
type line struct {
	name       string
	move, hold float64
	free, busy float64 // when the next process can have it; how long it was in use
	last       *process
}

func (c *clock) start(at float64, do func(*process)) {
	p := &process{clock: c}
	p.resume, _ = iter.Pull(func(yield func(struct{}) bool) {
		p.pause = yield
		do(p)
	})
	c.wake(p, at)
}

func (c *clock) run() {
	for k := len(c.ready) - 1; k >= 0; k = len(c.ready) - 1 {
		p := c.ready[k]
		c.ready, c.now = c.ready[:k], p.at
		p.resume()
	}
}

// wake lets p, which has paused, continue after nanoseconds later, behind all others of that time.
func (c *clock) wake(p *process, after float64) {
	i := 0
	for p.at = c.now + after; i < len(c.ready) && c.ready[i].at > p.at; i++ {
	}
	c.ready = slices.Insert(c.ready, i, p)
}

// work lets d nanoseconds pass.
func (p *process) work(d float64) {
	if k := len(p.ready); k == 0 || p.now+d < p.ready[k-1].at {
		p.now += d
		return
	}
	p.wake(p, d)
	p.pause(struct{}{})
}

// use waits for l, and then has it for more nanoseconds in addition to l.hold.
func (p *process) use(l *line, more float64) {
	hold := l.hold + more
	if l.last != nil && l.last != p {
		hold += l.move
	}
	l.last, l.free = p, max(p.now, l.free)+hold
	l.busy += hold
	p.work(l.free - p.now)
}
