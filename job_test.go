package fileproc

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fileproc/fileproc/internal/names"
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
