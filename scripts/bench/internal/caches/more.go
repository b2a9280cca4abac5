//go:build linux

package caches

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/absfs/cachefs"

	"github.com/fileproc/fileproc/cache"
	"github.com/fileproc/fileproc/scripts/internal/measure"
)

// printPolicies prints how often each policy reads the source in the mix of Zipf's choice and a scan.
func printPolicies() error {
	// A bound of entries: the sides count bytes differently.
	c := &testCase{name: "Zipf with a scan, 25,000 files, of which 1,500 fit", files: zipfFiles + scanFiles, size: 1 << 10, maxEntries: 1500, order: zipfWithScan()}
	all := []side{}
	for _, p := range []struct {
		name   string
		policy cache.Policy
	}{{"LRU", cache.LRU}, {"LFU", cache.LFU}, {"TTL", cache.TTL}, {"Hybrid", cache.Hybrid}} {
		all = append(all, side{"fileproc, " + p.name, func(c *testCase) (*target, error) {
			return newOurs(c, cache.Options{Trust: cache.Forever, Policy: p.policy, TTL: time.Hour})
		}})
	}
	for _, p := range []struct {
		name   string
		policy cachefs.EvictionPolicy
	}{{"LRU", cachefs.EvictionLRU}, {"LFU", cachefs.EvictionLFU}, {"TTL", cachefs.EvictionTTL}, {"Hybrid", cachefs.EvictionHybrid}} {
		all = append(all, side{"cachefs, " + p.name, func(c *testCase) (*target, error) { return newCachefs(c, p.policy) }})
	}
	all = append(all, sides[3])
	n := float64(len(c.order))
	chosen := n * 4 / 5 // the rest is the scan
	fmt.Printf("\n%s:\n\n| | hits, %% | hits outside of the scan, %% | ns |\n| --- | ---: | ---: | ---: |\n", c.name)
	for _, s := range all {
		t, err := s.open(c)
		if err != nil {
			return err
		}
		if err := c.do(t, 0, len(c.order)); err != nil { // fill it
			return fmt.Errorf("%s: %w", s.name, err)
		}
		buf := make([]byte, c.size)
		hits, outside := 0, 0
		start := time.Now()
		for op := range c.order {
			before := t.src.reads.Load()
			if err := t.read(c.file(op), buf, false); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			if t.src.reads.Load() == before {
				hits++
				if c.file(op) < zipfFiles {
					outside++
				}
			}
		}
		took := time.Since(start)
		english.Printf("| %s | %.1f | %.1f | %.0f |\n", s.name, 100*float64(hits)/n, 100*float64(outside)/chosen, float64(took)/n)
	}
	return nil
}

// printEviction prints what an eviction costs in small and large caches. All entries but a few are used twice; those
// are read in turn, and with LFU they evict each other. So the same files are touched at each size, and the processor's
// caches matter little.
func printEviction(rounds int) error {
	fmt.Printf("\nA miss with an eviction, LFU, the same 1,000 files in turn:\n\n| entries | fileproc, ns | cachefs, ns |\n| ---: | ---: | ---: |\n")
	const turn = 1000
	sizes := []int{1000, 10_000, 100_000, 1_000_000}
	ns := map[string][]float64{}
	type opened struct {
		key string
		c   *testCase
		t   *target
		ops int
	}
	var targets []opened
	for _, n := range sizes {
		c := &testCase{files: n + turn, size: 16, maxEntries: n, maxBytes: 8 << 30}
		for i := range n - 1 {
			c.order = append(c.order, i, i)
		}
		first := len(c.order)
		for i := range turn {
			c.order = append(c.order, n+i)
		}
		for _, s := range []side{
			{ours, func(c *testCase) (*target, error) {
				return newOurs(c, cache.Options{Trust: cache.Forever, Policy: cache.LFU, Shards: 1})
			}},
			{theirs, func(c *testCase) (*target, error) { return newCachefs(c, cachefs.EvictionLFU) }},
		} {
			t, err := s.open(c)
			if err != nil {
				return err
			}
			if err := c.do(t, 0, first+turn*min(1, 10_000/n)); err != nil {
				return err
			}
			ops := 20 * turn
			if s.name == theirs {
				ops = max(3, 2_000_000/n)
			}
			c := *c
			c.order = c.order[first:]
			targets = append(targets, opened{fmt.Sprint(s.name, n), &c, t, ops})
		}
	}
	for range rounds {
		for _, o := range targets {
			took, _, err := timed(o.c, o.t, o.ops)
			if err != nil {
				return err
			}
			ns[o.key] = append(ns[o.key], took)
		}
	}
	for _, n := range sizes {
		english.Printf("| %d | %.0f | %.0f |\n", n, measure.Median(ns[fmt.Sprint(ours, n)]), measure.Median(ns[fmt.Sprint(theirs, n)]))
	}
	return nil
}

// printDirectory prints what reading one file of a directory costs.
func printDirectory(rounds int, sample time.Duration) (err error) {
	dir, err := os.MkdirTemp("", "caches")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	c := &testCase{files: 1, size: 4 << 10}
	name := c.names("")[0]
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, contentOf(0, c.size, 0), 0o666); err != nil {
		return err
	}
	time.Sleep(2100 * time.Millisecond) // a file that is younger is not trusted to show changes
	var all []side
	for _, s := range []struct {
		name string
		opts *cache.Options
	}{
		{"fileproc, Trust: Forever", &cache.Options{Trust: cache.Forever}},
		{"fileproc, Trust: 100 ms", &cache.Options{Trust: 100 * time.Millisecond}},
		{"fileproc, each hit compared with the file", &cache.Options{}},
		{"os.DirFS, no cache", nil},
	} {
		f := os.DirFS(dir)
		if s.opts != nil {
			files, err := cache.NewDir(dir, *s.opts)
			if err != nil {
				return err
			}
			defer files.Close()
			f = files
		}
		all = append(all, side{s.name, func(*testCase) (*target, error) {
			return &target{names: []string{name}, src: &source{},
				open: func(name string) (io.ReadCloser, error) { return f.Open(name) }}, nil
		}})
	}
	r, err := measureCase(c, all, rounds, sample)
	if err != nil {
		return err
	}
	fmt.Printf("\nOne file of 4 KiB in a directory, in the page cache:\n\n| | ns | allocations |\n| --- | ---: | ---: |\n")
	for _, m := range r.sides {
		english.Printf("| %s | %.0f | %.3g |\n", m.side, measure.Median(m.ns), m.allocs)
	}
	return nil
}
