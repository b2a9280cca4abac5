//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// Package faults makes each system call of the package fail with each of its errors, in processes of their own under strace's
// injection and under seccomp, and checks that nothing is lost: each run ends in time, its ledger balances, each file is right or
// failed with its error, and nothing stays open.
//
// Usage: go run ./break faults [-minutes N] [-seed S]     needs strace
//
// The first pass is systematic: each call with each error in each mode and backend, at its first call, then at a middle one, the
// last, and every nth. When the pass is over, positions are random until the time is. -minutes 0 makes one pass. It ends with
// status 1 at a loss, and prints the command that repeats it.
package faults

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// patience is how long one run may take.
const patience = 90 * time.Second

// Main runs the command faults.
func Main(_ context.Context, args []string) error {
	flags := flag.NewFlagSet("faults", flag.ContinueOnError)
	minutes := flags.Float64("minutes", 2, "how long to run; 0: one pass")
	seed := flags.Int64("seed", 1, "seed of the order and of the random positions")
	only := flags.String("only", "", "only combinations whose description contains this")
	keep := flags.String("keep", "", "keep the binaries and the trees in this directory, so that a printed command can be repeated")
	list := flags.Bool("list", false, "only print the combinations")
	run := flags.String("run", "", "run this mode in this process (what the driver starts)")
	root := flags.String("root", "", "with -run: the tree")
	cache := flags.String("cache", "", "with -run again: the cache file")
	short := flags.Int64("short", 0, "with -run: give short counts at random, with this seed")
	launch := flags.String("launch", "", "with -run: start it under this seccomp filter")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch {
	case *launch != "":
		return launchUnder(*launch, *run, *root, *cache)
	case *run != "":
		os.Exit(runVictim(*run, *root, *cache, *short))
	}
	d := &driver{time: time.Duration(*minutes * float64(time.Minute)), onePass: *minutes == 0, only: *only, list: *list,
		random: rand.New(rand.NewSource(*seed)), table: map[string]*row{}}
	return d.drive(*keep)
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
	fault   string // as strace names it
	errno   string // "" for a delay or a signal
	when    string
	filter  bool // the fault is a seccomp filter's name
	short   int  // the seed of short counts, if not 0
}

func (j job) String() string {
	return fmt.Sprintf("%s %s %s %s when=%s", j.backend, j.mode.name, j.t.call, j.fault, j.when)
}

// A row is a line of the table: what became of the runs with errors in one call.
type row struct {
	errors                                      map[string]bool
	runs, injections, absorbed, reported, ended int
}

type driver struct {
	time     time.Duration
	deadline time.Time
	onePass  bool
	list     bool
	only     string
	random   *rand.Rand
	dir      string
	counts   map[string]int // of a call in one thread of a run without faults, by backend, mode and call

	mu       sync.Mutex // guards what follows
	table    map[string]*row
	losses   int
	missed   int
	slowest  time.Duration
	filtered row
	// shortened has the runs with short counts.
	shortened row
	repeated  int // runs made again since strace itself failed
}

func (d *driver) drive(keep string) error {
	if _, err := exec.LookPath("strace"); err != nil {
		return errors.New("faults needs strace")
	}
	var err error
	if d.dir = keep; keep == "" {
		if d.dir, err = os.MkdirTemp("", "faults"); err != nil {
			return err
		}
		defer os.RemoveAll(d.dir)
	}
	if d.dir, err = filepath.Abs(d.dir); err != nil {
		return err
	}
	if err := d.prepare(); err != nil {
		return err
	}
	start := time.Now()
	if err := d.count(); err != nil {
		return err
	}
	pass := d.plan()
	if d.list {
		for _, j := range pass {
			fmt.Println(j)
		}
		return nil
	}
	fmt.Printf("%d combinations in a pass\n", len(pass))
	d.deadline = time.Now().Add(d.time)
	filtered := d.underFilters()
	if d.run(filtered) == len(filtered) {
		f := d.filtered
		fmt.Printf("seccomp: %d filters, %d runs in %s: %d without failures, %d reported, %d killed by the kernel\n",
			len(filters), f.runs, time.Since(start).Round(time.Second), f.absorbed, f.reported, f.ended)
	}
	start = time.Now()
	short := d.withShortCounts()
	if d.run(short) == len(short) {
		fmt.Printf("short counts: %d runs in %s\n", d.shortened.runs, time.Since(start).Round(time.Second))
	}
	start = time.Now()
	done := d.run(pass)
	took := time.Since(start).Round(time.Second)
	if done == len(pass) {
		fmt.Printf("the pass took %s\n", took)
		for !d.over() && !d.onePass {
			d.run(d.randomly(500))
		}
	}
	d.print()
	fmt.Printf("%d of %d combinations of the pass, %s, slowest run %s\n", done, len(pass), time.Since(start).Round(time.Second), d.slowest.Round(time.Millisecond))
	fmt.Printf("losses: %d\n", d.losses)
	if d.losses > 0 {
		return fmt.Errorf("%d runs lost something", d.losses)
	}
	return nil
}

