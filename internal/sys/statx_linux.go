//go:build linux && !fileproc_generic

package sys

import (
	"time"

	"golang.org/x/sys/unix"
)

const searchOnly = unix.O_PATH

// PathFlags opens an entry of any type, only to look at it. It is 0 where the system has no
// such flag.
const PathFlags = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC

// StatxMask selects the fields that a Stat needs.
const StatxMask = unix.STATX_BASIC_STATS | unix.STATX_BTIME

// lookUp returns the metadata of the entry name of a directory.
func lookUp(dirfd int, name string) (Stat, error) {
	var st unix.Statx_t
	_, err := IgnoringEINTR(func() (int, error) { return 0, unix.Statx(dirfd, name, unix.AT_SYMLINK_NOFOLLOW, StatxMask, &st) })
	// Linux before 4.11 returns ENOSYS. Old seccomp filters of containers refuse calls that they do
	// not know with EPERM.
	if err == unix.ENOSYS || err == unix.EPERM {
		return fstatat(dirfd, name, unix.AT_SYMLINK_NOFOLLOW)
	}
	return StatOfStatx(&st), err
}

func StatOfStatx(st *unix.Statx_t) Stat {
	s := Stat{
		Size: int64(st.Size), ModTime: TimeOfStatx(st.Mtime), ChangeTime: TimeOfStatx(st.Ctime), Mode: modeOf(uint32(st.Mode)),
		Inode: st.Ino, Device: unix.Mkdev(st.Dev_major, st.Dev_minor), Rdev: unix.Mkdev(st.Rdev_major, st.Rdev_minor),
		UID: st.Uid, GID: st.Gid, Links: uint64(st.Nlink), Blocks: int64(st.Blocks),
	}
	if st.Mask&unix.STATX_BTIME != 0 {
		s.BirthTime = TimeOfStatx(st.Btime)
	}
	return s
}

func TimeOfStatx(t unix.StatxTimestamp) time.Time { return time.Unix(t.Sec, int64(t.Nsec)) }
