//go:build fileproc_generic && unix

package fileproc

import (
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

// openFlags keep the open of what took a file's place from waiting for a FIFO's
// writer, and from making a terminal the process's own.
const openFlags = unix.O_NONBLOCK | unix.O_NOCTTY

const openWaits = false

// unchanged reports whether a and b are of one file to which nothing has
// happened in between: a file that is renamed gets a new ctime.
func unchanged(a, b fs.FileInfo) bool {
	x, ok := a.Sys().(*syscall.Stat_t)
	y, alsoOK := b.Sys().(*syscall.Stat_t)
	return ok && alsoOK && *x == *y
}
