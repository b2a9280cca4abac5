package incremental

import (
	"context"
	"errors"
	"fmt"
	html "html/template"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	text "text/template"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/incremental/internal/cachefile"
	"github.com/gofrs/flock"
	"github.com/stretchr/testify/require"
)

// TestWorkersAreFixed: the run has the number of workers for which there is state, also if GOMAXPROCS changes while the
// cache file is loaded.
func TestWorkersAreFixed(t *testing.T) {
	t.Parallel()
	opts := fileproc.Options{}
	r, err := begin(t.TempDir(), &Options[string]{File: filepath.Join(t.TempDir(), "cache")}, &opts, func(*fileproc.File) (string, error) { return "", nil })
	require.NoError(t, err)
	require.Equal(t, runtime.GOMAXPROCS(0), opts.Workers)
	require.Len(t, r.workers, opts.Workers)
}

// TestHostilePaths: a cache file may hold paths that no run has kept. No such path leads out of root, or takes more time than it is long.
func TestHostilePaths(t *testing.T) {
	t.Parallel()
	root, file := t.TempDir(), filepath.Join(t.TempDir(), "cache")
	again := func(between func(*run[string])) (gone []string) {
		opts := fileproc.Options{}
		inc := Options[string]{File: file, Deleted: func(rel string) { gone = append(gone, rel) }}
		r, err := begin(root, &inc, &opts, func(*fileproc.File) (string, error) { return "", nil })
		require.NoError(t, err)
		between(r)
		_, err = fileproc.Process(t.Context(), root, opts, r.fn())
		require.NoError(t, r.end(t.Context(), err))
		return gone
	}
	hostile := []string{"", "/", "/x", "//x", ".", "..", "../x", "d/../../x", "d//x", "d/", "./x", "a\x00b", "deep" + strings.Repeat("/d", 500_000)}
	again(func(r *run[string]) {
		for _, path := range append(hostile, "honest") {
			r.store.Add(0, cachefile.Record{Path: path, Result: []byte(`"x"`)})
		}
	})
	for _, path := range hostile {
		require.False(t, isShallow(path) && isBelow(path) && path != "a\x00b", path)
	}
	require.Equal(t, []string{"honest"}, again(func(*run[string]) {}))

	outside := []string{"../x", "d/../../x"}
	if runtime.GOOS == "windows" {
		outside = append(outside, `..\x`, `\x`, `c:x`, `d/..\..\x`)
	}
	e := existence{root: root, dirs: map[string]answer{".": yes}}
	for _, path := range outside {
		require.Equal(t, unknown, e.hasFile(path), path)
	}

	s, err := cachefile.Load(filepath.Join(t.TempDir(), "cache"), [32]byte{}, 1)
	require.NoError(t, err)
	for _, path := range append(hostile[:len(hostile)-1], "a/b/c", "deep"+strings.Repeat("/d", maxLevels+1)) {
		s.Add(0, cachefile.Record{Path: path})
	}
	require.NoError(t, s.Save(t.Context(), nil))
	s, err = cachefile.Load(s.Path, [32]byte{}, 1)
	require.NoError(t, err)
	require.Equal(t, map[string]bool{"a": true, "a/b": true, "d": true}, dirsOf(s.Dirs()))
	g := given{"deep/": true}
	require.True(t, g.hasDirOf("deep/d"))
	require.False(t, g.hasDirOf("deep"+strings.Repeat("/d", maxLevels+1)))
}

// An askedFS notes what it is asked for.
type askedFS struct {
	fstest.MapFS
	mu    sync.Mutex
	asked map[string]bool
}

func (a *askedFS) ask(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked[name] = true
}

func (a *askedFS) Open(name string) (fs.File, error)      { a.ask(name); return a.MapFS.Open(name) }
func (a *askedFS) Stat(name string) (fs.FileInfo, error)  { a.ask(name); return a.MapFS.Stat(name) }
func (a *askedFS) Lstat(name string) (fs.FileInfo, error) { a.ask(name); return a.MapFS.Lstat(name) }

