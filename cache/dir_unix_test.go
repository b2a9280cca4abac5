//go:build unix && !aix && !solaris

package cache

import (
	"os"
	"path/filepath"
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
}

// TestIdentityHasWhatTheSystemHas: inode, device, and a change time that cannot be set
// back.
func TestIdentityHasWhatTheSystemHas(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(name, []byte("1"), 0o644))
	identity := func() identity {
		i, err := os.Stat(name)
		require.NoError(t, err)
		return identityOf(i)
	}
	before := identity()
	var st syscall.Stat_t
	require.NoError(t, syscall.Stat(name, &st))
	require.EqualValues(t, st.Ino, before.inode)
	require.EqualValues(t, st.Dev, before.device)
	time.Sleep(30 * time.Millisecond) // more than a step of the clock
	require.NoError(t, os.WriteFile(name, []byte("2"), 0o644))
	mtime := time.Unix(before.mtimeSec, before.mtimeNsec)
	require.NoError(t, os.Chtimes(name, mtime, mtime))
	after := identity()
	require.Equal(t, before.mtimeNsec, after.mtimeNsec)
	require.NotEqual(t, before, after)
}
