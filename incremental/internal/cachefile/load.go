package cachefile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"iter"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
)

// maxLog is the longest log that is read. Writers stay far below it.
func maxLog(snapshot int64) int64 { return snapshot + 64<<20 }

// readImage reads file. The image is empty, never nil, for whatever does not check out.
func readImage(file string, key [32]byte) (*image, error) {
	info, err := os.Stat(file) // before the open, which would wait for the writer of a FIFO
	if errors.Is(err, fs.ErrNotExist) {
		return &image{}, nil
	}
	if err != nil {
		return &image{}, err
	}
	if !info.Mode().IsRegular() {
		return &image{}, &fs.PathError{Op: "open", Path: file, Err: errNotRegular}
	}
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return &image{}, nil
	}
	if err != nil {
		return &image{}, err
	}
	defer f.Close()
	im, err := readOpen(f, key)
	if err != nil {
		return &image{}, err
	}
	if im == nil {
		im = &image{}
	}
	return im, nil
}

// readOpen returns nil for a file that does not check out.
func readOpen(f *os.File, key [32]byte) (*image, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	head := make([]byte, headerSize)
	n, err := f.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return nil, err
	}
	if !ours(head[:n]) && !allZero(f) {
		return nil, &fs.PathError{Op: "open", Path: f.Name(), Err: errForeign}
	}
	h, ok := decodeHeader(head[:n])
	snapshotEnd := h.sumsAt() + h.sumsLen()
	size := min(info.Size(), snapshotEnd+maxLog(snapshotEnd), maxFile)
	if !ok || h.key != key || size < snapshotEnd {
		return nil, nil
	}
	buf, err := readAll(f, h, size)
	if err != nil || buf == nil {
		return nil, err
	}
	im := &image{
		place:    place{generation: h.generation, snapshotEnd: snapshotEnd, end: snapshotEnd},
		buf:      buf,
		data:     buf[headerSize:h.indexAt()],
		snapshot: table{slots: buf[h.indexAt():h.sumsAt()], n: h.slots},
		records:  int(h.records),
		sure:     h.stamp.sureUntil(),
		links:    h.stamp.links,
	}
	im.replay()
	return im, nil
}

// allZero reports whether f begins with zeros: what a crash of the machine may
// leave of a file. A disk image begins with zeros, too, but with fewer.
func allZero(f *os.File) bool {
	b := make([]byte, 64<<10)
	n, err := f.ReadAt(b, 0)
	return notEOF(err) == nil && len(bytes.TrimRight(b[:n], "\x00")) == 0
}

// readAll reads size bytes and verifies the snapshot, in parallel: page faults
// and the copy out of the page cache take most of a load. It returns nil if a
// checksum is wrong.
func readAll(f *os.File, h header, size int64) ([]byte, error) {
	sums := make([]byte, h.sumsLen())
	if _, err := f.ReadAt(sums, h.sumsAt()); err != nil {
		return nil, notEOF(err)
	}
	chunks := h.chunks()
	buf := make([]byte, size)
	if n, err := f.ReadAt(buf[:headerSize], 0); n < headerSize {
		return nil, notEOF(err)
	}
	var (
		next   atomic.Int64
		failed atomic.Bool
		first  error
		once   sync.Once
		wg     sync.WaitGroup
	)
	stop := func(err error) {
		once.Do(func() { first = notEOF(err) })
		failed.Store(true)
	}
	for range min(max(runtime.GOMAXPROCS(0), 1), 4, int((size-headerSize)/chunkSize)+1) {
		wg.Go(func() {
			for !failed.Load() {
				i := next.Add(1) - 1
				from := headerSize + i*chunkSize
				if from >= size {
					return
				}
				part := buf[from:min(from+chunkSize, size)]
				n, err := f.ReadAt(part, from)
				if i >= chunks { // of the log: a short read, after a truncation, leaves zeros
					if n < len(part) && notEOF(err) != nil {
						stop(err)
					}
					continue
				}
				covered := part[:min(int64(len(part)), h.sumsAt()-from)]
				if n < len(covered) || crc32.Checksum(covered, castagnoli) != binary.LittleEndian.Uint32(sums[i*4:]) {
					stop(err)
				}
			}
		})
	}
	wg.Wait()
	if failed.Load() {
		return nil, first
	}
	return buf, nil
}

func notEOF(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
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
