package names

// ShardOf returns which of n shards the path rel belongs to. The result for a path must
// never change, since the shards of a job may run different versions.
func ShardOf(rel string, n int) int {
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
