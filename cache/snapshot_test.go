package cache

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/fileproc/fileproc/internal/fsinfo"
	"github.com/stretchr/testify/require"
)

var snapshotFiles = map[string]string{"a.txt": "a", "empty": "", "d/b.txt": strings.Repeat("b", 5000), oddName: "n"}

// snapshotOf is a snapshot of all files of source.
func snapshotOf(t testing.TB, source fs.FS, opts Options, names ...string) []byte {
	c, err := New(source, opts)
	require.NoError(t, err)
	for _, name := range names {
		_, err := c.ReadFile(name)
		require.NoError(t, err)
	}
	var b bytes.Buffer
	require.NoError(t, c.writeSnapshot(&b))
	return b.Bytes()
}

func TestSnapshot(t *testing.T) {
	settledFiles(t)
	d, err := newDirFS(warmTree(t, snapshotFiles))
	require.NoError(t, err)
	defer d.Close()
	m := newMemFS(snapshotFiles)
	for name, source := range map[string]fs.FS{"dir": d, "memory": m} {
		for _, trust := range []time.Duration{0, Forever} {
			t.Run(fmt.Sprint(name, "/", trust != 0), func(t *testing.T) {
				snapshot := snapshotOf(t, source, Options{Trust: trust}, "a.txt", "empty", "d/b.txt", oddName)
				c := newFS(t, source, Options{Trust: trust})
				opens := m.opens.Load()
				n, err := c.readSnapshot(iotest.HalfReader(bytes.NewReader(snapshot)))
				require.NoError(t, err)
				require.Equal(t, 4, n)
				for range 2 {
					for name, data := range snapshotFiles {
						require.Equal(t, data, readFile(t, c, name))
					}
				}
				f, err := c.Open("d/b.txt")
				require.NoError(t, err)
				got, err := f.Stat()
				require.NoError(t, err)
				want, err := fs.Stat(source, "d/b.txt")
				require.NoError(t, err)
				require.Equal(t, want.Name(), got.Name())
				require.Equal(t, want.Size(), got.Size())
				require.Equal(t, want.Mode(), got.Mode())
				require.True(t, want.ModTime().Equal(got.ModTime()))
				s := c.Stats().Files
				require.Zero(t, s.Misses)
				require.Zero(t, s.Loads)
				require.EqualValues(t, 9, s.Hits)
				require.Equal(t, opens, m.opens.Load())
				if trust == Forever {
					require.EqualValues(t, 4, s.Checks, "each once")
				}
				requireStats(t, s)
				again, err := c.readSnapshot(bytes.NewReader(snapshot))
				require.NoError(t, err)
				require.Zero(t, again, "nothing is replaced")
			})
		}
	}
}

// TestSnapshotIsComparedAtFirstUse: each file of a snapshot is compared at its first use, also with Trust, through FS and Results.
func TestSnapshotIsComparedAtFirstUse(t *testing.T) {
	for _, trust := range []time.Duration{0, time.Hour, Forever} {
		m := newMemFS(map[string]string{"f": "old", "gone": "x"})
		snapshot := snapshotOf(t, m, Options{Trust: trust}, "f", "gone")
		m.put("f", "new")
		m.delete("gone")
		c := newFS(t, m, Options{Trust: trust})
		r, err := NewResults(c, ResultOptions[string]{}, func(f File) (string, error) { return string(f.Data), nil })
		require.NoError(t, err)
		n, err := c.readSnapshot(bytes.NewReader(snapshot))
		require.NoError(t, err)
		require.Equal(t, 2, n)
		got, err := r.Load("f")
		require.NoError(t, err)
		require.Equal(t, "new", got)
		require.Equal(t, "new", readFile(t, c, "f"))
		_, err = c.ReadFile("gone")
		require.ErrorIs(t, err, fs.ErrNotExist)
		require.EqualValues(t, 2, c.Stats().Files.Evictions["changed"])
	}
}

