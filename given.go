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
	// givenCost, givenDirCost and givenRunCost are the bytes of memory that a name, a
	// directory and a run of names in order take besides the bytes of their names.
	givenCost    = 17
	givenDirCost = 400
	givenRunCost = 400
	// givenPart is how many names one scan of a directory takes.
	givenPart = 512
	// A path above one of these bounds is a failure: each element is a node, opened
	// below the node before, and no file system has paths that need more.
	maxGivenLen   = 64 << 10
	maxGivenParts = 4096
)

// A givenSource pulls the names of Options.Files from their iterator. The iterator may
// wait for long, so the goroutine that pulls is no worker until the iterator has
// returned. The names that no worker has taken yet are the backlog. It grows while all
// workers are busy, and a worker that has nothing else to do takes all of it, even if it
// is a single name. So names are processed as they come, and many at a time if they come
// fast.
//
// While a backlog grows, its names are grouped by directory, or kept in their order if
// the results are in order.
type givenSource struct {
	all        iter.Seq[string]
	canOpen    func(name []byte) bool
	root       *node
	inOrder    bool
	maxBacklog int
	wake       func()        // lets a worker look for work
	room       chan struct{} // buffered: take does not wait for the goroutine that pulls
	arena      names.Arena   // of the goroutine that pulls
	places     atomic.Uint64 // names scanned so far
	rootJudged bool          // rootSkip is known; used by the worker that scans root
	rootSkip   SkipReason

	mu      sync.Mutex // guards what follows; it may be taken while the queue's is held
	backlog *givenBacklog
	dirs    uint64 // made so far
	begun   bool   // a backlog is taken and not scanned to its end
	ended   bool   // the iterator has returned
}

// A givenBacklog is the names that no worker has taken.
type givenBacklog struct {
	top   *givenNames // root's own, grouped; or all, in order
	dirs  map[entryOf]*node
	paths map[string]*node // of dirs, those that were entered more than once, by path
	path  string           // of the directory of the last name
	dir   *node
	count int // of names
	cost  int
}

// An entryOf is the key of a directory. With whole paths as keys, the memory for a deep
// directory and those above it would grow with the square of the depth.
type entryOf struct {
	parent *node
	name   string
}

func newGivenSource(all iter.Seq[string], canOpen func([]byte) bool, root *node, inOrder bool, wake func()) *givenSource {
	root.given = &givenNames{}
	return &givenSource{
		all: all, canOpen: canOpen, root: root, inOrder: inOrder, maxBacklog: knobs.MaxBacklog, wake: wake,
		room: make(chan struct{}, 1),
	}
}

