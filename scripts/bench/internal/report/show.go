package report

import (
	"bytes"
	"cmp"
	"fmt"
	"html"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/fileproc/fileproc/scripts/bench/internal/cold"
	"github.com/fileproc/fileproc/scripts/internal/record"
)

// A target is a row of the table of targets. It shows the comparisons of a part whose names contain who, or the cold case who.
type target struct {
	name, part, who string
	limits          string // "": those of the cold case, or none, which the table shows as "reported"
}

var targets = []target{
	{"whole / C loop: flat 100k, nested 100k, flat 1m, nested 1m", "floor", "whole / ", "wall ≤ 0.85"},
	{"the same without io_uring", "backends", "nouring, ", "wall ≤ 1.00"},
	{"with io_uring / without: 1, 10, 100, 1k, 10k, 100k, 1m files", "uring", "", "wall ≤ 1.02"},
	{"metadata / C loop with fstatat, the same sets", "floor", "stat / ", "wall ≤ 0.95"},
	{"ReadDir / getdents64", "floor", "ReadDir / bare getdents64", "wall ≤ 0.90"},
	{"ReadDir / os.ReadDir", "floor", "ReadDir / os.ReadDir", "wall ≤ 0.35"},
	{"whole / WalkDir + ReadFile", "walkdir", "whole / ", "wall ≤ 0.20, CPU ≤ 0.30"},
	{"1, 2, 3, 5, 10, 100 files / ReadDir + ReadFile", "trees", " / ReadDir + ReadFile", "wall ≤ 1.00, CPU ≤ 1.00"},
	{"cold, flat 100k", "cold", "flat_100k, ext4", ""},
	{"cold, flat 100k / best C loop in listing order", "cold", "flat_100k, the machine's disk", ""},
	{"cold, metadata of flat 100k / C loop", "cold", "metadata of flat_100k, ext4", ""},
	{"incremental run, 1m files, nothing changed / a full run", "again", "the size, nothing changed / a full run", "wall ≤ 0.45"},
	{"incremental run, 1m files, 1 % changed / a full run", "again", "the size, 1 % changed / a full run", "wall ≤ 0.50"},
	{"FUSE, 1 ms an open, 1,000 files", "fuse", "default / Workers 2", "≤ 60 ms"},
	{"allocations a file: 100k files, the first 2 KiB of each", "allocs", "", "≤ 0.002 allocations"},
	{"peak memory, Stream, 1m files, warm", "peak", "Stream, warm", "≤ 16 MiB"},
	{"the same, cold", "peak", "Stream, cold", "≤ 80 MiB"},
	{"cancel, cold, one head of 4 ms, worst", "cold", "cancel, 60 directories of 300 files, ext4, one head, 4ms a seek", ""},
	{"1,000 directories of 1 and of 3 files, and a chain of 1,000 / C loop", "trees", " / C loop", ""},
}

// limit matches the limits in a text such as "wall ≤ 0.85, ≤ 2,500 requests": the largest median of a unit that a target allows.
var limit = regexp.MustCompile(`(?:(\w+) )?≤ ([\d,.]*\d)(?: (\w+))?`)

// targets returns a table with a row for each target. Medians that miss their target are bold.
func (r *runner) targets() string {
	limits := func(t target) string { return cmp.Or(t.limits, cold.Target(t.who)) }
	type column = record.Column[target]
	return record.Table(targets, column{Head: "case", Cell: func(t target) string { return t.name }},
		column{Head: "reached", Cell: func(t target) string {
			pairs := record.Of(r.load(t.part), "").Pairs()
			if t.part == "cold" {
				all := record.Of(r.load(t.part), "")
				pairs = []record.Pair{{Name: t.who, Ours: all.Find(t.who, "fileproc"), Theirs: all.Find(t.who, "usual loop")}}
			}
			var cells []string
			for _, l := range limit.FindAllStringSubmatch(cmp.Or(limits(t), "wall ≤ 1000, CPU ≤ 1000"), -1) {
				unit := cmp.Or(l[1], l[3])
				most, _ := strconv.ParseFloat(strings.ReplaceAll(l[2], ",", ""), 64)
				var figures []string
				for _, p := range pairs {
					if s, ok := reached(p, unit); ok && strings.Contains(p.Name, t.who) {
						figure := record.English.Sprintf("%v", math.Round(s.Median*10000)/10000)
						if s.Min != s.Max {
							figure = s.Format("%.2f")
						}
						if s.Median > most {
							figure = "**" + figure + "**"
						}
						figures = append(figures, figure)
					}
				}
				if figures != nil {
					cells = append(cells, unit+" "+strings.Join(figures, ", "))
				}
			}
			return strings.Join(cells, "; ")
		}}, column{Head: "target", Cell: func(t target) string { return cmp.Or(limits(t), "reported") }})
}

