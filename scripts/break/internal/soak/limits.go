//go:build linux

package soak

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/testtree"
	"golang.org/x/sys/unix"
)

// A limitTask runs in a process of its own, which it limits first. It returns what it has seen.
type limitTask struct {
	name string
	run  func(e limitEnv) (string, error)
	// group bounds the memory of the process's control group, in MiB.
	group int
	// env is added to the process's environment.
	env string
	// cold drops the machine's caches before it begins.
	cold bool
}

// A limitEnv says where the trees are.
type limitEnv struct{ wide, deep, many string }

var limitTasks = []limitTask{
	{name: "16 descriptors", run: descriptors(16, wideTree)},
	{name: "24 descriptors", run: descriptors(24, wideTree)},
	{name: "32 descriptors", run: descriptors(32, wideTree)},
	{name: "no locked memory, another user", run: noLockedMemory},
	{name: "GOMAXPROCS=1", run: wideTree, env: "GOMAXPROCS=1"},
	{name: "1,000 runs at once", run: thousandRuns},
	{name: "1,000 runs at once, 64 descriptors", run: descriptors(64, thousandRuns)},
	{name: "1,000 runs at once, 1,024 descriptors", run: descriptors(1024, thousandRuns)},
	{name: "a slow loop over Stream", run: slowLoop("Stream", false)},
	{name: "a slow loop over an ordered Stream", run: slowLoop("Stream", true)},
	{name: "a slow loop over Walk", run: slowLoop("Walk", false)},
	{name: "a slow loop over an ordered Walk", run: slowLoop("Walk", true)},
	{name: "a chain of 20,000 directories", run: deepChain},
	{name: "a chain of 20,000 directories, 24 descriptors", run: descriptors(24, deepChain)},
	{name: "an ignore file of 100 MiB", run: largeIgnoreFile},
	{name: "warm, 64 MiB", run: manyFiles, group: 64},
	{name: "cold, 128 MiB", run: manyFiles, group: 128, cold: true},
	{name: "cold, 64 MiB", run: manyFiles, group: 64, cold: true},
	{name: "cold, 48 MiB", run: manyFiles, group: 48, cold: true},
	{name: "cold, GOMEMLIMIT 40 MiB", run: manyFiles, env: "GOMEMLIMIT=40MiB", cold: true},
}

// requireAll runs every kind of run over root and requires want files, each of which ok accepts.
func requireAll(root string, want int64, opts fileproc.Options, ok func(*fileproc.File) error) (string, error) {
	ctx := context.Background()
	for _, entry := range []string{"Process", "ordered Stream", "Walk"} {
		var n atomic.Int64
		var report fileproc.Report
		opts := opts
		opts.Report = &report
		var err error
		fn := func(f *fileproc.File) (struct{}, error) {
			n.Add(1)
			return struct{}{}, ok(f)
		}
		switch entry {
		case "Process":
			err = fileproc.ForEach(ctx, root, opts, func(f *fileproc.File) error {
				_, err := fn(f)
				return err
			})
		case "ordered Stream":
			opts.Ordered = true
			for _, e := range fileproc.Stream(ctx, root, opts, fn) {
				err = errors.Join(err, e)
			}
		case "Walk":
			for e, failure := range fileproc.Walk(ctx, root, opts) {
				if err = errors.Join(err, failure); failure == nil && !e.IsDir() {
					n.Add(1)
				}
			}
		}
		if err != nil || n.Load() != want || report.Failed+report.Abandoned != 0 {
			return "", fmt.Errorf("%s: %d files of %d; %+v; %w", entry, n.Load(), want, report, err)
		}
	}
	return fmt.Sprintf("%d files three times", want), nil
}

const wideDirs, wideFiles = 3000, 2

