package cache

// Stats are the counters of an FS.
type Stats struct {
	Files    Counts     `json:"files"`
	Metadata Counts     `json:"metadata"` // listings too
	Writes   WriteStats `json:"writes"`
}

// Stats returns the counters. They are made for expvar:
//
//	expvar.Publish("files", expvar.Func(func() any { return files.Stats() }))
func (c *FS) Stats() Stats {
	data, meta := c.data.total(), c.meta.total()
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	writes := c.w.stats
	writes.Writes, writes.WriteErrors, writes.Removes = c.w.wrote.Load(), c.w.failed.Load(), c.w.removed.Load()
	writes.DirtyFiles, writes.DirtyBytes = int64(len(c.w.dirty)), c.w.bytes
	return Stats{Files: data, Metadata: meta, Writes: writes}
}

// Counts are the exact counters of a cache since it was made. They are read shard by
// shard. While nothing changes, Inserted = Entries + the sum of Evictions, and
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
	// file cannot be compared; "changed", because their file has changed; "invalidated", by
	// a call or a write; "replaced", by a newer value.
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

// HitRate returns the share of hits among hits and misses, from 0 to 1; 0 if there were none.
func (c Counts) HitRate() float64 {
	if c.Hits+c.Misses == 0 {
		return 0
	}
	return float64(c.Hits) / float64(c.Hits+c.Misses)
}

// WriteStats are the counters of writes.
type WriteStats struct {
	Writes      int64 `json:"writes"`      // calls of WriteFile that returned nil
	WriteErrors int64 `json:"writeErrors"` // calls of WriteFile that failed
	Removes     int64 `json:"removes"`     // calls of Remove that returned nil
	Flushes     int64 `json:"flushes"`     // dirty files written to the store, or removed from it
	FlushErrors int64 `json:"flushErrors"` // dirty files for which that failed, each time
	Discarded   int64 `json:"discarded"`   // dirty files dropped by Discard
	Superseded  int64 `json:"superseded"`  // dirty files written again or removed before their flush
	DirtyFiles  int64 `json:"dirtyFiles"`  // now
	DirtyBytes  int64 `json:"dirtyBytes"`  // now, counted as entries are
}

// An Entry is what the cache knows of a file.
type Entry struct {
	Name   string `json:"name"`
	Cached bool   `json:"cached"`
	Dirty  bool   `json:"dirty"` // written or removed, and the store does not know it yet
	Bytes  int64  `json:"bytes"` // of the content in memory
	Uses   int64  `json:"uses"`  // how often it was served since it was cached
}

// Entries returns what the cache knows of the names, in their order. Without a name it
// returns all files that the cache has, the most used first and the dirty ones last. A call
// of Entries does not count as a use.
func (c *FS) Entries(names ...string) []Entry {
	files := c.w.sorted(all)
	dirty := make(map[string]Entry, len(files))
	for _, d := range files {
		dirty[d.name] = Entry{Name: d.name, Dirty: true, Bytes: int64(len(d.content.data))}
	}
	var entries []Entry
	add := func(name string, h held[*content], cached bool) {
		e, isDirty := dirty[name]
		if !isDirty {
			e = Entry{Name: name, Cached: cached, Uses: h.uses}
			if cached {
				e.Bytes = int64(len(h.value.data))
			}
		}
		entries = append(entries, e)
	}
	for _, name := range names {
		name = clean(name)
		h, ok := c.data.find(name)
		add(name, h, ok)
	}
	if len(names) > 0 {
		return entries
	}
	for _, h := range c.data.all() {
		if _, isDirty := dirty[h.key]; !isDirty {
			add(h.key, h, true)
		}
	}
	for _, d := range files {
		entries = append(entries, dirty[d.name])
	}
	return entries
}
