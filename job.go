package fileproc

import (
	"io/fs"
	"sync/atomic"

	"github.com/fileproc/fileproc/internal/content"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
)

// This file has what workers share out: jobs to be listed, batches of files to be visited,
// and the spans that both have where results come in order.

// A job is something to be listed: a directory, links, or names that Options.Files gives.
// A worker lists one part of it at a time, and other workers may list the next part.
//
// A job holds what it needs, and gives each up once, with the methods of this file:
//
//   - a reference to its node's parent, until the node has been opened, if that is by its
//     name in the parent,
//   - a reference to its node, until the job is over,
//   - a pin on its node, while the job is being listed.
type job struct {
	node        *node // the directory whose entries the job gives
	source      source
	span        *span        // ordered: the job's own
	buffer      *entryBuffer // nil unless entries are buffered until all are listed
	phase       jobPhase
	flat        bool // subdirectories are left out
	fromIndex   bool // git's index gives the entries, if it knows them
	needsParent bool // holds the reference to the parent
	pinned      bool
}

// A jobPhase says how far the listing of a job has come.
type jobPhase uint8

const (
	jobNew      jobPhase = iota
	jobListing           // open, pinned and partly listed
	jobBuffered          // all is in buffer; ignore files in it, or git's index, are to be read
)

// A source says where the entries of a job come from. These are the methods that the
// queues use; scan.go has those that workers use.
type source interface {
	// isReady reports whether the job can be begun now.
	isReady() bool
	// taken is called when the job is taken from its queue.
	taken(j *job)
	// end is called when the job has ended.
	end()
}

// alwaysReady has the methods of a source that is known whole when its job is made.
type alwaysReady struct{}

func (alwaysReady) isReady() bool { return true }
func (alwaysReady) taken(*job)    {}
func (alwaysReady) end()          {}

// A foundDir is the source of a directory that a listing has found, and of root. Other
// sources of directories embed it. Its other methods are in scan.go.
type foundDir struct {
	alwaysReady
	parts *parts // unless nil, the job lists one of them
}

// parts are jobs that list a directory together.
type parts struct {
	of     *node
	left   atomic.Int32 // those that have not come to their ends
	failed atomic.Bool
}

// end says that a part has ended, and reports whether the whole directory has. P may be nil: the
// directory has one part.
func (p *parts) end() bool { return p == nil || p.left.Add(-1) == 0 }

// fail says that a part has failed, and reports whether it is the first.
func (p *parts) fail() bool { return p == nil || !p.failed.Swap(true) }

// newJob returns a job for a copy of n, in one allocation.
func newJob(n node, s source) *job {
	j := &struct {
		job
		own node
	}{job{source: s}, n}
	j.node = &j.own
	return &j.job
}

// newPart returns another job that lists the directory of j. The caller opens its node, which
// serves only to list, as the part of the directory that j no longer lists.
func (j *job) newPart() *job {
	d, _ := j.source.(foundDir)
	if d.parts == nil {
		d.parts = &parts{of: j.node}
		d.parts.left.Store(1)
		j.source = d
	}
	d.parts.left.Add(1)
	of := d.parts.of
	part := newJob(of.child(names.Dot, of.inode), j.source)
	part.phase, part.flat, part.pinned, part.needsParent = jobListing, j.flat, true, true
	return part
}

// opened says that the node has been opened and pinned, if ok, or cannot be opened. In
// both cases its parent is needed no more.
func (j *job) opened(c *dirCache, ok bool) {
	j.pinned = j.pinned || ok
	if j.needsParent {
		j.needsParent = false
		c.release(j.node.parent, 0, 1)
	}
}

// pause gives up the pin. The node may be closed until the job goes on.
func (j *job) pause(c *dirCache) {
	j.pinned = false
	c.release(j.node, 1, 0)
}

// end ends the job, and gives up all that it holds. Of its node's references, refs more than
// before are left: those of the jobs and batches that the caller has made of the entries.
func (j *job) end(c *dirCache, refs int) {
	j.source.end()
	j.opened(c, false)
	pins := 0
	if j.pinned {
		j.pinned, pins = false, 1
	}
	if pins > 0 || refs != 1 {
		c.release(j.node, pins, 1-refs)
	}
}

// An entryBuffer has what the listing of one directory has given so far.
type entryBuffer struct {
	entries []bufferedEntry
	ignore  []string // names of ignore files
	git     bool     // .git is among them, and Options.GitIgnore set
	marked  bool     // a file of Options.SkipMarked is among them
	tagged  bool     // it is one that must have cacheSignature

	needsIndex bool // see scanner.judgeBuffer
}

// hasRules reports whether files in b that decide about the others are yet to be read.
func (b *entryBuffer) hasRules() bool { return b.ignore != nil || b.git || b.tagged }

type bufferedEntry struct {
	name   names.Name
	typ    fs.FileMode
	judged bool // the filters do not leave it out
	inode  uint64
}

// A scanResult is what a scan of a job has found.
type scanResult struct {
	batch *batch  // files; nil if there were none
	subs  []*job  // directories to be listed, and links to be resolved
	part  *job    // unless nil, lists a part of what the job has listed so far
	spans []*span // ordered: all that the job has found, when it is over
	state scanState
}

type scanState uint8

const (
	scanDone  scanState = iota // nothing is left to list
	scanMore                   // the listing goes on
	scanAgain                  // the job goes back to the queue, and holds no descriptor meanwhile
)

