package fileproc

import (
	"context"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fileproc/fileproc/internal/content"
	"github.com/fileproc/fileproc/internal/knobs"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

func TestPace(t *testing.T) {
	for _, test := range []struct {
		was     pace
		pending int
		reading time.Duration
		want    pace
	}{
		{pace{files: 16}, 8, 0, pace{files: 32}},
		{pace{files: 16}, 16, longWindow, pace{files: 32}},
		{pace{files: 16}, 8, longWindow / 2, pace{files: 32}},
		{pace{files: 16}, 8, longWindow/2 + 1, pace{files: 16}}, // too long for half of the files
		{pace{files: 16}, 7, 0, pace{files: 16}},                // less than a window
		{pace{files: 64}, 32, longWindow + 1, pace{files: 32, slowed: true}},
		{pace{files: 64}, 5, longWindow + 1, pace{files: 32, slowed: true}},
		{pace{files: 64, slowed: true, quick: 9}, 64, time.Hour, pace{files: 32, slowed: true}},
		{pace{files: 64, slowed: true, quick: 9}, 64, 0, pace{files: 64, slowed: true, quick: 10}},
		{pace{files: 64, slowed: true, quick: quickInARow - 1}, 64, 0, pace{files: 128, slowed: true}},
		{pace{files: pendingMin, slowed: true}, 1, time.Hour, pace{files: pendingMin, slowed: true}},
		{pace{files: pendingMost}, pendingMost, 0, pace{files: pendingMost}},
	} {
		got := test.was.next(test.pending, test.reading)
		if !got.slowed {
			got.quick = 0 // nobody looks at it
		}
		require.Equal(t, test.want, got, "%+v", test)
	}
	require.Equal(t, pendingMin, pace{files: pendingMin}.window())
	require.Equal(t, content.WindowMax, pace{files: pendingMost}.window())
}

// A slowDisk serves one file after the other, in the order in which it is asked.
type slowDisk struct {
	mu   sync.Mutex
	cost func() time.Duration // of a file
	free time.Time            // when the next one may begin
}

func (d *slowDisk) read(files int) {
	d.mu.Lock()
	if now := time.Now(); d.free.Before(now) {
		d.free = now
	}
	for range files {
		d.free = d.free.Add(d.cost())
	}
	done := d.free
	d.mu.Unlock()
	time.Sleep(time.Until(done))
}

// readCold reads windows from d with workers, until it is cancelled after the time
// until. It returns how many files were read and how long the workers took to end.
func readCold(d *slowDisk, workers int, until time.Duration) (files int, last time.Duration, c *coldMode) {
	ctx, cancel := context.WithCancel(context.Background())
	c = new(coldMode)
	c.begin(workers, content.WindowMax)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for ctx.Err() == nil {
				time.Sleep(100 * time.Microsecond) // opens
				turn := c.acquire(ctx, content.WindowMax)
				if turn.files == 0 {
					continue
				}
				start := time.Now()
				d.read(turn.files)
				c.release(turn, time.Since(start))
				d.mu.Lock()
				files += turn.files
				d.mu.Unlock()
			}
		})
	}
	time.Sleep(until)
	cancelled := time.Now()
	cancel()
	wg.Wait()
	return files, time.Since(cancelled), c
}

// TestInvariant8CancelOnADiskWithOneHead: what is asked of a disk that serves one request after the other, 4 ms each, is
// done within 100 ms, however many workers there are, and the disk is never idle for long.
func TestInvariant8CancelOnADiskWithOneHead(t *testing.T) {
	const seek = 4 * time.Millisecond
	for _, workers := range []int{1, 2, 8, 64} {
		for seed := range uint64(100) {
			synctest.Test(t, func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, 8))
				until := time.Duration(r.IntN(3000)) * time.Millisecond
				files, last, c := readCold(&slowDisk{cost: func() time.Duration { return seek }}, workers, until)
				require.LessOrEqual(t, last, 100*time.Millisecond)
				require.GreaterOrEqual(t, time.Duration(files)*seek, (until+last)*95/100-time.Millisecond, "what the disk did")
				require.LessOrEqual(t, c.windows.pace.files, 2*pendingMin)
			})
		}
	}
}

// TestInvariant8CancelWhileADiskIsListed: opens and listings of directories, of several requests each, are few at the same
// time on such a disk, however many workers there are. Files that are read one by one are not waited for longer.
func TestInvariant8CancelWhileADiskIsListed(t *testing.T) {
	testtree.Set(t, &knobs.AlwaysCold, true)
	testtree.Set(t, &knobs.SlowCall, 100*time.Microsecond)
	requests := map[string]int{"openDir": 2, "list": 3, "open": 1, "read": 1}
	for _, workers := range []int{1, 2, 8, 64} {
		for seed := range uint64(20) {
			inBubble(t, func(t *testing.T) {
				disk := &slowDisk{cost: func() time.Duration { return 4 * time.Millisecond }}
				w := &world{root: crowd(0, 300), perList: 1000}
				var calls gauge
				w.during = func(call, name string) {
					if call == "openDir" && len(name)%2 == 0 { // its inode is in the page cache
						return
					}
					if call == "openDir" || call == "list" {
						calls.during(func() { disk.read(requests[call]) })
					} else if n := requests[call]; n > 0 && workers <= maxColdWorkers {
						disk.read(n)
					}
				}
				until := time.Duration(rand.New(rand.NewPCG(seed, 9)).IntN(3000)) * time.Millisecond
				ctx, cancel := context.WithTimeout(t.Context(), until)
				defer cancel()
				start := time.Now()
				out := w.process(ctx, Options{Workers: workers}, nil)
				require.ErrorIs(t, out.err, context.DeadlineExceeded)
				w.requireSound(t, out)
				require.LessOrEqual(t, time.Since(start)-until, 100*time.Millisecond)
				require.LessOrEqual(t, calls.most, pendingMin/callFiles)
			})
		}
	}
}

