//go:build !fileproc_generic && (aix || darwin || dragonfly || freebsd || linux || netbsd || openbsd || solaris)

package sys

import (
	"io/fs"
	"time"

	"github.com/fileproc/fileproc/internal/names"
	"golang.org/x/sys/unix"
)

const (
	// DirFlags opens a directory.
	DirFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC
	// SearchFlags opens a directory for what is below it alone, where the system has
	// such a flag: that needs no right to read the directory, nor to list it.
	SearchFlags = searchOnly | unix.O_DIRECTORY | unix.O_CLOEXEC
	// FileFlags opens a file. O_NONBLOCK has no effect on the regular files that stay
	// open.
	FileFlags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_CLOEXEC | OpenFlags
	// OpenFlags are those for what may have taken a file's place: the open must not
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

// ModeAt returns the mode of what a path leads to from a directory on, or with isLink
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

// fstatat is lookUp where the birth time is in a unix.Stat_t, or nowhere.
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

// StatOf returns what st says.
func StatOf(st *unix.Stat_t) Stat {
	return Stat{
		Size: st.Size, ModTime: time.Unix(st.Mtim.Unix()), ChangeTime: time.Unix(st.Ctim.Unix()), BirthTime: birthOf(st),
		Mode: modeOf(uint32(st.Mode)), Inode: uint64(st.Ino), Device: uint64(st.Dev),
	}
}

// modeOf returns an inode's mode.
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
	return TypeUnknown
}

// interruptedFor is for how long a call is repeated that is interrupted each time, as
// by a FUSE server that answers nothing else. The caller then sees whether the run goes on.
const interruptedFor = 5 * time.Millisecond

// IgnoringEINTR repeats call while a signal interrupts it, for interruptedFor at most,
// but once at least. The int that call returns is a descriptor or a number of bytes.
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

// IsWhole reports whether the n bytes that a read from the page cache gave, of
// want that it asked for, are certain to be all of a regular file. Such a read
// falls short at the file's end, or between pages where the rest is not cached; of
// a block device, between sectors. So an odd length is the end of a regular file.
func IsWhole(n, want int) bool { return n < want && n%512 != 0 }
