//go:build linux

package regress

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"

	"github.com/fileproc/fileproc/scripts/internal/measure"
)

const (
	// Limits above which a significant change fails, in percent. The two sides of a comparison with a revision are measured
	// in turn; a baseline is from another hour, in which time over floor was found to differ by several percent.
	revisionLimit = 5
	baselineLimit = 20
	// otherMachine is by what the limit is multiplied if the baseline is from another machine and its commit is not here
	// to be measured: there the system calls have another share of the time.
	otherMachine = 2

	// moreSamples is how many times as many samples are taken again, at most, of what is undecided.
	moreSamples = 3

	shortSizes = "5k"
	shortModes = "frontmatter,whole,stat" // names take too little time to be steady
)

// compare measures the working tree against something older.
func compare(ctx context.Context, repo repository, args []string) error {
	var sel selection
	flags := newFlags("compare")
	sel.flags(flags, 30)
	against := flags.String("against", "baseline", "what to compare with: baseline, prev (the newest record) or a `revision`")
	limit := flags.Float64("fail-above", 0, "`percent` above which a significant change fails (default: 5 against a revision, 20 otherwise)")
	tagsFlag := buildTagsFlag(flags)
	short := flags.Bool("short", false, "the short form, for CI: only 5,000 files, and not their names alone")
	if err := parse(flags, args); err != nil {
		return err
	}
	if *limit < 0 || math.IsNaN(*limit) {
		return fmt.Errorf("--fail-above %v: want a percentage above 0", *limit)
	}
	if *short {
		if sel.sizes != "" || sel.modes != allModes {
			return errors.New("--short chooses the cases: leave out --sizes and --modes")
		}
		sel.sizes, sel.modes = shortSizes, shortModes
	}
	src, err := repo.workingTree(ctx, *tagsFlag)
	if err != nil {
		return err
	}
	if err := repo.comparable(ctx, *against, src.tags); err != nil { // before data is made and time is spent
		return err
	}
	cases, err := sel.cases(ctx, repo)
	if err != nil {
		return err
	}
	c := comparison{repo: repo, cases: cases, runs: sel.runs, limit: *limit / 100, asked: sel.sizes != "", more: moreSamples}
	if *short {
		c.more = 1 // to end in three minutes, come what may
	}
	switch *against {
	case "baseline":
		return c.withRecord(ctx, src, baselineFile)
	case "prev":
		return c.withRecord(ctx, src, historyFile)
	}
	return c.withRevision(ctx, src, *against)
}

// comparable says what is wrong with the other side of a comparison, if that can be seen at once.
func (repo repository) comparable(ctx context.Context, against string, with tags) error {
	file, ok := map[string]string{"baseline": baselineFile, "prev": historyFile}[against]
	if !ok {
		_, err := repo.commit(ctx, against)
		return err
	}
	_, err := repo.entriesWith(with, file)
	return err
}

// A comparison measures the cases, and those that look slower a second time: only what is slower both times fails.
type comparison struct {
	repo  repository
	cases []benchCase
	runs  int
	limit float64 // 0: the usual one
	asked bool    // for these cases, and no fewer
	more  int     // times as many samples again, at most, of what is undecided
}

