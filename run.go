package fileproc

import (
	"context"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/fileproc/fileproc/internal/descriptors"
	"github.com/fileproc/fileproc/internal/sys"
)

// The locks. A goroutine that holds a lock takes only locks that stand below it in
// this table. Callbacks are an exception: they may begin runs of their own.
//
//	Turns (channels)      of package descriptors: the turn of one run of each level to retry for its root
//	repository.mu         the reading of a repository's index
//	slots (channel)       the free slots for callbacks; receiving waits, sending never does
//	failures.mu           the failures, and one call of OnError or OnSkip at a time
//	fdTurn (channel)      the turn of one worker of all runs to retry for a descriptor
//	Holders.mu            of package descriptors: the caches of all runs, while they give up descriptors
//	pace.Disk.Submission  the making of the requests of one window, which may wait for room in the queue of the disk
//	pool.mu               the workers and their work; worker.idle runs under it
//	ordered.mu            the spans of an ordered run
//	diskOrder.mu          the directories and the files that are not begun
//	givenSource.mu        the names of Options.Files that no worker has taken
//	pace.Disk.mu          how many requests are made of a disk, and who waits
//	coldMode.mu           changes of the state; the windows that no worker has
//	resultBuffer.mu       the results of a Stream or Walk; senders wait for room
//	links.mu              the directories entered, with SymlinksFollow
//	dirCache.mu           the nodes' directories, pins and references
//	shared.mu             the list of workers; the temporary files met
//	replace.Done.mu       the files that have been replaced
//	content.Memory.mu     the memory for large files that no reader uses
//	worker.shown          the counts that OnProgress sees
//	rootDir.mu            the generic backend: what a listing said of entries
//
// No callback, no method of an fs.FS and no system call that may block runs under
// pool.mu or a lock below it. A goroutine chooses under the lock what to do, and does
// it without the lock.

// A run is one call of Process, ForEach, Stream or Walk.
type run struct {
	shared
	uncancellable bool // the caller's context is never cancelled
	counted       bool // in descriptors.RunsOpen
	first         *job // lists root, unless Options.Files gives backlogs in no order, or Options.Roots has several
}

// runs are kept from call to call.
var runs = sync.Pool{New: func() any { return new(run) }}

// runOnce executes a run and keeps its memory in runs: when execute returns, no
// goroutine and no result refers to the run any more. If execute panics or ends the
// goroutine, the run is not kept.
func runOnce(ctx context.Context, c config, calls callbacks) error {
	r := runs.Get().(*run)
	r.init(ctx, c, calls, nil)
	err := r.execute()
	if calls.openRoot == nil { // else a test looks at the run when it is over
		*r = run{}
		runs.Put(r)
	}
	return err
}

// newRun returns a run that is complete, with results in order if order is not nil.
func newRun(ctx context.Context, c config, calls callbacks, order *ordered) *run {
	r := new(run)
	r.init(ctx, c, calls, order)
	return r
}

// init prepares r, which is new. Many parts point to others that are not prepared yet. They
// use these only when the run is executed.
func (r *run) init(ctx context.Context, c config, calls callbacks, order *ordered) {
	budget := descriptorBudget()
	r.uncancellable = ctx.Done() == nil
	r.block.config = c
	r.shared.init(ctx, calls) // first: the other steps read the options
	r.dirs.init(budget.open, r.block.pins[:0], r.root, &r.shared)
	r.links.init(r.cfg, &r.filter, &r.dirs)
	queue := r.initQueue(order)
	r.initCold(budget.window) // after initQueue: where results come in order, no files are listed ahead
	r.initPool(queue, budget)
}

// initQueue prepares the queue, with the jobs that it gives first, and returns it.
func (r *run) initQueue(order *ordered) queue {
	cfg := r.cfg
	r.first = &r.block.job
	*r.first = job{node: r.root, source: foundDir{}}
	jobs := append(r.block.stack[:0], r.first)
	if len(cfg.roots) > 0 {
		jobs = argumentJobs(len(cfg.roots))
	}
	if cfg.files != nil {
		r.given = newGivenSource(cfg, cfg.canOpen, r.root, order != nil, r.pool.wake)
	}
	if order != nil {
		r.order = order
		if r.given != nil {
			r.first.source = nextBacklog{r.given}
		}
		order.begin(jobs, r.pool.wake)
		return order
	}
	r.disk = &r.block.disk
	r.disk.cold, r.disk.given = &r.cold, r.given
	if r.given == nil {
		slices.Reverse(jobs) // the queue takes the last one first
		r.disk.stack = jobs
	}
	if cfg.statFirst {
		r.disk.readStage = stageAsked // see coldMode.listsAhead
	}
	return r.disk
}

