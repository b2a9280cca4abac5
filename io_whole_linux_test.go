//go:build linux && !fileproc_unix && !fileproc_generic

package fileproc

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fileproc/fileproc/internal/dirent"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// countingClient lists as a client of SMB does: its position is a number of entries. Before each call but the first of a
// listing an entry comes or goes before that position, with which the directory's time changes. So each call leaves out an
// entry that nobody touches, or gives one twice, for the first changes of them.
type countingClient struct {
	t       *testing.T
	dir     string
	changes int
	at      map[int]int // by descriptor
	begun   int         // listings
	answer  int         // entries of one call, if not 0
	suffix  string      // of each name, which is none of the directory's then
}

func (c *countingClient) getdents(fd int, buf []byte) (int, error) {
	off, err := unix.Seek(fd, 0, unix.SEEK_CUR)
	if err != nil || off == 0 {
		c.at[fd] = 0
		c.begun++
	}
	if c.at[fd] > 0 && c.changes > 0 {
		c.changes--
		first := filepath.Join(c.dir, "!")
		if os.Remove(first) != nil {
			require.NoError(c.t, os.WriteFile(first, nil, 0o600))
		}
		at := time.Unix(int64(1e9+c.changes), 0)
		require.NoError(c.t, os.Chtimes(c.dir, at, at))
	}
	entries, err := os.ReadDir(c.dir)
	require.NoError(c.t, err)
	n := 0
	for i, e := range entries[min(c.at[fd], len(entries)):] {
		name := e.Name() + c.suffix
		size := (19 + len(name) + 1 + 7) &^ 7
		if n+size > len(buf) || i == c.answer && i > 0 {
			break
		}
		record := buf[n : n+size]
		clear(record)
		binary.NativeEndian.PutUint16(record[16:], uint16(size))
		record[18] = dirent.Regular
		copy(record[19:], name)
		n += size
		c.at[fd]++
	}
	_, err = unix.Seek(fd, int64(c.at[fd]), unix.SEEK_SET)
	return n, err
}

func TestLosesPosition(t *testing.T) {
	t.Cleanup(func() { fstatfs = unix.Fstatfs })
	for typ, want := range map[int64]bool{
		unix.NFS_SUPER_MAGIC: true, unix.SMB_SUPER_MAGIC: true, unix.CIFS_SUPER_MAGIC: true, unix.SMB2_SUPER_MAGIC: true, unknownFileSystem: true,
		unix.EXT4_SUPER_MAGIC: false, unix.BTRFS_SUPER_MAGIC: false, unix.TMPFS_MAGIC: false, unix.FUSE_SUPER_MAGIC: false,
	} {
		asked := 0
		fstatfs = func(_ int, st *unix.Statfs_t) error {
			if asked++; typ == unknownFileSystem {
				return unix.EACCES
			}
			setType(&st.Type, typ)
			return nil
		}
		d := new(linuxDir)
		require.Equal(t, want, d.losesPosition(), "%#x", typ)
		require.Equal(t, typ, d.fileSystem())
		require.Equal(t, 1, asked)
	}
}

// setType sets *at as the kernel does, to the lower 32 bits where that is all there is.
func setType[T int32 | uint32 | int64](at *T, typ int64) { *at = T(typ) }

