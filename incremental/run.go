package incremental

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/incremental/internal/cachefile"
	"github.com/fileproc/fileproc/internal/fsinfo"
	"github.com/fileproc/fileproc/internal/plumbing"
)

var core = plumbing.Of[fileproc.Options, *fileproc.File, fileproc.Stat]()

// meaning is part of every key. A change of the library to what it keeps of a file changes meaning too.
const meaning = "1"

// A run is one call of Process, ForEach or Stream, or all runs of a Session.
type run[T any] struct {
	root    string // the first of Options.Roots, if these are set
	inc     *Options[T]
	opts    fileproc.Options // as the caller gave them
	codec   Codec[T]
	process func(*fileproc.File) (T, error)
	store   *cachefile.Store
	ownDirs []string    // directory of the cache file, as in keyOf, with a slash at its end: one for each root that it is below
	own     string      // name of the cache file in ownDirs
	loaded  fs.FileInfo // of the cache file, nil if there was none
	begun   time.Time   // before any file was looked at
	trust   trust
	git     map[string]*gitTree // with CompareGit, by root; nil: no work tree
	asks    bool                // the run calls judgeUnread for each file
	gone    deletions
	report  fileproc.Report
	workers []workerState[T]
	inOrder bool // add gives all records to one buffer
	notes   bool // note adds records, since Options.Deleted or a session will ask for the files

	// lookup returns what is known of f. It is the method stored or, in a session, Session.lookup.
	lookup func(w *workerState[T], f *fileproc.File, inode uint64) past

	saved   atomic.Int64 // nanoseconds from begun to the last save
	stopped atomic.Bool  // the run has ended before all files were seen

	mu        sync.Mutex // guards what follows
	encodeErr error      // the first error of a result that cannot be encoded
	unencoded int        // how many results these are
}

// A workerState is used by one worker at a time.
type workerState[T any] struct {
	verdict  verdict           // what judgeUnread has returned; after verdictTake, the next call of visit is for the same file
	outcome  cachefile.Outcome // the outcome to take
	value    T                 // the result, if the outcome has one
	dir      any               // the directory of the last file
	known    cachefile.Dir     // what the cache file has of that directory
	isOwnDir bool              // whether the cache file is in that directory
	tracked  gitDir            // with CompareGit: what git has there
	buf      []byte
	recent   []*recent // go to Session.recent when all workers are done
	written  *written  // by the call of fn, nil if it has not replaced the file
	// isWritten says that the next call of keep is for a file that fn has replaced.
	isWritten bool
	_         [64]byte // workers do not share cache lines
}

// addRecent adds e with a copy of its result, which may be in w.buf.
func (w *workerState[T]) addRecent(e *recent) {
	e.rec.Result = bytes.Clone(e.rec.Result)
	w.recent = append(w.recent, e)
}

// A verdict says what a run does with a file.
type verdict int

const (
	verdictCall     verdict = iota // read the file, call fn, and keep the outcome
	verdictCallOnly                // call fn: the outcome cannot be kept
	verdictTake                    // take the outcome in workerState, without a call of fn
)

// A past is what is known of a file from earlier runs.
type past struct {
	cachefile.View
	isKnown bool
	isYoung bool // the file was too new when its outcome was found: equal metadata proves nothing
	held    any  // recent.value
}

// begin is newRun for a run of its own, not for a session.
func begin[T any](root string, inc *Options[T], opts *fileproc.Options, fn func(*fileproc.File) (T, error)) (*run[T], error) {
	r, err := newRun(root, inc, opts, fn, false)
	if err == nil && opts.Files == nil {
		r.store.Links = uint64(opts.Symlinks)
	}
	return r, err
}

