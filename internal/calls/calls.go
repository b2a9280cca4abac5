//go:build linux

// Package calls makes several system calls in a row and tells Go's scheduler of
// them once. Of a call that takes a microsecond, telling takes a tenth.
package calls

import "golang.org/x/sys/unix"

// A Call is one system call. Pointers in Args are to memory that is no part of a
// stack and that the caller keeps alive.
type Call struct {
	Trap uintptr
	Args [6]uintptr
	// Chained takes for the first argument the result of the last call before
	// it that is not chained. If that failed, this one is not made and has its
	// error.
	Chained bool
	// Result is what the call has given, or a unix.Errno, negated.
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
// Between enter and exit the stack must not grow, nothing may be allocated, and
// no pointer may be written.
//
//go:nosplit
func Run(calls []Call) {
	enter()
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
		r, _, errno := call(c.Trap, first, c.Args[1], c.Args[2], c.Args[3], c.Args[4], c.Args[5])
		c.Result = int(r)
		if errno != 0 {
			c.Result = -int(errno)
		}
		if !c.Chained {
			last = c.Result
		}
	}
	exit()
}
