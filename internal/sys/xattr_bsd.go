//go:build freebsd || netbsd

package sys

import "golang.org/x/sys/unix"

// xattrNames returns names with the namespace in front, as unix.Fgetxattr takes them.
func xattrNames(fd int) (names []string, err error) {
	for id, space := range map[int]string{unix.EXTATTR_NAMESPACE_USER: "user.", unix.EXTATTR_NAMESPACE_SYSTEM: "system."} {
		list, err := whole(func(p []byte) (int, error) { return unix.FlistxattrNS(fd, id, p) })
		if err == unix.EPERM && id == unix.EXTATTR_NAMESPACE_SYSTEM {
			continue // only root may see them
		}
		if err != nil {
			return nil, err
		}
		for len(list) > 0 { // a byte with the length before each name
			end := min(1+int(list[0]), len(list))
			names = append(names, space+string(list[1:end]))
			list = list[end:]
		}
	}
	return names, nil
}
