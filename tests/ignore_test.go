package fileproc_test

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

// newHome makes an empty home directory for git and this process; there is no other configuration.
func newHome(t *testing.T) string {
	home, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	for name, value := range map[string]string{"HOME": home, "GIT_CONFIG_NOSYSTEM": "1", "GIT_AUTHOR_NAME": "n", "GIT_AUTHOR_EMAIL": "e",
		"GIT_COMMITTER_NAME": "n", "GIT_COMMITTER_EMAIL": "e"} {
		t.Setenv(name, value)
	}
	for _, name := range []string{"XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_CONFIG_COUNT"} {
		t.Setenv(name, "") // restored at the end
		os.Unsetenv(name)
	}
	return home
}

func runGit(t *testing.T, dir string, args ...string) string {
	t.Helper()
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("no git to compare with: ", err)
	}
	cmd := exec.Command(git, args...)
	cmd.Dir = dir
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "git %v: %s", args, &stderr)
	return string(out)
}

func isThere(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

// unignored returns the files that a run over dir delivers with Options.GitIgnore.
func unignored(t *testing.T, dir string) []string {
	t.Helper()
	got, err := fileproc.Process(t.Context(), dir, fileproc.Options{GitIgnore: true, ReadSize: fileproc.NoRead}, relOf)
	require.NoError(t, err)
	slices.Sort(got)
	return names(got)
}

func TestGitIgnoreAgainstGit(t *testing.T) {
	home := newHome(t)
	require.True(t, testtree.Make(t, home,
		".gitconfig=[include]\n\tpath = more/config\n[includeIf \"gitdir:~/none/\"]\n\tpath = wrong\n", "wrong=[core]\n\texcludesFile = /wrong\n",
		"more/config=[CORE] excludesfile = \"~/my ignores\" ; a comment\n", "my ignores=*.mine\n/anchored\n/sub/here\n!kept.mine\n",
		"lib/f=x", "lib/x/f.o=x"))
	source, main := filepath.Join(home, "lib"), filepath.Join(home, "main")
	runGit(t, source, "init", "-q")
	runGit(t, source, "add", ".")
	runGit(t, source, "commit", "-qm", "m")
	tree := []string{".gitignore=*.log\n/build\n!keep.log\n", "sub/.gitignore=deep/x*\n!special.log\n/local\n", "a.log=x", "keep.log=x", "build/f=x", "f=x", "a.mine=x",
		"kept.mine=x", "anchored=x", "sub/anchored=x", "sub/here=x", "sub/a.log=x", "sub/special.log=x", "sub/local=x", "sub/build=x", "sub/deep/xa=x",
		"sub/deep/a=x", "sub/deep/a.mine=x", "sub/deep/special.log=x", "sub/deep/info=x", "info=x"}
	require.True(t, testtree.Make(t, main, tree...))
	runGit(t, main, "init", "-q")
	require.True(t, testtree.Make(t, main, ".git/info/exclude=info\n/sub/deep/a\n", "nested/f=x", "nested/a.log=x", "nested/build=x", "nested/.gitignore=/d/e\n", "nested/d/e=x", "nested/d/f=x", "forced.log=x"))
	runGit(t, main, "-c", "protocol.file.allow=always", "submodule", "-q", "add", source, "lib")
	runGit(t, main, "add", ".gitignore", "f")
	runGit(t, main, "commit", "-qm", "m")
	runGit(t, filepath.Join(main, "nested"), "init", "-q")
	require.True(t, testtree.Make(t, main, ".git/modules/lib/info/exclude=*.obj\n", "lib/y.obj=x", "lib/x/z.log=x"))
	work := filepath.Join(home, "work")
	runGit(t, main, "worktree", "add", "-q", work)
	require.True(t, testtree.Make(t, work, tree[1:]...))
	link := filepath.Join(home, "link")
	roots := []string{main, main + "/sub", main + "/sub/deep", main + "/lib", main + "/lib/x", main + "/nested", work, work + "/sub", work + "/sub/deep"}
	if os.Symlink(filepath.Join(main, "sub"), link) == nil {
		roots = append(roots, link)
	}
	check := func() (delivered int) {
		for _, root := range roots {
			var want []string
			var add func(prefix string)
			add = func(prefix string) {
				for f := range strings.SplitSeq(runGit(t, filepath.Join(root, prefix), "ls-files", "-co", "--exclude-standard", "-z"), "\x00") {
					switch {
					case f == "":
					case f == "lib" || f == "nested/": // a repository of its own, which git does not list
						if f = strings.TrimSuffix(f, "/"); isThere(filepath.Join(root, prefix, f, ".git")) {
							add(prefix + f + "/")
						}
					default:
						want = append(want, filepath.FromSlash(prefix+f))
					}
				}
			}
			add("")
			slices.Sort(want)
			got := unignored(t, root)
			require.Equal(t, slices.Compact(want), got, root)
			delivered += len(got)
		}
		return delivered
	}
	all := check()

	// Later configuration takes precedence, most of all the work tree's, and a relative path starts at its top.
	runGit(t, main, "config", "core.excludesFile", "rules")
	require.True(t, testtree.Make(t, main, "rules=/sub/deep/info\nkept.mine\n/anchored\n"))
	require.True(t, testtree.Make(t, work, "rules=sub/a*\nbuild\n"))
	require.NotEqual(t, all, check())
	runGit(t, main, "config", "extensions.worktreeConfig", "true")
	runGit(t, work, "config", "--worktree", "core.excludesFile", "")
	check()

	// A file that git tracks is not ignored.
	runGit(t, main, "add", "-f", "forced.log")
	require.Contains(t, runGit(t, main, "ls-files"), "forced.log\n")
	require.Contains(t, unignored(t, main), "forced.log")
	for _, rel := range unignored(t, main) {
		require.NotContains(t, strings.Split(rel, "/"), ".git")
	}
}

// TestGitIgnore has what git does not do: repositories in and beside others, in an fs.FS, and what is damaged.
func TestGitIgnore(t *testing.T) {
	home := newHome(t)
	const head = "/.git/HEAD=ref: refs/heads/main\n"
	require.True(t, testtree.Make(t, home, ".config/git/ignore=*.g\n", "none/.gitignore=*.a\n", "none/x.a=", "none/x.g=", "none/.git/x=", "none/d/.git=gitdir: ../../r/.git\n", "none/d/.gitignore=*.x\n", "none/d/x.x=", "none/d/x.g=", "none/d/x.a=",
		"r"+head, "r/.git/objects/", "r/.git/refs/", "r/.git/info/exclude=*.x\n", "r/.gitignore=*.a\n/d/e/f/no\nsub/out\n", "r/.ignore=*.b\n", "r/x.a=", "r/x.b=", "r/x.c=", "r/x.g=", "r/d/e/.ignore=*.c\n!x.a\n",
		"r/d/e/f/x.a=", "r/d/e/f/x.b=", "r/d/e/f/x.c=", "r/d/e/f/x.g=", "r/d/e/f/x.x=", "r/d/e/f/no=", "r/d/.git/HEAD=of no repository\n",
		"r/sub/.git=gitdir: ../.git/modules/sub\n", "r/.git/modules/sub/HEAD=x", "r/.git/modules/sub/objects/", "r/.git/modules/sub/refs/", "r/sub/x.a=", "r/sub/x.b=", "r/sub/x.g=", "r/sub/out=", "r/out/f=", "r/sub/out2/f=", "moved/.git=gitdir: ../nowhere\n", "moved/d/x.a=", "moved/d/x.g=", "moved/d/y=", "moved/.gitignore=*.a\n", "odd/.git=x\n", "odd/f="))
	in := func(dir string) string { return filepath.Join(home, filepath.FromSlash(dir)) }
	all := fileproc.Options{GitIgnore: true, ReadSize: fileproc.NoRead}
	with := func(ignore ...string) fileproc.Options {
		o := all
		o.IgnoreFiles = ignore
		return o
	}
	const ofR = " .gitignore .ignore d/e/.ignore d/e/f/x.b d/e/f/x.c out/f sub/out sub/out2/f sub/x.a sub/x.b x.b x.c"
	for _, tc := range []struct {
		dir  string
		opts fileproc.Options
		want string
	}{
		{"none", all, ".git/x .gitignore d/.gitignore d/x.a x.a x.g"},
		{"none", with(".gitignore"), ".git/x .gitignore d/.gitignore x.g"},
		{"r", all, strings.TrimSpace(ofR)},
		{"r", with(".ignore"), ".gitignore .ignore d/e/.ignore d/e/f/x.a out/f sub/out sub/out2/f sub/x.a x.c"},
		{"r/d/e/f", all, "x.b x.c"},
		{"r/d/e/f", with(".ignore", "../.ignore"), "x.a x.b"},
		{"r/sub", all, "out out2/f x.a x.b"},
		{"r/.git", all, "HEAD info/exclude modules/sub/HEAD"},
		{"r/.git/info", all, "exclude"},
		{"moved/d", all, "y"},
		{".", fileproc.Options{GitIgnore: true, ReadSize: fileproc.NoRead, Include: []string{"r/**"}}, "r/" + strings.ReplaceAll(strings.TrimSpace(ofR), " ", " r/")},
	} {
		for _, ordered := range []bool{false, true} {
			var report fileproc.Report
			tc.opts.Ordered, tc.opts.Report = ordered, &report
			got, err := fileproc.Process(t.Context(), in(tc.dir), tc.opts, relOf)
			require.NoError(t, err)
			slices.Sort(got)
			require.Equal(t, strings.Fields(tc.want), slash(got), "%s %v", tc.dir, tc.opts.IgnoreFiles)
			requireBalanced(t, report)
		}
	}

	// .git is counted like other ignored entries: as a file alone.
	var report fileproc.Report
	opts := all
	opts.Report = &report
	for dir, n := range map[string]int64{"moved": 2, "r/d/e/f": 4} {
		_, err := fileproc.Process(t.Context(), in(dir), opts, relOf)
		require.NoError(t, err)
		want := map[fileproc.SkipReason]int64{fileproc.SkippedIgnored: n}
		if dir == "moved" {
			want[fileproc.SkippedIgnored] = 3 // .git, d/x.a, d/x.g
		}
		require.Equal(t, want, report.Skipped, dir)
	}

	// In an fs.FS, its own repositories, and not the user's file.
	for root, want := range map[string]string{
		"r": ".gitignore .ignore d/e/.ignore d/e/f/x.b d/e/f/x.c d/e/f/x.g out/f sub/out sub/out2/f sub/x.a sub/x.b sub/x.g x.b x.c x.g", "r/d/e/f": "x.b x.c x.g", "none": ".git/x .gitignore d/.gitignore d/x.a d/x.g x.a x.g",
	} {
		opts := all
		opts.FS = os.DirFS(home)
		got, err := fileproc.Process(t.Context(), root, opts, relOf)
		require.NoError(t, err)
		slices.Sort(got)
		require.Equal(t, strings.Fields(want), got, root)
	}

	t.Run("link", func(t *testing.T) {
		opts := all
		opts.Symlinks, opts.Include, opts.SymlinksOutside = fileproc.SymlinksFollow, []string{"link/**"}, true
		require.NoError(t, os.Mkdir(in("other"), 0o777))
		testtree.Symlink(t, in("r"), in("other/link"))
		got, err := fileproc.Process(t.Context(), in("other"), opts, relOf)
		require.NoError(t, err)
		slices.Sort(got)
		require.Equal(t, "link/"+strings.ReplaceAll(strings.TrimSpace(ofR), " ", " link/"), strings.Join(slash(got), " "))
	})
	if os.Symlink(in("r/.ignore"), in("r/d/.gitignore")) == nil { // which git does not follow
		require.Contains(t, unignored(t, in("r/d/e")), filepath.FromSlash("f/x.b"))
	}

	// What is damaged is a failure of its own, with its path, and the other rules apply.
	fails := func(dir, at, says string) {
		t.Helper()
		for _, ordered := range []bool{false, true} {
			var report fileproc.Report
			var failures []*fileproc.Failure
			opts := fileproc.Options{GitIgnore: true, Ordered: ordered, Report: &report, OnError: func(err error) error {
				var f *fileproc.Failure
				require.ErrorAs(t, err, &f)
				failures = append(failures, f)
				return nil
			}}
			got, err := fileproc.Process(t.Context(), in(dir), opts, relOf)
			require.NoError(t, err)
			require.Len(t, failures, 1)
			require.ErrorContains(t, failures[0], says)
			require.Equal(t, in(at), failures[0].Path)
			require.Equal(t, fileproc.FailedFile, failures[0].Kind)
			require.NotContains(t, slash(got), "e/f/x.a")
			requireBalanced(t, report)
		}
	}
	fails("odd", "odd/.git", "gitdir: ")
	for config, says := range map[string]string{"[core\n": "line 1", "\n\n[core]\nx y\n": "line 4", "[include]\npath = config\n": "nested more than 10 deep", "[core]\nexcludesFile = ~you/x\n": "another user's"} {
		require.NoError(t, os.WriteFile(in("r/.git/config"), []byte(config), 0o666))
		fails("r/d", "r/.git/config", says)
	}
}

func slash(rels []string) []string {
	for i, rel := range rels {
		rels[i] = filepath.ToSlash(rel)
	}
	return rels
}

// A FIFO in the place of one of git's files, or of an ignore file, does not make the run wait.
func TestGitIgnoreWithoutAnEnd(t *testing.T) {
	watchdog(t)
	newHome(t)
	dir := t.TempDir()
	if !testtree.Make(t, dir, ".git/HEAD=ref: refs/heads/main\n", ".git/objects/", ".git/refs/", ".git/info/exclude|", ".gitignore=x", "sub/.git|", "sub/a=", "sub/x=") {
		t.Skip("this platform makes no FIFOs")
	}
	sub := filepath.Join(dir, "sub")
	require.Equal(t, []string{"a"}, unignored(t, sub), "git looks above the FIFO")
	_, err := fileproc.Process(t.Context(), sub, fileproc.Options{IgnoreFiles: []string{"../.git/info/exclude"}}, relOf)
	require.ErrorContains(t, err, "exclude: not a regular file")

	require.True(t, testtree.Make(t, dir, ".git/config|"))
	_, err = fileproc.Process(t.Context(), sub, fileproc.Options{GitIgnore: true}, relOf)
	require.ErrorContains(t, err, "config: not a regular file")
}

// few is an fs.FS in which the first opens of a name find no descriptor.
type few struct {
	fs.FS
	name string
	left atomic.Int64
}

func (f *few) Open(name string) (fs.File, error) {
	if name == f.name && f.left.Add(-1) >= 0 {
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.EMFILE}
	}
	return f.FS.Open(name)
}

