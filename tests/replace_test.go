package fileproc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/replace"
	"github.com/stretchr/testify/require"
)

// replaces skips the test where files cannot be replaced.
func replaces(t *testing.T) {
	t.Helper()
	switch runtime.GOOS {
	case "plan9", "wasip1":
		t.Skip("files cannot be replaced on this platform")
	}
}

// isSlow says that system calls take long, as under wine and Node.js.
const isSlow = runtime.GOOS == "windows" || runtime.GOOS == "js"

// exchanges skips the test where what is saved in the last moment may be lost.
func exchanges(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" && runtime.GOOS != "darwin" || fileproc.Backend() == "generic" {
		t.Skip("this backend cannot exchange names")
	}
}

// upper is what replacers in these tests make of a file.
func upper(f *fileproc.File) error {
	out := bytes.ToUpper(f.Data())
	if bytes.Equal(out, f.Data()) {
		return fileproc.ErrSkip
	}
	return f.Replace(out)
}

// contents returns what is in all files below root.
func contents(t *testing.T, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		rel, _ := filepath.Rel(root, path)
		all[filepath.ToSlash(rel)] = string(data)
		return err
	}))
	return all
}

// write writes files below root, and makes their directories.
func write(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for rel, content := range files {
		name := filepath.Join(root, filepath.FromSlash(rel))
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(content), 0o644))
	}
}

// touch writes files, each with its path as content.
func touch(t *testing.T, root string, rels ...string) {
	t.Helper()
	for _, rel := range rels {
		write(t, root, map[string]string{rel: rel})
	}
}

// TestInvariant11Replace: every file is replaced once, and nothing is left.
func TestInvariant11Replace(t *testing.T) {
	replaces(t)
	for _, opts := range []fileproc.Options{{}, {Stat: true}, {Ordered: true}, {ReadSize: 4}, {Files: nil, Workers: 1}, {DisableURing: true, Workers: 8}, {Durable: true}, {Durable: true, Ordered: true, Workers: 8}} {
		root := t.TempDir()
		files, want := map[string]string{}, map[string]string{}
		for i := range map[bool]int{false: 300, true: 30}[isSlow] {
			rel, content := fmt.Sprintf("d%d/e%d/f%03d", i%3, i%7, i), fmt.Sprintf("content of %d", i)
			files[rel], want[rel] = content, strings.ToUpper(content)
		}
		files["empty"], want["empty"] = "x", ""
		write(t, root, files)
		var report fileproc.Report
		opts.Report = &report
		leavesNothing(t, func() {
			got, err := fileproc.Process(t.Context(), root, opts, func(f *fileproc.File) (string, error) {
				was := string(f.Data())
				if f.Rel() == "empty" {
					return f.Rel(), f.Replace(nil)
				}
				if err := f.Replace([]byte(want[f.Rel()])); err != nil {
					return "", err
				}
				require.Equal(t, was, string(f.Data()))
				same, err := f.Unchanged()
				require.True(t, same)
				s, _ := f.Stat()
				require.EqualValues(t, len(want[f.Rel()]), s.Size)
				return f.Rel(), err
			})
			require.NoError(t, err)
			require.Len(t, got, len(files), "%+v", opts)
		})
		require.Equal(t, want, contents(t, root))
		require.EqualValues(t, len(files), report.Replaced)
		requireBalanced(t, report)
	}
}

// TestReplaceAgain: a second call in the same callback replaces the new file.
func TestReplaceAgain(t *testing.T) {
	replaces(t)
	for _, durable := range []bool{false, true} {
		root := t.TempDir()
		write(t, root, map[string]string{"f": "1"})
		var report fileproc.Report
		require.NoError(t, fileproc.ForEach(t.Context(), root, fileproc.Options{Durable: durable, Report: &report}, func(f *fileproc.File) error {
			return errors.Join(f.Replace([]byte("22")), f.Replace([]byte("333")))
		}))
		require.Equal(t, map[string]string{"f": "333"}, contents(t, root))
		require.EqualValues(t, 1, report.Replaced)
	}
}

// saves are ways in which others change a file.
var saves = map[string]func(t *testing.T, name string){
	"written": func(t *testing.T, name string) { require.NoError(t, os.WriteFile(name, []byte("theirs!"), 0o644)) },
	"replaced": func(t *testing.T, name string) {
		require.NoError(t, os.WriteFile(name+"~", []byte("theirs!"), 0o644))
		require.NoError(t, os.Rename(name+"~", name))
	},
	"removed": func(t *testing.T, name string) { require.NoError(t, os.Remove(name)) },
	"directory": func(t *testing.T, name string) {
		require.NoError(t, os.Remove(name))
		require.NoError(t, os.Mkdir(name, 0o755))
	},
	"link": func(t *testing.T, name string) {
		require.NoError(t, os.Remove(name))
		require.NoError(t, os.Symlink("other", name))
	},
}

