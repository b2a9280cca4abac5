//go:build linux

package turns

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fileproc/fileproc/scripts/internal/record"
)

// A different side goes first in each round.
func TestDo(t *testing.T) {
	var order []int
	require.NoError(t, Do(3, 3, func(round, side int) error { order = append(order, 10*round+side); return nil }))
	assert.Equal(t, []int{0, 1, 2, 11, 12, 10, 22, 20, 21}, order)
	stop := errors.New("stop")
	assert.Equal(t, stop, Do(3, 3, func(int, int) error { return stop }))
}

// fake returns a side that notes its calls.
func fake(calls *string, name string, bytes int64) Side {
	return Side{Name: name, Pass: func() (Pass, error) { *calls += name; return Pass{Wall: 2, CPU: 3, Files: 1, Bytes: bytes}, nil }}
}

// Each side warms up once. Each round then measures every comparison, so all of them are from the same moments, and the sides of
// a comparison take turns going first. Every pass is recorded, also if there is only one side.
func TestCompare(t *testing.T) {
	var out bytes.Buffer
	var calls string
	side := func(name string) Side { return fake(&calls, name, 4) }
	list := func() []Comparison {
		return []Comparison{Against("a / b", side("a"), side("b")), Against("c / b", side("c"), side("b")),
			Against("alone / b", side("x"), Side{Missing: "no b"}), Against("none / b", Side{Missing: "no none"}, side("n"))}
	}
	m := Measurement{Table: "floor", Data: "flat_1k", Rounds: 2, Passes: 1, Out: &out, Records: true}
	require.NoError(t, m.Compare(context.Background(), list()...))
	assert.Equal(t, "ab"+"cb"+"x"+"ab"+"cb"+"x"+"ba"+"bc"+"x", calls)
	records, err := record.Read(&out)
	require.NoError(t, err)
	var who []string
	for _, r := range records {
		who = append(who, r.Who+r.Text)
		assert.Equal(t, []string{"floor", "flat_1k"}, []string{r.Table, r.Data})
	}
	round := []string{"a / b: ours", "a / b: theirs", "c / b: ours", "c / b: theirs", "alone / b: ours"}
	missing := []string{"alone / b: theirs" + "left out: no b", "none / b: ours" + "left out: no none"}
	assert.Equal(t, slices.Concat(missing, round, round), who)

	out.Reset()
	m.Records = false
	require.NoError(t, m.Compare(context.Background(), list()...))
	assert.Equal(t, "left out: alone / b: theirs: no b\nleft out: none / b: ours: no none\n"+
		"a / b                                           1  1.000 (1.000 to 1.000)   1.000 (1.000 to 1.000)         2 ns       2 ns\n"+
		"c / b                                           1  1.000 (1.000 to 1.000)   1.000 (1.000 to 1.000)         2 ns       2 ns\n"+
		"alone / b                                       1  nothing to compare with                                   2 ns\n", out.String())
}

// A pass that does other work than the first side, or none, or fails is an error; or its side is left out, if it is not the first.
func TestCompareOnlyTheSame(t *testing.T) {
	var calls string
	var out bytes.Buffer
	m := Measurement{Rounds: 1, Passes: 1, Out: &out}
	a, ctx := fake(&calls, "a", 4), context.Background()
	broken := Side{Pass: func() (Pass, error) { return Pass{}, errors.New("broken") }}
	assert.EqualError(t, m.Compare(ctx, Against("a / fewer", a, fake(&calls, "b", 3))), "a / fewer: theirs: it saw 1 files, 3 bytes; right is 1 files, 4 bytes")
	assert.EqualError(t, m.Compare(ctx, Against("a / broken", a, broken)), "a / broken: theirs: broken")
	none := Side{Name: "none", Pass: func() (Pass, error) { return Pass{}, nil }}
	assert.EqualError(t, m.Compare(ctx, Comparison{Sides: []Side{none}}), "none: it saw no files")
	first := true
	later := Side{Name: "later", Pass: func() (Pass, error) {
		p := Pass{Files: 1, Bytes: 4}
		if !first {
			p.Bytes = 5
		}
		first = false
		return p, nil
	}}
	assert.EqualError(t, m.Compare(ctx, Comparison{Sides: []Side{later}}), "later: it saw 1 files, 5 bytes; right is 1 files, 4 bytes")

	m.LeaveOut = true
	require.NoError(t, m.Compare(ctx, Against("a / fewer", a, fake(&calls, "b", 3)), Against("a / broken", a, broken)))
	assert.Contains(t, out.String(), "left out: a / fewer: theirs: it saw 1 files, 3 bytes; right is 1 files, 4 bytes\nleft out: a / broken: theirs: broken\n")
	assert.EqualError(t, m.Compare(ctx, Against("broken / a", broken, a)), "broken / a: ours: broken")

	interrupted, interrupt := context.WithCancel(ctx)
	last := Side{Pass: func() (Pass, error) { interrupt(); return Pass{}, interrupted.Err() }}
	assert.ErrorIs(t, m.Compare(interrupted, Against("a / interrupted", a, last)), context.Canceled)
	assert.NotContains(t, out.String(), "interrupted", "this is no reason to leave a side out")

	stopped, stop := context.WithCancel(ctx)
	stop()
	assert.ErrorIs(t, m.Compare(stopped, Against("a / b", a, a)), context.Canceled)
}

// The median of a side's passes counts. What comes before a pass is not in its time.
func TestMedian(t *testing.T) {
	walls := []float64{100, 7, 3, 5} // the first warms up
	prepared := 0
	s := Side{Pass: func() (Pass, error) {
		p := Pass{Wall: walls[0], CPU: 2 * walls[0], Files: 3}
		walls = walls[1:]
		return p, nil
	}}.After(func() error { prepared++; return nil })
	var out bytes.Buffer
	m := Measurement{Table: "t", Rounds: 1, Passes: 3, Out: &out, Records: true}
	require.NoError(t, m.Compare(context.Background(), Comparison{Sides: []Side{s}}))
	records, err := record.Read(&out)
	require.NoError(t, err)
	require.Len(t, records, 1)
	assert.Equal(t, []float64{3, 5, 10}, []float64{float64(records[0].Files), records[0].Wall, records[0].CPU})
	assert.Equal(t, 4, prepared)

	walls = []float64{100, 7, 3, 5}
	m.Before = func() error { prepared += 10; return nil }
	require.NoError(t, m.Compare(context.Background(), Comparison{Sides: []Side{s}}))
	assert.Equal(t, 48, prepared)

	failure := errors.New("no")
	_, err = s.After(func() error { return failure }).Pass()
	assert.Equal(t, failure, err)
}

func TestTimes(t *testing.T) {
	calls := 0
	work := Work(func() (int, int64, error) { calls++; return 2, 3, nil })
	files, bytes, err := work.Times(4)()
	require.NoError(t, err)
	assert.Equal(t, []int{8, 12, 4}, []int{files, int(bytes), calls})
	_, _, err = Work(func() (int, int64, error) { return 0, 0, errors.New("no") }).Times(2)()
	assert.Error(t, err)
	p, err := Timed(work)
	require.NoError(t, err)
	assert.NoError(t, p.Same(Pass{Files: 2, Bytes: 3}))
	assert.Error(t, p.Same(Pass{Files: 2, Bytes: 4}))
	assert.Positive(t, p.Wall)
}
