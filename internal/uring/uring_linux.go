// Package uring opens and reads many small files with few system calls, through
// Linux's io_uring. It makes two kinds of request: open a name in a directory, and read
// the beginning of a file.
//
// See io_uring_setup(2) and io_uring_enter(2).
package uring

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/fileproc/fileproc/internal/names"
	"golang.org/x/sys/unix"
)

// patience is the number of failures for want of memory after which run gives up.
const patience = 100

// mostInterrupts is the number of interrupts by signals after which run no longer waits for its requests.
const mostInterrupts = 10_000

// A Ring reads up to depth files at once. One goroutine at a time may use it, on
// any thread.
//
// The ring keeps the last files open, outside the process's descriptor table,
// until it opens others in their slots or is closed.
type Ring struct {
	fd    int
	rings []byte // the queues
	sqes  []byte
	bufs  []byte // the ring's memory; for a ring of New, buffers of size bytes
	slots bool   // the ring keeps files open

	size                   int
	sqTail, cqHead, cqTail *uint32
	sqMask, cqMask         uint32
	cqesOffset             uintptr

	broken bool // a request may be in flight that nobody waits for
	n      []int32

	memory *[]byte // holds bufs; nil if the kernel may write to bufs even after Close
}

// memories keeps the memory of closed rings for new ones. Mapping memory, touching each buffer for the
// first time and unmapping took two thirds of the time of making and closing a ring.
var memories sync.Pool

func takeMemory(size int) *[]byte {
	if m, ok := memories.Get().(*[]byte); ok && len(*m) >= size {
		return m
	}
	m := make([]byte, size)
	return &m
}

// stuck keeps memory to which the kernel may still write. It is never freed or used again.
var stuck struct {
	sync.Mutex
	memories []*[]byte
}

// New makes a ring that reads up to size bytes of each of depth files at a time.
// depth must be a power of two. New fails where io_uring is missing, older than Linux
// 5.17, forbidden, or out of resources.
func New(depth, size int) (*Ring, error) {
	r, err := setUp(depth, depth*size)
	if err != nil {
		return nil, err
	}
	r.size, r.n = size, make([]int32, depth)
	slots := make([]int32, depth)
	for i := range slots {
		slots[i] = -1
	}
	if _, _, errno := unix.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(r.fd), registerFiles, uintptr(unsafe.Pointer(&slots[0])), uintptr(depth), 0, 0); errno != 0 {
		r.Close()
		return nil, errno
	}
	r.slots = true
	return r, nil
}

// NewForFiles makes a ring for ReadFiles, with memory for size bytes. It fails as
// New does.
func NewForFiles(depth, size int) (*Ring, error) {
	r, err := setUp(depth, size)
	if err == nil {
		r.n = make([]int32, depth)
	}
	return r, err
}

// setUp makes a ring with size bytes of memory.
func setUp(entries, size int) (_ *Ring, err error) {
	p := params{flags: setupCoopTaskrun}
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, uintptr(entries), uintptr(unsafe.Pointer(&p)), 0)
	if errno == unix.EINVAL { // before Linux 5.19
		p = params{}
		fd, _, errno = unix.Syscall(unix.SYS_IO_URING_SETUP, uintptr(entries), uintptr(unsafe.Pointer(&p)), 0)
	}
	if errno != 0 {
		return nil, errno
	}
	r := &Ring{fd: int(fd)}
	defer func() {
		if err != nil {
			r.Close()
		}
	}()
	if p.features&featSingleMmap == 0 || p.features&featCQESkip == 0 {
		return nil, errors.ErrUnsupported
	}
	queues := max(p.sq.array+4*p.sqEntries, p.cq.cqes+uint32(unsafe.Sizeof(cqe{}))*p.cqEntries)
	const prot, shared = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_SHARED | unix.MAP_POPULATE
	if r.rings, err = unix.Mmap(r.fd, offsetRings, int(queues), prot, shared); err != nil {
		return nil, err
	}
	if r.sqes, err = unix.Mmap(r.fd, offsetSQEs, int(p.sqEntries)*int(unsafe.Sizeof(sqe{})), prot, shared); err != nil {
		return nil, err
	}
	r.memory = takeMemory(size)
	r.bufs = *r.memory
	r.sqTail, r.sqMask = r.at(p.sq.tail), *r.at(p.sq.ringMask)
	r.cqHead, r.cqTail, r.cqMask = r.at(p.cq.head), r.at(p.cq.tail), *r.at(p.cq.ringMask)
	r.cqesOffset = uintptr(p.cq.cqes)
	for i := range p.sqEntries { // entry i of the queue always refers to sqe i
		*r.at(p.sq.array + 4*i) = i
	}
	return r, nil
}

