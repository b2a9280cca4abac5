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

// A file counts once, whichever of its hard links are met, and for the first argument that has one. Each file counts for itself: one of
// another device may have the same number, and where the system gives no number, each is another file. With --count-links each link counts.
func TestHardLinksCountOnce(t *testing.T) {
	d := diskUsage{Run: new(run.Run), seen: map[fileID]*dir{}}
	first, second := &dir{argument: &argument{}}, &dir{argument: &argument{order: 1}}
	for device := range uint64(3) {
		for _, inode := range []uint64{1, 2, 64, 1 << 40, 1<<64 - 1} {
			st := fileproc.Stat{Device: device, Inode: inode, Links: 2, Size: 5}
			for _, u := range []*dir{second, first, first, second} {
				d.count(u, st, false)
			}
		}
	}
	require.Equal(t, usage{15, 75}, first.usage)
	require.Zero(t, second.usage)
	for _, st := range []fileproc.Stat{{Links: 2}, {Inode: 7, Links: 1}} {
		d.count(second, st, false)
		d.count(second, st, false)
	}
	require.EqualValues(t, 4, second.Files)
	d.Opts.Symlinks = fileproc.SymlinksFiles // a link may lead to the file, too
	d.count(second, fileproc.Stat{Inode: 7, Links: 1}, false)
	d.count(second, fileproc.Stat{Inode: 7, Links: 1}, false)
	require.EqualValues(t, 5, second.Files)
	d.countLinks = true
	d.count(second, fileproc.Stat{Inode: 7, Links: 2}, false)
	require.EqualValues(t, 6, second.Files)
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
