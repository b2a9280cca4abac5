//go:build linux && !fileproc_unix && !fileproc_generic

package fileproc

import (
	"io/fs"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/fileproc/fileproc/internal/dirent"
	"github.com/fileproc/fileproc/internal/names"
	"golang.org/x/sys/unix"
)

const backendName = "linux"

// listingSize is the size in bytes of the records of one directory.list.
const listingSize = 32 << 10

// shortCall is how many bytes of a listing one call asks for, some 50 µs of
// work, unless calls wait. Go's monitor takes the processor from a call that it
// sees twice, at least 20 µs apart; see visitsInARow.
const shortCall = 4 << 10

// linuxDir lists with getdents64 and parses the records in place.
type linuxDir struct {
	fdDir
	typ   atomic.Int64  // fileSystem's answer
	waits bool          // a call of list took long
	begun bool          // list was called
	whole *wholeListing // of a directory that is listed so
}

var _ directory = (*linuxDir)(nil)

func newDir(fd int, _ string) directory { return &linuxDir{fdDir: fdDir{fd: fd}} }

// noOpenat2 says that the kernel (before Linux 5.6) or a seccomp filter refuses
// openat2.
var noOpenat2 atomic.Bool

// openDir passes on what is known of d's file system, unless name is a mount point.
// Android may kill a process that tries to find out.
func (d *linuxDir) openDir(name names.Name) (directory, error) {
	if typ := d.typ.Load(); typ != 0 && runtime.GOOS != "android" && !noOpenat2.Load() {
		fd, err := openat2(d.fd, name, &unix.OpenHow{Flags: dirFlags | unix.O_NOFOLLOW, Resolve: unix.RESOLVE_NO_XDEV})
		if err == nil {
			sub := &linuxDir{fdDir: fdDir{fd: fd}}
			sub.typ.Store(typ)
			return sub, nil
		}
		if err == unix.ENOSYS || err == unix.EPERM {
			noOpenat2.Store(true)
		}
	}
	return d.fdDir.openDir(name)
}

func (d *linuxDir) list(l *listing) (bool, error) {
	if d.whole != nil {
		return d.listWhole(l)
	}
	first := !d.begun
	d.begun = true
	// After a call that gives little, the next may be the last. Making it at once
	// avoids waking other workers for a listing that is over.
	for buf := l.recordBuffer(); len(buf) > listingSize/2; {
		ask := shortCall
		if d.waits {
			ask = len(buf)
		}
		start := time.Now()
		n, err := getdents(d.fd, buf[:ask], l.take)
		d.waits = d.waits || time.Since(start) > 10*slowCall
		if err != nil {
			return false, err
		}
		if first && len(buf) < listingSize { // the second call
			first = false
			several := n > 0 || len(l.entries) > oneAnswer || listingSize-len(buf) > shortCall-maxRecord
			if several && d.losesPosition() {
				d.whole = new(wholeListing)
				for _, e := range l.entries {
					d.whole.keep(e)
				}
				l.reset()
				return true, nil
			}
		}
		if n == 0 {
			return false, nil
		}
		buf = buf[n:]
	}
	return true, nil
}

func (l *listing) take(r dirent.Record) error {
	if !names.IsDot(r.Name) {
		l.add(r.Name, direntType(r.Type), r.Ino)
	}
	return nil
}

// recordBuffer returns memory for the records, which stays with l.
func (l *listing) recordBuffer() []byte {
	if l.records == nil {
		l.records = make([]byte, listingSize)
	}
	return l.records[:listingSize]
}

// In tests these are a file system's own.
var (
	getdents64 = unix.Getdents
	fstatfs    = unix.Fstatfs
)

// getdents calls add for each record of the next getdents64 until add fails. It
// returns how many bytes of buf the records take, and 0 at the end.
func getdents(fd int, buf []byte, add func(dirent.Record) error) (int, error) {
	n, err := ignoringEINTR(func() (int, error) { return getdents64(fd, buf) })
	for records := buf[:max(n, 0)]; len(records) > 0 && err == nil; {
		var r dirent.Record
		if r, records, err = dirent.Next(records); err == nil {
			if err := add(r); err != nil {
				return n, err
			}
		}
	}
	if err != nil {
		err = &sysError{"getdents64", err}
	}
	return n, err
}

