package gitrepo

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func lookGit(t testing.TB) string {
	t.Helper()
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("no git to compare with: ", err)
	}
	return git
}

// listed returns the variables that git finds in a configuration file, as parse
// gives them.
func listed(t testing.TB, git, file string) (pairs [][2]string, ok bool) {
	out, err := exec.Command(git, "config", "--file", file, "--list", "-z", "--no-includes").Output()
	if err != nil {
		require.IsType(t, &exec.ExitError{}, err)
		return nil, false
	}
	for entry := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		if entry == "" {
			continue
		}
		name, value, set := strings.Cut(entry, "\n")
		if !set {
			value = "true"
		}
		pairs = append(pairs, [2]string{name, value})
	}
	return pairs, true
}

func parsed(content string) (pairs [][2]string, ok bool) {
	err := parse(content, func(name, value string) error {
		pairs = append(pairs, [2]string{name, value})
		return nil
	})
	return pairs, err == nil
}

func compare(t testing.TB, git, content string) (ok bool) {
	file := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	want, ok := listed(t, git, file)
	got, parses := parsed(content)
	require.Equal(t, ok, parses, "%q", content)
	if ok {
		for _, pairs := range [][][2]string{want, got} {
			for i := range pairs { // before 2.45, git turned any blank in a value into a space
				pairs[i][1] = strings.NewReplacer("\t", " ", "\r", " ", "\v", " ", "\f", " ").Replace(pairs[i][1])
			}
		}
		require.Equal(t, want, got, "%q", content)
	}
	return ok
}

func TestParseAgainstGit(t *testing.T) {
	git := lookGit(t)
	for _, content := range []string{
		"", "[core]\nexcludesFile=/a\n", "[core] excludesfile = /a # x\n", "[CORE]\n EXCLUDESFILE = \"/a # b\" ; c\n[x]\nexcludesFile = /no\n", "[core]\n",
		"[core]\nexcludesFile = /a\nexcludesFile = /b c\n", "# [core]\n[user]\nexcludesFile = /a\n", "[core \"x\"]\nexcludesFile = /a\n",
		"[core \"X y\\\"z\\\\\"]\na=b", "[a.B]c=d", "[a]b", "[a]b\nc", "[a]b=\n", "[a]\r\nb = c\r\n", "\ufeff[a]b=c", "[a]b = c \\\n  d\n", "[a]b=\"c\n\"\n",
		"[a]b=\"c\\\n d\"\n", "[a]b=c\"d e\"f  g  # h", "[a]b=\\t\\n\\b\\\\\\\"x", "[a]b=\\x", "[a]b # c\n", "[a\n", "[a \"b]\n", "[a b]\n", "[]\nb=c\n", "b=c\n", "[a]1b=c\n",
		"[a]b-1=c", "[a]b_1=c", "[a] [b] c=d", "[a]b=c\\", "=\n", "[a]=x\n", "[a]b = \"\" \n", "[a]b = \" c \" \n", "[a \t\"b\"]c=d\n", "[a\"b\"]c=d\n", "[a \"b\" ]c=d\n",
		"[a \"b\\\n\"]c=d\n", "[a]\n;x\n\n#y\nb=c;d#e\n", "[a-b.c]d=e\n", "[a]b=c\rd\n", "[a]b=c\vd \v\n",
	} {
		compare(t, git, content)
	}
	pieces := []string{"[a]", "[a \"b\"]", "[", "]", "\"", "\\", "\n", "\n", " ", "\t", "\r\n", "=", "=", "#", ";", "a", "B", "c=d", "x = y z\n", "\\\n", "\\\"", "\\n", ".", "-", "1"}
	r := rand.New(rand.NewPCG(1, 1))
	n, good := 400, 0
	if testing.Short() {
		n = 50
	}
	for range n {
		content := "[a]\n"
		for range r.IntN(8) {
			content += pieces[r.IntN(len(pieces))]
		}
		if compare(t, git, content) {
			good++
		}
	}
	require.Greater(t, good, n/5)
}

func FuzzParse(f *testing.F) {
	git := lookGit(f)
	f.Add("[a]\nb = c \"d\" ; e\n")
	f.Fuzz(func(t *testing.T, content string) {
		if !strings.ContainsRune(content, 0) {
			compare(t, git, content)
		}
	})
}

