//go:build linux && !fileproc_unix && !fileproc_generic

package content

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// windowSizes are the sizes at which something ends: sectors, pages, what a window reads and what the options limit.
var windowSizes = []int{
	0, 1, 2, 400, 511, 512, 513, 1023, 1024, 1025, 4095, 4096, 4097, BinaryPrefix - 1, BinaryPrefix, BinaryPrefix + 1,
	windowRequest - 1, windowRequest, windowRequest + 1, windowStart, windowFile, windowFile + 1,
}

// A shelf is a directory of files for windows.
type shelf struct {
	path  string
	dir   Dir
	names []names.Name
	want  [][]byte

	submission countingLock
}

// A countingLock is locked by one goroutine.
type countingLock struct {
	locked bool
	times  int
}

func (l *countingLock) Lock() {
	if l.locked {
		panic("locked twice")
	}
	l.locked = true
	l.times++
}

func (l *countingLock) Unlock() { l.locked = false }

// newShelf writes one file of each size. Where binary is set every third has a NUL byte somewhere.
func newShelf(t *testing.T, binary bool, sizes ...int) *shelf {
	t.Helper()
	s := &shelf{path: t.TempDir()}
	r := rand.New(rand.NewPCG(1, 2))
	for i, size := range sizes {
		p := make([]byte, size)
		for j := range p {
			p[j] = byte(1 + r.IntN(255))
		}
		if binary && i%3 == 0 && size > 0 {
			p[r.IntN(size)] = 0
		}
		name := fmt.Sprintf("%03d-%d", i, size)
		require.NoError(t, os.WriteFile(filepath.Join(s.path, name), p, 0o644))
		s.names, s.want = append(s.names, names.New(name)), append(s.want, p)
	}
	fd, err := unix.Open(s.path, sys.DirFlags, 0)
	require.NoError(t, err)
	s.dir.FD = fd
	t.Cleanup(func() { unix.Close(fd) })
	return s
}

func (s *shelf) file(i int) string { return filepath.Join(s.path, s.names[i].String()) }

// drop takes files out of the page cache.
func (s *shelf) drop(t *testing.T, which ...int) {
	t.Helper()
	for _, i := range which {
		f, err := os.Open(s.file(i))
		require.NoError(t, err)
		require.NoError(t, f.Sync())
		require.NoError(t, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
		f.Close()
	}
}

// readsWithoutWaiting reports whether a read that does not wait gives a file. If not, the kernel begins to fetch it.
func (s *shelf) readsWithoutWaiting(t *testing.T, i int) bool {
	t.Helper()
	f, err := os.Open(s.file(i))
	require.NoError(t, err)
	defer f.Close()
	n, err := sys.ReadCached(int(f.Fd()), make([]byte, 1), 0)
	return n > 0 || err != unix.EAGAIN
}

func (s *shelf) all() (all []int) {
	for i := range s.names {
		all = append(all, i)
	}
	return all
}

// A windowKind is one way in which a fileWindow reads.
type windowKind struct {
	name  string
	disk  Kind
	plain bool // without a ring
}

var windowKinds = []windowKind{
	{"ring", OnDiskForRings, false}, {"no ring", OnDiskForRings, true}, {"overlay", OnDisk, false},
}

// newWindow returns a fileWindow that takes the directory's file system for one of this kind.
func (k windowKind) newWindow(t *testing.T, s *shelf, c Want) *fileWindow {
	t.Helper()
	w := newWindowReader(c, k.plain, &s.submission).(*fileWindow)
	t.Cleanup(w.Close)
	s.dir.Kind = k.disk
	return w
}

// isDisk reports whether reads of path may be made through a ring, as backend.DiskOf says.
func isDisk(t *testing.T, path string) bool {
	var st unix.Statfs_t
	require.NoError(t, unix.Statfs(path, &st))
	switch int64(uint32(st.Type)) {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC:
		return true
	}
	return false
}

func always() bool { return true }
func never() bool  { return false }

// openAll begins a window of all files, and opens them.
func (s *shelf) openAll(t *testing.T, w *fileWindow) {
	t.Helper()
	w.Begin(len(s.names), WindowMax)
	for i, name := range s.names {
		require.NoError(t, w.Open(i, s.dir, name))
	}
}

// everyWindow runs test for each way to read, with and without a probe, of files in the page cache and not in it.
func everyWindow(t *testing.T, test func(t *testing.T, kind windowKind, probes, cached bool)) {
	for _, kind := range windowKinds {
		for _, probes := range []bool{false, true} {
			for _, cached := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/probes=%t/cached=%t", kind.name, probes, cached), func(t *testing.T) {
					test(t, kind, probes, cached)
				})
			}
		}
	}
}

