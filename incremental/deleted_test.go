package incremental_test

import (
	"context"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/incremental"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

// TestGoneFileThatBecameADirectory: a path that was a file and later a directory can vanish together with the directory's files.
func TestGoneFileThatBecameADirectory(t *testing.T) {
	t.Parallel()
	p := newProject(t, "d/x=1", "d/b=2")
	p.run()
	require.NoError(t, os.Remove(p.path("d/x")))
	p.write("d/x/y/z.md", "3")
	p.write("d/x/a.md", "4")
	p.settle()
	p.opts.Suffixes = []string{".md"} // leaves the entry of the file alone
	p.run()
	require.Empty(t, p.gone)
	p.opts.Suffixes = nil
	require.NoError(t, os.RemoveAll(p.path("d")))
	p.run()
	require.ElementsMatch(t, []string{"d/b", "d/x", "d/x/a.md", "d/x/y/z.md"}, p.gone)
}

// A countedFS counts how often something is looked up.
type countedFS struct {
	fstest.MapFS
	lookups atomic.Int32
}

func (f *countedFS) Stat(name string) (fs.FileInfo, error) {
	f.lookups.Add(1)
	return f.MapFS.Stat(name)
}

func (f *countedFS) Lstat(name string) (fs.FileInfo, error) {
	f.lookups.Add(1)
	return f.MapFS.Lstat(name)
}

// TestNarrowRun: a run looks up none of the files that it does not select. Without Deleted it looks up no file at all, except to
// write a new snapshot.
func TestNarrowRun(t *testing.T) {
	t.Parallel()
	files := &countedFS{MapFS: fstest.MapFS{}}
	for i := range 200 {
		files.MapFS[fmt.Sprintf("d%02d/e/.h/f%03d.md", i%20, i)] = &fstest.MapFile{Data: []byte{byte(i)}}
	}
	files.MapFS["a.txt"], files.MapFS["b.txt"] = &fstest.MapFile{}, &fstest.MapFile{}
	p := newProject(t)
	p.opts.FS, p.root = files, "."
	p.run()
	files.lookups.Store(0)
	_, err := p.try(t.Context())
	require.NoError(t, err)
	require.Zero(t, files.lookups.Load(), "nothing is missing")
	delete(files.MapFS, "b.txt")
	exclude := fileproc.Options{Exclude: []string{"**/e"}}
	for name, o := range map[string]fileproc.Options{
		"suffix": {Suffixes: []string{".txt"}}, "include": {Include: []string{"*.txt"}}, "exclude": exclude, "depth": {MaxDepth: 1}, "hidden": {SkipHidden: true},
		"selectDir": {SelectDir: func(fileproc.Entry) bool { return false }},
	} {
		o.FS = files
		files.lookups.Store(0)
		_, err := incremental.Process(t.Context(), p.root, p.inc, o, result)
		require.NoError(t, err)
		require.Zero(t, files.lookups.Load(), name)
	}
	p.opts = exclude
	p.opts.FS = files
	_, err = p.try(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"b.txt"}, p.gone)
	// For each part of the candidates, root is looked up; and b.txt once.
	require.EqualValues(t, (202-1+incremental.JudgedAtOnce-1)/incremental.JudgedAtOnce+1, files.lookups.Load())

	// An ignore file with a path is looked for once, and each directory is looked up once.
	for rel := range files.MapFS {
		if path.Dir(rel) == "d00/e/.h" {
			delete(files.MapFS, rel)
		}
	}
	files.MapFS["d00/e/.h/x"] = &fstest.MapFile{}
	files.lookups.Store(0)
	_, err = incremental.Process(t.Context(), p.root, p.inc, fileproc.Options{FS: files, Include: []string{"d00/**"}, IgnoreFiles: []string{"conf/ignore"}}, result)
	require.NoError(t, err)
	require.EqualValues(t, 1, files.lookups.Load(), "the run itself looks for conf/ignore")
	files.lookups.Store(0)
	p.opts = fileproc.Options{FS: files, Include: []string{"d00/e/.h/f*"}, IgnoreFiles: []string{"conf/ignore"}}
	_, err = p.try(t.Context())
	require.NoError(t, err)
	require.Len(t, p.gone, 10)
	require.EqualValues(t, 1+4*2+2*3+10, files.lookups.Load(), "root and conf/ignore for each part of the candidates; three directories in two parts, ten files")

	// A new snapshot leaves out what is gone.
	p.opts = fileproc.Options{FS: files}
	clear(files.MapFS)
	for i := range 2000 {
		files.MapFS[fmt.Sprintf("new%04d", i)] = &fstest.MapFile{}
	}
	_, err = incremental.Process(t.Context(), p.root, p.inc, p.opts, result)
	require.NoError(t, err)
	require.Len(t, incremental.Kept(p.root, p.inc, p.opts), 2000)
}

