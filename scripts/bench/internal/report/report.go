// Package report measures what the pages show, and writes it into them: between the lines <!-- report: NAME --> and <!-- end -->
// of a page, and into the pictures beside it. scripts/bench_report.sh runs it.
package report

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/fileproc/fileproc/scripts/bench/internal/cold"
	"github.com/fileproc/fileproc/scripts/internal/commands"
	"github.com/fileproc/fileproc/scripts/internal/fail"
	"github.com/fileproc/fileproc/scripts/internal/host"
	"github.com/fileproc/fileproc/scripts/internal/record"
	"github.com/fileproc/fileproc/scripts/internal/tickets"
)

// The sets of the tables. Those of a million files are measured if they were made.
var (
	none     = []string{""}
	large    = []string{"flat_100k", "nested1_100k"}
	huge     = []string{"flat_1m", "nested1_1m"}
	all      = slices.Concat(large, huge)
	sizeSets = []string{"flat_1", "flat_10", "flat_100", "flat_1k", "flat_10k", "flat_100k", "flat_1m"}
)

// A part is measured and kept by itself.
type part struct {
	name string
	sets []string
	runs []run
}

// A run is of bench, built with a tag of fileproc's that is not empty.
type run struct {
	tag  string
	args []string
}

func runs(lines ...string) (all []run) {
	for _, l := range lines {
		all = append(all, run{"", strings.Fields(l)})
	}
	return all
}

var parts = []part{
	{"peers", large, runs("floor -case peers -passes 1")},
	{"programs", large, runs("floor -case programs -passes 1")},
	{"floor", all, runs("floor -case whole", "floor -case prefix", "floor -case stat", "floor -case names")},
	{"backends", all, []run{{"nouring", wholeCase}, {"unix", wholeCase}, {"generic", wholeCase}}},
	// The targets that are in none of the above, nor in cold.
	{"uring", sizeSets, runs("floor -case uring")},
	{"walkdir", large[:1], runs("floor -case walkdir")},
	{"trees", none, runs("floor -case trees")},
	{"again", huge[:1], runs("floor -case again")},
	{"fuse", none, runs("floor -case sweep -fuse 1ms -workers 2")},
	{"allocs", large[:1], runs("floor -case allocs")},
	{"peak", huge[:1], runs("floor -case peak", "floor -case peak -cold")},
	{"cold", none, coldRuns()},
	{"cache", none, runs("caches")},
}

var wholeCase = strings.Fields("floor -case whole")

// coldRuns has a run for each case, so that what was measured before an interrupt is kept.
func coldRuns() (all []run) {
	for _, name := range cold.Names() {
		all = append(all, run{"", []string{"cold", "-runs", "3", "^" + regexp.QuoteMeta(name) + "$"}})
	}
	return all
}

// on reports whether a run is of use on a set: a listing is of one directory, and a million files take the slow backends minutes.
func (x run) on(set string) bool {
	nested, slow := !strings.HasPrefix(set, "flat"), x.tag == "unix" || x.tag == "generic"
	return !(nested && slices.Contains(x.args, "names")) && !(slow && strings.HasSuffix(set, "_1m"))
}

type runner struct {
	root, raw, bins string // the repository, the directory of the measurements, and one of built commands
	out             string // where the pages are
	quick           bool
	only            []string // sets; nil: all
	stamp           record.Record
}

