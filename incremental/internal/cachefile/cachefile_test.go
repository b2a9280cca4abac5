package cachefile

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fileproc/fileproc/internal/fsinfo"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/gofrs/flock"
	"github.com/stretchr/testify/require"
)

var testKey = [32]byte{1, 2, 3}

func testRecord(i int) Record {
	return Record{Path: fmt.Sprintf("tickets/%03d/ticket-%07d.md", i%1000, i), Result: fmt.Appendf(nil, `{"id":%d,"state":"open"}`, i),
		ID: Identity{Identity: fsinfo.Identity{Size: int64(400 + i%50), ModTime: 1_700_000_000_000_000_000 + int64(i)*1001, ChangeTime: 1_700_000_000_000_000_000 + int64(i)*1001,
			BirthTime: 1_690_000_000_000_000_000 + int64(i), Inode: uint64(i + 12), Mode: 0o644}}}
}

// changed returns rec as the version-th state of its file.
func changed(rec Record, version int) Record {
	rec.ID.ModTime += int64(version)
	rec.Result = fmt.Appendf(nil, "version %d", version)
	return rec
}

func mustLoad(t testing.TB, file string) *Store {
	t.Helper()
	s, err := Load(file, testKey, 4)
	require.NoError(t, err)
	return s
}

func (s *Store) save(deleted []int) error { return s.Save(context.Background(), deleted) }

// len returns the number of loaded records, without those that the log overrides.
func (s *Store) len() int { return s.loaded.live }

func mustSave(t testing.TB, s *Store, recs ...Record) {
	t.Helper()
	for i, rec := range recs {
		s.Add(i%len(s.workers), rec)
	}
	require.NoError(t, s.save(nil))
}

// contents returns what s has loaded, through unseen, and checks that lookup and len agree.
func contents(t testing.TB, s *Store) map[string]Record {
	t.Helper()
	all := map[string]Record{}
	for n, v := range s.Unseen() {
		rec := Record{Path: v.Path(), ID: v.ID, Outcome: v.Outcome, Result: v.Result}
		all[rec.Path] = rec
		found, k, ok := s.Lookup(rec.Path)
		if !ok || k != n || found.ID != v.ID {
			t.Fatal("lookup and unseen disagree on ", rec.Path)
		}
	}
	require.Len(t, all, s.len())
	return all
}

// mustBeSorted checks that the layers of s have the order on which searches rely, and that each record is found by its inode and by its name.
func mustBeSorted(t testing.TB, s *Store) {
	t.Helper()
	for _, l := range []*layer{&s.loaded.snapshot, &s.loaded.log} {
		n := l.base
		for i := range l.dirCount() {
			b := l.block(i)
			require.Positive(t, b.n)
			require.Equal(t, n, b.first)
			n += b.n
			require.Equal(t, dirHash(string(b.path)), l.hash(i))
			require.True(t, i == 0 || l.hash(i-1) <= l.hash(i), "directories are sorted by hash")
			require.Equal(t, b.first, l.find(string(b.path), l.hash(i)).first)
			require.Len(t, b.samples, (b.n-1)/sampleOf*sampleSize)
			for k := range b.n {
				require.True(t, k == 0 || b.inode(k-1) <= b.inode(k), "entries are sorted by inode")
				if k > 0 && k%sampleOf == 0 {
					require.Equal(t, b.inode(k), binary.LittleEndian.Uint64(b.samples[(k/sampleOf-1)*sampleSize:]))
				}
				name := string(b.name(k))
				at, ok := b.byInode(b.inode(k), name)
				require.True(t, ok, name)
				require.Equal(t, k, at, name)
				at, ok = b.byName(name)
				require.True(t, ok, name)
				require.Equal(t, k, at, name)
				require.Equal(t, b.first, l.of(b.first+k).first)
			}
		}
		require.Equal(t, l.base+l.records, n)
	}
}

func asMap(recs ...Record) map[string]Record {
	all := map[string]Record{}
	for _, rec := range recs {
		all[rec.Path] = rec
	}
	return all
}

func records(from, to int) []Record {
	var recs []Record
	for i := from; i < to; i++ {
		recs = append(recs, testRecord(i))
	}
	return recs
}

func TestRecordForms(t *testing.T) {
	t.Parallel()
	for i := range 1 << 12 {
		pick := func(bit int, yes, no int64) int64 {
			if i>>bit&1 != 0 {
				return yes
			}
			return no
		}
		rec := Record{Path: strings.Repeat("p", i%9), Result: []byte(strings.Repeat("r", i%7)), Outcome: Outcome(i % 4)}
		rec.ID = Identity{Identity: fsinfo.Identity{Size: pick(0, 1<<40, 3), ModTime: pick(1, -5, 1<<60), ChangeTime: pick(2, 1<<61, pick(1, -5, 1<<60)), Inode: uint64(pick(3, -1, 9)),
			Mode: fs.FileMode(pick(4, 1<<31, 0o644)), BirthTime: pick(5, 77, pick(6, 0, pick(1, -5, 1<<60)))}}
		rec.ID.Content[15] = byte(pick(7, 1, 0))
		b := appendRecord([]byte("12345678"), rec)
		require.LessOrEqual(t, len(b)-8, maxRecordHead+len(rec.Path)+len(rec.Result))
		require.GreaterOrEqual(t, len(b)-8, minRecord-orderSize)
		e, size, ok := parse(append(b[8:], "more"...))
		require.True(t, ok)
		require.Equal(t, len(b)-8, size)
		require.Equal(t, rec, Record{Path: string(e.name), ID: e.identity(), Outcome: e.outcome(), Result: append([]byte{}, e.result...)})
	}
}

