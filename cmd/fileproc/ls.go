package main

import (
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/fileproc/fileproc"
)

func (a *app) lsCommand() *cobra.Command {
	var long, null, asJSON, human bool
	cmd := &cobra.Command{
		Use:   "ls [flags] [DIR]...",
		Short: "List files",
		Long: `List the regular files below the directories (default the working directory), in no particular order. As with
fd -t f, hidden and ignored files are left out.`,
		Example: "  fileproc ls --suffix .go --newer 7d\n  fileproc ls -u -0 | xargs -0 wc -l",
		RunE: func(_ *cobra.Command, args []string) error {
			opts := a.sel.opts
			opts.ReadSize = fileproc.NoRead
			path := a.out.style(pathColor)
			const blanks = "             " // as wide as a size
			end := byte('\n')
			if null {
				end = 0
			}
			return a.each(job{args: args, opts: opts, visit: func(it *item, c *chunk) error {
				var st fileproc.Stat
				if long || asJSON {
					var err error
					if st, err = it.stat(); err != nil {
						return err
					}
				}
				a.found.Store(true)
				if asJSON {
					return c.json(struct {
						Path     any    `json:"path"`
						Size     int64  `json:"size"`
						Modified string `json:"modified"`
						Mode     string `json:"mode"`
					}{jsonPath(it.path()), st.Size, st.ModTime.UTC().Format(time.RFC3339Nano), st.Mode.String()})
				}
				if long {
					size := strconv.FormatInt(st.Size, 10)
					if human {
						size = humanSize(st.Size)
					}
					c.b = append(c.b, st.Mode.String()...)
					c.b = append(c.b, blanks[min(len(size), len(blanks)):]...)
					c.b = append(append(c.b, size...), ' ')
					c.b = st.ModTime.AppendFormat(c.b, "2006-01-02 15:04 ")
				}
				name := it.path()
				if !null {
					name = a.out.shown(name)
				}
				c.b = append(path.append(c.b, name), end)
				return nil
			}})
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&long, "long", "l", false, "print mode, size and modification time before each path")
	f.BoolVar(&human, "human-readable", false, "with --long: print sizes as 1.5K, 20M")
	f.BoolVarP(&null, "print0", "0", false, "end each path with a NUL byte instead of a newline")
	f.BoolVar(&asJSON, "json", false, "print one JSON object per line: path, size, modified, mode")
	cmd.MarkFlagsMutuallyExclusive("json", "long")
	cmd.MarkFlagsMutuallyExclusive("json", "print0")
	a.sel.flags(cmd, false, false)
	a.sel.sortFlag(cmd)
	return cmd
}
