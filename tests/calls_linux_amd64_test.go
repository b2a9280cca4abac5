package fileproc_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/knobs"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// callNames are the calls that are counted. The runtime's own calls are not among them.
var callNames = map[uint64]string{
	unix.SYS_OPENAT: "openat", unix.SYS_CLOSE: "close", unix.SYS_FSTAT: "fstat", unix.SYS_NEWFSTATAT: "newfstatat", unix.SYS_STATX: "statx",
	unix.SYS_READ: "read", unix.SYS_PREAD64: "pread64", unix.SYS_PREADV2: "preadv2", unix.SYS_LSEEK: "lseek", unix.SYS_GETDENTS64: "getdents64",
	unix.SYS_FCNTL: "fcntl", unix.SYS_EPOLL_CTL: "epoll_ctl", unix.SYS_READLINKAT: "readlinkat", unix.SYS_FADVISE64: "fadvise64", unix.SYS_IOCTL: "ioctl",
}

// callsVariable has how many runs to make, their Options.ReadSize, their Options.SkipLarger and their root, with colons in
// between. With NoRead they ask for metadata.
const callsVariable = "FILEPROC_TEST_CALLS"

// The calls of a process that does nothing else are counted.
func init() {
	if v := strings.SplitN(os.Getenv(callsVariable), ":", 4); len(v) == 4 {
		var n [3]int
		var err error
		for i := range n {
			if err == nil {
				n[i], err = strconv.Atoi(v[i])
			}
		}
		knobs.SlowCall = 1 << 62 // the same calls on a busy machine
		opts := fileproc.Options{ReadSize: n[1], Stat: n[1] == fileproc.NoRead, SkipLarger: int64(n[2])}
		for ; err == nil && n[0] > 0; n[0]-- {
			_, err = fileproc.Process(context.Background(), v[3], opts, func(*fileproc.File) (struct{}, error) { return struct{}{}, nil })
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// A run of a few files makes these calls and no other, and no more than these allocations.
func TestFewFiles(t *testing.T) {
	root := t.TempDir()
	allocations := map[string][]int{"linux": {16, 19, 20}, "unix": {23, 30, 35}, "generic": {38, 52, 64}}[fileproc.Backend()]
	for i := range 3 {
		plant(t, root, fmt.Sprint("file", i))
		t.Run(fmt.Sprint(i+1), func(t *testing.T) {
			if fileproc.Backend() == "linux" && readsCached(t, filepath.Join(root, "file0")) {
				for _, opts := range []fileproc.Options{{}, {SkipLarger: 1 << 20}} { // what is read shows its size
					less, more := countCalls(t, root, 1, opts), countCalls(t, root, 11, opts)
					for name := range more {
						more[name] = int(math.Round(float64(more[name]-less[name]) / 10)) // an interrupted call is repeated
					}
					maps.DeleteFunc(more, func(_ string, n int) bool { return n == 0 })
					require.Equal(t, map[string]int{"openat": i + 2, "getdents64": 2, "preadv2": i + 1, "close": i + 2}, more)
				}
			}
			if raceDetector {
				return // the race detector allocates too
			}
			if log := flag.Lookup("test.testlogfile"); fileproc.Backend() == "generic" && log.Value.String() != "" {
				t.Log("left out: allocations, since go test has package os log what it opens; -count=1 does not")
				return
			}
			defer debug.SetGCPercent(debug.SetGCPercent(-1)) // it frees what is kept from run to run
			require.GreaterOrEqual(t, float64(allocations[i]), testing.AllocsPerRun(100, func() {
				_, err := fileproc.Process(context.Background(), root, fileproc.Options{Workers: 2}, func(f *fileproc.File) (int, error) { return len(f.Data()), nil })
				if err != nil {
					t.Error(err)
				}
			}), "allocations")
		})
	}
}

// Once a run knows how large files are, it asks for no more than it needs. A file takes three calls. If its size could also be the
// end of the cached part, its metadata tells; and a file of more than 1 MiB is measured before it is read, 1 MiB a call.
func TestCallsBySize(t *testing.T) {
	dir := t.TempDir()
	plant(t, dir, "file")
	var st unix.Statfs_t
	require.NoError(t, unix.Statfs(dir, &st))
	if fileproc.Backend() != "linux" || st.Type == unix.TMPFS_MAGIC || !readsCached(t, filepath.Join(dir, "file")) {
		t.Skip("promised of the linux backend on a file system that can read what is cached alone")
	}
	for size, want := range map[int]map[string]int{
		20_001:    {"openat": 1, "preadv2": 1, "close": 1},
		65_701:    {"openat": 1, "preadv2": 1, "close": 1},
		65_536:    {"openat": 1, "preadv2": 1, "fstat": 1, "close": 1},
		3<<20 + 1: {"openat": 1, "preadv2": 4, "fstat": 1, "close": 1},
	} {
		few, many := t.TempDir(), t.TempDir()
		for i := range 20 {
			for _, dir := range []string{few, many} {
				if i < 10 || dir == many {
					require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%02d", i)), bytes.Repeat([]byte{'x'}, size), 0o600))
				}
			}
		}
		got := map[string]int{}
		for range 10 { // the machine's page cache may be dropped meanwhile, as scripts/filesystems.sh does
			if got = callsOfEach(t, few, many, 10, fileproc.Options{}); maps.Equal(want, got) {
				break
			}
		}
		require.Equal(t, want, got, size)
	}
}

// readsCached reports whether the file system of a file can read what is cached alone.
func readsCached(t *testing.T, name string) bool {
	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	_, err = unix.Preadv2(int(f.Fd()), [][]byte{make([]byte, 1)}, 0, unix.RWF_NOWAIT)
	return err == nil
}

// The table of docs/dev/performance.md: the calls for a file and for a directory.
func TestCalls(t *testing.T) {
	if fileproc.Backend() == "linux" {
		t.Skip("this backend reads many files with one call; scripts/bench_compare.sh counts the calls")
	}
	perFile := map[string]int{"openat": 1, "fstat": 1, "read": 2, "close": 1}
	perDir := map[string]int{"openat": 1, "fcntl": 1, "getdents64": 3, "close": 1}
	metadata := map[string]int{"statx": 1}
	if fileproc.Backend() == "generic" {
		perFile = map[string]int{"newfstatat": 1, "openat": 1, "epoll_ctl": 1, "fstat": 1, "read": 2, "close": 1}
		perDir = map[string]int{"newfstatat": 1, "openat": 3, "fstat": 2, "epoll_ctl": 1, "getdents64": 3, "close": 3}
		metadata = map[string]int{"newfstatat": 2} // one by the listing
	}
	few, many := t.TempDir(), t.TempDir()
	for i := range 100 {
		plant(t, few, fmt.Sprint("file", i))
		plant(t, many, fmt.Sprint("file", i), fmt.Sprint("more", i))
	}
	require.Equal(t, perFile, callsOfEach(t, few, many, 100, fileproc.Options{}))
	require.Equal(t, metadata, callsOfEach(t, few, many, 100, fileproc.Options{ReadSize: fileproc.NoRead}))

	few, many = t.TempDir(), t.TempDir()
	for i := range 20 {
		plant(t, few, fmt.Sprint(i, "/file"))
		plant(t, many, fmt.Sprint(i, "/file"), fmt.Sprint("more", i, "/file"))
	}
	for name, n := range perFile {
		perDir[name] += n
	}
	require.Equal(t, perDir, callsOfEach(t, few, many, 20, fileproc.Options{}), "of a directory with a file")
}

// callsOfEach returns the calls for each of the n things that many has in addition to those of few.
func callsOfEach(t *testing.T, few, many string, n int, opts fileproc.Options) map[string]int {
	t.Helper()
	less, more := countCalls(t, few, 1, opts), countCalls(t, many, 1, opts)
	each := map[string]int{}
	for name, k := range more {
		// A call or two more are the process's own, or repeat an interrupted one.
		if k := int(math.Round(float64(k-less[name]) / float64(n))); k != 0 {
			each[name] = k
		}
	}
	return each
}

// countCalls traces a process that processes root as many times as runs says.
func countCalls(t *testing.T, root string, runs int, opts fileproc.Options) map[string]int {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d:%d:%d:%s", callsVariable, runs, opts.ReadSize, opts.SkipLarger, root), "GODEBUG=asyncpreemptoff=1")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &unix.SysProcAttr{Ptrace: true}
	runtime.LockOSThread() // only this thread may trace
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		t.Skipf("no process can be traced here: %v", err)
	}
	defer cmd.Process.Release() // Without it the descriptor stays open until a garbage collection, since there is no Wait.
	pid := cmd.Process.Pid
	const options = unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_EXITKILL
	counts := map[string]int{}
	for first := true; ; first = false {
		var status unix.WaitStatus
		thread, err := unix.Wait4(-1, &status, unix.WALL|unix.WNOTHREAD, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		require.NoError(t, err)
		switch {
		case thread == pid && (status.Exited() || status.Signaled()):
			require.True(t, status.Exited() && status.ExitStatus() == 0, "it ended with %#x", status)
			return counts
		case !status.Stopped():
			continue // another thread has ended
		}
		signal := 0
		switch s := status.StopSignal(); {
		case first:
			require.NoError(t, unix.PtraceSetOptions(pid, options))
		case s == unix.SIGTRAP|0x80:
			if name := callNames[enteredCall(t, thread)]; name != "" {
				counts[name]++
			}
		case s != unix.SIGTRAP && s != unix.SIGSTOP:
			signal = int(s)
		}
		if err := unix.PtraceSyscall(thread, signal); err != nil {
			require.ErrorIs(t, err, unix.ESRCH) // the thread has just ended
		}
	}
}

// enteredCall is the number of the call that a thread is about to make.
func enteredCall(t *testing.T, thread int) uint64 {
	const none = 1<<64 - 1
	var info struct { // struct ptrace_syscall_info
		op      uint8
		_       [3]uint8
		arch    uint32
		ip, sp  uint64
		number  uint64
		details [6]uint64
	}
	const getInfo, entry = 0x420e, 1 // PTRACE_GET_SYSCALL_INFO, PTRACE_SYSCALL_INFO_ENTRY
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, getInfo, uintptr(thread), unsafe.Sizeof(info), uintptr(unsafe.Pointer(&info)), 0, 0)
	if errno != 0 || info.op != entry {
		require.Contains(t, []unix.Errno{0, unix.ESRCH}, errno)
		return none
	}
	return info.number
}
