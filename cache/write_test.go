package cache

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fileproc/fileproc/internal/fsinfo"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

var errStore = errors.New("store failed")

func (m *memFS) failing(ops ...string) {
	m.setFault(func(op, name string) error {
		for _, o := range ops {
			if o == op || o == op+" "+name {
				return errStore
			}
		}
		return nil
	})
}

// slow makes each of the operations take a second.
func (m *memFS) slow(ops ...string) {
	m.setFault(func(op, name string) error {
		if slices.Contains(ops, op) {
			time.Sleep(time.Second)
		}
		return nil
	})
}

func TestWriteThrough(t *testing.T) {
	m := newMemFS(map[string]string{"f": "old"})
	c := newFS(t, m, Options{Store: m})
	require.Equal(t, "old", readFile(t, c, "f"))
	data := []byte("new")
	require.NoError(t, c.WriteFile("f", data))
	data[0] = 'X'
	got, _ := m.get("f")
	require.Equal(t, "new", got)
	opens := m.opens.Load()
	require.Equal(t, "new", readFile(t, c, "f"))
	require.Equal(t, opens, m.opens.Load(), "what was written is cached")
	i, err := c.Stat("f")
	require.NoError(t, err)
	require.Equal(t, "f", i.Name())
	m.put("f", "beneath")
	require.Equal(t, "beneath", readFile(t, c, "f"), "and compared with the file")

	require.NoError(t, c.Remove("f"))
	_, err = c.ReadFile("f")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.Equal(t, WriteStats{Writes: 1, Removes: 1}, c.Stats().Writes)
}

// TestFailedWriteLeavesNothingStale: after a failed write, reads give what the store has,
// whether it has done the write or not, also with Trust.
func TestFailedWriteLeavesNothingStale(t *testing.T) {
	for _, mode := range []WriteMode{WriteThrough, WriteAround} {
		for _, fault := range []string{"write", "written"} {
			m := newMemFS(map[string]string{"f": "old"})
			c := newFS(t, m, Options{Store: m, Write: mode, Trust: Forever})
			readFile(t, c, "f")
			m.failing(fault)
			require.ErrorIs(t, c.WriteFile("f", []byte("new")), errStore)
			want, _ := m.get("f")
			require.Equal(t, fault == "written", want == "new")
			require.Equal(t, want, readFile(t, c, "f"))
			require.EqualValues(t, 1, c.Stats().Writes.WriteErrors)
		}
		m := newMemFS(map[string]string{"f": "old"})
		c := newFS(t, m, Options{Store: m, Write: mode, Trust: Forever})
		readFile(t, c, "f")
		m.failing("removed")
		require.ErrorIs(t, c.Remove("f"), errStore)
		m.setFault(nil)
		_, err := c.ReadFile("f")
		require.ErrorIs(t, err, fs.ErrNotExist)
	}
}

func TestWriteAround(t *testing.T) {
	m := newMemFS(nil)
	c := newFS(t, m, Options{Store: m, Write: WriteAround, Trust: Forever})
	require.NoError(t, c.WriteFile("f", []byte("1")))
	require.Zero(t, c.Stats().Files.Entries)
	require.Equal(t, "1", readFile(t, c, "f"))
	require.NoError(t, c.WriteFile("f", []byte("2")))
	require.Equal(t, "2", readFile(t, c, "f"))
}

// TestWriteDuringALoad: in no mode does a load that began before a write bring back the
// content from before the write.
func TestWriteDuringALoad(t *testing.T) {
	for _, mode := range []WriteMode{WriteThrough, WriteAround, WriteBack} {
		synctest.Test(t, func(t *testing.T) {
			m := newMemFS(map[string]string{"f": "old"})
			m.slow("read", "write")
			c := newFS(t, m, Options{Store: m, Write: mode, Trust: Forever, FlushInterval: map[bool]time.Duration{true: Forever}[mode == WriteBack]})
			r, err := NewResults(c, ResultOptions[string]{}, func(f File) (string, error) { return string(f.Data), nil })
			require.NoError(t, err)
			go c.ReadFile("f")
			go r.Load("f")
			synctest.Wait()
			require.NoError(t, c.WriteFile("f", []byte("new")))
			for range 2 {
				require.Equal(t, "new", readFile(t, c, "f"))
				got, err := r.Load("f")
				require.NoError(t, err)
				require.Equal(t, "new", got)
				time.Sleep(time.Minute)
				require.NoError(t, c.Flush())
			}
			require.NoError(t, c.Close())
		})
	}
}

// TestNewDirectoriesAreListed: new directories are listed after a write, also with Trust.
func TestNewDirectoriesAreListed(t *testing.T) {
	for _, mode := range []WriteMode{WriteThrough, WriteAround, WriteBack} {
		m := newMemFS(map[string]string{"f": ""})
		c := newFS(t, m, Options{Store: m, Write: mode, Trust: Forever})
		_, err := c.ReadDir(".")
		require.NoError(t, err)
		_, err = c.Stat("a")
		require.ErrorIs(t, err, fs.ErrNotExist)
		require.NoError(t, c.WriteFile("a/b/c", []byte("x")))
		var seen []string
		require.NoError(t, fs.WalkDir(c, ".", func(path string, d fs.DirEntry, err error) error {
			seen = append(seen, path)
			return err
		}))
		require.Equal(t, []string{".", "a", "a/b", "a/b/c", "f"}, seen)
		require.NoError(t, c.WriteFile("d/e", nil))
		_, err = c.Open("d")
		require.NoError(t, err)
		require.NoError(t, c.WriteFile("g/h", nil))
		i, err := c.Stat("g")
		require.NoError(t, err)
		require.True(t, i.IsDir())
		require.NoError(t, c.Close())
	}
}

func TestWriteBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemFS(map[string]string{"f": "old"})
		c := newFS(t, m, Options{Store: m, Write: WriteBack, FlushInterval: time.Minute})
		require.Equal(t, "old", readFile(t, c, "f"))
		data := []byte("new")
		require.NoError(t, c.WriteFile("f", data))
		data[0] = 'X'
		require.Equal(t, "new", readFile(t, c, "f"))
		require.NoError(t, c.WriteFile("g", []byte("gg")))
		require.NoError(t, c.WriteFile("f", []byte("newer")))
		require.Equal(t, "newer", readFile(t, c, "f"))
		i, err := c.Stat("g")
		require.NoError(t, err)
		require.EqualValues(t, 2, i.Size())
		got, _ := m.get("f")
		require.Equal(t, "old", got)
		require.Equal(t, []string{"g", "f"}, c.Dirty())
		s := c.Stats().Writes
		require.Equal(t, WriteStats{Writes: 3, Superseded: 1, DirtyFiles: 2, DirtyBytes: 2*entryOverhead + 18}, s)

		time.Sleep(time.Minute)
		synctest.Wait()
		got, _ = m.get("f")
		require.Equal(t, "newer", got, "after the interval")
		require.Empty(t, c.Dirty())
		opens := m.opens.Load()
		require.Equal(t, "newer", readFile(t, c, "f"))
		require.Equal(t, opens, m.opens.Load(), "it is cached then")
		s = c.Stats().Writes
		require.EqualValues(t, 2, s.Flushes)
		require.Zero(t, s.DirtyBytes)

		require.NoError(t, c.WriteFile("h", []byte("close")))
		require.NoError(t, c.Close())
		got, _ = m.get("h")
		require.Equal(t, "close", got, "Close flushes")
		require.ErrorIs(t, c.WriteFile("h", nil), fs.ErrClosed)
		require.ErrorIs(t, c.Remove("h"), fs.ErrClosed)
	})
}

// TestFailedFlushLosesNothing: a failed flush loses nothing, and its error goes to Flush, Close, OnFlushError and the counters.
func TestFailedFlushLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemFS(nil)
		var mu sync.Mutex
		var reported []string
		c := newFS(t, m, Options{Store: m, Write: WriteBack, FlushInterval: time.Minute, OnFlushError: func(name string, err error) {
			mu.Lock()
			defer mu.Unlock()
			reported = append(reported, fmt.Sprint(name, ": ", err))
		}})
		m.failing("write b")
		for _, name := range []string{"a", "b", "c"} {
			require.NoError(t, c.WriteFile(name, []byte(name)))
		}
		err := c.Flush()
		require.ErrorIs(t, err, errStore)
		require.ErrorContains(t, err, "flush b: ")
		require.NotContains(t, err.Error(), "flush a: ")
		require.Equal(t, []string{"b"}, c.Dirty())
		got, _ := m.get("c")
		require.Equal(t, "c", got, "the others are written")
		require.Equal(t, "b", readFile(t, c, "b"))
		mu.Lock()
		require.Equal(t, []string{"b: write b: store failed"}, reported)
		mu.Unlock()

		time.Sleep(3*time.Minute + 1)
		synctest.Wait()
		require.EqualValues(t, 4, c.Stats().Writes.FlushErrors, "each interval tries again")
		require.ErrorIs(t, c.Close(), errStore)
		require.Equal(t, "b", readFile(t, c, "b"))
		require.NoError(t, c.WriteFile("b", []byte("b2")), "it is not closed")
		_, err = c.ReadDir(".")
		require.ErrorIs(t, err, errStore, "a listing would not be complete")
		m.setFault(nil)
		time.Sleep(time.Minute + 1)
		got, _ = m.get("b")
		require.Equal(t, "b2", got, "the interval goes on")
		require.NoError(t, c.WriteFile("b", []byte("b3")))
		require.NoError(t, c.Close())
		got, _ = m.get("b")
		require.Equal(t, "b3", got)
	})
}

