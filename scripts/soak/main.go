//go:build linux

// Command soak runs fileproc on random trees with random options while others change some of the files, ends many runs
// early, and checks every byte, the ledger and what is left behind. It stops at the first thing that is wrong.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/testtree"
	"golang.org/x/sys/unix"
)

func main() {
	duration := flag.Duration("for", time.Minute, "how long to run")
	seed := flag.Int64("seed", 1, "of the first tree; those that follow have the next numbers")
	dir := flag.String("dir", "", "parent of the trees (default: the temporary directory)")
	cold := flag.Bool("cold", false, "drop the machine's caches now and then (root)")
	makeTree := flag.String("make", "", "only write the tree of -seed into this new directory")
	checkTree := flag.String("check", "", "only check the tree of -seed in this directory, as on a read-only file system")
	flag.Parse()

	var err error
	switch {
	case *makeTree != "":
		if err = os.Mkdir(*makeTree, 0o755); err == nil {
			_, err = plant(rand.New(rand.NewSource(*seed)), *makeTree, false)
		}
	case *checkTree != "":
		err = check(*checkTree, *seed)
	default:
		err = soak(*dir, *seed, *duration, *cold)
	}
	if err != nil {
		fmt.Println("WRONG:", err)
		os.Exit(1)
	}
}

// A tree is a directory of files that never change and of files whose name begins with "m", which do.
type tree struct {
	root   string
	still  map[string]bool // by path relative to root
	moving []string        // paths
}

// plant writes a random tree into the empty directory root.
func plant(random *rand.Rand, root string, moving bool) (*tree, error) {
	t := &tree{root: root, still: map[string]bool{}}
	var fill func(rel string, depth, dirs int) error
	fill = func(rel string, depth, dirs int) error {
		files := random.Intn(40)
		if random.Intn(6) == 0 || depth == 0 {
			files = random.Intn(2500)
		}
		for i := range files {
			name := rel + fmt.Sprintf("f%04d%s", i, []string{"", ".a", ".b"}[i%3])
			if err := os.WriteFile(filepath.Join(root, name), testtree.BytesOf(name), 0o644); err != nil {
				return err
			}
			t.still[name] = true
			if moving && i%8 == 0 {
				path := filepath.Join(root, rel, fmt.Sprintf("m%04d", i))
				if err := os.WriteFile(path, []byte("mmm"), 0o644); err != nil {
					return err
				}
				t.moving = append(t.moving, path)
			}
		}
		for i := range dirs {
			sub := rel + fmt.Sprintf("d%02d/", i)
			if err := os.Mkdir(filepath.Join(root, sub), 0o755); err != nil {
				return err
			}
			if err := fill(sub, depth+1, random.Intn(4-min(depth, 3))); err != nil {
				return err
			}
		}
		return nil
	}
	return t, fill("", 0, random.Intn(8))
}

// A trial is one run and how it is to end.
type trial struct {
	opts  fileproc.Options
	entry string // Process, Stream or Walk
	end   string // "" for a run that comes to its own end
	at    int64  // the call at which it ends
	cold  bool
	files uint64 // the limit of descriptors
	procs int
}

func newTrial(random *rand.Rand, t *tree, cold bool) trial {
	pick := func(s ...string) string { return s[random.Intn(len(s))] }
	c := trial{
		entry: pick("Process", "Process", "Stream", "Walk"),
		end:   pick("", "", "", "cancel", "timer", "panic", "Goexit", "SkipAll", "OnError", "break"),
		at:    1 + random.Int63n(int64(len(t.still)+1)),
		files: []uint64{40, 64, 1024, 1024, 1024}[random.Intn(5)],
		procs: 1 + random.Intn(4),
		cold:  cold && random.Intn(40) == 0,
	}
	c.opts.Workers = 1 + random.Intn(4)
	if random.Intn(3) == 0 {
		c.opts.Workers = 1 + random.Intn(64)
	}
	c.opts.DisableURing = random.Intn(4) == 0
	switch random.Intn(8) {
	case 0:
		c.opts.ReadSize = 1 + random.Intn(20_000)
	case 1:
		c.opts.ReadSize = []int{511, 512, 4095, 4096, 16 << 10}[random.Intn(5)]
	case 2:
		c.opts.ReadSize = fileproc.NoRead
	}
	c.opts.Stat = random.Intn(6) == 0
	if random.Intn(8) == 0 {
		c.opts.MaxFileSize = int64(1 + random.Intn(20_000))
	}
	if random.Intn(8) == 0 {
		c.opts.MaxDepth = 1 + random.Intn(3)
	}
	if random.Intn(8) == 0 {
		c.opts.Suffixes = []string{".a"}
	}
	if random.Intn(8) == 0 {
		c.opts.Select = func(f *fileproc.File) bool { return !strings.HasPrefix(f.Name(), "m") }
	}
	return c
}

