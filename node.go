package fileproc

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/fileproc/fileproc/internal/backend"
	"github.com/fileproc/fileproc/internal/gitignore"
	"github.com/fileproc/fileproc/internal/gitindex"
	"github.com/fileproc/fileproc/internal/gitrepo"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
)

// A node is a directory of the tree, root or a name in its parent, and the handle through
// which its entries are opened. While no one uses it, it may be closed. It is opened again
// from the nearest ancestor that is open, one component at a time.
//
// A node keeps its own name only. If each kept its path, memory would grow with
// the square of the depth.
type node struct {
	parent *node            // nil: root
	tree   *tree            // that the node is in
	name   names.Name       // the zero Name for root
	depth  int              // 0: root
	inode  uint64           // as listed, 0 if unknown: a hint for the order on the disk
	device uint64           // 0 unless the run is cold: a hint too
	ignore *gitignore.Chain // the ignore files that apply to the entries
	way    way              // nil: the node is opened by its name in its parent
	given  bool             // Options.Files names entries of the node: it is opened to reach them, not to be listed
	listed uint32           // 1 once all is listed, to be read and written atomically: see replace.Done

	// guarded by the directory cache's mutex
	dir  backend.Directory // nil: closed
	id   backend.Identity  // of dir: set when dir is evicted, or from the link that leads to it
	noID bool              // dir.identity failed: until the node is next used, only evictAll tries it again
	pins int               // users of dir at this moment
	refs int               // those that may need dir again: its job, its batches, its unopened subdirectories
}

// check panics if more pins or references were given back than taken: n would be closed
// while it is in use.
func (n *node) check() {
	if n.pins < 0 || n.refs < 0 {
		panic(fmt.Sprintf("fileproc: directory %q has %d pins and %d references", n.relPath(""), n.pins, n.refs))
	}
}

// A way opens a node that is not opened by its name in its parent. See symlink.go.
type way interface {
	open() (backend.Directory, error)
	// leadsTo returns where the node really is. It returns false for a node whose entries
	// are links, each of which leads elsewhere.
	leadsTo() (target, bool)
}

// child returns a node for a subdirectory of n.
func (n *node) child(name names.Name, inode uint64) node {
	return node{parent: n, tree: n.tree, name: name, depth: n.depth + 1, inode: inode, device: n.device, ignore: n.ignore, refs: 1}
}

// by returns another node with n's path, whose entries are opened through w.
func (n *node) by(w way) node {
	return node{parent: n.parent, tree: n.tree, name: n.name, depth: n.depth, ignore: n.ignore, way: w, refs: 1}
}

// isListed reports whether a listing of n gives its entries: they are not names that
// Options.Files gives, links, or root, which is a file.
func (n *node) isListed() bool {
	leadsTo := true
	if n.way != nil {
		_, leadsTo = n.way.leadsTo()
	}
	return leadsTo && !n.given && !n.tree.isFile
}

// A tree is a root and what belongs to it. The last fields are known once root has been
// opened and inspected, before anything in the tree is listed. An Entry that is kept keeps
// its tree, which therefore refers to nothing of the run.
type tree struct {
	root   node
	number int // the root's, in Options.Roots
	paths  pathBase

	device   uint64      // root's, with cfg.oneFilesystem
	realRoot string      // root's path, absolute and without links, if the run needs it
	isFile   bool        // root leads to a file
	stream   fs.FileMode // the type of that file if it is a FIFO or a device
	tracked  *repository // unless nil, only what its index has is listed
}

func newTree(c *config, root string, number int) *tree {
	t := &tree{number: number, paths: pathBase{root: root, fsys: c.fsys, follows: c.followFiles}}
	t.root = node{tree: t, refs: 1}
	return t
}

// A repository is a git repository that a run is in, or has found.
type repository struct {
	*gitrepo.Repository
	at     *node // its top, or root
	length int   // of at's path

	mu    sync.Mutex                     // held by the worker that reads the index
	index atomic.Pointer[gitindex.Index] // nil: not read
}

// repositoryOf returns the repository that n is in, if its rules apply, or nil.
func repositoryOf(n *node) *repository {
	r, _ := n.ignore.Repository().(*repository)
	return r
}

// belowLink reports whether n's path has a link in it.
func (n *node) belowLink() bool {
	for ; n != nil; n = n.parent {
		if n.way != nil {
			return true
		}
	}
	return false
}

// behindLink returns what the entry of n with this path relative to root is without the
// links above it. It returns no path if there are none.
func (n *node) behindLink(path string) target {
	for up := n; up != nil; up = up.parent {
		if up.way == nil {
			continue
		}
		if t, ok := up.way.leadsTo(); ok {
			return t.join(path[up.pathLen():])
		}
	}
	return target{}
}

// A target is what a link leads to.
type target struct {
	path    string // relative to root with slashes, or an absolute one of the system
	outside bool
	mode    fs.FileMode
	id      backend.Identity // of a directory
	err     error            // why there is no target
}

// join returns the target of an entry that has the path rel in the directory t.
func (t target) join(rel string) target {
	if t.outside {
		t.path = filepath.Join(t.path, rel)
	} else {
		t.path = path.Join(t.path, rel)
	}
	return t
}

// pathLen returns the length of what appendPath appends.
func (n *node) pathLen() (k int) {
	for ; n.parent != nil; n = n.parent {
		k += len(n.name.String()) + 1
	}
	return k
}

