//go:build !fileproc_generic && (aix || darwin || dragonfly || freebsd || linux || netbsd || openbsd || solaris)

package fileproc

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A read that would wait ends soon, with content as soon as there is some.
func TestReadWouldBlock(t *testing.T) {
	var p [2]int
	require.NoError(t, unix.Pipe(p[:]))
	require.NoError(t, unix.SetNonblock(p[0], true))
	f := &fdFile{fd: p[0]}
	defer f.close()
	var buf [10]byte
	for range 3 {
		start := time.Now()
		_, err := f.read(buf[:])
		require.Equal(t, errWouldBlock, err)
		require.GreaterOrEqual(t, time.Since(start), time.Millisecond, "it does not spin")
	}
	w := os.NewFile(uintptr(p[1]), "pipe")
	_, err := w.Write([]byte("text"))
	require.NoError(t, err)
	n, err := f.read(buf[:])
	require.NoError(t, err)
	require.Equal(t, "text", string(buf[:n]))
	require.NoError(t, w.Close())
	n, err = f.read(buf[:])
	require.NoError(t, err)
	require.Zero(t, n)
}