func TestFlushErrorsAreBounded(t *testing.T) {
	m := newMemFS(nil)
	c := newFS(t, m, Options{Store: m, Write: WriteBack, FlushInterval: Forever})
	for i := range 120 {
		require.NoError(t, c.WriteFile(fmt.Sprint(i), nil))
	}
	m.failing("write")
	err := c.Flush()
	require.ErrorContains(t, err, "and 20 more")
	require.Equal(t, 101, strings.Count(err.Error(), "\n")+1)
	require.Error(t, c.Flush("7"))
	require.NoError(t, c.Flush("no such"))
	var most []string
	for i := range maxFlushErrors {
		most = append(most, fmt.Sprint(i))
	}
	err = c.Flush(most...)
	require.Equal(t, maxFlushErrors, strings.Count(err.Error(), "\n")+1)
	require.NotContains(t, err.Error(), "more")
	require.Equal(t, 2, c.Discard("7", "/8", "no such"))
	require.Len(t, c.Dirty(), 118)
}

// TestDirtyIsBounded: a write without room flushes; if that fails, the write is refused
// and nothing has changed.
func TestDirtyIsBounded(t *testing.T) {
	m := newMemFS(map[string]string{"f": "old"})
	most := int64(3 * (entryOverhead + 1 + 112)) // of 100 bytes of content
	c := newFS(t, m, Options{Store: m, Write: WriteBack, MaxDirtyBytes: most, MaxBytes: 2 * most, FlushInterval: Forever, Shards: 1})
	require.Equal(t, most, c.data.maxCost(), "dirty files are part of MaxBytes")
	block := strings.Repeat("x", 100)
	for _, name := range []string{"a", "b", "c"} {
		require.NoError(t, c.WriteFile(name, []byte(block)))
	}
	require.Len(t, c.Dirty(), 3)
	require.NoError(t, c.WriteFile("c", []byte(block)), "the place of the same file is used again")
	require.Len(t, c.Dirty(), 3)
	m.failing("write")
	err := c.WriteFile("f", []byte("new"))
	require.ErrorIs(t, err, ErrDirty)
	require.ErrorIs(t, err, errStore)
	require.Equal(t, "old", readFile(t, c, "f"))
	require.LessOrEqual(t, c.Stats().Writes.DirtyBytes, most)
	m.setFault(nil)
	require.NoError(t, c.WriteFile("f", []byte("new")))
	require.Equal(t, []string{"f"}, c.Dirty())

	large := strings.Repeat("y", int(most))
	m.failing("write")
	require.ErrorIs(t, c.WriteFile("f", []byte(large)), errStore)
	require.Equal(t, "new", readFile(t, c, "f"))
	require.Equal(t, []string{"f"}, c.Dirty(), "the older one is not lost")
	m.setFault(nil)
	require.NoError(t, c.WriteFile("f", []byte(large)))
	require.Empty(t, c.Dirty())
	require.Equal(t, large, readFile(t, c, "f"))
}

// TestWritersShareLittleRoom: a write tries again as long as flushes make room.
func TestWritersShareLittleRoom(t *testing.T) {
	m := newMemFS(nil)
	m.setFault(func(op, name string) error {
		if op == "write" {
			time.Sleep(50 * time.Microsecond)
		}
		return nil
	})
	c := newFS(t, m, Options{Store: m, Write: WriteBack, MaxDirtyBytes: entryOverhead + 10, FlushInterval: Forever})
	var wg sync.WaitGroup
	for g := range 10 {
		wg.Go(func() {
			for i := range 10 {
				require.NoError(t, c.WriteFile(fmt.Sprint(g), []byte(fmt.Sprint(i))))
				require.LessOrEqual(t, c.Stats().Writes.DirtyBytes, int64(entryOverhead+10))
			}
		})
	}
	wg.Wait()
	require.NoError(t, c.Close())
	for g := range 10 {
		got, _ := m.get(fmt.Sprint(g))
		require.Equal(t, "9", got)
	}
}

// TestWriteDuringAFlush: content that is written while the store takes the content before
// it stays dirty, and the bytes of both count.
func TestWriteDuringAFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemFS(nil)
		m.slow("write")
		c := newFS(t, m, Options{Store: m, Write: WriteBack, FlushInterval: Forever})
		for _, then := range []string{"write", "discard"} {
			require.NoError(t, c.WriteFile("f", []byte("1")))
			go c.Flush()
			synctest.Wait()
			if then == "write" {
				require.NoError(t, c.WriteFile("f", []byte("2")))
				require.EqualValues(t, 2*(entryOverhead+9), c.Stats().Writes.DirtyBytes)
			} else {
				require.Equal(t, 1, c.Discard("f"))
				require.EqualValues(t, entryOverhead+9, c.Stats().Writes.DirtyBytes)
			}
			time.Sleep(2 * time.Second)
			if then == "write" {
				require.Equal(t, []string{"f"}, c.Dirty())
				require.Equal(t, "2", readFile(t, c, "f"))
				require.EqualValues(t, entryOverhead+9, c.Stats().Writes.DirtyBytes)
				require.NoError(t, c.Flush())
			}
			require.Zero(t, c.Stats().Writes.DirtyBytes)
		}
	})
}

// TestWriteBackRemove: like a write, a removal is dirty. It is seen at once, reaches the
// store at a flush, and survives each failure of the store.
func TestWriteBackRemove(t *testing.T) {
	m := newMemFS(map[string]string{"f": "old", "g": "old"})
	c := newFS(t, m, Options{Store: m, Write: WriteBack, FlushInterval: Forever, Trust: Forever})
	r, err := NewResults(c, ResultOptions[string]{}, func(f File) (string, error) { return string(f.Data), nil })
	require.NoError(t, err)
	gone := func(name string) {
		t.Helper()
		_, err := c.ReadFile(name)
		require.ErrorIs(t, err, fs.ErrNotExist)
		_, err = c.Open(name)
		require.ErrorIs(t, err, fs.ErrNotExist)
		_, err = c.Stat(name)
		require.ErrorIs(t, err, fs.ErrNotExist)
		_, err = c.Lstat(name)
		require.ErrorIs(t, err, fs.ErrNotExist)
		_, err = r.Load(name)
		require.ErrorIs(t, err, fs.ErrNotExist)
		_, ok := r.Get(name)
		require.False(t, ok)
		require.ErrorIs(t, c.Remove(name), fs.ErrNotExist)
	}
	_, err = r.Load("f")
	require.NoError(t, err)
	_, err = c.Stat("f")
	require.NoError(t, err)
	require.NoError(t, c.WriteFile("g", []byte("new")))
	require.NoError(t, c.WriteFile("only dirty", []byte("x")))
	m.failing("remove")
	for _, name := range []string{"f", "g", "only dirty"} {
		require.NoError(t, c.Remove(name))
		gone(name)
	}
	require.Equal(t, []string{"f", "g", "only dirty"}, c.Dirty())
	require.EqualValues(t, 3*entryOverhead+int64(len("fgonly dirty")), c.Stats().Writes.DirtyBytes)
	require.ErrorIs(t, c.Remove("no"), fs.ErrNotExist)
	for _, name := range []string{"f", "g"} {
		_, has := m.get(name)
		require.True(t, has)
	}
	require.ErrorIs(t, c.Flush(), errStore)
	_, err = c.ReadDir(".")
	require.ErrorIs(t, err, errStore, "the listing would not be right")
	gone("f")
	require.ErrorIs(t, c.Close(), errStore)
	require.Len(t, c.Dirty(), 3)

	require.Equal(t, 1, c.Discard("g"))
	require.Equal(t, "old", readFile(t, c, "g"))
	require.NoError(t, c.WriteFile("f", []byte("again")))
	require.Equal(t, "again", readFile(t, c, "f"))
	m.setFault(nil)
	entries, err := c.ReadDir(".")
	require.NoError(t, err)
	require.Len(t, entries, 2)
	gone("only dirty")
	require.NoError(t, c.Remove("f"))
	require.NoError(t, c.Close())
	_, has := m.get("f")
	require.False(t, has, "Close flushes")
	s := c.Stats().Writes
	s.FlushErrors = 0
	require.Equal(t, WriteStats{Writes: 3, Removes: 4, Flushes: 3, Discarded: 1, Superseded: 3}, s)
}

