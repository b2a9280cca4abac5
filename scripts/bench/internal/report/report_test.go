package report

import (
	"context"
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
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

func read(t *testing.T, name ...string) string {
	text, err := os.ReadFile(filepath.Join(name...))
	require.NoError(t, err)
	return string(text)
}

// Every set can be made, every block is of a part and in its page, a cold run is of one case, and README shows every picture.
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
	for _, b := range blocks {
		assert.Contains(t, parts, b.from, b.name)
		page := read(t, root, b.file)
		assert.NoError(t, fail.Try(func() { assert.True(t, b.name == "" || fill(page, b.name, "") != "") }))
	}
	pictures, err := os.ReadDir(filepath.Join(root, "docs/img"))
	require.NoError(t, err)
	require.NotEmpty(t, pictures)
	for _, p := range pictures {
		assert.Contains(t, read(t, root, "README.md"), "(docs/img/"+p.Name()+")")
	}
}

// The targets of the page are those of the tables.
func TestTargetsOfThePage(t *testing.T) {
	_, text, _ := strings.Cut(read(t, root, performance), "<!-- report: targets -->\n\n")
	text, rest, _ := strings.Cut(text, "<!-- report: cold -->\n\n")
	text, _, _ = strings.Cut(text, "\n\n")
	figures := regexp.MustCompile(`(?m)^(\| .+? \|).*(\| .+ \|)$`) // without the first and the last cell
	want := targetsTable(nil)
	assert.Equal(t, figures.ReplaceAllString(want, "$1$2"), figures.ReplaceAllString(text+"\n", "$1$2"))
	rest, _, _ = strings.Cut(rest, "<!-- end -->")
	rows := figures.FindAllStringSubmatch(rest, -1)
	require.Greater(t, len(rows), 1)
	for _, row := range rows[1:] {
		assert.Equal(t, "| "+cold.Target(strings.Trim(row[1], "| "))+" |", row[2], row[1])
	}
}

// A sample is a measurement of a side.
type sample struct{ set, side, values string }

// keep adds samples to those of the first measurement of a part.
func keep(t *testing.T, r *runner, part string, samples ...sample) {
	file := r.file(measurements[slices.IndexFunc(measurements, func(m measurement) bool { return m.part == part })])
	text, _ := os.ReadFile(file)
	for _, s := range samples {
		text = fmt.Appendf(text, "set: %s\nside: %s\nBenchmarkAny 1 %s\n", s.set, s.side, s.values)
	}
	require.NoError(t, os.WriteFile(file, text, 0o644))
}

