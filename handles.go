package fileproc

import (
	"slices"
	"sync"
	"sync/atomic"
)

// handles are the open directories of a run. Those in use are pinned. Of the
// others, some stay open because there is more to do in them, and when these
// are too many, or descriptors are scarce, they are closed for the time being.
type handles struct {
	limit      int // the most directories that stay open without being pinned
	openLinked func(*node) (directory, error)

	mu    sync.Mutex
	tight int     // workers that wait for a descriptor: no directory stays open for later
	open  []*node // open but for root, the one opened first in front
	grips []*grip // of all workers
	keeps bool    // a worker is the one that waits for a descriptor: see keep
	kept  *node   // pinned
}

// A budget says how many descriptors a run may take for what.
type budget struct {
	open     int // directories that stay open while they are not in use
	listings int // directories that are part-way listed, which keeps them in use
	inFlight int // workers while calls block
	rings    int // io_urings, of all runs together: each is kept to the end of its run
}

var fullBudget = budget{32, 32, mostInFlight, maxWorkers}

// pin opens n if need be and keeps it open until unpin.
func (h *handles) pin(n *node) (directory, error) {
	h.mu.Lock()
	if n.dir != nil {
		n.pins++
		h.mu.Unlock()
		return n.dir, nil
	}
	was := n.id
	h.mu.Unlock()

	var up directory
	if n.link == nil {
		var err error
		if up, err = h.pin(n.parent); err != nil {
			return nil, err
		}
		defer h.unpin(n.parent) // the last: it panics if an fs.FS does, and closeAll is to know of d
	}
	d, err := h.openNode(n, up)
	if err != nil {
		return nil, err
	}
	if was != nil {
		id, err := d.identity()
		if err == nil && !id.same(was) {
			err = &sysError{"openat", ErrChanged}
		}
		if err != nil {
			d.close()
			return nil, err
		}
	}

	h.mu.Lock()
	defer h.mu.Unlock()
	n.pins++
	if n.dir != nil { // somebody else was faster
		d.close()
		return n.dir, nil
	}
	n.dir = d
	h.open = append(h.open, n)
	return d, nil
}

// openNode opens n, in its parent up unless links led to it.
func (h *handles) openNode(n *node, up directory) (directory, error) {
	if n.link != nil {
		return h.openLinked(n)
	}
	d, err := up.openDir(n.name)
	if err != nil && isScarce(err) {
		h.keep(n.parent)
	}
	return d, err
}

// keep pins n, in which there was no descriptor to open something, until the
// wait for one is over or gets further than n. Otherwise each try would begin
// at root, and in a deep tree perhaps none would ever come to the end. It does
// so only while a worker of this run holds scarce, so that what another run
// waits for is not kept. Another worker of this run may displace what the holder
// has kept, but then waits itself, so that it does so once.
func (h *handles) keep(n *node) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.keeps {
		h.swapKept(n)
	}
}

// keeping begins or ends what keep does.
func (h *handles) keeping(on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.keeps = on
	h.swapKept(nil)
}

func (h *handles) swapKept(n *node) {
	was := h.kept
	if h.kept = n; n != nil {
		n.pins++
	}
	if was != nil {
		was.pins--
		h.settle(was)
	}
}

func (h *handles) unpin(n *node) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n.pins--
	h.settle(n)
}

// ref keeps n from being closed for good until unref.
func (h *handles) ref(n *node, k int) {
	h.mu.Lock()
	n.refs += k
	h.mu.Unlock()
}

func (h *handles) unref(n *node) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n.refs--
	h.settle(n)
}

// ended tells that n's listing, for which n was pinned, is over.
func (h *handles) ended(n *node) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n.pins--
	n.refs--
	h.settle(n)
}

