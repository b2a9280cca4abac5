// Package run has what the subcommands share: the flags that select files, and the driver that visits the files.
package run

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/cmd/fileproc/internal/output"
	"github.com/fileproc/fileproc/incremental"
	"github.com/fileproc/fileproc/internal/records"
	"github.com/spf13/pflag"
)

// A Run is one run of the command.
type Run struct {
	Ctx  context.Context
	Stop context.CancelCauseFunc // ends the run early, for the given reason
	Out  *output.Output
	Selection
	Report   bool            // Totals are printed at the end
	Silent   bool            // Fail only counts
	Totals   fileproc.Report // of all directories and files, for --report
	Read     atomic.Int64    // bytes of content that Totals does not count
	Found    atomic.Bool
	Failures atomic.Int64 // that Totals does not count
}

// ErrEnough is returned by Job.Visit to end the whole run early.
var ErrEnough = errors.New("enough")

// Fail prints a failure at once and counts it. After a cancel it does nothing, since all work then reports the cancel.
func (r *Run) Fail(err error) {
	if r.Ctx.Err() != nil {
		return
	}
	r.Failures.Add(1)
	if !r.Silent {
		r.Out.Warn(Describe(err)) // one line, whatever name is in it
	}
}

// opProcess is the Op that the package gives to an error that Job.Visit returns.
const opProcess = "process"

// Describe returns the message of a failure, with the path once and without the package's own words.
func Describe(err error) string {
	p, ok := err.(*fs.PathError)
	if !ok {
		return err.Error()
	}
	if inner, ok := errors.AsType[*fs.PathError](p.Err); ok && p.Op == opProcess {
		return Describe(inner)
	}
	return strings.TrimPrefix(p.Op+" ", opProcess+" ") + p.Path + ": " + strings.TrimPrefix(p.Err.Error(), "fileproc: ")
}

var optionFlags = strings.NewReplacer("fileproc: ", "", "Options.Suffixes", "--suffix", "Options.MaxDepth", "--max-depth", "Options.Include", "--include",
	"Options.Exclude", "--exclude", "Options.OneFilesystem", "--one-file-system", "Options.Files", "--files-from",
	"Options.SymlinksOutside", "--symlinks-outside", "Options.Symlinks", "--symlinks", incremental.ErrNotSaved.Error(), "--cache", "incremental: ", "")

// AsFlags returns the message of an error that ends the run, in which flags replace the names of fileproc.Options and
// pflag's wording.
func (s *Selection) AsFlags(err error) string {
	if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		why := wrong.Unwrap()
		if n, ok := errors.AsType[*strconv.NumError](why); ok {
			why = n.Err
		}
		return fmt.Sprintf("--%s is %q: %v", wrong.GetFlag().Name, wrong.GetValue(), why)
	}
	msg := Describe(err)
	if m := regexp.MustCompile(`^if any flags in the group .* \[(.*)\] were all set$`).FindStringSubmatch(msg); m != nil {
		return "--" + strings.Join(strings.Fields(m[1]), " and --") + " cannot be used together"
	}
	if strings.HasPrefix(msg, "fileproc: ") || strings.HasPrefix(msg, "incremental: ") {
		for _, w := range s.written {
			msg = strings.Replace(msg, w[0], w[1], 1)
		}
		return optionFlags.Replace(msg)
	}
	return msg
}

// Version returns the module's version, as recorded by go install or from the version control system.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "(unknown)"
}

// An Item is one file that a subcommand visits: a file of a directory, a file named as an argument, or standard input.
type Item struct {
	F    *fileproc.File // nil if an argument names the file
	Dir  string         // the directory that is visited, as Join takes it; the path of the file if F is nil
	Data []byte         // the content, or its beginning if More is set
	More bool           // only Reader gives the whole content
	run  *Run
	info fs.FileInfo // of a file named as an argument
	in   *os.File    // standard input, or what Read has opened
}

