//go:build linux

package regress

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"

	"github.com/fileproc/fileproc/scripts/internal/measure"
)

const (
	// Limits above which a significant change fails, in percent. The two sides of a comparison with a revision are measured
	// in turn; a baseline is from another hour, in which time over floor was found to differ by several percent.
	revisionLimit = 5
	baselineLimit = 20
	// otherMachine is by what the limit is multiplied if the baseline is from another machine and its commit is not here
	// to be measured: there the system calls have another share of the time.
	otherMachine = 2

	// How many times as many samples are taken again, at most, of what is undecided. The short form is to end in three minutes,
	// come what may.
	moreSamples = 3
	shortMore   = 1

	shortSizes   = "5k"
	shortLayouts = "flat,nested1"
	shortModes   = "frontmatter,whole,stat" // names take too little time to be steady
)

// compare measures the working tree against something older.
func compare(f *flag.FlagSet) func(clone) {
	sel := selection{runs: 30}
	sel.flags(f)
	against := f.String("against", "baseline", "what to compare with: baseline, prev (the newest record) or a `revision`")
	limit := f.Float64("fail-above", 0, "`percent` above which a significant change fails (default: 5 against a revision, 20 otherwise)")
	tags := tagsFlag(f)
	short := f.Bool("short", false, "the short form, for CI: only 5,000 files, and not their names alone")
	return func(c clone) {
		if !(*limit >= 0) { // nor not a number
			failf("--fail-above %v: want a percentage above 0", *limit)
		}
		cmp := comparison{clone: c, limit: *limit / 100, more: moreSamples}
		if *short {
			if sel.sizes != "" || sel.modes != strings.Join(modes, ",") {
				failf("--short chooses the cases: leave out --sizes and --modes")
			}
			sel.sizes, sel.modes, cmp.more = shortSizes, shortModes, shortMore
		}
		src := c.workingTree(*tags)
		c.comparable(*against, src.tags) // before data is made and time is spent
		cmp.cases, cmp.runs, cmp.asked = sel.cases(c), sel.runs, sel.sizes != ""
		if file, ok := recordFiles[*against]; ok {
			cmp.withRecord(src, file)
		} else {
			cmp.withRevision(src, *against)
		}
	}
}

// comparable fails if something is wrong with the other side of a comparison that can be seen at once.
func (c clone) comparable(against string, with tags) {
	if file, ok := recordFiles[against]; ok {
		c.entriesWith(with, file)
	} else {
		c.commit(against)
	}
}

// A comparison measures the cases, and those that look slower a second time: only what is slower both times fails.
type comparison struct {
	clone
	cases []benchCase
	runs  int
	limit float64 // 0: the usual one
	asked bool    // for these cases, and no fewer
	more  int     // times as many samples again, at most, of what is undecided
}

func (c comparison) withRevision(src source, rev string) {
	oldBinary, binary := c.made("old.test"), c.made("new.test")
	old := c.buildRevision(rev, src.tags, oldBinary)
	c.build(src, binary)
	with := ""
	if src.tags != "" {
		with = fmt.Sprintf(", both with %v", src.tags)
	}
	fmt.Printf("working tree against %s, interleaved%s\n", rev, with)
	c.timesAndCounts(func() { c.withBinary(oldBinary, binary) }, func() {
		var before map[string]counts
		err := try(func() { before = c.count(old, c.cases) })
		switch {
		case errors.Is(err, errNoHooks):
			fmt.Printf("no counts are compared: in %s %v\n", rev, err)
		case err != nil:
			failf("%s: %w", rev, err)
		case before != nil:
			compareCounts(os.Stdout, before, c.count(src, c.cases))
		}
	})
}

// timesAndCounts fails if one of the two does. A larger count goes before times that this machine cannot tell.
func (c comparison) timesAndCounts(times, counts func()) {
	err := try(times)
	check(c.ctx.Err())
	check(errors.Join(try(counts), err))
}

// withBinary compares two binaries, measured in turn.
func (c comparison) withBinary(old, new string) {
	if c.limit == 0 {
		c.limit = revisionLimit / 100.0
	}
	c.confirmed(newSide(old), new, func() *side { return newSide(old) })
}

// withRecord compares a source with the entries of a file that suit it best.
func (c comparison) withRecord(src source, file string) {
	entries := c.entriesWith(src.tags, file)
	here, binary := c.meta("", src.tags), c.made("new.test")
	old := choose(entries, here, file)
	c.cases = old.having(c.cases, file, c.asked)
	c.build(src, binary)
	fmt.Printf("old: %v\nnew: %v\n", old.meta, here)
	before, why := countsLike(entries, here)
	if why != nil {
		fmt.Printf("no counts are compared: %v\n", why)
	}
	c.timesAndCounts(func() { c.withEntry(old, here, binary) }, func() {
		if why == nil {
			compareCounts(os.Stdout, before, c.count(src, c.cases))
		}
	})
}

