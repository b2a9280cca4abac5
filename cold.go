package fileproc

import (
	"context"
	"math"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fileproc/fileproc/internal/backend"
	"github.com/fileproc/fileproc/internal/content"
	"github.com/fileproc/fileproc/internal/knobs"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/pace"
	"github.com/fileproc/fileproc/internal/sys"
)

const (
	// filesAlone is how many files of the queue a worker takes where it reads them one by one.
	filesAlone = 8
	// quickCalls is how many timed calls in a row must be quick for directories to count as
	// cached.
	quickCalls = 32
)

// memoryLimit returns how many bytes of memory this process may use. Tests set it.
var memoryLimit = func() int64 { return min(debug.SetMemoryLimit(-1), sys.MemoryOfGroup()) }

// A coldMode says whether a run reads from a disk, and then how. Where results come in
// order, no files are listed ahead (ahead is nil). Where descriptors are scarce, or a
// callback is asked about each file first, no windows are read (pace.Window is 0).
type coldMode struct {
	state atomic.Int32 // a coldState
	pace  pace.Disk    // of windows of files; its calls are opens and listings of directories
	ahead listedAhead  // nil: results come in order

	mu sync.Mutex // guards changes of state, and what follows
	// windows are those of the windowsMade windows that no worker has. A worker has a
	// window only while it visits a batch: the worker may be one of many that were started
	// before the cold mode, and end after the batch.
	windows     []*content.Window
	windowsMade int
	mostWindows int // does not change while workers run

	// Known before any worker starts.
	cfg  *config
	pool *pool
	dirs *dirCache
}

// listedAhead has the files that workers do not visit right after they have listed them.
// It is a diskOrder.
type listedAhead interface {
	// addFiles adds files of n, to stat or to read. It keeps neither slice.
	addFiles(n *node, toStat bool, files []names.Name, inodes []uint64)
	// fitMemory bounds the memory for files in a process that may use limit bytes.
	fitMemory(limit int64)
}

// A coldState says two things. Cold or warm: whether the cold mode is on, because files
// are not in the page cache. Unknown, Disk or Remote: what the slow opens and listings of
// directories wait for.
//
//	             waitsForElse               waitsForDisk
//	warmRemote <-------------- warmUnknown --------------> warmDisk
//	    |^                         |^                         |^
//	    ||                         ||                         ||   down: filesWait
//	    v|                         v|                         v|   up: filesCached
//	coldRemote <-------------- coldUnknown --------------> coldDisk
//	             waitsForElse               waitsForDisk
//
// These events come from:
//   - waitsForElse, waitsForDisk: await, after the first slow call.
//   - filesWait: tryTurnOn, when a worker has waited for a file on a disk. Where
//     metadata is fetched in the order of the disk, also await, after a slow call.
//   - filesCached: turnOff, when a worker found most of a window in the page cache. Where
//     metadata is fetched so, also await, after many quick calls.
type coldState int32

const (
	// No call was slow so far. Timed calls take turns, so that few of them find out.
	warmUnknown coldState = iota
	// Calls wait in parallel: what is no disk has no pace.
	warmRemote
	// All calls take turns, but those of a worker for which they were quick lately.
	warmDisk
	// The same. Besides, files are listed ahead and read in windows.
	coldUnknown
	coldRemote
	coldDisk // and few directories are partly listed: see maxListings
)

func (s coldState) isCold() bool    { return s >= coldUnknown }
func (s coldState) isUnknown() bool { return s == warmUnknown || s == coldUnknown }
func (s coldState) isDisk() bool    { return s == warmDisk || s == coldDisk }
func (s coldState) isRemote() bool  { return s == warmRemote || s == coldRemote }

// A coldEvent is the state that comes after each state.
type coldEvent [6]coldState

var (
	filesWait    = coldEvent{coldUnknown, coldRemote, coldDisk, coldUnknown, coldRemote, coldDisk}
	filesCached  = coldEvent{warmUnknown, warmRemote, warmDisk, warmUnknown, warmRemote, warmDisk}
	waitsForDisk = coldEvent{warmDisk, warmRemote, warmDisk, coldDisk, coldRemote, coldDisk}
	waitsForElse = coldEvent{warmRemote, warmRemote, warmDisk, coldRemote, coldRemote, coldDisk}
)

