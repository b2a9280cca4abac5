package report

import (
	"bytes"
	"context"
	"encoding/xml"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fileproc/fileproc/scripts/bench/internal/cold"
	"github.com/fileproc/fileproc/scripts/internal/commands"
	"github.com/fileproc/fileproc/scripts/internal/fail"
	"github.com/fileproc/fileproc/scripts/internal/record"
	"github.com/fileproc/fileproc/scripts/internal/tickets"
)

const root = "../../../.."

// Every set can be made, every block is of a part and in its page, and the run of a cold case is of this case alone.
func TestMeasurements(t *testing.T) {
	parts := []string{""}
	for _, m := range measurements {
		layout, n, _ := strings.Cut(m.set, "_")
		_, err := tickets.ParseSet(layout, n, 1)
		assert.True(t, m.set == "" || err == nil, m)
		parts = append(parts, m.part)
		if m.part == "cold" {
			assert.Len(t, slices.DeleteFunc(slices.Clone(cold.Cases), func(c cold.Case) bool { return !regexp.MustCompile(m.args[3]).MatchString(c.Name) }), 1)
		}
	}
	for _, target := range targets {
		assert.Contains(t, parts, target.part, target.name)
	}
	for _, b := range blocks {
		assert.Contains(t, parts, b.from, b.name)
		page, err := os.ReadFile(filepath.Join(root, b.page))
		require.NoError(t, err)
		assert.NoError(t, fail.Try(func() { fill(string(page), b.name, "") }))
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
		if target.part == "cold" {
			assert.NotEmpty(t, cold.Target(target.who), target.who)
		}
	}
}

func value(table, set, who, unit string, v float64) record.Record {
	return record.Record{Table: table, Data: set, Who: who, Files: 1000, Values: map[string]float64{unit: v}}
}

// keep keeps records as those of the first measurement of a part.
func keep(t *testing.T, r *runner, part string, records ...record.Record) {
	m := measurements[slices.IndexFunc(measurements, func(m measurement) bool { return m.part == part })]
	old, err := os.ReadFile(r.file(m))
	require.True(t, err == nil || os.IsNotExist(err), err)
	text := bytes.NewBuffer(old)
	require.NoError(t, record.Write(text, records...))
	require.NoError(t, os.WriteFile(r.file(m), text.Bytes(), 0o644))
}