// TestRemoveWithoutRoom: a removal that finds no room for a dirty file removes from the store at once.
func TestRemoveWithoutRoom(t *testing.T) {
	m := newMemFS(map[string]string{"f": "old", "g": "old", "h": "old"})
	c := newFS(t, m, Options{Store: m, Write: WriteBack, MaxDirtyBytes: 10, FlushInterval: Forever})
	require.NoError(t, c.Remove("f"))
	_, has := m.get("f")
	require.False(t, has)
	c = newFS(t, m, Options{Store: m, Write: WriteBack, MaxDirtyBytes: entryOverhead + 10, FlushInterval: Forever})
	require.NoError(t, c.Remove("g"))
	require.NoError(t, c.Remove("h"))
	require.Equal(t, []string{"h"}, c.Dirty())
	m.failing("remove")
	require.ErrorIs(t, c.WriteFile("x", nil), ErrDirty)
	require.ErrorIs(t, c.Remove("."), fs.ErrInvalid)
}

// TestRemoveOfADirectory: removing a directory flushes what is below it.
func TestRemoveOfADirectory(t *testing.T) {
	for _, workers := range []int{0, 4} {
		c, err := NewDir(t.TempDir(), Options{Write: WriteBack, FlushInterval: Forever, FlushWorkers: workers})
		require.NoError(t, err)
		require.NoError(t, c.WriteFile("d/f", []byte("x")))
		require.Error(t, c.Remove("d"), "it is not empty")
		require.NoError(t, c.Remove("d/f"))
		require.NoError(t, c.Remove("d"))
		require.NoError(t, c.WriteFile("d", []byte("a file")))
		require.Equal(t, "a file", readFile(t, c, "d"))
		require.NoError(t, c.Flush())
		require.NoError(t, c.Remove("d"))
		require.NoError(t, c.WriteFile("d/e/f", []byte("in a directory")))
		i, err := c.Stat("d")
		require.NoError(t, err)
		require.True(t, i.IsDir())
		require.NoError(t, c.Remove("d/e/f"))
		require.NoError(t, c.Remove("d/e"))
		require.NoError(t, c.Remove("d"))
		require.NoError(t, c.WriteFile("d", []byte("a file")))
		require.NoError(t, c.Flush())
		require.NoError(t, c.Remove("d"))
		require.NoError(t, c.WriteFile("d/f", []byte("x")))
		require.NoError(t, c.Close(), "the file goes before the directory comes")
		require.Empty(t, c.Dirty())
	}
}

// TestFileThatGoesBeforeADirectory: a removed file leaves the store before something is written below its name, whatever makes that
// write necessary: a look at a directory further down, or a file that is written at once because it is large.
func TestFileThatGoesBeforeADirectory(t *testing.T) {
	large := make([]byte, 5000)
	for what, step := range map[string]func(c *FS) error{
		"list": func(c *FS) error {
			if err := c.WriteFile("d/e/f", nil); err != nil {
				return err
			}
			entries, err := c.ReadDir("d/e")
			require.Len(t, entries, 1)
			return err
		},
		"stat": func(c *FS) error {
			if err := c.WriteFile("d/e/f", nil); err != nil {
				return err
			}
			_, err := c.Stat("d/e")
			return err
		},
		"large":              func(c *FS) error { return c.WriteFile("d/f", large) },
		"large, far below":   func(c *FS) error { return c.WriteFile("d/e/f/g", large) },
		"large and a sister": func(c *FS) error { return errors.Join(c.WriteFile("d/e", nil), c.WriteFile("d/f", large)) },
	} {
		t.Run(what, func(t *testing.T) {
			c, err := NewDir(t.TempDir(), Options{Write: WriteBack, FlushInterval: Forever, MaxDirtyBytes: 4000})
			require.NoError(t, err)
			require.NoError(t, c.WriteFile("d", []byte("a file")))
			require.NoError(t, c.WriteFile("dd", []byte("not below it")))
			require.NoError(t, c.Flush("d"))
			require.NoError(t, c.Remove("d"))
			require.NoError(t, step(c))
			require.Contains(t, c.Dirty(), "dd", "what has nothing to do with it stays dirty")
			require.NoError(t, c.Close())
		})
	}
}

// TestFlushOfWhatChangesMeanwhile: a file that is discarded, written or removed while a flush calls the store for another file is not
// written as it was before.
func TestFlushOfWhatChangesMeanwhile(t *testing.T) {
	for what, tt := range map[string]struct {
		change func(c *FS)
		dirty  []string
		last   string
	}{
		"discarded": {change: func(c *FS) { c.Discard("b") }, last: "beneath"},
		"written":   {change: func(c *FS) { _ = c.WriteFile("b", []byte("newer")) }, dirty: []string{"b"}, last: "newer"},
		"removed":   {change: func(c *FS) { _ = c.Remove("b") }, dirty: []string{"b"}},
	} {
		t.Run(what, func(t *testing.T) {
			m := newMemFS(map[string]string{"b": "beneath"})
			c := newFS(t, m, Options{Store: m, Write: WriteBack, FlushInterval: Forever})
			require.NoError(t, c.WriteFile("a", nil))
			require.NoError(t, c.WriteFile("b", []byte("older")))
			m.setFault(func(op, name string) error {
				if op == "write" && name == "a" {
					tt.change(c)
				}
				return nil
			})
			require.NoError(t, c.Flush())
			got, _ := m.get("b")
			require.Equal(t, "beneath", got)
			require.Equal(t, tt.dirty, c.Dirty())
			require.EqualValues(t, 1, c.Stats().Writes.Flushes)
			require.Equal(t, len(tt.dirty) > 0, c.Stats().Writes.DirtyBytes > 0)
			m.setFault(nil)
			require.NoError(t, c.Close())
			got, _ = m.get("b")
			require.Equal(t, tt.last, got)
			require.Zero(t, c.Stats().Writes.DirtyBytes)
		})
	}
}

// TestWriteErrorsSayWhere: an error that the cache makes itself says what was to be done, and with which file.
func TestWriteErrorsSayWhere(t *testing.T) {
	m := newMemFS(map[string]string{"f": "old", "g": "old"})
	c := newFS(t, m, Options{Store: m, Write: WriteBack, MaxDirtyBytes: entryOverhead + 10, FlushInterval: Forever})
	is := func(err, kind error, op, name string) {
		t.Helper()
		require.ErrorIs(t, err, kind)
		at, ok := err.(*fs.PathError)
		require.True(t, ok)
		require.Equal(t, op, at.Op)
		require.Equal(t, name, at.Path)
	}
	is(c.WriteFile("../f", nil), fs.ErrInvalid, "write", "../f")
	is(c.Remove("/f"), fs.ErrInvalid, "remove", "/f")
	require.NoError(t, c.Remove("f"))
	_, err := c.ReadFile("f")
	is(err, fs.ErrNotExist, "open", "f")
	m.failing("remove")
	is(c.WriteFile("g", nil), ErrDirty, "write", "g")
	is(c.Remove("g"), ErrDirty, "remove", "g")
	m.setFault(nil)
	require.Equal(t, []string{"f"}, c.Dirty())
	require.NoError(t, c.Close())
	is(c.WriteFile("g", nil), fs.ErrClosed, "write", "g")
	is(c.w.add(&dirtyFile{name: "g", content: &content{}}), fs.ErrClosed, "write", "g")
	is(newFS(t, m, Options{}).WriteFile("g", nil), ErrNoStore, "write", "g")
}

// TestRemoveMeetsAnother: if another call removes the file, or closes the cache, during a removal, the removal returns that as its error
// and does nothing.
func TestRemoveMeetsAnother(t *testing.T) {
	for what, tt := range map[string]struct {
		name    string
		another func(c *FS) error
		want    error
		left    bool
	}{
		"removed":           {"f", func(c *FS) error { return c.Remove("f") }, fs.ErrNotExist, false},
		"closed":            {"f", func(c *FS) error { return c.Close() }, fs.ErrClosed, true},
		"closed, directory": {"d", func(c *FS) error { return c.Close() }, fs.ErrClosed, true},
	} {
		m := newMemFS(map[string]string{"f": "old"})
		m.touchDir("d")
		c := newFS(t, m, Options{Store: m, Write: WriteBack, FlushInterval: Forever})
		met := false
		m.setFault(func(op, _ string) error {
			if op == "stat" && !met {
				met = true
				require.NoError(t, tt.another(c))
			}
			return nil
		})
		err := c.Remove(tt.name)
		require.ErrorIs(t, err, tt.want, what)
		var at *fs.PathError
		require.ErrorAs(t, err, &at)
		require.Equal(t, "remove", at.Op)
		require.Equal(t, tt.name, at.Path)
		m.setFault(nil)
		require.NoError(t, c.Close())
		_, has := m.get(tt.name)
		require.Equal(t, tt.left, has, what)
		require.Equal(t, !tt.left, c.Stats().Writes.Removes == 1, what)
	}
}

// TestRemoveWritesThrough: without WriteBack, a removal calls the store alone, and returns its error.
func TestRemoveWritesThrough(t *testing.T) {
	for _, mode := range []WriteMode{WriteThrough, WriteAround} {
		m := newMemFS(map[string]string{"f": "old"})
		c := newFS(t, m, Options{Store: m, Write: mode})
		m.failing("stat", "open")
		require.NoError(t, c.Remove("f"))
		m.setFault(nil)
		_, has := m.get("f")
		require.False(t, has)
		require.Zero(t, m.stats.Load()+m.opens.Load())
		require.ErrorIs(t, c.Remove("f"), fs.ErrNotExist)
		require.EqualValues(t, 1, c.Stats().Writes.Removes)
	}
}