func init() {
	if runtime.GOOS == "windows" { // wine makes no links
		delete(saves, "link")
	}
}

// TestInvariant11ChangedBefore: what others have saved since fn got the file stays.
func TestInvariant11ChangedBefore(t *testing.T) {
	replaces(t)
	for how, save := range saves {
		for _, opts := range []fileproc.Options{{}, {Stat: true}, {Stat: true, ReadSize: 2}, {Durable: true}} {
			root := t.TempDir()
			write(t, root, map[string]string{"f": "content", "other": "other"})
			var report fileproc.Report
			opts.Report = &report
			var want map[string]string
			err := fileproc.ForEach(t.Context(), root, opts, func(f *fileproc.File) error {
				if f.Name() != "f" {
					return nil
				}
				save(t, filepath.Join(root, "f"))
				want = contents(t, root)
				return f.Replace([]byte("ours"))
			})
			require.ErrorIs(t, err, fileproc.ErrChanged, how)
			require.Equal(t, how == "removed", errors.Is(err, fs.ErrNotExist))
			require.Equal(t, want, contents(t, root), how)
			require.Zero(t, report.Replaced)
			require.EqualValues(t, 1, report.Failed)
		}
	}
}

// TestInvariant11ChangedMeanwhile: so does what others save between the look at the file and the exchange.
func TestInvariant11ChangedMeanwhile(t *testing.T) {
	replaces(t)
	defer func() { replace.AfterPrepare = func() {} }()
	for how, save := range saves {
		root := t.TempDir()
		write(t, root, map[string]string{"f": "content", "other": "other"})
		var want map[string]string
		replace.AfterPrepare = func() {
			save(t, filepath.Join(root, "f"))
			want = contents(t, root)
			for name := range want {
				if replace.IsTemporary([]byte(name)) {
					delete(want, name)
				}
			}
		}
		for _, durable := range []bool{false, true} {
			require.NoError(t, os.RemoveAll(filepath.Join(root, "f")))
			write(t, root, map[string]string{"f": "content"})
			err := fileproc.ForEach(t.Context(), root, fileproc.Options{Durable: durable}, func(f *fileproc.File) error {
				if f.Name() != "f" {
					return nil
				}
				return f.Replace([]byte("ours"))
			})
			require.ErrorIs(t, err, fileproc.ErrChanged, how)
			require.Equal(t, want, contents(t, root), how)
		}
	}
}

// TestInvariant11Whole: a reader finds the old or the new content at each moment.
func TestInvariant11Whole(t *testing.T) {
	replaces(t)
	if runtime.GOOS == "windows" {
		t.Skip("os.ReadFile opens a file so that nobody can replace it meanwhile")
	}
	watchdog(t)
	root := t.TempDir()
	name := filepath.Join(root, "f")
	write(t, root, map[string]string{"f": strings.Repeat("a", 100_000)})
	var stop atomic.Bool
	var readers sync.WaitGroup
	var reads atomic.Int64
	for range 2 {
		readers.Go(func() {
			for !stop.Load() {
				data, err := os.ReadFile(name)
				if err != nil || len(data) != 100_000 || len(bytes.Trim(data, string(data[:1]))) > 0 {
					t.Errorf("%d bytes, %v", len(data), err)
					return
				}
				reads.Add(1)
			}
		})
	}
	for i := 0; i < 200 || reads.Load() < 100; i++ {
		require.NoError(t, fileproc.ForEach(t.Context(), root, fileproc.Options{}, func(f *fileproc.File) error {
			return f.Replace(bytes.Repeat([]byte{byte('a' + i%26)}, 100_000))
		}))
	}
	stop.Store(true)
	readers.Wait()
}

// TestInvariant11EditorAtOnce: an editor saves all the time. None of its saves is lost, except to a later one: if it saves by a
// rename, at any time; if it writes the file in place, when it opens the file after Replace has returned.
func TestInvariant11EditorAtOnce(t *testing.T) {
	exchanges(t)
	watchdog(t)
	aside := filepath.Join(t.TempDir(), "aside")
	t.Run("rename", func(t *testing.T) {
		testEditor(t, false, func(name, content string) error {
			return errors.Join(os.WriteFile(aside, []byte(content), 0o644), os.Rename(aside, name))
		})
	})
	t.Run("in place", func(t *testing.T) {
		testEditor(t, true, func(name, content string) error { return os.WriteFile(name, []byte(content), 0o644) })
	})
}

