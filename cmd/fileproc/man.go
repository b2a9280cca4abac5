package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func manCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write the manual pages into a directory",
		Long:  "Write the manual pages, fileproc.1 and one for each subcommand, into DIR, which is created if it does not exist.",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o777); err != nil {
				return err
			}
			return writeManuals(cmd.Root(), args[0])
		},
	}
}

// writeManuals writes roff itself. cobra/doc goes through Markdown, which changes patterns such as **/*.md, and its libraries
// take a tenth of the start-up time.
func writeManuals(cmd *cobra.Command, dir string) error {
	cmd.InitDefaultHelpFlag()
	if err := os.WriteFile(filepath.Join(dir, page(cmd)+".1"), []byte(manual(cmd)), 0o666); err != nil {
		return err
	}
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			if err := writeManuals(sub, dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// page returns the name of a command's page.
func page(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manual returns the page of a command in roff, which keeps empty and indented lines as they are.
func manual(cmd *cobra.Command) string {
	var b strings.Builder
	section := func(title, text string) {
		if text != "" {
			fmt.Fprintf(&b, ".SH %s\n%s\n", title, strings.TrimSuffix(text, "\n"))
		}
	}
	var others []string
	for _, c := range append([]*cobra.Command{cmd.Parent()}, cmd.Commands()...) {
		if c != nil && c.IsAvailableCommand() {
			others = append(others, `\fB`+roff(page(c))+`\fP(1)`)
		}
	}
	fmt.Fprintf(&b, ".TH %s 1 \"\" fileproc fileproc\n.nh\n.ad l\n", strings.ToUpper(page(cmd)))
	section("NAME", roff(page(cmd))+` \- `+roff(cmd.Short))
	section("SYNOPSIS", `\fB`+roff(cmd.UseLine())+`\fP`)
	section("DESCRIPTION", roff(cmp.Or(cmd.Long, cmd.Short)))
	section("OPTIONS", manualFlags(cmd.NonInheritedFlags()))
	section("OPTIONS OF ALL COMMANDS", manualFlags(cmd.InheritedFlags()))
	if cmd.Example != "" {
		section("EXAMPLES", ".nf\n"+roff(cmd.Example)+"\n.fi")
	}
	section("SEE ALSO", strings.Join(others, ", "))
	return b.String()
}

func manualFlags(flags *pflag.FlagSet) string {
	var b strings.Builder
	flags.VisitAll(func(f *pflag.Flag) {
		value, usage := pflag.UnquoteUsage(f)
		names := `\fB` + roff("--"+f.Name) + `\fP`
		if f.Shorthand != "" {
			names = `\fB` + roff("-"+f.Shorthand) + `\fP, ` + names
		}
		if value != "" && f.NoOptDefVal == "" {
			names += ` \fI` + roff(value) + `\fP`
		}
		if !slices.Contains([]string{"", "0", "-1", "[]", "false"}, f.DefValue) {
			usage += " (default " + f.DefValue + ")"
		}
		fmt.Fprintf(&b, ".TP\n%s\n%s\n", names, roff(usage))
	})
	return b.String()
}

var roffEscapes = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n.", "\n"+`\&.`, "\n'", "\n"+`\&'`)

// roff escapes text so that it is printed unchanged.
func roff(text string) string { return roffEscapes.Replace("\n" + text)[1:] }