// Named returns the item of a file that is in no directory that is visited, or for Stdin, if that may be, of standard input.
func (r *Run) Named(path string, mayBeStdin bool, wait func()) Item {
	it := Item{run: r, Dir: path, More: true}
	if path == Stdin && mayBeStdin {
		wait() // if standard input is named twice, the first item reads it to the end
		it.in = os.Stdin
	}
	return it
}

// Path returns the path to print.
func (it *Item) Path() string {
	if it.F == nil {
		return it.Dir
	}
	return Join(it.Dir, it.F.Rel())
}

// Reader returns a reader of the whole content, which fails once the run is cancelled.
func (it *Item) Reader() io.Reader {
	if it.F != nil {
		return it.F.Reader()
	}
	return it
}

// Read reads a file that is in no directory that is visited. It adds the bytes that it reads to the report and the progress.
func (it *Item) Read(p []byte) (n int, err error) {
	if it.in == nil {
		it.in, err = os.Open(it.Dir)
	}
	if err = cmp.Or(err, it.run.Ctx.Err()); err == nil {
		n, err = it.in.Read(p)
	}
	it.run.Read.Add(int64(n))
	it.run.Out.Count(0, int64(n))
	return n, err
}

// Close closes what Read has opened.
func (it *Item) Close() {
	if it.in != os.Stdin { // the next item may go on reading standard input
		it.in.Close()
	}
}

// Stat returns the metadata.
func (it *Item) Stat() (fileproc.Stat, error) {
	if it.F != nil {
		return it.F.Stat()
	}
	return fileproc.Stat{Size: it.info.Size(), ModTime: it.info.ModTime(), Mode: it.info.Mode()}, nil
}

// Stdin is the argument that stands for standard input.
const Stdin = "-"

// OrStdin returns the arguments. If there are no arguments, no list of files and no cache, and standard input is a pipe, a socket
// or a file, it returns Stdin, as rg does. A job whose input is a terminal or /dev/null searches the working directory.
func (r *Run) OrStdin(args []string) []string {
	info, err := os.Stdin.Stat()
	if len(args) == 0 && r.List == "" && r.Cache == "" && err == nil && info.Mode().Type()&^(os.ModeNamedPipe|os.ModeSocket) == 0 {
		return []string{Stdin}
	}
	return args
}

// Join returns the path to print for the slash-separated path rel in a directory. An empty dir is the working directory without
// an argument: paths in it have nothing before them.
func Join(dir, rel string) string {
	separator := ""
	if dir != "" && !os.IsPathSeparator(dir[len(dir)-1]) {
		separator = string(filepath.Separator)
	}
	return dir + separator + filepath.FromSlash(rel)
}

// A Job is what a subcommand does with each file.
type Job struct {
	Args  []string // directories and files; none is the working directory
	Stdin bool     // the argument "-" is standard input
	// Visit appends the file's output to c, in whole lines. An error that it returns is a failure of the file.
	// It is called on several goroutines at once.
	Visit func(it *Item, c *output.Chunk) error
	// A subcommand that has --cache has Read and Print in place of Visit. Read returns the value to keep for the file, or
	// fileproc.ErrSkip. Print appends the output for that value. Both are called on several goroutines at once.
	Read    func(it *Item) ([]byte, error)
	Print   func(path string, value []byte, c *output.Chunk) error
	Version string // of what Read returns
	// Dir, unless it is nil, is called before the directory Join(dir, rel) is opened. If it returns false, the directory is left
	// out.
	Dir func(dir, rel string) bool
	// Done is called after the files of a directory that was not left out have been visited.
	Done func(dir string)
}

