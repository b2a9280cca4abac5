package fileproc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fileproc/fileproc/internal/backend"
	"github.com/fileproc/fileproc/internal/content"
	"github.com/fileproc/fileproc/internal/descriptors"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

func TestFaultsFewDescriptors(t *testing.T) {
	want := (&world{root: forest()}).contents()
	fn := map[string]func(*File) error{
		"":     nil,
		"stat": func(f *File) error { _, err := f.Stat(); return err },
		"open": func(f *File) error {
			if _, err := f.Open(); !errors.Is(err, errors.ErrUnsupported) {
				return err
			}
			return nil
		},
		"slow": func(*File) error { time.Sleep(3 * time.Millisecond); return nil },
	}
	// The least is three: root, a directory, and what is opened in it.
	for limit := 3; limit <= 8; limit++ {
		for _, workers := range []int{1, 2, 3, 8, 16} {
			for name, fn := range fn {
				t.Run(fmt.Sprintf("limit=%d/workers=%d/%s", limit, workers, name), func(t *testing.T) {
					inBubble(t, func(t *testing.T) {
						w := &world{root: forest(), limit: limit, scarce: scarceErrors[limit%len(scarceErrors)]}
						start := time.Now()
						out := w.process(t.Context(), Options{Workers: workers}, fn)
						require.NoError(t, out.err)
						require.Empty(t, out.failed)
						w.requireSound(t, out)
						require.Equal(t, want, out.got)
						require.Equal(t, limit, w.most, "this tests nothing if the limit is never reached")
						require.Less(t, time.Since(start), descriptorPatience)
					})
				})
			}
		}
	}
}

func TestFaultsFewDescriptorsForThreeRuns(t *testing.T) {
	want := (&world{root: forest()}).contents()
	// The least is five: three roots, a directory, and what is opened in it.
	for limit := 5; limit <= 8; limit++ {
		for _, workers := range []int{1, 2, 5, 16} {
			t.Run(fmt.Sprintf("limit=%d/workers=%d", limit, workers), func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					w := &world{root: forest(), limit: limit, scarce: scarceErrors[0]}
					var outs [3]outcome
					var wg sync.WaitGroup
					for i := range outs {
						wg.Go(func() {
							outs[i] = w.process(t.Context(), Options{Workers: workers}, func(*File) error {
								time.Sleep(time.Millisecond) // so that the runs get in each other's way
								return nil
							})
						})
					}
					wg.Wait()
					for _, out := range outs {
						require.NoError(t, out.err)
						require.Empty(t, out.failed)
						w.requireSound(t, out)
						require.Equal(t, want, out.got)
					}
				})
			})
		}
	}
}

// The worker that makes all others wait for a descriptor must not wait for the loop over the results, which may wait too.
func TestFaultsScarceRunWaitsForNoLoop(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const files = 3 * bufferPerWorker // more than the result buffer holds, and then a directory, which only listing finds
		big := folder("big")
		for i := range files {
			big.kids = append(big.kids, file(fmt.Sprint(i), ""))
		}
		big.kids = append(big.kids, folder("end"))
		waits := folder("waits").with(opening(slices.Repeat([]error{scarceErrors[0]}, 100)...))
		w := &world{root: folder("", big, waits), eager: true}
		w.during = func(what, name string) {
			if what == "openDir" && strings.HasPrefix(name, "big") {
				time.Sleep(100 * time.Millisecond) // until a worker waits
			}
		}
		inner := &world{root: folder("", file("a", "alpha", opening(scarceErrors[0], scarceErrors[0])))}
		n := 0
		for _, err := range Walk(t.Context(), "root", Options{Workers: 2, openRoot: w.openRoot}) {
			require.NoError(t, err)
			if n++; n == 1 {
				time.Sleep(time.Second) // until the result buffer is full
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				out := inner.process(ctx, Options{Workers: 1}, nil)
				cancel()
				require.NoError(t, out.err)
			}
		}
		require.Equal(t, files+3, n)
		require.Empty(t, fdTurn)
	})
}

// That worker does not wait for OnError either, which may run something that waits for a descriptor too.
func TestFaultsScarceRunWaitsForNoOnError(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		waits := file("waits", "", opening(slices.Repeat([]error{scarceErrors[0]}, 100)...))
		w := &world{root: folder("", waits), perList: 1}
		for i := range 2 {
			w.root.kids = append(w.root.kids, folder(fmt.Sprint("part-way", i), file("slow", ""), file("more", "")).with(listFails(1, errBroken)))
		}
		inner := &world{root: folder("", file("a", "alpha", opening(scarceErrors[0], scarceErrors[0])))}
		told := 0
		opts := Options{Workers: 3, OnError: func(err error) error {
			require.ErrorIs(t, err, errBroken)
			told++
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			return inner.process(ctx, Options{Workers: 1}, nil).err
		}}
		out := w.process(t.Context(), opts, func(f *File) error {
			if f.Name() == "slow" {
				time.Sleep(time.Second) // the worker that waits for a descriptor lists the rest of both directories
			}
			return nil
		})
		require.NoError(t, out.err)
		require.Equal(t, 2, told)
		require.EqualValues(t, 2, out.report.Failed)
		w.requireSound(t, out)
		require.Empty(t, fdTurn)
	})
}

