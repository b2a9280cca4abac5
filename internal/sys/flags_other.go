//go:build aix || linux || solaris

package sys

import (
	"syscall"

	"golang.org/x/sys/unix"
)

func flagsOf(*unix.Stat_t) uint32        { return 0 }
func systemFlags(*syscall.Stat_t) uint32 { return 0 }
