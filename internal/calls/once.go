//go:build linux && !race && !go1.27

package calls

import (
	"syscall"
	_ "unsafe" // for go:linkname
)

// Package syscall has these two around each of its calls. The build tag keeps
// them to the versions of Go of which it is known what they are; golang.org/x/sys
// refers to them as well.

//go:linkname enter runtime.entersyscall
func enter()

//go:linkname exit runtime.exitsyscall
func exit()

//go:nosplit
func call(trap, a1, a2, a3, a4, a5, a6 uintptr) (r1, r2 uintptr, errno syscall.Errno) {
	return syscall.RawSyscall6(trap, a1, a2, a3, a4, a5, a6)
}
