package fileproc

import (
	"bytes"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"unsafe"

	"github.com/fileproc/fileproc/internal/gitignore"
)

// A sink takes what a directory lists: it filters, counts and keeps.
type sink struct {
	l    *local
	node *node
	dir  directory
	b    *batch
	subs []*node
	// links are the symbolic links that are to be resolved.
	links []string
	dirs  []listedDir // of a sequence
	kept  bool        // names are in the arena already
	// holds says that entries are kept in node.held until all are listed.
	holds bool
}

// A listedDir is a directory that comes behind the first files of a sink.
type listedDir struct {
	segment *segment
	files   int
}

// holds reports whether the entries of a directory can be judged, or are to be
// processed, only when all of them are known.
func (r *run) holds() bool {
	return len(r.opts.ignoreNames) > 0 || len(r.opts.SkipMarked) > 0 || r.order != nil
}

// held is what the listing of one directory has given.
type held struct {
	entries []heldEntry
	ignore  []string // names of ignore files
	marked  bool     // there is a file of Options.SkipMarked
	over    bool     // all has been listed
}

type heldEntry struct {
	name string
	typ  fs.FileMode
}

// add takes one entry. The bytes of name are copied if they are kept.
func (s *sink) add(name []byte, typ fs.FileMode) {
	l := s.l
	if !isName(name) || !l.run.takes(name) {
		s.fail(&sysError{"readdir", badName(name)})
		return
	}
	if typ == typeUnknown {
		if l.run.cancelled() {
			return
		}
		kept := l.arena.add(name)
		st, err := s.dir.stat(kept)
		if err != nil {
			l.failFound("stat", s.node, kept, err)
			return
		}
		typ = st.Mode.Type()
	}
	if s.holds {
		h := s.node.held
		h.entries = append(h.entries, heldEntry{l.arena.add(name), typ})
		if typ == 0 && slices.Contains(l.run.opts.ignoreNames, string(name)) {
			h.ignore = append(h.ignore, string(name))
		}
		h.marked = h.marked || typ == 0 && slices.Contains(l.run.opts.SkipMarked, string(name))
		return
	}
	s.place(name, typ)
}

// isName reports whether name is one component of a path. What a listing has
// given need not be: an fs.FS may be wrong or hostile, an image damaged.
func isName(name []byte) bool {
	return len(name) > 0 && !isDot(name) && bytes.IndexByte(name, '/') < 0
}

// takes reports whether name names nothing else to what is read. An fs.FS can
// list a NUL byte, at which a system call would end the name. An operating
// system may have separators, drives and devices besides the slash.
func (r *run) takes(name []byte) bool {
	if r.opts.FS != nil {
		return bytes.IndexByte(name, 0) < 0
	}
	return filepath.Separator == '/' || bytes.IndexByte(name, filepath.Separator) < 0 && filepath.IsLocal(string(name))
}

// isDot reports whether name is "." or "..".
func isDot(name []byte) bool {
	return name[0] == '.' && (len(name) == 1 || len(name) == 2 && name[1] == '.')
}

// badName is the failure of an entry whose name is none.
func badName(name []byte) error {
	return fmt.Errorf("%q cannot be the name of an entry: %w", name, fs.ErrInvalid)
}

// place takes an entry of which the type is known.
func (s *sink) place(name []byte, typ fs.FileMode) {
	switch {
	case typ == fs.ModeDir:
		s.addDir(name)
	case typ == fs.ModeSymlink && s.l.run.opts.Symlinks != SymlinksSkip:
		kept := s.keep(name)
		if s.l.run.order == nil {
			s.links = append(s.links, kept)
		} else {
			s.addSub(s.node.linksOf([]string{kept}))
		}
	default:
		s.addFile(name, typ)
	}
}

// release takes the entries that were held.
func (s *sink) release() {
	entries := s.node.held.entries
	s.node.held, s.holds, s.kept = nil, false, true
	if s.l.run.order != nil {
		sortUntil(entries, func(a, b heldEntry) int { return strings.Compare(a.name, b.name) }, s.l.run.cancelled)
	}
	for _, e := range entries {
		if s.l.run.cancelled() { // of a directory there may be very many
			return
		}
		s.place(unsafe.Slice(unsafe.StringData(e.name), len(e.name)), e.typ)
	}
}