// TestIgnoreFilesFewDescriptors: the open of an ignore file waits for a descriptor like any other.
func TestIgnoreFilesFewDescriptors(t *testing.T) {
	for _, file := range []string{"d/rules", "rules"} {
		fsys := &few{FS: fstest.MapFS{"d/rules": {Data: []byte("x\n")}, "d/x": {}, "rules": {Data: []byte("x\n")}, "y": {}}, name: file}
		fsys.left.Store(4)
		got, err := fileproc.Process(t.Context(), ".", fileproc.Options{FS: fsys, IgnoreFiles: []string{file}, Ordered: true}, relOf)
		require.NoError(t, err)
		require.Equal(t, []string{"d/rules", "rules", "y"}, got)
		require.Negative(t, fsys.left.Load())
	}
}

// TestIgnoreFilesAgainstGit compares whole runs over generated trees with git's listing: the ignore files of the
// directories, and two that apply to all.
func TestIgnoreFilesAgainstGit(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("no git to compare with: ", err)
	}
	if runtime.GOOS == "windows" || runtime.GOOS == "darwin" {
		t.Skip("Windows and macOS do not accept every generated name")
	}
	trees := 120
	if testing.Short() {
		trees = 20
	}
	run := func(dir string, args ...string) string {
		cmd := exec.Command(git, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_SYSTEM="+os.DevNull, "XDG_CONFIG_HOME="+dir, "HOME="+dir)
		out, err := cmd.Output()
		require.NoError(t, err, "git %v", args)
		return string(out)
	}
	kept, all, within := 0, 0, 0
	for i := range trees {
		root := t.TempDir()
		run(root, "init", "-q")
		global := filepath.Join(t.TempDir(), "global")
		g := testtree.IgnoreGenerator{Rand: rand.New(rand.NewPCG(7, uint64(i)))}
		tree := g.Tree()
		var paths []string
		for name, content := range tree {
			paths = append(paths, name)
			full := filepath.Join(root, name)
			require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
			require.NoError(t, os.WriteFile(full, []byte(content), 0o644))
		}
		slices.Sort(paths)
		require.NoError(t, os.WriteFile(global, []byte(g.Ignore(paths)), 0o644))
		require.NoError(t, os.WriteFile(filepath.Join(root, ".git", "info", "exclude"), []byte(g.Ignore(paths)), 0o644))
		want := strings.Split(strings.TrimSuffix(run(root, "-c", "core.excludesFile="+global, "ls-files", "-co", "--exclude-standard", "-z"), "\x00"), "\x00")
		want = slices.DeleteFunc(want, func(s string) bool { return s == "" })
		slices.Sort(want)
		kept, all = kept+len(want), all+len(tree)
		for _, workers := range []int{1, 4} {
			for _, ordered := range []bool{false, true} {
				for _, p := range places(root) {
					if p.fsys != nil && slices.ContainsFunc(paths, func(s string) bool { return !fs.ValidPath(s) }) {
						continue // not UTF-8
					}
					opts := fileproc.Options{FS: p.fsys, Workers: workers, Ordered: ordered, IgnoreFiles: []string{global, ".git/info/exclude", ".gitignore"}, Exclude: []string{".git"}}
					got := []string{}
					for rel, err := range fileproc.Stream(t.Context(), p.root, opts, relOf) {
						require.NoError(t, err)
						got = append(got, rel)
					}
					slices.Sort(got)
					require.Equal(t, append([]string{}, want...), got, "tree %d in %s", i, p.name)
				}
			}
		}

		// A run over a directory that is not ignored, with the ignore files above it.
		resolved, err := filepath.EvalSymlinks(root)
		require.NoError(t, err)
		global, err = filepath.EvalSymlinks(global)
		require.NoError(t, err)
		below := map[string][]string{}
		for _, file := range want {
			for end := range file {
				if file[end] == '/' {
					below[file[:end]] = append(below[file[:end]], file[end+1:])
				}
			}
		}
		for dir, want := range below {
			up := strings.Repeat("../", strings.Count(dir, "/")+1)
			fromTop, err := filepath.Rel(resolved, global)
			require.NoError(t, err)
			files := []string{up + "./" + filepath.ToSlash(fromTop), strings.ReplaceAll(up, "/", "//") + ".git/info/exclude"}
			for ; up != ""; up = up[len("../"):] {
				files = append(files, up+".gitignore")
			}
			opts := fileproc.Options{Ordered: true, IgnoreFiles: append(files, ".gitignore")}
			got, err := fileproc.Process(t.Context(), filepath.Join(root, dir), opts, relOf)
			require.NoError(t, err)
			slices.Sort(got)
			require.Equal(t, want, got, "tree %d, %q", i, dir)
			within++
		}
	}
	require.Greater(t, within, trees, "runs in subdirectories")
	require.Greater(t, kept, all/4, "the generated patterns ignore too much for a meaningful test")
	require.Less(t, kept, all*3/4, "the generated patterns ignore too little for a meaningful test")
}