// TestCancelWhileDeleted: after a cancel the run looks up no more files, and the files that it has reported are not reported again.
func TestCancelWhileDeleted(t *testing.T) {
	t.Parallel()
	p := newProject(t, testtree.Numbered("d/", 20)...)
	p.run()
	require.NoError(t, os.RemoveAll(p.path("d")))
	ctx, cancel := context.WithCancel(t.Context())
	inc, told := p.inc, []string(nil)
	inc.Deleted = func(rel string) {
		cancel()
		told = append(told, rel)
	}
	_, err := incremental.Process(ctx, p.root, inc, p.opts, result)
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, told, 1)
	p.run()
	require.Len(t, p.gone, 19)
	require.NotContains(t, p.gone, told[0])

	files := &countedFS{MapFS: fstest.MapFS{}}
	for i := range 3 * incremental.JudgedAtOnce {
		files.MapFS[fmt.Sprint("d", i, "/f")] = &fstest.MapFile{}
	}
	p.opts.FS, p.root = files, "."
	p.run()
	clear(files.MapFS)
	files.MapFS["a"] = &fstest.MapFile{}
	ctx, cancel = context.WithCancel(t.Context())
	lookups := int32(0)
	inc.Deleted = func(rel string) {
		cancel()
		lookups = files.lookups.Load()
	}
	p.opts.IgnoreFiles = []string{".ignore"} // which is looked for in each directory
	_, err = incremental.Process(ctx, p.root, inc, p.opts, result)
	require.ErrorIs(t, err, context.Canceled)
	require.NotZero(t, lookups)
	require.Equal(t, lookups, files.lookups.Load(), "after the cancel nothing is looked up")
}

// TestNothingIsDeletedAfterACancel, although the run had processed all files before it saw the cancel.
func TestNothingIsDeletedAfterACancel(t *testing.T) {
	t.Parallel()
	p := newProject(t, "a=1", "b=2")
	p.run()
	require.NoError(t, os.Remove(p.path("b")))
	p.write("a", "x")
	p.opts.Workers = 1
	ctx, cancel := context.WithCancel(t.Context())
	p.inc.Deleted = func(rel string) { t.Error(rel, " is deleted") }
	var report fileproc.Report
	p.opts.Report = &report
	_, err := incremental.Process(ctx, p.root, p.inc, p.opts, func(f *fileproc.File) (string, error) {
		cancel()
		return result(f)
	})
	require.EqualError(t, err, context.Canceled.Error(), "once")
	require.Zero(t, report.Abandoned)
	p.run()
	require.Equal(t, []string{"b"}, p.gone)
}

// TestGoneBelowALink: where a link has replaced a directory, the files of the directory exist only for a run that follows the
// link, and ignore files behind the link count only for such a run. A link to itself leads nowhere.
func TestGoneBelowALink(t *testing.T) {
	t.Parallel()
	for links, want := range map[fileproc.Symlinks][]string{
		fileproc.SymlinksSkip:   {"d/y", "d/z", "e/z", "f"},
		fileproc.SymlinksFiles:  {"d/y", "d/z", "e/z", "f"},
		fileproc.SymlinksFollow: {"e/z", "f"}, // d/z is ignored
	} {
		t.Run(links.String(), func(t *testing.T) {
			t.Parallel()
			p := newProject(t, "d/y=1", "d/z=1", "e/z=2", "f=3", "other/.ignore=z", "other/y=4")
			p.opts.IgnoreFiles = []string{".ignore"}
			p.opts.Symlinks = links
			p.run()
			for _, rel := range []string{"d", "e", "f"} {
				require.NoError(t, os.Rename(p.path(rel), filepath.Join(p.root, "..", rel)))
			}
			testtree.Symlink(t, "other", p.path("d"))
			require.NoError(t, os.Symlink("e", p.path("e")))
			require.NoError(t, os.Symlink("f", p.path("f")))
			p.run()
			require.Equal(t, want, p.gone)
		})
	}
}

