package fileproc

import (
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// work is what the workers of a pool do.
type work interface {
	// scan lists one buffer of n. It returns its files (nil if there were
	// none), its subdirectories, and whether the listing of n goes on.
	scan(worker int, n *node) (b *batch, subs []*node, more bool)
	// visit does what there is to do for one entry.
	visit(worker int, b *batch, i int)
	// leave says that worker visits no more entries of b; last, that nobody
	// does and that b may be used again. The calls of several workers may
	// overlap, so that one that is not the last need not come before it.
	leave(worker int, b *batch, last bool)
	// rest says that worker may be about to wait.
	rest(worker int)
}

// A pool runs one kind of worker. Each takes a directory, lists one buffer of
// it and then visits the files it got, while others go on with the listing,
// list other directories, or join in visiting the batch. So there is never more
// than one batch a worker, and nothing that can fill up and block.
//
// Directories part-way listed come first, since they hold handles, and then the
// one found last, which makes the order depth-first.
//
// Workers are started one by one: whoever finds more work than it takes wakes
// or starts one other, which does the same. While calls block there may be more
// than otherwise (rise), until no calls do (fall).
type pool struct {
	work     work
	halt     func()         // unless nil, ends what workers wait for outside the pool
	order    *sequence      // unless nil, says what comes next
	late     func() []*node // unless nil, gives directories to go on with when all is done
	workers  int            // the most that run while no calls block
	most     int            // the most that run while calls block
	listings int            // the most directories that may be part-way listed

	stopped atomic.Bool
	extra   atomic.Int32 // workers above p.workers; changed with mu held
	wg      sync.WaitGroup

	mu        sync.Mutex // guards what follows
	cond      sync.Cond
	fresh     []*node  // directories to be listed
	listing   []*node  // directories part-way listed, in nobody's hands
	begun     int      // how many are part-way listed, in hands or not
	ready     []*batch // batches that nobody visits
	active    []*batch // batches that are being visited
	limit     int      // workers that may run now
	started   int      // workers that were started and have not been dismissed
	dismissed []int    // the numbers of those that have
	busy      int      // workers that may still find work
	idle      int      // workers that wait
	abandoned int64    // entries that were not visited
	panicked  *PanicError
	exited    bool // a worker ended by runtime.Goexit

	delayed *time.Timer // unless nil, is to start worker 1
}

func newPool(w work, workers, listings int, root *node) *pool {
	p := &pool{work: w, workers: workers, most: workers, limit: workers, listings: listings, fresh: []*node{root}, started: 1, busy: 1}
	p.cond.L = &p.mu
	return p
}

// stop makes every worker return after the entry it is at.
func (p *pool) stop() {
	p.stopped.Store(true)
	p.mu.Lock()
	p.cond.Broadcast()
	p.mu.Unlock()
}

// worker works until the pool has run out of work or is stopped. The caller
// runs worker 0, as a goroutine or not; the pool starts the others.
func (p *pool) worker(w int) {
	returned := false
	defer func() {
		if returned {
			return
		}
		p.mishap(recover())
	}()
	for {
		b, n := p.next(w)
		switch {
		case n != nil:
			p.work.rest(w)
			b, subs, more := p.work.scan(w, n)
			p.publish(n, b, subs, more)
			if b != nil {
				p.visit(w, b)
			}
		case b != nil:
			p.visit(w, b)
		default:
			returned = true
			return
		}
	}
}

// mishap stops the pool because a callback has panicked with v or, if that is
// nil, ended its goroutine by runtime.Goexit.
func (p *pool) mishap(v any) {
	p.mu.Lock()
	if v == nil {
		p.exited = true
	} else if p.panicked == nil {
		p.panicked = &PanicError{v, debug.Stack()}
	}
	p.mu.Unlock()
	if p.halt != nil {
		p.halt()
	}
	p.stop()
}

// next waits for a batch to visit or a directory to scan. It returns neither
// when there is no more work: when all other workers wait, nobody is left who
// could make any. Nor does it when it dismisses w.
func (p *pool) next(w int) (*batch, *node) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy--
	for !p.stopped.Load() {
		if w >= p.workers && p.started > p.limit && p.busy > 0 {
			p.dismiss(w)
			break
		}
		if b, n := p.pick(); b != nil || n != nil {
			p.busy++
			p.rouse(b, 0)
			return b, n
		}
		if p.busy == 0 && (p.order == nil || p.order.over()) {
			if p.late != nil {
				if p.fresh = append(p.fresh, p.late()...); len(p.fresh) > 0 {
					continue
				}
			}
			p.cond.Broadcast()
			break
		}
		p.work.rest(w)
		p.idle++
		p.cond.Wait()
		p.idle--
	}
	return nil, nil
}