// TestFailedFlushEndsTheCall: a call that needs a flush does nothing if the flush fails, in particular nothing that must come after it.
func TestFailedFlushEndsTheCall(t *testing.T) {
	m := newMemFS(map[string]string{"d": "a file", "e/f": "old"})
	c := newFS(t, m, Options{Store: m, Write: WriteBack, MaxDirtyBytes: 4000, FlushInterval: Forever})
	require.NoError(t, c.Remove("d"))
	require.NoError(t, c.Remove("e/f"))
	var called []string
	m.setFault(func(op, name string) error {
		if op == "remove" || op == "write" {
			called = append(called, op+" "+name)
			return errStore
		}
		return nil
	})
	require.ErrorIs(t, c.WriteFile("d/f", make([]byte, 5000)), errStore)
	require.ErrorIs(t, c.Remove("e"), errStore)
	require.Equal(t, []string{"remove d", "remove e/f"}, called)
	require.Equal(t, []string{"d", "e/f"}, c.Dirty())
	require.Zero(t, c.Stats().Writes.Writes)
}

// TestLargeWriteAfterAFailedFlush: a file that is too large to be dirty is not written while what is below it cannot be.
func TestLargeWriteAfterAFailedFlush(t *testing.T) {
	m := newMemFS(nil)
	c := newFS(t, m, Options{Store: m, Write: WriteBack, FlushInterval: Forever, MaxDirtyBytes: 1000})
	require.NoError(t, c.WriteFile("d/f", nil))
	m.failing("write d/f")
	require.ErrorIs(t, c.WriteFile("d", make([]byte, 1000)), errStore)
	_, ok := m.get("d")
	require.False(t, ok)
}

// TestOnlyWhatIsBelowIsFlushed: a look at a name flushes neither the file itself nor files beside or above it.
func TestOnlyWhatIsBelowIsFlushed(t *testing.T) {
	m := newMemFS(map[string]string{"a/x": "", "b/x": ""})
	c := newFS(t, m, Options{Store: m, Write: WriteBack, FlushInterval: Forever})
	for _, name := range []string{"a", "b/c", "bb", "c"} {
		require.NoError(t, c.WriteFile(name, nil))
	}
	for _, name := range []string{"a/x", "c", "bb"} {
		_, err := c.Stat(name)
		require.NoError(t, err)
	}
	require.Equal(t, []string{"a", "b/c", "bb", "c"}, c.Dirty())
	_, err := c.ReadDir("b")
	require.NoError(t, err)
	require.Equal(t, []string{"a", "bb", "c"}, c.Dirty())
	_, err = c.ReadDir("b")
	require.NoError(t, err)
	require.Equal(t, []string{"a", "bb", "c"}, c.Dirty(), "nothing is below it any more")
}

// TestFlushOfNestedNames: with several workers too, files above or below other files are flushed in the order of the calls.
func TestFlushOfNestedNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemFS(map[string]string{"d": "a file"})
		var done []string
		m.setFault(func(op, name string) error {
			if op == "remove" {
				time.Sleep(time.Second) // in which other workers would go on
			}
			if op == "removed" || op == "written" {
				done = append(done, name)
			}
			return nil
		})
		c := newFS(t, m, Options{Store: m, Write: WriteBack, FlushInterval: Forever, FlushWorkers: 4})
		require.NoError(t, c.Remove("d"))
		require.NoError(t, c.WriteFile("d/e/f", nil))
		require.NoError(t, c.WriteFile("g", nil))
		require.NoError(t, c.Close())
		require.Equal(t, []string{"d", "d/e/f", "g"}, done)
	})
}

// TestRoomThatOthersTake: a write whose flush has made room that another write takes flushes again.
func TestRoomThatOthersTake(t *testing.T) {
	m := newMemFS(nil)
	unit := int64(entryOverhead + 1 + 8)
	c := newFS(t, m, Options{Store: m, Write: WriteBack, MaxDirtyBytes: 2 * unit, MaxBytes: 4 * unit, FlushInterval: Forever})
	require.NoError(t, c.WriteFile("a", []byte("12345678")))
	require.NoError(t, c.WriteFile("b", []byte("12345678")))
	once := sync.Once{}
	m.setFault(func(op, name string) error {
		if op == "write" && name == "b" {
			once.Do(func() { require.NoError(t, c.WriteFile("c", []byte("12345678")), "into the room of a") })
		}
		return nil
	})
	large := strings.Repeat("x", 64) // that fits beside none of them
	require.NoError(t, c.WriteFile("d", []byte(large)))
	require.Equal(t, []string{"d"}, c.Dirty())
	require.Equal(t, large, readFile(t, c, "d"))
	got, _ := m.get("c")
	require.Equal(t, "12345678", got)
	require.NoError(t, c.Close())
}

// TestOneCallAtATime: with WriteBack, no flush begins during a call of the store, whether a flush, a large write or the removal of a
// directory makes that call.
func TestOneCallAtATime(t *testing.T) {
	m := newMemFS(nil)
	m.touchDir("d")
	c := newFS(t, m, Options{Store: m, Write: WriteBack, MaxDirtyBytes: 4000, FlushInterval: Forever})
	var called []string
	m.setFault(func(op, name string) error {
		if op == "write" || op == "remove" {
			called = append(called, op+" "+name)
			require.False(t, c.w.flushing.TryLock(), "%s %s", op, name)
		}
		return nil
	})
	require.NoError(t, c.WriteFile("f", []byte("small")))
	require.NoError(t, c.Flush())
	require.NoError(t, c.WriteFile("f", []byte("small")))
	superseded := c.Stats().Writes.Superseded
	require.NoError(t, c.WriteFile("f", make([]byte, 5000)))
	require.Equal(t, superseded+1, c.Stats().Writes.Superseded, "the small one was never written")
	require.Empty(t, c.Dirty())
	require.Zero(t, c.Stats().Writes.DirtyBytes)
	require.NoError(t, c.Remove("d"))
	require.Equal(t, []string{"write f", "remove d"}, slices.Compact(called))
	require.True(t, c.w.flushing.TryLock(), "none is left")
	c.w.flushing.Unlock()
	require.NoError(t, c.Close())
}

// odd is a store that returns other metadata than that of the file that it has written.
type odd struct {
	*memFS
	info memInfo
}

func (o odd) WriteFile(name string, data []byte) (fs.FileInfo, error) {
	_, err := o.memFS.WriteFile(name, data)
	return &o.info, err
}

// TestStoreThatSaysSomethingElse: the written content is not served if the store says that the file is longer, or no regular file: the
// file is another one by then.
func TestStoreThatSaysSomethingElse(t *testing.T) {
	settledFiles(t)
	for what, info := range map[string]memInfo{
		"right":     {data: []byte("new")},
		"longer":    {data: []byte("longer")},
		"shorter":   {data: []byte("n")},
		"directory": {data: []byte("new"), dir: true},
	} {
		m := newMemFS(nil)
		info.name, info.mtime = "other/name", time.Unix(1_000_001, 0) // that of the first write
		c := newFS(t, m, Options{Store: odd{m, info}, Trust: Forever})
		require.NoError(t, c.WriteFile("f", []byte("new")))
		require.Equal(t, what == "right", c.Stats().Files.Entries == 1, what)
		require.Equal(t, "new", readFile(t, c, "f"))
		i, err := c.Stat("f")
		require.NoError(t, err)
		require.Equal(t, "f", i.Name())
	}
}

// TestTimesOfWhatIsWritten: a dirty file has the time of its write, and the result of a flushed file is trusted from the flush on.
func TestTimesOfWhatIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemFS(nil)
		c := newFS(t, m, Options{Store: m, Write: WriteBack, FlushInterval: Forever, Trust: time.Minute})
		r, err := NewResults(c, ResultOptions[string]{}, func(f File) (string, error) { return string(f.Data), nil })
		require.NoError(t, err)
		time.Sleep(time.Hour)
		require.NoError(t, c.WriteFile("f", []byte("x")))
		at := time.Now()
		time.Sleep(time.Second)
		i, err := c.Stat("f")
		require.NoError(t, err)
		require.True(t, at.Equal(i.ModTime()))
		require.EqualValues(t, 0o644, i.Mode())
		require.NoError(t, c.Flush())
		stats := m.stats.Load()
		_, err = r.Load("f")
		require.NoError(t, err)
		time.Sleep(time.Minute - 1)
		readFile(t, c, "f")
		_, err = r.Load("f")
		require.NoError(t, err)
		require.Equal(t, stats, m.stats.Load(), "it is trusted for a minute")
		time.Sleep(2 * time.Nanosecond)
		_, err = r.Load("f")
		require.NoError(t, err)
		require.Less(t, stats, m.stats.Load())
		require.NoError(t, c.Close())
	})
}

