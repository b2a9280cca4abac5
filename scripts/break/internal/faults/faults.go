//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// Package faults makes each system call of fileproc fail with each of its errors, in separate processes under strace's
// injection and under seccomp. It checks that nothing is lost: each run ends in time, its ledger balances, each file is right or
// failed with its error, and nothing stays open.
//
// A pass is systematic: each call with each error in each mode and backend, at its first call, then at a middle one, the
// last, and every nth. A loss is printed with the command that repeats it.
package faults

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fileproc/fileproc/internal/fsinfo"
	"github.com/fileproc/fileproc/scripts/break/internal/trial"
	"github.com/fileproc/fileproc/scripts/internal/commands"
	"github.com/fileproc/fileproc/scripts/internal/fail"
	"golang.org/x/sys/unix"
)

const (
	// patience is how long one run may take.
	patience = 90 * time.Second
	// maxLosses is how many losses are printed before the command ends.
	maxLosses = 20

	// Runs without strace have one of these in place of a call.
	seccompRuns, shortRuns = "seccomp", "short-counts"
)

var errHangs = fmt.Errorf("it did not end within %s", patience)

// Main runs the command faults. It needs strace.
func Main(ctx context.Context, args []string) error {
	d := &driver{ctx: ctx, flags: trial.NewFlags("faults"), counts: map[string]int{}}
	d.flags.StringVar(&d.only, "only", "", "only combinations whose description contains this; or exactly this one, if it is a whole description")
	run := d.flags.String("run", "", "run this combination in this process (what the driver starts)")
	root := d.flags.String("root", "", "with -run: the tree")
	cache := d.flags.String("cache", "", "with -run: the cache file")
	if err := d.flags.Parse(args); err != nil {
		return err
	}
	if *run != "" {
		return fail.Try(func() { runVictim(parseJob(*run), *root, *cache) })
	}
	return d.flags.Temp(args, d.drive)
}

var backends = []struct{ name, tags string }{
	{"linux", ""}, {"nouring", "fileproc_nouring"}, {"unix", "fileproc_unix"}, {"generic", "fileproc_generic"},
}

type job struct {
	backend string
	mode    mode
	t       target
	fault   string // in strace's syntax, or a seccomp filter, or the seed of short counts
	when    string // in strace's syntax
}

func (j job) String() string {
	return fmt.Sprintf("%s %s %s %s when=%s", j.backend, j.mode.name, j.t.call, j.fault, j.when)
}

// parseJob returns the job that text describes as String does, or the zero job.
func parseJob(text string) job {
	part := strings.Split(text, " ")
	if len(part) != 5 {
		return job{}
	}
	m := slices.IndexFunc(modes, func(m mode) bool { return m.name == part[1] })
	when, ok := strings.CutPrefix(part[4], "when=")
	if m < 0 || !ok {
		return job{}
	}
	j := job{part[0], modes[m], target{call: part[2], paths: true, absorbed: part[2] == shortRuns || filters[part[3]].absorbed}, part[3], when}
	if t := slices.IndexFunc(targets, func(t target) bool { return t.call == part[2] }); t >= 0 {
		j.t = targets[t]
	}
	return j
}

// errno returns the name of the error with which calls fail, or "" if they fail without one.
func (j job) errno() string {
	if _, e, _ := strings.Cut(j.fault, "="); strings.HasPrefix(e, "E") {
		return e
	}
	return ""
}

func (j job) byStrace() bool { return j.t.call != seccompRuns && j.t.call != shortRuns }

// use returns the beginning of the keys in driver.counts, for the mode and the backend.
func (j job) use() string { return j.backend + " " + j.mode.name + " " }

// uses returns jobs without faults: each mode on each of its backends. The Linux backend without io_uring differs only for trees with many files.
func uses() (all []job) {
	for _, b := range backends {
		for _, m := range modes {
			if m.backends == nil && (b.name != "nouring" || m.name == "process" || m.name == "ordered") || slices.Contains(m.backends, b.name) {
				all = append(all, job{backend: b.name, mode: m})
			}
		}
	}
	return all
}

type driver struct {
	ctx    context.Context
	flags  *trial.Flags
	only   string
	dir    string
	counts map[string]int // calls in one thread of a run without faults, by backend, mode and call
	losses atomic.Int64
}

func (d *driver) drive(dir string) {
	_, err := exec.LookPath("strace")
	fail.If(err != nil, "faults needs strace")
	d.dir = dir
	d.prepare()
	d.flags.Start()
	if only := parseJob(d.only); only.backend != "" {
		d.run([]job{only})
	} else {
		d.count()
		d.flags.Start()
		d.run(d.withoutStrace())
		d.run(d.plan())
	}
	n := d.losses.Load()
	fail.If(n > 0, "%d losses", n)
	fail.On(d.ctx.Err())
}

func (d *driver) over() bool { return d.flags.Over(d.ctx) || d.losses.Load() > maxLosses }

