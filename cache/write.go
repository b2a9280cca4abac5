package cache

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fileproc/fileproc/internal/fsinfo"
)

// A Store takes what is written. Several goroutines may call its methods, but only one at
// a time for one name. The methods must not call methods of the FS, which may hold locks
// meanwhile.
type Store interface {
	// WriteFile makes data the content of the file name, all of it or nothing. It
	// must neither modify nor keep data. It returns the metadata that the source
	// has of the file as it was written, or nil if it does not know this metadata:
	// then the content is cached only with Options.Trust.
	WriteFile(name string, data []byte) (fs.FileInfo, error)
	// Remove removes a file. For a file that does not exist, its error must be or wrap
	// fs.ErrNotExist, which a flush with WriteBack takes as success.
	Remove(name string) error
}

// WriteMode says when a write reaches the store.
type WriteMode int

const (
	// WriteThrough writes to the store and caches what was written. When WriteFile
	// returns nil, the store has it. After an error the name is not cached.
	WriteThrough WriteMode = iota
	// WriteAround writes to the store, and caches at the next read.
	WriteAround
	// WriteBack keeps what is written in memory, dirty, until a flush. A flush happens at
	// the end of Options.FlushInterval, in Flush and Close, when Options.MaxDirtyBytes is
	// reached, and in ReadDir, Open, Stat, Lstat or Remove of a directory above; that call fails
	// if the flush does. Dirty files are read as they were written, are never evicted, and
	// survive each failure of the store. They do not survive the process. A file that was
	// removed is dirty too, until a flush removes it from the store.
	WriteBack
)

// ErrNoStore is the error of writes without Options.Store.
var ErrNoStore = errors.New("the cache has no store")

// ErrDirty is the error of a write that finds no room because dirty files cannot be
// flushed. The file is what it was before.
var ErrDirty = errors.New("the cache is full of files that could not be flushed")

// A writer is what FS.WriteFile and FS.Remove do in one of the modes.
type writer interface {
	write(name string, data []byte) error
	remove(name string) error
	wait() // returns when no write is under way that began before Close
}

// writes is the part of an FS that writes. The locks of the package, in their order:
//
//	lock             guards                                    during calls of source, store, functions
//	writes.closing   one Close at a time                       held, and of OnFlushError
//	direct.names     the order of writes of a name             held
//	writes.flushing  one flush at a time, with WriteBack       held, and of OnFlushError
//	flushed.mu       the errors of a flush                     held during OnFlushError
//	shard.mu         entries, loads under way, counters        not held
//	writes.mu        dirty files, their counters, FS.results   not held
//
// direct.names and writes.flushing are never locked together, and neither are shard.mu and
// writes.mu.
type writes struct {
	store    Store
	interval time.Duration
	onError  func(name string, err error)
	most     int64 // of dirty bytes
	workers  int   // of a flush

	// One flush at a time. It calls the store once for a name, so the calls for a name are
	// in order.
	flushing sync.Mutex

	// One Close at a time: else the failure of one would admit writes that the other does
	// not flush.
	closing sync.Mutex

	count      atomic.Int64 // of dirty files, to be read without mu
	mu         sync.Mutex   // guards all below
	dirty      map[string]*dirtyFile
	bytes      int64
	number     uint64         // of the dirty file that was added last
	below      map[string]int // how many are dirty in the tree below each directory
	timer      *time.Timer
	flushLater func()     // what the timer calls
	stats      WriteStats // without those counted below

	ended                  atomic.Bool // by Close, which sets it under mu
	wrote, failed, removed atomic.Int64
}

// nameLocks lets one writer of a name in at a time. Writers of other names do not wait.
type nameLocks struct {
	mu   sync.Mutex
	left sync.Cond // of mu
	in   []string
}

func (l *nameLocks) lock(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for slices.Contains(l.in, name) {
		l.left.Wait()
	}
	l.in = append(l.in, name)
}

func (l *nameLocks) unlock(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.in, name)
	l.in = slices.Delete(l.in, i, i+1)
	l.left.Broadcast()
}

// waitForAll waits for the writers of all names.
func (l *nameLocks) waitForAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.in) > 0 {
		l.left.Wait()
	}
}

