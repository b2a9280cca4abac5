package fileproc_test

import (
	"archive/zip"
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

// TestFSWithNamesThatAreNotUTF8: no fs.FS opens such a name (fs.ValidPath), so it is a failure and not silently left out.
func TestFSWithNamesThatAreNotUTF8(t *testing.T) {
	dir := t.TempDir()
	if !testtree.Make(t, dir, "a.md=1", "\xff.md=2", "d\xfe/b.md=3") {
		return // testtree has logged why
	}
	var report fileproc.Report
	got, err := fileproc.Process(t.Context(), ".", fileproc.Options{FS: os.DirFS(dir), Report: &report}, nameOf)
	require.Equal(t, []string{"a.md"}, got)
	require.ErrorIs(t, err, fs.ErrInvalid)
	require.EqualValues(t, 2, report.Failed)
	require.EqualValues(t, 3, report.Found)
	requireBalanced(t, report)
}

//go:embed testdata/example
var embedded embed.FS

// TestEmbedFS: files that are embedded in the program are those that were on disk.
func TestEmbedFS(t *testing.T) {
	content := func(f *fileproc.File) (string, error) { return f.Rel() + ": " + string(f.Data()), nil }
	opts := fileproc.Options{SkipHidden: true, Ordered: true} // go:embed leaves out hidden files
	want, err := fileproc.Process(t.Context(), "testdata/example", opts, content)
	require.NoError(t, err)
	opts.FS = embedded
	got, err := fileproc.Process(t.Context(), "testdata/example", opts, content)
	require.NoError(t, err)
	require.Len(t, got, 4)
	require.Equal(t, want, got)
}

// TestZipWithEqualNames: package zip lists no directory that has two files of one name. So the directory is a failure, and all else is
// delivered; with Options.Files all is.
func TestZipWithEqualNames(t *testing.T) {
	var archive bytes.Buffer
	z := zip.NewWriter(&archive)
	for _, name := range []string{"a", "d/b", "d/c", "d/b", "d/e/f", "g/h"} {
		w, err := z.Create(name)
		require.NoError(t, err)
		_, err = fmt.Fprint(w, name, archive.Len())
		require.NoError(t, err)
	}
	require.NoError(t, z.Close())
	zipped, err := zip.NewReader(bytes.NewReader(archive.Bytes()), int64(archive.Len()))
	require.NoError(t, err)
	first, err := fs.ReadFile(zipped, "d/b")
	require.NoError(t, err)
	var report fileproc.Report
	deliver := func(f *fileproc.File) (string, error) {
		if f.Rel() == "d/b" {
			require.Equal(t, first, f.Data())
		}
		return f.Rel(), nil
	}
	got, err := fileproc.Process(t.Context(), ".", fileproc.Options{FS: zipped, Ordered: true, Report: &report}, deliver)
	failure, ok := errors.AsType[*fileproc.Failure](err)
	require.True(t, ok)
	require.Equal(t, "d", failure.Path)
	require.ErrorContains(t, err, "duplicate entries")
	require.EqualValues(t, 1, report.Failed)
	require.Equal(t, []string{"a", "g/h"}, got)

	names := func(yield func(string) bool) {
		for _, f := range zipped.File {
			if !yield(f.Name) {
				return
			}
		}
	}
	got, err = fileproc.Process(t.Context(), ".", fileproc.Options{FS: zipped, Ordered: true, Files: names}, deliver)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "d/b", "d/b", "d/c", "d/e/f", "g/h"}, got)
}

//go:embed *.go
var sources embed.FS

