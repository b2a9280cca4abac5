//go:build linux

// Package caches is the command caches of bench. It measures fileproc's cache, absfs/cachefs and absfs/corfs side by side, in
// front of the same source in memory, and prints the tables of docs/cache.md. scripts/bench_cache.sh runs it:
//
//	go run ./bench caches -rounds 9 -plot ../docs/img/cache.png
//
// An operation opens, reads and closes a file. Before a case is timed, each side does it on files of its own and each answer
// is compared with the file: what is wrong is printed beside the table, and what a side cannot do at all is left out.
package caches

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/fileproc/fileproc/scripts/internal/measure"
)

var english = message.NewPrinter(language.English)

// Main measures and prints.
func Main(_ context.Context, args []string) error {
	flag := flag.NewFlagSet("caches", flag.ContinueOnError)
	rounds := flag.Int("rounds", 9, "interleaved `rounds`")
	sample := flag.Duration("sample", 20*time.Millisecond, "`time` of a side in a round, about")
	only := flag.String("only", "", "measure only the cases whose name contains this `text`, and no other tables")
	plotName := flag.String("plot", "", "draw a plot to `name`.svg and name.png, or only to the one that is named")
	if err := flag.Parse(args); err != nil {
		return err
	}
	if *rounds < 1 || flag.NArg() > 0 {
		return fmt.Errorf("-rounds must be at least 1, and there are no arguments")
	}
	var results []*result
	for i := range cases {
		c := &cases[i]
		if !strings.Contains(c.name, *only) {
			continue
		}
		r, err := measureCase(c, sides, *rounds, *sample)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		results = append(results, r)
	}
	fmt.Printf("%s %s/%s, %d processors, %d interleaved rounds.\n\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0), *rounds)
	printTable(results)
	if *plotName != "" {
		if err := plotResults(results, *plotName); err != nil {
			return err
		}
	}
	if *only != "" {
		return nil
	}
	if err := printPolicies(); err != nil {
		return err
	}
	if err := printEviction(*rounds); err != nil {
		return err
	}
	return printDirectory(*rounds, *sample)
}

// A result has what was measured in one case.
type result struct {
	of    *testCase
	sides []*measured
	notes []string
}

type measured struct {
	side   string
	ns     []float64 // of an operation, in each round
	allocs float64   // of an operation
	reads  float64   // of the source, in an operation
	ops    int       // of a round
}

func (r *result) find(side string) *measured {
	for _, m := range r.sides {
		if m.side == side {
			return m
		}
	}
	return nil
}

// measureCase does the case on each side in turn, rounds times, the order of the sides turning.
func measureCase(c *testCase, sides []side, rounds int, sample time.Duration) (*result, error) {
	r := &result{of: c}
	var targets []*target
	for _, s := range sides {
		notes, err := check(c, s)
		r.notes = append(r.notes, notes...)
		if err != nil {
			r.notes = append(r.notes, fmt.Sprintf("%s: left out: %v", s.name, err))
			continue
		}
		t, err := s.open(c)
		if err != nil {
			return nil, err
		}
		if c.drop && t.drop == nil || c.around && s.name == corfsName {
			continue // it has none
		}
		m := &measured{side: s.name}
		if m.ops, err = calibrate(c, t, sample); err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		targets, r.sides = append(targets, t), append(r.sides, m)
	}
	for round := range rounds {
		for i := range targets {
			i = (i + round) % len(targets)
			t, m := targets[i], r.sides[i]
			reads := t.src.reads.Load()
			ns, allocs, err := timed(c, t, m.ops)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", m.side, err)
			}
			m.ns = append(m.ns, ns)
			m.allocs = allocs
			m.reads = float64(t.src.reads.Load()-reads) / float64(m.ops)
		}
	}
	return r, nil
}

// calibrate fills the cache and returns how many operations take as long as a sample.
func calibrate(c *testCase, t *target, sample time.Duration) (int, error) {
	if _, _, err := timed(c, t, 2*c.cycle()); err != nil {
		return 0, err
	}
	for n := 1000; ; n *= 2 {
		ns, _, err := timed(c, t, n)
		if err != nil {
			return 0, err
		}
		if total := time.Duration(ns * float64(n)); total >= sample/4 {
			n = int(float64(sample) / ns)
			return max(1, (n+c.cycle()-1)/c.cycle()) * c.cycle(), nil // whole cycles
		}
	}
}

// timed does n operations and returns the time and the allocations of one.
func timed(c *testCase, t *target, n int) (ns, allocs float64, err error) {
	goroutines := max(1, c.goroutines)
	errs := make([]error, goroutines)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	start := time.Now()
	if goroutines == 1 {
		errs[0] = c.do(t, 0, n)
	} else {
		var wg sync.WaitGroup
		for g := range goroutines {
			wg.Go(func() { errs[g] = c.do(t, g*n/goroutines, n/goroutines) })
		}
		wg.Wait()
	}
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	for _, err := range errs {
		if err != nil {
			return 0, 0, err
		}
	}
	return float64(took) / float64(n), float64(after.Mallocs-before.Mallocs) / float64(n), nil
}

