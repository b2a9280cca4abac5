//go:build linux

package caches

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEverySideIsMeasured: each benchmark runs, fileproc's sides are right in each, and the tables and plots show them.
func TestEverySideIsMeasured(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	r, err := measureAll(t.Context(), self, 1, "Cases|Policies|Directory|Eviction/case=1,000$", "1x")
	require.NoError(t, err)
	for _, c := range cases {
		for _, side := range []string{ours, checked, bare} {
			s := r.find("Cases", c.name, side)
			require.NotNil(t, s, c.name)
			for _, unit := range []string{"sec/op", "mallocs/op", "reads/op"} {
				require.Len(t, s.values[unit], 1, "%s: %s", c.name, unit)
			}
		}
	}
	require.NotContains(t, r.notes, ": "+ours)
	require.Contains(t, r.notes, "EvictionLRU, 200 × 1 KiB in 100 KiB: cachefs: 303 of 600 reads with io.ReadAll are wrong: 512 bytes instead of 1024")
	var out strings.Builder
	r.print(&out)
	number := `[\d,.]+`
	for _, line := range []string{
		"ReadHit, 1 × 1 KiB( \\| N){7} \\| N, N, N, N, N",
		"WriteAround, 1 KiB \\| N \\| N \\| N \\| – \\| N \\| N \\| – \\| N, N, N, –, N",
		"EvictionLRU, 200 × 1 KiB in 100 KiB \\| 1.00 \\| 1.00 \\| 0.51 \\| 1.00",
		"1,000 \\| N \\| N",
		"fileproc, LRU \\| 64.6 \\| 80.8 \\| N",
		"corfs \\| 0.0 \\| 0.0 \\| N",
		"fileproc, each hit compared with the file \\| N \\| N",
	} {
		require.Regexp(t, `(?m)^\| `+strings.ReplaceAll(line, "N", number)+` \|$`, out.String())
	}
	dir := t.TempDir()
	require.NoError(t, r.plot(filepath.Join(dir, "cache.png")))
	for _, name := range []string{"cache.png", "cache-writes.png"} {
		require.FileExists(t, filepath.Join(dir, name))
	}
}

// TestRounds: each round adds a value to each side, and another side goes first.
func TestRounds(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	r, err := measureAll(t.Context(), self, 3, "Cases/ReadHit", "1x")
	require.NoError(t, err)
	require.Len(t, r.rows("Cases", sides, ns), 1)
	for i, s := range r.series {
		require.Equal(t, sides[i], s.side)
		require.Len(t, s.values["sec/op"], 3)
	}
	out, err := exec.Command(self, "-test.run", "^$", "-test.bench", "Cases/ReadHit", "-test.benchtime", "1x", "-round", "2").Output()
	require.NoError(t, err)
	require.Less(t, strings.Index(string(out), "side=cachefs"), strings.Index(string(out), "side=fileproc-"))
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
