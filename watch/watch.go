// Package watch is package fileproc for programs that follow a tree. A loop yields the
// results of all files, and then a result for each change of a file, until the loop ends.
//
//	for c, err := range watch.Stream(ctx, "notes", incremental.Options[string]{File: "notes.cache", Version: "1"},
//		fileproc.Options{Suffixes: []string{".md"}}, title) {
//		switch {
//		case err != nil:
//			log.Print(err) // of one file, which is tried again when it changes
//		case c.Settled:
//			rebuild(titles) // all that is known has been delivered
//		case c.Kind == incremental.Deleted:
//			delete(titles, c.Rel)
//		default:
//			titles[c.Rel] = c.Value
//		}
//	}
//
// # What it promises
//
// Once the tree has not changed for the quiet time, the delivered results are those of
// a full run of fileproc.Process, whatever happened before. A result replaces the previous
// one for the same path; a failure or a deletion withdraws it. While root or a
// directory cannot be read, the results delivered for its files remain valid. Sync tries
// again to read what could not be read, and so does the loop, after pauses that grow to a minute.
//
// Events of the system are hints: after an event, the loop compares the metadata or the
// content, as package incremental decides. So fn is called once for each change of a
// file, and never concurrently for one path. Paths that the options leave out are not watched.
// After an edit of an ignore file, the loop yields deletions and new files.
//
// # Where there are no events
//
// Root is the directory to which its path leads at any time. So the loop also watches each name
// in that path, and in the targets of its links, or checks them each second where it cannot
// watch them.
//
// On Linux, inotify watches each directory of ext4, xfs, btrfs, tmpfs, f2fs, ZFS, bcachefs
// and overlayfs. On Windows, one handle watches the tree. The loop polls on macOS, the BSDs and
// all other systems, on network and FUSE mounts, with Options.FS, and in directories for which
// Linux allows no more watches. It also polls with Symlinks other than SymlinksSkip, since
// no event reports a change behind a link. The interval between two polls is a hundred
// times the processor time that a poll takes, but at least Watcher.Poll.
//
// Some changes give no event:
//   - a store through a shared memory mapping, before the file is unmapped;
//   - a write through another name (hard link), if that name is outside root or in a directory
//     that is left out, or is gone when the loop looks at the event;
//   - a write to a file that is mounted over another;
//   - a write by Linux's io_submit, before the file is closed;
//   - a write through a loop device, before the device is detached;
//   - a change by another machine, or by a program that has the lower layer of an overlay.
//
// The loop sees such a change when it next looks at the file.
//
// # A program that writes into the tree
//
// A program that writes its output below root wakes itself with each result. Exclude the
// output with Options.Exclude. The cache file may be below root: it is never delivered.
package watch

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/incremental"
	"github.com/fileproc/fileproc/internal/sys"
	"github.com/fileproc/fileproc/watch/internal/events"
)

// A Change is the result for one file, or its deletion, or the mark that all results are delivered.
type Change[T any] struct {
	incremental.Result[T]

	// Settled marks the end of a burst: all known changes have been delivered. Such
	// a Change has no other field set. The first one comes when root can be listed and
	// all files that were there are delivered. A burst without a changed result
	// has no such mark.
	Settled bool
}

// ErrLimit is in an error that the loop yields once, when the system allows no more
// watches. The loop goes on, and polls the directories without a watch.
var ErrLimit = errors.New("watch: the system's limit of watches is reached; the rest is polled")

// Stream yields the results of all files, and then each change, until ctx ends. It is
// [Watcher.Changes] of a Watcher with the default times.
func Stream[T any](ctx context.Context, root string, inc incremental.Options[T], opts fileproc.Options, fn func(*fileproc.File) (T, error)) iter.Seq2[Change[T], error] {
	return New(root, inc, opts, fn).Changes(ctx)
}

