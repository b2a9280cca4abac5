package report

import (
	"context"
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
	"github.com/fileproc/fileproc/scripts/internal/record"
	"github.com/fileproc/fileproc/scripts/internal/tickets"
)

const root = "../../../.."

// Every part has sets, with --quick too, and every block is of a part and in its page.
func TestParts(t *testing.T) {
	var files []string
	for _, p := range parts {
		for _, r := range []*runner{{}, {quick: true}} {
			for _, set := range r.sized(p.sets) {
				layout, n, _ := strings.Cut(set, "_")
				parsed, err := tickets.ParseSet(layout, n, 1)
				assert.True(t, set == "" || err == nil, set)
				assert.True(t, !r.quick || parsed.Count <= 5000, set)
			}
			assert.NotEmpty(t, r.sized(p.sets), p.name)
		}
		files = append(files, p.name)
	}
	for _, target := range targets {
		assert.Contains(t, append(files, "cancel"), target.table, target.name)
	}
	for _, b := range blocks {
		assert.Contains(t, files, b.from, b.name)
		page, err := os.ReadFile(filepath.Join(root, b.page))
		require.NoError(t, err)
		_, err = fill(string(page), b.name, "")
		assert.NoError(t, err)
	}
	for _, run := range coldRuns() {
		matches := slices.DeleteFunc(cold.Names(), func(name string) bool { return !regexp.MustCompile(run.args[3]).MatchString(name) })
		assert.Len(t, matches, 1)
	}
}

// The targets of the pages are those of the table.
func TestTargetsOfThePages(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, performance))
	require.NoError(t, err)
	text := (&runner{raw: t.TempDir()}).targets()
	want := rowsOf(text, "case", "target")
	require.Len(t, want, len(targets))
	assert.Equal(t, want, rowsOf(string(page), "case", "target"))
	_, rest, _ := strings.Cut(string(page), "<!-- report: cold -->")
	table := rowsOf(rest, "case", "target")
	require.NotEmpty(t, table)
	for _, row := range table {
		assert.Equal(t, cold.Target(row[0]), row[1], row[0])
	}
	for _, target := range targets { // the names are those of the command cold
		if target.table == "cold" || target.table == "cancel" {
			assert.NotEmpty(t, cold.Target(target.who), target.who)
		}
	}
}

func value(table, set, who, unit string, v float64) record.Record {
	return record.Record{Table: table, Data: set, Who: who, Files: 1000, Values: map[string]float64{unit: v}}
}

func TestTargets(t *testing.T) {
	r := &runner{raw: t.TempDir()}
	keep := func(part string, records ...record.Record) { r.keep(part, records) }
	pair := func(table, set, name string, ours float64) {
		records := []record.Record{value(table, set, name+": ours", record.Wall, ours), value(table, set, name+": theirs", record.Wall, 100e3)}
		for _, rec := range records {
			rec.Values[record.CPU] = rec.Values[record.Wall]
		}
		keep(table, records...)
	}
	pair("floor", "flat_100k", whole, 85e3)
	pair("floor", "nested1_100k", whole, 86e3)
	pair("trees", "", "1 file / ReadDir + ReadFile", 50e3)
	pair("fuse", "slow", "default / Workers 2", 57e3)
	pair("backends", "flat_100k", "unix, "+whole, 140e3)
	keep("allocs", value("allocs", "flat_100k", "prefix: ours", "allocations", 0.0014))
	keep("peak", value("peak", "flat_1m", "Stream, warm: ours", "MiB", 20))
	for side, v := range map[string]float64{"fileproc": 2501, "usual loop": 100040} {
		keep("cold", value("cold", "flat_100k, ext4", side, "requests", v), value("cold", "flat_100k, the machine's disk", side, "s", v))
	}
	keep("cold", value("cancel", targets[slices.IndexFunc(targets, func(t target) bool { return t.table == "cancel" })].who, "fileproc", "ms", 90))
	text := r.targets()
	assert.Equal(t, 3, strings.Count(text, " **"), "figures that miss their target")
	for _, row := range []string{
		"| flat and nested, 100k and 1m, whole / C loop | wall 0.85, **0.86** | wall ≤ 0.85 |",
		"| the same without io_uring |  | wall ≤ 1.00 |",
		"| 1, 2, 3, 5, 10, 100 files / ReadDir + ReadFile | wall 0.5; CPU 0.5 | wall ≤ 1.00, CPU ≤ 1.00 |",
		"| cold, flat 100k | requests **2,501** | ≤ 2,500 requests |",
		"| cold, flat 100k / best C loop in listing order | wall 0.025 | wall ≤ 0.65 |",
		"| the same, xfs |  | ≤ 1.5 s, ≤ 2,300 requests |",
		"| cancel, cold, one head of 4 ms, worst | ms 90.0 | ≤ 100 ms |",
		"| FUSE, 1 ms an open, 1,000 files | ms 57.0 | ≤ 60 ms |",
		"| allocations a file, 100k, prefixes | allocations 0.0014 | ≤ 0.002 allocations |",
		"| peak memory, Stream, 1m files, warm | MiB **20.0** | ≤ 16 MiB |",
		"| the same, cold |  | ≤ 80 MiB |",
		"| unix backend, 100k, whole / C loop | wall 1.4; CPU 1.4 | reported |",
	} {
		assert.Contains(t, text, row+"\n")
	}
}

