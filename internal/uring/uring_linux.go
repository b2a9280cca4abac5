// Package uring opens and reads many small files with one system call, through
// Linux's io_uring. It knows one request: open a name in a directory and read
// the beginning of the file.
//
// See io_uring_setup(2), io_uring_enter(2) and the kernel's
// include/uapi/linux/io_uring.h for the structures and numbers.
package uring

import (
	"errors"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	opOpenat = 18
	opRead   = 22

	sqeFixedFile = 1 << 0

	setupCoopTaskrun = 1 << 8 // completions do not interrupt the thread

	offsetRings = 0
	offsetSQEs  = 0x10000000

	enterGetEvents = 1 << 0

	featSingleMmap = 1 << 0
	featCQESkip    = 1 << 11 // not used: it tells Linux 5.17

	// patience is how often a call is repeated for which there is no memory.
	patience = 100

	registerFiles   = 2
	unregisterFiles = 3
)

type params struct {
	sqEntries, cqEntries, flags, sqThreadCPU, sqThreadIdle, features, wqFD uint32
	_                                                                      [3]uint32
	sq                                                                     struct {
		head, tail, ringMask, ringEntries, flags, dropped, array, _ uint32
		_                                                           uint64
	}
	cq struct {
		head, tail, ringMask, ringEntries, overflow, cqes, flags, _ uint32
		_                                                           uint64
	}
}

type sqe struct {
	opcode, flags uint8
	_             uint16
	fd            int32
	off, addr     uint64
	len, opFlags  uint32
	userData      uint64
	_, _          uint16
	fileIndex     uint32
	_, _          uint64
}

type cqe struct {
	userData uint64
	res      int32
	_        uint32
}

// A Ring reads up to Depth files at once. One goroutine at a time uses it, on
// whichever thread.
//
// The last files opened stay open, in the ring and outside of the process's
// descriptor table, until others take their places or the ring is closed.
type Ring struct {
	fd    int
	rings []byte // the queues
	sqes  []byte
	bufs  []byte // depth buffers of size bytes

	depth, size            int
	sqTail, cqHead, cqTail *uint32
	sqMask, cqMask         uint32
	cqesOffset             uintptr

	broken bool // a request may be under way that no one waits for any more
	n      []int32
}

// New makes a ring for depth files at a time, a power of two, of each of which
// it reads up to size bytes. It fails where io_uring or what this package needs
// of it (Linux 5.17) is missing, forbidden, or out of resources.
func New(depth, size int) (_ *Ring, err error) {
	p := params{flags: setupCoopTaskrun}
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, uintptr(2*depth), uintptr(unsafe.Pointer(&p)), 0)
	if errno == unix.EINVAL { // before Linux 5.19
		p = params{}
		fd, _, errno = unix.Syscall(unix.SYS_IO_URING_SETUP, uintptr(2*depth), uintptr(unsafe.Pointer(&p)), 0)
	}
	if errno != 0 {
		return nil, errno
	}
	r := &Ring{fd: int(fd), depth: depth, size: size, n: make([]int32, depth)}
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
	if r.bufs, err = unix.Mmap(-1, 0, depth*size, prot, unix.MAP_ANON|unix.MAP_PRIVATE); err != nil {
		return nil, err
	}
	slots := make([]int32, depth)
	for i := range slots {
		slots[i] = -1
	}
	if _, _, errno := unix.Syscall6(unix.SYS_IO_URING_REGISTER, fd, registerFiles, uintptr(unsafe.Pointer(&slots[0])), uintptr(depth), 0, 0); errno != 0 {
		return nil, errno
	}
	r.sqTail, r.sqMask = r.at(p.sq.tail), *r.at(p.sq.ringMask)
	r.cqHead, r.cqTail, r.cqMask = r.at(p.cq.head), r.at(p.cq.tail), *r.at(p.cq.ringMask)
	r.cqesOffset = uintptr(p.cq.cqes)
	for i := range p.sqEntries { // entry i of the queue is always the request i
		*r.at(p.sq.array + 4*i) = i
	}
	return r, nil
}

