//go:build linux

package regress

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"

	"golang.org/x/perf/benchfmt"
	"golang.org/x/perf/benchmath"

	"github.com/fileproc/fileproc/scripts/internal/fail"
	"github.com/fileproc/fileproc/scripts/internal/measure"
)

const (
	// How many times as many samples are taken again, at most, of what is undecided. The short form has to end in three minutes.
	moreSamples = 3
	shortMore   = 1
	shortSizes  = "5k"
	shortModes  = "frontmatter,whole,stat" // names take too little time to be steady
)

func compare(f *flag.FlagSet) func(clone) {
	sel := selection{runs: 30}
	sel.flags(f)
	against := f.String("against", "baseline", "what to compare with: baseline or a `revision`")
	limit := f.Float64("fail-above", 0, "`percent` above which a significant change fails (default: 5 against a revision, or 20)")
	short := f.Bool("short", false, "the short form, for CI: only 5,000 files, and not their names alone")
	return func(c clone) {
		fail.If(*limit < 0 || math.IsNaN(*limit), "--fail-above %v: want a percentage above 0", *limit)
		to := comparison{c, sel, *limit / 100, moreSamples}
		if *short {
			fail.If(sel.sizes != "" || sel.modes != allModes, "--short chooses the cases: leave out --sizes and --modes")
			to.sizes, to.modes, to.more = shortSizes, shortModes, shortMore
		}
		if src := c.workingTree(); *against == "baseline" {
			to.withBaseline(src)
		} else {
			to.withRevision(src, *against)
		}
	}
}

// A comparison measures cases, and those that look slower a second time: only what is slower both times fails.
type comparison struct {
	clone
	selection
	limit float64 // 0: the usual one
	more  int     // times as many samples again, at most, of what is undecided
}

func (c comparison) withRevision(src source, rev string) {
	oldBinary, binary := c.made("old.test"), c.made("new.test")
	c.commit(rev) // before data is made and time is spent
	cases := c.cases(c.clone)
	old := c.buildRevision(rev, src.tags, oldBinary)
	c.build(src, binary)
	fmt.Printf("working tree against %s, interleaved, both with %v\n", rev, src.tags)
	c.timesAndCounts(func() { c.withBinary(cases, oldBinary, binary) }, func() {
		if old.countable() {
			compareCounts(os.Stdout, c.count(old, cases), c.count(src, cases))
		} else {
			fmt.Printf("no counts are compared: %s has no export_test.go, which keeps the package from reacting to slow calls\n", rev)
		}
	})
}

// withBaseline compares a source with the entries that suit it best.
func (c comparison) withBaseline(src source) {
	entries := c.entriesWith(src.tags)
	cases := c.cases(c.clone)
	here, binary := c.meta("", src.tags), c.made("new.test")
	old := choose(entries, here)
	cases = old.having(cases, c.sizes != "")
	c.build(src, binary)
	fmt.Printf("old: %v\nnew: %v\n", old.meta, here)
	c.timesAndCounts(func() { c.withEntry(cases, old, here, binary) }, func() {
		if before, why := countsLike(entries, here); why == "" {
			compareCounts(os.Stdout, before, c.count(src, cases))
		} else {
			fmt.Println("no counts are compared:", why)
		}
	})
}

// timesAndCounts fails if one of the two does. A larger count goes before times that this machine cannot tell.
func (c comparison) timesAndCounts(times, counts func()) {
	err := fail.Try(times)
	fail.On(c.ctx.Err())
	fail.On(errors.Join(fail.Try(counts), err))
}

func (c comparison) withBinary(cases []benchCase, old, new string) {
	c.limit = cmp.Or(c.limit, 0.05)
	side := func() *side { return newSide(old) }
	c.confirmed(cases, new, side, side)
}

// withEntry compares time over floor. What then looks slower is measured in turn with the commit of the entry, if git has it:
// that no mood of the machine can spoil. On a machine unlike that of the entry this is done at once.
func (c comparison) withEntry(cases []benchCase, old entry, here meta, binary string) {
	c.limit = cmp.Or(c.limit, 0.20) // the entry is of another hour, in which time over floor differed by several percent
	oldBinary := c.made("old.test")
	built := sync.OnceValue(func() error {
		return fail.Try(func() { c.buildRevision(old.Commit, old.BuildTags, oldBinary) })
	})
	inTurn := func() *side {
		if err := built(); err != nil {
			fmt.Printf("The commit of the baseline cannot be measured beside: %v.\n", err)
			return &side{cases: old.Cases, quiet: true}
		}
		fmt.Println("In turn with the commit of the baseline:")
		return newSide(oldBinary)
	}
	if old.sameMachine(here) {
		c.confirmed(cases, binary, func() *side { return &side{cases: old.Cases} }, inTurn)
		return
	}
	err := built()
	fail.If(err != nil, "%w: these are different machines, and the commit of the baseline cannot be measured here: %w", errCannotTell, err)
	c.confirmed(cases, binary, inTurn, inTurn)
}

// confirmed compares the cases with the first side, and what looks slower with the second.
func (c comparison) confirmed(cases []benchCase, binary string, first, second func() *side) {
	if cases = c.slower(cases, first(), newSide(binary)); cases != nil {
		fmt.Println("What looks slower is measured again.")
		cases = c.slower(cases, second(), newSide(binary))
	}
	fail.If(cases != nil, "%w, twice by more than %.3g %%: %v", errSlower, c.limit*100, cases)
}

