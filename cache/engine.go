package cache

import (
	"cmp"
	"container/heap"
	"errors"
	"hash/maphash"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// An engine holds values by key under a bound of cost and of entries. Each shard
// is exact: its policy holds among its own entries, and these never exceed its part
// of the bounds.
type engine[V comparable] struct {
	shards []*shard[V]
	seed   maphash.Seed
	start  time.Time     // of the clock
	ttl    time.Duration // of entries without their own; 0 is none
	policy Policy
}

// limits are what an engine is made with.
type limits struct {
	policy     Policy
	maxBytes   int64
	maxEntries int
	ttl        time.Duration
	shards     int // 0 chooses
}

const (
	// If newEngine chooses the number of shards, each has at least this much of the bounds:
	// else its part would be too small for the entries that meet there.
	minShardBytes   = 32 << 20
	minShardEntries = 4096
	maxShards       = 16
)

func newEngine[V comparable](l limits) *engine[V] {
	n := l.shards
	if n == 0 {
		for n = 1; n < min(maxShards, runtime.GOMAXPROCS(0)) && l.maxBytes/int64(2*n) >= minShardBytes &&
			l.maxEntries/(2*n) >= minShardEntries; n *= 2 {
		}
	}
	e := &engine[V]{seed: maphash.MakeSeed(), start: time.Now(), ttl: l.ttl, policy: l.policy}
	for i := range n {
		s := &shard[V]{
			policy:     l.policy,
			maxBytes:   part(l.maxBytes, n, i),
			maxEntries: int(part(int64(l.maxEntries), n, i)),
			entries:    map[string]*node[V]{},
			flights:    map[string]*flight[V]{},
		}
		s.protected.bytesMost = s.maxBytes - (s.maxBytes+4)/5
		s.protected.entriesMost = s.maxEntries - s.maxEntries/5 - min(1, s.maxEntries%5)
		e.shards = append(e.shards, s)
	}
	return e
}

// part is the i-th of n parts of total, which differ by 1 at most.
func part(total int64, n, i int) int64 {
	p := total / int64(n)
	if int64(i) < total%int64(n) {
		p++
	}
	return p
}

func (e *engine[V]) shard(key string) *shard[V] {
	if len(e.shards) == 1 {
		return e.shards[0]
	}
	return e.shards[maphash.String(e.seed, key)%uint64(len(e.shards))]
}

// now is the engine's clock, in nanoseconds. It does not follow changes of the
// wall clock.
func (e *engine[V]) now() int64 { return int64(time.Since(e.start)) + 1 }

// at is what now was at t.
func (e *engine[V]) at(t time.Time) int64 { return int64(t.Sub(e.start)) + 1 }

// maxCost is the largest cost that an entry of any key may have.
func (e *engine[V]) maxCost() int64 { return e.shards[len(e.shards)-1].maxBytes }

// ttlOf is the TTL of an entry whose own is ttl; 0 or less is none.
func (e *engine[V]) ttlOf(ttl time.Duration) time.Duration {
	if ttl <= 0 && (ttl == 0 || e.policy == TTL) {
		return e.ttl
	}
	return ttl
}

// get returns the value of key and makes it the most recently used. If the value
// was last checked at notBefore or later, it is trusted, and get counts a hit.
func (e *engine[V]) get(key string, notBefore int64) (v V, ok, trusted bool) {
	s := e.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.live(key, e)
	if n == nil {
		return v, false, false
	}
	s.touch(n)
	if n.checked >= notBefore {
		s.counts.Hits++
		return n.value, true, true
	}
	return n.value, true, false
}

// A verdict is what a comparison of a value with its file has shown.
type verdict int

const (
	same    verdict = iota // a hit
	differs                // the value leaves the cache
	unknown                // the comparison failed: the value is not served now, and stays
)

// checked notes what a comparison of v with its file has shown. At is what the callers' clock
// showed when the comparison began.
func (e *engine[V]) checked(key string, v V, at int64, is verdict, why reason) {
	s := e.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.Checks++
	if is == same {
		s.counts.Hits++
	}
	n := s.entries[key]
	switch {
	case n == nil || n.value != v || is == unknown:
	case is == same:
		n.checked = max(n.checked, at)
	default:
		s.remove(n, why)
	}
}

// drops returns the number of drops in the shard of key, for setUnlessDropped.
func (e *engine[V]) drops(key string) uint64 {
	return e.shard(key).drops.Load()
}

// setUnlessDropped makes v the value of key, if it fits, and if there was no drop since
// drops returned before. After a drop, v may be older than the drop, and key gets no value.
// Loads of key under way are not kept.
func (e *engine[V]) setUnlessDropped(key string, v V, l loaded, before uint64) {
	s := e.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.flights, key)
	if s.drops.Load() == before {
		s.insert(e, key, v, l)
	} else if n := s.entries[key]; n != nil {
		s.remove(n, invalidated)
	}
}

