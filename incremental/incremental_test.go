package incremental_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/incremental"
	"github.com/fileproc/fileproc/incremental/internal/cachefile"
	"github.com/fileproc/fileproc/internal/fsinfo"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

// A project is a directory to process, and a cache file beside it.
type project struct {
	t     *testing.T
	root  string
	inc   incremental.Options[string]
	opts  fileproc.Options
	calls []string // of fn in the last run
	gone  []string // told in the last run
}

func newProject(t *testing.T, list ...string) *project {
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	require.NoError(t, os.Mkdir(root, 0o755))
	require.True(t, testtree.Make(t, root, list...))
	p := &project{t: t, root: root, inc: incremental.Options[string]{File: filepath.Join(dir, "cache"), Version: "1"}}
	p.settle()
	return p
}

// settle waits until what was written last is so old that it can be kept.
func (p *project) settle() { time.Sleep(incremental.Settled + 20*time.Millisecond) }

func (p *project) path(rel string) string { return filepath.Join(p.root, rel) }

func (p *project) write(rel, content string) {
	require.NoError(p.t, os.MkdirAll(filepath.Dir(p.path(rel)), 0o755))
	require.NoError(p.t, os.WriteFile(p.path(rel), []byte(content), 0o644))
}

// run returns the results, and requires that they are those of a full run.
func (p *project) run() []string {
	p.t.Helper()
	got, err := p.try(p.t.Context())
	require.NoError(p.t, err)
	full, err := fileproc.Process(p.t.Context(), p.root, p.opts, result)
	require.NoError(p.t, err)
	require.ElementsMatch(p.t, full, got)
	return got
}

func (p *project) try(ctx context.Context) ([]string, error) {
	var mu sync.Mutex
	p.calls, p.gone = nil, nil
	inc := p.inc
	inc.Deleted = func(rel string) { p.gone = append(p.gone, rel) }
	got, err := incremental.Process(ctx, p.root, inc, p.opts, func(f *fileproc.File) (string, error) {
		mu.Lock()
		p.calls = append(p.calls, filepath.ToSlash(f.Rel()))
		mu.Unlock()
		return result(f)
	})
	slices.Sort(p.calls)
	return got, err
}

func result(f *fileproc.File) (string, error) {
	if strings.HasSuffix(f.Name(), ".skip") {
		return "", fileproc.ErrSkip
	}
	return f.Rel() + "=" + string(f.Data()), nil
}

func (p *project) calledFor(rels ...string) {
	p.t.Helper()
	p.run()
	require.Equal(p.t, rels, p.calls)
}

func TestOnlyWhatChanged(t *testing.T) {
	t.Parallel()
	incremental.NeedsTimes(t)
	p := newProject(t, "a=1", "b=2", "d/c=3", "d/e.skip=4", "d/bin=\x00", "f/g=5")
	p.opts.SkipBinary = true
	var report fileproc.Report
	p.opts.Report = &report
	p.calledFor("a", "b", "d/c", "d/e.skip", "f/g")
	p.calledFor()
	_, err := p.try(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 6, report.Unchanged)
	require.Zero(t, report.Processed)
	require.Zero(t, report.Bytes)

	p.write("b", "two")
	p.write("new", "n")
	require.NoError(t, os.Remove(p.path("d/c")))
	p.calledFor("b", "new")
	require.Equal(t, []string{"d/c"}, p.gone)
	p.settle() // until now they may have been too new to be kept
	p.run()
	require.Empty(t, p.gone)
	p.calledFor()
}

// TestRoots: with several roots, what is kept of a file is that of its root and path, also if a later run has other roots.
func TestRoots(t *testing.T) {
	t.Parallel()
	for _, ordered := range []bool{false, true} {
		p := newProject(t, "a/x=1", "a/d/y=2", "b/x=3", "b/c/x=4", "b/gone=5", "f=6", "g=7")
		byMetadata := comparesMetadata(t)
		at := func(rels ...string) []string {
			for i, rel := range rels {
				rels[i] = p.path(rel)
			}
			return rels
		}
		p.opts.Ordered = ordered
		p.inc.File = p.path("b/cache") // below one root, and a root itself
		calledFor := func(roots []string, rels ...string) {
			t.Helper()
			p.opts.Roots, p.opts.Exclude = roots, nil
			got, err := p.try(t.Context())
			require.NoError(t, err)
			p.opts.Exclude = []string{"cache*"}
			roots = slices.DeleteFunc(slices.Clone(roots), func(r string) bool { return strings.HasPrefix(r, p.inc.File) })
			p.opts.Roots = roots
			full, err := fileproc.Process(t.Context(), "none", p.opts, result)
			require.NoError(t, err)
			require.ElementsMatch(t, full, got)
			if ordered {
				require.Equal(t, full, got)
			}
			if byMetadata {
				require.Equal(t, rels, p.calls)
			}
		}
		calledFor(at("a", "b", "f"), "c/x", "d/y", "f", "gone", "x", "x")
		calledFor(at("a", "b", "f", "b/cache", "b/cache.lock"))
		calledFor(at("f", "b", "b/c", "a", "a"), "x") // b/c is new
		p.write("b/x", "three")
		require.NoError(t, os.Remove(p.path("b/gone")))
		require.NoError(t, os.Remove(p.path("a/d/y")))
		require.NoError(t, os.Remove(p.path("f")))
		p.settle()
		calledFor(at("b", "g"), "g", "x")
		require.Equal(t, at("b/gone"), p.gone, "a is no root of this run")
		calledFor(at("a", "b"))
		require.Equal(t, at("a/d/y"), p.gone)
		calledFor(at("b/c", "a", "b"))
		require.Empty(t, p.gone)
		calledFor(at("a"), "x") // one root has a cache file of its own
	}
}

