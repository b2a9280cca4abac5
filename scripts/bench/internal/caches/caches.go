//go:build linux

// Package caches is the command caches of bench. It measures fileproc's cache, absfs/cachefs and absfs/corfs side by side, in
// front of the same source in memory, and prints the tables of docs/cache.md. What it measures are the benchmarks in its tests.
package caches

import (
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

	"github.com/fileproc/fileproc/scripts/bench/internal/program"
	"github.com/fileproc/fileproc/scripts/internal/fail"
)

const usage = `scripts/bench_cache.sh [FLAG]... [PICTURE]

Measures the cache beside absfs/cachefs and absfs/corfs, and prints the tables of docs/cache.md. Needs Linux and Go. A full
run takes about three minutes.

`

// Main measures and prints.
func Main(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("caches", flag.ContinueOnError)
	rounds := flags.Int("rounds", 9, "interleaved `rounds`")
	sample := flags.Duration("sample", 20*time.Millisecond, "`time` of a side in a round, about")
	plot := flags.Bool("plot", false, "draw PICTURE too, by default docs/img/cache.png, and beside it one of the writes")
	repair := flags.Bool("repaired", false, "measure cachefs with a list that works, by a line more in its source")
	engine := flags.Bool("engines", false, "measure only the cache's engine, beside jellydator/ttlcache and maypok86/otter")
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	return fail.Try(func() {
		fail.If(*rounds < 1 || flags.NArg() > 1 || flags.NArg() == 1 && !*plot, "-rounds must be at least 1, and a PICTURE is drawn with -plot")
		tmp := fail.Must(os.MkdirTemp("", "caches-"))
		defer os.RemoveAll(tmp)
		if *engine {
			engines(ctx, tmp)
			return
		}
		build := []string{"go", "test", "-c", "-o", filepath.Join(tmp, "caches.test")}
		if *repair {
			build = append(build, "-modfile", repaired(ctx, tmp), "-mod=mod")
		}
		fail.On(program.All(ctx, [][]string{append(build, "./bench/internal/caches")}))
		r := fail.Must(measureAll(ctx, filepath.Join(tmp, "caches.test"), *rounds, ".", sample.String()))
		r.print(os.Stdout)
		if *plot {
			fail.On(r.plot(cmp.Or(flags.Arg(0), "../docs/img/cache.png")))
		}
	})
}

// measureAll runs the benchmarks of the test program in rounds.
func measureAll(ctx context.Context, binary string, rounds int, benchmarks, benchtime string) (*results, error) {
	var r results
	for round := range rounds {
		cmd := exec.CommandContext(ctx, binary, "-test.run", "^$", "-test.bench", benchmarks,
			"-test.benchtime", benchtime, "-round", fmt.Sprint(round))
		var notes strings.Builder
		cmd.Stderr = &notes
		out, err := cmd.Output()
		if err == nil {
			err = r.add(out)
		}
		if err != nil {
			return nil, fmt.Errorf("round %d: %w\n%s%s", round, err, out, notes.String())
		}
		if round == 0 {
			r.notes = notes.String()
		}
	}
	if r.series == nil {
		return nil, errors.New("no such case")
	}
	return &r, nil
}

// repaired returns a go.mod with another cachefs v1.0.0. Its removeLRU leaves the list as it is when the entry, which is new, is in
// none; as it was downloaded, it empties the list.
func repaired(ctx context.Context, tmp string) (mod string) {
	dir, mod := filepath.Join(tmp, "cachefs"), filepath.Join(tmp, "go.mod")
	fail.On(os.CopyFS(dir, os.DirFS(fail.Must(program.Output(ctx, "", "go", "list", "-f", "{{.Dir}}", "github.com/absfs/cachefs")))))
	const file, method = "cachefs.go", "removeLRU(entry *cacheEntry) {\n"
	before, after, ok := strings.Cut(string(fail.Must(os.ReadFile(filepath.Join(dir, file)))), method)
	fail.If(!ok, "this cachefs has another removeLRU")
	fixed := before + method + "if entry.prev == nil && entry.next == nil && c.lruHead != entry {\nreturn\n}\n" + after
	fail.On(os.WriteFile(filepath.Join(dir, file), []byte(fixed), 0o666))
	fail.On(program.Module(ctx, mod, "github.com/absfs/cachefs", dir))
	return mod
}

// engines runs a benchmark of the engine. It is not exported, so the benchmark is put into its package for this build alone, with a
// go.mod that has the two libraries: the repository's own has not.
func engines(ctx context.Context, tmp string) {
	root := fail.Must(filepath.Abs(".."))
	mod, overlay := filepath.Join(tmp, "go.mod"), filepath.Join(tmp, "overlay.json")
	replace := fmt.Sprintf(`{"Replace": {"%[1]s/cache/%[2]s": "%[1]s/scripts/bench/internal/caches/testdata/%[2]s"}}`, root, "engines_test.go")
	fail.On(os.WriteFile(overlay, []byte(replace), 0o666))
	fail.On(program.All(ctx, [][]string{
		{"cp", "../go.mod", "../go.sum", tmp},
		{"go", "mod", "edit", "-require", "github.com/jellydator/ttlcache/v3@v3.4.1", "-require", "github.com/maypok86/otter/v2@v2.4.0", mod},
	}))
	cmd := exec.CommandContext(ctx, "go", "-C", root, "test", "-modfile", mod, "-mod=mod", "-overlay", overlay,
		"-run", "^$", "-bench", "Engines", "-count", "5", "-benchtime", "200ms", "./cache")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	fail.On(cmd.Run())
}
