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
func TestGroupsChooseAnew(t *testing.T) {
	s := &entries{left: 1000}
	g := Groups{Limit: 100, NoRing: true}
	require.Equal(t, callDepth, g.next(s))
	g.ring, g.depth, g.filled = true, readaheadDepth, 10*ringAnyway
	g.Close()
	require.Nil(t, g.reader)
	require.False(t, g.NoRing)
	g.NoRing = true // it cannot be had again
	require.Equal(t, callDepth, g.next(s))
	g.Close()
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
			g := Groups{NeedsStat: needed, NoRing: true, reader: groupOf{}, depth: 4}
			n, _ := g.Fetch(&entries{left: 1000})
			require.Equal(t, 4, n)
			c := Content{HasStat: known}
			ok, _ := g.Get(2, &c)
			require.Equal(t, known || !needed, ok, "needed: %v, known: %v", needed, known)
			require.Equal(t, ok, c.Data != nil)
			require.Equal(t, ok, g.missed == 0, "a file that must be read alone counts as one")
		}
	}
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
