package fileproc

import (
	"fmt"
	"hash/crc32"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fileproc/fileproc/internal/backend"
	"github.com/fileproc/fileproc/internal/content"
	"github.com/fileproc/fileproc/internal/descriptors"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/pace"
	"github.com/fileproc/fileproc/internal/replace"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

// A fakeWorker is a worker of a crew.
type fakeWorker struct {
	*crew
	id int
}

func (f fakeWorker) scan(j *job) scanResult    { return f.crew.scan(j.node) }
func (f fakeWorker) visit(b *batch, i int)     { f.crew.visit(f.id, b, i) }
func (f fakeWorker) leave(b *batch, last bool) { f.crew.leave(b, last) }
func (f fakeWorker) idle()                     {}

func (f fakeWorker) halve(b *batch) *batch {
	if half := (&batch{}); b.halve(half) {
		return half
	}
	return nil
}

// A plan is a tree of fake directories, 0 being root. It has the result of each scan of each directory.
type plan [][]bufferful

type bufferful struct {
	files int
	subs  []int
}

func (p plan) files() (n int) {
	for _, dir := range p {
		for _, b := range dir {
			n += b.files
		}
	}
	return n
}

func (p plan) scans() (n int) {
	for _, dir := range p {
		n += len(dir)
	}
	return n
}

// A crew does the fake work of a plan and records it.
type crew struct {
	plan    plan
	pool    *pool
	workers int // the most that may run
	dirs    *diskOrder
	onStep  func(k int)       // begin of the k-th scan or visit, from 0
	onScan  func(dir, at int) // within a scan
	onVisit func(w int)       // within a visit

	mu          sync.Mutex
	steps       int
	at          map[*node]int  // scans of a directory so far
	inHands     map[*node]bool // directories being scanned now
	visited     map[string]int
	returned    int // visits that returned
	left        map[*batch]bool
	found       int
	now, most   int // visits at the same time
	scanning    int
	partway     int // directories whose listing has begun and not ended
	mostPartway int
	overlapped  bool // a scan and a visit went on at the same time
	order       []string
	wrong       []string
}

func newCrew(p plan, workers, listings int) *crew {
	c := &crew{plan: p, workers: workers, at: map[*node]int{}, inHands: map[*node]bool{}, visited: map[string]int{}, left: map[*batch]bool{}}
	c.dirs = &diskOrder{cold: new(coldMode), stack: []*job{jobFor("0", 0)}}
	c.pool = new(pool)
	c.pool.init(c.dirs, func(id int) work { return fakeWorker{c, id} }, workers, workers, listings)
	return c
}

// newColdCrew is newCrew in the cold mode, with windows of at most window entries.
func newColdCrew(p plan, workers, listings, window int) *crew {
	c := newCrew(p, workers, listings)
	c.dirs.cold.setOn(true)
	c.dirs.cold.pace.Init(window)
	return c
}

// run uses a pool as execute does. Worker 0 has a goroutine of its own, which it may end.
func (c *crew) run() {
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		c.pool.runWorker(0)
	}()
	<-returned
	c.pool.wait()
}

func (c *crew) object(format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
}

func (c *crew) step() {
	c.mu.Lock()
	k := c.steps
	c.steps++
	if c.scanning > 0 && c.now > 0 {
		c.overlapped = true
	}
	c.mu.Unlock()
	if c.onStep != nil {
		c.onStep(k)
	}
}

func (c *crew) scan(n *node) scanResult {
	dir, _ := strconv.Atoi(n.name.String())
	c.mu.Lock()
	at := c.at[n]
	c.at[n]++
	if c.inHands[n] {
		c.object("directory %d is scanned twice at a time", dir)
	}
	if at >= len(c.plan[dir]) {
		c.object("directory %d is scanned behind its end", dir)
	}
	c.inHands[n] = true
	c.scanning++
	if at == 0 {
		c.partway++
		c.mostPartway = max(c.mostPartway, c.partway)
	}
	c.order = append(c.order, fmt.Sprintf("%d/%d", dir, at))
	c.mu.Unlock()

	defer func() { // also for a scan that panics
		c.mu.Lock()
		c.scanning--
		delete(c.inHands, n)
		c.mu.Unlock()
	}()
	c.step()
	if c.onScan != nil {
		c.onScan(dir, at)
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	got := c.plan[dir][at]
	var b *batch
	if got.files > 0 {
		b = &batch{node: n}
		for i := range got.files {
			b.entries = append(b.entries, names.New(fmt.Sprintf("%d/%d/%d", dir, at, i)))
		}
		c.found += got.files
		if c.dirs.cold.isOn() {
			c.dirs.addFiles(n, c.toStat(n), b.entries, inodesOf(b.entries))
			b = nil
		}
	}
	r := scanResult{batch: b, state: scanMore}
	for _, s := range got.subs {
		r.subs = append(r.subs, jobFor(strconv.Itoa(s), uint64(s*s%11)))
	}
	if at+1 == len(c.plan[dir]) {
		c.partway--
		r.state = scanDone
	}
	return r
}

// looks says that every third directory has files to be looked at.
func (c *crew) toStat(n *node) bool { return len(n.name.String())%3 == 0 }

// inodesOf gives names numbers in no order.
func inodesOf(entries []names.Name) (inodes []uint64) {
	for _, name := range entries {
		inodes = append(inodes, uint64(crc32.ChecksumIEEE(name.Bytes())))
	}
	return inodes
}

func (c *crew) visit(w int, b *batch, i int) {
	if c.dirs.cold.isOn() && !b.isWindow() { // as worker.listAhead
		if first, end := b.takeAll(); first < end {
			c.dirs.addFiles(b.node, c.toStat(b.node), b.entries[first:end], inodesOf(b.entries[first:end]))
			c.pool.wake()
		}
	}
	c.mu.Lock()
	if w < 0 || w >= c.workers {
		c.object("worker %d of %d", w, c.workers)
	}
	if c.left[b] {
		c.object("visit of a batch that was left for good")
	}
	c.visited[b.entries[i].String()]++
	c.now++
	c.most = max(c.most, c.now)
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.now--
		c.mu.Unlock()
	}()
	c.step()
	if c.onVisit != nil {
		c.onVisit(w)
	}
	c.mu.Lock()
	c.returned++
	c.mu.Unlock()
}

func (c *crew) leave(b *batch, last bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if last && c.left[b] {
		c.object("two workers were the last to leave a batch")
	}
	c.left[b] = c.left[b] || last
}