// Neither parse nor a search in a layer reads outside of the buffer, whatever is in it.
func TestParseHostile(t *testing.T) {
	t.Parallel()
	b := make([]byte, 0, 300)
	for _, fill := range []byte{0, 0x01, 0x10, 0x18, 0x58, 0x7f, 0x80, 0xff} {
		for length := range 200 {
			b = b[:length]
			for i := range b {
				b[i] = fill
			}
			if e, size, ok := parse(b); ok {
				require.LessOrEqual(t, size, length)
				e.identity()
			}
			for dirs := range 4 {
				for _, records := range []int{0, 1, 2, 1 << 24, math.MaxInt32} {
					l := layer{data: b, dirs: b[:min(length, dirs*dirSize)/dirSize*dirSize], records: records}
					im := image{snapshot: l}
					for d := range im.blocks() {
						for i := range d.n {
							d.view(i)
							d.name(i)
						}
						dir := Dir{snapshot: *d}
						for _, inode := range []uint64{0, 1, binary.LittleEndian.Uint64(d.entries), math.MaxUint64} {
							im.find(&dir, inode, "x")
							im.find(&dir, inode, string(d.name(0)))
						}
					}
					d := im.dir(string(b[:length/3]))
					im.find(&d, 1, "")
					im.at(records - 1)
				}
			}
		}
	}
	for _, h := range []header{
		{dataLen: 1<<64 - 16}, {dataLen: 1 << 63}, {dataLen: 1 << 36},
		{dirs: 1 << 61}, {dirs: 1<<61 + 1}, {dirs: 1<<64 - 1}, {dataLen: 1 << 30, dirs: 1 << 32},
		{records: 1}, {dataLen: 420, records: 11}, {dataLen: 420, records: 1 << 63}, {dataLen: 1 << 34, records: 1 << 32},
	} {
		_, ok := decodeHeader(h.encode())
		require.False(t, ok, h)
	}
}

// A search finds each key among many, also a key that is there several times, and takes few steps if the keys are spread evenly.
func TestFind(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for kind, key := range map[string]func(i int) uint64{
		"in a row": func(i int) uint64 { return 1000 + uint64(i) }, "random": func(int) uint64 { return r.Uint64() >> 32 },
		"all the same": func(int) uint64 { return 7 }, "few": func(int) uint64 { return r.Uint64N(9) },
		"powers": func(i int) uint64 { return 1 << (i % 64) }, "two groups": func(i int) uint64 { return uint64(i) + uint64(i%2)<<60 },
		"all": func(int) uint64 { return r.Uint64() },
	} {
		for _, n := range []int{0, 1, 2, 3, 5, 30, 5000} {
			var all [][2]uint64 // key and name
			for i := range n {
				all = append(all, [2]uint64{key(i), uint64(i)})
			}
			slices.SortFunc(all, func(a, b [2]uint64) int { return slices.Compare(a[:], b[:]) })
			steps := 0
			search := func(key, name uint64) (int, bool) {
				return find(n, key, func(i int) uint64 { steps++; return all[i][0] }, func(i int) int { return cmp.Compare(all[i][1], name) })
			}
			for i, k := range all {
				at, ok := search(k[0], k[1])
				require.True(t, ok, kind)
				require.Equal(t, i, at, kind)
				_, ok = search(k[0], math.MaxUint64)
				require.False(t, ok, kind)
				_, there := slices.BinarySearchFunc(all, k[0]+1, func(a [2]uint64, key uint64) int { return cmp.Compare(a[0], key) })
				if _, ok = search(k[0]+1, k[1]); !there {
					require.False(t, ok, kind)
				}
			}
			switch {
			case n == 5000 && kind == "in a row":
				require.Less(t, steps, n*3*10)
			case n > 0:
				require.Less(t, steps, n*3*150, kind)
			}
		}
	}
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "cache")
	s := mustLoad(t, file)
	want := asMap()
	require.Equal(t, want, contents(t, s))
	kinds := map[string]bool{}
	rounds := 40
	if testing.Short() {
		rounds = 8
	}
	for round := range rounds { // first a snapshot, then frames, then a snapshot again
		before := s.disk
		for i := range 500 {
			rec := changed(testRecord(i*(round+1)), round)
			rec.Outcome = Outcome(i % 3)
			s.Add(i%4, rec)
			want[rec.Path] = rec
		}
		mustSave(t, s)
		kinds[fmt.Sprint(before.generation == s.disk.generation)] = true
		s = mustLoad(t, file)
		require.Equal(t, want, contents(t, s))
		mustBeSorted(t, s)
		if round%3 == 2 { // deletes every tenth
			var deleted []int
			gone := map[string]bool{}
			for n, rec := range s.Unseen() {
				if n%10 == round%10 {
					deleted = append(deleted, n)
					delete(want, rec.Path())
					gone[rec.Path()] = true
				}
			}
			require.NoError(t, s.save(deleted))
			s = mustLoad(t, file)
			require.Equal(t, want, contents(t, s))
			for path := range gone {
				_, _, ok := s.Lookup(path)
				require.False(t, ok)
			}
		}
	}
	require.Len(t, kinds, 2, "both a frame and a snapshot were written")
}