func testEditor(t *testing.T, waits bool, save func(name, content string) error) {
	root := t.TempDir()
	name := filepath.Join(root, "f")
	write(t, root, map[string]string{"f": "save 0"})
	var replaced atomic.Bool
	stop, stopped := make(chan struct{}), make(chan string)
	go func() {
		last := ""
		for i := 1; ; i++ {
			select {
			case <-stop:
				stopped <- last
				return
			default:
			}
			last = fmt.Sprint("save ", i)
			if err := save(name, last); err != nil {
				t.Error("the editor cannot save: ", err)
			}
			if waits { // for a Replace at times: if it saves without a break, none may come through
				for end := time.Now().Add(time.Millisecond); time.Now().Before(end) && !replaced.Swap(false); {
					runtime.Gosched()
				}
			}
		}
	}()
	n := 0
	for end := time.Now().Add(time.Second); time.Now().Before(end) || n == 0; {
		err := fileproc.ForEach(t.Context(), root, fileproc.Options{}, func(f *fileproc.File) error { return f.Replace(append([]byte("formatted "), f.Data()...)) })
		if err == nil {
			n++
			replaced.Store(true)
		} else if !errors.Is(err, fileproc.ErrChanged) {
			t.Fatal(err)
		}
		if n > 0 && len(contents(t, root)) != 1 {
			t.Fatal(contents(t, root))
		}
	}
	close(stop)
	last := <-stopped
	if waits {
		last = "the last save"
		require.NoError(t, save(name, last))
	}
	got := contents(t, root)["f"]
	require.True(t, strings.HasSuffix(got, last), "%q is lost: %.100q", last, got)
}

// TestInvariant11Several: of several formatters that work on a tree at once, one replaces each file, and the others replace what
// it has made of it, or find it changed.
func TestInvariant11Several(t *testing.T) {
	exchanges(t)
	watchdog(t)
	root := t.TempDir()
	files := map[string]string{}
	for i := range 200 {
		files[fmt.Sprintf("d%d/f%d", i%4, i)] = "0"
	}
	write(t, root, files)
	var replaced atomic.Int64
	var formatters sync.WaitGroup
	for i := range 4 {
		formatters.Go(func() {
			var report fileproc.Report
			err := fileproc.ForEach(t.Context(), root, fileproc.Options{Durable: i == 3, Report: &report}, func(f *fileproc.File) error {
				err := f.Replace(append(f.Data(), '+'))
				if errors.Is(err, fileproc.ErrChanged) {
					return nil
				}
				return err
			})
			if err != nil && !errors.Is(err, fileproc.ErrChanged) {
				t.Error(err)
			}
			replaced.Add(report.Replaced)
		})
	}
	formatters.Wait()
	total := 0
	got := contents(t, root)
	require.Len(t, got, len(files))
	for _, content := range got {
		total += strings.Count(content, "+")
	}
	require.EqualValues(t, replaced.Load(), total, "a change is lost, or was made twice")
}

// TestReplaceThroughLinks: the file that a link leads to is replaced in its own directory, and the link stays.
func TestReplaceThroughLinks(t *testing.T) {
	replaces(t)
	for _, opts := range []fileproc.Options{{Symlinks: fileproc.SymlinksFiles}, {Symlinks: fileproc.SymlinksFollow, Workers: 1}, {Symlinks: fileproc.SymlinksFiles, Files: slices.Values([]string{"links/in", "links/out"})}} {
		opts.SymlinksOutside = true
		dir := t.TempDir()
		root := filepath.Join(dir, "root")
		write(t, dir, map[string]string{"root/skip/f": "inside", "outside/f": "outside"})
		require.NoError(t, os.Mkdir(filepath.Join(root, "links"), 0o755))
		require.NoError(t, os.Symlink("../skip/f", filepath.Join(root, "links", "in")))
		require.NoError(t, os.Symlink("../../outside/f", filepath.Join(root, "links", "out")))
		if _, err := os.Lstat(filepath.Join(root, "links", "out")); err != nil {
			t.Skip("no links: ", err) // wine
		}
		err := fileproc.ForEach(t.Context(), root, opts, func(f *fileproc.File) error {
			if !strings.HasPrefix(f.Rel(), "links") {
				return nil
			}
			return upper(f)
		})
		require.NoError(t, err)
		want := map[string]string{"root/skip/f": "INSIDE", "outside/f": "OUTSIDE"}
		require.Equal(t, want, contents(t, dir))
		to, err := os.Readlink(filepath.Join(root, "links", "in"))
		require.NoError(t, err)
		require.Equal(t, "../skip/f", filepath.ToSlash(to))
	}
}

