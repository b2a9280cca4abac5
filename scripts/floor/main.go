//go:build linux

// Command floor measures fileproc against the bare system calls and against the loops that people write by hand, side by
// side in interleaved pairs, and prints the ratios:
//
//	go run ./floor -dir ../.data/tickets_flat_100k -case whole
//
// Build it with a tag of fileproc's, such as -tags fileproc_nouring, to measure another backend.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/scripts/internal/measure"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "floor:", err)
		os.Exit(1)
	}
}

func run() error {
	dir := flag.String("dir", "", "`directory` to process; the case small makes its own")
	name := flag.String("case", "whole", "whole, prefix, stat or names (against a C loop; names also against os.ReadDir), walkdir (against WalkDir + ReadFile), small (against ReadDir + ReadFile)")
	pairs := flag.Int("pairs", 9, "interleaved `pairs`")
	passes := flag.Int("passes", 5, "`passes` of each side in a pair; their median counts")
	threads := flag.Int("threads", runtime.GOMAXPROCS(0), "`threads` of the C loop")
	flag.Parse()

	known := []string{"whole", "prefix", "stat", "names", "walkdir", "small"}
	switch {
	case flag.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flag.Arg(0))
	case !slices.Contains(known, *name):
		return fmt.Errorf("unknown case %q: want one of %v", *name, known)
	case *pairs < 1 || *passes < 1 || *threads < 1:
		return fmt.Errorf("-pairs, -passes and -threads must be at least 1")
	case *dir == "" && *name != "small":
		return fmt.Errorf("-case %s needs -dir", *name)
	}
	if *name == "small" {
		return runSmall(*pairs, *passes)
	}
	if info, err := os.Stat(*dir); err != nil {
		return err
	} else if !info.IsDir() {
		return fmt.Errorf("%s is not a directory", *dir)
	}

	c, err := startCLoop(*dir, *threads)
	if err != nil {
		return err
	}
	defer c.close()
	header(*pairs, *passes)
	for _, cmp := range comparisons(*name, *dir, c) {
		if err := cmp.run(*pairs, *passes); err != nil {
			return err
		}
	}
	return nil
}

func header(pairs, passes int) {
	fmt.Printf("backend %s, GOMAXPROCS %d, %d pairs of %d passes; ratio ours/theirs: median (minimum to maximum)\n",
		fileproc.Backend(), runtime.GOMAXPROCS(0), pairs, passes)
	fmt.Printf("%-34s %8s  %-24s %-24s %10s %10s\n", "", "files", "wall", "CPU", "ours", "theirs")
}

// A comparison measures two ways to do the same work. Without a C compiler theirs is nil, and ours stands alone.
type comparison struct {
	name         string
	ours, theirs side
}

func (c comparison) run(pairs, passes int) error {
	if c.theirs == nil {
		m, err := medianPass(c.ours, passes)
		if err == nil {
			fmt.Printf("%-34s %8d  no C compiler to compare with %30.0f ns/file\n", c.name, m.files, m.wall/float64(m.files))
		}
		return err
	}
	for _, s := range []side{c.ours, c.theirs} { // warm up
		if _, err := s(); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	var wall, cpu, ours, theirs []float64
	var files int
	for i := range pairs {
		// Each side goes first in half of the pairs, so that a drift of the machine favours neither.
		order := []side{c.ours, c.theirs}
		if i%2 == 1 {
			slices.Reverse(order)
		}
		var got [2]pass
		for k, s := range order {
			var err error
			if got[k], err = medianPass(s, passes); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
		if i%2 == 1 {
			slices.Reverse(got[:])
		}
		o, t := got[0], got[1]
		if o.files != t.files || o.bytes != t.bytes {
			return fmt.Errorf("%s: ours saw %d files, %d bytes; theirs %d files, %d bytes", c.name, o.files, o.bytes, t.files, t.bytes)
		}
		files = o.files
		wall, cpu = append(wall, o.wall/t.wall), append(cpu, o.cpu/t.cpu)
		ours, theirs = append(ours, o.wall/float64(files)), append(theirs, t.wall/float64(files))
	}
	fmt.Printf("%-34s %8d  %-24s %-24s %7.0f ns %7.0f ns\n", c.name, files,
		measure.Summarize(wall), measure.Summarize(cpu), measure.Median(ours), measure.Median(theirs))
	return nil
}

// medianPass runs a side several times; every pass must see the same files and bytes.
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
