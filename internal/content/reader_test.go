package content

import (
	"runtime"
	"testing"

	"github.com/fileproc/fileproc/internal/sys"
	"github.com/stretchr/testify/require"
)

func TestReaderUsesBuffersAgain(t *testing.T) {
	for size, want := range map[int64]int{1: 1<<16 + 1, 1<<16 + 1: 1<<16 + 1, 1<<16 + 2: 1<<17 + 1, 1<<20 + 1: 1<<20 + 1, 1<<20 + 2: 1<<20 + 2} {
		p, err := takeBuffer(size)
		require.NoError(t, err)
		require.Len(t, p, int(size))
		require.Equal(t, want, cap(p))
		putBuffer(p)
	}
	if sys.Race {
		t.Skip("under the race detector a sync.Pool forgets some of what it gets")
	}
	const size, rounds = 100 << 10, 200
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range rounds {
		p, err := takeBuffer(size)
		require.NoError(t, err)
		putBuffer(p)
	}
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(rounds*size/4))
}
