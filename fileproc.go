// Package fileproc processes every regular file under a directory as fast as
// the kernel allows: it lists, filters, opens and reads the files on a pool of
// workers and hands each to a function.
//
//	titles, err := fileproc.Process(ctx, "notes", fileproc.Options{Suffixes: []string{".md"}},
//		func(f *fileproc.File) (string, error) {
//			line, _, _ := bytes.Cut(f.Data(), []byte("\n"))
//			return string(line), nil
//		})
//
// [Process] returns all results, [ForEach] is for functions without any, [Stream]
// yields them as they come, and [Walk] lists without opening a file. [Options] say which files are processed (by
// name, pattern, ignore files, size, and more), what is read of each, and in
// which order results come; the zero value reads every regular file whole.
//
// # What holds
//
// Every regular file that exists unchanged during the whole run is delivered
// exactly once, with exactly its bytes. No symbolic link is followed below
// root unless [Options.Symlinks] says so, and never one that takes a
// directory's place during the run: every open names one component relative to
// a directory that is open. Entries that
// cannot be read are errors, entries that are left out are counted in
// [Report], and nothing else is missing. When a call returns, or a loop over
// Stream or Walk ends in whatever way, no goroutine and no descriptor of it is
// left.
//
// # Errors
//
// A failure is an [*fs.PathError]; for one of the operating system, Op is the
// system call. An error that fn returns has the Op "process", and unwraps to
// itself. Failures do not end a run: all other files are processed, and what
// Process returns then joins the first 100 failures and states the count of the
// rest. [Options.OnError] sees each as it occurs and may stop the run. Invalid
// options, and a root that cannot be opened, are no failures of a run, which
// does not begin: that error is returned as it is, or is all that a loop over
// Stream or Walk yields, and OnError is not called.
//
// A panic in fn stops the run and goes on as a [*PanicError], with the stack of the
// goroutine it came from, on the goroutine that called Process or that loops
// over Stream. [runtime.Goexit] in fn likewise ends that goroutine.
//
// # Platforms
//
// On Linux directories are read with getdents64 and files opened with openat,
// or many at a time through io_uring where it is there and certain to be right;
// other Unix systems use openat and package os. The rest, among them Windows,
// Plan 9, js and wasip1, use package os alone through [os.Root], and what it
// says of platforms that emulate it holds here. [Backend] tells which is in
// use, and the build tags fileproc_unix and fileproc_generic choose one of the
// portable ones on Linux.
package fileproc

import (
	"context"
	"errors"
	"io/fs"
	"iter"
)

// Process calls fn for every file under root that opts select, on several
// goroutines at once, and returns the results, in no particular order unless
// [Options.Ordered] is set.
//
// Root is a directory, or a symbolic link to one. The results of all files that
// could be processed are returned also when there is an error. If ctx is
// cancelled the error is context.Cause(ctx), joined with the failures so far if
// there were any; with Options.Ordered the results are in order then too, but
// not the first ones of all: those of files that were not reached are missing
// anywhere among them. Fn may return [ErrSkip] to give no result, and [fs.SkipAll]
// to stop the run; neither is an error of Process.
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
	calls.fn = func(f *currentFile) error {
		v, err := fn((*File)(f))
		if err == nil {
			results.add(f.w.slot, v)
		}
		return err
	}
	err = newRun(ctx, cfg, calls, nil).execute()
	return results.all(), err
}

// ForEach is Process for a function without a result. [Options.Ordered], which is
// about results, has no effect.
func ForEach(ctx context.Context, root string, opts Options, fn func(*File) error) error {
	cfg, err := opts.config(root, fn == nil)
	if err != nil {
		return err
	}
	calls := opts.callbacks()
	calls.fn = func(f *currentFile) error { return fn((*File)(f)) }
	return newRun(ctx, cfg, calls, nil).execute()
}

// Stream is Process for results that are not kept: the loop gets each as soon
// as it is there, and workers wait when they are far ahead of it. A failure is
// yielded with the zero value of T, unless there is an OnError; so is, last,
// the error that stopped the run. Leaving the loop stops the run. After a cancel
// the loop gets the results that are there, in order with Options.Ordered, but
// with gaps where files were not reached, and then context.Cause(ctx).
//
// Each loop over what Stream returns is a run of its own, which lists and reads
// the files again and fills in Options.Report anew. Fn, and the functions in
// opts, run on other goroutines than the loop.
//
// A file counts as processed in the Report when fn has returned its result,
// also if the loop was left before it came to it.
func Stream[T any](ctx context.Context, root string, opts Options, fn func(*File) (T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		opts := opts // a Seq2 may be looped over more than once
		streamRun(ctx, root, &opts, fn == nil, func(calls *callbacks, out outlet[T]) {
			calls.fn = func(f *currentFile) error {
				v, err := fn((*File)(f))
				if err == nil {
					out.send(&f.w.pos, !f.w.draining, v, nil)
				}
				return err
			}
		}, yield)
	}
}

// Walk yields the files that Process would hand to fn, without opening them,
// and the directories below root, in no particular order. A directory comes
// before what is in it. Options that concern content have no effect. Failures
// are yielded as by Stream, with the zero Entry. It may be looped over again, as
// Stream may.
func Walk(ctx context.Context, root string, opts Options) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		opts := opts
		opts.ReadSize, opts.SkipBinary = NoRead, false
		streamRun(ctx, root, &opts, false, func(calls *callbacks, out outlet[Entry]) {
			calls.fn = func(f *currentFile) error {
				c := &f.content
				e := Entry{paths: f.w.paths, node: f.node, name: f.name.String(), stat: c.stat, hasStat: opts.Stat}
				out.send(&f.w.pos, !f.w.draining, e, nil)
				return nil
			}
			calls.visitDir = func(w *worker, parent *node, name string, stat func() (Stat, error)) bool {
				if w.stopped() {
					return false
				}
				e := Entry{paths: w.paths, node: parent, name: name, typ: fs.ModeDir}
				if opts.Stat {
					var err error
					if e.stat, err = stat(); err != nil {
						if err != errStopped {
							w.failFound("stat", parent, name, err)
						}
						return false
					}
					e.hasStat = true
				}
				out.send(&w.pos, !w.draining, e, nil)
				return true
			}
		}, yield)
	}
}

// streamRun executes a run and yields what the callbacks that set adds send.
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
	calls.yieldError = func(w *worker, err error) { out.send(&w.pos, !w.draining, zero, err) }
	set(&calls, out)
	r := newRun(ctx, cfg, calls, order)
	stream(out, r.execute, r.stop, yield)
}

// Backend returns the name of what this build lists and opens directories
// with: "linux", "unix" or "generic".
func Backend() string { return backendName }

// ReadDir returns the entries of the directory name, of all types, in the order
// in which the file system gives them. Like those of os.ReadDir, an entry's
// Info is looked up when it is called. If the listing fails part-way the
// entries so far are returned with the error.
func ReadDir(name string) ([]fs.DirEntry, error) { return readDir(name) }
