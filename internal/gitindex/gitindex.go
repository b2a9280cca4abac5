// Package gitindex reads git's index, the list of the paths that git tracks in a work tree:
// versions 2 to 4, with hashes of either length, split and sparse indexes. It opens no files.
//
// An index may come from anywhere. Its bytes are checked once, and then searched where they
// are: no more memory is taken than they have.
package gitindex

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sort"
	"strings"
	"unsafe"
)

// A Kind says what the index has at a path.
type Kind uint8

const (
	None       Kind = iota
	File            // a file or a symbolic link, also one that is to be added, in conflict, or outside a sparse checkout
	Repository      // the commit of a submodule
	Directory       // a directory of which a sparse index has no more than the name
)

// An Index is what one or, if it is split, two files list. It is immutable.
type Index struct {
	own, base         part
	deleted, replaced bitmap         // of the entries of base
	heads             map[int][]byte // of those that are replaced, by their numbers
	folded            *Index         // with names in lower case; nil: case matters
}

// Parse returns the index that a file has as its content. Of a split index, open returns the
// content of the other file. The Index keeps both.
func Parse(content []byte, open func(name string) ([]byte, error)) (*Index, error) {
	x, link, err := parse(content, 20)
	if err != nil { // only the repository's configuration says that hashes are longer
		if long, longLink, longErr := parse(content, 32); longErr == nil {
			x, link, err = long, longLink, nil
		}
	}
	if err != nil || len(link) == 0 {
		return x, err
	}
	return x, x.split(link, open)
}

var errShort = errors.New("git's index is damaged: it ends too early")

func damaged(format string, args ...any) error {
	return fmt.Errorf("git's index is damaged: "+format, args...)
}

// parse is Parse for hashes of this length. Link is the extension of a split index.
func parse(content []byte, hash int) (x *Index, link []byte, err error) {
	const header = 12
	switch {
	case len(content) < header+hash:
		return nil, nil, errShort
	case string(content[:4]) != "DIRC":
		return nil, nil, damaged("it does not begin with DIRC")
	}
	version := binary.BigEndian.Uint32(content[4:])
	if version < 2 || version > 4 {
		return nil, nil, fmt.Errorf("git's index has version %d: want 2 to 4", version)
	}
	x = &Index{own: part{data: content[:len(content)-hash], hash: hash, begin: header, isPacked: version == 4, count: int(binary.BigEndian.Uint32(content[8:]))}}
	end, err := x.own.check()
	if err != nil {
		return nil, nil, err
	}
	for rest := x.own.data[end:]; len(rest) > 0; {
		if len(rest) < 8 {
			return nil, nil, errShort
		}
		name, size := string(rest[:4]), uint64(binary.BigEndian.Uint32(rest[4:]))
		if rest = rest[8:]; uint64(len(rest)) < size {
			return nil, nil, errShort
		}
		switch {
		case name == "link":
			link = rest[:size]
		case name != "sdir" && (name[0] < 'A' || name[0] > 'Z'): // git does not read these either
			return nil, nil, fmt.Errorf("git's index has an extension %q, which is unknown", name)
		}
		rest = rest[size:]
	}
	if link == nil && x.own.unnamed > 0 {
		return nil, nil, damaged("an entry has no name")
	}
	x.own.data = x.own.data[:end]
	return x, link, nil
}

