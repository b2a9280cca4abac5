// Command fileproc lists, searches, hashes and sums up the files of directory trees.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fileproc/fileproc"
)

// Exit codes, as grep's.
const (
	exitFound   = 0
	exitNothing = 1
	exitError   = 2
)

func main() { os.Exit(run(os.Args[1:])) }

// An app is one run of the command.
type app struct {
	ctx  context.Context
	stop context.CancelCauseFunc // ends the run early, for the given reason

	out      *output
	bar      *bar
	sel      selection
	color    string // the value of --color
	silent   bool   // fail only counts
	report   bool
	totals   fileproc.Report // of all roots, for --report
	read     atomic.Int64    // bytes of content that totals does not count
	found    atomic.Bool
	failures atomic.Int64
}

// fail prints a failure at once and counts it.
func (a *app) fail(err error) {
	a.failures.Add(1)
	if a.silent {
		return
	}
	msg := describe(err)
	if a.out.errTTY { // one line, whatever name is in it
		msg = printable(msg)
	}
	a.out.warn(msg)
}

var errOutput = errors.New("the output cannot be written")

func run(args []string) int {
	// A run is short and keeps little in memory, so collecting garbage less often costs hardly any.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	a := &app{}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	interrupted, interrupt := context.WithCancel(context.Background())
	defer interrupt()
	var by os.Signal // set before interrupted is done
	a.ctx, a.stop = context.WithCancelCause(interrupted)
	defer a.stop(nil)
	a.out = newOutput(os.Stdout, os.Stderr, func(err error) { a.stop(fmt.Errorf("%w: %w", errOutput, err)) })
	a.bar = newBar(a.out, os.Stderr)

	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-done:
		case by = <-signals:
			interrupt()
			signal.Stop(signals) // a second signal ends the process at once
			// A read of a pipe or of a lost network mount may hang. The output so far is printed all the same.
			select {
			case <-done:
			case <-time.After(time.Second):
				a.out.lastFlush()
				die(by)
			}
		}
	}()

	cmd := a.command()
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(a.ctx)
	a.bar.clear()
	flushErr := a.out.flush()
	switch {
	case flushErr != nil:
		a.out.warn(flushErr.Error())
		return exitError
	case interrupted.Err() != nil:
		die(by)
	case err != nil && !errors.Is(err, errEnough):
		a.out.warn(asFlags(err))
		return exitError
	}
	if n := a.totals.Skipped[fileproc.SkippedOutside]; n > 0 {
		a.out.warn(fmt.Sprintf("skipped symbolic links that lead outside the directory (--symlinks-outside includes them): %d", n))
	}
	if a.report {
		a.totals.Bytes += a.read.Load()
		a.totals.Elapsed = time.Since(a.bar.start)
		a.out.warn(a.totals.String())
	}
	switch {
	case a.failures.Load() > 0 && !errors.Is(err, errEnough): // after errEnough the result is complete, so failures do not count
		return exitError
	case a.sel.used && !a.found.Load():
		return exitNothing
	}
	return exitFound
}

// die ends the process by the signal that interrupted it, so that a shell that runs it in a loop stops too.
func die(by os.Signal) {
	signal.Reset(by)
	if p, err := os.FindProcess(os.Getpid()); err == nil && runtime.GOOS != "windows" {
		if p.Signal(by) == nil {
			time.Sleep(time.Second) // the signal may take a moment to arrive
		}
	}
	if by == syscall.SIGTERM {
		os.Exit(143)
	}
	os.Exit(130)
}

func (a *app) command() *cobra.Command {
	root := &cobra.Command{
		Use:   "fileproc",
		Short: "List, search, hash and sum up the files of directory trees",
		Long: `fileproc processes the files of directory trees on all cores.

grep, ls, frontmatter and stats read ignore files (.gitignore, .ignore) and skip hidden files, as rg and fd do; hash and
du process every file, as sha256sum and du do. --no-ignore and --hidden change that; -u is --no-ignore, -uu both.

The exit code is 0 if something was found, 1 if nothing was, and 2 if there was an error.`,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return cmp.Or(a.out.setColor(a.color), a.sel.check(cmd))
		},
	}
	root.CompletionOptions.HiddenDefaultCmd = false
	root.SetOut(a.out) // so that help that cannot be written is an error
	p := root.PersistentFlags()
	p.StringVar(&a.color, "color", "auto", "colours: auto (on a terminal, unless NO_COLOR is set), always or never")
	p.BoolVar(&a.report, "report", false, "at the end, print to standard error how many files were found, read and skipped")
	root.RegisterFlagCompletionFunc("color", cobra.FixedCompletions(colorNames, cobra.ShellCompDirectiveNoFileComp))
	root.AddCommand(a.grepCommand(), a.lsCommand(), a.hashCommand(), a.duCommand(), a.statsCommand(),
		a.frontmatterCommand(), manCommand())
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() { // for an unknown name, cobra's own commands show help instead of an error
		case "help":
			cmd.Args = func(_ *cobra.Command, args []string) error {
				_, _, err := root.Find(args)
				return err
			}
		case "completion":
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
	return root
}

// asFlags returns the message of err, in which flags replace the names of fileproc.Options and pflag's wording.
func asFlags(err error) string {
	var wrong *pflag.InvalidValueError
	if errors.As(err, &wrong) {
		why := wrong.Unwrap()
		if n, ok := errors.AsType[*strconv.NumError](why); ok {
			why = n.Err
		}
		return fmt.Sprintf("--%s is %q: %v", wrong.GetFlag().Name, wrong.GetValue(), why)
	}
	msg := describe(err)
	if m := regexp.MustCompile(`^if any flags in the group .* \[(.*)\] were all set$`).FindStringSubmatch(msg); m != nil {
		return "--" + strings.Join(strings.Fields(m[1]), " and --") + " cannot be used together"
	}
	if !strings.HasPrefix(msg, "fileproc: ") {
		return msg
	}
	return strings.NewReplacer("fileproc: ", "", "Options.Suffixes", "--suffix", "Options.MaxDepth", "--max-depth", "Options.Include", "--include", "Options.Exclude",
		"--exclude", "Options.IgnoreFiles", "--ignore-file", "Options.OneFilesystem", "--one-file-system", "Options.Files", "--files-from", "Options.SymlinksOutside", "--symlinks-outside", "Options.Symlinks",
		"--symlinks", anywhere, "").Replace(msg)
}

// version returns the module's version, as recorded by go install or from the version control system.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "(unknown)"
}
