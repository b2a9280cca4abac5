package cache

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/jellydator/ttlcache/v3"
	"github.com/maypok86/otter/v2"
)

// BenchmarkEngines is built into package cache by scripts/bench_cache.sh --engines. Each engine is bounded by cost.
func BenchmarkEngines(b *testing.B) {
	const most, cost = 1 << 20, 1024 // 1,024 entries
	engines := map[string]func() (get func(string) bool, set func(string), held func() uint64){
		"fileproc":        func() (func(string) bool, func(string), func() uint64) { return ours(LRU, most, cost) },
		"fileproc-hybrid": func() (func(string) bool, func(string), func() uint64) { return ours(Hybrid, most, cost) },
		"ttlcache": func() (func(string) bool, func(string), func() uint64) {
			c := ttlcache.New(ttlcache.WithMaxCost[string, *content](most, func(ttlcache.CostItem[string, *content]) uint64 { return cost }))
			return func(key string) bool { return c.Get(key) != nil },
				func(key string) { c.Set(key, &content{}, ttlcache.NoTTL) },
				func() uint64 { return uint64(c.Len()) * cost }
		},
		"otter": func() (func(string) bool, func(string), func() uint64) {
			c := otter.Must(&otter.Options[string, *content]{MaximumWeight: most, Weigher: func(string, *content) uint32 { return cost }})
			return func(key string) bool { _, ok := c.GetIfPresent(key); return ok },
				func(key string) { c.Set(key, &content{}) },
				c.WeightedSize
		},
	}
	keys := make([]string, 10_000)
	for i := range keys {
		keys[i] = fmt.Sprintf("some/directory/file%04d.txt", i)
	}
	zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, uint64(len(keys)-1))
	mix := make([]int, 1<<16)
	for i := range mix {
		mix[i] = int(zipf.Uint64())
	}
	for _, name := range []string{"fileproc", "fileproc-hybrid", "ttlcache", "otter"} {
		b.Run("op=hit/engine="+name, func(b *testing.B) {
			get, set, _ := engines[name]()
			for i := range 100 {
				set(keys[i])
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if !get(keys[i*17%100]) {
					b.Fatal("a miss")
				}
			}
		})
		b.Run("op=evict/engine="+name, func(b *testing.B) {
			_, set, held := engines[name]()
			over := uint64(0)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				set(keys[i%len(keys)])
				if i%64 == 0 {
					over = max(over, held())
				}
			}
			b.ReportMetric(100*float64(over)/most, "%ofbound")
		})
		b.Run("op=mix/engine="+name, func(b *testing.B) {
			get, set, _ := engines[name]()
			hits, n := 0, 0
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				key := keys[mix[i%len(mix)]]
				if n++; get(key) {
					hits++
				} else {
					set(key)
				}
			}
			b.ReportMetric(100*float64(hits)/float64(n), "%hits")
		})
	}
}

func ours(policy Policy, most, cost int64) (func(string) bool, func(string), func() uint64) {
	e := newEngine[*content](limits{policy: policy, maxBytes: most, maxEntries: 1 << 40, shards: 1})
	return func(key string) bool { _, ok, _ := e.get(key, 0); return ok },
		func(key string) { e.set(key, &content{}, loaded{cost: cost}) },
		func() uint64 { return uint64(e.total().Bytes) }
}