// withEntry compares time over floor. What then looks slower is measured in turn with the commit of the entry, if git has it:
// that no mood of the machine can spoil. On a machine unlike that of the entry this is done at once.
func (c comparison) withEntry(old entry, here meta, binary string) {
	if c.limit == 0 {
		c.limit = baselineLimit / 100.0
	}
	oldBinary := c.made("old.test")
	built := sync.OnceValue(func() error {
		if old.Dirty {
			return errors.New("the record is of a dirty tree")
		}
		return try(func() { c.buildRevision(old.Commit, old.BuildTags, oldBinary) })
	})
	record := &side{cases: old.Cases}
	inTurn := func() *side {
		if err := built(); err != nil {
			fmt.Printf("The commit of the record cannot be measured beside: %v.\n", err)
			return &side{cases: old.Cases, quiet: true}
		}
		fmt.Println("In turn with the commit of the record:")
		return newSide(oldBinary)
	}
	switch {
	case old.sameMachine(here):
		c.confirmed(record, binary, inTurn)
	case built() == nil:
		fmt.Println("These are different machines.")
		c.confirmed(inTurn(), binary, inTurn)
	case old.IOUring != here.IOUring:
		failf("%w: io_uring is to be had on one of the machines only, and git does not have the commit %.12s to measure it here",
			errCannotTell, old.Commit)
	default:
		fmt.Println("These are different machines: only time over floor can be compared.")
		c.limit *= otherMachine
		c.confirmed(record, binary, func() *side { return record })
	}
}

// confirmed measures the cases, and what looks slower a second time.
func (c comparison) confirmed(old *side, binary string, again func() *side) {
	slower := c.slower(c.cases, old, newSide(binary))
	if slower == nil {
		return
	}
	fmt.Println("What looks slower is measured again.")
	if slower = c.slower(slower, again(), newSide(binary)); slower != nil {
		failf("%w, twice by more than %.3g %%: %v", errSlower, c.limit*100, slower)
	}
}

// slower compares the cases, and more samples of those on which they do not decide: a noisy machine has wide intervals. It
// prints the changes, and returns the cases that look slower.
func (c comparison) slower(cases []benchCase, old, new *side) (slower []benchCase) {
	change := func(bc benchCase) change {
		o, n := old.cases[bc.String()], new.cases[bc.String()]
		if old.binary == "" {
			return changeOf(o.Ratio, n.Ratio)
		}
		return pairedChange(o.Time, n.Time)
	}
	undecided := slices.Clone(cases)
	for range 1 + c.more {
		c.measureAll(undecided, c.runs, old, new)
		undecided = slices.DeleteFunc(undecided, func(bc benchCase) bool { return change(bc).decides(c.limit) })
	}
	if old.quiet {
		check(busy(cases, old.cases, new.cases))
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "case\told ns/file\tover floor\tnew ns/file\tover floor\tchange\t95 % interval\tp\tsamples\t\t")
	for _, bc := range cases {
		o, n, ch, mark := old.cases[bc.String()], new.cases[bc.String()], change(bc), ""
		if ch.above(c.limit) {
			mark = "slower"
			slower = append(slower, bc)
		} else if !ch.significant() {
			mark = "~"
		}
		fmt.Fprintf(w, "%v\t%.0f\t%.3f\t%.0f\t%.3f\t%+.1f %%\t%+.1f to %+.1f\t%.3f\t%d\t%s\t\n", bc,
			measure.Median(o.Time), measure.Median(o.Ratio), measure.Median(n.Time), measure.Median(n.Ratio),
			ch.Estimate*100, ch.Lo*100, ch.Hi*100, ch.P, len(n.Time), mark)
	}
	w.Flush()
	return slower
}

// busy is the error that the machine, which is like that of the record, has too much else to do: that has slowed down the
// floor, and need not have slowed down all else as much.
func busy(cases []benchCase, record, now map[string]*series) error {
	const most = 1.25 // times as long as in the record
	for _, bc := range cases {
		if times := measure.Median(now[bc.String()].Floor) / measure.Median(record[bc.String()].Floor); times > most {
			return fmt.Errorf("%w: the machine is busy, since the floor of %v takes %.1f times as long as in the record",
				errCannotTell, bc, times)
		}
	}
	return nil
}
