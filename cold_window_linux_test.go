//go:build linux && !fileproc_unix && !fileproc_generic

package fileproc

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fileproc/fileproc/internal/backend"
	"github.com/fileproc/fileproc/internal/content"
	"github.com/fileproc/fileproc/internal/knobs"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// plantShelf writes n files of one directory.
func plantShelf(t *testing.T, n int) (dir string, files []names.Name) {
	t.Helper()
	dir = t.TempDir()
	for i := range n {
		name := fmt.Sprintf("%03d", i)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), make([]byte, 100*(i+1)), 0o644))
		files = append(files, names.New(name))
	}
	return dir, files
}

func descriptorsOpen(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(entries)
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

// A run that has met EMFILE while it opened a window opens no further one, and delivers all the same.
func TestWindowsEndWithTheDescriptors(t *testing.T) {
	dir, files := plantShelf(t, 7)
	testtree.Set(t, &knobs.AlwaysCold, true)
	opts := Options{Workers: 1}
	cfg, err := opts.config(dir, false)
	require.NoError(t, err)
	var r *run
	delivered := 0
	r = newRun(t.Context(), cfg, callbacks{fn: func(f *File) error {
		if delivered++; delivered == 1 {
			w, b := workerOf(f), &batch{node: r.root, entries: files}
			require.NotZero(t, r.cold.pace.Window())
			put(t, r.root, dir, unix.OVERLAYFS_SUPER_MAGIC)
			require.NoError(t, withoutDescriptors(t, func() error { w.fetchWindow(b); return nil }))
			require.Zero(t, r.cold.pace.Window())
		}
		return nil
	}}, nil)
	r.pool.disableGrowth() // put takes no lock
	open := descriptorsOpen(t)
	require.NoError(t, r.execute())
	require.Equal(t, len(files), delivered)
	require.Zero(t, r.cold.pace.Window(), "and it stays so")
	require.Equal(t, open, descriptorsOpen(t))
}

// A worker that has waited for its turn when the run is stopped opens no file, neither in a window nor alone.
func TestNoFileIsOpenedAfterAStop(t *testing.T) {
	dir, files := plantShelf(t, 3)
	testtree.Set(t, &knobs.AlwaysCold, true)
	opts := Options{Workers: 1}
	cfg, err := opts.config(dir, false)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var r *run
	r = newRun(ctx, cfg, callbacks{fn: func(f *File) error {
		cancel()
		w, b := workerOf(f), &batch{nodes: []*node{r.root, r.root, r.root}, entries: files}
		w.content.forget()
		got := File{w: &w.access, node: r.root, name: files[1]}
		require.Equal(t, errStopped, w.load(&got, b, 1))
		require.Empty(t, got.content.Data)
		return nil
	}}, nil)
	require.ErrorIs(t, r.execute(), context.Canceled)
	require.Len(t, r.cold.windows, r.cold.windowsMade, "each is given back")
	require.NotEmpty(t, r.cold.windows)
}

// fetchWindow reads a window in a content.Window of its own.
func (w *worker) fetchWindow(b *batch) {
	window := content.NewWindow(w.cfg.want(), w.cfg.noURing, &w.cold.pace)
	defer window.Close()
	window.Fetch(&toFetch{w, b, 0})
}

// opensNothing fails a test that opens a file.
type opensNothing struct {
	content.WindowReader
	t *testing.T
}

func (o opensNothing) Open(int, content.Dir, names.Name) error {
	require.Fail(o.t, "a file is opened")
	return nil
}

// A run that is stopped opens no more files of a window.
func TestWindowOpensNothingAfterAStop(t *testing.T) {
	dir, files := plantShelf(t, 4)
	testtree.Set(t, &knobs.AlwaysCold, true)
	opts := Options{Workers: 1}
	cfg, err := opts.config(dir, false)
	require.NoError(t, err)
	var r *run
	var calls atomic.Int32
	r = newRun(t.Context(), cfg, callbacks{fn: func(f *File) error {
		calls.Add(1)
		r.stop(errBroken)
		put(t, r.root, dir, unix.EXT4_SUPER_MAGIC)
		rest := toFetch{workerOf(f), &batch{node: r.root, entries: files}, 0}
		rest.OpenIn(opensNothing{t: t}, len(files))
		return nil
	}}, nil)
	r.pool.disableGrowth() // put takes no lock
	require.ErrorIs(t, r.execute(), errBroken)
	require.EqualValues(t, 1, calls.Load())
}

// What is listed ahead fits the memory of the process from the moment at which a run becomes cold.
func TestInvariant5ColdModeFitsTheMemory(t *testing.T) {
	testtree.NotInColdMode(t, "a run does not become cold")
	dir, _ := plantShelf(t, 1)
	d, err := backend.OpenRoot(dir)
	require.NoError(t, err)
	kind := backend.DiskOf(d).Kind
	d.Close()
	if kind == content.NotOnDisk {
		t.Skip("the cold mode is of no use on the file system of the temporary directory; scripts/filesystems.sh runs this on ext4")
	}
	limit := memoryLimit
	t.Cleanup(func() { memoryLimit = limit })
	memoryLimit = func() int64 { return memoryBesides + 10<<20 }
	opts := Options{Workers: 1}
	cfg, err := opts.config(dir, false)
	require.NoError(t, err)
	var r *run
	r = newRun(t.Context(), cfg, callbacks{fn: func(f *File) error {
		require.Zero(t, r.disk.withheld)
		require.True(t, workerOf(f).cold.tryTurnOn(&f.w.pin, &batch{node: r.root}, 0))
		require.Equal(t, maxListedAhead-5<<20, r.disk.withheld)
		return nil
	}}, nil)
	require.NoError(t, r.execute())
}

// fetchesCached finds its files in the page cache.
type fetchesCached struct{ content.Fetcher }

func (fetchesCached) Fetch(content.Source) (int, content.Outcome) {
	return 1, content.Outcome{Cached: true}
}

// The cold mode begins when metadata of files on a disk have to be waited for, and ends when a window was in the page cache.
func TestColdModeBeginsAndEnds(t *testing.T) {
	testtree.NotInColdMode(t, "it does not end")
	testtree.Set(t, &knobs.SlowCall, 100*time.Microsecond)
	dir, files := plantShelf(t, 3)
	opts := Options{Workers: 1, ReadSize: NoRead, Stat: true}
	cfg, err := opts.config(dir, false)
	require.NoError(t, err)
	var r *run
	calls := 0
	r = newRun(t.Context(), cfg, callbacks{fn: func(f *File) error {
		if calls++; calls > 1 {
			return nil
		}
		w, b := workerOf(f), &batch{node: r.root, entries: files}
		b.abandon() // they are visited already
		put(t, r.root, dir, unix.OVERLAYFS_SUPER_MAGIC)
		require.False(t, w.cold.listsAhead(b))
		w.statTook(b, 0, time.Second)
		require.True(t, w.cold.listsAhead(b))
		w.fetch(new(fetched), fetchesCached{}, b, 0)
		require.False(t, w.cold.listsAhead(b))
		return nil
	}}, nil)
	r.pool.disableGrowth() // put takes no lock
	require.NoError(t, r.execute())
	require.Equal(t, 3, calls)
}

// notedWindow notes the directories through which files are opened.
type notedWindow struct {
	content.WindowReader
	inodes []uint64
}

func (w *notedWindow) Open(_ int, d content.Dir, _ names.Name) error {
	s, err := sys.Fstat(d.FD)
	w.inodes = append(w.inodes, s.Inode)
	return err
}

// The files of a window are opened through their own directories, whatever their names.
func TestWindowOpensEachFileInItsDirectory(t *testing.T) {
	t.Cleanup(func() { sys.Fstatfs = unix.Fstatfs })
	sys.Fstatfs = isOn(unix.EXT4_SUPER_MAGIC)
	dir := t.TempDir()
	require.True(t, testtree.Make(t, dir, "d/a=1", "e/a=2"))
	b := &batch{}
	var want []uint64
	require.NoError(t, ForEach(t.Context(), dir, Options{Workers: 1, Stat: true}, func(f *File) error {
		var s unix.Stat_t
		require.NoError(t, unix.Stat(filepath.Dir(f.Path()), &s))
		b.nodes, b.entries = append(b.nodes, f.node), append(b.entries, f.name)
		want = append(want, s.Ino)
		if len(want) == 2 {
			window := &notedWindow{}
			(&toFetch{workerOf(f), b, 0}).OpenIn(window, 2)
			require.Equal(t, want, window.inodes)
		}
		return nil
	}))
	require.Len(t, want, 2)
}

// put says that n, which is open at path, is on a file system of this type.
func put(t *testing.T, n *node, path string, typ int64) {
	t.Helper()
	defer func() { sys.Fstatfs = unix.Fstatfs }()
	sys.Fstatfs = isOn(typ)
	d, err := backend.OpenRoot(path)
	require.NoError(t, err)
	backend.DiskOf(d) // asks only once
	n.dir.Close()
	n.dir = d
}

// isOn returns an Fstatfs that says that all is on a file system of this type.
func isOn(typ int64) func(int, *unix.Statfs_t) error {
	return func(_ int, st *unix.Statfs_t) error { setType(&st.Type, typ); return nil }
}

// setType sets *at as the kernel does, to the lower 32 bits where that is all there is.
func setType[T int32 | uint32 | int64](at *T, typ int64) { *at = T(typ) }

// What is slow because of a disk is asked for by few workers, and by all if it is something else.
func TestFewListingsOfADiskAtTheSameTime(t *testing.T) {
	testtree.Set(t, &knobs.SlowCall, 100*time.Microsecond)
	t.Cleanup(func() { sys.Getdents, sys.Fstatfs = unix.Getdents, unix.Fstatfs })
	dir := t.TempDir()
	for i := range 20 {
		require.NoError(t, os.Mkdir(filepath.Join(dir, fmt.Sprint(i)), 0o700))
	}
	most := func(typ int64, opts Options) int {
		sys.Fstatfs = isOn(typ)
		var calls gauge
		sys.Getdents = func(fd int, buf []byte) (n int, err error) {
			calls.during(func() {
				time.Sleep(6 * time.Millisecond) // no reason to ask for more
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
		require.LessOrEqual(t, most(typ, opts), callsAtFirst)
	}
	testtree.NotInColdMode(t, "it is for disks")
	require.Greater(t, most(unix.FUSE_SUPER_MAGIC, Options{}), callsAtFirst)
}
