//go:build linux

// Package trial has what the parts of break share: trees, the loop that makes runs beside writers, and what a run has to deliver.
package trial

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fileproc/fileproc"
	"golang.org/x/sys/unix"
)

// Flags are those of the parts that run for a while.
type Flags struct {
	*flag.FlagSet
	Seed int64
	dir  string
	time time.Duration
	end  time.Time

	mu     sync.Mutex // guards counts
	counts map[string]int64
}

// NewFlags returns the flags of a command, to which more can be added.
func NewFlags(name string) *Flags {
	f := &Flags{FlagSet: flag.NewFlagSet(name, flag.ContinueOnError), counts: map[string]int64{}}
	f.DurationVar(&f.time, "for", time.Minute, "how long to run")
	f.Int64Var(&f.Seed, "seed", 1, "seed of the trees, their changes and the options")
	f.StringVar(&f.dir, "dir", "", "parent of the trees (default: the temporary directory)")
	return f
}

// Count adds n to a count that Temp prints.
func (f *Flags) Count(what string, n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts[what] += n
}

// Print prints the counts of a part that found no loss.
func (f *Flags) Print() {
	for _, what := range slices.Sorted(maps.Keys(f.counts)) {
		fmt.Printf("%10d %s\n", f.counts[what], what)
	}
	fmt.Printf("backend %s: losses: 0\n", fileproc.Backend())
}

// Temp parses args, starts the time, calls do with a new directory, removes that, and prints the counts.
func (f *Flags) Temp(args []string, do func(dir string) error) error {
	if err := f.Parse(args); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(f.dir, f.Name())
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return err
	}
	f.Start()
	if err = do(dir); err == nil {
		f.Print()
	}
	return err
}

// Start starts the time, anew after what is not to count.
func (f *Flags) Start() { f.end = time.Now().Add(f.time) }

// Over reports whether the time is over.
func (f *Flags) Over(ctx context.Context) bool { return ctx.Err() != nil || time.Now().After(f.end) }

// Against calls do, at most so many times, until the time is over. Meanwhile writers call change again and again, which returns what it
// did, but not while do has locked still. An error of do gets what do has tried, and how to repeat it.
func (f *Flags) Against(ctx context.Context, most, writers int, change func(random *rand.Rand, w, k int) (did string, err error),
	do func(random *rand.Rand, k int, still sync.Locker) (tried any, err error)) (err error) {
	var still sync.RWMutex
	var running sync.WaitGroup
	var stop atomic.Bool
	failed := make([]error, writers)
	for w := range writers {
		random := rand.New(rand.NewSource(f.Seed + int64(w)))
		running.Go(func() {
			for k := 0; failed[w] == nil && !stop.Load(); k++ {
				var did string
				still.RLock()
				did, failed[w] = change(random, w, k)
				still.RUnlock()
				f.Count("changes: "+did, 1)
			}
		})
	}
	random := rand.New(rand.NewSource(f.Seed))
	for k := 1; k <= most && err == nil && !f.Over(ctx); k++ {
		var tried any
		if tried, err = do(random, k, &still); err != nil {
			err = fmt.Errorf("%w\nin run %d of %s -seed %d, %v", err, k, f.Name(), f.Seed, tried)
		}
	}
	stop.Store(true)
	running.Wait()
	return errors.Join(append(failed, err, ctx.Err())...)
}

// Write writes files, whose content follows from their path, and their directories. A path that ends with a slash is a directory.
func Write(root string, content func(rel string) []byte, rels ...string) error {
	for _, rel := range rels {
		path := filepath.Join(root, rel)
		isDir := rel == "" || strings.HasSuffix(rel, "/")
		if isDir {
			path += "/"
		}
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil && !isDir {
			err = os.WriteFile(path, content(rel), 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Set returns the files, and not the directories, of what Write writes.
func Set(rels []string) map[string]bool {
	set := map[string]bool{}
	for _, rel := range rels {
		if !strings.HasSuffix(rel, "/") {
			set[rel] = true
		}
	}
	return set
}

// Pick returns one of values.
func Pick[T any](random *rand.Rand, values ...T) T { return values[random.Intn(len(values))] }

// Options returns options that every tree and every kind of run can have.
func Options(random *rand.Rand) fileproc.Options {
	size := Pick(random, fileproc.NoRead, 100, 511, 512, 4095, 4096, 16<<10, 1+random.Intn(20_000))
	return fileproc.Options{
		Workers: 1 + random.Intn(Pick(random, 4, 8, 64)), Ordered: random.Intn(3) == 0, DisableURing: random.Intn(3) == 0,
		Stat: random.Intn(5) == 0, ReadSize: Pick(random, size, 0, 0, 0),
	}
}

// DropCaches drops what the machine's memory has of files and directories. Only root may.
func DropCaches() error {
	unix.Sync()
	return os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0)
}

// MemoryMiB returns a field of /proc/self/status, such as VmSize (address space) or VmHWM (the most that was resident).
func MemoryMiB(field string) (size int) {
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		fmt.Sscanf(line, field+": %d", &size)
	}
	return size >> 10
}