// TestRootsInAnFS: as TestRoots, where content is compared.
func TestRootsInAnFS(t *testing.T) {
	t.Parallel()
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	fsys := fstest.MapFS{"a/x": file("1"), "b/x": file("1"), "b/y": file("2")}
	p := &project{t: t, root: ".", inc: incremental.Options[string]{File: filepath.Join(t.TempDir(), "cache")}}
	p.opts = fileproc.Options{FS: fsys, Roots: []string{"a", "b"}}
	p.calledFor("x", "x", "y")
	p.run()
	require.Empty(t, p.calls)
	fsys["a/x"] = file("2")
	delete(fsys, "b/y")
	p.calledFor("x")
	require.Equal(t, []string{"b/y"}, p.gone)
}

// TestNamesAndInodes: a file is unchanged only if its name, its directory and its inode are unchanged, whatever has exchanged them.
func TestNamesAndInodes(t *testing.T) {
	t.Parallel()
	incremental.NeedsTimes(t)
	for name, c := range map[string]struct {
		change      func(p *project)
		calls, gone []string
	}{
		"renamed in its directory": {func(p *project) { p.rename("d/a", "d/z") }, []string{"d/z"}, []string{"d/a"}},
		"two names swapped":        {func(p *project) { p.rename("d/a", "x"); p.rename("d/b", "d/a"); p.rename("x", "d/b") }, []string{"d/a", "d/b"}, nil},
		"moved":                    {func(p *project) { p.rename("d/a", "e/a") }, []string{"e/a"}, []string{"d/a"}},
		"put in place of another":  {func(p *project) { p.rename("e/a", "d/a") }, []string{"d/a"}, []string{"e/a"}},
		"inode used again": {func(p *project) {
			p.remove("d/a")
			p.write("d/y", "a new") // on most file systems it gets the inode of d/a
		}, []string{"d/y"}, []string{"d/a"}},
		"linked twice":             {func(p *project) { p.link("d/a", "d/a2"); p.link("d/a", "e/a2") }, []string{"d/a", "d/a2", "e/a2"}, nil},
		"one of two links gone":    {func(p *project) { p.remove("l/1") }, []string{"l/2"}, []string{"l/1"}},
		"a link in a link's place": {func(p *project) { p.remove("l/2"); p.link("l/1", "l/3") }, []string{"l/1", "l/3"}, []string{"l/2"}},
		"directory renamed":        {func(p *project) { p.rename("d", "f") }, []string{"f/a", "f/b"}, []string{"d/a", "d/b"}},
		"directories swapped": {func(p *project) { p.rename("d", "x"); p.rename("e", "d"); p.rename("x", "e") },
			[]string{"d/a", "e/a", "e/b"}, []string{"d/b"}},
		"directory replaced":   {func(p *project) { p.remove("d"); p.write("d/a", "1"); p.write("d/c", "5") }, []string{"d/a", "d/c"}, []string{"d/b"}},
		"directory emptied":    {func(p *project) { p.remove("d/a"); p.remove("d/b") }, nil, []string{"d/a", "d/b"}},
		"directory gone":       {func(p *project) { p.remove("d") }, nil, []string{"d/a", "d/b"}},
		"file for a directory": {func(p *project) { p.remove("d"); p.write("d", "6") }, []string{"d"}, []string{"d/a", "d/b"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProject(t, "d/a=1", "d/b=2", "e/a=3", "l/1=4", "g=7")
			p.link("l/1", "l/2")
			p.settle()
			p.calledFor("d/a", "d/b", "e/a", "g", "l/1", "l/2")
			p.calledFor()
			c.change(p)
			p.settle()
			got := p.run()
			for _, rel := range c.calls {
				require.Contains(t, p.calls, rel)
			}
			require.Subset(t, append(c.calls, p.gone...), p.calls)
			require.ElementsMatch(t, c.gone, p.gone)
			p.calledFor()
			// By content, and by name.
			p.inc.Compare = incremental.CompareContent
			require.ElementsMatch(t, got, p.run())
			p.calledFor()
			p.inc.Compare = incremental.CompareAuto
			var rels []string
			for e, err := range fileproc.Walk(t.Context(), p.root, fileproc.Options{}) {
				require.NoError(t, err)
				if !e.IsDir() {
					rels = append(rels, e.Rel())
				}
			}
			require.ElementsMatch(t, got, p.run())
			p.opts.Files = slices.Values(rels)
			found, err := p.try(t.Context())
			require.NoError(t, err)
			require.ElementsMatch(t, got, found)
			require.Empty(t, p.calls)
		})
	}
}

func (p *project) rename(from, to string) { require.NoError(p.t, os.Rename(p.path(from), p.path(to))) }
func (p *project) link(from, to string)   { require.NoError(p.t, os.Link(p.path(from), p.path(to))) }
func (p *project) remove(rel string)      { require.NoError(p.t, os.RemoveAll(p.path(rel))) }

// TestSameSizeWithinATick: a file written twice within the same step of the file system's clock shows its last content,
// also if it was processed in between.
func TestSameSizeWithinATick(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	for i := range 60 {
		p.write("f", fmt.Sprintf("%03d-a", i))
		p.run()
		p.write("f", fmt.Sprintf("%03d-b", i))
		p.run()
	}
}

