package cache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/fsinfo"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

// oddName has a newline where a name of a file may.
var oddName = map[bool]string{false: "with\nnewline", true: "with space"}[runtime.GOOS == "windows"]

// settledFiles makes all files count as settled.
func settledFiles(t *testing.T) {
	old := fsinfo.Settled
	fsinfo.Settled = -time.Hour
	t.Cleanup(func() { fsinfo.Settled = old })
}

// warmTree makes files in a directory and returns it.
func warmTree(t *testing.T, files map[string]string) string {
	dir := t.TempDir()
	for name, data := range files {
		full := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
		require.NoError(t, os.WriteFile(full, []byte(data), 0o644))
	}
	return dir
}

func warm(t *testing.T, c *FS, opts WarmOptions) WarmReport {
	t.Helper()
	r, err := c.Warm(t.Context(), opts)
	require.NoError(t, err)
	return r
}

// cachedNames returns the names that c holds, the next victim last.
func cachedNames(c *FS) []string {
	var names []string
	for _, h := range c.data.all() {
		names = append(names, h.key)
	}
	return names
}

func TestWarm(t *testing.T) {
	settledFiles(t)
	files := map[string]string{"a.txt": "a", "empty": "", "d/b.txt": strings.Repeat("b", 50_000), "d/e/c.txt": "c", "d/e/f.md": "f", oddName: "n"}
	opened, err := newDirFS(warmTree(t, files))
	require.NoError(t, err)
	defer opened.Close()
	elapsed := time.Duration(0)
	for source, fsys := range map[string]fs.FS{"dir": opened, "memory": newMemFS(files)} {
		for name, tt := range map[string]struct {
			opts    WarmOptions
			want    []string
			missing int64
		}{
			"everything": {WarmOptions{}, []string{"a.txt", "d/b.txt", "d/e/c.txt", "d/e/f.md", "empty", oddName}, 0},
			"pattern":    {WarmOptions{Include: []string{"**/*.txt"}}, []string{"a.txt", "d/b.txt", "d/e/c.txt"}, 0},
			"exclude":    {WarmOptions{Exclude: []string{"d/e"}}, []string{"a.txt", "d/b.txt", "empty", oddName}, 0},
			"list":       {WarmOptions{Files: slices.Values([]string{"d/e/c.txt", "a.txt", "none", oddName})}, []string{"a.txt", "d/e/c.txt", oddName}, 1},
			"directory":  {WarmOptions{Files: slices.Values([]string{"d/e/", "none/"})}, []string{"d/e/c.txt", "d/e/f.md"}, 1},
			"first":      {WarmOptions{First: []string{"d/**", "**/*.txt"}}, []string{"a.txt", "d/b.txt", "d/e/c.txt", "d/e/f.md", "empty", oddName}, 0},
			"first of some": {WarmOptions{First: []string{"d/**"}, Include: []string{"**/*.txt"}},
				[]string{"a.txt", "d/b.txt", "d/e/c.txt"}, 0},
		} {
			t.Run(source+"/"+name, func(t *testing.T) {
				var last WarmReport
				tt.opts.OnProgress = func(r WarmReport) { last = r }
				c := newFS(t, fsys, Options{})
				r := warm(t, c, tt.opts)
				require.Equal(t, last, r)
				names := cachedNames(c)
				slices.Sort(names)
				require.Equal(t, tt.want, names)
				bytes := int64(0)
				for _, name := range tt.want {
					bytes += int64(len(files[name]))
				}
				elapsed += r.Elapsed
				r.Elapsed = 0
				require.Equal(t, WarmReport{Warmed: int64(len(tt.want)), Missing: tt.missing, Bytes: bytes}, r)
				s := c.Stats().Files
				require.Zero(t, s.Misses, "nobody has asked for them")
				require.EqualValues(t, len(tt.want), s.Loads)
				for _, name := range tt.want {
					require.Equal(t, files[name], readFile(t, c, name))
				}
				s = c.Stats().Files
				require.EqualValues(t, len(tt.want), s.Hits)
				requireStats(t, s)
				tt.opts.OnProgress = nil
				r = warm(t, c, tt.opts)
				r.Elapsed = 0
				require.Equal(t, WarmReport{Cached: int64(len(tt.want)), Missing: tt.missing}, r, "a second time reads nothing")
			})
		}
	}
	require.Positive(t, elapsed, "of all, since a clock may stand still for a while")
}

