// Package fileprocbeam is fileproc for pipelines of the Apache Beam Go SDK: many
// machines process the files below one root, on a file system that all workers
// mount or in an object store.
//
//	var tickets = fileprocbeam.Register("tickets", func(f *fileproc.File) (Ticket, error) {
//		return parse(f.Rel(), f.Data())
//	})
//
//	func main() {
//		flag.Parse()
//		beam.Init()
//		p, s := beam.NewPipelineWithRoot()
//		results, failures := tickets.Process(s, "/mnt/tickets", fileproc.Options{Suffixes: []string{".md"}})
//		...
//	}
//
// One worker lists root, once, and divides the names into batches, which the
// runner distributes. Each batch is a run of [fileproc.Stream] with Options.Files:
// on all cores of its worker, and with the guarantees of package fileproc.
//
// # Batches
//
// A batch has at least 16 names (the last one may have fewer) and at most 1,000,
// and at most 256 KiB of names unless one name alone is longer. Within these bounds it
// has at most 1/64 of the names listed so far, so that a few files with much work are
// divided too.
//
// # Failures
//
// The failures have an element, with the path, for each file that cannot be read, that
// has vanished since it was listed, or for which fn returns an error, and for each
// directory that cannot be listed. All other files are processed. A pipeline that must
// not ignore failures has to say so, for example with passert.Empty. On a worker where
// root is an empty directory, because nothing is mounted on it, all names of a batch are
// failures.
//
// A bundle fails, without output, if fn panics or returns [ErrRetry], if its worker
// dies, and if a worker cannot open root. What then happens is the runner's
// decision. Prism and the job service of Beam's Python SDK fail the pipeline: Run
// returns an error, and sinks that write after a GroupByKey, as textio.Write does,
// have written nothing. Other runners may process the bundle again, so fn may see
// a file more than once; only the results of one attempt count. This package is tested
// with Prism, in the process of the program and outside, and with Python's job
// service. It is not tested with Flink, Spark or Dataflow, and promises no retry
// there.
//
// # Lifetimes
//
// The rules for [fileproc.File] hold: a result must not refer to File.Data. A DoFn
// on a worker opens a bucket in Setup and closes it in Teardown. Nothing of a batch
// is left when it has been processed.
//
// # Metrics
//
// The counters "listed", "batches", "results", "failures", "skipped" and "bytes" in
// the namespace fileprocbeam say what was done. Skipped counts what Options.SkipBinary
// and [fileproc.ErrSkip] left out; files that listing left out are not counted.
package fileprocbeam

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"unicode/utf8"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/register"
	"github.com/fileproc/fileproc"
)

// ErrRetry is returned by fn, as it is or wrapped, to fail the bundle instead of the
// file: the reason is expected to pass, and a result without this file would be
// wrong. A runner that retries bundles processes the batch again; others fail the
// pipeline.
var ErrRetry = errors.New("fileprocbeam: retry the bundle")

// A Failure is a file or a directory that could not be processed. Its coder is this
// package's own, so both strings travel exactly, whatever their bytes. Beam's string
// coder must be given valid UTF-8: a path that may be anything travels as []byte.
type Failure struct {
	Path  string // as File.Path returns it
	Error string // the text of the error, in which Path is named
}

func init() {
	beam.RegisterCoder(reflect.TypeFor[Failure](), encodeFailure, decodeFailure)
	beam.RegisterType(reflect.TypeFor[listFn]())
	register.Emitter1[[]byte]()
	register.Emitter1[Failure]()
}

func encodeFailure(f Failure) []byte {
	b := binary.AppendUvarint(nil, uint64(len(f.Path)))
	return append(append(b, f.Path...), f.Error...)
}

func decodeFailure(b []byte) (Failure, error) {
	n, size := binary.Uvarint(b)
	if size <= 0 || n > uint64(len(b)-size) {
		return Failure{}, errors.New("fileprocbeam: damaged Failure")
	}
	b = b[size:]
	return Failure{Path: string(b[:n]), Error: string(b[n:])}, nil
}

