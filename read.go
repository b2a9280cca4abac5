package fileproc

import (
	"bytes"
	"errors"
	"math/bits"
	"os"
	"sync"
	"time"

	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
)

const (
	// firstBuffer is the size in bytes of the buffer that every worker has.
	// Files that are smaller need no metadata and no memory of their own.
	firstBuffer = 32 << 10
	// maxRead caps one read, in bytes: a run that is stopped waits for no more
	// than this, and it is far below the 2 GiB that a kernel may refuse.
	maxRead = 1 << 20
	// maxFree is the size in bytes above which a worker needs a slot to read a
	// file's content, so that not all that is in flight can be as large as
	// MaxFileSize: 1 MiB and the byte that shows the end.
	maxFree = 1<<20 + 1
	// maxBelieved is the size in bytes up to which memory is taken because the
	// metadata says so. Some files of /proc and sysfs claim far more than they
	// hold. What goes beyond is read into buffers that double.
	maxBelieved = 4 << 30
	// binaryPrefix is how many bytes of a file are searched for a NUL: 8 KiB, about
	// what git looks at.
	binaryPrefix = 8 << 10
	// readPatience is how long the reads of one file wait in all for content that
	// is not there yet. Some regular files never end: a read of /proc/kmsg waits
	// for the kernel's next message.
	readPatience = time.Second
)

// errNeedsSlot says that a file is to be read again in a slot. The reader does not
// wait for one, since the file takes a descriptor.
var errNeedsSlot = errors.New("fileproc: no slot for a large file")

// content is what is known of a file: its bytes, its metadata, or both.
type content struct {
	data      []byte
	truncated bool
	stat      sys.Stat
	hasStat   bool // stat is known; it is a regular file's, see setStat
}

// setStat takes metadata that op has fetched, unless it is not a regular file's.
func (c *content) setStat(op string, s sys.Stat) error {
	err := sys.CheckRegular(op, s.Mode)
	if err == nil {
		c.stat, c.hasStat = s, true
	}
	return err
}

func isBinary(p []byte) bool {
	return bytes.IndexByte(p[:min(len(p), binaryPrefix)], 0) >= 0
}

// A reader reads files into a buffer that it reuses.
type reader struct {
	limit       int64 // the most bytes to deliver, or -1
	truncate    bool  // deliver the beginning of a longer file, in place of ErrTooLarge
	stat        bool  // fetch the metadata of every file
	skipBinary  bool  // a file that begins like a binary one is errBinary
	stopped     func() bool
	mayAllocate func() bool // more than maxFree bytes now; nil: always

	buf      *[firstBuffer]byte
	large    []byte // of the current file, if it did not fit buf
	uncached bool   // the page cache had nothing of the last file, or does not say
	spare    handle
	waited   time.Duration // of readPatience
}

func statRegular(h handle) (sys.Stat, error) {
	s, err := h.stat()
	if err == nil {
		err = sys.CheckRegular("fstat", s.Mode)
	}
	return s, err
}

// read reads the file name of d into c.
func (r *reader) read(d directory, name names.Name, c *content) error {
	h, err := d.open(name, r.spare)
	if err != nil {
		return err
	}
	r.spare = h
	defer h.close() // also when an fs.FS panics
	return r.readHandle(h, c)
}

