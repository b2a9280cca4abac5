package cache

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestNoDescriptorIsLeft: writing, removing, listing and reading in a directory leave no descriptor open but the directory's own, and
// no temporary file, with or without an error. After Close no descriptor is open at all.
func TestNoDescriptorIsLeft(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	open := func() (names []string) {
		fds, err := filepath.Glob("/proc/self/fd/*")
		require.NoError(t, err)
		require.NotEmpty(t, fds)
		for _, fd := range fds {
			if name, _ := os.Readlink(fd); strings.HasPrefix(name, dir) {
				names = append(names, name)
			}
		}
		return names
	}
	c, err := NewDir(dir, Options{})
	require.NoError(t, err)
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer root.Close()
	require.NoError(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	require.NoError(t, c.SaveSnapshot(filepath.Join(dir, "saved")))
	oldSync := fsync
	defer func() { fsync = oldSync }()
	for what, do := range map[string]func() error{
		"write":        func() error { return c.WriteFile("d/f", []byte("x")) },
		"write, again": func() error { return c.WriteFile("d/g", []byte("x")) },
		"read":         func() error { _, err := c.ReadFile("d/h"); return err },
		"remove":       func() error { return c.Remove("d/r") },
		"list":         func() error { _, err := c.ReadDir("d"); return err },
		"snapshot":     func() error { return c.SaveSnapshot(filepath.Join(dir, "snapshot")) },
		"load of a snapshot": func() error {
			_, err := c.LoadSnapshot(filepath.Join(dir, "saved"))
			return err
		},
		"FIFO, failing":      func() error { _, err := c.ReadFile("fifo"); return err },
		"place, failing":     func() error { return c.WriteFile("d", []byte("x")) },
		"below, failing":     func() error { return c.WriteFile("d/h/i", []byte("x")) },
		"absent, failing":    func() error { return c.Remove("no") },
		"far below, failing": func() error { return c.WriteFile("d/h/i/j", []byte("x")) },
		"content, failing": func() error {
			_, err := replace(root, "d/f", 0o600, true, true, func(io.Writer) error { return errStore })
			return err
		},
		"sync, failing": func() error {
			fsync = func(*os.File) error { return errStore }
			defer func() { fsync = oldSync }()
			return c.WriteFile("d/f", nil)
		},
		"sync of a removal, failing": func() error {
			fsync = func(*os.File) error { return errStore }
			defer func() { fsync = oldSync }()
			return c.Remove("d/r")
		},
		"sync of a directory, failing": func() error {
			fsync = func(f *os.File) error {
				if info, err := f.Stat(); err != nil || info.IsDir() {
					return errStore
				}
				return nil
			}
			defer func() { fsync = oldSync }()
			return c.WriteFile("d/f", nil)
		},
	} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "d"), 0o777))
		for _, name := range []string{"h", "r"} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "d", name), nil, 0o600))
		}
		err := do()
		require.Equal(t, strings.HasSuffix(what, "failing"), err != nil, "%s: %v", what, err)
		require.Equal(t, []string{dir, dir}, open(), what)
		for _, sub := range []string{".", "d"} {
			left, err := filepath.Glob(filepath.Join(dir, sub, temporary+"*"))
			require.NoError(t, err)
			require.Empty(t, left, what)
		}
	}
	require.NoError(t, c.Close())
	require.Len(t, open(), 1)
	_, err = NewDir(filepath.Join(dir, "absent"), Options{})
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = NewDir(dir, Options{Shards: -1})
	require.Error(t, err)
	require.Len(t, open(), 1, "a directory that is of no use is closed")
}
