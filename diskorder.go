package fileproc

import (
	"cmp"
	"container/heap"
	"slices"
	"sync"

	"github.com/fileproc/fileproc/internal/content"
	"github.com/fileproc/fileproc/internal/names"
)

// maxListedAhead is about how many bytes of memory files and directories that are listed
// ahead may take: those of a million files with names of 20 bytes. Tests set it.
var maxListedAhead = 52 << 20

// chunkSize is how many files are sorted together. Tests set it.
var chunkSize = 4096

const (
	// memoryBesides is about how many bytes of memory a process takes in the cold mode
	// for everything else.
	memoryBesides = 40 << 20
	// minListedAhead is enough for windows whose files lie side by side.
	minListedAhead = 1 << 20
	// fileCost and dirCost are the bytes of memory of a file and of a directory,
	// without its name.
	fileCost = 32
	dirCost  = 240
	// statFrom is how many sorted chunks of files there must be for a worker to stat files
	// while directories are still listed.
	statFrom = 4
	// tableInodes is how many inodes ext4 reads at a time, by default and with inodes of
	// 256 bytes. If two workers each fetched some of these, both would ask for the rest.
	tableInodes = 512
	// maxToStat is how many files a window of files to stat has at most.
	maxToStat = content.WindowMax + tableInodes
)

// diskOrder is the queue of a run whose results need no order. While files come
// from the page cache it gives the directory that was found last.
//
// In the cold mode it gives directories in the order of their inode numbers until
// all are listed, or too much memory is in use, and then windows: the files with
// the lowest inode numbers, of any directories. File systems tend to keep files in
// the order of these numbers, and a disk reads neighbours in one request if it is
// asked for them together.
//
// To stat a file is to fetch its metadata. The queue gives files to stat while directories
// are still listed, but only once it has many. The lowest inode numbers then come from many
// directories, so that a disk reads each part of its tables of inodes once.
type diskOrder struct {
	cold      *coldMode
	readStage stage        // of all files that are to be read
	given     *givenSource // nil without Options.Files; gives backlogs when nothing else is to be listed

	mu        sync.Mutex // guards what follows; it may be taken while the pool's is held
	stack     []*job     // the one found last at the end
	dirs      jobHeap    // those of directories listed ahead
	dirBytes  int        // taken by dirs
	toStat    listedFiles
	toRead    listedFiles
	fileBytes int  // taken by toStat and toRead, and by the files given since both were last empty
	draining  bool // maxListedAhead was reached: files come before directories until no file is left
	withheld  int  // bytes of maxListedAhead that are not to be used
	spare     []*batch
}

// fitMemory withholds the part of maxListedAhead that does not fit into a process that
// may use limit bytes of memory. It halves what the limit leaves, because the garbage
// collector lets a heap grow to twice what is in use.
func (q *diskOrder) fitMemory(limit int64) {
	q.mu.Lock()
	q.withheld = int(max(0, int64(maxListedAhead)-max(minListedAhead, (limit-memoryBesides)/2)))
	q.mu.Unlock()
}

// take returns files to be read only when all is listed, because the neighbour of a file on
// the disk may be in any directory. It does not wait for that if the memory for listed files
// is full or the cold mode is off.
func (q *diskOrder) take(listed, maxListings int) (*batch, *job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if files, all := q.due(listed); files != nil {
		return q.takeWindow(files, all), nil
	}
	if listed >= min(maxListings, q.cold.maxListings()) {
		return nil, nil
	}
	return nil, q.takeJob()
}

// due returns the files from which take makes a window, or nil if it makes none, and
// whether the window is from all of them or only from the sorted ones.
func (q *diskOrder) due(listed int) (files *listedFiles, all bool) {
	all = q.draining || !q.cold.isOn() || listed == 0 && q.unlisted() == 0
	switch {
	case q.toStat.count > 0 && (all || listed > 0 && len(q.toStat.chunks) >= statFrom):
		return &q.toStat, all
	case q.toRead.count > 0 && all:
		return &q.toRead, all
	}
	return nil, false
}

// unlisted returns how many jobs are to be begun, backlogs of names among them.
func (q *diskOrder) unlisted() int {
	k := len(q.stack) + len(q.dirs.jobs)
	if k == 0 && q.given.isReady() {
		k = 1
	}
	return k
}

func (q *diskOrder) takeWindow(files *listedFiles, all bool) *batch {
	if all {
		files.sortChunk()
	}
	b := &batch{}
	if k := len(q.spare); k > 0 {
		b, q.spare = q.spare[k-1], q.spare[:k-1]
	}
	if files == &q.toStat {
		for last := files.take(b); len(files.chunks) > 0 && (len(b.entries) < content.WindowMax || len(b.entries) < maxToStat && files.chunks[0][0].shares(last)); {
			last = files.take(b)
		}
	} else {
		b.stage = q.readStage
		for range min(files.count, q.cold.together()) {
			files.take(b)
		}
	}
	if q.toStat.count+q.toRead.count == 0 {
		q.fileBytes, q.draining = 0, false
	}
	return b
}

// reuse gets back a window that nobody visits any more.
func (q *diskOrder) reuse(b *batch) {
	b.reset()
	q.mu.Lock()
	q.spare = append(q.spare, b)
	q.mu.Unlock()
}

