package content

import (
	"time"

	"github.com/fileproc/fileproc/internal/names"
)

// A groupReader is an accelerator inside a backend. It opens and reads, or looks up,
// several files at once. A Reader reads the files whose result is not certain.
type groupReader interface {
	// read opens and reads, or looks up, files of d. If it returns false, it could not do
	// so, and get must not be called.
	read(d Dir, files []names.Name) bool
	// get puts the result of the last read for file i into c: the whole content of a
	// regular file, or its metadata. It returns false if the result is not certain.
	// Content is valid until the next read.
	get(i int, c *Content) bool
	// isUncached reports whether get returns false because the content of file i is not in
	// the page cache.
	isUncached(i int) bool
	close()
}

const (
	// AheadFrom is how many files a worker visits before it reads ahead.
	AheadFrom = 16
	// ringFrom is how many files a worker reads ahead before it sets up an io_uring, if
	// much is left to do. The setup costs what an io_uring gains with a hundred files.
	ringFrom = 240
	// ringAnyway is how many files it reads ahead before it does so in any case.
	ringAnyway = 1024
	// readaheadDepth is the most files in a group.
	readaheadDepth = 64
	// readaheadBytes is about how many bytes the files of a group have together. More
	// would not fit the processor's cache.
	readaheadBytes = 128 << 10
	// readaheadAverage is the average size in bytes above which files are too large for
	// groups.
	readaheadAverage = 32 << 10
	// ringShare limits the groups of a ring: for each ringShare files that the worker has
	// read ahead, a group may have one file. Otherwise, at the end of a small set, one
	// worker would read many files while the others have nothing left to do.
	ringShare = 8
	// ringEven says when a ring is useful: at most one file in ringEven may have a size
	// that is a multiple of 512.
	ringEven = 8
	// readaheadPause is how many files a worker reads one by one after groups were of
	// little use: a Reader had to read more than a quarter of their files again.
	readaheadPause = 1024
)

// Groups is the Fetcher of files in the page cache. It leaves the first AheadFrom files of a
// worker to the Reader, and then fetches small groups with calls in a row. Once it has fetched
// many files, it fetches larger groups with an io_uring. It pauses when groups are of little use.
type Groups struct {
	Limit     int64 // as Want.Limit
	NeedsStat bool  // content is useless without metadata
	StatOnly  bool  // fetch only metadata
	Birth     bool  // fetch the time of birth, too
	NoRing    bool  // do not try io_uring, or not again
	Wait      int   // files to visit before the next group

	reader groupReader
	depth  int  // of reader
	ring   bool // reader uses an io_uring
	filled int  // files fetched
	tried  int  // files fetched since the last judge
	missed int  // those of tried that a Reader had to read
	cold   int  // those of missed that were not in the page cache
	seen   int  // files counted in bytes; older files have less weight
	bytes  int
	even   int // those of seen whose size is a multiple of 512
}

// Saw counts a file of n bytes that was read, also one that a Reader has read.
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

// Fetch fetches the next group, if groups are useful now.
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
	if g.StatOnly { // for content, Get finds out what is not in the page cache
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

// Get puts the result of the last group for file i into c, if it is certain.
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

// next returns how many entries of s to fetch now.
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

// isEven reports whether many sizes are multiples of 512. With such a size, an io_uring cannot
// tell whether a file is whole, so that a Reader opens the file again.
func (g *Groups) isEven() bool { return g.even > g.seen/ringEven }

// pause fetches nothing for a while.
func (g *Groups) pause() { g.Wait = readaheadPause }

// judge reports whether a Reader had to read so many files that it is better to pause,
// and whether most of them were not in the page cache.
func (g *Groups) judge() (stop, cold bool) {
	if g.tried < readaheadDepth {
		return false, false
	}
	stop, cold = g.missed > g.tried/4, g.cold > g.missed/2
	g.tried, g.missed, g.cold = 0, 0, 0
	return stop, cold
}

// choose sets the groupReader, if the system has one, and its depth.
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

// Close ends the use of the groupReader. The next Fetch chooses again.
func (g *Groups) Close() {
	if g.reader != nil {
		g.reader.close()
		g.reader = nil
	}
	if g.ring { // the next choose may set one up again
		g.ring, g.NoRing = false, false
	}
}
