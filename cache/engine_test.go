package cache

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var policies = map[string]Policy{"LRU": LRU, "LFU": LFU, "TTL": TTL, "Hybrid": Hybrid}

// get is engine.get of a value that is trusted.
func get[V comparable](e *engine[V], key string) (V, bool) {
	v, ok, _ := e.get(key, math.MinInt64)
	return v, ok
}

// TestSlowerComparison: a comparison that began earlier, and ended later, does not take back the trust that a newer comparison has given.
func TestSlowerComparison(t *testing.T) {
	e := newEngine[int](limits{maxBytes: 100, maxEntries: 10})
	e.set("k", 1, loaded{cost: 1, began: 10})
	trusted := func(notBefore int64) bool {
		v, ok, trusted := e.get("k", notBefore)
		require.True(t, ok)
		require.Equal(t, 1, v)
		return trusted
	}
	require.True(t, trusted(10))
	require.False(t, trusted(11))
	for _, at := range []int64{30, 20} {
		e.checked("k", 1, at, same, changed)
		require.True(t, trusted(30))
		require.False(t, trusted(31))
	}
	e.checked("k", 1, 40, unknown, changed)
	require.False(t, trusted(31), "a comparison that failed gives none")
	e.checked("k", 2, 50, same, changed)
	require.False(t, trusted(31), "nor does one of another value")
	e.checked("k", 2, 50, differs, changed)
	require.True(t, trusted(30))
	e.checked("k", 1, 10, differs, changed)
	_, ok := get(e, "k")
	require.False(t, ok)
}

// TestLongestTTL: an entry whose time to live goes beyond the end of the clock never expires, whenever it comes.
func TestLongestTTL(t *testing.T) {
	for _, age := range []time.Duration{0, 1, time.Hour} {
		for _, ttl := range []time.Duration{math.MaxInt64, math.MaxInt64 - 1, math.MaxInt64 - time.Minute} {
			e := newEngine[int](limits{maxBytes: 100, maxEntries: 10})
			e.start = e.start.Add(-age)
			e.set("k", 1, loaded{cost: 1, ttl: ttl})
			_, ok := get(e, "k")
			require.True(t, ok)
			require.Positive(t, e.shards[0].entries["k"].expires)
		}
	}
}

// A model is an engine of one shard, written plainly: each step looks at all
// entries.
type model struct {
	policy     Policy
	maxBytes   int64
	maxEntries int
	ttl        time.Duration
	entries    []modelEntry // from the first used to the last
	evicted    [reasons]int64
	hits       int64
}

type modelEntry struct {
	key       string
	value     int
	cost      int64
	expires   int64
	uses      int
	protected bool
}

func (m *model) find(key string) int {
	return slices.IndexFunc(m.entries, func(e modelEntry) bool { return e.key == key })
}

func (m *model) remove(i int, why reason) {
	m.entries = slices.Delete(m.entries, i, i+1)
	m.evicted[why]++
}

func (m *model) bytes() (sum int64) {
	for _, e := range m.entries {
		sum += e.cost
	}
	return sum
}

func (m *model) live(key string, now int64) int {
	i := m.find(key)
	if i >= 0 && m.entries[i].expires <= now {
		m.remove(i, expired)
		return -1
	}
	return i
}

func (m *model) get(key string, now int64) (int, bool) {
	i := m.live(key, now)
	if i < 0 {
		return 0, false
	}
	m.hits++
	e := m.entries[i]
	if m.policy == TTL {
		return e.value, true
	}
	m.entries = slices.Delete(m.entries, i, i+1)
	e.uses++
	e.protected = m.policy == Hybrid
	m.entries = append(m.entries, e)
	for {
		var n, bytes int64
		first := -1
		for i, e := range m.entries {
			if e.protected {
				if first < 0 {
					first = i
				}
				n, bytes = n+1, bytes+e.cost
			}
		}
		if 5*n <= int64(4*m.maxEntries) && 5*bytes <= 4*m.maxBytes {
			break
		}
		d := m.entries[first]
		d.protected = false
		m.entries = append(slices.Delete(m.entries, first, first+1), d)
	}
	return e.value, true
}

// worst returns the index of the entry that is the least by key.
func (m *model) worst(key func(modelEntry) int64) int {
	w := 0
	for i, e := range m.entries {
		if key(e) < key(m.entries[w]) {
			w = i
		}
	}
	return w
}

func (m *model) expire(now int64) bool {
	if len(m.entries) == 0 {
		return false
	}
	i := m.worst(func(e modelEntry) int64 { return e.expires })
	if m.entries[i].expires > now {
		return false
	}
	m.remove(i, expired)
	return true
}

