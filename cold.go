package fileproc

import (
	"context"
	"math"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fileproc/fileproc/internal/content"
	"github.com/fileproc/fileproc/internal/knobs"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
)

const (
	// pendingFrom, pendingMin and pendingMost are how many files workers read in
	// windows at the same time: at first, at least (however slow the disk is), and at most.
	pendingFrom = 16
	pendingMin  = 8
	pendingMost = 4 * content.WindowMax
	// pendingFew is the highest pace at which a window is judged by its own files alone,
	// so that a slow disk is noticed before it is asked for more.
	pendingFew = 64
	// One call counts as callFiles files. It reads several blocks, one after the other.
	callFiles = 4
	// longWindow is how long the reads of a window may take before the disk is asked
	// for less. A run that is stopped waits for them.
	longWindow = 40 * time.Millisecond
	// longCall is the time above which a call takes long. A disk is asked for more only if
	// a call would stay within longCall with as many calls at a time as the pace allows.
	// Later calls may read more blocks.
	longCall = 5 * time.Millisecond
	// longInARow is how many calls in a row must take longer than longCall for a disk to
	// be asked for one call at a time. The next time, longAgain calls are enough. A single
	// call may have waited for a processor.
	longInARow = 4
	longAgain  = 2
	// quickInARow is how many windows must be quick, once one was slow, before the disk is
	// asked for more, and how many calls must be.
	quickInARow = 32
)

// memoryLimit returns how many bytes of memory this process may use. Tests set it.
var memoryLimit = func() int64 { return min(debug.SetMemoryLimit(-1), sys.MemoryOfGroup()) }

// A coldMode says whether a run reads from a disk, and then how.
type coldMode struct {
	on atomic.Bool
	// window is how many files to read together. If descriptors are scarce, it is 0, and
	// stays 0: then no files are read together.
	window    atomic.Int32
	maxWindow int

	windows turns
	// calls are for what one worker waits for alone: the open or the listing of a
	// directory. Each counts as callFiles files.
	calls    turns
	callsNow atomic.Int32 // the pace of calls, unless directories come from the page cache
	oneHead  bool         // one call at a time is best, or was until a few calls ago; guarded by calls.mu
	waitsFor atomic.Int32 // what calls wait for: diskUnknown and so on

	mu sync.Mutex // guards what follows
	// readers are those of the readersMade readers that no worker has. A worker has a
	// reader only while it visits a batch: the worker may be one of many that were started
	// before the cold mode, and end after the batch.
	readers     []content.WindowReader
	readersMade int
	mostReaders int // does not change while workers run; 0: see shared.asksFirst

	// Known before any worker starts.
	cfg  *config
	pool *pool
	dirs *dirCache
	disk listedAhead // nil: results come in order
}

// listedAhead takes the files that workers do not visit right after they have listed
// them. It is a diskOrder.
type listedAhead interface {
	addFiles(n *node, look bool, files []names.Name, inodes []uint64)
	// fitMemory bounds the memory for files in a process that may use limit bytes.
	fitMemory(limit int64)
}

const (
	diskUnknown int32 = iota // no call was slow so far
	diskSlow
	diskNone // what is slow is not a disk: calls may wait in parallel
)

// turns give workers the right to ask a disk for files. Many workers may want it.
type turns struct {
	mu      sync.Mutex // guards what follows
	pace    pace
	pending int           // files that are being read
	waiting []chan<- turn // of workers, in the order in which they came
	wanted  []int         // files that they want
}

// A turn is a worker's right to read so many files. Pending is how many files were being
// read when the turn began, these included, and paced the pace at that time.
type turn struct {
	files, pending int
	paced          pace
}

