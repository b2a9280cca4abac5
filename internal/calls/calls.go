//go:build linux

// Package calls makes several system calls in a row. A call may use the result of an
// earlier one.
package calls

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Call is one system call. Pointers in Args must not point to a stack, and the caller
// keeps their memory alive.
type Call struct {
	Trap uintptr
	Args [6]uintptr
	// Chained makes the call take the result of the last unchained call as its
	// first argument. If that call failed, Run does not make this one, which gets
	// the same error.
	Chained bool
	// Unsure, unless 0, makes Run skip the call, which gets ECANCELED, unless the call before
	// it has read fewer bytes than this, and a multiple of 512: see sys.IsWhole.
	Unsure int
	// Result is what the call returned, or its unix.Errno, negated.
	Result int
}

// Err returns the error of the call.
func (c *Call) Err() error {
	if c.Result < 0 {
		return unix.Errno(-c.Result)
	}
	return nil
}

// Run makes the calls one after the other.
//
// If cached is not nil, it is openat2's way to make each openat without waiting for a disk, and
// reads have RWF_NOWAIT: then Run reports no call to Go's scheduler, which would take as long as
// a tenth of the call. When something is not in the kernel's caches, Run makes the call again
// with openat, reports this call and all later ones, and returns false.
func Run(calls []Call, cached *unix.OpenHow) (allCached bool) {
	last, raw := 0, cached != nil
	for i := range calls {
		c := &calls[i]
		if c.Unsure > 0 {
			if n := calls[i-1].Result; n <= 0 || n >= c.Unsure || n%512 != 0 {
				c.Result = -int(unix.ECANCELED)
				continue
			}
		}
		first := c.Args[0]
		if c.Chained {
			if last < 0 {
				c.Result = last
				continue
			}
			first = uintptr(last)
		}
		c.Result = c.make(first, raw, cached)
		if raw && (c.Result == -int(unix.EAGAIN) || c.Result < 0 && !c.Chained) {
			if raw = false; !c.Chained {
				c.Result = c.make(first, raw, nil)
			}
		}
		if !c.Chained {
			last = c.Result
		}
	}
	return raw
}

// make makes the call with its first argument.
func (c *Call) make(first uintptr, raw bool, cached *unix.OpenHow) int {
	var r uintptr
	var errno unix.Errno
	switch {
	case raw && c.Trap == unix.SYS_OPENAT:
		r, _, errno = syscall.RawSyscall6(unix.SYS_OPENAT2, first, c.Args[1], uintptr(unsafe.Pointer(cached)), unsafe.Sizeof(*cached), 0, 0)
	case raw:
		r, _, errno = syscall.RawSyscall6(c.Trap, first, c.Args[1], c.Args[2], c.Args[3], c.Args[4], c.Args[5])
	default:
		r, _, errno = unix.Syscall6(c.Trap, first, c.Args[1], c.Args[2], c.Args[3], c.Args[4], c.Args[5])
	}
	if errno != 0 {
		return -int(errno)
	}
	return int(r)
}
