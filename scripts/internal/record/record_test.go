package record

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/perf/benchfmt"
)

var samples = []Record{
	{Table: "peers", Data: "flat_100k", Who: "WalkDir + ReadFile", Version: "go9", Files: 4, Wall: 8, CPU: 16, Commit: "abc", Date: "2026-01-01", Machine: "M, 2 cores"},
	{Table: "peers", Data: "flat_100k", Who: "charlievieth/fastwalk", Text: "left out: it saw 1 file, 10 %"},
	{Table: "floor", Data: "1000 files, 1ms", Who: "whole / C loop" + Side + "ours", Files: 2, Wall: 3},
	{Table: "workers", Who: "fileproc-8", Version: "v1", Files: 1, Wall: 1, CPU: 1},
}

func TestRecords(t *testing.T) {
	var all, each bytes.Buffer
	require.NoError(t, Write(&all, samples...))
	for _, r := range samples { // as a command that writes while it measures
		require.NoError(t, Write(&each, r))
	}
	for _, text := range []string{all.String(), each.String()} {
		got, err := Read(strings.NewReader(text))
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
	assert.Equal(t, []string{"Floor", "1000 files, 1ms", "whole / C loop: ours"}, []string{got[2].Name.String(), got[2].GetConfig("set"), got[2].GetConfig("side")})
	assert.Equal(t, []string{"Workers", "", "fileproc-8"}, []string{got[3].Name.String(), got[3].GetConfig("set"), got[3].GetConfig("side")})
	for unit, want := range map[string]float64{"sec/op": 2e-9, "cpu-sec/op": 4e-9} {
		value, ok := got[0].Value(unit)
		assert.True(t, ok, unit)
		assert.InDelta(t, want, value, 1e-15, unit)
	}
	assert.Equal(t, []string{"go9", "abc", "2026-01-01", "M, 2 cores", ""},
		[]string{got[0].GetConfig("version"), got[0].GetConfig("commit"), got[0].GetConfig("date"), got[0].GetConfig("machine"), got[0].GetConfig("left-out")})
	assert.Equal(t, []string{"", "left out: it saw 1 file, 10 %"}, []string{got[1].GetConfig("version"), got[1].GetConfig("left-out")})
}

// Output that is not a measurement is an error.
func TestReadRefuses(t *testing.T) {
	for _, text := range []string{"warning: x\n", "left\n", "side: b\nBenchmarkPeers\n", "side: b\nBenchmarkPeers 1 2\n",
		"side: b\nBenchmarkPeers 1 2 B/op\n", "side: b\nBenchmarkPeers 1 2 ns/op\nleft", "{\"Table\":\"peers\"}\n"} {
		_, err := Read(strings.NewReader(text))
		assert.Error(t, err, text)
	}
}
