//go:build linux

package regress

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/fileproc/fileproc/scripts/internal/fail"
)

// counts are how often a case does something, by kind. Unlike a time, a count does not depend on how busy the machine is.
type counts map[string]float64

const (
	allocations  = "allocations"
	pageFaults   = "page faults"       // those without a read from a disk
	mappings     = "mappings"          // calls that map memory, or change a mapping
	ringRequests = "io_uring requests" // those that io_uring_enter submitted
	diskRequests = "disk requests"     // of a cold run, to the disk that the command disk emulates
)

// most returns how large a count may be now, and whether it is for a file or for a run.
func most(kind string, old float64) (now float64, of string) {
	switch kind {
	case allocations:
		return old + 30, "a run"
	case pageFaults, mappings:
		return 1.05*old + 0.25, "a file" // the runtime adds some, but not one for each file
	case diskRequests:
		// Two images of the same files differ, and so do two runs over one image: 0.026 to 0.039 on a busy machine. In the
		// order of the listing, the count is more than 1.
		return 2*old + 0.01, "a file"
	}
	return 1.005*old + 0.0001, "a file" // allows a stray call in three runs over 5,000 files, but not one in each run
}

// kindOf has the kind under which each system call is counted. A backend may use one call of a kind or another.
var kindOf = map[string]string{
	"openat": "openat", "openat2": "openat", "close": "close", "getdents64": "getdents64", "io_uring_enter": "io_uring_enter",
	"read": "read", "pread64": "read", "preadv2": "read",
	"fstat": "stat", "newfstatat": "stat", "fstatat64": "stat", "statx": "stat", "fstatfs": "fstatfs",
	"mmap": mappings, "mmap2": mappings, "munmap": mappings, "mremap": mappings, "madvise": mappings,
}

var countedCases = []string{"flat_5k/whole", "flat_5k/stat", "nested1_5k/whole", "nested1_5k/stat", "flat_64x16KiB/whole", "flat_4x16MiB/whole"}

// count returns the counts of those cases that are counted. Requests to a disk are counted only for the working tree.
func (c clone) count(src source, cases []benchCase) map[string]counts {
	cases = slices.DeleteFunc(slices.Clone(cases), func(bc benchCase) bool { return !slices.Contains(countedCases, bc.String()) })
	if len(cases) == 0 {
		return nil
	}
	here, binary := src.dir == c.root, c.made("count.test")
	src.hooks = true
	c.build(src, binary)
	noTrace := fail.Try(c.canTrace)
	if noTrace != nil && here {
		fmt.Printf("system calls are not counted: %v\n", noTrace)
	}
	all := map[string]counts{}
	for _, bc := range cases {
		all[bc.String()] = c.inProcess(binary, bc)
		if noTrace == nil {
			maps.Copy(all[bc.String()], agreed(func() counts { return c.calls(binary, bc) }))
		}
	}
	if here {
		if err := fail.Try(func() { c.countRequests(cases, all) }); err != nil {
			fmt.Printf("requests to a disk are not counted: %v\n", err)
		}
	}
	return all
}

// agreed counts until two counts in a row are the same, at most five times. Two things disturb a count: a signal that interrupts a
// call, which is then repeated, and files that leave the page cache, which are then read in another way.
func agreed(count func() counts) counts {
	n := count()
	for range 4 {
		before := n
		if n = count(); maps.Equal(n, before) {
			break
		}
	}
	return n
}

// counted sets one worker, since counts depend on which one gets a file, no collector, which frees what a run keeps, and no huge pages.
var counted = []string{"env", "FILEPROC_BENCH_SMALL_PAGES=1", "GOMAXPROCS=1", "GOGC=off", "GODEBUG=asyncpreemptoff=1"}

// inProcess returns what a process counts of itself: the least of some processes, since those of the runtime vary.
func (c clone) inProcess(binary string, bc benchCase) counts {
	least := counts{allocations: math.Inf(1), pageFaults: math.Inf(1)}
	for range 3 {
		text := c.bench(counted, binary, bc, 20)
		for kind, unit := range map[string]string{allocations: "allocs/op", pageFaults: "faults/file"} {
			v := values(text, unit)
			fail.If(len(v) != 1, "%v: the benchmark printed %s %d times, want 1", bc, unit, len(v))
			least[kind] = min(least[kind], math.Round(v[0]*1e4)/1e4)
		}
	}
	return least
}