// Nor does it wait for OnSkip, which may do the same, to report a failure without OnError.
func TestFaultsScarceRunWaitsForNoOnSkip(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		waits := file("waits", "", opening(slices.Repeat([]error{scarceErrors[0]}, 100)...))
		partWay := folder("part-way", file("slow", ""), file("more", "")).with(listFails(1, errBroken))
		w := &world{root: folder("", waits, partWay, file(".hidden", "")), perList: 1, eager: true}
		w.during = func(what, name string) {
			if what == "open" && name == "waits" {
				time.Sleep(time.Second) // until OnSkip and slow run
			}
		}
		inner := &world{root: folder("", file("a", "alpha", opening(scarceErrors[0], scarceErrors[0])))}
		told := false
		err := ForEach(t.Context(), "root", Options{Workers: 3, SkipHidden: true, openRoot: w.openRoot, OnSkip: func(Entry, SkipReason) {
			time.Sleep(5 * time.Second) // until the worker that waits lists the rest of part-way
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			require.NoError(t, inner.process(ctx, Options{Workers: 1}, nil).err)
			told = true
		}}, func(f *File) error {
			if f.Name() == "slow" {
				time.Sleep(10 * time.Second)
			}
			return nil
		})
		require.True(t, told)
		require.ErrorIs(t, err, errBroken)
		require.Empty(t, fdTurn)
	})
}

// Each failure of a directory that is listed to its end because descriptors are short reaches OnError, once.
func TestFaultsFewDescriptorsAndFailingListings(t *testing.T) {
	for _, workers := range []int{2, 5} {
		inBubble(t, func(t *testing.T) {
			w := &world{root: folder(""), perList: 1}
			for i := range 12 {
				waits := file("waits", "", opening(slices.Repeat([]error{scarceErrors[0]}, 10)...))
				w.root.kids = append(w.root.kids, folder(fmt.Sprint("d", i), waits, file("slow", ""), file("more", "")).with(listFails(2, errBroken)))
			}
			out := w.process(t.Context(), Options{Workers: workers}, func(f *File) error {
				time.Sleep(time.Millisecond)
				return nil
			})
			require.NoError(t, out.err)
			w.requireSound(t, out)
			require.Len(t, out.failed, 12)
		})
	}
}

// busy is a directory in which every second open of a subdirectory fails with err.
type busy struct {
	backend.Directory
	opens *atomic.Int32
	err   error
}

func (b busy) OpenDir(name names.Name) (backend.Directory, error) {
	if name == names.Dot { // a look whether there are descriptors
		return b.Directory.OpenDir(name)
	}
	if b.opens.Add(1)%2 == 1 {
		return nil, &sys.Error{Op: "openat", Err: b.err}
	}
	return b.Directory.OpenDir(name)
}

// The metadata of a directory behind a link takes no further descriptor.
func TestFaultsFewDescriptorsForLinks(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "t", ".hidden", "d"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "t", ".hidden", "d", "f"), nil, 0o644))
	testtree.Symlink(t, filepath.Join("t", ".hidden", "d"), filepath.Join(dir, "l"))
	for _, scarce := range append(slices.Clone(scarceErrors), leasedErrors...) {
		var opens atomic.Int32
		opts := Options{Symlinks: SymlinksFollow, MaxDepth: 2, Stat: true, openRoot: func(root string) (backend.Directory, error) {
			d, err := backend.OpenRoot(root)
			return busy{d, &opens, scarce}, err
		}}
		var got []string
		for e, err := range Walk(t.Context(), dir, opts) {
			require.NoError(t, err)
			if e.Rel() == "l" {
				s, _ := e.Stat()
				require.True(t, s.Mode.IsDir())
			}
			got = append(got, e.Rel())
		}
		slices.Sort(got)
		require.Equal(t, []string{"l", "l/f", "t", "t/.hidden"}, got)
		require.Greater(t, opens.Load(), int32(5))
	}
}

// A run counts as open while it is, and lets others evict its directories, however it ends.
func TestRunsOpenIsZeroAtTheEnd(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "f"), nil, 0o644))
	before := descriptors.RunsOpen.Load() // 0, unless a test has been given up
	shared := descriptors.Holders.Len()
	for name, run := range map[string]func(root string){
		"complete": func(root string) {
			require.NoError(t, ForEach(t.Context(), root, Options{}, func(*File) error {
				require.Equal(t, before+1, descriptors.RunsOpen.Load())
				return ForEach(t.Context(), root, Options{}, func(*File) error {
					require.Equal(t, before+2, descriptors.RunsOpen.Load())
					require.Equal(t, shared+2, descriptors.Holders.Len())
					return nil
				})
			}))
		},
		"of an FS, without descriptors": func(root string) {
			require.NoError(t, ForEach(t.Context(), ".", Options{FS: os.DirFS(root)}, func(*File) error {
				require.Equal(t, before, descriptors.RunsOpen.Load())
				require.Equal(t, shared, descriptors.Holders.Len())
				return nil
			}))
		},
		"no root": func(root string) {
			require.ErrorIs(t, ForEach(t.Context(), filepath.Join(root, "none"), Options{}, func(*File) error { return nil }), fs.ErrNotExist)
		},
		"panic": func(root string) {
			require.Panics(t, func() { _ = ForEach(t.Context(), root, Options{}, func(*File) error { panic("here") }) })
		},
		"Goexit": func(root string) {
			var wg sync.WaitGroup
			wg.Go(func() { _ = ForEach(t.Context(), root, Options{}, func(*File) error { runtime.Goexit(); return nil }) })
			wg.Wait()
		},
		"cancelled": func(root string) {
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(errBroken)
			require.ErrorIs(t, ForEach(ctx, root, Options{}, func(*File) error { return nil }), errBroken)
		},
		"break": func(root string) {
			for range Walk(t.Context(), root, Options{}) {
				break
			}
		},
	} {
		run(dir)
		require.Equal(t, before, descriptors.RunsOpen.Load(), name)
		require.Equal(t, shared, descriptors.Holders.Len(), "%s: caches that others would evict from for ever", name)
	}
}