// requireSound checks what must hold after every end of a pool.
func (c *crew) requireSound(t *testing.T, listings int) {
	t.Helper()
	require.Empty(t, c.wrong)
	for name, n := range c.visited {
		require.Equal(t, 1, n, "visits of %s", name)
	}
	require.LessOrEqual(t, c.most, c.workers, "visits at once")
	require.LessOrEqual(t, c.pool.started, c.workers, "workers")
	require.LessOrEqual(t, c.mostPartway, listings, "directories part-way listed")
	// The ledger, not the pool, decides whether a visit that panicked counts as abandoned.
	ended := c.returned + int(c.pool.abandoned)
	require.Contains(t, []int{ended, ended + len(c.visited) - c.returned}, c.found, "found against visited + abandoned")
	require.Empty(t, c.pool.active, "batches still visited")
	require.Zero(t, c.pool.idle)
	require.EqualValues(t, max(0, c.pool.started-c.pool.workers), c.pool.extra.Load(), "workers above those that run while no calls block")
}

func (c *crew) requireComplete(t *testing.T, listings int) {
	t.Helper()
	c.requireSound(t, listings)
	require.Equal(t, c.plan.files(), len(c.visited), "entries visited")
	require.Equal(t, c.plan.scans(), len(c.order), "scans")
	require.True(t, c.dirs.isEmpty())
	require.Empty(t, c.pool.paused)
	require.Empty(t, c.pool.ready)
	require.Zero(t, c.pool.partly)
	require.Zero(t, c.pool.busy)
}

// oneDirectory is a directory whose scans give these numbers of entries.
func oneDirectory(files ...int) plan {
	var dir []bufferful
	for _, n := range files {
		dir = append(dir, bufferful{files: n})
	}
	return plan{dir}
}

func wide(dirs, files int) plan {
	p := plan{{{}}}
	for i := range dirs {
		p[0][0].subs = append(p[0][0].subs, i+1)
		p = append(p, []bufferful{{files: files}})
	}
	return p
}

func deep(levels, files int) plan {
	var p plan
	for i := range levels {
		p = append(p, []bufferful{{files: files, subs: []int{i + 1}}})
	}
	return append(p, []bufferful{{files: files}})
}

func randomPlan(r *rand.Rand) plan {
	p := make(plan, 1+r.IntN(30))
	for i := range p {
		for range 1 + r.IntN(4) {
			p[i] = append(p[i], bufferful{files: r.IntN(12)})
		}
		if i > 0 {
			above := p[r.IntN(i)]
			b := &above[r.IntN(len(above))]
			b.subs = append(b.subs, i)
		}
	}
	return p
}

func TestPoolVisitsEveryEntryOnce(t *testing.T) {
	plans := map[string]plan{
		"nothing":       {{{}}},
		"one entry":     oneDirectory(1),
		"one directory": oneDirectory(129),
		"many buffers":  oneDirectory(slices.Repeat([]int{7}, 40)...),
		"empty buffers": oneDirectory(0, 3, 0, 0, 5, 0),
		"wide":          wide(100, 3),
		"deep":          deep(100, 1),
		"only empty":    wide(20, 0),
	}
	for seed := range uint64(25) {
		plans[fmt.Sprintf("seed=%d", seed)] = randomPlan(rand.New(rand.NewPCG(seed, 1)))
	}
	for name, p := range plans {
		t.Run(name, func(t *testing.T) {
			for _, workers := range []int{1, 2, 7, 64} {
				for _, listings := range []int{1, 3, 32} {
					for _, mode := range []string{"", "slow", "cold", "slow and cold"} {
						synctest.Test(t, func(t *testing.T) {
							c := newCrew(p, workers, listings)
							if strings.Contains(mode, "cold") {
								c = newColdCrew(p, workers, listings, workers*listings%9)
							}
							if strings.Contains(mode, "slow") { // in fake time, so that goroutines run in ever new orders
								c.onStep = func(k int) { time.Sleep(time.Duration(k*k%5) * time.Millisecond) }
							}
							c.run()
							c.requireComplete(t, listings)
							require.Zero(t, c.pool.abandoned)
						})
					}
				}
			}
		})
	}
}

// A goroutine for one entry would cost a small directory more than the entry.
func TestPoolStartsAWorkerOnlyForMoreWork(t *testing.T) {
	for _, test := range []struct {
		name string
		plan plan
		most int
	}{
		{"nothing", oneDirectory(0), 1},
		{"one entry", oneDirectory(1), 1},
		{"a few entries", oneDirectory(fewEntries), 1},
		{"a chain of directories without entries", deep(50, 0), 1},
		{"a listing that gave nothing, and goes on", oneDirectory(0, 1), 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCrew(test.plan, 8, 8)
				start := time.Now()
				c.run()
				require.Zero(t, time.Since(start), "the wait for a worker that is not needed")
				c.requireComplete(t, 8)
				require.LessOrEqual(t, c.pool.started, test.most)
			})
		})
	}
}

// The memory of a run is used for the next one, which must not see or keep anything of it.
func TestRunIsForgotten(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(root, "file"), []byte("x"), 0o600))
	for range 100 { // under the race detector, a sync.Pool drops some
		require.NoError(t, ForEach(t.Context(), root, Options{}, func(*File) error { return nil }))
		r := runs.Get().(*run)
		require.True(t, reflect.ValueOf(r).Elem().IsZero())
		runs.Put(r)
	}
}

// A second worker has to run before the run can end. Where all processors are busy, it waits for its turn as long as 10 ms for
// each goroutine in front of it.
func TestRunOfNamesStartsNoWorkerForASmallDirectory(t *testing.T) {
	for _, tt := range []struct {
		name string
		opts Options
		few  int
	}{
		{"names", Options{ReadSize: NoRead}, fewNames},
		{"metadata", Options{ReadSize: NoRead, Stat: true}, fewEntries},
		{"content", Options{}, fewEntries},
	} {
		opts := tt.opts
		opts.Workers = 8
		cfg, err := opts.config(".", false)
		require.NoError(t, err)
		require.Equal(t, tt.few, newRun(t.Context(), cfg, opts.callbacks(), nil).pool.few, tt.name)
	}
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(oneDirectory(fewNames), 8, 8)
		c.pool.few = fewNames
		c.run()
		c.requireComplete(t, 8)
		require.Equal(t, 1, c.pool.started)
	})
}

