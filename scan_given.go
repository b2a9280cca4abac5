package fileproc

import (
	"errors"
	"io/fs"
	"slices"
	"syscall"

	"github.com/fileproc/fileproc/internal/content"
	"github.com/fileproc/fileproc/internal/names"
)

// The names of Options.Files are scanned as if a directory listed them. Each directory
// that has some of them is opened by its own name in its parent, so that a directory
// behind a link is not reached. Only the open of a name shows what it leads to.

// listGiven takes a part of the names in a directory, or those of a backlog that are
// root's own, and reports whether there are more.
func (s *scanner) listGiven(g *givenNames) (more bool) {
	w := s.w
	for _, name := range g.invalid {
		if w.stopped() {
			return false
		}
		w.failAs(FailedFile, "open", s.node, name.String(), badPath(name.String())) // the name may be empty
		w.counts.found++
	}
	if why := w.skipsGivenRoot(); why != notSkipped { // this is root: nothing below it is begun
		w.skipGiven(s.node, g, why)
		*g = givenNames{}
		return false
	}
	for _, sub := range g.subs {
		why := w.skips.dir(s.node, sub.name.Bytes())
		switch {
		case why == notSkipped:
			sub.ignore = s.node.ignore
			s.subs = append(s.subs, sub)
		case sub.given != nil:
			w.skipGiven(sub, sub.given, why)
		}
	}
	g.invalid, g.subs = nil, nil
	if len(g.files) == 0 {
		return false
	}
	count := uint64(len(g.files[0]))
	place := w.given.places.Add(count) - count
	looksUp := w.cold.on.Load() && diskOf(s.dir).Kind != content.NotOnDisk
	for _, name := range g.files[0] {
		hint := place
		if w.cfg.followFiles && !w.stopped() {
			if st, err := w.statDir(s.dir, name); err == nil && st.Mode.Type() == fs.ModeSymlink {
				s.links = append(s.links, name)
				continue
			}
		}
		if looksUp {
			hint = s.inodeOf(name, place)
		}
		s.addFile(name.Bytes(), name, 0, hint)
		place++
	}
	g.files[0] = nil
	g.files = g.files[1:]
	return len(g.files) > 0
}

// inodeOf returns the inode number of an entry, or, if that is unknown, place, which
// is the entry's place among the names. A look at each name takes time. But if the names
// are not in the order of the disk, the disk then needs a tenth of the requests, or fewer.
func (s *scanner) inodeOf(name names.Name, place uint64) uint64 {
	if s.w.stopped() { // a look may have to wait for the disk
		return place
	}
	if st, err := s.dir.stat(name); err == nil {
		return st.Inode
	}
	return place
}

// skipsGivenRoot returns why root is left out, and so all names are skipped, or
// notSkipped.
func (w *worker) skipsGivenRoot() SkipReason {
	if s := w.given; !s.rootJudged {
		s.rootJudged = true
		s.rootSkip, _ = w.judgeGiven(w.root) // root is open: an error says that the run is stopped
	}
	return w.given.rootSkip
}

// skipsGiven returns why n or a directory above n is left out, so that all names in n
// are skipped, or notSkipped. An error says that one of these directories cannot be
// judged, so that all names in n fail. It is for backlogs in order.
func (w *worker) skipsGiven(n *node) (SkipReason, error) {
	if n.parent == nil {
		return w.skipsGivenRoot(), nil
	}
	if g := n.given; !g.judged {
		g.judged = true
		if g.skip, g.err = w.skipsGiven(n.parent); g.skip == notSkipped {
			n.ignore = n.parent.ignore
			g.skip = w.skips.dir(n.parent, n.name.Bytes())
		}
		if g.skip == notSkipped && g.err == nil && w.calls.selectDir != nil {
			if w.acquireSlot() && !w.calls.selectDir(w, n.parent, n.name.String()) {
				g.skip = SkippedSelectDir
			}
			w.releaseSlot()
		}
		if g.skip == notSkipped && g.err == nil {
			g.skip, g.err = w.judgeGiven(n)
		}
	}
	return n.given.skip, n.given.err
}

// judgeGiven returns why n is left out because of what is in it, or notSkipped, and
// reads n's ignore files. In n are names of Options.Files. Nothing has listed n, so
// judgeGiven looks up each name that matters. An error is a failure of each name in n,
// because what the ignore files ignore is then unknown.
func (w *worker) judgeGiven(n *node) (SkipReason, error) {
	if len(w.cfg.ignoreNames) == 0 && len(w.cfg.skipMarked) == 0 && !w.cfg.gitIgnore {
		return notSkipped, nil
	}
	defer w.pin.drop(&w.dirs)
	if err := w.withDirAside(n, func(directory) error { return nil }); err != nil {
		return notSkipped, err
	}
	has := func(name string) bool {
		typ, err := w.typeOfGiven(n, names.New(name))
		if err != nil && err != errStopped && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			w.failFound("stat", n, name, err)
		}
		return err == nil && typ == 0
	}
	if slices.ContainsFunc(w.cfg.skipMarked, has) {
		return SkippedMarked, nil
	}
	return notSkipped, w.readIgnoreFiles(n, w.cfg.gitIgnore, has)
}

