//go:build linux

// Package limits runs fileproc with few descriptors, little memory, one processor, many runs at once, slow consumers and a deep chain.
package limits

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
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
	"github.com/fileproc/fileproc/scripts/break/internal/trial"
	"github.com/fileproc/fileproc/scripts/internal/fail"
	"github.com/fileproc/fileproc/scripts/internal/host"
	"golang.org/x/sys/unix"
)

// A task runs in a process of its own, which it limits first.
type task struct {
	name  string
	run   job
	env   string // added to the environment
	group int    // the memory of the control group, in MiB
	many  bool   // it needs -many
	cold  bool   // the machine's caches are dropped before it
}

// A job returns what it has seen, or fails.
type job func(ctx context.Context, e env) string

type env struct{ wide, deep, many string }

var tasks = []task{
	{name: "16 descriptors", run: descriptors(16, wideTree)},
	{name: "24 descriptors", run: descriptors(24, wideTree)},
	{name: "32 descriptors", run: descriptors(32, wideTree)},
	{name: "no locked memory, another user", run: noLockedMemory},
	{name: "GOMAXPROCS=1", run: wideTree, env: "GOMAXPROCS=1"},
	{name: "1,000 runs at once", run: thousandRuns},
	{name: "1,000 runs at once, 64 descriptors", run: descriptors(64, thousandRuns)},
	{name: "1,000 runs at once, 1,024 descriptors", run: descriptors(1024, thousandRuns)},
	{name: "a slow loop over Stream", run: slowLoop("Stream", false), many: true},
	{name: "a slow loop over an ordered Stream", run: slowLoop("Stream", true), many: true},
	{name: "a slow loop over Walk", run: slowLoop("Walk", false), many: true},
	{name: "a slow loop over an ordered Walk", run: slowLoop("Walk", true), many: true},
	{name: "a chain of 20,000 directories", run: deepChain},
	{name: "a chain of 20,000 directories, 24 descriptors", run: descriptors(24, deepChain)},
	{name: "warm, 64 MiB", run: manyFiles, many: true, group: 64},
	{name: "cold, 128 MiB", run: manyFiles, many: true, group: 128, cold: true},
	{name: "cold, 64 MiB", run: manyFiles, many: true, group: 64, cold: true},
	{name: "cold, 48 MiB", run: manyFiles, many: true, group: 48, cold: true},
	{name: "cold, GOMEMLIMIT 40 MiB", run: manyFiles, many: true, env: "GOMEMLIMIT=40MiB", cold: true},
}

func Main(ctx context.Context, args []string) error {
	flags := trial.NewFlags("limits")
	many := flags.String("many", "", "a flat directory of a million small files, for the limits of memory (default: those are skipped)")
	only := flags.String("only", "", "only the tasks whose name has this in it")
	in := flags.String("in", "", "run the task -only in this process, over the trees of this directory")
	group := flags.String("group", "", "with -in: enter the control group of this directory")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *in != "" {
		return fail.Try(func() { child(ctx, *only, *group, env{*in + "/wide", *in + "/deep", *many}) })
	}
	return flags.Temp(args, func(dir string) {
		e := env{dir + "/wide", dir + "/deep", *many}
		defer removeChain(e.deep)
		fail.On(os.Chmod(dir, 0o755))
		fail.On(trial.Write(e.wide, testtree.BytesOf, wideRels()...))
		plantChain(e.deep)
		for _, t := range tasks {
			if !strings.Contains(t.name, *only) {
				continue
			}
			why := ""
			err := fail.Try(func() { why = t.start(ctx, e) })
			fail.If(err != nil, "%s: %w\nto repeat: break limits -only %q", t.name, err, t.name)
			if why != "" {
				fmt.Printf("%s: skipped: %s\n", t.name, why)
				flags.Count("limits skipped", 1)
			} else {
				flags.Count("limits kept", 1)
			}
		}
		fail.On(ctx.Err())
	})
}