// TestHostilePathsInAnFS: no path in a cache file makes a run look up what an FS has outside root.
func TestHostilePathsInAnFS(t *testing.T) {
	t.Parallel()
	files := &askedFS{MapFS: fstest.MapFS{"r/d/a": {}, "r/.ignore": {}, "r/e/x": {}}, asked: map[string]bool{}}
	inc := Options[string]{File: filepath.Join(t.TempDir(), "cache"), Deleted: func(rel string) { t.Error(rel, "is told") }}
	for range 2 {
		opts := fileproc.Options{FS: files, IgnoreFiles: []string{".ignore"}}
		r, err := begin("r/d", &inc, &opts, func(*fileproc.File) (string, error) { return "", nil })
		require.NoError(t, err)
		for _, rel := range []string{"../x", "../e/y"} {
			r.store.Add(0, cachefile.Record{Path: rel})
		}
		_, err = fileproc.Process(t.Context(), "r/d", opts, r.fn())
		require.NoError(t, r.end(t.Context(), err))
	}
	for name := range files.asked {
		require.True(t, name == "r/d" || strings.HasPrefix(name, "r/d/"), name)
	}
}

// TestJSONOfPlainTypes: numbers and texts are decoded as encoding/json decodes them, and an int takes no memory.
func TestJSONOfPlainTypes(t *testing.T) {
	same(t, 0, -12, math.MaxInt, math.MinInt)
	same(t, int64(0), math.MaxInt64, math.MinInt64)
	same(t, "", "title", `back\slash`, `"quoted"`, "tab\tnewline\n", "<&>", "Größe", "\u2028", "\x7f")
	for _, wrong := range []string{"", `"`, `"a`, `a"`, "a", `"a"b"`, "1.5", "x", "[]"} {
		_, err := JSON[string]().Decode([]byte(wrong))
		require.Error(t, err, wrong)
		_, err = JSON[int]().Decode([]byte(wrong))
		require.Error(t, err, wrong)
	}
	number := []byte("12345")
	require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = JSON[int]().Decode(number) }))
}

type shift struct{ By byte }

func (c shift) Append(b []byte, v string) ([]byte, error) { return append(b, c.turn(v)...), nil }
func (c shift) Decode(b []byte) (string, error)           { return c.turn(string(b)), nil }
func (c shift) turn(s string) string {
	b := []byte(s)
	for i := range b {
		b[i] ^= c.By
	}
	return string(b)
}

// TestCodecsAreToldApart: bytes of one codec are not decoded by another of the same name, or with other values.
func TestCodecsAreToldApart(t *testing.T) {
	t.Parallel()
	require.NotEqual(t, nameOf(text.Template{}), nameOf(html.Template{}))
	require.NotEqual(t, nameOf(&text.Template{}), nameOf(&html.Template{}))
	type nested struct {
		Level [2]struct{ A float32 }
		Name  string
	}
	v := nested{Name: "a"}
	require.Equal(t, nameOf(nested{Name: "a"}), nameOf(v))
	require.NotEqual(t, nameOf(nested{}), nameOf(v))
	v.Level[1].A = 1
	require.NotEqual(t, nameOf(nested{Name: "a"}), nameOf(v))
	type flags struct {
		Bool    bool
		Complex complex128
	}
	require.NotEqual(t, nameOf(flags{}), nameOf(flags{Bool: true}))
	require.NotEqual(t, nameOf(flags{}), nameOf(flags{Complex: 1}))
	type state struct{ p [1]*int }
	require.Equal(t, nameOf(state{[1]*int{new(int)}}), nameOf(state{}), "it differs from run to run")
	require.Equal(t, nameOf(&nested{}), nameOf(&v), "it may count its calls")

	root, file := t.TempDir(), filepath.Join(t.TempDir(), "cache")
	require.NoError(t, os.WriteFile(filepath.Join(root, "a"), []byte("text"), 0o644))
	for _, by := range []byte{1, 2, 2} {
		got, err := Process(t.Context(), root, Options[string]{File: file, Codec: shift{by}, Compare: CompareContent}, fileproc.Options{},
			func(f *fileproc.File) (string, error) { return string(f.Data()), nil })
		require.NoError(t, err)
		require.Equal(t, []string{"text"}, got)
	}
}

func same[T any](t *testing.T, values ...T) {
	for _, v := range values {
		b, err := JSON[T]().Append(nil, v)
		require.NoError(t, err)
		got, err := JSON[T]().Decode(b)
		require.NoError(t, err)
		require.Equal(t, v, got)
	}
}