// As long as it is unknown what calls wait for, few workers find out. On what is no disk, all may then wait.
func TestFewOpensUntilItIsKnownWhatTheyWaitFor(t *testing.T) {
	testtree.NotInColdMode(t, "where that is known")
	testtree.Set(t, &knobs.SlowCall, 100*time.Microsecond)
	inBubble(t, func(t *testing.T) {
		w := &world{root: crowd(0, 300), perList: 1000}
		var first, all gauge
		start := time.Now()
		w.during = func(call, _ string) {
			if call != "openDir" {
				return
			}
			all.during(func() {
				if time.Since(start) < 5*time.Millisecond {
					first.during(func() { time.Sleep(5 * time.Millisecond) })
				} else {
					time.Sleep(5 * time.Millisecond)
				}
			})
		}
		out := w.process(t.Context(), Options{Workers: 16}, nil)
		require.NoError(t, out.err)
		w.requireSound(t, out)
		require.Equal(t, pendingMin/callFiles, first.most)
		require.GreaterOrEqual(t, all.most, 16)
	})
}

// Cold, files are looked at in the order of the disk while directories are listed.
func TestLooksAreInTheOrderOfTheDisk(t *testing.T) {
	testtree.Set(t, &knobs.AlwaysCold, true)
	sortRuns(t, 8)
	for name, opts := range map[string]Options{
		"metadata alone": {ReadSize: NoRead, Stat: true},
		"Unchanged":      {hooks: hooks{Unchanged: func(*File) bool { return true }}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := &world{root: crowd(200, 0), perList: 10}
				var mu sync.Mutex
				lists, listsBefore := 0, 0
				var looks []uint64
				w.during = func(call, name string) {
					if call == "list" {
						time.Sleep(time.Second)
					}
					mu.Lock()
					defer mu.Unlock()
					switch {
					case call == "list":
						lists++
					case call == "stat" && name != "root":
						if len(looks) == 0 {
							listsBefore = lists
						}
						looks = append(looks, uint64(crc32.ChecksumIEEE([]byte(name))))
					}
				}
				opts.Workers = 2
				out := w.process(t.Context(), opts, nil)
				require.NoError(t, out.err)
				require.Len(t, out.got, 200)
				require.Len(t, looks, 200)
				require.Equal(t, 4, listsBefore, "of 20, which give ten each")
				require.True(t, slices.IsSorted(looks[:looksFrom*runSize]))
			})
		})
	}
}

// On a disk with one head, one directory at a time is listed: the other of two that are lies elsewhere, and what the first one
// leads to between both.
func TestOneDirectoryAtATimeOnASlowDisk(t *testing.T) {
	testtree.Set(t, &knobs.AlwaysCold, true)
	testtree.Set(t, &knobs.SlowCall, 100*time.Microsecond)
	for _, workers := range []int{2, 8} {
		inBubble(t, func(t *testing.T) {
			disk := &slowDisk{cost: func() time.Duration { return 4 * time.Millisecond }}
			w := &world{root: crowd(0, 100), perList: 1000}
			var mu sync.Mutex
			opened, calls := "", 0
			w.during = func(call, name string) {
				if call != "openDir" && call != "list" {
					return
				}
				mu.Lock()
				if call == "openDir" {
					opened = name
				} else if calls++; calls > 10 && name != opened {
					t.Errorf("%s is listed after %s was opened", name, opened)
				}
				mu.Unlock()
				disk.read(2)
			}
			out := w.process(t.Context(), Options{Workers: workers}, nil)
			require.NoError(t, out.err)
			w.requireSound(t, out)
			require.Len(t, out.got, 200)
		})
	}
}

// What has blocks of the page cache alone says nothing about the disk, and what is quick once may be slow next time.
func TestPaceOfCalls(t *testing.T) {
	testtree.Set(t, &knobs.SlowCall, 100*time.Microsecond)
	c := new(coldMode)
	c.begin(8, content.WindowMax)
	c.on.Store(true)
	c.waitsFor.Store(diskSlow)
	call := func(took time.Duration) int {
		var other turn
		if c.calls.pace.files > callFiles {
			other = c.acquireCall(t.Context())
		}
		c.releaseCall(c.acquireCall(t.Context()), took)
		c.calls.pending -= other.files
		require.Equal(t, c.calls.pace.files/callFiles, c.maxListings())
		return c.calls.pace.files
	}
	for range 100 {
		require.Equal(t, pendingMin, call(50*time.Microsecond), "from the page cache")
	}
	for range longInARow - 1 {
		require.Equal(t, pendingMin, call(longCall+1))
	}
	require.Equal(t, pendingFrom/2, c.windows.pace.window())
	require.Equal(t, callFiles, call(longCall+1), "one at a time")
	require.Equal(t, pendingFrom, c.windows.pace.window(), "so is a window")
	for range quickInARow - 1 {
		require.Equal(t, callFiles, call(longCall))
	}
	require.Equal(t, 2*callFiles, call(longCall))
	for range quickInARow - 1 {
		require.Equal(t, 2*callFiles, call(longCall/2))
	}
	require.Equal(t, 4*callFiles, call(longCall/2))
	require.Equal(t, 4*callFiles, call(longCall+1))
	require.Equal(t, callFiles, call(longCall+1), "it has been slow before")
	c.on.Store(false)
	require.Equal(t, math.MaxInt, c.maxListings(), "where the order is that of the tree")
	require.Empty(t, c.calls.waiting)
	require.Zero(t, c.calls.pending)
}

