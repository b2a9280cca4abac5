//go:build linux

// Package floor measures fileproc against the bare system calls, hand-written loops, other packages and other programs, in
// interleaved rounds, and prints a table, or records:
//
//	go run ./bench floor -dir ../.data/tickets_flat_100k -case whole
//
// Build bench with one of fileproc's tags, such as -tags fileproc_nouring, to measure another backend.
package floor

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/scripts/internal/fail"
	"github.com/fileproc/fileproc/scripts/internal/host"
	"github.com/fileproc/fileproc/scripts/internal/record"
	"github.com/fileproc/fileproc/scripts/internal/turns"
)

type run struct {
	turns.Measurement
	ctx          context.Context
	dir          string
	workers, who string
	cache, bytes string
	threads      int
	cancel       time.Duration
	cloop        string         // the C program, when it is built
	cleanup      []func() error // remove what the run has made; called in reverse order
}

const caseHelp = `
against the C loop: whole, prefix, stat, names (and os.ReadDir), sizes (files of -bytes each, which it makes, and os.ReadFile);
against hand-written loops: walkdir, trees (small trees, which it makes, and the C loop);
against other packages: peers; against rg and grep, each a whole program: programs; against git's commands, in the repository -dir or one that it makes: git;
against itself: again (package incremental against a full run), files (Options.Files with all names against a run that lists),
  replace (-dir's files, or 10,000 that it makes, and loops that rename), sweep (the default against other -workers), uring (with io_uring against without);
alone: once (one pass of -side, as JSON), allocs (allocations a file), peak (memory of Stream)`

func Main(ctx context.Context, args []string) (err error) {
	if len(args) == 3 && args[0] == "serve" {
		return serveSlow(args[1], args[2])
	}
	r := &run{ctx: ctx}
	flags := flag.NewFlagSet("bench floor", flag.ContinueOnError)
	name := flags.String("case", "whole", strings.TrimSpace(caseHelp))
	flags.StringVar(&r.dir, "dir", "", "`directory` to process")
	flags.IntVar(&r.Rounds, "pairs", 9, "interleaved `rounds`")
	flags.IntVar(&r.Passes, "passes", 5, "`passes` of each side in a round, of which the median is used")
	flags.IntVar(&r.threads, "threads", runtime.GOMAXPROCS(0), "`threads` of the C loop")
	flags.StringVar(&r.workers, "workers", "1,2,4,8,16,32,64", "`numbers` of workers that -case sweep compares the default with")
	flags.StringVar(&r.bytes, "bytes", "411,2111,4077,8301,16501,65701,262301,1048701,16778001,209800001", "`sizes` of the files of -case sizes")
	flags.StringVar(&r.who, "side", "fileproc", "with -case once: fileproc, fileproc-stat (metadata alone), fileproc-again (package "+
		"incremental with -cache), c (the C loop), c-stat, cat, or direct, which reads 4 MiB a call")
	flags.StringVar(&r.cache, "cache", "", "absolute path of the cache `file` of -side fileproc-again")
	flags.DurationVar(&r.cancel, "cancel", -1, "with -case once and -side fileproc: cancel after this `time`, and measure until the end")
	cold := flags.Bool("cold", false, "as root: drop the caches before each pass")
	fuse := flags.Duration("fuse", 0, "in place of -dir: a FUSE file system of 1,000 files whose opens take this `long`")
	raw := flags.Bool("records", false, "print the passes as records, for the command report and for benchstat")
	defer func() { err = errors.Join(err, r.end()) }()
	return fail.Try(func() {
		fail.On(flags.Parse(args))
		if *cold {
			r.Before = host.DropCaches
		}
		do := cases[*name]
		fail.If(flags.NArg() > 0, "unexpected argument %q", flags.Arg(0))
		fail.If(do == nil, "unknown case %q: want one of %v", *name, slices.Sorted(maps.Keys(cases)))
		fail.If(r.Rounds < 1 || r.Passes < 1 || r.threads < 1, "-pairs, -passes and -threads must be at least 1")
		fail.If(r.dir == "" && *fuse == 0 && !slices.Contains([]string{"trees", "sizes", "replace", "git"}, *name), "-case %s needs -dir", *name)
		if r.Table = *name; *fuse > 0 {
			r.mountSlow(*fuse)
		} else if r.dir != "" {
			r.Data = strings.TrimPrefix(filepath.Base(r.dir), "tickets_")
			r.dir = fail.Must(filepath.EvalSymlinks(r.dir)) // half of the sides do not follow a root that is a link
		}
		records := do(r)
		if *raw {
			fail.Must(fmt.Print(record.Text(records)))
		} else if records != nil {
			fmt.Printf("backend %s, GOMAXPROCS %d, %d rounds, medians of %d passes; median (minimum…maximum)\n\n%v",
				fileproc.Backend(), runtime.GOMAXPROCS(0), r.Rounds, r.Passes, record.Of(records, r.Table))
		}
	})
}

func (r *run) compare(list ...turns.Comparison) []record.Record {
	return fail.Must(r.Compare(r.ctx, list...))
}

func (r *run) end() (err error) {
	for _, undo := range slices.Backward(r.cleanup) {
		err = errors.Join(err, undo())
	}
	r.cleanup, r.cloop = nil, ""
	return err
}

func (r *run) temp() string {
	dir := fail.Must(os.MkdirTemp("", "floor-"))
	r.cleanup = append(r.cleanup, func() error { return os.RemoveAll(dir) })
	return dir
}
