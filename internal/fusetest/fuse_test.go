//go:build linux

// Package fusetest reads file systems that misbehave. The test process itself serves them over FUSE.
package fusetest

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// faults are the ways in which a file system misbehaves.
type faults struct {
	direct       bool          // FOPEN_DIRECT_IO: each read system call is one request
	shortReads   bool          // a read returns 1 to 7 bytes
	sizeZero     bool          // stat reports size 0 whatever the content, as /proc does
	unknownTypes bool          // a listing reports no types
	interrupted  bool          // the first open, listing and read of each node fail with EINTR
	openDelay    time.Duration // each open takes this long
	onRead       func()        // called for each read request
	sizeHuge     bool          // stat reports 200 MiB whatever the content
	newInodes    bool          // each stat reports another inode number
	oneCookie    bool          // all entries of a listing have the same offset
	endless      bool          // a listing goes on for ever, with new names
}

// node is a file, a directory, a link or a FIFO. A node whose name begins with one of the constants below fails that way.
type node struct {
	fs.Inode
	faults     *faults
	name       string
	mode       uint32
	content    []byte
	names      []string // of a directory, in its order
	children   map[string]*node
	openedOnce atomic.Bool
	readOnce   atomic.Bool
	listedOnce atomic.Bool
}

var (
	_ = (fs.NodeOnAdder)((*node)(nil))
	_ = (fs.NodeLookuper)((*node)(nil))
	_ = (fs.NodeGetattrer)((*node)(nil))
	_ = (fs.NodeOpener)((*node)(nil))
	_ = (fs.NodeReader)((*node)(nil))
	_ = (fs.NodeReaddirer)((*node)(nil))
	_ = (fs.NodeOpendirer)((*node)(nil))
	_ = (fs.NodeReadlinker)((*node)(nil))
)

var inodes atomic.Uint64 // that newInodes has given

const (
	readFails    = "read-fails"    // from offset 5000 on
	listingFails = "listing-fails" // half-way
	openFails    = "open-fails"
	statFails    = "stat-fails"
)

func (n *node) OnAdd(ctx context.Context) {
	for _, name := range n.names {
		child := n.children[name]
		n.AddChild(name, n.NewPersistentInode(ctx, child, fs.StableAttr{Mode: child.mode}), true)
	}
}

func (n *node) fill(attr *fuse.Attr) {
	attr.Mode = n.mode | 0o755
	attr.Size = uint64(len(n.content))
	attr.Nlink = 1
	if n.faults.sizeZero && n.mode == fuse.S_IFREG {
		attr.Size = 0
	}
	if n.faults.sizeHuge && n.mode == fuse.S_IFREG {
		attr.Size = 200 << 20
	}
	if n.faults.newInodes {
		attr.Ino = inodes.Add(1)
	}
}

func (n *node) Lookup(_ context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	child := n.GetChild(name)
	if child == nil {
		return nil, syscall.ENOENT
	}
	if strings.HasPrefix(name, statFails) {
		return nil, syscall.EIO
	}
	child.Operations().(*node).fill(&out.Attr)
	return child, 0
}

func (n *node) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	n.fill(&out.Attr)
	return 0
}

func (n *node) Readlink(context.Context) ([]byte, syscall.Errno) { return n.content, 0 }

func (n *node) Opendir(context.Context) syscall.Errno {
	if n.faults.interrupted && !n.openedOnce.Swap(true) {
		return syscall.EINTR
	}
	if strings.HasPrefix(n.name, openFails) {
		return syscall.EIO
	}
	return 0
}

func (n *node) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	if n.faults.interrupted && !n.openedOnce.Swap(true) {
		return nil, 0, syscall.EINTR
	}
	time.Sleep(n.faults.openDelay)
	if strings.HasPrefix(n.name, openFails) {
		return nil, 0, syscall.EIO
	}
	if n.faults.direct {
		return nil, fuse.FOPEN_DIRECT_IO, 0
	}
	return nil, 0, 0
}

