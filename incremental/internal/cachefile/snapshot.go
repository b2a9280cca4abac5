package cachefile

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"hash/crc32"
	"math"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// A snapshotWriter writes a snapshot in pieces of chunkSize, and takes the checksum of each.
type snapshotWriter struct {
	write func(b []byte, at int64) error
	buf   []byte
	at    int64
	sums  []byte
	err   error
}

func newSnapshotWriter(write func(b []byte, at int64) error) *snapshotWriter {
	return &snapshotWriter{write: write, buf: make([]byte, 0, chunkSize), at: headerSize}
}

// snapshot writes the records of base and those of groups, which are later. It returns h
// with the sizes. It writes the header last.
func (w *snapshotWriter) snapshot(h header, base *image, groups ...[]chunk) (header, error) {
	m := merger{base: base, put: w.put}
	for _, c := range slices.Concat(groups...) {
		m.add(c.b[frameHeader:], c.records, anyTime)
	}
	m.merge()
	h.dataLen, h.records, h.dirs = m.size, uint64(m.records), uint64(len(m.dirs)/dirSize)
	w.put(m.dirs)
	w.flush()
	if w.err == nil && len(w.sums) > 0 {
		w.err = w.write(w.sums, w.at)
	}
	if w.err == nil {
		w.err = w.write(h.encode(), 0)
	}
	return h, w.err
}

func (w *snapshotWriter) put(b []byte) {
	for len(b) > 0 && w.err == nil {
		n := copy(w.buf[len(w.buf):cap(w.buf)], b)
		w.buf, b = w.buf[:len(w.buf)+n], b[n:]
		if len(w.buf) == cap(w.buf) {
			w.flush()
		}
	}
}

func (w *snapshotWriter) flush() {
	if w.err != nil || len(w.buf) == 0 {
		return
	}
	w.sums = binary.LittleEndian.AppendUint32(w.sums, crc32.Checksum(w.buf, castagnoli))
	w.err = w.write(w.buf, w.at)
	w.at += int64(len(w.buf))
	w.buf = w.buf[:0]
}

// A merger makes a layer out of records in the form of the log. For a new snapshot it also
// takes all records of base. If it replays the log of base, it takes none of them.
type merger struct {
	base    *image
	replays bool
	put     func([]byte)

	chunks  []mergedChunk
	byDir   map[string]int // by path: the number of the directory in changes
	changes []dirChanges

	dirs    []byte // of the new layer
	size    uint64 // of its data
	records int

	dir            *dirSources // the directory that mergeDir merges
	versions       []version
	keys           []uint64
	kept, ranks    []uint32
	entries, order []byte
	samples, tails []byte
}

type mergedChunk struct {
	b    []byte
	sure int64 // records of files that changed later are not believed
}

type dirChanges struct {
	path     []byte
	versions []version
}

// A version says where a record of a file is: at the place at in the chunk with the number
// from, or, if from is negative, with the number at in a block of base. It has copies of the
// values by which versions are sorted: records lie far apart in memory.
type version struct {
	inode       uint64
	at          uint32
	hash        uint32
	from        int32
	isTombstone bool
}

func versionOf(e *entry, from int32, at int, name []byte) version {
	return version{e.inode(), uint32(at), uint32(xxhash.Sum64(name) >> 32), from, e.outcome() == tombstone}
}

const (
	fromSnapshot = -1 - iota
	fromLog
)

// add adds the records of a chunk. They are later than all that were added before.
func (m *merger) add(b []byte, records int, sure int64) {
	if m.byDir == nil {
		m.byDir = map[string]int{}
	}
	from, last := int32(len(m.chunks)), -1
	m.chunks = append(m.chunks, mergedChunk{b, sure})
	for at := 0; at < len(b); {
		e, size, _ := parse(b[at:])
		dir, name := split(e.name)
		if last < 0 || !bytes.Equal(dir, m.changes[last].path) {
			var ok bool
			if last, ok = m.byDir[string(dir)]; !ok {
				last = len(m.changes)
				m.byDir[string(dir)] = last
				m.changes = append(m.changes, dirChanges{path: dir})
			}
		}
		d := &m.changes[last]
		d.versions = append(d.versions, versionOf(&e, from, at, name))
		at += size
	}
}

// A dirSources has the records of one directory from all sources.
type dirSources struct {
	hash          uint64
	path          []byte
	snapshot, log block
	changes       []version
}