// A dirtyFile is a file that was written and is not in the store yet, or that was removed
// and is still there. It counts in writes.bytes until it has left dirty and no flush of it
// is under way.
type dirtyFile struct {
	name     string
	content  *content // without data if removed
	removed  bool
	number   uint64
	flushing bool
}

func (d *dirtyFile) op() string {
	if d.removed {
		return "remove"
	}
	return "write"
}

func (d *dirtyFile) cost() int64 {
	return d.content.cost(d.name)
}

// WriteFile makes data the content of the file name, as Options.Write says.
func (c *FS) WriteFile(name string, data []byte) error {
	err := c.writer.write(name, data)
	if err != nil {
		c.w.failed.Add(1)
	} else {
		c.w.wrote.Add(1)
	}
	return err
}

// Remove removes the file name. With WriteBack the file is dirty until a flush removes it from
// the store, and after an error nothing has changed. In the other modes, and for an empty
// directory, the store removes it at once, and after an error the store decides.
func (c *FS) Remove(name string) error {
	if err := c.writer.remove(name); err != nil {
		return err
	}
	c.w.removed.Add(1)
	return nil
}

// writable checks a name before it is written.
func (c *FS) writable(op, name string) error {
	err := error(nil)
	switch {
	case c.w.store == nil:
		err = ErrNoStore
	case !fs.ValidPath(name) || name == ".":
		err = fs.ErrInvalid
	case c.w.ended.Load():
		err = fs.ErrClosed
	default:
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// direct is the writer of WriteThrough and WriteAround: the store gets each write at once.
type direct struct {
	c     *FS
	keeps bool // WriteThrough: what is written is cached
	seed  maphash.Seed
	names [64]nameLocks // one write of a name at a time
}

func newDirect(c *FS, keeps bool) *direct {
	d := &direct{c: c, keeps: keeps, seed: maphash.MakeSeed()}
	for i := range d.names {
		d.names[i].left.L = &d.names[i].mu
	}
	return d
}

func (d *direct) write(name string, data []byte) error {
	return d.alone("write", name, func() error { return d.c.writeStore(name, data, d.keeps) })
}

func (d *direct) remove(name string) error {
	return d.alone("remove", name, func() error { return d.c.removeStored(name) })
}

// alone calls do while nobody else writes name. It checks the name once nobody else does:
// Close waits for the writes that have passed the check, and makes later checks fail.
func (d *direct) alone(op, name string, do func() error) error {
	l := &d.names[maphash.String(d.seed, name)%uint64(len(d.names))]
	l.lock(name)
	defer l.unlock(name)
	if err := d.c.writable(op, name); err != nil {
		return err
	}
	return do()
}

func (d *direct) wait() {
	for i := range d.names {
		d.names[i].waitForAll()
	}
}

// back is the writer of WriteBack.
type back struct{ c *FS }

// write makes name dirty, unless it is larger than all dirty files together may be.
func (b *back) write(name string, data []byte) error {
	c := b.c
	if err := c.writable("write", name); err != nil {
		return err
	}
	ct := &content{data: append([]byte(nil), data...), info: written(name, data, time.Now())}
	d := &dirtyFile{name: name, content: ct}
	if d.cost() <= c.w.most {
		return c.makeDirty(d)
	}
	if err := c.flushAround(name); err != nil {
		return err
	}
	return b.alone("write", name, func() error { return c.replaceDirty(name, data) })
}

func (b *back) remove(name string) error {
	c := b.c
	if err := c.writable("remove", name); err != nil {
		return err
	}
	if err := c.flushBelow(name); err != nil {
		return err
	}
	d := &dirtyFile{name: name, content: &content{}, removed: true}
	if ct, _ := c.dirtyContent(name); ct == nil {
		info, err := fs.Stat(c.source, name)
		if err != nil { // perhaps it is a link that leads nowhere: Remove removes such a link too
			info, err = fs.Lstat(c.source, name)
		}
		if err != nil {
			return err
		}
		if info.IsDir() || d.cost() > c.w.most {
			return b.alone("remove", name, func() error { return c.removeStored(name) })
		}
	}
	return c.makeDirty(d)
}

// alone calls do while no flush is under way, and checks the name as direct.alone does.
func (b *back) alone(op, name string, do func() error) error {
	b.c.w.flushing.Lock()
	defer b.c.w.flushing.Unlock()
	if err := b.c.writable(op, name); err != nil {
		return err
	}
	return do()
}

func (b *back) wait() {} // Close has flushed, and a flush waits for the writes in alone

// writeStore writes to the store. Whatever happens there, nothing from before is served
// from memory afterwards. If name was invalidated meanwhile, the written content is not
// cached either. The caller keeps other writes of the name away.
func (c *FS) writeStore(name string, data []byte, keep bool) error {
	now, drops := time.Now(), c.data.drops(name)
	replaced := false
	defer func() { // after a panic too
		if !replaced {
			c.data.forget(name, 0)
		}
		c.forgetAround(name)
	}()
	i, err := c.w.store.WriteFile(name, data)
	if err != nil || !keep || int64(len(data)) > c.largest(name) {
		return err
	}
	began := c.data.at(now)
	ct := &content{stamp: stamp{whole: true, began: began}}
	if i != nil {
		ct.id, ct.info = fsinfo.Of(i), infoOf(i)
		ct.info.name = path.Base(name) // the store may have written under another name
		ct.whole = i.Size() == int64(len(data)) && isRegular(i.Mode())
		ct.firm = firm(ct.id, now)
	} else {
		ct.info = written(name, data, now)
	}
	if c.worthKeeping(&ct.stamp) {
		ct.data = append(ct.data, data...)
		c.data.setUnlessDropped(name, ct, loaded{cost: ct.cost(name), ttl: c.ttlOf(name, &ct.info), began: began}, drops)
		replaced = true
	}
	return nil
}

// written is the metadata of a file that only the cache knows.
func written(name string, data []byte, now time.Time) info {
	return info{name: path.Base(name), size: int64(len(data)), mode: 0o644, mtime: now}
}

// forget drops name, and the listings and metadata of the directories above, which may
// be new.
func (c *FS) forget(name string) {
	c.data.forget(name, 0)
	c.forgetAround(name)
}

// forgetAround is forget without the content. Results are dropped after the content that they
// are made of, so that no result is made of old content in between.
func (c *FS) forgetAround(name string) {
	for _, r := range c.dependents() {
		r.forget(name, 0)
	}
	if c.meta.empty() { // and what is loaded from now on is newer
		return
	}
	for ; ; name = path.Dir(name) {
		c.meta.drop(name)
		c.meta.drop(name + "/")
		if name == "." {
			return
		}
	}
}

// removeStored removes name from the store. The caller keeps other calls for the name away.
func (c *FS) removeStored(name string) error {
	defer c.forget(name)
	return c.w.store.Remove(name)
}

// makeDirty makes room for d and adds it.
func (c *FS) makeDirty(d *dirtyFile) error {
	w := &c.w
	defer c.forget(d.name) // a load under way is older
	for {
		err := w.add(d)
		if err != ErrDirty {
			return err
		}
		// Others may take the room that a flush has made.
		if flushErr := c.Flush(); flushErr != nil {
			if err = w.add(d); err == ErrDirty {
				err = &fs.PathError{Op: d.op(), Path: d.name, Err: errors.Join(ErrDirty, flushErr)}
			}
			return err
		}
	}
}

// add makes d dirty. Without room it returns ErrDirty.
func (w *writes) add(d *dirtyFile) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended.Load() { // Close came after the check in writable: nothing would flush d
		return &fs.PathError{Op: d.op(), Path: d.name, Err: fs.ErrClosed}
	}
	old := w.dirty[d.name]
	if d.removed && old != nil && old.removed { // by another call
		return &fs.PathError{Op: "remove", Path: d.name, Err: fs.ErrNotExist}
	}
	bytes := w.bytes + d.cost()
	if old != nil && !old.flushing {
		bytes -= old.cost()
	}
	if bytes > w.most {
		return ErrDirty
	}
	w.number++
	d.number = w.number
	if old != nil {
		w.stats.Superseded++
	} else {
		w.tally(d.name, 1)
	}
	w.dirty[d.name], w.bytes = d, bytes
	w.arm()
	return nil
}

// tally counts a name that has become dirty, with n = 1, or is no longer dirty, with n = -1.
func (w *writes) tally(name string, n int) {
	w.count.Add(int64(n))
	for name != "." {
		name = path.Dir(name)
		if w.below[name] += n; w.below[name] == 0 {
			delete(w.below, name)
		}
	}
}

// drop makes d no longer dirty.
func (w *writes) drop(d *dirtyFile) {
	delete(w.dirty, d.name)
	w.tally(d.name, -1)
	if !d.flushing {
		w.bytes -= d.cost()
	}
}

// replaceDirty writes the file name to the store at once. If the file was dirty, it no longer is.
func (c *FS) replaceDirty(name string, data []byte) error {
	w := &c.w
	w.mu.Lock()
	old := w.dirty[name]
	w.mu.Unlock()
	if err := c.writeStore(name, data, true); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if old != nil && w.dirty[name] == old {
		w.drop(old)
		w.stats.Superseded++
	}
	return nil
}

// dirtyContent returns name's content if it is dirty, and an error if it is removed.
func (c *FS) dirtyContent(name string) (*content, error) {
	if c.w.count.Load() == 0 {
		return nil, nil
	}
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	switch d := c.w.dirty[name]; {
	case d == nil:
		return nil, nil
	case d.removed:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	default:
		return d.content, nil
	}
}

// pending reports whether name is dirty.
func (w *writes) pending(name string) bool {
	if w.count.Load() == 0 {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dirty[name] != nil
}

// Dirty returns the names of the dirty files: those written or removed in the cache, and
// not in the store yet. They are in the order of these calls.
func (c *FS) Dirty() []string {
	var names []string
	for _, d := range c.w.sorted(all) {
		names = append(names, d.name)
	}
	return names
}

func (w *writes) sorted(match func(string) bool) []*dirtyFile {
	w.mu.Lock()
	defer w.mu.Unlock()
	var files []*dirtyFile
	for name, d := range w.dirty {
		if match(name) {
			files = append(files, d)
		}
	}
	slices.SortFunc(files, func(a, b *dirtyFile) int { return cmp.Compare(a.number, b.number) })
	return files
}

// Discard drops the dirty files of the names without writing them: reads then give what
// the store has. It returns how many files were dirty. If a file is being flushed at the
// moment, the store may get it.
func (c *FS) Discard(names ...string) (discarded int) {
	for _, name := range names {
		name = clean(name)
		c.w.mu.Lock()
		d := c.w.dirty[name]
		if d != nil {
			c.w.drop(d)
			c.w.stats.Discarded++
			discarded++
		}
		c.w.mu.Unlock()
		c.forget(name)
	}
	return discarded
}

// Flush writes the dirty files of the names to the store, or all without a name, in the
// order of their last writes. It tries each file. Files that fail stay dirty, and the error
// names the first 100 of them and says how many more there are. With Options.FlushWorkers,
// several files are written at a time.
func (c *FS) Flush(names ...string) error {
	if len(names) == 0 {
		return c.flush(all)
	}
	set := map[string]bool{}
	for _, name := range names {
		set[clean(name)] = true
	}
	return c.flush(func(name string) bool { return set[name] })
}

// flushBelow flushes what is dirty in the tree below dir, so that the source shows it.
func (c *FS) flushBelow(dir string) error {
	if !c.dirtyBelow(dir) {
		return nil
	}
	return c.flushAround(dir)
}

// flushAround flushes name and what is dirty below and above it, if something there is dirty. A
// removed file above has to leave the store before a directory can take its place.
func (c *FS) flushAround(name string) error {
	around := func(other string) bool { return other != name && (below(other, name) || below(name, other)) }
	if len(c.w.sorted(around)) == 0 {
		return nil
	}
	return c.flush(func(other string) bool { return other == name || around(other) })
}

// dirtyBelow reports whether something in the tree below dir is dirty.
func (c *FS) dirtyBelow(dir string) bool {
	if c.w.count.Load() == 0 {
		return false
	}
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	return c.w.below[dir] > 0
}

const maxFlushErrors = 100

func (c *FS) flush(match func(string) bool) error {
	c.w.flushing.Lock()
	defer c.w.flushing.Unlock()
	files := c.w.sorted(match)
	workers := min(c.w.workers, len(files))
	if workers < 2 || nested(files) {
		var f flushed
		for _, d := range files {
			f.note(c, d, c.flushFile(d))
		}
		return f.err()
	}
	var f flushed
	var next atomic.Int64
	var caught atomic.Pointer[any]
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			ended := false
			defer func() {
				if p := recover(); p != nil {
					caught.CompareAndSwap(nil, &p)
				} else if !ended { // by runtime.Goexit
					p = errors.New("cache: the store ended the goroutine of a flush")
					caught.CompareAndSwap(nil, &p)
				}
			}()
			for i := next.Add(1) - 1; i < int64(len(files)); i = next.Add(1) - 1 {
				f.note(c, files[i], c.flushFile(files[i]))
			}
			ended = true
		})
	}
	wg.Wait()
	if p := caught.Load(); p != nil {
		panic(*p) // of the store, for the goroutine that flushes
	}
	return f.err()
}

