package cachefile

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"hash/crc32"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// A snapshotWriter writes a snapshot in pieces of chunkSize and sums them.
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

// snapshot writes what base and, after it, groups have. It returns h with the sizes. The
// header is written last.
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

// A merger makes a layer out of records in the form of the log, and those of base: all of
// them for a new snapshot, and none if it replays the log of base.
type merger struct {
	base    *image
	replays bool
	put     func([]byte)

	chunks  []mergedChunk
	byDir   map[string]int // numbers in changes
	changes []dirChanges

	dirs    []byte // of the new layer
	size    uint64 // of its data
	records int

	dir                   *dirSources // at work
	versions, kept        []version
	keys                  []uint64
	byInode               []inodeKey
	entries, order, tails []byte
}

type mergedChunk struct {
	b    []byte
	sure int64 // records of files that changed later are not believed
}

type dirChanges struct {
	path     []byte
	versions []version
}

// A version is a record of a file: in the chunk with the number from, at this place, or
// with the number at in a block of base.
type version struct {
	from int32
	at   uint32
}

const (
	fromSnapshot = -1 - iota
	fromLog
)

type inodeKey struct {
	inode uint64
	place uint32
}

// add adds records of a chunk, which are later than those that were added before.
func (m *merger) add(b []byte, records int, sure int64) {
	if m.byDir == nil {
		m.byDir = map[string]int{}
	}
	from, last := int32(len(m.chunks)), -1
	m.chunks = append(m.chunks, mergedChunk{b, sure})
	for at := 0; at < len(b); {
		e, size, _ := parse(b[at:])
		dir, _ := split(e.name)
		if last < 0 || !bytes.Equal(dir, m.changes[last].path) {
			var ok bool
			if last, ok = m.byDir[string(dir)]; !ok {
				last = len(m.changes)
				m.byDir[string(dir)] = last
				m.changes = append(m.changes, dirChanges{path: dir})
			}
		}
		d := &m.changes[last]
		d.versions = append(d.versions, version{from, uint32(at)})
		at += size
	}
}

// A dirSources is what there is of one directory.
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
			// A hostile file may have a directory twice: the first is found by a search.
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
			if i, ok := d.snapshot.byName(string(e.name)); ok {
				m.versions = append(m.versions, version{fromSnapshot, uint32(i)})
				m.base.overridden.set(d.snapshot.first + i)
			}
		}
	} else {
		for i := range d.snapshot.n {
			if _, ok := d.snapshot.entry(i); ok && !m.base.overridden.has(d.snapshot.first+i) {
				m.versions = append(m.versions, version{fromSnapshot, uint32(i)})
			}
		}
		for i := range d.log.n {
			m.versions = append(m.versions, version{fromLog, uint32(i)})
		}
	}
	m.versions = append(m.versions, d.changes...)
	m.newest()
	if m.replays {
		m.versions = slices.DeleteFunc(m.versions, func(v version) bool {
			if v.from == fromSnapshot {
				m.base.overridden.clear(d.snapshot.first + int(v.at))
			}
			return v.from == fromSnapshot
		})
	}
	m.encode()
}

// isUntouched reports whether the new block is that of the snapshot.
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

// believes reports whether a version is believed.
func (m *merger) believes(v version, id Identity) bool {
	switch v.from {
	case fromSnapshot:
		return m.base.believes(m.dir.snapshot.first+int(v.at), id)
	case fromLog:
		return m.base.believes(m.dir.log.first+int(v.at), id)
	}
	return !id.isAfter(m.chunks[v.from].sure)
}

// newest keeps, of the versions of each file, which are in the order of time, the last
// one, unless a tombstone deletes it. It sorts them by the hash of the name and by name.
func (m *merger) newest() {
	m.keys = m.keys[:0]
	for i, v := range m.versions {
		e := m.entry(v)
		m.keys = append(m.keys, xxhash.Sum64(e.name)&^(1<<32-1)|uint64(i))
	}
	slices.Sort(m.keys)
	kept := m.kept[:0]
	of := func(key uint64) version { return m.versions[uint32(key)] }
	for i, j := 0, 0; i < len(m.keys); i = j {
		for j = i + 1; j < len(m.keys) && m.keys[j]>>32 == m.keys[i]>>32; {
			j++
		}
		group := m.keys[i:j]
		if len(group) > 1 {
			slices.SortStableFunc(group, func(a, b uint64) int {
				x, y := m.entry(of(a)), m.entry(of(b))
				return bytes.Compare(x.name, y.name)
			})
		}
		start := len(kept)
		for k, key := range group {
			e, v := m.entry(of(key)), of(key)
			if k > 0 {
				before := m.entry(of(group[k-1]))
				if !bytes.Equal(before.name, e.name) {
					start = len(kept)
				}
			}
			if e.outcome() != tombstone {
				kept = append(kept[:start], v)
			} else if len(kept) > start {
				if old := m.entry(kept[start]); old.identity() == e.identity() {
					kept = kept[:start]
				}
			}
		}
	}
	m.versions, m.kept = kept, m.versions
}

// encode adds a block of m.versions.
func (m *merger) encode() {
	m.byInode, m.entries, m.tails = m.byInode[:0], m.entries[:0], m.tails[:0]
	for i, v := range m.versions {
		e := m.entry(v)
		inode := e.inode()
		if !m.replays && !m.believes(v, e.identity()) {
			inode = 0
		}
		m.byInode = append(m.byInode, inodeKey{inode, uint32(i)})
	}
	slices.SortFunc(m.byInode, func(a, b inodeKey) int {
		return cmp.Or(cmp.Compare(a.inode, b.inode), cmp.Compare(a.place, b.place))
	})
	m.order = slices.Grow(m.order[:0], len(m.versions)*orderSize)[:len(m.versions)*orderSize]
	for i, k := range m.byInode {
		v := m.versions[k.place]
		e := m.entry(v)
		id := e.identity()
		name, outcome, result := e.name, e.outcome(), e.result
		if !m.believes(v, id) {
			if m.replays {
				m.base.unsure[m.base.snapshot.records+m.records+i] = true
			} else {
				noted := Noted("")
				id, outcome, result = noted.ID, noted.Outcome, nil
			}
		}
		var fixed [entrySize]byte
		fixed, m.tails = appendEntry(m.tails, name, id, outcome, result)
		m.entries = append(m.entries, fixed[:]...)
		binary.LittleEndian.PutUint32(m.order[k.place*orderSize:], uint32(i))
	}
	m.addBlock(len(m.versions), m.entries, m.order, m.dir.path, m.tails)
}

// addBlock adds the block of m.dir, which has n records. It does not if the file would be too long.
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