func (r *run) initCold(maxWindow int) {
	var ahead listedAhead
	if r.disk != nil {
		ahead = r.disk
	}
	if r.asksFirst() {
		maxWindow = 0
	}
	r.cold.init(r.cfg, r.pool, &r.dirs, ahead, maxWindow)
}

func (r *run) initPool(q queue, b budget) {
	cfg, p, inFlight := r.cfg, r.pool, r.cfg.workers
	if cfg.mayGrow {
		inFlight = max(inFlight, b.inFlight)
		r.slots = make(chan int, cfg.workers) // all fit
		p.maxAside = mostAside
	}
	p.init(q, func(id int) work { return r.startWorker(id) }, cfg.workers, inFlight, b.listings)
	p.halt, p.active = r.failures.stop, r.block.active[:0]
	if descriptors.Few() && descriptors.RunsOpen.Load() > 0 {
		p.level = min(descriptors.Nesting(), descriptors.Levels-1)
	}
	if cfg.noRead && !cfg.stat {
		p.few = fewNames
	}
	if cfg.followDirs {
		p.late = r.links.takeLinked
	}
}

// execute runs the workers until all is done. Worker 0 runs on the calling goroutine,
// unless the sequence of Options.Files takes long: see pullGiven. The error says why
// the run was stopped, if it was, and has the failures.
func (r *run) execute() error {
	var start time.Time
	if r.reports() {
		start = time.Now()
	}
	defer r.finish(start) // also when fn ends this goroutine by runtime.Goexit
	if r.calls.onReport != nil {
		r.calls.onReport(counts{}, 0)
	}
	endWatch := r.watch()
	defer endWatch()
	w := r.startWorker(0)
	isOpen, err := r.open(w)
	if err != nil {
		return err
	}
	if isOpen {
		endProgress := r.startProgress(start)
		defer endProgress()
		if r.given == nil || r.pullGiven() {
			r.pool.runWorker(0)
		}
		r.pool.wait()
		if !r.stopped() || context.Cause(r.ctx) == errEnough {
			r.early(w, func() { r.settleGroups(nil) })
		}
		endProgress()
		r.clean()
	}
	endWatch()
	switch {
	case r.pool.panicked != nil:
		panic(r.pool.panicked)
	case r.pool.exited:
		runtime.Goexit()
	}
	cause := context.Cause(r.ctx)
	if cause == errEnough {
		cause = nil
	}
	return r.failures.join(cause)
}

// pullGiven pulls the names of Options.Files and reports whether worker 0 is still to
// be run. If the sequence has not returned after headStart, it may be waiting. Worker 0
// then begins on a goroutine of its own, for which the pool waits. Worker 0 does not have
// a goroutine from the start: for a few names it would cost more than the names do. And
// after each wait of worker 0, all other goroutines that are ready would run first.
func (r *run) pullGiven() (isDue bool) {
	p := r.pool
	p.wg.Add(1)
	late := time.AfterFunc(headStart, func() {
		defer p.wg.Done()
		p.runWorker(0)
	})
	returned := false
	defer func() {
		if !returned {
			p.recordPanic(recover())
		}
		if isDue = late.Stop(); isDue {
			p.wg.Done()
		}
	}()
	r.given.pull(&p.stopped, r.ctx.Done())
	returned = true
	p.wakeAll()
	return
}

// watch lets a cancel of the caller's context stop the pool, until end has returned.
func (r *run) watch() (end func()) {
	if r.uncancellable {
		return func() {}
	}
	ended := make(chan struct{})
	release := context.AfterFunc(r.ctx, func() {
		r.pool.stop()
		close(ended)
	})
	return sync.OnceFunc(func() {
		if !release() {
			<-ended
		}
	})
}

// progressPeriod is how often Options.OnProgress is called.
const progressPeriod = 100 * time.Millisecond

// startProgress calls onProgress every progressPeriod, with the counts that the workers
// show, until end is called. When end has returned, no call is under way.
func (r *run) startProgress(start time.Time) (end func()) {
	if r.calls.onProgress == nil {
		return func() {}
	}
	over := make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() {
		returned := false
		defer func() {
			if !returned {
				r.pool.recordPanic(recover())
			}
		}()
		for due := time.Tick(progressPeriod); ; {
			select {
			case <-due:
				r.calls.onProgress(r.shownCounts(), time.Since(start))
			case <-over:
				returned = true
				return
			}
		}
	})
	return sync.OnceFunc(func() {
		close(over)
		ended.Wait()
	})
}

