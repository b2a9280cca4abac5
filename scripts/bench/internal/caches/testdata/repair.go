package cachefs

// removeLRU replaces a method of cachefs v1.0.0 for scripts/bench_cache.sh --repaired. It takes e out of the list, if e is in
// it: that method empties the list when e, which is new, is in none.
func (c *CacheFS) removeLRU(e *cacheEntry) {
	before, after := e.prev, e.next
	e.prev, e.next = nil, nil
	switch {
	case before != nil:
		before.next = after
	case c.lruHead == e:
		c.lruHead = after
	default:
		return
	}
	if after != nil {
		after.prev = before
	} else {
		c.lruTail = before
	}
}
