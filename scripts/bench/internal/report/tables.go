package report

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fileproc/fileproc/scripts/internal/fail"
	"github.com/fileproc/fileproc/scripts/internal/measure"
	"github.com/fileproc/fileproc/scripts/internal/record"
)

// A document is what the command writes into a block of a page.
type document struct {
	strings.Builder
	dir string // of the page, with the pictures in img
}

func (d *document) line(format string, args ...any) { fmt.Fprintf(d, format+"\n", args...) }

func (d *document) row(cells ...string) { d.line("| %s |", strings.Join(cells, " | ")) }

func (d *document) table(heads ...string) {
	d.row(heads...)
	d.line("|%s", strings.Repeat("---|", len(heads)))
}

// picture links to img/name, which draw makes.
func (d *document) picture(name, alt string, draw func(file string) error) {
	file := filepath.Join(d.dir, "img", name)
	fail.On(os.MkdirAll(filepath.Dir(file), 0o755))
	if err := draw(file); errors.Is(err, errNothing) {
		os.Remove(file)
	} else {
		fail.On(err)
		d.line("\n![%s](img/%s)", alt, name)
	}
}

// errNothing is the error of draw if there is nothing to draw.
var errNothing = errors.New("nothing to draw")

// leftOut says once why there is no measurement.
func (d *document) leftOut(r results) {
	seen := map[string]bool{}
	for _, rec := range r.leftOut {
		if key := rec.Data + rec.Who; !seen[key] {
			seen[key] = true
			d.line("\n%s", strings.TrimPrefix(strings.TrimSpace(rec.Data+" "+rec.Who)+": "+rec.Text+".", ": "))
		}
	}
}

// times returns a over b, or 1 if they are the same.
func times(s, base *series) (wall, cpu string) {
	if s == base {
		return "1", "1"
	}
	return spread(paired(s.wall, base.wall, ratio), "%.2f"), spread(paired(s.cpu, base.cpu, ratio), "%.2f")
}

// bySide has a row for each side, with the time relative to the first one's.
func (d *document) bySide(r results) {
	heads := []string{"", "version"}
	for _, set := range r.sets() {
		heads = append(heads, set+", files/s", "time", "CPU")
	}
	d.table(heads...)
	for _, side := range r.on(r.sets()[0]) {
		cells := []string{side.who, side.version}
		for _, set := range r.sets() {
			if s := r.find(set, side.who); s != nil {
				wall, cpu := times(s, r.on(set)[0])
				cells = append(cells, spread(each(s.wall, filesPerSecond), "%.0f"), wall, cpu)
			} else {
				cells = append(cells, "", "", "")
			}
		}
		d.row(cells...)
	}
}

// bySet has a row for each set, with ns/file of each side, and relative to the side of fileproc before it, or to the first one.
func (d *document) bySet(r results) {
	for i, set := range r.sets() {
		heads, cells := []string{"set"}, []string{set}
		for k, side := range r.on(r.sets()[0]) {
			s := r.find(set, side.who)
			fail.If(s == nil, "%s: %s was not measured", set, side.who)
			heads, cells = append(heads, s.who), append(cells, spread(each(s.wall, identity), "%.0f"))
			if base := r.baseOf(set, k); base != s {
				wall, _ := times(s, base)
				heads, cells = append(heads, "×"), append(cells, wall)
			}
		}
		if i == 0 {
			d.table(heads...)
		}
		d.row(cells...)
	}
}

func (r results) baseOf(set string, k int) *series {
	list := r.on(set)
	for _, s := range slices.Backward(list[:k+1]) {
		if strings.HasPrefix(s.who, "fileproc") {
			return s
		}
	}
	return list[0]
}

// pairs has a row for each comparison of the command floor.
func (d *document) pairs(r results) {
	d.table("set", "ours / theirs", "wall", "CPU", "ours, ns/file")
	for _, set := range r.sets() {
		for _, name := range r.comparisons() {
			ours, theirs := r.find(set, name+record.Side+"ours"), r.find(set, name+record.Side+"theirs")
			switch {
			case ours == nil:
				continue // the comparison lists a single directory
			case theirs == nil:
				d.row(set, name, "no C compiler", "", spread(each(ours.wall, identity), "%.0f"))
				continue
			}
			fail.If(len(ours.wall) != len(theirs.wall), "%s: %s: %d passes of ours, %d of theirs", set, name, len(ours.wall), len(theirs.wall))
			wall, cpu := times(ours, theirs)
			d.row(set, name, wall, cpu, measure.English.Sprintf("%.0f", measure.Median(ours.wall)))
		}
	}
}

// ablation has ns/file of the first side, and what the others add.
func (d *document) ablation(r results) {
	base := r.series[0]
	d.table("", "wall", "CPU")
	d.row(base.who, spread(each(base.wall, identity), "%.0f"), spread(each(base.cpu, identity), "%.0f"))
	for _, s := range r.series[1:] {
		d.row(s.who, spread(paired(s.wall, base.wall, difference), "%+.0f"), spread(paired(s.cpu, base.cpu, difference), "%+.0f"))
	}
}

// readme has wall and processor time side by side, of the loops that people write by hand.
func (d *document) readme(r results) {
	heads := []string{"times fileproc's"}
	for _, set := range r.sets() {
		layout, _, _ := strings.Cut(set, "_")
		heads = append(heads, "`"+layout+"`: wall", "processor")
	}
	d.table(heads...)
	for _, who := range []string{"WalkDir + ReadFile", "ReadDir + goroutine pool", "charlievieth/fastwalk"} {
		cells := []string{who}
		for _, set := range r.sets() {
			s, ours := r.find(set, who), r.on(set)[0]
			fail.If(s == nil, "%s: %s was not measured", set, who)
			cells = append(cells, fmt.Sprintf("%.1f", paired(s.wall, ours.wall, ratio).Median), fmt.Sprintf("%.1f", paired(s.cpu, ours.cpu, ratio).Median))
		}
		d.row(cells...)
	}
}

// tableOf returns the cells of the first table of text whose first row has all of heads; rows of dashes are left out.
func tableOf(text string, heads ...string) (rows [][]string) {
	for line := range strings.Lines(text + "\n") {
		line, isRow := strings.CutPrefix(strings.TrimSpace(line), "|")
		if !isRow && rows != nil {
			break
		}
		cells := strings.Split(strings.TrimSuffix(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		missing := slices.ContainsFunc(heads, func(h string) bool { return !slices.Contains(cells, h) })
		if isRow && (rows != nil || !missing) && strings.Trim(line, "|-: ") != "" {
			rows = append(rows, cells)
		}
	}
	return rows
}
