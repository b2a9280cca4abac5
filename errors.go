package fileproc

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
)

var (
	// ErrSkip is what fn returns, as it is or wrapped, to give neither a
	// result nor an error for a file.
	ErrSkip = errors.New("fileproc: skip this file")

	// ErrTooLarge is the failure of a file larger than Options.MaxFileSize.
	ErrTooLarge = errors.New("fileproc: file is larger than Options.MaxFileSize")

	// ErrChanged is the failure of an entry that vanished, or was no longer
	// the regular file or the directory that had been listed, when it was
	// opened. Where the operating system said why, the failure is that error
	// too: of a file that vanished, errors.Is(err, fs.ErrNotExist) holds.
	ErrChanged = errors.New("fileproc: entry changed between listing and opening")
)

// errStopped ends work that the run's end has overtaken. It reaches no caller
// but those of File.Stat and File.Open within an fn that outlasts the run's end.
var errStopped = errors.New("fileproc: the run has been stopped")

// errEnough is why a run stops that fn has said enough of, or whose loop was
// left. It reaches no caller.
var errEnough = errors.New("fileproc: enough")

// errBinary is of a file that Options.SkipBinary leaves out. It reaches no caller.
var errBinary = errors.New("fileproc: binary file")

// maxFailures is how many failures one error keeps; the rest are counted.
const maxFailures = 100

// changed marks an operating system's error as ErrChanged.
type changed struct{ err error }

func (c changed) Error() string        { return ErrChanged.Error() + ": " + c.err.Error() }
func (c changed) Is(target error) bool { return target == ErrChanged }
func (c changed) Unwrap() error        { return c.err }

// A sysError is a failure that does not know its path yet: backends see one
// name at a time, and only the core can tell the whole path.
type sysError struct {
	op  string
	err error
}

func (e *sysError) Error() string { return e.op + ": " + e.err.Error() }
func (e *sysError) Unwrap() error { return e.err }

// pathError gives err the path that it is about.
func pathError(op, path string, err error) error {
	if e, ok := err.(*sysError); ok {
		op, err = e.op, e.err
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}

// asSysError takes the path out of an error of package os or of an fs.FS, in
// which the path is a handle's or a single name.
func asSysError(op string, err error) error {
	if e, ok := err.(*fs.PathError); ok {
		return &sysError{e.Op, e.Err}
	}
	return &sysError{op, err}
}

// failures collects what went wrong in a run, or hands it on.
type failures struct {
	onError func(error) error
	stop    func(error)
	yield   func(*local, error) // Stream and Walk: where failures go without onError

	mu    sync.Mutex // guards what follows, and calls of onError
	first []error
	more  int64
	over  bool // onError is not to be called any more
}

func (f *failures) add(l *local, err error) {
	if f.onError == nil && f.yield != nil {
		f.yield(l, err)
		return
	}
	if f.onError != nil && l.yields {
		l.untold = append(l.untold, err)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.onError != nil:
		if f.over {
			return
		}
		f.over = true // unless it returns nil: it may also panic
		if err := f.onError(err); err != nil {
			f.stop(err)
			return
		}
		f.over = false
	case len(f.first) < maxFailures:
		f.first = append(f.first, err)
	default:
		f.more++
	}
}

// tell makes up for what add has put off while l had others wait.
func (f *failures) tell(l *local) {
	untold := l.untold
	l.untold = nil
	for _, err := range untold {
		f.add(l, err)
	}
}

// join returns one error for why the run stopped, if it was before its end,
// and for all that failed.
func (f *failures) join(cause error) error {
	errs := f.first
	if cause != nil {
		errs = append([]error{cause}, errs...)
	}
	switch {
	case len(errs) == 0:
		return nil
	case len(errs) == 1 && f.more == 0:
		return errs[0]
	}
	return &joinedError{errs, f.more}
}

// A joinedError is several failures as one error.
type joinedError struct {
	errs []error
	more int64
}

func (e *joinedError) Error() string {
	var b strings.Builder
	for i, err := range e.errs {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(err.Error())
	}
	if e.more > 0 {
		fmt.Fprintf(&b, "\nfileproc: and %d more failures", e.more)
	}
	return b.String()
}

func (e *joinedError) Unwrap() []error { return e.errs }

// A PanicError is what a panic in fn, or in another callback, becomes: the call of
// this package panics with a *PanicError on the caller's goroutine.
type PanicError struct {
	Value any    // what the callback panicked with
	Stack []byte // of the goroutine that panicked, as debug.Stack gives it
}

func (p *PanicError) Error() string {
	return fmt.Sprintf("fileproc: panic in a callback: %v\n\nthe goroutine that panicked:\n%s", p.Value, p.Stack)
}

// Unwrap returns Value if it is an error.
func (p *PanicError) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}