// TestReplaceOneOfSeveralNames: the other name keeps the old content.
func TestReplaceOneOfSeveralNames(t *testing.T) {
	replaces(t)
	root := t.TempDir()
	write(t, root, map[string]string{"a": "both"})
	require.NoError(t, os.Link(filepath.Join(root, "a"), filepath.Join(root, "b")))
	for _, opts := range []fileproc.Options{{}, {Stat: true}} { // the first replaces a, which changes b's change time
		opts.Workers = 1
		err := fileproc.ForEach(t.Context(), root, opts, func(f *fileproc.File) error {
			if f.Name() == "a" && opts.Stat {
				return fileproc.ErrSkip
			}
			s, err := f.Stat()
			require.NoError(t, err)
			require.LessOrEqual(t, s.Links, uint64(2))
			if f.Name() == "b" && !opts.Stat {
				return fileproc.ErrSkip
			}
			return upper(f)
		})
		require.NoError(t, err)
		require.Equal(t, map[string]string{"a": "BOTH", "b": map[bool]string{false: "both", true: "BOTH"}[opts.Stat]}, contents(t, root))
	}
}

// TestRewriteAllNames: the guide's way to change a file under all its names.
func TestRewriteAllNames(t *testing.T) {
	if fileproc.Backend() == "generic" && runtime.GOOS != "linux" {
		t.Skip("no counts of links")
	}
	root := t.TempDir()
	write(t, root, map[string]string{"a": "both", "alone": "alone"})
	require.NoError(t, os.Link(filepath.Join(root, "a"), filepath.Join(root, "b")))
	require.NoError(t, fileproc.ForEach(t.Context(), root, fileproc.Options{Workers: 1}, func(f *fileproc.File) error {
		s, err := f.Stat()
		out := bytes.ToUpper(f.Data())
		if err == nil && s.Links > 1 {
			return os.WriteFile(f.Path(), out, 0)
		}
		return errors.Join(err, f.Replace(out))
	}))
	require.Equal(t, map[string]string{"a": "BOTH", "b": "BOTH", "alone": "ALONE"}, contents(t, root))
	a, err := os.Stat(filepath.Join(root, "a"))
	require.NoError(t, err)
	b, err := os.Stat(filepath.Join(root, "b"))
	require.NoError(t, err)
	require.True(t, os.SameFile(a, b))
}

// TestReplaceLinkedPair: both names of a file can be replaced in one run.
func TestReplaceLinkedPair(t *testing.T) {
	replaces(t)
	root := t.TempDir()
	write(t, root, map[string]string{"a": "both"})
	require.NoError(t, os.Link(filepath.Join(root, "a"), filepath.Join(root, "b")))
	require.NoError(t, fileproc.ForEach(t.Context(), root, fileproc.Options{Stat: true, Workers: 1}, upper))
	require.Equal(t, map[string]string{"a": "BOTH", "b": "BOTH"}, contents(t, root))
}

// TestReplaceRoots: roots that are files, several roots, given names.
func TestReplaceRoots(t *testing.T) {
	replaces(t)
	dir := t.TempDir()
	fill := func() { write(t, dir, map[string]string{"a/f": "in a", "b/g": "in b", "file": "alone", "c/f": "in c"}) }
	fill()
	_ = os.Symlink("file", filepath.Join(dir, "link"))
	at := func(name string) string { return filepath.Join(dir, name) }
	again := func(f *fileproc.File) error {
		err := upper(f)
		same, e := f.Unchanged()
		if !same {
			err = errors.Join(err, errors.New("changed"))
		}
		file, openErr := f.Open()
		if openErr == nil {
			data, _ := io.ReadAll(file)
			file.Close()
			require.Equal(t, strings.ToUpper(string(data)), string(data))
		}
		return errors.Join(err, e, openErr, f.Replace(bytes.ToUpper(f.Data())))
	}
	for _, root := range []string{"file", "link"} {
		if _, err := os.Lstat(at(root)); err != nil {
			continue // wine makes no links
		}
		fill()
		for _, opts := range []fileproc.Options{{}, {Stat: true}} {
			var report fileproc.Report
			opts.Report = &report
			require.NoError(t, fileproc.ForEach(t.Context(), at(root), opts, again))
			require.Equal(t, "ALONE", contents(t, dir)["file"])
			require.EqualValues(t, 1, report.Replaced)
			fill()
		}
	}
	require.NoError(t, fileproc.ForEach(t.Context(), "", fileproc.Options{Roots: []string{at("a"), at("file"), at("b")}}, again))
	require.Equal(t, map[string]string{"a/f": "IN A", "b/g": "IN B", "file": "ALONE", "c/f": "in c"}, contents(t, dir))
	fill()
	require.NoError(t, fileproc.ForEach(t.Context(), dir, fileproc.Options{Files: slices.Values([]string{"a/f", "c/"})}, again))
	require.Equal(t, map[string]string{"a/f": "IN A", "b/g": "in b", "file": "alone", "c/f": "IN C"}, contents(t, dir))
}

