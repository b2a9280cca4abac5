package fileproc

// A readAhead is an accelerator inside a backend: it opens and reads, or looks
// up, several files at once. What it is not sure of goes the plain way.
type readAhead interface {
	// read does so with the files names of d. It reports whether that was of
	// use; if not, there is nothing to get.
	read(d directory, names []string) bool
	// get gives f what was found of the file i of the last read, the whole
	// content of a regular file or its metadata, if that is certain. Content is
	// valid until the next read.
	get(i int, f *File) bool
	// uncached reports whether get gave nothing because that is not in the page
	// cache.
	uncached(i int) bool
	close()
}

const (
	// aheadFrom is how many files a worker visits before it reads ahead.
	aheadFrom = 16
	// ringFrom is how many it reads ahead before it sets up an io_uring, which
	// costs as much as reading some dozens.
	ringFrom = 240
	// aheadDepth is how many files are read at once, at most.
	aheadDepth = 64
	// aheadPause is how many files a worker reads the plain way when more than a
	// quarter of the last aheadDepth, or of the last window, had to be. If what
	// was wanted was not in the page cache, as many are fetched.
	aheadPause = 1024
)

// A window is the entries of a batch that one worker has read ahead. They are
// not taken by that: a worker that joins in visiting the batch takes them as
// any others, and reads them itself.
type window struct {
	ahead  readAhead
	depth  int  // of ahead
	off    bool // ahead cannot be had
	noRing bool // io_uring is not to be tried, or no more
	ring   bool // ahead is one
	wait   int  // files to be visited before the next window
	done   int  // files read ahead without io_uring
	tried  int  // files read ahead since it was last judged
	missed int  // those of them that had to be read the plain way
	cold   int  // those of these that were not in the page cache

	fetching int // files to be fetched before files are read ahead again

	first, end int // the entries of the batch that the worker visits
	names      [aheadDepth]string
}

// find gives f, the entry i of b, what has been read ahead of it, and reads
// ahead if that is worth it.
func (w *window) find(l *local, b *batch, i int, f *File) bool {
	if i < w.first || i >= w.end {
		if w.off || w.fetching > 0 || b.joined.Load() || len(b.entries)-i < aheadFrom/2 {
			return false
		}
		if w.wait--; w.wait >= 0 || !w.move(l, b, i) {
			return false
		}
	}
	if !w.ahead.get(i-w.first, f) {
		w.missed++
		if w.ahead.uncached(i - w.first) {
			w.cold++
		}
		return false
	}
	if w.ring {
		l.counts.uring++
	}
	return true
}

// move reads ahead from entry i of b.
func (w *window) move(l *local, b *batch, i int) bool {
	w.wait = 0
	if w.tried >= aheadDepth {
		missed, cold := w.missed > w.tried/4, w.cold > w.missed/2
		if w.tried, w.missed, w.cold = 0, 0, 0; missed {
			if !cold || !w.startFetching(l, b.node) {
				w.wait = aheadPause
			}
			return false
		}
	}
	w.choose(l)
	if w.off {
		return false
	}
	d, err := l.grip.hold(&l.run.handles, b.node)
	if err != nil {
		return false
	}
	l.rest()
	n := min(w.depth, len(b.entries)-i)
	for j := range n {
		w.names[j] = b.entries[i+j].name
	}
	useful := w.ahead.read(d, w.names[:n])
	l.grip.loosen()
	if !useful {
		if !w.startFetching(l, b.node) {
			w.wait = aheadPause
		}
		return false
	}
	w.first, w.end = i, i+n
	w.done += n
	w.tried += n
	return true
}

// startFetching has the next files fetched, if that can be done in n.
func (w *window) startFetching(l *local, n *node) bool {
	if w.off || w.fetching > 0 || l.run.opts.ReadSize == NoRead {
		return false
	}
	d, err := l.grip.hold(&l.run.handles, n)
	if err != nil {
		return false
	}
	defer l.grip.loosen()
	if !canFetch(d) {
		return false
	}
	w.fetching = aheadPause
	return true
}

// fetch has what comes next in b read into the page cache, if files are not in
// there, so that the plain way finds it. It reports whether that has been done
// for the entry i. Who joins in visiting b goes on where others have come to.
func (w *window) fetch(l *local, b *batch, i int) bool {
	at := int(b.fetched.Load())
	if w.fetching <= 0 || i < at-aheadDepth/2 || at >= len(b.entries) {
		return i < at
	}
	l.rest()
	d, err := l.grip.hold(&l.run.handles, b.node)
	if err != nil {
		return false
	}
	defer l.grip.loosen()
	if !canFetch(d) { // not every directory of a run is like the one where it began
		w.fetching = 0
		return false
	}
	from := max(i, at)
	n := min(aheadDepth, len(b.entries)-from)
	if !b.fetched.CompareAndSwap(int64(at), int64(from+n)) {
		return i < at
	}
	w.fetching -= n
	for j := range n {
		w.names[j] = b.entries[from+j].name
	}
	fetch(d, w.names[:n], l.reader.limit, l.run.cancelled)
	return true
}

// choose makes ahead what it should be.
func (w *window) choose(l *local) {
	if w.ahead == nil {
		w.ahead, w.depth = newCallAhead(l.reader.limit, l.run.opts.ReadSize == NoRead)
		w.off = w.ahead == nil
	}
	if !w.noRing && w.done >= ringFrom {
		w.noRing = true // tried once
		if ring := newRingAhead(l.reader.limit); ring != nil {
			w.close()
			w.ahead, w.depth, w.ring = ring, aheadDepth, true
		}
	}
}

// forget ends the window's use for the batch at hand.
func (w *window) forget() {
	w.first, w.end = 0, 0
	clear(w.names[:])
}

func (w *window) close() {
	if w.ahead != nil {
		w.ahead.close()
		w.ahead = nil
	}
}
