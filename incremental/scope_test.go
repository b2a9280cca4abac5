package incremental_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

var repository = []string{".git/HEAD=x", ".git/objects/", ".git/refs/"}

// TestScopeOfARepository: when a directory becomes a repository, or stops being one, that decides what is ignored there, as an ignore
// file of git's does. Only runs with GitIgnore take account of that.
func TestScopeOfARepository(t *testing.T) {
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", "")
	l := newLive(t, fileproc.Options{GitIgnore: true, Suffixes: []string{".md"}}, "d/.gitignore=x.md", "d/x.md=1", "d/y.md=2", "z.md=3")
	require.Equal(t, []string{"d/x.md=1 new", "d/y.md=2 new", "z.md=3 new"}, l.run())
	var inD []string
	for _, spec := range repository {
		inD = append(inD, "d/"+spec)
	}
	testtree.Make(t, l.root, inD...)
	require.Equal(t, []string{"d/x.md deleted", "d/y.md=2 unchanged"}, l.run("d/.git"))
	l.write("d/.gitignore", "y.md")
	require.Subset(t, l.run("d/.gitignore"), []string{"d/x.md=1 new", "d/y.md deleted"})
	require.NoError(t, os.RemoveAll(l.path("d/.git")))
	require.Subset(t, l.run("d/.git"), []string{"d/x.md=1 unchanged", "d/y.md=2 new"})

	l.opts.GitIgnore = false
	l.open()
	l.run()
	require.Empty(t, l.run("d/.git"))
	require.Empty(t, l.run("d/.gitignore"))
}

// TestScopeNames: a name may begin with "./", as find prints it, and with the absolute path of root.
func TestScopeNames(t *testing.T) {
	l := newLive(t, fileproc.Options{}, "a=1", "d/b=2")
	require.Equal(t, []string{"a=1 new", "d/b=2 new"}, l.run())
	l.write("d/b", "two")
	require.Equal(t, []string{"d/b=two changed"}, l.run("./d/b"))
	require.NoError(t, os.Remove(l.path("a")))
	require.Equal(t, []string{"a deleted"}, l.run(filepath.ToSlash(l.path("a"))))
	require.Equal(t, []string{"d/b=two unchanged"}, l.run(filepath.ToSlash(l.path("d"))+"/"))
}

// TestScopeOfExclude: .git/info/exclude of an FS decides for all files.
func TestScopeOfExclude(t *testing.T) {
	t.Parallel()
	l := newMemory(t, fileproc.Options{GitIgnore: true}, ".git/HEAD=x", ".git/objects/x=x", ".git/refs/x=x", "a=1", "d/b=2")
	require.Equal(t, []string{"a=1 new", "d/b=2 new"}, l.run())
	l.write(".git/info/exclude", "b\n")
	require.Equal(t, []string{"a=1 unchanged", "d/b deleted"}, l.run(".git/info/exclude"))
	l.fails[".git/info/exclude"] = syscall.EIO
	require.Equal(t, []string{" fails", "a=1 unchanged", "d/b=2 new"}, l.run("."))
	require.Equal(t, []string{"."}, slices.Collect(maps.Keys(maps.Collect(l.s.Failed()))), "no listing shows it")
	clear(l.fails)
	l.opts.GitIgnore = false
	l.open()
	l.run()
	require.Equal(t, []string{".git/info/exclude=b\n unchanged"}, l.run(".git/info/exclude"))
}

