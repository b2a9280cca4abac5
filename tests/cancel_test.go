package fileproc_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

func TestSkipAllStopsEarly(t *testing.T) {
	_, all := rooted(t, append(testtree.Numbered("f", 60), testtree.Numbered("d/f", 60)...)...)
	everyEntry(t, all, func(t *testing.T, p place, entry entryPoint, workers int) {
		var calls atomic.Int64
		got, errs, report := entry(t, t.Context(), p, fileproc.Options{Workers: workers}, func(f *fileproc.File) (string, error) {
			if calls.Add(1) >= 10 {
				return "no result", fs.SkipAll
			}
			return f.Name(), nil
		})
		require.Empty(t, errs, "stopping early is no error")
		require.Len(t, got, 9)
		require.NotContains(t, got, "no result")
		require.LessOrEqual(t, calls.Load(), int64(9+workers), "each worker can be in one call")
		require.Equal(t, calls.Load()-9, report.Skipped[fileproc.SkippedByFunc])
	})
}

// Only fn's own fs.SkipAll is no error.
func TestCauseThatWrapsSkipAllIsReturned(t *testing.T) {
	_, all := rooted(t, testtree.Numbered("f", 60)...)
	cause := fmt.Errorf("not fn's: %w", fs.SkipAll)
	everyEntry(t, all, func(t *testing.T, p place, entry entryPoint, workers int) {
		ctx, cancel := context.WithCancelCause(t.Context())
		_, errs, _ := entry(t, ctx, p, fileproc.Options{Workers: workers}, func(f *fileproc.File) (string, error) {
			cancel(cause)
			return f.Name(), nil
		})
		require.Len(t, errs, 1)
		require.Equal(t, cause, errs[0])
	})
}

func TestCancelled(t *testing.T) {
	_, all := rooted(t, append(testtree.Numbered("f", 60), testtree.Numbered("d/f", 60)...)...)
	cause := errors.New("shutting down")

	t.Run("before", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		everyEntry(t, all, func(t *testing.T, p place, entry entryPoint, workers int) {
			var calls atomic.Int64
			got, errs, _ := entry(t, ctx, p, fileproc.Options{Workers: workers}, func(*fileproc.File) (string, error) {
				calls.Add(1)
				return "called", nil
			})
			require.Empty(t, got)
			require.Zero(t, calls.Load(), "fn was called")
			require.Len(t, errs, 1)
			require.ErrorIs(t, errs[0], cause)
		})
		for _, p := range all {
			n := 0
			for e, err := range fileproc.Walk(ctx, p.root, fileproc.Options{FS: p.fsys}) {
				require.Zero(t, e)
				require.ErrorIs(t, err, cause)
				n++
			}
			require.Equal(t, 1, n)
		}
	})

	t.Run("during", func(t *testing.T) {
		everyEntry(t, all, func(t *testing.T, p place, entry entryPoint, workers int) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			var calls atomic.Int64
			got, errs, report := entry(t, ctx, p, fileproc.Options{Workers: workers}, func(f *fileproc.File) (string, error) {
				if calls.Add(1) == 10 {
					cancel(cause)
				}
				return f.Name(), nil
			})
			require.Len(t, errs, 1)
			require.ErrorIs(t, errs[0], cause)
			require.GreaterOrEqual(t, len(got), 10, "finished results are returned")
			require.EqualValues(t, calls.Load(), report.Processed)
		})
	})

	t.Run("in order", func(t *testing.T) {
		everyEntry(t, all, func(t *testing.T, p place, entry entryPoint, workers int) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			var calls atomic.Int64
			opts := fileproc.Options{Workers: workers, Ordered: true}
			got, errs, report := entry(t, ctx, p, opts, func(f *fileproc.File) (string, error) {
				if calls.Add(1) == 30 {
					cancel(cause)
				}
				return f.Rel(), nil
			})
			require.Len(t, errs, 1)
			require.ErrorIs(t, errs[0], cause)
			require.GreaterOrEqual(t, len(got), 30)
			require.EqualValues(t, len(got), report.Processed)
			require.True(t, slices.IsSorted(got), "%q", got)
		})
	})

	t.Run("between results", func(t *testing.T) {
		for _, p := range all {
			ctx, cancel := context.WithCancelCause(t.Context())
			t.Cleanup(func() { cancel(nil) })
			entries := 0
			var errs []error
			for _, err := range fileproc.Walk(ctx, p.root, fileproc.Options{FS: p.fsys}) {
				if err != nil {
					errs = append(errs, err)
				} else if entries++; entries == 3 {
					cancel(cause)
				}
			}
			// The whole tree may have been listed by then: the loop is behind the workers.
			if len(errs) == 0 {
				require.Equal(t, 121, entries)
				continue
			}
			require.Len(t, errs, 1)
			require.ErrorIs(t, errs[0], cause)
		}
	})
}
