//go:build linux && (!gc || race || msan || asan || go1.27)

package calls

import "syscall"

func enter() {}

func exit() {}

// call reports itself to the scheduler, as enter and exit do not.
func call(trap, a1, a2, a3, a4, a5, a6 uintptr) (r1, r2 uintptr, errno syscall.Errno) {
	return syscall.Syscall6(trap, a1, a2, a3, a4, a5, a6)
}
