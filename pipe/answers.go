package pipe

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/records"
)

const (
	flushSize  = 64 << 10 // bytes
	flushAfter = 50 * time.Millisecond
)

var errPanicked = errors.New("pipe: a callback has panicked")

// answers writes the answers, and knows which names have none yet.
type answers struct {
	out      io.Writer
	cancel   func(error)            // ends the batch
	panicked atomic.Pointer[string] // the path of the file whose callback panicked

	mu      sync.Mutex // guards what follows
	pending map[string]int
	buf     []byte      // whole lines
	timer   *time.Timer // set while buf waits to be written
	err     error
	closed  bool
}

func newAnswers(out io.Writer, cancel func(error)) *answers {
	return &answers{out: out, cancel: cancel, pending: map[string]int{}}
}

// call calls do, which may panic, for f, or for no file if f is nil. After a panic, call cancels the batch, because the run
// would still wait for names.
func (a *answers) call(f *fileproc.File, do func()) {
	returned := false
	defer func() {
		if !returned {
			if f != nil {
				path := f.Path()
				a.panicked.CompareAndSwap(nil, &path)
			}
			a.cancel(errPanicked)
		}
	}()
	do()
	returned = true
}

// given notes a name before it can be answered.
func (a *answers) given(name string) {
	a.mu.Lock()
	a.pending[name]++
	a.mu.Unlock()
}

func (a *answers) isPending(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pending[name] > 0
}

func (a *answers) fail(name string, err error) {
	text, _ := marshal(err.Error()) // a string always has a JSON value
	a.put(name, `"error":`, text)
}

func (a *answers) skip(name string) { a.put(name, `"skipped":`, []byte("true")) }

// put answers a name with a member of the line's object.
func (a *answers) put(name, key string, value []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pending[name]--; a.pending[name] == 0 {
		delete(a.pending, name)
	}
	a.putLocked(name, key, value)
}

func (a *answers) putLocked(name, key string, value []byte) {
	a.buf = append(appendName(append(a.buf, `{"path":`...), name), ',')
	a.buf = append(append(append(a.buf, key...), value...), "}\n"...)
	switch {
	case len(a.buf) >= flushSize:
		a.flushLocked()
	case a.timer == nil:
		a.timer = time.AfterFunc(flushAfter, a.flush)
	}
}

func (a *answers) flush() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.closed {
		a.flushLocked()
	}
}

// flushLocked writes all lines. If it cannot, it ends the batch.
func (a *answers) flushLocked() {
	if a.timer != nil {
		a.timer.Stop()
		a.timer = nil
	}
	if a.err == nil && len(a.buf) > 0 {
		var n int
		if n, a.err = a.out.Write(a.buf); a.err == nil && n < len(a.buf) {
			a.err = io.ErrShortWrite
		}
		if a.err != nil {
			a.cancel(a.err)
		}
	}
	a.buf = a.buf[:0]
}

// finish writes what is left when all files are done.
func (a *answers) finish() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.flushLocked()
	return a.err
}

// close keeps a timer from writing once the batch has ended.
func (a *answers) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	if a.timer != nil {
		a.timer.Stop()
	}
}

// give yields the names in r, and answers the names that cannot be those of files below root.
func (a *answers) give(ctx context.Context, r io.Reader, end byte, isFS bool, yield func(string) bool) error {
	for record, err := range records.All(ctx, r, end) {
		if err != nil {
			return err
		}
		name := record
		if end == '\n' {
			name, err = parseName(record)
		}
		if err == nil {
			err = checkName(name, isFS)
		}
		a.given(name)
		if err != nil {
			a.fail(name, err)
		} else if !yield(name) {
			return nil
		}
	}
	return nil
}
