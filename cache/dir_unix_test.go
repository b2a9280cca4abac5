//go:build unix && !aix && !solaris

package cache

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

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

// TestSyncOfADirectory: a file system that does not sync directories is no failure, nor is a directory that may not be read. Any other is.
func TestSyncOfADirectory(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	require.NoError(t, err)
	defer root.Close()
	defer func(old func(*os.File) error) { fsync = old }(fsync)
	for err, fails := range map[error]bool{nil: false, syscall.EINVAL: false, syscall.ENOTSUP: false, syscall.EBADF: false, syscall.EACCES: false, syscall.EIO: true, errStore: true} {
		fsync = func(*os.File) error { return err }
		got := syncDir(root, ".")
		require.Equal(t, fails, got != nil, "%v", err)
		require.True(t, !fails || got == err)
	}
	require.ErrorIs(t, syncDir(root, "none"), fs.ErrNotExist)
	if os.Getuid() > 0 {
		require.NoError(t, root.Mkdir("closed", 0o300))
		require.NoError(t, syncDir(root, "closed"))
	}
}

// TestLeftoversAreOld: a temporary file is removed if it is older by more than leftover than the new one, by however little.
func TestLeftoversAreOld(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer root.Close()
	made := time.Unix(1_700_000_000, 0)
	name := func(letter string) string { return filepath.Join(dir, temporary+strings.Repeat(letter, 26)) }
	for letter, at := range map[string]time.Time{"A": made, "B": made.Add(-leftover), "C": made.Add(-leftover - time.Second)} {
		require.NoError(t, os.WriteFile(name(letter), nil, 0o600))
		require.NoError(t, os.Chtimes(name(letter), at, at))
	}
	f, err := os.Open(name("A"))
	require.NoError(t, err)
	defer f.Close()
	removeLeftovers(root, ".", f)
	require.FileExists(t, name("A"))
	require.FileExists(t, name("B"))
	require.NoFileExists(t, name("C"))
	removeLeftovers(root, "none", f)
	require.NoError(t, f.Close())
	removeLeftovers(root, ".", f) // it has no time
	require.FileExists(t, name("B"))
	for base, want := range map[string]bool{temporary + strings.Repeat("A", 26): true, temporary + strings.Repeat("Z7", 13): true, temporary + strings.Repeat("1", 26): false,
		temporary + strings.Repeat("A", 25): false, temporary + strings.Repeat("A", 27): false, strings.Repeat("A", 26): false} {
		require.Equal(t, want, isTemporary(base), base)
	}
}

// TestWriteInPlaceOfAFIFO: what replaces something that is no file has the permissions of a new file.
func TestWriteInPlaceOfAFIFO(t *testing.T) {
	dir := t.TempDir()
	fifo, usual := filepath.Join(dir, "fifo"), filepath.Join(dir, "usual")
	if err := syscall.Mkfifo(fifo, 0o644); err != nil {
		t.Skip("the file system of the temporary directory has no FIFOs: ", err)
	}
	require.NoError(t, os.Chmod(fifo, 0o611))
	require.NoError(t, os.WriteFile(usual, nil, 0o666))
	c, err := NewDir(dir, Options{})
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.WriteFile("fifo", []byte("x")))
	want, err := os.Stat(usual)
	require.NoError(t, err)
	got, err := os.Stat(fifo)
	require.NoError(t, err)
	require.Equal(t, want.Mode(), got.Mode())
}

// TestWriteBelowALinkThatLeadsNowhere: the error is that of the directory, which cannot be made in the place of the link.
func TestWriteBelowALinkThatLeadsNowhere(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Symlink("nowhere", filepath.Join(dir, "link")))
	c, err := NewDir(dir, Options{})
	require.NoError(t, err)
	defer c.Close()
	to, err := c.ReadLink("link")
	require.NoError(t, err)
	require.Equal(t, "nowhere", to)
	err = c.WriteFile("link/f", nil)
	require.Error(t, err)
	require.NotErrorIs(t, err, fs.ErrNotExist)
}

// TestReplaceThatFails: each step may fail. The error is that of the step, the old file stays, and no temporary file does. Once the file is
// renamed, it has only no metadata.
func TestReplaceThatFails(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer root.Close()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "f"), []byte("old"), 0o600))
	defer func(old func(*os.File) error) { fsync = old }(fsync)
	defer func() { testAfterRename = func() {} }()
	var f *os.File
	step, sync := "", fsync
	closeIn := func(at string) {
		if step == at {
			f.Close()
		}
	}
	fsync = func(f *os.File) error {
		err := sync(f)
		closeIn("stat")
		return err
	}
	testAfterRename = func() { closeIn("") }
	for _, step = range []string{"write", "chmod", "stat", ""} {
		info, err := replace(root, "f", 0o600, true, false, func(w io.Writer) error {
			f = w.(*os.File)
			closeIn("write")
			_, err := w.Write([]byte("new"))
			closeIn("chmod")
			return err
		})
		require.Nil(t, info)
		data, readErr := os.ReadFile(filepath.Join(dir, "f"))
		require.NoError(t, readErr)
		if step != "" {
			var at *fs.PathError
			require.ErrorAs(t, err, &at)
			require.Equal(t, step, at.Op)
			require.ErrorIs(t, err, fs.ErrClosed)
			require.Equal(t, "old", string(data))
		} else {
			require.NoError(t, err)
			require.Equal(t, "new", string(data))
		}
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, left, 1)
	}
}

// TestSnapshotWhoseDirectoryIsNotSynced: SaveSnapshot fails, since a crash of the machine may lose the snapshot.
func TestSnapshotWhoseDirectoryIsNotSynced(t *testing.T) {
	c := newFS(t, newMemFS(nil), Options{})
	defer func(old func(*os.File) error) { fsync = old }(fsync)
	fsync = func(f *os.File) error {
		if i, err := f.Stat(); err != nil || i.IsDir() {
			return errStore
		}
		return nil
	}
	name := filepath.Join(t.TempDir(), "snapshot")
	var at *fs.PathError
	require.ErrorAs(t, c.SaveSnapshot(name), &at)
	require.Equal(t, fs.PathError{Op: "write", Path: name, Err: errStore}, *at)
}
