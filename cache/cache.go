// Package cache keeps files in memory for programs that read the same files again
// and again: development servers, language servers, build daemons. It is an [fs.FS]
// in front of a directory or of any other fs.FS:
//
//	files, err := cache.NewDir("/srv/site", cache.Options{})
//	...
//	http.Handle("/", http.FileServerFS(files))
//
// [FS] has Open, ReadFile, Stat and ReadDir, so it serves as Options.FS of package
// fileproc too. [Results] caches what a function makes of the files.
//
// # What is right
//
// A file is cached only if its end is known: a read has returned io.EOF, at the size
// in the metadata, and the metadata is the same before and after the read. Content
// without this proof is returned, and not cached.
//
// By default the cache compares each hit with the file: size, modification time and mode,
// and, where the system has them, change time, inode and device. That takes a stat
// instead of an open, reads and a close. A call returns no state older than the
// call itself. [Options.Trust] omits the comparison for an interval, or always.
//
// A file system's clock moves in steps, and a file may change twice within one step. So a
// file that changed within 2 seconds before it was read is read again until it is older,
// and a file without times, as in an embed.FS, is read each time. With Trust both are
// served from memory. The cache does not see a change that the file system itself hides, as
// a network file system with a cache of its own may. Nor does it see a store through a shared
// mapping (mmap) before the system sets the times anew: Linux does so when the page is first
// written, and again only after the page has been written back.
//
// # The bounds
//
// Entries take at most [Options.MaxBytes] at each moment: room is made before an entry
// is added. An entry counts as the sum of its content's memory, which Go's allocator
// rounds up, its name, and 512 bytes, or 768 if its metadata has a Sys. Listings and
// metadata have a bound of their own. Files do not count while they are read, and
// neither does memory that open files and slices hold after the entry was evicted.
//
// Reads are bounded too, whatever the metadata says: a file that goes on beyond
// MaxFileSize is not cached, and Open returns the source's own file. Only ReadFile, View
// and [Results] read such a file whole. This read takes the size of the file in memory, and
// never returns for a file without an end.
//
// The entries are divided among [Options.Shards], each with a mutex and its part of the
// bounds. Policies hold within a shard; with one shard they are exact. An eviction by
// LRU, LFU or Hybrid takes constant time. If entries have a TTL, the time also grows
// with the logarithm of their number.
//
// Entries that have expired are not served. Their memory is freed when the key is
// asked for, by insertions, and by Stats.
//
// # Loads
//
// When several callers want the same file at the same time, one of them reads it. A
// caller that arrives while a file is being read compares the result with the file, as
// it does with a hit. Invalidating a name during its load keeps the result out of the cache.
//
// # Warming and snapshots
//
// [FS.Warm] reads files before somebody asks for them: all files, or those of a pattern, a
// directory or a list, such as the most used files of the last run, which [FS.Entries] gives.
// With [NewDir], fileproc reads them, on systems with inodes. From other sources, Warm reads
// them as loads do, several at a time. [FS.SaveSnapshot] and [FS.LoadSnapshot] keep the
// content of files from one run to the next. Warming and snapshots cache only what a load
// would cache, and evict nothing unless [WarmOptions] has Evict.
//
// # Writes
//
// [FS.WriteFile] and [FS.Remove] write to the [Store]. The table says what holds when
// WriteFile has returned nil or an error. Where it says that the store decides, a read
// gives what the store then has:
//
//	mode           nil                                         an error
//	WriteThrough   the store has it; it may be cached          the store decides; nothing is cached
//	WriteAround    the store has it; the next read caches it   the store decides; nothing is cached
//	WriteBack      it is dirty: in memory, and read from there  nothing has changed
//
// With WriteBack, a file larger than MaxDirtyBytes is written to the store at once, and
// after an error the store decides.
//
// Remove is a write too: with WriteBack the file is gone from the cache at once, and
// from the store after a flush. A dirty file leaves memory after the store has taken
// it, not before. A flush that fails loses nothing: the file stays dirty, and the error
// goes to the caller of Flush or Close, to OnFlushError and to the counters. Files that
// are dirty when the process dies are lost.
//
// The store of [NewDir] writes a temporary file, syncs it, renames it and syncs the
// directory. So others see the old file or the new one, and what the store has survives a
// crash of the machine, if the file system keeps what it has synced. Windows and Plan 9 do
// not sync directories. An existing file keeps its permissions, a link is replaced, and
// missing directories above are made. Temporary files (.cache- and 26 characters) are not
// listed. The first write into a directory removes temporary files older than an hour,
// which writers that were killed have left.
package cache

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/bmatcuk/doublestar/v4"
)

