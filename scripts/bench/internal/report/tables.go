package report

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/fileproc/fileproc/scripts/internal/figure"
	"github.com/fileproc/fileproc/scripts/internal/measure"
	"github.com/fileproc/fileproc/scripts/internal/record"
)

// write makes benchmarks.md and its plots.
func write(out string, records []record.Record) error {
	if err := os.MkdirAll(filepath.Join(out, "img"), 0o755); err != nil {
		return err
	}
	var d document
	d.head(records)
	on := machineLine(records)
	for _, section := range []struct {
		table string
		text  func(*document, results) error
		plot  func(name string, r results) error
		alt   string
	}{
		{"peers", (*document).peers, plotPeers, "Files per second of fileproc and its peers, with ranges"},
		{"programs", (*document).programs, nil, ""},
		{"backends", (*document).backends, plotBackends, "Time per file of each backend on each set, with ranges"},
		{"readdir", (*document).readDir, nil, ""},
		{"floor", (*document).floor, plotFloor, "Time of fileproc over that of the bare system calls in C, with ranges and a line at 1"},
		{"bare", (*document).bare, plotDepth, "Time of bare loops over that of the C loop, with io_uring by the depth of the ring, with ranges"},
		{"fio", (*document).fio, nil, ""},
		{"sizes", (*document).sizes, plotSizes, "Time per file against the number of files"},
		{"workers", (*document).workers, plotWorkers, "Files per second against the number of workers"},
		{"warm", func(d *document, warm results) error { return d.caches(resultsOf(records, "cold"), warm) },
			func(name string, warm results) error { return plotCaches(name, resultsOf(records, "cold"), warm) },
			"Time over that of fileproc with cold and with warm caches, with ranges"},
		{"ablation", (*document).ablation, nil, ""},
	} {
		r := resultsOf(records, section.table)
		r.machine = on
		if len(r.series)+len(r.leftOut) == 0 {
			continue // not measured yet
		}
		if len(r.series) == 0 {
			d.line("\n## %s", section.table)
		} else if err := section.text(&d, r); err != nil {
			return fmt.Errorf("%s: %w", section.table, err)
		}
		if section.plot != nil && len(r.series) > 0 {
			name := filepath.Join(out, "img", section.table)
			for _, format := range figure.Formats { // the plot may have nothing to draw, and an old image must not remain
				if err := os.Remove(name + "." + format); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return err
				}
			}
			if section.table != "peers" { // which README.md shows as a PNG
				name += ".svg"
			}
			if err := section.plot(name, r); err != nil {
				return fmt.Errorf("%s: %w", section.table, err)
			}
		}
		if _, err := os.Stat(filepath.Join(out, "img", section.table+".svg")); err == nil && section.plot != nil {
			d.line("\n![%s](img/%s.svg)", section.alt, section.table)
		}
		d.leftOut(r)
	}
	return os.WriteFile(filepath.Join(out, "benchmarks.md"), []byte(d.String()), 0o644)
}

type document struct{ strings.Builder }

func (d *document) line(format string, args ...any) { fmt.Fprintf(d, format+"\n", args...) }

func (d *document) row(cells ...string) { d.line("| %s |", strings.Join(cells, " | ")) }

func (d *document) table(heads ...string) {
	d.line("")
	d.row(heads...)
	d.line("|%s", strings.Repeat("---|", len(heads)))
}

func (d *document) leftOut(r results) {
	seen := map[string]bool{}
	for _, rec := range r.leftOut {
		if !seen[rec.Data+rec.Who] {
			seen[rec.Data+rec.Who] = true
			d.line("\n%s", strings.TrimPrefix(strings.TrimSpace(rec.Data+" "+rec.Who)+": "+rec.Text+".", ": "))
		}
	}
}

