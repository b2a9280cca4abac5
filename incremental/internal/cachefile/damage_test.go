package cachefile

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

// smallFile writes a snapshot and three frames, one with a tombstone, and
// returns the bytes and, for each length of the file, what it holds.
func smallFile(t testing.TB) (whole []byte, states map[int]map[string]Record) {
	file := filepath.Join(t.TempDir(), "cache")
	states = map[int]map[string]Record{}
	s := mustLoad(t, file)
	save := func(recs ...Record) {
		for _, rec := range recs {
			s.Add(0, rec) // one worker: one frame
		}
		require.NoError(t, s.save(nil))
		states[int(s.disk.end)] = contents(t, mustLoad(t, file))
	}
	save(records(0, 6)...)
	save(changed(testRecord(1), 1), testRecord(6))
	s = mustLoad(t, file)
	_, n, _ := s.Lookup(testRecord(2).Path)
	require.NoError(t, s.save([]int{n}))
	states[int(s.disk.end)] = contents(t, mustLoad(t, file))
	save(changed(testRecord(1), 2))
	whole, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Len(t, states, 4)
	return whole, states
}

// loadBytes loads a file with these bytes.
func loadBytes(t testing.TB, b []byte) *Store { return mustLoad(t, writeFile(t, b)) }

func writeFile(t testing.TB, b []byte) string {
	file := filepath.Join(t.TempDir(), "cache")
	require.NoError(t, os.WriteFile(file, b, 0o600))
	return file
}

// A file that ends anywhere holds the snapshot and the whole frames up to there, and can be saved to.
func TestTorn(t *testing.T) {
	t.Parallel()
	whole, states := smallFile(t)
	file := writeFile(t, nil)
	for length := range len(whole) + 1 {
		want, last := map[string]Record{}, 0
		for end, state := range states {
			if last < end && end <= length {
				want, last = state, end
			}
		}
		require.NoError(t, os.WriteFile(file, whole[:length], 0o600))
		s := mustLoad(t, file)
		require.Equal(t, want, contents(t, s), length)
		mustSave(t, s, testRecord(9))
		after := maps.Clone(want)
		after[testRecord(9).Path] = testRecord(9)
		require.Equal(t, after, contents(t, mustLoad(t, s.Path)), length)
		info, err := os.Stat(s.Path)
		require.NoError(t, err)
		require.Equal(t, s.disk.end, info.Size(), "the torn tail is gone")
	}
}

// TestLoadWhileWritten: a load that meets a file that somebody copies into place gets all of it or nothing.
func TestLoadWhileWritten(t *testing.T) {
	t.Parallel()
	whole, states := smallFile(t)
	file := writeFile(t, whole)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
			_ = os.Truncate(file, headerSize)
			f, err := os.OpenFile(file, os.O_WRONLY, 0)
			if err == nil {
				_, _ = f.WriteAt(whole[headerSize:], headerSize)
				f.Close()
			}
		}
	}()
	for {
		s, _ := Load(file, testKey, 1) // Windows may refuse
		got := contents(t, s)
		known := len(got) == 0
		for _, state := range states {
			known = known || len(got) == len(state)
		}
		require.True(t, known)
		select {
		case <-done:
			return
		default:
		}
	}
}

// A file with one bit flipped holds one of the states that were saved, or nothing.
func TestBitFlips(t *testing.T) {
	t.Parallel()
	whole, states := smallFile(t)
	file := writeFile(t, whole)
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	for i := range whole {
		for bit := range 9 {
			if bit < 8 && !testtree.Takes(i+bit) {
				continue
			}
			_, err := f.WriteAt([]byte{whole[i] ^ byte(1<<bit)}, int64(i)) // the ninth puts it back
			require.NoError(t, err)
			got := contents(t, mustLoad(t, file))
			known := len(got) == 0
			for _, state := range states {
				known = known || maps.EqualFunc(got, state, func(a, b Record) bool { return a.ID == b.ID && bytes.Equal(a.Result, b.Result) })
			}
			require.True(t, known, "byte %d bit %d", i, bit)
		}
	}
}

