package incremental

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"runtime"
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

// meaning is part of every key. It changes with what the library keeps of a file.
const meaning = "1"

// A run is one call of Process, ForEach or Stream.
type run[T any] struct {
	root    string
	inc     *Options[T]
	opts    fileproc.Options // as the caller gave them
	codec   Codec[T]
	process func(*fileproc.File) (T, error)
	store   *cachefile.Store
	ownDir  string      // of the cache file, relative to root, with a slash at its end
	own     string      // the cache file's name in it, "" if it is not below root
	loaded  fs.FileInfo // of the cache file, nil if there was none
	begun   time.Time   // before any file was looked at
	trust   trust
	asks    bool // isUnchanged is called
	gone    deletions
	report  fileproc.Report
	workers []workerState[T]
	recent  map[string]*recent // of a session, by path: what the store does not have, nil for a run of its own
	inOrder bool               // all records go into one buffer

	saved   atomic.Int64 // nanoseconds from begun to the last save
	stopped atomic.Bool  // before all files were seen

	mu        sync.Mutex // guards what follows
	encodeErr error      // the first
	unencoded int        // results
}

// A workerState is used by one worker at a time.
type workerState[T any] struct {
	unchanged bool // fn is called next, for the file that is unchanged
	value     T    // of that file
	outcome   cachefile.Outcome
	own       bool
	called    bool          // fn was, for the last file
	held      any           // recent.value for that file
	dir       any           // the directory of the last file
	known     cachefile.Dir // what the cache file has of it
	isOwnDir  bool          // and whether it is in it
	buf       []byte
	recent    []*recent // what is to be in run.recent when all workers are done
	_         [64]byte  // workers do not share cache lines
}

// begin loads the cache file and sets in opts what the run needs. It returns one
// error that lists what is wrong with inc.
func begin[T any](root string, inc *Options[T], opts *fileproc.Options, fn func(*fileproc.File) (T, error)) (*run[T], error) {
	codec, err := codecOf(inc.Codec)
	if inc.File == "" {
		err = errors.Join(err, errors.New("incremental: Options.File is empty"))
	}
	if strings.IndexByte(inc.File, 0) >= 0 {
		err = errors.Join(err, fmt.Errorf("incremental: Options.File %q contains a NUL byte", inc.File))
	}
	if inc.Compare < CompareAuto || inc.Compare > CompareContent {
		err = errors.Join(err, fmt.Errorf("incremental: Options.Compare is %d: want CompareAuto, CompareMetadata or CompareContent", inc.Compare))
	}
	if err != nil {
		return nil, err
	}
	workers := opts.Workers
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	workers = min(workers, 1<<16) // more is an error of fileproc's
	r := &run[T]{root: root, inc: inc, opts: *opts, codec: codec, process: fn, workers: make([]workerState[T], workers)}
	r.load()
	r.inspectRoot()
	r.prepare(opts)
	return r, nil
}

// load reads the cache file.
func (r *run[T]) load() {
	r.store, _ = cachefile.Load(r.inc.File, r.key(), len(r.workers)) // save says so if the file cannot be replaced either
	r.loaded, _ = os.Stat(r.store.Path)
}

// inspectRoot finds out what can be compared below root, and where the cache file is.
func (r *run[T]) inspectRoot() {
	compare := r.inc.Compare
	r.trust.compare, r.trust.root, r.own = compare, compare == CompareMetadata, ""
	r.trust.others.Clear()
	if r.opts.FS == nil {
		r.ownDir, r.own = path.Split(pathBelow(r.root, r.store.Path))
		keeps, _ := fsinfo.KeepsTimes(r.root) // the run itself fails if root is not there
		r.trust.root = compare != CompareContent && (r.trust.root || keeps)
	}
	r.asks = r.trust.root || r.own != ""
}