// TestKeepLooksAgain: the outcome of a file that had another identity at the first look is not kept, however old the present identity is.
func TestKeepLooksAgain(t *testing.T) {
	t.Parallel()
	root, file := t.TempDir(), filepath.Join(t.TempDir(), "cache")
	require.NoError(t, os.WriteFile(filepath.Join(root, "a"), nil, 0o644))
	time.Sleep(Settled + 20*time.Millisecond)
	opts := fileproc.Options{Workers: 1}
	r, err := begin(root, &Options[string]{File: file, Compare: CompareMetadata}, &opts, func(*fileproc.File) (string, error) { return "", nil })
	require.NoError(t, err)
	_, err = fileproc.Process(t.Context(), root, opts, func(f *fileproc.File) (string, error) {
		s, err := f.Stat()
		id, _ := identityOf(s)
		keep := func(path string) keeping { return r.keep(f, &cachefile.Record{Path: path, ID: id}) }
		require.Equal(t, kept, keep("same"))
		id.Inode++
		require.Equal(t, hasChanged, keep("other"))
		id.Inode--
		id.BirthTime = 1
		require.Equal(t, hasChanged, keep("born at another time"))
		return "", err
	})
	require.NoError(t, err)
	require.NoError(t, r.store.Save(t.Context(), nil))
	require.Contains(t, Kept(root, *r.inc, opts), "same")
	require.Len(t, Kept(root, *r.inc, opts), 1)
}

// TestSessionComparesYoungContent: a session sums the content of files that have not settled, and of those of which it has a sum. What
// events tell counts only where there is no sum.
func TestSessionComparesYoungContent(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(root, "a"), nil, 0o644))
	time.Sleep(Settled + 20*time.Millisecond)
	opts := fileproc.Options{Workers: 1}
	SetIsStill(&opts, func(string) bool { return true })
	s, err := Open(root, Options[string]{File: filepath.Join(t.TempDir(), "cache"), Compare: CompareMetadata}, opts, func(*fileproc.File) (string, error) { return "", nil })
	require.NoError(t, err)
	_, err = fileproc.Process(t.Context(), root, fileproc.Options{}, func(f *fileproc.File) (string, error) {
		stat, err := f.Stat()
		id, _ := identityOf(stat)
		require.Nil(t, s.sumOf(f, id, nil), "it has settled")
		require.Nil(t, s.sumOf(f, id, &recent{}), "it has settled")
		require.NotNil(t, s.sumOf(f, id, &recent{sum: new([16]byte)}), "there is a sum to compare it with")
		require.True(t, s.isStill("a", &recent{rec: cachefile.Record{ID: id}, state: recentUnsettled}, id))
		require.False(t, s.isStill("a", &recent{rec: cachefile.Record{ID: id}, state: recentUnsettled, sum: new([16]byte)}, id), "its content tells more")
		id.ModTime = time.Now().UnixNano()
		require.NotNil(t, s.sumOf(f, id, nil))
		return "", err
	})
	require.NoError(t, err)
}

// TestKeyHasWhatResultsDependOn: results of other options that change what fn gets, or what is made of it, are not used. Other options
// change nothing.
func TestKeyHasWhatResultsDependOn(t *testing.T) {
	t.Parallel()
	keyOf := func(root string, inc Options[string], opts fileproc.Options) [32]byte {
		codec, err := codecOf(inc.Codec)
		require.NoError(t, err)
		return (&run[string]{root: root, inc: &inc, opts: opts, codec: codec}).key()
	}
	plain := keyOf("a", Options[string]{}, fileproc.Options{})
	seen := map[[32]byte]int{plain: -1}
	for i, c := range []struct {
		root string
		inc  Options[string]
		opts fileproc.Options
	}{
		{root: "b"}, {root: "a", inc: Options[string]{Version: "1"}}, {root: "a", inc: Options[string]{Codec: Raw[string]()}}, {root: "a", opts: fileproc.Options{ReadSize: 1}},
		{root: "a", opts: fileproc.Options{SkipBinary: true}}, {root: "a", opts: fileproc.Options{MaxFileSize: 1}}, {root: "a", opts: fileproc.Options{FS: os.DirFS(".")}},
	} {
		key := keyOf(c.root, c.inc, c.opts)
		require.NotContains(t, seen, key, i)
		seen[key] = i
	}
	require.Equal(t, plain, keyOf("a", Options[string]{File: "x", Compare: CompareContent}, fileproc.Options{Suffixes: []string{".md"}, Workers: 3, Ordered: true}))
	require.NotEqual(t, plain, (&run[[]byte]{root: "a", inc: &Options[[]byte]{}, codec: JSON[[]byte]()}).key())
}

