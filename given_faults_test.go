package fileproc

import (
	"context"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fileproc/fileproc/internal/backend"
	"github.com/fileproc/fileproc/internal/content"
	"github.com/fileproc/fileproc/internal/knobs"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

// names returns the paths of all files of w, shuffled: also of those that have vanished.
func (w *world) names() []string {
	all := slices.Sorted(maps.Keys(w.contents()))
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

func (w *world) failsWith(t *testing.T, out outcome, want map[string]error) {
	t.Helper()
	require.ElementsMatch(t, slices.Collect(maps.Keys(want)), slices.Collect(maps.Keys(out.failed)))
	for p, err := range want {
		require.ErrorIs(t, out.failed[p], err, p)
	}
}

// A name that fails, changes or vanishes is a failure of its own. A directory that does is one of each name in it.
func TestFilesFaultsOfOneEntry(t *testing.T) {
	dir := func(faults ...func(*object)) *object {
		return folder("x", file("in", "inside"), folder("sub", file("too", "deeper")), folder("tree", file("leaf", "leaf"))).with(faults...)
	}
	for _, tt := range []struct {
		name   string
		faulty *object
		fails  error // nil: delivered
	}{
		{"nothing wrong", file("x", "gamma"), nil},
		{"missing", file("x", "gamma", vanished), fs.ErrNotExist},
		{"a directory", file("x", "g", becomes(fs.ModeDir)), fs.ErrInvalid},
		{"a FIFO", file("x", "g", becomes(fs.ModeNamedPipe)), fs.ErrInvalid},
		{"a FIFO with content at hand", file("x", "g", becomes(fs.ModeNamedPipe), atHand(1)), fs.ErrInvalid},
		{"a device", file("x", "g", becomes(fs.ModeDevice)), fs.ErrInvalid},
		{"a link", file("x", "g", becomes(fs.ModeSymlink)), fs.ErrInvalid},
		{"cannot be opened", file("x", "g", opening(fs.ErrPermission)), fs.ErrPermission},
		{"read fails", file("x", "gamma", readFails(3, errBroken)), errBroken},
		{"short reads", file("x", "gamma", chunks(1)), nil},
		{"few descriptors", file("x", "gamma", opening(scarceErrors[0], scarceErrors[0], scarceErrors[0])), nil},
		{"directory", dir(), nil},
		{"missing directory", dir(vanished), fs.ErrNotExist},
		{"directory is a file", dir(becomes(0)), fs.ErrInvalid},
		{"directory is a link", dir(becomes(fs.ModeSymlink)), fs.ErrInvalid},
		{"directory cannot be opened", dir(opening(fs.ErrPermission, fs.ErrPermission, fs.ErrPermission, fs.ErrPermission)), fs.ErrPermission},
		{"few descriptors for a directory", dir(opening(scarceErrors[0], scarceErrors[0], scarceErrors[0])), nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tree := func() *object {
				o := *tt.faulty
				o.openErr = slices.Clone(o.openErr)
				return folder("", file("a", "alpha"), folder("d", file("b", "beta"), &o, file("z", "")))
			}
			everyWorld(t, tree, func(t *testing.T, w *world, workers int) {
				for _, opts := range []Options{{}, {Stat: true}, {ReadSize: 100}} {
					if tt.faulty.openErr != nil && opts.Stat {
						continue // the errors were those of the first opens
					}
					list := slices.DeleteFunc(w.names(), func(rel string) bool { return rel == "d/x/tree/leaf" })
					if tt.faulty.listed == fs.ModeDir {
						list = append(list, "d/x/tree/")
					}
					opts.Workers, opts.Files = workers, slices.Values(list)
					out := w.process(t.Context(), opts, nil)
					require.NoError(t, out.err)
					w.requireSound(t, out)
					fails := map[string]error{}
					for rel := range w.contents() {
						if tt.fails != nil && strings.HasPrefix(rel, "d/x") {
							fails["/"+strings.TrimSuffix(rel, "/leaf")] = tt.fails
						}
					}
					w.failsWith(t, out, fails)
					require.Len(t, out.got, len(w.contents())-len(fails))
					if tt.faulty.openErr != nil {
						return
					}
				}
			})
		})
	}
}

// A link is known as one though the look at it was interrupted.
func TestFilesFaultsOfALinkLookedAt(t *testing.T) {
	dir := t.TempDir()
	require.True(t, testtree.Make(t, dir, "f=content"))
	testtree.Symlink(t, "f", filepath.Join(dir, "link"))
	for _, interrupt := range leasedErrors {
		if !sys.IsInterrupted(interrupt) {
			continue
		}
		inBubble(t, func(t *testing.T) {
			w := &world{root: folder("")}
			stats := 0
			w.fails = func(_ int, what string) error {
				if what == "stat" {
					if stats++; stats == 1 {
						return interrupt
					}
				}
				return nil
			}
			opts := Options{Symlinks: SymlinksFiles, Files: slices.Values([]string{"link"}), Workers: 1, openRoot: w.openSystem}
			got, err := Process(t.Context(), dir, opts, func(f *File) (string, error) { return string(f.Data()), nil })
			require.NoError(t, err)
			require.Equal(t, []string{"content"}, got)
			require.Greater(t, stats, 1)
			require.Empty(t, w.wrong)
		})
	}
}

// A directory with more names than one scan takes is no reason to begin what lies beside them twice.
func TestFilesFaultsBesideManyNames(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := &world{root: folder("", folder("d", file("in", "inside"), file("x", "", vanished)))}
		list := []string{"no//name", "d/in", "d/x", "none/at/all"}
		for i := range 2*givenPart + 1 {
			w.root.kids = append(w.root.kids, file(fmt.Sprint(i), ""))
			list = append(list, fmt.Sprint(i))
		}
		out := w.process(t.Context(), Options{Workers: 1, Files: slices.Values(list)}, nil)
		require.NoError(t, out.err)
		w.requireSound(t, out)
		require.Len(t, out.got, 2*givenPart+2)
		require.EqualValues(t, 3, out.report.Failed, "%v", out.failed)
	})
}

