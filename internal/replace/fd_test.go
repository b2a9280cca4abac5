//go:build !fileproc_generic && (aix || darwin || dragonfly || freebsd || linux || netbsd || openbsd || solaris)

package replace

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestWriteLarge: an int of 32 bits does not hold twice the size of a write.
func TestWriteLarge(t *testing.T) {
	data, err := unix.Mmap(-1, 0, 1<<30+1, unix.PROT_READ, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Skip("the address space has no room for 1 GiB: ", err)
	}
	defer unix.Munmap(data)
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	require.NoError(t, err)
	defer null.Close()
	require.NoError(t, write(int(null.Fd()), data))
}
