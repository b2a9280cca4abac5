package cache

import (
	"cmp"
	"errors"
	"io/fs"
	"math"
	"time"
)

// File is what a function of [Results] gets.
type File struct {
	Name string
	Data []byte // all of the file; it must not be modified, and may be kept
	Info fs.FileInfo
}

// ResultOptions say how Results are cached. The zero value is a good default.
type ResultOptions[T any] struct {
	// MaxEntries bounds the number of results; 0 is no bound.
	MaxEntries int
	// MaxBytes bounds the memory of the results, in bytes; 0 is 64 MiB. A result counts
	// as its name, 512 bytes and what Cost returns.
	MaxBytes int64
	// Cost returns how many bytes a result takes; nil is 0 for each.
	Cost func(T) int64
	// Policy and TTL are as in [Options].
	Policy Policy
	TTL    time.Duration
	// Shards is as in [Options].
	Shards int
}

// Results caches what a function returns for the files of an FS. Its methods may be
// called by any number of goroutines. Each result is compared with its file, and
// trusted, as the FS does with content.
type Results[T any] struct {
	files  *FS
	fn     func(File) (T, error)
	cost   func(T) int64
	engine *engine[*result[T]]
}

type result[T any] struct {
	stamp
	value T
}

// NewResults makes a cache of what fn returns for files. The cache lives as long as files.
// Only one goroutine at a time calls fn for the same file, unless the file is written or
// invalidated during a call: then another call may begin. fn must not load the result of the
// same file: that load would wait for itself. An error of fn is returned, and not cached.
func NewResults[T any](files *FS, opts ResultOptions[T], fn func(File) (T, error)) (*Results[T], error) {
	if files == nil || fn == nil {
		return nil, errors.New("cache: Results need files and a function")
	}
	same := Options{MaxBytes: opts.MaxBytes, MaxEntries: opts.MaxEntries, Policy: opts.Policy, TTL: opts.TTL, Shards: opts.Shards}
	if err := same.validate(); err != nil {
		return nil, err
	}
	l := limits{policy: opts.Policy, maxBytes: cmp.Or(opts.MaxBytes, 64<<20), maxEntries: cmp.Or(opts.MaxEntries, math.MaxInt),
		ttl: opts.TTL, shards: opts.Shards}
	r := &Results[T]{files: files, fn: fn, cost: opts.Cost, engine: newEngine[*result[T]](l)}
	files.w.mu.Lock()
	defer files.w.mu.Unlock()
	all := append(files.dependents(), r.engine)
	files.results.Store(&all)
	return r, nil
}

// Get returns the result for the file name if it is cached.
func (r *Results[T]) Get(name string) (value T, ok bool) {
	if res, ok := hit(r.files, r.engine, name, name); ok {
		return res.value, true
	}
	return value, false
}

// Load returns the result for the file name. If it is not cached, Load calls the
// function. Of several callers at the same time, one calls it.
func (r *Results[T]) Load(name string) (value T, err error) {
	if err := valid("load", name); err != nil {
		return value, err
	}
	res, ok := hit(r.files, r.engine, name, name)
	if !ok {
		res, err = load(r.files, r.engine, name, name, func() (*result[T], loaded, error) { return r.build(name) })
	}
	if err != nil {
		return value, err
	}
	return res.value, nil
}

func (r *Results[T]) build(name string) (*result[T], loaded, error) {
	ct, err := r.files.content(name)
	if err == nil && ct.kind == uncachable {
		ct, _, err = r.files.read(name, math.MaxInt64) // the result may be small
	}
	switch {
	case err != nil:
		return nil, loaded{}, err
	case ct.kind == directory:
		return nil, loaded{}, isDirectory("load", name)
	case ct.kind == uncachable:
		return nil, loaded{}, &fs.PathError{Op: "load", Path: name, Err: ErrNotRegular}
	}
	v, err := r.fn(File{name, ct.bytes(), &ct.info})
	if err != nil {
		return nil, loaded{}, err
	}
	cost := int64(len(name)) + entryOverhead
	if r.cost != nil {
		cost += min(max(0, r.cost(v)), math.MaxInt64-cost)
	}
	return &result[T]{ct.stamp, v}, loaded{cost: cost, began: ct.began, keep: r.files.worthKeeping(&ct.stamp)}, nil
}

// Stats returns the counters of the results. [FS.Stats] has those of the files.
func (r *Results[T]) Stats() Counts { return r.engine.total() }