// TestGoneDirectoryThatBecameAnIgnoreFile: the ignore file also decides about the files that were in the directory.
func TestGoneDirectoryThatBecameAnIgnoreFile(t *testing.T) {
	t.Parallel()
	p := newProject(t, ".ignore/a.md=1", ".ignore/b=1", "d/a.md=1", "d/b=2")
	p.opts.IgnoreFiles = []string{".ignore"}
	p.run()
	require.NoError(t, os.RemoveAll(p.path(".ignore")))
	require.NoError(t, os.RemoveAll(p.path("d")))
	p.write(".ignore", "*.md\n")
	p.run()
	require.Equal(t, []string{".ignore/b", "d/b"}, p.gone)
}

// TestGoneIsWhatTheOptionsSelect: a run neither tells of a file that is gone, nor drops its entry, unless its options would select it.
func TestGoneIsWhatTheOptionsSelect(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]fileproc.Options{
		"MaxDepth":    {MaxDepth: 2},
		"Suffixes":    {Suffixes: []string{".md"}},
		"Include":     {Include: []string{"d/*"}},
		"Exclude":     {Exclude: []string{"**/gone.txt"}},
		"IgnoreCase":  {Exclude: []string{"**/GONE.txt"}, IgnoreCase: true},
		"SkipHidden":  {SkipHidden: true},
		"SkipMarked":  {SkipMarked: []string{"MARK"}},
		"below root":  {SkipMarked: []string{"*/MARK", "*/a"}},
		"IgnoreFiles": {IgnoreFiles: []string{"ignore"}},
		"at root":     {IgnoreFiles: []string{"conf/ignore"}},
		"SelectDir":   {SelectDir: func(e fileproc.Entry) bool { return e.Name() != ".e" }},
	} {
		p := newProject(t)
		files := fstest.MapFS{"a": {}, "d/.e/gone.txt": {}, "d/.e/stays.txt": {}, "d/.e/MARK": {}, "d/ignore": {Data: []byte("gone.txt\n")}, "conf/ignore": {Data: []byte(".e/\n")}}
		p.opts.FS, p.root = files, "."
		p.run()
		delete(files, "d/.e/gone.txt")
		p.opts = o
		p.opts.FS = files
		for range 2 {
			p.run()
			require.Empty(t, p.gone, name)
		}
		p.opts = fileproc.Options{FS: files}
		p.run()
		require.Equal(t, []string{"d/.e/gone.txt"}, p.gone, name)
	}
	p := newProject(t)
	files := fstest.MapFS{"a": {}, "b": {}, "c": {}, "d": {}, "e": {}, "f": {}, "g": {}, "h": {}}
	p.opts.FS, p.root = files, "."
	p.run()
	for name := range files {
		if name != "a" {
			delete(files, name)
		}
	}
	var all []string
	for shard := range 3 {
		p.opts.Shards, p.opts.Shard = 3, shard
		p.run()
		require.Less(t, len(p.gone), 7)
		all = append(all, p.gone...)
	}
	require.ElementsMatch(t, []string{"b", "c", "d", "e", "f", "g", "h"}, all)
}

// TestGoneBesideWhatIsNoIgnoreFile: a FIFO, a link or a directory with the name of an ignore file says nothing about gone files. A run
// does not read it, since the read of a FIFO could take for ever.
func TestGoneBesideWhatIsNoIgnoreFile(t *testing.T) {
	t.Parallel()
	for mode, isIgnored := range map[fs.FileMode]bool{fs.ModeNamedPipe: false, fs.ModeSocket: false, fs.ModeDevice: false, fs.ModeDir: false,
		fs.ModeIrregular: true, 0: true} { // object stores have the last but one
		p := newProject(t)
		files := fstest.MapFS{"a": {}, "gone": {}}
		p.opts.FS, p.root, p.opts.IgnoreFiles = files, ".", []string{".ignore"}
		p.run()
		files[".ignore"] = &fstest.MapFile{Data: []byte("gone\n"), Mode: mode}
		full, err := fileproc.Process(t.Context(), p.root, p.opts, result)
		require.NoError(t, err)
		require.Equal(t, isIgnored, !slices.Contains(full, "gone="), mode)
		delete(files, "gone")
		_, err = p.try(t.Context())
		require.NoError(t, err)
		require.Equal(t, isIgnored, len(p.gone) == 0, mode)
	}
}

