package gitignore

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

// A repository is the git directory for the commands of the tests. It is not in
// the tree of files, so one repository serves many trees.
type repository struct {
	git, dir string
}

func newRepository(t testing.TB) *repository {
	t.Helper()
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("no git to compare with: ", err)
	}
	dir := t.TempDir()
	for _, name := range []string{"\xff", "\\", "a", "A"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Skip("this file system does not accept every name: ", err)
		}
	}
	if content, err := os.ReadFile(filepath.Join(dir, "a")); err != nil || string(content) != "a" {
		t.Skip("this file system does not distinguish A from a")
	}
	r := &repository{git, filepath.Join(dir, ".git")}
	r.run(t, dir, "init", "-q")
	return r
}

// command returns a git command that reads no configuration of the user or the
// system.
func (r *repository) command(worktree string, args ...string) *exec.Cmd {
	cmd := exec.Command(r.git, append([]string{"-c", "core.ignoreCase=" + strconv.FormatBool(ignoresCase)}, args...)...)
	cmd.Dir = worktree
	cmd.Env = append(os.Environ(), "GIT_DIR="+r.dir, "GIT_WORK_TREE="+worktree,
		"GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_SYSTEM="+os.DevNull, "XDG_CONFIG_HOME="+r.dir, "HOME="+r.dir)
	return cmd
}

func (r *repository) run(t testing.TB, worktree string, args ...string) []byte {
	t.Helper()
	cmd := r.command(worktree, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "git %v: %s", args, &stderr)
	return out
}

// exclude sets the ignore files of the whole work tree: git's global file and
// info/exclude. It returns them as a chain.
func (r *repository) exclude(t testing.TB, global, info string) *Chain {
	t.Helper()
	write(t, r.dir, map[string]string{"global": global, "info/exclude": info})
	return (*Chain)(nil).Push("", ParseAs([]byte(global), ignoresCase)).Push("", ParseAs([]byte(info), ignoresCase))
}

// files returns the files below worktree that git does not ignore, sorted.
func (r *repository) files(t testing.TB, worktree string) []string {
	t.Helper()
	global := filepath.Join(r.dir, "global")
	out := string(r.run(t, worktree, "-c", "core.excludesFile="+global, "ls-files", "-co", "--exclude-standard", "-z"))
	files := slices.DeleteFunc(strings.Split(out, "\x00"), func(f string) bool { return f == "" })
	slices.Sort(files)
	return files
}

// kept returns those of files, which need not exist, that git does not ignore.
func (r *repository) kept(t testing.TB, worktree string, files []string) []string {
	t.Helper()
	var in strings.Builder
	for _, f := range files {
		in.WriteString("./" + f + "\x00") // a leading colon would be pathspec magic
	}
	ignored := map[string]bool{}
	cmd := r.command(worktree, "check-ignore", "--no-index", "-z", "--stdin")
	cmd.Stdin = strings.NewReader(in.String())
	out, err := cmd.Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 { // 1: no path is ignored
		require.NoError(t, err)
	}
	for f := range strings.SplitSeq(string(out), "\x00") {
		ignored[strings.TrimPrefix(f, "./")] = true
	}
	kept := []string{}
	for _, f := range files {
		if !ignored[f] {
			kept = append(kept, f)
		}
	}
	slices.Sort(kept)
	return kept
}

// walk returns the files below root that are not ignored, sorted. It is the
// simplest walk with a Chain.
func walk(t testing.TB, root string, above *Chain) []string {
	t.Helper()
	files := []string{}
	chains := map[string]*Chain{}
	require.NoError(t, filepath.WalkDir(root, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		chain, dir := above, ""
		if e.Name() == ".git" { // git lists nothing in it
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil // a file in a linked work tree
		}
		if name != root {
			dir = filepath.ToSlash(strings.TrimPrefix(name[:len(name)-len(e.Name())], root)[1:])
			chain = chains[dir]
			if chain.Match(dir, e.Name(), e.IsDir()) == Ignored {
				if e.IsDir() {
					return fs.SkipDir
				}
				return nil
			}
			if !e.IsDir() {
				files = append(files, dir+e.Name())
				return nil
			}
			dir += e.Name() + "/"
		}
		ignore := filepath.Join(name, ".gitignore")
		if st, err := os.Lstat(ignore); err == nil && st.Mode().IsRegular() {
			content, err := os.ReadFile(ignore)
			if err != nil {
				return err
			}
			chain = chain.Push(dir, ParseAs(content, ignoresCase))
		}
		chains[dir] = chain
		return nil
	}))
	slices.Sort(files)
	return files
}

// write makes the files of a tree, a map from paths to contents.
func write(t testing.TB, root string, tree map[string]string) {
	t.Helper()
	made := map[string]bool{}
	for name, content := range tree {
		name = filepath.Join(root, name)
		if dir := filepath.Dir(name); !made[dir] {
			require.NoError(t, os.MkdirAll(dir, 0o777))
			made[dir] = true
		}
		require.NoError(t, os.WriteFile(name, []byte(content), 0o666))
	}
}

