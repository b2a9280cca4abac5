//go:build !fileproc_generic

package sys

import "golang.org/x/sys/unix"

const searchOnly = unix.O_PATH
