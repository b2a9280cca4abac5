//go:build linux

// Command break tries to make fileproc lose, tear or leak something. Most of its commands are parts of scripts/reliability.sh or of
// scripts/filesystems.sh:
//
//	go run ./break COMMAND [FLAG]...
//
// Each has -h. It exits with 1 after a loss, unless the command has another status for it.
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

	"github.com/fileproc/fileproc/scripts/break/internal/churn"
	"github.com/fileproc/fileproc/scripts/break/internal/faults"
	"github.com/fileproc/fileproc/scripts/break/internal/hostile"
	"github.com/fileproc/fileproc/scripts/break/internal/limits"
)

// commands are the packages below internal, by the names of their commands. They parse their own arguments.
var commands = map[string]func(ctx context.Context, args []string) error{
	"churn":   churn.Main,
	"hostile": hostile.Main,
	"limits":  limits.Main,
	"listing": churn.Listing,
	"tree":    churn.Tree,
	"faults":  faults.Main,
}

// An exiter is an error that says how the command exits.
type exiter interface{ ExitCode() int }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := run(ctx, os.Args[1:])
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return
	}
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	fmt.Fprintln(os.Stderr, "break:", err)
	code := 1
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