// A frame that belongs to another snapshot is invalid.
func TestOtherGeneration(t *testing.T) {
	t.Parallel()
	whole, states := smallFile(t)
	other, _ := smallFile(t)
	end := slices.Min(slices.Collect(maps.Keys(states))) // of the snapshot
	s := loadBytes(t, append(whole[:end:end], other[end:]...))
	require.Equal(t, states[end], contents(t, s))
}

// A file that somebody else has put in the place of the cache since the load is reported and left as it is, be it longer or shorter.
func TestForeignSinceLoad(t *testing.T) {
	t.Parallel()
	whole, _ := smallFile(t)
	for _, size := range []int{10, len(whole), 3 * len(whole)} {
		s := loadBytes(t, whole)
		require.Positive(t, s.disk.end)
		foreign := bytes.Repeat([]byte("my notes\n"), size)
		require.NoError(t, os.WriteFile(s.Path, foreign, 0o600))
		for range 2 {
			s.Add(0, testRecord(9))
			require.ErrorIs(t, s.save(nil), errForeign)
			left, err := os.ReadFile(s.Path)
			require.NoError(t, err)
			require.True(t, bytes.Equal(foreign, left))
		}
		require.NoError(t, os.Remove(s.Path))
		require.NoError(t, s.save(nil), "what it has kept is saved once there is room")
		require.Contains(t, contents(t, mustLoad(t, s.Path)), testRecord(9).Path)
	}
}

// An append that is long goes out in several writes. If one of them fails, the file is as it was.
func TestLongAppend(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "cache")
	large := Record{Path: "large", Result: make([]byte, 11<<20)}
	mustSave(t, mustLoad(t, file), large)
	s := mustLoad(t, file)
	var added []Record
	for i := range 5 {
		added = append(added, Record{Path: fmt.Sprint("added", i), Result: make([]byte, chunkSize)})
	}
	var writes []int
	fails := -1
	s.hook = func(size int, do func(int) error) error {
		if size == 0 {
			return do(0)
		}
		writes = append(writes, size)
		if len(writes)-1 == fails {
			return errors.Join(do(size/2), errInjected)
		}
		return do(size)
	}
	for _, rec := range added {
		s.Add(0, rec)
	}
	before := s.disk
	for fails = range 2 {
		writes = nil
		require.ErrorIs(t, s.save(nil), errInjected)
		require.Equal(t, before, s.disk)
		require.Len(t, contents(t, mustLoad(t, file)), 1)
	}
	writes, fails = nil, -1
	require.NoError(t, s.save(nil))
	require.Equal(t, before.generation, s.disk.generation)
	require.Len(t, writes, 2)
	require.GreaterOrEqual(t, writes[0], 4*chunkSize)
	require.Less(t, writes[0], 6*chunkSize)
	require.Len(t, contents(t, mustLoad(t, file)), 6)
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, s.disk.end, info.Size())
}

// A save does not make a new snapshot from memory once another process has replaced the file, even if the log ends where it ended before.
func TestSameEndOfAnotherGeneration(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "cache")
	mustSave(t, mustLoad(t, file), records(0, 1000)...)
	mustSave(t, mustLoad(t, file), changed(testRecord(0), 1))
	s := mustLoad(t, file)
	want := asMap()
	for _, rec := range records(0, 1000) {
		rec.ID.ModTime++ // as long in the file, but another one
		want[rec.Path] = rec
	}
	require.NoError(t, os.Remove(file))
	mustSave(t, mustLoad(t, file), slices.Collect(maps.Values(want))...)
	mustSave(t, s, changed(testRecord(0), 2))
	want[testRecord(0).Path] = changed(testRecord(0), 2)
	require.Equal(t, s.loaded.end, s.disk.end)
	require.NotEqual(t, s.loaded.generation, s.disk.generation)
	mustSave(t, s, records(2000, 7000)...)
	maps.Copy(want, asMap(records(2000, 7000)...))
	last := mustLoad(t, file)
	require.Zero(t, last.loaded.log.records, "it is a new snapshot")
	require.Equal(t, want, contents(t, last))
}