func (r *reader) readHandle(h handle, c *content) error {
	r.waited = 0
	p := r.buf[:]
	if r.limit >= 0 && r.limit < int64(len(p)) {
		least := r.limit + 1 // one byte more tells whether there is more
		if r.skipBinary {
			least = max(least, binaryPrefix)
		}
		p = p[:least]
	}
	if r.stat { // before the content, which may change
		s, err := statRegular(h)
		if err != nil {
			return err
		}
		c.stat, c.hasStat = s, true
	}
	n, ok := h.cached(p)
	r.uncached = n == 0
	if ok {
		return r.deliver(c, p[:n])
	}
	s := c.stat
	var err error
	if !r.stat {
		if s, err = statRegular(h); err != nil {
			return err
		}
	}
	if r.skipBinary { // before a binary file's size can be an error
		if n, err = r.readUpTo(h, p, n, binaryPrefix); err != nil {
			return err
		}
		if n < binaryPrefix || isBinary(p[:n]) {
			return r.deliver(c, p[:n])
		}
	}
	if !r.truncate && r.limit >= 0 && s.Size > r.limit {
		return &sys.Error{Op: "read", Err: ErrTooLarge}
	}
	if want := r.capped(min(s.Size, maxBelieved)); want > int64(len(p)) {
		// Where there is no memory for what the metadata claims, the content
		// may still be small.
		q, err := r.grow(p[:n], want)
		switch err {
		case nil:
			p = q
		case errNeedsSlot:
			return err
		}
	}
	for {
		if n == len(p) {
			if r.limit >= 0 && int64(n) > r.limit {
				return r.deliver(c, p)
			}
			if p, err = r.grow(p, r.capped(2*int64(n))); err != nil {
				return err
			}
		}
		k, err := r.next(h, p[n:min(len(p), n+maxRead)])
		if err != nil {
			return err
		}
		if k == 0 {
			return r.deliver(c, p[:n])
		}
		n += k
	}
}

// next is h.read, but waits while there is nothing to read yet: for readPatience
// in all for one file, and no longer than the run goes on.
func (r *reader) next(h handle, p []byte) (n int, err error) {
	for {
		if r.stopped() {
			return 0, errStopped
		}
		start := time.Now()
		if n, err = h.read(p); err != errWouldBlock {
			return n, err
		}
		if r.waited += time.Since(start); r.waited >= readPatience {
			return 0, &sys.Error{Op: "read", Err: os.ErrDeadlineExceeded}
		}
	}
}

// readUpTo reads on behind p[:n] until there are end bytes or no more.
func (r *reader) readUpTo(h handle, p []byte, n, end int) (int, error) {
	for n < end {
		k, err := r.next(h, p[n:end])
		if err != nil || k == 0 {
			return n, err
		}
		n += k
	}
	return n, nil
}

// capped returns the buffer size for a file of size bytes: one more, so that
// the read that finds its end needs no larger one.
func (r *reader) capped(size int64) int64 {
	if r.limit >= 0 {
		size = min(size, r.limit)
	}
	return size + 1
}

// grow returns a buffer of size bytes that begins with what p holds.
func (r *reader) grow(p []byte, size int64) ([]byte, error) {
	if size > maxFree && r.mayAllocate != nil && !r.mayAllocate() {
		return nil, errNeedsSlot
	}
	q, err := takeBuffer(size)
	if err != nil {
		return nil, &sys.Error{Op: "read", Err: err}
	}
	copy(q, p)
	r.release()
	r.large = q
	return q, nil
}

// heapBuffers are kept from file to file and from run to run: those for files of up
// to 64 KiB, of up to 128 KiB and so on, and the byte that shows the end of each. A
// new one would have to be cleared, and collected.
var heapBuffers [5]sync.Pool

// heapClass returns the pool for buffers of size bytes, if there is one.
func heapClass(size int) (class int, ok bool) {
	class = max(bits.Len(uint(max(size-2, 0)))-16, 0)
	return class, class < len(heapBuffers)
}

func takeBuffer(size int64) ([]byte, error) {
	if size > maxFree {
		return sys.AllocLarge(size)
	}
	class, _ := heapClass(int(size))
	if p, ok := heapBuffers[class].Get().(*[]byte); ok {
		return (*p)[:size], nil
	}
	return make([]byte, size, 1<<(16+class)+1), nil
}

// putBuffer takes back what takeBuffer has returned.
func putBuffer(p []byte) {
	if class, ok := heapClass(cap(p)); ok {
		heapBuffers[class].Put(&p)
		return
	}
	sys.FreeLarge(p)
}

// release lets go of a large file's memory.
func (r *reader) release() {
	if r.large != nil {
		putBuffer(r.large)
		r.large = nil
	}
}

func (r *reader) deliver(c *content, p []byte) error {
	if r.skipBinary && isBinary(p) {
		return errBinary
	}
	if r.limit >= 0 && int64(len(p)) > r.limit {
		if !r.truncate {
			return &sys.Error{Op: "read", Err: ErrTooLarge}
		}
		p = p[:r.limit]
		c.truncated = true
	}
	c.data = p[:len(p):len(p)]
	return nil
}