// slower prints how much the cases have changed, and returns those that look slower. It takes more samples of those on which
// they do not decide: a noisy machine has wide intervals.
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
		busy(cases, old.cases, new.cases)
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

// busy fails if a machine like that of the record has too much else to do: that need not slow down all else as the floor.
func busy(cases []benchCase, record, now map[string]series) {
	for _, bc := range cases {
		times := measure.Median(now[bc.String()].Floor) / measure.Median(record[bc.String()].Floor)
		fail.If(times > 1.25, "%w: the machine is busy, since the floor of %v takes %.1f times as long as in the record",
			errCannotTell, bc, times)
	}
}

// A series is what was measured of one case: sample i of all three is from the same process.
type series struct {
	Time  []float64 `json:"time_ns"`  // nanoseconds a file
	Floor []float64 `json:"floor_ns"` // the same of the floor
	Ratio []float64 `json:"ratio"`    // time over floor
}

func (s series) and(o series) series {
	return series{slices.Concat(s.Time, o.Time), slices.Concat(s.Floor, o.Floor), slices.Concat(s.Ratio, o.Ratio)}
}

type side struct {
	binary string // unless empty, what is measured; else the side is a record
	quiet  bool   // a record of a machine like this one, which must not be busier than then
	cases  map[string]series
}

func newSide(binary string) *side { return &side{binary: binary, cases: map[string]series{}} }

// measureAll takes samples of the sides in turn. Over the rounds each case comes again and again, and each side goes first in
// half of them, so that a drift of the machine favours none.
func (c clone) measureAll(cases []benchCase, runs int, sides ...*side) {
	for round := range runs {
		for _, bc := range cases {
			for k := range sides {
				if s := sides[(k+round)%len(sides)]; s.binary != "" {
					c.sample(s, bc)
				}
			}
		}
	}
}

// sample runs one process, in which the case and its floor have some passes each. A pass is short, so that some are not
// disturbed, and the least counts: what else happens on a machine only adds time, and at first the process itself is cold.
func (c clone) sample(s *side, bc benchCase) {
	passes := max(3, min(6, 30_000/bc.set.Count))
	pattern := bc.pattern("Process") + "|" + bc.pattern("Floor") + "/^goroutines=max$"
	text := c.bench(nil, s.binary, pattern, max(1, 5_000/bc.set.Count), "-test.count", fmt.Sprint(passes))
	times, floors := values(text, "Process/", "sec/op"), values(text, "Floor/", "sec/op")
	fail.If(len(times) != passes || len(floors) != passes,
		"%v: the benchmark printed %d results and %d of the floor, want %d of each", bc, len(times), len(floors), passes)
	time, floor := slices.Min(times)*1e9/float64(bc.set.Count), slices.Min(floors)*1e9/float64(bc.set.Count)
	s.cases[bc.String()] = s.cases[bc.String()].and(series{rounded(time), rounded(floor), rounded(time / floor)})
}

// rounded keeps more digits than the noise does, and fewer than the records would hold otherwise.
func rounded(v float64) []float64 { return []float64{math.Round(v*1e4) / 1e4} }

// bench runs a benchmark, under another program if one is given, and returns what it printed.
func (c clone) bench(under []string, binary, pattern string, iterations int, flags ...string) string {
	args := slices.Concat(under, []string{binary, "-test.run", "^$", "-test.bench", pattern,
		"-test.benchtime", fmt.Sprint(iterations, "x")}, flags)
	return c.output(c.root, args[0], args[1:]...)
}

// values returns what text has of a unit for the benchmarks whose names begin like this.
func values(text, prefix, unit string) (all []float64) {
	for r := benchfmt.NewReader(strings.NewReader(text), ""); r.Scan(); {
		if result, ok := r.Result().(*benchfmt.Result); ok && strings.HasPrefix(string(result.Name), prefix) {
			if value, ok := result.Value(unit); ok {
				all = append(all, value)
			}
		}
	}
	return all
}

type change measure.Change

func changeOf(old, new []float64) change { return change(measure.ChangeOf(old, new)) }

// pairedChange is changeOf for samples that were taken in turn. The estimate and its interval are those of the pairs. The test
// is still Mann and Whitney's, which does not gain by the pairs and so claims less.
func pairedChange(old, new []float64) change {
	c := changeOf(old, new)
	ratio, lo, hi := measure.PairedRatio(new, old)
	c.Estimate, c.Lo, c.Hi = ratio-1, lo-1, hi-1
	return c
}

func (c change) significant() bool { return c.P < benchmath.DefaultThresholds.CompareAlpha }

// clear reports whether the change is significant, and more than half of the limit with confidence. That keeps a measurement
// that is mostly noise from counting: it is significant now and then, but its interval is wide.
func (c change) clear(limit float64) bool { return c.significant() && c.Lo > limit/2 }
func (c change) above(limit float64) bool { return c.clear(limit) && c.Estimate > limit }

// decides reports whether the samples are enough: not while both the limit and half of it may be the change.
func (c change) decides(limit float64) bool { return c.clear(limit) || c.Hi <= limit }
