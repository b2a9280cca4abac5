package content

import (
	"time"

	"github.com/fileproc/fileproc/internal/names"
)

// A Kind says how to read the files of a file system when they are not in the
// page cache.
type Kind uint8

const (
	NotOnDisk      Kind = iota // on a network, or unknown
	OnDisk                     // in the order of inode numbers
	OnDiskForRings             // and through an io_uring
)

// A Dir is a directory that several files are read of. The zero Dir is one of which
// they are read one by one.
type Dir struct {
	FD   int
	Kind Kind
}

// A groupReader is an accelerator inside a backend: it opens and reads, or looks
// up, several files at once. Those whose result is not certain are read one by one.
type groupReader interface {
	// read opens and reads, or looks up, files of d, and reports whether that was of
	// use. If not, get must not be called.
	read(d Dir, files []names.Name) bool
	// get puts what is known of file i of the last read into c, the whole content
	// of a regular file or its metadata, if that is certain. Content is valid
	// until the next read.
	get(i int, c *Content) bool
	// isUncached reports whether get gave nothing because the file's content is not in
	// the page cache.
	isUncached(i int) bool
	close()
}

// A WindowReader is an accelerator inside a backend: it reads files of several
// directories together, so that a disk gets many requests at once.
type WindowReader interface {
	// Begin begins a window of n files. What was read before is no longer valid.
	Begin(n int)
	// Open opens the file name of d as file i. An error says that no other file of d
	// need be tried.
	Open(i int, d Dir, name names.Name) error
	// Read reads the files that are open, as far as that is sensible, and closes
	// them. If it probes, it reports how much of them was in the page cache: 0 to 1,
	// or -1 if that is unknown.
	Read(stopped func() bool, probes bool) (cached float64)
	// Get puts the whole content of file i into c, if that was read.
	Get(i int, c *Content) bool
	// UsedRing reports whether the last read was through an io_uring.
	UsedRing() bool
	Close()
}

// HasRings reports whether an io_uring may be had now.
func HasRings() bool {
	ring := newRingGroup(-1)
	if ring != nil {
		ring.close()
	}
	return ring != nil
}

const (
	// AheadFrom is how many files a worker visits before it reads ahead.
	AheadFrom = 16
	// Never says that a worker reads no groups of files ahead.
	Never = -1
	// ringFrom is how many it reads ahead before it sets up an io_uring if much is
	// left to do. To set one up costs what it gains with a hundred files.
	ringFrom = 240
	// ringAnyway is after how many it does so in any case.
	ringAnyway = 1024
	// readaheadDepth is how many files are read at once, at most.
	readaheadDepth = 64
	// readaheadBytes is how large they are together, about: copies to more memory than
	// that fall out of the processor's cache.
	readaheadBytes = 128 << 10
	// readaheadAverage is the average size in bytes of files that are too large.
	readaheadAverage = 32 << 10
	// ringShare: at once, a ring reads at most one file for so many that the worker
	// has read ahead. Otherwise, at the end of a small set, one worker would read many
	// files while the others have nothing left to do.
	ringShare = 8
	// readaheadPause is how many files a worker reads one by one when more than a
	// quarter of the last readaheadDepth, or of the last group, had to be.
	readaheadPause = 1024
)

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

// An Ahead is the entries of a batch that one worker has read ahead. They are
// not taken: a worker that joins in visiting the batch takes them like any others,
// and reads them itself.
type Ahead struct {
	Limit     int64 // as Want.Limit
	NeedsStat bool  // content is of no use without metadata
	StatOnly  bool  // metadata alone
	Birth     bool  // with the time of birth
	NoRing    bool  // io_uring is not to be tried, or no more
	Wait      int   // files to be visited before the next group, or Never

	Window WindowReader // only while a batch is visited

	group  groupReader
	depth  int  // of group
	ring   bool // group is one
	filled int  // files read ahead without io_uring
	tried  int  // files read ahead since it was last judged
	missed int  // those of them that had to be read one by one
	cold   int  // those of these that were not in the page cache
	seen   int  // files whose size is in bytes: all, but the older, the less they count
	bytes  int

	windows int       // how many have been read
	inCache int       // of these, in a row, those that did not wait for a disk
	begun   time.Time // when the last window was

	first, end int  // the entries of the batch that the worker visits
	together   bool // they are a window
}

// Has reports whether entry i has been read ahead. Get knows whether that was of use.
func (a *Ahead) Has(i int) bool { return a.first <= i && i < a.end }

