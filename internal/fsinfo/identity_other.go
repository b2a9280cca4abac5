//go:build !(aix || darwin || dragonfly || freebsd || linux || netbsd || openbsd || solaris)

package fsinfo

import (
	"io/fs"
	"time"
)

// HasInodes says whether Of finds a device, an inode and a change time in the system's
// metadata, so that no two files have the same Identity.
const HasInodes = false

// Names returns how many names (hard links) a file has, 1 where that is unknown.
func Names(fs.FileInfo) uint64 { return 1 }

func systemOf(fs.FileInfo) (device, inode uint64, change time.Time) { return 0, 0, time.Time{} }
