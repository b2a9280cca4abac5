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

// meaning is part of every key. A change of the library to what it keeps of a file changes meaning too.
const meaning = "1"

// A run is one call of Process, ForEach or Stream, or all runs of a Session.
type run[T any] struct {
	root    string
	inc     *Options[T]
	opts    fileproc.Options // as the caller gave them
	codec   Codec[T]
	process func(*fileproc.File) (T, error)
	store   *cachefile.Store
	ownDir  string      // directory of the cache file, relative to root, with a slash at its end
	own     string      // name of the cache file in ownDir, "" if it is not below root
	loaded  fs.FileInfo // of the cache file, nil if there was none
	begun   time.Time   // before any file was looked at
	trust   trust
	asks    bool // the run calls isUnchanged for each file
	gone    deletions
	report  fileproc.Report
	workers []workerState[T]
	recent  map[string]*recent // by path: what a session knows beyond the cache file; nil for a run without a session
	inOrder bool               // add gives all records to one buffer

	saved   atomic.Int64 // nanoseconds from begun to the last save
	stopped atomic.Bool  // the run has ended before all files were seen

	mu        sync.Mutex // guards what follows
	encodeErr error      // the first error of a result that cannot be encoded
	unencoded int        // how many results these are
}

// A workerState is used by one worker at a time.
type workerState[T any] struct {
	unchanged bool // isUnchanged returned true: the next call is for that file
	value     T    // of that file
	outcome   cachefile.Outcome
	own       bool
	called    bool          // fn was called for the last file, and its outcome was not known
	held      any           // recent.value for that file
	dir       any           // the directory of the last file
	known     cachefile.Dir // what the cache file has of that directory
	isOwnDir  bool          // whether the cache file is in that directory
	buf       []byte
	recent    []*recent // go to run.recent when all workers are done
	_         [64]byte  // workers do not share cache lines
}

// begin is newRun for a run of its own, not for a session.
func begin[T any](root string, inc *Options[T], opts *fileproc.Options, fn func(*fileproc.File) (T, error)) (*run[T], error) {
	r, err := newRun(root, inc, opts, fn)
	if err == nil && opts.Files == nil {
		r.store.Links = uint64(opts.Symlinks)
	}
	return r, err
}

// newRun loads the cache file and sets in opts what the run needs. It returns one
// error that lists all mistakes in inc.
func newRun[T any](root string, inc *Options[T], opts *fileproc.Options, fn func(*fileproc.File) (T, error)) (*run[T], error) {
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
	workers = min(workers, 1<<16) // fileproc refuses more
	r := &run[T]{root: root, inc: inc, opts: *opts, codec: codec, process: fn, workers: make([]workerState[T], workers)}
	r.load()
	r.inspectRoot()
	r.prepare(opts)
	return r, nil
}

// load reads the cache file.
func (r *run[T]) load() {
	r.store, _ = cachefile.Load(r.inc.File, r.key(), len(r.workers)) // if the file cannot be replaced either, Save returns an error
	r.loaded, _ = os.Stat(r.store.Path)
}

// inspectRoot finds out whether metadata can be compared below root, and where below root the cache file is.
func (r *run[T]) inspectRoot() {
	compare := r.inc.Compare
	r.trust.compare, r.trust.root, r.own = compare, compare == CompareMetadata, ""
	r.trust.others.Clear() // the number of a device that was mounted may be another one's by now
	r.trust.last.Store(0)
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
	if opts.Workers == 0 && opts.FS == nil { // with an FS, zero means more than a number
		opts.Workers = len(r.workers) // GOMAXPROCS may change before fileproc reads it
	}
	hooks := core.Hooks(opts)
	if r.asks {
		hooks.Unchanged = func(f *fileproc.File) bool {
			w := &r.workers[f.Worker()]
			w.unchanged = r.isUnchanged(w, f)
			return w.unchanged
		}
	}
	hooks.OnBinary = r.onBinary
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

// identityOf returns the part of s that runs compare, and whether s can be kept at all. It
// leaves out the number of the device, which may change with the next mount.
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

// isUnchanged reports whether it has found the outcome of f and put it into w, or f is one
// of the run's own files. It makes no path: a million paths take as long as all else.
func (r *run[T]) isUnchanged(w *workerState[T], f *fileproc.File) bool {
	r.enter(w, f)
	if w.own = w.isOwnDir && r.isOwn(f.Name()); w.own || !r.trust.root {
		return w.own
	}
	s, _ := f.Stat() // fileproc has fetched it
	rec, ok := r.lookup(w, f, s.Inode)
	if !ok || !r.trust.of(s, f) {
		return false
	}
	id, _ := identityOf(s)
	return id == rec.ID && !r.recentOf(f).isUnsettled() && r.take(w, f, rec)
}

// lookup returns what is kept of f, and notes that f is still there. Inode is 0 if
// unknown.
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

// recentOf returns what a session knows of f beyond the cache file. Mostly it knows no
// such file, and recentOf makes no path.
func (r *run[T]) recentOf(f *fileproc.File) *recent {
	if len(r.recent) == 0 {
		return nil
	}
	return r.recent[f.Rel()]
}

// take puts rec, the outcome of f, into w. It returns false if the result cannot be decoded: then fn is called.
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
	if id.Content != noContent { // else isUnchanged has looked f up, or nothing can be compared
		if rec, _ := r.lookup(w, f, 0); rec.ID == id && r.take(w, f, rec) {
			core.SetUnchanged(f)
			return r.taken(w, f)
		}
	}
	sum := r.sumOf(f, id)
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
	if rec.Result, rec.Outcome, v, err = r.callProcess(w, f, rel); !errors.Is(err, fs.SkipAll) {
		if kept = keeps && r.keep(f, rec, sum); !keeps {
			r.remember(f, rec, nil)
		}
		if e.isKnown(rec, w.held) {
			if w.called = false; rec.Outcome == outcomeFailed {
				err = errStillFails
			}
		}
	}
	if !kept {
		r.note(f, rel)
	}
	return v, err
}

