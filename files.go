package fileproc

import (
	"fmt"
	"io/fs"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/fileproc/fileproc/internal/knobs"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
)

const (
	// nameCost, nameDirCost and nameRunCost are the bytes of a name, a directory and
	// a run of names in order, without what they are called.
	nameCost    = 17
	nameDirCost = 400
	nameRunCost = 400
	// namePart is how many names one scan of a directory takes.
	namePart = 512
	// A path above one of these bounds is a failure: each element is a node, opened
	// below the node before, and no file system has paths that need more.
	maxGivenLen   = 64 << 10
	maxGivenParts = 4096
)

// A nameSource pulls the names of Options.Files from their iterator, which may wait
// for long, on a goroutine that is no worker until the iterator has returned. What
// no worker has taken yet is the window: it grows while all workers are busy, and a
// worker that has nothing else to do takes all of it, also if that is one name. So
// names are processed as they come, and many at a time where they come fast.
//
// A window is grouped by directory while it grows, or in the order of the names if
// the results are in order.
type nameSource struct {
	names     iter.Seq[string]
	canOpen   func(name []byte) bool
	root      *node
	inOrder   bool
	maxWindow int
	wake      func()        // lets a worker look for work
	room      chan struct{} // buffered: take does not wait for the goroutine that pulls
	arena     names.Arena   // of the goroutine that pulls
	places    atomic.Uint64 // names scanned so far

	mu     sync.Mutex // guards what follows; it may be taken while the queue's is held
	window *nameWindow
	dirs   uint64 // made so far
	begun  bool   // a window is taken and not scanned to its end
	ended  bool   // the iterator has returned
}

// A nameWindow is names that no worker has taken.
type nameWindow struct {
	top   *givenNames // root's own, grouped; or all, in order
	dirs  map[entryOf]*node
	paths map[string]*node // of dirs, those that were entered more than once, by path
	path  string           // of the directory of the last name
	dir   *node
	names int
	cost  int
}

// An entryOf is the key of a directory. With whole paths as keys, a deep directory
// and those above it would take the square of the depth.
type entryOf struct {
	parent *node
	name   string
}

func newNameSource(all iter.Seq[string], canOpen func([]byte) bool, root *node, inOrder bool, wake func()) *nameSource {
	root.given = &givenNames{}
	return &nameSource{
		names: all, canOpen: canOpen, root: root, inOrder: inOrder, maxWindow: knobs.NameWindow, wake: wake,
		room: make(chan struct{}, 1),
	}
}

// pull takes names until there are no more or the run is stopped. The iterator is
// user code: it may wait, panic or end the goroutine.
func (s *nameSource) pull(stopped *atomic.Bool, done <-chan struct{}) {
	for name := range s.names {
		if stopped.Load() {
			return
		}
		s.mu.Lock()
		s.add(name)
		first, full := s.window.names == 1, s.window.cost >= s.maxWindow
		s.mu.Unlock()
		if first { // of all the others, a worker that looks for work learns
			s.wake()
		}
		for ; full; full = s.isFull() {
			select {
			case <-s.room:
			case <-done:
				return
			}
		}
	}
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
}

func (s *nameSource) isFull() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.window != nil && s.window.cost >= s.maxWindow
}

// isReady reports whether take would give names.
func (s *nameSource) isReady() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.window != nil && !s.begun
}

// isOver reports whether take has given all names. Without Options.Files there are
// none.
func (s *nameSource) isOver() bool {
	if s == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.window == nil && s.ended
}

// take makes a window what root is to list, and returns root, or else nil. The window
// before must have been scanned to its end, so that few are in memory.
func (s *nameSource) take() *node {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.window == nil || s.begun {
		return nil
	}
	*s.root.given, s.root.phase = *s.window.top, nodeUnopened
	s.window, s.begun = nil, true
	select {
	case s.room <- struct{}{}:
	default: // the goroutine that pulls has not yet seen that there was room before
	}
	return s.root
}

// lists reports whether what n lists is windows.
func (s *nameSource) lists(n *node) bool { return s != nil && n == s.root }

// scanned says that n has been scanned to its end.
func (s *nameSource) scanned(n *node) {
	if !s.lists(n) {
		return
	}
	s.mu.Lock()
	s.begun = false
	s.mu.Unlock()
}

// add puts a name into the window.
func (s *nameSource) add(name string) {
	if s.window == nil {
		s.window = &nameWindow{top: &givenNames{}, dirs: map[entryOf]*node{}, paths: map[string]*node{}, dir: s.root}
	}
	w := s.window
	w.names++
	w.cost += nameCost + len(name)
	path, isTree := strings.CutSuffix(name, "/")
	slash := strings.LastIndexByte(path, '/') // 0: an absolute path
	dir, base := path[:max(0, slash)], path[slash+1:]
	if slash == 0 || isTooLong(path) || !s.isName(base) || dir != w.path && !s.enter(dir) {
		s.addInvalid(name)
		return
	}
	kept := s.arena.Add(bytesOf(base))
	if isTree {
		s.dirs++
		s.addTree(w.dir.child(kept, s.dirs))
	} else {
		s.addFile(w.dir, kept)
	}
}