// newRun loads the cache file and sets in opts what the run needs. It returns one
// error that lists all mistakes in inc. Only a session may do without a cache file.
func newRun[T any](root string, inc *Options[T], opts *fileproc.Options, fn func(*fileproc.File) (T, error), isSession bool) (*run[T], error) {
	var codec Codec[T]
	var err error
	if inc.File != "" || !isSession {
		codec, err = codecOf(inc.Codec)
	}
	if inc.File == "" && !isSession {
		err = errors.Join(err, errors.New("incremental: Options.File is empty: only a Session keeps results in memory"))
	}
	if strings.IndexByte(inc.File, 0) >= 0 {
		err = errors.Join(err, fmt.Errorf("incremental: Options.File %q contains a NUL byte", inc.File))
	}
	if isSession && opts.Roots != nil {
		err = errors.Join(err, errors.New("incremental: Options.Roots is set: the names that a Session is given are relative to one root"))
	}
	if inc.Compare < CompareAuto || inc.Compare > CompareGit {
		err = errors.Join(err, fmt.Errorf("incremental: Options.Compare is %d: want CompareAuto, CompareMetadata, CompareContent or CompareGit", inc.Compare))
	}
	if err != nil {
		return nil, err
	}
	workers := opts.Workers
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	workers = min(workers, 1<<16) // fileproc refuses more
	if len(opts.Roots) > 0 {
		root = opts.Roots[0]
	}
	r := &run[T]{root: root, inc: inc, opts: *opts, codec: codec, process: fn, workers: make([]workerState[T], workers), notes: inc.Deleted != nil}
	r.lookup = r.stored
	r.load()
	r.inspectRoot()
	r.prepare(opts)
	return r, nil
}

// isInMemory reports whether r is a session's run without a cache file: nothing is encoded, put into
// the store or saved, and Session.recent has all that is known.
func (r *run[T]) isInMemory() bool { return r.inc.File == "" }

// load reads the cache file.
func (r *run[T]) load() {
	if r.isInMemory() {
		r.store = cachefile.InMemory(len(r.workers))
		return
	}
	r.store, _ = cachefile.Load(r.inc.File, r.key(), len(r.workers)) // if the file cannot be replaced either, Save returns an error
	r.loaded, _ = os.Stat(r.store.Path)
}

// roots returns each root once.
func (r *run[T]) roots() []string {
	if len(r.opts.Roots) < 2 {
		return []string{r.root}
	}
	return slices.Compact(slices.Sorted(slices.Values(r.opts.Roots)))
}

// prefix returns what precedes the paths below one of several roots in records. It has one slash, at its end.
func (r *run[T]) prefix(root string) string {
	if len(r.opts.Roots) < 2 {
		return ""
	}
	return url.PathEscape(root) + "/"
}

// keyOf returns the path of f in records.
func (r *run[T]) keyOf(f *fileproc.File) string { return r.prefix(f.Root()) + f.Rel() }

// inspectRoot finds out whether metadata can be compared below a root, and where below the roots the cache file is.
func (r *run[T]) inspectRoot() {
	compare := r.inc.Compare
	r.git = nil
	if compare == CompareGit {
		compare, r.git = CompareAuto, map[string]*gitTree{}
	}
	r.trust.compare, r.trust.root, r.ownDirs = compare, compare == CompareMetadata, nil
	r.trust.others.Clear() // the number of a device that was mounted may be another one's by now
	r.trust.last.Store(0)
	for _, root := range r.roots() {
		if r.opts.FS != nil {
			break
		}
		dir := root
		if info, err := os.Stat(root); err == nil && !info.IsDir() { // it may be the cache file
			dir = filepath.Dir(root)
		}
		if r.git != nil {
			r.git[root] = gitTreeOf(dir, r.git)
		}
		if below := pathBelow(dir, r.store.Path); below != "" && !r.isInMemory() {
			dir, r.own = path.Split(below)
			r.ownDirs = append(r.ownDirs, r.prefix(root)+dir)
		}
		keeps, _ := fsinfo.KeepsTimes(root) // the run itself fails if root is not there
		r.trust.root = compare != CompareContent && (r.trust.root || keeps)
	}
	r.asks = r.trust.root || r.ownDirs != nil
}

// prepare sets in opts what the run needs.
func (r *run[T]) prepare(opts *fileproc.Options) {
	inc := r.inc
	r.begun = time.Now()
	opts.Report = &r.report
	if opts.Workers == 0 && opts.FS == nil { // with an FS, zero means more than a number
		opts.Workers = len(r.workers) // GOMAXPROCS may change before fileproc reads it
	}
	hooks := core.Hooks(opts)
	if r.asks {
		hooks.Unchanged = func(f *fileproc.File) bool {
			w := &r.workers[f.Worker()]
			w.verdict = r.judgeUnread(w, f)
			return w.verdict == verdictTake
		}
	}
	hooks.OnBinary = r.onBinary
	hooks.OnReplace = r.onReplace
	r.gone = deletions{root: r.root, opts: &r.opts, store: r.store, tell: inc.Deleted}
	if opts.Files != nil && inc.Deleted != nil {
		r.gone.given = given{}
		opts.Files = r.gone.files
	}
	if onError := opts.OnError; onError != nil {
		opts.OnError = func(err error) error {
			if err = onError(err); err != nil {
				r.stopped.Store(true)
			}
			return err
		}
	}
}