func (c *coldMode) now() coldState { return coldState(c.state.Load()) }

// isOn is called for each file.
func (c *coldMode) isOn() bool { return c.now().isCold() }

func (c *coldMode) happens(e *coldEvent) {
	c.mu.Lock()
	c.state.Store(int32(e[c.now()]))
	c.mu.Unlock()
}

// init prepares c, which is new, for windows of at most maxWindow files.
func (c *coldMode) init(cfg *config, p *pool, dirs *dirCache, ahead listedAhead, maxWindow int) {
	c.cfg, c.pool, c.dirs, c.ahead = cfg, p, dirs, ahead
	if knobs.AlwaysCold {
		c.state.Store(int32(coldDisk))
	}
	c.mostWindows = max(cfg.workers, maxColdWorkers)
	c.pace.Init(maxWindow)
}

// tryTurnOn turns the cold mode on if that is of use for the directory of entry i of b, and
// gives the queue the entries that no worker has taken. It reports whether the cold mode
// is on. The pin is that of the worker that visits b.
func (c *coldMode) tryTurnOn(pin *dirPin, b *batch, i int) bool {
	if c.isOn() {
		return true
	}
	if c.cfg.noRead && (c.ahead == nil || !c.cfg.statsAhead()) {
		return false
	}
	d, err := pin.use(c.dirs, b.nodeOf(i))
	if err != nil {
		return false
	}
	onDisk := backend.DiskOf(d).Kind != content.NotOnDisk
	pin.idle()
	if !onDisk {
		return false
	}
	c.turnOn()
	c.listAhead(b)
	return true
}

func (c *coldMode) turnOn() {
	if c.ahead != nil {
		c.ahead.fitMemory(memoryLimit())
	}
	c.happens(&filesWait)
	c.pool.limitGrowth(maxColdWorkers)
}

// turnOff turns the cold mode off. The pool stays as small as it is: the files that are
// listed ahead are still read in windows, and later files may wait for a disk again.
func (c *coldMode) turnOff() {
	if knobs.AlwaysCold {
		return
	}
	c.happens(&filesCached)
	c.pool.wake() // there may be files that wait for the end of the listing
}

// listsAhead reports whether files like those of b are to be listed ahead. These are the
// regular files to stat, and the files to read, once hooks.Unchanged, if set, has been
// asked about them.
func (c *coldMode) listsAhead(b *batch) bool {
	return c.ahead != nil && c.isOn() && len(b.types) == 0 && (c.statsNext(b) || !c.cfg.noRead && (!c.cfg.statFirst || b.stage == stageAsked))
}

// statsNext reports whether the next step of files like those of b is to stat them.
func (c *coldMode) statsNext(b *batch) bool { return c.cfg.statsAhead() && b.stage == stageListed }

// addFiles lists the entries of b from first to end ahead.
func (c *coldMode) addFiles(b *batch, first, end int) {
	c.dirs.ref(b.node, end-first)
	c.ahead.addFiles(b.node, c.statsNext(b), b.entries[first:end], b.inodes[first:end])
}

// listAhead gives the entries of b that no worker has taken back to the queue. If it
// returns true, the caller must not visit them.
func (c *coldMode) listAhead(b *batch) bool {
	if b.isWindow() || !c.listsAhead(b) {
		return false
	}
	if first, end := b.takeAll(); first < end {
		c.addFiles(b, first, end)
		c.pool.wake()
	}
	return true
}

