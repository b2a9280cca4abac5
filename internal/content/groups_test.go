package content

import (
	"context"
	"io/fs"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fileproc/fileproc/internal/names"
	"github.com/stretchr/testify/require"
)

// entries are a Source of so many files in one directory.
type entries struct {
	left         int
	joined, much bool
	gone         bool   // the directory is
	enters       bool   // the cold mode, if it is asked to
	did          string // what was called
	ctx          context.Context
}

func (e *entries) Len() int { return e.left }

func (e *entries) Use(n int) (Dir, []names.Name, error) {
	if e.gone {
		return Dir{}, nil, fs.ErrNotExist
	}
	e.did += "use "
	return Dir{}, make([]names.Name, n), nil
}

func (e *entries) Idle() { e.did += "idle " }

func (e *entries) OpenIn(w WindowReader, n int) {
	for i := range n {
		_ = w.Open(i, Dir{}, names.Dot)
	}
}

func (e *entries) IsJoined() bool { return e.joined }
func (e *entries) HasMuch() bool  { return e.much }

func (e *entries) Uncached() bool {
	e.did += "uncached "
	return e.enters
}

func (e *entries) Context() context.Context { return e.ctx }

// What a group gives came through an io_uring if the group is one.
func TestGroupSaysWhetherItIsARing(t *testing.T) {
	for _, ring := range []bool{false, true} {
		for _, fills := range []bool{false, true} {
			g := Groups{NoRing: true, ring: ring, filled: 4 * ringShare, depth: 4, reader: &fakeGroup{fills: fills}}
			n, _ := g.Fetch(&entries{left: 1000})
			require.Equal(t, 4, n)
			require.Equal(t, 4*ringShare+4, g.filled)
			ok, through := g.Get(1, new(Content))
			require.Equal(t, fills, ok)
			require.Equal(t, fills && ring, through)
		}
	}
}

// A fakeGroup has all of its files, or nothing.
type fakeGroup struct {
	fails, uncached, fills bool
	takes                  time.Duration
	closed                 int
}

func (g *fakeGroup) read(Dir, []names.Name) bool {
	time.Sleep(g.takes)
	return !g.fails
}

func (g *fakeGroup) get(int, *Content) bool { return g.fills }
func (g *fakeGroup) isUncached(int) bool    { return g.uncached }
func (g *fakeGroup) close()                 { g.closed++ }

// Files that have to be read one by one after all are a reason to pause, above a quarter of them, and say that the disk is
// cold if most of these were not in the page cache: then there is no pause if the worker reads them otherwise. Fewer files than
// a full depth say nothing.
func TestGroupsStopWhereTheyAreOfNoUse(t *testing.T) {
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
		for _, enters := range []bool{false, true} {
			r := &fakeGroup{}
			g := Groups{NoRing: true, reader: r, depth: readaheadDepth}
			n, _ := g.Fetch(&entries{left: c.tried})
			require.Equal(t, c.tried, n)
			for i := range c.missed {
				r.uncached = i < c.cold
				ok, _ := g.Get(i, new(Content))
				require.False(t, ok)
			}
			s := &entries{left: 1000, enters: enters}
			want := readaheadDepth
			if c.stops {
				want = 0
			}
			require.Equal(t, want, g.next(s), c)
			require.Equal(t, c.isCold, s.did == "uncached ", c)
			if c.stops && !(c.isCold && enters) {
				for range readaheadPause {
					require.Zero(t, g.next(s))
				}
			}
			require.Equal(t, readaheadDepth, g.next(s), "what was missed before does not count again")
			require.Equal(t, c.isCold, s.did == "uncached ", c)
			g.Close()
			require.Equal(t, 1, r.closed)
		}
	}
}

// A group is of no more than what is left, and there is none for a few. Where it cannot be read, none is tried for long.
func TestGroupOfTheRest(t *testing.T) {
	r := &fakeGroup{}
	g := Groups{NoRing: true, reader: r, depth: readaheadDepth}
	for left, want := range map[int]int{0: 0, AheadFrom/2 - 1: 0, AheadFrom / 2: AheadFrom / 2, readaheadDepth: readaheadDepth, readaheadDepth + 1: readaheadDepth} {
		require.Equal(t, want, g.next(&entries{left: left}))
	}
	r.fails = true
	s := &entries{left: 9}
	n, _ := g.Fetch(s)
	require.Zero(t, n)
	require.Equal(t, "use idle ", s.did)
	require.Zero(t, g.tried)
	require.Equal(t, readaheadPause, g.Wait)
}