// nested reports whether one of the files is in the tree below another: then the order
// of their flushes matters.
func nested(files []*dirtyFile) bool {
	names := make(map[string]bool, len(files))
	for _, d := range files {
		names[d.name] = true
	}
	for _, d := range files {
		for dir := path.Dir(d.name); dir != "."; dir = path.Dir(dir) {
			if names[dir] {
				return true
			}
		}
	}
	return false
}

// flushed is the outcome of a flush.
type flushed struct {
	mu     sync.Mutex
	errs   []error
	failed int
}

func (f *flushed) note(c *FS, d *dirtyFile, err error) {
	if err == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed++; f.failed <= maxFlushErrors {
		f.errs = append(f.errs, fmt.Errorf("flush %s: %w", d.name, err))
	}
	if c.w.onError != nil {
		c.w.onError(d.name, err)
	}
}

func (f *flushed) err() error {
	if f.failed > maxFlushErrors {
		f.errs = append(f.errs, fmt.Errorf("and %d more", f.failed-maxFlushErrors))
	}
	return errors.Join(f.errs...)
}

// flushFile writes d to the store, or removes it from there, unless it is no longer dirty.
// The file leaves dirty only once the store has it, so that it can be read at each moment.
func (c *FS) flushFile(d *dirtyFile) (err error) {
	w := &c.w
	w.mu.Lock()
	if w.dirty[d.name] != d {
		w.mu.Unlock()
		return nil
	}
	d.flushing = true
	w.mu.Unlock()
	done := false
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		d.flushing = false
		current := w.dirty[d.name] == d
		switch {
		case done && err == nil:
			w.stats.Flushes++
			if current {
				w.drop(d)
			}
		default:
			w.stats.FlushErrors++
		}
		if !current { // written again or discarded meanwhile
			w.bytes -= d.cost()
		}
	}()
	if !d.removed {
		err = c.writeStore(d.name, d.content.bytes(), true)
	} else if err = c.removeStored(d.name); errors.Is(err, fs.ErrNotExist) {
		err = nil // it was never flushed, or somebody else has removed it
	}
	done = true
	return err
}

