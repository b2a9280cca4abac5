package cache

import (
	"errors"
	"fmt"
	"slices"
)

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

// Reason says why an entry left the cache: an index of Counts.Evictions.
type Reason int

const (
	OverBytes   Reason = iota // to keep the bound of bytes
	OverEntries               // to keep the bound of entries
	Expired                   // at the end of its TTL, or of Options.Trust if its file cannot be compared
	Changed                   // its file has changed
	Invalidated               // by Invalidate and the methods like it, or by a write
	Replaced                  // by a newer value
	reasons
)

var reasonNames = [reasons]string{"bytes", "entries", "expired", "changed", "invalidated", "replaced"}

func (r Reason) String() string { return reasonNames[r] }

// MarshalText makes Reason a key of JSON objects.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText is the reverse of MarshalText.
func (r *Reason) UnmarshalText(text []byte) error {
	i := slices.Index(reasonNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("cache: unknown reason %q", text)
	}
	*r = Reason(i)
	return nil
}

// errAbandoned is the end of a load whose function panicked. Those who waited for
// it load the key themselves.
var errAbandoned = errors.New("cache: a load was abandoned")

// counts are the counters of a shard.
type counts struct {
	Hits, Misses, Checks                 int64
	Loads, LoadErrors, NotCached, Joined int64
	Inserted, TooLarge                   int64
	Entries, Bytes                       int64
	Evictions                            [reasons]int64
}

func (c *counts) add(d *counts) {
	c.Hits += d.Hits
	c.Misses += d.Misses
	c.Checks += d.Checks
	c.Loads += d.Loads
	c.LoadErrors += d.LoadErrors
	c.NotCached += d.NotCached
	c.Joined += d.Joined
	c.Inserted += d.Inserted
	c.TooLarge += d.TooLarge
	c.Entries += d.Entries
	c.Bytes += d.Bytes
	for i := range c.Evictions {
		c.Evictions[i] += d.Evictions[i]
	}
}

// Counts are the exact counters of a cache since it was made. A moment's view is
// taken shard by shard; at rest, Inserted = Entries + the sum of Evictions, and
// Loads = LoadErrors + NotCached + the values that loads have inserted.
type Counts struct {
	Hits       int64            `json:"hits"`       // served from memory
	Misses     int64            `json:"misses"`     // loaded, or waited for another's load
	Checks     int64            `json:"checks"`     // comparisons of an entry with its file
	Loads      int64            `json:"loads"`      // reads of the source
	LoadErrors int64            `json:"loadErrors"` // loads that failed
	NotCached  int64            `json:"notCached"`  // loads whose value was returned but not cached
	Joined     int64            `json:"joined"`     // waits for a load that another had begun
	Inserted   int64            `json:"inserted"`   // values cached
	TooLarge   int64            `json:"tooLarge"`   // values over the bound of bytes
	Entries    int64            `json:"entries"`    // now
	Bytes      int64            `json:"bytes"`      // now, as Options.MaxBytes counts them
	Evictions  map[Reason]int64 `json:"evictions"`
}

// HitRate is the part of hits, from 0 to 1; 0 if nothing was asked for.
func (c Counts) HitRate() float64 {
	if c.Hits+c.Misses == 0 {
		return 0
	}
	return float64(c.Hits) / float64(c.Hits+c.Misses)
}

func (c *counts) public() Counts {
	p := Counts{Hits: c.Hits, Misses: c.Misses, Checks: c.Checks, Loads: c.Loads, LoadErrors: c.LoadErrors,
		NotCached: c.NotCached, Joined: c.Joined, Inserted: c.Inserted, TooLarge: c.TooLarge, Entries: c.Entries, Bytes: c.Bytes,
		Evictions: map[Reason]int64{}}
	for r, n := range c.Evictions {
		p.Evictions[Reason(r)] = n
	}
	return p
}
