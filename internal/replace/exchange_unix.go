//go:build !fileproc_generic && (aix || dragonfly || freebsd || netbsd || openbsd || solaris)

package replace

import (
	"github.com/fileproc/fileproc/internal/names"
	"golang.org/x/sys/unix"
)

// exchange is not to be had: see Pending.rename.
func exchange(int, names.Name, names.Name) error { return unix.ENOSYS }

func renameNew(int, names.Name, names.Name) error { return unix.ENOSYS }

func isOverlay(int) bool { return false }

func startWriteback(int) {}
