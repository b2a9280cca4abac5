package cache

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/fileproc/fileproc/internal/fsinfo"
)

// ErrSnapshot is the error of LoadSnapshot for a file that is not a whole, undamaged snapshot
// of this version.
var ErrSnapshot = errors.New("not a whole snapshot")

// A snapshot is snapshotMagic, a record for each entry, and the end.
//
//	record  length of the name, length of the content, mode      uint32, uint64, uint32
//	        size, times (seconds, nanoseconds), device, inode    7 × 8 bytes
//	        when the entry expires (Unix nanoseconds), or 0       int64
//	        the name
//	        the sum
//	        the content
//	        the sum
//	end     length of the name 0, number of entries              uint32, uint64
//	        zeros, as long as a record
//	        the sum
//
// Numbers are little-endian. The sum is the xxHash64 of all that comes before it, from the
// beginning of the snapshot. So the length of a content is not used, and a content not
// cached, before it is known to be what was written there.
const (
	snapshotMagic  = "fpcache\x01" // the last byte is the version
	recordSize     = 4 + 8 + 4 + 7*8 + 8
	maxRecordName  = 1 << 20
	snapshotBuffer = 256 << 10
)

func (c *FS) writeSnapshot(w io.Writer) error {
	s := &snapshotWriter{to: bufio.NewWriterSize(w, snapshotBuffer), sum: xxhash.New()}
	s.write([]byte(snapshotMagic))
	n := uint64(0)
	for _, h := range c.data.all() {
		if h.value.firm && h.value.id.ModTime != fsinfo.NoTime && len(h.key) <= maxRecordName {
			s.entry(h, c.wallClock(h.expires))
			n++
		}
	}
	var end [recordSize]byte
	binary.LittleEndian.PutUint64(end[4:], n)
	s.write(end[:])
	s.writeSum()
	return s.to.Flush()
}

// wallClock returns what the wall clock shows when the engine's clock shows at, and 0 if at
// is never or too far away.
func (c *FS) wallClock(at int64) int64 {
	left := time.Duration(at - c.data.now())
	if at == 0 || left > 100*365*24*time.Hour { // UnixNano ends in 2262
		return 0
	}
	return time.Now().Add(left).UnixNano()
}

type snapshotWriter struct {
	to  *bufio.Writer
	sum *xxhash.Digest
}

func (s *snapshotWriter) write(p []byte) {
	s.sum.Write(p)
	_, _ = s.to.Write(p) // Flush returns the first error
}

func (s *snapshotWriter) writeSum() {
	var sum [8]byte
	binary.LittleEndian.PutUint64(sum[:], s.sum.Sum64())
	s.write(sum[:])
}

func (s *snapshotWriter) entry(h held[*content], expires int64) {
	le, id := binary.LittleEndian, &h.value.id
	b := make([]byte, 0, recordSize+len(h.key))
	b = le.AppendUint32(b, uint32(len(h.key)))
	b = le.AppendUint64(b, uint64(len(h.value.data)))
	b = le.AppendUint32(b, uint32(id.Mode))
	mod, change := time.Unix(0, id.ModTime), time.Unix(0, id.ChangeTime)
	for _, n := range []uint64{uint64(id.Size), uint64(mod.Unix()), uint64(mod.Nanosecond()), uint64(change.Unix()), uint64(change.Nanosecond()),
		id.Device, id.Inode, uint64(expires)} {
		b = le.AppendUint64(b, n)
	}
	s.write(append(b, h.key...))
	s.writeSum()
	s.write(h.value.data)
	s.writeSum()
}

func (c *FS) readSnapshot(r io.Reader) (loaded int, err error) {
	s := &snapshotReader{from: bufio.NewReaderSize(r, snapshotBuffer), sum: xxhash.New()}
	var magic [len(snapshotMagic)]byte
	s.read(magic[:])
	if string(magic[:]) != snapshotMagic {
		s.fail("it begins with %q", magic)
	}
	for n := uint64(0); ; n++ {
		rec := s.record(n)
		if rec == nil {
			break
		}
		if c.loadRecord(s, rec) {
			loaded++
		}
	}
	if s.err != nil {
		return loaded, fmt.Errorf("cache: snapshot: %w", s.err)
	}
	return loaded, nil
}

// A record is an entry of a snapshot without its content.
type record struct {
	name    string
	length  int64
	id      fsinfo.Identity
	expires int64
}

// A snapshotReader reads on after an error, and keeps the first one.
type snapshotReader struct {
	from *bufio.Reader
	sum  *xxhash.Digest
	err  error
}

func (s *snapshotReader) fail(format string, args ...any) {
	s.note(fmt.Errorf("%w: "+format, append([]any{ErrSnapshot}, args...)...))
}

func (s *snapshotReader) note(err error) {
	switch {
	case s.err != nil:
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		s.fail("its end is missing")
	default:
		s.err = err
	}
}

func (s *snapshotReader) read(p []byte) {
	_, err := io.ReadFull(s.from, p)
	s.note(err)
	s.sum.Write(p)
}

