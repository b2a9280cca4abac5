//go:build !fileproc_generic

package replace

import (
	"github.com/fileproc/fileproc/internal/names"
	"golang.org/x/sys/unix"
)

func exchange(dir int, a, b names.Name) error {
	return unix.RenameatxNp(dir, a.String(), dir, b.String(), unix.RENAME_SWAP)
}

func renameNew(dir int, a, b names.Name) error {
	return unix.RenameatxNp(dir, a.String(), dir, b.String(), unix.RENAME_EXCL)
}

func isOverlay(int) bool { return false }

func startWriteback(int) {}
