package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fileproc/fileproc"
)

// An item is one file that a subcommand sees: of a directory, named by itself, or standard input.
type item struct {
	app    *app
	f      *fileproc.File // nil if it was named by itself
	prefix string         // of the path, with a separator behind it
	name   string         // the whole path if f is nil
	err    error          // there is no such file
	data   []byte         // the content, or its beginning if more
	more   bool           // the content is to be had from open alone
	worker int
}

func (it *item) path() string {
	if it.f == nil {
		return it.name
	}
	return it.prefix + filepath.FromSlash(it.f.Rel())
}

func (it *item) open() (io.ReadCloser, error) {
	r, err := io.NopCloser(os.Stdin), error(nil)
	switch {
	case it.f != nil:
		r, err = it.f.Open()
	case it.name != stdinName:
		r, err = os.Open(it.name)
	}
	return counted{r, it.app}, err
}

// A counted file adds what is read of it to the report and the progress. It ends when the run is cancelled.
type counted struct {
	io.ReadCloser
	app *app
}

func (c counted) Read(p []byte) (int, error) {
	if err := c.app.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := c.ReadCloser.Read(p)
	c.app.read.Add(int64(n))
	c.app.bar.add(0, int64(n))
	return n, err
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

// orStdin returns the arguments, or standard input if there are none and it is a pipe, a socket or a file, as rg has it.
// A terminal or /dev/null is not read, so that a job without input searches the working directory.
func orStdin(args []string) []string {
	if info, err := os.Stdin.Stat(); len(args) == 0 && err == nil && info.Mode().Type()&^(os.ModeNamedPipe|os.ModeSocket) == 0 {
		return []string{stdinName}
	}
	return args
}

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

// mostAhead is how many files that are named may be visited before it is their turn to be printed: enough that one large
// file does not keep the other workers waiting. Each keeps at most spillSize of output.
const mostAhead = 256

// each runs j. What goes wrong with a file is told as it happens; what each returns has ended the run.
func (a *app) each(j job) error {
	roots := j.args
	if len(roots) == 0 {
		roots = []string{workingDir}
	}
	var named []item // since the last directory
	for _, root := range roots {
		it := item{app: a, name: root, more: true}
		dir, prefix := "", ""
		if root != stdinName || !j.stdin {
			dir, prefix, it.err = directory(root)
		}
		if dir == "" {
			named = append(named, it)
			continue
		}
		a.eachNamed(&j, named)
		named = nil
		if err := a.eachOf(&j, dir, prefix); err != nil {
			return err
		}
	}
	a.eachNamed(&j, named)
	return context.Cause(a.ctx)
}

func (a *app) eachOf(j *job, dir, prefix string) error {
	opts, done := a.within(dir, j.opts)
	defer done()
	visit := func(f *fileproc.File, c *chunk) error {
		it := item{app: a, f: f, prefix: prefix, data: f.Data(), more: f.Truncated(), worker: f.Worker()}
		err := j.visit(&it, c)
		if err == errEnough {
			a.stop(err)
			return fs.SkipAll
		}
		return err
	}
	if a.sel.sort {
		return a.inOrder(dir, opts, visit)
	}
	return a.asFinished(dir, opts, visit)
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
			a.fail(&fs.PathError{Op: opProcess, Path: f.Path(), Err: err})
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

// directory returns the directory that an argument names, or "" if it is another file or there is none, and what to put
// before paths relative to it.
func directory(arg string) (dir, prefix string, err error) {
	dir, prefix = arg, arg
	switch {
	case arg == workingDir:
		dir, prefix = ".", ""
	case arg == "": // is not there, and not the working directory
	case !os.IsPathSeparator(arg[len(arg)-1]):
		prefix += string(filepath.Separator)
	}
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() {
		dir = ""
	}
	return dir, prefix, err
}

// eachNamed visits what arguments name that is no directory, and prints what comes of it in their order.
func (a *app) eachNamed(j *job, items []item) {
	inTurn(a, slices.Values(items), func(it item, worker int, wait func()) (tell func()) {
		it.worker = worker
		c := &chunk{out: a.out, wait: wait}
		if it.name == stdinName {
			wait() // two that are named read it one behind the other
		}
		if it.err == nil {
			it.err = j.visit(&it, c)
		}
		return func() {
			c.wait = nil // it has come
			c.fileDone()
			a.totals.Found++
			switch {
			case it.err == nil || it.err == errEnough:
				a.totals.Processed++
				a.bar.add(1, 0)
			case a.ctx.Err() == nil:
				a.totals.Failed++
				a.fail(&fs.PathError{Op: opProcess, Path: it.name, Err: it.err})
			default:
				a.totals.Abandoned++
			}
			if it.err == errEnough {
				a.stop(errEnough)
			}
		}
	})
}

// inTurn calls work on all workers, and what work returns in the order of the items, one call at a time. Work may wait
// for the item's turn. After errEnough inTurn does not wait for work, which may hang.
func inTurn[T any](a *app, items iter.Seq[T], work func(x T, worker int, wait func()) (tell func())) {
	type task struct {
		item T
		turn chan struct{} // closed when it has come
		tell chan func()
	}
	// Of the items that are taken, one waits for a place, and one has its turn.
	ahead, tasks := make(chan task, mostAhead-2), make(chan task, mostAhead)
	go func() {
		defer close(ahead)
		defer close(tasks)
		for x := range items {
			if a.ctx.Err() != nil {
				return
			}
			t := task{x, make(chan struct{}), make(chan func(), 1)}
			ahead <- t
			tasks <- t
		}
	}()
	for w := range a.sel.opts.Workers {
		go func() {
			for t := range tasks {
				tell := func() {} // a run that is cancelled begins no more
				if a.ctx.Err() == nil {
					tell = work(t.item, w, func() { <-t.turn })
				}
				t.tell <- tell
			}
		}()
	}
	for t := range ahead {
		close(t.turn)
		tell := <-t.tell
		if tell(); context.Cause(a.ctx) == errEnough {
			break
		}
	}
	a.bar.show()
}

// opProcess is what the package says of an error that visit returns.
const opProcess = "process"

// plainly says what went wrong with a file: its path once, and no word of the package.
func plainly(err error) string {
	p, ok := err.(*fs.PathError)
	var inner *fs.PathError
	switch {
	case !ok:
		return err.Error()
	case p.Op == opProcess && errors.As(p.Err, &inner):
		return plainly(inner)
	}
	return strings.TrimPrefix(p.Op+" ", opProcess+" ") + p.Path + ": " + strings.TrimPrefix(p.Err.Error(), "fileproc: ")
}
