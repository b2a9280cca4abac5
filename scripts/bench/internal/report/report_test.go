package report

import (
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fileproc/fileproc/scripts/bench/internal/cold"
	"github.com/fileproc/fileproc/scripts/internal/commands"
	"github.com/fileproc/fileproc/scripts/internal/fail"
	"github.com/fileproc/fileproc/scripts/internal/measure"
	"github.com/fileproc/fileproc/scripts/internal/record"
	"github.com/fileproc/fileproc/scripts/internal/tickets"
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
	d.pairs(resultsOf(records, "floor"))
	assert.Contains(t, d.String(), "| flat_1k | whole / C loop | 0.75 (0.70…0.80) | 0.75 (0.70…0.80) | 1,500 |\n")
	assert.Contains(t, d.String(), "| flat_1k | names / bare | no C compiler |  | 1,000 (1,000…1,000) |\n")
	assert.ErrorContains(t, fail.Try(func() { d.pairs(resultsOf(records[1:], "floor")) }), "1 passes of ours, 2 of theirs")
}

// Every part has sets, with --quick too, and every block is of a part and in its page.
func TestParts(t *testing.T) {
	var files []string
	for _, p := range parts {
		for _, r := range []*runner{{}, {quick: true}} {
			for _, set := range r.sized(p.sets) {
				layout, n, _ := strings.Cut(set, "_")
				parsed, err := tickets.ParseSet(layout, n, 1)
				assert.True(t, set == "proc" || set == "" || err == nil, set)
				assert.True(t, !r.quick || parsed.Count <= 5000, set)
			}
			assert.NotEmpty(t, r.sized(p.sets), p.name)
		}
		files = append(files, p.name)
	}
	for _, target := range targets {
		assert.Contains(t, append(files, ""), target.table, target.name)
	}
	for _, b := range blocks {
		assert.Contains(t, files, b.from, b.name)
		page, err := os.ReadFile(filepath.Join(root, b.page))
		require.NoError(t, err)
		_, err = fill(string(page), b.name, "")
		assert.NoError(t, err)
	}
}

const root = "../../../.."

// The targets of the pages are those of the table.
func TestTargetsOfThePages(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, performance))
	require.NoError(t, err)
	var d document
	d.targets(&runner{raw: t.TempDir()})
	want, got := tableOf(d.String(), "reached"), tableOf(string(page), "reached")
	require.Len(t, want, len(targets)+1)
	require.Len(t, got, len(want), "rows of the page")
	for i := range want {
		assert.Equal(t, []string{want[i][0], want[i][2]}, []string{got[i][0], got[i][2]})
	}
	table := tableOf(string(page), "fileproc: requests")
	require.NotEmpty(t, table)
	for _, row := range table[1:] {
		assert.Equal(t, cold.Target(row[0]), row[len(row)-1], row[0])
	}
	for _, target := range targets { // the names are those of the command cold
		if target.table == "cold" {
			assert.NotEmpty(t, cold.Target(target.who), target.who)
		}
	}
}

const coldText = "at, date\n\n| case | fileproc: requests | time, s | usual loop: requests | time, s | in the disk's order: requests | time, s | target |\n" +
	"| --- | --- | --- | --- | --- | --- | --- | --- |\n" +
	"| flat_100k, ext4 | 2,501 | 2.23 (0.06) | 100,040 | 34.36 | 23 | 2.20 | ≤ 2,500 requests |\n" +
	"| go, xfs, 3,000 requests/s | not run: no mkfs.xfs | | | | | | ≤ 1.5 s, ≤ 2,300 requests |\n\n" +
	"| case | fileproc: whole run, ms | p95 of 20 cancels, ms | worst, ms | target |\n| --- | --- | --- | --- | --- |\n" +
	"| cancel, 60 directories of 300 files, ext4, one head, 4ms a seek | 2000 | 80 | 90 | x |\n"

