// Command load puts a mixed load on a store of files, as object stores are tested: create, read, list and delete in fixed
// shares, files of 1 KiB to 1 MiB, and stages with different numbers of virtual users. It reads and lists through fileproc and,
// in alternating slices of the same run, through package os, or io/fs if the store is an S3 server, checks all that comes back,
// and judges thresholds. Its words are those of k6. scripts/bench_load.sh builds and runs it; docs/dev/reliability.md explains.
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

	"github.com/fileproc/fileproc/scripts/internal/fail"
)

// The exit statuses. That of a threshold that is not met is k6's.
const (
	exitFailed     = 1
	exitUsage      = 2
	exitThresholds = 99
)

const usage = `Usage: bench_load.sh [FLAG]...               run a load, print the table
       bench_load.sh --from A.txt [--plot A] print or draw a run again, which --out saved for benchstat

The exit status is 99 if a threshold is not met. The build tags in GOFLAGS select another backend:
GOFLAGS=-tags=fileproc_unix bench_load.sh --out unix.txt. It needs 500 MB of space in --dir.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr, nil))
}

type settings struct {
	load                   load
	backend, dir, revision string
	out, plot, from        string
	thresholds             []threshold
}

// run returns the exit status. A test breaks the store with wrap.
func run(ctx context.Context, args []string, stdout, stderr io.Writer, wrap func(*store)) (status int) {
	s := settings{load: load{Stages: []stage{{25, 20 * time.Second}, {100, 20 * time.Second}, {25, 20 * time.Second}}}}
	flags := s.flags(stderr)
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return exitUsage
	}
	if s.thresholds == nil {
		for _, text := range []string{"checks:rate==1", "create:p(95)<=1.15x", "read:p(95)<=1.15x", "list:p(95)<=1.15x", "delete:p(95)<=1.15x"} {
			s.thresholds = append(s.thresholds, fail.Must(parseThreshold(text)))
		}
	}
	status = exitUsage
	err := fail.Try(func() {
		var r *outcome
		fail.If(flags.NArg() > 0, "unexpected argument %q", flags.Arg(0))
		fail.If(s.load.Slice <= 0 || s.load.Files <= 0 || s.load.Own <= 0, "-slice, -files and -own need numbers above 0")
		fail.If(stores[s.backend] == nil, "-backend %s: want os or s3", s.backend)
		if s.from != "" {
			r = fail.Must(loadOutcome(s.from))
		} else {
			status = exitFailed
			r = s.measure(ctx, stderr, wrap)
		}
		ok := r.write(stdout, s.thresholds)
		if s.plot != "" {
			fail.On(r.draw(s.plot))
		}
		status = map[bool]int{true: 0, false: exitThresholds}[ok]
	})
	if err != nil {
		fmt.Fprintln(stderr, "load:", err)
	}
	return status
}

func (s *settings) flags(stderr io.Writer) *flag.FlagSet {
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprint(stderr, usage)
		flags.PrintDefaults()
	}
	flags.Func("stages", "`VUs:duration,...`: each stage keeps a number of VUs (default 25:20s,100:20s,25:20s)", func(text string) (err error) {
		s.load.Stages, err = parseStages(text)
		return err
	})
	flags.Func("threshold", "a `condition` such as read:p(95)<500 (milliseconds), read:p(95)<=1.15x (of the other side) or checks:rate==1; may be\n"+
		"repeated (default checks:rate==1 and, for each operation, p(95)<=1.15x)", func(text string) error {
		t, err := parseThreshold(text)
		s.thresholds = append(s.thresholds, t)
		return err
	})
	flags.StringVar(&s.backend, "backend", "os", "`store`: os (files) or s3 (an S3 server in this process)")
	flags.StringVar(&s.dir, "dir", os.TempDir(), "with -backend os: `directory` in which a directory with the files is made, and removed at the end")
	flags.StringVar(&s.out, "out", "", "write the run to this `file`, as text that benchstat reads")
	flags.StringVar(&s.plot, "plot", "", "draw the percentiles to `NAME`.svg and NAME.png")
	flags.StringVar(&s.from, "from", "", "do not run, but print or draw this `file`, which -out wrote")
	flags.DurationVar(&s.load.Slice, "slice", time.Second, "about how `long` one side runs before the other one does")
	flags.Uint64Var(&s.load.Seed, "seed", 1, "`number` from which sizes, content and the order of operations derive")
	flags.IntVar(&s.load.Files, "files", 1000, "`number` of files that all VUs read")
	flags.IntVar(&s.load.Own, "own", 32, "`number` of files that each VU has of its own at the beginning of a slice")
	flags.StringVar(&s.revision, "revision", "", "`revision` of fileproc, for the record")
	return flags
}

func parseStages(text string) (all []stage, err error) {
	for part := range strings.SplitSeq(text, ",") {
		number, duration, _ := strings.Cut(part, ":")
		vus, errNumber := strconv.Atoi(number)
		d, errDuration := time.ParseDuration(duration)
		if errNumber != nil || errDuration != nil || vus <= 0 || d <= 0 {
			return nil, fmt.Errorf("stage %q: want VUs:duration, such as 25:20s", part)
		}
		all = append(all, stage{vus, d})
	}
	return all, nil
}

func (s *settings) measure(ctx context.Context, progress io.Writer, wrap func(*store)) *outcome {
	store := stores[s.backend](ctx, s.dir)
	defer fail.Undo(store.close)
	if wrap != nil {
		wrap(store)
	}
	runner := newRunner(ctx, &s.load, store)
	r := &outcome{About: s.load.describe(store, s.dir, s.revision), Sides: [2]string{store.sides[0].name, store.sides[1].name}}
	runner.run(ctx, progress, r)
	r.Failures = runner.failures
	if s.out != "" {
		fail.On(r.save(s.out))
	}
	return r
}