func (d *driver) over() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.onePass && time.Now().After(d.deadline) || d.losses > 20
}

// prepare builds the binaries and writes the trees.
func (d *driver) prepare() error {
	if err := os.MkdirAll(d.dir, 0o755); err != nil {
		return err
	}
	for _, b := range backends {
		cmd := exec.Command("go", "build", "-tags", b.tags, "-o", filepath.Join(d.dir, b.name), "./break")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", cmd, err, out)
		}
	}
	for _, name := range []string{"small", "many", "links"} {
		root := filepath.Join(d.dir, "trees", name)
		if _, err := os.Stat(root); err == nil {
			continue
		}
		if err := plant(name, root); err != nil {
			return err
		}
	}
	syscall.Sync() // only what is on the disk can be dropped from the page cache
	return nil
}

// victimArgs are the arguments of the process that runs j.
func (d *driver) victimArgs(j job, scratch string) []string {
	return []string{filepath.Join(d.dir, j.backend), "faults", "-run", j.mode.name, "-root", filepath.Join(d.dir, "trees", j.mode.tree), "-cache", filepath.Join(scratch, "cache")}
}

// pathArgs restrict strace to the tree, and to the cache file.
func (d *driver) pathArgs(j job, scratch string) (args []string) {
	root := filepath.Join(d.dir, "trees", j.mode.tree)
	paths := []string{root, "anon_inode:[io_uring]"}
	dirs := map[string]bool{}
	for rel := range treeAll(j.mode.tree) {
		for at := filepath.Dir(rel); at != "."; at = filepath.Dir(at) {
			dirs[at] = true
		}
		if j.mode.tree != "many" {
			paths = append(paths, filepath.Join(root, rel))
		}
	}
	for dir := range dirs {
		paths = append(paths, filepath.Join(root, dir))
	}
	if j.mode.name == "again" {
		for _, end := range []string{"", ".lock", ".fileproc-tmp"} {
			paths = append(paths, filepath.Join(scratch, "cache"+end))
		}
	}
	slices.Sort(paths)
	for _, path := range paths {
		args = append(args, "-P", path)
	}
	return args
}

// count finds out which calls each mode makes, and how often in one thread.
func (d *driver) count() error {
	d.counts = map[string]int{}
	for _, b := range backends {
		for _, m := range modes {
			j := job{backend: b.name, mode: m}
			if !j.applies() {
				continue
			}
			for _, paths := range []bool{true, false} {
				scratch, err := os.MkdirTemp(d.dir, "count")
				if err != nil {
					return err
				}
				log := filepath.Join(scratch, "log")
				args := []string{"-f", "--seccomp-bpf", "-qq", "-o", log, "-e", "trace=" + callList(paths)}
				if paths {
					args = append(args, d.pathArgs(j, scratch)...)
				}
				cmd := exec.Command("strace", append(append(args, "--"), d.victimArgs(j, scratch)...)...)
				out, err := cmd.CombinedOutput()
				if err != nil || strings.Contains(string(out), "failed ") {
					return fmt.Errorf("without a fault: %v: %s\n%s", err, j, out)
				}
				text, err := os.ReadFile(log)
				if err != nil {
					return err
				}
				threads := map[string]int{}
				for line := range strings.Lines(string(text)) {
					if tid, call, ok := callOf(line); ok {
						threads[tid+" "+call]++
						key := b.name + " " + m.name + " " + call
						d.counts[key] = max(d.counts[key], threads[tid+" "+call])
					}
				}
				os.RemoveAll(scratch)
			}
		}
	}
	return nil
}

// applies reports whether the mode is run on the backend, and the call is one for it. Without a ring, the Linux backend differs
// only where there are many files.
func (j job) applies() bool {
	switch {
	case j.mode.backends != nil && !slices.Contains(j.mode.backends, j.backend):
		return false
	case j.backend == "nouring" && j.mode.backends == nil && j.mode.name != "process" && j.mode.name != "ordered":
		return false
	}
	return !j.t.few || j.backend == "linux" && slices.Contains([]string{"process", "many", "cold", "again"}, j.mode.name)
}

func callList(paths bool) string {
	var calls []string
	for _, t := range targets {
		if t.paths == paths {
			calls = append(calls, "?"+t.call)
		}
	}
	return strings.Join(calls, ",")
}

