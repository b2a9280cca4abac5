//go:build linux

package fileproc_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// These tests look at io_uring from outside, where a ring is a descriptor and mappings of it: they hold for every
// backend, whatever it does with a ring.

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

// leavesNoRing requires that nothing outlives run, of a ring neither.
func leavesNoRing(t *testing.T, run func()) {
	t.Helper()
	leavesNothing(t, run)
	require.Zero(t, rings(), "rings")
	require.Zero(t, ringMappings(), "mappings of rings")
}

// wantsRings says whether a run of a few thousand small files of dir should use io_uring, and if not, why.
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

// exact says what is wrong with what fn got of a planted file.
func exact(f *fileproc.File, readSize int) error {
	want := testtree.BytesOf(filepath.ToSlash(f.Rel()))
	part := want
	if readSize > 0 {
		part = want[:min(readSize, len(want))]
	}
	switch data := f.Data(); {
	case !bytes.Equal(data, part):
		return fmt.Errorf("wrong bytes: %d of %d, want %d", len(data), len(want), len(part))
	case len(data) != cap(data):
		return fmt.Errorf("wrong capacity: %d for %d bytes", cap(data), len(data))
	case f.Truncated() != (len(part) < len(want)):
		return fmt.Errorf("wrong Truncated: %v with %d of %d bytes", f.Truncated(), len(part), len(want))
	}
	return nil
}

// plantMany writes files files in each of dirs directories below a new one, whose path it returns.
func plantMany(t *testing.T, dirs, files int) (root string, rels []string) {
	t.Helper()
	root = t.TempDir()
	for d := range dirs {
		dir := fmt.Sprintf("d%02d", d)
		require.NoError(t, os.Mkdir(filepath.Join(root, dir), 0o755))
		for f := range files {
			rel := fmt.Sprintf("%s/f%04d", dir, f)
			require.NoError(t, os.WriteFile(filepath.Join(root, rel), testtree.BytesOf(rel), 0o644))
			rels = append(rels, rel)
		}
	}
	return root, rels
}

// requireExact requires each of rels once with its bytes, and nothing else.
func requireExact(t *testing.T, root string, opts fileproc.Options, rels []string) {
	t.Helper()
	var report fileproc.Report
	opts.Report = &report
	got, err := fileproc.Process(t.Context(), root, opts, func(f *fileproc.File) (string, error) {
		return filepath.ToSlash(f.Rel()), exact(f, opts.ReadSize)
	})
	require.NoError(t, err, "%+v", opts)
	seen := map[string]bool{}
	for _, rel := range got {
		require.False(t, seen[rel], "%s twice", rel)
		seen[rel] = true
	}
	for _, rel := range rels {
		require.True(t, seen[rel], "%s was not delivered", rel)
	}
	require.Len(t, got, len(rels))
	require.EqualValues(t, len(rels), report.Processed)
	requireBalanced(t, report)
}

func TestInvariant1ManyFilesAreExact(t *testing.T) {
	watchdog(t)
	root, rels := plantMany(t, 4, 700)
	for _, workers := range []int{1, 2, 8} {
		for _, opts := range []fileproc.Options{
			{}, {DisableURing: true}, {ReadSize: 1}, {ReadSize: 511}, {ReadSize: 512}, {ReadSize: 513}, {ReadSize: 4096},
			{ReadSize: 16<<10 - 1}, {ReadSize: 16 << 10}, {ReadSize: 1 << 20}, {Stat: true}, {MaxFileSize: -1}, {MaxFileSize: 1 << 20},
			{Select: func(*fileproc.File) bool { return true }},
		} {
			opts.Workers = workers
			leavesNoRing(t, func() { requireExact(t, root, opts, rels) })
		}
	}
}

// Where a ring can be used it is, or the other tests of this file prove nothing.
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

func TestInvariant1ManyFilesAreExactWithAColdCache(t *testing.T) {
	watchdog(t)
	root, rels := plantMany(t, 3, 1000)
	for _, opts := range []fileproc.Options{{}, {Workers: 1}, {Workers: 8}, {Workers: 2, ReadSize: 4096}} {
		unix.Sync()
		if err := dropCaches(); err != nil {
			t.Logf("left out: cold caches: %v", err)
			return
		}
		leavesNoRing(t, func() { requireExact(t, root, opts, rels) })
	}
}

