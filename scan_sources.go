package fileproc

import (
	"errors"
	"io/fs"
	"syscall"

	"github.com/fileproc/fileproc/internal/backend"
	"github.com/fileproc/fileproc/internal/fsinfo"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
)

// A run with one root opens it before any worker starts, and keeps it open. Of several
// roots a worker opens one when it comes to it. That root is then a directory like others:
// the cache closes it, and opens it again by its path if it is still needed.

// An argument is the source of one of several roots.
type argument struct {
	foundDir
	job    job
	number int // in Options.Roots
}

// argumentJobs returns a job for each of n roots.
func argumentJobs(n int) []*job {
	all, jobs := make([]argument, n), make([]*job, n)
	for i := range all {
		a := &all[i]
		a.number, a.job.source = i, a
		jobs[i] = &a.job
	}
	return jobs
}

// admit opens root and reads what applies in all of its tree. It gives up its pin before it
// reads, because the read may wait for a descriptor. For a file, it changes the job's source.
func (a *argument) admit(w *worker, j *job) verdict {
	t := newTree(w.cfg, w.cfg.roots[a.number], a.number)
	j.node = &t.root
	if w.cfg.followFiles {
		t.root.refs++ // until the run ends: links are resolved from root
	}
	err := w.open(j.node)
	if err == nil {
		w.dirs.release(j.node, 1, 0)
		defer w.pin.drop(&w.dirs)
		err = w.withDirAside(j.node, func(d backend.Directory) error { return w.inspectRoot(t, d) })
	}
	if err == nil {
		err = w.readRules(t)
	}
	switch {
	case err != nil:
	case t.isFile:
		j.source = rootFile{}
	case w.cfg.allTypes:
		return w.deliverDir(j.node)
	}
	return failed(err)
}

// openRoot opens the root of t: a directory, a file, or a symbolic link to one.
func (s *shared) openRoot(t *tree) (backend.Directory, error) {
	root, c := t.paths.root, s.cfg
	switch {
	case s.calls.openRoot != nil:
		return s.calls.openRoot(root)
	case c.fsys != nil:
		return backend.OpenFSRoot(c.fsys, root, c.files != nil)
	}
	open := backend.OpenRoot
	if c.files != nil { // root is not listed
		open = backend.OpenRootToSearch
	}
	d, err := open(root)
	if err == nil || sys.IsScarce(err) || errors.Is(err, fs.ErrNotExist) {
		return d, err
	}
	return backend.OpenSoleFile(root, err, backend.OpenRootToSearch)
}

// inspectRoot finds out what the run needs to know about root, which is d.
func (w *worker) inspectRoot(t *tree, d backend.Directory) error {
	if f, ok := d.(*backend.SoleFile); ok {
		t.isFile = true
		t.stream = f.Stream()
		t.paths.setFile(f.Name().String())
		if w.cfg.files != nil {
			return &sys.Error{Op: "open", Err: errRootIsFile}
		}
		return nil
	}
	if w.cfg.oneFilesystem {
		s, err := w.statDir(d, names.Dot)
		if err != nil {
			return sys.AsError("stat", err)
		}
		t.device = s.Device
	}
	return w.links.resolveRoot(t)
}

// readRules reads the files that say what is ignored in all of t.
func (w *worker) readRules(t *tree) error {
	if t.isFile {
		return nil
	}
	n := &t.root
	for _, list := range w.cfg.ignoreLists {
		n.ignore = n.ignore.PushAbove(w.cfg.ignoreAbove(t.paths.root), list)
	}
	if w.cfg.gitTracked {
		if err := w.readTracked(n); err != nil {
			return err
		}
	}
	if w.cfg.gitIgnore {
		if err := w.readGitRules(n); err != nil {
			return err
		}
	}
	return w.readIgnorePaths(t)
}

func (l foundLinks) admit(*worker, *job) verdict { return verdict{} }

// open resolves the links. If one of them cannot be resolved for long, that link is a
// failure of its own.
func (l foundLinks) open(w *worker, j *job) error {
	err := w.open(j.node)
	if err != nil && err != errStopped {
		l.final = true
		err = w.openOnce(j.node)
	}
	return err
}

func (l foundLinks) inspect(*worker, *job) verdict { return verdict{} }

func (l foundLinks) list(s *scanner) (more bool) {
	for _, name := range l.names {
		l.add(s, name)
	}
	return false
}

// linkedSource is the source of a directory that a link leads to.
type linkedSource struct{ *linkedDir }

func (l linkedSource) admit(w *worker, j *job) verdict {
	if l.entered {
		return leftOut(SkippedDuplicate)
	}
	return w.admitDir(j.node)
}

func (l linkedSource) open(w *worker, j *job) error { return w.open(j.node) }

func (l linkedSource) inspect(w *worker, j *job) verdict {
	v := l.linkedDir.inspect(w, j)
	if n := j.node; !v.ends && w.calls.visitDir != nil {
		w.calls.visitDir(w, n.parent, n.name.String(), func() (sys.Stat, error) { return w.statDir(n.dir, names.Dot) })
	}
	return v
}

// add adds the link name of s.node as an entry of the kind that its target is.
func (l foundLinks) add(s *scanner, name names.Name) {
	w, t := s.w, l.targets[name]
	why := w.links.excludedTarget(t)
	switch {
	case errors.Is(t.err, fs.ErrNotExist), errors.Is(t.err, syscall.ENOTDIR), errors.Is(t.err, fsinfo.ErrLoop):
		why = w.entryFilter.file(s.node, name.Bytes(), fs.ModeSymlink)
		if why == SkippedNotRegular {
			why = SkippedDangling
		}
		w.foundSkipped(why, s.node, name.String(), fs.ModeSymlink)
	case t.err != nil:
		w.foundFailed("readlink", s.node, name.String(), t.err)
	case t.outside && !w.cfg.followOutside:
		w.foundSkipped(SkippedOutside, s.node, name.String(), fs.ModeSymlink)
	case t.mode == fs.ModeDir && w.cfg.followDirs:
		rules := s.node.ignore
		if why == notSkipped {
			why, rules = w.entryFilter.dir(s.node, name.Bytes())
		}
		if why == notSkipped && w.cfg.opensDepth(s.node.depth+1) {
			way := &linkedDir{links: &w.links, tree: s.node.tree, to: t}
			n := s.node.child(name, 0)
			n.id, n.way, n.ignore = t.id, way, rules
			w.links.addLinked(newJob(n, linkedSource{way}))
		}
	case t.mode == fs.ModeDir:
		s.addFile(name.Bytes(), name, fs.ModeSymlink, 0)
	case why != notSkipped:
		w.foundSkipped(why, s.node, name.String(), t.mode)
	default:
		s.addFile(name.Bytes(), name, t.mode, 0)
	}
}
