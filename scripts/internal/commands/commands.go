// Package commands is what the commands of the directory scripts begin and end with.
package commands

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
)

// A Status is an error with an exit status.
type Status struct {
	Text string
	Code int
}

func (s Status) Error() string { return s.Text }

func (s Status) ExitCode() int { return s.Code }

// Main runs one of the commands, which parse their own arguments. It exits with status after an error that has no ExitCode.
func Main(status int, commands map[string]func(ctx context.Context, args []string) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second interrupt ends the process
	err := Do(ctx, os.Args[1:], commands)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return
	}
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", filepath.Base(os.Args[0]), err)
	if e := interface{ ExitCode() int }(nil); errors.As(err, &e) {
		status = e.ExitCode()
	}
	os.Exit(status)
}

// Do runs the command that args begin with.
func Do(ctx context.Context, args []string, commands map[string]func(context.Context, []string) error) error {
	if len(args) > 0 && commands[args[0]] != nil {
		return commands[args[0]](ctx, args[1:])
	}
	return fmt.Errorf("want a command: one of %v", slices.Sorted(maps.Keys(commands)))
}
