package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fileproc/fileproc/scripts/internal/measure"
	"github.com/fileproc/fileproc/scripts/internal/record"
)

func TestFloor(t *testing.T) {
	ratios := measure.Summarize([]float64{0.7, 0.65, 0.72})
	line := fmt.Sprintf("%-34s %8d  %-24s %-24s %7.0f ns %7.0f ns", "whole / C loop", 100_000, ratios, ratios, 1500.0, 2100.0)
	rec := func(text string) record.Record { return record.Record{Table: "floor", Data: "flat_100k", Text: text} }

	var d document
	require.NoError(t, d.floor(of([]record.Record{rec("backend linux"), rec(line)}, "floor")))
	assert.Contains(t, d.String(), "| flat_100k | whole / C loop | 0.700 (0.650 to 0.720) | 0.700 (0.650 to 0.720) | 1500 | 2100 | −600 |\n")
	assert.ErrorContains(t, d.floor(of([]record.Record{rec("something else")}, "floor")), "understood")
}

func TestSeries(t *testing.T) {
	r := of([]record.Record{
		{Table: "peers", Data: "flat_1k", Who: "a", Files: 1000, Wall: 2e6},
		{Table: "peers", Data: "flat_1k", Who: "b", Files: 1000, Wall: 6e6},
		{Table: "peers", Data: "flat_1k", Who: "c", Text: "left out: it saw 1 file"},
		{Table: "other", Data: "flat_1k", Who: "a", Files: 1000, Wall: 9e6},
		{Table: "peers", Data: "flat_1k", Who: "b", Files: 1000, Wall: 4e6},
		{Table: "peers", Data: "flat_1k", Who: "a", Files: 1000, Wall: 4e6},
	}, "peers")
	assert.Equal(t, []string{"flat_1k"}, r.sets())
	assert.Equal(t, []float64{2000, 4000}, r.find("flat_1k", "a").wall)
	assert.Equal(t, measure.Spread{Median: 2, Min: 1, Max: 3}, paired(r.find("flat_1k", "b").wall, r.find("flat_1k", "a").wall, ratio))
	assert.Len(t, r.leftOut, 1)
}

func TestSpread(t *testing.T) {
	assert.Equal(t, "1,200 (−30 to 1,000,000)", spread(measure.Spread{Median: 1200, Min: -30, Max: 1e6}, "%.0f"))
}

func TestCount(t *testing.T) {
	for set, want := range map[string]float64{"flat_1": 1, "nested1_5k": 5000, "flat_1m": 1e6} {
		got, err := count(set)
		assert.NoError(t, err)
		assert.Equal(t, want, got, set)
	}
}
