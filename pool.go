package fileproc

import (
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fileproc/fileproc/internal/descriptors"
)

// work is what one worker of a pool does.
type work interface {
	// scan lists a part of j.
	scan(j *job) scanResult
	// visit processes one entry.
	visit(b *batch, i int)
	// leave says that the worker visits no more entries of b. If last is set, no worker
	// does, and b may be reused. Other workers may call leave for b at the same time, and
	// return after the call with last set.
	leave(b *batch, last bool)
	// halve moves half of the entries of b that are left to a batch of its own, or returns nil
	// if they are too few. Like idle, it does not block, and may be called with the pool's
	// mutex held.
	halve(b *batch) *batch
	// idle says that the worker may be about to wait.
	idle()
}

// A queue says what the workers of a pool begin next.
type queue interface {
	// take returns the next batch to visit or job to list, or neither if
	// none may be begun now. Listed is how many jobs are partly listed at
	// this moment, and maxListings how many may be.
	take(listed, maxListings int) (*batch, *job)
	// add adds what a scan of j has found, except the batch.
	add(j *job, r scanResult)
	// pending returns how many times take would succeed, or less. It returns 0 only if
	// take would give nothing.
	pending(listed, maxListings int) int
	// batchesFirst reports whether to take a batch before a partly listed directory.
	batchesFirst() bool
	// isListed reports whether all jobs have been begun.
	isListed() bool
	// isEmpty reports whether all work has been begun.
	isEmpty() bool
	// abandon takes the files that have not been begun and returns how many they are.
	abandon() int64
}

// A pool runs one kind of worker. Each worker takes a directory, lists a part of it
// and then visits the files it got, while others go on with the listing, list other
// directories, take half of the batch, or join in visiting it. So there is never more than one
// batch per worker, and no buffer that can fill up and block.
//
// Directories that are partly listed come first, since they hold descriptors, and
// then what the queue gives.
//
// Workers are started one by one: a worker that finds more work than it takes wakes
// or starts another, which does the same. While calls block, more workers may run
// than otherwise: see grow.
type pool struct {
	start       func(id int) work // called on the worker's goroutine
	halt        func(error)       // ends what workers wait for outside the pool
	late        func() []*job     // unless nil, gives more jobs when all others are done
	workers     int               // the most that run while no calls block
	few         int               // a first batch with at most so many entries delays the start of worker 1: see delay
	maxListings int               // the most jobs that may be partly listed
	level       int               // of the run, see descriptors.Levels

	stopped atomic.Bool
	extra   atomic.Int32 // workers above p.workers; changed with mu held
	wg      sync.WaitGroup

	mu         sync.Mutex // guards what follows
	cond       sync.Cond
	queue      queue
	maxWorkers int      // the most that run while calls block
	maxGrown   int      // see limitGrowth
	maxAside   int      // see stepAside
	paused     []*job   // those partly listed that no worker has
	partly     int      // how many are partly listed, by a worker or not
	ready      []*batch // batches that no worker visits
	active     []*batch // batches that are being visited
	limit      int      // workers that may run now
	aside      int      // workers that wait so long that others run in their places
	started    int      // workers that were started and have not been dismissed
	dismissed  []int    // the ids of those that have been dismissed
	busy       int      // workers that may still find work
	idle       int      // workers that wait
	begun      bool     // worker 0 has looked for work
	abandoned  int64    // entries that were not visited
	panicked   *PanicError
	exited     bool // a worker ended by runtime.Goexit

	delayed *time.Timer // unless nil, is to start worker 1
}

// init prepares p, which is new.
func (p *pool) init(q queue, start func(id int) work, workers, maxWorkers, maxListings int) {
	p.queue, p.start, p.halt = q, start, func(error) {}
	p.workers, p.maxWorkers, p.maxGrown, p.maxListings = workers, maxWorkers, maxWorkers, maxListings
	p.few, p.limit, p.started, p.busy = fewEntries, workers, 1, 1
	p.cond.L = &p.mu
}

// stop makes every worker return after the entry it is at.
func (p *pool) stop() {
	p.stopped.Store(true)
	p.mu.Lock()
	p.cond.Broadcast()
	p.mu.Unlock()
}

// runWorker runs the worker id until there is no more work or the pool is stopped. The
// caller of init runs worker 0; the pool starts the others.
func (p *pool) runWorker(id int) { descriptors.Within(p.level, func() { p.loop(id) }) }

func (p *pool) loop(id int) {
	returned := false
	defer func() {
		if !returned {
			p.recordPanic(recover())
		}
	}()
	w := p.start(id)
	for {
		b, j := p.next(id, w)
		switch {
		case j != nil:
			w.idle()
			r := w.scan(j)
			p.publish(j, r)
			if r.batch != nil {
				p.visit(w, r.batch)
			}
		case b != nil:
			p.visit(w, b)
		default:
			returned = true
			return
		}
	}
}

