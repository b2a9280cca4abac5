package cachefile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	mathbits "math/bits"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"sync"
	"testing"

	"github.com/fileproc/fileproc/internal/fsinfo"
	"github.com/stretchr/testify/require"
)

// twins returns two names whose hashes are equal, and which are equally long.
var twins = sync.OnceValue(func() [2]string {
	seen := map[uint64]string{}
	for i := 1_000_000; ; i++ {
		name := strconv.Itoa(i)
		if other, ok := seen[hashOf(name)]; ok {
			return [2]string{other, name}
		}
		seen[hashOf(name)] = name
	}
})

// A search of a block by inode and name, or by name, finds the entry that has them, and nothing if there is none.
func TestSearchesOfABlock(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for kind, inode := range map[string]func(i int) uint64{
		"in a row": func(i int) uint64 { return 1000 + uint64(i) }, "with gaps": func(i int) uint64 { return 1000 + uint64(i) + uint64(i/10*7) },
		"few": func(int) uint64 { return 1000 + r.Uint64N(5) }, "random": func(int) uint64 { return r.Uint64() }, "all the same": func(int) uint64 { return 7 },
		"from the last one": func(i int) uint64 { return math.MaxUint64 - uint64(i) },
	} {
		for _, n := range []int{1, 2, 5, sampleOf, sampleOf + 1, 2*sampleOf - 1, 2 * sampleOf, 2*sampleOf + 1, 400} {
			s := mustLoad(t, filepath.Join(t.TempDir(), "cache"))
			inodes := map[string]uint64{}
			for i := range n {
				name := strconv.Itoa(i)
				if i < 2 && n > 2 {
					name = twins()[i]
				}
				inodes[name] = inode(i)
				s.Add(0, Record{Path: "d/" + name, ID: Identity{Identity: fsinfo.Identity{Inode: inodes[name]}}})
			}
			require.NoError(t, s.save(nil))
			s = mustLoad(t, s.Path)
			mustBeSorted(t, s)
			b := s.Dir("d/").snapshot
			require.Equal(t, n, b.n)
			others := []uint64{0, 1, 6, 7, 8, 999, 1000, 1001, 1000 + uint64(n), math.MaxUint64}
			for k := 0; k < n; k += 1 + n/20 {
				others = append(others, b.inode(k), b.inode(k)+1, b.inode(k)-1)
			}
			for name, inode := range inodes {
				at, ok := b.byName(name)
				require.True(t, ok)
				require.Equal(t, name, string(b.name(at)))
				require.Equal(t, inode, b.inode(at))
				_, ok = b.byName(name + "x")
				require.False(t, ok)
				for _, other := range append(others[:len(others):len(others)], inode) {
					i, ok := b.byInode(other, name)
					if ok != (other == inode) || ok && i != at {
						t.Fatalf("%s: %s, inode %d: %d, %t", kind, name, other, i, ok)
					}
					if _, ok := b.byInode(other, name+"x"); ok {
						t.Fatalf("%s: found no file's name, inode %d", kind, other)
					}
				}
			}
		}
	}
	absent := twins()
	s := mustLoad(t, filepath.Join(t.TempDir(), "cache"))
	mustSave(t, s, Record{Path: "d/" + absent[0], ID: Identity{Identity: fsinfo.Identity{Inode: 5}}})
	d := mustLoad(t, s.Path).Dir("d/")
	_, ok := d.snapshot.byName(absent[1])
	require.False(t, ok, "another name with the same hash")
	_, ok = d.snapshot.byInode(5, absent[1])
	require.False(t, ok)
	_, ok = (&block{}).byInode(5, "x")
	require.False(t, ok)
	_, ok = (&block{}).byName("x")
	require.False(t, ok)
}

