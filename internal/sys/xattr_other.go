//go:build !(linux || darwin || freebsd || netbsd)

package sys

import "errors"

// Xattrs is not supported: golang.org/x/sys has no call for it.
func Xattrs(int) (map[string][]byte, error) {
	return nil, &Error{"flistxattr", errors.ErrUnsupported}
}
