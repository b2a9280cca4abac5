package fileproc_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

// A harvest is all that a run has given: what was delivered in the order in which it came, and failures and skipped entries in no
// order.
type harvest struct {
	got, failed, skipped []string
	report               fileproc.Report
}

// reap runs an entry point.
func reap(t *testing.T, entry, root string, opts fileproc.Options) (h harvest) {
	t.Helper()
	var mu sync.Mutex
	opts.Report = &h.report
	opts.OnError = func(err error) error {
		f := err.(*fileproc.Failure)
		h.failed = append(h.failed, fmt.Sprint(f.Kind, " ", f.Path, " ", errors.Is(err, fs.ErrNotExist)))
		return nil
	}
	opts.OnSkip = func(e fileproc.Entry, why fileproc.SkipReason) {
		h.skipped = append(h.skipped, fmt.Sprint(why, " ", e.Root(), " ", e.Path()))
	}
	fn := func(f *fileproc.File) (string, error) {
		if rel, err := filepath.Rel(f.Root(), f.Path()); opts.FS == nil && (err != nil || rel != "." && filepath.ToSlash(rel) != f.Rel()) {
			return "", fmt.Errorf("Root is %q, Path is %q, Rel is %q", f.Root(), f.Path(), f.Rel())
		}
		return fmt.Sprint(f.Root(), "|", f.Rel(), "|", f.Path(), "|", f.LinkTarget(), "|", len(f.Data())), nil
	}
	var err error
	switch entry {
	case "Process":
		h.got, err = fileproc.Process(t.Context(), root, opts, fn)
	case "ForEach":
		err = fileproc.ForEach(t.Context(), root, opts, func(f *fileproc.File) error {
			s, err := fn(f)
			mu.Lock()
			defer mu.Unlock()
			h.got = append(h.got, s)
			return err
		})
	case "Stream":
		for s, e := range fileproc.Stream(t.Context(), root, opts, fn) {
			err = errors.Join(err, e)
			h.got = append(h.got, s)
		}
	case "Walk":
		for e, failed := range fileproc.Walk(t.Context(), root, opts) {
			err = errors.Join(err, failed)
			h.got = append(h.got, fmt.Sprint(e.Root(), "|", e.Rel(), "|", e.Path(), "|", e.LinkTarget(), "|", e.Type()))
		}
	}
	require.NoError(t, err)
	requireBalanced(t, h.report)
	return h
}

