package cache

import "errors"

// Policy says which entry is evicted when a bound is reached. Entries that have
// expired are removed before any other.
type Policy int

const (
	// LRU evicts the entry that was used least recently. It is the default.
	LRU Policy = iota
	// LFU evicts the entry that was used least often since it was cached; among
	// these, the one used least recently.
	LFU
	// TTL evicts the entry that expires first. It needs Options.TTL.
	TTL
	// Hybrid evicts, least recently used first, entries that were used once; then
	// those used again, which may take up four fifths of the bounds. So a scan through
	// many files that are read once does not evict what is used often.
	Hybrid
)

// Reason says why an entry left the cache.
type Reason int

const (
	Bytes       Reason = iota // to keep the bound of bytes
	Entries                   // to keep the bound of entries
	Expired                   // at the end of its time to live
	Changed                   // its file has changed
	Invalidated               // by Invalidate and its kin, or by a write
	Replaced                  // by a newer value
	reasons
)

// errAbandoned is the end of a load whose function panicked. Those who waited for
// it load the key themselves.
var errAbandoned = errors.New("cache: a load was abandoned")

// counts are the counters of a shard. The ledger: Inserted = Entries + the sum of
// Evictions.
type counts struct {
	Hits, Misses, Loads, LoadErrors, Joined       int64
	NotCached, TooLarge, Inserted, Bytes, Entries int64
	Checks                                        int64
	Evictions                                     [reasons]int64
}

func (c *counts) add(d *counts) {
	c.Hits += d.Hits
	c.Misses += d.Misses
	c.Loads += d.Loads
	c.LoadErrors += d.LoadErrors
	c.Joined += d.Joined
	c.NotCached += d.NotCached
	c.TooLarge += d.TooLarge
	c.Inserted += d.Inserted
	c.Bytes += d.Bytes
	c.Entries += d.Entries
	c.Checks += d.Checks
	for i := range c.Evictions {
		c.Evictions[i] += d.Evictions[i]
	}
}