// A search for the first key that is not below another looks at few keys if they are spread evenly, and however they are spread at three
// times as many as one that halves.
func TestLowerBound(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for kind, tt := range map[string]struct {
		key  func(i, n int) uint64
		most float64 // looks on average
	}{
		"evenly": {func(i, _ int) uint64 { return uint64(i) << 40 }, 6}, "random": {func(int, int) uint64 { return r.Uint64() }, 12},
		"in a row": {func(i, _ int) uint64 { return 50 + uint64(i) }, 6}, "same": {func(int, int) uint64 { return 7 }, 3}, "few": {func(int, int) uint64 { return r.Uint64N(9) }, 30},
		"powers": {func(i, n int) uint64 { return 1 << (i * 63 / n) }, 30}, "one is far away": {func(i, n int) uint64 { return uint64(i) + uint64((i+1)/n)<<60 }, 40},
		"all but one far away": {func(i, _ int) uint64 { return 1<<60*uint64(min(i, 1)) + uint64(i) }, 40}, "to the last": {func(i, n int) uint64 { return math.MaxUint64 - uint64(n-1-i) }, 6},
	} {
		r = rand.New(rand.NewPCG(1, 2)) // the same for each kind, in whatever order they come
		for _, n := range []int{0, 1, 2, 3, 4, 5, 30, 3000} {
			var keys []uint64
			for i := range n {
				keys = append(keys, tt.key(i, n))
			}
			slices.Sort(keys)
			all, searches := 0, 0
			search := func(key uint64) {
				looks := 0
				got := lowerBound(n, key, func(i int) uint64 { looks++; return keys[i] })
				if want := sort.Search(n, func(i int) bool { return keys[i] >= key }); got != want || looks > 3*mathbits.Len(uint(n))+3 {
					t.Fatalf("%s: %d among %d: %d and not %d, after %d looks", kind, key, n, got, want, looks)
				}
				all += looks
				searches++
			}
			for _, key := range keys {
				search(key)
			}
			if n == 3000 {
				require.LessOrEqual(t, float64(all)/float64(searches), tt.most, kind)
			}
			for _, key := range keys {
				search(key - 1)
				search(key + 1)
			}
			for _, key := range []uint64{0, 1, 1 << 40, math.MaxUint64} {
				search(key)
			}
		}
	}
}

// Where many elements have one key, a search halves them.
func TestManyWithOneKey(t *testing.T) {
	t.Parallel()
	const n, same = 3000, 2900
	key := func(i int) uint64 { return uint64(max(0, i-same)) }
	for at := range n {
		looks := 0
		got, ok := find(n, key(at), key, func(i int) int { looks++; return i - at })
		require.True(t, ok)
		require.Equal(t, at, got)
		require.LessOrEqual(t, looks, 6+mathbits.Len(n))
	}
	_, ok := find(n, 0, key, func(int) int { return -1 })
	require.False(t, ok)
	_, ok = find(n, 0, key, func(int) int { return 1 })
	require.False(t, ok)
}

// A block is empty if it is not within its layer, or has not as many records as the layer says. One that just fits is not.
func TestBoundsOfABlock(t *testing.T) {
	t.Parallel()
	const n = 2
	path := "dir/"
	size := n*(entrySize+orderSize) + len(path)
	make1 := func(at, first uint64, pathLen int) []byte {
		le := binary.LittleEndian
		return le.AppendUint32(le.AppendUint32(le.AppendUint64(le.AppendUint64(nil, dirHash(path)), at), uint32(first)), uint32(pathLen))
	}
	data := append(make([]byte, n*(entrySize+orderSize)), path...)
	for name, tt := range map[string]struct {
		dirs    []byte
		records int
		data    []byte
		n       int
	}{
		"just fits":              {make1(0, 0, 4), n, data, n},
		"with tails":             {make1(0, 0, 4), n, append(slices.Clone(data), "tails"...), n},
		"a byte less":            {make1(0, 0, 4), n, data[:size-1], 0},
		"a longer path":          {make1(0, 0, 5), n, data, 0},
		"a record more":          {make1(0, 0, 4), n + 1, data, 0},
		"behind the end":         {make1(uint64(size)+1, 0, 4), n, data, 0},
		"far behind":             {make1(1<<63, 0, 4), n, data, 0},
		"first behind the last":  {make1(0, n+1, 4), n, data, 0},
		"two":                    {append(make1(0, 0, 4), make1(uint64(size), n, 4)...), 2 * n, append(slices.Clone(data), data...), n},
		"two, a byte less":       {append(make1(0, 0, 4), make1(uint64(size)-1, n, 4)...), 2 * n, append(slices.Clone(data), data...), 0},
		"two, the second before": {append(make1(uint64(size), 0, 4), make1(0, n, 4)...), 2 * n, append(slices.Clone(data), data...), 0},
		"two, the second beyond": {append(make1(0, 0, 4), make1(uint64(len(data))+1, n, 4)...), 2 * n, data, 0},
		"two, records exchanged": {append(make1(0, n, 4), make1(uint64(size), 0, 4)...), 2 * n, append(slices.Clone(data), data...), 0},
		"two, too many records":  {append(make1(0, 0, 4), make1(uint64(size), 2*n+1, 4)...), 2 * n, append(slices.Clone(data), data...), 0},
		"a count below 0":        {append(make1(0, n, 3*(entrySize+orderSize)), make1(4000, 0, 4)...), 2 * n, make([]byte, 5000), 0}, // its product with 40 and the path's length are more than 0
	} {
		for _, base := range []int{0, 10} {
			l := layer{data: tt.data, dirs: tt.dirs, base: base, records: tt.records}
			b := l.block(0)
			require.Equal(t, tt.n, b.n, name)
			if tt.n == 0 {
				require.Equal(t, block{}, b, name)
				continue
			}
			require.Equal(t, base, b.first)
			require.Equal(t, b, l.find(path, dirHash(path)), name)
			require.Equal(t, path, string(b.path))
			require.Len(t, b.entries, n*entrySize)
			require.Len(t, b.order, n*orderSize)
			require.Empty(t, b.samples)
			require.Equal(t, len(tt.dirs) == dirSize && len(tt.data) > size, string(b.tails) == "tails", name)
			require.True(t, len(b.tails) == 0 || string(b.tails) == "tails", name)
			require.Equal(t, base+n-1, l.of(base+n-1).first+n-1)
			require.Equal(t, block{}, l.of(base-1))
			require.Equal(t, block{}, l.find(path, dirHash(path)+1))
			require.Equal(t, block{}, l.find("dir", dirHash(path)))
			require.Equal(t, block{}, l.find("dir0", dirHash(path)))
			require.Equal(t, block{}, l.find("dir.", dirHash(path)))
		}
	}
	require.Equal(t, block{}, (&layer{}).of(0))
	require.Equal(t, block{}, (&layer{}).find("", dirHash("")))
}