// Names that are all left out take no place in the order, in which others would wait behind them.
func TestFilesFaultsInOrderBehindSkippedNames(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := &world{root: folder("", folder("d", file("skipped", ""), file("x", "", vanished)))}
		list := []string{"d/skipped", "d/x"}
		for i := range orderedMin + 2*orderedAhead {
			w.root.kids = append(w.root.kids, file(fmt.Sprint(i), ""))
			list = append(list, fmt.Sprint(i), "d/skipped")
		}
		n, failed := 0, 0
		opts := Options{Workers: 1, Ordered: true, Files: slices.Values(list), Exclude: []string{"d/skipped"}, openRoot: w.openRoot}
		for _, err := range Stream(t.Context(), "root", opts, relOf) {
			if n++; err != nil {
				failed++
			}
		}
		require.Equal(t, len(w.root.kids), n)
		require.Equal(t, 1, failed)
	})
}

// A stop at the first of many names that fail together is no reason to look at the others.
func TestFilesFaultsStopAtTheFirst(t *testing.T) {
	for _, name := range []string{"no//%d", "none/%d", "none/%d/"} {
		inBubble(t, func(t *testing.T) {
			w := &world{root: small()}
			list := []string{}
			for i := range 100 {
				list = append(list, fmt.Sprintf(name, i))
			}
			out := w.process(t.Context(), Options{Workers: 1, Files: slices.Values(list), OnError: func(err error) error { return err }}, nil)
			require.Error(t, out.err)
			require.EqualValues(t, 1, out.report.Failed)
			w.requireSound(t, out)
		})
	}
}

// Where a name leads to something else than a file, only its metadata shows it if no file is opened.
func TestFilesFaultsWithoutReading(t *testing.T) {
	for _, fault := range []func(*object){vanished, becomes(fs.ModeDir), becomes(fs.ModeSymlink), becomes(fs.ModeNamedPipe)} {
		inBubble(t, func(t *testing.T) {
			w := &world{root: folder("", file("a", "alpha"), file("x", "", fault))}
			out := w.process(t.Context(), Options{ReadSize: NoRead, Files: slices.Values([]string{"x", "a"})}, nil)
			require.NoError(t, out.err)
			require.Equal(t, map[string]string{"a": ""}, out.got)
			require.Len(t, out.failed, 1)
			require.NotErrorIs(t, out.failed["/x"], ErrChanged)
		})
	}
}

