package record

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRecords(t *testing.T) {
	records := []Record{
		{Table: "peers", Data: "flat_100k", Who: "WalkDir + ReadFile", Version: "go9", Files: 4, Values: map[string]float64{Wall: 2, CPU: 4}},
		{Table: "floor", Data: "1000 files, 1ms", Who: "whole / C loop" + Ours, Files: 2, Values: map[string]float64{Wall: 1.5}},
		{Table: "cold", Who: "fileproc-8", Version: "v1", Files: 1, Values: map[string]float64{"requests": 7, "s": 0.5, "MiB": 8.25}},
	}
	text := Text(records)
	assert.Contains(t, text, "set: flat_100k\nside: WalkDir + ReadFile\nversion: go9\nBenchmarkPeers 4 4 cpu-ns/op 2 ns/op\n")
	for i := range records {
		records[i].Commit, records[i].Date, records[i].Machine = "abc", "2026-01-01", "M, 2 cores"
	}
	got, err := Read("commit: abc\ndate: 2026-01-01\nmachine: M, 2 cores\n\n" + text)
	require.NoError(t, err)
	assert.Equal(t, records, got)
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

// Ratios are of values of one round. Their median is the middle one, or the mean of the middle two.
func TestPairs(t *testing.T) {
	r := Of([]Record{
		pass("floor", "flat_1k", "whole / C loop: ours", 1600), pass("floor", "flat_1k", "whole / C loop: theirs", 2000),
		pass("other", "flat_1k", "whole / C loop: ours", 9),
		pass("floor", "flat_1k", "whole / C loop: ours", 1400), pass("floor", "flat_1k", "whole / C loop: theirs", 1000),
		pass("floor", "flat_1k", "names / bare: ours", 1000),
		{Table: "floor", Data: "flat_1m", Who: "Stream: ours", Values: map[string]float64{"MiB": 8.25}},
	}, "floor")
	assert.Equal(t, `| set | ours / theirs | wall | CPU | ours |
|---|---|---|---|---|
| flat_1k | whole / C loop | 1.10 (0.80…1.40) | 1.10 (0.80…1.40) | 1,500 ns/file |
| flat_1k | names / bare |  |  | 1,000 ns/file |
| flat_1m | Stream |  |  | 8.25 MiB |
`, r.String())
}

func TestBySide(t *testing.T) {
	r := Of([]Record{pass("peers", "a", "fileproc", 2e6), pass("peers", "a", "other", 6e6), pass("peers", "b", "fileproc", 7e6),
		pass("peers", "a", "fileproc", 1e6), pass("peers", "a", "other", 2e6),
		pass("peers", "b", "fileproc", 1e6), pass("peers", "b", "fileproc", 2e6)}, "peers")
	assert.Equal(t, `|  | version | a, files/s | time | CPU | b, files/s | time | CPU |
|---|---|---|---|---|---|---|---|
| fileproc |  | 750 (500…1,000) | 1.00 | 1.00 | 500 (143…1,000) | 1.00 | 1.00 |
| other |  | 333 (167…500) | 2.50 (2.00…3.00) | 2.50 (2.00…3.00) |  |  |  |
`, r.String())
}
