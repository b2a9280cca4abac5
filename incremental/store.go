// Storage of the incremental package: one file for one root.
//
// The file is a snapshot followed by a log. All numbers are little-endian, all
// parts begin at a multiple of 8 bytes.
//
//	header     128 bytes: magic, format, generation, key, sizes, stamp, CRC
//	data       records, one after the other
//	index      slots of 8 bytes: 32 bits of the path's hash, 32 bits of the record's place / 8
//	checksums  a CRC per 256 KiB of data and index
//	log        frames, appended by later saves: length, generation, CRC, stamp, records
//
// Every CRC is CRC-32C. The index is a hash table with linear probing that is
// looked up where it lies, so a load decodes nothing. A record of the log
// overrides the record of the snapshot with the same path; a tombstone in the
// log deletes a record if that one still has the identity that the tombstone
// names. A frame that does not check out ends the log: the next writer
// truncates there.
//
// A snapshot is written to a temporary file and renamed, so the snapshot below
// FILE never changes. The log of a file grows and is truncated only under the
// lock FILE.lock, which a save holds and a load does not: a load that meets a
// half-written frame ends there.
//
// Nothing calls fsync. The checksums find what a crash of the machine has left
// incomplete, and a lost cache costs a full run, not a wrong result.
//
// A record is right for ever: it says what fn returned for a file with this
// identity. So writers may lose records to each other or merge them in any
// order without a wrong result. Only a loss of power can make it wrong: the disk
// may keep the new times of a file beside its old content. So a stamp says in which
// boot of the machine, and when, a snapshot or a frame was saved. In another boot,
// records of files that changed shortly before that only say that the file was
// there, and a new snapshot, whose stamp is of that boot, has no more of them.

package incremental

import (
	"encoding/binary"
	"errors"
	"iter"
	"math/bits"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
	"github.com/fileproc/fileproc"
)

var (
	errForeign    = errors.New("the file exists and is not a cache of this package; it is neither used nor replaced")
	errNotRegular = errors.New("not a regular file")
)

// A store is one cache file: what was loaded, and what this run adds.
// lookup, markSeen and add may run concurrently with each other and with save.
type store struct {
	file    string // absolute, links resolved
	key     [32]byte
	loaded  *image
	seen    []atomic.Uint32 // a bit for each minRecord bytes of the loaded file
	workers []workerBuffer
	links   fileproc.Symlinks // how the runs that list treat them; the last to save counts

	mu      sync.Mutex                                    // held by save; guards the fields below
	disk    place                                         // the end of what is known to be in the file
	pending []chunk                                       // taken from the workers by a save that failed
	hook    func(size int, do func(size int) error) error // of a test: see step
}

// A place says where in which generation of the file the log ends.
type place struct {
	generation  uint64
	snapshotEnd int64
	end         int64 // 0 = there is no file that checks out
}

// load reads file. The store is never nil: it is empty if the file is missing,
// damaged, of another format or has another key. The error is for information:
// the file exists and cannot be read, or is not a cache at all.
func load(file string, key [32]byte, workers int) (*store, error) {
	s := &store{file: resolve(file), key: key, workers: make([]workerBuffer, max(workers, 1))}
	im, err := readImage(s.file, key)
	s.loaded, s.disk, s.links = im, im.place, im.links
	s.seen = make([]atomic.Uint32, (len(im.buf)/minRecord+32)/32)
	for _, n := range im.overridden {
		s.markSeen(n)
	}
	return s, err
}

// resolve follows links, also to a file that is not there yet, so that a rename
// replaces the file and not a link to it, and makes the name independent of the
// working directory.
func resolve(file string) string {
	if abs, err := filepath.Abs(file); err == nil {
		file = abs
	}
	for name, links := file, 0; links < maxLinks; links++ {
		if target, err := filepath.EvalSymlinks(name); err == nil {
			return target
		}
		dir, base := filepath.Split(name)
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			dir = real
		}
		name = filepath.Join(dir, base)
		target, err := os.Readlink(name)
		if err != nil {
			return name
		}
		if name = target; !filepath.IsAbs(target) {
			name = dir + string(filepath.Separator) + target // not cleaned: ".." may be behind a link
		}
	}
	return file
}

