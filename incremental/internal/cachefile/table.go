package cachefile

import "encoding/binary"

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
