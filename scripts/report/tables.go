package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

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
	for _, section := range []struct {
		table string
		text  func(*document, results) error
		plot  func(name string, r results) error
		alt   string
	}{
		{"peers", (*document).peers, plotPeers, "Files per second of fileproc and its peers"},
		{"programs", (*document).programs, nil, ""},
		{"backends", (*document).backends, nil, ""},
		{"floor", (*document).floor, nil, ""},
		{"sizes", (*document).sizes, plotSizes, "Time per file against the number of files"},
		{"workers", (*document).workers, plotWorkers, "Files per second against the number of workers"},
		{"warm", func(d *document, warm results) error { return d.caches(of(records, "cold"), warm) }, nil, ""},
		{"ablation", (*document).ablation, nil, ""},
	} {
		r := of(records, section.table)
		if len(r.series)+len(r.leftOut) == 0 {
			continue // not measured yet
		}
		if err := section.text(&d, r); err != nil {
			return fmt.Errorf("%s: %w", section.table, err)
		}
		if section.plot != nil {
			if err := section.plot(filepath.Join(out, "img", section.table), r); err != nil {
				return fmt.Errorf("%s: %w", section.table, err)
			}
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
	d.line("|%s", strings.Repeat(" --- |", len(heads)))
}

func (d *document) leftOut(r results) {
	seen := map[string]bool{}
	for _, rec := range r.leftOut {
		if rec.Table != "floor" && !seen[rec.Data+rec.Who] {
			seen[rec.Data+rec.Who] = true
			d.line("\n%s", strings.TrimSpace(fmt.Sprintf("%s %s: %s.", rec.Data, rec.Who, rec.Text)))
		}
	}
}

func (d *document) head(records []record.Record) {
	d.line("# Benchmarks\n\nMade by `scripts/bench_report.sh`; do not edit by hand.")
	d.table("", "")
	for _, r := range of(records, "machine").leftOut {
		d.row(r.Who, r.Text)
	}
	var widths []float64
	for _, table := range tableNames {
		for _, s := range of(records, table).series {
			m := measure.Summarize(s.wall)
			widths = append(widths, (m.Max/m.Min-1)*100)
		}
	}
	if len(widths) > 0 {
		w := measure.Summarize(widths)
		d.line("\nHow noisy: the slowest round of a series took %.0f %% longer than its fastest one in the median of all %d series, and %.0f %% longer in the worst. "+
			"So figures are medians over the rounds with the minimum and maximum in brackets, sides are measured in turn, and ratios are taken within a round.", w.Median, len(widths), w.Max)
	}
	d.line("\nThe files are tickets of about 400 bytes, in one directory (`flat`) or in one for each month (`nested1`). " +
		"Caches are warm unless it says otherwise. Every side is checked to see all files and all bytes.")
}

func (d *document) peers(r results) error {
	d.line("\n## Peers\n\nEach reads every file whole: the peers with os.ReadFile, where they call back, as their users do.")
	for _, set := range r.sets() {
		list := r.on(set)
		ours := list[0]
		d.table(set, "version", "files/s", "time × fileproc's", "CPU × fileproc's")
		for _, s := range list {
			version, wall, cpu := s.version, "1", "1"
			if s == ours {
				version = "this one"
			} else {
				wall, cpu = spread(paired(s.wall, ours.wall, ratio), "%.2f"), spread(paired(s.cpu, ours.cpu, ratio), "%.2f")
			}
			d.row(s.who, version, spread(each(s.wall, filesPerSecond), "%.0f"), wall, cpu)
		}
	}
	return nil
}

func (d *document) programs(r results) error {
	d.line("\n## Whole programs\n\nCounting the lines with a fixed string in every file, from start to exit. `scripts/peers/count` is 50 lines " +
		"around fileproc. All find the same lines in the same files; grep also prints the files without a match.")
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

// What the reference report says of its backends, in per cent of more time than linux.
var reference = map[string][2]string{
	"flat_5k":      {"+77.6", "+164"},
	"nested1_5k":   {"+78.5", "+176"},
	"flat_100k":    {"+23.7", "+84.6"},
	"nested1_100k": {"+17.2", "+85.4"},
	"flat_1m":      {"+9.3", "+78.7"},
	"nested1_1m":   {"+8.6", "+80.9"},
}

func (d *document) backends(r results) error {
	d.line("\n## Backends\n\nOne program built with no tag, with `fileproc_unix` and with `fileproc_generic`, run in turn. Columns marked * are " +
		"the reference report's figures, from another machine and another implementation.")
	d.table("set", "linux, ns/file", "unix, ns/file", "against linux, %", "*, %", "generic, ns/file", "against linux, %", "*, %")
	for _, set := range r.sets() {
		base := r.find(set, "linux")
		if base == nil {
			return fmt.Errorf("%s: not measured with the linux backend", set)
		}
		cells := []string{set, spread(each(base.wall, identity), "%.0f")}
		for i, name := range []string{"unix", "generic"} {
			s, ref := r.find(set, name), reference[set][i]
			if s == nil {
				return fmt.Errorf("%s: not measured with the %s backend", set, name)
			}
			cells = append(cells, spread(each(s.wall, identity), "%.0f"), spread(paired(s.wall, base.wall, percentMore), "%+.0f"), ref)
		}
		d.row(cells...)
	}
	return nil
}

// floorLine is a line of the command floor: the comparison, files, ratios of wall and CPU time, and ns per file.
var floorLine = regexp.MustCompile(`^(\S.*?) +\d+ +([\d.]+) \(([\d.]+) to ([\d.]+)\) +([\d.]+) \(([\d.]+) to ([\d.]+)\) +(\d+) ns +(\d+) ns$`)

func (d *document) floor(r results) error {
	if r.leftOut[0].Data == "" {
		d.line("\n## The floor\n\nLeft out: %s.", r.leftOut[0].Text)
		return nil
	}
	d.line("\n## The floor\n\nHow far from the bare system calls: fileproc against a C program with one thread per core that does nothing but " +
		"getdents64, openat, read and close, or fstatat, in pairs. Below 1 fileproc is faster.")
	d.table("set", "ours / theirs", "wall", "CPU", "ours, ns/file", "theirs, ns/file", "difference, ns/file")
	understood := 0
	for _, rec := range r.leftOut {
		m := floorLine.FindStringSubmatch(rec.Text)
		if m == nil {
			continue // a heading
		}
		understood++
		ours, err1 := strconv.Atoi(m[8])
		theirs, err2 := strconv.Atoi(m[9])
		if err1 != nil || err2 != nil {
			return fmt.Errorf("unexpected line of floor: %q", rec.Text)
		}
		d.row(rec.Data, m[1], fmt.Sprintf("%s (%s to %s)", m[2], m[3], m[4]), fmt.Sprintf("%s (%s to %s)", m[5], m[6], m[7]),
			m[8], m[9], strings.ReplaceAll(fmt.Sprintf("%+d", ours-theirs), "-", "−"))
	}
	if understood == 0 {
		return fmt.Errorf("no line of the command floor is understood; the first is %q", r.leftOut[0].Text)
	}
	return nil
}

// count is the number of files of a set such as flat_100k.
func count(set string) (float64, error) {
	digits := set[strings.LastIndexByte(set, '_')+1:]
	digits = strings.NewReplacer("k", "000", "m", "000000").Replace(digits)
	return strconv.ParseFloat(digits, 64)
}

func (d *document) sizes(r results) error {
	d.line("\n## Size\n\nOne directory with 1 file and more. Small ones are read many times in a pass, so what is measured includes what each call costs.")
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
	d.line("\n## Workers\n\n`Options.Workers`, and as many goroutines of the hand-written pool, on %s.", r.series[0].data)
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
				speedUp = spread(paired(one.wall, s.wall, ratio), "%.2f") + " ×"
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
	d.line("\n## Cold and warm\n\nCold: page, dentry and inode caches dropped before each pass, so that it waits for the disk. What reads a disk wants " +
		"more workers than there are cores.")
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
	d.line("\n## Where the time goes\n\nOne thing changed at a time against the first line, on %s. What is below zero is saved.", base.data)
	d.table("", "wall, ns/file", "against the first, ns/file", "CPU, ns/file", "against the first, ns/file")
	for _, s := range r.series {
		wall, cpu := "", ""
		if s != base {
			wall, cpu = spread(paired(s.wall, base.wall, difference), "%+.0f"), spread(paired(s.cpu, base.cpu, difference), "%+.0f")
		}
		d.row(s.who, spread(each(s.wall, identity), "%.0f"), wall, spread(each(s.cpu, identity), "%.0f"), cpu)
	}
	return nil
}
