//go:build linux

package fileproc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/descriptors"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

const firstWaitVariable = "FILEPROC_TEST_FIRST_WAIT"

// Package testing sets timers and opens files, so the process must end before it begins.
func init() {
	if root := os.Getenv(firstWaitVariable); root != "" {
		if err := waitFirst(root); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// waitFirst opens a file while there is no descriptor, for a moment.
func waitFirst(root string) error {
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 64, Max: 64}); err != nil {
		return err
	}
	_, err := fileproc.Process(context.Background(), root, fileproc.Options{Workers: 1}, func(f *fileproc.File) (struct{}, error) {
		var last int
		for {
			fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				break
			}
			last = fd
		}
		go func() {
			_ = unix.Nanosleep(&unix.Timespec{Nsec: 50e6}, nil) // no timer of Go's
			unix.Close(last)
		}()
		handle, err := f.Open()
		if err == nil {
			err = handle.Close()
		}
		return struct{}{}, err
	})
	return err
}

// Go's runtime ends a process that has no descriptors for its poller at the first timer. Waiting takes a timer.
func TestInvariant4WaitOfAProcessWithoutTimers(t *testing.T) {
	root := t.TempDir()
	plant(t, root, "f")
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), firstWaitVariable+"="+root)
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Skipf("a test that is built for another machine, and emulated, cannot start itself again: %v", err)
	}
	require.NoError(t, err, "%.300s", out)
}

func underALimit(limit uint64) func(t *testing.T, root string) {
	return func(t *testing.T, root string) {
		limitDescriptors(t, limit)
		for _, tree := range []string{"wide", "comb", "bush"} {
			tree := filepath.Join(root, tree)
			want := countFiles(t, tree)
			for _, workers := range []int{1, 4, 64} {
				leavesNothing(t, func() {
					require.NoError(t, complete(t.Context(), tree, fileproc.Options{Workers: workers}, want), "%s, %d workers", tree, workers)
				})
			}
			requireListed(t, tree, want)
			for _, read := range []func(*fileproc.File) ([]byte, error){readOpened, readOn} {
				require.NoError(t, openedInFn(t.Context(), tree, want, read))
			}
		}
		printPeak(t)
	}
}

func requireListed(t *testing.T, root string, want int64) {
	t.Helper()
	listed := int64(0)
	for e, err := range fileproc.Walk(t.Context(), root, fileproc.Options{Workers: 16}) {
		require.NoError(t, err)
		if !e.IsDir() {
			listed++
		}
	}
	require.Equal(t, want, listed, "Walk")
}

// openedInFn holds one more descriptor in each running call of fn.
func openedInFn(ctx context.Context, root string, want int64, read func(*fileproc.File) ([]byte, error)) error {
	opts := fileproc.Options{Workers: 64, ReadSize: fileproc.NoRead}
	files, err := fileproc.Process(ctx, root, opts, func(f *fileproc.File) (struct{}, error) {
		data, err := read(f)
		if err == nil && string(data) != filepath.ToSlash(f.Rel()) {
			err = fmt.Errorf("it holds %q", data)
		}
		return struct{}{}, err
	})
	if err == nil && int64(len(files)) != want {
		err = fmt.Errorf("%d files of %d", len(files), want)
	}
	return err
}

func readOpened(f *fileproc.File) ([]byte, error) {
	handle, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer handle.Close()
	for range 3 {
		runtime.Gosched() // others run, and need descriptors too
	}
	return io.ReadAll(handle)
}

func readOn(f *fileproc.File) ([]byte, error) {
	r, data := f.Reader(), make([]byte, 1)
	n, err := io.ReadFull(r, data)
	for range 3 {
		runtime.Gosched()
	}
	if err != nil {
		return data[:n], err
	}
	rest, err := io.ReadAll(r)
	return append(data, rest...), err
}

// withFewLeft runs while others in this process hold all descriptors but six, of which roots must not take all.
func withFewLeft(t *testing.T, root string) {
	// The runtime opens its poller at the first use and ends the process if it cannot.
	r, w, err := os.Pipe()
	require.NoError(t, err)
	r.Close()
	w.Close()
	trees := map[string]int64{}
	for _, tree := range []string{"wide", "comb", "bush"} {
		tree := filepath.Join(root, tree)
		trees[tree] = countFiles(t, tree)
	}
	limitDescriptors(t, 256)
	held := allDescriptors(t)
	free := 6
	if fileproc.Backend() == "generic" {
		free = 9 // an os.Root takes more than one to open, and a second one to list
	}
	for _, fd := range held[:free] { // low numbers, as if most descriptors were free
		unix.Close(fd)
	}
	for tree, want := range trees {
		require.NoError(t, complete(t.Context(), tree, fileproc.Options{Workers: 16}, want), "one run over %s", tree)
		var runs errgroup.Group
		for range 8 {
			runs.Go(func() error { return complete(t.Context(), tree, fileproc.Options{Workers: 16}, want) })
		}
		require.NoError(t, runs.Wait(), "eight runs over %s", tree)
	}
}

