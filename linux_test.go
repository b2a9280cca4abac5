//go:build linux

package fileproc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func init() {
	openDescriptors = func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			return -1
		}
		return len(entries)
	}
}

// read returns the content of every file that Process delivers, by its path relative to root.
func read(ctx context.Context, root string, opts fileproc.Options) (map[string]string, error) {
	type file struct{ rel, data string }
	files, err := fileproc.Process(ctx, root, opts, func(f *fileproc.File) (file, error) {
		return file{f.Rel(), string(f.Data())}, nil
	})
	got := map[string]string{}
	for _, f := range files {
		if _, twice := got[f.rel]; twice {
			return got, fmt.Errorf("%s delivered twice", f.rel)
		}
		got[f.rel] = f.data
	}
	return got, err
}

// memoryDir is a directory for thousands of files: in memory where there is a place for that.
func memoryDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "fileproc")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

var clockSpeed = regexp.MustCompile(`(?m)^(cpu MHz|clock)\s*:.*$`)

func TestInvariant2KernelFilesAreWhole(t *testing.T) {
	watchdog(t)
	for root, suffixes := range map[string][]string{
		"/proc":                   {"kallsyms", "cpuinfo", "filesystems", "version", "devices"},
		"/proc/self":              {"limits", "comm", "mountinfo"},
		"/sys/kernel":             nil,
		"/sys/class/net/lo":       nil,
		"/sys/devices/system/cpu": nil,
	} {
		t.Run(strings.ReplaceAll(root[1:], "/", "_"), func(t *testing.T) {
			entries, err := os.ReadDir(root)
			if err != nil {
				t.Logf("left out: %v", err)
				return
			}
			ours := func(name string) bool {
				for _, s := range suffixes {
					if strings.HasSuffix(name, s) {
						return true
					}
				}
				return suffixes == nil
			}
			plain := func() map[string]string {
				content := map[string]string{}
				for _, e := range entries {
					if e.Type().IsRegular() && ours(e.Name()) {
						if data, err := os.ReadFile(filepath.Join(root, e.Name())); err == nil {
							content[e.Name()] = string(data)
						}
					}
				}
				return content
			}
			opts := fileproc.Options{MaxDepth: 1, Suffixes: suffixes}
			// The kernel may change what a file says at any moment; it must agree with one of the looks before and after.
			var wrong []string
			for range 5 {
				wrong = nil
				before := plain()
				got, _ := read(t.Context(), root, opts)
				after := plain()
				for name := range before {
					g, delivered := got[name]
					g = clockSpeed.ReplaceAllString(g, "")
					if !delivered || g != clockSpeed.ReplaceAllString(before[name], "") && g != clockSpeed.ReplaceAllString(after[name], "") {
						wrong = append(wrong, fmt.Sprintf("%s: %d bytes, os.ReadFile %d", name, len(g), len(before[name])))
					}
				}
				require.NotEmpty(t, before)
				if wrong == nil {
					return
				}
			}
			require.Empty(t, wrong)
		})
	}
}