// TestFSKinds reads implementations of fs.FS from other packages.
func TestFSKinds(t *testing.T) {
	want := map[string]string{"a.md": "alpha", "d/b.md": "beta", "d/e/c.md": testtree.Content(70_000), "d/empty": ""}
	dir := t.TempDir()
	memory := fstest.MapFS{}
	var archive bytes.Buffer
	z := zip.NewWriter(&archive)
	for name, content := range want {
		require.True(t, testtree.Make(t, dir, name+"="+content))
		memory[name] = &fstest.MapFile{Data: []byte(content)}
		w, err := z.Create(name)
		require.NoError(t, err)
		_, err = w.Write([]byte(content))
		require.NoError(t, err)
	}
	require.NoError(t, z.Close())
	zipped, err := zip.NewReader(bytes.NewReader(archive.Bytes()), int64(archive.Len()))
	require.NoError(t, err)
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer root.Close()
	sub, err := fs.Sub(os.DirFS(filepath.Dir(dir)), filepath.Base(dir))
	require.NoError(t, err)
	for name, fsys := range map[string]fs.FS{"zip": zipped, "os.DirFS": os.DirFS(dir), "os.Root": root.FS(), "memory": memory, "fs.Sub": sub} {
		for _, ordered := range []bool{false, true} {
			opts := fileproc.Options{FS: fsys, Ordered: ordered, Workers: 3}
			got := map[string]string{}
			for f, err := range fileproc.Stream(t.Context(), ".", opts, func(f *fileproc.File) ([2]string, error) {
				s, err := f.Stat()
				if err == nil && s.Size != int64(len(f.Data())) {
					err = errors.New("another size")
				}
				return [2]string{f.Rel(), string(f.Data())}, err
			}) {
				require.NoError(t, err, name)
				got[f[0]] = f[1]
			}
			require.Equal(t, want, got, name)
		}
	}
	_, err = fileproc.Process(t.Context(), ".", fileproc.Options{FS: sources, SkipBinary: true}, func(f *fileproc.File) (string, error) {
		content, err := sources.ReadFile(f.Path())
		if err == nil && (len(content) == 0 || !bytes.Equal(content, f.Data())) {
			err = errors.New("another content")
		}
		return f.Rel(), err
	})
	require.NoError(t, err)
}

// broken is a file of an fs.FS that ends with an error, which it returns together with the last content.
type broken struct {
	fs.File
	told bool
}

var errBrokenOff = errors.New("broken off")

func (b *broken) Read(p []byte) (int, error) {
	if b.told {
		return 0, io.EOF
	}
	b.told = true
	return copy(p, "half"), errBrokenOff
}

type brokenFS struct{ fs.FS }

func (b brokenFS) Open(name string) (fs.File, error) {
	f, err := b.FS.Open(name)
	if _, lists := f.(fs.ReadDirFile); err != nil || lists {
		return f, err
	}
	return &broken{File: f}, nil
}

// Content that comes together with an error is not the whole file.
func TestFSReadsBreakOff(t *testing.T) {
	fsys := brokenFS{fstest.MapFS{"f": {Data: []byte("half of it")}}}
	got, err := fileproc.Process(t.Context(), ".", fileproc.Options{FS: fsys}, relOf)
	require.Empty(t, got)
	require.ErrorIs(t, err, errBrokenOff)
}

// stuck is an fs.FS in which no directory can be listed, at any attempt.
type stuck struct{ fs.FS }

type stuckFile struct{ fs.ReadDirFile }

func (s stuck) Open(name string) (fs.File, error) {
	f, err := s.FS.Open(name)
	if d, lists := f.(fs.ReadDirFile); lists {
		return stuckFile{d}, err
	}
	return f, err
}

func (stuckFile) ReadDir(int) ([]fs.DirEntry, error) {
	return nil, &fs.PathError{Op: "lstat", Path: "there", Err: fs.ErrPermission}
}

// An error that repeats is the listing's, even if package os has such an error for an entry.
func TestFSListingIsStuck(t *testing.T) {
	told := 0
	var report fileproc.Report
	_, err := fileproc.Process(t.Context(), ".", fileproc.Options{FS: stuck{fstest.MapFS{"f": {}}}, Report: &report, OnError: func(err error) error {
		require.ErrorIs(t, err, fs.ErrPermission)
		if told++; told > 9 {
			panic("the listing does not end")
		}
		return nil
	}}, relOf)
	require.NoError(t, err)
	require.Equal(t, 1, told)
	require.EqualValues(t, 1, report.Failed)
}

// believing is an fs.FS whose directory d lists entries that it does not have. These can be opened, by any path.
type believing struct {
	fstest.MapFS
	lists  []fs.DirEntry
	opened atomic.Int64
}

type believingDir struct {
	fs.ReadDirFile
	more []fs.DirEntry
}

func (b *believing) Open(name string) (fs.File, error) {
	if b.opened.Add(1) > 10_000 {
		panic("the run does not end")
	}
	f, err := b.MapFS.Open(name)
	if err != nil {
		return b.MapFS.Open("secret")
	}
	if d, ok := f.(fs.ReadDirFile); ok && name == "d" {
		return &believingDir{d, b.lists}, nil
	}
	return f, nil
}

