package content

import (
	"time"

	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/pace"
)

// A WindowReader is an accelerator inside a backend: it reads files of several
// directories together, so that a disk gets many requests at once.
type WindowReader interface {
	// Begin begins a window of n files, which may make so many requests of the disk. It
	// makes earlier content invalid.
	Begin(n, requests int)
	// Open opens the file name in d as file i. After an error, the caller skips the other
	// files of d.
	Open(i int, d Dir, name names.Name) error
	// Read reads the open files, or the beginning of large ones, and closes them. If
	// probes is set, it returns which share of them was in the page cache: 0 to 1, or
	// -1 if that is unknown.
	Read(stopped func() bool, probes bool) (cached float64)
	// Len returns how many of the files belong to the window, at least one. The others are
	// left to the next window. Len may be called when all files are open.
	Len() int
	// Requests returns how many requests these files make.
	Requests() int
	// Get puts the whole content of file i into c, if it was read.
	Get(i int, c *Content) bool
	// UsedRing reports whether the last read was through an io_uring.
	UsedRing() bool
	Close()
}

const (
	// WindowMax is the most files that a window has.
	WindowMax = 256
	// One window in probeEvery finds out which share of it is in the page cache. Above
	// mostlyCached, the files no longer come from a disk.
	probeEvery   = 8
	mostlyCached = 0.75
	// cachedFile is the longest time that a file of a window takes if it is in the page
	// cache. Some file systems do not tell what is in the page cache. There, the files
	// no longer come from a disk after cachedWindows such windows in a row.
	cachedFile    = 6 * time.Microsecond
	cachedWindows = 8
)

// A Window is the Fetcher of files on a disk. It reads many files together, when the
// pace of the disk permits.
type Window struct {
	reader  WindowReader
	disk    *pace.Disk
	count   int  // windows read
	inCache int  // the last windows in a row that did not wait for a disk
	heavy   bool // the last window had large files
}

// NewWindow returns a Window, or nil on systems that have none.
func NewWindow(want Want, noURing bool, disk *pace.Disk) *Window {
	r := newWindowReader(want, noURing, &disk.Submission)
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

// Get puts the whole content of file i of the window into c, if it was read.
func (w *Window) Get(i int, c *Content) (ok, ring bool) {
	return w.reader.Get(i, c), w.reader.UsedRing()
}

// Close releases the resources of the Window. It may take long.
func (w *Window) Close() { w.reader.Close() }
