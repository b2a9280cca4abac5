package fileproc

import (
	"cmp"
	"errors"
	"io/fs"
	"slices"
	"syscall"

	"github.com/fileproc/fileproc/internal/backend"
	"github.com/fileproc/fileproc/internal/content"
	"github.com/fileproc/fileproc/internal/gitignore"
	"github.com/fileproc/fileproc/internal/names"
)

// The names of Options.Files are scanned as if a directory listed them. Each directory
// that has some of them is opened by its own name in its parent, so that a directory
// behind a link is not reached. Only the open of a name shows what it leads to.

// admit lets a backlog be scanned: root is open, and has been inspected.
func (b *givenBacklog) admit(w *worker, j *job) verdict {
	w.dirs.ref(j.node, 1)
	return verdict{}
}

func (b *givenBacklog) inspect(*worker, *job) verdict { return verdict{} }

func (b *givenBacklog) list(s *scanner) (more bool) {
	w := s.w
	if w.order != nil {
		s.givenSpans = spansOf(w, b)
		return false
	}
	for _, name := range b.top.invalid {
		if w.stopped() {
			return false
		}
		w.foundFailedAs(FailedFile, "open", s.node, name.String(), badPath(name.String())) // the name may be empty
	}
	b.top.invalid = nil
	if why := w.judgeGivenRoot(); why != notSkipped { // nothing below root is begun
		w.foundSkippedBelow(b.top, why)
		return false
	}
	if w.readIndexFor(b.top) != nil { // the run is stopped
		return false
	}
	return b.top.list(s)
}

func (g *givenNames) admit(w *worker, j *job) verdict {
	v := w.askSelectDir(g.node)
	if v.ends {
		return v
	}
	why, err := w.judgeDir(g.node)
	if why != notSkipped {
		return leftOut(why)
	}
	if err == nil {
		err = w.readIndexFor(g)
	}
	return failed(err)
}

func (g *givenNames) open(w *worker, j *job) error { return w.open(g.node) }

func (g *givenNames) inspect(w *worker, j *job) verdict {
	w.noteDevice(g.node)
	return verdict{}
}

// refuse makes each name below g's directory a failure or a skipped file of its own.
func (g *givenNames) refuse(w *worker, j *job, v verdict) {
	switch {
	case v.err != nil:
		w.foundFailedBelow(g, v.err)
	case v.skip != notSkipped:
		w.foundSkippedBelow(g, v.skip)
	}
}

// list lists a part of the names, and reports whether there are more.
func (g *givenNames) list(s *scanner) (more bool) {
	w := s.w
	for _, sub := range g.subs {
		why, rules := w.entryFilter.dir(s.node, sub.node.name.Bytes())
		if why == notSkipped {
			sub.node.ignore, sub.needsParent = rules, true
			s.subs = append(s.subs, sub)
		} else if names, ok := sub.source.(*givenNames); ok {
			w.foundSkippedBelow(names, why)
		}
	}
	g.subs = nil
	if len(g.files) == 0 {
		return false
	}
	count := uint64(len(g.files[0]))
	place := w.given.places.Add(count) - count
	statsEach := w.cold.isOn() && backend.DiskOf(s.dir).Kind != content.NotOnDisk
	for _, name := range g.files[0] {
		hint := place
		if w.cfg.followFiles && !w.stopped() {
			if st, err := w.statDir(s.dir, name); err == nil && st.Mode.Type() == fs.ModeSymlink {
				s.links = append(s.links, name)
				continue
			}
		}
		if statsEach {
			hint = inodeOf(s, name, place)
		}
		s.addFile(name.Bytes(), name, 0, hint)
		place++
	}
	g.files = g.files[1:]
	return len(g.files) > 0
}

// The caller has named the directory, so Walk does not yield it.
func (t givenTree) admit(w *worker, j *job) verdict { return w.admitDir(j.node) }

func (t givenTree) inspect(w *worker, j *job) verdict {
	j.flat = t.flat
	return t.foundDir.inspect(w, j)
}

// inodeOf returns the inode number of an entry, or, if that is unknown, place, which
// is the entry's place among the names. A stat of each name takes time. But where
// the names are not in the order of the disk, it saves nine requests in ten, or more.
func inodeOf(s *scanner, name names.Name, place uint64) uint64 {
	if s.w.stopped() { // a stat may have to wait for the disk
		return place
	}
	if st, err := s.dir.Stat(name); err == nil {
		return st.Inode
	}
	return place
}

