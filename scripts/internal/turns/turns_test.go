//go:build linux

package turns

import (
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
	Do(3, 3, func(round, side int) { order = append(order, 10*round+side) })
	assert.Equal(t, []int{0, 1, 2, 11, 12, 10, 22, 20, 21}, order)
}

var broken = Side{Pass: func() (Pass, error) { return Pass{}, errors.New("broken") }}

// fake returns a side that notes its calls.
func fake(calls *string, name string, bytes int64) Side {
	return Side{Name: name, Pass: func() (Pass, error) { *calls += name; return Pass{Wall: 2, CPU: 3, Files: 1, Bytes: bytes}, nil }}
}

// Each side warms up once. Each round then measures every comparison, so all of them are from the same moments, and the sides of
// a comparison take turns going first. Every pass is recorded, also if there is only one side.
func TestCompare(t *testing.T) {
	var calls string
	side := func(name string) Side { return fake(&calls, name, 4) }
	m := Measurement{Table: "floor", Data: "flat_1k", Rounds: 2, Passes: 1}
	records, err := m.Compare(context.Background(), Against("a / b", side("a"), side("b")), Against("c / b", side("c"), side("b")),
		Against("alone / b", side("x"), broken))
	require.NoError(t, err)
	assert.Equal(t, "ab"+"cb"+"x"+"ab"+"cb"+"x"+"ba"+"bc"+"x", calls)
	var who []string
	for _, r := range records {
		who = append(who, r.Who)
		assert.Equal(t, []string{"floor", "flat_1k"}, []string{r.Table, r.Data})
	}
	round := []string{"a / b: ours", "a / b: theirs", "c / b: ours", "c / b: theirs", "alone / b: ours"}
	assert.Equal(t, slices.Concat(round, round), who)
}

// A side whose first pass does other work than the first side, or fails, is left out, if it is not the first. Later that is an error.
func TestCompareOnlyTheSame(t *testing.T) {
	var calls string
	m, ctx := Measurement{Rounds: 1, Passes: 1}, context.Background()
	a := fake(&calls, "a", 4)
	for _, other := range []Side{fake(&calls, "b", 3), broken} {
		records, err := m.Compare(ctx, Against("a / b", a, other))
		require.NoError(t, err)
		require.Len(t, records, 1)
		assert.Equal(t, "a / b: ours", records[0].Who)
	}
	_, err := m.Compare(ctx, Against("broken / a", broken, a))
	assert.EqualError(t, err, "broken / a: ours: broken")
	none := Side{Name: "none", Pass: func() (Pass, error) { return Pass{}, nil }}
	_, err = m.Compare(ctx, Comparison{none})
	assert.EqualError(t, err, "none: it saw no files")
	first := true
	later := Side{Name: "later", Pass: func() (Pass, error) {
		p := Pass{Files: 1, Bytes: 4}
		if !first {
			p.Bytes = 5
		}
		first = false
		return p, nil
	}}
	_, err = m.Compare(ctx, Comparison{later})
	assert.EqualError(t, err, "later: it saw 1 files, 5 bytes; right is 1 files, 4 bytes")

	interrupted, interrupt := context.WithCancel(ctx)
	last := Side{Pass: func() (Pass, error) { interrupt(); return Pass{}, interrupted.Err() }}
	_, err = m.Compare(interrupted, Against("a / interrupted", a, last))
	assert.ErrorIs(t, err, context.Canceled, "this is no reason to leave a side out")

	stopped, stop := context.WithCancel(ctx)
	stop()
	_, err = m.Compare(stopped, Against("a / b", a, a))
	assert.ErrorIs(t, err, context.Canceled)
}

// The median of a side's passes counts. What comes before a pass is not in its time.
func TestMedian(t *testing.T) {
	walls := []float64{100, 7, 3, 5} // the first warms up
	prepared := 0
	s := Side{Pass: func() (Pass, error) {
		p := Pass{Wall: walls[0], CPU: 2 * walls[0], Files: 2}
		walls = walls[1:]
		return p, nil
	}}.After(func() error { prepared++; return nil })
	m := Measurement{Table: "t", Rounds: 1, Passes: 3}
	records, err := m.Compare(context.Background(), Comparison{s})
	require.NoError(t, err)
	require.Len(t, records, 1)
	assert.Equal(t, map[string]float64{record.Wall: 2.5, record.CPU: 5}, records[0].Values)
	assert.Equal(t, 4, prepared)

	walls = []float64{100, 7, 3, 5}
	m.Before = func() error { prepared += 10; return nil }
	_, err = m.Compare(context.Background(), Comparison{s})
	require.NoError(t, err)
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