// prepare sets in opts what the run needs.
func (r *run[T]) prepare(opts *fileproc.Options) {
	inc := r.inc
	r.begun = time.Now()
	opts.Report = &r.report
	if opts.Workers == 0 && opts.FS == nil { // with an FS it means more than the number
		opts.Workers = len(r.workers) // GOMAXPROCS may change until the run asks for it
	}
	hooks := core.Hooks(opts)
	if r.asks {
		hooks.Unchanged = func(f *fileproc.File) bool {
			w := &r.workers[f.Worker()]
			w.unchanged = r.isUnchanged(w, f)
			return w.unchanged
		}
	}
	if opts.SkipBinary {
		hooks.OnBinary = r.onBinary
	}
	if opts.Files == nil {
		r.store.Links = uint64(opts.Symlinks)
	}
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

// key returns what the results depend on besides the files.
func (r *run[T]) key() [32]byte {
	o := &r.opts
	h := sha256.New()
	for _, part := range []any{
		meaning, r.inc.Version, r.root, nameOf(r.codec), shapeOf(reflect.TypeFor[T]()),
		o.ReadSize, o.SkipBinary, o.MaxFileSize, o.FS != nil,
	} {
		fmt.Fprintf(h, "%q\n", fmt.Sprint(part)) // quoted, so that no two lists are alike
	}
	return [32]byte(h.Sum(nil))
}

// identityOf returns what is compared of s, and whether s can be kept at all. The number
// of a device may be another one after the next mount.
func identityOf(s fileproc.Stat) (cachefile.Identity, bool) {
	id := fsinfo.Identity{Size: s.Size, Inode: s.Inode, Mode: s.Mode}
	id.SetTimes(s.ModTime, s.ChangeTime, s.BirthTime)
	return cachefile.Identity{Identity: id}, id.ModTime != fsinfo.NoTime && (id.ChangeTime > 0 || s.ChangeTime.IsZero())
}

// enter makes w ready to look up f.
func (r *run[T]) enter(w *workerState[T], f *fileproc.File) {
	if dir := core.Dir(f); dir != w.dir {
		rel := f.Rel()
		rel = rel[:len(rel)-len(f.Name())]
		w.dir, w.known, w.isOwnDir = dir, r.store.Dir(rel), r.own != "" && rel == r.ownDir
	}
}

// isUnchanged reports whether w has the outcome of f, or f is the run's own file. It
// makes no path: a million of them take as long as all else.
func (r *run[T]) isUnchanged(w *workerState[T], f *fileproc.File) bool {
	r.enter(w, f)
	if w.own = w.isOwnDir && r.isOwn(f.Name()); w.own || !r.trust.root {
		return w.own
	}
	s, err := f.Stat()
	if err != nil {
		return false
	}
	rec, ok := r.lookup(w, f, s.Inode)
	if !ok || !r.trust.of(s, f) {
		return false
	}
	id, ok := identityOf(s)
	return ok && id == rec.ID && !r.recentOf(f).isUnsettled() && r.take(w, f, rec)
}

// lookup returns what is kept of f, and notes that it is still there. Inode is 0 if
// it is unknown.
func (r *run[T]) lookup(w *workerState[T], f *fileproc.File, inode uint64) (cachefile.View, bool) {
	r.enter(w, f)
	rec, n, ok := r.store.Find(&w.known, inode, f.Name())
	if ok {
		r.store.MarkSeen(n)
	}
	if e := r.recentOf(f); e != nil {
		return e.view(), !e.isDeleted()
	}
	return rec, ok
}

// recentOf returns what a session knows of f beyond the cache file. Mostly there is no
// such file, and no path is made.
func (r *run[T]) recentOf(f *fileproc.File) *recent {
	if len(r.recent) == 0 {
		return nil
	}
	return r.recent[f.Rel()]
}

// take makes rec the outcome of w's file. What cannot be decoded is of no use.
func (r *run[T]) take(w *workerState[T], f *fileproc.File, rec cachefile.View) bool {
	if w.outcome = rec.Outcome; rec.Outcome == outcomeHeld {
		w.value, _ = r.recentOf(f).value.(T)
		return true
	}
	if rec.Outcome != cachefile.OutcomeResult {
		return true
	}
	var err error
	w.value, err = r.codec.Decode(rec.Result)
	return err == nil
}

// isOwn reports whether the file name in ownDir is the cache file, its lock, or one of
// its temporary files.
func (r *run[T]) isOwn(name string) bool {
	rest, ok := strings.CutPrefix(name, r.own)
	return ok && cachefile.IsOwnSuffix(rest)
}

// isCache reports whether f is the cache file by another name. Content that begins
// as its does, or its size and time, make that worth a look.
func (r *run[T]) isCache(f *fileproc.File) bool {
	looks := cachefile.HasMagic(f.Data())
	if r.opts.ReadSize == fileproc.NoRead && r.asks && r.loaded != nil {
		s, err := f.Stat()
		looks = err == nil && s.Size == r.loaded.Size() && s.ModTime.Equal(r.loaded.ModTime())
	}
	if !looks || r.opts.FS != nil {
		return false
	}
	file, err := f.Open()
	if err != nil {
		return false
	}
	defer file.Close()
	info, err := file.Stat()
	own, ownErr := os.Stat(r.store.Path)
	return err == nil && ownErr == nil && os.SameFile(info, own)
}

// fn returns the function that fileproc calls, nil if the caller's is.
func (r *run[T]) fn() func(*fileproc.File) (T, error) {
	if r.process == nil {
		return nil
	}
	return r.call
}

func (r *run[T]) call(f *fileproc.File) (v T, err error) {
	w := &r.workers[f.Worker()]
	if w.unchanged {
		w.unchanged = false
		if w.own {
			return v, fileproc.ErrSkip
		}
		return r.taken(w, f)
	}
	if r.isCache(f) {
		core.SetUnchanged(f)
		return v, fileproc.ErrSkip
	}
	rel := f.Rel()
	id, keeps := r.look(f)
	byContent := id.Content != noContent
	if byContent || !r.asks || !r.trust.root { // else isUnchanged has looked it up
		if rec, ok := r.lookup(w, f, 0); ok && byContent && rec.ID == id && r.take(w, f, rec) {
			core.SetUnchanged(f)
			return r.taken(w, f)
		}
	}
	sum := r.sumOf(f, id, keeps)
	e := r.recent[rel]
	if keeps && (e.isSame(id, sum) || r.isStill(rel, e, id)) && r.take(w, f, e.view()) {
		r.again(f, e, id, sum)
		return r.taken(w, f)
	}
	if !keeps {
		id = cachefile.Identity{}
	}
	rec, kept := cachefile.Record{Path: rel, ID: id}, false
	w.called = true
	if rec.Result, rec.Outcome, v, err = r.callProcess(w, f, rel); err == nil || !errors.Is(err, fs.SkipAll) {
		if kept = keeps && r.keep(f, rec, sum); !keeps {
			r.remember(f, rec, nil)
		}
		if e.isKnown(rec, w.held) {
			if w.called = false; rec.Outcome == outcomeFailed {
				err = errStillFails
			}
		}
	}
	w.held = nil
	if !kept {
		r.note(f, rel)
	}
	return v, err
}

// callProcess calls fn, and returns what is to be kept of it, and what the caller gets.
func (r *run[T]) callProcess(w *workerState[T], f *fileproc.File, rel string) (result []byte, outcome cachefile.Outcome, v T, err error) {
	switch v, err = r.process(f); {
	case err == nil:
		var ok bool
		if result, v, ok = r.encode(w, rel, v); !ok {
			w.held, outcome = v, outcomeHeld
		}
	case errors.Is(err, fs.SkipAll):
		r.stopped.Store(true)
	case errors.Is(err, fileproc.ErrSkip):
		outcome = cachefile.OutcomeSkipped
	default:
		w.held, outcome = err.Error(), outcomeFailed
	}
	return result, outcome, v, err
}

// taken returns the outcome of f, which is unchanged.
func (r *run[T]) taken(w *workerState[T], f *fileproc.File) (v T, err error) {
	if w.outcome == cachefile.OutcomeResult || w.outcome == outcomeHeld {
		v, w.value = w.value, v
		return v, nil
	}
	if w.outcome == outcomeFailed {
		return v, errStillFails
	}
	return v, fileproc.ErrSkip
}

// onBinary is the run's plumbing.Hooks.OnBinary. A binary file whose content is to be
// compared has none by now, and is read in each run.
func (r *run[T]) onBinary(f *fileproc.File) {
	rel := f.Rel()
	id, keeps := r.look(f)
	if !keeps || id.Content != noContent || !r.keep(f, cachefile.Record{Path: rel, ID: id, Outcome: cachefile.OutcomeBinary}, nil) {
		r.note(f, rel)
	}
}

var noContent [16]byte

// look returns what is to be compared of f, and whether it can be kept. It is called
// before fn, which may overwrite the content.
func (r *run[T]) look(f *fileproc.File) (cachefile.Identity, bool) {
	if r.asks {
		// It is from before the content was read.
		if s, err := f.Stat(); err == nil && r.trust.of(s, f) {
			return identityOf(s)
		}
	}
	// Of a file that is longer than ReadSize, fn may have read the rest through Open.
	if r.opts.ReadSize == fileproc.NoRead || r.inc.Compare == CompareMetadata || f.Truncated() {
		return cachefile.Identity{}, false
	}
	var id cachefile.Identity
	id.Size = int64(len(f.Data()))
	sum := sha256.Sum256(f.Data())
	copy(id.Content[:], sum[:])
	return id, true
}

// keep adds rec, the outcome for f, to what is saved, unless f may have changed
// since it was looked at. It reports whether it has. A session remembers what it
// does not keep, with the sum of the content.
func (r *run[T]) keep(f *fileproc.File, rec cachefile.Record, sum *[16]byte) (kept bool) {
	if rec.ID.Content == noContent {
		s, err := core.Restat(f)
		if err != nil {
			return false
		}
		after, ok := identityOf(s)
		if rec.ID.BirthTime == 0 {
			rec.ID.BirthTime = after.BirthTime // what a handle gives has none on Linux
		}
		if !ok || after != rec.ID || !r.isSettled(after) {
			if after.Identity != rec.ID.Identity {
				sum = nil
			}
			r.remember(f, rec, sum)
			return false
		}
	}
	if rec.Outcome >= outcomeFailed {
		r.remember(f, rec, sum)
		return false
	}
	r.add(f, rec)
	r.rememberKept(f, rec)
	r.saveNowAndThen()
	return true
}

// add adds rec to what is saved. The buffers of workers are saved one after the other:
// in a session, a later run's records must not come before those of an earlier one.
func (r *run[T]) add(f *fileproc.File, rec cachefile.Record) {
	w := f.Worker()
	if r.inOrder {
		w = 0
	}
	r.store.Add(w, rec)
}

// note notes that f is there, if that will be asked for and is not known.
func (r *run[T]) note(f *fileproc.File, rel string) {
	if _, ok := r.lookup(&r.workers[f.Worker()], f, 0); !ok && (r.inc.Deleted != nil || r.recent != nil) {
		r.add(f, cachefile.Noted(rel))
	}
}

// saveEvery is after how long a run saves what it has so far: a first run may take
// hours, and may be killed. Tests set it.
var saveEvery = 30 * time.Second

func (r *run[T]) saveNowAndThen() {
	now, last := time.Since(r.begun), r.saved.Load()
	if now-time.Duration(last) > saveEvery && r.saved.CompareAndSwap(last, int64(now)) {
		noWait, cancel := context.WithCancel(context.Background())
		cancel()
		_ = r.store.Save(noWait, nil) // the one at the end tries again, and reports its error
	}
}

// isSettled reports whether a further change would show in the times. The clock may
// have been set back since the run began.
func (r *run[T]) isSettled(id cachefile.Identity) bool {
	return fsinfo.IsSettled(id.Newest(), min(r.begun.UnixNano(), time.Now().UnixNano()))
}

// maxBuffer is how many bytes of memory for encoded results a worker keeps.
const maxBuffer = 1 << 20

// encode returns v as it is kept, and what the caller gets for it. If it cannot be
// kept, the caller gets v.
func (r *run[T]) encode(w *workerState[T], rel string, v T) ([]byte, T, bool) {
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

// end saves what is new, and returns err, the error of the run, and its own.
func (r *run[T]) end(ctx context.Context, err error) error {
	var gone []int
	hasRoot := r.report.Directories > 0 || len(r.gone.given) > 0 // whose paths are looked up one by one
	if !r.stopped.Load() && ctx.Err() == nil && r.report.Abandoned == 0 && hasRoot {
		if r.inc.Deleted != nil || r.store.Rewrites() {
			gone = r.gone.numbers(ctx)
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

// pathBelow returns the path of file, which is absolute and without links, relative
// to root with slashes, or "" if it is not below root.
func pathBelow(root, file string) string {
	at, err := os.Stat(root)
	if err != nil {
		return ""
	}
	rel := filepath.Base(file)
	for dir := filepath.Dir(file); ; dir = filepath.Dir(dir) {
		if info, err := os.Stat(dir); err == nil && os.SameFile(info, at) {
			return filepath.ToSlash(rel)
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
		rel = filepath.Join(filepath.Base(dir), rel)
	}
}