// pull takes names until there are no more or the run is stopped. The iterator is
// user code: it may wait, panic or end the goroutine.
func (s *givenSource) pull(stopped *atomic.Bool, done <-chan struct{}) {
	for name := range s.all {
		if stopped.Load() {
			return
		}
		s.mu.Lock()
		s.add(name)
		first, full := s.backlog.count == 1, s.backlog.cost >= s.maxBacklog
		s.mu.Unlock()
		if first { // the other names need no wake: a worker that looks for work finds them
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

func (s *givenSource) isFull() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.backlog != nil && s.backlog.cost >= s.maxBacklog
}

// isReady reports whether take would give names.
func (s *givenSource) isReady() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.backlog != nil && !s.begun
}

// isOver reports whether take has given all names. Without Options.Files there are
// none.
func (s *givenSource) isOver() bool {
	if s == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.backlog == nil && s.ended
}

// take makes the backlog what root is to list, and returns root. It returns nil if
// there is no backlog, or if the backlog taken before has not been scanned to its end:
// so few backlogs are in memory.
func (s *givenSource) take() *node {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.backlog == nil || s.begun {
		return nil
	}
	*s.root.given, s.root.phase = *s.backlog.top, nodeUnopened
	s.backlog, s.begun = nil, true
	select {
	case s.room <- struct{}{}:
	default: // the goroutine that pulls has not yet seen that there was room before
	}
	return s.root
}

// lists reports whether n is the node that lists the backlogs: root, with Options.Files.
func (s *givenSource) lists(n *node) bool { return s != nil && n == s.root }

// scanned says that n has been scanned to its end.
func (s *givenSource) scanned(n *node) {
	if !s.lists(n) {
		return
	}
	s.mu.Lock()
	s.begun = false
	s.mu.Unlock()
}

// add puts a name into the backlog.
func (s *givenSource) add(name string) {
	if s.backlog == nil {
		s.backlog = &givenBacklog{top: &givenNames{}, dirs: map[entryOf]*node{}, paths: map[string]*node{}, dir: s.root}
	}
	b := s.backlog
	b.count++
	b.cost += givenCost + len(name)
	path, isFlat := strings.CutSuffix(name, "/.")
	isTree := isFlat
	if !isFlat {
		path, isTree = strings.CutSuffix(name, "/")
	}
	slash := strings.LastIndexByte(path, '/') // 0: an absolute path
	dir, base := path[:max(0, slash)], path[slash+1:]
	if slash == 0 || isTooLong(path) || !s.isName(base) || dir != b.path && !s.enter(dir) {
		s.addInvalid(name)
		return
	}
	kept := s.arena.Add(bytesOf(base))
	if isTree {
		s.dirs++
		n := b.dir.givenChild(kept, s.dirs)
		n.flat = isFlat
		s.addTree(n)
	} else {
		s.addFile(b.dir, kept)
	}
}

// isTooLong reports whether a path of Options.Files is above a bound.
func isTooLong(path string) bool {
	return len(path) > maxGivenLen || len(path) > maxGivenParts && strings.Count(path, "/") >= maxGivenParts
}

// isName reports whether s can be one component of a path.
func (s *givenSource) isName(name string) bool {
	b := bytesOf(name)
	return names.Valid(b) && strings.IndexByte(name, 0) < 0 && s.canOpen(b)
}

// bytesOf returns the bytes of s, which must not be changed.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// enter makes the directory with this path the one into which add puts names. It
// reports false if no directory can have this path. Names tend to come in the order of
// their paths, so enter does not look up again what the path has in common with the path
// before.
func (s *givenSource) enter(path string) bool {
	b := s.backlog
	if n := b.paths[path]; n != nil {
		b.path, b.dir = path, n
		return true
	}
	n, end := b.dir, len(b.path) // n's path is b.path[:end], and behind the loop a part of both paths
	for same := commonPrefix(path, b.path); end > same || 0 < end && end < len(path) && path[end] != '/'; n = n.parent {
		end = max(0, end-len(n.name.String())-1)
	}
	isNew := false
	for end < len(path) {
		rest := path[end:]
		if end > 0 {
			rest = rest[1:]
		}
		name, _, _ := strings.Cut(rest, "/")
		sub := b.dirs[entryOf{n, name}]
		if sub == nil {
			if !isNew && !s.areNames(rest) {
				return false
			}
			isNew = true
			sub = s.newDir(n, name)
		}
		n, end = sub, len(path)-len(rest)+len(name)
	}
	if b.path, b.dir = path, n; !isNew {
		b.paths[path] = n
	}
	return true
}

func commonPrefix(a, b string) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

func (s *givenSource) areNames(path string) bool {
	for name := range strings.SplitSeq(path, "/") {
		if !s.isName(name) {
			return false
		}
	}
	return true
}

func (s *givenSource) newDir(parent *node, name string) *node {
	b := s.backlog
	s.dirs++
	n := parent.givenChild(s.arena.Add(bytesOf(name)), s.dirs) // in the cold mode they are opened in this order
	n.given = &givenNames{}
	b.dirs[entryOf{parent, n.name.String()}] = n
	b.cost += givenDirCost + len(name)
	if s.inOrder {
		n.refs = 0 // it is opened when one of its files is
	} else {
		s.of(parent).subs = append(s.of(parent).subs, n)
	}
	return n
}

// of returns the backlog's names in the directory n.
func (s *givenSource) of(n *node) *givenNames {
	if n == s.root {
		return s.backlog.top
	}
	return n.given
}

func (s *givenSource) addInvalid(name string) {
	if kept := s.arena.Add(bytesOf(name)); s.inOrder {
		s.addRun(givenRun{node: s.root, files: []names.Name{kept}, invalid: true})
	} else {
		s.backlog.top.invalid = append(s.backlog.top.invalid, kept)
	}
}

func (s *givenSource) addTree(n *node) {
	s.backlog.cost += givenDirCost
	if s.inOrder {
		s.addRun(givenRun{node: n, isTree: true})
	} else {
		s.of(n.parent).subs = append(s.of(n.parent).subs, n)
	}
}

func (s *givenSource) addFile(dir *node, name names.Name) {
	if s.inOrder {
		runs := s.backlog.top.runs
		if k := len(runs) - 1; k >= 0 && runs[k].node == dir && !runs[k].invalid && len(runs[k].files) < spanSize {
			runs[k].files = append(runs[k].files, name)
		} else {
			s.addRun(givenRun{node: dir, files: []names.Name{name}})
		}
		return
	}
	g := s.of(dir)
	if k := len(g.files) - 1; k >= 0 && len(g.files[k]) < givenPart {
		g.files[k] = append(g.files[k], name)
	} else {
		g.files = append(g.files, []names.Name{name})
	}
}

func (s *givenSource) addRun(r givenRun) {
	s.backlog.cost += givenRunCost
	s.backlog.top.runs = append(s.backlog.top.runs, r)
}

// badPath is the failure of a name of Options.Files that leads nowhere below root.
func badPath(name string) error {
	if isTooLong(strings.TrimSuffix(name, "/")) {
		return &sys.Error{Op: "open", Err: fmt.Errorf("the path has more than %d bytes or %d elements: %w", maxGivenLen, maxGivenParts, fs.ErrInvalid)}
	}
	return &sys.Error{Op: "open", Err: fmt.Errorf("%q is not the path of a file below root: %w", name, fs.ErrInvalid)}
}