// TestSnapshotLeavesOut: a snapshot leaves out files that could not be compared, and dirty files.
func TestSnapshotLeavesOut(t *testing.T) {
	m := &memFS{files: map[string]*memInfo{}, timeless: true}
	m.put("f", "x")
	c := newFS(t, m, Options{Trust: Forever})
	readFile(t, c, "f")
	m2 := newMemFS(map[string]string{"f": "old", "g": "x"})
	dirty := newFS(t, m2, Options{Store: m2, Write: WriteBack, FlushInterval: Forever})
	readFile(t, dirty, "f")
	readFile(t, dirty, "g")
	require.NoError(t, dirty.WriteFile("f", []byte("dirty")))
	require.NoError(t, dirty.Remove("g"))
	for _, c := range []*FS{c, dirty} {
		var b bytes.Buffer
		require.NoError(t, c.writeSnapshot(&b))
		fresh := newFS(t, m2, Options{})
		n, err := fresh.readSnapshot(&b)
		require.NoError(t, err)
		require.Zero(t, n)
	}
	n, err := dirty.readSnapshot(bytes.NewReader(snapshotOf(t, m2, Options{}, "f", "g")))
	require.NoError(t, err)
	require.Zero(t, n)
	require.Equal(t, "dirty", readFile(t, dirty, "f"))
}

// TestSnapshotKeepsTheBounds: used entries stay in the cache, and the most used files of the snapshot come first.
func TestSnapshotKeepsTheBounds(t *testing.T) {
	files := map[string]string{"used": "u", "large": strings.Repeat("x", 4000)}
	var names []string
	for i := range 50 {
		names = append(names, fmt.Sprintf("f%02d", i))
		files[names[i]] = strings.Repeat("x", 100)
	}
	m := newMemFS(files)
	snapshot := snapshotOf(t, m, Options{}, append(append(names, "large", "large"), names[20:30]...)...)
	for _, opts := range []Options{{MaxBytes: 11 * (entryOverhead + 110)}, {MaxEntries: 11, MaxFileSize: 1000}} {
		opts.Shards = 1
		c := newFS(t, m, opts)
		readFile(t, c, "used")
		n, err := c.readSnapshot(bytes.NewReader(snapshot))
		require.NoError(t, err)
		s := c.Stats().Files
		require.LessOrEqual(t, s.Bytes, c.data.maxCost())
		require.Zero(t, s.Evictions["bytes"]+s.Evictions["entries"])
		require.EqualValues(t, n+1, s.Entries)
		got := cachedNames(c)
		require.Equal(t, "used", got[0])
		if opts.MaxEntries > 0 {
			require.ElementsMatch(t, append([]string{"used"}, names[20:30]...), got)
		}
	}
}

func TestSnapshotKeepsTTLs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemFS(map[string]string{"hour": "", "minute": "", "never": ""})
		opts := Options{Trust: Forever, TTL: time.Hour, TTLOf: func(name string, _ fs.FileInfo) time.Duration {
			return map[string]time.Duration{"minute": time.Minute, "never": -1}[name]
		}}
		snapshot := snapshotOf(t, m, opts, "hour", "minute", "never")
		time.Sleep(50 * time.Minute)
		c := newFS(t, m, opts)
		n, err := c.readSnapshot(bytes.NewReader(snapshot))
		require.NoError(t, err)
		require.Equal(t, 2, n)
		time.Sleep(9 * time.Minute)
		require.Len(t, cachedNames(c), 2)
		time.Sleep(2 * time.Minute)
		require.EqualValues(t, 1, c.Stats().Files.Entries)
		require.Equal(t, []string{"never"}, cachedNames(c))
		opts.TTL, opts.TTLOf = time.Second, nil // less than when it was saved
		c = newFS(t, m, opts)
		_, err = c.readSnapshot(bytes.NewReader(snapshot))
		require.NoError(t, err)
		time.Sleep(2 * time.Second)
		require.Zero(t, c.Stats().Files.Entries)
	})
}