// writeWide makes wideDirs directories, ten in each, with wideFiles files each.
func writeWide(root string) error {
	dirs := []string{root}
	for i := range wideDirs {
		dir := filepath.Join(dirs[i/10], fmt.Sprintf("d%04d", i))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		dirs = append(dirs, dir)
		for j := range wideFiles {
			path := filepath.Join(dir, fmt.Sprintf("f%d", j))
			rel, _ := filepath.Rel(root, path)
			if err := os.WriteFile(path, testtree.BytesOf(rel), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// filesBelow returns how many files are below directory i of those that writeWide makes.
func filesBelow(i int) int {
	if i >= wideDirs {
		return 0
	}
	n := wideFiles
	for k := range 10 {
		n += filesBelow((i+1)*10 + k)
	}
	return n
}

func wideTree(e limitEnv) (string, error) {
	return requireAll(e.wide, wideDirs*wideFiles, fileproc.Options{}, func(f *fileproc.File) error {
		if string(f.Data()) != string(testtree.BytesOf(f.Rel())) {
			return errors.New("wrong bytes")
		}
		return nil
	})
}

// descriptors makes n the limit of descriptors before it calls run. A hard limit too, since Go raises a soft one.
func descriptors(n uint64, run func(limitEnv) (string, error)) func(limitEnv) (string, error) {
	return func(e limitEnv) (string, error) {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: n}); err != nil {
			return "", err
		}
		return run(e)
	}
}

func noLockedMemory(e limitEnv) (string, error) {
	err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{})
	if err == nil && os.Getuid() == 0 {
		err = errors.Join(unix.Setgroups(nil), unix.Setresgid(65534, 65534, 65534), unix.Setresuid(65534, 65534, 65534))
	}
	if err != nil {
		return "", err
	}
	return wideTree(e)
}

func thousandRuns(e limitEnv) (string, error) {
	var runs sync.WaitGroup
	var mu sync.Mutex
	var failed error
	for i := range 1000 {
		root := filepath.Join(e.wide, fmt.Sprintf("d%04d", i%10))
		runs.Go(func() {
			got, err := fileproc.Process(context.Background(), root, fileproc.Options{}, func(f *fileproc.File) (string, error) {
				rel, _ := filepath.Rel(e.wide, f.Path())
				if string(f.Data()) != string(testtree.BytesOf(rel)) {
					return "", errors.New("wrong bytes")
				}
				return f.Rel(), nil
			})
			slices.Sort(got)
			if want := filesBelow(i % 10); err == nil && (len(got) != want || len(slices.Compact(got)) != want) {
				err = fmt.Errorf("%d files of %d", len(got), want)
			}
			if err != nil {
				mu.Lock()
				failed = err
				mu.Unlock()
			}
		})
	}
	runs.Wait()
	return "1,000 complete", failed
}

// slowLoop lets the results of a run wait: 2 seconds before the first, and a millisecond after each hundred.
func slowLoop(entry string, ordered bool) func(limitEnv) (string, error) {
	return func(e limitEnv) (string, error) {
		n := 0
		wait := func() {
			switch {
			case n == 0:
				time.Sleep(2 * time.Second)
			case n%100 == 0:
				time.Sleep(time.Millisecond)
			}
			n++
		}
		opts := fileproc.Options{Ordered: ordered}
		if entry == "Walk" {
			for _, err := range fileproc.Walk(context.Background(), e.many, opts) {
				if err != nil {
					return "", err
				}
				wait()
			}
		} else {
			for _, err := range fileproc.Stream(context.Background(), e.many, opts, func(f *fileproc.File) (string, error) { return f.Name(), nil }) {
				if err != nil {
					return "", err
				}
				wait()
			}
		}
		if ordered { // keeps the names of the directory that is being listed
			return fmt.Sprintf("%d results", n), peakBelow(256)
		}
		return fmt.Sprintf("%d results", n), peakBelow(64)
	}
}

func peakBelow(mib int) error {
	if peak := memoryMiB("VmHWM"); peak >= mib {
		return fmt.Errorf("peak memory %d MiB, want less than %d", peak, mib)
	}
	return nil
}

// manyFiles reads a million small files, and checks their number and the sum of their sizes.
func manyFiles(e limitEnv) (string, error) {
	var bytes, n atomic.Int64
	start := time.Now()
	err := fileproc.ForEach(context.Background(), e.many, fileproc.Options{Stat: true}, func(f *fileproc.File) error {
		s, err := f.Stat()
		if err == nil && s.Size != int64(len(f.Data())) {
			err = fmt.Errorf("%d bytes of %d", len(f.Data()), s.Size)
		}
		bytes.Add(s.Size)
		n.Add(1)
		return err
	})
	if want := countListed(e.many); err == nil && n.Load() != want {
		err = fmt.Errorf("%d files of %d", n.Load(), want)
	}
	return fmt.Sprintf("%d files, %d MiB, %.1f s", n.Load(), bytes.Load()>>20, time.Since(start).Seconds()), err
}

// countListed counts the records of getdents64, without memory for their names.
func countListed(dir string) (n int64) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return -1
	}
	defer unix.Close(fd)
	buf := make([]byte, 64<<10)
	for {
		k, err := unix.Getdents(fd, buf)
		if err != nil || k <= 0 {
			return n - 2 // . and ..
		}
		for rest := buf[:k]; len(rest) > 0; n++ {
			rest = rest[binary.NativeEndian.Uint16(rest[16:]):]
		}
	}
}

