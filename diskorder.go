package fileproc

import (
	"cmp"
	"container/heap"
	"slices"
	"sync"

	"github.com/fileproc/fileproc/internal/content"
	"github.com/fileproc/fileproc/internal/names"
)

// maxListedAhead is about how many bytes of memory the files and directories may
// take that are listed ahead: a million files with names of 20 bytes. Tests set it.
var maxListedAhead = 52 << 20

const (
	// memoryBesides is about what a process takes in the cold mode for everything else.
	memoryBesides = 24 << 20
	// minListedAhead is enough for windows whose files lie side by side.
	minListedAhead = 1 << 20
	// fileCost and dirCost are the bytes of one, without its name.
	fileCost = 32
	dirCost  = 240
	// runSize is how many files are sorted at a time.
	runSize = 4096
)

// diskOrder is the queue of a run whose results need no order. While files come
// from the page cache it gives the directory that was found last.
//
// In the cold mode it gives directories in the order of their inode numbers until
// all are listed, or too much memory is in use, and then windows: the files with
// the lowest inode numbers, of any directories. File systems tend to keep files in
// the order of these numbers, and a disk reads neighbours in one request if it is
// asked for them together.
type diskOrder struct {
	cold  *coldMode
	stage stage        // of all files that are listed ahead
	given *givenSource // nil without Options.Files; gives backlogs when nothing else is to be listed

	mu        sync.Mutex // guards what follows; it may be taken while the pool's is held
	stack     []*node    // directories, the one found last at the end
	dirs      dirHeap    // directories listed ahead
	dirBytes  int        // taken by dirs
	runs      fileHeap   // files listed ahead
	unsorted  []listedFile
	files     int  // in runs and unsorted
	fileBytes int  // taken by them, and by those visited since there were none
	full      bool // until no file is left
	withheld  int  // bytes of maxListedAhead that are not to be used
	spare     []*batch
}

// fitMemory withholds what a process that may use limit bytes of memory cannot have.
// The garbage collector lets a heap grow to twice what is in use.
func (q *diskOrder) fitMemory(limit int64) {
	q.mu.Lock()
	q.withheld = int(max(0, int64(maxListedAhead)-max(minListedAhead, (limit-memoryBesides)/2)))
	q.mu.Unlock()
}

// take gives files only when nothing is being listed any more: a file that is next
// to one of them on the disk may be in any directory.
func (q *diskOrder) take(listed, maxListings int) (*batch, *node) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.files > 0 && (q.full || !q.cold.on.Load() || listed == 0 && q.unlisted() == 0) {
		return q.takeWindow(), nil
	}
	if listed >= maxListings {
		return nil, nil
	}
	return nil, q.takeDir()
}

// unlisted returns how many directories are to be listed, and backlogs of names.
func (q *diskOrder) unlisted() int {
	k := len(q.stack) + len(q.dirs.nodes)
	if k == 0 && q.given.isReady() {
		k = 1
	}
	return k
}

func (q *diskOrder) takeWindow() *batch {
	q.sortRun()
	k := min(q.files, max(1, int(q.cold.window.Load())))
	b := &batch{}
	if k := len(q.spare); k > 0 {
		b, q.spare = q.spare[k-1], q.spare[:k-1]
	}
	b.stage = q.stage
	for range k {
		run := q.runs[0]
		b.nodes = append(b.nodes, run[0].node)
		b.entries = append(b.entries, run[0].name)
		run[0] = listedFile{} // lets the name go
		if q.runs[0] = run[1:]; len(q.runs[0]) == 0 {
			heap.Pop(&q.runs)
		} else {
			heap.Fix(&q.runs, 0)
		}
	}
	if q.files -= k; q.files == 0 {
		q.fileBytes, q.full = 0, false
	}
	return b
}

// reuse takes back a window that nobody visits any more.
func (q *diskOrder) reuse(b *batch) {
	b.reset()
	q.mu.Lock()
	q.spare = append(q.spare, b)
	q.mu.Unlock()
}

