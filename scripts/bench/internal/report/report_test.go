package report

import (
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
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
	require.NoError(t, d.floor(resultsOf(records, "floor")))
	assert.Contains(t, d.String(), "| flat_1k | whole / C loop | 0.75 (0.70…0.80) | 0.75 (0.70…0.80) | 1,500 |\n")
	assert.Contains(t, d.String(), "| flat_1k | names / bare | no C compiler |  | 1,000 (1,000…1,000) |\n")
	assert.ErrorContains(t, d.floor(resultsOf(records[1:], "floor")), "1 passes of ours, 2 of theirs")
}

// Output that is not a measurement is an error.
func TestDecode(t *testing.T) {
	got, err := decode("{\"Table\":\"peers\"}\n")
	require.NoError(t, err)
	assert.Equal(t, []record.Record{{Table: "peers"}}, got)
	for _, text := range []string{"warning: x\n", "{\"Table\":\"peers\"", "{\"Tabel\":\"peers\"}\n", "{}\n"} {
		_, err = decode(text)
		assert.Error(t, err, text)
	}
}

// Every table has a plan with sets and rounds.
func TestPlan(t *testing.T) {
	for _, m := range []measurer{{}, {quick: true}} {
		for _, table := range tableNames {
			p := m.plan(table)
			assert.NotEmpty(t, p.sets, table)
			assert.Positive(t, p.rounds, table)
		}
	}
}

// The builds are separate processes, and a different one goes first in each round.
func TestBackendsTakeTurns(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the programs are shell scripts here")
	}
	m := measurer{bins: t.TempDir()}
	for _, program := range []string{"peers", "peers-nouring", "peers-unix", "peers-generic"} {
		script := "#!/bin/sh\necho '{\"Table\":\"backends\",\"Who\":\"'$7'\"}'\n"
		require.NoError(t, os.WriteFile(filepath.Join(m.bins, program), []byte(script), 0o755))
	}
	records, err := m.measureSet("backends", "flat_1k", 3, nil)
	require.NoError(t, err)
	var who []string
	for _, r := range records {
		who = append(who, r.Who)
	}
	assert.Equal(t, []string{"linux", "nouring", "unix", "generic", "nouring", "unix", "generic", "linux", "unix", "generic", "linux", "nouring"}, who)
}

// A report can be written from some of the tables, and its plots from a few values.
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

