// Package report makes the measurements that the pages show, and writes them between the lines <!-- report: NAME --> and
// <!-- end --> of a page, and into README.md's pictures. scripts/bench_report.sh runs it.
package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fileproc/fileproc/scripts/bench/internal/caches"
	"github.com/fileproc/fileproc/scripts/bench/internal/cold"
	"github.com/fileproc/fileproc/scripts/internal/commands"
	"github.com/fileproc/fileproc/scripts/internal/fail"
	"github.com/fileproc/fileproc/scripts/internal/host"
	"github.com/fileproc/fileproc/scripts/internal/record"
	"github.com/fileproc/fileproc/scripts/internal/tickets"
)

const usage = `scripts/bench_report.sh [PATTERN]

Measures what the pages show and writes it into them: all by default, or what has PATTERN, a regular expression, in its part, set,
build tag and command of bench. With none, it writes what was measured before, which is in .data/report, as text for benchstat.
What cannot be measured stays as it was. After an interrupt, the pages are written.

Needs Linux and Go, and root for cold trees. It uses a C compiler, ripgrep and grep if they are installed, and sets of a million
files if they were made.

`

// A measurement is a call of bench, built with a tag of fileproc unless tag is "". A page shows the measurements of a part together.
type measurement struct {
	part, set, tag string
	args           []string
}

var measurements = func() (list []measurement) {
	const large, all = "flat_100k nested1_100k", "flat_100k nested1_100k flat_1m nested1_1m"
	add := func(part, sets, tag string, runs ...string) { // no sets: it makes its own files, or reads none
		for set := range strings.SplitSeq(sets, " ") {
			for _, run := range runs {
				list = append(list, measurement{part, set, tag, strings.Fields(run)})
			}
		}
	}
	add("peers", large, "", "floor -case peers -passes 1")
	add("sizes", "flat_4kx16KiB flat_16x16MiB", "", "floor -case peers -passes 1")
	add("programs", large, "", "floor -case programs -passes 1")
	add("floor", all, "", "floor -case whole", "floor -case stat")
	add("floor", "flat_100k flat_1m", "", "floor -case names") // a listing is of one directory
	add("backends", all, "nouring", "floor -case whole")
	add("backends", large, "unix", "floor -case whole") // with a million files, these would take minutes
	add("backends", large, "generic", "floor -case whole")
	// For the targets that are neither above nor in cold.
	add("uring", "flat_1 flat_10 flat_100 flat_1k flat_10k flat_100k flat_1m", "", "floor -case uring")
	add("walkdir", "flat_100k", "", "floor -case walkdir")
	add("trees", "", "", "floor -case trees")
	add("again", "flat_1m", "", "floor -case again")
	add("fuse", "", "", "floor -case sweep -fuse 1ms -workers 2")
	add("allocs", "flat_100k", "", "floor -case allocs")
	add("peak", "flat_1m", "", "floor -case peak", "floor -case peak -cold")
	for _, c := range cold.Cases { // a call for each, so that an interrupt loses only one
		list = append(list, measurement{"cold", "", "", []string{"cold", "-runs", "3", "^" + regexp.QuoteMeta(c.Name) + "$"}})
	}
	add("cache", "", "", "caches")
	return list
}()

func (m measurement) String() string {
	return strings.Join(strings.Fields(strings.Join(append([]string{m.part, m.set, m.tag}, m.args...), " ")), " ")
}

// A block is a text of a page, or without a name a picture, made from a table, or all, of the measurements of the part from.
type block struct {
	name, file, from, table string
	text                    func(record.Results) string
}

const benchmarks, performance, cachePage = "docs/dev/benchmarks.md", "docs/dev/performance.md", "docs/cache.md"

var blocks = []block{
	{"peers", benchmarks, "peers", "", record.Results.String},
	{"", "docs/img/peers.svg", "peers", "", peersPicture},
	{"readme", "README.md", "peers", "", readme},
	{"sizes", benchmarks, "sizes", "", record.Results.String},
	{"readme-sizes", "README.md", "sizes", "", readme},
	{"programs", benchmarks, "programs", "", record.Results.String},
	{"backends", benchmarks, "backends", "", record.Results.String},
	{"targets", performance, "", "", targetsTable},
	{"cold", performance, "cold", "cold", cold.Table},
	{"", "docs/img/cold.svg", "cold", "cold", coldPicture},
	{"cache", cachePage, "cache", "cases", caches.Tables["cases"]},
	{"cache-eviction", cachePage, "cache", "eviction", caches.Tables["eviction"]},
	{"cache-policies", cachePage, "cache", "policies", caches.Tables["policies"]},
}

