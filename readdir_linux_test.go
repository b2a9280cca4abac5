//go:build linux && !fileproc_unix && !fileproc_generic

package fileproc

import (
	"fmt"
	"io/fs"
	"math"
	"math/rand"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// plantNames makes a directory of so many empty files that ReadDir takes a
// second descriptor where it can.
func plantNames(t *testing.T) (dir string, names []string) {
	procs := runtime.GOMAXPROCS(2)
	t.Cleanup(func() { runtime.GOMAXPROCS(procs) })
	dir = t.TempDir()
	for i := range 6000 {
		name := fmt.Sprintf("%04d%s", i, strings.Repeat("-", 10+i%60))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
		names = append(names, name)
	}
	return dir, names
}

// Two descriptors give the same entries as one, in the same order.
func TestReadDirOfManyEntries(t *testing.T) {
	dir, names := plantNames(t)
	f, err := os.Open(dir)
	require.NoError(t, err)
	defer f.Close()
	want, err := f.Readdirnames(-1)
	require.NoError(t, err)
	require.Len(t, want, len(names))
	entries, err := ReadDir(dir)
	require.NoError(t, err)
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	require.Equal(t, want, got)
}

// A directory is listed from two descriptors if possible, each for about one
// half; otherwise the other tests of this file prove nothing.
func TestReadDirInHalves(t *testing.T) {
	dir, names := plantNames(t)
	d, err := openRoot(dir)
	require.NoError(t, err)
	defer d.close()
	p := part{dir: d.(*linuxDir), name: &dir}
	p.list(halveFrom)
	require.False(t, p.over)
	first := part{blocks: p.blocks, block: p.block}.len()
	var latter part
	if !p.halve(&latter) {
		var st unix.Statfs_t
		require.NoError(t, unix.Statfs(dir, &st))
		hashed := st.Type == unix.EXT4_SUPER_MAGIC && p.at > math.MaxUint32
		require.False(t, hashed || st.Type == unix.XFS_SUPER_MAGIC)
		t.Logf("left out: one descriptor on file systems of type %#x", st.Type)
		return
	}
	defer latter.dir.close()
	p.list(1 << 20)
	latter.list(1 << 20)
	require.Equal(t, len(names), p.len()+latter.len())
	rest := float64(len(names) - first)
	require.InDelta(t, 0.5, float64(latter.len())/rest, 0.1)
}

func (p part) len() int { return len(listedEntries(append(p.blocks, p.block))) }

// Entries that stay are given once, however the directory changes meanwhile.
func TestReadDirOfManyEntriesThatChange(t *testing.T) {
	dir, names := plantNames(t)
	var (
		stop atomic.Bool
		wg   sync.WaitGroup
	)
	for c := range 2 {
		wg.Go(func() {
			random := rand.New(rand.NewSource(int64(c)))
			path := func() string {
				i := random.Intn(3000)
				return filepath.Join(dir, fmt.Sprintf("m%d-%d%s", c, i, strings.Repeat("x", i%90)))
			}
			for !stop.Load() {
				switch p := path(); random.Intn(4) {
				case 0, 1:
					os.WriteFile(p, nil, 0o600)
				case 2:
					os.Remove(p)
				case 3:
					os.Rename(p, path())
				}
			}
		})
	}
	defer wg.Wait()
	defer stop.Store(true)
	for range 20 {
		entries, err := ReadDir(dir)
		require.NoError(t, err)
		seen := map[string]int{}
		for _, e := range entries {
			seen[e.Name()]++
		}
		for _, name := range names {
			require.Equal(t, 1, seen[name], name)
		}
	}
}

// The kernel lists no such names since 5.4; before, a damaged image could.
func TestInvariant3ReadDirNamesThatAreNone(t *testing.T) {
	d, err := openRoot(t.TempDir())
	require.NoError(t, err)
	defer d.close()
	p := part{dir: d.(*linuxDir)}
	require.NoError(t, p.add(listedEntry{name: []byte("a")}))
	for _, name := range []string{"a/b", "../a", "/"} {
		require.ErrorIs(t, p.add(listedEntry{name: []byte(name)}), fs.ErrInvalid)
	}
	require.Len(t, p.block, 1)
}
