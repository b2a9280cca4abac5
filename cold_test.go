package fileproc

import (
	"context"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fileproc/fileproc/internal/backend"
	"github.com/fileproc/fileproc/internal/content"
	"github.com/fileproc/fileproc/internal/knobs"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/pace"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

// callsAtFirst is how many calls are made at the same time while nothing is known of a disk.
var callsAtFirst = newPace(0).Calls()

// newPace returns the pace of a disk of which nothing is known.
func newPace(window int) *pace.Disk {
	p := new(pace.Disk)
	p.Init(window)
	return p
}

// setOn turns the cold mode on or off, and nothing else.
func (c *coldMode) setOn(on bool) {
	if on {
		c.happens(&filesWait)
	} else {
		c.happens(&filesCached)
	}
}

// fillWindows lets windows have n files, as a disk does that was quick.
func (c *coldMode) fillWindows(n int) {
	c.pace.LimitWindows(n)
	for c.pace.Window() < n {
		c.pace.ReleaseWindow(c.pace.AcquireWindow(context.Background(), n), 0)
	}
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
				require.LessOrEqual(t, calls.most, callsAtFirst)
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
		require.Equal(t, callsAtFirst, first.most)
		require.GreaterOrEqual(t, all.most, 16)
	})
}

// Cold, files are looked at in the order of the disk while directories are listed.
func TestStatsAreInTheOrderOfTheDisk(t *testing.T) {
	testtree.Set(t, &knobs.AlwaysCold, true)
	sortChunks(t, 8)
	for name, opts := range map[string]Options{
		"metadata alone": {ReadSize: NoRead, Stat: true},
		"Unchanged":      {hooks: hooks{Unchanged: func(*File) bool { return true }}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := &world{root: crowd(200, 0), perList: 10, single: true}
				var mu sync.Mutex
				lists, listsBefore := 0, 0
				var statted []uint64
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
						if len(statted) == 0 {
							listsBefore = lists
						}
						statted = append(statted, uint64(crc32.ChecksumIEEE([]byte(name))))
					}
				}
				opts.Workers = 2
				out := w.process(t.Context(), opts, nil)
				require.NoError(t, out.err)
				require.Len(t, out.got, 200)
				require.Len(t, statted, 200)
				require.Equal(t, 4, listsBefore, "of 20, which give ten each")
				require.True(t, slices.IsSorted(statted[:statFrom*chunkSize]))
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

// However many workers come and go, windows take the memory of few.
func TestWindowsAreFew(t *testing.T) {
	for _, workers := range []int{2, maxColdWorkers + 3} {
		made := 0
		testtree.Set(t, &newWindow, func(content.Want, bool, *pace.Disk) *content.Window {
			made++
			return new(content.Window)
		})
		var c coldMode
		c.init(&config{workers: workers}, nil, nil, nil, content.WindowMax)
		for k := range max(workers, maxColdWorkers) {
			require.NotNil(t, c.acquireWindow())
			require.Equal(t, k+1, made)
		}
		require.Nil(t, c.acquireWindow())
		again := new(content.Window)
		c.releaseWindow(again)
		require.Same(t, again, c.acquireWindow())
		require.Empty(t, c.windows)
		require.Equal(t, max(workers, maxColdWorkers), made)
	}
}

// A window that happens to be cached ends the cold mode. The next may wait for the disk again, and then no more workers
// read than before: those beyond maxColdWorkers would have no windowReader.
func TestColdModeLeavesThePoolSmall(t *testing.T) {
	r := newRun(t.Context(), config{workers: 2, mayGrow: true}, callbacks{}, nil)
	r.cold.setOn(true)
	r.pool.limitGrowth(maxColdWorkers)
	r.pool.stopped.Store(true) // so that it starts none of the workers that it may have
	w := &worker{shared: &r.shared}
	knobs.AlwaysCold = false
	defer func() { knobs.AlwaysCold = testtree.Cold }()
	w.cold.turnOff()
	require.False(t, r.cold.isOn())
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
	calls.fn = func(f *File) error {
		if f.name.String() == "a" {
			r := toFetch{workerOf(f), &batch{node: f.node, entries: []names.Name{f.name, f.name}}, 0}
			r.OpenIn(scarceWindow{}, 2)
			require.Zero(t, workerOf(f).cold.pace.Window())
			require.Equal(t, int32(pinIdle), f.w.pin.state.Load())
			f.w.run.dirs.evictAll()
			require.Equal(t, 1, w.open, "root alone")
			checked = true
		}
		return nil
	}
	require.NoError(t, newRun(t.Context(), cfg, calls, nil).execute())
	require.True(t, checked)
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
	for _, mode := range []string{"cold", "turned on at each third file, off at each fifth"} {
		for _, window := range []int{0, 1, 5, content.WindowMax} {
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
							workerOf(f).cold.pace.LimitWindows(window)
						}
						if mode != "cold" && visits%3 == 0 {
							workerOf(f).cold.setOn(true)
						}
						if mode != "cold" && visits%5 == 0 {
							workerOf(f).cold.setOn(false)
							f.w.run.pool.wake()
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
	require.False(t, c.tryTurnOn(&pin, b, 0), "it is on no disk")
	require.False(t, c.isOn())
	require.EqualValues(t, pinIdle, pin.state.Load())
	s.evictAll()
	require.Equal(t, 1, s.world.open, "root alone")
	w := s.world
	w.root.kids[0].gone = true
	require.False(t, c.tryTurnOn(&pin, b, 0), "it is not there any more")
	require.False(t, c.isOn())
	require.EqualValues(t, pinNone, pin.state.Load())
	s.end(t)
}

// The cold mode is turned on where files are read or statted in the order of the disk, and not without either.
func TestEnterOnlyForWhatADiskIsReadFor(t *testing.T) {
	testtree.NotInColdMode(t, "where it is turned on")
	for name, opts := range map[string]Options{"content": {}, "metadata": {ReadSize: NoRead, Stat: true}, "names": {ReadSize: NoRead}} {
		for _, ordered := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/ordered=%v", name, ordered), func(t *testing.T) {
				root := t.TempDir()
				require.True(t, testtree.Make(t, root, "f=content"))
				opts.Workers = 1
				calls, turnedOn := opts.callbacks(), 0
				calls.fn = func(f *File) error {
					c := &workerOf(f).cold
					onDisk := backend.DiskOf(f.w.run.root.dir).Kind != content.NotOnDisk
					want := onDisk && (name == "content" || name == "metadata" && !ordered)
					b := &batch{node: f.node, entries: []names.Name{f.name}, inodes: []uint64{1}}
					require.Equal(t, want, c.tryTurnOn(&f.w.pin, b, 0))
					require.Equal(t, want, c.isOn())
					require.NotEqual(t, int32(pinInUse), f.w.pin.state.Load())
					require.Equal(t, want, c.tryTurnOn(&f.w.pin, b, 0))
					turnedOn++
					return nil
				}
				cfg, err := opts.config(root, false)
				require.NoError(t, err)
				r, ahead := newRun(t.Context(), cfg, calls, nil), &shelf{}
				if r.cold.ahead = ahead; ordered { // as if no files were listed ahead
					r.cold.ahead = nil
				}
				require.NoError(t, r.execute())
				require.Equal(t, 1, turnedOn)
				if cold := r.cold.isOn(); cold {
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
		cold.cfg, cold.ahead, cold.pool, cold.dirs = &config{}, c.dirs, c.pool, new(dirCache)
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

// Files that are in a half of a batch are not given back with the others.
func TestFilesOfAHalfAreNotListedAhead(t *testing.T) {
	s, n := newColdStand(t, config{}), &node{refs: 1}
	s.cold.setOn(true)
	b := batchOf(2 * content.AheadFrom)
	b.node, b.inodes = n, make([]uint64, len(b.entries))
	require.True(t, b.halve(&batch{}))
	require.True(t, s.cold.listAhead(b))
	require.Equal(t, content.AheadFrom, s.files)
	require.Equal(t, 1+content.AheadFrom, n.refs)
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
			require.NoError(t, r.cold.await(t.Context(), &m, &m.opens, func() backend.Directory { return &worldDir{w: w, o: w.root} }, func() (int, error) {
				time.Sleep(takes)
				return 1, nil
			}))
			require.Zero(t, m.waited)
			require.Equal(t, takes > 0, r.pool.limit > 2, "the call blocks")
			require.True(t, r.cold.pace.IsIdle())
		})
	}
}

// Between the large files of a window a worker keeps its slot, which each needs to be read: it could not go on while all others
// have windows of files that wait for it. Between other files it lets others call fn.
func TestSlotBetweenLargeFiles(t *testing.T) {
	dir := t.TempDir()
	for name, size := range map[string]int{"large": 2 * content.MaxFree, "small": 100} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), make([]byte, size), 0o644))
	}
	cfg, err := (&Options{Workers: 1, Suffixes: []string{"large"}}).config(dir, false)
	require.NoError(t, err)
	var r *run
	r = newRun(t.Context(), cfg, callbacks{fn: func(f *File) error {
		w, n := workerOf(f), f.node
		r.pool.extra.Add(1)
		defer r.pool.extra.Add(-1)
		for _, b := range []*batch{{nodes: []*node{n}}, {node: n}} {
			require.True(t, w.acquireSlot())
			require.NoError(t, w.loadTimed(&File{w: &w.access, node: n, name: names.New("small")}, b, 0))
			require.Equal(t, b.isWindow(), w.slot != noSlot)
		}
		require.True(t, w.acquireSlot())
		return nil
	}}, nil)
	require.NoError(t, r.execute())
}