// start runs t in a process of its own, or returns why it cannot.
func (t task) start(ctx context.Context, e env) (why string) {
	group := ""
	switch {
	case t.many && e.many == "":
		return "no -many"
	case t.cold && os.Getuid() != 0:
		return "only root can drop the caches"
	case t.group > 0:
		err := fail.Try(func() { group = memoryGroup(t.group) })
		if err != nil {
			return fmt.Sprintf("no control group can be made: %v", err)
		}
		defer removeGroup(group)
	}
	if t.cold {
		fail.On(host.DropCaches())
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "limits", "-only", t.name, "-in", filepath.Dir(e.wide), "-many", e.many, "-group", group)
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	cmd.Env = append(os.Environ(), t.env)
	out, err := cmd.CombinedOutput()
	fmt.Printf("%s: %s\n", t.name, strings.TrimSpace(string(out)))
	fail.On(err)
	return ""
}

func child(ctx context.Context, name, group string, e env) {
	if group != "" {
		fail.On(os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte("0"), 0))
	}
	i := slices.IndexFunc(tasks, func(t task) bool { return t.name == name })
	fail.If(i < 0, "no task %q", name)
	did := tasks[i].run(ctx, e)
	runtime.GC()
	fmt.Printf("%s, peak %.0f MiB\n", did, host.MemoryMiB("VmHWM"))
}

// memoryGroup makes a control group of mib MiB, and returns its directory.
func memoryGroup(mib int) (dir string) {
	limit := "/sys/fs/cgroup/memory/*/memory.limit_in_bytes"
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.procs"); err == nil { // version 2
		limit = "/sys/fs/cgroup/*/memory.max"
	}
	limit = strings.Replace(limit, "*", fmt.Sprintf("fileproc-limits-%d", os.Getpid()), 1)
	dir = filepath.Dir(limit)
	fail.On(os.Mkdir(dir, 0o755))
	if err := os.WriteFile(limit, fmt.Append(nil, mib<<20), 0o644); err != nil {
		os.Remove(dir)
		fail.On(err)
	}
	os.WriteFile(filepath.Join(dir, "memory.swap.max"), []byte("0"), 0o644)
	return dir
}

// removeGroup removes a control group, whose last process may not be gone yet.
func removeGroup(dir string) {
	for range 50 {
		if os.Remove(dir) == nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// descriptors makes n the limit of descriptors before it calls run. A hard limit too, since Go raises a soft one.
func descriptors(n uint64, run job) job {
	return func(ctx context.Context, e env) string {
		fail.On(unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: n}))
		return run(ctx, e)
	}
}

func noLockedMemory(ctx context.Context, e env) string {
	fail.On(unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{}))
	if os.Getuid() == 0 {
		fail.On(errors.Join(unix.Setgroups(nil), unix.Setresgid(65534, 65534, 65534), unix.Setresuid(65534, 65534, 65534)))
	}
	return wideTree(ctx, e)
}

func peakBelow(mib float64) {
	peak := host.MemoryMiB("VmHWM")
	fail.If(peak >= mib, "peak memory %.0f MiB, want less than %.0f", peak, mib)
}

// requireAll makes every kind of run over root and requires want files: those of set, if it is not nil, and else want is their number.
func requireAll(ctx context.Context, root string, want int, set map[string]bool, file func(f *fileproc.File, a *trial.Answer) error) string {
	for _, entry := range []string{"ForEach", "Stream", "Walk"} {
		r := &trial.Run{Root: root, Entry: entry, Opts: fileproc.Options{Ordered: entry == "Stream"}, Want: set, Content: testtree.BytesOf, File: file}
		err := r.Do(ctx)
		fail.If(err != nil, "%v: %w", r, err)
		fail.If(r.Files != int64(want), "%v: %d files of %d: %+v", r, r.Files, want, r.Report)
	}
	return fmt.Sprintf("%d files three times", want)
}

// wideRels returns the files of a tree of 3,000 directories, ten in each, with two files each.
func wideRels() (rels []string) {
	dirs := []string{""}
	for i := range 3000 {
		dirs = append(dirs, fmt.Sprintf("%sd%04d/", dirs[i/10], i))
		rels = append(rels, dirs[i+1]+"f0", dirs[i+1]+"f1")
	}
	return rels
}

func wideTree(ctx context.Context, e env) string {
	set := trial.Set(wideRels())
	return requireAll(ctx, e.wide, len(set), set, nil)
}