// TestDamagedSnapshot: each wrong byte and each cut is an error, and no wrong content is
// cached.
func TestDamagedSnapshot(t *testing.T) {
	files := map[string]string{"a": "content of a", "b": "content of b", "c": ""}
	m := newMemFS(files)
	snapshot := snapshotOf(t, m, Options{}, "a", "b", "c", "b")
	check := func(damaged []byte, what ...any) {
		t.Helper()
		c := newFS(t, m, Options{Trust: Forever})
		_, err := c.readSnapshot(bytes.NewReader(damaged))
		require.ErrorIs(t, err, ErrSnapshot, what...)
		for name, data := range files {
			if h, ok := c.data.find(name); ok {
				require.Equal(t, data, string(h.value.data))
			}
			require.Equal(t, data, readFile(t, c, name))
		}
	}
	for i := range snapshot {
		damaged := bytes.Clone(snapshot)
		damaged[i] ^= 1 << (i % 8)
		check(damaged, "byte %d", i)
		check(snapshot[:i], "cut at %d", i)
	}
	check(append(bytes.Clone(snapshot), 0), "more")
	record := recordSize + 1 + 8 + 12 + 8
	first := len(snapshotMagic)
	check(append(bytes.Clone(snapshot[:first]), snapshot[first+record:]...), "without a record")
	check(append(bytes.Clone(snapshot[:first+record]), snapshot[first:]...), "a record twice")
	c := newFS(t, m, Options{})
	n, err := c.readSnapshot(iotest.TimeoutReader(iotest.OneByteReader(bytes.NewReader(snapshot))))
	require.Zero(t, n)
	require.ErrorIs(t, err, iotest.ErrTimeout, "the error of the reader is not damage")
	require.NotErrorIs(t, err, ErrSnapshot)
	n, err = c.readSnapshot(bytes.NewReader(snapshot[:len(snapshot)-1]))
	require.ErrorIs(t, err, ErrSnapshot)
	require.Equal(t, 3, n, "what was read before stays")
}

func TestSnapshotWriteFails(t *testing.T) {
	m := newMemFS(map[string]string{"f": strings.Repeat("x", 2*snapshotBuffer)})
	c := newFS(t, m, Options{})
	readFile(t, c, "f")
	require.ErrorIs(t, c.writeSnapshot(iotestWriter{}), errStore)
	c.Clear()
	require.ErrorIs(t, c.writeSnapshot(iotestWriter{}), errStore)
}

func TestSnapshotFile(t *testing.T) {
	m := newMemFS(map[string]string{"f": "x"})
	c := newFS(t, m, Options{})
	readFile(t, c, "f")
	dir := t.TempDir()
	name := filepath.Join(dir, "snapshot")
	_, err := c.LoadSnapshot(name)
	require.ErrorIs(t, err, fs.ErrNotExist)
	for range 2 {
		require.NoError(t, c.SaveSnapshot(name))
	}
	fresh := newFS(t, m, Options{})
	n, err := fresh.LoadSnapshot(name)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "d"), 0o777))
	require.Error(t, c.SaveSnapshot(filepath.Join(dir, "d")), "a directory is there")
	require.Error(t, c.SaveSnapshot(filepath.Join(dir, "none", "snapshot")))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 2, "no temporary file is left")
}

// FuzzLoadSnapshot: whatever is loaded, the bounds hold, and reads give what the source
// has.
func FuzzLoadSnapshot(f *testing.F) {
	files := map[string]string{"a": "content of a", "d/b": strings.Repeat("b", 300), "c": ""}
	m := newMemFS(files)
	whole := snapshotOf(f, m, Options{}, "a", "d/b", "c")
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	older := newMemFS(nil)
	older.clock = -100 // else it would have the identity of the other
	older.put("a", "content of A")
	f.Add(snapshotOf(f, older, Options{}, "a"))
	f.Add(snapshotOf(f, m, Options{}))
	f.Add([]byte(snapshotMagic))
	f.Fuzz(func(t *testing.T, snapshot []byte) {
		c, err := New(m, Options{MaxBytes: 2 * (entryOverhead + 310), Shards: 1, Trust: Forever})
		require.NoError(t, err)
		n, err := c.readSnapshot(bytes.NewReader(snapshot))
		if err != nil && !errors.Is(err, ErrSnapshot) {
			t.Fatal(err)
		}
		s := c.Stats().Files
		if int64(n) != s.Entries || s.Bytes > c.data.maxCost() {
			t.Fatalf("%d loaded: %+v", n, s)
		}
		for name, data := range files {
			if got, err := c.ReadFile(name); err != nil || string(got) != data {
				t.Fatalf("%s: %q, %v", name, got, err)
			}
		}
	})
}

