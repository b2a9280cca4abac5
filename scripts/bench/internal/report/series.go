package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/fileproc/fileproc/scripts/internal/measure"
	"github.com/fileproc/fileproc/scripts/internal/record"
)

// A series holds the measurements of one side on one set, in the order of the rounds.
type series struct {
	data, who, version string
	wall, cpu          []float64 // ns per file
}

type results struct {
	series  []*series
	leftOut []record.Record
	machine string // description of the machine, for captions
}

// resultsOf returns a table's series in the order in which they were measured.
func resultsOf(records []record.Record, table string) (r results) {
	for _, rec := range records {
		if rec.Table != table {
			continue
		}
		r.machine = rec.Machine
		if rec.Text != "" {
			r.leftOut = append(r.leftOut, rec)
			continue
		}
		s := r.find(rec.Data, rec.Who)
		if s == nil {
			s = &series{data: rec.Data, who: rec.Who, version: rec.Version}
			r.series = append(r.series, s)
		}
		s.wall = append(s.wall, rec.Wall/float64(rec.Files))
		s.cpu = append(s.cpu, rec.CPU/float64(rec.Files))
	}
	return r
}

func (r results) find(data, who string) *series {
	for _, s := range r.series {
		if s.data == data && s.who == who {
			return s
		}
	}
	return nil
}

func (r results) sets() (names []string) {
	for _, s := range r.series {
		if !slices.Contains(names, s.data) {
			names = append(names, s.data)
		}
	}
	return names
}

func (r results) on(data string) (list []*series) {
	for _, s := range r.series {
		if s.data == data {
			list = append(list, s)
		}
	}
	return list
}

// comparisons returns the names of the comparisons of the command floor, in the order of measurement.
func (r results) comparisons() (names []string) {
	for _, s := range r.series {
		if name, ours := strings.CutSuffix(s.who, record.Side+"ours"); ours && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// ratios returns the spreads of ours over theirs, if there are both.
func (r results) ratios(set, comparison string) (wall, cpu measure.Spread, ok bool) {
	ours, theirs := r.find(set, comparison+record.Side+"ours"), r.find(set, comparison+record.Side+"theirs")
	if ours == nil || theirs == nil {
		return wall, cpu, false
	}
	return paired(ours.wall, theirs.wall, ratio), paired(ours.cpu, theirs.cpu, ratio), true
}

// each summarizes f of each value.
func each(values []float64, f func(float64) float64) measure.Spread {
	var out []float64
	for _, v := range values {
		out = append(out, f(v))
	}
	return measure.Summarize(out)
}

// paired summarizes f of the values of a and b from the same round.
func paired(a, b []float64, f func(a, b float64) float64) measure.Spread {
	var out []float64
	for i := range min(len(a), len(b)) {
		out = append(out, f(a[i], b[i]))
	}
	return measure.Summarize(out)
}

// caption returns the text below a plot, which describes the measurement to a reader who sees nothing else.
func (r results) caption(about string) string {
	fewest, most, layouts := math.MaxInt, 0, "flat: one directory"
	for _, s := range r.series {
		fewest, most = min(fewest, len(s.wall)), max(most, len(s.wall))
		if strings.HasPrefix(s.data, "nested1") {
			layouts = "flat: one directory; nested1: one for each month"
		}
	}
	rounds := fmt.Sprint(most)
	if fewest < most {
		rounds = fmt.Sprintf("%d to %d", fewest, most)
	}
	return about + "Bars and numbers: medians; whiskers: minimum to maximum of " + rounds + " interleaved rounds.\n" +
		"Files of about 400 bytes, caches warm. " + layouts + "; 1k: 1,000 files.\n" + r.machine
}

func micros(ns float64) float64         { return ns / 1e3 }
func filesPerSecond(ns float64) float64 { return 1e9 / ns }
func identity(ns float64) float64       { return ns }
func ratio(a, b float64) float64        { return a / b }
func difference(a, b float64) float64   { return a - b }

// spread formats the median and, in parentheses, the extremes.
func spread(s measure.Spread, format string) string {
	return strings.ReplaceAll(measure.English.Sprintf(format+" ("+format+"…"+format+")", s.Median, s.Min, s.Max), "-", "−")
}
