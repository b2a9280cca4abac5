//go:build linux

package regress

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// prove shows that the comparison finds a slowdown that was planted in the hot path, and that it finds none between two
// builds of the same commit. It measures HEAD, not what was changed since.
func prove(f *flag.FlagSet) func(clone) {
	chosen := caseFlags(f, "flat_5k", "whole")
	repeats := f.Int("repeats", 20, "`times` that each comparison is made")
	runs := f.Int("runs", 30, "`samples` of each side in a comparison")
	percent := f.Float64("percent", 10, "the slowdown that is planted against a revision; three times as much against a baseline")
	baseline := f.Bool("baseline", false, "prove the short comparison with the baseline instead; the baseline must be there")
	return func(c clone) {
		bc := chosen()
		if *repeats < 1 || *runs < minRuns || *percent <= 0 {
			failf("want --repeats of at least 1, --runs of at least %d and --percent above 0", minRuns)
		}
		with := c.buildTags("") // those of GOFLAGS
		if *baseline {
			c.comparable("baseline", with)
			*percent *= 3
		}
		bc.ensure(c)
		old, binary := c.made("one.test"), c.made("other.test")
		one := c.buildRevision("HEAD", with, old)
		clean := c.checkout("HEAD", with, "other")
		turns := c.calibrate(one, old, bc, *percent/100)
		fmt.Printf("%v: %d turns of a loop for each file are %.3g %% of the time\n", bc, turns, *percent)
		slow := c.plantLoop(clean, turns)
		attempts(*repeats, slow, clean, func(src source) {
			if *baseline {
				sel := selection{shortSizes, shortLayouts, shortModes, *runs}
				comparison{clone: c, cases: sel.cases(c), runs: *runs, asked: true, more: shortMore}.withRecord(src, baselineFile)
				return
			}
			c.build(src, binary)
			comparison{clone: c, cases: []benchCase{bc}, runs: *runs, more: moreSamples}.withBinary(old, binary)
		})
	}
}

// attempts makes the attempts in turn: the slow source must fail each time, the clean one never.
func attempts(repeats int, slow, clean source, attempt func(source)) {
	hits := map[string]int{}
	start := time.Now()
	for i := range repeats {
		for _, side := range []struct {
			name string
			src  source
		}{{"planted", slow}, {"same commit", clean}} {
			fmt.Printf("\n%s, %d of %d\n", side.name, i+1, repeats)
			err := try(func() { attempt(side.src) })
			if errors.Is(err, errSlower) {
				hits[side.name]++
				fmt.Println(err)
				err = nil
			}
			check(err)
		}
	}
	found, alarms := hits["planted"], hits["same commit"]
	fmt.Printf("\nplanted slowdown found %d times of %d; false alarms %d of %d; %.0f s\n",
		found, repeats, alarms, repeats, time.Since(start).Seconds())
	if found != repeats || alarms != 0 {
		failf("the proof does not hold")
	}
}

// calibrate returns how many turns of the planted loop cost the given part of a file's time. A large plant is measured,
// since its effect is large compared with the noise.
func (c clone) calibrate(src source, binary string, bc benchCase, part float64) (turns int) {
	const many, samples = 2000, 40
	clean, slow := newSide(binary), newSide(c.made("slow.test"))
	c.build(c.plantLoop(src, many), slow.binary)
	c.measureAll([]benchCase{bc}, samples, clean, slow)
	cost := pairedChange(clean.cases[bc.String()].Time, slow.cases[bc.String()].Time)
	if cost.Lo <= 0 {
		failf("the planted loop cannot be seen at all: the machine is too noisy")
	}
	return int(part / cost.Estimate * many)
}

// plantLoop adds a loop of so many turns to what is done for each file.
func (c clone) plantLoop(src source, turns int) source {
	// The variable keeps the compiler from leaving the loop out; it is no global one, which the workers would share.
	const loop = "x := uint64(i)\nfor range %d { x = x*6364136223846793005 + 1 }\nif x == 42 { return }\n"
	return c.plant(src, fmt.Sprintf(loop, turns), "")
}

// plant adds code to what is done for each file, and declarations after the imports.
func (c clone) plant(src source, code, declarations string) source {
	const visit = "func (w *worker) visit("
	before, after, ok := strings.Cut(string(must(os.ReadFile(filepath.Join(src.dir, plantedFile)))), visit)
	head, body, ok2 := strings.Cut(after, "{\n")
	if !ok || !ok2 {
		failf("%s has no %s…) to plant a slowdown in", plantedFile, visit)
	}
	f := must(os.CreateTemp(c.tmp, "planted-*.go"))
	defer f.Close()
	must(f.WriteString(before + declarations + visit + head + "{\n" + code + body))
	src.planted = f.Name()
	return src
}