// callOf returns the thread and the call of a line of strace's.
func callOf(line string) (tid, call string, ok bool) {
	tid, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	call, _, ok = strings.Cut(strings.TrimSpace(rest), "(")
	return tid, call, ok && !strings.HasPrefix(call, "<") && !strings.Contains(call, " ")
}

// plan returns the combinations of a pass: the first calls of all, then the others.
func (d *driver) plan() (pass []job) {
	positions := []func(n int) string{
		func(int) string { return "1" },
		func(n int) string { return strconv.Itoa(n/2 + 1) },
		strconv.Itoa,
		func(int) string { return "1+2" },
		func(int) string { return "2+3" },
		func(int) string { return "1+" },
	}
	seen := map[string]bool{}
	for k, when := range positions {
		var part []job
		for _, b := range backends {
			for _, m := range modes {
				for _, t := range targets {
					n := d.counts[b.name+" "+m.name+" "+t.call]
					j := job{backend: b.name, mode: m, t: t, when: when(n)}
					if n == 0 || !j.applies() {
						continue
					}
					for _, e := range t.errnos() {
						j.fault, j.errno, j.when = "error="+e, e, when(n)
						switch {
						case j.when == "1+" && (e == "EINTR" || waits(e)):
							continue
						case waits(e): // each attempt of an operation may make several calls
							j.when = strings.ReplaceAll(strings.ReplaceAll(j.when, "+2", "+7"), "+3", "+11")
						}
						part = append(part, j)
					}
					j.errno = ""
					if k == 0 || k == 4 {
						for _, f := range []string{"delay_enter=20000", "delay_exit=20000", "signal=SIGURG"} {
							if j.fault = f; k == 4 && n > 200 {
								j.when = fmt.Sprintf("2+%d", n/20)
							}
							part = append(part, j)
						}
					}
				}
			}
		}
		part = slices.DeleteFunc(part, func(j job) bool {
			had := seen[j.String()]
			seen[j.String()] = true
			return had || !strings.Contains(j.String(), d.only)
		})
		d.random.Shuffle(len(part), func(i, k int) { part[i], part[k] = part[k], part[i] })
		pass = append(pass, part...)
	}
	return pass
}

// randomly returns n combinations with random positions.
func (d *driver) randomly(n int) (jobs []job) {
	pass := d.plan()
	if len(pass) == 0 {
		return nil
	}
	for range n {
		j := pass[d.random.Intn(len(pass))]
		calls := d.counts[j.backend+" "+j.mode.name+" "+j.t.call]
		j.when = strconv.Itoa(1 + d.random.Intn(calls))
		if d.random.Intn(2) == 0 {
			step := 2 + d.random.Intn(9)
			if waits(j.errno) {
				step += 5
			}
			if j.errno == "" {
				step += calls / 10
			}
			j.when += fmt.Sprintf("+%d", step)
		}
		jobs = append(jobs, j)
	}
	return jobs
}

