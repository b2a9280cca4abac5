//go:build linux && !fileproc_unix && !fileproc_generic

package backend

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fileproc/fileproc/internal/content"
	"github.com/fileproc/fileproc/internal/dirent"
	"github.com/fileproc/fileproc/internal/knobs"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A listing that waits, perhaps for a server, is asked for as much as fits the buffer.
func TestListingThatWaitsTakesLongerCalls(t *testing.T) {
	const size = 200 // of a record, about
	dir := t.TempDir()
	for i := range 4 * listingSize / size {
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%0*d", size-20, i)), nil, 0o644))
	}
	parts := func(slow time.Duration) (parts []int) {
		testtree.Set(t, &knobs.SlowCall, slow)
		d, err := OpenRoot(dir)
		require.NoError(t, err)
		defer d.Close()
		var l Listing
		for more := true; more; l.Reset() {
			more, err = d.List(&l)
			require.NoError(t, err)
			parts = append(parts, len(l.Entries))
		}
		return parts
	}
	full := listingSize / size
	require.Less(t, parts(time.Hour)[1], full*2/3)
	require.Greater(t, parts(-time.Hour)[1], full*2/3)
}

// A directory below one whose file system is known is on the same, unless it is a mount point.
func TestFileSystemOfDirectoriesBelow(t *testing.T) {
	asked := 0
	was := knobs.NoOpenat2.Load()
	t.Cleanup(func() { sys.Fstatfs = unix.Fstatfs; knobs.NoOpenat2.Store(was) })
	sys.Fstatfs = func(fd int, st *unix.Statfs_t) error { asked++; return unix.Fstatfs(fd, st) }
	below := func(root string, down ...string) (before, after int64) {
		d, err := OpenRoot(root)
		require.NoError(t, err)
		defer func() { d.Close() }()
		before = d.(*linuxDir).fileSystem()
		asked = 0
		for _, name := range down {
			sub, err := d.OpenDir(names.New(name))
			require.NoError(t, err)
			d.Close()
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
		d, err := OpenRoot(dir)
		require.NoError(t, err)
		d.(*linuxDir).fileSystem()
		_, err = d.OpenDir(names.New("link"))
		d.Close()
		require.ErrorIs(t, err, sys.ErrChanged)
		_, after = below("/", "proc")
		require.EqualValues(t, unix.PROC_SUPER_MAGIC, after)
		require.Equal(t, 1, asked)
		knobs.NoOpenat2.Store(true)
	}
	// One refusal does not count for the directories below.
	knobs.NoOpenat2.Store(was)
	sys.Fstatfs = func(int, *unix.Statfs_t) error { return unix.ENOMEM }
	d, err := OpenRoot(dir)
	require.NoError(t, err)
	defer d.Close()
	require.EqualValues(t, unknownFileSystem, d.(*linuxDir).fileSystem())
	sys.Fstatfs = unix.Fstatfs
	sub, err := d.OpenDir(names.New("a"))
	require.NoError(t, err)
	defer sub.Close()
	require.Positive(t, sub.(*linuxDir).fileSystem())
}

// A size is where the content ends only on a file system that is known for that, and if the file is on it: another one may be
// mounted over the name.
func TestTrueSize(t *testing.T) {
	t.Cleanup(func() { sys.Fstatfs = unix.Fstatfs })
	dir := t.TempDir()
	for typ, want := range map[int64]bool{
		unix.EXT4_SUPER_MAGIC: true, unix.XFS_SUPER_MAGIC: true, unix.BTRFS_SUPER_MAGIC: true, unix.TMPFS_MAGIC: true,
		unix.FUSE_SUPER_MAGIC: false, unix.NFS_SUPER_MAGIC: false, unix.PROC_SUPER_MAGIC: false, unix.OVERLAYFS_SUPER_MAGIC: false,
		unknownFileSystem: false,
	} {
		sys.Fstatfs = func(_ int, st *unix.Statfs_t) error {
			setType(&st.Type, typ)
			if typ == unknownFileSystem {
				return unix.EIO
			}
			return nil
		}
		d, err := OpenRoot(dir)
		require.NoError(t, err)
		s, err := sys.Fstat(d.(*linuxDir).fd)
		require.NoError(t, err)
		for range 2 {
			require.Equal(t, want, d.(*linuxDir).HasTrueSize(s), "%#x", typ)
			require.False(t, d.(*linuxDir).HasTrueSize(sys.Stat{Device: s.Device + 1}), "%#x", typ)
		}
		d.Close()
		d = &linuxDir{fdDir: fdDir{fd: -1}}
		require.False(t, d.(*linuxDir).HasTrueSize(sys.Stat{}), "%#x", typ)
	}
}

// A read from the page cache counts as the whole file only if nothing else can make a read that short: a length
// in whole sectors may also be the end of the cached part, or of a block device.
func TestCachedIsSureOfTheEnd(t *testing.T) {
	dir := t.TempDir()
	d, err := OpenRoot(dir)
	require.NoError(t, err)
	defer d.Close()
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
			c, err := d.Open(names.New("f"), nil)
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
	d, err := OpenRoot(dir)
	require.NoError(t, err)
	defer d.Close()
	p := part{dir: d.(*linuxDir), name: &dir}
	p.list(halveFrom)
	require.False(t, p.over)
	first := part{blocks: p.blocks, block: p.block}.len()
	latter := p.halve()
	if latter == nil {
		var st unix.Statfs_t
		require.NoError(t, unix.Statfs(dir, &st))
		hashed := st.Type == unix.EXT4_SUPER_MAGIC && p.dir.at > math.MaxUint32
		require.False(t, hashed || st.Type == unix.XFS_SUPER_MAGIC)
		t.Logf("left out: one descriptor on file systems of type %#x", st.Type)
		return
	}
	defer latter.dir.Close()
	p.list(1 << 20)
	latter.list(1 << 20)
	require.Equal(t, len(names), p.len()+latter.len())
	rest := float64(len(names) - first)
	require.InDelta(t, 0.5, float64(latter.len())/rest, 0.1)
}

func (p part) len() int { return len(listedEntries(append(p.blocks, p.block))) }

// The positions of entries say which part each belongs to, those of several entries at one position too, and of the first entry behind
// some that were removed.
func TestPartsEndAtPositions(t *testing.T) {
	t.Cleanup(func() { sys.Getdents = unix.Getdents })
	positions := []int64{5, 10, 20, 20, 20, 30, 40} // of the entries; each record has that of the next
	const last = 100
	sys.Getdents = func(fd int, buf []byte) (n int, err error) {
		from, err := unix.Seek(fd, 0, unix.SEEK_CUR)
		for i, at := range positions {
			if at < from || n+24 > len(buf) {
				continue
			}
			record := buf[n : n+24]
			clear(record)
			next := append(positions, last)[i+1]
			binary.NativeEndian.PutUint64(record[8:], uint64(next))
			binary.NativeEndian.PutUint16(record[16:], 24)
			record[18], record[19] = dirent.Regular, byte('a'+i)
			n += 24
		}
		unix.Seek(fd, last, unix.SEEK_SET)
		return n, err
	}
	f, err := os.CreateTemp(t.TempDir(), "") // has a position
	require.NoError(t, err)
	defer f.Close()
	for _, c := range []struct {
		at, end int64
		want    string
	}{
		{0, 10, "a"}, {0, 11, "ab"}, {0, 20, "ab"}, {0, 21, "abcde"}, {0, 30, "abcde"}, {0, 41, "abcdefg"}, {0, math.MaxInt64, "abcdefg"},
		{6, 10, ""}, {10, 20, "b"}, {11, 20, ""}, {11, 21, "cde"}, {20, 30, "cde"}, {21, 25, ""}, {31, 40, ""}, {31, 41, "g"}, {41, 50, ""},
	} {
		d, got := &linuxDir{fdDir: fdDir{fd: int(f.Fd())}, at: c.at, end: c.end}, ""
		_, err := f.Seek(c.at, 0)
		require.NoError(t, err)
		for n := 1; n > 0; {
			n, err = d.getdents(make([]byte, 1024), func(r dirent.Record) error {
				got += string(r.Name)
				return nil
			})
			require.NoError(t, err)
		}
		require.Equal(t, c.want, got, "from %d to %d", c.at, c.end)
	}
}

// Wherever a directory is divided, each entry is in one part.
func TestInvariant1PartsHaveEachEntryOnce(t *testing.T) {
	dir, names := plantNames(t)
	random := rand.New(rand.NewSource(1))
	most := 0
	for range 100 {
		root, err := OpenRoot(dir)
		require.NoError(t, err)
		parts, seen := []*linuxDir{root.(*linuxDir)}, map[string]int{}
		var l Listing
		list := func(i int) (more bool) {
			more, err := parts[i].List(&l)
			require.NoError(t, err)
			for _, e := range l.Entries {
				seen[string(e.Name)]++
			}
			l.Reset()
			return more
		}
		list(0)
		over := map[int]bool{}
		for range random.Intn(60) {
			i := random.Intn(len(parts))
			over[i] = over[i] || random.Intn(4) == 0 && !list(i)
			if latter, ok := parts[i].Halve(0); ok && !over[i] {
				parts = append(parts, latter.(*linuxDir))
			} else if ok {
				latter.Close()
			}
		}
		for i, p := range parts {
			for !over[i] && list(i) {
			}
			p.Close()
		}
		require.Len(t, seen, len(names))
		for name, n := range seen {
			require.Equal(t, 1, n, name)
		}
		most = max(most, len(parts))
	}
	t.Logf("up to %d parts", most)
}

// The kernel lists no such names since 5.4; before, a damaged image could.
func TestInvariant3ReadDirNamesThatAreNone(t *testing.T) {
	d, err := OpenRoot(t.TempDir())
	require.NoError(t, err)
	defer d.Close()
	p := part{dir: d.(*linuxDir)}
	require.NoError(t, p.add(Entry{Name: []byte("a")}))
	for _, name := range []string{"a/b", "../a", "/"} {
		require.ErrorIs(t, p.add(Entry{Name: []byte(name)}), fs.ErrInvalid)
	}
	require.Len(t, p.block, 1)
}

// countingClient lists as a client of SMB does: its position is a number of entries. Before each call but the first of a
// listing an entry comes or goes before that position, with which the directory's time changes. So each call leaves out an
// entry that nobody touches, or gives one twice, for the first changes of them.
type countingClient struct {
	t       *testing.T
	dir     string
	changes int
	at      map[int]int // by descriptor
	entries []fs.DirEntry
	begun   int  // listings
	answer  int  // entries of one call, if not 0
	fails   int  // which call fails, if not 0
	garbles bool // and in place of EIO, gives what is no record
	stops   int  // which call is interrupted, for so long that it is not repeated at once, if not 0
	again   int  // how often that call is interrupted again
	calls   int
	suffix  string // of each name, which is none of the directory's then
	from    int    // the first entry with the suffix
}

func (c *countingClient) getdents(fd int, buf []byte) (int, error) {
	if c.calls++; c.calls == c.fails {
		if c.garbles {
			clear(buf[:32])
			return 32, nil
		}
		return -1, unix.EIO
	}
	if c.stops > 0 && c.calls >= c.stops && c.calls <= c.stops+1+2*c.again {
		time.Sleep(10 * time.Millisecond)
		return -1, unix.EINTR
	}
	off, err := unix.Seek(fd, 0, unix.SEEK_CUR)
	if err != nil || off == 0 {
		c.at[fd] = 0
		c.begun++
		c.entries = nil
	}
	if c.at[fd] > 0 && c.changes > 0 {
		c.changes--
		first := filepath.Join(c.dir, "!")
		if os.Remove(first) != nil {
			require.NoError(c.t, os.WriteFile(first, nil, 0o600))
		}
		at := time.Unix(int64(1e9+c.changes), 0)
		require.NoError(c.t, os.Chtimes(c.dir, at, at))
		c.entries = nil
	}
	if c.entries == nil {
		c.entries, err = os.ReadDir(c.dir)
		require.NoError(c.t, err)
	}
	n := 0
	for i, e := range c.entries[min(c.at[fd], len(c.entries)):] {
		name := e.Name()
		if c.at[fd] >= c.from {
			name += c.suffix
		}
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
	t.Cleanup(func() { sys.Fstatfs = unix.Fstatfs })
	for typ, want := range map[int64]bool{
		unix.NFS_SUPER_MAGIC: true, unix.SMB_SUPER_MAGIC: true, unix.CIFS_SUPER_MAGIC: true, unix.SMB2_SUPER_MAGIC: true, unknownFileSystem: true,
		unix.EXT4_SUPER_MAGIC: false, unix.BTRFS_SUPER_MAGIC: false, unix.TMPFS_MAGIC: false, unix.FUSE_SUPER_MAGIC: false,
	} {
		asked := 0
		sys.Fstatfs = func(_ int, st *unix.Statfs_t) error {
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
	dir := t.TempDir()
	want := makeFiles(t, dir, 1500, 200) // 330 KB of records
	var client countingClient
	t.Cleanup(func() { sys.Getdents, sys.Fstatfs = unix.Getdents, unix.Fstatfs })
	sys.Getdents = func(fd int, buf []byte) (int, error) { return client.getdents(fd, buf) }
	sys.Fstatfs = func(int, *unix.Statfs_t) error { return unix.EACCES } // which could be any
	ways := map[string]func(dir string) ([]string, error){"List": namesOfList, "ReadDir": namesOfReadDir}
	// list requires that each way gives these names while the directory changes so often, and returns how many listings it began.
	list := func(t *testing.T, dir string, changes int, want []string) (begun map[string]int) {
		first := filepath.Join(dir, "!")
		_, noFirst := os.Lstat(first)
		t.Cleanup(func() { os.Remove(first) })
		begun = map[string]int{}
		for name, way := range ways {
			os.Remove(first)
			if noFirst == nil {
				require.NoError(t, os.WriteFile(first, nil, 0o600))
			}
			client.t, client.dir, client.changes, client.at, client.begun = t, dir, changes, map[int]int{}, 0
			got, err := way(dir)
			require.NoError(t, err)
			require.True(t, slices.Equal(want, got), "%s: %d names", name, len(got))
			begun[name] = client.begun
		}
		return begun
	}
	both := func(n int) map[string]int { return map[string]int{"List": n, "ReadDir": n} }
	wasCoarse := coarseTime
	defer func() { coarseTime = wasCoarse }()
	for _, coarse := range []time.Duration{0, math.MaxInt64} {
		for _, changes := range []int{0, 1, 2, 3, 4} {
			t.Run(fmt.Sprintf("%d,coarse=%v", changes, coarse > 0), func(t *testing.T) {
				coarseTime = coarse
				begun := list(t, dir, changes, want)
				if changes == 0 && coarse == 0 {
					require.Equal(t, both(2), begun) // one that sees that there is more, and one
				} else if changes == 0 {
					require.Equal(t, both(3), begun)
				}
			})
		}
	}
	// Either time of a directory tells of a change, and a file system that tells no times may have changed.
	coarseTime = 0
	for _, told := range []struct {
		name         string
		mtime, ctime int64 // of each second call
		err          error
		begun        int
	}{{"same", 1, 1, nil, 2}, {"mtime", 2, 1, nil, 5}, {"ctime", 1, 2, nil, 5}, {"refused", 1, 1, unix.EPERM, 5}} {
		t.Run("times,"+told.name, func(t *testing.T) {
			n := int64(0)
			t.Cleanup(func() { sys.Statx = unix.Statx })
			sys.Statx = func(_ int, _ string, _, _ int, st *unix.Statx_t) error {
				n ^= 1
				st.Mtime.Sec, st.Ctime.Sec = 1+n*(told.mtime-1), 1+n*(told.ctime-1)
				return told.err
			}
			require.Equal(t, both(told.begun), list(t, dir, 0, want))
		})
	}
	// Entries come and go all the time, so that each listing has the same number of them before each of its calls.
	t.Run("always", func(t *testing.T) {
		for _, coarseTime = range []time.Duration{math.MaxInt64, 0} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "!"), nil, 0o600))
			require.Equal(t, both(1+wholeTries), list(t, dir, math.MaxInt, want))
		}
	})
	// The last entry moves before the position that the first call has reached, so the second call gives nothing.
	for _, few := range []struct {
		n, size, answer int
		suffix          string
	}{{n: 19, size: 200}, {n: 15, size: 250}, {n: 5, size: 250, suffix: strings.Repeat("x", 500)},
		{n: oneAnswer + 1, size: 10, answer: oneAnswer + 1}, {n: oneAnswer, size: 10, answer: 3}, {n: 18, size: 10, answer: 18}} {
		t.Run(fmt.Sprintf("few,%d", few.n), func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "!"), nil, 0o600))
			want := makeFiles(t, dir, few.n, few.size)
			for i := range want {
				want[i] += few.suffix
			}
			client = countingClient{answer: few.answer, suffix: few.suffix}
			list(t, dir, 1, want)
		})
	}
	// What one answer gives need not be listed again.
	t.Run("one answer", func(t *testing.T) {
		dir := t.TempDir()
		want := makeFiles(t, dir, oneAnswer, 1)
		client = countingClient{}
		require.Equal(t, both(1), list(t, dir, 0, want))
	})
	// An interrupt, of any call, does not hide that the directory is to be listed whole.
	for stops := 1; stops <= 4; stops++ {
		t.Run(fmt.Sprintf("interrupt,%d", stops), func(t *testing.T) {
			for _, way := range ways {
				require.NoError(t, os.WriteFile(filepath.Join(dir, "!"), nil, 0o600))
				client = countingClient{t: t, dir: dir, at: map[int]int{}, changes: 1, stops: stops}
				got, err := way(dir)
				require.NoError(t, err)
				require.Greater(t, client.calls, stops+1)
				require.True(t, slices.Equal(want, got), "%d names", len(got))
			}
			client = countingClient{}
		})
	}
	t.Run("name that is none", func(t *testing.T) {
		client = countingClient{t: t, dir: dir, at: map[int]int{}, suffix: "/x", from: 1000}
		got, err := namesOfReadDir(dir)
		require.ErrorIs(t, err, fs.ErrInvalid)
		require.True(t, slices.Equal(want[:1000], got), "%d names", len(got))
	})
	t.Run("kernel", func(t *testing.T) { // which gives dots too
		fake := sys.Getdents
		defer func() { sys.Getdents = fake }()
		sys.Getdents = unix.Getdents
		for name, way := range ways {
			got, err := way(dir)
			require.NoError(t, err)
			require.True(t, slices.Equal(want, got), "%s: %d names", name, len(got))
		}
	})
	// A call that fails is told, with what the calls before it in the listing gave.
	wasSize := wholeSize
	defer func() { wholeSize = wasSize }()
	for _, size := range []int{wasSize, 1000} {
		wholeSize, coarseTime = size, 0
		if size == wasSize {
			coarseTime = math.MaxInt64 // a second listing follows, which may fail too
		}
		for _, garbles := range []bool{false, true} {
			t.Run(fmt.Sprintf("fails,%d,garbles=%v", size, garbles), func(t *testing.T) {
				requireFailuresTold(t, &client, ways, dir, want, garbles)
			})
		}
	}
	client = countingClient{}
	// What does not fit the memory for one directory is listed as elsewhere.
	wholeSize = 1000
	t.Run("large", func(t *testing.T) {
		coarseTime = math.MaxInt64
		require.Equal(t, both(2), list(t, dir, 0, want))
	})
	// If a later listing has too much, its rest is given as well. At the end, the memory is free.
	for _, more := range []int{1000, math.MaxInt / 2} {
		t.Run(fmt.Sprintf("grown,%d", more), func(t *testing.T) {
			root, err := OpenRoot(dir)
			require.NoError(t, err)
			defer root.Close()
			d := root.(*linuxDir)
			d.whole = &wholeListing{listings: 1}
			for _, name := range want[500:] {
				require.NoError(t, d.whole.addRecord(dirent.Record{Name: []byte(name), Type: dirent.Regular}))
			}
			wholeSize = d.whole.size + more
			got, err := namesIn(d)
			require.NoError(t, err)
			require.True(t, slices.Equal(want, got), "%d names", len(got))
			require.Nil(t, d.whole)
		})
	}
}

