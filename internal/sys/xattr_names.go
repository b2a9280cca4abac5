//go:build linux || darwin

package sys

import (
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

func xattrNames(fd int) ([]string, error) {
	list, err := whole(func(p []byte) (n int, err error) {
		if n, err = unix.Flistxattr(fd, p); err == unix.EBADF {
			n, err = unix.Listxattr(inProc(fd), p)
		}
		if err == unix.ENOENT { // there is no /proc
			err = errors.ErrUnsupported
		}
		return n, err
	})
	names := strings.Split(string(list), "\x00") // one after each name
	return slices.DeleteFunc(names, func(name string) bool { return name == "" }), err
}