// sortUntil sorts s, of which there may be very many, unless the run is cancelled:
// then s is in any order, soon. All that is left compares as equal, which
// slices.SortFunc takes for sorted.
func sortUntil[E any](s []E, compare func(a, b E) int, cancelled func() bool) {
	calls, over := 0, false
	slices.SortFunc(s, func(a, b E) int {
		if calls++; calls%1024 == 0 {
			over = over || cancelled()
		}
		if over {
			return 0
		}
		return compare(a, b)
	})
}

// addFile takes an entry that is no directory.
func (s *sink) addFile(name []byte, typ fs.FileMode) {
	l := s.l
	l.counts.found++
	if why := l.declines(s.node, name, typ); why != noReason {
		l.counts.skipped[why]++
		return
	}
	if s.b == nil {
		s.b = l.newBatch(s.node)
	}
	s.b.entries = append(s.b.entries, entry{s.keep(name)})
}

// keep returns name in the arena.
func (s *sink) keep(name []byte) string {
	if s.kept {
		return unsafe.String(unsafe.SliceData(name), len(name))
	}
	return s.l.arena.add(name)
}

// fail tells of an entry that has no name to tell.
func (s *sink) fail(err error) {
	s.l.failFound("readdir", s.node, "", err)
}

func (s *sink) addDir(name []byte) {
	l := s.l
	if l.prunes(s.node, name) {
		return
	}
	kept := s.keep(name)
	asked := l.run.opts.SelectDir != nil // by begin, which then does what visitDir does here
	var sub *node
	if s.descends() || asked && l.run.visitDir != nil {
		sub = s.node.child(kept)
	}
	s.addSub(sub)
	if l.run.visitDir == nil || asked {
		return
	}
	if l.run.order != nil {
		defer func(was place) { l.place = was }(l.place)
		l.place = place{segment: s.dirs[len(s.dirs)-1].segment, file: -1}
	}
	if !l.run.visitDir(l, s.node, kept, func() (Stat, error) { return s.dir.stat(kept) }) && sub != nil {
		s.subs = s.subs[:len(s.subs)-1] // one failure of a directory is enough
		if sub.segment != nil {
			sub.segment.node, sub.segment.spread = nil, true
		}
	}
}

// addSub takes a directory to be listed, or nil for one that is not.
func (s *sink) addSub(n *node) {
	if n != nil {
		s.subs = append(s.subs, n)
	}
	if s.l.run.order == nil {
		return
	}
	d := listedDir{segment: &segment{node: n, spread: n == nil}}
	if n != nil {
		n.segment = d.segment
	}
	if s.b != nil {
		d.files = len(s.b.entries)
	}
	s.dirs = append(s.dirs, d)
}

// descends reports whether Options.MaxDepth lets the run go into directories
// that are found here.
func (s *sink) descends() bool { return s.l.run.opts.opensDepth(s.node.depth + 1) }

// opensDepth reports whether Options.MaxDepth lets directories at a depth be opened.
func (o *Options) opensDepth(depth int) bool { return o.MaxDepth == 0 || depth < o.MaxDepth }

// declines returns why the entry name of n, of the type typ and no directory,
// is skipped by what is known before it is opened, or noReason.
func (l *local) declines(n *node, name []byte, typ fs.FileMode) int {
	o := l.run.opts
	switch {
	case !o.hasSuffix(unsafe.String(unsafe.SliceData(name), len(name))):
		return skipSuffix
	case o.SkipHidden && name[0] == '.':
		return skipHidden
	}
	if l.run.filter.needsPath {
		rel := l.rel(n, name)
		switch {
		case !l.run.filter.keeps(rel), l.excludesBehind(n, name):
			return skipPattern
		case !o.inShard(rel):
			return skipShard
		}
	}
	if l.ignores(n, name, false) {
		return skipIgnored
	}
	if typ != 0 {
		return skipNotRegular
	}
	return noReason
}