func (d *believingDir) ReadDir(n int) ([]fs.DirEntry, error) {
	entries, err := d.ReadDirFile.ReadDir(n)
	entries = append(entries, d.more...)
	if d.more = nil; len(entries) > 0 {
		err = nil
	}
	return entries, err
}

type listedEntry struct {
	fs.DirEntry
	name string
	typ  fs.FileMode
}

func (e listedEntry) Name() string      { return e.name }
func (e listedEntry) Type() fs.FileMode { return e.typ }
func (e listedEntry) IsDir() bool       { return e.typ.IsDir() }

// listsTwice is a file system whose listings have each name twice.
type listsTwice struct{ fs.FS }

type listsTwiceDir struct{ fs.ReadDirFile }

func (f listsTwice) Open(name string) (fs.File, error) {
	file, err := f.FS.Open(name)
	if dir, ok := file.(fs.ReadDirFile); ok {
		return listsTwiceDir{dir}, err
	}
	return file, err
}

func (d listsTwiceDir) ReadDir(n int) ([]fs.DirEntry, error) {
	entries, err := d.ReadDirFile.ReadDir(n)
	return append(entries, entries...), err
}

// TestFSListsTwice: a name that a listing has twice is two entries, in order as well.
func TestFSListsTwice(t *testing.T) {
	fsys := listsTwice{fstest.MapFS{"a": {Data: []byte("1")}, "d/b": {Data: []byte("2")}}}
	for _, ordered := range []bool{false, true} {
		for _, ignore := range [][]string{nil, {".ignore"}} {
			var report fileproc.Report
			opts := fileproc.Options{FS: fsys, Ordered: ordered, IgnoreFiles: ignore, Report: &report}
			got, err := fileproc.Process(t.Context(), ".", opts, relOf)
			require.NoError(t, err)
			require.ElementsMatch(t, []string{"a", "a", "d/b", "d/b", "d/b", "d/b"}, slash(got))
			requireBalanced(t, report)
		}
	}
}

// An invalid name is a failure of its own that states the name, and nothing is opened by it.
func TestInvariant3FSListsNamesThatAreNone(t *testing.T) {
	names := []string{"", ".", "..", "/", "a/b", "../secret", "../../secret", "/secret", "sub/", "./", "x\x00", "\x00"}
	types := []fs.FileMode{0, fs.ModeDir, fs.ModeSymlink, fs.ModeIrregular, fs.ModeType}
	fsys := &believing{MapFS: fstest.MapFS{"secret": {}, "top": {}, "d/f": {}, "d/.h": {}, "d/sub/g": {}, "d/.ignore": {Data: []byte("none\n")}}}
	for _, name := range names {
		for _, typ := range types {
			fsys.lists = append(fsys.lists, listedEntry{name: name, typ: typ})
		}
	}
	walked := func(ctx context.Context, root string, opts fileproc.Options) iter.Seq2[string, error] {
		return func(yield func(string, error) bool) {
			for e, err := range fileproc.Walk(ctx, root, opts) {
				if (err != nil || !e.IsDir()) && !yield(e.Rel(), err) {
					return
				}
			}
		}
	}
	visible := []string{"d/f", "d/sub/g", "secret", "top"}
	all := append([]string{"d/.h", "d/.ignore"}, visible...)
	for what, tc := range map[string]struct {
		opts fileproc.Options
		want []string
	}{
		"the zero Options": {fileproc.Options{}, all},
		"SkipHidden":       {fileproc.Options{SkipHidden: true}, visible},
		"IgnoreFiles":      {fileproc.Options{IgnoreFiles: []string{".ignore"}}, all},
		"both":             {fileproc.Options{SkipHidden: true, IgnoreFiles: []string{".ignore"}}, visible},
		"Include":          {fileproc.Options{Include: []string{"d/**", "*"}}, all},
		"Exclude":          {fileproc.Options{Exclude: []string{"d/sub"}}, slices.DeleteFunc(slices.Clone(all), func(s string) bool { return s == "d/sub/g" })},
		"Suffixes":         {fileproc.Options{Suffixes: []string{"f", "g", "et"}}, []string{"d/f", "d/sub/g", "secret"}},
		"Shards":           {fileproc.Options{Shards: 1}, all},
		"Stat":             {fileproc.Options{Stat: true}, all},
		"NoRead and Stat":  {fileproc.Options{ReadSize: fileproc.NoRead, Stat: true}, all},
		"Select":           {fileproc.Options{Select: func(f *fileproc.File) bool { _, err := f.Stat(); return err == nil }}, all},
	} {
		for _, ordered := range []bool{false, true} {
			for _, workers := range []int{1, 4} {
				opts := tc.opts
				var report fileproc.Report
				opts.FS, opts.Ordered, opts.Workers, opts.Report = fsys, ordered, workers, &report
				for call, results := range map[string]iter.Seq2[string, error]{
					"Stream": fileproc.Stream(t.Context(), ".", opts, relOf), "Walk": walked(t.Context(), ".", opts),
				} {
					fsys.opened.Store(0)
					var got []string
					told := map[string]int{}
					for rel, err := range results {
						if err == nil {
							got = append(got, rel)
							continue
						}
						var e *fs.PathError
						require.ErrorAs(t, err, &e)
						require.ErrorIs(t, err, fs.ErrInvalid)
						require.Equal(t, "d", e.Path, "the directory that lists it")
						name, _, _ := strings.Cut(e.Err.Error(), " cannot be the name of an entry")
						told[name]++
					}
					slices.Sort(got)
					require.Equal(t, tc.want, got, "%s, %s", what, call)
					for _, name := range names {
						require.Equal(t, len(types), told[strconv.Quote(name)], "%q: %s, %s", name, what, call)
					}
					require.EqualValues(t, len(names)*len(types), report.Failed)
					requireBalanced(t, report)
				}
			}
		}
	}
	got, err := fileproc.Process(t.Context(), "d", fileproc.Options{FS: fsys, SkipHidden: true, Ordered: true}, relOf)
	require.Equal(t, []string{"f", "sub/g"}, got)
	require.ErrorIs(t, err, fs.ErrInvalid)
}

