package fileproc

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/fileproc/fileproc/internal/content"
	"github.com/fileproc/fileproc/internal/fsinfo"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
)

// A link is resolved to a path without links. Its target is then opened by that path,
// like every other entry: one component at a time from root, without following links.
// So a link that changes meanwhile does not lead the run elsewhere.

// links are what a run knows of symbolic links: where they lead, and with
// SymlinksFollow the directories that it has entered, or is to enter through links.
type links struct {
	cfg      *config
	filter   *filter
	root     *node  // open before any worker starts
	realRoot string // root's path, absolute and without links, if the run needs it

	mu     sync.Mutex // guards what follows
	linked []*node    // directories that links lead to
	ids    map[[2]uint64][]identity
}

// resolveRoot finds the path of root without links.
func (l *links) resolveRoot() error {
	if !l.cfg.followFiles && !(l.cfg.gitIgnore && l.cfg.gitFS == nil) {
		return nil
	}
	root, err := fsinfo.RealPath(cmp.Or(l.cfg.gitRoot, l.cfg.root))
	if err != nil {
		return sys.AsError("readlink", err)
	}
	l.realRoot = root
	return nil
}

// resolve finds out where the links of n lead. If it returns an error, the next attempt
// resolves the links that are left. In the last attempt, the target of a link that cannot
// be resolved is the error.
func (l *links) resolve(n *node) (err error) {
	if n.link.targets == nil {
		n.link.targets = make(map[names.Name]target, len(n.link.links))
	}
	mayPass := func(t target) bool { return !n.link.resolved && (sys.IsScarce(t.err) || sys.MayPass(t.err)) }
	for _, name := range n.link.links {
		if t, ok := n.link.targets[name]; ok && !mayPass(t) {
			continue
		}
		t := l.follow(n, name.String())
		if n.link.targets[name] = t; mayPass(t) && err == nil {
			err = t.err
		}
	}
	return err
}