// key returns a hash of all that the results depend on besides the files.
func (r *run[T]) key() [32]byte {
	o, root := &r.opts, r.root
	if len(o.Roots) > 1 {
		root = "\x00" // records say which root a file is below
	}
	h := sha256.New()
	for _, part := range []any{
		meaning, r.inc.Version, root, nameOf(r.codec), shapeOf(reflect.TypeFor[T]()),
		o.ReadSize, o.SkipBinary, o.MaxFileSize, o.FS != nil,
	} {
		fmt.Fprintf(h, "%q\n", fmt.Sprint(part)) // quoted, so that no two lists are alike
	}
	return [32]byte(h.Sum(nil))
}

// identityOf returns the part of s that runs compare, and whether s can be kept at all. It
// leaves out the number of the device, which may change with the next mount.
func identityOf(s fileproc.Stat) (cachefile.Identity, bool) {
	id := fsinfo.Identity{Size: s.Size, Inode: s.Inode, Mode: s.Mode}
	id.SetTimes(s.ModTime, s.ChangeTime, s.BirthTime)
	return cachefile.Identity{Identity: id}, id.ModTime != fsinfo.NoTime && (id.ChangeTime > 0 || s.ChangeTime.IsZero())
}

// prepareDir makes w ready to look up f in its directory.
func (r *run[T]) prepareDir(w *workerState[T], f *fileproc.File) {
	if dir := core.Dir(f); dir != w.dir {
		key := r.keyOf(f)
		key = key[:len(key)-len(f.Name())]
		w.dir, w.known, w.isOwnDir = dir, r.store.Dir(key), slices.Contains(r.ownDirs, key)
		if r.git != nil {
			rel := f.Rel()
			r.git[f.Root()].read(&w.tracked, rel[:len(rel)-len(f.Name())])
		}
	}
}

// stored returns what the cache file has of f, and marks that record as seen: f still
// exists. Inode is 0 if unknown.
func (r *run[T]) stored(w *workerState[T], f *fileproc.File, inode uint64) (p past) {
	r.prepareDir(w, f)
	var n int
	if p.View, n, p.isKnown = r.store.Find(&w.known, inode, f.Name()); p.isKnown {
		r.store.MarkSeen(n)
	}
	return p
}

// judgeUnread judges f by its metadata. If the verdict is verdictTake, f is not read.
// JudgeUnread does not compose the path of f: for a million files, that would take as long
// as all else.
func (r *run[T]) judgeUnread(w *workerState[T], f *fileproc.File) verdict {
	r.prepareDir(w, f)
	if w.isOwnDir && r.isOwn(f.Name()) {
		w.outcome = cachefile.OutcomeSkipped
		return verdictTake
	}
	if !r.trust.root {
		return verdictCall
	}
	s, _ := f.Stat() // fileproc has fetched it
	p := r.lookup(w, f, s.Inode)
	if !p.isKnown || !r.trust.of(s, f) {
		return verdictCall
	}
	id, _ := identityOf(s)
	if r.git != nil && p.ID.Content != noContent {
		id = w.tracked.identityIn(f.Name(), s, r.trust.isFine(s, f))
	}
	if id == p.ID && !p.isYoung && r.take(w, p) {
		return verdictTake
	}
	return verdictCall
}

// judgeRead judges f once more, when it has been read, and returns what runs compare of f.
// It is called before fn, which may overwrite the content.
func (r *run[T]) judgeRead(w *workerState[T], f *fileproc.File) (v verdict, id cachefile.Identity) {
	if v, w.verdict = w.verdict, verdictCall; v == verdictTake {
		return v, id
	}
	if r.isCache(f) {
		w.outcome = cachefile.OutcomeSkipped
		return verdictTake, id
	}
	id, keeps := r.look(f)
	if !keeps {
		return verdictCallOnly, cachefile.Identity{}
	}
	if id.Content != noContent { // else judgeUnread has compared the metadata
		if p := r.lookup(w, f, 0); p.ID == id && r.take(w, p) {
			return verdictTake, id
		}
	}
	return verdictCall, id
}

