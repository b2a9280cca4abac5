package gitrepo

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/fileproc/fileproc/internal/gitignore"
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
		"[a \"b", "[a \"", "[a \"b\\", "[a b\"]\nc=d\n", "[a ", "[a b\"c\"]\n", "[", "[a \"b\"", "[a.]b=c\n", "[.a]b=c\n",
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
	repo, err := Find(Place{Dir: top})
	require.NoError(t, err)
	require.Equal(t, &Repository{top: Place{Dir: top}, dir: ".git", common: ".git"}, repo)

	require.NoError(t, os.Symlink("W[o]rk", filepath.Join(home, "link")))
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
		"another, alike":   when("unheardof:repo/"),
		"case matters":     when("gitdir:Repo/"),
		"from the top":     when("gitdir:/W?o?rk/repo/"),
		"a part of a name": when("gitdir:" + filepath.ToSlash(home) + "/W?o?rk/repo/.g"),
		"behind a link":    when("gitdir:~/link/"),
		"above":            {".gitconfig": "[includeIf \"gitdir:repo/\"]\npath = more\n[includeIf \"gitdir:repo/\"]\nother = more\n", "more": set + "/then\n"},
		"not a path":       {".gitconfig": "[includeIf \"gitdir:repo/\"]\nother = more\n[include]\nother = more\n", "more": set + "/then\n"},
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
	t.Run("home behind a link", func(t *testing.T) {
		link := filepath.Join(t.TempDir(), "home")
		require.NoError(t, os.Symlink(home, link))
		t.Setenv("HOME", link)
		write(t, home, when("gitdir:~/W\\\\[o]rk/"))
		defer os.Remove(filepath.Join(home, ".gitconfig"))
		for _, dir := range []string{top, filepath.Join(link, "W[o]rk", "repo")} {
			got, err := (&Repository{top: Place{Dir: dir}, dir: ".git", common: ".git"}).ExcludesFile()
			require.NoError(t, err)
			require.Equal(t, filepath.FromSlash("/then"), got)
		}
	})
	t.Run("GIT_CONFIG_GLOBAL", func(t *testing.T) {
		file := filepath.Join(home, "mine")
		require.NoError(t, os.WriteFile(file, []byte(set+"/g\n"), 0o666))
		t.Setenv("GIT_CONFIG_GLOBAL", file)
		got, err := repo.ExcludesFile()
		require.NoError(t, err)
		require.Equal(t, filepath.FromSlash("/g"), got)
	})
}

// noUser switches the configuration of the system and the user off.
func noUser(t *testing.T) {
	t.Helper()
	for name, value := range map[string]string{"HOME": t.TempDir(), "XDG_CONFIG_HOME": "", "GIT_CONFIG_SYSTEM": os.DevNull, "GIT_CONFIG_GLOBAL": os.DevNull, "GIT_CONFIG_NOSYSTEM": ""} {
		t.Setenv(name, value)
	}
}

// write makes files, whose names have slashes, and their directories below dir. A name with a slash at its end is a directory.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		full := filepath.Join(dir, filepath.FromSlash(name))
		if strings.HasSuffix(name, "/") {
			require.NoError(t, os.MkdirAll(full, 0o777))
			continue
		}
		require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o777))
		require.NoError(t, os.WriteFile(full, []byte(content), 0o666))
	}
}

