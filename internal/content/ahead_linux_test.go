//go:build linux && !fileproc_unix && !fileproc_generic

package content

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// A file that fills what is read of it may be longer.
func TestBytesWanted(t *testing.T) {
	for _, limit := range []int64{-1, readaheadSize - 1, readaheadSize, math.MaxInt64} {
		require.Equal(t, readaheadSize, bytesWanted(limit), limit)
	}
	require.Equal(t, 8, bytesWanted(7))
}

// A worker that reads files together on its own gives up its groupReader, and chooses another when files come from the
// page cache again. The depth of an io_uring must not stay.
func TestReadaheadChoosesAnew(t *testing.T) {
	nothing := func() bool { return false }
	a := Ahead{Limit: 100, NoRing: true}
	a.choose(nothing)
	require.Equal(t, callDepth, a.depth)
	a.ring, a.depth, a.filled = true, readaheadDepth, 10*ringAnyway
	a.Close()
	require.Nil(t, a.group)
	require.False(t, a.NoRing)
	a.NoRing = true // it cannot be had again
	a.choose(nothing)
	require.Equal(t, callDepth, a.depth)
	a.Close()
}
