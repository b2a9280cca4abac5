//go:build !fileproc_generic && (aix || darwin || dragonfly || freebsd || linux || netbsd || openbsd || solaris)

package backend

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"sync/atomic"
	"time"

	"github.com/fileproc/fileproc/internal/content"
	"github.com/fileproc/fileproc/internal/gitrepo"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/replace"
	"github.com/fileproc/fileproc/internal/sys"
	"golang.org/x/sys/unix"
)

// The Linux and the Unix backend share directories that are descriptors.

// fdDir has the methods of a directory that need only its descriptor.
type fdDir struct {
	fd int
	// noCachedRead says that the file system does not support reads that do not wait.
	noCachedRead atomic.Bool
	backend      fdBackend // the directory of which this is a part
}

// An fdBackend is what differs between directories that are descriptors.
type fdBackend interface {
	// newDir returns a directory of the same backend for an open descriptor.
	newDir(fd int, name string) Directory
	// HasTrueSize is that of content.Sized, for the files of the directory.
	HasTrueSize(s sys.Stat) bool
}

// openPath opens root with b, which need not be open.
func openPath(b fdBackend, root string) (Directory, error) {
	return openPathWith(b, sys.DirFlags, root)
}

func openPathToSearch(b fdBackend, root string) (Directory, error) {
	d, err := openPath(b, root)
	if errors.Is(err, fs.ErrPermission) {
		d, err = searched(openPathWith(b, sys.SearchFlags, root))
	}
	return d, err
}

// searched returns d, which was opened with sys.SearchFlags, if d may be searched. The
// open alone does not show that: on Linux it uses O_PATH, which needs no right at all.
func searched(d Directory, err error) (Directory, error) {
	if err == nil {
		if _, err = d.Stat(names.Dot); err != nil {
			d.Close()
			return nil, err
		}
	}
	return d, err
}

func openPathWith(b fdBackend, flags int, root string) (Directory, error) {
	fd, err := sys.IgnoringEINTR(func() (int, error) { return unix.Open(root, flags, 0) })
	if err != nil {
		return nil, &sys.Error{Op: "open", Err: err}
	}
	return b.newDir(fd, root), nil
}

// Number returns the descriptor, which was the lowest that was free.
func (d *fdDir) Number() int { return d.fd }

func (d *fdDir) OpenDir(name names.Name) (Directory, error) {
	fd, err := sys.Openat(d.fd, name, sys.DirFlags|unix.O_NOFOLLOW)
	if err != nil {
		return nil, d.openError(name, err, fs.ModeDir)
	}
	return d.backend.newDir(fd, name.String()), nil
}

func (d *fdDir) OpenDirToSearch(name names.Name) (Directory, error) {
	fd, err := sys.Openat(d.fd, name, sys.SearchFlags|unix.O_NOFOLLOW)
	if err != nil {
		return nil, d.openError(name, err, fs.ModeDir)
	}
	return searched(d.backend.newDir(fd, name.String()), nil)
}

func (d *fdDir) Open(name names.Name, spare content.File) (content.File, error) {
	fd, err := sys.Openat(d.fd, name, sys.FileFlags)
	if err != nil {
		return nil, d.openError(name, err, 0)
	}
	f, ok := spare.(*fdFile)
	if !ok {
		f = new(fdFile)
	}
	*f = fdFile{fd: fd, dir: d, reach: f.reach}
	return f, nil
}

// openError marks the error of an open as sys.ErrChanged if the name is no longer what was
// listed. For a link, a socket or a file in a directory's place, the error differs by
// system, so openError stats the name unless the error is clear.
func (d *fdDir) openError(name names.Name, err error, listed fs.FileMode) error {
	switch {
	case err == unix.ENOENT || err == unix.ENOTDIR || sys.IsOtherKind(err):
		err = sys.Changed{Err: err}
	case sys.IsScarce(err) || sys.MayPass(err):
	default:
		if s, e := d.Stat(name); e == nil && s.Mode.Type() != listed {
			err = sys.Changed{Err: err}
		}
	}
	return &sys.Error{Op: "openat", Err: err}
}

func (d *fdDir) Stat(name names.Name) (sys.Stat, error) { return sys.StatAt(d.fd, name) }

