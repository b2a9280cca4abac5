//go:build linux && !fileproc_unix && !fileproc_generic

package sys

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// ReadCached reads from any offset, also with 32 bits, no more than 1 MiB, and says that it cannot rather than wait for a FIFO.
func TestReadCached(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	require.NoError(t, err)
	defer f.Close()
	text := make([]byte, 2*maxCached)
	for i := range text {
		text[i] = byte(i % 251)
	}
	for _, offset := range []int64{0, 1<<32 - 5, 1<<32 + 3, 5 << 30} {
		if _, err := f.WriteAt(text, offset); err != nil {
			t.Skip("no such large files here: ", err)
		}
		for _, size := range []int{0, 1, rawFrom - 1, rawFrom, maxCached, maxCached + 1, 2 * maxCached} {
			p := make([]byte, size)
			n, err := ReadCached(int(f.Fd()), p, offset)
			if err == unix.EOPNOTSUPP {
				t.Skip("this file system has no such read")
			}
			require.NoError(t, err)
			require.Equal(t, min(size, maxCached), n, "what was just written is cached")
			require.Equal(t, text[:n], p[:n])
		}
	}
	n, err := ReadCached(int(f.Fd()), make([]byte, 10), 6<<30)
	require.NoError(t, err)
	require.Zero(t, n, "the end")
	for _, size := range []int{1, rawFrom} {
		_, err = ReadCached(-1, make([]byte, size), 0)
		require.Equal(t, unix.EBADF, err)
		var pipe [2]int
		require.NoError(t, unix.Pipe(pipe[:]))
		_, err = ReadCached(pipe[0], make([]byte, size), 0)
		require.Equal(t, unix.ESPIPE, err)
		unix.Close(pipe[0])
		unix.Close(pipe[1])
	}
}