// A record from another boot is not believed if its file changed shortly before the snapshot or frame was saved, however often it
// was loaded and saved since. It still says that the file was there.
func TestAnotherBoot(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cache")
	oldBoot, oldClock := ThisBoot, Clock
	defer func() { ThisBoot, Clock = oldBoot, oldClock }()
	boot := func(name string) { ThisBoot = func() (b [16]byte) { copy(b[:], name); return b } }
	at := func(sec int64) { Clock = func() time.Time { return time.Unix(sec, 0) } }
	margin := int64(WrittenBack / time.Second)
	file1 := func(path string, sec, ns int64) Record {
		ns += sec * 1e9
		inode := uint64(200 - path[0]) // not in the order of the names
		return Record{Path: path, ID: Identity{Identity: fsinfo.Identity{Size: 1, ModTime: 5, ChangeTime: ns, BirthTime: 7, Inode: inode}}, Result: []byte(path)}
	}
	byContent := Record{Path: "content", ID: Identity{Identity: fsinfo.Identity{Size: 1}, Content: [16]byte{1}}, Result: []byte("c")}
	believed := func(want string) {
		t.Helper()
		s, got := mustLoad(t, file), ""
		mustBeSorted(t, s)
		for n, rec := range s.Unseen() {
			require.NotZero(t, len(rec.Path()))
			found, k, ok := s.Lookup(rec.Path())
			require.True(t, ok)
			require.Equal(t, n, k)
			if len(rec.Path()) == 1 && found.ID.Size != NoSize {
				got += rec.Path()
			}
		}
		require.ElementsMatch(t, strings.Split(want, ""), strings.Split(got, ""))
		rec, _, _ := s.Lookup("content")
		require.EqualValues(t, 1, rec.ID.Size)
	}
	boot("one")
	at(10_000)
	mustSave(t, mustLoad(t, file), file1("a", 10_000-margin, 0), byContent, file1("b", 10_000-margin, 1), file1("c", 10_000, 0), file1("d", 1, 0), file1("k", 10_000, 0))
	at(20_000)
	mustSave(t, mustLoad(t, file), file1("e", 20_000-margin, 0), file1("f", 20_000-margin, 1), file1("c", 20_000, 5))
	require.NotEmpty(t, mustLoad(t, file).loaded.log.records)
	believed("abcdefk")
	boot("two")
	believed("ade")
	at(30_000)
	mustSave(t, mustLoad(t, file), file1("g", 30_000, 0))
	believed("adeg")
	for i, path := range []string{"b", "f"} { // deleted by the identity that they have in the file
		s := mustLoad(t, file)
		_, n, ok := s.Lookup(path)
		require.True(t, ok)
		require.NoError(t, s.save([]int{n}))
		_, _, ok = mustLoad(t, file).Lookup(path)
		require.False(t, ok, i)
	}
	var many []Record
	for i := range 2000 {
		many = append(many, file1(fmt.Sprint("many", i), 1, 0))
	}
	mustSave(t, mustLoad(t, file), many...)
	require.Zero(t, mustLoad(t, file).loaded.log.records)
	believed("adeg")
	require.Equal(t, 2000+7, mustLoad(t, file).len())
	mustSave(t, mustLoad(t, file), file1("c", 20_000, 5))
	believed("acdeg")
	boot("three")
	believed("acde")
	boot("") // nobody knows
	believed("acde")
	at(40_000)
	mustSave(t, mustLoad(t, file), file1("h", 40_000, 0), file1("i", 1, 0))
	believed("acdei")
}

// A load gets from the last save, a snapshot or a frame, how runs treat links.
func TestLinksOfTheLastSave(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "cache")
	for i, links := range []uint64{2, 1, 0} {
		s := mustLoad(t, file)
		s.Links = links
		mustSave(t, s, testRecord(i))
		require.Equal(t, links, mustLoad(t, file).Links)
	}
}

// A save that has nothing to save writes nothing.
func TestSaveNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mustSave(t, mustLoad(t, filepath.Join(dir, "cache")))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestUnseen(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "cache")
	mustSave(t, mustLoad(t, file), records(0, 1000)...)
	mustSave(t, mustLoad(t, file), changed(testRecord(5), 1), changed(testRecord(6), 1), testRecord(2000))
	s := mustLoad(t, file)
	require.NotZero(t, s.loaded.log.records)
	for i := range 1000 {
		if i%100 != 6 {
			_, n, ok := s.Lookup(testRecord(i).Path)
			require.True(t, ok)
			s.MarkSeen(n)
		}
	}
	var got []string
	for _, rec := range s.Unseen() {
		got = append(got, rec.Path())
	}
	want := []string{testRecord(2000).Path}
	for i := 6; i < 1000; i += 100 {
		want = append(want, testRecord(i).Path)
	}
	require.ElementsMatch(t, want, got)
	for range s.Unseen() {
		break
	}
}