// at returns the number at an offset of the queues.
func (r *Ring) at(offset uint32) *uint32 {
	return (*uint32)(unsafe.Pointer(&r.rings[offset]))
}

// Read opens the names in the directory dirfd with flags and reads up to want
// bytes of each, with the flags rwFlags of preadv2(2). It returns when all have
// ended. The result for the name i is then Bytes(i). A name ends with a zero
// byte that is not part of the string, and there are at most Depth.
//
// An error means that the ring is of no more use and that there is no result.
func (r *Ring) Read(dirfd int, names []string, flags int, want int, rwFlags uint32) error {
	if r.broken {
		return errors.ErrUnsupported
	}
	tail := *r.sqTail
	for i, name := range names {
		*r.sqe(tail) = sqe{opcode: opOpenat, fd: int32(dirfd), addr: uint64(uintptr(unsafe.Pointer(unsafe.StringData(name)))),
			opFlags: uint32(flags), userData: uint64(i), fileIndex: uint32(i) + 1}
		tail++
	}
	err := r.run(tail, len(names))
	runtime.KeepAlive(names) // the kernel has copied them
	if err != nil {
		return err
	}
	opened := 0
	for i := range names {
		if r.n[i] < 0 {
			continue // what is in its place in the ring is another file
		}
		*r.sqe(tail) = sqe{opcode: opRead, flags: sqeFixedFile, fd: int32(i), addr: uint64(uintptr(unsafe.Pointer(&r.bufs[i*r.size]))),
			len: uint32(min(want, r.size)), opFlags: rwFlags, userData: uint64(i)}
		tail++
		opened++
	}
	return r.run(tail, opened)
}

func (r *Ring) sqe(i uint32) *sqe {
	return (*sqe)(unsafe.Pointer(&r.sqes[uintptr(i&r.sqMask)*unsafe.Sizeof(sqe{})]))
}

// run submits the n requests up to tail and takes the completion of each.
func (r *Ring) run(tail uint32, n int) error {
	atomic.StoreUint32(r.sqTail, tail)
	submit, complete := n, n
	for stuck := 0; complete > 0; {
		n, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), uintptr(submit), uintptr(complete), enterGetEvents, 0, 0)
		switch errno {
		case 0:
			submit -= int(n)
		case unix.EINTR:
		case unix.EAGAIN, unix.EBUSY: // for want of memory, which may come back
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

// giveUp waits for the requests that are under way although the kernel takes
// no more: until they have ended it may write to the buffers.
func (r *Ring) giveUp(err error, under int) error {
	r.broken = true
	for range 1000 {
		if under -= r.reap(); under <= 0 {
			return err
		}
		time.Sleep(time.Millisecond) // any system call lets the kernel finish what is done
	}
	r.bufs = nil // leaked, as better than written to by the kernel when it is others'
	return err
}

// Bytes returns what was read of the file i of the last Read: nothing if it
// could not be opened or read, or was empty. It is valid until the next Read.
func (r *Ring) Bytes(i int) []byte {
	n := int(r.n[i])
	if n <= 0 {
		return nil
	}
	return r.bufs[i*r.size : i*r.size+n : i*r.size+n]
}

// Err returns why there is nothing of the file i of the last Read, if that is an
// error.
func (r *Ring) Err(i int) error {
	if r.n[i] < 0 {
		return unix.Errno(-r.n[i])
	}
	return nil
}

// Close closes the files and the ring.
func (r *Ring) Close() {
	if r.rings != nil {
		// The files are closed here, and not some time after.
		unix.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(r.fd), unregisterFiles, 0, 0, 0, 0)
	}
	unix.Close(r.fd)
	for _, m := range [][]byte{r.rings, r.sqes, r.bufs} {
		if m != nil {
			unix.Munmap(m)
		}
	}
}