func TestMetadataThatLies(t *testing.T) {
	t.Parallel()
	incremental.NeedsTimes(t)
	p := newProject(t, "a=one", "b=two", "c=thr")
	p.run()
	before, err := os.Stat(p.path("a"))
	require.NoError(t, err)
	p.write("a", "ONE")
	require.NoError(t, os.Chtimes(p.path("a"), before.ModTime(), before.ModTime()))
	require.NoError(t, os.Rename(p.path("b"), p.path("x")))
	require.NoError(t, os.Rename(p.path("c"), p.path("b")))
	require.NoError(t, os.Rename(p.path("x"), p.path("c")))
	p.run()
	p.settle()
	p.run()
	p.calledFor()
	for _, long := range []time.Time{time.Unix(0, 0), time.Unix(-1e9, 0)} {
		require.NoError(t, os.Chtimes(p.path("a"), long, long))
		p.settle()
		p.calledFor("a")
		p.calledFor()
	}
	far := time.Now().Add(24 * time.Hour)
	require.NoError(t, os.Chtimes(p.path("a"), far, far))
	p.settle()
	p.calledFor("a")
	p.calledFor("a") // from the future
}

// TestPowerLoss: after a reboot, the disk may have old content beside new times. If a file changed shortly before its result was
// saved, the result is not used then, nor after later reboots; Deleted still knows the file.
func TestPowerLoss(t *testing.T) {
	incremental.NeedsTimes(t)
	p := newProject(t, "a=1", "b=2", "c=3")
	boot := func(name string, ahead time.Duration) { t.Cleanup(incremental.Boot(name, ahead)) }
	boot("first", cachefile.WrittenBack-time.Minute)
	p.calledFor("a", "b", "c")
	p.calledFor()
	boot("second", cachefile.WrittenBack+time.Minute)
	p.opts.Files = slices.Values([]string{"a"})
	p.calledFor("a")
	p.opts.Files = nil
	require.NoError(t, os.Remove(p.path("c")))
	p.calledFor("b")
	require.Equal(t, []string{"c"}, p.gone)
	p.calledFor()
	boot("third", 0)
	p.calledFor() // they had been on the disk for long
	boot("", 0)
	p.calledFor()
	p.write("a", "x")
	p.settle()
	p.calledFor("a")
	p.calledFor("a") // nobody knows whether the machine was started in between
}

func TestVersionAndOptions(t *testing.T) {
	t.Parallel()
	incremental.NeedsTimes(t)
	p := newProject(t, "a=abc")
	for _, change := range []func(){
		func() {}, func() { p.inc.Version = "2" }, func() { p.opts.ReadSize = 2 }, func() { p.opts.MaxFileSize = 1000 }, func() { p.opts.SkipBinary = true },
		func() { p.inc.Codec = incremental.Raw[string]() }, func() { p.root += "/." },
	} {
		change()
		p.calledFor("a")
		p.calledFor()
	}
	type otherType struct{ A string }
	got, err := incremental.Process(t.Context(), p.root, incremental.Options[otherType]{File: p.inc.File, Version: p.inc.Version}, p.opts, func(f *fileproc.File) (otherType, error) {
		return otherType{string(f.Data())}, nil
	})
	require.NoError(t, err)
	require.Equal(t, []otherType{{"ab"}}, got)
}

// TestOthersStay: the entries of files that a run does not select, or does not come to, stay.
func TestOthersStay(t *testing.T) {
	t.Parallel()
	p := newProject(t, "a.md=1", "b.txt=2", "d/c.md=3", "ignored/x.md=4", "ignored/y.md=5")
	p.run()
	require.NoError(t, os.RemoveAll(p.path("ignored")))
	require.NoError(t, os.Remove(p.path("b.txt")))
	p.write(".ignore", "ignored/\n")
	p.opts = fileproc.Options{Suffixes: []string{".md"}, IgnoreFiles: []string{".ignore"}}
	p.calledFor()
	require.Empty(t, p.gone)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p.opts = fileproc.Options{}
	_, err := p.try(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, p.gone)
	_, err = incremental.Process(t.Context(), p.root+"-not-there", p.inc, p.opts, result)
	require.ErrorIs(t, err, fs.ErrNotExist)
	inc := p.inc
	inc.Deleted = func(rel string) { t.Error(rel) }
	for range incremental.Stream(t.Context(), p.root, inc, p.opts, result) {
		break
	}
	p.write("fresh", "6") // fn is called
	_, err = incremental.Process(t.Context(), p.root, inc, p.opts, func(f *fileproc.File) (string, error) { return "", fs.SkipAll })
	require.NoError(t, err)
	p.opts = fileproc.Options{Suffixes: []string{"fresh"}, OnError: func(err error) error { return err }}
	p.write("gone.fresh", "7")
	_, err = p.try(t.Context())
	require.NoError(t, err)
	require.NoError(t, os.Remove(p.path("gone.fresh")))
	p.write("fresh", "8") // fn is called
	_, err = incremental.Process(t.Context(), p.root, inc, p.opts, func(f *fileproc.File) (string, error) { return "", fs.ErrInvalid })
	require.ErrorIs(t, err, fs.ErrInvalid)
	p.opts = fileproc.Options{}

	p.run()
	require.Equal(t, []string{"b.txt", "gone.fresh", "ignored/x.md", "ignored/y.md"}, p.gone)
	p.run()
	require.Empty(t, p.gone)
}

// TestSavedOnTheWay: a run that does not end keeps what it has saved.
func TestSavedOnTheWay(t *testing.T) {
	defer incremental.SaveAlways()()
	p := newProject(t, testtree.Numbered("", 20)...)
	p.opts.Workers = 1
	n := 0
	require.Panics(t, func() {
		_, _ = incremental.Process(t.Context(), p.root, p.inc, p.opts, func(f *fileproc.File) (string, error) {
			if n++; n == 11 {
				panic("in the middle")
			}
			return result(f)
		})
	})
	p.run()
	require.Len(t, p.calls, 10)
}