// A file that has become shorter since the load takes what is saved.
func TestShorterSinceLoad(t *testing.T) {
	t.Parallel()
	whole, states := smallFile(t)
	s := loadBytes(t, whole)
	ends := slices.Sorted(maps.Keys(states))
	require.NoError(t, os.Truncate(s.Path, int64(ends[2]-1)))
	mustSave(t, s, testRecord(9))
	want := maps.Clone(states[ends[1]])
	want[testRecord(9).Path] = testRecord(9)
	require.Equal(t, want, contents(t, mustLoad(t, s.Path)))
}

// Blocks that are zero, repeated or exchanged are found, too.
func TestMixedBlocks(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "cache")
	mustSave(t, mustLoad(t, file), records(0, 20000)...)
	whole, err := os.ReadFile(file)
	require.NoError(t, err)
	const block = 4096
	for i := 0; i+block < len(whole)-block; i += 31 * block {
		zero, swapped := bytes.Clone(whole), bytes.Clone(whole)
		clear(zero[i : i+block])
		copy(swapped[i:], whole[i+block:i+2*block])
		copy(swapped[i+block:], whole[i:i+block])
		s, _ := Load(writeFile(t, zero), testKey, 1)
		require.Zero(t, s.len())
		s, _ = Load(writeFile(t, swapped), testKey, 1)
		require.Zero(t, s.len())
	}
}

func otherFormat(t *testing.T, number byte) []byte {
	b, _ := smallFile(t)
	b[16] = number
	binary.LittleEndian.PutUint32(b[headerSize-4:], crc32.Checksum(b[:headerSize-4], castagnoli))
	return b
}

// A file that is no usable cache, but may be a damaged one, is loaded as empty and replaced.
func TestReplaced(t *testing.T) {
	t.Parallel()
	whole, _ := smallFile(t)
	old, err := os.ReadFile("testdata/format-2.cache") // as a release wrote it
	if err != nil {
		t.Skip("the tests run without their source: ", err)
	}
	for name, b := range map[string][]byte{
		"format 2": old, "empty": {}, "zeros": make([]byte, 10000), "newer": otherFormat(t, format+1), "older": otherFormat(t, format-1),
		"half a magic": append([]byte(magic[:8]), make([]byte, 500)...), "short": whole[:5],
	} {
		t.Run(name, func(t *testing.T) {
			s := loadBytes(t, b)
			require.Empty(t, contents(t, s))
			mustSave(t, s, testRecord(1))
			require.Equal(t, asMap(testRecord(1)), contents(t, mustLoad(t, s.Path)))
		})
	}
}

// A file that somebody else has written, and anything that is not a file, is reported and left as it is.
func TestForeign(t *testing.T) {
	t.Parallel()
	random := make([]byte, 5000)
	for i := range random {
		random[i] = byte(rand.Uint32())
	}
	for name, b := range map[string][]byte{"text": []byte("my notes\n"), "text of the same name": []byte("fileproc, a description\n"), "one byte": {'x'}, "random": random, "gzip": {0x1f, 0x8b, 8, 0, 0, 0}, "disk image": append(make([]byte, 32<<10), "CD001"...)} {
		t.Run(name, func(t *testing.T) {
			s, err := Load(writeFile(t, b), testKey, 1)
			require.ErrorIs(t, err, errForeign)
			require.Empty(t, contents(t, s))
			s.Add(0, testRecord(1))
			require.ErrorIs(t, s.save(nil), errForeign)
			left, err := os.ReadFile(s.Path)
			require.NoError(t, err)
			require.Equal(t, b, left)
		})
	}
	for _, name := range []string{t.TempDir(), os.DevNull} {
		s, err := Load(name, testKey, 1)
		require.ErrorIs(t, err, errNotRegular)
		require.Empty(t, contents(t, s))
	}
	dir := t.TempDir()
	s, _ := Load(dir, testKey, 1)
	s.Add(0, testRecord(1))
	require.ErrorIs(t, s.save(nil), errNotRegular)
}

