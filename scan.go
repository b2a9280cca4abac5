package fileproc

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/fileproc/fileproc/internal/backend"
	"github.com/fileproc/fileproc/internal/gitignore"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/replace"
	"github.com/fileproc/fileproc/internal/sys"
)

// A lister is what workers use of a source. A worker takes three steps before it lists:
// admit, open, inspect. If one of them ends the job, refuse tells why.
type lister interface {
	source
	// admit says whether the job's node may be opened.
	admit(w *worker, j *job) verdict
	// open opens the job's node and pins it.
	open(w *worker, j *job) error
	// inspect says whether the node, which is open, is to be listed.
	inspect(w *worker, j *job) verdict
	// refuse counts what the job would have listed, as v says, and tells the callbacks.
	refuse(w *worker, j *job, v verdict)
	// list lists a part of the entries, and reports whether there are more.
	list(s *scanner) (more bool)
}

// A verdict says whether a job goes on, as it does after the zero verdict, and if not, why.
type verdict struct {
	ends bool
	skip SkipReason // if it is not notSkipped, the job is left out
	err  error      // if it is not nil, the job fails
}

func leftOut(why SkipReason) verdict { return verdict{ends: true, skip: why} }

func failed(err error) verdict { return verdict{ends: err != nil, err: err} }

// untold is the verdict about a job of which the Report says nothing: the run is stopped,
// Walk has told the loop, or the directory is too deep.
var untold = verdict{ends: true}

// scan lists a part of j.
func (w *worker) scan(j *job) scanResult {
	defer w.show()
	if w.short == nil {
		return w.scanPart(j)
	}
	// W waits for a descriptor, in a visit or in another scan. That scan has found no files yet, and goes on later.
	was := w.scanner
	w.scanner = scanner{}
	r := w.scanPart(j)
	w.scanner = was
	return r
}

func (w *worker) scanPart(j *job) scanResult {
	if w.order != nil {
		defer func(was position) { w.pos = was }(w.pos) // of a visit, which scans while it waits for a descriptor
		w.pos = position{span: j.span, file: -1}
	}
	if !w.makeReady(j) {
		j.end(&w.dirs, 0)
		return scanResult{}
	}
	s := &w.scanner
	*s = scanner{w: w, job: j, node: j.node, dir: j.node.dir, subs: s.subs[:0], tracked: s.tracked, trackedIn: s.trackedIn}
	more := j.phase == jobListing && j.source.(lister).list(s)
	if j.buffer != nil && !more {
		if j.buffer.hasRules() || s.judgeBuffer() {
			j.phase = jobBuffered
			j.pause(&w.dirs) // reading files may have to wait
			return scanResult{state: scanAgain}
		}
		s.classifyBuffer()
	}
	return s.result(more)
}

// makeReady makes j ready to be listed, unless it is, and reports whether it could.
func (w *worker) makeReady(j *job) bool {
	switch j.phase {
	case jobNew:
		from := j.source.(lister)
		v := from.admit(w, j)
		if !v.ends {
			from = j.source.(lister) // see argument.admit
			v = failed(from.open(w, j))
			j.opened(&w.dirs, !v.ends)
		}
		if !v.ends {
			v = from.inspect(w, j)
		}
		if v.ends {
			if v.err != errStopped {
				from.refuse(w, j, v)
			}
			return false
		}
		j.phase = jobListing
	case jobBuffered:
		return w.reopen(j)
	}
	return true
}

// reopen reads the ignore files among j's buffered entries, and git's index if that must be known, and
// then opens j's node, unless the tag among the entries leaves it out. The node is closed while
// reopen reads: open, it would keep a descriptor during a wait for another.
func (w *worker) reopen(j *job) bool {
	b := j.buffer
	if b.tagged {
		if w.hasCacheTag(j.node) {
			w.foundSkipped(SkippedMarked, j.node, "", fs.ModeDir)
			return false
		}
		w.listedDir()
	}
	err := w.readIgnoreFiles(j.node, b.git, func(name string) bool { return slices.Contains(b.ignore, name) })
	if err == nil && b.needsIndex {
		err = w.readIndex(j.node)
	}
	b.ignore, b.git, b.tagged, b.needsIndex = nil, false, false, false
	if err == nil {
		err = w.open(j.node)
	}
	if err != nil {
		w.foundFailedDir(j.node, err)
		return false
	}
	j.opened(&w.dirs, true)
	return true
}