func TestIgnoreFiles(t *testing.T) {
	dir, _ := rooted(t,
		".one=*.a\n!k.b\n", ".two=*.b\n!k.a\n", "x.a", "x.b", "x.c", "k.a", "k.b",
		"d/.one=!*.a\n", "d/x.a", "d/x.b", "d/k.b", "sub/global=*.c\n", "sub/x.c", ".git=gitdir: elsewhere\n")
	for name, tc := range map[string]struct {
		files []string
		want  string
	}{
		"the later name counts more":         {[]string{".one", ".two"}, "d/k.a d/x.a k.a sub/x.c x.c"},
		"and in the other order":             {[]string{".two", ".one"}, "d/k.b d/x.a k.b sub/x.c x.c"},
		"a path within root":                 {[]string{"sub/global"}, "d/k.b d/x.a d/x.b k.a k.b x.a x.b"},
		"an absolute path":                   {[]string{filepath.Join(dir, "sub", "global"), ".one"}, "d/k.b d/x.a d/x.b k.b x.b"},
		"names count more than paths":        {[]string{".one", "sub/../.two"}, "d/k.b d/x.a k.b sub/x.c x.c"},
		"a path that is not there":           {[]string{"sub/none", "none/none", ".git/info/exclude"}, "d/k.b d/x.a d/x.b k.a k.b sub/x.c x.a x.b x.c"},
		"a name that is not there":           {[]string{".three"}, "d/k.b d/x.a d/x.b k.a k.b sub/x.c x.a x.b x.c"},
		"the later path counts more":         {[]string{filepath.Join(dir, ".one"), filepath.Join(dir, ".two")}, "d/k.a k.a sub/x.c x.c"},
		"a file that is ignored is yet read": {[]string{".one", ".two", "d/.one"}, "d/k.a d/x.a k.a sub/x.c x.c"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, p := range places(dir) {
				if p.fsys != nil && slices.ContainsFunc(tc.files, func(f string) bool { return strings.Contains(f, "..") }) {
					continue
				}
				opts := fileproc.Options{IgnoreFiles: tc.files, FS: p.fsys, Ordered: true, Exclude: []string{"**/.*", "sub/global"}}
				got, err := fileproc.Process(t.Context(), p.root, opts, relOf)
				require.NoError(t, err)
				want := strings.Fields(tc.want)
				want = slices.DeleteFunc(want, func(s string) bool { _, err := os.Stat(filepath.Join(dir, s)); return err != nil })
				require.Equal(t, want, got, p.name)
			}
		})
	}
	t.Run("above root", func(t *testing.T) {
		for _, p := range places(filepath.Dir(dir)) {
			root := filepath.Base(dir)
			if p.fsys == nil {
				root = dir
			}
			opts := fileproc.Options{FS: p.fsys, Ordered: true, IgnoreFiles: []string{"../.above"}, Exclude: []string{"**/.*"}}
			require.NoError(t, os.WriteFile(filepath.Join(dir, "..", ".above"), []byte("/"+filepath.Base(dir)+"/d\n/sub\nx.a\n*/k.*\n"), 0o666))
			got, err := fileproc.Process(t.Context(), root, opts, relOf)
			require.NoError(t, err)
			require.Equal(t, []string{"sub/global", "sub/x.c", "x.b", "x.c"}, got, p.name)
		}
	})
	t.Run("above the top", func(t *testing.T) {
		sub := os.DirFS(filepath.Join(dir, "sub"))
		_, err := fileproc.Process(t.Context(), ".", fileproc.Options{IgnoreFiles: []string{"../.one"}, FS: sub}, relOf)
		require.ErrorContains(t, err, "above Options.FS")
		_, err = fileproc.Process(t.Context(), dir, fileproc.Options{IgnoreFiles: []string{strings.Repeat("../", 100) + "none"}}, relOf)
		require.NoError(t, err)
	})
	t.Run("a path that cannot be read ends the run", func(t *testing.T) {
		for _, p := range places(dir) {
			_, err := fileproc.Process(t.Context(), p.root, fileproc.Options{IgnoreFiles: []string{"sub/"}, FS: p.fsys}, relOf)
			var e *fs.PathError
			require.ErrorAs(t, err, &e)
		}
	})
	t.Run("a link is not used", func(t *testing.T) {
		dir := t.TempDir()
		if !testtree.Make(t, dir, "rules=*.a\n", ".one -> rules", "x.a", "x.b") {
			t.Skip("this platform, or Windows without the privilege for it, makes no symbolic links")
		}
		got, err := fileproc.Process(t.Context(), dir, fileproc.Options{IgnoreFiles: []string{".one"}, Ordered: true}, relOf)
		require.NoError(t, err)
		require.Equal(t, []string{"rules", "x.a", "x.b"}, got)
	})
	t.Run("the last of a long listing", func(t *testing.T) {
		many := 3000
		if slow {
			many = 300
		}
		files := fstest.MapFS{"~ignore": {Data: []byte("f*7\nd/\n")}, "d/f": {}}
		var want []string
		for i := range many {
			name := fmt.Sprintf("f%04d", i)
			files[name] = &fstest.MapFile{}
			if i%10 != 7 {
				want = append(want, name)
			}
		}
		want = append(want, "~ignore")
		dir := t.TempDir()
		require.NoError(t, os.CopyFS(dir, files))
		for _, p := range []place{{"os", dir, nil}, {"memory", ".", files}} {
			got, err := fileproc.Process(t.Context(), p.root, fileproc.Options{IgnoreFiles: []string{"~ignore"}, FS: p.fsys, Ordered: true}, relOf)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
	})
}

