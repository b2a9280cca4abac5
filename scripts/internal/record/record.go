// Package record holds the measurements of the commands of bench, summarises them, and writes them as text for benchstat and as tables.
package record

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/perf/benchfmt"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// A Record is one measured pass of one side. The n-th records of all sides are from the same round.
type Record struct {
	Table   string
	Data    string // the set, such as flat_100k
	Who     string // the side
	Version string // of the side
	Files   int    // processed in the pass
	Values  map[string]float64

	Commit, Date, Machine string // of the measurement, which the report adds
}

// The units of times, for one file. Values with other units are for the whole pass.
const (
	Wall = "ns/op"
	CPU  = "cpu-ns/op" // user and system
)

// Ours and Theirs end the names of the two sides of a comparison.
const Ours, Theirs = ": ours", ": theirs"

// known matches the lines that records may have.
var known = regexp.MustCompile(`(?m)^(?:(?:set|side|version|commit|date|machine):.*|Benchmark\S+[ \t].*|)$\n?`)

// Text returns records for Read and for benchstat: lines such as "set: flat_100k", and a benchmark whose operations are the files.
func Text(records []Record) (text string) {
	for _, r := range records {
		text += fmt.Sprintf("set: %s\nside: %s\nversion: %s\n", r.Data, r.Who, r.Version)
		text += fmt.Sprintf("Benchmark%s %d", strings.ToUpper(r.Table[:1])+r.Table[1:], max(r.Files, 1))
		for _, unit := range slices.Sorted(maps.Keys(r.Values)) {
			text += fmt.Sprintf(" %v %s", r.Values[unit], unit)
		}
		text += "\n"
	}
	return text
}

// Read reads records. It returns an error if the text has anything else.
func Read(text string) (records []Record, err error) {
	if other := known.ReplaceAllString(text, ""); other != "" { // benchfmt would ignore it
		return nil, fmt.Errorf("not a record: %q", other)
	}
	in := benchfmt.NewReader(strings.NewReader(text), "records")
	for in.Scan() {
		res, ok := in.Result().(*benchfmt.Result)
		if !ok {
			return nil, fmt.Errorf("not a record: %v", in.Result())
		}
		of := res.GetConfig
		r := Record{strings.ToLower(string(res.Name)), of("set"), of("side"), of("version"), res.Iters, map[string]float64{},
			of("commit"), of("date"), of("machine")}
		for _, v := range res.Values {
			r.Values[cmp.Or(v.OrigUnit, v.Unit)] = cmp.Or(v.OrigValue, v.Value)
		}
		records = append(records, r)
	}
	return records, in.Err()
}

// A Series holds the measurements of one side on one set, by unit and in the order of the rounds.
type Series struct {
	Data, Who, Version string
	Values             map[string][]float64
}

type Results []*Series

// Of returns the series of a table, or of all tables for "", in the order of measurement.
func Of(records []Record, table string) (r Results) {
	for _, rec := range records {
		if table != "" && rec.Table != table {
			continue
		}
		s := r.Find(rec.Data, rec.Who)
		if s.Values == nil {
			s = &Series{rec.Data, rec.Who, rec.Version, map[string][]float64{}}
			r = append(r, s)
		}
		for unit, v := range rec.Values {
			s.Values[unit] = append(s.Values[unit], v)
		}
	}
	return r
}

// Find returns the series of a side on a set, or one without values.
func (r Results) Find(data, who string) *Series {
	for _, s := range r {
		if s.Data == data && s.Who == who {
			return s
		}
	}
	return &Series{}
}

// Sets and Sides return names in the order of measurement.
func (r Results) Sets() []string  { return r.names(func(s *Series) string { return s.Data }) }
func (r Results) Sides() []string { return r.names(func(s *Series) string { return s.Who }) }

func (r Results) names(of func(*Series) string) (names []string) {
	for _, s := range r {
		if !slices.Contains(names, of(s)) {
			names = append(names, of(s))
		}
	}
	return names
}

