package fileproc_test

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"
	"unicode/utf8"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

// bufferSizes are the sizes in bytes at which some layer, ours or the kernel's, ends one buffer and begins another.
var bufferSizes = []int{512, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 1 << 20}

// slow says that every call of package os goes through an emulation, at a hundred times the cost.
const slow = runtime.GOOS == "js" || runtime.GOOS == "wasip1"

// A tree is one case of the conformance suite.
type tree struct {
	name string
	make func(t *testing.T, dir string) bool
	// deep says that paths are longer than the system accepts.
	deep bool
	// big says that one run with each entry point and each number of workers is enough.
	big bool
}

func specs(s ...string) func(*testing.T, string) bool {
	return func(t *testing.T, dir string) bool { return testtree.Make(t, dir, s...) }
}

func numbered(n int) tree {
	return tree{name: fmt.Sprintf("%d entries", n), make: specs(testtree.Numbered("f", n)...), big: n > 200 || slow && n > 2}
}

func trees() []tree {
	many, dirs := 5000, 3000
	if testing.Short() {
		many, dirs = 500, 300
	}
	if slow {
		many, dirs = 200, 50
	}
	wide := make([]string, dirs)
	for i := range wide {
		wide[i] = fmt.Sprintf("d%04d/f.md=%d", i, i)
	}
	var sizes []string
	for _, size := range bufferSizes {
		for _, n := range []int{size - 1, size, size + 1} {
			sizes = append(sizes, fmt.Sprintf("f%d=%s", n, testtree.Content(n)))
		}
	}
	all := []tree{
		{name: "empty", make: specs()},
		numbered(1),
		numbered(2),
		numbered(127),
		numbered(128),
		numbered(129),
		numbered(many),
		{name: fmt.Sprintf("%d directories", dirs), make: specs(wide...), big: true},
		{
			name: "100 levels of 250 bytes", deep: true,
			make: func(t *testing.T, dir string) bool {
				return testtree.Deep(t, dir, 100, strings.Repeat("n", 250), "f.md=deep", ".hidden=too")
			},
		},
		{name: "buffer sizes", make: specs(sizes...)},
		{name: "empty files", make: specs("a.md", "d/b.md", "d/c", "e.md=not empty")},
		{name: "empty directories", make: specs("a/", "b/c/d/", ".h/", "f.md=x")},
		{name: "nested", make: specs("a.md=1", "d/a.md=2", "d/d/a.md=3", "d/d/d/a.md=4", "d-d/a.md=5", "d.md/a.md=6", "e/f/g/h=7")},
		{name: "hidden", make: specs(".a.md=1", ".d/b.md=2", "d/.c=3", "d/.e/.f=4", "..g=5", "...=6", "h.md=7")},
		{name: "suffixes", make: specs("a.md=1", "b.MD=2", "c.mdx=3", ".md=4", "md=5", "d.md/e=6", "d.md/f.md=7")},
		{name: "not UTF-8", make: specs("\xff.md=1", "a\xc3=2", "d\xfe/\x80.md=3", "é.md=4")},
		{name: "newlines", make: specs("a\nb.md=1", "\n=2", "d\n/\n\n.md=3")},
		{name: "control characters", make: specs("\x01=1", "a\tb=2", "c\rd=3", "\x1b[31m.md=4", "\x7f=5")},
		{name: "255 bytes", make: specs(strings.Repeat("a", 255)+"=1", strings.Repeat("b", 252)+".md=2", strings.Repeat("d", 255)+"/"+strings.Repeat("e", 255)+"=3")},
		{name: "backslashes", make: specs(`a\b.md=1`, `\=2`, `d\d/e\=3`, `..\up=4`)},
		{name: "spaces and dots", make: specs(" =1", "a .md=2", "b.=3", "....md=4", "- -x=5", "* ?=6")},
		{name: "FIFOs", make: specs("a.md=1", "p|", "q.md|", "d/p|")},
		{name: "sockets", make: specs("a.md=1", "s@", "d/s.md@")},
		{name: "links", make: specs("a.md=1", "d/b.md=2",
			"file.md -> a.md", "directory -> d", "self -> self", "loop -> .", "d/up -> ..", "dangling.md -> nowhere", "d/.hidden -> b.md", "out -> ../..")},
	}
	return all
}

// optionsOf are what every small tree is run with, each under every number of workers.
func optionsOf(tr tree) []fileproc.Options {
	switch {
	case tr.big:
		return []fileproc.Options{{}}
	case tr.deep: // slow through an fs.FS, which opens every level again for each entry
		return []fileproc.Options{{}, {SkipHidden: true, Stat: true, MaxDepth: 60}}
	}
	return []fileproc.Options{
		{},
		{Stat: true},
		{ReadSize: 1},
		{ReadSize: 4096},
		{ReadSize: fileproc.NoRead},
		{ReadSize: fileproc.NoRead, Stat: true},
		{Suffixes: []string{".md"}},
		{SkipHidden: true},
		{Suffixes: []string{".md", "e"}, SkipHidden: true, MaxDepth: 2},
		{MaxDepth: 1},
		{MaxDepth: 3, ReadSize: 2},
	}
}

