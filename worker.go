package fileproc

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"syscall"
	"time"

	"github.com/fileproc/fileproc/internal/backend"
	"github.com/fileproc/fileproc/internal/content"
	"github.com/fileproc/fileproc/internal/gitindex"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/replace"
	"github.com/fileproc/fileproc/internal/sys"
)

// callbacks are what the API gives to a run beside its config. All but fn may be
// nil.
type callbacks struct {
	fn         func(*File) error
	selectFile func(*File) bool
	unchanged  func(*File) bool
	onBinary   func(*File)
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
	openRoot   func(root string) (backend.Directory, error) // in place of the backend's
}

// shared is what the workers of a run have in common.
type shared struct {
	resources
	calls    callbacks
	filter   filter
	failures failures
	links    links
	order    *ordered     // nil: results come as they are ready
	disk     *diskOrder   // nil: results come in order
	given    *givenSource // nil without Options.Files
	cold     coldMode
	memory   content.Memory // for large files

	cancel context.CancelCauseFunc

	mu           sync.Mutex    // guards what follows while the run goes on
	workers      []*worker     // by id, nil where none was started; each is used by its goroutine alone
	repositories []*repository // whose indexes are read
	leftovers    []temporary   // temporary files that listings have met

	// block has what every run needs, in one allocation. Separate allocations took a
	// quarter of the time of a run of one file.
	block struct {
		config config
		pool   pool
		disk   diskOrder
		_      cacheLine // all workers write what stands before it
		worker worker    // the first
		batch  batch     // its first
		job    job       // root's
		// The first elements of slices.
		workers [4]*worker
		pins    [2]*dirPin
		active  [2]*batch
		stack   [2]*job
		entries [fewEntries]names.Name
		inodes  [fewEntries]uint64
	}
}

// init prepares s, whose block.config is set.
func (s *shared) init(ctx context.Context, calls callbacks) {
	cfg := &s.block.config
	s.cfg, s.calls, s.filter = cfg, calls, newFilter(cfg)
	if len(cfg.roots) == 0 {
		s.root = &newTree(cfg, cfg.root, 0).root
	}
	s.pool, s.workers = &s.block.pool, s.block.workers[:0]
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	s.failures = failures{onError: calls.onError, stop: s.stop}
}

// stop ends the run early. Only the first cause counts.
func (s *shared) stop(cause error) {
	s.cancel(cause)
	s.pool.stop()
}

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
	access
	id          int
	latency     latencyMeter
	visits      int
	reader      content.Reader
	content     fetched
	metadata    fetched         // for hooks.Unchanged or if no file is opened
	window      *content.Window // nil unless the worker visits a batch that is read in windows
	toFetch     toFetch         // what a fetch gets, in place of an allocation for each
	toRead      *batch          // the files of the worker's batch for which hooks.Unchanged has returned false
	arena       names.Arena
	entryFilter entryFilter
	scanner     scanner
	spare       *batch // to be used again
	groups      backend.Groups[*prepared]
	file        File

	shown struct {
		sync.Mutex
		counts // from before the worker's present step, which may take long
	}
}

// emptyBatch returns a batch for files of n.
func (w *worker) emptyBatch(n *node) *batch {
	b := w.spare
	if b == nil {
		b = &batch{}
	}
	w.spare, b.node = nil, n
	return b
}

