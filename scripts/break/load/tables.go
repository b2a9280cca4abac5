package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/fileproc/fileproc/scripts/internal/measure"
)

// columns are the statistics in the table of a run.
var columns = []string{"count", "ops/s", "MB/s", "avg", "med", "p(90)", "p(95)", "p(99)", "max", "rate"}

// inWords formats a statistic; times with four digits.
func inWords(stat string, value float64) string {
	switch stat {
	case "count", "ops/s":
		return fmt.Sprintf("%.0f", value)
	case "MB/s":
		return fmt.Sprintf("%.1f", value)
	case "rate":
		return fmt.Sprintf("%.6g %%", 100*value)
	}
	d, unit := time.Duration(value*1e6), 100*time.Nanosecond
	for d >= 10_000*unit {
		unit *= 10
	}
	return d.Round(unit).String()
}

// write writes the record as Markdown.
func (r *record) write(w io.Writer) {
	fmt.Fprintf(w, "%s, %s\n\n", r.Machine, r.Load.String())
	names := strings.ReplaceAll(strings.Join(columns, " | "), "rate", "success")
	fmt.Fprintf(w, "| operation | through | %s |\n| --- | --- %s|\n", names, strings.Repeat("| ---: ", len(columns)))
	for _, op := range opNames {
		for i, side := range r.Sides {
			through := "`" + side + "`"
			if op == opNames[opCreate] || op == opNames[opDelete] {
				through = "both sides alike, beside " + through
			}
			fmt.Fprintf(w, "| %s | %s |", op, through)
			for _, stat := range columns {
				fmt.Fprintf(w, " %s |", inWords(stat, r.Levels[0].Sides[i][op][stat]))
			}
			fmt.Fprintln(w)
		}
	}
	fmt.Fprintf(w, "\nThe ratio of `%s` to `%s`, of all operations of the run and as the median of pairs of neighbouring slices (95 %% interval):\n\n",
		r.Sides[0], r.Sides[1])
	fmt.Fprint(w, "| operation | VUs | med | p(95) | p(99) | p(95) of slices | med of slices |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for _, op := range opNames {
		for i, l := range r.Levels {
			a, b := l.Sides[0][op], l.Sides[1][op]
			if i > 0 && len(r.Levels) == 2 || a["med"] == 0 || b["med"] == 0 {
				continue // the only level, or nothing succeeded
			}
			fmt.Fprintf(w, "| %s | %s |", op, map[bool]string{true: "all", false: fmt.Sprint(l.VUs)}[i == 0])
			for _, stat := range []string{"med", "p(95)", "p(99)"} {
				fmt.Fprintf(w, " %.2f |", a[stat]/b[stat])
			}
			for _, stat := range []string{"p(95)", "med"} {
				ratio, lo, hi := measure.PairedRatio(r.pairs(op, l.VUs, stat))
				fmt.Fprintf(w, " %.2f (%.2f to %.2f) |", ratio, lo, hi)
			}
			fmt.Fprintln(w)
		}
	}
	fmt.Fprintln(w)
	for _, v := range r.Thresholds {
		fmt.Fprintf(w, "%s %s: %.4g\n", map[bool]string{true: "✓", false: "✗"}[v.OK], v.Threshold, v.Value)
	}
	for _, f := range r.Failures {
		fmt.Fprintln(w, "failed:", f)
	}
}

// pairs returns a statistic of each pair of slices with this number of VUs, of the first side and of the second. A pair in which
// an operation does not occur, or fails each time, is left out.
func (r *record) pairs(op string, vus int, stat string) (first, second []float64) {
	for _, p := range r.Pairs {
		if a, b := p.Sides[0][op][stat], p.Sides[1][op][stat]; (vus == 0 || vus == p.VUs) && a > 0 && b > 0 {
			first, second = append(first, a), append(second, b)
		}
	}
	return first, second
}

// compared are the statistics that compare looks at.
var compared = []string{"med", "p(95)", "p(99)", "ops/s"}

// A difference is one line of a comparison: one statistic of one operation at one number of VUs.
type difference struct {
	op, stat    string
	vus         int
	old, new    float64           // medians of the slices of fileproc's side
	changes     [3]measure.Change // of fileproc's side, of the other, and of the ratio of both
	significant [3]bool
}

// minSlices is how many slices of a side both runs need, so that a test can give p < 0.05 after Holm's correction of some.
const minSlices = 8

// compareRecords returns the differences between two runs of the same load. The samples are the slices' values.
func compareRecords(a, b *record) (all []difference, err error) {
	if !reflect.DeepEqual(a.Load, b.Load) {
		return nil, fmt.Errorf("the loads differ: %v, and %v", &a.Load, &b.Load)
	}
	var ps []float64
	for _, l := range a.Levels[1:] {
		for _, op := range opNames {
			for _, stat := range compared {
				oldOurs, oldOther := a.pairs(op, l.VUs, stat)
				newOurs, newOther := b.pairs(op, l.VUs, stat)
				if len(oldOurs) < minSlices || len(newOurs) < minSlices {
					continue
				}
				d := difference{op: op, stat: stat, vus: l.VUs, old: measure.Median(oldOurs), new: measure.Median(newOurs), changes: [3]measure.Change{
					measure.ChangeOf(oldOurs, newOurs), measure.ChangeOf(oldOther, newOther),
					measure.ChangeOf(ratios(oldOurs, oldOther), ratios(newOurs, newOther)),
				}}
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

func ratios(of, to []float64) (all []float64) {
	for i := range of {
		all = append(all, of[i]/to[i])
	}
	return all
}

// holm returns which of these tests are significant, if the chance that any of them is so without reason is to be at most
// 5 %: Holm's method. Without it, one in twenty comparisons of a run with itself would be called significant.
func holm(ps []float64) []bool {
	const alpha = 0.05
	order := make([]int, len(ps))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(ps[a], ps[b]) })
	significant := make([]bool, len(ps))
	for k, i := range order {
		if ps[i] >= alpha/float64(len(ps)-k) {
			break
		}
		significant[i] = true
	}
	return significant
}

// compareFiles compares two records, and writes what has changed as Markdown.
func compareFiles(w io.Writer, names []string) error {
	if len(names) != 2 {
		return errors.New("-compare needs two files")
	}
	a, errA := loadRecord(names[0])
	b, errB := loadRecord(names[1])
	if err := errors.Join(errA, errB); err != nil {
		return err
	}
	all, err := compareRecords(a, b)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "A: %s\nB: %s\n%s\n\n", a.Machine, b.Machine, a.Load.String())
	fmt.Fprintf(w, "| operation | VUs | statistic | A | B | change of %s | change of %s | change of their ratio |\n"+
		"| --- | ---: | --- | ---: | ---: | --- | --- | --- |\n", ours, strings.Join(slices.Compact([]string{a.Sides[1], b.Sides[1]}), " and "))
	count := 0
	for _, d := range all {
		fmt.Fprintf(w, "| %s | %d | %s | %s | %s |", d.op, d.vus, d.stat, inWords(d.stat, d.old), inWords(d.stat, d.new))
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
	fmt.Fprintf(w, "\n%d of %d changes are significant (bold); docs/dev/reliability.md says by which test.\n", count, 3*len(all))
	return nil
}