// TestGoneGitIgnore: a file that git's rules leave out now is not selected, so a run does not report it as gone. The rules are those of
// the directories above root, of a repository in another one, and of the user.
func TestGoneGitIgnore(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", "")
	require.True(t, testtree.Make(t, home, ".config/git/ignore=*.u\n"))
	for _, withFS := range []bool{false, true} {
		p := newProject(t, "a.log=1", "a.u=1", "a.x=1", "d/a.log=1", "d/k.log=1", "d/a=1", "sub/a.log=1", "sub/a.o=1", "sub2/a.log=1", "z/.git/a=1")
		root := p.root
		require.True(t, testtree.Make(t, filepath.Dir(root), ".git=gitdir: x\n", ".gitignore=*.x\n"))
		want := []string{"d/a", "d/k.log", "sub/a.log", "sub2/a.log"}
		if withFS { // where the user's file does not apply
			p.opts.FS, p.root = os.DirFS(filepath.Dir(root)), filepath.Base(root)
			want = append([]string{"a.u"}, want...)
		}
		p.run()
		for _, rel := range []string{"a.log", "a.u", "a.x", "d/a.log", "d/k.log", "d/a", "sub/a.log", "sub/a.o", "sub2/a.log", "z"} {
			require.NoError(t, os.RemoveAll(filepath.Join(root, rel)))
		}
		p.opts.GitIgnore = true
		require.True(t, testtree.Make(t, root, ".gitignore=*.log\n!k.log\n", "sub/.gitignore=*.o\n", "sub/.git=gitdir: ../sub2/.git\n", "sub2/.git/HEAD=x", "sub2/.git/objects/", "sub2/.git/refs/"))
		p.run()
		require.Equal(t, want, p.gone)
	}
}

// TestGoneMarker: a marker that has vanished together with its directory marks nothing.
func TestGoneMarker(t *testing.T) {
	t.Parallel()
	p := newProject(t, "d/a=1", "d/.nobackup=", "e/a=2")
	p.run()
	require.NoError(t, os.RemoveAll(p.path("d")))
	p.opts.SkipMarked = []string{".nobackup"}
	p.run()
	require.Equal(t, []string{"d/a"}, p.gone)
	p.opts.SkipMarked = nil
	p.run()
	require.Equal(t, []string{"d/.nobackup"}, p.gone)
}

// TestGoneOddNames: an ignore file counts also in a directory whose name is not UTF-8.
func TestGoneOddNames(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	if !testtree.Make(t, p.root, "d\xff/\xfe.md=1") {
		t.Skip("the file system refuses or changes names that are not UTF-8")
	}
	p.inc.Codec = incremental.Raw[string]()
	p.opts.IgnoreFiles = []string{".ignore"}
	p.settle()
	p.run()
	require.NoError(t, os.Remove(p.path("d\xff/\xfe.md")))
	p.write("d\xff/.ignore", "*.md\n")
	p.run()
	require.Empty(t, p.gone)
	require.NoError(t, os.Remove(p.path("d\xff/.ignore")))
	p.run()
	require.Contains(t, p.gone, "d\xff/\xfe.md")
}