// cacheFirstPage leaves of a file only the first page in the cache, if the file system is willing.
func cacheFirstPage(t *testing.T, path string) *os.File {
	f, err := os.Open(path)
	require.NoError(t, err)
	fd := int(f.Fd())
	require.NoError(t, unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED))
	require.NoError(t, unix.Fadvise(fd, 0, 0, unix.FADV_RANDOM)) // reads nothing ahead
	_, err = unix.Pread(fd, make([]byte, 1), 0)
	require.NoError(t, err)
	return f
}

// A read of what the cache has falls short where the cache ends.
func TestInvariant2HalfCachedFilesAreWhole(t *testing.T) {
	watchdog(t)
	root, rels := plantMany(t, 1, 1600)
	dir, err := os.Open(root)
	require.NoError(t, err)
	defer dir.Close()
	for _, opts := range []fileproc.Options{{Workers: 1}, {Workers: 3}, {Workers: 1, ReadSize: 9000}, {DisableURing: true}} {
		require.NoError(t, unix.Syncfs(int(dir.Fd())))
		for _, rel := range rels {
			if len(testtree.BytesOf(rel)) > 4096 {
				cacheFirstPage(t, filepath.Join(root, rel)).Close()
			}
		}
		requireExact(t, root, opts, rels)
	}
	for _, rel := range rels {
		if size := len(testtree.BytesOf(rel)); size > 4096 {
			f := cacheFirstPage(t, filepath.Join(root, rel))
			defer f.Close()
			// This very read makes the kernel fetch the rest, so the files of the test are not asked.
			if n, err := unix.Preadv2(int(f.Fd()), [][]byte{make([]byte, size)}, 0, unix.RWF_NOWAIT); err != nil || n == size {
				t.Logf("left out: this file system does not keep a part of a file in the cache: %d bytes of %d, %v", n, size, err)
			}
			return
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
		load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		ge     = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		ret    = unix.BPF_RET | unix.BPF_K
		refuse = 0x00050000 // SECCOMP_RET_ERRNO
		allow  = 0x7fff0000 // SECCOMP_RET_ALLOW
	)
	// Offsets into struct seccomp_data; of the arguments, which have 64 bits, the lower half.
	lower := func(arg int) uint32 {
		if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
			return uint32(16 + 8*arg + 4)
		}
		return uint32(16 + 8*arg)
	}
	filter := []unix.SockFilter{{Code: load, K: 0}, {Code: equal, K: uint32(r.call), Jf: 1}, {Code: ret, K: refuse | uint32(r.errno)}, {Code: ret, K: allow}}
	switch {
	case r.below > 0:
		filter = []unix.SockFilter{
			{Code: load, K: 0}, {Code: equal, K: uint32(r.call), Jf: 3},
			{Code: load, K: lower(r.arg)}, {Code: ge, K: r.below, Jt: 1},
			{Code: ret, K: refuse | uint32(r.errno)}, {Code: ret, K: allow},
		}
	case r.onFile:
		filter = []unix.SockFilter{
			{Code: load, K: 0}, {Code: equal, K: uint32(r.call), Jf: 3},
			{Code: load, K: lower(4)}, {Code: equal, K: 1<<32 - 1, Jt: 1},
			{Code: ret, K: refuse | uint32(r.errno)}, {Code: ret, K: allow},
		}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	const setModeFilter, allThreads = 1, 1
	failed, _, errno := unix.Syscall(unix.SYS_SECCOMP, setModeFilter, allThreads, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return errno
	}
	if failed != 0 {
		return fmt.Errorf("thread %d has a filter of its own", failed)
	}
	return nil
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
	tasks["unreadable"] = unreadableAmongMany
}

func relsOf(t *testing.T, root string) (rels []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			rel, _ := filepath.Rel(root, path)
			rels = append(rels, rel)
		}
		return err
	}))
	return rels
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

