package fileproc

import (
	"fmt"
	"io/fs"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/fileproc/fileproc/internal/backend"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

// A stand is a world with a dirCache on it and a node for each of its directories, all with a reference.
type stand struct {
	*world
	*dirCache
	top  *node
	node map[string]*node
}

func newStand(t *testing.T, limit int, root *object) *stand {
	w := &world{root: root}
	d, err := w.openRoot("")
	require.NoError(t, err)
	top := &node{dir: d, refs: 1}
	s := &stand{world: w, dirCache: &dirCache{limit: limit, kept: top}, top: top, node: map[string]*node{}}
	var arena names.Arena
	var add func(o *object, up *node)
	add = func(o *object, up *node) {
		for _, k := range o.kids {
			n := &node{parent: up, name: arena.Add([]byte(k.name)), depth: up.depth + 1, refs: 1}
			s.node[k.name] = n
			add(k, n)
		}
	}
	add(root, s.top)
	return s
}

// end releases all handles, after which none is open.
func (s *stand) end(t *testing.T) {
	t.Helper()
	s.closeAll()
	require.Zero(t, s.world.open, "handles left open")
	require.Empty(t, s.wrong)
}

func (s *stand) mustPin(t *testing.T, name string) backend.Directory {
	t.Helper()
	d, err := s.acquire(s.node[name])
	require.NoError(t, err)
	require.Same(t, s.objectOf(name), d.(*worldDir).o, "the directory that was pinned")
	return d
}

// objectOf returns the object that a node stands for.
func (s *stand) objectOf(name string) *object {
	var find func(o *object) *object
	find = func(o *object) *object {
		if o.name == name {
			return o
		}
		for _, k := range o.kids {
			if f := find(k); f != nil {
				return f
			}
		}
		return nil
	}
	return find(s.world.root)
}

func chain() *object { return folder("", folder("a", folder("b", folder("c", folder("d"))))) }

func row(n int) *object {
	root := folder("")
	for i := range n {
		root.kids = append(root.kids, folder(fmt.Sprint("n", i)))
	}
	return root
}

func TestDirCacheLimit(t *testing.T) {
	for _, limit := range []int{0, 1, 3} {
		s := newStand(t, limit, row(10))
		for round := range 2 { // in the second one most have been closed
			for i := range 10 {
				name := fmt.Sprint("n", i)
				s.mustPin(t, name)
				s.release(s.node[name], 1, 0)
				require.LessOrEqual(t, len(s.dirCache.open), limit)
				require.Equal(t, 1+len(s.dirCache.open), s.world.open, "round %d", round)
			}
		}
		require.Len(t, s.dirCache.open, limit, "directories within the limit stay open")
		s.end(t)
	}
}

func TestDirCachePinnedStayOpen(t *testing.T) {
	s := newStand(t, 0, row(5))
	var dirs []backend.Directory
	for i := range 5 {
		dirs = append(dirs, s.mustPin(t, fmt.Sprint("n", i)))
	}
	require.Equal(t, 6, s.world.open)
	require.Same(t, dirs[2], s.mustPin(t, "n2"), "a second pin gets the same handle")
	s.release(s.node["n2"], 1, 0)
	require.Same(t, dirs[2], s.node["n2"].dir)
	for i := range 5 {
		s.release(s.node[fmt.Sprint("n", i)], 1, 0)
	}
	require.Equal(t, 1, s.world.open)
	s.end(t)
}

func TestDirCacheCloseWhenNothingNeedsThem(t *testing.T) {
	s := newStand(t, 8, row(2))
	n := s.node["n0"]
	s.mustPin(t, "n0")
	s.ref(n, 2)        // a batch and a subdirectory
	s.release(n, 1, 1) // its listing
	require.NotNil(t, n.dir)
	s.release(n, 0, 1)
	require.NotNil(t, n.dir)
	s.release(n, 0, 1)
	require.Nil(t, n.dir)
	require.Equal(t, 1, s.world.open)

	n = s.node["n1"]
	s.mustPin(t, "n1")
	s.release(n, 0, 1)
	require.NotNil(t, n.dir, "pinned")
	s.release(n, 1, 0)
	require.Nil(t, n.dir)
	require.Equal(t, 1, s.world.open)
	s.end(t)
}

func TestDirCacheUnrefOfAClosedOne(t *testing.T) {
	s := newStand(t, 0, row(1))
	s.mustPin(t, "n0")
	s.release(s.node["n0"], 1, 0)
	require.Nil(t, s.node["n0"].dir)
	s.release(s.node["n0"], 0, 1)
	s.end(t)
}

// A closed directory is reopened from the nearest open ancestor, and takes at most two handles more.
func TestDirCacheDescent(t *testing.T) {
	s := newStand(t, 0, chain())
	for range 3 {
		s.opens, s.most = 0, 0
		s.mustPin(t, "d")
		require.Equal(t, 4, s.opens)
		require.Equal(t, 3, s.most, "root, a directory, and the one above it")
		require.Equal(t, 2, s.world.open)
		s.release(s.node["d"], 1, 0)
		require.Equal(t, 1, s.world.open)
	}
	s.mustPin(t, "b")
	s.opens = 0
	s.mustPin(t, "d")
	require.Equal(t, 2, s.opens, "only what lies below b")
	s.release(s.node["d"], 1, 0)
	s.release(s.node["b"], 1, 0)
	require.Zero(t, s.node["a"].pins+s.node["b"].pins+s.node["c"].pins+s.node["d"].pins+s.top.pins)
	s.end(t)
}

func TestDirCacheDescentFails(t *testing.T) {
	s := newStand(t, 0, chain())
	s.objectOf("c").openErr = []error{errBroken, errBroken}
	for range 2 {
		_, err := s.acquire(s.node["d"])
		require.ErrorIs(t, err, errBroken)
		require.Equal(t, 1, s.world.open)
	}
	for _, n := range s.node {
		require.Zero(t, n.pins)
	}
	require.Zero(t, s.top.pins)
	s.mustPin(t, "d")
	s.end(t)
}

func TestDirCacheIdentity(t *testing.T) {
	s := newStand(t, 0, chain())
	s.mustPin(t, "b")
	s.release(s.node["b"], 1, 0)
	was := s.objectOf("a").kids
	s.objectOf("a").kids = []*object{folder("b", folder("c"))}
	for range 2 {
		_, err := s.acquire(s.node["b"])
		require.ErrorIs(t, err, ErrChanged)
		_, err = s.acquire(s.node["c"])
		require.ErrorIs(t, err, ErrChanged, "nothing below is reached either")
		require.Equal(t, 1, s.world.open)
	}
	s.objectOf("a").kids = was
	s.mustPin(t, "b")
	s.end(t)
}

func TestDirCacheWithoutIdentityStayOpen(t *testing.T) {
	s := newStand(t, 0, row(2))
	s.objectOf("n0").idErr = errBroken
	s.mustPin(t, "n0")
	s.release(s.node["n0"], 1, 0)
	require.NotNil(t, s.node["n0"].dir, "it could not be distinguished from another one later")
	s.evictAll()
	require.NotNil(t, s.node["n0"].dir)
	s.mustPin(t, "n1")
	s.release(s.node["n1"], 1, 0)
	require.Nil(t, s.node["n1"].dir, "the next one is closed in its place")

	s.objectOf("n1").idErr = errBroken
	_, err := s.acquire(s.node["n1"])
	require.ErrorIs(t, err, errBroken)
	require.Equal(t, 2, s.world.open)
	s.objectOf("n0").idErr = nil
	s.evictAll()
	require.Nil(t, s.node["n0"].dir, "what failed once is tried again while descriptors are short")
	s.end(t)
}

// A directory without identity, which stays open anyway, takes no room from others.
func TestDirCacheWithoutIdentityDoNotCount(t *testing.T) {
	s := newStand(t, 1, row(2))
	s.objectOf("n0").idErr = errBroken
	for _, name := range []string{"n0", "n1"} {
		s.mustPin(t, name)
	}
	s.release(s.node["n0"], 1, 0)
	s.release(s.node["n1"], 1, 0)
	require.True(t, s.node["n0"].noID)
	require.NotNil(t, s.node["n1"].dir)
	s.end(t)
}

// What kept a directory from being identified, such as an interrupt, may be over when it is next used.
func TestDirCacheIdentityThatFailedOnce(t *testing.T) {
	s := newStand(t, 0, row(1))
	s.objectOf("n0").idErr = errBroken
	s.mustPin(t, "n0")
	s.release(s.node["n0"], 1, 0)
	require.NotNil(t, s.node["n0"].dir)
	s.objectOf("n0").idErr = nil
	s.mustPin(t, "n0")
	s.release(s.node["n0"], 1, 0)
	require.Nil(t, s.node["n0"].dir)
	s.end(t)
}

// Two workers that open one directory at the same time get one handle; the other handle is closed.
func TestDirCacheOpenedTwiceAtATime(t *testing.T) {
	s := newStand(t, 8, row(1))
	n := s.node["n0"]
	inside := false
	var faster backend.Directory
	s.onCall = func(int) {
		if inside {
			return
		}
		inside = true
		var err error
		faster, err = s.acquire(n)
		require.NoError(t, err)
	}
	d := s.mustPin(t, "n0")
	require.Same(t, faster, d)
	require.Equal(t, 2, n.pins)
	require.Equal(t, 3, s.opens)
	require.Equal(t, 2, s.world.open)
	s.release(n, 1, 0)
	s.release(n, 1, 0)
	s.end(t)
}

func TestDirCacheWithWaiters(t *testing.T) {
	s := newStand(t, 8, row(2))
	s.mustPin(t, "n0")
	short := s.newShortage()
	s.release(s.node["n0"], 1, 0)
	require.Nil(t, s.node["n0"].dir, "kept while descriptors are scarce")
	short.end()
	s.mustPin(t, "n0")
	s.release(s.node["n0"], 1, 0)
	require.NotNil(t, s.node["n0"].dir)
	s.end(t)
}

// What is given back twice is noticed, in root too, which is not closed.
func TestDirCacheNegativePinsPanic(t *testing.T) {
	for _, name := range []string{"", "n0"} {
		s := newStand(t, 8, row(1))
		s.node[""] = s.top
		n := s.node[name]
		d, err := s.acquire(n)
		require.NoError(t, err)
		s.release(n, 1, 0)
		require.PanicsWithValue(t, fmt.Sprintf("fileproc: directory %q has -1 pins and 1 references", n.relPath("")), func() { s.release(n, 1, 0) })
		require.Same(t, d, n.dir, "still open")

		var pin dirPin // of which a mistake has taken the pin away
		s.addPin(&pin)
		pin.node.Store(n)
		pin.idle()
		n.pins = 0
		require.Panics(t, s.evictAll)
		n.pins = 0
		s.end(t)
	}
}

func TestDirCacheNegativeReferencesPanic(t *testing.T) {
	for _, name := range []string{"", "n0"} {
		s := newStand(t, 8, row(1))
		s.node[""] = s.top
		n := s.node[name]
		_, err := s.acquire(n)
		require.NoError(t, err)
		require.Panics(t, func() { s.release(n, 0, 2) })
		n.refs = 0
		require.Panics(t, func() { s.ref(n, -1) })
		n.refs = 1
		s.release(n, 1, 1)
		s.end(t)
	}
}

// Only the run whose turn it is to wait for a descriptor keeps a directory open: that run may wait for those of others.
func TestDirCachePinForRetry(t *testing.T) {
	s := newStand(t, 0, chain())
	attempt := func(name string) {
		s.mustPin(t, name)
		s.pinForRetry(s.node[name])
		s.release(s.node[name], 1, 0)
	}
	attempt("b")
	require.Equal(t, 1, s.world.open)

	short := s.newShortage()
	attempt("b")
	require.Equal(t, 1, s.world.open)
	require.True(t, short.acquireTurn(t.Context(), s.evictAll))
	attempt("b")
	require.NotNil(t, s.node["b"].dir)
	attempt("c")
	require.Nil(t, s.node["b"].dir, "c is further")
	require.NotNil(t, s.node["c"].dir)
	s.evictAll()
	require.Equal(t, 2, s.world.open)
	short.end()
	require.Equal(t, 1, s.world.open)
	s.end(t)
}

func TestDirCacheEvictAll(t *testing.T) {
	s := newStand(t, 8, row(4))
	for i := range 4 {
		s.mustPin(t, fmt.Sprint("n", i))
	}
	s.release(s.node["n0"], 1, 0)
	s.release(s.node["n3"], 1, 0)
	s.evictAll()
	require.Nil(t, s.node["n0"].dir)
	require.NotNil(t, s.node["n1"].dir, "in use")
	require.NotNil(t, s.node["n2"].dir, "in use")
	require.Nil(t, s.node["n3"].dir)
	require.Equal(t, 3, s.world.open)
	s.end(t)
}

func TestDirPin(t *testing.T) {
	s := newStand(t, 8, row(2))
	var g dirPin
	s.pins = append(s.pins, &g, new(dirPin))
	n := s.node["n0"]
	g.drop(s.dirCache) // of nothing

	d, err := g.use(s.dirCache, n)
	require.NoError(t, err)
	require.Equal(t, 1, n.pins)
	s.evictAll()
	require.NotNil(t, n.dir, "in use")
	require.Equal(t, 1, n.pins)

	g.idle()
	again, err := g.use(s.dirCache, n)
	require.NoError(t, err)
	require.Same(t, d, again)
	require.Equal(t, 1, n.pins, "one pin, however often it is held")
	require.Equal(t, 2, s.opens)

	g.idle()
	s.evictAll()
	require.Nil(t, n.dir, "idle")
	require.Zero(t, n.pins)
	s.evictAll() // finds nothing to take
	require.Zero(t, n.pins)

	_, err = g.use(s.dirCache, n)
	require.NoError(t, err)
	require.Equal(t, 1, n.pins)
	g.idle()
	_, err = g.use(s.dirCache, s.node["n1"])
	require.NoError(t, err)
	require.Zero(t, n.pins, "given back for the other")
	require.Equal(t, 1, s.node["n1"].pins)
	g.drop(s.dirCache)
	g.drop(s.dirCache)
	require.Zero(t, s.node["n1"].pins)

	s.objectOf("n0").openErr = []error{errBroken}
	s.evictAll()
	_, err = g.use(s.dirCache, n)
	require.ErrorIs(t, err, errBroken)
	g.drop(s.dirCache)
	require.Zero(t, n.pins)
	s.end(t)
}

// A directory that only an idle dirPin keeps open is closed for good.
func TestDirPinIsTheLastToNeedADirectory(t *testing.T) {
	s := newStand(t, 8, row(1))
	var g dirPin
	s.pins = append(s.pins, &g)
	n := s.node["n0"]
	_, err := g.use(s.dirCache, n)
	require.NoError(t, err)
	s.release(n, 0, 1)
	require.NotNil(t, n.dir)
	g.idle()
	s.evictAll()
	require.Nil(t, n.dir)
	require.Nil(t, n.id, "its identity is no longer needed")
	s.end(t)
}

// A pin that was another's is given back once, also when evictAll takes it.
func TestDirPinInherits(t *testing.T) {
	for _, evicted := range []bool{false, true} {
		s := newStand(t, 8, row(2))
		var g dirPin
		s.pins = append(s.pins, &g)
		n := s.node["n0"]
		s.mustPin(t, "n0")
		_, err := g.use(s.dirCache, s.node["n1"])
		require.NoError(t, err)
		g.inherit(s.dirCache, n)
		require.Zero(t, s.node["n1"].pins)
		require.Equal(t, 1, n.pins)
		if evicted {
			s.evictAll()
			require.Zero(t, n.pins)
			require.Nil(t, n.dir)
		} else {
			d, err := g.use(s.dirCache, n)
			require.NoError(t, err)
			require.Same(t, n.dir, d)
			require.Equal(t, 1, n.pins)
		}
		g.drop(s.dirCache)
		require.Zero(t, n.pins)
		s.end(t)
	}
}

// The worker that has listed a directory to its end visits its files with the pin and the reference of the listing.
func TestDirPinOfTheListing(t *testing.T) {
	w := &world{eager: true, root: folder("", folder("d", file("f", "f"), file("g", "g"), folder("e", file("h", "h"))))}
	out := w.process(t.Context(), Options{Workers: 1}, func(f *File) error {
		refs := 1 // the batch's
		if f.node.name.String() == "d" {
			refs = 2 // and that of e, which is yet to be opened
		}
		require.Equal(t, refs, f.node.refs, f.Rel())
		require.Equal(t, 1, f.node.pins)
		return nil
	})
	require.Len(t, out.got, 3)
	w.requireSound(t, out)
}

func TestDirCacheAfterAnyEnd(t *testing.T) {
	s := newStand(t, 8, chain())
	var g dirPin
	s.pins = append(s.pins, &g)
	_, err := g.use(s.dirCache, s.node["d"])
	require.NoError(t, err)
	s.mustPin(t, "b") // as a panic leaves it
	s.end(t)
}

// The world fails the test at every use of a closed handle.
func TestDirCacheUsedByMany(t *testing.T) {
	root := folder("")
	var all []string
	for i := range 3 {
		a := folder(fmt.Sprint("a", i), file("f", "f"))
		all = append(all, a.name)
		for j := range 3 {
			b := folder(fmt.Sprint("b", i, j), file("f", "f"))
			c := folder(fmt.Sprint("c", i, j), file("f", "f"))
			b.kids = append(b.kids, c)
			a.kids = append(a.kids, b)
			all = append(all, b.name, c.name)
		}
		root.kids = append(root.kids, a)
	}
	s := newStand(t, 2, root)
	var wg sync.WaitGroup
	for i := range 8 {
		g := new(dirPin)
		s.dirCache.mu.Lock() // as other workers of the run are active when one starts
		s.pins = append(s.pins, g)
		s.dirCache.mu.Unlock()
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 2))
			f := names.New("f")
			use := func(d backend.Directory, err error) bool {
				if err == nil {
					_, err = d.Stat(f)
				}
				if err != nil {
					s.objectTo("%v", err)
				}
				return err == nil
			}
			for range 400 {
				n := s.node[all[r.IntN(len(all))]]
				switch r.IntN(8) {
				case 0:
					s.evictAll()
				case 1:
					short := s.newShortage()
					s.evictAll()
					short.end()
				case 2:
					s.ref(n, 1)
					s.release(n, 0, 1)
				case 3:
					if use(s.acquire(n)) {
						s.release(n, 1, 0)
					}
				case 4:
					g.drop(s.dirCache)
				default:
					for range 3 { // as one worker visits the files of a batch
						if use(g.use(s.dirCache, n)) {
							g.idle()
						}
					}
				}
			}
			g.drop(s.dirCache)
		})
	}
	wg.Wait()
	for name, n := range s.node {
		require.Zero(t, n.pins, name)
	}
	require.Zero(t, s.top.pins)
	require.LessOrEqual(t, len(s.dirCache.open), 2+8, "the limit, and the handles that every worker opened at that point")
	s.end(t)
}