// A repository is found from each directory of its work tree, but not from its own .git: what is in there is no work tree. A .git
// without what git requires is none, and the search goes on above it. All of this holds in an fs.FS as well.
func TestFind(t *testing.T) {
	noUser(t)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	files := map[string]string{"top/.git/HEAD": "ref: refs/heads/main\n", "top/.git/objects/": "", "top/.git/refs/": "", "top/.git/hooks/x": "", "top/a/b/f": "",
		"module/.git": "gitdir: ../top/.git/modules/m\r\n", "module/a/f": "", "none/f": "",
		"top/.git/modules/m/HEAD": "x", "top/.git/modules/m/objects/": "", "top/.git/modules/m/refs/": ""}
	parts := map[string]string{"HEAD": "HEAD", "objects": "objects/x", "refs": "refs/x"}
	for missing := range parts {
		for part, file := range parts {
			if part != missing {
				files["top/no "+missing+"/.git/"+file] = ""
			}
		}
	}
	inFS := fstest.MapFS{}
	for name, content := range files {
		inFS[strings.TrimSuffix(name, "/")] = &fstest.MapFile{Data: []byte(content)}
		if strings.HasSuffix(name, "/") {
			inFS[strings.TrimSuffix(name, "/")].Mode = fs.ModeDir | 0o777
		}
	}
	write(t, dir, files)
	for from, top := range map[string]string{
		"top": "top", "top/a": "top", "top/a/b": "top", "top/.git": "", "top/.git/hooks": "", "top/.git/refs": "", "module": "module", "module/a": "module", "none": "",
		"top/no HEAD": "top", "top/no objects": "top", "top/no refs": "top",
	} {
		for _, p := range []Place{{Dir: filepath.Join(dir, filepath.FromSlash(from))}, {FS: inFS, Dir: from}} {
			r, err := Find(p)
			require.NoError(t, err, from)
			if top == "" {
				require.Nil(t, r, from)
				continue
			}
			require.NotNil(t, r, from)
			want := top
			if p.FS == nil {
				want = filepath.Join(dir, top)
			}
			require.Equal(t, want, r.top.Dir, from)
			if top == "module" && p.FS == nil {
				require.Equal(t, filepath.FromSlash("../top/.git/modules/m"), r.dir)
				require.Equal(t, r.dir, r.common)
			} else {
				require.Equal(t, ".git", r.dir)
			}
			_, repo, errs := Rules(p, true)
			require.Empty(t, errs, from)
			require.Equal(t, top == from, repo != nil, "the top of one: %s", from)
		}
	}
}

// The rules of a directory are those of the user, of the repository that all its work trees share, and of the directories above it, in
// this order; each says how the path goes on from its file to the directory.
func TestRules(t *testing.T) {
	noUser(t)
	top := t.TempDir()
	write(t, top, map[string]string{
		"r/.git/HEAD": "x", "r/.git/objects/": "", "r/.git/refs/": "", "r/.git/info/exclude": "shared", "r/.git/config": "[core]\nexcludesFile = .git/mine\n", "r/.git/mine": "mine",
		"r/.git/worktrees/w/commondir": "../..\n", "r/.git/worktrees/w/info/exclude": "not read",
		"w/.git": "gitdir: " + filepath.ToSlash(top) + "/r/.git/worktrees/w\n", "w/d/e/": "",
		"r/.gitignore": "1", "r/.ignore": "2", "r/a/.gitignore/": "", "r/a/.ignore": "3", "r/a/b/.gitignore": "own", "r/a/b/.ignore": "own",
	})
	for _, tt := range []struct {
		dir  string
		also []string
		want []Rule
	}{
		{"r", []string{".ignore"}, []Rule{{"", "", nil}, {"", "", nil}}},
		{"r/a", nil, []Rule{{"", "a/", nil}, {"", "a/", nil}, {".gitignore", "a/", nil}}},
		{"r/a/b", []string{".ignore"}, []Rule{{"", "a/b/", nil}, {"", "a/b/", nil}, {".gitignore", "a/b/", nil}, {".ignore", "a/b/", nil}, {".gitignore", "b/", nil}, {".ignore", "b/", nil}}},
		{"w/d", nil, []Rule{{"", "d/", nil}, {"", "d/", nil}, {".gitignore", "d/", nil}}},
	} {
		var looked []string
		rules, repo, errs := Rules(Place{Dir: filepath.Join(top, filepath.FromSlash(tt.dir)), Looks: func(path string) { looked = append(looked, filepath.ToSlash(path)) }}, false, tt.also...)
		require.Empty(t, errs)
		require.NotNil(t, repo)
		for i := range rules {
			rules[i].List = nil
		}
		require.Equal(t, tt.want, rules, tt.dir)
		for _, file := range []string{".git", "r/.git/config", "r/.git/info/exclude"} {
			if file == ".git" {
				file = tt.dir + "/.git"
			}
			require.Contains(t, looked, filepath.ToSlash(top)+"/"+file, "each look is reported")
		}
		if tt.dir == "r/a/b" {
			require.Contains(t, looked, filepath.ToSlash(top)+"/r/a/.gitignore")
			require.NotContains(t, looked, filepath.ToSlash(top)+"/r/a/b/.gitignore")
		}
	}
	rules, _, _ := Rules(Place{Dir: filepath.Join(top, "r", "a")}, false)
	for i, pattern := range []string{"mine", "shared", "1"} {
		require.Equal(t, gitignore.Parse([]byte(pattern)), rules[i].List)
	}
}