// split reads the shared file of a split index, and what of it is no longer so.
func (x *Index) split(link []byte, open func(name string) ([]byte, error)) error {
	hash := x.own.hash
	if len(link) < hash {
		return errShort
	}
	id, rest := link[:hash], link[hash:]
	if bytes.Equal(id, make([]byte, hash)) { // it is not split
		return nil
	}
	content, err := open("sharedindex." + hex.EncodeToString(id))
	if err != nil {
		return err
	}
	shared, more, err := parse(content, hash)
	switch {
	case err != nil:
		return err
	case more != nil:
		return damaged("a shared index is split")
	}
	x.base = shared.own
	if len(rest) > 0 {
		if x.deleted, rest, err = readBitmap(rest, x.base.count); err == nil {
			x.replaced, rest, err = readBitmap(rest, x.base.count)
		}
		if err == nil && len(rest) > 0 {
			err = damaged("there is something behind the bitmaps of a split index")
		}
		if err != nil {
			return err
		}
	}
	x.heads = make(map[int][]byte, x.own.unnamed)
	c := x.own.cursor(0)
	for i := range x.base.count {
		if !x.replaced.has(i) {
			continue
		}
		if len(x.heads) == x.own.unnamed {
			return damaged("a replaced entry is missing")
		}
		if err := c.next(); err != nil {
			return err
		}
		x.heads[i] = c.head
	}
	if len(x.heads) != x.own.unnamed {
		return damaged("an entry has no name")
	}
	return nil
}

// FoldCase lets a look-up that finds nothing find names in another case, as git does if core.ignoreCase is set. Only ASCII
// letters have a case. The names may take several times as much memory as the index.
func (x *Index) FoldCase() error {
	folded := part{list: []named{}}
	room := 64 * (len(x.own.data) + len(x.base.data)) // packed names may be much longer than the file
	for _, p := range [...]*part{&x.own, &x.base} {
		folded.isSparse = folded.isSparse || p.isSparse
		for c := p.cursor(0); c.at < p.count; {
			if err := c.next(); err != nil {
				return err
			}
			if len(c.name) == 0 || p == &x.base && x.deleted.has(c.at-1) {
				continue
			}
			e := named{[]byte(lower(unsafe.String(unsafe.SliceData(c.name), len(c.name)))), c.head}
			if head := x.heads[c.at-1]; head != nil && p == &x.base {
				e.head = head
			}
			if room -= len(e.name); room < 0 {
				return errors.New("git's index has names that are too long for core.ignoreCase")
			}
			folded.list = append(folded.list, e)
		}
	}
	slices.SortStableFunc(folded.list, func(a, b named) int { return bytes.Compare(a.name, b.name) })
	folded.list = slices.CompactFunc(folded.list, func(a, b named) bool { return bytes.Equal(a.name, b.name) })
	folded.count = len(folded.list)
	x.folded = &Index{own: folded}
	return nil
}

// lower returns s with ASCII letters in lower case.
func lower(s string) string {
	isUpper := func(r rune) bool { return 'A' <= r && r <= 'Z' }
	if strings.IndexFunc(s, isUpper) < 0 {
		return s
	}
	b := []byte(s)
	for i, c := range b {
		if isUpper(rune(c)) {
			b[i] += 'a' - 'A'
		}
	}
	return string(b)
}

// A named is an entry of FoldCase.
type named struct{ name, head []byte }

// A part is the entries of one file, or of FoldCase.
type part struct {
	list     []named // unless nil, the entries, and there are no data
	data     []byte  // to the end of the entries
	hash     int
	begin    int  // where the entries begin
	isPacked bool // version 4: a name has what differs from the name before
	count    int
	unnamed  int // how many entries at the beginning replace some of the shared file
	isSparse bool
	marks    []mark
}

// A mark is where a search can begin. There is one each markEach entries, or fewer if names
// are long and packed, so that the names of all marks are no longer than the file.
type mark struct {
	name       string
	offset, at int // of the entry behind it, and its number
}

const markEach = 16