const chainLevels = 20_000

// writeChain makes a chain of directories, each with a file that holds its level. Its path is longer than PATH_MAX.
func writeChain(root string) error {
	fd, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	for i := 0; i < chainLevels && err == nil; i++ {
		var file int
		if file, err = unix.Openat(fd, "f", unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o644); err != nil {
			break
		}
		_, err = unix.Write(file, fmt.Append(nil, i))
		unix.Close(file)
		if err == nil {
			err = unix.Mkdirat(fd, "d", 0o755)
		}
		if err == nil {
			var next int
			next, err = unix.Openat(fd, "d", unix.O_RDONLY|unix.O_DIRECTORY, 0)
			unix.Close(fd)
			fd = next
		}
	}
	unix.Close(fd)
	return err
}

// removeChain removes it from its end. os.RemoveAll would need a descriptor for each level.
func removeChain(root string) error {
	fd, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	levels := 0
	for err == nil {
		unix.Unlinkat(fd, "f", 0)
		next, e := unix.Openat(fd, "d", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if e != nil {
			break
		}
		unix.Close(fd)
		fd = next
		levels++
	}
	for range levels {
		up, e := unix.Openat(fd, "..", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		unix.Close(fd)
		if e != nil {
			return e
		}
		fd = up
		if e := unix.Unlinkat(fd, "d", unix.AT_REMOVEDIR); e != nil {
			unix.Close(fd)
			return e
		}
	}
	unix.Close(fd)
	return err
}

func deepChain(e limitEnv) (string, error) {
	var mu sync.Mutex
	seen := make([]int, chainLevels)
	did, err := requireAll(e.deep, chainLevels, fileproc.Options{}, func(f *fileproc.File) error {
		level := -1
		if _, err := fmt.Sscan(string(f.Data()), &level); err != nil || level < 0 || level >= chainLevels {
			return fmt.Errorf("it holds %q", f.Data())
		}
		mu.Lock()
		seen[level]++
		mu.Unlock()
		return nil
	})
	for level, n := range seen {
		if err == nil && n != 2 { // once in Process, once in Stream
			err = fmt.Errorf("level %d came %d times", level, n)
		}
	}
	return did, errors.Join(err, peakBelow(256))
}

// largeIgnoreFile reads an ignore file of the greatest size, each line of which ignores one name, and half of the names exist.
func largeIgnoreFile(e limitEnv) (string, error) {
	dir, err := os.MkdirTemp(filepath.Dir(e.deep), "ignored")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	const files = 50
	lines := make([]byte, 0, 100<<20)
	n := 0
	for ; len(lines)+len("/name-0000000.*\n") <= cap(lines); n++ {
		lines = fmt.Appendf(lines, "/name-%07d.*\n", n)
	}
	err = os.WriteFile(filepath.Join(dir, ".gitignore"), lines, 0o644)
	for i := range files { // the odd ones have no line
		name := fmt.Sprintf("name-%07d.md", n/files*i)
		if i%2 == 1 {
			name = "x" + name
		}
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), nil, 0o644))
	}
	if err != nil {
		return "", err
	}
	opts := fileproc.Options{IgnoreFiles: []string{".gitignore"}, SkipHidden: true}
	start := time.Now()
	did, err := requireAll(dir, files/2, opts, func(f *fileproc.File) error {
		if f.Name()[0] != 'x' {
			return errors.New("it is ignored")
		}
		return nil
	})
	return fmt.Sprintf("%s, %d lines, %v", did, n, time.Since(start).Round(time.Second/10)), errors.Join(err, peakBelow(4096))
}