// maxLinks is how many links to a file that is not there are followed, as many as by Linux.
const maxLinks = 40

// isOwnSuffix reports whether a path that goes on with rest after that of the
// cache file is the cache file, its lock or one of its temporary files.
func isOwnSuffix(rest string) bool {
	number, isTemp := strings.CutPrefix(rest, tempSuffix)
	return rest == "" || rest == lockSuffix || isTemp && strings.Trim(number, "-0123456789abcdef") == ""
}

// len returns the number of loaded records, without those that the log overrides.
func (s *store) len() int { return s.loaded.live }

// lookup returns the loaded record for path and its number, which markSeen
// and save take. It does not allocate. The record aliases the loaded file and
// stays valid as long as it is referenced; records added in this run are not seen.
//
// Runs mostly look up paths in the order in which the workers of an earlier run have
// added them. So lookup first tries the records that follow those last found: they
// are in the processor's cache, what a hash leads to is not.
func (s *store) lookup(path string, next *following) (rec recordView, n int, ok bool) {
	return s.loaded.lookup(path, next)
}

// A following is the numbers of records that may be looked up next, the last used first.
// There may be none with such a number.
type following [4]int

// markSeen notes that the file of record n is still there.
func (s *store) markSeen(n int) {
	word, bit := &s.seen[n/minRecord/32], uint32(1)<<(n/minRecord%32)
	if word.Load()&bit == 0 { // workers share the words: write only what changes
		word.Or(bit)
	}
}

func (s *store) isSeen(n int) bool {
	return s.seen[n/minRecord/32].Load()&(1<<(n/minRecord%32)) != 0
}

// unseen returns the loaded records that markSeen has not marked, with their numbers.
func (s *store) unseen() iter.Seq2[int, recordView] {
	return func(yield func(int, recordView) bool) {
		marked := 0
		for i := range s.seen {
			marked += bits.OnesCount32(s.seen[i].Load())
		}
		if marked == s.loaded.live+len(s.loaded.overridden) {
			return
		}
		for n, rec := range s.loaded.all() {
			if !s.isSeen(n) && !yield(n, rec) {
				return
			}
		}
	}
}

// dirs returns the directories of the files of the loaded records that no other
// one replaces or deletes.
func (s *store) dirs() map[string]bool {
	overridden := map[int]bool{}
	for _, n := range s.loaded.overridden {
		overridden[n] = true
	}
	all := map[string]bool{}
	for n, rec := range s.loaded.all() {
		if overridden[n] {
			continue
		}
		rel := "" // made if it has a directory that is new
		for i := len(rec.path) - 1; i > 0; i-- {
			if rec.path[i] != '/' {
				continue
			}
			if all[string(rec.path[:i])] {
				break
			}
			if rel == "" {
				if rel = string(rec.path); !isBelow(rel) {
					break
				}
			}
			all[rel[:i]] = true
		}
	}
	return all
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
	links      fileproc.Symlinks
}

// view returns the record s, which has the number n. If it is not believed, its
// identity fits no file.
func (im *image) view(n int, s span) recordView {
	v := s.view()
	if int64(n) < im.snapshotEnd && s.isAfter(im.sure) || im.unsure[n] {
		v.id.size = noSize
	}
	return v
}

