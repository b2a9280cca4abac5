package fileproc

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fileproc/fileproc/internal/content"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
	"github.com/stretchr/testify/require"
)

func batchOf(n int) *batch {
	b := &batch{node: &node{}}
	for i := range n {
		b.entries = append(b.entries, names.New(fmt.Sprint(i)))
	}
	return b
}

func TestBatchTake(t *testing.T) {
	b := batchOf(3)
	for i := range 3 {
		require.Equal(t, 3-i, b.left())
		got, ok := b.take()
		require.True(t, ok)
		require.Equal(t, i, got)
	}
	for range 3 { // as workers may ask repeatedly
		_, ok := b.take()
		require.False(t, ok)
		require.Zero(t, b.left())
		require.Zero(t, b.abandon())
	}
	b.reset()
	require.Empty(t, b.entries)
	require.Nil(t, b.node)
	b.entries = append(b.entries, names.New("again"))
	require.Equal(t, 1, b.left())
	require.Zero(t, b.entries[:cap(b.entries)][1], "the previous batch's names are released")
}

func TestBatchAbandon(t *testing.T) {
	b := batchOf(5)
	b.take()
	require.EqualValues(t, 4, b.abandon())
	require.Zero(t, b.abandon())
	_, ok := b.take()
	require.False(t, ok)
	require.Zero(t, b.left())
}

// In every interleaving, an entry is either taken or abandoned, never both.
func TestBatchTakenAndAbandonedAtOnce(t *testing.T) {
	for range 200 {
		const n = 64
		b := batchOf(n)
		var taken, abandoned atomic.Int64
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				for {
					if i == 0 && taken.Load() > n/3 {
						abandoned.Add(b.abandon())
					}
					if _, ok := b.take(); !ok {
						return
					}
					taken.Add(1)
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, n, taken.Load()+abandoned.Load())
	}
}

// A half has the last of the entries that are left, with all that is known of them.
func TestBatchHalve(t *testing.T) {
	const all, taken = 100, 3
	b, half := batchOf(all), &batch{}
	b.stage, b.err = stageAsked, errors.New("why")
	for i := range all {
		b.inodes, b.stats = append(b.inodes, uint64(i)), append(b.stats, sys.Stat{Inode: uint64(i)})
	}
	for range taken {
		b.take()
	}
	require.True(t, b.halve(half))
	require.Equal(t, (all-taken)/2, half.left())
	require.Equal(t, all-taken, b.left()+half.left())
	first := taken + b.left()
	require.Equal(t, &batch{node: b.node, stage: b.stage, err: b.err, entries: b.entries[first:], inodes: b.inodes[first:], stats: b.stats[first:]}, half)
	again := &batch{}
	require.True(t, b.halve(again))
	require.Equal(t, b.entries[first-len(again.entries):first], again.entries)
	for range b.left() {
		_, ok := b.take()
		require.True(t, ok)
	}
	_, ok := b.take()
	require.False(t, ok)
	require.Zero(t, b.left())
	require.Zero(t, b.abandon())
}

// A batch stays whole if few entries are left, and if it is a window or the files of a span.
func TestBatchStaysWhole(t *testing.T) {
	for _, tt := range []struct {
		edit func(*batch)
		want bool
	}{
		{func(*batch) {}, true},
		{func(b *batch) { b.take() }, false},
		{func(b *batch) { b.span = &span{} }, false},
		{func(b *batch) { b.nodes = make([]*node, len(b.entries)) }, false},
	} {
		b, half := batchOf(content.AheadFrom), &batch{}
		tt.edit(b)
		left := b.left()
		require.Equal(t, tt.want, b.halve(half))
		require.Equal(t, left, b.left()+half.left())
	}
}

// In every interleaving, each entry of a batch that is halved many times is taken once, or abandoned.
func TestBatchHalvedAtOnce(t *testing.T) {
	for round := range 100 {
		const n = 5000
		var all sync.Map
		var abandoned atomic.Int64
		var wg sync.WaitGroup
		var visit func(b *batch)
		visit = func(b *batch) {
			for {
				if half := (&batch{}); b.halve(half) {
					wg.Go(func() { visit(half) })
				}
				i, ok := b.take()
				if !ok {
					return
				}
				if _, twice := all.LoadOrStore(b.entries[i].String(), true); twice {
					t.Errorf("%s is taken twice", b.entries[i].String())
				}
				if i == 7 && round%2 == 1 {
					abandoned.Add(b.abandon())
				}
			}
		}
		b := batchOf(n)
		for range 3 {
			wg.Go(func() { visit(b) })
		}
		wg.Wait()
		taken := 0
		all.Range(func(any, any) bool { taken++; return true })
		require.EqualValues(t, n, int64(taken)+abandoned.Load())
	}
}
