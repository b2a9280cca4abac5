// Package report measures what the pages show, and writes it into them: between the lines <!-- report: NAME --> and <!-- end -->
// of a page, and into the pictures beside it. scripts/bench_report.sh runs it.
package report

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fileproc/fileproc/scripts/bench/internal/program"
	"github.com/fileproc/fileproc/scripts/internal/commands"
	"github.com/fileproc/fileproc/scripts/internal/fail"
	"github.com/fileproc/fileproc/scripts/internal/host"
	"github.com/fileproc/fileproc/scripts/internal/record"
	"github.com/fileproc/fileproc/scripts/internal/tickets"
)

// The sets of the tables. Those of a million files are measured if they were made.
var (
	large, huge = []string{"flat_100k", "nested1_100k"}, []string{"flat_1m", "nested1_1m"}
	smallSets   = []string{"flat_1k", "nested1_1k", "flat_5k", "nested1_5k"}
	sizeSets    = []string{"flat_1", "flat_10", "flat_100", "flat_1k", "flat_10k", "flat_100k"}
)

// A part is measured and kept by itself.
type part struct {
	name   string
	sets   []string // {""}: none
	rounds int      // at most; 0: as many as others
	build  string   // of bench; "": the first one
	floor  []string // arguments of bench floor, a run for each; nil: -case name
	// text returns what a command has printed, in place of records.
	text func(r *runner, ctx context.Context, set string) string
}

var parts = []part{
	{name: "peers", sets: large},
	{name: "programs", sets: large},
	{name: "backends", sets: slices.Concat(smallSets, large, huge)},
	{name: "readdir", sets: []string{"proc", "flat_1k", "flat_5k", "flat_100k", "flat_1m"}},
	{name: "floor", sets: slices.Concat(large, huge), floor: []string{"-case whole", "-case prefix", "-case stat", "-case names"}},
	{name: "bare", sets: large[:1], rounds: 5, floor: []string{"-case bare"}},
	{name: "fio", sets: large[:1], rounds: 5, floor: []string{"-case fio"}},
	{name: "sizes", sets: slices.Concat(sizeSets, huge[:1])},
	{name: "workers", sets: large[:1]},
	{name: "ablation", sets: large[:1]},
	// The targets that are in none of the above, nor in cold.
	{name: "nouring", sets: slices.Concat(large, huge), build: "nouring", floor: []string{"-case whole"}},
	{name: "uring", sets: slices.Concat(sizeSets, huge[:1]), floor: []string{"-case uring"}},
	{name: "walkdir", sets: large[:1], floor: []string{"-case walkdir"}},
	{name: "small", sets: []string{""}, floor: []string{"-case small"}},
	{name: "again", sets: huge[:1], floor: []string{"-case again"}},
	{name: "fuse", sets: []string{""}, floor: []string{"-case sweep -fuse 1ms -workers 2"}},
	{name: "unix", sets: large[:1], build: "unix", floor: []string{"-case whole"}},
	{name: "generic", sets: large[:1], build: "generic", floor: []string{"-case whole"}},
	{name: "shapes", sets: []string{""}, floor: []string{"-case shapes"}},
	{name: "allocs", sets: large[:1], text: floorText("allocs", false)},
	{name: "peak", sets: huge[:1], text: floorText("peak", false)},
	{name: "peak-cold", sets: huge[:1], text: floorText("peak", true)},
	{name: "cold", sets: []string{""}, text: (*runner).cold},
	{name: "cache", sets: []string{""}, text: (*runner).cache},
	{name: "load", sets: []string{""}, text: (*runner).mixedLoad},
}

// builds are the builds of the table backends, named by their build tags. The first one is built without a tag.
var builds = []string{"linux", "nouring", "unix", "generic"}

type runner struct {
	root, raw, bins string // the repository, the directory of the measurements, and one of built commands
	out             string // where the pages are
	quick           bool
	rounds, passes  int
	runs            int      // of a case of cold runs
	only            []string // sets; nil: all
	stamp           record.Record
}

