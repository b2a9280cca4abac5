package pipe

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/names"
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
	spelled map[string][]string // of a name in pending: how the input has it, where that differs
	buf     []byte              // whole lines
	timer   *time.Timer         // set while buf waits to be written
	err     error
	closed  bool
}

func newAnswers(out io.Writer, cancel func(error)) *answers {
	return &answers{out: out, cancel: cancel, pending: map[string]int{}, spelled: map[string][]string{}}
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
func (a *answers) given(name, spelling string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pending[name]++
	if spelling != name {
		a.spelled[name] = append(a.spelled[name], spelling)
	}
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
	spelling, more := name, a.spelled[name]
	if len(more) > 0 {
		spelling, a.spelled[name] = more[0], more[1:]
	}
	if len(more) == 1 {
		delete(a.spelled, name)
	}
	a.putLocked(spelling, key, value)
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
func (a *answers) give(ctx context.Context, r io.Reader, end byte, root string, isFS bool, yield func(string) bool) error {
	below := names.Below(root, isFS)
	for record, err := range records.All(ctx, r, end) {
		if err != nil {
			return err
		}
		spelling := record
		if end == '\n' {
			spelling, err = parseName(record)
		}
		name := spelling
		if err == nil {
			name = below(spelling)
			err = checkName(name, isFS)
		}
		a.given(name, spelling)
		if err != nil {
			a.fail(name, err)
		} else if !yield(name) {
			return nil
		}
	}
	return nil
}
