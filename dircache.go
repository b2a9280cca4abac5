package fileproc

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fileproc/fileproc/internal/backend"
	"github.com/fileproc/fileproc/internal/sys"
)

// A dirCache holds the open directories of a run. Directories in use are pinned. Others,
// in which there is more to do, may stay open without a pin. When too many do, or
// descriptors are short, they are evicted: closed, to be opened again later.
//
// Opening, closing and identifying a directory may take long, and one slow file
// system must not stall the others. So a goroutine decides under mu, and acts after it
// has unlocked mu, on a directory that is pinned or out of the cache.
type dirCache struct {
	limit int   // the most directories that stay open without a pin
	kept  *node // the run's root, which stays open until closeAll; nil: Options.Roots has several
	roots rootOpener

	mu    sync.Mutex
	open  []*node     // open directories without kept, in the order in which they were opened
	pins  []*dirPin   // of all workers
	short []*shortage // of all workers: while there are any, no directory stays open for later
}

// A rootOpener opens the roots of Options.Roots. It is the run.
type rootOpener interface {
	openRoot(*tree) (backend.Directory, error)
}

// init prepares c, which is new. In pins there is room for the first workers' pins.
func (c *dirCache) init(limit int, pins []*dirPin, kept *node, roots rootOpener) {
	c.limit, c.pins, c.kept, c.roots = limit, pins, kept, roots
}

// acquire opens n unless it is open, and pins it until release.
func (c *dirCache) acquire(n *node) (backend.Directory, error) {
	d, parent, was := c.pinOpen(n)
	if d != nil {
		return d, nil
	}
	var err error
	switch {
	case n.way != nil:
		d, err = n.way.open()
	case n.parent == nil:
		d, err = c.roots.openRoot(n.tree)
	default:
		if parent == nil {
			if parent, err = c.acquire(n.parent); err != nil {
				return nil, err
			}
		}
		defer c.release(n.parent, 1, 0) // once d is in the cache: an fs.FS may panic here
		if n.given {
			d, err = backend.OpenGiven(parent, n.name)
		} else {
			d, err = parent.OpenDir(n.name)
		}
		if err != nil && sys.IsScarce(err) {
			c.pinForRetry(n.parent)
		}
	}
	if err != nil {
		return nil, err
	}
	if was != nil {
		id, err := d.Identity()
		if err == nil && !id.Same(was) {
			err = &sys.Error{Op: "openat", Err: ErrChanged}
		}
		if err != nil {
			d.Close()
			return nil, err
		}
	}
	if first := c.insert(n, d); first != d {
		d.Close() // another worker was faster
		return first, nil
	}
	return d, nil
}

// pinOpen pins n and returns its directory d, if n is open. If it is not, pinOpen pins the
// parent from which n is to be opened, if that is open, and returns its directory. Was is the
// identity that n had when it was last open, if known.
func (c *dirCache) pinOpen(n *node) (d, parent backend.Directory, was backend.Identity) {
	c.mu.Lock()
	defer c.mu.Unlock() // also if a mistake makes n nil: leave must not wait for ever
	if d = n.pinIfOpen(); d == nil && n.way == nil && n.parent != nil {
		parent = n.parent.pinIfOpen()
	}
	return d, parent, n.id
}

// pinIfOpen pins n, if it is open, and returns its directory. It is called with the directory
// cache's mutex held.
func (n *node) pinIfOpen() backend.Directory {
	// The signals that interrupted each call of identity may be over.
	n.noID = false
	if n.dir != nil {
		n.pins++
	}
	return n.dir
}

// insert pins n and makes d its directory, unless n has one. It returns n's directory.
func (c *dirCache) insert(n *node, d backend.Directory) backend.Directory {
	c.mu.Lock()
	defer c.mu.Unlock()
	n.pins++
	if n.dir == nil {
		n.dir = d
		c.open = append(c.open, n)
	}
	return n.dir
}

// ref adds refs to n, which keep it from being closed for good.
func (c *dirCache) ref(n *node, refs int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n.refs += refs
	n.check()
}

// release takes pins and refs from n. It closes n if nothing needs it any more,
// and otherwise evicts a directory if too many are open.
func (c *dirCache) release(n *node, pins, refs int) {
	if d := c.giveBack(n, pins, refs); d != nil {
		d.Close()
	}
}

// giveBack is release, except that it returns n's directory if the caller is to close it.
func (c *dirCache) giveBack(n *node, pins, refs int) backend.Directory {
	c.mu.Lock()
	defer c.mu.Unlock()
	n.pins -= pins
	n.refs -= refs
	n.check()
	if n == c.kept || n.pins > 0 || n.dir == nil {
		return nil
	}
	if n.refs == 0 {
		return c.remove(n)
	}
	for len(c.short) > 0 || len(c.open) > c.limit && c.unpinned() > c.limit {
		if v := c.victim(); v == nil || c.evict(v) {
			return nil
		}
	}
	return nil
}

// evict closes v, which can be opened again, and reports whether it did. It does not if
// v's identity cannot be found out, or if v is in use by then. A pin keeps v open while it
// is identified. Like remove, close, identify, victim and unpinned, evict is called with c.mu held.
func (c *dirCache) evict(v *node) bool {
	if v.id == nil && v.refs > 0 {
		v.pins++
		id, err := c.identify(v.dir)
		v.pins--
		v.id, v.noID = id, err != nil
	}
	if v.pins > 0 || v.refs > 0 && v.noID {
		return false
	}
	c.close(v)
	return true
}

