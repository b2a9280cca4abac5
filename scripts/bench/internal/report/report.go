// Package report measures what the pages show, and writes it into them: between the lines <!-- report: NAME --> and <!-- end -->
// of a page, and into the pictures beside it. scripts/bench_report.sh runs it.
package report

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

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
	sets   []string
	rounds int      // at most; 0: as many as others
	cases  []string // of the command floor; nil: the table name of the command peers
	// measure returns records. If it is nil, they are those of the sets. text returns what a command has printed, and is used
	// in place of both.
	measure func(*runner, context.Context, part) ([]record.Record, error)
	text    func(*runner, context.Context) (string, error)
}

var parts = []part{
	{name: "peers", sets: large},
	{name: "programs", sets: large},
	{name: "backends", sets: slices.Concat(smallSets, large, huge), measure: (*runner).measureBackends},
	{name: "readdir", sets: []string{"proc", "flat_1k", "flat_5k", "flat_100k", "flat_1m"}},
	{name: "floor", sets: slices.Concat(large, huge), cases: []string{"whole", "prefix", "stat", "names"}},
	{name: "bare", sets: large[:1], rounds: 5, cases: []string{"bare"}},
	{name: "fio", sets: large[:1], rounds: 5, cases: []string{"fio"}},
	{name: "sizes", sets: slices.Concat(sizeSets, huge[:1])},
	{name: "workers", sets: large[:1]},
	{name: "ablation", sets: large[:1]},
	{name: "cold", text: (*runner).cold},
	{name: "targets", measure: (*runner).measureTargets},
	{name: "cache", text: (*runner).cache},
	{name: "load", text: (*runner).mixedLoad},
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

// A status is an error with an exit status.
type status struct {
	text string
	code int
}

func (s status) Error() string { return s.text }
func (s status) ExitCode() int { return s.code }

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
	chosen := strings.Split(*only, ",")
	if *only == "none" {
		chosen = nil
	}
	if *sets != "" {
		r.only = strings.Split(*sets, ",")
	}
	for _, name := range chosen {
		if !slices.Contains(names, name) {
			return fmt.Errorf("unknown part %q: want some of %v", name, names)
		}
	}
	for _, set := range r.only {
		if !slices.ContainsFunc(parts, func(p part) bool { return slices.Contains(chosen, p.name) && slices.Contains(r.sized(p.sets), set) }) {
			return fmt.Errorf("none of these parts measures a set %q", set)
		}
	}
	if err := r.open("report"); err != nil {
		return err
	}
	defer r.close()
	return r.run(ctx, chosen)
}

// run measures the parts and writes all blocks. A part that cannot be measured, and a block that cannot be drawn, are left as
// they were.
func (r *runner) run(ctx context.Context, chosen []string) error {
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
	for _, name := range chosen {
		try("measuring "+name, func() error { return r.measure(ctx, name, r.only) })
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	for _, b := range blocks {
		if _, err := os.Stat(filepath.Join(r.raw, b.from)); err == nil {
			try("drawing "+b.name, func() error { return r.draw(ctx, b) })
		}
	}
	fmt.Fprintf(os.Stderr, "%.0f s in all, with the pages in %s\n", time.Since(start).Seconds(), r.out)
	if failed != nil {
		return status{strings.Join(failed, ", ") + ": left as it was, for the reasons above", 3}
	}
	return nil
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
	commit, err := exec.Command("git", "-C", r.root, "describe", "--always", "--dirty", "--exclude", "*").Output()
	if err != nil {
		commit = []byte("unknown")
	}
	r.stamp = record.Record{Commit: strings.TrimSpace(string(commit)), Date: time.Now().UTC().Format(time.DateOnly),
		Machine: host.Machine(filepath.Join(r.root, ".data"))}
	r.bins, err = os.MkdirTemp("", "report-")
	return err
}

func (r *runner) close() { os.RemoveAll(r.bins) }

// sized returns the sets that --quick measures, or all.
func (r *runner) sized(sets []string) (sized []string) {
	for _, set := range sets {
		if r.quick && (strings.HasSuffix(set, "_1m") || strings.HasSuffix(set, "_10k")) {
			continue
		} else if r.quick {
			set = strings.Replace(set, "_100k", "_5k", 1)
		}
		if !slices.Contains(sized, set) {
			sized = append(sized, set)
		}
	}
	return sized
}

func (r *runner) set(name string) string {
	if name == "proc" {
		return "/proc"
	}
	return filepath.Join(r.root, ".data", "tickets_"+name)
}

// make makes a set that is missing, but none of a million files.
func (r *runner) make(ctx context.Context, name string) error {
	if _, err := os.Stat(r.set(name) + ".json"); err == nil || name == "proc" {
		return nil
	}
	layout, count, _ := strings.Cut(name, "_")
	if count == "1m" {
		return fmt.Errorf("go run ./tickets -out ../.data -layout %s -count 1m has not made the set", layout)
	}
	set, err := tickets.ParseSet(layout, count, 1)
	if err == nil {
		_, err = set.Generate(ctx, filepath.Dir(r.set(name)), nil)
	}
	return err
}

// flags returns how often the command floor measures a set, in which a pass over a million files takes as long as ten of others.
func (r *runner) flags(set string) []string {
	passes := r.passes
	if strings.HasSuffix(set, "_1m") {
		passes = 1
	}
	return []string{"-json", "-pairs", fmt.Sprint(r.rounds), "-passes", fmt.Sprint(passes)}
}

// output runs the command bench, built with the tag of a build.
func (r *runner) output(ctx context.Context, build string, args ...string) (string, error) {
	program := filepath.Join(r.bins, build)
	if _, err := os.Stat(program); err != nil {
		tags := ""
		if build != builds[0] {
			tags = "fileproc_" + build
		}
		if text, err := exec.CommandContext(ctx, "go", "build", "-tags", tags, "-o", program, "./bench").CombinedOutput(); err != nil {
			return "", fmt.Errorf("%w: %s", err, text)
		}
	}
	return outputOf(ctx, program, args...)
}

// outputOf lets the program end by itself after an interrupt, since it may have mounted something.
func outputOf(ctx context.Context, program string, args ...string) (string, error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stderr, cmd.WaitDelay = &stderr, 20*time.Second
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	out, err := cmd.Output()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
		return "", fmt.Errorf("%s %s: %w: %s", filepath.Base(program), strings.Join(args[:min(3, len(args))], " "), err, lines[len(lines)-1])
	}
	return string(out), nil
}

