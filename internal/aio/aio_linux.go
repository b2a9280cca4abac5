// Package aio reads from many open files with one system call, through Linux's older
// asynchronous I/O. It returns what the page cache has, and makes the disk start to read
// the rest. Containers allow it by default, also where io_uring is forbidden.
//
// See io_submit(2).
package aio

import (
	"errors"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Read is a read of the first bytes of the open file FD into Buf.
type Read struct {
	FD  int
	Buf []byte
	// Count is how many bytes were read, or negative if there was an error.
	Count int
}

// The structs here are those of the kernel's include/uapi/linux/aio_abi.h.

type iocb struct {
	index    uint64
	keyFlags [2]uint32 // aio_key and aio_rw_flags, in this order on little-endian machines
	_        [2]uint16 // aio_lio_opcode, which is 0 for a read, and aio_reqprio
	fd       uint32
	buf, n   uint64
	_        [3]uint64
}

type event struct {
	index, _ uint64
	result   int64
	_        uint64
}

// If a struct differs in size from the kernel's, this does not compile.
var (
	_ [64]byte = [unsafe.Sizeof(iocb{})]byte{}
	_ [20]byte = [unsafe.Offsetof(iocb{}.fd)]byte{}
	_ [24]byte = [unsafe.Offsetof(iocb{}.buf)]byte{}
	_ [32]byte = [unsafe.Sizeof(event{})]byte{}
	_ [16]byte = [unsafe.Offsetof(event{}.result)]byte{}
)

// A Context makes up to depth reads at once. One goroutine at a time may use it.
type Context struct {
	id     uintptr
	reads  []iocb
	refs   []*iocb
	events []event
	broken bool // results of earlier reads may still arrive, and would count for later ones
}

// New makes a context. It fails where this I/O is missing or forbidden, or out of
// resources (fs.aio-max-nr).
func New(depth int) (*Context, error) {
	if runtime.GOOS == "android" { // Android may kill a process that tries
		return nil, errors.ErrUnsupported
	}
	c := &Context{reads: make([]iocb, depth), refs: make([]*iocb, depth), events: make([]event, depth)}
	for i := range c.reads {
		c.refs[i] = &c.reads[i]
	}
	if _, _, errno := unix.Syscall(unix.SYS_IO_SETUP, uintptr(depth), uintptr(unsafe.Pointer(&c.id)), 0); errno != 0 {
		return nil, errno
	}
	return c, nil
}

// flagsAt is the index of the flags in iocb.keyFlags.
var flagsAt = func() int {
	one := uint16(1)
	return int(*(*byte)(unsafe.Pointer(&one)))
}()

// Read makes the reads, at most depth, of regular files. It does not wait for a disk:
// a read that would have to wait gets a negative Count, and the disk begins
// with it. Read submits all together, so reads that are next to each other on a
// disk become one request of the disk. If the file system has no such reads, Read
// returns unix.EOPNOTSUPP.
//
// If Read cannot get the results, the context cannot be used again.
func (c *Context) Read(reads []Read) error {
	if c.broken {
		return errors.ErrUnsupported
	}
	for i := range reads {
		r := &reads[i]
		r.Count = -1
		cb := &c.reads[i]
		*cb = iocb{index: uint64(i), fd: uint32(r.FD), buf: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(r.Buf)))), n: uint64(len(r.Buf))}
		cb.keyFlags[flagsAt] = unix.RWF_NOWAIT
	}
	// A read from the page cache is complete when io_submit returns.
	n, _, errno := unix.Syscall(unix.SYS_IO_SUBMIT, c.id, uintptr(len(reads)), uintptr(unsafe.Pointer(&c.refs[0])))
	runtime.KeepAlive(reads)
	if errno != 0 {
		return errno
	}
	interrupted := 0
	for left := int(n); left > 0; {
		k, _, errno := unix.Syscall6(unix.SYS_IO_GETEVENTS, c.id, uintptr(left), uintptr(left), uintptr(unsafe.Pointer(&c.events[0])), 0, 0)
		if interrupted++; errno == unix.EINTR && interrupted < mostInterrupts {
			continue
		}
		if errno != 0 {
			c.broken = true
			return errno
		}
		for _, e := range c.events[:k] {
			reads[e.index].Count = int(e.result)
		}
		left -= int(k)
	}
	return nil
}

// mostInterrupts is the number of interrupts by signals after which Read no longer waits for results, which
// are complete.
const mostInterrupts = 10_000

// Close frees the context.
func (c *Context) Close() { unix.Syscall(unix.SYS_IO_DESTROY, c.id, 0, 0) }