// A target is a row of the table of targets. It shows the comparisons, or the cold case, whose whole name matches the pattern who.
type target struct {
	name, who string
	limits    string // "": those of the cold case, or none, which the table shows as "reported"
}

var targets = []target{
	{"whole / C loop: flat 100k, nested 100k, flat 1m, nested 1m", "whole / C loop", "wall ≤ 0.85"},
	{"the same without io_uring", "nouring, whole / C loop", "wall ≤ 1.00"},
	{"with io_uring / without: 1, 10, 100, 1k, 10k, 100k, 1m files", "whole / the same without io_uring", "wall ≤ 1.02"},
	{"metadata / C loop with fstatat, the same sets", "stat / C loop with fstatat", "wall ≤ 0.95"},
	{"ReadDir / getdents64", "ReadDir / bare getdents64", "wall ≤ 0.90"},
	{"ReadDir / os.ReadDir", "ReadDir / os.ReadDir", "wall ≤ 0.35"},
	{"whole / WalkDir + ReadFile", "whole / WalkDir [+] ReadFile", "wall ≤ 0.20, CPU ≤ 0.30"},
	{"1, 2, 3, 5, 10, 100 files / ReadDir + ReadFile", ".* / ReadDir [+] ReadFile", "wall ≤ 1.00, CPU ≤ 1.00"},
	{"cold, flat 100k", "flat_100k, ext4", ""},
	{"cold, flat 100k / best C loop in listing order", "flat_100k, the machine's disk", ""},
	{"cold, metadata of flat 100k / C loop", "metadata of flat_100k, ext4", ""},
	{"incremental run, 1m files, nothing changed / a full run", "the size, nothing changed / a full run", "wall ≤ 0.45"},
	{"incremental run, 1m files, 1 % changed / a full run", "the size, 1 % changed / a full run", "wall ≤ 0.50"},
	{"FUSE, 1 ms an open, each of 1,000 files", "default / Workers 2", "≤ 60,000 ns/op"},
	{"allocations a file: 100k files, the first 2 KiB of each", "prefix", "≤ 0.002 allocations"},
	{"peak memory, Stream, 1m files, warm", "Stream, warm", "≤ 16 MiB"},
	{"the same, cold", "Stream, cold", "≤ 80 MiB"},
	{"cancel, cold, one head of 4 ms, worst", "cancel, 60 directories of 300 files, ext4, one head, 4ms a seek", ""},
	{"1,000 directories of 1 and of 3 files, and a chain of 1,000 / C loop", "(1,000 directories|chain) .* / C loop", ""},
}

// limit matches the limits in a text such as "wall ≤ 0.85, ≤ 2,500 requests": the largest median of a unit that a target allows.
var limit = regexp.MustCompile(`(?:(\w+) )?≤ ([\d,.]*\d)(?: ([\w/]+))?`)

// ratios has the units of records whose ratios have a limit. Cold runs are in seconds.
var ratios = map[string][2]string{"wall": {record.Wall, "s"}, "CPU": {record.CPU}}

// A runner has the directories of the repository, of the measurements and of the built commands.
type runner struct{ root, raw, bins string }

// Main runs the command in the directory scripts.
func Main(ctx context.Context, args []string) error {
	flags := commands.Flags("report", usage)
	return fail.Try(func() {
		fail.On(flags.Parse(args))
		fail.If(flags.NArg() > 1, "want at most one PATTERN")
		root := fail.Must(filepath.Abs(".."))
		r := &runner{root, filepath.Join(root, ".data/report"), fail.Must(os.MkdirTemp("", "report-"))}
		defer os.RemoveAll(r.bins)
		fail.On(os.MkdirAll(r.raw, 0o755))
		fail.On(r.run(ctx, fail.Must(regexp.Compile(flags.Arg(0)))))
	})
}

// run measures and writes the blocks. If it cannot measure or write a block, the block stays as it was.
func (r *runner) run(ctx context.Context, pattern *regexp.Regexp) error {
	var failed []string
	try := func(what string, do func()) {
		began := time.Now()
		err := fail.Try(do)
		fmt.Fprintf(os.Stderr, "%s: %.0f s\n", what, time.Since(began).Seconds())
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: left as it was: %v\n", what, err)
			failed = append(failed, what)
		}
	}
	for _, m := range measurements {
		if ctx.Err() == nil && pattern.MatchString(m.String()) {
			try(m.String(), func() { r.measure(ctx, m) })
		}
	}
	for _, b := range blocks {
		if r.load(cmp.Or(b.from, "floor")) != nil {
			try("writing "+cmp.Or(b.name, b.file), func() { r.draw(b) })
		}
	}
	if failed != nil && ctx.Err() == nil {
		return commands.Status{Text: strings.Join(failed, ", ") + ": left as it was, for the reasons above", Code: 3}
	}
	return ctx.Err()
}