func descriptorsOpen(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(entries)
}

// knows says whether a window that has room for it knows what is to be delivered of a file of this size.
func (c *Want) knows(size int) bool {
	n := size + 1
	if c.Limit >= 0 && int64(n) > c.Limit {
		if !c.Truncate && int64(size) > c.Limit {
			return false
		}
		n = min(n, int(c.Limit)+1)
	}
	return size > 0 && n <= windowFile+1 && !(c.SkipBinary && n <= size && n <= BinaryPrefix)
}

// TestWindowContents: what a window knows is exact, and it knows all that it may.
func TestWindowContents(t *testing.T) {
	s := newShelf(t, false, windowSizes...)
	configs := []Want{{Limit: -1}, {Limit: math.MaxInt64}, {Limit: -1, Stat: true}, {Limit: -1, SkipBinary: true}}
	for _, limit := range []int64{1, 2, 511, 512, 4095, 4096, 4097, BinaryPrefix - 1, BinaryPrefix, windowRequest - 1, windowRequest, windowStart, windowFile / 2} {
		configs = append(configs, Want{Limit: limit}, Want{Limit: limit, Truncate: true},
			Want{Limit: limit, Truncate: true, SkipBinary: true, Stat: true})
	}
	everyWindow(t, func(t *testing.T, kind windowKind, probes, cached bool) {
		for _, c := range configs {
			w := kind.newWindow(t, s, c)
			if !cached {
				s.drop(t, s.all()...)
			}
			open := descriptorsOpen(t)
			s.openAll(t, w)
			reads := slices.ContainsFunc(w.files, func(f windowEntry) bool { return f.fd >= 0 })
			locked := s.submission.times
			w.Read(never, probes)
			require.Equal(t, open, descriptorsOpen(t), "descriptors")
			require.Equal(t, reads, s.submission.times > locked, "the lock of those who make requests")
			require.False(t, s.submission.locked)
			for i, want := range s.want {
				if c.Limit >= 0 {
					want = want[:min(int64(len(want)), c.Limit)]
				}
				var got Content
				knows := w.Get(i, &got)
				require.Equal(t, c.knows(len(s.want[i])), knows, "%+v: %s", c, s.names[i])
				if !knows {
					require.Equal(t, Content{}, got)
					continue
				}
				require.True(t, bytes.Equal(want, got.Data), "%+v: %s", c, s.names[i])
				require.Equal(t, len(got.Data), cap(got.Data))
				require.Equal(t, len(want) < len(s.want[i]), got.Truncated)
				require.Equal(t, c.Stat, got.HasStat)
				if c.Stat {
					st, err := sys.StatAt(s.dir.FD, s.names[i])
					require.NoError(t, err)
					st.BirthTime = time.Time{} // which a handle does not give
					require.Equal(t, st, got.Stat)
				}
			}
			w.Close()
			w.ring = nil
		}
	})
}

// A run that is stopped while a window waits for others to make their requests makes none.
func TestWindowIsStoppedBeforeItsRequests(t *testing.T) {
	s := newShelf(t, false, windowSizes...)
	everyWindow(t, func(t *testing.T, kind windowKind, probes, cached bool) {
		w := kind.newWindow(t, s, Want{Limit: -1})
		s.openAll(t, w)
		before := s.submission.times
		w.Read(func() bool { return s.submission.times > before }, probes)
		require.Greater(t, s.submission.times, before)
		require.False(t, s.submission.locked)
		for i := range s.names {
			require.False(t, w.Get(i, new(Content)))
		}
	})
}

// TestWindowEntryOfAShortRead: only a read that ends where the metadata says, or got all that was asked for, is certain.
func TestWindowEntryOfAShortRead(t *testing.T) {
	for _, f := range []windowEntry{{size: 10, want: 11}, {size: 10, want: 5}, {size: 512, want: 513}, {size: 4096, want: 4097}, {size: 9000, want: 4097}} {
		for n := -1; n <= f.want; n++ {
			g := f
			g.read(n)
			require.Equal(t, n == f.want && f.size >= int64(f.want) || int64(n) == f.size, g.whole, "%+v: %d", f, n)
		}
	}
}

