//go:build linux

package regress

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// profile leaves what the profilers say of one case.
func profile(ctx context.Context, repo repository, args []string) error {
	flags := newFlags("profile")
	name := flags.String("case", "flat_100k", "the `set`")
	mode := flags.String("mode", "frontmatter", "what is read of each file")
	cpu := flags.Bool("cpu", false, "CPU profile (the default, with --mem)")
	mem := flags.Bool("mem", false, "memory profile, every allocation")
	trace := flags.Bool("trace", false, "execution trace")
	strace := flags.Bool("strace", false, "count of system calls for each file; needs strace")
	if err := parse(flags, args); err != nil {
		return err
	}
	if !*cpu && !*mem && !*trace && !*strace {
		*cpu, *mem = true, true
	}
	layout, size, _ := strings.Cut(*name, "_")
	bc, err := newCase(layout, size, *mode)
	if err != nil {
		return err
	}
	if err := bc.ensure(ctx, repo); err != nil {
		return err
	}
	dir := repo.records(fmt.Sprintf("profile-%s-%s-%s", time.Now().UTC().Format("20060102T150405Z"), *name, *mode))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	p := profiler{repo, bc, dir, filepath.Join(dir, "bench.test")}
	if err := repo.build(ctx, source{dir: string(repo)}, p.binary); err != nil {
		return err
	}
	os.Remove(p.binary + ".overlay")
	for _, step := range []struct {
		wanted bool
		do     func(context.Context) error
	}{
		{*cpu, func(ctx context.Context) error { return p.pprof(ctx, "cpu") }},
		{*mem, func(ctx context.Context) error { return p.pprof(ctx, "mem", "-test.memprofilerate", "1") }},
		{*trace, func(ctx context.Context) error {
			return p.bench(ctx, nil, 1, "-test.trace", filepath.Join(dir, "trace.out"))
		}},
		{*strace, p.strace},
	} {
		if !step.wanted {
			continue
		}
		if err := step.do(ctx); err != nil {
			return err
		}
	}
	fmt.Println("left in .benchmarks/" + filepath.Base(dir))
	return nil
}

type profiler struct {
	repo        repository
	bc          benchCase
	dir, binary string
}

// bench runs the case so often, without its floor, under another program if one is given.
func (p profiler) bench(ctx context.Context, under []string, iterations int, flags ...string) error {
	pattern, _, _ := strings.Cut(p.bc.pattern(), "|")
	args := append(slices.Clone(under), p.binary, "-test.run", "^$", "-test.bench", pattern, "-test.benchtime", fmt.Sprint(iterations, "x"))
	args = append(args, flags...)
	_, err := output(ctx, string(p.repo), args[0], args[1:]...)
	return err
}

// pprof takes a profile of a kind for which package testing has a flag, over about a million files.
func (p profiler) pprof(ctx context.Context, kind string, flags ...string) error {
	file := filepath.Join(p.dir, kind+".pprof")
	if err := p.bench(ctx, nil, max(1, 1_000_000/p.bc.set.Count), append(flags, "-test."+kind+"profile", file)...); err != nil {
		return err
	}
	args := []string{"tool", "pprof", "-top", "-nodecount", "25"}
	if kind == "mem" {
		args = append(args, "-sample_index", "alloc_space")
	}
	top, err := output(ctx, p.dir, "go", append(args, p.binary, file)...)
	if err != nil {
		return err
	}
	fmt.Printf("%s\n\n", top)
	return os.WriteFile(filepath.Join(p.dir, kind+".txt"), []byte(top+"\n"), 0o644)
}

// strace counts in a short and in a long run: the difference is free of what a process needs to start and end.
func (p profiler) strace(ctx context.Context) error {
	if _, err := exec.LookPath("strace"); err != nil {
		return errors.New("--strace needs strace, which is not installed")
	}
	const short, long = 1, 6
	var counts [2]map[string]float64
	for i, iterations := range []int{short, long} {
		file := filepath.Join(p.dir, "strace.tmp")
		if err := p.bench(ctx, []string{"strace", "-f", "-c", "-U", "calls,name", "-o", file}, iterations); err != nil {
			return err
		}
		var err error
		if counts[i], err = readCounts(file); err != nil {
			return err
		}
		os.Remove(file)
	}
	files := float64(p.bc.set.Count * (long - short))
	perFile := map[string]float64{}
	total := 0.0
	for name, n := range counts[1] {
		perFile[name] = (n - counts[0][name]) / files
		total += perFile[name]
	}
	var table strings.Builder
	fmt.Fprintf(&table, "system calls a file, %v\n", p.bc)
	for _, name := range slices.SortedFunc(maps.Keys(perFile), func(a, b string) int { return cmp.Compare(perFile[b], perFile[a]) }) {
		if perFile[name] >= 0.0005 {
			fmt.Fprintf(&table, "%8.3f  %s\n", perFile[name], name)
		}
	}
	fmt.Fprintf(&table, "%8.3f  in all\n", total)
	fmt.Print(table.String())
	return os.WriteFile(filepath.Join(p.dir, "strace.txt"), []byte(table.String()), 0o644)
}

// readCounts reads lines of a count and a name; others are headings.
func readCounts(file string) (map[string]float64, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	counts := map[string]float64{}
	s := bufio.NewScanner(f)
	for s.Scan() {
		fields := strings.Fields(s.Text())
		if len(fields) != 2 || fields[1] == "total" {
			continue
		}
		if n, err := strconv.ParseFloat(fields[0], 64); err == nil {
			counts[fields[1]] = n
		}
	}
	return counts, s.Err()
}
