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
	"github.com/fileproc/fileproc/git"
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

// ErrEnough is returned by Job.Visit to end the whole run early: the result is complete.
var ErrEnough = errors.New("enough")

// Fail prints a failure at once and counts it. After a cancel it does nothing, since all work then reports the cancel.
func (r *Run) Fail(err error) {
	if errors.Is(err, ErrEnough) {
		r.Stop(ErrEnough)
	}
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

// An Item is one file that a subcommand visits, or standard input.
type Item struct {
	F    *fileproc.File // nil for standard input
	Dir  string         // the argument that led to the file, as Join takes it
	Data []byte         // the content, or its beginning if More is set
	More bool           // only Reader gives the whole content
	run  *Run
}

// Input returns the item of standard input.
func (r *Run) Input() *Item { return &Item{Dir: Stdin, More: true, run: r} }

// IsArgument reports whether the file itself is an argument.
func (it *Item) IsArgument() bool { return it.F == nil || it.F.Path() == it.F.Root() }

// Path returns the path to print.
func (it *Item) Path() string {
	if it.IsArgument() {
		return it.Dir
	}
	return Join(it.Dir, it.F.Rel())
}

// Reader returns a reader of the whole content.
func (it *Item) Reader() io.Reader {
	if it.F == nil {
		return Counted{os.Stdin, it.run}
	}
	return it.F.Reader()
}

// A Counted reads what no Report counts. It adds the bytes to the totals and the progress, and fails once the run is cancelled.
type Counted struct {
	io.Reader
	Run *Run
}

func (c Counted) Read(p []byte) (n int, err error) {
	if err = c.Run.Ctx.Err(); err == nil {
		n, err = c.Reader.Read(p)
	}
	c.Run.Read.Add(int64(n))
	c.Run.Out.Count(0, int64(n))
	return n, err
}

// Stdin is the argument that stands for standard input.
const Stdin = "-"

// OrStdin returns the arguments. If there are no arguments, nothing else says which files, and standard input is a pipe, a socket
// or a file, it returns Stdin, as rg does. A job whose input is a terminal or /dev/null searches the working directory.
func (r *Run) OrStdin(args []string) []string {
	info, err := os.Stdin.Stat()
	if len(args) == 0 && r.List == "" && r.Cache == "" && !r.changed && !r.Opts.GitTracked && err == nil && info.Mode().Type()&^(os.ModeNamedPipe|os.ModeSocket) == 0 {
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
	if r.changed && r.List == "" && len(j.Args) < 2 {
		names, err := git.Changed(r.Ctx, append(j.Args, ".")[0])
		if err != nil {
			return err
		}
		r.Opts.Files = slices.Values(names)
	}
	switch {
	case r.changed && r.Opts.Files == nil:
		return errors.New("--changed is for one directory, and takes the place of --files-from")
	case r.List != "" && len(j.Args) > 0:
		return errors.New("--files-from takes the place of the arguments")
	case r.List != "":
		return r.eachListed(&j)
	case len(j.Args) == 0:
		return r.eachBelow(&j, "")
	}
	var roots []string // the arguments since the last "-"
	for _, arg := range j.Args {
		switch {
		case arg == "": // as of an unset variable; fileproc would refuse all roots
			_, err := os.Stat(arg)
			r.Fail(err)
		case arg == Stdin && j.Stdin:
			if err := r.eachBelow(&j, roots...); err != nil {
				return err
			}
			if err := r.eachInput(&j); err != nil {
				return err
			}
			roots = nil
		default:
			roots = append(roots, arg)
		}
	}
	return r.eachBelow(&j, roots...)
}

// IsFile reports whether an argument is a file, or may be standard input.
func IsFile(arg string) bool {
	info, err := os.Stat(arg)
	return arg == Stdin || err == nil && !info.IsDir()
}

// eachInput visits standard input.
func (r *Run) eachInput(j *Job) error {
	c := output.Chunk{Out: r.Out}
	err := j.Visit(r.Input(), &c)
	c.FileDone()
	if err != nil && err != fileproc.ErrSkip {
		r.Fail(&fs.PathError{Op: opProcess, Path: Stdin, Err: err})
	} else {
		r.Totals.Processed++
		r.Out.Count(1, 0)
	}
	return context.Cause(r.Ctx)
}

// eachBelow visits the files below roots, or Opts.Files below one. The root "" is the working directory without an argument. The
// output of a file is printed when Visit returns; in order and with --cache, this goroutine prints it.
func (r *Run) eachBelow(j *Job, roots ...string) error {
	if len(roots) == 0 {
		return nil
	}
	dir, opts := roots[0], r.Opts
	if len(roots) > 1 {
		opts.Roots = roots
		opts.Ordered = opts.Ordered || r.sorts && opts.Symlinks != fileproc.SymlinksFollow
	}
	opts.OnProgress = r.Out.OnProgress()
	if opts.OnError == nil && !opts.Ordered {
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
	item := func(f *fileproc.File) *Item {
		it := &Item{F: f, Data: f.Data(), More: f.Truncated()}
		if dir != "" {
			it.Dir = f.Root()
		}
		return it
	}
	root := cmp.Or(dir, ".")
	chunks := make([]output.Chunk, opts.Workers)
	printed := output.Chunk{Out: r.Out}
	var results iter.Seq2[[]byte, error]
	switch {
	case r.Cache != "":
		inc := incremental.Options[[]byte]{File: r.Cache, Version: fmt.Sprint(Version(), " ", j.Version, dir != ""), Codec: incremental.Raw[[]byte]()}
		// What is kept is the path, a NUL byte, and what Read has returned: a result does not say of which file it is.
		results = incremental.Stream(r.Ctx, root, inc, opts, func(f *fileproc.File) ([]byte, error) {
			it := item(f)
			value, err := j.Read(it)
			return append([]byte(it.Path()+"\x00"), value...), err
		})
	case opts.Ordered:
		tmp, _ := os.MkdirTemp("", "fileproc-")
		defer os.RemoveAll(tmp)
		results = fileproc.Stream(r.Ctx, root, opts, func(f *fileproc.File) ([]byte, error) {
			c := &chunks[f.Worker()]
			c.Dir = tmp
			err := j.Visit(item(f), c)
			return c.Take(), fileproc.WithResult(err)
		})
	default:
		err := fileproc.ForEach(r.Ctx, root, opts, func(f *fileproc.File) error {
			c := &chunks[f.Worker()]
			c.Out = r.Out
			defer c.FileDone()
			return j.Visit(item(f), c)
		})
		return cmp.Or(err, context.Cause(r.Ctx))
	}
	for b, err := range results {
		if r.Cache == "" {
			err = cmp.Or(printed.Print(b), err)
		} else if err == nil {
			path, value, _ := bytes.Cut(b, []byte{0})
			if err := j.Print(string(path), value, &printed); err != nil {
				r.Fail(&fs.PathError{Op: opProcess, Path: string(path), Err: err})
			}
		}
		printed.FileDone()
		if failure, ok := err.(*fileproc.Failure); ok {
			r.Fail(&failure.PathError)
		} else if err != nil {
			return err
		}
	}
	return context.Cause(r.Ctx)
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
	var dir, rel string // the next name
	var more bool
	advance := func() {
		var name string
		name, err, more = next()
		dir, rel = records.Split(name)
	}
	for advance(); more && err == nil && r.Ctx.Err() == nil; {
		at := dir
		if r.Opts.Files = nil; rel == "" { // the whole directory
			advance()
		} else {
			r.Opts.Files = func(yield func(string) bool) {
				for more && err == nil && dir == at && rel != "" && yield(rel) {
					advance()
				}
			}
		}
		if err := r.eachBelow(j, at); err != nil {
			return err
		}
	}
	if err != nil {
		return fmt.Errorf("--files-from: %w", err)
	}
	return context.Cause(r.Ctx)
}
