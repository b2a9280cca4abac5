package cache

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/fileproc/fileproc/internal/fsinfo"
	"github.com/stretchr/testify/require"
)

func newFS(t *testing.T, source fs.FS, opts Options) *FS {
	t.Helper()
	c, err := New(source, opts)
	require.NoError(t, err)
	return c
}

func readFile(t *testing.T, c *FS, name string) string {
	t.Helper()
	data, err := c.ReadFile(name)
	require.NoError(t, err)
	return string(data)
}

// settle makes the test's files count as settled after a short time.
func settle(t *testing.T) (wait func()) {
	old := fsinfo.Settled
	fsinfo.Settled = 30 * time.Millisecond // more than a step of the clock
	t.Cleanup(func() { fsinfo.Settled = old })
	return func() { time.Sleep(2 * fsinfo.Settled) }
}

func TestFileSystem(t *testing.T) {
	wait := settle(t)
	dir := t.TempDir()
	files := map[string]string{"a.txt": "a", "empty": "", "d/b.txt": strings.Repeat("b", 5000), "d/e/c.txt": "c"}
	for name, data := range files {
		full := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
		require.NoError(t, os.WriteFile(full, []byte(data), 0o644))
	}
	_ = os.Symlink("b.txt", filepath.Join(dir, "d", "link"))
	wait()
	opened, err := newDirFS(dir)
	require.NoError(t, err)
	defer opened.Close()
	mapFS := fstest.MapFS{}
	for name, data := range files {
		mapFS[name] = &fstest.MapFile{Data: []byte(data)}
	}
	sources := map[string]fs.FS{"dir": opened, "os": os.DirFS(dir), "map": mapFS, "memory": newMemFS(files)}
	options := map[string]Options{"default": {}, "forever": {Trust: Forever}, "hybrid": {Policy: Hybrid, Trust: time.Minute},
		"small": {MaxBytes: 1200, MaxMetaBytes: 1200, Trust: Forever, Shards: 1}, "lfu": {Policy: LFU, MaxEntries: 1}}
	for s, source := range sources {
		for o, opts := range options {
			t.Run(s+"/"+o, func(t *testing.T) {
				c := newFS(t, source, opts)
				for range 2 { // loaded, and from memory
					require.NoError(t, fstest.TestFS(c, "a.txt", "empty", "d/b.txt", "d/e/c.txt"))
				}
				for name, data := range files {
					require.Equal(t, data, readFile(t, c, name))
				}
				stats := c.Stats()
				requireStats(t, stats.Files)
				requireStats(t, stats.Metadata)
			})
		}
	}
}

// requireStats checks that the counters add up.
func requireStats(t *testing.T, c Counts) {
	t.Helper()
	left := int64(0)
	for _, n := range c.Evictions {
		left += n
	}
	require.Equal(t, c.Inserted, c.Entries+left, "%+v", c)
}

// TestHitReadsNothing: a hit with the comparison takes a stat, a hit without it takes no call of the source.
func TestHitReadsNothing(t *testing.T) {
	for _, trust := range []time.Duration{0, time.Hour, Forever} {
		m := newMemFS(map[string]string{"a": "x", "d/b": "y"})
		c := newFS(t, m, Options{Trust: trust})
		for range 10 {
			require.Equal(t, "x", readFile(t, c, "a"))
		}
		require.EqualValues(t, 1, m.opens.Load())
		s := c.Stats().Files
		require.EqualValues(t, 9, s.Hits)
		require.EqualValues(t, 1, s.Misses)
		require.InDelta(t, 0.9, s.HitRate(), 1e-9)
		if trust == 0 {
			require.EqualValues(t, 9, s.Checks)
			require.EqualValues(t, 10, m.stats.Load(), "one to prove the end, one for each hit")
		} else {
			require.Zero(t, s.Checks)
			require.EqualValues(t, 1, m.stats.Load())
		}
		for range 3 {
			entries, err := c.ReadDir("d")
			require.NoError(t, err)
			require.Len(t, entries, 1)
		}
		require.EqualValues(t, 2, m.opens.Load(), "the listing is cached too")
	}
}

func TestMetadataIsCached(t *testing.T) {
	m := newMemFS(map[string]string{"a": "x"})
	c := newFS(t, m, Options{Trust: time.Hour})
	for range 5 {
		i, err := c.Stat("a")
		require.NoError(t, err)
		require.EqualValues(t, 1, i.Size())
	}
	require.EqualValues(t, 1, m.stats.Load())
	m.put("a", "xx")
	c.Invalidate("a")
	i, err := c.Stat("a")
	require.NoError(t, err)
	require.EqualValues(t, 2, i.Size())
}

// The defects of cachefs v1.0.0 and corfs v1.0.0.

func TestDefectEvictsTheNewest(t *testing.T) {
	files := map[string]string{}
	for i := range 10 {
		files[fmt.Sprint("f", i)] = strings.Repeat("x", 100)
	}
	for name, policy := range policies {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // the time of all is the same
				m := newMemFS(files)
				c := newFS(t, m, Options{Policy: policy, TTL: time.Hour, MaxEntries: 4, Shards: 1})
				for i := range 10 {
					readFile(t, c, fmt.Sprint("f", i))
				}
				opens := m.opens.Load()
				for i := 9; i >= 6; i-- {
					readFile(t, c, fmt.Sprint("f", i))
				}
				require.Equal(t, opens, m.opens.Load(), "the newest four are cached")
				require.EqualValues(t, 6, c.Stats().Files.Evictions["entries"])
			})
		})
	}
}

func TestDefectTruncatedReadsOnceFull(t *testing.T) {
	files := map[string]string{}
	for i := range 50 {
		files[fmt.Sprint("f", i)] = strings.Repeat(fmt.Sprint(i%10), 700*(1+i%3))
	}
	for name, policy := range policies {
		t.Run(name, func(t *testing.T) {
			c := newFS(t, newMemFS(files), Options{Policy: policy, TTL: time.Hour, MaxBytes: 5000, Shards: 1})
			for range 3 {
				for f, data := range files {
					require.Equal(t, data, readFile(t, c, f))
					require.LessOrEqual(t, c.Stats().Files.Bytes, int64(5000))
				}
			}
			require.NotZero(t, c.Stats().Files.Evictions["bytes"])
		})
	}
}

func TestDefectTailCachedAsTheWhole(t *testing.T) {
	data := strings.Repeat("0123456789", 1000)
	c := newFS(t, newMemFS(map[string]string{"f": data}), Options{})
	f, err := c.Open("f")
	require.NoError(t, err)
	_, err = f.(io.Seeker).Seek(9000, io.SeekStart)
	require.NoError(t, err)
	tail, err := io.ReadAll(f)
	require.NoError(t, err)
	require.Equal(t, data[9000:], string(tail))
	require.NoError(t, f.Close())
	f, err = c.Open("f")
	require.NoError(t, err)
	_, err = io.ReadFull(f, make([]byte, 10)) // and a head
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.Equal(t, data, readFile(t, c, "f"))
}