// The null device stands for an empty file: as the configuration of the system or the user, as an included one, and as the file of
// what is ignored.
func TestNullDevice(t *testing.T) {
	noUser(t)
	dir := t.TempDir()
	null := filepath.ToSlash(os.DevNull)
	write(t, dir, map[string]string{".git/HEAD": "x", ".git/objects/": "", ".git/refs/": "", ".git/config": "[include]\npath = " + null + "\n[core]\nexcludesFile = " + null + "\n"})
	repo, err := open(Place{Dir: dir})
	require.NoError(t, err)
	content, err := Place{}.ReadFile(os.DevNull, 10)
	require.NoError(t, err)
	require.Empty(t, content)
	if runtime.GOOS == "windows" {
		t.Skip("the null device is no absolute path there")
	}
	file, err := repo.ExcludesFile()
	require.NoError(t, err)
	require.Equal(t, os.DevNull, file)
	_, repo, errs := Rules(Place{Dir: dir}, true)
	require.NotNil(t, repo)
	require.Empty(t, errs)
}

// Configuration files include each other as deep as git lets them, and no deeper.
func TestIncludesAsDeepAsGit(t *testing.T) {
	noUser(t)
	dir := t.TempDir()
	write(t, dir, map[string]string{".git/HEAD": "x", ".git/objects/": "", ".git/refs/": ""})
	for _, depth := range []int{10, 11} { // more than 10 is an error of git's
		write(t, dir, map[string]string{".git/config": "[include]\npath = 1\n"})
		for i := 1; i < depth; i++ {
			write(t, dir, map[string]string{".git/" + strconv.Itoa(i): "[include]\npath = " + strconv.Itoa(i+1) + "\n"})
		}
		write(t, dir, map[string]string{".git/" + strconv.Itoa(depth): "[core]\nexcludesFile = last\n"})
		repo, err := open(Place{Dir: dir})
		require.NoError(t, err)
		file, err := repo.ExcludesFile()
		if depth > 10 {
			require.ErrorContains(t, err, "nested more than 10 deep")
		} else {
			require.NoError(t, err)
			require.Equal(t, "last", file)
		}
		if git, err := exec.LookPath("git"); err == nil {
			cmd := exec.Command(git, "config", "--file", ".git/config", "--includes", "core.excludesFile")
			cmd.Dir = dir
			out, err := cmd.Output()
			require.Equal(t, depth > 10, err != nil, "%s", out)
		}
	}
}

// A value is true as git says: by a word, in any case, or as a number other than 0.
func TestIsTrue(t *testing.T) {
	for value, want := range map[string]bool{"true": true, "TRUE": true, "Yes": true, "on": true, "1": true, "2": true, "-1": true, "10": true,
		"false": false, "no": false, "off": false, "0": false, "00": false, "": false} {
		require.Equal(t, want, isTrue(value), value)
		require.False(t, isTrue(value+strings.Repeat("9", 20)), "which git refuses")
		if git, err := exec.LookPath("git"); err == nil {
			out, err := exec.Command(git, "-c", "a.b="+value, "config", "--type=bool", "a.b").Output()
			require.NoError(t, err, value)
			require.Equal(t, want, string(out) == "true\n", value)
		}
	}
}

