package fileproc

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fileproc/fileproc/internal/knobs"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

// The ledger includes the file whose fn did not return.
func TestFaultsMishapAtEachFile(t *testing.T) {
	for name, mishap := range map[string]func(){"panic": func() { panic(errBroken) }, "Goexit": runtime.Goexit} {
		for _, where := range []string{"fn", "Select", "Unchanged", "fn after Unchanged"} {
			for _, workers := range []int{1, 3} {
				for k := range 6 {
					t.Run(fmt.Sprintf("%s/%s/workers=%d/%d", name, where, workers, k), func(t *testing.T) {
						inBubble(t, func(t *testing.T) {
							w := &world{root: small()}
							var mu sync.Mutex
							n := 0
							ran := map[*worker]bool{}
							act := func(f *File) error {
								mu.Lock()
								ran[workerOf(f)] = true
								n++
								mine := n == k+1
								mu.Unlock()
								if mine {
									mishap()
								}
								return nil
							}
							var out outcome
							opts := Options{Workers: workers, openRoot: w.openRoot, Report: &out.report}
							callback := act
							switch where {
							case "Select":
								opts.Select = func(f *File) bool { return callback(f) == nil }
							case "Unchanged":
								opts.hooks.Unchanged = func(f *File) bool { return callback(f) != nil }
							case "fn after Unchanged":
								opts.hooks.Unchanged = func(f *File) bool { return f.Name()[0]%2 == 0 }
							}
							if where == "Select" || where == "Unchanged" {
								act = func(*File) error { return nil }
							}
							var caught any
							returned := false
							done := make(chan struct{})
							go func() {
								defer close(done)
								defer func() { caught = recover() }()
								_, _ = Process(t.Context(), "root", opts, func(f *File) (int, error) { return 0, act(f) })
								returned = true
							}()
							<-done
							require.False(t, returned)
							if name == "panic" {
								err, _ := caught.(error)
								require.ErrorIs(t, err, errBroken)
							} else {
								require.Nil(t, caught)
							}
							w.requireSound(t, out)
							for w := range ran {
								require.Zero(t, w.reader.Held(), "memory of a large file")
							}
						})
					})
				}
			}
		}
	}
}

// varied is a tree whose entries have every outcome. What it has on a file system has no faults.
func varied() *object {
	denied := fs.ErrPermission
	return folder("", file("a.md", "a"), file("b.txt", "b"), file(".ignore", "ign*\n"), file("ign.md", ""), file("bin.md", "\x00"),
		folder("d", file("c.md", "c", unknown), file("d.txt", "d"), folder("e", file("f.md", "f"), file("g.txt", ""))),
		folder("marked", file("TAG", ""), file("m.md", "")),
		folder("shut", file("s.md", ""), file("s.txt", ""), folder("in", file("deep.txt", ""), file("deep.md", ""))).with(opening(denied, denied, denied)),
		file("li.md", "", typed(fs.ModeSymlink)), file("pipe.md", "", typed(fs.ModeNamedPipe)), file("lost.md", "", typed(fs.ModeSymlink), vanished),
		file("gone.md", "", vanished), folder("gone", file("x.txt", "")).with(vanished), file("z.md", "z"))
}

// variedNames are names for Options.Files, of varied and others.
var variedNames = []string{"a.md", "ign.md", "no//name", "d/c.md", "d/d.txt", "marked/m.md", "marked/m.txt", "bin.md", "shut/s.md", "shut/s.txt",
	"shut/in/deep.md", "shut/in/deep.txt", "l.md", "l.txt", "d/e/", "gone/", "gone/x.txt", "gone/x.md", "b.txt", "gone.md", "no.md", "z.md"}

// A mishapRun is a run in which one call of a callback does not return as it should.
type mishapRun struct {
	callback string
	mishap   func(cancel func()) (stop bool) // stop: the callback is to end the run in its own way, if it has one
	variant  int                             // of the options: bits
	turn     int                             // chooses what the variants leave open
	system   string                          // varied, on a file system
	hasLinks bool                            // in system

	mu sync.Mutex
	n  int // calls until the mishap
}