func TestDefectStaleAfterAWriteBeneath(t *testing.T) {
	wait := settle(t)
	dir := t.TempDir()
	name := filepath.Join(dir, "f")
	require.NoError(t, os.WriteFile(name, []byte("old"), 0o644))
	wait()
	c, err := NewDir(dir, Options{})
	require.NoError(t, err)
	defer c.Close()
	changes := map[string]func(){
		"overwritten": func() { require.NoError(t, os.WriteFile(name, []byte("new"), 0o644)) },
		"replaced": func() {
			require.NoError(t, os.WriteFile(name+"~", []byte("nEw"), 0o644))
			i, err := os.Stat(name)
			require.NoError(t, err)
			require.NoError(t, os.Chtimes(name+"~", i.ModTime(), i.ModTime()))
			require.NoError(t, os.Rename(name+"~", name))
		},
		"truncated": func() { require.NoError(t, os.Truncate(name, 1)) },
		"removed":   func() { require.NoError(t, os.Remove(name)) },
	}
	for _, change := range []string{"overwritten", "replaced", "truncated", "removed"} {
		if change == "replaced" && !fsinfo.HasInodes {
			continue // by a file of the same size and time
		}
		for range 3 {
			readFile(t, c, "f")
		}
		hits := c.Stats().Files.Hits
		readFile(t, c, "f")
		require.Equal(t, hits+1, c.Stats().Files.Hits, "it is cached before it is %s", change)
		changes[change]()
		want, wantErr := os.ReadFile(name)
		data, err := c.ReadFile("f")
		require.Equal(t, wantErr == nil, err == nil, change)
		require.Equal(t, string(want), string(data), change)
		wait()
	}
	_, err = c.ReadFile("f")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// TestChangeInOneStepOfTheClock: a file that was read right after a change, and changed
// again at once to the same size, is not served from memory.
func TestChangeInOneStepOfTheClock(t *testing.T) {
	dir := t.TempDir()
	c, err := NewDir(dir, Options{})
	require.NoError(t, err)
	defer c.Close()
	for i := range 100 {
		want := fmt.Sprintf("%03d", i)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "f"), []byte(want), 0o644))
		require.Equal(t, want, readFile(t, c, "f"))
	}
	require.Zero(t, c.Stats().Files.Hits)
}

func TestDefectDirIsNotAPrefixOfDir2(t *testing.T) {
	files := map[string]string{"dir/a": "1", "dir/sub/b": "2", "dir2/a": "3", "dir.x": "4", "other/dir/a": "5"}
	cached := func(c *FS) (names string) {
		for _, s := range c.data.shards {
			for _, name := range []string{"dir.x", "dir/a", "dir/sub/b", "dir2/a", "other/dir/a"} {
				if s.entries[name] != nil {
					names += name + " "
				}
			}
		}
		return names
	}
	for _, tt := range []struct {
		name  string
		do    func(c *FS) (int, error)
		want  int
		stays string
	}{
		{"prefix", func(c *FS) (int, error) { return c.Invalidate("dir/"), nil }, 2, "dir.x dir2/a other/dir/a "},
		{"prefix with slashes", func(c *FS) (int, error) { return c.Invalidate("/dir/"), nil }, 2, "dir.x dir2/a other/dir/a "},
		{"prefix that is a file", func(c *FS) (int, error) { return c.Invalidate("dir/a/"), nil }, 1, "dir.x dir/sub/b dir2/a other/dir/a "},
		{"prefixes", func(c *FS) (int, error) { return c.Invalidate("dir/", "dir2/"), nil }, 3, "dir.x other/dir/a "},
		{"part of a name", func(c *FS) (int, error) { return c.Invalidate("di/"), nil }, 0, "dir.x dir/a dir/sub/b dir2/a other/dir/a "},
		{"prefix and name", func(c *FS) (int, error) { return c.Invalidate("dir2/a", "dir/", "dir.x"), nil }, 4, "other/dir/a "},
		{"root", func(c *FS) (int, error) { return c.Invalidate("/"), nil }, 5, ""},
		{"names", func(c *FS) (int, error) { return c.Invalidate("dir/a", "/dir2/a", "no", "dir"), nil }, 2, "dir.x dir/sub/b other/dir/a "},
		{"pattern", func(c *FS) (int, error) { return c.InvalidatePattern("dir*/*") }, 2, "dir.x dir/sub/b other/dir/a "},
		{"patterns", func(c *FS) (int, error) { return c.InvalidatePattern("**/a", "*.x") }, 4, "dir/sub/b "},
		{"clear", func(c *FS) (int, error) { c.Clear(); return 5, nil }, 5, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newFS(t, newMemFS(files), Options{Trust: Forever, Shards: 1})
			for name, data := range files {
				require.Equal(t, data, readFile(t, c, name))
			}
			n, err := tt.do(c)
			require.NoError(t, err)
			require.Equal(t, tt.want, n)
			require.Equal(t, tt.stays, cached(c))
			require.EqualValues(t, tt.want, c.Stats().Files.Evictions["invalidated"])
		})
	}
	_, err := newFS(t, newMemFS(nil), Options{}).InvalidatePattern("[")
	require.Error(t, err)
}

// TestInvalidateShowsNewFiles: a file that is new is in the listing after each way to
// invalidate it.
func TestInvalidateShowsNewFiles(t *testing.T) {
	for name, do := range map[string]func(c *FS){
		"name":    func(c *FS) { c.Invalidate("d/new") },
		"prefix":  func(c *FS) { c.Invalidate("d/new/") },
		"above":   func(c *FS) { c.Invalidate("d/") },
		"pattern": func(c *FS) { _, _ = c.InvalidatePattern("**/new") },
		"clear":   func(c *FS) { c.Clear() },
	} {
		t.Run(name, func(t *testing.T) {
			m := newMemFS(map[string]string{"d/a": "1"})
			c := newFS(t, m, Options{Trust: Forever})
			for want := range 2 {
				entries, err := c.ReadDir("d")
				require.NoError(t, err)
				require.Len(t, entries, want+1)
				m.put("d/new", "2")
				do(c)
			}
		})
	}
}

func TestDefectNeverEvicts(t *testing.T) {
	m := newMemFS(nil)
	c := newFS(t, m, Options{MaxBytes: 100 << 10, Shards: 1})
	for i := range 1000 {
		name := fmt.Sprint("f", i)
		m.put(name, strings.Repeat("x", 1024))
		readFile(t, c, name)
	}
	s := c.Stats().Files
	require.LessOrEqual(t, s.Bytes, int64(100<<10))
	require.EqualValues(t, 1000-s.Entries, s.Evictions["bytes"])
}

func TestDefectRaces(t *testing.T) {
	files := map[string]string{}
	for i := range 20 {
		files[fmt.Sprint("d/f", i)] = strings.Repeat("x", 100*i)
	}
	m := newMemFS(files)
	c := newFS(t, m, Options{MaxEntries: 10})
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 1000 {
				name := fmt.Sprint("d/f", (i*7+g)%20)
				switch i % 7 {
				case 0:
					m.put(name, strings.Repeat("y", 100*((i*7+g)%20)))
				case 1:
					c.Invalidate(name)
				case 2:
					_, _ = c.ReadDir("d")
				default:
					data, err := c.ReadFile(name)
					if err != nil || len(data) != len(files[name]) {
						t.Error(name, len(data), err)
					}
				}
			}
		})
	}
	wg.Wait()
	requireStats(t, c.Stats().Files)
}

// What is proven.

func TestOnlyWholeFilesAreCached(t *testing.T) {
	data := strings.Repeat("0123456789", 200)
	t.Run("short reads", func(t *testing.T) {
		m := newMemFS(map[string]string{"f": data})
		m.short = 7
		c := newFS(t, m, Options{})
		for range 2 {
			require.Equal(t, data, readFile(t, c, "f"))
		}
		require.EqualValues(t, 1, c.Stats().Files.Hits)
	})
	t.Run("read fails", func(t *testing.T) {
		m := newMemFS(map[string]string{"f": data})
		m.short = 100
		reads := 0
		m.setFault(func(op, name string) error {
			if reads++; op == "read" && reads == 10 {
				return errors.New("disk")
			}
			return nil
		})
		c := newFS(t, m, Options{Trust: Forever})
		_, err := c.ReadFile("f")
		require.ErrorContains(t, err, "disk")
		require.Zero(t, c.Stats().Files.Inserted)
		require.Equal(t, data, readFile(t, c, "f"))
	})
	for _, lie := range []int64{-5, 5, 5000} {
		t.Run(fmt.Sprint("size wrong by ", lie), func(t *testing.T) {
			m := newMemFS(map[string]string{"f": data})
			m.files["f"].lies = lie
			c := newFS(t, m, Options{Trust: Forever})
			for range 2 {
				require.Equal(t, data, readFile(t, c, "f"))
			}
			s := c.Stats().Files
			require.Zero(t, s.Inserted)
			require.EqualValues(t, 2, s.NotCached)
		})
	}
	t.Run("changed while read", func(t *testing.T) {
		m := newMemFS(map[string]string{"f": data})
		once := sync.Once{}
		m.setFault(func(op, name string) error {
			if op == "read" {
				once.Do(func() { m.put("f", data+"x") })
			}
			return nil
		})
		c := newFS(t, m, Options{Trust: Forever})
		readFile(t, c, "f")
		require.Equal(t, data+"x", readFile(t, c, "f"))
		require.EqualValues(t, 1, c.Stats().Files.Inserted)
	})
	t.Run("no progress", func(t *testing.T) {
		m := newMemFS(map[string]string{"f": data})
		_, err := newFS(t, stuckFS{m}, Options{}).ReadFile("f")
		require.Equal(t, &fs.PathError{Op: "read", Path: "f", Err: io.ErrNoProgress}, err)
	})
}