// Each plot by itself says what was measured, which direction is better, and the range.
func TestPlots(t *testing.T) {
	records := []record.Record{{Table: "machine", Who: "Date", Text: "2026-01-01"}, {Table: "machine", Who: "Go", Text: "go9"}, {Table: "machine", Who: "Cores", Text: "7"}}
	add := func(table, set string, who ...string) { // medians of 20 µs a file, between 10 and 30
		for round := range 3 {
			for _, w := range who {
				records = append(records, record.Record{Table: table, Data: set, Who: w, Files: 10, Wall: float64(1+round) * 1e5})
			}
		}
	}
	steady := func(table, set string, who ...string) { // 20 µs
		for range 3 {
			for _, w := range who {
				records = append(records, record.Record{Table: table, Data: set, Who: w, Files: 10, Wall: 2e5})
			}
		}
	}
	add("peers", "flat_1k", "fileproc", "other")
	add("peers", "nested1_1k", "fileproc", "other")
	add("backends", "flat_1k", builds...)
	for _, c := range []string{"whole / C loop", "ReadDir / os.ReadDir"} {
		add("floor", "flat_1k", c+": ours")
		steady("floor", "flat_1k", c+": theirs")
	}
	for _, c := range []string{"Go loop", "Go loop with io_uring, 1 deep", "Go loop with io_uring, 2 deep"} {
		add("bare", "flat_1k", c+" / C loop: ours")
		steady("bare", "flat_1k", c+" / C loop: theirs")
	}
	for _, cache := range []string{"cold", "warm"} {
		steady(cache, "flat_1k", "fileproc")
		add(cache, "flat_1k", "other")
	}
	add("sizes", "flat_1k", "fileproc", "ReadDir + ReadFile", "charlievieth/fastwalk")
	add("workers", "flat_1k", "fileproc/1", "ReadDir + goroutine pool/1")
	out := t.TempDir()
	require.NoError(t, write(out, records))

	for name, want := range map[string]struct{ bars, lines int }{
		"peers": {4, 0}, "backends": {4, 0}, "floor": {1, 1}, "warm": {2, 1}, "bare": {0, 2}, "sizes": {}, "workers": {},
	} {
		text, err := os.ReadFile(filepath.Join(out, "img", name+".svg"))
		require.NoError(t, err)
		svg := string(text)
		words := strings.Join(regexp.MustCompile(`>[^<]+</text>`).FindAllString(svg, -1), "\n")
		assert.Contains(t, words, "er is better)", name)
		assert.Contains(t, words, "; whiskers: minimum to maximum of 3 interleaved rounds.", name)
		assert.Contains(t, words, "Files of about 400 bytes, caches warm", name)
		assert.Contains(t, words, "go9, 7 cores", name)
		assert.Equal(t, name == "peers", strings.Contains(words, "nested1: one for each month"), name)
		assert.Len(t, whisker.FindAllString(svg, -1), 3*want.bars, "%s: each with two caps", name)
		assert.Equal(t, 2*want.lines, strings.Count(svg, "stroke-dasharray"), "%s: reference lines, in the plot and in the legend", name)
	}

	svg, err := os.ReadFile(filepath.Join(out, "img", "floor.svg"))
	require.NoError(t, err)
	at := func(re *regexp.Regexp) (x []float64) {
		match := re.FindStringSubmatch(string(svg))
		require.NotNil(t, match, re)
		for _, text := range match[1:] {
			v, err := strconv.ParseFloat(text, 64)
			require.NoError(t, err)
			x = append(x, v)
		}
		return x
	}
	bar := at(regexp.MustCompile(`<path d="M([\d.]+),[\d.]+L[\d.]+,[\d.]+L([\d.]+),[^"]*" style="fill:#0072B2"`))
	zero, one := bar[0], bar[1] // the median
	half := (one - zero) / 2
	assert.InDeltaSlice(t, []float64{one - half, one + half}, at(whisker), 0.1)
	line := at(regexp.MustCompile(`M([\d.]+),[\d.]+L([\d.]+),[\d.]+" style="[^"]*stroke-dasharray`))
	assert.InDeltaSlice(t, []float64{one, one}, line, 0.1, "the line at 1 is vertical")
	assert.False(t, strings.Contains(string(svg), "os.ReadDir"), "os.ReadDir is not the floor")

	svg, err = os.ReadFile(filepath.Join(out, "img", "bare.svg"))
	require.NoError(t, err)
	assert.Len(t, regexp.MustCompile("fill:#E[56]9[EF]00;fill-opacity").FindAll(svg, -1), 1, "the range of the loop without a ring")
}

// whisker matches the lines of whiskers on bars: from minimum to maximum, and the caps.
var whisker = regexp.MustCompile(`<path d="M([\d.]+),[\d.]+L([\d.]+),[\d.]+" style="fill:none;stroke:#333333" />`)

func TestSeries(t *testing.T) {
	r := resultsOf([]record.Record{
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
	assert.Equal(t, "1,200 (−30…1,000,000)", spread(measure.Spread{Median: 1200, Min: -30, Max: 1e6}, "%.0f"))
}

func TestCount(t *testing.T) {
	for set, want := range map[string]float64{"flat_1": 1, "nested1_5k": 5000, "flat_1m": 1e6} {
		got, err := count(set)
		assert.NoError(t, err)
		assert.Equal(t, want, got, set)
	}
}

func TestReadCold(t *testing.T) {
	got := readCold("| case | fileproc: requests | time |\n| --- | --- | --- |\n" +
		"| flat, ext4 | 23 | 2.23 s (0.06) | 1000 | 34.36 s (1.00) | 23 | 2.20 s (0.06) | ≤ 6 s |\n| xfs | not run: no mkfs.xfs | | |\n")
	assert.Equal(t, []coldCase{{"flat, ext4", 2.3, 6}}, got)
}