// rise lets four times as many workers in, if all have work: calls block.
func (p *pool) rise() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.idle > 0 {
		return
	}
	if p.started >= p.limit {
		p.limit = min(4*p.limit, p.most)
	}
	p.rouse(nil, 0)
}

// fall dismisses half of the workers, of those that are there for calls that
// block.
func (p *pool) fall() {
	p.mu.Lock()
	p.limit = max(p.limit/2, p.workers)
	p.cond.Broadcast()
	p.mu.Unlock()
}

// dismissExtra has no more workers, from now on, than there are when no calls
// block.
func (p *pool) dismissExtra() {
	p.mu.Lock()
	p.most, p.limit = p.workers, p.workers
	p.mu.Unlock()
}

// dismiss is called with p.mu held, by the worker w, while others are busy.
func (p *pool) dismiss(w int) {
	p.work.rest(w)
	p.dismissed = append(p.dismissed, w)
	p.started--
	p.extra.Add(-1)
	p.rouse(nil, 0) // it may have been w that was woken
}

// pick is called with p.mu held.
func (p *pool) pick() (*batch, *node) {
	if k := len(p.ready); k > 0 {
		b := p.ready[k-1]
		p.ready = p.ready[:k-1]
		p.activate(b)
		return b, nil
	}
	if n := p.popListing(); n != nil {
		return nil, n
	}
	if p.order != nil && p.begun < p.listings {
		b, n := p.order.pick()
		if b != nil {
			p.activate(b)
			return b, nil
		}
		if n != nil {
			p.begun++
			return nil, n
		}
	}
	if k := len(p.fresh); k > 0 && p.begun < p.listings {
		n := p.fresh[k-1]
		p.fresh[k-1] = nil
		p.fresh = p.fresh[:k-1]
		p.begun++
		return nil, n
	}
	var most *batch
	left := 0
	for _, b := range p.active {
		if k := b.left(); k > left {
			most, left = b, k
		}
	}
	if most != nil {
		most.users++
		most.joined.Store(true)
	}
	return most, nil
}

func (p *pool) popListing() *node {
	k := len(p.listing)
	if k == 0 {
		return nil
	}
	n := p.listing[k-1]
	p.listing[k-1] = nil
	p.listing = p.listing[:k-1]
	return n
}

func (p *pool) activate(b *batch) {
	b.users = 1
	p.active = append(p.active, b)
}

const (
	// fewEntries are visited in less time than it takes to start a worker and
	// to wait until it has seen that nothing is left for it.
	fewEntries = 16
	// headStart is how long they are left to worker 0 if there is nothing else
	// to do. A function that takes longer is slow.
	headStart = 200 * time.Microsecond
)

