package fileproc

import (
	"context"
	"slices"
	"time"
)

const (
	// descriptorPatience is how long one operation waits for a descriptor in its turn.
	descriptorPatience = 30 * time.Second
	// turnPause is how long a worker waits for its turn before it gives up descriptors again.
	turnPause = 50 * time.Millisecond
)

// A shortage is the wait of one worker for a descriptor. It begins when an open fails for
// lack of one, and ends when a retry does not or the worker's patience is over. These rules
// hold for all runs of the process, so that some worker can always go on:
//
//  1. A run gives up what it can open again. While one of its workers is short, it keeps only
//     directories open that a worker uses (see dirCache.release), and its pool does not grow.
//     A directory that is partly listed must stay open, so the short worker lists those that
//     no worker has to their end.
//  2. Only the worker that holds fdTurn retries. If several did, each could hold a descriptor
//     and wait for those of the others. Before each try it closes what no run uses. If all
//     workers of a run are in callbacks, that run cannot do so itself.
//  3. A short worker keeps no descriptor that evictAll cannot close, and waits for no callback
//     and no loop over a Stream or Walk: these may have begun a run that waits for fdTurn. So
//     it sends results without waiting, calls OnError and OnSkip only when it is not short any
//     more, and does not let another worker run in its place.
//  4. The deepest directory that a try reaches stays pinned until the next gets further. If
//     each try began at root, in a deep tree perhaps none would succeed. So a try needs two
//     descriptors: for the directory reached, and for what is opened in it.
//  5. Roots leave these two. A root stays open until its run ends, so a run that begins beside
//     others waits for a reserve. It does so without fdTurn, which those that must end first
//     need. A run in a callback cannot wait for the end of the run around it, so its reserve
//     is smaller: see descriptors.Levels.
//
// So what is open besides roots is in use by workers that go on, or belongs to callbacks and
// the rest of the program. If that leaves too little, operations fail after their patience.
//
// A lease, or a call that is always interrupted, is no shortage: nobody can give up anything.
// An open that fails although a descriptor is free, as a FUSE server may let it, is the file's
// own shortage: the worker gives back fdTurn before it tries again.
type shortage struct {
	dirs     *dirCache
	deferred []func() // calls of callbacks, for when the shortage is over
	isOwn    bool     // a descriptor is free

	// guarded by dirs.mu
	hasTurn bool
	reached *node // pinned
}

// fdTurn is held by the one worker, of all runs, that retries while it is short.
var fdTurn = make(chan struct{}, 1) // buffered: a mutex that a select can wait for

// newShortage begins a shortage of a worker of c's run.
func (c *dirCache) newShortage() *shortage {
	s := &shortage{dirs: c}
	c.mu.Lock()
	c.short = append(c.short, s)
	c.mu.Unlock()
	return s
}

// end ends s, whether or not it has the turn.
func (s *shortage) end() {
	c := s.dirs
	if s.hasTurn {
		c.mu.Lock()
		s.hasTurn = false
		s.reach(nil)
		<-fdTurn
	}
	c.mu.Lock()
	i := slices.Index(c.short, s)
	c.short = slices.Delete(c.short, i, i+1)
	c.mu.Unlock()
}

// takeTurn takes fdTurn. It calls giveUp before and during the wait, also for what workers
// of the run open meanwhile. It reports false if ctx is done first.
func (s *shortage) takeTurn(ctx context.Context, giveUp func()) bool {
	for {
		giveUp()
		select {
		case fdTurn <- struct{}{}:
			s.dirs.mu.Lock()
			s.hasTurn = true
			s.dirs.mu.Unlock()
			return true
		case <-ctx.Done():
			return false
		case <-time.After(turnPause):
		}
	}
}

// pinForRetry pins n, in which something could not be opened for lack of a descriptor. It
// does nothing unless a worker of this run has fdTurn, so that it keeps no descriptor for
// which another run waits. Another worker of this run may replace n by a node of its own,
// but then waits itself, so that each worker does so once.
func (c *dirCache) pinForRetry(n *node) {
	c.mu.Lock()
	i := slices.IndexFunc(c.short, func(s *shortage) bool { return s.hasTurn })
	if i < 0 {
		c.mu.Unlock()
		return
	}
	n.pins++
	c.short[i].reach(n)
}

// reach makes n, which is pinned, the node reached. It is called with s.dirs.mu held and
// unlocks it.
func (s *shortage) reach(n *node) {
	n, s.reached = s.reached, n
	s.dirs.mu.Unlock()
	if n != nil {
		s.dirs.release(n, 1, 0)
	}
}

// depth returns the depth of the node reached, or -1.
func (s *shortage) depth() int {
	s.dirs.mu.Lock()
	defer s.dirs.mu.Unlock()
	if s.reached == nil {
		return -1
	}
	return s.reached.depth
}

// after calls f, which may wait for a callback, once the worker is not short: s may be nil.
func (s *shortage) after(f func()) {
	if s == nil {
		f()
	} else {
		s.deferred = append(s.deferred, f)
	}
}

// callDeferred is called when s has ended.
func (s *shortage) callDeferred() {
	for _, f := range s.deferred {
		f()
	}
}

// GiveUp closes every directory that is not in use at this moment: see descriptors.Holders.
func (c *dirCache) GiveUp() { c.evictAll() }