func (m *model) set(key string, v int, cost int64, ttl time.Duration, now int64) {
	if i := m.find(key); i >= 0 {
		m.remove(i, replaced)
	}
	if cost > m.maxBytes {
		return
	}
	if m.expire(now) {
		m.expire(now)
	}
	for m.bytes()+cost > m.maxBytes || len(m.entries) >= m.maxEntries {
		why := overEntries
		if m.bytes()+cost > m.maxBytes {
			why = overBytes
		}
		if m.expire(now) {
			continue
		}
		m.remove(m.worst(func(e modelEntry) int64 {
			switch {
			case m.policy == LFU:
				return int64(e.uses)
			case m.policy == TTL:
				return e.expires
			case e.protected:
				return 1
			}
			return 0
		}), why)
	}
	e := modelEntry{key: key, value: v, cost: cost, expires: 1 << 62}
	if ttl == 0 || ttl < 0 && m.policy == TTL {
		ttl = m.ttl
	}
	if ttl > 0 {
		e.expires = now + int64(ttl)
	}
	m.entries = append(m.entries, e)
}

// TestEngineIsItsModel lets each policy do random operations, and compares it with
// the model after each.
func TestEngineIsItsModel(t *testing.T) {
	for name, policy := range policies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				for round := range 10 {
					testEngineIsItsModel(t, policy, uint64(round), rounds(t, "FILEPROC_FAULTS", 20_000)/10)
				}
			})
		})
	}
}

func testEngineIsItsModel(t *testing.T, policy Policy, seed uint64, steps int) {
	rnd := rand.New(rand.NewPCG(seed, 15))
	m := &model{policy: policy, maxBytes: 1 + rnd.Int64N(200), maxEntries: 1 + rnd.IntN(30)}
	if policy == TTL || seed%2 == 0 {
		m.ttl = 60 * time.Microsecond
	}
	e := newEngine[int](limits{policy: policy, maxBytes: m.maxBytes, maxEntries: m.maxEntries, ttl: m.ttl, shards: 1})
	s := e.shards[0]
	for i := range steps {
		time.Sleep(time.Microsecond)
		now := e.now()
		key := fmt.Sprint("k", int(40*rnd.Float64()*rnd.Float64()))
		var op string
		switch n := rnd.IntN(100); {
		case n < 50:
			op = "get"
			v, ok := get(e, key)
			mv, mok := m.get(key, now)
			if ok != mok || v != mv {
				t.Fatalf("seed %d, step %d: get %s is %d %v, want %d %v", seed, i, key, v, ok, mv, mok)
			}
		case n < 90:
			// A time to live of its own, such that no two entries expire at the same moment.
			ttl := time.Duration(0)
			switch n % 4 {
			case 0:
				ttl = time.Duration(1000*rnd.IntN(300) + i%1000 + 1)
			case 1:
				ttl = -1
			}
			cost := rnd.Int64N(3 + m.maxBytes/int64(1+rnd.IntN(20)))
			op = fmt.Sprint("set ", cost, ttl)
			if n < 70 {
				e.set(key, i, loaded{cost: cost, ttl: ttl})
			} else {
				_, err := e.load(key, func() (int, loaded, error) { return i, loaded{cost: cost, ttl: ttl, keep: true}, nil }, nil)
				require.NoError(t, err)
			}
			m.set(key, i, cost, ttl, now)
		case n < 98:
			op = "drop"
			ok := e.drop(key)
			j := m.live(key, now)
			require.Equal(t, j >= 0, ok)
			if ok {
				m.remove(j, invalidated)
			}
		default:
			op = "dropAll"
			for m.expire(now) {
			}
			most := fmt.Sprint("k", rnd.IntN(10))
			e.dropAll(func(key string) bool { return key > most })
			for j := len(m.entries) - 1; j >= 0; j-- {
				if m.entries[j].key > most {
					m.remove(j, invalidated)
				}
			}
		}
		if !m.is(s) {
			t.Fatalf("seed %d, step %d: %s %s\nmodel %+v\nbytes %d, entries %v, counts %+v", seed, i, op, key, m, s.bytes,
				slices.Sorted(maps.Keys(s.entries)), s.counts)
		}
	}
	requireStats(t, e.total())
}

// is reports whether s has what the model has, within the bounds.
func (m *model) is(s *shard[int]) bool {
	same := s.bytes <= m.maxBytes && len(s.entries) <= m.maxEntries && m.bytes() == s.bytes &&
		len(m.entries) == len(s.entries) && m.evicted == s.evictions && m.hits == s.counts.Hits
	for _, me := range m.entries {
		n := s.entries[me.key]
		same = same && n != nil && n.value == me.value
	}
	return same
}

