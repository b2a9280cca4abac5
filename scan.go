package fileproc

import (
	"bytes"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/fileproc/fileproc/internal/fsinfo"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
)

// scan lists a part of n. While the listing goes on, n is pinned.
func (w *worker) scan(n *node) scanResult {
	if w.order != nil {
		defer func(was position) { w.pos = was }(w.pos) // of a visit, which scans while it waits for a descriptor
		w.pos = position{span: n.span, file: -1}
	}
	if w.order != nil && n.given != nil {
		return w.scanRuns(n)
	}
	if n.phase == nodeUnopened && !w.begin(n) || n.phase == nodeBuffered && !w.reopen(n) {
		return scanResult{}
	}
	s := &w.scanner
	*s = scanner{w: w, node: n, dir: n.dir, subs: s.subs[:0]}
	more := n.phase == nodeListing && s.list(n)
	w.show()
	if n.buffer != nil && !more {
		if n.phase == nodeListing && (n.buffer.ignore != nil || n.buffer.git) {
			n.phase = nodeBuffered
			w.dirs.release(n, 1, 0) // reading the ignore files may have to wait
			return scanResult{state: scanAgain}
		}
		s.classifyBuffer()
	}
	return s.result(more)
}

// begin opens n, gives up its reference to the parent, and reports whether there
// is something to list.
func (w *worker) begin(n *node) bool {
	if w.given.lists(n) { // root is open, and has been inspected
		n.phase = nodeListing
		w.dirs.ref(n, 1)
		_, err := w.dirs.acquire(n)
		return err == nil
	}
	if n.isLinkedDir() && n.link.entered {
		w.skipFound(SkippedDuplicate, n, "", fs.ModeDir)
		return false
	}
	admitted, err := w.admit(n)
	if admitted && err == nil {
		if w.calls.onDir != nil && n.given == nil && n.parent != nil && !n.isLinks() {
			w.calls.onDir(n.dirPath())
		}
		err = w.open(n)
	}
	if n.parent != nil && !n.isLinkedDir() { // a linked directory has no reference to its parent
		w.dirs.release(n.parent, 0, 1)
	}
	switch {
	case err != nil && err != errStopped && n.given != nil:
		w.failGiven(n, err)
	case err != nil:
		w.failDir(n, err)
	}
	if err != nil || !admitted {
		return false
	}
	if !w.inspect(n) {
		w.dirs.release(n, 1, 1)
		return false
	}
	w.prepare(n)
	return true
}

// admit reports whether n may be opened. If not, it has told so.
func (w *worker) admit(n *node) (bool, error) {
	if !w.selectDir(n) {
		return false, nil
	}
	if n.given == nil {
		return true, nil
	}
	why, err := w.judgeGiven(n)
	if why != notSkipped {
		w.dirs.release(n, 0, 1) // judgeGiven has opened n
		w.skipGiven(n, n.given, why)
	}
	return why == notSkipped, err
}

// prepare makes n, which is open, ready to be listed.
func (w *worker) prepare(n *node) {
	n.phase = nodeListing
	if w.cold.on.Load() && !n.isLinks() {
		if id, err := n.dir.identity(); err == nil {
			n.device, _ = id.inode()
		}
	}
	if w.buffersEntries() && !n.isLinks() {
		n.buffer = new(entryBuffer)
	}
	if w.calls.visitDir != nil && n.isLinkedDir() {
		w.calls.visitDir(w, n.parent, n.name.String(), func() (sys.Stat, error) { return w.statDir(n.dir, names.Dot) })
	}
}

// reopen reads the ignore files among n's buffered entries and then opens n. N is
// closed while it reads them: open, n would keep a descriptor during a wait for
// another.
func (w *worker) reopen(n *node) bool {
	err := w.readIgnoreFiles(n, n.buffer.git, func(name string) bool { return slices.Contains(n.buffer.ignore, name) })
	if err == nil {
		err = w.open(n)
	}
	if err != nil {
		w.failDir(n, err)
		return false
	}
	n.phase = nodeClassifying
	return true
}

