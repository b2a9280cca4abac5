package content

import (
	"time"

	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/pace"
)

// A WindowReader is an accelerator inside a backend: it reads files of several
// directories together, so that a disk gets many requests at once.
type WindowReader interface {
	// Begin begins a window of n files, for which the disk may be asked for so many
	// requests. What was read before is no longer valid.
	Begin(n, requests int)
	// Open opens the file name of d as file i. An error says that no other file of d
	// need be tried.
	Open(i int, d Dir, name names.Name) error
	// Read reads the files that are open, as far as that is sensible, and closes
	// them. If it probes, it reports how much of them was in the page cache: 0 to 1,
	// or -1 if that is unknown.
	Read(stopped func() bool, probes bool) (cached float64)
	// Len returns how many files belong to the window after all: the first ones, and at
	// least one. It may be called once all are open.
	Len() int
	// Requests returns how many requests these files are.
	Requests() int
	// Get puts the whole content of file i into c, if that was read.
	Get(i int, c *Content) bool
	// UsedRing reports whether the last read was through an io_uring.
	UsedRing() bool
	Close()
}

const (
	// WindowMax is how many files a window has at most.
	WindowMax = 256
	// One window of probeEvery asks how much of it is in the page cache. If that is
	// more than mostlyCached, the files do not come from a disk any more.
	probeEvery   = 8
	mostlyCached = 0.75
	// cachedFile is how long a file of a window takes, at most, if it comes from the
	// page cache. Where a file system does not say what is there, the files do not come
	// from a disk any more after cachedWindows in a row.
	cachedFile    = 6 * time.Microsecond
	cachedWindows = 8
)

// A Window is the Fetcher of files on a disk: it reads many together, when it is their
// turn.
type Window struct {
	reader  WindowReader
	disk    *pace.Disk
	count   int  // how many have been read
	inCache int  // of these, in a row, those that did not wait for a disk
	heavy   bool // the last window had large files
}

// NewWindow returns a Window, or nil where there is none.
func NewWindow(want Want, noURing bool, disk *pace.Disk) *Window {
	r := newWindowReader(want, noURing)
	if r == nil {
		return nil
	}
	return &Window{reader: r, disk: disk}
}

// Fetch reads the next window.
func (w *Window) Fetch(s Source) (n int, met Outcome) {
	ctx := s.Context()
	n = s.Len()
	if w.heavy && s.IsJoined() { // another worker takes the next file
		n = 1
	}
	turn := w.disk.AcquireWindow(ctx, n)
	if n = turn.Files; n == 0 {
		return 0, Outcome{}
	}
	begun := time.Now()
	w.reader.Begin(n, turn.Requests)
	s.OpenIn(w.reader, n)
	n = w.reader.Len()
	requests := w.reader.Requests()
	w.heavy = requests > n
	turn = w.disk.WeighWindow(turn, n, requests)
	opened := time.Now()
	share := w.reader.Read(func() bool { return ctx.Err() != nil }, w.count%probeEvery == 0)
	w.count++
	reading := time.Since(opened)
	met.Waited = time.Since(begun) >= time.Duration(n)*cachedFile
	if w.inCache++; met.Waited {
		w.inCache = 0
	}
	if met.Cached = share > mostlyCached || share < 0 && w.inCache == cachedWindows; met.Cached {
		w.inCache = 0
	}
	w.disk.ReleaseWindow(turn, reading)
	return n, met
}

// Get puts the whole content of file i of the window into c, if that was read.
func (w *Window) Get(i int, c *Content) (ok, ring bool) {
	return w.reader.Get(i, c), w.reader.UsedRing()
}

// Close gives back what the Window has. It may take long.
func (w *Window) Close() { w.reader.Close() }