// A retry uses the directories that the previous try opened on its way down: n is less than the number of levels.
func TestFaultsEveryNthOpen(t *testing.T) {
	want := (&world{root: forest()}).contents()
	for _, nth := range []int{2, 3, 4, 5, 7} {
		for _, workers := range []int{1, 4} {
			inBubble(t, func(t *testing.T) {
				w := &world{root: forest(), nth: nth, scarce: scarceErrors[0]}
				out := w.process(t.Context(), Options{Workers: workers}, nil)
				require.NoError(t, out.err)
				require.Empty(t, out.failed)
				w.requireSound(t, out)
				require.Equal(t, want, out.got)
			})
		}
	}
}

// A try that gets further is followed by the next at once, however deep the tree is.
func TestFaultsRetryThatGetsFurther(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var above []*object
		dir := folder("d", file("f", "f"))
		for range 40 {
			above = append(above, dir)
			dir = folder("d", dir)
		}
		w := &world{root: folder("", dir), eager: true}
		out := w.process(t.Context(), Options{Workers: 1}, func(f *File) error {
			f.w.run.dirs.evictAll()
			w.mu.Lock()
			for _, o := range above {
				o.openErr = []error{scarceErrors[0]}
			}
			w.mu.Unlock()
			start := time.Now()
			_, err := f.restat()
			require.Zero(t, time.Since(start))
			return err
		})
		require.NoError(t, out.err)
		require.Len(t, out.got, 1)
		for _, o := range above {
			require.Empty(t, o.openErr)
		}
		w.requireSound(t, out)
	})
}

// A directory is closed once its contents have been listed and visited, and not only when too many are open.
func TestFaultsDirectoriesAreClosedWhenDone(t *testing.T) {
	testtree.NotInColdMode(t, "directories stay open until their files are read")
	root := folder("")
	for i := range 20 {
		root.kids = append(root.kids, folder(fmt.Sprint("d", i), file("f", "f"), folder("sub", file("g", "g"), folder("empty"))))
	}
	inBubble(t, func(t *testing.T) {
		w := &world{root: root}
		out := w.process(t.Context(), Options{Workers: 1}, nil)
		w.requireSound(t, out)
		require.Len(t, out.got, 40)
		require.LessOrEqual(t, w.most, 5, "root, one directory a level, and a file")
	})
}

// While descriptors are scarce, no directory stays open for later: a descriptor freed for one worker would be taken by the
// next one that goes through many directories.
func TestFaultsScarceRunKeepsNothingOpen(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		root := forest()
		root.kids = append([]*object{file("x", "x", opening(slices.Repeat([]error{scarceErrors[0]}, 20)...))}, root.kids...)
		w := &world{root: root, perList: 100}
		most := 0
		waiting := func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return len(root.kids[0].openErr) < 18 && len(root.kids[0].openErr) > 0
		}
		out := w.process(t.Context(), Options{Workers: 2}, func(*File) error {
			time.Sleep(time.Millisecond)
			if waiting() {
				w.mu.Lock()
				most = max(most, w.open)
				w.mu.Unlock()
			}
			return nil
		})
		require.NoError(t, out.err)
		w.requireSound(t, out)
		require.Positive(t, most)
		require.LessOrEqual(t, most, 4, "root, the directory of the other worker, and those on the way to it")
	})
}

// A directory whose file has failed does not stay open while OnError runs, if another worker needs a descriptor.
func TestFaultsFewDescriptorsWhileOnErrorRuns(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		bad := file("x", "x", readFails(0, errBroken))
		w := &world{root: folder("", folder("d", bad, file("y", "y")), folder("e", file("f", "f"))), perList: 100, limit: 3, scarce: scarceErrors[0]}
		w.during = func(call, name string) {
			if call == "openDir" && name == "e" { // until OnError runs
				time.Sleep(time.Second)
			}
		}
		start, got := time.Now(), map[string]time.Duration{}
		out := w.process(t.Context(), Options{Workers: 2, OnError: func(error) error {
			time.Sleep(10 * time.Second)
			return nil
		}}, func(f *File) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			got[f.Rel()] = time.Since(start)
			return nil
		})
		require.NoError(t, out.err)
		w.requireSound(t, out)
		require.Less(t, got["e/f"], 5*time.Second)
	})
}