// TestSourceOfChanges: paths from Options.Files that are in the cache file and do not exist are deleted.
func TestSourceOfChanges(t *testing.T) {
	t.Parallel()
	incremental.NeedsTimes(t)
	p := newProject(t, "a=1", "b=2", "d/c=3", "d/e=4", "d/f/g=5", "h/i=6")
	p.calledFor("a", "b", "d/c", "d/e", "d/f/g", "h/i")
	given := func(names ...string) error {
		p.opts.Files = slices.Values(names)
		_, err := p.try(t.Context())
		return err
	}
	remove := func(rel string) { require.NoError(t, os.RemoveAll(p.path(rel))) }

	remove("b")
	remove("d/c")
	require.NoError(t, given("a", "b", "./b"))
	require.Empty(t, p.calls)
	require.Equal(t, []string{"b"}, p.gone, "of d/c it has not been told")
	require.ErrorIs(t, given("b"), fs.ErrNotExist, "it is not known any more")

	require.NoError(t, os.WriteFile(p.path("d/new"), []byte("7"), 0o644))
	p.settle()
	require.NoError(t, given("d/"))
	require.Equal(t, []string{"d/new"}, p.calls)
	require.Equal(t, []string{"d/c"}, p.gone)

	remove("d")
	err := given("d/f/", "none/")
	require.ErrorIs(t, err, fs.ErrNotExist, "nothing was known below none")
	require.Contains(t, err.Error(), "none")
	require.NotContains(t, err.Error(), "d/f")
	require.Equal(t, []string{"d/f/g"}, p.gone)
	require.ErrorIs(t, given("d/f/"), fs.ErrNotExist, "nothing is known below it any more")
	require.Empty(t, p.gone)
	p.opts.Suffixes = []string{"new"}
	require.NoError(t, given(filepath.ToSlash(p.path("d"))+"/"))
	require.Empty(t, p.calls)
	require.Equal(t, []string{"d/new"}, p.gone, "the other is not selected")
	p.opts.Suffixes = nil

	remove("a")
	require.NoError(t, os.Mkdir(p.path("a"), 0o755))
	require.NoError(t, given("a", "d/e"))
	require.Empty(t, p.calls)
	require.Equal(t, []string{"a", "d/e"}, p.gone, "a directory is in its place")

	// What comes back while the run goes on is there.
	content, err := os.ReadFile(p.path("h/i"))
	require.NoError(t, err)
	remove("h")
	p.opts.Files = func(yield func(string) bool) {
		if yield("h/i") {
			p.write("h/i", string(content))
			yield("h/i")
		}
	}
	_, err = p.try(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"h/i"}, p.calls)
	require.Empty(t, p.gone)

	// A directory that was there when one of its files was named may be gone by now.
	p.write("k/l", "8")
	p.settle()
	require.NoError(t, given("k/"))
	met := make(chan struct{})
	p.opts.Select = func(*fileproc.File) bool { close(met); return false }
	p.opts.Files = func(yield func(string) bool) {
		if yield("k/l") {
			<-met
			remove("k")
			yield("k/")
		}
	}
	_, err = p.try(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"k/l"}, p.gone)
	p.opts.Select = nil

	// What has been processed is not deleted in the same run.
	inc := p.inc
	inc.Deleted = func(rel string) { t.Error(rel, "is deleted") }
	p.opts.Files = func(yield func(string) bool) {
		remove("h")
		if yield("h/i") {
			p.write("h/i", string(content))
			yield("h/i")
		}
	}
	_, err = incremental.Process(t.Context(), p.root, inc, p.opts, func(f *fileproc.File) (string, error) {
		remove("h")
		return "", nil
	})
	require.NoError(t, err)

	// Without root, nothing is known of any file.
	require.NoError(t, os.Rename(p.root, p.root+".away"))
	require.ErrorIs(t, given("h/i", "h/"), fs.ErrNotExist)
	require.Empty(t, p.gone)
	require.NoError(t, os.Rename(p.root+".away", p.root))
	require.NoError(t, given("h/i"))
	require.Empty(t, p.calls)
	require.Equal(t, []string{"h/i"}, p.gone)
}