// settle closes n if nothing needs it, and otherwise another directory if too
// many are open. It is called with h.mu held, as are victim, loose, close and park.
func (h *handles) settle(n *node) {
	if n.parent == nil || n.pins > 0 || n.dir == nil {
		return
	}
	if n.refs == 0 {
		h.close(n)
		return
	}
	if h.tight == 0 && (len(h.open) <= h.limit || h.loose() <= h.limit) {
		return
	}
	if v := h.victim(); v == nil || h.park(v) {
		return
	}
	for _, n := range h.open { // what is wrong with that one need not be with others
		if n.pins == 0 && h.park(n) {
			return
		}
	}
}

// victim returns the directory that is closed first when too many are open, or
// nil if all are pinned. A depth-first walk returns to the deepest first, and
// opening one again takes an open for each level below the nearest that is open.
// So those are kept whose distances from the deepest grow like powers of a
// number: then the way back from depth d takes O(d log d) opens. With the last
// ones opened, all next to each other, it would take O(d²).
func (h *handles) victim() (v *node) {
	least, above := 0.0, 0
	deepest := h.open[len(h.open)-1].depth // of where the walk is
	for i, n := range h.open {
		below := n.depth + 1
		if i+1 < len(h.open) {
			below = h.open[i+1].depth
		}
		cost := float64(below-above) / float64(1+max(0, deepest-n.depth))
		if n.pins == 0 && (v == nil || cost < least) {
			v, least = n, cost
		}
		above = n.depth
	}
	return v
}

// loose returns how many directories are open without being pinned.
func (h *handles) loose() (k int) {
	for _, n := range h.open {
		if n.pins == 0 {
			k++
		}
	}
	return k
}

func (h *handles) close(n *node) {
	n.dir.close()
	n.dir = nil
	i := slices.Index(h.open, n)
	h.open = slices.Delete(h.open, i, i+1)
}

// park closes n so that it can be opened again.
func (h *handles) park(n *node) bool {
	if n.id == nil {
		id, err := n.dir.identity()
		if err != nil {
			return false
		}
		n.id = id
	}
	h.close(n)
	return true
}

func (h *handles) tighten(k int) {
	h.mu.Lock()
	h.tight += k
	h.mu.Unlock()
}

// parkAll closes every directory that is not in use at this moment, those
// included that a worker only keeps for what fn may ask of it.
func (h *handles) parkAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, g := range h.grips {
		// Only now node is sure to be the one that was pinned: the worker
		// cannot pin another while h.mu is held.
		if g.state.CompareAndSwap(gripLoose, gripNone) {
			g.node.Load().pins--
		}
	}
	for _, n := range slices.Clone(h.open) {
		switch {
		case n.pins > 0:
		case n.refs == 0:
			h.close(n)
		default:
			h.park(n)
		}
	}
}

// closeAll ends the run's use of its directories, root too. That one panics, of
// an fs.FS, does not keep the others open.
func (h *handles) closeAll(root *node) {
	if root.dir != nil {
		defer root.dir.close()
	}
	for _, n := range h.open {
		defer n.dir.close()
		n.dir = nil
	}
	h.open = nil
}

// A grip is a worker's pin on the directory that it visits files of. While fn
// runs the grip is loose: parkAll may take the pin away, so that a slow fn does
// not keep a descriptor from others. The worker itself only loses it so.
type grip struct {
	state atomic.Int32
	node  atomic.Pointer[node] // written by the worker alone, while it has no pin
}

const (
	gripNone  = iota // no pin
	gripFirm         // pinned, in use
	gripLoose        // pinned, until parkAll takes the pin
)

// hold pins n for use.
func (g *grip) hold(h *handles, n *node) (directory, error) {
	if g.node.Load() == n && g.state.CompareAndSwap(gripLoose, gripFirm) {
		return n.dir, nil
	}
	g.drop(h)
	d, err := h.pin(n)
	if err != nil {
		return nil, err
	}
	g.node.Store(n)
	g.state.Store(gripFirm)
	return d, nil
}

func (g *grip) loosen() { g.state.Store(gripLoose) }

// drop gives the pin back, if there is one.
func (g *grip) drop(h *handles) {
	if g.state.Swap(gripNone) != gripNone {
		h.unpin(g.node.Load())
	}
}
