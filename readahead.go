package fileproc

import (
	"github.com/fileproc/fileproc/internal/descriptors"
	"github.com/fileproc/fileproc/internal/names"
)

// A groupReader is an accelerator inside a backend: it opens and reads, or looks
// up, several files at once. Those whose result is not certain are read one by one.
type groupReader interface {
	// read opens and reads, or looks up, files of d, and reports whether that was of
	// use. If not, get must not be called.
	read(d directory, files []names.Name) bool
	// get puts what is known of file i of the last read into c, the whole content
	// of a regular file or its metadata, if that is certain. Content is valid
	// until the next read.
	get(i int, c *content) bool
	// isUncached reports whether get gave nothing because the file's content is not in
	// the page cache.
	isUncached(i int) bool
	close()
}

// A windowReader is an accelerator inside a backend: it reads files of several
// directories together, so that a disk gets many requests at once.
type windowReader interface {
	// begin begins a window of n files. What was read before is no longer valid.
	begin(n int)
	// open opens the file name of d as file i. An error says that no other file of d
	// need be tried.
	open(i int, d directory, name names.Name) error
	// read reads the files that are open, as far as that is sensible, and closes
	// them. If it probes, it reports how much of them was in the page cache: 0 to 1,
	// or -1 if that is unknown.
	read(stopped func() bool, probes bool) (cached float64)
	// get puts the whole content of file i into c, if that was read.
	get(i int, c *content) bool
	// usedRing reports whether the last read was through an io_uring.
	usedRing() bool
	close()
}

// mostRings returns how many io_urings there may be in all runs together. Tests set it.
var mostRings = func() int64 { return int64(min(descriptors.Limit()/4, 1<<16)) }

const (
	// readaheadFrom is how many files a worker visits before it reads ahead.
	readaheadFrom = 16
	// ringFrom is how many it reads ahead before it sets up an io_uring if much is
	// left to do. To set one up costs what it gains with a hundred files.
	ringFrom = 240
	// ringAnyway is after how many it does so in any case.
	ringAnyway = 1024
	// readaheadDepth is how many files are read at once, at most.
	readaheadDepth = 64
	// ringShare: at once, a ring reads at most one file for so many that the worker
	// has read ahead. Otherwise, at the end of a small set, one worker would read many
	// files while the others have nothing left to do.
	ringShare = 8
	// readaheadPause is how many files a worker reads one by one when more than a
	// quarter of the last readaheadDepth, or of the last group, had to be.
	readaheadPause = 1024
)

// A readahead is the entries of a batch that one worker has read ahead. They are
// not taken: a worker that joins in visiting the batch takes them like any others,
// and reads them itself.
type readahead struct {
	limit    int64 // as reader.limit
	statOnly bool  // metadata alone
	birth    bool  // with the time of birth
	off      bool  // there is no groupReader
	noRing   bool  // io_uring is not to be tried, or no more

	group  groupReader
	depth  int  // of group
	ring   bool // group is one
	wait   int  // files to be visited before the next group
	filled int  // files read ahead without io_uring
	tried  int  // files read ahead since it was last judged
	missed int  // those of them that had to be read one by one
	cold   int  // those of these that were not in the page cache

	window   windowReader // only while a batch is visited
	noWindow bool         // there is no windowReader, or it is of no use
	windows  int          // how many it has read
	quick    int          // of these, in a row, those that did not wait for a disk

	first, end int  // the entries of the batch that the worker visits
	together   bool // they are a window
}

// get puts what has been read ahead of entry i into c.
func (a *readahead) get(i int, c *content) bool {
	if a.together {
		return a.window.get(i-a.first, c)
	}
	if a.group.get(i-a.first, c) {
		return true
	}
	a.missed++
	if a.group.isUncached(i - a.first) {
		a.cold++
	}
	return false
}

// judge reports whether so much had to be read one by one that it is better to
// stop for a while, and whether most of that was not in the page cache.
func (a *readahead) judge() (stop, cold bool) {
	if a.tried < readaheadDepth {
		return false, false
	}
	stop, cold = a.missed > a.tried/4, a.cold > a.missed/2
	a.tried, a.missed, a.cold = 0, 0, 0
	return stop, cold
}

// choose sets the groupReader and its depth, or off. hasMuch reports whether much is
// left to do.
func (a *readahead) choose(hasMuch func() bool) {
	if a.group == nil {
		a.group, a.depth = newCallGroup(a.limit, a.statOnly, a.birth)
		a.off = a.group == nil
	}
	if !a.noRing && (a.filled >= ringAnyway || a.filled >= ringFrom && hasMuch()) {
		a.noRing = true // tried once
		if ring := newRingGroup(a.limit); ring != nil {
			a.closeGroup()
			a.group, a.ring = ring, true
		}
	}
	if a.ring {
		a.depth = min(a.filled/ringShare, readaheadDepth)
	}
}

// forget ends the use of what has been read ahead in a batch.
func (a *readahead) forget() { a.first, a.end = 0, 0 }

// closeGroup ends the use of the groupReader. The next is chosen anew.
func (a *readahead) closeGroup() {
	if a.group != nil {
		a.group.close()
		a.group = nil
	}
	if a.ring { // there may be one again
		a.ring, a.noRing = false, false
	}
}
