// Command fileproc lists, searches, hashes and sums up the files of directory trees.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/cmd/fileproc/internal/frontmatter"
	"github.com/fileproc/fileproc/cmd/fileproc/internal/output"
	"github.com/fileproc/fileproc/cmd/fileproc/internal/run"
	"github.com/fileproc/fileproc/cmd/fileproc/internal/search"
	"github.com/fileproc/fileproc/cmd/fileproc/internal/sum"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func main() { os.Exit(execute()) }

// execute returns the exit code, which is like that of grep: 0 if something was found, 1 if nothing was, and 2 if there was an error.
func execute() int {
	// A run is short and keeps little in memory, so collecting garbage less often costs hardly any.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	r := &run.Run{}
	r.Ctx, r.Stop = context.WithCancelCause(context.Background())
	r.Out = output.New(os.Stdout, os.Stderr, func(err error) { r.Stop(fmt.Errorf("the output cannot be written: %w", err)) })
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		by := interrupt{<-signals}
		r.Stop(by)
		signal.Stop(signals) // a second signal ends the process at once
		time.Sleep(time.Second)
		// A read of a pipe or of a lost network mount may hang. The output so far is printed all the same.
		r.Out.LastFlush()
		by.die()
	}()

	err := rootCommand(r).Execute()
	r.Out.EndProgress()
	flushErr, by := r.Out.Flush(), interrupt{}
	switch {
	case flushErr != nil:
		r.Out.Warn(flushErr.Error())
		return 2
	case errors.As(context.Cause(r.Ctx), &by):
		by.die()
	case err != nil && !errors.Is(err, run.ErrEnough):
		r.Out.Warn(strings.Split(r.AsFlags(err), "\n")...)
		return 2
	}
	if n := r.Totals.Skipped[fileproc.SkippedOutside]; n > 0 {
		r.Out.Warn(fmt.Sprintf("skipped symbolic links that lead outside the directory (--symlinks-outside includes them): %d", n))
	}
	if r.Report {
		r.Totals.Bytes += r.Read.Load()
		r.Totals.Failed += r.Failures.Load()
		r.Totals.Elapsed = time.Since(r.Out.Start)
		r.Out.Warn(r.Totals.String())
	}
	switch {
	case r.Failures.Load() > 0 && !errors.Is(err, run.ErrEnough): // after ErrEnough the result is complete, so failures do not count
		return 2
	case r.Used && !r.Found.Load():
		return 1
	}
	return 0
}

// An interrupt is a signal that ends the run.
type interrupt struct{ os.Signal }

func (by interrupt) Error() string { return by.String() }

// die ends the process by the signal, so that a shell that runs it in a loop stops too.
func (by interrupt) die() {
	signal.Reset(by.Signal)
	if p, err := os.FindProcess(os.Getpid()); err == nil && p.Signal(by.Signal) == nil {
		time.Sleep(time.Second) // the signal may take a moment to arrive
	}
	if by.Signal == syscall.SIGTERM {
		os.Exit(143)
	}
	os.Exit(130)
}

func rootCommand(r *run.Run) *cobra.Command {
	var color string
	root := &cobra.Command{
		Use:   "fileproc",
		Short: "List, search, hash and sum up the files of directory trees",
		Long: `fileproc processes the files of directory trees on all cores.

grep, ls, frontmatter and stats read ignore files (.gitignore, .ignore) and skip hidden files, as rg and fd do; hash and
du process every file, as sha256sum and du do. --no-ignore and --hidden change that; -u is --no-ignore, -uu both.

The exit code is 0 if something was found, 1 if nothing was, and 2 if there was an error.`,
		Version:       run.Version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			r.Out.SetColor(color)
			if cmd.Name() == cobra.ShellCompRequestCmd { // this command shows the text of flags as it is
				for _, c := range append(cmd.Root().Commands(), cmd.Root()) {
					c.LocalFlags().VisitAll(func(f *pflag.Flag) { _, f.Usage = pflag.UnquoteUsage(f) })
				}
			}
			return r.Check(cmd)
		},
	}
	root.SetOut(r.Out) // so that help that cannot be written is an error
	p := root.PersistentFlags()
	run.Choice(root, p, &color, "color", "", "auto", []string{"auto", "always", "never"},
		"`WHEN` to print colours: auto (on a terminal, unless NO_COLOR is set), always or never")
	p.BoolVar(&r.Report, "report", false, "at the end, print to standard error how many files were found, read and skipped")
	root.AddCommand(search.Command(r), listCommand(r), sum.Hash(r), sum.DiskUsage(r), sum.Stats(r), frontmatter.Command(r))
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	help, _, _ := root.Find([]string{"help"}) // no errors: they exist
	completion, _, _ := root.Find([]string{"completion"})
	// For an unknown name, cobra's own commands show help instead of an error.
	help.Args = func(_ *cobra.Command, args []string) error {
		_, _, err := root.Find(args)
		return err
	}
	completion.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return root
}

func listCommand(r *run.Run) *cobra.Command {
	var long, asJSON, human bool
	cmd := &cobra.Command{
		Use:   "ls [flags] [DIR]...",
		Short: "List files",
		Long: `List the regular files below the directories (default the working directory), those of one in no particular order. As
with fd -t f, hidden and ignored files are left out.`,
		Example: "  fileproc ls --suffix .go --newer 7d\n  fileproc ls -u -0 | xargs -0 wc -l",
		RunE: func(_ *cobra.Command, args []string) error {
			r.Opts.ReadSize = fileproc.NoRead
			style, end := r.Out.Style(output.PathColor), byte('\n')
			if r.Null {
				end = 0
			}
			return r.Each(run.Job{Args: args, Visit: func(it *run.Item, c *output.Chunk) (err error) {
				var st fileproc.Stat
				if long || asJSON {
					if st, err = it.F.Stat(); err != nil {
						return err
					}
				}
				r.Found.Store(true)
				if asJSON {
					c.B = fmt.Appendf(c.B, `{"path":%s,"size":%d,"modified":"%s","mode":"%s"}`+"\n",
						output.Path(it.Path()), st.Size, st.ModTime.UTC().Format(time.RFC3339Nano), st.Mode)
					return nil
				}
				if long {
					c.B = fmt.Appendf(c.B, "%s%13s %s ", st.Mode, output.Size(st.Size, human), st.ModTime.Format("2006-01-02 15:04"))
				}
				name := it.Path()
				if !r.Null {
					name = r.Out.Shown(name)
				}
				c.B = append(style.Append(c.B, name), end)
				return nil
			}})
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&long, "long", "l", false, "print mode, size and modification time before each path")
	f.BoolVar(&human, "human-readable", false, "with --long: print sizes as 1.5K, 20M")
	f.BoolVar(&r.Null, "print0", false, "end each path with a NUL byte instead of a newline")
	f.BoolVar(&asJSON, "json", false, "print one JSON object per line: path, size, modified, mode")
	r.Flags(cmd, run.Sorts, "json long", "json print0", "json null")
	return cmd
}