// manyRunsAtOnce begins more runs than there are descriptors. If their roots took all, none could go on.
func manyRunsAtOnce(limit uint64, n int) func(t *testing.T, root string) {
	return func(t *testing.T, root string) {
		limitDescriptors(t, limit)
		tree := filepath.Join(root, "bush")
		want := countFiles(t, tree)
		start := time.Now()
		var runs errgroup.Group
		for range n {
			runs.Go(func() error { return complete(t.Context(), tree, fileproc.Options{Workers: 2}, want) })
		}
		require.NoError(t, runs.Wait(), "after %v", time.Since(start))
		printPeak(t)
	}
}

// beginWithNoneLeft begins runs while one that goes on has the last descriptors: those that are cancelled return, and the other
// one waits until there are descriptors again.
func beginWithNoneLeft(t *testing.T, root string) {
	limitDescriptors(t, 64)
	tree := filepath.Join(root, "bush")
	want := countFiles(t, tree)
	waiting := make(chan error, 1)
	var held []int
	err := fileproc.ForEach(t.Context(), tree, fileproc.Options{Workers: 1}, func(*fileproc.File) error {
		if held != nil {
			return nil
		}
		held = allDescriptors(t)
		go func() { waiting <- complete(t.Context(), tree, fileproc.Options{Workers: 2}, want) }()
		for range 3 { // the first may begin to wait before the one that goes on waiting
			ctx, cancel := context.WithCancel(t.Context())
			cancelled := make(chan error, 1)
			go func() { cancelled <- complete(ctx, tree, fileproc.Options{Workers: 2}, want) }()
			time.Sleep(10 * time.Millisecond)
			cancel()
			require.ErrorIs(t, <-cancelled, context.Canceled)
		}
		require.Empty(t, waiting, "a run has ended")
		for _, fd := range held {
			unix.Close(fd)
		}
		return nil
	})
	require.NoError(t, err)
	require.NoError(t, <-waiting)
}

// nestedRuns begins a run in the callback of another, and a third in the callback of that. What the first leaves to all is enough
// for both: neither waits for a run that waits for it.
func nestedRuns(t *testing.T, root string) {
	plant(t, root, "one/a/f", "flat/f", "deep/f", "deep/a/f", "deep/a/b/f", "deep/a/b/c/f", "deep/d/f")
	flat, list := filepath.Join(root, "flat"), fileproc.Options{ReadSize: fileproc.NoRead}
	limitDescriptors(t, 64)
	free := 3 // and what the first run gives up: its directory a
	if fileproc.Backend() == "generic" {
		free = 6
	}
	for what, run := range map[string]func(fn func() error) error{
		"ForEach": func(fn func() error) error {
			return fileproc.ForEach(t.Context(), flat, list, func(*fileproc.File) error { return fn() })
		},
		"Stream": func(fn func() error) (err error) {
			for _, e := range fileproc.Stream(t.Context(), flat, list, func(*fileproc.File) (int, error) { return 0, fn() }) {
				err = errors.Join(err, e)
			}
			return err
		},
		"Walk": func(fn func() error) (err error) {
			for _, e := range fileproc.Walk(t.Context(), flat, list) {
				err = errors.Join(err, e, fn())
			}
			return err
		},
	} {
		start, innermost := time.Now(), 0
		inDeep := func() error {
			return fileproc.ForEach(t.Context(), filepath.Join(root, "deep"), fileproc.Options{Workers: 1}, func(*fileproc.File) error { innermost++; return nil })
		}
		require.NoError(t, fileproc.ForEach(t.Context(), filepath.Join(root, "one"), list, func(*fileproc.File) error {
			held := allDescriptors(t)
			for _, fd := range held[:free] {
				unix.Close(fd)
			}
			defer func() {
				for _, fd := range held[free:] {
					unix.Close(fd)
				}
			}()
			return run(inDeep)
		}), what)
		require.Equal(t, 5, innermost, what)
		require.Less(t, time.Since(start), 20*time.Second, "%s: a run has waited in vain", what)
	}
}