// selectDir reports whether n may be opened. Options.SelectDir may refuse n, and Walk
// may fail to fetch n's metadata. Begin calls it, and not the scan of n's parent, because
// w now uses no directory whose descriptor another worker could wait for.
func (w *worker) selectDir(n *node) bool {
	if w.calls.selectDir == nil || n.parent == nil || n.isLinks() {
		return true
	}
	if !w.acquireSlot() {
		return false
	}
	if !w.calls.selectDir(w, n.parent, n.name.String()) {
		if n.given != nil {
			w.skipGiven(n, n.given, SkippedSelectDir)
		} else {
			w.skipFound(SkippedSelectDir, n, "", fs.ModeDir)
		}
		return false
	}
	w.releaseSlot()
	if w.calls.visitDir != nil && !n.isLinkedDir() && n.given == nil && n.parent.given == nil {
		defer w.pin.drop(&w.dirs)
		if !w.calls.visitDir(w, n.parent, n.name.String(), func() (s sys.Stat, err error) {
			err = w.withDirAside(n.parent, func(d directory) error {
				s, err = d.stat(n.name)
				return err
			})
			return s, err
		}) {
			return false
		}
	}
	return w.cfg.opensDepth(n.depth)
}

// listedQuickly is how many entries a call lists in much less time than knobs.SlowCall.
const listedQuickly = 64

// open opens and pins n. It waits while there is no descriptor. If n stands for several
// links and one of them cannot be resolved for long, that link is a failure of its own.
func (w *worker) open(n *node) error {
	err := w.aside(func() error { return w.retryOnResource(func() error { return w.openOnce(n) }) })
	if err != nil && err != errStopped && n.isLinks() {
		n.link.resolved = true
		err = w.openOnce(n)
	}
	return err
}

func (w *worker) openOnce(n *node) error {
	acquire := func() (int, error) {
		_, err := w.dirs.acquire(n)
		return 1, err
	}
	if n.parent == nil {
		_, err := acquire()
		return err
	}
	return w.cold.await(w.ctx, &w.latency, &w.latency.opens, func() directory { return n.dir }, acquire)
}

// inspect reports whether n, which is open, is to be listed. It is not if it has been
// entered before, because of its device, or if these are unknown.
func (w *worker) inspect(n *node) bool {
	if n.isLinks() {
		return true
	}
	var duplicate bool
	err := w.retryOnInterrupt(func() (err error) {
		duplicate, err = w.links.enteredBefore(n)
		return err
	})
	var s sys.Stat
	if !duplicate && err == nil && w.cfg.oneFilesystem && n.parent != nil {
		s, err = w.statDir(n.dir, names.Dot)
	} else {
		s.Device = w.device
	}
	switch {
	case err != nil:
		w.failDir(n, err)
	case duplicate:
		w.skipFound(SkippedDuplicate, n, "", fs.ModeDir)
	case s.Device != w.device:
		w.skipFound(SkippedOtherFilesystem, n, "", fs.ModeDir)
	default:
		return true
	}
	return false
}

func (w *worker) failDir(n *node, err error) {
	if err != errStopped {
		w.failFound("open", n, "", err)
	}
}

// list takes a part of the listing of n, or of what n has in place of a listing, and
// reports whether there is more.
func (s *scanner) list(n *node) (more bool) {
	w := s.w
	if n.given != nil {
		return s.listGiven(n.given)
	}
	if n.isLinks() {
		for _, name := range n.link.links {
			s.addLink(name, n.link.targets[name])
		}
		return false
	}
	if f, ok := s.dir.(*soleFile); ok {
		s.addRootFile(f.name)
		return false
	}
	l := listings.Get().(*listing)
	err := w.retryOnInterrupt(func() error {
		return w.cold.await(w.ctx, &w.latency, &w.latency.lists, func() directory { return s.dir }, func() (work int, err error) {
			more, err = s.dir.list(l)
			return 1 + len(l.entries)/listedQuickly, err
		})
	})
	for _, err := range l.errs {
		w.failEntry(n, err)
	}
	for i := range l.entries {
		s.add(&l.entries[i])
	}
	l.reset()
	listings.Put(l)
	switch {
	case n.buffer != nil && n.buffer.marked:
		n.buffer.entries, n.buffer.ignore, n.buffer.git = nil, nil, false
		w.skipFound(SkippedMarked, n, "", fs.ModeDir)
		return false
	case err != nil:
		if errors.Is(err, fs.ErrNotExist) { // removed since it was opened
			e := sys.AsError("readdir", err).(*sys.Error)
			err = &sys.Error{Op: e.Op, Err: sys.Changed{Err: e.Err}}
		}
		w.failDir(n, err)
		return false
	case !more:
		w.counts.directories++
	}
	return more
}

