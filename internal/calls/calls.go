//go:build linux

// Package calls makes several system calls in a row. A call may use the result of an
// earlier one.
package calls

import "golang.org/x/sys/unix"

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
func Run(calls []Call) {
	last := 0
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
		r, _, errno := unix.Syscall6(c.Trap, first, c.Args[1], c.Args[2], c.Args[3], c.Args[4], c.Args[5])
		c.Result = int(r)
		if errno != 0 {
			c.Result = -int(errno)
		}
		if !c.Chained {
			last = c.Result
		}
	}
}