// askSelectDir asks Options.SelectDir about n. A job's admit calls it, and not the scan that
// found n, because w now uses no directory whose descriptor another worker could wait for.
func (w *worker) askSelectDir(n *node) verdict {
	if w.calls.selectDir == nil || n.parent == nil {
		return verdict{}
	}
	if !w.acquireSlot() {
		return untold
	}
	selected := w.calls.selectDir(w, n.parent, n.name.String())
	w.releaseSlot()
	if !selected {
		return leftOut(SkippedSelectDir)
	}
	return verdict{}
}

// admitDir is admit for a directory that Walk does not yield before it is open: it asks
// Options.SelectDir about n, and tells hooks.OnDir of n.
func (w *worker) admitDir(n *node) verdict {
	v := w.askSelectDir(n)
	if !v.ends {
		w.tellOnDir(n)
	}
	return v
}

func (d foundDir) admit(w *worker, j *job) verdict {
	n := j.node
	v := w.askSelectDir(n)
	switch {
	case v.ends:
	case w.cfg.allTypes:
		v = w.deliverDir(n)
	case w.calls.selectDir != nil && n.parent != nil:
		v = w.tellWalk(n)
	}
	switch {
	case v.ends:
	case !w.cfg.opensDepth(n.depth): // it was only to be told of: see addSubDir
		return untold
	default:
		w.tellOnDir(n)
	}
	return v
}

// deliverDir passes the directory n to fn, before n is opened, which may fail. Root has been
// opened by then.
func (w *worker) deliverDir(n *node) verdict {
	f := &File{w: &w.access, node: n.parent, name: n.name, typ: fs.ModeDir}
	if n.parent == nil {
		f.node = n
	}
	defer w.pin.drop(&w.dirs)
	if w.filter.shards > 1 && !w.filter.inShard(f.Rel()) {
		w.foundSkipped(SkippedShard, n, "", fs.ModeDir)
	} else {
		if w.cfg.stat {
			if err := w.aside(f.fetchListed); err != nil {
				if err != errStopped {
					w.foundFailedAs(FailedDir, "stat", f.node, f.name.String(), err)
				}
				return untold
			}
		}
		w.call(f)
		w.found(1) // after call, which may panic
	}
	return verdict{ends: w.stopped()}
}

// tellWalk tells Walk of the directory n, for which SelectDir has returned true. Without
// SelectDir, addSubDir has told Walk.
func (w *worker) tellWalk(n *node) verdict {
	if w.calls.visitDir == nil {
		return verdict{}
	}
	defer w.pin.drop(&w.dirs)
	return verdict{ends: !w.calls.visitDir(w, n.parent, n.name.String(), func() (s sys.Stat, err error) {
		err = w.withDirAside(n.parent, func(d backend.Directory) error {
			s, err = d.Stat(n.name)
			return err
		})
		return s, err
	})}
}

// tellOnDir tells hooks.OnDir of a directory that is to be listed. Root's is told before
// it is opened.
func (w *worker) tellOnDir(n *node) {
	if w.calls.onDir != nil && n.parent != nil {
		w.calls.onDir(n.dirPath())
	}
}

