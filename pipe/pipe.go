// Package pipe makes a batch program: one that an engine starts, on many
// machines and as often as needed, to process some of the files below a
// directory. Spark's RDD.pipe, Hadoop streaming, GNU parallel and xargs are such
// engines.
//
//	func main() {
//		pipe.Main(fileproc.Options{Suffixes: []string{".md"}}, func(f *fileproc.File) (Ticket, error) {
//			return parse(f.Data())
//		})
//	}
//
// # Protocol
//
//	program ROOT         # answers the names on standard input
//	program -list ROOT   # prints the names that the options select, for standard input
//	program -0 ROOT      # each name on standard input ends with a NUL byte
//
// Standard input has the path of one file a line, relative to root and with
// slashes. It may begin with "./" and may be absolute, as in Options.Files; the
// answer has it as it was written. The program answers every name with one line of JSON, in no
// particular order unless Options.Ordered is set; a name that is given twice is
// answered twice:
//
//	{"path":"a/1.md","result":…}    what the function returned
//	{"path":"a/2.md","error":"…"}   this file failed, and no other
//	{"path":"a/3.md","skipped":true}   the options leave it out, or the function returned ErrSkip
//
// So an engine that has the names can check that nothing is missing. A path is a
// string, or {"bytes":"…"} with the bytes in base64 if they are not UTF-8. A line
// of standard input that begins with a double quote or with {"bytes": is such a
// value, and any other line is the name as it stands, with its carriage return if
// it has one; empty lines are no names. With -list, every line is such a value, the
// same as in the answer. With -0, names are never quoted, on input and with -list.
//
// The exit status is 0 if every name is answered. Any other status says that the batch
// as a whole could not be done, and standard error says why: root cannot be
// opened, standard input or output broke, the function panicked. An engine then
// starts the batch again, and drops the lines that it got. At exit status 0 each
// line is whole, and is UTF-8.
//
// Names are read as they come, and answers are written as they are ready, within
// some 50 ms. Memory is bounded however long the batch.
package pipe

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"unicode/utf8"

	"github.com/fileproc/fileproc"
)