// Nothing is fetched of a batch that others visit too, nor of a directory that is gone. That says nothing of the next.
func TestGroupsLeaveEntriesAlone(t *testing.T) {
	g := Groups{NoRing: true, reader: &fakeGroup{}, depth: readaheadDepth}
	for _, s := range []*entries{{left: 100, joined: true}, {left: 100, gone: true}} {
		n, _ := g.Fetch(s)
		require.Zero(t, n)
		require.Empty(t, s.did)
	}
	require.Zero(t, g.Wait)
}

// How long metadata took is known of each file. Of content, the content itself says what was waited for.
func TestGroupsTimeMetadata(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, statOnly := range []bool{false, true} {
			g := Groups{NoRing: true, StatOnly: statOnly, reader: &fakeGroup{takes: 8 * time.Second}, depth: 8}
			n, met := g.Fetch(&entries{left: 1000})
			require.Equal(t, 8, n)
			require.Equal(t, map[bool]time.Duration{true: time.Second}[statOnly], met.Took)
		}
	})
}

// Where there are no groups, none is tried for long.
func TestNoGroups(t *testing.T) {
	if r, _ := newCallGroup(-1, false, false); r != nil {
		r.close()
		t.Skip("this platform has a group of calls")
	}
	g := Groups{NoRing: true}
	require.Zero(t, g.next(&entries{left: 1000}))
	require.Equal(t, readaheadPause, g.Wait)
	n, met := g.Fetch(&entries{left: 1000})
	require.Zero(t, n)
	require.Zero(t, met)
}

// The first files of a run are left alone.
func TestGroupsBeginAfterSomeFiles(t *testing.T) {
	g := Groups{NoRing: true, reader: &fakeGroup{}, depth: readaheadDepth, Wait: AheadFrom}
	for range AheadFrom {
		require.Zero(t, g.next(&entries{left: 1000}))
	}
	require.Equal(t, readaheadDepth, g.next(&entries{left: 1000}))
}

func TestAloneFetchesNothing(t *testing.T) {
	n, met := Alone{}.Fetch(nil)
	require.Zero(t, n)
	require.Zero(t, met)
	ok, ring := Alone{}.Get(0, nil)
	require.False(t, ok || ring)
}

// As many files are read together as fit in the processor's cache, by the size of those before; where they are large, none are.
func TestGroupsBySize(t *testing.T) {
	s := &entries{left: 1000}
	for size, want := range map[int]int{1: readaheadDepth, 1000: readaheadDepth, 8 << 10: 15, 16 << 10: AheadFrom / 2, readaheadAverage - 1: AheadFrom / 2,
		readaheadAverage: 0, 1 << 30: 0} {
		g := Groups{NoRing: true, reader: &fakeGroup{}, depth: readaheadDepth}
		for range AheadFrom {
			g.Saw(size)
		}
		require.Equal(t, want, g.next(s), size)
		for range 10 * readaheadDepth { // after others
			g.Saw(100)
		}
		require.Equal(t, readaheadDepth, g.next(s))
	}
	g := Groups{NoRing: true, reader: &fakeGroup{}, depth: readaheadDepth}
	for range 31 {
		g.Saw(1000)
	}
	g.Saw(1 << 30)
	require.Positive(t, g.next(s), "one very large file does not stop it")
}

// The depth of an io_uring grows with what the worker has read ahead, up to a bound.
func TestDepthOfARing(t *testing.T) {
	g := Groups{NoRing: true, reader: &fakeGroup{}, ring: true}
	for filled, depth := range map[int]int{ringFrom: ringFrom / ringShare, 8 * readaheadDepth: readaheadDepth, 100 * readaheadDepth: readaheadDepth} {
		g.filled = filled
		require.Equal(t, depth, g.next(&entries{left: 1000}))
	}
	g.Close()
	require.False(t, g.NoRing, "there may be one again")
	g = Groups{NoRing: true, reader: &fakeGroup{}}
	g.Close()
	require.True(t, g.NoRing, "there was none, or there is to be none")
	g.Close()
}
