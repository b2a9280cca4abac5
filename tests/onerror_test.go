package fileproc_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

func TestFailureKindString(t *testing.T) {
	kinds := []fileproc.FailureKind{fileproc.FailedRoot, fileproc.FailedDir, fileproc.FailedFile, fileproc.FailedFunc, -1, 4}
	require.Equal(t, "[root directory file function FailureKind(-1) FailureKind(4)]", fmt.Sprint(kinds))
}

func TestSkipFromFn(t *testing.T) {
	_, all := rooted(t, testtree.Numbered("d/f", 40)...)
	everyEntry(t, all, func(t *testing.T, p place, entry entryPoint, workers int) {
		got, errs, report := entry(t, t.Context(), p, fileproc.Options{Workers: workers}, func(f *fileproc.File) (string, error) {
			switch {
			case strings.HasSuffix(f.Name(), "0.md"):
				return "no result", fileproc.ErrSkip
			case strings.HasSuffix(f.Name(), "5.md"):
				return "no result", fmt.Errorf("a draft: %w", fileproc.ErrSkip)
			}
			return f.Name(), nil
		})
		require.Empty(t, errs)
		require.Len(t, got, 32)
		require.NotContains(t, got, "no result")
		require.Equal(t, map[fileproc.SkipReason]int64{fileproc.SkippedByFunc: 8}, report.Skipped)
		require.Zero(t, report.Abandoned)
	})
}

func TestErrorFromFn(t *testing.T) {
	_, all := rooted(t, append(testtree.Numbered("d/f", 20), "bad.md=x")...)
	for _, mine := range []error{errors.New("no title"), fs.SkipDir} {
		everyEntry(t, all, func(t *testing.T, p place, entry entryPoint, workers int) {
			got, errs, report := entry(t, t.Context(), p, fileproc.Options{Workers: workers}, func(f *fileproc.File) (string, error) {
				if f.Name() == "bad.md" {
					return "no result", mine
				}
				return f.Name(), nil
			})
			require.Len(t, got, 20, "the others are processed")
			require.Len(t, errs, 1)
			require.ErrorIs(t, errs[0], mine)
			var pathErr *fs.PathError
			require.ErrorAs(t, errs[0], &pathErr)
			require.Equal(t, p.path("bad.md"), pathErr.Path)
			require.ErrorContains(t, errs[0], p.path("bad.md"))
			require.EqualValues(t, 1, report.Failed)
			require.Zero(t, report.Abandoned)
		})
	}
}

func TestManyErrorsAreCountedBeyond100(t *testing.T) {
	_, all := rooted(t, append(testtree.Numbered("d/f", 150), "good.md=x")...)
	mine := errors.New("always")
	everyEntry(t, all, func(t *testing.T, p place, entry entryPoint, workers int) {
		got, errs, report := entry(t, t.Context(), p, fileproc.Options{Workers: workers}, func(f *fileproc.File) (string, error) {
			if f.Name() != "good.md" {
				return "", mine
			}
			return f.Name(), nil
		})
		require.Equal(t, []string{"good.md"}, got)
		require.EqualValues(t, 150, report.Failed)
		if len(errs) > 1 { // Stream yields each
			require.Len(t, errs, 150)
			for _, err := range errs {
				require.ErrorIs(t, err, mine)
			}
			return
		}
		var joined interface{ Unwrap() []error }
		require.ErrorAs(t, errs[0], &joined)
		require.Len(t, joined.Unwrap(), 100)
		require.ErrorIs(t, errs[0], mine)
		require.ErrorContains(t, errs[0], "50 more")
		require.Equal(t, 100, strings.Count(errs[0].Error(), mine.Error()))
	})
}

