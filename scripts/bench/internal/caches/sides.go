//go:build linux

package caches

import (
	"fmt"
	"io"
	"os"

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

const (
	ours        = "fileproc"
	oursChecked = "fileproc, checked"
	theirs      = "cachefs"
	corfsName   = "corfs"
	bare        = "no cache"
)

var sides = []side{
	{ours, func(c *testCase) (*target, error) { return newOurs(c, cache.Options{Trust: cache.Forever}) }},
	{oursChecked, func(c *testCase) (*target, error) { return newOurs(c, cache.Options{}) }},
	{theirs, func(c *testCase) (*target, error) { return newCachefs(c, cachefs.EvictionLRU) }},
	{corfsName, newCorfs},
	{bare, newBare},
}

func newOurs(c *testCase, opts cache.Options) (*target, error) {
	t := &target{names: c.names("")}
	t.src = newSource(t.names, c.content())
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
}

func newCachefs(c *testCase, policy cachefs.EvictionPolicy) (*target, error) {
	t := &target{names: c.names("/")}
	t.src = newSource(t.names, c.content())
	options := []cachefs.Option{cachefs.WithEvictionPolicy(policy)}
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
	t.open = func(name string) (io.ReadCloser, error) { return f.OpenFile(name, os.O_RDONLY, 0o644) }
	t.write = func(name string, data []byte) error { return writeTo(f, name, data) }
	t.drop = f.Invalidate
	t.held = func() int64 { return int64(f.Stats().BytesUsed()) }
	return t, nil
}

func newCorfs(c *testCase) (*target, error) {
	t := &target{names: c.names("/")}
	t.src = newSource(t.names, c.content())
	second := newSource(nil, nil)
	f := corfs.New(t.src, second)
	t.held = func() (held int64) {
		for _, n := range second.files {
			held += int64(len(n.data))
		}
		return held
	}
	t.open = func(name string) (io.ReadCloser, error) { return f.OpenFile(name, os.O_RDONLY, 0o644) }
	t.write = func(name string, data []byte) error { return writeTo(f, name, data) }
	return t, nil
}

func newBare(c *testCase) (*target, error) {
	t := &target{names: c.names("/")}
	t.src = newSource(t.names, c.content())
	t.open = func(name string) (io.ReadCloser, error) { return t.src.OpenFile(name, os.O_RDONLY, 0o644) }
	t.write = func(name string, data []byte) error { return writeTo(t.src, name, data) }
	t.drop = func(string) {}
	return t, nil
}

// writeTo replaces a file, as os.WriteFile does: the benchmarks of cachefs leave O_TRUNC out, and so the end of a longer file.
func writeTo(f absfs.Filer, name string, data []byte) error {
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
