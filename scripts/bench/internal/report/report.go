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
	text func(r *runner, ctx context.Context, set string) (string, error)
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
	chosen, known := strings.Split(*only, ","), []string(nil)
	if *only == "none" {
		chosen = nil
	}
	for _, name := range chosen {
		i := slices.Index(names, name)
		if i < 0 {
			return fmt.Errorf("unknown part %q: want some of %v", name, names)
		}
		known = append(known, r.sized(parts[i].sets)...)
	}
	if *sets != "" {
		r.only = strings.Split(*sets, ",")
	}
	for _, set := range r.only {
		if !slices.Contains(known, set) {
			return fmt.Errorf("none of these parts measures a set %q", set)
		}
	}
	if err := r.open("report"); err != nil {
		return err
	}
	defer os.RemoveAll(r.bins)
	return r.run(ctx, chosen, blocks)
}

// run measures the parts and writes the blocks. A part that cannot be measured, and a block that cannot be drawn, are left as
// they were.
func (r *runner) run(ctx context.Context, chosen []string, blocks []block) error {
	var failed []string
	start := time.Now()
	try := func(what string, do func() error) {
		began := time.Now()
		err := do()
		fmt.Fprintf(os.Stderr, "%s: %.0f s\n", what, time.Since(began).Seconds())
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: left as it was: %v\n", what, err)
			failed = append(failed, what)
		}
	}
	for _, p := range parts {
		of := func(set string) bool { return r.only == nil || slices.Contains(r.only, set) }
		if slices.Contains(chosen, p.name) && slices.ContainsFunc(r.sized(p.sets), of) && ctx.Err() == nil {
			try("measuring "+p.name, func() error { return r.measure(ctx, p) })
		}
	}
	for _, b := range blocks {
		if _, err := os.Stat(r.file(b.from)); err == nil && ctx.Err() == nil {
			try("drawing "+b.name, func() error { return r.draw(ctx, b) })
		}
	}
	fmt.Fprintf(os.Stderr, "%.0f s in all, with the measurements in %s\n", time.Since(start).Seconds(), r.raw)
	if failed != nil {
		return commands.Status{Text: strings.Join(failed, ", ") + ": left as it was, for the reasons above", Code: 3}
	}
	return ctx.Err()
}