// Main is the command report.
func Main(ctx context.Context, args []string) error {
	var names []string
	for _, p := range parts {
		names = append(names, p.name)
	}
	r := &runner{rounds: 9, passes: 5, runs: 5}
	flags := flag.NewFlagSet("bench report", flag.ContinueOnError)
	only := flags.String("only", strings.Join(names, ","), "`parts` to measure, or none; the others are drawn from what was measured before")
	sets := flags.String("sets", "", "the parts' `sets` to measure, such as flat_1m, and to keep the others (default: all)")
	flags.BoolVar(&r.quick, "quick", false, "use sets of at most 5,000 files and few rounds, and write to .data/report-quick")
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

// measures reports whether the set was chosen.
func (r *runner) measures(set string) bool { return r.only == nil || slices.Contains(r.only, set) }

// run measures the parts and writes the blocks. A part that cannot be measured, and a block that cannot be drawn, are left as
// they were.
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
		if slices.Contains(chosen, p.name) && slices.ContainsFunc(r.sized(p.sets), r.measures) && ctx.Err() == nil {
			try("measuring "+p.name, func() { r.measure(ctx, p) })
		}
	}
	for _, b := range blocks {
		if _, err := os.Stat(r.file(b.from)); err == nil && ctx.Err() == nil {
			try("drawing "+b.name, func() { r.draw(ctx, b) })
		}
	}
	fmt.Fprintf(os.Stderr, "%.0f s in all, with the measurements in %s\n", time.Since(start).Seconds(), r.raw)
	if failed != nil {
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
		r.out, r.rounds, r.passes, r.runs = r.raw, min(r.rounds, 3), 1, 1
	}
	fail.On(os.MkdirAll(r.raw, 0o755))
	commit, _ := program.Output(context.Background(), r.root, "git", "describe", "--always", "--dirty", "--exclude", "*")
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
	layout, count, found := strings.Cut(name, "_")
	if !found {
		return map[string]string{"proc": "/proc"}[name]
	}
	data := filepath.Join(r.root, ".data")
	set := fail.Must(tickets.ParseSet(layout, count, 1))
	_, err := set.ReadManifest(data)
	fail.If(err != nil && count == "1m", "go run ./tickets -out ../.data -layout %s -count 1m has not made the set", layout)
	fail.Must(set.Generate(ctx, data, nil))
	return filepath.Join(data, set.Name())
}

// output runs a program, or fails.
func output(ctx context.Context, name string, args ...string) string {
	return fail.Must(program.Output(ctx, "", name, args...))
}

// bench runs the command bench, built with the tag of a build.
func (r *runner) bench(ctx context.Context, build string, args ...string) string {
	build = cmp.Or(build, builds[0])
	binary := filepath.Join(r.bins, build)
	if _, err := os.Stat(binary); err != nil {
		output(ctx, "go", "build", "-o", binary, "-tags", strings.TrimSuffix("fileproc_"+build, "fileproc_linux"), "./bench")
	}
	return output(ctx, binary, args...)
}

// measure measures a part, or some of its sets, and keeps the measurements. A set that is missing is left out.
func (r *runner) measure(ctx context.Context, p part) {
	var records []record.Record
	var missing error
	text := &strings.Builder{}
	if p.text != nil {
		fmt.Fprintf(text, "%s\n\n", stampOf([]record.Record{r.stamp}))
	} else if r.only != nil {
		fail.On(fail.Try(func() {
			records = slices.DeleteFunc(r.load(p.name), func(rec record.Record) bool { return r.measures(rec.Data) })
		}))
	}
	old := len(records)
	for _, set := range r.sized(p.sets) {
		if !r.measures(set) {
			continue
		}
		dir := ""
		if err := fail.Try(func() { dir = r.set(ctx, set) }); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %s is left out: %v\n", p.name, set, err)
			missing = err
		} else if p.text != nil {
			text.WriteString(p.text(r, ctx, dir))
		} else {
			records = append(records, r.measureSet(ctx, p, dir)...)
		}
	}
	if p.text != nil {
		fail.On(missing)
	} else if len(records) == old {
		fail.On(cmp.Or(missing, errors.New("nothing was measured")))
	}
	for i := range records[old:] {
		rec := &records[old+i]
		rec.Commit, rec.Date, rec.Machine = r.stamp.Commit, r.stamp.Date, r.stamp.Machine
	}
	fail.On(record.Write(text, records...))
	fail.On(os.WriteFile(r.file(p.name), []byte(text.String()), 0o644))
}