// begin prepares c for a number of workers, and for windows of at most maxWindow files.
func (c *coldMode) begin(workers, maxWindow int) {
	if knobs.AlwaysCold {
		c.on.Store(true)
		c.waitsFor.Store(diskSlow)
	}
	c.mostReaders = max(workers, maxColdWorkers)
	c.maxWindow = maxWindow
	c.windows.pace = pace{files: pendingFrom}
	c.calls.pace = pace{files: pendingMin}
	c.callsNow.Store(pendingMin)
	c.window.Store(int32(min(c.windows.pace.window(), maxWindow)))
}

// enter turns the cold mode on if that is of use for the directory of entry i of b, and
// gives the queue the entries that no worker has taken. It reports whether the cold mode
// is on. The pin is that of the worker that visits b.
func (c *coldMode) enter(pin *dirPin, b *batch, i int) bool {
	if c.on.Load() {
		return true
	}
	if c.cfg.noRead && (c.disk == nil || !c.cfg.looksAhead()) {
		return false
	}
	d, err := pin.use(c.dirs, b.nodeOf(i))
	if err != nil {
		return false
	}
	onDisk := diskOf(d).Kind != content.NotOnDisk
	pin.idle()
	if !onDisk {
		return false
	}
	c.turnOn()
	c.listAhead(b)
	return true
}

func (c *coldMode) turnOn() {
	if c.disk != nil {
		c.disk.fitMemory(memoryLimit())
	}
	c.on.Store(true)
	c.pool.limitGrowth(maxColdWorkers)
}

// leave turns the cold mode off. The pool stays as small as it is: the files that are
// listed ahead are still read in windows, and later files may wait for a disk again.
func (c *coldMode) leave() {
	if knobs.AlwaysCold {
		return
	}
	c.on.Store(false)
	c.pool.wake() // there may be files that wait for the end of the listing
}

// takes reports whether files like those of b are to be listed ahead. These are the
// files to be looked at, and the files to be read, once hooks.Unchanged, if set, has been
// asked about them.
func (c *coldMode) takes(b *batch) bool {
	return c.disk != nil && c.on.Load() && (c.looksAt(b) || !c.cfg.noRead && (!c.cfg.statFirst || b.stage == stageAsked))
}

// looksAt reports whether the next step of files like those of b is to look at them.
func (c *coldMode) looksAt(b *batch) bool { return c.cfg.looksAhead() && b.stage == stageListed }

// addFiles lists the entries of b ahead, beginning with entry from.
func (c *coldMode) addFiles(b *batch, from int) {
	c.dirs.ref(b.node, len(b.entries)-from)
	c.disk.addFiles(b.node, c.looksAt(b), b.entries[from:], b.inodes[from:])
}

