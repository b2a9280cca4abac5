//go:build linux

package readers

import (
	"context"
	"errors"
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
	path, name, err := Set(link)
	require.NoError(t, err)
	assert.Equal(t, "flat_3", name)
	ctx := context.Background()
	for side, work := range map[string]turns.Work{
		"fileproc": Fileproc(ctx, path, fileproc.Options{}), "stat": Fileproc(ctx, path, fileproc.Options{ReadSize: fileproc.NoRead, Stat: true}),
		"WalkDir": WalkDir(path), "ReadDir": ReadDir(path), "pool": Pool(2, path),
	} {
		for range 2 {
			files, bytes, err := work()
			require.NoError(t, err, side)
			assert.Equal(t, 3, files, side)
			assert.EqualValues(t, 1200, bytes, side)
		}
	}

	_, _, err = Set(filepath.Join(dir, "a"))
	assert.ErrorContains(t, err, "not a directory")
	_, _, err = Set(filepath.Join(dir, "nosuch"))
	assert.ErrorIs(t, err, os.ErrNotExist)
	for _, work := range []turns.Work{WalkDir(dir + "x"), ReadDir(dir + "x"), Pool(1, dir+"x"), Entries(fileproc.ReadDir, dir+"x")} {
		_, _, err := work()
		assert.ErrorIs(t, err, fs.ErrNotExist)
	}
}

// A failure in a pool does not block the side that lists.
func TestPoolFails(t *testing.T) {
	failure := errors.New("no")
	err := InPool(2, func(string) error { return failure }, func(yield func(string) error) error {
		for range 1000 {
			yield("x")
		}
		return nil
	})
	assert.ErrorIs(t, err, failure)
}