// Each runs j. A failure of a file is reported at once; an error that Each returns has ended the run.
func (r *Run) Each(j Job) error {
	if j.Visit == nil {
		j.Visit = func(it *Item, c *output.Chunk) error {
			value, err := j.Read(it)
			if err != nil {
				return err
			}
			return j.Print(it.Path(), value, c)
		}
	}
	switch {
	case r.Cache != "" && r.List != "":
		return errors.New("--cache and --files-from cannot be used together")
	case r.Cache != "" && len(j.Args) > 1:
		return errors.New("--cache is for one directory: use a cache file for each")
	case r.List != "" && len(j.Args) > 0:
		return errors.New("--files-from takes the place of the arguments")
	case r.List != "":
		return r.eachListed(&j)
	case len(j.Args) == 0:
		return cmp.Or(r.eachInDir(&j, ""), context.Cause(r.Ctx))
	case r.Cache == "" && j.Dir == nil && !slices.ContainsFunc(j.Args, func(arg string) bool { info, err := os.Stat(arg); return err != nil || !info.IsDir() }):
		r.Opts.Roots = j.Args
		return cmp.Or(r.eachInDir(&j, j.Args[0]), context.Cause(r.Ctx))
	}
	InTurn(r, slices.Values(j.Args), func(arg string, wait func()) (emit func() error) {
		it, err := r.Named(arg, j.Stdin, wait), error(nil)
		if it.in == nil {
			it.info, err = os.Stat(arg)
		}
		switch {
		case it.info != nil && it.info.IsDir():
			return func() error { return r.eachInDir(&j, arg) }
		case r.Cache != "":
			return func() error { return cmp.Or(err, errors.New("--cache is for a directory, not for "+arg)) }
		}
		c := &output.Chunk{Out: r.Out, Wait: wait}
		if err == nil {
			err = j.Visit(&it, c)
			it.Close()
		}
		return func() error {
			c.FileDone()
			if err != nil && err != ErrEnough && err != fileproc.ErrSkip {
				r.Fail(&fs.PathError{Op: opProcess, Path: arg, Err: err})
				return nil
			}
			r.Totals.Processed++
			r.Out.Count(1, 0)
			if err == ErrEnough {
				return err
			}
			return nil
		}
	})
	return context.Cause(r.Ctx)
}

// maxAhead is how many of the arguments may be visited before their turn to be printed, unless they are directories. It is large
// enough that one large file does not block the other workers. Each file keeps at most output.SpillSize of output.
const maxAhead = 256

// InTurn calls work for each item, on all workers, and then the emit functions that work returned, one at a time in the
// order of the items. work may wait for its item's turn. An error of emit ends the run. After ErrEnough InTurn does not wait for
// work, which may hang.
func InTurn[T any](r *Run, items iter.Seq[T], work func(x T, wait func()) (emit func() error)) {
	type task struct {
		turn chan struct{} // closed when it is the item's turn
		emit chan func() error
	}
	// The buffer is for performance. Of maxAhead items, one blocks in the send to ahead and one has its turn.
	ahead, workers := make(chan task, maxAhead-2), make(chan struct{}, r.Opts.Workers)
	go func() {
		defer close(ahead)
		for x := range items {
			workers <- struct{}{}
			if r.Ctx.Err() != nil { // a cancelled run starts no more work
				return
			}
			t := task{make(chan struct{}), make(chan func() error, 1)}
			ahead <- t
			go func() {
				t.emit <- work(x, func() { <-t.turn })
				<-workers
			}()
		}
	}()
	for t := range ahead {
		close(t.turn)
		emit := <-t.emit
		if err := emit(); err != nil {
			r.Stop(err)
		}
		if context.Cause(r.Ctx) == ErrEnough {
			break
		}
	}
	r.Out.ShowProgress()
}

