//go:build linux

// Command bench measures. Each of its commands is behind a script in this repository's scripts directory, except as named:
//
//	go run ./bench COMMAND [FLAG]...
//
// It exits with 1 if something is slower or takes more than allowed, with 2 if something is wrong with the input, and with 3 if
// this machine cannot tell.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"

	"github.com/fileproc/fileproc/scripts/bench/internal/caches"
	"github.com/fileproc/fileproc/scripts/bench/internal/cold"
	"github.com/fileproc/fileproc/scripts/bench/internal/floor"
	"github.com/fileproc/fileproc/scripts/bench/internal/regress"
	"github.com/fileproc/fileproc/scripts/bench/internal/report"
)

// commands are the packages below internal, by the names of their commands. They parse their own arguments.
var commands = map[string]func(ctx context.Context, args []string) error{
	"floor":   floor.Main,
	"report":  report.Main,
	"targets": report.Targets,
	"caches":  caches.Main,
	"cold":    cold.Main,
	"compare": regress.Compare, "profile": regress.Profile, "prove": regress.Prove, "run": regress.Run,
}

// An exiter is an error that says how the command exits.
type exiter interface{ ExitCode() int }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, stop) // a second interrupt ends the process
	err := run(ctx, os.Args[1:])
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return
	}
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	fmt.Fprintln(os.Stderr, "bench:", err)
	code := 2
	if e := exiter(nil); errors.As(err, &e) {
		code = e.ExitCode()
	}
	os.Exit(code)
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 || commands[args[0]] == nil {
		return fmt.Errorf("want a command: one of %v", slices.Sorted(maps.Keys(commands)))
	}
	return commands[args[0]](ctx, args[1:])
}