func (c clone) canTrace() { c.output("", "strace", "-f", "-o", os.DevNull, "true") }

// calls returns the calls a file by kind: those of a long run less those of a short one, which leaves out the start of the process.
func (c clone) calls(binary string, bc benchCase) counts {
	file := binary + ".strace"
	defer os.Remove(file)
	// Each has a question mark, since an architecture may lack some of the calls.
	under := append(counted, "strace", "-f", "-o", file, "-e", "trace=?"+strings.Join(slices.Sorted(maps.Keys(kindOf)), ",?"))
	passes := max(1, 16_000/bc.work(), 40/bc.set.Count)
	c.bench(under, binary, bc, 1)
	short := readTrace(file)
	c.bench(under, binary, bc, 1+passes)
	perFile := counts{}
	for kind, n := range readTrace(file) {
		parts := 1e6 // the count is rounded to a millionth of a call
		if kind == mappings {
			parts = 20 // those of the runtime differ in each process
		}
		perFile[kind] = max(0, math.Round(float64(n-short[kind])/float64(passes*bc.set.Count)*parts)/parts)
	}
	return perFile
}

// traceLine matches a call's name, a parenthesis if the call begins on this line, and the result if it ends on this line.
var traceLine = regexp.MustCompile(`(?m)^\d+ +(?:<\.\.\. )?(\w+)(\()?.*?(?:= (\d+))? *$`)

func readTrace(file string) map[string]int {
	n := map[string]int{ringRequests: 0}
	for _, kind := range kindOf {
		n[kind] = 0
	}
	for _, m := range traceLine.FindAllStringSubmatch(string(fail.Must(os.ReadFile(file))), -1) {
		if kind, ok := kindOf[m[1]]; m[2] != "" && ok {
			n[kind]++
		}
		if m[1] == "io_uring_enter" && m[3] != "" {
			n[ringRequests] += fail.Must(strconv.Atoi(m[3]))
		}
	}
	return n
}

// countRequests adds the requests a file of cold runs over the sets of cases, the least of some runs.
func (c clone) countRequests(cases []benchCase, all map[string]counts) {
	fail.If(os.Getuid() != 0, "only root can mount a disk")
	c.output(filepath.Join(c.root, "scripts"), "go", "build", "-buildvcs=false", "-o", c.tmp+"/", "./disk", "./bench")
	cases = slices.DeleteFunc(cases, func(bc benchCase) bool { return bc.mode != "whole" || bc.set.Size > 0 }) // the others have the same files, or large ones
	for _, bc := range cases {
		image := c.made(bc.set.Name() + ".img")
		c.output(c.data(), c.made("disk"), "image", "-fs", "ext4", "-from", bc.set.Name(), "-o", image)
		least := math.Inf(1)
		for range 3 {
			text := c.output("", c.made("disk"), "run", "-image", image, "--", c.made("bench"), "floor", "-case", "once", "-dir", "{}")
			var line struct{ Requests float64 } // the last line; those before it are of the command
			fail.On(json.Unmarshal([]byte(text[strings.LastIndexByte(text, '\n')+1:]), &line))
			least = min(least, line.Requests)
		}
		all[bc.String()][diskRequests] = least / float64(bc.set.Count)
	}
}

// compareCounts prints the counts that differ, and fails with those that rose above their allowance.
func compareCounts(w io.Writer, old, new map[string]counts) {
	var risen []string
	compared := 0
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, name := range slices.Sorted(maps.Keys(new)) {
		for _, kind := range slices.Sorted(maps.Keys(new[name])) {
			before, ok := old[name][kind]
			if !ok { // that version did not count this
				continue
			}
			compared++
			now, mark := new[name][kind], ""
			limit, of := most(kind, before)
			if now > limit {
				mark = "more"
				risen = append(risen, fmt.Sprintf("%s: %s %s from %.6g to %.6g", name, kind, of, before, now))
			}
			if now != before {
				fmt.Fprintf(t, "%s\t%s %s\t%.6g\tnow %.6g\t%s\t\n", name, kind, of, before, now, mark)
			}
		}
	}
	t.Flush()
	fmt.Fprintf(w, "%d counts compared, %d above their limits\n", compared, len(risen))
	fail.If(risen != nil, "%w: %s", errMore, strings.Join(risen, "; "))
}