// do does n operations, of which the first has that number.
func (c *testCase) do(t *target, first, n int) error {
	buf := make([]byte, c.size)
	for op := first; op < first+n; op++ {
		i := c.file(op)
		if c.write {
			if err := t.write(t.names[i], buf); err != nil {
				return err
			}
			if !c.back {
				continue
			}
		}
		if err := t.read(i, buf, c.toEOF); err != nil {
			return err
		}
		if c.drop {
			t.drop(t.names[i])
		}
	}
	return nil
}

// check does the case twice, once with single reads and once to the end of the file, and compares each answer with the file.
// Without an error, the single reads are right.
func check(c *testCase, s side) (notes []string, err error) {
	for _, whole := range []bool{false, true} {
		t, err := s.open(c)
		if err != nil {
			return nil, err
		}
		ops := min(3*c.cycle(), 30_000)
		if c.files == 1 {
			ops = 10
		}
		wrong, first := 0, ""
		for op := range ops {
			if err := checkOne(c, t, op, whole); err != nil {
				if wrong++; wrong == 1 {
					first = err.Error()
				}
			}
			if c.drop && t.drop != nil {
				t.drop(t.names[c.file(op)])
			}
		}
		switch {
		case wrong == 0:
		case whole:
			notes = append(notes, english.Sprintf("%s: %d of %d reads with io.ReadAll are wrong: %s", s.name, wrong, ops, first))
		default:
			return nil, fmt.Errorf("%d of %d single reads are wrong: %s", wrong, ops, first)
		}
		if held := t.held; held != nil && c.maxBytes > 0 && held() > c.maxBytes {
			notes = append(notes, english.Sprintf("%s: holds %d bytes, the bound is %d", s.name, held(), c.maxBytes))
		}
	}
	slices.Sort(notes)
	return slices.Compact(notes), nil
}

func checkOne(c *testCase, t *target, op int, whole bool) error {
	i, version := c.file(op), 0
	if c.write {
		version = op + 1
		if err := t.write(t.names[i], contentOf(i, c.size, version)); err != nil {
			return err
		}
	}
	f, err := t.open(t.names[i])
	if err != nil {
		return err
	}
	defer f.Close()
	got := make([]byte, c.size)
	if whole {
		got, err = io.ReadAll(f)
	} else {
		var n int
		n, err = f.Read(got)
		got = got[:n]
	}
	if err != nil && err != io.EOF {
		return err
	}
	if want := contentOf(i, c.size, version); !bytes.Equal(got, want) {
		return fmt.Errorf("%d bytes instead of %d", len(got), len(want))
	}
	return nil
}

func printTable(results []*result) {
	fmt.Println("| ns | fileproc | checked | cachefs | corfs | no cache | cachefs / fileproc | corfs / fileproc | allocations |")
	fmt.Println("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
	var notes []string
	for _, r := range results {
		unit := float64(max(1, r.of.unit))
		row := "| " + r.of.name
		var allocs []string
		for _, s := range sides {
			m := r.find(s.name)
			if m == nil {
				row += " | –"
				allocs = append(allocs, "–")
				continue
			}
			row += english.Sprintf(" | %.0f", measure.Median(m.ns)*unit)
			allocs = append(allocs, fmt.Sprintf("%.3g", m.allocs*unit))
		}
		for _, side := range []string{theirs, corfsName} {
			if s, ok := r.ratio(side, ours); ok {
				row += fmt.Sprintf(" | %.2f", s.Median)
			} else {
				row += " | –"
			}
		}
		fmt.Println(row + " | " + strings.Join(allocs, ", ") + " |")
		for _, n := range r.notes {
			notes = append(notes, r.of.name+": "+n)
		}
	}
	fmt.Println("\nReads of the source in an operation:")
	fmt.Println("\n| | fileproc | checked | cachefs | corfs |\n| --- | ---: | ---: | ---: | ---: |")
	for _, r := range results {
		row := "| " + r.of.name
		for _, s := range sides[:4] {
			if m := r.find(s.name); m != nil {
				row += fmt.Sprintf(" | %.2f", m.reads)
			} else {
				row += " | –"
			}
		}
		fmt.Println(row + " |")
	}
	fmt.Println()
	for _, n := range notes {
		fmt.Println("- " + n)
	}
}

// ratio is the spread of the ratios of two sides, round by round.
func (r *result) ratio(side, to string) (s measure.Spread, ok bool) {
	a, b := r.find(side), r.find(to)
	if a == nil || b == nil {
		return s, false
	}
	ratios := make([]float64, len(a.ns))
	for i := range ratios {
		ratios[i] = a.ns[i] / b.ns[i]
	}
	return measure.Summarize(ratios), true
}
