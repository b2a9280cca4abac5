package content

import (
	"os"
	"sync"
	"time"

	"github.com/fileproc/fileproc/internal/sys"
)

const (
	// FirstBuffer is the size in bytes of the buffer that every worker has.
	// Smaller files need no metadata and no other memory.
	FirstBuffer = 32 << 10
	// MaxRead limits one read, in bytes: a stopped run waits for no longer read.
	// It is far below the 2 GiB that a kernel may refuse.
	MaxRead = 1 << 20
	// MaxFree is the size in bytes above which a worker needs a slot to read a
	// file's content: 1 MiB and the byte that shows the end. While calls block, more
	// workers than slots read at the same time: they must not all take MaxFileSize.
	MaxFree = 1<<20 + 1
	// maxBelieved is the most memory, in bytes, that is taken because the
	// metadata says so. Some files of /proc and sysfs claim far more than they
	// hold. Longer content is read into buffers that double.
	maxBelieved = 4 << 30
	// BinaryPrefix is how many bytes of a file are searched for a NUL: 8 KiB, about
	// as many as git searches.
	BinaryPrefix = 8 << 10
	// Patience is how long all reads of one file together wait for content.
	// Some regular files never end: a read of /proc/kmsg waits for the kernel's
	// next message.
	Patience = time.Second
)

// A Reader reads files into memory that it reuses.
type Reader struct {
	Want
	Stopped     func() bool
	MayAllocate func() bool // reports whether the reader may take more than MaxFree bytes now; nil: always
	Memory      *Memory     // of the run; nil: each large file has a mapping of its own

	buf      *[FirstBuffer]byte
	large    []byte // for files that do not fit buf: see Release
	expected int64  // size of the next file, estimated from those before it
	expects  bool   // expected includes the last file
	uncached bool   // the page cache had nothing of the last file, or does not tell
	stream   bool   // the last file is a Stream
	spare    File
	waited   time.Duration // part of Patience that is over

	beginning Beginning // of the last file, if it was longer than Limit
}

// buffers are kept from run to run.
var buffers = sync.Pool{New: func() any { return new([FirstBuffer]byte) }}

// TakeBuffer makes r ready to read.
func (r *Reader) TakeBuffer() { r.buf = buffers.Get().(*[FirstBuffer]byte) }

// GiveBuffer gives back the memory that a later run can use.
func (r *Reader) GiveBuffer() {
	r.expected = 0
	r.Release()
	buffers.Put(r.buf)
	r.buf = nil
}

// Limited returns a Reader of files of up to limit bytes, which reads into r's buffer.
func (r *Reader) Limited(limit int64) Reader {
	return Reader{Want: Want{Limit: limit}, Stopped: r.Stopped, buf: r.buf}
}

// Spare returns the last file, which is closed. The backend may use the value for the next file.
func (r *Reader) Spare() File { return r.spare }

// Uncached reports whether the page cache had nothing of the last file, or does not tell.
func (r *Reader) Uncached() bool { return r.uncached }

// NeedsSlot reports whether the next file is likely to be so large that reading it takes a slot.
func (r *Reader) NeedsSlot() bool { return r.expected > MaxFree }

// Held returns how many bytes of memory r has beside its first buffer.
func (r *Reader) Held() int { return cap(r.large) }

func statRegular(h File) (sys.Stat, error) {
	s, err := h.Stat()
	if err == nil && !isStream(h) {
		err = sys.CheckRegular("fstat", s.Mode)
	}
	return s, err
}

// Read reads h into c, and closes h. If Read fails, r keeps no large memory.
func (r *Reader) Read(h File, c *Content) error {
	r.spare = h
	defer h.Close() // also when an fs.FS panics
	if r.SkipRemote {
		if f, ok := h.(Remote); ok && f.IsRemote() {
			return ErrRemote
		}
	}
	err := r.read(h, c)
	if err != nil {
		r.Release()
		r.drop()
	}
	return err
}

