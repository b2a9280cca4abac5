package fileproc

import (
	"runtime"
	"time"
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
	*f = currentFile{w: w, node: b.node, name: b.entries[i]}
	if selects := w.calls.selectFile; selects != nil {
		if !w.acquireSlot() {
			w.counts.abandoned++
			return
		}
		if !selects(f) {
			w.counts.skipped[skipSelect]++
			return
		}
	}
	switch err := w.load(f, b, i); err {
	case nil:
		w.call(f)
	case errBinary:
		w.counts.skipped[skipBinary]++
	case errStopped:
		w.counts.abandoned++
	default:
		w.fail("open", f.node, f.name.String(), err)
	}
	if w.reader.large != nil {
		w.reader.release()
	}
}

// leave is called when the worker visits no more entries of b.
func (w *worker) leave(b *batch, last bool) {
	w.ahead.forget()
	w.pin.drop(&w.dirs)
	if last {
		w.dirs.release(b.node, 0, 1)
		b.reset()
		w.spare = b
	}
}

// load fetches what the options ask for of f, the entry i of b.
func (w *worker) load(f *currentFile, b *batch, i int) error {
	if w.cfg.noRead && !w.cfg.stat {
		return nil
	}
	if w.fromReadahead(f, b, i) {
		if w.cfg.skipBinary && isBinary(f.content.data) {
			return errBinary
		}
		return nil
	}
	prefetched := w.prefetchNext(b, i)
	w.releaseSlot()
	if prefetched || !w.latency.reads.isDue(w.pool) {
		return w.loadOne(f)
	}
	start := time.Now()
	err := w.loadOne(f)
	if w.latency.blocks(&w.latency.reads, w.pool, time.Since(start)) && !w.startPrefetch(f.node) {
		w.pool.grow()
	}
	return err
}

func (w *worker) loadOne(f *currentFile) error {
	if w.cfg.noRead {
		if err := f.fetchStat(); err != nil {
			return err
		}
		if mode := f.content.stat.Mode; !mode.IsRegular() {
			return notRegular("stat", mode)
		}
		return nil
	}
	d, err := w.pin.use(&w.dirs, f.node)
	if err == nil {
		err = w.reader.read(d, f.name, &f.content)
		w.pin.idle()
	}
	switch {
	case err == nil:
		return nil
	case isScarce(err) || isLeased(err):
		err = w.readPatiently(f)
	}
	if err == errNeedsSlot {
		if !w.acquireSlot() {
			return errStopped
		}
		err = w.readPatiently(f)
	}
	return err
}

func (w *worker) readPatiently(f *currentFile) error {
	return w.withDir(f.node, func(d directory) error { return w.reader.read(d, f.name, &f.content) })
}

// fetchStat fetches the metadata of f, unless that is known.
func (f *currentFile) fetchStat() error {
	c := &f.content
	if c.hasStat {
		return nil
	}
	return f.w.withDir(f.node, func(d directory) (err error) {
		c.stat, err = d.stat(f.name)
		c.hasStat = err == nil
		return err
	})
}

// fromReadahead puts what has been read ahead of entry i of b into f. Before that
// it reads ahead if that is worth it. It reports whether there was something.
func (w *worker) fromReadahead(f *currentFile, b *batch, i int) bool {
	a := &w.ahead
	if i < a.first || i >= a.end {
		if a.off || a.prefetching > 0 || b.joined.Load() || len(b.entries)-i < readaheadFrom/2 {
			return false
		}
		if a.wait--; a.wait >= 0 || !w.readGroup(b, i) {
			return false
		}
	}
	if !a.get(i, &f.content) {
		return false
	}
	if a.ring {
		w.counts.uring++
	}
	return true
}

// readGroup reads ahead from entry i of b.
func (w *worker) readGroup(b *batch, i int) bool {
	a := &w.ahead
	a.wait = 0
	if stop, cold := a.judge(); stop {
		if !cold || !w.startPrefetch(b.node) {
			a.wait = readaheadPause
		}
		return false
	}
	a.choose(w.pool.hasMuch)
	if a.off {
		return false
	}
	d, err := w.pin.use(&w.dirs, b.node)
	if err != nil {
		return false
	}
	w.releaseSlot()
	n := min(a.depth, len(b.entries)-i)
	useful := a.group.read(d, b.entries[i:i+n])
	w.pin.idle()
	if useful {
		a.first, a.end = i, i+n
		a.filled += n
		a.tried += n
	} else if !w.startPrefetch(b.node) {
		a.wait = readaheadPause
	}
	return useful
}

// startPrefetch turns prefetchNext on for the next files, if that is of use in n.
func (w *worker) startPrefetch(n *node) bool {
	a := &w.ahead
	if a.off || a.prefetching > 0 || w.cfg.noRead {
		return false
	}
	d, err := w.pin.use(&w.dirs, n)
	if err != nil {
		return false
	}
	defer w.pin.idle()
	if !canPrefetch(d) {
		return false
	}
	a.prefetching = readaheadPause
	return true
}

// prefetchNext prefetches what comes next in b, while files prove not to be in the
// page cache. It reports whether entry i was prefetched, by any worker.
func (w *worker) prefetchNext(b *batch, i int) bool {
	a := &w.ahead
	at := int(b.prefetched.Load())
	if a.prefetching <= 0 || i < at-readaheadDepth/2 || at >= len(b.entries) {
		return i < at
	}
	w.releaseSlot()
	d, err := w.pin.use(&w.dirs, b.node)
	if err != nil {
		return false
	}
	defer w.pin.idle()
	if !canPrefetch(d) { // not every directory of a run is like the one where it began
		a.prefetching = 0
		return false
	}
	from := max(i, at)
	n := min(readaheadDepth, len(b.entries)-from)
	if !b.prefetched.CompareAndSwap(int64(at), int64(from+n)) {
		return i < at // a worker that has joined was faster
	}
	a.prefetching -= n
	prefetch(d, b.entries[from:from+n], a.limit, w.stopped)
	return true
}