// TestWindowOfTheLargestSize: a window reads no more than its part of a file, up to the largest size that a file system has.
func TestWindowOfTheLargestSize(t *testing.T) {
	memory, err := unix.MemfdCreate("", unix.MFD_CLOEXEC)
	if err != nil {
		t.Skip("no memfd_create: ", err)
	}
	defer unix.Close(memory)
	require.NoError(t, unix.Ftruncate(memory, math.MaxInt64))
	s := newShelf(t, false, 1)
	everyWindow(t, func(t *testing.T, kind windowKind, probes, cached bool) {
		for _, c := range []Want{
			{Limit: -1}, {Limit: math.MaxInt64}, {Limit: math.MaxInt64 - 1}, {Limit: 100}, {Limit: -1, SkipBinary: true},
			{Limit: 100, Truncate: true}, {Limit: windowFile, Truncate: true}, {Limit: windowFile + 1, Truncate: true},
			{Limit: math.MaxInt64, Truncate: true}, {Limit: math.MaxInt64 - 1, Truncate: true, SkipBinary: true},
		} {
			w := kind.newWindow(t, s, c)
			if !probes && !cached {
				w.filled = asyncFrom
			}
			require.Equal(t, c.Limit < 0 || c.Truncate || c.Limit == math.MaxInt64, w.wants(math.MaxInt64))
			if !w.wants(math.MaxInt64) {
				continue
			}
			s.openAll(t, w)
			f := &w.files[0]
			require.NoError(t, unix.Dup3(memory, f.fd, unix.O_CLOEXEC))
			f.size = math.MaxInt64
			w.Read(never, probes)
			require.LessOrEqual(t, f.want, windowFile+1)
			var got Content
			if !c.Truncate || c.Limit > windowFile {
				require.False(t, w.Get(0, &got), "%+v", c)
			} else {
				require.True(t, w.Get(0, &got), "%+v", c)
				require.NotNil(t, got.Beginning)
				got.Beginning = nil
				require.Equal(t, Content{Data: make([]byte, c.Limit), Truncated: true}, got)
			}
			w.Close()
			w.ring, w.async = nil, nil
		}
	})
}

// TestWindowWhoseRingBreaks: once a ring is broken, the kernel may write into its memory at any time, so the window reads into other
// memory. What was read before stays.
func TestWindowWhoseRingBreaks(t *testing.T) {
	for _, probed := range []bool{false, true} {
		s := newShelf(t, false, 400, 5000, 400, 5000)
		w := windowKinds[0].newWindow(t, s, Want{Limit: -1})
		if w.ring == nil {
			t.Skip("no io_uring here")
		}
		s.openAll(t, w)
		if probed { // as in a window that probes, whose second submission fails
			w.plan()
			all := w.reads
			w.reads = w.reads[:2]
			require.True(t, w.ring.read(w.files, w.reads, 0, func() {}))
			w.reads = all
			w.dropWhole(len(all))
			require.Len(t, w.reads, 2)
		}
		memory := w.buffer
		null, err := os.Open(os.DevNull)
		require.NoError(t, err)
		entries, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		for _, e := range entries {
			if to, _ := os.Readlink("/proc/self/fd/" + e.Name()); strings.Contains(to, "[io_uring]") {
				fd, err := strconv.Atoi(e.Name())
				require.NoError(t, err)
				require.NoError(t, unix.Dup3(int(null.Fd()), fd, unix.O_CLOEXEC)) // which takes no requests
			}
		}
		require.NoError(t, null.Close())
		if probed {
			_, ok := w.readRing(never, false)
			require.False(t, ok)
			w.readPlain(never, false)
			for _, f := range w.files {
				unix.Close(f.fd)
			}
		} else {
			w.Read(never, true)
		}
		clear(memory) // as the kernel might
		for i, want := range s.want {
			var c Content
			require.True(t, w.Get(i, &c))
			require.True(t, bytes.Equal(want, c.Data), "file %d", i)
		}
	}
}

// TestWindowMeetsChangedSizes: a file that has become shorter or longer since its metadata was fetched is not known.
func TestWindowMeetsChangedSizes(t *testing.T) {
	everyWindow(t, func(t *testing.T, kind windowKind, probes, cached bool) {
		s := newShelf(t, false, 1000, 1000, 5000, 5000, 512, 1)
		w := kind.newWindow(t, s, Want{Limit: -1})
		if !cached {
			s.drop(t, s.all()...)
		}
		s.openAll(t, w)
		require.NoError(t, os.Truncate(s.file(0), 999))
		require.NoError(t, os.Truncate(s.file(1), 0))
		require.NoError(t, os.Truncate(s.file(2), 512))
		for _, i := range []int{3, 4} {
			f, err := os.OpenFile(s.file(i), os.O_APPEND|os.O_WRONLY, 0)
			require.NoError(t, err)
			_, err = f.Write([]byte("more"))
			require.NoError(t, errors.Join(err, f.Close()))
		}
		w.Read(never, probes)
		for i := range s.names {
			var c Content
			require.Equal(t, i == 5, w.Get(i, &c), "file %d", i)
		}
	})
}

