//go:build linux

// Package churn runs fileproc on random trees with random options while writers create, rename, delete, rewrite and replace. It ends
// many runs early.
package churn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/fileproc/fileproc/scripts/break/internal/trial"
	"golang.org/x/sys/unix"
)

// Main is the command churn.
func Main(ctx context.Context, args []string) error {
	flags := trial.NewFlags("churn")
	cold := flags.Bool("cold", false, "drop the machine's caches before some runs (root)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	virtual := trial.MemoryMiB("VmSize")
	return flags.Temp(func(dir string) error {
		for ; !flags.Over(ctx); flags.Seed++ {
			if err := churn(ctx, flags, filepath.Join(dir, fmt.Sprint(flags.Seed)), *cold); err != nil {
				return err
			}
		}
		runtime.GC()
		if now := trial.MemoryMiB("VmSize"); now > virtual+2048 {
			return fmt.Errorf("the address space has grown to %d MiB from %d", now, virtual)
		}
		return ctx.Err()
	})
}

// churn makes one tree, and runs on it while three writers change it.
func churn(ctx context.Context, flags *trial.Flags, root string, cold bool) error {
	defer os.RemoveAll(root)
	defer testtree.ForgetBytes() // otherwise the process's memory grows with each tree
	t, err := plant(root, flags.Seed, 3)
	if err != nil {
		return err
	}
	flags.Count("trees", 1)
	return flags.Against(ctx, 60, len(t.shares), t.step, func(random *rand.Rand, k int, still sync.Locker) (any, error) {
		if cold && random.Intn(40) == 0 {
			if err := trial.DropCaches(); err != nil {
				return nil, err
			}
		}
		c := newAttempt(random, t, flags)
		c.Cache, c.Still = root+".cache", still
		if k%20 == 0 {
			return c, c.quietly(ctx, still)
		}
		c.procs, c.files = 1+random.Intn(4), trial.Pick[uint64](random, 40, 64, 1024, 1024, 1024)
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(c.procs))
		defer limitFiles(1 << 20)
		limitFiles(c.files)
		return c, c.do(ctx)
	})
}

func limitFiles(n uint64) {
	var l unix.Rlimit
	unix.Getrlimit(unix.RLIMIT_NOFILE, &l)
	l.Cur = min(n, l.Max)
	unix.Setrlimit(unix.RLIMIT_NOFILE, &l)
}

// An attempt is one run and the way it ends.
type attempt struct {
	trial.Run
	t     *tree
	flags *trial.Flags
	end   string // how the run is ended early; "" if it is not
	at    int64  // the call at which it ends
	calls atomic.Int64
	quiet bool   // nobody writes
	files uint64 // the limit of descriptors, if it is not 0
	procs int    // GOMAXPROCS, if it is not 0
	stop  context.CancelFunc
	// newest has the generations of replaced files before the run.
	newest map[string]int64
}

func (c *attempt) String() string {
	return fmt.Sprintf("%v; end %q at %d, quiet %v, %d descriptors, GOMAXPROCS %d", &c.Run, c.end, c.at, c.quiet, c.files, c.procs)
}

func newAttempt(random *rand.Rand, t *tree, flags *trial.Flags) *attempt {
	c := &attempt{t: t, flags: flags, at: 1 + random.Int63n(int64(len(t.stable)+1))}
	c.end = trial.Pick(random, "", "", "", "", "cancel", "timer", "panic", "Goexit", "SkipAll", "OnError", "break")
	c.Root, c.Opts, c.Entry = t.root, trial.Options(random), trial.Pick(random, "Process", "Process", "ForEach", "Stream", "Walk", "incremental")
	if c.Entry == "incremental" { // the cache serves runs with the same options
		c.Opts.ReadSize = 0
	}
	if random.Intn(8) == 0 {
		c.Opts.MaxFileSize = int64(1 + random.Intn(20_000))
	}
	if random.Intn(8) == 0 {
		c.Opts.MaxDepth = 1 + random.Intn(3)
	}
	if random.Intn(8) == 0 {
		c.Opts.Suffixes = []string{".a"}
	}
	if random.Intn(8) == 0 {
		c.Opts.Select = func(f *fileproc.File) bool { return letter(f.Rel()) != 'm' }
	}
	c.May = func(rel string) bool { return !t.stable[rel] && letter(rel) != 'f' }
	c.File, c.Failure, c.Result = c.file, c.failure, c.result
	c.Next = func() bool { return c.end != "break" && c.Entry != "Walk" || !c.reached() }
	return c
}

// tooLarge reports whether a file that stands still has to fail.
func (c *attempt) tooLarge(rel string) bool {
	return c.Entry != "Walk" && c.Opts.ReadSize == 0 && c.Opts.MaxFileSize > 0 && int64(len(contentOf(rel))) > c.Opts.MaxFileSize
}

// failure returns err if it must not occur.
func (c *attempt) failure(rel string, err error) error {
	tooLarge := errors.Is(err, fileproc.ErrTooLarge) && c.Opts.MaxFileSize > 0
	switch {
	case letter(rel) == 'm':
	case tooLarge && (!c.t.stable[rel] || c.tooLarge(rel)):
	case c.quiet || stays(rel) || !errors.Is(err, fileproc.ErrChanged):
		return err
	default:
		c.flags.Count("failures that the writers explain", 1)
	}
	return nil
}

