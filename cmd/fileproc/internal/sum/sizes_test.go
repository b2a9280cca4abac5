package sum

import (
	"testing"

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