// writableFS has the method of a cache.Store.
type writableFS struct {
	fstest.MapFS
	mu *sync.Mutex
}

func (w writableFS) WriteFile(name string, data []byte) (fs.FileInfo, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.MapFS[name].Mode == 0 {
		return nil, fs.ErrPermission
	}
	*w.MapFS[name] = fstest.MapFile{Data: data, Mode: 0o644}
	return nil, nil
}

// simplyWritableFS has the method of a cache.FS.
type simplyWritableFS struct{ writableFS }

func (w simplyWritableFS) WriteFile(name string, data []byte) error {
	_, err := w.writableFS.WriteFile(name, data)
	return err
}

// closingFS opens no file that was written.
type closingFS struct {
	simplyWritableFS
	content []byte
}

func (c closingFS) Stat(name string) (fs.FileInfo, error) {
	if f := c.MapFS[name]; f != nil && !f.Mode.IsDir() && string(f.Data) != string(c.content) {
		return nil, fs.ErrPermission
	}
	return c.MapFS.Stat(name)
}

func (c closingFS) Lstat(name string) (fs.FileInfo, error) { return c.Stat(name) }

// TestReplaceInFS: an FS that has a method for it is written to.
func TestReplaceInFS(t *testing.T) {
	for _, root := range []string{".", "d", "d/f"} {
		for _, simple := range []bool{false, true} {
			files := fstest.MapFS{"d/f": {Data: []byte("x"), Mode: 0o644}}
			w := writableFS{files, new(sync.Mutex)}
			opts := fileproc.Options{FS: w, Workers: 1}
			if simple {
				opts.FS = simplyWritableFS{w}
			}
			require.NoError(t, fileproc.ForEach(t.Context(), root, opts, upper))
			require.Equal(t, "X", string(files["d/f"].Data))
			opts.Stat = true
			require.ErrorIs(t, fileproc.ForEach(t.Context(), root, opts, func(f *fileproc.File) error {
				files["d/f"].Data = []byte("longer")
				return f.Replace(nil)
			}), fileproc.ErrChanged)
			require.ErrorIs(t, fileproc.ForEach(t.Context(), root, opts, func(f *fileproc.File) error {
				files["d/f"].Mode = 0
				return f.Replace(nil)
			}), fs.ErrPermission)
		}
		files := fstest.MapFS{"d/f": {Data: []byte("x"), Mode: 0o644}}
		fsys := closingFS{simplyWritableFS{writableFS{files, new(sync.Mutex)}}, []byte("x")}
		require.NoError(t, fileproc.ForEach(t.Context(), root, fileproc.Options{FS: fsys}, upper), "it was written, although its metadata cannot be looked up")
		require.Equal(t, "X", string(files["d/f"].Data))
		require.ErrorIs(t, fileproc.ForEach(t.Context(), root, fileproc.Options{FS: fstest.MapFS{"d/f": {Data: []byte("x")}}}, upper), errors.ErrUnsupported)
	}
}

// TestReplaceUnsupported: what has no content that could be replaced is a clear error.
func TestReplaceUnsupported(t *testing.T) {
	require.ErrorIs(t, fileproc.NewFile("f", nil).Replace(nil), errors.ErrUnsupported)
	root := t.TempDir()
	if err := os.Symlink("nowhere", filepath.Join(root, "link")); err != nil {
		t.Skip("no links: ", err)
	}
	err := fileproc.ForEach(t.Context(), root, fileproc.Options{AllTypes: true}, func(f *fileproc.File) error {
		err := f.Replace(nil)
		require.ErrorIs(t, err, fs.ErrInvalid)
		return err
	})
	require.Error(t, err)
}

const temporary = ".fileproc-0123456789abcdef0123456789abcdef.tmp"

