//go:build linux && !fileproc_generic

package fileproc

import (
	"time"

	"golang.org/x/sys/unix"
)

// statxMask is what a Stat needs.
const statxMask = unix.STATX_BASIC_STATS | unix.STATX_BTIME

// lookUp returns the metadata of the entry name of a directory.
func lookUp(dirfd int, name string) (Stat, error) {
	var st unix.Statx_t
	_, err := ignoringEINTR(func() (int, error) { return 0, unix.Statx(dirfd, name, unix.AT_SYMLINK_NOFOLLOW, statxMask, &st) })
	// ENOSYS before Linux 4.11. Old seccomp filters of containers refuse what they do
	// not know with EPERM.
	if err == unix.ENOSYS || err == unix.EPERM {
		return fstatat(dirfd, name)
	}
	return statOfStatx(&st), err
}

func statOfStatx(st *unix.Statx_t) Stat {
	s := Stat{
		Size: int64(st.Size), ModTime: timeOfStatx(st.Mtime), ChangeTime: timeOfStatx(st.Ctime), Mode: modeOf(uint32(st.Mode)),
		Inode: st.Ino, Device: unix.Mkdev(st.Dev_major, st.Dev_minor),
	}
	if st.Mask&unix.STATX_BTIME != 0 {
		s.BirthTime = timeOfStatx(st.Btime)
	}
	return s
}

func timeOfStatx(t unix.StatxTimestamp) time.Time { return time.Unix(t.Sec, int64(t.Nsec)) }