// In an object store, to open a directory is to list it.
func TestFilesOfAnFSOpenNoDirectory(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		fsys := &opened{FS: fstest.MapFS{"a": {}, "d/b": {}, "d/e/c": {}, "d/e/f": {}, "tree/g": {}}}
		got, err := fileproc.Process(t.Context(), ".", fileproc.Options{FS: fsys, Ordered: ordered, Files: slices.Values([]string{"a", "d/e/f"})}, relOf)
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"a", "d/e/f"}, got)
		require.ElementsMatch(t, got, fsys.names)

		got, err = fileproc.Process(t.Context(), ".", fileproc.Options{FS: fsys, Ordered: ordered, Files: slices.Values([]string{"d/b", "tree/"})}, relOf)
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"d/b", "tree/g"}, got)
		_, err = fileproc.Process(t.Context(), "none", fileproc.Options{FS: fsys, Files: slices.Values([]string{"a"})}, relOf)
		require.ErrorIs(t, err, fs.ErrNotExist)
	}
}

// Where paths fail, their directory is opened to find out why, and that once for those that were given while a file was processed:
// of directories that are there, and of those that are not.
func TestFilesOfAnFSThatAreMissing(t *testing.T) {
	var given []string
	for i := range 50 {
		given = append(given, fmt.Sprint("d/e/", i), fmt.Sprint("gone/e/", i), fmt.Sprint("a/", i))
	}
	for _, ordered := range []bool{false, true} {
		for _, stat := range []bool{false, true} {
			fsys := &opened{FS: fstest.MapFS{"a": {}, "d/e/f": {}, "first": {}}}
			begun, all := make(chan struct{}), make(chan struct{})
			files := func(yield func(string) bool) {
				yield("first")
				<-begun
				slices.Values(given)(yield)
				close(all)
			}
			opts := fileproc.Options{FS: fsys, Workers: 1, Ordered: ordered, Stat: stat, Files: files}
			if stat {
				opts.ReadSize = fileproc.NoRead
			}
			failed := map[string]error{}
			opts.OnError = func(err error) error {
				failed[err.(*fileproc.Failure).Path] = err
				return nil
			}
			_, err := fileproc.Process(t.Context(), ".", opts, func(f *fileproc.File) (struct{}, error) {
				require.Equal(t, "first", f.Rel())
				close(begun)
				<-all
				return struct{}{}, nil
			})
			require.NoError(t, err)
			require.Len(t, failed, len(given))
			for _, name := range given {
				want := fs.ErrNotExist
				if strings.HasPrefix(name, "a/") {
					want = fs.ErrInvalid
				}
				require.ErrorIs(t, failed[name], want)
			}
			opens := map[string]int{}
			for _, name := range fsys.names {
				opens[name]++
			}
			for _, name := range []string{"a", "d/e", "gone", "gone/e"} {
				require.Equal(t, 1, opens[name], name)
			}
		}
	}
}

