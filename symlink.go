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

	"github.com/fileproc/fileproc/internal/backend"
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
	cfg    *config
	filter *filter
	dirs   *dirCache

	mu     sync.Mutex // guards what follows
	linked []*job     // directories that links lead to
	ids    map[inodeOfTree][]backend.Identity
}

// An inodeOfTree says which directory of a tree an identity may be of. If Options.Roots has
// a directory twice, both trees have it.
type inodeOfTree struct {
	of            *tree
	device, inode uint64
}

// init prepares l, which is new.
func (l *links) init(cfg *config, f *filter, dirs *dirCache) { l.cfg, l.filter, l.dirs = cfg, f, dirs }

// resolveRoot finds the path of t's root without links.
func (l *links) resolveRoot(t *tree) error {
	if !l.cfg.followFiles && !((l.cfg.gitIgnore || l.cfg.gitTracked) && l.cfg.gitFS == nil) {
		return nil
	}
	path := cmp.Or(l.cfg.gitRoot, t.paths.root)
	root, err := fsinfo.RealPath(path)
	if errors.Is(err, fs.ErrPermission) { // of a directory above root
		root, err = fsinfo.Abs(path)
		root = filepath.Clean(root)
	}
	if err != nil {
		return sys.AsError("readlink", err)
	}
	t.realRoot = root
	return nil
}

// A linkSet is symbolic links that one scan of a directory found, and the way to what they
// lead to.
type linkSet struct {
	foundDir
	*links
	node    *node // has the path of the directory, and this way
	names   []names.Name
	targets map[names.Name]target // of names, once they are resolved
	// final says that the wait for links that cannot be resolved has lasted too long:
	// their errors are final.
	final bool
}

func (s *linkSet) open() (backend.Directory, error) { return linkDir{linkSet: s}, s.resolve() }

func (s *linkSet) leadsTo() (target, bool) { return target{}, false }

// resolve finds out where the links lead. If it returns an error, the next attempt
// resolves the links that are left. In the last attempt, the target of a link that cannot
// be resolved is the error.
func (s *linkSet) resolve() (err error) {
	if s.targets == nil {
		s.targets = make(map[names.Name]target, len(s.names))
	}
	mayPass := func(t target) bool { return !s.final && (sys.IsScarce(t.err) || sys.MayPass(t.err)) }
	for _, name := range s.names {
		if t, ok := s.targets[name]; ok && !mayPass(t) {
			continue
		}
		t := s.follow(s.node, name.String())
		if s.targets[name] = t; mayPass(t) && err == nil {
			err = t.err
		}
	}
	return err
}

// foundLinks is the source of symbolic links: its entries are what they lead to. Its methods
// are in scan_sources.go.
type foundLinks struct{ *linkSet }

// newLinksJob returns a job for links that a scan of n has found.
func newLinksJob(l *links, n *node, found []names.Name) *job {
	set := &linkSet{links: l, names: found}
	j := newJob(n.by(set), foundLinks{set})
	set.node = j.node
	return j
}

// A linkedDir is the way to a directory behind a link.
type linkedDir struct {
	foundDir
	*links
	to      target
	tree    *tree // that to is relative to
	entered bool  // the run has entered the directory by another path
}

func (d *linkedDir) open() (sub backend.Directory, err error) {
	if d.to.outside {
		return backend.OpenRoot(d.to.path)
	}
	err = d.reach(d.tree, d.to, func(parent backend.Directory, name names.Name) error {
		sub, err = parent.OpenDir(name)
		return err
	})
	return sub, err
}

func (d *linkedDir) leadsTo() (target, bool) { return d.to, true }