// TestFilesByName: Options.Files works as without a cache file, and says nothing of other files.
func TestFilesByName(t *testing.T) {
	t.Parallel()
	p := newProject(t, "a=1", "b=2", "d/c=3", "d/e=4")
	p.opts.Files = slices.Values([]string{"a", "d/c", "d/c"})
	p.calledFor("a", "d/c", "d/c")
	p.calledFor()
	p.opts.Files = nil
	p.calledFor("b", "d/e")
	require.NoError(t, os.Remove(p.path("b")))
	p.opts.Files = slices.Values([]string{"a"})
	p.calledFor()
	require.Empty(t, p.gone)
	p.opts.Files = nil
	p.calledFor()
	require.Equal(t, []string{"b"}, p.gone)
}

// TestOddNames: runs treat names that are not UTF-8, and names with characters that mean something in patterns, like other names.
func TestOddNames(t *testing.T) {
	t.Parallel()
	if !testtree.Make(t, t.TempDir(), "odd \n*[/b.md=1") {
		t.Skip("this platform allows no newline, * or [ in a name")
	}
	p := newProject(t, "d/odd \n*[/b.md=1", "a=1", "d/x=1")
	p.inc.Codec = incremental.Raw[string]()
	odd := "d/\xff.md"
	if os.WriteFile(p.path(odd), []byte("2"), 0o644) != nil {
		odd = "d/x" // the file system refuses it
	}
	p.settle()
	p.opts = fileproc.Options{IgnoreFiles: []string{".ignore"}, SkipMarked: []string{".nobackup"}, Exclude: []string{"**/e"}}
	p.run()
	for _, rel := range []string{"d/odd \n*[/b.md", "a", odd} {
		require.NoError(t, os.Remove(p.path(rel)))
	}
	p.calledFor()
	require.ElementsMatch(t, []string{"d/odd \n*[/b.md", "a", odd}, p.gone)
}

func TestShardsShareAFile(t *testing.T) {
	t.Parallel()
	p := newProject(t, testtree.Numbered("d/", 40)...)
	p.opts.Shards = 3
	for p.opts.Shard = range 3 {
		require.NotEmpty(t, p.run())
		require.Empty(t, p.gone)
	}
	all, err := os.ReadDir(p.path("d"))
	require.NoError(t, err)
	require.NoError(t, os.Remove(p.path("d/"+all[7].Name())))
	told := 0
	for p.opts.Shard = range 3 {
		p.calledFor()
		told += len(p.gone)
	}
	require.Equal(t, 1, told)
}

// TestReplacedByALink: a file or a directory that a link has replaced no longer exists.
func TestReplacedByALink(t *testing.T) {
	t.Parallel()
	p := newProject(t, "a=1", "d/b=2", "e/b=3")
	p.run()
	require.NoError(t, os.Rename(p.path("a"), p.path("real")))
	testtree.Symlink(t, "real", p.path("a"))
	require.NoError(t, os.Rename(p.path("d"), p.path("old")))
	require.NoError(t, os.Symlink("e", p.path("d")))
	p.calledFor("old/b", "real")
	require.Equal(t, []string{"a", "d/b"}, p.gone)
	p.opts.Symlinks = fileproc.SymlinksFiles
	p.run()
	require.Contains(t, p.calls, "a")
	require.NoError(t, os.Rename(p.path("old"), p.path("older")))
	require.NoError(t, os.Symlink("older", p.path("old"))) // to a directory: that is not followed
	p.run()
	require.Equal(t, []string{"old/b"}, p.gone)
}

// TestOwnFiles: fn does not get the cache file, its lock and its temporary files if they are below root.
func TestOwnFiles(t *testing.T) {
	p := newProject(t, "d/a=1", "d/cache.locked=2", "d/cache=", "d/cache.fileproc-tmp-1f=torn", "d/cache.tmp=3", "d/.lock=4", "d/.fileproc-tmp-1=5", "cache=6", "d/e/cache.lock=7")
	for _, compare := range []incremental.Compare{incremental.CompareAuto, incremental.CompareContent} {
		t.Chdir(p.root)
		p.inc = incremental.Options[string]{File: "d/cache", Compare: compare}
		for range 3 {
			got, err := p.try(t.Context())
			require.NoError(t, err)
			require.ElementsMatch(t, []string{"d/a=1", "d/cache.locked=2", "d/cache.tmp=3", "d/.lock=4", "d/.fileproc-tmp-1=5", "cache=6", "d/e/cache.lock=7"}, got)
		}
		require.Empty(t, p.calls)
		require.FileExists(t, "d/cache")
	}
}

// TestNoOwnFilesElsewhere: if the cache file is not below root, fn gets each file, whatever its name is.
func TestNoOwnFilesElsewhere(t *testing.T) {
	t.Parallel()
	p := newProject(t, ".lock=1", ".fileproc-tmp-1=2", "cache=3", "d/cache.lock=4")
	p.calledFor(".fileproc-tmp-1", ".lock", "cache", "d/cache.lock")
	p.calledFor()

	p.inc.File, p.opts.FS = p.path("own"), os.DirFS(p.root) // nobody knows where the files of an FS are
	p.root = "."
	for _, n := range []int{4, 6} {
		got, err := p.try(t.Context())
		require.NoError(t, err)
		require.Len(t, got, n)
	}
	require.Equal(t, []string{"own", "own.lock"}, p.calls)
}

