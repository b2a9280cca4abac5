package watch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"path"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/incremental"
	"github.com/fileproc/fileproc/internal/plumbing"
	"github.com/fileproc/fileproc/internal/replace"
	"github.com/fileproc/fileproc/watch/internal/events"
)

var core = plumbing.Of[fileproc.Options, *fileproc.File, fileproc.Stat]()

const (
	defaultQuiet   = 50 * time.Millisecond
	defaultMaxWait = time.Second
	defaultPoll    = time.Second
	pollShare      = 100              // polling uses at most 1/pollShare of one processor
	minPoll        = time.Millisecond // the shortest interval between two polls
	maxPoll        = time.Hour        // the longest
	farAhead       = time.Minute      // a file that settles later has a time in the future
	maxRetry       = time.Minute      // the longest pause before another try to read what could not be read

	defaultSaveAfter = 30 * time.Second // from a change to the save
)

// How long a save waits for another process that saves, which takes less than a second. A save during the loop waits
// briefly, since changes may have to be delivered. So does the last save, since somebody waits for the loop to end.
const (
	saveWait = 50 * time.Millisecond
	lastWait = time.Second
)

var errEnded = errors.New("watch: the loop has ended")

// A source reports what may have changed. Programs use events.Source, which documents the methods; tests have other sources.
type source interface {
	Add(rel string) error
	Ready() <-chan struct{}
	Take() []events.Hint
	Sync(context.Context) error
	Moved() bool
	Close() error
}

func openEvents(root string) (source, error) {
	s, err := events.Open(root)
	if err != nil {
		return nil, err // not s: a nil *events.Source makes a source that is not nil
	}
	return s, nil
}

// A loop is one use of a Watcher. Its methods run on the goroutine of the caller's loop.
// Workers also call watchDir and, through OnError, noteFailure.
type loop[T any] struct {
	w       *Watcher[T]
	yield   func(Change[T], error) bool
	session *incremental.Session[T]
	source  source // nil: everything is polled

	skipAll   atomic.Bool  // fn has returned fs.SkipAll
	refused   atomic.Bool  // Options.OnError has returned an error
	hasFailed atomic.Bool  // since planRetry was called, there is a new failure, or an old one has another reason
	inFn      atomic.Int64 // nanoseconds that this burst has spent in fn, summed over the calls

	dirty       map[string]bool // the paths that the next burst looks at
	still       map[string]bool // the unsettled files in dirty; true: events tell of no change since the last look
	first, last time.Time       // when events added the first and the last path to dirty; first is zero if none did
	syncs       []chan<- error
	left        bool          // the caller has left the loop
	yielded     bool          // this burst has yielded results or failures
	measures    bool          // something is polled, so the cost of this burst is measured
	away        time.Duration // processor time of the caller's loop body in this burst, if measures is set
	rootAway    bool          // only polling shows that root is back
	pollCost    time.Duration // processor time of the last poll without that in fn, as far as is known
	begun       bool          // the first burst has ended
	listed      bool          // root has been listed, once at least
	unsaved     bool
	saveError   string // the error of the last save, as text; "" if it succeeded
	broken      string // why the last run could not begin
	saidLimit   bool

	settleAt, saveAt, pollAt, retryAt time.Time // zero: not planned

	retryPause time.Duration // the pause that ends at retryAt

	mu          sync.Mutex
	polled      map[string]error // the directories without a watch, and why
	rootWatched bool             // this run has set the watch of root, or root is polled
}

// open opens the session.
func (l *loop[T]) open() (err error) {
	opts := l.w.opts
	core.Hooks(&opts).OnDir = l.watchDir
	core.Hooks(&opts).IsStill = func(rel string) bool { return l.still[rel] }
	if onError := opts.OnError; onError != nil {
		opts.OnError = func(err error) error {
			l.noteFailure(err)
			if err = onError(err); err != nil {
				l.refused.Store(true)
			}
			return err
		}
	}
	fn := l.w.fn
	if fn != nil {
		fn = func(f *fileproc.File) (T, error) {
			start := time.Now()
			v, err := l.w.fn(f)
			l.inFn.Add(int64(time.Since(start)))
			if errors.Is(err, fs.SkipAll) {
				l.skipAll.Store(true)
			}
			return v, err
		}
	}
	l.session, err = incremental.Open(l.w.root, l.w.inc, opts, fn)
	return err
}

