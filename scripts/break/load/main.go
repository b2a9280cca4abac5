// Command load puts a mixed load on a store of files, as object stores are tested: create, read, list and delete in fixed
// shares, files of 1 KiB to 1 MiB, and stages with different numbers of virtual users. It reads and lists through fileproc and,
// in alternating slices of the same run, through package os, or io/fs if the store is an S3 server, checks all that comes back,
// and judges thresholds. Its words are those of k6. scripts/bench_load.sh builds and runs it; docs/dev/reliability.md explains.
//
// Usage:
//
//	load [flags]                        run a load
//	load -compare A.json B.json         compare two runs
//	load -from FILE.json [-plot NAME]   print or draw a run again
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The exit statuses. That of a threshold that is not met is k6's.
const (
	exitFailed     = 1
	exitUsage      = 2
	exitThresholds = 99
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// defaultThresholds are those of a run for which none are given.
var defaultThresholds = []string{"checks:rate==1", "create:p(95)<=1.15x", "read:p(95)<=1.15x", "list:p(95)<=1.15x", "delete:p(95)<=1.15x"}

type settings struct {
	load             load
	backend, dir     string
	out, plot, from  string
	compare, quiet   bool
	revision, tags   string
	thresholds       thresholds
	vus              int
	duration         time.Duration
	stages           string
	wrap             func(*store) // tests: break the store
	stdout, progress io.Writer
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return runWith(ctx, args, stdout, stderr, nil)
}

func runWith(ctx context.Context, args []string, stdout, stderr io.Writer, wrap func(*store)) int {
	s := &settings{stdout: stdout, progress: stderr, wrap: wrap}
	flags := s.flags(stderr)
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return exitUsage
	}
	fail := func(status int, err error) int {
		fmt.Fprintln(stderr, "load:", err)
		return status
	}
	switch {
	case s.compare:
		if flags.NArg() != 2 {
			return fail(exitUsage, errors.New("-compare needs two files"))
		}
		if err := compareFiles(stdout, flags.Arg(0), flags.Arg(1)); err != nil {
			return fail(exitUsage, err)
		}
		return 0
	case flags.NArg() > 0:
		return fail(exitUsage, fmt.Errorf("unexpected argument %q", flags.Arg(0)))
	case s.from != "":
		r, err := loadRecord(s.from)
		if err != nil {
			return fail(exitUsage, err)
		}
		if err := s.show(r); err != nil {
			return fail(exitFailed, err)
		}
		return r.status()
	}
	if err := s.validate(); err != nil {
		return fail(exitUsage, err)
	}
	r, err := s.measure(ctx)
	if err == nil && s.out != "" {
		err = r.save(s.out)
	}
	if err == nil {
		err = s.show(r)
	}
	if err != nil {
		return fail(exitFailed, err)
	}
	return r.status()
}

func (s *settings) flags(stderr io.Writer) *flag.FlagSet {
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&s.stages, "stages", "25:20s,100:20s,25:20s", "`VUs:duration,...`: each stage keeps a number of VUs; k6's order, duration:VUs, is understood too")
	flags.IntVar(&s.vus, "vus", 0, "one stage of this many `VUs`, for -duration")
	flags.DurationVar(&s.duration, "duration", time.Minute, "with -vus: the `time` of the stage")
	flags.Var(&s.thresholds, "threshold", "a `condition` such as read:p(95)<500 (milliseconds), read:p(95)<=1.15x (of the other side) or checks:rate==1; may be\nrepeated (default: "+
		strings.Join(defaultThresholds, ", ")+"); \"none\" alone is no condition")
	flags.StringVar(&s.backend, "backend", "os", "`store`: os (files) or s3 (an S3 server in this process)")
	flags.StringVar(&s.dir, "dir", os.TempDir(), "with -backend os: `directory` in which a directory with the files is made, and removed at the end")
	flags.StringVar(&s.out, "out", "", "write the run as JSON to this `file`")
	flags.StringVar(&s.plot, "plot", "", "draw the percentiles to `NAME`.svg and NAME.png")
	flags.StringVar(&s.from, "from", "", "do not run, but print or draw this `file`, which -out wrote")
	flags.BoolVar(&s.compare, "compare", false, "do not run, but compare two files, which -out wrote")
	flags.BoolVar(&s.quiet, "quiet", false, "do not print what is being done")
	flags.DurationVar(&s.load.Slice, "slice", time.Second, "about how `long` one side runs before the other one does")
	flags.Uint64Var(&s.load.Seed, "seed", 1, "`number` from which sizes, content and the order of operations derive")
	flags.IntVar(&s.load.Seeds, "files", 1000, "`number` of files that all VUs read")
	flags.IntVar(&s.load.Own, "own", 32, "`number` of files that each VU has of its own at the beginning of a slice")
	flags.StringVar(&s.revision, "revision", "", "`revision` of fileproc, for the record")
	flags.StringVar(&s.tags, "tags", "", "the `tags` that this command was built with, for the record")
	return flags
}