// repository has what makes a directory the top of one, and what its .git/info/exclude says.
func repository(top, exclude string) []string {
	return []string{top + "/.git/HEAD=ref: refs/heads/main\n", top + "/.git/objects/", top + "/.git/refs/", top + "/.git/info/exclude=" + exclude}
}

// The rules of a repository are read from the open directory, and not by its path, which may lead elsewhere by now.
func TestInvariant3GitRulesOfTheOpenDirectory(t *testing.T) {
	newHome(t)
	run := func(root string, opts fileproc.Options) (got []string, failed []error, skipped map[string]fileproc.SkipReason) {
		var report fileproc.Report
		skipped = map[string]fileproc.SkipReason{}
		opts.GitIgnore, opts.Report = true, &report
		opts.OnSkip = func(e fileproc.Entry, why fileproc.SkipReason) { skipped[filepath.ToSlash(e.Rel())] = why }
		opts.OnError = func(err error) error {
			failed = append(failed, err)
			return nil
		}
		got, err := fileproc.Process(t.Context(), root, opts, relOf)
		require.NoError(t, err)
		requireBalanced(t, report)
		slices.Sort(got)
		return slash(got), failed, skipped
	}
	t.Run("a path of Files leads through a link", func(t *testing.T) {
		root := linked(t, []string{"link -> ../outside"}, append(repository(".", "secret\n"), "secret=x", "other=x", "sub/secret=x"))
		for _, ordered := range []bool{false, true} {
			got, failed, skipped := run(root, fileproc.Options{Ordered: ordered, Files: slices.Values([]string{"link/secret", "link/other", "link/sub/secret"})})
			require.Empty(t, got)
			require.Empty(t, skipped)
			require.Len(t, failed, 3)
			for _, err := range failed {
				require.ErrorIs(t, err, fs.ErrInvalid)
			}
		}
	})
	t.Run("a link takes the place of a directory above", func(t *testing.T) {
		switch runtime.GOOS {
		case "windows":
			t.Skip("Windows moves no directory that is open")
		case "js", "wasip1", "plan9":
			t.Skip("an open directory is found by its path again, which leads elsewhere by then")
		}
		for _, ordered := range []bool{false, true} {
			root := linked(t, append(repository("d/sub", "not\n"), "d/sub/own=x", "d/sub/not=x"), append(repository("sub", "own\n"), "sub/own=x"))
			got, failed, skipped := run(root, fileproc.Options{Ordered: ordered, SelectDir: func(e fileproc.Entry) bool {
				if e.Name() == "sub" {
					require.NoError(t, os.Rename(filepath.Join(root, "d"), root+" aside"))
					require.NoError(t, os.Symlink("../outside", filepath.Join(root, "d")))
				}
				return true
			}})
			if fileproc.Backend() == "generic" { // which has the path alone, and sees that it leads elsewhere
				require.Empty(t, got)
				require.Len(t, failed, 1)
				require.ErrorIs(t, failed[0], fileproc.ErrChanged)
				continue
			}
			require.Empty(t, failed)
			require.Equal(t, []string{"d/sub/own"}, got)
			require.Equal(t, map[string]fileproc.SkipReason{"d/sub/not": fileproc.SkippedIgnored}, skipped)
		}
	})
}