// A read of /proc/kmsg waits for the kernel's next message. It takes from what the kernel has kept for it, so one is enough.
func TestInvariant8ReadThatDoesNotComeBack(t *testing.T) {
	if _, err := os.Stat("/proc/kmsg"); err != nil {
		t.Skip("there is no /proc/kmsg: ", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // some seconds are enough
	defer cancel()
	_, err := fileproc.Process(ctx, "/proc", fileproc.Options{MaxDepth: 1, Suffixes: []string{"kmsg"}}, func(f *fileproc.File) (int, error) { return len(f.Data()), nil })
	require.NoError(t, ctx.Err())
	if errors.Is(err, fs.ErrPermission) { // what every user but root gets, and root in most containers
		return
	}
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	var p *fs.PathError
	require.ErrorAs(t, err, &p)
	require.Equal(t, "/proc/kmsg", p.Path)
}

func TestInvariant2SizesAroundEveryBlock(t *testing.T) {
	watchdog(t)
	parents := map[string]string{"temporary directory": t.TempDir(), "tmpfs": memoryDir(t)}
	sizes := []int{0, 1, 400, 3 << 20, 1<<20 + 12_345}
	for _, block := range []int{512, 4096, 8192, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 1 << 20} {
		sizes = append(sizes, block-1, block, block+1)
	}
	random := rand.New(rand.NewSource(2))
	want := map[string]string{}
	for _, size := range sizes {
		data := make([]byte, size)
		random.Read(data)
		want[fmt.Sprintf("dense%d", size)] = string(data)
	}
	want["sparse"] = strings.Repeat("\x00", 2<<20) + "middle" + strings.Repeat("\x00", 1<<20)
	for name, dir := range parents {
		for file, content := range want {
			path := filepath.Join(dir, file)
			if file == "sparse" {
				f, err := os.Create(path)
				require.NoError(t, err)
				_, err = f.WriteAt([]byte("middle"), 2<<20)
				require.NoError(t, err)
				require.NoError(t, f.Truncate(int64(len(content))))
				require.NoError(t, f.Close())
			} else {
				require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
			}
		}
		for _, limit := range []int{0, 1, 400, 512, 4095, 4096, 4097, 65536, 1 << 20} {
			t.Run(fmt.Sprintf("%s/ReadSize=%d", name, limit), func(t *testing.T) {
				opts := fileproc.Options{ReadSize: limit, Workers: 2}
				files, err := fileproc.Process(t.Context(), dir, opts, func(f *fileproc.File) (string, error) {
					full := want[f.Name()]
					part := full
					if limit > 0 {
						part = full[:min(limit, len(full))]
					}
					if string(f.Data()) != part {
						return "", fmt.Errorf("got %d bytes that are not the first %d", len(f.Data()), len(part))
					}
					if f.Truncated() != (len(part) < len(full)) {
						return "", fmt.Errorf("Truncated is %v with %d of %d bytes", f.Truncated(), len(part), len(full))
					}
					return f.Name(), nil
				})
				require.NoError(t, err)
				require.Len(t, files, len(want))
			})
		}
	}
}

// replacements are what can stand in a file's place by the time it is opened. None of them may be read.
func replacements(t *testing.T) map[string]func(path string) error {
	outside := filepath.Join(t.TempDir(), "outside")
	require.NoError(t, os.WriteFile(outside, []byte("secret"), 0o644))
	written := filepath.Join(filepath.Dir(outside), "fifo")
	require.NoError(t, unix.Mkfifo(written, 0o644))
	writer, err := unix.Open(written, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { unix.Close(writer) })
	_, err = unix.Write(writer, []byte("secret"))
	require.NoError(t, err)
	devices := map[string]func(path string) error{}
	for name, number := range map[string]uint64{
		"zero": unix.Mkdev(1, 5), "null": unix.Mkdev(1, 3), "random": unix.Mkdev(1, 9), "kernel log": unix.Mkdev(1, 11),
	} {
		node := func(path string) error { return unix.Mknod(path, unix.S_IFCHR|0o666, int(number)) }
		probe := filepath.Join(t.TempDir(), "probe")
		err := node(probe)
		if err == nil {
			var f *os.File
			if f, err = os.OpenFile(probe, os.O_RDONLY|unix.O_NONBLOCK, 0); err == nil {
				f.Close()
			}
		}
		if err != nil {
			t.Logf("%s device left out: %v", name, err)
			continue
		}
		devices[name+" device"] = node
	}
	all := map[string]func(path string) error{
		"nothing":       func(string) error { return nil },
		"symlink":       func(path string) error { return os.Symlink(outside, path) },
		"neighbour":     func(path string) error { return os.Symlink("a", path) },
		"dangling link": func(path string) error { return os.Symlink("nowhere", path) },
		"link to self":  func(path string) error { return os.Symlink(path, path) },
		"directory": func(path string) error {
			return errors.Join(os.Mkdir(path, 0o755), os.WriteFile(filepath.Join(path, "inner"), []byte("secret"), 0o644))
		},
		"fifo":               func(path string) error { return unix.Mkfifo(path, 0o644) },
		"socket":             func(path string) error { return unix.Mknod(path, unix.S_IFSOCK|0o644, 0) },
		"fifo with a writer": func(path string) error { return os.Link(written, path) },
	}
	for name, node := range devices {
		all[name] = node
	}
	return all
}

func TestInvariant3FileReplacedBetweenListingAndOpening(t *testing.T) {
	variants := map[string]struct {
		opts  fileproc.Options
		stats bool
	}{
		"whole":                    {},
		"whole after a Stat":       {stats: true},
		"whole with Stat":          {opts: fileproc.Options{Stat: true}},
		"prefix":                   {opts: fileproc.Options{ReadSize: 4096}},
		"prefix after a Stat":      {opts: fileproc.Options{ReadSize: 4096}, stats: true},
		"prefix of three bytes":    {opts: fileproc.Options{ReadSize: 3}},
		"prefix of the whole size": {opts: fileproc.Options{ReadSize: len("secret")}},
		"Stat only":                {opts: fileproc.Options{ReadSize: fileproc.NoRead, Stat: true}},
	}
	for what, replace := range replacements(t) {
		for name, v := range variants {
			t.Run(what+"/"+name, func(t *testing.T) {
				watchdog(t)
				root := t.TempDir()
				for _, name := range []string{"a", "victim", "z"} {
					require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte("own"), 0o644))
				}
				var report fileproc.Report
				opts := v.opts
				opts.Report = &report
				opts.Select = func(f *fileproc.File) bool {
					if f.Name() == "victim" {
						if v.stats {
							if _, err := f.Stat(); err != nil {
								t.Errorf("Stat in Select: %v", err)
							}
						}
						if err := errors.Join(os.Remove(f.Path()), replace(f.Path())); err != nil {
							t.Error(err)
						}
					}
					return true
				}
				var names []string
				var err error
				leavesNothing(t, func() {
					names, err = fileproc.Process(t.Context(), root, opts, func(f *fileproc.File) (string, error) {
						if data := f.Data(); !strings.HasPrefix("own", string(data)) {
							t.Errorf("%s delivered as %q", f.Name(), data[:min(len(data), 20)])
						}
						return f.Name(), nil
					})
				})
				require.ErrorIs(t, err, fileproc.ErrChanged)
				require.ErrorContains(t, err, filepath.Join(root, "victim"))
				require.ElementsMatch(t, []string{"a", "z"}, names)
				require.EqualValues(t, 1, report.Failed)
				requireBalanced(t, report)
			})
		}
	}
}