// TestScopeOfAnIgnoreFile: an ignore file stands for its directory. An ignore file that Options names by a path stands for all files.
func TestScopeOfAnIgnoreFile(t *testing.T) {
	t.Parallel()
	l := newMemory(t, fileproc.Options{IgnoreFiles: []string{"conf/rules", ".ignore"}, Suffixes: []string{".md"}}, "a.md=1", "d/b.md=2", "d/c.md=3")
	require.Equal(t, []string{"a.md=1 new", "d/b.md=2 new", "d/c.md=3 new"}, l.run())
	l.write("conf/rules", "b.md")
	require.Equal(t, []string{"a.md=1 unchanged", "d/b.md deleted", "d/c.md=3 unchanged"}, l.run("conf/rules"))
	l.write("d/.ignore", "c.md")
	require.Equal(t, []string{"d/c.md deleted"}, l.run("d/.ignore"))
	l.remove("d/.ignore")
	require.Equal(t, []string{"d/c.md=3 new"}, l.run("d/.ignore"))

	l.opts.IgnoreFiles = []string{"conf/.ignore", ".ignore"} // by its path and by its name
	l.open()
	require.Len(t, l.run(), 3)
	l.write("conf/.ignore", "b.md")
	require.Equal(t, []string{"a.md=1 unchanged", "d/b.md deleted", "d/c.md=3 unchanged"}, l.run("conf/.ignore"))
}

// TestScopeOfRulesAboveRoot: a file above root that says what is ignored fails with a path outside root. Another try looks at all files.
func TestScopeOfRulesAboveRoot(t *testing.T) {
	t.Parallel()
	l := newMemory(t, fileproc.Options{GitIgnore: true}, ".git/HEAD=x", ".git/objects/x=x", ".git/refs/x=x", ".gitignore=b", "root/a=1", "root/d/b=2")
	l.root = "root"
	for err, want := range map[error][]string{syscall.EIO: {"../.gitignore fails", "a=1 new", "d/b=2 new"}, fileproc.ErrChanged: {"a=1 new", "d/b=2 new"}} {
		l.inc.File += "x"
		l.open()
		l.fails[".gitignore"] = err
		require.Equal(t, want, l.run())
		for rel := range l.s.Failed() {
			require.Equal(t, ".", rel)
		}
		require.Empty(t, l.unsettled())
		clear(l.fails)
		require.Equal(t, []string{"a=1 unchanged", "d/b deleted"}, l.run("."))
	}
}

// TestScopeOfAnObjectStore: a name leads to a file of a mode that is neither regular nor special, as object stores have.
func TestScopeOfAnObjectStore(t *testing.T) {
	t.Parallel()
	l := newMemory(t, fileproc.Options{}, "d/a=1", "d/b=2")
	for rel := range l.MapFS {
		l.MapFS[rel].Mode = fs.ModeIrregular
	}
	require.Equal(t, []string{"d/a=1 new", "d/b=2 new"}, l.run())
	l.MapFS["d/a"].Data = []byte("x")
	require.Equal(t, []string{"d/a=x changed"}, l.run("d/a"))
	l.MapFS["d/a"].Mode = fs.ModeNamedPipe
	require.Equal(t, []string{"d/a deleted"}, l.run("d/a"))
	require.Zero(t, l.report.Found, "there is no file")
	require.Empty(t, l.unsettled())
	l.remove("d/b")
	require.Equal(t, []string{"d/b deleted"}, l.run("d/b"))
}

// TestScopeOfHardLinks: a write by one of several names shows at all names, even if the written name is gone when the run looks. The
// name of a directory is no reason to look at all files.
func TestScopeOfHardLinks(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		l := newLive(t, fileproc.Options{}, "a=1", "d/c=3")
		if err := os.Link(l.path("a"), l.path("b")); err != nil {
			t.Skip("no hard links: ", err)
		}
		l.run()
		l.write("b", "two")
		require.Equal(t, []string{"a=two changed", "b=two changed", "d/c=3 unchanged"}, l.run("b"))
		l.settle()
		l.run()
		l.write("b", "three")
		require.NoError(t, os.Remove(l.path("b")))
		require.Equal(t, []string{"a=three changed", "b deleted", "d/c=3 unchanged"}, l.run("b"))
		require.Equal(t, []string{"d/c=3 unchanged"}, l.run("d"))
	})
}

