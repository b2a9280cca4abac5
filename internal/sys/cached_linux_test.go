//go:build linux && !fileproc_unix && !fileproc_generic

package sys

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A read that may have to wait for a disk is reported to Go's scheduler: the one after a read that found something missing.
func TestReadCachedIsReported(t *testing.T) {
	t.Cleanup(func() { uncached.Store(false) })
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	require.NoError(t, err)
	defer f.Close()
	const size = 256<<10 + 1
	_, err = f.Write(make([]byte, size))
	require.NoError(t, err)
	fd, p := int(f.Fd()), make([]byte, 2*size)
	if _, err = ReadCached(fd, p, 0); err == unix.EOPNOTSUPP {
		t.Skip("no such reads here")
	}
	require.NoError(t, err)
	require.False(t, uncached.Load())
	require.NoError(t, f.Sync())
	unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED)
	if _, err = ReadCached(fd, p, 0); err != unix.EAGAIN {
		t.Skip("the page cache keeps it: ", err)
	}
	require.True(t, uncached.Load())
	require.False(t, isRaw(1<<20))
	_, err = f.ReadAt(p[:size], 0)
	require.NoError(t, err)
	n, err := ReadCached(fd, p, 0)
	require.NoError(t, err)
	require.Equal(t, size, n)
	require.False(t, uncached.Load())
	require.True(t, isRaw(rawFrom))
	require.False(t, isRaw(rawFrom-1))
}

// What no platform can map is an error, on 32 bits too.
func TestAllocLargeOfTooMuch(t *testing.T) {
	for _, size := range []int64{math.MaxInt - largeSkew + 1, math.MaxInt} {
		_, err := AllocLarge(size)
		require.Equal(t, unix.ENOMEM, err)
	}
}