// TestSnapshotWithPolicyTTL: an entry without a limit of its own has that of the Options.
func TestSnapshotWithPolicyTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemFS(map[string]string{"f": ""})
		opts := Options{Policy: TTL, TTL: time.Hour, TTLOf: func(string, fs.FileInfo) time.Duration { return -1 }}
		snapshot := snapshotOf(t, m, opts, "f")
		opts.TTL = time.Minute
		c := newFS(t, m, opts)
		n, err := c.readSnapshot(bytes.NewReader(snapshot))
		require.NoError(t, err)
		require.Equal(t, 1, n)
		time.Sleep(2 * time.Minute)
		require.Zero(t, c.Stats().Files.Entries)
	})
}

// TestSnapshotOfAnotherCount: an end with another number of entries is an error, even if all sums are right.
func TestSnapshotOfAnotherCount(t *testing.T) {
	var b bytes.Buffer
	s := &snapshotWriter{to: bufio.NewWriter(&b), sum: xxhash.New()}
	s.write([]byte(snapshotMagic))
	var end [recordSize]byte
	end[4] = 1
	s.write(end[:])
	s.writeSum()
	require.NoError(t, s.to.Flush())
	_, err := newFS(t, newMemFS(nil), Options{}).readSnapshot(&b)
	require.ErrorIs(t, err, ErrSnapshot)
}

// TestRecordsOfNoFile: a record that no snapshot has is an error, even if all sums are right.
func TestRecordsOfNoFile(t *testing.T) {
	write := func(name, data string, change func(id *fsinfo.Identity)) []byte {
		var b bytes.Buffer
		s := &snapshotWriter{to: bufio.NewWriter(&b), sum: xxhash.New()}
		s.write([]byte(snapshotMagic))
		ct := &content{data: []byte(data), stamp: stamp{id: fsinfo.Identity{Size: int64(len(data)), ModTime: 1, Mode: 0o644}}}
		change(&ct.id)
		s.entry(held[*content]{key: name, value: ct}, 0)
		var end [recordSize]byte
		end[4] = 1
		s.write(end[:])
		s.writeSum()
		require.NoError(t, s.to.Flush())
		return b.Bytes()
	}
	same := func(*fsinfo.Identity) {}
	longest := strings.Repeat("x", maxRecordName)
	for what, tt := range map[string]struct {
		snapshot []byte
		says     string
	}{
		"a file":            {write("f", "x", same), ""},
		"an irregular file": {write("f", "x", func(id *fsinfo.Identity) { id.Mode = fs.ModeIrregular }), ""},
		"the longest name":  {write(longest, "x", same), ""},
		"a longer name":     {write(longest+"x", "x", same), "record 0 is damaged"},
		"no name of an FS":  {write("../f", "x", same), "record 0 is none of a file"},
		"another size":      {write("f", "x", func(id *fsinfo.Identity) { id.Size++ }), "record 0 is none of a file"},
		"a directory":       {write("f", "x", func(id *fsinfo.Identity) { id.Mode = fs.ModeDir }), "record 0 is none of a file"},
	} {
		c := newFS(t, newMemFS(nil), Options{})
		n, err := c.readSnapshot(bytes.NewReader(tt.snapshot))
		require.Equal(t, n, len(cachedNames(c)))
		if tt.says == "" {
			require.NoError(t, err, what)
			require.Equal(t, 1, n, what)
			continue
		}
		require.ErrorIs(t, err, ErrSnapshot, what)
		require.ErrorContains(t, err, tt.says, what)
		require.Zero(t, n)
	}
	// A length below 0, as the number is read.
	b := write("f", "", func(id *fsinfo.Identity) { id.Size = -1 })
	first := b[:len(snapshotMagic)+recordSize+1]
	for i := range 8 {
		first[len(snapshotMagic)+4+i] = 0xff
	}
	sum := xxhash.New()
	sum.Write(first)
	_, err := newFS(t, newMemFS(nil), Options{}).readSnapshot(bytes.NewReader(binary.LittleEndian.AppendUint64(bytes.Clone(first), sum.Sum64())))
	require.ErrorContains(t, err, "record 0 is none of a file")
}

