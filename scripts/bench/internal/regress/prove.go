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
	repeats := f.Int("repeats", 20, "`times` that each comparison is made")
	runs := f.Int("runs", 30, "`samples` of each side in a comparison")
	baseline := f.Bool("baseline", false, "prove the short comparison with the baseline instead; the baseline must be there")
	return func(c clone) {
		failIf(*repeats < 1 || *runs < minRuns, "want --repeats of at least 1 and --runs of at least %d", minRuns)
		percent, with := 10.0, c.buildTags("")
		bc := newCase("flat_5k", "whole")
		if *baseline {
			c.entriesWith(with, baselineFile)
			percent = 30
		}
		bc.ensure(c)
		old, binary := c.made("one.test"), c.made("other.test")
		one := c.buildRevision("HEAD", with, old)
		clean := c.checkout("HEAD", with, "other")
		turns := c.calibrate(one, old, bc, percent/100)
		fmt.Printf("%v: %d turns of a loop for each file are %.3g %% of the time\n", bc, turns, percent)
		sides := []struct {
			name string
			src  source
			hits int // times that it was found to be slower
		}{{name: "planted", src: c.plantLoop(clean, turns)}, {name: "same commit", src: clean}}
		start := time.Now()
		for i := range 2 * *repeats {
			s := &sides[i%2]
			fmt.Printf("\n%s, %d of %d\n", s.name, i/2+1, *repeats)
			err := try(func() {
				if *baseline {
					comparison{c, selection{shortSizes, shortModes, *runs}, 0, shortMore}.withRecord(s.src, baselineFile)
				} else {
					c.build(s.src, binary)
					comparison{c, selection{runs: *runs}, 0, moreSamples}.withBinary([]benchCase{bc}, old, binary)
				}
			})
			if errors.Is(err, errSlower) {
				s.hits++
				fmt.Println(err)
			} else {
				check(err)
			}
		}
		fmt.Printf("\nplanted slowdown found %d times of %d; false alarms %d of %d; %.0f s\n",
			sides[0].hits, *repeats, sides[1].hits, *repeats, time.Since(start).Seconds())
		failIf(sides[0].hits != *repeats || sides[1].hits != 0, "the proof does not hold")
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
	failIf(cost.Lo <= 0, "the planted loop cannot be seen at all: the machine is too noisy")
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
	failIf(!ok || !ok2, "%s has no %s…) to plant a slowdown in", plantedFile, visit)
	f := must(os.CreateTemp(c.tmp, "planted-*.go"))
	defer f.Close()
	must(f.WriteString(before + declarations + visit + head + "{\n" + code + body))
	src.planted = f.Name()
	return src
}