// TestLookWithoutMetadata: with CompareMetadata, a file whose metadata cannot be fetched is compared by nothing.
func TestLookWithoutMetadata(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(root, "a"), nil, 0o644))
	opts := fileproc.Options{Workers: 1}
	r, err := begin(root, &Options[string]{File: filepath.Join(t.TempDir(), "cache"), Compare: CompareMetadata}, &opts, func(*fileproc.File) (string, error) { return "", nil })
	require.NoError(t, err)
	_, err = fileproc.Process(t.Context(), root, fileproc.Options{Workers: 1, ReadSize: fileproc.NoRead}, func(f *fileproc.File) (string, error) {
		require.NoError(t, os.Remove(filepath.Join(root, "a")))
		_, err := f.Stat()
		require.ErrorIs(t, err, os.ErrNotExist)
		require.Equal(t, verdictCall, r.judgeUnread(&r.workers[0], f))
		id, keeps := r.look(f)
		require.Equal(t, cachefile.Identity{}, id)
		require.False(t, keeps)
		return "", nil
	})
	require.NoError(t, err)
}

// TestCopyIsNoCache: a file that begins as a cache file does is not the run's own. Nor is it if it can no longer be opened.
func TestCopyIsNoCache(t *testing.T) {
	t.Parallel()
	root, file := t.TempDir(), filepath.Join(t.TempDir(), "cache")
	opts := fileproc.Options{Workers: 1}
	r, err := begin(root, &Options[string]{File: file}, &opts, func(*fileproc.File) (string, error) { return "", nil })
	require.NoError(t, err)
	r.store.Add(0, cachefile.Record{Path: "a"})
	require.NoError(t, r.store.Save(t.Context(), nil))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(root, "copy"), text, 0o644))
	_, err = fileproc.Process(t.Context(), root, fileproc.Options{Workers: 1}, func(f *fileproc.File) (string, error) {
		require.True(t, cachefile.HasMagic(f.Data()))
		require.False(t, r.isCache(f))
		require.NoError(t, os.Rename(file, file+"2"))
		require.False(t, r.isCache(f), "there is none")
		require.NoError(t, os.Rename(file+"2", file))
		require.NoError(t, os.Remove(filepath.Join(root, "copy")))
		require.False(t, r.isCache(f))
		return "", nil
	})
	require.NoError(t, err)
}

// TestWhatARunPrepares: with an FS, fileproc chooses the number of workers, and a run that compares content looks up no metadata.
func TestWhatARunPrepares(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{0, 2} {
		opts := fileproc.Options{FS: os.DirFS("."), Workers: workers}
		_, err := begin(".", &Options[string]{File: filepath.Join(t.TempDir(), "cache")}, &opts, func(*fileproc.File) (string, error) { return "", nil })
		require.NoError(t, err)
		require.Equal(t, workers, opts.Workers)
		require.Nil(t, core.Hooks(&opts).Unchanged)
	}
}

// TestDeviceMayBeAnother: before a run over all files, a session forgets which devices it trusts: another file system may be mounted by
// now, with the number of the one before.
func TestDeviceMayBeAnother(t *testing.T) {
	t.Parallel()
	r := run[string]{root: t.TempDir(), inc: &Options[string]{File: filepath.Join(t.TempDir(), "cache")}, codec: JSON[string]()}
	r.load()
	r.trust.others.Store(uint64(7), true)
	r.trust.last.Store(8)
	r.inspectRoot()
	_, ok := r.trust.others.Load(uint64(7))
	require.False(t, ok)
	require.Zero(t, r.trust.last.Load())
}

// Refusing is a codec that encodes text that it says it cannot encode.
type refusing struct{ shift }

func (c refusing) Append(b []byte, v string) ([]byte, error) {
	return append(b, v...), errors.New("no " + v)
}

// Undecodable is a codec that cannot decode what it encodes.
type undecodable struct{ shift }

func (undecodable) Decode(b []byte) (string, error) { return "", fmt.Errorf("not %s", b) }

