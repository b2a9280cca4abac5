//go:build linux

package regress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"golang.org/x/perf/benchfmt"
)

// counts are what a case takes of something, by kind. Unlike a time, a count does not depend on how busy the machine is.
type counts map[string]float64

// An allowance is how much larger a count may become.
type allowance struct {
	part  float64 // of the count before
	extra float64
	unit  string
}

const allocations = "allocations"

// kinds are the counts that are compared. A comparison leaves out those that only one of its sides has.
var kinds = map[string]allowance{
	allocations:      {extra: 30, unit: "a run"},
	"openat":         aFile,
	"read":           aFile,
	"close":          aFile,
	"stat":           aFile,
	"fstatfs":        aFile,
	"getdents64":     aFile,
	"io_uring_enter": aFile,
	ringRequests:     aFile,
	diskRequests:     aDiskFile,
}

// aFile allows for one stray call in three runs over 5,000 files, but not for one more a run.
var aFile = allowance{part: 0.005, extra: 0.0001, unit: "a file"}

// allows reports whether the count may rise from old to new.
func (a allowance) allows(old, new float64) bool { return new <= old*(1+a.part)+a.extra }

const ringRequests = "io_uring requests" // those that io_uring_enter submitted

// kindOf has the system calls that are counted, as what. A backend may use one or the other of a kind.
var kindOf = map[string]string{
	"openat": "openat", "openat2": "openat", "close": "close", "getdents64": "getdents64", "io_uring_enter": "io_uring_enter",
	"read": "read", "pread64": "read", "preadv2": "read",
	"fstat": "stat", "newfstatat": "stat", "fstatat64": "stat", "statx": "stat", "fstatfs": "fstatfs",
}

// isCounted reports whether the case is one of those whose counts are recorded and compared.
func (c benchCase) isCounted() bool {
	return slices.Contains([]string{"flat_5k/whole", "flat_5k/stat", "nested1_5k/whole", "nested1_5k/stat"}, c.String())
}

// testHooks keep the package from reacting to slow calls, as they are in a process that is traced.
const testHooks = "export*_test.go"

// errNoHooks says that a revision is too old to be counted.
var errNoHooks = errors.New("there is no export_test.go, which keeps the package from reacting to slow calls")

// buildCounted makes the benchmark binary that is counted.
func (repo repository) buildCounted(ctx context.Context, src source, binary string) error {
	if _, err := os.Stat(filepath.Join(src.dir, "export_test.go")); err != nil {
		return errNoHooks
	}
	src.hooks = true
	return repo.build(ctx, src, binary)
}

// A counter counts what the cases of one binary take.
type counter struct {
	repo   repository
	binary string
	strace error // why calls cannot be counted, unless nil
}

func (repo repository) newCounter(ctx context.Context, binary string) counter {
	return counter{repo, binary, canTrace(ctx)}
}

// canTrace returns why strace cannot be used here, if so.
func canTrace(ctx context.Context) error {
	if _, err := exec.LookPath("strace"); err != nil {
		return errors.New("strace is not installed")
	}
	_, err := output(ctx, "", "strace", "-f", "-o", os.DevNull, "true")
	return err
}

// count returns the counts of a case.
func (c counter) count(ctx context.Context, bc benchCase) (counts, error) {
	n, err := c.allocations(ctx, bc)
	if err != nil {
		return nil, err
	}
	all := counts{allocations: n}
	if c.strace != nil {
		return all, nil
	}
	calls, err := c.calls(ctx, bc)
	maps.Copy(all, calls)
	return all, err
}

// bench runs the case alone with one worker, so that which worker gets which file does not matter, and without garbage
// collection, which would free what a run keeps for the next.
func (c counter) bench(ctx context.Context, bc benchCase, iterations int, under ...string) (string, error) {
	pattern, _, _ := strings.Cut(bc.pattern(), "|")
	args := append(under, c.binary, "-test.run", "^$", "-test.bench", pattern, "-test.benchtime", fmt.Sprint(iterations, "x"))
	return output(ctx, string(c.repo), "env", append([]string{"GOMAXPROCS=1", "GOGC=off", "GODEBUG=asyncpreemptoff=1"}, args...)...)
}

// allocations returns the allocations of a run. The least of some processes counts: the runtime's own come and go.
func (c counter) allocations(ctx context.Context, bc benchCase) (float64, error) {
	const processes, runs = 3, 20
	var all []float64
	for range processes {
		text, err := c.bench(ctx, bc, runs)
		if err != nil {
			return 0, fmt.Errorf("%v: %w", bc, err)
		}
		r := benchfmt.NewReader(strings.NewReader(text), filepath.Base(c.binary))
		for r.Scan() {
			if result, ok := r.Result().(*benchfmt.Result); ok {
				if n, ok := result.Value("allocs/op"); ok {
					all = append(all, n)
				}
			}
		}
	}
	if len(all) != processes {
		return 0, fmt.Errorf("%v: the benchmark printed the allocations %d times, want %d", bc, len(all), processes)
	}
	return slices.Min(all), nil
}