func TestInvariant3OpenOfAReplacedFile(t *testing.T) {
	for what, replace := range replacements(t) {
		t.Run(what, func(t *testing.T) {
			watchdog(t)
			root := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(root, "victim"), []byte("own"), 0o644))
			leavesNothing(t, func() {
				_, err := fileproc.Process(t.Context(), root, fileproc.Options{ReadSize: fileproc.NoRead},
					func(f *fileproc.File) (int, error) {
						if err := errors.Join(os.Remove(f.Path()), replace(f.Path())); err != nil {
							return 0, err
						}
						handle, err := f.Open()
						if err == nil {
							handle.Close()
							return 0, errors.New("Open gave a handle")
						}
						if !errors.Is(err, fileproc.ErrChanged) {
							return 0, fmt.Errorf("not ErrChanged: %w", err)
						}
						return 0, nil
					})
				require.NoError(t, err)
			})
		})
	}
}

// A link in a file's place is not followed, also when it leads to the very file that was listed. Another file, or another
// directory, in the place of what was listed is delivered.
func TestInvariant3RenamedBetweenListingAndOpening(t *testing.T) {
	root := t.TempDir()
	plant(t, root, "a", "victim", "d/victim")
	aside := t.TempDir()
	plant(t, aside, "new", "d/new")
	time.Sleep(20 * time.Millisecond) // some kernels keep a time by ticks
	run := func(change func() error) (map[string]string, error) {
		t.Helper()
		var once sync.Once
		return read(t.Context(), root, fileproc.Options{Workers: 1, Select: func(*fileproc.File) bool {
			once.Do(func() { require.NoError(t, change()) }) // before anything is opened
			return true
		}})
	}
	in := func(name string) string { return filepath.Join(root, name) }

	got, err := run(func() error {
		return errors.Join(os.Rename(in("victim"), filepath.Join(aside, "victim")),
			os.Rename(filepath.Join(aside, "new"), in("victim")),
			os.Rename(in("d"), filepath.Join(aside, "was")),
			os.Rename(filepath.Join(aside, "d"), in("d")))
	})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a": "a", "victim": "new", filepath.FromSlash("d/new"): "d/new"}, got)

	time.Sleep(20 * time.Millisecond)
	got, err = run(func() error {
		return errors.Join(os.Rename(in("victim"), in("moved")), os.Symlink("moved", in("victim")),
			os.Rename(in("d"), in("moved d")), os.Symlink("moved d", in("d")))
	})
	require.ErrorIs(t, err, fileproc.ErrChanged)
	require.ErrorContains(t, err, in("victim"))
	require.ErrorContains(t, err, in("d")+":")
	require.Equal(t, map[string]string{"a": "a"}, got)
}