// TestNoTimerWithoutDirtyFiles: the interval begins with the first dirty file and ends with the last, and Close stops it.
func TestNoTimerWithoutDirtyFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemFS(nil)
		c := newFS(t, m, Options{Store: m, Write: WriteBack, FlushInterval: time.Second})
		runs := 0
		c.w.flushLater = func() { runs++; c.flushAtInterval() }
		armed := func() bool {
			c.w.mu.Lock()
			defer c.w.mu.Unlock()
			return c.w.timer != nil
		}
		require.False(t, armed())
		for range 2 {
			require.NoError(t, c.WriteFile("f", nil))
			require.NoError(t, c.WriteFile("g", nil))
			require.True(t, armed())
			time.Sleep(time.Second)
			synctest.Wait()
			require.False(t, armed())
			time.Sleep(time.Minute)
		}
		require.Equal(t, 2, runs)
		require.NoError(t, c.WriteFile("f", nil))
		require.NoError(t, c.Close())
		require.False(t, armed())
		time.Sleep(time.Minute)
		require.Equal(t, 2, runs)
		c = newFS(t, m, Options{Store: m, Write: WriteBack, FlushInterval: Forever})
		require.NoError(t, c.WriteFile("f", nil))
		require.False(t, armed(), "without an interval there is none")
		require.NoError(t, c.Close())
	})
}

// TestDiscardForgets: Discard forgets the results that were made of the content that it drops.
func TestDiscardForgets(t *testing.T) {
	m := newMemFS(map[string]string{"f": "old"})
	c := newFS(t, m, Options{Store: m, Write: WriteBack, FlushInterval: Forever, Trust: Forever})
	r, err := NewResults(c, ResultOptions[string]{}, func(f File) (string, error) { return string(f.Data), nil })
	require.NoError(t, err)
	require.NoError(t, c.WriteFile("f", []byte("dropped")))
	for _, want := range []string{"dropped", "old"} {
		got, err := r.Load("f")
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.Equal(t, want, readFile(t, c, "f"))
		i, err := c.Stat("f")
		require.NoError(t, err)
		require.EqualValues(t, len(want), i.Size())
		c.Discard("f")
	}
	synctest.Test(t, func(t *testing.T) { // nor does a later call get what is being made of it
		c := newFS(t, m, Options{Store: m, Write: WriteBack, FlushInterval: Forever, Trust: Forever})
		r, err := NewResults(c, ResultOptions[string]{}, func(f File) (string, error) { time.Sleep(time.Second); return string(f.Data), nil })
		require.NoError(t, err)
		require.NoError(t, c.WriteFile("f", []byte("dropped")))
		go r.Load("f")
		synctest.Wait()
		require.Equal(t, 1, c.Discard("f"))
		got, err := r.Load("f")
		require.NoError(t, err)
		require.Equal(t, "old", got)
	})
}

// TestJustEnoughRoom: a file that takes all the room that dirty files have is dirty, and so is a removal.
func TestJustEnoughRoom(t *testing.T) {
	m := newMemFS(map[string]string{"f": "old"})
	c := newFS(t, m, Options{Store: m, Write: WriteBack, MaxDirtyBytes: entryOverhead + 1 + 8, FlushInterval: Forever})
	require.NoError(t, c.WriteFile("f", []byte("12345678")))
	require.Equal(t, []string{"f"}, c.Dirty())
	require.NoError(t, c.WriteFile("f", []byte("123456789")))
	require.Empty(t, c.Dirty())
	c = newFS(t, m, Options{Store: m, Write: WriteBack, MaxDirtyBytes: entryOverhead + 1, FlushInterval: Forever})
	require.NoError(t, c.Remove("f"))
	require.Equal(t, []string{"f"}, c.Dirty())
}

// TestTTLOfWhatIsWritten: a written file has the same time to live as a file that is read.
func TestTTLOfWhatIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemFS(nil)
		c := newFS(t, m, Options{Store: m, Trust: Forever, TTLOf: func(name string, i fs.FileInfo) time.Duration {
			require.Equal(t, "f", i.Name())
			require.EqualValues(t, 1, i.Size())
			return time.Minute
		}})
		require.NoError(t, c.WriteFile("f", []byte("x")))
		time.Sleep(time.Minute - 1)
		require.EqualValues(t, 1, c.Stats().Files.Entries)
		time.Sleep(2 * time.Nanosecond)
		require.Zero(t, c.Stats().Files.Entries)
	})
}

// TestTwoFlushWorkers: two workers write two files at a time, and one worker writes one.
func TestTwoFlushWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for workers, want := range map[int]time.Duration{0: 4, 1: 4, 2: 2, 4: 1, 9: 1} {
			m := newMemFS(nil)
			m.slow("write")
			c := newFS(t, m, Options{Store: m, Write: WriteBack, FlushInterval: Forever, FlushWorkers: workers})
			for i := range 4 {
				require.NoError(t, c.WriteFile(fmt.Sprint("d/", i), nil))
			}
			start := time.Now()
			require.NoError(t, c.Flush())
			require.Equal(t, want*time.Second, time.Since(start), workers)
		}
	})
}

// TestFlushWorkers: each worker writes one file at a time. A failure keeps only its own file
// dirty. With one file below another, the order is kept.
func TestFlushWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemFS(nil)
		var now, most atomic.Int64
		m.setFault(func(op, name string) error {
			if op != "write" {
				return nil
			}
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer now.Add(-1)
			time.Sleep(time.Second)
			if name == "f7" {
				return errStore
			}
			return nil
		})
		var reported []string // calls do not overlap
		c := newFS(t, m, Options{Store: m, Write: WriteBack, FlushInterval: Forever, FlushWorkers: 4,
			OnFlushError: func(name string, err error) { reported = append(reported, name) }})
		for i := range 20 {
			require.NoError(t, c.WriteFile(fmt.Sprint("f", i), []byte("1")))
		}
		start := time.Now()
		go func() { // while the store has them
			time.Sleep(time.Second / 2)
			require.NoError(t, c.WriteFile("f3", []byte("2")))
		}()
		err := c.Flush()
		require.ErrorIs(t, err, errStore)
		require.Equal(t, "flush f7: write f7: store failed", err.Error())
		require.Equal(t, []string{"f7"}, reported)
		require.Equal(t, 5*time.Second, time.Since(start))
		require.EqualValues(t, 4, most.Load())
		require.Equal(t, []string{"f7", "f3"}, c.Dirty())
		m.setFault(nil)
		require.NoError(t, c.Close())
		got, _ := m.get("f3")
		require.Equal(t, "2", got)
		require.Zero(t, c.Stats().Writes.DirtyBytes)
	})
}

func TestFlushInOrder(t *testing.T) {
	for _, tt := range []struct {
		workers int
		names   []string
	}{{0, []string{"b", "a", "c/d", "e"}}, {8, []string{"b", "a", "c/d", "c"}}} {
		m := newMemFS(nil)
		var written []string
		m.setFault(func(op, name string) error {
			if op == "write" {
				written = append(written, name)
			}
			return nil
		})
		c := newFS(t, m, Options{Store: m, Write: WriteBack, FlushInterval: Forever, FlushWorkers: tt.workers})
		for _, name := range tt.names {
			require.NoError(t, c.WriteFile(name, nil))
		}
		require.NoError(t, c.Close())
		require.Equal(t, tt.names, written)
	}
}

// TestStoreThatPanics: if the store panics in a flush, the caller gets the panic, and files
// that were not written stay dirty.
func TestStoreThatPanics(t *testing.T) {
	for _, workers := range []int{1, 4} {
		for what, end := range map[string]func(){"panic": func() { panic("store") }, "goexit": runtime.Goexit} {
			if workers == 1 && what == "goexit" {
				continue // it ends the caller
			}
			m := newMemFS(nil)
			c := newFS(t, m, Options{Store: m, Write: WriteBack, FlushInterval: Forever, FlushWorkers: workers})
			for i := range 10 {
				require.NoError(t, c.WriteFile(fmt.Sprint(i), nil))
			}
			m.setFault(func(op, name string) error {
				if op == "write" && name == "5" {
					end()
				}
				return nil
			})
			caught := func() (p any) {
				defer func() { p = recover() }()
				return c.Flush()
			}()
			if what == "panic" {
				require.Equal(t, "store", caught)
			} else {
				require.ErrorContains(t, caught.(error), "the store ended the goroutine")
			}
			require.Contains(t, c.Dirty(), "5")
			m.setFault(nil)
			require.NoError(t, c.Close())
			_, has := m.get("5")
			require.True(t, has)
		}
	}
}

// TestCloseMeetsAWrite: a write that Close does not flush is refused.
func TestCloseMeetsAWrite(t *testing.T) {
	for range 200 {
		m := newMemFS(nil)
		c := newFS(t, m, Options{Store: m, Write: WriteBack, FlushInterval: Forever})
		var wg sync.WaitGroup
		var err error
		wg.Go(func() { err = c.WriteFile("f", nil) })
		require.NoError(t, c.Close())
		wg.Wait()
		_, has := m.get("f")
		require.Equal(t, err == nil, has)
	}
	c := newFS(t, newMemFS(nil), Options{Store: newMemFS(nil), Write: WriteBack})
	require.NoError(t, c.Close())
	require.ErrorIs(t, c.w.add(&dirtyFile{name: "f", content: &content{}}), fs.ErrClosed)
}

