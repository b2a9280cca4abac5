//go:build linux

// Package cold is the command cold of bench. It measures cold runs and prints them as Markdown tables.
package cold

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fileproc/fileproc/scripts/bench/internal/program"
	"github.com/fileproc/fileproc/scripts/internal/fail"
	"github.com/fileproc/fileproc/scripts/internal/measure"
	"github.com/fileproc/fileproc/scripts/internal/tickets"
	"github.com/fileproc/fileproc/scripts/internal/turns"
)

const usage = `scripts/bench_cold.sh [-runs N] [-cancels N] [-against REVISION] [PATTERN]

Measures cold runs and prints them as a Markdown table: the requests to the disk and the seconds of fileproc, of the usual
loop (a C loop in the order of the listing) and of the C loop in the order of the disk, each the median, and the target. A
case that cannot run here is a row with the reason. A second table is of cancels at random moments of a run on one head.
With PATTERN, only the cases whose name has this regular expression are measured.

Needs Linux, root, Go, a C compiler, FUSE and loop devices, and drops the machine's caches. Missing sets of tickets and
images are made in .data and kept, since counts are comparable only on the same image. A million files are measured only if
BENCH_COLD_1M is set.

`

// A bench is one call of the command.
type bench struct {
	output        func(ctx context.Context, name string, args ...string) (string, error) // of a program
	out           io.Writer
	runs, cancels int
	pattern       *regexp.Regexp
	data, tmp     string
	builds        []build
}

// A build is the command bench with one version of fileproc.
type build struct{ version, path string }

// Main measures and prints.
func Main(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("cold", flag.ContinueOnError)
	b := bench{out: os.Stdout}
	b.output = func(ctx context.Context, name string, args ...string) (string, error) {
		return program.Output(ctx, "", name, args...)
	}
	flags.IntVar(&b.runs, "runs", 5, "`runs` of each side, in turn")
	flags.IntVar(&b.cancels, "cancels", 20, "`moments` at which runs are cancelled")
	against := flags.String("against", "", "add the columns of this `revision` of fileproc")
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	if b.runs < 1 || b.cancels < 1 || flags.NArg() > 1 || os.Geteuid() != 0 {
		return errors.New("cold needs root, at least one run and one cancel, and at most one PATTERN")
	}
	return fail.Try(func() {
		b.pattern = fail.Must(regexp.Compile(flags.Arg(0)))
		b.data = fail.Must(filepath.Abs("../.data"))
		b.tmp = fail.Must(os.MkdirTemp("", "cold-"))
		defer os.RemoveAll(b.tmp)
		b.builds = []build{{"fileproc", fail.Must(os.Executable())}}
		b.run(ctx, "go", "build", "-o", b.disk(), "./disk")
		if *against != "" { // the same measuring program, with fileproc of the revision
			tree, p := filepath.Join(b.tmp, "tree"), build{*against, filepath.Join(b.tmp, "against")}
			b.run(ctx, "git", "worktree", "add", "-q", "--detach", tree, *against)
			defer b.output(context.WithoutCancel(ctx), "git", "worktree", "remove", "--force", tree)
			err := program.Module(ctx, p.path+".mod", "github.com/fileproc/fileproc", tree)
			if err == nil {
				_, err = b.output(ctx, "go", "build", "-modfile", p.path+".mod", "-mod=mod", "-o", p.path, "./bench")
			}
			fail.If(err != nil, "bench with fileproc of %s: %w", *against, err)
			b.builds = append(b.builds, p)
		}
		b.measure(ctx)
	})
}

// run fails with the error of a program, or returns its output.
func (b *bench) run(ctx context.Context, name string, args ...string) string {
	return fail.Must(b.output(ctx, name, args...))
}

func (b *bench) disk() string { return filepath.Join(b.tmp, "disk") }

