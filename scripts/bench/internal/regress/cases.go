//go:build linux

package regress

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fileproc/fileproc/scripts/internal/tickets"
)

// A benchCase is one that both BenchmarkProcess and BenchmarkFloor have.
type benchCase struct {
	set  tickets.Set
	mode string
}

var (
	layouts = []string{"flat", "nested1", "nested3"}
	sizes   = []string{"1k", "5k", "100k", "1m"}
	modes   = []string{"frontmatter", "whole", "stat", "names"}

	allModes = strings.Join(modes, ",")
)

// madeHere is the size up to which a missing set is made without asking: it takes a second.
const madeHere = 5_000

const seed = 1

func newCase(layout, size, mode string) (benchCase, error) {
	switch {
	case !slices.Contains(layouts, layout) || !slices.Contains(sizes, size):
		return benchCase{}, fmt.Errorf("unknown case %q: want one of %s, then _, then one of %s", layout+"_"+size, strings.Join(layouts, ", "), strings.Join(sizes, ", "))
	case !slices.Contains(modes, mode):
		return benchCase{}, fmt.Errorf("unknown mode %q: want one of %s", mode, strings.Join(modes, ", "))
	}
	set, err := tickets.ParseSet(layout, size, seed)
	return benchCase{set, mode}, err
}

func (c benchCase) String() string {
	return strings.TrimPrefix(c.set.Name(), "tickets_") + "/" + c.mode
}

// pattern selects the case and its floor, which run one after the other.
func (c benchCase) pattern() string {
	_, size, _ := strings.Cut(strings.TrimPrefix(c.set.Name(), "tickets_"), "_")
	path := fmt.Sprintf("$/^layout=%s$/^files=%s$/^mode=%s$", c.set.Layout, size, c.mode)
	return "^BenchmarkProcess" + path + "|^BenchmarkFloor" + path + "/^goroutines=max$"
}

// iterations is how many times a pass goes over the set. A pass is short, so that some of them are not disturbed.
func (c benchCase) iterations() int { return max(1, 5_000/c.set.Count) }

// ensure makes the case's data if that is quick.
func (c benchCase) ensure(ctx context.Context, repo repository) error {
	data := filepath.Join(string(repo), ".data")
	_, err := c.set.ReadManifest(data)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if c.set.Count > madeHere {
		return fmt.Errorf("%s is missing; make it: cd scripts && go run ./tickets -out ../.data -layout %s -count %d", c.set.Name(), c.set.Layout, c.set.Count)
	}
	fmt.Fprintln(os.Stderr, "making", c.set.Name())
	_, err = c.set.Generate(ctx, data, nil)
	return err
}

// A selection is which cases a command measures, and how often.
type selection struct {
	sizes, layouts, modes string
	runs                  int
}

func (s *selection) flags(f *flag.FlagSet, runs int) {
	f.StringVar(&s.sizes, "sizes", "", "`sizes` of the sets, such as 1k,5k,100k,1m (default: 1k and 5k, and the larger ones that were made)")
	f.StringVar(&s.layouts, "layouts", "flat,nested1", "`layouts` of the sets")
	f.StringVar(&s.modes, "modes", allModes, "`modes`: what is read of each file")
	f.IntVar(&s.runs, "runs", runs, "`samples` of each case")
}

// minRuns is the least with which the test can find a difference significant and still says more than a coin.
const minRuns = 5

// cases returns what was selected; its data is there.
func (s *selection) cases(ctx context.Context, repo repository) ([]benchCase, error) {
	if s.runs < minRuns {
		return nil, fmt.Errorf("--runs %d is too few for a significance test: want at least %d", s.runs, minRuns)
	}
	wanted := s.sizes
	if wanted == "" {
		wanted = strings.Join(sizes, ",")
	}
	var cases []benchCase
	for _, size := range strings.Split(wanted, ",") {
		for _, layout := range strings.Split(s.layouts, ",") {
			for _, mode := range strings.Split(s.modes, ",") {
				c, err := newCase(layout, size, mode)
				if err != nil {
					return nil, err
				}
				if _, err := c.set.ReadManifest(filepath.Join(string(repo), ".data")); s.sizes == "" && c.set.Count > madeHere && errors.Is(err, fs.ErrNotExist) {
					continue
				}
				cases = append(cases, c)
			}
		}
	}
	for _, c := range cases {
		if err := c.ensure(ctx, repo); err != nil {
			return nil, err
		}
	}
	return cases, nil
}