// typeOfGiven returns the type of the entry name of n.
func (w *worker) typeOfGiven(n *node, name names.Name) (typ fs.FileMode, err error) {
	err = w.withDirAside(n, func(d directory) error {
		if f, ok := d.(*fsDir); ok { // the stat of an fsDir finds the reason of an error, with more opens
			info, err := fs.Lstat(f.fsys, f.join(name.String()))
			if err != nil {
				return asFSError(err)
			}
			typ = info.Mode().Type() &^ fs.ModeIrregular
			return nil
		}
		st, err := d.stat(name)
		typ = st.Mode.Type()
		return err
	})
	return typ, err
}

// skipGiven counts the names in n and below as skipped, because n is left out.
func (w *worker) skipGiven(n *node, g *givenNames, why SkipReason) {
	for _, part := range g.files {
		for _, name := range part {
			w.skipFound(w.skips.below(name, why), n, name.String(), 0)
		}
	}
	for _, sub := range g.subs {
		if sub.given != nil {
			w.skipGiven(sub, sub.given, why)
		} else {
			w.skipGivenTree(sub, why)
		}
	}
}

// skipGivenTree counts n, a directory to be listed, as skipped, if why is one of the
// reasons for which a Report counts directories: none by path or name.
func (w *worker) skipGivenTree(n *node, why SkipReason) {
	if why == SkippedSelectDir || why == SkippedMarked {
		w.skipFound(why, n, "", fs.ModeDir)
	}
}

// failGiven is called if n cannot be opened. It makes each name below n a failure of
// its own, unless the filters leave the name out. Select is asked when the name is
// visited.
func (w *worker) failGiven(n *node, err error) {
	for _, part := range n.given.files {
		if w.stopped() {
			return
		}
		if kept := w.filterGiven(n, part); len(kept) > 0 {
			w.dirs.ref(n, 1)
			w.counts.found += int64(len(kept))
			w.pool.addBatch(&batch{node: n, entries: kept, err: err})
		}
	}
	for _, sub := range n.given.subs {
		why := w.skips.dir(n, sub.name.Bytes())
		sub.ignore = n.ignore
		switch {
		case why == notSkipped && sub.given != nil:
			w.failGiven(sub, err)
		case why == notSkipped && !w.stopped():
			w.failFound("open", sub, "", err)
		case sub.given != nil:
			w.skipGiven(sub, sub.given, why)
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
		if why := w.skips.file(n, name.Bytes(), 0); why != notSkipped {
			w.skipFound(why, n, name.String(), 0)
			continue
		}
		kept = append(kept, name)
	}
	return kept
}

// scanRuns makes spans of a backlog whose names are in order. After them it puts another
// span of n, for the next backlog. A backlog without names says that no more will come.
func (w *worker) scanRuns(n *node) scanResult {
	if len(n.given.runs) == 0 {
		return scanResult{}
	}
	for i := range n.given.runs {
		if w.stopped() {
			break
		}
		if r := &n.given.runs[i]; r.isTree {
			w.addTreeSpan(n, r.node)
		} else {
			w.addFileSpan(n, r)
		}
	}
	*n.given = givenNames{}
	for _, s := range n.spans {
		w.counts.found += int64(s.files)
	}
	n.spans = append(n.spans, &span{node: n})
	return scanResult{}
}

func (w *worker) addTreeSpan(root, n *node) {
	why, err := w.skipsGiven(n.parent)
	if why != notSkipped {
		w.skipGivenTree(n, why)
		return
	}
	if w.skips.dir(n.parent, n.name.Bytes()) == notSkipped {
		if err != nil {
			w.failDir(n, err)
			return
		}
		n.ignore = n.parent.ignore
		n.span = &span{node: n}
		root.spans = append(root.spans, n.span)
		w.dirs.ref(n.parent, 1) // n gives up the reference when it is begun
	}
}

func (w *worker) addFileSpan(root *node, r *givenRun) {
	kept := r.files
	if r.invalid {
		w.addGivenBatch(root, &batch{node: r.node, entries: kept, stage: stageInvalid})
		return
	}
	why, err := w.skipsGiven(r.node)
	switch {
	case why != notSkipped:
		w.skipGiven(r.node, &givenNames{files: [][]names.Name{kept}}, why)
		return
	case err == errStopped:
		return
	}
	for err == nil && w.cfg.followFiles && len(kept) > 0 {
		k := slices.IndexFunc(kept, func(name names.Name) bool {
			typ, err := w.typeOfGiven(r.node, name)
			return err == nil && typ == fs.ModeSymlink // after an error, the open of the name says what is wrong
		})
		w.pin.drop(&w.dirs)
		if k < 0 {
			break
		}
		w.addGivenBatch(root, &batch{node: r.node, entries: w.filterGiven(r.node, kept[:k:k])})
		n := r.node.childForLinks(kept[k : k+1])
		n.span = &span{node: n}
		root.spans = append(root.spans, n.span)
		w.dirs.ref(r.node, 1) // n gives up the reference when it is begun
		kept = kept[k+1:]
	}
	w.addGivenBatch(root, &batch{node: r.node, entries: w.filterGiven(r.node, kept), err: err})
}

func (w *worker) addGivenBatch(root *node, b *batch) {
	if len(b.entries) == 0 {
		return
	}
	b.span = &span{batch: b, files: len(b.entries)}
	root.spans = append(root.spans, b.span)
	w.dirs.ref(b.node, 1)
}
