package fileproc_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

// TestUnreadable checks first whether permissions have effect: not for root, nor on every platform.
func TestUnreadable(t *testing.T) {
	dir, all := rooted(t, "ok.md=1", "locked.md=2", "lockedDir/in.md=3", "d/ok.md=4")
	file, sub := filepath.Join(dir, "locked.md"), filepath.Join(dir, "lockedDir")
	testtree.Removable(t, dir)
	require.NoError(t, os.Chmod(file, 0))
	require.NoError(t, os.Chmod(sub, 0))
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

// TestPrunedBySystem: a directory that cannot be opened is no failure if it need not be opened.
func TestPrunedBySystem(t *testing.T) {
	dir := t.TempDir()
	require.True(t, testtree.Make(t, dir, "skip/f=x", "ok/f=x", ".ignore=skip\n"))
	skip := filepath.Join(dir, "skip")
	testtree.Removable(t, dir)
	require.NoError(t, os.Chmod(skip, 0))
	if _, err := os.ReadDir(skip); err == nil {
		t.Skip("permissions do not stop this user, or not here; scripts/test.sh --all runs this as a user whom they stop")
	}
	for _, opts := range []fileproc.Options{{Exclude: []string{"skip"}}, {Include: []string{"ok/*"}}, {IgnoreFiles: []string{".ignore"}}} {
		_, err := fileproc.Process(t.Context(), dir, opts, relOf)
		require.NoError(t, err)
	}
	_, err := fileproc.Process(t.Context(), dir, fileproc.Options{}, relOf)
	require.ErrorIs(t, err, fs.ErrPermission)
}

// searchOnly makes directories that this user, or another, may search and not list.
func searchOnly(t *testing.T) string {
	dir := t.TempDir()
	require.True(t, testtree.Make(t, dir, "top=t", "x/known=k", "x/y/deep=d", "x/open/a=a", "x/open/b=b", "x/.ignore=ign*\n", "x/ign=", "x/.git/HEAD=ref: refs/heads/main\n",
		"x/.git/objects/", "x/.git/refs/", "x/.gitignore=gi*\n", "x/gi=", "x/TAG=", "plain/f=f"))
	for i := range 200 { // which are read together
		require.True(t, testtree.Make(t, dir, fmt.Sprintf("x/many%d=%d", i, i)))
	}
	if testtree.Make(t, dir, "l -> x/known", "ld -> x", "x/ly -> y") {
		t.Log("with links")
	}
	require.True(t, testtree.Make(t, dir, "shut/a=a", "shut/b=b"))
	for _, sub := range []string{"x/y", "x", "shut"} {
		mode := fs.FileMode(0o111)
		if sub == "shut" {
			mode = 0
		}
		sub = filepath.Join(dir, sub)
		require.NoError(t, os.Chmod(sub, mode))
		t.Cleanup(func() { os.Chmod(sub, 0o755) })
	}
	return dir
}

// TestBelowSearchOnly: what is named below a directory that may be searched and not listed, such as a /home of mode 711, is
// opened as by other programs.
func TestBelowSearchOnly(t *testing.T) { belowSearchOnly(t, searchOnly(t)) }

func belowSearchOnly(t *testing.T, dir string) {
	if _, err := os.ReadDir(filepath.Join(dir, "x")); err == nil {
		t.Skip("permissions do not stop this user, or not here")
	}
	if data, err := os.ReadFile(filepath.Join(dir, "x/y/deep")); err != nil || string(data) != "d" {
		t.Skip("such a directory cannot be searched here")
	}
	newHome(t) // of the user whose git this is
	process := func(root string, opts fileproc.Options, names ...string) (got, failed map[string]string) {
		got, failed = map[string]string{}, map[string]string{}
		opts.Files = slices.Values(names)
		opts.OnError = func(err error) error {
			var pathErr *fs.PathError
			require.ErrorAs(t, err, &pathErr)
			rel, _ := filepath.Rel(root, pathErr.Path)
			for _, is := range []error{fs.ErrNotExist, fs.ErrPermission, fs.ErrInvalid} {
				if errors.Is(err, is) {
					failed[filepath.ToSlash(rel)] = is.Error()
				}
			}
			return nil
		}
		var report fileproc.Report
		opts.Report = &report
		for data, err := range fileproc.Stream(t.Context(), root, opts, func(f *fileproc.File) (string, error) { return f.Rel() + "=" + string(f.Data()), nil }) {
			require.NoError(t, err)
			rel, data, _ := strings.Cut(data, "=")
			got[rel] = data
		}
		requireBalanced(t, report)
		return got, failed
	}
	require.NoError(t, fileproc.ForEach(t.Context(), filepath.Join(dir, "x", "known"), fileproc.Options{}, func(f *fileproc.File) error {
		require.Equal(t, "k", string(f.Data()))
		return nil
	}), "root is such a file")
	open := 0
	require.NoError(t, fileproc.ForEach(t.Context(), filepath.Join(dir, "x", "open"), fileproc.Options{Workers: 1}, func(*fileproc.File) error {
		open++
		return nil
	}), "root is in such a directory")
	require.Equal(t, 2, open)
	for _, opts := range []fileproc.Options{{}, {ReadSize: fileproc.NoRead}, {IgnoreFiles: []string{".ignore"}}} {
		opts.Files = slices.Values([]string{"a", "b"})
		var failure *fileproc.Failure
		require.ErrorAs(t, fileproc.ForEach(t.Context(), filepath.Join(dir, "shut"), opts, func(*fileproc.File) error { return nil }), &failure)
		require.Equal(t, fileproc.FailedRoot, failure.Kind, "a root that may not be searched either: %v", failure)
		require.ErrorIs(t, failure, fs.ErrPermission)
		_, failed := process(dir, opts, "shut/a", "shut/b")
		require.Equal(t, map[string]string{"shut/a": fs.ErrPermission.Error(), "shut/b": fs.ErrPermission.Error()}, failed)
	}
	got, failed := process(".", fileproc.Options{FS: os.DirFS(dir)}, "x/known", "x/y/deep")
	require.Equal(t, map[string]string{"x/known": "k", "x/y/deep": "d"}, got)
	require.Empty(t, failed)
	if fileproc.Backend() == "generic" { // an os.Root is for directories that can be listed
		_, failed := process(dir, fileproc.Options{}, "x/known", "x/y/deep")
		require.Equal(t, map[string]string{"x/known": fs.ErrPermission.Error(), "x/y/deep": fs.ErrPermission.Error()}, failed)
		return
	}
	for _, opts := range []fileproc.Options{{}, {Ordered: true}, {Stat: true}, {Ordered: true, Symlinks: fileproc.SymlinksFiles}} {
		got, failed := process(dir, opts, "top", "x/known", "plain/f", "x/y/deep", "x/none", "x/y/", "x/open/", "ld/known", "x/ly/deep")
		require.Equal(t, map[string]string{"top": "t", "x/known": "k", "plain/f": "f", "x/y/deep": "d", "x/open/a": "a", "x/open/b": "b"}, got)
		require.Equal(t, fs.ErrNotExist.Error(), failed["x/none"])
		require.Equal(t, fs.ErrPermission.Error(), failed["x/y"], "to be listed")
		require.Len(t, failed, 4, "and those that lead through a link, or to nothing: %v", failed)

		got, failed = process(filepath.Join(dir, "x"), opts, "known", "y/deep", "open/")
		require.Equal(t, map[string]string{"known": "k", "y/deep": "d", "open/a": "a", "open/b": "b"}, got)
		require.Empty(t, failed)

		var many []string
		for i := range 200 {
			many = append(many, fmt.Sprint("many", i))
		}
		got, failed = process(filepath.Join(dir, "x"), opts, many...)
		require.Len(t, got, len(many))
		require.Equal(t, "177", got["many177"])
		require.Empty(t, failed)

		opts.IgnoreFiles = []string{".ignore"}
		got, failed = process(dir, opts, "x/known", "x/ign")
		require.Equal(t, map[string]string{"x/known": "k"}, got)
		require.Empty(t, failed)
		opts.GitIgnore = true
		got, failed = process(dir, opts, "x/known", "x/gi", "x/y/deep")
		require.Equal(t, map[string]string{"x/known": "k", "x/y/deep": "d"}, got)
		require.Empty(t, failed)
		opts.SkipMarked = []string{"TAG"}
		got, failed = process(dir, opts, "x/known", "x/y/deep")
		require.Empty(t, got)
		require.Empty(t, failed)
	}
	if _, err := os.Readlink(filepath.Join(dir, "l")); err != nil {
		return
	}
	for _, of := range []string{".", "plain"} { // below root, and outside
		var got []string
		opts := fileproc.Options{Symlinks: fileproc.SymlinksFiles, SymlinksOutside: true, Suffixes: []string{"l"}, OnError: func(error) error { return nil }}
		if of == "plain" {
			require.NoError(t, os.Symlink("../x/known", filepath.Join(dir, "plain", "l")))
		}
		require.NoError(t, fileproc.ForEach(t.Context(), filepath.Join(dir, of), opts, func(f *fileproc.File) error {
			got = append(got, string(f.Data()))
			return nil
		}))
		require.Equal(t, []string{"k"}, got, of)
	}
}