// comb is a chain of directories. Each lists, before the next one, a directory that is entered on the way back.
func comb(levels int) *object {
	next := folder("n", file("f", "f"))
	for range levels {
		next = folder("n", folder("side", file("f", "f")), next)
	}
	return next
}

// On the way back from a depth, each level does not take an open for every level above it.
func TestDirCacheOnTheWayBack(t *testing.T) {
	const levels = 2000
	for limit, most := range map[int]int{4: 10 * levels, 32: 3 * levels} {
		w := &world{root: comb(levels)}
		root := &node{refs: 1}
		var err error
		root.dir, err = w.openRoot("")
		require.NoError(t, err)
		h := &dirCache{limit: limit, kept: root}
		var arena names.Arena
		n := root
		for range levels {
			sub := n.child(arena.Add([]byte("n")), 0)
			n = &sub
			_, err := h.acquire(n)
			require.NoError(t, err)
			h.release(n, 1, 0)
		}
		w.opens = 0
		for ; n.parent != nil; n = n.parent {
			_, err := h.acquire(n)
			require.NoError(t, err)
			h.release(n, 1, 1) // nothing needs it any more
			require.LessOrEqual(t, len(h.open), limit)
		}
		h.closeAll()
		require.Zero(t, w.open)
		require.LessOrEqual(t, w.opens, most, "opens with a limit of %d", limit)
	}
}