// If no descriptor becomes free, the error is reported after patience, and the next operation waits as long.
func TestFaultsPatience(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for i := range 3 {
			never := opening(slices.Repeat([]error{scarceErrors[0]}, 10000)...)
			w := &world{root: folder("", file("a", "alpha"), file("x", "x", never), folder("y").with(never), file("z", "z", never))}
			start := time.Now()
			out := w.process(t.Context(), Options{Workers: i + 1}, nil)
			took := time.Since(start)
			require.NoError(t, out.err)
			w.requireSound(t, out)
			require.Equal(t, map[string]string{"a": "alpha"}, out.got)
			require.Len(t, out.failed, 3)
			for p, err := range out.failed {
				require.ErrorIs(t, err, scarceErrors[0], p)
			}
			require.GreaterOrEqual(t, took, 3*descriptorPatience)
			require.Less(t, took, 3*descriptorPatience+time.Second)
		}
	})
}

func TestFaultsRootWithoutDescriptors(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := &world{root: folder("", file("a", "alpha")).with(opening(slices.Repeat([]error{scarceErrors[0]}, 9)...))}
		out := w.process(t.Context(), Options{}, nil)
		require.NoError(t, out.err)
		require.Equal(t, map[string]string{"a": "alpha"}, out.got)

		w.root.openErr = slices.Repeat([]error{scarceErrors[0]}, 10000)
		out = w.process(t.Context(), Options{}, nil)
		require.NoError(t, out.err)
		require.ErrorIs(t, out.failed[""], scarceErrors[0])
		w.requireSound(t, out)

		w.root.openErr = []error{fs.ErrPermission}
		out = w.process(t.Context(), Options{}, nil)
		require.ErrorIs(t, out.failed[""], fs.ErrPermission)
		w.requireSound(t, out)
	})
}

// A run that waits for a descriptor or a lease ends when it is cancelled, root's open too.
func TestFaultsCancelWhileWaiting(t *testing.T) {
	for _, err := range append(slices.Clone(scarceErrors), leasedErrors...) {
		for _, what := range []string{"root", "file", "directory", "in fn"} {
			t.Run(what, func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					never := opening(slices.Repeat([]error{err}, 10000)...)
					w := &world{root: folder("", file("a", "alpha"))}
					var fn func(f *File) error
					switch what {
					case "root":
						w.root.with(never)
					case "file":
						w.root.kids = append(w.root.kids, file("x", "x", never), file("y", "y", never))
					case "directory":
						w.root.kids = append(w.root.kids, folder("x").with(never), folder("y").with(never))
					case "in fn":
						fn = func(f *File) error {
							w.find("a").openErr = slices.Repeat([]error{err}, 10000)
							_, err := f.Open()
							return err
						}
					}
					ctx, cancel := context.WithCancelCause(t.Context())
					time.AfterFunc(time.Second, func() { cancel(errBroken) })
					start := time.Now()
					out := w.process(ctx, Options{Workers: 2}, fn)
					require.ErrorIs(t, out.err, errBroken)
					require.Equal(t, time.Second, time.Since(start))
					if what != "in fn" { // where the failure is fn's
						require.Empty(t, out.failed, "an operation cut short by the end of the run is no failure")
					}
					w.requireSound(t, out)
				})
			})
		}
	}
}

// If the run ends during a wait for the descriptor for a directory's metadata, that is no failure.
func TestFaultsCancelWhileWalkWaits(t *testing.T) {
	was := descriptorBudget
	defer func() { descriptorBudget = was }()
	descriptorBudget = func() budget { return budget{listings: 1} }
	inBubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		w := &world{root: folder("", folder("d", folder("sub", file("f", "x"))), folder("e")), scarce: syscall.EMFILE}
		var report Report
		opts := Options{Stat: true, Workers: 1, Report: &report, openRoot: w.openRoot, SelectDir: func(e Entry) bool {
			if e.Name() == "sub" {
				w.mu.Lock()
				w.limit = w.open
				w.mu.Unlock()
				time.AfterFunc(time.Second, func() { cancel(errBroken) })
			}
			return true
		}}
		var failed []error
		for _, err := range Walk(ctx, "root", opts) {
			if err != nil {
				failed = append(failed, err)
			}
		}
		require.Equal(t, []error{errBroken}, failed)
		require.Zero(t, report.Failed)
		requireLedger(t, report)
	})
}

// TestFaultsPanicWhileOthersWait: a worker that waits for a descriptor does not delay the panic of another.
func TestFaultsPanicWhileOthersWait(t *testing.T) {
	testtree.NotInColdMode(t, "a window of three files begins one head start later")
	inBubble(t, func(t *testing.T) {
		never := opening(slices.Repeat([]error{scarceErrors[0]}, 10000)...)
		w := &world{root: folder("", file("a", "alpha"), file("x", "x", never), file("y", "y", never))}
		start := time.Now()
		require.Panics(t, func() {
			w.process(t.Context(), Options{Workers: 3}, func(f *File) error {
				time.Sleep(time.Second)
				panic("the caller's own mistake")
			})
		})
		require.Equal(t, time.Second, time.Since(start))
	})
}