// open is called in the directory scripts. name is that of the directory with the measurements.
func (r *runner) open(name string) (err error) {
	if r.root, err = filepath.Abs(".."); err != nil {
		return err
	}
	r.out, r.raw = r.root, filepath.Join(r.root, ".data", name)
	if r.quick {
		r.raw += "-quick"
		r.out, r.rounds, r.passes, r.runs = r.raw, min(r.rounds, 3), 1, 1
	}
	if err := os.MkdirAll(r.raw, 0o755); err != nil {
		return err
	}
	commit, _ := program.Output(context.Background(), r.root, "git", "describe", "--always", "--dirty", "--exclude", "*")
	r.stamp = record.Record{Commit: cmp.Or(commit, "unknown"), Date: time.Now().UTC().Format(time.DateOnly),
		Machine: host.Machine(filepath.Join(r.root, ".data"))}
	r.bins, err = os.MkdirTemp("", "report-")
	return err
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
func (r *runner) set(ctx context.Context, name string) (string, error) {
	dir := filepath.Join(r.root, ".data", "tickets_"+name)
	if name == "proc" {
		return "/proc", nil
	} else if _, err := os.Stat(dir + ".json"); err == nil {
		return dir, nil
	}
	layout, count, _ := strings.Cut(name, "_")
	if count == "1m" {
		return "", fmt.Errorf("go run ./tickets -out ../.data -layout %s -count 1m has not made the set", layout)
	}
	set, err := tickets.ParseSet(layout, count, 1)
	if err == nil {
		_, err = set.Generate(ctx, filepath.Dir(dir), nil)
	}
	return dir, err
}

// output runs the command bench, built with the tag of a build.
func (r *runner) output(ctx context.Context, build string, args ...string) (string, error) {
	build = cmp.Or(build, builds[0])
	binary := filepath.Join(r.bins, build)
	if _, err := os.Stat(binary); err != nil {
		if _, err := program.Output(ctx, "", "go", "build", "-o", binary, "-tags", strings.TrimSuffix("fileproc_"+build, "fileproc_linux"), "./bench"); err != nil {
			return "", err
		}
	}
	return program.Output(ctx, "", binary, args...)
}

// measure measures a part, or some of its sets, and keeps the measurements. A set that is missing is left out.
func (r *runner) measure(ctx context.Context, p part) error {
	var fresh, records []record.Record
	var text strings.Builder
	var missing error
	for _, set := range r.sized(p.sets) {
		if r.only != nil && !slices.Contains(r.only, set) {
			continue
		}
		dir := ""
		if set != "" {
			var err error
			if dir, err = r.set(ctx, set); err != nil {
				fmt.Fprintf(os.Stderr, "%s: %s is left out: %v\n", p.name, set, err)
				missing = err
				continue
			}
		}
		if p.text != nil {
			printed, err := p.text(r, ctx, dir)
			if err != nil {
				return err
			}
			text.WriteString(printed)
			continue
		}
		measured, err := r.measureSet(ctx, p, dir)
		if err != nil {
			return err
		}
		fresh = append(fresh, measured...)
	}
	if p.text != nil && missing == nil {
		return os.WriteFile(r.file(p.name), []byte(stampOf([]record.Record{r.stamp})+"\n\n"+text.String()), 0o644)
	} else if len(fresh) == 0 {
		return cmp.Or(missing, errors.New("nothing was measured"))
	}
	for i := range fresh {
		fresh[i].Commit, fresh[i].Date, fresh[i].Machine = r.stamp.Commit, r.stamp.Date, r.stamp.Machine
	}
	if old, err := r.load(p.name); err == nil && r.only != nil {
		records = slices.DeleteFunc(old, func(rec record.Record) bool { return slices.Contains(r.only, rec.Data) })
	}
	if err := record.Write(&text, append(records, fresh...)...); err != nil {
		return err
	}
	return os.WriteFile(r.file(p.name), []byte(text.String()), 0o644)
}

// load returns no records of a part that was not measured.
func (r *runner) load(name string) ([]record.Record, error) {
	text, err := os.ReadFile(r.file(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	return record.Read(bytes.NewReader(text))
}

// measureSet lets the builds of the table backends take turns, of which a different one goes first in each round. A pass over a
// million files takes as long as ten of others.
func (r *runner) measureSet(ctx context.Context, p part, dir string) (records []record.Record, err error) {
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
	run := func(build string, rounds int, args ...string) error {
		args = slices.Concat([]string{"floor"}, args, []string{"-json", "-pairs", fmt.Sprint(rounds), "-passes", fmt.Sprint(passes)})
		if dir != "" {
			args = append(args, "-dir", dir)
		}
		text, err := r.output(ctx, build, args...)
		if err != nil {
			return err
		}
		fresh, err := record.Read(strings.NewReader(text))
		for i := range fresh {
			fresh[i].Table = p.name
		}
		records = append(records, fresh...)
		return err
	}
	for _, c := range p.floor {
		args := strings.Fields(c)
		switch {
		case p.name == "backends":
			for i := range rounds * len(builds) {
				build := builds[(i/len(builds)+i)%len(builds)]
				err = cmp.Or(err, run(build, 1, append(args, "-build", build)...))
			}
			continue
		case c == "-case names" && !strings.Contains(dir, "_flat_"):
			continue // it lists a single directory
		case p.name == "programs":
			count := filepath.Join(r.bins, "count")
			_, err = program.Output(ctx, "", "go", "build", "-o", count, "./bench/internal/peers/count")
			args = append(args, "-count", count)
		}
		err = cmp.Or(err, run(p.build, rounds, args...))
	}
	return records, err
}

// cold, cache and mixedLoad run the scripts of these names, and floorText a case of bench floor.
func (r *runner) cold(ctx context.Context, _ string) (string, error) {
	if r.quick {
		return "", errors.New("there is no quick form; scripts/bench_cold.sh takes a pattern")
	}
	return program.Output(ctx, "", "./bench_cold.sh", "-runs", fmt.Sprint(r.runs))
}

func (r *runner) cache(ctx context.Context, _ string) (string, error) {
	args := []string{"-rounds", fmt.Sprint(r.rounds)}
	if r.quick {
		return program.Output(ctx, "", "./bench_cache.sh", append(args, "-sample", "1ms")...)
	}
	return program.Output(ctx, "", "./bench_cache.sh", append(args, "--plot")...) // into docs/img
}

// loads are the stores of the mixed load, and the flags and the picture of each.
var loads = []struct{ name, store, flags, alt string }{
	{"load", "files", "", "Percentiles of the latency through fileproc and through package os"},
	{"load-s3", "S3", " -backend s3 -files 200 -own 8", "Percentiles of the latency through fileproc and through io/fs, on an S3 server"},
}

func (r *runner) mixedLoad(ctx context.Context, _ string) (string, error) {
	stages := "25:12s,100:12s,25:12s"
	if r.quick {
		stages = "4:2s"
	}
	for _, l := range loads {
		flags := strings.Fields("-threshold checks:rate>=0 -slice 500ms -stages " + stages + l.flags)
		if _, err := program.Output(ctx, "", "./bench_load.sh", append(flags, "-out", filepath.Join(r.raw, l.name+".json"))...); err != nil {
			return "", err
		}
	}
	return "", nil
}

func floorText(name string, cold bool) func(*runner, context.Context, string) (string, error) {
	return func(r *runner, ctx context.Context, dir string) (string, error) {
		if cold {
			if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0o200); err != nil {
				return "", err
			}
		}
		return r.output(ctx, "", "floor", "-case", name, "-dir", dir)
	}
}
