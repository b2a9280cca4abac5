//go:build linux && !fileproc_unix && !fileproc_generic

package content

import (
	"math"
	"testing"
	"unsafe"

	"github.com/fileproc/fileproc/internal/names"
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

// groupOf is a groupReader whose files have content and no metadata.
type groupOf struct{ groupReader }

func (groupOf) read(Dir, []names.Name) bool { return true }

func (groupOf) get(_ int, c *Content) bool {
	c.Data = []byte("content")
	return true
}

func (groupOf) isUncached(int) bool { return false }

// Where metadata is needed, content that was read ahead without it is of no use, whatever made the worker read it ahead.
func TestGroupGivesNoContentWithoutTheMetadataThatIsNeeded(t *testing.T) {
	for _, needed := range []bool{false, true} {
		for _, known := range []bool{false, true} {
			a := Ahead{NeedsStat: needed, group: groupOf{}}
			require.True(t, a.Read(Dir{}, make([]names.Name, 4), 3))
			c := Content{HasStat: known}
			ok, _ := a.Get(5, &c)
			require.Equal(t, known || !needed, ok, "needed: %v, known: %v", needed, known)
			require.Equal(t, ok, c.Data != nil)
			require.Equal(t, ok, a.missed == 0, "a file that must be read alone counts as one")
			for _, i := range []int{2, 7} {
				ok, _ = a.Get(i, &c)
				require.False(t, ok, "has not been read ahead")
			}
		}
	}
}

func TestNeverReadsNoGroup(t *testing.T) {
	a := Ahead{Limit: 100, NoRing: true, Wait: Never}
	for range 3 * AheadFrom {
		n, isCold := a.Next(readaheadDepth, func() bool { return true })
		require.Zero(t, n)
		require.False(t, isCold)
	}
	require.Nil(t, a.group)
	a = Ahead{Limit: 100, NoRing: true, Wait: AheadFrom}
	for range AheadFrom {
		n, _ := a.Next(readaheadDepth, func() bool { return true })
		require.Zero(t, n)
	}
	n, _ := a.Next(readaheadDepth, func() bool { return true })
	require.Equal(t, callDepth, n)
	a.Close()
}

// As TestMemoryBeginsAtAMultipleOf512, for files that are read together.
func TestGroupBuffersBeginAtAMultipleOf512(t *testing.T) {
	g, most := newCallGroup(-1, false, false)
	defer g.close()
	a := g.(*callGroup)
	for n := 1; n <= most; n++ {
		files := make([]names.Name, n)
		for i := range files {
			files[i] = names.Dot
		}
		require.True(t, a.read(Dir{FD: -1, Kind: OnDiskForRings}, files))
		for i := range files {
			require.Zero(t, uintptr(unsafe.Pointer(a.parts[i].Base))%512, "%d of %d", i, n)
		}
	}
}
