package fileproc

import (
	"errors"
	"fmt"
	"io/fs"
)

var (
	// ErrSkip is returned by fn, as it is or wrapped, to give neither a result nor
	// an error for a file.
	ErrSkip = errors.New("fileproc: skip this file")

	// ErrTooLarge is the failure of a file larger than Options.MaxFileSize.
	ErrTooLarge = errors.New("fileproc: file is larger than Options.MaxFileSize")

	// ErrChanged is the failure of an entry that, when it was opened, had vanished
	// or was no longer the regular file or directory that was listed, and of a
	// directory that was removed while it was listed. It wraps the operating system's
	// error, if any: for a file that vanished, errors.Is(err, fs.ErrNotExist) is true.
	ErrChanged = errors.New("fileproc: entry changed between listing and opening")
)

// errStopped is the failure of work that a stopped run no longer does. Only
// File.Stat and File.Open return it, to an fn that is still running.
var errStopped = errors.New("fileproc: the run has been stopped")

// errEnough stops a run without an error: fn returned fs.SkipAll, or the loop
// over Stream or Walk ended early.
var errEnough = errors.New("fileproc: enough")

// errBinary is the outcome of a file that Options.SkipBinary skips.
var errBinary = errors.New("fileproc: binary file")

// changed marks an operating system's error as ErrChanged.
type changed struct{ err error }

func (c changed) Error() string        { return ErrChanged.Error() + ": " + c.err.Error() }
func (c changed) Is(target error) bool { return target == ErrChanged }
func (c changed) Unwrap() error        { return c.err }

// A sysError is a failure without a path. Backends see one name at a time; only
// the core knows the whole path.
type sysError struct {
	op  string
	err error
}

func (e *sysError) Error() string { return e.op + ": " + e.err.Error() }
func (e *sysError) Unwrap() error { return e.err }

// pathError adds the path to err. A sysError has an op of its own.
func pathError(op, path string, err error) error {
	if e, ok := err.(*sysError); ok {
		op, err = e.op, e.err
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}

// asSysError removes the path, a single name or that of a handle, from an error
// of package os or of an fs.FS.
func asSysError(op string, err error) error {
	switch e := err.(type) {
	case *sysError:
		return e
	case *fs.PathError:
		return &sysError{e.Op, e.Err}
	}
	return &sysError{op, err}
}

// checkRegular returns the failure of a name that is no longer a regular file, unless
// mode is one's. Nothing else decides that about metadata.
func checkRegular(op string, mode fs.FileMode) error {
	if mode.IsRegular() {
		return nil
	}
	return &sysError{op, changed{irregular(mode)}}
}

// An irregular is the mode of what should be a regular file.
type irregular fs.FileMode

func (i irregular) Error() string {
	return fmt.Sprintf("not a regular file any more: %v", fs.FileMode(i))
}

// misnamed is the failure of a name in Options.Files that does not lead to a
// regular file or, with a slash at its end, to a directory.
type misnamed struct{ err error }

func (m misnamed) Error() string {
	mode, known := m.err.(irregular)
	switch {
	case known && fs.FileMode(mode).IsDir():
		return "a directory, named without a slash at the end"
	case known:
		return fmt.Sprintf("not a regular file: %v", fs.FileMode(mode))
	}
	return "not a regular file, or behind a symbolic link: " + m.err.Error()
}

func (m misnamed) Is(target error) bool { return target == fs.ErrInvalid }
func (m misnamed) Unwrap() error        { return m.err }

// badName is the failure of an entry whose listed name is not a single name.
func badName(name []byte) error {
	return fmt.Errorf("%q cannot be the name of an entry: %w", name, fs.ErrInvalid)
}

// A PanicError is a panic in fn or in another callback. The function that was
// given the callback panics with a *PanicError on its caller's goroutine.
type PanicError struct {
	Value any    // what the callback panicked with
	Stack []byte // of the goroutine that panicked, as debug.Stack gives it
}

func (p *PanicError) Error() string {
	return fmt.Sprintf("fileproc: panic in a callback: %v\n\nthe goroutine that panicked:\n%s", p.Value, p.Stack)
}

// Unwrap returns Value if it is an error, and nil otherwise.
func (p *PanicError) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}