// If the directory cannot be written, or is no directory, the error names the file.
func TestUnwritable(t *testing.T) {
	t.Parallel()
	notDir := writeFile(t, []byte("x"))
	for _, name := range []string{filepath.Join(notDir, "cache"), filepath.Join(t.TempDir(), "missing", "cache")} {
		s, _ := Load(name, testKey, 1)
		s.Add(0, testRecord(1))
		require.ErrorContains(t, s.save(nil), "save "+s.Path+": take the lock: ")
	}
	if os.Getuid() > 0 {
		dir := t.TempDir()
		file := filepath.Join(dir, "cache")
		mustSave(t, mustLoad(t, file), testRecord(1))
		testtree.Removable(t, dir)
		require.NoError(t, os.Chmod(dir, 0o500))
		s := mustLoad(t, file)
		s.Add(0, testRecord(2)) // appends: no new file is needed
		require.NoError(t, s.save(nil))
		for _, rec := range records(0, 5000) {
			s.Add(0, rec)
		}
		require.ErrorIs(t, s.save(nil), os.ErrPermission)
		require.Equal(t, 2, mustLoad(t, file).len())
		require.NoError(t, os.Chmod(file, 0))
		s, err := Load(file, testKey, 1)
		require.ErrorIs(t, err, os.ErrPermission)
		require.Empty(t, contents(t, s))
	}
}

var (
	errInjected = errors.New("no space left on device (injected)")
	errKilled   = errors.New("killed")
)

// scenarios are saves in each state of the file. Each leaves want in it.
func scenarios(t *testing.T) map[string]func(file string) (s *Store, before, want map[string]Record) {
	whole, states := smallFile(t)
	old := states[len(whole)]
	plus := func(recs ...Record) map[string]Record {
		m := maps.Clone(old)
		maps.Copy(m, asMap(recs...))
		return m
	}
	start := func(file string, b []byte, recs ...Record) *Store {
		if b != nil {
			require.NoError(t, os.WriteFile(file, b, 0o600))
		}
		s := mustLoad(t, file)
		for i, rec := range recs {
			s.Add(i%len(s.workers), rec)
		}
		return s
	}
	many := records(0, 3200) // more than a chunk
	return map[string]func(file string) (*Store, map[string]Record, map[string]Record){
		"first": func(file string) (*Store, map[string]Record, map[string]Record) {
			return start(file, nil, many...), asMap(), asMap(many...)
		},
		"append": func(file string) (*Store, map[string]Record, map[string]Record) {
			return start(file, whole, testRecord(9)), old, plus(testRecord(9))
		},
		"append after a torn tail": func(file string) (*Store, map[string]Record, map[string]Record) {
			return start(file, append(bytes.Clone(whole), whole[len(whole)-100:]...), testRecord(9)), old, plus(testRecord(9))
		},
		"new snapshot": func(file string) (*Store, map[string]Record, map[string]Record) {
			return start(file, whole, many...), old, plus(many...)
		},
		"another has replaced it": func(file string) (*Store, map[string]Record, map[string]Record) {
			s := start(file, whole, testRecord(9))
			mustSave(t, mustLoad(t, file), many...)
			return s, plus(many...), plus(append([]Record{testRecord(9)}, many...)...)
		},
	}
}

// TestEachStepFails fails and kills a save at each of its steps, a write after half of its bytes.
func TestEachStepFails(t *testing.T) {
	t.Parallel()
	for name, scenario := range scenarios(t) {
		for _, kill := range []bool{false, true} {
			t.Run(name+map[bool]string{true: "/killed"}[kill], func(t *testing.T) {
				if kill && runtime.GOOS == "windows" {
					t.Skip("the file that the killed save has open cannot be removed")
				}
				steps := 0
				for failed := true; failed; steps++ {
					failed = failAt(t, scenario, steps, kill)
				}
				require.Greater(t, steps, 1)
			})
		}
	}
}

