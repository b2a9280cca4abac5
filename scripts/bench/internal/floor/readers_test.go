//go:build linux

package floor

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/scripts/internal/turns"
)

func writeTree(t *testing.T) (dir string) {
	dir = filepath.Join(t.TempDir(), "tickets_flat_3")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "sub"), 0o755))
	for _, name := range []string{"a", "b", "sub/c"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), make([]byte, 400), 0o644))
	}
	return dir
}

// All sides read a set through a symbolic link, again and again.
func TestAllReadTheSame(t *testing.T) {
	dir := writeTree(t)
	link := filepath.Join(t.TempDir(), "tickets_flat_3")
	require.NoError(t, os.Symlink(dir, link))
	path, err := filepath.EvalSymlinks(link)
	require.NoError(t, err)
	ctx := context.Background()
	for side, work := range map[string]turns.Work{
		"fileproc": read(ctx, path, fileproc.Options{}), "stat": read(ctx, path, fileproc.Options{ReadSize: fileproc.NoRead, Stat: true}),
		"WalkDir": walkDir(path), "ReadDir": readDir(path), "pool": pool(2, path),
	} {
		for range 2 {
			files, bytes, err := work()
			require.NoError(t, err, side)
			assert.Equal(t, 3, files, side)
			assert.EqualValues(t, 1200, bytes, side)
		}
	}

	for _, work := range []turns.Work{walkDir(dir + "x"), readDir(dir + "x"), pool(1, dir+"x"), entries(fileproc.ReadDir, dir+"x")} {
		_, _, err := work()
		assert.ErrorIs(t, err, fs.ErrNotExist)
	}
}

// A failure in a pool does not block the side that lists.
func TestPoolFails(t *testing.T) {
	dir := t.TempDir()
	for i := range 300 {
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o666))
	}
	assert.ErrorIs(t, inPool(2, func(string) error { return fs.ErrInvalid }, dir), fs.ErrInvalid)
}

// A program that does not print path:count is an error; the counts are added.
func TestCounted(t *testing.T) {
	lines, err := counted(t.Context(), []string{"printf", "a:b:2\nc:0\nd:3\n"})
	require.NoError(t, err)
	assert.EqualValues(t, 5, lines)
	_, err = counted(t.Context(), []string{"echo", "none"})
	assert.ErrorContains(t, err, "not path:count")
	_, err = counted(t.Context(), []string{"false"})
	assert.Error(t, err)
}
