//go:build linux

// Package trial has what the commands of break share: trees, the loop that makes runs beside writers, and the check of a run.
package trial

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"math/rand"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/incremental"
	"github.com/fileproc/fileproc/scripts/internal/fail"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// Flags are the flags of the commands that run for a given time.
type Flags struct {
	*flag.FlagSet
	Seed int64
	dir  string
	time time.Duration
	end  time.Time

	mu     sync.Mutex // guards counts
	counts map[string]int64
}

// NewFlags returns the flags of a command, which may add more.
func NewFlags(name string) *Flags {
	f := &Flags{FlagSet: flag.NewFlagSet(name, flag.ContinueOnError), counts: map[string]int64{}}
	f.DurationVar(&f.time, "for", time.Minute, "how long to run")
	f.Int64Var(&f.Seed, "seed", 1, "seed of the trees, their changes and the options")
	f.StringVar(&f.dir, "dir", "", "parent of the trees (default: the temporary directory)")
	return f
}

func (f *Flags) Count(what string, n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts[what] += n
}

// Print prints the counts of a command that found no loss.
func (f *Flags) Print() {
	for _, what := range slices.Sorted(maps.Keys(f.counts)) {
		fmt.Printf("%10d %s\n", f.counts[what], what)
	}
	fmt.Printf("backend %s: losses: 0\n", fileproc.Backend())
}

// Temp parses args, starts the time, calls do with a new directory, removes the directory, and prints the counts.
func (f *Flags) Temp(args []string, do func(dir string)) error {
	return fail.Try(func() {
		fail.On(f.Parse(args))
		dir := fail.Must(os.MkdirTemp(f.dir, f.Name()))
		defer os.RemoveAll(dir)
		f.Start()
		do(fail.Must(filepath.EvalSymlinks(dir)))
		f.Print()
	})
}

// Start starts the time. A second call starts it again, after work that does not count.
func (f *Flags) Start() { f.end = time.Now().Add(f.time) }

func (f *Flags) Over(ctx context.Context) bool { return ctx.Err() != nil || time.Now().After(f.end) }

// Against calls do until the time is over, at most so many times. Meanwhile writers call change again and again, except while do has
// locked still. Change returns the name of what it did. If do fails, the error says what do has tried, and how to repeat it.
func (f *Flags) Against(ctx context.Context, most, writers int, change func(random *rand.Rand, w, k int) (did string, err error),
	do func(random *rand.Rand, still sync.Locker) (tried any, err error)) {
	var still sync.RWMutex
	var running errgroup.Group
	var stop atomic.Bool
	for w := range writers {
		random := rand.New(rand.NewSource(f.Seed + int64(w)))
		running.Go(func() (err error) {
			for k := 0; err == nil && !stop.Load(); k++ {
				var did string
				still.RLock()
				did, err = change(random, w, k)
				still.RUnlock()
				f.Count("changes: "+did, 1)
			}
			return err
		})
	}
	var err error
	random := rand.New(rand.NewSource(f.Seed))
	for k := 1; k <= most && err == nil && !f.Over(ctx); k++ {
		var tried any
		if tried, err = do(random, &still); err != nil {
			err = fmt.Errorf("%w\nin run %d of %s -seed %d, %v", err, k, f.Name(), f.Seed, tried)
		}
	}
	stop.Store(true)
	fail.On(errors.Join(running.Wait(), err, ctx.Err()))
}

// Write writes files with the content of their paths, and their directories. A path that ends with a slash is a directory.
func Write(root string, content func(rel string) []byte, rels ...string) (err error) {
	for _, rel := range rels {
		dir, name := path.Split(rel)
		err = errors.Join(err, os.MkdirAll(filepath.Join(root, dir), 0o755))
		if err == nil && name != "" {
			err = os.WriteFile(filepath.Join(root, rel), content(rel), 0o644)
		}
	}
	return err
}

// Set returns the files that Write writes, without the directories.
func Set(rels []string) map[string]bool {
	set := map[string]bool{}
	for _, rel := range rels {
		if !strings.HasSuffix(rel, "/") {
			set[rel] = true
		}
	}
	return set
}

func Pick[T any](random *rand.Rand, values ...T) T { return values[random.Intn(len(values))] }

// Options returns random options that suit every tree and every kind of run.
func Options(random *rand.Rand) fileproc.Options {
	size := Pick(random, fileproc.NoRead, 100, 511, 512, 4095, 4096, 16<<10, 1+random.Intn(20_000))
	return fileproc.Options{
		Workers: 1 + random.Intn(Pick(random, 4, 8, 64)), Ordered: random.Intn(3) == 0, DisableURing: random.Intn(3) == 0,
		Stat: random.Intn(5) == 0, ReadSize: Pick(random, size, 0, 0, 0),
	}
}