// TestExcludesFileAgainstGit compares with git config, which reads every configuration file and its includes.
func TestExcludesFileAgainstGit(t *testing.T) {
	git := lookGit(t)
	if runtime.GOOS == "windows" {
		t.Skip("the test's configuration has absolute paths of Unix, which Windows reads otherwise")
	}
	home, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	for name, value := range map[string]string{"HOME": home, "XDG_CONFIG_HOME": filepath.Join(home, "xdg"), "GIT_CONFIG_SYSTEM": filepath.Join(home, "system")} {
		t.Setenv(name, value)
	}
	for _, name := range []string{"GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM", "GIT_DIR", "GIT_CONFIG_COUNT"} {
		t.Setenv(name, "")
		os.Unsetenv(name)
	}
	top := filepath.Join(home, "W[o]rk", "repo")
	require.NoError(t, os.MkdirAll(top, 0o777))
	out, err := exec.Command(git, "init", "-q", top).CombinedOutput()
	require.NoError(t, err, "%s", out)
	repo, err := find(Place{Dir: top})
	require.NoError(t, err)
	require.Equal(t, &Repository{Place{Dir: top}, ".git", ".git"}, repo)

	const set = "[core]\nexcludesFile = "
	when := func(condition string) map[string]string {
		return map[string]string{".gitconfig": "[includeIf \"" + condition + "\"]\npath = more\n", "more": set + "/then\n"}
	}
	for name, files := range map[string]map[string]string{
		"nothing":          {},
		"system":           {"system": set + "/s\n"},
		"the user's":       {"system": set + "/s\n", "xdg/git/config": set + "/x\n"},
		"the other":        {"xdg/git/config": set + "/x\n", ".gitconfig": set + "~/u\n"},
		"the repository's": {".gitconfig": set + "/u\n", "W[o]rk/repo/.git/config": "[core]\nbare = false\nexcludesFile=/r\n"},
		"included":         {".gitconfig": "[include]\npath = a/b\n", "a/b": "[include]\npath = c\n" + set + "/b\n", "a/c": set + "/c\n"},
		"included, last":   {".gitconfig": "[include]\npath = ~/b\n" + set + "/u\n", "b": set + "/b\n"},
		"not there":        {".gitconfig": "[include]\npath = b\n" + set + "/u\n"},
		"set to nothing":   {".gitconfig": set + "/u\n", "W[o]rk/repo/.git/config": "[core]\nexcludesFile=\n"},
		"below home":       when("gitdir:~/W\\\\[o]rk/"),
		"below home, not":  when("gitdir:~/w\\\\[o]rk/"),
		"whatever case":    when("gitdir/i:~/w\\\\[o]RK/"),
		"exactly":          when("gitdir:" + filepath.ToSlash(home) + "/W?o?rk/repo/.git"),
		"without the end":  when("gitdir:" + filepath.ToSlash(home) + "/W?o?rk/repo"),
		"anywhere":         when("gitdir:repo/"),
		"anywhere, not":    when("gitdir:rep/"),
		"beside the file":  when("gitdir:./W*/"),
		"a star":           when("gitdir:~/*/.git"),
		"two":              when("gitdir:~/**/.git"),
		"another":          when("unheardof:x"),
	} {
		t.Run(name, func(t *testing.T) {
			for file, content := range files {
				file = filepath.Join(home, filepath.FromSlash(file))
				was, err := os.ReadFile(file)
				t.Cleanup(func() {
					if err != nil {
						os.Remove(file)
					} else {
						os.WriteFile(file, was, 0o666)
					}
				})
				require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o777))
				require.NoError(t, os.WriteFile(file, []byte(content), 0o666))
			}
			cmd := exec.Command(git, "config", "--get", "--type=path", "core.excludesFile")
			cmd.Dir = top
			out, err := cmd.Output()
			want := filepath.FromSlash(strings.TrimSuffix(string(out), "\n"))
			if err != nil { // it is not set
				want = filepath.Join(home, "xdg", "git", "ignore")
			}
			got, err := repo.ExcludesFile()
			require.NoError(t, err)
			require.Equal(t, want, got)
		})
	}
	t.Run("GIT_CONFIG_GLOBAL", func(t *testing.T) {
		file := filepath.Join(home, "mine")
		require.NoError(t, os.WriteFile(file, []byte(set+"/g\n"), 0o666))
		t.Setenv("GIT_CONFIG_GLOBAL", file)
		got, err := repo.ExcludesFile()
		require.NoError(t, err)
		require.Equal(t, filepath.FromSlash("/g"), got)
	})
}

// failing is an open directory, with a repository, in which each look at name fails.
type failing struct {
	dir, name string
	err       error
}

func (f failing) OpenAt(name string) (fs.File, error) {
	if name == filepath.FromSlash(f.name) {
		return nil, f.err
	}
	return os.Open(filepath.Join(f.dir, name))
}

func (f failing) ModeAt(name string, isLink bool) (fs.FileMode, error) {
	if name == filepath.FromSlash(f.name) {
		return 0, f.err
	}
	info, err := os.Lstat(filepath.Join(f.dir, name))
	if err != nil {
		return 0, err
	}
	return info.Mode(), nil
}

func (f failing) Open(name string) (fs.File, error) { return os.DirFS(f.dir).Open(name) }

func (f failing) Stat(name string) (fs.FileInfo, error) {
	if name == f.name {
		return nil, f.err
	}
	return fs.Stat(os.DirFS(f.dir), name)
}

// Only what is not there is no repository: of all else it is unknown what git ignores.
func TestRepositoryThatCannotBeSeen(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	dir := t.TempDir()
	for _, sub := range []string{"objects", "refs", "info"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, ".git", sub), 0o777))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".git", "HEAD"), []byte("ref: refs/heads/main\n"), 0o666))
	broken := errors.New("input/output error")
	for _, name := range []string{".git", ".git/HEAD", ".git/objects", ".git/refs", ".git/commondir", ".git/config", ".git/info/exclude"} {
		for _, err := range []error{fs.ErrPermission, broken} {
			_, _, errs := Rules(Place{Dir: "/long ago", At: failing{dir, name, err}}, true)
			require.Len(t, errs, 1, "%s: %v", name, err)
			require.ErrorIs(t, errs[0], err)
			var at *fs.PathError
			require.ErrorAs(t, errs[0], &at)
			require.Equal(t, "/long ago/"+name, filepath.ToSlash(at.Path))
		}
		_, found, errs := Rules(Place{Dir: dir, At: failing{dir, name, fs.ErrNotExist}}, true)
		require.Empty(t, errs, name)
		require.Equal(t, path.Base(name) != "HEAD" && path.Dir(name) != "." && name != ".git/objects" && name != ".git/refs", found, name)
	}

	// Above the directory it is as for git, which finds no repository that the user may not look at.
	for _, err := range []error{fs.ErrPermission, broken} {
		_, _, errs := Rules(Place{FS: failing{dir, ".git", err}, Dir: "a/b"}, false)
		require.Equal(t, err == broken, len(errs) == 1, "%v", errs)
		_, _, errs = Rules(Place{FS: failing{dir, ".git", err}, Dir: "."}, false)
		require.Len(t, errs, 1)
	}
}