// unknownFileSystem is fileSystem's answer if fstatfs fails.
const unknownFileSystem = -1

// fileSystem returns the type of d's file system, as statfs(2) lists them. It asks
// the kernel once, and not at all if d was opened from a directory that had asked,
// since for ext4 fstatfs locks counters and adds up those of all processors.
func (d *linuxDir) fileSystem() int64 {
	if typ := d.typ.Load(); typ != 0 {
		return typ
	}
	var st unix.Statfs_t
	_, err := ignoringEINTR(func() (int, error) { return 0, fstatfs(d.fd, &st) })
	typ := int64(uint32(st.Type)) // 32 bits, signed on some platforms
	if err != nil {
		typ = unknownFileSystem
	}
	d.typ.Store(typ)
	return typ
}

// losesPosition reports whether a listing that takes several calls may leave out,
// or give twice, entries that nobody touches, if others come and go meanwhile. The
// client of SMB counts entries. That of NFS knows the server's positions, which on
// some file systems (tmpfs before Linux 6.6) do not survive a change.
func (d *linuxDir) losesPosition() bool {
	switch d.fileSystem() {
	case unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unknownFileSystem:
		return true
	}
	return false
}

const (
	// oneAnswer is how many entries any server gives in one answer. The client of NFS
	// asks for 4 KiB and more, of which an entry with its attributes takes up to 600.
	oneAnswer = 6
	// maxRecord is the size in bytes of the longest record, rounded up. SMB has names
	// of 255 characters, of up to three bytes each.
	maxRecord = 2 << 10
	// wholeTries is how often a directory is listed that changes all the time. On NFS
	// one listing leaves out one entry in some 5,000 (docs/reliability.md).
	wholeTries = 4
	// wholePart is how many entries one call of list gives of a wholeListing.
	wholePart = 1024
)

// coarseTime is the coarsest unit of a directory's time, the 2 s of FAT, and more.
var coarseTime = 3 * time.Second

// wholeSize is about how many bytes of memory the entries of a directory may take
// that is listed whole: those of 300,000 names of 10 bytes.
var wholeSize = 32 << 20

// A wholeListing lists a directory from its beginning, and again if it has changed
// meanwhile, before it gives what any of the listings had.
type wholeListing struct {
	entries  []listedEntry
	names    names.Arena
	seen     map[string]struct{} // the names of all entries, also of those that were given; nil when nothing is left
	size     int                 // in bytes, of those
	midway   bool                // a listing is under way
	listings int                 // that were begun
	began    [2]time.Time        // linuxDir.times
	over     bool                // nothing is left to be listed
	err      error
}

// listWhole is list with a wholeListing. It makes one call of getdents64, after
// which a run may end.
func (d *linuxDir) listWhole(l *listing) (more bool, err error) {
	w := d.whole
	ends := func() bool { return w.over || w.err != nil }
	isFull := w.size > wholeSize
	switch {
	case !isFull && !ends():
		d.listMore(w, l.recordBuffer())
		if !ends() {
			return true, nil
		}
	case isFull && len(w.entries) == 0 && !ends(): // the rest of this listing is given at once
		n, err := getdents(d.fd, l.recordBuffer(), func(r dirent.Record) error {
			if _, ok := w.seen[string(r.Name)]; ok {
				return nil
			}
			return l.take(r)
		})
		return n > 0, err
	}
	n := min(len(w.entries), wholePart)
	l.entries = append(l.entries, w.entries[:n]...)
	clear(w.entries[:n])
	w.entries = w.entries[n:]
	if len(w.entries) > 0 || !ends() {
		return true, nil
	}
	d.whole, d.begun = nil, true
	return false, w.err
}