// An entry that no writer makes is left out by each search and loop, and the entries beside it are not.
func TestEntryThatNoWriterMakes(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "cache")
	var recs []Record
	for i := range 3 {
		recs = append(recs, Record{Path: fmt.Sprint("d/", i), ID: Identity{Identity: fsinfo.Identity{Inode: uint64(i + 1)}}, Result: []byte("result")})
	}
	mustSave(t, mustLoad(t, file), recs...)
	l := mustLoad(t, file).loaded.snapshot
	for name, change := range map[string]func(b []byte, entry int){
		"a tombstone":       func(b []byte, entry int) { b[entry+34] |= byte(tombstone) },
		"an unknown flag":   func(b []byte, entry int) { b[entry+34] |= 0x80 },
		"a tail far away":   func(b []byte, entry int) { b[entry+35] = 1 },
		"a tail at the end": func(b []byte, entry int) { putTail(b[entry:], uint64(len(l.block0().tails))) },
		"one byte of tail":  func(b []byte, entry int) { putTail(b[entry:], uint64(len(l.block0().tails)-1)) },
		"a tail behind it":  func(b []byte, entry int) { putTail(b[entry:], uint64(len(l.block0().tails)+1)) },
	} {
		data := bytes.Clone(l.data)
		change(data, entrySize) // the second
		s := loadBytes(t, assemble(data, l.dirs, nil, uint64(l.records)))
		require.Equal(t, 3, s.len(), name)
		b := s.Dir("d/").snapshot
		v, ok := b.view(1)
		require.False(t, ok, name)
		require.Equal(t, View{}, v, name)
		require.True(t, name == "a tombstone" || b.name(1) == nil, name)
		for _, all := range []func(func(int, View) bool){s.All(), s.Unseen()} {
			var got []string
			for _, v := range all {
				got = append(got, v.Path())
			}
			require.Equal(t, []string{"d/0", "d/2"}, got, name)
		}
		d := s.Dir("d/")
		for i, want := range []bool{true, false, true} {
			_, _, ok := s.Find(&d, uint64(i+1), strconv.Itoa(i))
			require.Equal(t, want, ok, name)
			_, ok = s.loaded.at(i)
			require.Equal(t, want, ok, name)
		}
	}
}

func (l *layer) block0() *block { b := l.block(0); return &b }

// The record of a file that may have changed after the time until which records are sure is not believed.
func TestIsAfter(t *testing.T) {
	t.Parallel()
	for i, id := range []fsinfo.Identity{{ModTime: 5, ChangeTime: 10}, {ModTime: 10}, {ModTime: 10, ChangeTime: 5}} {
		id := Identity{Identity: id}
		require.EqualValues(t, 10, id.Newest())
		require.True(t, id.isAfter(9), i)
		require.False(t, id.isAfter(10), i)
		require.False(t, id.isAfter(anyTime), i)
	}
}

// The length of a name or result is a varint up to its bound. Longer ones, and those that are cut off, are none.
func TestLength(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		b       []byte
		most    uint64
		n, size int
	}{
		{nil, 100, 0, 0}, {[]byte{0}, 100, 0, 1}, {[]byte{0x7f, 5}, 1000, 127, 1}, {[]byte{0x80, 1, 9}, 1000, 128, 2}, {[]byte{0x80}, 1000, 0, 0},
		{[]byte{0xe8, 7}, 1000, 1000, 2}, {[]byte{0xe9, 7}, 1000, 0, 0}, {bytes.Repeat([]byte{0xff}, 20), math.MaxUint64, 0, 0},
		{binary.AppendUvarint(nil, maxPath), maxPath, maxPath, 3}, {binary.AppendUvarint(nil, maxResult), maxResult, maxResult, 5}, {binary.AppendUvarint(nil, maxResult+1), maxResult, 0, 0},
	} {
		n, size := length(tt.b, tt.most)
		require.Equal(t, [2]int{tt.n, tt.size}, [2]int{n, size}, "%x", tt.b)
	}
}

