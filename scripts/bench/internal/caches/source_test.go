//go:build linux

package caches

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"github.com/absfs/absfs"
)

// A source is a flat file system in memory, the same for all sides: as an absfs.FileSystem for cachefs and corfs, and
// through fsSource as an fs.FS and a store for fileproc's cache. Its times are old, and each write moves the time of its file.
type source struct {
	absfs.FileSystem // nil: no case calls the other methods
	mu               sync.RWMutex
	files            map[string]*node
	reads, hot       atomic.Int64 // open files that were read from, and the hot ones of them
}

type node struct {
	name    string
	data    []byte
	version int64
	info    *info // of this version; nil until someone asks
	hot     bool
}

type info struct {
	name  string
	size  int64
	mtime time.Time
}

func (i *info) Name() string       { return i.name }
func (i *info) Size() int64        { return i.size }
func (i *info) Mode() fs.FileMode  { return 0o644 }
func (i *info) ModTime() time.Time { return i.mtime }
func (i *info) IsDir() bool        { return false }
func (i *info) Sys() any           { return nil }

func (s *source) open(name string, flag int) (*file, error) {
	s.mu.RLock()
	n := s.files[name]
	s.mu.RUnlock()
	if n == nil && flag&os.O_CREATE == 0 {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	if n == nil || flag&os.O_TRUNC != 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		if n == nil {
			n = &node{name: name}
			s.files[name] = n
		}
		n.data = n.data[:0]
		n.changed()
	}
	return &file{s: s, n: n}, nil
}

func (n *node) changed() {
	n.version++
	n.info = nil
}

func (s *source) stat(n *node) *info {
	s.mu.RLock()
	i := n.info
	s.mu.RUnlock()
	if i != nil {
		return i
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n.info == nil {
		n.info = &info{path.Base(n.name), int64(len(n.data)), time.Unix(1_000_000_000+n.version, 0)}
	}
	return n.info
}

func (s *source) OpenFile(name string, flag int, perm os.FileMode) (absfs.File, error) {
	f, err := s.open(name, flag)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (s *source) Stat(name string) (os.FileInfo, error) {
	s.mu.RLock()
	n := s.files[name]
	s.mu.RUnlock()
	if n == nil {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}
	}
	return s.stat(n), nil
}

// A file is an open file of a source.
type file struct {
	absfs.File // nil, as above
	s          *source
	n          *node
	pos        int
}

func (f *file) Name() string               { return f.n.name }
func (f *file) Stat() (os.FileInfo, error) { return f.s.stat(f.n), nil }
func (f *file) Close() error               { return nil }

func (f *file) Read(p []byte) (int, error) {
	f.s.mu.RLock()
	defer f.s.mu.RUnlock()
	if f.pos >= len(f.n.data) {
		return 0, io.EOF
	}
	n := copy(p, f.n.data[f.pos:])
	if f.pos == 0 {
		f.s.reads.Add(1)
		if f.n.hot {
			f.s.hot.Add(1)
		}
	}
	f.pos += n
	return n, nil
}

func (f *file) Write(p []byte) (int, error) {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	if rest := len(f.n.data) - f.pos; rest < len(p) {
		f.n.data = append(f.n.data[:f.pos], p...)
	} else {
		copy(f.n.data[f.pos:], p)
	}
	f.pos += len(p)
	f.n.changed()
	return len(p), nil
}

// fsSource is a source as fileproc's cache wants it.
type fsSource struct {
	*source
	identify bool // WriteFile returns the metadata of what it has written
}

func (s fsSource) Open(name string) (fs.File, error) {
	f, err := s.open(name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// WriteFile makes the calls that the other two make, and Stat if the cache is to compare the file.
func (s fsSource) WriteFile(name string, data []byte) (fs.FileInfo, error) {
	f, err := s.source.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, err
	}
	if _, err := f.Write(data); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if !s.identify {
		return nil, f.Close()
	}
	i, err := f.Stat()
	return i, errors.Join(err, f.Close())
}
