package fsinfo

import (
	"fmt"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// goodTypes are the file systems of Linux on which each change of a file, and a rename of
// it, sets the file's ctime, by a clock of this machine.
var goodTypes = []uint32{
	unix.EXT4_SUPER_MAGIC, // and ext2, ext3
	unix.XFS_SUPER_MAGIC,
	unix.BTRFS_SUPER_MAGIC,
	unix.F2FS_SUPER_MAGIC,
	unix.TMPFS_MAGIC,
	unix.OVERLAYFS_SUPER_MAGIC,
	0x2fc12fc1, // ZFS
	0xca451a4e, // bcachefs
}

// KeepsTimes reports whether the file system of the directory name is one of goodTypes.
func KeepsTimes(name string) (bool, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(name, &st); err != nil {
		return false, &fs.PathError{Op: "statfs", Path: name, Err: err}
	}
	return slices.Contains(goodTypes, uint32(st.Type)), nil
}

// FileKeepsTimes is KeepsTimes for an open file.
func FileKeepsTimes(f *os.File) bool {
	return IsOf(int(f.Fd()), goodTypes...)
}

// HasFineTimes reports whether a change of the open file that comes after a look at its metadata always shows in its ctime:
// on Linux from 6.13, on the file systems with multigrain timestamps.
func HasFineTimes(f *os.File) bool {
	return isLinux(6, 13) && IsOf(int(f.Fd()), unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.TMPFS_MAGIC)
}

// SyncsWhole reports whether syncfs sends all that the file system of fd has to the disk, and reports what could not be written
// since fd was opened: on Linux from 5.8. Others, such as FUSE and network file systems, only send it to the server.
func SyncsWhole(fd int) bool {
	return isLinux(5, 8) && IsOf(fd, unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC)
}

func isLinux(major, minor int) bool {
	var name unix.Utsname
	var isMajor, isMinor int
	if unix.Uname(&name) != nil {
		return false
	}
	n, _ := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &isMajor, &isMinor)
	return n == 2 && (isMajor > major || isMajor == major && isMinor >= minor)
}

// IsOf reports whether fd is on a file system of one of these types, as in the list of statfs(2).
func IsOf(fd int, types ...uint32) bool {
	var st unix.Statfs_t
	return unix.Fstatfs(fd, &st) == nil && slices.Contains(types, uint32(st.Type))
}

// BootName returns a text that is different for each boot of the machine, "" if there is none.
func BootName() string {
	name, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return string(name)
}
