//go:build linux && !fileproc_unix && !fileproc_generic

package backend

import (
	"bytes"
	"cmp"
	"math"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/fileproc/fileproc/internal/content"
	"github.com/fileproc/fileproc/internal/dirent"
	"github.com/fileproc/fileproc/internal/knobs"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
	"golang.org/x/sys/unix"
)

// shortCall is how many bytes of a listing one call asks for unless calls wait. They
// take some 50 µs of work. Go's monitor takes the processor from a goroutine that it sees
// in the same call twice, at least 20 µs apart; see visitsInARow.
const shortCall = 4 << 10

// linuxDir lists with getdents64 and parses the records in place.
type linuxDir struct {
	fdDir
	waits bool          // a call of getdents64 took long
	begun bool          // list has been called
	whole *wholeListing // unless nil, the directory is listed whole
	at    int64         // the position of the next entry
	end   int64         // unless 0, the position where the listing ends: d lists a part of the directory

	// What is known of the file system. 0 is unknown.
	typ    atomic.Int64  // what fileSystem returns
	device atomic.Uint64 // once HasTrueSize has asked
}

var (
	_ Directory = (*linuxDir)(nil)
	_ Divisible = (*linuxDir)(nil)
)

func OpenRoot(root string) (Directory, error) { return openPath((*linuxDir)(nil), root) }
func OpenRootToSearch(root string) (Directory, error) {
	return openPathToSearch((*linuxDir)(nil), root)
}

func (*linuxDir) newDir(fd int, _ string) Directory { return newLinuxDir(fd) }

func newLinuxDir(fd int) *linuxDir {
	d := &linuxDir{fdDir: fdDir{fd: fd}}
	d.backend = d
	return d
}

// OpenDir passes the type of d's file system on to the subdirectory, unless name is a mount
// point. If the type is not known, there is nothing to pass on, and openat does. On Android it
// does not try: a process that calls openat2 may be killed.
func (d *linuxDir) OpenDir(name names.Name) (Directory, error) {
	typ, refused := d.typ.Load(), false
	if typ > 0 && runtime.GOOS != "android" && !knobs.NoOpenat2.Load() {
		fd, err := sys.Openat2(d.fd, name, &unix.OpenHow{Flags: sys.DirFlags | unix.O_NOFOLLOW, Resolve: unix.RESOLVE_NO_XDEV})
		if err == nil {
			sub := newLinuxDir(fd)
			sub.typ.Store(typ)
			return sub, nil
		}
		refused = err == unix.ENOSYS || err == unix.EPERM
	}
	sub, err := d.fdDir.OpenDir(name)
	if refused && err == nil {
		knobs.NoOpenat2.Store(true)
	}
	return sub, err
}

func (d *linuxDir) List(l *Listing) (bool, error) {
	if d.whole != nil {
		more, err := d.whole.list(d, l)
		if !more && !sys.IsInterrupted(err) {
			d.whole = nil
		}
		return more, err
	}
	return d.listSome(l)
}

// listSome is List for a directory that is not listed whole.
func (d *linuxDir) listSome(l *Listing) (bool, error) {
	first := !d.begun
	d.begun = true
	// After a call that gives little, the next may be the last. Making it at once
	// avoids waking other workers for a listing that is over.
	for buf := l.recordBuffer(); len(buf) > listingSize/2; {
		ask := shortCall
		if d.waits && d.end == 0 {
			ask = len(buf)
		}
		start := time.Now()
		n, err := d.getdents(buf[:ask], l.addRecord)
		took := time.Since(start)
		d.waits = d.waits || took > 10*knobs.SlowCall
		switch {
		case sys.IsInterrupted(err) && first:
			l.Reset()
			return false, d.beginAgain(err)
		case sys.IsInterrupted(err) && len(l.Entries) > 0: // the next call of list goes on
			return true, nil
		case err != nil:
			return false, err
		}
		if first && len(buf) < listingSize { // the second call
			first = false
			if several := n > 0 || len(l.Entries) > oneAnswer || listingSize-len(buf) > shortCall-maxRecord; several && d.listsWhole(l) {
				return true, nil
			}
		}
		if n == 0 {
			return false, nil
		}
		if d.end > 0 && took > knobs.SlowCall { // a call of list, too, is to wait for one block only: see pace.Disk
			return true, nil
		}
		buf = buf[n:]
	}
	return true, nil
}

