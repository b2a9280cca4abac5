//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
)

const (
	// Limits above which a significant change fails, in percent. The two sides of a comparison with a revision are measured
	// in turn; a baseline is from another hour, in which time over floor was found to differ by several percent.
	revisionLimit = 5
	baselineLimit = 20
	// otherMachine is by what the limit is multiplied if the baseline is from another machine: there the system calls
	// have another share of the time.
	otherMachine = 2

	shortSizes = "5k"
	shortModes = "frontmatter,whole,stat" // names take too little time to be steady
)

// compare measures the working tree against something older.
func compare(ctx context.Context, repo repository, args []string) error {
	var sel selection
	flags := newFlags("compare")
	sel.flags(flags, 30)
	against := flags.String("against", "baseline", "what to compare with: baseline, prev (the newest record) or a `revision`")
	limit := flags.Float64("fail-above", 0, "`percent` above which a significant change fails (default: 5 against a revision, 20 otherwise)")
	short := flags.Bool("short", false, "the short form, for CI: only 5,000 files, and not their names alone")
	if err := parse(flags, args); err != nil {
		return err
	}
	if *limit < 0 || math.IsNaN(*limit) {
		return fmt.Errorf("--fail-above %v: want a percentage above 0", *limit)
	}
	if *short {
		if sel.sizes != "" {
			return errors.New("--short chooses the sizes: leave out --sizes")
		}
		sel.sizes, sel.modes = shortSizes, shortModes
	}
	cases, err := sel.cases(ctx, repo)
	if err != nil {
		return err
	}
	c := comparison{repo: repo, cases: cases, runs: sel.runs, limit: *limit / 100}
	switch *against {
	case "baseline":
		return c.withRecord(ctx, source{dir: string(repo)}, baselineFile)
	case "prev":
		return c.withRecord(ctx, source{dir: string(repo)}, historyFile)
	}
	return c.withRevision(ctx, *against)
}

// A comparison measures the cases, and those that look slower a second time: only what is slower both times fails.
type comparison struct {
	repo  repository
	cases []benchCase
	runs  int
	limit float64 // 0: the usual one
}

