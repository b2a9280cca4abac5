//go:build !fileproc_generic && (aix || darwin || freebsd || solaris)

package sys

import "golang.org/x/sys/unix"

const searchOnly = unix.O_SEARCH