// TestFirstErrorOfACodec: what a codec does not encode is not kept, and the first error is reported.
func TestFirstErrorOfACodec(t *testing.T) {
	t.Parallel()
	r, w := run[string]{inc: &Options[string]{File: "c"}, codec: refusing{}}, workerState[string]{}
	for _, text := range []string{"a", "b"} {
		b, got, ok := r.encode(&w, text, text)
		require.False(t, ok)
		require.Equal(t, text, got)
		require.Empty(t, b)
	}
	require.EqualError(t, r.encodeErr, "the result for a: no a")
	require.Equal(t, 2, r.unencoded)

	r = run[string]{inc: &Options[string]{File: "c"}, codec: undecodable{}}
	_, got, ok := r.encode(&w, "a", "b")
	require.False(t, ok)
	require.Equal(t, "b", got)
	require.EqualError(t, r.encodeErr, "the result for a: not b")
}

// TestClockSetBack: the result of a file with times in the future is not kept, although the run seems to have begun even later.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	r := run[string]{begun: time.Now().Add(time.Hour)}
	var id cachefile.Identity
	id.ModTime = time.Now().Add(-time.Hour).UnixNano()
	require.True(t, r.isSettled(id))
	id.ModTime = time.Now().Add(time.Minute).UnixNano()
	require.False(t, r.isSettled(id))
}

// TestNobodyWaitsForALock: neither the save on the way of a run nor the end of one that was cancelled waits for a lock that
// another process holds.
func TestNobodyWaitsForALock(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cache")
	opts := fileproc.Options{}
	r, err := begin(t.TempDir(), &Options[string]{File: file}, &opts, func(*fileproc.File) (string, error) { return "", nil })
	require.NoError(t, err)
	l := flock.New(r.store.Path + ".lock")
	if locked, err := l.TryLock(); !locked {
		t.Skip("no locks: ", err)
	}
	r.store.Add(0, cachefile.Record{Path: "a"})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	defer SaveAlways()()
	synctest.Test(t, func(t *testing.T) { // where only what waits takes time
		r.begun = time.Now()
		r.saveNowAndThen()
		require.ErrorIs(t, r.end(ctx, nil), ErrNotSaved)
		require.Zero(t, time.Since(r.begun))
	})
	require.NoError(t, l.Unlock())
	require.NoError(t, r.end(ctx, nil))
	require.Equal(t, 1, len(Kept(r.root, *r.inc, opts)))
}

// TestMetIsSeen: at its end, a run looks up no file that it has met, whether the file is unchanged, changed or not kept.
func TestMetIsSeen(t *testing.T) {
	t.Parallel()
	root, file := t.TempDir(), filepath.Join(t.TempDir(), "cache")
	for _, name := range []string{"same", "changed", "fails"} {
		require.NoError(t, os.WriteFile(filepath.Join(root, name), nil, 0o644))
	}
	time.Sleep(Settled + 20*time.Millisecond)
	for _, compare := range []Compare{CompareAuto, CompareContent} {
		for range 2 {
			opts := fileproc.Options{}
			inc := Options[string]{File: file, Compare: compare, Version: strconv.Itoa(int(compare)), Deleted: func(string) {}}
			r, err := begin(root, &inc, &opts, func(f *fileproc.File) (string, error) {
				if f.Name() == "fails" {
					return "", os.ErrInvalid
				}
				return "", nil
			})
			require.NoError(t, err)
			_, err = fileproc.Process(t.Context(), root, opts, r.fn())
			require.ErrorIs(t, err, os.ErrInvalid)
			for _, rec := range r.store.Unseen() {
				t.Errorf("%s is not seen", rec.Path())
			}
			for i := range r.workers {
				require.Empty(t, r.workers[i].recent, "there is no session")
			}
			require.NoError(t, r.end(t.Context(), nil))
			require.NoError(t, os.WriteFile(filepath.Join(root, "changed"), []byte("x"), 0o644))
		}
	}
}

// TestWhatIsKeptOfTimes: a file whose times cannot be compared is not kept. A file without a change time is.
func TestWhatIsKeptOfTimes(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, c := range []struct {
		mod, change time.Time
		keeps       bool
	}{{now, now, true}, {now, time.Time{}, true}, {time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC), now, false}, {now, time.Unix(-1, 0), false}, {now, time.Unix(0, 0), false},
		{now, time.Unix(0, 1), true}, {time.Unix(-1, 0), now, true}} {
		_, keeps := identityOf(fileproc.Stat{ModTime: c.mod, ChangeTime: c.change})
		require.Equal(t, c.keeps, keeps, "%+v", c)
	}
}

