package cache

import (
	"cmp"
	"slices"
)

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