func (d *document) head(records []record.Record) {
	d.line("# Benchmarks\n\nMade by `scripts/bench_report.sh`; do not edit by hand.\n")
	for _, r := range resultsOf(records, "machine").leftOut {
		d.line("- %s: %s", r.Who, r.Text)
	}
	var widths []float64
	for _, table := range tableNames {
		for _, s := range resultsOf(records, table).series {
			m := measure.Summarize(s.wall)
			widths = append(widths, (m.Max/m.Min-1)*100)
		}
	}
	if len(widths) > 0 {
		w := measure.Summarize(widths)
		d.line("\nFigures are medians over the rounds, with minimum…maximum in parentheses, or as whiskers in plots. Sides are measured in turn, and ratios "+
			"are taken within a round. The slowest round took %.0f %% longer than the fastest in the median of all %d series, and %.0f %% longer in the worst.", w.Median, len(widths), w.Max)
	}
	d.line("\nThe files are tickets of about 400 bytes, in one directory (`flat`) or in 36, one for each month (`nested1`). Caches are warm unless a " +
		"section says otherwise. Every side sees all bytes.")
}

// machineLine returns the description of the machine on one line.
func machineLine(records []record.Record) string {
	var parts []string
	for _, r := range resultsOf(records, "machine").leftOut {
		switch r.Who {
		case "Cores":
			parts = append(parts, r.Text+" cores")
		case "Date":
		default:
			parts = append(parts, r.Text)
		}
	}
	return strings.Join(parts, ", ")
}

func (d *document) peers(r results) error {
	d.line("\n## Peers\n\nEach side reads every file whole; the peers hand over paths, which os.ReadFile reads. Times are relative to fileproc's.")
	heads := []string{"", "version"}
	for _, set := range r.sets() {
		heads = append(heads, set+", files/s", "time", "CPU")
	}
	d.table(heads...)
	for i, side := range r.on(r.sets()[0]) {
		cells := []string{side.who, side.version}
		if i == 0 {
			cells[1] = "this one"
		}
		for _, set := range r.sets() {
			s, ours := r.find(set, side.who), r.on(set)[0]
			switch {
			case s == nil:
				cells = append(cells, "", "", "")
			case s == ours:
				cells = append(cells, spread(each(s.wall, filesPerSecond), "%.0f"), "1", "1")
			default:
				cells = append(cells, spread(each(s.wall, filesPerSecond), "%.0f"),
					spread(paired(s.wall, ours.wall, ratio), "%.2f"), spread(paired(s.cpu, ours.cpu, ratio), "%.2f"))
			}
		}
		d.row(cells...)
	}
	return nil
}

func (d *document) programs(r results) error {
	d.line("\n## Whole programs\n\nEach program counts the lines with a fixed string in every file, from start to exit. `scripts/bench/internal/peers/count` is 50 lines " +
		"around fileproc. All find the same lines; grep also prints the files without a match.")
	for _, set := range r.sets() {
		files, err := count(set)
		if err != nil {
			return err
		}
		list := r.on(set)
		ours := list[0]
		d.table(set, "version", "wall, ms", "CPU, ms", "wall × ours")
		for _, s := range list {
			version, times := s.version, "1"
			if s == ours {
				version = "this one"
			} else {
				times = spread(paired(s.wall, ours.wall, ratio), "%.2f")
			}
			ms := func(ns float64) float64 { return ns * files / 1e6 }
			d.row(s.who, version, spread(each(s.wall, ms), "%.0f"), spread(each(s.cpu, ms), "%.0f"), times)
		}
	}
	return nil
}

func (d *document) backends(r results) error {
	d.line("\n## Backends\n\nns/file of one program built without a tag and with `fileproc_nouring`, `fileproc_unix` and `fileproc_generic`, and %% more than " +
		"the first.")
	heads := []string{"set", builds[0]}
	for _, build := range builds[1:] {
		heads = append(heads, build, "%")
	}
	d.table(heads...)
	for _, set := range r.sets() {
		cells := []string{set}
		base := r.find(set, builds[0])
		for _, build := range builds {
			s := r.find(set, build)
			if s == nil {
				return fmt.Errorf("%s: the build %s was not measured", set, build)
			}
			cells = append(cells, spread(each(s.wall, identity), "%.0f"))
			if s != base {
				cells = append(cells, spread(paired(s.wall, base.wall, percentMore), "%+.0f"))
			}
		}
		d.row(cells...)
	}
	return nil
}

