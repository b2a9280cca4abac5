package fileproc

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"math"
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

const (
	// descriptorPatience is how long one operation waits for a descriptor,
	// from when no other one of this package waits before it.
	descriptorPatience = 30 * time.Second
	// scarcePause is how often those who wait before it give up what they can.
	scarcePause = 50 * time.Millisecond
	// leasePatience is how long one waits for a lease to be released. Linux
	// takes it away by itself after fs.lease-break-time, 45 s by default.
	leasePatience = time.Minute
)

// A run is one call of Process, ForEach, Stream or Walk.
type run struct {
	opts *Options
	base *base
	fn   func(*File) error
	// visitDir, unless nil, gets each directory that Walk finds, the entry name of
	// n, and what fetches its metadata. It reports whether to open the directory.
	visitDir func(l *local, n *node, name string, stat func() (Stat, error)) bool

	filter   filter
	device   uint64 // root's, if it matters
	progress progress
	links    links
	order    *sequence // nil: results come as they are ready
	handles  handles
	pool     *pool
	root     *node
	failures failures

	cancelled func() bool // asked between reads: at once, where stop takes a moment

	stopOnce sync.Once
	done     chan struct{} // closed when the run is stopped
	cause    error         // why it was stopped; read when all workers have returned

	locals  []*local // by worker; each looks only at its own
	permits chan int // to run the caller's functions; nil: each worker keeps its own
}

// A local is what one worker has to itself.
type local struct {
	run    *run
	number int // the worker's
	worker int // under which it runs the caller's functions, or noPermit
	loads  pace
	opens  pace
	quick  int           // calls in a row that did not block
	visits int           // since it last let go of its processor
	waited time.Duration // for a permit, since a call was timed
	grip   grip
	reader reader
	arena  arena
	file   File
	counts counts
	shown  shownCounts
	path   []byte // see rel
	pathOf *node  // the directory that path begins with
	dirLen int    // the length of pathOf's path
	sink   sink
	place  place   // see sequence
	spare  *batch  // to be used again
	yields bool    // see run.yield
	untold []error // failures that OnError is told of when l does not yield
	window window
}

// contentBuffers are kept from run to run.
var contentBuffers = sync.Pool{New: func() any { return new([firstBuffer]byte) }}

// execute runs the workers until all is done. Worker 0 is the calling
// goroutine. It returns why the run was stopped, if it was, and its failures.
func (r *run) execute(ctx context.Context, root string, opts *Options) error {
	start := time.Now()
	r.prepare(ctx, root, opts)
	defer r.finish(start) // also when fn ends this goroutine by runtime.Goexit
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	unwatch := r.watch(ctx)
	defer unwatch()
	d, err := r.openRoot(r.local(0), root)
	if err != nil {
		return err
	}
	r.root.dir = d
	if opts.OneFilesystem {
		s, err := d.stat(dot)
		if err != nil {
			return pathError("stat", root, err)
		}
		r.device = s.Device
	}
	if err := r.prepareLinks(); err != nil {
		return pathError("open", root, asSysError("readlink", err))
	}
	if err := r.readIgnorePaths(); err != nil {
		return err
	}
	if r.order != nil {
		r.order.begin(r.pool, r.root)
		r.pool.order, r.pool.fresh = r.order, nil
	}
	endProgress := r.startProgress(start)
	defer endProgress()
	r.pool.worker(0)
	r.pool.wait()
	unwatch()
	endProgress()
	switch {
	case r.pool.panicked != nil:
		panic(r.pool.panicked)
	case r.pool.exited:
		runtime.Goexit()
	}
	if r.cause == errEnough {
		r.cause = nil
	}
	return r.failures.join(r.cause)
}

func (r *run) prepare(ctx context.Context, root string, opts *Options) {
	if opts.Report != nil {
		*opts.Report = Report{Skipped: map[SkipReason]int64{}}
	}
	r.opts = opts
	r.base = newBase(root, opts)
	r.filter = newFilter(opts)
	opts.ignoreNames, opts.ignorePaths = splitIgnoreFiles(opts.IgnoreFiles)
	r.failures.onError, r.failures.stop = opts.OnError, r.stop
	r.done = make(chan struct{})
	budget := descriptorBudget()
	if opts.FS != nil && opts.limited {
		budget.inFlight = 0
	}
	r.handles.limit, r.handles.openLinked = budget.open, r.openLinked
	r.root = &node{refs: 1}
	r.pool = newPool(r, opts.Workers, budget.listings, r.root)
	if r.pool.most = max(opts.Workers, budget.inFlight); r.pool.most > opts.Workers {
		r.permits = make(chan int, opts.Workers) // all fit
	}
	r.locals = make([]*local, r.pool.most)
	r.pool.halt = func() { r.stop(errStopped) }
	r.cancelled = func() bool { return ctx.Err() != nil || r.pool.stopped.Load() }
}

