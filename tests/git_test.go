package fileproc_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/git"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

// A gitTest makes random changes to a repository by means of the git command.
type gitTest struct {
	*testing.T
	testtree.IgnoreGenerator
	top         string
	ignoresCase bool     // core.ignoreCase
	paths       []string // of the files in the work tree
	log         []string
}

func (g *gitTest) git(in string, args ...string) (out string, ok bool) {
	g.Helper()
	g.log = append(g.log, fmt.Sprintf("git %q <<< %.200q", args, in))
	git, _ := exec.LookPath("git")
	cmd := exec.Command(git, args...)
	cmd.Dir, cmd.Stdin = g.top, strings.NewReader(in)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	b, err := cmd.Output()
	g.log = append(g.log, stderr.String())
	return string(b), err == nil
}

// some returns random ones of the paths, with a NUL byte behind each.
func (g *gitTest) some() (list string) {
	for _, p := range g.paths {
		if g.IntN(3) == 0 {
			list += p + "\x00"
		}
	}
	return list
}

func (g *gitTest) write(name, content string) {
	file := filepath.Join(g.top, name)
	require.NoError(g, os.MkdirAll(filepath.Dir(file), 0o777))
	if info, err := os.Lstat(file); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		require.NoError(g, os.Remove(file))
	}
	require.NoError(g, os.WriteFile(file, []byte(content), 0o666))
}

// change does one thing that gives the index another form, or lets it differ from the work tree.
func (g *gitTest) change() {
	switch g.IntN(14) {
	case 0, 1, 2:
		g.git(g.some(), "update-index", "--add", "-z", "--stdin")
	case 3:
		g.git(g.some(), "update-index", "--force-remove", "-z", "--stdin")
	case 4:
		g.git("", "update-index", "--index-version="+[]string{"2", "3", "4"}[g.IntN(3)])
	case 5:
		if sparse, _ := g.git("", "config", "core.sparseCheckout"); sparse == "" { // git 2.39 damages an index that is split and sparse
			g.git("", "update-index", "--split-index")
		}
	case 6:
		g.git(g.some(), "update-index", []string{"--skip-worktree", "--assume-unchanged"}[g.IntN(2)], "-z", "--stdin")
	case 7: // to be added later
		g.git(g.some(), "--literal-pathspecs", "add", "-N", "-f", "--pathspec-from-file=-", "--pathspec-file-nul")
	case 8: // in conflict
		id, _ := g.git("x", "hash-object", "-w", "--stdin")
		in := ""
		for p := range strings.SplitSeq(strings.TrimSuffix(g.some(), "\x00"), "\x00") {
			if p != "" {
				in += "0 0000000000000000000000000000000000000000" + strings.Repeat("0", len(id)-41) + "\t" + p + "\x00"
				for stage := 1; stage <= 3; stage++ {
					in += fmt.Sprintf("100644 %s %d\t%s\x00", strings.TrimSpace(id), stage, p)
				}
			}
		}
		g.git(in, "update-index", "-z", "--index-info")
	case 9: // gone from the work tree
		for p := range strings.SplitSeq(strings.TrimSuffix(g.some(), "\x00"), "\x00") {
			if g.IntN(4) == 0 {
				os.Remove(filepath.Join(g.top, p))
			}
		}
	case 10: // another repository, which is a submodule if it is added
		p := path.Dir(g.paths[g.IntN(len(g.paths))])
		if p == "." || len(g.paths) < 5 || g.IntN(3) > 0 {
			return
		}
		tracked, _ := g.git("", "--literal-pathspecs", "ls-files", "-z", "--", p)
		if tracked != "" { // git would look into it
			return
		}
		sub := filepath.Join(g.top, p)
		if g.IntN(2) == 0 {
			g.git("", "init", "-q", "--", sub)
		} else {
			g.git("", "init", "-q", "--separate-git-dir", fmt.Sprintf("%s.sub%d", g.top, len(g.log)), "--", sub)
		}
		g.git("", "-C", sub, "commit", "-q", "--allow-empty", "-m", "m")
		g.paths = slices.DeleteFunc(g.paths, func(f string) bool { return strings.HasPrefix(f, p+"/") }) // nor may git track it later
		if g.IntN(2) == 0 {
			g.git("", "--literal-pathspecs", "add", "-f", "--", p)
		}
	case 11: // the ignore files have changed since
		dir := path.Dir(g.paths[g.IntN(len(g.paths))])
		if info, err := os.Stat(filepath.Join(g.top, dir)); err == nil && info.IsDir() {
			g.write(dir+"/.gitignore", g.Ignore(g.paths))
		}
	case 12:
		if g.IntN(4) > 0 {
			return
		}
		if _, ok := g.git("", "commit", "-qm", "m"); !ok {
			return
		}
		g.git("", "update-index", "--no-split-index")
		dir := path.Dir(g.paths[g.IntN(len(g.paths))])
		args := []string{"sparse-checkout", "set", "--cone", []string{"--sparse-index", "--no-sparse-index"}[g.IntN(2)]}
		switch {
		case g.ignoresCase: // a directory of which the sparse index has the name has more than one name here
			args[3] = "--no-sparse-index"
		case g.IntN(3) == 0:
			g.git(g.Ignore(g.paths), "sparse-checkout", "set", "--no-cone", "--stdin")
			return
		}
		if dir != "." {
			args = append(args, "--end-of-options", dir)
		}
		g.git("", args...)
	case 13:
		g.git("", "update-index", []string{"--force-untracked-cache", "--no-untracked-cache"}[g.IntN(2)])
	}
}