func (n *node) Read(_ context.Context, _ fs.FileHandle, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	if n.faults.onRead != nil {
		n.faults.onRead()
	}
	if n.faults.interrupted && !n.readOnce.Swap(true) {
		return nil, syscall.EINTR
	}
	end := min(off+int64(len(dest)), int64(len(n.content)))
	if n.faults.shortReads {
		end = min(end, off+1+off%7)
	}
	if strings.HasPrefix(n.name, readFails) {
		if off >= 5000 {
			return nil, syscall.EIO
		}
		end = min(end, off+1000)
	}
	if off >= end {
		return fuse.ReadResultData(nil), 0
	}
	return fuse.ReadResultData(n.content[off:end]), 0
}

func (n *node) Readdir(context.Context) (fs.DirStream, syscall.Errno) {
	l := &listing{node: n}
	if strings.HasPrefix(n.name, listingFails) {
		l.failAt = len(n.names)/2 + 1
	}
	return l, 0
}

type listing struct {
	node   *node
	next   int
	failAt int // 1 more than the index of the entry in whose place an error comes
}

func (l *listing) HasNext() bool { return l.node.faults.endless || l.next < len(l.node.names) }
func (l *listing) Close()        {}

func (l *listing) Next() (fuse.DirEntry, syscall.Errno) {
	if l.node.faults.interrupted && !l.node.listedOnce.Swap(true) {
		return fuse.DirEntry{}, syscall.EINTR
	}
	if l.failAt > 0 && l.next >= l.failAt-1 {
		return fuse.DirEntry{}, syscall.EIO
	}
	if l.node.faults.endless {
		l.next++
		return fuse.DirEntry{Name: fmt.Sprintf("endless%020d", l.next), Ino: uint64(l.next) + 1, Mode: fuse.S_IFIFO, Off: uint64(l.next)}, 0
	}
	name := l.node.names[l.next]
	l.next++
	entry := fuse.DirEntry{Name: name, Ino: uint64(l.next) + 1, Mode: l.node.children[name].mode, Off: uint64(l.next)}
	if l.node.faults.unknownTypes {
		entry.Mode = 0
	}
	if l.node.faults.newInodes {
		entry.Ino = inodes.Add(1)
	}
	if l.node.faults.oneCookie {
		entry.Off = 1
	}
	return entry, 0
}

func newNode(f *faults, name string, mode uint32, content string) *node {
	return &node{faults: f, name: name, mode: mode, content: []byte(content), children: map[string]*node{}}
}

// add adds a node at a relative path, and its missing parent directories.
func (n *node) add(rel string, mode uint32, content string) {
	first, rest, deeper := strings.Cut(rel, "/")
	child := n.children[first]
	if child == nil {
		child = newNode(n.faults, first, fuse.S_IFDIR, "")
		if !deeper {
			child.mode, child.content = mode, []byte(content)
		}
		n.children[first] = child
		n.names = append(n.names, first)
	}
	if deeper {
		child.add(rest, mode, content)
	}
}