// TestLargeResultsAreNotHeld: a worker keeps its buffer for the next result, unless it has more than a megabyte.
func TestLargeResultsAreNotHeld(t *testing.T) {
	t.Parallel()
	r, w := run[string]{inc: &Options[string]{File: "c"}, codec: Raw[string]()}, workerState[string]{}
	for _, size := range []int{maxBuffer, maxBuffer + 1} {
		_, got, ok := r.encode(&w, "a", strings.Repeat("x", size))
		require.True(t, ok)
		require.Len(t, got, size)
		require.Equal(t, maxBuffer, cap(w.buf))
	}
}

// TestDirectoriesThatAreGiven: if Files gives "d/.", it names only the files in d itself; if it gives "d/", all files below d.
func TestDirectoriesThatAreGiven(t *testing.T) {
	t.Parallel()
	g := given{"d/": true, "e/.": true}
	for dir, want := range map[string]bool{"d/": true, "d/x/": true, "dx/": false, "e/": true, "e/x/": false, "e/.x/": false, "": false} {
		require.Equal(t, want, g.hasDirOf(dir), dir)
	}
	require.True(t, g.hasDirOf(strings.Repeat("d/", maxLevels)))
	require.False(t, g.hasDirOf(strings.Repeat("d/", maxLevels+1)))
	require.True(t, isShallow(strings.Repeat("d/", maxLevels)))
	require.False(t, isShallow(strings.Repeat("d/", maxLevels+1)))
}

// TestWrongOptions: one error lists all mistakes.
func TestWrongOptions(t *testing.T) {
	t.Parallel()
	for file, inFile := range map[string]string{"": "is empty", "a\x00b": "NUL byte", "\x00": "NUL byte"} {
		for _, compare := range []Compare{-1, CompareGit + 1} {
			_, err := begin(t.TempDir(), &Options[string]{File: file, Compare: compare}, &fileproc.Options{}, func(*fileproc.File) (string, error) { return "", nil })
			require.ErrorContains(t, err, inFile)
			require.ErrorContains(t, err, "Options.Compare is")
		}
	}
}

// TestBirthTimeThatIsUnknown: two looks at a file are compared without the time of birth only if one of them does not know that time.
func TestBirthTimeThatIsUnknown(t *testing.T) {
	t.Parallel()
	var none, one, two cachefile.Identity
	one.BirthTime, two.BirthTime = 1, 2
	for _, id := range []cachefile.Identity{none, one, two} {
		require.True(t, isSameID(id, none))
		require.True(t, isSameID(none, id))
		require.True(t, isSameID(id, id))
	}
	require.False(t, isSameID(one, two))
	one.Size = 1
	require.False(t, isSameID(one, none))
}

// TestUnchangedTakesNoMemory: a run over a million unchanged files allocates nothing for each, and opens none.
func TestUnchangedTakesNoMemory(t *testing.T) {
	NeedsTimes(t)
	root, file := t.TempDir(), filepath.Join(t.TempDir(), "cache")
	require.NoError(t, os.Mkdir(filepath.Join(root, "d"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, "d", "a"), []byte("1"), 0o644))
	_, err := fileproc.Process(t.Context(), root, fileproc.Options{Workers: 1, ReadSize: fileproc.NoRead, Stat: true}, func(f *fileproc.File) (int, error) {
		s, err := f.Stat()
		require.NoError(t, err)
		var r *run[int]
		for range 2 { // the second one loads what the first has saved
			r, err = begin(root, &Options[int]{File: file}, &fileproc.Options{ReadSize: fileproc.NoRead}, func(*fileproc.File) (int, error) { return 0, nil })
			require.NoError(t, err)
			id, _ := identityOf(s)
			r.store.Add(0, cachefile.Record{Path: "d/a", ID: id, Result: []byte("7")})
			require.NoError(t, r.store.Save(t.Context(), nil))
		}
		w := &r.workers[0]
		require.Zero(t, testing.AllocsPerRun(100, func() { require.Equal(t, verdictTake, r.judgeUnread(w, f)) }))
		require.Equal(t, 7, w.value)

		for _, text := range []string{"size", "1"} { // it has another size, or another time
			require.NoError(t, os.WriteFile(file+"2", []byte(text), 0o644))
			require.NoError(t, os.Chtimes(file+"2", s.ModTime, s.ModTime.Add(time.Duration(4-len(text))*time.Hour)))
			r.loaded, err = os.Stat(file + "2")
			require.NoError(t, err)
			require.Zero(t, testing.AllocsPerRun(100, func() { require.False(t, r.isCache(f)) }))
		}
		return 0, nil
	})
	require.NoError(t, err)
}

