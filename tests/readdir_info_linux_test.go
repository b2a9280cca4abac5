//go:build linux

package fileproc_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/fileproc/fileproc"
	"github.com/stretchr/testify/require"
)

// Info looks up the entry when called, in the directory that was listed: behind a link ".." does not lead back.
func TestReadDirInfo(t *testing.T) {
	base := t.TempDir()
	plant(t, base, "a/sub/f", "a/grows", "a/goes")
	require.NoError(t, os.Symlink("a/sub", filepath.Join(base, "link")))
	dir := filepath.Join(base, "link") + "/.."
	entries, err := fileproc.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 3)
	require.NoError(t, os.Remove(filepath.Join(base, "a", "goes")))
	require.NoError(t, os.WriteFile(filepath.Join(base, "a", "grows"), []byte("larger than it was"), 0o644))
	for _, e := range entries {
		info, err := e.Info()
		if e.Name() == "goes" {
			require.ErrorIs(t, err, fs.ErrNotExist)
			continue
		}
		require.NoError(t, err)
		now, err := os.Lstat(filepath.Join(base, "a", e.Name()))
		require.NoError(t, err)
		require.True(t, os.SameFile(now, info), e.Name())
		require.Equal(t, now.Size(), info.Size(), e.Name())
	}
}
