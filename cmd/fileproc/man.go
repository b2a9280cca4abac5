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
			return cmp.Or(os.MkdirAll(args[0], 0o777), writeManuals(cmd.Root(), args[0]))
		},
	}
}

// writeManuals writes roff itself. cobra/doc goes through Markdown, which changes patterns such as **/*.md, and its libraries
// take a tenth of the start-up time.
func writeManuals(cmd *cobra.Command, dir string) error {
	cmd.InitDefaultHelpFlag()
	err := os.WriteFile(filepath.Join(dir, page(cmd)+".1"), []byte(manual(cmd)), 0o666)
	for _, sub := range cmd.Commands() {
		if err == nil && sub.IsAvailableCommand() {
			err = writeManuals(sub, dir)
		}
	}
	return err
}

// page returns the name of a command's page.
func page(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manual returns the page of a command in roff, which keeps empty and indented lines as they are.
func manual(cmd *cobra.Command) string {
	var others []string
	for _, c := range append([]*cobra.Command{cmd.Parent()}, cmd.Commands()...) {
		if c != nil && c.IsAvailableCommand() {
			others = append(others, `\fB`+roff(page(c))+`\fP(1)`)
		}
	}
	b := fmt.Sprintf(".TH %s 1 \"\" fileproc fileproc\n.nh\n.ad l\n", strings.ToUpper(page(cmd)))
	for _, section := range [][2]string{
		{"NAME", roff(page(cmd)) + ` \- ` + roff(cmd.Short)},
		{"SYNOPSIS", `\fB` + roff(cmd.UseLine()) + `\fP`},
		{"DESCRIPTION", roff(cmp.Or(cmd.Long, cmd.Short))},
		{"OPTIONS", manualFlags(cmd.NonInheritedFlags())},
		{"OPTIONS OF ALL COMMANDS", manualFlags(cmd.InheritedFlags())},
		{"EXAMPLES", strings.TrimSuffix(".nf\n"+roff(cmd.Example)+"\n.fi", ".nf\n\n.fi")},
		{"SEE ALSO", strings.Join(others, ", ")},
	} {
		if section[1] != "" {
			b += ".SH " + section[0] + "\n" + strings.TrimSuffix(section[1], "\n") + "\n"
		}
	}
	return b
}

func manualFlags(flags *pflag.FlagSet) (b string) {
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
		b += ".TP\n" + names + "\n" + roff(usage) + "\n"
	})
	return b
}

var roffEscapes = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n.", "\n"+`\&.`, "\n'", "\n"+`\&'`)

// roff escapes text so that it is printed unchanged.
func roff(text string) string { return roffEscapes.Replace("\n" + text)[1:] }