// Info is looked up when it is called, in the directory that was listed: behind a link ".." does not lead back.
func TestReadDirInfo(t *testing.T) {
	base := t.TempDir()
	plant(t, base, "a/sub/f", "a/grows", "a/goes")
	require.NoError(t, os.Symlink("a/sub", filepath.Join(base, "link")))
	dir := filepath.Join(base, "link") + "/.."
	entries, err := fileproc.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 3)
	require.NoError(t, os.Remove(filepath.Join(base, "a", "goes")))
	require.NoError(t, os.WriteFile(filepath.Join(base, "a", "grows"), []byte("larger than it was"), 0o644))
	for _, e := range entries {
		info, err := e.Info()
		if e.Name() == "goes" {
			require.ErrorIs(t, err, fs.ErrNotExist)
			continue
		}
		require.NoError(t, err)
		now, err := os.Lstat(filepath.Join(base, "a", e.Name()))
		require.NoError(t, err)
		require.True(t, os.SameFile(now, info), e.Name())
		require.Equal(t, now.Size(), info.Size(), e.Name())
	}
}

// swapTree is root/{a,d/own,d/sub/own} beside outside/{own,sub/own}, which holds the secret.
func swapTree(t *testing.T) (root, outside, aside string) {
	base := t.TempDir()
	root, outside, aside = filepath.Join(base, "root"), filepath.Join(base, "outside"), filepath.Join(base, "aside")
	for _, dir := range []string{filepath.Join(root, "d"), outside} {
		content := []byte("own")
		if dir == outside {
			content = []byte("secret")
		}
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "sub"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "own"), content, 0o644))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "sub", "own"), content, 0o644))
	}
	require.NoError(t, os.WriteFile(filepath.Join(root, "a"), []byte("own"), 0o644))
	return root, outside, aside
}

func TestInvariant3DirectorySwappedMidWalk(t *testing.T) {
	swaps := map[string]func(outside, path string) error{
		"symlink":  os.Symlink,
		"nothing":  func(string, string) error { return nil },
		"file":     func(_, path string) error { return os.WriteFile(path, []byte("secret"), 0o644) },
		"fifo":     func(_, path string) error { return unix.Mkfifo(path, 0o644) },
		"self":     func(_, path string) error { return os.Symlink(path, path) },
		"relative": func(_, path string) error { return os.Symlink("../outside", path) },
	}
	type trigger struct {
		rel string
		fn  bool
	}
	for what, swap := range swaps {
		for _, on := range []trigger{{"a", false}, {"a", true}, {"d/own", false}, {"d/own", true}} {
			for _, workers := range []int{1, 4} {
				t.Run(fmt.Sprintf("%s/%+v/workers=%d", what, on, workers), func(t *testing.T) {
					watchdog(t)
					root, outside, aside := swapTree(t)
					d := filepath.Join(root, "d")
					var once sync.Once
					act := func(f *fileproc.File) {
						if f.Rel() == filepath.FromSlash(on.rel) {
							once.Do(func() {
								if err := errors.Join(os.Rename(d, aside), swap(outside, d)); err != nil {
									t.Error(err)
								}
							})
						}
					}
					var report fileproc.Report
					opts := fileproc.Options{Workers: workers, Report: &report, Select: func(f *fileproc.File) bool {
						if !on.fn {
							act(f)
						}
						return true
					}}
					type file struct{ rel, data, handle string }
					files, err := fileproc.Process(t.Context(), root, opts, func(f *fileproc.File) (file, error) {
						if on.fn {
							act(f)
						}
						handle, err := f.Open()
						if err != nil {
							return file{}, err
						}
						defer handle.Close()
						data, err := io.ReadAll(handle)
						return file{f.Rel(), string(f.Data()), string(data)}, err
					})
					got := map[string]bool{}
					for _, f := range files {
						require.Equal(t, "own", f.data, "%s", f.rel)
						require.Equal(t, "own", f.handle, "%s through Open", f.rel)
						got[f.rel] = true
					}
					require.True(t, got["a"])
					if on.rel == "d/own" {
						require.True(t, got["d/own"], "its directory was open already: %v", err)
					}
					if got["d/own"] && got["d/sub/own"] {
						require.NoError(t, err)
					} else {
						require.ErrorIs(t, err, fileproc.ErrChanged)
						require.EqualValues(t, 1, report.Failed)
					}
					requireBalanced(t, report)
				})
			}
		}
	}
}

