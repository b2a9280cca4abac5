package cachefile

import (
	"bytes"
	"iter"

	"github.com/cespare/xxhash/v2"
)

// A place says where in which generation of the file the log ends.
type place struct {
	generation  uint64
	snapshotEnd int64
	end         int64 // 0 = there is no file that checks out
}

// An image is a file in memory. It does not change once it is loaded. The number of a
// record is its place in the file.
type image struct {
	place
	buf        []byte
	data       []byte // the snapshot's records, within buf
	snapshot   table
	log        table // of the log's records: built by the load
	records    int   // in the snapshot
	logRecords int   // in log
	live       int
	overridden []int        // numbers of the snapshot's records that log overrides, each once
	sure       int64        // the snapshot's records of files that changed later are not believed
	unsure     map[int]bool // nor are the log's records with these numbers
	links      uint64
}

// view returns the record s, which has the number n. If it is not believed, its
// identity fits no file.
func (im *image) view(n int, s span) View {
	v := s.view()
	if int64(n) < im.snapshotEnd && s.isAfter(im.sure) || im.unsure[n] {
		v.ID.Size = NoSize
	}
	return v
}

// A Following is the numbers of records that may be looked up next, the last used first.
// There may be none with such a number.
type Following [4]int

func (im *image) lookup(path string, next *Following) (rec View, n int, ok bool) {
	h := xxhash.Sum64String(path)
	if n, span, ok := find(im.log, im.buf, h, path); ok {
		if span.outcome() == tombstone {
			return View{}, 0, false
		}
		return im.view(n, span), n, true
	}
	for i := range next {
		n := next[i]
		// A number before the data becomes a place behind it.
		if span, ok := parse(im.data, uint64(n-headerSize)); ok && string(span.path()) == path && span.outcome() != tombstone {
			next[i], next[0] = next[0], n+len(span.b)
			return im.view(n, span), n, true
		}
	}
	n, span, ok := find(im.snapshot, im.buf, h, path)
	if !ok || span.outcome() == tombstone {
		return View{}, 0, false
	}
	copy(next[1:], next[:])
	next[0] = n + len(span.b)
	return im.view(n, span), n, true
}

// all returns the records with their numbers, also those of the snapshot that the log overrides.
func (im *image) all() iter.Seq2[int, View] {
	return func(yield func(int, View) bool) {
		for n := headerSize; n < headerSize+len(im.data); {
			rec, ok := parse(im.buf, uint64(n))
			if !ok {
				break // a hostile file: its checksum was right
			}
			if rec.outcome() != tombstone && !yield(n, rec.view()) {
				return
			}
			n += len(rec.b)
		}
		for i := range im.log.n {
			n := int(im.log.place(i))
			if rec, ok := im.at(n); ok && !yield(n, rec) {
				return
			}
		}
	}
}

// at returns the record that has the number n; false if there is none, and for a tombstone.
func (im *image) at(n int) (View, bool) {
	span, ok := parse(im.buf, uint64(n))
	if n == 0 || !ok || span.outcome() == tombstone {
		return View{}, false
	}
	return span.view(), true
}

// replay builds the table of the log's records. A later record replaces an earlier one.
func (im *image) replay() {
	end, records := frames(im.buf, 0, im.snapshotEnd, im.generation)
	im.end = end
	im.buf = im.buf[:end:end]
	im.live = im.records
	im.log = newTable(records)
	im.unsure = map[int]bool{}
	for at := im.snapshotEnd; at < end; {
		payload, _, _ := frameAt(im.buf, at, im.generation)
		stamp := decodeStamp(im.buf[at+24:])
		sure := stamp.sureUntil()
		im.links = stamp.links
		at += frameHeader
		for len(payload) > 0 {
			rec, _ := parse(payload, 0)
			im.apply(rec, uint64(at))
			if rec.isAfter(sure) {
				im.unsure[int(at)] = true
			}
			at += int64(len(rec.b))
			payload = payload[len(rec.b):]
		}
	}
}

// apply adds one record of the log, which lies at place.
func (im *image) apply(rec span, place uint64) {
	path := rec.path()
	h := xxhash.Sum64(path)
	var old span // what rec replaces
	i, known, ok := im.log.vacant(h, func(place uint64) bool {
		old, _ = parse(im.buf, place)
		return bytes.Equal(old.path(), path)
	})
	if !ok {
		return
	}
	inSnapshot := -1
	if !known {
		var found bool
		inSnapshot, old, found = find(im.snapshot, im.buf, h, path)
		known = found && old.outcome() != tombstone
		if !found {
			inSnapshot = -1
		}
	} else {
		known = old.outcome() != tombstone
	}
	gone := rec.outcome() == tombstone
	if gone && (!known || old.identity() != rec.identity()) {
		return
	}
	if inSnapshot >= 0 {
		im.overridden = append(im.overridden, inSnapshot)
	}
	switch {
	case known && gone:
		im.live--
	case !known && !gone:
		im.live++
	}
	if v := im.log.slot(i); v == 0 {
		im.logRecords++
	}
	im.log.set(i, h, place)
}