// requireFailuresTold lets each call of each way to list dir fail in turn.
func requireFailuresTold(t *testing.T, client *countingClient, ways map[string]func(dir string) ([]string, error), dir string, want []string, garbles bool) {
	wantErr := map[bool]error{false: unix.EIO, true: dirent.ErrMalformed}[garbles]
	for name, way := range ways {
		for fails, last := 1, false; !last; fails++ {
			*client = countingClient{t: t, dir: dir, at: map[int]int{}, fails: fails, garbles: garbles}
			got, err := way(dir)
			if last = err == nil; last {
				require.Greater(t, fails, 10)
				require.Less(t, client.calls, fails, "a call that fails is told")
				require.True(t, slices.Equal(want, got))
				continue
			}
			require.ErrorIs(t, err, wantErr, "%s: call %d", name, fails)
			require.True(t, slices.Equal(want[:len(got)], got))
			require.Equal(t, fails != 1 && fails != 3, len(got) > 0, "%s: call %d, of which the third begins again", name, fails)
		}
	}
}

// makeFiles makes n files with numbers for names, of size digits at least.
func makeFiles(t *testing.T, dir string, n, size int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("%0*d", size, i))
		require.NoError(t, os.WriteFile(filepath.Join(dir, names[i]), nil, 0o600))
	}
	return names
}