// TestFilesAgreesWithAFullRun: a run with Files and a full run find the same files gone where a link has replaced a directory or a file.
func TestFilesAgreesWithAFullRun(t *testing.T) {
	t.Parallel()
	for links, want := range map[fileproc.Symlinks][]string{
		fileproc.SymlinksSkip:   {"d/a", "d/b/c", "l"},
		fileproc.SymlinksFiles:  {"d/a", "d/b/c"},
		fileproc.SymlinksFollow: {},
	} {
		for _, names := range [][]string{nil, {"d/a", "d/b/c", "l"}, {"d/", "l"}, {"d/b/", "d/a", "l"}} {
			p := newProject(t, "d/a=1", "d/b/c=2", "l=3", "z=4")
			p.opts.Symlinks = links
			p.run()
			for from, to := range map[string]string{"d": "moved", "l": "file"} {
				require.NoError(t, os.Rename(p.path(from), p.path(to)))
				testtree.Symlink(t, to, p.path(from))
			}
			if names != nil {
				p.opts.Symlinks, p.opts.Files = fileproc.SymlinksSkip, slices.Values(names)
			}
			_, err := p.try(t.Context())
			if names == nil || links == fileproc.SymlinksSkip {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, fs.ErrInvalid, "what a run with Files cannot reach is a failure")
			}
			require.ElementsMatch(t, want, p.gone, "%v %q", links, names)
		}
	}
}

// TestFilesGivesALink: a link that Files gives, and that leads to a file, counts as existing.
func TestFilesGivesALink(t *testing.T) {
	t.Parallel()
	p := newProject(t, "a=1")
	testtree.Symlink(t, "a", p.path("l"))
	p.opts.Symlinks, p.opts.Files = fileproc.SymlinksFiles, slices.Values([]string{"l"})
	for range 2 {
		p.run()
		require.Empty(t, p.gone)
	}
	p.remove("l")
	_, err := p.try(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"l"}, p.gone)
}

// TestFilesGivesADirectoryAlone: d/. stands for the files in d, existing and gone, and not for files in directories below d.
func TestFilesGivesADirectoryAlone(t *testing.T) {
	t.Parallel()
	p := newProject(t, "d/a=1", "d/b/c=2", "d/e=3")
	p.run()
	for _, step := range []struct {
		remove  []string
		files   iter.Seq[string]
		deleted string
	}{
		{[]string{"d/a", "d/b/c"}, slices.Values([]string{"d/."}), "d/a"},
		{[]string{"d"}, slices.Values([]string{"d/."}), "d/e"},
		{nil, nil, "d/b/c"},
	} {
		for _, rel := range step.remove {
			p.remove(rel)
		}
		p.opts.Files = step.files
		_, err := p.try(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{step.deleted}, p.gone)
	}
}

// TestDeletedWhatWasNotKept: a file whose result was not kept is reported too when it is gone.
func TestDeletedWhatWasNotKept(t *testing.T) {
	t.Parallel()
	for _, byName := range []bool{false, true} {
		p := newProject(t, "a=1")
		p.opts.SkipBinary = true
		p.calledFor("a")
		p.write("new", "2")
		p.write("binary", "\x00")
		require.NoError(t, os.Chtimes(p.path("binary"), time.Now(), time.Now().Add(time.Hour)))
		if byName {
			p.opts.Files = slices.Values([]string{"new", "binary"})
		}
		p.calledFor("new")
		require.NoError(t, os.Remove(p.path("new")))
		require.NoError(t, os.Remove(p.path("binary")))
		_, err := p.try(t.Context())
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"binary", "new"}, p.gone)
	}
}

// TestRootMovesAway: when a run can look up nothing any more, it deletes nothing.
func TestRootMovesAway(t *testing.T) {
	t.Parallel()
	p := newProject(t, "a=1")
	p.calledFor("a")
	p.opts.Files = func(yield func(string) bool) {
		if err := os.Rename(p.root, p.root+".away"); err != nil {
			t.Log("root cannot be renamed while it is open: ", err)
		}
		yield("a")
	}
	got, err := p.try(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"a=1"}, got)
	require.Empty(t, p.gone)
}

// TestRootInAnFSIsALink: files that are gone below the link are deleted.
func TestRootInAnFSIsALink(t *testing.T) {
	t.Parallel()
	p := newProject(t, "a=1", "b=2", "c=3")
	target := p.root
	testtree.Symlink(t, "root", target+".link")
	p.opts.FS, p.root = os.DirFS(filepath.Dir(target)), "root.link"
	p.calledFor("a", "b", "c")
	require.NoError(t, os.Remove(filepath.Join(target, "a")))
	p.calledFor()
	require.Equal(t, []string{"a"}, p.gone)
	require.NoError(t, os.Remove(filepath.Join(target, "b")))
	p.opts.Files = slices.Values([]string{"b", "c"})
	_, err := p.try(t.Context())
	require.NoError(t, err)
	require.Empty(t, p.calls)
	require.Equal(t, []string{"b"}, p.gone)
}

