//go:build linux

// Package regress guards the speed of fileproc: the commands behind bench_regress.sh, bench_compare.sh, bench_profile.sh and
// bench_prove.sh.
package regress

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// The commands measure and record, compare with the baseline, the previous record or a revision, show where the time of one
// case goes, and find a planted slowdown but none where there is none.
var (
	Run     = entryPoint("regress", record)
	Compare = entryPoint("compare", compare)
	Profile = entryPoint("profile", profile)
	Prove   = entryPoint("prove", prove)
)

// An exit is an error with an exit status of its own.
type exit struct {
	error
	code int
}

func (e exit) ExitCode() int { return e.code }

var (
	errSlower     = exit{errors.New("slower than allowed"), 1} // what is slower is printed already
	errMore       = exit{errors.New("more than allowed"), 1}
	errCannotTell = exit{errors.New("cannot be judged here"), 3}
)

// A clone is where a command works until ctx ends. What it makes in tmp is removed when it has ended.
type clone struct {
	ctx       context.Context
	root, tmp string
}

func (c clone) data() string            { return filepath.Join(c.root, ".data") }
func (c clone) made(name string) string { return filepath.Join(c.tmp, name) }

// A command defines its flags, and returns what it does when they are parsed.
type command func(*flag.FlagSet) (do func(clone))

func entryPoint(name string, cmd command) func(context.Context, []string) error {
	return func(ctx context.Context, args []string) error {
		return try(func() {
			root := must(filepath.Abs(".."))
			_, err := os.Stat(filepath.Join(root, benchFiles[0]))
			failIf(err != nil, "start it in the scripts directory of a clone, or through scripts/bench_*.sh")
			tmp := must(os.MkdirTemp("", "regress-"))
			defer os.RemoveAll(tmp)
			clone{ctx, root, tmp}.run(name, cmd, args)
		})
	}
}

func (c clone) run(name string, cmd command, args []string) {
	f := flag.NewFlagSet("bench_"+name+".sh", flag.ContinueOnError)
	f.SetOutput(io.Discard) // an error is one line, which main prints
	do := cmd(f)
	err := f.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		f.SetOutput(os.Stderr)
		f.Usage()
	}
	check(err)
	failIf(f.NArg() > 0, "unexpected argument %q", f.Arg(0))
	do(c)
}

// A failure is an error on its way to the next try. Nearly all errors here end the command.
type failure struct{ error }

// try returns the error that do fails with.
func try(do func()) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			err = r.error
		default:
			panic(r)
		}
	}()
	do()
	return nil
}

func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func failIf(wrong bool, format string, args ...any) {
	if wrong {
		panic(failure{fmt.Errorf(format, args...)})
	}
}

// output runs a program and returns what it printed. The error is one line: the first that the program complained with.
func (c clone) output(dir, name string, args ...string) string {
	cmd := exec.CommandContext(c.ctx, name, args...)
	cmd.Dir = dir
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if errors.As(err, new(*exec.ExitError)) {
		for line := range strings.Lines(stderr.String() + stdout.String()) {
			line = strings.TrimSpace(line)
			failIf(line != "" && !strings.HasPrefix(line, "#"), "%s %s: %s", filepath.Base(name), args[0], line)
		}
	}
	failIf(err != nil, "%s: %w", filepath.Base(name), err)
	return strings.TrimSpace(stdout.String())
}