func TestOnError(t *testing.T) {
	_, all := rooted(t, append(testtree.Numbered("d/f", 150), testtree.Numbered("good", 50)...)...)
	mine := errors.New("always")
	failing := func(f *fileproc.File) (string, error) {
		if strings.HasPrefix(f.Name(), "f") {
			return "", mine
		}
		return f.Name(), nil
	}

	t.Run("carry on", func(t *testing.T) {
		everyEntry(t, all, func(t *testing.T, p place, entry entryPoint, workers int) {
			var inside, overlaps atomic.Int64
			paths := map[string]bool{} // without a lock: calls come one at a time, and the race detector checks that
			opts := fileproc.Options{Workers: workers, OnError: func(err error) error {
				if inside.Add(1) > 1 {
					overlaps.Add(1)
				}
				runtime.Gosched()
				var pathErr *fs.PathError
				if errors.As(err, &pathErr) && errors.Is(err, mine) {
					paths[pathErr.Path] = true
				}
				inside.Add(-1)
				return nil
			}}
			got, errs, report := entry(t, t.Context(), p, opts, failing)
			require.Empty(t, errs, "OnError got them")
			require.Len(t, got, 50)
			require.Len(t, paths, 150)
			require.Zero(t, overlaps.Load(), "calls of OnError overlap")
			require.EqualValues(t, 150, report.Failed)
		})
	})

	t.Run("stop", func(t *testing.T) {
		enough := errors.New("enough")
		everyEntry(t, all, func(t *testing.T, p place, entry entryPoint, workers int) {
			calls := 0
			opts := fileproc.Options{Workers: workers, OnError: func(error) error {
				if calls++; calls == 3 {
					return enough
				}
				return nil
			}}
			_, errs, report := entry(t, t.Context(), p, opts, failing)
			require.Len(t, errs, 1)
			require.ErrorIs(t, errs[0], enough)
			require.Equal(t, 3, calls, "no call after the one that stopped the run")
			require.LessOrEqual(t, report.Failed, int64(3+workers))
		})
	})
}

// TestOnErrorAndTheRoot: a root that cannot be opened or listed is a failure like that of any directory. An ignore file that
// cannot be read keeps a run from starting, and OnError is not called.
func TestOnErrorAndTheRoot(t *testing.T) {
	_, all := rooted(t, "d/e/f=x")
	everyEntry(t, all, func(t *testing.T, p place, entry entryPoint, workers int) {
		for _, ordered := range []bool{false, true} {
			var failed []error
			opts := fileproc.Options{Workers: workers, Ordered: ordered, OnError: func(err error) error { failed = append(failed, err); return nil }}
			missing := p
			missing.root = path.Join(p.root, "missing")
			got, errs, report := entry(t, t.Context(), missing, opts, nameOf)
			require.Empty(t, got)
			require.Empty(t, errs)
			require.Len(t, failed, 1)
			require.ErrorIs(t, failed[0], fs.ErrNotExist)
			require.NotErrorIs(t, failed[0], fileproc.ErrChanged) // nothing has listed root
			require.EqualValues(t, 1, report.Failed)
			require.EqualValues(t, 1, report.Found)

			mine := errors.New("mine")
			opts.OnError = func(error) error { return mine }
			_, errs, _ = entry(t, t.Context(), missing, opts, nameOf)
			require.Equal(t, []error{mine}, errs)

			opts.OnError = func(error) error { panic(mine) }
			require.PanicsWithError(t, mine.Error(), func() {
				defer func() { panic(recover().(*fileproc.PanicError).Value) }()
				_, _, _ = entry(t, t.Context(), missing, opts, nameOf)
			})

			opts.OnError = nil
			_, errs, _ = entry(t, t.Context(), missing, opts, nameOf)
			require.Len(t, errs, 1)
			require.ErrorIs(t, errs[0], fs.ErrNotExist)

			calls := 0
			opts.OnError = func(error) error { calls++; return nil }
			opts.IgnoreFiles = []string{"d/e"} // a path, of a directory
			_, errs, _ = entry(t, t.Context(), p, opts, nameOf)
			require.Len(t, errs, 1)
			require.Zero(t, calls)
		}
	})
	for _, err := range fileproc.Walk(t.Context(), filepath.Join(t.TempDir(), "missing"), fileproc.Options{}) {
		require.ErrorIs(t, err, fs.ErrNotExist)
	}
	for _, call := range entryPoints {
		calls := 0
		opts := fileproc.Options{FS: noListing{fstest.MapFS{"file": {}}}, OnError: func(error) error { calls++; return nil }}
		require.NoError(t, call(t.Context(), ".", opts, succeed))
		require.Equal(t, 1, calls)
	}
}

// noListing is a file system whose root can be opened but not listed.
type noListing struct{ fstest.MapFS }

func (n noListing) Open(name string) (fs.File, error) {
	f, err := n.MapFS.Open(name)
	if name == "." {
		f = noEntries{f}
	}
	return f, err
}

type noEntries struct{ fs.File }

func (noEntries) ReadDir(int) ([]fs.DirEntry, error) { return nil, errors.New("cannot be listed") }

type ownError struct{ rel string }

func (e ownError) Error() string { return "mine: " + e.rel }