// everyPlace gives the ways to reach dir: through the system, through the fs.FS of the system, as a part of an fs.FS, and
// as an fs.FS in memory.
func everyPlace(t *testing.T, tr tree, dir string, want snapshot) []place {
	if tr.deep {
		root, err := os.OpenRoot(dir)
		require.NoError(t, err)
		t.Cleanup(func() { root.Close() })
		return []place{{"os", dir, nil}, {"fs", ".", root.FS()}}
	}
	for rel := range want.types {
		if !utf8.ValidString(rel) {
			return []place{{"os", dir, nil}} // no fs.ValidPath: see TestFSWithNamesThatAreNotUTF8
		}
	}
	all := places(dir)
	if tr.big {
		return all
	}
	all = append(all, place{"part of fs", filepath.Base(dir), os.DirFS(filepath.Dir(dir))})
	memory := fstest.MapFS{}
	for rel, typ := range want.types {
		memory[rel] = &fstest.MapFile{Mode: typ, Data: want.files[rel]}
		if typ&fs.ModeSymlink != 0 {
			memory[rel].Data = []byte("nowhere")
		}
	}
	return append(all, place{"memory", ".", memory})
}

func TestInvariant9BackendsAgree(t *testing.T) {
	for _, tr := range trees() {
		t.Run(tr.name, func(t *testing.T) {
			watchdog(t)
			dir := t.TempDir()
			if !tr.make(t, dir) {
				return // testtree has logged what this platform cannot hold
			}
			tree := take(t, dir)
			for _, p := range everyPlace(t, tr, dir, tree) {
				for _, opts := range optionsOf(tr) {
					want := expect(tree, opts, nil)
					for _, opts.Workers = range []int{1, 4, 0} {
						for entry, verify := range verifiers {
							err := verify(t.Context(), p, opts, want)
							require.NoError(t, err, "%s of %s with %+v", entry, p.name, opts)
						}
					}
				}
			}
			if !tr.deep {
				compareReadDir(t, dir, tree)
			}
		})
	}
}

