//go:build aix || darwin || dragonfly || freebsd || linux || netbsd || openbsd || solaris

package fsinfo

import (
	"io/fs"
	"syscall"
	"time"
)

// HasInodes says whether Of finds a device, an inode and a change time in the system's
// metadata, so that no two files have the same Identity.
const HasInodes = true

// Names returns how many names (hard links) a file has, 1 where that is unknown.
func Names(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok && info.Mode().IsRegular() {
		return uint64(st.Nlink)
	}
	return 1
}

func systemOf(info fs.FileInfo) (device, inode uint64, change time.Time) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Dev), uint64(st.Ino), changeOf(st)
	}
	return 0, 0, time.Time{}
}