// noteLeftOut repeats what a process of its own said it left out.
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
				t.Log("left out: not known here how mmap takes its arguments")
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

// unreadableAmongMany runs as somebody who may not read each third file: its open fails, and with it what a ring has
// linked to that open.
func unreadableAmongMany(t *testing.T, root string) {
	shut := map[string]bool{}
	rels := relsOf(t, root)
	for i, rel := range rels {
		shut[rel] = i%3 == 0
	}
	for _, workers := range []int{1, 2, 8} {
		var report fileproc.Report
		leavesNoRing(t, func() {
			got, err := fileproc.Process(t.Context(), root, fileproc.Options{Workers: workers, Report: &report},
				func(f *fileproc.File) (int, error) {
					if shut[filepath.ToSlash(f.Rel())] {
						return 0, errors.New("opened although it is unreadable")
					}
					return 0, exact(f, 0)
				})
			require.ErrorIs(t, err, fs.ErrPermission)
			require.NotContains(t, err.Error(), "unreadable")
			require.NotContains(t, err.Error(), "wrong")
			require.Len(t, got, len(rels)-(len(rels)+2)/3)
		})
		require.EqualValues(t, (len(rels)+2)/3, report.Failed)
		requireBalanced(t, report)
	}
}

func TestInvariant1UnreadableAmongMany(t *testing.T) {
	root, rels := plantMany(t, 2, 1000)
	require.NoError(t, os.Chmod(filepath.Dir(root), 0o755))
	for i, rel := range rels {
		if i%3 == 0 {
			require.NoError(t, os.Chmod(filepath.Join(root, rel), 0))
		}
	}
	runTask(t, "unreadable", root, asNobody(t))
}

// What takes a file's place just before it is read, while those around it are.
func TestInvariant3ReplacedAmongMany(t *testing.T) {
	for what, replace := range replacements(t) {
		for _, workers := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s/workers=%d", what, workers), func(t *testing.T) {
				watchdog(t)
				root, rels := plantMany(t, 1, 800)
				dir := filepath.Join(root, "d00")
				entries, err := fileproc.ReadDir(dir)
				require.NoError(t, err)
				var (
					mu       sync.Mutex
					next     int // the entry that is called next
					replaced = map[string]bool{}
				)
				var report fileproc.Report
				opts := fileproc.Options{Workers: workers, Report: &report, MaxDepth: 2}
				got, err := fileproc.Process(t.Context(), root, opts, func(f *fileproc.File) (string, error) {
					mu.Lock()
					defer mu.Unlock()
					if next++; next%4 == 0 && next+200 < len(entries) {
						name := entries[next+1+next*7%190].Name()
						path := filepath.Join(dir, name)
						if rel := "d00/" + name; !replaced[rel] && os.Remove(path) == nil {
							replaced[rel] = true
							if err := replace(path); err != nil {
								return "", err
							}
						}
					}
					return filepath.ToSlash(f.Rel()), exact(f, 0)
				})
				require.NotEmpty(t, replaced)
				require.ErrorIs(t, err, fileproc.ErrChanged)
				require.NotContains(t, err.Error(), "wrong")
				require.NotContains(t, err.Error(), "process")
				seen := map[string]bool{}
				for _, rel := range got {
					require.False(t, seen[rel], "%s twice", rel)
					seen[rel] = true
				}
				for _, rel := range rels {
					require.True(t, seen[rel] || replaced[rel], "%s was not delivered", rel)
				}
				require.LessOrEqual(t, report.Failed, int64(len(replaced)))
				requireBalanced(t, report)
			})
		}
	}
}

