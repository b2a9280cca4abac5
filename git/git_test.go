package git_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/git"
	"github.com/stretchr/testify/require"
)

func ExampleChanged() {
	names, err := git.Changed(context.Background(), ".")
	if err != nil {
		fmt.Println(err)
	}
	lines, err := fileproc.Process(context.Background(), ".", fileproc.Options{Files: slices.Values(names)}, func(f *fileproc.File) (int, error) {
		return strings.Count(string(f.Data()), "\n"), nil
	})
	fmt.Println(lines, err)
}

// run runs git in dir.
func run(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-C", dir}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull)
	out, err := cmd.Output()
	require.NoError(t, err, "git %q", args)
	return string(out)
}

// status returns what git status lists in dir and the work tree has, without directories.
func status(t *testing.T, dir string) (names []string) {
	t.Helper()
	prefix := strings.TrimSpace(run(t, dir, "rev-parse", "--show-prefix"))
	for line := range strings.SplitSeq(run(t, dir, "--no-optional-locks", "status", "--porcelain", "-uall", "--no-renames", "-z", "."), "\x00") {
		if line == "" || line[1] == ' ' {
			continue
		}
		name := strings.TrimPrefix(line[3:], prefix)
		if info, err := os.Lstat(filepath.Join(dir, filepath.FromSlash(name))); err == nil && !info.IsDir() {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, fileproc.ComparePaths)
	return names
}

func TestChanged(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git to compare with: ", err)
	}
	if runtime.GOOS == "windows" {
		t.Skip("git keeps other metadata there, and there are no links")
	}
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	top := t.TempDir()
	at := func(name string) string { return filepath.Join(top, filepath.FromSlash(name)) }
	write := func(name, content string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(at(name)), 0o777))
		require.NoError(t, os.WriteFile(at(name), []byte(content), 0o666))
	}
	link := func(to, name string) {
		require.NoError(t, os.RemoveAll(at(name)))
		require.NoError(t, os.Symlink(to, at(name)))
	}
	check := func(what, dir string, want ...string) {
		t.Helper()
		require.Equal(t, status(t, at(dir)), want, "git: %s", what)
		got, err := git.Changed(t.Context(), at(dir))
		require.NoError(t, err)
		require.Equal(t, want, got, what)
	}
	run(t, top, "init", "-q")
	for _, name := range []string{"d/same", "d/touched", "d/other", "d/longer", "d/x", "d/gone", "d/staged", "empty", "filled", "file", "dir/x", "e/assumed", "e/kept.log"} {
		write(name, strings.TrimSuffix("content of "+name, "content of empty"))
	}
	write(".gitignore", "*.log\n/out\n")
	link("d/same", "link")
	link("d/same", "moved")
	link("d/same", "unlinked")
	run(t, top, "add", "-f", ".")
	run(t, top, "update-index", "--assume-unchanged", "e/assumed")
	check("all is new in the index", ".")
	ago := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(at("d/touched"), ago, ago))
	require.NoError(t, os.Chtimes(at(".git/index"), time.Now().Add(time.Minute), time.Now().Add(time.Minute))) // nothing is as new as the index
	check("other times", ".")

	write("d/other", "another of other")
	write("d/longer", "longer content")
	require.NoError(t, os.Chmod(at("d/x"), 0o755))
	require.NoError(t, os.Remove(at("d/gone")))
	write("d/staged", "staged")
	run(t, top, "add", "d/staged")
	write("filled", "content of empty, or not")
	link("d/same", "file")
	require.NoError(t, os.RemoveAll(at("dir")))
	write("dir", "")
	link("d/other", "moved")
	require.NoError(t, os.Remove(at("unlinked")))
	write("unlinked", "d/same")
	write("e/assumed", "changed")
	write("e/kept.log", "changed")
	write("new/a/b", "")
	write("new/a/c.log", "")
	write("out/x", "")
	write("nested/x", "")
	run(t, at("nested"), "init", "-q")
	write("later", "")
	run(t, top, "add", "-N", "later")
	write("assumed later", "")
	run(t, top, "add", "-N", "assumed later")
	run(t, top, "update-index", "--assume-unchanged", "assumed later")
	all := []string{"d/longer", "d/other", "d/x", "dir", "e/kept.log", "file", "filled", "later", "moved", "new/a/b", "unlinked"}
	check("changes", ".", all...)
	check("below", "d", "longer", "other", "x")
	check("all is untracked", "new", "a/b")
	run(t, top, "config", "core.fileMode", "false")
	check("without modes", "d", "longer", "other")
	run(t, top, "config", "core.checkStat", "minimal")
	run(t, top, "config", "core.trustCtime", "false")
	check("fewer metadata", "d", "longer", "other")

	write("emptied", "")
	require.NoError(t, os.Chtimes(at("emptied"), time.Unix(0, 0), time.Unix(0, 0)))
	run(t, top, "update-index", "--add", "--cacheinfo", "100644,"+strings.TrimSpace(run(t, top, "hash-object", "-w", at("d/same")))+",emptied") // all metadata are 0
	check("an empty file that the index has with content", ".", "d/longer", "d/other", "dir", "e/kept.log", "emptied", "file", "filled", "later", "moved", "new/a/b", "unlinked")
	require.NoError(t, os.Remove(at("emptied")))

	for _, after := range []time.Duration{0, time.Millisecond} { // git takes all of one second for equal
		then := time.Unix(1e9, 1e6) // of two versions of a file
		for _, content := range []string{"one", "two"} {
			write("racy", content)
			require.NoError(t, os.Chtimes(at("racy"), then, then))
			if content == "one" {
				run(t, top, "add", "racy")
			}
		}
		require.NoError(t, os.Chtimes(at(".git/index"), then, then.Add(after)))
		check("a file as new as the index", ".", "d/longer", "d/other", "dir", "e/kept.log", "file", "filled", "later", "moved", "new/a/b", "racy", "unlinked")
	}

	_, err := git.Changed(t.Context(), t.TempDir())
	require.ErrorContains(t, err, "in no git repository")
	require.NoError(t, os.WriteFile(at(".git/index"), []byte("DIRC"), 0o666))
	_, err = git.Changed(t.Context(), top)
	require.ErrorContains(t, err, "damaged")
}
