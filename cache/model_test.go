package cache

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestModel lets goroutines do random operations on one cache whose source and store
// fail at random, and compares each answer with a plain map. Each goroutine has a
// directory of its own, so that it knows what must be there, while the others evict,
// flush and invalidate. FILEPROC_FAULTS is the number of operations, of all together.
func TestModel(t *testing.T) {
	steps := rounds(t, "FILEPROC_FAULTS", 100_000)
	const goroutines = 4
	for name, policy := range policies {
		for mode, write := range []string{"through", "around", "back"} {
			for _, trust := range []time.Duration{0, Forever} {
				t.Run(fmt.Sprint(name, "/", write, "/", trust != 0), func(t *testing.T) {
					t.Parallel()
					runModel(t, policy, WriteMode(mode), trust, goroutines, steps/24/goroutines)
				})
			}
		}
	}
}

const modelMaxBytes = 24 * (entryOverhead + 100)

func runModel(t *testing.T, policy Policy, mode WriteMode, trust time.Duration, goroutines, steps int) {
	m := newMemFS(nil)
	opts := Options{Store: m, Policy: policy, Write: mode, Trust: trust, MaxBytes: modelMaxBytes, MaxEntries: 15, MaxMetaBytes: 4000, Shards: 2,
		TTL: time.Millisecond}
	if mode == WriteBack {
		opts.FlushInterval = []time.Duration{Forever, time.Millisecond}[rand.IntN(2)]
		opts.FlushWorkers = rand.IntN(4)
	}
	c := newFS(t, m, opts)
	results, err := NewResults(c, ResultOptions[string]{MaxEntries: 10}, func(f File) (string, error) { return "made of " + string(f.Data), nil })
	require.NoError(t, err)
	var faults [16]atomic.Int64
	var healthy atomic.Bool
	m.setFault(func(op, name string) error {
		if healthy.Load() || rand.IntN(15) != 0 {
			return nil
		}
		g := 0
		fmt.Sscanf(name, "g%d", &g)
		faults[g].Add(1)
		return errStore
	})
	var wg sync.WaitGroup
	users := make([]*modelUser, goroutines)
	for g := range users {
		u := &modelUser{t: t, m: m, c: c, results: results, dir: fmt.Sprint("g", g), faults: &faults[g], want: map[string]string{},
			back: mode == WriteBack, rnd: rand.New(rand.NewPCG(uint64(g), uint64(policy)))}
		m.put(u.dir+"/keep", "kept")
		u.want["keep"] = "kept"
		users[g] = u
		wg.Go(func() {
			for i := range steps {
				if !u.step(i) {
					return
				}
			}
		})
	}
	wg.Wait()
	healthy.Store(true)
	if t.Failed() {
		return
	}
	require.NoError(t, c.Close())
	for _, u := range users { // the store has everything
		for name, want := range u.want {
			got, ok := m.get(u.dir + "/" + name)
			require.True(t, ok, name)
			require.Equal(t, want, got)
		}
		entries, err := fs.ReadDir(m, u.dir)
		require.NoError(t, err)
		require.Len(t, entries, len(u.want))
	}
	s := c.Stats()
	requireStats(t, s.Files)
	requireStats(t, s.Metadata)
	requireStats(t, results.Stats())
	require.Zero(t, s.Writes.DirtyFiles)
	require.Zero(t, s.Writes.DirtyBytes)
	require.Empty(t, c.w.below)
	if steps > 5_000 { // in few steps on a busy machine, all may have expired
		require.NotZero(t, s.Files.Hits)
		require.NotZero(t, s.Files.Evictions["bytes"]+s.Files.Evictions["entries"]+s.Files.Evictions["expired"])
	}
}

type modelUser struct {
	t       *testing.T
	m       *memFS
	c       *FS
	results *Results[string]
	dir     string
	want    map[string]string
	faults  *atomic.Int64
	back    bool
	rnd     *rand.Rand
}