// at returns the address of the number at an offset in the queues.
func (r *Ring) at(offset uint32) *uint32 {
	return (*uint32)(unsafe.Pointer(&r.rings[offset]))
}

// Room returns how many bytes a Read of n files can read of each. It is a multiple of 512: see sys.IsWhole.
func (r *Ring) Room(n int) int { return len(r.bufs) / n &^ 511 }

// Read opens the files, at most depth, in the directory dirfd with flags and reads up to want
// bytes of each, with the flags rwFlags of preadv2(2). It returns when all
// requests are complete; Bytes(i) then returns the content of file i.
// want must be at most Room(len(files)).
//
// After an error there are no results and the ring cannot be used again.
func (r *Ring) Read(dirfd int, files []names.Name, flags int, want int, rwFlags uint32) error {
	if r.broken {
		return errors.ErrUnsupported
	}
	tail := *r.sqTail
	r.size = r.Room(len(files))
	for i, name := range files {
		*r.sqe(tail) = sqe{opcode: opOpenat, fd: int32(dirfd), addr: uint64(uintptr(name.Pointer())),
			opFlags: uint32(flags), userData: uint64(i), fileIndex: uint32(i) + 1}
		tail++
	}
	err := r.run(tail, len(files), nil)
	runtime.KeepAlive(files) // until here: the kernel has copied them
	if err != nil {
		return err
	}
	opened := 0
	for i := range files {
		if r.n[i] < 0 {
			continue // its slot in the ring may hold another file
		}
		*r.sqe(tail) = sqe{opcode: opRead, flags: sqeFixedFile, fd: int32(i), addr: uint64(uintptr(unsafe.Pointer(&r.bufs[i*r.size]))),
			len: uint32(want), opFlags: rwFlags, userData: uint64(i)}
		tail++
		opened++
	}
	return r.run(tail, opened, nil)
}

// A FileRead is a read of the first Len bytes of the open file FD into the ring's
// memory, from its byte At on.
type FileRead struct {
	FD      int32
	At, Len uint32
}

// ReadFiles makes all reads, at most depth, at once, with the flags rwFlags of
// preadv2(2), and waits for all. One system call submits them, so reads
// that are next to each other on a disk become one request of the disk. Read i then
// has Count(i) bytes. ReadFiles calls submitted once: when all are submitted and before it
// waits, or after an error.
//
// After an error there are no results and the ring cannot be used again.
func (r *Ring) ReadFiles(reads []FileRead, rwFlags uint32, submitted func()) error {
	if r.broken {
		submitted()
		return errors.ErrUnsupported
	}
	// The kernel continues a read that waits in the thread that has submitted it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tail := *r.sqTail
	for i, f := range reads {
		*r.sqe(tail) = sqe{opcode: opRead, fd: f.FD, addr: uint64(uintptr(unsafe.Pointer(&r.bufs[f.At]))), len: f.Len, opFlags: rwFlags, userData: uint64(i)}
		tail++
	}
	return r.run(tail, len(reads), submitted)
}

// Count returns how many bytes read i of the last ReadFiles has read, or a
// negative number if it failed.
func (r *Ring) Count(i int) int { return int(r.n[i]) }

