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

// An item is one file that a subcommand visits: a file of a directory, a file named as an argument, or standard input.
type item struct {
	app    *app
	f      *fileproc.File // nil if an argument names the file
	prefix string         // what precedes f.Rel in the path, with the separator
	name   string         // the whole path if f is nil
	err    error          // set if there is no such file
	data   []byte         // the content, or its beginning if more is set
	more   bool           // only open gives the whole content
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
	return countingReader{r, it.app}, err
}

// A countingReader adds what is read to the report and the progress. Its reads fail once the run is cancelled.
type countingReader struct {
	io.ReadCloser
	app *app
}

func (c countingReader) Read(p []byte) (int, error) {
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

// orStdin returns the arguments. If there are none, nor a list of files or a cache, and standard input is a pipe, a socket or a file, it returns standard
// input, as rg does. A job whose input is a terminal or /dev/null searches the working directory.
func (a *app) orStdin(args []string) []string {
	if info, err := os.Stdin.Stat(); len(args) == 0 && a.sel.list.file == "" && a.sel.cache == "" && err == nil && info.Mode().Type()&^(os.ModeNamedPipe|os.ModeSocket) == 0 {
		return []string{stdinName}
	}
	return args
}

// workingDir stands for the working directory where there is no argument. Paths in it are printed without a prefix. The NUL
// byte keeps it distinct from every argument.
const workingDir = "\x00"

// A job is what a subcommand does with each file.
type job struct {
	args  []string // directories and files; none is the working directory
	opts  fileproc.Options
	stdin bool // the argument "-" is standard input
	// visit appends the file's output to c, in whole lines. An error that it returns is a failure of the file.
	// It is called on several goroutines at once.
	visit func(it *item, c *chunk) error

	// A subcommand that has --cache has these in place of visit. read returns what is to be kept of the file, or
	// fileproc.ErrSkip, and print appends the output for that. Both are called on several goroutines at once.
	read    func(it *item) ([]byte, error)
	print   func(path string, value []byte, c *chunk) error
	version string // of what read returns
}

// errEnough is returned by visit to end the whole run early.
var errEnough = errors.New("enough")

// maxAhead is how many of the files named as arguments may be visited before their turn to be printed. It is large enough
// that one large file does not block the other workers. Each file keeps at most spillSize of output.
const maxAhead = 256

// each runs j. A failure of a file is reported at once; an error that each returns has ended the run.
func (a *app) each(j job) error {
	if j.visit == nil {
		j.visit = func(it *item, c *chunk) error {
			value, err := j.read(it)
			if errors.Is(err, fileproc.ErrSkip) {
				return nil
			}
			if err != nil {
				return err
			}
			return j.print(it.path(), value, c)
		}
	}
	if a.sel.cache != "" {
		return a.eachCached(&j)
	}
	if a.sel.list.file != "" {
		if len(j.args) > 0 {
			return errFilesAndArguments
		}
		return a.eachListed(func(dir, prefix string, names iter.Seq[string]) error {
			j.opts.Files = names
			return a.eachInDir(&j, dir, prefix)
		})
	}
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
		if err := a.eachInDir(&j, dir, prefix); err != nil {
			return err
		}
	}
	a.eachNamed(&j, named)
	return context.Cause(a.ctx)
}

func (a *app) eachInDir(j *job, dir, prefix string) error {
	opts, done := a.runOptions(dir, j.opts)
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
		return done(a.inOrder(dir, opts, visit))
	}
	return done(a.asFinished(dir, opts, visit))
}

// asFinished prints the output of each file when visit returns.
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

// inOrder prints the output of visit in the order of the paths.
func (a *app) inOrder(dir string, opts fileproc.Options, visit func(*fileproc.File, *chunk) error) error {
	opts.Ordered = true
	chunks := make([]chunk, opts.Workers) // without an output, a chunk keeps everything
	printed := chunk{out: a.out}
	results := fileproc.Stream(a.ctx, dir, opts, func(f *fileproc.File) ([]byte, error) {
		c := &chunks[f.Worker()]
		c.b = c.b[:0]
		err := visit(f, c)
		if err != nil && err != fs.SkipAll && len(c.b) > 0 && a.ctx.Err() == nil {
			// A failure has no result. Reporting it here keeps the output from before it.
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

// directory returns the directory that an argument names, or "" if the argument is not a directory, and the prefix for
// paths relative to it.
func directory(arg string) (dir, prefix string, err error) {
	dir, prefix = arg, prefixOf(arg)
	if arg == workingDir {
		dir, prefix = ".", ""
	}
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() {
		dir = ""
	}
	return dir, prefix, err
}

func prefixOf(dir string) string {
	if dir == "" || os.IsPathSeparator(dir[len(dir)-1]) { // "" is an error, not the working directory
		return dir
	}
	return dir + string(filepath.Separator)
}

// eachNamed visits the arguments that are not directories, and prints their output in the order of the arguments.
func (a *app) eachNamed(j *job, items []item) {
	inTurn(a, slices.Values(items), func(it item, worker int, wait func()) (emit func()) {
		it.worker = worker
		c := &chunk{out: a.out, wait: wait}
		if it.name == stdinName {
			wait() // if it is named twice, the first one reads it to the end
		}
		if it.err == nil {
			it.err = j.visit(&it, c)
		}
		return func() {
			c.wait = nil // it is this file's turn
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

// inTurn calls work for each item, on all workers, and then the emit functions that work returned, one at a time in the
// order of the items. work may wait for its item's turn. After errEnough inTurn does not wait for work, which may hang.
func inTurn[T any](a *app, items iter.Seq[T], work func(x T, worker int, wait func()) (emit func())) {
	type task struct {
		turn chan struct{} // closed when it is the item's turn
		emit chan func()
	}
	// The buffer is for performance. Of maxAhead items, one blocks in the send to ahead and one has its turn.
	ahead, workers := make(chan task, maxAhead-2), make(chan int, a.sel.opts.Workers)
	for w := range cap(workers) {
		workers <- w
	}
	go func() {
		defer close(ahead)
		for x := range items {
			t, w := task{make(chan struct{}), make(chan func(), 1)}, <-workers
			if a.ctx.Err() != nil { // a cancelled run starts no more work
				return
			}
			ahead <- t
			go func() {
				t.emit <- work(x, w, func() { <-t.turn })
				workers <- w
			}()
		}
	}()
	for t := range ahead {
		close(t.turn)
		emit := <-t.emit
		if emit(); context.Cause(a.ctx) == errEnough {
			break
		}
	}
	a.bar.show()
}

// opProcess is the Op that the package gives to an error that visit returns.
const opProcess = "process"

// describe returns the message of a failure, with the path once and without the package's own words.
func describe(err error) string {
	p, ok := err.(*fs.PathError)
	var inner *fs.PathError
	switch {
	case !ok:
		return err.Error()
	case p.Op == opProcess && errors.As(p.Err, &inner):
		return describe(inner)
	}
	return strings.TrimPrefix(p.Op+" ", opProcess+" ") + p.Path + ": " + strings.TrimPrefix(p.Err.Error(), "fileproc: ")
}
