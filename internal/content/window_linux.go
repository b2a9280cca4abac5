//go:build linux && !fileproc_unix && !fileproc_generic

package content

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"sync"

	"github.com/fileproc/fileproc/internal/aio"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
	"golang.org/x/sys/unix"
)

const (
	// windowRequest is how many bytes of a file count as one request.
	windowRequest = 32 << 10
	// windowSlack is how many bytes a window may have in addition to those of its requests.
	windowSlack = 64 << 10
	// windowBuffer is the most bytes that the files of a window have together, about 4 MiB. A
	// file that does not fit is left to the next window.
	windowBuffer = WindowMax/2*windowRequest + windowSlack
	// windowFile is the size in bytes above which a window reads only the first windowStart
	// bytes of a file, into the page cache. The kernel then reads the rest ahead by itself, in
	// larger pages, which are copied faster. Such a file counts as windowLarge bytes.
	windowFile  = 2 << 20
	windowStart = 256 << 10
	windowLarge = 1 << 20
)

// asyncFrom is how many files a worker reads in windows before it sets up
// asynchronous I/O, which takes 30 ms to close.
const asyncFrom = 512

// A fileWindow is a WindowReader. It opens each file, since the size says how much
// to read. Then it reads all files in one submission to an io_uring. Without an io_uring,
// it begins all reads, by one submission of asynchronous I/O or one by one, before it
// waits for the first.
type fileWindow struct {
	Want
	submission sync.Locker

	ring   *windowRing  // nil: none
	async  *aio.Context // nil: none yet
	filled int          // files read without ring and async
	asyncs []aio.Read
	buffer []byte // windowBuffer bytes, and windowStart bytes that are not used

	files    []windowEntry
	count    int   // files that belong to the window: see Len
	room     int64 // bytes of files that may still be opened
	requests int   // of the open files
	reads    []int // indexes of the files to read, in the order of the disk
	together bool  // one submission may read all files
	inRing   bool  // the last files were read through the ring

	beginning Beginning // of the last file from Get, if it was longer than Limit
}

// A windowEntry is a file of a fileWindow.
type windowEntry struct {
	fd    int   // -1: not open
	at    int   // offset of its content in buffer; -1: the content is not kept
	want  int   // bytes to read
	size  int64 // from the metadata
	inode uint64
	whole bool // all that is wanted has been read
	stat  sys.Stat
}

// newWindowReader returns a WindowReader, or nil. It holds the lock submission while it makes
// the requests of a window.
func newWindowReader(want Want, noURing bool, submission sync.Locker) WindowReader {
	w := &fileWindow{Want: want, submission: submission}
	if !noURing {
		w.ring, w.buffer = newWindowRing()
	}
	if w.ring == nil {
		w.buffer = make([]byte, windowBuffer+windowStart)
	}
	return w
}

func (w *fileWindow) Begin(n, requests int) {
	w.files, w.together, w.inRing = w.files[:0], true, false
	w.count, w.room, w.requests = n, min(int64(requests)*windowRequest+windowSlack, windowBuffer), 0
	for range n {
		w.files = append(w.files, windowEntry{fd: -1})
	}
}

func (w *fileWindow) Open(i int, d Dir, name names.Name) error {
	if d.Kind == NotOnDisk {
		return errors.ErrUnsupported
	}
	if w.room <= 0 {
		w.count = min(w.count, i)
		return nil
	}
	w.together = w.together && d.Kind == OnDiskForRings
	fd, err := sys.Openat(d.FD, name, sys.FileFlags)
	if sys.IsScarce(err) {
		return err
	}
	if err != nil {
		return nil // a Reader opens this file again, and reports the error
	}
	f := &w.files[i]
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || !w.wants(st.Size) {
		unix.Close(fd)
		return nil
	}
	n := w.wanted(st.Size)
	if n > windowFile+1 {
		n = windowLarge
	}
	if n > w.room && w.requests > 0 { // the next window opens it again
		unix.Close(fd)
		w.count, w.room = min(w.count, i), 0
		return nil
	}
	w.room -= n
	w.requests += max(1, int(n/windowRequest))
	f.fd, f.size, f.inode = fd, st.Size, uint64(st.Ino)
	if w.Stat || w.Truncate && st.Size > w.Limit {
		f.stat = sys.StatOf(&st)
	}
	return nil
}

func (w *fileWindow) Read(stopped func() bool, probes bool) (cached float64) {
	w.plan()
	if len(w.reads) == 0 {
		cached = -1
	} else if cached, w.inRing = w.readRing(stopped, probes); !w.inRing {
		cached = w.readPlain(stopped, probes)
	}
	for _, f := range w.files {
		if f.fd >= 0 {
			unix.Close(f.fd)
		}
	}
	return cached
}

// readRing reads through the ring, and reports whether that was possible.
func (w *fileWindow) readRing(stopped func() bool, probes bool) (cached float64, ok bool) {
	if w.ring == nil || !w.together {
		return -1, false
	}
	cached = -1
	if probes {
		if !w.tryRing(stopped, unix.RWF_NOWAIT) {
			return -1, false
		}
		cached = w.dropWhole(len(w.reads))
	}
	return cached, w.tryRing(stopped, 0)
}

// tryRing makes the reads through the ring. If that fails, the window continues without
// the ring, in other memory: the kernel may still write into the ring's.
func (w *fileWindow) tryRing(stopped func() bool, flags uint32) bool {
	if !w.mayBegin(stopped) {
		return true // nothing is read
	}
	ok := w.ring.read(w.files, w.reads, flags, w.submission.Unlock)
	if !ok {
		w.buffer = slices.Clone(w.buffer) // keeps what was read before
		w.ring.close()
		w.ring = nil
	}
	return ok
}