func TestInvariant3DirectorySwappedAllTheTime(t *testing.T) {
	watchdog(t)
	root, outside, aside := swapTree(t)
	d, link := filepath.Join(root, "d"), filepath.Join(filepath.Dir(root), "link")
	require.NoError(t, os.Symlink(outside, link))
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			_ = os.Rename(d, aside)
			_ = os.Rename(link, d)
			runtime.Gosched()
			_ = os.Rename(d, link)
			_ = os.Rename(aside, d)
			runtime.Gosched()
		}
	}()
	defer func() {
		close(stop)
		<-stopped
	}()
	runs := 500
	if testing.Short() {
		runs = 50
	}
	for i := range runs {
		got, err := read(t.Context(), root, fileproc.Options{Workers: 1 + i%4})
		for rel, data := range got {
			require.Equal(t, "own", data, "%s", rel)
		}
		if err != nil {
			require.ErrorIs(t, err, fileproc.ErrChanged)
		}
	}
}

// The tasks below run in a process of their own, which may be limited, measured or given another user.
var tasks = map[string]func(t *testing.T, root string){
	"limit":     underALimit,
	"hogged":    withFewLeft,
	"peak":      measuredPeak,
	"other":     asAnotherUser,
	"streaming": streaming,
}

const taskVariable = "FILEPROC_TEST_TASK"

// TestInvariantInAProcessOfItsOwn does nothing unless runTask has started this process.
func TestInvariantInAProcessOfItsOwn(t *testing.T) {
	if name, root, ok := strings.Cut(os.Getenv(taskVariable), "="); ok {
		watchdog(t)
		tasks[name](t, root)
	}
}

// runTask runs one of the tasks and returns what it printed; ok is false where this binary cannot be started, as under an emulator.
func runTask(t *testing.T, name, root string, change ...func(*exec.Cmd)) (output string, ok bool) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestInvariantInAProcessOfItsOwn$", "-test.count=1", "-test.v")
	cmd.Env = append(os.Environ(), taskVariable+"="+name+"="+root)
	for _, f := range change {
		f(cmd)
	}
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Logf("left out: %v", err)
		return "", false
	}
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "--- PASS: TestInvariantInAProcessOfItsOwn")
	return string(out), true
}

// asNobody returns what makes a task run as another user, who is given the binary where it can be reached. Without the
// right to change users the task runs as the user at hand.
func asNobody(t *testing.T) func(*exec.Cmd) {
	t.Helper()
	if os.Geteuid() != 0 {
		return func(*exec.Cmd) {}
	}
	self, err := os.Executable()
	require.NoError(t, err)
	binary, err := os.ReadFile(self)
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
	copied := filepath.Join(dir, "fileproc.test")
	require.NoError(t, os.WriteFile(copied, binary, 0o755))
	return func(cmd *exec.Cmd) {
		cmd.Path, cmd.Args[0], cmd.Dir = copied, copied, dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
}

const firstWaitVariable = "FILEPROC_TEST_FIRST_WAIT"

// Package testing has timers and opens files. A process in which nobody has is one that has not begun with it.
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

// Go's runtime ends a process that has no descriptors for its poller when it sets the first timer. To wait takes one.
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

func limitDescriptors(t *testing.T, n uint64) {
	t.Helper()
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: n}))
}

// complete requires every file below root, each of which holds its own relative path.
func complete(ctx context.Context, root string, opts fileproc.Options, want int64) error {
	var report fileproc.Report
	opts.Report = &report
	var delivered atomic.Int64
	_, err := fileproc.Process(ctx, root, opts, func(f *fileproc.File) (struct{}, error) {
		delivered.Add(1)
		if string(f.Data()) != filepath.ToSlash(f.Rel()) {
			return struct{}{}, fmt.Errorf("it holds %q", f.Data())
		}
		return struct{}{}, nil
	})
	if err != nil {
		return err
	}
	if delivered.Load() != want || report.Processed != want || report.Found != want {
		return fmt.Errorf("%d files of %d; report %+v", delivered.Load(), want, report)
	}
	return nil
}

func countFiles(t *testing.T, root string) (n int64) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(root, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			n++
		}
		return err
	}))
	return n
}