func TestInvariant1FilesBesideOnesThatChange(t *testing.T) {
	watchdog(t)
	root, rels := plantMany(t, 2, 800)
	require.NoError(t, os.WriteFile(filepath.Join(root, "secret"), []byte("secret"), 0o644))
	var moving []string
	for i := range 600 {
		path := filepath.Join(root, fmt.Sprintf("d%02d/moving%03d", i%2, i))
		require.NoError(t, os.WriteFile(path, []byte("mmm"), 0o644))
		moving = append(moving, path)
	}
	var writers sync.WaitGroup
	stop := make(chan struct{})
	for w := range 2 {
		random := rand.New(rand.NewSource(int64(w)))
		aside := filepath.Join(t.TempDir(), "aside")
		writers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					testtree.Disturb(random, moving[random.Intn(len(moving))], aside)
				}
			}
		})
	}
	defer writers.Wait()
	defer close(stop)
	runs := 150
	if testing.Short() {
		runs = 15
	}
	for i := range runs {
		var report fileproc.Report
		opts := fileproc.Options{Workers: 1 + i%4, Report: &report, ReadSize: []int{0, 0, 700, 4096}[i%4]}
		got, err := fileproc.Process(t.Context(), root, opts, func(f *fileproc.File) (string, error) {
			switch {
			case f.Name() == "secret":
				return "", fileproc.ErrSkip
			case !strings.HasPrefix(f.Name(), "moving"):
				return filepath.ToSlash(f.Rel()), exact(f, opts.ReadSize)
			}
			// A file that is being truncated and extended may read as zeros in between.
			for _, b := range f.Data() {
				if b != 'm' && b != 0 {
					return "", fmt.Errorf("wrong bytes: %q", b)
				}
			}
			return "", fileproc.ErrSkip
		})
		if err != nil {
			require.NotContains(t, err.Error(), "wrong")
		}
		require.Len(t, got, len(rels), "%v", err)
		seen := map[string]bool{}
		for _, rel := range got {
			require.False(t, seen[rel], "%s twice", rel)
			seen[rel] = true
		}
		requireBalanced(t, report)
	}
}

// An early end is one of the ways in which a run ends in the middle, at a call of fn.
type earlyEnd struct {
	name string
	// run ends at the call of fn for which at is true, and checks each file by fn.
	run func(root string, opts fileproc.Options, check func(*fileproc.File) error, at func() bool)
}

var errEnough = errors.New("enough")

func process(ctx context.Context, root string, opts fileproc.Options, fn func(*fileproc.File) error) error {
	_, err := fileproc.Process(ctx, root, opts, func(f *fileproc.File) (struct{}, error) { return struct{}{}, fn(f) })
	return err
}

func earlyEnds() []earlyEnd {
	ends := []earlyEnd{
		{"cancel", func(root string, opts fileproc.Options, check func(*fileproc.File) error, at func() bool) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			process(ctx, root, opts, func(f *fileproc.File) error {
				if at() {
					cancel()
				}
				return check(f)
			})
		}},
		{"cancel from outside", func(root string, opts fileproc.Options, check func(*fileproc.File) error, at func() bool) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			ready := make(chan struct{})
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				<-ready
				cancel()
			}()
			process(ctx, root, opts, func(f *fileproc.File) error {
				if at() {
					close(ready)
				}
				return check(f)
			})
			if ctx.Err() == nil {
				select {
				case <-ready:
				default:
					close(ready)
				}
			}
			<-ended
		}},
		{"panic", func(root string, opts fileproc.Options, check func(*fileproc.File) error, at func() bool) {
			defer func() { _ = recover() }()
			process(context.Background(), root, opts, func(f *fileproc.File) error {
				err := check(f)
				if at() {
					panic("in the middle")
				}
				return err
			})
		}},
		{"Goexit", func(root string, opts fileproc.Options, check func(*fileproc.File) error, at func() bool) {
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				process(context.Background(), root, opts, func(f *fileproc.File) error {
					err := check(f)
					if at() {
						runtime.Goexit()
					}
					return err
				})
			}()
			<-ended
		}},
		{"SkipAll", func(root string, opts fileproc.Options, check func(*fileproc.File) error, at func() bool) {
			process(context.Background(), root, opts, func(f *fileproc.File) error {
				err := check(f)
				if at() {
					return fs.SkipAll
				}
				return err
			})
		}},
		{"OnError", func(root string, opts fileproc.Options, check func(*fileproc.File) error, at func() bool) {
			opts.OnError = func(err error) error { return err }
			process(context.Background(), root, opts, func(f *fileproc.File) error {
				err := check(f)
				if at() {
					return errEnough
				}
				return err
			})
		}},
		{"panic in OnError", func(root string, opts fileproc.Options, check func(*fileproc.File) error, at func() bool) {
			defer func() { _ = recover() }()
			opts.OnError = func(err error) error { panic(err) }
			process(context.Background(), root, opts, func(f *fileproc.File) error {
				err := check(f)
				if at() {
					return errEnough
				}
				return err
			})
		}},
	}
	return append(ends,
		earlyEnd{"a pull that stops", func(root string, opts fileproc.Options, check func(*fileproc.File) error, at func() bool) {
			next, stop := iter.Pull2(fileproc.Stream(context.Background(), root, opts, func(f *fileproc.File) (error, error) { return check(f), nil }))
			defer stop()
			for more := true; more && !at(); {
				_, _, more = next()
			}
		}},
		earlyEnd{"break", func(root string, opts fileproc.Options, check func(*fileproc.File) error, at func() bool) {
			for range fileproc.Stream(context.Background(), root, opts, func(f *fileproc.File) (error, error) { return check(f), nil }) {
				if at() {
					break
				}
			}
		}},
		earlyEnd{"panic in the loop", func(root string, opts fileproc.Options, check func(*fileproc.File) error, at func() bool) {
			defer func() { _ = recover() }()
			for range fileproc.Stream(context.Background(), root, opts, func(f *fileproc.File) (error, error) { return check(f), nil }) {
				if at() {
					panic("in the loop")
				}
			}
		}},
	)
}

