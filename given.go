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
	"github.com/fileproc/fileproc/internal/replace"
	"github.com/fileproc/fileproc/internal/sys"
)

const (
	// givenCost, givenDirCost and givenItemCost are the bytes of memory that a name, a
	// directory and a givenItem take besides the bytes of their names.
	givenCost     = 17
	givenDirCost  = 400
	givenItemCost = 400
	// givenPart is how many names of a directory one scan lists.
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
	below      func(name string) string // see names.Below
	canOpen    func(name []byte) bool
	root       *node
	inOrder    bool
	maxBacklog int
	wake       func()        // lets a worker look for work
	room       chan struct{} // buffered: take does not wait for the goroutine that pulls
	arena      names.Arena   // of the goroutine that pulls
	places     atomic.Uint64 // names scanned so far
	rootJudged bool          // rootSkip is known; used by the worker that scans a backlog, of which there is one at a time
	rootSkip   SkipReason

	mu      sync.Mutex // guards what follows; it may be taken while the queue's is held
	backlog *givenBacklog
	dirs    uint64 // made so far
	begun   bool   // a backlog is taken and not scanned to its end
	ended   bool   // the iterator has returned
}

// A givenBacklog is the names that no worker has taken, and then the source of the job in
// which a worker takes them all.
type givenBacklog struct {
	foundDir
	of    *givenSource
	top   *givenNames // root's
	items []givenItem // in order: all names, in the order in which they were given
	dirs  map[entryOf]*givenNames
	paths map[string]*givenNames // those of dirs to which changeDir has come back, by path
	path  string                 // of the directory of the last name
	dir   *givenNames
	count int // of names
	cost  int
}

// An entryOf is the key of a directory. With whole paths as keys, the memory for a deep
// directory and those above it would grow with the square of the depth.
type entryOf struct {
	parent *givenNames
	name   string
}

// givenNames are the names of a backlog that lie in one directory, and the source of the
// job of that directory. In order, the names are in the backlog's items instead.
type givenNames struct {
	alwaysReady
	node    *node
	up      *givenNames    // of the directory above; nil: the directory is root
	files   [][]names.Name // in parts, each for one scan
	subs    []*job         // of directories with such names in them, and of those to be listed
	invalid []names.Name   // of root: names that cannot be paths below it

	judged bool       // in order: skip and err are known
	skip   SkipReason // why all names are skipped, or notSkipped
	err    error      // why all names fail
}

// A givenTree is the source of a directory that Options.Files names, to be listed.
type givenTree struct {
	foundDir
	flat bool // without its subdirectories
}

// A givenItem is names in one directory that were given one after the other, or one
// directory to be listed.
type givenItem struct {
	in      *givenNames
	files   []names.Name
	tree    *job // of the directory to be listed, in place of files
	invalid bool // the names cannot be paths below root
}

func newGivenSource(cfg *config, canOpen func([]byte) bool, root *node, inOrder bool, wake func()) *givenSource {
	root.given = true
	return &givenSource{
		all: cfg.files, below: names.Below(cfg.root, cfg.fsys != nil), canOpen: canOpen, root: root, inOrder: inOrder, maxBacklog: knobs.MaxBacklog, wake: wake,
		room: make(chan struct{}, 1),
	}
}

func (s *givenSource) newBacklog() *givenBacklog {
	top := &givenNames{node: s.root}
	return &givenBacklog{of: s, top: top, dirs: map[entryOf]*givenNames{}, paths: map[string]*givenNames{}, dir: top}
}