// TestInvariant11Temporaries: what has the name of a temporary file is never delivered, but all that is like it is.
func TestInvariant11Temporaries(t *testing.T) {
	root := t.TempDir()
	like := []string{temporary[1:], temporary + "x", ".fileproc-0123456789ABCDEF0123456789abcdee.tmp", ".fileproc-0123456789abcdef0123456789abcdef.txt", "d/.fileproc-.tmp"}
	touch(t, root, append(like, temporary, "d/"+temporary)...)
	for _, opts := range []fileproc.Options{{}, {Ordered: true}, {IgnoreFiles: []string{".ignore"}}, {FS: os.DirFS(root)}} {
		var report fileproc.Report
		opts.Report = &report
		at := root
		if opts.FS != nil {
			at = "."
		}
		got, err := fileproc.Process(t.Context(), at, opts, relOf)
		require.NoError(t, err)
		require.ElementsMatch(t, like, got)
		require.EqualValues(t, len(like), report.Found)
		walked := 0
		for e, err := range fileproc.Walk(t.Context(), at, opts) {
			require.NoError(t, err)
			if !e.IsDir() {
				require.NotEqual(t, temporary, e.Name())
				walked++
			}
		}
		require.Equal(t, len(like), walked)
	}
	for _, ordered := range []bool{false, true} {
		var report fileproc.Report
		given := fileproc.Options{Ordered: ordered, Report: &report, Files: slices.Values([]string{temporary, "./d/" + temporary, temporary[1:]})}
		got, err := fileproc.Process(t.Context(), root, given, relOf)
		require.NoError(t, err)
		require.Equal(t, like[:1], got)
		require.EqualValues(t, 1, report.Found)
	}
	entries, err := fileproc.ReadDir(root)
	require.NoError(t, err)
	require.Len(t, entries, len(like)+1, "as os.ReadDir")
}

// TestInvariant11Leftovers: a run that replaces a file removes the temporary files that are old.
func TestInvariant11Leftovers(t *testing.T) {
	replaces(t)
	root := t.TempDir()
	touch(t, root, "f", temporary, "d/"+temporary)
	require.NoError(t, os.Mkdir(filepath.Join(root, "e"), 0o755))
	require.NoError(t, os.Mkdir(filepath.Join(root, "e", temporary), 0o755))
	read := func(*fileproc.File) error { return nil }
	write := func(f *fileproc.File) error { return f.Replace([]byte("new")) }
	require.NoError(t, fileproc.ForEach(t.Context(), root, fileproc.Options{}, write))
	require.Len(t, contents(t, root), 3, "the temporary files are new")
	defer func(was time.Duration) { replace.StaleAfter = was }(replace.StaleAfter)
	replace.StaleAfter = -time.Hour
	require.NoError(t, fileproc.ForEach(t.Context(), root, fileproc.Options{}, read))
	require.Len(t, contents(t, root), 3, "a run that reads does not write")
	require.NoError(t, fileproc.ForEach(t.Context(), root, fileproc.Options{}, write))
	require.Equal(t, map[string]string{"f": "new"}, contents(t, root))
	require.DirExists(t, filepath.Join(root, "e", temporary))
}

// TestReplaceThenEnd: the Report of a run that ends early says what it has replaced, and nothing is left.
func TestReplaceThenEnd(t *testing.T) {
	replaces(t)
	ends := map[string]func(cancel func()) error{
		"cancel": func(cancel func()) error { cancel(); return nil },
		"stop":   func(func()) error { return fs.SkipAll },
		"panic":  func(func()) error { panic("test") },
		"exit":   func(func()) error { runtime.Goexit(); return nil },
	}
	for how, end := range ends {
		testReplaceThenEnd(t, how, end, false)
		testReplaceThenEnd(t, how, end, true)
	}
}

func testReplaceThenEnd(t *testing.T, how string, end func(cancel func()) error, durable bool) {
	root := t.TempDir()
	touch(t, root, "a", "b", "c", "d/e", "d/f", "d/g")
	var report fileproc.Report
	ctx, cancel := context.WithCancel(t.Context())
	leavesNothing(t, func() {
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() { _ = recover() }()
			_ = fileproc.ForEach(ctx, root, fileproc.Options{Durable: durable, Report: &report}, func(f *fileproc.File) error {
				if err := f.Replace([]byte("new")); err != nil {
					return err
				}
				return end(cancel)
			})
		}()
		<-done
	})
	cancel()
	replaced := 0
	got := contents(t, root)
	require.Len(t, got, 6, how)
	for _, content := range got {
		replaced += strings.Count(content, "new")
	}
	require.EqualValues(t, replaced, report.Replaced, how)
	require.True(t, replaced > 0 || durable, how)
	requireBalanced(t, report)
}

