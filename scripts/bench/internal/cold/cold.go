//go:build linux

// Package cold is the command cold of bench. It measures cold runs and prints them as Markdown tables.
package cold

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fileproc/fileproc/scripts/internal/commands"
	"github.com/fileproc/fileproc/scripts/internal/fail"
	"github.com/fileproc/fileproc/scripts/internal/record"
	"github.com/fileproc/fileproc/scripts/internal/tickets"
	"github.com/fileproc/fileproc/scripts/internal/turns"
)

const usage = `scripts/bench_cold.sh [-runs N] [-cancels N] [-records] [PATTERN]

Measures cold runs and prints them as a Markdown table: the requests to the disk and the seconds of fileproc and of the usual
loop, a C loop in the order of the listing, each the median, and the target. A case that cannot run here is named with the
reason. Lines below the table are of cancels at random moments of a run on one head. With PATTERN, only the cases whose name
has this regular expression are measured.

Needs Linux, root, Go, a C compiler, FUSE and loop devices, and drops the machine's caches. Missing sets of tickets and
images are made in .data and kept, since counts are comparable only on the same image. A million files are measured only if
BENCH_COLD_1M is set.

`

type bench struct {
	output        func(ctx context.Context, dir, name string, args ...string) (string, error) // runs a program
	runs, cancels int
	data, tmp     string
}

func Main(ctx context.Context, args []string) error {
	flags := commands.Flags("cold", usage)
	b := bench{output: commands.Output}
	flags.IntVar(&b.runs, "runs", 5, "`runs` of each side, in turn")
	flags.IntVar(&b.cancels, "cancels", 20, "`moments` at which runs are cancelled")
	raw := flags.Bool("records", false, "print records, for the command report and for benchstat")
	return fail.Try(func() {
		fail.On(flags.Parse(args))
		fail.If(b.runs < 1 || b.cancels < 1 || flags.NArg() > 1 || os.Geteuid() != 0,
			"cold needs root, at least one run and one cancel, and at most one PATTERN")
		pattern := fail.Must(regexp.Compile(flags.Arg(0)))
		b.data = fail.Must(filepath.Abs("../.data"))
		fail.On(os.MkdirAll(b.data, 0o755))
		b.tmp = fail.Must(os.MkdirTemp("", "cold-"))
		defer os.RemoveAll(b.tmp)
		b.run(ctx, "go", "build", "-o", b.disk(), "./disk")
		records := b.measure(ctx, slices.DeleteFunc(slices.Clone(Cases), func(c Case) bool { return !pattern.MatchString(c.Name) }))
		if *raw {
			fail.Must(fmt.Print(record.Text(records)))
		} else {
			if compared := record.Of(records, "cold"); compared != nil {
				fmt.Println(Table(compared))
			}
			for _, s := range record.Of(records, "cancel") {
				fmt.Printf("%s: %s\n", s.Data, s.Units())
			}
		}
	})
}

// run returns the output of a program, or fails with its error.
func (b *bench) run(ctx context.Context, name string, args ...string) string {
	return fail.Must(b.output(ctx, "", name, args...))
}

func (b *bench) disk() string { return filepath.Join(b.tmp, "disk") }

// measure returns records of the tables cold and cancel. A case is a set there.
func (b *bench) measure(ctx context.Context, cases []Case) (records []record.Record) {
	for _, c := range cases {
		var list []record.Record
		err := fail.Try(func() {
			if on := b.prepare(ctx, c); c.loop == "" {
				list = b.cancel(ctx, c, on)
			} else {
				list = b.compare(ctx, c, on)
			}
		})
		fail.On(ctx.Err())
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: not run: %v\n", c.Name, err)
		}
		records = append(records, list...)
	}
	return records
}

// The sides of the records, with their versions.
const (
	ours  = "fileproc"
	usual = "usual loop"
)

func Table(r record.Results) string {
	rows := [][]string{{"case"}}
	for _, side := range r.Sides() {
		rows[0] = append(rows[0], side+": requests", "time, s")
	}
	for _, name := range r.Sets() {
		row, loop := []string{name}, r.Find(name, usual)
		for _, side := range r.Sides() {
			requests, seconds := "", ""
			if s := r.Find(name, side); s.Values != nil {
				requests = record.English.Sprintf("%.0f", s.Median("requests"))
				seconds = fmt.Sprintf("%.2f", s.Median("s"))
				if s != loop {
					seconds += fmt.Sprintf(" (%.2f)", s.Median("s")/loop.Median("s"))
				}
			}
			row = append(row, requests, seconds)
		}
		rows = append(rows, append(row, Target(name)))
	}
	rows[0] = append(rows[0], "target")
	return record.Table(rows)
}

