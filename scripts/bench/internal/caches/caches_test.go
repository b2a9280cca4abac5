//go:build linux

package caches

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fileproc/fileproc/scripts/internal/record"
)

// TestEverySideIsMeasured: each benchmark runs, fileproc's sides are right in each, and the tables and plots show them.
func TestEverySideIsMeasured(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	benchmarks := "Cases|Eviction/case=1,000$"
	if !testing.Short() {
		benchmarks += "|Policies" // most of the time
	}
	records, err := measureAll(t.Context(), self, 1, benchmarks, "1x")
	require.NoError(t, err)
	r := record.Of(records, "cases")
	for _, c := range cases {
		for _, side := range caseSides[:2] { // fileproc's answers are right
			if c.files > 1000 {
				continue // it takes minutes, and the benchmark has done it
			}
			notes, err := check(&c, side)
			require.NoError(t, err)
			require.Empty(t, notes, c.name)
		}
		for _, side := range []string{ours, checked, bare} {
			s := r.Find(c.name, side)
			for _, unit := range []string{record.Wall, "mallocs/op", "reads/op"} {
				require.Len(t, s.Values[unit], 1, "%s: %s", c.name, unit)
			}
		}
	}
	require.InDelta(t, 0.51, r.Find("EvictionLRU, 200 × 1 KiB in 100 KiB", theirs).Median("reads/op"), 0.02)
	for table, lines := range map[string][]string{
		"cases": {"ReadHit, 1 × 1 KiB( \\| N){7}",
			"WriteAround, 1 KiB \\| N \\| N \\| N \\| – \\| N \\| N \\| –"},
		"eviction": {"1,000 \\| N \\| N"},
		"policies": {"fileproc, LRU \\| 64.6 \\| 80.8 \\| N", "corfs \\| 0.0 \\| 0.0 \\| N"},
	} {
		if table == "policies" && testing.Short() {
			continue
		}
		for _, line := range lines {
			require.Regexp(t, `(?m)^\| `+strings.ReplaceAll(line, "N", `[\d,.]+`)+` \|$`, Tables[table](record.Of(records, table)))
		}
	}
}

// TestRounds: each round adds a value to each side, and another side goes first.
func TestRounds(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	records, err := measureAll(t.Context(), self, 3, "Cases/ReadHit", "1x")
	require.NoError(t, err)
	r := record.Of(records, "cases")
	require.Len(t, r.Sets(), 1)
	for i, s := range r {
		require.Equal(t, sides[i], s.Who)
		require.Len(t, s.Values[record.Wall], 3)
	}
	require.Equal(t, theirs, records[2*len(sides)].Who, "the third round begins with the third side")
	_, err = measureAll(t.Context(), self, 1, "Cases/none", "1x")
	require.ErrorContains(t, err, "no such case")
}

// TestChecksFindWrongBytes: a side that returns another file's bytes is left out, and one that is wrong to the end is noted.
func TestChecksFindWrongBytes(t *testing.T) {
	c := cases[2]
	wrong := side{"wrong", func(c *testCase) (*target, error) {
		t, err := newBare(c)
		t.names[7] = t.names[8]
		return t, err
	}}
	_, err := check(&c, wrong)
	require.ErrorContains(t, err, "are wrong")
	i := slices.IndexFunc(cases, func(c testCase) bool { return strings.HasPrefix(c.name, "EvictionLRU") })
	notes, err := check(&cases[i], caseSides[2])
	require.NoError(t, err)
	require.Contains(t, strings.Join(notes, "\n"), "io.ReadAll are wrong")
	notes, err = check(&cases[i], caseSides[3])
	require.NoError(t, err)
	require.Contains(t, strings.Join(notes, "\n"), "the bound is")
}

// TestFilesDiffer: no two files of a case have the same content, or a mistake would not show.
func TestFilesDiffer(t *testing.T) {
	for _, c := range cases {
		seen := map[string]bool{}
		for i := range c.files {
			data := contentOf(i, c.size, 0)
			require.Len(t, data, c.size)
			seen[string(data)] = true
		}
		require.Len(t, seen, c.files, c.name)
	}
}
