//go:build linux

package fusetest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/uring"
	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Reads through io_uring of files of direct I/O are wrong without an error (Linux 6.18), so a directory with many files
// must not be read so.
func TestInvariant1ManyFilesOfDirectIO(t *testing.T) {
	var want map[string]string
	build := func() *node {
		root := newNode(&faults{direct: true}, "", fuse.S_IFDIR, "")
		want = map[string]string{}
		for i := range 1500 {
			rel := fmt.Sprintf("file%04d", i)
			want[rel] = content(i, (i*37)%1000)
			root.add(rel, fuse.S_IFREG, want[rel])
		}
		return root
	}
	each(t, build, func(t *testing.T, dir string, opts fileproc.Options) {
		got, _, err := read(t, dir, opts)
		require.NoError(t, err)
		requireSame(t, want, got, 0)
	})
}

const heldVariable = "FUSETEST_HELD"

// Reads of FUSE files go on for as long as the server likes. While they do, the kernel refuses the ring's calls, and
// the reader must neither wait for ever nor let the kernel write into memory that has become somebody else's. The
// process that reads is another one, since the refusal is for good.
func TestRefusedWhileReadsAreUnderWay(t *testing.T) {
	if ring, err := uring.New(8, 4096); err != nil {
		t.Logf("left out: io_uring: %v", err)
		return
	} else {
		ring.Close()
	}
	for _, delay := range []time.Duration{50 * time.Millisecond, 300 * time.Millisecond, 2500 * time.Millisecond} {
		t.Run(delay.String(), func(t *testing.T) {
			root := newNode(&faults{onRead: func() { time.Sleep(delay) }}, "", fuse.S_IFDIR, "")
			for i := range 8 {
				root.add(fmt.Sprint(i), fuse.S_IFREG, strings.Repeat("late", 1000))
			}
			dir := serve(t, root)
			self, err := os.Executable()
			require.NoError(t, err)
			cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestHeldReader$", "-test.v")
			cmd.Env = append(os.Environ(), heldVariable+"="+dir)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Contains(t, string(out), "--- PASS: TestHeldReader")
			for line := range strings.Lines(string(out)) {
				if strings.Contains(line, "left out") {
					t.Log(strings.TrimSpace(line))
				}
			}
		})
	}
}

// TestHeldReader does nothing unless TestRefusedWhileReadsAreUnderWay has started this process.
func TestHeldReader(t *testing.T) {
	dir := os.Getenv(heldVariable)
	if dir == "" {
		return
	}
	const depth, size = 8, 64 << 10
	ring, err := uring.New(depth, size)
	require.NoError(t, err)
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	require.NoError(t, err)
	var files []names.Name
	for i := range depth {
		files = append(files, names.New(fmt.Sprint(i)))
	}
	if err := refuseWaiting(); err != nil {
		t.Logf("left out: seccomp: %v", err)
		return
	}
	// A signal ends the first call, which has submitted, and the next one, which only waits, is refused.
	thread := make(chan int, 1)
	go func() {
		tid := <-thread
		for range 20 {
			time.Sleep(time.Millisecond)
			syscall.Tgkill(os.Getpid(), tid, unix.SIGURG)
		}
	}()
	runtime.LockOSThread()
	thread <- unix.Gettid()
	err = ring.Read(fd, files, unix.O_RDONLY, size, 0)
	runtime.UnlockOSThread()
	if err == nil {
		t.Log("left out: no signal came between")
		for i := range depth {
			require.Equal(t, strings.Repeat("late", 1000), string(ring.Bytes(i)))
		}
		return
	}
	require.ErrorIs(t, err, unix.EPERM)
	require.Error(t, ring.Read(fd, files, unix.O_RDONLY, size, 0), "a broken ring is of no use")
	// What takes the place of the ring's buffers in memory belongs to others.
	ring.Close()
	var maps [][]byte
	for range 20 {
		m, err := unix.Mmap(-1, 0, depth*size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		require.NoError(t, err)
		maps = append(maps, m)
	}
	for range 20 {
		time.Sleep(100 * time.Millisecond)
		for _, m := range maps {
			require.Equal(t, -1, bytes.IndexByte(m, 'l'), "the kernel wrote to memory that is not the ring's any more")
		}
	}
}

// refuseWaiting makes io_uring_enter fail with EPERM where it submits nothing.
func refuseWaiting() error {
	const (
		load  = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		ret   = unix.BPF_RET | unix.BPF_K
	)
	submit := uint32(16 + 8) // the lower half of the second argument
	if one := 1; *(*byte)(unsafe.Pointer(&one)) == 0 {
		submit += 4
	}
	filter := []unix.SockFilter{
		{Code: load}, {Code: equal, K: uint32(unix.SYS_IO_URING_ENTER), Jf: 3},
		{Code: load, K: submit}, {Code: equal, Jf: 1},
		{Code: ret, K: 0x00050000 | uint32(unix.EPERM)}, // SECCOMP_RET_ERRNO
		{Code: ret, K: 0x7fff0000},                      // SECCOMP_RET_ALLOW
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	const setModeFilter, allThreads = 1, 1
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, setModeFilter, allThreads, uintptr(unsafe.Pointer(&program))); errno != 0 {
		return errno
	}
	return nil
}