// Forever is the Trust under which no hit is compared with its file.
const Forever time.Duration = math.MaxInt64

// Options say how a cache works. The zero value is a good default.
type Options struct {
	// MaxBytes bounds the memory of the cached files, in bytes; 0 is 256 MiB.
	MaxBytes int64
	// MaxEntries bounds the number of cached files; 0 is no bound.
	MaxEntries int
	// MaxFileSize is the largest file that is cached, in bytes; 0 is as large as a
	// shard can hold. Larger files are read from the source.
	MaxFileSize int64
	// MaxMetaBytes bounds the memory of cached listings and metadata, in bytes; 0 is
	// 32 MiB.
	MaxMetaBytes int64

	// Policy says which entry is evicted at a bound.
	Policy Policy
	// TTL is how long an entry is served at most; 0 is no limit.
	TTL time.Duration
	// TTLOf, if set, returns the TTL of one file or directory: 0 for Options.TTL,
	// negative for no limit. With Policy TTL each entry has a limit, so negative is
	// Options.TTL too. It must not call methods of the FS, which may hold locks meanwhile.
	TTLOf func(name string, info fs.FileInfo) time.Duration

	// Trust is how long an entry is served without comparing it with its file. With 0
	// each hit is compared, with Forever none is. Metadata is cached only with Trust.
	Trust time.Duration

	// Store takes what WriteFile and Remove write; nil refuses writes. With NewDir, nil
	// stands for the directory.
	Store Store
	// Write says when a write reaches the store.
	Write WriteMode
	// MaxDirtyBytes bounds what WriteBack holds, in bytes; 0 is a quarter of MaxBytes.
	// It is part of MaxBytes. A larger file is written to the store at once.
	MaxDirtyBytes int64
	// FlushInterval is the time after which WriteBack flushes dirty files; 0 is 5 seconds.
	// With Forever, WriteBack does not flush by time.
	FlushInterval time.Duration
	// FlushWorkers is how many files a flush writes at a time; 0 is 1. With more than one,
	// the order of the flushes is kept for each name, and not among names.
	FlushWorkers int
	// OnFlushError, if set, is called for each dirty file that a flush could not write,
	// one call at a time. It must not write, remove, flush or close, nor ask for a directory,
	// which flushes too.
	OnFlushError func(name string, err error)

	// Shards divides the cache; 0 is up to the number of processors, as long as each
	// has at least 32 MiB and 4,096 entries. A file that is larger than its shard is not
	// cached.
	Shards int
}

// Policy says which entry is evicted when a bound is reached. Entries that have
// expired are removed before any other.
type Policy int

const (
	// LRU evicts the entry that was used least recently. It is the default.
	LRU Policy = iota
	// LFU evicts the entry that was used least often since it was cached; among
	// these, the one used least recently.
	LFU
	// TTL evicts the entry that expires first. It needs Options.TTL.
	TTL
	// Hybrid first evicts entries that were used once, then entries that were used
	// again; of each, the least recently used first. Entries that were used again may take
	// up four fifths of the bounds. So a scan that reads many files once does not evict
	// files that are used often.
	Hybrid
)

const (
	defaultMaxBytes     = 256 << 20
	defaultMaxMetaBytes = 32 << 20
)

func (o *Options) validate() error {
	var errs []error
	for _, n := range []struct {
		name  string
		value int64
	}{{"MaxBytes", o.MaxBytes}, {"MaxEntries", int64(o.MaxEntries)}, {"MaxFileSize", o.MaxFileSize},
		{"MaxMetaBytes", o.MaxMetaBytes}, {"TTL", int64(o.TTL)}, {"Trust", int64(o.Trust)}, {"Shards", int64(o.Shards)},
		{"MaxDirtyBytes", o.MaxDirtyBytes}, {"FlushInterval", int64(o.FlushInterval)}, {"FlushWorkers", int64(o.FlushWorkers)}} {
		if n.value < 0 {
			errs = append(errs, fmt.Errorf("cache: Options.%s is negative", n.name))
		}
	}
	if o.Policy < LRU || o.Policy > Hybrid {
		errs = append(errs, fmt.Errorf("cache: Options.Policy %d is unknown", o.Policy))
	}
	if o.Policy == TTL && o.TTL == 0 {
		errs = append(errs, errors.New("cache: Options.Policy TTL needs Options.TTL"))
	}
	if o.Write < WriteThrough || o.Write > WriteBack {
		errs = append(errs, fmt.Errorf("cache: Options.Write %d is unknown", o.Write))
	}
	if o.Write != WriteBack && (o.MaxDirtyBytes != 0 || o.FlushInterval != 0 || o.FlushWorkers != 0 || o.OnFlushError != nil) {
		errs = append(errs, errors.New("cache: Options.MaxDirtyBytes, FlushInterval, FlushWorkers and OnFlushError are for WriteBack"))
	}
	if o.maxDirty() > o.maxBytes() {
		errs = append(errs, errors.New("cache: Options.MaxDirtyBytes is more than MaxBytes"))
	}
	return errors.Join(errs...)
}