// rowsOf returns those columns of the first table of text whose first row has all of heads.
func rowsOf(text string, heads ...string) (rows [][]string) {
	var at []int
	for line := range strings.Lines(text + "\n") {
		line, isRow := strings.CutPrefix(strings.TrimSpace(line), "|")
		cells := strings.Split(strings.TrimSuffix(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case !isRow && at != nil:
			return rows
		case isRow && at == nil:
			for _, h := range heads {
				at = append(at, slices.Index(cells, h))
			}
			if slices.Contains(at, -1) {
				at = nil
			}
		case isRow && strings.Trim(line, "|-: ") != "":
			var row []string
			for _, i := range at {
				row = append(row, cells[i])
			}
			rows = append(rows, row)
		}
	}
	return rows
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

// planted returns a runner whose bench fails for the case programs and, after it has made the file stop, for others too.
func planted(t *testing.T) (r *runner, page string) {
	r = &runner{root: t.TempDir(), raw: t.TempDir(), bins: t.TempDir(), stamp: record.Record{Commit: "c0ffee", Date: "today", Machine: "m"}}
	r.out = r.root
	page = filepath.Join(r.root, benchmarks)
	require.NoError(t, os.MkdirAll(filepath.Dir(page), 0o755))
	text := "\n<!-- report: programs -->\nold\n<!-- end -->\n\n<!-- report: backends -->\nold\n<!-- end -->\n\n<!-- report: floor -->\nolder\n<!-- end -->\n"
	require.NoError(t, os.WriteFile(page, []byte(text), 0o644))
	for _, tag := range []string{"", "unix", "generic"} {
		plant(t, r, "bench"+tag, `[ $4 != programs ] || { echo planted >&2; exit 1; }
eval set=\${$#}; printf 'set: %s\nside: a: ours\nBenchmarkAny 1 7 ns/op\n' ${set##*tickets_}`)
	}
	old := parts
	t.Cleanup(func() { parts = old })
	parts = []part{{"programs", []string{"flat_1"}, runs("floor -case programs")},
		{"backends", []string{"flat_1", "flat_2"}, []run{{"unix", wholeCase}, {"generic", wholeCase}}}}
	return r, page
}

// A part that fails leaves its table and measurements, and others go on. Each says what it was measured on.
func TestRun(t *testing.T) {
	r, page := planted(t)
	require.NoError(t, os.WriteFile(r.file("floor"), []byte("no record\n"), 0o644))
	err := r.run(t.Context(), []string{"programs", "backends"}, blocks)
	assert.EqualError(t, err, "measuring programs, drawing floor, drawing targets: left as it was, for the reasons above")
	assert.Equal(t, 3, err.(commands.Status).ExitCode())
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	assert.Contains(t, string(text), "<!-- report: programs -->\nold\n")
	assert.Contains(t, string(text), "<!-- report: floor -->\nolder\n")
	assert.Contains(t, string(text), "| flat_2 | generic, a |  |  | 7 ns/file |", "drawn")
	assert.Contains(t, string(text), "\n\nc0ffee, today, m\n\n<!-- end -->")

	r.stamp.Commit, r.only = "decaf", []string{"flat_2"} // measures one set again
	require.NoError(t, os.Remove(r.file("floor")))
	assert.NoError(t, r.run(t.Context(), []string{"programs", "backends"}, blocks), "programs has no such set")
	var got []string
	for _, rec := range r.load("backends") {
		got = append(got, rec.Data+" "+rec.Who+" "+rec.Commit)
	}
	assert.Equal(t, []string{"flat_1 unix, a: ours c0ffee", "flat_1 generic, a: ours c0ffee",
		"flat_2 unix, a: ours decaf", "flat_2 generic, a: ours decaf"}, got)
	assert.Equal(t, "c0ffee, decaf, today, m", stampOf(r.load("backends")))
}

// What was measured before an interrupt is kept and drawn.
func TestInterrupt(t *testing.T) {
	r, page := planted(t)
	ctx, interrupt := context.WithCancel(t.Context())
	parts[1].runs[1].args = []string{"floor", "-case", "names"} // of flat_1; then comes the interrupt
	stop := filepath.Join(r.bins, "stop")
	plant(t, r, "benchgeneric", "echo >'"+stop+"'; exec sleep 60") // the path may have a space
	go func() {
		for ctx.Err() == nil {
			if _, err := os.Stat(stop); err == nil {
				interrupt()
			}
			runtime.Gosched()
		}
	}()
	assert.ErrorIs(t, r.run(ctx, []string{"backends"}, blocks), context.Canceled)
	require.Len(t, r.load("backends"), 1)
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	assert.Contains(t, string(text), "| flat_1 | unix, a |  |  | 7 ns/file |")
}

// plant plants a program.
func plant(t *testing.T, r *runner, name, script string) {
	if runtime.GOOS == "windows" {
		t.Skip("the programs are shell scripts here")
	}
	require.NoError(t, os.WriteFile(filepath.Join(r.bins, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
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
	r := &runner{root: root, out: t.TempDir(), raw: t.TempDir(), quick: true, stamp: record.Record{Machine: "go9, 7 cores"}}
	all := map[string][]record.Record{}
	add := func(part, table, set, who, unit string, values ...float64) {
		for _, v := range values {
			rec := value(table, set, who, unit, v)
			rec.Machine = r.stamp.Machine
			all[part] = append(all[part], rec)
		}
	}
	for _, set := range []string{"flat_1k", "nested1_1k"} {
		for _, who := range []string{"fileproc", "other"} {
			add("peers", "peers", set, who, record.Wall, 1e4, 2e4, 3e4)
		}
	}
	for _, c := range []string{"whole / C loop", "ReadDir / os.ReadDir"} {
		add("floor", "floor", "flat_1k", c+": ours", record.Wall, 1e4, 2e4, 3e4)
		add("floor", "floor", "flat_1k", c+": theirs", record.Wall, 2e4, 2e4, 2e4)
	}
	for _, unit := range []string{"requests", "s"} {
		add("cold", "cold", "flat_100k, ext4", "fileproc", unit, 1, 2, 3)
		add("cold", "cold", "flat_100k, ext4", "usual loop", unit, 20, 20, 20)
	}
	for _, c := range []string{"ReadHit", "WriteAround"} {
		add("cache", "cases", c, "fileproc", record.Wall, 1, 2, 3)
	}
	for part, records := range all {
		r.keep(part, records)
	}
	for _, b := range blocks {
		if all[b.from] != nil {
			for i := range b.pictures {
				b.pictures[i].name = strings.Replace(b.pictures[i].name, ".png", ".svg", 1)
			}
			r.draw(t.Context(), b)
		}
	}
	for name, want := range map[string]struct{ bars, lines int }{
		"dev/img/peers": {4, 0}, "dev/img/floor": {1, 1}, "img/cold": {2, 0}, "img/cache": {1, 0}, "img/cache-writes": {1, 0},
	} {
		text, err := os.ReadFile(filepath.Join(r.out, "docs", name+".svg"))
		require.NoError(t, err)
		svg := string(text)
		words := strings.Join(regexp.MustCompile(`>[^<]+</text>`).FindAllString(svg, -1), "\n")
		assert.Contains(t, words, "er is better)", name)
		assert.Contains(t, words, "hiskers", name)
		assert.Contains(t, words, "go9, 7 cores", name)
		assert.Len(t, whisker.FindAllString(svg, -1), 3*want.bars, "%s: each with two caps", name)
		assert.Equal(t, 2*want.lines, strings.Count(svg, "stroke-dasharray"), "%s: reference lines, in the plot and in the legend", name)
	}

	svg, err := os.ReadFile(filepath.Join(r.out, "docs/dev/img/floor.svg"))
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
	assert.NotContains(t, string(svg), "os.ReadDir", "it is not the floor")
}

// whisker matches the lines of whiskers on bars: from minimum to maximum, and the caps.
var whisker = regexp.MustCompile(`<path d="M([\d.]+),[\d.]+L([\d.]+),[\d.]+" style="fill:none;stroke:#333333" />`)