// noteFailure notes a failure that is new to the session, so that the next retry comes soon. A file that failed in fn needs no
// retry: the loop looks at it again when it changes.
func (l *loop[T]) noteFailure(err error) {
	var f *fileproc.Failure
	if errors.As(err, &f) && f.Kind != fileproc.FailedFunc {
		l.hasFailed.Store(true)
	}
}

func (l *loop[T]) run(ctx context.Context) {
	if err := l.open(); err != nil {
		l.failed(err)
		return
	}
	defer func() { // also after a panic in the caller's loop
		l.w.end()
		if l.source != nil {
			_ = l.source.Close()
		}
		for _, done := range l.syncs {
			done <- errEnded
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWait) // a cancel must not lose results
		defer cancel()
		l.failed(l.session.Close(ctx))
	}()
	for l.burst(ctx) && l.wait(ctx) {
	}
	if l.begun {
		l.failed(context.Cause(ctx))
	}
}

// send yields c and err, unless the caller has left the loop. It reports whether the loop goes on.
func (l *loop[T]) send(c Change[T], err error) bool {
	if l.measures { // else it would cost two system calls for nothing
		defer func(start time.Duration) { l.away += l.w.processorTime() - start }(l.w.processorTime())
	}
	l.left = l.left || !l.yield(c, err)
	return !l.left
}

// failed yields an error that is not about a file.
func (l *loop[T]) failed(err error) {
	if err != nil {
		l.send(Change[T]{}, err)
	}
}

// burst runs over the dirty paths, and reports whether the loop goes on.
func (l *loop[T]) burst(ctx context.Context) bool {
	names := slices.Collect(maps.Keys(l.dirty))
	clear(l.dirty)
	l.first = time.Time{}
	all := slices.Contains(names, ".")
	// The first burst is not measured: it reads all files, so it costs more than a poll.
	l.measures, l.away = l.begun && len(l.pollNames()) > 0, 0
	l.forgetPolled(names)
	if all {
		names = nil
		l.openSource()
	}
	l.inFn.Store(0)
	l.yielded = false
	used := l.w.processorTime()
	if all || len(names) > 0 {
		if !l.deliver(ctx, names) {
			return false
		}
		if l.source != nil && !l.rootWatched { // root is away: no event tells when it is back
			_ = l.source.Close()
			l.source, l.rootAway = nil, true
		}
	}
	isFirst := !l.listed && !l.isRootUnread()
	l.listed = l.listed || isFirst
	if !l.sayLimit() || l.listed && (l.yielded || isFirst) && !l.send(Change[T]{Settled: true}, nil) {
		return false
	}
	l.begun = true
	for _, done := range l.syncs {
		done <- nil
	}
	l.syncs = nil
	clear(l.still)
	l.plan(l.w.processorTime()-used-l.away, all)
	return true
}

// deliver runs the session over names, or over the whole tree if there are none, and yields what comes. It reports whether the
// loop goes on.
func (l *loop[T]) deliver(ctx context.Context, names []string) (goesOn bool) {
	broken := l.broken
	l.broken = ""
	for r, err := range l.session.Run(ctx, names) {
		if l.isPassing(ctx, err) {
			if l.broken = err.Error(); l.broken == broken {
				continue
			}
			l.retryAt, l.retryPause = time.Time{}, 0
			l.failed(err)
			continue
		}
		if err == nil && l.listed && r.Kind == incremental.Unchanged {
			continue
		}
		l.yielded = true
		if !l.send(Change[T]{Result: r}, err) {
			return false
		}
		var f *fileproc.Failure
		if err != nil && (!errors.As(err, &f) || l.refused.Load()) {
			l.begun = false // err ends the loop, and run adds no context.Cause to it
			return false
		}
		l.noteFailure(err)
	}
	return !l.skipAll.Load()
}

