//go:build linux && gc && !race && !msan && !asan && !go1.27

package calls

import (
	"syscall"
	_ "unsafe" // for go:linkname
)

// Package syscall calls these two functions around each system call. They are
// internal to the runtime, so the build constraint allows only what is known to
// work:
//   - gc, because another compiler has another runtime;
//   - no race, msan or asan, because they instrument Run, and instrumentation
//     needs the processor that the goroutine may have lost after enter;
//   - Go versions whose runtime was checked.

//go:linkname enter runtime.entersyscall
func enter()

//go:linkname exit runtime.exitsyscall
func exit()

//go:nosplit
func call(trap, a1, a2, a3, a4, a5, a6 uintptr) (r1, r2 uintptr, errno syscall.Errno) {
	return syscall.RawSyscall6(trap, a1, a2, a3, a4, a5, a6)
}