func (s *settings) validate() (err error) {
	s.load.Mix, s.load.Sizes, s.load.SeedDir = mix, sizes, 100
	if s.vus > 0 {
		s.load.Stages = []stage{{s.vus, s.duration}}
	} else if s.load.Stages, err = parseStages(s.stages); err != nil {
		return err
	}
	switch {
	case s.load.Slice <= 0, s.load.Seeds <= 0, s.load.Own <= 0, s.vus < 0, s.duration <= 0:
		return errors.New("-vus, -duration, -slice, -files and -own need numbers above 0")
	case s.backend != "os" && s.backend != "s3":
		return fmt.Errorf("-backend %s: want os or s3", s.backend)
	}
	if s.thresholds == nil {
		for _, text := range defaultThresholds {
			if err := s.thresholds.Set(text); err != nil {
				return err
			}
		}
	}
	return nil
}

func parseStages(text string) ([]stage, error) {
	var all []stage
	for part := range strings.SplitSeq(text, ",") {
		first, second, _ := strings.Cut(part, ":")
		vus, err := strconv.Atoi(first)
		if err != nil {
			vus, err = strconv.Atoi(second)
			second = first
		}
		d, errDuration := time.ParseDuration(second)
		if err != nil || errDuration != nil || vus <= 0 || d <= 0 {
			return nil, fmt.Errorf("stage %q: want VUs:duration, such as 25:20s", part)
		}
		all = append(all, stage{vus, d})
	}
	return all, nil
}

func (s *settings) measure(ctx context.Context) (r *record, err error) {
	var store *store
	if s.backend == "s3" {
		store, err = openS3(ctx, s.load.maxVUs())
	} else {
		store, err = openFiles(s.dir)
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.close()) }()
	if s.wrap != nil {
		s.wrap(store)
	}
	say := func(text string) {
		if !s.quiet {
			fmt.Fprintln(s.progress, text)
		}
	}
	say("making the files that all VUs read")
	runner := newRunner(&s.load, store)
	if err := runner.prepare(ctx); err != nil {
		return nil, err
	}
	runs, err := runner.run(ctx, say)
	if err != nil {
		return nil, err
	}
	r = newRecord(describeMachine(store, s.dir, s.revision, s.tags), &s.load, store.sides, runs)
	r.Failures = runner.failures
	for _, t := range s.thresholds {
		if t.metric != "" {
			r.Thresholds = append(r.Thresholds, t.judge(r))
		}
	}
	return r, nil
}

func (s *settings) show(r *record) error {
	r.write(s.stdout)
	if s.plot == "" {
		return nil
	}
	return r.draw(s.plot)
}

// status is the exit status that belongs to the verdicts.
func (r *record) status() int {
	for _, v := range r.Thresholds {
		if !v.OK {
			return exitThresholds
		}
	}
	return 0
}

func compareFiles(w io.Writer, oldName, newName string) error {
	a, err := loadRecord(oldName)
	if err != nil {
		return err
	}
	b, err := loadRecord(newName)
	if err != nil {
		return err
	}
	all, err := compareRecords(a, b)
	if err != nil {
		return err
	}
	writeComparison(w, a, b, all)
	return nil
}
