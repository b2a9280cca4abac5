//go:build linux

// Package limits runs fileproc with few descriptors, little memory, one processor, many runs at once, slow consumers and a deep chain.
package limits

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/fileproc/fileproc/scripts/break/internal/trial"
	"golang.org/x/sys/unix"
)

// A task runs in a process of its own, which it limits first. It returns what it has seen.
type task struct {
	name  string
	run   func(ctx context.Context, e env) (string, error)
	env   string // added to the environment
	group int    // the memory of the control group, in MiB
	many  bool   // it needs -many
	cold  bool   // the machine's caches are dropped before it
}

// An env says where the trees are.
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
	{name: "an ignore file of 100 MiB", run: largeIgnoreFile},
	{name: "warm, 64 MiB", run: manyFiles, many: true, group: 64},
	{name: "cold, 128 MiB", run: manyFiles, many: true, group: 128, cold: true},
	{name: "cold, 64 MiB", run: manyFiles, many: true, group: 64, cold: true},
	{name: "cold, 48 MiB", run: manyFiles, many: true, group: 48, cold: true},
	{name: "cold, GOMEMLIMIT 40 MiB", run: manyFiles, many: true, env: "GOMEMLIMIT=40MiB", cold: true},
}

// Main is the command limits.
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
		return child(ctx, *only, *group, env{*in + "/wide", *in + "/deep", *many})
	}
	return flags.Temp(func(dir string) error {
		e := env{dir + "/wide", dir + "/deep", *many}
		defer removeChain(e.deep)
		if err := errors.Join(os.Chmod(dir, 0o755), trial.Write(e.wide, testtree.BytesOf, wideRels()...), plantChain(e.deep)); err != nil {
			return err
		}
		for _, t := range tasks {
			if !strings.Contains(t.name, *only) {
				continue
			}
			switch why, err := t.start(ctx, e); {
			case err != nil:
				return fmt.Errorf("%s: %w\nto repeat: break limits -only %q", t.name, err, t.name)
			case why != "":
				fmt.Printf("%s: skipped: %s\n", t.name, why)
				flags.Count("limits skipped", 1)
			default:
				flags.Count("limits kept", 1)
			}
		}
		return ctx.Err()
	})
}

// start runs t in a process of its own, or returns why it cannot.
func (t task) start(ctx context.Context, e env) (why string, err error) {
	group := ""
	switch {
	case t.many && e.many == "":
		return "no -many", nil
	case t.cold && os.Getuid() != 0:
		return "only root can drop the caches", nil
	case t.group > 0:
		if group, err = memoryGroup(t.group); err != nil {
			return fmt.Sprintf("no control group can be made: %v", err), nil
		}
		defer removeGroup(group)
	}
	if t.cold {
		if err := trial.DropCaches(); err != nil {
			return "", err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "limits", "-only", t.name, "-in", filepath.Dir(e.wide), "-many", e.many, "-group", group)
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	cmd.Env = append(os.Environ(), t.env)
	out, err := cmd.CombinedOutput()
	fmt.Printf("%s: %s\n", t.name, strings.TrimSpace(string(out)))
	return "", err
}

// child runs a task in this process.
func child(ctx context.Context, name, group string, e env) error {
	if group != "" {
		if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte("0"), 0); err != nil {
			return err
		}
	}
	for _, t := range tasks {
		if t.name == name {
			did, err := t.run(ctx, e)
			runtime.GC()
			fmt.Printf("%s, peak %d MiB\n", did, trial.MemoryMiB("VmHWM"))
			return err
		}
	}
	return fmt.Errorf("no task %q", name)
}

// memoryGroup makes a control group of mib MiB, and returns its directory.
func memoryGroup(mib int) (dir string, err error) {
	limit := "/sys/fs/cgroup/memory/*/memory.limit_in_bytes"
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.procs"); err == nil { // version 2
		limit = "/sys/fs/cgroup/*/memory.max"
	}
	limit = strings.Replace(limit, "*", fmt.Sprintf("fileproc-limits-%d", os.Getpid()), 1)
	dir = filepath.Dir(limit)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	if err := os.WriteFile(limit, fmt.Append(nil, mib<<20), 0o644); err != nil {
		os.Remove(dir)
		return "", err
	}
	os.WriteFile(filepath.Join(dir, "memory.swap.max"), []byte("0"), 0o644)
	return dir, nil
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
func descriptors(n uint64, run func(context.Context, env) (string, error)) func(context.Context, env) (string, error) {
	return func(ctx context.Context, e env) (string, error) {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: n}); err != nil {
			return "", err
		}
		return run(ctx, e)
	}
}

func noLockedMemory(ctx context.Context, e env) (string, error) {
	err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{})
	if err == nil && os.Getuid() == 0 {
		err = errors.Join(unix.Setgroups(nil), unix.Setresgid(65534, 65534, 65534), unix.Setresuid(65534, 65534, 65534))
	}
	if err != nil {
		return "", err
	}
	return wideTree(ctx, e)
}

func peakBelow(mib int) error {
	if peak := trial.MemoryMiB("VmHWM"); peak >= mib {
		return fmt.Errorf("peak memory %d MiB, want less than %d", peak, mib)
	}
	return nil
}
