package incremental

import (
	"io"
	"io/fs"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTreeIsAnFS: a tree in memory has the files that were added, the directories above them, and nothing else.
func TestTreeIsAnFS(t *testing.T) {
	t.Parallel()
	files := tree{}
	for _, rel := range []string{"a", "d/b", "d/e/c", "d/e/f/g"} {
		files.add(rel, "before")
		files.add(rel, rel)
	}
	got := map[string]string{}
	require.NoError(t, fs.WalkDir(files, ".", func(rel string, e fs.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := fs.Stat(files, rel)
		require.NoError(t, err)
		require.Equal(t, fs.FormatDirEntry(e), fs.FormatDirEntry(fs.FileInfoToDirEntry(info)))
		if got[rel] = "/"; !e.IsDir() {
			text, err := fs.ReadFile(files, rel)
			require.NoError(t, err)
			require.EqualValues(t, len(text), info.Size())
			got[rel] = string(text)
		}
		return nil
	}))
	require.Equal(t, map[string]string{".": "/", "a": "a", "d": "/", "d/b": "d/b", "d/e": "/", "d/e/c": "d/e/c", "d/e/f": "/", "d/e/f/g": "d/e/f/g"}, got)
	for _, missing := range []string{"b", "d/a", "x/y", "d/e/f/g/h"} {
		_, err := files.Open(missing)
		require.ErrorIs(t, err, fs.ErrNotExist, missing)
	}
}

// TestTreeHasAFileAndADirectoryOfOneName: a path that was a file once and a directory later is both, whichever is added first.
func TestTreeHasAFileAndADirectoryOfOneName(t *testing.T) {
	t.Parallel()
	for _, paths := range [][]string{{"d/x", "d/x/y"}, {"d/x/y", "d/x"}} {
		files := tree{}
		for _, rel := range paths {
			files.add(rel, rel)
		}
		entries, err := fs.ReadDir(files, "d")
		require.NoError(t, err)
		var modes []string
		for _, e := range entries {
			modes = append(modes, e.Type().String()+e.Name())
			info, err := e.Info()
			require.NoError(t, err)
			require.Equal(t, e.IsDir(), info.Mode().IsDir())
		}
		slices.Sort(modes)
		require.Equal(t, []string{"----------x", "d---------x"}, modes)
		entries, err = fs.ReadDir(files, "d/x")
		require.NoError(t, err)
		require.Len(t, entries, 1)
	}
}

// TestTreeListsInParts: a directory is listed in parts that are as long as the caller wants, up to its end.
func TestTreeListsInParts(t *testing.T) {
	t.Parallel()
	files := tree{}
	for _, rel := range []string{"a", "b", "c/x", "d", "e"} {
		files.add(rel, "")
	}
	for n, want := range map[int][]int{1: {1, 1, 1, 1, 1}, 2: {2, 2, 1}, 4: {4, 1}, 5: {5}, 6: {5}, 0: {5}, -1: {5}} {
		dir, err := files.Open(".")
		require.NoError(t, err)
		var got []int
		names := map[string]bool{}
		for {
			entries, err := dir.(fs.ReadDirFile).ReadDir(n)
			if len(entries) == 0 {
				require.Equal(t, n > 0, err == io.EOF, "%d: %v", n, err)
				break
			}
			require.NoError(t, err)
			got = append(got, len(entries))
			for _, e := range entries {
				names[e.Name()] = true
			}
		}
		require.Equal(t, want, got, n)
		require.Len(t, names, 5)
	}
}