func (d *document) readDir(r results) error {
	d.line("\n## ReadDir\n\nns/entry for the names and types of one directory, and with `Info` also metadata, which `(*os.File).Readdir` " +
		"always asks for. `× ours` is relative to `fileproc.ReadDir`, with `Info` if that side asks for it.")
	for i, set := range r.sets() {
		heads, cells := []string{"directory"}, []string{set}
		var ours *series
		for _, s := range r.on(set) {
			heads, cells = append(heads, s.who), append(cells, spread(each(s.wall, identity), "%.0f"))
			if strings.HasPrefix(s.who, "fileproc") {
				ours = s
			} else {
				heads, cells = append(heads, "× ours"), append(cells, spread(paired(s.wall, ours.wall, ratio), "%.2f"))
			}
		}
		if i == 0 {
			d.table(heads...)
		}
		d.row(cells...)
	}
	return nil
}

// sides returns both sides of a comparison of the command floor; theirs is nil without a C compiler.
func (r results) sides(set, comparison string) (ours, theirs *series) {
	return r.find(set, comparison+record.Side+"ours"), r.find(set, comparison+record.Side+"theirs")
}

// timeRatio returns the time of ours divided by that of theirs in the same round.
func (r results) timeRatio(set, comparison string) (s measure.Spread, ok bool) {
	ours, theirs := r.sides(set, comparison)
	if ours == nil || theirs == nil {
		return s, false
	}
	return paired(ours.wall, theirs.wall, ratio), true
}