// A record that is cut off anywhere is none, and what is behind one does not belong to it.
func TestCutRecord(t *testing.T) {
	t.Parallel()
	ids := []Identity{{}, {Identity: fsinfo.Identity{Size: NoSize, ModTime: 1 << 60, ChangeTime: -1, BirthTime: 1 << 50, Mode: 1 << 31}, Content: [16]byte{1}}}
	for _, id := range ids {
		for _, rec := range []Record{{}, {Path: "d/name", Result: []byte("result")}, {Path: "p", Result: make([]byte, 200)}} {
			rec.ID = id
			b := appendRecord(nil, rec)
			for n := range len(b) {
				_, _, ok := parse(b[:n:n])
				require.False(t, ok, "%d of %d", n, len(b))
			}
			e, size, ok := parse(append(b, 1, 2, 3))
			require.True(t, ok)
			require.Equal(t, len(b), size)
			require.Equal(t, rec.Path, string(e.name))
			require.Equal(t, string(rec.Result), string(e.result))
			require.Equal(t, len(e.result), cap(e.result), "an append does not reach what is behind it")
			require.Equal(t, len(e.name), cap(e.name))
			require.Equal(t, rec.ID, e.identity())
		}
	}
	e := noted([]byte("name"))
	require.Equal(t, "name", string(e.name))
	require.EqualValues(t, NoSize, e.identity().Size)
	require.Equal(t, OutcomeSkipped, e.outcome())
}

// The fixed part of a record has 40 bits for where the tail begins.
func TestPutTail(t *testing.T) {
	t.Parallel()
	fixed := bytes.Repeat([]byte{9}, entrySize)
	putTail(fixed, 0x12_3456_789a)
	want := bytes.Repeat([]byte{9}, entrySize)
	copy(want[28:], []byte{0x9a, 0x78, 0x56, 0x34})
	want[35] = 0x12
	require.Equal(t, want, fixed)
}

func TestCompare(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "a", 0}, {"", "a", -1}, {"a", "b", -1}, {"a", "aa", -1}, {"b", "aa", 1}, {"a", "", 1}, {"a\xff", "a\x01", 1}} {
		require.Equal(t, tt.want, compare([]byte(tt.a), tt.b))
	}
}

// A store has a buffer for at least one worker. What a worker adds is taken once, in its order.
func TestTake(t *testing.T) {
	t.Parallel()
	for workers := range 3 {
		s, err := Load(filepath.Join(t.TempDir(), "cache"), testKey, workers)
		require.NoError(t, err)
		require.Len(t, s.workers, max(workers, 1))
		for i := range 3 {
			s.Add(0, Record{Path: strconv.Itoa(i), Result: make([]byte, chunkSize/2)})
		}
		all := s.take()
		var got []string
		for _, c := range all {
			for b := c.b[frameHeader:]; len(b) > 0; {
				e, size, ok := parse(b)
				require.True(t, ok)
				got, b = append(got, string(e.name)), b[size:]
			}
		}
		require.Equal(t, []string{"0", "1", "2"}, got)
		require.Empty(t, s.take())
	}
}

// UnseenIn has the unseen records of the wanted directories, and asks about no directory whose records all are seen.
func TestUnseenInModel(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	file := filepath.Join(t.TempDir(), "cache")
	var recs []Record
	for dir := range 12 {
		for i := range []int{1, 2, 31, 32, 33, 64, 100}[r.IntN(7)] {
			recs = append(recs, Record{Path: fmt.Sprintf("%d/%d", dir, i)})
		}
	}
	mustSave(t, mustLoad(t, file), recs...)
	for range 50 {
		s := mustLoad(t, file)
		var want, dirs []string
		wanted, rate := r.IntN(1<<12), r.Float64()
		in := func(dir string) bool {
			n, err := strconv.Atoi(dir[:len(dir)-1])
			require.NoError(t, err)
			return wanted>>n&1 != 0
		}
		for _, rec := range recs {
			_, n, ok := s.Lookup(rec.Path)
			require.True(t, ok)
			dir, _ := split([]byte(rec.Path))
			if r.Float64() < rate {
				s.MarkSeen(n)
				continue
			}
			if !slices.Contains(dirs, string(dir)) {
				dirs = append(dirs, string(dir))
			}
			if in(string(dir)) {
				want = append(want, rec.Path)
			}
		}
		var got, asked []string
		for n, v := range s.UnseenIn(func(dir string) bool { asked = append(asked, dir); return in(dir) }) {
			require.False(t, s.IsSeen(n))
			got = append(got, v.Path())
		}
		require.ElementsMatch(t, want, got)
		require.ElementsMatch(t, dirs, asked)
	}
}
