//go:build !fileproc_generic && (aix || darwin || dragonfly || freebsd || netbsd || openbsd || solaris || (linux && fileproc_unix))

package sys

import (
	"github.com/fileproc/fileproc/internal/names"
	"golang.org/x/sys/unix"
)

const Backend = "unix"

func Openat(dirfd int, name names.Name, flags int) (int, error) {
	return IgnoringEINTR(func() (int, error) { return unix.Openat(dirfd, name.String(), flags, 0) })
}

// ReadCached is not supported.
func ReadCached(int, []byte, int64) (int, error) { return 0, unix.EOPNOTSUPP }

// ReadAhead does nothing.
func ReadAhead(_ int, _ []byte, _, end int64) int64 { return end }