// listsWhole reports whether a directory whose listing takes several calls is listed whole: the
// next call of List then begins again.
func (d *linuxDir) listsWhole(l *Listing) bool {
	if !d.losesPosition() {
		return false
	}
	d.whole = new(wholeListing)
	l.Reset()
	return true
}

// beginAgain lets the next call of list begin again, and decide anew whether to list whole. It
// returns why, or why that is impossible.
func (d *linuxDir) beginAgain(why error) error {
	if err := d.rewind(); err != nil {
		return err
	}
	d.begun = false
	return why
}

func (d *linuxDir) rewind() error {
	if _, err := unix.Seek(d.fd, 0, unix.SEEK_SET); err != nil {
		return &sys.Error{Op: "lseek", Err: err}
	}
	return nil
}

// getdents calls add for each record of the next getdents64 until add fails or the listing
// ends. It returns how many bytes of buf the records take, and 0 at the end.
func (d *linuxDir) getdents(buf []byte, add func(dirent.Record) error) (int, error) {
	n, err := sys.IgnoringEINTR(func() (int, error) { return sys.Getdents(d.fd, buf) })
	for first, records := true, buf[:max(n, 0)]; len(records) > 0; first = false {
		var r dirent.Record
		if r, records, err = dirent.Next(records); err != nil {
			break
		}
		ends := d.end > 0 && r.Off >= d.end
		if ends && first { // of later records, the offset of the record before tells where they are
			if behind, err := d.isBehindEnd(r); behind || err != nil {
				return 0, err
			}
		}
		if err := add(r); err != nil {
			return n, err
		}
		if d.at = r.Off; ends {
			return 0, nil
		}
	}
	if err != nil {
		err = &sys.Error{Op: "getdents64", Err: err}
	}
	return n, err
}

// isBehindEnd reports whether the entry r, before which d's part has no more entries, is not in
// that part either: entries between may have been removed.
func (d *linuxDir) isBehindEnd(r dirent.Record) (behind bool, err error) {
	if _, err = unix.Seek(d.fd, d.end, unix.SEEK_SET); err != nil {
		return false, &sys.Error{Op: "lseek", Err: err}
	}
	rest := linuxDir{fdDir: fdDir{fd: d.fd}}
	for n, buf := 1, make([]byte, shortCall); n > 0 && !behind && rest.at <= r.Off; {
		n, err = rest.getdents(buf, func(e dirent.Record) error {
			behind = behind || bytes.Equal(e.Name, r.Name)
			return nil
		})
	}
	if err != nil { // the call may be made again
		_, _ = unix.Seek(d.fd, d.at, unix.SEEK_SET)
	}
	return behind, err
}

// losesPosition reports whether a listing that takes several calls may leave out, or
// give twice, an entry that nobody touches, if other entries come and go meanwhile. The
// client of SMB counts entries. The client of NFS uses the server's positions, which on
// some file systems (tmpfs before Linux 6.6) do not survive a change.
func (d *linuxDir) losesPosition() bool {
	switch d.fileSystem() {
	case unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unknownFileSystem:
		return true
	}
	return false
}