func TestWarmRefuses(t *testing.T) {
	m := newMemFS(map[string]string{"a": "x"})
	m.setFault(func(op, name string) error { t.Error("the source is called: ", op, name); return nil })
	c := newFS(t, m, Options{})
	for _, opts := range []WarmOptions{{Include: []string{"["}}, {Exclude: []string{"["}}, {First: []string{"a", "["}}} {
		_, err := c.Warm(t.Context(), opts)
		require.ErrorContains(t, err, `"["`)
	}
	_, err := c.Warm(t.Context(), WarmOptions{Files: slices.Values([]string{"a"}), First: []string{"a"}})
	require.Error(t, err)
	_, err = c.Warm(t.Context(), WarmOptions{Workers: -1})
	require.ErrorContains(t, err, "cache: WarmOptions.Workers is negative")
}

// TestWarmEvictsNothing: used entries stay, and warming stops when the cache is full. Warmed
// entries are evicted before used ones, in the reverse of the order in which they were warmed.
func TestWarmEvictsNothing(t *testing.T) {
	settledFiles(t)
	files := map[string]string{"used": "u", "new1": "", "new2": ""}
	var names []string
	for i := range 300 {
		names = append(names, fmt.Sprintf("d/%04d", i))
		files[names[i]] = "0123456789"
	}
	for policyName, policy := range policies {
		for _, source := range []string{"dir", "memory"} {
			t.Run(policyName+"/"+source, func(t *testing.T) {
				var fsys fs.FS = newMemFS(files)
				if source == "dir" {
					d, err := newDirFS(warmTree(t, files))
					require.NoError(t, err)
					defer d.Close()
					fsys = d
				}
				c := newFS(t, fsys, Options{Policy: policy, TTL: time.Hour, MaxEntries: 11, Shards: 1})
				require.Equal(t, "u", readFile(t, c, "used"))
				r := warm(t, c, WarmOptions{Files: slices.Values(names), Workers: 1})
				require.True(t, r.Full)
				require.EqualValues(t, 10, r.Warmed)
				require.LessOrEqual(t, r.NotCached, int64(fullAfter+100))
				require.EqualValues(t, 11, c.Stats().Files.Loads, "files without room are not read")
				s := c.Stats().Files
				require.EqualValues(t, 11, s.Entries)
				require.Zero(t, s.Evictions["entries"])
				for _, name := range cachedNames(c)[1:] {
					require.Less(t, name, "d/0064", "the first group has 64 names")
				}
				if policy == TTL {
					return // it evicts by time
				}
				warmed := cachedNames(c)
				require.Equal(t, "used", warmed[0])
				readFile(t, c, "new1")
				readFile(t, c, "new2")
				left := cachedNames(c)
				for _, name := range warmed[:9] {
					require.Contains(t, left, name)
				}
				for _, name := range warmed[9:] {
					require.NotContains(t, left, name)
				}
			})
		}
	}
}

func TestWarmEvicts(t *testing.T) {
	files := map[string]string{}
	for i := range 500 {
		files[fmt.Sprint(i)] = "0123456789"
	}
	c := newFS(t, newMemFS(files), Options{MaxEntries: 10, Shards: 1})
	r := warm(t, c, WarmOptions{Evict: true})
	require.False(t, r.Full)
	require.EqualValues(t, 500, r.Warmed)
	require.EqualValues(t, 490, c.Stats().Files.Evictions["entries"])
}

// TestWarmFirst: if there is not room for all files, those of the first pattern get it.
func TestWarmFirst(t *testing.T) {
	files := map[string]string{}
	for i := range 300 {
		files[fmt.Sprint("a", i)], files[fmt.Sprint("b/x", i)], files[fmt.Sprint("c/y", i)] = "", "", ""
	}
	c := newFS(t, newMemFS(files), Options{MaxEntries: 450, Shards: 1})
	r := warm(t, c, WarmOptions{First: []string{"c/**", "b/*"}})
	require.True(t, r.Full)
	count := map[byte]int{}
	for _, name := range cachedNames(c) {
		count[name[0]]++
	}
	require.Equal(t, map[byte]int{'c': 300, 'b': 150}, count)
}

// TestWarmProvesTheEnd: a file that changes while it is read, that lies about its size, or
// that changed just now is not cached.
func TestWarmProvesTheEnd(t *testing.T) {
	files := map[string]string{"f": "old"}
	m := newMemFS(files)
	m.setFault(func(op, name string) error {
		if op == "read" && name == "f" {
			m.put("f", "new!")
		}
		return nil
	})
	c := newFS(t, m, Options{Trust: Forever})
	require.EqualValues(t, 1, warm(t, c, WarmOptions{}).NotCached)
	m.setFault(nil)
	require.Equal(t, "new!", readFile(t, c, "f"))
	m.files["f"].lies = 1
	c = newFS(t, m, Options{Trust: Forever})
	require.EqualValues(t, 1, warm(t, c, WarmOptions{}).NotCached)

	dir := warmTree(t, files)
	for _, trust := range []time.Duration{0, Forever} {
		c, err := NewDir(dir, Options{Trust: trust})
		require.NoError(t, err)
		r := warm(t, c, WarmOptions{})
		require.Equal(t, trust == 0, r.NotCached == 1, "it changed just now")
		require.Equal(t, trust != 0, r.Warmed == 1)
		if h, ok := c.data.find("f"); ok {
			require.False(t, h.value.firm, "it is trusted, and cannot be compared")
		}
		require.Equal(t, "old", readFile(t, c, "f"))
		require.NoError(t, c.Close())
	}
}