// What a run is made of follows from its options: files that a callback is to be asked about first are not read in windows, and
// those that are read after a look are not looked at again.
func TestRunIsMadeOfItsOptions(t *testing.T) {
	unchanged := hooks{Unchanged: func(*File) bool { return false }}
	for _, tt := range []struct {
		name    string
		opts    Options
		ordered bool
		windows bool
		stage   stage
	}{
		{"content", Options{}, false, true, stageListed},
		{"Select", Options{Select: func(*File) bool { return true }}, false, false, stageListed},
		{"Unchanged", Options{hooks: unchanged}, false, true, stageAsked},
		{"Unchanged in order", Options{hooks: unchanged}, true, false, stageListed},
	} {
		tt.opts.Workers = 2
		cfg, err := tt.opts.config(".", false)
		require.NoError(t, err)
		var order *ordered
		if tt.ordered {
			order = newOrdered(2)
		}
		for _, grows := range []bool{false, true} {
			cfg.mayGrow = grows
			r := newRun(t.Context(), cfg, tt.opts.callbacks(), order)
			require.Equal(t, tt.windows, r.cold.pace.Window() > 0, tt.name)
			if !tt.ordered {
				require.Equal(t, tt.stage, r.disk.readStage, tt.name)
			}
			require.Equal(t, grows, r.pool.maxAside == mostAside)
			require.Equal(t, grows, cap(r.slots) == 2)
			require.Equal(t, grows, r.pool.maxWorkers > 2)
			require.Zero(t, r.pool.level)
		}
	}
	require.NoError(t, (&Options{Workers: workersLimit}).validate("."))
}

// Where a worker reads ahead, and what: content only if no callback is to be asked about each file first, no metadata is to be that of
// the handle, and what is read says whether a file is binary; metadata alone if nothing else is wanted, or it decides.
func TestWhereWorkersReadAhead(t *testing.T) {
	asked := callbacks{selectFile: func(*File) bool { return true }}
	for _, tt := range []struct {
		name        string
		config      config
		calls       callbacks
		ordered     bool
		ahead, look bool
	}{
		{"content", config{}, callbacks{}, false, true, false},
		{"names", config{noRead: true}, callbacks{}, false, false, false},
		{"content and metadata", config{stat: true}, callbacks{}, false, false, false},
		{"metadata", config{noRead: true, stat: true}, callbacks{}, false, false, true},
		{"Select", config{}, asked, false, false, false},
		{"Select, metadata", config{noRead: true, stat: true}, asked, false, false, false},
		{"Unchanged", config{statFirst: true}, callbacks{}, false, true, true},
		{"Unchanged in order", config{statFirst: true}, callbacks{}, true, false, true},
		{"Unchanged, no content", config{statFirst: true, noRead: true}, callbacks{}, false, false, true},
		{"a prefix", config{truncate: true, readLimit: 100}, callbacks{}, false, true, false},
		{"no binary files", config{skipBinary: true, readLimit: -1}, callbacks{}, false, true, false},
		{"no large files, nor binary ones", config{skipBinary: true, readLimit: 100}, callbacks{}, false, true, false},
		{"a short prefix of what is not binary", config{skipBinary: true, truncate: true, readLimit: content.BinaryPrefix - 1}, callbacks{}, false, false, false},
		{"a long prefix of what is not binary", config{skipBinary: true, truncate: true, readLimit: content.BinaryPrefix}, callbacks{}, false, true, false},
	} {
		for _, ring := range []bool{false, true} {
			tt.config.workers, tt.config.mayGrow, tt.config.noURing = 2, true, !ring
			var order *ordered
			if tt.ordered {
				order = newOrdered(2)
			}
			r := newRun(t.Context(), tt.config, tt.calls, order)
			for id := range 3 {
				w := r.startWorker(id)
				requireFetches(t, tt.ahead && id < 2, &w.content, "%s, worker %d", tt.name, id)
				requireFetches(t, tt.look && id < 2, &w.metadata, "%s, worker %d", tt.name, id)
				require.Equal(t, content.Groups{Limit: tt.config.readLimit, NeedsStat: tt.config.statFirst, Wait: content.AheadFrom, NoRing: !ring}, w.content.groups)
				require.Equal(t, content.Groups{StatOnly: true, Birth: tt.config.statFirst, Wait: content.AheadFrom, NoRing: true}, w.metadata.groups)
				require.Equal(t, map[bool]int{false: noSlot, true: id}[id < 2], w.slot, "a worker of many has none of its own")
				require.Equal(t, 1, w.latency.reads.untimed)
				require.Equal(t, id == 0, w.latency.lists.untimed == 1)
				require.Equal(t, r.cfg.want(), w.reader.Want)
				require.False(t, w.reader.Stopped())
				require.Same(t, w, r.startWorker(id), "it goes on with what it had")
				w.retire()
			}
		}
	}
}

// requireFetches wants groups, or files one by one.
func requireFetches(t *testing.T, groups bool, a *fetched, message string, args ...any) {
	t.Helper()
	var want content.Fetcher = content.Alone{}
	if groups {
		want = &a.groups
	}
	require.Equal(t, want, a.warm, append([]any{message}, args...)...)
}

// What has been fetched of a batch is had from its first entry to its last, until it is forgotten.
func TestFetchedHasItsEntries(t *testing.T) {
	var a fetched
	require.False(t, a.has(0))
	a.by, a.first, a.end = content.Alone{}, 7, 10
	for i := range 20 {
		require.Equal(t, 7 <= i && i < 10, a.has(i), i)
	}
	a.forget()
	require.False(t, a.has(0) || a.has(7))
	ok, _ := a.get(7, nil)
	require.False(t, ok)
}

// Content is fetched in windows in the cold mode, and what was listed ahead after it; one by one where there are none, or no more;
// and in groups otherwise.
func TestHowContentIsFetched(t *testing.T) {
	for _, there := range []bool{false, true} {
		made := 0
		testtree.Set(t, &newWindow, func(content.Want, bool, *pace.Disk) *content.Window {
			if made++; there {
				return new(content.Window)
			}
			return nil
		})
		r := newRun(t.Context(), config{workers: 1}, callbacks{}, nil)
		w := r.startWorker(0)
		require.Equal(t, content.Fetcher(&w.content.groups), w.contentFetcher(false))
		require.Zero(t, made)
		for range 2 {
			got := w.contentFetcher(true)
			if there {
				require.Equal(t, content.Fetcher(w.window), got)
				require.Equal(t, 1, made)
			} else {
				require.Equal(t, content.Fetcher(content.Alone{}), got)
			}
		}
		r.cold.pace.LimitWindows(0)
		require.Equal(t, content.Fetcher(content.Alone{}), w.contentFetcher(true))
		require.Equal(t, content.Fetcher(&w.content.groups), w.contentFetcher(false))
	}
}

// A slot is waited for until one is free or the run is stopped, and given back only where there are more workers than slots.
func TestSlots(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRun(t.Context(), config{workers: 1, mayGrow: true}, callbacks{}, nil)
		a, b := r.startWorker(0), r.startWorker(1)
		defer a.retire()
		defer b.retire()
		a.releaseSlot()
		require.Zero(t, a.slot, "nobody else could use it")
		r.pool.extra.Store(1)
		require.False(t, b.tryAcquireSlot())
		go func() {
			time.Sleep(time.Second)
			a.releaseSlot()
			a.releaseSlot() // it has none any more
		}()
		require.True(t, b.acquireSlot())
		synctest.Wait()
		require.Equal(t, time.Second, b.latency.waited)
		require.Zero(t, b.slot)
		require.Equal(t, noSlot, a.slot)
		require.True(t, b.acquireSlot())
		require.Equal(t, time.Second, b.latency.waited, "it had one")
		time.AfterFunc(time.Second, func() { r.stop(errBroken) })
		require.False(t, a.acquireSlot())
		require.Equal(t, time.Second, a.latency.waited)
		require.Equal(t, noSlot, a.slot)
	})
}

