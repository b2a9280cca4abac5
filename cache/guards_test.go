package cache

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestDirWriteThatAnotherProcessChanges: content that was written is not cached under the
// metadata of what another process has made of the file since. This matters where files
// count as settled at once, as on a server whose clock is behind.
func TestDirWriteThatAnotherProcessChanges(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows renames no open file, so Dir closes it before and returns no metadata of what it wrote")
	}
	settledFiles(t)
	defer func() { testAfterRename = func() {} }()
	for what, data := range map[string]string{"time": "NEW", "size": "longer"} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			c, err := NewDir(dir, Options{})
			require.NoError(t, err)
			defer c.Close()
			testAfterRename = func() {
				name := filepath.Join(dir, "f")
				require.NoError(t, os.WriteFile(name, []byte(data), 0o644))
				at := time.Now().Add(-time.Minute)
				require.NoError(t, os.Chtimes(name, at, at))
			}
			require.NoError(t, c.WriteFile("f", []byte("new")))
			require.Equal(t, data, readFile(t, c, "f"))
		})
	}
}

// TestDirWriteReturnsItsOwnMetadata or none: also if the size alone shows the change.
func TestDirWriteReturnsItsOwnMetadata(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows renames no open file, so Dir closes it before and returns no metadata of what it wrote")
	}
	defer func() { testAfterRename = func() {} }()
	dir := t.TempDir()
	d, err := OpenDir(dir)
	require.NoError(t, err)
	defer d.Close()
	testAfterRename = func() {
		name := filepath.Join(dir, "f")
		before, err := os.Stat(name)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(name, []byte("longer"), 0o644))
		require.NoError(t, os.Chtimes(name, before.ModTime(), before.ModTime()))
	}
	info, err := d.WriteFile("f", []byte("new"))
	require.NoError(t, err)
	require.Nil(t, info)
}

// TestJoinedLoadIsCompared: a call that waits for a load that began before it gets nothing
// older than the call, unless that is trusted.
func TestJoinedLoadIsCompared(t *testing.T) {
	for _, tt := range []struct {
		name     string
		trust    time.Duration
		timeless bool
		want     string
	}{
		{"compared", 0, false, "new"},
		{"not comparable", 0, true, "new"},
		{"trusted", time.Minute, false, "old"},
		{"trusted for less than the load takes", time.Second, false, "new"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMemFS(nil)
				m.timeless = tt.timeless
				m.put("f", "old")
				slow := true
				// TTLOf is called after the file was read and compared.
				c := newFS(t, m, Options{Trust: tt.trust, TTLOf: func(string, fs.FileInfo) time.Duration {
					if slow {
						slow = false
						time.Sleep(10 * time.Second)
					}
					return 0
				}})
				go c.ReadFile("f")
				time.Sleep(5 * time.Second)
				m.put("f", "new")
				require.Equal(t, tt.want, readFile(t, c, "f"))
				require.EqualValues(t, 1, c.Stats().Files.Joined)
			})
		})
	}
}

// TestJoinedLoadThatFails: the error of a load that began before a call is not the call's.
func TestJoinedLoadThatFails(t *testing.T) {
	for _, trust := range []time.Duration{0, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			m := newMemFS(map[string]string{"f": "x"})
			failed := false
			m.setFault(func(op, name string) error {
				if op == "open" && !failed {
					failed = true
					time.Sleep(10 * time.Second)
					return errStore
				}
				return nil
			})
			c := newFS(t, m, Options{Trust: trust})
			go c.ReadFile("f")
			time.Sleep(5 * time.Second)
			_, err := c.ReadFile("f")
			require.Equal(t, trust != 0, errors.Is(err, errStore))
		})
	}
}
