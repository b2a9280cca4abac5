package fileproc

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// links is what a run needs for Options.Symlinks. A link is resolved to a path
// without links, and what it leads to is then opened as everything else is, one
// component at a time from root, following nothing. So a link that changes
// meanwhile leads nowhere else.
type links struct {
	root string // absolute, without links

	mu      sync.Mutex // guards what follows
	pending []*node    // directories that links lead to
	seen    map[[2]uint64][]identity
	counts  counts
}

// A linkNode is the part of a node that was come to by links.
type linkNode struct {
	// names are the links of a node that stands for the links of one buffer of
	// its parent's listing, whose path and depth it has.
	names   []string
	targets map[string]target // of names, once they are resolved
	// to is where the link leads of which the node is the directory.
	to target
}

// A target is what a link leads to.
type target struct {
	path    string // relative to root with slashes, or an absolute one of the system
	outside bool
	mode    fs.FileMode
	id      identity // of a directory
	err     error    // why there is none
}

func (r *run) prepareLinks() error {
	if r.opts.Symlinks == SymlinksSkip {
		return nil
	}
	root, err := filepath.Abs(r.base.root)
	if err == nil {
		root, err = filepath.EvalSymlinks(root)
	}
	r.links.root, r.links.seen = root, map[[2]uint64][]identity{}
	r.pool.late = r.links.due
	return err
}

// resolve finds out where the links of n lead.
func (r *run) resolve(n *node) error {
	if n.link.targets == nil {
		n.link.targets = make(map[string]target, len(n.link.names))
	}
	for _, name := range n.link.names {
		if _, ok := n.link.targets[name]; ok {
			continue
		}
		t := r.follow(n, name)
		if isScarce(t.err) {
			return t.err
		}
		n.link.targets[name] = t
	}
	return nil
}

func (r *run) follow(n *node, name string) (t target) {
	full, err := filepath.EvalSymlinks(filepath.Join(r.links.root, filepath.FromSlash(n.relPath(name))))
	if err != nil {
		return target{err: asSysError("readlink", err)}
	}
	t.path = full
	rel, err := filepath.Rel(r.links.root, full)
	if t.outside = err != nil || rel != "." && !filepath.IsLocal(rel); !t.outside {
		t.path = filepath.ToSlash(rel)
	} else if !r.opts.SymlinksOutside {
		return t
	}
	t.err = r.reach(t, func(d directory, name string) error {
		s, err := d.stat(name)
		if err != nil {
			return err
		}
		if t.mode = s.Mode.Type(); t.mode != fs.ModeDir || r.opts.Symlinks != SymlinksFollow {
			return nil
		}
		if name != dot {
			if d, err = d.openDir(name); err != nil {
				return err
			}
			defer d.close()
		}
		t.id, err = d.identity()
		return err
	})
	return t
}

// reach calls use with the directory that t is in, and its name there.
func (r *run) reach(t target, use func(d directory, name string) error) error {
	var names arena
	named := func(s string) string { return names.add([]byte(s)) }
	if t.outside {
		dir, name := filepath.Split(t.path)
		if name == "" { // the file system's root
			name = "."
		}
		d, err := openRoot(dir)
		if err != nil {
			return err
		}
		defer d.close()
		return use(d, named(name))
	}
	d := r.root.dir
	if t.path == "." {
		return use(d, dot)
	}
	parts := strings.Split(t.path, "/")
	for _, part := range parts[:len(parts)-1] {
		sub, err := d.openDir(named(part))
		if d != r.root.dir {
			d.close()
		}
		if err != nil {
			return err
		}
		d = sub
	}
	if d != r.root.dir {
		defer d.close()
	}
	return use(d, named(parts[len(parts)-1]))
}

// excluded returns why what t leads to is left out by its own path, or noReason.
func (r *run) excluded(t target) int {
	if t.err != nil || t.outside || t.path == "." {
		return noReason
	}
	for end, c := range t.path + "/" {
		if c != '/' {
			continue
		}
		part := t.path[:end]
		switch {
		case r.opts.SkipHidden && part[strings.LastIndexByte(part, '/')+1] == '.':
			return skipHidden
		case r.filter.excludes(part):
			return skipPattern
		}
	}
	return noReason
}

// excludesBehind reports whether Options.Exclude leaves out the entry name of n
// by its path without links, if there is a link in n's path.
func (l *local) excludesBehind(n *node, name []byte) bool {
	f := &l.run.filter
	if l.run.opts.Symlinks != SymlinksFollow || len(f.exclude) == 0 {
		return false
	}
	for up := n; up != nil; up = up.parent {
		if up.isLinkedDir() {
			to := up.link.to
			return !to.outside && f.excludes(path.Join(to.path, l.rel(n, name)[up.pathLen():]))
		}
	}
	return false
}