// ignoresCase is core.ignoreCase of the tests.
var ignoresCase bool

// otherCases gives letters of the tree's ignore files another case, if ignoresCase is set.
func otherCases(g testtree.IgnoreGenerator, tree map[string]string) map[string]string {
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		if ignoresCase {
			tree[name] = g.OtherCase(tree[name])
		}
	}
	return tree
}

// TestIgnoreCaseAgainstGit runs other tests with core.ignoreCase.
func TestIgnoreCaseAgainstGit(t *testing.T) {
	ignoresCase = true
	defer func() { ignoresCase = false }()
	t.Run("bytes", TestEveryByteAgainstGit)
	t.Run("trees", TestGeneratedTreesAgainstGit)
	t.Run("excludes", TestExcludesAgainstGit)
}

func TestCasesAgainstGit(t *testing.T) {
	r := newRepository(t)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			write(t, root, c.tree())
			require.Equal(t, c.kept(), r.files(t, root))
			require.Equal(t, c.kept(), walk(t, root, nil))
		})
	}
}

// TestEveryByteAgainstGit matches names with every possible byte against patterns
// with every possible byte, in several positions.
func TestEveryByteAgainstGit(t *testing.T) {
	r := newRepository(t)
	ignores := map[string]string{}
	var files []string
	add := func(pattern string, names ...string) {
		dir := strconv.Itoa(len(ignores)) + "/"
		ignores[dir+".gitignore"] = pattern
		for _, name := range names {
			if !strings.ContainsAny(name, "\x00/") && name != "." && name != ".." {
				files = append(files, dir+name)
			}
		}
	}
	var bytes []string
	for b := range 256 {
		bytes = append(bytes, string([]byte{byte(b)}))
	}
	for _, pattern := range []string{"[!x]", "[^x]", "[!\xfe]", "[+--]", "[--0]", "[a-]", "[]-a]", "[\\--0]", "[a-[:digit:]]",
		"[a-\\c]", "[[:digit:]-a]", "[a-c-e]", "[!]a]", "[^]a]", "[c-a]", "[[:]", "[[:a]", "[[a:]]", "[!!]", "[a^]"} {
		add(pattern, bytes...)
	}
	for _, class := range []string{"alnum", "alpha", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
		"space", "upper", "xdigit", "word", "", "Alpha", "alpha:"} {
		add("[[:"+class+":]]", bytes...)
		add("[![:"+class+":]]", bytes...)
	}
	for _, s := range bytes {
		for _, pattern := range []string{s, "\\" + s, "[" + s + "]", "[" + s + "-~]", "[!" + s + "]", "[[:" + s + ":]]",
			"?" + s, s + "*", "[a" + s, "a" + s + "\r", s + "a"} {
			add(pattern, s, s+s, "~", "a", "a"+s, s+"a", "\\"+s, "\\", "[", ":", "[a"+s)
		}
	}
	root := t.TempDir()
	write(t, root, ignores)
	requireSame(t, root, r.kept(t, root, files), kept(files, ignores))
}

// requireSame fails unless both lists are equal. It logs the trees (directories of
// root) in which they differ.
func requireSame(t *testing.T, root string, git, ours []string) {
	t.Helper()
	require.NotEmpty(t, git)
	if slices.Equal(git, ours) {
		return
	}
	differ := map[string][]string{}
	for i, lists := range [][2][]string{{git, ours}, {ours, git}} {
		has := map[string]bool{}
		for _, f := range lists[1] {
			has[f] = true
		}
		for _, f := range lists[0] {
			if !has[f] {
				tree, name, _ := strings.Cut(f, "/")
				differ[tree] = append(differ[tree], []string{"kept by git: ", "not kept by git: "}[i]+strconv.Quote(name))
			}
		}
	}
	logged := 0
	for tree, names := range differ {
		if logged++; logged > 10 {
			break
		}
		t.Log("tree", tree, names)
		filepath.WalkDir(filepath.Join(root, tree), func(name string, e fs.DirEntry, err error) error {
			if err == nil && e.Name() == ".gitignore" {
				content, _ := os.ReadFile(name)
				t.Logf("    %s: %q", strings.TrimPrefix(name, root), content)
			}
			return nil
		})
	}
	t.Fatal(len(differ), "trees differ")
}