// On NFS and SMB a listing in several calls loses entries while others come and go.
func TestInvariant1ListingThatLosesItsPosition(t *testing.T) {
	var want []string
	dir := t.TempDir()
	for i := range 1500 {
		want = append(want, fmt.Sprintf("%0*d", 200, i)) // 330 KB of records
		require.NoError(t, os.WriteFile(filepath.Join(dir, want[i]), nil, 0o600))
	}
	var client countingClient
	list := func(t *testing.T, dir string, changes int) (process, readDir []string) {
		_, noFirst := os.Lstat(filepath.Join(dir, "!"))
		t.Cleanup(func() { os.Remove(filepath.Join(dir, "!")) })
		client.t, client.dir, client.changes, client.at, client.begun = t, dir, changes, map[int]int{}, 0
		t.Cleanup(func() { getdents64, fstatfs = unix.Getdents, unix.Fstatfs })
		getdents64, fstatfs = client.getdents, func(int, *unix.Statfs_t) error { return unix.EACCES } // which could be any
		_, err := Process(t.Context(), dir, Options{Workers: 1, ReadSize: NoRead, Select: func(f *File) bool { return f.Name()[0] != '!' }},
			func(f *File) (struct{}, error) { process = append(process, f.Name()); return struct{}{}, nil })
		require.NoError(t, err)
		os.Remove(filepath.Join(dir, "!"))
		if noFirst == nil {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "!"), nil, 0o600))
		}
		client.changes = changes
		entries, err := ReadDir(dir)
		require.NoError(t, err)
		for _, e := range entries {
			if e.Name()[0] != '!' {
				readDir = append(readDir, e.Name())
			}
		}
		slices.Sort(process)
		slices.Sort(readDir)
		return process, readDir
	}
	wasCoarse := coarseTime
	defer func() { coarseTime = wasCoarse }()
	for _, coarse := range []time.Duration{0, math.MaxInt64} {
		for _, changes := range []int{0, 1, 2, 3, 4} {
			t.Run(fmt.Sprintf("%d,coarse=%v", changes, coarse > 0), func(t *testing.T) {
				coarseTime = coarse
				process, readDir := list(t, dir, changes)
				require.True(t, slices.Equal(want, process), "%d names", len(process))
				require.True(t, slices.Equal(want, readDir), "%d names", len(readDir))
				if changes == 0 && coarse == 0 {
					require.Equal(t, 2*2, client.begun) // one that sees that there is more, and one
				} else if changes == 0 {
					require.Equal(t, 2*3, client.begun)
				}
			})
		}
	}
	// Entries come and go all the time, so that each listing has the same number of them before each of its calls.
	t.Run("always", func(t *testing.T) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "!"), nil, 0o600))
		process, readDir := list(t, dir, math.MaxInt)
		require.True(t, slices.Equal(want, process), "%d names", len(process))
		require.True(t, slices.Equal(want, readDir), "%d names", len(readDir))
	})
	// The last entry moves before the position that the first call has reached, so the second call gives nothing.
	for _, few := range []struct {
		n, size, answer int
		suffix          string
	}{{n: 19, size: 200}, {n: 15, size: 250}, {n: 5, size: 250, suffix: strings.Repeat("x", 500)}, {n: oneAnswer + 1, size: 10, answer: oneAnswer + 1}} {
		t.Run(fmt.Sprintf("few,%d", few.n), func(t *testing.T) {
			dir, want := t.TempDir(), []string{}
			for i := range few.n {
				want = append(want, fmt.Sprintf("%0*d", few.size, i))
			}
			for _, name := range append([]string{"!"}, want...) {
				require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
			}
			client = countingClient{answer: few.answer, suffix: few.suffix}
			process, readDir := list(t, dir, 1)
			for i := range want {
				want[i] += few.suffix
			}
			require.Equal(t, want, process)
			require.Equal(t, want, readDir)
		})
	}
	client = countingClient{}
	was := wholeSize
	defer func() { wholeSize = was }()
	wholeSize = 1000
	// What does not fit the memory for one directory is listed as elsewhere.
	t.Run("large", func(t *testing.T) {
		process, readDir := list(t, dir, 0)
		require.True(t, slices.Equal(want, process), "%d names", len(process))
		require.True(t, slices.Equal(want, readDir), "%d names", len(readDir))
	})
	// If a later listing has too much, its rest is given as well.
	t.Run("grown", func(t *testing.T) {
		root, err := openRoot(dir)
		require.NoError(t, err)
		defer root.close()
		d := root.(*linuxDir)
		d.whole = &wholeListing{listings: 1}
		for _, name := range want[:1000] {
			d.whole.keep(listedEntry{name: []byte(name)})
		}
		wholeSize = d.whole.size + 1000
		var got []string
		l := new(listing)
		for more := true; more; l.reset() {
			more, err = d.list(l)
			require.NoError(t, err)
			for _, e := range l.entries {
				got = append(got, string(e.name))
			}
		}
		slices.Sort(got)
		require.True(t, slices.Equal(want, got), "%d names", len(got))
	})
}
