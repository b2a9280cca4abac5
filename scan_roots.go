package fileproc

import (
	"errors"
	"io/fs"

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

// admit opens root and reads what applies in all of its tree. It gives up its pin before
// it reads, because the read may wait for a descriptor.
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
		err = w.withDirAside(j.node, func(d directory) error { return w.inspectRoot(t, d) })
	}
	if err == nil {
		err = w.readRules(t)
	}
	if err == nil && w.cfg.allTypes && !t.isFile {
		return w.deliverDir(j.node)
	}
	return failed(err)
}

func (a *argument) inspect(w *worker, j *job) verdict {
	if j.node.tree.isFile {
		return verdict{}
	}
	return a.foundDir.inspect(w, j)
}

func (a *argument) list(s *scanner) (more bool) {
	if s.node.tree.isFile {
		return rootFile{}.list(s)
	}
	return a.foundDir.list(s)
}

// openRoot opens the root of t: a directory, a file, or a symbolic link to one.
func (s *shared) openRoot(t *tree) (directory, error) {
	root, c := t.paths.root, s.cfg
	switch {
	case s.calls.openRoot != nil:
		return s.calls.openRoot(root)
	case c.fsys != nil && c.files != nil && root == ".": // root is always there, and is not listed
		return &fsDir{fsys: c.fsys, name: ".", named: true}, nil
	case c.fsys != nil:
		return openFSRoot(c.fsys, root, c.files != nil)
	}
	open := openRoot
	if c.files != nil { // root is not listed
		open = openRootToSearch
	}
	d, err := open(root)
	if err == nil || sys.IsScarce(err) || errors.Is(err, fs.ErrNotExist) {
		return d, err
	}
	return openSoleFile(root, err)
}

// inspectRoot finds out what the run needs to know about root, which is d.
func (w *worker) inspectRoot(t *tree, d directory) error {
	if f, ok := d.(*soleFile); ok {
		t.isFile = true
		if f, ok := f.file.(*streamFile); ok {
			t.stream = f.info.Mode().Type()
		}
		t.paths.setFile(f.name.String())
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
	if w.cfg.gitIgnore {
		if err := w.readGitRules(n); err != nil {
			return err
		}
	}
	return w.readIgnorePaths(t)
}
