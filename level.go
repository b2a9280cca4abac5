package fileproc

import "time"

const (
	// mostInFlight bounds the workers while calls block: a disk has no more to
	// gain from, and a network little.
	mostInFlight = 64
	// timedEvery is of how many calls one is timed, while they do not block.
	timedEvery = 16
	// quickCalls is after how many of a worker's calls in a row that did not block
	// there are fewer workers.
	quickCalls = 16
	// noPermit is the number of a worker that may not run the caller's functions.
	noPermit = -1
)

// slowCall is how long a call takes that waits for what is not a processor.
var slowCall = 100 * time.Microsecond // tests set it

// A pace tells whether calls of one kind block.
type pace struct {
	untimed int // calls before the next that is timed
	slow    bool
}

// due reports whether the next call is to be timed.
func (c *pace) due(l *local) bool {
	c.untimed--
	return c.untimed < 0 || l.run.pool.extra.Load() > 0
}

// took tells how long the call took, and reports whether calls block: one that
// is a bit slow alone may just not have had a processor. Calls that are over before
// the caller's functions are ready for more block nobody.
func (c *pace) took(l *local, d time.Duration) bool {
	d -= l.waited
	l.waited = 0
	blocks := c.slow || d > 10*slowCall
	c.slow = d > slowCall
	if !c.slow {
		c.untimed = timedEvery
		if l.quick++; l.quick >= quickCalls && l.run.pool.extra.Load() > 0 {
			l.quick = 0
			l.run.pool.fall()
		}
		return false
	}
	l.quick = 0
	return blocks
}

// rest lets others have l's permit to run the caller's functions. While there
// are no more workers than permits each keeps one: then no others need it.
func (r *run) rest(w int) {
	l := r.local(w)
	l.show()
	l.rest()
}

func (l *local) rest() {
	if l.run.pool.extra.Load() > 0 && l.worker != noPermit {
		l.run.permits <- l.worker
		l.worker = noPermit
	}
}

// tryAcquire reports whether l has a permit to run the caller's functions now.
func (l *local) tryAcquire() bool {
	if l.worker == noPermit {
		select {
		case l.worker = <-l.run.permits:
		default:
		}
	}
	return l.worker != noPermit
}

// acquire waits until l has a permit to run the caller's functions. It reports
// false when the run has been stopped. Who has the permit may be waiting for a
// descriptor, so what waits here must not need one: see whenScarce.
func (l *local) acquire() bool {
	if l.tryAcquire() {
		return true
	}
	start := time.Now()
	defer func() { l.waited += time.Since(start) }()
	select {
	case l.worker = <-l.run.permits:
		return true
	case <-l.run.done:
		return false
	}
}