// memoryGroup makes a control group of mib MiB, and returns its directory.
func memoryGroup(mib int) (dir string, err error) {
	bytes := fmt.Appendf(nil, "%d", int64(mib)<<20)
	name := fmt.Sprintf("fileproc-limits-%d", os.Getpid())
	for mount, file := range map[string]string{"/sys/fs/cgroup": "memory.max", "/sys/fs/cgroup/memory": "memory.limit_in_bytes"} {
		if _, e := os.Stat(filepath.Join(mount, "cgroup.procs")); e != nil {
			err = errors.Join(err, e)
			continue
		}
		dir = filepath.Join(mount, name)
		e := os.Mkdir(dir, 0o755)
		if e == nil {
			if e = os.WriteFile(filepath.Join(dir, file), bytes, 0o644); e == nil {
				os.WriteFile(filepath.Join(dir, "memory.swap.max"), []byte("0"), 0o644)
				return dir, nil
			}
			os.Remove(dir)
		}
		err = errors.Join(err, e)
	}
	return "", err
}

// LimitChild runs a task in this process.
func LimitChild(_ context.Context, args []string) error {
	var e limitEnv
	if len(args) != 5 {
		return errors.New("limit-child is for soak limits alone")
	}
	e.wide, e.deep, e.many = args[1], args[2], args[3]
	if args[4] != "" {
		if err := os.WriteFile(filepath.Join(args[4], "cgroup.procs"), []byte("0"), 0); err != nil {
			return err
		}
	}
	for _, t := range limitTasks {
		if t.name == args[0] {
			did, err := t.run(e)
			runtime.GC()
			fmt.Printf("%s, peak %d MiB\n", did, memoryMiB("VmHWM"))
			return err
		}
	}
	return fmt.Errorf("no task %q", args[0])
}

// Limits is the command limits.
func Limits(_ context.Context, args []string) error {
	flags := flag.NewFlagSet("limits", flag.ContinueOnError)
	dir := flags.String("dir", "", "parent of the trees (default: the temporary directory)")
	many := flags.String("many", "", "a flat directory of a million small files, for the limits of memory (default: those are skipped)")
	only := flags.String("only", "", "only the tasks whose name has this in it")
	if err := flags.Parse(args); err != nil {
		return err
	}
	base, err := os.MkdirTemp(*dir, "limits")
	if err != nil {
		return err
	}
	deep := filepath.Join(base, "deep")
	defer os.RemoveAll(base)
	defer removeChain(deep)
	wide := filepath.Join(base, "wide")
	if err := errors.Join(os.Chmod(base, 0o755), os.Mkdir(wide, 0o755), os.Mkdir(deep, 0o755), writeWide(wide), writeChain(deep)); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	done, skipped := 0, 0
	for _, t := range limitTasks {
		if !strings.Contains(t.name, *only) {
			continue
		}
		why := ""
		needsMany := t.group > 0 || t.cold || strings.Contains(t.name, "slow loop")
		group := ""
		switch {
		case needsMany && *many == "":
			why = "no -many"
		case t.cold && os.Getuid() != 0:
			why = "only root can drop the caches"
		case t.group > 0:
			if group, err = memoryGroup(t.group); err != nil {
				why = fmt.Sprintf("no control group can be made: %v", err)
			}
		}
		if why != "" {
			fmt.Printf("%s: skipped: %s\n", t.name, why)
			skipped++
			continue
		}
		if t.cold {
			if err := dropCaches(); err != nil {
				return err
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
		cmd := exec.CommandContext(ctx, self, "limit-child", t.name, wide, deep, *many, group)
		cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
		if t.env != "" {
			cmd.Env = append(os.Environ(), t.env)
		}
		out, err := cmd.CombinedOutput()
		cancel()
		if group != "" {
			for range 50 { // its last process may not be gone yet
				if e := os.Remove(group); e == nil || errors.Is(e, fs.ErrNotExist) {
					break
				}
				time.Sleep(20 * time.Millisecond)
			}
		}
		fmt.Printf("%s: %s\n", t.name, strings.TrimSpace(string(out)))
		if err != nil {
			return fmt.Errorf("%s: %w\nto repeat: break limits -only %q", t.name, err, t.name)
		}
		done++
	}
	fmt.Printf("backend %s: %d limits kept, %d skipped\nlosses: 0\n", fileproc.Backend(), done, skipped)
	return nil
}
