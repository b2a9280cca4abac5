//go:build linux && !fileproc_unix && !fileproc_generic

package sys

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

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

// ReadAhead makes the kernel read what is far behind the last read, and waits for nothing.
func TestReadAhead(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	require.NoError(t, err)
	defer f.Close()
	const size = 64<<20 + 5
	text := make([]byte, size)
	text[size-1] = 7
	_, err = f.Write(text)
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	fd, p := int(f.Fd()), make([]byte, 1<<20)
	cached := func(offset int64) bool {
		var in [1]byte
		part, err := unix.Mmap(fd, offset, 4096, unix.PROT_READ, unix.MAP_SHARED)
		require.NoError(t, err)
		defer unix.Munmap(part)
		_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&part[0])), 4096, uintptr(unsafe.Pointer(&in)))
		require.Zero(t, errno)
		return in[0]&1 == 1
	}
	const far = 48 << 20
	unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED)
	if _, err = ReadCached(fd, p, 0); err != unix.EAGAIN || cached(far) {
		t.Skip("the page cache keeps it, or the readahead is large: ", err)
	}
	require.EqualValues(t, far+aheadStep, ReadAhead(fd, p, 0, far+1))
	require.Eventually(t, func() bool { return cached(far - 1<<20) }, time.Minute, time.Millisecond)
	_, err = f.ReadAt(text, 0)
	require.NoError(t, err)
	require.Equal(t, int64(math.MaxInt64), ReadAhead(fd, p, size-1, size+aheadStep), "the end")
	require.EqualValues(t, 7, p[0])
	require.Equal(t, int64(math.MaxInt64), ReadAhead(-1, p, 0, 1))
}

// What no platform can map is an error, on 32 bits too.
func TestAllocLargeOfTooMuch(t *testing.T) {
	for _, size := range []int64{math.MaxInt - largeSkew + 1, math.MaxInt} {
		_, err := AllocLarge(size)
		require.Equal(t, unix.ENOMEM, err)
	}
}

// A read that finds no memory for a page of its buffer ends where that page begins, which is no sign of the end of a file.
func TestHoldsWhole(t *testing.T) {
	page := make([]byte, 3*4096)
	page = page[4096-uintptr(unsafe.Pointer(&page[0]))%4096:]
	for at, want := range map[int]map[int]bool{
		0:  {0: false, 1: true, 511: true, 512: false, 4080: true, 4096: false, 5000: false},
		16: {1: true, 496: false, 512: false, 4080: false, 4081: true, 4096: false, 5000: false},
	} {
		for n, whole := range want {
			require.Equal(t, whole, HoldsWhole(n, page[at:at+5000]), "%d at %d", n, at)
		}
	}
}

// TestStatOfADevice: each way to look a file up gives the device that a special file stands for, and all else that package os has.
func TestStatOfADevice(t *testing.T) {
	for _, path := range []string{"/dev/null", "/", os.Args[0]} {
		info, err := os.Lstat(path)
		if err != nil {
			t.Skip("not all of these can be looked up here: ", err)
		}
		want := StatOfInfo(info)
		require.Equal(t, path == "/dev/null", want.Rdev == unix.Mkdev(1, 3))
		byStatx, err := lookUp(unix.AT_FDCWD, path)
		require.NoError(t, err)
		byStatx.BirthTime = want.BirthTime
		require.Equal(t, want, byStatx)
		byFstatat, err := fstatat(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW)
		require.NoError(t, err)
		require.Equal(t, want, byFstatat)
	}
}

// TestWhole: an answer that grows between the two calls is asked for again, and a full buffer may be a part.
func TestWhole(t *testing.T) {
	for _, fails := range []bool{true, false} { // Linux fails if the buffer is too small, BSD fills it
		text, calls := "abc", 0
		got, err := whole(func(p []byte) (int, error) {
			switch calls++; {
			case p == nil:
				return len(text), nil
			case calls == 2:
				text = "abcdefgh"
			}
			if fails && len(p) < len(text) {
				return -1, unix.ERANGE
			}
			return copy(p, text), nil
		})
		require.NoError(t, err)
		require.Equal(t, "abcdefgh", string(got))
	}
	_, err := whole(func(p []byte) (int, error) {
		if p == nil {
			return 1, nil
		}
		return -1, unix.EPERM
	})
	require.Equal(t, unix.EPERM, err)
}
