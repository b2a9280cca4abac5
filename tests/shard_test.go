package fileproc_test

import (
	"fmt"
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/fileproc/fileproc"
	"github.com/stretchr/testify/require"
)

// TestShards: the parts are the same as when this was written, disjoint, complete, and of similar size.
func TestShards(t *testing.T) {
	files := fstest.MapFS{}
	for i := range 500 {
		files[fmt.Sprintf("d%02d/s%d/f%03d.md", i%13, i%3, i)] = &fstest.MapFile{}
	}
	for rel := range goldenShards {
		if fs.ValidPath(rel) && rel != "a" {
			files[rel] = &fstest.MapFile{}
		}
	}
	for _, n := range []int{1, 2, 3, 8, 1000} {
		seen := map[string]bool{}
		for i := range n {
			got, err := fileproc.Process(t.Context(), ".", fileproc.Options{FS: files, Shards: n, Shard: i}, relOf)
			require.NoError(t, err)
			for _, rel := range got {
				require.False(t, seen[rel], rel)
				seen[rel] = true
				if want, ok := goldenShards[rel]; ok && n == 8 {
					require.Equal(t, want, i, rel)
				}
			}
		}
		require.Len(t, seen, len(files))
	}
}

// goldenShards has the part, of 8, of some paths, as hash/fnv and MurmurHash3's finalizer give them.
var goldenShards = map[string]int{"a": 3, "a/b.txt": 5, "notes/2024/plan.md": 5, "README.md": 5, "d/é.md": 2}
