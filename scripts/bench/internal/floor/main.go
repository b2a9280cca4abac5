//go:build linux

// Package floor measures fileproc against the bare system calls and against hand-written loops, in interleaved pairs, and
// prints the ratios, or the records of package peers:
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
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/scripts/bench/internal/peers"
	"github.com/fileproc/fileproc/scripts/bench/internal/readers"
	"github.com/fileproc/fileproc/scripts/internal/fail"
	"github.com/fileproc/fileproc/scripts/internal/turns"
)

// A run is of one case.
type run struct {
	turns.Measurement
	ctx                  context.Context
	dir                  string
	workers, who, server string
	cache                string
	threads              int
	cancel, fuse         time.Duration
	started              bool           // the table's header is printed
	cloop                string         // the C program, once it is built
	cleanup              []func() error // what the run has made, in reverse order
}

var caseHelp = `
against the C loop: whole, prefix, stat, names (and os.ReadDir), shapes (1,000 directories of 3 files, a chain of 1,000),
  bare (its work in Go, at several batch sizes, and with io_uring at several depths), fio (fio and fileproc);
against WalkDir + ReadFile: walkdir, plain (with one worker too; without -dir on small trees);
small (against ReadDir + ReadFile), again (package incremental against a full run), files (Options.Files with all names against
  a run that lists), sweep (the default against other -workers), uring (with io_uring against without);
once (one pass of -side), allocs (allocations a file), peak (memory of Stream);
records of a table of the report: ` + strings.Join(slices.Sorted(maps.Keys(peers.Tables)), ", ")

// Main is the command floor.
func Main(ctx context.Context, args []string) (err error) {
	if len(args) == 4 && args[0] == "serve" {
		return serveSlow(args[1], args[2], args[3])
	}
	r := &run{ctx: ctx}
	r.Table, r.Out = "floor", os.Stdout
	flags := flag.NewFlagSet("bench floor", flag.ContinueOnError)
	name := flags.String("case", "whole", strings.TrimSpace(caseHelp))
	flags.StringVar(&r.dir, "dir", "", "`directory` to process; the cases small and shapes make their own")
	flags.IntVar(&r.Rounds, "pairs", 9, "interleaved `pairs`")
	flags.IntVar(&r.Passes, "passes", 5, "`passes` of each side in a pair, of which the median is used")
	flags.IntVar(&r.threads, "threads", runtime.GOMAXPROCS(0), "`threads` of the C loop")
	flags.StringVar(&r.workers, "workers", "1,2,4,8,16,32,64", "`numbers` of workers that -case sweep compares the default with")
	flags.StringVar(&r.who, "side", "fileproc", "with -case once: fileproc, fileproc-stat (metadata alone), fileproc-again (package "+
		"incremental with -cache), c (the C loop in the order of the listing), c-order (a loop in the order of the disk), c-stat or c-stat-order")
	flags.StringVar(&r.cache, "cache", "", "absolute path of the cache `file` of -side fileproc-again")
	flags.DurationVar(&r.cancel, "cancel", -1, "with -case once and -side fileproc: cancel after this `time`, and measure until the end")
	cold := flags.Bool("cold", false, "as root: drop the caches before each pass")
	flags.DurationVar(&r.fuse, "fuse", 0, "in place of -dir: a FUSE file system of 1,000 files whose opens take this `long`")
	flags.StringVar(&r.server, "server", "", "with -fuse: busy (an open uses a processor), serial (one open at a time) or busy,serial")
	build := flags.String("build", fileproc.Backend(), "`name` of this build in the table backends")
	count := flags.String("count", "", "`path` of the built command count, for the table programs")
	flags.BoolVar(&r.Records, "json", false, "print the passes as records, for the command report")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *cold {
		r.Before = readers.DropCaches
	}
	given := r.dir // the manifest of a set is beside it, also if that is a symbolic link
	do := cases[*name]
	if peers.Tables[*name] != nil {
		do = func(r *run) { fail.On(peers.Compare(ctx, r.Measurement, *name, given, *build, *count)) }
	}
	defer func() { err = errors.Join(err, r.end()) }()
	return fail.Try(func() {
		fail.If(flags.NArg() > 0, "unexpected argument %q", flags.Arg(0))
		fail.If(do == nil, "unknown case %q: -h lists them", *name)
		fail.If(r.Rounds < 1 || r.Passes < 1 || r.threads < 1, "-pairs, -passes and -threads must be at least 1")
		fail.If(r.server != "" && r.fuse == 0, "-server needs -fuse")
		needs := !slices.Contains([]string{"plain", "small", "shapes"}, *name)
		fail.If(r.dir == "" && r.fuse == 0 && needs, "-case %s needs -dir", *name)
		if r.fuse > 0 {
			r.mountSlow()
		} else if r.dir != "" {
			r.dir, r.Data, err = readers.Set(r.dir)
			fail.On(err)
		}
		do(r)
	})
}

// compare may be called more than once, for comparisons that must not share their rounds.
func (r *run) compare(list ...turns.Comparison) {
	if !r.Records && !r.started {
		fmt.Fprintf(r.Out, "backend %s, GOMAXPROCS %d, %d pairs of %d passes; ratio ours/theirs: median (minimum to maximum)\n"+
			"%-40s %8s  %-24s %-24s %10s %10s\n",
			fileproc.Backend(), runtime.GOMAXPROCS(0), r.Rounds, r.Passes, "", "files", "wall", "CPU", "ours", "theirs")
	}
	r.started = true
	fail.On(r.Compare(r.ctx, list...))
}

func (r *run) end() (err error) {
	for _, undo := range slices.Backward(r.cleanup) {
		err = errors.Join(err, undo())
	}
	return err
}

// temp makes a directory that is removed after the run.
func (r *run) temp(parent string) string {
	dir := fail.Must(os.MkdirTemp(parent, "floor-"))
	r.cleanup = append(r.cleanup, func() error { return os.RemoveAll(dir) })
	return dir
}
