package fileproc_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

// newHome makes an empty home directory that git and this process have for theirs, beside which nothing is configured.
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
		t.Skip("nothing to compare with: ", err)
	}
	cmd := exec.Command(git, args...)
	cmd.Dir = dir
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "git %v: %s", args, &stderr)
	return string(out)
}

// unignored returns what a run over dir delivers with the ignore files that git would use.
func unignored(t *testing.T, dir string) []string {
	t.Helper()
	files, err := fileproc.GitIgnoreFiles(dir)
	require.NoError(t, err)
	opts := fileproc.Options{IgnoreFiles: files, Exclude: []string{"**/.git"}, ReadSize: fileproc.NoRead}
	got, err := fileproc.Process(t.Context(), dir, opts, relOf)
	require.NoError(t, err)
	slices.Sort(got)
	return got
}

func TestGitIgnoreFilesAgainstGit(t *testing.T) {
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
	require.True(t, testtree.Make(t, main, ".git/info/exclude=info\n/sub/deep/a\n", "nested/f=x", "forced.log=x"))
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
			for f := range strings.SplitSeq(runGit(t, root, "ls-files", "-co", "--exclude-standard", "-z"), "\x00") {
				if f != "" && f != "lib" && f != "nested/" {
					want = append(want, f)
				}
			}
			slices.Sort(want)
			got := slices.DeleteFunc(unignored(t, root), func(rel string) bool {
				return root == main && (strings.HasPrefix(rel, "lib/") || strings.HasPrefix(rel, "nested/"))
			})
			require.Equal(t, slices.Compact(want), got, root)
			delivered += len(got)
		}
		return delivered
	}
	all := check()

	// The later configuration counts, of the work tree above all, and a relative path is about its top.
	runGit(t, main, "config", "core.excludesFile", "rules")
	require.True(t, testtree.Make(t, main, "rules=/sub/deep/info\nkept.mine\n/anchored\n"))
	require.True(t, testtree.Make(t, work, "rules=sub/a*\nbuild\n"))
	require.NotEqual(t, all, check())
	runGit(t, main, "config", "extensions.worktreeConfig", "true")
	runGit(t, work, "config", "--worktree", "core.excludesFile", "")
	check()

	// Git goes on tracking what it ignores.
	runGit(t, main, "add", "-f", "forced.log")
	require.Contains(t, runGit(t, main, "ls-files"), "forced.log\n")
	require.NotContains(t, unignored(t, main), "forced.log")
	for _, rel := range unignored(t, main) {
		require.NotContains(t, strings.Split(rel, "/"), ".git")
	}
}

func TestGitIgnoreFiles(t *testing.T) {
	home := newHome(t)
	const head = "/.git/HEAD=ref: refs/heads/main\n"
	require.True(t, testtree.Make(t, home, "none/f=x", ".config/git/ignore=*.g\n",
		"r"+head, "r/.git/objects/", "r/.git/refs/", "r/.git/info/exclude=*.x\n", "r/.gitignore=*.a\n", "r/.ignore=*.b\n", "r/d/e/.ignore=*.c\n", "r/d/e/f/g=x",
		"r/d/.git/HEAD=of no repository\n", "moved/.git=gitdir: ../nowhere\n", "moved/d/f=x", "moved/.gitignore=*.a\n", "odd/.git=x\n"))
	in := func(dir string) string { return filepath.Join(home, filepath.FromSlash(dir)) }
	global := filepath.ToSlash(in(".config/git/ignore"))
	for _, tc := range []struct {
		dir   string
		names []string
		want  []string
	}{
		{"none", nil, []string{".gitignore"}},
		{"none", []string{".ignore"}, []string{".gitignore", ".ignore"}},
		{"r", nil, []string{global, ".git/info/exclude", ".gitignore"}},
		{"r/d/e/f", nil, []string{"../../.././../.config/git/ignore", "../../../.git/info/exclude", "../../../.gitignore", ".gitignore"}},
		{"r/d/e/f", []string{".ignore"}, []string{"../../.././../.config/git/ignore", "../../../.git/info/exclude", "../../../.gitignore", "../../../.ignore", "../.ignore", ".gitignore", ".ignore"}},
		{"moved/d", nil, []string{".././../.config/git/ignore", "../.gitignore", ".gitignore"}},
	} {
		got, err := fileproc.GitIgnoreFiles(in(tc.dir), tc.names...)
		require.NoError(t, err)
		for i := range got {
			got[i] = filepath.ToSlash(got[i])
		}
		require.Equal(t, tc.want, got, tc.dir)
	}

	fails := func(dir, says string) {
		t.Helper()
		got, err := fileproc.GitIgnoreFiles(in(dir))
		require.ErrorContains(t, err, says)
		require.Equal(t, []string{".gitignore"}, got)
	}
	fails("absent", "absent")
	fails("odd", "gitdir: ")
	for config, says := range map[string]string{"[core\n": "line 1", "\n\n[core]\nx y\n": "line 4", "[include]\npath = config\n": "include one another", "[core]\nexcludesFile = ~you/x\n": "another user's"} {
		require.NoError(t, os.WriteFile(in("r/.git/config"), []byte(config), 0o666))
		fails("r/d", says)
	}
	require.NoError(t, os.Remove(in("r/.git/config")))

	// A file of the repository's top has a path, not a name that is looked for everywhere.
	require.NoError(t, os.WriteFile(in(".gitconfig"), []byte("[core]\nexcludesFile = mine\n"), 0o666))
	require.NoError(t, os.WriteFile(in("r/mine"), []byte("*.g\n"), 0o666))
	got, err := fileproc.GitIgnoreFiles(in("r"))
	require.NoError(t, err)
	require.Equal(t, []string{"./mine", ".git/info/exclude", ".gitignore"}, got)
}

// What is in the place of one of git's files, or of an ignore file, cannot keep anybody waiting.
func TestGitIgnoreFilesWithoutAnEnd(t *testing.T) {
	watchdog(t)
	dir := t.TempDir()
	if !testtree.Make(t, dir, ".git/HEAD=ref: refs/heads/main\n", ".git/objects/", ".git/refs/", ".git/info/exclude|", ".gitignore=x", "sub/.git|", "sub/a=") {
		t.Skip("no FIFOs here")
	}
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	sub := filepath.Join(dir, "sub")
	files, err := fileproc.GitIgnoreFiles(sub)
	require.NoError(t, err)
	require.Equal(t, []string{"../.gitignore", ".gitignore"}, files, "git looks above the FIFO")
	_, err = fileproc.Process(t.Context(), sub, fileproc.Options{IgnoreFiles: []string{"../.git/info/exclude"}}, relOf)
	require.ErrorContains(t, err, "exclude: not a regular file")

	require.True(t, testtree.Make(t, dir, ".git/config|"))
	_, err = fileproc.GitIgnoreFiles(sub)
	require.ErrorContains(t, err, "config: not a regular file")
}
