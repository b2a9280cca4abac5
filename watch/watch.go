// Package watch is package fileproc for programs that follow a tree: a loop yields the
// results of all files, and then those of each file that changes, until it ends.
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
// After the tree has been still for the quiet time, the results delivered are those of
// a full run of fileproc.Process, whatever happened before. A result replaces the one
// before for the same path; a failure and a deletion end it. While root, or a
// directory, cannot be read, what was delivered of it stands. What cannot be read is
// looked at again by Sync, and after pauses that grow to a minute.
//
// Events of the system are hints: each is followed by a look at the metadata, or at the
// content, as package incremental decides. So fn is called once for each change of a
// file, and never twice at a time for one path. What the options leave out is not watched. An edited ignore
// file shows as deletions and new files.
//
// # Where there are no events
//
// Root is what its path leads to at each time: all names in it, and in the targets of its
// links, are watched as well, or looked at each second where that is not possible.
//
// On Linux, inotify watches each directory of ext4, xfs, btrfs, tmpfs, f2fs, ZFS, bcachefs
// and overlayfs. On Windows, one handle watches the tree. On macOS, the BSDs and all other systems,
// on network and FUSE mounts, with
// Options.FS, and in directories for which Linux allows no more watches, the tree is
// polled: it is run over at an interval of a hundred times the processor time that this takes,
// at least Watcher.Poll. With Symlinks, other than SymlinksSkip, it is polled too:
// no event tells what happens behind a link.
//
// Some changes give no event: a store through a shared memory mapping, before the file is
// unmapped; a write by another name (hard link) outside root, in a directory that is left out, or by one that is gone
// when the event is looked at; a write to a file that is mounted over another, or by Linux's
// io_submit or through a loop device before that ends; what another machine, or a program that has the
// lower layer of an overlay, changes. They show when the file is looked at next.
//
// # A program that writes into the tree
//
// A program whose output is below root wakes itself with each result. Leave the output
// out with Options.Exclude. The cache file may be below root: it is never delivered.
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

// A Change is the result for one file, or its deletion, or the mark that all is delivered.
type Change[T any] struct {
	incremental.Result[T]

	// Settled marks the end of a burst: what was known to have changed has been
	// delivered. A Change that is Settled has nothing else. The first one
	// comes when root can be listed and all files that were there are delivered. A burst in
	// which no result has changed has none.
	Settled bool
}

// ErrLimit is in an error that the loop gets once, when the system allows no more
// watches. The loop goes on: the directories without one are polled.
var ErrLimit = errors.New("watch: the system's limit of watches is reached; the rest is polled")

// Stream yields what is there, and then what changes, until ctx ends. It is
// [Watcher.Changes] of a Watcher with the default times.
func Stream[T any](ctx context.Context, root string, inc incremental.Options[T], opts fileproc.Options, fn func(*fileproc.File) (T, error)) iter.Seq2[Change[T], error] {
	return New(root, inc, opts, fn).Changes(ctx)
}

// A Watcher follows the files below a directory. Its fields are set before Changes is
// called.
type Watcher[T any] struct {
	// Quiet is how long nothing must have changed before a burst of changes is looked
	// at, so that an editor's save is one change. Zero means 50 milliseconds, and
	// a negative time none.
	Quiet time.Duration

	// MaxWait is how long a change waits for quiet at most. Zero means one second.
	MaxWait time.Duration

	// Poll is the least time between two looks at what is polled. Zero means one
	// second, and a millisecond is the least. They are further apart if a look takes more than a hundredth of that of one
	// processor's time, without that in fn. Where the system does not tell a process how much it takes, time that passes counts.
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
	processorTime func() time.Duration // which the process has taken
	saveAfter     time.Duration        // a change
}

// New returns a Watcher, whose arguments are those of incremental.Stream, but for
// inc.Deleted, which is not called, and opts.Files, which must be nil.
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

// Changes yields the results of all files, those that are unchanged since an earlier
// process saved them among them, and what is deleted since. Then it yields each change.
//
// Failures are yielded as by fileproc.Stream, or go to Options.OnError, and the loop goes
// on. It ends when ctx does, with context.Cause(ctx), when OnError returns an error,
// when fn returns fs.SkipAll, and for invalid options. It saves the
// cache file at the end, and 30 seconds after a change. An error of that wraps
// incremental.ErrNotSaved, and ends nothing: 30 seconds later it tries again. While
// another process holds the cache file's lock, changes are delivered as always, and the
// end waits a second for it. What is not saved is processed again by the next loop.
//
// Each burst is a run: with Ordered, its results are in order, and its deletions behind
// them. Report is that of the last run when the loop gets a Change that is Settled.
// While the loop does something else, workers wait, and events gather.
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

// begin notes that a loop runs.
func (w *Watcher[T]) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hasEnded() {
		w.ended = make(chan struct{})
	}
}

// end lets those who wait for the loop go. It may be called again.
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

// Sync waits until the loop has taken all that had changed before Sync was called, and
// has come back for more. It waits for no quiet time, but for a loop that has not begun. It is not called in the
// loop itself, where it would wait for ever, and fails when ctx or the loop ends, or if the loop has ended.
func (w *Watcher[T]) Sync(ctx context.Context) error {
	w.mu.Lock()
	ended := w.ended
	w.mu.Unlock()
	done := make(chan error, 1) // the loop does not wait
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