// TestRootMovesAwayDuringAListing: a file that could not be read and cannot be looked up any more is not deleted.
func TestRootMovesAwayDuringAListing(t *testing.T) {
	t.Parallel()
	p := newProject(t, "a=1", "b=2")
	p.inc.Compare = incremental.CompareContent
	p.opts.MaxFileSize = 10
	p.calledFor("a", "b")
	p.write("a", "longer than that")
	p.opts.OnError = func(err error) error {
		require.ErrorIs(t, err, fileproc.ErrTooLarge)
		if err := os.Rename(p.root, p.root+".away"); err != nil {
			t.Log("root cannot be renamed while it is open: ", err)
		}
		return nil
	}
	_, err := p.try(t.Context())
	require.NoError(t, err)
	require.Empty(t, p.gone)
}

// TestSourceOfChangesBehindALink: a file that other runs reach through a link exists for a run that is given names, too. Such a run
// cannot follow links: the name is a failure.
func TestSourceOfChangesBehindALink(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	outside := filepath.Join(p.root, "..", "outside")
	require.NoError(t, os.Mkdir(outside, 0o755))
	for _, name := range []string{"a", "b"} {
		require.NoError(t, os.WriteFile(filepath.Join(outside, name), []byte(name), 0o644))
	}
	testtree.Symlink(t, outside, p.path("d"))
	require.NoError(t, os.WriteFile(p.root+".file", []byte("c"), 0o644))
	require.NoError(t, os.Symlink(p.root+".file", p.path("l")))
	p.settle()
	p.opts.Symlinks, p.opts.SymlinksOutside = fileproc.SymlinksFollow, true
	p.calledFor("d/a", "d/b", "l")
	p.opts.Symlinks, p.opts.SymlinksOutside = fileproc.SymlinksSkip, false
	for _, name := range []string{"d/a", "l", "d/"} {
		p.opts.Files = slices.Values([]string{name})
		_, err := p.try(t.Context())
		require.ErrorIs(t, err, fs.ErrInvalid, name)
		require.Empty(t, p.gone, name)
	}
	require.NoError(t, os.Remove(filepath.Join(outside, "a")))
	p.opts.Files = slices.Values([]string{"d/a"})
	_, err := p.try(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"d/a"}, p.gone)
}

// TestSourceOfChangesBehindALinkOfAnFS: an os.DirFS opens what a name leads to, so both a link and the file that it leads to exist.
func TestSourceOfChangesBehindALinkOfAnFS(t *testing.T) {
	t.Parallel()
	p := newProject(t, "d/a=1", "d/b=2", "f=3")
	testtree.Symlink(t, "d", p.path("link"))
	require.NoError(t, os.Symlink("f", p.path("l")))
	dir := p.root
	p.opts.FS, p.root = os.DirFS(dir), "."
	given := func(names ...string) {
		p.opts.Files = slices.Values(names)
		_, err := p.try(t.Context())
		require.NoError(t, err)
	}
	p.settle()
	given("link/a", "link/b", "l")
	require.ElementsMatch(t, []string{"link/a", "link/b", "l"}, p.calls)
	for _, names := range [][]string{{"link/a", "l"}, {"link/"}} {
		given(names...)
		require.Empty(t, p.calls, names)
		require.Empty(t, p.gone, names)
	}
	require.NoError(t, os.Remove(filepath.Join(dir, "d", "a")))
	given("link/")
	require.Equal(t, []string{"link/a"}, p.gone)
}

