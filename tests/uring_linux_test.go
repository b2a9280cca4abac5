//go:build linux

package fileproc_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"unsafe"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/seccomp"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// These tests look at io_uring from outside, where a ring is a descriptor and its mappings. They hold for every
// backend, however it uses a ring.

// rings counts the rings of this process.
func rings() int {
	n := 0
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		if link, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.Contains(link, "io_uring") {
			n++
		}
	}
	return n
}

func ringMappings() int {
	maps, _ := os.ReadFile("/proc/self/maps")
	return bytes.Count(maps, []byte("io_uring"))
}

// leavesNoRing requires that nothing outlives run, including rings.
func leavesNoRing(t *testing.T, run func()) {
	t.Helper()
	leavesNothing(t, run)
	require.Zero(t, rings(), "rings")
	require.Zero(t, ringMappings(), "mappings of rings")
}

// wantsRings returns whether a run over a few thousand small files of dir should use io_uring, and if not, why.
func wantsRings(dir string) (why string) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return err.Error()
	}
	switch int64(st.Type) {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC:
	default:
		return fmt.Sprintf("not used on file systems of type %#x", st.Type)
	}
	if fileproc.Backend() != "linux" || runtime.GOOS == "android" {
		return "not used by this backend"
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "-tags" && strings.Contains(s.Value, "fileproc_nouring") {
				return "left out of this build"
			}
		}
	}
	var params [30]uint32 // struct io_uring_params
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 2, uintptr(unsafe.Pointer(&params)), 0)
	if errno != 0 {
		return errno.Error()
	}
	unix.Close(int(fd))
	const features, skipsCompletions = 5, 1 << 11
	if params[features]&skipsCompletions == 0 {
		return "this kernel is older than 5.17"
	}
	return ""
}

// A ring is used where possible; otherwise the other tests of this file prove nothing.
func TestRingsAreUsedWhereTheyCanBe(t *testing.T) {
	root, rels := plantMany(t, 1, 2500)
	for _, disabled := range []bool{false, true} {
		seen, calls := 0, 0
		_, err := fileproc.Process(t.Context(), root, fileproc.Options{Workers: 1, DisableURing: disabled}, func(f *fileproc.File) (int, error) {
			if calls++; calls == len(rels)*9/10 {
				seen = rings()
			}
			return 0, exact(f, 0)
		})
		require.NoError(t, err)
		switch why := wantsRings(root); {
		case disabled:
			require.Zero(t, seen, "io_uring is disabled")
		case why == "":
			require.Positive(t, seen)
		default:
			t.Logf("left out: io_uring: %s; %d rings in use", why, seen)
		}
	}
}

// A refusal is a system call that seccomp makes fail.
type refusal struct {
	call   uintptr
	errno  unix.Errno
	arg    int    // if below is set: only calls with an argument arg
	below  uint32 // less than below
	onFile bool   // only with a descriptor in argument 4 (mmap)
	late   bool   // only when a ring is in use
}

// mmapCall is mmap where it takes six arguments; on other architectures it is left out.
var mmapCall = map[string]uintptr{"amd64": 9, "arm64": 222, "riscv64": 222}[runtime.GOARCH]

var refusals = map[string]refusal{
	"setup EPERM":         {call: unix.SYS_IO_URING_SETUP, errno: unix.EPERM},
	"setup ENOSYS":        {call: unix.SYS_IO_URING_SETUP, errno: unix.ENOSYS},
	"setup EINVAL":        {call: unix.SYS_IO_URING_SETUP, errno: unix.EINVAL},
	"setup ENOMEM":        {call: unix.SYS_IO_URING_SETUP, errno: unix.ENOMEM},
	"setup EMFILE":        {call: unix.SYS_IO_URING_SETUP, errno: unix.EMFILE},
	"register EPERM":      {call: unix.SYS_IO_URING_REGISTER, errno: unix.EPERM},
	"register EINVAL":     {call: unix.SYS_IO_URING_REGISTER, errno: unix.EINVAL},
	"register EMFILE":     {call: unix.SYS_IO_URING_REGISTER, errno: unix.EMFILE},
	"enter EPERM":         {call: unix.SYS_IO_URING_ENTER, errno: unix.EPERM},
	"enter ENOSYS":        {call: unix.SYS_IO_URING_ENTER, errno: unix.ENOSYS},
	"enter EINVAL":        {call: unix.SYS_IO_URING_ENTER, errno: unix.EINVAL},
	"setup, late":         {call: unix.SYS_IO_URING_SETUP, errno: unix.EPERM, late: true},
	"register, late":      {call: unix.SYS_IO_URING_REGISTER, errno: unix.EPERM, late: true},
	"enter EPERM, late":   {call: unix.SYS_IO_URING_ENTER, errno: unix.EPERM, late: true},
	"enter ENOSYS, late":  {call: unix.SYS_IO_URING_ENTER, errno: unix.ENOSYS, late: true},
	"enter EBADF, late":   {call: unix.SYS_IO_URING_ENTER, errno: unix.EBADF, late: true},
	"enter ENOMEM, late":  {call: unix.SYS_IO_URING_ENTER, errno: unix.ENOMEM, late: true},
	"enter with few":      {call: unix.SYS_IO_URING_ENTER, errno: unix.EPERM, late: true, arg: 1, below: 100},
	"enter to wait":       {call: unix.SYS_IO_URING_ENTER, errno: unix.EPERM, arg: 1, below: 1},
	"enter again, late":   {call: unix.SYS_IO_URING_ENTER, errno: unix.EAGAIN, late: true},
	"enter busy, late":    {call: unix.SYS_IO_URING_ENTER, errno: unix.EBUSY, late: true},
	"mapping of the ring": {call: mmapCall, errno: unix.ENOMEM, onFile: true},
}