// recursiveRuns lets every callback begin a run, and those of that another, with few descriptors: each run gives up directories
// that one in its callbacks needs, and those that begin beside each other leave enough for those in their callbacks.
func recursiveRuns(t *testing.T, root string) {
	root = filepath.Join(root, "recursion")
	plant(t, root, "f", "a/f", "a/b/f", "a/b/c/f", "a/b/c/g", "d/e/f")
	free := 12
	if fileproc.Backend() == "generic" {
		free = 24
	}
	limitDescriptors(t, uint64(openDescriptors()+free))
	for _, workers := range []int{1, 2, 8} {
		opts, start := fileproc.Options{Workers: workers}, time.Now()
		var recur func(levels int) error
		recur = func(levels int) error {
			return fileproc.ForEach(t.Context(), root, opts, func(*fileproc.File) error {
				if levels == 0 {
					return complete(t.Context(), root, opts, 6)
				}
				return recur(levels - 1)
			})
		}
		require.NoError(t, recur(1))
		require.Less(t, time.Since(start), 20*time.Second, "%d workers: a run has waited in vain", workers)
	}
}

// allDescriptors takes all that are left.
func allDescriptors(t *testing.T) (held []int) {
	for {
		fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			require.ErrorIs(t, err, unix.EMFILE)
			return held
		}
		held = append(held, fd)
	}
}

// descriptorTrees writes wide (3,000 directories), comb (100 levels, a side directory at each) and bush (every
// directory of six levels has three children).
func descriptorTrees(t *testing.T) string {
	root := memoryDir(t)
	dirs, levels, bush := 3000, 100, 6
	if testing.Short() {
		dirs, levels, bush = 300, 60, 4
	}
	for i := range dirs {
		plant(t, filepath.Join(root, "wide"), fmt.Sprintf("d%04d/f", i))
	}
	path := ""
	for i := range levels {
		plant(t, filepath.Join(root, "comb"), path+"f", path+"g", path+"a/f", path+"b/f")
		path += string("ab"[i%2]) + "/"
	}
	var grow func(path string, levels int)
	grow = func(path string, levels int) {
		plant(t, filepath.Join(root, "bush"), path+"f")
		if levels > 0 {
			for _, child := range "abc" {
				grow(path+string(child)+"/", levels-1)
			}
		}
	}
	grow("", bush)
	return root
}

func TestInvariant4FewDescriptorsLoseNothing(t *testing.T) {
	root := descriptorTrees(t)
	all := []string{"limit", "16 descriptors", "24 descriptors", "hogged", "begin", "crowd", "nested", "recursion"}
	if os.Getenv(limitsVariable) != "" {
		all = append(all, "1,000 runs", "1,000 runs, 1,024 descriptors")
	}
	for _, task := range all {
		t.Run(task, func(t *testing.T) {
			if task == "begin" {
				testtree.NotInColdMode(t, "the run that goes on closes what it has read ahead")
			}
			out, _ := runTask(t, task, root)
			if peak := peakLine.FindString(out); peak != "" {
				t.Logf("%s: %s KiB", task, peak)
			}
		})
		if task == "limit" {
			t.Run("one processor", func(t *testing.T) {
				runTask(t, task, root, func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "GOMAXPROCS=1") })
			})
		}
		if task == "begin" {
			continue
		}
		t.Run(task+", cold", func(t *testing.T) {
			runTask(t, task, root, func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "FILEPROC_TEST_COLD=1") })
		})
	}
}

// A run that begins beside others waits for a reserve of descriptors, which they may never give up: in the end it begins without.
func TestRootIsOpenedWithoutAReserve(t *testing.T) {
	outer, inner := t.TempDir(), t.TempDir()
	plant(t, outer, "f")
	plant(t, inner, "f")
	left := 2 // for root and a file
	if fileproc.Backend() == "generic" {
		left = 4
	}
	testtree.Set(t, &descriptors.Limit, func() uint64 { return 256 }) // else little is said to be in use
	synctest.Test(t, func(t *testing.T) {
		err := fileproc.ForEach(t.Context(), outer, fileproc.Options{Workers: 1}, func(*fileproc.File) error {
			start, n := time.Now(), 0
			err := withDescriptors(t, left, func() error {
				return fileproc.ForEach(t.Context(), inner, fileproc.Options{Workers: 1}, func(*fileproc.File) error { n++; return nil })
			})
			require.Equal(t, 1, n)
			require.Equal(t, 30*time.Second, time.Since(start).Truncate(time.Second))
			return err
		})
		require.NoError(t, err)
	})
}

// withDescriptors calls do while this process has no more than left free descriptors.
func withDescriptors(t *testing.T, left int, do func() error) error {
	t.Helper()
	var was unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	few := was
	few.Cur = min(256, was.Cur)
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &few))
	var held []int
	defer func() {
		for _, fd := range held {
			unix.Close(fd)
		}
		require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &was))
	}()
	for {
		fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			break
		}
		held = append(held, fd)
	}
	for range left {
		unix.Close(held[0])
		held = held[1:]
	}
	return do()
}
