package cache

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/fsinfo"
)

// WarmOptions say which files Warm reads, and in which order. The zero value is all
// files of the source.
type WarmOptions struct {
	// Files, if not nil, gives the names to read, the most important first; the source
	// is then not listed. A name with a slash at its end stands for all files below
	// that directory. See [FS.Entries].
	Files iter.Seq[string]
	// Include and Exclude are patterns as in fileproc's Options: only files that match
	// one of Include, if there is any, and none of Exclude.
	Include, Exclude []string
	// First lists patterns of files that are read before all others: those of the
	// first pattern, then those of the second. It cannot be combined with Files.
	First []string

	// Evict lets Warm evict as loads do: each file counts as used once. Without it,
	// Warm takes the room that is free and stops when there is none.
	Evict bool
	// Workers is how many files are read at a time. Zero is fileproc's default with NewDir,
	// and for other sources at least 16, since they may be far away.
	Workers int
	// OnProgress, if not nil, is called about ten times a second, and once before Warm
	// returns: one call at a time, on several goroutines.
	OnProgress func(WarmReport)
}

// A WarmReport says what Warm has done: each file that it met counts in one of the first five fields.
type WarmReport struct {
	Warmed    int64 `json:"warmed"`    // read and cached
	Cached    int64 `json:"cached"`    // cached before, being loaded by others, or dirty
	NotCached int64 `json:"notCached"` // too large, without room, or changed just now
	Missing   int64 `json:"missing"`   // not there
	Failed    int64 `json:"failed"`    // files and directories with another error

	Bytes   int64         `json:"bytes"` // of the content of those that were read and cached
	Full    bool          `json:"full"`  // Warm stopped because the cache is full
	Elapsed time.Duration `json:"elapsed"`
}

const (
	maxWarmErrors  = 100
	fullAfter      = 100  // files in a row without room: the cache is full
	firstWarmGroup = 64   // names of WarmOptions.Files that are read in any order
	maxWarmGroup   = 4096 // each group is twice as large as the one before, up to this
)

// Warm reads files before somebody asks for them, as fast as fileproc does. A file is
// cached if a load would cache it, with the same proof.
//
// Warm evicts nothing, unless Evict is set. Files that Warm has cached and nobody has used are
// evicted before files that were used. Of these, the ones that Warm read last go first. With
// names from Files, Warm reads groups of names one after the other: the first has 64 names,
// each further group has twice as many as the group before, up to 4,096.
//
// Listing skips links; names in Files may be links. The error joins the first 100
// failures. A missing file is not a failure, and neither is one that does not fit. When
// ctx is cancelled, the error is context.Cause(ctx). Wrong options are an error before
// anything is read.
func (c *FS) Warm(ctx context.Context, opts WarmOptions) (WarmReport, error) {
	if err := opts.validate(); err != nil {
		return WarmReport{}, err
	}
	w := &warming{c: c, opts: opts, start: time.Now(), listed: map[string]bool{}}
	w.shown = w.start
	err := w.run(ctx)
	if w.full.Load() {
		err = nil
	}
	r := w.report()
	if opts.OnProgress != nil {
		opts.OnProgress(r)
	}
	if err == nil {
		err = w.failure()
	}
	return r, err
}

func (o *WarmOptions) validate() error {
	var errs []error
	for _, p := range slices.Concat(o.Include, o.Exclude, o.First) {
		errs = append(errs, validPattern(p))
	}
	if o.Files != nil && len(o.First) > 0 {
		errs = append(errs, errors.New("cache: WarmOptions.First cannot be combined with Files, whose order is theirs"))
	}
	if o.Workers < 0 {
		errs = append(errs, errors.New("cache: WarmOptions.Workers is negative"))
	}
	return errors.Join(errs...)
}

// warming is one call of Warm.
type warming struct {
	c     *FS
	opts  WarmOptions
	start time.Time
	shown time.Time // when OnProgress was called last

	warmed, cached, notCached, missing, failed, bytes atomic.Int64
	withoutRoom                                       atomic.Int64 // in a row
	full                                              atomic.Bool
	stop                                              func() // ends the run

	mu     sync.Mutex
	errs   []error
	listed map[string]bool // with First: the paths of fileproc's failures, which each pass meets again
}