func Main(ctx context.Context, args []string) error {
	var names []string
	for _, p := range parts {
		names = append(names, p.name)
	}
	var r runner
	flags := flag.NewFlagSet("bench report", flag.ContinueOnError)
	only := flags.String("only", strings.Join(names, ","), "`parts` to measure, or none; the others are drawn from what was measured before")
	sets := flags.String("sets", "", "the parts' `sets` to measure, such as flat_1m (default: all)")
	flags.BoolVar(&r.quick, "quick", false, "use sets of at most 5,000 files, few rounds and no cold ones, and write to .data/report-quick")
	if err := flags.Parse(args); err != nil {
		return err
	}
	return fail.Try(func() {
		chosen, known := strings.Split(*only, ","), []string(nil)
		if *only == "none" {
			chosen = nil
		}
		for _, name := range chosen {
			i := slices.Index(names, name)
			fail.If(i < 0, "unknown part %q: want some of %v", name, names)
			known = append(known, r.sized(parts[i].sets)...)
		}
		if *sets != "" {
			r.only = strings.Split(*sets, ",")
		}
		for _, set := range r.only {
			fail.If(!slices.Contains(known, set), "none of these parts measures a set %q", set)
		}
		r.open("report")
		defer os.RemoveAll(r.bins)
		fail.On(r.run(ctx, chosen, blocks))
	})
}

// run measures the parts and writes the blocks. A part that cannot be measured, and a block that cannot be drawn, are left as
// they were. After an interrupt it draws what was measured.
func (r *runner) run(ctx context.Context, chosen []string, blocks []block) error {
	var failed []string
	start := time.Now()
	try := func(what string, do func()) {
		began := time.Now()
		err := fail.Try(do)
		fmt.Fprintf(os.Stderr, "%s: %.0f s\n", what, time.Since(began).Seconds())
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: left as it was: %v\n", what, err)
			failed = append(failed, what)
		}
	}
	for _, p := range parts {
		if slices.Contains(chosen, p.name) && ctx.Err() == nil {
			try("measuring "+p.name, func() { r.measure(ctx, p) })
		}
	}
	for _, b := range blocks {
		if _, err := os.Stat(r.file(b.from)); err == nil {
			try("drawing "+b.name, func() { r.draw(context.WithoutCancel(ctx), b) })
		}
	}
	fmt.Fprintf(os.Stderr, "%.0f s in all, with the measurements in %s\n", time.Since(start).Seconds(), r.raw)
	if failed != nil && ctx.Err() == nil {
		return commands.Status{Text: strings.Join(failed, ", ") + ": left as it was, for the reasons above", Code: 3}
	}
	return ctx.Err()
}

// open is called in the directory scripts. name is that of the directory with the measurements.
func (r *runner) open(name string) {
	r.root = fail.Must(filepath.Abs(".."))
	r.out, r.raw = r.root, filepath.Join(r.root, ".data", name)
	if r.quick {
		r.raw += "-quick"
		r.out = r.raw
	}
	fail.On(os.MkdirAll(r.raw, 0o755))
	commit, _ := commands.Output(context.Background(), r.root, "git", "describe", "--always", "--dirty", "--exclude", "*")
	r.stamp = record.Record{Commit: cmp.Or(commit, "unknown"), Date: time.Now().UTC().Format(time.DateOnly),
		Machine: host.Machine(filepath.Join(r.root, ".data"))}
	r.bins = fail.Must(os.MkdirTemp("", "report-"))
}

// file returns the name of what is kept of a part.
func (r *runner) file(part string) string { return filepath.Join(r.raw, part+".txt") }

// sized returns the sets that --quick measures, or all.
func (r *runner) sized(sets []string) (sized []string) {
	for _, set := range sets {
		if r.quick {
			set = strings.NewReplacer("_100k", "_5k", "_10k", "_5k", "_1m", "_5k").Replace(set)
		}
		if !slices.Contains(sized, set) {
			sized = append(sized, set)
		}
	}
	return sized
}

// set returns the directory of a set, which it makes if it is missing, but none of a million files.
func (r *runner) set(ctx context.Context, name string) string {
	layout, count, _ := strings.Cut(name, "_")
	data := filepath.Join(r.root, ".data")
	set := fail.Must(tickets.ParseSet(layout, count, 1))
	_, err := set.ReadManifest(data)
	fail.If(err != nil && count == "1m", "go run ./tickets -out ../.data -layout %s -count 1m has not made the set", layout)
	fail.Must(set.Generate(ctx, data))
	return filepath.Join(data, set.Name())
}