// finish waits for all workers, closes what is open and writes the Report.
func (r *run) finish(start time.Time) {
	r.pool.wait()
	defer r.handles.closeAll(r.root)
	total := Report{Abandoned: r.pool.abandoned, Skipped: map[SkipReason]int64{}}
	total.add(&r.links.counts)
	for _, l := range r.locals {
		if l != nil {
			total.add(&l.counts)
			if b := l.sink.b; b != nil { // its scan panicked
				total.Abandoned += int64(len(b.entries))
			}
			l.retire()
		}
	}
	total.Elapsed = time.Since(start)
	if r.opts.Report != nil {
		*r.opts.Report = total
	}
	if r.opts.OnProgress == nil || r.pool.panicked != nil || r.pool.exited { // that is under way to the caller
		return
	}
	total.Skipped = maps.Clone(total.Skipped)
	defer func() {
		if v := recover(); v != nil {
			panic(&PanicError{v, debug.Stack()})
		}
	}()
	r.opts.OnProgress(total)
}

// watch stops the run when ctx is cancelled, until the function it returns has
// returned.
func (r *run) watch(ctx context.Context) (unwatch func()) {
	if ctx.Done() == nil {
		return func() {}
	}
	ended := make(chan struct{})
	release := context.AfterFunc(ctx, func() {
		r.stop(context.Cause(ctx))
		close(ended)
	})
	return sync.OnceFunc(func() {
		if !release() {
			<-ended
		} else if ctx.Err() != nil { // a reader may have seen it first
			r.stop(context.Cause(ctx))
		}
	})
}

// openRoot opens root, of which a symbolic link is followed.
func (r *run) openRoot(l *local, root string) (d directory, err error) {
	open := openRoot
	switch {
	case r.opts.openRoot != nil:
		open = r.opts.openRoot
	case r.opts.FS != nil:
		open = func(root string) (directory, error) { return openFS(r.opts.FS, root) }
	}
	try := func() error {
		d, err = open(root)
		return err
	}
	err = try()
	if err != nil {
		err = r.whenFree(l, err, try)
	}
	switch {
	case err == errStopped:
		return nil, r.cause // written before done was closed
	case err != nil:
		return nil, pathError("open", root, err)
	}
	return d, nil
}

// stop ends the run early. The first cause is the one that counts.
func (r *run) stop(cause error) {
	r.stopOnce.Do(func() {
		r.cause = cause
		close(r.done)
		r.pool.stop()
	})
}

// local returns the worker's own state, made at its first use.
func (r *run) local(w int) *local {
	if l := r.locals[w]; l != nil {
		return l
	}
	l := &local{run: r, number: w, worker: w}
	l.loads.untimed = 1 // for one file a clock would not pay
	l.file.l = l
	l.reader = reader{limit: r.opts.maxFileSize(), whole: true, stat: r.opts.Stat, sniff: r.opts.SkipBinary, stopped: r.cancelled, buf: contentBuffers.Get().(*[firstBuffer]byte)}
	if r.opts.ReadSize > 0 {
		l.reader.limit, l.reader.whole = int64(r.opts.ReadSize), false
	}
	l.window.wait = aheadFrom
	if w >= r.opts.Workers { // calls block: what is read ahead would be waited for
		l.worker, l.window.wait = noPermit, math.MaxInt
	}
	l.window.noRing = r.opts.DisableURing || r.opts.ReadSize == NoRead
	l.window.off = r.opts.Stat != (r.opts.ReadSize == NoRead) || r.opts.Select != nil ||
		r.opts.SkipBinary && !l.reader.whole && l.reader.limit < binaryPrefix
	l.reader.permit = l.tryAcquire
	r.locals[w] = l
	if r.opts.OnProgress != nil {
		r.progress.watch(l)
	}
	r.handles.mu.Lock()
	r.handles.grips = append(r.handles.grips, &l.grip)
	r.handles.mu.Unlock()
	return l
}