type stuckFile struct{ fs.File }

func (stuckFile) Read([]byte) (int, error) { return 0, nil }

type stuckFS struct{ fs.FS }

func (s stuckFS) Open(name string) (fs.File, error) {
	f, err := s.FS.Open(name)
	return stuckFile{f}, err
}

func TestFilesWithoutTimes(t *testing.T) {
	for _, trust := range []time.Duration{0, Forever} {
		m := &memFS{files: map[string]*memInfo{}, timeless: true}
		m.put("f", "x")
		c := newFS(t, m, Options{Trust: trust})
		for range 3 {
			require.Equal(t, "x", readFile(t, c, "f"))
		}
		require.Equal(t, trust == 0, m.opens.Load() == 3)
		require.Equal(t, trust == 0, c.Stats().Files.Entries == 0)
	}
}

func TestTrustEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemFS(map[string]string{"f": "old", "d/a": ""})
		c := newFS(t, m, Options{Trust: time.Minute})
		look := func() string {
			data, err := c.ReadFile("f")
			require.NoError(t, err)
			entries, err := c.ReadDir("d")
			require.NoError(t, err)
			i, err := c.Stat("f")
			require.NoError(t, err)
			return fmt.Sprintf("%s %d %d", data, len(entries), i.Size())
		}
		require.Equal(t, "old 1 3", look())
		m.put("f", "newer")
		m.put("d/b", "")
		time.Sleep(time.Minute)
		require.Equal(t, "old 1 3", look())
		time.Sleep(time.Nanosecond)
		require.Equal(t, "newer 2 5", look())
		time.Sleep(time.Minute + 1)
		opens := m.opens.Load()
		require.Equal(t, "newer 2 5", look())
		require.Equal(t, opens, m.opens.Load(), "it is checked, not read")
		checks := c.Stats().Files.Checks
		require.Equal(t, "newer 2 5", look())
		require.Equal(t, checks, c.Stats().Files.Checks, "the check begins another interval")
	})
}

func TestTTLOfOneEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemFS(map[string]string{"short": "", "default": "", "never": ""})
		c := newFS(t, m, Options{Trust: Forever, TTL: time.Minute, TTLOf: func(name string, i fs.FileInfo) time.Duration {
			require.Equal(t, name, i.Name())
			return map[string]time.Duration{"short": time.Second, "never": -1}[name]
		}})
		for i, want := range []int64{3, 2, 1} {
			for name := range m.files {
				if name != "." && i == 0 {
					readFile(t, c, name)
				}
			}
			s := c.Stats().Files
			require.Equal(t, want, s.Entries)
			require.EqualValues(t, i, s.Evictions["expired"])
			time.Sleep([]time.Duration{time.Second, time.Hour, 0}[i])
		}
	})
}

// TestReadIsNotOlderThanTheCall: a caller that joins a load that began before a write
// does not get the content from before the write.
func TestReadIsNotOlderThanTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemFS(map[string]string{"f": "old"})
		m.setFault(func(op, name string) error {
			if op == "read" {
				time.Sleep(time.Second)
			}
			return nil
		})
		c := newFS(t, m, Options{})
		go c.ReadFile("f")
		synctest.Wait()
		m.put("f", "new")
		for range 5 {
			go func() {
				data, err := c.ReadFile("f")
				require.NoError(t, err)
				require.Equal(t, "new", string(data))
			}()
		}
		time.Sleep(time.Minute)
		require.EqualValues(t, 2, m.opens.Load(), "they share one load")

		// The same with a file that is new: the error is older than the call.
		m.setFault(func(op, name string) error {
			if op == "open" {
				defer time.Sleep(time.Second)
				return fs.ErrNotExist
			}
			return nil
		})
		go c.ReadFile("g")
		synctest.Wait()
		m.put("g", "there")
		m.setFault(nil)
		data, err := c.ReadFile("g")
		require.NoError(t, err)
		require.Equal(t, "there", string(data))
	})
}

func TestInvalidateDuringALoad(t *testing.T) {
	m := newMemFS(map[string]string{"f": "old"})
	c := newFS(t, m, Options{Trust: Forever})
	once := sync.Once{}
	m.setFault(func(op, name string) error {
		if op == "stat" { // the last step of the load
			once.Do(func() { m.put("g", ""); c.Invalidate("f") })
		}
		return nil
	})
	readFile(t, c, "f")
	require.Zero(t, c.Stats().Files.Entries)
}

func TestLargeFilesPass(t *testing.T) {
	large := strings.Repeat("x", 3000)
	for _, opts := range []Options{{MaxBytes: 3000, Shards: 1}, {MaxFileSize: 2999}, {MaxBytes: 6000, Shards: 2}} {
		m := newMemFS(map[string]string{"large": large, "small": "x"})
		c := newFS(t, m, opts)
		for range 2 {
			require.Equal(t, large, readFile(t, c, "large"))
			f, err := c.Open("large")
			require.NoError(t, err)
			data, err := io.ReadAll(f)
			require.NoError(t, err)
			require.Equal(t, large, string(data))
			readFile(t, c, "small")
		}
		s := c.Stats().Files
		require.EqualValues(t, 1, s.Entries)
		require.EqualValues(t, 1, s.Hits)
		require.Zero(t, s.TooLarge, "it is not read only to be dropped")
	}
}

// TestFirm says which times show each later change.
func TestFirm(t *testing.T) {
	now := time.Unix(10_000, 500)
	for _, tt := range []struct {
		mtime, ctime time.Duration // 0 is none
		want         bool
	}{
		{-time.Hour, 0, true},
		{-2 * time.Second, 0, true},
		{-2*time.Second + 1, 0, false},
		{time.Hour, 0, false},
		{-time.Hour, -time.Second, false}, // set back
		{time.Hour, -time.Hour, true},     // set forward
		{0, 0, false},
	} {
		var id fsinfo.Identity
		if tt.mtime != 0 {
			id.ModTime = now.Add(tt.mtime).UnixNano()
		}
		if tt.ctime != 0 {
			id.ChangeTime = now.Add(tt.ctime).UnixNano()
		}
		require.Equal(t, tt.want, firm(id, now), "%+v", tt)
	}
}

// TestListingThatChanges: a listing that changes while it is read is not cached.
func TestListingThatChanges(t *testing.T) {
	m := newMemFS(map[string]string{"d/a": ""})
	c := newFS(t, m, Options{Trust: Forever})
	once := sync.Once{}
	m.setFault(func(op, name string) error {
		if op == "stat" {
			once.Do(func() { m.put("d/b", "") })
		}
		return nil
	})
	for want := range 2 {
		entries, err := c.ReadDir("d")
		require.NoError(t, err)
		require.Len(t, entries, want+1)
	}
}

// TestTrustOfWhatCannotBeCompared: trust of a file that cannot be compared ends with the interval; then the file is read again.
func TestTrustOfWhatCannotBeCompared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memFS{files: map[string]*memInfo{}, timeless: true}
		m.put("f", "old")
		c := newFS(t, m, Options{Trust: time.Minute})
		require.Equal(t, "old", readFile(t, c, "f"))
		m.put("f", "new") // the same size
		require.Equal(t, "old", readFile(t, c, "f"))
		time.Sleep(time.Minute + 1)
		require.Equal(t, "new", readFile(t, c, "f"))
		require.EqualValues(t, 1, c.Stats().Files.Evictions["expired"])
	})
}