// mayBegin waits until w may make its requests. It then reports true and holds the lock
// submission, unless the run is stopped.
func (w *fileWindow) mayBegin(stopped func() bool) bool {
	w.submission.Lock()
	if stopped() {
		w.submission.Unlock()
		return false
	}
	return true
}

// dropWhole removes the files that have been read from reads. It returns their share of
// asked files, or -1 if asked is 0.
func (w *fileWindow) dropWhole(asked int) float64 {
	all := len(w.reads)
	w.reads = slices.DeleteFunc(w.reads, func(i int) bool { return w.files[i].whole })
	if asked == 0 {
		return -1
	}
	return float64(all-len(w.reads)) / float64(asked)
}

// readPlain reads without a ring.
func (w *fileWindow) readPlain(stopped func() bool, probes bool) (cached float64) {
	cached = -1
	if w.filled += len(w.reads); w.filled >= asyncFrom && w.async == nil {
		w.filled = 0
		w.async, _ = aio.New(WindowMax)
	}
	if !w.mayBegin(stopped) {
		return cached
	}
	if w.async != nil && w.together && w.readAsync() == nil {
		cached = w.dropWhole(len(w.reads))
	} else {
		if probes {
			cached = w.probe()
		}
		for _, i := range w.reads {
			unix.Fadvise(w.files[i].fd, 0, int64(w.files[i].want), unix.FADV_WILLNEED)
		}
	}
	w.submission.Unlock()
	for _, i := range w.reads {
		f := &w.files[i]
		if f.at >= 0 && !stopped() {
			n, _ := sys.IgnoringEINTR(func() (int, error) { return unix.Pread(f.fd, w.memory(f), 0) })
			f.read(n)
		}
	}
	return cached
}

// memory returns the memory into which f is read.
func (w *fileWindow) memory(f *windowEntry) []byte {
	at := f.at
	if at < 0 {
		at = windowBuffer
	}
	return w.buffer[at : at+f.want]
}

// readAsync reads what is in the page cache, and begins the other reads.
func (w *fileWindow) readAsync() error {
	w.asyncs = w.asyncs[:0]
	for _, i := range w.reads {
		f := &w.files[i]
		w.asyncs = append(w.asyncs, aio.Read{FD: f.fd, Buf: w.memory(f)})
	}
	err := w.async.Read(w.asyncs)
	for k, i := range w.reads {
		w.files[i].read(w.asyncs[k].Count)
	}
	return err
}

// probe reads the files that are in the page cache, and leaves the others in reads. It
// returns the share of files that it has read, or -1 if the file system cannot tell.
func (w *fileWindow) probe() float64 {
	asked := 0
	for _, i := range w.reads {
		f := &w.files[i]
		if f.at < 0 {
			continue
		}
		n, err := sys.ReadCached(f.fd, w.memory(f), 0)
		if err == unix.EOPNOTSUPP || err == unix.ENOSYS {
			return -1
		}
		f.read(n)
		asked++
	}
	return w.dropWhole(asked)
}

// plan decides what to read of each open file, in the order of the disk.
func (w *fileWindow) plan() {
	w.reads = w.reads[:0]
	used := 0
	for i := range w.count {
		f := &w.files[i]
		if f.fd < 0 {
			continue
		}
		switch n := w.wanted(f.size); {
		case n > windowFile+1:
			f.at, f.want = -1, windowStart
		case w.SkipBinary && n <= f.size && n <= BinaryPrefix:
			f.at, f.want = -1, int(n)
		default:
			f.at, f.want = used, int(n)
			used += f.want
		}
		w.reads = append(w.reads, i)
	}
	slices.SortFunc(w.reads, func(i, j int) int {
		return cmp.Compare(w.files[i].inode, w.files[j].inode)
	})
}

// wants reports whether the window reads a file of size bytes at all.
func (w *fileWindow) wants(size int64) bool {
	return size > 0 && !w.IsLarger(size) && (w.Limit < 0 || size <= w.Limit || w.Truncate)
}

// wanted returns how many bytes to ask for of a file of size bytes: those to deliver, and one
// more that shows the end.
func (w *fileWindow) wanted(size int64) int64 {
	n := min(size, math.MaxInt64-1) + 1 // a read that gets less has found the end
	if w.Limit >= 0 && w.Limit < n {    // limit+1 may overflow
		n = w.Limit + 1
	}
	return n
}

func (w *fileWindow) Len() int { return w.count }

func (w *fileWindow) Requests() int { return max(w.requests, w.count) }

func (w *fileWindow) UsedRing() bool { return w.inRing }

// read takes the result of a read. F is whole if the read has got all that is wanted, or has
// ended at the size in the metadata.
func (f *windowEntry) read(n int) { f.whole = int64(n) == min(f.size, int64(f.want)) }

func (w *fileWindow) Get(i int, c *Content) bool {
	f := &w.files[i]
	if !f.whole || f.at < 0 {
		return false
	}
	end := f.at + int(f.size)
	if w.Limit >= 0 && f.size > w.Limit {
		end = f.at + int(w.Limit)
		w.beginning.Stat = f.stat
		c.Truncated, c.Beginning = true, &w.beginning
	}
	c.Data = w.buffer[f.at:end:end]
	if w.Want.Stat {
		c.Stat, c.HasStat = f.stat, true
	}
	return true
}

func (w *fileWindow) Close() {
	if w.ring != nil {
		w.ring.close()
	}
	if w.async != nil {
		w.async.Close()
	}
}
