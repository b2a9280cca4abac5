package cachefile

import (
	"context"
	"iter"
	mathbits "math/bits"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
)

// A Store is one cache file: what was loaded, and what this run adds.
// Lookup, MarkSeen and Add may run concurrently with each other and with Save.
type Store struct {
	Path    string // absolute, links resolved
	key     [32]byte
	loaded  *image
	seen    []atomic.Uint32 // a bit for each loaded record
	workers []workerBuffer
	Links   uint64 // the caller's number for how runs that list treat links; a load gets that of the last save

	lock func(ctx context.Context, file string) (unlock func(), locked bool, err error) // the function lock; tests set another

	mu      sync.Mutex                                    // held by save; guards the fields below
	disk    place                                         // the end of what is known to be in the file
	pending []chunk                                       // taken from the workers by a save that failed
	hook    func(size int, do func(size int) error) error // set by a test: see step
}

// Load reads file. The store is never nil: it is empty if the file is missing,
// damaged, of another format or has another key. The error is for information:
// the file exists and cannot be read, or is not a cache at all.
func Load(file string, key [32]byte, workers int) (*Store, error) {
	s := &Store{Path: resolve(file), key: key, workers: make([]workerBuffer, max(workers, 1)), lock: lock}
	im, err := readImage(s.Path, key)
	s.loaded, s.disk, s.Links = im, im.place, im.links
	s.seen = make([]atomic.Uint32, (im.snapshot.records+im.log.records)/32+1)
	for i := range im.overridden {
		s.seen[2*i].Store(uint32(im.overridden[i]))
		if i := 2*i + 1; i < len(s.seen) {
			s.seen[i].Store(uint32(im.overridden[i/2] >> 32))
		}
	}
	return s, err
}

// InMemory returns a Store without a file, which has no records.
func InMemory(workers int) *Store {
	return &Store{loaded: &image{}, workers: make([]workerBuffer, max(workers, 1)), seen: make([]atomic.Uint32, 1)}
}

// resolve follows links, even to a file that does not exist yet, so that a rename
// replaces the file and not a link to it. It also makes the name independent of the
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

// maxLinks is how many links resolve follows to a file that does not exist. Linux follows the same number.
const maxLinks = 40

// IsOwnSuffix reports whether the path of the cache file plus rest is the path of the
// cache file, of its lock or of one of its temporary files.
func IsOwnSuffix(rest string) bool {
	number, isTemp := strings.CutPrefix(rest, tempSuffix)
	return rest == "" || rest == lockSuffix || isTemp && strings.Trim(number, "-0123456789abcdef") == ""
}

// Dir returns what was loaded of the directory with this path, which has a slash at its
// end, or is empty for root. Only one goroutine may use a Dir.
func (s *Store) Dir(path string) Dir { return s.loaded.dir(path) }

// Find returns the loaded record of the file name in d and its number, which MarkSeen and
// Save take. If inode is not 0, Find first searches by inode, which takes a part of the time
// of a search by name. Find does not allocate. The record aliases the loaded file and stays
// valid as long as it is referenced. Find does not see records added in this run.
func (s *Store) Find(d *Dir, inode uint64, name string) (rec View, n int, ok bool) {
	return s.loaded.find(d, inode, name)
}

// Lookup is Find for a path.
func (s *Store) Lookup(path string) (rec View, n int, ok bool) {
	i := strings.LastIndexByte(path, '/') + 1
	d := s.Dir(path[:i])
	return s.Find(&d, 0, path[i:])
}

// MarkSeen notes that the file of record n is still there.
func (s *Store) MarkSeen(n int) {
	word, bit := &s.seen[n/32], uint32(1)<<(n%32)
	if word.Load()&bit == 0 { // workers share the words: write only what changes
		word.Or(bit)
	}
}

// IsSeen reports whether MarkSeen has been called for record n.
func (s *Store) IsSeen(n int) bool { return s.seen[n/32].Load()&(1<<(n%32)) != 0 }

// Unseen returns the loaded records that MarkSeen has not marked, with their numbers.
func (s *Store) Unseen() iter.Seq2[int, View] { return s.UnseenIn(nil) }

// UnseenIn is Unseen for the directories for which in returns true.
func (s *Store) UnseenIn(in func(dir string) bool) iter.Seq2[int, View] {
	return func(yield func(int, View) bool) {
		for b := range s.loaded.blocks() {
			isIn := in == nil
			for n := b.first; n < b.first+b.n; n++ {
				unseen := ^s.seen[n/32].Load() >> (n % 32)
				if unseen == 0 {
					n |= 31 // the last of the word
					continue
				}
				n += mathbits.TrailingZeros32(unseen)
				if n >= b.first+b.n {
					break
				}
				if isIn = isIn || in(string(b.path)); !isIn {
					break
				}
				if rec, ok := b.view(n - b.first); ok && !yield(n, rec) {
					return
				}
			}
		}
	}
}

// All returns the loaded records that no other record replaces or deletes, with their numbers.
func (s *Store) All() iter.Seq2[int, View] {
	return func(yield func(int, View) bool) {
		for b := range s.loaded.blocks() {
			for i := range b.n {
				if s.loaded.overridden.has(b.first + i) {
					continue
				}
				if rec, ok := b.view(i); ok && !yield(b.first+i, rec) {
					return
				}
			}
		}
	}
}

// Dirs returns the directories of the records of All, some of them twice.
func (s *Store) Dirs() iter.Seq[string] {
	return func(yield func(string) bool) {
		for b := range s.loaded.blocks() {
			for i := range b.n {
				if !s.loaded.overridden.has(b.first + i) {
					if !yield(string(b.path)) {
						return
					}
					break
				}
			}
		}
	}
}

// A workerBuffer holds what one worker has added since the last save.
type workerBuffer struct {
	mu   sync.Mutex // contended only by a save in the middle of a run
	cur  chunk
	full []chunk
	_    [64]byte // workers do not share cache lines
}

// Add keeps a copy of rec for the next save. Each worker w adds to a buffer of
// its own. A path over 1 MiB or a result over 256 MiB is not kept: such a
// file is processed in each run.
func (s *Store) Add(w int, rec Record) {
	if len(rec.Path) > maxPath || len(rec.Result) > maxResult {
		return
	}
	wb := &s.workers[w]
	wb.mu.Lock()
	defer wb.mu.Unlock()
	wb.full = wb.cur.add(wb.full, rec)
}

// take returns what the workers have added since the last call.
func (s *Store) take() []chunk {
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