// TestCloseWaitsForWrites: when Close has returned, the store is not called.
func TestCloseWaitsForWrites(t *testing.T) {
	calls := map[string]func(c *FS) error{
		"write":  func(c *FS) error { return c.WriteFile("f", make([]byte, 5000)) }, // with WriteBack at once
		"remove": func(c *FS) error { return c.Remove("d") },
	}
	for _, mode := range []WriteMode{WriteThrough, WriteAround, WriteBack} {
		for op, call := range calls {
			opts := Options{Write: mode}
			if mode == WriteBack {
				opts.MaxDirtyBytes = 4000
			}
			t.Run(fmt.Sprint(mode, "/", op, "/begun"), func(t *testing.T) {
				m := newMemFS(nil)
				m.touchDir("d")
				entered, leave := make(chan bool), make(chan bool)
				enter := sync.OnceFunc(func() { close(entered) })
				m.setFault(func(o, name string) error {
					if o == op {
						enter()
						<-leave
					}
					return nil
				})
				opts.Store = m
				c := newFS(t, m, opts)
				var wg sync.WaitGroup
				wg.Go(func() { require.NoError(t, call(c)) })
				<-entered
				closed := make(chan error, 1)
				wg.Go(func() { closed <- c.Close() })
				time.Sleep(20 * time.Millisecond)
				require.Empty(t, closed)
				close(leave)
				wg.Wait()
				require.NoError(t, <-closed)
			})
			t.Run(fmt.Sprint(mode, "/", op, "/about to begin"), func(t *testing.T) {
				for range 300 {
					m := newMemFS(nil)
					m.touchDir("d")
					opts.Store = m
					c := newFS(t, m, opts)
					var wg sync.WaitGroup
					wg.Go(func() { _ = call(c) })
					require.NoError(t, c.Close())
					m.setFault(func(o, name string) error {
						if o == op {
							t.Error("the store is called")
						}
						return nil
					})
					wg.Wait()
				}
			})
		}
	}
}

func TestWritesRefused(t *testing.T) {
	m := newMemFS(map[string]string{"f": "x"})
	c := newFS(t, m, Options{})
	require.ErrorIs(t, c.WriteFile("f", nil), ErrNoStore)
	require.ErrorIs(t, c.Remove("f"), ErrNoStore)
	c = newFS(t, m, Options{Store: m})
	for _, name := range []string{"", ".", "/f", "../f", "a//b"} {
		require.ErrorIs(t, c.WriteFile(name, nil), fs.ErrInvalid)
		require.ErrorIs(t, c.Remove(name), fs.ErrInvalid)
	}
	for _, opts := range []Options{{Write: -1}, {Write: WriteBack + 1}, {MaxDirtyBytes: 1}, {FlushInterval: 1},
		{OnFlushError: func(string, error) {}}, {Write: WriteBack, MaxDirtyBytes: -1}, {Write: WriteBack, FlushInterval: -1}, {FlushWorkers: 2}, {Write: WriteBack, FlushWorkers: -1},
		{Write: WriteBack, MaxDirtyBytes: 10, MaxBytes: 9}} {
		_, err := New(m, opts)
		require.Error(t, err, "%+v", opts)
	}
}

// unknowing is a store that cannot know the metadata.
type unknowing struct{ *memFS }

func (u unknowing) WriteFile(name string, data []byte) (fs.FileInfo, error) {
	_, err := u.memFS.WriteFile(name, data)
	return nil, err
}

func TestStoreWithoutMetadata(t *testing.T) {
	for _, trust := range []time.Duration{0, Forever} {
		m := newMemFS(nil)
		c := newFS(t, m, Options{Store: unknowing{m}, Trust: trust})
		require.NoError(t, c.WriteFile("f", []byte("x")))
		require.Equal(t, trust != 0, c.Stats().Files.Entries == 1)
		require.Equal(t, "x", readFile(t, c, "f"))
		f, err := c.Open("f")
		require.NoError(t, err)
		i, err := f.Stat()
		require.NoError(t, err)
		require.EqualValues(t, 1, i.Size())
		require.Equal(t, "f", i.Name())
		require.EqualValues(t, 0o644, i.Mode())
		require.NoError(t, f.Close())
	}
}

func TestDirIsAStore(t *testing.T) {
	wait := settle(t)
	dir := t.TempDir()
	c, err := NewDir(dir, Options{})
	require.NoError(t, err)
	require.NoError(t, c.WriteFile("a/b/f", []byte("1")))
	name := filepath.Join(dir, "a", "b", "f")
	got, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, "1", string(got))
	require.NoError(t, os.Chmod(name, 0o666))
	require.NoError(t, c.WriteFile("a/b/f", []byte("2")))
	i, err := os.Stat(name)
	require.NoError(t, err)
	if runtime.GOOS != "windows" {
		require.EqualValues(t, 0o666, i.Mode().Perm(), "the permissions are kept, whatever the umask")
	}
	entries, err := os.ReadDir(filepath.Dir(name))
	require.NoError(t, err)
	require.Len(t, entries, 1, "no temporary file is left")
	require.Equal(t, "2", readFile(t, c, "a/b/f"))
	wait()
	require.Equal(t, "2", readFile(t, c, "a/b/f"))
	hits := c.Stats().Files.Hits
	require.Equal(t, "2", readFile(t, c, "a/b/f"))
	require.Equal(t, hits+1, c.Stats().Files.Hits)
	require.NoError(t, os.WriteFile(name, []byte("3"), 0o600))
	require.Equal(t, "3", readFile(t, c, "a/b/f"))

	require.Error(t, c.WriteFile("a/b", []byte("a directory is there")))
	entries, err = os.ReadDir(filepath.Join(dir, "a"))
	require.NoError(t, err)
	require.Len(t, entries, 1, "nor after a failure")
	require.NoError(t, c.Remove("a/b/f"))
	require.NoFileExists(t, name)
	require.NoError(t, c.Close())
}

// TestDirWriteIsCached: dirFS returns the metadata of a written file that a later Stat shows.
func TestDirWriteIsCached(t *testing.T) {
	old := fsinfo.Settled
	fsinfo.Settled = -time.Hour // all files are
	t.Cleanup(func() { fsinfo.Settled = old })
	c, err := NewDir(t.TempDir(), Options{})
	require.NoError(t, err)
	defer c.Close()
	for _, data := range []string{"1", "2"} {
		require.NoError(t, c.WriteFile("f", []byte(data)))
		require.Equal(t, data, readFile(t, c, "f"))
	}
	if runtime.GOOS != "windows" {
		require.EqualValues(t, 2, c.Stats().Files.Hits)
	}
	f, err := c.Open("f")
	require.NoError(t, err)
	i, err := f.Stat()
	require.NoError(t, err)
	require.Equal(t, "f", i.Name())
}

// TestLargeWritesAreNotCached: a written file beyond MaxFileSize is not cached, like a file that is read.
func TestLargeWritesAreNotCached(t *testing.T) {
	m := newMemFS(nil)
	c := newFS(t, m, Options{Store: m, MaxFileSize: 10})
	require.NoError(t, c.WriteFile("f", make([]byte, 11)))
	require.Zero(t, c.Stats().Files.Inserted)
	require.NoError(t, c.WriteFile("f", make([]byte, 10)))
	require.EqualValues(t, 1, c.Stats().Files.Inserted)
}

// TestWriteWhileTheStoreIsCalled: content that is written during the flush of a removal, or
// during the write of a large file, is newer, and stays dirty.
func TestWriteWhileTheStoreIsCalled(t *testing.T) {
	for name, call := range map[string]func(c *FS) error{
		"remove": func(c *FS) error { return errors.Join(c.Remove("f"), c.Flush()) },
		"large":  func(c *FS) error { return c.WriteFile("f", make([]byte, 5000)) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMemFS(map[string]string{"f": "old"})
				m.slow("write", "remove")
				c := newFS(t, m, Options{Store: m, Write: WriteBack, MaxDirtyBytes: 4000, FlushInterval: Forever})
				require.NoError(t, c.WriteFile("f", []byte("1")))
				go call(c)
				synctest.Wait()
				require.NoError(t, c.WriteFile("f", []byte("22")))
				time.Sleep(time.Minute)
				require.Equal(t, []string{"f"}, c.Dirty())
				require.Equal(t, "22", readFile(t, c, "f"))
				require.EqualValues(t, entryOverhead+9, c.Stats().Writes.DirtyBytes)
				require.NoError(t, c.Close())
				got, _ := m.get("f")
				require.Equal(t, "22", got)
			})
		})
	}
}

// alone is a store that notes when two calls for one name overlap.
type alone struct {
	*memFS
	in      sync.Map
	overlap atomic.Bool
}

func (a *alone) enter(name string) (leave func()) {
	if _, busy := a.in.LoadOrStore(name, true); busy {
		a.overlap.Store(true)
	}
	time.Sleep(20 * time.Microsecond)
	return func() { a.in.Delete(name) }
}

func (a *alone) WriteFile(name string, data []byte) (fs.FileInfo, error) {
	defer a.enter(name)()
	return a.memFS.WriteFile(name, data)
}

