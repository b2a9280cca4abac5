package incremental_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/incremental"
	"github.com/stretchr/testify/require"
)

// A clone is a project whose root is a clone of origin.
type clone struct {
	*project
	origin string
	report fileproc.Report
}

func (c *clone) git(dir string, args ...string) {
	c.t.Helper()
	cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "protocol.file.allow=always"}, args...)...)
	out, err := cmd.CombinedOutput()
	require.NoError(c.t, err, "git %q: %s", args, out)
}

// renew replaces the tree by a new clone, whose index is newer than all files.
func (c *clone) renew(args ...string) {
	c.t.Helper()
	require.NoError(c.t, os.RemoveAll(c.root))
	c.git(c.origin, append(append([]string{"clone", "-q", "--recurse-submodules"}, args...), c.origin, c.root)...)
	c.age()
}

// age makes the index newer than all files.
func (c *clone) age() {
	later := time.Now().Add(time.Hour)
	require.NoError(c.t, os.Chtimes(c.path(".git/index"), later, later))
	require.NoError(c.t, os.Chtimes(c.path(".git/modules/sub/index"), later, later))
}

// reads requires that a run reads this many bytes, calls fn for these files, and returns what a full run does.
func (c *clone) reads(size int, rels ...string) {
	c.t.Helper()
	_, err := c.try(c.t.Context())
	require.NoError(c.t, err)
	require.Equal(c.t, rels, c.calls)
	require.EqualValues(c.t, size, c.report.Bytes)
	c.opts.Report = nil
	c.run()
	c.opts.Report = &c.report
}

// cloned returns a clone, and another of the same content to which a cache file is restored.
func cloned(t *testing.T, format string, files ...string) *clone {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git to make a clone: ", err)
	}
	incremental.NeedsTimes(t)
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	c := &clone{project: newProject(t, files...), origin: filepath.Join(t.TempDir(), "origin")}
	c.inc.Compare = incremental.CompareGit
	c.opts.SelectDir = func(e fileproc.Entry) bool { return e.Name() != ".git" }
	c.opts.Select = func(f *fileproc.File) bool { return !strings.HasPrefix(f.Name(), ".git") }
	c.opts.Report = &c.report
	sub := filepath.Join(t.TempDir(), "module")
	for _, dir := range []string{sub, c.root} {
		require.NoError(t, os.MkdirAll(dir, 0o755))
		c.git(dir, "init", "-q", "-b", "main", "--object-format", format)
		if dir == sub {
			require.NoError(t, os.WriteFile(filepath.Join(sub, "s"), []byte("module"), 0o644))
		} else {
			c.git(dir, "submodule", "--quiet", "add", sub, "sub")
		}
		c.git(dir, "add", ".")
		c.git(dir, "commit", "-q", "-m", "x")
	}
	require.NoError(t, os.Rename(c.root, c.origin))
	return c
}

// TestCompareGit: in a fresh clone, a run with the cache file of another clone reads only what git's index does not know.
func TestCompareGit(t *testing.T) {
	for _, format := range []string{"sha1", "sha256"} {
		t.Run(format, func(t *testing.T) {
			c := cloned(t, format, "a=one", "d/b=two", "d/e/c=three", "d/x.skip=four", "empty=")
			all := []string{"a", "d/b", "d/e/c", "d/x.skip", "empty", "sub/s"}
			const size = 3 + 3 + 5 + 4 + 6
			c.renew()
			c.reads(size, all...)
			c.renew()
			c.reads(0)
			if format != "sha1" { // all else is the same
				return
			}
			c.inc.Compare = incremental.CompareAuto
			c.renew()
			c.settle()
			c.reads(size, all...)
			c.inc.Compare = incremental.CompareGit
			c.reads(0) // as CompareAuto

			c.inc.File += ".2"
			c.renew()
			c.reads(size, all...)
			c.renew()
			c.write("a", "new")
			c.write("d/e/c", "longer")
			c.write("d/untracked", "x")
			for _, name := range []string{"a", "d/b", "d/e/c"} { // git looks at seconds only
				ago := time.Now().Add(-time.Hour)
				require.NoError(t, os.Chtimes(c.path(name), ago, ago))
			}
			c.settle()
			c.reads(3+6+1+3, "a", "d/e/c", "d/untracked") // the content of d/b is what it was
			c.reads(3)                                    // d/b, until git refreshes the index
			c.git(c.root, "update-index", "-q", "--refresh", "d/b")
			c.age()
			c.reads(0)
			c.git(c.root, "checkout", "-q", "a", "d/e/c")
			c.reads(3+5, "a", "d/e/c")

			c.renew()
			then := time.Unix(1e9, 0)
			require.NoError(t, os.Chtimes(c.path(".git/index"), then, then))
			c.reads(size - 6) // each file is as new as the index, except in the submodule
			c.renew()
			c.git(c.root, "update-index", "--assume-unchanged", "a", "d/b")
			c.git(c.root, "update-index", "--skip-worktree", "d/e/c")
			c.write("a", "ONE")
			c.settle()
			c.reads(3+3+5, "a")
			c.renew()
			require.NoError(t, os.WriteFile(c.path(".git/index"), []byte("DIRC"), 0o644))
			c.settle()
			c.reads(size, all...)
			c.reads(0)
		})
	}
}

