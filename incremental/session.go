package incremental

import (
	"context"
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
)

// A Result is what a run of a Session has found out about one file.
type Result[T any] struct {
	Rel   string // the path relative to root, with slashes
	Kind  Kind
	Value T // what fn returned, unless Kind is Deleted
}

// A Kind says how a file compares with the runs before.
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

// A Session is an open cache file, for programs that live long: they run over all
// files or over those that are named, as often as they like, and save when they
// like. A run sees what the runs before it have found out, saved or not.
//
// A session knows which files have a result. So a run says what has no result any
// more, be it gone, skipped by fn, or left out by an option such as an ignore file
// that was edited. It keeps the paths in memory, and until the next Save what is new.
//
// What was processed less than two seconds after its last write cannot be kept yet:
// [Session.Unsettled] names it. A run that looks at it later does not call fn if the
// content is the same. A failure of fn stays until the file changes. If neither metadata nor content
// can say that a file is unchanged, fn is called, and Unchanged says that its result is.
// A result that cannot be encoded stays in memory.
//
// The methods are called by one goroutine at a time, and not in the loop over a run.
type Session[T any] struct {
	r    *run[T]
	opts fileproc.Options

	runs      uint32 // number of the last one
	full      bool   // a full run has ended
	linked    bool   // a file with several names was met
	running   bool
	dirs      sessionDir
	files     int                    // in dirs
	failures  map[failureKey]failure // what could not be opened or read
	gone      map[string]bool        // deleted, but in the cache file; true: perhaps by a record that this session has added
	kept      int                    // of r.recent, since the load
	unsettled map[string]time.Time
	rules     *rules // that runs have met since the last one over all files began
	mark      marker
}

// A sessionDir is a directory with files that have a result, or for which fn has failed.
type sessionDir struct {
	subs map[string]*sessionDir
	// The files, in one of two forms. While they are those that one run has met, they are a list, which takes a first run less time.
	names []string
	run   uint32            // the number of that run
	files map[string]uint32 // the number of the last run that has met the file
}

// isOf reports whether all files are in a list of those that the run has met.
func (d *sessionDir) isOf(run uint32) bool {
	return d.files == nil && (len(d.names) == 0 || d.run == run)
}

// meet notes that a run has met a file, which it does once, and reports whether it is new here.
func (d *sessionDir) meet(name string, run uint32) bool {
	if d.isOf(run) {
		d.names, d.run = append(d.names, name), run
		return true
	}
	d.index()
	_, was := d.files[name]
	d.files[name] = run
	return !was
}

// index makes a map of the list.
func (d *sessionDir) index() {
	if d.files != nil {
		return
	}
	d.files = make(map[string]uint32, len(d.names))
	for _, name := range d.names {
		d.files[name] = d.run
	}
	d.names = nil
}

// unmet forgets the files that the run has not met, and yields their names.
func (d *sessionDir) unmet(run uint32, yield func(name string)) {
	if d.isOf(run) {
		return
	}
	d.index()
	for name, last := range d.files {
		if last != run {
			delete(d.files, name)
			yield(name)
		}
	}
}

func (d *sessionDir) isEmpty() bool { return len(d.names)+len(d.files)+len(d.subs) == 0 }

type marker struct {
	path string
	dir  *sessionDir
}

// A failureKey is what a failure is about: of a file, whether it is processed or says what is ignored.
type failureKey struct {
	rel  string
	rule string // the failure's text if it is one of a rule: a file may have several, as a configuration and as an ignore file
}

type failure struct {
	err *fileproc.Failure
	run uint32
}

// Open opens the cache file inc.File for runs that are like [Stream] with these
// arguments. It does not look at root. Inc.Deleted is not called: runs yield what is
// deleted. Opts.Files must be nil: a run is given names. Opts.Report is filled in by each
// run.
func Open[T any](root string, inc Options[T], opts fileproc.Options, fn func(*fileproc.File) (T, error)) (*Session[T], error) {
	if opts.Files != nil {
		return nil, errors.New("incremental: Options.Files is set: a run of a Session is given the names")
	}
	if fn == nil {
		return nil, errors.New("incremental: fn is nil")
	}
	inc.Deleted = nil
	runOpts := opts
	r, err := begin(root, &inc, &runOpts, fn)
	if err != nil {
		return nil, err
	}
	r.recent = map[string]*recent{}
	return &Session[T]{r: r, opts: opts, failures: map[failureKey]failure{}, gone: map[string]bool{}, unsettled: map[string]time.Time{},
		rules: newRules(root, core.Hooks(&opts).OnDir)}, nil
}