// drop removes key. Loads of key under way are not kept, and neither is a value that
// setUnlessDropped sets later with an earlier number of drops. It reports whether key had a
// value.
func (e *engine[V]) drop(key string) bool {
	return e.forget(key, 1)
}

// forget is drop, and adds drops to the number of drops in the shard. A write adds none: it
// is the only write of its key, and setUnlessDropped must keep the writes of other keys.
func (e *engine[V]) forget(key string, drops uint64) bool {
	s := e.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drops.Add(drops)
	delete(s.flights, key)
	n := s.live(key, e)
	if n != nil {
		s.remove(n, invalidated)
	}
	return n != nil
}

// dropAll removes the keys that match, and loads of them under way are not kept.
// It returns how many had a value. It takes time in proportion to all entries.
func (e *engine[V]) dropAll(match func(key string) bool) (dropped int) {
	for _, s := range e.shards {
		s.mu.Lock()
		s.drops.Add(1)
		s.expire(e, s.maxEntries)
		for key := range s.flights {
			if match(key) {
				delete(s.flights, key)
			}
		}
		for key, n := range s.entries {
			if match(key) {
				s.remove(n, invalidated)
				dropped++
			}
		}
		s.mu.Unlock()
	}
	return dropped
}

// empty reports whether there is neither a value nor a load under way. It may miss a load
// that begins during this call; such a load is newer than the beginning of the call.
func (e *engine[V]) empty() bool {
	for _, s := range e.shards {
		s.mu.Lock()
		n := len(s.entries) + len(s.flights)
		s.mu.Unlock()
		if n > 0 {
			return false
		}
	}
	return true
}

// total adds up the counters.
func (e *engine[V]) total() Counts {
	t := Counts{Evictions: make(map[string]int64, reasons)}
	for _, s := range e.shards {
		s.mu.Lock()
		s.expire(e, s.maxEntries)
		t.add(&s.counts)
		t.Entries += int64(len(s.entries))
		t.Bytes += s.bytes
		for why, n := range s.evictions {
			t.Evictions[reasonNames[why]] += n
		}
		s.mu.Unlock()
	}
	return t
}

// A flight is a load under way. Callers that want the key meanwhile wait for it.
type flight[V comparable] struct {
	done   chan struct{} // closed when value and err are set; nil until somebody waits, under the shard's mu
	value  V
	err    error
	number uint64 // of the shard's flights
	reused bool   // fly may reuse it if nobody has waited: the caller of fly does not look at it afterwards
	kept   bool   // whether the value was cached
}

// loaded is what a load gives besides its value.
type loaded struct {
	cost  int64
	ttl   time.Duration // 0 is the engine's, negative is none
	keep  bool          // whether the value may be cached
	began int64         // on the callers' clock: the value is not older
	ahead bool          // nobody has asked for it: it evicts nothing, and is evicted before what was used
}

// load returns what fn returns, and caches it if fn says so, unless the key is set
// or dropped while fn runs. Of all callers who want a key at the same time, one
// runs fn.
//
// load asks accept about the result of a load that began before this call, since
// such a result may be older than the call. If accept refuses, key is loaded again; the
// second load began after the call.
func (e *engine[V]) load(key string, fn func() (V, loaded, error), accept func(V, error) bool) (V, error) {
	s := e.shard(key)
	s.mu.Lock()
	s.counts.Misses++
	called := s.flown
	for {
		f := s.flights[key]
		if f == nil {
			break
		}
		s.counts.Joined++
		if f.done == nil {
			f.done = make(chan struct{})
		}
		done := f.done
		s.mu.Unlock()
		<-done
		if f.err != errAbandoned && (f.number > called || accept(f.value, f.err)) {
			return f.value, f.err
		}
		s.mu.Lock()
	}
	s.flown++
	f := s.freeFlight
	if f != nil {
		s.freeFlight = nil
	} else {
		f = &flight[V]{}
	}
	f.number, f.err, f.reused = s.flown, errAbandoned, true
	s.flights[key] = f
	s.mu.Unlock()
	return e.fly(s, key, f, fn)
}

// errAbandoned is the error of a load whose function panicked or ended its goroutine.
// Callers that waited for it load the key themselves.
var errAbandoned = errors.New("cache: a load was abandoned")