// compareReadDir compares ReadDir with os.ReadDir for every directory of the tree.
func compareReadDir(t *testing.T, dir string, tree snapshot) {
	dirs := []string{dir}
	for rel, typ := range tree.types {
		if typ.IsDir() && len(dirs) < 100 {
			dirs = append(dirs, dir+"/"+rel)
		}
	}
	for _, name := range dirs {
		want, err := os.ReadDir(name)
		require.NoError(t, err)
		got, err := fileproc.ReadDir(name)
		require.NoError(t, err)
		slices.SortFunc(got, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
		slices.SortFunc(want, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
		require.Len(t, got, len(want))
		for i, w := range want {
			g := got[i]
			require.Equal(t, w.Name(), g.Name())
			require.Equal(t, w.Type(), g.Type(), w.Name())
			require.Equal(t, w.IsDir(), g.IsDir(), w.Name())
			if i >= 100 {
				continue // Info costs a system call
			}
			wi, err := w.Info()
			require.NoError(t, err)
			gi, err := g.Info()
			require.NoError(t, err)
			require.Equal(t, wi.Name(), gi.Name())
			require.Equal(t, wi.Size(), gi.Size(), w.Name())
			require.Equal(t, wi.Mode(), gi.Mode(), w.Name())
			require.True(t, wi.ModTime().Equal(gi.ModTime()), w.Name())
			require.Equal(t, w.IsDir(), gi.IsDir(), w.Name())
		}
	}
}

func TestReadDirErrors(t *testing.T) {
	dir := t.TempDir()
	require.True(t, testtree.Make(t, dir, "file=x"))
	for _, name := range []string{"", filepath.Join(dir, "missing"), filepath.Join(dir, "file"), "a\x00b"} {
		entries, err := fileproc.ReadDir(name)
		require.Empty(t, entries)
		var pathErr *fs.PathError
		require.ErrorAs(t, err, &pathErr, "%q", name)
		require.Equal(t, name, pathErr.Path)
	}
	_, err := fileproc.ReadDir(filepath.Join(dir, "missing"))
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestBackend(t *testing.T) {
	require.Contains(t, []string{"linux", "unix", "generic"}, fileproc.Backend())
}

// TestPrefixes reads files of every size around a buffer's with every limit around it.
func TestPrefixes(t *testing.T) {
	dir := t.TempDir()
	var list []string
	for _, size := range append([]int{0, 1, 2, 100}, bufferSizes...) {
		for _, n := range []int{size - 1, size, size + 1} {
			if n >= 0 {
				list = append(list, fmt.Sprintf("f%d=%s", n, testtree.Content(n)))
			}
		}
	}
	require.True(t, testtree.Make(t, dir, list...))
	tree := take(t, dir)
	limits := []int{1, 2, 3, 100}
	for _, size := range bufferSizes {
		limits = append(limits, size-1, size, size+1)
	}
	for _, p := range places(dir) {
		for _, limit := range limits {
			for _, stat := range []bool{false, true} {
				opts := fileproc.Options{ReadSize: limit, Stat: stat}
				require.NoError(t, verifiers["Process"](t.Context(), p, opts, expect(tree, opts, nil)), "%s, ReadSize %d", p.name, limit)
			}
		}
	}
}

// TestFSWithNamesThatAreNotUTF8: no fs.FS opens such a name (fs.ValidPath), so it is a failure and not left out in silence.
func TestFSWithNamesThatAreNotUTF8(t *testing.T) {
	dir := t.TempDir()
	if !testtree.Make(t, dir, "a.md=1", "\xff.md=2", "d\xfe/b.md=3") {
		return // testtree has logged why
	}
	var report fileproc.Report
	got, err := fileproc.Process(t.Context(), ".", fileproc.Options{FS: os.DirFS(dir), Report: &report}, nameOf)
	require.Equal(t, []string{"a.md"}, got)
	require.ErrorIs(t, err, fs.ErrInvalid)
	require.EqualValues(t, 2, report.Failed)
	require.EqualValues(t, 3, report.Found)
	requireBalanced(t, report)
}

func nameOf(f *fileproc.File) (string, error) { return f.Name(), nil }

// rooted makes a small tree, and gives the places that see it.
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
		require.EqualValues(t, len(got), report.Processed, "results against files processed")
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
		require.EqualValues(t, len(got), report.Processed, "results against files processed")
		return got, errs, report
	},
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

func TestErrorFromFn(t *testing.T) {
	_, all := rooted(t, append(testtree.Numbered("d/f", 20), "bad.md=x")...)
	mine := errors.New("no title")
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
			paths := map[string]bool{} // without a lock: calls come one at a time, and the race detector would tell
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
			require.Empty(t, errs, "OnError has had them")
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

// TestOnErrorAndTheRoot: what keeps a run from beginning is returned without a call of OnError; a root that cannot be listed
// is a failure like that of any directory.
func TestOnErrorAndTheRoot(t *testing.T) {
	_, all := rooted(t, "d/e/f=x")
	everyEntry(t, all, func(t *testing.T, p place, entry entryPoint, workers int) {
		calls := 0
		opts := fileproc.Options{Workers: workers, OnError: func(error) error { calls++; return nil }}
		missing := p
		missing.root = path.Join(p.root, "missing")
		got, errs, report := entry(t, t.Context(), missing, opts, nameOf)
		require.Empty(t, got)
		require.Len(t, errs, 1)
		require.ErrorIs(t, errs[0], fs.ErrNotExist)
		require.Zero(t, calls)
		require.Zero(t, report.Found)

		opts.IgnoreFiles = []string{"d/e"} // a path, of a directory
		_, errs, _ = entry(t, t.Context(), p, opts, nameOf)
		require.Len(t, errs, 1)
		require.Zero(t, calls)
	})
	for _, err := range fileproc.Walk(t.Context(), filepath.Join(t.TempDir(), "missing"), fileproc.Options{OnError: func(error) error { return nil }}) {
		require.ErrorIs(t, err, fs.ErrNotExist)
	}
	for _, call := range entryPoints {
		calls := 0
		opts := fileproc.Options{FS: noListing{fstest.MapFS{"file": {}}}, OnError: func(error) error { calls++; return nil }}
		require.NoError(t, call(t.Context(), ".", opts, succeed))
		require.Equal(t, 1, calls)
	}
}

// noListing is a file system whose root can be opened and not be listed.
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

func TestMaxFileSize(t *testing.T) {
	_, all := rooted(t, "a9=123456789", "b10=1234567890", "c11=12345678901", "d100000="+testtree.Content(100_000), "e0=")
	for _, tc := range []struct {
		opts    fileproc.Options
		refused []string
	}{
		{fileproc.Options{MaxFileSize: 10}, []string{"c11", "d100000"}},
		{fileproc.Options{MaxFileSize: 11}, []string{"d100000"}},
		{fileproc.Options{MaxFileSize: 1}, []string{"a9", "b10", "c11", "d100000"}},
		{fileproc.Options{MaxFileSize: 99_999}, []string{"d100000"}},
		{fileproc.Options{MaxFileSize: 100_000}, nil},
		{fileproc.Options{MaxFileSize: -1}, nil},
		{fileproc.Options{}, nil},
		{fileproc.Options{MaxFileSize: 10, Stat: true}, []string{"c11", "d100000"}},
		// These do not read whole files.
		{fileproc.Options{MaxFileSize: 10, ReadSize: 50}, nil},
		{fileproc.Options{MaxFileSize: 10, ReadSize: fileproc.NoRead}, nil},
	} {
		for _, p := range all {
			var refused []string
			var report fileproc.Report
			opts := tc.opts
			opts.FS, opts.Report = p.fsys, &report
			opts.OnError = func(err error) error {
				require.ErrorIs(t, err, fileproc.ErrTooLarge)
				var pathErr *fs.PathError
				require.ErrorAs(t, err, &pathErr)
				refused = append(refused, filepath.Base(pathErr.Path))
				return nil
			}
			got, err := fileproc.Process(t.Context(), p.root, opts, nameOf)
			require.NoError(t, err)
			slices.Sort(refused)
			require.Equal(t, tc.refused, refused, "%s, %+v", p.name, tc.opts)
			require.Len(t, got, 5-len(refused))
			requireBalanced(t, report)
		}
	}
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
			require.GreaterOrEqual(t, len(got), 10, "what was done is returned")
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

func TestBreak(t *testing.T) {
	_, all := rooted(t, append(testtree.Numbered("f", 150), testtree.Numbered("d/f", 150)...)...)
	for _, p := range all {
		for _, workers := range []int{1, 4} {
			for _, after := range []int{1, 2, 150} {
				leavesNothing(t, func() {
					var report fileproc.Report
					opts := fileproc.Options{FS: p.fsys, Workers: workers, Report: &report}
					n := 0
					for _, err := range fileproc.Stream(t.Context(), p.root, opts, nameOf) {
						require.NoError(t, err)
						if n++; n == after {
							break
						}
					}
					require.Equal(t, after, n)
					requireBalanced(t, report)
					require.GreaterOrEqual(t, report.Processed, int64(n))
				})
				leavesNothing(t, func() {
					var report fileproc.Report
					opts := fileproc.Options{FS: p.fsys, Workers: workers, Report: &report}
					n := 0
					for _, err := range fileproc.Walk(t.Context(), p.root, opts) {
						require.NoError(t, err)
						if n++; n == after {
							break
						}
					}
					require.Equal(t, after, n)
					requireBalanced(t, report)
				})
			}
		}
	}
}

//go:embed testdata/example
var embedded embed.FS

// TestEmbedFS: files that are embedded in the program are those that were on disk.
func TestEmbedFS(t *testing.T) {
	content := func(f *fileproc.File) (string, error) { return f.Rel() + ": " + string(f.Data()), nil }
	opts := fileproc.Options{SkipHidden: true, Ordered: true} // go:embed leaves out hidden files
	want, err := fileproc.Process(t.Context(), "testdata/example", opts, content)
	require.NoError(t, err)
	opts.FS = embedded
	got, err := fileproc.Process(t.Context(), "testdata/example", opts, content)
	require.NoError(t, err)
	require.Len(t, got, 4)
	require.Equal(t, want, got)
}

// TestStreamTwice: an iter.Seq2 may be ranged over again.
func TestStreamTwice(t *testing.T) {
	dir, _ := rooted(t, testtree.Numbered("f", 20)...)
	var report fileproc.Report
	files := fileproc.Stream(t.Context(), dir, fileproc.Options{Report: &report}, nameOf)
	entries := fileproc.Walk(t.Context(), dir, fileproc.Options{})
	for range 2 {
		report = fileproc.Report{}
		n := 0
		for _, err := range files {
			require.NoError(t, err)
			n++
		}
		require.EqualValues(t, 20, report.Processed, "each loop fills in the Report")
		for _, err := range entries {
			require.NoError(t, err)
			n++
		}
		require.Equal(t, 40, n)
	}
}

// TestStringsMayBeKept overwrites, by further runs, whatever memory names were read into.
func TestStringsMayBeKept(t *testing.T) {
	dir, all := rooted(t, append(testtree.Numbered("keep", 150), testtree.Numbered("d/e/keep", 150)...)...)
	_, noise := rooted(t, append(testtree.Numbered("noise", 150), testtree.Numbered("x/y/noise", 150)...)...)
	tree := take(t, dir)
	type names struct{ name, rel, path string }
	check := func(t *testing.T, p place, kept []names) {
		require.Len(t, kept, 300)
		seen := map[string]bool{}
		for _, n := range kept {
			rel := filepath.ToSlash(n.rel)
			require.Contains(t, tree.files, rel)
			require.Equal(t, path.Base(rel), n.name)
			require.Equal(t, p.path(rel), n.path)
			seen[rel] = true
		}
		require.Len(t, seen, 300)
	}
	for i, p := range all {
		kept, err := fileproc.Process(t.Context(), p.root, fileproc.Options{FS: p.fsys}, func(f *fileproc.File) (names, error) {
			return names{f.Name(), f.Rel(), f.Path()}, nil
		})
		require.NoError(t, err)
		var walked []fileproc.Entry
		for e, err := range fileproc.Walk(t.Context(), p.root, fileproc.Options{FS: p.fsys}) {
			require.NoError(t, err)
			if !e.IsDir() {
				walked = append(walked, e)
			}
		}
		runtime.GC()
		for range 2 {
			_, err := fileproc.Process(t.Context(), noise[i].root, fileproc.Options{FS: noise[i].fsys}, nameOf)
			require.NoError(t, err)
		}
		check(t, p, kept)
		kept = nil
		for _, e := range walked {
			kept = append(kept, names{e.Name(), e.Rel(), e.Path()})
		}
		check(t, p, kept)
	}
}

// TestStat compares File.Stat and Entry.Stat, both lazy and asked for beforehand, with os.Lstat.
func TestStat(t *testing.T) {
	dir, all := rooted(t, "a=1", "empty", "d/big="+testtree.Content(100_000))
	old := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	require.NoError(t, os.Chtimes(filepath.Join(dir, "a"), old, old))
	require.NoError(t, os.Chmod(filepath.Join(dir, "d", "big"), 0o400))
	t.Cleanup(func() { os.Chmod(filepath.Join(dir, "d", "big"), 0o600) }) // Windows removes nothing that is read-only
	compare := func(rel string, s fileproc.Stat) error {
		info, err := os.Lstat(filepath.Join(dir, filepath.FromSlash(rel)))
		if err != nil {
			return err
		}
		modTime := s.ModTime
		if info.ModTime().Nanosecond() == 0 {
			modTime = modTime.Truncate(time.Second) // under qemu's s390x lstat has no more, and fstatat has
		}
		if s.Size != info.Size() || s.Mode != info.Mode() || !modTime.Equal(info.ModTime()) {
			return fmt.Errorf("Stat is %+v, os.Lstat says %d, %v, %v", s, info.Size(), info.ModTime(), info.Mode())
		}
		return nil
	}
	for _, p := range all {
		for _, opts := range []fileproc.Options{{}, {Stat: true}, {ReadSize: 1}, {ReadSize: 1, Stat: true}, {ReadSize: fileproc.NoRead}, {ReadSize: fileproc.NoRead, Stat: true}} {
			opts.FS = p.fsys
			inodes := map[uint64]bool{}
			var mu sync.Mutex // guards inodes
			opts.Select = func(f *fileproc.File) bool {
				s, err := f.Stat()
				if err != nil || compare(f.Rel(), s) != nil {
					return false
				}
				mu.Lock()
				inodes[s.Inode] = true
				mu.Unlock()
				return true
			}
			got, err := fileproc.Process(t.Context(), p.root, opts, func(f *fileproc.File) (string, error) {
				s, err := f.Stat()
				if err != nil {
					return "", err
				}
				return f.Name(), compare(f.Rel(), s)
			})
			require.NoError(t, err, "%s, %+v", p.name, opts)
			require.Len(t, got, 3)
			if !inodes[0] {
				require.Len(t, inodes, 3, "three files have three inodes")
			}
		}
		stats := 0
		for e, err := range fileproc.Walk(t.Context(), p.root, fileproc.Options{FS: p.fsys, Stat: true}) {
			require.NoError(t, err)
			s, err := e.Stat()
			require.NoError(t, err)
			require.NoError(t, compare(e.Rel(), s))
			stats++
		}
		require.Equal(t, 4, stats, "three files and a directory")
		for e, err := range fileproc.Walk(t.Context(), p.root, fileproc.Options{FS: p.fsys}) {
			require.NoError(t, err)
			s, err := e.Stat() // looked up now
			require.NoError(t, err)
			require.NoError(t, compare(e.Rel(), s))
			info, err := e.Info()
			require.NoError(t, err)
			require.Equal(t, s.Size, info.Size())
		}
	}
}

func TestOpen(t *testing.T) {
	big := testtree.Content(200_000)
	dir, _ := rooted(t, "a.txt=hello", "d/e/big.txt="+big)
	for _, readSize := range []int{0, 10, fileproc.NoRead} {
		for _, workers := range []int{1, 4} {
			var report fileproc.Report
			var inData atomic.Int64
			opts := fileproc.Options{ReadSize: readSize, Workers: workers, Report: &report}
			files, err := fileproc.Process(t.Context(), dir, opts, func(f *fileproc.File) (*os.File, error) {
				inData.Add(int64(len(f.Data())))
				require.Equal(t, readSize == fileproc.NoRead, f.Data() == nil)
				file, err := f.Open()
				require.NoError(t, err)
				_, err = io.Copy(io.Discard, file)
				require.NoError(t, err)
				_, err = file.Seek(0, io.SeekStart)
				return file, err
			})
			require.NoError(t, err)
			require.Equal(t, inData.Load(), report.Bytes, "what is read through the handle does not count")
			require.Len(t, files, 2)
			for _, f := range files {
				// The handle is the caller's: it outlives the run.
				data, err := io.ReadAll(f)
				require.NoError(t, err)
				require.NoError(t, f.Close())
				// Where os.Root opens files, a handle's name may go by way of "/./".
				switch filepath.Clean(f.Name()) {
				case filepath.Join(dir, "a.txt"):
					require.Equal(t, "hello", string(data))
				case filepath.Join(dir, "d", "e", "big.txt"):
					require.True(t, string(data) == big)
				default:
					t.Errorf("a handle named %q", f.Name())
				}
			}
		}
	}
	_, err := fileproc.Process(t.Context(), ".", fileproc.Options{FS: os.DirFS(dir)}, (*fileproc.File).Open)
	require.ErrorIs(t, err, errors.ErrUnsupported)
}

// TestWorker keeps state per worker without a lock, which the race detector watches.
func TestWorker(t *testing.T) {
	_, all := rooted(t, append(testtree.Numbered("f", 60), testtree.Numbered("d/f", 60)...)...)
	for _, p := range all {
		for _, workers := range []int{1, 3, 0} {
			calls := make([]int, max(workers, runtime.GOMAXPROCS(0)))
			_, err := fileproc.Process(t.Context(), p.root, fileproc.Options{FS: p.fsys, Workers: workers}, func(f *fileproc.File) (int, error) {
				calls[f.Worker()]++
				if w := f.Worker(); workers > 0 && w >= workers {
					return 0, fmt.Errorf("worker %d of %d", w, workers)
				}
				return 0, nil
			})
			require.NoError(t, err)
			sum := 0
			for _, n := range calls {
				sum += n
			}
			require.Equal(t, 120, sum)
		}
	}
}

func TestSelect(t *testing.T) {
	_, all := rooted(t, "small=x", "large="+testtree.Content(1000), "d/small=y", "d/large="+testtree.Content(2000), "bad.skip=")
	everyEntry(t, all, func(t *testing.T, p place, entry entryPoint, workers int) {
		opts := fileproc.Options{Workers: workers, Select: func(f *fileproc.File) bool {
			s, err := f.Stat()
			return err == nil && s.Size >= 1000 && f.Data() == nil // nothing has been read yet
		}}
		got, errs, report := entry(t, t.Context(), p, opts, func(f *fileproc.File) (string, error) {
			return fmt.Sprint(filepath.ToSlash(f.Rel()), " ", len(f.Data())), nil
		})
		require.Empty(t, errs)
		require.ElementsMatch(t, []string{"large 1000", "d/large 2000"}, got)
		require.Equal(t, map[fileproc.SkipReason]int64{fileproc.SkippedSelect: 3}, report.Skipped)
		require.EqualValues(t, 3000, report.Bytes)
	})
}

// TestBadInput: each error names the field or the path, and comes before anything is read.
func TestBadInput(t *testing.T) {
	dir, _ := rooted(t, "file=x", "d/f=y")
	missing, file := filepath.Join(dir, "missing"), filepath.Join(dir, "file")
	system := os.DirFS(dir)
	type opts = fileproc.Options
	for _, tc := range []struct {
		name, root string
		opts       opts
		says       []string
		is         error
	}{
		{name: "empty root", says: []string{"root is empty"}},
		{name: "empty root in FS", opts: opts{FS: system}, says: []string{"root is empty"}},
		{name: "NUL in root", root: "a\x00b", says: []string{"root", `a\x00b`, "NUL"}},
		{name: "NUL in root in FS", root: "a\x00b", opts: opts{FS: system}, says: []string{"root", `a\x00b`, "NUL"}},
		{name: "root missing", root: missing, says: []string{missing}, is: fs.ErrNotExist},
		{name: "root missing in FS", root: "missing", opts: opts{FS: system}, says: []string{"missing"}, is: fs.ErrNotExist},
		{name: "root a file", root: file, says: []string{file}},
		{name: "root a file in FS", root: "file", opts: opts{FS: system}, says: []string{"file"}},
		{name: "root below a file", root: filepath.Join(file, "f"), says: []string{filepath.Join(file, "f")}},
		{name: "negative MaxDepth", root: dir, opts: opts{MaxDepth: -1}, says: []string{"MaxDepth", "-1"}},
		{name: "negative Workers", root: dir, opts: opts{Workers: -7}, says: []string{"Workers", "-7"}},
		{name: "MaxFileSize below -1", root: dir, opts: opts{MaxFileSize: -2}, says: []string{"MaxFileSize", "-2"}},
		{name: "root climbs out of FS", root: "../x", opts: opts{FS: system}, says: []string{"root", "../x", "FS"}},
		{name: "root climbs inside FS", root: "d/../d", opts: opts{FS: system}, says: []string{"root", "d/../d", "FS"}},
		{name: "absolute root in FS", root: "/d", opts: opts{FS: system}, says: []string{"root", "/d", "FS"}},
		{name: "Symlinks unknown", root: dir, opts: opts{Symlinks: 3}, says: []string{"Symlinks", "3"}},
		{name: "Symlinks negative", root: dir, opts: opts{Symlinks: -1}, says: []string{"Symlinks", "-1"}},
		{name: "Symlinks in FS", root: ".", opts: opts{FS: system, Symlinks: fileproc.SymlinksFiles}, says: []string{"Symlinks", "FS"}},
		{name: "SymlinksOutside alone", root: dir, opts: opts{SymlinksOutside: true}, says: []string{"SymlinksOutside", "Symlinks skips"}},
		{name: "OneFilesystem in FS", root: ".", opts: opts{FS: system, OneFilesystem: true}, says: []string{"OneFilesystem", "FS"}},
		{name: "negative Shards", root: dir, opts: opts{Shards: -3}, says: []string{"Shards", "-3"}},
		{name: "Shard beyond", root: dir, opts: opts{Shards: 3, Shard: 3}, says: []string{"Shard is 3", "0 to 2"}},
		{name: "negative Shard", root: dir, opts: opts{Shards: 3, Shard: -1}, says: []string{"Shard is -1"}},
		{name: "Shard without Shards", root: dir, opts: opts{Shard: 1}, says: []string{"Shard is 1", "0 to 0"}},
		{name: "Workers without end", root: dir, opts: opts{Workers: 1 << 17}, says: []string{"Workers", "131072", "65536"}},
		{name: "ignore files without a name", root: dir, opts: opts{IgnoreFiles: []string{"", ".", "..", "a\x00"}}, says: []string{`IgnoreFiles has ""`, `"."`, `".."`, `a\x00`}},
		{name: "malformed patterns", root: dir, opts: opts{Include: []string{"ok", "[a"}, Exclude: []string{"{a"}}, says: []string{`Include has the pattern "[a"`, `Exclude has the pattern "{a"`, "malformed"}},
		{name: "braces that stand for too much", root: dir, opts: opts{Include: []string{strings.Repeat("{a,b}", 40)}}, says: []string{"braces", "more than 65536 patterns"}},
		{name: "empty patterns", root: dir, opts: opts{Include: []string{""}, Exclude: []string{""}}, says: []string{`Include has the pattern "", which is empty`, `Exclude has the pattern "", which is empty`}},
		{name: "absolute pattern", root: dir, opts: opts{Exclude: []string{"/d"}}, says: []string{`"/d"`, "begins with a slash"}},
		{name: "pattern with a slash at its end", root: dir, opts: opts{Exclude: []string{"d/"}}, says: []string{`"d/"`, "ends with a slash"}},
		{name: "patterns with parts that are no names", root: dir, opts: opts{Include: []string{"./d", "d/../e", "d//e"}}, says: []string{`"./d"`, `the part "."`, `the part ".."`, `the part ""`}},
		{name: "all at once", opts: opts{MaxDepth: -1, Workers: -1, MaxFileSize: -9}, says: []string{"root", "MaxDepth", "Workers", "MaxFileSize"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sameError(t, tc.root, tc.opts, true, func(err error) {
				for _, s := range tc.says {
					require.ErrorContains(t, err, s)
				}
				if tc.is != nil {
					require.ErrorIs(t, err, tc.is)
					var pathErr *fs.PathError
					require.ErrorAs(t, err, &pathErr)
					require.Equal(t, tc.root, pathErr.Path)
				}
			})
		})
	}
	t.Run("ReadSize below NoRead", func(t *testing.T) {
		// Walk reads nothing and does not look at it.
		sameError(t, dir, opts{ReadSize: -2}, false, func(err error) {
			require.ErrorContains(t, err, "ReadSize")
			require.ErrorContains(t, err, "-2")
		})
	})
	t.Run("SkipBinary without content", func(t *testing.T) {
		sameError(t, dir, opts{ReadSize: fileproc.NoRead, SkipBinary: true}, false, func(err error) {
			require.ErrorContains(t, err, "SkipBinary")
			require.ErrorContains(t, err, "NoRead")
		})
	})
	t.Run("nil fn", func(t *testing.T) {
		_, err := fileproc.Process[int](t.Context(), dir, opts{}, nil)
		require.ErrorContains(t, err, "fn is nil")
		n := 0
		for v, streamErr := range fileproc.Stream[int](t.Context(), dir, opts{}, nil) {
			require.Zero(t, v)
			require.EqualError(t, streamErr, err.Error())
			n++
		}
		require.Equal(t, 1, n)
	})
	t.Run("unreadable root", func(t *testing.T) {
		root := filepath.Join(dir, "d")
		require.NoError(t, os.Chmod(root, 0))
		t.Cleanup(func() { os.Chmod(root, 0o755) })
		if _, err := os.ReadDir(root); err == nil {
			// Permissions do not bite: root, or a system without them.
			got, err := fileproc.Process(t.Context(), root, opts{}, nameOf)
			require.NoError(t, err)
			require.Equal(t, []string{"f"}, got)
			return
		}
		for _, p := range []place{{"os", root, nil}, {"fs", "d", system}} {
			sameError(t, p.root, opts{FS: p.fsys}, true, func(err error) {
				require.ErrorIs(t, err, fs.ErrPermission)
				require.ErrorContains(t, err, p.root)
			})
		}
	})
}

// sameError requires that Process gives an error, and Stream and Walk the same one as all that they yield.
func sameError(t *testing.T, root string, opts fileproc.Options, walk bool, check func(error)) {
	t.Helper()
	unwanted := func(*fileproc.File) (int, error) { return 0, errors.New("fn was called") }
	got, err := fileproc.Process(t.Context(), root, opts, unwanted)
	require.Error(t, err)
	require.Empty(t, got)
	check(err)
	n := 0
	for v, streamErr := range fileproc.Stream(t.Context(), root, opts, unwanted) {
		require.Zero(t, v)
		require.EqualError(t, streamErr, err.Error())
		check(streamErr)
		n++
	}
	require.Equal(t, 1, n, "yields of Stream")
	if !walk {
		return
	}
	n = 0
	for e, walkErr := range fileproc.Walk(t.Context(), root, opts) {
		require.Zero(t, e)
		require.EqualError(t, walkErr, err.Error())
		check(walkErr)
		n++
	}
	require.Equal(t, 1, n, "yields of Walk")
}

// TestUnreadable asks the system first whether permissions bite: they do not for root, nor on every platform.
func TestUnreadable(t *testing.T) {
	dir, all := rooted(t, "ok.md=1", "locked.md=2", "lockedDir/in.md=3", "d/ok.md=4")
	file, sub := filepath.Join(dir, "locked.md"), filepath.Join(dir, "lockedDir")
	require.NoError(t, os.Chmod(file, 0))
	require.NoError(t, os.Chmod(sub, 0))
	t.Cleanup(func() {
		os.Chmod(file, 0o644)
		os.Chmod(sub, 0o755)
	})
	readable := map[string]string{"ok.md": "1", "d/ok.md": "4"}
	locked := map[string]bool{}
	if data, err := os.ReadFile(file); err == nil {
		readable["locked.md"] = string(data)
	} else {
		locked["locked.md"] = true
	}
	if _, err := os.ReadDir(sub); err == nil {
		readable["lockedDir/in.md"] = "3"
	} else {
		locked["lockedDir"] = true
	}
	t.Logf("locked here: %v", slices.Sorted(maps.Keys(locked)))

	everyEntry(t, all, func(t *testing.T, p place, entry entryPoint, workers int) {
		failed := map[string]bool{}
		opts := fileproc.Options{Workers: workers, OnError: func(err error) error {
			var pathErr *fs.PathError
			if errors.As(err, &pathErr) && errors.Is(err, fs.ErrPermission) {
				failed[pathErr.Path] = true
			} else {
				failed[err.Error()] = true
			}
			return nil
		}}
		got, errs, report := entry(t, t.Context(), p, opts, func(f *fileproc.File) (string, error) {
			return filepath.ToSlash(f.Rel()) + "=" + string(f.Data()), nil
		})
		require.Empty(t, errs)
		want, wantFailed := []string{}, map[string]bool{}
		for rel, data := range readable {
			want = append(want, rel+"="+data)
		}
		for rel := range locked {
			wantFailed[p.path(rel)] = true
		}
		require.ElementsMatch(t, want, got)
		require.Equal(t, wantFailed, failed)
		require.EqualValues(t, len(locked), report.Failed)
		require.EqualValues(t, len(locked)+len(readable), report.Found)
	})

	t.Run("nothing needs to be opened", func(t *testing.T) {
		got, err := fileproc.Process(t.Context(), dir, fileproc.Options{MaxDepth: 1, ReadSize: fileproc.NoRead, Stat: true}, nameOf)
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"ok.md", "locked.md"}, got)
	})

	t.Run("collected", func(t *testing.T) {
		_, err := fileproc.Process(t.Context(), dir, fileproc.Options{}, nameOf)
		if len(locked) == 0 {
			require.NoError(t, err)
			return
		}
		require.ErrorIs(t, err, fs.ErrPermission)
		for rel := range locked {
			require.ErrorContains(t, err, filepath.Join(dir, rel))
		}
	})
}

// TestRootIsLink: root itself is followed, as os.ReadDir does; a path ends where the caller said it begins.
func TestRootIsLink(t *testing.T) {
	dir := t.TempDir()
	if !testtree.Make(t, dir, "real/a.md=1", "real/d/b.md=2", "link -> real", "dangling -> nowhere") {
		return // testtree has logged why
	}
	tree := take(t, filepath.Join(dir, "real"))
	for _, p := range []place{
		{"os", filepath.Join(dir, "link"), nil},
		{"os", filepath.Join(dir, "link") + string(filepath.Separator), nil},
		{"os", dir + "/./link", nil},
		{"fs", "link", os.DirFS(dir)},
	} {
		for entry, verify := range verifiers {
			require.NoError(t, verify(t.Context(), p, fileproc.Options{}, expect(tree, fileproc.Options{}, nil)), "%s of %s", entry, p.root)
		}
	}
	_, err := fileproc.Process(t.Context(), filepath.Join(dir, "dangling"), fileproc.Options{}, nameOf)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// TestRelativeRoot: a root that is not absolute gives paths that are not.
func TestRelativeRoot(t *testing.T) {
	dir, _ := rooted(t, "a.md=1", "d/e/b.md=2", "d..d/c.md=3")
	t.Chdir(dir)
	for _, tc := range []struct {
		root string
		want []string
	}{
		{".", []string{"a.md", "d/e/b.md", "d..d/c.md"}},
		{"./", []string{"a.md", "d/e/b.md", "d..d/c.md"}},
		{"d", []string{"d/e/b.md"}},
		{"d/", []string{"d/e/b.md"}},
		{"./d//e", []string{"d/e/b.md"}},
		{"./d..d//", []string{"d..d/c.md"}},
		// Not cleaned: if d were a link, d/.. would be elsewhere.
		{"d/../d", []string{"d/../d/e/b.md"}},
		{"d/../d/", []string{"d/../d/e/b.md"}},
	} {
		got, err := fileproc.Process(t.Context(), tc.root, fileproc.Options{}, func(f *fileproc.File) (string, error) {
			return filepath.ToSlash(f.Path()), nil
		})
		require.NoError(t, err)
		require.ElementsMatch(t, tc.want, got, tc.root)
	}
}

// TestDataMayBeAppendedTo: an append cannot reach the bytes of another file.
func TestDataMayBeAppendedTo(t *testing.T) {
	dir, all := rooted(t, testtree.Numbered("f", 100)...)
	tree := take(t, dir)
	for _, p := range all {
		got, err := fileproc.Process(t.Context(), p.root, fileproc.Options{FS: p.fsys}, func(f *fileproc.File) (string, error) {
			more := append(f.Data(), bytes.Repeat([]byte("x"), 100)...)
			if !bytes.Equal(more[:len(more)-100], tree.files[f.Rel()]) {
				return "", fmt.Errorf("content is %q", f.Data())
			}
			return f.Name(), nil
		})
		require.NoError(t, err)
		require.Len(t, got, 100)
	}
}

// Whatever holds also holds while all calls are taken for slow, so that there are as many workers as can be, and files are
// fetched.
func TestConformanceWithManyInFlight(t *testing.T) {
	fileproc.SlowFrom(t, -time.Hour)
	for name, test := range map[string]func(*testing.T){
		"conformance": TestInvariant9BackendsAgree,
		"ends":        TestInvariant6NothingIsLeftAfterAnyEnd,
		"bytes":       TestInvariant7NoFileSeesAnothersBytes,
		"links":       TestSymlinks,
		"worker":      TestWorker,
		"Select":      TestSelect,
		"Stat":        TestStat,
	} {
		t.Run(name, test)
	}
}
