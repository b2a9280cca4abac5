package fileproc

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
)

// A link is resolved to a path without links, and its target is then opened like
// everything else: one component at a time from root, without following anything.
// So a link that changes meanwhile leads nowhere else.

// resolveRoot finds the path of root without links.
func (s *shared) resolveRoot() error {
	if !s.cfg.followFiles {
		return nil
	}
	root, err := filepath.Abs(s.cfg.root)
	if err == nil {
		root, err = filepath.EvalSymlinks(root)
	}
	if err != nil {
		return sys.AsError("readlink", err)
	}
	s.realRoot = root
	return nil
}

// resolve finds out where the links of n lead.
func (s *shared) resolve(n *node) error {
	if n.link.targets == nil {
		n.link.targets = make(map[names.Name]target, len(n.link.links))
	}
	for _, name := range n.link.links {
		if _, ok := n.link.targets[name]; ok {
			continue
		}
		t := s.follow(n, name.String())
		if sys.IsScarce(t.err) || sys.IsLeased(t.err) { // another attempt resolves it
			return t.err
		}
		n.link.targets[name] = t
	}
	return nil
}

func (s *shared) follow(n *node, name string) (t target) {
	full, err := filepath.EvalSymlinks(filepath.Join(s.realRoot, filepath.FromSlash(n.relPath(name))))
	if err != nil {
		return target{err: sys.AsError("readlink", err)}
	}
	t.path = full
	rel, err := filepath.Rel(s.realRoot, full)
	if t.outside = err != nil || rel != "." && !filepath.IsLocal(rel); !t.outside {
		t.path = filepath.ToSlash(rel)
	} else if !s.cfg.followOutside {
		return t
	}
	t.err = s.reach(t, func(d directory, name names.Name) error {
		st, err := d.stat(name)
		if err != nil {
			return err
		}
		if t.mode = st.Mode.Type(); t.mode != fs.ModeDir || !s.cfg.followDirs {
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
func (s *shared) reach(t target, use func(d directory, name names.Name) error) error {
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
		return use(d, names.New(name))
	}
	d := s.root.dir
	if t.path == "." {
		return use(d, names.Dot)
	}
	parts := strings.Split(t.path, "/")
	for _, part := range parts[:len(parts)-1] {
		sub, err := d.openDir(names.New(part))
		if d != s.root.dir {
			d.close()
		}
		if err != nil {
			return err
		}
		d = sub
	}
	if d != s.root.dir {
		defer d.close()
	}
	return use(d, names.New(parts[len(parts)-1]))
}

// excludedTarget returns why t is left out by its own path, or notSkipped.
func (s *shared) excludedTarget(t target) SkipReason {
	if t.err != nil || t.outside || t.path == "." {
		return notSkipped
	}
	for end, c := range t.path + "/" {
		if c != '/' {
			continue
		}
		part := t.path[:end]
		switch {
		case s.cfg.skipHidden && part[strings.LastIndexByte(part, '/')+1] == '.':
			return SkippedHidden
		case s.filter.excludes(part):
			return SkippedPattern
		}
	}
	return notSkipped
}

// excludesBehind reports whether Options.Exclude leaves out the entry name of n
// by its path without links, if there is a link in n's path.
func (w *worker) excludesBehind(n *node, name []byte) bool {
	if !w.cfg.followDirs || len(w.filter.exclude) == 0 {
		return false
	}
	for up := n; up != nil; up = up.parent {
		if up.isLinkedDir() {
			to := up.link.to
			return !to.outside && w.filter.excludes(path.Join(to.path, w.path.rel(n, name)[up.pathLen():]))
		}
	}
	return false
}

// addLink adds the entry that a link of s.node stands for.
func (s *scanner) addLink(name names.Name, t target) {
	w := s.w
	why := w.excludedTarget(t)
	switch {
	case errors.Is(t.err, fs.ErrNotExist), errors.Is(t.err, syscall.ENOTDIR), isLoop(t.err):
		s.addFile(name.Bytes(), name, fs.ModeSymlink, 0)
	case t.err != nil:
		w.failFound("readlink", s.node, name.String(), t.err)
	case t.outside && !w.cfg.followOutside:
		w.skipFound(SkippedOutside)
	case t.mode == fs.ModeDir && w.cfg.followDirs:
		if why == notSkipped && !w.skipDir(s.node, name.Bytes()) && w.cfg.opensDepth(s.node.depth+1) {
			n := s.node.child(name, 0)
			n.id, n.link = t.id, &linkNode{to: t}
			w.entered.addLinked(n)
		}
	case t.mode == fs.ModeDir:
		s.addFile(name.Bytes(), name, fs.ModeSymlink, 0)
	case why != notSkipped:
		w.skipFound(why)
	default:
		s.addFile(name.Bytes(), name, t.mode, 0)
	}
}

// isLoop reports whether err, from resolving a link, says that it leads to itself.
// EvalSymlinks has no error of its own for that.
func isLoop(err error) bool {
	return err != nil && strings.Contains(err.Error(), "too many links")
}

// enteredBefore reports whether n, which is open, must not be listed since it has
// been reached by another path.
func (s *shared) enteredBefore(n *node) (bool, error) {
	if !s.cfg.followDirs || n.link != nil {
		return false, nil
	}
	id, err := n.dir.identity()
	if err != nil {
		return false, err
	}
	return !s.entered.enter(id) && n.belowLink(), nil
}

// openLinked opens a node that is reached through links.
func (s *shared) openLinked(n *node) (d directory, err error) {
	if n.isLinks() {
		return &linkDir{s, n}, s.resolve(n)
	}
	if n.link.to.outside {
		return openRoot(n.link.to.path)
	}
	err = s.reach(n.link.to, func(parent directory, name names.Name) error {
		d, err = parent.openDir(name)
		return err
	})
	return d, err
}

// A linkDir is the directory of a node that stands for links: its entries are
// their targets.
type linkDir struct {
	*shared
	node *node
}

var _ directory = (*linkDir)(nil)

func (d *linkDir) list(*listing) (bool, error) { return false, nil } // see scanner.list

func (d *linkDir) openDir(names.Name) (directory, error) {
	return nil, &sys.Error{Op: "openat", Err: errors.ErrUnsupported} // each has a node of its own
}

func (d *linkDir) open(name names.Name, spare handle) (handle, error) {
	return targetOf(d, name, func(parent directory, name names.Name) (handle, error) { return parent.open(name, spare) })
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
