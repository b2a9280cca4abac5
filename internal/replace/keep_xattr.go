//go:build linux || darwin || freebsd || netbsd

package replace

import (
	"bytes"
	"errors"

	"github.com/fileproc/fileproc/internal/sys"
	"golang.org/x/sys/unix"
)

// notKept are attributes that depend on the content, so that a write takes them away or the system sets them, and those that only
// the system sets. XFS shows root the ACL by a second name.
var notKept = map[string]bool{
	"trusted.SGI_ACL_FILE": true,
	"security.capability":  true, "security.ima": true, "security.evm": true,
	"com.apple.provenance": true, "com.apple.macl": true,
}

const accessACL = "system.posix_acl_access"

// keepXattrs reports whether it has changed the ACL, and so perhaps the mode. The new file may have attributes of its own from
// the directory: a default ACL, a label.
func keepXattrs(old, new int) (hasACL bool, err error) {
	was, err := xattrs(old)
	if err != nil {
		return false, err
	}
	now, err := xattrs(new)
	if err != nil {
		return false, err
	}
	for name := range now {
		if _, ok := was[name]; !ok && !notKept[name] {
			hasACL = hasACL || name == accessACL
			if err := unix.Fremovexattr(new, name); err != nil {
				return false, &sys.Error{Op: "fremovexattr", Err: err}
			}
		}
	}
	for name, value := range was {
		if is, ok := now[name]; notKept[name] || ok && bytes.Equal(is, value) {
			continue
		}
		hasACL = hasACL || name == accessACL
		if err := unix.Fsetxattr(new, name, value, 0); err != nil {
			return false, &sys.Error{Op: "fsetxattr", Err: err}
		}
	}
	return hasACL, nil
}

// xattrs is sys.Xattrs, but a file system without attributes is no error.
func xattrs(fd int) (map[string][]byte, error) {
	all, err := sys.Xattrs(fd)
	if errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.ENOSYS) {
		return nil, nil
	}
	return all, err
}