func namesOfList(dir string) ([]string, error) {
	d, err := OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return namesIn(d)
}

// namesIn lists as a run does: it repeats a call that was interrupted. It leaves out what comes and goes.
func namesIn(d Directory) (got []string, err error) {
	var l Listing
	for more := true; more; l.Reset() {
		if more, err = d.List(&l); sys.IsInterrupted(err) {
			more, err = true, nil
		}
		for _, e := range l.Entries {
			if e.Name[0] != '!' {
				got = append(got, string(e.Name))
			}
		}
	}
	slices.Sort(got)
	return got, err
}

// namesOfReadDir leaves out what comes and goes.
func namesOfReadDir(dir string) (got []string, err error) {
	entries, err := ReadDir(dir)
	for _, e := range entries {
		if e.Name()[0] != '!' {
			got = append(got, e.Name())
		}
	}
	slices.Sort(got)
	return got, err
}

// A failure of a listing names the call that has failed.
func TestFailureOfAListing(t *testing.T) {
	t.Cleanup(func() { sys.Getdents = unix.Getdents })
	sys.Getdents = func(int, []byte) (int, error) { return -1, unix.EIO }
	dir := t.TempDir()
	d, err := OpenRoot(dir)
	require.NoError(t, err)
	defer d.Close()
	_, err = d.List(new(Listing))
	require.Equal(t, &sys.Error{Op: "getdents64", Err: unix.EIO}, err)
	_, err = ReadDir(dir)
	require.Equal(t, &fs.PathError{Op: "getdents64", Path: dir, Err: unix.EIO}, err)
}