// callProcess calls fn. It returns the result and the outcome to keep, and what the caller gets.
func (r *run[T]) callProcess(w *workerState[T], f *fileproc.File, rel string) (result []byte, outcome cachefile.Outcome, v T, err error) {
	w.held = nil
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

// taken returns to the caller the outcome that take has put into w, for f, which is unchanged.
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

// onBinary is the run's plumbing.Hooks.OnBinary. It gets no content: where content is
// compared, it keeps no binary file, and each run reads these files.
func (r *run[T]) onBinary(f *fileproc.File) {
	rel := f.Rel()
	id, keeps := r.look(f)
	r.workers[f.Worker()].held = nil // of an earlier file
	if !keeps || id.Content != noContent || !r.keep(f, cachefile.Record{Path: rel, ID: id, Outcome: cachefile.OutcomeBinary}, nil) {
		r.note(f, rel)
	}
}

var noContent [16]byte

// look returns what runs compare of f, and whether the outcome of f can be kept. It is
// called before fn, which may overwrite the content.
func (r *run[T]) look(f *fileproc.File) (cachefile.Identity, bool) {
	if r.asks {
		// The metadata is from before the content was read.
		if s, err := f.Stat(); err == nil && r.trust.of(s, f) {
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

// keep adds rec, the outcome for f, to the records to save, unless f may have changed
// since it was looked at. It reports whether it has added rec. A session remembers an
// outcome that keep does not add, with the sum of the content.
func (r *run[T]) keep(f *fileproc.File, rec cachefile.Record, sum *[16]byte) (kept bool) {
	if rec.ID.Content == noContent {
		s, err := core.Restat(f)
		if err != nil {
			return false
		}
		after, _ := identityOf(s)
		if rec.ID.BirthTime == 0 {
			rec.ID.BirthTime = after.BirthTime // on Linux, the metadata of an open file has none
		}
		if after != rec.ID || !r.isSettled(after) {
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

// add adds rec to the records to save. Save writes the buffers of the workers one after the
// other. In a session, all records go into one buffer: those of an earlier run must come first.
func (r *run[T]) add(f *fileproc.File, rec cachefile.Record) {
	w := f.Worker()
	if r.inOrder {
		w = 0
	}
	r.store.Add(w, rec)
}

// note saves that f is there, if Options.Deleted or a session will ask and the store does not know.
func (r *run[T]) note(f *fileproc.File, rel string) {
	if _, ok := r.lookup(&r.workers[f.Worker()], f, 0); !ok && (r.inc.Deleted != nil || r.recent != nil) {
		r.add(f, cachefile.Noted(rel))
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
// gets. If v cannot be kept, encode returns false, and the caller gets v.
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

// end finds out what is gone, saves what is new, and returns err, the error of the run, joined with its own errors.
func (r *run[T]) end(ctx context.Context, err error) error {
	var gone []int
	hasRoot := r.report.Directories > 0 || len(r.gone.given) > 0 // given paths are looked up one by one, without a listing
	if !r.stopped.Load() && ctx.Err() == nil && hasRoot {
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