// judgeGivenRoot returns why root is left out, and so all names are skipped, or
// notSkipped.
func (w *worker) judgeGivenRoot() SkipReason {
	if s := w.given; !s.rootJudged {
		s.rootJudged = true
		s.rootSkip, _ = w.judgeDir(w.root) // root is open: an error says that the run is stopped
	}
	return w.given.rootSkip
}

// judgeGiven returns why g's directory or one above it is left out, so that all names in g
// are skipped, or notSkipped. An error says that one of these directories cannot be
// judged, so that all names in g fail. It is for backlogs in order.
func (w *worker) judgeGiven(g *givenNames) (SkipReason, error) {
	if g.up == nil {
		return w.judgeGivenRoot(), nil
	}
	if !g.judged {
		g.judged = true
		if g.skip, g.err = w.judgeGiven(g.up); g.skip == notSkipped {
			var stopped error
			g.skip, g.node.ignore, stopped = w.judgeSub(g.up.node, g.node.name)
			g.err = cmp.Or(g.err, stopped)
		}
		if g.skip == notSkipped && g.err == nil {
			g.skip = w.askSelectDir(g.node).skip
		}
		if g.skip == notSkipped && g.err == nil {
			g.skip, g.err = w.judgeDir(g.node)
		}
	}
	return g.skip, g.err
}

// judgeDir returns why n is left out because of what is in it, or notSkipped, and
// reads n's ignore files. In n are names of Options.Files. Nothing has listed n, so
// judgeDir stats each name that matters. An error is a failure of each name in n,
// because what the ignore files ignore is then unknown.
func (w *worker) judgeDir(n *node) (SkipReason, error) {
	if len(w.cfg.ignoreNames) == 0 && len(w.cfg.skipMarked) == 0 && !w.cfg.gitIgnore {
		return notSkipped, nil
	}
	defer w.pin.drop(&w.dirs)
	if err := w.withDirAside(n, func(backend.Directory) error { return nil }); err != nil {
		return notSkipped, err
	}
	has := func(name string) bool {
		typ, err := w.typeOf(n, names.New(name))
		if err != nil && err != errStopped && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			w.foundFailed("stat", n, name, err)
		}
		return err == nil && typ == 0
	}
	marks := func(name string) bool { return has(name) && (name != cacheTag || w.hasCacheTag(n)) }
	if slices.ContainsFunc(w.cfg.marks(n), marks) {
		return SkippedMarked, nil
	}
	return notSkipped, w.readIgnoreFiles(n, w.cfg.gitIgnore, has)
}

// readIndexFor reads git's index if a rule of git ignores a name in g. It returns errStopped if the run is stopped.
func (w *worker) readIndexFor(g *givenNames) error {
	if needsNoIndex(g.node) {
		return nil
	}
	needs := slices.ContainsFunc(g.subs, func(sub *job) bool { return w.needsIndex(g.node, sub.node.name, fs.ModeDir) })
	for _, part := range g.files {
		needs = needs || slices.ContainsFunc(part, func(name names.Name) bool { return w.needsIndex(g.node, name, 0) })
	}
	if needs {
		return w.readIndex(g.node)
	}
	return nil
}

// judgeSub is entryFilter.dir for a directory with names of Options.Files, or one that they name, in a backlog in order.
func (w *worker) judgeSub(n *node, name names.Name) (why SkipReason, rules *gitignore.Chain, stopped error) {
	if !needsNoIndex(n) && w.needsIndex(n, name, fs.ModeDir) {
		stopped = w.readIndex(n)
	}
	why, rules = w.entryFilter.dir(n, name.Bytes())
	return why, rules, stopped
}

// foundSkippedBelow counts the names in g and below as skipped, because g's directory is left out.
func (w *worker) foundSkippedBelow(g *givenNames, why SkipReason) {
	for _, part := range g.files {
		w.foundSkippedFiles(g.node, part, why)
	}
	for _, sub := range g.subs {
		if names, ok := sub.source.(*givenNames); ok {
			w.foundSkippedBelow(names, why)
		} else {
			w.foundSkippedTree(sub.node, why)
		}
	}
}

func (w *worker) foundSkippedFiles(n *node, files []names.Name, why SkipReason) {
	for _, name := range files {
		w.foundSkipped(w.entryFilter.below(name, why), n, name.String(), 0)
	}
}

// foundSkippedTree counts n, a directory to be listed, as skipped, if why is one of the
// reasons for which a Report counts directories: none by path or name.
func (w *worker) foundSkippedTree(n *node, why SkipReason) {
	if why == SkippedSelectDir || why == SkippedMarked {
		w.foundSkipped(why, n, "", fs.ModeDir)
	}
}

