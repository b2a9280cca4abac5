// Package fileproc_test tests package fileproc as its users see it. It runs beside the tests of single parts, which are
// among the sources.
package fileproc_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"testing"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/knobs"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

var defaultSlowCall = knobs.SlowCall

func init() {
	// On a busy machine any call is slow, and no test may depend on that.
	knobs.SlowCall = time.Hour
	knobs.AlwaysCold = testtree.Cold
}

// watchdog turns a hang into a failure that shows every stack.
func watchdog(t *testing.T) {
	t.Helper()
	name := t.Name()
	timer := time.AfterFunc(2*time.Minute, func() {
		pprof.Lookup("goroutine").WriteTo(os.Stderr, 2)
		panic(name + " hangs")
	})
	t.Cleanup(func() { timer.Stop() })
}

// leavesNothing requires that no goroutine outlives run and, on Linux, no descriptor.
func leavesNothing(t *testing.T, run func()) {
	t.Helper()
	goroutines, descriptors := runtime.NumGoroutine(), openDescriptors()
	run()
	require.Equal(t, descriptors, openDescriptors(), "descriptors")
	// A goroutine that has signalled its end may still be in its last instructions.
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > goroutines; {
		if time.Now().After(deadline) {
			pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), goroutines)
		}
		time.Sleep(time.Millisecond)
	}
}

func requireBalanced(t *testing.T, r fileproc.Report) {
	t.Helper()
	sum := r.Processed + r.Unchanged + r.Failed + r.Abandoned
	for _, n := range r.Skipped {
		sum += n
	}
	require.Equal(t, r.Found, sum, "found against processed + skipped + failed + abandoned: %+v", r)
}

// requireResults checks the number of results. Of unchanged files, fn may have declined some.
func requireResults(t *testing.T, results int, r fileproc.Report) {
	t.Helper()
	require.GreaterOrEqual(t, int64(results), r.Processed, "results against files processed")
	require.LessOrEqual(t, int64(results), r.Processed+r.Unchanged, "results against files processed")
}

// spread writes dirs × files small files below a new directory, each holding its own relative path.
func spread(t testing.TB, dirs, files int) string {
	t.Helper()
	root := t.TempDir()
	for d := range dirs {
		dir := fmt.Sprintf("dir%04d", d)
		require.NoError(t, os.Mkdir(filepath.Join(root, dir), 0o755))
		for f := range files {
			rel := filepath.Join(dir, fmt.Sprintf("file%04d", f))
			require.NoError(t, os.WriteFile(filepath.Join(root, rel), []byte(filepath.ToSlash(rel)), 0o644))
		}
	}
	return root
}

type place struct {
	name, root string
	fsys       fs.FS
}

// places are the ways to reach the same directory: through the system and through an fs.FS.
func places(dir string) []place {
	return []place{{"os", dir, nil}, {"fs", ".", os.DirFS(dir)}}
}

func drain[T any](seq iter.Seq2[T, error]) error {
	var errs []error
	for _, err := range seq {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

var errFromFn = errors.New("fn's own error")

func succeed(*fileproc.File) (int, error) { return 1, nil }
func fail(*fileproc.File) (int, error)    { return 0, errFromFn }

var entryPoints = map[string]func(context.Context, string, fileproc.Options, func(*fileproc.File) (int, error)) error{
	"Process": func(ctx context.Context, root string, opts fileproc.Options, fn func(*fileproc.File) (int, error)) error {
		_, err := fileproc.Process(ctx, root, opts, fn)
		return err
	},
	"ForEach": func(ctx context.Context, root string, opts fileproc.Options, fn func(*fileproc.File) (int, error)) error {
		return fileproc.ForEach(ctx, root, opts, func(f *fileproc.File) error {
			_, err := fn(f)
			return err
		})
	},
	"Stream": func(ctx context.Context, root string, opts fileproc.Options, fn func(*fileproc.File) (int, error)) error {
		return drain(fileproc.Stream(ctx, root, opts, fn))
	},
}

// slow means that every call of package os goes through an emulation, at a hundred times the cost.
var slow = runtime.GOOS == "js" || runtime.GOOS == "wasip1" || testtree.IsWine()

func nameOf(f *fileproc.File) (string, error) { return f.Name(), nil }

// rooted makes a small tree and returns the places that see it.
func rooted(t *testing.T, list ...string) (dir string, all []place) {
	t.Helper()
	dir = t.TempDir()
	require.True(t, testtree.Make(t, dir, list...))
	return dir, places(dir)
}

// everyEntry runs test for each place, each entry point and each number of workers.
func everyEntry(t *testing.T, all []place, test func(t *testing.T, p place, entry entryPoint, workers int)) {
	for _, p := range all {
		for name, entry := range collecting {
			for _, workers := range []int{1, 4} {
				t.Run(fmt.Sprintf("%s/%s/workers=%d", p.name, name, workers), func(t *testing.T) {
					watchdog(t)
					test(t, p, entry, workers)
				})
			}
		}
	}
}

// An entryPoint gives the results, the errors as the entry point gives them, and the ledger.
type entryPoint func(t *testing.T, ctx context.Context, p place, opts fileproc.Options, fn func(*fileproc.File) (string, error)) ([]string, []error, fileproc.Report)

var collecting = map[string]entryPoint{
	"Process": func(t *testing.T, ctx context.Context, p place, opts fileproc.Options, fn func(*fileproc.File) (string, error)) ([]string, []error, fileproc.Report) {
		var report fileproc.Report
		opts.FS, opts.Report = p.fsys, &report
		got, err := fileproc.Process(ctx, p.root, opts, fn)
		requireBalanced(t, report)
		requireResults(t, len(got), report)
		if err == nil {
			return got, nil, report
		}
		return got, []error{err}, report
	},
	"Stream": func(t *testing.T, ctx context.Context, p place, opts fileproc.Options, fn func(*fileproc.File) (string, error)) (got []string, errs []error, _ fileproc.Report) {
		var report fileproc.Report
		opts.FS, opts.Report = p.fsys, &report
		for v, err := range fileproc.Stream(ctx, p.root, opts, fn) {
			if err != nil {
				require.Empty(t, v, "a value beside an error")
				errs = append(errs, err)
				continue
			}
			got = append(got, v)
		}
		requireBalanced(t, report)
		requireResults(t, len(got), report)
		return got, errs, report
	},
}

func relOf(f *fileproc.File) (string, error) { return f.Rel(), nil }
