//go:build linux

// Package soak runs fileproc on random trees with random options while other goroutines change some of the files. It ends
// many runs early, and checks every byte, the counts of the report and leaks. It stops at the first error.
//
//	break soak [-for DURATION] [-seed N] [-dir DIR] [-cold]   random trees and options
//	break hostile ...    another process swaps links, FIFOs, devices and directories while runs read the tree
//	break churn ...      writers create, rename, delete, rewrite and replace while runs read the tree
//	break listing ...    the same in one directory, which bare getdents64 calls list too: some file systems lose files then
//	break limits ...     few descriptors, little memory, one processor, many runs at once, slow consumers, a deep chain
package soak

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

// Main is the command soak.
func Main(_ context.Context, args []string) error {
	flag := flag.NewFlagSet("soak", flag.ContinueOnError)
	duration := flag.Duration("for", time.Minute, "how long to run")
	seed := flag.Int64("seed", 1, "seed of the first tree; each further tree adds 1")
	dir := flag.String("dir", "", "parent of the trees (default: the temporary directory)")
	cold := flag.Bool("cold", false, "drop the machine's caches before some runs, with -check before each (root)")
	makeTree := flag.String("make", "", "only write the tree of -seed into this new directory")
	checkTree := flag.String("check", "", "only check the tree of -seed in this directory, which may be read-only")
	runs := flag.Int("runs", 100, "with -check: how many runs")
	compressible := flag.Bool("compressible", false, "with -make and -check: the files have contents that file systems can compress")
	locked := flag.Bool("locked", false, "with -check: the directory is encrypted and its key removed, so each file has to fail with ENOKEY")
	encryptDir := flag.String("encrypt", "", "only make this new directory encrypted, by a fixed key (root)")
	lockDir := flag.String("lock", "", "only remove the key of -encrypt from the file system of this directory (root)")
	unlockDir := flag.String("unlock", "", "only add the key of -encrypt to the file system of this directory (root)")
	if err := flag.Parse(args); err != nil {
		return err
	}
	if *compressible {
		contentOf = compressibleBytesOf
	}

	switch {
	case *makeTree != "":
		if err := os.Mkdir(*makeTree, 0o755); err != nil {
			return err
		}
		_, err := writeTree(rand.New(rand.NewSource(*seed)), *makeTree, false)
		return err
	case *checkTree != "" && *locked:
		return checkLocked(*checkTree, *seed, *runs, *cold)
	case *checkTree != "":
		return check(*checkTree, *seed, *runs, *cold)
	case *encryptDir != "":
		return encrypt(*encryptDir)
	case *lockDir != "":
		return lock(*lockDir)
	case *unlockDir != "":
		_, err := unlock(*unlockDir)
		return err
	}
	return soak(*dir, *seed, *duration, *cold)
}

// contentOf returns the content of the stable file rel.
var contentOf = testtree.BytesOf

// compressibleBytesOf returns content that file systems can compress, and in which no two blocks of 64 bytes are the same.
func compressibleBytesOf(rel string) []byte {
	p := bytes.Clone(testtree.BytesOf(rel))
	for i := range p {
		if i%64 >= 8 {
			p[i] = byte(i)
		}
	}
	return p
}

// A tree is a directory with stable files, and with files whose name begins with "m", which change.
type tree struct {
	root     string
	stable   map[string]bool // by path relative to root
	changing []string        // paths
}