func failAt(t *testing.T, scenario func(string) (*Store, map[string]Record, map[string]Record), k int, kill bool) (failed bool) {
	file := filepath.Join(t.TempDir(), "cache")
	s, before, want := scenario(file)
	step := 0
	s.hook = func(size int, do func(int) error) error {
		if step++; step-1 != k {
			return do(size)
		}
		failed = true
		if size > 0 {
			require.NoError(t, do(size/2))
		}
		if kill {
			panic(errKilled)
		}
		return errInjected
	}
	err := func() (err error) {
		if kill {
			defer func() {
				if r := recover(); r != nil && r != errKilled {
					panic(r)
				}
			}()
		}
		return s.save(nil)
	}()
	after := contents(t, mustLoad(t, file))
	if !failed {
		require.NoError(t, err)
		require.Equal(t, want, after)
		return false
	}
	// The old records are there; of the new ones some frames may be.
	for path, rec := range before {
		if !(after[path].ID == rec.ID || after[path].ID == want[path].ID) {
			t.Fatal("step ", k, " has lost ", path)
		}
	}
	for path, rec := range after {
		require.True(t, rec.ID == before[path].ID || rec.ID == want[path].ID)
	}
	if !kill {
		require.ErrorIs(t, err, errInjected)
		require.ErrorContains(t, err, "save "+s.Path+": ")
		require.Equal(t, before, after)
		require.NoFileExists(t, file+tempSuffix)
	}
	s.hook = nil
	if kill { // what follows is another process
		s = mustLoad(t, file)
		for i := range 3200 {
			s.Add(0, testRecord(i))
		}
		maps.Copy(want, asMap(records(0, 3200)...))
		want[testRecord(9).Path] = testRecord(9)
		s.Add(0, testRecord(9))
	}
	require.NoError(t, s.save(nil))
	require.Equal(t, want, contents(t, mustLoad(t, file)))
	require.NoFileExists(t, file+tempSuffix)
	return true
}

// Where there are no locks, a writer may save in the middle of another's save, at each of its steps. Both succeed, the file holds what
// one of them or both have saved, and no temporary file is left.
func TestWritersWithoutLocks(t *testing.T) {
	t.Parallel()
	for name, scenario := range scenarios(t) {
		t.Run(name, func(t *testing.T) {
			if runtime.GOOS == "windows" {
				t.Skip("a file that another writer has open cannot be replaced there")
			}
			for k, met := 0, true; met; k++ {
				met = false
				file := filepath.Join(t.TempDir(), "cache")
				s, before, want := scenario(file)
				without := func(context.Context, string) (func(), bool, error) { return func() {}, false, nil }
				other := mustLoad(t, file)
				s.lock, other.lock = without, without
				extra := testRecord(70_000)
				want[extra.Path] = extra
				for _, rec := range append(slices.Collect(maps.Values(want)), extra) { // all of it, so that it writes a snapshot, too
					other.Add(0, rec)
				}
				step := 0
				s.hook = func(size int, do func(int) error) error {
					if step++; step-1 == k {
						met = true
						require.NoError(t, other.save(nil))
					}
					return do(size)
				}
				require.NoError(t, s.save(nil), "step %d", k)
				after := contents(t, mustLoad(t, file))
				for path, rec := range after {
					require.True(t, rec.ID == before[path].ID || rec.ID == want[path].ID, "step %d", k)
				}
				for path := range before {
					if _, ok := after[path]; !ok {
						t.Fatal("step ", k, " has lost ", path)
					}
				}
				names, err := os.ReadDir(filepath.Dir(file))
				require.NoError(t, err)
				for _, e := range names {
					rest, ok := strings.CutPrefix(e.Name(), "cache")
					require.True(t, ok && (rest == "" || rest == lockSuffix), "step %d leaves %s", k, e.Name())
				}
			}
		})
	}
}