func mount(dir string, root *node) (*fuse.Server, error) {
	return fs.Mount(dir, root, &fs.Options{MountOptions: fuse.MountOptions{
		DirectMountStrict: true, DisableReadDirPlus: true, FsName: "fileproc", Name: "fusetest",
	}})
}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "fusetest")
	if err == nil {
		var server *fuse.Server
		if server, err = mount(dir, newNode(&faults{}, "", fuse.S_IFDIR, "")); err == nil {
			err = server.Unmount()
		}
		os.Remove(dir)
	}
	if err != nil {
		fmt.Println("left out: FUSE tests:", err)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func serve(t testing.TB, root *node) string {
	t.Helper()
	dir := t.TempDir()
	name := t.Name()
	// If the test hangs, its mount must not remain.
	watchdog := time.AfterFunc(time.Minute, func() {
		pprof.Lookup("goroutine").WriteTo(os.Stderr, 2)
		unix.Unmount(dir, unix.MNT_DETACH)
		panic(name + " hangs")
	})
	server, err := mount(dir, root)
	require.NoError(t, err)
	t.Cleanup(func() {
		watchdog.Stop()
		if err := server.Unmount(); err != nil {
			t.Errorf("a file or directory is still open: %v", err)
			unix.Unmount(dir, unix.MNT_DETACH)
		}
	})
	return dir
}

func content(i, size int) string {
	line := fmt.Sprintf("file %d ", i)
	return strings.Repeat(line, size/len(line)+1)[:size]
}

// tree adds files of the given sizes in nested directories, and links and FIFOs. It returns the content of the files.
func tree(root *node, sizes []int) map[string]string {
	files := map[string]string{}
	for i, size := range sizes {
		rel := path.Join(strings.Repeat("sub/", i%3), fmt.Sprintf("file%03d", i))
		files[rel] = content(i, size)
		root.add(rel, fuse.S_IFREG, files[rel])
	}
	root.add("sub/link", fuse.S_IFLNK, "../file000")
	root.add("dirlink", fuse.S_IFLNK, "sub")
	root.add("fifo", fuse.S_IFIFO, "")
	root.add("empty/fifo", fuse.S_IFIFO, "")
	return files
}

func each(t *testing.T, build func() *node, test func(t *testing.T, dir string, opts fileproc.Options)) {
	for _, procs := range []int{1, 2} {
		for _, workers := range []int{1, 8} {
			t.Run(fmt.Sprintf("GOMAXPROCS=%d/workers=%d", procs, workers), func(t *testing.T) {
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
				test(t, serve(t, build()), fileproc.Options{Workers: workers})
			})
		}
	}
}

func read(t *testing.T, dir string, opts fileproc.Options) (map[string]string, fileproc.Report, error) {
	t.Helper()
	type file struct{ rel, data string }
	var r fileproc.Report
	opts.Report = &r
	files, err := fileproc.Process(t.Context(), dir, opts, func(f *fileproc.File) (file, error) {
		if opts.Stat {
			if s, err := f.Stat(); err != nil || !s.Mode.IsRegular() {
				return file{}, fmt.Errorf("stat says %v, %v", s, err)
			}
		}
		return file{filepath.ToSlash(f.Rel()), string(f.Data())}, nil
	})
	got := map[string]string{}
	for _, f := range files {
		require.NotContains(t, got, f.rel, "delivered twice")
		got[f.rel] = f.data
	}
	sum := r.Processed + r.Unchanged + r.Failed + r.Abandoned
	for _, n := range r.Skipped {
		sum += n
	}
	require.Equal(t, r.Found, sum, "Found is not the sum of the other counts: %+v", r)
	require.EqualValues(t, len(got), r.Processed)
	return got, r, err
}

// requireSame compares without printing megabytes.
func requireSame(t *testing.T, want, got map[string]string, limit int) {
	t.Helper()
	for rel, w := range want {
		if limit > 0 {
			w = w[:min(limit, len(w))]
		}
		g, ok := got[rel]
		require.True(t, ok, "%s was not delivered", rel)
		require.True(t, g == w, "%s: got %d bytes that differ from the file's %d", rel, len(g), len(w))
	}
	require.Len(t, got, len(want))
}

func TestInvariant2ContentThroughAwkwardFileSystems(t *testing.T) {
	small := []int{0, 1, 7, 8, 100, 400, 401, 999}
	large := []int{0, 1, 400, 4095, 4096, 4097, 65535, 65536, 65537, 200_000, 3_000_001}
	many := make([]int, 50)
	for i := range many {
		many[i] = 400
	}
	for name, c := range map[string]struct {
		faults faults
		sizes  []int
	}{
		"plain":                {faults{}, large},
		"direct":               {faults{direct: true}, large},
		"short reads":          {faults{direct: true, shortReads: true}, small},
		"size 0":               {faults{direct: true, sizeZero: true}, large},
		"unknown types":        {faults{unknownTypes: true}, large},
		"interrupted":          {faults{interrupted: true, direct: true}, large},
		"1 ms per open":        {faults{openDelay: time.Millisecond}, many},
		"1 ms per direct open": {faults{openDelay: time.Millisecond, direct: true}, many},
		"size 200 MiB":         {faults{sizeHuge: true, direct: true}, large},
		"new inodes":           {faults{newInodes: true}, large},
		"same cookies":         {faults{oneCookie: true}, large},
		"all at once": {faults{direct: true, shortReads: true, sizeZero: true, unknownTypes: true, interrupted: true,
			openDelay: time.Millisecond}, small},
	} {
		t.Run(name, func(t *testing.T) {
			var want map[string]string
			build := func() *node {
				f := c.faults
				root := newNode(&f, "", fuse.S_IFDIR, "")
				want = tree(root, c.sizes)
				return root
			}
			each(t, build, func(t *testing.T, dir string, opts fileproc.Options) {
				for _, size := range []int{0, 100, 4096} {
					opts.ReadSize = size
					for _, opts.Stat = range []bool{false, true} {
						got, report, err := read(t, dir, opts)
						require.NoError(t, err)
						requireSame(t, want, got, size)
						require.EqualValues(t, 4, report.Skipped[fileproc.SkippedNotRegular])
					}
				}
			})
		})
	}
}

func TestInvariant1EveryListedFileThroughUnknownTypes(t *testing.T) {
	var want map[string]string
	build := func() *node {
		root := newNode(&faults{unknownTypes: true}, "", fuse.S_IFDIR, "")
		want = map[string]string{}
		for i := range 1000 {
			rel := fmt.Sprintf("file%04d", i)
			want[rel] = content(i, 50)
			root.add(rel, fuse.S_IFREG, want[rel])
			root.add(fmt.Sprintf("dir%d/%s", i%50, rel), fuse.S_IFREG, want[rel])
			want[fmt.Sprintf("dir%d/%s", i%50, rel)] = want[rel]
		}
		return root
	}
	each(t, build, func(t *testing.T, dir string, opts fileproc.Options) {
		got, _, err := read(t, dir, opts)
		require.NoError(t, err)
		requireSame(t, want, got, 0)
		entries, err := fileproc.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, entries, 1050)
		for _, e := range entries {
			require.Equal(t, strings.HasPrefix(e.Name(), "dir"), e.IsDir(), "%s", e.Name())
		}
	})
}