// forgetPolled removes from polled the names that a burst is about to look at, and all directories below them. The burst calls
// watchDir, which adds those that still get no watch.
func (l *loop[T]) forgetPolled(names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	tops := map[string]bool{}
	for _, rel := range names {
		tops[rel] = true
	}
	maps.DeleteFunc(l.polled, func(rel string, _ error) bool {
		for ; rel != "." && !tops[rel]; rel = path.Dir(rel) {
		}
		return tops[rel]
	})
}

// openSource opens a source of events if there is none, or if root has moved.
func (l *loop[T]) openSource() {
	l.rootWatched = false
	if l.source != nil && !l.source.Moved() {
		return
	}
	if l.source != nil {
		_ = l.source.Close()
	}
	l.source, l.rootAway = nil, false
	var err error
	l.source, err = l.w.open(l.w.root) // without a source, root is polled
	if errors.Is(err, events.ErrLimit) {
		l.mu.Lock()
		l.polled["."] = err
		l.mu.Unlock()
	}
	l.rootAway = err != nil && !errors.Is(err, events.ErrUnsupported) && !errors.Is(err, events.ErrLimit)
}

// watchDir sets the watch of a directory. A run calls it before it lists the directory or looks for ignore rules there:
// the run sees what has happened before, and events report what happens later.
func (l *loop[T]) watchDir(rel string) {
	if l.source == nil {
		return
	}
	err := l.source.Add(rel)
	l.mu.Lock()
	defer l.mu.Unlock()
	// A polled directory stays polled, even with a watch, until a run looks at all of it, see forgetPolled. This run
	// may look at a part only, and the rest may have changed before the watch was set.
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.polled[rel] = err
	}
	l.rootWatched = l.rootWatched || rel == "." && (err == nil || l.polled[rel] != nil)
}

// sayLimit yields ErrLimit once. It reports whether the loop goes on.
func (l *loop[T]) sayLimit() bool {
	l.mu.Lock()
	n, limit := len(l.polled), false
	for _, err := range l.polled {
		limit = limit || errors.Is(err, events.ErrLimit)
	}
	l.mu.Unlock()
	if !limit || l.saidLimit {
		return true
	}
	l.saidLimit = true
	return l.send(Change[T]{}, fmt.Errorf("%w: %d directories (on Linux, fs.inotify.max_user_watches is the limit)", ErrLimit, n))
}

