package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fileproc/fileproc/scripts/internal/measure"
	"github.com/fileproc/fileproc/scripts/internal/record"
)

func TestFloor(t *testing.T) {
	pass := func(who string, wall float64) record.Record {
		return record.Record{Table: "floor", Data: "flat_1k", Who: who, Files: 1000, Wall: wall, CPU: 2 * wall}
	}
	records := []record.Record{
		pass("whole / C loop: ours", 1.4e6), pass("whole / C loop: theirs", 2e6),
		pass("whole / C loop: ours", 1.6e6), pass("whole / C loop: theirs", 2e6),
		pass("names / bare: ours", 1e6),
	}
	var d document
	require.NoError(t, d.floor(of(records, "floor")))
	assert.Contains(t, d.String(), "| flat_1k | whole / C loop | 0.75 (0.70 to 0.80) | 0.75 (0.70 to 0.80) | 1,500 | 2,000 | −500 (−600 to −400) | −1,000 (−1,200 to −800) |\n")
	assert.Contains(t, d.String(), "| flat_1k | names / bare |  |  | 1,000 (1,000 to 1,000) | no C compiler |  |  |\n")
	assert.ErrorContains(t, d.floor(of(records[1:], "floor")), "1 passes of ours, 2 of theirs")
}

// What a command prints and is not a measurement is never dropped.
func TestDecode(t *testing.T) {
	got, err := decode("{\"Table\":\"peers\"}\n")
	require.NoError(t, err)
	assert.Equal(t, []record.Record{{Table: "peers"}}, got)
	for _, text := range []string{"warning: x\n", "{\"Table\":\"peers\"", "{\"Tabel\":\"peers\"}\n", "{}\n"} {
		_, err = decode(text)
		assert.Error(t, err, text)
	}
}

// Every plan names what the commands know, and every table has one.
func TestPlan(t *testing.T) {
	for _, m := range []measurer{{}, {quick: true}} {
		for _, table := range tableNames {
			p := m.plan(table)
			assert.NotEmpty(t, p.sets, table)
			assert.Positive(t, p.rounds, table)
		}
	}
}

// A report can be written from some of the tables, and its plots from few values.
func TestWrite(t *testing.T) {
	var records []record.Record
	add := func(table, set string, who ...string) {
		for i, w := range who {
			records = append(records, record.Record{Table: table, Data: set, Who: w, Files: 10, Wall: float64(1e4 + i), CPU: 1e4})
		}
	}
	add("peers", "flat_1k", "fileproc", "other")
	add("backends", "flat_1k", builds...)
	add("readdir", "proc", "fileproc.ReadDir", "os.ReadDir", "fileproc.ReadDir + Info", "os.ReadDir + Info", "Readdir")
	add("floor", "flat_1k", "whole / C loop: ours")
	add("bare", "flat_1k", "Go loop / C loop: ours", "Go loop / C loop: theirs")
	add("warm", "flat_1k", "fileproc", "other")
	records = append(records, record.Record{Table: "fio", Data: "flat_1k", Text: "left out: fio is not installed"},
		record.Record{Table: "cold", Text: "left out: measuring with cold caches takes Linux and root"})
	out := t.TempDir()
	require.NoError(t, write(out, records))
	text, err := os.ReadFile(filepath.Join(out, "benchmarks.md"))
	require.NoError(t, err)
	assert.Contains(t, string(text), "## fio\n\nflat_1k: left out: fio is not installed.")
	assert.Contains(t, string(text), "\nleft out: measuring with cold caches")
	for _, link := range regexp.MustCompile(`\((img/.*)\)`).FindAllStringSubmatch(string(text), -1) {
		assert.FileExists(t, filepath.Join(out, link[1]))
	}
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
