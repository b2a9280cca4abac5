package incremental

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"math"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/fsinfo"
)

const (
	magic       = "fileproc cache\n\x00"
	format      = 2
	headerSize  = 128
	frameHeader = 56
	frameMagic  = 0x676f6c66 // "flog"

	maxFile = min(1<<35, math.MaxInt/2) // places / 8 have 32 bits; a 32-bit system has no memory for more than 1 GiB
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A header is the first part of the file.
//
//	0 magic  16 format  24 generation  32 key  64 data bytes  72 records  80 slots  88 stamp  124 CRC of all before
type header struct {
	generation              uint64
	key                     [32]byte
	dataLen, records, slots uint64
	stamp                   stamp
}

func (h header) encode() []byte {
	le := binary.LittleEndian
	b := make([]byte, headerSize)
	copy(b, magic)
	le.PutUint32(b[16:], format)
	le.PutUint64(b[24:], h.generation)
	copy(b[32:], h.key[:])
	le.PutUint64(b[64:], h.dataLen)
	le.PutUint64(b[72:], h.records)
	le.PutUint64(b[80:], h.slots)
	h.stamp.encode(b[88:])
	le.PutUint32(b[headerSize-4:], crc32.Checksum(b[:headerSize-4], castagnoli))
	return b
}

// decodeHeader returns false unless b is a header of this format whose sizes are possible.
func decodeHeader(b []byte) (h header, ok bool) {
	le := binary.LittleEndian
	if len(b) < headerSize || string(b[:len(magic)]) != magic || le.Uint32(b[16:]) != format ||
		le.Uint32(b[headerSize-4:]) != crc32.Checksum(b[:headerSize-4], castagnoli) {
		return h, false
	}
	h = header{generation: le.Uint64(b[24:]), key: [32]byte(b[32:64]),
		dataLen: le.Uint64(b[64:]), records: le.Uint64(b[72:]), slots: le.Uint64(b[80:]), stamp: decodeStamp(b[88:])}
	ok = h.dataLen <= maxFile && h.dataLen%align == 0 && h.slots <= maxFile/8 &&
		h.records <= h.dataLen/minRecord && h.sumsAt()+h.sumsLen() <= maxFile
	return h, ok
}

func (h header) indexAt() int64 { return headerSize + int64(h.dataLen) }
func (h header) sumsAt() int64  { return h.indexAt() + int64(h.slots)*8 }
func (h header) chunks() int64  { return (h.sumsAt() - headerSize + chunkSize - 1) / chunkSize }
func (h header) sumsLen() int64 { return (h.chunks()*4 + align - 1) &^ (align - 1) }

// A stamp says in which boot of the machine, and when, a snapshot or a frame was saved. It
// takes 32 bytes of the file: boot (16), saved (8), links (8).
type stamp struct {
	boot  [16]byte // zero if that is unknown
	saved int64    // nanoseconds since 1970
	links fileproc.Symlinks
}

func (s stamp) encode(b []byte) {
	le := binary.LittleEndian
	copy(b, s.boot[:])
	le.PutUint64(b[16:], uint64(s.saved))
	le.PutUint64(b[24:], uint64(s.links))
}

func decodeStamp(b []byte) stamp {
	le := binary.LittleEndian
	return stamp{[16]byte(b), int64(le.Uint64(b[16:])), fileproc.Symlinks(le.Uint64(b[24:]))}
}

// writtenBack is how long before a save a file must have changed for its content to
// be on the disk for certain. Linux starts to write what has been dirty for 30 s,
// looks for that every 5 s (vm.dirty_expire_centisecs, dirty_writeback_centisecs),
// and lets the disk's own cache wait for a commit of 5 (ext4), 30 (xfs, btrfs) or
// 60 s (f2fs). The rest is for settings of laptops, and for disks that are busy.
const writtenBack = 5 * time.Minute

// sureUntil returns the newest time that a file may have for what s stamps of it to
// be believed. While the machine is up, memory has the content that goes with the
// times. If it stops, the disk may keep new times beside old content.
func (s stamp) sureUntil() int64 {
	if boot := thisBoot(); s.boot == boot && boot != [16]byte{} {
		return math.MaxInt64
	}
	return s.saved - int64(writtenBack)
}

// thisBoot returns what stands for the time since the machine was started, zero if
// nothing does. Tests set it.
var thisBoot = sync.OnceValue(func() (boot [16]byte) {
	if name := fsinfo.BootName(); name != "" {
		sum := sha256.Sum256([]byte(name))
		copy(boot[:], sum[:])
	}
	return boot
})

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

// ours reports whether a file that begins with b was a cache, though some of
// its bytes may have been damaged. A file that the caller names by mistake was
// none, and is not replaced.
func ours(b []byte) bool {
	b = b[:min(len(b), len(magic))]
	same := 0
	for i := range b {
		if b[i] == magic[i] {
			same++
		}
	}
	ends := len(b) == len(magic) && b[len(b)-1] == 0 // as no text does
	return same >= min(len(b), len(magic)*3/4) || ends && same >= len(magic)/2
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

// frames returns the end of the last frame that checks out and the number of
// records up to there. buf holds the file from the place base on.
func frames(buf []byte, base, from int64, generation uint64) (end int64, records int) {
	for {
		payload, n, ok := frameAt(buf, from-base, generation)
		if !ok {
			return from, records
		}
		from += frameHeader + int64(len(payload))
		records += n
	}
}

// frameAt returns the records of the frame at offset at in buf.
func frameAt(buf []byte, at int64, generation uint64) (payload []byte, records int, ok bool) {
	le := binary.LittleEndian
	if int64(len(buf))-at < frameHeader {
		return nil, 0, false
	}
	b := buf[at:]
	size := le.Uint32(b[4:])
	if le.Uint32(b) != frameMagic || le.Uint64(b[8:]) != generation || uint64(size) > uint64(len(b)-frameHeader) {
		return nil, 0, false
	}
	payload = b[frameHeader : frameHeader+int(size)]
	if le.Uint32(b[20:]) != frameSum(b[:frameHeader+int(size)]) {
		return nil, 0, false
	}
	for rest := payload; len(rest) > 0; records++ {
		rec, ok := parse(rest, 0)
		if !ok {
			return nil, 0, false
		}
		rest = rest[len(rec.b):]
	}
	return payload, records, records == int(le.Uint32(b[16:]))
}

// frameSum returns the checksum, which lies at 20, of all else of a frame.
func frameSum(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:20], castagnoli), castagnoli, b[24:])
}

// seal fills in the header of the frame c: magic, length, generation, number of records, CRC, stamp.
func (c chunk) seal(generation uint64, s stamp) {
	le := binary.LittleEndian
	le.PutUint32(c.b, frameMagic)
	le.PutUint32(c.b[4:], uint32(len(c.b)-frameHeader))
	le.PutUint64(c.b[8:], generation)
	le.PutUint32(c.b[16:], uint32(c.records))
	s.encode(c.b[24:])
	le.PutUint32(c.b[20:], frameSum(c.b))
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
