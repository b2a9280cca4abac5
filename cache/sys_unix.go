//go:build aix || darwin || dragonfly || freebsd || linux || netbsd || openbsd || solaris

package cache

import (
	"io/fs"
	"syscall"
)

// openFlags keeps the open of a FIFO from waiting for a writer.
const openFlags = syscall.O_NONBLOCK | syscall.O_NOCTTY

// hasInodes says whether identities have a device, an inode and a change time, so that
// no two files have the same.
const hasInodes = true

func addSystem(id *identity, info fs.FileInfo) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		id.device, id.inode = uint64(st.Dev), uint64(st.Ino)
		id.ctimeSec, id.ctimeNsec = ctimeOf(st)
	}
}
