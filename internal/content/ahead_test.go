package content

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fileproc/fileproc/internal/names"
	"github.com/stretchr/testify/require"
)

// A fakeWindow takes some time to be read, and may say how much of it was in the page cache.
type fakeWindow struct {
	WindowReader
	takes  time.Duration
	share  float64
	probed []bool
	began  int
	got    int
}

func (f *fakeWindow) Begin(n int) { f.began = n }

func (f *fakeWindow) Read(_ func() bool, probes bool) float64 {
	f.probed = append(f.probed, probes)
	time.Sleep(f.takes)
	return f.share
}

func (f *fakeWindow) Get(i int, c *Content) bool {
	f.got = i
	c.Data = []byte("content")
	return true
}

func (f *fakeWindow) UsedRing() bool { return true }

const windowOf = 100

// read reads one window, and says whether it waited for a disk and whether the next need not.
func (f *fakeWindow) read(t *testing.T, a *Ahead, opening, takes time.Duration) (waited, cached bool) {
	f.takes = takes
	a.BeginWindow(7, windowOf)
	require.Equal(t, windowOf, f.began)
	time.Sleep(opening)
	reading, waited, cached := a.ReadWindow(nil)
	require.Equal(t, takes, reading, "without the time of the opens")
	return waited, cached
}

// Where a file system does not say what is in the page cache, the disk is out of the way after some windows in a row that did
// not wait for it, and only then: one that did begins the count anew, also if its opens waited.
func TestWindowsInTheCacheAreInARow(t *testing.T) {
	const quick, slow = windowOf*cachedFile - 1, windowOf * cachedFile
	synctest.Test(t, func(t *testing.T) {
		f := &fakeWindow{share: -1}
		a := Ahead{Window: f}
		for range 2 { // the count begins anew after the end
			for k := range cachedWindows {
				waited, cached := f.read(t, &a, 0, quick)
				require.False(t, waited)
				require.Equal(t, k == cachedWindows-1, cached, k)
			}
		}
		for _, opening := range []time.Duration{0, slow} {
			for range 3 * cachedWindows {
				for range cachedWindows - 1 {
					waited, cached := f.read(t, &a, 0, quick)
					require.False(t, waited || cached)
				}
				waited, cached := f.read(t, &a, opening, slow-opening)
				require.True(t, waited)
				require.False(t, cached)
			}
		}
	})
}

// Where it says so, one window is enough, if most of it was in the page cache. One window of some asks.
func TestWindowThatIsMostlyCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeWindow{}
		a := Ahead{Window: f}
		for _, c := range []struct {
			share  float64
			cached bool
		}{{0, false}, {mostlyCached, false}, {mostlyCached + 0.01, true}, {1, true}} {
			for range 2 * cachedWindows { // the time says nothing then
				f.share = c.share
				_, cached := f.read(t, &a, 0, 0)
				require.Equal(t, c.cached, cached, c.share)
			}
		}
		for k, probes := range f.probed {
			require.Equal(t, k%probeEvery == 0, probes, k)
		}
		f.share = 1 // this ends the row
		f.read(t, &a, 0, 0)
		f.share = -1
		for range cachedWindows - 1 {
			_, cached := f.read(t, &a, 0, 0)
			require.False(t, cached)
		}
	})
}

// An entry is the window's own from its first to its last, until the window is forgotten.
func TestWindowHasItsEntries(t *testing.T) {
	f := &fakeWindow{}
	a := Ahead{Window: f, NeedsStat: true} // a window has both
	a.BeginWindow(7, 3)
	for i := range 20 {
		var c Content
		ok, ring := a.Get(i, &c)
		require.Equal(t, 7 <= i && i < 10, a.Has(i), i)
		require.Equal(t, a.Has(i), ok)
		require.Equal(t, a.Has(i), ring)
		if ok {
			require.Equal(t, i-7, f.got)
		}
	}
	a.Forget()
	require.False(t, a.Has(0) || a.Has(7))
}

// What a group gives came through an io_uring if the group is one.
func TestGroupSaysWhetherItIsARing(t *testing.T) {
	for _, ring := range []bool{false, true} {
		for _, fills := range []bool{false, true} {
			a := Ahead{NoRing: true, ring: ring, group: &fakeGroup{fills: fills}}
			require.True(t, a.Read(Dir{}, make([]names.Name, 4), 0))
			require.Equal(t, 4, a.filled)
			ok, through := a.Get(1, new(Content))
			require.Equal(t, fills, ok)
			require.Equal(t, fills && ring, through)
		}
	}
}

// A fakeGroup has all of its files, or nothing.
type fakeGroup struct {
	fails, uncached, fills bool
	closed                 int
}

func (g *fakeGroup) read(Dir, []names.Name) bool { return !g.fails }
func (g *fakeGroup) get(int, *Content) bool      { return g.fills }
func (g *fakeGroup) isUncached(int) bool         { return g.uncached }
func (g *fakeGroup) close()                      { g.closed++ }