// edit changes a file of the work tree, or only its metadata.
func (g *gitTest) edit() {
	p := g.paths[g.IntN(len(g.paths))]
	file := filepath.Join(g.top, p)
	content, err := os.ReadFile(file)
	if err != nil {
		return
	}
	switch g.IntN(7) {
	case 0:
		content = append(content, "# more"...)
	case 1:
		content = bytes.ToUpper(content)
	case 2:
		require.NoError(g, os.Chmod(file, 0o755))
	case 3:
		ago := time.Unix(int64(g.IntN(1e9)), 5)
		require.NoError(g, os.Chtimes(file, ago, ago))
		return
	case 4:
		require.NoError(g, os.Remove(file))
		require.NoError(g, os.Symlink(path.Base(g.paths[g.IntN(len(g.paths))]), file))
		return
	case 5:
		if p = g.OtherCase(p); g.ignoresCase && !isThere(filepath.Join(g.top, p)) {
			require.NoError(g, os.MkdirAll(filepath.Dir(filepath.Join(g.top, p)), 0o777))
			require.NoError(g, os.Rename(file, filepath.Join(g.top, p)))
			g.paths = append(g.paths, p)
		}
		return
	}
	require.NoError(g, os.WriteFile(file, content, 0o666))
}

// changed returns the files of which git status says that they have changed in dir, relative to dir.
func (g *gitTest) changed(dir string) (files []string) {
	list, ok := g.git("", "-C", filepath.Join(g.top, dir), "--no-optional-locks", "status", "--porcelain", "-uall", "--no-renames", "-z", ".")
	require.True(g, ok, "%s", strings.Join(g.log, "\n"))
	prefix, _ := g.git("", "-C", filepath.Join(g.top, dir), "rev-parse", "--show-prefix") // dir may lie in a repository of its own
	for line := range strings.SplitSeq(list, "\x00") {
		if line == "" || line[1] == ' ' {
			continue
		}
		f := strings.TrimPrefix(line[3:], strings.TrimSuffix(prefix, "\n"))
		if info, err := os.Lstat(filepath.Join(g.top, dir, f)); err == nil && !info.IsDir() {
			files = append(files, f)
		}
	}
	slices.Sort(files)
	return files
}

// inOtherCase returns the files of a repository whose names the index has only in another case. Git takes them for tracked, but
// looks for them by the names in the index, which Linux does not find.
func (g *gitTest) inOtherCase(top string) (files []string) {
	dir := filepath.Join(g.top, top)
	if is, _ := g.git("", "-C", dir, "config", "core.ignoreCase"); is != "true\n" {
		return nil
	}
	list, _ := g.git("", "-C", dir, "ls-files", "-z")
	exact, folded := map[string]bool{}, map[string]bool{}
	for f := range strings.SplitSeq(list, "\x00") {
		exact[f], folded[lowerASCII(f)] = true, true
	}
	require.NoError(g, filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, name)
		switch {
		case e.Name() == ".git" || rel != "." && isThere(filepath.Join(name, ".git")):
			if e.IsDir() {
				return fs.SkipDir
			}
		case !e.IsDir() && folded[lowerASCII(rel)] && !exact[rel]:
			files = append(files, rel)
		}
		return err
	}))
	return files
}

func (g *gitTest) isRegular(name string) bool {
	info, err := os.Lstat(filepath.Join(g.top, name))
	return err == nil && info.Mode().IsRegular()
}

func lowerASCII(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] |= 0x20
		}
	}
	return string(b)
}

// below returns those of files that are in dir, relative to dir.
func below(dir string, files []string) (list []string) {
	for _, f := range files {
		if dir == "." {
			list = append(list, f)
		} else if rest, ok := strings.CutPrefix(f, dir+"/"); ok {
			list = append(list, rest)
		}
	}
	return list
}