// The work tree has a configuration of its own only if the repository says so, and that comes last.
func TestWorktreeConfig(t *testing.T) {
	noUser(t)
	dir := t.TempDir()
	const set = "[core]\nexcludesFile = "
	write(t, dir, map[string]string{".git/HEAD": "x", ".git/objects/": "", ".git/refs/": "", ".git/config.worktree": set + "own\n"})
	for extension, want := range map[string]string{"": "shared", "[extensions]\nworktreeConfig = false\n": "shared", "[extensions]\nworktreeConfig\n": "own"} {
		write(t, dir, map[string]string{".git/config": set + "shared\n" + extension})
		repo, err := open(Place{Dir: dir})
		require.NoError(t, err)
		file, err := repo.ExcludesFile()
		require.NoError(t, err)
		require.Equal(t, want, file, extension)
	}
	write(t, dir, map[string]string{".git/config": "[extensions]\nworktreeConfig\n", ".git/config.worktree": "[core\n"})
	repo, err := open(Place{Dir: dir})
	require.NoError(t, err)
	_, err = repo.ExcludesFile()
	require.ErrorContains(t, err, "line 1 is not valid")
	var at *fs.PathError
	require.ErrorAs(t, err, &at)
	require.Equal(t, filepath.Join(dir, ".git", "config.worktree"), at.Path)
}

// An openFile is an open file that counts its ends, and whose looks fail with stat and whose reads fail with read.
type openFile struct {
	fs.File
	ended      *int
	stat, read error
}

func (f openFile) Stat() (fs.FileInfo, error) {
	if f.stat != nil {
		return nil, f.stat
	}
	return f.File.Stat()
}

func (f openFile) Read(b []byte) (int, error) {
	if f.read != nil {
		return 0, f.read
	}
	return f.File.Read(b)
}

func (f openFile) Close() error { *f.ended++; return f.File.Close() }

// opening is an open directory, and an FS, whose files are those.
type opening struct {
	fs.FS
	openFile
}

func (o opening) OpenAt(name string) (fs.File, error) { return o.Open(name) }
func (o opening) Open(name string) (fs.File, error) {
	f, err := o.FS.Open(name)
	if err == nil {
		o.openFile.File = f
		f = o.openFile
	}
	return f, err
}
func (o opening) Lstat(name string) (fs.FileInfo, error) { return fs.Stat(o.FS, name) }
func (o opening) ReadLink(string) (string, error)        { return "", fs.ErrInvalid }
func (o opening) ModeAt(name string, _ bool) (fs.FileMode, error) {
	info, err := fs.Stat(o.FS, name)
	if err != nil {
		return 0, err
	}
	return info.Mode(), nil
}

// A file is read whole up to its limit, and closed. What is no regular file, is longer, or fails is an error that has the path.
func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	files := map[string]string{"ten": "0123456789", "eleven": "0123456789a", "empty": "", "dir/x": ""}
	write(t, dir, files)
	inFS := fstest.MapFS{"object": {Data: []byte("x"), Mode: fs.ModeIrregular}, "fifo": {Mode: fs.ModeNamedPipe}, "link": {Data: []byte("ten"), Mode: fs.ModeSymlink}}
	for name, content := range files {
		inFS[name] = &fstest.MapFile{Data: []byte(content)}
	}
	broken := errors.New("input/output error")
	for name, tt := range map[string]struct {
		stat, read error
		want, says string
		onlyFS     bool
	}{
		"ten":    {want: "0123456789"},
		"empty":  {},
		"eleven": {says: "larger than 10 bytes"},
		"dir":    {says: "not a regular file"},
		"absent": {says: "not exist"},
		"object": {want: "x", onlyFS: true},
		"link":   {want: "0123456789", onlyFS: true},
		"fifo":   {says: "not a regular file", onlyFS: true},
	} {
		ended := 0
		for kind, p := range map[string]Place{"path": {Dir: dir}, "FS": {FS: opening{inFS, openFile{ended: &ended}}, Dir: "."}, "at": {Dir: dir, At: opening{os.DirFS(dir), openFile{ended: &ended}}}} {
			if tt.onlyFS && kind != "FS" {
				continue
			}
			ended = 0
			content, err := p.ReadFile(name, 10)
			require.Equal(t, tt.want, string(content), name)
			if tt.says == "" {
				require.NoError(t, err, "%s of %s", name, kind)
			} else {
				require.Equal(t, name == "absent", isAbsent(err))
				if name != "absent" { // each system has words of its own
					require.ErrorContains(t, err, tt.says, "%s of %s", name, kind)
				}
				var at *fs.PathError
				require.ErrorAs(t, err, &at)
				require.Equal(t, p.path(name), at.Path, "%s of %s", name, kind)
			}
			if kind != "path" && name != "absent" { // an open of a FIFO would wait
				require.Equal(t, name != "fifo", ended == 1, "%s of %s is closed", name, kind)
			}
		}
	}
	for what, f := range map[string]openFile{"stat": {stat: broken}, "read": {read: broken}} {
		ended := 0
		f.ended = &ended
		for _, p := range []Place{{FS: opening{inFS, f}, Dir: "."}, {Dir: dir, At: opening{os.DirFS(dir), f}}} {
			ended = 0
			content, err := p.ReadFile("ten", 10)
			require.ErrorIs(t, err, broken, what)
			require.Nil(t, content)
			var at *fs.PathError
			require.ErrorAs(t, err, &at)
			require.Equal(t, p.path("ten"), at.Path)
			require.Equal(t, 1, ended, what)
		}
	}
}