// eachInDir visits the files of a directory, or of Opts.Roots. The output of a file is printed when Visit returns; with --sort and --cache, this
// goroutine prints it.
func (r *Run) eachInDir(j *Job, dir string) error {
	opts := r.Opts
	opts.OnProgress = r.Out.OnProgress()
	if opts.OnError == nil {
		opts.OnError = func(err error) error {
			r.Fail(errors.Unwrap(err)) // a Failure wraps an fs.PathError
			return nil
		}
	}
	hooks := core.Hooks(&opts)
	hooks.IgnoreByName, hooks.Ignore, hooks.IgnoreAbove = true, r.ignore, fromHere
	opts.Report = new(fileproc.Report)
	defer func() {
		opts.Report.Found, opts.Report.Failed = 0, 0 // which Fail counts
		r.Totals.Add(*opts.Report)
	}()
	if j.Dir != nil {
		if opts.Files == nil {
			opts.SelectDir = func(e fileproc.Entry) bool { return j.Dir(dir, e.Rel()) }
		}
		if !j.Dir(dir, "") {
			return nil
		}
		defer j.Done(dir)
	}
	item := func(f *fileproc.File) *Item {
		it := &Item{run: r, F: f, Dir: dir, Data: f.Data(), More: f.Truncated()}
		if opts.Roots != nil {
			it.Dir = f.Root()
		}
		return it
	}
	visit := func(f *fileproc.File, c *output.Chunk) error {
		err := j.Visit(item(f), c)
		if err == ErrEnough {
			r.Stop(err)
			return fs.SkipAll
		}
		return err
	}
	root := cmp.Or(dir, ".")
	chunks := make([]output.Chunk, opts.Workers)
	printed := output.Chunk{Out: r.Out}
	var results iter.Seq2[[]byte, error]
	switch {
	case r.Cache != "":
		inc := incremental.Options[[]byte]{File: r.Cache, Version: Version() + " " + j.Version, Codec: incremental.Raw[[]byte]()}
		// What is kept is the path, a NUL byte, and what Read has returned: a result does not say of which file it is.
		results = incremental.Stream(r.Ctx, root, inc, opts, func(f *fileproc.File) ([]byte, error) {
			value, err := j.Read(item(f))
			if err != nil {
				return nil, err
			}
			return append(append([]byte(f.Rel()), 0), value...), nil
		})
	case opts.Ordered:
		results = fileproc.Stream(r.Ctx, root, opts, func(f *fileproc.File) ([]byte, error) {
			c := &chunks[f.Worker()] // without an output, it keeps everything
			c.B = c.B[:0]
			err := visit(f, c)
			return bytes.Clone(c.B), fileproc.WithResult(err)
		})
	default:
		return fileproc.ForEach(r.Ctx, root, opts, func(f *fileproc.File) error {
			c := &chunks[f.Worker()]
			c.Out = r.Out
			defer c.FileDone()
			return visit(f, c)
		})
	}
	for b, err := range results {
		if err != nil {
			return err
		}
		if r.Cache == "" {
			printed.B = append(printed.B, b...)
		} else {
			rel, value, _ := bytes.Cut(b, []byte{0})
			path := Join(dir, string(rel))
			if err := j.Print(path, value, &printed); err != nil {
				r.Fail(&fs.PathError{Op: opProcess, Path: path, Err: err})
			}
		}
		printed.FileDone()
	}
	return nil
}

// eachListed visits the files of --files-from: each group of successive names that are relative to the same directory is
// one run. A name is read only when the name before it has been taken.
func (r *Run) eachListed(j *Job) (err error) {
	in := os.Stdin
	if r.List != Stdin {
		if in, err = os.Open(r.List); err != nil {
			return fmt.Errorf("--files-from: %w", err)
		}
		defer in.Close()
	}
	end := byte('\n')
	if r.Null {
		end = 0
	}
	next, stop := iter.Pull2(records.List(r.Ctx, in, end))
	defer stop()
	var name, dir, rel string // the next name, and its parts
	var failed error
	advance := func() (ok bool) {
		name, failed, ok = next()
		dir, rel = SplitName(name)
		return ok && failed == nil
	}
	for more := advance(); more && r.Ctx.Err() == nil; {
		at := dir
		r.Opts.Files = nil
		if rel == "" { // the whole directory
			more = advance()
		} else {
			r.Opts.Files = func(yield func(string) bool) {
				for more && dir == at && rel != "" && yield(rel) {
					more = advance()
				}
			}
		}
		if err := r.eachInDir(j, at); err != nil {
			return err
		}
	}
	if failed != nil {
		return fmt.Errorf("--files-from: %w", failed)
	}
	return context.Cause(r.Ctx)
}

// SplitName divides a listed name.
var SplitName = records.Split
