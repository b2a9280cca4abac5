package fsinfo_test

import (
	"path/filepath"
	"testing"

	"github.com/fileproc/fileproc/internal/fsinfo"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

// TestIsLoop: a link to itself is told apart from one to a file that is not there.
func TestIsLoop(t *testing.T) {
	dir := t.TempDir()
	for name, target := range map[string]string{"loop": "loop", "dangling": "nowhere", "through": "loop"} {
		testtree.Symlink(t, target, filepath.Join(dir, name))
	}
	for name, want := range map[string]bool{"loop": true, "dangling": false, "through": true, ".": false} {
		_, err := filepath.EvalSymlinks(filepath.Join(dir, name))
		require.Equal(t, want, fsinfo.IsLoop(err), name)
	}
}