// TestDurable: with Options.Durable, a result comes if and only if its file was replaced, whatever else fn returns.
func TestDurable(t *testing.T) {
	replaces(t)
	watchdog(t)
	sorry := errors.New("sorry")
	for _, streams := range []bool{false, true} {
		root := t.TempDir()
		files := map[string]string{}
		for i := range map[bool]int{false: 2500, true: 100}[streams || isSlow] { // so many that a worker has several groups
			files[fmt.Sprintf("d%d/f%d", i%5, i)] = "old"
		}
		files["skipped"], files["failed"], files["both"], files["read"] = "old", "old", "old", "old"
		write(t, root, files)
		var report fileproc.Report
		got := map[string]bool{}
		opts := fileproc.Options{Durable: true, Report: &report, Workers: 3}
		fn := func(f *fileproc.File) (string, error) {
			if f.Rel() == "read" {
				return f.Rel(), nil
			}
			err := f.Replace([]byte("new " + f.Rel()))
			switch f.Rel() {
			case "skipped":
				return "", fileproc.ErrSkip
			case "failed":
				return "", sorry
			case "both":
				return f.Rel(), fileproc.WithResult(sorry)
			}
			return f.Rel(), err
		}
		leavesNothing(t, func() {
			if streams {
				for rel, err := range fileproc.Stream(t.Context(), root, opts, fn) {
					require.True(t, err == nil || errors.Is(err, sorry))
					got[rel] = true
				}
				return
			}
			rels, err := fileproc.Process(t.Context(), root, opts, fn)
			require.ErrorIs(t, err, sorry)
			for _, rel := range rels {
				got[rel] = true
			}
		})
		delete(got, "")
		require.Len(t, got, len(files)-2)
		require.NotContains(t, got, "skipped")
		now := contents(t, root)
		require.Len(t, now, len(files))
		for rel, content := range now {
			require.Equal(t, rel != "read", content == "new "+rel, rel)
		}
		require.EqualValues(t, len(files)-1, report.Replaced)
		require.EqualValues(t, 2, report.Failed)
		requireBalanced(t, report)
	}
}

// TestDurableOnErrorPanics: the Report of a run that ends with a panic of OnError counts each file that has waited for others.
func TestDurableOnErrorPanics(t *testing.T) {
	replaces(t)
	root := t.TempDir()
	touch(t, root, "a", "b", "c", "d")
	defer func() { replace.AfterPrepare = func() {} }()
	replace.AfterPrepare = func() { _ = os.WriteFile(filepath.Join(root, "b"), []byte("saved by somebody else"), 0o644) }
	var report fileproc.Report
	require.Panics(t, func() {
		_ = fileproc.ForEach(t.Context(), root, fileproc.Options{Durable: true, Workers: 1, Report: &report, OnError: func(error) error { panic("test") }},
			func(f *fileproc.File) error { return f.Replace([]byte("new")) })
	})
	requireBalanced(t, report)
	require.EqualValues(t, 4, report.Found)
}

// TestDurableInRenamedDirectory: files that wait for others are replaced also if their directories get other names meanwhile.
func TestDurableInRenamedDirectory(t *testing.T) {
	replaces(t)
	root := t.TempDir()
	const dirs = 60
	want := map[string]string{}
	for i := range dirs {
		touch(t, root, fmt.Sprintf("d%d/f", i))
		want[fmt.Sprintf("elsewhere/d%d/f", i)] = "new"
	}
	calls := 0
	err := fileproc.ForEach(t.Context(), root, fileproc.Options{Durable: true, Workers: 1}, func(f *fileproc.File) error {
		if calls++; calls == dirs {
			defer func() {
				require.NoError(t, os.Mkdir(filepath.Join(root, "elsewhere"), 0o755))
				for i := range dirs {
					require.NoError(t, os.Rename(filepath.Join(root, fmt.Sprint("d", i)), filepath.Join(root, "elsewhere", fmt.Sprint("d", i))))
				}
			}()
		}
		return f.Replace([]byte("new"))
	})
	require.NoError(t, err)
	require.Equal(t, want, contents(t, root))
}