// A repository whose path is longer than a system call takes has rules like any other, or is a failure. So is one of which it is unknown
// whether there is one.
func TestGitRulesOfWhatHasNoPath(t *testing.T) {
	newHome(t)
	dir := t.TempDir()
	top, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer top.Close()
	deep := strings.TrimSuffix(strings.Repeat(strings.Repeat("d", 200)+"/", 25), "/")
	if err := top.MkdirAll(deep, 0o777); err != nil {
		t.Skip("no such paths here: ", err)
	}
	for _, sub := range []string{"objects", "refs", "info", "modules/m/objects", "modules/m/refs"} {
		require.NoError(t, top.MkdirAll(deep+"/.git/"+sub, 0o777))
	}
	require.NoError(t, top.Mkdir(deep+"/m", 0o777))
	for name, content := range map[string]string{".git/HEAD": "ref: refs/heads/main\n", ".git/info/exclude": "not\n", "not": "", "own": "", ".gitignore": "nor\n", "nor": "",
		"m/.git": "gitdir: ../.git/modules/m\n", "m/not": "", "m/own": "", ".git/modules/m/HEAD": "x", ".git/modules/m/config": "[core]\n\texcludesFile = ../rules\n", "rules": "own\n"} {
		require.NoError(t, top.WriteFile(deep+"/"+name, []byte(content), 0o666))
	}
	var failed []error
	opts := fileproc.Options{GitIgnore: true, OnError: func(err error) error {
		failed = append(failed, err)
		return nil
	}}
	names, err := fileproc.Process(t.Context(), dir, opts, func(f *fileproc.File) (string, error) {
		return strings.TrimPrefix(filepath.ToSlash(f.Rel()), deep+"/"), nil
	})
	require.NoError(t, err)
	slices.Sort(names)
	if fileproc.Backend() == "generic" {
		require.Empty(t, names)
		require.Len(t, failed, 1)
	} else {
		require.Empty(t, failed)
		require.Equal(t, []string{".gitignore", "m/not", "own", "rules"}, names)
	}
	for _, ordered := range []bool{false, true} {
		failed = nil
		given := opts
		given.Ordered, given.Files = ordered, slices.Values([]string{deep + "/not", deep + "/own"})
		names, err = fileproc.Process(t.Context(), dir, given, nameOf)
		require.NoError(t, err)
		if fileproc.Backend() == "generic" {
			require.Empty(t, names)
			failed = slices.DeleteFunc(failed, func(err error) bool { // the path of a directory above may be just short enough, and that of its .git not
				var f *fileproc.Failure
				return errors.As(err, &f) && filepath.Base(f.Path) == ".git"
			})
			require.Len(t, failed, 2)
		} else {
			require.Equal(t, []string{"own"}, names)
			require.Empty(t, failed)
		}
	}

	loop := filepath.Join(linked(t, []string{"r/.git -> .git", "r/f=x", "r/sub/.git -> nowhere", "r/sub/g=x"}, nil), "r")
	for _, root := range []string{loop, filepath.Dir(loop)} {
		failed = nil
		names, err = fileproc.Process(t.Context(), root, opts, nameOf)
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"f", "g"}, names)
		require.Len(t, failed, 1)
		var f *fileproc.Failure
		require.ErrorAs(t, failed[0], &f)
		real, err := filepath.EvalSymlinks(loop)
		require.NoError(t, err)
		require.Equal(t, filepath.Join(real, ".git"), f.Path)
	}
}

