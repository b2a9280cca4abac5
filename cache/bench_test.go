package cache

import (
	"fmt"
	"io"
	"strings"
	"testing"
)

// readThrough opens, reads and closes a file.
func readThrough(b *testing.B, c *FS, name string, into []byte) {
	f, err := c.Open(name)
	if err != nil {
		b.Fatal(err)
	}
	for {
		if _, err = f.Read(into); err != nil {
			break
		}
	}
	if err != io.EOF {
		b.Fatal(err)
	}
	f.Close()
}

func benchFS(b *testing.B, files, size int, opts Options) (*FS, []string) {
	m := newMemFS(nil)
	names := make([]string, files)
	for i := range names {
		names[i] = fmt.Sprintf("dir/file%d.txt", i)
		m.put(names[i], strings.Repeat("x", size))
	}
	opts.Store = m
	c, err := New(m, opts)
	if err != nil {
		b.Fatal(err)
	}
	return c, names
}

func BenchmarkRead(b *testing.B) {
	for _, bm := range []struct {
		name        string
		files, size int
		opts        Options
	}{
		{"case=hit/check=no", 1, 1024, Options{Trust: Forever}},
		{"case=hit/check=yes", 1, 1024, Options{}},
		{"case=random/check=no", 100, 2048, Options{Trust: Forever}},
		{"case=evict/policy=LRU", 200, 1024, Options{Trust: Forever, MaxBytes: 100 << 10, Shards: 1}},
		{"case=evict/policy=LFU", 200, 1024, Options{Trust: Forever, MaxBytes: 100 << 10, Shards: 1, Policy: LFU}},
	} {
		b.Run(bm.name, func(b *testing.B) {
			c, names := benchFS(b, bm.files, bm.size, bm.opts)
			into := make([]byte, 4096)
			b.SetBytes(int64(bm.size))
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				readThrough(b, c, names[i*17%len(names)], into)
				i++
			}
		})
	}
}

func BenchmarkWriteThrough(b *testing.B) {
	c, names := benchFS(b, 1, 1024, Options{})
	data := make([]byte, 1024)
	b.ReportAllocs()
	for b.Loop() {
		if err := c.WriteFile(names[0], data); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkEviction inserts 1,000 keys in turn into a full engine. With LFU they evict each other, so that the same memory
// is used at each size, and the time is the same. With LRU and Hybrid they evict what was used long ago: this takes
// the same steps, but with many entries their memory is in no cache of the processor.
func BenchmarkEviction(b *testing.B) {
	for name, policy := range map[string]Policy{"LRU": LRU, "LFU": LFU, "Hybrid": Hybrid} {
		for _, n := range []int{1000, 1_000_000} {
			b.Run(fmt.Sprintf("policy=%s/entries=%d", name, n), func(b *testing.B) {
				e := newEngine[int](limits{policy: policy, maxBytes: 1 << 60, maxEntries: n, shards: 1})
				keys := fullEngine(e, n)
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					e.set(keys[i%len(keys)], i, loaded{cost: 1})
					i++
				}
			})
		}
	}
}
