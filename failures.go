package fileproc

import (
	"fmt"
	"strings"
	"sync"
)

// maxFailures is how many failures one error keeps; the rest are counted.
const maxFailures = 100

// failures collects the failures of a run, or passes them to onError.
type failures struct {
	onError func(error) error
	stop    func(error)

	mu    sync.Mutex // guards what follows, and serialises onError and onSkip
	first []error
	more  int64
	over  bool // onError is not called any more
}

func (f *failures) add(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.onError != nil:
		if f.over {
			return
		}
		f.over = true // until onError returns nil: it may also panic
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

// oneAtATime makes a call of onSkip while no other call of onSkip or onError runs.
func (f *failures) oneAtATime(call func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	call()
}

// join returns one error for all failures and for cause, the error that stopped the
// run early, or nil.
func (f *failures) join(cause error) error {
	errs := f.first
	if cause != nil {
		errs = append([]error{cause}, errs...)
	}
	switch {
	case len(errs) == 0:
		return nil
	case len(errs) == 1: // then f.more is 0
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
