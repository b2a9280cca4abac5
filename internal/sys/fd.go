//go:build !fileproc_generic && (aix || darwin || dragonfly || freebsd || linux || netbsd || openbsd || solaris)

package sys

import (
	"io/fs"
	"time"
	"unsafe"

	"github.com/fileproc/fileproc/internal/names"
	"golang.org/x/sys/unix"
)

const (
	// DirFlags opens a directory.
	DirFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC
	// SearchFlags opens a directory only to open what is below it, where the system has
	// such a flag. This needs no right to read the directory, and so none to list it.
	SearchFlags = searchOnly | unix.O_DIRECTORY | unix.O_CLOEXEC
	// FileFlags opens a file. O_NONBLOCK has no effect on the regular files that stay
	// open.
	FileFlags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_CLOEXEC | OpenFlags
	// OpenFlags are for an open that may meet something other than the listed file: it must not
	// wait for a FIFO's writer, nor make a terminal the process's own.
	OpenFlags = unix.O_NONBLOCK | unix.O_NOCTTY
)

// StatAt returns the metadata of the entry name of a directory.
func StatAt(dirfd int, name names.Name) (Stat, error) {
	s, err := lookUp(dirfd, name.String())
	if err != nil {
		if err == unix.ENOENT {
			err = Changed{Err: err}
		}
		return Stat{}, &Error{Op: "fstatat", Err: err}
	}
	return s, nil
}

// ModeAt returns the mode of the file to which a path leads from a directory, or, with isLink,
// that of a symbolic link itself.
func ModeAt(dirfd int, path string, isLink bool) (fs.FileMode, error) {
	flags := 0
	if isLink {
		flags = unix.AT_SYMLINK_NOFOLLOW
	}
	s, err := fstatat(dirfd, path, flags)
	if err != nil {
		return 0, &Error{Op: "fstatat", Err: err}
	}
	return s.Mode, nil
}

// fstatat is lookUp without statx. The birth time is that of a unix.Stat_t, if it has one.
func fstatat(dirfd int, name string, flags int) (Stat, error) {
	var st unix.Stat_t
	_, err := IgnoringEINTR(func() (int, error) { return 0, unix.Fstatat(dirfd, name, &st, flags) })
	return StatOf(&st), err
}

// Fstat returns the metadata of an open file.
func Fstat(fd int) (Stat, error) {
	var st unix.Stat_t
	if _, err := IgnoringEINTR(func() (int, error) { return 0, unix.Fstat(fd, &st) }); err != nil {
		return Stat{}, &Error{Op: "fstat", Err: err}
	}
	return StatOf(&st), nil
}

// StatOf converts st to a Stat.
func StatOf(st *unix.Stat_t) Stat {
	return Stat{
		Size: st.Size, ModTime: time.Unix(st.Mtim.Unix()), ChangeTime: time.Unix(st.Ctim.Unix()), BirthTime: birthOf(st),
		Mode: modeOf(uint32(st.Mode)), Inode: uint64(st.Ino), Device: uint64(st.Dev), Rdev: uint64(st.Rdev),
		UID: st.Uid, GID: st.Gid, Links: uint64(st.Nlink), Blocks: st.Blocks, Flags: flagsOf(st),
	}
}

// modeOf converts the mode of an inode to an fs.FileMode.
func modeOf(inode uint32) fs.FileMode {
	mode := fs.FileMode(inode & 0o777)
	if typ := fileType(inode); typ == TypeUnknown {
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

// fileType returns the file type in the mode of an inode.
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
	return TypeUnknown
}

// interruptedFor is the time for which a call is repeated that is interrupted each time, as
// by a FUSE server whose only answer is EINTR. Then the caller checks whether the run goes on.
const interruptedFor = 5 * time.Millisecond

// IgnoringEINTR repeats call while a signal interrupts it, for interruptedFor at most,
// but at least once. The int that call returns is a descriptor or a number of bytes.
func IgnoringEINTR(call func() (int, error)) (int, error) {
	n, err := call()
	if err != unix.EINTR {
		return n, err
	}
	for start := time.Now(); ; {
		if n, err = call(); err != unix.EINTR || time.Since(start) > interruptedFor {
			return n, err
		}
	}
}

// IsWhole reports whether a read from the page cache, which asked for want bytes and got
// n, has certainly read all of a regular file. Such a read falls short at the file's end, or
// at the end of a page if the rest is not cached, or, on a block device, at the end of a
// sector. So a length that is no multiple of 512 is the end of a regular file, if the
// buffer begins at such a multiple, too: where there is no memory for a page of the
// buffer, the read ends at the beginning of that page.
func IsWhole(n, want int) bool { return n < want && n%512 != 0 }

// HoldsWhole is IsWhole for a read of n bytes into p, which may begin anywhere.
func HoldsWhole(n int, p []byte) bool {
	return IsWhole(n, len(p)) && (uintptr(unsafe.Pointer(unsafe.SliceData(p)))+uintptr(n))%512 != 0
}