// The path of a file is that of its place, whichever dots are in it: they are not cleaned away where they may be behind a link.
func TestPath(t *testing.T) {
	dir := filepath.FromSlash("/a/b")
	abs, err := filepath.Abs(filepath.FromSlash("/c/d"))
	require.NoError(t, err)
	sep := string(filepath.Separator)
	for _, tt := range []struct {
		p          Place
		name, want string
	}{
		{Place{FS: fstest.MapFS{}, Dir: "."}, filepath.FromSlash("x/y"), "x/y"},
		{Place{FS: fstest.MapFS{}, Dir: "a/b"}, "x", "a/b/x"},
		{Place{Dir: dir}, filepath.FromSlash(".git/config"), filepath.FromSlash("/a/b/.git/config")},
		{Place{Dir: dir}, abs, abs},
		{Place{Dir: dir}, filepath.FromSlash("../x"), filepath.FromSlash("/a/x")},
		{Place{Dir: dir}, filepath.FromSlash("./../x"), filepath.FromSlash("/a/x")},
		{Place{Dir: dir}, filepath.FromSlash("link/../x"), dir + sep + filepath.FromSlash("link/../x")},
		{Place{Dir: dir}, filepath.FromSlash("x/..y"), filepath.FromSlash("/a/b/x/..y")},
		{Place{Dir: dir + sep + ".."}, "x", dir + sep + ".." + sep + "x"},
	} {
		require.Equal(t, tt.want, tt.p.path(tt.name))
	}
	require.Equal(t, filepath.FromSlash(abs+"/y/.."), join("x", abs+"/y/..")) // y may be a link
	require.Equal(t, "x"+sep+filepath.FromSlash("y/../z"), join("x", "y/../z"))
}

// A link in the work tree, which git does not follow, is no ignore file; one to the repository's own file is followed. In an fs.FS none
// is. What is no regular file counts as empty.
func TestLinkedIgnoreFiles(t *testing.T) {
	noUser(t)
	dir := t.TempDir()
	write(t, dir, map[string]string{".git/HEAD": "x", ".git/objects/": "", ".git/refs/": "", "rules": "*.x", ".git/info/": "", "a/.gitignore/": "", "a/b/": "", "own/.gitignore": "*.y", "own/d/": ""})
	for _, link := range []string{".gitignore", ".git/info/exclude"} {
		if err := os.Symlink(filepath.Join(dir, "rules"), filepath.Join(dir, filepath.FromSlash(link))); err != nil {
			t.Skip("no links here: ", err)
		}
	}
	lists := func(p Place) (names []string) {
		rules, repo, errs := Rules(p, false)
		require.NotNil(t, repo)
		require.Empty(t, errs)
		for _, r := range rules {
			if r.List != nil && !reflect.DeepEqual(r.List, gitignore.Parse(nil)) {
				names = append(names, "name:"+r.Name)
			}
		}
		return names
	}
	require.Equal(t, []string{"name:"}, lists(Place{Dir: filepath.Join(dir, "a", "b")}))
	require.Equal(t, []string{"name:", "name:.gitignore"}, lists(Place{Dir: filepath.Join(dir, "own", "d")}))
	require.Empty(t, lists(Place{FS: os.DirFS(dir), Dir: "a/b"}))
	require.Equal(t, []string{"name:.gitignore"}, lists(Place{FS: os.DirFS(dir), Dir: "own/d"}))
}

