//go:build linux

package turns

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/fileproc/fileproc/scripts/internal/fail"
	"github.com/fileproc/fileproc/scripts/internal/measure"
	"github.com/fileproc/fileproc/scripts/internal/record"
)

// A Side is one of several ways to do the same work.
type Side struct {
	Name, Version string
	Pass          func() (Pass, error)
	Missing       string // why this machine has no such side
}

// Side returns a side whose passes are timed.
func (w Work) Side(name string) Side {
	return Side{Name: name, Pass: func() (Pass, error) { return Timed(w) }}
}

// After returns the side with a call of prepare before each pass, which is not timed.
func (s Side) After(prepare func() error) Side {
	pass := s.Pass
	s.Pass = func() (Pass, error) {
		if err := prepare(); err != nil {
			return Pass{}, err
		}
		return pass()
	}
	return s
}

// A Comparison is of its first side with the others.
type Comparison struct {
	Name  string // with the name of the side in records; may be empty
	Sides []Side
}

// Against returns a comparison of two sides.
func Against(name string, ours, theirs Side) Comparison {
	ours.Name, theirs.Name = "ours", "theirs"
	return Comparison{name, []Side{ours, theirs}}
}

func (c Comparison) who(s Side) string {
	if c.Name == "" {
		return s.Name
	}
	return c.Name + record.Side + s.Name
}

// A Measurement says how sides are compared, and where the results go: as records, or as a table for people.
type Measurement struct {
	Table, Data    string // of the records
	Rounds, Passes int    // the median of a side's passes in a round counts
	Out            io.Writer
	Records        bool
	Before         func() error // if not nil, it is called before each pass, and not timed
	// LeaveOut leaves out a side whose first pass fails or does other work than the first side, which otherwise is an error.
	LeaveOut bool
}

// Compare measures all comparisons in each round, so that all of them are from the same moments. Before that, each side warms up
// with one pass. All passes of a comparison must do the same work.
func (m Measurement) Compare(ctx context.Context, list ...Comparison) error {
	return fail.Try(func() { m.compare(ctx, list) })
}

func (m Measurement) compare(ctx context.Context, list []Comparison) {
	want, results := make([]Pass, len(list)), make([][][]Pass, len(list)) // of results: comparison, round, side
	for k := range list {
		list[k].Sides, want[k] = m.warmUp(ctx, list[k])
	}
	for round := range m.Rounds {
		for k, c := range list {
			got := make([]Pass, len(c.Sides))
			fail.On(turn(round, len(c.Sides), func(i int) error {
				err := fail.Try(func() { got[i] = m.median(ctx, c.Sides[i], want[k]) })
				fail.If(err != nil, "%s: %w", c.who(c.Sides[i]), err)
				return nil
			}))
			for i, s := range c.Sides {
				if m.Records {
					m.write(c, s, record.Record{Files: got[i].Files, Wall: got[i].Wall, CPU: got[i].CPU})
				}
			}
			results[k] = append(results[k], got)
		}
	}
	for k, c := range list {
		if !m.Records && len(c.Sides) > 0 {
			m.row(c, results[k])
		}
	}
}

// warmUp returns the sides that can be compared, and the work of the first. Without the first there are none.
func (m Measurement) warmUp(ctx context.Context, c Comparison) (sides []Side, want Pass) {
	for i, s := range c.Sides {
		reason := s.Missing
		if reason == "" {
			err := fail.Try(func() {
				p := m.one(ctx, s)
				if i == 0 {
					want = p
				}
				fail.On(p.Same(want))
			})
			if err == nil {
				sides = append(sides, s)
				continue
			}
			fail.If(i == 0 || !m.LeaveOut || ctx.Err() != nil, "%s: %w", c.who(s), err)
			reason = err.Error()
		}
		if m.leaveOut(c, s, reason); i == 0 {
			return nil, want
		}
	}
	return sides, want
}

func (m Measurement) one(ctx context.Context, s Side) Pass {
	fail.On(context.Cause(ctx))
	if m.Before != nil {
		fail.On(m.Before())
	}
	p, err := s.Pass()
	fail.On(err)
	fail.If(p.Files == 0, "it saw no files")
	return p
}

func (m Measurement) median(ctx context.Context, s Side, want Pass) Pass {
	var wall, cpu []float64
	for range m.Passes {
		p := m.one(ctx, s)
		fail.On(p.Same(want))
		wall, cpu = append(wall, p.Wall), append(cpu, p.CPU)
	}
	want.Wall, want.CPU = measure.Median(wall), measure.Median(cpu)
	return want
}

func (m Measurement) leaveOut(c Comparison, s Side, reason string) {
	if !m.Records {
		fmt.Fprintf(m.Out, "left out: %s: %s\n", c.who(s), reason)
		return
	}
	fmt.Fprintf(os.Stderr, "%s: %s: %s is left out: %s\n", m.Table, m.Data, c.who(s), reason)
	m.write(c, s, record.Record{Text: "left out: " + reason})
}

func (m Measurement) write(c Comparison, s Side, r record.Record) {
	r.Table, r.Data, r.Who, r.Version = m.Table, m.Data, c.who(s), s.Version
	fail.On(record.Write(m.Out, r))
}

// row prints a comparison of two sides for people: the ratios of the first to the second, and the nanoseconds a file of each.
func (m Measurement) row(c Comparison, rounds [][]Pass) {
	var wall, cpu, ours, theirs []float64
	files := rounds[0][0].Files
	for _, r := range rounds {
		our, their := r[0], r[len(r)-1]
		wall, cpu = append(wall, our.Wall/their.Wall), append(cpu, our.CPU/their.CPU)
		ours, theirs = append(ours, our.Wall/float64(files)), append(theirs, their.Wall/float64(files))
	}
	if len(c.Sides) == 1 {
		fmt.Fprintf(m.Out, "%-40s %8d  nothing to compare with %35.0f ns\n", c.Name, files, measure.Median(ours))
	} else {
		fmt.Fprintf(m.Out, "%-40s %8d  %-24s %-24s %7.0f ns %7.0f ns\n", c.Name, files,
			measure.Summarize(wall), measure.Summarize(cpu), measure.Median(ours), measure.Median(theirs))
	}
}
