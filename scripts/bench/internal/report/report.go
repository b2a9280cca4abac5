// Package report makes the measurements that the pages show, and writes them between the lines <!-- report: NAME --> and
// <!-- end --> of a page, and into README.md's pictures. scripts/bench_report.sh runs it.
package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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

Measures what the pages show and writes it into them. A measurement is a part, a set, a build tag and a command of bench; only
those that have PATTERN, a regular expression, are made: all by default, and with none, pages are written from what was measured
before. Measurements are in .data/report, as text for benchstat. What cannot be measured stays as it was. An interrupt ends the
measuring; then the pages are written.

Needs Linux and Go, and root for cold trees. It uses a C compiler, ripgrep and grep if they are installed, and sets of a million
files if they were made.

`

var (
	none  = []string{""} // for a part that makes its own files, or reads none
	large = []string{"flat_100k", "nested1_100k"}
	huge  = []string{"flat_1m", "nested1_1m"}
	all   = slices.Concat(large, huge)
)

// A measurement is a call of bench, built with a tag of fileproc unless tag is "". A page shows the measurements of a part together.
type measurement struct {
	part, set, tag string
	args           []string
}

var measurements = func() (list []measurement) {
	add := func(part string, sets []string, tag string, runs ...string) {
		for _, set := range sets {
			for _, run := range runs {
				list = append(list, measurement{part, set, tag, strings.Fields(run)})
			}
		}
	}
	add("peers", large, "", "floor -case peers -passes 1")
	add("sizes", []string{"flat_4kx16KiB", "flat_16x16MiB"}, "", "floor -case peers -passes 1")
	add("programs", large, "", "floor -case programs -passes 1")
	for _, set := range all {
		add("floor", []string{set}, "", "floor -case whole", "floor -case prefix", "floor -case stat")
		if strings.HasPrefix(set, "flat") { // a listing is of one directory
			add("floor", []string{set}, "", "floor -case names")
		}
	}
	add("backends", all, "nouring", "floor -case whole")
	add("backends", large, "unix", "floor -case whole") // with a million files, these would take minutes
	add("backends", large, "generic", "floor -case whole")
	// For the targets that are neither above nor in cold.
	add("uring", []string{"flat_1", "flat_10", "flat_100", "flat_1k", "flat_10k", "flat_100k", "flat_1m"}, "", "floor -case uring")
	add("walkdir", large[:1], "", "floor -case walkdir")
	add("trees", none, "", "floor -case trees")
	add("again", huge[:1], "", "floor -case again")
	add("fuse", none, "", "floor -case sweep -fuse 1ms -workers 2")
	add("allocs", large[:1], "", "floor -case allocs")
	add("peak", huge[:1], "", "floor -case peak", "floor -case peak -cold")
	for _, c := range cold.Cases { // a call for each, so that an interrupt loses only one
		list = append(list, measurement{"cold", "", "", []string{"cold", "-runs", "3", "^" + regexp.QuoteMeta(c.Name) + "$"}})
	}
	add("cache", none, "", "caches")
	return list
}()

func (m measurement) String() string {
	return strings.Join(strings.Fields(strings.Join(append([]string{m.part, m.set, m.tag}, m.args...), " ")), " ")
}

// A block is a text of a page, made from the measurements of the part from.
type block struct {
	name, page, from string
	text             func(*runner, record.Results) string
	picture          string // "": none
	bars             func(record.Results) (title string, bars []bar)
}

const benchmarks, performance, cachePage = "docs/dev/benchmarks.md", "docs/dev/performance.md", "docs/cache.md"

var blocks = []block{
	{"peers", benchmarks, "peers", table, "docs/img/peers.svg", peerBars},
	{"readme", "README.md", "peers", readme, "", nil},
	{"sizes", benchmarks, "sizes", table, "", nil},
	{"readme-sizes", "README.md", "sizes", readme, "", nil},
	{"programs", benchmarks, "programs", table, "", nil},
	{"backends", benchmarks, "backends", table, "", nil},
	{"targets", performance, "", func(r *runner, _ record.Results) string { return r.targets() }, "", nil},
	{"cold", performance, "cold", func(r *runner, _ record.Results) string { return cold.Table(record.Of(r.load("cold"), "cold")) },
		"docs/img/cold.svg", coldBars},
	{"cache", cachePage, "cache", cacheTable("cases"), "", nil},
	{"cache-eviction", cachePage, "cache", cacheTable("eviction"), "", nil},
	{"cache-policies", cachePage, "cache", cacheTable("policies"), "", nil},
}

func table(_ *runner, r record.Results) string { return r.String() }

func cacheTable(name string) func(*runner, record.Results) string {
	return func(r *runner, _ record.Results) string { return caches.Tables[name](record.Of(r.load("cache"), name)) }
}

type runner struct {
	root, raw, bins string // the directories of the repository, of the measurements and of the built commands
}

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
			try("writing "+b.name, func() { r.draw(b) })
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
		fail.Must(commands.Output(ctx, "", "go", "build", "-o", binary, "-tags", strings.TrimSuffix("fileproc_"+m.tag, "fileproc_"), "./bench"))
	}
	text := fail.Must(commands.Output(ctx, "", binary, args...))
	text = strings.ReplaceAll(text, "\nside: ", "\nside: "+strings.TrimPrefix(m.tag+", ", ", "))
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

// draw writes a block into its page, with the commits, the dates and the machines.
func (r *runner) draw(b block) {
	records := r.load(b.from)
	results := record.Of(records, "")
	commits := map[string][]string{}
	var stamps []string
	for _, rec := range records {
		if of := ", " + rec.Date + ", " + rec.Machine; !slices.Contains(commits[of], rec.Commit) {
			commits[of] = append(commits[of], rec.Commit)
		}
	}
	for of, list := range commits {
		stamps = append(stamps, strings.Join(list, ", ")+of)
	}
	slices.Sort(stamps)
	text := b.text(r, results)
	if b.bars != nil {
		picture := filepath.Join(r.root, b.picture)
		fail.On(errors.Join(os.MkdirAll(filepath.Dir(picture), 0o755), os.WriteFile(picture, svg(b.bars(results)), 0o644)))
	}
	page := filepath.Join(r.root, b.page)
	old := string(fail.Must(os.ReadFile(page)))
	fail.On(os.WriteFile(page, []byte(fill(old, b.name, text+"\n"+strings.Join(stamps, "; "))), 0o644))
}

// fill replaces the text of a page between the two lines of a block.
func fill(page, name, text string) string {
	block := regexp.MustCompile(`(?s)(\n<!-- report: ` + regexp.QuoteMeta(name) + ` -->\n).*?(\n<!-- end -->\n)`)
	fail.If(len(block.FindAllString(page, 2)) != 1, "the page has no block %s, or two", name)
	at := block.FindStringSubmatchIndex(page)
	return page[:at[3]] + "\n" + strings.TrimSpace(text) + "\n" + page[at[4]:]
}
