//go:build linux

// Package caches is the command caches of bench. It measures fileproc's cache, absfs/cachefs and absfs/corfs side by side, in
// front of the same source in memory, and prints the tables of docs/cache.md. What it measures are the benchmarks in its tests.
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

	"golang.org/x/perf/benchfmt"

	"github.com/fileproc/fileproc/scripts/bench/internal/program"
	"github.com/fileproc/fileproc/scripts/internal/fail"
	"github.com/fileproc/fileproc/scripts/internal/record"
)

const usage = `scripts/bench.sh caches [FLAG]...

Measures the cache beside absfs/cachefs and absfs/corfs, and prints the tables of docs/cache.md. Needs Linux and Go. A full
run takes about three minutes.

`

// Main measures and prints.
func Main(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("caches", flag.ContinueOnError)
	rounds := flags.Int("rounds", 9, "interleaved `rounds`")
	sample := flags.Duration("sample", 20*time.Millisecond, "`time` of a side in a round, about")
	raw := flags.Bool("records", false, "print records, which have the reads of the source too, for the command report and for benchstat")
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	return fail.Try(func() {
		fail.If(*rounds < 1 || flags.NArg() > 0, "-rounds must be at least 1, and there are no arguments")
		tmp := fail.Must(os.MkdirTemp("", "caches-"))
		defer os.RemoveAll(tmp)
		binary := filepath.Join(tmp, "caches.test")
		fail.Must(program.Output(ctx, "", "go", "test", "-c", "-o", binary, "./bench/internal/caches"))
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

// measureAll runs the benchmarks of the test program in rounds.
func measureAll(ctx context.Context, binary string, rounds int, benchmarks, benchtime string) (records []record.Record, err error) {
	for round := range rounds {
		cmd := exec.CommandContext(ctx, binary, "-test.run", "^$", "-test.bench", benchmarks,
			"-test.benchtime", benchtime, "-round", fmt.Sprint(round))
		if round == 0 {
			cmd.Stderr = os.Stderr // what the benchmarks found wrong
		}
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("round %d: %w\n%s", round, err, out)
		}
		for in := benchfmt.NewReader(bytes.NewReader(out), "the benchmarks"); in.Scan(); {
			res, ok := in.Result().(*benchfmt.Result)
			if !ok {
				continue // such as a line that says that a side was skipped
			}
			benchmark, parts := res.Name.Parts()
			text := func(part []byte) string { // without its key, and as it was before the package testing made it a name
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