// TestDirSetIsAListAtFirst: as long as one run has met all files of a directory, they take the memory of a list.
func TestDirSetIsAListAtFirst(t *testing.T) {
	t.Parallel()
	var d dirSet
	for _, name := range []string{"a", "b", "c"} {
		require.True(t, d.meet(name, 1))
	}
	unmet := func(run uint32) (names []string) {
		d.removeUnmet(run, func(name string) { names = append(names, name) })
		slices.Sort(names)
		return names
	}
	require.Empty(t, unmet(1))
	require.Len(t, d.names, 3)
	require.False(t, d.meet("b", 2))
	require.True(t, d.meet("d", 2))
	require.Equal(t, []string{"a", "c"}, unmet(2))
	require.Len(t, d.files, 2)
	require.Empty(t, d.names)
	require.Equal(t, []string{"b", "d"}, unmet(3))
	require.True(t, d.isEmpty())
}

// TestSessionSavesHowItTreatsLinks: the cache file says how the last run over all files has treated links, even if a save only loads it.
func TestSessionSavesHowItTreatsLinks(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write := func(name string) { require.NoError(t, os.WriteFile(filepath.Join(root, name), nil, 0o644)) }
	write("a")
	inc, fn := Options[string]{File: filepath.Join(t.TempDir(), "cache"), Compare: CompareContent}, func(*fileproc.File) (string, error) { return "", nil }
	_, err := Process(t.Context(), root, inc, fileproc.Options{Symlinks: fileproc.SymlinksFollow}, fn)
	require.NoError(t, err)
	s, err := Open(root, inc, fileproc.Options{}, fn)
	require.NoError(t, err)
	links := func(names ...string) uint64 {
		for _, err := range s.Run(t.Context(), names) {
			require.NoError(t, err)
		}
		require.NoError(t, s.Save(t.Context()))
		store, err := cachefile.Load(inc.File, s.r.key(), 1)
		require.NoError(t, err)
		return store.Links
	}
	write("b")
	require.EqualValues(t, fileproc.SymlinksFollow, links("b"))
	for _, err := range s.Run(t.Context(), nil) {
		require.NoError(t, err)
	}
	require.NoError(t, os.Remove(filepath.Join(root, "b")))
	require.EqualValues(t, fileproc.SymlinksSkip, links("b"))
}

// A listed is an FS that counts the files that are opened, and how often the metadata of an entry is looked up.
type listed struct {
	fs    fs.FS
	looks *atomic.Int32
}

type listedDir struct {
	fs.ReadDirFile
	looks *atomic.Int32
}

type listedEntry struct {
	fs.DirEntry
	looks *atomic.Int32
}

func (l listed) Open(name string) (fs.File, error) {
	file, err := l.fs.Open(name)
	if dir, ok := file.(fs.ReadDirFile); ok {
		return listedDir{dir, l.looks}, err
	}
	l.looks.Add(1)
	return file, err
}

func (d listedDir) ReadDir(n int) ([]fs.DirEntry, error) {
	all, err := d.ReadDirFile.ReadDir(n)
	for i := range all {
		all[i] = listedEntry{all[i], d.looks}
	}
	return all, err
}

func (e listedEntry) Info() (fs.FileInfo, error) {
	e.looks.Add(1)
	return e.DirEntry.Info()
}

// TestNoReadLooksNothingUp: where runs compare content and read none, they look up no metadata either.
func TestNoReadLooksNothingUp(t *testing.T) {
	t.Parallel()
	files := listed{fstest.MapFS{"a": {}, "b": {}}, new(atomic.Int32)}
	inc := Options[string]{File: filepath.Join(t.TempDir(), "cache"), Deleted: func(string) {}} // so that there is something to save
	for range 2 {
		got, err := Process(t.Context(), ".", inc, fileproc.Options{FS: files, ReadSize: fileproc.NoRead}, func(*fileproc.File) (string, error) { return "", nil })
		require.NoError(t, err)
		require.Len(t, got, 2)
		require.Zero(t, files.looks.Load())
		require.FileExists(t, inc.File)
	}
}