// inspect ends the job if the directory has been entered before, because of its device, or
// if these are unknown.
func (d foundDir) inspect(w *worker, j *job) verdict {
	var duplicate bool
	n := j.node
	err := w.retryOnInterrupt(func() (err error) {
		duplicate, err = w.links.enteredBefore(n)
		return err
	})
	var s sys.Stat
	if err == nil && w.cfg.oneFilesystem && n.parent != nil {
		s, err = w.statDir(n.dir, names.Dot)
	} else {
		s.Device = n.tree.device
	}
	switch {
	case err != nil:
		return failed(err)
	case duplicate:
		return leftOut(SkippedDuplicate)
	case s.Device != n.tree.device:
		return leftOut(SkippedOtherFilesystem)
	}
	w.noteDevice(n)
	if w.buffersEntries() {
		j.buffer = new(entryBuffer)
	}
	j.fromIndex = w.cfg.namesFromIndex && !w.cold.isOn()
	return verdict{}
}

// noteDevice finds out, in the cold mode, which disk the files of n are on.
func (w *worker) noteDevice(n *node) {
	if !w.cold.isOn() {
		return
	}
	if id, err := n.dir.Identity(); err == nil {
		n.device, _ = id.Inode()
	}
}

func (d foundDir) open(w *worker, j *job) error { return w.open(j.node) }

func (d foundDir) refuse(w *worker, j *job, v verdict) {
	n := j.node
	switch {
	case v.err != nil:
		if gone, _ := w.isGone(n.parent, n.name, true); !gone {
			w.foundFailedDir(n, v.err)
		}
	case v.skip != notSkipped:
		w.foundSkipped(v.skip, n, "", fs.ModeDir)
	}
}

func (d foundDir) list(s *scanner) (more bool) {
	if d.parts != nil {
		s.node = d.parts.of
	}
	if r, n := s.node.tree.tracked, s.node; r != nil && s.trackedIn != n {
		s.trackedIn = n
		r.index.Load().In(&s.tracked, string(r.AppendPath(nil, s.w.entryFilter.path.dir(n))))
	}
	if s.job.fromIndex && s.tracked.Known {
		s.addTracked()
		return false
	}
	if more = s.listDir(d.parts); more {
		s.divide()
	}
	return more
}

// addTracked adds what git's index has in s.node as if that listed it. Only an open shows what an entry is.
func (s *scanner) addTracked() {
	s.replaced = s.w.replaced.Load()
	for i := range s.tracked.Entries {
		if name, typ := s.tracked.Entries[i].NameAndType(); !s.w.stopped() {
			s.add(&backend.Entry{Name: bytesOf(name), Type: typ})
		}
	}
	s.listedAll()
}

// leastHalved is how many bytes of a directory are halved at least: some 1,500 entries.
const leastHalved = 64 << 10

// divide makes a job of the latter half of what is left of the listing, if a worker has nothing to
// do. Ext4 reads the blocks of a directory one after the other, in an order that is none on the
// disk. So several workers that each wait for a block take a fraction of the time.
func (s *scanner) divide() {
	w, j := s.w, s.job
	d, ok := s.dir.(backend.Divisible)
	if !ok || j.buffer != nil || w.short != nil || !w.pool.wantsPart(w.cold.partsWanted()) {
		return
	}
	if latter, ok := d.Halve(leastHalved); ok {
		s.part = j.newPart()
		w.dirs.insert(s.part.node, latter)
	}
}

// A rootFile is the source of a root that leads to a file.
type rootFile struct{ foundDir }

func (f rootFile) inspect(*worker, *job) verdict { return verdict{} }

// admit passes no directory to fn: there is none.
func (f rootFile) admit(*worker, *job) verdict { return verdict{} }

// list lists the file that root leads to. The caller has named it: of the filters by name
// and path, only Options.Shard applies.
func (f rootFile) list(s *scanner) (more bool) {
	w, name := s.w, s.dir.(*backend.SoleFile).Name()
	if !w.filter.inShard(name.String()) {
		w.foundSkipped(SkippedShard, s.node, name.String(), 0)
		return false
	}
	s.addToBatch(name, 0)
	return false
}

// listedQuickly is how many entries a call lists in much less time than knobs.SlowCall.
const listedQuickly = 64

// open opens and pins n. It waits while there is no descriptor.
func (w *worker) open(n *node) error {
	return w.aside(func() error { return w.retryOnResource(func() error { return w.openOnce(n) }) })
}

