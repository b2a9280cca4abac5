package fileproc

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/fileproc/fileproc/internal/gitignore"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
)

// A node is a directory of the tree: root, or a name in its parent. While it is not in
// use, it may be closed. It is opened again from the nearest ancestor that is open, one
// component at a time.
//
// A node keeps its own name only. If each kept its path, memory would grow with
// the square of the depth.
type node struct {
	parent *node            // nil: root
	name   names.Name       // the zero Name for root
	depth  int              // 0: root
	inode  uint64           // as listed, 0 if unknown: a hint for the order on the disk
	device uint64           // 0 unless the run is cold: a hint too
	link   *linkNode        // nil unless reached through symbolic links
	ignore *gitignore.Chain // the ignore files that apply to the entries
	span   *span            // ordered: the directory's own
	spans  []*span          // ordered: what span is expanded to
	phase  nodePhase        // used by the worker that scans the node
	flat   bool             // the directories in the node are left out
	buffer *entryBuffer     // nil unless entries are buffered until all are listed
	given  *givenNames      // nil unless Options.Files names entries of the node; root then lists one backlog after the other

	// guarded by the directory cache's mutex
	dir  directory // nil: closed
	id   identity  // of dir: set when dir is evicted, or from the link that leads to it
	noID bool      // dir.identity failed: until the node is next used, only evictAll tries it again
	pins int       // users of dir at this moment
	refs int       // those that may need dir again: its listing, its batches, its unopened subdirectories
}

// A nodePhase says how far the listing of a node has come.
type nodePhase uint8

const (
	nodeUnopened    nodePhase = iota
	nodeListing               // open, pinned and partly listed
	nodeBuffered              // all is in buffer; the ignore files in it are to be read
	nodeClassifying           // open and pinned again, after nodeBuffered
)

// An entryBuffer has what the listing of one directory has given so far.
type entryBuffer struct {
	entries []bufferedEntry
	ignore  []string // names of ignore files
	git     bool     // .git is among them, and Options.GitIgnore set
	marked  bool     // a file of Options.SkipMarked is among them
}

type bufferedEntry struct {
	name  names.Name
	typ   fs.FileMode
	inode uint64
}

// givenNames are the entries of one directory that Options.Files names, or all names of
// a backlog in the order in which they were given.
type givenNames struct {
	files   [][]names.Name // in parts, each for one scan
	subs    []*node        // directories with such names in them, and those to be listed
	invalid []names.Name   // of a backlog: names that cannot be paths below root

	runs   []givenRun // of a backlog in order
	judged bool       // in order: skip and err are known
	skip   SkipReason // why all are skipped, or notSkipped
	err    error      // why all fail
}

// A givenRun is names in one directory that were given one after the other, or one
// directory to be listed.
type givenRun struct {
	node    *node
	files   []names.Name
	isTree  bool
	invalid bool // the names cannot be paths below root
}

// A linkNode has the fields that only a node that is reached through symbolic links has.
type linkNode struct {
	// links are the links, from one scan of the parent, for which the node stands. The
	// node then has the path and the depth of the parent.
	links   []names.Name
	targets map[names.Name]target // of links, once they are resolved
	// resolved says that the wait for links that cannot be resolved has lasted too
	// long: their errors are final.
	resolved bool
	// to is the target of the one link that leads to the node.
	to      target
	entered bool // the run has entered the directory by another path
}

// A target is what a link leads to.
type target struct {
	path    string // relative to root with slashes, or an absolute one of the system
	outside bool
	mode    fs.FileMode
	id      identity // of a directory
	err     error    // why there is no target
}

// child returns a node for a subdirectory of n.
func (n *node) child(name names.Name, inode uint64) *node {
	c := n.givenChild(name, inode)
	c.device, c.ignore = n.device, n.ignore
	return c
}

// givenChild is child for an n that may not have been judged yet. It reads neither device
// nor ignore of n, because another goroutine may be judging n.
func (n *node) givenChild(name names.Name, inode uint64) *node {
	return &node{parent: n, name: name, depth: n.depth + 1, inode: inode, refs: 1}
}