// dropWhatOnlyObjectsKnow ends the differences to git that need git's objects: an ignore file that is outside a sparse checkout,
// and what is in a directory of which a sparse index has no more than the name.
func (g *gitTest) dropWhatOnlyObjectsKnow() {
	// Git does not say what the index has if the work tree has such a directory, unless it is told to expect that.
	dirs, _ := g.git("", "-c", "sparse.expectFilesOutsideOfPatterns", "ls-files", "--sparse", "-z")
	for p := range strings.SplitSeq(dirs, "\x00") {
		if strings.HasSuffix(p, "/") {
			require.NoError(g, os.RemoveAll(filepath.Join(g.top, p)))
		}
	}
	flags, _ := g.git("", "ls-files", "-t", "-z")
	for p := range strings.SplitSeq(flags, "\x00") {
		if p, ok := strings.CutPrefix(p, "S "); ok && path.Base(p) == ".gitignore" && isThere(filepath.Join(g.top, path.Dir(p))) && !isThere(filepath.Join(g.top, p)) {
			g.write(p, g.Ignore(g.paths))
		}
	}
}

func hasTwice(list []string) bool {
	slices.Sort(list)
	return len(slices.Compact(slices.Clone(list))) < len(list)
}

// visible returns the regular files in dir of which git, or the git of a repository in dir, says that they are not ignored.
func (g *gitTest) visible(dir string) (files []string) {
	list, ok := g.git("", "-C", filepath.Join(g.top, dir), "ls-files", "-co", "--exclude-standard", "-z")
	require.True(g, ok, "%s", strings.Join(g.log, "\n"))
	for _, f := range append(strings.Split(list, "\x00"), g.inOtherCase(dir)...) {
		f = path.Join(dir, f)
		switch info, err := os.Lstat(filepath.Join(g.top, f)); {
		case err != nil || f == path.Clean(dir):
		case info.Mode().IsRegular():
			files = append(files, f)
		case info.IsDir() && isThere(filepath.Join(g.top, f, ".git")):
			files = append(files, g.visible(f)...)
		}
	}
	slices.Sort(files)
	return slices.Compact(files)
}

// tracked returns the regular files in dir that git tracks, relative to dir.
func (g *gitTest) tracked(dir string) (files []string) {
	list, ok := g.git("", "-C", filepath.Join(g.top, dir), "ls-files", "-z")
	require.True(g, ok)
	for f := range strings.SplitSeq(list, "\x00") {
		if info, err := os.Lstat(filepath.Join(g.top, dir, f)); err == nil && info.Mode().IsRegular() {
			files = append(files, f)
		}
	}
	slices.Sort(files)
	return slices.Compact(files)
}

// TestGitIgnoreInRandomRepositories compares runs with what git lists, while the index has each form that git gives it.
// FILEPROC_REPOSITORIES is the number of repositories, FILEPROC_SEED the seed.
func TestGitIgnoreInRandomRepositories(t *testing.T) {
	if runtime.GOOS == "windows" || runtime.GOOS == "darwin" {
		t.Skip("Windows and macOS do not accept every generated name")
	}
	count, seed := 60, uint64(1)
	if testing.Short() {
		count = 8
	}
	if n, err := strconv.Atoi(os.Getenv("FILEPROC_REPOSITORIES")); err == nil {
		count = n
	}
	if n, err := strconv.ParseUint(os.Getenv("FILEPROC_SEED"), 10, 64); err == nil {
		seed = n
	}
	newHome(t)
	runGit(t, ".", "--version")
	kept, all, differs := 0, 0, 0
	for i := range count {
		g, inFS := randomRepository(t, seed, uint64(i))
		before := g.visible(".")
		for range 3 + g.IntN(8) {
			g.change()
		}
		if entries, _ := g.git("", "ls-files", "-s", "-z", "--sparse"); hasTwice(strings.Split(entries, "\x00")) {
			continue // git 2.39 makes such an index if what is to be added becomes sparse
		}
		for range 4 {
			g.edit()
		}
		g.dropWhatOnlyObjectsKnow()
		want := g.visible(".")
		kept, all = kept+len(want), all+len(g.paths)
		if !slices.Equal(before, want) {
			differs++
		}
		dirs := []string{"."}
		for _, p := range want {
			dir := path.Dir(p)
			if g.IntN(4) > 0 || slices.Contains(dirs, dir) {
				continue
			}
			if _, isIgnored := g.git("", "check-ignore", "-q", "--no-index", "--", "./"+dir); !isIgnored { // no pattern ignores root itself
				dirs = append(dirs, dir)
			}
		}
		for _, dir := range dirs {
			g.compareIn(dir, want, inFS, fmt.Sprintf("repository %d, %q; FILEPROC_SEED=%d\n%s", i, dir, seed, strings.Join(g.log, "\n")))
		}
		for _, ordered := range []bool{false, true} { // each path is judged as if it were listed
			there := slices.DeleteFunc(slices.Clone(g.paths), func(p string) bool { return !g.isRegular(p) })
			g.Shuffle(len(there), func(i, j int) { there[i], there[j] = there[j], there[i] })
			opts := fileproc.Options{GitIgnore: true, Files: slices.Values(there), Ordered: ordered}
			got, err := fileproc.Process(t.Context(), g.top, opts, relOf)
			require.NoError(t, err)
			slices.Sort(got)
			require.Equal(t, below(".", slices.DeleteFunc(slices.Clone(want), func(p string) bool { return !slices.Contains(there, p) })), got, "repository %d; FILEPROC_SEED=%d\n%s", i, seed, strings.Join(g.log, "\n"))
		}
	}
	t.Logf("%d repositories, %d with other files because of the changes; git shows %d files of %d", count, differs, kept, all)
	require.Greater(t, differs, count/3)
}