// TestRoots compares a run over several roots with a run over each. To repeat a failure, put its seed into FILEPROC_SEED.
func TestRoots(t *testing.T) {
	watchdog(t)
	newHome(t)
	seed, trees := rand.Uint64(), 40
	if s := os.Getenv("FILEPROC_SEED"); s != "" {
		_, err := fmt.Sscan(s, &seed)
		require.NoError(t, err, "FILEPROC_SEED")
	}
	if slow || testing.Short() {
		trees = 8
	}
	r := rand.New(rand.NewPCG(seed, 0))
	links := testtree.Make(t, t.TempDir(), "l -> nowhere")
	for range trees {
		dir, err := os.MkdirTemp(t.TempDir(), "")
		require.NoError(t, err)
		specs := []string{"top/.gitignore=*.txt\n", "top/.git/HEAD=ref: x\n", "top/.git/objects/", "top/.git/refs/", "top/.rules=*.b\n"}
		for _, spec := range variedSpecs(t, r) {
			specs = append(specs, "top/"+pick(r, "sub/", "x y/")+spec)
		}
		if links {
			specs = append(specs, "link -> top", "file -> top/.rules", "top/out -> ../other", "other/o.md=1", "top/loop -> .", "dangling -> nowhere")
		}
		if !testtree.Make(t, dir, specs...) {
			continue
		}
		var all []string
		require.NoError(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if d.Type()&^fs.ModeSymlink == 0 || d.IsDir() {
				all = append(all, p)
			}
			return err
		}))
		for range 6 {
			roots := []string{pick(r, all...), filepath.Join(dir, "top"), pick(r, all...)}
			for range r.IntN(6) {
				roots = append(roots, pick(r, append(all, roots...)...))
			}
			roots = append(roots, pick(r, filepath.Join(dir, "gone"), roots[0]), pick(r, filepath.Join(dir, "top", "sub")+string(filepath.Separator), roots[1]))
			r.Shuffle(len(roots), func(i, j int) { roots[i], roots[j] = roots[j], roots[i] })
			entry := pick(r, "Process", "ForEach", "Stream", "Walk")
			opts := fileproc.Options{
				MaxDepth: pick(r, 0, 0, 1, 2), Suffixes: pick(r, nil, nil, []string{".md", "t"}), Include: pick(r, nil, nil, []string{"**/*.md", "f*"}),
				Exclude: pick(r, nil, nil, []string{"**/d1"}), IgnoreFiles: pick(r, nil, []string{".ignore"}, []string{"../.rules", ".gitignore"}, []string{"./.rules"}),
				GitIgnore: pick(r, false, true), SkipHidden: pick(r, false, true), OneFilesystem: pick(r, false, true), SkipMarked: pick(r, nil, []string{".nobackup"}),
				ReadSize: pick(r, 0, 100, fileproc.NoRead), Stat: pick(r, false, true), Ordered: pick(r, false, true), Workers: pick(r, 0, 1, 3),
			}
			opts.Shards = pick(r, 0, 2)
			if links {
				opts.Symlinks = pick(r, fileproc.SymlinksSkip, fileproc.SymlinksFiles, fileproc.SymlinksFollow)
				opts.SymlinksOutside = opts.Symlinks != fileproc.SymlinksSkip && pick(r, false, true)
			}
			if entry != "Process" && opts.Symlinks == fileproc.SymlinksFollow {
				opts.Ordered = false
			}
			if r.IntN(4) == 0 && opts.Symlinks == fileproc.SymlinksSkip {
				opts.FS, opts.OneFilesystem, opts.IgnoreFiles = os.DirFS(dir), false, nil
				for i := range roots {
					rel, err := filepath.Rel(dir, roots[i])
					require.NoError(t, err)
					roots[i] = filepath.ToSlash(rel)
				}
			}
			want, got := reapEach(t, entry, roots, opts)
			require.Equal(t, want, got, "FILEPROC_SEED=%d\n%s of %q\n%+v\n%s", seed, entry, roots, opts, strings.Join(specs, "\n"))
		}
	}
}

// reapEach returns what runs over each of roots give, and a run over all of them.
func reapEach(t *testing.T, entry string, roots []string, opts fileproc.Options) (want, got harvest) {
	for _, root := range roots {
		one := reap(t, entry, root, opts)
		want.got, want.failed, want.skipped = append(want.got, one.got...), append(want.failed, one.failed...), append(want.skipped, one.skipped...)
		want.report.Add(one.report)
	}
	want.report.Listed = true // also where a run alone failed at its root
	opts.Roots = roots
	got = reap(t, entry, "nowhere", opts)
	if !opts.Ordered || entry == "ForEach" {
		slices.Sort(got.got)
		slices.Sort(want.got)
	}
	for _, h := range []*harvest{&got, &want} {
		slices.Sort(h.failed)
		slices.Sort(h.skipped)
		h.report.Elapsed, h.report.Listed = 0, false // Listed is that of the last run, which may have failed
	}
	return want, got
}

