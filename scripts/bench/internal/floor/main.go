//go:build linux

// Package floor measures fileproc against the bare system calls and against hand-written loops, in interleaved pairs, and
// prints the ratios:
//
//	go run ./bench floor -dir ../.data/tickets_flat_100k -case whole
//
// Build bench with one of fileproc's tags, such as -tags fileproc_nouring, to measure another backend.
package floor

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/scripts/internal/measure"
	"github.com/fileproc/fileproc/scripts/internal/record"
)

// Main is the command floor.
func Main(_ context.Context, args []string) error {
	if len(args) == 4 && args[0] == "serve" {
		return serveSlow(args[1], args[2], args[3])
	}
	flag := flag.NewFlagSet("floor", flag.ContinueOnError)
	dir := flag.String("dir", "", "`directory` to process; the cases small and shapes make their own")
	name := flag.String("case", "whole", "whole, prefix, stat or names (against a C loop; names also against os.ReadDir), walkdir (against WalkDir + ReadFile), plain (the same, with one worker too; without -dir on small trees), small (against ReadDir + ReadFile); "+
		"again (package incremental against a full run), files (Options.Files with all names against a run that lists), sweep (the default against other numbers of workers), uring (with io_uring against without), "+
		"shapes (1,000 directories of 3 files, a chain of 1,000 directories), cold (root: with cold caches, against the C loop with 2 to 64 threads, and in the order of the disk), "+
		"once (one pass of -side, for scripts/bench_cold.sh), allocs (allocations per file), peak (memory of Stream); "+
		"bare (the C loop's work in Go, at several batch sizes, and with io_uring at several depths), fio (fio and fileproc against the C loop)")
	pairs := flag.Int("pairs", 9, "interleaved `pairs`")
	passes := flag.Int("passes", 5, "`passes` of each side in a pair, of which the median is used")
	threads := flag.Int("threads", runtime.GOMAXPROCS(0), "`threads` of the C loop")
	workers := flag.String("workers", "1,2,4,8,16,32,64", "`numbers` of workers that -case sweep compares the default with")
	who := flag.String("side", "fileproc", "with -case once: fileproc, fileproc-stat (metadata alone), fileproc-again (package incremental with -cache), c (the C loop in the order of the listing), c-order (in the order of the disk), c-stat or c-stat-order")
	cache := flag.String("cache", "", "absolute path of the cache `file` of -side fileproc-again")
	cancel := flag.Duration("cancel", -1, "with -case once and a -side of fileproc: cancel the run after this `time`, and measure how long it takes to end")
	drop := flag.Bool("cold", false, "with -case sweep or once, as root: drop the caches before each pass")
	delay := flag.Duration("fuse", 0, "instead of -dir, use a FUSE file system of 1,000 files whose opens take this `long`")
	server := flag.String("server", "", "with -fuse: the `kind` of server: busy (an open uses a processor), serial (one open at a time) or busy,serial")
	asJSON := flag.Bool("json", false, "print the passes as lines of JSON, for the command report")
	if err := flag.Parse(args); err != nil {
		return err
	}

	known := []string{"whole", "prefix", "stat", "names", "walkdir", "plain", "small", "shapes", "sweep", "uring", "again", "files", "cold", "once", "allocs", "peak", "bare", "fio"}
	switch {
	case flag.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flag.Arg(0))
	case !slices.Contains(known, *name):
		return fmt.Errorf("unknown case %q: want one of %v", *name, known)
	case *pairs < 1 || *passes < 1 || *threads < 1:
		return fmt.Errorf("-pairs, -passes and -threads must be at least 1")
	case *server != "" && *delay == 0:
		return fmt.Errorf("-server needs -fuse")
	case *dir == "" && *name != "plain" && *name != "small" && *name != "shapes" && *delay == 0:
		return fmt.Errorf("-case %s needs -dir", *name)
	}
	p := printer{set: strings.TrimPrefix(filepath.Base(*dir), "tickets_")}
	if *asJSON {
		p.json = json.NewEncoder(os.Stdout)
	}
	switch *name {
	case "small":
		return runSmall(*pairs, *passes, p)
	case "shapes":
		return runShapes(*pairs, *passes, *threads, p)
	}
	if *delay > 0 {
		mounted, unmount, err := mountSlow(*delay, *server)
		if err != nil {
			return err
		}
		defer unmount()
		*dir, p.set = mounted, fmt.Sprintf("%d files with %v an open", slowFiles, *delay)
	}
	if *name == "plain" && *dir == "" {
		return runPlain("", *pairs, *passes, p)
	}
	set, err := directory(*dir)
	if err != nil {
		return err
	}
	prepared := func(s side) side { return s }
	if *drop {
		prepared = cold
	}
	switch *name {
	case "once":
		return runOnce(set, *who, *cache, *threads, *cancel, prepared)
	case "plain":
		return runPlain(set, *pairs, *passes, p)
	case "uring":
		return runURing(set, *pairs, *passes, p)
	case "again":
		return runAgain(set, *pairs, p)
	case "cold":
		return runCold(set, *pairs, p)
	case "allocs":
		return printAllocs(set)
	case "peak":
		return printPeak(set)
	}

	if *name == "fio" {
		p.header(*pairs, *passes)
		return runFio(set, *threads, *pairs, *passes, p)
	}
	if *name == "sweep" {
		list, err := sweep(set, *workers, prepared)
		if err != nil {
			return err
		}
		return p.all(list, *pairs, *passes)
	}
	c, err := startCLoop(set, *threads)
	if err != nil {
		return err
	}
	defer c.close()
	list := comparisons(*name, set, c)
	if *name == "bare" {
		if list, err = bareComparisons(set, *threads, c, p); err != nil {
			return err
		}
	}
	return p.all(list, *pairs, *passes)
}