// A listing that is interrupted goes on where it was, and what it has given by then is not lost.
func TestListingThatIsInterrupted(t *testing.T) {
	dir, want := t.TempDir(), []string{}
	for i := range 20 {
		want = append(want, fmt.Sprintf("%02d", i))
		require.NoError(t, os.WriteFile(filepath.Join(dir, want[i]), nil, 0o600))
	}
	t.Cleanup(func() { sys.Getdents = unix.Getdents })
	for i := range 22 { // each of the eleven calls, once and twice
		stops, again := 1+i/2, i%2
		synctest.Test(t, func(t *testing.T) {
			client := countingClient{t: t, dir: dir, at: map[int]int{}, answer: 2, stops: stops, again: again}
			sys.Getdents = client.getdents
			d, err := OpenRoot(dir)
			require.NoError(t, err)
			defer d.Close()
			d.(*linuxDir).typ.Store(unix.EXT4_SUPER_MAGIC)
			var (
				l     Listing
				got   []string
				parts int
				fails int
			)
			for more := true; more; l.Reset() {
				more, err = d.List(&l)
				if sys.IsInterrupted(err) {
					require.Empty(t, l.Entries)
					fails++
					more, err = true, nil
				}
				require.NoError(t, err)
				for _, e := range l.Entries {
					got = append(got, string(e.Name))
				}
				parts++
			}
			require.Equal(t, want, got)
			require.Equal(t, map[bool]int{false: again, true: 1 + again}[stops < 3], fails, "with entries to be given, it is no failure")
			require.Equal(t, 2+again, parts)
		})
	}
}

