package fileproc

import (
	"errors"
	"io/fs"
	"runtime"
	"time"

	"github.com/fileproc/fileproc/internal/backend"
	"github.com/fileproc/fileproc/internal/content"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
)

// visitsInARow is how many files a worker visits before it yields its processor. If no
// other goroutine is ready, the worker gets the processor back at once. Without the yield,
// Go's monitor thread would assume after 10 ms that the goroutine keeps others waiting: the
// monitor would wake every 20 µs, and give the processor to another thread at the
// goroutine's next system call.
const visitsInARow = 512

// visit processes one file.
func (w *worker) visit(b *batch, i int) {
	w.show()
	if w.visits++; w.visits%visitsInARow == 0 {
		w.memory.Age()
		runtime.Gosched()
	}
	w.pos = position{span: b.span, file: i}
	w.visitFile(b, i)
	if w.order != nil {
		w.order.visited(&w.pos)
	}
}

func (w *worker) visitFile(b *batch, i int) {
	f := &w.file
	f.reset(&w.access, b.nodeOf(i), b.entries[i])
	if len(b.types) > 0 {
		f.typ = b.types[i]
		w.visitOther(f, b, i)
		return
	}
	switch b.stage {
	case stageInvalid:
		w.fail(f, badPath(f.name.String()))
		return
	case stageListed:
		if !w.ask(f, b, i) {
			return
		}
	case stageAsked:
		if i < len(b.stats) {
			f.content.Stat, f.content.HasStat = b.stats[i], b.stats[i] != sys.Stat{}
		}
	}
	switch err := w.load(f, b, i); err {
	case nil:
		w.content.groups.Saw(len(f.content.Data))
		w.call(f)
	case content.ErrBinary:
		w.callOnBinary(f)
	case content.ErrRemote:
		w.skip(f, SkippedRemote)
	case content.ErrLarger:
		w.skip(f, SkippedLarger)
	case errStopped:
		w.abandon(1)
	default:
		gone, typ := w.isGone(f.node, f.name, false)
		switch f.typ = typ; {
		case gone:
			w.found(-1) // of its listing
		case typ != 0:
			w.skip(f, SkippedNotRegular)
		default:
			w.fail(f, err)
		}
	}
	w.reader.Release()
}

// visitOther is visitFile for an f that is no regular file.
func (w *worker) visitOther(f *File, b *batch, i int) {
	if !w.ask(f, b, i) {
		return
	}
	var err error
	if w.cfg.stat && !f.content.HasStat {
		err = w.statAlone(f, b, i)
	}
	if err == nil && f.typ == fs.ModeSymlink {
		if err = w.aside(f.fetchLink); errors.Is(err, errors.ErrUnsupported) {
			err = nil // ReadLink says so
		}
	}
	switch err {
	case nil:
		w.call(f)
	case errStopped:
		w.abandon(1)
	default:
		w.fail(f, err)
	}
}

// ask asks Select and hooks.Unchanged about f, the entry i of b. It reports whether to
// load f now. If not, f is done, or the worker reads it later.
func (w *worker) ask(f *File, b *batch, i int) bool {
	if selects := w.calls.selectFile; selects != nil {
		if !w.acquireSlot() {
			w.abandon(1)
			return false
		}
		f.inSelect = true
		selected := selects(f)
		f.inSelect = false
		w.endReading()
		if !selected {
			w.skip(f, SkippedSelect)
			return false
		}
	}
	if b.err != nil {
		w.fail(f, b.err)
		return false
	}
	if !w.cfg.statFirst || f.node.tree.stream != 0 { // whose metadata does not show a change
		return true
	}
	if w.statFile(f, b, i) == nil { // after an error, f is read nevertheless
		if w.reader.IsLarger(f.content.Stat.Size) {
			w.skip(f, SkippedLarger)
			return false
		}
		if !w.acquireSlot() {
			w.abandon(1)
			return false
		}
		if f.unchanged = w.calls.unchanged(f); f.unchanged {
			w.call(f)
			return false
		}
	}
	if w.order != nil || w.cfg.noRead {
		return true
	}
	w.readLater(f, b.inodes[i])
	return false
}

// statFile fetches the metadata of f, the entry i of b, unless it is known. It returns an
// error if f is no longer what was listed.
func (w *worker) statFile(f *File, b *batch, i int) error {
	if f.content.HasStat {
		return nil
	}
	if !w.metadata.has(i) && !w.cold.listAhead(b) {
		w.fetch(&w.metadata, w.metadata.warm, b, i)
	}
	if ok, _ := w.metadata.get(i, &f.content); ok {
		return nil
	}
	return w.statAlone(f, b, i)
}

func (w *worker) statAlone(f *File, b *batch, i int) error {
	w.releaseSlot()
	if !w.latency.reads.isDue(w.pool) {
		return w.aside(f.fetchListed)
	}
	start := time.Now()
	err := w.aside(f.fetchListed)
	w.statTook(b, i, time.Since(start))
	return err
}

// readLater adds f to w.toRead, files of one directory that are read after the worker has
// visited the batch.
func (w *worker) readLater(f *File, inode uint64) {
	b := w.toRead
	if b != nil && b.node != f.node { // a window has files of several directories
		w.publishToRead(b)
		b = nil
	}
	if b == nil {
		b = w.emptyBatch(f.node)
		b.stage = stageAsked
		w.dirs.ref(f.node, 1)
		w.toRead = b
	}
	b.entries = append(b.entries, f.name)
	b.inodes = append(b.inodes, inode)
	b.stats = append(b.stats, f.content.Stat)
}