// The next save that succeeds writes the records that a failed save has kept, and only that save does: a later one would replace
// what others have saved since.
func TestPendingIsWrittenOnce(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "cache")
	mustSave(t, mustLoad(t, file), records(0, 10)...)
	s := mustLoad(t, file)
	s.Add(0, changed(testRecord(1), 1))
	s.hook = func(int, func(int) error) error { return errInjected }
	for range 2 {
		require.ErrorIs(t, s.save(nil), errInjected)
	}
	s.hook = nil
	require.NoError(t, s.save(nil))
	require.Equal(t, changed(testRecord(1), 1), contents(t, mustLoad(t, file))[testRecord(1).Path])
	mustSave(t, mustLoad(t, file), changed(testRecord(1), 2))
	saved, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, s.save(nil))
	after, err := os.ReadFile(file)
	require.NoError(t, err)
	require.True(t, bytes.Equal(saved, after), "there was nothing to save")
	s.Add(0, testRecord(20))
	require.NoError(t, s.save(nil))
	require.Equal(t, changed(testRecord(1), 2), contents(t, mustLoad(t, file))[testRecord(1).Path])
}

// A faultyFile is an open file whose read with the number at, from 0, or its Stat at -1, fails with err and gives so much of n bytes.
type faultyFile struct {
	*os.File
	at    int64
	gives func(n int) int
	err   error
	reads *atomic.Int64
}

func (f faultyFile) Stat() (fs.FileInfo, error) {
	if f.at < 0 {
		return nil, f.err
	}
	return f.File.Stat()
}

func (f faultyFile) ReadAt(b []byte, at int64) (int, error) {
	if f.reads.Add(1)-1 != f.at {
		return f.File.ReadAt(b, at)
	}
	n, _ := f.File.ReadAt(b[:f.gives(len(b))], at)
	return n, f.err
}

// Each read that fails is reported: the part that it did not read may have the records of many files. A read that is short, because
// the file has become shorter, leaves the records before that place or none.
func TestEachReadFails(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "cache")
	mustSave(t, mustLoad(t, file), records(0, 6000)...)
	s := mustLoad(t, file)
	require.Greater(t, s.disk.snapshotEnd, int64(2*chunkSize))
	mustSave(t, s, changed(testRecord(1), 1))
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	for name, gives := range map[string]func(n int) int{
		"nothing": func(int) int { return 0 }, "half": func(n int) int { return n / 2 }, "all but a byte": func(n int) int { return n - 1 },
	} {
		for at := int64(-1); ; at++ {
			read := func(fault error) (*image, int64, error) {
				var reads atomic.Int64
				im, err := readOpen(faultyFile{f, at, gives, fault, &reads}, testKey)
				return im, reads.Load(), err
			}
			im, reads, err := read(errInjected)
			if reads <= at {
				require.NoError(t, err)
				require.Equal(t, 6001, im.live+1)
				require.Greater(t, at, int64(4))
				break
			}
			require.ErrorIs(t, err, errInjected, "%s of read %d", name, at)
			require.Nil(t, im)
			if at < 1 {
				continue // without a header it is not known whose file it is
			}
			im, _, err = read(io.EOF)
			require.NoError(t, err)
			if im != nil {
				require.Equal(t, 6000, im.live, "%s of read %d", name, at)
			}
		}
	}
}

// Several processes save to one file at once; none of their records is lost.
func TestProcessesAtOnce(t *testing.T) {
	t.Parallel()
	const processes, rounds, each = 3, 20, 50
	if spec := os.Getenv("FILEPROC_STORE_WRITER"); spec != "" {
		w, err := strconv.Atoi(spec)
		require.NoError(t, err)
		for round := range rounds {
			s := mustLoad(t, os.Getenv("FILEPROC_STORE_FILE"))
			from := (w*rounds + round) * each
			mustSave(t, s, records(from, from+each)...)
		}
		return
	}
	needLocks(t)
	file := filepath.Join(t.TempDir(), "cache")
	var running []*exec.Cmd
	for w := range processes {
		cmd := exec.Command(os.Args[0], "-test.run=^TestProcessesAtOnce$")
		cmd.Env = append(os.Environ(), "FILEPROC_STORE_WRITER="+strconv.Itoa(w), "FILEPROC_STORE_FILE="+file)
		require.NoError(t, cmd.Start())
		running = append(running, cmd)
	}
	for _, cmd := range running {
		require.NoError(t, cmd.Wait())
	}
	require.Equal(t, asMap(records(0, processes*rounds*each)...), contents(t, mustLoad(t, file)))
}