// TestWarmWithoutTheSize: files of /proc have content and size 0.
func TestWarmWithoutTheSize(t *testing.T) {
	settledFiles(t)
	if _, err := os.Stat("/proc/sys/kernel/ostype"); err != nil {
		t.Skip("only Linux with /proc has files with content and size 0: ", err)
	}
	c, err := NewDir("/proc/sys/kernel", Options{Trust: Forever})
	require.NoError(t, err)
	defer c.Close()
	require.EqualValues(t, 1, warm(t, c, WarmOptions{Files: slices.Values([]string{"ostype"})}).NotCached)
}

// TestWarmEndsWhenTheCacheIsFull: the rest of the tree is not listed.
func TestWarmEndsWhenTheCacheIsFull(t *testing.T) {
	files := map[string]string{}
	for i := range 2000 {
		files[fmt.Sprintf("d%d/f", i)] = ""
	}
	m := newMemFS(files)
	c := newFS(t, m, Options{MaxEntries: 5})
	m.setFault(func(op, name string) error { time.Sleep(100 * time.Microsecond); return nil })
	require.True(t, warm(t, c, WarmOptions{Workers: 1}).Full)
	require.Less(t, m.opens.Load(), int64(1500))
}

// TestWarmPassesBy: Warm passes by files that are too large for the room that is left.
func TestWarmPassesBy(t *testing.T) {
	files := map[string]string{}
	var names []string
	for i := range 150 {
		small, large := fmt.Sprint("small", i), fmt.Sprint("large", i)
		files[small], files[large] = "x", strings.Repeat("x", 100_000)
		names = append(names, small, large)
	}
	c := newFS(t, newMemFS(files), Options{MaxBytes: 100_000 + 2*entryOverhead, Shards: 1})
	r := warm(t, c, WarmOptions{Files: slices.Values(names), Workers: 1})
	require.EqualValues(t, 150, r.Warmed)
	require.False(t, r.Full)
}

func TestLoadAheadOfWhatIsThere(t *testing.T) {
	e := newEngine[*int](limits{maxBytes: 1000, maxEntries: 10})
	load := func() (*int, loaded, error) { return new(int), loaded{cost: 1, keep: true}, nil }
	for _, want := range []aheadResult{aheadCached, aheadWasThere} {
		got, err := e.loadAhead("a", load)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	got, err := e.loadAhead("b", func() (*int, loaded, error) {
		got, err := e.loadAhead("b", load)
		require.Equal(t, aheadWasThere, got)
		require.NoError(t, err)
		require.Equal(t, aheadWasThere, e.add("b", new(int), loaded{}))
		return load()
	})
	require.NoError(t, err)
	require.Equal(t, aheadCached, got)
}

// TestWarmOfADirThatWasReplaced: the names of another directory that has taken the place
// of the one that is open do not bring its content into the cache.
func TestWarmOfADirThatWasReplaced(t *testing.T) {
	settledFiles(t)
	dir := filepath.Join(warmTree(t, map[string]string{"d/f": "mine"}), "d")
	c, err := NewDir(dir, Options{Trust: Forever})
	require.NoError(t, err)
	defer c.Close()
	if err := os.Rename(dir, dir+"~"); err != nil {
		t.Skip("an open directory cannot be renamed here: ", err)
	}
	require.NoError(t, os.Mkdir(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "f"), []byte("else"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "g"), []byte("else"), 0o644))
	r := warm(t, c, WarmOptions{})
	require.EqualValues(t, 1, r.Missing)
	require.Equal(t, "mine", readFile(t, c, "f"))
}

// TestWarmMeetsAChange: a file changes between the read by fileproc and the look at its metadata after the read.
func TestWarmMeetsAChange(t *testing.T) {
	if !fsinfo.HasInodes {
		t.Skip("without inodes fileproc reads through the source, and there is no read of its own to come between")
	}
	settledFiles(t)
	dir := warmTree(t, map[string]string{"f": "old"})
	c, err := NewDir(dir, Options{Trust: Forever, TTLOf: func(name string, info fs.FileInfo) time.Duration { return 0 }})
	require.NoError(t, err)
	defer c.Close()
	w := &warming{c: c, start: time.Now()}
	testBeforeProof = func() {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "f"), []byte("new"), 0o644))
	}
	defer func() { testBeforeProof = func() {} }()
	require.NoError(t, w.run(t.Context()))
	require.EqualValues(t, 1, w.report().Warmed)
	require.Equal(t, "new", readFile(t, c, "f"), "it was read again")
}

