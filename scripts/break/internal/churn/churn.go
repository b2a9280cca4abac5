//go:build linux

// Package churn runs fileproc on random trees with random options while writers create, rename, delete, rewrite and replace files. It
// ends many runs early.
package churn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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
	"github.com/fileproc/fileproc/scripts/internal/fail"
	"github.com/fileproc/fileproc/scripts/internal/host"
	"golang.org/x/sys/unix"
)

func Main(ctx context.Context, args []string) error {
	flags := trial.NewFlags("churn")
	virtual := host.MemoryMiB("VmSize")
	return flags.Temp(args, func(dir string) {
		for ; !flags.Over(ctx); flags.Seed++ {
			churn(ctx, flags, filepath.Join(dir, fmt.Sprint(flags.Seed)))
		}
		runtime.GC()
		now := host.MemoryMiB("VmSize")
		fail.If(now > virtual+2048, "the address space has grown to %.0f MiB from %.0f", now, virtual)
		fail.On(ctx.Err())
	})
}

// churn makes one tree, and runs on it while three writers change it. As root, some runs are cold.
func churn(ctx context.Context, flags *trial.Flags, root string) {
	defer os.RemoveAll(root)
	defer testtree.ForgetBytes() // otherwise the process's memory grows with each tree
	t := fail.Must(plant(root, flags.Seed, 3))
	flags.Count("trees", 1)
	flags.Against(ctx, 60, len(t.shares), t.step, func(random *rand.Rand, still sync.Locker) (any, error) {
		if os.Getuid() == 0 && random.Intn(40) == 0 {
			if err := host.DropCaches(); err != nil {
				return nil, err
			}
		}
		c := newAttempt(random, t, flags)
		c.Cache, c.Still = root+".cache", still
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

type attempt struct {
	trial.Run
	t     *tree
	flags *trial.Flags
	end   string // how the run is ended early; "" if it is not
	at    int64  // the call, or the microsecond, at which it ends
	calls atomic.Int64
	files uint64 // the limit of descriptors, if it is not 0
	procs int    // GOMAXPROCS, if it is not 0
	// newest has the generations of replaced files before the run.
	newest map[string]int64
}

func (c *attempt) String() string {
	return fmt.Sprintf("%v; end %q at %d, %d descriptors, GOMAXPROCS %d", &c.Run, c.end, c.at, c.files, c.procs)
}

func newAttempt(random *rand.Rand, t *tree, flags *trial.Flags) *attempt {
	c := &attempt{t: t, flags: flags, at: 1 + random.Int63n(int64(len(t.stable)+1))}
	c.end = trial.Pick(random, "", "", "cancel", "panic", "break")
	c.Root, c.Opts = t.root, trial.Options(random)
	c.Entry = trial.Pick(random, "Process", "Process", "ForEach", "Stream", "Walk", "ReadDir", "incremental")
	if c.Entry == "incremental" { // a cache file is of use only to runs with the same options
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
	if c.Entry == "ReadDir" { // ReadDir has no options and no callbacks
		c.Opts, c.end = fileproc.Options{}, ""
	}
	c.May = func(rel string) bool { return !t.stable[rel] && letter(rel) != 'f' }
	c.Content, c.File, c.Failure, c.Result = contentOf, c.file, c.failure, c.result
	c.Next = func() bool { return c.end != "break" || !c.reached() }
	return c
}

// tooLarge reports whether a file that nobody changes must fail.
func (c *attempt) tooLarge(rel string) bool {
	return c.Entry != "Walk" && c.Opts.ReadSize == 0 && c.Opts.MaxFileSize > 0 && int64(len(contentOf(rel))) > c.Opts.MaxFileSize
}

// failure returns err if it must not occur.
func (c *attempt) failure(rel string, err error) error {
	tooLarge := errors.Is(err, fileproc.ErrTooLarge) && c.Opts.MaxFileSize > 0
	switch {
	case letter(rel) == 'm':
	case tooLarge && (!c.t.stable[rel] || c.tooLarge(rel)):
	case stays(rel) || c.Entry != "ReadDir" && !errors.Is(err, fileproc.ErrChanged):
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
	case letter(a.Rel) != 'r' || a.Gen == 0: // only the path can be checked
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
	if c.end == "panic" && c.reached() {
		panic(trial.ErrEnough)
	}
	return nil
}

// content checks the content of a file that writers change. It adds the file's ID and generation in the content to the answer.
func (c *attempt) content(f *fileproc.File, a *trial.Answer) (err error) {
	data, letter := f.Data(), letter(f.Rel())
	switch {
	case letter == 'f', c.Opts.ReadSize == fileproc.NoRead, letter == '.': // '.' is a file under which NFS keeps a removed file that is open
		return nil
	case letter == 'r', letter == 'n':
		id, gen, e := parse(data, f.Truncated())
		if err = e; id != "" {
			a.ID, a.Gen = id, gen
		}
	case letter == 'c', letter == 't':
		_, _, err = parse(data, true)
	default:
		// If a file is truncated and extended during the read, a part may read as zeros.
		if i := bytes.IndexFunc(data, func(r rune) bool { return r != rune(letter) && r != 0 }); i >= 0 {
			err = fmt.Errorf("byte %d is %q", i, data[i])
		}
	}
	c.flags.Count("contents of files "+string(letter), 1)
	return err
}

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
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if c.end == "cancel" {
		timer := time.AfterFunc(time.Duration(c.at)*time.Microsecond, func() {
			c.Ended.Store(true)
			stop()
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
	return nil
}

// Tree is the command tree. It makes and checks trees in which nothing changes, on file systems of all kinds.
func Tree(ctx context.Context, args []string) error {
	flags := trial.NewFlags("tree")
	makeTree := flags.String("make", "", "write the tree of -seed into this new directory")
	checkTree := flags.String("check", "", "check the tree of -seed in this directory, which may be read-only")
	runs := flags.Int("runs", 100, "with -check: how many runs")
	cold := flags.Bool("cold", false, "with -check: drop the machine's caches before each run (root)")
	locked := flags.Bool("locked", false, "with -check: the directory is encrypted and its key removed, so each file has to fail with ENOKEY")
	return fail.Try(func() {
		if fail.On(flags.Parse(args)); *makeTree == "" {
			check(ctx, flags, *checkTree, *runs, *cold, *locked)
			return
		}
		fail.On(os.Mkdir(*makeTree, 0o755))
		fail.On(trial.Write(*makeTree, contentOf, plan(flags.Seed)...))
	})
}

// check makes runs on the tree of -seed, which -make has written to root.
func check(ctx context.Context, flags *trial.Flags, root string, runs int, cold, locked bool) {
	t, random := &tree{root: root, stable: trial.Set(plan(flags.Seed))}, rand.New(rand.NewSource(flags.Seed))
	for range runs {
		if cold {
			fail.On(host.DropCaches())
		}
		c := newAttempt(random, t, flags)
		if c.Entry == "incremental" { // root may be read-only, so there is no place for a cache file
			c.Entry = "Process"
		}
		do := c.do
		if locked {
			do = c.doLocked
		}
		err := do(ctx)
		fail.If(err != nil, "%w\nin %v", err, c)
	}
	flags.Print()
	fail.On(ctx.Err())
}

// doLocked makes two runs on an encrypted tree whose key was removed. The kernel then lists encrypted names and opens no file. The
// runs must list everything, and must report each file, since they cannot open it.
func (c *attempt) doLocked(ctx context.Context) error {
	var size atomic.Int64
	var opened, listed fileproc.Report
	files, wantSize := int64(len(c.t.stable)), int64(0)
	for rel := range c.t.stable {
		wantSize += int64(len(contentOf(rel)))
	}
	opts := fileproc.Options{Workers: c.Opts.Workers, DisableURing: c.Opts.DisableURing, ReadSize: max(c.Opts.ReadSize, 0), Report: &opened}
	opts.OnError = func(err error) error {
		if errors.Is(err, unix.ENOKEY) {
			return nil
		}
		return err
	}
	err := fileproc.ForEach(ctx, c.Root, opts, func(*fileproc.File) error { return nil })
	opts.ReadSize, opts.Stat, opts.Report, opts.OnError = fileproc.NoRead, true, &listed, nil
	err = errors.Join(err, fileproc.ForEach(ctx, c.Root, opts, func(f *fileproc.File) error {
		s, err := f.Stat()
		size.Add(s.Size)
		return err
	}))
	switch {
	case err != nil:
	case listed.Processed != files || size.Load() != wantSize:
		err = fmt.Errorf("listed: %+v, %d bytes, not %d files of %d", listed, size.Load(), files, wantSize)
	case opened.Failed != files:
		err = fmt.Errorf("opened: %+v, not %d failures", opened, files)
	default:
		c.flags.Count("files that failed with ENOKEY, as they have to", files)
	}
	return err
}
