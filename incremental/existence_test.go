package incremental

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/incremental/internal/cachefile"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

// TestExistenceName: a name is what File.Path is.
func TestExistenceName(t *testing.T) {
	for root, want := range map[string]string{"a/": "a/d/f", "../a/": "../a/d/f", "./a..b": "a..b/d/f", "a/../b//": "a/../b/d/f"} {
		e := existence{root: root}
		require.Equal(t, want, filepath.ToSlash(e.name("d/f")), root)
	}
}

// TestExistenceAtLongPaths: what is at a path that is too long for one system call is looked up and read like all else.
func TestExistenceAtLongPaths(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if !testtree.Deep(t, dir, 25, strings.Repeat("n", 200)) {
		t.Skip("this system has no such paths")
	}
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer root.Close()
	deep := strings.Repeat(strings.Repeat("n", 200)+"/", 25)
	require.NoError(t, root.WriteFile(deep+"f", []byte("text"), 0o644))
	e := existence{root: dir, dirs: map[string]answer{".": yes}}
	info, err := e.stat(deep+"f", false)
	require.NoError(t, err)
	require.EqualValues(t, 4, info.Size())
	text, err := e.read(deep + "f")
	require.NoError(t, err)
	require.Equal(t, "text", string(text))
	_, err = e.read(deep + "g")
	require.ErrorIs(t, err, fs.ErrNotExist)
	if err := root.Symlink("f", deep+"link"); err == nil {
		info, err = e.stat(deep+"link", false)
		require.NoError(t, err)
		require.Equal(t, fs.ModeSymlink, info.Mode().Type())
		info, err = e.stat(deep+"link", true)
		require.NoError(t, err)
		require.Zero(t, info.Mode().Type())
	}
	e.root = filepath.Join(dir, "none")
	_, err = e.stat(deep+"f", false)
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = e.read(deep + "f")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// TestExistenceOfLoops: a link that leads to itself is no file. A file that cannot be looked up may exist.
func TestExistenceOfLoops(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	testtree.Symlink(t, "loop", filepath.Join(root, "loop"))
	e := existence{root: root, links: fileproc.SymlinksFollow, dirs: map[string]answer{".": yes}}
	require.Equal(t, no, e.hasFile("loop"))
	require.Equal(t, no, e.hasDir("loop"))
	require.False(t, e.isLoop("none"))
	require.Equal(t, unknown, e.hasFile(strings.Repeat("x", 300)))
}

// A queue is an FS that counts how many callers it has at a time.
type queue struct {
	fstest.MapFS
	now, most atomic.Int32
}

func (q *queue) Lstat(name string) (fs.FileInfo, error) {
	n := q.now.Add(1)
	defer q.now.Add(-1)
	if n > q.most.Load() {
		q.most.Store(n)
	}
	time.Sleep(time.Second)
	return q.MapFS.Lstat(name)
}

// TestExistenceInParallel: many paths are looked up in any number of parts, but in an FS one after the other.
func TestExistenceInParallel(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	var rels []string
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		rels = append(rels, name)
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(name), 0o644))
		e := existence{root: root}
		for workers := 1; workers < 9; workers++ {
			for i, it := range e.lstatAll(append(slices.Clone(rels), "none"), workers) {
				if i == len(rels) {
					require.ErrorIs(t, it.err, fs.ErrNotExist)
					continue
				}
				require.NoError(t, it.err)
				require.Equal(t, rels[i], it.info.Name())
			}
		}
	}
	require.Empty(t, (&existence{root: root}).lstatAll(nil, 3))
	synctest.Test(t, func(t *testing.T) {
		q := &queue{MapFS: fstest.MapFS{"a": {}, "b": {}, "c": {}}}
		all := (&existence{root: ".", fsys: q}).lstatAll([]string{"a", "b", "c", "none"}, 2)
		require.Len(t, all, 4)
		require.EqualValues(t, 1, q.most.Load())
	})
}

// TestGivenEndsEarly: fileproc may stop before it has taken all paths.
func TestGivenEndsEarly(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	s, err := cachefile.Load(filepath.Join(t.TempDir(), "cache"), [32]byte{}, 1)
	require.NoError(t, err)
	for _, rel := range []string{"a", "b", "d/x", "d/y", "e/z"} {
		s.Add(0, cachefile.Record{Path: rel})
	}
	require.NoError(t, s.Save(t.Context(), nil))
	s, err = cachefile.Load(s.Path, [32]byte{}, 1)
	require.NoError(t, err)
	d := deletions{root: root, store: s, opts: &fileproc.Options{Files: slices.Values([]string{"x", "y"})}, given: given{}}
	n := 0
	for range d.files {
		n++
		break
	}
	require.Equal(t, 1, n)
	for _, g := range []given{{"a": true, "b": true}, {"d/": true}} {
		n, all := 0, 0
		for range g.unseen(s) {
			n++
			break
		}
		for range g.unseen(s) {
			all++
		}
		require.Equal(t, 1, n)
		require.Equal(t, 2, all)
	}
	for n := range (given{"a": true, "b": true}).unseen(s) {
		s.MarkSeen(n)
	}
	for range (given{"a": true, "b": true, "c": true}).unseen(s) {
		t.Error("all are seen")
	}
}