// take puts the outcome in p into w. It returns false if the result cannot be decoded.
func (r *run[T]) take(w *workerState[T], p past) bool {
	var err error
	switch w.outcome = p.Outcome; p.Outcome {
	case cachefile.OutcomeResult:
		w.value, err = r.codec.Decode(p.Result)
	case outcomeHeld:
		w.value, _ = p.held.(T)
	}
	return err == nil
}

// isOwn reports whether the file name in one of ownDirs is the cache file, its lock, or one of
// its temporary files.
func (r *run[T]) isOwn(name string) bool {
	rest, ok := strings.CutPrefix(name, r.own)
	return ok && cachefile.IsOwnSuffix(rest)
}

// isCache reports whether f is the cache file by another name. It looks only if the content
// of f begins as a cache file does, or, with NoRead, if f has the cache file's size and time.
func (r *run[T]) isCache(f *fileproc.File) bool {
	looks := cachefile.HasMagic(f.Data())
	if r.opts.ReadSize == fileproc.NoRead && r.asks && r.loaded != nil {
		s, _ := f.Stat()
		looks = s.Size == r.loaded.Size() && s.ModTime.Equal(r.loaded.ModTime())
	}
	if !looks {
		return false
	}
	file, _ := f.Open() // nil with an FS: nobody knows where its files are
	defer file.Close()
	info, _ := file.Stat()
	own, _ := os.Stat(r.store.Path)
	return os.SameFile(info, own) // false for nil
}

// fn returns the function that fileproc calls, nil if the caller's function is nil.
func (r *run[T]) fn() func(*fileproc.File) (T, error) {
	if r.process == nil {
		return nil
	}
	return r.visit
}

// visit is the function that fileproc calls for each file of a run without a session.
func (r *run[T]) visit(f *fileproc.File) (T, error) {
	w := &r.workers[f.Worker()]
	v, id := r.judgeRead(w, f)
	if v == verdictTake {
		return r.taken(w, f)
	}
	c := r.call(w, f, id)
	if c.isLast() || c.verdictAfter(v) == verdictCallOnly || r.keep(f, &c.rec) != kept {
		r.note(w, f)
	}
	return c.value, c.err
}

// taken returns the outcome in w to the caller, without a call of fn: f is unchanged, or the cache file.
func (r *run[T]) taken(w *workerState[T], f *fileproc.File) (v T, err error) {
	core.SetUnchanged(f)
	switch w.outcome {
	case cachefile.OutcomeResult, outcomeHeld:
		v, w.value = w.value, v
		return v, nil
	case outcomeFailed:
		return v, errStillFails
	}
	return v, fileproc.ErrSkip
}

// A called is what a call of fn gave.
type called[T any] struct {
	value T // for the caller, as err
	err   error
	rec   cachefile.Record // to keep
	held  any              // recent.value
	// written is the new content, if fn has replaced the file. Keeps says whether the outcome can be kept for it.
	written *written
	keeps   bool
}

// verdictAfter returns v, the verdict about what fn got, or, if fn has replaced the file, one about that.
func (c *called[T]) verdictAfter(v verdict) verdict {
	switch {
	case c.written == nil:
		return v
	case c.keeps:
		return verdictCall
	}
	return verdictCallOnly
}

// A written is content that fn has given the file.
type written struct {
	size int64
	sum  [16]byte
}

// onReplace is plumbing.Hooks.OnReplace.
func (r *run[T]) onReplace(worker int, content []byte) {
	sum := sha256.Sum256(content)
	r.workers[worker].written = &written{int64(len(content)), [16]byte(sum[:16])}
}

// isLast reports whether fn has ended the run, which keeps nothing of the file.
func (c *called[T]) isLast() bool { return errors.Is(c.err, fs.SkipAll) }