// at is called in each callback.
func (r *mishapRun) at(callback string, cancel func()) (stop bool) {
	if callback != r.callback {
		return false
	}
	r.mu.Lock()
	r.n--
	mine := r.n == -1
	r.mu.Unlock()
	return mine && r.mishap(cancel)
}

func (r *mishapRun) options(w *world, cancel func()) (root string, opts Options) {
	hasNames, isOrdered, isShard, judgesDirs := r.variant&1 > 0, r.variant&2 > 0, r.variant&4 > 0, r.variant&8 > 0
	opts = Options{Workers: 1 + r.turn%3, Suffixes: []string{".md", "TAG"}, SkipBinary: r.entry() != "Walk", Ordered: isOrdered}
	opts.Select = func(*File) bool { r.at("Select", cancel); return true }
	opts.SelectDir = func(e Entry) bool { r.at("SelectDir", cancel); return e.Name() != "e" || r.turn%5 > 0 }
	opts.OnSkip = func(Entry, SkipReason) { r.at("OnSkip", cancel) }
	opts.OnError = func(error) error {
		if r.at("OnError", cancel) {
			return errBroken
		}
		return nil
	}
	opts.OnProgress = func(Report) { r.at("OnProgress", cancel) }
	if r.callback == "Unchanged" || r.callback == "OnBinary" {
		opts.hooks.Unchanged = func(f *File) bool { r.at("Unchanged", cancel); return halfOld(f) }
		opts.hooks.OnBinary = func(*File) { r.at("OnBinary", cancel) }
	}
	opts.AllTypes = !hasNames && opts.hooks.Unchanged == nil && r.turn%4 != 2 && r.turn%3 > 0
	if isShard {
		opts.Shard, opts.Shards = r.turn%2, 2
	}
	if judgesDirs {
		opts.IgnoreFiles, opts.SkipMarked = []string{".ignore"}, []string{"TAG"}
	}
	if hasNames {
		opts.Files = func(yield func(string) bool) {
			for _, name := range variedNames {
				if r.at("Files", cancel) || !yield(name) {
					return
				}
			}
		}
	}
	switch r.turn % 4 {
	case 2:
		if r.hasLinks {
			opts.Symlinks, opts.SymlinksOutside = SymlinksFiles, r.turn%3 == 0
			if !hasNames && (r.entry() == "Process" || !isOrdered) {
				opts.Symlinks = SymlinksFollow
			}
		}
		return r.system, opts
	case 3:
		opts.FS = os.DirFS(r.system)
		return ".", opts
	}
	opts.openRoot = w.openRoot
	return "root", opts
}

func (r *mishapRun) entry() string { return []string{"Process", "Stream", "Walk"}[r.turn/2%3] }

// run reports whether the mishap came about in call k.
func (r *mishapRun) run(t *testing.T, k int) bool {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r.n = k
	w, report := &world{root: varied()}, Report{}
	root, opts := r.options(w, cancel)
	opts.Report = &report
	fn := func(f *File) (int, error) {
		time.Sleep(progressPeriod)
		switch {
		case r.at("fn", cancel):
			return 0, fs.SkipAll
		case f.Name() == "c.md":
			return 0, errBroken
		}
		return 0, nil
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		defer func() { _ = recover() }()
		switch r.entry() {
		case "Process":
			_, _ = Process(ctx, root, opts, fn)
		case "Stream":
			for range Stream(ctx, root, opts, fn) {
				if r.at("loop", cancel) {
					break
				}
			}
		case "Walk":
			for range Walk(ctx, root, opts) {
				if r.at("loop", cancel) {
					break
				}
			}
		}
	}()
	<-over
	requireLedger(t, report)
	require.Zero(t, w.open)
	return r.n < 0
}