// TestDirCacheVictims: from a chain of ten open directories, the cache evicts those whose loss costs the fewest opens on the way back from the
// deepest. The cost of a directory is the number of levels to the next open one on either side, by 1 + its distance from the deepest.
func TestDirCacheVictims(t *testing.T) {
	c := &dirCache{}
	for depth := range 10 {
		c.open = append(c.open, &node{depth: depth + 1, refs: 1})
	}
	var evicted []int
	for len(c.open) > 0 {
		v := c.victim()
		evicted = append(evicted, v.depth)
		c.open = slices.DeleteFunc(c.open, func(n *node) bool { return n == v })
	}
	require.Equal(t, []int{1, 3, 5, 2, 7, 6, 9, 4, 10, 8}, evicted)
	c.open = []*node{{depth: 2, refs: 1}, {depth: 3, refs: 1}}
	require.Equal(t, 2, c.victim().depth, "the walk is at the other")
}

// Directories in use do not count as those that stay open for later.
func TestDirCacheLimitIsOfUnpinned(t *testing.T) {
	s := newStand(t, 2, row(5))
	for i := range 5 {
		s.mustPin(t, fmt.Sprint("n", i))
	}
	s.release(s.node["n4"], 1, 0)
	require.NotNil(t, s.node["n4"].dir)
	s.end(t)
}