// ReadDir takes a second descriptor only where much is left, and goes on with one where it gets none.
func TestReadDirInHalvesOnlyIfLong(t *testing.T) {
	procs := runtime.GOMAXPROCS(2)
	t.Cleanup(func() { runtime.GOMAXPROCS(procs) })
	dir := t.TempDir()
	for i := range 30 { // for the directory's size, from which the middle follows
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600))
	}
	var mu sync.Mutex
	calls := map[int]int{}
	answers := 0
	t.Cleanup(func() { sys.Getdents, sys.Fstatfs = unix.Getdents, unix.Fstatfs })
	sys.Fstatfs = func(_ int, st *unix.Statfs_t) error {
		setType(&st.Type, unix.XFS_SUPER_MAGIC)
		return nil
	}
	sys.Getdents = func(fd int, buf []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		if calls[fd]++; calls[fd] > answers {
			return 0, nil
		}
		clear(buf[:24])
		buf[8], buf[16], buf[18], buf[19] = byte(calls[fd]), 24, dirent.Regular, 'f'
		return 24, nil
	}
	for answers = range halveFrom + 2 {
		clear(calls)
		_, err := ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, calls, map[bool]int{false: 1, true: 2}[answers >= halveFrom], "%d calls", answers)
	}
	runtime.GOMAXPROCS(1)
	clear(calls)
	_, err := ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, calls, 1, "there is no second processor")
	runtime.GOMAXPROCS(2)
	for _, typ := range []int64{unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC} {
		p := part{dir: &linuxDir{fdDir: fdDir{fd: -1}, at: 1 << 40}}
		p.dir.typ.Store(typ)
		require.Nil(t, p.halve(), "there is no such descriptor")
		require.Zero(t, p.dir.end)
	}
}

