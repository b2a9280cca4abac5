// Package incremental is package fileproc for trees that are processed again and
// again: a run opens the files that have changed since the last run, and takes the
// results of all other files from a cache file.
//
//	titles, err := incremental.Process(ctx, "notes", incremental.Options[string]{File: "notes.cache", Version: "1"},
//		fileproc.Options{Suffixes: []string{".md"}},
//		func(f *fileproc.File) (string, error) {
//			line, _, _ := bytes.Cut(f.Data(), []byte("\n"))
//			return string(line), nil
//		})
//
// The results are those that a run without a cache would give, whatever has
// happened to the tree or to the cache file meanwhile, as long as
//
//   - the result of fn depends only on the file's content, path, size and mode, on the
//     options and on Options.Version;
//   - the file system sees each change of a file: a store through a shared memory
//     mapping may change the times only later, and a write to the disk below a
//     mounted file system never changes them.
//
// # What is unchanged
//
// On file systems that are known to keep their times well, a file is unchanged if all of
// these are the same as before: its path, size, inode number and mode, and the times of its
// last write, its last change and its birth. A result is kept only if they were the same
// before and after fn's read of the file, and the times were then at least two seconds old:
// the clock of a file system may stand still for some milliseconds while a file is written
// twice. Files with times in the future are processed in every run. After a reboot, a
// result is not used if its file changed less than five minutes before the result was
// saved: a loss of power may have left old content beside new times.
//
// On other file systems (network and FUSE mounts, FAT, an fs.FS, and all file systems on
// Windows, Plan 9, js and wasip1) a run reads every file. A file is unchanged if the hash
// of File.Data is the same as before (SHA-256, of which 128 bits are kept). There fn must
// take the content from Data, and nothing from File.Stat or File.Open. No result is kept
// there with fileproc.NoRead, nor for a file longer than ReadSize.
//
// One of three outcomes is kept for a file: its result, that fn returned
// fileproc.ErrSkip, or that fileproc.Options.SkipBinary skipped it. Failures are not kept.
package incremental

import (
	"context"
	"iter"

	"github.com/fileproc/fileproc"
)

// Process is like fileproc.Process, but does not call fn for files that are unchanged
// since the last run with the same inc.File: it returns the results of that run.
// Report.Unchanged counts these files.
//
// If the cache file cannot be written, Process returns all results and an error
// that wraps ErrNotSaved. A long run also saves every 30 seconds, so that most results
// are kept if the program is killed.
func Process[T any](ctx context.Context, root string, inc Options[T], opts fileproc.Options, fn func(*fileproc.File) (T, error)) ([]T, error) {
	r, err := begin(root, &inc, &opts, fn)
	if err != nil {
		return nil, err
	}
	defer r.giveReport()
	results, err := fileproc.Process(ctx, root, opts, r.fn())
	return results, r.end(ctx, err)
}

// Stream is like fileproc.Stream, with the cache as in Process. If the loop ends early,
// results that it has not received are saved too. Each loop is a run of its own.
func Stream[T any](ctx context.Context, root string, inc Options[T], opts fileproc.Options, fn func(*fileproc.File) (T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var zero T
		inc, opts := inc, opts
		r, err := begin(root, &inc, &opts, fn)
		if err != nil {
			yield(zero, err)
			return
		}
		defer r.giveReport()
		left := false
		for v, err := range fileproc.Stream(ctx, root, opts, r.fn()) {
			if left = !yield(v, err); left {
				r.stopped.Store(true)
				break
			}
		}
		if err := r.end(ctx, nil); err != nil && !left {
			yield(zero, err)
		}
	}
}

// ForEach is like fileproc.ForEach, with the cache as in Process: fn is not called for
// an unchanged file for which it has returned nil or fileproc.ErrSkip in an earlier run.
func ForEach(ctx context.Context, root string, inc Options[struct{}], opts fileproc.Options, fn func(*fileproc.File) error) error {
	r, err := begin(root, &inc, &opts, func(f *fileproc.File) (struct{}, error) { return struct{}{}, fn(f) })
	if err != nil {
		return err
	}
	defer r.giveReport()
	each := func(f *fileproc.File) error {
		_, err := r.visit(f)
		return err
	}
	if fn == nil {
		each = nil
	}
	return r.end(ctx, fileproc.ForEach(ctx, root, opts, each))
}