// randomRepository makes a repository with files and rules, and reports whether runs over an fs.FS find the same in it.
func randomRepository(t *testing.T, seed, i uint64) (g *gitTest, inFS bool) {
	home := t.TempDir()
	g = &gitTest{T: t, IgnoreGenerator: testtree.IgnoreGenerator{Rand: rand.New(rand.NewPCG(seed, i))}, top: filepath.Join(home, "r")}
	isLinked := g.IntN(4) == 0
	if isLinked {
		g.top = filepath.Join(home, "main")
	}
	require.NoError(t, os.Mkdir(g.top, 0o777))
	format := []string{"sha1", "sha1", "sha256"}[g.IntN(3)]
	_, ok := g.git("", "init", "-q", "--object-format="+format)
	require.True(t, ok)
	g.git("", "config", "splitIndex.maxPercentChange", []string{"0", "20", "100"}[g.IntN(3)])
	if g.ignoresCase = g.IntN(4) == 0; g.ignoresCase {
		g.git("", "config", "core.ignoreCase", "true")
	}
	if isLinked {
		g.git("", "commit", "-q", "--allow-empty", "-m", "m")
		_, ok = g.git("", "worktree", "add", "-q", "--detach", filepath.Join(home, "r"))
		require.True(t, ok)
		g.top = filepath.Join(home, "r")
	}
	tree := g.Tree()
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		g.paths = append(g.paths, name)
		if g.ignoresCase {
			tree[name] = g.OtherCase(tree[name])
		}
		g.write(name, tree[name])
	}
	inFS = !isLinked && !g.ignoresCase && !slices.ContainsFunc(g.paths, func(p string) bool { return !fs.ValidPath(p) }) // the configuration is not read, and all names are UTF-8
	exclude, _ := g.git("", "rev-parse", "--git-path", "info/exclude")
	if exclude = strings.TrimSpace(exclude); isLinked { // it is absolute
		var err error
		exclude, err = filepath.Rel(g.top, exclude)
		require.NoError(t, err)
	}
	g.write(exclude, g.Ignore(g.paths))
	return g, inFS
}

// compareIn compares runs over dir with what git lists there. want is all that is not ignored.
func (g *gitTest) compareIn(dir string, want []string, inFS bool, what string) {
	inOtherCase := below(dir, g.inOtherCase("."))
	changed, err := git.Changed(g.Context(), filepath.Join(g.top, dir))
	require.NoError(g, err)
	slices.Sort(changed)
	changed = below(".", slices.DeleteFunc(changed, func(f string) bool { return slices.Contains(inOtherCase, f) }))
	require.Equal(g, g.changed(dir), changed, what)
	for _, opts := range []fileproc.Options{{}, {Ordered: true}, {Workers: 1, ReadSize: fileproc.NoRead}, {Select: func(*fileproc.File) bool { return true }}, {FS: os.DirFS(g.top)}} {
		opts.GitIgnore = true
		root := filepath.Join(g.top, dir)
		if opts.FS != nil {
			if root = dir; !inFS {
				continue
			}
		}
		got, err := fileproc.Process(g.Context(), root, opts, relOf)
		require.NoError(g, err)
		slices.Sort(got)
		require.Equal(g, below(dir, want), got, what)

		opts.GitTracked = true
		got, err = fileproc.Process(g.Context(), root, opts, relOf)
		require.NoError(g, err)
		slices.Sort(got)
		tracked := g.tracked(dir)
		if opts.Select != nil || opts.ReadSize == fileproc.NoRead { // the names are those of listings
			tracked = append(tracked, slices.DeleteFunc(slices.Clone(inOtherCase), func(f string) bool { return !g.isRegular(path.Join(dir, f)) })...)
			slices.Sort(tracked)
		}
		require.Equal(g, tracked, got, what)
	}
}

