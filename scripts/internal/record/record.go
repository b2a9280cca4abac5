// Package record holds the measurements of the commands of bench, summarises them, and writes them as text for benchstat and as tables.
package record

import (
	"cmp"
	"fmt"
	"io"
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
const (
	Ours   = ": ours"
	Theirs = ": theirs"
)

// configuration returns the fields that are written on lines before a pass, by the lines' keys.
func (r *Record) configuration() map[string]*string {
	return map[string]*string{"set": &r.Data, "side": &r.Who, "version": &r.Version,
		"commit": &r.Commit, "date": &r.Date, "machine": &r.Machine}
}

// known matches the lines that records may have.
var known = regexp.MustCompile(`(?m)^(?:(?:set|side|version|commit|date|machine):.*|Benchmark.*|)$\n?`)

// Write writes records for Read. An operation is a file:
//
//	set: flat_100k
//	side: whole / C loop: ours
//	BenchmarkFloor 100000 1480 ns/op 2960 cpu-ns/op
func Write(w io.Writer, records ...Record) error {
	out, end := benchfmt.NewWriter(w), ""
	for _, r := range records {
		res := &benchfmt.Result{Name: benchfmt.Name(strings.ToUpper(r.Table[:1]) + r.Table[1:]), Iters: max(r.Files, 1)}
		end = ""
		for _, unit := range slices.Sorted(maps.Keys(r.Values)) {
			res.Values = append(res.Values, benchfmt.Value{Value: r.Values[unit], Unit: unit})
		}
		of := r.configuration()
		for _, key := range slices.Sorted(maps.Keys(of)) {
			if text := strings.Join(strings.Fields(*of[key]), " "); text != "" { // on one line
				res.Config = append(res.Config, benchfmt.Config{Key: key, Value: []byte(text), File: true})
				end += key + ":\n"
			}
		}
		if err := out.Write(res); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, end) // the next records do not inherit these lines
	return err
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
		r := Record{Table: strings.ToLower(string(res.Name)), Files: res.Iters, Values: map[string]float64{}}
		for key, value := range r.configuration() {
			*value = res.GetConfig(key)
		}
		for _, v := range res.Values {
			r.Values[cmp.Or(v.OrigUnit, v.Unit)] = cmp.Or(v.OrigValue, v.Value)
		}
		records = append(records, r)
	}
	if n := strings.Count("\n"+text, "\nBenchmark"); n != len(records) {
		return nil, fmt.Errorf("%d of %d passes have no value", n-len(records), n)
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
		if s == nil {
			s = &Series{rec.Data, rec.Who, rec.Version, map[string][]float64{}}
			r = append(r, s)
		}
		for unit, v := range rec.Values {
			s.Values[unit] = append(s.Values[unit], v)
		}
	}
	return r
}

// Find returns the series of a side on a set, or nil if there is none.
func (r Results) Find(data, who string) *Series {
	for _, s := range r {
		if s.Data == data && s.Who == who {
			return s
		}
	}
	return nil
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

// Median returns the median of the values of a unit. For a nil series it returns 0.
func (s *Series) Median(unit string) float64 {
	if s == nil || s.Values[unit] == nil {
		return 0
	}
	return Median(s.Values[unit])
}

// Over summarizes the ratios of s to another series, round by round. If one of them is missing, ok is false.
func (s *Series) Over(to *Series, unit string) (ratios Spread, ok bool) {
	var out []float64
	if s != nil && to != nil {
		for i := range min(len(s.Values[unit]), len(to.Values[unit])) {
			out = append(out, s.Values[unit][i]/to.Values[unit][i])
		}
	}
	if out == nil {
		return ratios, false
	}
	return Summarize(out), true
}

// Times formats the ratios of Over, and returns 1 if both are the same series.
func (s *Series) Times(to *Series, unit string) string {
	if ratios, ok := s.Over(to, unit); s == to {
		return "1"
	} else if ok {
		return ratios.Format("%.2f")
	}
	return ""
}

// English formats numbers for a page: thousands get commas.
var English = message.NewPrinter(language.English)

// A Spread summarises repeated measurements. The median is the result; the extremes show how noisy the machine was.
type Spread struct{ Median, Min, Max float64 }

// Summarize returns the spread of at least one value.
func Summarize(values []float64) Spread {
	sorted := slices.Sorted(slices.Values(values))
	return Spread{Median: Median(sorted), Min: sorted[0], Max: sorted[len(sorted)-1]}
}

// Format formats the median and, in parentheses, the extremes.
func (s Spread) Format(format string) string {
	if s.Min == s.Max {
		return English.Sprintf(format, s.Median)
	}
	return English.Sprintf(format+" ("+format+"…"+format+")", s.Median, s.Min, s.Max)
}

// Median returns the median of at least one value: the middle one, or the mean of the middle two.
func Median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	mid := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[mid]
	}
	return (sorted[mid-1] + sorted[mid]) / 2
}