func (q *diskOrder) takeJob() *job {
	if k := len(q.stack); k > 0 {
		j := q.stack[k-1]
		q.stack[k-1] = nil
		q.stack = q.stack[:k-1]
		return j
	}
	if len(q.dirs.jobs) == 0 {
		return q.given.take()
	}
	j := heap.Pop(&q.dirs).(*job)
	q.dirs.last = j.node.inode
	q.dirBytes -= dirCost + len(j.node.name.String())
	return j
}

func (q *diskOrder) add(j *job, r scanResult) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, sub := range r.subs {
		q.addJob(sub)
	}
	if r.state == scanAgain {
		q.addJob(j)
	}
}

func (q *diskOrder) addJob(j *job) {
	if !q.cold.isOn() || q.dirBytes+q.fileBytes+q.withheld >= maxListedAhead {
		q.stack = append(q.stack, j)
		return
	}
	heap.Push(&q.dirs, j)
	q.dirBytes += dirCost + len(j.node.name.String())
}

// addFiles adds files of n, to stat or to read. It keeps neither slice.
func (q *diskOrder) addFiles(n *node, toStat bool, files []names.Name, inodes []uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	to := &q.toRead
	if toStat {
		to = &q.toStat
	}
	q.fileBytes += dirCost + fileCost*len(files)
	for i, name := range files {
		to.add(listedFile{inodes[i], name, n})
		q.fileBytes += len(name.String()) + 1
	}
	q.draining = q.draining || q.dirBytes+q.fileBytes+q.withheld >= maxListedAhead
}

func (q *diskOrder) pending(listed, maxListings int) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	dirs := q.unlisted()
	if files, all := q.due(listed); files != nil {
		k, most := files.count, content.WindowMax
		if !all { // the last of the sorted chunks wait for more of them
			k -= len(files.unsorted) + (statFrom-1)*chunkSize
		}
		if files == &q.toStat {
			most = maxToStat
		}
		return max(1, (k+most-1)/most)
	}
	return min(dirs, max(0, min(maxListings, q.cold.maxListings())-listed))
}

func (q *diskOrder) batchesFirst() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.draining
}

func (q *diskOrder) isListed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.unlisted() == 0 && q.given.isOver()
}

func (q *diskOrder) isEmpty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.toStat.count+q.toRead.count == 0 && q.unlisted() == 0 && q.given.isOver()
}

func (q *diskOrder) abandon() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	k := q.toStat.count + q.toRead.count
	q.toStat, q.toRead = listedFiles{}, listedFiles{}
	return int64(k)
}

// listedFiles are files at the same stage.
type listedFiles struct {
	chunks   fileHeap
	unsorted []listedFile
	count    int // in both
}

func (l *listedFiles) add(f listedFile) {
	if l.unsorted == nil && len(l.chunks) > 0 {
		l.unsorted = make([]listedFile, 0, chunkSize) // append would leave much garbage as the slice grows
	}
	l.unsorted = append(l.unsorted, f)
	l.count++
	if len(l.unsorted) == chunkSize {
		l.sortChunk()
	}
}

func (l *listedFiles) sortChunk() {
	if len(l.unsorted) == 0 {
		return
	}
	slices.SortFunc(l.unsorted, listedFile.compare)
	heap.Push(&l.chunks, l.unsorted)
	l.unsorted = nil
}

// take moves the first of the sorted files to b, and returns it.
func (l *listedFiles) take(b *batch) listedFile {
	chunk := l.chunks[0]
	f := chunk[0]
	b.nodes = append(b.nodes, f.node)
	b.entries = append(b.entries, f.name)
	b.inodes = append(b.inodes, f.inode)
	if l.chunks[0] = chunk[1:]; len(chunk) == 1 {
		heap.Pop(&l.chunks)
	} else {
		heap.Fix(&l.chunks, 0)
	}
	l.count--
	return f
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

// shares reports whether one read of a table of inodes has the inodes of both files.
func (f listedFile) shares(g listedFile) bool {
	return f.inode/tableInodes == g.inode/tableInodes && f.node.device == g.node.device
}

// A fileHeap is sorted chunks of files. The chunk with the first file is in front.
type fileHeap [][]listedFile

func (h fileHeap) Len() int           { return len(h) }
func (h fileHeap) Less(i, j int) bool { return h[i][0].compare(h[j][0]) < 0 }
func (h fileHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *fileHeap) Push(chunk any)    { *h = append(*h, chunk.([]listedFile)) }
func (h *fileHeap) Pop() any {
	k := len(*h) - 1
	chunk := (*h)[k]
	(*h)[k] = nil
	*h = (*h)[:k]
	return chunk
}

// A jobHeap is jobs in the order of their directories' inode numbers. In front is the
// directory that follows the one taken last. After the highest number comes the lowest,
// so that a disk's head goes back once for all directories that were found behind it.
type jobHeap struct {
	jobs []*job
	last uint64
}

func (h *jobHeap) Len() int { return len(h.jobs) }
func (h *jobHeap) Less(i, j int) bool {
	return h.jobs[i].node.inode-h.last < h.jobs[j].node.inode-h.last
}
func (h *jobHeap) Swap(i, j int) { h.jobs[i], h.jobs[j] = h.jobs[j], h.jobs[i] }
func (h *jobHeap) Push(j any)    { h.jobs = append(h.jobs, j.(*job)) }
func (h *jobHeap) Pop() any {
	k := len(h.jobs) - 1
	j := h.jobs[k]
	h.jobs[k] = nil
	h.jobs = h.jobs[:k]
	return j
}