// An index that cannot be used is a failure of its own, and the rules apply. It is not looked at unless a rule ignores something.
func TestGitIndexThatCannotBeUsed(t *testing.T) {
	home := newHome(t)
	index := filepath.Join(home, "r", ".git", "index")
	for what, tt := range map[string]struct {
		make func() error
		says string
	}{
		"is absent":  {func() error { return nil }, ""},
		"is garbage": {func() error { return os.WriteFile(index, []byte(strings.Repeat("garbage", 20)), 0o666) }, "damaged"},
		"is empty":   {func() error { return os.WriteFile(index, nil, 0o666) }, "too early"},
		"is of a later kind": {func() error {
			return os.WriteFile(index, []byte("DIRC\x00\x00\x00\x05"+strings.Repeat("\x00", 40)), 0o666)
		}, "version 5"},
		"is a directory": {func() error { return os.Mkdir(index, 0o777) }, "regular"},
		"names a shared file": {func() error {
			return os.WriteFile(index, []byte("DIRC\x00\x00\x00\x02\x00\x00\x00\x00link\x00\x00\x00\x14"+strings.Repeat("\x01", 40)), 0o666)
		}, "sharedindex"},
	} {
		t.Run(what, func(t *testing.T) {
			require.NoError(t, os.RemoveAll(filepath.Join(home, "r")))
			require.True(t, testtree.Make(t, home, append(repository("r", ""), "r/.gitignore=*.log\n", "r/a.txt=", "r/d/b.txt=")...))
			require.NoError(t, tt.make())
			for _, fsys := range []fs.FS{nil, os.DirFS(home)} {
				root := "r"
				if fsys == nil {
					root = filepath.Join(home, "r")
				}
				for _, files := range []iter.Seq[string]{nil, slices.Values([]string{"a.txt", "d/b.txt", ".gitignore", "d/b.log"})} {
					for _, ordered := range []bool{false, true} {
						var failed []error
						var report fileproc.Report
						opts := fileproc.Options{FS: fsys, Files: files, GitIgnore: true, Ordered: ordered, Report: &report, OnError: func(err error) error {
							failed = append(failed, err)
							return nil
						}}
						run := func() []string {
							failed = nil
							got, err := fileproc.Process(t.Context(), root, opts, relOf)
							require.NoError(t, err)
							requireBalanced(t, report)
							return slash(got)
						}
						if files == nil {
							require.NoError(t, os.RemoveAll(filepath.Join(home, "r", "d", "b.log")))
							require.ElementsMatch(t, []string{".gitignore", "a.txt", "d/b.txt"}, run())
							require.Empty(t, failed)
						}
						require.True(t, testtree.Make(t, home, "r/d/b.log="))
						require.ElementsMatch(t, []string{".gitignore", "a.txt", "d/b.txt"}, run())
						if tt.says == "" {
							require.Empty(t, failed)
							continue
						}
						require.Len(t, failed, 1)
						require.ErrorContains(t, failed[0], tt.says)
						var f *fileproc.Failure
						require.ErrorAs(t, failed[0], &f)
						require.Equal(t, fileproc.FailedFile, f.Kind)
						require.Contains(t, filepath.ToSlash(f.Path), "r/.git/")
					}
				}
			}
		})
	}
}

