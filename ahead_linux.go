//go:build linux && !fileproc_unix && !fileproc_generic

package fileproc

import (
	"runtime"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/fileproc/fileproc/internal/calls"
	"golang.org/x/sys/unix"
)

const (
	// aheadSize is the size in bytes below which a file is read ahead.
	aheadSize = 16 << 10
	callDepth = 16
	// perFile is how many calls a file takes: openat, preadv2 and close.
	perFile = 3
)

// callPatience is how long a window may take before it is taken for one that
// waits for a disk: its files had better be read by several workers.
var callPatience = callDepth * 50 * time.Microsecond // tests set it

// callAhead reads ahead with the plain system calls, several in a row.
type callAhead struct {
	want  int // bytes to be asked for, so that a file that gives fewer is whole; 0: metadata
	check cacheCheck
	calls [perFile * callDepth]calls.Call
	parts [callDepth]unix.Iovec
	stats [callDepth]unix.Stat_t
	bufs  [callDepth][aheadSize]byte
}

// callAheads are kept from run to run.
var callAheads = sync.Pool{New: func() any { return new(callAhead) }}

// newCallAhead returns what reads files with limit as in reader, or only looks
// them up, and how many at once.
func newCallAhead(limit int64, lookUp bool) (readAhead, int) {
	want := aheadWant(limit)
	if lookUp {
		if want = 0; sysFstatat == 0 {
			return nil, 0
		}
	}
	a := callAheads.Get().(*callAhead)
	a.want = want
	return a, callDepth
}

// aheadWant returns how many bytes to ask for of each file.
func aheadWant(limit int64) int {
	if limit < 0 || limit >= aheadSize { // limit+1 may be too large a number
		return aheadSize
	}
	return int(limit) + 1
}

func (a *callAhead) read(d directory, names []string) bool {
	dir, ok := d.(*linuxDir)
	if !ok || !a.check.good(dir) {
		return false
	}
	n := 0
	for i, name := range names {
		p := uintptr(unsafe.Pointer(unsafe.StringData(name)))
		if a.want == 0 {
			a.calls[i] = calls.Call{Trap: sysFstatat, Args: [6]uintptr{uintptr(dir.fd), p, uintptr(unsafe.Pointer(&a.stats[i])), unix.AT_SYMLINK_NOFOLLOW}}
			n++
			continue
		}
		a.parts[i].Base = &a.bufs[i][0]
		a.parts[i].SetLen(a.want)
		a.calls[n] = calls.Call{Trap: unix.SYS_OPENAT, Args: [6]uintptr{uintptr(dir.fd), p, fileFlags | unix.O_LARGEFILE}}
		a.calls[n+1] = calls.Call{Trap: unix.SYS_PREADV2, Args: [6]uintptr{1: uintptr(unsafe.Pointer(&a.parts[i])), 2: 1, 5: unix.RWF_NOWAIT}, Chained: true}
		a.calls[n+2] = calls.Call{Trap: unix.SYS_CLOSE, Chained: true}
		n += perFile
	}
	start := time.Now()
	calls.Run(a.calls[:n])
	runtime.KeepAlive(names)
	return time.Since(start) < callPatience
}

func (a *callAhead) get(i int, f *File) bool {
	if a.want == 0 {
		if a.calls[i].Result != 0 {
			return false
		}
		if s := statOf(&a.stats[i]); s.Mode.IsRegular() {
			f.stat, f.hasStat = s, true
		}
		return f.hasStat
	}
	n := a.calls[perFile*i+1].Result
	if n <= 0 || !isWhole(n, a.want) {
		return false
	}
	f.data = a.bufs[i][:n:n]
	return true
}

func (a *callAhead) uncached(i int) bool {
	return a.want > 0 && a.calls[perFile*i+1].Err() == unix.EAGAIN
}

func (a *callAhead) close() {
	a.check = cacheCheck{}
	callAheads.Put(a)
}

// canFetch reports whether fetch is of use in d. Where arguments have 32 bits,
// each architecture has its own way to pass readahead's offset.
func canFetch(d directory) bool {
	dir, ok := d.(*linuxDir)
	return ok && unsafe.Sizeof(uintptr(0)) == 8 && new(cacheCheck).good(dir)
}

// fetch tells the kernel to read the files names of d into the page cache, as far
// as limit asks for, and does not wait for that. A disk that bears many reads at
// a time has as many from one worker, without a thread for each. It is of use
// where canFetch says so.
func fetch(d directory, names []string, limit int64, stopped func() bool) {
	a := callAheads.Get().(*callAhead)
	defer callAheads.Put(a)
	for some := range slices.Chunk(names, callDepth) { // opening a file may wait for a disk
		if stopped() {
			return
		}
		n := 0
		for _, name := range some {
			p := uintptr(unsafe.Pointer(unsafe.StringData(name)))
			a.calls[n] = calls.Call{Trap: unix.SYS_OPENAT, Args: [6]uintptr{uintptr(d.(*linuxDir).fd), p, fileFlags | unix.O_LARGEFILE}}
			a.calls[n+1] = calls.Call{Trap: unix.SYS_READAHEAD, Args: [6]uintptr{2: uintptr(aheadWant(limit))}, Chained: true}
			a.calls[n+2] = calls.Call{Trap: unix.SYS_CLOSE, Chained: true}
			n += perFile
		}
		calls.Run(a.calls[:n])
	}
	runtime.KeepAlive(names)
}

// isWhole reports whether n bytes, of want that were asked for, are all that a
// file holds, with the certainty of fdFile.cached.
func isWhole(n, want int) bool { return n < want && n%512 != 0 }

// A cacheCheck remembers of the last directory whether its file system is good
// for reading ahead.
type cacheCheck struct {
	dir *linuxDir
	ok  bool
}

// good reports whether d is on a file system that gives what is in the page
// cache without waiting, and of which reads through io_uring are known to be
// right. On FUSE they are wrong without an error (Linux 6.18, direct I/O).
func (c *cacheCheck) good(d *linuxDir) bool {
	if c.dir == d {
		return c.ok
	}
	c.dir, c.ok = d, false
	var st unix.Statfs_t
	if unix.Fstatfs(d.fd, &st) == nil {
		switch int64(st.Type) {
		case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC:
			c.ok = true
		}
	}
	return c.ok
}
