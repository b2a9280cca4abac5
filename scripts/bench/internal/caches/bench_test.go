//go:build linux

package caches

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"testing"

	"github.com/fileproc/fileproc/scripts/internal/record"

	"golang.org/x/sync/errgroup"
)

// The command caches runs these benchmarks once in each round. An operation opens, reads and closes a file. Before a case is
// timed, each side does it on files of its own and each answer is compared with the file: what is wrong is printed on
// stderr, and a side whose single reads are wrong is left out.

func BenchmarkCases(b *testing.B) {
	for i := range cases {
		cases[i].bench(b, caseSides)
	}
}

// BenchmarkPolicies shows how often each policy reads the source in the mix of Zipf's choice and a scan.
func BenchmarkPolicies(b *testing.B) { policies.bench(b, policySides) }

// BenchmarkEviction shows what an eviction costs in small and large caches.
func BenchmarkEviction(b *testing.B) {
	for _, entries := range []int{1000, 10_000, 100_000, 1_000_000} {
		eviction(entries).bench(b, evictionSides)
	}
}

var round = flag.Int("round", 0, "the `number` of the round: a different side goes first in each")

func (c *testCase) bench(b *testing.B, sides []side) {
	b.Run("case="+c.name, func(b *testing.B) {
		for i := range sides {
			s := sides[(i+*round)%len(sides)]
			b.Run("side="+s.name, func(b *testing.B) {
				notes, err := check(c, s)
				if err != nil {
					notes = append(notes, fmt.Sprintf("%s: left out: %v", s.name, err))
				}
				for _, note := range notes {
					fmt.Fprintf(os.Stderr, "- %s: %s\n", c.name, note)
				}
				t, openErr := s.open(c)
				if openErr != nil {
					b.Fatal(openErr)
				}
				if err != nil || c.drop && t.drop == nil || c.around && s.name == theirOther {
					b.Skip("it cannot")
				}
				c.time(b, t)
			})
		}
	})
}

// atOnce is about how many operations are timed together: enough that the loop costs nothing.
const atOnce = 10_000

func (c *testCase) time(b *testing.B, t *target) {
	fill, n := *c, c.cycle()
	at := (atOnce + c.cycle() - 1) / c.cycle() * c.cycle() // whole cycles
	if c.fill != nil {
		fill.order, n, at = c.fill, len(c.fill), 4 // each operation costs the same, and a cycle may take minutes
	}
	if err := fill.do(t, 0, n); err != nil {
		b.Fatal(err)
	}
	runtime.GC()
	reads, hot, first := t.src.reads.Load(), t.src.hot.Load(), 0
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for ; b.Loop(); first += at {
		if err := c.together(t, first, at); err != nil {
			b.Fatal(err)
		}
	}
	ops := float64(first)
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(b.Elapsed())/ops, "ns/op")
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/ops, "mallocs/op")
	b.ReportMetric(float64(t.src.reads.Load()-reads)/ops, "reads/op")
	b.ReportMetric(float64(t.src.hot.Load()-hot)/ops, "hot/op")
}

// together does n operations, by all goroutines of the case.
func (c *testCase) together(t *target, first, n int) error {
	if c.goroutines == 0 {
		return c.do(t, first, n)
	}
	var all errgroup.Group
	for g := range c.goroutines {
		all.Go(func() error { return c.do(t, first+g*n/c.goroutines, n/c.goroutines) })
	}
	return all.Wait()
}

// do does n operations, of which the first has that number.
func (c *testCase) do(t *target, first, n int) error {
	buf := make([]byte, c.size)
	for op := first; op < first+n; op++ {
		i := c.file(op)
		if c.write {
			if err := t.write(t.names[i], buf); err != nil {
				return err
			}
			if !c.back {
				continue
			}
		}
		if err := t.read(i, buf, c.toEOF); err != nil {
			return err
		}
		if c.drop {
			t.drop(t.names[i])
		}
	}
	return nil
}

// check does the case twice, once with single reads and once to the end of the file, and compares each answer with the file.
// Without an error, the single reads are right.
func check(c *testCase, s side) (notes []string, err error) {
	if c.fill != nil {
		return nil, nil // the policies' case checks these sides, with fewer files
	}
	for _, whole := range []bool{false, true} {
		t, err := s.open(c)
		if err != nil {
			return nil, err
		}
		ops := min(max(10, 3*c.cycle()), 30_000)
		var wrong []error
		for op := range ops {
			if err := checkOne(c, t, op, whole); err != nil {
				wrong = append(wrong, err)
			}
			if c.drop && t.drop != nil {
				t.drop(t.names[c.file(op)])
			}
		}
		if wrong != nil && !whole {
			return nil, fmt.Errorf("%d of %d single reads are wrong: %w", len(wrong), ops, wrong[0])
		} else if wrong != nil {
			notes = append(notes, record.English.Sprintf("%s: %d of %d reads with io.ReadAll are wrong: %v", s.name, len(wrong), ops, wrong[0]))
		}
		if t.held != nil && c.maxBytes > 0 && t.held() > c.maxBytes {
			notes = append(notes, record.English.Sprintf("%s: holds %d bytes, the bound is %d", s.name, t.held(), c.maxBytes))
		}
	}
	slices.Sort(notes)
	return slices.Compact(notes), nil
}

func checkOne(c *testCase, t *target, op int, whole bool) error {
	i, version := c.file(op), 0
	if c.write {
		version = op + 1
		if err := t.write(t.names[i], contentOf(i, c.size, version)); err != nil {
			return err
		}
	}
	f, err := t.open(t.names[i])
	if err != nil {
		return err
	}
	defer f.Close()
	var got []byte
	if whole {
		got, err = io.ReadAll(f)
	} else {
		buf, n := make([]byte, c.size), 0
		n, err = f.Read(buf)
		got = buf[:n]
	}
	if err != nil && err != io.EOF {
		return err
	}
	if want := contentOf(i, c.size, version); !bytes.Equal(got, want) {
		return fmt.Errorf("%d bytes instead of %d", len(got), len(want))
	}
	return nil
}
