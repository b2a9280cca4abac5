// Package cachefile reads and writes the cache file of package incremental: one file
// for one root.
//
// The file is a snapshot followed by a log. All numbers are little-endian.
//
//	header     128 bytes: magic, format, generation, key, sizes, stamp, CRC
//	data       a block per directory: its path, and the records of its files
//	dirs       24 bytes per directory: hash of the path, where its block is
//	checksums  a CRC per 256 KiB of data and dirs
//	log        frames, appended by later saves: length, generation, CRC, stamp, records
//
// Every CRC is CRC-32C. Directories are searched by their hash, and the records of a
// block by inode or by name, where they lie, so a load decodes nothing but the log. A
// record of the log overrides the record of the snapshot with the same path; a tombstone
// in the log deletes a record if that one still has the identity that the tombstone
// names. An invalid frame ends the log: the next writer truncates the file there.
//
// A snapshot is written to a temporary file and renamed, so the snapshot in FILE never
// changes. The log grows and is truncated only under the lock FILE.lock. A save holds this
// lock, a load does not: a load that meets a half-written frame ends there.
//
// Nothing calls fsync. The checksums find what a crash of the machine has left
// incomplete, and a lost cache costs a full run, not a wrong result.
//
// A record is right for ever: it says what fn returned for a file with this
// identity. So writers may lose records to each other or merge them in any
// order without a wrong result. Only a loss of power can make a record wrong: the disk
// may keep the new times of a file beside its old content. Therefore each snapshot and
// frame has a stamp, which says in which boot of the machine and when it was saved. In
// another boot, the record of a file that changed shortly before the save says only that
// the file was there. A new snapshot has the stamp of the new boot, and so keeps no more
// of such a record.
package cachefile

import (
	"crypto/sha256"
	"encoding/binary"
	"hash/crc32"
	"math"
	"sync"
	"time"

	"github.com/fileproc/fileproc/internal/fsinfo"
)

const (
	magic       = "fileproc cache\n\x00"
	format      = 3
	headerSize  = 128
	frameHeader = 56
	frameMagic  = 0x676f6c66 // "flog"
	chunkSize   = 256 << 10  // of records that a worker gathers, and of data that share a checksum

	maxFile = min(1<<35, math.MaxInt/2) // a 32-bit system has no memory for more than 1 GiB
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A header is the first part of the file.
//
//	0 magic  16 format  24 generation  32 key  64 data bytes  72 records  80 directories  88 stamp  124 CRC of all before
type header struct {
	generation             uint64
	key                    [32]byte
	dataLen, records, dirs uint64
	stamp                  stamp
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
	le.PutUint64(b[80:], h.dirs)
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
		dataLen: le.Uint64(b[64:]), records: le.Uint64(b[72:]), dirs: le.Uint64(b[80:]), stamp: decodeStamp(b[88:])}
	ok = h.dataLen <= maxFile && h.dirs <= maxFile/dirSize && h.records < 1<<32 &&
		h.records <= h.dataLen/minRecord && h.sumsAt()+h.sumsLen() <= maxFile
	return h, ok
}

func (h header) dirsAt() int64  { return headerSize + int64(h.dataLen) }
func (h header) sumsAt() int64  { return h.dirsAt() + int64(h.dirs)*dirSize }
func (h header) chunks() int64  { return (h.sumsAt() - headerSize + chunkSize - 1) / chunkSize }
func (h header) sumsLen() int64 { return h.chunks() * 4 }

// A stamp says in which boot of the machine, and when, a snapshot or a frame was saved. It
// takes 32 bytes of the file: boot (16), saved (8), links (8).
type stamp struct {
	boot  [16]byte // zero if unknown
	saved int64    // nanoseconds since 1970
	links uint64
}

func (s stamp) encode(b []byte) {
	le := binary.LittleEndian
	copy(b, s.boot[:])
	le.PutUint64(b[16:], uint64(s.saved))
	le.PutUint64(b[24:], s.links)
}

func decodeStamp(b []byte) stamp {
	le := binary.LittleEndian
	return stamp{[16]byte(b), int64(le.Uint64(b[16:])), le.Uint64(b[24:])}
}

// WrittenBack is the time after which the content of a changed file is on the disk for
// certain: after a reboot, a record is believed if its file changed at least this long before
// the save. Linux starts to write data that has been dirty for 30 s, looks for such data every
// 5 s (vm.dirty_expire_centisecs, dirty_writeback_centisecs), and flushes the disk's own
// cache with a commit every 5 (ext4), 30 (xfs, btrfs) or 60 s (f2fs). The rest is for
// settings of laptops, and for disks that are busy.
const WrittenBack = 5 * time.Minute

// sureUntil returns a time: a record with the stamp s is believed if its file has not
// changed after that time. While the machine is up, memory has the content that goes with
// the times. If the machine stops, the disk may keep new times beside old content.
func (s stamp) sureUntil() int64 {
	if boot := ThisBoot(); s.boot == boot && boot != [16]byte{} {
		return math.MaxInt64
	}
	return s.saved - int64(WrittenBack)
}

// ThisBoot returns the identity of this boot of the machine, zero if it is unknown. Tests
// set it.
var ThisBoot = sync.OnceValue(func() (boot [16]byte) {
	if name := fsinfo.BootName(); name != "" {
		sum := sha256.Sum256([]byte(name))
		copy(boot[:], sum[:])
	}
	return boot
})

// ours reports whether a file that begins with b was a cache file, even if some of its
// bytes are damaged. A file that the caller names by mistake never was a cache file, and
// is not replaced.
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

// HasMagic reports whether content that begins with b may be a cache file's.
func HasMagic(b []byte) bool {
	b = b[:min(len(b), len(magic))]
	return len(b) > 0 && string(b) == magic[:len(b)]
}

// frames returns the end of the last valid frame, from the place from on. Buf holds the file from the place base on.
func frames(buf []byte, base, from int64, generation uint64) (end int64) {
	for {
		payload, _, ok := frameAt(buf, from-base, generation)
		if !ok {
			return from
		}
		from += frameHeader + int64(len(payload))
	}
}

// frameAt returns the records of the frame at offset at in buf, and false if no valid frame is there.
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
		_, size, ok := parse(rest)
		if !ok {
			return nil, 0, false
		}
		rest = rest[size:]
	}
	return payload, records, records == int(le.Uint32(b[16:]))
}

// frameSum returns the checksum of a frame: of all its bytes but the four at 20, where the checksum is.
func frameSum(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:20], castagnoli), castagnoli, b[24:])
}

// A chunk is a frame of the log in the making: room for the frame's header, then records.
type chunk struct {
	b       []byte
	records int
}

// add appends rec to c. If c has no room it is first moved to full, which is returned.
func (c *chunk) add(full []chunk, rec Record) []chunk {
	if c.records > 0 && len(c.b)+maxRecordHead+len(rec.Path)+len(rec.Result) > chunkSize {
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
