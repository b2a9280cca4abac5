//go:build linux

package soak

import (
	"bytes"
	"math/rand"
	"os"
	"path/filepath"
	"testing"

	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

const seed = 366 // of a small tree

func newTree(t *testing.T) *tree {
	t.Helper()
	made, err := writeTree(rand.New(rand.NewSource(seed)), t.TempDir(), false)
	require.NoError(t, err)
	return made
}

func anyFile(t *tree) string {
	for rel := range t.stable {
		if len(contentOf(rel)) > 0 {
			return filepath.Join(t.root, rel)
		}
	}
	return ""
}

func TestCheckFindsWhatIsWrong(t *testing.T) {
	made := newTree(t)
	require.NoError(t, check(made.root, seed, 20, false))
	path := anyFile(made)
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	content[len(content)-1]++
	require.NoError(t, os.WriteFile(path, content, 0o644))
	require.ErrorContains(t, check(made.root, seed, 20, false), "differ")
	require.NoError(t, os.Remove(path))
	require.ErrorContains(t, check(made.root, seed, 20, false), "was not delivered")
}

// A tree that can be read is not one whose key was removed.
func TestCheckLockedWantsFailures(t *testing.T) {
	made := newTree(t)
	require.ErrorContains(t, checkLocked(made.root, seed, 20, false), "files delivered, 0 of")
	require.NoError(t, os.Remove(anyFile(made)))
	_, err := made.checkLocked(newTrial(rand.New(rand.NewSource(1)), made, false).opts, "Walk")
	require.ErrorContains(t, err, "files listed")
}

func TestCompressibleContent(t *testing.T) {
	for rel := range newTree(t).stable {
		plain, p := testtree.BytesOf(rel), compressibleBytesOf(rel)
		require.Len(t, p, len(plain))
		require.True(t, bytes.Equal(p[:min(8, len(p))], plain[:min(8, len(p))]))
	}
}
