package cachefile

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math"
	"slices"
	"sort"

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

func (w *snapshotWriter) snapshot(h header, p *plan) {
	w.err = w.write(h.encode(), 0)
	w.at = headerSize
	for _, r := range p.stretches {
		w.put(r.b)
	}
	w.put(p.table.slots)
	w.flush()
	for len(w.sums)%align != 0 {
		w.sums = append(w.sums, 0)
	}
	if w.err == nil {
		w.err = w.write(w.sums, w.at)
	}
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

// A plan is a snapshot to be written: its records, in stretches of memory, and its index.
type plan struct {
	stretches []stretch
	table     table
	records   int
	size      uint64 // of the file so far: where the next record will be
}

type stretch struct {
	place uint64 // in the new file
	b     []byte
}

// merge plans a snapshot. It adds the newest records first: an older one with the same path is left out.
func merge(base *image, added, tombstones []chunk) *plan {
	upper := base.records + base.logRecords
	for _, c := range added {
		upper += c.records
	}
	p := &plan{table: newTable(upper), size: headerSize}
	for _, c := range slices.Backward(added) {
		p.add(c.b[frameHeader:], nil, math.MaxInt64)
	}
	dead := base.dead(tombstones)
	for i := range base.log.n {
		at := base.log.place(i)
		if rec, ok := parse(base.buf, at); ok && at != 0 {
			if _, isDead := slices.BinarySearch(dead, at); !isDead {
				sure := int64(math.MaxInt64)
				if base.unsure[int(at)] {
					sure = math.MinInt64
				}
				p.add(rec.b, nil, sure)
			}
		}
	}
	from, _ := slices.BinarySearch(dead, headerSize)
	p.add(base.data, dead[from:], base.sure)
	if needed := newTableSize(p.records); p.table.n > needed+needed/4 {
		p.reindex()
	}
	return p
}

// dead returns the places, sorted, of im's records that its log or tombstones delete.
func (im *image) dead(tombstones []chunk) []uint64 {
	var dead []uint64
	kill := func(t table, path []byte, which func(old span) bool) (found, killed bool) {
		n, old, found := find(t, im.buf, xxhash.Sum64(path), path)
		if found && which(old) {
			dead = append(dead, uint64(n))
			return true, true
		}
		return found, false
	}
	all := func(span) bool { return true }
	for i := range im.log.n {
		if rec, ok := parse(im.buf, im.log.place(i)); ok && im.log.slot(i) != 0 && rec.outcome() == tombstone {
			kill(im.snapshot, rec.path(), all) // the load has compared the identities
		}
	}
	for _, c := range tombstones {
		for b := c.b[frameHeader:]; len(b) > 0; {
			rec, _ := parse(b, 0)
			same := func(old span) bool { return old.outcome() != tombstone && old.identity() == rec.identity() }
			inLog, killed := kill(im.log, rec.path(), same)
			if killed {
				kill(im.snapshot, rec.path(), all)
			} else if !inLog {
				kill(im.snapshot, rec.path(), same)
			}
			b = b[len(rec.b):]
		}
	}
	slices.Sort(dead)
	return dead
}

// add plans the records in src. dead lists places of records to leave out, counted as if src followed a header. Of files
// that changed after sure, it only notes that they were there.
func (p *plan) add(src []byte, dead []uint64, sure int64) {
	start := -1 // of the stretch that goes on
	for at := 0; at < len(src); {
		rec, ok := parse(src, uint64(at))
		if !ok {
			return // a hostile file: its checksum was right
		}
		next := at + len(rec.b)
		isDead := false
		for len(dead) > 0 && dead[0] <= uint64(at+headerSize) {
			isDead = dead[0] == uint64(at+headerSize)
			dead = dead[1:]
		}
		unsure := rec.isAfter(sure)
		if unsure {
			rec = rec.noted()
		}
		switch {
		case isDead || rec.outcome() == tombstone || !p.index(rec):
			start = -1
		case start < 0 || unsure:
			if start = at; unsure {
				start = -1
			}
			p.stretches = append(p.stretches, stretch{place: p.size, b: rec.b})
			p.size += uint64(len(rec.b))
		default:
			p.stretches[len(p.stretches)-1].b = src[start:next]
			p.size += uint64(len(rec.b))
		}
		at = next
	}
}

// index enters rec, which will be at p.size. It returns false if rec is to be left out.
func (p *plan) index(rec span) bool {
	if p.size+uint64(len(rec.b)) > maxFile/2 {
		return false
	}
	path := rec.path()
	h := xxhash.Sum64(path)
	i, taken, ok := p.table.vacant(h, func(place uint64) bool {
		old, ok := p.at(place)
		return ok && bytes.Equal(old.path(), path)
	})
	if taken || !ok {
		return false
	}
	p.table.set(i, h, p.size)
	p.records++
	return true
}

// at returns the planned record that will be at place.
func (p *plan) at(place uint64) (span, bool) {
	i := sort.Search(len(p.stretches), func(i int) bool { return p.stretches[i].place > place }) - 1
	if i < 0 {
		return span{}, false
	}
	return parse(p.stretches[i].b, place-p.stretches[i].place)
}

// reindex makes the table anew, for the records that are there: merge has reckoned with
// more. Where many hashes collide, a smaller table may have no slot for one of them.
func (p *plan) reindex() {
	t := newTable(p.records)
	for _, r := range p.stretches {
		for at := 0; at < len(r.b); {
			rec, _ := parse(r.b, uint64(at))
			h := xxhash.Sum64(rec.path())
			i, _, ok := t.vacant(h, nil)
			if !ok {
				return
			}
			t.set(i, h, r.place+uint64(at))
			at += len(rec.b)
		}
	}
	p.table = t
}