// A directory that a worker pins while it is evicted stays open.
func TestDirCachePinnedWhileEvicted(t *testing.T) {
	s := newStand(t, 0, row(1))
	n := s.node["n0"]
	d := s.mustPin(t, "n0")
	s.during = func(call, _ string) {
		if call == "identity" {
			require.Same(t, d, s.mustPin(t, "n0"))
		}
	}
	s.release(n, 1, 0)
	require.Same(t, d, n.dir)
	s.release(n, 1, 0)
	require.Nil(t, n.dir)
	s.end(t)
}

// slowFS is an fs.FS in which the last close of the directory slow takes until done is closed.
type slowFS struct {
	fstest.MapFS
	opens *atomic.Int32
	done  chan struct{}
	late  *atomic.Bool // done was not closed in time
}

func (s slowFS) Open(name string) (fs.File, error) {
	f, err := s.MapFS.Open(name)
	if name == "slow" && s.opens.Add(1) == 2 { // when its ignore file has been read
		return slowDir{f.(fs.ReadDirFile), s}, err
	}
	return f, err
}

type slowDir struct {
	fs.ReadDirFile
	fs slowFS
}

func (d slowDir) Close() error {
	select {
	case <-d.fs.done:
	case <-time.After(10 * time.Second):
		d.fs.late.Store(true)
	}
	return d.ReadDirFile.Close()
}

