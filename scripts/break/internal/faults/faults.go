//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// Package faults makes each system call of fileproc fail with each of its errors, in processes of their own under strace's
// injection and under seccomp, and checks that nothing is lost: each run ends in time, its ledger balances, each file is right or
// failed with its error, and nothing stays open.
//
// The first pass is systematic: each call with each error in each mode and backend, at its first call, then at a middle one, the
// last, and every nth. When the pass is over, positions are random until the time is. A loss is printed with the command that
// repeats it.
package faults

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/fileproc/fileproc/internal/fsinfo"
	"golang.org/x/sys/unix"
)

const (
	// patience is how long one run may take.
	patience = 90 * time.Second
	// maxLosses is how many losses are printed. Then the command ends.
	maxLosses = 20

	// Runs whose faults are not strace's have one of these in place of a call.
	seccompRuns, shortRuns = "seccomp", "short-counts"
)

var errHangs = fmt.Errorf("it did not end within %s", patience)

// Main runs the command faults. It needs strace.
func Main(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("faults", flag.ContinueOnError)
	minutes := flags.Float64("minutes", 2, "how long to run; 0: one pass")
	seed := flags.Int64("seed", 1, "seed of the order and of the random positions")
	only := flags.String("only", "", "only combinations whose description contains this; or exactly this one, if it is a whole description")
	run := flags.String("run", "", "run this combination in this process (what the driver starts)")
	root := flags.String("root", "", "with -run: the tree")
	cache := flags.String("cache", "", "with -run: the cache file")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *run != "" {
		return runVictim(parseJob(*run), *root, *cache)
	}
	d := &driver{ctx: ctx, only: *only, random: rand.New(rand.NewSource(*seed)), counts: map[string]int{},
		table: map[string]map[string]int{}, errors: map[string]bool{}}
	return errors.Join(d.drive(time.Duration(*minutes*float64(time.Minute))), ctx.Err())
}

// backends are the build tags of each.
var backends = []struct{ name, tags string }{
	{"linux", ""}, {"nouring", "fileproc_nouring"}, {"unix", "fileproc_unix"}, {"generic", "fileproc_generic"},
}

// A job is one run.
type job struct {
	backend string
	mode    mode
	t       target
	fault   string // as strace names it, or a seccomp filter, or the seed of short counts
	when    string // as strace counts
}

func (j job) String() string {
	return fmt.Sprintf("%s %s %s %s when=%s", j.backend, j.mode.name, j.t.call, j.fault, j.when)
}

// parseJob returns the job that String describes, the zero job if the text describes none.
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

// errno returns the name of the error with which calls fail, "" if none does.
func (j job) errno() string {
	if _, e, _ := strings.Cut(j.fault, "="); strings.HasPrefix(e, "E") {
		return e
	}
	return ""
}

// byStrace reports whether strace makes the fault.
func (j job) byStrace() bool { return j.t.call != seccompRuns && j.t.call != shortRuns }

// use begins the keys of a mode on a backend in driver.counts.
func (j job) use() string { return j.backend + " " + j.mode.name + " " }

// uses returns jobs without faults: each mode on each of its backends. Without a ring, the Linux backend differs only where there
// are many files.
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
	only   string
	random *rand.Rand
	dir    string
	counts map[string]int // of a call in one thread of a run without faults, by backend, mode and call

	losses, repeated atomic.Int64 // repeated has runs made again since strace itself failed

	mu      sync.Mutex                // guards what follows
	table   map[string]map[string]int // by the call, or all calls, and a column
	errors  map[string]bool           // by the call and the error
	slowest time.Duration
}

// drive makes a pass and goes on at random until the time is over, or makes one pass if it is 0.
func (d *driver) drive(limit time.Duration) (err error) {
	if _, err := exec.LookPath("strace"); err != nil {
		return errors.New("faults needs strace")
	}
	if d.dir, err = os.MkdirTemp("", "faults"); err != nil {
		return err
	}
	defer os.RemoveAll(d.dir)
	if err := d.prepare(); err != nil {
		return err
	}
	only := parseJob(d.only)
	if only.backend == "" {
		if err := d.count(); err != nil {
			return err
		}
	}
	start := time.Now()
	if limit > 0 {
		var cancel context.CancelFunc
		d.ctx, cancel = context.WithTimeout(d.ctx, limit)
		defer cancel()
	}
	if only.backend != "" {
		d.run("this combination", []job{only})
	} else {
		filtered, short := d.withoutStrace()
		d.run("under seccomp", filtered)
		d.run("with short counts", short)
		pass := d.plan()
		d.run("of the pass", pass)
		for limit > 0 && len(pass) > 0 && !d.over() {
			d.run("", d.randomly(pass, 500))
		}
	}
	d.print()
	fmt.Printf("%s, slowest run %s; %d runs were repeated since strace failed\nlosses: %d\n",
		time.Since(start).Round(time.Second), d.slowest.Round(time.Millisecond), d.repeated.Load(), d.losses.Load())
	if n := d.losses.Load(); n > 0 {
		return fmt.Errorf("%d losses", n)
	}
	return nil
}