func (q *diskOrder) takeDir() *node {
	if k := len(q.stack); k > 0 {
		n := q.stack[k-1]
		q.stack[k-1] = nil
		q.stack = q.stack[:k-1]
		return n
	}
	if len(q.dirs.nodes) == 0 {
		return q.given.take()
	}
	n := heap.Pop(&q.dirs).(*node)
	q.dirs.last = n.inode
	q.dirBytes -= dirCost + len(n.name.String())
	return n
}

func (q *diskOrder) add(n *node, r scanResult) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, d := range r.subs {
		q.addDir(d)
	}
	switch r.state {
	case scanAgain:
		q.addDir(n)
	case scanDone:
		q.given.scanned(n)
	}
}

func (q *diskOrder) addDir(n *node) {
	if !q.cold.on.Load() || q.dirBytes+q.fileBytes+q.withheld >= maxListedAhead {
		q.stack = append(q.stack, n)
		return
	}
	heap.Push(&q.dirs, n)
	q.dirBytes += dirCost + len(n.name.String())
}

// addFiles takes files of n. It keeps neither slice.
func (q *diskOrder) addFiles(n *node, files []names.Name, inodes []uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.files += len(files)
	q.fileBytes += dirCost + fileCost*len(files)
	for i, name := range files {
		if q.unsorted == nil && len(q.runs) > 0 {
			q.unsorted = make([]listedFile, 0, runSize) // what append outgrows would be much garbage
		}
		q.unsorted = append(q.unsorted, listedFile{inodes[i], name, n})
		q.fileBytes += len(name.String()) + 1
		if len(q.unsorted) == runSize {
			q.sortRun()
		}
	}
	q.full = q.full || q.dirBytes+q.fileBytes+q.withheld >= maxListedAhead
}

func (q *diskOrder) sortRun() {
	if len(q.unsorted) == 0 {
		return
	}
	slices.SortFunc(q.unsorted, listedFile.compare)
	heap.Push(&q.runs, q.unsorted)
	q.unsorted = nil
}

func (q *diskOrder) pending(listed, maxListings int) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	dirs := q.unlisted()
	if q.files > 0 && (q.full || !q.cold.on.Load() || listed == 0 && dirs == 0) {
		return (q.files + content.WindowMax - 1) / content.WindowMax
	}
	return min(dirs, maxListings-listed)
}

func (q *diskOrder) isFull() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.full
}

func (q *diskOrder) isEmpty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.files == 0 && q.unlisted() == 0 && q.given.isOver()
}

func (q *diskOrder) abandon() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	k := q.files
	q.files, q.runs, q.unsorted = 0, nil, nil
	return int64(k)
}

// A listedFile is a file that is listed and not begun.
type listedFile struct {
	inode uint64
	name  names.Name
	node  *node
}

func (f listedFile) compare(g listedFile) int {
	return cmp.Or(cmp.Compare(f.node.device, g.node.device), cmp.Compare(f.inode, g.inode))
}

// A fileHeap is sorted runs of files. The run with the first file is in front.
type fileHeap [][]listedFile

func (h fileHeap) Len() int           { return len(h) }
func (h fileHeap) Less(i, j int) bool { return h[i][0].compare(h[j][0]) < 0 }
func (h fileHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *fileHeap) Push(run any)      { *h = append(*h, run.([]listedFile)) }
func (h *fileHeap) Pop() any {
	k := len(*h) - 1
	run := (*h)[k]
	(*h)[k] = nil
	*h = (*h)[:k]
	return run
}

// A dirHeap is directories. In front is the one that follows the last that was
// taken; the lowest inode number follows the highest, so that a disk's head goes
// back once for all that was found behind it.
type dirHeap struct {
	nodes []*node
	last  uint64
}

func (h *dirHeap) Len() int           { return len(h.nodes) }
func (h *dirHeap) Less(i, j int) bool { return h.nodes[i].inode-h.last < h.nodes[j].inode-h.last }
func (h *dirHeap) Swap(i, j int)      { h.nodes[i], h.nodes[j] = h.nodes[j], h.nodes[i] }
func (h *dirHeap) Push(n any)         { h.nodes = append(h.nodes, n.(*node)) }
func (h *dirHeap) Pop() any {
	k := len(h.nodes) - 1
	n := h.nodes[k]
	h.nodes[k] = nil
	h.nodes = h.nodes[:k]
	return n
}
