//go:build linux

package regress

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/perf/benchfmt"
	"golang.org/x/term"
)

// A series is what was measured of one case: sample i of all three is from the same process.
type series struct {
	Time  []float64 `json:"time_ns"`  // nanoseconds a file
	Floor []float64 `json:"floor_ns"` // the same of the floor
	Ratio []float64 `json:"ratio"`    // time over floor
}

func (s *series) add(o *series) {
	s.Time, s.Floor, s.Ratio = append(s.Time, o.Time...), append(s.Floor, o.Floor...), append(s.Ratio, o.Ratio...)
}

// passes is how many times one process measures the case, and then its floor. The least of them is the sample: what else
// happens on a machine only adds time, and at first the process itself is cold.
func (c benchCase) passes() int {
	if c.set.Count <= 5_000 {
		return 6
	}
	return 3
}

// A measurement collects what the processes of one binary report.
type measurement struct {
	binary string
	cases  map[string]*series
	text   strings.Builder // all they printed
	cpu    string
}

func newMeasurement(binary string) *measurement {
	return &measurement{binary: binary, cases: map[string]*series{}}
}

// measureAll takes samples of the binaries in turn. Over the rounds each case comes again and again, and each binary goes
// first in half of them, so that a drift of the machine favours none.
func (repo repository) measureAll(ctx context.Context, cases []benchCase, runs int, of ...*measurement) error {
	for round := range runs {
		for _, c := range cases {
			for k := range of {
				m := of[(k+round)%len(of)]
				if err := repo.sample(ctx, m, c); err != nil {
					return err
				}
			}
		}
		if term.IsTerminal(int(os.Stderr.Fd())) {
			fmt.Fprintf(os.Stderr, "\rround %d of %d\x1b[K\r", round+1, runs)
		}
	}
	return nil
}

func (repo repository) sample(ctx context.Context, m *measurement, c benchCase) error {
	n := c.passes()
	text, err := output(ctx, string(repo), m.binary, "-test.run", "^$", "-test.bench", c.pattern(),
		"-test.benchtime", fmt.Sprint(c.iterations(), "x"), "-test.count", fmt.Sprint(n))
	if err != nil {
		return fmt.Errorf("%v: %w", c, err)
	}
	fmt.Fprintln(&m.text, text)
	var times, floors []float64
	r := benchfmt.NewReader(strings.NewReader(text), filepath.Base(m.binary))
	for r.Scan() {
		result, ok := r.Result().(*benchfmt.Result)
		if !ok {
			continue
		}
		m.cpu = result.GetConfig("cpu")
		seconds, _ := result.Value("sec/op")
		perFile := seconds * 1e9 / float64(c.set.Count)
		if strings.HasPrefix(string(result.Name), "Floor/") {
			floors = append(floors, perFile)
		} else {
			times = append(times, perFile)
		}
	}
	if len(times) != n || len(floors) != n {
		return fmt.Errorf("%v: the benchmark printed %d results and %d of the floor, want %d of each", c, len(times), len(floors), n)
	}
	s := m.cases[c.String()]
	if s == nil {
		s = &series{}
		m.cases[c.String()] = s
	}
	time, floor := slices.Min(times), slices.Min(floors)
	s.add(&series{[]float64{rounded(time)}, []float64{rounded(floor)}, []float64{rounded(time / floor)}})
	return nil
}

// rounded keeps more digits than the noise does, and fewer than the records would hold otherwise.
func rounded(v float64) float64 { return math.Round(v*1e4) / 1e4 }