// result returns what the scan has found, and gives up the pin on the node unless
// the listing goes on.
func (s *scanner) result(more bool) scanResult {
	w, n := s.w, s.node
	if len(s.links) > 0 {
		s.subs = append(s.subs, n.childForLinks(s.links))
	}
	b, refs := s.batch, len(s.subs)
	if b != nil && w.cold.takes(b) {
		w.cold.addFiles(b, 0)
		b.reset()
		w.spare, b = b, nil
	}
	if w.order != nil && !more {
		n.spans = splitIntoSpans(n, b, s.spans)
		for _, d := range n.spans {
			refs += min(d.files, 1)
		}
		b = nil // the spans have its entries
	}
	if b != nil {
		refs++
	}
	if refs > 0 {
		w.dirs.ref(n, refs)
	}
	r := scanResult{batch: b, subs: s.subs}
	if more {
		r.state = scanMore
	} else {
		w.dirs.release(n, 1, 1)
	}
	s.batch = nil // it is the caller's now; if release panics before this, finish counts its entries
	return r
}

// add takes one entry. It copies the bytes of the name if it keeps the name.
func (s *scanner) add(e *listedEntry) {
	w, name, typ := s.w, e.name, e.typ
	if !names.Valid(name) || !w.cfg.canOpen(name) {
		w.failEntry(s.node, badName(name))
		return
	}
	if typ == sys.TypeUnknown {
		if w.stopped() {
			return
		}
		kept := w.arena.Add(name)
		st, err := w.statDir(s.dir, kept)
		if err != nil {
			w.failFound("stat", s.node, kept.String(), err)
			return
		}
		typ = st.Mode.Type()
	}
	b := s.node.buffer
	if b == nil {
		s.classify(name, names.Name{}, typ, e.inode)
		return
	}
	b.entries = append(b.entries, bufferedEntry{w.arena.Add(name), typ, e.inode})
	if typ == 0 && (slices.Contains(w.cfg.ignoreNames, string(name)) || w.cfg.gitIgnore && string(name) == gitIgnoreFile) {
		b.ignore = append(b.ignore, string(name))
	}
	b.git = b.git || w.cfg.gitIgnore && string(name) == ".git"
	b.marked = b.marked || typ == 0 && slices.Contains(w.cfg.skipMarked, string(name))
}

// canOpen reports whether a name can open nothing but the entry. An fs.FS can list a
// name with a NUL byte, at which a system call would end the name. Windows has another
// separator besides the slash, drives and devices, and removes dots and spaces from the
// end of a name.
func (c *config) canOpen(name []byte) bool {
	if c.fsys != nil {
		return bytes.IndexByte(name, 0) < 0
	}
	return filepath.Separator == '/' ||
		bytes.IndexByte(name, filepath.Separator) < 0 && len(bytes.TrimRight(name, ". ")) == len(name) && filepath.IsLocal(string(name))
}

// classifyBuffer classifies the entries that were buffered.
func (s *scanner) classifyBuffer() {
	entries := s.node.buffer.entries
	s.node.buffer = nil
	if s.w.order != nil {
		compare := func(a, b bufferedEntry) int { return strings.Compare(a.name.String(), b.name.String()) }
		sortUntil(entries, compare, s.w.stopped)
	}
	for _, e := range entries {
		if s.w.stopped() { // a directory may have very many
			return
		}
		s.classify(e.name.Bytes(), e.name, e.typ, e.inode)
	}
}

// sortUntil sorts s, which may be very long. If the run is stopped, it returns soon and
// leaves s in any order: from then on all elements compare as equal, which
// slices.SortFunc takes for sorted.
func sortUntil[E any](s []E, compare func(a, b E) int, stopped func() bool) {
	calls, over := 0, false
	slices.SortFunc(s, func(a, b E) int {
		if calls++; calls%1024 == 0 {
			over = over || stopped()
		}
		if over {
			return 0
		}
		return compare(a, b)
	})
}

// classify takes an entry whose type is known. Kept is its name in the arena, or
// the zero Name.
func (s *scanner) classify(name []byte, kept names.Name, typ fs.FileMode, inode uint64) {
	switch {
	case typ == fs.ModeDir:
		s.addDir(name, kept, inode)
	case typ == fs.ModeSymlink && s.w.cfg.followFiles:
		kept = s.keep(name, kept)
		if s.w.order == nil {
			s.links = append(s.links, kept)
		} else {
			s.addSub(s.node.childForLinks([]names.Name{kept}))
		}
	default:
		s.addFile(name, kept, typ, inode)
	}
}