func (b *bench) measure(ctx context.Context) {
	columns := []string{"case"}
	for _, p := range b.builds {
		columns = append(columns, p.version+": requests", "time, s")
	}
	columns = append(columns, "usual loop: requests", "time, s", "in the disk's order: requests", "time, s", "target")
	b.table(ctx, columns, runs, b.compare)
	fmt.Fprintln(b.out)
	columns = []string{"case", "of", "whole run", fmt.Sprintf("p95 of %d, ms", b.cancels), "worst, ms", "target"}
	b.table(ctx, columns, cancels, b.cancel)
}

// A measurer returns what is in the rows of a case between its name and its target.
type measurer func(ctx context.Context, c testCase, on string) (rows [][]string)

func (b *bench) table(ctx context.Context, columns []string, cases []testCase, rows measurer) {
	line := func(cells ...string) { fmt.Fprintf(b.out, "| %s |\n", strings.Join(cells, " | ")) }
	line(columns...)
	line(slices.Repeat([]string{"---"}, len(columns))...)
	for _, c := range cases {
		if !b.pattern.MatchString(c.name) {
			continue
		}
		var list [][]string
		err := fail.Try(func() { list = rows(ctx, c, b.prepare(ctx, c)) })
		fail.On(ctx.Err())
		if err != nil {
			list = [][]string{make([]string, len(columns)-2)}
			list[0][0] = "not run: " + err.Error()
		}
		for _, cells := range list {
			line(slices.Concat([]string{c.name}, cells, []string{c.target})...)
		}
	}
}

// prepare makes what is missing of a case and returns its image or its directory.
func (b *bench) prepare(ctx context.Context, c testCase) (path string) {
	image := c.data
	switch {
	case c.data == "go":
		path, image, _ = strings.Cut(b.run(ctx, "go", "env", "GOROOT", "GOVERSION"), "\n")
		path = filepath.Join(path, "src")
	case c.data == "60x300":
		path = filepath.Join(b.tmp, c.data)
	default:
		fail.If(strings.HasSuffix(c.data, "_1m") && os.Getenv("BENCH_COLD_1M") == "", "BENCH_COLD_1M is not set")
		layout, count, _ := strings.Cut(c.data, "_")
		set := fail.Must(tickets.ParseSet(layout, count, 1))
		fail.Must(set.Generate(ctx, b.data, nil))
		path = filepath.Join(b.data, set.Name())
	}
	if c.fs == "" {
		return path
	}
	image = filepath.Join(b.data, "disk_"+image+"_"+c.fs+".img")
	if _, err := os.Stat(image); err != nil {
		for i := 0; i < 60*300 && c.data == "60x300"; i++ { // 60 directories of 300 files
			d, f := i/300+1, i%300+1
			name := fmt.Sprintf("%s/%02d/ticket-%02d%03d.md", path, d, d, f)
			content := fmt.Appendf(nil, "file %03d of directory %02d %0380d\n", f, d, 0)
			fail.On(errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, content, 0o644)))
		}
		b.run(ctx, b.disk(), "image", "-fs", c.fs, "-from", path, "-o", image+".new")
		fail.On(os.Rename(image+".new", image))
	}
	return image
}

// A side is a program or a loop in a case.
type side struct {
	program           string
	name              string // in floor
	threads           int
	requests, seconds []float64
}

// A pass is what floor prints, and the requests to the disk.
type pass struct {
	Files    int
	Bytes    int64
	Seconds  float64
	Requests int64
}

// once runs one cold pass of a side.
func (b *bench) once(ctx context.Context, c testCase, on string, s *side, flags ...string) (p pass) {
	cache := filepath.Join(b.tmp, "cache-"+filepath.Base(s.program))
	args := []string{s.program, "floor", "-case", "once", "-side", s.name, "-threads", fmt.Sprint(s.threads), "-cache", cache}
	args = append(args, flags...)
	before := diskReads(on)
	if c.fs == "" {
		args = append(args, "-cold", "-dir", on)
	} else {
		args = slices.Concat([]string{b.disk(), "run", "-image", on}, c.disk, []string{"--"}, args, []string{"-dir", "{}"})
	}
	out := b.run(ctx, args[0], args[1:]...)
	disk := pass{Requests: diskReads(on) - before}
	lines := json.NewDecoder(strings.NewReader(out))
	fail.On(lines.Decode(&p))
	if c.fs != "" {
		fail.On(lines.Decode(&disk)) // its other fields are of all that the program does
	}
	p.Requests = disk.Requests
	return p
}