// In an FS, too, what git takes for no repository ends no other's rules, and so does a file .git that names no directory.
func TestGitFileOfAnFS(t *testing.T) {
	newHome(t)
	for what, tt := range map[string]struct {
		specs []string
		want  []string
	}{
		"no .git":           {want: []string{"sub/y"}},
		"FIFO":              {specs: []string{"sub/.git|"}, want: []string{"sub/y"}},
		"link to a FIFO":    {specs: []string{"fifo|", "sub/.git -> ../fifo"}, want: []string{"sub/y"}},
		"link to nothing":   {specs: []string{"sub/.git -> nothing"}, want: []string{"sub/y"}},
		"garbage":           {specs: []string{"sub/.git=garbage"}, want: []string{"sub/y"}},
		"gitdir":            {specs: []string{"sub/.git=gitdir: ../elsewhere\n", "elsewhere/HEAD=x", "elsewhere/objects/", "elsewhere/refs/"}, want: []string{"sub/x.md", "sub/y"}},
		"empty directory":   {specs: []string{"sub/.git/"}, want: []string{"sub/y"}},
		"nested repository": {specs: repository("sub", ""), want: []string{"sub/x.md", "sub/y"}},
	} {
		t.Run(what, func(t *testing.T) {
			watchdog(t)
			dir := t.TempDir()
			require.True(t, testtree.Make(t, dir, append(repository(".", ""), ".gitignore=*.md\n", "sub/x.md=", "sub/y=")...))
			if !testtree.Make(t, dir, tt.specs...) {
				t.Skip("this platform makes no such entry")
			}
			sub, err := fs.Sub(os.DirFS(filepath.Dir(dir)), filepath.Base(dir))
			require.NoError(t, err)
			for _, fsys := range []fs.FS{nil, os.DirFS(dir), sub} {
				root := dir
				if fsys != nil {
					root = "."
				}
				for _, files := range []iter.Seq[string]{nil, slices.Values([]string{"sub/x.md", "sub/y"})} {
					failed := 0
					got, err := fileproc.Process(t.Context(), root, fileproc.Options{FS: fsys, GitIgnore: true, Files: files, Suffixes: []string{"x.md", "y"}, OnError: func(error) error {
						failed++
						return nil
					}}, relOf)
					require.NoError(t, err)
					require.ElementsMatch(t, tt.want, slash(got), "%T", fsys)
					require.Zero(t, failed, "%T", fsys)
				}
			}
		})
	}
}