func (c comparison) withRevision(ctx context.Context, src source, rev string) error {
	tmp, err := os.MkdirTemp("", "regress-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	old, new := filepath.Join(tmp, "old.test"), filepath.Join(tmp, "new.test")
	counted := ""
	if slices.ContainsFunc(c.cases, benchCase.isCounted) {
		counted = filepath.Join(tmp, "count.test")
	}
	if err := c.repo.buildRevision(ctx, rev, src.tags, old, counted); err != nil {
		return err
	}
	if err := c.repo.build(ctx, src, new); err != nil {
		return err
	}
	fmt.Printf("working tree against %s, interleaved", rev)
	if src.tags != "" {
		fmt.Printf(", both with %v", src.tags)
	}
	fmt.Println()
	times := c.withBinary(ctx, old, new)
	if _, err := os.Stat(counted); err != nil || ctx.Err() != nil { // it was not built
		return times
	}
	before, err := c.repo.newCounter(ctx, counted).countAll(ctx, c.cases)
	if err != nil {
		return errors.Join(times, err)
	}
	return errors.Join(c.counts(ctx, src, before), times)
}

// withBinary compares two binaries, measured in turn.
func (c comparison) withBinary(ctx context.Context, old, new string) error {
	if c.limit == 0 {
		c.limit = revisionLimit / 100.0
	}
	inTurn := func(cases []benchCase) ([]verdict, error) { return c.inTurn(ctx, cases, old, new) }
	return c.confirmed(inTurn, inTurn)
}

func (c comparison) inTurn(ctx context.Context, cases []benchCase, old, new string) (verdicts []verdict, err error) {
	o, n := newMeasurement(old), newMeasurement(new)
	return c.decide(ctx, cases, func(bc benchCase) verdict {
		a, b := o.cases[bc.String()], n.cases[bc.String()]
		return verdict{bc, a, b, pairedChange(a.Time, b.Time)}
	}, o, n)
}

// decide takes samples, and more of the cases on which they do not decide: a noisy machine has wide intervals.
func (c comparison) decide(ctx context.Context, cases []benchCase, judge func(benchCase) verdict, of ...*measurement) (verdicts []verdict, err error) {
	undecided := cases
	for range 1 + c.more {
		if err := c.repo.measureAll(ctx, undecided, c.runs, of...); err != nil {
			return nil, err
		}
		undecided = slices.DeleteFunc(slices.Clone(undecided), func(bc benchCase) bool { return judge(bc).change.decides(c.limit) })
	}
	for _, bc := range cases {
		verdicts = append(verdicts, judge(bc))
	}
	return verdicts, nil
}

// withRecord compares a source with the entries of a file that suit it best. Time over floor is compared, and what then
// looks slower is measured in turn with the commit of the entries, if git has it: that no mood of the machine can spoil. On
// a machine unlike theirs this is done at once.
func (c comparison) withRecord(ctx context.Context, src source, file string) (err error) {
	entries, err := c.repo.entriesWith(src.tags, file)
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "regress-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	binary, oldBinary := filepath.Join(tmp, "new.test"), filepath.Join(tmp, "old.test")
	if err := c.repo.build(ctx, src, binary); err != nil {
		return err
	}
	// The machine is known only when the first case ran: its result says what the processor is.
	probe := newMeasurement(binary)
	if err := c.repo.sample(ctx, probe, c.cases[0]); err != nil {
		return err
	}
	here, err := c.repo.meta(ctx, probe.cpu, "", src.tags)
	if err != nil {
		return err
	}
	old, err := choose(entries, here, file)
	if err != nil {
		return err
	}
	if c.cases, err = old.having(c.cases, file, c.asked); err != nil {
		return err
	}
	fmt.Printf("old: %v\nnew: %v\n", old.meta, here)

	before, why := countsLike(entries, here)
	if why != nil {
		fmt.Printf("no counts are compared: %v\n", why)
	} else {
		defer func() {
			if ctx.Err() == nil {
				err = errors.Join(c.counts(ctx, src, before), err) // a larger count goes before what cannot be told
			}
		}()
	}

	overFloor := func(cases []benchCase) ([]verdict, error) {
		n := newMeasurement(binary)
		return c.decide(ctx, cases, func(bc benchCase) verdict {
			a, b := old.Cases[bc.String()], n.cases[bc.String()]
			return verdict{bc, a, b, changeOf(a.Ratio, b.Ratio)}
		}, n)
	}
	built := sync.OnceValue(func() error {
		if old.Dirty {
			return errors.New("the record is of a dirty tree")
		}
		return c.repo.buildRevision(ctx, old.Commit, old.BuildTags, oldBinary, "")
	})
	inTurn := func(cases []benchCase) ([]verdict, error) {
		if err := built(); err != nil {
			fmt.Printf("The commit of the record cannot be measured beside: %v.\n", err)
			verdicts, err := overFloor(cases)
			if err == nil {
				err = busy(verdicts)
			}
			return verdicts, err
		}
		fmt.Println("In turn with the commit of the record:")
		return c.inTurn(ctx, cases, oldBinary, binary)
	}

	if c.limit == 0 {
		c.limit = baselineLimit / 100.0
	}
	switch {
	case old.sameMachine(here):
		return c.confirmed(overFloor, inTurn)
	case built() == nil:
		fmt.Println("These are different machines.")
		return c.confirmed(inTurn, inTurn)
	case old.IOUring != here.IOUring:
		return fmt.Errorf("%w: io_uring is to be had on one of the machines only, and git does not have the commit %.12s to measure it here", errCannotTell, old.Commit)
	}
	c.limit *= otherMachine
	fmt.Println("These are different machines: only time over floor can be compared.")
	return c.confirmed(overFloor, overFloor)
}

// counts compares the counts of a source with those of before.
func (c comparison) counts(ctx context.Context, src source, before map[string]counts) error {
	now, err := c.repo.countSource(ctx, src, c.cases)
	if err != nil {
		return err
	}
	return compareCounts(os.Stdout, before, now)
}

// busy is the error that the machine, which is like that of the record, has too much else to do: that has slowed down the
// floor, and need not have slowed down all else as much.
func busy(verdicts []verdict) error {
	const most = 1.25 // times as long as in the record
	for _, v := range verdicts {
		if times := measure.Median(v.new.Floor) / measure.Median(v.old.Floor); times > most {
			return fmt.Errorf("%w: the machine is busy, since the floor of %v takes %.1f times as long as in the record", errCannotTell, v.bc, times)
		}
	}
	return nil
}

// entriesWith returns the entries of a file that were built with these tags. Other builds are not comparable.
func (repo repository) entriesWith(want tags, file string) (same []entry, err error) {
	entries, err := repo.readEntries(file)
	if err != nil {
		return nil, err
	}
	if len(entries) == 0 {
		return nil, fmt.Errorf("there is no .benchmarks/%s to compare with: scripts/bench_regress.sh makes it (with --update-baseline the baseline)", file)
	}
	for _, e := range entries {
		if e.BuildTags == want {
			same = append(same, e)
		}
	}
	if same == nil {
		newest := entries[len(entries)-1]
		return nil, fmt.Errorf("the working tree is built with %v, but no entry of .benchmarks/%s is; the newest was built with %v", want, file, newest.BuildTags)
	}
	return same, nil
}

// having returns the cases that the entry has too: all of them if they were asked for.
func (e entry) having(cases []benchCase, file string, asked bool) (both []benchCase, err error) {
	for _, bc := range cases {
		switch {
		case e.Cases[bc.String()] != nil:
			both = append(both, bc)
		case asked:
			return nil, fmt.Errorf(".benchmarks/%s has no case %v: measure it with scripts/bench_regress.sh --sizes …, or choose with --sizes", file, bc)
		default:
			fmt.Printf("left out, since .benchmarks/%s does not have it: %v\n", file, bc)
		}
	}
	if both == nil {
		return nil, fmt.Errorf(".benchmarks/%s has none of these cases: measure them with scripts/bench_regress.sh --sizes …", file)
	}
	return both, nil
}

// choose returns the newest entry from a machine like this one, or the newest of all, with the samples of all entries of
// the same commit from the same machine: they are from several hours.
func choose(entries []entry, here meta, file string) (entry, error) {
	chosen := entries[len(entries)-1]
	for _, e := range entries {
		if e.sameMachine(here) {
			chosen = e
		}
	}
	if chosen.Dirty {
		if file == baselineFile {
			return chosen, fmt.Errorf(".benchmarks/%s has an entry of a dirty tree, which is no baseline: measure a commit with scripts/bench_regress.sh --update-baseline", file)
		}
		return chosen, nil
	}
	pooled := map[string]*series{}
	for _, e := range entries {
		if e.Dirty || e.Commit != chosen.Commit || !e.sameMachine(chosen.meta) {
			continue
		}
		for name, s := range e.Cases {
			if pooled[name] == nil {
				pooled[name] = &series{}
			}
			pooled[name].add(s)
		}
	}
	chosen.Cases = pooled
	return chosen, nil
}

// A verdict is on one case.
type verdict struct {
	bc       benchCase
	old, new *series
	change   change
}

// confirmed measures the cases, and what looks slower a second time.
func (c comparison) confirmed(first, second func([]benchCase) ([]verdict, error)) error {
	cases := c.cases
	for i, measure := range []func([]benchCase) ([]verdict, error){first, second} {
		verdicts, err := measure(cases)
		if err != nil {
			return err
		}
		printVerdicts(verdicts, c.limit)
		cases = nil
		for _, v := range verdicts {
			if v.change.above(c.limit) {
				cases = append(cases, v.bc)
			}
		}
		if len(cases) == 0 {
			return nil
		}
		if i == 0 {
			fmt.Println("What looks slower is measured again.")
		}
	}
	var names []string
	for _, bc := range cases {
		names = append(names, bc.String())
	}
	return fmt.Errorf("%w, twice by more than %.3g %%: %s", errSlower, c.limit*100, strings.Join(names, ", "))
}

func printVerdicts(verdicts []verdict, limit float64) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "case\told ns/file\tover floor\tnew ns/file\tover floor\tchange\t95 % interval\tp\tsamples\t\t")
	for _, v := range verdicts {
		mark := ""
		switch {
		case v.change.above(limit):
			mark = "slower"
		case v.change.P >= 1-confidence:
			mark = "~"
		}
		fmt.Fprintf(w, "%v\t%.0f\t%.3f\t%.0f\t%.3f\t%+.1f %%\t%+.1f to %+.1f\t%.3f\t%d\t%s\t\n", v.bc,
			summary(v.old.Time).Center, summary(v.old.Ratio).Center, summary(v.new.Time).Center, summary(v.new.Ratio).Center,
			v.change.Estimate*100, v.change.Lo*100, v.change.Hi*100, v.change.P, len(v.new.Time), mark)
	}
	w.Flush()
}
