package fileproc

import (
	"slices"
	"strings"

	"github.com/fileproc/fileproc/internal/pattern"
)

// A filter is the options that select files by name and path, prepared.
type filter struct {
	suffixes         []string
	include, exclude []pattern.Glob
	shard, shards    int
	needsPath        bool // include, exclude or shards is set
}

func newFilter(c *config) filter {
	f := filter{needsPath: len(c.include) > 0 || len(c.exclude) > 0 || c.shards > 1, shard: c.shard, shards: c.shards, suffixes: c.suffixes}
	for _, p := range c.include {
		f.include = append(f.include, pattern.Expand(p)...)
	}
	for _, p := range c.exclude {
		f.exclude = append(f.exclude, pattern.Expand(p)...)
	}
	return f
}

// hasSuffix reports whether name ends as Options.Suffixes asks.
func (f *filter) hasSuffix(name string) bool {
	return len(f.suffixes) == 0 || slices.ContainsFunc(f.suffixes, func(s string) bool { return strings.HasSuffix(name, s) })
}

// keeps reports whether the patterns keep the file rel.
func (f *filter) keeps(rel string) bool {
	return !f.excludes(rel) && (len(f.include) == 0 || slices.ContainsFunc(f.include, func(g pattern.Glob) bool { return g.Match(rel) }))
}

// skipsDir reports whether the patterns leave out all of the directory rel.
func (f *filter) skipsDir(rel string) bool {
	return f.excludes(rel) || len(f.include) > 0 && !slices.ContainsFunc(f.include, func(g pattern.Glob) bool { return g.Reaches(rel) })
}

func (f *filter) excludes(rel string) bool {
	return slices.ContainsFunc(f.exclude, func(g pattern.Glob) bool { return g.Match(rel) })
}

// inShard reports whether the file rel belongs to Options.Shard.
func (f *filter) inShard(rel string) bool {
	return f.shards <= 1 || shardOf(rel, f.shards) == f.shard
}

// shardOf returns which of n shards the path rel belongs to. It must never
// change, since the shards of a job may run different versions.
func shardOf(rel string, n int) int {
	// FNV-1a, 64 bits, as hash/fnv computes it, then the 64-bit finalizer of
	// MurmurHash3, since with FNV alone the last bytes reach only some bits.
	h := uint64(0xcbf29ce484222325)
	for i := range len(rel) {
		h = (h ^ uint64(rel[i])) * 0x100000001b3
	}
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	h ^= h >> 33
	return int(h % uint64(n))
}