// A scanner is what a scan of a directory has found so far. Its methods are in
// scan.go.
type scanner struct {
	w        *worker
	job      *job
	node     *node // the job's
	dir      backend.Directory
	batch    *batch               // files
	other    *batch               // unordered: what is neither a file nor a directory, with Options.AllTypes
	subs     []*job               // directories to be listed
	links    []names.Name         // symbolic links to be resolved
	spans    []spanAt             // ordered: the directories, among the files
	replaced *replace.Done[*node] // nil until the run replaces a file
	part     *job                 // another, which the scan has made

	tracked   gitindex.Dir // where only what git tracks is listed: what this is in trackedIn
	trackedIn *node

	givenSpans []*span // ordered: the names of Options.Files, in place of batch and spans
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
	if w = &s.block.worker; id == 0 {
		w.spare = &s.block.batch
		w.spare.entries, w.spare.inodes = s.block.entries[:0], s.block.inodes[:0]
	} else {
		w = new(worker)
	}
	c := s.cfg
	w.shared, w.id = s, id
	w.run, w.self, w.slot = &s.resources, w, id
	w.entryFilter.filter, w.entryFilter.cfg = &s.filter, c
	w.latency.reads.untimed = 1 // reading the clock would not pay for one file
	if id == 0 {
		w.latency.lists.untimed = 1 // nor for one directory
	}
	w.reader = content.Reader{Want: c.want(), Stopped: s.stopped, MayAllocate: w.tryAcquireSlot, Memory: &s.memory}
	w.reader.TakeBuffer()
	if id >= c.workers {
		w.slot = noSlot
	}
	w.chooseFetchers()
	s.mu.Lock()
	s.workers[id] = w
	s.mu.Unlock()
	s.dirs.addPin(&w.pin)
	return w
}

// retire gives back what the next run can use.
func (w *worker) retire() {
	w.endReading() // of a callback that has panicked
	if p := w.file.prepared; p != nil {
		_ = p.Commit(errStopped)
	}
	w.groups.Close()
	w.content.groups.Close()
	w.metadata.groups.Close()
	w.reader.GiveBuffer()
}

// idle is called before w may wait.
func (w *worker) idle() {
	w.show()
	w.releaseSlot()
}

// show lets OnProgress see w's counts.
func (w *worker) show() {
	if w.calls.onProgress == nil {
		return
	}
	w.shown.Lock()
	w.shown.counts = w.counts
	w.read.Store(0)
	w.shown.Unlock()
}