// arm sets the timer of the next flush, if there is something to flush and no timer is set.
// The caller holds mu.
func (w *writes) arm() {
	if w.timer == nil && w.interval != Forever && len(w.dirty) > 0 {
		w.timer = time.AfterFunc(w.interval, w.flushLater)
	}
}

// flushAtInterval runs when the timer fires.
func (c *FS) flushAtInterval() {
	defer func() { // also if the store ends the goroutine
		c.w.mu.Lock()
		defer c.w.mu.Unlock()
		c.w.timer = nil
		c.w.arm()
	}()
	_ = c.flush(all) // errors are counted and reported to OnFlushError, and the files stay dirty
}

// Close flushes what is dirty, and releases the directory that NewDir has opened. If
// not all can be flushed, it returns the error and the FS stays open: the files can
// be read, flushed and discarded, and Close can be called again. Close waits for writes
// under way, and does not call the store after it has returned. Open files can be read
// after Close.
func (c *FS) Close() error {
	w := &c.w
	w.closing.Lock()
	defer w.closing.Unlock()
	w.mu.Lock()
	w.ended.Store(true)
	if w.timer != nil && w.timer.Stop() { // else the timer's flush has begun, and resets timer at its end
		w.timer = nil
	}
	w.mu.Unlock()
	flushed := false
	defer func() { // after a panic of the store too
		if !flushed {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.ended.Store(false)
			w.arm()
		}
	}()
	if err := c.flush(all); err != nil {
		return err
	}
	flushed = true
	c.writer.wait()
	if c.owned == nil {
		return nil
	}
	return c.owned.Close()
}