// load returns no records of a part that was not measured.
func (r *runner) load(name string) []record.Record {
	text, err := os.ReadFile(r.file(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	fail.On(err)
	return fail.Must(record.Read(bytes.NewReader(text)))
}

// measureSet lets the builds of the table backends take turns, of which a different one goes first in each round. A pass over a
// million files takes as long as ten of others.
func (r *runner) measureSet(ctx context.Context, p part, dir string) (records []record.Record) {
	rounds, passes := r.rounds, r.passes
	if strings.HasSuffix(dir, "_1m") {
		passes = 1
	}
	if p.rounds > 0 {
		rounds = min(rounds, p.rounds)
	}
	if p.floor == nil {
		p.floor = []string{"-case " + p.name}
	}
	run := func(build string, rounds int, args ...string) {
		args = slices.Concat([]string{"floor"}, args, []string{"-json", "-pairs", fmt.Sprint(rounds), "-passes", fmt.Sprint(passes)})
		if dir != "" {
			args = append(args, "-dir", dir)
		}
		for _, rec := range fail.Must(record.Read(strings.NewReader(r.bench(ctx, build, args...)))) {
			rec.Table = p.name
			records = append(records, rec)
		}
	}
	for _, c := range p.floor {
		args := strings.Fields(c)
		switch {
		case p.name == "backends":
			for i := range rounds * len(builds) {
				build := builds[(i/len(builds)+i)%len(builds)]
				run(build, 1, append(args, "-build", build)...)
			}
			continue
		case c == "-case names" && !strings.Contains(dir, "_flat_"):
			continue // it lists a single directory
		case p.name == "programs":
			count := filepath.Join(r.bins, "count")
			output(ctx, "go", "build", "-o", count, "./bench/internal/peers/count")
			args = append(args, "-count", count)
		}
		run(p.build, rounds, args...)
	}
	return records
}

// cold, cache and mixedLoad run the scripts of these names, and floorText a case of bench floor.
func (r *runner) cold(ctx context.Context, _ string) string {
	fail.If(r.quick, "there is no quick form; scripts/bench_cold.sh takes a pattern")
	return output(ctx, "./bench_cold.sh", "-runs", fmt.Sprint(r.runs))
}

func (r *runner) cache(ctx context.Context, _ string) string {
	args := []string{"-rounds", fmt.Sprint(r.rounds), "--plot"} // into docs/img
	if r.quick {
		args = append(args[:2], "-sample", "1ms")
	}
	return output(ctx, "./bench_cache.sh", args...)
}

// loads are the stores of the mixed load, and the flags and the picture of each.
var loads = []struct{ name, store, flags, alt string }{
	{"load", "files", "", "Percentiles of the latency through fileproc and through package os"},
	{"load-s3", "S3", " -backend s3 -files 200 -own 8", "Percentiles of the latency through fileproc and through io/fs, on an S3 server"},
}

func (r *runner) mixedLoad(ctx context.Context, _ string) string {
	stages := "25:12s,100:12s,25:12s"
	if r.quick {
		stages = "4:2s"
	}
	for _, l := range loads {
		flags := strings.Fields("-threshold checks:rate>=0 -slice 500ms -stages " + stages + l.flags)
		output(ctx, "./bench_load.sh", append(flags, "-out", filepath.Join(r.raw, l.name+".json"))...)
	}
	return ""
}

func floorText(name string, cold bool) func(*runner, context.Context, string) string {
	return func(r *runner, ctx context.Context, dir string) string {
		if cold {
			fail.On(os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0o200))
		}
		return r.bench(ctx, "", "floor", "-case", name, "-dir", dir)
	}
}