func (m *merger) merge() {
	var all []dirSources
	for i := range m.changes {
		c := &m.changes[i]
		d := dirSources{hash: xxhash.Sum64(c.path), path: c.path, changes: c.versions}
		if m.replays {
			d.snapshot = m.base.snapshot.find(string(c.path), d.hash)
		}
		all = append(all, d)
	}
	if !m.replays {
		for i := range m.base.log.dirCount() {
			b := m.base.log.block(i)
			all = append(all, dirSources{hash: m.base.log.hash(i), path: b.path, log: b})
		}
		for i := range m.base.snapshot.dirCount() {
			b := m.base.snapshot.block(i)
			all = append(all, dirSources{hash: xxhash.Sum64(b.path), path: b.path, snapshot: b})
		}
	}
	same := func(a, b dirSources) int { return cmp.Or(cmp.Compare(a.hash, b.hash), bytes.Compare(a.path, b.path)) }
	slices.SortFunc(all, same)
	for len(all) > 0 {
		d := all[0]
		for all = all[1:]; len(all) > 0 && same(d, all[0]) == 0; all = all[1:] {
			// A hostile file may have a directory twice: merge takes the first, which a search finds too.
			if next := &all[0]; d.snapshot.n == 0 {
				d.snapshot = next.snapshot
			}
			if d.log.n == 0 {
				d.log = all[0].log
			}
			if d.changes == nil {
				d.changes = all[0].changes
			}
		}
		m.dir = &d
		m.mergeDir()
	}
}

// mergeDir adds the block of m.dir.
func (m *merger) mergeDir() {
	d := m.dir
	if m.isUntouched() {
		m.addBlock(d.snapshot.n, d.snapshot.all)
		return
	}
	m.versions = m.versions[:0]
	if m.replays {
		for _, v := range d.changes {
			e := m.entry(v)
			name := string(e.name)
			i, ok := d.snapshot.byInode(v.inode, name)
			if !ok {
				i, ok = d.snapshot.byName(name)
			}
			if ok {
				m.versions = append(m.versions, version{d.snapshot.inode(i), uint32(i), v.hash, fromSnapshot, false})
				m.base.overridden.set(d.snapshot.first + i)
			}
		}
	} else {
		for k, b := range []*block{&d.snapshot, &d.log} {
			for i := range b.n {
				if e, ok := b.entry(i); ok && !m.base.overridden.has(b.first+i) {
					m.versions = append(m.versions, versionOf(&e, fromSnapshot-int32(k), i, e.name))
				}
			}
		}
	}
	m.versions = append(m.versions, d.changes...)
	kept := m.newest()
	if m.replays {
		kept = slices.DeleteFunc(kept, func(k uint32) bool {
			v := m.versions[k]
			if v.from == fromSnapshot {
				m.base.overridden.clear(d.snapshot.first + int(v.at))
			}
			return v.from == fromSnapshot
		})
	}
	m.encode(kept)
}

// isUntouched reports whether the new block is the same as that of the snapshot.
func (m *merger) isUntouched() bool {
	d := m.dir
	if m.replays || d.changes != nil || d.log.n > 0 || m.base.sure != anyTime {
		return false
	}
	for i := range d.snapshot.n {
		if m.base.overridden.has(d.snapshot.first + i) {
			return false
		}
	}
	return true
}

// entry returns a version of a file in m.dir.
func (m *merger) entry(v version) (e entry) {
	switch v.from {
	case fromSnapshot:
		e, _ = m.dir.snapshot.entry(int(v.at))
	case fromLog:
		e, _ = m.dir.log.entry(int(v.at))
	default:
		e, _, _ = parse(m.chunks[v.from].b[v.at:])
		e.name = e.name[len(m.dir.path):]
	}
	return e
}

func (m *merger) name(k uint32) []byte { return m.entry(m.versions[k]).name }

// believes reports whether a version is believed.
func (m *merger) believes(v version) bool {
	sure := m.base.sure
	switch {
	case v.from >= 0:
		sure = m.chunks[v.from].sure
	case v.from == fromLog:
		return m.base.believes(m.dir.log.first+int(v.at), Identity{})
	}
	if sure == anyTime {
		return true
	}
	e := m.entry(v)
	return !e.identity().isAfter(sure)
}