func underALimit(t *testing.T, root string) {
	limitDescriptors(t, 32)
	for _, tree := range []string{"wide", "comb", "bush"} {
		tree := filepath.Join(root, tree)
		want := countFiles(t, tree)
		for _, workers := range []int{1, 4, 64} {
			leavesNothing(t, func() {
				require.NoError(t, complete(t.Context(), tree, fileproc.Options{Workers: workers}, want), "%s, %d workers", tree, workers)
			})
		}
		listed := int64(0)
		for e, err := range fileproc.Walk(t.Context(), tree, fileproc.Options{Workers: 16}) {
			require.NoError(t, err)
			if !e.IsDir() {
				listed++
			}
		}
		require.Equal(t, want, listed, "Walk")
		require.NoError(t, openedInFn(t.Context(), tree, want))
	}
}

// openedInFn holds one descriptor more in each running call of fn.
func openedInFn(ctx context.Context, root string, want int64) error {
	opts := fileproc.Options{Workers: 64, ReadSize: fileproc.NoRead}
	files, err := fileproc.Process(ctx, root, opts, func(f *fileproc.File) (struct{}, error) {
		handle, err := f.Open()
		if err != nil {
			return struct{}{}, err
		}
		defer handle.Close()
		for range 3 {
			runtime.Gosched() // others run, and want descriptors too
		}
		data, err := io.ReadAll(handle)
		if err == nil && string(data) != filepath.ToSlash(f.Rel()) {
			err = fmt.Errorf("it holds %q", data)
		}
		return struct{}{}, err
	})
	if err == nil && int64(len(files)) != want {
		err = fmt.Errorf("%d files of %d through Open", len(files), want)
	}
	return err
}

// withFewLeft runs while others in this process hold all descriptors but six: three runs with a root and one more each.
func withFewLeft(t *testing.T, root string) {
	// The runtime opens its poller at the first use and cannot go on without.
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
	var held []int
	for {
		fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			require.ErrorIs(t, err, unix.EMFILE)
			break
		}
		held = append(held, fd)
	}
	free := 6
	if fileproc.Backend() == "generic" {
		free = 9 // an os.Root takes more than one to open, and a second one to list
	}
	for range free {
		unix.Close(held[len(held)-1])
		held = held[:len(held)-1]
	}
	for tree, want := range trees {
		require.NoError(t, complete(t.Context(), tree, fileproc.Options{Workers: 16}, want), "one run over %s", tree)
		errs := make([]error, 3)
		var runs sync.WaitGroup
		for i := range errs {
			runs.Go(func() { errs[i] = complete(t.Context(), tree, fileproc.Options{Workers: 16}, want) })
		}
		runs.Wait()
		require.NoError(t, errors.Join(errs...), "three runs over %s", tree)
	}
}

func plant(t *testing.T, root string, rels ...string) {
	t.Helper()
	for _, rel := range rels {
		path := filepath.Join(root, rel)
		err := os.WriteFile(path, []byte(rel), 0o644)
		if errors.Is(err, fs.ErrNotExist) {
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
			err = os.WriteFile(path, []byte(rel), 0o644)
		}
		require.NoError(t, err)
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
	for _, task := range []string{"limit", "hogged"} {
		t.Run(task, func(t *testing.T) { runTask(t, task, root) })
	}
}

// measuredPeak prints this process's peak after a run over root, where files are large and sparse.
func measuredPeak(t *testing.T, root string) {
	want := map[string]int64{}
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			info, err := d.Info()
			want[d.Name()] = info.Size()
			return err
		}
		return err
	}))
	opts := fileproc.Options{Workers: 1}
	if filepath.Base(root) == "whole" {
		opts.MaxFileSize = -1
	}
	got, err := fileproc.Process(t.Context(), root, opts, func(f *fileproc.File) (string, error) {
		if int64(len(f.Data())) != want[f.Name()] {
			return "", fmt.Errorf("%d bytes of %d", len(f.Data()), want[f.Name()])
		}
		return f.Name(), nil
	})
	if filepath.Base(root) == "refused" {
		require.ErrorIs(t, err, fileproc.ErrTooLarge)
	} else {
		require.NoError(t, err)
		require.Len(t, got, len(want))
	}
	printPeak(t)
}

func printPeak(t *testing.T) {
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	fmt.Printf("\n%s\n", regexp.MustCompile(`VmHWM:\s+\d+`).Find(status))
}

