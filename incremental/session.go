package incremental

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/incremental/internal/cachefile"
	"github.com/fileproc/fileproc/internal/fsinfo"
	"github.com/fileproc/fileproc/internal/names"
)

// A Result is what a run of a Session has found out about one file.
type Result[T any] struct {
	Rel   string // the path relative to root, with slashes
	Kind  Kind
	Value T // what fn returned, unless Kind is Deleted
}

// A Kind says how a file compares with what earlier runs have found out.
type Kind int

const (
	Unchanged Kind = iota // the result is that of an earlier run
	New                   // nothing was known of this path
	Changed               // fn was called again, or the file could not be read before
	Deleted               // there is no result any more: the file is gone, or is no longer selected
)

func (k Kind) String() string {
	if names := [...]string{"unchanged", "new", "changed", "deleted"}; k >= 0 && int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("Kind(%d)", int(k))
}

// A Session is an open cache file for long-running programs. They run it over all files
// or over named files, as often as they like, and save when they like. A run knows what
// earlier runs have found out, saved or not.
//
// A session knows which files have a result. So a run yields the files that no longer
// have one: files that are gone, that fn now skips, or that an option now leaves out, as
// after an edit of an ignore file. A session keeps all paths in memory, and new results
// at least until the next Save.
//
// The result of a file that was processed less than two seconds after its last write cannot
// be kept yet: [Session.Unsettled] names such files. A later run over one does not call fn
// if the content is the same. A failure of fn stands until the file changes. If neither
// metadata nor content can show that a file is unchanged, a run calls fn, and the Kind is
// Unchanged if fn returns an equal result. A result that cannot be encoded stays in memory.
//
// Only one goroutine at a time may call the methods, and not within the loop over a run.
type Session[T any] struct {
	r    *run[T]
	opts fileproc.Options

	below func(name string) string // see names.Below

	runs      uint32 // number of the last run
	full      bool   // a full run has ended
	linked    bool   // a file with several names was met
	running   bool
	recent    map[string]*recent // by path: what is known beyond the cache file
	files     fileSet
	failures  map[failureKey]failure // what could not be opened or read
	gone      map[string]bool        // deleted files that the cache file may have; true: perhaps by a record that this session has added
	kept      int                    // how many outcomes were both kept and noted in recent since the load
	unsettled map[string]time.Time
	rules     *rules // the rules that runs have met since the last run over all files began
}

// A failureKey says what a failure is about: a file as one that is processed, or as a rule, which says what is ignored.
type failureKey struct {
	rel  string
	rule string // the text of the failure of a rule: a file may have several, as a configuration and as an ignore file
}

type failure struct {
	err *fileproc.Failure
	run uint32
}

// Open opens the cache file inc.File for runs that are like [Stream] with these
// arguments. Root need not exist. Inc.Deleted is not called: runs yield deleted files.
// Opts.Files must be nil: Run takes the names, which are relative to root. So must
// opts.Roots. Each run fills in opts.Report.
func Open[T any](root string, inc Options[T], opts fileproc.Options, fn func(*fileproc.File) (T, error)) (*Session[T], error) {
	if opts.Files != nil {
		return nil, errors.New("incremental: Options.Files is set: a run of a Session is given the names")
	}
	if fn == nil {
		return nil, errors.New("incremental: fn is nil")
	}
	inc.Deleted = nil
	runOpts := opts
	r, err := newRun(root, &inc, &runOpts, fn, true)
	if err != nil {
		return nil, err
	}
	s := &Session[T]{r: r, opts: opts, below: names.Below(root, opts.FS != nil), recent: map[string]*recent{},
		failures: map[failureKey]failure{}, gone: map[string]bool{}, unsettled: map[string]time.Time{}, rules: newRules(root, core.Hooks(&opts).OnDir)}
	r.lookup, r.notes = s.lookup, true
	return s, nil
}