func (s *scanner) keep(name []byte, kept names.Name) names.Name {
	if kept == (names.Name{}) {
		return s.w.arena.Add(name)
	}
	return kept
}

// addFile takes an entry that is no directory.
func (s *scanner) addFile(name []byte, kept names.Name, typ fs.FileMode, inode uint64) {
	w := s.w
	if why := w.skips.file(s.node, name, typ); why != notSkipped {
		w.skipFound(why, s.node, stringOf(name), typ)
		return
	}
	w.counts.found++
	s.addToBatch(s.keep(name, kept), inode)
}

// addRootFile takes the file that root leads to. The caller has named it: of the
// filters by name and path, only Options.Shard applies.
func (s *scanner) addRootFile(name names.Name) {
	w := s.w
	if !w.filter.inShard(name.String()) {
		w.skipFound(SkippedShard, s.node, name.String(), 0)
		return
	}
	w.counts.found++
	s.addToBatch(name, 0)
}

func (s *scanner) addToBatch(name names.Name, inode uint64) {
	w := s.w
	if s.batch == nil {
		if s.batch = w.spare; s.batch == nil {
			s.batch = &batch{}
		}
		w.spare = nil
		s.batch.node = s.node
	}
	s.batch.entries = append(s.batch.entries, name)
	s.batch.inodes = append(s.batch.inodes, inode)
}

// addLink adds the link name of s.node as an entry of the kind that its target t is.
func (s *scanner) addLink(name names.Name, t target) {
	w := s.w
	why := w.links.excludedTarget(t)
	switch {
	case errors.Is(t.err, fs.ErrNotExist), errors.Is(t.err, syscall.ENOTDIR), errors.Is(t.err, fsinfo.ErrLoop):
		why = w.skips.file(s.node, name.Bytes(), fs.ModeSymlink)
		if why == SkippedNotRegular {
			why = SkippedDangling
		}
		w.skipFound(why, s.node, name.String(), fs.ModeSymlink)
	case t.err != nil:
		w.failFound("readlink", s.node, name.String(), t.err)
	case t.outside && !w.cfg.followOutside:
		w.skipFound(SkippedOutside, s.node, name.String(), fs.ModeSymlink)
	case t.mode == fs.ModeDir && w.cfg.followDirs:
		if why == notSkipped && w.skips.dir(s.node, name.Bytes()) == notSkipped && w.cfg.opensDepth(s.node.depth+1) {
			n := s.node.child(name, 0)
			n.id, n.link = t.id, &linkNode{to: t}
			w.links.addLinked(n)
		}
	case t.mode == fs.ModeDir:
		s.addFile(name.Bytes(), name, fs.ModeSymlink, 0)
	case why != notSkipped:
		w.skipFound(why, s.node, name.String(), t.mode)
	default:
		s.addFile(name.Bytes(), name, t.mode, 0)
	}
}

func (s *scanner) addDir(name []byte, kept names.Name, inode uint64) {
	w := s.w
	if s.node.flat || w.skips.dir(s.node, name) != notSkipped {
		return
	}
	kept = s.keep(name, kept)
	visitLater := w.calls.selectDir != nil // selectDir must return true first, see worker.selectDir
	var sub *node
	if w.cfg.opensDepth(s.node.depth+1) || visitLater && w.calls.visitDir != nil {
		sub = s.node.child(kept, inode)
	}
	s.addSub(sub)
	if w.calls.visitDir == nil || visitLater {
		return
	}
	if w.order != nil {
		w.pos = position{span: s.spans[len(s.spans)-1].span, file: -1}
	}
	if !w.calls.visitDir(w, s.node, kept.String(), func() (sys.Stat, error) { return w.statDir(s.dir, kept) }) && sub != nil {
		s.subs = s.subs[:len(s.subs)-1] // one failure of a directory is enough
		if sub.span != nil {
			sub.span.node, sub.span.expanded = nil, true
		}
	}
}

// addSub takes a directory to be listed, or nil for one that is not.
func (s *scanner) addSub(n *node) {
	if n != nil {
		s.subs = append(s.subs, n)
	}
	if s.w.order == nil {
		return
	}
	d := spanAt{span: &span{node: n, expanded: n == nil}}
	if n != nil {
		n.span = d.span
	}
	if s.batch != nil {
		d.files = len(s.batch.entries)
	}
	s.spans = append(s.spans, d)
}