// Run looks at all files below root if names is nil, and else at what these paths
// lead to now: at a file, at all below a directory, or at what is known to have been
// there. A name of an ignore file, or of one of SkipMarked, stands for its directory, and one of
// a file that decides for more than that, such as .git/config, for all files. It
// yields the results of all files that it looked at, unchanged ones too, then
// what is deleted, in the order of the paths. The first run over all files also yields what the cache file
// has and the tree has not.
//
// A failure is yielded with the path it is about, unless opts.OnError is set, and only
// once while it stays the same. A file that says what is ignored and cannot be read is no failure at its path, where a result may
// stand: it is yielded with an empty path, or with one outside root. What is below a directory that cannot be read counts as
// it was, and so does everything while root cannot be read. A file that is gone before it
// is opened is no failure.
//
// A run over names costs what they cost: what lies between root and the names is not
// listed, but with MaxDepth and OneFilesystem. A run looks at all files
// with Symlinks, other than SymlinksSkip, and once a name has led to a file that has
// other names (hard links), by which it may have been written.
//
// A run that ends early, by a cancel or because the loop does, has to be repeated.
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

// An item is what a worker sends to the loop.
type item[T any] struct {
	rel, name string
	value     T
	called    bool // fn was
	isKnown   bool // the cache file had something for this path; only the first full run asks
	silent    bool // as a failure that has been yielded before
}