// TestEngineBoundsHoldMeanwhile watches the bounds while goroutines use an engine of
// several shards.
func TestEngineBoundsHoldMeanwhile(t *testing.T) {
	for name, policy := range policies {
		t.Run(name, func(t *testing.T) {
			e := newEngine[int](limits{policy: policy, maxBytes: 1001, maxEntries: 50, ttl: time.Millisecond, shards: 3})
			var wg sync.WaitGroup
			var gets, hits atomic.Int64
			var stop atomic.Bool
			for g := range 4 {
				wg.Go(func() {
					rnd := rand.New(rand.NewPCG(uint64(g), 1))
					for range rounds(t, "FILEPROC_FAULTS", 10_000) {
						key := fmt.Sprint(rnd.IntN(200))
						switch rnd.IntN(4) {
						case 0:
							e.set(key, 1, loaded{cost: rnd.Int64N(400)})
						case 1:
							gets.Add(1)
							if _, ok := get(e, key); ok {
								hits.Add(1)
							}
						case 2:
							_, _ = e.load(key, func() (int, loaded, error) {
								return 1, loaded{cost: rnd.Int64N(100), keep: rnd.IntN(2) == 0}, []error{nil, errors.New("x")}[rnd.IntN(2)]
							}, func(int, error) bool { return rnd.IntN(2) == 0 })
						case 3:
							e.drop(key)
						}
					}
				})
			}
			watched := make(chan struct{})
			go func() {
				defer close(watched)
				for !stop.Load() {
					for _, s := range e.shards {
						s.mu.Lock()
						over := s.bytes > s.maxBytes || len(s.entries) > s.maxEntries
						s.mu.Unlock()
						if over {
							t.Error("over the bound")
							return
						}
					}
					runtime.Gosched()
				}
			}()
			wg.Wait()
			stop.Store(true)
			<-watched
			c := e.total()
			requireStats(t, c)
			require.Equal(t, hits.Load(), c.Hits)
			for _, s := range e.shards {
				require.Empty(t, s.flights)
			}
		})
	}
}

// TestShardsDivideTheBounds checks that the parts add up to the whole.
func TestShardsDivideTheBounds(t *testing.T) {
	for _, l := range []limits{{maxBytes: 1003, maxEntries: 11, shards: 4}, {maxBytes: 1 << 40, maxEntries: 1 << 20}, {maxBytes: 10, maxEntries: 1}} {
		e := newEngine[int](l)
		var bytes, entries int64
		for _, s := range e.shards {
			bytes += s.maxBytes
			entries += int64(s.maxEntries)
			require.GreaterOrEqual(t, s.maxBytes, e.maxCost())
		}
		require.Equal(t, l.maxBytes, bytes)
		require.EqualValues(t, l.maxEntries, entries)
	}
	require.Len(t, newEngine[int](limits{maxBytes: 1 << 20, maxEntries: 1 << 30}).shards, 1, "a small bound is not divided")
	e := newEngine[int](limits{maxBytes: 1000, maxEntries: 1000, shards: 4})
	for i := range 300 {
		e.set(fmt.Sprint(i), i, loaded{cost: 1})
	}
	for _, s := range e.shards {
		require.NotEmpty(t, s.entries, "so are the entries")
	}
}

func TestLoadIsSingleFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine[int](limits{maxBytes: 100, maxEntries: 10, shards: 1})
		var loads atomic.Int64
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				v, err := e.load("k", func() (int, loaded, error) {
					time.Sleep(time.Second)
					return int(loads.Add(1)), loaded{cost: 1, keep: true}, nil
				}, func(int, error) bool { return true })
				require.NoError(t, err)
				require.Equal(t, 1, v)
			})
		}
		wg.Wait()
		c := e.total()
		require.EqualValues(t, 1, c.Loads)
		require.EqualValues(t, 99, c.Joined)
	})
}

// TestLoadRefused: a caller that must not use an older load gets a load that began after
// the call, and all such callers share that load.
func TestLoadRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine[int](limits{maxBytes: 100, maxEntries: 10, shards: 1})
		var loads atomic.Int64
		load := func() (int, loaded, error) {
			n := int(loads.Add(1))
			time.Sleep(time.Second)
			return n, loaded{cost: 1, keep: true}, nil
		}
		refuse := func(int, error) bool { return false }
		go e.load("k", load, refuse)
		synctest.Wait()
		for range 10 {
			go func() {
				v, _ := e.load("k", load, refuse)
				require.Equal(t, 2, v)
			}()
		}
		time.Sleep(5 * time.Second)
		require.EqualValues(t, 2, loads.Load())
	})
}

// TestLoadThatIsOvertaken: a value that was loaded before a set or a drop is not cached
// after it.
func TestLoadThatIsOvertaken(t *testing.T) {
	overtake := map[string]func(e *engine[int]){
		"set":     func(e *engine[int]) { e.set("k", 7, loaded{cost: 1}) },
		"drop":    func(e *engine[int]) { e.drop("k") },
		"dropAll": func(e *engine[int]) { e.dropAll(func(string) bool { return true }) },
	}
	for name, f := range overtake {
		t.Run(name, func(t *testing.T) {
			e := newEngine[int](limits{maxBytes: 100, maxEntries: 10, shards: 1})
			_, _ = e.load("k", func() (int, loaded, error) {
				f(e)
				return 1, loaded{cost: 1, keep: true}, nil
			}, nil)
			v, ok := get(e, "k")
			require.Equal(t, name == "set", ok)
			if ok {
				require.Equal(t, 7, v)
			}
			c := e.total()
			require.EqualValues(t, 1, c.NotCached)
			requireStats(t, c)
		})
	}
}