// A batch is the files that one scan of a directory gave, or a window: files that lie
// next to each other on a disk, in any directories. A worker that has nothing else to do moves
// half of the entries that are left to a batch of its own, so that both workers fetch several files
// together. Where few are left, several workers visit one batch: each takes the next entry.
type batch struct {
	node    *node
	nodes   []*node // of a window's entries; see isWindow
	span    *span   // nil unless the results are in order
	entries []names.Name
	inodes  []uint64      // of entries, as listed; not in spans
	types   []fs.FileMode // of entries, unless all are regular files: see scanner.addOther
	stage   stage         // of all entries
	stats   []sys.Stat    // of entries, in stageAsked: the zero Stat if unknown; not in windows
	next    atomic.Int64  // see rest
	joined  atomic.Bool   // more than one worker has visited the batch
	err     error         // why none of the entries can be opened, if Options.Files named them

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

// rest returns which entries no worker has taken, those before end, if b.next is next. Its lower
// half is the first of them, its upper half how many entries behind them are in other batches.
func (b *batch) rest(next int64) (first, end int) {
	return int(uint32(next)), len(b.entries) - int(next>>32)
}

// take returns the index of an entry for the caller to visit, or false when
// all are taken.
func (b *batch) take() (int, bool) {
	next, end := b.rest(b.next.Add(1))
	return next - 1, next <= end
}

// takeAll takes the entries that are left, those from first to end.
func (b *batch) takeAll() (first, end int) {
	first, end = b.rest(b.next.Swap(int64(len(b.entries))))
	return min(first, end), end
}

// left returns how many entries no worker has taken.
func (b *batch) left() int {
	first, end := b.rest(b.next.Load())
	return max(0, end-first)
}

// abandon takes all entries that are left and returns how many it took.
func (b *batch) abandon() int64 {
	first, end := b.takeAll()
	return int64(end - first)
}

// halve moves the latter half of the entries that are left to half, which is empty. It returns
// false if they are too few for two workers to fetch several together, or if the batch must stay
// whole: a window, which is fetched whole, and the files of a span. The caller takes care that
// nobody resets b meanwhile.
func (b *batch) halve(half *batch) bool {
	for b.span == nil && !b.isWindow() {
		next := b.next.Load()
		first, end := b.rest(next)
		if end-first < content.AheadFrom {
			break
		}
		k := (end - first) / 2
		if !b.next.CompareAndSwap(next, next+int64(k)<<32) {
			continue
		}
		half.node, half.stage, half.err = b.node, b.stage, b.err
		half.entries = append(half.entries, b.entries[end-k:end]...)
		if len(b.inodes) > 0 {
			half.inodes = append(half.inodes, b.inodes[end-k:end]...)
		}
		if len(b.types) > 0 {
			half.types = append(half.types, b.types[end-k:end]...)
		}
		if len(b.stats) > 0 {
			half.stats = append(half.stats, b.stats[end-k:end]...)
		}
		return true
	}
	return false
}

func (b *batch) reset() {
	clear(b.entries) // lets the names go
	b.entries = b.entries[:0]
	clear(b.nodes)
	b.nodes, b.inodes, b.types = b.nodes[:0], b.inodes[:0], b.types[:0]
	b.stage, b.err, b.stats = stageListed, nil, b.stats[:0]
	b.node, b.span = nil, nil
	b.next.Store(0)
	b.joined.Store(false)
}

// A span is a part of the results in order: a directory, or up to spanSize files of one
// directory. All spans are in one list, in the order in which their results are delivered:
// a directory, and then what is in it. Those with work that no worker has begun are in a
// second list too, and so are the directories that are being listed.
//
// Say that root has the entries a, b/, c, d and e/. While root is listed, its span is alone:
//
//	head -> ./
//	todo -> ./
//
// When root has been listed, expand puts the spans of its entries behind root's. The files c
// and d are neighbours, and share one:
//
//	head -> ./ -> [a] -> b/ -> [c d] -> e/
//	todo -------> [a] -> b/ -> [c d] -> e/
//
// Later a has been delivered. The worker that listed b/ has found two files and a directory,
// while another has begun to visit c and d. Their results wait until those of b/ are
// delivered:
//
//	head -> b/ -> [b/x b/y] -> b/z/ -> [c d] -> e/
//	todo -------> [b/x b/y] -> b/z/ ----------> e/
//
// A directory has results of its own: its name in a Walk, and its failures. They come first,
// and its span leaves the list when they are delivered and the directory is expanded. A span
// of files leaves the list when all its files are visited and their results delivered.
type span struct {
	next               *span // in the list of head
	prevTodo, nextTodo *span // in the list of todo

	// What is listed or visited.
	job      *job   // of a directory that is to be listed, or of a link
	batch    *batch // of files
	files    int    // in batch; 0 for a directory
	begun    bool   // a worker has begun to list the directory
	expanded bool   // the directory has been listed, or is not to be

	// What is delivered.
	results    any    // of type *[]result[T]; of files, one for each
	delivered  int    // how many of the results, or of the files
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
	begin := 0
	addFiles := func(end int) {
		for begin < end {
			next := min(end, begin+spanSize)
			b := &batch{node: n, entries: files.entries[begin:next:next]}
			b.span = &span{batch: b, files: len(b.entries)}
			all = append(all, b.span)
			begin = next
		}
	}
	for _, d := range dirs {
		addFiles(d.files)
		all = append(all, d.span)
	}
	if files != nil {
		addFiles(len(files.entries))
	}
	return all
}