// comparisons returns the names of the command floor's comparisons, in the order of measurement.
func (r results) comparisons() (names []string) {
	for _, s := range r.series {
		if name, ours := strings.CutSuffix(s.who, record.Side+"ours"); ours && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

func (d *document) pairs(r results) error {
	d.table("set", "ours / theirs", "wall", "CPU", "ours, ns/file")
	for _, set := range r.sets() {
		for _, name := range r.comparisons() {
			ours, theirs := r.sides(set, name)
			switch {
			case ours == nil:
				continue // the comparison lists a single directory
			case theirs == nil:
				d.row(set, name, "no C compiler", "", spread(each(ours.wall, identity), "%.0f"))
				continue
			case len(ours.wall) != len(theirs.wall):
				return fmt.Errorf("%s: %s: %d passes of ours, %d of theirs", set, name, len(ours.wall), len(theirs.wall))
			}
			d.row(set, name, spread(paired(ours.wall, theirs.wall, ratio), "%.2f"), spread(paired(ours.cpu, theirs.cpu, ratio), "%.2f"),
				english.Sprintf("%.0f", measure.Median(ours.wall)))
		}
	}
	return nil
}

func (d *document) floor(r results) error {
	d.line("\n## The floor\n\nfileproc in pairs with a C program with one thread per core that makes only the calls: getdents64, openat, read and close, or " +
		"fstatat. Below 1 fileproc is faster.")
	return d.pairs(r)
}

func (d *document) bare(r results) error {
	d.line("\n## What the calls allow\n\nLoops in Go over the same C program, on %s: plain calls, one file or many at a time; and io_uring, which opens and reads "+
		"as many files with one call as the ring is deep. Of fileproc, the loops use only the ring.", r.series[0].data)
	d.table("", "wall", "CPU")
	for _, set := range r.sets() {
		for _, name := range r.comparisons() {
			loop, _, _ := strings.Cut(name, " / ")
			if ours, theirs := r.sides(set, name); theirs != nil {
				d.row(loop, spread(paired(ours.wall, theirs.wall, ratio), "%.2f"), spread(paired(ours.cpu, theirs.cpu, ratio), "%.2f"))
			} else if ours != nil {
				d.row(loop, "no C compiler", "")
			}
		}
	}
	return nil
}

func (d *document) fio(r results) error {
	d.line("\n## fio\n\n[fio](https://fio.readthedocs.io) checks the C program: it opens, reads and closes as many files of 400 bytes of its own, on as many " +
		"threads. It does other work too.")
	return d.pairs(r)
}

// count returns the number of files of a set such as flat_100k.
func count(set string) (float64, error) {
	digits := set[strings.LastIndexByte(set, '_')+1:]
	digits = strings.NewReplacer("k", "000", "m", "000000").Replace(digits)
	return strconv.ParseFloat(digits, 64)
}

func (d *document) sizes(r results) error {
	d.line("\n## Size\n\nOne directory, with whole runs timed: the time of few files is that of a run.")
	d.table("files", "fileproc, ns/file", "ReadDir + ReadFile, ns/file", "× fileproc's", "fastwalk, ns/file", "× fileproc's")
	for _, set := range r.sets() {
		n, err := count(set)
		if err != nil {
			return err
		}
		ours := r.find(set, "fileproc")
		cells := []string{english.Sprintf("%.0f", n), spread(each(ours.wall, identity), "%.0f")}
		for _, who := range []string{"ReadDir + ReadFile", "charlievieth/fastwalk"} {
			s := r.find(set, who)
			if s == nil {
				return fmt.Errorf("%s: %s is missing", set, who)
			}
			cells = append(cells, spread(each(s.wall, identity), "%.0f"), spread(paired(s.wall, ours.wall, ratio), "%.2f"))
		}
		d.row(cells...)
	}
	return nil
}

func (d *document) workers(r results) error {
	d.line("\n## Workers\n\nfileproc with `Options.Workers`, and a hand-written pool with as many goroutines, on %s.", r.series[0].data)
	d.table("workers", "fileproc, files/s", "against 1 worker", "ReadDir + goroutine pool, files/s", "against 1 goroutine")
	set := r.series[0].data
	for n := 1; ; n++ {
		cells := []string{fmt.Sprint(n)}
		for _, who := range []string{"fileproc", "ReadDir + goroutine pool"} {
			s, one := r.find(set, fmt.Sprintf("%s/%d", who, n)), r.find(set, who+"/1")
			if s == nil {
				return nil
			}
			speedUp := "1"
			if s != one {
				speedUp = spread(paired(one.wall, s.wall, ratio), "%.2f")
			}
			cells = append(cells, spread(each(s.wall, filesPerSecond), "%.0f"), speedUp)
		}
		d.row(cells...)
	}
}

func (d *document) caches(cold, warm results) error {
	if len(cold.series)+len(cold.leftOut) == 0 {
		return nil // not measured yet
	}
	d.line("\n## Cold and warm\n\nCold: the page, dentry and inode caches are dropped before each pass, which then waits for the disk. fileproc lists first " +
		"and reads in the order of the disk; a loop needs more workers than there are cores.")
	d.table(warm.series[0].data, "cold, ns/file", "× fileproc's", "warm, ns/file", "× fileproc's")
	for _, w := range warm.series {
		cells := []string{w.who}
		for _, r := range []results{cold, warm} {
			s := r.find(w.data, w.who)
			if s == nil {
				cells = append(cells, "", "")
				continue
			}
			cells = append(cells, spread(each(s.wall, identity), "%.0f"), spread(paired(s.wall, r.series[0].wall, ratio), "%.2f"))
		}
		d.row(cells...)
	}
	d.leftOut(cold)
	return nil
}

func (d *document) ablation(r results) error {
	base := r.series[0]
	d.line("\n## Where the time goes\n\nThe first line is a run on %s with an empty callback that keeps nothing, in ns/file. Each other line changes one thing: "+
		"what it adds.", base.data)
	d.table("", "wall", "CPU")
	d.row(base.who, spread(each(base.wall, identity), "%.0f"), spread(each(base.cpu, identity), "%.0f"))
	for _, s := range r.series {
		if s != base {
			d.row(s.who, spread(paired(s.wall, base.wall, difference), "%+.0f"), spread(paired(s.cpu, base.cpu, difference), "%+.0f"))
		}
	}
	return nil
}
