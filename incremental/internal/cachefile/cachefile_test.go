package cachefile

import (
	"context"
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

	"github.com/cespare/xxhash/v2"
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
	var next Following
	for n, v := range s.Unseen() {
		rec := Record{Path: string(v.Path), ID: v.ID, Outcome: v.Outcome, Result: v.Result}
		all[rec.Path] = rec
		found, k, ok := s.Lookup(rec.Path, &next)
		if !ok || k != n || found.ID != v.ID {
			t.Fatal("lookup and unseen disagree on ", rec.Path)
		}
	}
	require.Len(t, all, s.len())
	return all
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
		require.Zero(t, len(b)%align)
		require.LessOrEqual(t, len(b)-8, maxRecordHead+len(rec.Path)+len(rec.Result))
		require.GreaterOrEqual(t, len(b)-8, minRecord)
		s, ok := parse(b, 8)
		require.True(t, ok)
		require.Len(t, s.b, len(b)-8)
		got := s.view()
		require.Equal(t, rec, Record{Path: string(got.Path), ID: got.ID, Outcome: got.Outcome, Result: append([]byte{}, got.Result...)})
	}
}

// parse reads nothing outside of the buffer, whatever is in it.
func TestParseHostile(t *testing.T) {
	t.Parallel()
	b := make([]byte, 0, 200)
	for _, fill := range []byte{0, 0x01, 0x10, 0x7f, 0xff} {
		for length := range 100 {
			b = b[:length]
			for i := range b {
				b[i] = fill
			}
			for place := range uint64(110) {
				if s, ok := parse(b, place); ok {
					require.LessOrEqual(t, int(place)+len(s.b), length)
					s.view()
				}
			}
			_, ok := parse(b, 1<<34)
			require.False(t, ok)
		}
	}
	for _, h := range []header{
		{dataLen: 1<<64 - 16}, {dataLen: 1 << 63}, {dataLen: 1 << 36}, {dataLen: 4},
		{slots: 1 << 61}, {slots: 1<<61 + 1}, {slots: 1<<64 - 1}, {dataLen: 1 << 30, slots: 1 << 32},
		{records: 1}, {dataLen: 320, records: 11}, {dataLen: 320, records: 1 << 63},
	} {
		_, ok := decodeHeader(h.encode())
		require.False(t, ok, h)
	}
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "cache")
	s := mustLoad(t, file)
	want := asMap()
	require.Equal(t, want, contents(t, s))
	kinds := map[string]bool{}
	for round := range 40 { // first a snapshot, then frames, then a snapshot again
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
		if round%3 == 2 { // deletes every tenth
			var deleted []int
			gone := map[string]bool{}
			for n, rec := range s.Unseen() {
				if n%10 == round%10 {
					deleted = append(deleted, n)
					delete(want, string(rec.Path))
					gone[string(rec.Path)] = true
				}
			}
			require.NoError(t, s.save(deleted))
			s = mustLoad(t, file)
			require.Equal(t, want, contents(t, s))
			for path := range gone {
				_, _, ok := s.Lookup(path, new(Following))
				require.False(t, ok)
			}
		}
	}
	require.Len(t, kinds, 2, "both a frame and a snapshot were written")
}