// A groupDir has files that become durable together.
type groupDir struct{ backend.Directory }

func (d groupDir) OpenDir(names.Name) (backend.Directory, error) { return d, nil }
func (groupDir) Prepare(names.Name, []byte, replace.Check) (p replace.Pending, err error) {
	return p, nil
}
func (groupDir) Commit(_ replace.Pending, failed error) error { return failed }
func (groupDir) OpenSync() (backend.Syncer, error)            { return groupDir{}, nil }
func (groupDir) Identity() (backend.Identity, error)          { return backend.ByPath{}, nil }
func (groupDir) Sync() error                                  { return nil }
func (groupDir) Close()                                       {}

// A worker that was one too many may have files that wait. While others keep the slots, their results are delivered all the same.
func TestSettleWithoutSlot(t *testing.T) {
	r := newRun(t.Context(), config{workers: 1, mayGrow: true}, callbacks{}, nil)
	a, b := r.startWorker(0), r.startWorker(1)
	defer a.retire()
	defer b.retire()
	got := newCollector[string](1)
	g := b.groups.For(groupDir{})
	n := &node{}
	p, err := g.Prepare(groupDir{}, n, names.New("f"), nil, nil)
	require.NoError(t, err)
	g.Add(&prepared{Waiting: p, node: n, group: g, deliver: got.later("result")}, 0)
	require.Equal(t, noSlot, b.slot)
	r.settleGroups(nil)
	require.Equal(t, []string{"result"}, got.all())
}

// What fn returns is counted as one thing: a stop of the run makes only the error of that stop no failure, and what is unchanged is so
// unless fn fails.
func TestOutcomeOfACall(t *testing.T) {
	stopped := fmt.Errorf("read: %w", errStopped)
	for _, tt := range []struct {
		name      string
		err       error
		unchanged bool
		stops     bool // the run, while fn runs
		want      counts
		ends      bool
	}{
		{name: "a result", want: counts{processed: 1}},
		{name: "unchanged", unchanged: true, want: counts{unchanged: 1}},
		{name: "unchanged and skipped", err: fmt.Errorf("%w", ErrSkip), unchanged: true, want: counts{unchanged: 1}},
		{name: "unchanged and a failure", err: errBroken, unchanged: true, want: counts{failed: 1}},
		{name: "a failure", err: errBroken, want: counts{failed: 1}},
		{name: "a failure when the run is stopped", err: errBroken, stops: true, want: counts{failed: 1}, ends: true},
		{name: "the stop", err: stopped, stops: true, want: counts{abandoned: 1}, ends: true},
		{name: "the stop of another run", err: stopped, want: counts{failed: 1}},
		{name: "a result when the run is stopped", stops: true, want: counts{processed: 1}, ends: true},
		{name: "a result and the end", err: &resultError{error: fs.SkipAll}, want: counts{processed: 1}, ends: true},
		{name: "a result and a failure", err: &resultError{error: errBroken}, want: counts{failed: 1}},
	} {
		r := newRun(t.Context(), config{workers: 1}, callbacks{}, nil)
		var got error
		r.failures.onError = func(err error) error { got = err; return nil }
		r.calls.onError = r.failures.onError
		r.calls.fn = func(*File) error {
			if tt.stops {
				r.stop(errEnough)
			}
			return tt.err
		}
		w := r.startWorker(0)
		w.call(&File{w: &w.access, node: r.root, name: names.New("f"), unchanged: tt.unchanged})
		require.Equal(t, tt.want, w.counts, tt.name)
		require.Equal(t, tt.ends, r.stopped(), tt.name)
		require.Equal(t, tt.want.failed > 0, got != nil, tt.name)
		w.retire()
	}
	r := newRun(t.Context(), config{workers: 1, mayGrow: true}, callbacks{}, nil)
	w := r.startWorker(1) // which has no slot
	r.stop(errBroken)
	w.call(&File{w: &w.access, node: r.root})
	require.Equal(t, counts{abandoned: 1}, w.counts, "it is not called")
	w.retire()
	r = newRun(t.Context(), config{workers: 1, mayGrow: true, statFirst: true}, callbacks{unchanged: func(*File) bool { panic("without a slot") }}, nil)
	w = r.startWorker(1)
	r.stop(errBroken)
	require.False(t, w.ask(&File{w: &w.access, node: r.root, content: content.Content{HasStat: true}}, &batch{}, 0))
	require.Equal(t, counts{abandoned: 1}, w.counts)
	w.retire()
}

// The File of a worker keeps nothing of the file before.
func TestFileReset(t *testing.T) {
	var f File
	var fill func(v reflect.Value)
	fill = func(v reflect.Value) {
		v = reflect.NewAt(v.Type(), v.Addr().UnsafePointer()).Elem() // which may be set, though the field is not exported
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				fill(v.Field(i))
			}
		case reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		case reflect.Bool:
			v.SetBool(true)
		default:
			v.Set(reflect.ValueOf(1).Convert(v.Type()))
		}
	}
	fill(reflect.ValueOf(&f).Elem())
	f.reset(nil, nil, names.Name{})
	require.Equal(t, File{}, f)
}

// The level of a run counts only where descriptors are few and other runs are under way.
func TestLevelOfARun(t *testing.T) {
	defer descriptors.RunsOpen.Store(descriptors.RunsOpen.Load())
	for _, few := range []bool{false, true} {
		for _, runs := range []int64{0, 1} {
			for depth := range descriptors.Levels + 2 {
				testtree.Set(t, &descriptors.Limit, func() uint64 { return map[bool]uint64{false: 1 << 20, true: 256}[few] })
				descriptors.RunsOpen.Store(runs)
				level := -1
				descriptors.Within(depth, func() { level = newRun(t.Context(), config{workers: 1}, callbacks{}, nil).pool.level })
				want := 0
				if few && runs > 0 {
					want = min(depth+1, descriptors.Levels-1)
				}
				require.Equal(t, want, level, "few: %v, %d runs, depth %d", few, runs, depth)
			}
		}
	}
}