// check reads all entries once, sets the marks, and returns the end of the entries.
func (p *part) check() (end int, err error) {
	c := p.cursor(0)
	stage, marked, since := 0, p.begin, 0
	for range p.count {
		if err := c.next(); err != nil {
			return 0, err
		}
		if len(c.name) == 0 && c.at == p.unnamed+1 {
			p.unnamed++
			p.marks = []mark{{"", c.offset, c.at}}
			continue
		}
		if c.order > 0 || c.order == 0 && (stage == 0 || stage > c.stage) {
			return 0, damaged("%.100q is not in order", c.name)
		}
		stage = c.stage
		p.isSparse = p.isSparse || c.kind == Directory
		if since++; since >= markEach && (!p.isPacked || c.offset-marked >= len(c.name)) {
			name := unsafe.String(unsafe.SliceData(c.name), len(c.name)) // it lies in the file
			if p.isPacked {
				name = string(c.name)
			}
			p.marks = append(p.marks, mark{name, c.offset, c.at})
			marked, since = c.offset, 0
		}
	}
	return c.offset, nil
}

// A cursor reads entries one after the other.
type cursor struct {
	*part
	offset, at int // of the next entry, and its number

	// Of the entry that next has read:
	name  []byte // valid until the next call
	head  []byte // what stands before the name
	kind  Kind
	stage int // 0, or that of a version in conflict
	order int // of the name before and this one, as bytes.Compare gives it
}

// cursor returns a cursor that begins behind the mark before number i.
func (p *part) cursor(i int) cursor {
	if i == 0 {
		return cursor{part: p, offset: p.begin}
	}
	m := &p.marks[i-1]
	c := cursor{part: p, offset: m.offset, at: m.at}
	if p.isPacked {
		c.name = []byte(m.name)
	}
	return c
}

// before returns a cursor that is before the entry key, and at most a few entries before it.
func (p *part) before(key string) cursor {
	if p.list != nil {
		return cursor{part: p, at: sort.Search(len(p.list), func(i int) bool { return string(p.list[i].name) >= key })}
	}
	return p.cursor(sort.Search(len(p.marks), func(i int) bool { return p.marks[i].name >= key }))
}

// next reads an entry. The caller has counted that there is one.
// On a cursor behind a mark, order is wrong at first, unless names are packed.
func (c *cursor) next() error {
	if c.list != nil {
		c.name, c.head = c.list[c.at].name, c.list[c.at].head
		c.kind = kindOf(c.head)
		c.at++
		return nil
	}
	const nameMask, extended = 0xfff, 0x4000
	rest := c.data[c.offset:]
	head := hashAt + c.hash + 2
	if len(rest) < head+2 { // there is room for a name and its end
		return errShort
	}
	flags := binary.BigEndian.Uint16(rest[head-2:])
	if flags&extended != 0 {
		if more := binary.BigEndian.Uint16(rest[head:]); more&^0x6000 != 0 { // what is outside a sparse checkout, and what is to be added
			return damaged("an entry has unknown flags %#x", more)
		}
		head += 2
	}
	c.head = rest[:head:head]
	kept := 0 // how much of the name before this one begins with, in version 4
	if c.isPacked {
		dropped, n := varint(rest[head:])
		if n == 0 || dropped > uint64(len(c.name)) {
			return damaged("an entry goes on from a name that is too short")
		}
		head += n
		kept = len(c.name) - int(dropped)
	}
	length := bytes.IndexByte(rest[head:], 0)
	if length < 0 {
		return errShort
	}
	name, size := rest[head:head+length], head+length+1
	if short := int(flags & nameMask); short != min(kept+length, nameMask) {
		return damaged("a name has %d bytes and not %d", kept+length, short)
	}
	c.order = bytes.Compare(c.name[kept:], name)
	if c.isPacked {
		c.name = append(c.name[:kept], name...)
	} else {
		c.name = name
		if size = (size + 7) &^ 7; size > len(rest) {
			return errShort
		}
	}
	c.offset += size
	c.at++
	c.stage = int(flags>>12) & 3
	c.kind = kindOf(c.head)
	if c.kind == None || c.kind == Directory && !bytes.HasSuffix(c.name, []byte("/")) {
		return damaged("%.100q has the mode %o", c.name, binary.BigEndian.Uint32(rest[modeAt:]))
	}
	return nil
}

const modeAt, sizeAt, hashAt = 24, 36, 40

