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
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/fileproc/fileproc/scripts/bench/internal/program"
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

var english = message.NewPrinter(language.English) // thousands get commas

// A bench is one call of the command.
type bench struct {
	output        func(ctx context.Context, name string, args ...string) (string, error) // of a program
	out           io.Writer
	runs, cancels int
	pattern       *regexp.Regexp
	data, tmp     string
	programs      []build
}

// A build is the command bench with one version of fileproc.
type build struct{ version, path string }

// Main measures and prints.
func Main(ctx context.Context, args []string) (err error) {
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
	self, err0 := os.Executable()
	pattern, err1 := regexp.Compile(flags.Arg(0))
	data, err2 := filepath.Abs("../.data")
	tmp, err3 := os.MkdirTemp("", "cold-")
	if err := errors.Join(err0, err1, err2, err3); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	b.pattern, b.data, b.tmp, b.programs = pattern, data, tmp, []build{{"fileproc", self}}
	if _, err := b.output(ctx, "go", "build", "-o", b.disk(), "./disk"); err != nil {
		return err
	}
	if *against != "" { // the same measuring program, with fileproc of the revision
		tree, p := filepath.Join(tmp, "tree"), build{*against, filepath.Join(tmp, "against")}
		if _, err := b.output(ctx, "git", "worktree", "add", "-q", "--detach", tree, *against); err != nil {
			return err
		}
		defer b.output(context.WithoutCancel(ctx), "git", "worktree", "remove", "--force", tree)
		err := program.Module(ctx, p.path+".mod", "github.com/fileproc/fileproc", tree)
		if err == nil {
			_, err = b.output(ctx, "go", "build", "-modfile", p.path+".mod", "-mod=mod", "-o", p.path, "./bench")
		}
		if err != nil {
			return fmt.Errorf("bench with fileproc of %s: %w", *against, err)
		}
		b.programs = append(b.programs, p)
	}
	return b.measure(ctx)
}

func (b *bench) disk() string { return filepath.Join(b.tmp, "disk") }

func (b *bench) measure(ctx context.Context) error {
	columns := []string{"case"}
	for _, p := range b.programs {
		columns = append(columns, p.version+": requests", "time, s")
	}
	columns = append(columns, "usual loop: requests", "time, s", "in the disk's order: requests", "time, s", "target")
	if err := b.table(ctx, columns, runs, b.compare); err != nil {
		return err
	}
	fmt.Fprintln(b.out)
	columns = []string{"case", "of", "whole run", fmt.Sprintf("p95 of %d, ms", b.cancels), "worst, ms", "target"}
	return b.table(ctx, columns, cancels, b.cancel)
}

// A measurer returns what is in the rows of a case between its name and its target.
type measurer func(ctx context.Context, c testCase, on string) (rows [][]string, err error)

func (b *bench) table(ctx context.Context, columns []string, cases []testCase, rows measurer) error {
	line := func(cells ...string) { fmt.Fprintf(b.out, "| %s |\n", strings.Join(cells, " | ")) }
	line(columns...)
	line(slices.Repeat([]string{"---"}, len(columns))...)
	for _, c := range cases {
		if !b.pattern.MatchString(c.name) {
			continue
		}
		var list [][]string
		on, err := b.prepare(ctx, c)
		if err == nil {
			list, err = rows(ctx, c, on)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			list = [][]string{make([]string, len(columns)-2)}
			list[0][0] = "not run: " + err.Error()
		}
		for _, cells := range list {
			line(slices.Concat([]string{c.name}, cells, []string{c.target})...)
		}
	}
	return nil
}

// prepare makes what is missing of a case and returns its image or its directory.
func (b *bench) prepare(ctx context.Context, c testCase) (path string, err error) {
	image := c.data
	if c.data == "go" {
		out, err := b.output(ctx, "go", "env", "GOROOT", "GOVERSION")
		if err != nil {
			return "", err
		}
		path, image, _ = strings.Cut(out, "\n")
		path = filepath.Join(path, "src")
	} else if c.data == "60x300" {
		path = filepath.Join(b.tmp, c.data)
	} else if strings.HasSuffix(c.data, "_1m") && os.Getenv("BENCH_COLD_1M") == "" {
		return "", errors.New("BENCH_COLD_1M is not set")
	} else {
		layout, count, _ := strings.Cut(c.data, "_")
		set, err := tickets.ParseSet(layout, count, 1)
		if err == nil {
			_, err = set.Generate(ctx, b.data, nil)
		}
		if err != nil {
			return "", err
		}
		path = filepath.Join(b.data, set.Name())
	}
	if c.fs == "" {
		return path, nil
	}
	image = filepath.Join(b.data, "disk_"+image+"_"+c.fs+".img")
	if _, err := os.Stat(image); err == nil {
		return image, nil
	}
	if c.data == "60x300" {
		if err := make60x300(path); err != nil {
			return "", err
		}
	}
	if _, err := b.output(ctx, b.disk(), "image", "-fs", c.fs, "-from", path, "-o", image+".new"); err != nil {
		return "", err
	}
	return image, os.Rename(image+".new", image)
}

