package testtree

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMake(t *testing.T) {
	dir := t.TempDir()
	require.True(t, Make(t, dir, "a/b/c.txt=x=y\n", "empty", "d/", "a/e.md="))
	require.Equal(t, map[string][]byte{
		"a/b/c.txt": []byte("x=y\n"),
		"a/e.md":    {},
		"empty":     {},
	}, Snapshot(t, dir))
	info, err := os.Lstat(filepath.Join(dir, "d"))
	require.NoError(t, err)
	require.True(t, info.IsDir())
}

func TestMakeSpecial(t *testing.T) {
	for _, tc := range []struct {
		spec, name string
		want       fs.FileMode
	}{
		{"l -> nowhere", "l", fs.ModeSymlink},
		{"p|", "p", fs.ModeNamedPipe},
		{"s@", "s", fs.ModeSocket},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			if !Make(t, dir, "d/"+tc.spec) {
				return // Make has logged why
			}
			info, err := os.Lstat(filepath.Join(dir, "d", tc.name))
			require.NoError(t, err)
			require.Equal(t, tc.want, info.Mode().Type())
			require.Empty(t, Snapshot(t, dir))
			require.Equal(t, map[string]fs.FileMode{"d": fs.ModeDir, "d/" + tc.name: tc.want}, List(t, dir))
		})
	}
}

func TestDeep(t *testing.T) {
	dir := t.TempDir()
	name := strings.Repeat("n", 250)
	if !Deep(t, dir, 30, name, "f=x") {
		return // Deep has logged why
	}
	files := Snapshot(t, dir)
	require.Len(t, files, 30)
	require.Len(t, List(t, dir), 60)
	require.Equal(t, "x", string(files[strings.Repeat(name+"/", 30)+"f"]))
}

func TestContent(t *testing.T) {
	for _, n := range []int{0, 1, 2, 511, 4096} {
		require.Len(t, Content(n), n)
	}
	require.NotEqual(t, Content(8192)[:4096], Content(8192)[4096:])
}

// As root, and where there are no permissions, all can be removed anyway: then the modes alone show what was done.
func TestRemovable(t *testing.T) {
	dir := t.TempDir()
	outside := t.TempDir()
	require.NoError(t, os.Chmod(outside, 0o750))
	before, err := os.Stat(outside)
	require.NoError(t, err)
	t.Run("test", func(t *testing.T) {
		require.True(t, Make(t, dir, "shut/no-search/in/file", "read-only/file"))
		if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
			t.Log("left out: ", err)
		}
		Removable(t, dir)
		for _, name := range []string{"read-only=500", "shut/no-search/in=500", "shut/no-search=600", "shut=0"} { // innermost first
			name, mode, _ := strings.Cut(name, "=")
			perm, err := strconv.ParseUint(mode, 8, 32)
			require.NoError(t, err)
			require.NoError(t, os.Chmod(filepath.Join(dir, name), fs.FileMode(perm)))
		}
	})
	for _, name := range []string{"shut", "shut/no-search", "shut/no-search/in", "read-only"} {
		info, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		require.EqualValues(t, 0o700, info.Mode().Perm()&0o700, name)
	}
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "shut")))
	after, err := os.Stat(outside)
	require.NoError(t, err)
	require.Equal(t, before.Mode(), after.Mode(), "behind a link")
}