// A Watcher follows the files below a directory. Set its fields before you call
// Changes.
type Watcher[T any] struct {
	// Quiet is the time without a change after which the loop looks at a burst of
	// changes, so that an editor's save is one change. Zero means 50 milliseconds, and
	// a negative time means no wait.
	Quiet time.Duration

	// MaxWait is the longest time that a change waits for quiet. Zero means one second.
	MaxWait time.Duration

	// Poll is the shortest interval between two polls. Zero means one second, a millisecond is
	// the minimum, and an hour the maximum. The interval grows, up to an hour, if a poll takes
	// more than a hundredth of it in processor time, not counting the time in fn. Where a
	// process cannot ask for its processor time, elapsed time counts.
	Poll time.Duration

	root  string
	inc   incremental.Options[T]
	opts  fileproc.Options
	fn    func(*fileproc.File) (T, error)
	syncs chan chan<- error

	mu    sync.Mutex
	ended chan struct{} // closed when the loop ends

	// What New sets, and tests replace.
	open          func(root string) (source, error)
	processorTime func() time.Duration // that the process has used so far
	saveAfter     time.Duration        // from a change to the save
}

// New returns a Watcher. The arguments are those of incremental.Stream, with two
// exceptions: inc.Deleted is not called, and opts.Files and opts.Roots must be nil.
func New[T any](root string, inc incremental.Options[T], opts fileproc.Options, fn func(*fileproc.File) (T, error)) *Watcher[T] {
	w := &Watcher[T]{
		root: root, inc: inc, opts: opts, fn: fn, syncs: make(chan chan<- error), ended: make(chan struct{}),
		open: openEvents, processorTime: sys.ProcessorTime, saveAfter: defaultSaveAfter,
	}
	if opts.FS != nil {
		w.open = func(string) (source, error) { return nil, events.ErrUnsupported }
	}
	return w
}

// Changes first yields the results of all files, also those that are unchanged since an
// earlier process saved them, and the deletions since then. Then it yields each change.
//
// Changes yields failures as fileproc.Stream does, or passes them to Options.OnError, and the
// loop goes on. The loop ends when ctx does (the error is context.Cause(ctx)), when OnError
// returns an error, when fn returns fs.SkipAll, and at once if the options are invalid. The
// loop saves the cache file at its end, and 30 seconds after a change. If saving fails, the
// error wraps incremental.ErrNotSaved, and the loop goes on and tries again 30 seconds later.
// While another process holds the cache file's lock, the loop delivers changes as always; at
// its end it waits a second for the lock. The next loop processes again what was not saved.
//
// Each burst is a run: with Options.Ordered, its results come in order, and its deletions after
// them. When the loop body gets a Change with Settled, Options.Report is that of the last run.
// While the loop body is busy, workers wait, and events accumulate.
//
// One loop at a time may use a Watcher.
func (w *Watcher[T]) Changes(ctx context.Context) iter.Seq2[Change[T], error] {
	return func(yield func(Change[T], error) bool) {
		w.begin()
		defer w.end()
		l := &loop[T]{w: w, yield: yield, dirty: map[string]bool{".": true}, still: map[string]bool{}, polled: map[string]error{}}
		l.run(ctx)
	}
}

// begin notes that a loop has begun, so that Sync waits for it.
func (w *Watcher[T]) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hasEnded() {
		w.ended = make(chan struct{})
	}
}

// end makes calls of Sync that wait for the loop fail. It may be called again.
func (w *Watcher[T]) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.hasEnded() {
		close(w.ended)
	}
}

func (w *Watcher[T]) hasEnded() bool {
	select {
	case <-w.ended:
		return true
	default:
		return false
	}
}

// Sync waits until the loop body has taken all changes that were made before the call of Sync,
// and has come back for more. Sync does not wait for the quiet time. If no loop has begun,
// Sync waits for one. It fails when ctx or the loop ends, or if the loop has ended. Do not
// call it in the loop body, where it would wait for ever.
func (w *Watcher[T]) Sync(ctx context.Context) error {
	w.mu.Lock()
	ended := w.ended
	w.mu.Unlock()
	done := make(chan error, 1) // buffered: the loop does not wait for Sync
	select {
	case w.syncs <- done:
	case <-ended:
		return errEnded
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