// TestCacheByAnotherName: fn does not get the cache file through a link or by its second name either. It does get a copy.
func TestCacheByAnotherName(t *testing.T) {
	t.Parallel()
	for _, compare := range []incremental.Compare{incremental.CompareAuto, incremental.CompareContent} {
		for _, size := range []int{0, 4, fileproc.NoRead} {
			p := newProject(t, "a=1", "empty=")
			p.inc.Compare, p.opts.ReadSize = compare, size
			if p.opts.Symlinks = fileproc.SymlinksFiles; size == fileproc.NoRead && compare == incremental.CompareContent {
				continue // nothing is looked up that fn does not ask for
			}
			p.opts.SymlinksOutside = true
			_, err := p.try(t.Context())
			require.NoError(t, err)
			content, err := os.ReadFile(p.inc.File)
			require.NoError(t, err)
			if err := os.Link(p.inc.File, p.path("second")); err != nil {
				t.Skip("no hard links: ", err)
			}
			testtree.Symlink(t, p.inc.File, p.path("link"))
			p.write("copy", string(content))
			p.write("prefix", string(content[:10]))
			var report fileproc.Report
			p.opts.Report = &report
			p.settle()
			got, err := p.try(t.Context())
			require.NoError(t, err)
			if keeps, _ := fsinfo.KeepsTimes(p.root); size == fileproc.NoRead && !keeps {
				continue
			}
			require.Len(t, got, 4)
			require.NotContains(t, got, "")
			require.Subset(t, p.calls, []string{"copy", "prefix"})
			require.NotContains(t, p.calls, "second")
			require.NotContains(t, p.calls, "link")
			require.EqualValues(t, 4, report.Unchanged)
		}
	}
}

func TestCompareContent(t *testing.T) {
	t.Parallel()
	p := newProject(t, "a=1", "b=2", "c.skip=3")
	p.inc.Compare = incremental.CompareContent
	var report fileproc.Report
	p.opts.Report = &report
	p.calledFor("a", "b", "c.skip")
	_, err := p.try(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 3, report.Unchanged)
	require.Empty(t, p.calls)
	p.write("a", "x")
	require.NoError(t, os.Remove(p.path("b")))
	p.calledFor("a")
	require.Equal(t, []string{"b"}, p.gone)
	p.calledFor() // content is kept however new it is
	p.opts.ReadSize = fileproc.NoRead
	p.calledFor("a", "c.skip")
	p.calledFor("a", "c.skip")
}

func TestFS(t *testing.T) {
	t.Parallel()
	files := fstest.MapFS{"a": {Data: []byte("1")}, "d/b": {Data: []byte("2")}, "d/c.skip": {Data: []byte("3")}}
	inc := incremental.Options[string]{File: filepath.Join(t.TempDir(), "cache")}
	var gone []string
	inc.Deleted = func(rel string) { gone = append(gone, rel) }
	calls := 0
	run := func(want ...string) {
		calls = 0
		got, err := incremental.Process(t.Context(), ".", inc, fileproc.Options{FS: files, Workers: 1}, func(f *fileproc.File) (string, error) {
			calls++
			return result(f)
		})
		require.NoError(t, err)
		require.ElementsMatch(t, want, got)
	}
	run("a=1", "d/b=2")
	require.Equal(t, 3, calls)
	run("a=1", "d/b=2")
	require.Zero(t, calls)
	files["a"].Data = []byte("2")
	delete(files, "d/b")
	run("a=2")
	require.Equal(t, 1, calls)
	require.Equal(t, []string{"d/b"}, gone)
}

// TestStream: Stream gives the same as Process, in order too, and each loop is a run of its own.
func TestStream(t *testing.T) {
	t.Parallel()
	for _, ordered := range []bool{false, true} {
		p := newProject(t, append(testtree.Numbered("d/", 300), "a=1", "z.skip=2")...)
		p.opts.Ordered = ordered
		full, err := fileproc.Process(t.Context(), p.root, p.opts, result)
		require.NoError(t, err)
		var mu sync.Mutex
		calls := 0
		seq := incremental.Stream(t.Context(), p.root, p.inc, p.opts, func(f *fileproc.File) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			calls++
			return result(f)
		})
		for _, want := range []int{302, 0, 0} {
			calls = 0
			var got []string
			for v, err := range seq {
				require.NoError(t, err)
				got = append(got, v)
			}
			require.Equal(t, want, calls)
			if ordered {
				require.Equal(t, full, got)
			}
			require.ElementsMatch(t, full, got)
		}
	}
}

func TestForEach(t *testing.T) {
	t.Parallel()
	p := newProject(t, "a=1", "b.skip=2", "fail=3")
	inc := incremental.Options[struct{}]{File: p.inc.File}
	var report fileproc.Report
	failure := errors.New("broken")
	run := func() (calls []string) {
		err := incremental.ForEach(t.Context(), p.root, inc, fileproc.Options{Workers: 1, Report: &report}, func(f *fileproc.File) error {
			calls = append(calls, f.Name())
			if f.Name() == "fail" {
				return failure
			}
			_, err := result(f)
			return err
		})
		require.ErrorIs(t, err, failure)
		slices.Sort(calls)
		return calls
	}
	require.Equal(t, []string{"a", "b.skip", "fail"}, run())
	require.Equal(t, []string{"fail"}, run())
	require.EqualValues(t, 2, report.Unchanged)
	require.EqualValues(t, 1, report.Failed)
	p.write("fail", "4")
	require.Equal(t, []string{"fail"}, run())
}

// TestSettledBeforeTheRun: a file that was changed after the run had begun is not kept, however long fn takes.
func TestSettledBeforeTheRun(t *testing.T) {
	t.Parallel()
	incremental.NeedsTimes(t)
	p := newProject(t, "a=1")
	p.opts.Files = func(yield func(string) bool) {
		p.write("b", "2")
		if yield("a") {
			yield("b")
		}
	}
	_, err := incremental.Process(t.Context(), p.root, p.inc, p.opts, func(f *fileproc.File) (string, error) {
		p.settle()
		return result(f)
	})
	require.NoError(t, err)
	kept := incremental.Kept(p.root, p.inc, p.opts)
	require.Contains(t, kept, "a")
	require.NotContains(t, kept, "b")
}