func kindOf(head []byte) Kind {
	switch binary.BigEndian.Uint32(head[modeAt:]) >> 12 {
	case 0o16:
		return Repository
	case 0o4:
		return Directory
	case 0o10, 0o12:
		return File
	}
	return None
}

// varint reads a number as git writes it in version 4, and returns how many bytes it has: 0 if it is not one.
func varint(b []byte) (v uint64, n int) {
	for n < min(len(b), 8) {
		c := b[n]
		n++
		if v |= uint64(c & 0x7f); c < 0x80 {
			return v, n
		}
		v = (v + 1) << 7
	}
	return 0, 0
}

// Kind returns what the index has at path, which is relative to the top of the work tree, with slashes.
func (x *Index) Kind(path string) Kind {
	if kind := x.first(path, false); kind != None {
		return kind
	}
	if x.isInSparse(path) {
		return File // or nothing: only git's objects know
	}
	if x.folded != nil {
		return x.folded.Kind(lower(path))
	}
	return None
}

// HasBelow reports whether the index has something in the directory of this path, which ends with a slash.
func (x *Index) HasBelow(dir string) bool {
	return x.first(dir, true) != None || x.isInSparse(dir) || x.folded != nil && x.folded.HasBelow(lower(dir))
}

// isInSparse reports whether a sparse index has a directory above path in place of what is in that.
func (x *Index) isInSparse(path string) bool {
	if !x.own.isSparse && !x.base.isSparse {
		return false
	}
	for i := range len(path) {
		if path[i] == '/' && x.first(path[:i+1], false) == Directory {
			return true
		}
	}
	return false
}

// first returns the kind of an entry with the name key or, with isPrefix, of one whose name begins with key.
func (x *Index) first(key string, isPrefix bool) Kind {
	for _, p := range [...]*part{&x.own, &x.base} {
		c := p.before(key)
		for c.at < p.count && c.next() == nil {
			switch name := unsafe.String(unsafe.SliceData(c.name), len(c.name)); {
			case name < key || p == &x.base && x.deleted.has(c.at-1):
			case name == key || isPrefix && strings.HasPrefix(name, key):
				if head := x.heads[c.at-1]; head != nil && p == &x.base {
					return kindOf(head)
				}
				return c.kind
			case true:
				c.at = p.count
			}
		}
	}
	return None
}

// An Entry is what the index has in a directory.
type Entry struct {
	Name string // with a slash behind it: a directory in which the index has something
	head []byte // what the index says besides its name; nil: a directory
}

// NameAndType returns the name without a slash, and whether e is a directory or not. A file may be a link.
func (e *Entry) NameAndType() (name string, typ fs.FileMode) {
	if e.head == nil {
		return e.Name[:len(e.Name)-1], fs.ModeDir
	}
	return e.Name, 0
}

// A Dir is what the index has in a directory, in the order of names. Each name comes once.
type Dir struct {
	Entries    []Entry // files, and directories with files in them
	Submodules []Entry
	Known      bool // else only git's objects know, and all counts as tracked: see Directory
	folded     *Dir // with names in lower case; nil: case matters
}

// Has reports whether a file, or what is below a directory, is tracked.
func (d *Dir) Has(name []byte, typ fs.FileMode) bool {
	key := unsafe.String(unsafe.SliceData(name), len(name))
	if typ == fs.ModeDir {
		key += "/"
	}
	return !d.Known || d.Find(key) != nil
}

// Find returns the entry with this name, or nil.
func (d *Dir) Find(name string) *Entry {
	i, found := slices.BinarySearchFunc(d.Entries, name, func(e Entry, name string) int { return strings.Compare(e.Name, name) })
	switch {
	case found:
		return &d.Entries[i]
	case d.folded != nil:
		return d.folded.Find(lower(name))
	}
	return nil
}