// A Column has a cell for each row of a table.
type Column[Row any] struct {
	Head string
	Cell func(Row) string
}

// Table returns a table in Markdown, or nothing if it would have no rows.
func Table[Row any](rows []Row, columns ...Column[Row]) string {
	if len(rows) == 0 {
		return ""
	}
	lines := []string{"", ""}
	for _, c := range columns {
		lines[0] += "| " + c.Head + " "
		lines[1] += "|---"
	}
	for _, r := range rows {
		line := ""
		for _, c := range columns {
			line += "| " + c.Cell(r) + " "
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "|\n") + "|\n"
}

// A Pair is a comparison of two sides on a set. Theirs may be nil.
type Pair struct {
	Set, Name    string
	Ours, Theirs *Series
}

// Pairs returns the comparisons in the order of measurement.
func (r Results) Pairs() (pairs []Pair) {
	for _, s := range r {
		if name, ours := strings.CutSuffix(s.Who, Ours); ours {
			pairs = append(pairs, Pair{s.Data, name, s, r.Find(s.Data, name+Theirs)})
		}
	}
	return pairs
}

// String returns the table of the results: a row for each pair, or for each side if there are no pairs.
func (r Results) String() string {
	pairs := r.Pairs()
	if pairs == nil {
		return r.bySide()
	}
	return Table(pairs,
		Column[Pair]{"set", func(p Pair) string { return p.Set }},
		Column[Pair]{"ours / theirs", func(p Pair) string { return p.Name }},
		Column[Pair]{"wall", func(p Pair) string { return p.Ours.Times(p.Theirs, Wall) }},
		Column[Pair]{"CPU", func(p Pair) string { return p.Ours.Times(p.Theirs, CPU) }},
		Column[Pair]{"ours", Pair.ours})
}

// ours formats the medians of our side's values, times in nanoseconds.
func (p Pair) ours() string {
	if p.Ours.Values[Wall] != nil {
		return English.Sprintf("%.0f ns/file", p.Ours.Median(Wall))
	}
	return p.Ours.units()
}

func (s *Series) units() string {
	var cells []string
	for _, unit := range slices.Sorted(maps.Keys(s.Values)) {
		cells = append(cells, English.Sprintf("%.4g %s", s.Median(unit), unit))
	}
	return strings.Join(cells, ", ")
}

func (r Results) Units() string {
	return Table(r, Column[*Series]{"case", func(s *Series) string { return s.Data }}, Column[*Series]{"side", func(s *Series) string { return s.Who }},
		Column[*Series]{"medians", (*Series).units})
}

// bySide returns a table with a row for each side, with times relative to those of the first side.
func (r Results) bySide() string {
	columns := []Column[string]{{"", func(who string) string { return who }}, {"version", func(who string) string {
		return r[slices.IndexFunc(r, func(s *Series) bool { return s.Who == who })].Version
	}}}
	for _, set := range r.Sets() {
		times := func(head, unit string) Column[string] {
			return Column[string]{head, func(who string) string { return r.Find(set, who).Times(r.Find(set, r.Sides()[0]), unit) }}
		}
		columns = append(columns, Column[string]{set + ", files/s", func(who string) string {
			var speeds []float64
			if s := r.Find(set, who); s != nil {
				for _, ns := range s.Values[Wall] {
					speeds = append(speeds, PerSecond(ns))
				}
				return Summarize(speeds).Format("%.0f")
			}
			return ""
		}}, times("time", Wall), times("CPU", CPU))
	}
	return Table(r.Sides(), columns...)
}

// PerSecond returns how many operations take a second if one takes ns nanoseconds.
func PerSecond(ns float64) float64 { return 1e9 / ns }