// requireClosed requires that nothing keeps the files open, not even a ring that has no descriptor any more.
func requireClosed(t *testing.T, root string, rels []string) {
	t.Helper()
	for _, rel := range rels {
		f, err := os.OpenFile(filepath.Join(root, rel), os.O_WRONLY, 0)
		require.NoError(t, err)
		_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK) // granted while nobody else has it open
		f.Close()
		if err == unix.EINVAL {
			t.Log("left out: no leases on this file system")
			return
		}
		require.NoError(t, err, "%s is still open", rel)
	}
}

// memoryInUse does not count what is only reserved: threads, of which there are now more and now less, do much of that.
func memoryInUse(t *testing.T) (kib int) {
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	_, after, _ := strings.Cut(string(status), "RssAnon:")
	_, err = fmt.Sscan(after, &kib)
	require.NoError(t, err)
	return kib
}

func TestInvariant6NothingIsLeftAfterThousandsOfEarlyEnds(t *testing.T) {
	root, rels := plantMany(t, 2, 600)
	rounds := 250
	if testing.Short() {
		rounds = 20
	}
	for i, end := range earlyEnds() {
		t.Run(end.name, func(t *testing.T) {
			watchdog(t)
			random := rand.New(rand.NewSource(int64(i)))
			var memory int
			for round := range rounds {
				if round == 10 {
					memory = memoryInUse(t)
				}
				var wrong atomic.Pointer[error]
				var calls atomic.Int64
				last := 1 + random.Int63n(int64(len(rels)))
				var report fileproc.Report
				opts := fileproc.Options{Workers: 1 + random.Intn(3), ReadSize: []int{0, 0, 1000}[round%3], Report: &report}
				leavesNoRing(t, func() {
					end.run(root, opts, func(f *fileproc.File) error {
						if err := exact(f, opts.ReadSize); err != nil {
							err = fmt.Errorf("%s: %w", f.Rel(), err)
							wrong.Store(&err)
						}
						return nil
					}, func() bool { return calls.Add(1) == last })
				})
				if err := wrong.Load(); err != nil {
					t.Fatal(*err)
				}
				requireBalanced(t, report)
				if round%50 == 0 {
					requireClosed(t, root, rels)
				}
			}
			// A ring's buffers are a mapping without a name, of which nothing else would tell. They are 1 MiB, and most of
			// the 250 rounds fill a part of one or more.
			if raceDetector {
				t.Log("left out: the race detector's own memory is in use too")
				return
			}
			require.Less(t, memoryInUse(t)-memory, 32<<10, "KiB more")
		})
	}
}
