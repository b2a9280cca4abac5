package report

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

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
	{"1, 2, 3, 10, 100 files / ReadDir + ReadFile", "small", "", []limit{{wall, 1}, {cpu, 1}}},
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
	{"the same, cold", "peakcold", "", []limit{{"MiB", 80}}},
	{"cancel, cold, one head of 4 ms, worst", "cold", "cancel, 60 directories of 300 files, ext4, one head, 4ms a seek", []limit{{"ms", 100}}},
	{"hash of 100 files of 1 GiB, peak memory", "", "", []limit{{"MiB", 16}}},
	{"the same / sha256sum", "", "", []limit{{wall, 1}}},
	{"unix backend, flat 100k, whole / C loop", "unix", whole, nil},
	{"generic backend, flat 100k, whole / C loop", "generic", whole, nil},
	{"1,000 directories of 3 files, and a chain of 1,000 / C loop", "shapes", "", nil},
}

// targetRuns are the runs of the command floor for the targets that no other part measures: table, build and arguments, with -dir
// for each set. The arguments of peakcold are of the case peak.
var targetRuns = []struct {
	table, build string
	args, sets   []string
}{
	{"nouring", "nouring", []string{"-case", "whole"}, slices.Concat(large, huge)},
	{"uring", "linux", []string{"-case", "uring"}, slices.Concat(sizeSets, huge[:1])},
	{"walkdir", "linux", []string{"-case", "walkdir"}, large[:1]},
	{"small", "linux", []string{"-case", "small"}, nil},
	{"again", "linux", []string{"-case", "again"}, huge[:1]},
	{"fuse", "linux", []string{"-case", "sweep", "-fuse", "1ms", "-workers", "2"}, nil},
	{"allocs", "linux", []string{"-case", "allocs"}, large[:1]},
	{"peak", "linux", []string{"-case", "peak"}, huge[:1]},
	{"peakcold", "linux", []string{"-case", "peak"}, huge[:1]},
	{"unix", "unix", []string{"-case", "whole"}, large[:1]},
	{"generic", "generic", []string{"-case", "whole"}, large[:1]},
	{"shapes", "linux", []string{"-case", "shapes"}, nil},
}

// measureTargets goes on after a case that does not run here, whose reason takes the place of its figures.
func (r *runner) measureTargets(ctx context.Context, _ part) (records []record.Record, err error) {
	for _, t := range targetRuns {
		sets := r.sized(t.sets)
		if t.sets == nil {
			sets = []string{""}
		}
		for _, set := range sets {
			fresh, err := r.measureTarget(ctx, t.table, t.build, set, t.args)
			if err != nil && ctx.Err() == nil {
				fresh, err = []record.Record{{Table: t.table, Data: set, Text: "not run: " + err.Error()}}, nil
			}
			if err != nil {
				return nil, err
			}
			records = append(records, fresh...)
		}
	}
	return records, nil
}

func (r *runner) measureTarget(ctx context.Context, table, build, set string, args []string) ([]record.Record, error) {
	args = append([]string{"floor"}, args...)
	if set != "" {
		if err := r.make(ctx, set); err != nil {
			return nil, err
		}
		args = append(args, "-dir", r.set(set))
	}
	switch table {
	case "peakcold":
		if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0o200); err != nil {
			return nil, err
		}
		fallthrough
	case "allocs", "peak":
		text, err := r.output(ctx, build, args...)
		return []record.Record{{Table: table, Data: set, Text: text}}, err
	}
	return r.records(ctx, table, build, append(args, r.flags(set)...)...)
}