// Run looks at all files below root if names is nil. Else it looks at what each name leads
// to now: at a file, at all files below a directory, or, if nothing is there, at the files
// that are known to have been there. A name may begin with "./", as find prints it, and may be
// absolute. The name of an ignore file, or of a file in SkipMarked,
// stands for its directory. The name of a file that decides for more than its directory,
// such as .git/config, stands for all files. Run yields the results of all files that it has
// looked at, unchanged ones too, and then the deleted files, in the order of their paths. The
// first run over all files also yields the files that are in the cache file and not in the tree.
//
// Run yields a failure with the path it is about, unless opts.OnError is set, and only once
// while the failure stays the same. If an ignore file below root cannot be read, the
// failure comes with an empty path, since a result for the path may remain valid. While a
// directory cannot be read, the results of the files below it remain valid, and while root
// cannot be read, all results do. A file that vanishes before it is opened is not a
// failure.
//
// The cost of a run over names depends on the names: it does not list the directories
// between root and the names, except with MaxDepth and OneFilesystem. A run over names
// looks at all files if Symlinks is not SymlinksSkip. It also does so once a name has led
// to a file with several hard links, because the file may have been written through another
// of them.
//
// A run that ends early, by a cancel or a break of the loop, has to be repeated.
func (s *Session[T]) Run(ctx context.Context, names []string) iter.Seq2[Result[T], error] {
	return func(yield func(Result[T], error) bool) {
		if s.running {
			yield(Result[T]{}, errBusy)
			return
		}
		s.running = true
		defer func() { s.running = false }()
		sc, err := s.scopeOf(names)
		if err != nil {
			yield(Result[T]{}, err)
			return
		}
		s.runs++
		if sc.all {
			s.r.inspectRoot()
			s.rules = newRules(s.r.root, core.Hooks(&s.opts).OnDir)
		}
		if sc.all || len(sc.files)+len(sc.trees) > 0 {
			if !s.runFiles(ctx, sc, yield) {
				return
			}
		} else if ctx.Err() != nil {
			yield(Result[T]{}, context.Cause(ctx))
			return
		} else {
			s.r.report = fileproc.Report{Skipped: map[fileproc.SkipReason]int64{}}
			s.r.giveReport()
		}
		s.yieldDeleted(ctx, sc, yield)
	}
}

// scopeOf looks up what names lead to.
func (s *Session[T]) scopeOf(names []string) (*scope, error) {
	sc := newScope(names == nil || s.opts.Symlinks != fileproc.SymlinksSkip)
	there := s.r.gone.existence()
	var rels []string
	for _, name := range names {
		rel, err := s.placeOf(name)
		if err != nil {
			return nil, err
		}
		sc.all = sc.all || there.standsForAll(rel)
		rels = append(rels, rel)
	}
	for _, it := range there.lstatAll(rels, len(s.r.workers)) {
		s.linked = s.linked || it.err == nil && fsinfo.Names(it.info) > 1
		sc.put(it, there)
	}
	// A file may have been written by another of its names, even by a name that is missing by now.
	sc.all = sc.all || s.linked && len(sc.files)+len(sc.missing) > 0
	// Without root, a missing file is not known to be deleted: a run over all files yields what is wrong with root.
	if sc.all || s.r.gone.existence().hasDir(".") != yes {
		return newScope(true), nil
	}
	sc.dropNested()
	sc.lists = s.opts.MaxDepth != 0 || s.opts.OneFilesystem // fileproc does not combine these with Files
	return sc, nil
}

// placeOf returns the path of what a run must look at because of name: of a directory, or
// root's, if the file of that name decides what is selected there.
func (s *Session[T]) placeOf(name string) (string, error) {
	rel := strings.TrimSuffix(s.below(name), "/")
	if rel != "." && !isBelow(rel) {
		return "", fmt.Errorf("incremental: %q is not the path of a file below root: %w", name, fs.ErrInvalid)
	}
	switch {
	case slices.Contains(s.opts.IgnoreFiles, rel) || s.opts.GitIgnore && rel == ".git/info/exclude" || s.rules.names[rel]:
		rel = "." // it decides for all of root
	case decides(&s.opts, rel):
		rel = path.Dir(rel)
	}
	return rel, nil
}

// An item is what a worker sends to the loop.
type item[T any] struct {
	rel, name string
	value     T
	called    bool // fn was called
	isKnown   bool // fn was called, and the cache file had something for this path; runs ask only until a full run has ended
	silent    bool // not yielded: a failure that has been yielded before
}