// retire gives back what the next run can use.
func (l *local) retire() {
	l.window.close()
	l.reader.release()
	contentBuffers.Put(l.reader.buf)
	l.reader.buf = nil
}

func (l *local) newBatch(n *node) *batch {
	b := l.spare
	if b == nil {
		b = &batch{}
	}
	l.spare = nil
	b.node = n
	return b
}

// scan lists one buffer of n. While the listing goes on, n is pinned.
func (r *run) scan(w int, n *node) (*batch, []*node, bool) {
	l := r.local(w)
	if r.order != nil {
		defer func(was place) { l.place = was }(l.place) // a visit's, which may wait
		l.place = place{segment: n.segment, file: -1}
	}
	if !n.listing && !r.begin(l, n) {
		return nil, nil, false
	}
	s := &l.sink
	*s = sink{l: l, node: n, dir: n.dir, subs: s.subs[:0], holds: n.held != nil}
	more := false
	if n.held == nil || !n.held.over {
		var err error
		more, err = n.dir.list(s)
		switch {
		case n.held != nil && n.held.marked:
			more = false
			n.held.entries, n.held.ignore = nil, nil
			l.skipFound(skipMarked)
		case err != nil:
			more = false
			r.failDir(l, n, err)
		case !more && !n.isLinks():
			l.counts.directories++
		}
	}
	l.show()
	if n.held != nil && !more {
		if !n.held.over && n.held.ignore != nil {
			// To read these may take waiting, so n is begun anew.
			n.held.over, n.listing = true, false
			r.handles.unpin(n)
			return nil, append(s.subs, n), false
		}
		s.release()
	}
	if len(s.links) > 0 {
		s.subs = append(s.subs, n.linksOf(s.links))
	}
	b, refs := s.b, len(s.subs)
	if r.order != nil && !more {
		n.segments = s.segments()
		for _, d := range n.segments {
			refs += min(d.files, 1)
		}
		b = nil // the segments have its entries
	}
	if b != nil {
		refs++
	}
	if refs > 0 {
		r.handles.ref(n, refs)
	}
	if !more {
		r.handles.ended(n)
	}
	s.b = nil // the caller's now; if ended has panicked, finish counts its entries
	return b, s.subs, more
}

// begin opens n and reports whether there is something to list.
func (r *run) begin(l *local, n *node) bool {
	if n.held != nil { // it has been listed
		// First, since that may wait for descriptors, and n would keep one.
		if !r.readIgnoreFiles(l, n) {
			return false
		}
		err := r.open(l, n)
		if err != nil {
			r.failDir(l, n, err)
		}
		n.listing = err == nil
		return n.listing
	}
	selected := r.selectDir(l, n)
	var err error
	if selected {
		err = r.openTimed(l, n)
	}
	if n.parent != nil && !n.isLinkedDir() { // which does not need it
		r.handles.unref(n.parent)
	}
	if err != nil {
		r.failDir(l, n, err)
	}
	if err != nil || !selected {
		return false
	}
	if r.passes(l, n) {
		r.handles.ended(n)
		return false
	}
	n.listing = true
	if r.holds() && !n.isLinks() {
		n.held = new(held)
	}
	if r.visitDir != nil && n.isLinkedDir() {
		r.visitDir(l, n.parent, n.name, func() (Stat, error) { return n.dir.stat(dot) })
	}
	return true
}

// selectDir reports whether n is to be opened as far as Options.SelectDir is
// concerned. It is asked here, and not where n is listed, since the worker has no
// directory in use now that another one might wait for.
func (r *run) selectDir(l *local, n *node) bool {
	if r.opts.SelectDir == nil || n.parent == nil || n.isLinks() {
		return true
	}
	if !l.acquire() {
		return false
	}
	if !r.opts.SelectDir(Entry{base: r.base, node: n.parent, name: n.name, typ: fs.ModeDir}) {
		l.skipFound(skipSelectDir)
		return false
	}
	l.rest()
	if r.visitDir != nil && !n.isLinkedDir() {
		defer l.grip.drop(&r.handles)
		if !r.visitDir(l, n.parent, n.name, func() (s Stat, err error) {
			err = l.attempt(n.parent, func(d directory) error {
				s, err = d.stat(n.name)
				return err
			})
			return s, err
		}) {
			return false
		}
	}
	return r.opts.opensDepth(n.depth)
}

