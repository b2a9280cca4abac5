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

// syncDir makes what was renamed and removed in a directory survive a crash of the
// machine, where the process may read the directory and the file system syncs such: others
// answer EINVAL, ENOTSUP, or EBADF because a directory is not open for writing.
func syncDir(root *os.Root, name string) error {
	f, err := root.Open(name)
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	err = fsync(f)
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EBADF) {
		return nil
	}
	return err
}
