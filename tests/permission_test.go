package fileproc_test

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
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
