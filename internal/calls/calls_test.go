//go:build linux

package calls

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestRunChains(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "f"), []byte("content"), 0o644))
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	names, buf := []byte("f\x00missing\x00"), make([]byte, 16)
	var pinner runtime.Pinner
	defer pinner.Unpin()
	at := func(p *byte) uintptr {
		pinner.Pin(p) // puts it on the heap and keeps it alive
		return uintptr(unsafe.Pointer(p))
	}
	var all []Call
	for _, name := range []*byte{&names[0], &names[2]} {
		all = append(all,
			Call{Trap: unix.SYS_OPENAT, Args: [6]uintptr{uintptr(fd), at(name), unix.O_RDONLY}},
			Call{Trap: unix.SYS_READ, Args: [6]uintptr{99, at(&buf[0]), uintptr(len(buf))}, Chained: true},
			Call{Trap: unix.SYS_CLOSE, Args: [6]uintptr{99}, Chained: true})
	}
	Run(all, nil)
	require.NoError(t, all[0].Err())
	require.Equal(t, "content", string(buf[:all[1].Result]))
	require.Zero(t, all[2].Result)
	for _, c := range all[3:] {
		require.Equal(t, unix.ENOENT, c.Err())
	}
	require.Equal(t, unix.EBADF, unix.Close(all[0].Result), "it should be closed")
}

// Other goroutines run while a call blocks, even with one processor.
func TestRunLetsOthersRun(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var p [2]int
	require.NoError(t, unix.Pipe(p[:]))
	defer unix.Close(p[0])
	defer unix.Close(p[1])
	go unix.Write(p[1], []byte("x"))
	buf := make([]byte, 1)
	var pinner runtime.Pinner
	defer pinner.Unpin()
	pinner.Pin(&buf[0])
	all := []Call{
		{Trap: unix.SYS_GETPPID},
		{Trap: unix.SYS_READ, Args: [6]uintptr{uintptr(p[0]), uintptr(unsafe.Pointer(&buf[0])), 1}},
	}
	Run(all, nil)
	runtime.GC() // scans the stack, which must be as it was before Run
	require.NoError(t, all[1].Err())
	require.Equal(t, "x", string(buf))
}

// A call that says whether a file is whole is made where the read leaves that open.
func TestRunAsksWhereAReadIsUnsure(t *testing.T) {
	dir := t.TempDir()
	var st unix.Stat_t
	buf := make([]byte, 2048)
	var pinner runtime.Pinner
	defer pinner.Unpin()
	pinner.Pin(&st)
	pinner.Pin(&buf[0])
	for size, asks := range map[int]bool{0: false, 511: false, 512: true, 513: false, 1024: true, 1536: false, 2048: false} {
		name := filepath.Join(dir, "f")
		require.NoError(t, os.WriteFile(name, make([]byte, size), 0o644))
		path := append([]byte(name), 0)
		pinner.Pin(&path[0])
		all := []Call{
			{Trap: unix.SYS_OPENAT, Args: [6]uintptr{0, uintptr(unsafe.Pointer(&path[0])), unix.O_RDONLY}},
			{Trap: unix.SYS_READ, Args: [6]uintptr{1: uintptr(unsafe.Pointer(&buf[0])), 2: 1536}, Chained: true},
			{Trap: unix.SYS_LSEEK, Chained: true, Unsure: 1536},
			{Trap: unix.SYS_CLOSE, Chained: true},
		}
		Run(all, nil)
		require.Equal(t, asks, all[2].Err() == nil, size)
		if !asks {
			require.Equal(t, unix.ECANCELED, all[2].Err())
		}
		require.NoError(t, all[3].Err(), "it should be closed")
	}
}

// Calls that are not reported to Go's scheduler give the same. What is not cached, or cannot be opened in that way, is opened and
// reported.
func TestRunOfCachedFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	f, err := os.Create(path)
	require.NoError(t, err)
	defer f.Close()
	_, err = f.WriteString("content")
	require.NoError(t, err)
	var pinner runtime.Pinner
	defer pinner.Unpin()
	name, buf := append([]byte(path), 0), make([]byte, 16)
	part := unix.Iovec{Base: &buf[0], Len: 16}
	for _, p := range []any{&name[0], &buf[0], &part} {
		pinner.Pin(p)
	}
	run := func(how *unix.OpenHow) (bool, []Call) {
		all := []Call{
			{Trap: unix.SYS_OPENAT, Args: [6]uintptr{0, uintptr(unsafe.Pointer(&name[0])), unix.O_RDONLY}},
			{Trap: unix.SYS_PREADV2, Args: [6]uintptr{1: uintptr(unsafe.Pointer(&part)), 2: 1, 5: unix.RWF_NOWAIT}, Chained: true},
			{Trap: unix.SYS_CLOSE, Chained: true},
		}
		clear(buf)
		return Run(all, how), all
	}
	allCached, all := run(nil)
	require.False(t, allCached)
	if all[1].Err() != nil {
		t.Skip("no such reads on this file system: ", all[1].Err())
	}
	const resolveCached = 0x20
	var fd int
	if fd, err = unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Resolve: resolveCached}); err != nil {
		t.Skip("no such opens here: ", err)
	}
	require.NoError(t, unix.Close(fd))
	for _, tc := range []struct {
		resolve   uint64
		allCached bool
	}{{resolveCached, true}, {1 << 63, false}} {
		allCached, all = run(&unix.OpenHow{Resolve: tc.resolve})
		require.Equal(t, tc.allCached, allCached)
		require.Equal(t, "content", string(buf[:max(all[1].Result, 0)]))
		require.Zero(t, all[2].Result)
	}
	require.NoError(t, f.Sync())
	require.NoError(t, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
	if allCached, all = run(&unix.OpenHow{Resolve: resolveCached}); all[1].Err() == unix.EAGAIN {
		require.False(t, allCached)
		require.Zero(t, all[2].Result)
	}
	name[1]++ // which is not there
	allCached, all = run(&unix.OpenHow{Resolve: resolveCached})
	require.False(t, allCached)
	require.Equal(t, unix.ENOENT, all[2].Err())
}