// runFiles yields the results, and reports whether the run has come to its end.
func (s *Session[T]) runFiles(ctx context.Context, sc *scope, yield func(Result[T], error) bool) bool {
	r, opts := s.r, s.opts
	r.stopped.Store(false)
	r.saved.Store(0)
	sc.limit(&opts)
	if sc.all {
		r.store.Links = uint64(opts.Symlinks)
	}
	if onError := opts.OnError; onError != nil {
		opts.OnError = func(err error) error { // the calls come one at a time
			if s.isNews(sc, err.(*fileproc.Failure)) {
				return onError(err)
			}
			return nil
		}
	}
	if opts.FS == nil {
		core.Hooks(&opts).OnRule = s.rules.note
	}
	r.prepare(&opts)
	core.Hooks(&opts).OnBinary = s.onBinary
	completed := true
	for it, err := range fileproc.Stream(ctx, r.root, opts, s.visit) {
		if f := (*fileproc.Failure)(nil); errors.As(err, &f) {
			if opts.OnError == nil && !s.isNews(sc, f) { // else OnError has stopped the run
				continue
			}
			if rel := s.relOf(f.Path); !(core.IsOfRule(f) && isBelow(rel)) {
				it.rel = rel
			}
		} else if err != nil {
			completed = false
		}
		res := Result[T]{Rel: it.rel, Value: it.value}
		if err == nil {
			if res.Kind = s.kindOf(it); it.silent {
				continue
			}
		}
		if !yield(res, err) {
			completed = false
			break
		}
	}
	s.merge(sc)
	r.giveReport()
	return completed && ctx.Err() == nil && !r.stopped.Load()
}

// kindOf returns what has become of the file of it, and notes that the run has met the file.
func (s *Session[T]) kindOf(it item[T]) (kind Kind) {
	_, wasDeleted := s.gone[it.rel]
	isNew := s.met(it.rel, it.name)
	_, failed := s.failures[failureKey{rel: it.rel}]
	switch {
	case !isNew && (failed || it.called) || it.isKnown && !wasDeleted:
		return Changed
	case it.called || s.full && isNew || wasDeleted:
		return New
	}
	return kind
}

// merge takes in what the workers have found out, now that none of them runs.
func (s *Session[T]) merge(sc *scope) {
	r := s.r
	for rel := range s.unsettled {
		if sc.has(rel) {
			sc.young = append(sc.young, rel)
			delete(s.unsettled, rel)
		}
	}
	for i := range r.workers {
		w := &r.workers[i]
		for _, e := range w.recent {
			s.setRecent(e.rec.Path, e)
		}
		w.recent, w.dir = nil, nil // they keep memory of the run
	}
	if !r.inOrder {
		r.store.Rewrites() // takes the workers' buffers
		r.inOrder = true
	}
	maps.Copy(s.failures, sc.failures)
	for rel := range sc.failed {
		s.met(rel, path.Base(rel))
	}
	for rel := range sc.changed {
		s.setRecent(rel, &recent{state: recentUnsettled, due: time.Now()})
	}
	r.report.Found -= sc.gone
	r.report.Failed -= sc.gone
}

func (s *Session[T]) setRecent(rel string, e *recent) {
	s.recent[rel] = e
	switch {
	case e.state == recentKept:
		s.kept++
	case !e.due.IsZero():
		s.unsettled[rel] = e.due
	}
}

// lookup is run.lookup. It makes no path for f unless something is known beyond the cache file.
func (s *Session[T]) lookup(w *workerState[T], f *fileproc.File, inode uint64) past {
	p := s.r.stored(w, f, inode)
	if len(s.recent) > 0 {
		if e := s.recent[f.Rel()]; e != nil {
			return e.past()
		}
	}
	return p
}