// TestLoadThatPanics: nobody waits for ever, and callers that waited load the key themselves.
func TestLoadThatPanics(t *testing.T) {
	for name, end := range map[string]func(){"panic": func() { panic("x") }, "goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newEngine[int](limits{maxBytes: 100, maxEntries: 10, shards: 1})
				go func() {
					defer func() { _ = recover() }()
					_, _ = e.load("k", func() (int, loaded, error) { time.Sleep(time.Second); end(); return 0, loaded{}, nil }, nil)
				}()
				synctest.Wait()
				v, err := e.load("k", func() (int, loaded, error) { return 2, loaded{cost: 1, keep: true}, nil }, func(int, error) bool { return true })
				require.NoError(t, err)
				require.Equal(t, 2, v)
				require.EqualValues(t, 1, e.total().LoadErrors)
			})
		})
	}
}

// TestHybridOutlivesAScan: entries that are used again survive a scan of files that are
// read once, also while the cache is half empty.
func TestHybridOutlivesAScan(t *testing.T) {
	e := newEngine[int](limits{policy: Hybrid, maxBytes: 1000, maxEntries: 100, shards: 1})
	for i := range 20 {
		e.set(fmt.Sprint("hot", i), i, loaded{cost: 10})
		get(e, fmt.Sprint("hot", i))
	}
	for i := range 10_000 {
		e.set(fmt.Sprint("once", i), i, loaded{cost: 10})
	}
	for i := range 20 {
		_, ok := get(e, fmt.Sprint("hot", i))
		require.True(t, ok, i)
	}
}

// TestHybridOfFewEntries: the entries that fit into four fifths of the bound survive a scan, and of two entries at least one.
func TestHybridOfFewEntries(t *testing.T) {
	for n := 2; n < 20; n++ {
		for _, l := range []limits{{maxBytes: 1 << 20, maxEntries: n}, {maxBytes: int64(n), maxEntries: 100}} {
			l.policy, l.shards = Hybrid, 1
			e := newEngine[int](l)
			hot := n * 4 / 5
			for i := range hot {
				e.set(fmt.Sprint("hot", i), i, loaded{cost: 1})
				get(e, fmt.Sprint("hot", i))
			}
			for i := range 50 {
				e.set(fmt.Sprint("once", i), i, loaded{cost: 1})
			}
			for i := range hot {
				_, ok := get(e, fmt.Sprint("hot", i))
				require.True(t, ok, "%d of %d", i, n)
			}
		}
	}
}

// TestReplacedInPlace: the value that replaces another uses its node, whatever the bounds require meanwhile.
func TestReplacedInPlace(t *testing.T) {
	for name, policy := range policies {
		t.Run(name, func(t *testing.T) {
			e := newEngine[int](limits{policy: policy, maxBytes: 10, maxEntries: 2, ttl: time.Hour, shards: 1})
			for i, step := range []struct {
				key     string
				cost    int64
				entries int
			}{{"a", 1, 1}, {"b", 1, 2}, {"a", 5, 2}, {"b", 9, 1}, {"b", 11, 0}, {"a", 10, 1}, {"a", 1, 1}} {
				e.set(step.key, i, loaded{cost: step.cost})
				require.Len(t, e.shards[0].entries, step.entries, i)
				v, ok := get(e, step.key)
				require.Equal(t, step.cost <= 10, ok)
				require.True(t, !ok || v == i)
				requireStats(t, e.total())
			}
			require.EqualValues(t, 4, e.total().Evictions["replaced"])
		})
	}
}

// TestAnEntryThatLeavesIsNotReachable: a removed node, which is used again, does not
// keep the value.
func TestAnEntryThatLeavesIsNotReachable(t *testing.T) {
	e := newEngine[*int](limits{maxBytes: 10, maxEntries: 10, shards: 1})
	e.set("k", new(int), loaded{cost: 1})
	e.drop("k")
	require.Nil(t, e.shards[0].freeNode.value)
	e.set("big", new(int), loaded{cost: 11})
	require.Empty(t, e.shards[0].entries)
	require.EqualValues(t, 1, e.total().TooLarge)
	_, err := e.load("k", func() (*int, loaded, error) { return new(int), loaded{}, nil }, nil)
	require.NoError(t, err)
	require.NotNil(t, e.shards[0].freeFlight)
	require.Nil(t, e.shards[0].freeFlight.value)
}