// Whose memory it is.

func TestReadFileIsTheCallers(t *testing.T) {
	c := newFS(t, newMemFS(map[string]string{"f": "data"}), Options{})
	data, err := c.ReadFile("f")
	require.NoError(t, err)
	copy(data, "XXXX")
	require.Equal(t, "data", readFile(t, c, "f"))
	f, err := c.Open("f")
	require.NoError(t, err)
	_, err = io.Copy(scribbler{}, f)
	require.NoError(t, err)
	require.Equal(t, "data", readFile(t, c, "f"))
	entries, err := c.ReadDir(".")
	require.NoError(t, err)
	entries[0] = nil
	entries, err = c.ReadDir(".")
	require.NoError(t, err)
	require.NotNil(t, entries[0])
	view, err := c.View("f")
	require.NoError(t, err)
	again, err := c.View("f")
	require.NoError(t, err)
	require.Same(t, &view[0], &again[0])
}

type scribbler struct{}

func (scribbler) Write(p []byte) (int, error) { copy(p, "XXXX"); return len(p), nil }

// TestOpenFileKeepsItsState: an open file keeps its state, also when it is evicted and when the file changes.
func TestOpenFileKeepsItsState(t *testing.T) {
	m := newMemFS(map[string]string{"f": "old"})
	c := newFS(t, m, Options{})
	f, err := c.Open("f")
	require.NoError(t, err)
	m.put("f", "newer")
	c.Clear()
	require.Equal(t, "newer", readFile(t, c, "f"))
	i, err := f.Stat()
	require.NoError(t, err)
	require.EqualValues(t, 3, i.Size())
	data, err := io.ReadAll(f)
	require.NoError(t, err)
	require.Equal(t, "old", string(data))
	require.NoError(t, f.Close())
	_, err = f.Read(make([]byte, 1))
	require.ErrorIs(t, err, fs.ErrClosed)
	require.ErrorIs(t, f.Close(), fs.ErrClosed)
}

// The directory.

func TestNothingOutsideIsReached(t *testing.T) {
	if runtime.GOOS == "windows" || runtime.GOOS == "plan9" {
		t.Skip("a test may not make symbolic links on Windows, and Plan 9 has none")
	}
	outside := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("s"), 0o644))
	dir := t.TempDir()
	require.NoError(t, os.Symlink(filepath.Join(outside, "secret"), filepath.Join(dir, "link")))
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "d")))
	c, err := NewDir(dir, Options{})
	require.NoError(t, err)
	defer c.Close()
	for _, name := range []string{"link", "d/secret", "d", "../x", "/etc/passwd"} {
		_, err := c.ReadFile(name)
		require.Error(t, err, name)
		_, err = c.Open(name)
		require.Error(t, err, name)
		_, err = c.Stat(name)
		require.Error(t, err, name)
	}
}

// TestDirRefusesNames: dirFS refuses names that no file of the system has. A backslash does
// not separate names in an fs.FS, so on Windows dirFS must not open d/f as d\f too.
func TestDirRefusesNames(t *testing.T) {
	dir := t.TempDir()
	d, err := newDirFS(dir)
	require.NoError(t, err)
	defer d.Close()
	_, err = d.WriteFile("d/f", nil)
	require.NoError(t, err)
	names := []string{"f\x00"}
	if runtime.GOOS == "windows" {
		names = append(names, `d\f`, "d/f:stream", "NUL")
	}
	for _, name := range names {
		for op, call := range map[string]func() error{
			"open":     func() error { _, err := d.Open(name); return err },
			"stat":     func() error { _, err := d.Stat(name); return err },
			"lstat":    func() error { _, err := d.Lstat(name); return err },
			"readlink": func() error { _, err := d.ReadLink(name); return err },
			"write":    func() error { _, err := d.WriteFile(name, nil); return err },
			"remove":   func() error { return d.Remove(name) },
		} {
			require.Equal(t, &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}, call())
		}
	}
}

func TestOptionsRefused(t *testing.T) {
	for _, opts := range []Options{{MaxBytes: -1}, {MaxEntries: -1}, {MaxFileSize: -1}, {MaxMetaBytes: -1}, {TTL: -1}, {Trust: -1},
		{Shards: -1}, {Policy: -1}, {Policy: Hybrid + 1}, {Policy: TTL}} {
		_, err := New(newMemFS(nil), opts)
		require.Error(t, err, "%+v", opts)
		_, err = NewDir(t.TempDir(), opts)
		require.Error(t, err, "%+v", opts)
	}
	_, err := New(nil, Options{})
	require.Error(t, err)
	_, err = NewDir(filepath.Join(t.TempDir(), "no"), Options{})
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestStatsAsJSON(t *testing.T) {
	c := newFS(t, newMemFS(map[string]string{"f": "x"}), Options{})
	readFile(t, c, "f")
	c.Invalidate("f")
	data, err := json.Marshal(c.Stats())
	require.NoError(t, err)
	require.Contains(t, string(data), `"evictions":{"bytes":0,"changed":0,"entries":0,"expired":0,"invalidated":1,"replaced":0}`)
	require.True(t, bytes.HasPrefix(data, []byte(`{"files":{"hits":0,"misses":1,`)), string(data))
}

// TestJoinedLoadIsCompared: a call that waits for an earlier load gets nothing older than the
// call, unless the result is trusted.
func TestJoinedLoadIsCompared(t *testing.T) {
	for _, tt := range []struct {
		name     string
		trust    time.Duration
		timeless bool
		want     string
	}{
		{"compared", 0, false, "new"},
		{"not comparable", 0, true, "new"},
		{"trusted", time.Minute, false, "old"},
		{"trusted for as long as the load takes", 10 * time.Second, false, "old"},
		{"trusted for less than the load takes", 10*time.Second - 1, false, "new"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMemFS(nil)
				m.timeless = tt.timeless
				m.put("f", "old")
				slow := true
				// TTLOf is called after the file was read and compared.
				c := newFS(t, m, Options{Trust: tt.trust, TTLOf: func(string, fs.FileInfo) time.Duration {
					if slow {
						slow = false
						time.Sleep(10 * time.Second)
					}
					return 0
				}})
				go c.ReadFile("f")
				time.Sleep(5 * time.Second)
				m.put("f", "new")
				require.Equal(t, tt.want, readFile(t, c, "f"))
				require.EqualValues(t, 1, c.Stats().Files.Joined)
			})
		})
	}
}

// TestJoinedLoadThatFails: the error of a load that began before a call is not the call's.
func TestJoinedLoadThatFails(t *testing.T) {
	for _, trust := range []time.Duration{0, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			m := newMemFS(map[string]string{"f": "x"})
			failed := false
			m.setFault(func(op, name string) error {
				if op == "open" && !failed {
					failed = true
					time.Sleep(10 * time.Second)
					return errStore
				}
				return nil
			})
			c := newFS(t, m, Options{Trust: trust})
			go c.ReadFile("f")
			time.Sleep(5 * time.Second)
			_, err := c.ReadFile("f")
			require.Equal(t, trust != 0, errors.Is(err, errStore))
		})
	}
}

// TestNegativeSize: a source that does not know the size is read, and not cached.
func TestNegativeSize(t *testing.T) {
	m := newMemFS(map[string]string{"f": "data"})
	m.files["f"].lies = -5
	c := newFS(t, m, Options{Trust: Forever})
	require.Equal(t, "data", readFile(t, c, "f"))
	require.Zero(t, c.Stats().Files.Entries)
}