// Files are read together where that helps: on what is a disk, through rings only where these are of use.
func TestDiskOf(t *testing.T) {
	for typ, kind := range map[int64]content.Kind{
		unix.EXT4_SUPER_MAGIC: content.OnDiskForRings, unix.XFS_SUPER_MAGIC: content.OnDiskForRings, unix.BTRFS_SUPER_MAGIC: content.OnDiskForRings,
		unix.OVERLAYFS_SUPER_MAGIC: content.OnDisk, unix.F2FS_SUPER_MAGIC: content.OnDisk,
		unix.TMPFS_MAGIC: content.NotOnDisk, unix.FUSE_SUPER_MAGIC: content.NotOnDisk, unix.NFS_SUPER_MAGIC: content.NotOnDisk, unknownFileSystem: content.NotOnDisk,
	} {
		d := &linuxDir{fdDir: fdDir{fd: 7}}
		d.typ.Store(typ)
		want := content.Dir{Kind: kind}
		if kind != content.NotOnDisk {
			want.FD = 7
		}
		if kind == content.OnDiskForRings { // there, sizes are true
			want.Sizes = d
		}
		require.Equal(t, want, DiskOf(d), "%#x", typ)
	}
	require.Equal(t, content.Dir{}, DiskOf(nil))
}

// A directory is halved where its positions allow that, if enough is left, and if the system opens it again and takes the position.
func TestWhereADirectoryIsHalved(t *testing.T) {
	if math.MaxInt == math.MaxInt32 {
		t.Skip("in 32 bits, the positions of ext4 are hashes of 32 bits")
	}
	open := func(path string, typ, at, end int64) *linuxDir {
		d, err := OpenRoot(path)
		require.NoError(t, err)
		t.Cleanup(d.Close)
		d.(*linuxDir).typ.Store(typ)
		d.(*linuxDir).at, d.(*linuxDir).end = at, end
		return d.(*linuxDir)
	}
	halves := func(d *linuxDir, least int64) bool {
		lowest, err := unix.Dup(d.fd)
		require.NoError(t, err)
		unix.Close(lowest)
		latter, ok := d.Halve(least)
		if ok {
			require.Equal(t, d.fileSystem(), latter.(*linuxDir).typ.Load())
			require.Equal(t, d.end, latter.(*linuxDir).at)
			latter.Close()
		}
		again, err := unix.Dup(d.fd)
		require.NoError(t, err)
		unix.Close(again)
		require.Equal(t, lowest, again, "no descriptor is left open")
		return ok
	}
	dir := t.TempDir()
	const ext4, far = unix.EXT4_SUPER_MAGIC, 1 << 40
	require.True(t, halves(open(dir, ext4, far, 0), 0))
	require.True(t, halves(open(dir, ext4, math.MaxUint32+1, 0), 0))
	require.False(t, halves(open(dir, ext4, math.MaxUint32, 0), 0), "small positions are no hashes of 63 bits")
	require.False(t, halves(open(dir, unix.TMPFS_MAGIC, far, 0), 0))
	require.True(t, halves(open(dir, ext4, far, far+2), 0))
	require.False(t, halves(open(dir, ext4, far, far+1), 0), "there is no position between")
	require.False(t, halves(open("/proc", ext4, far, 0), 0), "which has no such position")
	d := open(dir, unix.XFS_SUPER_MAGIC, 0, 0)
	s, err := sys.Fstat(d.fd)
	require.NoError(t, err)
	if s.Size >= 16 {
		size := s.Size / 8 * 8
		require.False(t, halves(d, s.Size+1))
		require.Equal(t, size == s.Size, halves(d, s.Size))
		require.True(t, halves(open(dir, unix.XFS_SUPER_MAGIC, 0, 0), 0))
		d := open(dir, unix.XFS_SUPER_MAGIC, 0, 0)
		require.True(t, halves(d, 0))
		require.Equal(t, s.Size/8/2, d.end, "its last position follows from its size")
	}
}