// A shelf is listedAhead, and counts.
type shelf struct {
	files, toStat, fits int
}

func (s *shelf) addFiles(_ *node, toStat bool, files []names.Name, _ []uint64) {
	if s.files += len(files); toStat {
		s.toStat += len(files)
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
	s.cold.ahead = s.shelf
	return s
}

// await makes a call that takes this long, and reports whether it took a turn.
func (s *coldStand) await(takes time.Duration) (turn bool) {
	s.Helper()
	s.took = takes
	err := s.cold.await(s.ctx, &s.meter, &s.meter.lists, func() backend.Directory { return s.root.dir }, func() (int, error) {
		s.calls++
		time.Sleep(s.took)
		turn = !s.cold.pace.IsIdle()
		return 1, s.err
	})
	require.Equal(s.T, s.err, err)
	require.True(s.T, s.cold.pace.IsIdle())
	return turn
}

// While nothing is known of what calls wait for, those that are timed take a turn; on a disk all do, until they have been quick
// for long; and where there is none, none does.
func TestCallsThatTakeATurn(t *testing.T) {
	testtree.NotInColdMode(t, "where that is known")
	testtree.Set(t, &knobs.SlowCall, 100*time.Microsecond)
	for _, c := range []struct {
		state              coldState
		untimed, unblocked int
		takes              bool
	}{
		{warmUnknown, 0, 0, true}, {warmUnknown, 0, shrinkAfter, true}, {coldUnknown, 0, 0, true}, {warmUnknown, 1, 0, false},
		{warmDisk, 0, shrinkAfter, true}, {warmDisk, 1, 0, true}, {coldDisk, 1, shrinkAfter - 1, true}, {warmDisk, 1, shrinkAfter, false},
		{warmRemote, 0, 0, false}, {coldRemote, 0, 0, false}, {warmRemote, 1, 0, false},
	} {
		inBubble(t, func(t *testing.T) {
			s := newColdStand(t, config{})
			s.cold.state.Store(int32(c.state))
			s.cold.pace.CallsAreCached()
			many := s.cold.pace.Calls()
			s.meter.lists.untimed, s.meter.unblocked = c.untimed, c.unblocked
			require.Equal(t, c.takes, s.await(time.Second), "%+v", c)
			require.Equal(t, c.takes, s.cold.pace.Calls() != many, "what is no disk has no pace")
			want := c.state
			if c.takes && want.isUnknown() {
				want = waitsForElse[want]
			}
			require.Equal(t, want, s.cold.now())
		})
	}
	inBubble(t, func(t *testing.T) {
		s := newColdStand(t, config{})
		for range s.cold.pace.Calls() {
			s.cold.pace.AcquireCall(s.ctx)
		}
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
		state     coldState
		err       error
		ordered   bool // files are not listed ahead
		cold, few bool
		grows     bool
	}{
		{"content", config{}, warmDisk, nil, false, false, true, true},
		{"names", config{noRead: true}, warmDisk, nil, false, false, false, true},
		{"metadata", config{noRead: true, stat: true}, warmDisk, nil, false, true, true, true},
		{"metadata in order", config{noRead: true, stat: true}, warmDisk, nil, true, false, false, true},
		{"metadata and content", config{statFirst: true}, warmDisk, nil, false, true, true, true},
		{"metadata and content in order", config{statFirst: true}, warmDisk, nil, true, false, true, true},
		{"no disk", config{statFirst: true}, warmRemote, nil, false, false, false, true},
		{"a failure", config{}, warmDisk, errBroken, false, false, false, false},
	} {
		inBubble(t, func(t *testing.T) {
			s := newColdStand(t, c.config)
			if c.ordered {
				s.cold.ahead = nil
			}
			most := s.pool.maxGrown
			require.Greater(t, most, maxColdWorkers)
			s.cold.state.Store(int32(c.state))
			s.err = c.err
			for range 3 {
				s.await(time.Second)
			}
			require.Equal(t, c.cold, s.cold.isOn(), c.name)
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
	for _, statFirst := range []bool{false, true} {
		for _, state := range []coldState{coldDisk, coldRemote} {
			inBubble(t, func(t *testing.T) {
				s := newColdStand(t, config{statFirst: statFirst})
				s.cold.state.Store(int32(state))
				s.cold.pace.ReleaseCall(s.cold.pace.AcquireCall(s.ctx), knobs.SlowCall+1)
				for k := range 3 * quickCalls {
					s.meter.lists.untimed = 0
					s.await(0)
					was := k+1 >= quickCalls && state == coldDisk
					require.Equal(t, was, s.cold.pace.Calls() > callsAtFirst, k)
					require.Equal(t, !(was && statFirst), s.cold.isOn(), k)
				}
				s.meter.lists.untimed = 0
				s.await(knobs.SlowCall)
				require.Equal(t, state == coldDisk, s.cold.pace.Calls() > callsAtFirst)
				s.meter.lists.untimed = 0
				s.await(knobs.SlowCall + 1)
				require.Equal(t, callsAtFirst, s.cold.pace.Calls())
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
		toStat bool
	}{
		{"content", config{}, stageListed, true, false},
		{"names", config{noRead: true}, stageListed, false, false},
		{"metadata", config{noRead: true, stat: true}, stageListed, true, true},
		{"metadata is known", config{noRead: true, stat: true}, stageAsked, false, false},
		{"to be asked", config{statFirst: true}, stageListed, true, true},
		{"asked", config{statFirst: true}, stageAsked, true, false},
		{"asked about names", config{statFirst: true, files: slices.Values([]string{})}, stageListed, false, false},
		{"asked about names before", config{statFirst: true, files: slices.Values([]string{})}, stageAsked, true, false},
	} {
		for _, on := range []bool{false, true} {
			for _, ordered := range []bool{false, true} {
				for _, taken := range []int{0, 1, 3, 4} {
					s, n := newColdStand(t, c.config), &node{refs: 1}
					s.cold.setOn(on)
					if ordered {
						s.cold.ahead = nil
					}
					b := &batch{node: n, entries: make([]names.Name, 3), inodes: make([]uint64, 3), stage: c.stage}
					b.next.Store(int64(taken))
					want := c.takes && on && !ordered
					require.Equal(t, want, s.cold.listsAhead(b), c.name)
					require.Equal(t, want, s.cold.listAhead(b), c.name)
					left := 0
					if want {
						left = max(0, 3-taken)
					}
					require.Equal(t, left, s.files, c.name)
					require.Equal(t, left, n.refs-1)
					require.Equal(t, c.toStat && left > 0, s.toStat > 0, c.name)
					require.Equal(t, c.toStat, s.cold.statsNext(b), c.name)
				}
			}
		}
	}
	s := newColdStand(t, config{})
	s.cold.setOn(true)
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
		c.dirs.cold.turnOff()
		synctest.Wait()
		require.Equal(t, []string{"0/0/0"}, visited)
		c.pool.stop()
		c.pool.wait()
	})
}

// What is known of slow calls stays, whatever becomes of the files, and the other way around. Few directories are partly listed where
// both wait for a disk.
func TestColdStates(t *testing.T) {
	for state := range coldState(len(coldEvent{})) {
		for event, e := range map[string]*coldEvent{"filesWait": &filesWait, "filesCached": &filesCached, "waitsForDisk": &waitsForDisk, "waitsForElse": &waitsForElse} {
			var c coldMode
			c.init(&config{workers: 1}, nil, nil, nil, content.WindowMax)
			c.state.Store(int32(state))
			limited := c.maxListings() == callsAtFirst
			require.Equal(t, state.isCold() && state.isDisk(), limited)
			c.happens(e)
			got := c.now()
			switch event {
			case "filesWait", "filesCached":
				require.Equal(t, event == "filesWait", c.isOn())
				require.Equal(t, []bool{state.isUnknown(), state.isDisk(), state.isRemote()}, []bool{got.isUnknown(), got.isDisk(), got.isRemote()})
			case "waitsForDisk", "waitsForElse":
				require.Equal(t, state.isCold(), c.isOn())
				require.Equal(t, state.isDisk() || state.isUnknown() && event == "waitsForDisk", got.isDisk())
				require.Equal(t, !got.isDisk(), got.isRemote())
			}
		}
	}
}

// Where no windows are read, a worker takes a few files of the queue at a time all the same.
func TestFilesTakenTogether(t *testing.T) {
	var c coldMode
	c.init(&config{workers: 1}, nil, nil, nil, content.WindowMax)
	require.Equal(t, c.pace.Window(), c.together())
	c.fillWindows(content.WindowMax)
	require.Equal(t, content.WindowMax, c.together())
	c.pace.LimitWindows(0)
	require.Equal(t, filesAlone, c.together())
}

// Files have the device of their directory in the cold mode, and need none otherwise.
func TestDeviceOfFilesOnADisk(t *testing.T) {
	for _, cold := range []bool{false, true} {
		testtree.Set(t, &knobs.AlwaysCold, cold)
		for _, opts := range []Options{{}, {Files: slices.Values([]string{"d/a"})}} {
			w := &world{root: folder("", folder("d", file("a", "")))}
			w.find("d").device = 7
			out := w.process(t.Context(), opts, func(f *File) error {
				require.Equal(t, cold, f.node.device == 7)
				return nil
			})
			require.NoError(t, out.err)
			require.Len(t, out.got, 1)
			w.requireSound(t, out)
		}
	}
}

// A directory is listed in parts by workers that have nothing to do, and by more only if it waits for a disk.
func TestPartsWanted(t *testing.T) {
	c := new(coldMode)
	most, onDisk := c.partsWanted()
	require.Equal(t, math.MaxInt, most)
	require.False(t, onDisk)
	c.happens(&waitsForDisk)
	most, onDisk = c.partsWanted()
	require.LessOrEqual(t, most, mostParts)
	require.True(t, onDisk)
}