func (o *Options) maxBytes() int64 { return cmp.Or(o.MaxBytes, defaultMaxBytes) }

func (o *Options) maxDirty() int64 {
	if o.Write != WriteBack {
		return 0
	}
	return cmp.Or(o.MaxDirtyBytes, o.maxBytes()/4)
}

// FS is a source with a cache in front. Its methods may be called by any number of
// goroutines.
type FS struct {
	source  fs.FS
	data    *engine[*content] // by name
	meta    *engine[*content] // metadata by name, listings by name and a slash
	trust   time.Duration
	maxFile int64
	ttl     func(string, fs.FileInfo) time.Duration
	owned   *dirFS // closed with the FS

	writer writer
	w      writes

	results atomic.Pointer[[]dropper] // set under w.mu
}

// A dropper is the engine of Results.
type dropper interface {
	drop(key string) bool
	forget(key string, drops uint64) bool
	dropAll(match func(key string) bool) int
}

// dependents returns the Results of c.
func (c *FS) dependents() []dropper {
	if r := c.results.Load(); r != nil {
		return *r
	}
	return nil
}

var _ interface {
	fs.ReadFileFS
	fs.StatFS
	fs.ReadDirFS
	fs.ReadLinkFS
} = (*FS)(nil)

// New puts a cache in front of source.
func New(source fs.FS, opts Options) (*FS, error) {
	if source == nil {
		return nil, errors.New("cache: no source")
	}
	if err := opts.validate(); err != nil {
		return nil, err
	}
	l := limits{policy: opts.Policy, maxBytes: opts.maxBytes() - opts.maxDirty(), ttl: opts.TTL, shards: opts.Shards,
		maxEntries: cmp.Or(opts.MaxEntries, math.MaxInt)}
	c := &FS{source: source, trust: opts.Trust, maxFile: cmp.Or(opts.MaxFileSize, math.MaxInt64), ttl: opts.TTLOf}
	c.data = newEngine[*content](l)
	l.maxBytes, l.maxEntries = cmp.Or(opts.MaxMetaBytes, defaultMaxMetaBytes), math.MaxInt
	c.meta = newEngine[*content](l)
	c.w = writes{store: opts.Store, interval: cmp.Or(opts.FlushInterval, 5*time.Second), onError: opts.OnFlushError,
		workers: opts.FlushWorkers, most: opts.maxDirty(), dirty: map[string]*dirtyFile{}, below: map[string]int{},
		flushLater: c.flushAtInterval}
	if opts.Write == WriteBack {
		c.writer = &back{c}
	} else {
		c.writer = newDirect(c, opts.Write == WriteThrough)
	}
	return c, nil
}

// NewDir puts a cache in front of the directory name, which is the store too unless
// opts has another. No name and no link leads outside of it. Close releases the directory.
func NewDir(name string, opts Options) (*FS, error) {
	d, err := newDirFS(name)
	if err != nil {
		return nil, err
	}
	if opts.Store == nil {
		opts.Store = d
	}
	c, err := New(d, opts)
	if err != nil {
		d.Close()
		return nil, err
	}
	c.owned = d
	return c, nil
}

func (c *FS) ttlOf(name string, i *info) time.Duration {
	if c.ttl == nil {
		return 0
	}
	return c.ttl(name, i)
}

// notBefore returns the earliest time of a check after which a value is still trusted now.
func (c *FS) notBefore() int64 {
	switch c.trust {
	case 0:
		return math.MaxInt64
	case Forever:
		return math.MinInt64 + 1 // later than what LoadSnapshot has cached
	}
	return c.data.now() - int64(c.trust)
}

