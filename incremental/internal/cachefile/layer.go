package cachefile

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"sort"

	"github.com/cespare/xxhash/v2"
)

// A layer has the records of a snapshot, as they lie in the file, or those of a log, which a
// load brings into the same form. Nothing here panics, whatever the bytes of a layer are.
type layer struct {
	data, dirs []byte
	base       int // the number of its first record
	records    int
}

// An entry of dirs has the hash of the directory's path (8), where its block begins in
// data (8), the number of its first record less base (4) and the length of its path (4). The
// directories are sorted by hash and path, and their blocks follow in the same order.
const dirSize = 24

// A block has the records of the files of one directory, in these parts:
//
//   - entries: sorted by inode and then as in order
//   - order: the numbers of the entries (4), sorted by the hash of the name and then by name
//   - samples: the inode (8) of each 128th entry but the first; they stay in the processor's cache
//   - path: that of the directory, with the slash at its end, "" for root
//   - tails: of the entries
//
// So a file is found by the inode in its metadata, in whatever order files are listed, or
// by its name.
type block struct {
	all                                  []byte // which has, in this order,
	entries, order, samples, path, tails []byte
	first, n                             int // the number of its first record; how many they are
}

const (
	orderSize  = 4
	sampleOf   = 128 // entries
	sampleSize = 8
	minRecord  = entrySize + orderSize + 2 // with an empty name and result
)

func hashOf(name string) uint64 { return xxhash.Sum64String(name) >> 32 }
func dirHash(dir string) uint64 { return xxhash.Sum64String(dir) }

func (l *layer) dirCount() int { return len(l.dirs) / dirSize }

func (l *layer) hash(i int) uint64 { return binary.LittleEndian.Uint64(l.dirs[i*dirSize:]) }

// first returns the number of the first record of directory i. If i is the number of directories, it returns the
// number after that of the last record.
func (l *layer) first(i int) int {
	if i == l.dirCount() {
		return l.base + l.records
	}
	return l.base + int(binary.LittleEndian.Uint32(l.dirs[i*dirSize+16:]))
}

// block returns the block of directory i, an empty one if it is not within l.
func (l *layer) block(i int) (b block) {
	le := binary.LittleEndian
	d := l.dirs[i*dirSize:]
	at, end, first, last, pathLen := le.Uint64(d[8:]), uint64(len(l.data)), l.first(i), l.first(i+1), uint64(le.Uint32(d[20:]))
	if i+1 < l.dirCount() {
		end = le.Uint64(d[dirSize+8:])
	}
	if at > end || end > uint64(len(l.data)) || first < l.base || first > last || last > l.base+l.records {
		return block{}
	}
	data, n := l.data[at:end:end], last-first
	samples := (n - 1) / sampleOf * sampleSize // 0 for an empty block, too
	if uint64(len(data)) < uint64(n)*(entrySize+orderSize)+uint64(samples)+pathLen {
		return block{}
	}
	b = block{all: data, first: first, n: n}
	b.entries, data = data[:n*entrySize], data[n*entrySize:]
	b.order, data = data[:n*orderSize], data[n*orderSize:]
	b.samples, data = data[:samples], data[samples:]
	b.path, b.tails = data[:pathLen:pathLen], data[pathLen:]
	return b
}

// find returns the block of the directory with this path, an empty one if there is none.
func (l *layer) find(dir string, hash uint64) block {
	i, ok := find(l.dirCount(), hash, l.hash, func(i int) int {
		b := l.block(i)
		return compare(b.path, dir)
	})
	if !ok {
		return block{}
	}
	return l.block(i)
}

// of returns the block of record n, an empty one if there is none.
func (l *layer) of(n int) block {
	i := sort.Search(l.dirCount(), func(i int) bool { return l.first(i) > n }) - 1
	if i < 0 {
		return block{}
	}
	return l.block(i)
}

// entry returns entry i, and false if no writer makes such an entry.
func (b *block) entry(i int) (e entry, ok bool) {
	fixed := b.entries[i*entrySize : (i+1)*entrySize]
	at := uint64(binary.LittleEndian.Uint32(fixed[28:])) | uint64(fixed[35])<<32
	if at > uint64(len(b.tails)) {
		return entry{}, false
	}
	e, _, ok = parseEntry(fixed, b.tails[at:])
	return e, ok && e.outcome() != tombstone
}

