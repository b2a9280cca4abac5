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

// endless is a file that grows faster than it is read.
type endless struct {
	t     *testing.T
	read  int
	until int
	full  bool // until bytes have been read, and the buffer is full
}

func (f *endless) Cached([]byte) (int, bool) { return 0, false }
func (f *endless) Stat() (sys.Stat, error)   { return sys.Stat{}, nil }
func (f *endless) Close()                    {}
func (f *endless) Read(p []byte) (int, error) {
	require.False(f.t, f.full, "it is read on")
	f.read += len(p)
	f.full = f.read >= f.until && len(p) < MaxRead // which is the end of a buffer
	return len(p), nil
}

// A stop ends the copy of a large file's content to a larger buffer.
func TestStopWhileABufferGrows(t *testing.T) {
	const size = 64 << 20
	for _, asked := range []int{2, 5, 30} {
		after := 0
		f := &endless{t: t, until: size}
		r := Reader{Want: Want{Limit: -1}, Stopped: func() bool {
			if f.full {
				after++
			}
			return after >= asked
		}}
		r.TakeBuffer()
		var c Content
		require.ErrorIs(t, r.Read(f, &c), ErrStopped)
		require.Equal(t, asked, after)
		r.GiveBuffer()
		require.Nil(t, r.large)
	}
}
