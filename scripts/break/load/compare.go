package main

import (
	"errors"
	"fmt"
	"io"
	"reflect"

	"github.com/fileproc/fileproc/scripts/internal/measure"
	"github.com/fileproc/fileproc/scripts/internal/samples"
)

// compared are the statistics that compare looks at.
var compared = []struct {
	name string
	of   func(metric) float64
}{
	{"med", func(m metric) float64 { return m.Med }},
	{"p(95)", func(m metric) float64 { return m.P95 }},
	{"p(99)", func(m metric) float64 { return m.P99 }},
	{"ops/s", metric.perSecond},
}

// A difference is one line of a comparison: one statistic of one operation at one number of VUs.
type difference struct {
	op, stat    string
	vus         int
	old, new    float64 // medians of the slices of fileproc's side
	changes     [3]samples.Change
	significant [3]bool
}

// What the changes of a difference are of.
const (
	ofOurs     = iota // fileproc's side
	ofOther           // the other side
	ofRelative        // the ratio of both
)

// minSlices is how many slices of a side both runs need, so that a test can give p < 0.05 after Holm's correction of some.
const minSlices = 8

// compareRecords returns the differences between two runs of the same load. The samples are the slices' values.
func compareRecords(a, b *record) ([]difference, error) {
	if !reflect.DeepEqual(a.Load, b.Load) {
		return nil, fmt.Errorf("the loads differ: %v, and %v", &a.Load, &b.Load)
	}
	var all []difference
	var ps []float64
	for _, l := range a.Levels {
		for _, op := range opNames {
			for _, c := range compared {
				oldOurs, oldOther := a.pairs(op, l.VUs, c.of)
				newOurs, newOther := b.pairs(op, l.VUs, c.of)
				if len(oldOurs) < minSlices || len(newOurs) < minSlices {
					continue
				}
				d := difference{op: op, stat: c.name, vus: l.VUs, old: measure.Median(oldOurs), new: measure.Median(newOurs)}
				d.changes[ofOurs] = samples.ChangeOf(oldOurs, newOurs)
				d.changes[ofOther] = samples.ChangeOf(oldOther, newOther)
				d.changes[ofRelative] = samples.ChangeOf(ratios(oldOurs, oldOther), ratios(newOurs, newOther))
				for _, c := range d.changes {
					ps = append(ps, c.P)
				}
				all = append(all, d)
			}
		}
	}
	if len(all) == 0 {
		return nil, errors.New("too few slices to compare: longer stages or a shorter -slice give more")
	}
	for i, yes := range holm(ps) {
		all[i/3].significant[i%3] = yes
	}
	return all, nil
}

func ratios(of, to []float64) []float64 {
	var all []float64
	for i := range of {
		all = append(all, of[i]/to[i])
	}
	return all
}

func writeComparison(w io.Writer, a, b *record, all []difference) {
	fmt.Fprintf(w, "A: %s\nB: %s\n%s\n\n", a.Machine, b.Machine, a.Load.String())
	fmt.Fprintf(w, "| operation | VUs | statistic | A | B | change of %s | change of %s | change of their ratio |\n| --- | ---: | --- | ---: | ---: | --- | --- | --- |\n",
		ours, otherNames(a, b))
	count := 0
	for _, d := range all {
		old, new := inWords(d.old), inWords(d.new)
		if d.stat == "ops/s" {
			old, new = fmt.Sprintf("%.0f", d.old), fmt.Sprintf("%.0f", d.new)
		}
		fmt.Fprintf(w, "| %s | %d | %s | %s | %s |", d.op, d.vus, d.stat, old, new)
		for i, c := range d.changes {
			text := fmt.Sprintf("%+.1f %% (%+.1f to %+.1f)", 100*c.Estimate, 100*c.Lo, 100*c.Hi)
			if d.significant[i] {
				text = "**" + text + "**"
				count++
			}
			fmt.Fprintf(w, " %s |", text)
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "\n%d of %d changes are significant (bold).\n", count, 3*len(all))
	fmt.Fprintln(w, method)
}

// method says how the comparison works.
const method = `Each slice of a run is one sample. Mann and Whitney's test compares the samples of A and B, and Holm's correction keeps the chance
of any false one among all changes below 5 %. The change is Hodges and Lehmann's median of all ratios, with its 95 % interval.
Runs at different times or on different machines differ as these do: what the other side shows too is the machine's. The
last column is free of that, since both sides of a run took turns.`

func otherNames(a, b *record) string {
	if a.Sides[1] == b.Sides[1] {
		return a.Sides[1]
	}
	return a.Sides[1] + " and " + b.Sides[1]
}