// Memory returns the ring's memory. Its content is valid until the next read.
func (r *Ring) Memory() []byte { return r.bufs }

func (r *Ring) sqe(i uint32) *sqe {
	return (*sqe)(unsafe.Pointer(&r.sqes[uintptr(i&r.sqMask)*unsafe.Sizeof(sqe{})]))
}

// run submits the n requests before tail and reaps their completions. If submitted is not
// nil, run calls it once: when all requests are submitted and before it waits for any, or
// after an error.
func (r *Ring) run(tail uint32, n int, submitted func()) error {
	atomic.StoreUint32(r.sqTail, tail)
	submit, complete := n, n
	tell := func() {
		if submitted != nil {
			submitted()
			submitted = nil
		}
	}
	defer tell() // after an error
	interrupted := 0
	for stuck := 0; complete > 0; {
		wait := complete
		if submitted != nil {
			wait = 0
		}
		n, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), uintptr(submit), uintptr(wait), enterGetEvents, 0, 0)
		if errno == 0 && n == 0 && wait == 0 { // nothing was submitted: no reason is known, so that it counts as the usual one
			errno = unix.EAGAIN
		}
		switch errno {
		case 0:
			if submit -= int(n); submit == 0 {
				tell()
			}
		case unix.EINTR: // by a signal; each time, only where a tracer or a filter answers the call
			if interrupted++; interrupted == mostInterrupts {
				return r.giveUp(errno, complete-submit)
			}
		case unix.EAGAIN, unix.EBUSY: // no memory now; there may be some later
			if stuck++; stuck == patience {
				return r.giveUp(errno, complete-submit)
			}
		default:
			return r.giveUp(errno, complete-submit)
		}
		complete -= r.reap()
	}
	return nil
}

func (r *Ring) reap() int {
	head, tail := *r.cqHead, atomic.LoadUint32(r.cqTail)
	count := int(tail - head)
	for ; head != tail; head++ {
		c := (*cqe)(unsafe.Pointer(&r.rings[r.cqesOffset+uintptr(head&r.cqMask)*unsafe.Sizeof(cqe{})]))
		r.n[c.userData] = c.res
	}
	atomic.StoreUint32(r.cqHead, tail)
	return count
}

// giveUp waits for the requests in flight, when the kernel accepts no more of them: until
// they complete, the kernel may write to the buffers. After a second or more it puts the memory
// into stuck.
func (r *Ring) giveUp(err error, inFlight int) error {
	r.broken = true
	for range 1000 {
		if inFlight -= r.reap(); inFlight <= 0 {
			return err
		}
		time.Sleep(time.Millisecond) // any system call lets the kernel post completions
	}
	stuck.Lock()
	stuck.memories = append(stuck.memories, r.memory)
	stuck.Unlock()
	r.memory = nil
	return err
}

// Bytes returns what the last Read has read of file i, or nothing if the file could not
// be opened or read, or was empty. The bytes are valid until the next Read.
func (r *Ring) Bytes(i int) []byte {
	n := int(r.n[i])
	if n <= 0 {
		return nil
	}
	return r.bufs[i*r.size : i*r.size+n : i*r.size+n]
}

// Err returns the error with which the last Read failed to open or read file i,
// if any.
func (r *Ring) Err(i int) error {
	if r.n[i] < 0 {
		return unix.Errno(-r.n[i])
	}
	return nil
}

// FD returns the ring's descriptor.
func (r *Ring) FD() int { return r.fd }

// Close closes the ring and the files that it keeps open.
func (r *Ring) Close() {
	if r.slots {
		// Without this the kernel closes the files some time later.
		unix.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(r.fd), unregisterFiles, 0, 0, 0, 0)
	}
	unix.Close(r.fd)
	for _, m := range [][]byte{r.rings, r.sqes} {
		if m != nil {
			unix.Munmap(m)
		}
	}
	if r.memory != nil {
		memories.Put(r.memory)
	}
}