// pull pulls names until there are no more or the run is stopped. The iterator is
// user code: it may wait, panic or end the goroutine.
func (s *givenSource) pull(stopped *atomic.Bool, done <-chan struct{}) {
	for name := range s.all {
		if stopped.Load() {
			return
		}
		if name = s.below(name); replace.LeadsToTemporary(name) {
			continue
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

// isFull reports whether the backlog, which was full, is still there.
func (s *givenSource) isFull() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.backlog != nil
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

// take returns a job for the backlog. It returns nil if there is no backlog, or if the
// backlog taken before has not been scanned to its end: so few backlogs are in memory.
func (s *givenSource) take() *job {
	if s == nil {
		return nil
	}
	b := s.takeBacklog()
	if b == nil {
		return nil
	}
	return &job{node: s.root, source: b}
}

func (s *givenSource) takeBacklog() *givenBacklog {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.backlog == nil || s.begun {
		return nil
	}
	b := s.backlog
	b.dirs, b.paths, b.dir = nil, nil, nil
	s.backlog, s.begun = nil, true
	select {
	case s.room <- struct{}{}:
	default: // the goroutine that pulls has not yet seen that there was room before
	}
	return b
}

// end says that the backlog has been scanned to its end. It lets the names go, because the
// run's first job may keep b.
func (b *givenBacklog) end() {
	b.top, b.items = nil, nil
	b.of.mu.Lock()
	b.of.begun = false
	b.of.mu.Unlock()
}

// A nextBacklog is the source of a job for a backlog that need not exist yet, where results
// come in order. The job's span is behind those of the backlog before.
type nextBacklog struct{ *givenSource }

func (b nextBacklog) isReady() bool { return b.givenSource.isReady() || b.isOver() }

// taken gives j the backlog, or an empty one if no more names will come.
func (b nextBacklog) taken(j *job) {
	next := b.takeBacklog()
	if next == nil {
		next = b.newBacklog()
	}
	j.source = next
}

func (nextBacklog) end() {}

// add puts a name into the backlog.
func (s *givenSource) add(name string) {
	if s.backlog == nil {
		s.backlog = s.newBacklog()
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
	if slash == 0 || isTooLong(path) || !s.isName(base) || dir != b.path && !s.changeDir(dir) {
		s.addInvalid(name)
		return
	}
	kept := s.arena.Add(bytesOf(base))
	if isTree {
		s.addTree(b.dir, kept, isFlat)
	} else {
		s.addFile(b.dir, kept)
	}
}

// isTooLong reports whether a path of Options.Files is above a bound.
func isTooLong(path string) bool {
	return len(path) > maxGivenLen || strings.Count(path, "/") >= maxGivenParts
}

// isName reports whether s can be one component of a path.
func (s *givenSource) isName(name string) bool {
	b := bytesOf(name)
	return names.Valid(b) && strings.IndexByte(name, 0) < 0 && s.canOpen(b)
}

// bytesOf returns the bytes of s, which must not be changed.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// changeDir makes the directory with this path the one into which add puts names. It
// reports false if no directory can have this path. Names tend to come in the order of
// their paths, so changeDir does not search again for what the path has in common with the path
// before.
func (s *givenSource) changeDir(path string) bool {
	b := s.backlog
	if g := b.paths[path]; g != nil {
		b.path, b.dir = path, g
		return true
	}
	g, end := b.dir, len(b.path) // g's path is b.path[:end], and behind the loop a part of both paths
	for same := names.CommonPrefix(path, b.path); end > same || 0 < end && end < len(path) && path[end] != '/'; g = g.up {
		end = max(0, end-len(g.node.name.String())-1)
	}
	isNew := false
	for end < len(path) {
		rest := path[end:]
		if end > 0 {
			rest = rest[1:]
		}
		name, _, _ := strings.Cut(rest, "/")
		sub := b.dirs[entryOf{g, name}]
		if sub == nil {
			if !isNew && !s.areNames(rest) {
				return false
			}
			isNew = true
			sub = s.newDir(g, name)
		}
		g, end = sub, len(path)-len(rest)+len(name)
	}
	if b.path, b.dir = path, g; !isNew {
		b.paths[path] = g
	}
	return true
}

func (s *givenSource) areNames(path string) bool {
	for name := range strings.SplitSeq(path, "/") {
		if !s.isName(name) {
			return false
		}
	}
	return true
}

func (s *givenSource) newDir(up *givenNames, name string) *givenNames {
	g := &givenNames{up: up}
	j := s.newJob(up, s.arena.Add(bytesOf(name)), g)
	g.node = j.node
	g.node.given = true
	s.backlog.dirs[entryOf{up, g.node.name.String()}] = g
	s.backlog.cost += givenDirCost + len(name)
	if s.inOrder {
		g.node.refs = 0 // it has no job: it is opened when one of its files is
	} else {
		up.subs = append(up.subs, j)
	}
	return g
}

// newJob returns a job for the directory name in up. It reads neither device nor ignore of
// up's node, because another goroutine may be judging that. In the cold mode the
// directories are opened in the order in which they were given.
func (s *givenSource) newJob(up *givenNames, name names.Name, from source) *job {
	s.dirs++
	return newJob(node{parent: up.node, tree: up.node.tree, name: name, depth: up.node.depth + 1, inode: s.dirs, refs: 1}, from)
}

func (s *givenSource) addInvalid(name string) {
	b := s.backlog
	if kept := s.arena.Add(bytesOf(name)); s.inOrder {
		b.addItem(givenItem{in: b.top, files: []names.Name{kept}, invalid: true})
	} else {
		b.top.invalid = append(b.top.invalid, kept)
	}
}

func (s *givenSource) addTree(in *givenNames, name names.Name, isFlat bool) {
	j := s.newJob(in, name, givenTree{flat: isFlat})
	s.backlog.cost += givenDirCost
	if s.inOrder {
		s.backlog.addItem(givenItem{in: in, tree: j})
	} else {
		in.subs = append(in.subs, j)
	}
}

func (s *givenSource) addFile(in *givenNames, name names.Name) {
	if s.inOrder {
		items := s.backlog.items
		if k := len(items) - 1; k >= 0 && items[k].in == in && items[k].tree == nil && !items[k].invalid && len(items[k].files) < spanSize {
			items[k].files = append(items[k].files, name)
		} else {
			s.backlog.addItem(givenItem{in: in, files: []names.Name{name}})
		}
		return
	}
	if k := len(in.files) - 1; k >= 0 && len(in.files[k]) < givenPart {
		in.files[k] = append(in.files[k], name)
	} else {
		in.files = append(in.files, []names.Name{name})
	}
}

func (b *givenBacklog) addItem(r givenItem) {
	b.cost += givenItemCost
	b.items = append(b.items, r)
}

// badPath is the failure of a name of Options.Files that leads nowhere below root.
func badPath(name string) error {
	if isTooLong(strings.TrimSuffix(name, "/")) {
		return &sys.Error{Op: "open", Err: fmt.Errorf("the path has more than %d bytes or %d elements: %w", maxGivenLen, maxGivenParts, fs.ErrInvalid)}
	}
	return &sys.Error{Op: "open", Err: fmt.Errorf("%q is not the path of a file below root: %w", name, fs.ErrInvalid)}
}
