package fileproc

// A readAhead is an accelerator inside a backend: it opens and reads several
// files at once. What it does not read for sure goes the plain way.
type readAhead interface {
	// read opens the files names of d and reads their beginnings. It reports
	// whether it can do that for d; if not, it has done nothing.
	read(d directory, names []string) bool
	// bytes returns the whole content of the file i of the last read, which is
	// a regular one, or nil if that is not certain. It is valid until the next
	// read.
	bytes(i int) []byte
	close()
}

const (
	// aheadFrom is how many files a worker visits before it sets up a
	// readAhead, which costs as much as reading some dozens.
	aheadFrom = 256
	// aheadDepth is how many files are read at once.
	aheadDepth = 64
	// aheadSize is the size in bytes below which a file is read ahead.
	aheadSize = 16 << 10
	// aheadPause is how many files a worker reads the plain way after a window
	// of which more than a quarter had to be.
	aheadPause = 1024
)

// A window is the entries of a batch that one worker has read ahead. They are
// not taken by that: a worker that joins in visiting the batch takes them as
// any others, and reads them itself.
type window struct {
	ahead  readAhead
	off    bool // ahead cannot be had
	wait   int  // files to be visited before the next window
	missed int  // files of the window that had to be read the plain way

	first, end int // the entries of the batch that the worker visits
	names      [aheadDepth]string
}

// find returns the content of entry i of b if it has been read ahead, and reads
// ahead if that is worth it.
func (w *window) find(l *local, b *batch, i int) []byte {
	if i < w.first || i >= w.end {
		if w.off || b.joined.Load() || len(b.entries)-i < aheadDepth/4 {
			return nil
		}
		if w.wait--; w.wait >= 0 || !w.move(l, b, i) {
			return nil
		}
	}
	p := w.ahead.bytes(i - w.first)
	if p == nil {
		w.missed++
	}
	return p
}

// move reads ahead from entry i of b.
func (w *window) move(l *local, b *batch, i int) bool {
	if w.missed > aheadDepth/4 {
		w.missed, w.wait = 0, aheadPause
		return false
	}
	w.missed, w.wait = 0, 0
	if w.ahead == nil {
		if w.ahead = newReadAhead(l.reader.limit); w.ahead == nil {
			w.off = true
			return false
		}
	}
	d, err := l.grip.hold(&l.run.handles, b.node)
	if err != nil {
		return false
	}
	defer l.grip.loosen()
	n := min(aheadDepth, len(b.entries)-i)
	for j := range n {
		w.names[j] = b.entries[i+j].name
	}
	if !w.ahead.read(d, w.names[:n]) {
		w.wait = aheadPause
		return false
	}
	w.first, w.end = i, i+n
	return true
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