func (p printer) all(list []comparison, pairs, passes int) error {
	p.header(pairs, passes)
	return p.compare(pairs, passes, list...)
}

// directory returns the path of the directory name with symbolic links resolved, because WalkDir does not follow a root that
// is one.
func directory(name string) (string, error) {
	dir, err := filepath.EvalSymlinks(name)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a directory", name)
	}
	return dir, err
}

// A printer writes a table for people, or lines for the command report.
type printer struct {
	set  string
	json *json.Encoder // nil: a table
}

func (p printer) header(pairs, passes int) {
	if p.json != nil {
		return
	}
	fmt.Printf("backend %s, GOMAXPROCS %d, %d pairs of %d passes; ratio ours/theirs: median (minimum to maximum)\n",
		fileproc.Backend(), runtime.GOMAXPROCS(0), pairs, passes)
	fmt.Printf("%-40s %8s  %-24s %-24s %10s %10s\n", "", "files", "wall", "CPU", "ours", "theirs")
}

// pass writes the pass of one side of a pair for the command report.
func (p printer) pass(comparison, side string, got pass) error {
	if p.json == nil {
		return nil
	}
	return p.json.Encode(record.Record{Table: "floor", Data: p.set, Who: comparison + record.Side + side, Files: got.files, Wall: got.wall, CPU: got.cpu})
}

func (p printer) leftOut(reason string) error {
	if p.json == nil {
		fmt.Println("left out:", reason)
		return nil
	}
	return p.json.Encode(record.Record{Table: "floor", Data: p.set, Text: "left out: " + reason})
}

// A comparison measures two ways to do the same work. Without a C compiler theirs is nil, and only ours is measured.
type comparison struct {
	name         string
	ours, theirs side
}

// A tally holds the results of a comparison's pairs: ratios, and ns per file.
type tally struct {
	wall, cpu, ours, theirs []float64
	files                   int
}

// compare measures one pair of each comparison in each round, so that all comparisons are from the same moments.
func (p printer) compare(pairs, passes int, list ...comparison) error {
	tallies := make([]tally, len(list))
	for round := range pairs {
		for k, c := range list {
			if err := c.pair(round, passes, &tallies[k], p); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	for k, t := range tallies {
		if p.json != nil {
			continue
		} else if list[k].theirs == nil {
			fmt.Printf("%-40s %8d  no C compiler to compare with %30.0f ns/file\n", list[k].name, t.files, measure.Median(t.ours))
			continue
		}
		fmt.Printf("%-40s %8d  %-24s %-24s %7.0f ns %7.0f ns\n", list[k].name, t.files,
			measure.Summarize(t.wall), measure.Summarize(t.cpu), measure.Median(t.ours), measure.Median(t.theirs))
	}
	return nil
}

func (c comparison) pair(round, passes int, t *tally, p printer) error {
	sides, got := []side{c.ours, c.theirs}, []pass{{}, {}}
	if c.theirs == nil {
		sides, got = sides[:1], got[:1]
	}
	for i := range sides {
		k := (i + round) % len(sides) // each goes first in half of the pairs, so that drift of the machine favours neither
		if round == 0 {               // warm up
			if _, err := sides[k](); err != nil {
				return err
			}
		}
		var err error
		if got[k], err = medianPass(sides[k], passes); err != nil {
			return err
		}
	}
	for k, g := range got {
		if g.files != got[0].files || g.bytes != got[0].bytes {
			return fmt.Errorf("ours saw %d files, %d bytes; theirs %d files, %d bytes", got[0].files, got[0].bytes, g.files, g.bytes)
		}
		if err := p.pass(c.name, []string{"ours", "theirs"}[k], g); err != nil {
			return err
		}
	}
	o, files := got[0], float64(got[0].files)
	t.files, t.ours = o.files, append(t.ours, o.wall/files)
	if c.theirs != nil {
		other := got[1]
		t.wall, t.cpu, t.theirs = append(t.wall, o.wall/other.wall), append(t.cpu, o.cpu/other.cpu), append(t.theirs, other.wall/files)
	}
	return nil
}

// medianPass runs a side several times and returns the median. Every pass must see the same files and bytes.
func medianPass(s side, passes int) (pass, error) {
	var wall, cpu []float64
	var first pass
	for i := range passes {
		p, err := s()
		if err != nil {
			return p, err
		}
		if i == 0 {
			first = p
		}
		if p.files == 0 || p.files != first.files || p.bytes != first.bytes {
			return p, fmt.Errorf("a pass saw %d files, %d bytes; the first one %d files, %d bytes", p.files, p.bytes, first.files, first.bytes)
		}
		wall, cpu = append(wall, p.wall), append(cpu, p.cpu)
	}
	first.wall, first.cpu = measure.Median(wall), measure.Median(cpu)
	return first, nil
}