// TestChangedWhileRead: the result of a file that changes while fn has it is not kept, whenever the change comes.
func TestChangedWhileRead(t *testing.T) {
	t.Parallel()
	p := newProject(t, "a=1", "b=2")
	got, err := incremental.Process(t.Context(), p.root, p.inc, p.opts, func(f *fileproc.File) (string, error) {
		if f.Name() == "a" {
			p.write("a", "X")
		}
		return result(f)
	})
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"a=1", "b=2"}, got)
	p.calledFor("a")
}

// TestCodecs: results come as the codec gives them, from the cache file or not. A result that a codec cannot keep is an error, or
// its file is processed in each run.
func TestCodecs(t *testing.T) {
	t.Parallel()
	p := newProject(t, "a=1")
	type note struct {
		Name string
		Tags map[string]any
		Next *note
	}
	v := note{"n", map[string]any{"x": 1.5, "y": "z"}, &note{Name: "m"}}
	for name, codec := range map[string]incremental.Codec[note]{"default": nil, "JSON": incremental.JSON[note](), "Gob": incremental.Gob[note]()} {
		inc := incremental.Options[note]{File: p.inc.File, Version: name, Codec: codec}
		for range 2 {
			got, err := incremental.Process(t.Context(), p.root, inc, p.opts, func(*fileproc.File) (note, error) { return v, nil })
			require.NoError(t, err)
			require.Equal(t, []note{v}, got)
		}
	}
	type hidden struct{ name string }
	_ = hidden{}.name
	_, err := incremental.Process(t.Context(), p.root, incremental.Options[map[string][]hidden]{File: p.inc.File}, p.opts, func(*fileproc.File) (map[string][]hidden, error) { return nil, nil })
	require.EqualError(t, err, "incremental: JSON leaves out the field name of incremental_test.hidden: export it, or name a Codec that keeps it")

	for range 2 {
		got, err := incremental.Process(t.Context(), p.root, incremental.Options[any]{File: p.inc.File}, p.opts, func(*fileproc.File) (any, error) { return func() {}, nil })
		require.ErrorIs(t, err, incremental.ErrNotSaved)
		require.ErrorContains(t, err, "1 cannot be encoded, such as the result for a: json: unsupported type: func()")
		require.Len(t, got, 1)
	}
	got, err := incremental.Process(t.Context(), p.root, incremental.Options[any]{File: p.inc.File}, p.opts, func(*fileproc.File) (any, error) { return 7, nil })
	require.NoError(t, err)
	require.Equal(t, []any{7.0}, got, "as JSON decodes it")
}

type word string

// TestEmbeddedInJSON: JSON leaves out an embedded field of an unexported type, unless that type is a struct, and fields that share
// their name with others.
func TestEmbeddedInJSON(t *testing.T) {
	t.Parallel()
	p := newProject(t, "a=1")
	type title struct{ word }
	_, err := incremental.Process(t.Context(), p.root, incremental.Options[title]{File: p.inc.File}, p.opts, func(*fileproc.File) (title, error) { return title{"w"}, nil })
	require.EqualError(t, err, "incremental: JSON leaves out the field word of incremental_test.title: export it, or name a Codec that keeps it")
	type inner struct{ Word string }
	type outer struct{ inner }
	refused := func(err error, want string) {
		require.EqualError(t, err, "incremental: JSON leaves out the field "+want+" or another one of that name: give it a name of its own, or name a Codec that keeps it")
	}
	refused(jsonRefuses[struct {
		inner
		Word string
	}](p), "Word of struct { incremental_test.inner; Word string }")
	type tagged struct {
		inner
		A string `json:"Word"`
	}
	refused(jsonRefuses[[]tagged](p), "A of incremental_test.tagged")
	type other struct{ Word string }
	type both struct {
		*inner
		other
	}
	refused(jsonRefuses[map[string]both](p), "Word of incremental_test.other")
	_ = chain{}.chain
	refused(jsonRefuses[chain](p), "chain of incremental_test.chain")
	type apart struct {
		inner
		Word2 string `json:"word"`
		Next  *inner
		Other inner `json:",omitempty"`
		other `json:"apart"`
	}
	require.NoError(t, jsonRefuses[apart](p))
	got, err := incremental.Process(t.Context(), p.root, incremental.Options[outer]{File: p.inc.File}, p.opts, func(*fileproc.File) (outer, error) { return outer{inner{"w"}}, nil })
	require.NoError(t, err)
	require.Equal(t, []outer{{inner{"w"}}}, got)
}

type chain struct {
	*chain
	Word string
}

func jsonRefuses[T any](p *project) error {
	_, err := incremental.Process(p.t.Context(), p.root, incremental.Options[T]{File: p.inc.File}, p.opts, func(*fileproc.File) (v T, err error) { return v, nil })
	return err
}

// TestRawNil: an empty result is the same whether it comes from the cache file or not.
func TestRawNil(t *testing.T) {
	t.Parallel()
	p := newProject(t, "a=1", "b=22")
	inc := incremental.Options[[]byte]{File: p.inc.File, Codec: incremental.Raw[[]byte]()}
	p.opts.Workers = 1
	for range 2 {
		got, err := incremental.Process(t.Context(), p.root, inc, p.opts, func(f *fileproc.File) ([]byte, error) { return nil, nil })
		require.NoError(t, err)
		require.Equal(t, [][]byte{nil, nil}, got)
	}
}