// What looks like a repository and cannot be read as one is an error, and of what is none git looks further up.
func TestOddRepositories(t *testing.T) {
	noUser(t)
	for name, tt := range map[string]struct {
		files map[string]string
		says  string // "": there is none at r, and that above is found
		at    string
	}{
		"garbage":              {map[string]string{"r/.git": "garbage"}, `does not begin with "gitdir: "`, "r/.git"},
		"a long file":          {map[string]string{"r/.git": "gitdir: " + strings.Repeat("x", maxLink)}, "larger than", "r/.git"},
		"objects is a file":    {map[string]string{"r/.git/HEAD": "x", "r/.git/objects": "", "r/.git/refs/": ""}, "", ""},
		"refs is a file":       {map[string]string{"r/.git/HEAD": "x", "r/.git/objects/": "", "r/.git/refs": ""}, "", ""},
		"commondir is none":    {map[string]string{"r/.git/HEAD": "x", "r/.git/objects/": "", "r/.git/refs/": "", "r/.git/commondir/": ""}, "not a regular file", "r/.git/commondir"},
		"commondir leads away": {map[string]string{"r/.git/HEAD": "x", "r/.git/objects/": "", "r/.git/refs/": "", "r/.git/commondir": "nowhere\n"}, "", ""},
		"commondir of a file":  {map[string]string{"r/.git": "gitdir: ../g\n", "g/commondir/": ""}, "not a regular file", "r/../g/commondir"},
		"gitdir is not there":  {map[string]string{"r/.git": "gitdir: ../g\n"}, "-", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir, err := filepath.EvalSymlinks(t.TempDir())
			require.NoError(t, err)
			write(t, dir, map[string]string{".git/HEAD": "x", ".git/objects/": "", ".git/refs/": "", "r/d/": ""})
			write(t, dir, tt.files)
			rules, repo, errs := Rules(Place{Dir: filepath.Join(dir, "r", "d")}, false)
			if tt.says == "" || tt.says == "-" {
				require.Empty(t, errs)
				require.NotNil(t, repo)
				above := map[string]string{"": "r/d/", "-": "d/"}[tt.says]
				require.Equal(t, above, rules[0].Above)
				return
			}
			require.Nil(t, repo)
			require.Empty(t, rules)
			require.Len(t, errs, 1)
			require.ErrorContains(t, errs[0], tt.says)
			var at *fs.PathError
			require.ErrorAs(t, errs[0], &at)
			require.Equal(t, filepath.Join(dir, filepath.FromSlash(tt.at)), filepath.Clean(at.Path))
		})
	}
}