func TestTargets(t *testing.T) {
	r := &runner{raw: t.TempDir()}
	pair := func(part, set, name string, ours int) {
		keep(t, r, part, sample{set, name + ": ours", fmt.Sprintf("%d ns/op %[1]d cpu-ns/op", ours)},
			sample{set, name + ": theirs", "100000 ns/op 100000 cpu-ns/op"})
	}
	pair("floor", "flat_100k", "whole / C loop", 85e3)
	pair("floor", "nested1_100k", "whole / C loop", 86e3)
	pair("trees", "", "1 file / ReadDir + ReadFile", 50e3)
	pair("fuse", "slow", "default / Workers 2", 57e3)
	pair("trees", "", "1,000 directories of 1 / C loop", 140e3)
	keep(t, r, "allocs", sample{"flat_100k", "prefix: ours", "0.0014 allocations"})
	keep(t, r, "peak", sample{"flat_1m", "Stream, warm: ours", "20 MiB"})
	keep(t, r, "cold", sample{"flat_100k, ext4", "fileproc", "2501 requests"}, sample{"flat_100k, ext4", "usual loop", "100040 requests"},
		sample{"flat_100k, the machine's disk", "fileproc", "2501 s"}, sample{"flat_100k, the machine's disk", "usual loop", "100040 s"},
		sample{"cancel, 60 directories of 300 files, ext4, one head, 4ms a seek", "fileproc", "90 ms"})
	text := targetsTable(record.Of(r.load(""), ""))
	assert.Equal(t, 3, strings.Count(text, " **"), "figures that miss their target")
	for _, row := range []string{
		"| whole / C loop: flat 100k, nested 100k, flat 1m, nested 1m | wall 0.85, **0.86** | wall ≤ 0.85 |",
		"| the same without io_uring |  | wall ≤ 1.00 |",
		"| 1, 2, 3, 5, 10, 100 files / ReadDir + ReadFile | wall 0.50; CPU 0.50 | wall ≤ 1.00, CPU ≤ 1.00 |",
		"| cold, flat 100k | requests **2,501** | ≤ 2,500 requests |",
		"| cold, flat 100k / best C loop in listing order | wall 0.03 | wall ≤ 0.65 |",
		"| cancel, cold, one head of 4 ms, worst | ms 90 | ≤ 100 ms |",
		"| FUSE, 1 ms an open, each of 1,000 files | ns/op 57,000 | ≤ 60,000 ns/op |",
		"| allocations a file: 100k files, the first 2 KiB of each | allocations 0.0014 | ≤ 0.002 allocations |",
		"| peak memory, Stream, 1m files, warm | MiB **20** | ≤ 16 MiB |",
		"| 1,000 directories of 1 and of 3 files, and a chain of 1,000 / C loop | wall 1.40; CPU 1.40 | reported |",
	} {
		assert.Contains(t, text, row+"\n")
	}
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

// A part of what was measured, such as one case on a new machine, replaces no table of all.
func TestDrawKeepsWhatShowsMore(t *testing.T) {
	r := &runner{root: t.TempDir(), raw: t.TempDir()}
	page := filepath.Join(r.root, benchmarks)
	require.NoError(t, os.MkdirAll(filepath.Dir(page), 0o755))
	b := blocks[slices.IndexFunc(blocks, func(b block) bool { return b.name == "backends" })]
	draw := func(time string, sets ...string) (string, error) {
		require.NoError(t, os.RemoveAll(r.raw))
		require.NoError(t, os.Mkdir(r.raw, 0o755))
		for _, set := range sets {
			keep(t, r, "backends", sample{set, "unix, a: ours", time + " ns/op"})
		}
		err := fail.Try(func() { r.draw(b) })
		return read(t, page), err
	}
	require.NoError(t, os.WriteFile(page, []byte("\n<!-- report: backends -->\n\n<!-- end -->\n"), 0o644))
	all, err := draw("5", "flat_1", "flat_2")
	require.NoError(t, err)
	require.Contains(t, all, "| 5 ns/file |")
	text, err := draw("6", "flat_1")
	require.ErrorContains(t, err, "shows more than was measured")
	require.Equal(t, all, text)
	text, err = draw("7", "flat_1", "flat_2")
	require.NoError(t, err)
	require.Equal(t, strings.ReplaceAll(all, " 5 ", " 7 "), text)
}

// plant plants a program as the bench that is built with a tag.
func plant(t *testing.T, r *runner, tag, script string) {
	require.NoError(t, os.WriteFile(filepath.Join(r.bins, "bench"+tag), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
}

// What fails leaves its table and measurements, and others go on. Each says what it was measured on.
func TestRun(t *testing.T) {
	r := &runner{t.TempDir(), t.TempDir(), t.TempDir()}
	page := filepath.Join(r.root, benchmarks)
	require.NoError(t, os.MkdirAll(filepath.Dir(page), 0o755))
	text := "\n<!-- report: programs -->\nold\n<!-- end -->\n\n<!-- report: backends -->\nold\n<!-- end -->\n\n<!-- report: floor -->\nolder\n<!-- end -->\n"
	require.NoError(t, os.WriteFile(page, []byte(text), 0o644))
	for _, tag := range []string{"", "unix", "generic"} {
		plant(t, r, tag, `[ $4 != programs ] || { echo planted >&2; exit 1; }
eval set=\${$#}; printf 'set: %s\nside: a: ours\nBenchmarkAny 1 7 ns/op\n' ${set##*tickets_}`)
	}
	old, whole := measurements, []string{"floor", "-case", "whole"}
	t.Cleanup(func() { measurements = old })
	measurements = []measurement{{"programs", "flat_1", "", []string{"floor", "-case", "programs"}},
		{"backends", "flat_1", "unix", whole}, {"backends", "flat_1", "generic", whole}, {"backends", "flat_2", "unix", whole}}
	err := r.run(t.Context(), regexp.MustCompile(""))
	assert.EqualError(t, err, "programs flat_1 floor -case programs: left as it was, for the reasons above")
	assert.Equal(t, 3, err.(commands.Status).ExitCode())
	text = read(t, page)
	assert.Contains(t, text, "<!-- report: programs -->\nold\n")
	assert.Contains(t, text, "<!-- report: floor -->\nolder\n")
	assert.Contains(t, text, "| flat_1 | generic, a |  |  | 7 ns/file |\n| flat_2 | unix, a |  |  | 7 ns/file |\n\nunknown, 2")

	before := read(t, r.file(measurements[1]))
	plant(t, r, "unix", `eval set=\${$#}; printf 'set: %s\nside: b: ours\nBenchmarkAny 1 8 ns/op\n' ${set##*tickets_}`)
	plant(t, r, "generic", "echo BenchmarkAny")
	err = r.run(t.Context(), regexp.MustCompile("flat_2|generic"))
	assert.EqualError(t, err, "backends flat_1 generic floor -case whole: left as it was, for the reasons above")
	assert.Equal(t, before, read(t, r.file(measurements[1])))
	sides := func() (sides []string) {
		for _, rec := range r.load("backends") {
			sides = append(sides, rec.Who)
		}
		return sides
	}
	assert.Equal(t, []string{"unix, a: ours", "generic, a: ours", "unix, b: ours"}, sides())

	// What was measured before an interrupt is kept and shown.
	ctx, interrupt := context.WithCancel(t.Context())
	fifo := filepath.Join(r.bins, "fifo")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	plant(t, r, "generic", "exec cat '"+fifo+"'") // the path may have a space
	go func() {
		f, _ := os.OpenFile(fifo, os.O_WRONLY, 0) // waits for cat
		defer f.Close()
		interrupt()
		<-t.Context().Done()
	}()
	assert.ErrorIs(t, r.run(ctx, regexp.MustCompile("backends flat")), context.Canceled)
	assert.Equal(t, []string{"unix, b: ours", "generic, a: ours", "unix, b: ours"}, sides())
	assert.NotContains(t, read(t, page), "unix, a")
}

// A picture says what was measured and which direction is better. A bar's length is its number.
func TestPictures(t *testing.T) {
	r := &runner{raw: t.TempDir()}
	keep(t, r, "peers", sample{"flat_100k", "other", "4e3 ns/op"}, sample{"flat_100k", "a < b", "1e3 ns/op"}, sample{"nested", "c", "9 ns/op"})
	keep(t, r, "cold", sample{"ext4", "fileproc", "2 requests 2 s"}, sample{"ext4", "usual loop", "40 requests 10 s"}, sample{"none", "fileproc", "2 ms"})
	peers, cold := peersPicture(record.Of(r.load("peers"), "")), coldPicture(record.Of(r.load("cold"), ""))
	assert.Regexp(t, `(?s)longer is better.*>a &lt; b<.* width="280" .*>1000<.*>other<.* width="70" .*>250<`, peers)
	assert.Regexp(t, `(?s)shorter is better.*>ext4: requests<.* width="70" .*>5.0 %<.*>ext4: time<.* width="280" .*>20.0 %<`, cold)
	assert.NoError(t, xml.Unmarshal([]byte("<all>"+peers+cold+"</all>"), new(struct{})))
	assert.Equal(t, 2*3, strings.Count(peers+cold, "<rect"))
}
