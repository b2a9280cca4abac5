package fileproc

import (
	"errors"
	"io/fs"
	"syscall"

	"github.com/fileproc/fileproc/internal/fsinfo"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
)

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