// childForLinks returns a node for symbolic links that n lists.
func (n *node) childForLinks(links []names.Name) *node {
	return &node{parent: n, depth: n.depth, ignore: n.ignore, refs: 1, link: &linkNode{links: links}}
}

// isLinks reports whether n stands for links of its parent.
func (n *node) isLinks() bool { return n.link != nil && n.link.links != nil }

// isLinkedDir reports whether n is the directory that a link leads to.
func (n *node) isLinkedDir() bool { return n.link != nil && n.link.links == nil }

// belowLink reports whether n's path has a link in it.
func (n *node) belowLink() bool {
	for ; n != nil; n = n.parent {
		if n.link != nil {
			return true
		}
	}
	return false
}

// pathLen returns the length of what appendPath appends.
func (n *node) pathLen() (k int) {
	for ; n.parent != nil; n = n.parent {
		if !n.isLinks() {
			k += len(n.name.String()) + 1
		}
	}
	return k
}

// appendPath appends n's path relative to root, with a slash behind each name. For
// root it appends nothing.
func (n *node) appendPath(p []byte) []byte {
	end := len(p) + n.pathLen()
	p = slices.Grow(p, end-len(p))[:end]
	for ; n.parent != nil; n = n.parent {
		if !n.isLinks() {
			end--
			p[end] = '/'
			end -= len(n.name.String())
			copy(p[end:], n.name.String())
		}
	}
	return p
}

// relPath returns the path of the entry name of n relative to root.
func (n *node) relPath(name string) string { return n.join("", name) }

// dirPath returns the path of the directory n relative to root, "." for root.
func (n *node) dirPath() string {
	if n.parent == nil {
		return "."
	}
	return n.parent.relPath(n.name.String())
}

// givenError returns the failure err of the entry name of n. If Options.Files named the
// entry, an ErrChanged becomes another error: nothing has listed the name, so it cannot
// have changed since.
func (n *node) givenError(name string, err error) error {
	if name == "" && n.parent != nil {
		n = n.parent
	}
	e, _ := err.(*sys.Error)
	if n.given == nil || e == nil {
		return err
	}
	c, ok := e.Err.(sys.Changed)
	switch {
	case !ok:
		return err
	case errors.Is(c.Err, fs.ErrNotExist):
		return &sys.Error{Op: e.Op, Err: c.Err}
	}
	return &sys.Error{Op: e.Op, Err: misnamed{c.Err}}
}

// join returns prefix and relPath(name) as one string, in one allocation.
func (n *node) join(prefix, name string) string {
	p := make([]byte, 0, len(prefix)+n.pathLen()+len(name))
	p = append(n.appendPath(append(p, prefix...)), name...)
	return unsafe.String(unsafe.SliceData(p), len(p))
}

// lister returns the directory that lists n's entries.
func (n *node) lister() *node {
	if n.isLinks() {
		return n.parent
	}
	return n
}

// comparePaths compares the paths of the entry aName of a and the entry bName
// of b name by name, so that what is in a directory comes before a sibling whose
// name begins with the directory's. It allocates nothing: paths may be long.
func comparePaths(a *node, aName string, b *node, bName string) int {
	a, b = a.lister(), b.lister()
	shorter := 0 // a path comes before those that go on from it
	for ; a.depth > b.depth; a = a.parent.lister() {
		aName, shorter = a.name.String(), 1
	}
	for ; b.depth > a.depth; b = b.parent.lister() {
		bName, shorter = b.name.String(), -1
	}
	order := cmp.Or(strings.Compare(aName, bName), shorter)
	for ; a != b; a, b = a.parent.lister(), b.parent.lister() {
		order = cmp.Or(strings.Compare(a.name.String(), b.name.String()), order)
	}
	return order
}

// A pathBuffer holds the path of the directory that a worker is at. Most calls are
// about the directory of the call before, or about a subdirectory of it.
type pathBuffer struct {
	path   []byte
	of     *node // the directory that path begins with
	dirLen int   // the length of its path
}