func (r *runner) file(m measurement) string {
	return filepath.Join(r.raw, url.PathEscape(m.String())+".txt")
}

// measure saves what bench prints, after lines with the commit, the date and the machine. The names of sides get the build tag.
func (r *runner) measure(ctx context.Context, m measurement) {
	args := slices.Insert(slices.Clone(m.args), 1, "-records")
	if m.set != "" {
		layout, count, _ := strings.Cut(m.set, "_")
		data, set := filepath.Join(r.root, ".data"), fail.Must(tickets.ParseSet(layout, count, 1))
		if _, err := set.ReadManifest(data); count == "1m" {
			fail.If(err != nil, "go run ./tickets -out ../.data -layout %s -count 1m has not made the set", layout)
			args = append(args, "-passes", "1") // one pass takes as long as ten of other sets
		}
		fail.Must(set.Generate(ctx, data))
		args = append(args, "-dir", filepath.Join(data, set.Name()))
	}
	binary := filepath.Join(r.bins, "bench"+m.tag)
	if _, err := os.Stat(binary); err != nil {
		fail.Must(commands.Output(ctx, "", "go", "build", "-o", binary, "-tags", "fileproc_"+m.tag, "./bench"))
	}
	side := "\nside: " + strings.TrimPrefix(m.tag+", ", ", ")
	text := strings.ReplaceAll(fail.Must(commands.Output(ctx, "", binary, args...)), "\nside: ", side)
	commit, _ := commands.Output(ctx, r.root, "git", "describe", "--always", "--dirty", "--exclude", "*")
	text = fmt.Sprintf("commit: %s\ndate: %s\nmachine: %s\n%s\n", cmp.Or(commit, "unknown"), time.Now().UTC().Format(time.DateOnly),
		host.Machine(filepath.Join(r.root, ".data")), text)
	fail.Must(record.Read(text))
	fail.On(errors.Join(os.WriteFile(r.file(m)+".new", []byte(text), 0o644), os.Rename(r.file(m)+".new", r.file(m))))
}

// load returns the saved records of a part, or of all parts for "".
func (r *runner) load(part string) (records []record.Record) {
	for _, m := range measurements {
		if text, err := os.ReadFile(r.file(m)); err == nil && (part == "" || part == m.part) {
			records = append(records, fail.Must(record.Read(string(text)))...)
		}
	}
	return records
}

// draw writes a picture, or a block into its page, with the commits, the dates and the machines. It does not replace what shows more:
// .data/report may have only a part of what was measured, perhaps on another machine.
func (r *runner) draw(b block) {
	records, file := r.load(b.from), filepath.Join(r.root, b.file)
	text := b.text(record.Of(records, b.table))
	old, _ := os.ReadFile(file)
	if b.name != "" {
		text = fill(string(old), b.name, text+"\n"+stamps(records))
	}
	fail.If(shown(text) < shown(string(old)), "%s shows more than was measured; measure all of it (scripts/bench_report.sh '^%s'), or empty it", file, b.from)
	fail.On(os.WriteFile(file, []byte(text), 0o644))
}

// number matches a number, as tables and pictures have it.
var number = regexp.MustCompile(`\d[\d.,]*`)

// shown counts the numbers in the tables of a page, or in a picture's texts.
func shown(page string) (n int) {
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "|") || strings.Contains(line, "<text") {
			n += len(number.FindAllString(line, -1))
		}
	}
	return n
}

func stamps(records []record.Record) (text string) {
	commits := map[string]string{} // by date and machine
	for _, rec := range records {
		if of := rec.Date + ", " + rec.Machine; !strings.Contains(commits[of], rec.Commit+", ") {
			commits[of] += rec.Commit + ", "
		}
	}
	for _, of := range slices.Sorted(maps.Keys(commits)) {
		text += "; " + commits[of] + of
	}
	return strings.TrimPrefix(text, "; ")
}

// fill replaces the text of a page between the two lines of a block.
func fill(page, name, text string) string {
	head, end := "\n<!-- report: "+name+" -->\n", "\n<!-- end -->\n"
	before, rest, _ := strings.Cut(page, head)
	_, after, ended := strings.Cut(rest, end)
	fail.If(!ended || strings.Contains(after, head), "the page has no block %s, or two", name)
	return before + head + "\n" + strings.TrimSpace(text) + "\n" + end + after
}