// All has each record that counts once, and Dirs their directories. UnseenIn asks once about each directory that has an unseen record.
// A loop may end at each of its steps.
func TestIterators(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "cache")
	recs := []Record{{Path: "at root"}, {Path: "gone/1"}, {Path: "replaced/1"}, {Path: "replaced/2"}}
	for i := range 200 { // several words of bits in one directory
		recs = append(recs, Record{Path: fmt.Sprintf("d/%03d", i)}, Record{Path: fmt.Sprintf("e/%03d", i)})
	}
	mustSave(t, mustLoad(t, file), recs...)
	s := mustLoad(t, file)
	_, gone, ok := s.Lookup("gone/1")
	require.True(t, ok)
	s.Add(0, Record{Path: "replaced/1", Result: []byte("new")})
	s.Add(0, Record{Path: "replaced/2", Result: []byte("new")})
	s.Add(0, Record{Path: "added/1"})
	require.NoError(t, s.save([]int{gone}))
	s = mustLoad(t, file)
	paths := []string{"added/1"}
	for _, rec := range recs {
		if rec.Path != "gone/1" {
			paths = append(paths, rec.Path)
		}
	}
	var got []string
	for n, rec := range s.All() {
		require.Equal(t, strings.HasPrefix(rec.Path(), "replaced"), string(rec.Result) == "new")
		_, k, ok := s.Lookup(rec.Path())
		require.True(t, ok)
		require.Equal(t, k, n)
		got = append(got, rec.Path())
	}
	require.ElementsMatch(t, paths, got)
	require.ElementsMatch(t, []string{"", "added/", "replaced/", "d/", "e/"}, slices.Collect(s.Dirs()))

	seen := func(path string) {
		_, n, ok := s.Lookup(path)
		require.True(t, ok)
		require.False(t, s.IsSeen(n))
		s.MarkSeen(n)
		require.True(t, s.IsSeen(n))
	}
	for i := range 200 {
		seen(fmt.Sprintf("d/%03d", i))
		if i%37 != 5 {
			seen(fmt.Sprintf("e/%03d", i))
		}
	}
	seen("added/1")
	var asked, want []string
	got = nil
	for _, rec := range s.UnseenIn(func(dir string) bool { asked = append(asked, dir); return dir != "replaced/" }) {
		got = append(got, rec.Path())
	}
	for i := 5; i < 200; i += 37 {
		want = append(want, fmt.Sprintf("e/%03d", i))
	}
	require.ElementsMatch(t, append(want, "at root"), got)
	require.ElementsMatch(t, []string{"", "replaced/", "e/"}, asked)

	for name, loop := range map[string]func(yield func() bool){
		"Unseen": func(yield func() bool) { s.Unseen()(func(int, View) bool { return yield() }) },
		"All":    func(yield func() bool) { s.All()(func(int, View) bool { return yield() }) },
		"Dirs":   func(yield func() bool) { s.Dirs()(func(string) bool { return yield() }) },
	} {
		for k, ended := 1, true; ended; k++ {
			ended = false
			n := 0
			loop(func() bool { // which may not be called again once it has returned false
				require.False(t, ended, name)
				n++
				ended = n == k
				return !ended
			})
		}
	}
}

// A save would write a new snapshot if the records added, or the records there, make the log longer than its limit, by one byte or
// more. A log of just the limit stays.
func TestRewrites(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "cache")
	s := mustLoad(t, file)
	require.False(t, s.Rewrites())
	s.Add(0, testRecord(0))
	require.False(t, s.Rewrites(), "there is none yet")
	require.NoError(t, s.save(nil))
	s = mustLoad(t, file)
	require.False(t, s.Rewrites())
	filled := func(more int) *Store { // with a log of the limit and so much more, in two saves
		require.NoError(t, os.Remove(file))
		mustSave(t, mustLoad(t, file), testRecord(0))
		mustSave(t, mustLoad(t, file), testRecord(1))
		s := mustLoad(t, file)
		rest := int(logLimit(s.disk.snapshotEnd) - (s.disk.end - s.disk.snapshotEnd))
		rec := testRecord(2)
		rec.Result = nil
		size := frameHeader + len(appendRecord(nil, rec)) + 2 // of a longer length of the result
		rec.Result = make([]byte, rest-size+more)
		s.Add(0, rec)
		return s
	}
	for more, want := range []bool{false, true} {
		s = filled(more)
		require.Equal(t, want, s.Rewrites())
		require.Equal(t, want, s.Rewrites(), "it has kept what was added")
		before := s.disk
		require.NoError(t, s.save(nil))
		require.Equal(t, want, before.generation != s.disk.generation)
		require.Equal(t, logLimit(before.snapshotEnd), max(s.disk.end-s.disk.snapshotEnd, logLimit(before.snapshotEnd)))
		require.Len(t, contents(t, mustLoad(t, file)), 3)
	}
}

// A file may be a cache if it begins with the magic, as far as it was read. A damaged cache has most bytes of the magic, or half of them
// and the zero at its end, which no text has.
func TestMagic(t *testing.T) {
	t.Parallel()
	for b, want := range map[string]bool{"": false, "f": true, magic[:15]: true, magic: true, magic + "more": true, "x": false, "fileproc cachE": false, magic[:15] + "x": false} {
		require.Equal(t, want, HasMagic([]byte(b)), "%q", b)
	}
	damaged := func(n int, last byte) []byte { // n bytes are the magic's
		b := []byte(magic)
		for i := range len(b) - n {
			b[i] ^= 0x80
		}
		b[len(b)-1] = last
		return b
	}
	require.True(t, ours(nil))
	require.True(t, ours([]byte(magic[:1])))
	require.False(t, ours([]byte("x")))
	require.True(t, ours([]byte(magic[:5])))
	require.False(t, ours([]byte(magic[:4]+"x")))
	require.True(t, ours(damaged(8, 0)))
	require.False(t, ours(damaged(7, 0)))
	require.True(t, ours(damaged(13, 'x')), "12 are")
	require.False(t, ours(damaged(12, 'x')))
	require.True(t, ours(append(damaged(8, 0), "more"...)))
}

