package fsinfo_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fileproc/fileproc/internal/fsinfo"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

// TestEvalSymlinks: a link to itself is told apart from one to a file that is not there, and from one behind many links.
func TestEvalSymlinks(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "d"), 0o755))
	for name, target := range map[string]string{
		"self": "self", "through": "self", "x": "y", "y": "d/../x", "below": "below/x", "up": "d/../up/..", "absolute": filepath.Join(dir, "absolute"), "slash": "slash/",
		"dangling": "nowhere", "here": ".", "parent": "d/..", "twice": "here/here/parent/d",
	} {
		testtree.Symlink(t, target, filepath.Join(dir, name))
	}
	const most = 300
	for i := range most { // c299 -> c298 -> … -> c0 -> d, r299 -> … -> r0 -> r299
		to, ring := "d", fmt.Sprint("r", most-1)
		if i > 0 {
			to, ring = fmt.Sprint("c", i-1), fmt.Sprint("r", i-1)
		}
		testtree.Symlink(t, to, filepath.Join(dir, fmt.Sprint("c", i)))
		testtree.Symlink(t, ring, filepath.Join(dir, fmt.Sprint("r", i)))
	}
	for name, want := range map[string]error{
		"self": fsinfo.ErrLoop, "through": fsinfo.ErrLoop, "x": fsinfo.ErrLoop, "y": fsinfo.ErrLoop, "below": fsinfo.ErrLoop, "up": fsinfo.ErrLoop,
		"absolute": fsinfo.ErrLoop, "slash": fsinfo.ErrLoop, "self/f": fsinfo.ErrLoop, "dangling": fs.ErrNotExist, "twice": nil, ".": nil, "c0": nil, "c254": nil,
		"c255": fsinfo.ErrManyLinks, "c299": fsinfo.ErrManyLinks, "r0": fsinfo.ErrManyLinks, strings.Repeat("here/", 299) + "d": fsinfo.ErrManyLinks,
	} {
		_, err := fsinfo.EvalSymlinks(dir + string(filepath.Separator) + filepath.FromSlash(name))
		if want == nil {
			require.NoError(t, err, "%.20s", name)
		} else {
			require.ErrorIs(t, err, want, "%.20s", name)
		}
	}
}