// registered holds the function of each Transform of this program by name. It does
// not change after beam.Init.
var registered = map[string]any{}

// typesRegistered are the T of these functions: Beam warns if one is registered twice.
var typesRegistered = map[reflect.Type]bool{}

// A Transform processes files in a pipeline. Register makes one.
type Transform[T any] struct{ name string }

// Register makes a transform that calls fn for each file. The workers find fn by
// the name, so each worker must have made the same call before beam.Init: Register
// is called to initialize a package's variable, or in init. It panics after
// beam.Init, and if the name is empty, taken or not UTF-8.
//
// The function fn is that of [fileproc.Process]: it returns [fileproc.ErrSkip] for no
// result, and an error that is or wraps [ErrRetry] to fail the bundle. It cannot stop
// a pipeline, so fs.SkipAll fails the bundle too. T must have a coder in Beam, as any
// named struct with exported fields has.
func Register[T any](name string, fn func(*fileproc.File) (T, error)) *Transform[T] {
	switch {
	case beam.Initialized():
		panic(fmt.Sprintf("fileprocbeam: Register(%q) after beam.Init: workers would not know it", name))
	case name == "" || !utf8.ValidString(name):
		panic(fmt.Sprintf("fileprocbeam: Register: the name is %q: want UTF-8 that is not empty", name))
	case fn == nil:
		panic(fmt.Sprintf("fileprocbeam: Register(%q): fn is nil", name))
	case registered[name] != nil:
		panic(fmt.Sprintf("fileprocbeam: Register(%q) twice", name))
	}
	registered[name] = fn
	if t := reflect.TypeFor[T](); !typesRegistered[t] {
		typesRegistered[t] = true
		// register.DoFn4x1 would save the reflection of one call for each batch, and make the program megabytes larger.
		beam.RegisterType(reflect.TypeFor[processFn[T]]())
		register.Emitter1[T]()
	}
	return &Transform[T]{name}
}

// Process inserts the transform into a pipeline. It returns the results, a
// PCollection of T in no order, and the failures, a PCollection of [Failure].
//
// Root is one of:
//   - a directory that all workers mount, as a path or a file URL. A relative path
//     is made absolute here, where the pipeline is constructed.
//   - the URL of a bucket, such as s3://bucket/dir?region=eu-west-1, which each worker
//     opens with gocloud.dev/blob. The program imports the driver, for example
//     gocloud.dev/blob/s3blob, and the workers must have the credentials. The URL's
//     path, if any, is the directory below which objects are processed; File.Path is
//     the key. An object without content whose key ends with a slash is the mark of a
//     directory, and not processed. Other keys that are no paths, such as "a//b", make
//     their directory a failure, which names them.
//
// Workers, and all options that say which files are listed or what is read of each file,
// have the same meaning as in package fileproc. Paths in IgnoreFiles, and the user's ignore
// file with GitIgnore, are those of the worker that lists. Process panics, as Beam's
// functions do, for invalid options and for options that cannot travel or have no meaning
// here: AllTypes, Roots, Files, FS, Select, SelectDir, Symlinks, SymlinksOutside, Durable,
// Ordered, OnError, OnSkip, Report and OnProgress.
func (t *Transform[T]) Process(s beam.Scope, root string, opts fileproc.Options) (results, failures beam.PCollection) {
	results, failures, err := t.TryProcess(s, root, opts)
	if err != nil {
		panic(err)
	}
	return results, failures
}

// TryProcess is Process, but returns an error for a root or options that Process
// refuses.
func (t *Transform[T]) TryProcess(s beam.Scope, root string, opts fileproc.Options) (results, failures beam.PCollection, err error) {
	job, err := newJob(root, opts)
	if err != nil {
		return results, failures, err
	}
	s = s.Scope("fileprocbeam." + t.name)
	batches, unlisted := beam.ParDo2(s, &listFn{Job: job}, beam.Impulse(s))
	results, failures = beam.ParDo2(s, &processFn[T]{Name: t.name, Job: job}, beam.Reshuffle(s, batches))
	return results, beam.Flatten(s, unlisted, failures), nil
}