// shownCounts adds up what the workers show. Abandoned is known only at the end.
func (s *shared) shownCounts() (total counts) {
	total.listed = s.pool.isListed() // first: a scan shows its counts before it ends
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.workers {
		if w != nil {
			w.shown.Lock()
			total.add(&w.shown.counts)
			total.bytes += w.read.Load()
			w.shown.Unlock()
		}
	}
	total.abandoned = 0
	return total
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
// hold no descriptor that evictAll cannot close: see shortage. Those of its groups are
// at most an eighth of all.
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

// fetched are the entries of a batch, from first to end, that a worker has fetched
// together.
type fetched struct {
	by         content.Fetcher // which has fetched them
	first, end int
	warm       content.Fetcher // fetches more of them while files come from the page cache
	groups     content.Groups  // is warm, unless that is content.Alone
}

func (a *fetched) has(i int) bool { return a.first <= i && i < a.end }

func (a *fetched) get(i int, c *content.Content) (ok, ring bool) {
	if !a.has(i) {
		return false, false
	}
	return a.by.Get(i-a.first, c)
}

// forget ends the use of what has been fetched of a batch.
func (a *fetched) forget() { a.first, a.end = 0, 0 }

// typeOf returns the type of the entry name of n, or errStopped.
func (w *worker) typeOf(n *node, name names.Name) (typ fs.FileMode, err error) {
	if w.stopped() {
		return 0, errStopped
	}
	err = w.withDirAside(n, func(d backend.Directory) error {
		if f, ok := d.(*backend.FSDir); ok { // its Stat finds the reason of an error, with more opens
			typ, err = f.Type(name)
			return err
		}
		st, err := d.Stat(name)
		typ = st.Mode.Type()
		return err
	})
	return typ, err
}

// isGone reports whether the work tree does not have an entry that git's index has in n, and that cannot be
// opened. Otherwise it returns the entry's type.
func (w *worker) isGone(n *node, name names.Name, wantsDir bool) (gone bool, typ fs.FileMode) {
	if n == nil || n.tree.tracked == nil {
		return false, 0
	}
	defer w.pin.drop(&w.dirs)
	typ, err := w.typeOf(n, name)
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || err == nil && (typ == fs.ModeDir) != wantsDir, typ
}

// chooseFetchers says how w fetches files that are in the page cache.
func (w *worker) chooseFetchers() {
	c, asks := w.cfg, w.asksFirst()
	w.content.groups = content.Groups{Limit: c.readLimit, NeedsStat: c.statFirst, Wait: content.AheadFrom, NoRing: c.noURing}
	w.metadata.groups = content.Groups{StatOnly: true, Birth: c.statFirst, Wait: content.AheadFrom, NoRing: true}
	w.content.warm, w.metadata.warm = content.Alone{}, content.Alone{}
	if w.id >= c.workers { // it was started because calls block: a group would wait
		return
	}
	if !c.noRead && !c.stat && !asks && !(c.skipBinary && c.truncate && c.readLimit < content.BinaryPrefix) {
		w.content.warm = &w.content.groups
	}
	if c.statFirst || c.noRead && c.stat && !asks {
		w.metadata.warm = &w.metadata.groups
	}
}

// contentFetcher returns how to fetch the content of files from now on. This may change
// in a batch: when the cold mode begins or ends, or descriptors become scarce.
func (w *worker) contentFetcher(inWindows bool) content.Fetcher {
	switch {
	case !inWindows:
		return w.content.warm
	case w.cold.pace.Window() == 0:
		return content.Alone{}
	case w.window != nil:
		return w.window
	}
	if w.window = w.cold.acquireWindow(); w.window == nil {
		return content.Alone{}
	}
	w.content.groups.Close()
	return w.window
}

// fetch fetches entries of b from i on together, if by finds that worth it.
func (w *worker) fetch(a *fetched, by content.Fetcher, b *batch, i int) {
	w.releaseSlot()
	w.toFetch = toFetch{w, b, i}
	n, met := by.Fetch(&w.toFetch)
	if n == 0 {
		return
	}
	a.by, a.first, a.end = by, i, i+n
	if a == &w.metadata {
		w.statTook(b, i, met.Took)
	}
	if met.Waited {
		w.pool.grow()
	}
	if met.Cached {
		w.cold.turnOff()
	}
}

// statTook is told how long the stat of entry i of b took, and lets the pool grow or turns
// the cold mode on if that shows that calls block.
func (w *worker) statTook(b *batch, i int, d time.Duration) {
	if w.latency.blocks(&w.latency.reads, w.pool, d) && (w.cold.isOn() || !w.cold.tryTurnOn(&w.pin, b, i)) {
		w.pool.grow()
	}
}

// A toFetch is the content.Source of a worker: the entries of b from first on.
type toFetch struct {
	w     *worker
	b     *batch
	first int
}

func (r *toFetch) Len() int {
	_, end := r.b.rest(r.b.next.Load())
	return end - r.first
}

func (r *toFetch) Use(n int) (content.Dir, []names.Name, error) {
	files, node := r.b.entries[r.first:r.first+n], r.b.nodeOf(r.first)
	for k := 1; k < len(files) && r.b.isWindow(); k++ {
		if r.b.nodes[r.first+k] != node {
			files = files[:k]
		}
	}
	d, err := r.w.pin.use(&r.w.dirs, node)
	if err != nil {
		return content.Dir{}, nil, err
	}
	return backend.DiskOf(d), files, nil
}

func (r *toFetch) Idle() { r.w.pin.idle() }

func (r *toFetch) OpenIn(window content.WindowReader, n int) {
	w, b := r.w, r.b
	var tried [content.WindowMax]bool
	for k := range n {
		if tried[k] {
			continue
		}
		node := b.nodeOf(r.first + k)
		d, err := w.pin.use(&w.dirs, node)
		pinned, of := err == nil, backend.DiskOf(d)
		for j := k; j < n; j++ {
			if b.nodeOf(r.first+j) != node {
				continue
			}
			tried[j] = true
			if err == nil && !w.stopped() {
				err = window.Open(j, of, b.entries[r.first+j])
			}
		}
		if pinned {
			w.pin.idle()
		}
		if sys.IsScarce(err) {
			w.cold.pace.LimitWindows(0)
			return
		}
	}
}

func (r *toFetch) IsJoined() bool { return r.b.joined.Load() }

func (r *toFetch) HasMuch() bool { return r.w.pool.hasMuch() }

func (r *toFetch) Uncached() bool { return r.w.cold.tryTurnOn(&r.w.pin, r.b, r.first) }

func (r *toFetch) Context() context.Context { return r.w.ctx }