// A Run is one run of fileproc, and what it must deliver. Its functions are called as fileproc calls its callbacks.
type Run struct {
	Root  string
	Entry string           // Process, ForEach, Stream, Walk, ReadDir or incremental
	Opts  fileproc.Options // Report and OnError are added
	Cache string           // the cache file of incremental

	// Want has the files that come exactly once, or at most once if the run ends early.
	Want map[string]bool
	// Content, if not nil, returns the content that a file of Want must have.
	Content func(rel string) []byte
	// May reports whether a file that is not in Want may come. If it is nil, none may.
	May func(rel string) bool
	// Missing reports whether a file of Want may be missing. If it is nil, none may.
	Missing func(rel string) bool
	// File, if not nil, checks a file and can change its answer. Its error is that of fn.
	File func(f *fileproc.File, a *Answer) error
	// Result, if not nil, checks an answer, also an answer from a cache file.
	Result func(a Answer) error
	// Failure returns an error if a failure must not occur. If it is nil, none may.
	Failure func(rel string, err error) error
	// Error, if not nil, returns an error if the run must not return err.
	Error func(err error) error
	// Next, if not nil, is called in a loop over Stream or Walk, and breaks it by returning false.
	Next func() bool
	// Still, if not nil, is locked during the search for leaks.
	Still sync.Locker

	// Ended is set when the caller's functions end the run early.
	Ended atomic.Bool

	Report fileproc.Report
	Seen   map[string]int // how many results have an ID

	mu    sync.Mutex // guards Seen and wrong
	wrong error
}

// An Answer is the result of a file: its path, the name by which it is counted if that is another, and its generation if it has one.
type Answer struct {
	Rel, ID string
	Gen     int64
}

// ErrEnough ends a run, as the value of a panic or as the error of fn, which OnError returns.
var ErrEnough = errors.New("enough")

// Wrong notes an error of the run. It keeps the first that is not nil.
func (r *Run) Wrong(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wrong == nil {
		r.wrong = err
	}
}

// String returns the kind of the run and the options that are set.
func (r *Run) String() string {
	s := r.Entry
	for name, value := range reflect.ValueOf(r.Opts).Fields() {
		if !value.IsZero() {
			s += fmt.Sprintf(", %s %v", name.Name, value)
		}
	}
	return s
}

// Do makes the run. It returns an error if the run delivers something wrong, or leaves something behind.
func (r *Run) Do(ctx context.Context) error {
	if r.Still == nil {
		r.Still = new(sync.Mutex)
	}
	r.Still.Lock()
	before := Open()
	r.Still.Unlock()
	if err := r.Deliver(ctx); err != nil {
		return err
	}
	r.Still.Lock()
	defer r.Still.Unlock()
	maps, _ := os.ReadFile("/proc/self/maps")
	rings := bytes.Count(maps, []byte("io_uring"))
	if left := Left(before); left != [2]int{} || rings > 0 {
		return fmt.Errorf("leaked: %d goroutines, %d descriptors, %d mappings of rings", left[0], left[1], rings)
	}
	return nil
}