func (r *Reader) read(h File, c *Content) error {
	r.waited, r.stream = 0, isStream(h)
	r.beginning.Stream = r.stream
	var s sys.Stat
	var err error
	known := r.Want.Stat || r.expected > MaxFree
	if known { // metadata for Want.Stat comes before the content, which may change
		if s, err = r.inspect(h); err != nil {
			return err
		}
		if r.Want.Stat {
			c.Stat, c.HasStat = s, true
		}
	}
	p, err := r.first(s.Size, known)
	if err != nil {
		return err
	}
	most := min(len(p), MaxRead)
	if r.SkipBinary {
		most = min(most, FirstBuffer)
	}
	n, ok := h.Cached(p[:most])
	r.uncached = n == 0
	r.beginning.Whole = ok
	if ok {
		return r.deliver(c, p[:n])
	}
	if !known {
		if s, err = r.inspect(h); err != nil {
			return err
		}
	}
	return r.readOn(h, c, p, n, s)
}

// readOn reads the rest of h, whose metadata is s, after p[:n].
func (r *Reader) readOn(h File, c *Content, p []byte, n int, s sys.Stat) (err error) {
	r.beginning.Stat = s
	if r.SkipBinary { // a binary file is skipped, even if its size would be an error
		if n, err = r.readUpTo(h, p, n, BinaryPrefix); err != nil {
			return err
		}
		if n < BinaryPrefix || IsBinary(p[:n]) {
			return r.deliver(c, p[:n])
		}
	}
	if r.refuses(s.Size) {
		return &sys.Error{Op: "read", Err: r.TooLarge(s.Size, false)}
	}
	if p, err = r.fit(p, n, s.Size); err != nil {
		return err
	}
	for {
		if int64(n) == s.Size && n > 0 && isTrueSize(h, s) {
			return r.deliver(c, p[:n])
		}
		if n == len(p) {
			if r.Limit >= 0 && int64(n) > r.Limit {
				return r.deliver(c, p)
			}
			if p, err = r.grow(p, r.capped(2*int64(n))); err != nil {
				return err
			}
		}
		k, err := r.next(h, p[n:min(len(p), n+MaxRead)])
		if err != nil {
			return err
		}
		if k == 0 {
			return r.deliver(c, p[:n])
		}
		n += k
	}
}

// fit returns memory for a file of size bytes, with p[:n] at its beginning. If there is not
// enough memory for the size in the metadata, it returns what there is, since the content
// may be smaller.
func (r *Reader) fit(p []byte, n int, size int64) ([]byte, error) {
	want := r.capped(min(size, maxBelieved))
	if want <= int64(len(p)) {
		return p, nil
	}
	q, err := r.grow(p[:n], want)
	switch {
	case err == nil:
		return q, nil
	case err == ErrNeedsSlot || err == ErrStopped:
		return nil, err
	case r.large == nil: // grow has given back p's memory
		return r.buf[:], nil
	}
	return p, nil
}

// inspect returns the metadata of h. If h is larger than SkipLarger, it returns ErrLarger.
func (r *Reader) inspect(h File) (sys.Stat, error) {
	s, err := statRegular(h)
	if err == nil && r.IsLarger(s.Size) {
		err = ErrLarger
	}
	return s, err
}

// refuses reports whether a file of size bytes is too large to be read at all.
func (r *Reader) refuses(size int64) bool { return !r.Truncate && r.Limit >= 0 && size > r.Limit }

// first returns the memory for the first read of a file of size bytes. If the size is not
// known, the memory has room for twice the expected size.
func (r *Reader) first(size int64, known bool) ([]byte, error) {
	want := r.capped(min(size, maxBelieved))
	switch {
	case !known && r.expected > FirstBuffer:
		want = r.capped(min(2*r.expected, MaxFree-1))
	case !known:
		want = 0
	case r.refuses(size): // the first buffer is enough to see whether it is binary
		want = 0
	}
	if want > FirstBuffer {
		switch p, err := r.grow(nil, want); err {
		case nil:
			return p, nil
		case ErrNeedsSlot, ErrStopped:
			return nil, err
		}
	}
	p := r.buf[:]
	if r.Limit >= 0 && r.Limit < int64(len(p)) {
		least := r.Limit + 1 // one byte more tells whether there is more
		if r.SkipBinary {
			least = max(least, BinaryPrefix)
		}
		p = p[:least]
	}
	return p, nil
}

