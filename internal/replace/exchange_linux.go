//go:build !fileproc_generic

package replace

import (
	"errors"

	"github.com/fileproc/fileproc/internal/fsinfo"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
	"golang.org/x/sys/unix"
)

// exchange exchanges two names, on Linux since 3.15.
func exchange(dir int, a, b names.Name) error {
	return unix.Renameat2(dir, a.String(), dir, b.String(), unix.RENAME_EXCHANGE)
}

// renameNew renames a to b unless there is a b.
func renameNew(dir int, a, b names.Name) error {
	return unix.Renameat2(dir, a.String(), dir, b.String(), unix.RENAME_NOREPLACE)
}

// isOverlay reports whether dir is on an overlayfs. There a file may have another inode once it has been renamed, since a file
// of a lower layer is copied.
func isOverlay(dir int) bool { return fsinfo.IsOf(dir, unix.OVERLAYFS_SUPER_MAGIC) }

// isSMB reports whether dir is on an SMB server. The server sets a file's time at its close, which the kernel puts off until the rename.
func isSMB(dir int) bool {
	return fsinfo.IsOf(dir, unix.SMB2_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC)
}

// startWriteback asks for the content to be written soon. Ext4 does so at a rename over another file, so that the name never
// leads to a file without content after a loss of power, but not at an exchange of names.
func startWriteback(fd int) {
	_ = unix.SyncFileRange(fd, 0, 0, unix.SYNC_FILE_RANGE_WRITE)
}

// flush sends an open file or directory to the disk.
func flush(fd int) error { return unix.Fsync(fd) }

// OpenSync returns a Syncer for the file system of dir, or an error where Syncer.Sync would not do. It opens name in dir.
func OpenSync(dir int, name names.Name) (Syncer, error) {
	if !fsinfo.SyncsWhole(dir) {
		return -1, errors.ErrUnsupported
	}
	fd, err := sys.Openat(dir, name, sys.FileFlags)
	return Syncer(fd), err
}

// Sync makes all that the file system has durable. It reports what could not be written since OpenSync.
func (s Syncer) Sync() error {
	if _, err := sys.IgnoringEINTR(func() (int, error) { return 0, unix.Syncfs(int(s)) }); err != nil {
		return &sys.Error{Op: "syncfs", Err: err}
	}
	return nil
}
