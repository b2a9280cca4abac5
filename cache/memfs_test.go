package cache

import (
	"bytes"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// memFS is a source in memory. Each write gives the file a time of its own, long
// ago, so that its identity shows each change.
type memFS struct {
	mu    sync.Mutex
	files map[string]*memInfo
	clock int64
	// fault, if set, is called before each step: open, stat, read (before each read of
	// an open file), write, remove.
	fault        func(op, name string) error
	short        int // bytes of a read at most; 0 is no limit
	timeless     bool
	opens, stats atomic.Int64
}

type memInfo struct {
	name  string
	data  []byte
	mtime time.Time
	dir   bool
	lies  int64 // added to Size
}

func (i *memInfo) Name() string       { return path.Base(i.name) }
func (i *memInfo) Size() int64        { return int64(len(i.data)) + i.lies }
func (i *memInfo) ModTime() time.Time { return i.mtime }
func (i *memInfo) IsDir() bool        { return i.dir }
func (i *memInfo) Sys() any           { return nil }
func (i *memInfo) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o755
	}
	return 0o644
}

func newMemFS(files map[string]string) *memFS {
	m := &memFS{files: map[string]*memInfo{}}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		m.put(name, files[name])
	}
	return m
}

func (m *memFS) time() time.Time {
	m.clock++
	if m.timeless {
		return time.Time{}
	}
	return time.Unix(1_000_000+m.clock, 0)
}

// put writes a file beneath the cache.
func (m *memFS) put(name, data string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, had := m.files[name]
	m.files[name] = &memInfo{name: name, data: []byte(data), mtime: m.time()}
	if !had {
		m.touchDir(path.Dir(name))
	}
}

func (m *memFS) delete(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.files, name)
	m.touchDir(path.Dir(name))
}

func (m *memFS) touchDir(dir string) {
	_, had := m.files[dir]
	m.files[dir] = &memInfo{name: dir, mtime: m.time(), dir: true}
	if dir != "." && !had {
		m.touchDir(path.Dir(dir))
	}
}

func (m *memFS) step(op, name string) error {
	m.mu.Lock()
	fault := m.fault
	m.mu.Unlock()
	if fault == nil {
		return nil
	}
	if err := fault(op, name); err != nil {
		return &fs.PathError{Op: op, Path: name, Err: err}
	}
	return nil
}

func (m *memFS) Stat(name string) (fs.FileInfo, error) {
	m.stats.Add(1)
	return m.find("stat", name)
}

func (m *memFS) find(op, name string) (*memInfo, error) {
	if err := m.step(op, name); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if f := m.files[name]; f != nil && fs.ValidPath(name) {
		return f, nil
	}
	return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
}

func (m *memFS) Open(name string) (fs.File, error) {
	m.opens.Add(1)
	i, err := m.find("open", name)
	if err != nil {
		return nil, err
	}
	f := &memFile{m: m, i: i, r: bytes.NewReader(i.data)}
	if i.dir {
		m.mu.Lock()
		defer m.mu.Unlock()
		for child, ci := range m.files {
			if child != "." && path.Dir(child) == name {
				f.entries = append(f.entries, fs.FileInfoToDirEntry(ci))
			}
		}
		slices.SortFunc(f.entries, func(a, b fs.DirEntry) int { return strings.Compare(b.Name(), a.Name()) }) // unsorted
	}
	return f, nil
}

type memFile struct {
	m       *memFS
	i       *memInfo
	r       *bytes.Reader
	entries []fs.DirEntry
}

func (f *memFile) Stat() (fs.FileInfo, error) { return f.i, nil }
func (f *memFile) Close() error               { return nil }
func (f *memFile) Read(p []byte) (int, error) {
	if err := f.m.step("read", f.i.name); err != nil {
		return 0, err
	}
	if f.m.short > 0 && len(p) > f.m.short {
		p = p[:f.m.short]
	}
	return f.r.Read(p)
}

func (f *memFile) ReadDir(n int) ([]fs.DirEntry, error) {
	if n > 0 && len(f.entries) == 0 {
		return nil, io.EOF
	}
	if n <= 0 || n > len(f.entries) {
		n = len(f.entries)
	}
	out := f.entries[:n]
	f.entries = f.entries[n:]
	return out, nil
}

// As a store, memFS can fail before a write (fault "write") and after it ("written").

func (m *memFS) WriteFile(name string, data []byte) (fs.FileInfo, error) {
	if err := m.step("write", name); err != nil {
		return nil, err
	}
	m.put(name, string(data))
	m.mu.Lock()
	i := m.files[name]
	m.mu.Unlock()
	if err := m.step("written", name); err != nil {
		return nil, err
	}
	return i, nil
}

func (m *memFS) Remove(name string) error {
	if err := m.step("remove", name); err != nil {
		return err
	}
	if _, err := m.find("remove", name); err != nil {
		return err
	}
	m.delete(name)
	return m.step("removed", name)
}

func (m *memFS) get(name string) (string, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := m.files[name]; i != nil {
		return string(i.data), true
	}
	return "", false
}

func (m *memFS) setFault(f func(op, name string) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault = f
}
