package fileprocbeam

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/fileproc/fileproc"
)

var (
	listed   = beam.NewCounter("fileprocbeam", "listed")
	batches  = beam.NewCounter("fileprocbeam", "batches")
	results  = beam.NewCounter("fileprocbeam", "results")
	failures = beam.NewCounter("fileprocbeam", "failures")
	skipped  = beam.NewCounter("fileprocbeam", "skipped")
	content  = beam.NewCounter("fileprocbeam", "bytes")
)

// failed keeps the failures of a run for the goroutine of its DoFn: only that goroutine
// may call Beam's emitters.
type failed struct {
	mu   sync.Mutex
	list []Failure
}

func (f *failed) add(err error) {
	var at Failure
	var about *fs.PathError
	if errors.As(err, &about) {
		at.Path = about.Path
	}
	at.Error = err.Error()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = append(f.list, at)
}

// unlessOfRoot adds err, unless it is a failure of root: then it returns err, because
// there is nothing to process.
func (f *failed) unlessOfRoot(err error) error {
	if about, ok := err.(*fileproc.Failure); ok && about.Kind == fileproc.FailedRoot {
		return err
	}
	f.add(err)
	return nil
}

func (f *failed) emit(ctx context.Context, emit func(Failure)) {
	f.mu.Lock()
	list := f.list
	f.list = nil
	f.mu.Unlock()
	failures.Inc(ctx, int64(len(list)))
	for _, at := range list {
		emit(at)
	}
}

// Bounds of a batch: names, and bytes of names.
const (
	minNames = 16
	maxNames = 1000
	maxBytes = 256 << 10
)

// A batcher collects names into batches, each name with a NUL byte at its end.
type batcher struct {
	emit  func(batch []byte, names int)
	buf   []byte
	names int // in buf
	total int
}

func (b *batcher) add(name string) {
	if len(b.buf)+len(name)+1 > maxBytes || b.names >= min(max(b.total/64, minNames), maxNames) {
		b.flush()
	}
	b.buf = append(append(b.buf, name...), 0)
	b.names++
	b.total++
}

func (b *batcher) flush() {
	if b.names > 0 {
		b.emit(b.buf, b.names)
	}
	b.buf, b.names = nil, 0
}

// listFn lists root and emits batches, as []byte, which every runner leaves as it is.
type listFn struct {
	Job []byte

	job job
	src source
}

func (l *listFn) Setup(ctx context.Context) (err error) {
	l.job, l.src, err = setup(ctx, l.Job)
	return err
}

func (l *listFn) Teardown() error { return l.src.close() }

func (l *listFn) ProcessElement(ctx context.Context, _ []byte, emit func([]byte), fail func(Failure)) error {
	var failed failed
	opts := l.job.Opts
	opts.Stat, opts.SkipLarger = false, 0 // so that listing takes no look at each file
	if l.src.bucket != nil {
		opts.FS = keys{ctx, l.src.bucket}
	}
	opts.OnError = func(err error) error { return failed.unlessOfRoot(err) }
	b := batcher{emit: func(batch []byte, names int) {
		emit(batch)
		failed.emit(ctx, fail)
		listed.Inc(ctx, int64(names))
		batches.Inc(ctx, 1)
	}}
	for e, err := range fileproc.Walk(ctx, l.src.dir, opts) {
		if err != nil {
			return err
		}
		if !e.IsDir() {
			b.add(e.Rel())
		}
	}
	b.flush()
	failed.emit(ctx, fail)
	return nil
}

// processFn calls the function that is registered under Name for the files of a batch.
type processFn[T any] struct {
	Name string
	Job  []byte

	job job
	src source
	fn  func(*fileproc.File) (T, error)
}

func (p *processFn[T]) Setup(ctx context.Context) (err error) {
	fn, ok := registered[p.Name].(func(*fileproc.File) (T, error))
	if !ok {
		return fmt.Errorf("fileprocbeam: this worker has no Register(%q) for %T: it runs another program than the one that constructed the pipeline", p.Name, *new(T))
	}
	p.fn = fn
	p.job, p.src, err = setup(ctx, p.Job)
	return err
}

func (p *processFn[T]) Teardown() error { return p.src.close() }

// errSkipAll ends a batch. Like ErrRetry it fails the bundle.
var errSkipAll = errors.New("fileprocbeam: fn returned fs.SkipAll, which cannot stop a pipeline")

func (p *processFn[T]) ProcessElement(ctx context.Context, batch []byte, emit func(T), fail func(Failure)) error {
	var failed failed
	var report fileproc.Report
	names := strings.Split(strings.TrimSuffix(string(batch), "\x00"), "\x00")
	o := p.job.Opts
	opts := fileproc.Options{ // the others are about the listing
		ReadSize: o.ReadSize, MaxFileSize: o.MaxFileSize, SkipLarger: o.SkipLarger, SkipBinary: o.SkipBinary, Download: o.Download, Stat: o.Stat, Workers: o.Workers, DisableURing: o.DisableURing,
		Files: func(yield func(string) bool) {
			for _, name := range names {
				if !yield(name) {
					return
				}
			}
		},
		OnError: func(err error) error {
			if errors.Is(err, ErrRetry) || errors.Is(err, errSkipAll) {
				return err
			}
			return failed.unlessOfRoot(err)
		},
		Report: &report,
	}
	if p.src.bucket != nil {
		opts.FS = newObjects(ctx, p.src, names)
	}
	fn := func(f *fileproc.File) (T, error) {
		v, err := p.fn(f)
		if errors.Is(err, fs.SkipAll) {
			err = errSkipAll
		}
		return v, err
	}
	for v, err := range fileproc.Stream(ctx, p.src.dir, opts, fn) {
		if err != nil {
			return err
		}
		emit(v)
	}
	failed.emit(ctx, fail)
	results.Inc(ctx, report.Processed)
	content.Inc(ctx, report.Bytes)
	for _, n := range report.Skipped {
		skipped.Inc(ctx, n)
	}
	return nil
}

func setup(ctx context.Context, b []byte) (j job, src source, err error) {
	if j, err = decodeJob(b); err == nil {
		src, err = openSource(ctx, j.Root)
	}
	return j, src, err
}
