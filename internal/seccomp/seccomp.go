//go:build linux

// Package seccomp installs filters of system calls. It serves tests in processes of their own: a filter cannot be removed.
package seccomp

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The codes of a filter's instructions, and what a filter returns.
const (
	Load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS // from struct seccomp_data, which begins with the call's number
	Equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	Return = unix.BPF_RET | unix.BPF_K

	Refuse = 0x00050000 // SECCOMP_RET_ERRNO, to which the errno is added
	Allow  = 0x7fff0000 // SECCOMP_RET_ALLOW
)

// AllThreads is SECCOMP_FILTER_FLAG_TSYNC. Without this flag a filter applies only to the thread that installs it.
const AllThreads = 1

// Argument returns the offset into struct seccomp_data of the lower half of argument i. An argument has 64 bits.
func Argument(i int) uint32 {
	if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
		return uint32(16 + 8*i + 4)
	}
	return uint32(16 + 8*i)
}

// Install installs a filter and returns the result of seccomp(2), a descriptor if a flag asks for one.
func Install(filter []unix.SockFilter, flags uintptr) (result uintptr, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return 0, err
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	const setModeFilter = 1
	result, _, errno := unix.Syscall(unix.SYS_SECCOMP, setModeFilter, flags, uintptr(unsafe.Pointer(&program)))
	switch {
	case errno != 0:
		return 0, errno
	case flags == AllThreads && result != 0:
		return 0, fmt.Errorf("thread %d has a filter of its own", result)
	}
	return result, nil
}
