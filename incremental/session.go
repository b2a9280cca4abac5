package incremental

import (
	"context"
	"errors"
	"iter"

	"github.com/fileproc/fileproc"
)

// A Result is what a run of a Session has found out about one file.
type Result[T any] struct {
	Rel   string // the path relative to root, with slashes
	Kind  Kind
	Value T // what fn returned, unless Kind is Deleted
}

// A Kind says how a file compares with the run before.
type Kind int

const (
	Unchanged Kind = iota // the result is from an earlier run, fn was not called
	New                   // there was no result for this path
	Changed               // fn was called, or its result was found elsewhere
	Deleted               // there is no result any more: the file is gone, or the options no longer select it
)

// A Session is an open cache file, for programs that live long: they run over all
// files or over those that are named, as often as they like, and save when they
// like. A run sees what the runs before it have found out, saved or not.
type Session[T any] struct{}

// Open opens the cache file inc.File for a Session.
func Open[T any](root string, inc Options[T], opts fileproc.Options, fn func(*fileproc.File) (T, error)) (*Session[T], error) {
	return nil, errors.ErrUnsupported
}

// Run looks at all files below root, or with names, at those.
func (s *Session[T]) Run(ctx context.Context, names []string) iter.Seq2[Result[T], error] { return nil }

// Save writes what is new to the cache file.
func (s *Session[T]) Save(ctx context.Context) error { return nil }

// Close saves, and ends the session.
func (s *Session[T]) Close() error { return nil }