// fly runs fn for f. After a panic or Goexit in fn, f ends with errAbandoned, and
// nobody waits for ever.
func (e *engine[V]) fly(s *shard[V], key string, f *flight[V], fn func() (V, loaded, error)) (V, error) {
	var l loaded
	defer func() {
		s.mu.Lock()
		kept := false
		if s.flights[key] == f { // nobody set or dropped the key meanwhile
			delete(s.flights, key)
			kept = l.keep && s.insert(e, key, f.value, l)
		}
		f.kept = kept
		s.counts.Loads++
		switch {
		case f.err != nil:
			s.counts.LoadErrors++
		case !kept:
			s.counts.NotCached++
		}
		done := f.done
		if done == nil && f.reused { // it is in no map, and nobody has found it there
			*f = flight[V]{} // the value must not stay reachable
			s.freeFlight = f
		}
		s.mu.Unlock()
		if done != nil {
			close(done)
		}
	}()
	v, got, err := fn()
	f.value, f.err, l = v, err, got
	l.keep = l.keep && err == nil
	return v, err
}

// A reason says why an entry left the cache.
type reason int

const (
	overBytes reason = iota
	overEntries
	expired
	changed
	invalidated
	replaced
	reasons
)

// reasonNames are the keys of Counts.Evictions.
var reasonNames = [reasons]string{"bytes", "entries", "expired", "changed", "invalidated", "replaced"}

// A shard is a part of an engine. All is under mu.
type shard[V comparable] struct {
	mu         sync.Mutex
	policy     Policy
	maxBytes   int64
	maxEntries int
	bytes      int64
	entries    map[string]*node[V]
	flights    map[string]*flight[V]
	flown      uint64
	drops      atomic.Uint64 // how many there were by Invalidate and the methods like it; changes under mu
	counts     Counts        // without Entries, Bytes and Evictions
	evictions  [reasons]int64
	expiry     expiry[V]

	recent    queue[V]  // LRU: all entries; Hybrid: entries used once
	protected queue[V]  // Hybrid: entries used again
	rare      *queue[V] // LFU: the queue of the lowest frequency

	freeNode   *node[V] // removed, for the next insertion
	freeQueue  *queue[V]
	freeFlight *flight[V]
}

type node[V comparable] struct {
	key        string
	value      V
	cost       int64
	expires    int64 // on the engine's clock; 0 is never
	checked    int64 // on the callers' clock: when the value was last known to be right
	uses       int64 // since it was inserted, counted from 1, or from 0 if it was cached ahead
	inserted   int64 // how many insertions were before it
	slot       int   // in shard.expiry, from 1; 0 if it is not there
	queue      *queue[V]
	prev, next *node[V] // in queue, from the first used to the last
}

// A queue has nodes in the order of their last use.
type queue[V comparable] struct {
	oldest, newest *node[V]
	entries        int
	bytes          int64
	entriesMost    int // of Hybrid's protected
	bytesMost      int64
	uses           int64     // of LFU
	prev, next     *queue[V] // of LFU: the queues of fewer and of more uses
}

func (q *queue[V]) push(n *node[V]) { q.link(n, q.newest, nil) }

// link adds n between two neighbours; nil is an end of the queue.
func (q *queue[V]) link(n, prev, next *node[V]) {
	n.queue, n.prev, n.next = q, prev, next
	if prev != nil {
		prev.next = n
	} else {
		q.oldest = n
	}
	if next != nil {
		next.prev = n
	} else {
		q.newest = n
	}
	q.entries++
	q.bytes += n.cost
}

func (q *queue[V]) take(n *node[V]) {
	if n.prev != nil {
		n.prev.next = n.next
	} else {
		q.oldest = n.next
	}
	if n.next != nil {
		n.next.prev = n.prev
	} else {
		q.newest = n.prev
	}
	q.entries--
	q.bytes -= n.cost
}

// live returns the node of key, unless it has expired.
func (s *shard[V]) live(key string, e *engine[V]) *node[V] {
	n := s.entries[key]
	if n != nil && n.expires != 0 && n.expires <= e.now() {
		s.remove(n, expired)
		return nil
	}
	return n
}

// touch notes a use of n.
func (s *shard[V]) touch(n *node[V]) {
	n.uses++
	switch s.policy {
	case LRU:
		if s.recent.newest != n {
			s.recent.take(n)
			s.recent.push(n)
		}
	case Hybrid:
		n.queue.take(n)
		s.protected.push(n)
		for s.protected.bytes > s.protected.bytesMost || s.protected.entries > s.protected.entriesMost {
			m := s.protected.oldest
			s.protected.take(m)
			s.recent.push(m)
		}
	case LFU:
		s.use(n)
	}
}