// remove takes n out of the cache, and returns its directory.
func (c *dirCache) remove(n *node) backend.Directory {
	d := n.dir
	n.dir = nil
	i := slices.Index(c.open, n)
	c.open = slices.Delete(c.open, i, i+1)
	return d
}

// close takes n out of the cache and closes it.
func (c *dirCache) close(n *node) {
	d := c.remove(n)
	c.mu.Unlock()
	defer c.mu.Lock() // also when an fs.FS panics
	d.Close()
}

// identify is d.identity without c.mu.
func (c *dirCache) identify(d backend.Directory) (backend.Identity, error) {
	c.mu.Unlock()
	defer c.mu.Lock()
	return d.Identity()
}

// victim returns the directory to evict first, or nil if none can be evicted. A
// depth-first walk returns to the deepest directory first. To open a directory again
// takes an open for each level below its nearest ancestor that is open. So victim keeps
// directories whose distances from the deepest grow like powers of a number: then the
// way back from depth d takes O(d log d) opens. If the last directories opened were kept,
// all next to each other, the way back would take O(d²).
func (c *dirCache) victim() (v *node) {
	least, above := 0.0, 0
	deepest := c.open[len(c.open)-1].depth // where the walk is
	for i, n := range c.open {
		below := n.depth + 1
		if i+1 < len(c.open) {
			below = c.open[i+1].depth
		}
		cost := float64(below-above) / float64(1+max(0, deepest-n.depth))
		if n.pins == 0 && !n.noID && (v == nil || cost < least) {
			v, least = n, cost
		}
		above = n.depth
	}
	return v
}

// unpinned returns how many directories are open without a pin and can be evicted.
func (c *dirCache) unpinned() (k int) {
	for _, n := range c.open {
		if n.pins == 0 && !n.noID {
			k++
		}
	}
	return k
}

// evictAll closes every directory that is not in use at this moment, also those
// with an idle pin.
func (c *dirCache) evictAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.pins {
		// After the swap, p.node is still the node that was pinned: the worker cannot
		// pin another while c.mu is held.
		if p.state.CompareAndSwap(pinIdle, pinNone) {
			n := p.node.Load()
			n.pins--
			n.check()
		}
	}
	for _, n := range slices.Clone(c.open) {
		if n.dir != nil && n.pins == 0 {
			c.evict(n)
		}
	}
}

// closeAll closes all directories of the run. If the close of one of an fs.FS panics, the
// others are closed all the same.
func (c *dirCache) closeAll() {
	if c.kept != nil && c.kept.dir != nil {
		defer c.kept.dir.Close()
	}
	for _, n := range c.open {
		defer n.dir.Close()
		n.dir = nil
	}
	c.open = nil
}

// A dirPin is a worker's pin on the directory whose files it visits. While fn runs, the
// pin is idle: evictAll may take it away, so that a slow fn does not keep a descriptor
// from others.
type dirPin struct {
	state atomic.Int32
	node  atomic.Pointer[node] // written by the worker alone, while it has no pin
}

const (
	pinNone  = iota
	pinInUse // the directory stays open
	pinIdle  // the directory stays open until evictAll takes the pin
)

func (c *dirCache) addPin(p *dirPin) {
	c.mu.Lock()
	c.pins = append(c.pins, p)
	c.mu.Unlock()
}

// use pins n until idle.
func (p *dirPin) use(c *dirCache, n *node) (backend.Directory, error) {
	if p.node.Load() == n && p.state.CompareAndSwap(pinIdle, pinInUse) {
		return n.dir, nil
	}
	p.drop(c)
	d, err := c.acquire(n)
	if err != nil {
		return nil, err
	}
	p.node.Store(n)
	p.state.Store(pinInUse)
	return d, nil
}

// inherit makes the pin on n that the caller has p's own.
func (p *dirPin) inherit(c *dirCache, n *node) {
	p.drop(c)
	p.node.Store(n)
	p.state.Store(pinIdle)
}

func (p *dirPin) idle() { p.state.Store(pinIdle) }

// drop gives the pin back, if there is one.
func (p *dirPin) drop(c *dirCache) {
	if p.state.Swap(pinNone) != pinNone {
		c.release(p.node.Load(), 1, 0)
	}
}

// dropLast gives back the pin and a reference to n, with one use of c.mu if the pin is on n.
func (p *dirPin) dropLast(c *dirCache, n *node) {
	pins := 0
	if p.node.Load() != n {
		p.drop(c)
	} else if p.state.Swap(pinNone) != pinNone {
		pins = 1
	}
	c.release(n, pins, 1)
}

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
//  5. Roots leave these two. A run's only root stays open until the run ends, so a run that begins
//     beside others waits for a reserve. It does so without fdTurn, which those that must end first
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

// acquireTurn waits for fdTurn. It calls giveUp before and during the wait, also for what workers
// of the run open meanwhile. It reports false if ctx is done first.
func (s *shortage) acquireTurn(ctx context.Context, giveUp func()) bool {
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
