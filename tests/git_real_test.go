package fileproc_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/git"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

// cachedModules returns the directories of the modules in the module cache, in random order.
func cachedModules(t *testing.T, random *rand.Rand) (dirs []string) {
	out, err := goCommand(".", "env", "GOMODCACHE")
	if err != nil {
		t.Skip("no go command: ", err)
	}
	cache := strings.TrimSpace(out)
	filepath.WalkDir(cache, func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil || !e.IsDir():
			return nil
		case name == filepath.Join(cache, "cache"):
			return fs.SkipDir
		case strings.Contains(e.Name(), "@"):
			dirs = append(dirs, name)
			return fs.SkipDir
		}
		return nil
	})
	random.Shuffle(len(dirs), func(i, j int) { dirs[i], dirs[j] = dirs[j], dirs[i] })
	return dirs
}

// TestGitOfRealProjects compares runs with what git lists in modules of the module cache that are made repositories. FILEPROC_PROJECTS is
// their number, FILEPROC_SEED chooses them.
func TestGitOfRealProjects(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("git keeps other metadata there")
	}
	count, seed := 3, uint64(1)
	if n, err := strconv.Atoi(os.Getenv("FILEPROC_PROJECTS")); err == nil {
		count = n
	} else if testing.Short() {
		t.Skip("copies whole projects")
	}
	if n, err := strconv.ParseUint(os.Getenv("FILEPROC_SEED"), 10, 64); err == nil {
		seed = n
	}
	modules := cachedModules(t, rand.New(rand.NewPCG(seed, 0)))
	newHome(t)
	runGit(t, ".", "--version")
	files := 0
	for i, module := range modules[:min(count, len(modules))] {
		g := &gitTest{T: t, IgnoreGenerator: testtree.IgnoreGenerator{Rand: rand.New(rand.NewPCG(seed, uint64(i)))}, top: filepath.Join(t.TempDir(), "r")}
		require.NoError(t, os.CopyFS(g.top, os.DirFS(module)))
		name := path.Base(filepath.ToSlash(module))
		files += g.compareProject(name)
		require.NoError(t, os.RemoveAll(g.top))
	}
	t.Logf("%d projects with %d files", min(count, len(modules)), files)
}

// compareProject makes the directory g.top a repository, changes some of its files, and compares the sets. It returns how many files
// there are.
func (g *gitTest) compareProject(name string) int {
	g.git("", "init", "-q")
	g.write(".git/info/attributes", "* -text -eol -filter -ident -working-tree-encoding\n") // see package git: it runs no filter
	_, ok := g.git("", "add", ".")
	require.True(g, ok, name)
	all, _ := g.git("", "ls-files", "-co", "-z")
	for p := range strings.SplitSeq(strings.TrimSuffix(all, "\x00"), "\x00") {
		g.paths = append(g.paths, p)
	}
	g.git(g.some(), "--literal-pathspecs", "add", "-f", "--pathspec-from-file=-", "--pathspec-file-nul") // some are ignored and tracked
	_, ok = g.git("", "commit", "-qm", "m")
	require.True(g, ok, name)
	for range min(30, len(g.paths)) {
		g.edit()
		p := g.paths[g.IntN(len(g.paths))]
		switch g.IntN(6) {
		case 0:
			os.Remove(filepath.Join(g.top, p))
		case 1:
			g.write(path.Join(path.Dir(p), "untracked.go"), "package p\n")
		case 2:
			g.write(path.Join(path.Dir(p), "ignored.o"), "")
		case 3:
			os.Remove(filepath.Join(g.top, p))
			g.git("", "--literal-pathspecs", "add", "-A", "--", p)
		}
	}
	dir := path.Dir(g.paths[g.IntN(len(g.paths))])
	ignored := "\n*.o\n*" + path.Ext(g.paths[g.IntN(len(g.paths))]) + "\n" + path.Base(dir) + "/\n"
	content, _ := os.ReadFile(filepath.Join(g.top, ".gitignore"))
	g.write(".gitignore", string(content)+ignored)

	visible, tracked, changed := g.visible("."), g.tracked("."), g.changed(".")
	for _, opts := range []fileproc.Options{{}, {Ordered: true, ReadSize: fileproc.NoRead}} {
		for isTracked, want := range map[bool][]string{false: visible, true: tracked} {
			opts.GitIgnore, opts.GitTracked = !isTracked, isTracked
			got, err := fileproc.Process(g.Context(), g.top, opts, relOf)
			require.NoError(g, err)
			got = slash(got)
			slices.Sort(got)
			require.Equal(g, want, got, "%s, tracked: %v", name, isTracked)
		}
	}
	got, err := git.Changed(g.Context(), g.top)
	require.NoError(g, err)
	slices.Sort(got)
	require.Equal(g, changed, got, name)
	require.NotEmpty(g, changed)
	return len(visible)
}

