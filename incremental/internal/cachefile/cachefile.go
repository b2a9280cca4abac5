package cachefile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	mathbits "math/bits"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
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

// Save writes what was added since the last save, and deletes the records with
// the numbers in deleted. It appends to the log, or writes a new snapshot if
// there is none or if the log has become long. It keeps the records that other
// processes have saved since the load. After an error the file is as it was or holds a
// part of what was added, and the next save tries again. Save waits for another writer
// until ctx ends, but not longer than lockWait.
//
// Save may be called several times, also while workers go on adding.
func (s *Store) Save(ctx context.Context, deleted []int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	added := append(s.pending, s.take()...)
	s.pending = nil
	if len(added) == 0 && len(deleted) == 0 {
		return nil
	}
	if err := s.write(ctx, added, s.tombstones(deleted)); err != nil {
		s.pending = added
		return err
	}
	return nil
}

// tombstones returns records that delete the loaded records with these numbers.
func (s *Store) tombstones(deleted []int) []chunk {
	var full []chunk
	var cur chunk
	for _, n := range deleted {
		if rec, ok := s.loaded.at(n); ok {
			full = cur.add(full, Record{Path: rec.Path(), ID: rec.ID, Outcome: tombstone})
		}
	}
	if cur.records > 0 {
		full = append(full, cur)
	}
	return full
}

func (s *Store) write(ctx context.Context, added, tombstones []chunk) error {
	unlock, locked, err := s.lock(ctx, s.Path)
	if err != nil {
		return s.failed("take the lock", err)
	}
	defer unlock()
	st := stamp{ThisBoot(), Clock().UnixNano(), s.Links}
	temp := s.Path + tempSuffix
	if !locked {
		temp += "-" + strconv.FormatUint(rand.Uint64(), 16)
	}
	base, err := s.refresh()
	if err != nil {
		return s.failed("read what is there", err)
	}
	if s.disk.end > 0 && !s.isFull(added, tombstones) {
		return s.append(st, tombstones, added)
	}
	if base == nil {
		if base, err = readImage(s.Path, s.key); err != nil {
			return s.failed("read what is there", err)
		}
	}
	os.Remove(temp) // left by a writer that was killed: nobody else writes this file under the lock
	return s.replace(st, temp, base, added, tombstones)
}

// Clock gives the time of a save. Tests set it.
var Clock = time.Now

func (s *Store) failed(step string, err error) error {
	return fmt.Errorf("incremental: save %s: %s: %w", s.Path, step, err)
}

// logLimit returns the length of the longest log beside a snapshot of this size. Measured:
// a new snapshot costs as much as 10 loads of a log with the same records do beyond the load
// of a snapshot. If 1 % of the files change from run to run, the sum of both costs is least
// with a log of a seventh of the snapshot. A log of the length returned doubles the time of
// a load at most.
func logLimit(snapshot int64) int64 { return max(snapshot/8, 64<<10) }

// isFull reports whether the log would be too long with groups at its end.
func (s *Store) isFull(groups ...[]chunk) bool {
	log := s.disk.end - s.disk.snapshotEnd
	for _, c := range slices.Concat(groups...) {
		log += int64(len(c.b))
	}
	return log > logLimit(s.disk.snapshotEnd)
}

// Rewrites reports whether a save would write a new snapshot in place of the one there. To
// find out, it takes the workers' buffers, as a save does, and keeps them for the next save.
func (s *Store) Rewrites() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending = append(s.pending, s.take()...)
	return s.disk.end > 0 && len(s.pending) > 0 && s.isFull(s.pending)
}

// refresh brings s.disk up to date with the file, under the lock. It returns
// the image of the whole file if that is in memory already, else nil.
func (s *Store) refresh() (*image, error) {
	if end, ok := s.extended(); ok {
		s.disk.end = end
		if end == s.loaded.end && s.disk.generation == s.loaded.generation {
			return s.loaded, nil
		}
		return nil, nil
	}
	im, err := readImage(s.Path, s.key)
	if err != nil {
		return nil, err
	}
	s.disk = im.place
	if im.end == 0 {
		return s.loaded, nil // the file is gone or useless: it is made anew from what is in memory
	}
	return im, nil
}

// extended returns the end of the log if the file has the generation that s knows.
func (s *Store) extended() (end int64, ok bool) {
	if s.disk.end == 0 {
		return 0, false
	}
	f, err := open(s.Path, os.O_RDONLY)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() < s.disk.end {
		return 0, false
	}
	head := make([]byte, headerSize)
	if _, err := f.ReadAt(head, 0); err != nil {
		return 0, false
	}
	if h, ok := decodeHeader(head); !ok || h.generation != s.disk.generation || h.key != s.key {
		return 0, false
	}
	more := info.Size() - s.disk.end
	if more == 0 {
		return s.disk.end, true
	}
	if info.Size()-s.disk.snapshotEnd > maxLog(s.disk.snapshotEnd) {
		return 0, false
	}
	tail := make([]byte, more)
	if _, err := f.ReadAt(tail, s.disk.end); err != nil {
		return 0, false
	}
	return frames(tail, s.disk.end, s.disk.end, s.disk.generation), true
}