// A disk that serves all at the same time gets much after a few windows, also where a window in a hundred is delayed.
func TestPaceOfAFastDisk(t *testing.T) {
	for _, workers := range []int{1, 8} {
		synctest.Test(t, func(t *testing.T) {
			c := new(coldMode)
			c.begin(workers, content.WindowMax)
			for k := range 1000 {
				turn := c.acquire(t.Context(), content.WindowMax)
				require.Equal(t, min(c.windows.pace.window(), content.WindowMax), turn.files)
				reading := 3 * time.Millisecond
				if k%100 == 99 {
					reading = 10 * longWindow
				}
				c.release(turn, reading)
				if k == 10 {
					require.Equal(t, pendingMost, c.windows.pace.files)
				}
				require.GreaterOrEqual(t, c.windows.pace.files, pendingFrom)
			}
			require.GreaterOrEqual(t, c.windows.pace.files, pendingMost/2)
		})
	}
}

// Workers get their turns in the order in which they come, which is that of the disk, and no more files than the pace allows.
func TestTurnsAreInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := new(coldMode)
		c.begin(4, content.WindowMax)
		c.windows.pace.files = pendingMin
		var order []int
		var wg sync.WaitGroup
		for k := range 20 {
			wg.Go(func() {
				turn := c.acquire(t.Context(), 5+k%3)
				order = append(order, k) // the pace allows one at a time
				require.Equal(t, 5+k%3, turn.files)
				require.LessOrEqual(t, turn.pending, turn.paced.files)
				time.Sleep(time.Second)
				c.release(turn, 0)
			})
			synctest.Wait()
		}
		wg.Wait()
		for k, got := range order {
			require.Equal(t, k, got)
		}
		require.Zero(t, c.windows.pending)
		require.Empty(t, c.windows.waiting)
	})
}

// Slow windows that began at the same time, before the pace changed, make it slower once.
func TestOneSlowMomentCountsOnce(t *testing.T) {
	c := new(coldMode)
	c.begin(8, content.WindowMax)
	c.windows.pace = pace{files: pendingMost}
	c.window.Store(content.WindowMax)
	var turns []turn
	for range 4 {
		turns = append(turns, c.acquire(t.Context(), content.WindowMax))
	}
	for _, turn := range turns {
		c.release(turn, time.Second)
	}
	require.Equal(t, pendingMost/2, c.windows.pace.files)
	require.Zero(t, c.windows.pending)
}

func TestNoTurnsWithoutDescriptors(t *testing.T) {
	c := new(coldMode)
	c.begin(8, content.WindowMax)
	held := c.acquire(t.Context(), 8)
	c.window.Store(0)
	require.Zero(t, c.acquire(t.Context(), 8).files)
	c.release(held, 0)
	require.Zero(t, c.window.Load())
}

// However many workers come and go, windows take the memory of few.
func TestWindowReadersAreFew(t *testing.T) {
	for _, workers := range []int{2, maxColdWorkers + 3} {
		c := new(coldMode)
		c.begin(workers, content.WindowMax)
		created := 0
		create := func() content.WindowReader {
			created++
			return scarceWindow{}
		}
		for k := range max(workers, maxColdWorkers) {
			require.NotNil(t, c.takeReader(create))
			require.Equal(t, k+1, created)
		}
		require.Nil(t, c.takeReader(create))
		again := new(struct{ content.WindowReader })
		c.putReader(again)
		require.Equal(t, content.WindowReader(again), c.takeReader(create))
		require.Empty(t, c.readers)
		require.Equal(t, max(workers, maxColdWorkers), created)
	}
}

// A window that happens to be cached ends the cold mode. The next may wait for the disk again, and then no more workers
// read than before: those beyond maxColdWorkers would have no windowReader.
func TestColdModeLeavesThePoolSmall(t *testing.T) {
	r := newRun(t.Context(), config{workers: 2, mayGrow: true}, callbacks{}, nil)
	r.cold.on.Store(true)
	r.pool.limitGrowth(maxColdWorkers)
	r.pool.stopped.Store(true) // so that it starts none of the workers that it may have
	w := &worker{shared: &r.shared}
	knobs.AlwaysCold = false
	defer func() { knobs.AlwaysCold = testtree.Cold }()
	w.cold.leave()
	require.False(t, r.cold.on.Load())
	for range 9 {
		r.pool.started = r.pool.limit
		r.pool.grow()
	}
	require.Equal(t, maxColdWorkers, r.pool.limit)
}