// A directory that takes long to close keeps nobody else from opening and closing others.
func TestDirCacheSlowCloseStallsNobody(t *testing.T) {
	testtree.NotInColdMode(t, "all is listed before the first file is read")
	full := descriptorBudget
	defer func() { descriptorBudget = full }()
	descriptorBudget = func() budget { return budget{listings: 32} } // so that a directory is opened again for its ignore file
	const dirs = 50
	tree := slowFS{fstest.MapFS{"slow/.ignore": {}, "slow/f": {}}, new(atomic.Int32), make(chan struct{}), new(atomic.Bool)}
	for i := range dirs {
		tree.MapFS[fmt.Sprintf("d%d/.ignore", i)] = &fstest.MapFile{}
		tree.MapFS[fmt.Sprintf("d%d/f", i)] = &fstest.MapFile{}
	}
	var others atomic.Int32
	opts := Options{FS: tree, Workers: 2, IgnoreFiles: []string{".ignore"}, SkipHidden: true}
	require.NoError(t, ForEach(t.Context(), ".", opts, func(f *File) error {
		if f.Rel() != "slow/f" && others.Add(1) == dirs {
			close(tree.done)
		}
		return nil
	}))
	require.False(t, tree.late.Load(), "the others waited for the slow close")
	require.GreaterOrEqual(t, tree.opens.Load(), int32(2), "this tests nothing unless the directory was closed later than its listing")
}

