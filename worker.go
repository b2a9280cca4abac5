package fileproc

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"sync"
	"time"

	"github.com/fileproc/fileproc/internal/content"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
)

// callbacks are what the API gives to a run beside its config. All but fn may be
// nil.
type callbacks struct {
	fn         func(*currentFile) error
	selectFile func(*currentFile) bool
	unchanged  func(*currentFile) bool
	onBinary   func(*currentFile)
	onDir      func(rel string)
	onRule     func(path string)
	selectDir  func(w *worker, parent *node, name string) bool
	// visitDir gets each directory that Walk finds: the entry name of parent, and
	// stat, which fetches the directory's metadata. It reports whether to open the
	// directory.
	visitDir   func(w *worker, parent *node, name string, stat func() (sys.Stat, error)) bool
	onError    func(error) error
	onSkip     func(w *worker, n *node, name string, typ fs.FileMode, why SkipReason)
	yieldError func(*worker, error) // Stream and Walk: without onError, the loop gets the failures
	onProgress func(counts, time.Duration)
	onReport   func(counts, time.Duration)
	openRoot   func(root string) (directory, error) // in place of the backend's
}

// shared is what the workers of a run have in common.
type shared struct {
	cfg      *config
	calls    callbacks
	filter   filter
	paths    *pathBase
	failures failures
	dirs     dirCache
	links    links
	pool     *pool
	order    *ordered     // nil: results come as they are ready
	disk     *diskOrder   // nil: results come in order
	given    *givenSource // nil without Options.Files
	cold     coldMode
	memory   content.Memory // for large files

	ctx    context.Context // cancelled when the run is stopped
	cancel context.CancelCauseFunc
	slots  chan int // the free ones, in which callbacks may run; nil: each worker keeps its own

	// Known once root is open, before any worker starts.
	root   *node
	device uint64 // with cfg.oneFilesystem

	mu      sync.Mutex // guards workers while the run goes on
	workers []*worker  // by id, nil where none was started; each is used by its goroutine alone

	// parts are what every run needs, in one allocation. Separate allocations took a
	// quarter of the time of a run of one file.
	parts struct {
		config config
		pool   pool
		disk   diskOrder
		_      cacheLine // all workers write what stands before it
		worker worker    // the first
		batch  batch     // its first
		// The first elements of slices.
		workers [4]*worker
		pins    [2]*dirPin
		active  [2]*batch
		stack   [2]*node
		entries [fewEntries]names.Name
		inodes  [fewEntries]uint64
	}
}

// stop ends the run early. Only the first cause counts.
func (s *shared) stop(cause error) {
	s.cancel(cause)
	s.pool.stop()
}

func (s *shared) stopped() bool { return s.ctx.Err() != nil }

// buffersEntries reports whether a directory's entries are classified only when
// all of them are known.
func (s *shared) buffersEntries() bool {
	return len(s.cfg.ignoreNames) > 0 || s.cfg.gitIgnore || len(s.cfg.skipMarked) > 0 || s.order != nil
}

// asksFirst reports whether a callback is asked about each listed file right before
// the file is opened, so that files cannot be read together.
func (s *shared) asksFirst() bool {
	if s.cfg.statFirst {
		return s.order != nil
	}
	return s.calls.selectFile != nil
}

// A worker is the state of one goroutine of the pool.
type worker struct {
	*shared
	id      int
	slot    int // in which it runs callbacks, or noSlot
	latency latencyMeter
	visits  int // since it last yielded its processor
	pin     dirPin
	reader  content.Reader
	ahead   content.Ahead // reads content
	look    content.Ahead // fetches metadata, for hooks.Unchanged or if no file is opened
	toRead  *batch        // the files of the worker's batch for which hooks.Unchanged has returned false
	arena   names.Arena
	skips   entryFilter
	scanner scanner
	spare   *batch // to be used again
	file    currentFile
	reading interface{ end() } // what File.Reader has returned to the callback that runs, or nil
	pos     position

	counts counts
	shown  struct {
		sync.Mutex
		counts // from before the worker's present step, which may take long
	}

	withError any // the result that fn returned with the failure that yieldError gets next

	mayStepAside bool      // is in no callback: see aside
	isAside      bool      // another worker may run in its place
	asideSince   time.Time // while isAside

	draining bool     // must not wait for the loop or for OnError: see giveUpDescriptors
	deferred []func() // calls of onError and onSkip, for when draining is over
}

// A scanner is what a scan of a directory has found so far. Its methods are in
// scan.go.
type scanner struct {
	w     *worker
	node  *node
	dir   directory
	batch *batch       // files
	subs  []*node      // directories to be listed
	links []names.Name // symbolic links to be resolved
	spans []spanAt     // ordered: the directories, among the files
}

