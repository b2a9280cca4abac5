//go:build darwin || freebsd

package fsinfo

import (
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// goodTypes are the file systems on which each change of a file, and a rename of it, sets
// the file's ctime, by a clock of this machine.
var goodTypes = []string{"apfs", "hfs", "ufs", "zfs", "tmpfs"}

// KeepsTimes reports whether the file system of the directory name is one of goodTypes
// and is on this machine.
func KeepsTimes(name string) (bool, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(name, &st); err != nil {
		return false, &fs.PathError{Op: "statfs", Path: name, Err: err}
	}
	return isGood(&st), nil
}

// FileKeepsTimes is KeepsTimes for an open file.
func FileKeepsTimes(f *os.File) bool {
	var st unix.Statfs_t
	return unix.Fstatfs(int(f.Fd()), &st) == nil && isGood(&st)
}

func isGood(st *unix.Statfs_t) bool {
	return slices.Contains(goodTypes, unix.ByteSliceToString(st.Fstypename[:])) && st.Flags&unix.MNT_LOCAL != 0
}

// BootName returns a text that is different for each boot of the machine, "" if there is none.
func BootName() string {
	name, err := unix.SysctlRaw("kern.bootsessionuuid") // macOS
	if err != nil {
		name, _ = unix.SysctlRaw("kern.boot_id") // FreeBSD 13
	}
	return string(name)
}

// HasFineTimes is not known here.
func HasFineTimes(*os.File) bool { return false }
