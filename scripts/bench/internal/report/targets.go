package report

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/fileproc/fileproc/scripts/bench/internal/cold"
	"github.com/fileproc/fileproc/scripts/internal/commands"
	"github.com/fileproc/fileproc/scripts/internal/fail"
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

// A target is a row of the table of targets. Its measurements are the records of a table whose side begins with who, or the row
// of the table of cold runs that has the name who. Without a table nothing here measures it.
type target struct {
	name       string
	table, who string
	limits     string // "": those of the case of cold runs, or none, and it is reported
}

const whole = "whole / C loop"

var targets = []target{
	{"flat and nested, 100k and 1m, whole / C loop", "floor", whole, "wall ≤ 0.85"},
	{"the same without io_uring", "nouring", whole, "wall ≤ 1.00"},
	{"1 to 1m files, with io_uring / without", "uring", "", "wall ≤ 1.02"},
	{"metadata / C loop with fstatat", "floor", "stat / ", "wall ≤ 0.95"},
	{"ReadDir / getdents64", "floor", "ReadDir / bare getdents64", "wall ≤ 0.90"},
	{"ReadDir / os.ReadDir", "floor", "ReadDir / os.ReadDir", "wall ≤ 0.35"},
	{"whole / WalkDir + ReadFile", "walkdir", "", "wall ≤ 0.20, CPU ≤ 0.30"},
	{"1, 2, 3, 5, 10, 100 files / ReadDir + ReadFile", "small", "", "wall ≤ 1.00, CPU ≤ 1.00"},
	{"cold, flat 100k", "cold", "flat_100k, ext4", ""},
	{"cold, flat 100k / best C loop in listing order", "cold", "flat_100k, the machine's disk", ""},
	{"cold, Go's source, 3,000 requests/s, ext4", "cold", "go, ext4, 3,000 requests/s", ""},
	{"the same, xfs", "cold", "go, xfs, 3,000 requests/s", ""},
	{"the same, btrfs", "cold", "go, btrfs, 3,000 requests/s", ""},
	{"cold, Go's source, one head of 4 ms", "cold", "go, ext4, one head, 4 ms a seek", ""},
	{"cold, metadata of flat 100k / C loop", "cold", "metadata of flat_100k, ext4", ""},
	{"again, 1m files, nothing changed / a full run", "again", "the size, nothing changed", "wall ≤ 0.45"},
	{"again, 1m files, 1 % changed / a full run", "again", "the size, 1 % changed", "wall ≤ 0.50"},
	{"a change in a watched tree of 100k, p50", "", "", "≤ 2 ms"},
	{"the same, p95", "", "", "≤ 10 ms"},
	{"FUSE, 1 ms an open, 1,000 files", "fuse", "default / Workers 2", "≤ 60 ms"},
	{"allocations a file, 100k, prefixes", "allocs", "", "≤ 0.002 allocations"},
	{"peak memory, Stream, 1m files, warm", "peak", "", "≤ 16 MiB"},
	{"the same, cold", "peak-cold", "", "≤ 80 MiB"},
	{"cancel, cold, one head of 4 ms, worst", "cold", "cancel, 60 directories of 300 files, ext4, one head, 4ms a seek", ""},
	{"hash of 100 files of 1 GiB, peak memory", "", "", "≤ 16 MiB"},
	{"the same / sha256sum", "", "", "wall ≤ 1.00"},
	{"unix backend, flat 100k, whole / C loop", "unix", whole, ""},
	{"generic backend, flat 100k, whole / C loop", "generic", whole, ""},
	{"1,000 directories of 3 files, and a chain of 1,000 / C loop", "shapes", "", ""},
}

// measured returns the spreads of t by unit, in the order of the sets or cases.
func (t target) measured(r *runner) (found map[string][]measure.Spread) {
	found = map[string][]measure.Spread{}
	add := func(unit string, value float64) {
		found[unit] = append(found[unit], measure.Spread{Median: value, Min: value, Max: value})
	}
	text, _ := os.ReadFile(r.file(t.table))
	_, printed, _ := strings.Cut(string(text), "\n\n")
	switch t.table {
	case "":
		return nil
	case "cold":
		for _, c := range coldCases(printed) {
			if c.name == t.who {
				add("requests", c.requests)
				add("s", c.seconds)
				add(wall, c.ratio)
			}
		}
		rows := tableOf(printed, "worst, ms")
		for _, row := range rows {
			if ms, err := strconv.ParseFloat(row[slices.Index(rows[0], "worst, ms")], 64); err == nil && row[0] == t.who {
				add("ms", ms)
			}
		}
	case "allocs", "peak", "peak-cold": // what it prints begins with the number
		var number float64
		if _, err := fmt.Sscan(printed, &number); err == nil && t.table == "allocs" {
			add("allocations", number)
		} else if err == nil {
			add("MiB", math.Round(number/102.4)/10) // it was KiB
		}
	default:
		res := resultsOf(r.load(t.table), t.table)
		for _, set := range res.sets() {
			for _, c := range res.comparisons() {
				if w, p, ok := res.ratios(set, c); ok && strings.HasPrefix(c, t.who) {
					found[wall], found[cpu] = append(found[wall], w), append(found[cpu], p)
					if t.table == "fuse" { // 1,000 files, so that ns/file are thousandths of a millisecond
						add("ms", math.Round(each(res.find(set, c+record.Side+"ours").wall, micros).Median))
					}
				}
			}
		}
	}
	return found
}

// targets has a row for each target. Figures that miss it are bold.
func (d *document) targets(r *runner) (missed int) {
	d.table("case", "reached", "target")
	for _, t := range targets {
		found := t.measured(r)
		allowed := cmp.Or(t.limits, cold.Target(t.who))
		limits := limitsOf(allowed)
		if limits == nil {
			limits = []limit{{wall, math.Inf(1)}, {cpu, math.Inf(1)}}
		}
		var cells []string
		for _, l := range limits {
			var figures []string
			for _, s := range found[l.unit] {
				figure := measure.English.Sprintf("%v", s.Median)
				if s.Min != s.Max {
					figure = spread(s, "%.2f")
				}
				if s.Median > l.max {
					figure, missed = "**"+figure+"**", missed+1
				}
				figures = append(figures, figure)
			}
			if figures != nil {
				cells = append(cells, l.unit+" "+strings.Join(figures, ", "))
			}
		}
		d.row(t.name, strings.Join(cells, "; "), cmp.Or(allowed, "reported"))
	}
	return missed
}

// Targets is the command targets.
func Targets(ctx context.Context, args []string) error {
	r := &runner{rounds: 9, passes: 5, runs: 1}
	flags := flag.NewFlagSet("bench targets", flag.ContinueOnError)
	flags.BoolVar(&r.quick, "quick", false, "use sets of 5,000 files, and no cold ones")
	if err := flags.Parse(args); err != nil {
		return err
	}
	return fail.Try(func() {
		r.open("targets")
		defer os.RemoveAll(r.bins)
		var tables []string
		for _, t := range targets {
			tables = append(tables, t.table)
		}
		err := r.run(ctx, tables, nil)
		var d document
		missed := d.targets(r)
		fmt.Print(d.String())
		if missed > 0 {
			err = commands.Status{Text: fmt.Sprint(missed, " figures miss their target"), Code: 1}
		}
		fail.On(err)
	})
}
