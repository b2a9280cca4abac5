package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fileproc/fileproc"
)

// An item is one file that a subcommand sees: of a directory, named by itself, or standard input.
type item struct {
	f        *fileproc.File // nil if it was named by itself
	prefix   string         // of the path, with a separator behind it
	name     string         // the whole path if f is nil
	explicit bool           // named by itself
	data     []byte         // the content, or its beginning if more
	more     bool           // the content is to be had from open alone
	worker   int
	ctx      context.Context
}

func (it *item) appendPath(b []byte) []byte {
	if it.f == nil {
		return append(b, it.name...)
	}
	b = append(b, it.prefix...)
	return append(b, filepath.FromSlash(it.f.Rel())...)
}

func (it *item) path() string { return string(it.appendPath(nil)) }

func (it *item) open() (io.ReadCloser, error) {
	switch {
	case it.f != nil:
		return it.f.Open()
	case it.name == stdinName:
		return io.NopCloser(os.Stdin), nil
	}
	return os.Open(it.name)
}

func (it *item) stat() (fileproc.Stat, error) {
	if it.f != nil {
		return it.f.Stat()
	}
	info, err := os.Stat(it.name)
	if err != nil {
		return fileproc.Stat{}, err
	}
	return fileproc.Stat{Size: info.Size(), ModTime: info.ModTime(), Mode: info.Mode()}, nil
}

const stdinName = "-"

// workingDir stands for no argument, and for paths that have nothing before them. No argument can be it.
const workingDir = "\x00"

// A job says what each does with the files.
type job struct {
	args  []string // directories and files; none is the working directory
	opts  fileproc.Options
	stdin bool // the argument "-" is standard input
	// visit appends what is to be printed of the file to c, in whole lines. What it returns is a failure of the file.
	// It is called on several goroutines at once.
	visit func(it *item, c *chunk) error
}

// errEnough is what visit returns to end all.
var errEnough = errors.New("enough")

// each runs j. What goes wrong with a file is told as it happens; what each returns has ended the run.
func (a *app) each(j job) error {
	roots := j.args
	if len(roots) == 0 {
		roots = []string{workingDir}
	}
	for _, root := range roots {
		if err := a.eachOf(&j, root); err != nil || a.enough.Load() {
			return err
		}
		if a.ctx.Err() != nil {
			return context.Cause(a.ctx)
		}
	}
	return nil
}

func (a *app) eachOf(j *job, root string) error {
	if root == stdinName && j.stdin {
		return a.eachNamed(j, root)
	}
	dir, prefix, ok := a.directory(root)
	switch {
	case !ok:
		return nil
	case dir == "":
		return a.eachNamed(j, root)
	}
	opts := a.within(dir, j.opts)
	var report fileproc.Report
	a.observe(&opts, &report)
	visit := func(f *fileproc.File, c *chunk) error {
		it := item{f: f, prefix: prefix, data: f.Data(), more: f.Truncated(), worker: f.Worker(), ctx: a.ctx}
		err := j.visit(&it, c)
		if err == errEnough {
			a.enough.Store(true)
			return fs.SkipAll
		}
		return err
	}
	var err error
	if a.sel.sort {
		err = a.inOrder(dir, opts, visit)
	} else {
		err = a.asFinished(dir, opts, visit)
	}
	a.addReport(&report)
	return err
}

// asFinished prints what visit makes of each file when it is done with it.
func (a *app) asFinished(dir string, opts fileproc.Options, visit func(*fileproc.File, *chunk) error) error {
	chunks := make([]chunk, opts.Workers)
	_, err := fileproc.Process(a.ctx, dir, opts, func(f *fileproc.File) (struct{}, error) {
		c := &chunks[f.Worker()]
		c.out = a.out
		err := visit(f, c)
		c.fileDone()
		return struct{}{}, err
	})
	return err
}

// inOrder prints what visit makes of each file in the order of the paths.
func (a *app) inOrder(dir string, opts fileproc.Options, visit func(*fileproc.File, *chunk) error) error {
	opts.Ordered = true
	chunks := make([]chunk, opts.Workers) // without an output: they keep all
	printed := chunk{out: a.out}
	results := fileproc.Stream(a.ctx, dir, opts, func(f *fileproc.File) ([]byte, error) {
		c := &chunks[f.Worker()]
		c.b = c.b[:0]
		err := visit(f, c)
		if err != nil && err != fs.SkipAll && len(c.b) > 0 && a.ctx.Err() == nil {
			// A failure has no result, so what was found before it would be lost.
			a.failures.add(withoutEcho(&fs.PathError{Op: "process", Path: f.Path(), Err: err}))
			err = nil
		}
		return bytes.Clone(c.b), err
	})
	for b, err := range results {
		if err != nil {
			return err
		}
		printed.b = append(printed.b, b...)
		printed.fileDone()
	}
	return nil
}

// directory returns the directory that an argument names, or "" if it is another file, and what to put before paths
// relative to it. Where it is neither it tells so.
func (a *app) directory(arg string) (dir, prefix string, ok bool) {
	dir, prefix = arg, arg
	switch {
	case arg == workingDir:
		dir, prefix = ".", ""
	case arg == "": // is not there, and not the working directory
	case !os.IsPathSeparator(arg[len(arg)-1]):
		prefix += string(filepath.Separator)
	}
	info, err := os.Stat(dir)
	if err != nil {
		a.failures.add(err)
		return "", "", false
	}
	if !info.IsDir() {
		dir = ""
	}
	return dir, prefix, true
}

// observe lets opts tell of failures and progress.
func (a *app) observe(opts *fileproc.Options, report *fileproc.Report) {
	opts.Report = report
	opts.OnProgress = a.bar.onProgress()
	opts.OnError = func(err error) error {
		if a.ctx.Err() == nil {
			a.failures.add(withoutEcho(err))
		}
		return nil
	}
}

// eachNamed visits one file that an argument names.
func (a *app) eachNamed(j *job, name string) error {
	c := chunk{out: a.out}
	err := j.visit(&item{name: name, explicit: true, more: true, ctx: a.ctx}, &c)
	c.fileDone()
	a.totals.Found++
	switch {
	case err == nil:
		a.totals.Processed++
	case err == errEnough:
		a.enough.Store(true)
		a.totals.Processed++
	case a.ctx.Err() == nil:
		a.failures.add(err)
		a.totals.Failed++
	default:
		a.totals.Abandoned++
	}
	return nil
}

// withoutEcho takes away the path that fileproc puts before an error of visit that names it already.
func withoutEcho(err error) error {
	var inner *fs.PathError
	if outer, ok := err.(*fs.PathError); ok && outer.Op == "process" && errors.As(outer.Err, &inner) {
		return inner
	}
	return err
}

func (a *app) addReport(r *fileproc.Report) {
	t := &a.totals
	t.Directories += r.Directories
	t.Found += r.Found
	t.Processed += r.Processed
	t.Failed += r.Failed
	t.Abandoned += r.Abandoned
	t.Bytes += r.Bytes
	t.URing += r.URing
	t.Elapsed += r.Elapsed
	if t.Skipped == nil {
		t.Skipped = map[fileproc.SkipReason]int64{}
	}
	for why, n := range r.Skipped {
		t.Skipped[why] += n
	}
}

func (a *app) printReport() { a.out.warn(a.totals.String()) }
