package fileproc

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/fileproc/fileproc/internal/knobs"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

// In the cold mode names are read in the order of the disk, whatever their own.
func TestFilesColdOrder(t *testing.T) {
	dir := t.TempDir()
	d, err := openRoot(dir)
	require.NoError(t, err)
	onDisk := isOnDisk(d)
	d.close()
	if !onDisk {
		t.Skip("not on a disk, or another backend")
	}
	testtree.Set(t, &knobs.AlwaysCold, true)
	var list []string
	for i := range 2000 {
		list = append(list, fmt.Sprintf("f%04d", i))
		require.NoError(t, os.WriteFile(filepath.Join(dir, list[i]), []byte("x"), 0o600))
	}
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	var inodes []uint64
	given := make(chan struct{})
	names := func(yield func(string) bool) {
		defer close(given) // a worker may begin before, and then waits with its first file
		slices.Values(list)(yield)
	}
	_, err = Process(t.Context(), dir, Options{Workers: 1, Stat: true, Files: names}, func(f *File) (int, error) {
		<-given
		s, err := f.Stat()
		inodes = append(inodes, s.Inode)
		return 0, err
	})
	require.NoError(t, err)
	require.Len(t, inodes, 2000)
	back := 0
	for i := 1; i < len(inodes); i++ {
		if inodes[i] < inodes[i-1] {
			back++
		}
	}
	require.Less(t, back, 500, "half of what chance would give")
}
