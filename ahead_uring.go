//go:build linux && !android && !fileproc_unix && !fileproc_generic && !fileproc_nouring

package fileproc

import (
	"github.com/fileproc/fileproc/internal/uring"
	"golang.org/x/sys/unix"
)

// ringAhead reads ahead by io_uring. Android kills processes that try it.
type ringAhead struct {
	ring *uring.Ring
	want int // bytes to be asked for, so that a file that gives fewer is whole
	dir  *linuxDir
	good bool // what hasGoodCache said of dir
}

// newReadAhead returns nil where there is no io_uring: before Linux 5.17, or
// where it is forbidden (in containers by default, by sysctl, by seccomp), or
// its resources have run out.
func newReadAhead(limit int64) readAhead {
	ring, err := uring.New(aheadDepth, aheadSize)
	if err != nil {
		return nil
	}
	want := int64(aheadSize)
	if limit >= 0 {
		want = min(want, limit+1)
	}
	return &ringAhead{ring: ring, want: int(want)}
}

func (a *ringAhead) read(d directory, names []string) bool {
	dir, ok := d.(*linuxDir)
	if !ok {
		return false
	}
	if dir != a.dir {
		a.dir, a.good = dir, hasGoodCache(dir.fd)
	}
	// A direct open, which makes no descriptor, refuses O_CLOEXEC.
	return a.good && a.ring.Read(dir.fd, names, fileFlags&^unix.O_CLOEXEC, a.want, unix.RWF_NOWAIT) == nil
}

// bytes leaves to the plain way what readCached is not sure of either.
func (a *ringAhead) bytes(i int) []byte {
	p := a.ring.Bytes(i)
	if len(p) >= a.want || len(p)%512 == 0 {
		return nil
	}
	return p
}

func (a *ringAhead) close() { a.ring.Close() }

// hasGoodCache reports whether fd is on a file system of which reads through
// io_uring are known to be right and to come from the page cache. On FUSE they
// are wrong without an error (Linux 6.18, direct I/O).
func hasGoodCache(fd int) bool {
	var st unix.Statfs_t
	if unix.Fstatfs(fd, &st) != nil {
		return false
	}
	switch int64(st.Type) {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC:
		return true
	}
	return false
}