// TestGoneBesideAMarkerThatCannotBeRead: a file in SkipMarked marks its directory also if it cannot be read, so that no file there is
// selected, whether it exists or not. An ignore file that cannot be read ignores nothing.
func TestGoneBesideAMarkerThatCannotBeRead(t *testing.T) {
	t.Parallel()
	files := failingFS{fstest.MapFS{"a": {Data: []byte("1")}, "d/b": {Data: []byte("2")}, "e/c": {Data: []byte("3")}}, map[string]error{}, map[string]error{}}
	tree := files.ReadLinkFS.(fstest.MapFS)
	var gone []string
	inc := incremental.Options[string]{File: filepath.Join(t.TempDir(), "cache"), Deleted: func(rel string) { gone = append(gone, rel) }}
	opts := fileproc.Options{FS: files, SkipMarked: []string{"SKIP"}, IgnoreFiles: []string{".ignore"}, OnError: func(error) error { return nil }}
	run := func() {
		gone = nil
		_, err := incremental.Process(t.Context(), ".", inc, opts, result)
		require.NoError(t, err)
	}
	run()
	delete(tree, "d/b")
	delete(tree, "e/c")
	tree["d/SKIP"], files.fails["d/SKIP"] = &fstest.MapFile{}, fs.ErrPermission
	tree["e/.ignore"], files.fails["e/.ignore"] = &fstest.MapFile{Data: []byte("c")}, fs.ErrPermission
	run()
	require.Equal(t, []string{"e/c"}, gone)
	delete(tree, "d/SKIP")
	run()
	require.Equal(t, []string{"d/b"}, gone)
}

// TestGoneWithIgnoreFilesElsewhere: ignore files outside root do not keep a run from telling what is gone.
func TestGoneWithIgnoreFilesElsewhere(t *testing.T) {
	t.Parallel()
	p := newProject(t, "a=1", "b=2", "c=3", "d=4")
	p.run()
	_ = os.WriteFile(filepath.Join(filepath.Dir(p.root), "none\xff"), []byte("*"), 0o644) // is no such file, though inside root this name stands for one
	for name, rel := range map[string]string{filepath.Join(filepath.Dir(p.root), "none"): "a", "../none": "b", "conf/none": "c"} {
		p.opts.IgnoreFiles = []string{name}
		require.NoError(t, os.Remove(p.path(rel)))
		p.run()
		require.Equal(t, []string{rel}, p.gone, name)
	}
}

// TestFilesWithADotAtTheirEnds: the dot at the end of a file's name belongs to the name.
func TestFilesWithADotAtTheirEnds(t *testing.T) {
	t.Parallel()
	p := newProject(t, "a.=1", "b=2")
	if _, err := os.Stat(p.path("a")); err == nil {
		t.Skip("names end without dots here")
	}
	p.run()
	require.NoError(t, os.Remove(p.path("a.")))
	require.NoError(t, os.Remove(p.path("b")))
	p.opts.Files = slices.Values([]string{"a."})
	_, err := p.try(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"a."}, p.gone)
}

// TestRunOverNamesKeepsWhatLinksAre: after a run over all files that has followed links, a session's run over names leaves that in the cache
// file: a file behind a link counts as existing for a run that is given its path.
func TestRunOverNamesKeepsWhatLinksAre(t *testing.T) {
	t.Parallel()
	l := newUnopened(t, fileproc.Options{})
	outside := t.TempDir()
	testtree.Make(t, l.root, "b=2")
	testtree.Make(t, outside, "a=1")
	testtree.Symlink(t, outside, filepath.Join(l.root, "link"))
	l.inc.Compare = incremental.CompareContent
	var gone []string
	inc, opts := l.inc, fileproc.Options{Symlinks: fileproc.SymlinksFollow, SymlinksOutside: true, OnError: func(error) error { return nil }}
	inc.Deleted = func(rel string) { gone = append(gone, rel) }
	run := func(names ...string) {
		if opts.Files = nil; names != nil {
			opts.Files = slices.Values(names)
		}
		_, err := incremental.Process(t.Context(), l.root, inc, opts, result)
		require.NoError(t, err)
	}
	run()
	require.Contains(t, incremental.Kept(l.root, inc, opts), "link/a")
	l.open()
	l.write("b", "two")
	require.Equal(t, []string{"b=two changed"}, l.run("b"))
	require.NoError(t, l.s.Close(t.Context()))
	opts.Symlinks, opts.SymlinksOutside = fileproc.SymlinksSkip, false
	run("b", "link/")
	require.Empty(t, gone, "it is there")
	l.open()
	require.Equal(t, []string{"b=two unchanged", "link/a deleted"}, l.run("link/a"), "for a session that does not follow links, it is not")
}