func (l *links) follow(n *node, name string) (t target) {
	full, err := fsinfo.EvalSymlinks(filepath.Join(l.realRoot, filepath.FromSlash(n.relPath(name))))
	if err != nil {
		return target{err: sys.AsError("readlink", err)}
	}
	t.path = full
	rel, err := filepath.Rel(l.realRoot, full)
	if t.outside = err != nil || rel != "." && !filepath.IsLocal(rel); !t.outside {
		t.path = filepath.ToSlash(rel)
	} else if !l.cfg.followOutside {
		return t
	}
	t.err = l.reach(t, func(d directory, name names.Name) error {
		st, err := d.stat(name)
		if err != nil {
			return err
		}
		if t.mode = st.Mode.Type(); t.mode != fs.ModeDir || !l.cfg.followDirs {
			return nil
		}
		if name != names.Dot {
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
func (l *links) reach(t target, use func(d directory, name names.Name) error) error {
	if t.outside {
		dir, name := filepath.Split(t.path)
		if name == "" { // the file system's root
			name = "."
		}
		d, err := openRootToSearch(dir)
		if err != nil {
			return err
		}
		defer d.close()
		return use(d, names.New(name))
	}
	d := l.root.dir
	if t.path == "." {
		return use(d, names.Dot)
	}
	parts := strings.Split(t.path, "/")
	for _, part := range parts[:len(parts)-1] {
		sub, err := openDirToSearch(d, names.New(part))
		if d != l.root.dir {
			d.close()
		}
		if err != nil {
			return err
		}
		d = sub
	}
	if d != l.root.dir {
		defer d.close()
	}
	return use(d, names.New(parts[len(parts)-1]))
}

// excludedTarget returns why t is left out because of its own path, or notSkipped.
func (l *links) excludedTarget(t target) SkipReason {
	if t.err != nil || t.outside || t.path == "." {
		return notSkipped
	}
	for end, c := range t.path + "/" {
		if c != '/' {
			continue
		}
		part := t.path[:end]
		switch {
		case l.cfg.skipHidden && part[strings.LastIndexByte(part, '/')+1] == '.':
			return SkippedHidden
		case l.filter.excludes(l.filter.fold(part)):
			return SkippedPattern
		}
	}
	return notSkipped
}

// enteredBefore reports whether n, which is open, must not be listed because the run
// has reached the directory by another path.
func (l *links) enteredBefore(n *node) (bool, error) {
	if !l.cfg.followDirs || n.link != nil {
		return false, nil
	}
	id, err := n.dir.identity()
	if err != nil {
		return false, err
	}
	return !l.enter(id) && n.belowLink(), nil
}

// addLinked puts off n, which a link leads to, until all others are listed.
func (l *links) addLinked(n *node) {
	l.mu.Lock()
	l.linked = append(l.linked, n)
	l.mu.Unlock()
}

// takeLinked returns the directories that links lead to. It is called when all others
// have been listed. If several links lead to one directory, it marks all but one as
// entered. Which one it leaves depends only on their paths.
func (l *links) takeLinked() []*node {
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.SortFunc(l.linked, func(a, b *node) int {
		return comparePaths(a.parent, a.name.String(), b.parent, b.name.String())
	})
	var taken []*node
	for _, n := range l.linked {
		n.link.entered = !l.insert(n.id)
		taken = append(taken, n)
	}
	l.linked = nil
	slices.Reverse(taken) // the queue takes the last one first
	return taken
}

// enter adds a directory and reports whether it was not in the set.
func (l *links) enter(id identity) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.insert(id)
}

func (l *links) insert(id identity) bool {
	var key [2]uint64
	key[0], key[1] = id.inode()
	for _, other := range l.ids[key] {
		if other.same(id) {
			return false
		}
	}
	if l.ids == nil {
		l.ids = map[[2]uint64][]identity{}
	}
	l.ids[key] = append(l.ids[key], id)
	return true
}

// openLinked opens a node that is reached through links.
func (l *links) openLinked(n *node) (d directory, err error) {
	if n.isLinks() {
		return &linkDir{l, n}, l.resolve(n)
	}
	if n.link.to.outside {
		return openRoot(n.link.to.path)
	}
	err = l.reach(n.link.to, func(parent directory, name names.Name) error {
		d, err = parent.openDir(name)
		return err
	})
	return d, err
}

// A linkDir is the directory of a node that stands for links: its entries are
// their targets.
type linkDir struct {
	*links
	node *node
}

var _ directory = (*linkDir)(nil)

func (d *linkDir) list(*listing) (bool, error) { return false, nil } // see scanner.list

func (d *linkDir) openDir(names.Name) (directory, error) {
	return nil, &sys.Error{Op: "openat", Err: errors.ErrUnsupported} // each has a node of its own
}

func (d *linkDir) open(name names.Name, spare content.File) (content.File, error) {
	return targetOf(d, name, func(parent directory, name names.Name) (content.File, error) { return parent.open(name, spare) })
}

func (d *linkDir) stat(name names.Name) (sys.Stat, error) { return targetOf(d, name, directory.stat) }

func (d *linkDir) openFile(name names.Name, path string) (*os.File, error) {
	return targetOf(d, name, func(parent directory, name names.Name) (*os.File, error) { return parent.openFile(name, path) })
}

// targetOf returns what get returns for the target of the link name.
func targetOf[T any](d *linkDir, name names.Name, get func(directory, names.Name) (T, error)) (v T, err error) {
	err = d.reach(d.node.link.targets[name], func(parent directory, name names.Name) error {
		v, err = get(parent, name)
		return err
	})
	return v, err
}

func (d *linkDir) identity() (identity, error) { return d, nil }

func (d *linkDir) same(other identity) bool {
	o, ok := other.(*linkDir)
	return ok && o.node == d.node
}

func (d *linkDir) inode() (device, inode uint64) { return 0, 0 }

func (d *linkDir) close() {}