func (c trial) String() string {
	o := c.opts
	return fmt.Sprintf("%s, end %q at %d, %d descriptors, GOMAXPROCS %d: Workers %d, DisableURing %v, ReadSize %d, Stat %v, MaxFileSize %d, MaxDepth %d, Suffixes %q, Select %v",
		c.entry, c.end, c.at, c.files, c.procs, o.Workers, o.DisableURing, o.ReadSize, o.Stat, o.MaxFileSize, o.MaxDepth, o.Suffixes, o.Select != nil)
}

// wants says whether a run that comes to its end delivers the unchanging file rel, rather than leaving it out or failing.
func (c trial) wants(rel string) bool {
	o := c.opts
	depth := 1 + strings.Count(rel, "/")
	return (o.MaxDepth == 0 || depth <= o.MaxDepth) && (o.Suffixes == nil || strings.HasSuffix(rel, ".a")) && !c.tooLarge(rel)
}

func (c trial) tooLarge(rel string) bool {
	return c.entry != "Walk" && c.opts.ReadSize == 0 && c.opts.MaxFileSize > 0 && int64(len(testtree.BytesOf(rel))) > c.opts.MaxFileSize
}

// A witness sees what a run delivers and tells.
type witness struct {
	trial
	t     *tree
	calls atomic.Int64

	mu    sync.Mutex // guards what follows
	seen  map[string]bool
	wrong error
	bytes int64
}

func (w *witness) object(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.wrong == nil {
		w.wrong = fmt.Errorf(format, args...)
	}
}

func (w *witness) deliver(rel string, bytes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seen[rel] && w.wrong == nil {
		w.wrong = fmt.Errorf("%s is delivered twice", rel)
	}
	w.seen[rel] = true
	w.bytes += int64(bytes)
}

func (w *witness) file(f *fileproc.File) {
	rel := f.Rel()
	if strings.HasPrefix(f.Name(), "m") {
		// A file that is being truncated and extended may read as zeros in between.
		if i := bytes.IndexFunc(f.Data(), func(r rune) bool { return r != 'm' && r != 0 }); i >= 0 {
			w.object("%s: byte %d is %q", rel, i, f.Data()[i])
		}
		return
	}
	want := testtree.BytesOf(rel)
	part := want
	switch size := w.opts.ReadSize; {
	case size == fileproc.NoRead:
		part = nil
	case size > 0:
		part = want[:min(size, len(want))]
	}
	if !bytes.Equal(f.Data(), part) {
		w.object("%s: %d bytes that are not the first %d of %d", rel, len(f.Data()), len(part), len(want))
	}
	if f.Truncated() != (part != nil && len(part) < len(want)) {
		w.object("%s: Truncated is %v", rel, f.Truncated())
	}
	if s, err := f.Stat(); w.opts.Stat && (err != nil || s.Size != int64(len(want))) {
		w.object("%s: Stat says %+v, %v", rel, s, err)
	}
	w.deliver(rel, len(part))
}

// failure checks that what fails is what may.
func (w *witness) failure(err error) {
	var p *fs.PathError
	if !errors.As(err, &p) {
		w.object("an error without a path: %v", err)
		return
	}
	rel, _ := filepath.Rel(w.t.root, p.Path)
	switch {
	case errors.Is(err, errEnough):
	case w.t.still[rel] && !(errors.Is(err, fileproc.ErrTooLarge) && w.tooLarge(rel)):
		w.object("a failure of an unchanging file: %v", err)
	case !w.t.still[rel] && !strings.HasPrefix(filepath.Base(rel), "m"):
		w.object("a failure of a directory: %v", err)
	}
}

var errEnough = errors.New("enough")

