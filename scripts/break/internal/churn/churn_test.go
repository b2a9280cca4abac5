//go:build linux

package churn

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/fileproc/fileproc/scripts/break/internal/trial"
	"github.com/fileproc/fileproc/scripts/internal/fail"
	"github.com/stretchr/testify/require"
)

const seed = 366 // of a small tree

func newFlags() *trial.Flags {
	flags := trial.NewFlags("tree")
	flags.Seed = seed
	return flags
}

func newTree(t *testing.T) (root string) {
	t.Helper()
	root = t.TempDir()
	require.NoError(t, trial.Write(root, contentOf, plan(seed)...))
	return root
}

func anyFile() string {
	for rel := range trial.Set(plan(seed)) {
		if len(contentOf(rel)) > 0 {
			return rel
		}
	}
	return ""
}

func checkAgain(t *testing.T, root string, locked bool) error {
	return fail.Try(func() { check(t.Context(), newFlags(), root, 20, false, locked) })
}

func TestCheckFindsWhatIsWrong(t *testing.T) {
	root := newTree(t)
	require.NoError(t, checkAgain(t, root, false))
	path := filepath.Join(root, anyFile())
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	content[len(content)-1]++
	require.NoError(t, os.WriteFile(path, content, 0o644))
	require.ErrorContains(t, checkAgain(t, root, false), "differ")
	require.NoError(t, os.Remove(path))
	require.ErrorContains(t, checkAgain(t, root, false), "did not come")
}

// A tree that can be read is not one whose key was removed.
func TestCheckLockedWantsFailures(t *testing.T) {
	root := newTree(t)
	require.ErrorContains(t, checkAgain(t, root, true), "opened: ")
	require.NoError(t, os.Remove(filepath.Join(root, anyFile())))
	c := &attempt{t: &tree{stable: trial.Set(plan(seed))}}
	c.Root = root
	require.ErrorContains(t, c.doLocked(t.Context()), "listed: ")
}

func TestCompressibleContent(t *testing.T) {
	for rel := range trial.Set(plan(seed)) {
		plain, p := testtree.BytesOf(rel), contentOf(rel)
		require.Len(t, p, len(plain))
		require.True(t, bytes.Equal(p[:min(8, len(p))], plain[:min(8, len(p))]))
	}
}
