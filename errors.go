package fileproc

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/fileproc/fileproc/internal/content"
	"github.com/fileproc/fileproc/internal/sys"
)

var (
	// ErrSkip is returned by fn, as it is or wrapped, to give neither a result nor
	// an error for a file.
	ErrSkip = errors.New("fileproc: skip this file")

	// ErrTooLarge is the failure of a file larger than [Options.MaxFileSize]. The
	// failure wraps it, and its text has the size and the limit.
	ErrTooLarge = content.ErrTooLarge

	// ErrChanged is the failure of an entry that had changed when the run opened it: it
	// had vanished, or was no longer the regular file or directory that was listed. It is
	// also the failure of a directory that was removed while it was listed. [File.Reader]
	// and [File.Replace] return it for a file that has changed since Data was read. It wraps the operating
	// system's error, if any: for a file that vanished, errors.Is(err, fs.ErrNotExist) is
	// true.
	ErrChanged = sys.ErrChanged
)

// A Failure says why root, a directory or a file could not be processed.
// [Options.OnError] gets it, and [Stream] and [Walk] yield it. In the error that
// [Process] returns, errors.As finds the first Failure. If there are several, the
// error's method Unwrap() []error returns up to 100.
type Failure struct {
	Kind FailureKind

	// Path is as File.Path. Op is the system call, and Err the operating system's error
	// or one of this package. For FailedFunc, Op is "process", and Err the very value
	// that fn returned.
	fs.PathError

	ofRule bool // see plumbing.API.IsOfRule
}

// A FailureKind says what has failed.
type FailureKind int

const (
	FailedRoot FailureKind = iota // root could not be opened, or not listed to its end
	FailedDir                     // a directory below root could not be opened or not listed to its end, or its metadata could not be fetched
	FailedFile                    // a file could not be opened or read, or an entry's name is invalid or its type unknown
	FailedFunc                    // fn returned an error
)

func (k FailureKind) String() string {
	if names := [...]string{"root", "directory", "file", "function"}; k >= 0 && int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("FailureKind(%d)", int(k))
}

// Unwrap returns the *fs.PathError, which unwraps to Err. So errors.As finds the
// *fs.PathError, but a type assertion does not.
func (f *Failure) Unwrap() error { return &f.PathError }

// isOfRule is plumbing.API.IsOfRule.
func isOfRule(err error) bool {
	f, ok := err.(*Failure)
	return ok && f.ofRule
}

// WithResult returns an error with which fn can return both err and a result. The
// result is delivered as if there were no error, and err is handled as without
// WithResult: it is a failure of the file, or [fs.SkipAll] stops the run. [Stream]
// yields the result and the failure together; if [Options.OnError] gets the failure,
// it yields the result alone. [Report] counts the file as failed, or as processed if
// err is fs.SkipAll. If fn wraps the returned error, the result is dropped.
// WithResult(nil) is nil, and so is WithResult of [ErrSkip].
func WithResult(err error) error {
	switch {
	case hasResult(err): // as it is
		return err
	case errors.Is(err, ErrSkip):
		return nil // there is a result, so the file is not skipped
	}
	return &resultError{err}
}

// A resultError is what WithResult returns.
type resultError struct{ error }

func (e *resultError) Unwrap() error { return e.error }

// hasResult reports whether fn, which returned err, gave a result.
func hasResult(err error) bool {
	_, ok := err.(*resultError)
	return ok || err == nil
}

var errRootIsFile = errors.New("a file: the paths in Options.Files need a directory")

// errStopped is the failure of work that a stopped run no longer does. Only
// File.Stat, Open and Reader return it, to an fn that is still running.
var errStopped = content.ErrStopped

// errEnough stops a run without an error: fn returned fs.SkipAll, or the loop
// over Stream or Walk ended early.
var errEnough = errors.New("fileproc: enough")

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