// Deliver makes the run. It returns an error if the run delivers something wrong.
func (r *Run) Deliver(ctx context.Context) error {
	r.Seen = map[string]int{}
	done := make(chan error, 1)
	go func() { // a goroutine, since fn may call Goexit
		defer close(done)
		done <- r.run(ctx)
	}()
	var err error
	select {
	case err = <-done:
	case <-time.After(10 * time.Minute): // a cold run may take some
		pprof.Lookup("goroutine").WriteTo(os.Stderr, 2)
		return errors.New("the run hangs")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wrong != nil {
		return r.wrong
	}
	if err != nil && r.Error != nil {
		err = r.Error(err)
	}
	if err != nil && !r.Ended.Load() {
		return fmt.Errorf("the run failed: %w", err)
	}
	return r.judge(r.Ended.Load())
}

// judge returns an error if the Report or the delivered files are wrong. It is called with r.mu held.
func (r *Run) judge(ended bool) error {
	sum := r.Report.Processed + r.Report.Unchanged + r.Report.Failed + r.Report.Abandoned
	for _, n := range r.Report.Skipped {
		sum += n
	}
	if sum != r.Report.Found || !ended && r.Report.Abandoned > 0 {
		return fmt.Errorf("the ledger is wrong: %+v", r.Report)
	}
	for rel, n := range r.Seen {
		if r.Want[rel] && n > 1 {
			return fmt.Errorf("%s came %d times", rel, n)
		}
		if !r.Want[rel] && (r.May == nil || !r.May(rel)) {
			return fmt.Errorf("%s came, which does not exist or is excluded", rel)
		}
	}
	for rel := range r.Want {
		if r.Seen[rel] == 0 && !ended && (r.Missing == nil || !r.Missing(rel)) {
			return fmt.Errorf("%s did not come", rel)
		}
	}
	return nil
}

func (r *Run) run(ctx context.Context) (err error) {
	defer func() {
		if v := recover(); v != nil && !strings.Contains(fmt.Sprint(v), ErrEnough.Error()) {
			r.Wrong(fmt.Errorf("the run panicked: %v", v))
		}
	}()
	opts := r.Opts
	opts.Report, opts.OnError = &r.Report, r.Failed
	fn := func(f *fileproc.File) (a Answer, err error) {
		a = Answer{Rel: f.Rel(), ID: f.Rel()}
		if r.File != nil {
			err = r.File(f, &a)
		}
		if r.Content != nil && r.Want[a.ID] {
			r.Wrong(r.Check(f, r.Content(a.ID)))
		}
		return a, err
	}
	var answers []Answer
	switch r.Entry {
	case "ReadDir":
		r.readDir("")
	case "Process":
		answers, err = fileproc.Process(ctx, r.Root, opts, fn)
	case "incremental":
		answers, err = incremental.Process(ctx, r.Root, incremental.Options[Answer]{File: r.Cache, Version: "1"}, opts, fn)
	case "ForEach":
		return fileproc.ForEach(ctx, r.Root, opts, func(f *fileproc.File) error {
			a, err := fn(f)
			if err == nil {
				r.result(a)
			}
			return err
		})
	case "Stream":
		return each(r, fileproc.Stream(ctx, r.Root, opts, fn), r.result)
	case "Walk":
		return each(r, fileproc.Walk(ctx, r.Root, opts), r.entry)
	}
	for _, a := range answers {
		r.result(a)
	}
	return err
}

// each calls take for each value that a loop yields. It returns the failures.
func each[T any](r *Run, loop iter.Seq2[T, error], take func(T)) (err error) {
	for v, failure := range loop {
		if err = errors.Join(err, failure); failure == nil {
			take(v)
		}
		if r.Next != nil && !r.Next() {
			break
		}
	}
	return err
}

func (r *Run) entry(e fileproc.Entry) {
	if e.IsDir() {
		return
	}
	if r.Opts.Stat && r.Content != nil && r.Want[e.Rel()] {
		if s, err := e.Stat(); err != nil || s.Size != int64(len(r.Content(e.Rel()))) {
			r.Wrong(fmt.Errorf("%s: Stat returns %+v, %v", e.Rel(), s, err))
		}
	}
	r.result(Answer{Rel: e.Rel(), ID: e.Rel()})
}

func (r *Run) readDir(dir string) {
	entries, err := fileproc.ReadDir(filepath.Join(r.Root, dir))
	for _, e := range entries {
		if rel := path.Join(dir, e.Name()); e.IsDir() {
			r.readDir(rel)
		} else {
			r.result(Answer{Rel: rel, ID: rel})
		}
	}
	if err != nil {
		r.Failed(err)
	}
}

func (r *Run) result(a Answer) {
	if r.Result != nil {
		if err := r.Result(a); err != nil {
			r.Wrong(err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Seen[a.ID]++
}

// Failed is Options.OnError, which sees every failure, not only the first 100.
func (r *Run) Failed(err error) error {
	if errors.Is(err, ErrEnough) {
		return err
	}
	var p *fs.PathError
	if !errors.As(err, &p) {
		r.Wrong(fmt.Errorf("a failure without a path: %w", err))
		return nil
	}
	rel, e := filepath.Rel(r.Root, p.Path)
	if e != nil || !filepath.IsLocal(rel) {
		r.Wrong(fmt.Errorf("a failure outside root: %w", err))
		return nil
	}
	if r.Failure != nil {
		err = r.Failure(rel, err)
	}
	if err != nil {
		r.Wrong(fmt.Errorf("a failure that must not be: %w", err))
	}
	return nil
}

// Check returns an error unless f has what a run with these options reads of a file with the content whole.
func (r *Run) Check(f *fileproc.File, whole []byte) error {
	want := whole
	switch {
	case r.Opts.ReadSize == fileproc.NoRead:
		want = nil
	case r.Opts.ReadSize > 0:
		want = whole[:min(r.Opts.ReadSize, len(whole))]
	}
	if !bytes.Equal(f.Data(), want) {
		return fmt.Errorf("%s: %d bytes that differ from the first %d of %d", f.Rel(), len(f.Data()), len(want), len(whole))
	}
	if f.Truncated() != (want != nil && len(want) < len(whole)) {
		return fmt.Errorf("%s: Truncated is %v", f.Rel(), f.Truncated())
	}
	if r.Opts.Stat {
		if s, err := f.Stat(); err != nil || s.Size != int64(len(whole)) || !s.Mode.IsRegular() {
			return fmt.Errorf("%s: Stat returns %+v, %v", f.Rel(), s, err)
		}
	}
	return nil
}

// Open counts the goroutines and the open descriptors of the process.
func Open() (n [2]int) {
	time.AfterFunc(time.Hour, func() {}).Stop() // makes the runtime open its poller's descriptors, which stay
	n[0] = runtime.NumGoroutine()
	for fd := range 1024 {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err == nil {
			n[1]++
		}
	}
	return n
}

// Left returns how many more there are than before. It gives goroutines that are about to end some time.
func Left(before [2]int) (left [2]int) {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		now := Open()
		left = [2]int{max(0, now[0]-before[0]), max(0, now[1]-before[1])}
		if left[0] == 0 || left[1] > 0 || time.Now().After(deadline) {
			return left
		}
	}
}
