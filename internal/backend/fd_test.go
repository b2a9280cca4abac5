//go:build !fileproc_generic && (aix || darwin || dragonfly || freebsd || linux || netbsd || openbsd || solaris)

package backend

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fileproc/fileproc/internal/content"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A read that would wait ends soon, with content as soon as there is some.
func TestReadWouldBlock(t *testing.T) {
	var p [2]int
	require.NoError(t, unix.Pipe(p[:]))
	require.NoError(t, unix.SetNonblock(p[0], true))
	f := &fdFile{fd: p[0]}
	defer f.Close()
	var buf [10]byte
	for range 3 {
		start := time.Now()
		_, err := f.Read(buf[:])
		require.Equal(t, content.ErrWouldBlock, err)
		require.GreaterOrEqual(t, time.Since(start), time.Millisecond, "it does not spin")
	}
	w := os.NewFile(uintptr(p[1]), "pipe")
	_, err := w.Write([]byte("text"))
	require.NoError(t, err)
	n, err := f.Read(buf[:])
	require.NoError(t, err)
	require.Equal(t, "text", string(buf[:n]))
	require.NoError(t, w.Close())
	n, err = f.Read(buf[:])
	require.NoError(t, err)
	require.Zero(t, n)
}

// What took a file's place may be gone again when an open's error is looked into. These errors are clear without that.
func TestOpenErrorOfAnotherKind(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "f"), nil, 0o644))
	d, err := OpenRoot(dir)
	require.NoError(t, err)
	defer d.Close()
	fd := d.(interface {
		openError(names.Name, error, fs.FileMode) error
	})
	for _, err := range []error{unix.ENXIO, unix.ELOOP, unix.ENOENT, unix.ENOTDIR} {
		require.ErrorIs(t, fd.openError(names.New("f"), err, 0), sys.ErrChanged)
	}
	require.NotErrorIs(t, fd.openError(names.New("f"), unix.EIO, 0), sys.ErrChanged)
	err = fd.openError(names.New("f"), unix.EIO, fs.ModeDir)
	require.ErrorIs(t, err, sys.ErrChanged)
	require.ErrorIs(t, err, unix.EIO)
}

// A read that fails behind what the page cache gave leaves its position, and an open of what is no longer there its reason.
func TestFailuresOfADescriptor(t *testing.T) {
	f := &fdFile{fd: -1, off: 5, dir: new(fdDir)}
	_, err := f.readOnce(make([]byte, 10))
	require.Error(t, err)
	require.EqualValues(t, 5, f.off)
	root, err := OpenRoot(t.TempDir())
	require.NoError(t, err)
	defer root.Close()
	fd, err := unix.Open(".", sys.DirFlags, 0)
	require.NoError(t, err)
	d := &fdDir{fd: fd}
	defer unix.Close(fd)
	require.NotErrorIs(t, d.openError(names.New("none"), unix.EIO, fs.ModeDir), sys.ErrChanged)
}

// A directory of which only the right to search is wanted may have changed since it was found, like any other.
func TestOpenToSearch(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "d"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "d", "f"), nil, 0o644))
	root, err := OpenRoot(dir)
	require.NoError(t, err)
	defer root.Close()
	d, err := root.(Searchable).OpenDirToSearch(names.New("d"))
	require.NoError(t, err)
	defer d.Close()
	_, err = d.Stat(names.New("f"))
	require.NoError(t, err)
	for _, name := range []string{"none", "f"} {
		_, err := d.(Searchable).OpenDirToSearch(names.New(name))
		require.ErrorIs(t, err, sys.ErrChanged, name)
	}
	_, err = root.(Informed).Info(names.New("none"), "none")
	require.ErrorIs(t, err, sys.ErrChanged)
	_, err = root.OpenFile(names.New("d"), "d")
	require.ErrorIs(t, err, sys.ErrChanged, "it is no regular file")
	_, err = searched(nil, errBroken)
	require.Equal(t, errBroken, err)
	f, err := unix.Open(filepath.Join(dir, "d", "f"), unix.O_RDONLY, 0)
	require.NoError(t, err)
	_, err = searched(root.(fdBackend).newDir(f, "f"), nil)
	require.ErrorIs(t, err, unix.ENOTDIR)
	require.Equal(t, unix.EBADF, unix.Fstat(f, new(unix.Stat_t)), "it is closed")
	one, err := root.Identity()
	require.NoError(t, err)
	other, err := d.Identity()
	require.NoError(t, err)
	require.True(t, one.Same(one))
	require.False(t, one.Same(other))
}

// A file that its file system always calls ready is not read again at once. Another has been waited for already.
func TestWaitReadable(t *testing.T) {
	var p [2]int
	require.NoError(t, unix.Pipe(p[:]))
	for _, fd := range p {
		defer unix.Close(fd)
	}
	for _, sleeps := range []time.Duration{0, time.Millisecond} {
		synctest.Test(t, func(t *testing.T) { // where a call of the system takes no time
			start := time.Now()
			waitReadable(p[0])
			require.Equal(t, sleeps, time.Since(start))
		})
		_, err := unix.Write(p[1], []byte("text"))
		require.NoError(t, err)
	}
}

// A read with a deadline ends without content when there is none, and with its error when there is one.
func TestPolledFile(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer w.Close()
	f := newPolledFile(r, nil)
	_, err = f.Read(make([]byte, 1))
	require.Equal(t, content.ErrWouldBlock, err)
	require.NoError(t, r.Close())
	_, err = f.Read(make([]byte, 1))
	require.ErrorIs(t, err, fs.ErrClosed)
}
