package sys

import (
	"errors"
	"fmt"
	"io/fs"
)

// ErrChanged is fileproc.ErrChanged.
var ErrChanged = errors.New("fileproc: entry changed between listing and opening")

// Changed marks an operating system's error as ErrChanged.
type Changed struct{ Err error }

func (c Changed) Error() string        { return ErrChanged.Error() + ": " + c.Err.Error() }
func (c Changed) Is(target error) bool { return target == ErrChanged }
func (c Changed) Unwrap() error        { return c.Err }

// An Error is a failure without a path. A backend sees one name at a time, and only the
// core knows the whole path.
type Error struct {
	Op  string
	Err error
}

func (e *Error) Error() string { return e.Op + ": " + e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// MayPass reports whether the caller should soon try again: err tells of a lease or an interrupt.
func MayPass(err error) bool { return IsLeased(err) || IsInterrupted(err) }

// AsError removes the path, a single name or that of a handle, from an error of
// package os or of an fs.FS.
func AsError(op string, err error) error {
	switch e := err.(type) {
	case *Error:
		return e
	case *fs.PathError:
		return &Error{e.Op, e.Err}
	}
	return &Error{op, err}
}

// PathError adds the path to err. If err is an Error, its own op replaces op.
func PathError(op, path string, err error) error {
	if e, ok := err.(*Error); ok {
		op, err = e.Op, e.Err
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}

// CheckRegular returns nil if mode is that of a regular file, else the failure of a name that is no
// longer one. All code that checks a listed name by its metadata calls CheckRegular.
func CheckRegular(op string, mode fs.FileMode) error {
	if mode.IsRegular() {
		return nil
	}
	return &Error{op, Changed{Irregular(mode)}}
}

// An Irregular is the mode of something that should be a regular file, and is not.
type Irregular fs.FileMode

func (i Irregular) Error() string {
	return fmt.Sprintf("not a regular file any more: %v", fs.FileMode(i))
}

// A Misnamed is the failure of a name in Options.Files that does not lead to a
// regular file or, with a slash at its end, to a directory.
type Misnamed struct{ Err error }

func (m Misnamed) Error() string {
	mode, known := m.Err.(Irregular)
	switch {
	case fs.FileMode(mode).IsDir():
		return "a directory, named without a slash at the end"
	case known:
		return fmt.Sprintf("not a regular file: %v", fs.FileMode(mode))
	}
	return "not a regular file, or behind a symbolic link: " + m.Err.Error()
}

func (m Misnamed) Is(target error) bool { return target == fs.ErrInvalid }
func (m Misnamed) Unwrap() error        { return m.Err }
