//go:build linux

package fileproc_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

// unreadable makes files that another user may not read, below a directory that everyone may enter.
func unreadable(t *testing.T) string {
	root := t.TempDir()
	testtree.Removable(t, root)
	require.NoError(t, os.Chmod(filepath.Dir(root), 0o755))
	plant(t, root, "open", "closed", "dir/file", "no-read/file", "no-search/file", "no-search/dir/file", "nothing/file")
	for name, mode := range map[string]fs.FileMode{
		"closed": 0, "no-read": 0o111, "no-search": 0o644, "nothing": 0, ".": 0o755,
	} {
		require.NoError(t, os.Chmod(filepath.Join(root, name), mode))
	}
	return root
}

func TestInvariant1UnreadableAsRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("left out: not root")
		return
	}
	watchdog(t)
	root := unreadable(t)
	require.NoError(t, complete(t.Context(), root, fileproc.Options{}, 7))
}

func asAnotherUser(t *testing.T, root string) {
	for _, workers := range []int{1, 4} {
		var report fileproc.Report
		var got map[string]string
		var err error
		leavesNothing(t, func() {
			got, err = read(t.Context(), root, fileproc.Options{Workers: workers, Report: &report})
		})
		require.Equal(t, map[string]string{"open": "open", "dir/file": "dir/file"}, got)
		require.ErrorIs(t, err, fs.ErrPermission)
		failed := map[string]bool{}
		for _, err := range err.(interface{ Unwrap() []error }).Unwrap() {
			var pathError *fs.PathError
			require.ErrorAs(t, err, &pathError)
			require.ErrorIs(t, err, syscall.EACCES)
			require.NotEmpty(t, pathError.Op)
			failed[pathError.Path] = true
		}
		want := map[string]bool{}
		shut := []string{"closed", "no-read", "no-search/file", "no-search/dir", "nothing"}
		if fileproc.Backend() == "generic" {
			// An os.Root lists its directory by looking up ".", so the directory must be searchable.
			shut = []string{"closed", "no-read", "no-search", "nothing"}
		}
		for _, rel := range shut {
			want[filepath.Join(root, rel)] = true
		}
		require.Equal(t, want, failed)
		require.EqualValues(t, len(want), report.Failed)
		require.EqualValues(t, 2, report.Processed)
		requireBalanced(t, report)

		_, err = read(t.Context(), filepath.Join(root, "nothing"), fileproc.Options{})
		require.ErrorIs(t, err, fs.ErrPermission, "an unreadable root")
	}
}

func TestInvariant1UnreadableAsAnotherUser(t *testing.T) {
	root := unreadable(t)
	runTask(t, "other", root, asNobody(t))
}

func TestBelowSearchOnlyAsAnotherUser(t *testing.T) {
	root := searchOnly(t)
	require.NoError(t, os.Chmod(filepath.Dir(root), 0o755))
	for _, dir := range []string{".", "plain"} { // in which the task makes links
		require.NoError(t, os.Chmod(filepath.Join(root, dir), 0o777))
	}
	runTask(t, "searched", root, asNobody(t))
}
