//go:build unix && !aix && !solaris

package cache

import (
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
}