// recordPanic stops the pool because a callback has panicked with v or, if that is
// nil, ended its goroutine by runtime.Goexit.
func (p *pool) recordPanic(v any) {
	p.mu.Lock()
	if v == nil {
		p.exited = true
	} else if p.panicked == nil {
		p.panicked = &PanicError{v, debug.Stack()}
	}
	p.mu.Unlock()
	p.halt(errStopped)
	p.stop()
}

// next waits for a batch to visit or a job to scan. It returns neither when there is no
// more work. That is so once all other workers wait, too: none is left that could find any.
// It also returns neither to a worker that it dismisses.
func (p *pool) next(id int, w work) (*batch, *job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy--
	p.begun = true
	for !p.stopped.Load() {
		if id >= p.workers && p.started > p.limit+p.aside && p.busy > 0 {
			p.dismiss(id, w)
			break
		}
		if b, j := p.pick(w); b != nil || j != nil {
			p.busy++
			p.wakeOne(b, 0)
			return b, j
		}
		if p.busy == 0 && p.queue.isEmpty() {
			if p.late != nil && p.addLate() {
				continue
			}
			p.cond.Broadcast()
			break
		}
		w.idle()
		p.idle++
		p.cond.Wait()
		p.idle--
	}
	return nil, nil
}

// muchLeft is the number of directories and batches without a worker that counts as
// much work.
const muchLeft = 16

// hasMuch reports whether much work is left that no worker has. A directory that
// took more than one scan so far counts as much.
func (p *pool) hasMuch() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.paused) > 0 || len(p.ready)+p.queue.pending(p.partly, p.maxListings) >= muchLeft
}

// wantsPart reports whether a worker that has nothing to do could go on with one more job, unless
// most jobs are partly listed. If mayStart is set, a worker could be started for it, too.
func (p *pool) wantsPart(most int, mayStart bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return (p.idle > 0 || mayStart && p.started < p.limit) && p.partly < min(most, p.maxListings) &&
		len(p.paused)+p.queue.pending(p.partly, p.maxListings) == 0
}

// isListed reports whether there is nothing left to be listed.
func (p *pool) isListed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.begun && p.partly == 0 && p.late == nil && p.queue.isListed()
}

// addLate adds the late jobs, if there are any. It is called with p.mu
// held, by a worker that counts as busy while p.late runs without p.mu.
func (p *pool) addLate() bool {
	p.busy++
	p.mu.Unlock()
	jobs := p.late()
	p.mu.Lock()
	p.busy--
	p.queue.add(nil, scanResult{subs: jobs})
	if len(jobs) == 0 {
		p.late = nil
	}
	return len(jobs) > 0
}

// dismiss is called with p.mu held, by the worker id, while others are busy.
func (p *pool) dismiss(id int, w work) {
	w.idle()
	p.dismissed = append(p.dismissed, id)
	p.started--
	p.extra.Add(-1)
	p.wakeOne(nil, 0) // this worker may be the one that was woken
}

// pick is called with p.mu held.
func (p *pool) pick(w work) (*batch, *job) {
	if k := len(p.ready); k > 0 {
		b := p.ready[k-1]
		p.ready = p.ready[:k-1]
		p.activate(b)
		return b, nil
	}
	if p.aside > 0 { // begin no directory first: each could make one more worker wait
		if b := p.join(w); b != nil {
			return b, nil
		}
	}
	if !p.queue.batchesFirst() {
		if j := p.popPaused(); j != nil {
			return nil, j
		}
	}
	b, j := p.queue.take(p.partly, p.maxListings)
	if b != nil {
		p.activate(b)
	}
	if j != nil {
		p.partly++
	}
	if b != nil || j != nil {
		return b, j
	}
	if j := p.popPaused(); j != nil {
		return nil, j
	}
	return p.join(w), nil
}

// join gives w half of the batch with the most entries left or, if these are few, lets it visit
// that batch, too. It returns nil if no batch has any.
func (p *pool) join(w work) *batch {
	var most *batch
	left := 0
	for _, b := range p.active {
		if k := b.left(); k > left {
			most, left = b, k
		}
	}
	if most == nil {
		return nil
	}
	if half := w.halve(most); half != nil {
		p.activate(half)
		return half
	}
	most.users++
	most.joined.Store(true)
	return most
}

func (p *pool) popPaused() *job {
	k := len(p.paused)
	if k == 0 {
		return nil
	}
	j := p.paused[k-1]
	p.paused[k-1] = nil
	p.paused = p.paused[:k-1]
	return j
}

func (p *pool) activate(b *batch) {
	b.users = 1
	p.active = append(p.active, b)
}