// TestInvariant11OnceThroughLinks: a file that was replaced does not come again by another path, and is counted.
func TestInvariant11OnceThroughLinks(t *testing.T) {
	replaces(t)
	for _, durable := range []bool{false, true} {
		for _, opts := range []fileproc.Options{{}, {Symlinks: fileproc.SymlinksFollow}, {Files: slices.Values([]string{"a", "d/f", "z", "out"})}, {Ordered: true}} {
			dir := t.TempDir()
			root := filepath.Join(dir, "root")
			write(t, dir, map[string]string{"root/d/f": "", "outside": ""})
			for name, target := range map[string]string{"a": "d/f", "z": "d/f", "out": "../outside", "out2": "../outside"} {
				require.NoError(t, os.Symlink(target, filepath.Join(root, name)))
			}
			if _, err := os.Lstat(filepath.Join(root, "a")); err != nil {
				t.Skip("no links: ", err) // wine
			}
			var report fileproc.Report
			opts.Durable, opts.SymlinksOutside, opts.Report, opts.Workers = durable, true, &report, 1
			if opts.Symlinks == 0 {
				opts.Symlinks = fileproc.SymlinksFiles
			}
			got, err := fileproc.Process(t.Context(), root, opts, func(f *fileproc.File) (string, error) {
				return f.Rel(), f.Replace(append(f.Data(), '+'))
			})
			require.NoError(t, err)
			require.Len(t, got, 2)
			require.Equal(t, map[string]string{"root/d/f": "+", "outside": "+"}, contents(t, dir))
			require.EqualValues(t, report.Found-2, report.Skipped[fileproc.SkippedDuplicate])
			requireBalanced(t, report)
		}
	}
}

// TestReplaceByAnotherPath: a file whose first Replace has failed comes by its other paths, too. One that Options.Files gives
// twice comes twice, also once it was replaced.
func TestReplaceByAnotherPath(t *testing.T) {
	replaces(t)
	for _, opts := range []fileproc.Options{{}, {Durable: true}, {Files: slices.Values([]string{"d/f", "d/f"})}} {
		root := t.TempDir()
		name := filepath.Join(root, "d", "f")
		write(t, root, map[string]string{"d/f": "old"})
		for _, link := range []string{"a", "z"} {
			_ = os.Symlink("d/f", filepath.Join(root, link))
			if _, err := os.Lstat(filepath.Join(root, link)); err != nil {
				t.Skip("no links: ", err) // wine
			}
		}
		var report fileproc.Report
		opts.Symlinks, opts.Report, opts.Workers = fileproc.SymlinksFiles, &report, 1
		fails := opts.Files == nil
		got, err := fileproc.Process(t.Context(), root, opts, func(f *fileproc.File) (string, error) {
			if fails {
				fails = false
				require.NoError(t, os.WriteFile(name, []byte("theirs"), 0o644))
				require.ErrorIs(t, f.Replace([]byte("new")), fileproc.ErrChanged)
				require.NoError(t, os.WriteFile(name, []byte("old"), 0o644))
				return "", fileproc.ErrSkip
			}
			return f.Rel(), f.Replace([]byte("new"))
		})
		require.NoError(t, err)
		require.Equal(t, map[string]string{"d/f": "new"}, contents(t, root))
		if opts.Files != nil {
			require.Equal(t, []string{"d/f", "d/f"}, got)
		} else {
			require.EqualValues(t, 1, report.Skipped[fileproc.SkippedDuplicate])
		}
		requireBalanced(t, report)
	}
}

// TestReplaceRenamedCase: a file that has got a name in other case since it was read stays whole, and is the only one.
func TestReplaceRenamedCase(t *testing.T) {
	replaces(t)
	for _, durable := range []bool{false, true} {
		root := t.TempDir()
		touch(t, root, "f")
		err := fileproc.ForEach(t.Context(), root, fileproc.Options{Durable: durable, Stat: true}, func(f *fileproc.File) error {
			require.NoError(t, os.Rename(filepath.Join(root, "f"), filepath.Join(root, "F")))
			return f.Replace([]byte("new"))
		})
		got := contents(t, root)
		require.Len(t, got, 1)
		if err != nil {
			require.ErrorIs(t, err, fileproc.ErrChanged)
			require.Equal(t, map[string]string{"F": "f"}, got)
		}
		for _, content := range got { // where case does not matter, the file is replaced
			require.Equal(t, map[bool]string{true: "new", false: "f"}[err == nil], content)
		}
	}
	root := t.TempDir() // names that differ only in case are two files, or one
	touch(t, root, "f", "F")
	require.NoError(t, fileproc.ForEach(t.Context(), root, fileproc.Options{}, func(f *fileproc.File) error { return f.Replace([]byte("new of " + f.Name())) }))
	for name, content := range contents(t, root) {
		require.Equal(t, "new of "+name, content)
	}
}

// TestReplaceInSelect: fn could not see the file as it was, so the file stays.
func TestReplaceInSelect(t *testing.T) {
	root := t.TempDir()
	touch(t, root, "f")
	var err error
	require.NoError(t, fileproc.ForEach(t.Context(), root, fileproc.Options{Select: func(f *fileproc.File) bool {
		err = f.Replace([]byte("new"))
		return true
	}}, func(*fileproc.File) error { return nil }))
	require.ErrorContains(t, err, "Select")
	require.Equal(t, map[string]string{"f": "f"}, contents(t, root))
}