// scarceWindow has no descriptor for its second file.
type scarceWindow struct{ content.WindowReader }

func (scarceWindow) Open(i int, _ content.Dir, _ names.Name) error {
	if i == 1 {
		return scarceErrors[0]
	}
	return nil
}

// A window that has run out of descriptors leaves its directory to those that wait for one.
func TestWindowWithoutDescriptorsLeavesItsPinIdle(t *testing.T) {
	w := &world{eager: true, root: folder("", folder("d", file("a", ""), file("b", "")))}
	opts := Options{Workers: 1, openRoot: w.openRoot}
	cfg, err := opts.config("root", false)
	require.NoError(t, err)
	calls := opts.callbacks()
	checked := false
	calls.fn = func(f *currentFile) error {
		if f.name.String() == "a" {
			was := f.w.ahead.Window
			defer func() { f.w.ahead.Window = was }()
			f.w.ahead.Window = scarceWindow{}
			f.w.openWindow(&batch{node: f.node, entries: []names.Name{f.name, f.name}}, 0, 2)
			require.Equal(t, int32(pinIdle), f.w.pin.state.Load())
			f.w.dirs.evictAll()
			require.Equal(t, 1, w.open, "root alone")
			checked = true
		}
		return nil
	}
	require.NoError(t, newRun(t.Context(), cfg, calls, nil).execute())
	require.True(t, checked)
}

// Where descriptors are too few for windows, the end of one that was being read does not bring them back.
func TestNoWindowsAfterDescriptorsWereScarce(t *testing.T) {
	var c coldMode
	c.begin(1, content.WindowMax)
	turn := c.acquire(t.Context(), content.WindowMax)
	c.window.Store(0)
	c.release(turn, 0)
	require.Zero(t, c.window.Load())
}

// TestFaultsInTheColdMode: where all is listed ahead, every fault of an entry and every end at any step leaves as little
// behind as elsewhere. Inode numbers of the fault backend are hashes of the names, so they shuffle the files.
func TestFaultsInTheColdMode(t *testing.T) {
	testtree.NotInColdMode(t, "every test runs in it")
	testtree.Set(t, &knobs.AlwaysCold, true)
	for name, test := range map[string]func(*testing.T){
		"one entry":           TestFaultsOfOneEntry,
		"every type":          TestFaultsOfEveryType,
		"each call":           TestFaultsOfEachCall,
		"vanished":            TestFaultsVanishedDirectoryOfAWalk,
		"half a listing":      TestFaultsListingFailsHalfWay,
		"change after Select": TestFaultsChangeAfterSelect,
		"depth":               TestFaultsDepth,
		"cancel":              TestFaultsCancelAtEachCall,
		"cancel of a listing": TestFaultsCancelWhileListing,
		"cancel of a wait":    TestFaultsCancelWhileWaiting,
		"ignore file":         TestFaultsCancelInAnIgnoreFile,
		"ignore files":        TestIgnoreFilesWithFaults,
		"left":                TestFaultsStreamLeftAtEachResult,
		"stop":                TestFaultsStopAtEachFailure,
		"SkipAll":             TestFaultsSkipAllAtEachFile,
		"mishap":              TestFaultsMishapAtEachFile,
		"panic":               TestFaultsPanicAtEachCall,
		"ledger":              TestFaultsPanicLeavesABalancedLedger,
		"OnError":             TestFaultsPanicOfOnErrorAtEachFailure,
		"descriptors":         TestFaultsFewDescriptors,
		"three runs":          TestFaultsFewDescriptorsForThreeRuns,
		"nth open":            TestFaultsEveryNthOpen,
		"nothing open":        TestFaultsScarceRunKeepsNothingOpen,
		"links":               TestFaultsFewDescriptorsForLinks,
		"many ignore files":   TestIgnoreFilesFewDescriptorsForMany,
		"ordered":             TestOrderedIsInOrder,
		"ordered, ends":       TestOrderedEndsAtEachCall,
		"ordered, scarce":     TestOrderedFewDescriptors,
		"progress":            TestProgressIsWhatHasHappened,
		"closes":              TestDirCacheAfterAnyEnd,
	} {
		t.Run(name, test)
	}
}

// Every file that is listed ahead has a reference to its directory, and gives it back: one too few would keep the directory
// open to the end of the run, one too many would close it while it is in use.
func TestColdReferencesAreGivenBack(t *testing.T) {
	tree := func() *object {
		root := forest()
		for i := range 10 { // the last is listed first, while the run is not cold
			for j := range 30 {
				root.kids[1+i].kids = append(root.kids[1+i].kids, file(fmt.Sprint("more", j), fmt.Sprint("more ", i, j)))
			}
		}
		return root
	}
	for _, mode := range []string{"cold", "entered at each third file, left at each fifth"} {
		for _, window := range []int32{0, 1, 5, content.WindowMax} {
			t.Run(fmt.Sprintf("%s/window=%d", mode, window), func(t *testing.T) {
				everyWorld(t, tree, func(t *testing.T, w *world, workers int) {
					if knobs.AlwaysCold = mode == "cold"; knobs.AlwaysCold {
						defer func() { knobs.AlwaysCold = testtree.Cold }()
					}
					var mu sync.Mutex
					visits := 0
					out := w.process(t.Context(), Options{Workers: workers}, func(f *File) error {
						mu.Lock()
						defer mu.Unlock()
						if visits++; visits == 1 {
							f.w.cold.window.Store(window)
						}
						if mode != "cold" && visits%3 == 0 {
							f.w.cold.on.Store(true)
						}
						if mode != "cold" && visits%5 == 0 {
							f.w.cold.on.Store(false)
							f.w.pool.wake()
						}
						return nil
					})
					require.NoError(t, out.err)
					w.requireSound(t, out)
					require.Len(t, out.got, len(w.contents()))
				})
			})
		}
	}
}