// calls returns the calls a file by kind: those of a long run less those of a short one, without what a process needs to start
// and end. The least of some pairs counts, since a call that a signal interrupts is repeated.
func (c counter) calls(ctx context.Context, bc benchCase) (least counts, err error) {
	const pairs, short, long = 2, 1, 4
	file := c.binary + ".strace"
	defer os.Remove(file)
	for range pairs {
		var of [2]map[string]int
		for i, iterations := range []int{short, long} {
			if _, err := c.bench(ctx, bc, iterations, "strace", "-f", "-e", "trace="+strings.Join(tracedCalls(), ","), "-o", file); err != nil {
				return nil, fmt.Errorf("%v: %w", bc, err)
			}
			if of[i], err = readTrace(file); err != nil {
				return nil, err
			}
		}
		if least == nil {
			least = counts{}
			for kind := range of[0] {
				least[kind] = math.Inf(1)
			}
		}
		for kind := range least {
			least[kind] = min(least[kind], float64(of[1][kind]-of[0][kind])/float64((long-short)*bc.set.Count))
		}
	}
	for kind, n := range least {
		least[kind] = math.Round(n*1e6) / 1e6
	}
	return least, nil
}

// tracedCalls have a question mark each: an architecture may lack some of them.
func tracedCalls() (names []string) {
	for name := range kindOf {
		names = append(names, "?"+name)
	}
	slices.Sort(names)
	return names
}

var (
	callLine   = regexp.MustCompile(`^\d+ +(\w+)\(`)
	enterReply = regexp.MustCompile(`^\d+ +(?:<\.\.\. )?io_uring_enter\b.* = (\d+)$`) // where the call ends, perhaps on a line of its own
)

// readTrace counts by kind what strace wrote to a file.
func readTrace(file string) (map[string]int, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	n := map[string]int{ringRequests: 0}
	for _, kind := range kindOf {
		n[kind] = 0
	}
	for s := bufio.NewReader(f); ; {
		line, err := s.ReadString('\n')
		line = strings.TrimRight(line, " \n")
		if m := callLine.FindStringSubmatch(line); m != nil && kindOf[m[1]] != "" {
			n[kindOf[m[1]]]++
		}
		if m := enterReply.FindStringSubmatch(line); m != nil {
			submitted, err := strconv.Atoi(m[1])
			if err != nil {
				return nil, err
			}
			n[ringRequests] += submitted
		}
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// countAll counts the cases that are counted.
func (c counter) countAll(ctx context.Context, cases []benchCase) (map[string]counts, error) {
	all := map[string]counts{}
	for _, bc := range cases {
		if !bc.isCounted() {
			continue
		}
		n, err := c.count(ctx, bc)
		if err != nil {
			return nil, err
		}
		all[bc.String()] = n
	}
	return all, nil
}

// countSource builds a source and counts its cases.
func (repo repository) countSource(ctx context.Context, src source, cases []benchCase) (map[string]counts, error) {
	if !slices.ContainsFunc(cases, benchCase.isCounted) {
		return nil, nil
	}
	tmp, err := os.MkdirTemp("", "regress-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	binary := filepath.Join(tmp, "count.test")
	if err := repo.buildCounted(ctx, src, binary); err != nil {
		return nil, err
	}
	c := repo.newCounter(ctx, binary)
	if c.strace != nil {
		fmt.Printf("system calls are not counted: %v\n", c.strace)
	}
	all, err := c.countAll(ctx, cases)
	if err == nil && src.dir == string(repo) {
		repo.countRequests(ctx, tmp, cases, all)
	}
	return all, err
}

// countsLike returns the counts of the newest entry that has some and makes the calls of here, or why there are none.
func countsLike(entries []entry, here meta) (map[string]counts, error) {
	why := errors.New("the record has none; scripts/bench_regress.sh records them")
	for _, e := range slices.Backward(entries) {
		switch {
		case e.Counts == nil:
		case e.sameCalls(here):
			return e.Counts, nil
		default:
			why = errors.New("the record has none of a machine with this platform and file system, and io_uring allowed or not as here")
		}
	}
	return nil, why
}

// compareCounts prints the counts that differ, and returns an error that names those that rose above their allowance.
func compareCounts(w io.Writer, old, new map[string]counts) error {
	var risen []string
	compared := 0
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, name := range slices.Sorted(maps.Keys(new)) {
		for _, kind := range slices.Sorted(maps.Keys(new[name])) {
			before, ok := old[name][kind]
			limit, known := kinds[kind]
			if !ok || !known {
				continue
			}
			compared++
			now, mark := new[name][kind], ""
			if !limit.allows(before, now) {
				mark = "more"
				risen = append(risen, fmt.Sprintf("%s: %s %s from %.6g to %.6g", name, kind, limit.unit, before, now))
			}
			if now != before {
				fmt.Fprintf(t, "%s\t%s %s\t%.6g\tnow %.6g\t%s\t\n", name, kind, limit.unit, before, now, mark)
			}
		}
	}
	t.Flush()
	fmt.Fprintf(w, "%d counts compared, %d above their limits\n", compared, len(risen))
	if risen != nil {
		return fmt.Errorf("%w: %s", errMore, strings.Join(risen, "; "))
	}
	return nil
}