// runFiles yields the results, and reports whether the run has ended by itself.
func (s *Session[T]) runFiles(ctx context.Context, sc *scope, yield func(Result[T], error) bool) bool {
	r, opts := s.r, s.opts
	r.stopped.Store(false)
	r.saved.Store(0)
	r.report = fileproc.Report{}
	sc.limit(&opts)
	links := r.store.Links
	if onError := opts.OnError; onError != nil {
		opts.OnError = func(err error) error { // the calls come one at a time
			if s.isNews(sc, err) {
				return onError(err)
			}
			return nil
		}
	}
	if opts.FS == nil {
		core.Hooks(&opts).OnRule = s.rules.note
	}
	r.prepare(&opts)
	if !sc.all {
		r.store.Links = links
	}
	completed := true
	for it, err := range fileproc.Stream(ctx, r.root, opts, s.visit) {
		if f := (*fileproc.Failure)(nil); errors.As(err, &f) {
			if opts.OnError != nil {
				completed = false // it has stopped the run
			} else if !s.isNews(sc, f) {
				continue
			}
			if rel := relOf(r.root, f.Path, opts.FS != nil); it.rel == "" && !(core.IsOfRule(f) && isBelow(rel)) {
				it.rel = rel
			}
		} else if err != nil {
			completed = false
		}
		res := Result[T]{Rel: it.rel, Value: it.value}
		if err == nil {
			_, wasDeleted := s.gone[it.rel]
			isNew := s.met(it.rel, it.name)
			_, failed := s.failures[failureKey{rel: it.rel}]
			switch {
			case it.silent:
				continue
			case !isNew && (failed || it.called) || it.called && it.isKnown && !wasDeleted:
				res.Kind = Changed
			case it.called || s.full && isNew || wasDeleted:
				res.Kind = New
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

// merge takes in what the workers have found out, now that none of them runs.
func (s *Session[T]) merge(sc *scope) {
	r := s.r
	maps.DeleteFunc(s.unsettled, func(rel string, _ time.Time) bool { return sc.has(rel) })
	for i := range r.workers {
		w := &r.workers[i]
		for _, e := range w.recent {
			s.setRecent(e.rec.Path, e)
		}
		w.recent, w.dir = nil, nil // which keeps the run's memory, and the store's
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
	s.r.recent[rel] = e
	switch {
	case e.state == recentKept:
		s.kept++
	case !e.due.IsZero():
		s.unsettled[rel] = e.due
	}
}

// visit is what fileproc calls.
func (s *Session[T]) visit(f *fileproc.File) (item[T], error) {
	w := &s.r.workers[f.Worker()]
	w.called = false
	v, err := s.r.call(f)
	it := item[T]{rel: f.Rel(), name: f.Name(), value: v, called: w.called}
	if it.called && !s.full {
		_, _, it.isKnown = s.r.store.Lookup(it.rel)
		it.isKnown = it.isKnown && !s.r.recent[it.rel].isDeleted()
	}
	if err == errStillFails {
		it.silent, err = true, nil
	}
	return it, err
}

// met notes that rel has a result or a failure, and reports whether it had none.
func (s *Session[T]) met(rel, name string) bool {
	if dir := rel[:len(rel)-len(name)]; s.mark.dir == nil || s.mark.path != dir {
		d := &s.dirs
		for part := range strings.SplitSeq(strings.TrimSuffix(dir, "/"), "/") {
			if part == "" {
				continue
			}
			if d.subs == nil {
				d.subs = map[string]*sessionDir{}
			}
			sub := d.subs[part]
			if sub == nil {
				sub = &sessionDir{}
				d.subs[strings.Clone(part)] = sub
			}
			d = sub
		}
		s.mark = marker{dir, d}
	}
	isNew := s.mark.dir.meet(name, s.runs)
	if isNew {
		s.files++
		delete(s.gone, rel)
	}
	return isNew
}

// isNews notes a failure, and reports whether it is to be yielded: not that a file is
// gone, nor what has been yielded before.
func (s *Session[T]) isNews(sc *scope, err error) bool {
	f, ok := err.(*fileproc.Failure)
	if !ok {
		return true
	}
	key := failureKey{rel: relOf(s.r.root, f.Path, s.opts.FS != nil)}
	rel := key.rel
	isGone := errors.Is(err, fs.ErrNotExist) || errors.Is(err, fileproc.ErrChanged) || errors.Is(err, syscall.ENOTDIR)
	switch {
	case f.Kind == fileproc.FailedFunc:
		sc.failed[rel] = true
		return true
	case f.Kind != fileproc.FailedRoot && isGone, (sc.files[rel] || sc.trees[rel]) && errors.Is(err, fs.ErrInvalid): // behind a link
		sc.gone++
		if !errors.Is(err, fs.ErrNotExist) && isBelow(rel) { // something else is there now
			sc.changed[rel] = true
		}
		return false
	case core.IsOfRule(err): // what comes of the file, if it is processed, comes too
		key.rule = err.Error()
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

// relOf returns the path relative to root of what a failure is about, "." for root.
func relOf(root, name string, isFS bool) string {
	const some = "x"
	prefix := strings.TrimSuffix(filepath.Join(root, some), some)
	switch {
	case name == root:
		return "."
	case isFS:
		prefix = strings.TrimSuffix(path.Join(root, some), some)
	case slices.Contains(strings.Split(filepath.ToSlash(root), "/"), ".."): // is not cleaned
		prefix = strings.TrimRightFunc(root, func(r rune) bool { return r == '/' || r == filepath.Separator }) + string(filepath.Separator)
	}
	rel, ok := strings.CutPrefix(name, prefix)
	if !ok || !isFS && filepath.IsAbs(rel) {
		return "../" + strings.TrimLeft(filepath.ToSlash(name), "/") // a file of git's, by its absolute path
	}
	return filepath.ToSlash(rel)
}

// yieldDeleted yields what the run should have met and has not.
func (s *Session[T]) yieldDeleted(ctx context.Context, sc *scope, yield func(Result[T], error) bool) {
	r := s.r
	if s.failures[failureKey{rel: "."}].run == s.runs { // nothing is known without root
		return
	}
	there := r.gone.existence()
	unlisted := map[string]bool{} // directories: below a file that could not be read there is nothing
	for key, f := range s.failures {
		switch {
		case f.run == s.runs && key.rule == "":
			unlisted[key.rel] = there.hasDir(key.rel) != no
		case f.run != s.runs && sc.has(key.rel):
			delete(s.failures, key)
		}
	}
	var all []string
	if sc.all && !s.full {
		r.gone.tell = func(rel string) { all = append(all, rel) }
		r.gone.numbers(ctx)
		if ctx.Err() != nil {
			yield(Result[T]{}, context.Cause(ctx))
			return
		}
	}
	s.mark = marker{}
	sweep := func(rel string) {
		all = s.sweep(all, rel, unlisted)
	}
	if sc.all {
		sweep(".")
		s.full = true
	}
	for _, names := range []map[string]bool{sc.files, sc.trees, sc.missing} {
		for rel := range names {
			sweep(rel)
		}
	}
	slices.SortFunc(all, comparePaths)
	all = slices.Compact(all)
	for i, rel := range all {
		e := r.recent[rel]
		isGone := there.hasFile(rel) == no // else it is no longer selected, and may be again
		if isGone {
			s.gone[rel] = e != nil
		}
		if e != nil && (isGone || e.rec.Outcome == outcomeFailed) { // which is a failure anew then
			r.recent[rel] = deleted()
		}
		if !yield(Result[T]{Rel: rel, Kind: Deleted}, nil) {
			for _, rel := range all[i+1:] { // are known until a run yields them
				s.met(rel, path.Base(rel))
			}
			return
		}
	}
	forget := func(rel string) { // what is missing without a result
		delete(s.unsettled, rel)
		if r.recent[rel].isUnsettled() {
			delete(r.recent, rel)
		}
	}
	for rel := range sc.missing {
		forget(rel)
	}
	for rel := range s.unsettled {
		if isIn(sc.missing, rel) {
			forget(rel)
		}
	}
}

// comparePaths compares name by name, byte by byte.
func comparePaths(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	switch {
	case n == len(a) || n == len(b) || a[n] != '/' && b[n] != '/':
		return strings.Compare(a[n:], b[n:])
	case a[n] == '/':
		return -1
	}
	return 1
}

// sweep forgets the file rel, or the files below, that this run has not met, but for
// those below directories that could not be read. It appends their paths to all.
func (s *Session[T]) sweep(all []string, rel string, unlisted map[string]bool) []string {
	chain := []*sessionDir{&s.dirs}
	names := []string{""}
	if rel != "." {
		dir, base := path.Split(rel)
		for part := range strings.SplitSeq(dir, "/") {
			if part == "" {
				continue
			}
			d := chain[len(chain)-1].subs[part]
			if chain, names = append(chain, d), append(names, part); d == nil || unlisted[path.Join(names...)] {
				return all
			}
		}
		d := chain[len(chain)-1]
		if !d.isOf(s.runs) {
			d.index()
			if run, ok := d.files[base]; ok && run != s.runs {
				delete(d.files, base)
				s.files--
				all = append(all, rel)
			}
		}
		if sub := d.subs[base]; sub != nil {
			chain, names = append(chain, sub), append(names, base)
			all = s.sweepDir(all, rel+"/", sub, unlisted)
		}
	} else {
		all = s.sweepDir(all, "", &s.dirs, unlisted)
	}
	for i := len(chain) - 1; i > 0 && chain[i].isEmpty(); i-- {
		delete(chain[i-1].subs, names[i])
	}
	return all
}

func (s *Session[T]) sweepDir(all []string, prefix string, d *sessionDir, unlisted map[string]bool) []string {
	if unlisted[strings.TrimSuffix(prefix, "/")] {
		return all
	}
	d.unmet(s.runs, func(name string) {
		s.files--
		all = append(all, prefix+name)
	})
	for name, sub := range d.subs {
		if all = s.sweepDir(all, prefix+name+"/", sub, unlisted); sub.isEmpty() {
			delete(d.subs, name)
		}
	}
	return all
}

// Failed yields what could not be opened or read when a run last looked at it, each with the name
// that a run has to be given to try again: "." for root, and for files outside root that say
// what is ignored. The reason may pass without a change of the tree, as a lack of descriptors does.
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

// Unsettled yields the paths of files that could not be kept yet, each with the time
// from which a run over it may keep it.
func (s *Session[T]) Unsettled() iter.Seq2[string, time.Time] { return maps.All(s.unsettled) }

// Save writes what is new to the cache file. An error wraps ErrNotSaved. It waits for
// another process that saves until ctx ends.
func (s *Session[T]) Save(ctx context.Context) error {
	if s.running {
		return errBusy
	}
	return s.save(ctx, s.kept > max(1024, s.files/8))
}

// Close saves as Save does. The session is of no use afterwards.
func (s *Session[T]) Close(ctx context.Context) error {
	if s.running {
		return errBusy
	}
	return s.save(ctx, false)
}

var errBusy = errors.New("incremental: a Session does one thing at a time")

// save saves, and loads what is saved if reloads says so: then it needs no memory of
// its own. Records that the session has added can be deleted only once they are loaded.
func (s *Session[T]) save(ctx context.Context, reloads bool) error {
	r := s.r
	var numbers []int
	for rel, isAdded := range s.gone {
		if _, n, ok := r.store.Lookup(rel); ok && !isAdded {
			numbers = append(numbers, n)
		}
		reloads = reloads || isAdded
	}
	err := r.store.Save(ctx, numbers)
	if err == nil && reloads {
		links := r.store.Links
		r.load()
		r.store.Links = links
		maps.DeleteFunc(r.recent, func(_ string, e *recent) bool { return e.state == recentKept })
		numbers, s.kept = nil, 0
		for rel, isAdded := range s.gone {
			if _, n, ok := r.store.Lookup(rel); ok && isAdded {
				numbers = append(numbers, n)
			}
		}
		err = r.store.Save(ctx, numbers)
	}
	if err == nil {
		for rel := range s.gone { // of which the store still has the record that the file has not
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