func TestTargets(t *testing.T) {
	pair := func(table, set, who string, ours float64) []record.Record {
		return []record.Record{{Table: table, Data: set, Who: who + ": ours", Files: 1000, Wall: ours, CPU: ours},
			{Table: table, Data: set, Who: who + ": theirs", Files: 1000, Wall: 100e6, CPU: 100e6}}
	}
	r := &runner{raw: t.TempDir()}
	keep := func(name, text string) { require.NoError(t, os.WriteFile(r.file(name), []byte(text), 0o644)) }
	for _, records := range [][]record.Record{
		slices.Concat(pair("floor", "flat_100k", "whole / C loop", 85e6), pair("floor", "nested1_100k", "whole / C loop", 86e6)),
		pair("small", "", "1 files / ReadDir + ReadFile", 50e6), pair("fuse", "slow", "default / Workers 2", 57e6), pair("unix", "flat_100k", whole, 140e6),
	} {
		var text strings.Builder
		require.NoError(t, record.Write(&text, records...))
		keep(records[0].Table, text.String())
	}
	keep("allocs", "stamp\n\n0.0014 allocations a file, 100000 files, prefix\n")
	keep("peak", "stamp\n\n20480 kB at most, 1000000 files, Stream\n")
	keep("cold", coldText)
	var d document
	assert.Equal(t, 3, d.targets(r))
	for _, row := range []string{
		"| flat and nested, 100k and 1m, whole / C loop | wall 0.85, **0.86** | wall ≤ 0.85 |",
		"| the same without io_uring |  | wall ≤ 1.00 |",
		"| 1, 2, 3, 5, 10, 100 files / ReadDir + ReadFile | wall 0.5; CPU 0.5 | wall ≤ 1.00, CPU ≤ 1.00 |",
		"| cold, flat 100k | requests **2,501** | ≤ 2,500 requests |",
		"| the same, xfs |  | ≤ 1.5 s, ≤ 2,300 requests |",
		"| cancel, cold, one head of 4 ms, worst | ms 90 | ≤ 100 ms |",
		"| FUSE, 1 ms an open, 1,000 files | ms 57 | ≤ 60 ms |",
		"| allocations a file, 100k, prefixes | allocations 0.0014 | ≤ 0.002 allocations |",
		"| peak memory, Stream, 1m files, warm | MiB **20** | ≤ 16 MiB |",
		"| the same, cold |  | ≤ 80 MiB |",
		"| unix backend, flat 100k, whole / C loop | wall 1.4; CPU 1.4 | reported |",
	} {
		assert.Contains(t, d.String(), row+"\n")
	}
}

func TestDrawCold(t *testing.T) {
	r, d := &runner{out: t.TempDir()}, &document{}
	require.NoError(t, os.MkdirAll(filepath.Join(r.out, "docs/img"), 0o755))
	r.drawCold(t.Context(), d, coldText)
	assert.Contains(t, d.String(), "| flat_100k, ext4 | 2,501 | 2.23 (0.06) | 100,040 | 34.36 | 23 | 2.20 | ≤ 2,500 requests |\n"+
		"| go, xfs, 3,000 requests/s | not run: no mkfs.xfs |  |  |  |  |  | ≤ 1.5 s, ≤ 2,300 requests |\n")
	assert.FileExists(t, filepath.Join(r.out, "docs/img/cold.png"))
	assert.Error(t, fail.Try(func() { r.drawCold(t.Context(), &document{}, "no table") }))
}

// The pictures are below the table, whose rows are of both stores.
func TestDrawLoad(t *testing.T) {
	r, dir := &runner{bins: t.TempDir()}, t.TempDir()
	plant(t, r, "bench_load.sh", "touch $4\ncat <<E\n| operation | through | count | ops/s | x | med | p(95) | p(99) |\n| --- |\n"+
		"| create | os | 1 | 2 | 3 | 4 | 5 | 6 |\n| read | os | 1 | 2 | 3 | 4 | 5 | 6 |\n\n"+
		"| operation | VUs | med | p(95) |\n| --- |\n| read | all | 1.1 | 1.2 |\n| read | 25 | 2 | 2 |\nE")
	t.Chdir(r.bins)
	d := &document{dir: dir}
	r.drawLoad(t.Context(), d, "")
	assert.Equal(t, "| operation | through | count | ops/s | med | p(95) | p(99) |\n|---|---|---|---|---|---|---|\n"+
		"| files, read | os | 1 | 2 | 4 | 5 | 6 |\n| S3, read | os | 1 | 2 | 4 | 5 | 6 |\n\n"+
		"!["+loads[0].alt+"](img/load.svg)\n\n!["+loads[1].alt+"](img/load-s3.svg)\n\np(95) against the other side: files, read 1.2; S3, read 1.2.\n", d.String())
}

func TestFill(t *testing.T) {
	page := "a\n<!-- report: x -->\nold\n<!-- end -->\nb\n<!-- report: y -->\n\n<!-- end -->\n"
	got, err := fill(page, "x", "$1 new\n")
	require.NoError(t, err)
	assert.Equal(t, strings.Replace(page, "old", "\n$1 new\n", 1), got)
	again, err := fill(got, "x", "$1 new\n")
	require.NoError(t, err)
	assert.Equal(t, got, again)
	for _, bad := range []string{"", page + page} {
		_, err = fill(bad, "x", "")
		assert.Error(t, err)
	}
}

