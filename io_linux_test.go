//go:build linux && !fileproc_unix && !fileproc_generic

package fileproc

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/fileproc/fileproc/internal/content"
	"github.com/fileproc/fileproc/internal/knobs"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// countedDir counts the entries of each part of its listing.
type countedDir struct {
	directory
	parts *[]int
}

func (d *countedDir) list(l *listing) (bool, error) {
	more, err := d.directory.list(l)
	*d.parts = append(*d.parts, len(l.entries))
	return more, err
}

// A listing that waits, perhaps for a server, is asked for as much as fits the buffer.
func TestListingThatWaitsTakesLongerCalls(t *testing.T) {
	const size = 200 // of a record, about
	dir := t.TempDir()
	for i := range 4 * listingSize / size {
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%0*d", size-20, i)), nil, 0o644))
	}
	parts := func(slow time.Duration) (parts []int) {
		testtree.Set(t, &knobs.SlowCall, slow)
		opts := Options{Workers: 1, ReadSize: NoRead, openRoot: func(root string) (directory, error) {
			d, err := openRoot(root)
			return &countedDir{d, &parts}, err
		}}
		_, err := Process(t.Context(), dir, opts, func(*File) (struct{}, error) { return struct{}{}, nil })
		require.NoError(t, err)
		return parts
	}
	full := listingSize / size
	require.Less(t, parts(time.Hour)[1], full*2/3)
	require.Greater(t, parts(-time.Hour)[1], full*2/3)
}

// What is slow because of a disk is asked for by few workers, and by all if it is something else.
func TestFewListingsOfADiskAtTheSameTime(t *testing.T) {
	testtree.Set(t, &knobs.SlowCall, 100*time.Microsecond)
	t.Cleanup(func() { getdents64, fstatfs = unix.Getdents, unix.Fstatfs })
	dir := t.TempDir()
	for i := range 20 {
		require.NoError(t, os.Mkdir(filepath.Join(dir, fmt.Sprint(i)), 0o700))
	}
	most := func(typ int64, opts Options) int {
		fstatfs = func(_ int, st *unix.Statfs_t) error { setType(&st.Type, typ); return nil }
		var calls gauge
		getdents64 = func(fd int, buf []byte) (n int, err error) {
			calls.during(func() {
				time.Sleep(longCall + time.Millisecond) // no reason to ask for more
				n, err = unix.Getdents(fd, buf)
			})
			return n, err
		}
		opts.Workers = 16
		_, err := Process(t.Context(), dir, opts, func(*File) (struct{}, error) { return struct{}{}, nil })
		require.NoError(t, err)
		return calls.most
	}
	for typ, opts := range map[int64]Options{
		unix.EXT4_SUPER_MAGIC: {}, unix.XFS_SUPER_MAGIC: {ReadSize: NoRead}, unix.BTRFS_SUPER_MAGIC: {Ordered: true},
		unix.OVERLAYFS_SUPER_MAGIC: {IgnoreFiles: []string{".gitignore"}},
	} {
		require.LessOrEqual(t, most(typ, opts), pendingMin/callFiles)
	}
	testtree.NotInColdMode(t, "it is for disks")
	require.Greater(t, most(unix.FUSE_SUPER_MAGIC, Options{}), pendingMin/callFiles)
}

// A directory below one whose file system is known is on the same, unless it is a mount point.
func TestFileSystemOfDirectoriesBelow(t *testing.T) {
	asked := 0
	was := knobs.NoOpenat2.Load()
	t.Cleanup(func() { fstatfs = unix.Fstatfs; knobs.NoOpenat2.Store(was) })
	fstatfs = func(fd int, st *unix.Statfs_t) error { asked++; return unix.Fstatfs(fd, st) }
	below := func(root string, down ...string) (before, after int64) {
		d, err := openRoot(root)
		require.NoError(t, err)
		defer func() { d.close() }()
		before = d.(*linuxDir).fileSystem()
		asked = 0
		for _, name := range down {
			sub, err := d.openDir(names.New(name))
			require.NoError(t, err)
			d.close()
			d = sub
		}
		return before, d.(*linuxDir).fileSystem()
	}
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "a", "b"), 0o700))
	require.NoError(t, os.Symlink("a", filepath.Join(dir, "link")))
	for range 2 {
		before, after := below(dir, "a", "b")
		require.Equal(t, before, after)
		if runtime.GOOS == "android" || knobs.NoOpenat2.Load() {
			require.Equal(t, 1, asked)
		} else {
			require.Zero(t, asked)
		}
		d, err := openRoot(dir)
		require.NoError(t, err)
		d.(*linuxDir).fileSystem()
		_, err = d.openDir(names.New("link"))
		d.close()
		require.ErrorIs(t, err, ErrChanged)
		_, after = below("/", "proc")
		require.EqualValues(t, unix.PROC_SUPER_MAGIC, after)
		require.Equal(t, 1, asked)
		knobs.NoOpenat2.Store(true)
	}
	// One refusal does not count for the directories below.
	knobs.NoOpenat2.Store(was)
	fstatfs = func(int, *unix.Statfs_t) error { return unix.ENOMEM }
	d, err := openRoot(dir)
	require.NoError(t, err)
	defer d.close()
	require.EqualValues(t, unknownFileSystem, d.(*linuxDir).fileSystem())
	fstatfs = unix.Fstatfs
	sub, err := d.openDir(names.New("a"))
	require.NoError(t, err)
	defer sub.close()
	require.Positive(t, sub.(*linuxDir).fileSystem())
}

// A read from the page cache counts as the whole file only if nothing else can make a read that short: a length
// in whole sectors may also be the end of the cached part, or of a block device.
func TestCachedIsSureOfTheEnd(t *testing.T) {
	dir := t.TempDir()
	d, err := openRoot(dir)
	require.NoError(t, err)
	defer d.close()
	p := make([]byte, content.FirstBuffer)
	for _, size := range []int{0, 1, 400, 511, 512, 513, 1024, 4095, 4096, 4097, 4*4096 + 5, content.FirstBuffer - 1, content.FirstBuffer, content.FirstBuffer + 1} {
		content := bytes.Repeat([]byte("x"), size)
		name := filepath.Join(dir, "f")
		require.NoError(t, os.WriteFile(name, content, 0o644))
		for _, dropped := range []bool{false, true} {
			if dropped { // all but the first page, if the kernel is willing
				f, err := os.Open(name)
				require.NoError(t, err)
				require.NoError(t, f.Sync())
				require.NoError(t, unix.Fadvise(int(f.Fd()), 4096, 0, unix.FADV_DONTNEED))
				f.Close()
			}
			c, err := d.open(names.New("f"), nil)
			require.NoError(t, err)
			n, ok := c.Cached(p)
			c.Close()
			require.Equal(t, content[:n], p[:n])
			if ok {
				require.Equal(t, size, n, "dropped=%v", dropped)
				require.NotZero(t, n%512, "size %d", size)
			}
		}
	}
}
