//go:build linux

package caches

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/absfs/absfs"
	"github.com/absfs/cachefs"
	"github.com/absfs/corfs"

	"github.com/fileproc/fileproc/cache"
)

// A side is one way to do a case.
type side struct {
	name string
	open func(c *testCase) (*target, error)
}

// A target is a side in front of a source of its own.
type target struct {
	names []string
	src   *source
	open  func(name string) (io.ReadCloser, error)
	write func(name string, data []byte) error
	drop  func(name string) // nil if the side cannot
	held  func() int64      // the bytes of content in the cache, as the side counts them; nil if it does not say
}

var caseSides = []side{
	fileprocSide(ours, cache.Options{Trust: cache.Forever}),
	fileprocSide(checked, cache.Options{}),
	cachefsSide(theirs, cachefs.EvictionLRU),
	{theirOther, newCorfs},
	{bare, newBare},
}

var policySides = []side{
	fileprocSide("fileproc, LRU", cache.Options{Trust: cache.Forever, Policy: cache.LRU}),
	fileprocSide("fileproc, LFU", cache.Options{Trust: cache.Forever, Policy: cache.LFU}),
	fileprocSide("fileproc, TTL", cache.Options{Trust: cache.Forever, Policy: cache.TTL, TTL: time.Hour}),
	fileprocSide("fileproc, Hybrid", cache.Options{Trust: cache.Forever, Policy: cache.Hybrid}),
	cachefsSide("cachefs, LRU", cachefs.EvictionLRU),
	cachefsSide("cachefs, LFU", cachefs.EvictionLFU),
	cachefsSide("cachefs, TTL", cachefs.EvictionTTL),
	cachefsSide("cachefs, Hybrid", cachefs.EvictionHybrid),
	{theirOther, newCorfs},
}

var evictionSides = []side{
	fileprocSide(ours, cache.Options{Trust: cache.Forever, Policy: cache.LFU, Shards: 1}),
	cachefsSide(theirs, cachefs.EvictionLFU),
}

// newTarget returns a target without a cache. The names of its files begin with prefix.
func newTarget(c *testCase, prefix string) *target {
	t := &target{src: &source{files: make(map[string]*node, c.files)}, drop: func(string) {}}
	for i := range c.files {
		name := fmt.Sprintf("%sfile%03d.txt", prefix, i)
		t.names = append(t.names, name)
		t.src.files[name] = &node{name: name, data: contentOf(i, c.size, 0), hot: i < zipfFiles}
	}
	return t.through(t.src)
}

type filer interface {
	OpenFile(name string, flag int, perm os.FileMode) (absfs.File, error)
}

// through lets t read and write f.
func (t *target) through(f filer) *target {
	t.open = func(name string) (io.ReadCloser, error) { return f.OpenFile(name, os.O_RDONLY, 0o644) }
	t.write = func(name string, data []byte) error { return writeTo(f, name, data) }
	return t
}

func newBare(c *testCase) (*target, error) { return newTarget(c, "/"), nil }

func fileprocSide(name string, opts cache.Options) side {
	return side{name, func(c *testCase) (*target, error) {
		t, opts := newTarget(c, ""), opts
		both := fsSource{t.src, opts.Trust == 0}
		opts.MaxBytes, opts.MaxEntries, opts.Store = c.maxBytes, c.maxEntries, both
		if c.around {
			opts.Write = cache.WriteAround
		}
		f, err := cache.New(both, opts)
		if err != nil {
			return nil, err
		}
		t.open = func(name string) (io.ReadCloser, error) { return f.Open(name) }
		t.write = f.WriteFile
		t.drop = func(name string) { f.Invalidate(name) }
		t.held = func() int64 { return f.Stats().Files.Bytes }
		return t, nil
	}}
}

func cachefsSide(name string, policy cachefs.EvictionPolicy) side {
	return side{name, func(c *testCase) (*target, error) {
		t, options := newTarget(c, "/"), []cachefs.Option{cachefs.WithEvictionPolicy(policy)}
		if c.maxBytes > 0 {
			options = append(options, cachefs.WithMaxBytes(uint64(c.maxBytes)))
		}
		if c.maxEntries > 0 {
			options = append(options, cachefs.WithMaxEntries(uint64(c.maxEntries)))
		}
		if c.around {
			options = append(options, cachefs.WithWriteMode(cachefs.WriteModeWriteAround))
		}
		f := cachefs.New(t.src, options...)
		t.drop = f.Invalidate
		t.held = func() int64 { return int64(f.Stats().BytesUsed()) }
		return t.through(f), nil
	}}
}

func newCorfs(c *testCase) (*target, error) {
	t, second := newTarget(c, "/"), &source{files: map[string]*node{}}
	t.drop = nil
	t.held = func() (held int64) {
		for _, n := range second.files {
			held += int64(len(n.data))
		}
		return held
	}
	return t.through(corfs.New(t.src, second)), nil
}

// writeTo replaces a file, as os.WriteFile does: the benchmarks of cachefs leave O_TRUNC out, and so the end of a longer file.
func writeTo(f filer, name string, data []byte) error {
	w, err := f.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	if _, err := w.Write(data); err != nil {
		return err
	}
	return w.Close()
}

// read opens, reads and closes a file: with one call of Read into a buffer that is exactly large enough, as the benchmarks of
// cachefs do, or to io.EOF.
func (t *target) read(i int, buf []byte, toEOF bool) error {
	f, err := t.open(t.names[i])
	if err != nil {
		return err
	}
	n, err := f.Read(buf)
	if n != len(buf) || err != nil {
		return fmt.Errorf("%s: read %d of %d bytes: %v", t.names[i], n, len(buf), err)
	}
	if toEOF {
		if n, err := f.Read(buf); n != 0 || err != io.EOF {
			return fmt.Errorf("%s: %d bytes and %v after the end", t.names[i], n, err)
		}
	}
	return f.Close()
}