// The file that a root leads to, and root itself, have the root as it was given; a File of NewFile has none.
func TestRootOfAFile(t *testing.T) {
	dir := t.TempDir()
	require.True(t, testtree.Make(t, dir, "d/f=", "g="))
	t.Chdir(dir)
	roots := []string{"d/", "./g", "d"}
	for e, err := range fileproc.Walk(t.Context(), ".", fileproc.Options{Roots: roots, Ordered: true}) {
		require.NoError(t, err)
		require.Equal(t, roots[0], e.Root())
		roots = roots[1:]
	}
	require.Empty(t, roots)
	for _, roots := range [][]string{nil, {"d"}} { // one is as root
		got, err := fileproc.Process(t.Context(), "d", fileproc.Options{Roots: roots}, func(f *fileproc.File) (string, error) { return f.Root(), nil })
		require.NoError(t, err)
		require.Equal(t, []string{"d"}, got)
	}
	require.Empty(t, fileproc.NewFile("a/b", nil).Root())
	require.Empty(t, fileproc.Entry{}.Root())
}

// An argument that fails is a failure of its own, without OnError too, and a broken rule of one does not end the others.
func TestRootsFail(t *testing.T) {
	dir := t.TempDir()
	require.True(t, testtree.Make(t, dir, "a/f=", "b/f=", "b/rules/", "c/f="))
	at := func(name string) string { return filepath.Join(dir, name) }
	opts := fileproc.Options{Roots: []string{at("none"), at("a"), at("b"), at("c"), at("c/none")}, IgnoreFiles: []string{"./rules"}, Ordered: true}
	got, err := fileproc.Process(t.Context(), ".", opts, func(f *fileproc.File) (string, error) { return path.Base(filepath.ToSlash(f.Root())), nil })
	require.Equal(t, []string{"a", "c"}, got)
	failures := err.(interface{ Unwrap() []error }).Unwrap()
	require.Len(t, failures, 3)
	var paths []string
	for _, err := range failures {
		var failure *fileproc.Failure
		require.ErrorAs(t, err, &failure)
		require.Equal(t, fileproc.FailedRoot, failure.Kind)
		paths = append(paths, failure.Path)
	}
	require.ElementsMatch(t, []string{at("none"), at("b"), at("c/none")}, paths)
	order := ""
	for s, err := range fileproc.Stream(t.Context(), ".", opts, func(f *fileproc.File) (string, error) { return "f", nil }) {
		if err != nil {
			s = "!"
		}
		order += s
	}
	require.Equal(t, "!f!f!", order, "a failure comes in the place of its root")

	calls := 0
	opts.OnError = func(err error) error {
		calls++
		return errFromFn
	}
	_, err = fileproc.Process(t.Context(), ".", opts, nameOf)
	require.Equal(t, errFromFn, err)
	require.Equal(t, 1, calls)
}

// TestRootsEndEarly: a run over many roots ends early as any other, and leaves nothing.
func TestRootsEndEarly(t *testing.T) {
	watchdog(t)
	dir := spread(t, 50, 3)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var roots []string
	for _, e := range entries {
		roots = append(roots, filepath.Join(dir, e.Name()))
	}
	for _, workers := range []int{1, 4} {
		for _, ordered := range []bool{false, true} {
			for name, run := range entryPoints {
				leavesNothing(t, func() {
					ctx, cancel := context.WithCancelCause(t.Context())
					opts := fileproc.Options{Roots: roots, Workers: workers, Ordered: ordered, Report: new(fileproc.Report)}
					err := run(ctx, ".", opts, func(*fileproc.File) (int, error) {
						cancel(errFromFn)
						return 0, nil
					})
					require.ErrorIs(t, err, errFromFn, name)
					requireBalanced(t, *opts.Report)
					err = run(ctx, ".", opts, succeed)
					require.ErrorIs(t, err, errFromFn)
					require.Zero(t, opts.Report.Directories)
					require.NoError(t, run(t.Context(), ".", opts, func(*fileproc.File) (int, error) { return 0, fs.SkipAll }))
					requireBalanced(t, *opts.Report)
					require.Panics(t, func() { run(t.Context(), ".", opts, func(*fileproc.File) (int, error) { panic(name) }) })
				})
			}
			leavesNothing(t, func() {
				for range fileproc.Walk(t.Context(), ".", fileproc.Options{Roots: roots, Workers: workers, Ordered: ordered}) {
					break
				}
			})
		}
	}
}