// A worker that waits for its turn, or has it, closes again and again what workers of its run leave open meanwhile.
func TestFaultsScarceRunGivesUpAgain(t *testing.T) {
	testtree.NotInColdMode(t, "a window closes its directory before fn runs")
	for _, hasTurn := range []bool{false, true} {
		inBubble(t, func(t *testing.T) {
			w := &world{root: folder("", file("waits", "", opening(slices.Repeat([]error{scarceErrors[0]}, 100)...)), folder("d", file("slow", "")))}
			w.during = func(what, name string) {
				if what == "open" && name == "slow" {
					time.Sleep(time.Second) // the other worker waits by then
				}
			}
			if !hasTurn {
				fdTurn <- struct{}{}
			}
			out := w.process(t.Context(), Options{Workers: 2}, func(f *File) error {
				if f.Name() == "slow" {
					time.Sleep(3 * turnPause)
					w.mu.Lock()
					defer w.mu.Unlock()
					require.Equal(t, 1, w.open, "root alone")
					require.NotEmpty(t, w.root.kids[0].openErr, "the other worker waits no more")
					if !hasTurn {
						<-fdTurn
					}
				}
				return nil
			})
			require.NoError(t, out.err)
			require.Len(t, out.got, 2)
			w.requireSound(t, out)
		})
	}
}

// A run that waits for a descriptor in a callback of another gets those which that one can do without.
func TestFaultsNestedRunGetsWhatTheOtherKeeps(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tree := func() *object { return folder("", folder("d", folder("e", file("f", "content")))) }
		w := &world{eager: true, root: tree(), limit: 4, scarce: scarceErrors[0]} // two roots, a directory, and what is opened in it
		start := time.Now()
		out := w.process(t.Context(), Options{Workers: 1}, func(*File) error {
			inner := w.process(t.Context(), Options{Workers: 1}, nil)
			require.Len(t, inner.got, 1)
			require.Empty(t, inner.failed)
			return inner.err
		})
		require.NoError(t, out.err)
		w.requireSound(t, out)
		require.Less(t, time.Since(start), descriptorPatience)
	})
}

// On the goroutine of any worker, and of the loop over a Stream or Walk, nesting is how many runs there are around what begins.
func TestNesting(t *testing.T) {
	was := descriptors.Limit
	defer func() { descriptors.Limit = was }()
	descriptors.Limit = func() uint64 { return 1000 }
	root := t.TempDir()
	for i := range 2 {
		require.NoError(t, os.WriteFile(filepath.Join(root, fmt.Sprint(i)), nil, 0o644))
	}
	require.Zero(t, descriptors.Nesting())
	var begin func(level int)
	begin = func(level int) {
		if level > descriptors.Levels {
			return
		}
		var both sync.WaitGroup // both workers call fn
		both.Add(2)
		require.NoError(t, ForEach(t.Context(), root, Options{Workers: 2, ReadSize: NoRead}, func(f *File) error {
			both.Done()
			both.Wait()
			require.Equal(t, min(level, descriptors.Levels), descriptors.Nesting())
			if f.Name() == "0" {
				begin(level + 1)
			}
			return nil
		}))
		for _, err := range Stream(t.Context(), root, Options{ReadSize: NoRead}, func(f *File) (int, error) {
			require.Equal(t, min(level, descriptors.Levels), descriptors.Nesting())
			return 0, nil
		}) {
			require.NoError(t, err)
			require.Equal(t, min(level, descriptors.Levels), descriptors.Nesting())
		}
	}
	begin(1)
}

// Files that report a lease, an interrupt or scarcity for ever keep nobody from the others, and wait at the same time. They fail in the end.
func TestFaultsFilesThatAreNeverReady(t *testing.T) {
	for _, never := range append(slices.Clone(leasedErrors), scarceErrors...) {
		for name, opts := range map[string]Options{"one worker": {Workers: 1}, "two": {Workers: 2}, "stat": {Workers: 2, Stat: true}, "select": {Workers: 2, Select: func(*File) bool { return true }}} {
			t.Run(fmt.Sprintf("%v/%s", never, name), func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					const stuck, others = 6, 60
					w := &world{root: folder(""), hasSpare: true}
					for i := range others {
						if i%(others/stuck) == 0 {
							w.root.kids = append(w.root.kids, file(fmt.Sprint("stuck", i), "", opening(slices.Repeat([]error{never}, 1_000_000)...)))
						}
						w.root.kids = append(w.root.kids, folder(fmt.Sprint("d", i), file("f", "f")))
					}
					w.root.kids = append(w.root.kids, folder("stuck").with(opening(slices.Repeat([]error{never}, 1_000_000)...)))
					start := time.Now()
					var last atomic.Int64
					var busy, most, fns atomic.Int32
					out := w.process(t.Context(), opts, func(f *File) error {
						if f.Worker() >= opts.Workers {
							return errors.New("a worker too many")
						}
						if n := busy.Add(1); n > most.Load() {
							most.Store(n)
						}
						last.Store(int64(time.Since(start)))
						time.Sleep(time.Microsecond)
						busy.Add(-1)
						fns.Add(1)
						return nil
					})
					require.NoError(t, out.err)
					require.EqualValues(t, others, fns.Load())
					require.EqualValues(t, others, out.report.Processed)
					require.EqualValues(t, stuck+1, out.report.Failed)
					require.LessOrEqual(t, int(most.Load()), opts.Workers)
					require.Less(t, last.Load(), int64(descriptorPatience/2))
					require.Less(t, time.Since(start), 2*leasePatience)
					w.requireSound(t, out)
				})
			})
		}
	}
}

// never lets each open fail with err.
func never(err error) func(*object) { return opening(slices.Repeat([]error{err}, 10_000)...) }

