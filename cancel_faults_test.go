package fileproc

import (
	"context"
	"fmt"
	"io/fs"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

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
