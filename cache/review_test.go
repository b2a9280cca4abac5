package cache

import (
	"bufio"
	"bytes"
	"errors"
	"io/fs"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/require"
)

// TestCostOfAResultDoesNotOverflow: a result with the largest cost is not cached.
func TestCostOfAResultDoesNotOverflow(t *testing.T) {
	c := newFS(t, newMemFS(map[string]string{"f": "x"}), Options{})
	r, err := NewResults(c, ResultOptions[int]{Cost: func(int) int64 { return math.MaxInt64 }}, func(File) (int, error) { return 1, nil })
	require.NoError(t, err)
	_, err = r.Load("f")
	require.NoError(t, err)
	s := r.Stats()
	require.Zero(t, s.Entries)
	require.Zero(t, s.Bytes)
	require.EqualValues(t, 1, s.TooLarge)
}

// TestNegativeSize: a source that does not know the size is read, and not cached.
func TestNegativeSize(t *testing.T) {
	m := newMemFS(map[string]string{"f": "data"})
	m.files["f"].lies = -5
	c := newFS(t, m, Options{Trust: Forever})
	require.Equal(t, "data", readFile(t, c, "f"))
	require.Zero(t, c.Stats().Files.Entries)
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

// TestTwoCloses: when the first fails, the second still refuses the writes that it does not
// flush.
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

// TestWarmCountsADirectoryOnce: each pass of First meets the one that cannot be listed.
func TestWarmCountsADirectoryOnce(t *testing.T) {
	m := newMemFS(map[string]string{"bad/f": "", "a": "", "b": ""})
	m.setFault(func(op, name string) error {
		if op == "open" && name == "bad" {
			return errStore
		}
		return nil
	})
	r, err := newFS(t, m, Options{}).Warm(t.Context(), WarmOptions{First: []string{"**/a", "**/b"}})
	require.ErrorIs(t, err, errStore)
	require.Equal(t, 1, strings.Count(err.Error(), errStore.Error()))
	require.EqualValues(t, 1, r.Failed)
	require.EqualValues(t, 2, r.Warmed)
}

// careless is a source that does not look at names.
type careless struct {
	*memFS
	t *testing.T
}

func (s careless) Stat(name string) (fs.FileInfo, error) {
	require.True(s.t, fs.ValidPath(name), "%q", name)
	return s.memFS.Stat(name)
}

func (s careless) Open(name string) (fs.File, error) {
	require.True(s.t, fs.ValidPath(name), "%q", name)
	return s.memFS.Open(name)
}

// TestWarmGivesTheSourceNoBadNames: not all sources look at names.
func TestWarmGivesTheSourceNoBadNames(t *testing.T) {
	bad := []string{"../f", "/f", "d/../f", ".", "", "d//f", "f/..", "../"}
	r, err := newFS(t, careless{newMemFS(map[string]string{"f": "", "d/f": ""}), t}, Options{}).Warm(t.Context(),
		WarmOptions{Files: slices.Values(bad)})
	require.Error(t, err)
	require.EqualValues(t, len(bad), r.Failed)
}

// TestSnapshotWithPolicyTTL: an entry without a limit of its own has that of the Options.
func TestSnapshotWithPolicyTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemFS(map[string]string{"f": ""})
		opts := Options{Policy: TTL, TTL: time.Hour, TTLOf: func(string, fs.FileInfo) time.Duration { return -1 }}
		snapshot := snapshotOf(t, m, opts, "f")
		opts.TTL = time.Minute
		c := newFS(t, m, opts)
		n, err := c.LoadSnapshot(bytes.NewReader(snapshot))
		require.NoError(t, err)
		require.Equal(t, 1, n)
		time.Sleep(2 * time.Minute)
		require.Zero(t, c.Stats().Files.Entries)
	})
}

// TestSnapshotOfAnotherCount: whole sums do not excuse an end that counts other entries.
func TestSnapshotOfAnotherCount(t *testing.T) {
	var b bytes.Buffer
	s := &snapshotWriter{to: bufio.NewWriter(&b), sum: xxhash.New()}
	s.write([]byte(snapshotMagic))
	var end [recordSize]byte
	end[4] = 1
	s.write(end[:])
	s.writeSum()
	require.NoError(t, s.to.Flush())
	_, err := newFS(t, newMemFS(nil), Options{}).LoadSnapshot(&b)
	require.ErrorIs(t, err, ErrSnapshot)
}