func (a *alone) Remove(name string) error {
	defer a.enter(name)()
	return a.memFS.Remove(name)
}

func TestStoreCallsOfANameDoNotOverlap(t *testing.T) {
	for _, mode := range []WriteMode{WriteThrough, WriteAround, WriteBack} {
		for what, call := range []func(c *FS){
			func(c *FS) { _ = c.WriteFile("f", []byte("x")); _ = c.Flush() },
			func(c *FS) { _ = c.WriteFile("f", make([]byte, 5000)) },
			func(c *FS) { _ = c.Remove("f") },
		} {
			store := &alone{memFS: newMemFS(nil)}
			opts := Options{Store: store, Write: mode}
			if mode == WriteBack {
				opts.MaxDirtyBytes = 4000
			}
			c := newFS(t, store, opts)
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					for range 30 {
						call(c)
					}
				})
			}
			wg.Wait()
			require.False(t, store.overlap.Load(), "mode %d, call %d", mode, what)
		}
	}
}

func TestLstatOfADirtyFile(t *testing.T) {
	c, err := NewDir(t.TempDir(), Options{Write: WriteBack, FlushInterval: Forever})
	require.NoError(t, err)
	require.NoError(t, c.WriteFile("d/f", []byte("xyz")))
	i, err := c.Lstat("d/f")
	require.NoError(t, err)
	require.EqualValues(t, 3, i.Size())
	i, err = c.Lstat("d")
	require.NoError(t, err)
	require.True(t, i.IsDir())
	require.NoError(t, c.Close())
}

// TestDirWriteThatAnotherProcessChanges: if another process has changed the file since a
// write, the written content is not cached under the metadata of that change. This matters
// where files count as settled at once, as on a server whose clock is behind.
func TestDirWriteThatAnotherProcessChanges(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows renames no open file, so dirFS closes it before and returns no metadata of what it wrote")
	}
	settledFiles(t)
	defer func() { testAfterRename = func() {} }()
	for what, data := range map[string]string{"time": "NEW", "size": "longer"} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			c, err := NewDir(dir, Options{})
			require.NoError(t, err)
			defer c.Close()
			testAfterRename = func() {
				name := filepath.Join(dir, "f")
				require.NoError(t, os.WriteFile(name, []byte(data), 0o644))
				at := time.Now().Add(-time.Minute)
				require.NoError(t, os.Chtimes(name, at, at))
			}
			require.NoError(t, c.WriteFile("f", []byte("new")))
			require.Equal(t, data, readFile(t, c, "f"))
		})
	}
}

// TestDirWriteErrorsNameTheFile: errors of writes name the file, and not the temporary file.
func TestDirWriteErrorsNameTheFile(t *testing.T) {
	dir := t.TempDir()
	c, err := NewDir(dir, Options{})
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "d", "full"), 0o777))
	requireNamed := func(name string) error {
		var at *fs.PathError
		err := c.WriteFile(name, []byte("x"))
		require.ErrorAs(t, err, &at)
		require.Equal(t, name, at.Path)
		require.NotContains(t, err.Error(), temporary)
		return err
	}
	require.Error(t, requireNamed("d"), "the rename fails")
	if os.RemoveAll(dir) == nil {
		require.ErrorIs(t, requireNamed("f"), fs.ErrNotExist, "the temporary file cannot be made")
	}
}

// TestDirWriteReturnsItsOwnMetadata: a write returns the metadata of what it has written or none, also if the size alone shows the change.
func TestDirWriteReturnsItsOwnMetadata(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows renames no open file, so dirFS closes it before and returns no metadata of what it wrote")
	}
	defer func() { testAfterRename = func() {} }()
	dir := t.TempDir()
	d, err := newDirFS(dir)
	require.NoError(t, err)
	defer d.Close()
	testAfterRename = func() {
		name := filepath.Join(dir, "f")
		before, err := os.Stat(name)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(name, []byte("longer"), 0o644))
		require.NoError(t, os.Chtimes(name, before.ModTime(), before.ModTime()))
	}
	info, err := d.WriteFile("f", []byte("new"))
	require.NoError(t, err)
	require.Nil(t, info)
}

// TestStoreThatEndsTheIntervalFlush: the next interval flushes again.
func TestStoreThatEndsTheIntervalFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemFS(nil)
		c := newFS(t, m, Options{Store: m, Write: WriteBack, FlushInterval: time.Second})
		m.setFault(func(op, name string) error {
			if op == "write" {
				runtime.Goexit()
			}
			return nil
		})
		require.NoError(t, c.WriteFile("f", nil))
		time.Sleep(1500 * time.Millisecond)
		require.Equal(t, []string{"f"}, c.Dirty())
		m.setFault(nil)
		time.Sleep(time.Second)
		require.Empty(t, c.Dirty())
	})
}

// TestTwoCloses: if the first Close fails, the second still refuses the writes that it does
// not flush.
func TestTwoCloses(t *testing.T) {
	m := newMemFS(nil)
	c := newFS(t, m, Options{Store: m, Write: WriteBack, FlushInterval: Forever})
	require.NoError(t, c.WriteFile("f", nil))
	entered, release := make(chan bool), make(chan bool)
	first, refused := true, error(nil)
	m.setFault(func(op, name string) error {
		switch {
		case op != "write":
			return nil
		case first:
			first = false
			close(entered)
			<-release
			return errStore
		}
		refused = c.WriteFile("g", nil) // it finds room, and calls no store
		return nil
	})
	var wg sync.WaitGroup
	var errs [2]error
	wg.Go(func() { errs[0] = c.Close() })
	<-entered
	wg.Go(func() { errs[1] = c.Close() })
	time.Sleep(50 * time.Millisecond) // until it waits
	close(release)
	wg.Wait()
	require.ErrorIs(t, errs[0], errStore)
	require.NoError(t, errs[1])
	require.ErrorIs(t, refused, fs.ErrClosed)
	require.Empty(t, c.Dirty())
}

// TestFailedCloseKeepsOneTimer: an interval's flush that has begun when Close fails leaves no
// second timer behind.
func TestFailedCloseKeepsOneTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemFS(nil)
		m.failing("write")
		c := newFS(t, m, Options{Store: m, Write: WriteBack, FlushInterval: time.Second})
		var flushes atomic.Int64
		begin := make(chan bool)
		c.w.flushLater = func() {
			if flushes.Add(1) == 1 {
				<-begin
			}
			c.flushAtInterval()
		}
		require.NoError(t, c.WriteFile("f", nil))
		time.Sleep(1500 * time.Millisecond)
		require.ErrorIs(t, c.Close(), errStore)
		close(begin)
		time.Sleep(9900 * time.Millisecond)
		require.EqualValues(t, 10, flushes.Load())
		m.setFault(nil)
		require.NoError(t, c.Close())
	})
}

// TestCloseThatPanics: a Close in which the store panics leaves the FS open, like a Close that fails.
func TestCloseThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemFS(nil)
		c := newFS(t, m, Options{Store: m, Write: WriteBack, FlushInterval: time.Second})
		require.NoError(t, c.WriteFile("f", nil))
		m.setFault(func(op, name string) error { panic("store") })
		require.Panics(t, func() { _ = c.Close() })
		m.setFault(nil)
		time.Sleep(1500 * time.Millisecond)
		require.Empty(t, c.Dirty())
		require.NoError(t, c.WriteFile("f", nil))
		require.NoError(t, c.Close())
	})
}

// linked is a source in which each file is a link too.
type linked struct{ *memFS }

func (l linked) ReadLink(string) (string, error)        { return "target", nil }
func (l linked) Lstat(name string) (fs.FileInfo, error) { return l.Stat(name) }

// TestReadLinkOfADirtyFile: a file that was written or removed is no link.
func TestReadLinkOfADirtyFile(t *testing.T) {
	m := linked{newMemFS(map[string]string{"a": "", "b": "", "c": ""})}
	c := newFS(t, m, Options{Store: m, Write: WriteBack, FlushInterval: Forever})
	require.NoError(t, c.WriteFile("a", nil))
	require.NoError(t, c.Remove("b"))
	_, err := c.ReadLink("a")
	require.ErrorIs(t, err, fs.ErrInvalid)
	_, err = c.ReadLink("b")
	require.True(t, errors.Is(err, fs.ErrNotExist))
	to, err := c.ReadLink("c")
	require.NoError(t, err)
	require.Equal(t, "target", to)
	require.NoError(t, c.Close())
}

// TestLinksWithWriteBack: a link is a link beside dirty files too, and Remove removes a link that
// leads nowhere.
func TestLinksWithWriteBack(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "d"), 0o777))
	testtree.Symlink(t, "d", filepath.Join(dir, "link"))
	require.NoError(t, os.Symlink("nowhere", filepath.Join(dir, "broken")))
	c, err := NewDir(dir, Options{Write: WriteBack, FlushInterval: Forever})
	require.NoError(t, err)
	require.NoError(t, c.WriteFile("link/f", nil))
	i, err := c.Lstat("link")
	require.NoError(t, err)
	require.Equal(t, fs.ModeSymlink, i.Mode().Type())
	require.NoError(t, c.Remove("broken"))
	require.ErrorIs(t, c.Remove("broken"), fs.ErrNotExist)
	require.NoError(t, c.Remove("link/f"))
	require.NoError(t, c.Remove("link"))
	require.NoFileExists(t, filepath.Join(dir, "link"), "as a directory")
	_, err = c.ReadFile("link/f")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, c.Close())
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 1)
}

