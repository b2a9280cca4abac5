package content

import (
	"context"
	"time"

	"github.com/fileproc/fileproc/internal/names"
)

// A Fetcher fetches the content or the metadata of files of a batch. It fetches some files
// together, before the worker visits them. This does not reserve the files: a worker that
// joins the batch may take them, too, and then fetches them alone.
//
// There are three. Alone fetches nothing, so that a Reader reads one file after the other.
// Groups fetches files in the page cache, with calls in a row or an io_uring. Window reads
// files on a disk.
type Fetcher interface {
	// Fetch fetches the first entries of s and returns how many it has fetched, which may
	// be 0. It makes what was fetched before invalid.
	Fetch(s Source) (n int, met Outcome)
	// Get puts the result of the last Fetch for its file i into c. Ring reports whether the
	// result came through an io_uring. If ok is false, the result is not certain, and the
	// worker fetches the file alone.
	Get(i int, c *Content) (ok, ring bool)
}

// A Source is the entries of a batch that a worker has not visited.
type Source interface {
	// Len returns the number of these entries.
	Len() int
	// Use returns the first entries, at most n, that are in the same directory. The
	// directory stays open until Idle is called, unless err is set.
	Use(n int) (d Dir, files []names.Name, err error)
	Idle()
	// OpenIn calls w.Open for the first n entries, directory by directory.
	OpenIn(w WindowReader, n int)
	// IsJoined reports whether other workers visit the entries too.
	IsJoined() bool
	// HasMuch reports whether the run has much left to do.
	HasMuch() bool
	// Uncached tells the Source that most files are not in the page cache. It reports
	// whether the worker uses another Fetcher from now on.
	Uncached() bool
	// Context is cancelled when the run is stopped.
	Context() context.Context
}

// An Outcome says how a Fetch went.
type Outcome struct {
	Took   time.Duration // for each file, if it fetched metadata
	Waited bool          // it has waited for a disk
	Cached bool          // the files no longer come from a disk
}

// Alone is the Fetcher that fetches nothing.
type Alone struct{}

// Fetch returns 0.
func (Alone) Fetch(Source) (int, Outcome) { return 0, Outcome{} }

// Get returns false.
func (Alone) Get(int, *Content) (ok, ring bool) { return false, false }

// A Kind says how to read the files of a file system when they are not in the
// page cache.
type Kind uint8

const (
	NotOnDisk      Kind = iota // on a network, or unknown
	OnDisk                     // on a disk: read in the order of inode numbers
	OnDiskForRings             // on a disk, and an io_uring may be used
)

// A Dir is a directory from which several files are read. With the zero Dir, files are read
// one by one.
type Dir struct {
	FD    int
	Kind  Kind
	Sizes Sized // says whether the sizes of its files are true; nil: not known
}

// HasRings reports whether an io_uring can be made now.
func HasRings() bool {
	ring := newRingGroup(-1)
	if ring != nil {
		ring.close()
	}
	return ring != nil
}