// TestEmptyCountsLoads: an engine with a load under way is not empty, since the load may give a value older than a write.
func TestEmptyCountsLoads(t *testing.T) {
	for _, shards := range []int{1, 3} {
		e := newEngine[int](limits{maxBytes: 100, maxEntries: 100, shards: shards})
		require.True(t, e.empty())
		_, err := e.load("k", func() (int, loaded, error) {
			require.False(t, e.empty())
			return 1, loaded{cost: 1, keep: true}, nil
		}, nil)
		require.NoError(t, err)
		require.False(t, e.empty())
		e.drop("k")
		require.True(t, e.empty())
	}
}

// TestEvictionAllocatesNothing: in a full engine, an insertion evicts one entry and uses its node again. FILEPROC_FAULTS is
// the size of the large one.
func TestEvictionAllocatesNothing(t *testing.T) {
	for _, l := range []limits{{policy: LRU}, {policy: LFU}, {policy: Hybrid}, {policy: TTL, ttl: time.Hour}, {policy: Hybrid, ttl: time.Hour}} {
		for _, n := range []int{1000, rounds(t, "FILEPROC_FAULTS", 50_000)} {
			l.maxBytes, l.maxEntries, l.shards = 1<<60, n, 1
			e := newEngine[int](l)
			keys := fullEngine(e, n)
			evicted, i := e.total().Evictions["entries"], 0
			require.Zero(t, testing.AllocsPerRun(500, func() {
				e.set(keys[i%len(keys)], i, loaded{cost: 1})
				i++
			}))
			require.EqualValues(t, i, e.total().Evictions["entries"]-evicted)
		}
	}
}

// fullEngine fills e with n entries, of which all but one were used again. It returns keys that evict each other when they are
// set in turn: with LFU, and with Hybrid while its protected part has no room.
func fullEngine(e *engine[int], n int) (keys []string) {
	for i := range n {
		key := fmt.Sprint("some/directory/", i)
		e.set(key, i, loaded{cost: 1})
		if i > 0 {
			e.get(key, 0)
		}
	}
	for i := range 1000 {
		keys = append(keys, fmt.Sprint("another/directory/", i))
	}
	return keys
}

// TestLFUQueuesAreFew: the frequencies have a queue only where an entry is, in order,
// so that the victim is found in one step.
func TestLFUQueuesAreFew(t *testing.T) {
	e := newEngine[int](limits{policy: LFU, maxBytes: 1 << 20, maxEntries: 1000, shards: 1})
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range 20_000 {
		key := fmt.Sprint(rnd.IntN(3000))
		if _, ok := get(e, key); !ok {
			e.set(key, i, loaded{cost: 1})
		}
	}
	s, entries := e.shards[0], 0
	seen := map[int64]bool{}
	for q := s.rare; q != nil; q = q.next {
		require.NotZero(t, q.entries, "an empty queue stayed")
		require.False(t, seen[q.uses])
		require.True(t, q.next == nil || q.next.uses > q.uses)
		seen[q.uses] = true
		entries += q.entries
	}
	require.Equal(t, len(s.entries), entries)
}

// TestLoadNotKept: a failed load leaves nothing, and neither does a load whose value must not be cached.
func TestLoadNotKept(t *testing.T) {
	e := newEngine[int](limits{maxBytes: 10, maxEntries: 10, shards: 1})
	_, err := e.load("failed", func() (int, loaded, error) { return 1, loaded{cost: 1, keep: true}, errors.New("x") }, nil)
	require.Error(t, err)
	v, err := e.load("not kept", func() (int, loaded, error) { return 1, loaded{cost: 1}, nil }, nil)
	require.NoError(t, err)
	require.Equal(t, 1, v)
	c := e.total()
	require.Zero(t, c.Entries)
	require.EqualValues(t, 2, c.Loads)
	require.EqualValues(t, 1, c.LoadErrors)
	require.EqualValues(t, 1, c.NotCached)
}

// TestExpiredGoFirst: while there are expired entries, no other entry is evicted.
func TestExpiredGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine[int](limits{maxBytes: 10, maxEntries: 10, shards: 1})
		for i := range 5 {
			e.set(fmt.Sprint("lives", i), i, loaded{cost: 1})
		}
		for i := range 5 {
			e.set(fmt.Sprint("expires", i), i, loaded{cost: 1, ttl: time.Second})
		}
		time.Sleep(time.Second)
		e.set("large", 1, loaded{cost: 5})
		for i := range 5 {
			_, ok := get(e, fmt.Sprint("lives", i))
			require.True(t, ok)
		}
		require.EqualValues(t, 5, e.total().Evictions["expired"])
	})
}