// linkTarget returns the path without links of the entry name of n, or "" if there is no
// link in its path.
func linkTarget(n *node, name string) string {
	b := &n.tree.paths
	if !b.follows {
		return ""
	}
	var t target
	if s, ok := n.way.(*linkSet); ok {
		if t = s.targets[names.New(name)]; t.err != nil {
			return "" // also below a link to a directory
		}
	}
	if t.path == "" {
		t = n.behindLink(n.relPath(name))
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

func (l *links) follow(n *node, name string) (t target) {
	full, err := fsinfo.EvalSymlinks(filepath.Join(n.tree.realRoot, filepath.FromSlash(n.relPath(name))))
	if err != nil {
		return target{err: sys.AsError("readlink", err)}
	}
	t.path = full
	rel, err := filepath.Rel(n.tree.realRoot, full)
	if t.outside = err != nil || rel != "." && !filepath.IsLocal(rel); !t.outside {
		t.path = filepath.ToSlash(rel)
	} else if !l.cfg.followOutside {
		return t
	}
	t.err = l.reach(n.tree, t, func(d backend.Directory, name names.Name) error {
		st, err := d.Stat(name)
		if err != nil {
			return err
		}
		if t.mode = st.Mode.Type(); t.mode != fs.ModeDir || !l.cfg.followDirs {
			return nil
		}
		if d, err = d.OpenDir(name); err != nil {
			return err
		}
		defer d.Close()
		t.id, err = d.Identity()
		return err
	})
	return t
}

// reach calls use with the directory that t, a target in the tree of, is in, and its name there.
func (l *links) reach(of *tree, t target, use func(d backend.Directory, name names.Name) error) error {
	if t.outside {
		dir, name := filepath.Split(t.path)
		if name == "" { // the file system's root
			name = "."
		}
		d, err := backend.OpenRootToSearch(dir)
		if err != nil {
			return err
		}
		defer d.Close()
		return use(d, names.New(name))
	}
	root, err := l.dirs.acquire(&of.root)
	if err != nil {
		return err
	}
	defer l.dirs.release(&of.root, 1, 0)
	if t.path == "." {
		return use(root, names.Dot)
	}
	d := root
	parts := strings.Split(t.path, "/")
	for _, part := range parts[:len(parts)-1] {
		sub, err := backend.OpenDirToSearch(d, names.New(part))
		if d != root {
			d.Close()
		}
		if err != nil {
			return err
		}
		d = sub
	}
	if d != root {
		defer d.Close()
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
	if !l.cfg.followDirs || n.way != nil {
		return false, nil
	}
	id, err := n.dir.Identity()
	if err != nil {
		return false, err
	}
	return !l.enter(n.tree, id) && n.belowLink(), nil
}

// addLinked puts off j, whose directory a link leads to, until all others are listed.
func (l *links) addLinked(j *job) {
	l.mu.Lock()
	l.linked = append(l.linked, j)
	l.mu.Unlock()
}

// takeLinked returns the directories that links lead to. It is called when all others
// have been listed. If several links lead to one directory, it marks all but one as
// entered. Which one it leaves depends only on their paths.
func (l *links) takeLinked() []*job {
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.SortFunc(l.linked, func(a, b *job) int {
		return comparePaths(a.node.parent, a.node.name.String(), b.node.parent, b.node.name.String())
	})
	taken := l.linked
	for _, j := range taken {
		j.node.way.(*linkedDir).entered = !l.insert(j.node.tree, j.node.id)
	}
	l.linked = nil
	slices.Reverse(taken) // the queue takes the last one first
	return taken
}

// enter adds a directory of t and reports whether it was not in the set.
func (l *links) enter(t *tree, id backend.Identity) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.insert(t, id)
}

func (l *links) insert(t *tree, id backend.Identity) bool {
	key := inodeOfTree{of: t}
	key.device, key.inode = id.Inode()
	for _, other := range l.ids[key] {
		if other.Same(id) {
			return false
		}
	}
	if l.ids == nil {
		l.ids = map[inodeOfTree][]backend.Identity{}
	}
	l.ids[key] = append(l.ids[key], id)
	return true
}

// A linkDir is the directory of a linkSet's node: its entries are the links' targets.
type linkDir struct {
	*linkSet
	backend.Directory // nil: foundLinks lists it, and each directory among the targets has a node of its own
}

var _ backend.Directory = linkDir{}

func (d linkDir) Open(name names.Name, spare content.File) (content.File, error) {
	return targetOf(d, name, func(parent backend.Directory, name names.Name) (content.File, error) { return parent.Open(name, spare) })
}

func (d linkDir) Stat(name names.Name) (sys.Stat, error) {
	return targetOf(d, name, backend.Directory.Stat)
}

func (d linkDir) Info(name names.Name, as string) (fs.FileInfo, error) {
	return targetOf(d, name, func(parent backend.Directory, name names.Name) (fs.FileInfo, error) {
		if parent, ok := parent.(backend.Informed); ok {
			return parent.Info(name, as)
		}
		return nil, &sys.Error{Op: "stat", Err: errors.ErrUnsupported}
	})
}

func (d linkDir) OpenFile(name names.Name, path string) (*os.File, error) {
	return targetOf(d, name, func(parent backend.Directory, name names.Name) (*os.File, error) { return parent.OpenFile(name, path) })
}

// targetOf returns what get returns for the target of the link name.
func targetOf[T any](d linkDir, name names.Name, get func(backend.Directory, names.Name) (T, error)) (v T, err error) {
	err = d.reach(d.node.tree, d.targets[name], func(parent backend.Directory, name names.Name) error {
		v, err = get(parent, name)
		return err
	})
	return v, err
}

// inTarget calls use with the directory that has the target of the link name, and the target's
// name there.
func (d linkDir) inTarget(name names.Name, use func(backend.Directory, names.Name) error) error {
	return d.reach(d.node.tree, d.targets[name], use)
}

func (d linkDir) Identity() (backend.Identity, error) { return backend.ByPath{}, nil } // there is no other

func (d linkDir) Close() {}
