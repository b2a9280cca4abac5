// Package commands has the main function that the commands of the directory scripts share, with its exit statuses.
package commands

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A Status is an error with an exit status.
type Status struct {
	Text string
	Code int
}

func (s Status) Error() string { return s.Text }

func (s Status) ExitCode() int { return s.Code }

// Main runs one of the commands, which parse their arguments. After an error without ExitCode, it exits with status.
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

// Do runs the command that args[0] names.
func Do(ctx context.Context, args []string, commands map[string]func(context.Context, []string) error) error {
	if len(args) > 0 && commands[args[0]] != nil {
		return commands[args[0]](ctx, args[1:])
	}
	return fmt.Errorf("want a command: one of %v", slices.Sorted(maps.Keys(commands)))
}

// Flags returns flags whose help is usage and then the flags.
func Flags(name, usage string) *flag.FlagSet {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	return flags
}

// Output runs a program in dir and returns what it printed. The error has the first line of standard error, since later lines are
// consequences or a usage, and the last line, since lines of progress may come before it.
func Output(ctx context.Context, dir, name string, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = dir, &stdout, &stderr, 20*time.Second
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // so that the program can undo its mounts
	err := cmd.Run()
	if errors.As(err, new(*exec.ExitError)) {
		var said []string
		for line := range strings.Lines(stderr.String() + stdout.String()) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") { // the go command prints "# PACKAGE" first
				said = append(said[:min(1, len(said))], line)
			}
		}
		err = errors.New(strings.Join(append(said, err.Error())[:max(1, len(said))], " … "))
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", strings.Join(append([]string{filepath.Base(name)}, args[:min(1, len(args))]...), " "), err)
	}
	return strings.TrimSpace(stdout.String()), err
}
