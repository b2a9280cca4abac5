//go:build linux

// Package calls makes several system calls in a row, some with the result of
// another.
package calls

import "golang.org/x/sys/unix"

// A Call is one system call. Pointers in Args point to memory that is not on a
// stack and that the caller keeps alive.
type Call struct {
	Trap uintptr
	Args [6]uintptr
	// Chained makes the call use the result of the last unchained call before
	// it as the first argument. If that call failed, this one is not made and
	// has the same error.
	Chained bool
	// Result is what the call returned or, negated, its unix.Errno.
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
