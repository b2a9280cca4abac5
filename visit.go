package fileproc

import (
	"runtime"
	"time"

	"github.com/fileproc/fileproc/internal/content"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
)

// visitsInARow is after how many files a worker yields its processor, to have it
// again at once if nobody else wants it. When a goroutine has run for 10 ms, Go's
// monitor takes it for one that keeps others waiting: it then wakes every 20 µs
// and gives the processor of the goroutine's next call to another thread.
const visitsInARow = 512

// visit processes one file.
func (w *worker) visit(b *batch, i int) {
	w.show()
	if w.visits++; w.visits == visitsInARow {
		w.visits = 0
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
	*f = currentFile{w: w, node: b.nodeOf(i), name: b.entries[i]}
	if b.invalid {
		w.fail("open", f.node, f.name.String(), badPath(f.name.String()))
		return
	}
	if i < len(b.stats) {
		f.content.Stat, f.content.HasStat = b.stats[i], b.stats[i] != sys.Stat{}
	}
	if selects := w.calls.selectFile; selects != nil && !b.asked {
		if !w.acquireSlot() {
			w.counts.abandoned++
			return
		}
		if !selects(f) {
			w.counts.skip(SkippedSelect, 1)
			return
		}
	}
	if b.err != nil {
		w.fail("open", f.node, f.name.String(), b.err)
		return
	}
	if w.cfg.statFirst && !b.asked && w.isUnchanged(f, b, i) {
		return
	}
	switch err := w.load(f, b, i); err {
	case nil:
		w.call(f)
	case content.ErrBinary:
		w.callOnBinary(f)
	case errStopped:
		w.counts.abandoned++
	default:
		w.fail("open", f.node, f.name.String(), err)
	}
	w.reader.Release()
}

// isUnchanged asks hooks.Unchanged about f, the entry i of b. It reports whether
// nothing is left to do for f now: fn has been called, or f is to be read later.
func (w *worker) isUnchanged(f *currentFile, b *batch, i int) bool {
	if !f.content.HasStat && !w.fromReadahead(&w.look, f, b, i) {
		w.lookAt(f)
	}
	if f.content.HasStat {
		if !w.acquireSlot() {
			w.counts.abandoned++
			return true
		}
		if f.unchanged = w.calls.unchanged(f); f.unchanged {
			w.call(f)
			return true
		}
	}
	if w.order != nil || w.cfg.noRead {
		return false
	}
	w.readLater(f, b.inodes[i])
	return true
}

// lookAt fetches the metadata of f if that is possible. Without it, f is read.
func (w *worker) lookAt(f *currentFile) {
	w.releaseSlot()
	if !w.latency.reads.isDue(w.pool) {
		_, _ = f.fetchStat()
		return
	}
	start := time.Now()
	_, _ = f.fetchStat()
	if w.latency.blocks(&w.latency.reads, w.pool, time.Since(start)) {
		w.pool.grow()
	}
}

// readLater adds f to the files that are read, with other files of the directory,
// once the worker has visited the batch.
func (w *worker) readLater(f *currentFile, inode uint64) {
	b := w.toRead
	if b == nil {
		if b = w.spare; b == nil {
			b = &batch{}
		}
		w.spare = nil
		b.node, b.asked = f.node, true
		w.dirs.ref(f.node, 1)
		w.toRead = b
	}
	b.entries = append(b.entries, f.name)
	b.inodes = append(b.inodes, inode)
	b.stats = append(b.stats, f.content.Stat)
}

// callOnBinary tells hooks.OnBinary of f, and counts it.
func (w *worker) callOnBinary(f *currentFile) {
	if w.calls.onBinary != nil {
		if !w.acquireSlot() {
			w.counts.abandoned++
			return
		}
		f.content.Data = nil
		w.calls.onBinary(f)
	}
	w.counts.skip(SkippedBinary, 1)
}

// leave is called when the worker visits no more entries of b.
func (w *worker) leave(b *batch, last bool) {
	w.ahead.Forget()
	w.look.Forget()
	if more := w.toRead; more != nil { // before what may panic, so that it is counted
		w.toRead = nil
		w.publishToRead(more)
	}
	if r := w.ahead.Window; r != nil {
		w.ahead.Window = nil
		w.cold.putReader(r)
	}
	w.pin.drop(&w.dirs)
	if !last {
		return
	}
	if b.node != nil {
		w.dirs.release(b.node, 0, 1)
		b.reset()
		w.spare = b
		return
	}
	for _, n := range b.nodes {
		w.dirs.release(n, 0, 1)
	}
	w.disk.reuse(b)
}

// publishToRead lets workers read the files of b.
func (w *worker) publishToRead(b *batch) {
	if !w.cold.takes(b) {
		w.pool.addBatch(b)
		return
	}
	w.cold.addFiles(b, 0)
	w.dirs.release(b.node, 0, 1)
	b.reset()
	w.pool.wake()
}

// load fetches what the options ask for of f, the entry i of b.
func (w *worker) load(f *currentFile, b *batch, i int) error {
	if w.cfg.noRead && (f.content.HasStat || !w.cfg.stat) {
		return nil
	}
	if w.cold.on.Load() && w.cold.listAhead(b) {
		if w.stopped() {
			return errStopped
		}
		return w.loadOne(f)
	}
	// What is read ahead has no metadata from before, but in windows.
	if (!w.cfg.statFirst || f.content.HasStat || w.cold.on.Load() || b.node == nil) && w.fromReadahead(&w.ahead, f, b, i) {
		if w.cfg.skipBinary && content.IsBinary(f.content.Data) {
			return content.ErrBinary
		}
		return nil
	}
	if w.cold.on.Load() && w.stopped() {
		return errStopped
	}
	w.releaseSlot()
	if !w.latency.reads.isDue(w.pool) {
		return w.loadOne(f)
	}
	start := time.Now()
	err := w.loadOne(f)
	if w.latency.blocks(&w.latency.reads, w.pool, time.Since(start)) && !(w.reader.Uncached() && w.cold.enter(&w.pin, b, i)) {
		w.pool.grow()
	}
	return err
}

func (w *worker) loadOne(f *currentFile) error {
	if w.cfg.noRead {
		s, err := f.fetchStat()
		if err == nil {
			err = sys.CheckRegular("stat", s.Mode)
		}
		return err
	}
	d, err := w.pin.use(&w.dirs, f.node)
	if err == nil {
		err = readFile(&w.reader, d, f.name, &f.content)
		w.pin.idle()
	}
	switch {
	case err == nil:
		return nil
	case sys.IsScarce(err) || sys.IsLeased(err):
		err = w.readPatiently(f)
	}
	if err == content.ErrNeedsSlot {
		if !w.acquireSlot() {
			return errStopped
		}
		err = w.readPatiently(f)
	}
	return err
}

// readFile reads the file name of d into c.
func readFile(r *content.Reader, d directory, name names.Name, c *content.Content) error {
	h, err := d.open(name, r.Spare())
	if err != nil {
		return err
	}
	return r.Read(h, c)
}

func (w *worker) readPatiently(f *currentFile) error {
	return w.withDir(f.node, func(d directory) error { return readFile(&w.reader, d, f.name, &f.content) })
}

// fetchStat fetches the metadata of f, unless that is known. If f is no regular file
// any more, its metadata is not kept.
func (f *currentFile) fetchStat() (sys.Stat, error) {
	if f.content.HasStat {
		return f.content.Stat, nil
	}
	var s sys.Stat
	err := f.w.withDir(f.node, func(d directory) (err error) {
		s, err = d.stat(f.name)
		return err
	})
	if err == nil {
		_ = f.content.SetStat("stat", s)
	}
	return s, err
}

// fromReadahead puts what has been read ahead of entry i of b into f. Before that
// it reads ahead if that is worth it. It reports whether there was something.
func (w *worker) fromReadahead(a *content.Ahead, f *currentFile, b *batch, i int) bool {
	if !a.Has(i) {
		if !a.StatOnly && (w.cold.on.Load() || b.node == nil) {
			if !w.readWindow(b, i) {
				return false
			}
		} else if !w.readGroup(a, b, i) {
			return false
		}
	}
	ok, ring := a.Get(i, &f.content)
	if ok && ring {
		w.counts.uring++
	}
	return ok
}

// readGroup reads ahead from entry i of b.
func (w *worker) readGroup(a *content.Ahead, b *batch, i int) bool {
	if b.node == nil || b.joined.Load() {
		return false
	}
	n, isCold := a.Next(len(b.entries)-i, w.pool.hasMuch)
	if isCold && !w.cold.enter(&w.pin, b, i) {
		a.Pause()
	}
	if n == 0 {
		return false
	}
	d, err := w.pin.use(&w.dirs, b.node)
	if err != nil {
		return false
	}
	w.releaseSlot()
	start := time.Now()
	useful := a.Read(diskOf(d), b.entries[i:i+n], i)
	w.pin.idle()
	// Of content, a finds out what had to be waited for.
	if useful && a.StatOnly && w.latency.blocks(&w.latency.reads, w.pool, time.Since(start)/time.Duration(n)) {
		w.pool.grow()
	}
	return useful
}

// readWindow reads the entries of b from i on together.
func (w *worker) readWindow(b *batch, i int) bool {
	a := &w.ahead
	if a.NoWindow || w.cold.window.Load() == 0 || a.Window == nil && !w.takeWindowReader() {
		return false
	}
	w.releaseSlot()
	turn := w.cold.acquire(w.ctx, len(b.entries)-i)
	if turn.files == 0 {
		return false
	}
	a.BeginWindow(i, turn.files)
	w.openWindow(b, i, turn.files)
	reading, waited, cached := a.ReadWindow(w.stopped)
	w.cold.release(turn, reading)
	if waited {
		w.pool.grow()
	}
	if cached {
		w.cold.leave()
	}
	return true
}

// takeWindowReader sets w.ahead.Window, and reports whether there is one for w.
func (w *worker) takeWindowReader() bool {
	a := &w.ahead
	r, mayMake := w.cold.takeReader()
	if mayMake {
		r = content.NewWindowReader(w.cfg.want(), w.cfg.noURing)
		a.NoWindow = r == nil
	}
	if r == nil {
		return false
	}
	a.Close()
	a.Window = r
	return true
}

// openWindow opens n entries of b from i on, those of one directory after those of
// another.
func (w *worker) openWindow(b *batch, i, n int) {
	a := &w.ahead
	var tried [content.WindowMax]bool
	for k := range n {
		if tried[k] {
			continue
		}
		node := b.nodeOf(i + k)
		d, err := w.pin.use(&w.dirs, node)
		pinned := err == nil
		var of content.Dir
		if pinned {
			of = diskOf(d)
		}
		for j := k; j < n; j++ {
			if b.nodeOf(i+j) != node {
				continue
			}
			tried[j] = true
			if err == nil && !w.stopped() {
				err = a.Window.Open(j, of, b.entries[i+j])
			}
		}
		if pinned {
			w.pin.idle()
		}
		if sys.IsScarce(err) {
			w.cold.window.Store(0)
			return
		}
	}
}