// rel returns the slash-separated path of the entry name of n, valid until the
// next call.
func (p *pathBuffer) rel(n *node, name []byte) string {
	p.dir(n)
	p.path = append(p.path[:p.dirLen], name...)
	return unsafe.String(unsafe.SliceData(p.path), len(p.path))
}

// dir returns n's path with a slash behind each name, valid until the next call.
func (p *pathBuffer) dir(n *node) string {
	switch {
	case n == p.of:
	case n.parent != nil && n.parent == p.of && !n.isLinks():
		p.path = append(append(p.path[:p.dirLen], n.name.String()...), '/')
		p.dirLen = len(p.path)
	default:
		p.path = n.appendPath(p.path[:0])
		p.dirLen = len(p.path)
	}
	p.of = n
	return unsafe.String(unsafe.SliceData(p.path), p.dirLen)
}

// A pathBase turns the paths of a run, which are relative to root, into paths that the
// caller can use.
type pathBase struct {
	root    string // as the caller gave it
	fsys    fs.FS  // nil: the operating system's
	follows bool   // symbolic links are what they lead to

	once  sync.Once // prefix is computed on demand: few runs of one file need it, and cleaning root takes long
	joins string    // what prefix returns
}

// isSeparator reports whether r separates the names of a path of the system: on Windows a slash does too.
func isSeparator(r rune) bool { return r == '/' || r == filepath.Separator }

// prefix returns what each path begins with: root and a separator.
func (b *pathBase) prefix() string {
	b.once.Do(func() {
		const name = "x"
		switch {
		case b.fsys != nil:
			b.joins = strings.TrimSuffix(path.Join(b.root, name), name)
		case strings.Contains(b.root, "..") && slices.Contains(strings.Split(filepath.ToSlash(b.root), "/"), ".."):
			// If a is a symbolic link, a/.. need not be what Join makes of it.
			b.joins = strings.TrimRightFunc(b.root, isSeparator) + string(filepath.Separator)
		default:
			b.joins = strings.TrimSuffix(filepath.Join(b.root, name), name)
		}
	})
	return b.joins
}

// target returns the path without links of the entry name of n, or "" if there is no
// link in its path.
func (b *pathBase) target(n *node, name string) string {
	if !b.follows {
		return ""
	}
	var t target
	if n.isLinks() {
		if t = n.link.targets[names.New(name)]; t.err != nil {
			return "" // also below a link to a directory
		}
	}
	for up := n; up != nil && t.path == ""; up = up.parent {
		if up.isLinkedDir() {
			t = up.link.to
			t.path = filepath.Join(t.path, n.relPath(name)[up.pathLen():])
		}
	}
	switch {
	case t.path == "":
		return ""
	case t.path == ".":
		return b.root
	case t.outside:
		return filepath.FromSlash(t.path)
	}
	return b.prefix() + filepath.FromSlash(t.path)
}

// setFile says that root leads to a file of this name.
func (b *pathBase) setFile(name string) {
	b.follows = true
	b.once.Do(func() { b.joins = strings.TrimSuffix(strings.TrimRightFunc(b.root, isSeparator), name) })
}

// info looks up a path. It follows links if the run does, except if the entry itself is
// a link.
func (b *pathBase) info(path string, isLink bool) (fs.FileInfo, error) {
	follows := b.follows && !isLink
	switch {
	case b.fsys != nil && follows:
		return fs.Stat(b.fsys, path)
	case b.fsys != nil:
		return fs.Lstat(b.fsys, path)
	case follows:
		return os.Stat(path)
	}
	return os.Lstat(path)
}

// path returns the path of the entry name of n, or of n itself if name is "".
func (b *pathBase) path(n *node, name string) string {
	if name == "" {
		if n = n.lister(); n.parent == nil {
			return b.root
		}
		n, name = n.parent, n.name.String()
	}
	return b.entryPath(n, name)
}

// entryPath returns the path of the entry name of n. The name of a File of NewFile may
// be "".
func (b *pathBase) entryPath(n *node, name string) string {
	if p := n.join(b.prefix(), name); b.fsys != nil || filepath.Separator == '/' {
		return p
	}
	return b.prefix() + filepath.FromSlash(n.relPath(name))
}