// isTrueSize reports whether the content of h ends at the size in s.
func isTrueSize(h File, s sys.Stat) bool {
	f, ok := h.(Sized)
	return ok && f.HasTrueSize(s)
}

// next is h.Read, but waits while there is nothing to read yet: until the run is stopped, and
// at most for Patience in all for one file.
func (r *Reader) next(h File, p []byte) (n int, err error) {
	for {
		if r.Stopped() {
			return 0, ErrStopped
		}
		start := time.Now()
		if n, err = h.Read(p); err != ErrWouldBlock {
			return n, err
		}
		if r.waited += time.Since(start); r.waited >= Patience && !isStream(h) {
			return 0, &sys.Error{Op: "read", Err: os.ErrDeadlineExceeded}
		}
	}
}

// readUpTo reads into p after p[:n], until p has end bytes or the file ends.
func (r *Reader) readUpTo(h File, p []byte, n, end int) (int, error) {
	for n < end {
		k, err := r.next(h, p[n:end])
		if err != nil || k == 0 {
			return n, err
		}
		n += k
	}
	return n, nil
}

// capped returns the buffer size for a file of size bytes, at most for Limit bytes. It has one
// byte more, so that the read that finds the end needs no larger buffer.
func (r *Reader) capped(size int64) int64 {
	if r.Limit >= 0 {
		size = min(size, r.Limit)
	}
	return size + 1
}

// grow returns memory of size bytes that begins with what p holds.
func (r *Reader) grow(p []byte, size int64) ([]byte, error) {
	if size > MaxFree && r.MayAllocate != nil && !r.MayAllocate() && !r.stream { // which could not be read again
		return nil, ErrNeedsSlot
	}
	was := r.large
	if int64(cap(was)) >= size {
		if q := was[:size]; len(p) > 0 && &p[0] == &q[0] {
			return q, nil
		}
		was = nil
	} else {
		if len(p) == 0 { // nothing to copy, so give the old memory back first
			r.large = nil
			r.Memory.put(was)
			was = nil
		}
		q, err := r.Memory.take(size)
		if err != nil {
			return nil, &sys.Error{Op: "read", Err: err}
		}
		r.large = q // so that r gives q back, also after a stop
	}
	q := r.large[:size]
	var err error
	for n := 0; n < len(p) && err == nil; n += MaxRead {
		if copy(q[n:], p[n:min(len(p), n+MaxRead)]); r.Stopped() {
			err = ErrStopped
		}
	}
	r.Memory.put(was)
	return q, err
}

// lessExpected returns the expected size after one more file, with less weight for past large
// files.
func (r *Reader) lessExpected() int64 { return r.expected - r.expected/8 }

// Release ends the use of the last file's content. It gives back memory of more than MaxFree
// bytes, and all memory once some smaller files have followed.
func (r *Reader) Release() {
	if !r.expects {
		r.expected = r.lessExpected()
	}
	r.expects = false
	if cap(r.large) > MaxFree || r.expected <= FirstBuffer {
		r.drop()
	}
}

// drop gives back all memory but the first buffer.
func (r *Reader) drop() {
	r.Memory.put(r.large)
	r.large = nil
}

func (r *Reader) deliver(c *Content, p []byte) error {
	r.expected, r.expects = max(r.lessExpected(), int64(len(p))), true
	switch {
	case r.IsLarger(int64(len(p))):
		return ErrLarger
	case r.SkipBinary && IsBinary(p):
		return ErrBinary
	}
	if r.Limit >= 0 && int64(len(p)) > r.Limit {
		if !r.Truncate {
			return &sys.Error{Op: "read", Err: r.TooLarge(int64(len(p)), true)}
		}
		r.beginning.Rest = p[r.Limit:]
		c.Truncated, c.Beginning = true, &r.beginning
		p = p[:r.Limit]
	}
	c.Data = p[:len(p):len(p)]
	return nil
}