// compare returns the requests and the times of the programs, of the usual loop and of the loop in the order of the disk.
func (b *bench) compare(ctx context.Context, c testCase, on string) (rows [][]string) {
	var sides []*side
	for _, p := range b.builds {
		sides = append(sides, &side{program: p.path, name: c.ours, threads: 1})
		if c.ours == again {
			b.once(ctx, c, on, sides[len(sides)-1])
		}
	}
	threads := []int{32}
	if c.fs == "" {
		threads = []int{8, 32, 64} // of which the best counts
	}
	for _, n := range threads {
		sides = append(sides, &side{program: b.builds[0].path, name: c.loop, threads: n})
	}
	sides = append(sides, &side{program: b.builds[0].path, name: c.loop + "-order", threads: 2})
	var want pass
	fail.On(turns.Do(b.runs, len(sides), func(_, i int) error {
		s := sides[i]
		p := b.once(ctx, c, on, s)
		if want.Files == 0 {
			want = p
		}
		s.requests, s.seconds = append(s.requests, float64(p.Requests)), append(s.seconds, p.Seconds)
		if p.Files != want.Files || p.Bytes != want.Bytes {
			return fmt.Errorf("%s saw %d files, %d bytes; another side %d, %d", s.name, p.Files, p.Bytes, want.Files, want.Bytes)
		}
		return nil
	}))
	n := len(b.builds)
	best := slices.MinFunc(sides[n:n+len(threads)], func(x, y *side) int {
		return cmp.Compare(measure.Median(x.seconds), measure.Median(y.seconds))
	})
	var cells []string
	for i, s := range append(sides[:n:n], best, sides[len(sides)-1]) {
		t := measure.Median(s.seconds)
		cells = append(cells, measure.English.Sprintf("%.0f", measure.Median(s.requests)), fmt.Sprintf("%.2f", t))
		if i < n { // and times the usual loop's
			cells[len(cells)-1] += fmt.Sprintf(" (%.2f)", t/measure.Median(best.seconds))
		}
	}
	return [][]string{cells}
}

// cancel returns how long the programs' runs take to end that are cancelled at random moments, from the first one on.
func (b *bench) cancel(ctx context.Context, c testCase, on string) (rows [][]string) {
	for _, p := range b.builds {
		var seconds []float64 // of the whole run, which shows when cancels are of use, and to the end of the others
		for i := range b.cancels + 1 {
			var flags []string
			if i > 0 {
				flags = []string{"-cancel", time.Duration(rand.Float64() * seconds[0] * float64(time.Second)).String()}
			}
			seconds = append(seconds, b.once(ctx, c, on, &side{program: p.path, name: c.ours, threads: 1}, flags...).Seconds)
		}
		slices.Sort(seconds[1:])
		ms := func(i int) string { return fmt.Sprintf("%.0f", seconds[i]*1000) }
		rows = append(rows, []string{p.version, ms(0) + " ms", ms(1 + (b.cancels-1)*95/100), ms(b.cancels)})
	}
	return rows
}

// diskReads returns the requests so far to the disk of a file, and 0 if the kernel does not count them.
func diskReads(name string) (reads int64) {
	var st unix.Stat_t
	if unix.Stat(name, &st) == nil {
		stat, _ := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/stat", unix.Major(uint64(st.Dev)), unix.Minor(uint64(st.Dev))))
		fmt.Sscan(string(stat), &reads)
	}
	return reads
}
