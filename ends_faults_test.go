package fileproc

import (
	"context"
	"fmt"
	"io/fs"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

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
								ran[f.w] = true
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
								require.False(t, w.reader.Large(), "memory of a large file")
							}
						})
					})
				}
			}
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
	for name, opts := range map[string]Options{
		"":             {},
		"ignore files": {IgnoreFiles: []string{".ignore"}},
		"ordered":      {Ordered: true},
		"both":         {Ordered: true, IgnoreFiles: []string{".ignore"}},
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
		f.w.dirs.addWaiters(1) // so that one is evicted after each batch, too
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