func (w *worker) openOnce(n *node) error {
	acquire := func() (int, error) {
		_, err := w.dirs.acquire(n)
		return 1, err
	}
	if n == w.root { // which is open
		_, _ = acquire()
		return nil
	}
	return w.cold.await(w.ctx, &w.latency, &w.latency.opens, func() backend.Directory { return n.dir }, acquire)
}

func (w *worker) foundFailedDir(n *node, err error) {
	if err != errStopped {
		w.foundFailed("open", n, "", err)
	}
}

// listDir lists some entries of a directory, or of one of its parts, and reports whether there are more.
func (s *scanner) listDir(parts *parts) (more bool) {
	w, n := s.w, s.node
	l := backend.NewListing()
	err := w.retryOnInterrupt(func() error {
		return w.cold.await(w.ctx, &w.latency, &w.latency.lists, func() backend.Directory { return s.dir }, func() (work int, err error) {
			more, err = s.dir.List(l)
			return 1 + len(l.Entries)/listedQuickly, err
		})
	})
	for _, err := range l.Errs {
		w.foundFailedAs(FailedFile, "readdir", n, "", err)
	}
	s.replaced = w.replaced.Load() // after list: what it has listed anew was replaced before
	for i := range l.Entries {
		s.add(&l.Entries[i])
	}
	l.Release()
	switch {
	case s.job.buffer != nil && s.job.buffer.marked:
		*s.job.buffer = entryBuffer{}
		w.foundSkipped(SkippedMarked, n, "", fs.ModeDir)
		return false
	case err != nil:
		if errors.Is(err, fs.ErrNotExist) { // removed since it was opened
			e := sys.AsError("readdir", err).(*sys.Error)
			err = &sys.Error{Op: e.Op, Err: sys.Changed{Err: e.Err}}
		}
		if parts.fail() {
			w.foundFailedDir(n, err)
		}
		return false
	case !more && parts.end():
		s.listedAll()
	}
	return more
}

// listedAll says that all entries of the directory have been listed.
func (s *scanner) listedAll() {
	w, n := s.w, s.node
	atomic.StoreUint32(&n.listed, 1) // before the load: see replace.Done.Forget
	if r := w.replaced.Load(); r != nil {
		r.Forget(n)
	}
	if s.job.buffer == nil || !s.job.buffer.tagged { // else reopen counts it
		w.listedDir()
	}
}

// jobRefs returns how many references to the node the new jobs need.
func (s *scanner) jobRefs() (refs int) {
	if s.part != nil {
		refs++
	}
	for _, sub := range s.subs {
		if sub.needsParent {
			refs++
		}
	}
	return refs
}

// result returns what the scan has found, and gives up the pin on the node unless
// the listing goes on.
func (s *scanner) result(more bool) scanResult {
	w, n := s.w, s.node
	if len(s.links) > 0 {
		s.subs = append(s.subs, newLinksJob(&w.links, n, s.links))
	}
	b := s.batch
	if b != nil && w.cold.listsAhead(b) {
		w.cold.addFiles(b, 0, len(b.entries))
		b.reset()
		w.spare, b = b, nil
	}
	r, refs := scanResult{subs: s.subs, part: s.part}, s.jobRefs()
	switch {
	case s.givenSpans != nil:
		r.spans = s.givenSpans // of several directories, each of which is referred to
	case w.order != nil && !more:
		r.spans = splitIntoSpans(n, b, s.spans) // they have the batch's entries
		for _, d := range r.spans {
			refs += min(d.files, 1)
		}
	case b != nil:
		r.batch = b
		refs++
	}
	if s.other != nil {
		refs++
	}
	j, isLast := s.job, !more && n == s.job.node // what the job holds goes to others
	if refs > 0 && !isLast {
		w.dirs.ref(n, refs)
		refs = 0
	}
	if more {
		r.state = scanMore
	} else {
		if isLast && r.batch != nil { // w visits the batch next, unless it waits for a descriptor
			w.pin.inherit(&w.dirs, n)
			j.pinned = false
		}
		j.end(&w.dirs, refs)
	}
	s.batch, s.part = nil, nil // it is the caller's now; if end panics before this, finish counts its entries
	for _, d := range s.spans {
		w.found(d.span.files)
	}
	if s.other != nil {
		w.foundBatch(s.other)
	}
	return r
}