func (c comparison) withRevision(ctx context.Context, rev string) error {
	tmp, err := os.MkdirTemp("", "regress-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	dir := filepath.Join(tmp, "old")
	remove, err := c.repo.checkout(ctx, rev, dir)
	if err != nil {
		return err
	}
	defer remove()
	old, new := filepath.Join(tmp, "old.test"), filepath.Join(tmp, "new.test")
	if err := c.repo.build(ctx, source{dir: dir}, old); err != nil {
		return fmt.Errorf("%s cannot be measured with the benchmarks of today: %w", rev, err)
	}
	if err := c.repo.build(ctx, source{dir: string(c.repo)}, new); err != nil {
		return err
	}
	fmt.Printf("working tree against %s, interleaved\n", rev)
	return c.withBinary(ctx, old, new)
}

// withBinary compares two binaries, measured in turn.
func (c comparison) withBinary(ctx context.Context, old, new string) error {
	if c.limit == 0 {
		c.limit = revisionLimit / 100.0
	}
	return c.twice(func(cases []benchCase) ([]verdict, error) {
		o, n := newMeasurement(old), newMeasurement(new)
		if err := c.repo.measureAll(ctx, cases, c.runs, o, n); err != nil {
			return nil, err
		}
		var verdicts []verdict
		for _, bc := range cases {
			a, b := o.cases[bc.String()], n.cases[bc.String()]
			verdicts = append(verdicts, verdict{bc, a, b, changeOf(a.Time, b.Time)})
		}
		return verdicts, nil
	})
}

// withRecord compares a source with the entry of a file that suits it best.
func (c comparison) withRecord(ctx context.Context, src source, file string) error {
	entries, err := c.repo.readEntries(file)
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		return fmt.Errorf("there is no .benchmarks/%s to compare with: scripts/bench_regress.sh makes it (with --update-baseline the baseline)", file)
	}
	tmp, err := os.MkdirTemp("", "regress-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	binary := filepath.Join(tmp, "new.test")
	if err := c.repo.build(ctx, src, binary); err != nil {
		return err
	}
	// The machine is known only when the first case ran: its result says what the processor is.
	probe := newMeasurement(binary)
	if err := c.repo.sample(ctx, probe, c.cases[0]); err != nil {
		return err
	}
	here, err := c.repo.meta(ctx, probe.cpu, "")
	if err != nil {
		return err
	}
	old, err := choose(entries, here, file)
	if err != nil {
		return err
	}
	for _, bc := range c.cases {
		if old.Cases[bc.String()] == nil {
			return fmt.Errorf(".benchmarks/%s has no case %v: measure it with scripts/bench_regress.sh --sizes …, or choose with --sizes", file, bc)
		}
	}
	if c.limit == 0 {
		c.limit = baselineLimit / 100.0
		if !old.sameMachine(here) {
			c.limit *= otherMachine
		}
	}
	fmt.Printf("old: %v\nnew: %v\n", old.meta, here)
	if !old.sameMachine(here) {
		fmt.Println("These are different machines: only time over floor can be compared.")
	}
	return c.twice(func(cases []benchCase) ([]verdict, error) {
		n := newMeasurement(binary)
		if err := c.repo.measureAll(ctx, cases, c.runs, n); err != nil {
			return nil, err
		}
		var verdicts []verdict
		for _, bc := range cases {
			a, b := old.Cases[bc.String()], n.cases[bc.String()]
			verdicts = append(verdicts, verdict{bc, a, b, changeOf(a.Ratio, b.Ratio)})
		}
		return verdicts, nil
	})
}

// choose returns the newest entry from a machine like this one, or the newest of all.
func choose(entries []entry, here meta, file string) (entry, error) {
	chosen := entries[len(entries)-1]
	for _, e := range entries {
		if e.sameMachine(here) {
			chosen = e
		}
	}
	if chosen.Dirty && file == baselineFile {
		return chosen, fmt.Errorf(".benchmarks/%s has an entry of a dirty tree, which is no baseline: measure a commit with scripts/bench_regress.sh --update-baseline", file)
	}
	return chosen, nil
}

// A verdict is on one case.
type verdict struct {
	bc       benchCase
	old, new *series
	change   change
}

func (c comparison) twice(measure func([]benchCase) ([]verdict, error)) error {
	cases := c.cases
	for again := range 2 {
		verdicts, err := measure(cases)
		if err != nil {
			return err
		}
		printVerdicts(verdicts, c.limit)
		cases = nil
		for _, v := range verdicts {
			if v.change.above(c.limit) {
				cases = append(cases, v.bc)
			}
		}
		if len(cases) == 0 {
			return nil
		}
		if again == 0 {
			fmt.Println("What looks slower is measured again:")
		}
	}
	var names []string
	for _, bc := range cases {
		names = append(names, bc.String())
	}
	return fmt.Errorf("%w, twice by more than %.3g %%: %s", errSlower, c.limit*100, strings.Join(names, ", "))
}

func printVerdicts(verdicts []verdict, limit float64) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "case\told ns/file\tover floor\tnew ns/file\tover floor\tchange\t95 % interval\tp\t\t")
	for _, v := range verdicts {
		mark := ""
		switch {
		case v.change.above(limit):
			mark = "slower"
		case v.change.P >= 1-confidence:
			mark = "~"
		}
		fmt.Fprintf(w, "%v\t%.0f\t%.3f\t%.0f\t%.3f\t%+.1f %%\t%+.1f to %+.1f\t%.3f\t%s\t\n", v.bc,
			summary(v.old.Time).Center, summary(v.old.Ratio).Center, summary(v.new.Time).Center, summary(v.new.Ratio).Center,
			v.change.Estimate*100, v.change.Lo*100, v.change.Hi*100, v.change.P, mark)
	}
	w.Flush()
}