// TestSnapshotLeavesOutLongNames: a file whose name is longer than a record's may be is left out, and the others are not.
func TestSnapshotLeavesOutLongNames(t *testing.T) {
	longest := strings.Repeat("x", maxRecordName)
	m := newMemFS(map[string]string{longest: "", longest + "x": "", "f": ""})
	snapshot := snapshotOf(t, m, Options{}, longest, longest+"x", "f")
	c := newFS(t, m, Options{})
	n, err := c.readSnapshot(bytes.NewReader(snapshot))
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.ElementsMatch(t, []string{"f", longest}, cachedNames(c))
}

// TestSnapshotAtTheEndOfATTL: a file whose time ends at the moment of the load is left out. A limit that is far away is none in a snapshot.
func TestSnapshotAtTheEndOfATTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemFS(map[string]string{"f": "x"})
		opts := Options{Trust: Forever, TTL: time.Minute}
		snapshot := snapshotOf(t, m, opts, "f")
		load := func(opts Options) *FS {
			c := newFS(t, m, opts)
			_, err := c.readSnapshot(bytes.NewReader(snapshot))
			require.NoError(t, err)
			return c
		}
		time.Sleep(time.Minute - 1)
		require.Len(t, cachedNames(load(opts)), 1)
		c := load(Options{Trust: Forever})
		require.Len(t, cachedNames(c), 1)
		time.Sleep(time.Nanosecond)
		require.Empty(t, cachedNames(c), "the limit of the snapshot is kept where there is no other")
		require.Empty(t, cachedNames(load(opts)))

		snapshot = snapshotOf(t, m, Options{}, "f")
		c = load(Options{Trust: Forever, TTLOf: func(name string, i fs.FileInfo) time.Duration {
			require.Equal(t, name, i.Name())
			return time.Minute
		}})
		require.Len(t, cachedNames(c), 1)
		time.Sleep(time.Minute)
		require.Empty(t, cachedNames(c), "that of the name is kept, too")

		const years = 100 * 365 * 24 * time.Hour
		now := c.data.now()
		require.Zero(t, c.wallClock(0))
		require.Equal(t, time.Now().Add(time.Hour).UnixNano(), c.wallClock(now+int64(time.Hour)))
		require.Equal(t, time.Now().Add(years).UnixNano(), c.wallClock(now+int64(years)))
		require.Zero(t, c.wallClock(now+int64(years)+1))
	})
}

// TestSnapshotErrorsNameTheFile: an error of SaveSnapshot is about the snapshot. A name without a directory is one in the working directory.
func TestSnapshotErrorsNameTheFile(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	c := newFS(t, newMemFS(map[string]string{"f": "x"}), Options{})
	readFile(t, c, "f")
	require.NoError(t, c.SaveSnapshot("here"))
	require.FileExists(t, filepath.Join(dir, "here"))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "d", "e"), 0o777))
	var at *fs.PathError
	require.ErrorAs(t, c.SaveSnapshot("d"), &at)
	require.Equal(t, "d", at.Path)
	defer func(old func(*os.File) error) { fsync = old }(fsync)
	fsync = func(*os.File) error { return errStore }
	err := c.SaveSnapshot("here")
	require.ErrorIs(t, err, errStore)
	require.ErrorAs(t, err, &at)
	require.Equal(t, "here", at.Path)
}