// TestCompareGitBranches: a checkout changes the index, too.
func TestCompareGitBranches(t *testing.T) {
	c := cloned(t, "sha1", "a=one", "d/b=two")
	c.renew()
	c.git(c.root, "checkout", "-q", "-b", "other")
	c.write("a", "ONE")
	c.write("d/new", "new")
	c.git(c.root, "add", ".")
	c.git(c.root, "commit", "-q", "-m", "x")
	c.git(c.root, "push", "-q", "origin", "other")
	c.renew()
	c.reads(3+3+6, "a", "d/b", "sub/s")
	c.renew("-b", "other")
	c.reads(3+3, "a", "d/new")
	c.renew()
	c.reads(3, "a")
	require.Empty(t, c.gone) // the second run has told
	for _, index := range []string{"2", "4"} {
		c.renew("-c", "index.version="+index, "-c", "core.splitIndex=true")
		c.reads(0)
	}
}

// TestCompareGitTorn: what fn made of content and a size that do not belong together is not kept.
func TestCompareGitTorn(t *testing.T) {
	var files []string
	for i := range 100 {
		files = append(files, fmt.Sprintf("%02d=one", i))
	}
	c := cloned(t, "sha1", files...)
	c.renew()
	write := func(text string) {
		for i := range files {
			require.NoError(t, os.WriteFile(c.path(fmt.Sprintf("%02d", i)), []byte(text), 0o644))
		}
	}
	write("longer")
	c.opts.Workers = 1
	checkout := sync.OnceFunc(func() { write("one") }) // when the metadata of files are known that are not read yet
	var torn []string
	_, err := incremental.Process(t.Context(), c.root, c.inc, c.opts, func(f *fileproc.File) (string, error) {
		checkout()
		if s, err := f.Stat(); err == nil && s.Size != int64(len(f.Data())) {
			torn = append(torn, f.Rel())
		}
		return result(f)
	})
	require.NoError(t, err)
	c.opts.Workers = 0
	_, err = c.try(t.Context())
	require.NoError(t, err)
	require.Subset(t, c.calls, torn)
	t.Log(len(torn), " files were torn")
}

// TestCompareGitAttributes: where git takes the attributes from the index, nothing is known of how it converts files.
func TestCompareGitAttributes(t *testing.T) {
	c := cloned(t, "sha1", "a=one", "d/b=two", "d/.gitattributes=b ident")
	c.renew()
	c.reads(3+3+6, "a", "d/b", "sub/s")
	c.renew()
	require.NoError(t, os.Remove(c.path("d/.gitattributes")))
	c.reads(3, "d/b")
}

// TestCompareGitFilters: a conversion may give a file of another clone other content of the same size.
func TestCompareGitFilters(t *testing.T) {
	written := "$Id: " + strings.Repeat("0", 40) + " $"
	for name, args := range map[string][]string{
		"ident":    nil,
		"filter=x": {"-c", "filter.x.smudge=tr 0-9a-z n-za-z0-9"},
		"macro":    nil,
		"eol=crlf": nil,
	} {
		t.Run(name, func(t *testing.T) {
			c := cloned(t, "sha1", "d/id="+written, "d/lines=1\n2\n")
			c.renew()
			c.reads(len(written)+4+6, "d/id", "d/lines", "sub/s")
			attributes := filepath.Join(t.TempDir(), "attributes")
			require.NoError(t, os.WriteFile(attributes, []byte("# ident\n[attr]macro ident\nid "+name+"\nlines "+name+"\n"), 0o644))
			c.renew(append(args, "-c", "core.attributesFile="+attributes)...)
			content, err := os.ReadFile(c.path("d/id"))
			require.NoError(t, err)
			isSame := name == "eol=crlf"
			require.Equal(t, isSame, string(content) == written)
			require.Len(t, content, len(written))
			c.run()
			require.Contains(t, c.calls, map[bool]string{true: "d/lines", false: "d/id"}[isSame])

			c.inc.File += ".2"
			c.run() // keeps nothing of a converted file that another clone can take
			c.renew()
			c.run()
			require.Contains(t, c.calls, map[bool]string{true: "d/lines", false: "d/id"}[isSame])
		})
	}
}
