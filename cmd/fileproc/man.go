package main

import (
	"cmp"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

func manCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write the manual pages into a directory",
		Long:  "Write the manual pages, fileproc.1 and one for each subcommand, into DIR, which is created if it does not exist.",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			escapeUsage(cmd.Root())
			return cmp.Or(os.MkdirAll(args[0], 0o777), doc.GenManTree(cmd.Root(), &doc.GenManHeader{Source: "fileproc", Manual: "fileproc"}, args[0]))
		},
	}
}

var markdown = strings.NewReplacer(`\`, `\\`, "*", `\*`, "_", `\_`)

// escapeUsage keeps patterns such as **/*.md as they are: cobra/doc takes the text of a flag for Markdown.
func escapeUsage(cmd *cobra.Command) {
	cmd.DisableAutoGenTag = true
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) { f.Usage = markdown.Replace(f.Usage) })
	for _, sub := range cmd.Commands() {
		escapeUsage(sub)
	}
}