// A currentFile is the file that a worker processes. The API converts it to a File,
// which has the same fields.
type currentFile struct {
	w       *worker
	node    *node
	name    names.Name
	content content.Content
	// unchanged says that hooks.Unchanged has returned true, or fn has called
	// plumbing.API.SetUnchanged.
	unchanged bool
}

// startWorker returns the worker with this id. The worker's goroutine calls it first.
// A worker that was dismissed and is started again keeps the state that it had.
func (s *shared) startWorker(id int) *worker {
	s.mu.Lock()
	if k := id + 1 - len(s.workers); k > 0 {
		s.workers = append(s.workers, make([]*worker, k)...)
	}
	w := s.workers[id]
	s.mu.Unlock()
	if w != nil {
		return w
	}
	if w = &s.parts.worker; id == 0 {
		w.spare = &s.parts.batch
		w.spare.entries, w.spare.inodes = s.parts.entries[:0], s.parts.inodes[:0]
	} else {
		w = new(worker)
	}
	c := s.cfg
	w.shared, w.id, w.slot = s, id, id
	w.skips.filter, w.skips.cfg = &s.filter, c
	w.latency.reads.untimed = 1 // reading the clock would not pay for one file
	if id == 0 {
		w.latency.lists.untimed = 1 // nor for one directory
	}
	w.reader = content.Reader{Want: c.want(), Stopped: s.stopped, MayAllocate: w.tryAcquireSlot, Memory: &s.memory}
	w.reader.TakeBuffer()
	w.ahead = content.Ahead{Limit: c.readLimit, NeedsStat: c.statFirst, Wait: content.AheadFrom, NoRing: c.noURing}
	if c.noRead || c.stat || s.asksFirst() || c.skipBinary && c.truncate && c.readLimit < content.BinaryPrefix {
		w.ahead.Wait = content.Never
	}
	w.look = content.Ahead{StatOnly: true, Birth: c.statFirst, Wait: content.AheadFrom, NoRing: true}
	if !c.statFirst && (!c.noRead || !c.stat || s.asksFirst()) {
		w.look.Wait = content.Never
	}
	if id >= c.workers { // the worker was started because calls block: a readahead would wait
		w.slot, w.ahead.Wait, w.look.Wait = noSlot, content.Never, content.Never
	}
	s.mu.Lock()
	s.workers[id] = w
	s.mu.Unlock()
	s.dirs.addPin(&w.pin)
	return w
}

// retire gives back what the next run can use.
func (w *worker) retire() {
	w.endReading() // of a callback that has panicked
	w.ahead.Close()
	w.look.Close()
	w.reader.GiveBuffer()
}

// noSlot is the slot of a worker that may not run callbacks.
const noSlot = -1

// idle is called before w may wait.
func (w *worker) idle() {
	w.show()
	w.releaseSlot()
}

// releaseSlot lets another worker run callbacks. While there are no more workers
// than slots, each worker keeps its slot.
func (w *worker) releaseSlot() {
	if w.pool.extra.Load() > 0 && w.slot != noSlot {
		w.slots <- w.slot
		w.slot = noSlot
	}
}

// tryAcquireSlot reports whether w may run callbacks now.
func (w *worker) tryAcquireSlot() bool {
	if w.slot == noSlot {
		select {
		case w.slot = <-w.slots:
		default:
		}
	}
	return w.slot != noSlot
}

// acquireSlot waits until w may run callbacks, and reports false when the run is
// stopped. A worker that has a slot may be waiting for a descriptor, so w must
// hold no descriptor that evictAll cannot close: see waitForDescriptor.
func (w *worker) acquireSlot() bool {
	if w.tryAcquireSlot() {
		return true
	}
	start := time.Now()
	defer func() { w.latency.waited += time.Since(start) }()
	select {
	case w.slot = <-w.slots:
		return true
	case <-w.ctx.Done():
		return false
	}
}

// endReading ends the use of what File.Reader has returned to a callback.
func (w *worker) endReading() {
	if r := w.reading; r != nil {
		w.reading = nil
		r.end()
	}
}