// run runs the trial and returns whether it came to its own end.
func (w *witness) run() (whole bool) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var ended atomic.Bool
	reached := func() bool { return w.end != "" && w.calls.Add(1) == w.at && !ended.Swap(true) }
	opts := w.opts
	opts.OnError = func(err error) error { // so that none is lost among many
		w.failure(err)
		if errors.Is(err, errEnough) {
			return err
		}
		return nil
	}
	fn := func(f *fileproc.File) (struct{}, error) {
		w.file(f)
		if w.end == "break" || !reached() {
			return struct{}{}, nil
		}
		switch w.end {
		case "cancel":
			cancel()
		case "panic":
			panic(errEnough)
		case "Goexit":
			runtime.Goexit()
		case "SkipAll":
			return struct{}{}, fs.SkipAll
		case "OnError":
			return struct{}{}, errEnough
		}
		return struct{}{}, nil
	}
	if w.end == "timer" {
		timer := time.AfterFunc(time.Duration(w.at)*time.Microsecond, func() {
			ended.Store(true)
			cancel()
		})
		defer timer.Stop()
	}
	done := make(chan struct{})
	go func() { // Goexit ends it
		defer close(done)
		defer func() {
			if v := recover(); v != nil && !strings.Contains(fmt.Sprint(v), errEnough.Error()) {
				w.object("a panic: %v", v)
			}
		}()
		var err error
		switch w.entry {
		case "Process":
			_, err = fileproc.Process(ctx, w.t.root, opts, fn)
		case "Stream":
			for _, e := range fileproc.Stream(ctx, w.t.root, opts, fn) {
				err = errors.Join(err, e)
				if w.end == "break" && reached() {
					break
				}
			}
		case "Walk":
			for e, failure := range fileproc.Walk(ctx, w.t.root, opts) {
				err = errors.Join(err, failure)
				if failure == nil && !e.IsDir() && !strings.HasPrefix(e.Name(), "m") {
					w.deliver(e.Rel(), 0)
				}
				if reached() {
					break
				}
			}
		}
		if err != nil && !ended.Load() {
			w.object("the run failed: %v", err)
		}
	}()
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		pprof.Lookup("goroutine").WriteTo(os.Stderr, 2)
		w.object("a hang")
	}
	return !ended.Load()
}

// verdict checks the run as a whole.
func (w *witness) verdict(whole bool, r *fileproc.Report) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.wrong != nil {
		return w.wrong
	}
	sum := r.Processed + r.Failed + r.Abandoned
	for _, n := range r.Skipped {
		sum += n
	}
	if sum != r.Found {
		return fmt.Errorf("the ledger does not balance: %+v", r)
	}
	if whole && r.Abandoned != 0 {
		return fmt.Errorf("abandoned in a whole run: %+v", r)
	}
	for rel := range w.seen {
		if !w.t.still[rel] {
			return fmt.Errorf("%s is delivered and was never there", rel)
		}
		if !w.wants(rel) {
			return fmt.Errorf("%s is delivered and was not asked for", rel)
		}
	}
	if whole {
		for rel := range w.t.still {
			if w.wants(rel) && !w.seen[rel] {
				return fmt.Errorf("%s was not delivered", rel)
			}
		}
	}
	return nil
}

// A trace is what a process holds.
type trace struct{ goroutines, descriptors, rings, ringMappings int }

func traces() trace {
	t := trace{goroutines: runtime.NumGoroutine()}
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		link, _ := os.Readlink("/proc/self/fd/" + e.Name())
		if strings.Contains(link, "io_uring") {
			t.rings++
		}
	}
	t.descriptors = len(entries)
	maps, _ := os.ReadFile("/proc/self/maps")
	t.ringMappings = bytes.Count(maps, []byte("io_uring"))
	return t
}

// left returns what there is more than before, once what is about to end has ended.
func left(before trace) error {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		now := traces()
		if now.goroutines <= before.goroutines && now.descriptors <= before.descriptors && now.rings == 0 && now.ringMappings == 0 {
			return nil
		}
		if now.descriptors > before.descriptors || now.rings > 0 || now.ringMappings > 0 || time.Now().After(deadline) {
			return fmt.Errorf("left behind: %+v, before %+v", now, before)
		}
	}
}

func memory() (virtual, resident int) { // in MiB
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		fmt.Sscanf(line, "VmSize: %d", &virtual)
		fmt.Sscanf(line, "VmRSS: %d", &resident)
	}
	return virtual >> 10, resident >> 10
}

func limitFiles(n uint64) {
	var l unix.Rlimit
	unix.Getrlimit(unix.RLIMIT_NOFILE, &l)
	l.Cur = min(n, l.Max)
	unix.Setrlimit(unix.RLIMIT_NOFILE, &l)
}