// TestGeneratedTreesAgainstGit compares which files of generated trees are kept.
// GITIGNORE_TREES is the number of trees, GITIGNORE_SEED the seed.
func TestGeneratedTreesAgainstGit(t *testing.T) {
	r := newRepository(t)
	env := func(name string, unset int) int {
		if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
			return n
		}
		return unset
	}
	trees, seed := env("GITIGNORE_TREES", 400), env("GITIGNORE_SEED", 1)
	const atOnce = 400 // trees side by side: each has its own ignore file at the top
	for n := 0; n < trees; n += atOnce {
		root := t.TempDir()
		all := 0
		for i := n; i < min(n+atOnce, trees); i++ {
			g := testtree.IgnoreGenerator{Rand: rand.New(rand.NewPCG(uint64(seed), uint64(i)))}
			tree := otherCases(g, g.Tree())
			all += len(tree)
			write(t, filepath.Join(root, strconv.Itoa(i)), tree)
		}
		git := r.files(t, root)
		requireSame(t, root, git, walk(t, root, nil))
		require.Greater(t, len(git), all/4, "the generated patterns ignore too much to prove anything")
		require.Less(t, len(git), all*3/4, "the generated patterns ignore too little to prove anything")
		require.NoError(t, os.RemoveAll(root))
	}
}

func TestExcludesAgainstGit(t *testing.T) {
	r := newRepository(t)
	for i := range 40 {
		g := testtree.IgnoreGenerator{Rand: rand.New(rand.NewPCG(1, uint64(i)))}
		tree := otherCases(g, g.Tree())
		paths := slices.Sorted(maps.Keys(tree))
		above := r.exclude(t, g.Ignore(paths), g.Ignore(paths))
		root := t.TempDir()
		write(t, root, tree)
		require.Equal(t, r.files(t, root), walk(t, root, above))
	}
	above := r.exclude(t, "a\n!b\nc\nd\n", "!a\nb\n!c\n")
	root := t.TempDir()
	write(t, root, map[string]string{"a": "", "b": "", "c": "", "d": "", ".gitignore": "c\n!d\n"})
	require.Equal(t, []string{".gitignore", "a", "d"}, r.files(t, root))
	require.Equal(t, []string{".gitignore", "a", "d"}, walk(t, root, above))
}

// TestLinksAgainstGit: a symbolic link is neither a directory nor an ignore file.
func TestLinksAgainstGit(t *testing.T) {
	r := newRepository(t)
	root := t.TempDir()
	write(t, root, map[string]string{"d/x": "", "d/y": "", "e/x": "", "e/y": "", ".gitignore": "link/\n!d", "ignore": "y"})
	for link, target := range map[string]string{"link": "d", "e/link": "../ignore", "d/.gitignore": "../ignore"} {
		require.NoError(t, os.Symlink(target, filepath.Join(root, link)))
	}
	want := []string{".gitignore", "d/.gitignore", "d/x", "d/y", "e/link", "e/x", "e/y", "ignore", "link"}
	require.Equal(t, want, r.files(t, root))
	require.Equal(t, want, walk(t, root, nil))
}

func TestRealTreesAgainstGit(t *testing.T) {
	r := newRepository(t)
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Skip("no Go source to walk: ", err)
	}
	for _, root := range []string{filepath.Join(strings.TrimSpace(string(goroot)), "src"), "../.."} {
		root, err := filepath.Abs(root)
		require.NoError(t, err)
		for i, ignore := range []string{
			"",
			usual + "*_test.go",
			"*\n!*/\n!*.go\n!/.gitignore\ninternal/\n!/internal/\n/cmd/**/testdata\n*_[!t]*_test.go",
			"/**/internal/**/*.go\n!**/internal/*/[a-m]*\n[[:upper:]]*\ntest?at*/\n!/scripts/**/r*\ndoc.go\n",
		} {
			above := r.exclude(t, "", ignore)
			files := r.files(t, root)
			require.Equal(t, files, walk(t, root, above), ignore)
			t.Logf("%s, ignore file %d: %d files", filepath.Base(root), i, len(files))
		}
	}
}

// FuzzAgainstGit compares with git the verdicts of two ignore files on paths, which
// the input separates by NULs.
func FuzzAgainstGit(f *testing.F) {
	r := newRepository(f)
	root := f.TempDir()
	for _, c := range cases {
		f.Add(c.ignore, "", strings.Join(slices.Concat(c.ignored, c.keeps), "\x00"))
	}
	for i := range 20 {
		g := testtree.IgnoreGenerator{Rand: rand.New(rand.NewPCG(2, uint64(i)))}
		tree := g.Tree()
		f.Add(tree[".gitignore"], g.Ignore(nil), strings.Join(slices.Sorted(maps.Keys(tree)), "\x00"))
	}
	unfit := regexp.MustCompile(`(?s)^below$|^/|//|/$|(^|/)\.\.?(/|$)|^$|(?i)\.git|[^/]{250}`)
	f.Fuzz(func(t *testing.T, top, below, paths string) {
		if strings.Count(top+below, "*") > 30 {
			t.Skip("more than 30 stars take git before 2.41 exponential time")
		}
		var files []string
		for path := range strings.SplitSeq(paths, "\x00") {
			if len(path) < 3000 && !unfit.MatchString(path) {
				files = append(files, path, "below/"+path)
			}
		}
		tree := map[string]string{".gitignore": top, "below/.gitignore": below}
		write(t, root, tree)
		require.Equal(t, r.kept(t, root, files), kept(files, tree), "%q %q", top, below)
	})
}
