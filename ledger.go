package fileproc

import (
	"errors"
	"io/fs"
	"strings"

	"github.com/fileproc/fileproc/internal/sys"
)

// The ledger. Each entry counts once as found, and once as what becomes of it: processed,
// unchanged, skipped, failed or abandoned.
//
//   - A scan, which meets the entry in a listing or among given names, calls found
//     if the entry goes into a batch, or else foundSkipped or foundFailed, which count both.
//   - A visit of a file of a batch, which is counted as found, calls settle, skip, fail or
//     abandon.
//   - With Options.AllTypes, deliverDir counts a directory that is an entry when fn has returned.
//   - The files of a batch that nobody visits, because the run is stopped, are abandoned by
//     the pool. total adds them.
//
// A method that calls OnError or OnSkip counts after the call: if the callback panics, the
// entry counts as abandoned instead, like the rest of its batch.

// found counts k files that go into a batch.
func (w *worker) found(k int) { w.counts.found += int64(k) }

// foundBatch counts the files of b, which no addToBatch has counted, and adds b to the pool.
func (w *worker) foundBatch(b *batch) {
	w.found(len(b.entries))
	w.pool.addBatch(b)
}

// foundSkipped counts the entry name of n, or n itself if name is "", as found and skipped.
func (w *worker) foundSkipped(why SkipReason, n *node, name string, typ fs.FileMode) {
	w.countSkipped(why, n, name, typ)
	w.found(1)
}

// foundFailed counts the entry name of n, or n itself if name is "", as found and failed.
func (w *worker) foundFailed(op string, n *node, name string, err error) {
	kind := FailedFile
	if name == "" {
		if kind = FailedDir; n.parent == nil {
			kind = FailedRoot
		}
	}
	w.foundFailedAs(kind, op, n, name, err)
}

// foundFailedAs is foundFailed for a failure whose kind does not follow from name.
func (w *worker) foundFailedAs(kind FailureKind, op string, n *node, name string, err error) {
	w.countFailed(w.failure(kind, op, n, name, err))
	w.found(1)
}

// foundFailedRule is foundFailed for a file that says what is ignored, which may be outside root.
func (w *worker) foundFailedRule(failure *Failure) {
	failure.ofRule = true
	w.countFailed(failure)
	w.found(1)
}

// settle counts f, for which fn has returned err.
func (w *worker) settle(f *File, err error) {
	with, both := err.(*resultError)
	if both {
		err = with.error
	}
	switch {
	case f.unchanged && (err == nil || errors.Is(err, ErrSkip)):
		w.counts.unchanged++
	case err == nil:
		w.counts.processed++
	case w.stopped() && errors.Is(err, errStopped):
		w.abandon(1)
	case errors.Is(err, ErrSkip):
		w.skip(f, SkippedByFunc)
	case errors.Is(err, fs.SkipAll):
		if both {
			w.counts.processed++
		} else {
			w.skip(f, SkippedByFunc)
		}
		w.stop(errEnough)
	default:
		w.countFailed(w.failure(FailedFunc, "process", f.node, f.name.String(), err))
	}
}

func (w *worker) skip(f *File, why SkipReason) { w.countSkipped(why, f.node, f.name.String(), f.typ) }

func (w *worker) fail(f *File, err error) {
	w.countFailed(w.failure(FailedFile, "open", f.node, f.name.String(), err))
}

func (w *worker) abandon(k int) { w.counts.abandoned += int64(k) }

func (w *worker) countReplaced() { w.counts.replaced++ }

// listedDir counts a directory whose entries have all been listed.
func (w *worker) listedDir() { w.counts.directories++ }

// total returns the counts of the run, which is over.
func (s *shared) total() counts {
	total := counts{abandoned: s.pool.abandoned, listed: s.pool.isListed()}
	for _, w := range s.workers {
		total.add(&w.counts)
		if b := w.scanner.batch; b != nil { // its scan panicked
			total.abandoned += int64(len(b.entries))
		}
	}
	return total
}

// failure returns a failure of the entry name of n, or of n itself if name is "".
func (w *worker) failure(kind FailureKind, op string, n *node, name string, err error) *Failure {
	if w.given != nil && kind != FailedFunc && kind != FailedRoot {
		err = n.givenError(name, err)
	}
	if e, ok := err.(*sys.Error); ok && kind != FailedFunc {
		op, err = e.Op, e.Err
	}
	return &Failure{Kind: kind, PathError: fs.PathError{Op: op, Path: n.path(name), Err: err}}
}

func (w *worker) countFailed(failure *Failure) {
	if w.calls.onError == nil && w.calls.yieldError != nil {
		w.calls.yieldError(w, failure)
	} else {
		w.short.after(func() { w.failures.add(failure) })
	}
	w.counts.failed++
}

func (w *worker) countSkipped(why SkipReason, n *node, name string, typ fs.FileMode) {
	if w.calls.onSkip != nil {
		w.tellSkipped(why, n, strings.Clone(name), typ)
	}
	w.counts.addSkipped(why, 1)
}

func (w *worker) tellSkipped(why SkipReason, n *node, name string, typ fs.FileMode) {
	if name == "" && n.parent != nil {
		n, name = n.parent, n.name.String()
	}
	w.short.after(func() { w.failures.oneAtATime(func() { w.calls.onSkip(w, n, name, typ, why) }) })
}
