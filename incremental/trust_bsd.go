//go:build darwin || freebsd

package incremental

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// goodTypes are the file systems on which each change of a file also changes its
// ctime, by a clock of this machine, and a rename does so too.
var goodTypes = []string{"apfs", "hfs", "ufs", "zfs", "tmpfs"}

// keepsTimes reports whether root's file system is one of goodTypes.
func keepsTimes(root string) bool {
	var st unix.Statfs_t
	return unix.Statfs(root, &st) == nil && isGood(&st)
}

// bootName returns a text that no two boots of the machine share, "" if there is none.
func bootName() string {
	name, err := unix.SysctlRaw("kern.bootsessionuuid") // macOS
	if err != nil {
		name, _ = unix.SysctlRaw("kern.boot_id") // FreeBSD 13
	}
	return string(name)
}

func fileKeepsTimes(f *os.File) bool {
	var st unix.Statfs_t
	return unix.Fstatfs(int(f.Fd()), &st) == nil && isGood(&st)
}

func isGood(st *unix.Statfs_t) bool {
	return slices.Contains(goodTypes, unix.ByteSliceToString(typeOf(st))) && st.Flags&unix.MNT_LOCAL != 0
}

func typeOf(st *unix.Statfs_t) []byte { return st.Fstypename[:] }