// Files that have to be read one by one after all are a reason to pause, above a quarter of them, and say that the disk is
// cold if most of these were not in the page cache. Fewer files than a full depth say nothing.
func TestAheadStopsWhereItIsOfNoUse(t *testing.T) {
	for _, c := range []struct {
		tried, missed, cold int
		stops, isCold       bool
	}{
		{readaheadDepth, readaheadDepth / 4, 0, false, false},
		{readaheadDepth, readaheadDepth/4 + 1, 0, true, false},
		{readaheadDepth, readaheadDepth/4 + 1, (readaheadDepth/4 + 1) / 2, true, false},
		{readaheadDepth, readaheadDepth/4 + 1, (readaheadDepth/4+1)/2 + 1, true, true},
		{readaheadDepth - 1, readaheadDepth - 1, readaheadDepth - 1, false, false},
	} {
		g := &fakeGroup{}
		a := Ahead{NoRing: true, group: g, depth: readaheadDepth}
		require.True(t, a.Read(Dir{}, make([]names.Name, c.tried), 0))
		for i := range c.missed {
			g.uncached = i < c.cold
			ok, _ := a.Get(i, new(Content))
			require.False(t, ok)
		}
		n, isCold := a.Next(1000, nil)
		require.Equal(t, c.stops, n == 0, c)
		require.Equal(t, c.isCold, isCold, c)
		if !c.stops {
			require.Equal(t, readaheadDepth, n)
		}
		if isCold {
			require.Zero(t, a.Wait, "the worker decides")
			a.Pause()
		}
		if c.stops {
			for range readaheadPause {
				n, isCold = a.Next(1000, nil)
				require.Zero(t, n)
				require.False(t, isCold)
			}
			n, isCold = a.Next(1000, nil)
			require.Equal(t, readaheadDepth, n, "what was missed before does not count again")
			require.False(t, isCold)
		}
		a.Close()
		require.Equal(t, 1, g.closed)
	}
}

// A group is of no more than what is left, and there is none for a few. Where it cannot be read, none is tried for long.
func TestAheadOfTheRest(t *testing.T) {
	g := &fakeGroup{}
	a := Ahead{NoRing: true, group: g, depth: readaheadDepth}
	for left, want := range map[int]int{0: 0, AheadFrom/2 - 1: 0, AheadFrom / 2: AheadFrom / 2, readaheadDepth: readaheadDepth, readaheadDepth + 1: readaheadDepth} {
		n, isCold := a.Next(left, nil)
		require.Equal(t, want, n)
		require.False(t, isCold)
	}
	g.fails = true
	require.False(t, a.Read(Dir{}, make([]names.Name, 9), 5))
	require.False(t, a.Has(5))
	require.Zero(t, a.tried)
	require.Equal(t, readaheadPause, a.Wait)
}

// As many files are read together as fit in the processor's cache, by the size of those before; where they are large, none are.
func TestAheadBySize(t *testing.T) {
	for size, want := range map[int]int{1: readaheadDepth, 1000: readaheadDepth, 8 << 10: 15, 16 << 10: AheadFrom / 2, readaheadAverage - 1: AheadFrom / 2,
		readaheadAverage: 0, 1 << 30: 0} {
		a := Ahead{NoRing: true, group: &fakeGroup{}, depth: readaheadDepth}
		for range AheadFrom {
			a.Saw(size)
		}
		n, _ := a.Next(1000, nil)
		require.Equal(t, want, n, size)
		for range 10 * readaheadDepth { // after others
			a.Saw(100)
		}
		n, _ = a.Next(1000, nil)
		require.Equal(t, readaheadDepth, n)
	}
	a := Ahead{NoRing: true, group: &fakeGroup{}, depth: readaheadDepth}
	for range 31 {
		a.Saw(1000)
	}
	a.Saw(math.MaxInt)
	n, _ := a.Next(1000, nil)
	require.Positive(t, n, "one very large file does not stop it")
}

// The depth of an io_uring grows with what the worker has read ahead, up to a bound.
func TestAheadDepthOfARing(t *testing.T) {
	a := Ahead{NoRing: true, group: &fakeGroup{}, ring: true}
	for filled, depth := range map[int]int{ringFrom: ringFrom / ringShare, 8 * readaheadDepth: readaheadDepth, 100 * readaheadDepth: readaheadDepth} {
		a.filled = filled
		n, _ := a.Next(1000, nil)
		require.Equal(t, depth, n)
	}
	a.Close()
	require.False(t, a.NoRing, "there may be one again")
	a = Ahead{NoRing: true, group: &fakeGroup{}}
	a.Close()
	require.True(t, a.NoRing, "there was none, or there is to be none")
	a.Close()
}