// TestInvalidateDuringWarm: invalidating a name while Warm loads it keeps the content out of the cache.
func TestInvalidateDuringWarm(t *testing.T) {
	m := newMemFS(map[string]string{"f": "old"})
	c := newFS(t, m, Options{Trust: Forever})
	m.setFault(func(op, name string) error {
		if op == "read" {
			c.Invalidate("f")
		}
		return nil
	})
	warm(t, c, WarmOptions{})
	require.Zero(t, c.Stats().Files.Entries)
}

func TestWarmLeavesDirtyFilesAlone(t *testing.T) {
	m := newMemFS(map[string]string{"f": "old", "g": "x"})
	c := newFS(t, m, Options{Store: m, Write: WriteBack, FlushInterval: Forever, Trust: Forever})
	require.NoError(t, c.WriteFile("f", []byte("new")))
	require.NoError(t, c.Remove("g"))
	require.EqualValues(t, 2, warm(t, c, WarmOptions{}).Cached)
	require.Equal(t, "new", readFile(t, c, "f"))
	require.NoError(t, c.Close())
}

// TestWarmReadsLinks: Warm reads links that Files names, not links that it lists.
func TestWarmReadsLinks(t *testing.T) {
	settledFiles(t)
	dir := warmTree(t, map[string]string{"d/f": "data", "out/g": "outside"})
	testtree.Symlink(t, "f", filepath.Join(dir, "d", "link"))
	require.NoError(t, os.Symlink("../out", filepath.Join(dir, "d", "away")))
	c, err := NewDir(filepath.Join(dir, "d"), Options{})
	require.NoError(t, err)
	defer c.Close()
	require.EqualValues(t, 1, warm(t, c, WarmOptions{}).Warmed)
	r, err := c.Warm(t.Context(), WarmOptions{Files: slices.Values([]string{"link", "away/g", "../out/g", "", "/etc/passwd"})})
	require.Error(t, err)
	require.EqualValues(t, 1, r.Warmed)
	require.EqualValues(t, 4, r.Failed)
	require.Equal(t, "data", readFile(t, c, "link"))
	require.EqualValues(t, 1, c.Stats().Files.Hits)
}

func TestWarmEndsWithItsContext(t *testing.T) {
	files := map[string]string{}
	for i := range 300 {
		files[fmt.Sprint(i)] = "x"
	}
	for _, list := range []bool{false, true} {
		m := newMemFS(files)
		c := newFS(t, m, Options{})
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("enough")
		var once sync.Once
		m.setFault(func(op, name string) error {
			if op == "read" {
				once.Do(func() { cancel(cause) })
				time.Sleep(time.Millisecond)
			}
			return nil
		})
		opts := WarmOptions{Workers: 1}
		if list {
			opts.Files = func(yield func(string) bool) {
				for name := range files {
					if !yield(name) {
						return
					}
				}
			}
		}
		r, err := c.Warm(ctx, opts)
		require.ErrorIs(t, err, cause)
		require.Less(t, r.Warmed, int64(300))
	}
}

func TestWarmErrorsAreBounded(t *testing.T) {
	files := map[string]string{}
	for i := range 150 {
		files[fmt.Sprint(i)] = "x"
	}
	m := newMemFS(files)
	m.failing("read")
	r, err := newFS(t, m, Options{}).Warm(t.Context(), WarmOptions{})
	require.ErrorIs(t, err, errStore)
	require.ErrorContains(t, err, "and 50 more")
	require.EqualValues(t, 150, r.Failed)
}

func TestWarmTooLarge(t *testing.T) {
	settledFiles(t)
	dir := warmTree(t, map[string]string{"large": strings.Repeat("x", 20_000), "small": "x"})
	c, err := NewDir(dir, Options{MaxFileSize: 10_000})
	require.NoError(t, err)
	defer c.Close()
	r := warm(t, c, WarmOptions{})
	require.EqualValues(t, 1, r.Warmed)
	require.EqualValues(t, 1, r.NotCached)
}

// TestWarmProgress: no number decreases, calls do not overlap, and the last one is the report.
func TestWarmProgress(t *testing.T) {
	files := map[string]string{}
	for i := range 60 {
		files[fmt.Sprint(i)] = "x"
	}
	m := newMemFS(files)
	m.setFault(func(op, name string) error {
		if op == "read" {
			time.Sleep(10 * time.Millisecond)
		}
		return nil
	})
	var seen []WarmReport
	r := warm(t, newFS(t, m, Options{}), WarmOptions{Workers: 1, OnProgress: func(r WarmReport) { seen = append(seen, r) }})
	require.Greater(t, len(seen), 3)
	for i := range seen[1:] {
		require.LessOrEqual(t, seen[i].Warmed, seen[i+1].Warmed)
		require.LessOrEqual(t, seen[i].Elapsed, seen[i+1].Elapsed)
	}
	require.Equal(t, r, seen[len(seen)-1])
	require.EqualValues(t, 60, r.Warmed)
}