func (d *driver) over() bool { return d.ctx.Err() != nil || d.losses.Load() > maxLosses }

// prepare writes the trees and builds the binaries.
func (d *driver) prepare() error {
	for _, name := range []string{"small", "many", "links"} {
		if err := plant(name, d.tree(name)); err != nil {
			return err
		}
	}
	syscall.Sync() // only what is on the disk can be dropped from the page cache
	planted := time.Now()
	for _, b := range backends {
		cmd := exec.CommandContext(d.ctx, "go", "build", "-tags", b.tags, "-o", filepath.Join(d.dir, b.name), "./break")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", cmd, err, out)
		}
	}
	time.Sleep(fsinfo.Settled - time.Since(planted)) // package incremental saves nothing of files that may have changed since
	return nil
}

func (d *driver) tree(name string) string { return filepath.Join(d.dir, "trees", name) }

// victim returns the command that runs j in a process of its own. Scratch is the directory for its cache file.
func (d *driver) victim(j job, scratch string) []string {
	return []string{filepath.Join(d.dir, j.backend), "faults", "-run", j.String(), "-root", d.tree(j.mode.tree),
		"-cache", filepath.Join(scratch, "cache")}
}

// strace runs j under strace, which looks at these calls, and returns what it logs. With paths, it looks at calls with the tree
// or the cache file alone.
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
		d.repeated.Add(1)
		out, err = d.command(args)
	}
	text, errLog := os.ReadFile(logFile)
	return out, string(text), errors.Join(err, errLog)
}

// count finds out which calls each mode makes, and how often in one thread.
func (d *driver) count() error {
	for _, j := range uses() {
		for _, paths := range []bool{true, false} {
			var calls []string
			for _, t := range targets {
				if t.paths == paths {
					calls = append(calls, "?"+t.call)
				}
			}
			scratch := filepath.Join(d.dir, "count")
			if err := errors.Join(os.RemoveAll(scratch), os.Mkdir(scratch, 0o755)); err != nil {
				return err
			}
			out, log, err := d.strace(j, scratch, strings.Join(calls, ","), paths)
			if err != nil || strings.Contains(out, "failed ") {
				return fmt.Errorf("without a fault: %v: %s\n%s", err, j, out)
			}
			threads := map[string]int{}
			for line := range strings.Lines(log) {
				if tid, call, ok := callOf(line); ok {
					threads[tid+" "+call]++
					d.counts[j.use()+call] = max(d.counts[j.use()+call], threads[tid+" "+call])
				}
			}
		}
	}
	return nil
}

// callOf returns the thread and the call of a line of strace's.
func callOf(line string) (tid, call string, ok bool) {
	tid, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	call, _, ok = strings.Cut(strings.TrimSpace(rest), "(")
	return tid, call, ok && !strings.HasPrefix(call, "<") && !strings.Contains(call, " ")
}

// plan returns the combinations of a pass: the first calls of all, then the others.
func (d *driver) plan() (pass []job) {
	const every, all = "2+3", "1+"
	seen := map[string]bool{}
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
					case waits(j.errno()): // each attempt of an operation may make several calls
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
			return had
		})
		pass = append(pass, d.chosen(part)...)
	}
	return pass
}

// chosen returns those of the jobs that -only names, in random order.
func (d *driver) chosen(jobs []job) []job {
	jobs = slices.DeleteFunc(jobs, func(j job) bool { return !strings.Contains(j.String(), d.only) })
	d.random.Shuffle(len(jobs), func(i, k int) { jobs[i], jobs[k] = jobs[k], jobs[i] })
	return jobs
}

// randomly returns n combinations of the pass at random positions.
func (d *driver) randomly(pass []job, n int) (jobs []job) {
	for range n {
		j := pass[d.random.Intn(len(pass))]
		calls := d.counts[j.use()+j.t.call]
		j.when = fmt.Sprint(1 + d.random.Intn(calls))
		if step := 2 + d.random.Intn(9); d.random.Intn(2) == 0 {
			switch errno := j.errno(); {
			case errno == "":
				step += calls / 10
			case waits(errno):
				step += 5
			}
			j.when += fmt.Sprint("+", step)
		}
		jobs = append(jobs, j)
	}
	return jobs
}

