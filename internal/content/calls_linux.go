//go:build linux && !fileproc_unix && !fileproc_generic

package content

import (
	"runtime"
	"sync"
	"unsafe"

	"github.com/fileproc/fileproc/internal/calls"
	"github.com/fileproc/fileproc/internal/knobs"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
	"golang.org/x/sys/unix"
)

const (
	// readaheadSize is the most bytes of a file that are read ahead. With many files at
	// once, there is less room for each.
	readaheadSize = 32 << 10
	callDepth     = 16
	// perFile is the most calls that a file takes: openat, preadv2, fstat and close. The
	// fstat is made only if the size decides whether the file is whole.
	perFile = 4
	// reportedGroups is how many groups calls.Run reports to Go's scheduler after it has found
	// that something is not cached.
	reportedGroups = 8
	// resolveCached is RESOLVE_CACHED of openat2(2).
	resolveCached = 0x20
)

// A callGroup is a groupReader that makes several plain system calls in a row.
type callGroup struct {
	buf   [callDepth * readaheadSize / 2]byte // first, so that it begins with a page: see sys.IsWhole
	limit int64                               // as Want.Limit
	most  int                                 // the most bytes to ask for of a file; 0: metadata
	want  int                                 // bytes that the last read asked for; fewer bytes are a whole file
	birth bool                                // metadata with the time of birth
	calls [perFile * callDepth]calls.Call
	parts [callDepth]unix.Iovec
	stats [callDepth]unix.Stat_t
	statx [callDepth]unix.Statx_t
	wait  int             // groups to read before cachedOpen is used again
	whole [callDepth]bool // what was read of a file is certainly all of it
}

// cachedOpen opens a file that is known to the kernel's caches. A file that is mounted over the
// name may be on a file system that waits.
var cachedOpen = unix.OpenHow{Flags: sys.FileFlags | unix.O_LARGEFILE, Resolve: resolveCached | unix.RESOLVE_NO_XDEV}

// callGroups are kept from run to run.
var callGroups = sync.Pool{New: func() any { return new(callGroup) }}

// newCallGroup returns a groupReader, or nil, and how many files it takes at
// once. The groupReader reads files, with limit as in Want, or fetches only their metadata.
func newCallGroup(limit int64, statOnly, birth bool) (groupReader, int) {
	most := bytesWanted(limit)
	if statOnly {
		if most = 0; sys.FstatatCall == 0 && !birth {
			return nil, 0
		}
	}
	a := callGroups.Get().(*callGroup)
	a.limit, a.most, a.birth, a.wait = limit, most, birth, 0
	return a, callDepth
}

// bytesWanted returns how many bytes to ask for of each file.
func bytesWanted(limit int64) int {
	if limit < 0 || limit >= readaheadSize { // limit+1 may overflow
		return readaheadSize
	}
	return int(limit) + 1
}

func (a *callGroup) read(d Dir, files []names.Name) bool {
	if d.Kind != OnDiskForRings {
		return false
	}
	size := len(a.buf) / len(files) &^ 511
	a.want = min(a.most, size)
	unsure := a.want
	if sys.FstatCall == 0 || d.Sizes == nil {
		unsure = 1 // never
	}
	n := 0
	for i, name := range files {
		p := uintptr(name.Pointer())
		switch {
		case a.most == 0 && a.birth:
			a.calls[i] = calls.Call{Trap: unix.SYS_STATX, Args: [6]uintptr{uintptr(d.FD), p, unix.AT_SYMLINK_NOFOLLOW, sys.StatxMask, uintptr(unsafe.Pointer(&a.statx[i]))}}
			n++
			continue
		case a.most == 0:
			a.calls[i] = calls.Call{Trap: sys.FstatatCall, Args: [6]uintptr{uintptr(d.FD), p, uintptr(unsafe.Pointer(&a.stats[i])), unix.AT_SYMLINK_NOFOLLOW}}
			n++
			continue
		}
		a.parts[i].Base = &a.buf[i*size]
		a.parts[i].SetLen(a.want)
		a.calls[n] = calls.Call{Trap: unix.SYS_OPENAT, Args: [6]uintptr{uintptr(d.FD), p, sys.FileFlags | unix.O_LARGEFILE}}
		a.calls[n+1] = calls.Call{Trap: unix.SYS_PREADV2, Args: [6]uintptr{1: uintptr(unsafe.Pointer(&a.parts[i])), 2: 1, 5: unix.RWF_NOWAIT}, Chained: true}
		a.calls[n+2] = calls.Call{Trap: sys.FstatCall, Args: [6]uintptr{1: uintptr(unsafe.Pointer(&a.stats[i]))}, Chained: true, Unsure: unsure}
		a.calls[n+3] = calls.Call{Trap: unix.SYS_CLOSE, Chained: true}
		n += perFile
	}
	a.run(a.calls[:n])
	runtime.KeepAlive(files)
	for i := range files {
		a.whole[i] = a.most > 0 && a.isWhole(d, i)
	}
	return true
}

// run makes the calls, with cachedOpen if files were cached lately. On Android, a process that
// calls openat2 may be killed.
func (a *callGroup) run(c []calls.Call) {
	if a.most == 0 || a.wait > 0 || knobs.Reported || runtime.GOOS == "android" {
		a.wait = max(a.wait-1, 0)
		calls.Run(c, nil)
	} else if !calls.Run(c, &cachedOpen) {
		a.wait = reportedGroups
	}
}

// isWhole reports whether the bytes read of file i of d are certainly all of it.
func (a *callGroup) isWhole(d Dir, i int) bool {
	n := a.calls[perFile*i+1].Result
	if n <= 0 || a.calls[perFile*i+2].Result != 0 {
		return n > 0 && sys.IsWhole(n, a.want)
	}
	s := &a.stats[i]
	return s.Size == int64(n) && s.Mode&unix.S_IFMT == unix.S_IFREG && (a.limit < 0 || s.Size <= a.limit) &&
		d.Sizes.HasTrueSize(sys.Stat{Device: uint64(s.Dev)})
}

func (a *callGroup) get(i int, c *Content) bool {
	if a.most == 0 {
		if a.calls[i].Result != 0 {
			return false
		}
		var s sys.Stat
		if a.birth {
			s = sys.StatOfStatx(&a.statx[i])
		} else {
			s = sys.StatOf(&a.stats[i])
		}
		return c.SetStat("stat", s) == nil
	}
	if a.whole[i] {
		c.Data = unsafe.Slice(a.parts[i].Base, a.calls[perFile*i+1].Result)
	}
	return a.whole[i]
}

func (a *callGroup) isUncached(i int) bool {
	return a.most > 0 && a.calls[perFile*i+1].Err() == unix.EAGAIN
}

func (a *callGroup) close() { callGroups.Put(a) }
