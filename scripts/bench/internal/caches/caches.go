//go:build linux

// Package caches is the command caches of bench. It measures fileproc's cache, absfs/cachefs and absfs/corfs side by side, in
// front of the same source in memory, and prints the tables of docs/cache.md. It runs the benchmarks in its tests.
package caches

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/fileproc/fileproc/scripts/internal/commands"
	"github.com/fileproc/fileproc/scripts/internal/fail"
	"github.com/fileproc/fileproc/scripts/internal/measure"
	"github.com/fileproc/fileproc/scripts/internal/record"
	"golang.org/x/perf/benchfmt"
)

const usage = `scripts/bench_cache.sh [FLAG]...

Measures the cache beside absfs/cachefs and absfs/corfs, and prints the tables of docs/cache.md. Needs Linux and Go. A full
run takes about three minutes.

`

func Main(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("caches", flag.ContinueOnError)
	rounds := flags.Int("rounds", 9, "interleaved `rounds`")
	sample := flags.Duration("sample", 20*time.Millisecond, "`time` of a side in a round, about")
	raw := flags.Bool("records", false, "print records, which have the reads of the source too, for the command report and for benchstat")
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	return fail.Try(func() {
		fail.On(flags.Parse(args))
		fail.If(*rounds < 1 || flags.NArg() > 0, "-rounds must be at least 1, and there are no arguments")
		tmp := fail.Must(os.MkdirTemp("", "caches-"))
		defer os.RemoveAll(tmp)
		binary := filepath.Join(tmp, "caches.test")
		fail.Must(commands.Output(ctx, "", "go", "test", "-c", "-o", binary, "./bench/internal/caches"))
		records := fail.Must(measureAll(ctx, binary, *rounds, ".", sample.String()))
		if *raw {
			fail.On(record.Write(os.Stdout, records...))
			return
		}
		for _, table := range []string{"cases", "eviction", "policies"} {
			fmt.Printf("\n%s", Tables[table](record.Of(records, table)))
		}
	})
}

func measureAll(ctx context.Context, binary string, rounds int, benchmarks, benchtime string) (records []record.Record, err error) {
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
		for in := benchfmt.NewReader(bytes.NewReader(out), "the benchmarks"); in.Scan(); {
			res, ok := in.Result().(*benchfmt.Result)
			if !ok {
				continue // for example a line about a skipped side
			}
			benchmark, parts := res.Name.Parts()
			text := func(part []byte) string { // the value as it was before package testing made it part of a name
				_, value, _ := strings.Cut(string(part), "=")
				return strings.ReplaceAll(value, "_", " ")
			}
			r := record.Record{Table: strings.ToLower(string(benchmark)), Data: text(parts[0]), Who: text(parts[1]), Files: res.Iters,
				Values: map[string]float64{}}
			for _, v := range res.Values {
				r.Values[cmp.Or(v.OrigUnit, v.Unit)] = cmp.Or(v.OrigValue, v.Value)
			}
			records = append(records, r)
		}
	}
	if records == nil {
		return nil, errors.New("no such case")
	}
	return records, nil
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
		columns := append(bySet(r, "ns", sides), column{Head: "cachefs / fileproc", Cell: times(r, theirs)},
			column{Head: "corfs / fileproc", Cell: times(r, theirOther)})
		return record.Table(r.Sets(), columns...)
	},
	// Misses with an eviction, with LFU, of the same 1,000 files in turn.
	"eviction": func(r record.Results) string {
		return record.Table(r.Sets(), bySet(r, "entries", []string{ours, theirs})...)
	},
	// Zipf with a scan. Four fifths of the operations are outside of the scan.
	"policies": func(r record.Results) string {
		type column = record.Column[*record.Series]
		hits := func(unit string, of float64) func(*record.Series) string {
			return func(s *record.Series) string { return fmt.Sprintf("%.1f", 100-100*s.Median(unit)/of) }
		}
		return record.Table(r, column{Head: "", Cell: func(s *record.Series) string { return s.Who }},
			column{Head: "hits, %", Cell: hits("reads/op", 1)}, column{Head: "hits outside of the scan, %", Cell: hits("hot/op", 0.8)},
			column{Head: "ns", Cell: func(s *record.Series) string { return cell(s, "%.0f", record.Wall) }})
	},
}

type column = record.Column[string]

func bySet(r record.Results, head string, sides []string) []column {
	columns := []column{{Head: head, Cell: func(set string) string { return set }}}
	for _, side := range sides {
		columns = append(columns, column{Head: strings.TrimPrefix(side, "fileproc, "), Cell: func(set string) string {
			return cell(r.Find(set, side), "%.0f", record.Wall)
		}})
	}
	return columns
}

func times(r record.Results, side string) func(set string) string {
	return func(set string) string {
		if ratio, ok := r.Find(set, side).Over(r.Find(set, ours), record.Wall); ok {
			return fmt.Sprintf("%.2f", ratio.Median)
		}
		return "–"
	}
}

// cell formats a median. It returns a dash if there is no such side.
func cell(s *record.Series, format, unit string) string {
	if s == nil {
		return "–"
	}
	return measure.English.Sprintf(format, s.Median(unit))
}