// use moves n to the queue of the nodes with one more use.
func (s *shard[V]) use(n *node[V]) {
	q := n.queue
	up := q.next
	if up == nil || up.uses != q.uses+1 {
		if q.entries == 1 { // the queue is n's alone: it moves with n
			q.uses++
			return
		}
		up = s.addQueue(q.uses+1, q, up)
	}
	q.take(n)
	up.push(n)
	s.dropEmpty(q)
}

// addQueue returns a queue between two others.
func (s *shard[V]) addQueue(uses int64, prev, next *queue[V]) *queue[V] {
	q := s.freeQueue
	if q != nil {
		s.freeQueue = nil
	} else {
		q = &queue[V]{}
	}
	q.uses, q.prev, q.next = uses, prev, next
	if prev != nil {
		prev.next = q
	} else {
		s.rare = q
	}
	if next != nil {
		next.prev = q
	}
	return q
}

// lowQueue returns LFU's queue of uses, 0 or 1, for a new node.
func (s *shard[V]) lowQueue(uses int64) *queue[V] {
	var prev *queue[V]
	next := s.rare
	if next != nil && next.uses < uses {
		prev, next = next, next.next
	}
	if next != nil && next.uses == uses {
		return next
	}
	return s.addQueue(uses, prev, next)
}

// dropEmpty removes q from LFU's frequencies if it has no node. It changes nothing that other
// policies use.
func (s *shard[V]) dropEmpty(q *queue[V]) {
	if q.entries > 0 {
		return
	}
	if q.prev != nil {
		q.prev.next = q.next
	} else {
		s.rare = q.next
	}
	if q.next != nil {
		q.next.prev = q.prev
	}
	s.freeQueue = q
}

// victim returns the next entry to evict. The shard must not be empty.
func (s *shard[V]) victim() *node[V] {
	switch s.policy {
	case LFU:
		return s.rare.oldest
	case TTL:
		return s.expiry[0]
	}
	if s.recent.oldest != nil {
		return s.recent.oldest
	}
	return s.protected.oldest
}

// insert makes room for the entry and then adds it, so that the bounds hold at each
// moment. A value that key had is replaced, and its uses are forgotten.
func (s *shard[V]) insert(e *engine[V], key string, v V, l loaded) bool {
	cost, ttl := l.cost, l.ttl
	n, had := s.entries[key], 0
	if n != nil { // the node is used again
		s.unlink(n, replaced)
		had = 1
	}
	if cost > s.maxBytes || s.maxEntries == 0 {
		s.counts.TooLarge++
		delete(s.entries, key)
		return false
	}
	s.expire(e, 2)
	for {
		why := overBytes
		if cost <= s.maxBytes-s.bytes {
			if len(s.entries)-had < s.maxEntries {
				break
			}
			why = overEntries
		}
		if s.expire(e, 1) == 0 {
			if l.ahead { // n is nil: key is not fresh
				return false
			}
			s.remove(s.victim(), why)
		}
	}
	if n == nil {
		if n = s.freeNode; n != nil {
			s.freeNode = nil
		} else {
			n = &node[V]{}
		}
		s.entries[key] = n
	}
	n.key, n.value, n.cost, n.checked, n.inserted = key, v, cost, l.began, s.counts.Inserted
	if ttl = e.ttlOf(ttl); ttl > 0 {
		now := e.now()
		n.expires = now + min(int64(ttl), math.MaxInt64-now)
		heap.Push(&s.expiry, n)
	}
	if !l.ahead {
		n.uses = 1
	}
	q := &s.recent
	if s.policy == LFU {
		q = s.lowQueue(n.uses)
	}
	if l.ahead {
		q.link(n, nil, q.oldest) // the first to be evicted
	} else {
		q.push(n)
	}
	s.bytes += cost
	s.counts.Inserted++
	return true
}

// remove takes n out of everything.
func (s *shard[V]) remove(n *node[V], why reason) {
	delete(s.entries, n.key)
	s.unlink(n, why)
	s.freeNode = n
}

// unlink takes n out of everything but the entries.
func (s *shard[V]) unlink(n *node[V], why reason) {
	s.bytes -= n.cost
	s.evictions[why]++
	if n.slot != 0 {
		heap.Remove(&s.expiry, n.slot-1)
	}
	q := n.queue
	q.take(n)
	s.dropEmpty(q)
	*n = node[V]{} // the value must not stay reachable
}

