package report

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/fileproc/fileproc/scripts/internal/fail"
	"github.com/fileproc/fileproc/scripts/internal/figure"
	"github.com/fileproc/fileproc/scripts/internal/measure"
	"github.com/fileproc/fileproc/scripts/internal/record"
)

// A block is what a page shows of the measurements in the file from: a table and, beside the page, the picture img/NAME.svg.
type block struct {
	name, page, from string
	sides            func(*document, results)                          // draws records
	text             func(*runner, context.Context, *document, string) // in place of sides: draws what a command has printed
}

const benchmarks, performance, cachePage = "docs/dev/benchmarks.md", "docs/dev/performance.md", "docs/cache.md"

var blocks = []block{
	{"peers", benchmarks, "peers", (*document).bySide, nil},
	{"readme", "README.md", "peers", (*document).readme, nil},
	{"programs", benchmarks, "programs", (*document).bySide, nil},
	{"backends", benchmarks, "backends", (*document).bySet, nil},
	{"readdir", benchmarks, "readdir", (*document).bySet, nil},
	{"floor", benchmarks, "floor", (*document).pairs, nil},
	{"bare", benchmarks, "bare", (*document).pairs, nil},
	{"fio", benchmarks, "fio", (*document).pairs, nil},
	{"sizes", benchmarks, "sizes", (*document).bySet, nil},
	{"workers", benchmarks, "workers", (*document).bySide, nil},
	{"ablation", benchmarks, "ablation", (*document).ablation, nil},
	{"targets", performance, "floor", nil, (*runner).drawTargets},
	{"cold", performance, "cold", nil, (*runner).drawCold},
	{"cache", cachePage, "cache", nil, drawTable("cachefs / fileproc")},
	{"cache-eviction", cachePage, "cache", nil, drawTable("entries")},
	{"cache-policies", cachePage, "cache", nil, drawTable("hits, %")},
	{"load", "docs/dev/reliability.md", "load", nil, (*runner).drawLoad},
}

// stampOf says what the records were measured with and on.
func stampOf(records []record.Record) string {
	var all []string
	for _, r := range records {
		all = append(all, r.Commit+", "+r.Date+", "+r.Machine)
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), "; ")
}

// draw writes a block into its page. With --quick the page is a copy.
func (r *runner) draw(ctx context.Context, b block) {
	page := filepath.Join(r.out, b.page)
	old, err := os.ReadFile(page)
	if errors.Is(err, fs.ErrNotExist) && r.quick {
		old, err = os.ReadFile(filepath.Join(r.root, b.page))
	}
	fail.On(errors.Join(err, os.MkdirAll(filepath.Join(filepath.Dir(page), "img"), 0o755)))
	raw := string(fail.Must(os.ReadFile(r.file(b.from))))
	d := &document{dir: filepath.Dir(page)}
	stamp, _, _ := strings.Cut(raw, "\n")
	if b.sides != nil || b.name == "targets" {
		stamp = stampOf(r.load(b.from))
	}
	if b.sides != nil {
		d.records(b, resultsOf(r.load(b.from), b.from))
	} else {
		b.text(r, ctx, d, raw)
	}
	text := fail.Must(fill(string(old), b.name, d.String()+"\n"+stamp+"\n"))
	fail.On(os.WriteFile(page, []byte(text), 0o644))
}

// fill replaces what a page has between the two lines of a block.
func fill(page, name, text string) (string, error) {
	begin := regexp.QuoteMeta("<!-- report: " + name + " -->\n")
	block := regexp.MustCompile(`(?s)(\n` + begin + `).*?(\n<!-- end -->\n)`)
	if len(block.FindAllString(page, 2)) != 1 {
		return "", fmt.Errorf("the page has no block %s, or two", name)
	}
	return block.ReplaceAllStringFunc(page, func(old string) string {
		parts := block.FindStringSubmatch(old)
		return parts[1] + "\n" + strings.TrimSpace(text) + "\n" + parts[2]
	}), nil
}