func output(ctx context.Context, name string, args ...string) string {
	return fail.Must(commands.Output(ctx, "", name, args...))
}

// bench makes a run and returns the records that it prints. Their sides get the name of the build tag.
func (r *runner) bench(ctx context.Context, p part, x run, dir string) []record.Record {
	binary := filepath.Join(r.bins, "bench"+x.tag)
	if _, err := os.Stat(binary); err != nil {
		output(ctx, "go", "build", "-o", binary, "-tags", strings.TrimSuffix("fileproc_"+x.tag, "fileproc_"), "./bench")
	}
	rounds, sample, args := "9", "20ms", slices.Insert(slices.Clone(x.args), 1, "-records")
	if r.quick {
		rounds, sample = "2", "1ms"
	}
	switch x.args[0] {
	case "floor":
		args = append(args, "-pairs", rounds)
		if strings.HasSuffix(dir, "_1m") || r.quick { // a pass over a million files takes as long as ten of others
			args = append(args, "-passes", "1")
		}
		if dir != "" {
			args = append(args, "-dir", dir)
		}
	case "caches":
		args = append(args, "-rounds", rounds, "-sample", sample)
	}
	cold := x.args[0] == "cold" || slices.Contains(x.args, "-cold")
	fail.If(cold && r.quick, "there is no quick form; scripts/bench_cold.sh takes a pattern")
	records := fail.Must(record.Read(strings.NewReader(output(ctx, binary, args...))))
	for i := range records {
		rec := &records[i]
		rec.Commit, rec.Date, rec.Machine = r.stamp.Commit, r.stamp.Date, r.stamp.Machine
		if x.args[0] == "floor" {
			rec.Table = p.name
		}
		rec.Who = strings.TrimPrefix(x.tag+", "+rec.Who, ", ")
	}
	return records
}

// measure measures a part, or some of its sets. It keeps each run's records as soon as there are some, in place of older ones of the
// same sides and sets. A set that is missing is left out.
func (r *runner) measure(ctx context.Context, p part) {
	var wrong error
	measured := false
	for _, set := range r.sized(p.sets) {
		if r.only != nil && !slices.Contains(r.only, set) {
			continue
		}
		for _, x := range p.runs {
			if !x.on(set) || ctx.Err() != nil {
				continue
			}
			err := fail.Try(func() {
				dir := ""
				if set != "" {
					dir = r.set(ctx, set)
				}
				r.keep(p.name, r.bench(ctx, p, x, dir))
				measured = true
			})
			if err != nil {
				fmt.Fprintf(os.Stderr, "%s: %s %s is left out: %v\n", p.name, set, x.args, err)
				wrong = err
			}
		}
	}
	if !measured {
		fail.On(wrong)
	}
}

// keep adds records to those of a part, in place of older ones of the same sides and sets.
func (r *runner) keep(name string, records []record.Record) {
	var old []record.Record
	fail.Try(func() { old = r.load(name) }) // a file that cannot be read is replaced
	old = slices.DeleteFunc(old, func(o record.Record) bool {
		return slices.ContainsFunc(records, func(n record.Record) bool { return n.Table == o.Table && n.Data == o.Data && n.Who == o.Who })
	})
	var text strings.Builder
	fail.On(record.Write(&text, append(old, records...)...))
	fail.On(os.WriteFile(r.file(name)+".new", []byte(text.String()), 0o644))
	fail.On(os.Rename(r.file(name)+".new", r.file(name)))
}

func (r *runner) load(name string) []record.Record {
	text, err := os.ReadFile(r.file(name))
	if os.IsNotExist(err) {
		return nil
	}
	fail.On(err)
	return fail.Must(record.Read(bytes.NewReader(text)))
}

func (r *runner) results(table string) record.Results { return record.Of(r.load(table), table) }
