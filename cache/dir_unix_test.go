//go:build unix && !aix && !solaris

package cache

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFIFO: an open of a FIFO neither waits nor gives content.
func TestFIFO(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o644); err != nil {
		t.Skip("the file system of the temporary directory has no FIFOs: ", err)
	}
	c, err := NewDir(dir, Options{})
	require.NoError(t, err)
	defer c.Close()
	_, err = c.ReadFile("fifo")
	require.ErrorIs(t, err, ErrNotRegular)
	_, err = c.Open("fifo")
	require.ErrorIs(t, err, ErrNotRegular)
	var at *fs.PathError
	require.ErrorAs(t, err, &at)
	require.Equal(t, "fifo", at.Path)
}

// TestPermissionsOfWrites: a new file has the permissions that the umask leaves, and a file that is replaced keeps its own.
func TestPermissionsOfWrites(t *testing.T) {
	dir := t.TempDir()
	c, err := NewDir(dir, Options{})
	require.NoError(t, err)
	defer c.Close()
	mode := func(name string) fs.FileMode {
		i, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		return i.Mode()
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "usual"), nil, 0o666))
	require.NoError(t, c.WriteFile("new", nil))
	require.Equal(t, mode("usual"), mode("new"))
	for _, perm := range []fs.FileMode{0o600, 0o666, 0o640} {
		require.NoError(t, os.Chmod(filepath.Join(dir, "new"), perm))
		require.NoError(t, c.WriteFile("new", []byte("x")))
		require.Equal(t, perm, mode("new"))
	}
}

// TestDirOfARelativeName: a directory with a relative name is where it was when it was opened, for Warm too.
func TestDirOfARelativeName(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "d"), 0o777))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "d", "f"), []byte("x"), 0o666))
	t.Chdir(dir)
	c, err := NewDir("d", Options{Trust: Forever})
	require.NoError(t, err)
	defer c.Close()
	t.Chdir(t.TempDir())
	require.EqualValues(t, 1, warm(t, c, WarmOptions{}).Warmed)
	require.Equal(t, "x", readFile(t, c, "f"))
}
