package pace

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fileproc/fileproc/internal/knobs"
)

// A Disk gives turns to the goroutines that read from a disk. The methods but Init may be
// called by several goroutines.
type Disk struct {
	// Submission is held while the requests of one window are made, so that those of two
	// windows do not mix: a disk with one head would go from one window's place to the
	// other's and back.
	Submission sync.Mutex

	mu      sync.Mutex // guards what follows
	windows gate
	calls   gate
	limit   int // see LimitWindows
	weight  int // how many requests a file of the last window was

	// What Window and Calls return, to be read without mu.
	window  atomic.Int32
	pending atomic.Int32 // requests of calls
}

// A Turn is the right to make some requests. The zero Turn is none.
type Turn struct {
	Files    int // of a window
	Requests int
	pending  int // requests when the turn began, these included
	paced    int // the pace then
}

// Init prepares d, which is new, for windows of at most limit requests.
func (d *Disk) Init(limit int) {
	d.windows.pace = pace{most: firstPending}
	d.calls.pace = pace{most: leastPending}
	d.calls.size = perCall
	d.pending.Store(leastPending)
	d.limit, d.weight = limit, 1
	d.resize()
}

// resize lets windows have as many requests as the pace says, within the limit.
func (d *Disk) resize() {
	d.windows.size = min(d.windows.pace.window(), d.limit*d.weight)
	d.window.Store(int32(d.files(d.windows.size)))
}

// files returns of how many files so many requests are, if these are like the last.
func (d *Disk) files(requests int) int { return (requests + d.weight - 1) / d.weight }

// LimitWindows lets windows have at most limit requests from now on. With 0 there are no
// more windows.
func (d *Disk) LimitWindows(limit int) {
	d.mu.Lock()
	d.limit = limit
	d.resize()
	d.mu.Unlock()
}

// Window returns how many files the next window has, or 0 if there are no windows.
func (d *Disk) Window() int { return int(d.window.Load()) }

// Calls returns how many calls may be made at the same time.
func (d *Disk) Calls() int { return int(d.pending.Load()) / perCall }

// AcquireWindow waits for the turn to read files, or as many of them as a window has. It
// returns no turn if ctx is cancelled, or if there are no windows.
func (d *Disk) AcquireWindow(ctx context.Context, files int) Turn {
	d.mu.Lock()
	wanted := files * d.weight
	d.mu.Unlock()
	t := d.acquire(ctx, &d.windows, wanted)
	d.mu.Lock()
	t.Files = min(files, d.files(t.Requests))
	d.mu.Unlock()
	return t
}

// WeighWindow says that a turn has so many files, which are so many requests: a large file
// is several. The next windows get as many files as are likely to fit.
func (d *Disk) WeighWindow(t Turn, files, requests int) Turn {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.weight = max(1, requests/files)
	d.resize()
	unused := t.Requests - requests
	t.Files, t.Requests, t.pending = files, requests, t.pending-unused
	d.windows.end(Turn{Requests: unused})
	return t
}

// ReleaseWindow ends a turn whose requests took the time took, with the wait for Submission.
func (d *Disk) ReleaseWindow(t Turn, took time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	g := &d.windows
	pending := t.pending
	if g.pace.most <= fewPending {
		pending = t.Requests // most of the others may have been served by the time it began
	}
	if g.pace.most == t.paced { // it has not changed since
		g.pace = g.pace.afterWindow(pending, took)
	}
	d.resize()
	g.end(t)
}

// AcquireCall waits for the turn to make one call. It returns no turn if ctx is cancelled.
func (d *Disk) AcquireCall(ctx context.Context) Turn {
	return d.acquire(ctx, &d.calls, perCall)
}

// ReleaseCall ends a turn whose call took the time took. A call that is not slower than
// knobs.SlowCall found all in the page cache, and says nothing about the disk.
func (d *Disk) ReleaseCall(t Turn, took time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	g := &d.calls
	if g.pace.most == t.paced { // it has not changed since
		g.pace = g.pace.afterCall(t.pending, took)
	}
	alone := &d.windows.pace.alone // as long as one call at a time is best, or was until a few calls ago
	*alone = g.pace.most == perCall || *alone && g.pace.most == 2*perCall
	if took > knobs.SlowCall {
		d.pending.Store(int32(g.pace.most))
	}
	g.end(t)
}

// CallsAreCached says that calls do not reach the disk for now, so that Calls need not
// limit them. The next call that does undoes this.
func (d *Disk) CallsAreCached() { d.pending.Store(mostPending) }

// IsIdle reports whether nobody has a turn. Tests call it.
func (d *Disk) IsIdle() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.windows.pending+d.calls.pending == 0
}

func (d *Disk) acquire(ctx context.Context, g *gate, wanted int) Turn {
	d.mu.Lock()
	if len(g.waiting) == 0 {
		if t, ok := g.take(wanted); ok {
			d.mu.Unlock()
			return t
		}
	}
	mine := make(chan Turn, 1) // admit does not wait
	g.waiting = append(g.waiting, waiter{mine, wanted})
	d.mu.Unlock()
	select {
	case t := <-mine:
		return t
	case <-ctx.Done(): // this ends all other waits too, so it does not matter if mine still gets a turn
		return Turn{}
	}
}

// A gate gives turns of one kind, in the order in which goroutines ask for them. Its
// methods are called with Disk.mu held.
type gate struct {
	pace    pace
	size    int // the most requests of a turn
	pending int // requests of all turns
	waiting []waiter
}

// A waiter is a goroutine that waits for a turn.
type waiter struct {
	turn   chan<- Turn
	wanted int
}

// take returns a turn if its requests may be made now. A turn with more requests than
// the pace allows has to be alone.
func (g *gate) take(wanted int) (Turn, bool) {
	wanted = min(wanted, g.size)
	if g.pending > 0 && g.pending+wanted > g.pace.most {
		return Turn{}, false
	}
	g.pending += wanted
	return Turn{Requests: wanted, pending: g.pending, paced: g.pace.most}, true
}

// end ends a turn, and gives turns to those who wait.
func (g *gate) end(t Turn) {
	g.pending -= t.Requests
	for len(g.waiting) > 0 {
		next := g.waiting[0]
		t, ok := g.take(next.wanted)
		if !ok {
			return
		}
		next.turn <- t
		g.waiting = g.waiting[1:]
	}
}