func (b *block) view(i int) (View, bool) {
	e, ok := b.entry(i)
	if !ok {
		return View{}, false
	}
	return View{Dir: b.path, Name: e.name, ID: e.identity(), Outcome: e.outcome(), Result: e.result}, true
}

func (b *block) inode(i int) uint64 { return binary.LittleEndian.Uint64(b.entries[i*entrySize:]) }

// name returns the name of entry i, nil if the entry is invalid.
func (b *block) name(i int) []byte {
	e, _ := b.entry(i)
	return e.name
}

// ordered returns the number of the entry that is the i-th by hash and name.
func (b *block) ordered(i int) int {
	return int(binary.LittleEndian.Uint32(b.order[i*orderSize:]) % uint32(b.n))
}

// byInode returns the number of the entry with this inode and name.
func (b *block) byInode(inode uint64, name string) (int, bool) {
	lo, hi := 0, len(b.samples)/sampleSize
	for lo < hi {
		if m := (lo + hi) / 2; binary.LittleEndian.Uint64(b.samples[m*sampleSize:]) < inode {
			lo = m + 1
		} else {
			hi = m
		}
	}
	lo, hi = lo*sampleOf, min((lo+1)*sampleOf, b.n-1)
	if lo >= b.n {
		return 0, false
	}
	// Files that were created together have inodes in a row: first look where the entry then is.
	if i := uint64(lo) + inode - b.inode(lo); i <= uint64(hi) && b.inode(int(i)) == inode && string(b.name(int(i))) == name {
		return int(i), true
	}
	i := lo + sort.Search(hi-lo, func(i int) bool { return b.inode(lo+i) >= inode })
	return findFrom(i, b.n, inode, b.inode, func(i int) int {
		other := b.name(i)
		if string(other) == name {
			return 0
		}
		return cmp.Or(cmp.Compare(xxhash.Sum64(other)>>32, hashOf(name)), compare(other, name))
	})
}

// byName returns the number of the entry with this name.
func (b *block) byName(name string) (int, bool) {
	i, ok := find(b.n, hashOf(name), func(i int) uint64 { return xxhash.Sum64(b.name(b.ordered(i))) >> 32 },
		func(i int) int { return compare(b.name(b.ordered(i)), name) })
	if !ok {
		return 0, false
	}
	return b.ordered(i), true
}

func compare(b []byte, s string) int {
	switch {
	case string(b) == s:
		return 0
	case string(b) < s:
		return -1
	}
	return 1
}

// find searches n elements, which are sorted by key and then by what order compares. It
// returns the place of the element with this key for which order returns 0.
func find(n int, key uint64, keyOf func(int) uint64, order func(int) int) (int, bool) {
	return findFrom(lowerBound(n, key, keyOf), n, key, keyOf, order)
}

// findFrom is find for the elements from i on, none of which has a lower key.
func findFrom(i, n int, key uint64, keyOf func(int) uint64, order func(int) int) (int, bool) {
	for end := i + 4; i < end; i++ {
		if i == n || keyOf(i) != key {
			return 0, false
		}
		if order(i) == 0 {
			return i, true
		}
	}
	// Many elements have this key. The elements after them count as greater.
	rest, ok := sort.Find(n-i, func(k int) int {
		if keyOf(i+k) != key {
			return -1
		}
		return -order(i + k)
	})
	return i + rest, ok
}

// lowerBound returns the first of n places, sorted by key, whose key is not below key.
// It guesses as if the keys were spread evenly, as hashes are. Each third step halves
// the rest, however the keys are spread.
func lowerBound(n int, key uint64, keyOf func(int) uint64) int {
	if n == 0 || key <= keyOf(0) {
		return 0
	}
	below, above := keyOf(0), keyOf(n-1)
	if key > above {
		return n
	}
	lo, hi := 0, n-1 // the key at lo is below key, the key at hi is not
	for step := 1; hi-lo > 1; step++ {
		m := lo + (hi-lo)/2
		if step%3 != 0 {
			m = lo + int(float64(key-below)/float64(above-below)*float64(hi-lo))
			m = min(max(m, lo+1), hi-1)
		}
		if k := keyOf(m); k < key {
			lo, below = m, k
		} else {
			hi, above = m, k
		}
	}
	return hi
}

// split returns the directory of path, with the slash at its end, and the name.
func split(path []byte) (dir, name []byte) {
	i := bytes.LastIndexByte(path, '/') + 1
	return path[:i], path[i:]
}