// skipFound counts a directory that is left out because of what it is.
func (l *local) skipFound(why int) {
	l.counts.found++
	l.counts.skipped[why]++
}

func (r *run) openTimed(l *local, n *node) error {
	if n.parent == nil || !l.opens.due(l) {
		return r.open(l, n)
	}
	start := time.Now()
	err := r.open(l, n)
	if l.opens.took(l, time.Since(start)) {
		r.pool.rise()
	}
	return err
}

// open opens and pins n, waiting for a descriptor if there is none.
func (r *run) open(l *local, n *node) error {
	_, err := r.handles.pin(n)
	if err == nil {
		return nil
	}
	return r.whenFree(l, err, func() error {
		_, err := r.handles.pin(n)
		return err
	})
}

// dot is the name of a directory in itself.
var dot = ".\x00"[:1]

// passes reports whether n, which is open, is not to be listed because of what
// it is, or because that cannot be told.
func (r *run) passes(l *local, n *node) bool {
	if n.isLinks() {
		return false
	}
	why, err := r.visitedBefore(n)
	if why == noReason && err == nil && r.opts.OneFilesystem && n.parent != nil {
		var s Stat
		if s, err = n.dir.stat(dot); s.Device != r.device {
			why = skipOtherFilesystem
		}
	}
	switch {
	case err != nil:
		r.failDir(l, n, err)
	case why != noReason:
		l.skipFound(why)
	default:
		return false
	}
	return true
}

func (r *run) failDir(l *local, n *node, err error) {
	if err == errStopped {
		return
	}
	l.failFound("open", n, "", err)
}

// visitsInARow is after how many files a worker lets go of its processor, to have
// it again at once if nobody else wants it. A goroutine that has run for 10 ms is
// taken for one that keeps others waiting: from then on Go's monitor wakes every
// 20 µs and gives the processor of its next call to another thread.
const visitsInARow = 512

// visit handles one file.
func (r *run) visit(w int, b *batch, i int) {
	l := r.local(w)
	l.show()
	if l.visits++; l.visits == visitsInARow {
		l.visits = 0
		runtime.Gosched()
	}
	if r.order == nil {
		r.visitFile(l, b, i)
		return
	}
	l.place = place{segment: b.segment, file: i}
	r.visitFile(l, b, i)
	r.order.visited(l)
}

func (r *run) visitFile(l *local, b *batch, i int) {
	f := &l.file
	*f = File{l: l, node: b.node, name: b.entries[i].name}
	if s := r.opts.Select; s != nil {
		if !l.acquire() {
			l.counts.abandoned++
			return
		}
		if !s(f) {
			l.counts.skipped[skipSelect]++
			return
		}
	}
	if l.window.find(l, b, i, f) {
		if r.opts.SkipBinary && isBinary(f.data) {
			l.counts.skipped[skipBinary]++
			return
		}
		l.call(f)
		return
	}
	switch err := l.load(f, l.window.fetch(l, b, i)); err {
	case nil:
		l.call(f)
	case errBinary:
		l.counts.skipped[skipBinary]++
	case errStopped:
		l.counts.abandoned++
	default:
		l.fail("open", f.node, f.name, err)
	}
	if l.reader.large != nil {
		l.reader.release()
	}
}

// load fetches of f what the options ask for. Fetched says that it has been
// asked for before.
func (l *local) load(f *File, fetched bool) error {
	if l.run.opts.ReadSize == NoRead && !l.run.opts.Stat {
		return nil
	}
	l.rest()
	if fetched || !l.loads.due(l) {
		return l.get(f)
	}
	start := time.Now()
	err := l.get(f)
	if l.loads.took(l, time.Since(start)) && !l.window.startFetching(l, f.node) {
		l.run.pool.rise()
	}
	return err
}

func (l *local) get(f *File) error {
	if l.run.opts.ReadSize == NoRead {
		if err := f.lookUp(); err != nil {
			return err
		}
		if !f.stat.Mode.IsRegular() {
			return &sysError{"stat", changed{&notRegular{f.stat.Mode}}}
		}
		return nil
	}
	d, err := l.grip.hold(&l.run.handles, f.node)
	if err == nil {
		err = l.reader.read(d, f.name, f)
		l.grip.loosen()
	}
	switch {
	case err == nil:
		return nil
	case isScarce(err) || isLeased(err):
		err = l.readPatiently(f)
	}
	if err == errNoPermit {
		if !l.acquire() {
			return errStopped
		}
		err = l.readPatiently(f)
	}
	return err
}

