package sum

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/stretchr/testify/require"

	"github.com/fileproc/fileproc/cmd/fileproc/internal/run"
)

// A file counts once, whichever of its hard links are met, and each file for itself: one of another device may have the same number, and
// where the system gives no number, each is another file. With --count-links each link counts.
func TestAlreadyCounted(t *testing.T) {
	d := diskUsage{Run: new(run.Run), seen: map[fileID]uint64{}}
	for device := range uint64(3) {
		for _, inode := range []uint64{1, 2, 63, 64, 65, 127, 128, 1 << 40, 1<<40 + 1<<32, 1<<64 - 1, 1<<64 - 64} {
			st := fileproc.Stat{Device: device, Inode: inode}
			require.False(t, d.alreadyCounted(st), "%d of %d", inode, device)
			require.True(t, d.alreadyCounted(st), "%d of %d", inode, device)
		}
		for range 2 {
			require.False(t, d.alreadyCounted(fileproc.Stat{Device: device}))
		}
	}
	d.countLinks = true
	for range 2 {
		require.False(t, d.alreadyCounted(fileproc.Stat{Inode: 1}))
	}
}

// While the first item blocks, up to maxAhead others are worked on; all are done in order.
func TestInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const items = 2*maxAhead + 10
		taken, order := 0, []int{}
		each := func(yield func(int) bool) {
			for taken < items {
				taken++
				if !yield(taken - 1) {
					return
				}
			}
		}
		free := make(chan struct{})
		go inOrder(t.Context(), 3, each, func(x int) func() {
			if x == 0 {
				<-free
			}
			return func() { order = append(order, x) }
		})
		synctest.Wait()
		require.Equal(t, maxAhead+2, taken, "one is in its turn, and one is to be sent")
		require.Empty(t, order)
		close(free)
		synctest.Wait()
		require.Len(t, order, items)
		require.True(t, slices.IsSorted(order))
	})
}

// After a cancel no work begins, and what has begun is waited for.
func TestInOrderWaitsForWhatHasBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		begun := make(chan int, 4)
		var done []int
		inOrder(ctx, 2, slices.Values([]int{0, 1, 2, 3}), func(x int) func() {
			begun <- x
			time.Sleep(time.Duration(x+1) * time.Second)
			return func() {
				done = append(done, x)
				time.Sleep(time.Millisecond) // so that the third has begun
				cancel()
			}
		})
		require.Equal(t, []int{0, 1, 2}, done)
		require.Len(t, begun, 3)
	})
}