// pollNames returns the directories to poll: root if no event covers the whole tree, else the topmost ones without a watch.
func (l *loop[T]) pollNames() []string {
	if l.source == nil || l.w.opts.Symlinks != fileproc.SymlinksSkip {
		return []string{"."}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var names []string
	for rel := range l.polled {
		top := true
		for up := rel; up != "." && top; {
			up = path.Dir(up)
			top = l.polled[up] == nil
		}
		if top {
			names = append(names, rel)
		}
	}
	return names
}

// plan runs after a burst, which has taken the processor time cost. It sets the times at which the loop looks again at unsettled
// files, polls, saves and retries, all without an event.
func (l *loop[T]) plan(cost time.Duration, all bool) {
	now := time.Now()
	l.settleAt = time.Time{}
	for _, at := range l.session.Unsettled() {
		// The latest time, so that one burst is enough for all files.
		if at.Sub(now) < farAhead && at.After(l.settleAt) {
			l.settleAt = at
		}
	}
	if soonest := now.Add(defaultQuiet); !l.settleAt.IsZero() && l.settleAt.Before(soonest) {
		l.settleAt = soonest // so that settling does not keep the loop busy
	}
	if l.unsaved = l.unsaved || l.yielded; l.unsaved && l.saveAt.IsZero() {
		l.saveAt = now.Add(l.w.saveAfter)
	}
	l.planRetry(now)
	switch names := l.pollNames(); {
	case len(names) == 0:
		l.pollAt = time.Time{}
	case all || l.pollAt.IsZero(): // this burst was a poll, or polling is new
		pause := l.poll()
		if l.measures && !l.rootAway {
			l.measure(cost)
			pause = max(pause, l.pollCost*pollShare)
		}
		l.pollAt = now.Add(min(pause, maxPoll))
	}
}

// poll returns the shortest interval between two polls.
func (l *loop[T]) poll() time.Duration { return max(cmp.Or(l.w.Poll, defaultPoll), minPoll) }

// measure sets pollCost after a burst that has taken the processor time cost, including that in fn. Only the elapsed time in fn is
// known, during which up to GOMAXPROCS processors have worked. So a burst that calls fn can only raise pollCost, to the part of
// cost that was certainly not in fn.
func (l *loop[T]) measure(cost time.Duration) {
	if inFn := time.Duration(l.inFn.Load()); inFn == 0 {
		l.pollCost = cost
	} else {
		l.pollCost = max(l.pollCost, cost-inFn*time.Duration(runtime.GOMAXPROCS(0)))
	}
}

// planRetry sets the time of the next try to read what could not be read, after pauses that grow:
// the reason for the failure may pass without an event.
func (l *loop[T]) planRetry(now time.Time) {
	if l.hasFailed.Swap(false) {
		l.retryAt, l.retryPause = time.Time{}, 0
	}
	switch {
	case len(l.unread()) == 0:
		l.retryAt, l.retryPause = time.Time{}, 0
	case l.retryAt.IsZero(): // this burst was a retry, or the failure is new
		l.retryPause = min(max(2*l.retryPause, l.poll()), maxRetry)
		l.retryAt = now.Add(l.retryPause)
	}
}

// isPassing reports whether err is the reason why a run could not begin, and may pass, as when a file of
// Options.IgnoreFiles cannot be read. In the first burst such an error ends the loop, as invalid options do.
func (l *loop[T]) isPassing(ctx context.Context, err error) bool {
	var f *fileproc.Failure
	var e *fs.PathError
	return l.begun && !l.refused.Load() && ctx.Err() == nil && !errors.As(err, &f) && errors.As(err, &e)
}

// unread returns the paths that could not be read at the last look.
func (l *loop[T]) unread() (names []string) {
	if l.broken != "" {
		return []string{"."}
	}
	for rel := range l.session.Failed() {
		names = append(names, rel)
	}
	return names
}

func (l *loop[T]) isRootUnread() bool {
	for _, f := range l.session.Failed() {
		if f.Kind == fileproc.FailedRoot {
			return true
		}
	}
	return false
}

// wait returns true when a burst is due, and false when ctx ends or the caller has left the loop.
func (l *loop[T]) wait(ctx context.Context) bool {
	timer := time.NewTimer(0)
	for ctx.Err() == nil && !l.left {
		var hints <-chan struct{}
		if l.source != nil {
			hints = l.source.Ready()
		}
		select {
		case done := <-l.w.syncs: // before next, which may always find a burst
			l.sync(ctx, done)
		case <-hints:
			l.take()
		default:
		}
		now := time.Now()
		do, pause := l.next(now)
		if do == doSave {
			if l.save(ctx); l.left { // it may have yielded an error
				break
			}
			do, pause = l.next(now)
		}
		if do == doBurst {
			l.markDue(now)
			return ctx.Err() == nil
		}
		timer.Reset(pause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-hints:
			l.take()
		case done := <-l.w.syncs:
			l.sync(ctx, done)
		}
	}
	return false
}

// A step is what the loop does next.
type step int

const (
	doWait step = iota
	doBurst
	doSave
)

// next returns what the loop does at the time now, and how long it waits if there is nothing else to do.
func (l *loop[T]) next(now time.Time) (step, time.Duration) {
	burst, save := l.burstAt(), l.saveAt
	if len(l.dirty) > 0 {
		save = time.Time{} // after the burst
	}
	switch {
	case isDue(l.settleAt, now) || isDue(l.pollAt, now) || isDue(l.retryAt, now):
		return doBurst, 0
	case isDue(save, now):
		return doSave, 0
	case len(l.syncs) > 0 || isDue(burst, now):
		return doBurst, 0
	}
	pause := time.Duration(math.MaxInt64)
	for _, at := range []time.Time{l.settleAt, l.pollAt, save, l.retryAt, burst} {
		if !at.IsZero() {
			pause = min(pause, at.Sub(now))
		}
	}
	return doWait, pause
}

func isDue(at, now time.Time) bool { return !at.IsZero() && !at.After(now) }

// markDue makes dirty the paths whose time has come, all at once: one burst looks at all of them.
func (l *loop[T]) markDue(now time.Time) {
	if isDue(l.settleAt, now) { // plan sets it anew
		if l.source != nil {
			l.take()
		}
		for rel, at := range l.session.Unsettled() {
			if isDue(at, now) {
				l.still[rel] = l.isStill(rel)
			}
		}
		l.mark(slices.Collect(maps.Keys(l.still)))
		l.unsaved = true
	}
	if isDue(l.pollAt, now) {
		l.pollAt = time.Time{}
		l.mark(l.pollNames())
	}
	if isDue(l.retryAt, now) {
		l.retryAt = time.Time{}
		l.mark(l.unread())
	}
}

// burstAt returns when the hints that have come are looked at, the zero time if there are none.
func (l *loop[T]) burstAt() time.Time {
	if l.first.IsZero() {
		return l.first
	}
	quiet, most := l.w.Quiet, cmp.Or(l.w.MaxWait, defaultMaxWait)
	if quiet == 0 {
		quiet = defaultQuiet
	}
	at := l.last.Add(quiet)
	if end := l.first.Add(most); at.After(end) {
		return end
	}
	return at
}

// isStill reports whether events cover the file rel, and none has told of a change of it or of a directory above it.
func (l *loop[T]) isStill(rel string) bool {
	if l.source == nil || l.w.opts.Symlinks != fileproc.SymlinksSkip {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for ; !l.dirty[rel] && l.polled[rel] == nil; rel = path.Dir(rel) {
		if rel == "." {
			return true
		}
	}
	return false
}

// mark makes names dirty.
func (l *loop[T]) mark(names []string) {
	for _, rel := range names {
		l.dirty[rel] = true
	}
}

// take adds the paths that events hint at to dirty.
func (l *loop[T]) take() {
	hints := slices.DeleteFunc(l.source.Take(), func(h events.Hint) bool { return replace.IsTemporary([]byte(path.Base(h.Rel))) })
	for _, h := range hints {
		l.dirty[h.Rel] = true
	}
	if len(hints) > 0 {
		l.last = time.Now()
		if l.first.IsZero() {
			l.first = l.last
		}
	}
}

// sync adds to dirty all that may have changed until now, for a call of Sync that waits for done.
func (l *loop[T]) sync(ctx context.Context, done chan<- error) {
	l.syncs = append(l.syncs, done)
	l.mark(l.pollNames())
	l.mark(l.unread())
	if l.source == nil {
		return
	}
	if err := l.source.Sync(ctx); err != nil {
		l.dirty["."] = true
	}
	l.take()
}

// save saves the cache file, or plans another try. It waits only briefly for another process that holds the file's lock, since
// changes must not wait for that.
func (l *loop[T]) save(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, saveWait)
	defer cancel()
	err := l.session.Save(ctx)
	text := ""
	l.saveAt, l.unsaved = time.Time{}, false
	if err != nil {
		text = err.Error()
		l.saveAt, l.unsaved = time.Now().Add(l.w.saveAfter), true
	}
	if text != l.saveError {
		l.saveError = text
		l.failed(err)
	}
}