type tally struct {
	trees, whole, early int
	files, bytes        int64
}

func soak(parent string, seed int64, duration time.Duration, cold bool) error {
	base, err := os.MkdirTemp(parent, "soak")
	if err != nil {
		return err
	}
	defer os.RemoveAll(base)
	var sum tally
	start := time.Now()
	told := start
	virtual, _ := memory()
	for time.Since(start) < duration {
		if err := epoch(base, seed, start.Add(duration), cold, &sum); err != nil {
			return fmt.Errorf("%w\nto see it again: -seed %d", err, seed)
		}
		seed++
		if time.Since(told) > time.Minute {
			told = time.Now()
			sum.tell(start)
		}
	}
	sum.tell(start)
	runtime.GC()
	if now, _ := memory(); now > virtual+2048 {
		return fmt.Errorf("%d MiB of address space, %d at the beginning", now, virtual)
	}
	fmt.Println("nothing wrong")
	return nil
}

func (s *tally) tell(start time.Time) {
	virtual, resident := memory()
	fmt.Printf("%s: %d trees, %d whole runs, %d ended early, %d files, %d MiB checked; %d goroutines, %d MiB resident, %d MiB of address space\n",
		time.Since(start).Round(time.Second), s.trees, s.whole, s.early, s.files, s.bytes>>20, runtime.NumGoroutine(), resident, virtual)
}

// epoch makes one tree and runs some trials on it while writers change what may change.
func epoch(base string, seed int64, deadline time.Time, cold bool, sum *tally) error {
	testtree.ForgetBytes() // or the memory that is told grows with the trees
	random := rand.New(rand.NewSource(seed))
	root := filepath.Join(base, fmt.Sprint(seed))
	if err := os.Mkdir(root, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(root)
	t, err := plant(random, root, true)
	if err != nil {
		return err
	}
	sum.trees++
	var writers sync.WaitGroup
	var quiet sync.RWMutex // held by a writer while it changes something
	stop := make(chan struct{})
	if len(t.moving) > 0 {
		for i := range 2 {
			random := rand.New(rand.NewSource(seed + int64(i)))
			aside := filepath.Join(base, fmt.Sprintf("aside%d", i))
			writers.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						quiet.RLock()
						testtree.Disturb(random, t.moving[random.Intn(len(t.moving))], aside)
						quiet.RUnlock()
					}
				}
			})
		}
	}
	defer writers.Wait()
	defer close(stop)
	for range 30 {
		if time.Now().After(deadline) {
			return nil
		}
		quiet.Lock()
		before := traces()
		quiet.Unlock()
		w := &witness{trial: newTrial(random, t, cold), t: t, seen: map[string]bool{}}
		var report fileproc.Report
		w.opts.Report = &report
		if w.cold {
			unix.Sync()
			os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0)
		}
		procs := runtime.GOMAXPROCS(w.procs)
		limitFiles(w.files)
		whole := w.run()
		limitFiles(1 << 20)
		runtime.GOMAXPROCS(procs)
		err := w.verdict(whole, &report)
		if err == nil {
			quiet.Lock()
			err = left(before)
			quiet.Unlock()
		}
		if err != nil {
			return fmt.Errorf("%w\nin %v", err, w.trial)
		}
		if whole {
			sum.whole++
		} else {
			sum.early++
		}
		sum.files += int64(len(w.seen))
		sum.bytes += w.bytes
	}
	return nil
}

// check runs over a tree that plant wrote, with many options and no writers.
func check(root string, seed int64) error {
	scratch, err := os.MkdirTemp("", "soak")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	t, err := plant(rand.New(rand.NewSource(seed)), scratch, false)
	if err != nil {
		return err
	}
	t.root = root
	random := rand.New(rand.NewSource(seed))
	var sum tally
	start := time.Now()
	for range 100 {
		w := &witness{trial: newTrial(random, t, false), t: t, seen: map[string]bool{}}
		var report fileproc.Report
		w.opts.Report = &report
		whole := w.run()
		if err := w.verdict(whole, &report); err != nil {
			return fmt.Errorf("%w\nin %v", err, w.trial)
		}
		sum.whole++
		sum.files += int64(len(w.seen))
		sum.bytes += w.bytes
	}
	sum.tell(start)
	return nil
}