// Where the user's and the system's files are is what the environment says, whose paths may be relative to the working directory.
func TestWhereConfigurationIs(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	t.Chdir(dir)
	const set = "[core]\nexcludesFile = "
	write(t, dir, map[string]string{"r/.git/HEAD": "x", "r/.git/objects/": "", "r/.git/refs/": "", "home/.gitconfig": set + "~/rules\n", ".gitconfig": set + "not read\n", "xdg/git/config": set + "xdg\n", "system": set + "system\n", "empty/": ""})
	home := filepath.Join(dir, "home")
	for name, tt := range map[string]struct {
		env  map[string]string
		want string
	}{
		"home":                  {map[string]string{"HOME": home}, filepath.Join(home, "rules")},
		"relative home":         {map[string]string{"HOME": "home"}, filepath.Join(home, "rules")},
		"default":               {map[string]string{"HOME": filepath.Join(dir, "empty")}, filepath.Join(dir, "empty", ".config", "git", "ignore")},
		"other default":         {map[string]string{"HOME": filepath.Join(dir, "empty"), "XDG_CONFIG_HOME": "empty"}, filepath.Join(dir, "empty", "git", "ignore")},
		"xdg":                   {map[string]string{"HOME": filepath.Join(dir, "empty"), "XDG_CONFIG_HOME": "xdg"}, "xdg"},
		"both":                  {map[string]string{"HOME": home, "XDG_CONFIG_HOME": "xdg"}, filepath.Join(home, "rules")},
		"nobody's":              {map[string]string{}, ""},
		"nobody's, but xdg":     {map[string]string{"XDG_CONFIG_HOME": "xdg"}, "xdg"},
		"system":                {map[string]string{"GIT_CONFIG_SYSTEM": filepath.Join(dir, "system")}, "system"},
		"relative system":       {map[string]string{"GIT_CONFIG_SYSTEM": "system"}, "system"},
		"system, user":          {map[string]string{"GIT_CONFIG_SYSTEM": "system", "HOME": home}, filepath.Join(home, "rules")},
		"system, switched off":  {map[string]string{"GIT_CONFIG_SYSTEM": "system", "GIT_CONFIG_NOSYSTEM": "yes"}, ""},
		"system, set to no":     {map[string]string{"GIT_CONFIG_SYSTEM": "system", "GIT_CONFIG_NOSYSTEM": "no"}, "system"},
		"global instead":        {map[string]string{"HOME": home, "GIT_CONFIG_GLOBAL": filepath.Join(dir, "system")}, "system"},
		"global that is absent": {map[string]string{"HOME": home, "XDG_CONFIG_HOME": "xdg", "GIT_CONFIG_GLOBAL": "absent"}, filepath.Join(dir, "xdg", "git", "ignore")},
	} {
		if runtime.GOOS == "windows" && !strings.Contains(name, "home") {
			continue // where the home directory is known without HOME
		}
		for _, v := range []string{"HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM", "GIT_CONFIG_SYSTEM"} {
			value, ok := tt.env[v]
			if v == "GIT_CONFIG_SYSTEM" && !ok {
				value, ok = filepath.Join(dir, "none"), true
			}
			t.Setenv(v, value)
			if !ok {
				os.Unsetenv(v)
			}
		}
		repo, err := open(Place{Dir: filepath.Join(dir, "r")})
		require.NoError(t, err)
		file, err := repo.ExcludesFile()
		require.NoError(t, err, name)
		require.Equal(t, tt.want, file, name)
	}

	// What one of these files has wrong is an error, and not the next one's value.
	t.Setenv("HOME", home)
	t.Setenv("GIT_CONFIG_GLOBAL", "")
	os.Unsetenv("GIT_CONFIG_GLOBAL")
	for content, says := range map[string]string{"[core": "line 1 is not valid", set + "~you/x\n": "another user's home directory", "[include]\npath = ~you/x\n": "another user's home directory",
		"[include]\npath = more\n": "line 2 is not valid"} {
		write(t, home, map[string]string{".gitconfig": content, "more": "\n[core"})
		repo, err := open(Place{Dir: filepath.Join(dir, "r")})
		require.NoError(t, err)
		file, err := repo.ExcludesFile()
		require.ErrorContains(t, err, says)
		require.Empty(t, file)
		var at *fs.PathError
		require.ErrorAs(t, err, &at)
		name := ".gitconfig"
		if strings.Contains(content, "more") {
			name = "more"
		}
		require.Equal(t, filepath.Join(home, name), at.Path, "of the file that has it")
	}
	repo, err := open(Place{FS: os.DirFS(dir), Dir: "r"})
	require.NoError(t, err)
	file, err := repo.ExcludesFile()
	require.NoError(t, err)
	require.Empty(t, file, "an fs.FS has no user")
}

// A line that is not valid is named by its number, whatever is before it.
func TestLineOfAnError(t *testing.T) {
	for content, line := range map[string]int{"1": 1, "[a]\nb = c\n\n# d\nd = e \\\nf\n1\n": 7, "[a]\n\n[b\n": 3, "[a]\nb = \"c\nd\n": 2, "[a]\r\nb = \"c\\\r\nd\n": 3} {
		err := parse(content, func(string, string) error { return nil })
		require.EqualError(t, err, fmt.Sprintf("line %d is not valid in a git configuration", line), "%q", content)
	}
}

