//go:build aix || darwin || dragonfly || freebsd || linux || netbsd || openbsd || solaris

package cache

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// openFlags keeps the open of a FIFO from waiting for a writer.
const openFlags = syscall.O_NONBLOCK | syscall.O_NOCTTY

// syncDir makes renames and removals in a directory survive a crash of the machine. It
// returns nil without that if the process may not read the directory, or if the file system
// does not sync directories: such ones answer EINVAL, ENOTSUP, or EBADF because a directory
// is not open for writing.
func syncDir(root *os.Root, name string) error {
	f, err := root.Open(name)
	if err == nil {
		defer f.Close()
		err = fsync(f)
	}
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EBADF) {
		return nil
	}
	return err
}