// assemble makes a file with right checksums out of any bytes.
func assemble(data, dirs, log []byte, records uint64) []byte {
	dirs = dirs[:len(dirs)/dirSize*dirSize]
	h := header{generation: 7, key: testKey, stamp: stamp{boot: ThisBoot()}, dataLen: uint64(len(data)), records: records, dirs: uint64(len(dirs) / dirSize)}
	b := h.encode()
	w := newSnapshotWriter(func(p []byte, at int64) error {
		b = append(b[:at], p...)
		return nil
	})
	w.put(data)
	w.put(dirs)
	w.flush()
	b = append(b, w.sums...)
	if len(log) > 0 {
		c := chunk{b: append(make([]byte, frameHeader), log...)}
		for rest := log; len(rest) > 0; c.records++ {
			_, size, ok := parse(rest)
			if !ok {
				break
			}
			rest = rest[size:]
		}
		c.seal(7, stamp{boot: ThisBoot()})
		b = append(b, c.b...)
	}
	return b
}

// TestHostileLayers: whatever bytes a snapshot has, a search, a replay of the log and a new snapshot read nothing outside of them.
func TestHostileLayers(t *testing.T) {
	t.Parallel()
	inTwo := func(i int) Record { // directories; a block has several samples
		rec := testRecord(i)
		rec.Path = fmt.Sprintf("d%d/f%d", i%3/2, i)
		if i%50 == 0 {
			rec.ID.Size, rec.ID.BirthTime = 1<<40, 5
		}
		return rec
	}
	file := filepath.Join(t.TempDir(), "cache")
	s := mustLoad(t, file)
	for i := range 700 {
		s.Add(0, inTwo(i))
	}
	require.NoError(t, s.save(nil))
	whole, err := os.ReadFile(file)
	require.NoError(t, err)
	h, _ := decodeHeader(whole)
	var log chunk
	for i := range 30 {
		rec := inTwo(i * 20)
		if i%3 == 0 {
			rec.Outcome = tombstone
		}
		log.add(nil, rec)
	}
	log.seal(7, stamp{})
	r := rand.New(rand.NewPCG(1, 2))
	for range testtree.Rounds(t, "FILEPROC_FAULTS", 30) * 20 {
		data, dirs, records := bytes.Clone(whole[headerSize:h.dirsAt()]), bytes.Clone(whole[h.dirsAt():h.sumsAt()]), int(h.records)
		for range r.IntN(6) {
			b := [][]byte{data, data, dirs}[r.IntN(3)]
			at := r.IntN(len(b) - 8)
			switch r.IntN(4) {
			case 0:
				b[at] = byte(r.Uint32())
			case 1:
				binary.LittleEndian.PutUint32(b[at:], r.Uint32()>>r.IntN(32))
			case 2:
				binary.LittleEndian.PutUint64(b[at:], r.Uint64()>>r.IntN(64))
			case 3:
				copy(b[at:], b[r.IntN(len(b)):])
			}
		}
		if r.IntN(4) == 0 {
			records = r.IntN(len(data) / minRecord)
		}
		data = data[:len(data)-r.IntN(3)*r.IntN(len(data)/3)]
		im := &image{snapshot: layer{data: data, dirs: dirs, records: records}, sure: []int64{anyTime, testRecord(300).ID.ModTime}[r.IntN(2)],
			place: place{generation: 7}, buf: log.b}
		im.replay()
		for b := range im.blocks() {
			for i := 0; i < b.n; i += 7 {
				if v, ok := im.at(b.first + i); ok {
					d := im.dir(string(v.Dir))
					im.find(&d, v.ID.Inode, string(v.Name))
					im.find(&d, 0, string(v.Name))
				}
			}
		}
		_, err := newSnapshotWriter(func([]byte, int64) error { return nil }).snapshot(header{}, im, []chunk{log})
		require.NoError(t, err)
	}
}

