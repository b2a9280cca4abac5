//go:build linux && !fileproc_unix && !fileproc_generic

package content

import (
	"math"
	"testing"
	"unsafe"

	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
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

// trueSizes is a Sized whose files have true sizes, or not.
type trueSizes bool

func (s trueSizes) HasTrueSize(sys.Stat) bool { return bool(s) }

// A file whose size is a multiple of 512 is whole if its metadata says so, and the file system can be believed: it is not opened again.
func TestGroupAsksForTheSize(t *testing.T) {
	if sys.FstatCall == 0 {
		t.Skip("on this platform fstat fills another struct, and a group does not ask for the size")
	}
	s := newShelf(t, false, 511, 512, 513, 1024, 4096, 8192, 16384, 2*readaheadSize)
	if !isDisk(t, s.path) {
		t.Skip("the temporary directory is not on ext4, xfs or btrfs: groups read only there")
	}
	s.dir.Kind = OnDiskForRings
	for _, limit := range []int64{-1, 511, 4096, readaheadSize} {
		for _, sizes := range []Sized{nil, trueSizes(false), trueSizes(true)} {
			g, _ := newCallGroup(limit, false, false)
			open := descriptorsOpen(t)
			s.dir.Sizes = sizes
			require.True(t, g.read(s.dir, s.names))
			require.Equal(t, open, descriptorsOpen(t))
			for i, want := range s.want {
				n := len(want)
				whole := n < readaheadSize && (limit < 0 || int64(n) <= limit) && (n%512 != 0 || sizes == trueSizes(true))
				var c Content
				require.Equal(t, whole, g.get(i, &c), "%d bytes, limit %d, %v", n, limit, sizes)
				if whole {
					require.Equal(t, want, c.Data)
				}
			}
			g.close()
		}
	}
}

// What is not whole by its size, or is no regular file, is not delivered, though the read ended at a multiple of 512.
func TestGroupComparesTheSize(t *testing.T) {
	a := &callGroup{limit: -1, most: readaheadSize, want: readaheadSize}
	a.calls[1].Result = 4096
	d := Dir{Sizes: trueSizes(true)}
	for _, c := range []struct {
		mode  uint32
		size  int64
		whole bool
	}{{unix.S_IFREG, 4096, true}, {unix.S_IFREG, 5000, false}, {unix.S_IFREG, 0, false}, {unix.S_IFBLK, 4096, false}} {
		a.stats[0].Mode, a.stats[0].Size = c.mode, c.size
		require.Equal(t, c.whole, a.isWhole(d, 0), "%+v", c)
	}
}

// An io_uring cannot tell whether a file whose size is a multiple of 512 is whole. A worker that meets many makes calls instead.
func TestGroupsOfSizesThatARingCannotTell(t *testing.T) {
	g := Groups{Limit: -1, ring: true, depth: readaheadDepth, filled: 10 * ringAnyway, tried: readaheadDepth, missed: readaheadDepth, reader: &fakeGroup{}}
	saw := func(files, size int) {
		for range files {
			g.Saw(size)
		}
	}
	s := &entries{left: 1000}
	saw(readaheadDepth, 511)
	saw(readaheadDepth/ringEven/2, 512)
	g.missed = 0
	require.NotZero(t, g.next(s))
	require.True(t, g.ring)
	g.tried, g.missed = readaheadDepth, readaheadDepth
	saw(readaheadDepth, 512)
	require.Equal(t, callDepth, g.next(s), "without a pause")
	require.False(t, g.ring)
	require.Equal(t, callDepth, g.next(s))
	require.False(t, g.ring || g.NoRing)
	saw(4*readaheadDepth, 511)
	g.next(s)
	require.True(t, g.NoRing, "a ring is tried again")
	g.Close()
}