// A part that fails leaves its table and measurements, and others go on. Each says what it was measured on.
func TestRun(t *testing.T) {
	r := &runner{root: t.TempDir(), raw: t.TempDir(), bins: t.TempDir(), rounds: 1, stamp: record.Record{Commit: "c0ffee", Date: "today", Machine: "m"}}
	r.out = r.root
	write := func(name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
	}
	page := filepath.Join(r.root, benchmarks)
	write(page, "\n<!-- report: fio -->\nold\n<!-- end -->\n\n<!-- report: ablation -->\nold\n<!-- end -->\n\n<!-- report: readdir -->\nolder\n<!-- end -->\n")
	write(r.file("readdir"), "no record\n")
	defer func(old []part) { parts = old }(parts)
	plant(t, r, "linux", `[ $3 = ablation ] || { echo planted >&2; exit 1; }; eval set=\${$#}; printf 'set: %s\nside: a\nBenchmarkAblation 1 7 ns/op\n' ${set##*tickets_}`)
	parts = []part{{name: "fio", sets: []string{"flat_1"}}, {name: "ablation", sets: []string{"flat_1", "flat_2"}}}
	err := r.run(t.Context(), []string{"fio", "ablation"}, blocks)
	assert.EqualError(t, err, "measuring fio, drawing readdir: left as it was, for the reasons above")
	assert.Equal(t, 3, err.(commands.Status).ExitCode())
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	assert.Contains(t, string(text), "<!-- report: fio -->\nold\n")
	assert.Contains(t, string(text), "<!-- report: readdir -->\nolder\n")
	assert.Contains(t, string(text), "| a | 7 (7…7) |", "drawn")
	assert.Contains(t, string(text), "\n\nc0ffee, today, m\n\n<!-- end -->")

	r.stamp.Commit, r.only = "decaf", []string{"flat_2"} // measures one set again
	assert.EqualError(t, r.run(t.Context(), []string{"fio", "ablation"}, blocks), "drawing readdir: left as it was, for the reasons above", "fio has no such set")
	records := r.load("ablation")
	require.Len(t, records, 2)
	assert.Equal(t, []string{"flat_1 c0ffee", "flat_2 decaf"}, []string{records[0].Data + " " + records[0].Commit, records[1].Data + " " + records[1].Commit})
	assert.Equal(t, "c0ffee, today, m; decaf, today, m", stampOf(records))
}

// plant plants a build of the command bench.
func plant(t *testing.T, r *runner, build, script string) {
	if runtime.GOOS == "windows" {
		t.Skip("the programs are shell scripts here")
	}
	require.NoError(t, os.WriteFile(filepath.Join(r.bins, build), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
}

// The builds are separate processes, and a different one goes first in each round.
func TestBackendsTakeTurns(t *testing.T) {
	r := &runner{bins: t.TempDir(), rounds: 3}
	for _, build := range builds {
		plant(t, r, build, "echo set: a; echo side: $5; echo BenchmarkPeers 1 1 ns/op")
	}
	records := r.measureSet(t.Context(), part{name: "backends"}, "flat_1")
	var who []string
	for _, r := range records {
		assert.Equal(t, "backends", r.Table)
		who = append(who, r.Who)
	}
	assert.Equal(t, []string{"linux", "nouring", "unix", "generic", "nouring", "unix", "generic", "linux", "unix", "generic", "linux", "nouring"}, who)
}

// Every picture below docs is in a page.
func TestPicturesAreShown(t *testing.T) {
	var text strings.Builder
	require.NoError(t, filepath.WalkDir(root, func(name string, e os.DirEntry, err error) error {
		if err == nil && e.IsDir() && strings.HasPrefix(e.Name(), ".") && name != root {
			return filepath.SkipDir
		}
		if err == nil && filepath.Ext(name) == ".md" {
			page, errRead := os.ReadFile(name)
			text.Write(page)
			err = errRead
		}
		return err
	}))
	for _, pattern := range []string{"docs/img/*", "docs/dev/img/*"} {
		pictures, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		require.NotEmpty(t, pictures)
		for _, p := range pictures {
			assert.Contains(t, text.String(), "img/"+filepath.Base(p)+")")
		}
	}
}

// Each plot by itself says what was measured, which direction is better, and the range.
func TestPlots(t *testing.T) {
	var records []record.Record
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
	add("sizes", "flat_1k", "fileproc", "ReadDir + ReadFile", "charlievieth/fastwalk")
	add("workers", "flat_1k", "fileproc/1", "ReadDir + goroutine pool/1")
	out := t.TempDir()
	for i := range records {
		records[i].Machine = "go9, 7 cores"
	}
	for _, b := range blocks {
		if _, ok := pictures[b.name]; ok {
			r := resultsOf(records, b.name)
			(&document{dir: out}).records(b, r)
		}
	}

	for name, want := range map[string]struct{ bars, lines int }{
		"peers": {4, 0}, "backends": {4, 0}, "floor": {1, 1}, "bare": {3, 1}, "sizes": {3, 0}, "workers": {2, 0},
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
	label := at(regexp.MustCompile(`<text x="([\d.]+)"[^>]*>1\.00</text>`))
	assert.Greater(t, label[0], max(one, at(whisker)[1]), "no line crosses the number")
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