// records returns what the command bench prints, as records of the table.
func (r *runner) records(ctx context.Context, table, build string, args ...string) ([]record.Record, error) {
	text, err := r.output(ctx, build, args...)
	if err != nil {
		return nil, err
	}
	records, err := record.Read(strings.NewReader(text))
	for i := range records {
		records[i].Table = table
	}
	return records, err
}

// measure measures a part, or some of its sets, and keeps the measurements.
func (r *runner) measure(ctx context.Context, name string, only []string) error {
	p := parts[slices.IndexFunc(parts, func(p part) bool { return p.name == name })]
	if p.text != nil {
		text, err := p.text(r, ctx)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(r.raw, name+".md"), []byte(stampOf([]record.Record{r.stamp})+"\n\n"+text), 0o644)
	}
	measure := p.measure
	if measure == nil {
		measure = (*runner).measureSets
	}
	p.sets = slices.DeleteFunc(r.sized(p.sets), func(set string) bool { return only != nil && !slices.Contains(only, set) })
	fresh, err := measure(r, ctx, p)
	if err != nil {
		return err
	}
	if len(fresh) == 0 {
		return errors.New("nothing was measured")
	}
	for i := range fresh {
		fresh[i].Commit, fresh[i].Date, fresh[i].Machine = r.stamp.Commit, r.stamp.Date, r.stamp.Machine
	}
	records, err := r.load(name)
	if err != nil || only == nil {
		records = nil
	}
	records = slices.DeleteFunc(records, func(rec record.Record) bool { return slices.Contains(only, rec.Data) })
	var text bytes.Buffer
	if err := record.Write(&text, append(records, fresh...)...); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.raw, name+".txt"), text.Bytes(), 0o644)
}

func (r *runner) load(name string) ([]record.Record, error) {
	text, err := os.ReadFile(filepath.Join(r.raw, name+".txt"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	return record.Read(bytes.NewReader(text))
}

func (r *runner) measureSets(ctx context.Context, p part) (records []record.Record, err error) {
	if p.rounds > 0 {
		defer func(rounds int) { r.rounds = rounds }(r.rounds)
		r.rounds = min(r.rounds, p.rounds)
	}
	for _, set := range p.sets {
		if err := r.make(ctx, set); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %s is left out: %v\n", p.name, set, err)
			continue
		}
		rounds := r.rounds
		if strings.HasSuffix(set, "_1m") {
			rounds = min(rounds, 3) // a pass takes seconds
		}
		runs := [][]string{{"peers", "-table", p.name, "-rounds", fmt.Sprint(rounds), "-count", filepath.Join(r.bins, "count"), r.set(set)}}
		if p.cases != nil {
			runs = nil
		}
		for _, c := range p.cases {
			if c != "names" || strings.HasPrefix(set, "flat_") { // the case lists a single directory
				runs = append(runs, append([]string{"floor", "-case", c, "-dir", r.set(set)}, r.flags(set)...))
			}
		}
		if p.name == "programs" {
			err = exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(r.bins, "count"), "./bench/internal/peers/count").Run()
		}
		for _, args := range runs {
			fresh, errRun := r.records(ctx, p.name, builds[0], args...)
			if err = errors.Join(err, errRun); err != nil {
				return nil, err
			}
			records = append(records, fresh...)
		}
	}
	return records, nil
}

// measureBackends lets the builds take turns. A different one goes first in each round.
func (r *runner) measureBackends(ctx context.Context, p part) (records []record.Record, err error) {
	for _, set := range p.sets {
		if err := r.make(ctx, set); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %s is left out: %v\n", p.name, set, err)
			continue
		}
		for round := range r.rounds {
			for i := range builds {
				build := builds[(i+round)%len(builds)]
				fresh, err := r.records(ctx, p.name, build, "peers", "-table", p.name, "-rounds", "1", "-build", build, r.set(set))
				if err != nil {
					return nil, err
				}
				records = append(records, fresh...)
			}
		}
	}
	return records, nil
}
