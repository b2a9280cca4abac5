package fileproc

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// pendingFrom, pendingMin and pendingMost are how many files workers read in
	// windows at the same time: at first, however long that takes, and at most.
	pendingFrom = 16
	pendingMin  = 8
	pendingMost = 4 * windowMax
	// pendingFew is up to how many are so few that a slow disk is to be noticed before
	// it is asked for more.
	pendingFew = 64
	// longWindow is how long the reads of a window may take before the disk is asked
	// for less. A run that is stopped waits for them.
	longWindow = 40 * time.Millisecond
	// quickInARow is how many windows must take less, once one was slow, before the
	// disk is asked for more.
	quickInARow = 32
)

// A coldMode says whether a run reads from a disk, and then how.
type coldMode struct {
	on atomic.Bool
	// window is how many files to read together. It is 0, and stays so, if none are,
	// because descriptors are scarce.
	window    atomic.Int32
	maxWindow int

	mu      sync.Mutex // guards what follows
	pace    pace
	pending int           // files of the windows that are being read
	waiting []chan<- turn // of workers with a window, in the order in which they came
	wanted  []int         // files of these windows
	// readers are those that no worker has, of readersMade. A worker has one only while
	// it visits a batch: it may be one of many that were started before the cold mode,
	// and end after that.
	readers     []windowReader
	readersMade int
	mostReaders int
}

// A turn is a worker's right to read a window of files files. With these, pending
// files are being read, at the pace paced.
type turn struct {
	files, pending int
	paced          pace
}

// begin makes c ready for workers workers, and windows of at most maxWindow files.
func (c *coldMode) begin(workers, maxWindow int) {
	c.on.Store(alwaysCold)
	c.mostReaders = max(workers, maxColdWorkers)
	c.maxWindow = maxWindow
	c.pace = pace{files: pendingFrom}
	c.window.Store(int32(min(c.pace.window(), maxWindow)))
}

// acquire waits until a window may be read, of at most wanted files. The turn has no
// files when the run is stopped, or when no windows are read.
func (c *coldMode) acquire(ctx context.Context, wanted int) turn {
	mine := make(chan turn, 1) // admit does not wait
	c.mu.Lock()
	c.waiting, c.wanted = append(c.waiting, mine), append(c.wanted, wanted)
	c.admit()
	c.mu.Unlock()
	select {
	case t := <-mine:
		return t
	case <-ctx.Done(): // for all others too, so it does not matter what this one gets
		return turn{}
	}
}

// release ends a turn whose reads took the time reading.
func (c *coldMode) release(t turn, reading time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pace.files == t.paced.files { // it has not changed since
		asked := t.pending
		if c.pace.files <= pendingFew {
			asked = t.files // most of the others may have been read by the time it began
		}
		c.pace = c.pace.next(asked, reading)
	}
	if was := c.window.Load(); was > 0 {
		c.window.CompareAndSwap(was, int32(min(c.pace.window(), c.maxWindow)))
	}
	c.pending -= t.files
	c.admit()
}

// admit gives turns to those who wait, as long as the disk may be asked for more. It
// is called with c.mu held.
func (c *coldMode) admit() {
	for len(c.waiting) > 0 {
		files := min(c.wanted[0], int(c.window.Load()))
		if c.pending > 0 && c.pending+files > c.pace.files {
			return
		}
		c.pending += files
		c.waiting[0] <- turn{files, c.pending, c.pace}
		c.waiting, c.wanted = c.waiting[1:], c.wanted[1:]
	}
}

// takeReader returns a windowReader, or nil. With nil the caller may be the one to
// make another.
func (c *coldMode) takeReader() (r windowReader, mayMake bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := len(c.readers); k > 0 {
		r, c.readers = c.readers[k-1], c.readers[:k-1]
		return r, false
	}
	if c.readersMade == c.mostReaders {
		return nil, false
	}
	c.readersMade++
	return nil, true
}

// putReader takes back a windowReader for another worker.
func (c *coldMode) putReader(r windowReader) {
	c.mu.Lock()
	c.readers = append(c.readers, r)
	c.mu.Unlock()
}

// close closes all readers, which may take long.
func (c *coldMode) close() {
	if len(c.readers) == 0 {
		return
	}
	var closing sync.WaitGroup
	for _, r := range c.readers {
		closing.Go(r.close)
	}
	closing.Wait()
}

// A pace says how much a disk is asked for at the same time. One that serves a
// request after the other is slow because of the sum of them, whoever makes them.
type pace struct {
	files  int  // in all windows that are read at the same time
	slowed bool // a window was slow
	quick  int  // windows in a row that were not
}

// next returns the pace after a window that was read in the time reading, while
// pending files were being read, its own among them. Many disks are fast where files
// lie side by side and slow elsewhere, so one slow window counts for long.
func (p pace) next(pending int, reading time.Duration) pace {
	switch {
	case reading > longWindow:
		return pace{files: max(pendingMin, p.files/2), slowed: true}
	case pending < p.window() || reading*time.Duration(p.files) > longWindow*time.Duration(pending):
		return p // that was little to ask for
	}
	if p.quick++; !p.slowed || p.quick == quickInARow {
		return pace{files: min(2*p.files, pendingMost), slowed: p.slowed}
	}
	return p
}

// window returns how many files a window has. Two are pending, so that the disk has
// work while files are opened.
func (p pace) window() int { return min(max(pendingMin, p.files/2), windowMax) }