// FuzzLoad loads hostile files: their checksums are right, all else may be wrong.
func FuzzLoad(f *testing.F) {
	var log []byte
	for i := range 4 {
		log = appendRecord(log, testRecord(i))
	}
	whole, _ := smallFile(f)
	h, _ := decodeHeader(whole)
	data, dirs := whole[headerSize:h.dirsAt()], whole[h.dirsAt():h.sumsAt()]
	beyond := bytes.Repeat([]byte{0xff}, 800)
	same := bytes.Repeat(dirs[:dirSize], 3000) // one directory many times
	long := bytes.Clone(log)
	long[entrySize], long[entrySize+1] = 0xff, 0xff // a name that ends nowhere
	swapped := bytes.Clone(dirs)
	copy(swapped[8:], dirs[dirSize+8:dirSize+20])
	far := bytes.Clone(data)
	binary.LittleEndian.PutUint32(far[28:], 1<<31) // a tail that is elsewhere
	f.Add(data, dirs, log, h.records)
	f.Add(data, same, log, h.records)
	f.Add(data, beyond, []byte{}, uint64(1))
	f.Add(data, dirs, long, uint64(1))
	f.Add(data, swapped, log, h.records)
	f.Add(far, dirs, log, h.records)
	f.Add([]byte{}, same, log, uint64(0))
	f.Add(data, []byte{}, log, uint64(1<<50))
	dead := testRecord(0)
	dead.Outcome = tombstone
	f.Add(data, dirs, appendRecord(nil, dead), h.records)
	buried := bytes.Clone(data)
	buried[34] |= byte(tombstone)
	f.Add(buried, dirs, log, h.records)
	f.Fuzz(func(t *testing.T, data, dirs, log []byte, records uint64) {
		s := loadBytes(t, assemble(data, dirs, log, records))
		require.LessOrEqual(t, len(s.loaded.buf), 2*(len(data)+len(dirs)+len(log))+4*headerSize)
		var deleted []int
		for n, rec := range s.Unseen() {
			_ = len(rec.Path()) + len(rec.Result)
			s.Lookup(rec.Path())
			deleted = append(deleted, n)
		}
		for i := range 8 {
			rec, _, _ := s.Lookup(testRecord(i).Path)
			require.NotEqual(t, tombstone, rec.Outcome)
			s.Add(0, testRecord(i))
		}
		require.NoError(t, s.save(deleted[:len(deleted)/2]))
		s = mustLoad(t, s.Path)
		for i := range 8 {
			rec, _, ok := s.Lookup(testRecord(i).Path)
			if ok && len(deleted) == 0 {
				require.Equal(t, testRecord(i).ID, rec.ID)
			}
		}
		for _, rec := range []Record{testRecord(100), testRecord(101)} {
			s.Add(0, rec)
		}
		for i := range 3000 { // a new snapshot, out of what the hostile one holds
			s.Add(0, testRecord(1000+i))
		}
		require.NoError(t, s.save(nil))
	})
}

// FuzzLoadRaw loads any bytes behind a valid header.
func FuzzLoadRaw(f *testing.F) {
	whole, _ := smallFile(f)
	f.Add(whole, uint64(900), uint64(6), uint64(9))
	f.Add(whole, uint64(1<<34), uint64(1<<30), uint64(1<<31))
	f.Add(whole[:headerSize], uint64(0), uint64(0), uint64(0))
	f.Add(whole, ^uint64(0)&^7, uint64(0), ^uint64(0))
	f.Fuzz(func(t *testing.T, b []byte, dataLen, records, dirs uint64) {
		h := header{key: testKey, generation: 1, stamp: stamp{boot: ThisBoot()}, dataLen: dataLen, records: records, dirs: dirs}
		if len(b) > headerSize {
			b = append(h.encode(), b[headerSize:]...)
		} else {
			b = h.encode()
		}
		s := loadBytes(t, b)
		require.LessOrEqual(t, len(s.loaded.buf), len(b))
		contents(t, s)
	})
}