// isTooLong reports whether a path of Options.Files is above a bound.
func isTooLong(path string) bool {
	return len(path) > maxGivenLen || len(path) > maxGivenParts && strings.Count(path, "/") >= maxGivenParts
}

// isName reports whether s can be one component of a path.
func (s *nameSource) isName(name string) bool {
	b := bytesOf(name)
	return names.Valid(b) && strings.IndexByte(name, 0) < 0 && s.canOpen(b)
}

// bytesOf returns the bytes of s, which must not be changed.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// enter makes the directory with this path the one that add puts names into, and
// reports whether there can be one. Names tend to come in the order of their paths:
// what the path has in common with the one before is not looked up again.
func (s *nameSource) enter(path string) bool {
	w := s.window
	if n := w.paths[path]; n != nil {
		w.path, w.dir = path, n
		return true
	}
	n, end := w.dir, len(w.path) // n's path is path[:end], once that is a part of both
	for same := commonPrefix(path, w.path); end > same || 0 < end && end < len(path) && path[end] != '/'; n = n.parent {
		end = max(0, end-len(n.name.String())-1)
	}
	isNew := false
	for end < len(path) {
		rest := path[end:]
		if end > 0 {
			rest = rest[1:]
		}
		name, _, _ := strings.Cut(rest, "/")
		sub := w.dirs[entryOf{n, name}]
		if sub == nil {
			if !isNew && !s.areNames(rest) {
				return false
			}
			isNew = true
			sub = s.newDir(n, name)
		}
		n, end = sub, len(path)-len(rest)+len(name)
	}
	if w.path, w.dir = path, n; !isNew {
		w.paths[path] = n
	}
	return true
}

func commonPrefix(a, b string) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

func (s *nameSource) areNames(path string) bool {
	for name := range strings.SplitSeq(path, "/") {
		if !s.isName(name) {
			return false
		}
	}
	return true
}

func (s *nameSource) newDir(parent *node, name string) *node {
	w := s.window
	s.dirs++
	n := parent.child(s.arena.Add(bytesOf(name)), s.dirs) // in the cold mode they are opened in this order
	n.given = &givenNames{}
	w.dirs[entryOf{parent, n.name.String()}] = n
	w.cost += nameDirCost + len(name)
	if s.inOrder {
		n.refs = 0 // it is opened when one of its files is
	} else {
		s.of(parent).subs = append(s.of(parent).subs, n)
	}
	return n
}

// of returns the window's names in the directory n.
func (s *nameSource) of(n *node) *givenNames {
	if n == s.root {
		return s.window.top
	}
	return n.given
}

func (s *nameSource) addInvalid(name string) {
	if kept := s.arena.Add(bytesOf(name)); s.inOrder {
		s.addRun(nameRun{node: s.root, files: []names.Name{kept}, invalid: true})
	} else {
		s.window.top.invalid = append(s.window.top.invalid, kept)
	}
}

func (s *nameSource) addTree(n *node) {
	s.window.cost += nameDirCost
	if s.inOrder {
		s.addRun(nameRun{node: n, isTree: true})
	} else {
		s.of(n.parent).subs = append(s.of(n.parent).subs, n)
	}
}

func (s *nameSource) addFile(dir *node, name names.Name) {
	if s.inOrder {
		runs := s.window.top.runs
		if k := len(runs) - 1; k >= 0 && runs[k].node == dir && !runs[k].isTree && !runs[k].invalid && len(runs[k].files) < spanSize {
			runs[k].files = append(runs[k].files, name)
		} else {
			s.addRun(nameRun{node: dir, files: []names.Name{name}})
		}
		return
	}
	g := s.of(dir)
	if k := len(g.files) - 1; k >= 0 && len(g.files[k]) < namePart {
		g.files[k] = append(g.files[k], name)
	} else {
		g.files = append(g.files, []names.Name{name})
	}
}

func (s *nameSource) addRun(r nameRun) {
	s.window.cost += nameRunCost
	s.window.top.runs = append(s.window.top.runs, r)
}

// badPath is the failure of a name of Options.Files that leads nowhere below root.
func badPath(name string) error {
	if isTooLong(strings.TrimSuffix(name, "/")) {
		return &sys.Error{Op: "open", Err: fmt.Errorf("the path has more than %d bytes or %d elements: %w", maxGivenLen, maxGivenParts, fs.ErrInvalid)}
	}
	return &sys.Error{Op: "open", Err: fmt.Errorf("%q is not the path of a file below root: %w", name, fs.ErrInvalid)}
}
