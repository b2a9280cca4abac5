// Package content reads the content and the metadata of files: of one file, of several
// files of a directory with calls in a row or an io_uring, and of a window of files on a disk.
package content

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/fileproc/fileproc/internal/sys"
)

// A File is an open file. One goroutine uses it.
type File interface {
	// Cached reads into p what is available without waiting. If ok is true, the
	// file is a regular one and p[:n] is all of it. If not, p[:n] is the beginning
	// of the file, and Read continues after it.
	Cached(p []byte) (n int, ok bool)
	// Read reads as read(2) does, and returns 0 and nil at the end. It returns
	// ErrWouldBlock if no byte has come within WaitSlice.
	Read(p []byte) (n int, err error)
	Stat() (sys.Stat, error)
	Close()
}

// A Remote is a File that knows whether reading would download its content.
type Remote interface{ IsRemote() bool }

// A Stream is a File that need not be regular: the caller of the run has named it. What has
// been read of it does not come again, and it may be long until more comes.
type Stream interface{ IsStream() bool }

func isStream(h File) bool {
	s, ok := h.(Stream)
	return ok && s.IsStream()
}

// A Sized is a File that may know where its content ends.
type Sized interface {
	// HasTrueSize reports whether the content ends at the size in s, which Stat has
	// returned.
	HasTrueSize(s sys.Stat) bool
}

// WaitSlice is how long one read waits before the reader checks whether the run
// was stopped.
const WaitSlice = 5 * time.Millisecond

var (
	// ErrTooLarge is fileproc.ErrTooLarge.
	ErrTooLarge = errors.New("fileproc: file is larger than Options.MaxFileSize")
	// ErrStopped is the error of work that ends early because the run was stopped.
	ErrStopped = errors.New("fileproc: the run has been stopped")
	// ErrWouldBlock is the error of a read that has found nothing yet.
	ErrWouldBlock = errors.New("fileproc: nothing to read yet")
	// ErrLarger is the outcome of a file that Want.SkipLarger leaves out.
	ErrLarger = errors.New("fileproc: larger than Options.SkipLarger")
	// ErrBinary is the outcome of a file that Want.SkipBinary leaves out.
	ErrBinary = errors.New("fileproc: binary file")
	// ErrRemote is the outcome of a file that Want.SkipRemote leaves out.
	ErrRemote = errors.New("fileproc: remote file")
	// ErrNeedsSlot says that the worker must read the file again while it has a slot. The
	// reader does not wait for a slot itself, since the open file takes a descriptor.
	ErrNeedsSlot = errors.New("fileproc: no slot for a large file")
)

// A Want says what to read of each file.
type Want struct {
	Limit      int64 // the most bytes to deliver, or -1
	SkipLarger int64 // a file of more bytes is ErrLarger; 0: none is
	Truncate   bool  // deliver the beginning of a longer file, in place of ErrTooLarge
	Stat       bool  // fetch the metadata of every file
	SkipBinary bool  // a file that begins like a binary one is ErrBinary
	SkipRemote bool  // a Remote whose content would be downloaded is ErrRemote
}

// IsLarger reports whether SkipLarger leaves out a file of size bytes.
func (w *Want) IsLarger(size int64) bool { return w.SkipLarger > 0 && size > w.SkipLarger }

// TooLarge returns ErrTooLarge with the size of the file, or with its least size if atLeast
// is set.
func (w *Want) TooLarge(size int64, atLeast bool) error {
	more := ""
	if atLeast {
		more = "at least "
	}
	return fmt.Errorf("%w: %s%d bytes, the limit is %d", ErrTooLarge, more, size, w.Limit)
}

// A Content is what is known of a file: its bytes, its metadata, or both.
type Content struct {
	Data      []byte
	Truncated bool
	Stat      sys.Stat
	HasStat   bool       // Stat is known, and is that of a file of the type that was listed; else Stat is zero
	Beginning *Beginning // of a file that is Truncated; valid as long as Data is
}

// Clear makes c the zero Content. It clears the metadata, which are most of c, only if they
// are known.
func (c *Content) Clear() {
	if c.HasStat {
		c.Stat = sys.Stat{}
	}
	c.Data, c.Truncated, c.HasStat, c.Beginning = nil, false, false, nil
}

// SetStat sets the metadata, which op has fetched. It returns an error if the metadata is not
// that of a regular file.
func (c *Content) SetStat(op string, s sys.Stat) error {
	err := sys.CheckRegular(op, s.Mode)
	if err == nil {
		c.Stat, c.HasStat = s, true
	}
	return err
}

// IsBinary reports whether p begins like a binary file.
func IsBinary(p []byte) bool {
	return bytes.IndexByte(p[:min(len(p), BinaryPrefix)], 0) >= 0
}