// TestSizeThatLies: a size that lies does not defeat MaxFileSize. Open reads little more than MaxFileSize, even of a file without an end.
func TestSizeThatLies(t *testing.T) {
	for _, size := range []int64{-1, 0, 10, 1 << 10} {
		source := &endless{size: size}
		c := newFS(t, source, Options{MaxFileSize: 1 << 10, Trust: Forever})
		f, err := c.Open("f")
		require.NoError(t, err)
		require.IsType(t, &endless{}, f, "the source's own")
		require.LessOrEqual(t, source.read, int64(4<<10))
		require.Zero(t, c.Stats().Files.Entries)
	}
	// Results read it whole, and do not believe what it would take.
	source := &endless{size: 1 << 60, end: 100}
	c := newFS(t, source, Options{})
	r, err := NewResults(c, ResultOptions[int]{}, func(f File) (int, error) { return len(f.Data), nil })
	require.NoError(t, err)
	n, err := r.Load("f")
	require.NoError(t, err)
	require.Equal(t, 100, n)
}

// endless is a source of one file, which lies about its size.
type endless struct {
	size, end, read int64
}

func (e *endless) Open(string) (fs.File, error) { e.read = 0; return e, nil }
func (e *endless) Stat() (fs.FileInfo, error) {
	return &memInfo{name: "f", lies: e.size, mtime: time.Unix(1, 0)}, nil
}
func (e *endless) Close() error { return nil }
func (e *endless) Read(p []byte) (int, error) {
	if e.read > 1<<20 {
		return 0, errors.New("it is read on and on")
	}
	if e.end > 0 {
		p = p[:min(int64(len(p)), e.end-e.read)]
		if len(p) == 0 {
			return 0, io.EOF
		}
	}
	e.read += int64(len(p))
	return len(p), nil
}

// TestReadAllInSteps: if readAll allocates memory in steps, it returns the whole content.
func TestReadAllInSteps(t *testing.T) {
	for _, size := range []int{believed, believed + 1, 2*believed + 77} {
		data, err := readAll(iotest.DataErrReader(io.LimitReader(rand.New(rand.NewSource(1)), int64(size))), int64(size), int64(size))
		require.NoError(t, err)
		require.Len(t, data, size)
		require.LessOrEqual(t, cap(data), size+1<<16)
		want := make([]byte, 1000)
		_, err = io.ReadFull(rand.New(rand.NewSource(1)), want)
		require.NoError(t, err)
		require.Equal(t, want, data[:1000])
	}
	data, err := readAll(io.LimitReader(&countedReader{}, believed+1), 1<<50, 1<<60)
	require.NoError(t, err)
	require.Len(t, data, believed+1)
	require.LessOrEqual(t, cap(data), 2*believed+1<<16, "a size that lies is not believed")
	data, err = readAll(strings.NewReader("12345"), 2, 5)
	require.NoError(t, err)
	require.Equal(t, "12345", string(data))
	_, err = readAll(strings.NewReader("123456"), 2, 5)
	require.Equal(t, errLonger, err)
}

// TestReadAllOfAKnownSize: a file of the size in its metadata takes one read for its content, one for its end, and the memory of its content.
func TestReadAllOfAKnownSize(t *testing.T) {
	for _, size := range []int64{1, 4096, 5000} {
		r := strings.NewReader(strings.Repeat("x", int(size)))
		calls := 0
		_, err := readAll(readFunc(func(p []byte) (int, error) { calls++; return r.Read(p) }), size, 1<<20)
		require.NoError(t, err)
		require.Equal(t, 2, calls)
		var content []byte
		one := testing.AllocsPerRun(100, func() { content = slices.Grow([]byte(nil), int(size)) }) // with -race it is more than one
		require.Equal(t, one, testing.AllocsPerRun(100, func() {
			_, _ = r.Seek(0, io.SeekStart)
			content, _ = readAll(r, size, 1<<20)
		}))
		require.Len(t, content, int(size))
	}
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// TestMemoryIsCounted: the heap does not exceed what the entries count, whatever the size classes of the contents.
func TestMemoryIsCounted(t *testing.T) {
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	for _, size := range []int{100, 1100, 4097, 33_000} {
		m := newMemFS(map[string]string{"f": strings.Repeat("x", size)})
		before := heap()
		c := newFS(t, linkedEverywhere{m}, Options{MaxBytes: 4 << 20, Shards: 1, Store: m})
		for i := range 8 << 20 / (size + 512) {
			_, err := c.View(fmt.Sprintf("some/directory/file%06d", i))
			require.NoError(t, err)
		}
		s := c.Stats().Files
		require.NotZero(t, s.Evictions["bytes"])
		require.LessOrEqual(t, heap()-before, s.Bytes+100<<10, "%d bytes", size)
		require.Greater(t, s.Bytes, int64(4<<20-50_000), "the room is used")
		runtime.KeepAlive(c)

		require.NoError(t, c.WriteFile("g", make([]byte, size)))
		h, ok := c.data.find("g")
		require.True(t, ok)
		require.Equal(t, int64(cap(h.value.data))+1+entryOverhead, c.data.shards[0].entries["g"].cost)
	}
	// The metadata of the system, which Sys keeps.
	c, err := NewDir(warmTree(t, map[string]string{"f": "x"}), Options{Trust: Forever})
	require.NoError(t, err)
	defer c.Close()
	readFile(t, c, "f")
	require.EqualValues(t, 8+1+entryOverhead+sysMemory, c.Stats().Files.Bytes)
	data, err := c.View("f")
	require.NoError(t, err)
	require.Equal(t, 1, cap(data), "what a caller appends is no part of the cache")
}

// linkedEverywhere is a source in which each name but g leads to the file f.
type linkedEverywhere struct{ *memFS }

func (l linkedEverywhere) Open(string) (fs.File, error)     { return l.memFS.Open("f") }
func (l linkedEverywhere) Stat(string) (fs.FileInfo, error) { return l.memFS.Stat("f") }

// TestStatThatFails: if a stat fails once, the entry is not served then, and is not lost.
func TestStatThatFails(t *testing.T) {
	m := newMemFS(map[string]string{"f": "x", "g": "y"})
	c := newFS(t, m, Options{})
	readFile(t, c, "f")
	m.failing("stat", "open")
	_, err := c.ReadFile("f")
	require.ErrorIs(t, err, errStore)
	m.setFault(nil)
	opens := m.opens.Load()
	require.Equal(t, "x", readFile(t, c, "f"))
	require.Equal(t, opens, m.opens.Load())
	s := c.Stats().Files
	require.EqualValues(t, 1, s.Hits)
	require.EqualValues(t, 2, s.Checks)
	m.delete("f")
	_, err = c.ReadFile("f")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.Zero(t, c.Stats().Files.Entries)
}

// TestPatternsThatMatchNothing: patterns that match nothing are refused.
func TestPatternsThatMatchNothing(t *testing.T) {
	c := newFS(t, newMemFS(map[string]string{"a.txt": "", "d/b.txt": ""}), Options{})
	for _, p := range []string{"/*.txt", "d/", "", "./*.txt", "d//b.txt", "../*", "d/../a.txt", "d/./b.txt", "["} {
		_, err := c.InvalidatePattern("*.txt", p)
		require.ErrorIs(t, err, path.ErrBadPattern, p)
		for _, opts := range []WarmOptions{{Include: []string{p}}, {Exclude: []string{p}}, {First: []string{p}}} {
			_, err = c.Warm(t.Context(), opts)
			require.ErrorIs(t, err, path.ErrBadPattern, p)
		}
	}
	for _, p := range []string{".", "*.txt", "**", "d/**", "{a,d/b}.txt", "[/]x", `\./a`, "...", ".*"} {
		_, err := c.InvalidatePattern(p)
		require.NoError(t, err, p)
	}
}

// TestTrustBeginsWithTheComparison: the interval of trust begins when the comparison begins, not when it ends.
func TestTrustBeginsWithTheComparison(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemFS(map[string]string{"f": "old"})
		c := newFS(t, m, Options{Trust: 15 * time.Second})
		readFile(t, c, "f")
		time.Sleep(16 * time.Second)
		m.setFault(func(op, _ string) error {
			if op == "stat" {
				defer time.Sleep(10 * time.Second)
			}
			return nil
		})
		readFile(t, c, "f") // compared within 10 seconds
		require.EqualValues(t, 1, c.Stats().Files.Checks)
		time.Sleep(5 * time.Second)
		readFile(t, c, "f")
		require.EqualValues(t, 1, c.Stats().Files.Checks)
		time.Sleep(time.Nanosecond)
		readFile(t, c, "f")
		require.EqualValues(t, 2, c.Stats().Files.Checks)
	})
}

