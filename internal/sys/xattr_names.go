//go:build linux || darwin

package sys

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

func xattrNames(fd int) ([]string, error) {
	list, err := whole(func(p []byte) (int, error) { return unix.Flistxattr(fd, p) })
	names := strings.Split(string(list), "\x00") // one after each name
	return slices.DeleteFunc(names, func(name string) bool { return name == "" }), err
}