// listMore makes one call of the listing, at the end of which it begins another if
// the directory has changed.
func (d *linuxDir) listMore(w *wholeListing, buf []byte) {
	if !w.midway {
		w.midway = true
		w.listings++
		w.began = d.times()
		if _, err := unix.Seek(d.fd, 0, unix.SEEK_SET); err != nil {
			w.err = &sysError{"lseek", err}
			return
		}
	}
	// The entry between two calls is in danger. With fewer bytes than in the listing
	// before, another is.
	buf = buf[:len(buf)-(w.listings-1)*len(buf)/8]
	n, err := getdents(d.fd, buf, func(r dirent.Record) error {
		if !names.IsDot(r.Name) {
			w.keep(listedEntry{r.Name, direntType(r.Type), r.Ino})
		}
		return nil
	})
	if n > 0 || err != nil {
		w.err = err
		return
	}
	w.midway = false
	ended := d.times()
	same := ended == w.began && !ended[0].IsZero()
	if min(time.Since(ended[0]), time.Since(ended[1])) < coarseTime {
		same = same && w.listings > 1 // another change may have left the times as they were
	}
	if w.over = same || w.listings == wholeTries; w.over {
		w.seen = nil
	}
}

// keep adds a copy of e unless there is an entry of that name.
func (w *wholeListing) keep(e listedEntry) {
	if _, ok := w.seen[string(e.name)]; ok {
		return
	}
	if w.seen == nil {
		w.seen = map[string]struct{}{}
	}
	const cost = 100 // bytes of an entry without its name, measured with 250,000
	w.size += cost + len(e.name)
	name := w.names.Add(e.name)
	e.name = name.Bytes()
	w.seen[name.String()] = struct{}{}
	w.entries = append(w.entries, e)
}

// times returns when d's entries and d itself have changed, zero times if that
// fails. It asks the server, since the client may keep times for a minute.
func (d *linuxDir) times() (times [2]time.Time) {
	var st unix.Statx_t
	_, err := ignoringEINTR(func() (int, error) {
		return 0, unix.Statx(d.fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_FORCE_SYNC, unix.STATX_MTIME|unix.STATX_CTIME, &st)
	})
	if err == nil {
		times = [2]time.Time{timeOfStatx(st.Mtime), timeOfStatx(st.Ctime)}
	}
	return times
}

func (d *linuxDir) close() { unix.Close(d.fd) }

// direntType is fileType of a record. Its type is an inode's mode without the
// lower 12 bits.
func direntType(t uint8) fs.FileMode { return fileType(uint32(t) << 12) }

// openat is unix.Openat without its copy of the name.
func openat(dirfd int, name names.Name, flags int) (int, error) {
	return ignoringEINTR(func() (int, error) {
		fd, _, errno := unix.Syscall6(unix.SYS_OPENAT, uintptr(dirfd), uintptr(name.Pointer()), uintptr(flags|unix.O_LARGEFILE), 0, 0, 0)
		if errno != 0 {
			return -1, errno
		}
		return int(fd), nil
	})
}

// openat2 is unix.Openat2 without its copy of the name.
func openat2(dirfd int, name names.Name, how *unix.OpenHow) (int, error) {
	how.Flags |= unix.O_LARGEFILE
	fd, _, errno := unix.Syscall6(unix.SYS_OPENAT2, uintptr(dirfd), uintptr(name.Pointer()), uintptr(unsafe.Pointer(how)), unsafe.Sizeof(*how), 0, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

// readCached reads what the page cache has of the file's beginning. It passes
// an offset so that a FIFO, whose content could be as short as a small file's,
// refuses (ESPIPE). Linux has the flag since 4.14. EOPNOTSUPP means an older
// kernel, or a file system without such a read: FUSE, proc, sysfs, overlayfs,
// and tmpfs.
func readCached(fd int, p []byte) (int, error) {
	return unix.Preadv2(fd, [][]byte{p}, 0, unix.RWF_NOWAIT)
}
