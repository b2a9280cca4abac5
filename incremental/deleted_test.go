package incremental_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/incremental"
	"github.com/stretchr/testify/require"
)

// TestGoneFileThatBecameADirectory: a path that was a file and later a directory can vanish together with what was in that.
func TestGoneFileThatBecameADirectory(t *testing.T) {
	t.Parallel()
	p := newProject(t, "d/x=1", "d/b=2")
	p.run()
	require.NoError(t, os.Remove(p.path("d/x")))
	p.write("d/x/y/z.md", "3")
	p.write("d/x/a.md", "4")
	p.settle()
	p.opts.Suffixes = []string{".md"} // leaves the entry of the file alone
	p.run()
	require.Empty(t, p.gone)
	p.opts.Suffixes = nil
	require.NoError(t, os.RemoveAll(p.path("d")))
	p.run()
	require.ElementsMatch(t, []string{"d/b", "d/x", "d/x/a.md", "d/x/y/z.md"}, p.gone)
}

// TestGoneBelowALink: where a link has taken a directory's place, the files of the directory are there only for a run that
// follows the link; ignore files behind the link have a say only then. A link to itself leads nowhere.
func TestGoneBelowALink(t *testing.T) {
	t.Parallel()
	for links, want := range map[fileproc.Symlinks][]string{
		fileproc.SymlinksSkip:   {"d/y", "d/z", "e/z", "f"},
		fileproc.SymlinksFiles:  {"d/y", "d/z", "e/z", "f"},
		fileproc.SymlinksFollow: {"e/z", "f"}, // d/z is ignored
	} {
		t.Run(links.String(), func(t *testing.T) {
			t.Parallel()
			p := newProject(t, "d/y=1", "d/z=1", "e/z=2", "f=3", "other/.ignore=z", "other/y=4")
			p.opts.IgnoreFiles = []string{".ignore"}
			p.opts.Symlinks = links
			p.run()
			for _, rel := range []string{"d", "e", "f"} {
				require.NoError(t, os.Rename(p.path(rel), filepath.Join(p.root, "..", rel)))
			}
			if err := os.Symlink("other", p.path("d")); err != nil {
				t.Skip(err)
			}
			require.NoError(t, os.Symlink("e", p.path("e")))
			require.NoError(t, os.Symlink("f", p.path("f")))
			p.run()
			require.Equal(t, want, p.gone)
		})
	}
}

// TestGoneDirectoryThatBecameAnIgnoreFile: the file has its say about what was in the directory, too.
func TestGoneDirectoryThatBecameAnIgnoreFile(t *testing.T) {
	t.Parallel()
	p := newProject(t, ".ignore/a.md=1", ".ignore/b=1", "d/a.md=1", "d/b=2")
	p.opts.IgnoreFiles = []string{".ignore"}
	p.run()
	require.NoError(t, os.RemoveAll(p.path(".ignore")))
	require.NoError(t, os.RemoveAll(p.path("d")))
	p.write(".ignore", "*.md\n")
	p.run()
	require.Equal(t, []string{".ignore/b", "d/b"}, p.gone)
}

// TestGoneMarker: a marker that has vanished together with its directory marks nothing.
func TestGoneMarker(t *testing.T) {
	t.Parallel()
	p := newProject(t, "d/a=1", "d/.nobackup=", "e/a=2")
	p.run()
	require.NoError(t, os.RemoveAll(p.path("d")))
	p.opts.SkipMarked = []string{".nobackup"}
	p.run()
	require.Equal(t, []string{"d/a"}, p.gone)
	p.opts.SkipMarked = nil
	p.run()
	require.Equal(t, []string{"d/.nobackup"}, p.gone)
}

// TestGoneOddNames: an ignore file has its say also in a directory whose name is not UTF-8.
func TestGoneOddNames(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	if os.MkdirAll(p.path("d\xff"), 0o755) != nil || os.WriteFile(p.path("d\xff/\xfe.md"), []byte("1"), 0o644) != nil {
		t.Skip("no such names here")
	}
	p.inc.Codec = incremental.Raw[string]()
	p.opts.IgnoreFiles = []string{".ignore"}
	p.settle()
	p.run()
	require.NoError(t, os.Remove(p.path("d\xff/\xfe.md")))
	p.write("d\xff/.ignore", "*.md\n")
	p.run()
	require.Empty(t, p.gone)
	require.NoError(t, os.Remove(p.path("d\xff/.ignore")))
	p.run()
	require.Contains(t, p.gone, "d\xff/\xfe.md")
}
