//go:build linux

package regress

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"text/tabwriter"
	"time"

	"golang.org/x/perf/benchmath"

	"github.com/fileproc/fileproc/scripts/internal/samples"
)

// record measures the working tree and keeps what it found.
func record(ctx context.Context, repo repository, args []string) error {
	var sel selection
	flags := newFlags("regress")
	sel.flags(flags, 20)
	tag := flags.String("tag", "", "a `word` for the name of the record")
	tagsFlag := buildTagsFlag(flags)
	update := flags.Bool("update-baseline", false, "append to .benchmarks/baseline.jsonl too, which is committed")
	if err := parse(flags, args); err != nil {
		return err
	}
	if !regexp.MustCompile(`^[A-Za-z0-9._-]*$`).MatchString(*tag) {
		return fmt.Errorf("--tag %q: want letters, digits, dots, dashes and underscores", *tag)
	}
	if _, dirty := repo.revision(ctx); dirty && *update {
		return errors.New("a dirty tree cannot be the baseline: commit first (git status says what)")
	}
	src, err := repo.workingTree(ctx, *tagsFlag)
	if err != nil {
		return err
	}
	for _, name := range []string{baselineFile, historyFile} { // before minutes are spent
		if _, err := repo.readEntries(name); err != nil {
			return err
		}
	}
	cases, err := sel.cases(ctx, repo)
	if err != nil {
		return err
	}
	e, text, err := repo.measure(ctx, src, cases, sel.runs, *tag)
	if err != nil {
		return err
	}
	if err := repo.keep(e, text, *update); err != nil {
		return err
	}
	printEntry(e, cases)
	return nil
}

// measure makes an entry of a source, and returns what the benchmarks printed too.
func (repo repository) measure(ctx context.Context, src source, cases []benchCase, runs int, tag string) (e entry, text string, err error) {
	tmp, err := os.MkdirTemp("", "regress-")
	if err != nil {
		return e, "", err
	}
	defer os.RemoveAll(tmp)
	m := newMeasurement(filepath.Join(tmp, "bench.test"))
	if err := repo.build(ctx, src, m.binary); err != nil {
		return e, "", err
	}
	if err := repo.measureAll(ctx, cases, runs, m); err != nil {
		return e, "", err
	}
	e.Cases = m.cases
	if e.Counts, err = repo.countSource(ctx, src, cases); err != nil {
		return e, "", err
	}
	e.meta, err = repo.meta(ctx, m.cpu, tag, src.tags)
	return e, m.text.String(), err
}

func (repo repository) keep(e entry, text string, update bool) error {
	at, err := time.Parse(time.RFC3339, e.Time)
	if err != nil {
		return err
	}
	dir := repo.records("regress-" + at.Format("20060102T150405Z"))
	if e.Tag != "" {
		dir += "-" + e.Tag
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	info, err := json.MarshalIndent(e.meta, "", "  ")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "meta.json"), append(info, '\n'), 0o644)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "bench.txt"), []byte(text), 0o644)
	}
	if err == nil {
		err = repo.appendEntry(historyFile, e, 0)
	}
	if err == nil && update {
		err = repo.appendEntry(baselineFile, e, baselineKeeps)
	}
	if err == nil {
		fmt.Println("recorded in .benchmarks/" + filepath.Base(dir))
	}
	return err
}

func printEntry(e entry, cases []benchCase) {
	fmt.Println(e.meta)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "case\tns/file\tfloor\tover floor\t± \t")
	for _, c := range cases {
		s := e.Cases[c.String()]
		ratio := summary(s.Ratio)
		fmt.Fprintf(w, "%v\t%.0f\t%.0f\t%.3f\t%s\t\n", c, summary(s.Time).Center, summary(s.Floor).Center, ratio.Center, ratio.PctRangeString())
	}
	w.Flush()
	for _, name := range slices.Sorted(maps.Keys(e.Counts)) {
		for _, kind := range slices.Sorted(maps.Keys(e.Counts[name])) {
			fmt.Printf("%s: %s %s: %.6g\n", name, kind, kinds[kind].unit, e.Counts[name][kind])
		}
	}
}

// summary is the median with its 95 % confidence interval.
func summary(values []float64) benchmath.Summary {
	return benchmath.AssumeNothing.Summary(samples.NewSample(values), confidence)
}