func TestEntries(t *testing.T) {
	for name, policy := range policies {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"a": "", "b": "bb", "c": "", "never": "", "dirty": "", "not cached": ""}
			m := newMemFS(files)
			c := newFS(t, m, Options{Policy: policy, TTL: time.Hour, Store: m, Write: WriteBack, FlushInterval: Forever})
			warm(t, c, WarmOptions{Files: slices.Values([]string{"never", "c"})})
			for i, name := range []string{"a", "b", "c"} {
				for range 3 * (i + 1) {
					readFile(t, c, name)
				}
			}
			require.NoError(t, c.WriteFile("dirty", []byte("123")))
			require.NoError(t, c.WriteFile("a dirty one", nil))
			require.Equal(t, aheadCached, c.data.add("dirty", &content{}, loaded{cost: 1}), "as of a load that began before the write")
			require.Equal(t, []Entry{{Name: "b", Cached: true, Bytes: 2, Uses: 6}, {Name: "not cached"}, {Name: "dirty", Dirty: true, Bytes: 3},
				{Name: "never", Cached: true}}, c.Entries("/b", "not cached", "dirty", "never"))
			require.Equal(t, []Entry{{Name: "c", Cached: true, Uses: 9}, {Name: "b", Cached: true, Bytes: 2, Uses: 6}, {Name: "a", Cached: true, Uses: 3},
				{Name: "never", Cached: true}, {Name: "dirty", Dirty: true, Bytes: 3}, {Name: "a dirty one", Dirty: true}}, c.Entries())
			require.NoError(t, c.Close())
		})
	}
}

type iotestWriter struct{}

func (iotestWriter) Write([]byte) (int, error) { return 0, errStore }

// TestWarmOfFilesWithoutTimes: an embed.FS is warmed if it is trusted.
func TestWarmOfFilesWithoutTimes(t *testing.T) {
	for _, trust := range []time.Duration{0, Forever} {
		c := newFS(t, fstest.MapFS{"a": {}, "d/b": {}}, Options{Trust: trust})
		require.Equal(t, trust != 0, warm(t, c, WarmOptions{}).Warmed == 2)
	}
}

// TestWarmCountsADirectoryOnce: Warm counts a directory that cannot be listed once, although each pass of First meets it.
func TestWarmCountsADirectoryOnce(t *testing.T) {
	m := newMemFS(map[string]string{"bad/f": "", "a": "", "b": ""})
	m.setFault(func(op, name string) error {
		if op == "open" && name == "bad" {
			return errStore
		}
		return nil
	})
	r, err := newFS(t, m, Options{}).Warm(t.Context(), WarmOptions{First: []string{"**/a", "**/b"}})
	require.ErrorIs(t, err, errStore)
	require.Equal(t, 1, strings.Count(err.Error(), errStore.Error()))
	require.EqualValues(t, 1, r.Failed)
	require.EqualValues(t, 2, r.Warmed)
}

// careless is a source that does not look at names.
type careless struct {
	*memFS
	t *testing.T
}

func (s careless) Stat(name string) (fs.FileInfo, error) {
	require.True(s.t, fs.ValidPath(name), "%q", name)
	return s.memFS.Stat(name)
}

func (s careless) Open(name string) (fs.File, error) {
	require.True(s.t, fs.ValidPath(name), "%q", name)
	return s.memFS.Open(name)
}

func (s careless) Lstat(name string) (fs.FileInfo, error) { return s.Stat(name) }

func (s careless) ReadLink(name string) (string, error) {
	require.True(s.t, fs.ValidPath(name), "%q", name)
	return "", fs.ErrInvalid
}

// TestWarmGivesTheSourceNoBadNames: not all sources look at names.
func TestWarmGivesTheSourceNoBadNames(t *testing.T) {
	bad := []string{"../f", "/f", "d/../f", ".", "", "d//f", "f/..", "../"}
	r, err := newFS(t, careless{newMemFS(map[string]string{"f": "", "d/f": ""}), t}, Options{}).Warm(t.Context(),
		WarmOptions{Files: slices.Values(bad)})
	require.Error(t, err)
	require.EqualValues(t, len(bad), r.Failed)
}