// What git tracks is left out by other rules than git's all the same. Of a directory that git ignores, only what it tracks comes,
// and what a submodule in it has.
func TestGitIgnoreOfWhatIsTracked(t *testing.T) {
	home := newHome(t)
	top := filepath.Join(home, "r")
	require.True(t, testtree.Make(t, top, ".gitignore=*.log\n/dist\n", ".ignore=skip*\n", "a.log=", "b.log=", "skip.log=", "skip.txt=", "c.txt=",
		"dist/a=", "dist/b=", "dist/.gitignore=!b\n", "dist/.ignore=!b\n", "dist/d/e/f=", "dist/d/g=", "dist/none/h=",
		"lib/.gitignore=*.log\n", "lib/skip.log="))
	runGit(t, home, "init", "-q", "r")
	require.True(t, testtree.Make(t, top, "dist/sub/x=", "dist/sub/y.o=", "dist/sub/.gitignore=*.o\n", "dist/empty/z=", "dist/other/u="))
	for _, sub := range []string{"sub", "empty", "other"} {
		dir := filepath.Join(top, "dist", sub)
		runGit(t, dir, "init", "-q")
		runGit(t, dir, "commit", "-q", "--allow-empty", "-m", "m")
	}
	runGit(t, top, "add", "-f", "a.log", "skip.log", "lib/skip.log", "dist/a", "dist/d/e/f", "dist/sub", "dist/empty")
	require.NoError(t, os.RemoveAll(filepath.Join(top, "dist", "empty", ".git"))) // a submodule that is not checked out
	tracked := []string{".gitignore", ".ignore", "a.log", "c.txt", "dist/a", "dist/d/e/f", "dist/sub/.gitignore", "dist/sub/x"}
	for _, ordered := range []bool{false, true} {
		for _, opts := range []fileproc.Options{{}, {IgnoreFiles: []string{".ignore"}}, {MaxDepth: 1}} {
			opts.GitIgnore, opts.Ordered = true, ordered
			got, err := fileproc.Process(t.Context(), top, opts, relOf)
			require.NoError(t, err)
			want := slices.Clone(tracked)
			switch {
			case opts.MaxDepth == 1:
				want = append(want[:4], "skip.log", "skip.txt")
			case opts.IgnoreFiles == nil:
				want = append(want, "skip.log", "skip.txt", "lib/.gitignore", "lib/skip.log")
			default:
				want = append(want, "lib/.gitignore")
			}
			require.ElementsMatch(t, want, slash(got), "%v", opts.IgnoreFiles)
		}
		got, err := fileproc.Process(t.Context(), top, fileproc.Options{GitIgnore: true, Ordered: ordered, Files: slices.Values([]string{"dist/"})}, relOf)
		require.NoError(t, err)
		require.ElementsMatch(t, tracked[4:], slash(got))
	}
	t.Run("links", func(t *testing.T) {
		testtree.Symlink(t, "../c.txt", filepath.Join(top, "dist", "link"))
		testtree.Symlink(t, "../c.txt", filepath.Join(top, "dist", "untracked"))
		runGit(t, top, "add", "-f", "dist/link")
		for _, mode := range []fileproc.Symlinks{fileproc.SymlinksFiles, fileproc.SymlinksFollow} {
			for _, files := range []iter.Seq[string]{nil, slices.Values([]string{"dist/link", "dist/untracked", "dist/a"})} {
				if files != nil && mode == fileproc.SymlinksFollow {
					continue
				}
				got, err := fileproc.Process(t.Context(), top, fileproc.Options{GitIgnore: true, Symlinks: mode, Files: files, Include: []string{"dist/*"}}, relOf)
				require.NoError(t, err)
				require.ElementsMatch(t, []string{"dist/a", "dist/link"}, slash(got))
			}
		}
	})
}

// With core.ignoreCase, git takes .GIT for .git.
func TestGitDirectoryInAnotherCase(t *testing.T) {
	home := newHome(t)
	top := filepath.Join(home, "r")
	runGit(t, home, "init", "-q", "r")
	runGit(t, top, "config", "core.ignoreCase", "false")
	if isThere(filepath.Join(top, ".GIT")) || !testtree.Make(t, top, "sub/.Git/b=", "sub/.GIT=", "sub/.gi=", "sub/.gitignore=no\n", "c=", ".GIT/a=") {
		t.Skip("names in two cases are one here")
	}
	for want, ignoresCase := range map[string]string{"c sub/.gi sub/.gitignore": "true", ".GIT/a c sub/.GIT sub/.Git/b sub/.gi sub/.gitignore": "false"} {
		runGit(t, top, "config", "core.ignoreCase", ignoresCase)
		require.Equal(t, want, strings.Join(strings.Fields(runGit(t, top, "ls-files", "-co", "--exclude-standard")), " "))
		got, err := fileproc.Process(t.Context(), top, fileproc.Options{GitIgnore: true, Ordered: true}, relOf)
		require.NoError(t, err)
		require.Equal(t, want, strings.Join(slash(got), " "))
	}
}

// Git's files are found where links and another user's home directory lead, as git finds them.
func TestGitFilesBehindLinks(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has other home directories, and removes .. from a path by its text")
	}
	home := newHome(t)
	in := func(name string) string { return filepath.Join(home, filepath.FromSlash(name)) }
	top := in("code/r")
	runGit(t, home, "init", "-q", "disk/r")
	testtree.Symlink(t, "disk", in("code"))
	runGit(t, top, "commit", "-q", "--allow-empty", "-m", "m")
	require.True(t, testtree.Make(t, home, "ig=*.log\n", "real/git/unused=", "real/common=[core]\n\texcludesFile = ~/ig\n", "disk/r/a=", "disk/r/b.log="))
	write := func(name, content string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(in(name)), 0o777))
		require.NoError(t, os.WriteFile(in(name), []byte(content), 0o666))
	}
	check := func(what, dir string, want ...string) {
		t.Helper()
		t.Chdir(dir) // git knows the path with links from $PWD
		require.Equal(t, strings.Join(want, "\n")+"\n", runGit(t, dir, "ls-files", "-o", "--exclude-standard"), what)
		require.Equal(t, want, unignored(t, "."), what)
		require.Equal(t, want, unignored(t, dir), what)
	}
	check("nothing", top, "a", "b.log")

	testtree.Symlink(t, in("ig"), in("linked"))
	write(".gitconfig", "[core]\n\texcludesFile = ~/linked\n")
	check("core.excludesFile is a link", top, "a")
	write(".gitconfig", "[includeIf \"gitdir:~/code/\"]\n\tpath = real/common\n")
	check("a condition names a link", top, "a")
	write(".gitconfig", "[include]\n\tpath = ~nobody/no such file\n[core]\n\texcludesFile = ~/ig\n")
	check("another user's home", top, "a")
	require.NoError(t, os.Remove(in(".gitconfig")))

	require.NoError(t, os.Mkdir(in(".config"), 0o777))
	testtree.Symlink(t, "../real/git", in(".config/git"))
	write("real/git/config", "[include]\n\tpath = ../common\n")
	check("a file beside what a link leads to", top, "a")
	require.NoError(t, os.Remove(in(".config/git")))

	runGit(t, top, "worktree", "add", "-q", "--detach", in("wt"))
	write("disk/r/.git/info/exclude", "*.log\n")
	write("wt/a", "")
	write("wt/b.log", "")
	dir := strings.TrimSpace(runGit(t, in("wt"), "rev-parse", "--git-dir"))
	require.NoError(t, os.Remove(in("wt/.git")))
	testtree.Symlink(t, dir, in("wt/.git"))
	check(".git is a link, and commondir relative", in("wt"), "a")
}