// However and wherever a callback ends, each entry that was found is in the ledger once, whatever the options are.
func TestFaultsLedgerAfterEveryMishap(t *testing.T) {
	r := mishapRun{system: t.TempDir()}
	require.True(t, testtree.Make(t, r.system, "a.md=a", "b.txt=b", ".ignore=ign*\n", "ign.md", "bin.md=\x00", "d/c.md=c", "d/d.txt=d", "d/e/f.md=f", "d/e/g.txt",
		"marked/TAG", "marked/m.md", "z.md=z"))
	r.hasLinks = testtree.Make(t, r.system, "l.md -> a.md", "l.txt -> a.md", "no.md -> none", "out.md -> ..", "ld -> d", "loop.md -> loop.md")
	for name, mishap := range map[string]func(cancel func()) bool{
		"panic":  func(func()) bool { panic(errBroken) },
		"Goexit": func(func()) bool { runtime.Goexit(); return false },
		"cancel": func(cancel func()) bool { cancel(); return false },
		"stop":   func(func()) bool { return true },
	} {
		for _, r.callback = range []string{"fn", "Select", "SelectDir", "Unchanged", "OnBinary", "OnSkip", "OnError", "OnProgress", "Files", "loop"} {
			t.Run(name+"/"+r.callback, func(t *testing.T) {
				r.mishap = mishap
				for r.variant = range 16 {
					for k, reached := 0, true; reached; k++ {
						r.turn++
						testtree.Set(t, &knobs.MaxBacklog, []int{1, 1 << 20}[r.turn%2])
						inBubble(t, func(t *testing.T) { reached = r.run(t, k) })
					}
				}
			})
		}
	}
}

// With Options.FS the backend is the caller's code, and may panic too.
func TestFaultsPanicAtEachCall(t *testing.T) {
	everyCall(t, func(t *testing.T, w *world, opts Options, k int) bool {
		reached := false
		w.onCall = func(i int) {
			if i == k {
				reached = true
				panic("in the backend")
			}
		}
		func() {
			defer func() {
				if v := recover(); v != nil {
					require.Contains(t, fmt.Sprint(v), "in the backend")
				}
			}()
			w.process(t.Context(), opts, nil)
		}()
		return reached // neither a hang nor a goroutine left
	})
}

// Even if closing any directory panics, close is called for each, and the Report is filled in.
func TestFaultsPanicOfEveryClose(t *testing.T) {
	testtree.NotInColdMode(t, "files are not in the order of the listing")
	inBubble(t, func(t *testing.T) {
		w := &world{root: folder("root", folder("d", folder("later"), folder("e", file("f", "f")))), eager: true}
		closed := map[string]bool{}
		w.during = func(call, name string) {
			if call == "close" && name != "f" {
				closed[name] = true
				panic("in the backend")
			}
		}
		var report Report
		require.Panics(t, func() {
			opts := Options{Workers: 1, openRoot: w.openRoot, Report: &report}
			_, _ = Process(t.Context(), "root", opts, func(*File) (int, error) { return 0, fs.SkipAll })
		})
		require.Equal(t, map[string]bool{"root": true, "d": true, "e": true}, closed)
		require.EqualValues(t, 1, report.Found)
		requireLedger(t, report)
	})
}

// A directory that has just been opened is closed even if the close of another one, evicted meanwhile, panics.
func TestFaultsPanicOfACloseWhileAnotherIsOpened(t *testing.T) {
	for k, reached := 0, true; reached; k++ {
		inBubble(t, func(t *testing.T) {
			tree := folder("d")
			for range 8 {
				tree = folder("d", folder("e", file("f", "f")), tree, file("g", "g"))
			}
			tree.name = ""
			w, i := &world{root: tree, limit: 5, scarce: scarceErrors[0]}, 0
			w.during = func(call, name string) {
				if call == "close" && (name == "d" || name == "e") {
					if i++; i == k+1 {
						panic("in the backend")
					}
				}
			}
			func() {
				defer func() { reached = recover() != nil }()
				opts := Options{Workers: 1, openRoot: w.openRoot}
				_, _ = Process(t.Context(), "root", opts, func(*File) (int, error) { return 0, nil })
			}()
			left := 0
			if reached {
				left = 1
			}
			require.Equal(t, left, w.open, "handles left open, including the one whose close panicked")
		})
	}
}