// result checks the generation of a replaced file.
func (c *attempt) result(a trial.Answer) error {
	gens := c.t.replaced[a.Rel]
	switch {
	case letter(a.Rel) != 'r' || a.Gen == 0: // only the path is known
	case gens == nil || a.ID != a.Rel:
		return fmt.Errorf("%s has the content of %s", a.Rel, a.ID)
	case a.Gen < c.newest[a.Rel] || a.Gen > gens[1].Load():
		return fmt.Errorf("%s: generation %d, but the run began with %d, and %d is the last", a.Rel, a.Gen, c.newest[a.Rel], gens[1].Load())
	}
	return nil
}

// reached reports whether the run has to end with this call.
func (c *attempt) reached() bool {
	return c.end != "" && c.calls.Add(1) == c.at && !c.Ended.Swap(true)
}

// file is fn: it checks a file and may end the run.
func (c *attempt) file(f *fileproc.File, a *trial.Answer) error {
	if err := c.content(f, a); err != nil {
		c.Wrong(fmt.Errorf("%s: %w", f.Rel(), err))
	}
	if c.end == "break" || !c.reached() {
		return nil
	}
	switch c.end {
	case "cancel":
		c.stop()
	case "panic":
		panic(trial.ErrEnough)
	case "Goexit":
		runtime.Goexit()
	case "SkipAll":
		return fs.SkipAll
	case "OnError":
		return trial.ErrEnough
	}
	return nil
}

// content checks the content of a file, and adds to its answer what the content says.
func (c *attempt) content(f *fileproc.File, a *trial.Answer) (err error) {
	data, letter := f.Data(), letter(f.Rel())
	switch {
	case letter == 'f':
		err = c.Check(f, contentOf(f.Rel()))
	case c.Opts.ReadSize == fileproc.NoRead, letter == '.': // what NFS keeps of a removed file while it is open
		return nil
	case letter == 'r', letter == 'n':
		id, gen, e := parse(data, f.Truncated())
		if err = e; id != "" {
			a.ID, a.Gen = id, gen
		}
	case letter == 'c', letter == 't':
		_, _, err = parse(data, true)
	default:
		// A file that is truncated and extended meanwhile may read as zeros.
		if i := bytes.IndexFunc(data, func(r rune) bool { return r != rune(letter) && r != 0 }); i >= 0 {
			err = fmt.Errorf("byte %d is %q", i, data[i])
		}
	}
	c.flags.Count("contents of files "+string(letter), 1)
	return err
}

// do makes the run.
func (c *attempt) do(ctx context.Context) error {
	c.Want, c.newest = map[string]bool{}, map[string]int64{}
	for rel, gens := range c.t.replaced {
		c.newest[rel] = gens[0].Load()
	}
	for rel := range c.t.stable {
		tooDeep := c.Opts.MaxDepth > 0 && strings.Count(rel, "/") >= c.Opts.MaxDepth
		if !tooDeep && (c.Opts.Suffixes == nil || strings.HasSuffix(rel, ".a")) && !c.tooLarge(rel) {
			c.Want[rel] = true
		}
	}
	ctx, c.stop = context.WithCancel(ctx)
	defer c.stop()
	if c.end == "timer" {
		timer := time.AfterFunc(time.Duration(c.at)*time.Microsecond, func() {
			c.Ended.Store(true)
			c.stop()
		})
		defer timer.Stop()
	}
	if err := c.Do(ctx); err != nil {
		return err
	}
	what := "runs: " + c.Entry
	if c.Ended.Load() {
		what += ", ended early"
	}
	c.flags.Count(what, 1)
	for _, n := range c.Seen {
		c.flags.Count("files that are moved and came again", int64(n-1))
	}
	for rel := range c.t.replaced {
		if c.Seen[rel] == 0 && !c.Ended.Load() && c.Opts.MaxDepth == 0 && c.Opts.Suffixes == nil && c.Opts.MaxFileSize == 0 {
			c.flags.Count("files that are replaced and did not come", 1)
		}
	}
	return nil
}

// quietly makes a run while nobody writes: every file must come once, with the newest content.
func (c *attempt) quietly(ctx context.Context, still sync.Locker) error {
	still.Lock()
	defer still.Unlock()
	c.quiet, c.end, c.Still = true, "", nil
	c.Opts.MaxFileSize, c.Opts.MaxDepth, c.Opts.Suffixes, c.Opts.Select = 0, 0, nil, nil
	want, got := 0, 0
	err := filepath.WalkDir(c.Root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case letter(path) == 'm' && d.IsDir():
			return fs.SkipDir
		case err == nil && d.Type().IsRegular() && letter(path) != 'm':
			want++
		}
		return err
	})
	if err := errors.Join(err, c.do(ctx)); err != nil {
		return err
	}
	for rel, n := range c.Seen {
		if letter(rel) != 'm' {
			got += n
		}
	}
	if got != want {
		return fmt.Errorf("%d files of %d came, and nobody writes", got, want)
	}
	c.flags.Count("runs while nobody writes", 1)
	return nil
}
