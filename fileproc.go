// Package fileproc processes every regular file under a directory as fast as
// the kernel allows. It lists, filters, opens and reads the files on a pool of
// workers and passes each to a function.
//
//	titles, err := fileproc.Process(ctx, "notes", fileproc.Options{Suffixes: []string{".md"}},
//		func(f *fileproc.File) (string, error) {
//			line, _, _ := bytes.Cut(f.Data(), []byte("\n"))
//			return string(line), nil
//		})
//
// [Process] returns all results, and [Stream] yields them as they become ready.
// [ForEach] takes a function without a result. [Walk] lists and opens no file.
// [Options] select the files (by name, pattern, ignore file, size and more),
// what is read of each, and the order of results. The default is every regular
// file, whole. Package [github.com/fileproc/fileproc/incremental] processes
// again only the files that have changed.
//
// # Guarantees
//
// Every regular file that exists unchanged during the whole run is delivered exactly
// once, with exactly its bytes. (A name comes twice if the listing of a broken file
// system has it twice. A file that is renamed meanwhile may come under both names, or
// under neither.) Entries that cannot be read are failures, entries that are left out
// are counted in [Report], and nothing else is missing. When a call returns, or a loop
// over Stream or Walk ends in any way, no goroutine and no descriptor of the run is
// left.
//
// Symbolic links below root are not followed unless [Options.Symlinks] says so.
// A link that replaces a directory during the run is never followed: every open
// names one component relative to an open directory.
//
// # Errors
//
// A failure is a [*Failure], which says what has failed: root, a directory, a file
// or fn. It wraps an [*fs.PathError]. Failures do not end the run: all other files
// are processed. Process returns the first 100 failures as one error, which states
// the number of the rest. [Options.OnError] gets each failure as it occurs and may
// stop the run. A run does not start if its options are invalid, or if a file that
// [Options.IgnoreFiles] names by its path is unreadable. Then Process returns that
// error alone, a loop over Stream or Walk yields nothing else, and OnError is not
// called.
//
// A panic in fn stops the run. The goroutine that called Process, or that loops
// over Stream, then panics with a [*PanicError], which has the original stack.
// If fn calls [runtime.Goexit], the run stops and the same goroutine ends.
//
// # Platforms
//
// On Linux, fileproc lists directories with getdents64 and opens files with
// openat, or many at a time with io_uring where that is available and certain
// to give the right result. On other Unix systems it uses openat and package os.
// Elsewhere, as on Windows, Plan 9, js and wasip1, it uses package os through
// [os.Root]; where os.Root is emulated, its limits apply. [Backend] returns the
// name of the backend in use. The build tags fileproc_unix and fileproc_generic
// select a portable backend on Linux.
package fileproc

import (
	"context"
	"errors"
	"io/fs"
	"iter"

	"github.com/fileproc/fileproc/internal/backend"
	"github.com/fileproc/fileproc/internal/descriptors"
	"github.com/fileproc/fileproc/internal/sys"
)

// Process calls fn for every file under root that opts select, on several
// goroutines at once, and returns the results, in no particular order unless
// [Options.Ordered] is set. Root is a directory or a file, or a symbolic link to
// one.
//
// If root leads to a file, Process processes that file whatever its name:
// [File.Rel] is the name, and [File.Path] is root as given. Of the options that
// select files, SkipLarger, SkipBinary, Select and Shard apply to this file. The
// run always opens it. A FIFO or a device, such as /dev/stdin, is such a file: it is read
// to its end, and the read waits for a writer until ctx is cancelled. With [Options.FS] it
// is a failure.
//
// If there is an error, Process also returns the results of all files that
// could be processed. If ctx is cancelled, the error is context.Cause(ctx),
// joined with the failures so far, if any. Files that the run did not reach may
// then be missing anywhere among the results, also with Options.Ordered.
//
// The function fn may return [ErrSkip] to give no result, and [fs.SkipAll] to
// stop the run. Process reports neither as an error. If fn returns any other
// error, its result is dropped, unless the error is from [WithResult].
func Process[T any](ctx context.Context, root string, opts Options, fn func(*File) (T, error)) ([]T, error) {
	if opts.Ordered {
		all, err := process(ctx, root, &opts, fn == nil, func(f *File) (located[T], error) {
			v, err := fn(f)
			return located[T]{f.node, f.name.String(), v}, err
		})
		return sortByPath(all), err
	}
	return process(ctx, root, &opts, fn == nil, fn)
}

func process[T any](ctx context.Context, root string, opts *Options, noFn bool, fn func(*File) (T, error)) ([]T, error) {
	cfg, err := opts.config(root, noFn)
	if err != nil {
		return nil, err
	}
	results := newCollector[T](cfg.workers)
	calls := opts.callbacks()
	calls.fn = func(f *File) error {
		v, err := fn(f)
		if p := f.prepared; p != nil && err == nil {
			p.deliver = results.later(v)
		} else if hasResult(err) {
			results.add(f.w.slot, v)
		}
		return err
	}
	err = runOnce(ctx, cfg, calls)
	return results.all(), err
}