// call calls fn for f, of which runs compare id.
func (r *run[T]) call(w *workerState[T], f *fileproc.File, id cachefile.Identity) (c called[T]) {
	c.rec.Path, c.rec.ID = r.keyOf(f), id
	switch c.value, c.err = r.process(f); {
	case c.err == nil:
		var ok bool
		if c.rec.Result, c.value, ok = r.encode(w, f.Rel(), c.value); !ok {
			c.held, c.rec.Outcome = c.value, outcomeHeld
		}
	case c.isLast():
		r.stopped.Store(true)
	case errors.Is(c.err, fileproc.ErrSkip):
		c.rec.Outcome = cachefile.OutcomeSkipped
	default:
		c.held, c.rec.Outcome = c.err.Error(), outcomeFailed
	}
	if c.written = w.written; c.written != nil {
		c.rec.ID, c.keeps = r.lookAfter(f, c.written)
		w.isWritten = c.keeps && !c.isLast() // then keep comes next
		w.written = nil
	}
	return c
}

// onBinary is the run's plumbing.Hooks.OnBinary, without a session.
func (r *run[T]) onBinary(f *fileproc.File) {
	if rec, keeps := r.binary(f); !keeps || r.keep(f, &rec) != kept {
		r.note(&r.workers[f.Worker()], f)
	}
}

// binary returns the record of f, a binary file, and whether it can be kept. OnBinary gets no
// content: where content is compared, each run reads the binary files.
func (r *run[T]) binary(f *fileproc.File) (rec cachefile.Record, keeps bool) {
	id, keeps := r.look(f)
	return cachefile.Record{Path: r.keyOf(f), ID: id, Outcome: cachefile.OutcomeBinary}, keeps && id.Content == noContent
}

var noContent [16]byte

// look returns what runs compare of f, and whether the outcome of f can be kept. It is
// called before fn, which may overwrite the content.
func (r *run[T]) look(f *fileproc.File) (cachefile.Identity, bool) {
	if r.asks {
		// The metadata is from before the content was read.
		if s, err := f.Stat(); err == nil && r.trust.of(s, f) {
			if id, ok := r.blob(f, s); ok {
				return id, true
			}
			return identityOf(s)
		}
	}
	// If the file is longer than ReadSize, fn may read the rest through Open, which Data does not show.
	if r.opts.ReadSize == fileproc.NoRead || r.inc.Compare == CompareMetadata || f.Truncated() {
		return cachefile.Identity{}, false
	}
	var id cachefile.Identity
	id.Size = int64(len(f.Data()))
	sum := sha256.Sum256(f.Data())
	copy(id.Content[:], sum[:])
	return id, true
}

// lookAfter is look for a file that fn has replaced.
func (r *run[T]) lookAfter(f *fileproc.File, new *written) (id cachefile.Identity, keeps bool) {
	if s, err := f.Stat(); r.asks && err == nil && r.trust.of(s, f) {
		return identityOf(s)
	}
	if n := r.opts.ReadSize; n == fileproc.NoRead || r.inc.Compare == CompareMetadata || n > 0 && new.size > int64(n) {
		return id, false
	}
	id.Size, id.Content = new.size, new.sum
	return id, true
}

// A keeping says what keep did.
type keeping int

const (
	kept       keeping = iota
	notKept            // the file is too new, or such an outcome is not saved
	hasChanged         // the file has changed since it was looked at
	isMissing          // there is no metadata any more
)

// keep adds rec, the outcome for f, to the records to save, unless f may have changed
// since it was looked at. It may set the time of birth in rec.
func (r *run[T]) keep(f *fileproc.File, rec *cachefile.Record) keeping {
	w := &r.workers[f.Worker()]
	isWritten := w.isWritten
	w.isWritten = false
	if rec.ID.Content == noContent {
		s, err := core.Restat(f)
		if err != nil {
			return isMissing
		}
		after, _ := identityOf(s)
		if rec.ID.BirthTime == 0 {
			rec.ID.BirthTime = after.BirthTime // on Linux, the metadata of an open file has none
		}
		if after != rec.ID {
			return hasChanged
		}
		if !r.isSettled(after) && !(isWritten && r.trust.isFine(s, f)) {
			return notKept // for a new file, f.Stat was the look after which each change shows
		}
	}
	if rec.Outcome >= outcomeFailed {
		return notKept
	}
	r.add(f, *rec)
	r.saveNowAndThen()
	return kept
}