// A part asks for little at a time, and after each call that waits lets its worker do something else. What fails is said.
func TestPartsThatWaitOrFail(t *testing.T) {
	t.Cleanup(func() { sys.Getdents = unix.Getdents })
	f, err := os.CreateTemp(t.TempDir(), "") // has a position
	require.NoError(t, err)
	defer f.Close()
	for slow, calls := range map[time.Duration]int{-time.Hour: 1, time.Hour: (listingSize/2 + 24) / 24} {
		testtree.Set(t, &knobs.SlowCall, slow)
		d, made := &linuxDir{fdDir: fdDir{fd: int(f.Fd())}, begun: true, waits: true, end: 100}, 0
		sys.Getdents = func(_ int, buf []byte) (int, error) {
			require.Len(t, buf, shortCall)
			made++
			clear(buf[:24])
			buf[8], buf[16], buf[18], buf[19] = 1, 24, dirent.Regular, 'f'
			return 24, nil
		}
		more, err := d.List(new(Listing))
		require.NoError(t, err)
		require.True(t, more)
		require.Equal(t, calls, made)
		_, err = d.getdents(make([]byte, shortCall), func(dirent.Record) error { return io.EOF })
		require.Equal(t, io.EOF, err)
	}
	d := &linuxDir{fdDir: fdDir{fd: -1}, at: 7, end: 1}
	var failure *sys.Error
	_, err = d.getdents(make([]byte, shortCall), func(dirent.Record) error { panic("it is of another part, or not") })
	require.ErrorAs(t, err, &failure)
	require.Equal(t, &sys.Error{Op: "lseek", Err: unix.EBADF}, failure)
	require.Equal(t, failure, d.beginAgain(nil))
	w := new(wholeListing)
	require.NoError(t, w.listMore(d, nil))
	require.Equal(t, failure, w.err)
	d.fd = int(f.Fd())
	sys.Getdents = func(int, []byte) (int, error) { return -1, unix.EIO }
	behind, err := d.isBehindEnd(dirent.Record{Off: 20})
	require.ErrorIs(t, err, unix.EIO)
	require.False(t, behind)
	at, err := f.Seek(0, io.SeekCurrent)
	require.NoError(t, err)
	require.EqualValues(t, 7, at, "the call may be made again")
	for name, want := range map[string]bool{"x": true, "y": false} { // the third entry, and the second at position 20, is x
		positions, made := []byte{19, 20, 20, 21}[:map[bool]int{true: 3, false: 4}[want]], 0
		sys.Getdents = func(_ int, buf []byte) (int, error) {
			clear(buf[:24])
			buf[8], buf[16], buf[18], buf[19] = positions[0], 24, dirent.Regular, "abxc"[made]
			made++
			positions = positions[1:] // behind that, none is asked for
			return 24, nil
		}
		behind, err = d.isBehindEnd(dirent.Record{Off: 20, Name: []byte(name)})
		require.NoError(t, err)
		require.Equal(t, want, behind)
	}
}