// TestRootThatIsNoDirectory: nothing is known of what is below a file.
func TestRootThatIsNoDirectory(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	d := deletions{root: file, opts: &fileproc.Options{}, store: &cachefile.Store{}}
	require.Equal(t, unknown, d.existence().hasFile("a"))
	d.root = filepath.Dir(file)
	require.Equal(t, no, d.existence().hasFile("a"))
}

// TestGivenAsNoFile: fileproc gets a given path that is not below root, or is below too many directories, even if the cache file has it.
func TestGivenAsNoFile(t *testing.T) {
	t.Parallel()
	s, err := cachefile.Load(filepath.Join(t.TempDir(), "cache"), [32]byte{}, 1)
	require.NoError(t, err)
	deep := strings.Repeat("d/", maxLevels) + "d"
	for _, rel := range []string{"../x", "../y/z", deep + "/f", "gone", "gone.d/x"} {
		s.Add(0, cachefile.Record{Path: rel})
	}
	require.NoError(t, s.Save(t.Context(), nil))
	s, err = cachefile.Load(s.Path, [32]byte{}, 1)
	require.NoError(t, err)
	abs, err := filepath.Abs("root/gone") // is below no FS
	require.NoError(t, err)
	abs = filepath.ToSlash(abs)
	given := []string{"../x", "../y/", deep + "/f", abs, "gone", "gone.d/"}
	d := deletions{root: "root", store: s, opts: &fileproc.Options{FS: fstest.MapFS{"root/a": {}}, Files: slices.Values(given)}, given: map[string]bool{}}
	require.Equal(t, []string{"../x", "../y/", deep + "/f", abs}, slices.Collect(d.files))
	require.Len(t, d.given, 2)
}

// A lookup is an FS whose calls of Lstat fail.
type lookup struct {
	fstest.MapFS
	err error
}

func (l lookup) Lstat(string) (fs.FileInfo, error) { return nil, l.err }

// TestExistenceAfterAnError: only some errors say that there is no file.
func TestExistenceAfterAnError(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]answer{fs.ErrNotExist: no, syscall.ENOTDIR: no, syscall.EIO: unknown, fs.ErrPermission: unknown} {
		e := existence{root: ".", fsys: lookup{err: err}, dirs: map[string]answer{".": yes}}
		require.Equal(t, want, e.hasFile("a"), err)
		require.Equal(t, want, e.hasDir("d"), err)
		require.Equal(t, want, e.hasFile("d/a"), err)
	}
}

// TestNothingStaysOpen: what is opened for a look is closed.
func TestNothingStaysOpen(t *testing.T) {
	t.Parallel()
	root, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		t.Skip("nothing lists the descriptors of this process: ", err)
	}
	opened := func() (n int) {
		fds, err := filepath.Glob("/proc/self/fd/*")
		require.NoError(t, err)
		for _, fd := range fds {
			if to, _ := os.Readlink(fd); strings.HasPrefix(to, root) {
				n++
			}
		}
		return n
	}
	deep := strings.Repeat("d/", 3000) + "f"
	e := existence{root: root}
	_, err = e.stat(deep, false)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.Zero(t, opened())

	file := filepath.Join(root, "a")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	_, err = fileproc.Process(t.Context(), file, fileproc.Options{ReadSize: fileproc.NoRead, Stat: true}, func(f *fileproc.File) (bool, error) {
		s, err := f.Stat()
		require.NoError(t, err)
		s.ChangeTime = time.Unix(1e9, 1)
		info, err := f.Info()
		require.NoError(t, err)
		before := opened()
		(&trust{compare: CompareAuto, root: true}).of(s, f)
		r := run[string]{loaded: info, asks: true, opts: fileproc.Options{ReadSize: fileproc.NoRead}, store: &cachefile.Store{Path: file}}
		require.True(t, r.isCache(f))
		require.Equal(t, before, opened())
		return true, nil
	})
	require.NoError(t, err)
}