// Whatever panics does so without mu, for which the workers that end would wait.
func TestDirCachePanicLeavesItUnlocked(t *testing.T) {
	s := newStand(t, 1, row(1))
	for what, call := range map[string]func(){
		"acquire": func() { _, _ = s.acquire(nil) },
		"ref":     func() { s.ref(nil, 1) },
		"release": func() { s.release(nil, 0, 1) },
	} {
		require.Panics(t, call, what)
		require.True(t, s.dirCache.mu.TryLock(), what)
		s.dirCache.mu.Unlock()
	}
	s.end(t)
}

// While fn runs, evictAll can close the directory, also if its files have been read ahead.
func TestDirPinIsIdleInFn(t *testing.T) {
	dir := t.TempDir()
	for i := range 100 {
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), []byte("x"), 0o600))
	}
	for _, opts := range []Options{{}, {DisableURing: true}, {ReadSize: NoRead, Stat: true}, {hooks: hooks{Unchanged: func(*File) bool { return false }}}} {
		opts.Workers = 1
		require.NoError(t, ForEach(t.Context(), dir, opts, func(f *File) error {
			require.NotEqualValues(t, pinInUse, f.w.pin.state.Load())
			return nil
		}))
	}
}

// btrfs lists what was there when the directory was opened: what is made between that and a watch would be in no listing and no event.
func TestOnDirComesBeforeTheOpen(t *testing.T) {
	w := &world{root: folder("", file("a", ""), folder("d", folder("e")))}
	var order []string
	w.during = func(what, name string) {
		if what == "openDir" {
			order = append(order, "open "+name)
		}
	}
	opts := Options{Workers: 1, hooks: hooks{OnDir: func(rel string) { order = append(order, "OnDir "+rel) }}}
	opts.openRoot = func(root string) (backend.Directory, error) {
		order = append(order, "open root")
		return w.openRoot(root)
	}
	require.NoError(t, ForEach(t.Context(), "root", opts, func(*File) error { return nil }))
	require.Equal(t, []string{"OnDir .", "open root", "OnDir d", "open d", "OnDir d/e", "open e"}, order)
	opts.Files, order = slices.Values([]string{"a"}), nil
	require.NoError(t, ForEach(t.Context(), "root", opts, func(*File) error { return nil }))
	require.Equal(t, []string{"open root"}, order, "nothing is listed")
	opts.SelectDir = func(Entry) bool { return false }
	for _, opts.Files = range []iter.Seq[string]{nil, slices.Values([]string{"d/"})} {
		order = nil
		require.NoError(t, ForEach(t.Context(), "root", opts, func(*File) error { return nil }))
		require.NotContains(t, order, "OnDir d")
	}
}