// Entries found before the backend panicked are counted, even if a directory's entries are buffered until all are listed.
func TestFaultsPanicLeavesABalancedLedger(t *testing.T) {
	names := slices.Values([]string{"a", "d/b", "no//name", "d/.ignore", "x", "gone/q", "gone/r/", "d/untyped", "d/e/", "few", "long", "empty/"})
	for name, opts := range map[string]Options{
		"":             {},
		"ignore files": {IgnoreFiles: []string{".ignore"}},
		"ordered":      {Ordered: true},
		"both":         {Ordered: true, IgnoreFiles: []string{".ignore"}},
		"names":        {Files: names},
		"all":          {Files: names, Ordered: true, IgnoreFiles: []string{".ignore"}},
	} {
		t.Run(name, func(t *testing.T) {
			everyCall(t, func(t *testing.T, w *world, of Options, k int) bool {
				w.root.kids[1].kids = append(w.root.kids[1].kids, file(".ignore", "nothing"), file("untyped", "u", unknown))
				reached := false
				w.onCall = func(i int) {
					if i == k {
						reached = true
						panic("in the backend")
					}
				}
				var report Report
				opts.Workers, opts.Stat, opts.ReadSize, opts.hooks = of.Workers, of.Stat, of.ReadSize, of.hooks
				opts.openRoot, opts.Report = w.openRoot, &report
				func() {
					defer func() { _ = recover() }()
					if of.Stat {
						for range Walk(t.Context(), "root", opts) {
						}
						return
					}
					for range Stream(t.Context(), "root", opts, func(*File) (int, error) { return 0, nil }) {
					}
				}()
				requireLedger(t, report)
				return reached
			})
		})
	}
}

// If many directories have pending work, one is evicted as soon as another has been listed.
func TestFaultsPanicAtADirectoryThatIsPutAside(t *testing.T) {
	for _, opts := range []Options{{}, {Ordered: true}, {hooks: hooks{Unchanged: func(f *File) bool {
		f.w.run.dirs.newShortage() // so that one is evicted after each batch, too
		return false
	}}}} {
		for k, reached := 0, true; reached; k++ {
			inBubble(t, func(t *testing.T) {
				tree := folder("a")
				for range 2 * fullBudget.open {
					tree = folder("a", folder("b", file("f", "f")), tree, file("f", "f"), file("g", "g"))
				}
				tree.name = ""
				w, i := &world{root: tree}, 0
				w.during = func(call, _ string) {
					if call == "identity" {
						if i++; i > k {
							panic("in the backend")
						}
					}
				}
				var report Report
				opts.Workers, opts.openRoot, opts.Report = 1, w.openRoot, &report
				func() {
					defer func() { reached = recover() != nil }()
					for range Stream(t.Context(), "root", opts, func(*File) (int, error) { return 0, nil }) {
					}
				}()
				require.True(t, reached || k > fullBudget.open, "this tests nothing if few directories are evicted")
				requireLedger(t, report)
			})
		}
	}
}

func TestFaultsPanicOfOnErrorAtEachFailure(t *testing.T) {
	tree := func() *object {
		return folder("",
			file("a", "a"), file("b", "b", vanished), file("c", "c"),
			folder("d", file("e", "e"), file("f", "f", unknown).with(func(o *object) { o.statErr = errBroken }), file("g", "g"), file("h", "h")),
			folder("i", file("j", "j"), file("k", "k"), file("l", "l")).with(listFails(0, errBroken)),
			folder("m").with(vanished), file("n", "n"), file("fn", "fn"))
	}
	for k := range 6 {
		everyWorld(t, tree, func(t *testing.T, w *world, workers int) {
			n := 0
			opts := Options{Workers: workers, OnError: func(error) error {
				if n++; n > k {
					panic("in OnError")
				}
				return nil
			}}
			var report Report
			opts.Report, opts.openRoot = &report, w.openRoot
			func() {
				defer func() { require.Equal(t, k < 5, recover() != nil) }()
				Process(t.Context(), "root", opts, func(f *File) (int, error) {
					if f.Name() == "fn" {
						return 0, errBroken
					}
					return 0, nil
				})
			}()
			require.Empty(t, w.wrong)
			require.Zero(t, w.open, "handles left open")
			requireLedger(t, report)
		})
	}
}

