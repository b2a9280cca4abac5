//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package sys

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// flagsOf and systemFlags return the flags of chflags(2).
func flagsOf(st *unix.Stat_t) uint32        { return st.Flags }
func systemFlags(st *syscall.Stat_t) uint32 { return st.Flags }