// TestExpiryIsAHeap adds and removes entries with random times to live.
func TestExpiryIsAHeap(t *testing.T) {
	e := newEngine[int](limits{maxBytes: 1 << 20, maxEntries: 1000, shards: 1})
	rnd := rand.New(rand.NewPCG(3, 4))
	s := e.shards[0]
	for i := range 10_000 {
		key := fmt.Sprint(rnd.IntN(300))
		if rnd.IntN(2) == 0 {
			e.set(key, i, loaded{cost: 1, ttl: time.Hour + time.Duration(rnd.IntN(1e6))})
		} else {
			e.drop(key)
		}
		require.Len(t, s.entries, len(s.expiry))
		for j, n := range s.expiry {
			if n.slot != j+1 || s.expiry[(j+1)/2-min(1, (j+1)/2)].expires > n.expires {
				t.Fatalf("step %d: slot %d of %d", i, j, len(s.expiry))
			}
		}
	}
}

// TestCheckedOfAnOlderValue: the comparison of a value says nothing about the value that
// has replaced it.
func TestCheckedOfAnOlderValue(t *testing.T) {
	e := newEngine[int](limits{maxBytes: 10, maxEntries: 10, shards: 1})
	e.set("k", 1, loaded{cost: 1})
	e.set("k", 2, loaded{cost: 1, began: 5})
	e.checked("k", 1, 100, same, changed)
	_, _, trusted := e.get("k", 6)
	require.False(t, trusted)
	e.checked("k", 1, 100, differs, changed)
	v, ok, trusted := e.get("k", 5)
	require.True(t, ok && trusted)
	require.Equal(t, 2, v)
	e.checked("k", 2, 100, unknown, changed)
	_, ok = get(e, "k")
	require.True(t, ok)
	e.checked("k", 2, 100, differs, changed)
	_, ok = get(e, "k")
	require.False(t, ok)
}

// TestShardsAreChosen: the number of shards is a power of two up to the processors and maxShards, as long as each shard has enough of the bounds.
func TestShardsAreChosen(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	const many = math.MaxInt
	for _, tt := range []struct {
		processors int
		bytes      int64
		entries    int
		want       int
	}{
		{1, many, many, 1}, {2, many, many, 2}, {3, many, many, 4}, {64, many, many, maxShards}, {maxShards, many, many, maxShards},
		{64, 2 * minShardBytes, many, 2}, {64, 2*minShardBytes - 1, many, 1}, {64, 4*minShardBytes - 1, many, 2}, {64, 4 * minShardBytes, many, 4},
		{64, many, 2 * minShardEntries, 2}, {64, many, 2*minShardEntries - 1, 1}, {64, many, 4 * minShardEntries, 4}, {64, 0, 0, 1},
	} {
		runtime.GOMAXPROCS(tt.processors)
		require.Len(t, newEngine[int](limits{maxBytes: tt.bytes, maxEntries: tt.entries}).shards, tt.want, "%+v", tt)
	}
	for n := 1; n < 20; n++ {
		for _, total := range []int64{0, 1, int64(n), int64(n + 1), 1003} {
			sum, last := int64(0), part(total, n, 0)
			for i := range n {
				p := part(total, n, i)
				require.True(t, p == last || p == last-1, "the parts do not grow, and differ by 1")
				require.LessOrEqual(t, part(total, n, 0)-p, int64(1))
				sum, last = sum+p, p
			}
			require.Equal(t, total, sum)
		}
	}
}

// TestAheadFits: an entry fits ahead if the room that is free is just enough. Room that an expired entry has is free.
func TestAheadFits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine[int](limits{maxBytes: 10, maxEntries: 2, shards: 1})
		require.True(t, e.fits("k", 10))
		require.False(t, e.fits("k", 11))
		require.Equal(t, aheadCached, e.add("a", 1, loaded{cost: 6, ttl: time.Second, ahead: true}))
		require.True(t, e.fits("k", 4))
		require.False(t, e.fits("k", 5))
		require.True(t, e.fresh("a"))
		require.False(t, e.fresh("k"))
		require.Equal(t, aheadWasThere, e.add("a", 2, loaded{cost: 1, ahead: true}))
		require.Equal(t, aheadNoRoom, e.add("k", 2, loaded{cost: 5, ahead: true}))
		require.Equal(t, aheadCached, e.add("b", 2, loaded{cost: 4, ahead: true}))
		require.False(t, e.fits("k", 0), "there are as many as there may be")
		require.Equal(t, aheadNoRoom, e.add("k", 2, loaded{ahead: true}))
		h, ok := e.find("a")
		require.True(t, ok)
		require.Equal(t, held[int]{"a", 1, 0, e.shards[0].entries["a"].expires}, h)
		_, err := e.load("c", func() (int, loaded, error) {
			require.True(t, e.fresh("c"), "it is being loaded")
			_, ok := e.find("c")
			require.False(t, ok)
			return 0, loaded{}, nil
		}, nil)
		require.NoError(t, err)
		time.Sleep(time.Second)
		require.True(t, e.fits("k", 6))
		require.False(t, e.fits("k", 7))
		require.False(t, e.fresh("a"))
		_, ok = e.find("a")
		require.False(t, ok)
	})
}