// visit is the function that fileproc calls for each file.
func (s *Session[T]) visit(f *fileproc.File) (it item[T], err error) {
	r, w := s.r, &s.r.workers[f.Worker()]
	it.rel, it.name = f.Rel(), f.Name()
	e := s.recent[it.rel]
	v, id, sum := s.judgeRead(w, f, e)
	if v == verdictTake {
		it.value, err = r.taken(w, f)
	} else {
		c := r.call(w, f, id)
		it.value, err = c.value, c.err
		if c.written != nil {
			sum = &c.written.sum
		}
		if it.called = !e.isRepeated(c.rec, c.held); !it.called && c.rec.Outcome == outcomeFailed {
			err = errStillFails
		}
		switch {
		case c.isLast():
		case c.verdictAfter(v) == verdictCallOnly:
			s.remember(w, c.rec, nil, c.held)
			r.note(w, f)
		case !s.keep(w, f, c.rec, sum, c.held):
			r.note(w, f)
		}
	}
	if it.called && !s.full {
		_, _, it.isKnown = r.store.Lookup(it.rel)
		it.isKnown = it.isKnown && !e.isDeleted()
	}
	if err == errStillFails {
		it.silent, err = true, nil
	}
	return it, err
}

// judgeRead is run.judgeRead for a file of which e is known, which may be nil. It also
// returns the sum of the content if the session will compare it.
func (s *Session[T]) judgeRead(w *workerState[T], f *fileproc.File, e *recent) (v verdict, id cachefile.Identity, sum *[16]byte) {
	if v, id = s.r.judgeRead(w, f); v != verdictCall {
		return v, id, nil
	}
	sum = s.sumOf(f, id, e)
	if !e.isSame(id, sum) && !s.isStill(f.Rel(), e, id) || !s.r.take(w, e.past()) {
		return verdictCall, id, sum
	}
	rec := e.rec
	rec.ID = id
	s.keep(w, f, rec, sum, e.value)
	return verdictTake, id, nil
}

// sumOf returns the sum of the content of f if the session will compare it: because f is too
// new to be kept, or was so before. Otherwise it returns nil.
func (s *Session[T]) sumOf(f *fileproc.File, id cachefile.Identity, e *recent) *[16]byte {
	if s.opts.ReadSize == fileproc.NoRead || f.Truncated() || s.r.isSettled(id) && (e == nil || e.sum == nil) {
		return nil
	}
	sum := sha256.Sum256(f.Data())
	return (*[16]byte)(sum[:16])
}

// isStill reports whether e, an unsettled outcome without a sum of the content, still stands for the file rel: its metadata
// is still id, and the hook IsStill says that nothing has happened to it since.
func (s *Session[T]) isStill(rel string, e *recent, id cachefile.Identity) bool {
	still := core.Hooks(&s.opts).IsStill
	return still != nil && e.isUnsettled() && e.sum == nil && isSameID(e.rec.ID, id) && still(rel)
}

// onBinary is plumbing.Hooks.OnBinary.
func (s *Session[T]) onBinary(f *fileproc.File) {
	w := &s.r.workers[f.Worker()]
	if rec, keeps := s.r.binary(f); !keeps || !s.keep(w, f, rec, nil, nil) {
		s.r.note(w, f)
	}
}

// keep keeps rec, the outcome for f, in the cache file if it can, and in memory. It
// reports whether the cache file gets it. Sum and value are as in recent.
func (s *Session[T]) keep(w *workerState[T], f *fileproc.File, rec cachefile.Record, sum *[16]byte, value any) bool {
	switch s.r.keep(f, &rec) {
	case kept:
		w.addRecent(&recent{rec: rec})
		return true
	case hasChanged:
		s.remember(w, rec, nil, value)
	case notKept:
		s.remember(w, rec, sum, value)
	}
	return false
}

// remember keeps rec, an outcome that the cache file does not get, in memory.
func (s *Session[T]) remember(w *workerState[T], rec cachefile.Record, sum *[16]byte, value any) {
	e := &recent{rec: rec, sum: sum, state: recentUnsettled, value: value}
	switch {
	case rec.ID == cachefile.Identity{}: // it cannot be compared
	case rec.Outcome >= outcomeFailed && (rec.ID.Content != noContent || s.r.isSettled(rec.ID)):
		e.state = recentHeld
	case rec.Outcome != outcomeFailed:
		e.due = time.Unix(0, rec.ID.Newest()).Add(fsinfo.Settled)
	}
	w.addRecent(e)
}

// met notes that rel has a result or a failure, and reports whether it had neither.
func (s *Session[T]) met(rel, name string) bool {
	delete(s.gone, rel)
	return s.files.meet(rel, name, s.runs)
}

