//go:build linux && !fileproc_unix && !fileproc_generic

package fileproc

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/fileproc/fileproc/internal/names"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A read from the page cache counts as the whole file only if nothing else can make a read that short: a length
// in whole sectors may also be the end of the cached part, or of a block device.
func TestCachedIsSureOfTheEnd(t *testing.T) {
	dir := t.TempDir()
	d, err := openRoot(dir)
	require.NoError(t, err)
	defer d.close()
	p := make([]byte, firstBuffer)
	for _, size := range []int{0, 1, 400, 511, 512, 513, 1024, 4095, 4096, 4097, 4*4096 + 5, firstBuffer - 1, firstBuffer, firstBuffer + 1} {
		content := bytes.Repeat([]byte("x"), size)
		name := filepath.Join(dir, "f")
		require.NoError(t, os.WriteFile(name, content, 0o644))
		for _, dropped := range []bool{false, true} {
			if dropped { // all but the first page, if the kernel is willing
				f, err := os.Open(name)
				require.NoError(t, err)
				require.NoError(t, f.Sync())
				require.NoError(t, unix.Fadvise(int(f.Fd()), 4096, 0, unix.FADV_DONTNEED))
				f.Close()
			}
			c, err := d.open(names.New("f"), nil)
			require.NoError(t, err)
			n, ok := c.cached(p)
			c.close()
			require.Equal(t, content[:n], p[:n])
			if ok {
				require.Equal(t, size, n, "dropped=%v", dropped)
				require.NotZero(t, n%512, "size %d", size)
			}
		}
	}
}