// add adds one entry. It copies the bytes of the name if it keeps the name.
func (s *scanner) add(e *backend.Entry) {
	w, name, typ := s.w, e.Name, e.Type
	if !names.Valid(name) || !w.cfg.canOpen(name) {
		w.foundFailedAs(FailedFile, "readdir", s.node, "", backend.BadName(name))
		return
	}
	if len(name) == replace.NameLength && replace.IsTemporary(name) {
		w.noteTemporary(s.node, name)
		return
	}
	if typ == sys.TypeUnknown {
		if w.stopped() {
			return
		}
		kept := w.arena.Add(name)
		st, err := w.statDir(s.dir, kept)
		if err != nil {
			w.foundFailed("stat", s.node, kept.String(), err)
			return
		}
		typ = st.Mode.Type()
	}
	b := s.job.buffer
	if b != nil {
		s.noteRules(b, name, typ)
	}
	switch comes := s.trackedIn != s.node || s.tracked.Has(name, typ); {
	case comes && b == nil:
		s.classify(name, names.Name{}, typ, e.Inode)
	case comes:
		b.entries = append(b.entries, bufferedEntry{name: w.arena.Add(name), typ: typ, inode: e.Inode})
	}
}

// noteRules notes in b whether the entry name decides about the other entries.
func (s *scanner) noteRules(b *entryBuffer, name []byte, typ fs.FileMode) {
	w := s.w
	if typ == 0 && (slices.Contains(w.cfg.ignoreNames, string(name)) || w.cfg.gitIgnore && string(name) == gitIgnoreFile) {
		b.ignore = append(b.ignore, string(name))
	}
	b.git = b.git || w.cfg.gitIgnore && string(name) == ".git"
	if typ == 0 && slices.Contains(w.cfg.marks(s.node), string(name)) {
		b.tagged = b.tagged || string(name) == cacheTag
		b.marked = b.marked || string(name) != cacheTag
	}
}

// judgeBuffer reports whether git's index must be read before the buffered entries are classified:
// a rule of git ignores one of them. It drops entries that are left out anyway, and marks those that are not.
func (s *scanner) judgeBuffer() (needsIndex bool) {
	w, n, b := s.w, s.node, s.job.buffer
	if needsNoIndex(n) {
		return false
	}
	f, kept := &w.entryFilter, b.entries[:0]
	for _, e := range b.entries {
		if w.stopped() {
			return false
		}
		why := notSkipped
		if e.typ == fs.ModeSymlink && w.cfg.followFiles {
			w.needsIndex(n, e.name, e.typ)
		} else {
			f.unread = false
			rules := n.ignore
			if e.typ == fs.ModeDir {
				why, rules = f.dir(n, e.name.Bytes())
			} else {
				why = f.file(n, e.name.Bytes(), e.typ)
			}
			e.judged = why == notSkipped && rules == n.ignore
		}
		needsIndex = needsIndex || f.unread
		switch {
		case why == notSkipped || f.unread:
			kept = append(kept, e)
		case e.typ != fs.ModeDir:
			w.foundSkipped(why, n, e.name.String(), e.typ)
		}
	}
	b.entries, b.needsIndex = kept, needsIndex
	return needsIndex
}

