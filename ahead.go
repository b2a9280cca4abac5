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
	// quarter of the last aheadDepth, or of the last window, had to be.
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

	first, end int // the entries of the batch that the worker visits
	names      [aheadDepth]string
}

// find gives f, the entry i of b, what has been read ahead of it, and reads
// ahead if that is worth it.
func (w *window) find(l *local, b *batch, i int, f *File) bool {
	if i < w.first || i >= w.end {
		if w.off || b.joined.Load() || len(b.entries)-i < aheadFrom/2 {
			return false
		}
		if w.wait--; w.wait >= 0 || !w.move(l, b, i) {
			return false
		}
	}
	if !w.ahead.get(i-w.first, f) {
		w.missed++
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
		missed := w.missed > w.tried/4
		if w.tried, w.missed = 0, 0; missed {
			w.wait = aheadPause
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
	defer l.grip.loosen()
	n := min(w.depth, len(b.entries)-i)
	for j := range n {
		w.names[j] = b.entries[i+j].name
	}
	if !w.ahead.read(d, w.names[:n]) {
		w.wait = aheadPause
		return false
	}
	w.first, w.end = i, i+n
	w.done += n
	w.tried += n
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
