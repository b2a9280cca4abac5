package fileproc

import (
	"errors"
	"io/fs"
	"os"
	"time"
)

const (
	// firstBuffer is the size in bytes of the buffer that every worker has.
	// Files that are smaller need no metadata and no memory of their own.
	firstBuffer = 32 << 10
	// maxRead caps one read, in bytes: a run that is stopped does not wait for
	// more than this, and it is far below the 2 GiB that a kernel may refuse.
	maxRead = 1 << 20
	// maxFree is the size in bytes above which a file's content is read only
	// with a permit to hand it to fn, so that not all that is in flight can be
	// as large as MaxFileSize.
	maxFree = 1 << 20
	// maxBelieved is the size in bytes up to which memory is taken because the
	// metadata says so. Some files of /proc and sysfs claim far more than they
	// hold. What goes beyond is read into buffers that double.
	maxBelieved = 4 << 30
	// readPatience is how long a read of one file waits in all for content that is
	// not there yet. Some regular files have an end only now and then: a read of
	// /proc/kmsg waits for the kernel's next message.
	readPatience = time.Second
	// waitSlice is how long it waits before it sees whether the run goes on.
	waitSlice = 5 * time.Millisecond
)

// errWouldBlock is of a read that has found nothing yet. It reaches no caller.
var errWouldBlock = errors.New("fileproc: nothing to read yet")

// errNoPermit tells that a file is to be read again with a permit. The reader
// does not wait for one, since the file takes a descriptor.
var errNoPermit = errors.New("fileproc: no permit for a large file")

// A reader reads files into a buffer that it reuses.
type reader struct {
	limit   int64 // the most bytes to deliver, or -1
	whole   bool  // more than limit is ErrTooLarge, not truncated
	stat    bool  // metadata is wanted of every file
	sniff   bool  // files that begin as binary ones are errBinary
	stopped func() bool
	permit  func() bool // more than maxFree may be taken now; nil: always

	buf    *[firstBuffer]byte
	large  []byte // of the file at hand, if it did not fit buf
	spare  content
	waited time.Duration // of readPatience
}

// read reads the file name of d into f.
func (r *reader) read(d directory, name string, f *File) error {
	c, err := d.open(name, r.spare)
	if err != nil {
		return err
	}
	r.spare = c
	defer c.close() // also when an fs.FS panics
	return r.fill(c, f)
}

func (r *reader) fill(c content, f *File) error {
	r.waited = 0
	p := r.buf[:]
	if r.limit >= 0 && r.limit < int64(len(p)) {
		least := r.limit + 1 // one byte more tells whether there is more
		if r.sniff {
			least = max(least, binaryPrefix)
		}
		p = p[:least]
	}
	n, ok := c.cached(p)
	if ok && !r.stat {
		return r.deliver(f, p[:n])
	}
	s, err := c.stat()
	if err != nil {
		return err
	}
	if !s.Mode.IsRegular() {
		return &sysError{"fstat", changed{&notRegular{s.Mode}}}
	}
	if r.stat {
		f.stat, f.hasStat = s, true
	}
	if ok {
		return r.deliver(f, p[:n])
	}
	if r.sniff { // before a binary file's size can be an error
		if n, err = r.readUpTo(c, p, n, binaryPrefix); err != nil {
			return err
		}
		if n < binaryPrefix || isBinary(p[:n]) {
			return r.deliver(f, p[:n])
		}
	}
	if r.whole && r.limit >= 0 && s.Size > r.limit {
		return &sysError{"read", ErrTooLarge}
	}
	if want := r.capped(min(s.Size, maxBelieved)); want > int64(len(p)) {
		// Where there is no memory for what the metadata claims, the content
		// may still be small.
		q, err := r.grow(p[:n], want)
		switch err {
		case nil:
			p = q
		case errNoPermit:
			return err
		}
	}
	for {
		if n == len(p) {
			if r.limit >= 0 && int64(n) > r.limit {
				return r.deliver(f, p)
			}
			if p, err = r.grow(p, r.capped(2*int64(n))); err != nil {
				return err
			}
		}
		k, err := r.next(c, p[n:min(len(p), n+maxRead)])
		if err != nil {
			return err
		}
		if k == 0 {
			return r.deliver(f, p[:n])
		}
		n += k
	}
}

// next is c.read, but waits while there is nothing to read yet: for readPatience
// in all for one file, and no longer than the run goes on.
func (r *reader) next(c content, p []byte) (n int, err error) {
	for {
		if r.stopped() {
			return 0, errStopped
		}
		start := time.Now()
		if n, err = c.read(p); err != errWouldBlock {
			return n, err
		}
		if r.waited += time.Since(start); r.waited >= readPatience {
			return 0, &sysError{"read", os.ErrDeadlineExceeded}
		}
	}
}

// readUpTo reads on behind p[:n] until there are end bytes or no more.
func (r *reader) readUpTo(c content, p []byte, n, end int) (int, error) {
	for n < end {
		k, err := r.next(c, p[n:end])
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
	if size > maxFree && r.permit != nil && !r.permit() {
		return nil, errNoPermit
	}
	q, err := allocLarge(size)
	if err != nil {
		return nil, &sysError{"read", err}
	}
	copy(q, p)
	r.release()
	r.large = q
	return q, nil
}

// release lets go of a large file's memory.
func (r *reader) release() {
	if r.large != nil {
		freeLarge(r.large)
		r.large = nil
	}
}

func (r *reader) deliver(f *File, p []byte) error {
	if r.sniff && isBinary(p) {
		return errBinary
	}
	if r.limit >= 0 && int64(len(p)) > r.limit {
		if r.whole {
			return &sysError{"read", ErrTooLarge}
		}
		p = p[:r.limit]
		f.truncated = true
	}
	f.data = p[:len(p):len(p)]
	return nil
}

// notRegular tells what took a regular file's place.
type notRegular struct{ mode fs.FileMode }

func (e *notRegular) Error() string { return "not a regular file any more: " + e.mode.String() }
