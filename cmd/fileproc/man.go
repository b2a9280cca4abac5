package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func manCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write the manual pages into a directory",
		Long:  "Write the manual pages, fileproc.1 and one for each subcommand, into DIR, which is made if it is not there.",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o777); err != nil {
				return err
			}
			return writeManuals(cmd.Root(), args[0])
		},
	}
}

// writeManuals does by hand what cobra/doc does by way of Markdown, which changes patterns such as **/*.md, and whose
// libraries take a tenth of the time of a start.
func writeManuals(cmd *cobra.Command, dir string) error {
	cmd.InitDefaultHelpFlag()
	name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
	if err := os.WriteFile(filepath.Join(dir, name+".1"), []byte(manual(cmd, name)), 0o666); err != nil {
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

// manual returns the page of a command, in roff.
func manual(cmd *cobra.Command, name string) string {
	var b strings.Builder
	section := func(title, text string) {
		if text != "" {
			fmt.Fprintf(&b, ".SH %s\n%s\n", title, strings.TrimSuffix(text, "\n"))
		}
	}
	about := cmd.Long
	if about == "" {
		about = cmd.Short
	}
	fmt.Fprintf(&b, ".TH %s 1 \"\" fileproc fileproc\n.nh\n.ad l\n", strings.ToUpper(name))
	section("NAME", roff(name)+` \- `+roff(cmd.Short))
	section("SYNOPSIS", `\fB`+roff(cmd.UseLine())+`\fP`)
	section("DESCRIPTION", paragraphs(about))
	section("OPTIONS", manualFlags(cmd.NonInheritedFlags()))
	section("OPTIONS OF ALL COMMANDS", manualFlags(cmd.InheritedFlags()))
	if cmd.Example != "" {
		section("EXAMPLES", ".nf\n"+roff(cmd.Example)+"\n.fi")
	}
	var others []string
	if cmd.HasParent() {
		others = append(others, strings.ReplaceAll(cmd.Parent().CommandPath(), " ", "-"))
	}
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			others = append(others, name+"-"+sub.Name())
		}
	}
	for i, other := range others {
		others[i] = `\fB` + roff(other) + `\fP(1)`
	}
	section("SEE ALSO", strings.Join(others, ", "))
	return b.String()
}

// paragraphs returns text in which empty lines divide paragraphs. One that is indented is left as it is.
func paragraphs(text string) string {
	var b strings.Builder
	for i, p := range strings.Split(text, "\n\n") {
		if i > 0 {
			b.WriteString(".PP\n")
		}
		if strings.HasPrefix(p, " ") {
			b.WriteString(".nf\n" + roff(p) + "\n.fi\n")
			continue
		}
		b.WriteString(roff(p) + "\n")
	}
	return b.String()
}

func manualFlags(flags *pflag.FlagSet) string {
	var b strings.Builder
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		b.WriteString(".TP\n")
		if f.Shorthand != "" {
			b.WriteString(`\fB\-` + roff(f.Shorthand) + `\fP, `)
		}
		b.WriteString(`\fB\-\-` + roff(f.Name) + `\fP`)
		if value != "" && f.NoOptDefVal == "" {
			b.WriteString(` \fI` + roff(value) + `\fP`)
		}
		b.WriteString("\n" + roff(usage))
		switch f.DefValue {
		case "", "0", "-1", "[]", "false":
		default:
			b.WriteString(" (default " + roff(f.DefValue) + ")")
		}
		b.WriteString("\n")
	})
	return b.String()
}

// roff returns text that stands for itself.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