// step does one operation, and reports whether its outcome is right.
func (u *modelUser) step(i int) bool {
	name := fmt.Sprint("f", u.rnd.IntN(8))
	full := u.dir + "/" + name
	want, there := u.want[name]
	before := u.faults.Load()
	op := ""
	bad := func(format string, args ...any) bool {
		u.t.Errorf("%s, step %d: %s %s: %s", u.dir, i, op, name, fmt.Sprintf(format, args...))
		return false
	}
	// failed says whether err is an answer: an injected error, or that there is no file.
	failed := func(err error) (is, ok bool) {
		switch {
		case err == nil:
			return false, there
		case u.faults.Load() > before && errors.Is(err, errStore):
			return true, true
		}
		return true, !there && errors.Is(err, fs.ErrNotExist)
	}
	switch n := u.rnd.IntN(100); {
	case n < 30:
		op = "ReadFile"
		data, err := u.c.ReadFile(full)
		if is, ok := failed(err); !ok || !is && string(data) != want {
			return bad("%q, %v; want %q, %v", data, err, want, there)
		}
	case n < 40:
		op = "Open"
		f, err := u.c.Open(full)
		if is, ok := failed(err); !ok {
			return bad("%v, want %v", err, there)
		} else if !is {
			from := int64(u.rnd.IntN(len(want) + 1))
			_, err = f.(io.Seeker).Seek(from, io.SeekStart)
			got, err2 := io.ReadAll(io.LimitReader(f, 20))
			if err != nil || err2 != nil || !strings.HasPrefix(want[from:], string(got)) || len(got) < min(20, len(want)-int(from)) {
				return bad("%q of %q", got, want[from:])
			}
			if f.Close() != nil {
				return bad("close")
			}
		}
	case n < 48:
		op = "Load"
		got, err := u.results.Load(full)
		if is, ok := failed(err); !ok || !is && got != "made of "+want {
			return bad("%q, %v; want %q, %v", got, err, want, there)
		}
	case n < 54:
		op = "Stat"
		s, err := u.c.Stat(full)
		if is, ok := failed(err); !ok || !is && (s.Size() != int64(len(want)) || s.Name() != name) {
			return bad("%v, %v; want %d, %v", s, err, len(want), there)
		}
	case n < 60:
		op = "ReadDir"
		entries, err := u.c.ReadDir(u.dir)
		if err != nil {
			if u.faults.Load() == before || !errors.Is(err, errStore) {
				return bad("%v", err)
			}
			break
		}
		var got []string
		for _, e := range entries {
			got = append(got, e.Name())
		}
		names := []string{}
		for name := range u.want {
			names = append(names, name)
		}
		slices.Sort(names)
		if !slices.Equal(got, names) {
			return bad("%v, want %v", got, names)
		}
	case n < 80:
		op = "WriteFile"
		size := u.rnd.IntN(200)
		if u.rnd.IntN(30) == 0 {
			size = modelMaxBytes / 3 // more than may be dirty
		}
		data := bytes.Repeat([]byte(fmt.Sprintf("%s#%d|", full, i)), size/8+1)[:size]
		err := u.c.WriteFile(full, data)
		switch {
		case err == nil:
			u.want[name] = string(data)
		case u.back && !errors.Is(err, errStore), !u.back && u.faults.Load() == before:
			return bad("%v", err)
		case u.back && slices.Contains(u.c.Dirty(), full): // it stays what it was
		case errors.Is(err, ErrDirty):
		default:
			u.fromStore(name)
		}
	case n < 86:
		op = "Remove"
		err := u.c.Remove(full)
		if u.back && there && errors.Is(err, ErrDirty) && errors.Is(err, errStore) { // somebody else's file could not be flushed
			break
		}
		if is, ok := failed(err); !ok {
			return bad("%v, want %v", err, there)
		} else if !is {
			delete(u.want, name)
		} else if !u.back || !slices.Contains(u.c.Dirty(), full) {
			u.fromStore(name)
		}
	case n < 91:
		op = "write beneath"
		if u.back && (u.c.Flush(full) != nil || slices.Contains(u.c.Dirty(), full)) {
			break
		}
		data := fmt.Sprint(full, " beneath ", i)
		u.m.put(full, data)
		u.want[name] = data
		u.invalidate()(full)
	case n < 95:
		op = "Flush"
		if err := u.c.Flush(full); err != nil && u.faults.Load() == before {
			return bad("%v", err)
		}
	default:
		op = "Invalidate"
		u.invalidate()(full)
	}
	if i%50 == 0 {
		s := u.c.Stats()
		if s.Files.Bytes+s.Writes.DirtyBytes > modelMaxBytes || s.Files.Entries > 15 || s.Metadata.Bytes > 4000 {
			return bad("over the bounds: %+v", s)
		}
	}
	return true
}

// fromStore sets the wanted content to what the store has, after an error that does not
// say what the store has.
func (u *modelUser) fromStore(name string) {
	if data, ok := u.m.get(u.dir + "/" + name); ok {
		u.want[name] = data
	} else {
		delete(u.want, name)
	}
}

// invalidate returns one of the ways to invalidate a name.
func (u *modelUser) invalidate() func(string) {
	return []func(string){
		func(name string) { u.c.Invalidate(name) },
		func(name string) { u.c.Invalidate(name + "/") },
		func(string) { u.c.Invalidate(u.dir + "/") },
		func(string) { u.c.Clear() },
		func(name string) { _, _ = u.c.InvalidatePattern("**/" + name[len(u.dir)+1:]) },
	}[u.rnd.IntN(5)]
}