// TestScopeOfNamesBehindALink: an event with a path through a link may be about the file that the link leads to, at whatever level.
func TestScopeOfNamesBehindALink(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		l := newLive(t, fileproc.Options{}, "d/e/f/x=1", "g/e/f/x=2")
		require.Len(t, l.run(), 2)
		require.NoError(t, os.RemoveAll(l.path("d")))
		testtree.Symlink(t, "g", l.path("d"))
		l.write("g/e/f/x", "two")
		require.Equal(t, []string{"d/e/f/x deleted", "g/e/f/x=two changed"}, l.run("d/e/f/x"))
		l.write("g/e/f/x", "three")
		require.Equal(t, []string{"g/e/f/x=three changed"}, l.run("d/e"))
		require.Empty(t, l.run("h/e/f/x"), "there is no link")
	})
}

// TestScopeAllowsNothingElse: with MaxDepth, a run over names lists the directories that lead to them. It asks Select, SelectDir and
// OnSkip only about files and directories that it looks at.
func TestScopeAllowsNothingElse(t *testing.T) {
	t.Parallel()
	var selects, dirs, skips []string
	l := newMemory(t, fileproc.Options{MaxDepth: 3, Workers: 1, Suffixes: []string{".md"},
		Select:    func(f *fileproc.File) bool { selects = append(selects, f.Rel()); return f.Name() != "no.md" },
		SelectDir: func(e fileproc.Entry) bool { dirs = append(dirs, e.Rel()); return e.Name() != "no" },
		OnSkip:    func(e fileproc.Entry, _ fileproc.SkipReason) { skips = append(skips, e.Rel()) },
	}, "a.md=1", "a.txt=", "d/b.md=2", "d/b.txt=", "d/no.md=", "d/e/c.md=3", "d/e/c.txt=", "d/no/c.md=", "g/d.md=", "g/d.txt=", "d/e/f/deep.md=")
	l.opts.Workers = 1
	l.open()
	run := func(names ...string) []string {
		selects, dirs, skips = nil, nil, nil
		got := l.run(names...)
		for _, s := range []*[]string{&selects, &dirs, &skips} {
			slices.Sort(*s)
		}
		return got
	}
	require.Len(t, run(), 4)
	require.Equal(t, []string{"d/b.md=2 unchanged"}, run("d/b.md", "d/b.txt", "d/no.md"))
	require.Equal(t, []string{"d/b.md", "d/no.md"}, selects)
	require.Equal(t, []string{"d"}, dirs)
	require.Equal(t, []string{"d/b.txt", "d/no.md"}, skips)
	require.Equal(t, []string{"d/e/c.md=3 unchanged"}, run("d/e"))
	require.Equal(t, []string{"d", "d/e"}, slices.DeleteFunc(dirs, func(rel string) bool { return rel == "d/e/f" }))
	require.Equal(t, []string{"d/e/c.md"}, selects)
	require.Subset(t, []string{"d/e/c.txt", "d/e/f"}, skips)
	require.Contains(t, skips, "d/e/c.txt")
	require.Empty(t, run("gone"))
	require.Zero(t, l.report.Directories, "nothing is listed")
	require.Empty(t, run("d/no"))
	require.Equal(t, []string{"d", "d/no"}, dirs)
	require.Equal(t, []string{"d/b.md=2 unchanged", "d/e/c.md=3 unchanged"}, run("d", "d/e", "d/b.md"), "once each")
}

// TestScopeOfWhatCannotBeLookedUp: a run tries a name that it may not look up, and so yields the failure. If the name may be that of a
// directory, the run looks at all files.
func TestScopeOfWhatCannotBeLookedUp(t *testing.T) {
	t.Parallel()
	l := newMemory(t, fileproc.Options{}, "a=1", "d/b=2")
	require.Len(t, l.run(), 2)
	l.hidden["a"], l.fails["a"] = fs.ErrPermission, fs.ErrPermission
	require.Equal(t, []string{"a fails"}, l.run("a"))
	require.Empty(t, l.run("a"))
	require.Equal(t, []string{"a"}, slices.Collect(maps.Keys(maps.Collect(l.s.Failed()))))
	clear(l.fails)
	l.hidden["a"] = syscall.EIO
	require.Equal(t, []string{"a=1 changed", "d/b=2 unchanged"}, l.run("a"))
	l.hidden["a"] = syscall.ENOTDIR
	require.Equal(t, []string{"a deleted"}, l.run("a"))
}

