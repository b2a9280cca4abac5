package fileproc

import (
	"io/fs"
	"sync/atomic"
	"unsafe"
)

// typeUnknown is the type of an entry whose file system did not tell it. The
// bits are those of a file type, so it is no type that a listing can give.
const typeUnknown = fs.ModeType

// An entry is the name of a regular file that a directory listed. The byte
// behind the name is a zero, so that system calls can take it in place.
type entry struct {
	name string
}

// A batch is the files that one buffer of a directory's listing gave. Several
// workers may share one: each takes the next entry.
type batch struct {
	node    *node
	segment *segment // nil unless the results are in order
	entries []entry
	next    atomic.Int64 // the first entry that nobody has taken
	joined  atomic.Bool  // more than one worker has visited it
	fetched atomic.Int64 // the first entry that has not been asked for, see window.fetch

	users int // workers that visit it; guarded by the pool's mutex
}

// take returns the index of an entry for the caller to visit, or false when
// all are taken.
func (b *batch) take() (int, bool) {
	i := b.next.Add(1) - 1
	return int(i), i < int64(len(b.entries))
}

// left reports how many entries nobody has taken.
func (b *batch) left() int {
	return max(0, len(b.entries)-int(b.next.Load()))
}

// abandon takes all the entries that are left and returns how many they were.
func (b *batch) abandon() int64 {
	n := int64(len(b.entries))
	return max(0, n-b.next.Swap(n))
}

func (b *batch) reset() {
	clear(b.entries) // lets the names go
	b.entries = b.entries[:0]
	b.node, b.segment = nil, nil
	b.next.Store(0)
	b.joined.Store(false)
	b.fetched.Store(0)
}

const (
	minBlock = 512
	maxBlock = 64 << 10
)

// An arena holds names in blocks. No part of a block is ever written twice, so
// a name may be kept for ever (and keeps its block, of at most maxBlock bytes
// or one name). The blocks grow, so that a small run takes little memory.
type arena struct {
	block []byte
	size  int
}

// add returns a copy of name with a zero byte behind it.
func (a *arena) add(name []byte) string {
	if cap(a.block)-len(a.block) < len(name)+1 {
		a.size = min(max(2*a.size, minBlock), maxBlock)
		a.block = make([]byte, 0, max(a.size, len(name)+1))
	}
	start := len(a.block)
	a.block = append(append(a.block, name...), 0)
	return unsafe.String(unsafe.SliceData(a.block[start:]), len(name))
}
