package fileproc

import (
	"context"
	"fmt"
	"io/fs"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fileproc/fileproc/internal/content"
	"github.com/fileproc/fileproc/internal/knobs"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

// The same must hold if all calls count as slow, so that there are as many workers as possible.
func TestFaultsWithManyInFlight(t *testing.T) {
	testtree.Set(t, &knobs.SlowCall, -time.Hour)
	for name, test := range map[string]func(*testing.T){
		"cancel":        TestFaultsCancelAtEachCall,
		"mishap":        TestFaultsMishapAtEachFile,
		"panic":         TestFaultsPanicAtEachCall,
		"SkipAll":       TestFaultsSkipAllAtEachFile,
		"descriptors":   TestFaultsFewDescriptors,
		"three runs":    TestFaultsFewDescriptorsForThreeRuns,
		"left":          TestFaultsStreamLeftAtEachResult,
		"ordered":       TestOrderedIsInOrder,
		"ordered, ends": TestOrderedEndsAtEachCall,
	} {
		t.Run(name, test)
	}
}

// A slotUse records which slots are in use.
type slotUse struct {
	mu    sync.Mutex
	using map[int]bool
	most  int
	wrong []string
}

func (p *slotUse) use(w, workers int, during func()) {
	p.mu.Lock()
	if p.using == nil {
		p.using = map[int]bool{}
	}
	if p.using[w] {
		p.wrong = append(p.wrong, fmt.Sprintf("two calls with number %d at a time", w))
	}
	if w < 0 || w >= workers {
		p.wrong = append(p.wrong, fmt.Sprintf("number %d of %d", w, workers))
	}
	p.using[w] = true
	p.most = max(p.most, len(p.using))
	p.mu.Unlock()
	defer func() { // also when fn panics
		p.mu.Lock()
		delete(p.using, w)
		p.mu.Unlock()
	}()
	during()
}

// A gauge measures how many calls slept at a time.
type gauge struct {
	mu        sync.Mutex
	now, most int
}

func (g *gauge) sleep(d time.Duration) { g.during(func() { time.Sleep(d) }) }

func (g *gauge) during(do func()) {
	g.mu.Lock()
	g.now++
	g.most = max(g.most, g.now)
	g.mu.Unlock()
	do()
	g.mu.Lock()
	g.now--
	g.mu.Unlock()
}

// crowd is a directory with more files than can be in flight, and one with directories.
func crowd(files, dirs int) *object {
	root := folder("")
	for i := range files {
		root.kids = append(root.kids, file(fmt.Sprint("f", i), fmt.Sprint("content ", i)))
	}
	for i := range dirs {
		root.kids = append(root.kids, folder(fmt.Sprint("d", i), file("a", fmt.Sprint("alpha ", i)), file("b", fmt.Sprint("beta ", i))))
	}
	return root
}

func TestInFlightRisesAboveWorkers(t *testing.T) {
	testtree.NotInColdMode(t, "the fault backend is not on a disk, and only windows that are make the pool grow")
	for _, what := range []string{"open", "read", "fstat", "openDir", "stat", "Unchanged"} {
		for _, workers := range []int{1, 2, 7} {
			t.Run(fmt.Sprintf("%s/workers=%d", what, workers), func(t *testing.T) {
				testtree.Set(t, &knobs.SlowCall, 100*time.Microsecond)
				inBubble(t, func(t *testing.T) {
					w := &world{root: crowd(100, 100), perList: 1000}
					need := descriptorBudget().listings // bounded more tightly
					if what != "openDir" {
						need = descriptorBudget().inFlight
					}
					var calls gauge
					w.during = func(call, name string) {
						if (call == what || call == "stat" && what == "Unchanged") && name != "" && name != "root" {
							calls.sleep(time.Millisecond)
						}
					}
					opts := Options{Workers: workers}
					switch what {
					case "stat":
						opts.ReadSize, opts.Stat = NoRead, true
					case "Unchanged":
						opts.hooks.Unchanged = func(*File) bool { return true }
					}
					used := &slotUse{}
					out := w.process(t.Context(), opts, func(f *File) error {
						used.use(f.Worker(), workers, func() { time.Sleep(time.Microsecond) })
						return nil
					})
					require.NoError(t, out.err)
					if what != "stat" && what != "Unchanged" {
						w.requireSound(t, out)
					}
					require.Len(t, out.got, 300)
					require.Empty(t, used.wrong)
					require.LessOrEqual(t, used.most, workers)
					require.Equal(t, need, calls.most)
				})
			})
		}
	}
}

// slowOpens makes each open of w take a while.
func slowOpens(w *world) {
	w.during = func(call, _ string) {
		if call == "open" || call == "openDir" { // root's too
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// At most Workers goroutines run Select, as fn.
func TestInFlightSelectIsFnToo(t *testing.T) {
	testtree.Set(t, &knobs.SlowCall, 100*time.Microsecond)
	inBubble(t, func(t *testing.T) {
		w := &world{root: crowd(300, 30), perList: 1000}
		slowOpens(w)
		used := &slotUse{}
		opts := Options{Workers: 3, Select: func(f *File) bool {
			used.use(f.Worker(), 3, func() { time.Sleep(time.Microsecond) })
			return true
		}}
		out := w.process(t.Context(), opts, func(f *File) error {
			used.use(f.Worker(), 3, func() { time.Sleep(time.Microsecond) })
			return nil
		})
		require.NoError(t, out.err)
		w.requireSound(t, out)
		require.Len(t, out.got, 360)
		require.Empty(t, used.wrong)
	})
}

// A worker that opens a directory does not keep others from running fn.
func TestInFlightListingTakesNoSlot(t *testing.T) {
	testtree.NotInColdMode(t, "the fault backend is not on a disk, and only windows that are make the pool grow")
	testtree.Set(t, &knobs.SlowCall, 100*time.Microsecond)
	t.Run("", func(t *testing.T) { inFlightListing(t, nil) })
	t.Run("SelectDir", func(t *testing.T) { inFlightListing(t, func(Entry) bool { return true }) })
}

func inFlightListing(t *testing.T, selectDir func(Entry) bool) {
	inBubble(t, func(t *testing.T) {
		const dirs = 200 // of two files each
		w := &world{root: crowd(0, dirs), perList: 1000}
		w.during = func(call, _ string) {
			if call == "openDir" {
				time.Sleep(5 * time.Millisecond)
			}
		}
		start := time.Now()
		out := w.process(t.Context(), Options{Workers: 1, SelectDir: selectDir}, func(*File) error {
			time.Sleep(time.Millisecond)
			return nil
		})
		took := time.Since(start)
		require.NoError(t, out.err)
		w.requireSound(t, out)
		require.Len(t, out.got, 2*dirs)
		require.Less(t, took, 2*dirs*time.Millisecond*5/4, "the calls of fn, one after the other, and the first and last opens")
	})
}

// If Workers is set, an fs.FS gets no more calls at a time.
func TestInFlightOfAnFS(t *testing.T) {
	inFlight := descriptorBudget().inFlight
	for _, test := range []struct {
		opts Options
		most int
	}{
		{Options{}, inFlight},
		{Options{FS: fsOnly{}}, inFlight},
		{Options{Workers: 3}, inFlight},
		{Options{Workers: 3, FS: fsOnly{}}, 3},
		{Options{Workers: 300}, 300},
	} {
		cfg, err := test.opts.config(".", false)
		require.NoError(t, err)
		r := newRun(t.Context(), cfg, callbacks{}, nil)
		require.Equal(t, max(test.most, test.opts.Workers), r.pool.maxWorkers)
	}
}

type fsOnly struct{}

func (fsOnly) Open(string) (fs.File, error) { return nil, fs.ErrNotExist }

func TestInFlightFewDescriptors(t *testing.T) {
	testtree.Set(t, &knobs.SlowCall, 100*time.Microsecond)
	for limit := 3; limit <= 40; limit += 4 {
		for _, workers := range []int{1, 2, 8} {
			for _, fnSlow := range []bool{false, true} {
				inBubble(t, func(t *testing.T) {
					w := &world{root: crowd(200, 60), perList: 50, limit: limit, scarce: scarceErrors[0]}
					slowOpens(w)
					want := w.contents()
					used := &slotUse{}
					out := w.process(t.Context(), Options{Workers: workers}, func(f *File) error {
						used.use(f.Worker(), workers, func() {
							if fnSlow {
								time.Sleep(3 * time.Millisecond)
								_, err := f.Open()
								require.NotErrorIs(t, err, scarceErrors[0])
							}
						})
						return nil
					})
					require.NoError(t, out.err)
					require.Empty(t, out.failed)
					w.requireSound(t, out)
					require.Equal(t, want, out.got)
					require.Empty(t, used.wrong)
				})
			}
		}
	}
}

// To copy a file takes time, in which nothing is waited for: more of it if the page cache had the file.
func TestCopiesAreNoWaiting(t *testing.T) {
	for _, uncached := range []bool{false, true} {
		var m latencyMeter
		p := &pool{}
		const n = 1 << 20
		copying := time.Duration(n)
		if uncached {
			copying /= 4
		}
		for _, waits := range []bool{false, true} {
			for range 3 {
				d := copying + knobs.SlowCall
				if waits {
					d++
				}
				m.copied(n, uncached)
				m.blocks(&m.reads, p, d)
				require.Equal(t, waits, m.reads.slow)
			}
		}
	}
}

// TestBlocks: a call that is ten times as slow as a slow one, and the second slow one in a row, show that calls block. Sixteen quick calls in a
// row of one worker end that, and until then each call is timed.
func TestBlocks(t *testing.T) {
	slow := knobs.SlowCall
	p := &pool{workers: 1, limit: 4}
	p.extra.Store(3)
	var m latencyMeter
	c := &m.reads
	call := func(d time.Duration) bool { return m.blocks(c, p, d) }
	require.False(t, call(10*slow), "alone it may have lacked a processor")
	require.True(t, call(slow+1))
	require.Zero(t, c.quick)
	require.False(t, call(slow))
	require.Equal(t, 1, c.quick)
	require.False(t, call(slow+1))
	require.Zero(t, c.quick, "not in a row")
	require.False(t, call(0))
	require.True(t, call(10*slow+1))
	for range shrinkAfter - 1 {
		require.False(t, call(slow))
		require.Equal(t, 4, p.limit)
	}
	require.False(t, call(slow))
	require.Equal(t, 2, p.limit)
	p.extra.Store(0)
	for range 2 * shrinkAfter {
		require.False(t, call(slow))
	}
	require.Equal(t, 2, p.limit, "no workers are left over")
	require.Equal(t, timedEvery, c.untimed)
}

// All files in flight may be large, but are not in memory at the same time.
func TestInFlightLargeFilesNeedASlot(t *testing.T) {
	testtree.NotInColdMode(t, "the fault backend is not on a disk, and only windows that are make the pool grow")
	testtree.Set(t, &knobs.SlowCall, 100*time.Microsecond)
	large := strings.Repeat("large ", content.MaxFree/5)
	for size, reads := range map[int64]int{int64(len(large)): 1, 3: 7} { // known, or seen by the seventh doubling
		held := reads
		inBubble(t, func(t *testing.T) {
			root := folder("")
			for i := range 24 {
				root.kids = append(root.kids, file(fmt.Sprint("f", i), large, sized(size), chunks(content.MaxFree/2)))
			}
			root.kids[23].openErr = []error{scarceErrors[0]} // and then a slot is needed, too
			w := &world{root: root, perList: 100}
			var mu sync.Mutex
			opens, mostOpens := 0, 0
			reads := map[string]int{}
			large, mostLarge := 0, 0
			w.during = func(call, name string) {
				mu.Lock()
				switch call {
				case "open":
					opens++
					mostOpens = max(mostOpens, opens)
					reads[name] = 0
				case "read":
					if reads[name]++; reads[name] == held {
						large++
						mostLarge = max(mostLarge, large)
					}
				case "close":
					if reads[name] >= held {
						large--
					}
					reads[name] = 0
				}
				mu.Unlock()
				time.Sleep(5 * time.Millisecond)
				if call == "open" {
					mu.Lock()
					opens--
					mu.Unlock()
				}
			}
			out := w.process(t.Context(), Options{Workers: 2}, nil)
			require.NoError(t, out.err)
			w.requireSound(t, out)
			require.Len(t, out.got, 24)
			require.Greater(t, mostOpens, 8, "this tests nothing unless many are in flight")
			require.Positive(t, mostLarge)
			require.LessOrEqual(t, mostLarge, 2)
		})
	}
}

// However a run ends while many calls block, and workers wait for a slot to call one of the functions, nothing is left: synctest
// fails if a goroutine is. Every file that a worker was at counts as abandoned.
func TestInFlightEnds(t *testing.T) {
	for _, how := range []string{"cancel", "panic", "Goexit", "SkipAll", "error", "backend panics"} {
		inFlightEnds(t, "fn", how)
	}
	for _, callback := range []string{"Select", "Unchanged", "OnBinary", "fn of large files"} {
		for _, how := range []string{"cancel", "panic", "Goexit"} {
			inFlightEnds(t, callback, how)
		}
	}
}

// inFlightEnds ends runs in the function named callback, which is slow, or while it is.
func inFlightEnds(t *testing.T, callback, how string) {
	testtree.Set(t, &knobs.SlowCall, 100*time.Microsecond)
	for _, workers := range []int{1, 2, 5} {
		for at := time.Millisecond; at < 60*time.Millisecond; at += 6 * time.Millisecond {
			t.Run(fmt.Sprintf("%s/%s/workers=%d/%v", callback, how, workers, at), func(t *testing.T) {
				inBubble(t, func(t *testing.T) { inFlightEndsAt(t, callback, how, workers, at) })
			})
		}
	}
}

// inFlightEndsAt ends one run when it has taken so long.
func inFlightEndsAt(t *testing.T, callback, how string, workers int, at time.Duration) {
	w := &world{root: crowd(600, 60), perList: 100}
	start := time.Now()
	var once sync.Once
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	opts := Options{Workers: workers, openRoot: w.openRoot}
	var out outcome
	opts.Report = &out.report
	opts.OnError = func(err error) error { return err }
	fn := func(*File) (err error) {
		if how != "backend panics" { // which needs opens to the end
			time.Sleep(time.Millisecond) // others wait for a slot
		}
		if time.Since(start) >= at {
			once.Do(func() {
				switch how {
				case "panic":
					panic(errBroken)
				case "Goexit":
					runtime.Goexit()
				case "SkipAll":
					err = fs.SkipAll
				case "error":
					err = errBroken
				}
			})
		}
		return err
	}
	callSlowly(callback, fn, w, &opts)
	if !strings.HasPrefix(callback, "fn") {
		fn = func(*File) error { return nil }
	}
	w.during = func(call, name string) {
		if call != "open" && call != "stat" || name == "root" {
			return
		}
		time.Sleep(5 * time.Millisecond)
		if how == "backend panics" && time.Since(start) >= at {
			once.Do(func() { panic(errBroken) })
		}
	}
	if how == "cancel" {
		time.AfterFunc(at, func() { cancel(errBroken) })
	}
	done := make(chan struct{})
	returned := false
	var err error
	var caught any
	go func() {
		defer close(done)
		defer func() { caught = recover() }()
		_, err = Process(ctx, "root", opts, func(f *File) (int, error) { return 0, fn(f) })
		returned = true
	}()
	<-done
	switch how {
	case "cancel", "error":
		require.ErrorIs(t, err, errBroken)
	case "SkipAll":
		require.NoError(t, err)
	case "panic", "backend panics":
		require.NotNil(t, caught)
	case "Goexit":
		require.False(t, returned)
	}
	if how != "backend panics" { // a backend that panics may leave handles open
		w.requireSound(t, out)
	}
	require.Positive(t, out.report.Abandoned)
	if how != "error" {
		require.Zero(t, out.report.Failed)
	}
}

// callSlowly sets the function named callback, unless that is fn, to one that calls slow, and lets w have files for it.
func callSlowly(callback string, slow func(*File) error, w *world, opts *Options) {
	switch callback {
	case "Select":
		opts.Select = func(f *File) bool { return slow(f) == nil }
	case "Unchanged":
		opts.hooks.Unchanged = func(f *File) bool { return slow(f) != nil }
	case "OnBinary":
		opts.SkipBinary, opts.hooks.OnBinary = true, func(f *File) { _ = slow(f) }
		for _, k := range w.root.kids {
			k.content = append(k.content, 0)
		}
	case "fn of large files": // whose memory takes a slot
		for _, k := range w.root.kids {
			k.lies, k.size = true, content.MaxFree+1
		}
	}
}

// Calls that block for a while do not raise the number of workers for ever.
func TestInFlightFalls(t *testing.T) {
	testtree.NotInColdMode(t, "the fault backend is not on a disk, and only windows that are make the pool grow")
	for _, what := range []string{"open", "stat"} {
		t.Run(what, func(t *testing.T) { inFlightFalls(t, what) })
	}
}

// inFlightFalls slows down the calls named what, "stat" with hooks.Unchanged.
func inFlightFalls(t *testing.T, what string) {
	testtree.Set(t, &knobs.SlowCall, 100*time.Microsecond)
	inBubble(t, func(t *testing.T) {
		w := &world{root: crowd(20_000, 0), perList: 100}
		after, made := 0, 0
		var (
			mu    sync.Mutex
			calls gauge
		)
		w.during = func(call, name string) {
			if call != what || name == "root" {
				return
			}
			mu.Lock()
			made++
			slow := made < 2000
			mu.Unlock()
			if slow {
				calls.sleep(time.Millisecond)
			}
		}
		opts := Options{Workers: 2, openRoot: w.openRoot}
		if what == "stat" {
			opts.hooks.Unchanged = func(*File) bool { return true }
		}
		_, err := Process(t.Context(), "root", opts, func(f *File) (struct{}, error) {
			time.Sleep(10 * time.Microsecond) // so that sleeping goroutines can end
			mu.Lock()
			if made > 19_900 {
				after = max(after, int(f.w.run.pool.extra.Load()))
			}
			mu.Unlock()
			return struct{}{}, nil
		})
		require.NoError(t, err)
		inFlight := descriptorBudget().inFlight
		require.Equal(t, inFlight, calls.most, "this tests nothing unless the number has grown")
		require.LessOrEqual(t, after, 2)
	})
}

// Directories in use by more workers than usual need not be evicted: the workers are there because opens are slow.
func TestInFlightOpensDirectoriesOnce(t *testing.T) {
	testtree.NotInColdMode(t, "windows span directories, more than may stay open")
	testtree.Set(t, &knobs.SlowCall, 100*time.Microsecond)
	inBubble(t, func(t *testing.T) {
		w := &world{root: folder(""), perList: 1000}
		up := w.root
		for range 7 {
			d := folder("d")
			up.kids = append(up.kids, d)
			up = d
		}
		for i := range 400 {
			up.kids = append(up.kids, folder(fmt.Sprint("d", i), file("a", "alpha"), file("b", "beta")))
		}
		var opens atomic.Int64
		w.during = func(call, _ string) {
			if call == "openDir" {
				opens.Add(1)
			}
			if call == "openDir" || call == "open" || call == "read" {
				time.Sleep(2 * time.Millisecond)
			}
		}
		out := w.process(t.Context(), Options{Workers: 4}, nil)
		require.NoError(t, out.err)
		require.Len(t, out.got, 800)
		require.Less(t, opens.Load(), int64(450))
	})
}