// reached returns a pair's ratio of times, or the median of another unit.
func reached(p record.Pair, unit string) (record.Spread, bool) {
	switch unit {
	case "wall":
		if ratio, ok := p.Ours.Over(p.Theirs, record.Wall); ok {
			return ratio, ok
		}
		return p.Ours.Over(p.Theirs, "s")
	case "CPU":
		return p.Ours.Over(p.Theirs, record.CPU)
	}
	v := p.Ours.Median(unit)
	if unit == "ms" && v == 0 { // 1,000 files on FUSE, so the nanoseconds of a file are thousandths of all milliseconds
		v = p.Ours.Median(record.Wall) / 1000
	}
	return record.Spread{Median: v, Min: v, Max: v}, v != 0
}

// readme returns a table of wall and processor times of the other sides, relative to fileproc's.
func readme(_ *runner, r record.Results) string {
	type column = record.Column[string]
	columns := []column{{Head: "multiples of fileproc's time", Cell: func(who string) string { return who }}}
	for _, set := range r.Sets() {
		times := func(unit string) func(string) string {
			return func(who string) string {
				ratio, _ := r.Find(set, who).Over(r.Find(set, r.Sides()[0]), unit)
				return fmt.Sprintf("%.1f", ratio.Median)
			}
		}
		head, count, _ := strings.Cut(set, "_")
		if _, size, sized := strings.Cut(count, "x"); sized {
			head = size
		}
		columns = append(columns, column{Head: "`" + head + "`: wall", Cell: times(record.Wall)}, column{Head: "processor", Cell: times(record.CPU)})
	}
	return record.Table(r.Sides()[1:], columns...)
}

// A bar of a picture has a name and a number in some format.
type bar struct {
	name, format string
	number       float64
}

// peerBars returns the bars of the peers' picture, with the fastest side on top.
func peerBars(r record.Results) (title string, bars []bar) {
	perSecond := func(who string) float64 { return record.PerSecond(r.Find("flat_100k", who).Median(record.Wall)) }
	sides := slices.SortedFunc(slices.Values(r.Sides()), func(a, b string) int { return cmp.Compare(perSecond(b), perSecond(a)) })
	for _, who := range sides {
		bars = append(bars, bar{who, "%.0f", perSecond(who) / 1000})
	}
	return "Thousands of small files read in a second, in one directory (longer is better)", bars
}

func coldBars(r record.Results) (title string, bars []bar) {
	for _, set := range r.Sets() {
		for _, unit := range []string{"requests", "s"} {
			if ratio, ok := r.Find(set, "fileproc").Over(r.Find(set, "usual loop"), unit); ok {
				name := set + ": " + cmp.Or(map[string]string{"s": "time"}[unit], unit)
				bars = append(bars, bar{name, "%.1f %%", 100 * ratio.Median})
			}
		}
	}
	return "Cold trees: requests to the disk and time, in percent of the usual loop's (shorter is better)", bars
}

// svg returns a picture of horizontal bars.
func svg(title string, bars []bar) []byte {
	const row, from, width = 22, 450, 280
	longest := slices.MaxFunc(bars, func(a, b bar) int { return cmp.Compare(a.number, b.number) }).number
	var out bytes.Buffer
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" width="800" height="%d" font-family="sans-serif" font-size="12">
<rect width="100%%" height="100%%" fill="#fff"/>
<text x="400" y="20" text-anchor="middle" font-size="15">%s</text>
`, row*len(bars)+40, title)
	for i, b := range bars {
		y, length := 32+row*i, b.number/longest*width
		fmt.Fprintf(&out, `<text x="%d" y="%d" text-anchor="end">%s</text><rect x="%d" y="%d" width="%.0f" height="%d" fill="#0072b2"/>`,
			from-8, y+14, html.EscapeString(b.name), from, y, length, row-4)
		fmt.Fprintf(&out, "<text x=\"%.0f\" y=\"%d\">"+b.format+"</text>\n", from+length+6, y+14, b.number)
	}
	return append(out.Bytes(), "</svg>\n"...)
}