func TestTargets(t *testing.T) {
	r := &runner{raw: t.TempDir()}
	pair := func(table, set, name string, ours float64) {
		records := []record.Record{value(table, set, name+": ours", record.Wall, ours), value(table, set, name+": theirs", record.Wall, 100e3)}
		for _, rec := range records {
			rec.Values[record.CPU] = rec.Values[record.Wall]
		}
		keep(t, r, table, records...)
	}
	const whole = "whole / C loop"
	pair("floor", "flat_100k", whole, 85e3)
	pair("floor", "nested1_100k", whole, 86e3)
	pair("trees", "", "1 file / ReadDir + ReadFile", 50e3)
	pair("fuse", "slow", "default / Workers 2", 57e3)
	pair("trees", "", "1,000 directories / C loop", 140e3)
	keep(t, r, "allocs", value("allocs", "flat_100k", "prefix: ours", "allocations", 0.0014))
	keep(t, r, "peak", value("peak", "flat_1m", "Stream, warm: ours", "MiB", 20))
	for side, v := range map[string]float64{"fileproc": 2501, "usual loop": 100040} {
		keep(t, r, "cold", value("cold", "flat_100k, ext4", side, "requests", v), value("cold", "flat_100k, the machine's disk", side, "s", v))
	}
	keep(t, r, "cold", value("cancel", targets[slices.IndexFunc(targets, func(t target) bool { return strings.HasPrefix(t.who, "cancel") })].who, "fileproc", "ms", 90))
	text := r.targets()
	assert.Equal(t, 3, strings.Count(text, " **"), "figures that miss their target")
	for _, row := range []string{
		"| whole / C loop: flat 100k, nested 100k, flat 1m, nested 1m | wall 0.85, **0.86** | wall ≤ 0.85 |",
		"| the same without io_uring |  | wall ≤ 1.00 |",
		"| 1, 2, 3, 5, 10, 100 files / ReadDir + ReadFile | wall 0.5; CPU 0.5 | wall ≤ 1.00, CPU ≤ 1.00 |",
		"| cold, flat 100k | requests **2,501** | ≤ 2,500 requests |",
		"| cold, flat 100k / best C loop in listing order | wall 0.025 | wall ≤ 0.65 |",
		"| cancel, cold, one head of 4 ms, worst | ms 90 | ≤ 100 ms |",
		"| FUSE, 1 ms an open, 1,000 files | ms 57 | ≤ 60 ms |",
		"| allocations a file: 100k files, the first 2 KiB of each | allocations 0.0014 | ≤ 0.002 allocations |",
		"| peak memory, Stream, 1m files, warm | MiB **20** | ≤ 16 MiB |",
		"| the same, cold |  | ≤ 80 MiB |",
		"| 1,000 directories of 1 and of 3 files, and a chain of 1,000 / C loop | wall 1.4; CPU 1.4 | reported |",
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
	got := fill(page, "x", "$1 new\n")
	assert.Equal(t, strings.Replace(page, "old", "\n$1 new\n", 1), got)
	assert.Equal(t, got, fill(got, "x", "$1 new\n"))
	for _, bad := range []string{"", page + page} {
		assert.Error(t, fail.Try(func() { fill(bad, "x", "") }))
	}
}

// planted returns a runner whose bench fails for the case programs, and does as the script says for others.
func planted(t *testing.T, script string) (r *runner, page string) {
	r = &runner{t.TempDir(), t.TempDir(), t.TempDir()}
	page = filepath.Join(r.root, benchmarks)
	require.NoError(t, os.MkdirAll(filepath.Dir(page), 0o755))
	text := "\n<!-- report: programs -->\nold\n<!-- end -->\n\n<!-- report: backends -->\nold\n<!-- end -->\n\n<!-- report: floor -->\nolder\n<!-- end -->\n"
	require.NoError(t, os.WriteFile(page, []byte(text), 0o644))
	for _, tag := range []string{"", "unix", "generic"} {
		plant(t, r, "bench"+tag, `[ $4 != programs ] || { echo planted >&2; exit 1; }
`+script+`
eval set=\${$#}; printf 'set: %s\nside: a: ours\nBenchmarkAny 1 7 ns/op\n' ${set##*tickets_}`)
	}
	old := measurements
	t.Cleanup(func() { measurements = old })
	whole := strings.Fields("floor -case whole")
	measurements = []measurement{{"programs", "flat_1", "", strings.Fields("floor -case programs")},
		{"backends", "flat_1", "unix", whole}, {"backends", "flat_1", "generic", whole}, {"backends", "flat_2", "unix", whole}}
	return r, page
}

// What fails leaves its table and measurements, and others go on. Each says what it was measured on.
func TestRun(t *testing.T) {
	r, page := planted(t, "")
	err := r.run(t.Context(), regexp.MustCompile(""))
	assert.EqualError(t, err, "programs flat_1 floor -case programs: left as it was, for the reasons above")
	assert.Equal(t, 3, err.(commands.Status).ExitCode())
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	assert.Contains(t, string(text), "<!-- report: programs -->\nold\n")
	assert.Contains(t, string(text), "<!-- report: floor -->\nolder\n")
	assert.Contains(t, string(text), "| flat_1 | generic, a |  |  | 7 ns/file |\n| flat_2 | unix, a |  |  | 7 ns/file |\n\nunknown, 2")

	before, err := os.ReadFile(r.file(measurements[1]))
	require.NoError(t, err)
	plant(t, r, "benchunix", "printf 'set: s\nside: b: ours\nBenchmarkAny 1 8 ns/op\n'")
	plant(t, r, "benchgeneric", "echo BenchmarkAny")
	err = r.run(t.Context(), regexp.MustCompile("flat_2|generic"))
	assert.EqualError(t, err, "backends flat_1 generic floor -case whole: left as it was, for the reasons above")
	after, err := os.ReadFile(r.file(measurements[1]))
	require.NoError(t, err)
	assert.Equal(t, before, after)
	var sides []string
	for _, rec := range r.load("backends") {
		sides = append(sides, rec.Who)
	}
	assert.Equal(t, []string{"unix, a: ours", "generic, a: ours", "unix, b: ours"}, sides)
}

// What was measured before an interrupt is kept and shown.
func TestInterrupt(t *testing.T) {
	r, page := planted(t, "")
	ctx, interrupt := context.WithCancel(t.Context())
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
	assert.ErrorIs(t, r.run(ctx, regexp.MustCompile("backends")), context.Canceled)
	require.Len(t, r.load("backends"), 1)
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	assert.Contains(t, string(text), "| flat_1 | unix, a |  |  | 7 ns/file |\n\n")
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
	for _, pattern := range []string{"docs/img/*"} {
		pictures, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		require.NotEmpty(t, pictures)
		for _, p := range pictures {
			assert.True(t, strings.Contains(text.String(), "img/"+filepath.Base(p)+")"), p)
		}
	}
}

// A picture says what was measured and which direction is better. A bar's length is its number.
func TestPictures(t *testing.T) {
	var records []record.Record
	for who, ns := range map[string]float64{"other": 4e3, "fileproc": 1e3} {
		records = append(records, value("peers", "flat_100k", who, record.Wall, ns))
	}
	title, bars := peerBars(record.Of(records, ""))
	assert.Contains(t, title, "longer is better")
	assert.Equal(t, []bar{{"fileproc", "%.0f", 1000}, {"other", "%.0f", 250}}, bars)

	records = nil
	for _, unit := range []string{"requests", "s"} {
		records = append(records, value("cold", "a < b", "fileproc", unit, 2), value("cold", "a < b", "usual loop", unit, 40),
			value("cancel", "none", "fileproc", "ms", 2))
	}
	title, bars = coldBars(record.Of(records, ""))
	assert.Contains(t, title, "shorter is better")
	assert.Equal(t, []bar{{"a < b: requests", "%.1f %%", 5}, {"a < b: time", "%.1f %%", 5}}, bars)

	var picture struct {
		Rect []struct {
			Width string `xml:"width,attr"`
		} `xml:"rect"`
		Text []string `xml:"text"`
	}
	require.NoError(t, xml.Unmarshal(svg(title, append(bars, bar{"all", "%.0f", 100})), &picture))
	assert.Equal(t, []string{title, "a < b: requests", "5.0 %", "a < b: time", "5.0 %", "all", "100"}, picture.Text)
	assert.Equal(t, []string{"14", "280"}, []string{picture.Rect[1].Width, picture.Rect[3].Width})
}