var peakLine = regexp.MustCompile(`VmHWM:\s+(\d+)`)

func peakMiB(t *testing.T, task, root string) (float64, bool) {
	t.Helper()
	out, ok := runTask(t, task, root)
	if !ok {
		return 0, false
	}
	m := peakLine.FindStringSubmatch(out)
	require.NotNil(t, m, "%s", out)
	kib, err := strconv.ParseFloat(m[1], 64)
	require.NoError(t, err)
	return kib / 1024, true
}

func TestInvariant5LargeFilesTakeTheirSizeOnce(t *testing.T) {
	if raceDetector {
		t.Log("left out: the race detector's own memory is in the peak")
		return
	}
	cases := map[string]struct {
		sizes []int64 // in MiB, one below another
		limit float64
	}{
		"whole":   {[]int64{257}, 257 + 64},
		"rising":  {[]int64{50, 75, 100, 125}, 125 + 64},
		"refused": {[]int64{300}, 64},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), name)
			dir := root
			for _, size := range c.sizes {
				require.NoError(t, os.MkdirAll(dir, 0o755))
				path := filepath.Join(dir, fmt.Sprint(size))
				require.NoError(t, os.WriteFile(path, nil, 0o644))
				require.NoError(t, os.Truncate(path, size<<20))
				dir = filepath.Join(dir, "deeper")
			}
			if peak, ok := peakMiB(t, "peak", root); ok {
				require.Less(t, peak, c.limit, "MiB")
			}
		})
	}
}

func streaming(t *testing.T, root string) {
	n := 0
	opts := fileproc.Options{ReadSize: 4096}
	for _, err := range fileproc.Stream(t.Context(), root, opts, func(f *fileproc.File) (int, error) { return len(f.Data()), nil }) {
		require.NoError(t, err)
		n++
	}
	require.Positive(t, n)
	printPeak(t)
}

func TestInvariant5MemoryDoesNotGrowWithTheFiles(t *testing.T) {
	watchdog(t)
	large := 20_000
	if testing.Short() {
		large = 4_000
	}
	var dirs [2]string
	content := bytes.Repeat([]byte{'c'}, 400)
	for i, n := range []int{large / 10, large} {
		dirs[i] = memoryDir(t)
		for j := range n {
			require.NoError(t, os.WriteFile(filepath.Join(dirs[i], fmt.Sprintf("%05d.md", j)), content, 0o644))
		}
	}
	t.Run("peak", func(t *testing.T) {
		few, ok := peakMiB(t, "streaming", dirs[0])
		if !ok {
			return
		}
		many, _ := peakMiB(t, "streaming", dirs[1])
		require.Less(t, many-few, 16.0, "MiB more for ten times the files")
	})
	t.Run("allocations", func(t *testing.T) {
		if raceDetector || fileproc.Backend() != "linux" {
			t.Log("left out: promised of the linux backend without the race detector")
			return
		}
		for name, fn := range map[string]func(*fileproc.File) (struct{}, error){
			"ErrSkip": func(*fileproc.File) (struct{}, error) { return struct{}{}, fileproc.ErrSkip },
			"nothing": func(f *fileproc.File) (struct{}, error) { return struct{}{}, nil },
		} {
			opts := fileproc.Options{ReadSize: 4096}
			run := func() {
				_, err := fileproc.Process(t.Context(), dirs[1], opts, fn)
				require.NoError(t, err)
			}
			run()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			run()
			runtime.ReadMemStats(&after)
			const fixed = 300
			require.LessOrEqual(t, float64(after.Mallocs-before.Mallocs), float64(large)*0.02+fixed, "%s", name)
		}
	})
}

// lease takes a write lease on a file and gives it up when another open asks for it.
func lease(t *testing.T, path string) (released <-chan struct{}, ok bool) {
	t.Helper()
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	asked, done := make(chan os.Signal, 1), make(chan struct{}) // buffered: a signal that nobody awaits is dropped
	signal.Notify(asked, unix.SIGIO)
	t.Cleanup(func() { signal.Stop(asked) })
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Logf("left out: no lease here: %v", err)
		return nil, false
	}
	go func() {
		defer close(done)
		<-asked
		time.Sleep(20 * time.Millisecond) // an open that does not wait has failed by then
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK); err != nil {
			t.Error(err)
		}
	}()
	return done, true
}

