package record

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/perf/benchfmt"
)

var samples = []Record{
	{Table: "peers", Data: "flat_100k", Who: "WalkDir + ReadFile", Version: "go9", Files: 4, Values: map[string]float64{Wall: 2, CPU: 4},
		Commit: "abc", Date: "2026-01-01", Machine: "M, 2 cores"},
	{Table: "floor", Data: "1000 files, 1ms", Who: "whole / C loop" + Ours, Files: 2, Values: map[string]float64{Wall: 1.5}},
	{Table: "cold", Who: "fileproc-8", Version: "v1", Files: 1, Values: map[string]float64{"requests": 7, "s": 0.5, "MiB": 8.25}},
}

func TestRecords(t *testing.T) {
	var all, each bytes.Buffer
	require.NoError(t, Write(&all, samples...))
	for _, r := range samples { // as a command that writes while it measures
		require.NoError(t, Write(&each, r))
	}
	for _, text := range []string{all.String(), each.String()} {
		got, err := Read(text)
		require.NoError(t, err)
		assert.Equal(t, samples, got, text)
	}
}

// What benchstat reads with has the names, units and configuration lines.
func TestBenchfmtReadsRecords(t *testing.T) {
	var text bytes.Buffer
	require.NoError(t, Write(&text, samples...))
	in := benchfmt.NewReader(&text, "test")
	var got []*benchfmt.Result
	for in.Scan() {
		require.IsType(t, &benchfmt.Result{}, in.Result())
		got = append(got, in.Result().(*benchfmt.Result).Clone())
	}
	require.NoError(t, in.Err())
	require.Len(t, got, len(samples))
	assert.Equal(t, []string{"Peers", "flat_100k", "WalkDir + ReadFile"}, []string{got[0].Name.String(), got[0].GetConfig("set"), got[0].GetConfig("side")})
	assert.Equal(t, []string{"Floor", "1000 files, 1ms", "whole / C loop: ours"}, []string{got[1].Name.String(), got[1].GetConfig("set"), got[1].GetConfig("side")})
	assert.Equal(t, []string{"Cold", "", "fileproc-8"}, []string{got[2].Name.String(), got[2].GetConfig("set"), got[2].GetConfig("side")})
	for unit, want := range map[string]float64{"sec/op": 2e-9, "cpu-sec/op": 4e-9} {
		value, ok := got[0].Value(unit)
		assert.True(t, ok, unit)
		assert.InDelta(t, want, value, 1e-15, unit)
	}
	assert.Equal(t, []string{"go9", "abc", "2026-01-01", "M, 2 cores"},
		[]string{got[0].GetConfig("version"), got[0].GetConfig("commit"), got[0].GetConfig("date"), got[0].GetConfig("machine")})
	assert.Empty(t, got[1].GetConfig("version"))
}

// Output that is not a measurement is an error.
func TestReadRefuses(t *testing.T) {
	for _, text := range []string{"warning: x\n", "left\n", "side: b\nBenchmarkPeers\n", "side: b\nBenchmarkPeers 1 2\n",
		"side: b\nBenchmarkPeers 1 2 ns/op\nleft", "{\"Table\":\"peers\"}\n"} {
		_, err := Read(text)
		assert.Error(t, err, text)
	}
}

func pass(table, data, who string, wall float64) Record {
	return Record{Table: table, Data: data, Who: who, Files: 10, Values: map[string]float64{Wall: wall, CPU: 2 * wall}}
}

func TestPairs(t *testing.T) {
	r := Of([]Record{
		pass("floor", "flat_1k", "whole / C loop: ours", 1400), pass("floor", "flat_1k", "whole / C loop: theirs", 2000),
		pass("other", "flat_1k", "whole / C loop: ours", 9),
		pass("floor", "flat_1k", "whole / C loop: ours", 1600), pass("floor", "flat_1k", "whole / C loop: theirs", 2000),
		pass("floor", "flat_1k", "names / bare: ours", 1000),
	}, "floor")
	assert.Equal(t, "| set | ours / theirs | wall | CPU | ours |\n|---|---|---|---|---|\n"+
		"| flat_1k | whole / C loop | 0.75 (0.70…0.80) | 0.75 (0.70…0.80) | 1,500 ns/file |\n"+
		"| flat_1k | names / bare |  |  | 1,000 ns/file |\n", r.String())
	assert.Equal(t, []string{"flat_1k"}, r.Sets())
	peak := Of([]Record{{Table: "peak", Data: "flat_1m", Who: "Stream: ours", Values: map[string]float64{"MiB": 8.25}}}, "peak")
	assert.Contains(t, peak.String(), "| flat_1m | Stream |  |  | 8.25 MiB |\n")
}

func TestBySide(t *testing.T) {
	r := Of([]Record{pass("peers", "a", "fileproc", 1e6), pass("peers", "a", "other", 2e6), pass("peers", "b", "fileproc", 1e6),
		pass("peers", "a", "fileproc", 2e6), pass("peers", "a", "other", 6e6)}, "peers")
	assert.Equal(t, "|  | version | a, files/s | time | CPU | b, files/s | time | CPU |\n|---|---|---|---|---|---|---|---|\n"+
		"| fileproc |  | 750 (500…1,000) | 1 | 1 | 1,000 | 1 | 1 |\n"+
		"| other |  | 333 (167…500) | 2.50 (2.00…3.00) | 2.50 (2.00…3.00) |  |  |  |\n", r.String())
}

func TestSummarize(t *testing.T) {
	values := []float64{5, 1, 4, 2}
	assert.Equal(t, Spread{Median: 3, Min: 1, Max: 5}, Summarize(values))
	assert.Equal(t, []float64{5, 1, 4, 2}, values, "the argument was sorted in place")
	assert.Equal(t, Spread{Median: 2, Min: 1, Max: 9}, Summarize([]float64{9, 1, 2}))
	assert.Equal(t, Spread{Median: 7, Min: 7, Max: 7}, Summarize([]float64{7}))
}
