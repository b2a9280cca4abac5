//go:build !fileproc_generic && (aix || darwin || dragonfly || freebsd || linux || netbsd || openbsd || solaris)

package fileproc

import (
	"io/fs"
	"os"
	"sync/atomic"
	"time"

	"github.com/fileproc/fileproc/internal/names"
	"golang.org/x/sys/unix"
)

// The Linux and the Unix backend share directories that are descriptors.

const (
	dirFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC
	// O_NONBLOCK keeps the open of a FIFO from waiting for a writer. It has no
	// effect on the regular files that stay open.
	fileFlags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
)

// fdDir is the part of a directory that needs only its descriptor.
type fdDir struct {
	fd int
	// noCachedRead says that the file system has no read that does not wait.
	noCachedRead atomic.Bool
}

func openRoot(root string) (directory, error) {
	fd, err := ignoringEINTR(func() (int, error) { return unix.Open(root, dirFlags, 0) })
	if err != nil {
		return nil, &sysError{"open", err}
	}
	return newDir(fd, root), nil
}

// number returns the descriptor: the lowest that was free.
func (d *fdDir) number() int { return d.fd }

func (d *fdDir) openDir(name names.Name) (directory, error) {
	fd, err := openat(d.fd, name, dirFlags|unix.O_NOFOLLOW)
	if err != nil {
		return nil, d.openError(name, err, fs.ModeDir)
	}
	return newDir(fd, name.String()), nil
}

func (d *fdDir) open(name names.Name, spare handle) (handle, error) {
	fd, err := openat(d.fd, name, fileFlags)
	if err != nil {
		return nil, d.openError(name, err, 0)
	}
	f, ok := spare.(*fdFile)
	if !ok {
		f = new(fdFile)
	}
	*f = fdFile{fd: fd, dir: d}
	return f, nil
}

// openError marks the error of an open as ErrChanged if the name is not what
// was listed. Systems differ in the error for a link, a socket or a file in a
// directory's place, so the name is looked up unless the error is clear.
func (d *fdDir) openError(name names.Name, err error, listed fs.FileMode) error {
	switch {
	case err == unix.ENOENT || err == unix.ENOTDIR || isOtherKind(err):
		err = changed{err}
	case isScarce(err) || isLeased(err):
	default:
		if s, e := d.stat(name); e == nil && s.Mode.Type() != listed {
			err = changed{err}
		}
	}
	return &sysError{"openat", err}
}

func (d *fdDir) stat(name names.Name) (Stat, error) {
	s, err := lookUp(d.fd, name.String())
	if err != nil {
		if err == unix.ENOENT {
			err = changed{err}
		}
		return Stat{}, &sysError{"fstatat", err}
	}
	return s, nil
}

