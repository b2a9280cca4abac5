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

// errAbandoned is the end of a load whose function panicked. Those who waited for
// it load the key themselves.
var errAbandoned = errors.New("cache: a load was abandoned")

// Counts are the exact counters of a cache since it was made. A moment's view is
// taken shard by shard; at rest, Inserted = Entries + the sum of Evictions, and
// Loads = LoadErrors + NotCached + the values that loads have inserted.
type Counts struct {
	Hits       int64 `json:"hits"`       // served from memory
	Misses     int64 `json:"misses"`     // loaded, or waited for another's load
	Checks     int64 `json:"checks"`     // comparisons of an entry with its file
	Loads      int64 `json:"loads"`      // reads of the source
	LoadErrors int64 `json:"loadErrors"` // loads that failed
	NotCached  int64 `json:"notCached"`  // loads whose value was returned but not cached
	Joined     int64 `json:"joined"`     // waits for a load that another had begun
	Inserted   int64 `json:"inserted"`   // values cached
	TooLarge   int64 `json:"tooLarge"`   // values over the bound of bytes
	Entries    int64 `json:"entries"`    // now
	Bytes      int64 `json:"bytes"`      // now, as Options.MaxBytes counts them

	// Evictions has the values that left the cache, by reason: "bytes" or "entries", to
	// keep that bound; "expired", at the end of their TTL, or of Options.Trust if their
	// file cannot be compared; "changed", as their file has; "invalidated", by a call or a
	// write; "replaced", by a newer value.
	Evictions map[string]int64 `json:"evictions"`
}

func (c *Counts) add(d *Counts) {
	c.Hits += d.Hits
	c.Misses += d.Misses
	c.Checks += d.Checks
	c.Loads += d.Loads
	c.LoadErrors += d.LoadErrors
	c.NotCached += d.NotCached
	c.Joined += d.Joined
	c.Inserted += d.Inserted
	c.TooLarge += d.TooLarge
}

// HitRate is the part of hits, from 0 to 1; 0 if nothing was asked for.
func (c Counts) HitRate() float64 {
	if c.Hits+c.Misses == 0 {
		return 0
	}
	return float64(c.Hits) / float64(c.Hits+c.Misses)
}