// failures returns the errors that err joins, by path relative to dir.
func failures(t *testing.T, dir string, err error) map[string]error {
	t.Helper()
	require.Error(t, err)
	list := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		list = joined.Unwrap()
	}
	failed := map[string]error{}
	for _, err := range list {
		var pathError *iofs.PathError
		require.ErrorAs(t, err, &pathError)
		require.NotEmpty(t, pathError.Op)
		rel, relErr := filepath.Rel(dir, pathError.Path)
		require.NoError(t, relErr)
		failed[filepath.ToSlash(rel)] = err
	}
	return failed
}

func TestInvariant1FailuresAreReportedAndTheRestIsDelivered(t *testing.T) {
	for _, f := range []faults{{direct: true}, {direct: true, unknownTypes: true}} {
		t.Run(fmt.Sprintf("unknown types=%v", f.unknownTypes), func(t *testing.T) {
			var good map[string]string
			build := func() *node {
				f := f
				root := newNode(&f, "", fuse.S_IFDIR, "")
				good = tree(root, []int{1, 400, 9_000, 70_000, 5})
				root.add(readFails, fuse.S_IFREG, content(1, 10_000))
				root.add("sub/"+readFails, fuse.S_IFREG, content(1, 100_000))
				root.add(openFails, fuse.S_IFREG, "x")
				root.add("sub/"+openFails+"/file", fuse.S_IFREG, "x")
				root.add(statFails, fuse.S_IFREG, "x")
				for _, after := range []string{"after", "last"} {
					root.add(after, fuse.S_IFREG, after)
					good[after] = after
				}
				for i := range 1000 {
					root.add(fmt.Sprintf("sub/%s/file%04d", listingFails, i), fuse.S_IFREG, "x")
				}
				return root
			}
			each(t, build, func(t *testing.T, dir string, opts fileproc.Options) {
				got, report, err := read(t, dir, opts)
				before := 0
				for rel, data := range got {
					if strings.HasPrefix(rel, "sub/"+listingFails) {
						before++
						require.Equal(t, "x", data)
						delete(got, rel)
					}
				}
				require.Positive(t, before, "the entries listed before the failure are lost")
				require.LessOrEqual(t, before, 500)
				requireSame(t, good, got, 0)
				failed := failures(t, dir, err)
				withoutStat := statFails
				if _, ok := failed["."]; ok && fileproc.Backend() != "linux" {
					withoutStat = "." // package os does not report which entry it could not stat
				}
				for _, rel := range []string{readFails, "sub/" + readFails, openFails, "sub/" + openFails, withoutStat, "sub/" + listingFails} {
					require.ErrorIs(t, failed[rel], syscall.EIO, "%s of %v", rel, err)
				}
				require.Len(t, failed, 6, "%v", err)
				require.EqualValues(t, 6, report.Failed)

				// The first 4096 bytes end before the read fails.
				opts.ReadSize = 4096
				got, _, err = read(t, dir, opts)
				require.True(t, got[readFails] == content(1, 4096), "%d bytes", len(got[readFails]))
				require.True(t, got["sub/"+readFails] == content(1, 4096))
				require.Len(t, failures(t, dir, err), 4)
			})
		})
	}
}

