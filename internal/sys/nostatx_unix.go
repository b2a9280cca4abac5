//go:build !fileproc_generic && (aix || darwin || dragonfly || freebsd || netbsd || openbsd || solaris)

package sys

import "golang.org/x/sys/unix"

// PathFlags is 0: not each of these systems has such a flag.
const PathFlags = 0

// lookUp returns the metadata of the entry name of a directory.
func lookUp(dirfd int, name string) (Stat, error) {
	return fstatat(dirfd, name, unix.AT_SYMLINK_NOFOLLOW)
}