// TestWindowMeetsReplacedFiles: what has taken a file's place is not read, and hinders no other file.
func TestWindowMeetsReplacedFiles(t *testing.T) {
	replacements := []func(path string) error{
		func(string) error { return nil },
		func(path string) error { return unix.Mkfifo(path, 0o644) },
		func(path string) error { return os.Symlink("000-300", path) },
		func(path string) error { return os.Mkdir(path, 0o755) },
		func(path string) error { return unix.Mknod(path, unix.S_IFSOCK|0o644, 0) },
		func(path string) error { return unix.Mknod(path, unix.S_IFCHR|0o644, int(unix.Mkdev(1, 5))) }, // needs root
		func(path string) error { return os.WriteFile(path, nil, 0o644) },
	}
	everyWindow(t, func(t *testing.T, kind windowKind, probes, _ bool) {
		sizes := make([]int, 2*len(replacements)+1)
		for i := range sizes {
			sizes[i] = 300
		}
		s := newShelf(t, false, sizes...)
		for k, replace := range replacements {
			require.NoError(t, os.Remove(s.file(2*k+1)))
			if err := replace(s.file(2*k + 1)); err != nil {
				t.Logf("replacement %d left out: %v", k, err)
			}
		}
		w := kind.newWindow(t, s, Want{Limit: -1})
		open := descriptorsOpen(t)
		w.Begin(len(s.names), WindowMax)
		for i, name := range s.names {
			require.NoError(t, w.Open(i, s.dir, name), "an error would say that no other file of the directory need be tried")
		}
		w.Read(never, probes)
		require.Equal(t, open, descriptorsOpen(t))
		for i, want := range s.want {
			var c Content
			require.Equal(t, i%2 == 0, w.Get(i, &c), "file %d", i)
			if i%2 == 0 {
				require.Equal(t, want, c.Data)
			}
		}
	})
}

// TestWindowReadsWhatItOpened: a file that is replaced between its open and the read is the one that was opened.
func TestWindowReadsWhatItOpened(t *testing.T) {
	everyWindow(t, func(t *testing.T, kind windowKind, probes, _ bool) {
		s := newShelf(t, false, 100, 100)
		w := kind.newWindow(t, s, Want{Limit: -1})
		s.openAll(t, w)
		require.NoError(t, os.Remove(s.file(0)))
		require.NoError(t, os.WriteFile(s.file(0), bytes.Repeat([]byte("o"), 100), 0o644))
		w.Read(never, probes)
		for i, want := range s.want {
			var c Content
			require.True(t, w.Get(i, &c))
			require.Equal(t, want, c.Data)
		}
	})
}

// TestWindowBuffers: what does not fit the buffer is left to the next window, and nothing overlaps.
func TestWindowBuffers(t *testing.T) {
	var sizes []int
	for i := range 80 {
		sizes = append(sizes, 60_000+i, 100)
	}
	s := newShelf(t, false, sizes...)
	everyWindow(t, func(t *testing.T, kind windowKind, probes, cached bool) {
		w := kind.newWindow(t, s, Want{Limit: -1})
		for range 2 { // the second window begins anew
			if !cached {
				s.drop(t, s.all()...)
			}
			s.openAll(t, w)
			w.Read(never, probes)
			bytesKnown := 0
			for i, want := range s.want {
				var c Content
				require.Equal(t, i < w.Len(), w.Get(i, &c), "file %d", i)
				if i < w.Len() {
					require.True(t, bytes.Equal(want, c.Data), "file %d", i)
					bytesKnown += len(want) + 1
				}
			}
			require.LessOrEqual(t, bytesKnown, windowBuffer)
			require.Greater(t, bytesKnown, windowBuffer*9/10)
			require.Equal(t, w.Len(), w.Requests())
		}
	})
}