// add adds rec to the records to save. Save writes the buffers of the workers one after the
// other. In a session, all records go into one buffer: those of an earlier run must come first.
func (r *run[T]) add(f *fileproc.File, rec cachefile.Record) {
	if r.isInMemory() {
		return
	}
	w := f.Worker()
	if r.inOrder {
		w = 0
	}
	r.store.Add(w, rec)
}

// note notes that f exists, for which keep has added no record. It marks the record that the store has of f as seen. If there
// is none and r.notes is set, it adds one without an outcome.
func (r *run[T]) note(w *workerState[T], f *fileproc.File) {
	if !r.lookup(w, f, 0).isKnown && r.notes {
		r.add(f, cachefile.Noted(r.keyOf(f)))
	}
}

// saveEvery is the time between two saves during a run: a first run may take hours, and
// may be killed. Tests set it.
var saveEvery = 30 * time.Second

func (r *run[T]) saveNowAndThen() {
	now, last := time.Since(r.begun), r.saved.Load()
	if now-time.Duration(last) > saveEvery && r.saved.CompareAndSwap(last, int64(now)) {
		noWait, cancel := context.WithCancel(context.Background())
		cancel()
		_ = r.store.Save(noWait, nil) // the save at the end tries again, and reports its error
	}
}

// isSettled reports whether a further change would show in the times. It takes the earlier of
// now and the begin of the run: the clock may have been set back since then.
func (r *run[T]) isSettled(id cachefile.Identity) bool {
	return fsinfo.IsSettled(id.Newest(), min(r.begun.UnixNano(), time.Now().UnixNano()))
}

// maxBuffer is the length in bytes of the longest buffer for encoded results that a worker keeps.
const maxBuffer = 1 << 20

// encode returns the bytes to keep of v, and the value decoded from them, which the caller
// gets. If v cannot be kept, or is kept in memory, encode returns false, and the caller gets v.
func (r *run[T]) encode(w *workerState[T], rel string, v T) ([]byte, T, bool) {
	if r.isInMemory() {
		return nil, v, false
	}
	b, err := r.codec.Append(w.buf[:0], v)
	if cap(b) <= maxBuffer {
		w.buf = b
	}
	if err == nil {
		var decoded T
		if decoded, err = r.codec.Decode(b); err == nil {
			return b, decoded, true
		}
	}
	if err == errNotUTF8 {
		return nil, v, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.unencoded++; r.encodeErr == nil {
		r.encodeErr = fmt.Errorf("the result for %s: %w", rel, err)
	}
	return nil, v, false
}

// end finds out what is gone, saves what is new, and returns err, the error of the run, joined with its own errors.
func (r *run[T]) end(ctx context.Context, err error) error {
	var gone []int
	hasRoot := r.report.Directories > 0 || len(r.gone.given) > 0 // given paths are looked up one by one, without a listing
	if !r.stopped.Load() && ctx.Err() == nil && hasRoot {
		if r.inc.Deleted != nil || r.store.Rewrites() {
			for _, root := range r.roots() {
				d := r.gone
				d.root, d.prefix = root, r.prefix(root)
				gone = append(gone, d.numbers(ctx)...)
			}
			err = errors.Join(err, context.Cause(ctx))
		}
	}
	if saveErr := r.store.Save(ctx, gone); saveErr != nil {
		err = errors.Join(err, fmt.Errorf("%w: %w", ErrNotSaved, saveErr))
	}
	if r.encodeErr != nil {
		err = errors.Join(err, fmt.Errorf("%w: %d cannot be encoded, such as %w", ErrNotSaved, r.unencoded, r.encodeErr))
	}
	return err
}

// giveReport fills in the caller's Report.
func (r *run[T]) giveReport() {
	if r.opts.Report != nil && r.report.Skipped != nil { // else the options are invalid
		*r.opts.Report = r.report
	}
}

// pathBelow returns the path of file relative to root, with slashes, or "" if file is not
// below root. File is absolute and without links.
func pathBelow(root, file string) string {
	at, _ := os.Stat(root) // if it is nil, no directory is the same
	rel := filepath.Base(file)
	for dir := filepath.Dir(file); ; dir = filepath.Dir(dir) {
		if info, _ := os.Stat(dir); os.SameFile(info, at) {
			return filepath.ToSlash(rel)
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
		rel = filepath.Join(filepath.Base(dir), rel)
	}
}