// TestLoadAheadTells says what became of a value: no room is another thing than a load that does not want to be cached, or fails.
func TestLoadAheadTells(t *testing.T) {
	e := newEngine[int](limits{maxBytes: 10, maxEntries: 10, shards: 1})
	for _, tt := range []struct {
		l    loaded
		err  error
		want aheadResult
	}{
		{loaded{cost: 4, keep: true, ahead: true}, nil, aheadCached}, {loaded{cost: 7, keep: true, ahead: true}, nil, aheadNoRoom}, {loaded{cost: 1, ahead: true}, nil, aheadRefused},
		{loaded{cost: 1, keep: true, ahead: true}, errStore, aheadRefused}, {loaded{cost: 7, keep: true}, nil, aheadCached}, {loaded{cost: 11, keep: true}, nil, aheadNoRoom},
	} {
		got, err := e.loadAhead("k", func() (int, loaded, error) { return 1, tt.l, tt.err })
		require.Equal(t, tt.want, got, "%+v", tt)
		require.ErrorIs(t, err, tt.err)
		_, ok := e.find("k")
		require.Equal(t, tt.want == aheadCached, ok)
		e.drop("k")
		if tt.l.cost == 4 {
			e.set("other", 1, loaded{cost: 4})
		}
	}
	require.Zero(t, e.total().Misses, "nobody has asked for them")
}

// TestExpireRemovesSoMany: expire removes as many expired entries as it may, those that expired first, and no other.
func TestExpireRemovesSoMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine[int](limits{maxBytes: 10, maxEntries: 10, shards: 1})
		s := e.shards[0]
		require.Zero(t, s.expire(e, 5))
		for i, key := range []string{"c", "b", "a", "lives"} {
			e.set(key, i, loaded{cost: 1, ttl: []time.Duration{3, 2, 1, 4}[i] * time.Second})
		}
		time.Sleep(3*time.Second - 1)
		require.Equal(t, 1, s.expire(e, 1))
		require.NotContains(t, s.entries, "a")
		require.Len(t, s.entries, 3)
		time.Sleep(time.Nanosecond)
		require.Equal(t, 2, s.expire(e, 5))
		require.Len(t, s.entries, 1)
		require.Zero(t, s.expire(e, 5))
	})
}

// TestHybridProtectsSoManyBytes: of the entries that were used again, those that were used last keep four fifths of the bytes.
func TestHybridProtectsSoManyBytes(t *testing.T) {
	e := newEngine[int](limits{policy: Hybrid, maxBytes: 100, maxEntries: 100, shards: 1})
	s := e.shards[0]
	for _, key := range []string{"a", "b", "c", "d", "e"} {
		e.set(key, 1, loaded{cost: 20})
		get(e, key)
	}
	require.EqualValues(t, 80, s.protected.bytes)
	require.Equal(t, 4, s.protected.entries)
	require.EqualValues(t, 20, s.recent.bytes)
	require.Equal(t, "a", s.recent.oldest.key)
	get(e, "a")
	require.EqualValues(t, 80, s.protected.bytes)
	require.Equal(t, "b", s.recent.oldest.key)
	e.drop("c")
	require.EqualValues(t, 60, s.protected.bytes)
	for _, key := range []string{"a", "b", "d", "e"} {
		e.drop(key)
	}
	require.Zero(t, s.protected.bytes+s.recent.bytes)
}

// TestSetAfterADrop: a value that may be older than a drop is not set, and the value that is there is not known to be newer.
func TestSetAfterADrop(t *testing.T) {
	e := newEngine[int](limits{maxBytes: 100, maxEntries: 100, shards: 1})
	e.set("k", 1, loaded{cost: 1})
	before := e.drops("k")
	e.drop("another")
	e.setUnlessDropped("k", 2, loaded{cost: 1}, before)
	_, ok := get(e, "k")
	require.False(t, ok)
	require.EqualValues(t, 1, e.total().Evictions["invalidated"])
	e.setUnlessDropped("none", 2, loaded{cost: 1}, before)
	_, ok = get(e, "none")
	require.False(t, ok)
	e.forget("another", 0)
	require.Equal(t, before+1, e.drops("k"))
}

