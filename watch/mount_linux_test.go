package watch

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/fsinfo"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestMounts: the files of a mount replace those of the directory below it, until it is unmounted.
func TestMounts(t *testing.T) {
	root := t.TempDir()
	testtree.Make(t, root, "a=1", "d/b=2")
	f := follow(t, root, filepath.Join(t.TempDir(), "c"), fileproc.Options{}, nil)
	f.take()
	if err := unix.Mount("none", f.path("d"), "tmpfs", 0, ""); err != nil {
		t.Skip("nothing can be mounted here: ", err)
	}
	defer unix.Unmount(f.path("d"), unix.MNT_DETACH)
	f.write("d/e/c", "3")
	require.Equal(t, []string{"d/b deleted", "d/e/c=3 new"}, f.take())
	f.write("d/e/c", "three")
	require.Equal(t, []string{"d/e/c=three changed"}, f.take())
	require.NoError(t, unix.Unmount(f.path("d"), unix.MNT_DETACH))
	require.Equal(t, []string{"d/b=2 new", "d/e/c deleted"}, f.take())
}

// TestDirectoryHasTwoPaths: a bind mount may show a directory, or root itself, at a second path. It does not keep the loop busy, and
// each change there comes by both paths.
func TestDirectoryHasTwoPaths(t *testing.T) {
	root := t.TempDir()
	testtree.Make(t, root, "a=1", "d/b=2", "self/")
	if err := unix.Mount(root, filepath.Join(root, "self"), "", unix.MS_BIND, ""); err != nil {
		t.Skip("nothing can be mounted here: ", err)
	}
	defer unix.Unmount(filepath.Join(root, "self"), unix.MNT_DETACH)
	var dirs atomic.Int64
	count := func(fileproc.Entry) bool { dirs.Add(1); return true }
	f := follow(t, root, filepath.Join(t.TempDir(), "c"), fileproc.Options{SelectDir: count}, nil)
	require.Equal(t, []string{"a=1 new", "d/b=2 new", "self/a=1 new", "self/d/b=2 new"}, f.take())
	time.Sleep(3 * fsinfo.Settled)
	f.sync()
	before := dirs.Load()
	for range 10 { // each begins the burst that is due, if any
		f.sync()
	}
	require.Equal(t, before, dirs.Load())
	f.write("self/d/b", "two")
	require.Equal(t, []string{"d/b=two changed", "self/d/b=two changed"}, f.take())
}

// Histories in which root may mount.
func init() {
	changes["bind mount"] = func(h *history, _, _, d, e string) error {
		if h.IntN(4) > 0 {
			return nil
		}
		return unix.Mount(d, e, "", unix.MS_BIND, "")
	}
	changes["unmount"] = func(h *history, _, _, _, _ string) error { return unmountBelow(h.dir) }
	changeNames = slices.Sorted(maps.Keys(changes))
	releaseMounts = func(dir string) { _ = unmountBelow(dir) }
}

// unmountBelow unmounts what is mounted below dir, wherever that has been moved.
func unmountBelow(dir string) error {
	text, err := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], dir) {
			at, _ := strconv.Unquote(`"` + fields[4] + `"`) // with octal escapes
			err = errors.Join(err, unix.Unmount(at, unix.MNT_DETACH))
		}
	}
	return err
}

// TestFewDescriptors: all files come although the limit of descriptors is nearly reached.
func TestFewDescriptors(t *testing.T) {
	var was unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	root := t.TempDir()
	testtree.Make(t, root, testtree.Numbered("d/e/f/g/h/i", 500)...)
	few := was
	few.Cur = 40
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &few))
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &was)
	f := follow(t, root, filepath.Join(t.TempDir(), "c"), fileproc.Options{}, nil)
	require.Len(t, f.take(), 500)
	f.write("d/e/f/g/h/i000001.md", "changed")
	require.Equal(t, []string{"d/e/f/g/h/i000001.md=changed changed"}, f.take())
}

// TestHistoriesWithFewWatches is TestHistories for a user who may have 12 watches: for root, the directories above it, and a few others.
func TestHistoriesWithFewWatches(t *testing.T) {
	limit := func(n int, args ...string) ([]byte, error) {
		args = append([]string{"-c", fmt.Sprintf(`echo %d >/proc/sys/user/max_inotify_watches && exec "$0" "$@"`, n)}, args...)
		cmd := exec.Command("sh", args...)
		cmd.Env = append(os.Environ(), "FILEPROC_FEW_WATCHES=1")
		uid, gid := []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}, []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: uid, GidMappings: gid}
		return cmd.CombinedOutput()
	}
	if out, err := limit(1, "true"); err != nil {
		t.Skipf("the limit of watches cannot be set in a user namespace here: %v %s", err, out)
	}
	exe, err := os.Executable()
	require.NoError(t, err)
	out, err := limit(12, exe, "-test.run=^TestHistories$", "-test.v")
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), ErrLimit.Error(), "this tests nothing if the limit is never reached")
}

// TestNothingIsLeft: the end of a loop leaves no goroutine and no descriptor.
func TestNothingIsLeft(t *testing.T) {
	open := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(entries)
	}
	root := t.TempDir()
	testtree.Make(t, root, "a=1", "d/b=2")
	goroutines, descriptors := runtime.NumGoroutine(), open()
	for range 20 {
		f := follow(t, root, filepath.Join(t.TempDir(), "c"), fileproc.Options{}, nil)
		f.stop()
	}
	for end := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > goroutines || open() > descriptors; time.Sleep(10 * time.Millisecond) {
		require.True(t, time.Now().Before(end), "%d goroutines and %d descriptors, %d and %d before", runtime.NumGoroutine(), open(), goroutines, descriptors)
	}
	links, err := filepath.Glob("/proc/self/fd/*")
	require.NoError(t, err)
	for _, l := range links {
		to, _ := os.Readlink(l)
		require.False(t, strings.Contains(to, "inotify"), to)
	}
}
