//go:build !fileproc_generic && (darwin || freebsd || linux || netbsd || openbsd)

package sys

import (
	"github.com/fileproc/fileproc/internal/names"
	"golang.org/x/sys/unix"
)

// ReadLinkAt returns the text of the symbolic link name of a directory.
func ReadLinkAt(dirfd int, name names.Name) (string, error) {
	for p := make([]byte, 256); ; p = make([]byte, 2*len(p)) {
		n, err := IgnoringEINTR(func() (int, error) { return unix.Readlinkat(dirfd, name.String(), p) })
		if err != nil || n < len(p) {
			return string(p[:max(n, 0)]), err
		}
	}
}
