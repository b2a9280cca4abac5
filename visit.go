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
	*f = currentFile{w: w, node: b.nodeOf(i), name: b.entries[i]}
	switch b.stage {
	case stageInvalid:
		f.fail(badPath(f.name.String()))
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
		w.ahead.Saw(len(f.content.Data))
		w.call(f)
	case content.ErrBinary:
		w.callOnBinary(f)
	case content.ErrRemote:
		f.skip(SkippedRemote)
	case content.ErrLarger:
		f.skip(SkippedLarger)
	case errStopped:
		f.abandon()
	default:
		f.fail(err)
	}
	w.reader.Release()
}

// ask asks Select and hooks.Unchanged about f, the entry i of b. It reports whether to
// load f now: otherwise f is done, or to be read later.
func (w *worker) ask(f *currentFile, b *batch, i int) bool {
	if selects := w.calls.selectFile; selects != nil {
		if !w.acquireSlot() {
			f.abandon()
			return false
		}
		if !selects(f) {
			f.skip(SkippedSelect)
			return false
		}
	}
	if b.err != nil {
		f.fail(b.err)
		return false
	}
	if !w.cfg.statFirst {
		return true
	}
	if w.lookAt(f, b, i) == nil { // else f is read all the same
		if w.reader.IsLarger(f.content.Stat.Size) {
			f.skip(SkippedLarger)
			return false
		}
		if !w.acquireSlot() {
			f.abandon()
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

// lookAt fetches the metadata of f, the entry i of b, unless that is known. If f is no
// regular file any more, that is an error.
func (w *worker) lookAt(f *currentFile, b *batch, i int) error {
	if f.content.HasStat {
		return nil
	}
	if !w.look.Has(i) && !(w.cold.isOn() && w.cold.listAhead(b)) {
		w.readGroup(&w.look, b, i)
	}
	if ok, _ := w.look.Get(i, &f.content); ok {
		return nil
	}
	w.releaseSlot()
	if !w.latency.reads.isDue(w.pool) {
		return w.aside(f.fetchRegular)
	}
	start := time.Now()
	err := w.aside(f.fetchRegular)
	w.looked(b, i, time.Since(start))
	return err
}

// looked takes the time that a look at entry i of b took.
func (w *worker) looked(b *batch, i int, d time.Duration) {
	if w.latency.blocks(&w.latency.reads, w.pool, d) && (w.cold.isOn() || !w.cold.enter(&w.pin, b, i)) {
		w.pool.grow()
	}
}

// readLater adds f to the files that are read, with other files of the directory,
// once the worker has visited the batch.
func (w *worker) readLater(f *currentFile, inode uint64) {
	b := w.toRead
	if b != nil && b.node != f.node { // in a window
		w.publishToRead(b)
		b = nil
	}
	if b == nil {
		if b = w.spare; b == nil {
			b = &batch{}
		}
		w.spare = nil
		b.node, b.stage = f.node, stageAsked
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
			f.abandon()
			return
		}
		f.content.Data = nil
		w.calls.onBinary(f)
	}
	f.skip(SkippedBinary)
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
	if b.isWindow() {
		for _, n := range b.nodes {
			w.dirs.release(n, 0, 1)
		}
		w.disk.reuse(b)
		return
	}
	w.dirs.release(b.node, 0, 1)
	b.reset()
	w.spare = b
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
	switch {
	case w.cfg.noRead && w.cfg.stat:
		err := w.lookAt(f, b, i)
		if err == nil && w.reader.IsLarger(f.content.Stat.Size) {
			err = content.ErrLarger
		}
		return err
	case w.cfg.noRead:
		return nil
	}
	cold := w.cold.isOn()
	if cold && w.cold.listAhead(b) {
		if w.stopped() {
			return errStopped
		}
		return w.loadOne(f)
	}
	switch {
	case w.ahead.Has(i):
	case cold || b.isWindow():
		w.readWindow(b, i)
	default:
		w.readGroup(&w.ahead, b, i)
	}
	if ok, ring := w.ahead.Get(i, &f.content); ok {
		if ring {
			w.counts.uring++
		}
		return w.readAhead(f)
	}
	if cold && w.stopped() {
		return errStopped
	}
	return w.loadTimed(f, b, i)
}

// readAhead returns why the content of f, which was read ahead, is not wanted.
func (w *worker) readAhead(f *currentFile) error {
	switch {
	case w.reader.IsLarger(int64(len(f.content.Data))):
		return content.ErrLarger
	case w.cfg.skipBinary && content.IsBinary(f.content.Data):
		return content.ErrBinary
	}
	return nil
}

// loadTimed reads f alone, and lets the pool grow if that shows that calls block.
func (w *worker) loadTimed(f *currentFile, b *batch, i int) error {
	w.releaseSlot()
	if !w.latency.reads.isDue(w.pool) {
		return w.loadOne(f)
	}
	start := time.Now()
	err := w.loadOne(f)
	w.latency.copied(len(f.content.Data), w.reader.Uncached())
	if w.latency.blocks(&w.latency.reads, w.pool, time.Since(start)) && !(w.reader.Uncached() && w.cold.enter(&w.pin, b, i)) {
		w.pool.grow()
	}
	return err
}

func (w *worker) loadOne(f *currentFile) error {
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

// readPatiently reads f, of which a try has failed with err.
func (w *worker) readPatiently(f *currentFile, err error) error {
	return w.aside(func() error {
		for {
			if err == content.ErrNeedsSlot && !w.acquireSlot() {
				return errStopped
			}
			err = w.withDir(f.node, func(d directory) error { return readFile(&w.reader, d, f.name, &f.content) })
			if err != content.ErrNeedsSlot { // again if the worker stepped aside
				return err
			}
		}
	})
}

// readFile reads the file name of d into c.
func readFile(r *content.Reader, d directory, name names.Name, c *content.Content) error {
	h, err := d.open(name, r.Spare())
	if err != nil {
		return err
	}
	return r.Read(h, c)
}

// fetchRegular is fetchStat, but if f is no regular file any more, that is an error.
func (f *currentFile) fetchRegular() error {
	s, err := f.fetchStat()
	if err == nil {
		err = sys.CheckRegular("stat", s.Mode)
	}
	return err
}

// fetchStat fetches the metadata of f, unless that is known. If f is no regular file
// any more, its metadata is not kept.
func (f *currentFile) fetchStat() (sys.Stat, error) {
	if f.content.HasStat {
		return f.content.Stat, nil
	}
	var s sys.Stat
	err := f.w.withDir(f.node, func(d directory) (err error) {
		if l, ok := d.(metadataList); ok && !f.w.cfg.statFirst { // hooks.Unchanged wants what is true now
			if s, ok = l.listedStat(f.name); ok {
				return nil
			}
		}
		s, err = d.stat(f.name)
		return err
	})
	if err == nil {
		_ = f.content.SetStat("stat", s)
	}
	return s, err
}

// readGroup reads ahead from entry i of b, if that is worth it.
func (w *worker) readGroup(a *content.Ahead, b *batch, i int) {
	if b.joined.Load() {
		return
	}
	n, isCold := a.Next(len(b.entries)-i, w.pool.hasMuch)
	if isCold && !w.cold.enter(&w.pin, b, i) {
		a.Pause()
	}
	if n == 0 {
		return
	}
	node := b.nodeOf(i)
	for k := 1; k < n && b.isWindow(); k++ {
		if b.nodes[i+k] != node {
			n = k
		}
	}
	d, err := w.pin.use(&w.dirs, node)
	if err != nil {
		return
	}
	w.releaseSlot()
	start := time.Now()
	useful := a.Read(diskOf(d), b.entries[i:i+n], i)
	w.pin.idle()
	// Of content, a finds out what had to be waited for.
	if useful && a.StatOnly {
		w.looked(b, i, time.Since(start)/time.Duration(n))
	}
}

// readWindow reads the entries of b from i on together, as far as that is possible.
func (w *worker) readWindow(b *batch, i int) {
	a := &w.ahead
	if w.cold.pace.Window() == 0 {
		return
	}
	if a.Window == nil {
		a.Window = w.cold.takeReader(func() content.WindowReader {
			return content.NewWindowReader(w.cfg.want(), w.cfg.noURing)
		})
		if a.Window == nil {
			return
		}
		a.Close()
	}
	w.releaseSlot()
	turn := w.cold.pace.AcquireWindow(w.ctx, len(b.entries)-i)
	if turn.Requests == 0 {
		return
	}
	a.BeginWindow(i, turn.Requests)
	w.openWindow(b, i, turn.Requests)
	reading, waited, cached := a.ReadWindow(w.stopped)
	w.cold.pace.ReleaseWindow(turn, reading)
	if waited {
		w.pool.grow()
	}
	if cached {
		w.cold.leave()
	}
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
			w.cold.pace.LimitWindows(0)
			return
		}
	}
}
