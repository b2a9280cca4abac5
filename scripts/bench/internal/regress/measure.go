//go:build linux

package regress

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"golang.org/x/perf/benchfmt"
	"golang.org/x/perf/benchmath"

	"github.com/fileproc/fileproc/scripts/internal/samples"
)

// A series is what was measured of one case: sample i of all three is from the same process.
type series struct {
	Time  []float64 `json:"time_ns"`  // nanoseconds a file
	Floor []float64 `json:"floor_ns"` // the same of the floor
	Ratio []float64 `json:"ratio"`    // time over floor
}

func (s *series) add(o *series) {
	s.Time, s.Floor, s.Ratio = append(s.Time, o.Time...), append(s.Floor, o.Floor...), append(s.Ratio, o.Ratio...)
}

// A side is one of those that are compared.
type side struct {
	binary string // unless empty, what is measured; else the side is a record
	cases  map[string]*series
	quiet  bool            // a record of a machine like this one, which must not be busier than then
	text   strings.Builder // all that its processes printed
}

func newSide(binary string) *side { return &side{binary: binary, cases: map[string]*series{}} }

// measureAll takes samples of the binaries in turn. Over the rounds each case comes again and again, and each binary goes
// first in half of them, so that a drift of the machine favours none.
func (c clone) measureAll(cases []benchCase, runs int, sides ...*side) {
	for round := range runs {
		for _, bc := range cases {
			for k := range sides {
				c.sample(sides[(k+round)%len(sides)], bc)
			}
		}
	}
}

// sample runs one process, in which the case and its floor have some passes each. A pass is short, so that some are not
// disturbed, and the least counts: what else happens on a machine only adds time, and at first the process itself is cold.
func (c clone) sample(s *side, bc benchCase) {
	if s.binary == "" {
		return
	}
	passes := max(3, min(6, 30_000/bc.set.Count))
	pattern := bc.pattern("Process") + "|" + bc.pattern("Floor") + "/^goroutines=max$"
	text := c.bench(nil, s.binary, pattern, max(1, 5_000/bc.set.Count), "-test.count", fmt.Sprint(passes))
	fmt.Fprintln(&s.text, text)
	times, floors := values(text, "sec/op")
	if len(times) != passes || len(floors) != passes {
		failf("%v: the benchmark printed %d results and %d of the floor, want %d of each", bc, len(times), len(floors), passes)
	}
	if s.cases[bc.String()] == nil {
		s.cases[bc.String()] = &series{}
	}
	perFile := 1e9 / float64(bc.set.Count)
	time, floor := slices.Min(times)*perFile, slices.Min(floors)*perFile
	s.cases[bc.String()].add(&series{[]float64{rounded(time)}, []float64{rounded(floor)}, []float64{rounded(time / floor)}})
}

// rounded keeps more digits than the noise does, and fewer than the records would hold otherwise.
func rounded(v float64) float64 { return math.Round(v*1e4) / 1e4 }

// bench runs benchmarks, under another program if one is given, and returns what they printed.
func (c clone) bench(under []string, binary, pattern string, iterations int, flags ...string) (text string) {
	args := slices.Concat(under, []string{binary, "-test.run", "^$", "-test.bench", pattern, "-test.benchtime", fmt.Sprint(iterations, "x")}, flags)
	if err := try(func() { text = c.output(c.root, args[0], args[1:]...) }); err != nil {
		failf("%s: %w", pattern, err)
	}
	return text
}

// values returns what the benchmarks in text report of a unit, and what those of the floor report.
func values(text, unit string) (of, floors []float64) {
	for r := benchfmt.NewReader(strings.NewReader(text), ""); r.Scan(); {
		if result, ok := r.Result().(*benchfmt.Result); ok {
			if value, ok := result.Value(unit); ok && strings.HasPrefix(string(result.Name), "Floor/") {
				floors = append(floors, value)
			} else if ok {
				of = append(of, value)
			}
		}
	}
	return of, floors
}

type change samples.Change

func changeOf(old, new []float64) change { return change(samples.ChangeOf(old, new)) }

// pairedChange is changeOf for samples that were taken in turn: sample i of both is from the same moment. The estimate and its
// interval are those of the pairs. The test is still Mann and Whitney's, which does not gain by the pairs and so claims less.
func pairedChange(old, new []float64) change {
	c := changeOf(old, new)
	ratio, lo, hi := samples.PairedRatio(new, old)
	c.Estimate, c.Lo, c.Hi = ratio-1, lo-1, hi-1
	return c
}

func (c change) significant() bool { return c.P < benchmath.DefaultThresholds.CompareAlpha }

// clear reports whether the change is significant, and more than half of the limit with confidence. That keeps a measurement
// that is mostly noise from counting: it is significant now and then, but its interval is wide.
func (c change) clear(limit float64) bool { return c.significant() && c.Lo > limit/2 }

func (c change) above(limit float64) bool { return c.clear(limit) && c.Estimate > limit }

// decides reports whether the samples are enough to say whether the change is above the limit. They are not while it may be,
// and a change of half of that may be too.
func (c change) decides(limit float64) bool { return c.clear(limit) || c.Hi <= limit }