// TestRootsRefused: each mistake in Roots is an error before anything is read.
func TestRootsRefused(t *testing.T) {
	for why, opts := range map[string]fileproc.Options{
		"root is empty":                   {Roots: []string{"a", ""}},
		`root "b\x00" contains`:           {Roots: []string{"a", "b\x00"}},
		`root "../b" is not a valid path`: {Roots: []string{"a", "../b"}, FS: os.DirFS(".")},
		"above Options.FS":                {Roots: []string{"a/b", "a"}, FS: os.DirFS("."), IgnoreFiles: []string{"../../x"}},
		"Options.Files":                   {Roots: []string{"a"}, Files: slices.Values([]string{"b"})},
	} {
		_, err := fileproc.Process(t.Context(), ".", opts, nameOf)
		require.ErrorContains(t, err, why)
	}
}

// TestRootsHoldLittle: ten thousand roots take few descriptors and goroutines, whatever the options keep of them.
func TestRootsHoldLittle(t *testing.T) {
	if slow {
		t.Skip("ten thousand roots take minutes here")
	}
	watchdog(t)
	dir := spread(t, 300, 2)
	var roots []string
	for i := range 10_000 {
		roots = append(roots, filepath.Join(dir, fmt.Sprintf("dir%04d", i%300)))
		if i%3 == 0 {
			roots[i] = filepath.Join(roots[i], "file0000")
		}
	}
	before := openDescriptors()
	for _, opts := range []fileproc.Options{{}, {Ordered: true}, {Symlinks: fileproc.SymlinksFollow}, {IgnoreFiles: []string{"./none"}}} {
		if opts.Symlinks != 0 && runtime.GOOS == "windows" {
			continue
		}
		opts.Roots, opts.Workers, opts.Report = roots, 4, new(fileproc.Report)
		most, files := 0, 0
		for n, err := range fileproc.Stream(t.Context(), ".", opts, func(f *fileproc.File) (int, error) {
			if len(f.Rel())%7 == 0 {
				require.Less(t, runtime.NumGoroutine(), 100)
				return openDescriptors() - before, nil
			}
			return 0, nil
		}) {
			require.NoError(t, err)
			most = max(most, n)
			files++
		}
		require.Equal(t, 10_000/3+1+2*(10_000-10_000/3-1), files)
		require.Less(t, most, 60)
	}
}

// Directories behind links come last. They are found from the root that was listed, also if another has taken its place.
func TestRootsLinksLast(t *testing.T) {
	dir := t.TempDir()
	if slices.Contains([]string{"windows", "plan9", "js", "wasip1"}, runtime.GOOS) || !testtree.Make(t, dir, "a/d/f=listed", "a/f=1", "a/l -> .x/y", "a/.x/y/g=listed", "b/f=2", "other/l -> .x/y", "other/.x/y/g=other") {
		t.Skip("no links here, or an open directory cannot be renamed, or is reached by its path")
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	opts := fileproc.Options{Roots: []string{at("a"), at("b")}, Workers: 1, Symlinks: fileproc.SymlinksFollow}
	opts.SelectDir = func(e fileproc.Entry) bool { return e.Name() != ".x" }
	got, err := fileproc.Process(t.Context(), ".", opts, func(f *fileproc.File) (string, error) {
		if filepath.Base(f.Root()) == "b" {
			require.NoError(t, errors.Join(os.Rename(at("a"), at("gone")), os.Rename(at("other"), at("a"))))
		}
		return f.Rel() + "=" + string(f.Data()), nil
	})
	require.NoError(t, err)
	slices.Sort(got)
	require.Equal(t, []string{"d/f=listed", "f=1", "f=2", "l/g=listed"}, got)
}