// addLink adds the entry that a link of s.node stands for.
func (s *sink) addLink(name string, t target) {
	r := s.l.run
	why := r.excluded(t)
	switch {
	case errors.Is(t.err, fs.ErrNotExist), errors.Is(t.err, syscall.ENOTDIR), isLoop(t.err):
		s.addFile([]byte(name), fs.ModeSymlink)
	case t.err != nil:
		s.l.failFound("readlink", s.node, name, t.err)
	case t.outside && !r.opts.SymlinksOutside:
		s.l.skipFound(skipOutside)
	case t.mode == fs.ModeDir && r.opts.Symlinks == SymlinksFollow:
		if why == noReason && !s.l.prunes(s.node, []byte(name)) && s.descends() {
			n := s.node.child(name)
			n.id, n.link = t.id, &linkNode{to: t}
			r.links.mu.Lock()
			r.links.pending = append(r.links.pending, n)
			r.links.mu.Unlock()
		}
	case t.mode == fs.ModeDir:
		s.addFile([]byte(name), fs.ModeSymlink)
	case why != noReason:
		s.l.skipFound(why)
	default:
		s.addFile([]byte(name), t.mode)
	}
}

// isLoop reports whether err, of resolving a link, says that it leads to itself.
// EvalSymlinks has no error of its own for that.
func isLoop(err error) bool {
	return err != nil && strings.Contains(err.Error(), "too many links")
}

// due returns the directories that links lead to and that nothing else does:
// it is called when all others have been listed. Which one of several links to
// one directory is taken depends on their paths alone.
func (k *links) due() []*node {
	k.mu.Lock()
	defer k.mu.Unlock()
	slices.SortFunc(k.pending, func(a, b *node) int { return comparePaths(a.parent, a.name, b.parent, b.name) })
	var due []*node
	for _, n := range k.pending {
		if k.claim(n.id) {
			due = append(due, n)
		} else {
			k.counts.found++
			k.counts.skipped[skipDuplicate]++
		}
	}
	k.pending = nil
	slices.Reverse(due) // the pool takes the last one first
	return due
}

// claim reports whether the directory has not been claimed before. It is called
// with k.mu held.
func (k *links) claim(id identity) bool {
	var key [2]uint64
	key[0], key[1] = id.inode()
	for _, other := range k.seen[key] {
		if other.same(id) {
			return false
		}
	}
	k.seen[key] = append(k.seen[key], id)
	return true
}

// visitedBefore claims n, which is open, and returns skipDuplicate if it must not
// be listed, since it has been come to by another path.
func (r *run) visitedBefore(n *node) (int, error) {
	if r.opts.Symlinks != SymlinksFollow || n.link != nil {
		return noReason, nil
	}
	id, err := n.dir.identity()
	if err != nil {
		return noReason, err
	}
	r.links.mu.Lock()
	defer r.links.mu.Unlock()
	if !r.links.claim(id) && n.linked() {
		return skipDuplicate, nil
	}
	return noReason, nil
}

// linked reports whether n's path has a link in it.
func (n *node) linked() bool {
	for ; n != nil; n = n.parent {
		if n.link != nil {
			return true
		}
	}
	return false
}

// isLinks reports whether n stands for the links of its parent.
func (n *node) isLinks() bool { return n.link != nil && n.link.names != nil }

// isLinkedDir reports whether n is a directory that a link leads to.
func (n *node) isLinkedDir() bool { return n.link != nil && n.link.names == nil }

// linksOf returns a node for the links names of n.
func (n *node) linksOf(names []string) *node {
	return &node{parent: n, depth: n.depth, ignore: n.ignore, refs: 1, link: &linkNode{names: names}}
}

// openLinked opens a node that was come to by links.
func (r *run) openLinked(n *node) (d directory, err error) {
	if n.isLinks() {
		return &linkDir{r, n}, r.resolve(n)
	}
	if n.link.to.outside {
		return openRoot(n.link.to.path)
	}
	err = r.reach(n.link.to, func(up directory, name string) error {
		d, err = up.openDir(name)
		return err
	})
	return d, err
}

// linkDir is a directory of what the links of one lead to.
type linkDir struct {
	run  *run
	node *node
}

var _ directory = (*linkDir)(nil)

func (d *linkDir) list(s *sink) (bool, error) {
	for _, name := range d.node.link.names {
		s.addLink(name, d.node.link.targets[name])
	}
	return false, nil
}

func (d *linkDir) openDir(name string) (directory, error) {
	return nil, &sysError{"openat", errors.ErrUnsupported} // each has a node of its own
}

func (d *linkDir) open(name string, spare content) (c content, err error) {
	err = d.reach(name, func(up directory, name string) error {
		c, err = up.open(name, spare)
		return err
	})
	return c, err
}

func (d *linkDir) stat(name string) (s Stat, err error) {
	err = d.reach(name, func(up directory, name string) error {
		s, err = up.stat(name)
		return err
	})
	return s, err
}

func (d *linkDir) openFile(name, path string) (f *os.File, err error) {
	err = d.reach(name, func(up directory, name string) error {
		f, err = up.openFile(name, path)
		return err
	})
	return f, err
}

func (d *linkDir) reach(name string, use func(directory, string) error) error {
	return d.run.reach(d.node.link.targets[name], use)
}

func (d *linkDir) identity() (identity, error) { return d, nil }

func (d *linkDir) same(other identity) bool {
	o, ok := other.(*linkDir)
	return ok && o.node == d.node
}

func (d *linkDir) inode() (device, number uint64) { return 0, 0 }

func (d *linkDir) close() {}