func TestInvariant1ListingOfTheRootFails(t *testing.T) {
	for _, name := range []string{listingFails, openFails} {
		build := func() *node {
			root := newNode(&faults{}, name, fuse.S_IFDIR, "")
			for i := range 1000 {
				root.add(fmt.Sprintf("file%04d", i), fuse.S_IFREG, "x")
			}
			return root
		}
		t.Run(name, func(t *testing.T) {
			each(t, build, func(t *testing.T, dir string, opts fileproc.Options) {
				got, _, err := read(t, dir, opts)
				require.ErrorIs(t, err, syscall.EIO)
				require.Contains(t, failures(t, dir, err), ".")
				entries, err := fileproc.ReadDir(dir)
				require.ErrorIs(t, err, syscall.EIO)
				require.Len(t, entries, len(got), "ReadDir returns what it has, as os.ReadDir does")
			})
		})
	}
}

func TestInvariant8CancelIsSeenInsideALargeRead(t *testing.T) {
	const size = 64 << 20
	stop := errors.New("enough")
	var reads atomic.Int64
	var cancel context.CancelCauseFunc
	build := func() *node {
		reads.Store(0)
		root := newNode(&faults{direct: true, onRead: func() {
			if reads.Add(1) == 4 {
				cancel(stop)
			}
		}}, "", fuse.S_IFDIR, "")
		root.add("large", fuse.S_IFREG, "")
		root.children["large"].content = make([]byte, size)
		return root
	}
	each(t, build, func(t *testing.T, dir string, opts fileproc.Options) {
		var ctx context.Context
		ctx, cancel = context.WithCancelCause(t.Context())
		defer cancel(nil)
		_, err := fileproc.Process(ctx, dir, opts, func(*fileproc.File) (int, error) {
			return 0, errors.New("fn got half of a file")
		})
		require.ErrorIs(t, err, stop)
		require.NotContains(t, err.Error(), "half of a file")
		// A request reads about 128 KiB.
		require.Less(t, reads.Load(), int64(size/(128<<10)/2), "the read went on after the cancel")
	})
}

// A listing that never ends can be cancelled at any time, and takes no memory that grows.
func TestInvariant8EndlessListing(t *testing.T) {
	build := func() *node { return newNode(&faults{endless: true}, "", fuse.S_IFDIR, "") }
	each(t, build, func(t *testing.T, dir string, opts fileproc.Options) {
		for _, entry := range []string{"Process", "Walk"} {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			var err error
			var r fileproc.Report
			opts.Report = &r
			if entry == "Process" {
				err = fileproc.ForEach(ctx, dir, opts, func(*fileproc.File) error { return nil })
			} else {
				for _, e := range fileproc.Walk(ctx, dir, opts) {
					if e != nil {
						err = e
					}
				}
			}
			late := ctx.Err()
			cancel()
			runtime.GC()
			runtime.ReadMemStats(&after)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Error(t, late)
			require.Positive(t, r.Found)
			require.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(16<<20))
		}
	})
}

// BenchmarkSlowOpens measures 1,000 files whose opens take 1 ms each, a case of docs/dev/performance.md.
func BenchmarkSlowOpens(b *testing.B) {
	root := newNode(&faults{openDelay: time.Millisecond}, "", fuse.S_IFDIR, "")
	for i := range 1000 {
		root.add(fmt.Sprintf("file%04d", i), fuse.S_IFREG, content(i, 400))
	}
	dir := serve(b, root)
	for _, workers := range []int{0, 64} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			for b.Loop() {
				var r fileproc.Report
				opts := fileproc.Options{Report: &r, Workers: workers}
				_, err := fileproc.Process(b.Context(), dir, opts, func(*fileproc.File) (struct{}, error) { return struct{}{}, nil })
				require.NoError(b, err)
				require.EqualValues(b, 1000, r.Processed)
			}
		})
	}
}