func (d *fdDir) OpenFile(name names.Name, path string) (*os.File, error) {
	fd, err := sys.Openat(d.fd, name, sys.FileFlags)
	if err != nil {
		return nil, d.openError(name, err, 0)
	}
	s, err := sys.Fstat(fd)
	if err == nil {
		err = sys.CheckRegular("fstat", s.Mode)
	}
	if err == nil {
		// The caller reads the file like any other. With O_NONBLOCK, package
		// os would try to poll it.
		err = unix.SetNonblock(fd, false)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// Info is that of Informed. It needs no right to read the entry where the system has
// sys.PathFlags. Elsewhere it looks up regular files alone: the open of a device may have
// an effect.
func (d *fdDir) Info(name names.Name, as string) (fs.FileInfo, error) {
	var f *os.File
	if sys.PathFlags != 0 {
		fd, err := sys.Openat(d.fd, name, sys.PathFlags)
		if err != nil {
			return nil, d.openError(name, err, 0)
		}
		f = os.NewFile(uintptr(fd), as)
	} else {
		s, err := d.Stat(name)
		if err == nil {
			err = sys.CheckRegular("fstatat", s.Mode)
		}
		if err == nil {
			f, err = d.OpenFile(name, as)
		}
		if err != nil {
			return nil, err
		}
	}
	defer f.Close()
	return f.Stat()
}

func (d *fdDir) ReadLink(name names.Name) (string, error) {
	text, err := sys.ReadLinkAt(d.fd, name)
	if err == unix.ENOENT || err == unix.EINVAL {
		err = sys.Changed{Err: err}
	}
	if err != nil {
		return "", &sys.Error{Op: "readlinkat", Err: err}
	}
	return text, nil
}

func (d *fdDir) Xattrs() (map[string][]byte, error) { return sys.Xattrs(d.fd) }

func (d *fdDir) XattrsOf(name names.Name) (s sys.Stat, all map[string][]byte, err error) {
	if sys.PathFlags == 0 {
		return s, nil, errors.ErrUnsupported
	}
	fd, err := sys.Openat(d.fd, name, sys.PathFlags)
	if err != nil {
		return s, nil, d.openError(name, err, 0)
	}
	defer unix.Close(fd)
	if s, err = sys.Fstat(fd); err == nil {
		all, err = sys.Xattrs(fd)
	}
	return s, all, err
}

func (d *fdDir) Replace(name names.Name, content []byte, check replace.Check, durable bool) (s sys.Stat, err error) {
	p, err := d.prepare(name, content, check, durable)
	if err == nil {
		s, err = p.Commit(d.fd)
	}
	if replace.IsDone(err) && durable {
		err = cmp.Or(replace.AsUnsynced(replace.SyncDir(d.fd, name)), err)
	}
	return s, err
}

func (d *fdDir) prepare(name names.Name, content []byte, check replace.Check, durable bool) (replace.Pending, error) {
	old, err := sys.Openat(d.fd, name, sys.FileFlags)
	if err != nil {
		return replace.Pending{}, d.openError(name, err, 0)
	}
	defer unix.Close(old)
	return replace.Prepare(d.fd, old, name, content, check, durable)
}

func (d *fdDir) OpenSync() (Syncer, error) { return replace.OpenSync(d.fd, names.Dot) }

func (d *fdDir) Prepare(name names.Name, content []byte, check replace.Check) (replace.Pending, error) {
	return d.prepare(name, content, check, false)
}

func (d *fdDir) Commit(p replace.Pending, failed error) error {
	if failed == nil { // it may be long since Prepare
		failed = p.Recheck(d.fd)
	}
	if failed != nil {
		return errors.Join(failed, p.Discard(d.fd))
	}
	_, err := p.Commit(d.fd)
	return err
}

func (d *fdDir) Clean(name names.Name) error {
	s, err := d.Stat(name)
	if err == nil && replace.IsStale(s) {
		err = replace.Remove(d.fd, name)
	}
	return err
}

// OpenAt and ModeAt are those of gitrepo.At.
func (d *fdDir) OpenAt(name string) (fs.File, error) {
	fd, err := sys.IgnoringEINTR(func() (int, error) { return unix.Openat(d.fd, name, sys.FileFlags&^unix.O_NOFOLLOW, 0) })
	if err != nil {
		return nil, &sys.Error{Op: "openat", Err: err}
	}
	return atFile{os.NewFile(uintptr(fd), name), fd}, nil
}

// An atFile is an open regular file, or another file whose metadata alone are used.
type atFile struct {
	*os.File
	fd int
}

// Read gives up a read that is interrupted each time. Package os would repeat it for ever.
func (f atFile) Read(p []byte) (int, error) {
	n, err := sys.IgnoringEINTR(func() (int, error) { return unix.Read(f.fd, p) })
	switch {
	case err != nil:
		return 0, &sys.Error{Op: "read", Err: err}
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

func (d *fdDir) ModeAt(name string, isLink bool) (fs.FileMode, error) {
	return sys.ModeAt(d.fd, name, isLink)
}

func (d *fdDir) GitAt(string) (gitrepo.At, error) { return d, nil }

func (d *fdDir) Identity() (Identity, error) {
	s, err := sys.Fstat(d.fd)
	if err != nil {
		return nil, err
	}
	return inodeID{s.Device, s.Inode}, nil
}

type inodeID struct{ device, number uint64 }

func (i inodeID) Same(other Identity) bool { return i == other }

func (i inodeID) Inode() (device, inode uint64) { return i.device, i.number }

// fdFile is an open file.
type fdFile struct {
	fd  int
	dir *fdDir
	off int64 // the end of what Cached has read, where Read continues

	uncached bool  // Cached has found nothing, and that the file has offsets
	begun    int64 // the end of what sys.ReadAhead was asked for
	reach    int64 // how many bytes it is asked for at a time; kept from file to file
}

func (f *fdFile) Cached(p []byte) (int, bool) {
	if f.dir.noCachedRead.Load() {
		return 0, false
	}
	n, err := sys.ReadCached(f.fd, p, 0)
	if err == unix.EOPNOTSUPP || err == unix.ENOSYS {
		f.dir.noCachedRead.Store(true)
	}
	f.off, f.uncached = int64(n), err == unix.EAGAIN
	return n, sys.HoldsWhole(n, p) // only regular files and block devices give bytes here
}

func (f *fdFile) Read(p []byte) (int, error) {
	n, err := sys.IgnoringEINTR(func() (int, error) { return f.readOnce(p) })
	switch {
	case err == unix.EINTR:
		return 0, content.ErrWouldBlock
	case err == unix.EAGAIN: // a regular file that obeys O_NONBLOCK, such as /proc/kmsg
		waitReadable(f.fd)
		return 0, content.ErrWouldBlock
	case err != nil:
		return 0, &sys.Error{Op: "read", Err: err}
	}
	return n, nil
}

// waitReadable waits until fd can be read, for content.WaitSlice at most.
func waitReadable(fd int) {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(content.WaitSlice.Milliseconds()))
	if n > 0 || err != nil {
		time.Sleep(time.Millisecond) // a file system without poll reports every file as readable
	}
}

func (f *fdFile) readOnce(p []byte) (n int, err error) {
	switch {
	case f.uncached:
		f.uncached = false
		n, err = f.readFromDisk(p)
	case f.off == 0: // not every file supports an offset
		return unix.Read(f.fd, p)
	default:
		if n, err = sys.ReadCached(f.fd, p, f.off); err != nil {
			n, err = f.readFromDisk(p)
		}
	}
	f.off += int64(max(n, 0))
	return n, err
}

const (
	// leastAhead and mostAhead bound fdFile.reach. A fast disk needs as much for its requests to
	// follow each other while a worker copies.
	leastAhead = 2 << 20
	mostAhead  = 16 << 20
	// A read of 1 MiB that takes longer than slowRead halves the reach. A quick one doubles it: at such a
	// speed, two workers' mostAhead takes some 60 ms. A run that is cancelled waits for a read, and this
	// may wait for all that was begun before.
	slowRead  = 10 * time.Millisecond
	quickRead = 4 * time.Millisecond
)

// readFromDisk reads what is not in the page cache. If the file may have more than p holds, the
// disk first gets requests for what follows.
func (f *fdFile) readFromDisk(p []byte) (int, error) {
	if len(p) < content.MaxRead {
		return unix.Pread(f.fd, p, f.off)
	}
	f.reach = max(f.reach, leastAhead)
	f.begun = sys.ReadAhead(f.fd, p, max(f.begun, f.off), f.off+f.reach)
	start := time.Now()
	n, err := unix.Pread(f.fd, p, f.off)
	f.reach = nextReach(f.reach, time.Since(start))
	return n, err
}

// nextReach returns the reach after a read that took the time d.
func nextReach(reach int64, d time.Duration) int64 {
	switch {
	case d > slowRead:
		reach /= 2
	case d < quickRead:
		reach *= 2
	}
	return min(max(reach, leastAhead), mostAhead)
}

// Skip is that of content.Skipper. If the file has no offset, Read fails.
func (f *fdFile) Skip(n int64) bool {
	f.off = n
	return true
}

// HasTrueSize is that of content.Sized.
func (f *fdFile) HasTrueSize(s sys.Stat) bool { return f.dir.backend.HasTrueSize(s) }

func (f *fdFile) Stat() (sys.Stat, error) { return sys.Fstat(f.fd) }

func (f *fdFile) Close() { unix.Close(f.fd) }