// append truncates what is behind the log, which is the torn tail of a killed writer, and writes frames at its end.
func (s *Store) append(st stamp, groups ...[]chunk) error {
	f, err := open(s.Path, os.O_RDWR)
	if err != nil {
		return s.failed("open to append", err)
	}
	end, err := s.appendTo(f, st, groups)
	if err != nil {
		f.Truncate(s.disk.end) // a failure of this does no harm: the tail is invalid
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return s.failed("close after appending", err)
	}
	s.disk.end = end
	return nil
}

func (s *Store) appendTo(f *os.File, st stamp, groups [][]chunk) (int64, error) {
	info, err := f.Stat()
	if err == nil && info.Size() > s.disk.end {
		err = s.step(0, func(int) error { return f.Truncate(s.disk.end) })
	}
	if err != nil {
		return 0, s.failed("truncate a torn tail", err)
	}
	end := s.disk.end
	var small []byte // frames that go out in one write
	flush := func() error {
		err := s.writeAt(f, small, end)
		end += int64(len(small))
		small = small[:0]
		return err
	}
	for _, group := range groups {
		for _, c := range group {
			c.seal(s.disk.generation, st)
			if small = append(small, c.b...); len(small) >= 4*chunkSize {
				if err := flush(); err != nil {
					return 0, s.failed("append", err)
				}
			}
		}
	}
	if err := flush(); err != nil {
		return 0, s.failed("append", err)
	}
	return end, nil
}

// step does one step of a save: a write of size bytes, or something else. A
// test can fail it, or stop after a part of the bytes.
func (s *Store) step(size int, do func(size int) error) error {
	if s.hook != nil {
		return s.hook(size, do)
	}
	return do(size)
}

func (s *Store) writeAt(f *os.File, b []byte, at int64) error {
	if len(b) == 0 {
		return nil
	}
	return s.step(len(b), func(size int) error {
		_, err := f.WriteAt(b[:size], at)
		return err
	})
}

// replace writes a new snapshot to temp, with the records of base that are not deleted and those in added, and renames temp to
// the path of the cache file.
func (s *Store) replace(st stamp, temp string, base *image, added, tombstones []chunk) error {
	h, err := s.writeTemp(st, temp, base, tombstones, added)
	if err != nil {
		os.Remove(temp)
		return err
	}
	if err := s.step(0, func(int) error { return patiently(func() error { return os.Rename(temp, s.Path) }) }); err != nil {
		os.Remove(temp)
		return s.failed("replace the file", err)
	}
	end := h.sumsAt() + h.sumsLen()
	s.disk = place{generation: h.generation, snapshotEnd: end, end: end}
	return nil
}

func (s *Store) writeTemp(st stamp, temp string, base *image, groups ...[]chunk) (h header, err error) {
	var f *os.File
	err = s.step(0, func(int) (err error) {
		// Results may come from files that only the caller may read: so the cache is private, too.
		f, err = os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		return err
	})
	if err != nil {
		return h, s.failed("create a temporary file", err)
	}
	if info, err := os.Stat(s.Path); err == nil && info.Mode().Perm() != 0o600 {
		f.Chmod(info.Mode().Perm()) // as the caller has set it; a failure leaves it private
	}
	w := newSnapshotWriter(func(b []byte, at int64) error { return s.writeAt(f, b, at) })
	if h, err = w.snapshot(header{generation: rand.Uint64(), key: s.key, stamp: st}, base, groups...); err != nil {
		f.Close()
		return h, s.failed("write a snapshot", err)
	}
	if err := f.Close(); err != nil { // before the rename: Windows renames no open file
		return h, s.failed("close a snapshot", err)
	}
	return h, nil
}

// patiently calls do, and on Windows repeats it after an error, for about a second: Windows refuses for a moment to rename a
// file that another process has open, and to open a file that another process renames.
func patiently(do func() error) error {
	err := do()
	for wait := time.Millisecond; err != nil && runtime.GOOS == "windows" && !errors.Is(err, fs.ErrNotExist) && wait < time.Second; wait *= 2 {
		time.Sleep(wait)
		err = do()
	}
	return err
}

// open opens the cache file.
func open(file string, flag int) (f *os.File, err error) {
	err = patiently(func() (err error) {
		f, err = os.OpenFile(file, flag, 0)
		return err
	})
	return f, err
}
