//go:build linux

package regress

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/perf/benchfmt"
	"golang.org/x/perf/benchmath"

	"github.com/fileproc/fileproc/scripts/internal/fail"
	"github.com/fileproc/fileproc/scripts/internal/host"
	"github.com/fileproc/fileproc/scripts/internal/record"
)

const (
	// How many times as many samples are added, at most, for an undecided case. The short form has to end in three minutes.
	moreSamples = 3
	shortMore   = 1
	shortSizes  = "5k," + fewOrLarge
	shortModes  = "frontmatter,whole,stat" // names take too little time to be steady
)

func compare(f *flag.FlagSet) func(clone) {
	sel := selection{runs: 30}
	sel.flags(f)
	against := f.String("against", "baseline", "what to compare with: baseline or a `revision`")
	limit := f.Float64("fail-above", 0, "`percent` above which a significant change fails (default: 5 against a revision, or 20)")
	short := f.Bool("short", false, "the short form, for CI: of small files 5,000 or few, and not their names alone")
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

// A comparison measures cases, and measures those that look slower a second time. Only what is slower both times fails.
type comparison struct {
	clone
	selection
	limit float64 // 0: the usual one
	more  int     // as moreSamples
}

func (c comparison) withRevision(src source, rev string) {
	c.limit = cmp.Or(c.limit, 0.05)
	c.commit(rev) // before data is made and time is spent
	cases := c.cases(c.clone)
	old := c.buildRevision(rev, src.tags, c.made("old.test"))
	c.build(src, c.made("new.test"))
	fmt.Printf("working tree against %s, in turn, both with %v\n", rev, src.tags)
	c.timesAndCounts(func() { c.times(cases) }, func() {
		if old.countable() {
			compareCounts(os.Stdout, c.count(old, cases), c.count(src, cases))
		} else {
			fmt.Printf("no counts are compared: %s has no export_test.go, which keeps the package from reacting to slow calls\n", rev)
		}
	})
}

// withBaseline compares the times with those of the baseline's commit, and the counts with those that the baseline has.
func (c comparison) withBaseline(src source) {
	c.limit = cmp.Or(c.limit, 0.20) // of all changes since then together
	entries := c.entriesWith(src.tags)
	cases := c.cases(c.clone)
	here := c.entry(src.tags) // after the data is made, since the entry has its file system
	c.build(src, c.made("new.test"))
	old := entries[len(entries)-1]
	fmt.Printf("working tree against the baseline, %v, in turn, both with %v\n", old, src.tags)
	c.timesAndCounts(func() {
		err := fail.Try(func() { c.buildRevision(old.Commit, src.tags, c.made("old.test")) })
		fail.If(err != nil, "%w: the commit of the baseline cannot be measured: %w", errCannotTell, err)
		c.times(cases)
	}, func() {
		i := slices.IndexFunc(entries, here.sameCalls)
		if i < 0 {
			fmt.Println("no counts are compared: the baseline has none of a machine with this platform and file system, and with io_uring allowed or not as here")
			return
		}
		compareCounts(os.Stdout, entries[i].Counts, c.count(src, cases))
	})
}

// timesAndCounts fails if times or counts does. A larger count takes precedence over times that this machine cannot decide.
func (c comparison) timesAndCounts(times, counts func()) {
	err := fail.Try(times)
	fail.On(c.ctx.Err())
	fail.On(errors.Join(fail.Try(counts), err))
}

// times compares the two binaries, and compares what looks slower a second time.
func (c comparison) times(cases []benchCase) {
	if cases = c.slower(cases); cases != nil {
		fmt.Println("What looks slower is measured again.")
		cases = c.slower(cases)
	}
	fail.If(cases != nil, "%w, twice by more than %.3g %%: %v", errSlower, c.limit*100, cases)
}

// slower prints how much the cases have changed, and returns those that look slower. It takes more samples of undecided cases, since
// a noisy machine has wide intervals.
func (c comparison) slower(cases []benchCase) (slower []benchCase) {
	old, new := newSide("old"), newSide("new")
	changes := map[benchCase]change{}
	undecided := slices.Clone(cases)
	for range 1 + c.more {
		c.measureAll(undecided, c.runs, old, new)
		undecided = slices.DeleteFunc(undecided, func(bc benchCase) bool {
			changes[bc] = changeOf(old.samples[bc], new.samples[bc])
			return changes[bc].decides(c.limit)
		})
	}
	fmt.Println(c.benchstat(old, new))
	for _, bc := range cases {
		ch, verdict := changes[bc], "no significant change"
		switch {
		case ch.above(c.limit):
			verdict = "slower than allowed"
			slower = append(slower, bc)
		case ch.significant() && ch.Estimate < 0:
			verdict = "faster"
		case ch.significant():
			verdict = "slower, within the limit"
		}
		fmt.Printf("%24v: %+.1f %% (%+.1f to %+.1f), p=%.3f: %s\n", bc, ch.Estimate*100, ch.Lo*100, ch.Hi*100, ch.P, verdict)
	}
	return slower
}

// benchstat returns benchstat's table of the sides.
func (c clone) benchstat(sides ...*side) string {
	args := []string{"tool", "benchstat"}
	for _, s := range sides {
		text := "machine: " + host.Machine(c.data()) + "\n"
		for _, bc := range slices.SortedFunc(maps.Keys(s.samples), func(a, b benchCase) int { return cmp.Compare(a.String(), b.String()) }) {
			for _, ns := range s.samples[bc] {
				text += fmt.Sprintf("BenchmarkFile/%v 1 %g ns/op\n", bc, ns)
			}
		}
		fail.On(os.WriteFile(c.made(s.name+".txt"), []byte(text), 0o644))
		args = append(args, s.name+"="+c.made(s.name+".txt"))
	}
	return c.output(filepath.Join(c.root, "scripts"), "go", args...)
}

// A side has the measurements of one binary, whose name ends with .test.
type side struct {
	name    string
	samples map[benchCase][]float64 // nanoseconds a file
}

func newSide(name string) *side { return &side{name, map[benchCase][]float64{}} }

// measureAll takes samples of the sides in turn, a sample of each case in each round. Each side goes first in half of the rounds, so
// that a drift of the machine favours none.
func (c clone) measureAll(cases []benchCase, runs int, sides ...*side) {
	for round := range runs {
		for _, bc := range cases {
			for k := range sides {
				c.sample(sides[(k+round)%len(sides)], bc)
			}
		}
	}
}

// sample runs some passes of the case in one process. The least counts: other work on the machine only adds time, and the first pass
// is cold. Passes are short, so that some are not disturbed.
func (c clone) sample(s *side, bc benchCase) {
	passes := max(3, min(6, 31_000/bc.work()))
	times := values(c.bench(nil, c.made(s.name+".test"), bc, max(1, 5_000/bc.work()), "-test.count", fmt.Sprint(passes)), "sec/op")
	fail.If(len(times) != passes, "%v: the benchmark printed %d results, want %d", bc, len(times), passes)
	s.samples[bc] = append(s.samples[bc], slices.Min(times)*1e9/float64(bc.set.Count))
}

// bench runs a case, under another program if under names one, and returns what it printed.
func (c clone) bench(under []string, binary string, bc benchCase, iterations int, flags ...string) string {
	args := slices.Concat(under, []string{binary, "-test.run", "^$", "-test.bench", bc.pattern(),
		"-test.benchtime", fmt.Sprint(iterations, "x")}, flags)
	return c.output(c.root, args[0], args[1:]...)
}

// values returns the values of a unit in text.
func values(text, unit string) (all []float64) {
	for r := benchfmt.NewReader(strings.NewReader(text), ""); r.Scan(); {
		if result, ok := r.Result().(*benchfmt.Result); ok {
			if value, ok := result.Value(unit); ok {
				all = append(all, value)
			}
		}
	}
	return all
}

// A change says how much larger one sample is than another: 0.1 is 10 %. Lo and Hi are its 95 % confidence interval.
type change struct{ Estimate, Lo, Hi, P float64 }

// changeOf compares samples whose i-th values are from the same moment, so that the state of the machine at that moment is not in their
// ratio. The estimate is the median of the geometric means of two pairs' ratios, with the interval of Wilcoxon's signed ranks. P is that of
// Mann and Whitney's test. This test does not use the pairs, and so finds less. All values must be positive.
func changeOf(old, new []float64) change {
	var means []float64
	for i := range old {
		for j := range i + 1 {
			means = append(means, math.Sqrt(new[i]/old[i]*new[j]/old[j])-1)
		}
	}
	slices.Sort(means)
	n := float64(len(old))
	const normal95 = 1.96 // the quantile of the normal distribution for an interval of 95 %
	cut := max(int(n*(n+1)/4-normal95*math.Sqrt(n*(n+1)*(2*n+1)/24)), 0)
	sample := func(values []float64) *benchmath.Sample { // copies, since benchmath sorts in place
		return benchmath.NewSample(slices.Clone(values), &benchmath.DefaultThresholds)
	}
	return change{record.Median(means), means[cut], means[len(means)-1-cut], benchmath.AssumeNothing.Compare(sample(old), sample(new)).P}
}

func (c change) significant() bool { return c.P < benchmath.DefaultThresholds.CompareAlpha }

// clear reports whether the change is significant, and its whole interval is above half of the limit. Mostly noisy measurements are
// significant now and then, but their interval is wide.
func (c change) clear(limit float64) bool { return c.significant() && c.Lo > limit/2 }
func (c change) above(limit float64) bool { return c.clear(limit) && c.Estimate > limit }

// decides reports whether the samples are enough: whether the change is clear, or its whole interval is below the limit.
func (c change) decides(limit float64) bool { return c.clear(limit) || c.Hi <= limit }