// open opens root and finds out what the run needs to know about it. It reports a
// failure of root like other failures, and returns false. If it returns an error, the
// run does not start.
func (r *run) open(w *worker) (ok bool, err error) {
	if r.ctx.Err() != nil {
		return false, nil // execute says why
	}
	if r.cfg.fsys == nil {
		descriptors.Holders.Add(&r.dirs)
	}
	if r.root == nil { // see argument
		r.count()
		return true, nil
	}
	if r.calls.onDir != nil && r.given == nil {
		// btrfs lists only what was there when the directory was opened: a watch must begin before that.
		r.calls.onDir(".")
	}
	t := r.root.tree
	if err = r.openFirst(w); err == nil {
		err = w.inspectRoot(t, r.root.dir)
	}
	if err != nil {
		r.early(w, func() { w.foundFailedDir(r.root, err) }) // unless the run is stopped
		return false, nil
	}
	if t.isFile {
		r.first.source = rootFile{}
	}
	if r.early(w, func() { err = w.readRules(t) }); err == errStopped {
		return false, nil
	}
	return err == nil, err
}

// early calls do before any worker runs. Do may report failures, and so OnError may panic.
func (r *run) early(w *worker, do func()) {
	returned := false
	defer func() {
		if !returned {
			r.pool.recordPanic(recover())
		}
	}()
	w.pos = position{span: r.first.span, file: -1}
	do()
	returned = true
}

// openFirst opens root. If too few descriptors would then be left to the runs under
// way, it waits until they have given up more or one of them has ended. After
// descriptorPatience it opens root all the same.
func (r *run) openFirst(w *worker) error {
	open := func() (err error) {
		r.root.dir, err = r.openRoot(r.root.tree)
		return err
	}
	if r.count() > 1 {
		err := r.openWithReserve()
		switch {
		case sys.MayPass(err): // a file with a lease
			return w.retryOnResource(r.openWithReserve)
		case !sys.IsScarce(err):
			return err
		}
		turn := descriptors.Turns[r.pool.level]
		select {
		case turn <- struct{}{}:
		case <-r.ctx.Done():
			return errStopped
		}
		defer func() { <-turn }()
		if err = retry(w.ctx, descriptorPatience, sys.IsScarce, func() error {
			descriptors.Holders.GiveUp()
			return r.openWithReserve()
		}); sys.IsScarce(err) {
			err = open()
		}
		return err
	}
	return w.retryOnResource(open)
}

// count counts r among the runs of the process that take descriptors, and returns how
// many there are.
func (r *run) count() int64 {
	if r.cfg.fsys != nil || r.calls.openRoot != nil {
		return 0
	}
	r.counted = true
	return descriptors.RunsOpen.Add(1)
}

// openWithReserve opens root. If that does not leave the reserve of the run's level, it
// closes root again and returns an error.
func (r *run) openWithReserve() error {
	d, err := r.openRoot(r.root.tree)
	if err != nil {
		return err
	}
	number := -1
	if n, ok := d.(interface{ Number() int }); ok {
		number = n.Number()
	}
	if err = descriptors.LeavesReserve(number, r.pool.level); err != nil {
		d.Close()
		return err
	}
	r.root.dir = d
	return nil
}

// reports reports whether anybody wants the counts and the time, which take 5 % of a run of one file.
func (r *run) reports() bool { return r.calls.onReport != nil || r.calls.onProgress != nil }

// finish waits for all workers, closes what is open and reports the counts.
func (r *run) finish(start time.Time) {
	defer r.cancel(nil)
	defer func() {
		if r.counted {
			descriptors.RunsOpen.Add(-1)
		}
	}()
	r.pool.wait()
	r.settleGroups(errStopped)
	r.pool.stop()                       // nothing may begin once the directories that it needs are closed
	descriptors.Holders.Remove(&r.dirs) // before the Report: other runs evict nothing of a run that is over
	defer r.dirs.closeAll()
	var total counts
	if r.reports() {
		total = r.total()
	}
	for _, w := range r.workers {
		w.retire()
	}
	for _, repo := range r.repositories {
		repo.index.Store(nil) // an Entry that is kept keeps the repository
	}
	r.cold.close()
	r.memory.Close()
	if !r.reports() {
		return
	}
	elapsed := time.Since(start)
	if r.calls.onReport != nil {
		r.calls.onReport(total, elapsed)
	}
	if r.calls.onProgress == nil || r.pool.panicked != nil || r.pool.exited { // the caller gets the panic or the exit
		return
	}
	defer func() {
		if v := recover(); v != nil {
			panic(&PanicError{v, debug.Stack()})
		}
	}()
	r.calls.onProgress(total, elapsed)
}