func (d *driver) prepare() {
	for _, name := range []string{"small", "many", "links"} {
		fail.On(plant(name, d.tree(name)))
	}
	syscall.Sync() // dirty pages cannot be dropped from the page cache
	planted := time.Now()
	fail.On(os.Setenv("CGO_ENABLED", "0"))
	for _, b := range backends {
		fail.Must(commands.Output(d.ctx, "", "go", "build", "-tags", b.tags, "-o", filepath.Join(d.dir, b.name), "./break"))
	}
	time.Sleep(fsinfo.Settled - time.Since(planted)) // package incremental saves no results of younger files
}

func (d *driver) tree(name string) string { return filepath.Join(d.dir, "trees", name) }

// victim returns the command that runs j in a separate process. Scratch is the directory for its cache file.
func (d *driver) victim(j job, scratch string) []string {
	return []string{filepath.Join(d.dir, j.backend), "faults", "-run", j.String(), "-root", d.tree(j.mode.tree),
		"-cache", filepath.Join(scratch, "cache")}
}

// strace runs j under strace, which traces calls, and returns its log. With paths, it traces only calls on the tree or the cache file.
func (d *driver) strace(j job, scratch, calls string, paths bool, more ...string) (out, log string, err error) {
	logFile := filepath.Join(scratch, "log")
	args := append([]string{"strace", "-f", "--seccomp-bpf", "-qq", "-o", logFile, "-e", "trace=" + calls}, more...)
	if paths {
		watched := []string{"anon_inode:[io_uring]"}
		filepath.WalkDir(d.tree(j.mode.tree), func(at string, e fs.DirEntry, err error) error {
			if err == nil && (e.IsDir() || j.mode.tree != "many") {
				watched = append(watched, at)
			}
			return err
		})
		if cache := filepath.Join(scratch, "cache"); j.mode.name == "again" {
			watched = append(watched, cache, cache+".lock", cache+".fileproc-tmp")
		}
		for _, path := range watched {
			args = append(args, "-P", path)
		}
	}
	args = append(append(args, "--"), d.victim(j, scratch)...)
	out, err = d.command(args)
	for strings.Contains(out, "strace: ptrace(") { // a defect of strace when a thread ends
		d.flags.Count("runs that were repeated since strace failed", 1)
		out, err = d.command(args)
	}
	text, errLog := os.ReadFile(logFile)
	return out, string(text), errors.Join(err, errLog)
}

// begun matches the thread and the call in a line of strace's.
var begun = regexp.MustCompile(`(?m)^(\d+) +(\w+)\(`)

// count finds out which calls each mode makes, and how often it makes them in one thread.
func (d *driver) count() {
	for _, j := range uses() {
		for _, paths := range []bool{true, false} {
			var calls []string
			for _, t := range targets {
				if t.paths == paths {
					calls = append(calls, "?"+t.call)
				}
			}
			scratch := filepath.Join(d.dir, "count")
			fail.On(errors.Join(os.RemoveAll(scratch), os.Mkdir(scratch, 0o755)))
			out, log, err := d.strace(j, scratch, strings.Join(calls, ","), paths)
			fail.If(err != nil || strings.Contains(out, "failed "), "without a fault: %v: %s\n%s", err, j, out)
			threads := map[string]int{}
			for _, m := range begun.FindAllStringSubmatch(log, -1) {
				threads[m[0]]++
				d.counts[j.use()+m[2]] = max(d.counts[j.use()+m[2]], threads[m[0]])
			}
		}
	}
}

// plan returns the combinations of a pass, those with a fault at the first call before the others.
func (d *driver) plan() (pass []job) {
	const every, all = "2+3", "1+"
	random, seen := rand.New(rand.NewSource(d.flags.Seed)), map[string]bool{}
	for _, position := range []string{"1", "middle", "last", "1+2", every, all} {
		var part []job
		for _, j := range uses() {
			for _, j.t = range targets {
				n := d.counts[j.use()+j.t.call]
				few := j.backend == "linux" && slices.Contains([]string{"process", "many", "cold", "again"}, j.mode.name)
				if n == 0 || j.t.few && !few {
					continue
				}
				at := strings.NewReplacer("middle", fmt.Sprint(n/2+1), "last", fmt.Sprint(n)).Replace(position)
				var faults []string
				for _, e := range j.t.errnos() {
					if position != all || e != "EINTR" && !waits(e) {
						faults = append(faults, "error="+e)
					}
				}
				if position == "1" || position == every {
					faults = append(faults, "delay_enter=20000", "delay_exit=20000", "signal=SIGURG")
				}
				for _, j.fault = range faults {
					switch j.when = at; {
					case waits(j.errno()): // each attempt of an operation may make several calls, so fail fewer of them
						j.when = strings.NewReplacer("+2", "+7", "+3", "+11").Replace(at)
					case j.errno() == "" && position == every && n > 200:
						j.when = fmt.Sprintf("2+%d", n/20)
					}
					part = append(part, j)
				}
			}
		}
		part = slices.DeleteFunc(part, func(j job) bool {
			had := seen[j.String()]
			seen[j.String()] = true
			return had || !strings.Contains(j.String(), d.only)
		})
		random.Shuffle(len(part), func(i, k int) { part[i], part[k] = part[k], part[i] })
		pass = append(pass, part...)
	}
	return pass
}

