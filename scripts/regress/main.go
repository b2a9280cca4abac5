//go:build linux

// Command regress guards the speed of fileproc. Its commands, each behind a script in this repository's scripts directory:
//
//	go run ./regress run      # bench_regress.sh: measures and records
//	go run ./regress compare  # bench_compare.sh: against the baseline, the previous record or a revision
//	go run ./regress profile  # bench_profile.sh: where the time of one case goes
//	go run ./regress prove    # bench_prove.sh: finds a planted slowdown, and none where there is none
//
// It exits with 1 if something is slower or takes more calls or allocations, with 2 if something is wrong with the input, and with 3 if this machine cannot tell.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
)

var (
	// errSlower says that a comparison found a regression; what it found is printed already.
	errSlower     = errors.New("slower than allowed")
	errMore       = errors.New("more than allowed")
	errCannotTell = errors.New("cannot be judged here")
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	switch err := run(ctx, os.Args[1:]); {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errSlower), errors.Is(err, errMore):
		fmt.Fprintln(os.Stderr, "regress:", err)
		os.Exit(1)
	case errors.Is(err, errCannotTell):
		fmt.Fprintln(os.Stderr, "regress:", err)
		os.Exit(3)
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "regress: interrupted")
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "regress:", err)
		os.Exit(2)
	}
}

func run(ctx context.Context, args []string) error {
	commands := map[string]func(context.Context, repository, []string) error{
		"run": record, "compare": compare, "profile": profile, "prove": prove,
	}
	if len(args) == 0 || commands[args[0]] == nil {
		return errors.New("want a command: run, compare, profile or prove")
	}
	root, err := filepath.Abs("..")
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(root, benchFiles[0])); err != nil {
		return errors.New("start it in the scripts directory of a clone, or through scripts/bench_*.sh")
	}
	return commands[args[0]](ctx, repository(root), args[1:])
}

func newFlags(name string) *flag.FlagSet {
	f := flag.NewFlagSet("bench_"+name+".sh", flag.ContinueOnError)
	f.SetOutput(io.Discard) // an error is one line, which main prints
	return f
}

// parse parses the flags of a command. It refuses what is left over.
func parse(flags *flag.FlagSet, args []string) error {
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		flags.SetOutput(os.Stderr)
		flags.Usage()
	}
	if err == nil && flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return err
}