func (im *image) lookup(path string, next *following) (rec recordView, n int, ok bool) {
	h := xxhash.Sum64String(path)
	if n, span, ok := find(im.log, im.buf, h, path); ok {
		if span.outcome() == tombstone {
			return recordView{}, 0, false
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
		return recordView{}, 0, false
	}
	copy(next[1:], next[:])
	next[0] = n + len(span.b)
	return im.view(n, span), n, true
}

// all returns the records with their numbers, also those of the snapshot that the log overrides.
func (im *image) all() iter.Seq2[int, recordView] {
	return func(yield func(int, recordView) bool) {
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
func (im *image) at(n int) (recordView, bool) {
	span, ok := parse(im.buf, uint64(n))
	if n == 0 || !ok || span.outcome() == tombstone {
		return recordView{}, false
	}
	return span.view(), true
}

// A table is a hash table with linear probing in n slots. A slot is the low
// half of the path's hash above the record's place / 8; 0 is an empty slot.
type table struct {
	slots []byte
	n     uint64
}

// maxProbes bounds a search, in a table that is hostile or whose paths were
// chosen to collide. A random table, three quarters full, with a billion
// records stays below 600.
const maxProbes = 1024

// newTable makes a table that is three quarters full with this number of records.
func newTable(records int) table {
	if records == 0 {
		return table{}
	}
	n := newTableSize(records)
	return table{slots: make([]byte, n*8), n: n}
}

func newTableSize(records int) uint64 { return uint64(records)*4/3 + 1 }

func (t table) first(h uint64) uint64         { return (h >> 32) * t.n >> 32 }
func (t table) slot(i uint64) uint64          { return binary.LittleEndian.Uint64(t.slots[i*8:]) }
func (t table) place(i uint64) uint64         { return t.slot(i) & (1<<32 - 1) * align }
func (t table) set(i, h uint64, place uint64) { putSlot(t.slots[i*8:], h, place) }

func putSlot(b []byte, h, place uint64) {
	binary.LittleEndian.PutUint64(b, h<<32|place/align)
}

// find returns the number and the record of path, whose hash is h.
func find[P string | []byte](t table, buf []byte, h uint64, path P) (int, span, bool) {
	if t.n == 0 {
		return 0, span{}, false
	}
	i := t.first(h)
	for range maxProbes {
		v := t.slot(i)
		if v == 0 {
			break
		}
		if uint32(v>>32) == uint32(h) {
			if rec, ok := parse(buf, v&(1<<32-1)*align); ok && string(rec.path()) == string(path) {
				return int(t.place(i)), rec, true
			}
		}
		if i++; i == t.n {
			i = 0
		}
	}
	return 0, span{}, false
}

// vacant returns the slot for a new record with the hash h, or the first slot
// for which same, called with the place of each record that has this hash,
// returns true. It returns false if there is none within maxProbes: the record
// is not kept then.
func (t table) vacant(h uint64, same func(place uint64) bool) (i uint64, taken, ok bool) {
	if t.n == 0 {
		return 0, false, false
	}
	i = t.first(h)
	for range maxProbes {
		v := t.slot(i)
		if v == 0 {
			return i, false, true
		}
		if uint32(v>>32) == uint32(h) && same != nil && same(v&(1<<32-1)*align) {
			return i, true, true
		}
		if i++; i == t.n {
			i = 0
		}
	}
	return 0, false, false
}

const chunkSize = 256 << 10 // of records that a worker gathers, and of data that share a checksum

// A chunk is a frame of the log in the making: room for the frame's header, then records.
type chunk struct {
	b       []byte
	records int
}

// A workerBuffer holds what one worker has added since the last save.
type workerBuffer struct {
	mu   sync.Mutex // contended only by a save in the middle of a run
	cur  chunk
	full []chunk
	_    [64]byte // workers do not share cache lines
}

// add keeps a copy of rec for the next save. Each worker w adds to a buffer of
// its own. A path over 1 MiB or a result over 256 MiB is not kept: such a
// file is processed in each run.
func (s *store) add(w int, rec record) {
	if len(rec.path) > maxPath || len(rec.result) > maxResult {
		return
	}
	wb := &s.workers[w]
	wb.mu.Lock()
	defer wb.mu.Unlock()
	wb.full = wb.cur.add(wb.full, rec)
}

// add appends rec to c. If c has no room it is first moved to full, which is returned.
func (c *chunk) add(full []chunk, rec record) []chunk {
	if c.records > 0 && len(c.b)+maxRecordHead+len(rec.path)+len(rec.result) > chunkSize {
		full = append(full, *c)
		*c = chunk{b: make([]byte, frameHeader, chunkSize)}
	}
	if c.b == nil {
		c.b = make([]byte, frameHeader, 4<<10)
	}
	c.b = appendRecord(c.b, rec)
	c.records++
	return full
}

// take returns what the workers have added since the last call.
func (s *store) take() []chunk {
	var all []chunk
	for i := range s.workers {
		wb := &s.workers[i]
		wb.mu.Lock()
		all = append(all, wb.full...)
		if wb.cur.records > 0 {
			all = append(all, wb.cur)
		}
		wb.full, wb.cur = nil, chunk{}
		wb.mu.Unlock()
	}
	return all
}