// Whatever comes of it, a look at what a directory is on keeps the directory from nobody who waits for a descriptor.
func TestEnterLeavesItsPinIdle(t *testing.T) {
	s := newStand(t, 9, row(1))
	c := coldMode{cfg: &config{}, dirs: s.dirCache}
	var pin dirPin
	s.addPin(&pin)
	b := &batch{node: s.node["n0"], entries: []names.Name{names.New("f")}}
	require.False(t, c.enter(&pin, b, 0), "it is on no disk")
	require.False(t, c.on.Load())
	require.EqualValues(t, pinIdle, pin.state.Load())
	s.evictAll()
	require.Equal(t, 1, s.world.open, "root alone")
	w := s.world
	w.root.kids[0].gone = true
	require.False(t, c.enter(&pin, b, 0), "it is not there any more")
	require.False(t, c.on.Load())
	require.EqualValues(t, pinNone, pin.state.Load())
	s.end(t)
}

// The cold mode is entered where files are read or looked at in the order of the disk, and not without either.
func TestEnterOnlyForWhatADiskIsReadFor(t *testing.T) {
	testtree.NotInColdMode(t, "where it is entered")
	for name, opts := range map[string]Options{"content": {}, "metadata": {ReadSize: NoRead, Stat: true}, "names": {ReadSize: NoRead}} {
		for _, ordered := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/ordered=%v", name, ordered), func(t *testing.T) {
				root := t.TempDir()
				require.True(t, testtree.Make(t, root, "f=content"))
				opts.Workers = 1
				calls, entered := opts.callbacks(), 0
				calls.fn = func(f *currentFile) error {
					c := &f.w.cold
					onDisk := diskOf(f.w.root.dir).Kind != content.NotOnDisk
					want := onDisk && (name == "content" || name == "metadata" && !ordered)
					b := &batch{node: f.node, entries: []names.Name{f.name}, inodes: []uint64{1}}
					require.Equal(t, want, c.enter(&f.w.pin, b, 0))
					require.Equal(t, want, c.on.Load())
					require.NotEqual(t, int32(pinInUse), f.w.pin.state.Load())
					require.Equal(t, want, c.enter(&f.w.pin, b, 0))
					entered++
					return nil
				}
				cfg, err := opts.config(root, false)
				require.NoError(t, err)
				r, ahead := newRun(t.Context(), cfg, calls, nil), &shelf{}
				if r.cold.disk = ahead; ordered { // as if no files were listed ahead
					r.cold.disk = nil
				}
				require.NoError(t, r.execute())
				require.Equal(t, 1, entered)
				if cold := r.cold.on.Load(); cold {
					require.Equal(t, maxColdWorkers, r.pool.maxGrown)
					require.Equal(t, !ordered, ahead.files == 1, "the file that no worker had")
				}
			})
		}
	}
}

// Files that a worker gives back to the queue are work for a worker that waits.
func TestFilesListedAheadWakeAWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newColdCrew(oneDirectory(1), 2, 8, 9)
		cold, n := c.dirs.cold, &node{refs: 1}
		cold.cfg, cold.disk, cold.pool, cold.dirs = &config{}, c.dirs, c.pool, new(dirCache)
		c.dirs.stack, c.pool.begun = nil, true
		var visited []string
		c.pool.start = func(id int) work { return noter{fakeWorker{c, id}, &visited} }
		b := &batch{node: n, entries: []names.Name{names.New("0/0/0"), names.New("0/0/1"), names.New("0/0/2")}, inodes: []uint64{3, 2, 1}}
		b.next.Store(1) // the caller has the first
		require.True(t, cold.listAhead(b))
		synctest.Wait()
		require.Equal(t, []string{"0/0/2", "0/0/1"}, visited)
		require.Equal(t, 3, n.refs, "one for each of these")
		require.True(t, cold.listAhead(b), "there are no more of them")
		require.True(t, c.dirs.isEmpty())
		c.pool.stop()
		c.pool.wait()
	})
}

// A noter notes what it visits.
type noter struct {
	fakeWorker
	visited *[]string
}

func (n noter) visit(b *batch, i int) { *n.visited = append(*n.visited, b.entries[i].String()) }

