//go:build fileproc_generic && unix

package sys

import (
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

const Backend = "generic"

// OpenFlags are for an open that may meet something other than the listed file: it must not
// wait for a FIFO's writer, nor make a terminal the process's own.
const OpenFlags = unix.O_NONBLOCK | unix.O_NOCTTY

const OpenWaits = false

// ListsMetadata is false: package os looks each entry up.
const ListsMetadata = false

// InDir, appended to a path, makes the open fail unless the path leads to a directory.
const InDir = "/."

// Unchanged reports whether a and b are the same file without a change in
// between. Renaming a file changes its ctime.
func Unchanged(a, b fs.FileInfo) bool {
	x, ok := a.Sys().(*syscall.Stat_t)
	y, alsoOK := b.Sys().(*syscall.Stat_t)
	return ok && alsoOK && *x == *y
}