// TestFindByInode: a record is found by the inode and the name of its file, or by the name alone if the inode differs. If there are
// two records, the one in the log counts.
func TestFindByInode(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "cache")
	inode := func(path string, inode uint64, version int) Record {
		rec := changed(Record{Path: path}, version)
		rec.ID.Inode = inode
		return rec
	}
	var recs []Record
	for i := range 100 {
		recs = append(recs, inode(fmt.Sprint("d/", i), uint64(1000-i), 0))
	}
	links := 3000
	for i := range links { // many names of one inode, and many files without one
		recs = append(recs, inode(fmt.Sprint("d/link", i), 5000, 0), inode(fmt.Sprint("d/none", i), 0, 0))
	}
	recs = append(recs, inode("e/0", 1000, 0), inode("0", 1000, 0))
	mustSave(t, mustLoad(t, file), recs...)
	second := mustLoad(t, file)
	_, gone, _ := second.Lookup("d/7")
	second.Add(0, inode("d/5", 995, 1)) // a change in place
	second.Add(1, inode("d/6", 2000, 1))
	second.Add(2, inode("d/8", 989, 1)) // renamed to another's name
	second.Add(3, inode("d/200", 992, 1))
	require.NoError(t, second.save([]int{gone}))
	for _, c := range []struct{ loaded, logged int }{{-1, 4}, {20_000, 0}} { // with the log, and as one snapshot
		s := mustLoad(t, file)
		if c.logged == 0 {
			mustSave(t, s, records(0, c.loaded)...)
			s = mustLoad(t, file)
		}
		require.Equal(t, c.logged, s.loaded.log.records)
		want := func(d *Dir, inode uint64, name, result string) {
			t.Helper()
			rec, n, ok := s.Find(d, inode, name)
			require.Equal(t, result != "", ok)
			if ok {
				require.Equal(t, string(d.snapshot.path)+name, rec.Path())
				require.Equal(t, result, string(rec.Result))
				s.MarkSeen(n)
				require.True(t, s.IsSeen(n))
			}
		}
		mustBeSorted(t, s)
		d, root, none := s.Dir("d/"), s.Dir(""), s.Dir("none/")
		for range 2 {
			want(&d, 1000, "0", "version 0")
			i, ok := d.snapshot.byInode(1000, "0")
			require.True(t, ok)
			require.Equal(t, i+1, d.next, "the next file is looked for there first")
			want(&d, 999, "1", "version 0")
			want(&d, 998, "2", "version 0")
			want(&d, 1000, "1", "version 0") // another inode: found by name
			want(&d, 4, "3", "version 0")
			want(&d, 995, "5", "version 1")
			want(&d, 2000, "6", "version 1")
			want(&d, 994, "6", "version 1")
			want(&d, 993, "7", "")
			want(&d, 0, "7", "")
			want(&d, 992, "8", "version 1")
			want(&d, 992, "200", "version 1")
			want(&d, 1000, "100", "")
			want(&root, 1000, "0", "version 0")
			want(&none, 1000, "0", "")
			want(&d, 1000, "d/0", "")
			for i := 0; i < links; i += 7 {
				want(&d, 5000, fmt.Sprint("link", i), "version 0")
				want(&d, 0, fmt.Sprint("none", i), "version 0")
			}
			want(&d, 5000, "link", "")
			want(&d, 5000, "none7", "version 0")
		}
	}
}

// TestAddedTwice: of two records of one file, in one save, in two, and in a log and a snapshot, the later one counts.
func TestAddedTwice(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "cache")
	for round := range 3 {
		s := mustLoad(t, file)
		for version := range 3 {
			for i := range 200 {
				s.Add(0, changed(testRecord(i), 10*round+version))
			}
		}
		require.NoError(t, s.save(nil))
		want := asMap()
		for i := range 200 {
			want[testRecord(i).Path] = changed(testRecord(i), 10*round+2)
		}
		require.Equal(t, want, contents(t, mustLoad(t, file)))
	}
}