// times returns when d's entries and when d itself changed last, or zero times if that is
// unknown. It asks the server, since the client may cache times for a minute.
func (d *linuxDir) times() (times [2]time.Time) {
	var st unix.Statx_t
	_, err := sys.IgnoringEINTR(func() (int, error) {
		return 0, sys.Statx(d.fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_FORCE_SYNC, unix.STATX_MTIME|unix.STATX_CTIME, &st)
	})
	if err == nil {
		times = [2]time.Time{sys.TimeOfStatx(st.Mtime), sys.TimeOfStatx(st.Ctime)}
	}
	return times
}

// unknownFileSystem is what fileSystem returns if fstatfs fails.
const unknownFileSystem = -1

// fileSystem returns the type of d's file system, as in the list of statfs(2). It asks
// the kernel once, and not at all if d was opened from a directory that had asked: on
// ext4, fstatfs locks counters and adds up those of all processors.
func (d *linuxDir) fileSystem() int64 {
	if typ := d.typ.Load(); typ != 0 {
		return typ
	}
	var st unix.Statfs_t
	_, err := sys.IgnoringEINTR(func() (int, error) { return 0, sys.Fstatfs(d.fd, &st) })
	typ := int64(uint32(st.Type)) // 32 bits, signed on some platforms
	if err != nil {
		typ = unknownFileSystem
	}
	d.typ.Store(typ)
	return typ
}

// HasTrueSize is that of content.Sized, for the files of d: the file system keeps sizes exact, and the file is on it, not mounted over the name.
func (d *linuxDir) HasTrueSize(s sys.Stat) bool {
	switch d.fileSystem() {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC, unix.TMPFS_MAGIC:
	default:
		return false
	}
	device := d.device.Load()
	if device == 0 {
		own, err := sys.Fstat(d.fd)
		if err != nil {
			return false
		}
		device = own.Device
		d.device.Store(device)
	}
	return s.Device == device
}

func (d *linuxDir) Close() { unix.Close(d.fd) }

// DiskOf says how several files of d can be read together. On FUSE, reads through an
// io_uring return wrong content without an error (Linux 6.18, direct I/O). On overlayfs, a
// thread of the kernel makes each such read, so that the disk gets them one by one.
func DiskOf(d Directory) content.Dir {
	dir, ok := d.(*linuxDir)
	if !ok {
		return content.Dir{}
	}
	switch dir.fileSystem() {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC:
		return content.Dir{FD: dir.fd, Kind: content.OnDiskForRings, Sizes: dir}
	case unix.OVERLAYFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC:
		return content.Dir{FD: dir.fd, Kind: content.OnDisk}
	}
	return content.Dir{}
}

// Halve is that of divisible. The file system must allow a seek to any position, also to one that
// it has not given, must keep the positions of entries, and must list entries in their order.
func (d *linuxDir) Halve(least int64) (Directory, bool) {
	var (
		st   unix.Stat_t
		last = int64(math.MaxInt64)
	)
	typ := d.fileSystem()
	_ = unix.Fstat(d.fd, &st) // if it fails, the size is 0
	switch {
	case typ == unix.XFS_SUPER_MAGIC:
		last = st.Size / 8 // positions are offsets, in units of 8 bytes
	case typ != unix.EXT4_SUPER_MAGIC || d.at <= math.MaxUint32:
		return nil, false // on ext4 positions are hashes of names: of 63 bits, unless they are small
	}
	end := min(cmp.Or(d.end, math.MaxInt64), last)
	middle := d.at/2 + end/2
	left := float64(end-d.at) / float64(last) * float64(st.Size)
	if middle <= d.at || left < float64(least) {
		return nil, false
	}
	fd, err := sys.Openat(d.fd, names.Dot, sys.DirFlags)
	if err != nil {
		return nil, false
	}
	if _, err = unix.Seek(fd, middle, unix.SEEK_SET); err != nil {
		unix.Close(fd)
		return nil, false
	}
	latter := newLinuxDir(fd)
	latter.begun, latter.at, latter.end = true, middle, cmp.Or(d.end, math.MaxInt64)
	latter.typ.Store(typ)
	d.end = middle
	return latter, true
}