// What a worker has waited for a slot before a call says nothing of the call.
func TestWaitForASlotIsNotThatOfTheNextCall(t *testing.T) {
	testtree.Set(t, &knobs.SlowCall, 100*time.Microsecond)
	for _, takes := range []time.Duration{0, 5 * time.Millisecond} {
		inBubble(t, func(t *testing.T) {
			w := &world{root: folder("")}
			r := newRun(t.Context(), config{workers: 2, mayGrow: true}, callbacks{openRoot: w.openRoot}, nil)
			r.pool.stopped.Store(true) // so that it starts none of the workers that it may have
			r.pool.started = r.pool.limit
			m := latencyMeter{waited: time.Hour}
			require.NoError(t, r.cold.await(t.Context(), &m, &m.opens, func() directory { return &worldDir{w: w, o: w.root} }, func() (int, error) {
				time.Sleep(takes)
				return 1, nil
			}))
			require.Zero(t, m.waited)
			require.Equal(t, takes > 0, r.pool.limit > 2, "the call blocks")
			require.Zero(t, r.cold.calls.pending)
		})
	}
}

// A shelf is listedAhead, and counts.
type shelf struct {
	files, looks, fits int
}

func (s *shelf) addFiles(_ *node, look bool, files []names.Name, _ []uint64) {
	if s.files += len(files); look {
		s.looks += len(files)
	}
}

func (s *shelf) fitMemory(int64) { s.fits++ }

// A coldStand has a run of two workers whose pool starts none, and the calls of one worker.
type coldStand struct {
	*testing.T
	*run
	*shelf
	meter latencyMeter
	took  time.Duration
	err   error
	calls int
}

func newColdStand(t *testing.T, c config) *coldStand {
	c.workers, c.mayGrow = 2, true
	w := &world{root: folder("")}
	s := &coldStand{T: t, run: newRun(t.Context(), c, callbacks{openRoot: w.openRoot}, nil), shelf: &shelf{}}
	s.root.dir = &worldDir{w: w, o: w.root}
	s.pool.stopped.Store(true)
	s.pool.started = s.pool.limit
	s.cold.disk = s.shelf
	return s
}

// await makes a call that takes this long, and returns how much the disk was asked for meanwhile.
func (s *coldStand) await(takes time.Duration) (pending int) {
	s.Helper()
	s.took = takes
	err := s.cold.await(s.ctx, &s.meter, &s.meter.lists, func() directory { return s.root.dir }, func() (int, error) {
		s.calls++
		time.Sleep(s.took)
		pending = s.cold.calls.pending
		return 1, s.err
	})
	require.Equal(s.T, s.err, err)
	require.Zero(s.T, s.cold.calls.pending)
	return pending
}

// While nothing is known of what calls wait for, those that are timed take a turn; on a disk all do, until they have been quick
// for long; and where there is none, none does.
func TestCallsThatTakeATurn(t *testing.T) {
	testtree.NotInColdMode(t, "where that is known")
	testtree.Set(t, &knobs.SlowCall, 100*time.Microsecond)
	for _, c := range []struct {
		disk               int32
		untimed, unblocked int
		takes              bool
	}{
		{diskUnknown, 0, 0, true}, {diskUnknown, 0, shrinkAfter, true}, {diskUnknown, 1, 0, false},
		{diskSlow, 0, shrinkAfter, true}, {diskSlow, 1, 0, true}, {diskSlow, 1, shrinkAfter - 1, true}, {diskSlow, 1, shrinkAfter, false},
		{diskNone, 0, 0, false}, {diskNone, 1, 0, false},
	} {
		inBubble(t, func(t *testing.T) {
			s := newColdStand(t, config{})
			s.cold.waitsFor.Store(c.disk)
			s.cold.callsNow.Store(99)
			s.meter.lists.untimed, s.meter.unblocked = c.untimed, c.unblocked
			require.Equal(t, c.takes, s.await(time.Second) == callFiles, "%+v", c)
			require.Equal(t, c.takes, s.cold.callsNow.Load() != 99, "what is no disk has no pace")
			require.EqualValues(t, map[bool]int32{false: c.disk, true: diskNone}[c.disk == diskUnknown && c.takes], s.cold.waitsFor.Load())
		})
	}
	inBubble(t, func(t *testing.T) {
		s := newColdStand(t, config{})
		s.cold.calls.pending = s.cold.calls.pace.files
		s.stop(errBroken)
		require.Equal(t, errStopped, s.cold.await(s.ctx, &s.meter, &s.meter.lists, nil, nil))
	})
}

// What calls that wait for a disk lead to: windows, if files are looked at in the order of the disk; few workers, if they are read;
// and nothing where it is no disk, or if a call fails.
func TestWhatSlowCallsLeadTo(t *testing.T) {
	testtree.NotInColdMode(t, "where that is known")
	testtree.Set(t, &knobs.SlowCall, 100*time.Microsecond)
	for _, c := range []struct {
		name      string
		config    config
		disk      int32
		err       error
		noDisk    bool // files are not listed ahead
		cold, few bool
		grows     bool
	}{
		{"content", config{}, diskSlow, nil, false, false, true, true},
		{"names", config{noRead: true}, diskSlow, nil, false, false, false, true},
		{"metadata", config{noRead: true, stat: true}, diskSlow, nil, false, true, true, true},
		{"metadata in order", config{noRead: true, stat: true}, diskSlow, nil, true, false, false, true},
		{"metadata and content", config{statFirst: true}, diskSlow, nil, false, true, true, true},
		{"metadata and content in order", config{statFirst: true}, diskSlow, nil, true, false, true, true},
		{"no disk", config{statFirst: true}, diskNone, nil, false, false, false, true},
		{"a failure", config{}, diskSlow, errBroken, false, false, false, false},
	} {
		inBubble(t, func(t *testing.T) {
			s := newColdStand(t, c.config)
			if c.noDisk {
				s.cold.disk = nil
			}
			most := s.pool.maxGrown
			require.Greater(t, most, maxColdWorkers)
			s.cold.waitsFor.Store(c.disk)
			s.err = c.err
			for range 3 {
				s.await(time.Second)
			}
			require.Equal(t, c.cold, s.cold.on.Load(), c.name)
			require.Equal(t, c.cold, s.fits == 1, c.name)
			require.Equal(t, c.few, s.pool.maxGrown == maxColdWorkers, c.name)
			require.Equal(t, c.grows, s.pool.limit > 2, c.name)
		})
	}
}