// What a snapshot or a frame of another boot says of files that changed shortly before it was saved is not believed, however
// often it was loaded and saved since; that the files were there is known.
func TestAnotherBoot(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cache")
	oldBoot, oldClock := ThisBoot, Clock
	defer func() { ThisBoot, Clock = oldBoot, oldClock }()
	boot := func(name string) { ThisBoot = func() (b [16]byte) { copy(b[:], name); return b } }
	at := func(sec int64) { Clock = func() time.Time { return time.Unix(sec, 0) } }
	margin := int64(WrittenBack / time.Second)
	file1 := func(path string, sec, ns int64) Record {
		ns += sec * 1e9
		return Record{Path: path, ID: Identity{Identity: fsinfo.Identity{Size: 1, ModTime: 5, ChangeTime: ns, BirthTime: 7}}, Result: []byte(path)}
	}
	byContent := Record{Path: "content", ID: Identity{Identity: fsinfo.Identity{Size: 1}, Content: [16]byte{1}}, Result: []byte("c")}
	believed := func(want string) {
		t.Helper()
		s, got := mustLoad(t, file), ""
		for n, rec := range s.Unseen() {
			require.NotZero(t, len(rec.Path))
			found, k, ok := s.Lookup(string(rec.Path), new(Following))
			require.True(t, ok)
			require.Equal(t, n, k)
			if len(rec.Path) == 1 && found.ID.Size != NoSize {
				got += string(rec.Path)
			}
		}
		require.ElementsMatch(t, strings.Split(want, ""), strings.Split(got, ""))
		rec, _, _ := s.Lookup("content", new(Following))
		require.EqualValues(t, 1, rec.ID.Size)
	}
	boot("one")
	at(10_000)
	mustSave(t, mustLoad(t, file), file1("a", 10_000-margin, 0), byContent, file1("b", 10_000-margin, 1), file1("c", 10_000, 0), file1("d", 1, 0), file1("k", 10_000, 0))
	at(20_000)
	mustSave(t, mustLoad(t, file), file1("e", 20_000-margin, 0), file1("f", 20_000-margin, 1), file1("c", 20_000, 5))
	require.NotEmpty(t, mustLoad(t, file).loaded.logRecords)
	believed("abcdefk")
	boot("two")
	believed("ade")
	at(30_000)
	mustSave(t, mustLoad(t, file), file1("g", 30_000, 0))
	believed("adeg")
	for i, path := range []string{"b", "f"} { // deleted by the identity that they have in the file
		s := mustLoad(t, file)
		_, n, ok := s.Lookup(path, new(Following))
		require.True(t, ok)
		require.NoError(t, s.save([]int{n}))
		_, _, ok = mustLoad(t, file).Lookup(path, new(Following))
		require.False(t, ok, i)
	}
	var many []Record
	for i := range 2000 {
		many = append(many, file1(fmt.Sprint("many", i), 1, 0))
	}
	mustSave(t, mustLoad(t, file), many...)
	require.Zero(t, mustLoad(t, file).loaded.logRecords)
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

// How runs treat links is known from the last save, be it a snapshot or a frame.
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
	require.NotZero(t, s.loaded.logRecords)
	for i := range 1000 {
		if i%100 != 6 {
			_, n, ok := s.Lookup(testRecord(i).Path, new(Following))
			require.True(t, ok)
			s.MarkSeen(n)
		}
	}
	var got []string
	for _, rec := range s.Unseen() {
		got = append(got, string(rec.Path))
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

// TestLookupInOrder: the record that follows the last one found is no answer if the log has another, or deletes it.
func TestLookupInOrder(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "cache")
	first := mustLoad(t, file)
	for _, rec := range records(0, 1000) {
		first.Add(0, rec)
	}
	require.NoError(t, first.save(nil))
	second := mustLoad(t, file)
	_, gone, _ := second.Lookup(testRecord(7).Path, new(Following))
	second.Add(0, changed(testRecord(5), 1))
	require.NoError(t, second.save([]int{gone}))
	s := mustLoad(t, file)
	require.Equal(t, 2, s.loaded.logRecords)
	var next Following
	quick := 0
	for i := range 1000 {
		before := next
		rec, n, ok := s.Lookup(testRecord(i).Path, &next)
		require.Equal(t, i != 7, ok)
		if ok && slices.Contains(before[:], n) {
			quick++
		}
		switch i {
		case 5:
			require.Equal(t, changed(testRecord(5), 1).ID, rec.ID)
		case 7:
		default:
			require.Equal(t, testRecord(i).ID, rec.ID)
		}
	}
	require.Equal(t, 995, quick, "not the first, those that the log has, and those after them")
	next[0], next[1] = math.MaxInt, math.MinInt
	_, _, ok := s.Lookup(testRecord(3).Path, &next)
	require.True(t, ok)
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
			_, k, ok := s.Lookup(testRecord(i).Path, new(Following))
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
		require.Equal(t, n == 2, s.loaded.logRecords > 0)
		require.Equal(t, want, contents(t, s))
		// What was deleted can come back, and go again: in the log, then in a snapshot.
		mustSave(t, s, testRecord(1))
		want[testRecord(1).Path] = testRecord(1)
		s = mustLoad(t, file)
		require.Equal(t, want, contents(t, s))
		_, k, _ := s.Lookup(testRecord(1).Path, new(Following))
		require.NoError(t, s.save([]int{k}))
		delete(want, testRecord(1).Path)
		s = mustLoad(t, file)
		require.Equal(t, want, contents(t, s))
		mustSave(t, s, records(20000, 30000)...)
		maps.Copy(want, asMap(records(20000, 30000)...))
		require.Equal(t, want, contents(t, mustLoad(t, file)))
	}
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
	require.Less(t, s.loaded.snapshot.n, uint64(s.len()*2))
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
				rec, n, ok := s.Lookup(testRecord(i).Path, new(Following))
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

// Paths that were chosen to meet in the index cost their records, not time.
func TestCollidingPaths(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "cache")
	s := mustLoad(t, file)
	var paths []string
	var b []byte
	for i := int64(0); len(paths) < 3*maxProbes; i++ {
		if b = strconv.AppendInt(b[:0], i, 10); xxhash.Sum64(b)>>52 == 0 {
			paths = append(paths, string(b))
			s.Add(0, Record{Path: string(b)})
		}
	}
	require.NoError(t, s.save(nil))
	size := func() int64 {
		info, err := os.Stat(file)
		require.NoError(t, err)
		return info.Size()
	}
	before := size()
	for range 3 {
		s = mustLoad(t, file)
		found := len(contents(t, s))
		require.GreaterOrEqual(t, found, maxProbes)
		require.Less(t, found, len(paths), "the test wants paths that find no slot")
		for _, path := range paths {
			if _, _, ok := s.Lookup(path, new(Following)); !ok {
				s.Add(0, Record{Path: path})
			}
		}
		require.NoError(t, s.save(nil))
		require.Less(t, size(), 2*before)
	}
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
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	require.ErrorContains(t, s.Save(ctx, nil), "another process holds ") // the wait ends with ctx
	require.NoError(t, l.Unlock())
	require.NoError(t, s.Save(ctx, nil)) // nothing was lost by the failure, and a free lock is taken whenever
	require.Equal(t, 1, mustLoad(t, file).len())
}
