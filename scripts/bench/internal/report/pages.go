package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/fileproc/fileproc/scripts/bench/internal/caches"
	"github.com/fileproc/fileproc/scripts/bench/internal/cold"
	"github.com/fileproc/fileproc/scripts/internal/fail"
	"github.com/fileproc/fileproc/scripts/internal/measure"
	"github.com/fileproc/fileproc/scripts/internal/record"
)

// A block is what a page shows of the part from. With a picture, img/NAME beside the page is drawn too, and the block shows it if
// it has an alternative text.
type block struct {
	name, page, from string
	text             func(r *runner, ctx context.Context) string
	pictures         []picture
}

type picture struct {
	name, alt string
	bars      func(record.Results) bars
}

const benchmarks, performance, cachePage = "docs/dev/benchmarks.md", "docs/dev/performance.md", "docs/cache.md"

var blocks = []block{
	{"peers", benchmarks, "peers", tableOf("peers"),
		[]picture{{"peers.svg", "Files per second of fileproc and its peers, with ranges", peerBars}, {"peers.png", "", peerBars}}},
	{"readme", "README.md", "peers", (*runner).readme, nil},
	{"programs", benchmarks, "programs", tableOf("programs"), nil},
	{"floor", benchmarks, "floor", tableOf("floor"),
		[]picture{{"floor.svg", "Time of fileproc over that of the bare system calls in C, with ranges and a line at 1", floorBars}}},
	{"backends", benchmarks, "backends", tableOf("backends"), nil},
	{"targets", performance, "floor", func(r *runner, _ context.Context) string { return r.targets() }, nil},
	{"cold", performance, "cold", func(r *runner, _ context.Context) string { return cold.Table(r.results("cold")) },
		[]picture{{"../../img/cold.png", "", coldBars}}},
	{"cache", cachePage, "cache", cacheTable("cases"),
		[]picture{{"cache.png", "", cacheBars(false)}, {"cache-writes.png", "", cacheBars(true)}}},
	{"cache-eviction", cachePage, "cache", cacheTable("eviction"), nil},
	{"cache-policies", cachePage, "cache", cacheTable("policies"), nil},
}

func tableOf(part string) func(*runner, context.Context) string {
	return func(r *runner, _ context.Context) string { return r.results(part).String() }
}

func cacheTable(name string) func(*runner, context.Context) string {
	return func(r *runner, _ context.Context) string {
		return caches.Tables[name](record.Of(r.load("cache"), name))
	}
}

