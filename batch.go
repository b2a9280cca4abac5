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

// A scanResult is what a scan of a job has found.
type scanResult struct {
	batch *batch  // files; nil if there were none
	subs  []*job  // directories to be listed, and links to be resolved
	spans []*span // ordered: all that the job has found, when it is over
	state scanState
}

type scanState uint8

const (
	scanDone  scanState = iota // nothing is left to list
	scanMore                   // the listing goes on
	scanAgain                  // the job is to be gone on with later, and holds no descriptor until then
)

// A span is a part of the results in order: a directory, or up to spanSize files of one
// directory. A directory's own results, its name and its failures, come before those of
// the spans to which it is expanded.
type span struct {
	next               *span  // in order
	prevTodo, nextTodo *span  // see ordered.todo
	job                *job   // of a directory
	batch              *batch // of files
	files              int
	begun              bool // a worker has begun to list the directory
	expanded           bool // the directory has been listed, or is not to be

	results    any    // of type *[]result[T]
	delivered  int    // how many of the results
	done, sent uint64 // the files, by bit, that have been visited, and that have a result
}

// spanSize is how many files a span has at most, one for each bit of span.done.
const spanSize = 64

var _ [spanSize]struct{} = [64]struct{}{}

// weight is how many results a span counts as while it is begun and not delivered.
func (s *span) weight() int {
	if s.job != nil {
		return 1
	}
	return s.files
}

// A spanAt is a directory's span, with the number of files of the scan that come before
// it.
type spanAt struct {
	span  *span
	files int
}

// A position says where the results of a worker go if they are in order.
type position struct {
	span *span
	file int  // of the span, or -1: a result of the directory's own
	sent bool // the file has a result
}

// splitIntoSpans puts files and directories, in the order of names, into spans.
func splitIntoSpans(n *node, files *batch, dirs []spanAt) []*span {
	var all []*span
	taken := 0
	take := func(end int) {
		for taken < end {
			next := min(end, taken+spanSize)
			b := &batch{node: n, entries: files.entries[taken:next:next]}
			b.span = &span{batch: b, files: len(b.entries)}
			all = append(all, b.span)
			taken = next
		}
	}
	for _, d := range dirs {
		take(d.files)
		all = append(all, d.span)
	}
	if files != nil {
		take(len(files.entries))
	}
	return all
}