// classifyBuffer classifies the entries that were buffered.
func (s *scanner) classifyBuffer() {
	entries := s.job.buffer.entries
	s.job.buffer = nil
	if s.w.order != nil {
		compare := func(a, b bufferedEntry) int { return strings.Compare(a.name.String(), b.name.String()) }
		names.SortUntil(entries, compare, s.w.stopped)
	}
	for _, e := range entries {
		if s.w.stopped() { // a directory may have very many
			return
		}
		switch {
		case !e.judged:
			s.classify(e.name.Bytes(), e.name, e.typ, e.inode)
		case e.typ == fs.ModeDir:
			s.addSubDir(e.name, e.inode, s.node.ignore)
		default:
			s.addKept(e.name, e.typ, e.inode)
		}
	}
}

// classify adds an entry whose type is known. Kept is its name in the arena, or
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
			s.addSub(newLinksJob(&s.w.links, s.node, []names.Name{kept}))
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

// addFile adds an entry that is no directory, unless the filters leave it out.
func (s *scanner) addFile(name []byte, kept names.Name, typ fs.FileMode, inode uint64) {
	w := s.w
	if why := w.entryFilter.file(s.node, name, typ); why != notSkipped {
		w.foundSkipped(why, s.node, stringOf(name), typ)
		return
	}
	if kept = s.keep(name, kept); typ == 0 && s.replaced == nil {
		s.addToBatch(kept, inode) // without another call: 2 % of a run that only lists
	} else {
		s.addKept(kept, typ, inode)
	}
}

func (s *scanner) addKept(name names.Name, typ fs.FileMode, inode uint64) {
	if s.replaced != nil && s.replaced.Has(s.node, name.Bytes()) {
		return
	}
	if typ != 0 {
		s.addOther(name, typ)
	} else {
		s.addToBatch(name, inode)
	}
}

// addOther adds what is neither a regular file nor a directory. It is in a batch of its
// own: what fetches files together would open it, and the open of a device may have an
// effect. The entry counts as found when the scan is over.
func (s *scanner) addOther(name names.Name, typ fs.FileMode) {
	b := s.other
	if b == nil {
		b = &batch{node: s.node}
	}
	b.entries, b.types = append(b.entries, name), append(b.types, typ)
	if s.w.order == nil {
		s.other = b
		return
	}
	b.span = &span{batch: b, files: 1}
	s.addSpan(b.span)
}

// addToBatch adds a file to be visited.
func (s *scanner) addToBatch(name names.Name, inode uint64) {
	w := s.w
	w.found(1)
	if s.batch == nil {
		s.batch = w.emptyBatch(s.node)
	}
	s.batch.entries = append(s.batch.entries, name)
	s.batch.inodes = append(s.batch.inodes, inode)
}

func (s *scanner) addDir(name []byte, kept names.Name, inode uint64) {
	if s.job.flat {
		return
	}
	if why, rules := s.w.entryFilter.dir(s.node, name); why == notSkipped {
		s.addSubDir(s.keep(name, kept), inode, rules)
	}
}

// addSubDir adds a directory that is not left out, in which these ignore files apply.
func (s *scanner) addSubDir(kept names.Name, inode uint64, rules *gitignore.Chain) {
	w := s.w
	if s.job.flat {
		return
	}
	visitLater := w.calls.selectDir != nil // selectDir must return true first: see foundDir.admit
	var sub *job
	if w.cfg.opensDepth(s.node.depth+1) || visitLater && w.calls.visitDir != nil || w.cfg.allTypes {
		sub = newJob(s.node.child(kept, inode), foundDir{})
		sub.node.ignore, sub.needsParent = rules, true
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
			sub.span.job, sub.span.expanded = nil, true
		}
	}
}

// addSub adds a job, or nil for a directory that is not to be listed.
func (s *scanner) addSub(j *job) {
	if j != nil {
		s.subs = append(s.subs, j)
	}
	if s.w.order == nil {
		return
	}
	d := &span{job: j, expanded: j == nil}
	if j != nil {
		j.span = d
	}
	s.addSpan(d)
}

// addSpan adds a span that comes behind the files found so far.
func (s *scanner) addSpan(of *span) {
	d := spanAt{span: of}
	if s.batch != nil {
		d.files = len(s.batch.entries)
	}
	s.spans = append(s.spans, d)
}