func stampOf(records []record.Record) string {
	commits := map[string][]string{} // by where and when they were measured
	for _, r := range records {
		if of := ", " + r.Date + ", " + r.Machine; !slices.Contains(commits[of], r.Commit) {
			commits[of] = append(commits[of], r.Commit)
		}
	}
	var all []string
	for of, list := range commits {
		all = append(all, strings.Join(list, ", ")+of)
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

// draw writes a block into its page. With --quick the page is a copy.
func (r *runner) draw(ctx context.Context, b block) {
	page := filepath.Join(r.out, b.page)
	old, err := os.ReadFile(page)
	if errors.Is(err, fs.ErrNotExist) && r.quick {
		old, err = os.ReadFile(filepath.Join(r.root, b.page))
	}
	img := filepath.Join(filepath.Dir(page), "img")
	fail.On(errors.Join(err, os.MkdirAll(img, 0o755), os.MkdirAll(filepath.Join(r.out, "docs/img"), 0o755)))
	var stamp string
	if b.name == "targets" {
		var measured []record.Record
		for _, t := range targets {
			measured = append(measured, r.load(t.table)...)
		}
		stamp = stampOf(measured)
	} else {
		stamp = stampOf(r.load(b.from))
	}
	text := b.text(r, ctx)
	for _, p := range b.pictures {
		drawn := p.bars(record.Of(r.load(b.from), cmp.Or(map[string]string{"cache": "cases"}[b.from], b.from)))
		if drawn.names == nil {
			continue // such as without a C compiler
		}
		drawn.caption += "\n" + stamp
		fail.On(drawn.save(filepath.Join(img, p.name)))
		if p.alt != "" {
			text += fmt.Sprintf("\n![%s](img/%s)\n", p.alt, p.name)
		}
	}
	filled := fail.Must(fill(string(old), b.name, text+"\n"+stamp+"\n"))
	fail.On(os.WriteFile(page, []byte(filled), 0o644))
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

// readme has wall and processor time side by side, of the loops that people write by hand.
func (r *runner) readme(context.Context) string {
	res := r.results("peers")
	type column = record.Column[string]
	columns := []column{{Head: "times fileproc's", Cell: func(who string) string { return who }}}
	for _, set := range res.Sets() {
		times := func(unit string) func(string) string {
			return func(who string) string {
				ratio, _ := res.Find(set, who).Over(res.Find(set, res.Sides()[0]), unit)
				return fmt.Sprintf("%.1f", ratio.Median)
			}
		}
		layout, _, _ := strings.Cut(set, "_")
		columns = append(columns, column{Head: "`" + layout + "`: wall", Cell: times(record.Wall)}, column{Head: "processor", Cell: times(record.CPU)})
	}
	return record.Table(res.Sides()[1:], columns...)
}

// caption describes a measurement to a reader who sees nothing but the plot.
func caption(r record.Results, about string) string {
	fewest, most := math.MaxInt, 0
	for _, s := range r {
		n := len(s.Values[record.Wall])
		fewest, most = min(fewest, n), max(most, n)
	}
	rounds := fmt.Sprint(most)
	if fewest < most {
		rounds = fmt.Sprintf("%d to %d", fewest, most)
	}
	return about + "\nBars and numbers: medians; whiskers: minimum to maximum of " + rounds + " interleaved rounds."
}

const tree = "Files of about 400 bytes, caches warm. flat: one directory; nested1: one for each month."

// peerBars has the fastest side on top.
func peerBars(r record.Results) bars {
	sides := r.Sides()
	slices.SortStableFunc(sides, func(a, b string) int {
		return cmp.Compare(r.Find(r.Sets()[0], a).Median(record.Wall), r.Find(r.Sets()[0], b).Median(record.Wall))
	})
	return bars{title: "Whole files read per second (longer is better)", unit: "thousand files per second", label: "%.0f",
		names: sides, kinds: r.Sets(), caption: caption(r, "All but fileproc read with os.ReadFile. "+tree),
		value: func(who, set string) (measure.Spread, bool) {
			return spread(r.Find(set, who), record.Wall, func(ns float64) float64 { return record.PerSecond(ns) / 1000 })
		}}
}

func spread(s *record.Series, unit string, f func(float64) float64) (measure.Spread, bool) {
	if s == nil {
		return measure.Spread{}, false
	}
	return s.Spread(unit, f), true
}

func floorBars(r record.Results) bars {
	b := bars{title: "Time of fileproc relative to the bare system calls in C (shorter is better)", label: "%.2f",
		unit: "wall time / wall time of the C program", one: "1: as fast as the C program", kinds: r.Sets(), caption: caption(r,
			"whole: each file is read; prefix: its first 2,048 bytes; stat: its size and time; ReadDir: names alone.\n"+
				"The C program makes plain system calls and does nothing else, with one thread per core.\n"+tree),
		value: func(name, set string) (measure.Spread, bool) {
			return r.Find(set, name+record.Ours).Over(r.Find(set, name+record.Theirs), record.Wall)
		}}
	for _, p := range r.Pairs() {
		notC := strings.HasSuffix(p.Name, "os.ReadDir")
		if p.Theirs != nil && !notC && !slices.Contains(b.names, p.Name) {
			b.names = append(b.names, p.Name)
		}
	}
	return b
}

func coldBars(r record.Results) bars {
	return bars{title: "Cold trees: requests to the disk, and time (shorter is better)", unit: "percent of the usual loop's",
		names: slices.DeleteFunc(r.Sets(), func(set string) bool { return len(r.Find(set, "fileproc").Times(r.Find(set, "usual loop"), "s")) == 0 }),
		kinds: []string{"requests", "time"}, label: "%.1f",
		value: func(name, kind string) (measure.Spread, bool) {
			ratio, ok := r.Find(name, "fileproc").Over(r.Find(name, "usual loop"), cmp.Or(map[string]string{"time": "s"}[kind], kind))
			return measure.Spread{Median: 100 * ratio.Median, Min: 100 * ratio.Min, Max: 100 * ratio.Max}, ok
		},
		caption: "The usual loop lists and then opens, reads and closes each file, with 32 threads.\n" +
			"Medians, and whiskers from minimum to maximum; where no disk is named, an emulated one that only counts."}
}

func cacheBars(writes bool) func(record.Results) bars {
	return func(r record.Results) bars {
		title := map[bool]string{false: "Time to open, read and close a file (shorter is better)", true: "Time to write a file, or to write and read it (shorter is better)"}
		return bars{title: title[writes], unit: "ns", label: "%.0f", kinds: r.Sides(),
			names: slices.DeleteFunc(r.Sets(), func(set string) bool { return strings.HasPrefix(set, "Write") != writes }),
			value: func(set, who string) (measure.Spread, bool) {
				return spread(r.Find(set, who), record.Wall, func(ns float64) float64 { return ns })
			},
			caption: caption(r, "One goroutine unless it says otherwise; the source is in memory. checked: each hit is compared with the file.")}
	}
}