// install makes the refusal hold for all threads of this process.
func (r refusal) install() error {
	const (
		load, equal, ret = seccomp.Load, seccomp.Equal, seccomp.Return
		refuse, allow    = seccomp.Refuse, seccomp.Allow
		ge               = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
	)
	filter := []unix.SockFilter{{Code: load, K: 0}, {Code: equal, K: uint32(r.call), Jf: 1}, {Code: ret, K: refuse | uint32(r.errno)}, {Code: ret, K: allow}}
	switch {
	case r.below > 0:
		filter = []unix.SockFilter{
			{Code: load, K: 0}, {Code: equal, K: uint32(r.call), Jf: 3},
			{Code: load, K: seccomp.Argument(r.arg)}, {Code: ge, K: r.below, Jt: 1},
			{Code: ret, K: refuse | uint32(r.errno)}, {Code: ret, K: allow},
		}
	case r.onFile:
		filter = []unix.SockFilter{
			{Code: load, K: 0}, {Code: equal, K: uint32(r.call), Jf: 3},
			{Code: load, K: seccomp.Argument(4)}, {Code: equal, K: 1<<32 - 1, Jt: 1},
			{Code: ret, K: refuse | uint32(r.errno)}, {Code: ret, K: allow},
		}
	}
	_, err := seccomp.Install(filter, seccomp.AllThreads)
	return err
}

const refusalVariable = "FILEPROC_TEST_REFUSAL"

func init() {
	tasks["refused"] = refused
	tasks["few descriptors"] = func(t *testing.T, root string) {
		limitDescriptors(t, 32)
		exactWhereRingsFail(t, root)
	}
	tasks["no locked memory"] = func(t *testing.T, root string) {
		require.NoError(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{}))
		exactWhereRingsFail(t, root)
	}
	tasks["some locked memory"] = func(t *testing.T, root string) {
		require.NoError(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 64 << 10, Max: 64 << 10}))
		exactWhereRingsFail(t, root)
	}
}

func exactWhereRingsFail(t *testing.T, root string) {
	rels := relsOf(t, root)
	for _, opts := range []fileproc.Options{{Workers: 1}, {Workers: 4}, {Workers: 1, ReadSize: 1000}, {Workers: 16}} {
		leavesNoRing(t, func() { requireExact(t, root, opts, rels) })
	}
}

func refused(t *testing.T, root string) {
	rels := relsOf(t, root)
	r, ok := refusals[os.Getenv(refusalVariable)]
	require.True(t, ok)
	install := func() bool {
		err := r.install()
		if err != nil {
			t.Logf("left out: seccomp: %v", err)
		}
		return err == nil
	}
	why := wantsRings(root)
	if !r.late && !install() {
		return
	}
	// The first run meets the refusal half-way, if it is a late one.
	calls, seen := 0, 0
	installed := true
	leavesNoRing(t, func() {
		got, err := fileproc.Process(t.Context(), root, fileproc.Options{Workers: 1}, func(f *fileproc.File) (int, error) {
			if calls++; calls == len(rels)/2 {
				seen = rings()
				if r.late {
					installed = install()
				}
			}
			return 0, exact(f, 0)
		})
		require.NoError(t, err)
		require.Len(t, got, len(rels))
	})
	if !installed {
		return
	}
	switch {
	case why != "":
		t.Logf("left out: io_uring: %s", why)
	case r.late:
		require.Positive(t, seen, "no ring was in use")
	case r.call == unix.SYS_IO_URING_SETUP:
		require.Zero(t, seen, "rings")
	}
	exactWhereRingsFail(t, root)
}

// noteLeftOut repeats what a test process reported as left out.
func noteLeftOut(t *testing.T, output string) {
	for line := range strings.Lines(output) {
		if _, what, ok := strings.Cut(line, "left out: "); ok {
			t.Log("left out: " + strings.TrimSpace(what))
		}
	}
}

func TestInvariant1RefusedRingsLoseNothing(t *testing.T) {
	root, _ := plantMany(t, 3, 900)
	for name, r := range refusals {
		t.Run(name, func(t *testing.T) {
			if r.call == 0 {
				t.Log("left out: unknown how mmap takes its arguments here")
				return
			}
			output, _ := runTask(t, "refused", root, func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, refusalVariable+"="+name) })
			noteLeftOut(t, output)
		})
	}
}

func TestInvariant1LimitsThatForbidRingsLoseNothing(t *testing.T) {
	root, _ := plantMany(t, 3, 900)
	require.NoError(t, os.Chmod(filepath.Dir(root), 0o755))
	for _, task := range []string{"few descriptors", "no locked memory", "some locked memory"} {
		for _, as := range []string{"this user", "another user"} {
			t.Run(task+"/"+as, func(t *testing.T) {
				if as == "another user" {
					runTask(t, task, root, asNobody(t))
				} else {
					runTask(t, task, root)
				}
			})
		}
	}
}