// In a work tree, a file .git that leads to no repository makes none, as for git. Where git ends because a file of its own is a directory,
// that is a failure.
func TestGitFilesThatLeadNowhere(t *testing.T) {
	home := newHome(t)
	top := filepath.Join(home, "r")
	runGit(t, home, "init", "-q", "r")
	require.True(t, testtree.Make(t, top, ".gitignore=*.log\n", "stale/.git=gitdir: ../nowhere\n", "stale/x.log=", "stale/y=", "odd/.git=garbage\n", "odd/x.log=", "odd/y="))
	want := []string{".gitignore", "odd/y", "stale/y"}
	require.Equal(t, strings.Join(want, "\n")+"\n", runGit(t, top, "ls-files", "-o", "--exclude-standard"))
	require.Equal(t, want, slash(unignored(t, top)))

	require.NoError(t, os.Mkdir(filepath.Join(home, "dir"), 0o777))
	require.NoError(t, os.WriteFile(filepath.Join(home, ".gitconfig"), []byte("[core]\n\texcludesFile = ~/dir\n"), 0o666))
	got, err := fileproc.Process(t.Context(), top, fileproc.Options{GitIgnore: true}, relOf)
	require.ErrorContains(t, err, "not a regular file")
	require.ElementsMatch(t, want, slash(got))
}

// A directory above root in which nobody may look does not keep a run from root. Git itself stops there.
func TestGitIgnoreBelowAClosedDirectory(t *testing.T) {
	if os.Getuid() <= 0 {
		t.Skip("root may look into every directory, and some systems have no users")
	}
	newHome(t)
	dir := t.TempDir()
	require.True(t, testtree.Make(t, dir, append(repository("closed/work", "*.log\n"), "closed/work/a.txt=", "closed/work/sub/b.log=")...))
	t.Chdir(filepath.Join(dir, "closed", "work"))
	require.NoError(t, os.Chmod(filepath.Join(dir, "closed"), 0))
	defer os.Chmod(filepath.Join(dir, "closed"), 0o777)
	if fileproc.Backend() == "generic" {
		t.Skip("the generic backend reads git's files by their path")
	}
	require.Equal(t, []string{"a.txt"}, unignored(t, "."))
}