func TestPoolSpreadsSlowVisits(t *testing.T) {
	const visit = 10 * time.Millisecond
	for _, test := range []struct {
		name    string
		plan    plan
		workers int
		rounds  int // of simultaneous visits
	}{
		{"100 entries on 32 workers", oneDirectory(100), 32, 4},
		{"3 entries on 3 workers", oneDirectory(3), 3, 1},
		{"2 entries on 8 workers", oneDirectory(2), 8, 1},
		{"as many entries as workers", oneDirectory(64), 64, 1},
		{"one entry more than workers", oneDirectory(65), 64, 2},
		{"40 directories of one entry", wide(40, 1), 40, 1},
		{"40 directories of two entries", wide(40, 2), 80, 1},
		{"many buffers", oneDirectory(1, 1, 1, 1, 1, 1, 1, 1), 8, 1},
		{"one worker", oneDirectory(5), 1, 5},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCrew(test.plan, test.workers, 64)
				c.onVisit = func(int) { time.Sleep(visit) }
				start := time.Now()
				c.run()
				require.Equal(t, time.Duration(test.rounds)*visit, time.Since(start).Truncate(time.Millisecond))
				c.requireComplete(t, 64)
			})
		})
	}
}

// One entry of a batch is work for one more worker even if the other workers take something else first.
func TestPoolSpreadsTheLastEntriesOfBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const visit = 10 * time.Millisecond
		c := newCrew(plan{{{files: 2, subs: []int{1}}}, {{files: 1}}}, 8, 8)
		// Worker 0 has taken one of root's two entries before worker 1 has found the directory.
		c.onScan = func(int, int) { time.Sleep(time.Millisecond) }
		c.onVisit = func(int) { time.Sleep(visit) }
		start := time.Now()
		c.run()
		c.requireComplete(t, 8)
		require.LessOrEqual(t, time.Since(start), visit+2*time.Millisecond)
	})
}

// A worker beyond p.workers that is woken when it may no longer work wakes another one.
func TestPoolDismissedWorkerWakesAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const visit = 10 * time.Millisecond
		c := newCrew(plan{{{files: 3, subs: []int{1}}}, {{files: 2}}}, 2, 8)
		c.pool.maxWorkers, c.pool.limit = 4, 4 // as where calls block
		// Worker 1 lists the directory until all others wait, those above p.workers longer than worker 0.
		c.onScan = func(dir, _ int) {
			if dir == 1 {
				time.Sleep(time.Second)
				c.pool.mu.Lock()
				idle := c.pool.idle
				c.pool.mu.Unlock()
				require.Equal(t, 3, idle)
				c.pool.disableGrowth()
			}
		}
		numbers := map[int]int{}
		c.onVisit = func(w int) {
			c.mu.Lock()
			numbers[w]++
			c.mu.Unlock()
			if time.Sleep(visit); w == 0 {
				time.Sleep(visit)
			}
		}
		start := time.Now()
		c.run()
		require.Equal(t, map[int]int{0: 2, 1: 1, 2: 1, 3: 1}, numbers)
		require.Equal(t, time.Second+2*visit, time.Since(start).Truncate(time.Millisecond))
		require.Equal(t, 5, len(c.visited))
	})
}

// In the cold mode all is listed before the first visit, and then visits spread as ever.
func TestPoolListsAheadInTheColdMode(t *testing.T) {
	for _, window := range []int{0, 1, 5, 128} {
		synctest.Test(t, func(t *testing.T) {
			const visit = 10 * time.Millisecond
			c := newColdCrew(wide(12, 5), 4, 3, window)
			c.onScan = func(int, int) { time.Sleep(time.Millisecond) }
			c.onVisit = func(int) {
				c.mu.Lock()
				scans := len(c.order)
				c.mu.Unlock()
				require.Equal(t, c.plan.scans(), scans)
				time.Sleep(visit)
			}
			start := time.Now()
			c.run()
			c.requireComplete(t, 3)
			require.Equal(t, 4, c.most)
			require.Equal(t, (5+15*10)*time.Millisecond, time.Since(start).Truncate(time.Millisecond))
		})
	}
}

// A full queue is emptied before the listings that go on give it more.
func TestPoolEmptiesAFullQueue(t *testing.T) {
	boundListedAhead(t, 2000)
	for _, workers := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			c := newColdCrew(oneDirectory(slices.Repeat([]int{9}, 60)...), workers, 4, 5)
			most := 0
			c.onStep = func(int) {
				c.dirs.mu.Lock()
				most = max(most, c.dirs.toStat.count+c.dirs.toRead.count)
				c.dirs.mu.Unlock()
				time.Sleep(time.Millisecond)
			}
			c.run()
			c.requireComplete(t, 4)
			require.Greater(t, most, 20)
			require.Less(t, most, 60, "of 540")
		})
	}
}

func TestPoolListsWhileOthersVisit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const buffers = 50
		c := newCrew(oneDirectory(slices.Repeat([]int{1}, buffers)...), 2, 1)
		c.onScan = func(int, int) { time.Sleep(time.Millisecond) }
		c.onVisit = func(int) { time.Sleep(time.Millisecond) }
		start := time.Now()
		c.run()
		c.requireComplete(t, 1)
		require.True(t, c.overlapped)
		// Two workers share 50 scans and 50 visits; only at the ends has one of them nothing to do.
		require.LessOrEqual(t, time.Since(start), (buffers+2)*time.Millisecond)
	})
}

// The order bounds handles and memory: listings under way are ended first, the rest is depth-first.
func TestPoolOrder(t *testing.T) {
	c := newCrew(plan{
		{{subs: []int{1}}, {}, {subs: []int{2, 3}}},
		{{}},
		{{}},
		{{subs: []int{4}}, {subs: []int{5}}},
		{{}},
		{{}},
	}, 1, 8)
	c.run()
	require.Equal(t, []string{"0/0", "0/1", "0/2", "3/0", "3/1", "5/0", "4/0", "2/0", "1/0"}, c.order)
}

func TestPoolStopBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(oneDirectory(5, 5), 4, 4)
		c.pool.stop()
		c.run()
		c.requireSound(t, 4)
		require.Zero(t, c.steps)
	})
}

// stepPlans are small enough to interfere with each of their steps.
var stepPlans = map[string]plan{
	"flat":   oneDirectory(6, 6, 6),
	"nested": {{{files: 3, subs: []int{1, 2}}, {files: 2}}, {{files: 4}, {files: 1, subs: []int{3}}}, {{files: 1}}, {{files: 5}}},
}

func everyStep(t *testing.T, test func(t *testing.T, c *crew, k, workers int)) {
	for name, p := range stepPlans {
		for _, workers := range []int{1, 4} {
			t.Run(fmt.Sprintf("%s/workers=%d", name, workers), func(t *testing.T) {
				for k := range p.files() + p.scans() {
					synctest.Test(t, func(t *testing.T) { test(t, newCrew(p, workers, 2), k, workers) })
				}
			})
			t.Run(fmt.Sprintf("%s/workers=%d/cold", name, workers), func(t *testing.T) {
				for k := range p.files() + p.scans() {
					synctest.Test(t, func(t *testing.T) { test(t, newColdCrew(p, workers, 2, 4), k, workers) })
				}
			})
		}
	}
}