// TestFailureKinds: failures of root, a directory, a file and fn are told apart by their kind, and fn's own value comes back.
func TestFailureKinds(t *testing.T) {
	for name, call := range collecting {
		for _, ordered := range []bool{false, true} {
			dir, all := rooted(t, "bad.md=x", "file/gone.md=x", "dir/sub/f.md=x", "good.md=x")
			failed := map[fileproc.FailureKind]string{}
			opts := fileproc.Options{Ordered: ordered}
			opts.OnError = func(err error) error {
				switch f := err.(type) {
				case *fileproc.Failure:
					rel, err := filepath.Rel(dir, f.Path)
					require.NoError(t, err)
					failed[f.Kind] += filepath.ToSlash(rel)
					if own, ok := f.Err.(ownError); ok != (f.Kind == fileproc.FailedFunc) || ok && own.rel != rel {
						t.Errorf("%v is of kind %v", f.Err, f.Kind)
					}
					var of *fs.PathError
					require.ErrorAs(t, f, &of)
					require.Equal(t, f.Path, of.Path)
				default:
					t.Errorf("%T", err)
				}
				return nil
			}
			opts.Select = func(f *fileproc.File) bool {
				if f.Name() == "gone.md" {
					require.NoError(t, os.Remove(f.Path()))
				}
				return true
			}
			opts.SelectDir = func(e fileproc.Entry) bool {
				if e.Name() == "sub" {
					require.NoError(t, os.RemoveAll(e.Path()))
				}
				return true
			}
			fn := func(f *fileproc.File) (string, error) {
				if f.Name() == "bad.md" {
					return "", ownError{f.Rel()}
				}
				return f.Name(), nil
			}
			got, errs, _ := call(t, t.Context(), all[0], opts, fn)
			require.Empty(t, errs)
			require.Equal(t, []string{"good.md"}, got, name)
			missing := all[0]
			missing.root = filepath.Join(dir, "missing")
			_, _, _ = call(t, t.Context(), missing, opts, fn)
			require.Equal(t, map[fileproc.FailureKind]string{
				fileproc.FailedRoot: "missing", fileproc.FailedDir: "dir/sub", fileproc.FailedFile: "file/gone.md", fileproc.FailedFunc: "bad.md",
			}, failed)
		}
	}
}

// TestResultAndError: with WithResult, fn's result is delivered beside its failure, and beside the end of the run.
func TestResultAndError(t *testing.T) {
	_, all := rooted(t, "a=x", "b=x", "c=x")
	mine := errors.New("mine")
	require.NoError(t, fileproc.WithResult(nil))
	require.NoError(t, fileproc.WithResult(fmt.Errorf("not: %w", fileproc.ErrSkip)))
	require.ErrorIs(t, fileproc.WithResult(mine), mine)
	require.Equal(t, fileproc.WithResult(mine), fileproc.WithResult(fileproc.WithResult(mine)))
	fn := func(f *fileproc.File) (string, error) {
		switch f.Name() {
		case "a":
			return "lost", mine
		case "b":
			return "partial", fileproc.WithResult(mine)
		}
		return "c", nil
	}
	for _, p := range all {
		for _, ordered := range []bool{false, true} {
			var report fileproc.Report
			opts := fileproc.Options{FS: p.fsys, Ordered: ordered, Report: &report}
			got, err := fileproc.Process(t.Context(), p.root, opts, fn)
			require.ElementsMatch(t, []string{"partial", "c"}, got)
			var joined interface{ Unwrap() []error }
			require.ErrorAs(t, err, &joined)
			require.Len(t, joined.Unwrap(), 2)
			for _, err := range joined.Unwrap() {
				require.Equal(t, mine, err.(*fileproc.Failure).Err)
			}
			require.EqualValues(t, 2, report.Failed)
			requireBalanced(t, report)

			beside := map[string]bool{}
			for v, err := range fileproc.Stream(t.Context(), p.root, opts, fn) {
				beside[v] = err != nil
			}
			require.Equal(t, map[string]bool{"": true, "partial": true, "c": false}, beside)

			calls := 0
			opts.OnError = func(error) error { calls++; return nil }
			got = nil
			for v, err := range fileproc.Stream(t.Context(), p.root, opts, fn) {
				require.NoError(t, err)
				got = append(got, v)
			}
			require.ElementsMatch(t, []string{"partial", "c"}, got)
			require.Equal(t, 2, calls)
			opts.OnError = nil

			last := func(f *fileproc.File) (string, error) { return "last", fileproc.WithResult(fs.SkipAll) }
			opts.Workers = 1
			got, err = fileproc.Process(t.Context(), p.root, opts, last)
			require.NoError(t, err)
			require.Equal(t, []string{"last"}, got)
			require.EqualValues(t, 1, report.Processed)
			require.Empty(t, report.Skipped)
			got = nil
			for v, err := range fileproc.Stream(t.Context(), p.root, opts, last) {
				require.NoError(t, err)
				got = append(got, v)
			}
			require.Equal(t, []string{"last"}, got)
		}
	}
}
