// Package fail passes errors to the end of a command by panics, since nearly all errors end the command.
package fail

import (
	"errors"
	"fmt"
)

// A failure is a panic's value: an error on its way to the next Try.
type failure struct{ error }

// Try returns the error that do fails with, on the same goroutine.
func Try(do func()) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			err = r.error
		default:
			panic(r)
		}
	}()
	do()
	return nil
}

func On(err error) {
	if err != nil {
		panic(failure{err})
	}
}

func If(wrong bool, format string, args ...any) {
	if wrong {
		panic(failure{fmt.Errorf(format, args...)})
	}
}

func Must[T any](v T, err error) T {
	On(err)
	return v
}

// Undo is for defer statements. It calls do, after a failure too, and fails with both errors.
func Undo(do func() error) {
	r := recover()
	f, failed := r.(failure)
	err := errors.Join(f.error, do())
	if r != nil && !failed {
		panic(r)
	}
	On(err)
}
