//go:build linux

package caches

import (
	"fmt"
	"math/rand/v2"

	"github.com/fileproc/fileproc/scripts/internal/record"
)

// A testCase is what all sides do.
type testCase struct {
	name        string
	files, size int
	maxBytes    int64 // 0 is the side's default
	maxEntries  int
	order       []int // of the files, repeated; nil is one after the other
	fill        []int // the order in which the cache is filled before; nil is the other one
	goroutines  int
	toEOF       bool // read on until io.EOF
	write, back bool // write each file; and read it then
	drop        bool // invalidate each file after it was read
	around      bool // the mode is write around
}

const (
	zipfFiles = 5_000
	scanFiles = 20_000
)

var zipfWithScan = zipfAndScan()

var cases = []testCase{
	{name: "ReadHit, 1 × 1 KiB", files: 1, size: 1 << 10},
	{name: "the same, read to io.EOF", files: 1, size: 1 << 10, toEOF: true},
	{name: "ReadMiss, 1,000 × 1 KiB in 10 MiB", files: 1000, size: 1 << 10, maxBytes: 10 << 20},
	{name: "SequentialReads, 100 × 4 KiB", files: 100, size: 4 << 10, maxBytes: 50 << 20},
	{name: "RandomAccess, 100 × 2 KiB", files: 100, size: 2 << 10, maxBytes: 10 << 20, order: stride(100, 17)},
	{name: "the same, 2 goroutines", files: 100, size: 2 << 10, maxBytes: 10 << 20, order: stride(100, 17), goroutines: 2},
	{name: "EvictionLRU, 200 × 1 KiB in 100 KiB", files: 200, size: 1 << 10, maxBytes: 100 << 10},
	{name: "a miss each time: read, Invalidate", files: 200, size: 1 << 10, maxBytes: 10 << 20, drop: true},
	{name: "Zipf with a scan, 25,000 × 1 KiB in 2 MiB", files: zipfFiles + scanFiles, size: 1 << 10, maxBytes: 2 << 20, order: zipfWithScan},
	{name: "WriteThrough, 1 KiB", files: 1, size: 1 << 10, write: true},
	{name: "WriteThrough, then read", files: 1, size: 1 << 10, write: true, back: true},
	{name: "WriteAround, 1 KiB", files: 1, size: 1 << 10, write: true, around: true},
}

// policies has a bound of entries, because the sides count bytes differently.
var policies = testCase{name: "Zipf with a scan, 25,000 files, of which 1,500 fit",
	files: zipfFiles + scanFiles, size: 1 << 10, maxEntries: 1500, order: zipfWithScan}

// eviction is for LFU. All entries but one are used twice; 1,000 other files are read in turn, and evict each other. So the same
// files are touched at each size, and the processor's caches matter little.
func eviction(entries int) *testCase {
	const turn = 1000
	c := &testCase{name: record.English.Sprint(entries), files: entries + turn, size: 16, maxEntries: entries, maxBytes: 8 << 30}
	for i := range entries - 1 {
		c.fill = append(c.fill, i, i)
	}
	for i := range turn {
		c.order = append(c.order, entries+i)
	}
	return c
}

// stride is the order step×i mod n.
func stride(n, step int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i * step % n
	}
	return order
}

// zipfAndScan is an order of which four fifths choose from zipfFiles, few of them often, and one fifth goes through scanFiles.
func zipfAndScan() []int {
	rnd := rand.New(rand.NewPCG(15, 1))
	zipf := rand.NewZipf(rnd, 1.1, 1, zipfFiles-1)
	places := rnd.Perm(zipfFiles)
	order := make([]int, 5*scanFiles)
	for i := range order {
		if i%5 == 4 {
			order[i] = zipfFiles + i/5
		} else {
			order[i] = places[zipf.Uint64()]
		}
	}
	return order
}

// contentOf is different for each file.
func contentOf(i, size, version int) []byte {
	data := make([]byte, size)
	for at := range data {
		data[at] = byte(at*7 + at>>8 + i*31 + i>>8 + version)
	}
	copy(data, fmt.Sprintf("%d of version %d\n", i, version))
	return data
}

func (c *testCase) file(op int) int {
	if c.order == nil {
		return op % c.files
	}
	return c.order[op%len(c.order)]
}

// cycle is after how many operations a case repeats itself.
func (c *testCase) cycle() int {
	if c.order == nil {
		return c.files
	}
	return len(c.order)
}