// foundFailedBelow makes each name below g's directory, which cannot be opened, a failure of its
// own, unless the filters leave the name out. Select is asked when the name is visited.
func (w *worker) foundFailedBelow(g *givenNames, err error) {
	for _, part := range g.files {
		if w.stopped() {
			return
		}
		if kept := w.filterGiven(g.node, part); len(kept) > 0 {
			w.dirs.ref(g.node, 1)
			w.foundBatch(&batch{node: g.node, entries: kept, err: err})
		}
	}
	for _, sub := range g.subs {
		var why SkipReason
		why, sub.node.ignore = w.entryFilter.dir(g.node, sub.node.name.Bytes())
		names, ok := sub.source.(*givenNames)
		switch {
		case why == notSkipped && ok:
			w.foundFailedBelow(names, err)
		case why == notSkipped && !w.stopped():
			w.foundFailed("open", sub.node, "", err)
		case ok:
			w.foundSkippedBelow(names, why)
		}
	}
}

// filterGiven skips the names in n that the filters leave out, and returns the others. N
// and the directories above it are not left out. The caller counts the others as found
// once all callbacks have returned: if one panicked before the pool had these names,
// nobody would count them as abandoned. It overwrites files.
func (w *worker) filterGiven(n *node, files []names.Name) (kept []names.Name) {
	kept = files[:0]
	for _, name := range files {
		if why := w.entryFilter.file(n, name.Bytes(), 0); why != notSkipped {
			w.foundSkipped(why, n, name.String(), 0)
			continue
		}
		kept = append(kept, name)
	}
	return kept
}

// A spanMaker makes spans of the items of a backlog, for results in order.
type spanMaker struct {
	w     *worker
	spans []*span
}

// spansOf returns the spans of b and, behind them, that of the next backlog. A backlog
// without names says that no more will come.
func spansOf(w *worker, b *givenBacklog) []*span {
	if len(b.items) == 0 {
		return []*span{}
	}
	s := spanMaker{w: w}
	for i := range b.items {
		if w.stopped() {
			break
		}
		if item := &b.items[i]; item.tree != nil {
			s.addTree(item)
		} else {
			s.addFiles(item)
		}
	}
	b.items = nil
	for _, each := range s.spans {
		w.found(each.files)
	}
	s.addJob(&job{node: w.root, source: nextBacklog{b.of}})
	return s.spans
}

func (s *spanMaker) addTree(item *givenItem) {
	w, up, n := s.w, item.in.node, item.tree.node
	why, err := w.judgeGiven(item.in)
	if why != notSkipped {
		w.foundSkippedTree(n, why)
		return
	}
	why, rules, stopped := w.judgeSub(up, n.name)
	switch {
	case why != notSkipped || stopped != nil:
	case err != nil:
		w.foundFailedDir(n, err)
	default:
		n.ignore = rules
		item.tree.needsParent = true
		w.dirs.ref(up, 1)
		s.addJob(item.tree)
	}
}

func (s *spanMaker) addJob(j *job) {
	j.span = &span{job: j}
	s.spans = append(s.spans, j.span)
}

func (s *spanMaker) addFiles(item *givenItem) {
	w, n, kept := s.w, item.in.node, item.files
	if item.invalid {
		s.addBatch(&batch{node: n, entries: kept, stage: stageInvalid})
		return
	}
	why, err := w.judgeGiven(item.in)
	switch {
	case why != notSkipped:
		w.foundSkippedFiles(n, kept, why)
		return
	case err == errStopped:
		return
	}
	if !needsNoIndex(n) && slices.ContainsFunc(kept, func(name names.Name) bool { return w.needsIndex(n, name, 0) }) && w.readIndex(n) != nil {
		return
	}
	for err == nil && w.cfg.followFiles && len(kept) > 0 {
		k := slices.IndexFunc(kept, func(name names.Name) bool {
			typ, err := w.typeOf(n, name)
			return err == nil && typ == fs.ModeSymlink // after an error, the open of the name says what is wrong
		})
		w.pin.drop(&w.dirs)
		if k < 0 {
			break
		}
		s.addBatch(&batch{node: n, entries: w.filterGiven(n, kept[:k:k])})
		s.addJob(newLinksJob(&w.links, n, kept[k:k+1]))
		kept = kept[k+1:]
	}
	s.addBatch(&batch{node: n, entries: w.filterGiven(n, kept), err: err})
}

func (s *spanMaker) addBatch(b *batch) {
	if len(b.entries) == 0 {
		return
	}
	b.span = &span{batch: b, files: len(b.entries)}
	s.w.dirs.ref(b.node, 1)
	s.spans = append(s.spans, b.span)
}
