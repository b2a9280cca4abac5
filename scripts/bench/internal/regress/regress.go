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
		root, err := filepath.Abs("..")
		if err == nil {
			_, err = os.Stat(filepath.Join(root, benchFiles[0]))
		}
		if err != nil {
			return errors.New("start it in the scripts directory of a clone, or through scripts/bench_*.sh")
		}
		tmp, err := os.MkdirTemp("", "regress-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(tmp)
		return clone{ctx, root, tmp}.run(name, cmd, args)
	}
}

func (c clone) run(name string, cmd command, args []string) error {
	f := flag.NewFlagSet("bench_"+name+".sh", flag.ContinueOnError)
	f.SetOutput(io.Discard) // an error is one line, which main prints
	do := cmd(f)
	err := f.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		f.SetOutput(os.Stderr)
		f.Usage()
	}
	if err == nil && f.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if err != nil {
		return err
	}
	return try(func() { do(c) })
}

// A failure ends a command, up to the next try: nearly all errors here do.
type failure struct{ error }

func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

func failf(format string, args ...any) { check(fmt.Errorf(format, args...)) }

func must[T any](v T, err error) T {
	check(err)
	return v
}

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

// output runs a program and returns what it printed. The error is one line: the first that the program complained with.
func (c clone) output(dir, name string, args ...string) string {
	cmd := exec.CommandContext(c.ctx, name, args...)
	cmd.Dir = dir
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if errors.As(err, new(*exec.ExitError)) {
		for line := range strings.Lines(stderr.String() + stdout.String()) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				failf("%s %s: %s", name, args[0], line)
			}
		}
		failf("%s %s: %w", name, args[0], err)
	}
	check(err)
	return strings.TrimSpace(stdout.String())
}