// ForEach is like [Process], but fn has no result. [Options.Ordered] has no effect.
func ForEach(ctx context.Context, root string, opts Options, fn func(*File) error) error {
	cfg, err := opts.config(root, fn == nil)
	if err != nil {
		return err
	}
	calls := opts.callbacks()
	calls.fn = fn
	return runOnce(ctx, cfg, calls)
}

// Stream is like [Process], but yields each result when it is ready. Workers wait
// when they are far ahead of the loop. Leaving the loop stops the run.
//
// Stream yields a failure with the zero value of T, or with the result that fn
// returned with an error from [WithResult]. If [Options.OnError] is set, OnError
// gets the failures and the loop does not. The error that stopped the run comes
// last, with the zero value. After a cancel, the loop gets the results that are
// ready and then context.Cause(ctx). With [Options.Ordered] the results are in
// order, with gaps for files that the run did not reach.
//
// Each loop over the sequence is a run of its own: it lists and reads the files
// again and sets [Options.Report] anew. The function fn and those in opts run on
// goroutines other than the loop's. The Report counts a file as processed when
// fn has returned its result, even if the loop ends before it gets the result.
func Stream[T any](ctx context.Context, root string, opts Options, fn func(*File) (T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		opts := opts // a Seq2 may be looped over more than once
		streamRun(ctx, root, &opts, fn == nil, func(calls *callbacks, out outlet[T]) {
			calls.fn = func(f *File) error {
				v, err := fn(f)
				switch {
				case !hasResult(err):
				case calls.onError == nil && err != nil && !errors.Is(err, fs.SkipAll):
					f.w.withError = v // yieldError sends both
				default:
					out.send(&f.w.pos, true, v, nil)
				}
				return err
			}
		}, yield)
	}
}

// Walk yields the files that [Process] would pass to fn, without opening them,
// and the directories below root. A directory comes before its contents; the
// order is otherwise unspecified unless [Options.Ordered] is set.
// [Options.SkipBinary], ReadSize, MaxFileSize and Download have no effect.
// Walk yields failures as Stream does, with the zero Entry. Each loop is a run of
// its own.
func Walk(ctx context.Context, root string, opts Options) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		opts := opts
		opts.ReadSize, opts.SkipBinary, opts.hooks = NoRead, false, hooks{}
		streamRun(ctx, root, &opts, false, func(calls *callbacks, out outlet[Entry]) {
			calls.fn = func(f *File) error {
				e := Entry{node: f.node, name: f.name.String(), typ: f.Type(), link: f.link}
				if opts.Stat {
					s := f.content.Stat
					e.stat = (*Stat)(&s)
				}
				out.send(&f.w.pos, true, e, nil)
				return nil
			}
			if opts.AllTypes {
				return // fn gets the directories, too
			}
			calls.visitDir = func(w *worker, parent *node, name string, stat func() (sys.Stat, error)) bool {
				if w.stopped() {
					return false
				}
				e := Entry{node: parent, name: name, typ: fs.ModeDir}
				if opts.Stat {
					s, err := stat()
					if err != nil {
						if err != errStopped {
							w.foundFailedAs(FailedDir, "stat", parent, name, err)
						}
						return false
					}
					e.stat = (*Stat)(&s)
				}
				out.send(&w.pos, w.short == nil, e, nil)
				return true
			}
		}, yield)
	}
}

// streamRun executes a run. The function set adds callbacks, and streamRun yields
// what they send to the outlet.
func streamRun[T any](ctx context.Context, root string, opts *Options, noFn bool, set func(*callbacks, outlet[T]), yield func(T, error) bool) {
	var zero T
	cfg, err := opts.config(root, noFn)
	if err = errors.Join(err, opts.validateStream()); err != nil {
		yield(zero, err)
		return
	}
	var out outlet[T] = newResultBuffer[T](cfg.workers)
	var order *ordered
	if opts.Ordered {
		order = newOrdered(cfg.workers)
		out = &orderedOutlet[T]{ordered: order}
	}
	calls := opts.callbacks()
	calls.yieldError = func(w *worker, err error) {
		v, _ := w.withError.(T)
		w.withError = nil
		out.send(&w.pos, w.short == nil, v, err)
	}
	set(&calls, out)
	r := newRun(ctx, cfg, calls, order)
	descriptors.Within(r.pool.level, func() { stream(out, r.execute, r.stop, yield) })
}

// Backend returns the name of this build's backend, which lists directories and
// opens files: "linux", "unix" or "generic".
func Backend() string { return sys.Backend }

// ReadDir returns the entries of the named directory, of all types, in
// directory order. As with os.ReadDir, an entry's Info looks up the metadata
// when called. If the listing fails part-way, ReadDir returns the entries so far
// with the error.
func ReadDir(name string) ([]fs.DirEntry, error) { return backend.ReadDir(name) }