// Saw says that a file of n bytes was read, by whatever means.
func (a *Ahead) Saw(n int) {
	if a.seen++; a.seen == readaheadDepth {
		a.seen, a.bytes = a.seen/2, a.bytes/2
	}
	a.bytes += min(n, 4*readaheadAverage)
}

// average returns the average size of the files, at least 1.
func (a *Ahead) average() int { return a.bytes/max(a.seen, 1) + 1 }

// Get puts what has been read ahead of entry i into c, if that is of use, and reports
// whether it came through an io_uring.
func (a *Ahead) Get(i int, c *Content) (ok, ring bool) {
	switch {
	case !a.Has(i):
		return false, false
	case a.together:
		return a.Window.Get(i-a.first, c), a.Window.UsedRing()
	case (!a.NeedsStat || c.HasStat) && a.group.get(i-a.first, c): // a group reads one of both
		return true, a.ring
	}
	a.missed++
	if a.group.isUncached(i - a.first) {
		a.cold++
	}
	return false, false
}

// Next returns how many of the left entries of a batch to read ahead now. If there
// are none, isCold says that most files were not in the page cache; unless the worker
// then reads them otherwise, it calls Pause. hasMuch reports whether much is left to do.
func (a *Ahead) Next(left int, hasMuch func() bool) (n int, isCold bool) {
	switch {
	case a.Wait == Never || left < AheadFrom/2:
		return 0, false
	case a.Wait > 0:
		a.Wait--
		return 0, false
	case a.average() > readaheadAverage:
		return 0, false
	}
	if stop, cold := a.judge(); stop {
		if !cold {
			a.Pause()
		}
		return 0, cold
	}
	a.choose(hasMuch)
	return min(a.depth, left, max(readaheadBytes/a.average(), AheadFrom/2)), false
}

// Pause reads nothing ahead for a while.
func (a *Ahead) Pause() { a.Wait = readaheadPause }

// Read reads files of d ahead, of which the first is entry i, and reports whether
// that can be of use.
func (a *Ahead) Read(d Dir, files []names.Name, i int) bool {
	if !a.group.read(d, files) {
		a.Pause()
		return false
	}
	a.first, a.end, a.together = i, i+len(files), false
	a.filled += len(files)
	a.tried += len(files)
	return true
}

// BeginWindow begins a window of n entries from i on. The worker opens them next.
func (a *Ahead) BeginWindow(i, n int) {
	a.begun = time.Now()
	a.Window.Begin(n)
	a.first, a.end, a.together = i, i+n, true
}

// ReadWindow reads the window, and returns how long that took, whether any of it had
// to wait for a disk, and whether so much was in the page cache that the next windows
// need not.
func (a *Ahead) ReadWindow(stopped func() bool) (reading time.Duration, waited, cached bool) {
	opened := time.Now()
	share := a.Window.Read(stopped, a.windows%probeEvery == 0)
	a.windows++
	reading = time.Since(opened)
	waited = time.Since(a.begun) >= time.Duration(a.end-a.first)*cachedFile
	if a.inCache++; waited {
		a.inCache = 0
	}
	if cached = share > mostlyCached || share < 0 && a.inCache == cachedWindows; cached {
		a.inCache = 0
	}
	return reading, waited, cached
}

// judge reports whether so much had to be read one by one that it is better to
// stop for a while, and whether most of that was not in the page cache.
func (a *Ahead) judge() (stop, cold bool) {
	if a.tried < readaheadDepth {
		return false, false
	}
	stop, cold = a.missed > a.tried/4, a.cold > a.missed/2
	a.tried, a.missed, a.cold = 0, 0, 0
	return stop, cold
}

// choose sets the groupReader and its depth, which is 0 where there is none. hasMuch
// reports whether much is left to do.
func (a *Ahead) choose(hasMuch func() bool) {
	if a.group == nil {
		if a.group, a.depth = newCallGroup(a.Limit, a.StatOnly, a.Birth); a.group == nil {
			a.Wait = Never
		}
	}
	if !a.NoRing && (a.filled >= ringAnyway || a.filled >= ringFrom && hasMuch()) {
		a.NoRing = true // tried once
		if ring := newRingGroup(a.Limit); ring != nil {
			a.Close()
			a.group, a.ring = ring, true
		}
	}
	if a.ring {
		a.depth = min(a.filled/ringShare, readaheadDepth)
	}
}

// Forget ends the use of what has been read ahead in a batch.
func (a *Ahead) Forget() { a.first, a.end = 0, 0 }

// Close ends the use of the groupReader. The next is chosen anew.
func (a *Ahead) Close() {
	if a.group != nil {
		a.group.close()
		a.group = nil
	}
	if a.ring { // there may be one again
		a.ring, a.NoRing = false, false
	}
}