// expire removes up to most entries that have expired, and returns how many. It
// looks at the clock only if entries can expire.
func (s *shard[V]) expire(e *engine[V], most int) (removed int) {
	for removed < most && len(s.expiry) > 0 && s.expiry[0].expires <= e.now() {
		s.remove(s.expiry[0], expired)
		removed++
	}
	return removed
}

// expiry is a heap of the nodes that expire: the first node expires first.
type expiry[V comparable] []*node[V]

func (x expiry[V]) Len() int { return len(x) }

// Less orders nodes that expire at the same time by their insertion: a clock may stand
// still between two insertions.
func (x expiry[V]) Less(i, j int) bool {
	a, b := x[i], x[j]
	return a.expires < b.expires || a.expires == b.expires && a.inserted < b.inserted
}

func (x expiry[V]) Swap(i, j int) {
	x[i], x[j] = x[j], x[i]
	x[i].slot, x[j].slot = i+1, j+1
}

func (x *expiry[V]) Push(n any) {
	*x = append(*x, n.(*node[V]))
	(*x)[len(*x)-1].slot = len(*x)
}

func (x *expiry[V]) Pop() any {
	last := len(*x) - 1
	n := (*x)[last]
	(*x)[last], n.slot = nil, 0
	*x = (*x)[:last]
	return n
}

// Warm and LoadSnapshot cache values ahead of their first use. Such values take only the room
// that is free. Of two such entries, the one that came first is evicted last.

// fresh reports whether key has a value or is being loaded.
func (e *engine[V]) fresh(key string) bool {
	s := e.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live(key, e) != nil || s.flights[key] != nil
}

// An aheadResult says what became of a value that was to be cached ahead.
type aheadResult int

const (
	aheadCached   aheadResult = iota
	aheadWasThere             // key had a value, or somebody else was loading it
	aheadRefused              // the load did not want it to be cached
	aheadNoRoom
)

// loadAhead loads key by fn as load does, unless key is fresh. It does not count a miss.
func (e *engine[V]) loadAhead(key string, fn func() (V, loaded, error)) (aheadResult, error) {
	s := e.shard(key)
	s.mu.Lock()
	if s.live(key, e) != nil || s.flights[key] != nil {
		s.mu.Unlock()
		return aheadWasThere, nil
	}
	f := &flight[V]{err: errAbandoned} // without a number: load asks accept about it
	s.flights[key] = f
	s.mu.Unlock()
	wanted := false
	_, err := e.fly(s, key, f, func() (V, loaded, error) {
		v, l, err := fn()
		wanted = l.keep
		return v, l, err
	})
	switch {
	case err != nil:
		return aheadRefused, err
	case f.kept:
		return aheadCached, nil
	case wanted:
		return aheadNoRoom, nil
	}
	return aheadRefused, nil
}

// add makes v the value of key, unless key is fresh.
func (e *engine[V]) add(key string, v V, l loaded) aheadResult {
	s := e.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.live(key, e) != nil || s.flights[key] != nil:
		return aheadWasThere
	case s.insert(e, key, v, l):
		return aheadCached
	}
	return aheadNoRoom
}

// fits reports whether an entry of cost could be added ahead.
func (e *engine[V]) fits(key string, cost int64) bool {
	s := e.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(e, s.maxEntries)
	return cost <= s.maxBytes-s.bytes && len(s.entries) < s.maxEntries
}

// A held is an entry at one moment.
type held[V comparable] struct {
	key     string
	value   V
	uses    int64
	expires int64
}

// all returns the entries, the most used first; among equals, about the last used.
func (e *engine[V]) all() []held[V] {
	var found []held[V]
	for _, s := range e.shards {
		s.mu.Lock()
		s.expire(e, s.maxEntries)
		list := func(q *queue[V]) {
			for n := q.newest; n != nil; n = n.prev {
				found = append(found, held[V]{n.key, n.value, n.uses, n.expires})
			}
		}
		list(&s.protected)
		list(&s.recent)
		for q := s.rare; q != nil; q = q.next {
			list(q)
		}
		s.mu.Unlock()
	}
	slices.SortStableFunc(found, func(a, b held[V]) int { return cmp.Compare(b.uses, a.uses) })
	return found
}

// find returns the entry of key. It does not count as a use.
func (e *engine[V]) find(key string) (h held[V], ok bool) {
	s := e.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.live(key, e); n != nil {
		return held[V]{n.key, n.value, n.uses, n.expires}, true
	}
	return h, false
}