// writeTree writes a random tree into the empty directory root.
func writeTree(random *rand.Rand, root string, changing bool) (*tree, error) {
	t := &tree{root: root, stable: map[string]bool{}}
	var fill func(rel string, depth, dirs int) error
	fill = func(rel string, depth, dirs int) error {
		files := random.Intn(40)
		if random.Intn(6) == 0 || depth == 0 {
			files = random.Intn(2500)
		}
		for i := range files {
			name := rel + fmt.Sprintf("f%04d%s", i, []string{"", ".a", ".b"}[i%3])
			if err := os.WriteFile(filepath.Join(root, name), contentOf(name), 0o644); err != nil {
				return err
			}
			t.stable[name] = true
			if changing && i%8 == 0 {
				path := filepath.Join(root, rel, fmt.Sprintf("m%04d", i))
				if err := os.WriteFile(path, []byte("mmm"), 0o644); err != nil {
					return err
				}
				t.changing = append(t.changing, path)
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

// A trial is one run and the way it ends.
type trial struct {
	opts  fileproc.Options
	entry string // Process, Stream or Walk
	end   string // how the run is ended early; "" if it is not
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
		at:    1 + random.Int63n(int64(len(t.stable)+1)),
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

// wants reports whether a complete run delivers the stable file rel, rather than skipping it or failing.
func (c trial) wants(rel string) bool {
	o := c.opts
	depth := 1 + strings.Count(rel, "/")
	return (o.MaxDepth == 0 || depth <= o.MaxDepth) && (o.Suffixes == nil || strings.HasSuffix(rel, ".a")) && !c.tooLarge(rel)
}

func (c trial) tooLarge(rel string) bool {
	return c.entry != "Walk" && c.opts.ReadSize == 0 && c.opts.MaxFileSize > 0 && int64(len(contentOf(rel))) > c.opts.MaxFileSize
}

// A checker checks what a run delivers.
type checker struct {
	trial
	t     *tree
	calls atomic.Int64

	mu    sync.Mutex // guards the fields below
	seen  map[string]bool
	wrong error
	bytes int64

	report fileproc.Report
}

func newChecker(random *rand.Rand, t *tree, cold bool) *checker {
	c := &checker{trial: newTrial(random, t, cold), t: t, seen: map[string]bool{}}
	c.opts.Report = &c.report
	return c
}

func (c *checker) fail(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wrong == nil {
		c.wrong = fmt.Errorf(format, args...)
	}
}

func (c *checker) deliver(rel string, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen[rel] && c.wrong == nil {
		c.wrong = fmt.Errorf("%s is delivered twice", rel)
	}
	c.seen[rel] = true
	c.bytes += int64(bytes)
}

func (c *checker) file(f *fileproc.File) {
	rel := f.Rel()
	if strings.HasPrefix(f.Name(), "m") {
		// A file that is truncated and extended meanwhile may read as zeros.
		if i := bytes.IndexFunc(f.Data(), func(r rune) bool { return r != 'm' && r != 0 }); i >= 0 {
			c.fail("%s: byte %d is %q", rel, i, f.Data()[i])
		}
		return
	}
	want := contentOf(rel)
	part := want
	switch size := c.opts.ReadSize; {
	case size == fileproc.NoRead:
		part = nil
	case size > 0:
		part = want[:min(size, len(want))]
	}
	if !bytes.Equal(f.Data(), part) {
		c.fail("%s: got %d bytes that differ from the first %d of %d", rel, len(f.Data()), len(part), len(want))
	}
	if f.Truncated() != (part != nil && len(part) < len(want)) {
		c.fail("%s: Truncated is %v", rel, f.Truncated())
	}
	if s, err := f.Stat(); c.opts.Stat && (err != nil || s.Size != int64(len(want))) {
		c.fail("%s: Stat returns %+v, %v", rel, s, err)
	}
	c.deliver(rel, len(part))
}

// failure checks that err is a failure that may occur.
func (c *checker) failure(err error) {
	var p *fs.PathError
	if !errors.As(err, &p) {
		c.fail("an error without a path: %v", err)
		return
	}
	rel, _ := filepath.Rel(c.t.root, p.Path)
	switch {
	case errors.Is(err, errEnough):
	case c.t.stable[rel] && !(errors.Is(err, fileproc.ErrTooLarge) && c.tooLarge(rel)):
		c.fail("a stable file failed: %v", err)
	case !c.t.stable[rel] && !strings.HasPrefix(filepath.Base(rel), "m"):
		c.fail("a directory failed: %v", err)
	}
}

var errEnough = errors.New("enough")

// run runs the trial and reports whether it was complete, rather than ended early.
func (c *checker) run() (complete bool) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var ended atomic.Bool
	reached := func() bool { return c.end != "" && c.calls.Add(1) == c.at && !ended.Swap(true) }
	opts := c.opts
	opts.OnError = func(err error) error { // sees every failure, not only the first 100
		c.failure(err)
		if errors.Is(err, errEnough) {
			return err
		}
		return nil
	}
	fn := func(f *fileproc.File) (struct{}, error) {
		c.file(f)
		if c.end == "break" || !reached() {
			return struct{}{}, nil
		}
		switch c.end {
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
	if c.end == "timer" {
		timer := time.AfterFunc(time.Duration(c.at)*time.Microsecond, func() {
			ended.Store(true)
			cancel()
		})
		defer timer.Stop()
	}
	err := within(10*time.Minute, func() error { // a cold run over SMB may take two
		defer func() {
			if v := recover(); v != nil && !strings.Contains(fmt.Sprint(v), errEnough.Error()) {
				c.fail("the run panicked: %v", v)
			}
		}()
		var err error
		switch c.entry {
		case "Process":
			_, err = fileproc.Process(ctx, c.t.root, opts, fn)
		case "Stream":
			for _, e := range fileproc.Stream(ctx, c.t.root, opts, fn) {
				err = errors.Join(err, e)
				if c.end == "break" && reached() {
					break
				}
			}
		case "Walk":
			for e, failure := range fileproc.Walk(ctx, c.t.root, opts) {
				err = errors.Join(err, failure)
				if failure == nil && !e.IsDir() && !strings.HasPrefix(e.Name(), "m") {
					c.deliver(e.Rel(), 0)
				}
				if reached() {
					break
				}
			}
		}
		if err != nil && !ended.Load() {
			return fmt.Errorf("the run failed: %w", err)
		}
		return nil
	})
	if err != nil {
		c.fail("%v", err)
	}
	return !ended.Load()
}

// within returns the error of run, or, with the stacks on stderr, that it hangs. Run may end by Goexit.
func within(patience time.Duration, run func() error) error {
	done := make(chan error, 1)
	go func() {
		defer close(done)
		done <- run()
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
		pprof.Lookup("goroutine").WriteTo(os.Stderr, 2)
		return errors.New("the run hangs")
	}
}

// balances checks that each file that was found is in one other count of the report.
func balances(complete bool, r *fileproc.Report) error {
	sum := r.Processed + r.Unchanged + r.Failed + r.Abandoned
	for _, n := range r.Skipped {
		sum += n
	}
	switch {
	case sum != r.Found:
		return fmt.Errorf("the sum of the other counts is not Found: %+v", r)
	case complete && r.Abandoned != 0:
		return fmt.Errorf("a complete run abandoned files: %+v", r)
	}
	return nil
}

// checkRun checks the results and the report of a run.
func (c *checker) checkRun(complete bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wrong != nil {
		return c.wrong
	}
	if err := balances(complete, &c.report); err != nil {
		return err
	}
	for rel := range c.seen {
		if !c.t.stable[rel] {
			return fmt.Errorf("%s was delivered, but never existed", rel)
		}
		if !c.wants(rel) {
			return fmt.Errorf("%s was delivered, but the options exclude it", rel)
		}
	}
	if complete {
		for rel := range c.t.stable {
			if c.wants(rel) && !c.seen[rel] {
				return fmt.Errorf("%s was not delivered", rel)
			}
		}
	}
	return nil
}

// resources counts what the process has open or running.
type resources struct{ goroutines, descriptors, rings, ringMappings int }

func currentResources() resources {
	t := resources{goroutines: runtime.NumGoroutine()}
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

// leaked returns an error if the process has more resources than before. It waits for goroutines that are about to end.
func leaked(before resources) error {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		now := currentResources()
		if now.goroutines <= before.goroutines && now.descriptors <= before.descriptors && now.rings == 0 && now.ringMappings == 0 {
			return nil
		}
		if now.descriptors > before.descriptors || now.rings > 0 || now.ringMappings > 0 || time.Now().After(deadline) {
			return fmt.Errorf("leaked resources: %+v, before the run %+v", now, before)
		}
	}
}

// memoryMiB returns a field of /proc/self/status, such as VmSize (address space), VmRSS (resident) or VmHWM (the most that was).
func memoryMiB(field string) (size int) {
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		fmt.Sscanf(line, field+": %d", &size)
	}
	return size >> 10
}

func limitFiles(n uint64) {
	var l unix.Rlimit
	unix.Getrlimit(unix.RLIMIT_NOFILE, &l)
	l.Cur = min(n, l.Max)
	unix.Setrlimit(unix.RLIMIT_NOFILE, &l)
}

type tally struct {
	trees, complete, early int
	files, bytes           int64
}

func soak(parent string, seed int64, duration time.Duration, cold bool) error {
	base, err := os.MkdirTemp(parent, "soak")
	if err != nil {
		return err
	}
	defer os.RemoveAll(base)
	var sum tally
	start := time.Now()
	printed := start
	virtual := memoryMiB("VmSize")
	for time.Since(start) < duration {
		if err := soakTree(base, seed, start.Add(duration), cold, &sum); err != nil {
			return fmt.Errorf("%w\nto reproduce: -seed %d", err, seed)
		}
		seed++
		if time.Since(printed) > time.Minute {
			printed = time.Now()
			sum.print(start)
		}
	}
	sum.print(start)
	runtime.GC()
	if now := memoryMiB("VmSize"); now > virtual+2048 {
		return fmt.Errorf("the address space has grown to %d MiB from %d", now, virtual)
	}
	fmt.Println("no errors")
	return nil
}

func (s *tally) add(c *checker, complete bool) {
	if complete {
		s.complete++
	} else {
		s.early++
	}
	s.files += int64(len(c.seen))
	s.bytes += c.bytes
}

func (s *tally) print(start time.Time) {
	fmt.Printf("%s: %d trees, %d complete runs, %d ended early, %d files, %d MiB checked; %d goroutines, %d MiB resident, %d MiB of address space\n",
		time.Since(start).Round(time.Second), s.trees, s.complete, s.early, s.files, s.bytes>>20, runtime.NumGoroutine(), memoryMiB("VmRSS"), memoryMiB("VmSize"))
}

// soakTree makes one tree and runs some trials on it while writers disturb its changing files.
func soakTree(base string, seed int64, deadline time.Time, cold bool, sum *tally) error {
	testtree.ForgetBytes() // otherwise the process's memory grows with each tree
	random := rand.New(rand.NewSource(seed))
	root := filepath.Join(base, fmt.Sprint(seed))
	if err := os.Mkdir(root, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(root)
	t, err := writeTree(random, root, true)
	if err != nil {
		return err
	}
	sum.trees++
	var writers sync.WaitGroup
	var writing sync.RWMutex // read-locked by a writer while it changes a file
	stop := make(chan struct{})
	if len(t.changing) > 0 {
		for i := range 2 {
			random := rand.New(rand.NewSource(seed + int64(i)))
			aside := filepath.Join(base, fmt.Sprintf("aside%d", i))
			writers.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						writing.RLock()
						testtree.Disturb(random, t.changing[random.Intn(len(t.changing))], aside)
						writing.RUnlock()
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
		writing.Lock()
		before := currentResources()
		writing.Unlock()
		c := newChecker(random, t, cold)
		if c.cold {
			dropCaches()
		}
		procs := runtime.GOMAXPROCS(c.procs)
		limitFiles(c.files)
		complete := c.run()
		limitFiles(1 << 20)
		runtime.GOMAXPROCS(procs)
		err := c.checkRun(complete)
		if err == nil {
			writing.Lock()
			err = leaked(before)
			writing.Unlock()
		}
		if err != nil {
			return fmt.Errorf("%w\nin %v", err, c.trial)
		}
		sum.add(c, complete)
	}
	return nil
}

func dropCaches() error {
	unix.Sync()
	return os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0)
}

// written returns the tree that writeTree has written to root with the random numbers of seed.
func written(root string, seed int64) (*tree, error) {
	scratch, err := os.MkdirTemp("", "soak")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(scratch)
	t, err := writeTree(rand.New(rand.NewSource(seed)), scratch, false)
	if err != nil {
		return nil, err
	}
	t.root = root
	return t, nil
}

// check runs trials on a tree that writeTree has written to root, without writers.
func check(root string, seed int64, runs int, cold bool) error {
	t, err := written(root, seed)
	if err != nil {
		return err
	}
	random := rand.New(rand.NewSource(seed))
	var sum tally
	start := time.Now()
	for range runs {
		c := newChecker(random, t, false)
		if cold {
			if err := dropCaches(); err != nil {
				return err
			}
		}
		complete := c.run()
		if err := c.checkRun(complete); err != nil {
			return fmt.Errorf("%w\nin %v", err, c.trial)
		}
		sum.add(c, complete)
	}
	sum.print(start)
	return nil
}
