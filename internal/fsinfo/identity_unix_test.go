//go:build unix && !aix && !solaris

package fsinfo_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/fileproc/fileproc/internal/fsinfo"
	"github.com/stretchr/testify/require"
)

// TestIdentityHasWhatTheSystemHas: inode, device, and a change time that cannot be set
// back.
func TestIdentityHasWhatTheSystemHas(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(name, []byte("1"), 0o644))
	identity := func() fsinfo.Identity {
		i, err := os.Stat(name)
		require.NoError(t, err)
		return fsinfo.Of(i)
	}
	before := identity()
	var st syscall.Stat_t
	require.NoError(t, syscall.Stat(name, &st))
	require.EqualValues(t, st.Ino, before.Inode)
	require.EqualValues(t, st.Dev, before.Device)
	time.Sleep(30 * time.Millisecond) // more than a step of the clock
	require.NoError(t, os.WriteFile(name, []byte("2"), 0o644))
	mtime := time.Unix(0, before.ModTime)
	require.NoError(t, os.Chtimes(name, mtime, mtime))
	after := identity()
	require.Equal(t, before.ModTime, after.ModTime)
	require.NotEqual(t, before, after)
}
