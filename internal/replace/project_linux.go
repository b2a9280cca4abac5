//go:build !fileproc_generic

package replace

import (
	"unsafe"

	"github.com/fileproc/fileproc/internal/sys"
	"golang.org/x/sys/unix"
)

// An fsxattr is struct fsxattr of include/uapi/linux/fs.h.
type fsxattr struct {
	xflags, extentSize, extents, project, cowExtentSize uint32
	_                                                   [8]byte
}

const (
	sizeOfFsxattr = uint(unsafe.Sizeof(fsxattr{}))
	directionBits = 0xe0000000 // of an ioctl's number: they differ between architectures
	getFsxattr    = unix.FS_IOC_GETFLAGS&directionBits | sizeOfFsxattr<<16 | 'X'<<8 | 31
	setFsxattr    = unix.FS_IOC_SETFLAGS&directionBits | sizeOfFsxattr<<16 | 'X'<<8 | 32

	// Flags of an fsxattr.
	isAppendOnly    = 0x10
	inheritsProject = 0x200
)

func (x *fsxattr) ioctl(fd int, number uint) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(number), uintptr(unsafe.Pointer(x))); errno != 0 {
		return errno
	}
	return nil
}

// checkDir returns the project of new files in dir. It returns an error if dir keeps each file that is made there: a temporary file
// would stay.
func checkDir(dir int) (project uint32, err error) {
	var x fsxattr
	if x.ioctl(dir, getFsxattr) != nil { // the file system has none
		return 0, nil
	}
	if x.xflags&isAppendOnly != 0 {
		return 0, &sys.Error{Op: "renameat2", Err: unix.EPERM}
	}
	if x.xflags&inheritsProject != 0 {
		project = x.project
	}
	return project, nil
}

// keepProject gives the new file, which is in the project now, the old one's. The project's quota counts the file.
func keepProject(old, new int, now uint32) error {
	var x fsxattr
	if x.ioctl(old, getFsxattr) != nil || x.project == now {
		return nil
	}
	was := x.project
	err := x.ioctl(new, getFsxattr)
	if err == nil {
		x.project = was
		err = x.ioctl(new, setFsxattr)
	}
	if err != nil {
		return &sys.Error{Op: "ioctl", Err: err}
	}
	return nil
}