// Of the directories in a long path few are opened to find out why it fails, and it fails for the highest that is none.
func TestFilesOfAnFSFailInFewOpens(t *testing.T) {
	long := strings.Repeat("x/", 4000) + "x"
	for name, want := range map[string]error{
		long: fs.ErrNotExist, "d/" + long: fs.ErrNotExist, "d/e/" + long: fs.ErrNotExist, "a/" + long: fs.ErrInvalid, "d/f/" + long: fs.ErrInvalid,
		"a/x": fs.ErrInvalid, "a/x/x": fs.ErrInvalid, "d/f/x/x": fs.ErrInvalid, "d/f/x/x/x": fs.ErrInvalid, "d/e/x/x": fs.ErrNotExist, "d/x": fs.ErrNotExist,
	} {
		fsys := &opened{FS: fstest.MapFS{"a": {}, "d/e/g": {}, "d/f": {}}}
		_, err := fileproc.Process(t.Context(), ".", fileproc.Options{FS: fsys, Files: slices.Values([]string{name})}, relOf)
		require.ErrorIs(t, err, want, "%.20q", name)
		require.Equal(t, want == fs.ErrInvalid, errors.Is(err, fs.ErrInvalid), "%.20q", name)
		require.LessOrEqual(t, len(fsys.names), 14, "%.20q: the file, its directory, and a search among 4000", name)
	}
}

type flakyDir struct {
	fs.FS
	opens int
}

func (f *flakyDir) Open(name string) (fs.File, error) {
	if name == "d" {
		if f.opens++; f.opens == 1 {
			return nil, errFromFn
		}
	}
	return f.FS.Open(name)
}

// A reason that may pass is not kept.
func TestFilesOfAnFSFailForReasonsThatPass(t *testing.T) {
	var errs []error
	opts := fileproc.Options{FS: &flakyDir{FS: fstest.MapFS{"d/e": {}}}, Workers: 1, Files: slices.Values([]string{"d/x", "d/y"}), OnError: func(err error) error {
		errs = append(errs, err)
		return nil
	}}
	require.NoError(t, fileproc.ForEach(t.Context(), ".", opts, func(*fileproc.File) error { return nil }))
	require.Len(t, errs, 2)
	require.ErrorIs(t, errs[0], errFromFn)
	require.ErrorIs(t, errs[1], fs.ErrNotExist)
}

type everyFile struct{}

func (everyFile) Open(string) (fs.File, error) {
	return fstest.MapFS{"f": {Data: []byte("x")}}.Open("f")
}

// The directories of a long path together take no more memory than a few copies of it.
func TestFilesOfAnFSInDeepDirectories(t *testing.T) {
	name := strings.Repeat("directory/", 4000) + "f"
	var before, during runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	err := fileproc.ForEach(t.Context(), ".", fileproc.Options{FS: everyFile{}, Files: slices.Values([]string{name})}, func(*fileproc.File) error {
		runtime.GC()
		runtime.ReadMemStats(&during)
		return nil
	})
	require.NoError(t, err)
	require.Less(t, int64(during.HeapAlloc)-int64(before.HeapAlloc), int64(20<<20), "with a path for each directory, 80 MB")
}

// A swapped is an fs.FS in which the directories of the map are something else when they are opened. It counts open files.
type swapped struct {
	fs.FS
	files map[string]fs.File
	fails map[string]*atomic.Int32 // opens that fail
	open  *atomic.Int32            // the pool may grow
}

type counted struct {
	fs.File
	open *atomic.Int32
}

func (f counted) Close() error { f.open.Add(-1); return f.File.Close() }

type countedDir struct {
	counted
	dir fs.ReadDirFile
}

func (f countedDir) ReadDir(n int) ([]fs.DirEntry, error) { return f.dir.ReadDir(n) }