// run runs the jobs until the time is over, two at a time.
func (d *driver) run(jobs []job) {
	var wg sync.WaitGroup
	var next atomic.Int64
	for worker := range min(2, runtime.NumCPU()) {
		wg.Go(func() {
			for k := next.Add(1); k <= int64(len(jobs)) && !d.over(); k = next.Add(1) {
				d.one(jobs[k-1], filepath.Join(d.dir, fmt.Sprint("run", worker)))
			}
		})
	}
	wg.Wait()
}

// one runs j with an empty scratch directory and judges the run.
func (d *driver) one(j job, scratch string) {
	if err := errors.Join(os.RemoveAll(scratch), os.Mkdir(scratch, 0o755)); err != nil {
		d.lost(j, err.Error())
		return
	}
	var out, log string
	var err error
	injected := 2 // stands for an unknown number
	if j.byStrace() {
		out, log, err = d.strace(j, scratch, j.t.call, j.t.paths, "-e", "inject="+j.t.call+":"+j.fault+":when="+j.when)
		injected = strings.Count(log, "(INJECTED)") + strings.Count(log, "(DELAYED)")
	} else {
		out, err = d.command(d.victim(j, scratch))
	}
	if d.ctx.Err() != nil {
		return
	}
	d.judge(j, out, err, injected)
	if j.mode.name == "again" && err == nil { // the cache file must be right
		clean := job{backend: j.backend, mode: j.mode}
		if out, err := d.command(d.victim(clean, scratch)); d.ctx.Err() == nil && (err != nil || strings.Contains(out, "failed ")) {
			d.lost(j, "with the cache file that it leaves: "+out)
		}
	}
}

// command runs a program in a separate process group, and kills the group when patience is over.
func (d *driver) command(args []string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(d.ctx, patience, errHangs)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return string(out), err
}

func (d *driver) judge(j job, out string, err error, injected int) {
	var delivered, failed, leaked int
	_, e := fmt.Sscanf(out[max(0, strings.LastIndex(out, "delivered=")):], "delivered=%d failed=%d leaked=%d", &delivered, &failed, &leaked)
	counted := e == nil
	ended := !counted && j.byRuntime(out) || j.byFilter(err)
	// Strace does not make the failed call. So after close the descriptor stays open, and after flock until the garbage collection.
	if (j.t.call == "close" || j.t.call == "flock") && j.errno() != "" {
		leaked = max(0, leaked-injected)
	}
	why := ""
	switch {
	case errors.Is(err, errHangs):
		why = err.Error()
	case ended:
	case err != nil || !counted:
		why = fmt.Sprint("it ended with ", err)
	case leaked > 0:
		why = fmt.Sprintf("%d descriptors are left open", leaked)
	case failed > 0:
		why = j.whyFailed(injected)
	}
	if why != "" {
		d.lost(j, why+"\n"+out)
	}
	kind, what := "runs ", "without a failure"
	if !j.byStrace() {
		kind = j.t.call + " runs "
	}
	switch {
	case ended:
		what = "that the runtime or the filter ended"
	case failed > 0:
		what = "with all failures reported"
	case injected == 0:
		what = "that did not reach the call"
	}
	d.flags.Count(kind+what, 1)
	if j.byStrace() {
		d.flags.Count("errors, delays and signals", int64(injected))
	}
}

// byRuntime reports whether Go's runtime has ended the process because its own call failed, which is no loss.
func (j job) byRuntime(out string) bool {
	return (strings.Contains(out, "fatal error: ") || strings.Contains(out, "runtime: ")) && !j.t.paths && !strings.Contains(out, "LOSS")
}

// byFilter reports whether a filter has killed the process, as intended.
func (j job) byFilter(err error) bool {
	var exit *exec.ExitError
	return j.t.call == seccompRuns && j.errno() == "" && errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == unix.SIGSYS
}

// whyFailed returns the reason if no file may fail after so many faults, and "" otherwise.
func (j job) whyFailed(injected int) string {
	errno := j.errno()
	switch {
	case injected == 0:
		return "files failed without a fault"
	case j.t.absorbed:
		return "files failed although the run has another way"
	case errno == "":
		return "files failed because of a delay or a signal"
	case injected == 1 && slices.Contains(strings.Fields(retried[errno]), j.t.call) && (j.mode.name != "readdir" || errno == "EINTR"): // like os.ReadDir, ReadDir does not wait
		return "a file failed with an error after which the call is to be made again"
	}
	return ""
}

func (d *driver) lost(j job, why string) {
	if d.losses.Add(1) <= maxLosses {
		why = strings.ReplaceAll(strings.TrimSpace(why), "\n", "\n   ")
		fmt.Printf("LOSS in %s\n   %s\n   to repeat: (cd scripts && go run ./break faults -only '%[1]s')\n", j, why)
	}
}