// TestSelectDirOfTheGone: where one worker calls SelectDir, the calls for directories that are gone do not overlap either.
func TestSelectDirOfTheGone(t *testing.T) {
	t.Parallel()
	var list []string
	for i := range 30 {
		list = append(list, fmt.Sprintf("%d/%d/a=1", i%10, i))
	}
	p := newProject(t, list...)
	var inside atomic.Int32
	p.opts.Workers = 1
	p.opts.SelectDir = func(fileproc.Entry) bool {
		require.EqualValues(t, 1, inside.Add(1))
		time.Sleep(time.Millisecond)
		inside.Add(-1)
		return true
	}
	p.run()
	require.NoError(t, os.RemoveAll(p.root))
	require.NoError(t, os.Mkdir(p.root, 0o755))
	p.run()
	require.Len(t, p.gone, 30)
}

// TestNotUTF8: JSON cannot hold text that is not UTF-8, so a file with such a result is processed in each run.
func TestNotUTF8(t *testing.T) {
	t.Parallel()
	p := newProject(t, "latin1=caf\xe9", "utf8=caf\u00e9 \ufffd")
	p.calledFor("latin1", "utf8")
	p.calledFor("latin1")
}

func TestBadOptions(t *testing.T) {
	t.Parallel()
	_, err := incremental.Process(t.Context(), t.TempDir(), incremental.Options[string]{Compare: 4}, fileproc.Options{}, result)
	require.EqualError(t, err, `incremental: Options.File is empty: only a Session keeps results in memory
incremental: Options.Compare is 4: want CompareAuto, CompareMetadata, CompareContent or CompareGit`)
	n := 0
	for _, err := range incremental.Stream(t.Context(), t.TempDir(), incremental.Options[string]{}, fileproc.Options{}, result) {
		require.EqualError(t, err, "incremental: Options.File is empty: only a Session keeps results in memory")
		n++
	}
	require.Equal(t, 1, n)
	err = incremental.ForEach(t.Context(), t.TempDir(), incremental.Options[struct{}]{}, fileproc.Options{}, func(*fileproc.File) error { return nil })
	require.EqualError(t, err, "incremental: Options.File is empty: only a Session keeps results in memory")
	_, err = incremental.Process(t.Context(), t.TempDir(), incremental.Options[struct{ a int }]{}, fileproc.Options{}, nil)
	require.ErrorContains(t, err, "Options.File is empty")
	require.ErrorContains(t, err, "JSON leaves out")
	inc := incremental.Options[string]{File: filepath.Join(t.TempDir(), "cache")}
	_, err = incremental.Process(t.Context(), t.TempDir(), inc, fileproc.Options{MaxDepth: -1, Workers: -3}, result)
	require.ErrorContains(t, err, "fileproc: Options.MaxDepth is -1")
	_, err = incremental.Process[string](t.Context(), t.TempDir(), inc, fileproc.Options{}, nil)
	require.EqualError(t, err, "fileproc: fn is nil")
	require.EqualError(t, incremental.ForEach(t.Context(), t.TempDir(), incremental.Options[struct{}]{File: inc.File}, fileproc.Options{}, nil), "fileproc: fn is nil")
	require.NoFileExists(t, inc.File)
}

// TestBadOptionsChangeNothing: a run whose options are refused tells of no deletion, and leaves the Report as it is.
func TestBadOptionsChangeNothing(t *testing.T) {
	t.Parallel()
	p := newProject(t, "a=1", "b=2")
	p.run()
	require.NoError(t, os.Remove(p.path("b")))
	for _, opts := range []fileproc.Options{{ReadSize: -5}, {Workers: 1 << 17}, {Workers: math.MaxInt}, {Workers: -1}, {Symlinks: 7}} {
		for _, files := range []iter.Seq[string]{nil, slices.Values([]string{"b"})} {
			opts.Report, opts.Files = &fileproc.Report{Found: 7}, files
			p.opts = opts
			got, err := p.try(t.Context())
			require.ErrorContains(t, err, "fileproc: Options.")
			require.Empty(t, got)
			require.Empty(t, p.gone)
			require.Equal(t, fileproc.Report{Found: 7}, *opts.Report)
		}
	}
	p.opts = fileproc.Options{}
	p.run()
	require.Equal(t, []string{"b"}, p.gone)
}

// TestStoppedIsNoOutcome: a file for which fn has returned fs.SkipAll is processed again, although its type of result can be empty.
func TestStoppedIsNoOutcome(t *testing.T) {
	t.Parallel()
	p := newProject(t, "a=1")
	for _, compare := range []incremental.Compare{incremental.CompareAuto, incremental.CompareContent} {
		inc := incremental.Options[struct{}]{File: p.inc.File, Compare: compare, Version: fmt.Sprint(compare)}
		for range 2 {
			calls := 0
			require.NoError(t, incremental.ForEach(t.Context(), p.root, inc, fileproc.Options{}, func(*fileproc.File) error {
				calls++
				return fs.SkipAll
			}))
			require.Equal(t, 1, calls)
		}
	}
}

// TestBinaryFilesWhereContentIsCompared: the outcome of a binary file is not kept, because nothing has its content. So a file in its place
// that is empty is processed.
func TestBinaryFilesWhereContentIsCompared(t *testing.T) {
	t.Parallel()
	p := newProject(t, "a=x\x00y")
	p.inc.Compare, p.opts.SkipBinary = incremental.CompareContent, true
	for range 2 {
		p.calledFor()
		require.Equal(t, map[string]string{"a": incremental.Noted}, incremental.Kept(p.root, p.inc, p.opts))
	}
	p.write("a", "")
	p.calledFor("a")
}

