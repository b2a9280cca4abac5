//go:build linux

package regress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// prove shows that the comparison finds a slowdown that was planted in the hot path, and that it finds none between two
// builds of the same commit. It measures HEAD, not what was changed since.
func prove(ctx context.Context, repo repository, args []string) error {
	flags := newFlags("prove")
	repeats := flags.Int("repeats", 20, "`times` that each comparison is made")
	runs := flags.Int("runs", 30, "`samples` of each side in a comparison")
	name := flags.String("case", "flat_5k", "the `set`")
	mode := flags.String("mode", "whole", "what is read of each file")
	percent := flags.Float64("percent", 10, "the slowdown that is planted against a revision; three times as much against a baseline")
	baseline := flags.Bool("baseline", false, "prove the short comparison with the baseline instead; the baseline must be there")
	if err := parse(flags, args); err != nil {
		return err
	}
	layout, size, _ := strings.Cut(*name, "_")
	bc, err := newCase(layout, size, *mode)
	if err != nil {
		return err
	}
	if *repeats < 1 || *runs < minRuns || *percent <= 0 {
		return fmt.Errorf("want --repeats of at least 1, --runs of at least %d and --percent above 0", minRuns)
	}
	with, err := repo.buildTags(ctx, "") // those of GOFLAGS
	if err != nil {
		return err
	}
	if *baseline {
		if err := repo.comparable(ctx, "baseline", with); err != nil {
			return err
		}
	}
	if err := bc.ensure(ctx, repo); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "regress-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	p := proof{repo: repo, bc: bc, tmp: tmp}
	one := source{dir: filepath.Join(tmp, "one"), tags: with}
	clean := source{dir: filepath.Join(tmp, "other"), tags: with}
	for _, side := range []string{"one", "other"} {
		remove, err := repo.checkout(ctx, "HEAD", filepath.Join(tmp, side))
		if err != nil {
			return err
		}
		defer remove()
	}
	if *baseline {
		*percent *= 3
	}
	turns, err := p.calibrate(ctx, one, *percent/100)
	if err != nil {
		return err
	}
	fmt.Printf("%v: %d turns of a loop for each file are %.3g %% of the time\n", bc, turns, *percent)
	c := comparison{repo: repo, cases: []benchCase{bc}, runs: *runs, asked: true, more: moreSamples}
	slow, err := p.plant(clean, turns)
	if err != nil {
		return err
	}
	attempt := func(src source) error { return c.withRecord(ctx, src, baselineFile) }
	if *baseline {
		short := selection{sizes: shortSizes, layouts: "flat,nested1", modes: shortModes, runs: *runs}
		if c.cases, err = short.cases(ctx, repo); err != nil {
			return err
		}
		c.more = 1
	} else {
		old, new := filepath.Join(tmp, "old.test"), filepath.Join(tmp, "new.test")
		if err := repo.build(ctx, one, old); err != nil {
			return err
		}
		attempt = func(src source) error {
			if err := repo.build(ctx, src, new); err != nil {
				return err
			}
			return c.withBinary(ctx, old, new)
		}
	}
	return p.count(*repeats, attempt, clean, slow)
}

type proof struct {
	repo repository
	bc   benchCase
	tmp  string
}

// count makes the attempts in turn: the slow source must fail each time, the clean one never.
func (p proof) count(repeats int, attempt func(source) error, clean, slow source) error {
	found, alarms := 0, 0
	start := time.Now()
	for i := range repeats {
		for _, side := range []struct {
			name string
			src  source
			hits *int
		}{{"planted", slow, &found}, {"same commit", clean, &alarms}} {
			fmt.Printf("\n%s, %d of %d\n", side.name, i+1, repeats)
			err := attempt(side.src)
			switch {
			case errors.Is(err, errSlower):
				*side.hits++
				fmt.Println(err)
			case err != nil:
				return err
			}
		}
	}
	fmt.Printf("\nplanted slowdown found %d times of %d; false alarms %d of %d; %.0f s\n", found, repeats, alarms, repeats, time.Since(start).Seconds())
	if found != repeats || alarms != 0 {
		return errors.New("the proof does not hold")
	}
	return nil
}

// calibrate returns how many turns of the planted loop cost the given part of a file's time. A large plant is measured,
// since its effect is large compared with the noise.
func (p proof) calibrate(ctx context.Context, src source, part float64) (int, error) {
	const many = 2000
	planted, err := p.plant(src, many)
	if err != nil {
		return 0, err
	}
	clean, slow := newMeasurement(filepath.Join(p.tmp, "clean.test")), newMeasurement(filepath.Join(p.tmp, "slow.test"))
	if err := p.repo.build(ctx, src, clean.binary); err != nil {
		return 0, err
	}
	if err := p.repo.build(ctx, planted, slow.binary); err != nil {
		return 0, err
	}
	const samples = 40
	if err := p.repo.measureAll(ctx, []benchCase{p.bc}, samples, clean, slow); err != nil {
		return 0, err
	}
	c := pairedChange(clean.cases[p.bc.String()].Time, slow.cases[p.bc.String()].Time)
	if c.Lo <= 0 {
		return 0, errors.New("the planted loop cannot be seen at all: the machine is too noisy")
	}
	return int(part / c.Estimate * many), nil
}

// plant adds a loop of so many turns to what is done for each file.
func (p proof) plant(src source, turns int) (source, error) {
	// The variable keeps the compiler from leaving the loop out; it is no global one, which the workers would share.
	return p.plantCode(src, fmt.Sprintf("x := uint64(i)\nfor range %d { x = x*6364136223846793005 + 1 }\nif x == 42 { return }\n", turns), "")
}

// plantCode adds code to what is done for each file, and declarations after the imports.
func (p proof) plantCode(src source, code, declarations string) (source, error) {
	text, err := os.ReadFile(filepath.Join(src.dir, plantedFile))
	if err != nil {
		return src, err
	}
	const visit = "func (w *worker) visit("
	before, after, ok := strings.Cut(string(text), visit)
	head, body, ok2 := strings.Cut(after, "{\n")
	if !ok || !ok2 {
		return src, fmt.Errorf("%s has no %s…) to plant a slowdown in", plantedFile, visit)
	}
	f, err := os.CreateTemp(p.tmp, "planted-*.go")
	if err != nil {
		return src, err
	}
	_, err = io.WriteString(f, before+declarations+visit+head+"{\n"+code+body)
	src.planted = f.Name()
	return src, errors.Join(err, f.Close())
}
