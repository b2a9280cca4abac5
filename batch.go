package fileproc

import (
	"sync/atomic"

	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
)

// A batch is the files that one scan of a directory gave, or a window: files that
// lie next to each other on a disk, of any directories. Several workers may visit
// one: each takes the next entry.
type batch struct {
	node    *node
	nodes   []*node // of a window's entries; node is then nil
	span    *span   // nil unless the results are in order
	entries []names.Name
	inodes  []uint64     // of entries, as listed; not in windows and spans
	asked   bool         // hooks.Unchanged has returned false for the entries
	stats   []sys.Stat   // if asked: the zero Stat where it is unknown
	next    atomic.Int64 // the first entry that no worker has taken
	joined  atomic.Bool  // more than one worker has visited the batch
	invalid bool         // the entries cannot be paths: Options.Files named them
	err     error        // why none of the entries can be opened, if Options.Files named them

	users int // workers that visit it; guarded by the pool's mutex
}

// nodeOf returns the directory of entry i.
func (b *batch) nodeOf(i int) *node {
	if b.node == nil {
		return b.nodes[i]
	}
	return b.node
}

// take returns the index of an entry for the caller to visit, or false when
// all are taken.
func (b *batch) take() (int, bool) {
	i := b.next.Add(1) - 1
	return int(i), i < int64(len(b.entries))
}

// left returns how many entries no worker has taken.
func (b *batch) left() int {
	return max(0, len(b.entries)-int(b.next.Load()))
}

// abandon takes all the entries that are left and returns how many they were.
func (b *batch) abandon() int64 {
	n := int64(len(b.entries))
	return max(0, n-b.next.Swap(n))
}

func (b *batch) reset() {
	clear(b.entries) // lets the names go
	b.entries = b.entries[:0]
	clear(b.nodes)
	b.nodes, b.inodes = b.nodes[:0], b.inodes[:0]
	b.asked, b.invalid, b.err, b.stats = false, false, nil, b.stats[:0]
	b.node, b.span = nil, nil
	b.next.Store(0)
	b.joined.Store(false)
}

// A scanResult is what a scan of a directory has found.
type scanResult struct {
	batch *batch  // files; nil if there were none
	subs  []*node // directories to be listed
	state scanState
}

type scanState uint8

const (
	scanDone  scanState = iota // nothing is left to list
	scanMore                   // the listing goes on
	scanAgain                  // the directory is to be begun anew, and holds no descriptor until then
)