func (s swapped) Open(name string) (fs.File, error) {
	if left := s.fails[name]; left != nil && left.Add(-1) >= 0 {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	f, ok := s.files[name]
	if !ok {
		var err error
		if f, err = s.FS.Open(name); err != nil {
			return nil, err
		}
	}
	s.open.Add(1)
	if dir, ok := f.(fs.ReadDirFile); ok {
		return countedDir{counted{f, s.open}, dir}, nil
	}
	return counted{f, s.open}, nil
}

type fileThatLists struct{ fs.ReadDirFile }

func (f fileThatLists) Stat() (fs.FileInfo, error) { return fs.Stat(fstest.MapFS{"f": {}}, "f") }

// Whatever an fs.FS opens is closed, also where it is not what was listed, or where a look at a directory tells why names in it are
// missing. A look that fails once is made again.
func TestFSClosesWhatIsSwapped(t *testing.T) {
	tree := fstest.MapFS{"a": {}, "d/x": {}, "e/y": {}}
	noDir, err := tree.Open("a")
	require.NoError(t, err)
	lists, err := tree.Open("d")
	require.NoError(t, err)
	var open atomic.Int32
	fsys := swapped{FS: tree, files: map[string]fs.File{"d": noDir, "e": fileThatLists{lists.(fs.ReadDirFile)}}, open: &open}
	var report fileproc.Report
	_, err = fileproc.Process(t.Context(), ".", fileproc.Options{FS: fsys, Workers: 1, Report: &report}, nameOf)
	require.ErrorIs(t, err, fileproc.ErrChanged)
	require.EqualValues(t, 2, report.Failed)
	require.Zero(t, open.Load())

	var failures atomic.Int32
	failures.Store(1)
	fsys = swapped{FS: tree, fails: map[string]*atomic.Int32{"d": &failures}, open: &open}
	var failed []error
	opts := fileproc.Options{FS: fsys, Workers: 1, Files: slices.Values([]string{"d/none", "d/too"}), OnError: func(err error) error {
		failed = append(failed, err)
		return nil
	}}
	_, err = fileproc.Process(t.Context(), ".", opts, nameOf)
	require.NoError(t, err)
	require.Len(t, failed, 2)
	require.ErrorIs(t, failed[0], fs.ErrPermission)
	require.ErrorIs(t, failed[1], fs.ErrNotExist)
	require.Zero(t, open.Load())
}

// statOnly is an fs.FS that can look names up and follow no link by itself.
type statOnly struct{ fsys fs.FS }

func (s statOnly) Open(name string) (fs.File, error)     { return s.fsys.Open(name) }
func (s statOnly) Stat(name string) (fs.FileInfo, error) { return fs.Stat(s.fsys, name) }

// A name that nothing has listed may be that of a FIFO, whose open would wait for a writer: it is a failure in an fs.FS, too.
func TestFSWithAFIFO(t *testing.T) {
	watchdog(t)
	top := t.TempDir()
	if !testtree.Make(t, top, "r/fifo|", "r/ok=x", "r/d/fifo|", "r/d/ok=x", "r/g/.git/HEAD=ref: refs/heads/main\n", "r/g/.git/objects/", "r/g/.git/refs/", "r/g/.git/info/exclude|",
		"r/g/.gitignore|", "r/g/d/ok=x", "r/h/.git|", "r/h/d/ok=x") {
		t.Skip("this platform makes no FIFOs")
	}
	_ = os.Symlink("fifo", filepath.Join(top, "r", "link"))
	far := []string{"l/far", "abs", "out", "loop"} // of which none is ever opened by an FS that has no Stat
	testtree.Make(t, top, "r/x/y/far -> ../pipe", "r/x/pipe|", "r/l -> x/y", "r/out -> ../r/fifo", "r/loop -> loop")
	_ = os.Symlink(filepath.Join(top, "r", "fifo"), filepath.Join(top, "r", "abs"))
	dir := filepath.Join(top, "r")
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer root.Close()
	sub, err := fs.Sub(os.DirFS(top), "r")
	require.NoError(t, err)
	for name, fsys := range map[string]fs.FS{"os.DirFS": os.DirFS(dir), "os.Root": root.FS(), "fs.Sub": sub, "Stat alone": statOnly{os.DirFS(dir)}} {
		for _, ordered := range []bool{false, true} {
			for _, under := range []string{".", "d"} {
				var report fileproc.Report
				opts := fileproc.Options{FS: fsys, Ordered: ordered, Report: &report, Files: slices.Values([]string{"fifo", "ok", "fifo/x", "fifo/"}), OnError: func(err error) error {
					require.ErrorIs(t, err, fs.ErrInvalid, name)
					return nil
				}}
				if under == "." && isThere(filepath.Join(dir, "link")) {
					opts.Files = slices.Values([]string{"fifo", "ok", "link", "d/fifo/x", "d/fifo/"})
				}
				got, err := fileproc.Process(t.Context(), under, opts, relOf)
				require.NoError(t, err, name)
				require.Equal(t, []string{"ok"}, got, name)
				require.Positive(t, report.Failed)
				requireBalanced(t, report)
			}
			if name == "fs.Sub" {
				failed := 0
				got, err := fileproc.Process(t.Context(), ".", fileproc.Options{FS: fsys, Ordered: ordered, Files: slices.Values(append(far, "ok")), OnError: func(error) error {
					failed++
					return nil
				}}, relOf)
				require.NoError(t, err)
				require.Equal(t, []string{"ok"}, got)
				require.Equal(t, len(far), failed)
				_, err = fileproc.Process(t.Context(), "abs", fileproc.Options{FS: fsys}, relOf)
				require.Error(t, err)
				_, err = fileproc.Process(t.Context(), ".", fileproc.Options{FS: fsys, IgnoreFiles: []string{"./abs"}}, relOf)
				require.Error(t, err)
			}
			opts := fileproc.Options{FS: fsys, Ordered: ordered}
			_, err = fileproc.Process(t.Context(), "d/fifo", opts, relOf)
			require.ErrorContains(t, err, "neither a directory nor a regular file", name)
			for _, file := range []string{"./fifo", "../fifo"} {
				opts.IgnoreFiles = []string{file}
				_, err = fileproc.Process(t.Context(), "d", opts, relOf)
				require.ErrorContains(t, err, "not a regular file", name)
			}
			for _, under := range []string{"g/d", "h/d"} {
				got, err := fileproc.Process(t.Context(), under, fileproc.Options{FS: fsys, Ordered: ordered, GitIgnore: true}, relOf)
				require.NoError(t, err, name)
				require.Equal(t, []string{"ok"}, got, name)
			}
		}
	}
}

// unknownFile is a file without metadata, and endlessFile one that never gives anything.
type (
	unknownFile struct{ fs.ReadDirFile }
	endlessFile struct{ fs.File }
)

func (unknownFile) Stat() (fs.FileInfo, error) { return nil, fs.ErrPermission }
func (unknownFile) Read([]byte) (int, error)   { return 0, io.EOF }
func (endlessFile) Read([]byte) (int, error)   { return 0, nil }

// What is opened counts if its metadata are unknown: a directory is listed, and a file fails, as one that never ends.
func TestFSWithoutMetadata(t *testing.T) {
	tree := fstest.MapFS{"a": {}, "d/x": {}, "e/y": {}}
	lists := func(name string) fs.ReadDirFile {
		f, err := tree.Open(name)
		require.NoError(t, err)
		return f.(fs.ReadDirFile)
	}
	var open atomic.Int32
	fsys := swapped{FS: tree, files: map[string]fs.File{".": unknownFile{lists(".")}, "d": unknownFile{lists("d")}, "e/y": unknownFile{lists("e")}}, open: &open}
	got, err := fileproc.Process(t.Context(), ".", fileproc.Options{FS: fsys, Ordered: true}, relOf)
	require.ErrorIs(t, err, fs.ErrPermission)
	require.Equal(t, []string{"a", "d/x"}, got)
	require.Zero(t, open.Load())
	file, err := tree.Open("a")
	require.NoError(t, err)
	fsys = swapped{FS: tree, files: map[string]fs.File{".": struct{ fs.File }{lists(".")}, "a": endlessFile{file}}, open: &open}
	_, err = fileproc.Process(t.Context(), ".", fileproc.Options{FS: fsys}, relOf)
	require.ErrorContains(t, err, "not a directory that can be listed")
	require.Zero(t, open.Load())
	delete(fsys.files, ".")
	got, err = fileproc.Process(t.Context(), ".", fileproc.Options{FS: fsys, Ordered: true}, relOf)
	require.ErrorIs(t, err, io.ErrNoProgress)
	require.Equal(t, []string{"d/x", "e/y"}, got)
	require.Zero(t, open.Load())
}