// records draws a block of records. What could not be measured is named below it.
func (d *document) records(b block, r results) {
	if p, ok := pictures[b.name]; len(r.series) > 0 {
		b.sides(d, r)
		if ok {
			d.picture(b.name+".svg", p.alt, func(file string) error { return p.plot(r, file) })
		}
		if b.name == "peers" { // README.md shows it, where a picture must not depend on the reader's fonts
			fail.On(p.plot(r, filepath.Join(d.dir, "img", "peers.png")))
		}
	}
	d.leftOut(r)
}

func (r *runner) drawLoad(ctx context.Context, d *document, _ string) {
	columns := []string{"operation", "through", "count", "ops/s", "med", "p(95)", "p(99)"}
	d.table(columns...)
	var ratios []string
	below := &document{dir: d.dir}
	for _, l := range loads {
		var text string
		below.picture(l.name+".svg", l.alt, func(file string) error {
			text = output(ctx, "./bench_load.sh", "-from", filepath.Join(r.raw, l.name+".json"), "-plot", file)
			return nil
		})
		rows, all := tableOf(text, columns...), tableOf(text, "VUs", "p(95)")
		for _, row := range all {
			if row[1] == "all" {
				ratios = append(ratios, l.store+", "+row[0]+" "+row[slices.Index(all[0], "p(95)")])
			}
		}
		for _, row := range rows[min(1, len(rows)):] {
			var cells []string
			for _, c := range columns {
				cells = append(cells, row[slices.Index(rows[0], c)])
			}
			if cells[0] == "read" || cells[0] == "list" {
				cells[0] = l.store + ", " + cells[0]
				d.row(cells...)
			}
		}
	}
	d.line("%s\np(95) against the other side: %s.", below, strings.Join(ratios, "; "))
}

// drawTable copies the table that has these heads.
func drawTable(heads ...string) func(*runner, context.Context, *document, string) {
	return func(_ *runner, _ context.Context, d *document, raw string) {
		rows := tableOf(raw, heads...)
		fail.If(len(rows) < 2, "no table with the heads %v was printed", heads)
		d.table(rows[0]...)
		for _, row := range rows[1:] {
			d.row(row...)
		}
	}
}

// A coldCase is a row of the table that scripts/bench_cold.sh prints: requests and seconds of fileproc, fileproc's time relative to
// that of the usual loop, and the loop's requests.
type coldCase struct {
	name                            string
	requests, seconds, ratio, usual float64
}

// coldCases returns those with figures.
func coldCases(text string) (cases []coldCase) {
	for _, row := range tableOf(text, "fileproc: requests") {
		c := coldCase{name: row[0]}
		figures := strings.ReplaceAll(strings.Join(row[1:min(4, len(row))], " "), ",", "")
		if _, err := fmt.Sscanf(figures, "%f %f (%f) %f", &c.requests, &c.seconds, &c.ratio, &c.usual); err == nil {
			cases = append(cases, c)
		}
	}
	return cases
}

// drawCold also draws docs/img/cold.png, which README.md shows.
func (r *runner) drawCold(ctx context.Context, d *document, raw string) {
	var names []string
	measured := map[string]coldCase{}
	for _, c := range coldCases(raw) {
		names, measured[c.name] = append(names, c.name), c
	}
	fail.If(names == nil, "scripts/bench_cold.sh has printed no figures")
	drawTable("fileproc: requests")(r, ctx, d, raw)
	fail.On(figure.Bars{
		Title: "Cold trees: requests to the disk, and time (shorter is better)", Unit: "percent of the usual loop's", Names: names,
		Kinds: []string{"requests", "time"}, Label: "%.1f",
		Value: func(name, kind string) (measure.Spread, bool) {
			c := measured[name]
			v := 100 * c.ratio
			if kind == "requests" {
				v = 100 * c.requests / c.usual
			}
			return measure.Spread{Median: v, Min: v, Max: v}, true
		},
		Caption: "The usual loop lists and then opens, reads and closes each file, with 32 threads.\n" +
			"Medians; where no disk is named, an emulated one that only counts.\n" + strings.SplitN(raw, "\n", 2)[0],
	}.Save(filepath.Join(r.out, "docs/img/cold.png")))
}

func (r *runner) drawTargets(_ context.Context, d *document, _ string) { d.targets(r) }