func TestInvariant1LeasedFileIsWaitedFor(t *testing.T) {
	for _, opts := range []fileproc.Options{{}, {ReadSize: 3}, {ReadSize: 4096, Stat: true}, {Workers: 1}} {
		t.Run(fmt.Sprintf("ReadSize=%d,Workers=%d", opts.ReadSize, opts.Workers), func(t *testing.T) {
			watchdog(t)
			dir := t.TempDir()
			for _, name := range []string{"a", "leased", "z"} {
				require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644))
			}
			released, ok := lease(t, filepath.Join(dir, "leased"))
			if !ok {
				return
			}
			var report fileproc.Report
			opts.Report = &report
			got, err := read(t.Context(), dir, opts)
			require.NoError(t, err)
			leased := "leased"
			if opts.ReadSize == 3 {
				leased = "lea"
			}
			require.Equal(t, map[string]string{"a": "a", "leased": leased, "z": "z"}, got)
			requireBalanced(t, report)
			<-released
		})
	}
}

func TestInvariant1LeasedFileIsWaitedForByOpen(t *testing.T) {
	watchdog(t)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "leased"), []byte("leased"), 0o644))
	released, ok := lease(t, filepath.Join(dir, "leased"))
	if !ok {
		return
	}
	opts := fileproc.Options{ReadSize: fileproc.NoRead}
	got, err := fileproc.Process(t.Context(), dir, opts, func(f *fileproc.File) (string, error) {
		handle, err := f.Open()
		if err != nil {
			return "", err
		}
		defer handle.Close()
		data, err := io.ReadAll(handle)
		return string(data), err
	})
	require.NoError(t, err)
	require.Equal(t, []string{"leased"}, got)
	<-released
}

// unreadable holds, below a directory that everyone may enter, what another user may not read.
func unreadable(t *testing.T) string {
	root := t.TempDir()
	require.NoError(t, os.Chmod(filepath.Dir(root), 0o755))
	plant(t, root, "open", "closed", "dir/file", "no-read/file", "no-search/file", "no-search/dir/file", "nothing/file")
	for name, mode := range map[string]fs.FileMode{
		"closed": 0, "no-read": 0o111, "no-search": 0o644, "nothing": 0, ".": 0o755,
	} {
		require.NoError(t, os.Chmod(filepath.Join(root, name), mode))
	}
	t.Cleanup(func() {
		for _, name := range []string{"no-read", "no-search", "nothing"} {
			os.Chmod(filepath.Join(root, name), 0o755)
		}
	})
	return root
}

func TestInvariant1UnreadableAsRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("left out: not root")
		return
	}
	watchdog(t)
	root := unreadable(t)
	require.NoError(t, complete(t.Context(), root, fileproc.Options{}, 7))
}

func asAnotherUser(t *testing.T, root string) {
	for _, workers := range []int{1, 4} {
		var report fileproc.Report
		var got map[string]string
		var err error
		leavesNothing(t, func() {
			got, err = read(t.Context(), root, fileproc.Options{Workers: workers, Report: &report})
		})
		require.Equal(t, map[string]string{"open": "open", "dir/file": "dir/file"}, got)
		require.ErrorIs(t, err, fs.ErrPermission)
		failed := map[string]bool{}
		for _, err := range err.(interface{ Unwrap() []error }).Unwrap() {
			var pathError *fs.PathError
			require.ErrorAs(t, err, &pathError)
			require.ErrorIs(t, err, syscall.EACCES)
			require.NotEmpty(t, pathError.Op)
			failed[pathError.Path] = true
		}
		want := map[string]bool{}
		shut := []string{"closed", "no-read", "no-search/file", "no-search/dir", "nothing"}
		if fileproc.Backend() == "generic" {
			// An os.Root lists its directory by looking up ".", for which it must be searchable.
			shut = []string{"closed", "no-read", "no-search", "nothing"}
		}
		for _, rel := range shut {
			want[filepath.Join(root, rel)] = true
		}
		require.Equal(t, want, failed)
		require.EqualValues(t, len(want), report.Failed)
		require.EqualValues(t, 2, report.Processed)
		requireBalanced(t, report)

		_, err = read(t.Context(), filepath.Join(root, "nothing"), fileproc.Options{})
		require.ErrorIs(t, err, fs.ErrPermission, "an unreadable root")
	}
}

func TestInvariant1UnreadableAsAnotherUser(t *testing.T) {
	root := unreadable(t)
	runTask(t, "other", root, asNobody(t))
}
