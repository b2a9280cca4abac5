//go:build linux

package fileproc_test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fileproc/fileproc"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Bind mounts may make a tree contain itself, and links may lead into them; another file system may be mounted below root.
func TestInvariant1AcrossMounts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	root := t.TempDir()
	plant(t, root, "top", "a/f", "a/g/f", "b/.keep", "t/hidden", "over", "a/loop/hidden")
	for link, to := range map[string]string{"l": "t", "m": "b/g", "up": "a/loop", "a/back": "loop/a", "tf": "t/x"} {
		require.NoError(t, os.Symlink(filepath.Join(root, to), filepath.Join(root, link)))
	}
	runTask(t, "mounts", root, func(c *exec.Cmd) {
		c.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	})
}

// A link may lead to the root of all.
func TestSymlinkToTheRootOfAll(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.Symlink("/", filepath.Join(root, "l")))
	var report fileproc.Report
	_, err := fileproc.Process(t.Context(), root, fileproc.Options{Symlinks: fileproc.SymlinksFiles, SymlinksOutside: true, Report: &report}, nameOf)
	require.NoError(t, err)
	require.Equal(t, map[fileproc.SkipReason]int64{fileproc.SkippedNotRegular: 1}, report.Skipped)
}

// acrossMounts mounts below root, in a mount namespace that ends with the process.
func acrossMounts(t *testing.T, root string) {
	in := func(rel string) string { return filepath.Join(root, rel) }
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Skipf("no mounts: %v", err)
	}
	require.NoError(t, unix.Mount("tmpfs", in("t"), "tmpfs", 0, ""))
	plant(t, root, "t/x", "t/d/y")
	require.NoError(t, unix.Mount(in("t/x"), in("over"), "", unix.MS_BIND, ""))
	require.NoError(t, unix.Mount(in("a"), in("b"), "", unix.MS_BIND, ""))
	require.NoError(t, unix.Mount(root, in("a/loop"), "", unix.MS_BIND, ""))
	var all, one []string
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			rel, _ := filepath.Rel(root, path)
			if all = append(all, rel); !strings.HasPrefix(rel, "t/") {
				one = append(one, rel)
			}
		}
		return err
	}))
	require.Contains(t, all, "a/loop/top")
	require.Contains(t, all, "b/g/f")
	require.Contains(t, all, "t/d/y")
	for _, symlinks := range []fileproc.Symlinks{fileproc.SymlinksSkip, fileproc.SymlinksFollow} {
		for _, oneFilesystem := range []bool{false, true} {
			want := all
			if oneFilesystem {
				want = one
			}
			if symlinks == fileproc.SymlinksFollow {
				want = append([]string{"tf", "a/loop/tf"}, want...) // of OneFilesystem only directories are the concern
			}
			opts := fileproc.Options{Symlinks: symlinks, OneFilesystem: oneFilesystem}
			got, err := read(t.Context(), root, opts)
			require.NoError(t, err)
			var rels []string
			for rel, data := range got {
				rels = append(rels, rel)
				require.True(t, strings.HasSuffix("/"+rel, "/"+filepath.Base(data)) || filepath.Base(rel) == "over" || filepath.Base(rel) == "tf", "%s holds %q", rel, data)
			}
			require.ElementsMatch(t, want, rels, fmt.Sprintf("%+v", opts))
		}
	}
}