// A failure, or what a directory is, concerns names given in backlogs of every size alike, in a Stream in order too.
func TestFilesFaultsInOrder(t *testing.T) {
	testtree.Set(t, &knobs.MaxBacklog, 1)
	everyWorld(t, small, func(t *testing.T, w *world, workers int) {
		list := append(w.names(), "gone/", "empty/", "d/e/")
		var got []string
		opts := Options{Workers: workers, Ordered: true, Files: slices.Values(list), openRoot: w.openRoot}
		for rel, err := range Stream(t.Context(), "root", opts, func(f *File) (string, error) { return f.Rel(), nil }) {
			if err != nil {
				rel = "!"
			}
			got = append(got, strings.ReplaceAll(rel, `\`, "/"))
		}
		want := slices.Clone(list)
		want[slices.Index(want, "x")] = "!"
		want = append(want[:len(list)-3], "!", "d/e/c", "d/e/u")
		require.Equal(t, want, got)
		require.Empty(t, w.wrong)
		require.Zero(t, w.open)
	})
}

// everyCallForNames is everyCall of the backend in a run with names and a tree.
func everyCallForNames(t *testing.T, test func(t *testing.T, w *world, opts Options, k int) (reached bool)) {
	for _, backlog := range []int{1, 1 << 20} {
		testtree.Set(t, &knobs.MaxBacklog, backlog)
		everyCall(t, func(t *testing.T, w *world, opts Options, k int) bool {
			list := slices.DeleteFunc(w.names(), func(rel string) bool { return strings.HasPrefix(rel, "d/e/") })
			opts.Files = slices.Values(append(list, "d/e/", "no//name", "gone/", "none", "d/none/at/all"))
			return test(t, w, opts, k)
		})
	}
}

func TestFilesFaultsCancelAtEachCall(t *testing.T) {
	everyCallForNames(t, func(t *testing.T, w *world, opts Options, k int) bool {
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		reached := false
		w.onCall = func(i int) {
			if i == k {
				reached = true
				cancel(errBroken)
			}
		}
		out := w.process(ctx, opts, nil)
		w.requireHonest(t, out, opts)
		if len(out.got) < 6 {
			require.ErrorIs(t, out.err, errBroken)
		}
		inOrder := &world{root: small(), onCall: w.onCall}
		ctx, cancel = context.WithCancelCause(t.Context())
		defer cancel(nil)
		requireLedger(t, inOrder.ordered(ctx, opts, goOn, func(yielded) bool { return true }))
		require.Zero(t, inOrder.open)
		return reached
	})
}

func TestFilesFaultsPanicAtEachFile(t *testing.T) {
	for _, workers := range []int{1, 3} {
		for k := range 6 {
			inBubble(t, func(t *testing.T) {
				w := &world{root: small()}
				n := 0
				require.Panics(t, func() {
					w.process(t.Context(), Options{Workers: workers, Files: slices.Values(w.names()), OnError: func(error) error { return nil }, Select: func(*File) bool { return true }}, func(*File) error {
						w.mu.Lock()
						defer w.mu.Unlock()
						if n++; n == k+1 {
							panic(fmt.Sprint("at ", k))
						}
						return nil
					})
				})
				require.Zero(t, w.open)
				require.Empty(t, w.wrong)
			})
		}
	}
}

// With few descriptors all names are delivered, in order too, and from backlogs of every size.
func TestFilesFewDescriptors(t *testing.T) {
	for _, backlog := range []int{1, 2000, 1 << 20} {
		testtree.Set(t, &knobs.MaxBacklog, backlog)
		for _, limit := range []int{5, 9} {
			for _, workers := range []int{1, 3} {
				for _, ordered := range []bool{false, true} {
					inBubble(t, func(t *testing.T) {
						w := &world{root: forest(), limit: limit, scarce: scarceErrors[0]}
						list := w.names()
						var report Report
						opts := Options{Workers: workers, Ordered: ordered, Files: slices.Values(list), openRoot: w.openRoot, Report: &report}
						var got []string
						for rel, err := range Stream(t.Context(), "root", opts, func(f *File) (string, error) { return f.Rel(), nil }) {
							require.NoError(t, err)
							got = append(got, strings.ReplaceAll(rel, `\`, "/"))
						}
						if ordered {
							require.Equal(t, list, got)
						}
						require.ElementsMatch(t, list, got)
						require.Empty(t, w.wrong)
						require.Zero(t, w.open)
						requireLedger(t, report)
					})
				}
			}
		}
	}
}

// A directory with many names is opened once for each backlog, and those above it as in a listing.
func TestFilesOpenEachDirectoryOnce(t *testing.T) {
	root := folder("")
	for i := range 20 {
		d := folder(fmt.Sprint("d", i), folder("s", file("f", "1"), file("g", "2")))
		root.kids = append(root.kids, d)
	}
	inBubble(t, func(t *testing.T) {
		w := &world{root: root}
		opens := 0
		w.during = func(what, _ string) {
			if what == "openDir" {
				opens++
			}
		}
		list := w.names()
		given := false
		out := w.process(t.Context(), Options{Workers: 1, Files: func(yield func(string) bool) {
			for _, name := range list {
				if !yield(name) {
					return
				}
			}
			given = true
		}}, func(*File) error { return nil })
		require.NoError(t, out.err)
		require.True(t, given)
		require.Len(t, out.got, 40)
		w.requireSound(t, out)
		require.LessOrEqual(t, opens, 80, "twice, if a worker takes the first names before the others have come")
	})
}

// A directory whose names have been visited is closed, in order too, and so is one above trees that have been listed.
func TestFilesDirectoriesAreClosedWhenDone(t *testing.T) {
	testtree.NotInColdMode(t, "directories stay open until their files are read")
	for _, ordered := range []bool{false, true} {
		for _, trees := range []bool{false, true} {
			inBubble(t, func(t *testing.T) {
				root, list := folder(""), []string(nil)
				for i := range 20 {
					d := folder(fmt.Sprint("d", i))
					for k := range spanSize + 5 { // two spans
						d.kids = append(d.kids, file(fmt.Sprint("f", k), "1"), folder(fmt.Sprint("s", k), file("g", "2")))
						name := fmt.Sprintf("d%d/f%d", i, k)
						if trees {
							name = fmt.Sprintf("d%d/s%d/", i, k)
						}
						list = append(list, name)
					}
					root.kids = append(root.kids, d)
				}
				w := &world{root: root}
				n := 0
				opts := Options{Workers: 1, Ordered: ordered, Files: slices.Values(list), openRoot: w.openRoot}
				for _, err := range Stream(t.Context(), "root", opts, relOf) {
					require.NoError(t, err)
					n++
				}
				require.Len(t, list, n)
				require.LessOrEqual(t, w.most, 8)
				require.Zero(t, w.open)
			})
		}
	}
}

func relOf(f *File) (string, error) { return f.Rel(), nil }

// Until a backlog has been scanned there is no other, whatever has been pulled.
func TestFilesOneBacklogAtATime(t *testing.T) {
	s := newNames(false)
	s.add("a")
	first := s.take()
	require.NotNil(t, first)
	s.add("b")
	require.Nil(t, s.take())
	require.False(t, s.isReady())
	b := first.source.(*givenBacklog)
	require.Empty(t, b.dirs, "what groups names is let go")
	require.Empty(t, b.paths)
	require.Nil(t, b.dir)
	first.source.end()
	require.Nil(t, b.top, "a run keeps its first job")
	require.True(t, s.isReady())
	require.NotNil(t, s.take())
	require.Nil(t, s.take())
}

// The directories of a backlog are known by single names. Known by their paths, they would take the square of the depth.
func TestFilesDirectoriesAreKnownByName(t *testing.T) {
	for _, inOrder := range []bool{false, true} {
		s := newNames(inOrder)
		given, paths := 0, map[string]*givenNames{}
		r := rand.New(rand.NewPCG(1, 1))
		for range 3000 {
			dir := ""
			for range r.IntN(50) {
				dir += strings.Repeat("ab", 1+r.IntN(2)) + "/"
			}
			s.add(dir + "f")
			given += len(dir)
			w := s.backlog
			require.Equal(t, dir, w.dir.node.relPath(""))
			if g := paths[dir]; g != nil {
				require.Same(t, g, w.dir)
			}
			paths[dir] = w.dir
		}
		delete(paths, "")
		require.LessOrEqual(t, len(paths), len(s.backlog.dirs))
		kept := 0
		for key := range s.backlog.dirs {
			kept += len(key.name)
		}
		require.LessOrEqual(t, kept, given)
		kept = 0
		for dir := range s.backlog.paths {
			kept += len(dir)
		}
		require.LessOrEqual(t, kept, given)
	}
}

// A stopped run takes no more of a backlog, which may be long.
func TestFilesStoppedInABacklog(t *testing.T) {
	opts := Options{Files: slices.Values([]string(nil))}
	cfg, err := opts.config("root", false)
	require.NoError(t, err)
	r := newRun(t.Context(), cfg, callbacks{}, newOrdered(1))
	w := r.startWorker(0)
	for _, stops := range []bool{false, true} {
		r.given.add("a")
		if stops {
			r.stop(errBroken)
		}
		b := r.given.takeBacklog()
		spansOf(w, b)
		b.end()
	}
	require.EqualValues(t, 1, w.counts.found)
	w.retire()
}

// goroutine returns the first words of this goroutine's stack, which have its number.
func goroutine() string {
	var b [64]byte
	stack := string(b[:runtime.Stack(b[:], false)])
	return stack[:strings.Index(stack, "[")]
}

// A sequence that returns soon is pulled by the goroutine that calls fn: none is waited for. One that waits is pulled by the
// calling goroutine, and fn is called on another one meanwhile.
func TestFilesNeedNoOtherGoroutine(t *testing.T) {
	for _, workers := range []int{1, 3} {
		for _, takes := range []time.Duration{0, headStart / 2, 2 * headStart} {
			inBubble(t, func(t *testing.T) {
				w, caller := &world{root: small()}, goroutine()
				var pulledOn, calledOn []string
				var returned atomic.Bool
				out := w.process(t.Context(), Options{Workers: workers, Files: func(yield func(string) bool) {
					pulledOn = append(pulledOn, goroutine())
					yield("a")
					time.Sleep(takes) // in this time another worker could take the name
					returned.Store(true)
				}}, func(*File) error {
					calledOn = append(calledOn, goroutine())
					require.Equal(t, takes < headStart, returned.Load())
					return nil
				})
				require.NoError(t, out.err)
				require.Equal(t, map[string]string{"a": "alpha"}, out.got)
				require.Equal(t, []string{caller}, pulledOn)
				require.Len(t, calledOn, 1)
				require.Equal(t, takes < headStart, calledOn[0] == caller)
			})
		}
	}
}

// Also a sequence that ends by a panic or Goexit, before or after worker 0 has begun, leaves nothing.
func TestFilesSequenceEndsBesideWorkers(t *testing.T) {
	for _, takes := range []time.Duration{0, headStart, 2 * headStart} { // with headStart, either may be first
		for name, end := range map[string]func(){"panic": func() { panic("here") }, "Goexit": runtime.Goexit} {
			inBubble(t, func(t *testing.T) {
				w, returned := &world{root: small()}, false
				var caught any
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					defer func() { caught = recover() }()
					w.process(t.Context(), Options{Workers: 2, Files: func(yield func(string) bool) {
						yield("a")
						time.Sleep(takes)
						end()
					}}, nil)
					returned = true
				}()
				<-ended
				require.False(t, returned)
				require.Equal(t, name == "panic", caught != nil)
				require.Zero(t, w.open)
			})
		}
	}
}

// In the cold mode names are read in the order of the disk, whatever their own.
func TestFilesColdOrder(t *testing.T) {
	dir := t.TempDir()
	d, err := backend.OpenRoot(dir)
	require.NoError(t, err)
	onDisk := backend.DiskOf(d).Kind != content.NotOnDisk
	d.Close()
	if !onDisk {
		t.Skip("not on a disk, or another backend")
	}
	testtree.Set(t, &knobs.AlwaysCold, true)
	var list []string
	for i := range 2000 {
		list = append(list, fmt.Sprintf("f%04d", i))
		require.NoError(t, os.WriteFile(filepath.Join(dir, list[i]), []byte("x"), 0o600))
	}
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	var inodes []uint64
	inBubble(t, func(t *testing.T) { // where no worker begins before all names are given
		_, err = Process(t.Context(), dir, Options{Workers: 1, Stat: true, Files: slices.Values(list)}, func(f *File) (int, error) {
			s, err := f.Stat()
			inodes = append(inodes, s.Inode)
			return 0, err
		})
	})
	require.NoError(t, err)
	require.Len(t, inodes, 2000)
	require.True(t, slices.IsSorted(inodes))
}

// A name that cannot be looked up keeps its place among the names: its failure does not come before all that can be read. A
// stopped run looks none up.
func TestFilesPlaceOfWhatIsMissing(t *testing.T) {
	w := &world{root: folder("", file("a", "alpha"), file("b", "", func(o *object) { o.statErr = errBroken }))}
	opts := Options{Files: slices.Values([]string(nil))}
	cfg, err := opts.config("root", false)
	require.NoError(t, err)
	r := newRun(t.Context(), cfg, callbacks{}, nil)
	s := scanner{w: r.startWorker(0), dir: &worldDir{w: w, o: w.root}}
	defer s.w.retire()
	require.Zero(t, inodeOf(&s, names.New("a"), 7), "its number in this tree")
	require.EqualValues(t, 7, inodeOf(&s, names.New("none"), 7))
	require.EqualValues(t, 8, inodeOf(&s, names.New("b"), 8))
	calls := w.calls
	r.stop(errBroken)
	require.EqualValues(t, 9, inodeOf(&s, names.New("a"), 9))
	require.Equal(t, calls, w.calls)
}

// What fn returns is the caller's own error, also where it is like one of a name that was given.
func TestFilesErrorOfFnIsItsOwn(t *testing.T) {
	own := &sys.Error{Op: "open", Err: sys.Changed{Err: fs.ErrNotExist}}
	for _, list := range []iter.Seq[string]{nil, slices.Values([]string{"d/f"})} {
		inBubble(t, func(t *testing.T) {
			w := &world{root: folder("", folder("d", file("f", "")))}
			out := w.process(t.Context(), Options{Files: list}, func(*File) error { return own })
			var failure *Failure
			require.ErrorAs(t, out.failed["/d/f"], &failure)
			require.Equal(t, FailedFunc, failure.Kind)
			require.Same(t, own, failure.Err)
			require.ErrorIs(t, failure, ErrChanged)
			require.Equal(t, "process", failure.Op)
		})
	}
}

// newNames returns a givenSource that nobody pulls.
func newNames(inOrder bool) *givenSource {
	canOpen := func(name []byte) bool { return string(name) != "con" }
	return newGivenSource(&config{}, canOpen, &node{}, inOrder, func() {})
}

// A name is a file, a tree, the files of one directory, or leads nowhere below root: also where something of another name is there.
func TestFilesWhatANameIs(t *testing.T) {
	long, deep := strings.Repeat("x", maxGivenLen), strings.Repeat("d/", maxGivenParts-1)
	for name, want := range map[string]string{
		"a": "file a", "d/a": "file d/a", "d/": "tree d", "d/e/": "tree d/e", "d/.": "flat d", "d/e/.": "flat d/e", ".a": "file .a", "..a/b..": "file ..a/b..",
		long: "file " + long, deep + "f": "file " + deep + "f", deep + "f/": "tree " + deep + "f",
		"": "", ".": "", "..": "", "/": "", "./": "", "/.": "", "/a": "", "/d/a": "", "//": "", "d//": "", "d//a": "", "d/../a": "", "../a": "", "d/./a": "", "./a": "",
		"\x00": "", "\x00a": "", "a\x00": "", "a\x00/b": "", "d/\x00a/": "", "con": "", "d/con": "", "con/a": "", "d/con/e/a": "", "con/": "",
		long + "x": "", deep + "d/f": "", deep + "d/f/": "",
	} {
		for _, inOrder := range []bool{false, true} {
			s := newNames(inOrder)
			s.add("d/other") // the directory may be known, too
			s.backlog.items, s.backlog.top.files, s.backlog.top.subs = nil, nil, nil
			for _, g := range s.backlog.dirs {
				g.files, g.subs = nil, nil
			}
			s.add(name)
			got := ""
			describe := func(n *node, names []names.Name, tree *job) {
				require.Empty(t, got)
				switch {
				case tree == nil:
					require.Len(t, names, 1)
					got = "file " + n.relPath(names[0].String())
				case tree.source.(givenTree).flat:
					got = "flat " + tree.node.dirPath()
				default:
					got = "tree " + tree.node.dirPath()
				}
			}
			for _, r := range s.backlog.items {
				if r.invalid {
					require.Equal(t, name, r.files[0].String())
				} else {
					describe(r.in.node, r.files, r.tree)
				}
			}
			for g := range maps.Values(s.backlog.dirs) {
				require.True(t, !inOrder || len(g.files) == 0, "in order they are in the runs alone")
			}
			var grouped func(g *givenNames)
			grouped = func(g *givenNames) {
				for _, part := range g.files {
					describe(g.node, part, nil)
				}
				for _, sub := range g.subs {
					if names, ok := sub.source.(*givenNames); ok {
						grouped(names)
					} else {
						describe(nil, nil, sub)
					}
				}
			}
			grouped(s.backlog.top)
			for g := range maps.Values(s.backlog.dirs) { // of which d was known
				if g.up == s.backlog.top && g.node.name.String() == "d" && !inOrder {
					grouped(g)
				}
			}
			require.Equal(t, want, got, "%.20q", name)
			require.Equal(t, want == "" && !inOrder, len(s.backlog.top.invalid) == 1)
		}
	}
	require.ErrorContains(t, badPath(long+"x"), "65536 bytes")
	require.ErrorContains(t, badPath(deep+"d/f"), "4096 elements")
	require.NotContains(t, badPath(deep+"f/").Error(), "elements")
	require.ErrorContains(t, badPath("../a"), `"../a" is not`)
	for _, name := range []string{"../a", long + "x"} {
		require.ErrorIs(t, badPath(name), fs.ErrInvalid)
	}
}

// Names of one directory share a run up to a span's length, or a part up to what one scan takes. Directories have numbers in the
// order in which they came, and what is in memory is counted.
func TestFilesBacklog(t *testing.T) {
	s := newNames(false)
	cost := 0
	for range givenPart + 1 {
		s.add("f")
		cost += givenCost + len("f")
	}
	require.Len(t, s.backlog.top.files, 2)
	require.Len(t, s.backlog.top.files[0], givenPart)
	require.Len(t, s.backlog.top.files[1], 1)
	for k, name := range []string{"d/f", "t/", "d/e/f", "d/u/"} { // one new directory each
		s.add(name)
		n := s.backlog.dir.node
		for _, sub := range s.backlog.dir.subs {
			if _, isTree := sub.source.(givenTree); isTree {
				n = sub.node
				break
			}
		}
		require.EqualValues(t, k+1, n.inode, name)
		cost += givenCost + len(name) + givenDirCost
	}
	cost += len("d") + len("e")
	require.Equal(t, cost, s.backlog.cost)
	require.Equal(t, givenPart+5, s.backlog.count)
	s.add("d/f")
	require.Equal(t, cost+givenCost+len("d/f"), s.backlog.cost, "it is known")

	s = newNames(true)
	for range spanSize + 1 {
		s.add("d/f")
	}
	s.add("d//")
	s.add("f")
	s.add("f")
	s.add("d/t/")
	s.add("d/f")
	var lens []int
	for _, r := range s.backlog.items {
		lens = append(lens, len(r.files))
	}
	require.Equal(t, []int{spanSize, 1, 1, 2, 0, 1}, lens)
	require.Equal(t, (spanSize+6)*givenCost+(spanSize+2)*len("d/f")+len("d//ffd/t/")+7*givenItemCost+givenDirCost+len("d"), s.backlog.cost+givenItemCost-givenDirCost)
}

// A path is kept only for a directory that is come back to.
func TestFilesPathsOfDirectoriesComeBackTo(t *testing.T) {
	s := newNames(false)
	for _, name := range []string{"a/b/f", "a/b/g", "a/c/f", "d/f"} {
		s.add(name)
		require.Empty(t, s.backlog.paths)
	}
	s.add("a/b/h")
	require.Len(t, s.backlog.paths, 1)
	require.Same(t, s.backlog.dir, s.backlog.paths["a/b"])
	s.add("d/g")
	other := &givenNames{node: &node{}}
	s.backlog.paths["a/b"] = other
	s.add("a/b/i")
	require.Same(t, other, s.backlog.dir, "it is not searched for again")
	for a, b := range map[string]string{"": "", "a": "", "abc": "abd", "ab": "abab", "x": "y"} {
		n := 0
		for n < len(a) && n < len(b) && a[n] == b[n] {
			n++
		}
		require.Equal(t, n, names.CommonPrefix(a, b))
		require.Equal(t, n, names.CommonPrefix(b, a))
	}
}

// Names are pulled up to a bound on memory, and on once a worker has taken those: also if it took some before they were many. One
// wake-up for each backlog is enough.
func TestFilesArePulledUpToABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pulled, wakes := 0, 0
		next := make(chan bool)
		s := newNames(false)
		s.wake = func() { wakes++ }
		s.maxBacklog = 3 * (givenCost + 1)
		s.all = func(yield func(string) bool) {
			for waits := true; waits || pulled < 20; {
				if waits {
					waits = <-next
				}
				pulled++
				if !yield("f") {
					return
				}
			}
		}
		var stopped atomic.Bool
		done, ended := make(chan struct{}), false
		go func() { s.pull(&stopped, done); ended = true }()
		take := func(want int) {
			t.Helper()
			synctest.Wait()
			require.Equal(t, want, pulled)
			require.True(t, s.isReady())
			require.False(t, s.isOver())
			j := s.take()
			require.Same(t, s.root, j.node)
			require.False(t, s.isReady())
			j.source.end()
		}
		require.False(t, s.isReady() || s.isOver(), "there may be some")
		next <- true
		take(1) // of which the goroutine that pulls learns late
		next <- false
		take(4)
		take(7)
		take(10)
		synctest.Wait()
		require.Equal(t, 5, wakes)
		close(done) // while there is no room
		synctest.Wait()
		require.True(t, ended)
		require.Equal(t, 13, pulled)
		require.False(t, s.isOver(), "some are not taken")

		s = newNames(false)
		s.all, pulled = slices.Values([]string{"a", "b"}), 0
		s.pull(&stopped, nil)
		require.False(t, s.isOver())
		s.take().source.end()
		require.True(t, s.isOver())

		s = newNames(false)
		s.all = func(yield func(string) bool) {
			pulled++
			require.False(t, yield("a"))
		}
		stopped.Store(true)
		s.pull(&stopped, nil)
		require.Equal(t, 1, pulled)
		require.False(t, s.isReady() || s.isOver())
	})
}

// A directory that cannot be opened may have any number of names, each of which fails.
func TestFilesManyOfADirectoryThatFails(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := &world{root: folder("", folder("x").with(vanished))}
		var list []string
		for i := range 2*givenPart + 1 {
			list = append(list, fmt.Sprint("x/", i))
		}
		out := w.process(t.Context(), Options{Workers: 2, Files: slices.Values(list)}, nil)
		require.NoError(t, out.err)
		require.Len(t, out.failed, len(list))
		w.requireSound(t, out)
	})
}

// In the cold mode, names whose place on the disk is unknown are begun in the order in which they were given.
func TestFilesColdOrderIsThatOfTheNames(t *testing.T) {
	testtree.Set(t, &knobs.AlwaysCold, true)
	inBubble(t, func(t *testing.T) {
		root := folder("")
		for i := range 2*givenPart + 100 {
			root.kids = append(root.kids, file(fmt.Sprint(i), ""))
		}
		w := &world{root: root}
		list := w.names()
		var got []string
		out := w.process(t.Context(), Options{Workers: 1, Files: slices.Values(list)}, func(f *File) error {
			got = append(got, f.Rel())
			return nil
		})
		require.NoError(t, out.err)
		require.True(t, slices.Equal(list, got))
	})
}

// Root is judged once, however many backlogs there are, and a directory that is left out is no matter for SelectDir, nor is what
// is below one that fails.
func TestFilesAreJudgedOnce(t *testing.T) {
	testtree.Set(t, &knobs.MaxBacklog, 1)
	for _, ordered := range []bool{false, true} {
		inBubble(t, func(t *testing.T) {
			w := &world{root: folder("", file("a", ""), file("b", ""), folder("out", file("f", "")), folder("gone", folder("sub", file("f", ""))).with(vanished),
				folder("d", file("f", ""), folder(".mark", file("in", ""))))} // which is no marker
			looks, selected := map[string]int{}, map[string]bool{}
			w.during = func(what, name string) {
				if what == "stat" {
					looks[name]++
				}
			}
			list := []string{"a", "out/f", "b", "out/f", "gone/sub/f", "d/f"}
			opts := Options{Workers: 1, Ordered: ordered, Files: slices.Values(list), SkipMarked: []string{".mark"}, Exclude: []string{"out"}, openRoot: w.openRoot}
			opts.SelectDir = func(e Entry) bool { selected[e.Rel()] = true; return true }
			var got []string
			for rel, err := range Stream(t.Context(), "root", opts, relOf) {
				if err != nil {
					require.ErrorIs(t, err, fs.ErrNotExist)
					rel = "!"
				}
				got = append(got, rel)
			}
			require.ElementsMatch(t, []string{"a", "b", "!", "d/f"}, got)
			require.Equal(t, map[string]int{".mark": 2}, looks, "root's and d's")
			require.Equal(t, map[string]bool{"gone": true, "d": true}, selected)
		})
	}
}

// The rules above a tree that is given hold in it.
func TestFilesTreeBelowRules(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		inBubble(t, func(t *testing.T) {
			w := &world{root: folder("", file(".rules", "*.o\n"), folder("d", file(".rules", "*.x\n"), folder("t", file("a.o", ""), file("a.x", ""), file("a.c", ""))))}
			opts := Options{Ordered: ordered, IgnoreFiles: []string{".rules"}, Files: slices.Values([]string{"d/t/"}), openRoot: w.openRoot}
			var got []string
			for rel, err := range Stream(t.Context(), "root", opts, relOf) {
				require.NoError(t, err)
				got = append(got, rel)
			}
			require.Equal(t, []string{"d/t/a.c"}, got)
			require.Zero(t, w.open)
		})
	}
}

// A run that is stopped while it looks for one mark does not take the next for present.
func TestFilesNoMarkAfterAStop(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		inBubble(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			w := &world{root: folder("", folder("d", file("a", "")))}
			w.during = func(call, name string) {
				if call == "stat" && name == ".mark" {
					cancel(errBroken)
				}
			}
			out := outcome{}
			opts := Options{Workers: 1, Ordered: ordered, SkipMarked: []string{".mark", ".other"}, Files: slices.Values([]string{"d/a"})}
			w.trace(&out, &opts)
			_, err := Process(ctx, "root", opts, relOf)
			require.ErrorIs(t, err, errBroken)
			require.Empty(t, out.report.Skipped)
			require.Zero(t, w.open)
		})
	}
}

// A run that is stopped looks at no more of its names, which may be links.
func TestFilesNoLookAtLinksAfterAStop(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		inBubble(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			w := &world{root: crowd(100, 0)}
			looks := 0
			w.during = func(call, _ string) {
				if call == "stat" {
					looks++
					cancel(errBroken)
				}
			}
			opts := Options{Workers: 1, Ordered: ordered, Symlinks: SymlinksFiles, Files: slices.Values(w.names()), openRoot: w.openRoot}
			for _, err := range Stream(ctx, t.TempDir(), opts, relOf) { // the path of root is looked up
				require.ErrorIs(t, err, errBroken)
			}
			require.Equal(t, 1, looks)
			require.Zero(t, w.open)
		})
	}
}

// A mark that a look finds behind a file is no failure: there is none.
func TestFilesMarkBehindAFile(t *testing.T) {
	w := &world{root: folder("", folder("d", file("a", ""), file(".mark", "")))}
	w.find("d/.mark").statErr = syscall.ENOTDIR
	out := w.process(t.Context(), Options{SkipMarked: []string{".mark"}, Files: slices.Values([]string{"d/a"})}, nil)
	require.NoError(t, out.err)
	require.Equal(t, map[string]string{"d/a": ""}, out.got)
	require.Zero(t, out.report.Failed)
}

// Names of which the end of the run keeps a worker from judging their directory are neither skipped nor visited.
func TestFilesThatNobodyJudges(t *testing.T) {
	r := newRun(t.Context(), config{workers: 1, mayGrow: true}, callbacks{selectDir: func(*worker, *node, string) bool { return true }}, nil)
	w := r.startWorker(1) // which has no slot
	r.stop(errBroken)
	d := r.root.child(names.New("d"), 0)
	g := &givenNames{node: &d, up: &givenNames{node: r.root}, files: [][]names.Name{{names.New("a")}}}
	require.Equal(t, untold, w.askSelectDir(&d))
	g.refuse(w, nil, untold)
	require.Zero(t, w.counts)
	g.judged, g.err = true, errStopped
	s := spanMaker{w: w}
	s.addFiles(&givenItem{in: g, files: []names.Name{names.New("a")}})
	require.Empty(t, s.spans)
	w.retire()
}

// Below a directory that cannot be judged, nothing is asked.
func TestFilesBelowWhatCannotBeJudged(t *testing.T) {
	w := &world{root: folder("", folder("d", folder("e", file("a", ""))))}
	w.find("d").openErr = []error{errBroken, errBroken, errBroken, errBroken}
	var asked []string
	opts := Options{Workers: 1, Ordered: true, IgnoreFiles: []string{".ignore"}, Files: slices.Values([]string{"d/e/a"}), openRoot: w.openRoot}
	opts.SelectDir = func(e Entry) bool { asked = append(asked, e.Rel()); return true }
	failed := 0
	for _, err := range Stream(t.Context(), "root", opts, relOf) {
		require.ErrorIs(t, err, errBroken)
		failed++
	}
	require.Equal(t, 1, failed)
	require.Equal(t, []string{"d"}, asked)
	require.Zero(t, w.open)
}

// Of the many names in a directory that fails, a run that is stopped tells no more than a part.
func TestFilesOfAFailedDirectoryAfterAStop(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	w := &world{root: folder("", folder("d").with(opening(errBroken, errBroken, errBroken)))}
	var all []string
	for i := range 3 * givenPart {
		all = append(all, fmt.Sprint("d/", i))
	}
	told := 0
	opts := Options{Workers: 1, Suffixes: []string{".md"}, Files: slices.Values(all), OnSkip: func(Entry, SkipReason) { told++; cancel(errBroken) }}
	out := w.process(ctx, opts, nil)
	require.ErrorIs(t, out.err, errBroken)
	require.Positive(t, told)
	require.LessOrEqual(t, told, givenPart)
	w.requireSound(t, out)
}