func TestPoolStopAtEachStep(t *testing.T) {
	everyStep(t, func(t *testing.T, c *crew, k, workers int) {
		var stopped time.Time
		var late int
		c.onStep = func(i int) {
			c.mu.Lock()
			if !stopped.IsZero() && time.Now().After(stopped) {
				late++
			}
			c.mu.Unlock()
			if i == k {
				c.pool.stop()
				c.mu.Lock()
				stopped = time.Now()
				c.mu.Unlock()
			}
			time.Sleep(time.Millisecond)
		}
		c.run()
		c.requireSound(t, 2)
		require.Zero(t, late, "steps that began after the stop")
		require.Equal(t, time.Millisecond, time.Since(stopped), "the steps under way, and nothing more")
		if workers == 1 {
			require.Equal(t, k+1, c.steps)
		}
	})
}

func TestPoolStopWhileOthersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(oneDirectory(4), 4, 4)
		c.onStep = func(k int) {
			if k == 1 { // the first visit
				time.Sleep(time.Hour)
			}
		}
		ended := make(chan struct{})
		go func() { c.run(); close(ended) }()
		time.Sleep(time.Second)
		synctest.Wait()
		require.Positive(t, c.pool.idle, "this tests nothing unless workers wait")
		require.Equal(t, c.pool.started-1, c.pool.idle)
		c.pool.stop()
		synctest.Wait()
		require.Zero(t, c.pool.idle, "workers that still wait")
		<-ended
		c.requireSound(t, 4)
	})
}

func TestPoolPanicAtEachStep(t *testing.T) {
	everyStep(t, func(t *testing.T, c *crew, k, _ int) {
		c.onStep = func(i int) {
			time.Sleep(time.Millisecond)
			if i == k {
				panic("at this step")
			}
		}
		c.run()
		require.NotNil(t, c.pool.panicked)
		require.Equal(t, "at this step", c.pool.panicked.Value)
		require.Contains(t, string(c.pool.panicked.Stack), "TestPoolPanicAtEachStep", "the stack of the panic itself")
		require.False(t, c.pool.exited)
		c.requireSound(t, 2)
	})
}

func TestPoolPanicOfEveryWorkerKeepsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(oneDirectory(8), 8, 1)
		c.onVisit = func(w int) {
			time.Sleep(time.Duration(1+w) * time.Millisecond)
			panic(w)
		}
		c.run()
		require.Zero(t, c.pool.panicked.Value) // the first
		c.requireSound(t, 1)
	})
}

func TestPoolGoexitAtEachStep(t *testing.T) {
	everyStep(t, func(t *testing.T, c *crew, k, _ int) {
		c.onStep = func(i int) {
			time.Sleep(time.Millisecond)
			if i == k {
				runtime.Goexit()
			}
		}
		c.run()
		require.True(t, c.pool.exited)
		require.Nil(t, c.pool.panicked)
		c.requireSound(t, 2)
	})
}

func TestPoolDrain(t *testing.T) {
	var many plan
	for range 6 {
		many = append(many, []bufferful{{files: 2}, {files: 1}, {files: 3}})
	}
	many[0][0].subs = []int{1, 2, 3}
	many[2][1].subs = []int{4}
	many[4][2].subs = []int{5}
	for _, workers := range []int{1, 3, 16} {
		for k := range 2 * many.files() {
			synctest.Test(t, func(t *testing.T) {
				c := newCrew(many, workers, 8)
				if k >= many.files() {
					k -= many.files()
					c = newColdCrew(many, workers, 8, 3)
				}
				visits := 0
				c.onVisit = func(w int) {
					c.mu.Lock()
					visits++
					mine := visits == k+1
					c.mu.Unlock()
					if !mine {
						time.Sleep(time.Millisecond)
						return
					}
					c.pool.drain(fakeWorker{c, w})
					if workers == 1 { // no other worker can have begun a listing meanwhile
						require.Empty(t, c.pool.paused, "still part-way listed after drain")
						require.Zero(t, c.pool.partly)
					}
				}
				c.run()
				c.requireComplete(t, 8)
			})
		}
	}
}

// What drain lists is for others: its own worker may then wait for long.
func TestPoolDrainWakesOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(plan{{{subs: []int{1, 2}}}, {{files: 1}, {files: 5}}, {{files: 1}}}, 2, 8)
		c.onScan = func(_, at int) { time.Sleep(time.Duration(1+1000*at) * time.Millisecond) } // the second of a directory outlasts all visits
		visits := 0
		c.onVisit = func(w int) {
			time.Sleep(time.Millisecond)
			c.mu.Lock()
			visits++
			first := visits == 1
			c.mu.Unlock()
			if first {
				c.pool.drain(fakeWorker{c, w})
				time.Sleep(time.Second)
				c.mu.Lock()
				defer c.mu.Unlock()
				require.Len(t, c.visited, 7)
			}
		}
		c.run()
		c.requireComplete(t, 8)
	})
}

func TestPoolDrainOfAStoppedPoolListsNothing(t *testing.T) {
	c := newCrew(oneDirectory(1, 1, 1), 1, 1)
	c.onVisit = func(w int) {
		c.pool.stop()
		c.pool.drain(fakeWorker{c, w})
	}
	c.run()
	c.requireSound(t, 1)
	require.Len(t, c.order, 1)
}

// Entries that drain found and no worker has begun to visit are abandoned too.
func TestPoolStopAfterDrain(t *testing.T) {
	c := newCrew(oneDirectory(1, 5, 5), 1, 1)
	c.onVisit = func(w int) {
		c.pool.drain(fakeWorker{c, w})
		c.pool.stop()
	}
	c.run()
	c.requireSound(t, 1)
	require.EqualValues(t, 10, c.pool.abandoned)
	c.pool.wait() // a second wait finds nothing to do
	require.EqualValues(t, 10, c.pool.abandoned)
}

// FuzzPool takes from the input a tree, the size of the pool, and what happens at each step: how long it lasts, in fake time,
// and whether the pool is stopped, grows, shrinks, is drained or meets a panic there.
func FuzzPool(f *testing.F) {
	for seed := range byte(8) {
		f.Add([]byte{seed, 7 * seed, 31 * seed, 3, 1, 4, 1, 5, 9, 2, 6, seed})
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		synctest.Test(t, func(t *testing.T) { runScript(t, testtree.Script(data)) })
	})
}