// prunes reports whether the directory name of n is left out, with all that is
// in it, so that it is not opened.
func (l *local) prunes(n *node, name []byte) bool {
	o, f := l.run.opts, &l.run.filter
	if o.SkipHidden && name[0] == '.' {
		return true
	}
	return f.needsPath && (f.prunes(l.rel(n, name)) || l.excludesBehind(n, name)) || l.ignores(n, name, true)
}

// ignores reports whether the ignore files of n and above leave out an entry.
func (l *local) ignores(n *node, name []byte, isDir bool) bool {
	return n.ignore != nil &&
		n.ignore.Match(l.dirPath(n), unsafe.String(unsafe.SliceData(name), len(name)), isDir) == gitignore.Ignored
}

// rel returns the slash-separated path of the entry name of n, valid until the
// next call.
func (l *local) rel(n *node, name []byte) string {
	l.dirPath(n)
	l.path = append(l.path[:l.dirLen], name...)
	return unsafe.String(unsafe.SliceData(l.path), len(l.path))
}

// dirPath returns n's path with a slash behind each name, valid until the next
// call. Most calls are about the directory of the call before, or one in it.
func (l *local) dirPath(n *node) string {
	switch {
	case n == l.pathOf:
	case n.parent != nil && n.parent == l.pathOf && !n.isLinks():
		l.path = append(append(l.path[:l.dirLen], n.name...), '/')
		l.dirLen = len(l.path)
	default:
		l.path = n.appendPath(l.path[:0])
		l.dirLen = len(l.path)
	}
	l.pathOf = n
	return unsafe.String(unsafe.SliceData(l.path), l.dirLen)
}

// A filter is Options.Include and Exclude, prepared.
type filter struct {
	include, exclude []glob
	needsPath        bool // something is judged by an entry's path
}

func newFilter(o *Options) filter {
	f := filter{needsPath: len(o.Include) > 0 || len(o.Exclude) > 0 || o.Shards > 1}
	for _, p := range o.Include {
		f.include = append(f.include, globsOf(p)...)
	}
	for _, p := range o.Exclude {
		f.exclude = append(f.exclude, globsOf(p)...)
	}
	return f
}

// keeps reports whether the patterns let the file rel be processed.
func (f *filter) keeps(rel string) bool {
	if f.excludes(rel) {
		return false
	}
	for _, g := range f.include {
		if g.match(rel) {
			return true
		}
	}
	return len(f.include) == 0
}

// prunes reports whether the patterns leave out all that is in the directory rel.
func (f *filter) prunes(rel string) bool {
	if f.excludes(rel) {
		return true
	}
	for _, g := range f.include {
		if g.reaches(rel) {
			return false
		}
	}
	return len(f.include) > 0
}

func (f *filter) excludes(rel string) bool {
	for _, g := range f.exclude {
		if g.match(rel) {
			return true
		}
	}
	return false
}

// inShard reports whether the file rel belongs to the shard that was asked for.
func (o *Options) inShard(rel string) bool {
	return o.Shards <= 1 || shardOf(rel, o.Shards) == o.Shard
}

// shardOf returns which of n shards the path rel belongs to. It is the same for
// ever, since the shards of a job may run different versions.
func shardOf(rel string, n int) int {
	// FNV-1a, 64 bits, as hash/fnv computes it, then the 64-bit finalizer of
	// MurmurHash3, since with FNV alone the last bytes reach only some bits.
	h := uint64(0xcbf29ce484222325)
	for i := range len(rel) {
		h = (h ^ uint64(rel[i])) * 0x100000001b3
	}
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	h ^= h >> 33
	return int(h % uint64(n))
}

// binaryPrefix is how many bytes of a file are searched for a NUL: 8 KiB, about
// what git looks at.
const binaryPrefix = 8 << 10

func isBinary(p []byte) bool {
	return bytes.IndexByte(p[:min(len(p), binaryPrefix)], 0) >= 0
}
