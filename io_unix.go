//go:build !fileproc_generic && (aix || darwin || dragonfly || freebsd || netbsd || openbsd || solaris || (linux && fileproc_unix))

package fileproc

import (
	"os"

	"github.com/fileproc/fileproc/internal/content"
	"github.com/fileproc/fileproc/internal/sys"
)

// unixDir lists with package os.
type unixDir struct {
	fdDir
	file *os.File // owns the descriptor
}

var _ directory = (*unixDir)(nil)

func openRoot(root string) (directory, error)         { return openPath((*unixDir)(nil), root) }
func openRootToSearch(root string) (directory, error) { return openPathToSearch((*unixDir)(nil), root) }

func (*unixDir) newDir(fd int, name string) directory {
	d := &unixDir{fdDir{fd: fd}, os.NewFile(uintptr(fd), name)}
	d.backend = d
	return d
}

func (d *unixDir) list(l *listing) (bool, error) { return listFile(d.file, l, 0, nil) }

func (d *unixDir) close() { d.file.Close() }

// HasTrueSize knows nothing: no system call says enough everywhere.
func (*unixDir) HasTrueSize(sys.Stat) bool { return false }

func diskOf(directory) content.Dir { return content.Dir{} }
