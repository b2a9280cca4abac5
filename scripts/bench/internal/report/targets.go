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

	"github.com/fileproc/fileproc/scripts/internal/commands"
	"github.com/fileproc/fileproc/scripts/internal/measure"
	"github.com/fileproc/fileproc/scripts/internal/record"
)

// A limit is the largest median of a unit that a target allows.
type limit struct {
	unit string
	max  float64
}

func (l limit) String() string {
	if l.unit == wall || l.unit == cpu {
		return fmt.Sprintf("%s ≤ %.2f", l.unit, l.max)
	}
	return english.Sprintf("≤ %v %s", l.max, l.unit)
}

const (
	wall = "wall" // times that of the other side
	cpu  = "CPU"
)

// A target is a row of the table of targets. Its measurements are the records of a table whose side begins with who, or the row
// of the table of cold runs that has the name who. Without a table nothing here measures it.
type target struct {
	name       string
	table, who string
	limits     []limit // none: it is reported
}

const whole = "whole / C loop"

var targets = []target{
	{"flat and nested, 100k and 1m, whole / C loop", "floor", whole, []limit{{wall, 0.85}}},
	{"the same without io_uring", "nouring", whole, []limit{{wall, 1}}},
	{"1 to 1m files, with io_uring / without", "uring", "", []limit{{wall, 1.02}}},
	{"metadata / C loop with fstatat", "floor", "stat / ", []limit{{wall, 0.95}}},
	{"ReadDir / getdents64", "floor", "ReadDir / bare getdents64", []limit{{wall, 0.9}}},
	{"ReadDir / os.ReadDir", "floor", "ReadDir / os.ReadDir", []limit{{wall, 0.35}}},
	{"whole / WalkDir + ReadFile", "walkdir", "", []limit{{wall, 0.2}, {cpu, 0.3}}},
	{"1, 2, 3, 5, 10, 100 files / ReadDir + ReadFile", "small", "", []limit{{wall, 1}, {cpu, 1}}},
	{"cold, flat 100k", "cold", "flat_100k, ext4", []limit{{"requests", 2500}}},
	{"cold, flat 100k / best C loop in listing order", "cold", "flat_100k, the machine's disk", []limit{{wall, 0.65}}},
	{"cold, Go's source, 3,000 requests/s, ext4", "cold", "go, ext4, 3,000 requests/s", []limit{{"s", 1.5}, {"requests", 2300}}},
	{"the same, xfs", "cold", "go, xfs, 3,000 requests/s", []limit{{"s", 1.5}, {"requests", 2300}}},
	{"the same, btrfs", "cold", "go, btrfs, 3,000 requests/s", []limit{{"s", 1.5}, {"requests", 2300}}},
	{"cold, Go's source, one head of 4 ms", "cold", "go, ext4, one head, 4 ms a seek", []limit{{"s", 8}, {"requests", 2500}}},
	{"cold, metadata of flat 100k / C loop", "cold", "metadata of flat_100k, ext4", []limit{{"requests", 1450}, {wall, 1}}},
	{"again, 1m files, nothing changed / a full run", "again", "the size, nothing changed", []limit{{wall, 0.45}}},
	{"again, 1m files, 1 % changed / a full run", "again", "the size, 1 % changed", []limit{{wall, 0.5}}},
	{"a change in a watched tree of 100k, p50", "", "", []limit{{"ms", 2}}},
	{"the same, p95", "", "", []limit{{"ms", 10}}},
	{"FUSE, 1 ms an open, 1,000 files", "fuse", "default / Workers 2", []limit{{"ms", 60}}},
	{"allocations a file, 100k, prefixes", "allocs", "", []limit{{"allocations", 0.002}}},
	{"peak memory, Stream, 1m files, warm", "peak", "", []limit{{"MiB", 16}}},
	{"the same, cold", "peak-cold", "", []limit{{"MiB", 80}}},
	{"cancel, cold, one head of 4 ms, worst", "cold", "cancel, nested1_18k, ext4, one head, 4 ms a seek", []limit{{"ms", 100}}},
	{"hash of 100 files of 1 GiB, peak memory", "", "", []limit{{"MiB", 16}}},
	{"the same / sha256sum", "", "", []limit{{wall, 1}}},
	{"unix backend, flat 100k, whole / C loop", "unix", whole, nil},
	{"generic backend, flat 100k, whole / C loop", "generic", whole, nil},
	{"1,000 directories of 3 files, and a chain of 1,000 / C loop", "shapes", "", nil},
}

// measured returns the spreads of t by unit, in the order of the sets or cases.
func (t target) measured(r *runner) (found map[string][]measure.Spread, err error) {
	found = map[string][]measure.Spread{}
	add := func(unit string, value float64) {
		found[unit] = append(found[unit], measure.Spread{Median: value, Min: value, Max: value})
	}
	text, _ := os.ReadFile(r.file(t.table))
	_, printed, _ := strings.Cut(string(text), "\n\n")
	switch t.table {
	case "":
		return nil, nil
	case "cold":
		for _, c := range coldCases(printed) {
			if c.name == t.who && c.reason == "" {
				add("requests", c.requests[0])
				add("s", c.seconds[0])
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
		records, err := r.load(t.table)
		res := resultsOf(records, t.table)
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
		return found, err
	}
	return found, nil
}

// targets has a row for each target. Figures that miss it are bold.
func (d *document) targets(r *runner) (missed int, err error) {
	d.table("case", "reached", "target")
	for _, t := range targets {
		found, errMeasured := t.measured(r)
		err = cmp.Or(err, errMeasured)
		limits := t.limits
		if limits == nil {
			limits = []limit{{wall, math.Inf(1)}, {cpu, math.Inf(1)}}
		}
		var cells []string
		for _, l := range limits {
			var figures []string
			for _, s := range found[l.unit] {
				figure := english.Sprintf("%v", s.Median)
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
		d.row(t.name, strings.Join(cells, "; "), cmp.Or(t.allowed(), "reported"))
	}
	return missed, err
}

func (t target) allowed() string {
	var all []string
	for _, l := range t.limits {
		all = append(all, l.String())
	}
	return strings.Join(all, ", ")
}

// limitsOf returns what the targets allow a case of the table of cold runs.
func limitsOf(coldCase string) string {
	i := slices.IndexFunc(targets, func(t target) bool { return t.table == "cold" && t.who == coldCase })
	if i < 0 {
		return ""
	}
	return targets[i].allowed()
}

// Targets is the command targets.
func Targets(ctx context.Context, args []string) error {
	r := &runner{runs: 1}
	flags := flag.NewFlagSet("bench targets", flag.ContinueOnError)
	flags.IntVar(&r.rounds, "pairs", 9, "interleaved `pairs`")
	flags.IntVar(&r.passes, "passes", 5, "`passes` of each side in a pair; 1 for a million files")
	flags.BoolVar(&r.quick, "quick", false, "use sets of 5,000 files, and no cold ones")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := r.open("targets"); err != nil {
		return err
	}
	defer os.RemoveAll(r.bins)
	var tables []string
	for _, t := range targets {
		tables = append(tables, t.table)
	}
	errRun := r.run(ctx, tables, nil)
	var d document
	missed, err := d.targets(r)
	fmt.Print(d.String())
	if err == nil && missed > 0 {
		return commands.Status{Text: fmt.Sprint(missed, " figures miss their target"), Code: 1}
	}
	return cmp.Or(err, errRun)
}