// TestScopeBelowAFile: a name below a file leads nowhere, and is no reason to look at all files.
func TestScopeBelowAFile(t *testing.T) {
	t.Parallel()
	l := newLive(t, fileproc.Options{}, "a=1", "d/b=2")
	require.Len(t, l.run(), 2)
	require.Empty(t, l.run("a/x", "a/x/y"))
	require.NoError(t, os.RemoveAll(l.path("d")))
	l.write("d", "3")
	require.Equal(t, []string{"d/b deleted"}, l.run("d/b"))
}

// TestScopeWhereLinksAreFollowed: where a run may reach a file by several paths, it looks at all files, also for one name.
func TestScopeWhereLinksAreFollowed(t *testing.T) {
	t.Parallel()
	for _, links := range []fileproc.Symlinks{fileproc.SymlinksFiles, fileproc.SymlinksFollow} {
		l := newLive(t, fileproc.Options{Symlinks: links}, "a=1", "b=2")
		require.Len(t, l.run(), 2)
		l.write("b", "x")
		require.Equal(t, []string{"a=1 unchanged", "b=x changed"}, l.run("a"))
	}
}

// TestScopeIsRunInOrder: a run over names gives fileproc the names in the order of their paths.
func TestScopeIsRunInOrder(t *testing.T) {
	t.Parallel()
	l := newMemory(t, fileproc.Options{}, "a=1", "b=2", "c=3", "d=4", "e=5", "f=6", "g=7", "h=8", "i=9")
	l.opts.Workers = 1
	l.open()
	var got []string
	for r, err := range l.s.Run(t.Context(), []string{"i", "h", "c", "a", "g", "b", "f", "d", "e"}) {
		require.NoError(t, err)
		got = append(got, r.Rel)
	}
	require.Equal(t, []string{"a", "b", "c", "d", "e", "f", "g", "h", "i"}, got)
}

// TestScopeOfRulesOfAnFS: the absolute path of an ignore file is one of the system. A file of that path relative to root is none.
func TestScopeOfRulesOfAnFS(t *testing.T) {
	l := newMemory(t, fileproc.Options{}, "a=1", "conf/rules=2")
	dir := t.TempDir()
	t.Chdir(dir)
	testtree.Make(t, dir, "conf/rules=a")
	l.opts.IgnoreFiles = []string{filepath.Join(dir, "conf", "rules")}
	l.open()
	require.Equal(t, []string{"conf/rules=2 new"}, l.run())
	l.write("conf/rules", "two")
	require.Equal(t, []string{"conf/rules=two changed"}, l.run("conf/rules"))
	require.Zero(t, l.report.Skipped[fileproc.SkippedIgnored], "the run has not looked at a")
}

// TestScopeKeepsRules: a run over names forgets none of the files that decide for all, although it has not met them.
func TestScopeKeepsRules(t *testing.T) {
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", "")
	l := newLive(t, fileproc.Options{GitIgnore: true}, "a=1", "inc=", "sub/b=2", "sub/.git/HEAD=x", "sub/.git/objects/", "sub/.git/refs/", "sub/.git/config=[include]\npath = ../../inc\n")
	require.Len(t, l.run(), 3)
	require.Equal(t, []string{"a=1 unchanged"}, l.run("a"))
	require.Len(t, l.run("inc"), 3)
	l.write("sub/.git/config", "")
	require.Len(t, l.run(), 3)
	require.Equal(t, []string{"inc= unchanged"}, l.run("inc"), "it is none any more")
}