// call calls fn for f, and counts the outcome.
func (w *worker) call(f *File) {
	if w.cfg.followFiles && w.wasReplaced(f) {
		w.skip(f, SkippedDuplicate)
		return
	}
	if !w.acquireSlot() {
		w.abandon(1)
		return
	}
	err := w.calls.fn(f)
	w.endReading()
	data := f.content.Data
	w.counts.bytes += int64(len(data))
	if sys.Race {
		for i := range data {
			data[i] = 0xDB
		}
	}
	if p := f.prepared; p != nil {
		f.prepared = nil
		w.settleLater(p, err)
	} else {
		w.settle(f, err)
	}
}

// callOnBinary calls hooks.OnBinary for f, and counts f as skipped.
func (w *worker) callOnBinary(f *File) {
	if w.calls.onBinary != nil {
		if !w.acquireSlot() {
			w.abandon(1)
			return
		}
		f.content.Data = nil
		w.calls.onBinary(f)
	}
	w.skip(f, SkippedBinary)
}

// halve is called when the worker has nothing else to do. A worker visits b, so that b refers to
// its node.
func (w *worker) halve(b *batch) *batch {
	half := w.emptyBatch(b.node)
	if !b.halve(half) {
		half.node, w.spare = nil, half
		return nil
	}
	w.dirs.ref(b.node, 1)
	return half
}

// leave is called when the worker visits no more entries of b. Last says that no other
// worker visits b, so that its references can be released.
func (w *worker) leave(b *batch, last bool) {
	w.content.forget()
	w.metadata.forget()
	if more := w.toRead; more != nil { // first, so that these files are counted even if what follows panics
		w.toRead = nil
		w.publishToRead(more)
	}
	if w.window != nil {
		w.cold.releaseWindow(w.window)
		w.window = nil
	}
	if !last || b.isWindow() {
		w.pin.drop(&w.dirs)
	}
	if !last {
		return
	}
	if b.isWindow() {
		for _, n := range b.nodes {
			w.dirs.release(n, 0, 1)
		}
		w.disk.reuse(b)
		return
	}
	w.pin.dropLast(&w.dirs, b.node)
	b.reset()
	w.spare = b
}

// publishToRead gives the files of b to the pool or to the disk order, to be read.
func (w *worker) publishToRead(b *batch) {
	if !w.cold.listsAhead(b) {
		w.pool.addBatch(b)
		return
	}
	w.cold.addFiles(b, 0, len(b.entries))
	w.dirs.release(b.node, 0, 1)
	w.pool.wake()
}

// load fetches the content of f, the entry i of b, or its metadata, as the options say.
func (w *worker) load(f *File, b *batch, i int) error {
	if w.cfg.noRead {
		return w.loadStat(f, b, i)
	}
	cold := w.cold.isOn()
	if w.cold.listAhead(b) {
		if w.stopped() {
			return errStopped
		}
		return w.loadOne(f)
	}
	if !w.content.has(i) {
		w.fetch(&w.content, w.contentFetcher(cold || b.isWindow()), b, i)
	}
	if ok, ring := w.content.get(i, &f.content); ok {
		if ring {
			w.counts.uring++
		}
		return w.unwanted(f)
	}
	if cold && w.stopped() {
		return errStopped
	}
	return w.loadTimed(f, b, i)
}

// loadStat is load for a run that opens no file.
func (w *worker) loadStat(f *File, b *batch, i int) error {
	if !w.cfg.stat {
		return nil
	}
	err := w.statFile(f, b, i)
	if err == nil && w.reader.IsLarger(f.content.Stat.Size) {
		err = content.ErrLarger
	}
	return err
}

// unwanted returns an error if the options leave out f, whose content was fetched together
// with that of other files.
func (w *worker) unwanted(f *File) error {
	switch {
	case w.reader.IsLarger(int64(len(f.content.Data))):
		return content.ErrLarger
	case w.cfg.skipBinary && content.IsBinary(f.content.Data):
		return content.ErrBinary
	}
	return nil
}

// loadTimed reads f alone. If the read shows that calls block, it turns the cold mode on or
// lets the pool grow.
func (w *worker) loadTimed(f *File, b *batch, i int) error {
	if !b.isWindow() || !w.reader.NeedsSlot() {
		w.releaseSlot()
	}
	if !w.latency.reads.isDue(w.pool) {
		return w.loadOne(f)
	}
	start := time.Now()
	err := w.loadOne(f)
	w.latency.copied(len(f.content.Data), w.reader.Uncached())
	if w.latency.blocks(&w.latency.reads, w.pool, time.Since(start)) && !(w.reader.Uncached() && w.cold.tryTurnOn(&w.pin, b, i)) {
		w.pool.grow()
	}
	return err
}

func (w *worker) loadOne(f *File) error {
	d, err := w.pin.use(&w.dirs, f.node)
	if err == nil {
		err = readFile(&w.reader, d, f.name, &f.content)
		w.pin.idle()
	}
	if sys.IsScarce(err) || sys.MayPass(err) || err == content.ErrNeedsSlot {
		err = w.readPatiently(f, err)
	}
	return err
}

// readPatiently reads f again. Its first try has failed with err.
func (w *worker) readPatiently(f *File, err error) error {
	return w.aside(func() error {
		for {
			if err == content.ErrNeedsSlot && !w.acquireSlot() {
				return errStopped
			}
			err = w.withDir(f.node, func(d backend.Directory) error { return readFile(&w.reader, d, f.name, &f.content) })
			if err != content.ErrNeedsSlot { // it comes again if the worker stepped aside, which gave up the slot
				return err
			}
		}
	})
}

// readFile reads the file name of d into c.
func readFile(r *content.Reader, d backend.Directory, name names.Name, c *content.Content) error {
	h, err := d.Open(name, r.Spare())
	if err != nil {
		return err
	}
	return r.Read(h, c)
}
