package fileproc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

// compareRels is comparePaths for paths relative to root.
func compareRels(a, b string) int {
	return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/"))
}

// A yielded is one value that a loop over Stream or Walk got.
type yielded struct {
	rel string
	err error
}

// ordered loops over Stream, or over Walk if fn is nil, until each returns false.
func (w *world) ordered(ctx context.Context, opts Options, fn func(*File) error, each func(yielded) bool) (report Report) {
	opts.openRoot, opts.Ordered, opts.Report = w.openRoot, true, &report
	of := func(rel string, err error) yielded {
		var p *fs.PathError
		if err != nil && errors.As(err, &p) {
			rel = strings.TrimPrefix(strings.ReplaceAll(strings.TrimPrefix(p.Path, "root"), `\`, "/"), "/")
		}
		return yielded{rel, err}
	}
	if fn == nil {
		for e, err := range Walk(ctx, "root", opts) {
			if !each(of(e.Rel(), err)) {
				break
			}
		}
		return report
	}
	for rel, err := range Stream(ctx, "root", opts, func(f *File) (string, error) { return f.Rel(), fn(f) }) {
		if !each(of(rel, err)) {
			break
		}
	}
	return report
}

// collect loops and keeps all values.
func collect(all *[]yielded) func(yielded) bool {
	return func(r yielded) bool { *all = append(*all, r); return true }
}

func requireOrder(t *testing.T, all []yielded) {
	t.Helper()
	for i := 1; i < len(all); i++ {
		if all[i].rel != "" { // except at the run's own end
			require.LessOrEqual(t, compareRels(all[i-1].rel, all[i].rel), 0, "%q before %q", all[i-1].rel, all[i].rel)
		}
	}
}

// paths returns the paths of all files, or of all entries, in order.
func (w *world) paths(dirs bool) []string {
	all := []string{}
	var add func(o *object, at string)
	add = func(o *object, at string) {
		for _, k := range o.kids {
			if k.mode != fs.ModeDir || dirs {
				all = append(all, at+k.name)
			}
			add(k, at+k.name+"/")
		}
	}
	add(w.root, "")
	slices.SortFunc(all, compareRels)
	return all
}

func goOn(*File) error { return nil }

// mixed has a directory longer than a span, empty ones, and names that sort differently from their paths.
func mixed() *object {
	root := folder("", folder("b", file("x", "x")), file("b-", "1"), file("b.d", "2"), folder("b-d", file("y", "y")), folder("empty", folder("too")))
	big := folder("big")
	for i := range 3*spanSize + 7 {
		big.kids = append(big.kids, file(fmt.Sprintf("f%d", i), fmt.Sprint(i)))
		if i%50 == 0 {
			big.kids = append(big.kids, folder(fmt.Sprintf("f%dd", i), file("in", "in")))
		}
	}
	last := folder("z", folder("only", folder("only", folder("deep", file("f", "f")))))
	root.kids = append(root.kids, big, last, file("a", "a"))
	return root
}

func TestOrderedIsInOrder(t *testing.T) {
	for name, tree := range map[string]func() *object{"mixed": mixed, "forest": forest} {
		everyWorld(t, tree, func(t *testing.T, w *world, workers int) {
			for _, slow := range []string{"", "fn", "loop"} {
				for _, names := range [][]string{nil, {".ignore"}} {
					for _, walk := range []bool{false, true} {
						opts := Options{Workers: workers, IgnoreFiles: names, OneFilesystem: names != nil}
						var got []string
						fn := func(*File) error {
							if slow == "fn" {
								time.Sleep(time.Millisecond)
							}
							return nil
						}
						if walk {
							fn = nil
						}
						report := w.ordered(t.Context(), opts, fn, func(r yielded) bool {
							require.NoError(t, r.err)
							got = append(got, r.rel)
							if slow == "loop" {
								time.Sleep(time.Millisecond)
							}
							return true
						})
						require.Equal(t, w.paths(walk), got, name)
						require.Empty(t, w.wrong)
						require.Zero(t, w.open, "handles left open")
						requireLedger(t, report)
					}
				}
			}
		})
	}
}

// Files that fail are yielded in their place.
func TestOrderedFailures(t *testing.T) {
	everyWorld(t, small, func(t *testing.T, w *world, workers int) {
		var all []yielded
		report := w.ordered(t.Context(), Options{Workers: workers}, func(f *File) error {
			if f.Name() == "b" {
				return errBroken
			}
			return nil
		}, collect(&all))
		var rels []string
		for _, r := range all {
			rels = append(rels, r.rel)
		}
		require.Equal(t, []string{"a", "d/b", "d/e/c", "d/e/u", "few", "gone", "long", "x"}, rels)
		require.ErrorIs(t, all[1].err, errBroken)
		require.ErrorIs(t, all[5].err, fs.ErrNotExist)
		require.ErrorIs(t, all[7].err, fs.ErrNotExist)
		require.Empty(t, w.wrong)
		require.Zero(t, w.open)
		requireLedger(t, report)
	})
}

func TestOrderedFewDescriptors(t *testing.T) {
	for limit := 3; limit <= 6; limit++ {
		for _, workers := range []int{1, 2, 3, 16} {
			for _, names := range [][]string{nil, {"f", "g"}} {
				inBubble(t, func(t *testing.T) {
					w := &world{root: forest(), limit: limit, scarce: scarceErrors[0]}
					var all []yielded
					report := w.ordered(t.Context(), Options{Workers: workers, IgnoreFiles: names}, func(*File) error { time.Sleep(time.Millisecond); return nil }, collect(&all))
					requireOrder(t, all)
					var got []string
					for _, r := range all {
						require.NoError(t, r.err)
						got = append(got, r.rel)
					}
					require.Equal(t, w.paths(false), got)
					require.Empty(t, w.wrong)
					require.Zero(t, w.open)
					requireLedger(t, report)
					require.Equal(t, limit, w.most, "this tests nothing if the limit is never reached")
				})
			}
		}
	}
}

// TestOrderedEndsAtEachCall: whatever ends a run, at any call of the backend, the results are in order, nothing is
// left, and the ledger is balanced.
func TestOrderedEndsAtEachCall(t *testing.T) {
	for _, end := range []string{"cancel", "panic", "Goexit"} {
		for _, workers := range []int{1, 3} {
			for _, walk := range []bool{false, true} {
				for k := 0; ; k++ {
					reached := false
					inBubble(t, func(t *testing.T) {
						root := small()
						root.kids[1].kids = append(root.kids[1].kids, file(".ignore", "nothing"))
						w := &world{root: root}
						ctx, cancel := context.WithCancelCause(t.Context())
						defer cancel(nil)
						w.onCall = func(i int) {
							if i != k {
								return
							}
							reached = true
							switch end {
							case "cancel":
								cancel(errBroken)
							case "panic":
								panic("in the backend")
							case "Goexit":
								runtime.Goexit()
							}
						}
						fn := goOn
						if walk {
							fn = nil
						}
						var all []yielded
						var report Report
						done := make(chan struct{})
						go func() {
							defer close(done)
							defer func() { _ = recover() }()
							report = w.ordered(ctx, Options{Workers: workers, IgnoreFiles: []string{".ignore"}}, fn, collect(&all))
						}()
						<-done
						requireOrder(t, all)
						if end == "cancel" {
							require.Empty(t, w.wrong)
							require.Zero(t, w.open)
							requireLedger(t, report)
						}
					})
					if !reached {
						require.Greater(t, k, 15)
						break
					}
				}
			}
		}
	}
}

// A worker that lists a directory while its visit waits for a descriptor sends the visit's result where it belongs.
func TestOrderedListingDuringAVisit(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := &world{root: small()}
		cfg, err := (&Options{}).config("root", false)
		require.NoError(t, err)
		r := newRun(t.Context(), cfg, callbacks{openRoot: w.openRoot}, newOrdered(1))
		worker := r.startWorker(0)
		ok, err := r.open(worker)
		require.NoError(t, err)
		require.True(t, ok)
		at := position{span: new(span), file: 3}
		worker.pos = at
		worker.scan(r.first)
		require.Equal(t, at, worker.pos)
		r.finish(time.Now())
	})
}

// After a cancel the loop gets what is ready, also behind a directory that will not be listed.
func TestOrderedGivesWhatIsReadyBehindAGap(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		w := &world{root: folder("", folder("d", file(".ignore", "x"), file("f", "")), folder("e", file("g", "")))}
		w.during = func(call, name string) {
			if call == "list" && name == "d" {
				time.Sleep(time.Second) // e has been processed by then
				cancel(errBroken)
			}
		}
		var all []yielded
		w.ordered(ctx, Options{Workers: 3, IgnoreFiles: []string{".ignore"}}, goOn, collect(&all))
		require.Len(t, all, 2)
		require.Equal(t, yielded{"e/g", nil}, all[0])
		require.ErrorIs(t, all[1].err, errBroken)
	})
}

// TestOrderedEndsAtEachResult: the same holds if the loop or fn ends the run.
func TestOrderedEndsAtEachResult(t *testing.T) {
	stops := map[string]func(){"panic": func() { panic(errBroken) }, "Goexit": runtime.Goexit}
	for _, end := range []string{"break", "loop panic", "loop Goexit", "fn panic", "fn Goexit", "SkipAll", "OnError"} {
		for _, workers := range []int{1, 3, 16} {
			for k := range 200 {
				if k > 12 && k%41 != 0 {
					continue
				}
				inBubble(t, func(t *testing.T) {
					w := &world{root: mixed(), perList: 100}
					var n atomic.Int64
					opts := Options{Workers: workers}
					misbehave := func(who string) {
						if stop := stops[strings.TrimPrefix(end, who+" ")]; stop != nil && strings.HasPrefix(end, who) && n.Add(1) == int64(k+1) {
							stop()
						}
					}
					fn := func(*File) error {
						misbehave("fn")
						switch {
						case end == "SkipAll" && n.Add(1) == int64(k+1):
							return fs.SkipAll
						case end == "OnError" && n.Add(1) == int64(k+1):
							return errBroken
						}
						return nil
					}
					if end == "OnError" {
						opts.OnError = func(err error) error { return err }
					}
					var all []yielded
					var report Report
					done := make(chan struct{})
					returned := false
					go func() {
						defer close(done)
						defer func() { _ = recover() }()
						opts.openRoot, opts.Ordered, opts.Report = w.openRoot, true, &report
						for rel, err := range Stream(t.Context(), "root", opts, func(f *File) (string, error) { return f.Rel(), fn(f) }) {
							all = append(all, yielded{rel, err})
							if end == "break" && len(all) == k+1 {
								break
							}
							misbehave("loop")
						}
						returned = true
					}()
					<-done
					require.Equal(t, !strings.Contains(end, "panic") && !strings.Contains(end, "Goexit"), returned, end)
					requireOrder(t, all)
					require.Empty(t, w.wrong)
					require.Zero(t, w.open, "handles left open")
					requireLedger(t, report)
				})
			}
		}
	}
}

// TestOrderedWindow: if the loop, or the file that it waits for, blocks, the workers go on up to a limit.
func TestOrderedWindow(t *testing.T) {
	for i, workers := range []int{1, 2, 16} {
		for j, stalls := range []string{"loop", "fn"} {
			for k, perDir := range []int{1, 10, 5000} {
				if !testtree.Takes(i + 2*j + k) {
					continue
				}
				inBubble(t, func(t *testing.T) {
					if workers == 1 && stalls == "fn" {
						return // no other worker can go on
					}
					root := folder("")
					for d := range 5000 / perDir {
						dir := folder(fmt.Sprintf("d%04d", d))
						for f := range perDir {
							dir.kids = append(dir.kids, file(fmt.Sprintf("f%04d", f), ""))
						}
						root.kids = append(root.kids, dir)
					}
					w := &world{root: root, perList: 1000}
					var calls atomic.Int64
					release := make(chan struct{})
					first := true
					go func() {
						synctest.Wait()
						limit := newOrdered(workers).limit
						// The loop took all results that were ready with the first one; up to a span may be begun in their place.
						most := limit + spanSize
						if stalls == "loop" {
							most += limit
						}
						if n := int(calls.Load()); n > most || n < limit/3 {
							t.Errorf("%d workers, %d a directory, %s: %d calls, not up to %d", workers, perDir, stalls, n, most)
						}
						close(release)
					}()
					var got []string
					w.ordered(t.Context(), Options{Workers: workers}, func(f *File) error {
						calls.Add(1)
						if stalls == "fn" && f.Rel() == "d0000/f0000" {
							<-release
						}
						return nil
					}, func(r yielded) bool {
						if first && stalls == "loop" {
							first = false
							<-release
						}
						got = append(got, r.rel)
						return true
					})
					require.Equal(t, w.paths(false), got)
				})
			}
		}
	}
}

// TestOrderedMemory: delivered results are released.
func TestOrderedMemory(t *testing.T) {
	const results = 20_000
	sizes := []int{10, 500, results}
	if sys.Race { // under the race detector, which has nothing to say of memory
		sizes = sizes[1:2]
	}
	for _, perDir := range sizes {
		root := folder("")
		for d := range results / perDir {
			dir := folder(fmt.Sprintf("d%04d", d))
			for f := range perDir {
				dir.kids = append(dir.kids, file(fmt.Sprintf("f%05d", f), ""))
			}
			root.kids = append(root.kids, dir)
		}
		w := &world{root: root, perList: 1000}
		live := func() int64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		n, early, late := 0, int64(0), int64(0)
		opts := Options{Workers: 2, Ordered: true, openRoot: w.openRoot}
		for _, err := range Stream(t.Context(), "root", opts, func(*File) (*[1 << 10]byte, error) { return new([1 << 10]byte), nil }) {
			require.NoError(t, err)
			switch n++; n {
			case results / 4:
				early = live()
			case results - 100:
				late = live()
			}
		}
		require.Equal(t, results, n)
		require.Less(t, late-early, int64(4<<20), "bytes more after 15,000 results of 1 KiB, %d in a directory", perDir)
	}
}

// TestOrderedBegunAnew: a directory that is begun again, as when descriptors are short, counts once.
func TestOrderedBegunAnew(t *testing.T) {
	q := newOrdered(1)
	root := jobFor("", 0)
	q.begin([]*job{root}, nil)
	for range 3 {
		_, j := q.take(0, 1)
		require.Same(t, root, j)
		require.Equal(t, 1, q.begun)
		q.add(j, scanResult{state: scanAgain})
		require.Zero(t, q.begun)
	}
	_, j := q.take(2, 2)
	require.Nil(t, j, "as many as may be are partly listed")
	require.Zero(t, q.pending(2, 2))
	require.Equal(t, 1, q.pending(1, 2))
}

// A worker that has sent a file's result does not lock the queue for the file once more.
func TestOrderedLocksOnceForAResult(t *testing.T) {
	q := newOrdered(1)
	q.mu.Lock()
	q.visited(&position{sent: true})
	q.mu.Unlock()
}

// TestOrderedGoesOnBehindSkippedFiles: a file without a result takes no room in the window.
func TestOrderedGoesOnBehindSkippedFiles(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		root := folder("")
		for i := range 4000 {
			root.kids = append(root.kids, file(fmt.Sprintf("f%04d", i), ""))
		}
		w := &world{root: root, perList: 1000}
		var all []yielded
		report := w.ordered(t.Context(), Options{Workers: 2}, func(f *File) error {
			if f.Name() != "f3999" {
				return ErrSkip
			}
			return nil
		}, collect(&all))
		require.Equal(t, []yielded{{rel: "f3999"}}, all)
		require.EqualValues(t, 3999, report.Skipped[SkippedByFunc])
	})
}

// A latecomer is an fs.FS in which the directory a gives its entries only when ready is closed.
type latecomer struct {
	fstest.MapFS
	ready chan struct{}
}

func (l latecomer) Open(name string) (fs.File, error) {
	f, err := l.MapFS.Open(name)
	if name == "a" {
		return lateDir{f.(fs.ReadDirFile), l.ready}, err
	}
	return f, err
}

type lateDir struct {
	fs.ReadDirFile
	ready chan struct{}
}

func (d lateDir) ReadDir(n int) ([]fs.DirEntry, error) {
	<-d.ready
	return d.ReadDirFile.ReadDir(n)
}

// TestOrderedWindowIsOpenForTheNext: the next span is begun even if later ones have filled the window.
func TestOrderedWindowIsOpenForTheNext(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tree := latecomer{fstest.MapFS{}, make(chan struct{})}
		for i := range 2000 {
			tree.MapFS[fmt.Sprintf("b/%04d", i)] = &fstest.MapFile{}
		}
		for i := range 300 {
			tree.MapFS[fmt.Sprintf("a/%04d", i)] = &fstest.MapFile{}
		}
		time.AfterFunc(time.Second, func() { close(tree.ready) }) // in the bubble: once all others wait
		got := 0
		for rel, err := range Stream(t.Context(), ".", Options{FS: tree, Workers: 2, Ordered: true}, func(f *File) (string, error) { return f.Rel(), nil }) {
			require.NoError(t, err)
			if got < 300 {
				require.Equal(t, fmt.Sprintf("a/%04d", got), rel)
			}
			got++
		}
		require.Equal(t, 2300, got)
	})
}

func TestSortUntil(t *testing.T) {
	random := func() []int { return rand.New(rand.NewPCG(1, 1)).Perm(200_000) }
	s := random()
	total := 0
	names.SortUntil(s, func(a, b int) int { total++; return a - b }, func() bool { return false })
	require.True(t, slices.IsSorted(s))
	for _, end := range []int{0, 1000, 100_000, 1_000_000} {
		s, calls := random(), 0
		names.SortUntil(s, func(a, b int) int { calls++; return a - b }, func() bool { return calls >= end })
		require.LessOrEqual(t, calls, end+1024)
		require.False(t, slices.IsSorted(s))
		slices.Sort(s)
		for i := range s {
			require.Equal(t, i, s[i], "nothing is lost")
		}
	}
	require.Greater(t, total, 2_000_000)
}

func TestSortOfADirectoryIsNotWaitedFor(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	entries := make([]bufferedEntry, 100_000)
	for i := range entries {
		entries[i].name = names.New(fmt.Sprint(len(entries) - i))
	}
	w := &worker{shared: &shared{order: newOrdered(1), resources: resources{ctx: ctx}}}
	s := scanner{w: w, job: &job{buffer: &entryBuffer{entries: entries}}}
	s.classifyBuffer()
	require.False(t, slices.IsSortedFunc(entries, func(a, b bufferedEntry) int { return strings.Compare(a.name.String(), b.name.String()) }))
}

// A run in order that has not begun, since root cannot be opened, starts no worker when its outlet is closed.
func TestOrderedStartsNoWorkerAfterItsEnd(t *testing.T) {
	opts := Options{Workers: 4, Ordered: true}
	cfg, err := opts.config(filepath.Join(t.TempDir(), "missing"), false)
	require.NoError(t, err)
	order := newOrdered(cfg.workers)
	out := &orderedOutlet[int]{ordered: order}
	calls := opts.callbacks()
	calls.fn = func(*File) error { return nil }
	r := newRun(t.Context(), cfg, calls, order)
	stream[int](out, r.execute, r.stop, func(int, error) bool { return true })
	r.pool.mu.Lock()
	defer r.pool.mu.Unlock()
	require.Equal(t, 1, r.pool.started)
}

// The loop wakes for the span that it waits for, and no other.
func TestOrderedWakesForTheNextSpan(t *testing.T) {
	var spans []*span
	for range 2 {
		b := &batch{entries: make([]names.Name, 2)}
		spans = append(spans, &span{batch: b, files: 2})
	}
	q := orderedOutlet[int]{ordered: newOrdered(1)}
	q.head, spans[0].next = spans[0], spans[1]
	q.waiting = true
	q.send(&position{span: spans[1], file: 0}, false, 1, nil)
	q.visited(&position{span: spans[1], file: 1})
	require.True(t, q.waiting)
	q.visited(&position{span: spans[0], file: 1})
	require.False(t, q.waiting)
}

// A directory that is not listed does not keep back what comes behind it.
func TestOrderedGoesOnBehindADirectoryThatIsTooDeep(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const files = 2000 // more than workers may be ahead
		w := &world{root: crowd(files, 0)}
		w.root.kids = append(w.root.kids, folder("!", file("a", "")))
		n := 0
		for _, err := range Stream(t.Context(), "root", Options{Workers: 1, Ordered: true, MaxDepth: 1, openRoot: w.openRoot}, relOf) {
			require.NoError(t, err)
			n++
		}
		require.Equal(t, files, n)
		require.Zero(t, w.open)
	})
}
