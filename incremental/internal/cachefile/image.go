package cachefile

import (
	"iter"
	"math"
	mathbits "math/bits"
)

// A place is the end of the log in one generation of the file.
type place struct {
	generation  uint64
	snapshotEnd int64
	end         int64 // 0 if there is no valid file
}

// An image is a file in memory. It does not change once it is loaded. The records of log
// are numbered after those of the snapshot.
type image struct {
	place
	buf           []byte
	snapshot, log layer
	overridden    bits         // numbers of the snapshot's records that the log replaces or deletes
	live          int          // records that are not overridden
	sure          int64        // the snapshot's records of files that changed later are not believed
	unsure        map[int]bool // nor are the log's records with these numbers
	links         uint64
}

// A bits is a set of numbers. The nil set is empty.
type bits []uint64

func (b bits) has(n int) bool { return n/64 < len(b) && b[n/64]&(1<<(n%64)) != 0 }
func (b bits) set(n int)      { b[n/64] |= 1 << (n % 64) }
func (b bits) clear(n int)    { b[n/64] &^= 1 << (n % 64) }

// A Dir is what is known of the files in one directory. The zero Dir knows no files.
type Dir struct {
	snapshot, log block
	next          int // the entry of snapshot after the one that was found last
}

func (im *image) dir(path string) Dir {
	hash := dirHash(path)
	return Dir{snapshot: im.snapshot.find(path, hash), log: im.log.find(path, hash)}
}

// find is Store.Find.
func (im *image) find(d *Dir, inode uint64, name string) (v View, n int, ok bool) {
	b := &d.snapshot
	if inode != 0 {
		i := d.next
		if ok = i < b.n && b.inode(i) == inode && string(b.name(i)) == name; !ok {
			i, ok = b.byInode(inode, name)
		}
		if ok && !im.overridden.has(b.first+i) {
			d.next = i + 1
			v, ok = im.view(b, i)
			return v, b.first + i, ok
		}
	}
	for _, b := range []*block{&d.log, &d.snapshot} {
		if i, ok := b.byName(name); ok && !im.overridden.has(b.first+i) {
			v, ok = im.view(b, i)
			return v, b.first + i, ok
		}
	}
	return View{}, 0, false
}

// view returns entry i of b. If the entry is not believed, view gives it a size that no file has.
func (im *image) view(b *block, i int) (View, bool) {
	v, ok := b.view(i)
	if !im.believes(b.first+i, v.ID) {
		v.ID.Size = NoSize
	}
	return v, ok
}

// believes reports whether record n, of a file with this identity, is believed.
func (im *image) believes(n int, id Identity) bool {
	if n < im.snapshot.records {
		return !id.isAfter(im.sure)
	}
	return len(im.unsure) == 0 || !im.unsure[n]
}

// blocks returns the blocks of all directories.
func (im *image) blocks() iter.Seq[*block] {
	return func(yield func(*block) bool) {
		for _, l := range []*layer{&im.snapshot, &im.log} {
			for i := range l.dirCount() {
				if b := l.block(i); b.n > 0 && !yield(&b) {
					return
				}
			}
		}
	}
}

// at returns the record that has the number n, with the identity that is in the file.
func (im *image) at(n int) (View, bool) {
	l := &im.snapshot
	if n >= l.records {
		l = &im.log
	}
	b := l.of(n)
	if n < b.first || n >= b.first+b.n {
		return View{}, false
	}
	return b.view(n - b.first)
}

// replay makes the layer im.log out of the log, which begins at im.end, and moves im.end to the end of the last valid
// frame. A later record replaces an earlier one.
func (im *image) replay() {
	m := merger{base: im, replays: true}
	im.live = im.snapshot.records
	for {
		payload, records, ok := frameAt(im.buf, im.end, im.generation)
		if !ok {
			break
		}
		stamp := decodeStamp(im.buf[im.end+24:])
		im.links = stamp.links
		m.add(payload, records, stamp.sureUntil())
		im.end += frameHeader + int64(len(payload))
	}
	im.buf = im.buf[:im.end:im.end]
	if len(m.chunks) == 0 {
		return
	}
	im.overridden = make(bits, im.snapshot.records/64+1)
	im.unsure = map[int]bool{}
	m.put = func(b []byte) { im.log.data = append(im.log.data, b...) }
	m.merge()
	im.log.dirs, im.log.base, im.log.records = m.dirs, im.snapshot.records, m.records
	im.live += m.records
	for _, word := range im.overridden {
		im.live -= mathbits.OnesCount64(word)
	}
}

const anyTime = math.MaxInt64 // a value of sure: all records are believed