func (w *warming) run(ctx context.Context) error {
	ctx, w.stop = context.WithCancel(ctx)
	defer w.stop()
	if w.opts.Files != nil {
		return w.groups(ctx)
	}
	for i, pattern := range w.opts.First {
		if err := w.pass(ctx, nil, []string{pattern}, func(name string) bool {
			return !matches(w.opts.First[:i], name) && (len(w.opts.Include) == 0 || matches(w.opts.Include, name))
		}); err != nil { // also if the cache is full: stop has ended ctx
			return err
		}
	}
	return w.pass(ctx, nil, w.opts.Include, func(name string) bool { return !matches(w.opts.First, name) })
}

func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return doublestar.MatchUnvalidated(p, name) })
}

// groups reads the names of Files, group by group.
func (w *warming) groups(ctx context.Context) error {
	next, stop := iter.Pull(w.opts.Files)
	defer stop()
	for size := firstWarmGroup; ; size = min(2*size, maxWarmGroup) {
		names := make([]string, 0, size)
		for len(names) < size {
			name, ok := next()
			if !ok {
				break
			}
			names = append(names, name)
		}
		if len(names) == 0 {
			return nil
		}
		if err := w.pass(ctx, slices.Values(names), w.opts.Include, nil); err != nil {
			return err
		}
	}
}

// pass is one run of fileproc, over files or over the whole source.
func (w *warming) pass(ctx context.Context, files iter.Seq[string], include []string, selected func(name string) bool) error {
	opts := fileproc.Options{Files: files, Include: include, Exclude: w.opts.Exclude, Workers: w.opts.Workers}
	opts.Select = func(f *fileproc.File) bool {
		name := f.Rel()
		return (selected == nil || selected(name)) && w.wants(name)
	}
	if w.opts.OnProgress != nil {
		opts.OnProgress = func(fileproc.Report) { w.progress() }
	}
	root, fn := ".", func(f *fileproc.File) error { w.load(f.Rel(), w.c.loadWarm); return nil }
	if d, ok := w.c.source.(*dirFS); ok && fsinfo.HasInodes {
		root, fn = d.name, w.read
		listed := opts.Select
		opts.Select = func(f *fileproc.File) bool { return !isTemporary(f.Name()) && listed(f) }
		opts.Stat, opts.MaxFileSize = true, max(1, w.c.largest(""))
	} else {
		opts.FS, opts.ReadSize = w.c.source, fileproc.NoRead
		if opts.Workers == 0 {
			opts.Workers = max(16, runtime.GOMAXPROCS(0))
		}
	}
	opts.OnError = func(err error) error {
		failure := err.(*fileproc.Failure)
		if failure.Kind == fileproc.FailedRoot {
			return err
		}
		w.failedFile(root, failure)
		return nil
	}
	return fileproc.ForEach(ctx, root, opts, fn)
}

// wants reports whether the file name shall be read.
func (w *warming) wants(name string) bool {
	c := w.c
	switch {
	case w.full.Load():
		return false
	case c.data.fresh(name) || c.w.pending(name):
		w.cached.Add(1)
		return false
	case !w.hasRoom(name):
		w.noRoom()
		return false
	}
	return true
}

func (w *warming) hasRoom(name string) bool {
	return w.opts.Evict || w.c.data.fits(name, int64(len(name))+entryOverhead)
}

// read caches the content that fileproc has read, if a load would read the same. A file that was
// firm before Warm began, and has the same metadata now, did not change while it was read. That
// metadata comes from the source, so it also shows that the file of that name is within the source.
func (w *warming) read(f *fileproc.File) error {
	c, name := w.c, f.Rel()
	s, _ := f.Stat() // without an error: Options.Stat is set
	id := fsinfo.Identity{Size: s.Size, Mode: s.Mode, Device: s.Device, Inode: s.Inode}
	id.SetTimes(s.ModTime, s.ChangeTime, time.Time{})
	if c.trust == 0 && !firm(id, time.Now()) {
		w.notCached.Add(1) // a load would not cache it either
		return nil
	}
	w.load(name, func(name string) (*content, loaded, error) {
		testBeforeProof()
		began := c.data.now()
		after, err := fs.Stat(c.source, name)
		if err != nil || fsinfo.Of(after) != id || !firm(id, w.start) || int64(len(f.Data())) != id.Size {
			return c.loadWarm(name)
		}
		ct := &content{stamp: stamp{id: id, firm: true, whole: true, began: began}, info: infoOf(after),
			data: append([]byte(nil), f.Data()...)}
		return ct, loaded{cost: ct.cost(name), ttl: c.ttlOf(name, &ct.info), began: began, keep: true}, nil
	})
	return nil
}