// Directories that come from the page cache for long are listed by as many as there are, and end the cold mode if nothing but
// metadata is asked of the disk first. A slow call takes that back, a quick one does not.
func TestQuickCallsOnADisk(t *testing.T) {
	testtree.NotInColdMode(t, "which does not end")
	testtree.Set(t, &knobs.SlowCall, 100*time.Microsecond)
	for _, looks := range []bool{false, true} {
		for _, disk := range []int32{diskSlow, diskNone} {
			inBubble(t, func(t *testing.T) {
				s := newColdStand(t, config{statFirst: looks})
				s.cold.on.Store(true)
				s.cold.waitsFor.Store(disk)
				for k := range 3 * quickInARow {
					s.meter.lists.untimed = 0
					s.await(0)
					was := k+1 >= quickInARow && disk == diskSlow
					require.Equal(t, was, s.cold.callsNow.Load() == pendingMost, k)
					require.Equal(t, !(was && looks), s.cold.on.Load(), k)
				}
				s.meter.lists.untimed = 0
				s.await(knobs.SlowCall)
				require.Equal(t, disk == diskSlow, s.cold.callsNow.Load() == pendingMost)
				s.meter.lists.untimed = 0
				s.await(knobs.SlowCall + 1)
				require.EqualValues(t, pendingMin, s.cold.callsNow.Load())
			})
		}
	}
}

// Which files are listed ahead: what is to be looked at, and what is to be read once nobody is to be asked any more.
func TestWhatIsListedAhead(t *testing.T) {
	for _, c := range []struct {
		name   string
		config config
		stage  stage
		takes  bool
		looks  bool
	}{
		{"content", config{}, stageListed, true, false},
		{"names", config{noRead: true}, stageListed, false, false},
		{"metadata", config{noRead: true, stat: true}, stageListed, true, true},
		{"metadata was looked at", config{noRead: true, stat: true}, stageAsked, false, false},
		{"to be asked", config{statFirst: true}, stageListed, true, true},
		{"asked", config{statFirst: true}, stageAsked, true, false},
		{"asked about names", config{statFirst: true, files: slices.Values([]string{})}, stageListed, false, false},
		{"asked about names before", config{statFirst: true, files: slices.Values([]string{})}, stageAsked, true, false},
	} {
		for _, on := range []bool{false, true} {
			for _, ordered := range []bool{false, true} {
				for _, taken := range []int{0, 1, 3, 4} {
					s, n := newColdStand(t, c.config), &node{refs: 1}
					s.cold.on.Store(on)
					if ordered {
						s.cold.disk = nil
					}
					b := &batch{node: n, entries: make([]names.Name, 3), inodes: make([]uint64, 3), stage: c.stage}
					b.next.Store(int64(taken))
					want := c.takes && on && !ordered
					require.Equal(t, want, s.cold.takes(b), c.name)
					require.Equal(t, want, s.cold.listAhead(b), c.name)
					left := 0
					if want {
						left = max(0, 3-taken)
					}
					require.Equal(t, left, s.files, c.name)
					require.Equal(t, left, n.refs-1)
					require.Equal(t, c.looks && left > 0, s.looks > 0, c.name)
					require.Equal(t, c.looks, s.cold.looksAt(b), c.name)
				}
			}
		}
	}
	s := newColdStand(t, config{})
	s.cold.on.Store(true)
	require.False(t, s.cold.listAhead(&batch{nodes: make([]*node, 1), entries: make([]names.Name, 1)}), "a window was")
}

// Files that waited for the end of all listings need a worker when the cold mode ends.
func TestEndOfTheColdModeWakesAWorker(t *testing.T) {
	testtree.NotInColdMode(t, "which does not end")
	synctest.Test(t, func(t *testing.T) {
		c := newColdCrew(oneDirectory(1), 2, 8, 9)
		c.dirs.cold.pool = c.pool
		c.pool.begun, c.pool.partly = true, 1 // worker 0 lists a directory
		c.dirs.stack = nil
		var visited []string
		c.pool.start = func(id int) work { return noter{fakeWorker{c, id}, &visited} }
		c.dirs.addFiles(&node{}, false, []names.Name{names.New("0/0/0")}, []uint64{1})
		c.pool.wake()
		synctest.Wait()
		require.Empty(t, visited)
		c.dirs.cold.leave()
		synctest.Wait()
		require.Equal(t, []string{"0/0/0"}, visited)
		c.pool.stop()
		c.pool.wait()
	})
}