// ReadDir looks up a type that the listing does not have. An entry that is gone by then is left out.
func TestReadDirOfUnknownTypes(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "d"), 0o700))
	d, err := OpenRoot(dir)
	require.NoError(t, err)
	p := part{dir: d.(*linuxDir), name: &dir}
	for _, name := range []string{"none", "d"} {
		require.NoError(t, p.addRecord(dirent.Record{Name: []byte(name), Type: dirent.Unknown}))
	}
	require.Len(t, p.block, 1)
	require.True(t, p.block[0].IsDir())
	require.ErrorIs(t, p.addRecord(dirent.Record{Name: []byte("a/b")}), fs.ErrInvalid)
	d.Close()
	p.dir.fd = -1
	require.ErrorIs(t, p.add(Entry{Name: []byte("d"), Type: sys.TypeUnknown}), unix.EBADF)
}

// That a file system has no reads from the page cache alone is known for a directory after one file.
func TestReadsThatCannotBeCached(t *testing.T) {
	fd, err := unix.Open("/proc/self/status", unix.O_RDONLY, 0)
	require.NoError(t, err)
	f := &fdFile{fd: fd, dir: new(fdDir)}
	defer f.Close()
	if _, err := sys.ReadCached(fd, make([]byte, 10), 0); err != unix.EOPNOTSUPP {
		t.Skipf("a cached read of /proc gives %v", err)
	}
	n, whole := f.Cached(make([]byte, 10))
	require.Zero(t, n)
	require.False(t, whole)
	require.True(t, f.dir.noCachedRead.Load())
	f = &fdFile{fd: -1, dir: new(fdDir)}
	_, whole = f.Cached(make([]byte, 10))
	require.False(t, whole)
	require.False(t, f.dir.noCachedRead.Load(), "the error says nothing of the file system")
}

// A large file that is not in the page cache is read ahead, as far as a fast disk needs, and comes with exactly its bytes.
func TestLargeFileFromDisk(t *testing.T) {
	for _, cached := range []int{0, 5000, 300_000} {
		f, err := os.Create(filepath.Join(t.TempDir(), "f"))
		require.NoError(t, err)
		text := make([]byte, 9*content.MaxRead+77)
		for i := range text {
			text[i] = byte(i % 251)
		}
		_, err = f.Write(text)
		require.NoError(t, err)
		require.NoError(t, f.Sync())
		require.NoError(t, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
		_, err = f.ReadAt(make([]byte, cached), 0)
		require.NoError(t, err)
		f.Close()

		root, err := OpenRoot(filepath.Dir(f.Name()))
		require.NoError(t, err)
		h, err := root.Open(names.New("f"), nil)
		require.NoError(t, err)
		var c content.Content
		r := content.Reader{Want: content.Want{Limit: -1}, Stopped: func() bool { return false }}
		r.TakeBuffer()
		require.NoError(t, r.Read(h, &c))
		require.True(t, bytes.Equal(text, c.Data))
		if f := h.(*fdFile); f.begun == 0 {
			t.Log("it was in the page cache")
		} else {
			require.GreaterOrEqual(t, f.reach, int64(leastAhead))
		}
		r.GiveBuffer()
		root.Close()
	}
}

// The slower the disk, the less is read ahead.
func TestNextReach(t *testing.T) {
	for _, c := range []struct{ reach, ms, want int64 }{
		{leastAhead, 1, 2 * leastAhead}, {2 * leastAhead, 7, 2 * leastAhead}, {4 * leastAhead, 20, 2 * leastAhead},
		{leastAhead, 20, leastAhead}, {mostAhead, 1, mostAhead},
	} {
		require.Equal(t, c.want, nextReach(c.reach, time.Duration(c.ms)*time.Millisecond), c)
	}
}