// TestBesideGitCommands: while git changes branches, adds, commits and stashes, what is there all the time comes once, and what is
// ignored all the time does not come. No state of the index is a failure.
func TestBesideGitCommands(t *testing.T) {
	home := newHome(t)
	g := &gitTest{T: t, top: filepath.Join(home, "r")}
	runGit(t, home, "init", "-q", "r")
	runGit(t, g.top, "config", "core.splitIndex", "true")
	runGit(t, g.top, "config", "splitIndex.maxPercentChange", "5") // git often writes a new shared file
	tracked := []string{".gitignore", "ignored/tracked", "changed"}
	for i := range 40 {
		tracked = append(tracked, fmt.Sprintf("d%d/stays%d.log", i%4, i))
	}
	for _, p := range tracked {
		g.write(p, p)
	}
	g.write(".gitignore", "*.log\n/ignored\n")
	writeEach := func(branch string) {
		for i := range 40 {
			g.write(fmt.Sprintf("d%d/%s%d.moves", i%4, branch, i), branch)
		}
		runGit(t, g.top, "add", "-f", ".")
		runGit(t, g.top, "commit", "-qm", "m")
	}
	writeEach("main")
	runGit(t, g.top, "checkout", "-q", "-b", "other")
	runGit(t, g.top, "rm", "-q", "*.moves")
	writeEach("other")
	g.write("changed", "has changed")
	for _, p := range []string{"d1/untracked", "ignored/x", "d2/x.log"} {
		g.write(p, "")
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var commands atomic.Int64
	ended := make(chan error, 1)
	go func() {
		ended <- func() error {
			moves := filepath.Join(g.top, "d1", "x.moves")
			for ctx.Err() == nil {
				for _, args := range []string{"checkout -q -", "add d1/x.moves", "commit -qm m", "stash push -q -- d1/x.moves", "stash drop -q", "rm -q d1/x.moves", "commit -qm m"} {
					if strings.HasSuffix(args, "d1/x.moves") && args[0] != 'r' {
						if err := os.WriteFile(moves, []byte(args), 0o666); err != nil {
							return err
						}
					}
					cmd := exec.Command("git", strings.Fields(args)...)
					cmd.Dir = g.top
					if out, err := cmd.CombinedOutput(); err != nil {
						return fmt.Errorf("git %s: %w: %s", args, err, out)
					}
					commands.Add(1)
				}
			}
			return nil
		}()
	}()
	rounds := 40
	if testing.Short() {
		rounds = 8
	}
	for round := 0; round < rounds || commands.Load() < int64(rounds); round++ {
		select {
		case err := <-ended:
			t.Fatal(err)
		default:
		}
		for what, opts := range map[string]fileproc.Options{
			"ignore": {GitIgnore: true}, "tracked": {GitTracked: true}, "tracked, listed": {GitTracked: true, ReadSize: fileproc.NoRead},
		} {
			opts.Ordered = round%2 == 0
			opts.OnError = func(err error) error {
				if !strings.Contains(err.Error(), ".moves") || !errors.Is(err, fileproc.ErrChanged) {
					t.Errorf("%s: %v", what, err)
				}
				return nil
			}
			got, err := fileproc.Process(t.Context(), g.top, opts, relOf)
			require.NoError(t, err)
			want := slices.Clone(tracked)
			if opts.GitIgnore {
				want = append(want, "d1/untracked")
			}
			require.ElementsMatch(t, want, slices.DeleteFunc(slash(got), func(p string) bool { return strings.HasSuffix(p, ".moves") }), what)
		}
		got, err := git.Changed(t.Context(), g.top)
		if err != nil {
			require.ErrorContains(t, err, ".moves")
		}
		require.Equal(t, []string{"changed", "d1/untracked"}, slices.DeleteFunc(got, func(p string) bool { return strings.HasSuffix(p, ".moves") }))
	}
	cancel()
	require.NoError(t, <-ended)
	t.Logf("%d commands", commands.Load())
}