// appendPath appends n's path relative to root, with a slash behind each name. For
// root it appends nothing.
func (n *node) appendPath(p []byte) []byte {
	end := len(p) + n.pathLen()
	p = slices.Grow(p, end-len(p))[:end]
	for ; n.parent != nil; n = n.parent {
		end--
		p[end] = '/'
		end -= len(n.name.String())
		copy(p[end:], n.name.String())
	}
	return p
}

// relPath returns the path of the entry name of n relative to root.
func (n *node) relPath(name string) string { return n.join("", name) }

// dirPath returns the path of the directory n, which is not root, relative to root.
func (n *node) dirPath() string { return n.parent.relPath(n.name.String()) }

// givenError returns the failure err of the entry name of n. If Options.Files named the
// entry, an ErrChanged becomes another error: nothing has listed the name, so it cannot
// have changed since.
func (n *node) givenError(name string, err error) error {
	if name == "" && n.parent != nil {
		n = n.parent
	}
	e, _ := err.(*sys.Error)
	if !n.given || e == nil {
		return err
	}
	c, ok := e.Err.(sys.Changed)
	switch {
	case !ok:
		return err
	case errors.Is(c.Err, fs.ErrNotExist):
		return &sys.Error{Op: e.Op, Err: c.Err}
	}
	return &sys.Error{Op: e.Op, Err: sys.Misnamed(c)}
}

// join returns prefix and relPath(name) as one string, in one allocation.
func (n *node) join(prefix, name string) string {
	p := make([]byte, 0, len(prefix)+n.pathLen()+len(name))
	p = append(n.appendPath(append(p, prefix...)), name...)
	return unsafe.String(unsafe.SliceData(p), len(p))
}

// ComparePaths compares two paths with slashes name by name, and names byte by byte, as
// [Options.Ordered] does. So a/x comes before a-b. It serves slices.SortFunc.
func ComparePaths(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	switch {
	case n == len(a) || n == len(b) || a[n] != '/' && b[n] != '/':
		return strings.Compare(a[n:], b[n:])
	case a[n] == '/':
		return -1
	}
	return 1
}

// comparePaths is ComparePaths for the entry aName of a and the entry bName of b. It
// builds no paths, since they may be long. Trees come in the order of Options.Roots.
func comparePaths(a *node, aName string, b *node, bName string) int {
	if a.tree != b.tree {
		return cmp.Compare(a.tree.number, b.tree.number)
	}
	shorter := 0 // a path comes before those that go on from it
	for ; a.depth > b.depth; a = a.parent {
		aName, shorter = a.name.String(), 1
	}
	for ; b.depth > a.depth; b = b.parent {
		bName, shorter = b.name.String(), -1
	}
	order := cmp.Or(strings.Compare(aName, bName), shorter)
	for ; a != b; a, b = a.parent, b.parent {
		order = cmp.Or(strings.Compare(a.name.String(), b.name.String()), order)
	}
	return order
}

// A prepared is a file that fn has replaced while Options.Durable is set. Its new content is in
// a temporary file until the group is on the disk. Then that file takes the name, and the
// caller gets fn's result.
type prepared struct {
	backend.Waiting
	node    *node
	group   *backend.Group[*prepared]
	bytes   int
	deliver func(slot int) // nil if fn has returned no result, or the caller has it
	err     error          // that fn has returned
}

// A temporary is a temporary file of a run that may have been killed.
type temporary struct {
	node *node
	name names.Name
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
	case n.parent != nil && n.parent == p.of:
		p.path = append(append(p.path[:p.dirLen], n.name.String()...), '/')
		p.dirLen = len(p.path)
	default:
		p.path = n.appendPath(p.path[:0])
		p.dirLen = len(p.path)
	}
	p.of = n
	return unsafe.String(unsafe.SliceData(p.path), p.dirLen)
}

// A pathBase turns the paths of a tree, which are relative to root, into paths that the
// caller can use.
type pathBase struct {
	root    string // as the caller gave it
	fsys    fs.FS  // nil: the operating system's
	follows bool   // symbolic links are what they lead to

	once  sync.Once // prefix is computed on demand: few runs of one file need it, and cleaning root takes long
	joins string    // what prefix returns
}

// separators separate the names of a path of the system: on Windows a slash does too.
const separators = "/" + string(filepath.Separator)

func isSeparator(r rune) bool { return strings.ContainsRune(separators, r) }

// prefix returns what each path begins with: root and a separator.
func (b *pathBase) prefix() string {
	b.once.Do(func() {
		const name = "x"
		switch {
		case b.fsys != nil:
			b.joins = strings.TrimSuffix(path.Join(b.root, name), name)
		case names.HasDotDot(b.root):
			b.joins = strings.TrimRightFunc(b.root, isSeparator) + string(filepath.Separator)
		default:
			b.joins = strings.TrimSuffix(filepath.Join(b.root, name), name)
		}
	})
	return b.joins
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
func (n *node) path(name string) string {
	if name == "" {
		if n.parent == nil {
			return n.tree.paths.root
		}
		n, name = n.parent, n.name.String()
	}
	return n.entryPath(name)
}

// entryPath returns the path of the entry name of n. The name of a File of NewFile may
// be "".
func (n *node) entryPath(name string) string {
	b := &n.tree.paths
	if p := n.join(b.prefix(), name); filepath.Separator == '/' || b.fsys != nil {
		return p
	}
	return b.prefix() + filepath.FromSlash(n.relPath(name))
}