// prepare makes the missing data of a case and returns its image or its directory.
func (b *bench) prepare(ctx context.Context, c Case) (path string) {
	image := c.data
	var files, size int
	n, _ := fmt.Sscanf(c.data, "%dof%d", &files, &size)
	switch {
	case n == 2:
		path = filepath.Join(b.data, c.data)
		for i := range files {
			name := filepath.Join(path, fmt.Sprintf("file-%05d", i))
			if info, err := os.Stat(name); err != nil || info.Size() != int64(size) {
				fail.On(errors.Join(os.MkdirAll(path, 0o755), os.WriteFile(name, bytes.Repeat([]byte{'a'}, size), 0o644)))
			}
		}
	case c.data == "go":
		path, image, _ = strings.Cut(b.run(ctx, "go", "env", "GOROOT", "GOVERSION"), "\n")
		path = filepath.Join(path, "src")
	case c.data == "60x300":
		path = filepath.Join(b.tmp, c.data)
	default:
		fail.If(strings.HasSuffix(c.data, "_1m") && os.Getenv("BENCH_COLD_1M") == "", "BENCH_COLD_1M is not set")
		layout, count, _ := strings.Cut(c.data, "_")
		set := fail.Must(tickets.ParseSet(layout, count, 1))
		fail.Must(set.Generate(ctx, b.data))
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

// A side is a side of floor in a case.
type side struct {
	who     string
	name    string // in floor
	threads int
	passes  []pass
}

// A pass has what floor prints, and the requests to the disk.
type pass struct {
	Files    int
	Bytes    int64
	Seconds  float64
	Requests int64
}

func (s *side) seconds() float64 {
	var all []float64
	for _, p := range s.passes {
		all = append(all, p.Seconds)
	}
	return record.Median(all)
}

func (b *bench) once(ctx context.Context, c Case, on string, s *side, flags ...string) (p pass) {
	args := []string{fail.Must(os.Executable()), "floor", "-case", "once", "-side", s.name, "-threads", fmt.Sprint(s.threads), "-cache", filepath.Join(b.tmp, "cache")}
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
		fail.On(lines.Decode(&disk)) // its other fields cover the whole program
	}
	p.Requests = disk.Requests
	return p
}

// compare measures fileproc and the usual loop, which has 32 threads, or on the machine's disk the best of three numbers.
func (b *bench) compare(ctx context.Context, c Case, on string) (records []record.Record) {
	sides := []*side{{who: ours, name: c.ours, threads: 1}}
	if c.ours == again {
		b.once(ctx, c, on, sides[0])
	}
	threads := []int{32}
	switch {
	case c.loop == "cat":
		threads = []int{1, 2, 8}
		sides = append(sides, &side{who: usual, name: "direct", threads: 8})
	case c.fs == "":
		threads = []int{8, 32, 64}
	}
	for _, n := range threads {
		sides = append(sides, &side{who: usual, name: c.loop, threads: n})
	}
	turns.Do(b.runs, len(sides), func(_, i int) {
		p := b.once(ctx, c, on, sides[i])
		sides[i].passes = append(sides[i].passes, p)
		first := sides[0].passes[0] // which was measured before all others
		fail.If(p.Files != first.Files || p.Bytes != first.Bytes, "%s saw %d files, %d bytes; %s %d, %d",
			sides[i].name, p.Files, p.Bytes, sides[0].name, first.Files, first.Bytes)
	})
	best := slices.MinFunc(sides[1:], func(x, y *side) int { return cmp.Compare(x.seconds(), y.seconds()) })
	for _, s := range []*side{sides[0], best} {
		for _, p := range s.passes {
			records = append(records, record.Record{Table: "cold", Data: c.Name, Who: s.who, Files: p.Files,
				Values: map[string]float64{"requests": float64(p.Requests), "s": p.Seconds}})
		}
	}
	return records
}

// cancel cancels runs at random moments, from the first millisecond on, and measures how long they take to end.
func (b *bench) cancel(ctx context.Context, c Case, on string) []record.Record {
	var ms []float64 // of a whole run, which says when to cancel, and then from each cancel to the end
	for i := range b.cancels + 1 {
		var flags []string
		if i > 0 {
			flags = []string{"-cancel", time.Duration(rand.Float64() * ms[0] * float64(time.Millisecond)).String()}
		}
		ms = append(ms, 1000*b.once(ctx, c, on, &side{name: c.ours, threads: 1}, flags...).Seconds)
	}
	slices.Sort(ms[1:])
	return []record.Record{{Table: "cancel", Data: c.Name, Who: ours,
		Values: map[string]float64{"whole-ms": ms[0], "p95-ms": ms[1+(b.cancels-1)*95/100], "ms": ms[b.cancels]}}}
}

// diskReads returns the requests so far to the disk that has the file, or 0 if the kernel does not count them.
func diskReads(name string) (reads int64) {
	var st unix.Stat_t
	if unix.Stat(name, &st) == nil {
		stat, _ := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/stat", unix.Major(uint64(st.Dev)), unix.Minor(uint64(st.Dev))))
		fmt.Sscan(string(stat), &reads)
	}
	return reads
}