// await makes a call that may wait for a disk, and lets the pool grow if calls block.
// While it is unknown what calls wait for, few timed calls are made at the same time. If
// they wait for a disk, few calls of any kind are: a run that is cancelled waits for all
// of them, and a disk with one head serves them one after the other. The call must not
// wait for another worker. It returns how much work it counts as; 1 is little. If it
// succeeds, dir returns the directory that it was about. The error of await is
// errStopped if ctx, the run's context, was cancelled before the call.
func (c *coldMode) await(ctx context.Context, m *latencyMeter, probe *latencyProbe, dir func() backend.Directory, call func() (work int, err error)) error {
	state := c.now()
	if !probe.isDue(c.pool) && (!state.isDisk() || m.unblocked >= shrinkAfter) {
		_, err := call()
		return err
	}
	var turn pace.Turn
	if !state.isRemote() {
		if turn = c.pace.AcquireCall(ctx); turn.Requests == 0 {
			return errStopped
		}
	}
	m.waited = 0 // for SelectDir's slot
	start := time.Now()
	work, err := call()
	took := time.Since(start)
	if turn.Requests > 0 {
		c.pace.ReleaseCall(turn, took)
	}
	switch {
	case m.blocks(probe, c.pool, took/time.Duration(work)) && err == nil:
		c.callsBlock(state, dir)
	case probe.quick == quickCalls && state.isDisk():
		c.listsQuickly()
	}
	return err
}

// callsBlock is called after a slow call, which was about dir and began in the state was.
func (c *coldMode) callsBlock(was coldState, dir func() backend.Directory) {
	onDisk := was.isDisk()
	if was.isUnknown() {
		event := &waitsForElse
		if onDisk = backend.DiskOf(dir()).Kind != content.NotOnDisk; onDisk {
			event = &waitsForDisk
		}
		c.happens(event)
	}
	switch {
	case !onDisk:
	case c.ahead != nil && c.cfg.statsAhead():
		if !c.isOn() {
			c.turnOn()
		}
	case !c.cfg.noRead:
		c.pool.limitGrowth(maxColdWorkers)
	}
	c.pool.grow()
}

// maxListings returns how many directories may be partly listed, so that directories are
// listed in the order of the disk. While two are listed, either may find directories that
// lie between the two.
func (c *coldMode) maxListings() int {
	if c.now() != coldDisk {
		return math.MaxInt
	}
	return c.pace.Calls()
}

// mostParts is how many parts of a directory are listed at a time from a disk. More would wait so
// long for a disk of 3,000 requests a second that the pace took it for one with a single head.
const mostParts = 4

// partsWanted returns the most jobs that may be partly listed if a directory is to get one more
// part, and whether listings wait for a disk.
func (c *coldMode) partsWanted() (most int, onDisk bool) {
	if c.now().isDisk() {
		return min(c.pace.Calls(), mostParts), true
	}
	return math.MaxInt, false
}

// listsQuickly is called when directories come from the page cache. The next slow call
// undoes what it does.
func (c *coldMode) listsQuickly() {
	c.pace.CallsAreCached()
	if c.cfg.statsAhead() {
		c.turnOff()
	}
}

// together returns how many files of the queue a worker takes at a time.
func (c *coldMode) together() int {
	if n := c.pace.Window(); n > 0 {
		return n
	}
	return filesAlone
}

// acquireWindow returns a content.Window that no worker has, or a new one, or nil if there are
// enough or there are none here.
func (c *coldMode) acquireWindow() (w *content.Window) {
	c.mu.Lock()
	k := len(c.windows)
	makes := k == 0 && c.windowsMade < c.mostWindows
	switch {
	case k > 0:
		w, c.windows = c.windows[k-1], c.windows[:k-1]
	case makes:
		c.windowsMade++
	}
	c.mu.Unlock()
	if makes { // which takes long
		w = newWindow(c.cfg.want(), c.cfg.noURing, &c.pace)
	}
	return w
}

// newWindow is content.NewWindow, unless a test replaces it.
var newWindow = content.NewWindow

// releaseWindow gives a window back, for another worker.
func (c *coldMode) releaseWindow(w *content.Window) {
	c.mu.Lock()
	c.windows = append(c.windows, w)
	c.mu.Unlock()
}

// close closes all windows, which may take long.
func (c *coldMode) close() {
	if len(c.windows) == 0 {
		return
	}
	var closing sync.WaitGroup
	for _, w := range c.windows {
		closing.Go(w.Close)
	}
	closing.Wait()
}