// TestFirmWhenItBegan: a file that was young when a read or a write of it began may have changed in the same step of the clock, however
// long the read or the write took.
func TestFirmWhenItBegan(t *testing.T) {
	for _, op := range []string{"open", "written"} {
		synctest.Test(t, func(t *testing.T) {
			m := newMemFS(map[string]string{"f": "x"})
			m.setFault(func(o, name string) error {
				if o == op {
					m.mu.Lock()
					m.files["f"].mtime = time.Now()
					m.mu.Unlock()
					time.Sleep(time.Minute)
				}
				return nil
			})
			c := newFS(t, m, Options{Store: m})
			if op == "open" {
				readFile(t, c, "f")
			} else {
				require.NoError(t, c.WriteFile("f", []byte("y")))
			}
			require.Zero(t, c.Stats().Files.Entries)
		})
	}
}

// TestInvalidateOneName: a name that is invalidated is forgotten as a file, as a directory with its listing, and in the listing above it, and
// nothing else is.
func TestInvalidateOneName(t *testing.T) {
	m := newMemFS(map[string]string{"d/e/f": "x", "d/g": "y"})
	c := newFS(t, m, Options{Trust: Forever})
	calls := func() (made []string) {
		m.setFault(func(op, name string) error {
			if op != "read" {
				made = append(made, op+" "+name)
			}
			return nil
		})
		defer m.setFault(nil)
		for _, dir := range []string{".", "d", "d/e"} {
			_, err := c.ReadDir(dir)
			require.NoError(t, err)
			_, err = c.Stat(dir)
			require.NoError(t, err)
		}
		for _, name := range []string{"d/e/f", "d/g"} {
			_, err := c.Stat(name)
			require.NoError(t, err)
			readFile(t, c, name)
		}
		return made
	}
	listing := func(dir string) []string { return []string{"open " + dir, "stat " + dir} } // the second proves that it has not changed
	calls()
	require.Empty(t, calls())
	require.Zero(t, c.Invalidate("d"))
	require.Equal(t, append(listing("."), append(listing("d"), "stat d")...), calls())
	require.Equal(t, 1, c.Invalidate("d/g"))
	require.Equal(t, append(listing("d"), "stat d/g", "open d/g", "stat d/g"), calls())
	require.Equal(t, 1, c.Invalidate("d/e/"))
	require.Equal(t, append(listing("d"), append(listing("d/e"), "stat d/e", "stat d/e/f", "open d/e/f", "stat d/e/f")...), calls())
}

// TestMetadataIsCounted: a listing counts as its name, its entries and their names; metadata as its name.
func TestMetadataIsCounted(t *testing.T) {
	m := newMemFS(map[string]string{"dir/a": "", "dir/bcd": ""})
	c := newFS(t, m, Options{Trust: Forever})
	_, err := c.Stat("dir/a")
	require.NoError(t, err)
	stat := int64(len("dir/a") + entryOverhead)
	require.Equal(t, stat, c.Stats().Metadata.Bytes)
	_, err = c.ReadDir("dir")
	require.NoError(t, err)
	require.Equal(t, stat+int64(len("dir")+entryOverhead+2*dirEntryMemory+2*(1+3)+2*len("dir")), c.Stats().Metadata.Bytes)
}

// TestInvalidateDropsNoWrites: a name that is invalidated keeps writes of others, which other shards have, in the cache.
func TestInvalidateDropsNoWrites(t *testing.T) {
	c := newFS(t, newMemFS(nil), Options{Shards: 8})
	c.Invalidate("a", "b/c")
	drops := uint64(0)
	for _, s := range c.data.shards {
		drops += s.drops.Load()
	}
	require.EqualValues(t, 2, drops)
}

// TestNames says which names are below a directory, and by which name the cache knows a file.
func TestNames(t *testing.T) {
	for _, tt := range []struct {
		name, prefix string
		want         bool
	}{{"a", ".", true}, {".", ".", true}, {"a", "a", true}, {"a/b", "a", true}, {"a/b/c", "a", true}, {"ab", "a", false}, {"a", "a/b", false}, {"b/b", "a", false}, {"a.b", "a", false}, {".", "a", false}} {
		require.Equal(t, tt.want, below(tt.name, tt.prefix), "%+v", tt)
	}
	for name, want := range map[string]string{"": ".", "/": ".", ".": ".", "a": "a", "/a/": "a", "a//b": "a/b", "./a": "a", "a/../b": "b", "../a": "a", "..": "."} {
		require.Equal(t, want, clean(name), "%q", name)
	}
}

// TestOptionsAtTheirBounds: WriteBack may use all of MaxBytes, and by default a quarter.
func TestOptionsAtTheirBounds(t *testing.T) {
	m := newMemFS(nil)
	c := newFS(t, m, Options{Store: m, Write: WriteBack, MaxBytes: 1000, MaxDirtyBytes: 1000, Shards: 1})
	require.Zero(t, c.data.maxCost())
	c = newFS(t, m, Options{Store: m, Write: WriteBack, MaxBytes: 1000, Shards: 1})
	require.EqualValues(t, 750, c.data.maxCost())
	c = newFS(t, m, Options{MaxMetaBytes: 100, MaxBytes: 1000, MaxEntries: 3, Shards: 1})
	require.EqualValues(t, 1000, c.data.maxCost())
	require.EqualValues(t, 100, c.meta.maxCost())
	require.Equal(t, 3, c.data.shards[0].maxEntries)
	require.Equal(t, math.MaxInt, c.meta.shards[0].maxEntries)
	c = newFS(t, m, Options{Shards: 1})
	require.EqualValues(t, defaultMaxBytes, c.data.maxCost())
	require.EqualValues(t, defaultMaxMetaBytes, c.meta.maxCost())
	require.Equal(t, math.MaxInt, c.data.shards[0].maxEntries)
	for _, opts := range []Options{{}, {MaxBytes: 1, MaxEntries: 1, MaxFileSize: 1, MaxMetaBytes: 1, TTL: 1, Trust: 1, Shards: 1, Policy: TTL}, {Policy: Hybrid, Write: WriteBack}} {
		require.NoError(t, opts.validate())
	}
	for name, opts := range map[string]Options{"MaxBytes is negative": {MaxBytes: -1}, "FlushWorkers is negative": {Write: WriteBack, FlushWorkers: -1}, "Policy 4 is unknown": {Policy: 4}, "Policy -1 is unknown": {Policy: -1},
		"Policy TTL needs": {Policy: TTL}, "Write 3 is unknown": {Write: 3}, "Write -1 is unknown": {Write: -1}, "are for WriteBack": {FlushWorkers: 2}, "is more than MaxBytes": {Write: WriteBack, MaxBytes: 1, MaxDirtyBytes: 2}} {
		require.ErrorContains(t, opts.validate(), name)
	}
	var counts Counts
	require.Zero(t, counts.HitRate())
}

// A stutter is a reader that gives nothing for some reads before each byte.
type stutter struct {
	pause, paused int
	text          string
	read          int // bytes that were asked for
}

func (s *stutter) Read(p []byte) (int, error) {
	s.read += len(p)
	switch {
	case s.text == "":
		return 0, io.EOF
	case s.paused < s.pause:
		s.paused++
		return 0, nil
	}
	s.paused = 0
	p[0], s.text = s.text[0], s.text[1:]
	return 1, nil
}