// TestMetadataOfAnFS: CompareMetadata compares the metadata of an FS too, and reads nothing that is unchanged. A file without a time
// is never unchanged, nor is one of which nothing is known, however little its metadata says.
func TestMetadataOfAnFS(t *testing.T) {
	t.Parallel()
	long := time.Now().Add(-time.Hour)
	files := fstest.MapFS{"a": {Data: []byte("1"), ModTime: long}, "timeless": {Data: []byte("2")}, "empty": {ModTime: time.Unix(0, 0)}}
	var report fileproc.Report
	inc := incremental.Options[string]{File: filepath.Join(t.TempDir(), "cache"), Compare: incremental.CompareMetadata, Codec: incremental.Raw[string]()}
	opts := fileproc.Options{FS: files, Workers: 1, Report: &report}
	run := func(unchanged, bytes int) {
		got, err := incremental.Process(t.Context(), ".", inc, opts, result)
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"a=" + string(files["a"].Data), "timeless=2", "empty="}, got)
		require.EqualValues(t, unchanged, report.Unchanged)
		require.EqualValues(t, bytes, report.Bytes)
	}
	run(0, 2)
	run(2, 1)
	files["a"].Data = []byte("12")
	run(1, 3)
	inc.Compare = incremental.CompareAuto
	run(0, 3)
	run(3, 3)

	opts.ReadSize = fileproc.NoRead // then a run that compares content keeps nothing
	for _, compare := range []incremental.Compare{incremental.CompareContent, incremental.CompareMetadata} {
		inc.Compare = compare
		_, err := incremental.Process(t.Context(), ".", inc, opts, result)
		require.NoError(t, err)
		require.Zero(t, report.Unchanged)
	}
}

// Flaky is a codec that cannot decode once in a while.
type flaky struct{ fails *atomic.Int32 }

func (f flaky) Append(b []byte, v string) ([]byte, error) { return append(b, v...), nil }
func (f flaky) Decode(b []byte) (string, error) {
	if f.fails.Add(-1) >= 0 {
		return "", errors.New("not now")
	}
	return string(b), nil
}

// TestResultsThatCannotBeDecoded: if what is kept of a file cannot be decoded, fn is called.
func TestResultsThatCannotBeDecoded(t *testing.T) {
	t.Parallel()
	for _, compare := range []incremental.Compare{incremental.CompareAuto, incremental.CompareContent} {
		p := newProject(t, "a=1", "b=2")
		fails := new(atomic.Int32)
		p.inc.Compare, p.inc.Codec, p.opts.Workers, p.opts.Ordered = compare, flaky{fails}, 1, true
		p.run()
		fails.Store(1)
		p.run()
		require.Len(t, p.calls, 1)
		p.calledFor()
	}
}

// TestNotSaved: results are complete if the cache file cannot be written, and a file that is no cache is left alone.
func TestNotSaved(t *testing.T) {
	t.Parallel()
	p := newProject(t, "a=1")
	foreign := filepath.Join(filepath.Dir(p.root), "notes.md")
	require.NoError(t, os.WriteFile(foreign, []byte("# not a cache\n"), 0o644))
	for _, file := range []string{filepath.Join(p.root, "a", "cache"), p.root, foreign} {
		p.inc.File = file
		got, err := p.try(t.Context())
		require.ErrorIs(t, err, incremental.ErrNotSaved)
		require.ErrorContains(t, err, file)
		require.Equal(t, []string{"a=1"}, got)
		var errs []error
		for _, err := range incremental.Stream(t.Context(), p.root, p.inc, p.opts, result) {
			errs = append(errs, err)
		}
		require.Len(t, errs, 2)
		require.NoError(t, errs[0])
		require.ErrorIs(t, errs[1], incremental.ErrNotSaved)
		for _, err := range incremental.Stream(t.Context(), p.root, p.inc, p.opts, result) {
			require.NoError(t, err)
			break // the loop gets no error then
		}
	}
	text, err := os.ReadFile(foreign)
	require.NoError(t, err)
	require.Equal(t, "# not a cache\n", string(text))
}

// TestTreesThatShareAFile: two trees with the root "." and one cache file get right results, and lose each other's entries, as
// the documentation says.
func TestTreesThatShareAFile(t *testing.T) {
	p := newProject(t, "x/a=1", "x/b=2", "y/a=3", "y/c=4")
	top := p.root
	p.root = "."
	for range 2 {
		t.Chdir(filepath.Join(top, "x"))
		p.run()
		p.calledFor()
		t.Chdir(filepath.Join(top, "y"))
		p.calledFor("a", "c")
		require.Equal(t, []string{"b"}, p.gone)
		p.calledFor()
	}
}

// TestRootIsFile: a root that leads to a file is unchanged until its content changes.
func TestRootIsFile(t *testing.T) {
	dir := t.TempDir()
	root := filepath.Join(dir, "f.md")
	for _, compare := range []incremental.Compare{incremental.CompareAuto, incremental.CompareContent} {
		inc := incremental.Options[string]{File: filepath.Join(t.TempDir(), "cache"), Version: "1", Compare: compare}
		for i, content := range []string{"one", "one", "two"} {
			require.NoError(t, os.WriteFile(root, []byte(content), 0o666))
			var report fileproc.Report
			got, err := incremental.Process(t.Context(), root, inc, fileproc.Options{Report: &report, Suffixes: []string{".none"}}, func(f *fileproc.File) (string, error) {
				return f.Rel() + string(f.Data()), nil
			})
			require.NoError(t, err)
			require.Equal(t, []string{"f.md" + content}, got)
			if compare == incremental.CompareContent {
				require.Equal(t, i == 1, report.Unchanged == 1)
			}
		}
	}
}
