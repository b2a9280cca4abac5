//go:build linux

package regress

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// profile leaves what the profilers say of one case.
func profile(f *flag.FlagSet) func(clone) {
	chosen := caseFlags(f, "flat_100k", "frontmatter")
	cpu := f.Bool("cpu", false, "CPU profile (the default, with --mem)")
	mem := f.Bool("mem", false, "memory profile, every allocation")
	trace := f.Bool("trace", false, "execution trace")
	strace := f.Bool("strace", false, "count of system calls for each file; needs strace")
	return func(c clone) {
		bc := chosen()
		bc.ensure(c)
		if *strace {
			c.canTrace()
		}
		src := c.workingTree("")
		dir := c.recordDir("profile", time.Now(), strings.ReplaceAll(bc.String(), "/", "-"))
		binary := filepath.Join(dir, "bench.test")
		c.build(src, binary)
		// About a million files, for a profile of a kind for which package testing has a flag.
		pprof := func(kind, index string, flags ...string) {
			file := filepath.Join(dir, kind+".pprof")
			c.bench(nil, binary, bc.pattern("Process"), max(1, 1_000_000/bc.set.Count), append(flags, "-test."+kind+"profile", file)...)
			top := c.output(dir, "go", "tool", "pprof", "-top", "-nodecount", "25", "-sample_index", index, binary, file) + "\n"
			fmt.Println(top)
			check(os.WriteFile(filepath.Join(dir, kind+".txt"), []byte(top), 0o644))
		}
		all := !*cpu && !*mem && !*trace && !*strace
		if *cpu || all {
			pprof("cpu", "cpu")
		}
		if *mem || all {
			pprof("mem", "alloc_space", "-test.memprofilerate", "1")
		}
		if *trace {
			c.bench(nil, binary, bc.pattern("Process"), 1, "-test.trace", filepath.Join(dir, "trace.out"))
		}
		if *strace {
			src.hooks = true
			c.build(src, c.made("count.test"))
			table := callTable(bc, c.calls(nil, c.made("count.test"), bc, nil))
			fmt.Print(table)
			check(os.WriteFile(filepath.Join(dir, "strace.txt"), []byte(table), 0o644))
		}
		fmt.Println("left in .benchmarks/" + filepath.Base(dir))
	}
}

// callTable has the system calls a file, the most frequent first.
func callTable(bc benchCase, perFile counts) string {
	table, total := fmt.Sprintf("system calls a file, %v\n", bc), 0.0
	for _, name := range slices.SortedFunc(maps.Keys(perFile), func(a, b string) int { return cmp.Compare(perFile[b], perFile[a]) }) {
		if name == ringRequests {
			continue
		}
		total += perFile[name]
		if perFile[name] >= 0.0005 {
			table += fmt.Sprintf("%8.3f  %s\n", perFile[name], name)
		}
	}
	return table + fmt.Sprintf("%8.3f  in all\n%8.3f  %s\n", total, perFile[ringRequests], ringRequests)
}