// A file of the user's own that may not be read is left out, but not one that it includes, nor any that the environment names.
func TestUnreadableConfiguration(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"including": "[include]\npath = secret\n"})
	r := &Repository{top: Place{Dir: dir, At: failing{dir, "secret", fs.ErrPermission}}}
	for _, tt := range []struct {
		file     string
		skip, ok bool
	}{{"secret", true, true}, {"secret", false, false}, {"including", true, false}, {"including", false, false}} {
		c := config{repo: r, skipUnreadable: tt.skip, others: map[string]string{}}
		if err := c.read(tt.file, 0); tt.ok {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, fs.ErrPermission, tt)
		}
	}
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
		_, repo, errs := Rules(Place{Dir: dir, At: failing{dir, name, fs.ErrNotExist}}, true)
		require.Empty(t, errs, name)
		require.Equal(t, path.Base(name) != "HEAD" && path.Dir(name) != "." && name != ".git/objects" && name != ".git/refs", repo != nil, name)
	}

	// Above the directory it is as for git, which finds no repository that the user may not look at.
	for _, err := range []error{fs.ErrPermission, broken} {
		_, _, errs := Rules(Place{FS: failing{dir, ".git", err}, Dir: "a/b"}, false)
		require.Equal(t, err == broken, len(errs) == 1, "%v", errs)
		_, _, errs = Rules(Place{FS: failing{dir, ".git", err}, Dir: "."}, false)
		require.Len(t, errs, 1)
	}
}

// In an fs.FS, .git may be a link to a directory, or a file that names one, also one that the FS calls irregular. A file that names none is an
// error, and what is neither file nor directory is no repository.
func TestRepositoryOfAnFS(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"real/HEAD": "x", "real/objects/": "", "real/refs/": "", "r/": ""})
	inFS := fstest.MapFS{"named/.git": {Data: []byte("gitdir: ../x\n")}, "irregular/.git": {Data: []byte("gitdir: ../x\n"), Mode: fs.ModeIrregular}, "fifo/.git": {Mode: fs.ModeNamedPipe}, "garbage/.git": {Data: []byte("x")}}
	for name, want := range map[string]bool{"named": true, "irregular": true, "fifo": false, "none": false} {
		r, err := open(Place{FS: inFS, Dir: name})
		require.NoError(t, err, name)
		require.Equal(t, want, r != nil, name)
	}
	_, err := open(Place{FS: inFS, Dir: "garbage"})
	require.ErrorContains(t, err, `does not begin with "gitdir: "`)
	if err := os.Symlink(filepath.FromSlash("../real"), filepath.Join(dir, "r", ".git")); err != nil {
		t.Skip("no links here: ", err)
	}
	r, err := open(Place{FS: os.DirFS(dir), Dir: "r"})
	require.NoError(t, err)
	require.Equal(t, "r", r.top.Dir)
}

// TestAttributes: the attributes of a repository are those of the user, of the repository, and of each directory.
func TestAttributes(t *testing.T) {
	noUser(t)
	home, dir := t.TempDir(), t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	write(t, home, map[string]string{"git/attributes": "user", "other": "other"})
	write(t, dir, map[string]string{".git/HEAD": "x", ".git/objects/": "", ".git/refs/": "", ".git/info/attributes": "info",
		".gitattributes": "top\n", "d/.gitattributes": "below", "e/.gitattributes/": ""})
	repo, err := Find(Place{Dir: dir})
	require.NoError(t, err)
	attributes := func(of string) string {
		lines, has, err := repo.Attributes(of)
		require.NoError(t, err)
		require.Equal(t, of == "" || of == "d/", has)
		return strings.Join(strings.Fields(string(lines)), " ")
	}
	require.Equal(t, "top user info", attributes(""))
	require.Equal(t, "below", attributes("d/"))
	require.Empty(t, attributes("e/"))
	require.Empty(t, attributes("none/"))
	for value, want := range map[string]string{filepath.Join(home, "other"): "top other info", "": "top info"} {
		write(t, dir, map[string]string{".git/config": "[core]\nattributesFile = " + strconv.Quote(value)})
		require.Equal(t, want, attributes(""))
	}
	write(t, dir, map[string]string{".git/config": "[core]\nattributesFile = ~nobody-at-all/x"})
	_, _, err = repo.Attributes("")
	require.Error(t, err)
}
