//go:build linux && !fileproc_unix && !fileproc_generic

package fileproc

import (
	"runtime"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/fileproc/fileproc/internal/calls"
	"github.com/fileproc/fileproc/internal/names"
	"golang.org/x/sys/unix"
)

const (
	// readaheadSize is the size in bytes below which a file is read ahead.
	readaheadSize = 16 << 10
	callDepth     = 16
	// perFile is how many calls a file takes: openat, preadv2 and close.
	perFile = 3
)

// callPatience is how long a group may take. A slower one waits for a disk, and
// several workers would read its files sooner. Tests set it.
var callPatience = callDepth * 50 * time.Microsecond

// A callGroup is a groupReader that makes several plain system calls in a row.
type callGroup struct {
	want  int // bytes to ask for, so that fewer are a whole file; 0: metadata
	check cacheCheck
	calls [perFile * callDepth]calls.Call
	parts [callDepth]unix.Iovec
	stats [callDepth]unix.Stat_t
	bufs  [callDepth][readaheadSize]byte
}

// callGroups are kept from run to run.
var callGroups = sync.Pool{New: func() any { return new(callGroup) }}

// newCallGroup returns a groupReader, or nil, and how many files it takes at
// once. It reads files, with limit as in reader, or only fetches their metadata.
func newCallGroup(limit int64, statOnly bool) (groupReader, int) {
	want := bytesWanted(limit)
	if statOnly {
		if want = 0; sysFstatat == 0 {
			return nil, 0
		}
	}
	a := callGroups.Get().(*callGroup)
	a.want = want
	return a, callDepth
}

// bytesWanted returns how many bytes to ask for of each file.
func bytesWanted(limit int64) int {
	if limit < 0 || limit >= readaheadSize { // limit+1 may overflow
		return readaheadSize
	}
	return int(limit) + 1
}

func (a *callGroup) read(d directory, files []names.Name) bool {
	dir, ok := d.(*linuxDir)
	if !ok || !a.check.allows(dir) {
		return false
	}
	n := 0
	for i, name := range files {
		p := uintptr(name.Pointer())
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
	runtime.KeepAlive(files)
	return time.Since(start) < callPatience
}

func (a *callGroup) get(i int, c *content) bool {
	if a.want == 0 {
		if a.calls[i].Result != 0 {
			return false
		}
		if s := statOf(&a.stats[i]); s.Mode.IsRegular() {
			c.stat, c.hasStat = s, true
		}
		return c.hasStat
	}
	n := a.calls[perFile*i+1].Result
	if n <= 0 || !isWhole(n, a.want) {
		return false
	}
	c.data = a.bufs[i][:n:n]
	return true
}

func (a *callGroup) isUncached(i int) bool {
	return a.want > 0 && a.calls[perFile*i+1].Err() == unix.EAGAIN
}

func (a *callGroup) close() {
	a.check = cacheCheck{}
	callGroups.Put(a)
}

// canPrefetch reports whether prefetch is of use in d. On 32-bit systems the
// way to pass readahead's offset differs between architectures.
func canPrefetch(d directory) bool {
	dir, ok := d.(*linuxDir)
	return ok && unsafe.Sizeof(uintptr(0)) == 8 && new(cacheCheck).allows(dir)
}

// prefetch has the kernel read the files of d into the page cache, as far as
// limit asks, and does not wait. So one worker gives a disk many reads at a
// time, without a thread for each. It requires canPrefetch.
func prefetch(d directory, files []names.Name, limit int64, stopped func() bool) {
	a := callGroups.Get().(*callGroup)
	defer callGroups.Put(a)
	for group := range slices.Chunk(files, callDepth) { // an open may wait for a disk
		if stopped() {
			return
		}
		n := 0
		for _, name := range group {
			p := uintptr(name.Pointer())
			a.calls[n] = calls.Call{Trap: unix.SYS_OPENAT, Args: [6]uintptr{uintptr(d.(*linuxDir).fd), p, fileFlags | unix.O_LARGEFILE}}
			a.calls[n+1] = calls.Call{Trap: unix.SYS_READAHEAD, Args: [6]uintptr{2: uintptr(bytesWanted(limit))}, Chained: true}
			a.calls[n+2] = calls.Call{Trap: unix.SYS_CLOSE, Chained: true}
			n += perFile
		}
		calls.Run(a.calls[:n])
	}
	runtime.KeepAlive(files)
}

// A cacheCheck caches whether the last directory's file system allows
// readahead.
type cacheCheck struct {
	dir *linuxDir
	ok  bool
}

// allows reports whether d's file system can read from the page cache without
// waiting, and is known to read correctly through io_uring. On FUSE such reads
// are wrong without an error (Linux 6.18, direct I/O).
func (c *cacheCheck) allows(d *linuxDir) bool {
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
