package fileproc

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

func TestArenaKeepsNames(t *testing.T) {
	var a arena
	type kept struct{ name, want string }
	var all []kept
	buf := make([]byte, 0, 100<<10) // one for all names, as a backend has it
	for _, size := range []int{0, 1, 255, 254, minBlock - 2, minBlock - 1, minBlock, minBlock + 1, maxBlock - 1, maxBlock, maxBlock + 1, 3} {
		for i := range 300 {
			if size > minBlock && i > 3 {
				break
			}
			buf = append(buf[:0], strings.Repeat(fmt.Sprintf("%d ", i), size)[:size]...)
			all = append(all, kept{a.add(buf), string(buf)})
			clear(buf)
		}
	}
	for _, k := range all {
		require.Equal(t, k.want, k.name)
		behind := unsafe.Slice(unsafe.StringData(k.name), len(k.name)+1)
		require.Zero(t, behind[len(k.name)], "the byte behind %.20q", k.name)
	}
}

// A small run takes little memory, and a large one few blocks.
func TestArenaBlocksGrow(t *testing.T) {
	var a arena
	blocks, last := 0, (*byte)(nil)
	for i := range 100_000 {
		a.add([]byte("a name of thirty-two bytes, or so"))
		if p := unsafe.SliceData(a.block); p != last {
			blocks, last = blocks+1, p
		}
		if i == 0 {
			require.LessOrEqual(t, cap(a.block), minBlock)
		}
		require.LessOrEqual(t, cap(a.block), maxBlock)
	}
	require.LessOrEqual(t, blocks, 100_000*34/maxBlock+12)

	a = arena{}
	a.add(bytes.Repeat([]byte("x"), minBlock-11))
	a.add([]byte("ten bytes."))
	require.Len(t, a.block, 11, "where there is room for the name but not for the zero, a block is not copied but left")

	a = arena{}
	a.add(bytes.Repeat([]byte("x"), 2*maxBlock))
	require.LessOrEqual(t, cap(a.block), 2*maxBlock+1, "a name that is longer than a block takes what it needs")
}

func batchOf(n int) *batch {
	b := &batch{node: &node{}}
	for i := range n {
		b.entries = append(b.entries, entry{name: fmt.Sprint(i)})
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
	for range 3 { // as often as workers ask
		_, ok := b.take()
		require.False(t, ok)
		require.Zero(t, b.left())
		require.Zero(t, b.abandon())
	}
	b.reset()
	require.Empty(t, b.entries)
	require.Nil(t, b.node)
	b.entries = append(b.entries, entry{name: "again"})
	require.Equal(t, 1, b.left())
	require.Empty(t, b.entries[:cap(b.entries)][1].name, "names of the batch before are let go")
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

// Whatever comes between, an entry is taken or abandoned, and not both.
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
