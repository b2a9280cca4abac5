//go:build linux && !fileproc_unix && !fileproc_generic

package fileproc

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

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

// Prefetched files enter the page cache without being read.
func TestPrefetch(t *testing.T) {
	dir := t.TempDir()
	d, err := openRoot(dir)
	require.NoError(t, err)
	defer d.close()
	if !canPrefetch(d) {
		t.Log("left out: not on this file system, or with 32 bits")
		return
	}
	name := filepath.Join(dir, "f")
	require.NoError(t, os.WriteFile(name, make([]byte, 400), 0o644))
	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	page, err := unix.Mmap(int(f.Fd()), 0, 400, unix.PROT_READ, unix.MAP_SHARED)
	require.NoError(t, err)
	defer unix.Munmap(page)
	cached := func() bool {
		var in byte
		_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&page[0])), 400, uintptr(unsafe.Pointer(&in)))
		require.Zero(t, errno)
		return in&1 != 0
	}
	require.NoError(t, f.Sync())
	require.NoError(t, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
	if cached() {
		t.Log("left out: the kernel keeps the page")
		return
	}
	some := []names.Name{names.New("f")}
	prefetch(d, some, -1, func() bool { return true })
	require.False(t, cached(), "a stopped run prefetches nothing")
	prefetch(d, some, -1, func() bool { return false })
	require.Eventually(t, cached, time.Minute, time.Millisecond)
}