// In sets d to what the index has in the directory of this path, which ends with a slash unless it is "", the top.
func (x *Index) In(d *Dir, path string) {
	d.Entries, d.Submodules, d.Known, d.folded = d.Entries[:0], nil, !x.isInSparse(path), nil
	if x.folded != nil && d.Known {
		d.folded = &Dir{}
		x.folded.In(d.folded, lower(path))
		d.Known = d.folded.Known
	}
	if !d.Known {
		return
	}
	d.Entries = x.own.in(d.Entries, path, nil, nil)
	if x.base.count > 0 {
		d.Entries = x.base.in(d.Entries, path, x.deleted, x.heads)
		slices.SortStableFunc(d.Entries, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
		d.Entries = slices.CompactFunc(d.Entries, func(a, b Entry) bool { return a.Name == b.Name })
	}
	d.Entries = slices.DeleteFunc(d.Entries, func(e Entry) bool {
		is := e.head != nil && kindOf(e.head) == Repository
		if is {
			d.Submodules = append(d.Submodules, e)
		}
		return is
	})
}

func (p *part) in(list []Entry, dir string, deleted bitmap, heads map[int][]byte) []Entry {
	last := ""
	for c := p.before(dir); c.at < p.count && c.next() == nil; {
		name := unsafe.String(unsafe.SliceData(c.name), len(c.name))
		rest, isIn := strings.CutPrefix(name, dir)
		switch {
		case name == "" || deleted.has(c.at-1) || !isIn && name < dir:
			continue
		case !isIn:
			return list
		}
		e := Entry{Name: rest, head: c.head}
		slash := strings.IndexByte(rest, '/')
		if slash >= 0 {
			e = Entry{Name: rest[:slash+1]}
		}
		if e.Name == last || e.Name == ".git/" { // git itself accepts no name in .git
			continue
		}
		if p.isPacked {
			e.Name = strings.Clone(e.Name)
		}
		last = e.Name
		if head := heads[c.at-1]; head != nil && slash < 0 {
			e.head = head
		}
		list = append(list, e)
		if slash >= 0 {
			if behind := p.before(dir + last[:slash] + "0"); behind.at > c.at { // '0' comes after the slash
				c = behind
			}
		}
	}
	return list
}

// A bitmap has a bit for each entry of a shared index.
type bitmap []uint64

func (b bitmap) has(i int) bool { return i/64 < len(b) && b[i/64]>>(i%64)&1 != 0 }

// readBitmap reads a compressed bitmap of at most count bits, and returns what is behind it. The bitmap is a
// row of words of 64 bits. A word says how often a word of equal bits is repeated, and how many words with bits as they
// are follow it.
func readBitmap(data []byte, count int) (b bitmap, rest []byte, err error) {
	if len(data) < 8 {
		return nil, nil, errShort
	}
	words, data := binary.BigEndian.Uint32(data[4:]), data[8:]
	if uint64(len(data)) < 8*uint64(words)+4 {
		return nil, nil, errShort
	}
	rest = data[8*words+4:] // behind the number of the last word of this kind
	b = make(bitmap, (count+63)/64)
	at := uint64(0)
	put := func(word uint64) error {
		if word == 0 {
			at++
			return nil
		}
		if at >= uint64(len(b)) || at == uint64(len(b))-1 && count%64 != 0 && word>>(count%64) != 0 {
			return damaged("a bitmap is longer than the shared index")
		}
		b[at] = word
		at++
		return nil
	}
	for data = data[:8*words]; len(data) > 0; {
		word := binary.BigEndian.Uint64(data)
		data = data[8:]
		equal, asAre := word>>1&0xffffffff, word>>33
		if word&1 == 0 {
			at += equal
		} else {
			for range equal {
				if err := put(^uint64(0)); err != nil {
					return nil, nil, err
				}
			}
		}
		if uint64(len(data))/8 < asAre {
			return nil, nil, errShort
		}
		for range asAre {
			if err := put(binary.BigEndian.Uint64(data)); err != nil {
				return nil, nil, err
			}
			data = data[8:]
		}
	}
	return b, rest, nil
}