// TestEqualHashes: two directories, and two names, whose hashes are equal are told apart. Hashes are set, not searched for.
func TestEqualHashes(t *testing.T) {
	t.Parallel()
	s := mustLoad(t, filepath.Join(t.TempDir(), "cache"))
	const dirs = 3000
	for i := range dirs {
		s.Add(0, Record{Path: fmt.Sprintf("%04d/name", i), Result: fmt.Append(nil, i)})
	}
	require.NoError(t, s.save(nil))
	l := &mustLoad(t, s.Path).loaded.snapshot
	path := func(i int) string { b := l.block(i); return string(b.path) }
	var paths []string
	for i := range dirs {
		paths = append(paths, path(i))
		binary.LittleEndian.PutUint64(l.dirs[i*dirSize:], 42)
	}
	slices.Sort(paths)
	sorted := layer{data: l.data, records: l.records}
	for _, p := range paths { // as a writer sorts them
		for i := range dirs {
			if path(i) == p {
				sorted.dirs = append(sorted.dirs, l.dirs[i*dirSize:(i+1)*dirSize]...)
				break
			}
		}
	}
	for i := range dirs {
		at, ok := find(dirs, 42, sorted.hash, func(k int) int { return strings.Compare(paths[k], fmt.Sprintf("%04d/", i)) })
		require.True(t, ok)
		require.Equal(t, i, at)
	}
	// Of names, 32 bits of the hash are looked at: some of these have the same.
	file := filepath.Join(t.TempDir(), "cache")
	seen, twins := map[uint64]string{}, asMap()
	for i := 0; len(twins) < 8; i++ {
		name := strconv.Itoa(i)
		if other, ok := seen[hashOf(name)]; ok {
			twins["d/"+name], twins["d/"+other] = Record{Path: "d/" + name, Result: []byte(name)}, Record{Path: "d/" + other, Result: []byte(other)}
		}
		seen[hashOf(name)] = name
	}
	mustSave(t, mustLoad(t, file), slices.Collect(maps.Values(twins))...)
	require.Equal(t, twins, contents(t, mustLoad(t, file)))
	mustSave(t, mustLoad(t, file), slices.Collect(maps.Values(twins))...)
	require.Equal(t, twins, contents(t, mustLoad(t, file)))
}

// Each store loads, then others save; none of their records is lost, whichever way the file has changed.
func TestStaleStores(t *testing.T) {
	t.Parallel()
	for seed := range uint64(testtree.Rounds(t, "FILEPROC_FAULTS", 6)) {
		r := rand.New(rand.NewPCG(seed, 0))
		file := filepath.Join(t.TempDir(), "cache")
		want := asMap()
		stores := []*Store{mustLoad(t, file), mustLoad(t, file), mustLoad(t, file)}
		for step := range 40 {
			k := r.IntN(len(stores))
			if r.IntN(3) == 0 {
				stores[k] = mustLoad(t, file)
				require.Equal(t, want, contents(t, stores[k]), "seed %d step %d", seed, step)
			}
			for _, i := range r.Perm(2000)[:1<<r.IntN(10)] {
				rec := changed(testRecord(i), step)
				stores[k].Add(r.IntN(4), rec)
				want[rec.Path] = rec
			}
			require.NoError(t, stores[k].save(nil))
		}
		require.Equal(t, want, contents(t, mustLoad(t, file)))
	}
}

// A deletion spares a record that another process has saved since for the same path.
func TestDeletionSparesNewer(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 5000} { // beside a short log, and with a new snapshot
		file := filepath.Join(t.TempDir(), "cache")
		mustSave(t, mustLoad(t, file), records(0, 1000)...)
		mustSave(t, mustLoad(t, file), changed(testRecord(3), 1), changed(testRecord(4), 1))
		s := mustLoad(t, file)
		var deleted []int
		for i := 1; i <= 4; i++ {
			_, k, ok := s.Lookup(testRecord(i).Path)
			require.True(t, ok)
			deleted = append(deleted, k)
		}
		want := contents(t, s)
		mustSave(t, mustLoad(t, file), changed(testRecord(2), 7), changed(testRecord(4), 7))
		for _, rec := range records(1000, 1000+n) {
			s.Add(0, rec)
			want[rec.Path] = rec
		}
		delete(want, testRecord(1).Path)
		delete(want, testRecord(3).Path)
		want[testRecord(2).Path] = changed(testRecord(2), 7)
		want[testRecord(4).Path] = changed(testRecord(4), 7)
		require.NoError(t, s.save(deleted))
		s = mustLoad(t, file)
		require.Equal(t, n == 2, s.loaded.log.records > 0)
		require.Equal(t, want, contents(t, s))
		// What was deleted can come back, and go again: in the log, then in a snapshot.
		mustSave(t, s, testRecord(1))
		want[testRecord(1).Path] = testRecord(1)
		s = mustLoad(t, file)
		require.Equal(t, want, contents(t, s))
		_, k, _ := s.Lookup(testRecord(1).Path)
		require.NoError(t, s.save([]int{k}))
		delete(want, testRecord(1).Path)
		s = mustLoad(t, file)
		require.Equal(t, want, contents(t, s))
		mustSave(t, s, records(20000, 30000)...)
		maps.Copy(want, asMap(records(20000, 30000)...))
		require.Equal(t, want, contents(t, mustLoad(t, file)))
	}
}

// A deletion also spares a record that is in a snapshot which another process has written since.
func TestDeletionSparesNewerSnapshot(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "cache")
	mustSave(t, mustLoad(t, file), records(0, 10)...)
	s := mustLoad(t, file)
	_, n, ok := s.Lookup(testRecord(2).Path)
	require.True(t, ok)
	want := asMap(append(records(0, 10000), changed(testRecord(2), 1))...)
	mustSave(t, mustLoad(t, file), slices.Collect(maps.Values(want))...)
	require.NoError(t, s.save([]int{n}))
	last := mustLoad(t, file)
	require.Less(t, last.disk.snapshotEnd, last.disk.end, "the tombstone is in the log")
	require.Zero(t, last.loaded.log.records, "and what it spares stays where it is")
	require.Equal(t, last.loaded.snapshot.records, last.len())
	require.Equal(t, want, contents(t, last))
}

