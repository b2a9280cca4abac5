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
package watch

import (
	"context"
	"iter"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/incremental"
)

// A Change is the result for one file, or its deletion, or the mark that all is delivered.
type Change[T any] struct {
	incremental.Result[T]

	// Settled marks the end of a burst: what was known to have changed has been
	// delivered. A Change that is Settled has nothing else. The first one
	// comes when all files that were there at the beginning are delivered.
	Settled bool
}

// Stream yields what is there, and then what changes, until ctx ends. It is
// [Watcher.Changes] of a Watcher with the default times.
func Stream[T any](ctx context.Context, root string, inc incremental.Options[T], opts fileproc.Options, fn func(*fileproc.File) (T, error)) iter.Seq2[Change[T], error] {
	return New(root, inc, opts, fn).Changes(ctx)
}

// A Watcher follows the files below a directory. Its fields are set before Changes is called.
type Watcher[T any] struct {
	// Quiet is how long nothing must have changed before a burst of changes is looked
	// at, so that an editor's save is one change. Zero means 50 milliseconds, and
	// a negative time none.
	Quiet time.Duration

	// MaxWait is how long a change waits for quiet at most. Zero means one second.
	MaxWait time.Duration
}

// New returns a Watcher, whose arguments are those of incremental.Stream.
func New[T any](root string, inc incremental.Options[T], opts fileproc.Options, fn func(*fileproc.File) (T, error)) *Watcher[T] {
	return &Watcher[T]{}
}

// Changes yields the results of all files, and then each change, until ctx ends.
func (w *Watcher[T]) Changes(ctx context.Context) iter.Seq2[Change[T], error] { return nil }

// Sync waits until the loop has got all that had changed before Sync was called. It
// is called on another goroutine than the loop's.
func (w *Watcher[T]) Sync(ctx context.Context) error { return nil }