// targetsTable has a row for each target. Medians that miss their target are bold.
func targetsTable(r record.Results) string {
	rows := [][]string{{"case", "reached", "target"}}
	for _, t := range targets {
		who, limits := regexp.MustCompile("^(?:"+t.who+")$"), cmp.Or(t.limits, cold.Target(t.who))
		cell := ""
		for _, l := range limit.FindAllStringSubmatch(cmp.Or(limits, "wall ≤ 1000, CPU ≤ 1000"), -1) {
			unit := cmp.Or(l[1], l[3])
			most, _ := strconv.ParseFloat(strings.ReplaceAll(l[2], ",", ""), 64)
			before := "; " + unit + " "
			for _, ours := range r {
				name, theirs, _ := r.Against(ours)
				if ours.Who == "fileproc" { // a cold run
					name, theirs = ours.Data, r.Find(ours.Data, "usual loop")
				}
				s, format := record.Summarize([]float64{ours.Median(unit)}), "%.0f"
				if s.Median < 9 {
					format = "%.2g"
				}
				if of, isRatio := ratios[unit]; isRatio {
					s, format = cmp.Or(ours.Over(theirs, of[0]), ours.Over(theirs, of[1])), "%.2f"
				}
				figure := s.Format(format)
				if s.Median > most {
					figure = "**" + figure + "**"
				}
				if figure != "" && who.MatchString(name) {
					cell += before + figure
					before = ", "
				}
			}
		}
		rows = append(rows, []string{t.name, strings.TrimPrefix(cell, "; "), cmp.Or(limits, "reported")})
	}
	return record.Table(rows)
}

// readme returns a table of wall and processor times of the other sides, relative to fileproc's.
func readme(r record.Results) string {
	rows := [][]string{{"multiples of fileproc's time"}}
	for _, set := range r.Sets() {
		head := regexp.MustCompile(`.*x|_.*`).ReplaceAllString(set, "") // the size of its files, or its layout
		rows[0] = append(rows[0], "`"+head+"`: wall", "processor")
	}
	for _, who := range r.Sides()[1:] {
		row := []string{who}
		for _, set := range r.Sets() {
			for _, unit := range []string{record.Wall, record.CPU} {
				row = append(row, fmt.Sprintf("%.1f", r.Find(set, who).Over(r.Find(set, r.Sides()[0]), unit).Median))
			}
		}
		rows = append(rows, row)
	}
	return record.Table(rows)
}

// A bar of a picture has a name and a number in some format.
type bar struct {
	name, format string
	number       float64
}

// peersPicture has the fastest side on top.
func peersPicture(r record.Results) string {
	var bars []bar
	for _, s := range r {
		if s.Data == "flat_100k" {
			bars = append(bars, bar{s.Who, "%.0f", 1e6 / s.Median(record.Wall)})
		}
	}
	slices.SortFunc(bars, func(a, b bar) int { return cmp.Compare(b.number, a.number) })
	return svg("Thousands of small files read in a second, in one directory (longer is better)", bars)
}

func coldPicture(r record.Results) string {
	var bars []bar
	for _, set := range r.Sets() {
		for _, of := range [][2]string{{"requests", "requests"}, {"s", "time"}} {
			if ratio := r.Find(set, "fileproc").Over(r.Find(set, "usual loop"), of[0]).Median; ratio > 0 {
				bars = append(bars, bar{set + ": " + of[1], "%.1f %%", 100 * ratio})
			}
		}
	}
	return svg("Cold trees: requests to the disk and time, in percent of the usual loop's (shorter is better)", bars)
}

// svg returns a picture of horizontal bars.
func svg(title string, bars []bar) string {
	const row, from, width = 22, 450, 280
	longest := slices.MaxFunc(append(bars, bar{}), func(a, b bar) int { return cmp.Compare(a.number, b.number) }).number // 0 without bars
	text := fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="800" height="%d" font-family="sans-serif" font-size="12">
<rect width="100%%" height="100%%" fill="#fff"/>
<text x="400" y="20" text-anchor="middle" font-size="15">%s</text>
`, row*len(bars)+40, title)
	for i, b := range bars {
		y, length := 32+row*i, b.number/longest*width
		text += fmt.Sprintf(`<text x="%d" y="%d" text-anchor="end">%s</text><rect x="%d" y="%d" width="%.0f" height="%d" fill="#0072b2"/>`,
			from-8, y+14, html.EscapeString(b.name), from, y, length, row-4)
		text += fmt.Sprintf("<text x=\"%.0f\" y=\"%d\">"+b.format+"</text>\n", from+length+6, y+14, b.number)
	}
	return text + "</svg>\n"
}