// call runs fn for f and counts the outcome.
func (w *worker) call(f *currentFile) {
	if !w.acquireSlot() {
		w.counts.abandoned++
		return
	}
	err := w.calls.fn(f)
	w.endReading()
	data := f.content.Data
	w.counts.bytes += int64(len(data))
	if sys.Race {
		for i := range data {
			data[i] = 0xDB
		}
	}
	with, both := err.(*resultError)
	if both {
		err = with.error
	}
	switch {
	case f.unchanged && (err == nil || errors.Is(err, ErrSkip)):
		w.counts.unchanged++
	case err == nil:
		w.counts.processed++
	case w.stopped() && errors.Is(err, errStopped):
		w.counts.abandoned++
	case errors.Is(err, ErrSkip):
		w.skip(SkippedByFunc, f.node, f.name.String(), 0)
	case errors.Is(err, fs.SkipAll):
		if both {
			w.counts.processed++
		} else {
			w.skip(SkippedByFunc, f.node, f.name.String(), 0)
		}
		w.stop(errEnough)
	default:
		w.failAs(FailedFunc, "process", f.node, f.name.String(), err)
	}
}

// fail reports a failure and then counts it: if OnError panics, the entry counts as
// abandoned instead. An empty name stands for n itself.
func (w *worker) fail(op string, n *node, name string, err error) {
	kind := FailedFile
	if name == "" {
		if kind = FailedDir; n.lister().parent == nil {
			kind = FailedRoot
		}
	}
	w.failAs(kind, op, n, name, err)
}

func (w *worker) failAs(kind FailureKind, op string, n *node, name string, err error) {
	w.addFailure(w.failure(kind, op, n, name, err))
}

func (w *worker) failure(kind FailureKind, op string, n *node, name string, err error) *Failure {
	if w.given != nil && kind != FailedFunc && kind != FailedRoot {
		err = n.givenError(name, err)
	}
	if e, ok := err.(*sys.Error); ok && kind != FailedFunc {
		op, err = e.Op, e.Err
	}
	return &Failure{Kind: kind, PathError: fs.PathError{Op: op, Path: w.paths.path(n, name), Err: err}}
}

func (w *worker) addFailure(failure *Failure) {
	switch {
	case w.calls.onError == nil && w.calls.yieldError != nil:
		w.calls.yieldError(w, failure)
	case w.calls.onError != nil && w.draining:
		w.deferred = append(w.deferred, func() { w.failures.add(failure) })
	default:
		w.failures.add(failure)
	}
	w.counts.failed++
}

// addDeferred makes the calls of OnError and OnSkip that w has deferred while it was draining.
func (w *worker) addDeferred() {
	deferred := w.deferred
	w.deferred = nil
	for _, call := range deferred {
		call()
	}
}

// skip tells OnSkip of the entry name of n, or of n itself if name is "", and then
// counts the entry as skipped: if OnSkip panics, it counts as abandoned instead.
func (w *worker) skip(why SkipReason, n *node, name string, typ fs.FileMode) {
	if w.calls.onSkip != nil {
		w.tellSkipped(why, n, strings.Clone(name), typ)
	}
	w.counts.skip(why, 1)
}

func (w *worker) tellSkipped(why SkipReason, n *node, name string, typ fs.FileMode) {
	if name == "" && n.parent != nil {
		n, name = n.parent, n.name.String()
	}
	tell := func() { w.failures.oneAtATime(func() { w.calls.onSkip(w, n, name, typ, why) }) }
	if w.draining {
		w.deferred = append(w.deferred, tell)
	} else {
		tell()
	}
}

// skipFound is skip for what has not been counted as found.
func (w *worker) skipFound(why SkipReason, n *node, name string, typ fs.FileMode) {
	w.skip(why, n, name, typ)
	w.counts.found++
}

// failFound is fail for what has not been counted as found.
func (w *worker) failFound(op string, n *node, name string, err error) {
	w.fail(op, n, name, err)
	w.counts.found++
}

// failEntry is failFound for an entry of n that cannot be named.
func (w *worker) failEntry(n *node, err error) {
	w.failAs(FailedFile, "readdir", n, "", err)
	w.counts.found++
}

// failIgnored is failFound for a file of git's, which may be outside root.
func (w *worker) failIgnored(err error) {
	failure := &Failure{Kind: FailedFile, PathError: fs.PathError{Op: "open", Path: ".git", Err: err}}
	if e, ok := err.(*fs.PathError); ok {
		failure.PathError = *e
	}
	w.failRule(failure)
}

// failRule is failFound for a file that says what is ignored.
func (w *worker) failRule(failure *Failure) {
	failure.ofRule = true
	w.addFailure(failure)
	w.counts.found++
}

// show lets OnProgress see w's counts.
func (w *worker) show() {
	if w.calls.onProgress == nil {
		return
	}
	w.shown.Lock()
	w.shown.counts = w.counts
	w.shown.Unlock()
}

// shownCounts adds up what the workers show. Abandoned is known only at the end.
func (s *shared) shownCounts() (total counts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.workers {
		if w != nil {
			w.shown.Lock()
			total.add(&w.shown.counts)
			w.shown.Unlock()
		}
	}
	total.abandoned = 0
	return total
}