func (s *snapshotReader) skip(n int64) {
	_, err := io.CopyN(s.sum, s.from, n)
	s.note(err)
}

func (s *snapshotReader) checkSum(of string) {
	want := s.sum.Sum64()
	var sum [8]byte
	s.read(sum[:])
	if binary.LittleEndian.Uint64(sum[:]) != want {
		s.fail("%s is damaged", of)
	}
}

// record reads the record after n others. It returns nil at the end and after an error.
func (s *snapshotReader) record(n uint64) *record {
	var b [recordSize]byte
	s.read(b[:])
	le := binary.LittleEndian
	nameLength, length := le.Uint32(b[:]), le.Uint64(b[4:])
	if nameLength > maxRecordName {
		s.fail("record %d is damaged", n)
		return nil
	}
	name := make([]byte, nameLength)
	s.read(name)
	s.checkSum(fmt.Sprint("record ", n))
	if nameLength == 0 {
		if length != n {
			s.fail("it has %d entries of %d", n, length)
		} else if _, err := s.from.ReadByte(); err == nil {
			s.fail("something follows its end")
		} else if err != io.EOF {
			s.note(err)
		}
		return nil
	}
	var f [8]uint64
	for i := range f {
		f[i] = le.Uint64(b[16+8*i:])
	}
	rec := &record{name: string(name), length: int64(length), expires: int64(f[7]),
		id: fsinfo.Identity{Mode: fs.FileMode(le.Uint32(b[12:])), Size: int64(f[0]), ModTime: int64(f[1]*1e9 + f[2]),
			ChangeTime: int64(f[3]*1e9 + f[4]), Device: f[5], Inode: f[6]}}
	if !fs.ValidPath(rec.name) || rec.length < 0 || rec.length != rec.id.Size || !isRegular(rec.id.Mode) {
		s.fail("record %d is none of a file", n)
	}
	if s.err != nil {
		return nil
	}
	return rec
}

// loadRecord reads the content of rec and caches it if there is room.
func (c *FS) loadRecord(s *snapshotReader, rec *record) bool {
	l := loaded{began: math.MinInt64, ahead: true}
	ct := &content{stamp: stamp{id: rec.id, firm: true, whole: true, began: math.MinInt64}}
	ct.info = info{name: path.Base(rec.name), size: rec.id.Size, mode: rec.id.Mode, mtime: time.Unix(0, rec.id.ModTime)}
	l.ttl = c.ttlOf(rec.name, &ct.info)
	if rec.expires != 0 {
		left := time.Until(time.Unix(0, rec.expires))
		if left <= 0 {
			rec.expires = -1
		}
		if l.ttl = c.data.ttlOf(l.ttl); l.ttl <= 0 {
			l.ttl = left
		}
		l.ttl = min(l.ttl, left)
	}
	if rec.expires < 0 || rec.length > c.largest(rec.name) || !c.data.fits(rec.name, entryOverhead+int64(len(rec.name))+rec.length) || c.w.pending(rec.name) {
		s.skip(rec.length)
		s.checkSum("the content of " + rec.name)
		return false
	}
	ct.data = slices.Grow(ct.data, int(rec.length))[:rec.length]
	l.cost = ct.cost(rec.name)
	s.read(ct.data)
	s.checkSum("the content of " + rec.name)
	return s.err == nil && c.data.add(rec.name, ct, l) == aheadCached
}

// SaveSnapshot saves the cached files in the file name, the most used first, for
// LoadSnapshot at the next start. It replaces the file by a rename: the file has the whole
// snapshot or what it had before. It leaves out files that LoadSnapshot could not compare with
// the source: those that have no times, or a time outside of the years 1678 to 2262, or that
// changed less than 2 seconds before they were read. It also leaves out dirty files, which only
// a flush saves, and listings, metadata and Results. The cache can be used meanwhile.
func (c *FS) SaveSnapshot(name string) error {
	dir, base := filepath.Split(name)
	root, err := os.OpenRoot(cmp.Or(dir, "."))
	if err != nil {
		return err
	}
	defer root.Close()
	if _, err := replace(root, base, 0o600, false, true, c.writeSnapshot); err != nil {
		return writeError(name, err)
	}
	if err := syncDir(root, "."); err != nil {
		return writeError(name, err)
	}
	return nil
}

// LoadSnapshot caches the files of the snapshot name that fit into the room that is free, and
// returns how many. It evicts nothing and replaces nothing, and the files that it has cached
// are evicted before files that were used. Files whose TTL has ended since are left out.
//
// Each file is compared with the source when it is first used, even with Trust. A file that
// has changed since is read. So the source must be that of the snapshot, or files whose
// contents differ must differ in size, times or mode too. The Sys method of the files'
// metadata returns nil.
//
// For damage, a missing part or another version, the error wraps ErrSnapshot. The files
// that were loaded until then are right, and stay cached. If there is no file, the error
// wraps fs.ErrNotExist. The checksums show damage, but not forgery. So keep a snapshot
// where only those can write who may also change the files.
func (c *FS) LoadSnapshot(name string) (loaded int, err error) {
	f, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return c.readSnapshot(f)
}
