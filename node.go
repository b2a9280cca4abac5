package fileproc

import (
	"cmp"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unsafe"

	"github.com/fileproc/fileproc/internal/gitignore"
)

// A node is a directory of the tree: root, or a name in its parent. Its handle
// may be closed while it is not in use, and is then opened again by going down
// from the nearest ancestor that is open, one component at a time.
//
// A node keeps its own name only. If each kept its path, memory would grow with
// the square of the depth.
type node struct {
	parent   *node            // nil: root
	name     string           // as entry.name
	depth    int              // 0: root
	link     *linkNode        // nil unless symbolic links led here
	ignore   *gitignore.Chain // of the ignore files that apply to the entries
	segment  *segment         // of a sequence
	segments []*segment       // what it is spread to
	held     *held            // nil unless entries are held until all are listed

	listing bool // its list has begun; used by the worker that scans it

	// guarded by the handles' mutex
	dir  directory // nil: closed
	id   identity  // set when dir was closed before its time
	pins int       // users of dir at this moment
	refs int       // what may need dir again: its listing, its batches, its unopened subdirectories
}

// child returns a node for a subdirectory of n.
func (n *node) child(name string) *node {
	return &node{parent: n, name: name, depth: n.depth + 1, ignore: n.ignore, refs: 1}
}

// pathLen returns the length of what appendPath appends.
func (n *node) pathLen() (k int) {
	for ; n.parent != nil; n = n.parent {
		if !n.isLinks() {
			k += len(n.name) + 1
		}
	}
	return k
}

// appendPath appends n's path relative to root with a slash behind each name,
// so nothing for root.
func (n *node) appendPath(p []byte) []byte {
	end := len(p) + n.pathLen()
	p = slices.Grow(p, end-len(p))[:end]
	for ; n.parent != nil; n = n.parent {
		if !n.isLinks() {
			end--
			p[end] = '/'
			end -= len(n.name)
			copy(p[end:], n.name)
		}
	}
	return p
}

// relPath returns the path of the entry name of n relative to root.
func (n *node) relPath(name string) string { return n.join("", name) }

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
		aName, shorter = a.name, 1
	}
	for ; b.depth > a.depth; b = b.parent.lister() {
		bName, shorter = b.name, -1
	}
	order := cmp.Or(strings.Compare(aName, bName), shorter)
	for ; a != b; a, b = a.parent.lister(), b.parent.lister() {
		order = cmp.Or(strings.Compare(a.name, b.name), order)
	}
	return order
}

// A base is where a run's paths begin and lead.
type base struct {
	root    string // as the caller gave it
	prefix  string // what stands before a path relative to root
	fsys    fs.FS  // nil: the operating system's
	follows bool   // symbolic links are what they lead to
}

func newBase(root string, opts *Options) *base {
	const name = "x"
	b := &base{root: root, fsys: opts.FS, follows: opts.Symlinks != SymlinksSkip}
	switch {
	case b.fsys != nil:
		b.prefix = strings.TrimSuffix(path.Join(root, name), name)
	case strings.Contains(root, "..") && slices.Contains(strings.Split(filepath.ToSlash(root), "/"), ".."):
		// Behind a symbolic link a/.. need not be what Join makes of it.
		b.prefix = strings.TrimRight(root, string(filepath.Separator)) + string(filepath.Separator)
	default:
		b.prefix = strings.TrimSuffix(filepath.Join(root, name), name)
	}
	return b
}

// info looks a path of the run up.
func (b *base) info(path string) (fs.FileInfo, error) {
	switch {
	case b.fsys != nil:
		return fs.Lstat(b.fsys, path)
	case b.follows:
		return os.Stat(path)
	}
	return os.Lstat(path)
}

// path returns the path of the entry name of n, or of n itself if name is "".
func (b *base) path(n *node, name string) string {
	if name == "" {
		if n = n.lister(); n.parent == nil {
			return b.root
		}
		n, name = n.parent, n.name
	}
	if p := n.join(b.prefix, name); b.fsys != nil || filepath.Separator == '/' {
		return p
	}
	return b.prefix + filepath.FromSlash(n.relPath(name))
}