// isNews notes a failure, and reports whether to yield it. It does not yield that a file
// is gone, nor a failure that has been yielded before.
func (s *Session[T]) isNews(sc *scope, f *fileproc.Failure) bool {
	key := failureKey{rel: s.relOf(f.Path)}
	rel := key.rel
	isGone := errors.Is(f, fs.ErrNotExist) || errors.Is(f, fileproc.ErrChanged) || errors.Is(f, syscall.ENOTDIR)
	switch {
	case f.Kind == fileproc.FailedFunc:
		sc.failed[rel] = true
		return true
	case f.Kind != fileproc.FailedRoot && isGone, (sc.files[rel] || sc.trees[rel]) && errors.Is(f, fs.ErrInvalid): // behind a link
		sc.gone++
		if !errors.Is(f, fs.ErrNotExist) && isBelow(rel) { // something else is there now
			sc.changed[rel] = true
		}
		return false
	case core.IsOfRule(f): // if the file is processed too, that has an outcome of its own
		key.rule = f.Error()
	case f.Kind == fileproc.FailedFile && isBelow(rel):
		sc.failed[rel] = true
	}
	was, ok := sc.failures[key]
	if !ok {
		was, ok = s.failures[key]
	}
	sc.failures[key] = failure{f, s.runs}
	return !ok || was.err.Error() != f.Error()
}

// relOf returns name, the path of a failure, relative to root: "." for root.
func (s *Session[T]) relOf(name string) string {
	const some = "x"
	root := s.r.root
	prefix := strings.TrimSuffix(filepath.Join(root, some), some)
	switch {
	case name == root:
		return "."
	case s.opts.FS != nil:
		prefix = strings.TrimSuffix(path.Join(root, some), some)
	case names.HasDotDot(root): // fileproc does not clean such a root
		prefix = root[:len(strings.TrimRight(filepath.ToSlash(root), "/"))] + string(filepath.Separator)
	}
	rel, ok := strings.CutPrefix(name, prefix)
	if !ok || filepath.IsAbs(rel) {
		return "../" + strings.TrimLeft(filepath.ToSlash(name), "/") // a file of git's, by its absolute path
	}
	return filepath.ToSlash(rel)
}

// unlisted returns what could not be listed or read in the run. The value is true for a
// directory; below a file there is nothing. It forgets failures of earlier runs.
func (s *Session[T]) unlisted(sc *scope, there *existence) map[string]bool {
	unlisted := map[string]bool{}
	for key, f := range s.failures {
		switch {
		case f.run == s.runs && key.rule == "":
			unlisted[key.rel] = there.hasDir(key.rel) != no
		case f.run != s.runs && sc.has(key.rel):
			delete(s.failures, key)
		}
	}
	return unlisted
}

// yieldDeleted yields the files that the run should have met and has not met.
func (s *Session[T]) yieldDeleted(ctx context.Context, sc *scope, yield func(Result[T], error) bool) {
	r := s.r
	if s.failures[failureKey{rel: "."}].run == s.runs { // nothing is known without root
		return
	}
	there := r.gone.existence()
	unlisted := s.unlisted(sc, there)
	var all []string
	if sc.all && !s.full {
		r.gone.tell = func(rel string) { all = append(all, rel) }
		r.gone.numbers(ctx)
		if ctx.Err() != nil {
			yield(Result[T]{}, context.Cause(ctx))
			return
		}
	}
	sweep := func(rel string) { all = s.files.removeUnmet(all, rel, s.runs, unlisted) }
	if sc.all {
		sweep(".")
		s.full = true
	}
	for _, names := range []map[string]bool{sc.files, sc.trees, sc.missing} {
		for rel := range names {
			sweep(rel)
		}
	}
	slices.SortFunc(all, fileproc.ComparePaths)
	all = slices.Compact(all)
	for i, rel := range all {
		e := s.recent[rel]
		isGone := there.hasFile(rel) == no // else it is no longer selected, and may be selected again
		if isGone && !r.isInMemory() {
			s.gone[rel] = e != nil
		}
		if e != nil && (isGone || e.rec.Outcome == outcomeFailed) { // if the file comes back, its failure is news again
			if s.recent[rel] = deleted(); r.isInMemory() { // no record to hide
				delete(s.recent, rel)
			}
		}
		if !yield(Result[T]{Rel: rel, Kind: Deleted}, nil) {
			for _, rel := range all[i+1:] { // these stay known until a run yields them
				s.met(rel, path.Base(rel))
			}
			return
		}
	}
	s.forgetMissing(sc, there)
}