// TestNodesAreUsedAgain: a value that replaces another has its node, and one that follows a removal that of the removed one. What left the
// heap of those that expire is not in its memory.
func TestNodesAreUsedAgain(t *testing.T) {
	e := newEngine[int](limits{maxBytes: 100, maxEntries: 100, shards: 1, ttl: time.Hour})
	s := e.shards[0]
	for i := range 3 {
		e.set(fmt.Sprint(i), 1, loaded{cost: 1})
	}
	n := s.entries["1"]
	e.set("1", 2, loaded{cost: 1})
	require.Same(t, n, s.entries["1"])
	e.drop("1")
	e.set("new", 1, loaded{cost: 1})
	require.Same(t, n, s.entries["new"])
	for _, key := range []string{"0", "2", "new"} {
		e.drop(key)
	}
	for _, n := range s.expiry[:cap(s.expiry)] {
		require.Nil(t, n)
	}
}

// TestLFUCountsUses: each entry is in the queue of its uses.
func TestLFUCountsUses(t *testing.T) {
	e := newEngine[int](limits{policy: LFU, maxBytes: 1 << 20, maxEntries: 50, shards: 1})
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range 2000 {
		if key := fmt.Sprint(rnd.IntN(10)*rnd.IntN(10) + rnd.IntN(20)); rnd.IntN(20) == 0 {
			e.drop(key)
		} else if _, ok := get(e, key); !ok {
			e.set(key, i, loaded{cost: 1, ahead: rnd.IntN(2) == 0})
		}
		for key, n := range e.shards[0].entries {
			if n.queue.uses != n.uses {
				t.Fatalf("step %d: %s has %d uses and is in the queue of %d", i, key, n.uses, n.queue.uses)
			}
		}
	}
}

// TestLFUQueueOfOne: an entry that is alone with its uses takes its queue along.
func TestLFUQueueOfOne(t *testing.T) {
	e := newEngine[int](limits{policy: LFU, maxBytes: 10, maxEntries: 10, shards: 1})
	e.set("k", 1, loaded{cost: 1})
	n := e.shards[0].entries["k"]
	q := n.queue
	get(e, "k")
	require.Same(t, q, n.queue)
	require.EqualValues(t, 2, q.uses)
	e.set("other", 1, loaded{cost: 1})
	get(e, "other")
	require.Same(t, q, e.shards[0].entries["other"].queue)
}

// TestLoadsAllocateNothing: a load without a caller that waits for it uses the flight of the load before.
func TestLoadsAllocateNothing(t *testing.T) {
	e := newEngine[int](limits{maxBytes: 10, maxEntries: 10, shards: 1})
	load := func() (int, loaded, error) { return 1, loaded{}, nil }
	require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = e.load("k", load, nil) }))
}

// TestFlightsAreNotMixedUp: a load during another one does not end the other's, for those who wait for it.
func TestFlightsAreNotMixedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine[int](limits{maxBytes: 100, maxEntries: 100, shards: 1})
		value := func(v int) func() (int, loaded, error) {
			return func() (int, loaded, error) { return v, loaded{cost: 1, keep: true}, nil }
		}
		accept := func(int, error) bool { return true }
		_, err := e.load("before", value(0), accept)
		require.NoError(t, err)
		waited := make(chan int, 1)
		v, err := e.load("a", func() (int, loaded, error) {
			go func() {
				v, err := e.load("a", value(7), accept)
				require.NoError(t, err)
				waited <- v
			}()
			synctest.Wait()
			v, err := e.load("b", value(2), accept)
			require.NoError(t, err)
			require.Equal(t, 2, v)
			synctest.Wait()
			require.Empty(t, waited)
			return value(1)()
		}, accept)
		require.NoError(t, err)
		require.Equal(t, 1, v)
		require.Equal(t, 1, <-waited)
		c := e.total()
		require.EqualValues(t, 3, c.Loads)
		require.EqualValues(t, 3, c.Inserted)
		require.Zero(t, c.NotCached+c.LoadErrors)
	})
}

// TestShardWithoutEntries: a shard that may have no entry takes none.
func TestShardWithoutEntries(t *testing.T) {
	for name, policy := range policies {
		e := newEngine[int](limits{policy: policy, maxBytes: 100, maxEntries: 1, ttl: time.Hour, shards: 2})
		for i := range 20 {
			e.set(fmt.Sprint(i), i, loaded{cost: 1})
		}
		require.EqualValues(t, 1, e.total().Entries, name)
		require.NotZero(t, e.total().TooLarge, name)
		e.checked("none", 1, 5, differs, changed)
		e.checked("none", 1, 5, same, changed)
	}
}

// TestLoadAheadThatPanics: who waits for a load ahead that panics loads the key.
func TestLoadAheadThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine[int](limits{maxBytes: 100, maxEntries: 10, shards: 1})
		go func() {
			defer func() { _ = recover() }()
			_, _ = e.loadAhead("k", func() (int, loaded, error) { time.Sleep(time.Second); panic("x") })
		}()
		synctest.Wait()
		v, err := e.load("k", func() (int, loaded, error) { return 2, loaded{cost: 1, keep: true}, nil }, func(int, error) bool { return true })
		require.NoError(t, err)
		require.Equal(t, 2, v)
	})
}