// run runs the jobs, two at a time, until the time is over, and prints how many it has run if they have a name.
func (d *driver) run(name string, jobs []job) {
	var wg sync.WaitGroup
	var next, done atomic.Int64
	start := time.Now()
	for worker := range min(2, runtime.NumCPU()) {
		wg.Go(func() {
			for k := next.Add(1); k <= int64(len(jobs)) && !d.over(); k = next.Add(1) {
				d.one(jobs[k-1], filepath.Join(d.dir, fmt.Sprint("run", worker)))
				done.Add(1)
			}
		})
	}
	if wg.Wait(); name != "" {
		fmt.Printf("%d of %d runs %s in %s\n", done.Load(), len(jobs), name, time.Since(start).Round(time.Second))
	}
}

// one runs j in an empty scratch directory and judges what it did.
func (d *driver) one(j job, scratch string) {
	if err := errors.Join(os.RemoveAll(scratch), os.Mkdir(scratch, 0o755)); err != nil {
		d.lost(j, err.Error())
		return
	}
	var out, log string
	var err error
	start, injected := time.Now(), 2 // an unknown number
	if j.byStrace() {
		out, log, err = d.strace(j, scratch, j.t.call, j.t.paths, "-e", "inject="+j.t.call+":"+j.fault+":when="+j.when)
		injected = strings.Count(log, "(INJECTED)") + strings.Count(log, "(DELAYED)")
	} else {
		out, err = d.command(d.victim(j, scratch))
	}
	if d.ctx.Err() != nil {
		return
	}
	d.judge(j, out, err, injected, time.Since(start))
	if j.mode.name == "again" && err == nil { // what the cache file has now must be right
		clean := job{backend: j.backend, mode: j.mode}
		if out, err := d.command(d.victim(clean, scratch)); d.ctx.Err() == nil && (err != nil || strings.Contains(out, "failed ")) {
			d.lost(j, "with the cache file that it leaves: "+out)
		}
	}
}

// command runs a program until patience is over, in a process group of its own.
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

// judge decides what became of a run.
func (d *driver) judge(j job, out string, err error, injected int, took time.Duration) {
	var delivered, failed, leaked int
	_, e := fmt.Sscanf(out[max(0, strings.LastIndex(out, "delivered=")):], "delivered=%d failed=%d leaked=%d", &delivered, &failed, &leaked)
	counted := e == nil
	errno := j.errno()
	// A runtime that ends the process is no loss, nor is a filter that kills it.
	byRuntime := strings.Contains(out, "fatal error: ") || strings.Contains(out, "runtime: ")
	ended := byRuntime && !counted && !j.t.paths && !strings.Contains(out, "LOSS")
	var exit *exec.ExitError
	if j.t.call == seccompRuns && errno == "" && errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == unix.SIGSYS {
		ended = true
	}
	// Strace does not make the call, so its descriptor stays open; a file that stays locked is closed by the garbage collector.
	if (j.t.call == "close" || j.t.call == "flock") && errno != "" {
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
	case failed > 0 && injected == 0:
		why = "files failed without a fault"
	case failed > 0 && j.t.absorbed:
		why = "files failed although the run has another way"
	case failed > 0 && errno == "":
		why = "files failed because of a delay or a signal"
	case failed > 0 && injected == 1 && retried(j.t.call, errno) &&
		(j.mode.name != "readdir" || errno == "EINTR"): // ReadDir waits no more than os.ReadDir
		why = "a file failed with an error after which the call is to be made again"
	}
	if why != "" {
		d.lost(j, why+"\n"+out)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.slowest = max(d.slowest, took)
	column := "no failure"
	switch {
	case ended:
		column = "ended"
	case failed > 0:
		column = "reported"
	}
	for _, line := range []string{j.t.call, "all"} {
		if line == "all" && !j.byStrace() {
			break
		}
		if d.table[line] == nil {
			d.table[line] = map[string]int{}
		}
		row := d.table[line]
		row["runs"]++
		row["injections"] += injected
		row[column]++
		if injected == 0 {
			row["not reached"]++
		}
		if key := line + " " + errno; errno != "" && !d.errors[key] {
			d.errors[key] = true
			row["errors"]++
		}
	}
}

func (d *driver) lost(j job, why string) {
	if d.losses.Add(1) <= maxLosses {
		why = strings.ReplaceAll(strings.TrimSpace(why), "\n", "\n   ")
		fmt.Printf("LOSS in %s\n   %s\n   to repeat: (cd scripts && go run ./break faults -only '%[1]s')\n", j, why)
	}
}

func (d *driver) print() {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer w.Flush()
	columns := []string{"errors", "runs", "injections", "not reached", "no failure", "reported", "ended"}
	fmt.Fprintf(w, "call\t%s\t\n", strings.Join(columns, "\t"))
	for _, line := range slices.Sorted(maps.Keys(d.table)) {
		fmt.Fprint(w, line, "\t")
		for _, column := range columns {
			fmt.Fprint(w, d.table[line][column], "\t")
		}
		fmt.Fprintln(w)
	}
}