// What the work tree has in place of a tracked file or directory does not come, and no failure says so. The Report does not
// depend on whether the names come from listings or from the index.
func TestGitTrackedThatHasChanged(t *testing.T) {
	home := newHome(t)
	top := filepath.Join(home, "r")
	require.True(t, testtree.Make(t, home, "r/a=", "r/gone=", "r/file=", "r/dir/x=", "r/empty/x=", "r/deep/x/y=", "r/away/x/y=", "r/x/y=", "elsewhere/x/y=", "elsewhere/x/z="))
	testtree.Symlink(t, "a", filepath.Join(top, "link"))
	testtree.Symlink(t, "a", filepath.Join(top, "unlinked"))
	runGit(t, home, "init", "-q", "r")
	runGit(t, top, "add", ".")
	for _, name := range []string{"gone", "file", "dir", "empty/x", "deep", "away", "unlinked"} {
		require.NoError(t, os.RemoveAll(filepath.Join(top, filepath.FromSlash(name))))
	}
	require.True(t, testtree.Make(t, top, "file/z=", "dir=", "untracked=", "none/untracked=", "unlinked="))
	testtree.Symlink(t, filepath.Join(home, "elsewhere"), filepath.Join(top, "deep"))
	testtree.Symlink(t, "a", filepath.Join(top, "gone"))
	want := map[fileproc.SkipReason]int64{fileproc.SkippedNotRegular: 2}
	for _, ordered := range []bool{false, true} {
		for what, opts := range map[string]fileproc.Options{
			"index": {}, "listings": {Select: func(*fileproc.File) bool { return true }}, "no read": {ReadSize: fileproc.NoRead}, "one worker": {Workers: 1},
			"ignore files": {IgnoreFiles: []string{".none"}}, "in an FS": {FS: os.DirFS(home)}, "all roots": {Roots: []string{top, filepath.Join(top, "x")}},
		} {
			var report fileproc.Report
			var skipped []string
			opts.GitTracked, opts.Ordered, opts.Report = true, ordered, &report
			opts.OnSkip = func(e fileproc.Entry, _ fileproc.SkipReason) {
				skipped = append(skipped, e.Type().String()+" "+e.Rel())
			}
			root := top
			if opts.FS != nil {
				root = "r"
			}
			got, err := fileproc.Process(t.Context(), root, opts, relOf)
			require.NoError(t, err, what)
			files := []string{"a", "unlinked", "x/y"}
			if opts.Roots != nil {
				files = append(files, "y")
			}
			require.ElementsMatch(t, files, slash(got), what)
			require.ElementsMatch(t, []string{"L--------- link", "L--------- gone"}, skipped, what)
			requireBalanced(t, report)
			require.Equal(t, int64(len(files)+2), report.Found, what)
			require.Equal(t, want, report.Skipped, what)
			require.Equal(t, int64(3+len(opts.Roots)/2), report.Directories, what)
		}
	}
}

// With GitTracked, only the regular files come that git tracks and the work tree has. It needs a repository.
func TestGitTracked(t *testing.T) {
	home := newHome(t)
	top := filepath.Join(home, "r")
	require.True(t, testtree.Make(t, top, ".gitignore=*.log\n", "a=", "b.log=", "gone=", "dir=", "d/e/f=", "d/e/g.log=", "d/e/untracked=", "none/x=", "sub/x=", ".ignore=a\n"))
	runGit(t, home, "init", "-q", "r")
	sub := filepath.Join(top, "sub")
	runGit(t, sub, "init", "-q")
	runGit(t, sub, "add", "x")
	runGit(t, sub, "commit", "-qm", "m")
	runGit(t, top, "add", "-f", ".gitignore", "a", "b.log", "gone", "dir", "d/e/f", "sub")
	require.NoError(t, os.Remove(filepath.Join(top, "gone")))
	require.NoError(t, os.Remove(filepath.Join(top, "dir")))
	require.True(t, testtree.Make(t, top, "dir/y="))
	all := []string{".gitignore", "a", "b.log", "d/e/f"}
	for what, tt := range map[string]struct {
		opts fileproc.Options
		root string
		want []string
	}{
		"all":              {want: all},
		"below":            {root: "d", want: []string{"e/f"}},
		"of a submodule":   {root: "sub", want: []string{"x"}},
		"with git's rules": {opts: fileproc.Options{GitIgnore: true, IgnoreFiles: []string{".gitignore"}}, want: all},
		"other rules":      {opts: fileproc.Options{IgnoreFiles: []string{".ignore"}}, want: []string{".gitignore", "b.log", "d/e/f"}},
		"given":            {opts: fileproc.Options{Files: slices.Values([]string{"a", "d/e/untracked", "d/", "sub/x"})}, want: []string{"a", "d/e/f"}},
		"hidden":           {opts: fileproc.Options{SkipHidden: true, MaxDepth: 1}, want: []string{"a", "b.log"}},
	} {
		for _, ordered := range []bool{false, true} {
			for _, fsys := range []fs.FS{nil, os.DirFS(home)} {
				var report fileproc.Report
				tt.opts.GitTracked, tt.opts.Ordered, tt.opts.FS, tt.opts.Report = true, ordered, fsys, &report
				root := path.Join("r", tt.root)
				if fsys == nil {
					root = filepath.Join(home, filepath.FromSlash(root))
				}
				got, err := fileproc.Process(t.Context(), root, tt.opts, relOf)
				require.NoError(t, err, what)
				require.ElementsMatch(t, tt.want, slash(got), what)
				requireBalanced(t, report)
			}
		}
	}
	for _, roots := range [][]string{nil, {home, top}} {
		got, err := fileproc.Process(t.Context(), home, fileproc.Options{GitTracked: true, Roots: roots}, relOf)
		require.ErrorContains(t, err, "in no git repository")
		require.Len(t, got, 2*len(roots))
	}
	require.NoError(t, os.WriteFile(filepath.Join(top, ".git", "index"), []byte("DIRC"), 0o666))
	_, err := fileproc.Process(t.Context(), top, fileproc.Options{GitTracked: true}, relOf)
	require.ErrorContains(t, err, "damaged")
}