// rouse wakes or starts one worker if there is something for it to do. The
// caller's worker is going to visit own or, if it has none but looks for work
// next, takes spare tasks itself. A worker that is about to wait holds p.mu, as
// the caller does, from its last look until it waits, so no wake-up is lost.
// The loop over an ordered Stream may call it when all workers have returned.
func (p *pool) rouse(own *batch, spare int) {
	if p.stopped.Load() || p.idle == 0 && p.started >= p.limit {
		return
	}
	if !p.plenty(own, spare) {
		if own == nil || own.left() < 2 { // the first is the caller's
			return
		}
		if p.started == 1 && len(own.entries) <= fewEntries {
			p.delay()
			return
		}
	}
	if p.idle > 0 {
		p.cond.Signal()
		return
	}
	w := p.started
	if k := len(p.dismissed); k > 0 {
		w = p.dismissed[k-1]
		p.dismissed = p.dismissed[:k-1]
	}
	if p.started++; p.started > p.workers {
		p.extra.Add(1)
	}
	p.busy++
	p.wg.Go(func() { p.worker(w) })
}

// delay starts worker 1 later, if there is still something for it to do.
func (p *pool) delay() {
	if p.delayed != nil {
		return
	}
	p.wg.Add(1)
	p.delayed = time.AfterFunc(headStart, func() {
		defer p.wg.Done()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.delayed = nil
		p.rouse(nil, 0)
	})
}

// plenty reports whether there is something to do beside own.
func (p *pool) plenty(own *batch, spare int) bool {
	if p.order != nil {
		spare -= p.order.available()
	}
	if len(p.ready)+len(p.listing)+min(len(p.fresh), p.listings-p.begun) > spare {
		return true
	}
	for _, b := range p.active {
		if b != own && b.left() > 0 {
			return true
		}
	}
	return false
}

// publish tells the others of what a scan of n has found.
func (p *pool) publish(n *node, b *batch, subs []*node, more bool) {
	p.mu.Lock()
	p.relist(n, subs, more)
	spare := 1
	if b != nil {
		p.activate(b)
		spare = 0
	}
	p.rouse(b, spare)
	p.mu.Unlock()
}

func (p *pool) relist(n *node, subs []*node, more bool) {
	switch {
	case more:
		p.listing = append(p.listing, n)
	case p.order == nil:
	case len(subs) == 1 && subs[0] == n:
		p.order.postpone(n)
	default:
		p.order.spread(n)
	}
	if !more {
		p.begun--
	}
	if p.order == nil {
		p.fresh = append(p.fresh, subs...)
	}
}

// drain lists to their end all directories that are part-way listed and in
// nobody's hands, and keeps what they give, so that their handles are free.
func (p *pool) drain(w int) {
	for !p.stopped.Load() {
		p.mu.Lock()
		n := p.popListing()
		p.mu.Unlock()
		if n == nil {
			return
		}
		b, subs, more := p.work.scan(w, n)
		p.mu.Lock()
		p.relist(n, subs, more)
		if b != nil {
			p.ready = append(p.ready, b)
		}
		p.rouse(nil, 0)
		p.mu.Unlock()
	}
}

// visit visits entries of b until all are taken.
func (p *pool) visit(w int, b *batch) {
	returned := false
	defer func() {
		if !returned { // a panic: nobody is to go on with b
			p.stop()
		}
		p.mu.Lock()
		if !returned {
			p.abandoned++
		}
		if p.stopped.Load() {
			p.abandoned += b.abandon()
		}
		b.users--
		last := b.users == 0
		if last {
			i := slices.Index(p.active, b)
			p.active = slices.Delete(p.active, i, i+1)
		}
		p.mu.Unlock()
		p.work.leave(w, b, last)
	}()
	for !p.stopped.Load() {
		i, ok := b.take()
		if !ok {
			break
		}
		p.work.visit(w, b, i)
	}
	returned = true
}

// wait returns when the workers that the pool started have returned. It is
// called when worker 0 has.
func (p *pool) wait() {
	p.mu.Lock()
	if p.delayed != nil && p.delayed.Stop() {
		p.delayed = nil
		p.wg.Done()
	}
	p.mu.Unlock()
	p.wg.Wait()
	for _, b := range p.ready {
		p.abandoned += b.abandon()
	}
	if p.order != nil {
		p.abandoned += p.order.abandon()
	}
}