func (l *local) readPatiently(f *File) error {
	return l.attempt(f.node, func(d directory) error { return l.reader.read(d, f.name, f) })
}

// call hands f to fn.
func (l *local) call(f *File) {
	if !l.acquire() {
		l.counts.abandoned++
		return
	}
	err := l.run.fn(f)
	l.counts.bytes += int64(len(f.data))
	if poisoned {
		for i := range f.data {
			f.data[i] = 0xDB
		}
	}
	switch {
	case err == nil:
		l.counts.processed++
	case errors.Is(err, ErrSkip):
		l.counts.skipped[skipByFunc]++
	case errors.Is(err, fs.SkipAll):
		l.counts.skipped[skipByFunc]++
		l.run.stop(errEnough)
	default:
		l.fail("process", f.node, f.name, err)
	}
}

// fail tells of a failure and then counts it: if OnError panics, the entry at
// hand is abandoned.
func (l *local) fail(op string, n *node, name string, err error) {
	l.run.failures.add(l, pathError(op, l.run.base.path(n, name), err))
	l.counts.failed++
}

// failFound is fail for what has not been counted as found.
func (l *local) failFound(op string, n *node, name string, err error) {
	l.fail(op, n, name, err)
	l.counts.found++
}

// leave is called when the worker visits no more entries of b.
func (r *run) leave(w int, b *batch, last bool) {
	l := r.local(w)
	l.window.forget()
	l.grip.drop(&r.handles)
	if last {
		r.handles.unref(b.node)
		b.reset()
		l.spare = b
	}
}

// attempt does something with n's handle, waiting if there is no descriptor for
// it, or if it is with a file that is leased.
func (l *local) attempt(n *node, do func(directory) error) error {
	try := func() error {
		d, err := l.grip.hold(&l.run.handles, n)
		if err != nil {
			return err
		}
		if err = do(d); err != nil && isScarce(err) {
			l.run.handles.keep(n)
		}
		l.grip.loosen()
		return err
	}
	err := try()
	if err == nil {
		return nil
	}
	return l.run.whenFree(l, err, try)
}

// scarce is held by the one worker of all runs that goes on while there are no
// descriptors left. A worker that would hold one and wait for another might
// wait for others that do the same.
var scarce = make(chan struct{}, 1) // buffered: a mutex that can be waited for in a select

// whenFree handles err, the failure of try. If a lease is held on the file it
// waits until that is released. If there are no descriptors left it gives up
// all that the run can do without, and tries until there are.
func (r *run) whenFree(l *local, err error, try func() error) error {
	for {
		switch {
		case isLeased(err):
			err = r.poll(leasePatience, func() (bool, error) {
				err := try()
				return isLeased(err), err
			})
			if isLeased(err) {
				return err
			}
		case isScarce(err):
			err = r.whenScarce(l, try)
			r.failures.tell(l)
			if isScarce(err) {
				return err
			}
		default:
			return err
		}
	}
}

func (r *run) whenScarce(l *local, try func() error) error {
	r.pool.dismissExtra()
	r.handles.tighten(1)
	defer r.handles.tighten(-1)
	r.yield(l)
	for waits := true; waits; {
		select {
		case scarce <- struct{}{}:
			waits = false
		case <-r.done:
			return errStopped
		case <-time.After(scarcePause):
			r.yield(l) // what others of this run, who wait for l's permit, have come to keep
		}
	}
	r.handles.keeping(true)
	defer func() {
		r.handles.keeping(false)
		<-scarce
	}()
	return r.poll(descriptorPatience, func() (bool, error) {
		r.yield(l)
		err := try()
		return isScarce(err), err
	})
}

// poll calls try until it says that there is nothing to wait for any more, the
// run is stopped, or patience is over.
func (r *run) poll(patience time.Duration, try func() (wait bool, err error)) error {
	deadline := time.Now().Add(patience)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		wait, err := try()
		if !wait || time.Now().After(deadline) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-r.done:
			return errStopped
		}
	}
}

// yield closes every descriptor that the run has and does not use now. It waits
// for nobody who takes results or is told of failures: l may hold scarce, and the
// loop over a Stream or Walk, or OnError, have begun a run that waits for that.
func (r *run) yield(l *local) {
	l.yields = true
	r.pool.drain(l.number)
	l.yields = false
	r.handles.parkAll()
}