// hit returns the cached value of key, if it is trusted, or if a comparison shows that
// its file, name, is unchanged.
func hit[V stamped](c *FS, e *engine[V], key, name string) (v V, ok bool) {
	v, ok, trusted := e.get(key, c.notBefore())
	if !ok || trusted {
		return v, ok
	}
	made, at := v.made(), c.data.now()
	is, why := differs, expired
	if made.firm {
		is, why = c.compare(name, made.id), changed
	}
	e.checked(key, v, at, is, why)
	return v, is == same
}

// load loads key by fn. It takes the value of another caller's load that began earlier, if
// that value would be a hit.
func load[V stamped](c *FS, e *engine[V], key, name string, fn func() (V, loaded, error)) (V, error) {
	return e.load(key, fn, func(v V, err error) bool {
		if err != nil {
			return c.trust != 0
		}
		made := v.made()
		return made.began >= c.notBefore() || made.firm && c.isStill(name, made.id)
	})
}

// content returns the file or directory name as it is in memory, dirty or cached, or loads it.
func (c *FS) content(name string) (*content, error) {
	if ct, err := c.dirtyContent(name); ct != nil || err != nil {
		return ct, err
	}
	if ct, ok := hit(c, c.data, name, name); ok {
		return ct, nil
	}
	return load(c, c.data, name, name, func() (*content, loaded, error) { return c.read(name, c.largest(name)) })
}

// listing returns what the directory name holds.
func (c *FS) listing(name string) (*content, error) {
	if err := c.flushBelow(name); err != nil {
		return nil, err
	}
	key := name + "/"
	if ct, ok := hit(c, c.meta, key, name); ok {
		return ct, nil
	}
	return load(c, c.meta, key, name, func() (*content, loaded, error) { return c.list(name) })
}

// Open opens a file or a directory. A regular file that fits the cache is read at
// once, and the open file keeps that state; it is an io.Seeker and an io.ReaderAt
// too. Other files are the source's own.
func (c *FS) Open(name string) (fs.File, error) {
	if err := valid("open", name); err != nil {
		return nil, err
	}
	ct, err := c.content(name)
	if err != nil && c.dirtyBelow(name) { // a directory that the source does not have yet
		if err = c.flushBelow(name); err == nil {
			ct, err = c.content(name)
		}
	}
	if err != nil {
		return nil, err
	}
	switch ct.kind {
	case regular:
		return ct.file(name), nil
	case directory:
		if ct, err = c.listing(name); err != nil {
			return nil, err
		}
		if ct.kind == directory {
			return &openDir{handle: handle{ct, name, false}}, nil
		}
	}
	return c.source.Open(name)
}

// ReadFile returns a copy of what the file name holds.
func (c *FS) ReadFile(name string) ([]byte, error) { return c.view(name, true) }

// View is ReadFile without the copy: the caller must not modify the content that it
// returns, and that content never changes.
func (c *FS) View(name string) ([]byte, error) { return c.view(name, false) }

// view returns the content of the file name, or a copy that the caller may modify.
func (c *FS) view(name string, own bool) ([]byte, error) {
	if err := valid("read", name); err != nil {
		return nil, err
	}
	ct, err := c.content(name)
	switch {
	case err != nil:
		return nil, err
	case ct.kind == directory:
		return nil, isDirectory("read", name)
	case ct.kind == uncachable:
		return fs.ReadFile(c.source, name)
	case own:
		data := make([]byte, len(ct.data))
		copy(data, ct.data)
		return data, nil
	}
	return ct.bytes(), nil
}

// Stat returns metadata. With Options.Trust it is cached.
func (c *FS) Stat(name string) (fs.FileInfo, error) {
	if err := valid("stat", name); err != nil {
		return nil, err
	}
	if ct, _ := c.dirtyContent(name); ct != nil {
		return &ct.info, nil
	}
	if err := c.flushBelow(name); err != nil {
		return nil, err
	}
	if _, err := c.dirtyContent(name); err != nil { // removed, and nothing took its place
		return nil, err
	}
	if c.trust == 0 {
		return fs.Stat(c.source, name)
	}
	if ct, _, trusted := c.meta.get(name, c.notBefore()); trusted {
		return &ct.info, nil
	}
	ct, err := load(c, c.meta, name, name, func() (*content, loaded, error) {
		began := c.data.now()
		i, err := fs.Stat(c.source, name)
		if err != nil {
			return nil, loaded{}, err
		}
		ct := &content{stamp: stamp{began: began}, info: infoOf(i)}
		return ct, loaded{cost: ct.cost(name), ttl: c.ttlOf(name, &ct.info), began: began, keep: true}, nil
	})
	if err != nil {
		return nil, err
	}
	return &ct.info, nil
}

