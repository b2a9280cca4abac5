//go:build linux

// Package regress guards the speed of fileproc. Its functions are commands, each behind a script in this repository's scripts
// directory. Their errors say with which status the command exits.
package regress

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// An exit is an error with an exit status of its own.
type exit struct {
	message string
	code    int
}

func (e exit) Error() string { return e.message }

func (e exit) ExitCode() int { return e.code }

var (
	// errSlower says that a comparison found a regression; what it found is printed already.
	errSlower     = exit{"slower than allowed", 1}
	errMore       = exit{"more than allowed", 1}
	errCannotTell = exit{"cannot be judged here", 3}
)

// Run is bench_regress.sh: it measures and records.
func Run(ctx context.Context, args []string) error { return in(ctx, args, record) }

// Compare is bench_compare.sh: it compares with the baseline, the previous record or a revision.
func Compare(ctx context.Context, args []string) error { return in(ctx, args, compare) }

// Profile is bench_profile.sh: it shows where the time of one case goes.
func Profile(ctx context.Context, args []string) error { return in(ctx, args, profile) }

// Prove is bench_prove.sh: it finds a planted slowdown, and none where there is none.
func Prove(ctx context.Context, args []string) error { return in(ctx, args, prove) }

func in(ctx context.Context, args []string, do func(context.Context, repository, []string) error) error {
	root, err := filepath.Abs("..")
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(root, benchFiles[0])); err != nil {
		return errors.New("start it in the scripts directory of a clone, or through scripts/bench_*.sh")
	}
	return do(ctx, repository(root), args)
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
