//go:build linux

package caches

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/perf/benchfmt"

	"github.com/fileproc/fileproc/scripts/internal/figure"
	"github.com/fileproc/fileproc/scripts/internal/measure"
)

// The sides of the cases.
const (
	ours       = "fileproc"
	checked    = "fileproc, checked"
	theirs     = "cachefs"
	theirOther = "corfs"
	bare       = "no cache"
)

var sides = []string{ours, checked, theirs, theirOther, bare}

// A series is what a side took in a case of a benchmark: values of an operation in each round, by their units.
type series struct {
	benchmark, name, side string
	values                map[string][]float64
}

type results struct {
	series []*series
	rounds int
	notes  string // what the benchmarks found wrong
}

// add adds the output of the benchmarks in a round.
func (r *results) add(output []byte) error {
	in := benchfmt.NewReader(bytes.NewReader(output), "the benchmarks")
	for in.Scan() {
		res, ok := in.Result().(*benchfmt.Result)
		if !ok {
			continue // such as a line that says that a side was skipped
		}
		benchmark, parts := res.Name.Parts()
		text := func(part []byte) string { // without its key, and as it was before the package testing made it a name
			_, value, _ := strings.Cut(string(part), "=")
			return strings.ReplaceAll(value, "_", " ")
		}
		s := r.find(string(benchmark), text(parts[0]), text(parts[1]))
		if s == nil {
			s = &series{string(benchmark), text(parts[0]), text(parts[1]), map[string][]float64{}}
			r.series = append(r.series, s)
		}
		for _, v := range res.Values {
			s.values[v.Unit] = append(s.values[v.Unit], v.Value)
		}
	}
	r.rounds++
	return in.Err()
}

func (r *results) find(benchmark, name, side string) *series {
	i := slices.IndexFunc(r.series, func(s *series) bool { return s.benchmark == benchmark && s.name == name && s.side == side })
	if i < 0 {
		return nil
	}
	return r.series[i]
}

// rows returns a row for each case of a benchmark: its name, and a cell for each of the sides, which is a dash if there is none.
func (r *results) rows(benchmark string, sides []string, show func(s *series) string) (rows [][]string) {
	for _, s := range r.series {
		if s.benchmark != benchmark || slices.ContainsFunc(rows, func(row []string) bool { return row[0] == s.name }) {
			continue
		}
		row := []string{s.name}
		for _, side := range sides {
			if s := r.find(benchmark, s.name, side); s != nil {
				row = append(row, show(s))
			} else {
				row = append(row, "–")
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// bySide returns a row for each side of a benchmark that has one case.
func (r *results) bySide(benchmark string, show ...func(s *series) string) (rows [][]string) {
	for _, s := range r.series {
		if s.benchmark == benchmark {
			row := []string{s.side}
			for _, cell := range show {
				row = append(row, cell(s))
			}
			rows = append(rows, row)
		}
	}
	return rows
}

func (s *series) median(unit string) float64 { return measure.Median(s.values[unit]) }

func ns(s *series) string     { return measure.English.Sprintf("%.0f", 1e9*s.median("sec/op")) }
func allocs(s *series) string { return fmt.Sprintf("%.3g", s.median("mallocs/op")) }
func reads(s *series) string  { return fmt.Sprintf("%.2f", s.median("reads/op")) }
func hits(s *series) string   { return fmt.Sprintf("%.1f", 100-100*s.median("reads/op")) }

// hotHits is of the operations outside of the scan, which are four fifths.
func hotHits(s *series) string { return fmt.Sprintf("%.1f", 100-100*s.median("hot/op")/0.8) }

// ratio is the median of the ratios to fileproc, round by round.
func (r *results) ratio(s *series) string {
	to := r.find(s.benchmark, s.name, ours)
	if to == nil {
		return "–"
	}
	ratios := slices.Clone(s.values["sec/op"])
	for i := range ratios {
		ratios[i] /= to.values["sec/op"][i]
	}
	return fmt.Sprintf("%.2f", measure.Median(ratios))
}

func machine() string {
	return fmt.Sprintf("%s %s/%s, %d processors", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0))
}

// print prints the tables of docs/cache.md.
func (r *results) print(w io.Writer) {
	table := func(title string, rows [][]string, columns ...string) {
		if rows == nil {
			return
		}
		line := append([]string{"---"}, slices.Repeat([]string{"---:"}, len(columns)-1)...)
		fmt.Fprintf(w, "\n%s\n\n", title)
		for _, row := range append([][]string{columns, line}, rows...) {
			fmt.Fprintf(w, "| %s |\n", strings.Join(row, " | "))
		}
	}
	fmt.Fprintf(w, "%s, %d interleaved rounds.\n", machine(), r.rounds)
	all := r.rows("Cases", sides, ns)
	ratios, allocated := r.rows("Cases", []string{theirs, theirOther}, r.ratio), r.rows("Cases", sides, allocs)
	for i := range all {
		all[i] = slices.Concat(all[i], ratios[i][1:], []string{strings.Join(allocated[i][1:], ", ")})
	}
	table("Operations:", all, "ns", ours, "checked", theirs, theirOther, bare,
		"cachefs / fileproc", "corfs / fileproc", "allocations")
	table("Reads of the source in an operation:", r.rows("Cases", sides[:4], reads), "", ours, "checked", theirs, theirOther)
	fmt.Fprintf(w, "\n%s", r.notes)
	table("A miss with an eviction, LFU, the same 1,000 files in turn:", r.rows("Eviction", []string{ours, theirs}, ns),
		"entries", "fileproc, ns", "cachefs, ns")
	table("Zipf with a scan, 25,000 files, of which 1,500 fit:", r.bySide("Policies", hits, hotHits, ns),
		"", "hits, %", "hits outside of the scan, %", "ns")
	table("One file of 4 KiB in a directory, in the page cache:", r.bySide("Directory", ns, allocs), "", "ns", "allocations")
}

// plot draws the reads to a file, such as cache.png, and the writes, whose title differs, to cache-writes.png.
func (r *results) plot(file string) error {
	format := filepath.Ext(file)
	for _, p := range []struct {
		file, title string
		writes      bool
	}{
		{file, "Time to open, read and close a file (shorter is better)", false},
		{strings.TrimSuffix(file, format) + "-writes" + format, "Time to write a file, or to write and read it (shorter is better)", true},
	} {
		var names []string
		for _, row := range r.rows("Cases", nil, nil) {
			if strings.HasPrefix(row[0], "Write") == p.writes {
				names = append(names, row[0])
			}
		}
		if names == nil {
			continue
		}
		err := figure.Bars{
			Title: p.title, Unit: "ns", Names: names, Kinds: sides, Label: "%.0f",
			Value: func(name, side string) (spread measure.Spread, ok bool) {
				s := r.find("Cases", name, side)
				if s == nil {
					return spread, false
				}
				all := measure.Summarize(s.values["sec/op"])
				return measure.Spread{Median: 1e9 * all.Median, Min: 1e9 * all.Min, Max: 1e9 * all.Max}, true
			},
			Caption: "One goroutine unless it says otherwise; the source is in memory. checked: each hit is compared with the file.\n" +
				fmt.Sprintf("Bars and numbers: medians of %d rounds; whiskers: minimum to maximum. %s", r.rounds, machine()),
		}.Save(p.file)
		if err != nil {
			return err
		}
	}
	return nil
}