var testBeforeProof = func() {} // a test changes the file

func (c *FS) loadWarm(name string) (*content, loaded, error) { return c.read(name, c.largest(name)) }

// load loads name by fn and counts what becomes of it.
func (w *warming) load(name string, fn func(name string) (*content, loaded, error)) {
	if !w.hasRoom(name) { // other files may have been loaded since this one was selected
		w.noRoom()
		return
	}
	size := int64(0)
	result, err := w.c.data.loadAhead(name, func() (*content, loaded, error) {
		ct, l, err := fn(name)
		l.ahead = !w.opts.Evict
		if ct != nil {
			size = int64(len(ct.data))
		}
		return ct, l, err
	})
	switch {
	case err != nil:
		w.record(name, err)
	case result == aheadCached:
		w.withoutRoom.Store(0)
		w.warmed.Add(1)
		w.bytes.Add(size)
	case result == aheadWasThere:
		w.cached.Add(1)
	case result == aheadNoRoom && !w.opts.Evict:
		w.noRoom()
	default:
		w.notCached.Add(1)
	}
}

func (w *warming) noRoom() {
	w.notCached.Add(1)
	if w.withoutRoom.Add(1) >= fullAfter {
		w.full.Store(true)
		w.stop()
	}
}

// failedFile notes a failure of fileproc, except for a link that Files names: fileproc does not
// read it, but a load does, so failedFile loads it.
func (w *warming) failedFile(root string, failure *fileproc.Failure) {
	if len(w.opts.First) > 0 && !w.meets(failure.Path) {
		return
	}
	if errors.Is(failure, fileproc.ErrTooLarge) {
		w.notCached.Add(1)
		return
	}
	name := strings.TrimPrefix(filepath.ToSlash(failure.Path), strings.TrimSuffix(filepath.ToSlash(root), "/")+"/")
	if errors.Is(failure, fs.ErrInvalid) && fs.ValidPath(name) {
		if info, err := fs.Stat(w.c.source, name); err == nil && isRegular(info.Mode()) {
			w.load(name, w.c.loadWarm)
			return
		}
	}
	w.record("", failure)
}

// meets reports whether path has not failed before.
func (w *warming) meets(path string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	met := w.listed[path]
	w.listed[path] = true
	return !met
}

func (w *warming) record(name string, err error) {
	if errors.Is(err, fs.ErrNotExist) {
		w.missing.Add(1)
		return
	}
	n := w.failed.Add(1)
	if n > maxWarmErrors {
		return
	}
	if name != "" {
		err = fmt.Errorf("warm %s: %w", name, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.errs = append(w.errs, err)
}

func (w *warming) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if more := w.failed.Load() - maxWarmErrors; more > 0 {
		return errors.Join(append(w.errs, fmt.Errorf("and %d more", more))...)
	}
	return errors.Join(w.errs...)
}

// progress is called once at a time, also at the end of each pass. A second may have many
// passes, so progress calls OnProgress at most every 50 milliseconds.
func (w *warming) progress() {
	if now := time.Now(); now.Sub(w.shown) >= 50*time.Millisecond {
		w.shown = now
		w.opts.OnProgress(w.report())
	}
}

func (w *warming) report() WarmReport {
	return WarmReport{Warmed: w.warmed.Load(), Cached: w.cached.Load(), NotCached: w.notCached.Load(), Missing: w.missing.Load(),
		Failed: w.failed.Load(), Bytes: w.bytes.Load(), Full: w.full.Load(), Elapsed: time.Since(w.start)}
}