// As many as the limit stay open beside those that are in use, and one that cannot be identified is no reason to keep another.
func TestDirCacheEvictsTheNext(t *testing.T) {
	s := newStand(t, 2, row(5))
	for _, name := range []string{"n0", "n1", "n2"} {
		s.mustPin(t, name)
	}
	s.release(s.node["n0"], 1, 0)
	s.release(s.node["n1"], 1, 0)
	require.Len(t, s.dirCache.open, 3, "two, and one in use")
	s.objectOf("n0").idErr = errBroken
	s.objectOf("n1").idErr = errBroken
	s.mustPin(t, "n3")
	s.mustPin(t, "n4")
	short := s.newShortage()
	s.release(s.node["n2"], 1, 0)
	short.end()
	require.Nil(t, s.node["n2"].dir, "the only one that is not in use and may be opened again")
	require.True(t, s.node["n0"].noID || s.node["n1"].noID, "one was tried before")
	s.end(t)
}

// A directory is the same by its numbers and by itself: another with the same numbers, as on two file systems, is entered, too.
func TestLinksEnterEachDirectoryOnce(t *testing.T) {
	l, one, other := &links{}, new(tree), new(tree)
	a, b := &object{name: "a"}, &object{name: "b"} // with equal numbers
	for _, t2 := range []*tree{one, other} {
		require.True(t, l.enter(t2, a))
		require.True(t, l.enter(t2, b))
		require.False(t, l.enter(t2, a))
		require.False(t, l.enter(t2, b))
	}
}