const (
	// fewEntries is how many entries one worker visits in less time than another
	// takes to start, which then finds nothing left.
	fewEntries = 16
	// fewNames is that number if no file is opened.
	fewNames = 1024
	// headStart is how long worker 0 has such a batch for itself if there is nothing
	// else to do. A function that takes longer is slow.
	headStart = 200 * time.Microsecond
)

// wake wakes or starts one worker if there is work for it. It may be called after all
// workers have returned. Before worker 0 has begun it does nothing: worker 0 takes the work.
func (p *pool) wake() {
	p.mu.Lock()
	if p.begun {
		p.wakeOne(nil, 0)
	}
	p.mu.Unlock()
}

// wakeAll wakes all workers that wait. They look for work, and find out whether more will
// come.
func (p *pool) wakeAll() {
	p.mu.Lock()
	p.cond.Broadcast()
	p.mu.Unlock()
}

// wakeOne lets one more worker run if there is work for it besides what the caller's
// worker does itself: the batch own or, if that is nil, so many ownTasks. It is called with
// p.mu held.
func (p *pool) wakeOne(own *batch, ownTasks int) {
	switch now, later := p.lacksWorker(own, ownTasks); {
	case now:
		p.addWorker()
	case later:
		p.delay()
	}
}

// lacksWorker reports whether one more worker should run now, or later if there is then
// still something for it to do. It is called with p.mu held.
func (p *pool) lacksWorker(own *batch, ownTasks int) (now, later bool) {
	switch {
	case p.stopped.Load() || p.idle == 0 && p.started >= p.limit+p.aside:
		return false, false
	case p.hasMore(own, ownTasks):
		return true, false
	case own == nil || own.left() < 2: // the first is the caller's
		return false, false
	}
	later = p.started == 1 && len(own.entries) <= p.few
	return !later, later
}

// addWorker wakes a worker that waits or, if none does, starts one. It is called with p.mu
// held. A worker holds p.mu from its last search for work until it waits, so no wake-up is
// lost.
func (p *pool) addWorker() {
	if p.idle > 0 {
		p.cond.Signal()
		return
	}
	id := p.started
	if k := len(p.dismissed); k > 0 {
		id = p.dismissed[k-1]
		p.dismissed = p.dismissed[:k-1]
	}
	if p.started++; p.started > p.workers {
		p.extra.Add(1)
	}
	p.busy++
	p.wg.Go(func() { p.runWorker(id) })
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
		p.wakeOne(nil, 0)
	})
}

// hasMore reports whether there is more to do than own and so many ownTasks.
func (p *pool) hasMore(own *batch, ownTasks int) bool {
	if len(p.ready)+len(p.paused)+p.queue.pending(p.partly, p.maxListings) > ownTasks {
		return true
	}
	for _, b := range p.active {
		if b != own && b.left() > 0 {
			return true
		}
	}
	return false
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
	p.cond.Broadcast() // one worker is too many now: one that waits is dismissed
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

// publish lets other workers take what a scan of j has found. The caller visits the
// batch; others may join it.
func (p *pool) publish(j *job, r scanResult) {
	p.mu.Lock()
	p.add(j, r)
	ownTasks := 1
	if r.batch != nil {
		p.activate(r.batch)
		ownTasks = 0
	}
	p.wakeOne(r.batch, ownTasks)
	p.mu.Unlock()
}

func (p *pool) add(j *job, r scanResult) {
	if r.part != nil {
		p.paused = append(p.paused, r.part)
		p.partly++
	}
	if r.state == scanMore {
		p.paused = append(p.paused, j)
	} else {
		p.partly--
	}
	p.queue.add(j, r)
}

// addBatch lets workers visit b.
func (p *pool) addBatch(b *batch) {
	p.mu.Lock()
	p.ready = append(p.ready, b)
	p.wakeOne(nil, 1) // the caller's worker takes one
	p.mu.Unlock()
}

// drain lists the directories in paused to their ends, so that they hold no descriptors.
// Workers take what it finds later.
func (p *pool) drain(w work) {
	for !p.stopped.Load() {
		p.mu.Lock()
		j := p.popPaused()
		p.mu.Unlock()
		if j == nil {
			return
		}
		r := w.scan(j)
		p.mu.Lock()
		p.add(j, r)
		if r.batch != nil {
			p.ready = append(p.ready, r.batch)
		}
		p.wakeOne(nil, 0)
		p.mu.Unlock()
	}
}

// visit visits entries of b until all are taken.
func (p *pool) visit(w work, b *batch) {
	returned := false
	defer func() {
		if !returned { // a panic: no worker is to go on with b
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
		w.leave(b, last)
	}()
	for !p.stopped.Load() {
		i, ok := b.take()
		if !ok {
			break
		}
		w.visit(b, i)
	}
	returned = true
}

// wait returns when the workers that the pool started have returned. It is called
// when worker 0 has returned, or while wg counts worker 0, too.
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
	p.abandoned += p.queue.abandon()
}
