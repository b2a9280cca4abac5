//go:build linux && !android && !fileproc_nouring && !fileproc_unix && !fileproc_generic

package content

import (
	"os"
	"testing"

	"github.com/fileproc/fileproc/internal/descriptors"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Rings leave most descriptors to others, since a worker that waits for one does not get those of rings.
func TestRingsAreFew(t *testing.T) {
	most, limit := mostRings, descriptors.Limit
	defer func() { mostRings, descriptors.Limit = most, limit }()
	mostRings = func() int64 { return 2 }
	descriptors.Limit = func() uint64 { return 1 << 21 }
	var rings [2]groupReader
	for i := range rings {
		if rings[i] = newRingGroup(-1); rings[i] == nil {
			t.Log("left out: no io_uring here")
			return
		}
		defer func() { rings[i].close() }()
	}
	require.Nil(t, newRingGroup(-1))
	require.Nil(t, newRingGroup(-1))
	rings[0].close()
	rings[0] = newRingGroup(-1)
	require.NotNil(t, rings[0])

	rings[0].close()
	descriptors.Limit = func() uint64 { return 256 }
	for left := range descriptors.Kept + 2 {
		leaveDescriptors(t, left, func() { rings[0] = newRingGroup(-1) })
		if left <= descriptors.Kept {
			require.Nil(t, rings[0], "only %d descriptors are left", left)
		}
	}
	require.NotNil(t, rings[0])
	rings[0].close()
	descriptors.Limit = func() uint64 { return 1 << 21 }
	rings[0] = newRingGroup(-1)
	require.NotNil(t, rings[0])
}

// To ask whether there are rings takes none.
func TestHasRingsTakesNone(t *testing.T) {
	before := rings.Load()
	ring := newRingGroup(-1)
	has := ring != nil
	if has {
		ring.close()
	}
	for range 3 {
		require.Equal(t, has, HasRings())
	}
	require.Equal(t, before, rings.Load())
	most := mostRings
	defer func() { mostRings = most }()
	mostRings = func() int64 { return 0 }
	require.False(t, HasRings())
}

// leaveDescriptors calls do while no more than left are free.
func leaveDescriptors(t *testing.T, left int, do func()) {
	var limit unix.Rlimit
	require.NoError(t, unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &limit))
	require.NoError(t, unix.Prlimit(0, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 256, Max: limit.Max}, nil))
	var held []int
	defer func() {
		for _, fd := range held {
			unix.Close(fd)
		}
		require.NoError(t, unix.Prlimit(0, unix.RLIMIT_NOFILE, &limit, nil))
	}()
	for {
		fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			break
		}
		held = append(held, fd)
	}
	for range left {
		unix.Close(held[0]) // a low number, as if most were free
		held = held[1:]
	}
	do()
}

// A ring is tried once, when a worker has read enough ahead that it may pay. Where there is none, plain calls go on.
func TestRingIsTriedOnce(t *testing.T) {
	tries := 0
	most := mostRings
	defer func() { mostRings = most }()
	mostRings = func() int64 { tries++; return 0 }
	for _, much := range []bool{false, true} {
		a := Groups{Limit: 100}
		from := map[bool]int{false: ringAnyway, true: ringFrom}[much]
		tries = 0
		for _, a.filled = range []int{0, from - 1, from, from + 1, 10 * from} {
			require.Equal(t, callDepth, a.next(&entries{left: 1000, much: much}))
			require.Equal(t, a.filled >= from, tries == 1, "%d files read ahead, %d tries", a.filled, tries)
		}
		a.Close()
		require.True(t, a.NoRing)
	}
}