// TestWindowReadsNoMoreThanItsBytes: not too many large files are fetched. The others are in the next window.
func TestWindowReadsNoMoreThanItsBytes(t *testing.T) {
	sizes := make([]int, 8)
	for i := range sizes {
		sizes[i] = windowFile + 1
	}
	s := newShelf(t, false, sizes...)
	everyWindow(t, func(t *testing.T, kind windowKind, probes, _ bool) {
		w := kind.newWindow(t, s, Want{Limit: -1})
		s.drop(t, s.all()...)
		s.openAll(t, w)
		w.plan()
		total := 0
		for _, i := range w.reads {
			require.Negative(t, w.files[i].at)
			total += w.files[i].want
		}
		require.Equal(t, WindowMax*windowRequest/2/windowLarge, w.Len())
		require.Equal(t, w.Len()*windowStart, total)
		require.Equal(t, WindowMax/2, w.Requests())
		open := descriptorsOpen(t)
		w.Read(never, probes)
		require.Equal(t, open-w.Len(), descriptorsOpen(t))
		for i := range s.names {
			require.False(t, w.Get(i, new(Content)))
		}
	})
}

// TestWindowKeepsToItsRequests: a window has no more bytes than its requests allow, but a file at least.
func TestWindowKeepsToItsRequests(t *testing.T) {
	s := newShelf(t, false, windowFile/2, windowFile/2, 100, 100)
	for _, kind := range windowKinds {
		for requests, want := range map[int]int{1: 1, windowFile / windowRequest / 2: 1, windowFile / windowRequest: 4} {
			w := kind.newWindow(t, s, Want{Limit: -1})
			open := descriptorsOpen(t)
			w.Begin(len(s.names), requests)
			for i, name := range s.names {
				require.NoError(t, w.Open(i, s.dir, name))
			}
			w.Read(never, false)
			require.Equal(t, open, descriptorsOpen(t))
			require.Equal(t, want, w.Len())
			require.Equal(t, min(want, 2)*windowFile/windowRequest/2+max(want-2, 0), w.Requests())
			for i := range s.names {
				require.Equal(t, i < want, w.Get(i, new(Content)))
			}
		}
	}
}

// TestWindowPrefetches: once a window has been read, the page cache has the beginning of its large files.
func TestWindowPrefetches(t *testing.T) {
	s := newShelf(t, false, 300, windowFile+1, 2*windowFile)
	for _, kind := range windowKinds {
		for _, async := range []int{0, asyncFrom} {
			for _, probes := range []bool{false, true} {
				s.drop(t, s.all()...)
				w := kind.newWindow(t, s, Want{Limit: -1})
				w.filled = async
				s.openAll(t, w)
				w.Read(never, probes)
				require.True(t, w.Get(0, new(Content)))
				require.Equal(t, 3, w.Len())
				for i := 1; i < 3; i++ {
					f, err := os.Open(s.file(i))
					require.NoError(t, err)
					var there unix.Cachestat_t
					err = unix.Cachestat(uint(f.Fd()), &unix.CachestatRange{}, &there, 0)
					f.Close()
					if err != nil {
						t.Skip("left out: the kernel does not say what is in the page cache: ", err)
					}
					require.GreaterOrEqual(t, int(there.Cache)*os.Getpagesize(), windowStart, "%s, %d, %t", kind.name, async, probes)
				}
				w.Close()
				w.ring, w.async = nil, nil
			}
		}
	}
}

// TestWindowOrder: reads are in the order of inode numbers, whatever the order of opening.
func TestWindowOrder(t *testing.T) {
	s := newShelf(t, false, 10, 20, 30, 40, 50, 60, 70, 80)
	w := windowKinds[1].newWindow(t, s, Want{Limit: -1})
	w.Begin(len(s.names), WindowMax)
	for _, i := range rand.Perm(len(s.names)) {
		require.NoError(t, w.Open(i, s.dir, s.names[len(s.names)-1-i]))
	}
	w.plan()
	require.Len(t, w.reads, len(s.names))
	for k := range w.reads[1:] {
		require.Less(t, w.files[w.reads[k]].inode, w.files[w.reads[k+1]].inode)
	}
	w.Read(always, false)
}