// TestCountedAlike: an entry counts the same whether it was read, warmed or loaded from a snapshot; only the latter has no Sys, and
// counts less by that.
func TestCountedAlike(t *testing.T) {
	settledFiles(t)
	dir := warmTree(t, map[string]string{"f": strings.Repeat("x", 1100)})
	c, err := NewDir(dir, Options{})
	require.NoError(t, err)
	defer c.Close()
	readFile(t, c, "f")
	want := c.Stats().Files.Bytes
	require.Greater(t, want, int64(1100+entryOverhead+sysMemory))
	var snapshot bytes.Buffer
	require.NoError(t, c.writeSnapshot(&snapshot))
	c.Clear()
	require.EqualValues(t, 1, warm(t, c, WarmOptions{}).Warmed)
	require.Equal(t, want, c.Stats().Files.Bytes)
	c.Clear()
	_, err = c.readSnapshot(&snapshot)
	require.NoError(t, err)
	require.Equal(t, want-sysMemory, c.Stats().Files.Bytes)
}

// TestWarmGroups: Warm takes names in groups: the first has firstWarmGroup, each further group twice as many as the one before, up to maxWarmGroup.
func TestWarmGroups(t *testing.T) {
	m := newMemFS(map[string]string{"f": ""})
	taken := 0
	var groups []int
	c := newFS(t, m, Options{})
	w := &warming{c: c, opts: WarmOptions{Workers: 1, Files: func(yield func(string) bool) {
		for taken < 3*maxWarmGroup {
			taken++
			if !yield(fmt.Sprint("none", taken)) {
				return
			}
		}
	}}}
	seen := 0
	m.setFault(func(op, name string) error {
		if taken != seen {
			groups, seen = append(groups, taken-seen), taken
		}
		return fs.ErrNotExist
	})
	require.NoError(t, w.run(t.Context()))
	require.Equal(t, []int{64, 128, 256, 512, 1024, 2048, 4096, 4096, 64}, groups)
	require.EqualValues(t, 3*maxWarmGroup, w.report().Missing)
}

// TestWarmWorkers: Warm reads as many files at a time as Workers says, and by default at least 16, or as many as there are processors.
func TestWarmWorkers(t *testing.T) {
	files := map[string]string{}
	for i := range 40 {
		files[fmt.Sprint(i)] = "x"
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for processors, workers := range map[int]int{1: 0, 17: 0, 2: 3} {
		runtime.GOMAXPROCS(processors)
		want := max(16, processors)
		if workers > 0 {
			want = workers
		}
		m := newMemFS(files)
		var mu sync.Mutex
		reading, most, all := 0, 0, make(chan struct{})
		m.setFault(func(op, name string) error {
			if op != "read" {
				return nil
			}
			mu.Lock()
			reading++
			if most = max(most, reading); reading == want {
				select {
				case <-all:
				default:
					close(all)
				}
			}
			mu.Unlock()
			select {
			case <-all:
			case <-time.After(time.Minute):
				t.Error("no more files are read at a time")
			}
			mu.Lock()
			reading--
			mu.Unlock()
			return nil
		})
		require.EqualValues(t, 40, warm(t, newFS(t, m, Options{}), WarmOptions{Workers: workers}).Warmed)
		require.True(t, workers == 0 || most == workers, most)
	}
}

// TestWarmProgressIsNotTooOften: of calls within 50 milliseconds, one gives a report.
func TestWarmProgressIsNotTooOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		w := &warming{start: time.Now(), shown: time.Now(), opts: WarmOptions{OnProgress: func(r WarmReport) { calls++; require.Positive(t, r.Elapsed) }}}
		for _, step := range []struct {
			wait time.Duration
			want int
		}{{0, 0}, {50*time.Millisecond - 1, 0}, {1, 1}, {50*time.Millisecond - 1, 1}, {1, 2}} {
			time.Sleep(step.wait)
			w.progress()
			require.Equal(t, step.want, calls)
		}
	})
}

// TestWarmFailures: maxWarmErrors failures are all told, with their names, and more are counted. What is missing is none.
func TestWarmFailures(t *testing.T) {
	w := &warming{}
	require.NoError(t, w.failure())
	w.record("missing", fs.ErrNotExist)
	require.NoError(t, w.failure())
	w.record("a name", errStore)
	require.EqualError(t, w.failure(), "warm a name: "+errStore.Error())
	for range maxWarmErrors - 1 {
		w.record("", errStore)
	}
	lines := strings.Split(w.failure().Error(), "\n")
	require.Len(t, lines, maxWarmErrors)
	require.Equal(t, errStore.Error(), lines[maxWarmErrors-1])
	w.record("", errStore)
	lines = strings.Split(w.failure().Error(), "\n")
	require.Equal(t, append(lines[:maxWarmErrors:maxWarmErrors], "and 1 more"), lines)
	r := w.report()
	require.EqualValues(t, 1, r.Missing)
	require.EqualValues(t, maxWarmErrors+1, r.Failed)
}