func runScript(t *testing.T, r *rand.Rand) {
	p := randomPlan(r)
	workers, listings := 1+r.IntN(8), 1+r.IntN(8)
	c := newCrew(p, workers, listings)
	if r.IntN(2) == 1 {
		c = newColdCrew(p, workers, listings, r.IntN(12))
	}
	if r.IntN(4) == 0 {
		boundListedAhead(t, 500+100*r.IntN(16))
	}
	c.workers += r.IntN(9) // more of them while calls block
	c.pool.maxWorkers, c.pool.maxGrown = c.workers, c.workers
	late := r.IntN(4)
	c.pool.late = func() []*job {
		if late == 0 {
			return nil
		}
		late--
		dir := len(c.plan) // a directory that nobody knew of
		c.mu.Lock()
		c.plan = append(c.plan, []bufferful{{files: late}})
		c.mu.Unlock()
		return []*job{jobFor(strconv.Itoa(dir), 0)}
	}
	end := ""
	c.onStep = func(k int) {
		c.mu.Lock() // r and end are shared
		pause, event := r.IntN(6), r.IntN(48)
		if end != "" && event < 3 {
			event = 3
		}
		if event < 3 {
			end = []string{"stop", "panic", "exit"}[event]
		}
		c.mu.Unlock()
		time.Sleep(time.Duration(pause)*time.Millisecond + time.Duration(k)) // no two end at once, so a script repeats itself
		switch event {
		case 0:
			c.pool.stop()
		case 1:
			panic("at this step")
		case 2:
			runtime.Goexit()
		case 3:
			c.pool.grow()
		case 4:
			c.pool.shrink()
		case 5:
			c.pool.limitGrowth(1 + pause)
		case 6:
			c.pool.disableGrowth()
		case 7:
			c.pool.wake()
		case 8:
			c.pool.wakeAll()
		}
	}
	c.onVisit = func(w int) {
		c.mu.Lock()
		drains := r.IntN(24) == 0
		c.mu.Unlock()
		if drains {
			c.pool.drain(fakeWorker{c, w})
		}
	}
	c.run()
	switch end {
	case "":
		c.requireComplete(t, listings)
		require.Zero(t, c.pool.abandoned)
		require.Zero(t, late, "directories that came late")
	case "panic":
		require.NotNil(t, c.pool.panicked)
		c.requireSound(t, listings)
	default:
		require.Nil(t, c.pool.panicked)
		require.Equal(t, end == "exit", c.pool.exited)
		c.requireSound(t, listings)
	}
}

// TestPoolStartsNobodyAfterAStop: the loop over an ordered Stream wakes workers, and may come too late.
func TestPoolStartsNobodyAfterAStop(t *testing.T) {
	q := newOrdered(2)
	p := new(pool)
	p.init(q, nil, 2, 2, 9)
	q.begin([]*job{jobFor("", 0)}, p.wake)
	p.begun = true // worker 0, which has taken nothing
	p.stop()
	p.wake()
	require.Equal(t, 1, p.started)
}

// Much is left if a directory takes more than one scan, or from some batches and directories on.
func TestPoolHasMuch(t *testing.T) {
	for _, tt := range []struct {
		paused, ready, dirs int
		much                bool
	}{{0, 0, 0, false}, {1, 0, 0, true}, {0, muchLeft - 1, 0, false}, {0, muchLeft, 0, true}, {0, 0, muchLeft - 1, false}, {0, 0, muchLeft, true}, {0, 1, muchLeft - 1, true}} {
		c := newCrew(oneDirectory(1), 2, 100)
		c.dirs.stack = make([]*job, tt.dirs)
		c.pool.paused, c.pool.ready = make([]*job, tt.paused), make([]*batch, tt.ready)
		require.Equal(t, tt.much, c.pool.hasMuch(), "%+v", tt)
	}
}

// A part is wanted for a worker that waits, or may be started, if nothing else is left and few jobs are partly listed.
func TestPoolWantsPart(t *testing.T) {
	for _, tt := range []struct {
		idle, started, partly, most int
		mayStart                    bool
		paused, dirs                int
		want                        bool
	}{
		{1, 2, 1, 100, false, 0, 0, true},
		{0, 2, 1, 100, false, 0, 0, false},
		{0, 2, 1, 100, true, 0, 0, false},
		{0, 1, 1, 100, true, 0, 0, true},
		{0, 1, 1, 100, false, 0, 0, false},
		{1, 2, 1, 100, false, 1, 0, false},
		{1, 2, 1, 100, false, 0, 1, false},
		{1, 2, 2, 2, false, 0, 0, false},
		{1, 2, 1, 2, false, 0, 0, true},
		{1, 2, 3, 100, false, 0, 0, false},
	} {
		c := newCrew(oneDirectory(1), 2, 3)
		c.pool.idle, c.pool.started, c.pool.partly = tt.idle, tt.started, tt.partly
		c.dirs.stack, c.pool.paused = make([]*job, tt.dirs), make([]*job, tt.paused)
		require.Equal(t, tt.want, c.pool.wantsPart(tt.most, tt.mayStart), "%+v", tt)
	}
}

// Workers take new directories before they join in visiting a batch, but for those in the place of others, and join where most is
// left. Whoever visits it learns of that.
func TestPoolJoins(t *testing.T) {
	for _, aside := range []int{0, 1} {
		c := newCrew(oneDirectory(1), 2, 8)
		p, most, less := c.pool, batchOf(3), batchOf(2)
		p.aside = aside
		for _, b := range []*batch{less, most, batchOf(0)} {
			p.activate(b)
		}
		b, n := p.pick(fakeWorker{c, 1})
		require.Equal(t, aside > 0, n == nil)
		if n != nil {
			b, n = p.pick(fakeWorker{c, 1})
			require.Nil(t, n)
		}
		require.Same(t, most, b)
		require.Equal(t, 2, b.users)
		require.True(t, b.joined.Load())
		require.False(t, less.joined.Load())
	}
	c := newCrew(oneDirectory(1), 2, 8)
	c.pool.aside = 1
	_, n := c.pool.pick(fakeWorker{c, 1})
	require.NotNil(t, n, "there is no batch to join")
	require.Equal(t, 1, c.pool.partly)
	b, n := c.pool.pick(fakeWorker{c, 1})
	require.True(t, b == nil && n == nil)
	require.Equal(t, 1, c.pool.partly)
}

// A worker that joins where much is left gets a half, of which nobody learns.
func TestPoolHalves(t *testing.T) {
	c := newCrew(oneDirectory(1), 2, 8)
	c.dirs.stack = nil
	b := batchOf(2 * content.AheadFrom)
	c.pool.activate(b)
	half, _ := c.pool.pick(fakeWorker{c, 1})
	require.NotSame(t, b, half)
	require.Equal(t, []*batch{b, half}, c.pool.active)
	for _, each := range c.pool.active {
		require.Equal(t, content.AheadFrom, each.left())
		require.Equal(t, 1, each.users)
		require.False(t, each.joined.Load())
	}
}