// TestWindowProbe: the share is that of the files in the page cache, and the bytes are the same.
func TestWindowProbe(t *testing.T) {
	var sizes []int
	for i := range 32 {
		sizes = append(sizes, 300+i)
	}
	for name, sizes := range map[string][]int{"small": sizes, "small and large": append([]int{windowFile + 5, windowFile + 6}, sizes...)} {
		for _, kind := range windowKinds {
			t.Run(name+"/"+kind.name, func(t *testing.T) {
				s := newShelf(t, false, sizes...)
				all := s.all()
				large := len(sizes) - 32
				if !isDisk(t, s.path) {
					t.Skip("left out: no disk for rings")
				}
				stays := true
				for try := 0; try < 5 && stays; try++ { // what was just written may be in use yet
					s.drop(t, large)
					stays = s.readsWithoutWaiting(t, large)
				}
				if stays {
					t.Skip("left out: files stay in the page cache, or, on btrfs, in its metadata")
				}
				for _, out := range [][]int{nil, all[:8], all[:len(all)/2], all} {
					want := float64(len(all)-len(out)) / float64(len(all))
					if kind.name != "ring" { // the calls without a ring do not ask about large files
						want = float64(len(all)-max(large, len(out))) / float64(len(all)-large)
					}
					var w *fileWindow
					share := -1.0
					for try := 0; try < 5 && math.Abs(share-want) > 1e-9; try++ { // others may drop the machine's caches too
						w = kind.newWindow(t, s, Want{Limit: -1})
						for i := range all {
							_, err := os.ReadFile(s.file(i))
							require.NoError(t, err)
						}
						s.drop(t, out...)
						s.openAll(t, w)
						share = w.Read(never, true)
					}
					// A read that does not wait lets the kernel fetch the file, and may find it there at once.
					require.Greater(t, share, want-1e-9, "%d of %d dropped", len(out), len(all))
					if share > want+1e-9 {
						require.NotEmpty(t, out)
						t.Logf("left out: the disk was too fast: %g of the files in the cache, instead of %g", share, want)
					}
					require.LessOrEqual(t, share, 1.0)
					for i, want := range s.want[large:] {
						var c Content
						require.True(t, w.Get(i+large, &c))
						require.Equal(t, want, c.Data)
					}
				}
			})
		}
	}
}

// TestWindowIsStopped: a run that is stopped makes no further read, and leaves nothing open.
func TestWindowIsStopped(t *testing.T) {
	s := newShelf(t, false, 100, 200, 300, 400, 500, 600)
	open := descriptorsOpen(t)
	for _, kind := range windowKinds {
		rings := 0
		for k := range 2 + len(s.names) {
			w := kind.newWindow(t, s, Want{Limit: -1})
			rings = descriptorsOpen(t) - open
			s.openAll(t, w)
			asked := 0
			w.Read(func() bool { asked++; return asked > k }, false)
			known := 0
			for i := range s.names {
				if w.Get(i, new(Content)) {
					known++
				}
			}
			switch {
			case k == 0:
				require.Zero(t, known)
			case w.UsedRing():
				require.Equal(t, len(s.names), known)
			default:
				require.Equal(t, min(k-1, len(s.names)), known)
			}
			require.Equal(t, open+rings, descriptorsOpen(t))
			w.Close()
			w.ring = nil
			require.Equal(t, open, descriptorsOpen(t))
		}
	}
}

// TestWindowOfAnotherFileSystem: where the cold mode is of no use, nothing is opened, and one error is enough.
func TestWindowOfAnotherFileSystem(t *testing.T) {
	s := newShelf(t, false, 100)
	w := windowKind{}.newWindow(t, s, Want{Limit: -1})
	w.Begin(1, 1)
	require.Error(t, w.Open(0, s.dir, s.names[0]))
	require.Equal(t, -1.0, w.Read(never, true))
	require.False(t, w.Get(0, new(Content)))
	require.Error(t, w.Open(0, Dir{}, s.names[0]))
}

// TestWindowWithoutDescriptors: the error says so, what is open already is read, and all is closed.
func TestWindowWithoutDescriptors(t *testing.T) {
	s := newShelf(t, false, 100, 200, 300, 400)
	for _, kind := range windowKinds {
		w := kind.newWindow(t, s, Want{Limit: -1})
		open := descriptorsOpen(t)
		w.Begin(4, WindowMax)
		require.NoError(t, w.Open(0, s.dir, s.names[0]))
		err := withoutDescriptors(t, func() error { return w.Open(1, s.dir, s.names[1]) })
		require.True(t, sys.IsScarce(err), "%v", err)
		w.Read(never, false)
		require.True(t, w.Get(0, new(Content)))
		require.False(t, w.Get(1, new(Content)))
		require.Equal(t, open, descriptorsOpen(t))
	}
}

// withoutDescriptors runs do while this process can open none.
func withoutDescriptors(t *testing.T, do func() error) error {
	t.Helper()
	var was unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	none := was
	none.Cur = 0
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &none))
	err := do()
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &was))
	return err
}