// TestWarmIsFull: the cache is full after fullAfter files in a row without room. A file that is cached begins the count again.
func TestWarmIsFull(t *testing.T) {
	m := newMemFS(map[string]string{"f": "x", "g": "x", "h": "x"})
	c := newFS(t, m, Options{MaxEntries: 1, Shards: 1})
	stopped := 0
	w := &warming{c: c, stop: func() { stopped++ }}
	for range fullAfter - 1 {
		w.noRoom()
	}
	require.False(t, w.full.Load())
	w.load("f", c.loadWarm)
	require.EqualValues(t, 1, w.report().Warmed)
	w.load("f", c.loadWarm)
	require.False(t, w.wants("g"))
	require.EqualValues(t, fullAfter+1, w.report().NotCached)
	for range fullAfter - 3 {
		require.False(t, w.full.Load())
		w.load("h", c.loadWarm)
	}
	require.False(t, w.full.Load() || stopped > 0)
	w.noRoom()
	require.True(t, w.full.Load())
	require.Equal(t, 1, stopped)
	r := w.report()
	require.False(t, w.wants("none"))
	r.Elapsed = 0
	after := w.report()
	after.Elapsed = 0
	require.Equal(t, r, after, "nothing is counted any more")
}

// TestWarmWithoutRoot: a source that cannot be listed at all is an error of its own, and no file that failed.
func TestWarmWithoutRoot(t *testing.T) {
	m := newMemFS(map[string]string{"f": "x"})
	m.setFault(func(_, name string) error {
		if name == "." {
			return errStore
		}
		return nil
	})
	r, err := newFS(t, m, Options{}).Warm(t.Context(), WarmOptions{})
	require.ErrorIs(t, err, errStore)
	require.Zero(t, r.Failed)
}

// TestWarmOfAFullCache: what is cached counts as that, also when there is no room for more, and is not read.
func TestWarmOfAFullCache(t *testing.T) {
	m := newMemFS(map[string]string{"a": "x", "b": "x", "c": "x"})
	c := newFS(t, m, Options{MaxEntries: 3, Shards: 1})
	require.EqualValues(t, 3, warm(t, c, WarmOptions{}).Warmed)
	r := warm(t, c, WarmOptions{})
	require.EqualValues(t, 3, r.Cached)
	require.Zero(t, r.NotCached)
}

// TestWarmFirstEndsWithItsContext: the error is the cause also when the context ends in the pass of a first pattern.
func TestWarmFirstEndsWithItsContext(t *testing.T) {
	m := newMemFS(map[string]string{"a": "x", "b": "x"})
	ctx, cancel := context.WithCancelCause(t.Context())
	m.setFault(func(op, name string) error {
		if op == "read" {
			cancel(errStore)
		}
		return nil
	})
	_, err := newFS(t, m, Options{}).Warm(ctx, WarmOptions{First: []string{"a"}, Workers: 1})
	require.ErrorIs(t, err, errStore)
}

// TestWarmLoads says how each load counts: only files without room make the cache full.
func TestWarmLoads(t *testing.T) {
	m := newMemFS(map[string]string{"there": "x", "changing": "x", "large": strings.Repeat("x", 5000)})
	m.files["changing"].lies = 1
	whole := func(c *FS) func(string) (*content, loaded, error) {
		return func(name string) (*content, loaded, error) { return c.read(name, 1<<20) }
	}
	for name, tt := range map[string]struct {
		evict bool
		want  WarmReport
		full  int64
	}{
		"there": {false, WarmReport{Cached: 1}, 0}, "changing": {false, WarmReport{NotCached: 1}, 0}, "large": {false, WarmReport{NotCached: 1}, 1},
		"large ": {true, WarmReport{NotCached: 1}, 0}, "none": {false, WarmReport{Missing: 1}, 0},
	} {
		c := newFS(t, m, Options{MaxBytes: 4000, Shards: 1})
		readFile(t, c, "there")
		w := &warming{c: c, opts: WarmOptions{Evict: tt.evict}, start: time.Now()}
		w.load(strings.TrimSpace(name), whole(c))
		r := w.report()
		r.Elapsed = 0
		require.Equal(t, tt.want, r, name)
		require.Equal(t, tt.full, w.withoutRoom.Load(), name)
	}
}

// A countedDir is a directory that counts what is opened.
type countedDir struct {
	*dirFS
	opens int
}

func (d *countedDir) Open(name string) (fs.File, error) { d.opens++; return d.dirFS.Open(name) }

