//go:build linux

// Package caches is the command caches of bench. It measures fileproc's cache, absfs/cachefs and absfs/corfs side by side, in
// front of the same source in memory, and prints the tables of docs/cache.md. It runs the benchmarks in its tests.
package caches

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/fileproc/fileproc/scripts/internal/commands"
	"github.com/fileproc/fileproc/scripts/internal/fail"
	"github.com/fileproc/fileproc/scripts/internal/record"
)

const usage = `scripts/bench_cache.sh [FLAG]...

Measures the cache beside absfs/cachefs and absfs/corfs, and prints the tables of docs/cache.md. Needs Linux and Go. A full
run takes about three minutes.

`

func Main(ctx context.Context, args []string) error {
	flags := commands.Flags("caches", usage)
	rounds := flags.Int("rounds", 9, "interleaved `rounds`")
	sample := flags.Duration("sample", 20*time.Millisecond, "`time` of a side in a round, about")
	raw := flags.Bool("records", false, "print records, which have the reads of the source too, for the command report and for benchstat")
	return fail.Try(func() {
		fail.On(flags.Parse(args))
		fail.If(*rounds < 1 || flags.NArg() > 0, "-rounds must be at least 1, and there are no arguments")
		tmp := fail.Must(os.MkdirTemp("", "caches-"))
		defer os.RemoveAll(tmp)
		binary := filepath.Join(tmp, "caches.test")
		fail.Must(commands.Output(ctx, "", "go", "test", "-c", "-o", binary, "./bench/internal/caches"))
		records := fail.Must(measureAll(ctx, binary, *rounds, ".", sample.String()))
		if *raw {
			fail.Must(fmt.Print(record.Text(records)))
			return
		}
		for _, table := range []string{"cases", "eviction", "policies"} {
			fmt.Printf("\n%s", Tables[table](record.Of(records, table)))
		}
	})
}

// measured matches the line of a measurement: the names of the benchmark, of the set and of the side, and the values.
var measured = regexp.MustCompile(`(?m)^(Benchmark\w+)/\w+=([^/\s]+)/\w+=([^/\s]+?)(?:-\d+)?(\s.*)$`)

func measureAll(ctx context.Context, binary string, rounds int, benchmarks, benchtime string) ([]record.Record, error) {
	text := ""
	for round := range rounds {
		cmd := exec.CommandContext(ctx, binary, "-test.run", "^$", "-test.bench", benchmarks,
			"-test.benchtime", benchtime, "-round", fmt.Sprint(round))
		if round == 0 {
			cmd.Stderr = os.Stderr // for the errors of the benchmarks
		}
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("round %d: %w\n%s", round, err, out)
		}
		for _, m := range measured.FindAllStringSubmatch(string(out), -1) {
			of := fmt.Sprintf("set: %s\nside: %s\n", m[2], m[3]) // where package testing has put _ for spaces
			text += strings.ReplaceAll(of, "_", " ") + m[1] + m[4] + "\n"
		}
	}
	if text == "" {
		return nil, errors.New("no such case")
	}
	return record.Read(text)
}

const (
	ours       = "fileproc"
	checked    = "fileproc, checked"
	theirs     = "cachefs"
	theirOther = "corfs"
	bare       = "no cache"
)

var sides = []string{ours, checked, theirs, theirOther, bare}

// Tables are those of docs/cache.md, by the names of the benchmarks.
var Tables = map[string]func(record.Results) string{
	// A row for each case. The ratios are medians of the rounds' ratios to fileproc.
	"cases": func(r record.Results) string {
		rows := bySet(r, "ns", sides)
		rows[0] = append(rows[0], "cachefs / fileproc", "corfs / fileproc")
		for i, set := range r.Sets() {
			rows[i+1] = append(rows[i+1], times(r, set, theirs), times(r, set, theirOther))
		}
		return record.Table(rows)
	},
	// Misses with an eviction, with LFU, of the same 1,000 files in turn.
	"eviction": func(r record.Results) string { return record.Table(bySet(r, "entries", []string{ours, theirs})) },
	// Zipf with a scan. Four fifths of the operations are outside of the scan.
	"policies": func(r record.Results) string {
		rows := [][]string{{"", "hits, %", "hits outside of the scan, %", "ns"}}
		for _, s := range r {
			hits := func(unit string, of float64) string { return fmt.Sprintf("%.1f", 100-100*s.Median(unit)/of) }
			rows = append(rows, []string{s.Who, hits("reads/op", 1), hits("hot/op", 0.8), cell(s)})
		}
		return record.Table(rows)
	},
}

func bySet(r record.Results, head string, sides []string) [][]string {
	rows := [][]string{{head}}
	for _, side := range sides {
		rows[0] = append(rows[0], strings.TrimPrefix(side, "fileproc, "))
	}
	for _, set := range r.Sets() {
		row := []string{set}
		for _, side := range sides {
			row = append(row, cell(r.Find(set, side)))
		}
		rows = append(rows, row)
	}
	return rows
}

func times(r record.Results, set, side string) string {
	if ratio := r.Find(set, side).Over(r.Find(set, ours), record.Wall).Median; ratio > 0 {
		return fmt.Sprintf("%.2f", ratio)
	}
	return "–"
}

// cell formats the median of the times. It returns a dash if there is no such side.
func cell(s *record.Series) string {
	if s.Values == nil {
		return "–"
	}
	return record.English.Sprintf("%.0f", s.Median(record.Wall))
}