// run runs the jobs, two at a time, and returns how many it has run before the time was over.
func (d *driver) run(jobs []job) (done int) {
	var (
		wg   sync.WaitGroup
		next int
		mu   sync.Mutex
	)
	for range min(2, runtime.NumCPU()) {
		wg.Go(func() {
			scratch, err := os.MkdirTemp(d.dir, "run")
			if err != nil {
				d.lost(job{}, "", err.Error())
				return
			}
			defer os.RemoveAll(scratch)
			for {
				mu.Lock()
				k := next
				next++
				mu.Unlock()
				if k >= len(jobs) || d.over() {
					return
				}
				d.one(jobs[k], scratch)
				mu.Lock()
				done++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return done
}

// one runs j and judges what it did.
func (d *driver) one(j job, scratch string) {
	log, cache := filepath.Join(scratch, "log"), filepath.Join(scratch, "cache")
	for _, end := range []string{"", ".lock", ".fileproc-tmp"} {
		os.Remove(cache + end)
	}
	if j.filter || j.short > 0 {
		d.withoutStrace(j, scratch)
		return
	}
	args := []string{"-f", "--seccomp-bpf", "-qq", "-o", log, "-e", "trace=" + j.t.call, "-e", "inject=" + j.t.call + ":" + j.fault + ":when=" + j.when}
	if j.t.paths {
		args = append(args, d.pathArgs(j, scratch)...)
	}
	args = append(append(args, "--"), d.victimArgs(j, scratch)...)
	env := []string{injectedVariable + "=" + j.errno}
	if j.t.call == "newfstatat" {
		env[0] += "-lookup"
	}
	start := time.Now()
	out, err := command(env, "strace", args...)
	for strings.Contains(string(out), "strace: ptrace(") { // a defect of strace when a thread ends
		out, err = command(env, "strace", args...)
		d.mu.Lock()
		d.repeated++
		d.mu.Unlock()
	}
	took := time.Since(start)
	text, _ := os.ReadFile(log)
	injected := strings.Count(string(text), "(INJECTED)") + strings.Count(string(text), "(DELAYED)")
	repeat := env[0] + " strace " + quoted(args)
	d.judge(j, repeat, string(out), err, injected, took)
	if j.mode.name == "again" && err == nil { // what the cache file has now must be right
		out, err := command(nil, d.victimArgs(j, scratch)[0], d.victimArgs(j, scratch)[1:]...)
		if err != nil || strings.Contains(string(out), "failed ") {
			d.lost(j, repeat, "with the cache file that it leaves: "+string(out))
		}
	}
}

// command runs a program until patience is over, in a process group of its own.
func command(env []string, name string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return out, errHangs
	}
	return out, err
}

var errHangs = fmt.Errorf("it did not end within %s", patience)

func quoted(args []string) string {
	var b strings.Builder
	for _, a := range args {
		if strings.ContainsAny(a, "[]() ") {
			a = "'" + a + "'"
		}
		b.WriteString(a + " ")
	}
	return b.String()
}

// judge decides what became of a run.
func (d *driver) judge(j job, repeat, out string, err error, injected int, took time.Duration) {
	var delivered, failed, leaked int
	at := strings.LastIndex(out, "delivered=")
	counted := at >= 0
	if counted {
		_, e := fmt.Sscanf(out[at:], "delivered=%d failed=%d leaked=%d", &delivered, &failed, &leaked)
		counted = e == nil
	}
	byRuntime := !j.t.paths && (strings.Contains(out, "fatal error: ") || strings.Contains(out, "runtime: ")) && !strings.Contains(out, "LOSS")
	if (j.t.call == "close" || j.t.call == "flock") && j.errno != "" { // strace does not make the call, so its descriptor stays open; a file that stays locked is closed by the garbage collector
		leaked = max(0, leaked-injected)
	}
	why := ""
	switch {
	case errors.Is(err, errHangs):
		why = err.Error()
	case byRuntime && !counted:
	case err != nil || !counted:
		why = fmt.Sprint("it ended with ", err)
	case leaked > 0:
		why = fmt.Sprintf("%d descriptors are left open", leaked)
	case failed > 0 && injected == 0:
		why = "files failed without a fault"
	case failed > 0 && j.errno == "":
		why = "files failed because of a delay or a signal"
	case failed > 0 && j.t.absorbed:
		why = "files failed although the run has another way"
	case failed > 0 && injected == 1 && retried(j.t.call, j.errno) && (j.mode.name != "readdir" || j.errno == "EINTR"): // ReadDir waits no more than os.ReadDir
		why = "a file failed with an error after which the call is to be made again"
	}
	if why != "" {
		d.lost(j, repeat, why+"\n"+out)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.table[j.t.call]
	if r == nil {
		r = &row{errors: map[string]bool{}}
		d.table[j.t.call] = r
	}
	r.runs++
	r.injections += injected
	if injected == 0 {
		d.missed++
	}
	if j.errno != "" {
		r.errors[j.errno] = true
	}
	d.slowest = max(d.slowest, took)
	switch {
	case byRuntime && !counted:
		r.ended++
	case failed > 0:
		r.reported++
	default:
		r.absorbed++
	}
}

func (d *driver) lost(j job, repeat, why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.losses++
	if d.losses <= 20 {
		fmt.Printf("LOSS in %s\n   %s\n   to repeat (with -keep DIR): %s\n", j, strings.ReplaceAll(strings.TrimSpace(why), "\n", "\n   "), repeat)
	}
}

func (d *driver) print() {
	fmt.Printf("%-18s %7s %7s %11s %11s %9s %17s\n", "call", "errors", "runs", "injections", "no failure", "reported", "ended by runtime")
	var sum row
	for _, t := range targets {
		r := d.table[t.call]
		if r == nil {
			continue
		}
		fmt.Printf("%-18s %7d %7d %11d %11d %9d %17d\n", t.call, len(r.errors), r.runs, r.injections, r.absorbed, r.reported, r.ended)
		sum.runs += r.runs
		sum.injections += r.injections
		sum.absorbed += r.absorbed
		sum.reported += r.reported
		sum.ended += r.ended
	}
	fmt.Printf("%-18s %7s %7d %11d %11d %9d %17d\n", "all", "", sum.runs, sum.injections, sum.absorbed, sum.reported, sum.ended)
	fmt.Printf("%d runs did not reach the call; %d were repeated since strace failed\n", d.missed, d.repeated)
}