// Median returns the median of the values of a unit, or 0 if there are none.
func (s *Series) Median(unit string) float64 { return Summarize(s.Values[unit]).Median }

// Over summarizes the ratios of s to another series, round by round.
func (s *Series) Over(to *Series, unit string) Spread {
	var ratios []float64
	for i := range min(len(s.Values[unit]), len(to.Values[unit])) {
		ratios = append(ratios, s.Values[unit][i]/to.Values[unit][i])
	}
	return Summarize(ratios)
}

// times formats the ratios of Over for the units of times.
func (s *Series) times(to *Series) []string {
	return []string{s.Over(to, Wall).Format("%.2f"), s.Over(to, CPU).Format("%.2f")}
}

// Units formats the medians of all units.
func (s *Series) Units() string {
	var cells []string
	for _, unit := range slices.Sorted(maps.Keys(s.Values)) {
		cells = append(cells, English.Sprintf("%.4g %s", s.Median(unit), unit))
	}
	return strings.Join(cells, ", ")
}

// English formats numbers for a page: thousands get commas.
var English = message.NewPrinter(language.English)

// A Spread summarises repeated measurements. The median is the result; the extremes show how noisy the machine was.
type Spread struct{ Median, Min, Max float64 }

// Summarize returns the zero Spread for no values. The median is the middle one, or the mean of the middle two.
func Summarize(values []float64) (s Spread) {
	if sorted := slices.Sorted(slices.Values(values)); sorted != nil {
		s = Spread{(sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2, sorted[0], sorted[len(sorted)-1]}
	}
	return s
}

func Median(values []float64) float64 { return Summarize(values).Median }

// Format formats the median and, in parentheses, the extremes.
func (s Spread) Format(format string) string {
	switch {
	case s == Spread{}:
		return ""
	case s.Min == s.Max:
		return English.Sprintf(format, s.Median)
	}
	return English.Sprintf(format+" ("+format+"…"+format+")", s.Median, s.Min, s.Max)
}

// Table returns a table in Markdown, whose first row is the head.
func Table(rows [][]string) (text string) {
	for i, row := range rows {
		text += "| " + strings.Join(row, " | ") + " |\n"
		if i == 0 {
			text += strings.Repeat("|---", len(row)) + "|\n"
		}
	}
	return text
}

// Against returns the name of the comparison in which s is our side, and their side. If s is in none, ok is false.
func (r Results) Against(s *Series) (name string, theirs *Series, ok bool) {
	name, ok = strings.CutSuffix(s.Who, Ours)
	return name, r.Find(s.Data, name+Theirs), ok
}

// String returns the table of the results: a row for each comparison, or for each side if there are none.
func (r Results) String() string {
	rows := [][]string{{"set", "ours / theirs", "wall", "CPU", "ours"}}
	for _, s := range r {
		if name, theirs, ok := r.Against(s); ok {
			ours := s.Units()
			if ns := s.Median(Wall); ns > 0 {
				ours = English.Sprintf("%.0f ns/file", ns)
			}
			rows = append(rows, slices.Concat([]string{s.Data, name}, s.times(theirs), []string{ours}))
		}
	}
	if len(rows) == 1 {
		return r.bySide()
	}
	return Table(rows)
}

// bySide returns a table with a row for each side, with times relative to those of the first side.
func (r Results) bySide() string {
	rows := [][]string{{"", "version"}}
	for _, set := range r.Sets() {
		rows[0] = append(rows[0], set+", files/s", "time", "CPU")
	}
	for _, who := range r.Sides() {
		row := []string{who, r[slices.IndexFunc(r, func(s *Series) bool { return s.Who == who })].Version}
		for _, set := range r.Sets() {
			s := r.Find(set, who)
			second := &Series{Values: map[string][]float64{Wall: slices.Repeat([]float64{1e9}, len(s.Values[Wall]))}}
			row = append(append(row, second.Over(s, Wall).Format("%.0f")), s.times(r.Find(set, r.Sides()[0]))...)
		}
		rows = append(rows, row)
	}
	return Table(rows)
}