// fstatat is lookUp where the birth time is in a unix.Stat_t, or nowhere.
func fstatat(dirfd int, name string) (Stat, error) {
	var st unix.Stat_t
	_, err := ignoringEINTR(func() (int, error) { return 0, unix.Fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	return statOf(&st), err
}

func (d *fdDir) openFile(name names.Name, path string) (*os.File, error) {
	fd, err := openat(d.fd, name, fileFlags)
	if err != nil {
		return nil, d.openError(name, err, 0)
	}
	s, err := fstat(fd)
	if err == nil {
		err = checkRegular("fstat", s.Mode)
	}
	if err == nil {
		// The caller reads it like any file. Without this, package os would
		// try to poll it.
		err = unix.SetNonblock(fd, false)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

func (d *fdDir) identity() (identity, error) {
	s, err := fstat(d.fd)
	if err != nil {
		return nil, err
	}
	return inodeID{s.Device, s.Inode}, nil
}

type inodeID struct{ device, number uint64 }

func (i inodeID) same(other identity) bool { return i == other }

func (i inodeID) inode() (device, inode uint64) { return i.device, i.number }

// fdFile is an open file.
type fdFile struct {
	fd  int
	dir *fdDir
	off int64 // the end of what cached read, where read continues
}

func (f *fdFile) cached(p []byte) (int, bool) {
	if f.dir.noCachedRead.Load() {
		return 0, false
	}
	n, err := readCached(f.fd, p)
	if err == unix.EOPNOTSUPP || err == unix.ENOSYS {
		f.dir.noCachedRead.Store(true)
	}
	if n <= 0 {
		return 0, false
	}
	f.off = int64(n)
	return n, isWhole(n, len(p)) // only regular files and block devices give bytes here
}

// isWhole reports whether the n bytes that a read from the page cache gave, of
// want that it asked for, are certain to be all of a regular file. Such a read
// falls short at the file's end, or between pages where the rest is not cached; of
// a block device, between sectors. So an odd length is the end of a regular file.
func isWhole(n, want int) bool { return n < want && n%512 != 0 }

func (f *fdFile) read(p []byte) (int, error) {
	n, err := ignoringEINTR(func() (int, error) { return f.readOnce(p) })
	switch {
	case err == unix.EAGAIN: // a regular file that obeys O_NONBLOCK, such as /proc/kmsg
		waitReadable(f.fd)
		return 0, errWouldBlock
	case err != nil:
		return 0, &sysError{"read", err}
	}
	return n, nil
}

// waitReadable waits until fd can be read, for waitSlice at most.
func waitReadable(fd int) {
	start := time.Now()
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(waitSlice.Milliseconds()))
	if (n > 0 || err != nil) && time.Since(start) < time.Millisecond {
		time.Sleep(time.Millisecond) // a file system without poll reports every file as readable
	}
}

func (f *fdFile) readOnce(p []byte) (int, error) {
	if f.off == 0 { // not every file supports an offset
		return unix.Read(f.fd, p)
	}
	n, err := unix.Pread(f.fd, p, f.off)
	f.off += int64(max(n, 0))
	return n, err
}

func (f *fdFile) stat() (Stat, error) { return fstat(f.fd) }

func (f *fdFile) close() { unix.Close(f.fd) }

func fstat(fd int) (Stat, error) {
	var st unix.Stat_t
	if _, err := ignoringEINTR(func() (int, error) { return 0, unix.Fstat(fd, &st) }); err != nil {
		return Stat{}, &sysError{"fstat", err}
	}
	return statOf(&st), nil
}

func statOf(st *unix.Stat_t) Stat {
	return Stat{
		Size: st.Size, ModTime: time.Unix(st.Mtim.Unix()), ChangeTime: time.Unix(st.Ctim.Unix()), BirthTime: birthOf(st),
		Mode: modeOf(uint32(st.Mode)), Inode: uint64(st.Ino), Device: uint64(st.Dev),
	}
}

// modeOf returns an inode's mode.
func modeOf(inode uint32) fs.FileMode {
	mode := fs.FileMode(inode & 0o777)
	if typ := fileType(inode); typ == typeUnknown {
		mode |= fs.ModeIrregular
	} else {
		mode |= typ
	}
	if inode&unix.S_ISUID != 0 {
		mode |= fs.ModeSetuid
	}
	if inode&unix.S_ISGID != 0 {
		mode |= fs.ModeSetgid
	}
	if inode&unix.S_ISVTX != 0 {
		mode |= fs.ModeSticky
	}
	return mode
}

// fileType returns the type that is in an inode's mode.
func fileType(mode uint32) fs.FileMode {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return 0
	case unix.S_IFDIR:
		return fs.ModeDir
	case unix.S_IFLNK:
		return fs.ModeSymlink
	case unix.S_IFIFO:
		return fs.ModeNamedPipe
	case unix.S_IFSOCK:
		return fs.ModeSocket
	case unix.S_IFCHR:
		return fs.ModeDevice | fs.ModeCharDevice
	case unix.S_IFBLK:
		return fs.ModeDevice
	}
	return typeUnknown
}

// ignoringEINTR repeats call while a signal interrupts it. The int that call
// returns is a descriptor or a number of bytes.
func ignoringEINTR(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); err != unix.EINTR {
			return n, err
		}
	}
}
