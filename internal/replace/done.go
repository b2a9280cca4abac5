package replace

import (
	"sync"
	"sync/atomic"
)

// Done are the files that a run has replaced: by name, in directories whose listing goes on, since a listing may give such a name
// again; and, if AddPath is called, by path. The zero Done is ready.
type Done[Dir comparable] struct {
	mu    sync.Mutex // guards what follows
	names map[Dir]map[string]struct{}
	paths map[string]byPath
}

// byPath is how often a file was replaced, or is being replaced, and by which path it was reached first.
type byPath struct {
	path string
	n    int
}

// Add adds a file of d, unless listed is set: then d has been listed to its end.
func (r *Done[Dir]) Add(d Dir, listed *uint32, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if atomic.LoadUint32(listed) != 0 {
		return
	}
	if r.names == nil {
		r.names = map[Dir]map[string]struct{}{}
	}
	if r.names[d] == nil {
		r.names[d] = map[string]struct{}{}
	}
	r.names[d][name] = struct{}{}
}

// AddPath adds a file, whose path without links is real, n times. N is -1 if the file was not replaced after all.
func (r *Done[Dir]) AddPath(real, path string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.paths == nil {
		r.paths = map[string]byPath{}
	}
	p := r.paths[real]
	if p.n == 0 {
		p.path = path
	}
	p.n += n
	r.paths[real] = p
}

// Has reports whether Add has added the file. R is nil if no file was replaced.
func (r *Done[Dir]) Has(d Dir, name []byte) bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.names[d][string(name)]
	return ok
}

// HasOtherPath reports whether AddPath has added the file by another path than this one.
func (r *Done[Dir]) HasOtherPath(real, path string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.paths[real]
	return p.n > 0 && p.path != path
}

// Forget is called when d has been listed to its end, and listed is set: either Add sees that, or Forget sees what Add has added.
func (r *Done[Dir]) Forget(d Dir) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.names, d)
}

// Len returns how many directories have such files.
func (r *Done[Dir]) Len() int { return len(r.names) }