func TestFaultsCancelAtEachCall(t *testing.T) {
	everyCall(t, func(t *testing.T, w *world, opts Options, k int) bool {
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
		return reached
	})
}

// A run that is cancelled while it takes the entries of a directory looks up no more of them.
func TestFaultsCancelWhileListing(t *testing.T) {
	for name, opts := range map[string]Options{"": {}, "ordered": {Ordered: true}, "ignore files": {IgnoreFiles: []string{"none"}}} {
		for _, kind := range []string{"directories", "untyped"} {
			inBubble(t, func(t *testing.T) {
				w := &world{root: folder(""), perList: 100}
				for i := range 100 {
					if kind == "untyped" {
						w.root.kids = append(w.root.kids, file(fmt.Sprint(i), "", unknown))
					} else {
						w.root.kids = append(w.root.kids, folder(fmt.Sprint(i)))
					}
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				stats := 0
				w.during = func(call, _ string) {
					if call == "stat" {
						if stats++; stats == 3 {
							cancel(errBroken)
						}
					}
				}
				var report Report
				opts.Stat, opts.Workers, opts.openRoot, opts.Report = true, 1, w.openRoot, &report
				for _, err := range Walk(ctx, "root", opts) {
					if err != nil {
						require.ErrorIs(t, err, errBroken)
					}
				}
				require.LessOrEqual(t, stats, 2*3, "%s %s: only entries already taken may be visited", name, kind)
				if name != "" {
					require.Zero(t, report.Found, "%s %s: buffered entries are no longer taken", name, kind)
				}
				requireLedger(t, report)
				require.Zero(t, w.open)
			})
		}
	}
}

func TestFaultsStreamLeftAtEachResult(t *testing.T) {
	for _, workers := range []int{1, 3} {
		for k := range 7 {
			inBubble(t, func(t *testing.T) {
				w := &world{root: small()}
				var out outcome
				opts := Options{Workers: workers, openRoot: w.openRoot, Report: &out.report}
				opts.OnError = func(err error) error { return err }
				n := 0
				for range Stream(t.Context(), "root", opts, func(f *File) (string, error) { return f.Rel(), nil }) {
					synctest.Wait() // OnError may have ended the run
					if n == k {
						break
					}
					n++
				}
				w.requireSound(t, out)

				n = 0
				opts.Report = &out.report
				for range Walk(t.Context(), "root", opts) {
					if n == k {
						break
					}
					n++
				}
				w.requireSound(t, out)
			})
		}
	}
}

func TestFaultsStopAtEachFailure(t *testing.T) {
	everyCall(t, func(t *testing.T, w *world, opts Options, k int) bool {
		n := 0
		opts.OnError = func(error) error {
			n++
			if n > k%3 {
				return errBroken
			}
			return nil
		}
		out := w.process(t.Context(), opts, func(f *File) error {
			if f.Name() == "b" {
				return fs.ErrInvalid
			}
			return nil
		})
		require.ErrorIs(t, out.err, errBroken)
		w.requireHonest(t, out, opts)
		return k < 21
	})
}

func TestFaultsSkipAllAtEachFile(t *testing.T) {
	for _, workers := range []int{1, 3} {
		for k := range 6 {
			inBubble(t, func(t *testing.T) {
				w := &world{root: small()}
				var mu sync.Mutex
				n := 0
				out := w.process(t.Context(), Options{Workers: workers}, func(*File) error {
					mu.Lock()
					defer mu.Unlock()
					n++
					if n == k+1 {
						return fs.SkipAll
					}
					return nil
				})
				require.NoError(t, out.err)
				w.requireSound(t, out)
				require.EqualValues(t, 1, out.report.Skipped[SkippedByFunc])
			})
		}
	}
}
