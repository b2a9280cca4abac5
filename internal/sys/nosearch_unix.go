//go:build !fileproc_generic && (dragonfly || netbsd || openbsd)

package sys

import "golang.org/x/sys/unix"

const searchOnly = unix.O_RDONLY