// The log and its tombstones stay shorter than a quarter of the snapshot.
func TestLogStaysShort(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "cache")
	mustSave(t, mustLoad(t, file), records(0, 10000)...)
	for i := range 100 {
		s := mustLoad(t, file)
		mustSave(t, s, changed(testRecord(i), 1), changed(testRecord(i+1), 2))
		var deleted []int
		for n := range s.Unseen() {
			if n%50 == i%50 {
				deleted = append(deleted, n)
			}
		}
		require.NoError(t, s.save(deleted))
		info, err := os.Stat(file)
		require.NoError(t, err)
		require.LessOrEqual(t, info.Size()-s.disk.snapshotEnd, logLimit(s.disk.snapshotEnd))
		require.Equal(t, info.Size(), s.disk.end)
	}
	// A snapshot does not keep the space of what was deleted or replaced.
	for i := range 20 {
		s := mustLoad(t, file)
		for j := range s.len() {
			s.Add(0, changed(testRecord(j), i))
		}
		require.NoError(t, s.save(nil))
	}
	info, err := os.Stat(file)
	require.NoError(t, err)
	s := mustLoad(t, file)
	require.Less(t, info.Size(), int64(s.len()*150))
	require.Equal(t, s.len(), s.loaded.snapshot.records)
}

func TestOtherKey(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "cache")
	mustSave(t, mustLoad(t, file), records(0, 10)...)
	other, err := Load(file, [32]byte{9}, 1)
	require.NoError(t, err)
	require.Empty(t, contents(t, other))
	other.Add(0, testRecord(11))
	require.NoError(t, other.save(nil))
	require.Empty(t, contents(t, mustLoad(t, file)))
	other, err = Load(file, [32]byte{9}, 1)
	require.NoError(t, err)
	require.Equal(t, asMap(testRecord(11)), contents(t, other))
}

func needLocks(t *testing.T) {
	if unlock, locked, err := lock(t.Context(), filepath.Join(t.TempDir(), "x")); err != nil || !locked {
		t.Skip("no locks here: ", err)
	} else {
		unlock()
	}
}

// Each of several savers at once keeps all its records.
func TestWritersAtOnce(t *testing.T) {
	t.Parallel()
	needLocks(t)
	file := filepath.Join(t.TempDir(), "cache")
	const writers, rounds, each = 4, 25, 40
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			s := mustLoad(t, file)
			for round := range rounds {
				if round%5 == w {
					s = mustLoad(t, file)
				}
				from := (w*rounds + round) * each
				mustSave(t, s, records(from, from+each)...)
			}
		})
	}
	wg.Wait()
	require.Equal(t, asMap(records(0, writers*rounds*each)...), contents(t, mustLoad(t, file)))
}

// Workers look up, mark and add while a save runs.
func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "cache")
	mustSave(t, mustLoad(t, file), records(0, 5000)...)
	s := mustLoad(t, file)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 5000 {
				rec, n, ok := s.Lookup(testRecord(i).Path)
				if !ok || rec.ID != testRecord(i).ID {
					t.Error("lost ", i)
				}
				s.MarkSeen(n)
				s.Add(w, testRecord(10_000*(w+1)+i))
			}
		})
	}
	for range 20 {
		require.NoError(t, s.save(nil))
	}
	wg.Wait()
	require.NoError(t, s.save(nil))
	for range s.Unseen() {
		t.Fatal("a record is not marked")
	}
	require.Equal(t, 25_000, len(contents(t, mustLoad(t, file))))
}

func TestTooLongToKeep(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "cache")
	s := mustLoad(t, file)
	s.Add(0, Record{Path: strings.Repeat("x", maxPath+1)})
	s.Add(0, Record{Path: "a", Result: make([]byte, maxResult+1)})
	require.Empty(t, s.take())
	s.Add(0, Record{Path: strings.Repeat("x", maxPath), Result: make([]byte, 3*chunkSize)})
	s.Add(0, testRecord(1))
	require.NoError(t, s.save(nil))
	require.Equal(t, 2, len(contents(t, mustLoad(t, file))))
	require.Less(t, s.disk.end, int64(8*chunkSize))
}

func TestOwns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	target := filepath.Join(dir, "target")
	mustSave(t, mustLoad(t, target), testRecord(1))
	link := filepath.Join(dir, "link")
	testtree.Symlink(t, "target", link)
	s := mustLoad(t, link)
	require.Equal(t, 1, s.len())
	for name, want := range map[string]bool{"": true, ".lock": true, ".fileproc-tmp": true, ".fileproc-tmp-1f": true, "x": false, ".tmp": false, ".fileproc-tmp/x": false, ".fileproc-tmpl": false, ".lock2": false} {
		require.Equal(t, want, IsOwnSuffix(name), name)
	}
	// A save replaces the file, not the link.
	mustSave(t, s, records(0, 5000)...)
	info, err := os.Lstat(link)
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&os.ModeSymlink)
	require.Equal(t, 5000, mustLoad(t, target).len())
}