// TestSnapshotErrorsSayWhat: the error of a reader is told as it is, wherever it comes. A snapshot that is cut off has no end, and one of another
// version begins with something else.
func TestSnapshotErrorsSayWhat(t *testing.T) {
	m := newMemFS(map[string]string{"a": "content", "b": ""})
	snapshot := snapshotOf(t, m, Options{}, "a", "b")
	for n := range len(snapshot) + 1 {
		for _, opts := range []Options{{}, {MaxFileSize: 1}} { // the second skips the content
			_, err := newFS(t, m, opts).readSnapshot(io.MultiReader(bytes.NewReader(snapshot[:n]), iotest.ErrReader(errStore)))
			require.ErrorIs(t, err, errStore, n)
			require.NotErrorIs(t, err, ErrSnapshot, n)
			if n < len(snapshot) {
				_, err = newFS(t, m, opts).readSnapshot(bytes.NewReader(snapshot[:n]))
				require.ErrorIs(t, err, ErrSnapshot, n)
				require.ErrorContains(t, err, "its end is missing", n)
			}
		}
	}
	large := newMemFS(map[string]string{"f": strings.Repeat("x", 2*snapshotBuffer)}) // the second read comes while the content is skipped
	_, err := newFS(t, large, Options{MaxFileSize: 1}).readSnapshot(iotest.TimeoutReader(bytes.NewReader(snapshotOf(t, large, Options{}, "f"))))
	require.ErrorIs(t, err, iotest.ErrTimeout)
	other := bytes.Clone(snapshot)
	other[len(snapshotMagic)-1]++
	_, err = newFS(t, m, Options{}).readSnapshot(bytes.NewReader(other))
	require.ErrorIs(t, err, ErrSnapshot)
	require.ErrorContains(t, err, "it begins with")
	n, err := newFS(t, m, Options{MaxFileSize: int64(len("content")) - 1}).readSnapshot(bytes.NewReader(snapshot))
	require.NoError(t, err)
	require.Equal(t, 1, n, "that which is not too large")
}

// TestSnapshotOfWhatHasNoRoom: content for which there is no room is not read into memory.
func TestSnapshotOfWhatHasNoRoom(t *testing.T) {
	files := map[string]string{}
	var names []string
	for i := range 40 {
		names = append(names, fmt.Sprint(i))
		files[names[i]] = strings.Repeat("x", 100_000)
	}
	m := newMemFS(files)
	snapshot := snapshotOf(t, m, Options{}, names...)
	c := newFS(t, m, Options{MaxBytes: 150_000, Shards: 1})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	n, err := c.readSnapshot(bytes.NewReader(snapshot))
	runtime.ReadMemStats(&after)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(3_000_000))
}

// TestSnapshotLeavesOutFarTimes: a file whose time is no number of nanoseconds is left out, though its change time shows each change.
func TestSnapshotLeavesOutFarTimes(t *testing.T) {
	m := newMemFS(nil)
	c := newFS(t, m, Options{})
	for name, at := range map[string]int64{"far": fsinfo.NoTime, "near": 1} {
		ct := &content{stamp: stamp{id: fsinfo.Identity{ModTime: at, ChangeTime: 1}, firm: true, whole: true}}
		require.Equal(t, aheadCached, c.data.add(name, ct, loaded{cost: ct.cost(name)}))
	}
	var b bytes.Buffer
	require.NoError(t, c.writeSnapshot(&b))
	c = newFS(t, m, Options{})
	n, err := c.readSnapshot(&b)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, []string{"near"}, cachedNames(c))
}

// TestSnapshotLeavesOutYoungFiles: a file that changed just before it was read may have changed again in the same step of the clock. It is trusted,
// and no snapshot has it.
func TestSnapshotLeavesOutYoungFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemFS(map[string]string{"young": "x", "old": "x"})
		m.files["young"].mtime = time.Now()
		c := newFS(t, m, Options{Trust: Forever})
		n, err := c.readSnapshot(bytes.NewReader(snapshotOf(t, m, Options{Trust: Forever}, "young", "old")))
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, []string{"old"}, cachedNames(c))
	})
}
