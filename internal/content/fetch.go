package content

import (
	"context"
	"time"

	"github.com/fileproc/fileproc/internal/names"
)

// A Fetcher is a way to fetch the files of a batch: their content, or their metadata. It
// fetches some together, before the worker visits them. They are not taken: a worker that
// joins in visiting the batch takes them like any others, and fetches them alone.
//
// The ways are Alone, which fetches nothing, so that a Reader reads one file after the
// other; Groups, with calls in a row or an io_uring, of files in the page cache; and
// Window, of files on a disk.
type Fetcher interface {
	// Fetch fetches the first entries of s, as many as it is worth, and returns how many
	// those are. What was fetched before is no longer valid.
	Fetch(s Source) (n int, met Outcome)
	// Get puts what the last Fetch has got of its file i into c, if that is certain, and
	// reports whether it came through an io_uring. What is not certain, the worker fetches alone.
	Get(i int, c *Content) (ok, ring bool)
}

// A Source is the entries of a batch that a worker has not visited.
type Source interface {
	// Len returns how many entries there are.
	Len() int
	// Use returns the first entries, at most n, that are in the same directory. The
	// directory stays open until Idle is called, unless err is set.
	Use(n int) (d Dir, files []names.Name, err error)
	Idle()
	// OpenIn opens the first n entries in w, those of one directory after those of another.
	OpenIn(w WindowReader, n int)
	// IsJoined reports whether other workers visit the entries too.
	IsJoined() bool
	// HasMuch reports whether the run has much left to do.
	HasMuch() bool
	// Uncached says that most files are not in the page cache, and reports whether the
	// worker fetches them in another way from now on.
	Uncached() bool
	// Context is cancelled when the run is stopped.
	Context() context.Context
}

// An Outcome is what a Fetch has met.
type Outcome struct {
	Took   time.Duration // for each file, if it fetched metadata
	Waited bool          // it had to wait for a disk
	Cached bool          // the files do not come from a disk any more
}

// Alone fetches nothing together.
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
	OnDisk                     // in the order of inode numbers
	OnDiskForRings             // and through an io_uring
)

// A Dir is a directory that several files are read of. The zero Dir is one of which
// they are read one by one.
type Dir struct {
	FD    int
	Kind  Kind
	Sizes Sized // of its files; nil: not known
}

// HasRings reports whether an io_uring may be had now.
func HasRings() bool {
	ring := newRingGroup(-1)
	if ring != nil {
		ring.close()
	}
	return ring != nil
}
