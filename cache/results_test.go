package cache

import (
	"errors"
	"io/fs"
	"math"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestResults(t *testing.T) {
	for _, trust := range []time.Duration{0, time.Hour, Forever} {
		m := newMemFS(map[string]string{"f": "abc", "d/bad": "x", "large": strings.Repeat("x", 5000)})
		c := newFS(t, m, Options{Trust: trust, MaxFileSize: 1000})
		calls := 0
		r, err := NewResults(c, ResultOptions[int]{Cost: func(int) int64 { return 8 }}, func(f File) (int, error) {
			calls++
			if f.Name == "d/bad" {
				return 0, errors.New("bad")
			}
			require.EqualValues(t, len(f.Data), f.Info.Size())
			return len(f.Data), nil
		})
		require.NoError(t, err)
		_, ok := r.Get("f")
		require.False(t, ok)
		for range 3 {
			n, err := r.Load("f")
			require.NoError(t, err)
			require.Equal(t, 3, n)
		}
		require.Equal(t, 1, calls)
		n, ok := r.Get("f")
		require.True(t, ok)
		require.Equal(t, 3, n)
		require.EqualValues(t, 1+entryOverhead+8, r.Stats().Bytes)

		for range 2 {
			n, err = r.Load("large") // its content is not cached, its result is
			require.NoError(t, err)
			require.Equal(t, 5000, n)
		}
		require.Equal(t, 2, calls)

		m.put("f", "abcd")
		if trust != 0 {
			n, err = r.Load("f")
			require.NoError(t, err)
			require.Equal(t, 3, n)
			c.Invalidate("f")
		}
		_, ok = r.Get("f")
		require.False(t, ok)
		n, err = r.Load("f")
		require.NoError(t, err)
		require.Equal(t, 4, n)

		for range 2 {
			_, err = r.Load("d/bad")
			require.EqualError(t, err, "bad")
		}
		require.Equal(t, 5, calls, "an error is not cached")
		_, err = r.Load("d")
		require.Error(t, err)
		_, err = r.Load("../f")
		require.Error(t, err)
		c.Invalidate("f/")
		_, ok = r.Get("f")
		require.False(t, ok)
		requireStats(t, r.Stats())
	}
	_, err := NewResults(nil, ResultOptions[int]{}, func(File) (int, error) { return 0, nil })
	require.Error(t, err)
	_, err = NewResults(newFS(t, newMemFS(nil), Options{}), ResultOptions[int]{MaxBytes: -1}, func(File) (int, error) { return 0, nil })
	require.Error(t, err)
}

// TestResultOfAChangingFile: a result that was made of content without proof is not kept.
func TestResultOfAChangingFile(t *testing.T) {
	m := newMemFS(map[string]string{"f": "abc"})
	m.files["f"].lies = 1
	c := newFS(t, m, Options{Trust: Forever})
	r, err := NewResults(c, ResultOptions[int]{}, func(f File) (int, error) { return len(f.Data), nil })
	require.NoError(t, err)
	_, err = r.Load("f")
	require.NoError(t, err)
	require.Zero(t, r.Stats().Entries)
}

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

// TestSeveralResults: several Results of one FS are all dropped. Their functions get content whose capacity is its length.
func TestSeveralResults(t *testing.T) {
	m := newMemFS(map[string]string{"f": "x"})
	c := newFS(t, m, Options{Trust: Forever, Store: m})
	var all []*Results[int]
	calls := 0
	for range 3 {
		r, err := NewResults(c, ResultOptions[int]{}, func(f File) (int, error) { calls++; return cap(f.Data), nil })
		require.NoError(t, err)
		all = append(all, r)
	}
	for i, change := range []func(){func() {}, func() { c.Invalidate("f") }, func() { require.NoError(t, c.WriteFile("f", []byte("y"))) }, func() { c.Clear() }} {
		change()
		for _, r := range all {
			n, err := r.Load("f")
			require.NoError(t, err)
			require.Equal(t, 1, n)
		}
		require.Equal(t, 3*(i+1), calls)
	}
}

// TestResultOptions: the bounds of results are those of their options. What is no regular file has no result.
func TestResultOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemFS(map[string]string{"a": "1", "b": "2", "c": "3"})
		c := newFS(t, m, Options{Trust: Forever})
		fn := func(f File) (int, error) { return len(f.Data), nil }
		for name, tt := range map[string]struct {
			opts ResultOptions[int]
			why  string
			left int64
		}{
			"entries": {ResultOptions[int]{MaxEntries: 2, Shards: 1}, "entries", 2},
			"bytes":   {ResultOptions[int]{MaxBytes: 2 * (entryOverhead + 1), Shards: 1}, "bytes", 2},
			"cost":    {ResultOptions[int]{MaxBytes: 3 * (entryOverhead + 1), Cost: func(int) int64 { return 1 }, Shards: 1}, "bytes", 2},
			"less":    {ResultOptions[int]{MaxBytes: 3 * (entryOverhead + 1), Cost: func(int) int64 { return -1000 }, Shards: 1}, "bytes", 3},
			"time":    {ResultOptions[int]{TTL: time.Second, Shards: 3}, "expired", 0},
			"policy":  {ResultOptions[int]{Policy: TTL, TTL: time.Second, MaxEntries: 2, Shards: 1}, "entries", 0},
		} {
			r, err := NewResults(c, tt.opts, fn)
			require.NoError(t, err)
			for _, file := range []string{"a", "b", "c"} {
				_, err := r.Load(file)
				require.NoError(t, err)
				_, ok := r.Get("a")
				require.True(t, file == "c" || ok, name)
			}
			_, ok := r.Get("b")
			require.Equal(t, name == "policy" || name == "time" || name == "less", ok, "%s: the one that was used less, or came later", name)
			require.Len(t, r.engine.shards, tt.opts.Shards)
			time.Sleep(time.Second)
			s := r.Stats()
			require.Equal(t, tt.left, s.Entries, name)
			require.Equal(t, tt.why != "expired" && tt.left != 3, s.Evictions[tt.why] == 1, name)
		}
	})
	for _, opts := range []ResultOptions[int]{{MaxEntries: -1}, {Policy: 9}, {TTL: -1}, {Shards: -1}, {Policy: TTL}} {
		_, err := NewResults(newFS(t, newMemFS(nil), Options{}), opts, func(File) (int, error) { return 0, nil })
		require.Error(t, err)
	}
	_, err := NewResults[int](newFS(t, newMemFS(nil), Options{}), ResultOptions[int]{}, nil)
	require.Error(t, err)
	r, err := NewResults(newFS(t, fstest.MapFS{"fifo": {Mode: fs.ModeNamedPipe}, "d/f": {}}, Options{}), ResultOptions[int]{}, func(File) (int, error) { return 0, nil })
	require.NoError(t, err)
	for name, want := range map[string]error{"fifo": ErrNotRegular, "d": syscall.EISDIR, "none": fs.ErrNotExist, "/": fs.ErrInvalid} {
		_, err = r.Load(name)
		require.ErrorIs(t, err, want, name)
		var at *fs.PathError
		require.ErrorAs(t, err, &at)
		require.Equal(t, name, at.Path)
	}
}
