//go:build unix && (fileproc_generic || !(aix || darwin || dragonfly || freebsd || linux || netbsd || openbsd || solaris))

package replace

import (
	"os"

	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
)

func keepIn(old, new *os.File, was, now sys.Stat) error {
	return keep(int(old.Fd()), int(new.Fd()), was, now)
}

func mayRemove(*os.Root, names.Name) error { return nil }