func thousandRuns(ctx context.Context, e env) string {
	var runs sync.WaitGroup
	var failed [1000]error
	want := map[string]map[string]bool{} // by directory
	for _, rel := range wideRels() {
		dir, rest, _ := strings.Cut(rel, "/")
		if want[dir] == nil {
			want[dir] = map[string]bool{}
		}
		want[dir][rest] = true
	}
	for i := range failed {
		dir := fmt.Sprintf("d%04d", i%10)
		r := &trial.Run{Root: filepath.Join(e.wide, dir), Entry: "Process", Want: want[dir]}
		r.Content = func(rel string) []byte { return testtree.BytesOf(dir + "/" + rel) }
		runs.Go(func() { failed[i] = r.Deliver(ctx) })
	}
	runs.Wait()
	fail.On(cmp.Or(failed[:]...))
	return "1,000 complete"
}

// slowLoop lets the results of a run wait: 2 seconds before the first, and a millisecond after each hundred.
func slowLoop(entry string, ordered bool) job {
	return func(ctx context.Context, e env) string {
		n := 0
		r := &trial.Run{Root: e.many, Entry: entry, Opts: fileproc.Options{Ordered: ordered}, Next: func() bool {
			switch {
			case n == 0:
				time.Sleep(2 * time.Second)
			case n%100 == 0:
				time.Sleep(time.Millisecond)
			}
			n++
			return true
		}}
		fail.On(r.Do(ctx))
		most := 64.0
		if ordered { // keeps the names of the directory that is being listed
			most = 256
		}
		peakBelow(most)
		return fmt.Sprintf("%d results", n)
	}
}

// manyFiles reads a million small files, and checks their number and the sum of their sizes.
func manyFiles(ctx context.Context, e env) string {
	var bytes atomic.Int64
	r := &trial.Run{Root: e.many, Entry: "ForEach", Opts: fileproc.Options{Stat: true}, File: func(f *fileproc.File, _ *trial.Answer) error {
		s, err := f.Stat()
		if err == nil && s.Size != int64(len(f.Data())) {
			err = fmt.Errorf("%d bytes of %d", len(f.Data()), s.Size)
		}
		bytes.Add(s.Size)
		return err
	}}
	start := time.Now()
	fail.On(r.Do(ctx))
	took := time.Since(start)
	dir, want := fail.Must(os.Open(e.many)), int64(0)
	for { // without memory for all names
		names, err := dir.Readdirnames(1000)
		if want += int64(len(names)); err == io.EOF {
			break
		}
		fail.On(err)
	}
	fail.If(r.Files != want, "%d files of %d", r.Files, want)
	return fmt.Sprintf("%d files, %d MiB, %.1f s", r.Files, bytes.Load()>>20, took.Seconds())
}

const chainLevels = 20_000

// plantChain makes a chain of directories, each with a file that holds its level. Its path is longer than PATH_MAX.
func plantChain(dir string) {
	fail.On(os.Mkdir(dir, 0o755))
	at := fail.Must(os.OpenRoot(dir))
	for i := range chainLevels {
		fail.On(errors.Join(at.WriteFile("f", fmt.Append(nil, i), 0o644), at.Mkdir("d", 0o755)))
		next := fail.Must(at.OpenRoot("d"))
		at.Close()
		at = next
	}
}

// removeChain shortens the chain at its beginning. os.RemoveAll would need a descriptor for each level.
func removeChain(dir string) {
	for os.Rename(dir+"/d/d", dir+"/next") == nil {
		os.RemoveAll(dir + "/d")
		os.Rename(dir+"/next", dir+"/d")
	}
}

func deepChain(ctx context.Context, e env) string {
	seen := make([]atomic.Int32, chainLevels)
	did := requireAll(ctx, e.deep, chainLevels, nil, func(f *fileproc.File, _ *trial.Answer) error {
		level := -1
		if _, err := fmt.Sscan(string(f.Data()), &level); err != nil || level < 0 || level >= chainLevels {
			return fmt.Errorf("it holds %q", f.Data())
		}
		seen[level].Add(1)
		return nil
	})
	for level := range seen {
		n := seen[level].Load() // once in ForEach, once in Stream
		fail.If(n != 2, "level %d came %d times", level, n)
	}
	peakBelow(256)
	return did
}