// make60x300 makes 60 directories of 300 files.
func make60x300(dir string) error {
	for i := range 60 * 300 {
		d, f := i/300+1, i%300+1
		name := fmt.Sprintf("%s/%02d/ticket-%02d%03d.md", dir, d, d, f)
		content := fmt.Appendf(nil, "file %03d of directory %02d %0380d\n", f, d, 0)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, content, 0o644)); err != nil {
			return err
		}
	}
	return nil
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
func (b *bench) once(ctx context.Context, c testCase, on string, s *side, flags ...string) (p pass, err error) {
	cache := filepath.Join(b.tmp, "cache-"+filepath.Base(s.program))
	args := []string{s.program, "floor", "-case", "once", "-side", s.name, "-threads", fmt.Sprint(s.threads), "-cache", cache}
	args = append(args, flags...)
	before := diskReads(on)
	if c.fs == "" {
		args = append(args, "-cold", "-dir", on)
	} else {
		args = slices.Concat([]string{b.disk(), "run", "-image", on}, c.disk, []string{"--"}, args, []string{"-dir", "{}"})
	}
	out, err := b.output(ctx, args[0], args[1:]...)
	if err != nil {
		return p, err
	}
	disk := pass{Requests: diskReads(on) - before}
	lines := json.NewDecoder(strings.NewReader(out))
	if err = lines.Decode(&p); err == nil && c.fs != "" {
		err = lines.Decode(&disk) // its other fields are of all that the program does
	}
	p.Requests = disk.Requests
	return p, err
}

// compare returns the requests and the times of the programs, of the usual loop and of the loop in the order of the disk.
func (b *bench) compare(ctx context.Context, c testCase, on string) (rows [][]string, err error) {
	var sides []*side
	for _, p := range b.programs {
		sides = append(sides, &side{program: p.path, name: c.ours, threads: 1})
		if c.ours == again {
			if _, err := b.once(ctx, c, on, sides[len(sides)-1]); err != nil {
				return nil, err
			}
		}
	}
	threads := []int{32}
	if c.fs == "" {
		threads = []int{8, 32, 64} // of which the best counts
	}
	for _, n := range threads {
		sides = append(sides, &side{program: b.programs[0].path, name: c.loop, threads: n})
	}
	sides = append(sides, &side{program: b.programs[0].path, name: c.loop + "-order", threads: 2})
	var want pass
	err = turns.Do(b.runs, len(sides), func(_, i int) error {
		s := sides[i]
		p, err := b.once(ctx, c, on, s)
		if want.Files == 0 {
			want = p
		}
		if err == nil && (p.Files != want.Files || p.Bytes != want.Bytes) {
			err = fmt.Errorf("%s saw %d files, %d bytes; another side %d, %d", s.name, p.Files, p.Bytes, want.Files, want.Bytes)
		}
		s.requests, s.seconds = append(s.requests, float64(p.Requests)), append(s.seconds, p.Seconds)
		return err
	})
	if err != nil {
		return nil, err
	}
	n := len(b.programs)
	best := slices.MinFunc(sides[n:n+len(threads)], func(x, y *side) int {
		return cmp.Compare(measure.Median(x.seconds), measure.Median(y.seconds))
	})
	var cells []string
	for i, s := range append(sides[:n:n], best, sides[len(sides)-1]) {
		t := measure.Median(s.seconds)
		cells = append(cells, english.Sprintf("%.0f", measure.Median(s.requests)), fmt.Sprintf("%.2f", t))
		if i < n { // and times the usual loop's
			cells[len(cells)-1] += fmt.Sprintf(" (%.2f)", t/measure.Median(best.seconds))
		}
	}
	return [][]string{cells}, nil
}

// cancel returns how long the programs' runs take to end that are cancelled at random moments, from the first one on.
func (b *bench) cancel(ctx context.Context, c testCase, on string) (rows [][]string, err error) {
	for _, p := range b.programs {
		var seconds []float64 // of the whole run, which shows when cancels are of use, and to the end of the others
		for i := range b.cancels + 1 {
			var flags []string
			if i > 0 {
				flags = []string{"-cancel", time.Duration(rand.Float64() * seconds[0] * float64(time.Second)).String()}
			}
			got, err := b.once(ctx, c, on, &side{program: p.path, name: c.ours, threads: 1}, flags...)
			if err != nil {
				return nil, err
			}
			seconds = append(seconds, got.Seconds)
		}
		slices.Sort(seconds[1:])
		ms := func(i int) string { return fmt.Sprintf("%.0f", seconds[i]*1000) }
		rows = append(rows, []string{p.version, ms(0) + " ms", ms(1 + (b.cancels-1)*95/100), ms(b.cancels)})
	}
	return rows, nil
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