// TestWarmReadsADirOnce: what fileproc has read is not read again by the source, if its metadata there is the same. What a load would not
// cache is not read again either.
func TestWarmReadsADirOnce(t *testing.T) {
	if !fsinfo.HasInodes {
		t.Skip("without inodes fileproc reads through the source")
	}
	settledFiles(t)
	d, err := newDirFS(warmTree(t, map[string]string{"f": "data"}))
	require.NoError(t, err)
	defer d.Close()
	for age, want := range map[time.Duration]WarmReport{-time.Hour: {Warmed: 1, Bytes: 4}, time.Hour: {NotCached: 1}} {
		fsinfo.Settled = age
		source := &countedDir{dirFS: d}
		w := &warming{c: newFS(t, source, Options{}), start: time.Now()}
		require.NoError(t, fileproc.ForEach(t.Context(), d.name, fileproc.Options{Stat: true}, w.read))
		r := w.report()
		r.Elapsed = 0
		require.Equal(t, want, r)
		require.Zero(t, source.opens)
		if h, ok := w.c.data.find("f"); ok {
			require.Positive(t, h.value.began)
		}
	}
}

// A watchedContext counts who waits for its end.
type watchedContext struct {
	context.Context
	came, left int
}

func (c *watchedContext) Done() <-chan struct{} { return make(chan struct{}) }
func (c *watchedContext) AfterFunc(func()) (stop func() bool) {
	c.came++
	return func() bool { c.left++; return true }
}

// TestWarmLeavesNothing: at the end of Warm, nothing of it waits for the end of its context, and the sequence of names has ended.
func TestWarmLeavesNothing(t *testing.T) {
	c := newFS(t, newMemFS(map[string]string{"f": ""}), Options{})
	ctx := &watchedContext{Context: context.Background()}
	_, err := c.Warm(ctx, WarmOptions{})
	require.NoError(t, err)
	require.NotZero(t, ctx.came)
	require.Equal(t, ctx.came, ctx.left)

	cancelled, cancel := context.WithCancelCause(t.Context())
	cancel(errStore)
	ended := false
	_, err = c.Warm(cancelled, WarmOptions{Files: func(yield func(string) bool) {
		for yield("f") {
		}
		ended = true
	}})
	require.ErrorIs(t, err, errStore)
	require.True(t, ended)
}

// TestWarmReportsOnce: a warming that takes no time gives one report, at its end.
func TestWarmReportsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reports := 0
		c := newFS(t, newMemFS(map[string]string{"f": ""}), Options{})
		warm(t, c, WarmOptions{First: []string{"f"}, OnProgress: func(WarmReport) { reports++ }})
		require.Equal(t, 1, reports)
	})
}

// TestWarmOfNamesThatFail: each name counts, however often it is given. Only what may be a link is tried again by a load.
func TestWarmOfNamesThatFail(t *testing.T) {
	m := newMemFS(map[string]string{"f": "", "d/f": ""})
	c := newFS(t, m, Options{})
	fail := func(name string, opts WarmOptions) WarmReport {
		failed := false
		m.setFault(func(_, called string) error {
			if called != name || failed {
				return nil
			}
			failed = true
			return errStore
		})
		r, err := c.Warm(t.Context(), opts)
		require.ErrorIs(t, err, errStore)
		r.Elapsed = 0
		return r
	}
	require.Equal(t, WarmReport{Failed: 1}, fail("f", WarmOptions{Files: slices.Values([]string{"f"})}))
	require.Equal(t, WarmReport{}, fail(".", WarmOptions{First: []string{"f"}}), "root, in the first pass")
	m.setFault(nil)
	r, err := c.Warm(t.Context(), WarmOptions{Files: slices.Values([]string{"../f", "d", "../f", "d"})})
	require.ErrorIs(t, err, fs.ErrInvalid)
	r.Elapsed = 0
	require.Equal(t, WarmReport{Failed: 4}, r)
}

// TestWarmOfADirKeepsTimes: what Warm has read in a directory is known to be right since then, and expires when a load would let it.
func TestWarmOfADirKeepsTimes(t *testing.T) {
	settledFiles(t)
	dir := warmTree(t, map[string]string{"f": "x"})
	c, err := NewDir(dir, Options{Trust: time.Hour, Shards: 1, TTLOf: func(name string, i fs.FileInfo) time.Duration {
		require.Equal(t, name, i.Name())
		return time.Hour
	}})
	require.NoError(t, err)
	defer c.Close()
	require.EqualValues(t, 1, warm(t, c, WarmOptions{}).Warmed)
	n := c.data.shards[0].entries["f"]
	require.Positive(t, n.checked)
	require.Greater(t, n.expires, int64(time.Hour))
	testtree.Symlink(t, "f", filepath.Join(dir, "link"))
	for _, want := range []WarmReport{{Warmed: 1, Bytes: 1}, {Cached: 1}} {
		r := warm(t, c, WarmOptions{Files: slices.Values([]string{"link"})})
		r.Elapsed = 0
		require.Equal(t, want, r)
	}
}