// The same holds for what is read beside the files, and for what takes memory.
func TestFaultsWhatElseIsNeverReady(t *testing.T) {
	ignores := Options{IgnoreFiles: []string{".ignore"}}
	given := func(names ...string) Options {
		return Options{IgnoreFiles: ignores.IgnoreFiles, Files: slices.Values(names)}
	}
	var interrupt error
	for _, err := range leasedErrors {
		if sys.IsInterrupted(err) {
			interrupt = err
		}
	}
	if interrupt == nil {
		t.Skip("no call is interrupted")
	}
	large := strings.Repeat("x", content.MaxFree+10)
	for name, tt := range map[string]struct {
		stuck func() *object
		opts  Options
		path  string // of what opts.Files name in each
	}{
		"ignore file":    {stuck: func() *object { return folder("", file(".ignore", "", never(interrupt))) }, opts: ignores},
		"ignore file, E": {stuck: func() *object { return folder("", file(".ignore", "", never(scarceErrors[0]))) }, opts: ignores},
		"listing":        {stuck: func() *object { return folder("").with(listFails(-1, interrupt)) }},
		"identity":       {stuck: func() *object { o := folder(""); o.idErr = interrupt; return o }, opts: Options{Symlinks: SymlinksFollow}},
		"type": {stuck: func() *object {
			return folder("", file("?", "", unknown, func(o *object) { o.statErr = interrupt }))
		}},
		"look at an ignore file": {stuck: func() *object {
			return folder("", file("f", ""), file(".ignore", "", func(o *object) { o.statErr = interrupt }))
		}, opts: given(), path: "f"},
		"large file": {stuck: func() *object { return folder("", file("large", large, readFails(content.MaxFree, scarceErrors[0]))) }},
	} {
		for workers := 1; workers <= 2; workers++ {
			t.Run(fmt.Sprintf("%s/%d", name, workers), func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					const stuck, others = 4, 40
					w := &world{root: folder(""), hasSpare: true, eager: true, perList: 100}
					w.during = func(what, name string) {
						if what == "open" && name == "good" {
							time.Sleep(10 * time.Millisecond) // meanwhile the others are tried again, and get the slot
						}
					}
					opts, paths := tt.opts, []string{}
					for i := range others {
						if i%(others/stuck) == 0 {
							o := tt.stuck()
							o.name = fmt.Sprint("stuck", i)
							w.root.kids = append(w.root.kids, o)
							paths = append(paths, o.name+"/"+tt.path)
						}
						w.root.kids = append(w.root.kids, folder(fmt.Sprint("d", i), file("good", "")))
						paths = append(paths, fmt.Sprint("d", i, "/good"))
					}
					opts.Workers, opts.openRoot, opts.OnError = workers, w.openRoot, func(error) error { return nil }
					if opts.Files != nil {
						opts.Files = slices.Values(paths)
					}
					start := time.Now()
					good := 0
					var last time.Duration
					_ = ForEach(t.Context(), t.TempDir(), opts, func(f *File) error {
						if f.Name() == "good" {
							w.mu.Lock()
							defer w.mu.Unlock()
							good++
							last = max(last, time.Since(start))
						}
						return nil
					})
					require.Equal(t, others, good)
					require.Less(t, last, descriptorPatience/2)
					require.Less(t, time.Since(start), 3*leasePatience, "an ignore file is a file, too")
					require.Empty(t, w.wrong)
					require.Zero(t, w.open)
				})
			})
		}
	}
}

// A directory takes no more than one worker that waits, while others of its files are to be visited.
func TestFaultsManyFilesThatAreNeverReady(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := &world{root: folder(""), eager: true, perList: 1000}
		for i := range mostAside + 40 {
			w.root.kids = append(w.root.kids, folder(fmt.Sprint("d", i), file("1", "", never(leased(t))), file("2", ""), file("3", "")))
		}
		start, soon := time.Now(), 0
		out := w.process(t.Context(), Options{Workers: 2}, func(f *File) error {
			if time.Since(start) < leasePatience/2 {
				w.mu.Lock()
				soon++
				w.mu.Unlock()
			}
			return nil
		})
		require.NoError(t, out.err)
		require.GreaterOrEqual(t, soon, 2*mostAside)
		require.Len(t, out.got, 2*(mostAside+40))
		w.requireSound(t, out)
	})
}

// leased returns the error of a file with a lease.
func leased(t *testing.T) error {
	if len(leasedErrors) == 0 {
		t.Skip("there are no leases")
	}
	return leasedErrors[0]
}

// Workers that wait aside keep nothing open between their tries.
func TestFaultsFilesThatAreNeverReadyKeepNothingOpen(t *testing.T) {
	testtree.NotInColdMode(t, "what is listed ahead stays open")
	inBubble(t, func(t *testing.T) {
		w := &world{root: folder(""), eager: true, perList: 100}
		for i := range 50 {
			w.root.kids = append(w.root.kids, folder(fmt.Sprint("d", i), file("good", ""), file("stuck", "", never(leased(t)))))
		}
		open := -1
		time.AfterFunc(leasePatience/2+123*time.Microsecond, func() {
			w.mu.Lock()
			open = w.open
			w.mu.Unlock()
		})
		out := w.process(t.Context(), Options{Workers: 2}, nil)
		require.NoError(t, out.err)
		require.Len(t, out.failed, 50)
		w.requireSound(t, out)
		require.LessOrEqual(t, open, 1+descriptorBudget().open, "root, and what stays open for later use")
		require.Positive(t, open)
	})
}

