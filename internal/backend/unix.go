//go:build !fileproc_generic && (aix || darwin || dragonfly || freebsd || netbsd || openbsd || solaris || (linux && fileproc_unix))

package backend

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

var _ Directory = (*unixDir)(nil)

func OpenRoot(root string) (Directory, error)         { return openPath((*unixDir)(nil), root) }
func OpenRootToSearch(root string) (Directory, error) { return openPathToSearch((*unixDir)(nil), root) }

func (*unixDir) newDir(fd int, name string) Directory {
	d := &unixDir{fdDir{fd: fd}, os.NewFile(uintptr(fd), name)}
	d.backend = d
	return d
}

func (d *unixDir) List(l *Listing) (bool, error) { return listFile(d.file, l, 0, nil) }

func (d *unixDir) Close() { d.file.Close() }

// HasTrueSize knows nothing: no system call says enough everywhere.
func (*unixDir) HasTrueSize(sys.Stat) bool { return false }

func DiskOf(Directory) content.Dir { return content.Dir{} }