// measured returns the spreads of t by unit, in the order of the sets or cases, or the reasons why there are none.
func (t target) measured(records []record.Record, cold string) (found map[string][]measure.Spread, reasons []string) {
	found = map[string][]measure.Spread{}
	add := func(unit string, values ...string) {
		for _, v := range values {
			if f, err := strconv.ParseFloat(v, 64); err == nil {
				found[unit] = append(found[unit], measure.Summarize([]float64{f}))
			}
		}
	}
	if t.table == "cold" {
		for _, c := range coldCases(cold) {
			switch {
			case c.name == t.who && c.reason != "":
				reasons = append(reasons, c.reason)
			case c.name == t.who:
				add("requests", fmt.Sprint(c.requests[0]))
				add("s", fmt.Sprint(c.seconds[0]))
				add(wall, fmt.Sprint(c.ratio))
			}
		}
		for i, row := range tableOf(cold, "worst, ms") {
			if i > 0 && len(row) > 4 && row[0] == t.who {
				add("ms", row[4])
			}
		}
		return found, reasons
	}
	r := resultsOf(records, t.table)
	for _, rec := range r.leftOut {
		number, _, _ := strings.Cut(rec.Text, " ")
		switch t.table {
		case "allocs":
			add("allocations", number)
		case "peak", "peakcold":
			if kib, err := strconv.ParseFloat(number, 64); err == nil {
				add("MiB", fmt.Sprintf("%.1f", kib/1024))
			}
		}
		if strings.HasPrefix(rec.Text, "not run: ") {
			reasons = append(reasons, strings.TrimSpace(rec.Data+" "+rec.Text))
		}
	}
	for _, set := range r.sets() {
		for _, c := range r.comparisons() {
			w, p, ok := r.ratios(set, c)
			if !ok || !strings.HasPrefix(c, t.who) {
				continue
			}
			found[wall], found[cpu] = append(found[wall], w), append(found[cpu], p)
			if t.table == "fuse" { // 1,000 files, so that ns/file are thousandths of a millisecond
				found["ms"] = append(found["ms"], each(r.find(set, c+record.Side+"ours").wall, micros))
			}
		}
	}
	return found, reasons
}

// targets has a row for each target. Figures that miss it are bold.
func (d *document) targets(records []record.Record, cold string) (missed int) {
	d.table("case", "reached", "target")
	for _, t := range targets {
		found, reasons := t.measured(records, cold)
		limits, wanted := t.limits, []string{}
		if limits == nil {
			limits, wanted = []limit{{unit: wall}, {unit: cpu}}, []string{"reported"}
		}
		var cells []string
		for _, l := range limits {
			var figures []string
			for _, s := range found[l.unit] {
				figure := english.Sprintf("%v", s.Median)
				if s.Min != s.Max {
					figure = spread(s, "%.2f")
				}
				if t.limits != nil && s.Median > l.max {
					figure, missed = "**"+figure+"**", missed+1
				}
				figures = append(figures, figure)
			}
			if figures != nil {
				cells = append(cells, strings.TrimPrefix(l.unit+" "+strings.Join(figures, ", "), "ms "))
			}
			if t.limits != nil {
				wanted = append(wanted, l.String())
			}
		}
		d.row(t.name, strings.Join(append(cells, reasons...), "; "), strings.Join(wanted, ", "))
	}
	return missed
}

// limitsOf returns what the targets allow a case of the table of cold runs.
func limitsOf(coldCase string) string {
	var all []string
	for _, t := range targets {
		for _, l := range t.limits {
			if t.table == "cold" && t.who == coldCase {
				all = append(all, l.String())
			}
		}
	}
	return strings.Join(all, ", ")
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
	defer r.close()
	for _, name := range []string{"floor", "cold", "targets"} {
		if err := r.measure(ctx, name, nil); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		}
	}
	records, cold, err := r.ofTargets()
	if err != nil {
		return err
	}
	var d document
	missed := d.targets(records, cold)
	fmt.Print(d.String())
	if missed > 0 {
		return status{fmt.Sprint(missed, " figures miss their target"), 1}
	}
	return nil
}

// ofTargets returns what the table of targets is drawn from.
func (r *runner) ofTargets() (records []record.Record, cold string, err error) {
	for _, name := range []string{"floor", "targets"} {
		list, err := r.load(name)
		if err != nil {
			return nil, "", err
		}
		records = append(records, list...)
	}
	text, _ := os.ReadFile(filepath.Join(r.raw, "cold.md"))
	return records, string(text), nil
}