// searchOnly is a directory that may be searched and not listed.
type searchOnly struct{ backend.Directory }

func (s searchOnly) OpenDir(names.Name) (backend.Directory, error) {
	return nil, &sys.Error{Op: "openat", Err: fs.ErrPermission}
}

func (s searchOnly) OpenDirToSearch(name names.Name) (backend.Directory, error) {
	return s.Directory.OpenDir(name)
}

// Whether a descriptor is free can be asked of each root.
func TestHasDescriptor(t *testing.T) {
	dir := t.TempDir()
	require.True(t, testtree.Make(t, dir, "sub/f=f"))
	for name, open := range map[string]func() (backend.Directory, error){
		"directory":       func() (backend.Directory, error) { return backend.OpenRoot(dir) },
		"to be searched":  func() (backend.Directory, error) { d, err := backend.OpenRoot(dir); return searchOnly{d}, err },
		"of an FS":        func() (backend.Directory, error) { return backend.OpenFSRoot(os.DirFS(dir), ".", false) },
		"below, of an FS": func() (backend.Directory, error) { return backend.OpenFSRoot(os.DirFS(dir), "sub", false) },
		"file": func() (backend.Directory, error) {
			return backend.OpenSoleFile(filepath.Join(dir, "sub", "f"), errBroken, backend.OpenRoot)
		},
		"file of an FS": func() (backend.Directory, error) { return backend.OpenFSRoot(os.DirFS(dir), "sub/f", false) },
	} {
		d, err := open()
		require.NoError(t, err, name)
		w := &access{run: &resources{root: &node{dir: d}}}
		require.True(t, w.hasDescriptor(), name)
		d.Close()
	}
	top, err := backend.OpenFSRoot(os.DirFS(dir), ".", true)
	require.NoError(t, err)
	defer top.Close()
	named, err := backend.OpenGiven(top, names.New("sub"))
	require.NoError(t, err)
	s, err := named.Stat(names.Dot)
	require.NoError(t, err)
	require.True(t, s.Mode.IsDir())
}

// stuckStat is a directory in which a look at the name stuck fails with err, each time.
type stuckStat struct {
	backend.Directory
	err error
}

func (s stuckStat) Stat(name names.Name) (sys.Stat, error) {
	if name.String() == "stuck" {
		return sys.Stat{}, &sys.Error{Op: "fstatat", Err: s.err}
	}
	return s.Directory.Stat(name)
}

// Of several links in a directory, only those fail that are never resolved.
func TestFaultsLinkThatIsNeverReady(t *testing.T) {
	dir := t.TempDir()
	require.True(t, testtree.Make(t, dir, "f=f", "g=g", "stuck=s", "sub/h=h"))
	for link, to := range map[string]string{"1": "f", "2": "stuck", "3": "g", "4": "stuck", "5": "f"} {
		testtree.Symlink(t, filepath.Join("..", to), filepath.Join(dir, "sub", link))
	}
	for _, err := range append(slices.Clone(leasedErrors), scarceErrors...) {
		inBubble(t, func(t *testing.T) {
			var got []string
			var report Report
			failed := map[string]error{}
			opts := Options{Workers: 1, Symlinks: SymlinksFiles, Report: &report, openRoot: func(root string) (backend.Directory, error) {
				d, e := backend.OpenRoot(root)
				return stuckStat{d, err}, e
			}, OnError: func(err error) error {
				failed[filepath.Base(err.(*Failure).Path)] = err
				return nil
			}}
			require.NoError(t, ForEach(t.Context(), dir, opts, func(f *File) error {
				got = append(got, f.Rel())
				return nil
			}))
			slices.Sort(got)
			require.Equal(t, []string{"f", "g", "stuck", "sub/1", "sub/3", "sub/5", "sub/h"}, got)
			require.Len(t, failed, 2)
			require.ErrorIs(t, failed["2"], err)
			require.ErrorIs(t, failed["4"], err)
			requireLedger(t, report)
		})
	}
}

// newAsideWorker returns worker 0 of a run over w, whose pool starts no other.
func newAsideWorker(t *testing.T, w *world) *worker {
	r := newRun(t.Context(), config{workers: 2, mayGrow: true}, callbacks{}, nil)
	var err error
	r.root.dir, err = w.openRoot("")
	require.NoError(t, err)
	r.pool.begun = true
	r.pool.stopped.Store(true)
	t.Cleanup(func() {
		r.dirs.closeAll()
		require.Zero(t, w.open)
		require.Empty(t, w.wrong)
	})
	return r.startWorker(0)
}

