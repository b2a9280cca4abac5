package fileproc

import (
	"sync/atomic"

	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
)

// A batch is the files that one scan of a directory gave, or a window: files that lie
// next to each other on a disk, in any directories. Several workers may visit one batch:
// each takes the next entry.
type batch struct {
	node    *node
	nodes   []*node // of a window's entries; see isWindow
	span    *span   // nil unless the results are in order
	entries []names.Name
	inodes  []uint64     // of entries, as listed; not in spans
	stage   stage        // of all entries
	stats   []sys.Stat   // of entries, in stageAsked: the zero Stat if unknown; not in windows
	next    atomic.Int64 // the first entry that no worker has taken
	joined  atomic.Bool  // more than one worker has visited the batch
	err     error        // why none of the entries can be opened, if Options.Files named them

	users int // workers that visit it; guarded by the pool's mutex
}

// A stage says how far all files of a batch have come. What is known of a single file is
// in its content.Content.
type stage uint8

const (
	stageListed  stage = iota // Select and hooks.Unchanged are yet to be asked
	stageAsked                // Select has returned true and hooks.Unchanged false: to be read
	stageInvalid              // the names, which Options.Files gave, cannot be paths
)

func (b *batch) isWindow() bool { return len(b.nodes) > 0 }

// nodeOf returns the directory of entry i.
func (b *batch) nodeOf(i int) *node {
	if b.isWindow() {
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

// abandon takes all entries that are left and returns how many it took.
func (b *batch) abandon() int64 {
	n := int64(len(b.entries))
	return max(0, n-b.next.Swap(n))
}

func (b *batch) reset() {
	clear(b.entries) // lets the names go
	b.entries = b.entries[:0]
	clear(b.nodes)
	b.nodes, b.inodes = b.nodes[:0], b.inodes[:0]
	b.stage, b.err, b.stats = stageListed, nil, b.stats[:0]
	b.node, b.span = nil, nil
	b.next.Store(0)
	b.joined.Store(false)
}