// Who wants less than another that waits does not come first. What is more than the pace is asked for alone, not never.
func TestTurnsOvertakeNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := new(coldMode)
		c.calls.pace.files = 16
		got := map[int]turn{}
		acquire := func(k, wanted int) {
			go func() { got[k] = c.calls.acquire(t.Context(), wanted, nil) }()
			synctest.Wait()
		}
		release := func(k int) {
			c.releaseCall(got[k], 0)
			synctest.Wait()
		}
		acquire(0, 100)
		require.Equal(t, 100, got[0].files)
		acquire(1, 8)
		require.Len(t, got, 1)
		release(0)
		require.Equal(t, 8, got[1].files)
		acquire(2, 16)
		acquire(3, 4)
		require.Len(t, got, 2, "although there is room for the last")
		release(1)
		require.Len(t, got, 3)
		require.Equal(t, 16, got[2].files)
		release(2)
		require.Equal(t, 4, got[3].files)
		release(3)
		require.Zero(t, c.calls.pending)
	})
}

// Up to a few files, a window that takes long by itself is a reason not to ask for more; above, what was pending in all counts.
func TestPaceOfFewFiles(t *testing.T) {
	for files, want := range map[int]int{pendingFew: pendingFew, 2 * pendingFew: 4 * pendingFew} {
		c := new(coldMode)
		c.begin(4, content.WindowMax)
		c.windows.pace.files = files
		c.window.Store(content.WindowMax)
		c.acquire(t.Context(), files/2)
		c.release(c.acquire(t.Context(), files/2), longWindow*3/4)
		require.Equal(t, want, c.windows.pace.files)
	}
}

// One call or window that began before the pace changed says nothing of the new one. One window at a time is read as long as calls
// are made one by one, or were just before.
func TestPaceOfOneHead(t *testing.T) {
	testtree.Set(t, &knobs.SlowCall, 100*time.Microsecond)
	c := new(coldMode)
	c.begin(8, content.WindowMax)
	c.releaseCall(c.acquireCall(t.Context()), time.Millisecond)
	require.False(t, c.windows.pace.alone)
	for files, alone := range map[int]bool{callFiles: true, 2 * callFiles: false, 4 * callFiles: false} {
		c.oneHead = false
		c.calls.pace = pace{files: files}
		c.releaseCall(c.acquireCall(t.Context()), longCall)
		require.Equal(t, alone, c.windows.pace.alone || c.oneHead, files)
		c.oneHead = true
		c.windows.readAlone(true)
		c.calls.pace = pace{files: files}
		c.releaseCall(c.acquireCall(t.Context()), longCall)
		require.Equal(t, files <= 2*callFiles, c.windows.pace.alone, files)
		require.Equal(t, files <= 2*callFiles, c.oneHead, files)
		c.windows.readAlone(false)
	}
	c.calls.pace = pace{files: 2 * callFiles}
	before := c.acquireCall(t.Context())
	c.calls.pace = pace{files: 4 * callFiles}
	c.releaseCall(before, time.Hour)
	require.Equal(t, pace{files: 4 * callFiles}, c.calls.pace)
	require.Zero(t, c.calls.pending)
}

// The bounds of what makes a pace quicker and slower.
func TestPaceAfterCalls(t *testing.T) {
	testtree.Set(t, &knobs.SlowCall, 100*time.Microsecond)
	for _, c := range []struct {
		was     pace
		pending int
		took    time.Duration
		want    pace
	}{
		{pace{files: 8}, 8, knobs.SlowCall, pace{files: 8}},
		{pace{files: 8}, 8, knobs.SlowCall + 1, pace{files: 8, quick: 1}},
		{pace{files: 8}, 8, longCall, pace{files: 8, quick: 1}},
		{pace{files: 8}, 8, longCall + 1, pace{files: 8, long: 1}},
		{pace{files: 8}, 4, longCall / 2, pace{files: 8, quick: 1}},
		{pace{files: 8}, 4, longCall/2 + 1, pace{files: 8}},
		{pace{files: 8, long: longInARow - 1}, 8, longCall, pace{files: 8, quick: 1}},
		{pace{files: 8, long: longInARow - 1}, 8, time.Hour, pace{files: callFiles, slowed: true}},
		{pace{files: 8, long: longAgain - 1}, 8, time.Hour, pace{files: 8, long: longAgain}},
		{pace{files: 8, long: longAgain - 1, slowed: true}, 8, time.Hour, pace{files: callFiles, slowed: true}},
		{pace{files: pendingMost, quick: quickInARow - 1}, pendingMost, time.Millisecond, pace{files: pendingMost}},
	} {
		require.Equal(t, c.want, c.was.nextCall(c.pending, c.took), "%+v, %d, %s", c.was, c.pending, c.took)
	}
	for was, want := range map[pace]int{
		{files: 4}: pendingMin, {files: 2 * pendingMin}: pendingMin, {files: 40}: 20, {files: 2*content.WindowMax + 2}: content.WindowMax,
		{files: 4, alone: true}: pendingMin, {files: 40, alone: true}: 40, {files: content.WindowMax + 1, alone: true}: content.WindowMax,
	} {
		require.Equal(t, want, was.window(), "%+v", was)
	}
}