// A worker that steps aside gives up its slot and its directory, counts as one that waits, and is back when what it waits for is
// over. It does so only where it may, and once.
func TestStepAside(t *testing.T) {
	w := newAsideWorker(t, &world{root: folder("", folder("d"))})
	n := &node{parent: w.root, name: names.New("d"), refs: 1}
	pin := func() {
		_, err := w.pin.use(&w.dirs, n)
		require.NoError(t, err)
		w.pin.idle()
	}
	for range 2 { // it may again
		require.NoError(t, w.aside(func() error {
			require.True(t, w.mayStepAside)
			for range 2 {
				pin()
				w.stepAside()
				require.True(t, w.isAside)
				require.Equal(t, 1, w.pool.aside)
				require.Equal(t, noSlot, w.slot)
				require.Len(t, w.slots, 1)
				require.EqualValues(t, pinNone, w.pin.state.Load())
			}
			require.Equal(t, errBroken, w.aside(func() error { return errBroken }))
			require.True(t, w.isAside && w.mayStepAside, "what it was in before goes on")
			return nil
		}))
		require.False(t, w.isAside || w.mayStepAside)
		require.Zero(t, w.pool.aside)
		require.True(t, w.tryAcquireSlot())
	}
	w.short = new(shortage) // maybe in a callback
	require.Equal(t, errBroken, w.aside(func() error {
		require.False(t, w.mayStepAside)
		return errBroken
	}))
	w.short = nil
	w.pool.maxAside = 0
	require.NoError(t, w.aside(func() error {
		pin()
		w.stepAside()
		require.False(t, w.isAside, "too many are")
		require.NotEqual(t, noSlot, w.slot)
		require.EqualValues(t, pinIdle, w.pin.state.Load())
		return nil
	}))
	w.pin.drop(&w.dirs)
	w.retire()
}

// The tries of one operation follow each other ever more slowly, for as long as its patience lasts, of which what it has waited
// aside before is a part. Only there is a slot waited for.
func TestRetryAside(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newAsideWorker(t, &world{root: folder("")})
		start := time.Now()
		var at []time.Duration
		isBroken := func(err error) bool { return err == errBroken }
		try := func() error {
			at = append(at, time.Since(start).Truncate(time.Millisecond)/time.Millisecond)
			return errBroken
		}
		require.Equal(t, errBroken, retry(t.Context(), 200*time.Millisecond, isBroken, try))
		require.Equal(t, []time.Duration{0, 1, 3, 7, 15, 31, 63, 113, 163, 213}, at)

		require.NoError(t, w.aside(func() error {
			start = time.Now()
			require.Equal(t, content.ErrNeedsSlot, w.retryAside(time.Minute, isBroken, func() error { return content.ErrNeedsSlot }))
			require.Zero(t, time.Since(start), "not yet aside")
			require.Equal(t, io.EOF, w.retryAside(time.Minute, isBroken, func() error { return io.EOF }))
			require.False(t, w.isAside)
			w.stepAside()
			time.Sleep(20 * time.Second)
			start = time.Now()
			require.Equal(t, content.ErrNeedsSlot, w.retryAside(time.Minute, isBroken, func() error { return content.ErrNeedsSlot }))
			require.Equal(t, 40*time.Second, time.Since(start).Truncate(time.Second))
			w.isAside, w.short = false, new(shortage)
			require.Equal(t, errBroken, w.retryAside(time.Second, isBroken, func() error { return errBroken }))
			require.False(t, w.isAside, "another worker would need descriptors, too")
			w.isAside, w.short = true, nil
			return nil
		}))
		start = time.Now()
		require.Equal(t, errBroken, w.retryAside(time.Minute, isBroken, func() error { return errBroken }))
		require.Equal(t, time.Minute, time.Since(start).Truncate(time.Second))
		require.False(t, w.isAside, "it may be in a callback")
		w.retire()
	})
}

// One worker at a time has the turn. Those that wait for it give up descriptors again and again, until it is given back or their
// run ends.
func TestShortagesTakeTurns(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var c dirCache
		first, second, third := c.newShortage(), c.newShortage(), c.newShortage()
		require.True(t, first.acquireTurn(t.Context(), func() {}))
		time.AfterFunc(10*turnPause-time.Millisecond, first.end)
		gaveUp := 0
		require.True(t, second.acquireTurn(t.Context(), func() { gaveUp++ }))
		require.Equal(t, 10, gaveUp)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.False(t, third.acquireTurn(ctx, func() {}))
		third.end()
		require.Equal(t, []*shortage{second}, c.short)
		require.Len(t, fdTurn, 1)
		second.end()
		require.Empty(t, c.short)
		require.Empty(t, fdTurn)
	})
}

// A file that reports scarcity while there are descriptors fails with its own error, and the pool grows no more.
func TestOwnScarcityIsReturned(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newAsideWorker(t, &world{root: folder(""), hasSpare: true})
		start, own := time.Now(), &sys.Error{Op: "open", Err: scarceErrors[0]}
		require.Equal(t, error(own), w.retryOnResource(func() error { return own }))
		require.Equal(t, descriptorPatience, time.Since(start).Truncate(time.Second))
		require.Equal(t, w.pool.workers, w.pool.maxWorkers)
		require.Empty(t, w.dirs.short)
		require.Empty(t, fdTurn)
		w.retire()
	})
}

// What is interrupted at first may fail for another reason then.
func TestInterruptBeforeAFailure(t *testing.T) {
	if !sys.IsInterrupted(syscall.EINTR) {
		t.Skip("no call is interrupted here")
	}
	inBubble(t, func(t *testing.T) {
		w := newAsideWorker(t, &world{root: folder("")})
		errs := []error{syscall.EINTR, syscall.EINTR, errBroken}
		require.Equal(t, errBroken, w.retryOnInterrupt(func() (err error) {
			err, errs = errs[0], errs[1:]
			return err
		}))
		w.retire()
	})
}