// newest returns the number of the last version of each file, unless a tombstone deletes
// that version. The versions of a file are in the order of time. The numbers are sorted by
// the hash of the name and then by name.
func (m *merger) newest() []uint32 {
	m.keys = m.keys[:0]
	for i := range m.versions {
		m.keys = append(m.keys, uint64(m.versions[i].hash)<<32|uint64(i))
	}
	slices.Sort(m.keys)
	kept := m.kept[:0]
	for i, j := 0, 0; i < len(m.keys); i = j {
		for j = i + 1; j < len(m.keys) && m.keys[j]>>32 == m.keys[i]>>32; {
			j++
		}
		group := m.keys[i:j]
		if len(group) == 1 {
			if k := uint32(group[0]); !m.versions[k].isTombstone {
				kept = append(kept, k)
			}
			continue
		}
		slices.SortStableFunc(group, func(a, b uint64) int { return bytes.Compare(m.name(uint32(a)), m.name(uint32(b))) })
		start := len(kept)
		for i, key := range group {
			k := uint32(key)
			if i > 0 && !bytes.Equal(m.name(uint32(group[i-1])), m.name(k)) {
				start = len(kept)
			}
			if !m.versions[k].isTombstone {
				kept = append(kept[:start], k)
			} else if len(kept) > start {
				e, old := m.entry(m.versions[k]), m.entry(m.versions[kept[start]])
				if old.identity() == e.identity() {
					kept = kept[:start]
				}
			}
		}
	}
	m.kept = kept
	return kept
}

// encode adds a block of these versions, which are sorted by the hash of the name and then
// by name. The tails are in the order of m.versions: files were listed in this order when
// they were added, and probably will be listed in it again.
func (m *merger) encode(kept []uint32) {
	n := len(kept)
	const none = math.MaxUint32
	m.ranks = slices.Grow(m.ranks[:0], len(m.versions))[:len(m.versions)]
	for i := range m.ranks {
		m.ranks[i] = none
	}
	m.keys = m.keys[:0]
	isLong := false
	for place, k := range kept {
		v := &m.versions[k]
		if !m.replays && !m.believes(*v) {
			v.inode = 0
		}
		m.keys = append(m.keys, v.inode<<32|uint64(place))
		isLong = isLong || v.inode>>32 != 0
	}
	if isLong {
		inodeOf := func(key uint64) uint64 { return m.versions[kept[uint32(key)]].inode }
		slices.SortFunc(m.keys, func(a, b uint64) int {
			return cmp.Or(cmp.Compare(inodeOf(a), inodeOf(b)), cmp.Compare(uint32(a), uint32(b)))
		})
	} else {
		slices.Sort(m.keys)
	}
	m.order = slices.Grow(m.order[:0], n*orderSize)[:n*orderSize]
	for rank, key := range m.keys {
		m.ranks[kept[uint32(key)]] = uint32(rank)
		binary.LittleEndian.PutUint32(m.order[uint32(key)*orderSize:], uint32(rank))
	}
	m.entries, m.tails = slices.Grow(m.entries[:0], n*entrySize)[:n*entrySize], m.tails[:0]
	for i, rank := range m.ranks {
		if rank == none {
			continue
		}
		v := m.versions[i]
		e := m.entry(v)
		if !m.believes(v) {
			if m.replays {
				m.base.unsure[m.base.snapshot.records+m.records+int(rank)] = true
			} else {
				e = noted(e.name)
			}
		}
		fixed := m.entries[int(rank)*entrySize:][:entrySize]
		copy(fixed, e.fixed)
		putTail(fixed, uint64(len(m.tails)))
		m.tails = e.appendTail(m.tails)
	}
	m.samples = m.samples[:0]
	for i := sampleOf; i < n; i += sampleOf {
		m.samples = append(m.samples, m.entries[i*entrySize:i*entrySize+sampleSize]...)
	}
	m.addBlock(n, m.entries, m.order, m.samples, m.dir.path, m.tails)
}

// addBlock adds the block of m.dir, which has n records. It leaves the block out if n is 0, or if the file would be too long.
func (m *merger) addBlock(n int, parts ...[]byte) {
	size := 0
	for _, b := range parts {
		size += len(b)
	}
	if n == 0 || m.size+uint64(size) > maxFile/2 {
		return
	}
	le := binary.LittleEndian
	m.dirs = le.AppendUint64(m.dirs, m.dir.hash)
	m.dirs = le.AppendUint64(m.dirs, m.size)
	m.dirs = le.AppendUint32(m.dirs, uint32(m.records))
	m.dirs = le.AppendUint32(m.dirs, uint32(len(m.dir.path)))
	m.size += uint64(size)
	m.records += n
	for _, b := range parts {
		m.put(b)
	}
}
