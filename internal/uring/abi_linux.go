package uring

import "unsafe"

// The names, numbers and structs here are those of the kernel's
// include/uapi/linux/io_uring.h.

const (
	opOpenat = 18
	opRead   = 22

	sqeFixedFile = 1 << 0

	setupCoopTaskrun = 1 << 8 // completions do not interrupt the thread

	offsetRings = 0
	offsetSQEs  = 0x10000000

	enterGetEvents = 1 << 0

	featSingleMmap = 1 << 0
	featCQESkip    = 1 << 11 // not used, but shows that Linux is 5.17 or later

	registerFiles   = 2
	unregisterFiles = 3
)

type params struct {
	sqEntries, cqEntries, flags, sqThreadCPU, sqThreadIdle, features, wqFD uint32
	_                                                                      [3]uint32
	sq                                                                     sqOffsets
	cq                                                                     cqOffsets
}

type sqOffsets struct {
	head, tail, ringMask, ringEntries, flags, dropped, array, _ uint32
	_                                                           uint64
}

type cqOffsets struct {
	head, tail, ringMask, ringEntries, overflow, cqes, flags, _ uint32
	_                                                           uint64
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

// The kernel's layout is the same on every architecture. If a struct here differs from that layout, the two
// array types on the struct's line differ and the package does not compile.
var (
	_ [120]byte = [unsafe.Sizeof(params{})]byte{}
	_ [0]byte   = [unsafe.Offsetof(params{}.sqEntries)]byte{}
	_ [8]byte   = [unsafe.Offsetof(params{}.flags)]byte{}
	_ [20]byte  = [unsafe.Offsetof(params{}.features)]byte{}
	_ [40]byte  = [unsafe.Offsetof(params{}.sq)]byte{}
	_ [80]byte  = [unsafe.Offsetof(params{}.cq)]byte{}

	_ [40]byte = [unsafe.Sizeof(sqOffsets{})]byte{}
	_ [4]byte  = [unsafe.Offsetof(sqOffsets{}.tail)]byte{}
	_ [8]byte  = [unsafe.Offsetof(sqOffsets{}.ringMask)]byte{}
	_ [24]byte = [unsafe.Offsetof(sqOffsets{}.array)]byte{}

	_ [40]byte = [unsafe.Sizeof(cqOffsets{})]byte{}
	_ [0]byte  = [unsafe.Offsetof(cqOffsets{}.head)]byte{}
	_ [4]byte  = [unsafe.Offsetof(cqOffsets{}.tail)]byte{}
	_ [8]byte  = [unsafe.Offsetof(cqOffsets{}.ringMask)]byte{}
	_ [20]byte = [unsafe.Offsetof(cqOffsets{}.cqes)]byte{}

	_ [64]byte = [unsafe.Sizeof(sqe{})]byte{}
	_ [0]byte  = [unsafe.Offsetof(sqe{}.opcode)]byte{}
	_ [1]byte  = [unsafe.Offsetof(sqe{}.flags)]byte{}
	_ [4]byte  = [unsafe.Offsetof(sqe{}.fd)]byte{}
	_ [8]byte  = [unsafe.Offsetof(sqe{}.off)]byte{}
	_ [16]byte = [unsafe.Offsetof(sqe{}.addr)]byte{}
	_ [24]byte = [unsafe.Offsetof(sqe{}.len)]byte{}
	_ [28]byte = [unsafe.Offsetof(sqe{}.opFlags)]byte{}
	_ [32]byte = [unsafe.Offsetof(sqe{}.userData)]byte{}
	_ [44]byte = [unsafe.Offsetof(sqe{}.fileIndex)]byte{}

	_ [16]byte = [unsafe.Sizeof(cqe{})]byte{}
	_ [0]byte  = [unsafe.Offsetof(cqe{}.userData)]byte{}
	_ [8]byte  = [unsafe.Offsetof(cqe{}.res)]byte{}
)