// forgetMissing forgets the files that are no longer there, also those without a result.
func (s *Session[T]) forgetMissing(sc *scope, there *existence) {
	forget := func(rel string) {
		delete(s.unsettled, rel)
		if s.recent[rel].isUnsettled() {
			delete(s.recent, rel)
		}
	}
	for rel := range sc.missing {
		forget(rel)
	}
	for _, rel := range sc.young {
		if _, isMet := s.unsettled[rel]; !isMet && there.hasFile(rel) == no {
			forget(rel)
		}
	}
	for rel := range s.unsettled {
		if isIn(sc.missing, rel) {
			forget(rel)
		}
	}
}

// Failed yields the files and directories that could not be opened or read when a run last
// looked at them, each with the name to give to Run to try again. The name is "." for root
// and for an ignore file outside root. The cause, such as a lack of descriptors, may pass
// without a change of the tree.
func (s *Session[T]) Failed() iter.Seq2[string, *fileproc.Failure] {
	return func(yield func(string, *fileproc.Failure) bool) {
		for key, f := range s.failures {
			rel := key.rel
			if !isBelow(rel) || key.rule != "" && !decides(&s.opts, rel) && !s.rules.names[rel] {
				rel = "."
			}
			if !yield(rel, f.err) {
				return
			}
		}
	}
}

// Unsettled yields the paths of files whose results could not be kept yet, each with the
// time from which a run over the file may keep its result.
func (s *Session[T]) Unsettled() iter.Seq2[string, time.Time] { return maps.All(s.unsettled) }

// Save writes what is new to the cache file. If it cannot, its error wraps ErrNotSaved. While
// another process saves, Save waits until ctx ends, but at most 30 seconds.
func (s *Session[T]) Save(ctx context.Context) error {
	if s.running {
		return errBusy
	}
	return s.save(ctx, s.kept > max(1024, s.files.count/8))
}

// Close saves as Save does. The session is of no use afterwards.
func (s *Session[T]) Close(ctx context.Context) error {
	if s.running {
		return errBusy
	}
	return s.save(ctx, false)
}

var errBusy = errors.New("incremental: a Session does one thing at a time")

// save writes what is new. If reloads is set, it then loads the cache file again, so that the
// session need not keep these results in memory of its own. It also does so if a gone file may
// have a record that the session has added: such a record can be deleted only once it is loaded.
func (s *Session[T]) save(ctx context.Context, reloads bool) error {
	r := s.r
	if r.isInMemory() {
		return nil
	}
	var numbers []int
	for rel, isAdded := range s.gone {
		if _, n, ok := r.store.Lookup(rel); ok {
			numbers = append(numbers, n)
		}
		if isAdded {
			reloads = true
		}
	}
	err := r.store.Save(ctx, numbers)
	if err == nil && reloads {
		links := r.store.Links
		r.load()
		r.store.Links = links
		maps.DeleteFunc(s.recent, func(_ string, e *recent) bool { return e.state == recentKept })
		numbers, s.kept = nil, 0
		for rel := range s.gone {
			if _, n, ok := r.store.Lookup(rel); ok {
				numbers = append(numbers, n)
			}
		}
		err = r.store.Save(ctx, numbers)
	}
	if err == nil {
		for rel := range s.gone { // the store still has their records, which the cache file no longer has
			if _, n, ok := r.store.Lookup(rel); ok {
				r.store.MarkSeen(n)
				s.setRecent(rel, deleted())
			}
		}
		clear(s.gone)
	} else {
		err = fmt.Errorf("%w: %w", ErrNotSaved, err)
	}
	if r.encodeErr != nil {
		err = errors.Join(err, fmt.Errorf("%w: %d cannot be encoded, such as %w", ErrNotSaved, r.unencoded, r.encodeErr))
		r.encodeErr, r.unencoded = nil, 0
	}
	return err
}