// Main is the main function of a batch program. It parses the command line, where
// the program may have defined flags of its own, and exits.
func Main[T any](opts fileproc.Options, fn func(*fileproc.File) (T, error)) {
	list := flag.Bool("list", false, "print the names of the files below ROOT and exit")
	null := flag.Bool("0", false, "names end with a NUL byte, and are not quoted")
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "usage: %s [flags] ROOT <names\n", os.Args[0])
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	end := byte('\n')
	if *null {
		end = 0
	}
	var err error
	if *list {
		err = listNames(context.Background(), flag.Arg(0), os.Stdout, end, opts)
	} else {
		err = run(context.Background(), flag.Arg(0), os.Stdin, os.Stdout, end, opts, fn)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Run reads names from in, one a line, and writes a line to out for each. Each Write
// has whole lines. The error of Run says that the batch as a whole could not be done;
// it is context.Cause(ctx) after a cancel, and wraps a *fileproc.PanicError if fn
// panicked. Run may then return while a Read of in still waits.
//
// The Options apply as they do to a run with Options.Files, which must be nil. Options
// about listings apply to List alone; neither Run nor List can use Roots or Symlinks.
// Options.OnError, if set, is called for each failure of a file. If it returns an error,
// the batch ends, so that an engine starts the batch again: the failure may not occur on
// another machine or at another time.
func Run[T any](ctx context.Context, root string, in io.Reader, out io.Writer, opts fileproc.Options, fn func(*fileproc.File) (T, error)) error {
	return run(ctx, root, in, out, '\n', opts, fn)
}

// List writes the names of the files below root that opts select to out, in the
// form that Run reads. A directory that cannot be listed ends List with an error,
// unless Options.OnError returns nil for that error.
func List(ctx context.Context, root string, out io.Writer, opts fileproc.Options) error {
	return listNames(ctx, root, out, '\n', opts)
}

var errRoots = errors.New("pipe: Options.Roots cannot be used: the names are relative to one root")

var errSymlinks = errors.New("pipe: Options.Symlinks cannot be used: a batch opens no symbolic link")

func listNames(ctx context.Context, root string, out io.Writer, end byte, opts fileproc.Options) error {
	switch {
	case opts.Roots != nil:
		return errRoots
	case opts.Symlinks != fileproc.SymlinksSkip:
		return errSymlinks
	}
	w := bufio.NewWriterSize(out, flushSize)
	var line []byte
	for e, err := range fileproc.Walk(ctx, root, opts) {
		switch {
		case err != nil:
			return err
		case e.IsDir():
			continue
		case end == 0:
			line = append(line[:0], e.Rel()...)
		default:
			line = appendName(line[:0], e.Rel())
		}
		if _, err := w.Write(append(line, end)); err != nil {
			return err
		}
	}
	return w.Flush()
}

func run[T any](ctx context.Context, root string, in io.Reader, out io.Writer, end byte, opts fileproc.Options, fn func(*fileproc.File) (T, error)) (err error) {
	switch {
	case opts.Files != nil:
		return errors.New("pipe: Options.Files is set: the names come from the input")
	case opts.Roots != nil:
		return errRoots
	case opts.Symlinks != fileproc.SymlinksSkip:
		return errSymlinks
	case fn == nil:
		return errors.New("pipe: fn is nil")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a := newAnswers(out, cancel)
	defer a.close()

	isFS, onError := opts.FS != nil, opts.OnError
	opts.MaxDepth, opts.IgnoreFiles, opts.GitIgnore, opts.GitTracked, opts.SkipMarked, opts.SelectDir, opts.OneFilesystem = 0, nil, false, false, nil, nil, false
	opts.OnError = nil
	answerSkipped(&opts, a)
	guard(&opts, a)
	var readError error
	opts.Files = func(yield func(string) bool) { readError = a.give(ctx, in, end, root, isFS, yield) }

	defer func() {
		switch p := recover().(type) {
		case nil:
		case *fileproc.PanicError:
			err = p
			if path := a.panicked.Load(); path != nil {
				err = fmt.Errorf("pipe: %s: %w", *path, p)
			}
		default:
			panic(p)
		}
	}()
	prefix := pathPrefix(root, isFS)
	for line, err := range fileproc.Stream(ctx, root, opts, func(f *fileproc.File) (line answer, err error) {
		a.call(f, func() { line, err = process(f, a, fn) })
		return line, err
	}) {
		if err == nil {
			a.put(line.name, `"result":`, line.text)
			continue
		}
		name, why := nameOf(err, prefix, isFS)
		isOfFile := why != nil && a.isPending(name)
		if isOfFile && onError != nil {
			a.call(nil, func() { err = onError(err) })
		} else if isOfFile {
			err = nil
		}
		if err != nil {
			cancel(err) // otherwise the run, once it is stopped, still waits for names
			return err
		}
		a.fail(name, why)
	}
	if readError != nil {
		return fmt.Errorf("pipe: reading names: %w", readError)
	}
	return a.finish()
}

// An answer is the result of the file name, as JSON.
type answer struct {
	name string
	text []byte
}

var errNotUTF8 = errors.New("the JSON of the result is not UTF-8")

func process[T any](f *fileproc.File, a *answers, fn func(*fileproc.File) (T, error)) (answer, error) {
	v, err := fn(f)
	line := answer{name: f.Rel()}
	switch {
	case errors.Is(err, fileproc.ErrSkip):
	case errors.Is(err, fs.SkipAll):
		err = fmt.Errorf("a batch cannot be ended early: %v", err)
	case err == nil:
		if line.text, err = marshal(v); err == nil && !utf8.Valid(line.text) {
			err = errNotUTF8 // package json takes the text of a json.RawMessage or json.Marshaler as it is
		}
	}
	return line, err
}

func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// guard makes a panic in OnProgress end the wait for names.
func guard(opts *fileproc.Options, a *answers) {
	if onProgress := opts.OnProgress; onProgress != nil {
		opts.OnProgress = func(r fileproc.Report) { a.call(nil, func() { onProgress(r) }) }
	}
}

// answerSkipped makes opts answer the names that are skipped.
func answerSkipped(opts *fileproc.Options, a *answers) {
	if selected := opts.Select; selected != nil {
		opts.Select = func(f *fileproc.File) (ok bool) {
			a.call(f, func() { ok = selected(f) })
			return ok
		}
	}
	onSkip := opts.OnSkip
	opts.OnSkip = func(e fileproc.Entry, why fileproc.SkipReason) {
		if onSkip != nil {
			a.call(nil, func() { onSkip(e, why) })
		}
		a.skip(e.Rel())
	}
}
