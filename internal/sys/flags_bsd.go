//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package sys

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// flagsOf returns the flags of chflags(2) in st, a *unix.Stat_t or a *syscall.Stat_t.
func flagsOf(st any) uint32 {
	switch st := st.(type) {
	case *unix.Stat_t:
		return st.Flags
	case *syscall.Stat_t:
		return st.Flags
	}
	return 0
}