// One worker is woken or started for what is left beside the caller's own. The second of all starts at once if that is much, and
// later if it is a few entries.
func TestPoolWakesForWhatIsLeft(t *testing.T) {
	for _, tt := range []struct {
		name           string
		own            *batch
		ready, started int
		starts, delays bool
	}{
		{"nothing", nil, 0, 1, false, false},
		{"another batch", nil, 1, 1, true, false},
		{"the caller's own entry", batchOf(1), 0, 1, false, false},
		{"one entry more", batchOf(2), 0, 1, false, true},
		{"a few entries more", batchOf(fewEntries), 0, 1, false, true},
		{"many entries more", batchOf(fewEntries + 1), 0, 1, true, false},
		{"one entry more, for a third worker", batchOf(2), 0, 2, true, false},
		{"another batch beside one entry", batchOf(1), 1, 1, true, false},
		{"as many workers as there may be", batchOf(9), 1, 3, false, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newCrew(oneDirectory(1), 3, 8)
			var started atomic.Int32
			c.dirs.stack = nil
			p := c.pool
			p.start = func(id int) work {
				started.Add(1)
				require.Equal(t, tt.started, id)
				p.stop()
				return fakeWorker{c, id}
			}
			p.started = tt.started
			if tt.own != nil {
				p.activate(tt.own)
			}
			p.ready = slices.Repeat([]*batch{batchOf(1)}, tt.ready)
			p.mu.Lock()
			p.wakeOne(tt.own, 0)
			require.Equal(t, tt.delays, p.delayed != nil, tt.name)
			p.mu.Unlock()
			synctest.Wait()
			require.Equal(t, tt.starts, started.Load() == 1, tt.name)
			time.Sleep(headStart)
			synctest.Wait()
			require.Equal(t, tt.starts || tt.delays, started.Load() == 1, tt.name)
			require.Nil(t, p.delayed)
			p.wait()
		})
	}
}

// Where calls block no longer, the workers above p.workers are dismissed, while others find work, and nobody else is: worker 0 is
// the caller. So from then on each worker keeps its slot again.
func TestPoolDismissesOnlyExtraWorkers(t *testing.T) {
	c := newCrew(oneDirectory(1), 2, 8)
	p := c.pool
	p.ready = []*batch{{entries: make([]names.Name, 1)}, {entries: make([]names.Name, 1)}, {entries: make([]names.Name, 1)}}
	p.started, p.busy, p.maxWorkers = 6, 6, 6
	p.extra.Store(4)
	next := func(id int) bool {
		b, n := p.next(id, fakeWorker{c, id})
		return b != nil || n != nil
	}
	p.aside = 1 // one of those that wait so long that another runs in its place
	require.True(t, next(0))
	require.False(t, next(5))
	require.True(t, next(1))
	require.False(t, next(2), "the first that is not one of p.workers")
	require.False(t, next(4))
	require.True(t, next(3), "there may be as many as that")
	p.aside = 0
	p.busy = 1
	require.True(t, next(3), "the last one that may find work")
	p.busy = 2
	require.False(t, next(3))
	require.Equal(t, []int{5, 2, 4, 3}, p.dismissed)
	require.Equal(t, p.workers, p.started)
	require.Zero(t, p.extra.Load())
}

// A worker that waits while too many run is dismissed at once, not when there is work again.
func TestPoolDismissesWorkersThatWait(t *testing.T) {
	for name, fewer := range map[string]func(*pool){"shrink": (*pool).shrink, "limitGrowth": func(p *pool) { p.limitGrowth(1) }, "stepBack": (*pool).stepBack} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCrew(oneDirectory(1), 1, 8)
				p := c.pool
				p.maxWorkers, p.maxGrown, p.started, p.busy = 2, 2, 2, 2 // worker 0 is busy
				if p.limit = 2; name == "stepBack" {
					p.limit, p.aside = 1, 1
				}
				p.extra.Store(1)
				c.dirs.stack = nil // there is nothing to do
				go p.next(1, fakeWorker{c, 1})
				synctest.Wait()
				require.Equal(t, 1, p.idle)
				fewer(p)
				synctest.Wait()
				require.Equal(t, []int{1}, p.dismissed)
				require.Zero(t, p.extra.Load())
			})
		})
	}
}

// While one worker resolves links, which may take long, no other that wakes does so too, nor takes it for the end: all are there
// for what the links lead to.
func TestPoolKeepsItsWorkersWhileLinksAreResolved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const visit = 10 * time.Millisecond
		c := newCrew(append(oneDirectory(4), wide(8, 1)...), 4, 8)
		for i := range c.plan[1][0].subs {
			c.plan[1][0].subs[i]++
		}
		calls := 0
		c.pool.late = func() []*job {
			if calls++; calls > 1 {
				return nil
			}
			time.Sleep(time.Second)
			c.pool.wakeAll()
			time.Sleep(time.Second)
			require.Equal(t, 1, calls)
			return []*job{jobFor("1", 0)}
		}
		var start time.Time
		c.onVisit = func(int) { time.Sleep(visit) }
		c.onScan = func(dir, _ int) {
			if dir == 1 {
				start = time.Now()
			}
		}
		c.run()
		c.requireComplete(t, 8)
		require.Equal(t, 4, c.pool.started)
		require.Equal(t, 2*visit, time.Since(start).Truncate(time.Millisecond))
	})
}

// A partly listed directory comes after the queue's batches while these are to come first, and is not forgotten.
func TestPoolListsOnWhenBatchesCameFirst(t *testing.T) {
	c := newCrew(oneDirectory(1), 1, 3)
	c.dirs.stack, c.dirs.draining = nil, true
	c.pool.paused = []*job{jobFor("a", 1)}
	b, j := c.pool.pick(fakeWorker{c, 1})
	require.Nil(t, b)
	require.Equal(t, "a", j.node.name.String())
}

// Worker 1 is started later once, however often that is wanted, and a worker that waits is a reason not to have more of them.
func TestPoolStartsOneLater(t *testing.T) {
	c := newCrew(oneDirectory(1), 1, 3)
	c.pool.maxWorkers, c.pool.maxGrown, c.dirs.stack = 4, 4, nil
	c.pool.mu.Lock()
	c.pool.delay()
	first := c.pool.delayed
	c.pool.delay()
	require.Same(t, first, c.pool.delayed)
	c.pool.mu.Unlock()
	c.pool.idle = 1
	c.pool.grow()
	require.Equal(t, 1, c.pool.limit)
	c.pool.idle = 0
	c.pool.grow()
	require.Equal(t, 4, c.pool.limit)
	c.pool.wait()
}
