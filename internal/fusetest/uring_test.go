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

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/seccomp"
	"github.com/fileproc/fileproc/internal/uring"
	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// On Linux 6.18, io_uring reads of files with direct I/O return wrong data without an error, so a directory with many such
// files must not be read through io_uring.
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

const childVariable = "FUSETEST_CHILD_DIR"

// A FUSE server may delay reads for any time. If the kernel refuses the ring's system calls meanwhile, the reader must
// neither wait forever nor let the kernel write to memory that has been reused. A child process reads, because a seccomp
// filter cannot be removed.
func TestRefusedWhileReadsArePending(t *testing.T) {
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
			cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestChildReader$", "-test.v")
			cmd.Env = append(os.Environ(), childVariable+"="+dir)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Contains(t, string(out), "--- PASS: TestChildReader")
			for line := range strings.Lines(string(out)) {
				if strings.Contains(line, "left out") {
					t.Log(strings.TrimSpace(line))
				}
			}
		})
	}
}

// TestChildReader does nothing unless TestRefusedWhileReadsArePending has started this process.
func TestChildReader(t *testing.T) {
	dir := os.Getenv(childVariable)
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
	_, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, ^uintptr(0), 0, 0, 0, 0, 0) // EBADF if it is not refused
	require.Equal(t, unix.EPERM, errno)
	// A signal interrupts the first call, which has submitted. The filter refuses the next call, which only waits.
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
		t.Log("left out: no signal arrived during the call")
		for i := range depth {
			require.Equal(t, strings.Repeat("late", 1000), string(ring.Bytes(i)))
		}
		return
	}
	require.ErrorIs(t, err, unix.EPERM)
	require.Error(t, ring.Read(fd, files, unix.O_RDONLY, size, 0), "a broken ring must refuse further reads")
	// New mappings may reuse the addresses of the ring's buffers. The kernel must not write to them.
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
			require.Equal(t, -1, bytes.IndexByte(m, 'l'), "the kernel wrote to memory that no longer belongs to the ring")
		}
	}
}

// refuseWaiting makes io_uring_enter fail with EPERM if it submits nothing.
func refuseWaiting() error {
	_, err := seccomp.Install([]unix.SockFilter{
		{Code: seccomp.Load}, {Code: seccomp.Equal, K: uint32(unix.SYS_IO_URING_ENTER), Jf: 3},
		{Code: seccomp.Load, K: seccomp.Argument(1)}, {Code: seccomp.Equal, Jf: 1},
		{Code: seccomp.Return, K: seccomp.Refuse | uint32(unix.EPERM)},
		{Code: seccomp.Return, K: seccomp.Allow},
	}, seccomp.AllThreads)
	return err
}
