package content

import (
	"time"

	"github.com/fileproc/fileproc/internal/names"
)

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

const (
	// AheadFrom is how many files a worker visits before it reads ahead.
	AheadFrom = 16
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
	// ringEven: one file in so many may have a size that is a multiple of 512 for a ring to
	// be of use.
	ringEven = 8
	// readaheadPause is how many files a worker reads one by one when more than a
	// quarter of the last readaheadDepth, or of the last group, had to be.
	readaheadPause = 1024
)

// Groups is the Fetcher of files in the page cache. It adapts as a worker visits files: it
// leaves the first AheadFrom of a run alone, then fetches small groups with calls in a row,
// and larger ones with an io_uring once it has fetched many. It pauses where that is of no use.
type Groups struct {
	Limit     int64 // as Want.Limit
	NeedsStat bool  // content is of no use without metadata
	StatOnly  bool  // metadata alone
	Birth     bool  // with the time of birth
	NoRing    bool  // io_uring is not to be tried, or no more
	Wait      int   // files to be visited before the next group

	reader groupReader
	depth  int  // of reader
	ring   bool // reader is one
	filled int  // files fetched without io_uring
	tried  int  // files fetched since it was last judged
	missed int  // those of them that had to be read one by one
	cold   int  // those of these that were not in the page cache
	seen   int  // files whose size is in bytes: all, but the older, the less they count
	bytes  int
	even   int // those of seen whose size is a multiple of 512
}

// Saw says that a file of n bytes was read, by whatever means.
func (g *Groups) Saw(n int) {
	if g.seen++; g.seen == readaheadDepth {
		g.seen, g.bytes, g.even = g.seen/2, g.bytes/2, g.even/2
	}
	if n%512 == 0 && n > 0 {
		g.even++
	}
	g.bytes += min(n, 4*readaheadAverage)
}

// average returns the average size of the files, at least 1.
func (g *Groups) average() int { return g.bytes/max(g.seen, 1) + 1 }

// Fetch fetches the next group, if that is worth it.
func (g *Groups) Fetch(s Source) (n int, met Outcome) {
	if s.IsJoined() {
		return 0, Outcome{}
	}
	most := g.next(s)
	if most == 0 {
		return 0, Outcome{}
	}
	d, files, err := s.Use(most)
	if err != nil {
		return 0, Outcome{}
	}
	var start time.Time
	if g.StatOnly { // of content, Get finds out what had to be waited for
		start = time.Now()
	}
	useful := g.reader.read(d, files)
	s.Idle()
	if !useful {
		g.pause()
		return 0, Outcome{}
	}
	n = len(files)
	if g.StatOnly {
		met.Took = time.Since(start) / time.Duration(n)
	}
	g.filled += n
	g.tried += n
	return n, met
}

// Get puts what the last group has of file i into c, if that is of use.
func (g *Groups) Get(i int, c *Content) (ok, ring bool) {
	if (!g.NeedsStat || c.HasStat) && g.reader.get(i, c) { // a group has one of both
		return true, g.ring
	}
	g.missed++
	if g.reader.isUncached(i) {
		g.cold++
	}
	return false, false
}

// next returns how many of the entries of s to fetch now.
func (g *Groups) next(s Source) int {
	left := s.Len()
	switch {
	case left < AheadFrom/2:
		return 0
	case g.Wait > 0:
		g.Wait--
		return 0
	case g.average() > readaheadAverage:
		return 0
	}
	if g.ring && g.isEven() {
		g.Close()
		g.tried, g.missed, g.cold = 0, 0, 0
	}
	if stop, cold := g.judge(); stop {
		if !cold || !s.Uncached() {
			g.pause()
		}
		return 0
	}
	if g.choose(s); g.reader == nil { // there is none here
		g.pause()
		return 0
	}
	return min(g.depth, left, max(readaheadBytes/g.average(), AheadFrom/2))
}

// isEven reports whether many sizes are multiples of 512. With those an io_uring cannot
// tell whether a file is whole, so that it would be opened again.
func (g *Groups) isEven() bool { return g.even > g.seen/ringEven }

// pause fetches nothing for a while.
func (g *Groups) pause() { g.Wait = readaheadPause }

// judge reports whether so much had to be read one by one that it is better to
// stop for a while, and whether most of that was not in the page cache.
func (g *Groups) judge() (stop, cold bool) {
	if g.tried < readaheadDepth {
		return false, false
	}
	stop, cold = g.missed > g.tried/4, g.cold > g.missed/2
	g.tried, g.missed, g.cold = 0, 0, 0
	return stop, cold
}

// choose sets the groupReader, unless there is none, and its depth.
func (g *Groups) choose(s Source) {
	if g.reader == nil {
		g.reader, g.depth = newCallGroup(g.Limit, g.StatOnly, g.Birth)
	}
	if !g.NoRing && !g.isEven() && (g.filled >= ringAnyway || g.filled >= ringFrom && s.HasMuch()) {
		g.NoRing = true // tried once
		if ring := newRingGroup(g.Limit); ring != nil {
			g.Close()
			g.reader, g.ring = ring, true
		}
	}
	if g.ring {
		g.depth = min(g.filled/ringShare, readaheadDepth)
	}
}

// Close ends the use of the groupReader. The next is chosen anew.
func (g *Groups) Close() {
	if g.reader != nil {
		g.reader.close()
		g.reader = nil
	}
	if g.ring { // there may be one again
		g.ring, g.NoRing = false, false
	}
}