// listAhead gives the entries of b that no worker has taken back to the queue. If it
// returns true, the caller must not visit them.
func (c *coldMode) listAhead(b *batch) bool {
	if b.isWindow() || !c.takes(b) {
		return false
	}
	all := int64(len(b.entries))
	if from := b.next.Swap(all); from < all {
		c.addFiles(b, int(from))
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
func (c *coldMode) await(ctx context.Context, m *latencyMeter, probe *latencyProbe, dir func() directory, call func() (work int, err error)) error {
	disk := c.waitsFor.Load()
	if !probe.isDue(c.pool) && (disk != diskSlow || m.unblocked >= shrinkAfter) {
		_, err := call()
		return err
	}
	var t turn
	if disk != diskNone {
		if t = c.acquireCall(ctx); t.files == 0 {
			return errStopped
		}
	}
	m.waited = 0 // for SelectDir's slot
	start := time.Now()
	work, err := call()
	took := time.Since(start)
	if t.files > 0 {
		c.releaseCall(t, took)
	}
	if !m.blocks(probe, c.pool, took/time.Duration(work)) || err != nil {
		if probe.quick == quickInARow && disk == diskSlow {
			c.listsQuickly()
		}
		return err
	}
	if disk == diskUnknown {
		disk = diskNone
		if diskOf(dir()).Kind != content.NotOnDisk {
			disk = diskSlow
		}
		c.waitsFor.CompareAndSwap(diskUnknown, disk)
	}
	switch {
	case disk != diskSlow:
	case c.disk != nil && c.cfg.looksAhead():
		if !c.on.Load() {
			c.turnOn()
		}
	case !c.cfg.noRead:
		c.pool.limitGrowth(maxColdWorkers)
	}
	c.pool.grow()
	return nil
}

// acquire waits until a window may be read, of at most wanted files. The turn has no
// files when the run is stopped, or when no windows are read.
func (c *coldMode) acquire(ctx context.Context, wanted int) turn {
	return c.windows.acquire(ctx, wanted, &c.window)
}

// release ends a turn whose reads took the time reading.
func (c *coldMode) release(t turn, reading time.Duration) {
	q := &c.windows
	q.mu.Lock()
	defer q.mu.Unlock()
	asked := t.pending
	if q.pace.files <= pendingFew {
		asked = t.files // most of the others may have been read by the time it began
	}
	q.release(t, asked, reading)
	if was := c.window.Load(); was > 0 {
		c.window.CompareAndSwap(was, int32(min(q.pace.window(), c.maxWindow)))
	}
	q.admit(&c.window)
}

// acquireCall waits until a worker may make one call. The turn has no files when the
// run is stopped.
func (c *coldMode) acquireCall(ctx context.Context) turn {
	return c.calls.acquire(ctx, callFiles, nil)
}

// releaseCall ends a turn whose call took the time d.
func (c *coldMode) releaseCall(t turn, d time.Duration) {
	q := &c.calls
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.pace.files == t.paced.files { // it has not changed since
		q.pace = q.pace.nextCall(t.pending, d)
	}
	q.pending -= t.files
	if oneHead := q.pace.files == callFiles || c.oneHead && q.pace.files == 2*callFiles; oneHead != c.oneHead {
		c.oneHead = oneHead
		c.windows.readAlone(oneHead)
	}
	if d > knobs.SlowCall {
		c.callsNow.Store(int32(q.pace.files))
	}
	q.admit(nil)
}

// maxListings returns how many directories may be partly listed, so that directories are
// listed in the order of the disk. While two are listed, either may find directories that
// lie between the two.
func (c *coldMode) maxListings() int {
	if !c.on.Load() || c.waitsFor.Load() != diskSlow {
		return math.MaxInt
	}
	return int(c.callsNow.Load()) / callFiles
}

// listsQuickly is called when directories come from the page cache. The next slow call
// undoes what it does.
func (c *coldMode) listsQuickly() {
	c.callsNow.Store(pendingMost)
	if c.cfg.looksAhead() {
		c.leave()
	}
}

// acquire waits for a turn of at most wanted files. Unless most is nil, the turn has no
// more files than most says.
func (q *turns) acquire(ctx context.Context, wanted int, most *atomic.Int32) turn {
	q.mu.Lock()
	if len(q.waiting) == 0 {
		if t, ok := q.take(wanted, most); ok {
			q.mu.Unlock()
			return t
		}
	}
	mine := make(chan turn, 1) // admit does not wait
	q.waiting, q.wanted = append(q.waiting, mine), append(q.wanted, wanted)
	q.mu.Unlock()
	select {
	case t := <-mine:
		return t
	case <-ctx.Done(): // this ends all other waits too, so it does not matter if mine still gets a turn
		return turn{}
	}
}

// readAlone says whether one window at a time is to be read. It may be called with the
// mutex of calls held, for windows.
func (q *turns) readAlone(alone bool) {
	q.mu.Lock()
	q.pace.alone = alone
	q.mu.Unlock()
}

// release ends a turn, for which the disk was asked for asked files at the same time. Like
// admit and take, it is called with q.mu held.
func (q *turns) release(t turn, asked int, reading time.Duration) {
	if q.pace.files == t.paced.files { // it has not changed since
		q.pace = q.pace.next(asked, reading)
	}
	q.pending -= t.files
}

// admit gives turns to those who wait.
func (q *turns) admit(most *atomic.Int32) {
	for len(q.waiting) > 0 {
		t, ok := q.take(q.wanted[0], most)
		if !ok {
			return
		}
		q.waiting[0] <- t
		q.waiting, q.wanted = q.waiting[1:], q.wanted[1:]
	}
}

// take returns a turn if the disk may be asked for its files now.
func (q *turns) take(wanted int, most *atomic.Int32) (turn, bool) {
	if most != nil {
		wanted = min(wanted, int(most.Load()))
	}
	if q.pending > 0 && q.pending+wanted > q.pace.files {
		return turn{}, false
	}
	q.pending += wanted
	return turn{wanted, q.pending, q.pace}, true
}

// takeReader returns a content.WindowReader that no worker has, or what create returns, or
// nil if there are enough.
func (c *coldMode) takeReader(create func() content.WindowReader) (r content.WindowReader) {
	if c.mostReaders == 0 {
		return nil
	}
	c.mu.Lock()
	k := len(c.readers)
	mayCreate := k == 0 && c.readersMade < c.mostReaders
	switch {
	case k > 0:
		r, c.readers = c.readers[k-1], c.readers[:k-1]
	case mayCreate:
		c.readersMade++
	}
	c.mu.Unlock()
	if mayCreate { // which takes long
		r = create()
	}
	return r
}

// putReader takes back a content.WindowReader for another worker.
func (c *coldMode) putReader(r content.WindowReader) {
	c.mu.Lock()
	c.readers = append(c.readers, r)
	c.mu.Unlock()
}

// close closes all readers, which may take long.
func (c *coldMode) close() {
	if len(c.readers) == 0 {
		return
	}
	var closing sync.WaitGroup
	for _, r := range c.readers {
		closing.Go(r.Close)
	}
	closing.Wait()
}

// A pace says how much a disk is asked for at the same time. A disk that serves one
// request after the other is slow because of all requests together, whoever makes them.
type pace struct {
	files  int  // in all windows that are read at the same time
	slowed bool // a window was slow
	quick  int  // windows in a row that were not
	long   int  // calls in a row that took long
	alone  bool // one window at a time has all the files
}

// next returns the pace after a window that was read in the time reading, while
// pending files were being read, those of the window among them. Many disks are fast where
// files lie side by side and slow elsewhere, so one slow window counts for long.
func (p pace) next(pending int, reading time.Duration) pace {
	switch {
	case reading > longWindow:
		return pace{files: max(pendingMin, p.files/2), slowed: true, alone: p.alone}
	case pending < p.window() || reading*time.Duration(p.files) > longWindow*time.Duration(pending):
		return p // that was little to ask for
	}
	if p.quick++; !p.slowed || p.quick == quickInARow {
		return pace{files: min(2*p.files, pendingMost), slowed: p.slowed, alone: p.alone}
	}
	return p
}

// nextCall returns the pace after a call that took the time d, while calls that count as
// pending files were made. If several calls in a row take long, the disk has one head,
// which moves from one call's place to another's. A call that is alone finds the head
// where the last call left it.
func (p pace) nextCall(pending int, d time.Duration) pace {
	switch {
	case d > longCall:
		if p.long++; p.long == longInARow || p.slowed && p.long == longAgain {
			return pace{files: callFiles, slowed: true}
		}
		return p
	case d <= knobs.SlowCall || d*time.Duration(p.files) > longCall*time.Duration(pending):
		return p // no reason for more
	}
	p.long = 0
	if p.quick++; p.quick == quickInARow {
		return pace{files: min(2*p.files, pendingMost), slowed: p.slowed}
	}
	return p
}

// window returns how many files a window has. Two windows are pending, so that the disk
// has work while files are opened. Where the disk has one head, one window alone is
// pending: the head then goes on behind the last file.
func (p pace) window() int {
	if p.alone {
		return min(max(pendingMin, p.files), content.WindowMax)
	}
	return min(max(pendingMin, p.files/2), content.WindowMax)
}