// Lstat is [fs.Lstat] of the source. It is not cached.
func (c *FS) Lstat(name string) (fs.FileInfo, error) {
	if err := valid("lstat", name); err != nil {
		return nil, err
	}
	if _, ok := c.source.(fs.ReadLinkFS); !ok || c.w.pending(name) {
		return c.Stat(name)
	}
	if err := c.flushBelow(name); err != nil {
		return nil, err
	}
	return fs.Lstat(c.source, name)
}

// ReadLink is [fs.ReadLink] of the source. It is not cached.
func (c *FS) ReadLink(name string) (string, error) {
	if err := valid("readlink", name); err != nil {
		return "", err
	}
	if ct, err := c.dirtyContent(name); err != nil {
		return "", err
	} else if ct != nil { // a file takes the place of the link
		return "", &fs.PathError{Op: "readlink", Path: name, Err: fs.ErrInvalid}
	}
	return fs.ReadLink(c.source, name)
}

// ReadDir returns the entries of a directory, sorted by name.
func (c *FS) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := valid("readdir", name); err != nil {
		return nil, err
	}
	ct, err := c.listing(name)
	if err != nil {
		return nil, err
	}
	if ct.kind != directory {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: errors.New("not a directory")}
	}
	return slices.Clone(ct.names), nil
}

// Invalidate makes the cache forget the names, and the listings of the directories
// that they are in. A name with a slash at its end stands for the directory and all below
// it: "a/b/" stands for "a/b" and "a/b/c", and not for "a/bc". Such a name takes time in
// proportion to all entries. Invalidate returns how many files were cached. A load that is
// under way meanwhile does not cache its file.
func (c *FS) Invalidate(names ...string) (files int) {
	var trees []string
	results := c.dependents()
	for _, name := range names {
		tree := strings.HasSuffix(name, "/")
		name = clean(name)
		if tree {
			trees = append(trees, name)
		}
		if c.data.drop(name) {
			files++
		}
		c.meta.drop(name)
		c.meta.drop(name + "/")
		c.meta.drop(path.Dir(name) + "/")
		for _, r := range results {
			r.drop(name)
		}
	}
	if len(trees) == 0 {
		return files
	}
	return files + c.invalidate(func(name string) bool {
		return slices.ContainsFunc(trees, func(tree string) bool { return below(name, tree) })
	}, false)
}

// below reports whether name is prefix or in the tree below it.
func below(name, prefix string) bool {
	return prefix == "." || name == prefix || len(name) > len(prefix) && name[len(prefix)] == '/' && name[:len(prefix)] == prefix
}

// InvalidatePattern makes the cache forget the names that match one of the patterns, and
// all listings, since files that match may be new. Patterns are as in fileproc's
// Options.Include: * does not match a slash, and ** matches any number of directories. It
// returns how many files were cached.
func (c *FS) InvalidatePattern(patterns ...string) (int, error) {
	for _, p := range patterns {
		if err := validPattern(p); err != nil {
			return 0, err
		}
	}
	return c.invalidate(func(name string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool { return doublestar.MatchUnvalidated(p, name) })
	}, true), nil
}

// validPattern refuses a text that is no pattern, and a pattern that matches no name: with
// a slash at an end, an empty part, . or ..
func validPattern(p string) error {
	parts := strings.Split(p, "/")
	if !doublestar.ValidatePattern(p) || slices.ContainsFunc(parts, func(s string) bool { return s == "" || s == ".." || s == "." && p != "." }) {
		return fmt.Errorf("cache: pattern %q: %w", p, path.ErrBadPattern)
	}
	return nil
}

// Clear makes the cache forget everything but its counters.
func (c *FS) Clear() { c.invalidate(all, true) }

func all(string) bool { return true }

// invalidate drops the names that match, and all listings if listings says so.
func (c *FS) invalidate(match func(name string) bool, listings bool) int {
	files := c.data.dropAll(match)
	c.meta.dropAll(func(key string) bool {
		name, listing := strings.CutSuffix(key, "/")
		return match(name) || listing && listings
	})
	for _, r := range c.dependents() {
		r.dropAll(match)
	}
	return files
}

// clean returns the name by which the cache knows a file: without slashes at its ends, doubled
// slashes, and the elements . and ..; "." for root.
func clean(name string) string {
	name = strings.Trim(path.Clean("/"+name), "/")
	if name == "" {
		return "."
	}
	return name
}
