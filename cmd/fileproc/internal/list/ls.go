// Package list has the subcommand ls.
package list

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/cmd/fileproc/internal/output"
	"github.com/fileproc/fileproc/cmd/fileproc/internal/run"
)

// Command returns the subcommand ls.
func Command(r *run.Run) *cobra.Command {
	var long, asJSON, human bool
	cmd := &cobra.Command{
		Use:   "ls [flags] [DIR]...",
		Short: "List files",
		Long: `List the regular files below the directories (default the working directory), in no particular order. As with
fd -t f, hidden and ignored files are left out.`,
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
					if st, err = it.Stat(); err != nil {
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