// TestReadsDoNotWaitForTheLockOfWrites: while nothing is dirty, reads do not lock what all writes lock.
func TestReadsDoNotWaitForTheLockOfWrites(t *testing.T) {
	m := linked{newMemFS(map[string]string{"d/f": "x"})}
	c := newFS(t, m, Options{Store: m, Write: WriteBack})
	c.w.mu.Lock()
	done := make(chan error)
	go func() {
		_, err := c.ReadFile("d/f")
		_, err2 := c.ReadDir("d")
		_, err3 := c.Lstat("d/f")
		_, err4 := c.Stat("d")
		done <- errors.Join(err, err2, err3, err4)
	}()
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(time.Minute):
		t.Error("they wait")
	}
	c.w.mu.Unlock()
	require.NoError(t, c.Close())
}

// TestInvalidateDuringAWrite: content whose write began before an Invalidate is not cached after it, in WriteFile and in a flush. A
// write of another name drops nothing.
func TestInvalidateDuringAWrite(t *testing.T) {
	for name, drop := range map[string]func(c *FS){
		"name":    func(c *FS) { c.Invalidate("f") },
		"prefix":  func(c *FS) { c.Invalidate("f/") },
		"pattern": func(c *FS) { _, _ = c.InvalidatePattern("*") },
		"clear":   func(c *FS) { c.Clear() },
	} {
		for _, mode := range []WriteMode{WriteThrough, WriteBack} {
			t.Run(fmt.Sprint(name, "/", mode), func(t *testing.T) {
				m := newMemFS(nil)
				c := newFS(t, m, Options{Store: m, Write: mode, Trust: Forever, Shards: 1})
				once := sync.Once{}
				m.setFault(func(op, _ string) error {
					if op == "written" {
						once.Do(func() { m.put("f", "beneath"); drop(c) })
					}
					return nil
				})
				require.NoError(t, c.WriteFile("f", []byte("written")))
				require.NoError(t, c.Flush())
				require.Equal(t, "beneath", readFile(t, c, "f"))
			})
		}
	}
	m := newMemFS(nil)
	c := newFS(t, m, Options{Store: m, Trust: Forever, Shards: 1})
	once := sync.Once{}
	m.setFault(func(op, name string) error {
		if op == "written" && name == "f" {
			once.Do(func() {
				require.NoError(t, c.WriteFile("g", nil))
				require.NoError(t, c.Remove("g"))
				require.ErrorIs(t, c.WriteFile("h", nil), errStore)
			})
		}
		if op == "write" && name == "h" {
			return errStore
		}
		return nil
	})
	require.NoError(t, c.WriteFile("f", nil))
	require.EqualValues(t, 1, c.Stats().Files.Entries)
}

// TestWritersOfOtherNamesDoNotWait: writers of other names do not wait, however many there are.
func TestWritersOfOtherNamesDoNotWait(t *testing.T) {
	for _, mode := range []WriteMode{WriteThrough, WriteAround} {
		synctest.Test(t, func(t *testing.T) {
			m := newMemFS(nil)
			m.slow("write")
			c := newFS(t, m, Options{Store: m, Write: mode})
			start := time.Now()
			var wg sync.WaitGroup
			for i := range 3 * 300 {
				wg.Go(func() { require.NoError(t, c.WriteFile(fmt.Sprint(i%300), nil)) })
			}
			wg.Wait()
			require.Equal(t, 3*time.Second, time.Since(start), "three writes of each name, one after the other")
		})
	}
}

// TestDirSyncs: a write syncs the file before its rename, and then the directories that have a new entry. So does a snapshot.
func TestDirSyncs(t *testing.T) {
	old := fsync
	defer func() { fsync = old }()
	dir := t.TempDir()
	c, err := NewDir(dir, Options{Write: WriteAround})
	require.NoError(t, err)
	defer c.Close()
	var synced []string
	fail := ""
	fsync = func(f *os.File) error {
		info, err := f.Stat()
		require.NoError(t, err)
		name, content := "file", ""
		if info.IsDir() {
			names, err := f.Readdirnames(-1)
			require.NoError(t, err)
			slices.Sort(names)
			name = fmt.Sprint(names)
		} else {
			content = fmt.Sprint(" of ", info.Size())
			matches, err := filepath.Glob(filepath.Join(dir, "d", "*"))
			require.NoError(t, err)
			require.LessOrEqual(t, len(matches), 1, "it is not renamed yet")
		}
		synced = append(synced, name+content)
		if name == fail {
			return errStore
		}
		return old(f)
	}
	for _, step := range []struct {
		do   func() error
		want []string
	}{
		{func() error { return c.WriteFile("d/e/f", []byte("123")) }, []string{"file of 3", "[f]", "[e]", "[d]"}},
		{func() error { return c.WriteFile("d/e/f", []byte("1")) }, []string{"file of 1", "[f]"}},
		{func() error { return c.Remove("d/e/f") }, []string{"[]"}},
		{func() error { return c.Remove("d/e") }, []string{"[]"}},
		{func() error { return c.WriteFile("d/e/f", nil) }, []string{"file of 0", "[f]", "[e]", "[d]"}},
		{func() error { return c.SaveSnapshot(filepath.Join(dir, "d", "e", "f")) }, []string{fmt.Sprint("file of ", 8+recordSize+8), "[f]"}},
	} {
		synced = []string{}
		require.NoError(t, step.do())
		if !fsinfo.HasInodes { // nor are directories synced
			step.want = slices.DeleteFunc(step.want, func(s string) bool { return s[0] == '[' })
		}
		require.Equal(t, step.want, synced)
	}
	fail = "file"
	synced = nil
	require.ErrorIs(t, c.WriteFile("d/e/g", nil), errStore)
	require.ErrorIs(t, c.SaveSnapshot(filepath.Join(dir, "d", "e", "g")), errStore)
	entries, err := os.ReadDir(filepath.Join(dir, "d", "e"))
	require.NoError(t, err)
	require.Len(t, entries, 1, "neither a file nor a temporary one")
	if fsinfo.HasInodes {
		fail = "[f g]"
		require.ErrorIs(t, c.WriteFile("d/e/g", nil), errStore, "it may be lost")
	}
}

// TestLeftovers: temporary files of killed writers are not listed, and are removed when they are old. No other file is removed.
func TestLeftovers(t *testing.T) {
	dir := t.TempDir()
	young, old := temporary+strings.Repeat("A", 26), temporary+strings.Repeat("7", 26)
	hidden := []string{young, old, temporary + strings.Repeat("D", 26)}
	others := []string{temporary, temporary + "A", temporary + strings.Repeat("a", 26), temporary + strings.Repeat("A", 27), "x" + old}
	past := time.Now().Add(-leftover - time.Minute)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "d", hidden[2]), 0o777))
	for _, name := range append(others, young, old) {
		full := filepath.Join(dir, "d", name)
		require.NoError(t, os.WriteFile(full, []byte("x"), 0o666))
		if name != young {
			require.NoError(t, os.Chtimes(full, past, past))
		}
	}
	require.NoError(t, os.Chtimes(filepath.Join(dir, "d", hidden[2]), past, past))
	c, err := NewDir(dir, Options{Trust: Forever})
	require.NoError(t, err)
	defer c.Close()
	listed := func() (names []string) {
		entries, err := c.ReadDir("d")
		require.NoError(t, err)
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	slices.Sort(others)
	require.Equal(t, others, listed())
	d, err := c.source.Open("d")
	require.NoError(t, err)
	one := 0
	for {
		entries, err := d.(fs.ReadDirFile).ReadDir(1)
		one += len(entries)
		if err != nil {
			require.Equal(t, io.EOF, err)
			break
		}
		require.Len(t, entries, 1)
	}
	require.Equal(t, len(others), one)
	require.NoError(t, d.Close())
	require.EqualValues(t, len(others), warm(t, c, WarmOptions{}).Warmed)

	require.FileExists(t, filepath.Join(dir, "d", old), "reading removes nothing")
	require.NoError(t, c.WriteFile("d/f", nil))
	require.NoFileExists(t, filepath.Join(dir, "d", old))
	require.FileExists(t, filepath.Join(dir, "d", young))
	require.DirExists(t, filepath.Join(dir, "d", hidden[2]))
	require.ElementsMatch(t, append(others, "f"), listed())
	// The directory is not looked through at each write.
	require.NoError(t, os.WriteFile(filepath.Join(dir, "d", old), nil, 0o666))
	require.NoError(t, os.Chtimes(filepath.Join(dir, "d", old), past, past))
	require.NoError(t, c.WriteFile("d/f", nil))
	require.FileExists(t, filepath.Join(dir, "d", old))
	require.NoError(t, c.SaveSnapshot(filepath.Join(dir, "d", "snapshot")))
	require.NoFileExists(t, filepath.Join(dir, "d", old))
}