// TestReadAllOfAStutter: a file may give nothing for 99 reads in a row, however often.
func TestReadAllOfAStutter(t *testing.T) {
	for _, size := range []int64{0, 2, 3, 10} {
		data, err := readAll(&stutter{pause: 99, text: "abc"}, size, 100)
		require.NoError(t, err)
		require.Equal(t, "abc", string(data))
		_, err = readAll(&stutter{pause: 100, text: "abc"}, size, 100)
		require.Equal(t, io.ErrNoProgress, err)
	}
	s := &stutter{text: strings.Repeat("x", 50)}
	_, err := readAll(s, 10, 20)
	require.Equal(t, errLonger, err)
	require.Len(t, s.text, 29, "a byte more than the limit shows that it is longer")
	for _, size := range []int64{-1, 0, 1, 600, 5000} {
		r := &countedReader{}
		_, err := readAll(r, size, 1000)
		require.Equal(t, errLonger, err)
		require.Equal(t, 1001, r.read, "size %d", size)
	}
}

// A countedReader has no end, and counts what it gives.
type countedReader struct{ read int }

func (r *countedReader) Read(p []byte) (int, error) { r.read += len(p); return len(p), nil }

// TestFileOfTheLargestSize: a file that just fits is cached, and one of a byte more is not.
func TestFileOfTheLargestSize(t *testing.T) {
	for _, opts := range []Options{{MaxFileSize: 1024}, {MaxBytes: 1024 + entryOverhead + 1, Shards: 1}} {
		for _, more := range []int{0, 1} {
			m := newMemFS(map[string]string{"f": strings.Repeat("x", 1024+more)})
			c := newFS(t, m, opts)
			readFile(t, c, "f")
			require.EqualValues(t, 1-more, c.Stats().Files.Entries)
			if more == 0 {
				snapshot := snapshotOf(t, m, opts, "f")
				c.Clear()
				n, err := c.readSnapshot(bytes.NewReader(snapshot))
				require.NoError(t, err)
				require.Equal(t, 1, n)
				c.Clear()
				require.EqualValues(t, 1, warm(t, c, WarmOptions{}).Warmed)
			}
		}
	}
}

// A plain source has files without ReadDir, and lists directories by itself.
type plainFS struct{ *memFS }

func (p plainFS) Open(name string) (fs.File, error) {
	f, err := p.memFS.Open(name)
	return struct{ fs.File }{f}, err
}

func (p plainFS) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := p.step("readdir", name); err != nil {
		return nil, err
	}
	f, err := p.memFS.Open(name)
	if err != nil {
		return nil, err
	}
	return f.(fs.ReadDirFile).ReadDir(-1)
}

// TestListingsThatFail: a listing that fails is an error and is not kept, and a file has none.
func TestListingsThatFail(t *testing.T) {
	for _, trust := range []time.Duration{0, Forever} {
		m := newMemFS(map[string]string{"d/b": "", "d/a": "", "f": "x"})
		c := newFS(t, plainFS{m}, Options{Trust: trust})
		for _, op := range []string{"open", "readdir"} {
			m.failing(op)
			_, err := c.ReadDir("d")
			require.ErrorIs(t, err, errStore, op)
			require.Zero(t, c.Stats().Metadata.Entries)
		}
		m.setFault(nil)
		entries, err := c.ReadDir("d")
		require.NoError(t, err)
		require.Len(t, entries, 2)
		require.Equal(t, "a", entries[0].Name())
		for range 2 {
			_, err = c.ReadDir("f")
			require.ErrorContains(t, err, "readdir f: not a directory")
		}
		require.EqualValues(t, 1, c.Stats().Metadata.Entries)
		_, err = c.ReadDir("none")
		require.ErrorIs(t, err, fs.ErrNotExist)
	}
}

// TestOpenOfADirectoryThatCannotBeListed: Open of a directory lists it, and fails if it cannot.
func TestOpenOfADirectoryThatCannotBeListed(t *testing.T) {
	m := newMemFS(map[string]string{"d/a": ""})
	c := newFS(t, plainFS{m}, Options{})
	m.failing("readdir")
	_, err := c.Open("d")
	require.ErrorIs(t, err, errStore)
	m.setFault(nil)
	d, err := c.Open("d")
	require.NoError(t, err)
	require.NoError(t, d.Close())
}

// TestOpenAsksOnce: Open of what is not there asks the source once, and Open of a directory with dirty files once for it and once for its listing.
func TestOpenAsksOnce(t *testing.T) {
	m := newMemFS(map[string]string{"d/a": ""})
	c := newFS(t, m, Options{Store: m, Write: WriteBack, FlushInterval: Forever})
	_, err := c.Open("none")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.EqualValues(t, 1, m.opens.Load())
	require.NoError(t, c.WriteFile("d/b", nil))
	d, err := c.Open("d")
	require.NoError(t, err)
	require.NoError(t, d.Close())
	require.EqualValues(t, 3, m.opens.Load())
	require.NoError(t, c.Close())
}

// TestOpenOfADirectoryThatBecomesAFile: when a file takes the place of a directory during Open, Open returns the file.
func TestOpenOfADirectoryThatBecomesAFile(t *testing.T) {
	m := newMemFS(map[string]string{"d/a": ""})
	opens := 0
	m.setFault(func(op, name string) error {
		if op == "open" && name == "d" {
			if opens++; opens == 2 { // the listing
				m.delete("d/a")
				m.put("d", "x")
			}
		}
		return nil
	})
	f, err := newFS(t, m, Options{}).Open("d")
	require.NoError(t, err)
	data, err := io.ReadAll(f)
	require.NoError(t, err)
	require.Equal(t, "x", string(data))
}

// TestEntriesOfAListing: an entry gives its name, its type and the metadata that its file has now.
func TestEntriesOfAListing(t *testing.T) {
	m := newMemFS(map[string]string{"d/e/f": "", "d/f": "123"})
	entries, err := newFS(t, m, Options{}).ReadDir("d")
	require.NoError(t, err)
	require.Len(t, entries, 2)
	require.True(t, entries[0].IsDir())
	require.Equal(t, fs.ModeDir, entries[0].Type())
	require.False(t, entries[1].IsDir())
	m.put("d/f", "12345")
	info, err := entries[1].Info()
	require.NoError(t, err)
	require.EqualValues(t, 5, info.Size())
	require.Equal(t, "f", info.Name())
}

// TestBadNamesStayHere: a name that is none of an FS is refused before the source is called: not all sources look at names.
func TestBadNamesStayHere(t *testing.T) {
	m := newMemFS(map[string]string{"f": ""})
	c := newFS(t, careless{m, t}, Options{Store: m})
	for _, name := range []string{"", "/f", "../f", "d//f", "f/"} {
		for op, call := range map[string]func() error{
			"open":     func() error { _, err := c.Open(name); return err },
			"read":     func() error { _, err := c.View(name); return err },
			"stat":     func() error { _, err := c.Stat(name); return err },
			"lstat":    func() error { _, err := c.Lstat(name); return err },
			"readlink": func() error { _, err := c.ReadLink(name); return err },
			"readdir":  func() error { _, err := c.ReadDir(name); return err },
		} {
			require.Equal(t, &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}, call())
		}
		_, err := c.ReadFile(name)
		require.ErrorIs(t, err, fs.ErrInvalid)
	}
	require.Zero(t, m.opens.Load()+m.stats.Load())
}

// TestStatErrors: metadata that cannot be had is an error and is not kept. With Trust it has the TTL of its name.
func TestStatErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemFS(map[string]string{"f": "x"})
		c := newFS(t, m, Options{Trust: Forever, TTLOf: func(string, fs.FileInfo) time.Duration { return time.Minute }})
		m.failing("stat")
		_, err := c.Stat("f")
		require.ErrorIs(t, err, errStore)
		m.setFault(nil)
		for range 2 {
			_, err = c.Stat("f")
			require.NoError(t, err)
			_, err = c.ReadDir(".")
			require.NoError(t, err)
		}
		require.EqualValues(t, 2, c.Stats().Metadata.Entries)
		require.EqualValues(t, 2, c.Stats().Metadata.Hits)
		time.Sleep(time.Minute)
		require.Zero(t, c.Stats().Metadata.Entries)
	})
}

