//go:build linux || darwin || freebsd || netbsd

package sys

import (
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// Xattrs returns the extended attributes of an open file, nil if it has none. If the file was
// opened with PathFlags, the calls with its descriptor fail; they then use its path in /proc.
func Xattrs(fd int) (all map[string][]byte, err error) {
	names, err := xattrNames(fd)
	if err != nil {
		return nil, &Error{"flistxattr", err}
	}
	for _, name := range names {
		value, err := whole(func(p []byte) (n int, err error) {
			if n, err = unix.Fgetxattr(fd, name, p); err == unix.EBADF {
				n, err = unix.Getxattr(inProc(fd), name, p)
			}
			return n, err
		})
		if err != nil {
			if now, e := xattrNames(fd); e == nil && !slices.Contains(now, name) { // removed since it was listed
				continue
			}
			return nil, &Error{"fgetxattr", err}
		}
		if all == nil {
			all = map[string][]byte{}
		}
		all[name] = value
	}
	return all, nil
}

func inProc(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// whole returns all that get gives. It asks for the size first: BSD cuts what does not fit.
func whole(get func([]byte) (int, error)) ([]byte, error) {
	for {
		n, err := get(nil)
		if n <= 0 || err != nil {
			return nil, err
		}
		p := make([]byte, n+1)
		n, err = get(p)
		if err == nil && n < len(p) {
			return p[:n], nil
		}
		if err != nil && err != unix.ERANGE {
			return nil, err
		}
	}
}
