package fileproc_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

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