// TestJoinedLoadWithoutProof: a call that waits for an earlier load does not get content that is not known to be whole, though the file has not changed.
func TestJoinedLoadWithoutProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemFS(map[string]string{"f": "x"})
		m.files["f"].lies = 1
		m.setFault(func(op, _ string) error {
			if op == "open" {
				time.Sleep(time.Second)
			}
			return nil
		})
		c := newFS(t, m, Options{})
		go c.ReadFile("f")
		synctest.Wait()
		require.Equal(t, "x", readFile(t, c, "f"))
		require.EqualValues(t, 2, m.opens.Load())
	})
}

// TestInvalidateOthersDuringALoad: invalidating other names during a load keeps its file in the cache.
func TestInvalidateOthersDuringALoad(t *testing.T) {
	m := newMemFS(map[string]string{"d/f": "x", "e/g": ""})
	c := newFS(t, m, Options{Trust: Forever})
	m.setFault(func(op, name string) error {
		if op == "read" && name == "d/f" {
			c.Invalidate("e/", "d/g")
			_, err := c.InvalidatePattern("d/g*", "e/**")
			require.NoError(t, err)
		}
		return nil
	})
	readFile(t, c, "d/f")
	require.EqualValues(t, 1, c.Stats().Files.Entries)
}

// TestJoinedLoadOfAnUnchangedFile: a call that waits for an earlier load takes its content if the file has not changed since, however old the load is.
func TestJoinedLoadOfAnUnchangedFile(t *testing.T) {
	for _, trust := range []time.Duration{0, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			m := newMemFS(map[string]string{"f": "x"})
			c := newFS(t, m, Options{Trust: trust})
			time.Sleep(time.Hour)
			m.setFault(func(op, _ string) error {
				if op == "read" || op == "stat" && trust > 0 {
					time.Sleep(time.Second)
				}
				return nil
			})
			go c.ReadFile("f")
			synctest.Wait()
			require.Equal(t, "x", readFile(t, c, "f"))
			require.EqualValues(t, 1, m.opens.Load())
			if trust > 0 { // so it is for metadata, which cannot be compared
				c.Clear()
				stats := m.stats.Load()
				go c.Stat("f")
				synctest.Wait()
				_, err := c.Stat("f")
				require.NoError(t, err)
				require.Equal(t, stats+1, m.stats.Load())
			}
		})
	}
}

// A linkFS is a source with links, of which there are none.
type linkFS struct{ *memFS }

func (l linkFS) Lstat(name string) (fs.FileInfo, error) { return l.Stat(name) }
func (l linkFS) ReadLink(name string) (string, error) {
	return "", &fs.PathError{Op: "readlink", Path: name, Err: fs.ErrInvalid}
}

// TestLstat asks a source that has links each time, once what is dirty below the name is there. For another source it is Stat.
func TestLstat(t *testing.T) {
	m := newMemFS(map[string]string{"f": "x"})
	for source, stats := range map[fs.FS]int64{m: 1, linkFS{m}: 2} {
		m.stats.Store(0)
		c := newFS(t, source, Options{Trust: Forever})
		for range 2 {
			i, err := c.Lstat("f")
			require.NoError(t, err)
			require.EqualValues(t, 1, i.Size())
		}
		require.Equal(t, stats, m.stats.Load())
	}
	c := newFS(t, linkFS{m}, Options{Store: m, Write: WriteBack, FlushInterval: Forever})
	require.NoError(t, c.WriteFile("d/f", nil))
	m.failing("write")
	_, err := c.Lstat("d")
	require.ErrorIs(t, err, errStore)
	_, err = c.Stat("d")
	require.ErrorIs(t, err, errStore)
	_, err = c.Open("d")
	require.ErrorIs(t, err, errStore)
	_, err = c.ReadLink("d/f")
	require.Equal(t, &fs.PathError{Op: "readlink", Path: "d/f", Err: fs.ErrInvalid}, err)
	m.setFault(nil)
	i, err := c.Lstat("d")
	require.NoError(t, err)
	require.True(t, i.IsDir())
	require.NoError(t, c.Close())
}

// TestWithoutTrustNoMetadataIsKept: metadata would have to be compared with itself.
func TestWithoutTrustNoMetadataIsKept(t *testing.T) {
	m := newMemFS(map[string]string{"f": "x"})
	c := newFS(t, m, Options{})
	for range 2 {
		_, err := c.Stat("f")
		require.NoError(t, err)
	}
	require.EqualValues(t, 2, m.stats.Load())
	require.Zero(t, c.Stats().Metadata.Inserted)
}

// A statless source has files whose metadata cannot be had, and counts those that are open.
type statless struct {
	*memFS
	open int
}

type statlessFile struct {
	fs.File
	of *statless
}

func (s *statless) Open(name string) (fs.File, error) {
	f, err := s.memFS.Open(name)
	s.open++
	return statlessFile{f, s}, err
}
func (f statlessFile) Stat() (fs.FileInfo, error) { return nil, errStore }
func (f statlessFile) Close() error               { f.of.open--; return f.File.Close() }

// TestFileWithoutMetadata: a file whose metadata cannot be had is an error, and is closed.
func TestFileWithoutMetadata(t *testing.T) {
	s := &statless{memFS: newMemFS(map[string]string{"f": "x", "d/f": ""})}
	c := newFS(t, s, Options{Trust: Forever})
	_, err := c.ReadFile("f")
	require.ErrorIs(t, err, errStore)
	_, err = c.ReadDir("d")
	require.ErrorIs(t, err, errStore)
	require.Zero(t, s.open)
}

// TestReadsOfWhatIsNoCachedFile: a directory has no content. A file that is too large is read from the source, and only by ReadFile.
func TestReadsOfWhatIsNoCachedFile(t *testing.T) {
	m := newMemFS(map[string]string{"large": "123", "d/f": ""})
	c := newFS(t, m, Options{MaxFileSize: 2})
	for range 2 {
		data, err := c.ReadFile("d")
		require.Equal(t, &fs.PathError{Op: "read", Path: "d", Err: syscall.EISDIR}, err)
		require.Nil(t, data)
	}
	m.failing("read")
	f, err := c.Open("large")
	require.NoError(t, err, "its content is not read")
	require.NoError(t, f.Close())
	_, err = c.ReadFile("large")
	require.ErrorIs(t, err, errStore)
	_, err = c.View("large")
	require.ErrorIs(t, err, errStore)
}

// TestDirOpensFiles: a file of a directory that is too large is one of the system, and is no directory. Another store may take what is written.
func TestDirOpensFiles(t *testing.T) {
	m := newMemFS(nil)
	c, err := NewDir(warmTree(t, map[string]string{"large": "123", "d/f": ""}), Options{MaxFileSize: 2, Store: m})
	require.NoError(t, err)
	defer c.Close()
	f, err := c.Open("large")
	require.NoError(t, err)
	defer f.Close()
	require.IsType(t, &os.File{}, f)
	d, err := c.source.Open("d")
	require.NoError(t, err)
	defer d.Close()
	require.IsType(t, listedDir{}, d)
	for _, n := range []int{-1, 0, 1} { // of temporary files alone, and then with another
		dir := t.TempDir()
		for _, letter := range []string{"A", "B", "C"} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, temporary+strings.Repeat(letter, 26)), nil, 0o600))
		}
		for _, want := range []int{0, 1} {
			d, err := os.Open(dir)
			require.NoError(t, err)
			entries, err := listedDir{d}.ReadDir(n)
			d.Close()
			require.Len(t, entries, want)
			if n <= 0 || want > 0 {
				require.NoError(t, err)
			} else {
				require.Equal(t, io.EOF, err)
			}
			require.NoError(t, os.WriteFile(filepath.Join(dir, "f"), nil, 0o600))
		}
	}
	require.NoError(t, c.WriteFile("g", []byte("x")))
	data, ok := m.get("g")
	require.True(t, ok)
	require.Equal(t, "x", data)
}