// TestDanglingLink: a link to a file that is not there yet leads to where the cache file is made. A link to itself leads nowhere.
func TestDanglingLink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "real", "deep"), 0o755))
	testtree.Symlink(t, filepath.Join("real", "deep"), filepath.Join(dir, "way"))
	link := filepath.Join(dir, "link")
	require.NoError(t, os.Symlink("way/../second", link)) // behind way, ".." is real
	require.NoError(t, os.Symlink(filepath.Join(dir, "way", "target"), filepath.Join(dir, "real", "second")))
	target := filepath.Join(dir, "real", "deep", "target")
	for range 2 {
		mustSave(t, mustLoad(t, link), testRecord(1))
		info, err := os.Lstat(link)
		require.NoError(t, err)
		require.NotZero(t, info.Mode()&os.ModeSymlink)
		require.Equal(t, 1, mustLoad(t, target).len())
		require.Equal(t, 1, mustLoad(t, link).len())
	}
	loop := filepath.Join(dir, "loop")
	require.NoError(t, os.Symlink("loop", loop))
	s, err := Load(loop, testKey, 1)
	require.Error(t, err)
	s.Add(0, testRecord(1))
	require.Error(t, s.save(nil))
	info, err := os.Lstat(loop)
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&os.ModeSymlink)
}

// A path is resolved to an absolute one without links, whether the file exists or not.
func TestResolve(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	t.Chdir(dir)
	testtree.Make(t, dir, "real/deep/", "real/there=1")
	for link, target := range map[string]string{"way": "real/deep", "to-there": "way/../there", "to-none": filepath.Join(dir, "way", "..", "none"), "first": "to-none", "loop": "loop"} {
		testtree.Symlink(t, filepath.FromSlash(target), filepath.Join(dir, link))
	}
	for name, want := range map[string]string{
		"none": "none", "real/there": "real/there", "way/none": "real/deep/none", "to-there": "real/there", "to-none": "none", "first": "none", "way/x/../none": "real/deep/none",
		"not/there": "not/there", "loop": "loop", ".": ".",
	} {
		want = filepath.Join(dir, filepath.FromSlash(want))
		if name == "to-none" || name == "first" {
			want = filepath.Join(dir, "none") // Join has cleaned its target
		}
		require.Equal(t, want, resolve(filepath.FromSlash(name)), name)
		require.Equal(t, want, resolve(filepath.Join(dir, filepath.FromSlash(name))), name)
	}
	last := "many0"
	for i := range maxLinks {
		last = fmt.Sprint("many", i+1)
		testtree.Symlink(t, fmt.Sprint("many", i), filepath.Join(dir, last))
	}
	require.Equal(t, filepath.Join(dir, "many0"), resolve(fmt.Sprint("many", maxLinks-1)))
	require.Equal(t, filepath.Join(dir, last), resolve(last), "one link more than the system follows")
}

// A cache is private; the caller may make it less so, and a new snapshot keeps that.
func TestMode(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "cache")
	mustSave(t, mustLoad(t, file), testRecord(1))
	require.NoError(t, os.Chmod(file, 0o640))
	before, err := os.Stat(file)
	require.NoError(t, err)
	mustSave(t, mustLoad(t, file), records(0, 5000)...)
	after, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, before.Mode(), after.Mode())
	if runtime.GOOS != "windows" { // there, SameFile looks at the file that has the name now
		require.False(t, os.SameFile(before, after))
	}
}

// What is no regular file is not used as a lock. A link to a file that is not there is one of these.
func TestOddLock(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "cache")
	for _, name := range []string{"directory", "link"} {
		if name == "directory" {
			require.NoError(t, os.Mkdir(file+lockSuffix, 0o755))
		} else {
			testtree.Symlink(t, "none", file+lockSuffix)
		}
		unlock, locked, err := lock(t.Context(), file)
		require.ErrorIs(t, err, errNotRegular, name)
		require.ErrorContains(t, err, file+lockSuffix)
		require.False(t, locked)
		require.Nil(t, unlock)
		require.NoError(t, os.Remove(file+lockSuffix))
	}
	require.NoFileExists(t, filepath.Join(filepath.Dir(file), "none"))
	_, locked, err := lock(t.Context(), filepath.Join(file, "in a directory that is not there"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.False(t, locked)
}

func TestLockHeld(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cache")
	s := mustLoad(t, file)
	l := flock.New(resolve(file) + lockSuffix)
	if locked, err := l.TryLock(); !locked {
		t.Skip("no locks: ", err)
	}
	defer func(wait time.Duration) { lockWait = wait }(lockWait)
	lockWait = 20 * time.Millisecond
	s.Add(0, testRecord(1))
	err := s.save(nil)
	require.ErrorContains(t, err, "another process holds "+s.Path+lockSuffix)
	lockWait = time.Minute
	ended, end := context.WithCancel(t.Context())
	end()
	unlock, locked, err := lock(ended, s.Path)
	require.EqualError(t, err, "another process holds "+s.Path+lockSuffix)
	require.False(t, locked)
	require.Nil(t, unlock)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	require.ErrorContains(t, s.Save(ctx, nil), "another process holds ") // the wait ends with ctx
	require.NoError(t, l.Unlock())
	require.NoError(t, s.Save(ctx, nil)) // nothing was lost by the failure, and a free lock is taken whenever
	require.Equal(t, 1, mustLoad(t, file).len())
}
