//go:build linux

package caches

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestEverySideIsMeasured: each case runs, fileproc's sides are right in each, and the plot is drawn.
func TestEverySideIsMeasured(t *testing.T) {
	var results []*result
	for i := range cases {
		c := cases[i]
		if c.files > 1000 {
			c.order = c.order[:5000]
		}
		r, err := measureCase(&c, sides, 2, 100*time.Microsecond)
		require.NoError(t, err, c.name)
		for _, side := range []string{ours, oursChecked, bare} {
			require.NotNil(t, r.find(side), c.name)
		}
		for _, note := range r.notes {
			require.False(t, strings.HasPrefix(note, ours), note)
		}
		results = append(results, r)
	}
	printTable(results)
	require.NoError(t, plotResults(results, filepath.Join(t.TempDir(), "cache")))
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
	notes, err := check(&cases[i], sides[2])
	require.NoError(t, err)
	require.Contains(t, strings.Join(notes, "\n"), "io.ReadAll are wrong")
	notes, err = check(&cases[i], sides[3])
	require.NoError(t, err)
	require.Contains(t, strings.Join(notes, "\n"), "the bound is")
}

// TestFilesDiffer: no two files of a case have the same content, or a mistake would not show.
func TestFilesDiffer(t *testing.T) {
	for _, c := range cases {
		seen := map[string]bool{}
		for _, data := range c.content() {
			require.Len(t, data, c.size)
			seen[string(data)] = true
		}
		require.Len(t, seen, c.files, c.name)
	}
}
