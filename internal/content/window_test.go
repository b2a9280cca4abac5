package content

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/pace"
	"github.com/stretchr/testify/require"
)

// A fakeWindow takes some time to be read, and may say how much of it was in the page cache.
type fakeWindow struct {
	WindowReader
	opening, takes  time.Duration
	share           float64
	probed          []bool
	began, opened   int
	allowed         int // requests
	each            int // requests of a file; 0 is 1
	fewer           int // files that the window has after all
	lacks           int // unless 0, a file that it has not got; and it has used no ring
	stopped, closed bool
	got             int
}

func (f *fakeWindow) Begin(n, requests int) { f.began, f.allowed, f.opened = n, requests, 0 }

func (f *fakeWindow) Open(i int, _ Dir, _ names.Name) error {
	if f.opened++; i == 0 {
		time.Sleep(f.opening)
	}
	return nil
}

func (f *fakeWindow) Read(stopped func() bool, probes bool) float64 {
	f.stopped = stopped()
	f.probed = append(f.probed, probes)
	time.Sleep(f.takes)
	return f.share
}

func (f *fakeWindow) Get(i int, c *Content) bool {
	f.got = i
	c.Data = []byte("content")
	return f.lacks == 0 || i != f.lacks
}

func (f *fakeWindow) Len() int { return f.began - f.fewer }

func (f *fakeWindow) Requests() int { return f.Len() * max(1, f.each) }

func (f *fakeWindow) UsedRing() bool { return f.lacks == 0 }
func (f *fakeWindow) Close()         { f.closed = true }

const windowOf = 100

// newFakeWindow returns a Window of f, which has windowOf files.
func newFakeWindow(f *fakeWindow) *Window {
	w := &Window{reader: f, disk: new(pace.Disk)}
	w.disk.Init(windowOf)
	for w.disk.Window() < windowOf {
		w.disk.ReleaseWindow(w.disk.AcquireWindow(context.Background(), windowOf), 0)
	}
	return w
}

// read reads one window, and says whether it waited for a disk and whether the next need not.
func (f *fakeWindow) read(t *testing.T, w *Window, opening, takes time.Duration) (waited, cached bool) {
	f.opening, f.takes = opening, takes
	n, met := w.Fetch(&entries{left: windowOf, ctx: t.Context()})
	require.Equal(t, windowOf, n)
	require.Equal(t, windowOf, f.began)
	require.Equal(t, windowOf, f.opened)
	require.True(t, w.disk.IsIdle())
	return met.Waited, met.Cached
}

// Where a file system does not say what is in the page cache, the disk is out of the way after some windows in a row that did
// not wait for it, and only then: one that did begins the count anew, also if its opens waited.
func TestWindowsInTheCacheAreInARow(t *testing.T) {
	const quick, slow = windowOf*cachedFile - 1, windowOf * cachedFile
	synctest.Test(t, func(t *testing.T) {
		f := &fakeWindow{share: -1}
		w := newFakeWindow(f)
		for range 2 { // the count begins anew after the end
			for k := range cachedWindows {
				waited, cached := f.read(t, w, 0, quick)
				require.False(t, waited)
				require.Equal(t, k == cachedWindows-1, cached, k)
			}
		}
		for _, opening := range []time.Duration{0, slow} {
			for range 3 * cachedWindows {
				for range cachedWindows - 1 {
					waited, cached := f.read(t, w, 0, quick)
					require.False(t, waited || cached)
				}
				waited, cached := f.read(t, w, opening, slow-opening)
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
		w := newFakeWindow(f)
		for _, c := range []struct {
			share  float64
			cached bool
		}{{0, false}, {mostlyCached, false}, {mostlyCached + 0.01, true}, {1, true}} {
			for range 2 * cachedWindows { // the time says nothing then
				f.share = c.share
				_, cached := f.read(t, w, 0, 0)
				require.Equal(t, c.cached, cached, c.share)
			}
		}
		for k, probes := range f.probed {
			require.Equal(t, k%probeEvery == 0, probes, k)
		}
		f.share = 1 // this ends the row
		f.read(t, w, 0, 0)
		f.share = -1
		for range cachedWindows - 1 {
			_, cached := f.read(t, w, 0, 0)
			require.False(t, cached)
		}
	})
}

// What a window has is its reader's.
func TestWindowGives(t *testing.T) {
	f := &fakeWindow{}
	w := newFakeWindow(f)
	f.read(t, w, 0, 0)
	ok, ring := w.Get(7, new(Content))
	require.True(t, ok && ring)
	require.Equal(t, 7, f.got)
	f.lacks = 8
	ok, ring = w.Get(8, new(Content))
	require.False(t, ok || ring)
	w.Close()
	require.True(t, f.closed)
}

// What does not belong to a window after all is left to the next.
func TestWindowHasFewerFiles(t *testing.T) {
	n, _ := newFakeWindow(&fakeWindow{fewer: 3}).Fetch(&entries{left: windowOf, ctx: t.Context()})
	require.Equal(t, windowOf-3, n)
}

// Large files are several requests each, so that fewer are read together. Where several workers visit them, each reads the file that it
// has taken alone.
func TestWindowOfLargeFiles(t *testing.T) {
	f := &fakeWindow{each: 10}
	w := newFakeWindow(f)
	for _, joined := range []bool{false, true} {
		w.Fetch(&entries{left: windowOf, ctx: t.Context()})
		s := &entries{left: windowOf, ctx: t.Context(), joined: joined}
		n, _ := w.Fetch(s)
		require.Equal(t, joined, n == 1)
		require.Equal(t, (f.allowed+9)/10, n)
		require.Less(t, n, windowOf/2)
		require.True(t, w.disk.IsIdle())
	}
	f.each = 1
	w.Fetch(&entries{left: windowOf, ctx: t.Context()})
	n, _ := w.Fetch(&entries{left: windowOf, ctx: t.Context(), joined: true})
	require.Equal(t, windowOf, n)
}

// A window that is being opened when the run is stopped reads no more than it must.
func TestWindowHearsOfAStop(t *testing.T) {
	for _, stops := range []bool{false, true} {
		f := &fakeWindow{}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if stops {
			cancel()
		}
		newFakeWindow(f).Fetch(&entries{left: windowOf, ctx: ctx})
		require.Equal(t, stops, f.stopped)
	}
}

// The disk hears how long the reads of a window took, without its opens.
func TestWindowTellsTheDisk(t *testing.T) {
	for _, c := range []struct {
		opening, takes time.Duration
		want           int
	}{{time.Hour, 0, windowOf}, {0, time.Hour, windowOf / 2}} {
		synctest.Test(t, func(t *testing.T) {
			f := &fakeWindow{}
			w := newFakeWindow(f)
			for range 10 {
				f.opening, f.takes = c.opening, c.takes
				_, _ = w.Fetch(&entries{left: windowOf, ctx: t.Context()})
			}
			require.Equal(t, c.want == windowOf, w.disk.Window() == windowOf)
		})
	}
}

// A run that has no windows any more reads none.
func TestNoWindow(t *testing.T) {
	f := &fakeWindow{}
	w := newFakeWindow(f)
	w.disk.LimitWindows(0)
	n, met := w.Fetch(&entries{left: windowOf, ctx: t.Context()})
	require.Zero(t, n)
	require.Zero(t, met)
	require.Zero(t, f.began)
	require.True(t, w.disk.IsIdle())
}
