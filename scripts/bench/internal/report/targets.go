package report

import (
	"cmp"
	"math"
	"strconv"
	"strings"

	"github.com/fileproc/fileproc/scripts/bench/internal/cold"
	"github.com/fileproc/fileproc/scripts/internal/measure"
	"github.com/fileproc/fileproc/scripts/internal/record"
)

// A limit is the largest median of a unit that a target allows.
type limit struct {
	unit string
	max  float64
}

const wall, cpu = "wall", "CPU" // times that of the other side

// limitsOf returns the limits of a text such as "wall ≤ 0.85, ≤ 2,500 requests".
func limitsOf(text string) (all []limit) {
	for part := range strings.SplitSeq(text, ", ") {
		unit, most, _ := strings.Cut(part, "≤ ")
		number, unitAfter, _ := strings.Cut(strings.ReplaceAll(most, ",", ""), " ")
		if n, err := strconv.ParseFloat(number, 64); err == nil {
			all = append(all, limit{cmp.Or(strings.TrimSpace(unit), unitAfter), n})
		}
	}
	return all
}

// A target is a row of the table of targets, measured by a table's records: of comparisons whose names have who, or the cold case who.
type target struct {
	name       string
	table, who string
	limits     string // "": those of the case of cold runs, or none, and it is reported
}

const whole = "whole / C loop"

var targets = []target{
	{"flat and nested, 100k and 1m, whole / C loop", "floor", whole, "wall ≤ 0.85"},
	{"the same without io_uring", "backends", "nouring, ", "wall ≤ 1.00"},
	{"1 to 1m files, with io_uring / without", "uring", "", "wall ≤ 1.02"},
	{"metadata / C loop with fstatat", "floor", "stat / ", "wall ≤ 0.95"},
	{"ReadDir / getdents64", "floor", "ReadDir / bare getdents64", "wall ≤ 0.90"},
	{"ReadDir / os.ReadDir", "floor", "ReadDir / os.ReadDir", "wall ≤ 0.35"},
	{"whole / WalkDir + ReadFile", "walkdir", "whole / ", "wall ≤ 0.20, CPU ≤ 0.30"},
	{"1, 2, 3, 5, 10, 100 files / ReadDir + ReadFile", "trees", " / ReadDir + ReadFile", "wall ≤ 1.00, CPU ≤ 1.00"},
	{"cold, flat 100k", "cold", "flat_100k, ext4", ""},
	{"cold, flat 100k / best C loop in listing order", "cold", "flat_100k, the machine's disk", ""},
	{"cold, Go's source, 3,000 requests/s, ext4", "cold", "go, ext4, 3,000 requests/s", ""},
	{"the same, xfs", "cold", "go, xfs, 3,000 requests/s", ""},
	{"the same, btrfs", "cold", "go, btrfs, 3,000 requests/s", ""},
	{"cold, Go's source, one head of 4 ms", "cold", "go, ext4, one head, 4 ms a seek", ""},
	{"cold, metadata of flat 100k / C loop", "cold", "metadata of flat_100k, ext4", ""},
	{"again, 1m files, nothing changed / a full run", "again", "the size, nothing changed / a full run", "wall ≤ 0.45"},
	{"again, 1m files, 1 % changed / a full run", "again", "the size, 1 % changed / a full run", "wall ≤ 0.50"},
	{"FUSE, 1 ms an open, 1,000 files", "fuse", "default / Workers 2", "≤ 60 ms"},
	{"allocations a file, 100k, prefixes", "allocs", "", "≤ 0.002 allocations"},
	{"peak memory, Stream, 1m files, warm", "peak", "Stream, warm", "≤ 16 MiB"},
	{"the same, cold", "peak", "Stream, cold", "≤ 80 MiB"},
	{"cancel, cold, one head of 4 ms, worst", "cancel", "cancel, 60 directories of 300 files, ext4, one head, 4ms a seek", ""},
	{"unix backend, 100k, whole / C loop", "backends", "unix, ", ""},
	{"generic backend, 100k, whole / C loop", "backends", "generic, ", ""},
	{"1,000 directories of 1 and of 3 files, and a chain of 1,000 / C loop", "trees", " / C loop", ""},
}

// measured returns the spreads of t by unit, in the order of the sets.
func (t target) measured(r *runner) (found map[string][]measure.Spread) {
	found = map[string][]measure.Spread{}
	add := func(unit string, s measure.Spread, ok bool) {
		if ok {
			found[unit] = append(found[unit], s)
		}
	}
	median := func(s *record.Series, unit string, scale float64) {
		v := s.Median(unit) * scale
		add(unit, measure.Spread{Median: v, Min: v, Max: v}, s != nil && s.Values[unit] != nil)
	}
	switch t.table {
	case "cold", "cancel":
		res := record.Of(r.load("cold"), t.table)
		s := res.Find(t.who, "fileproc")
		for _, unit := range []string{"requests", "s", "ms"} {
			median(s, unit, 1)
		}
		ratio, ok := s.Over(res.Find(t.who, "usual loop"), "s")
		add(wall, ratio, ok)
	default:
		for _, p := range r.results(t.table).Pairs() {
			if !strings.Contains(p.Name, t.who) {
				continue
			}
			for unit, of := range map[string]string{wall: record.Wall, cpu: record.CPU} {
				ratio, ok := p.Ours.Over(p.Theirs, of)
				add(unit, ratio, ok)
			}
			median(p.Ours, "allocations", 1)
			median(p.Ours, "MiB", 1)
			if t.table == "fuse" { // 1,000 files, so that ns/file are thousandths of a millisecond
				ms := p.Ours.Median(record.Wall) / 1000
				add("ms", measure.Spread{Median: ms, Min: ms, Max: ms}, true)
			}
		}
	}
	return found
}

// targets returns a table with a row for each target. Figures that miss it are bold.
func (r *runner) targets() string {
	limits := func(t target) string { return cmp.Or(t.limits, cold.Target(t.who)) }
	type column = record.Column[target]
	return record.Table(targets, column{Head: "case", Cell: func(t target) string { return t.name }},
		column{Head: "reached", Cell: func(t target) string {
			found := t.measured(r)
			all := limitsOf(limits(t))
			if all == nil {
				all = []limit{{wall, math.Inf(1)}, {cpu, math.Inf(1)}}
			}
			var cells []string
			for _, l := range all {
				var figures []string
				for _, s := range found[l.unit] {
					figure := measure.English.Sprintf("%v", math.Round(s.Median*10000)/10000)
					switch {
					case s.Min != s.Max:
						figure = record.Spread(s, "%.2f")
					case l.unit == "MiB" || l.unit == "ms":
						figure = measure.English.Sprintf("%.1f", s.Median)
					}
					if s.Median > l.max {
						figure = "**" + figure + "**"
					}
					figures = append(figures, figure)
				}
				if figures != nil {
					cells = append(cells, l.unit+" "+strings.Join(figures, ", "))
				}
			}
			return strings.Join(cells, "; ")
		}}, column{Head: "target", Cell: func(t target) string { return cmp.Or(limits(t), "reported") }})
}
