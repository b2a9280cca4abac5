package sum

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/cmd/fileproc/internal/output"
	"github.com/fileproc/fileproc/cmd/fileproc/internal/run"
)

// Stats returns the subcommand stats.
func Stats(r *run.Run) *cobra.Command {
	s := summary{Sizes: []sizes{{}}, all: map[string]*usage{}}
	for shift := 6; shift < 63; shift += 2 {
		s.Sizes = append(s.Sizes, sizes{UpTo: 1 << shift})
	}
	s.Sizes = append(s.Sizes, sizes{UpTo: math.MaxInt64})
	var asJSON bool
	var top int
	cmd := &cobra.Command{
		Use:   "stats [flags] [DIR|FILE]...",
		Short: "Count files and bytes, by size and by suffix",
		Long: `Print the number and the bytes of the regular files below the directories, by size class and by suffix of the name.
Hidden and ignored files are left out. A file's size is its length, as in ls.`,
		Example: "  fileproc stats --exclude '**/testdata' src",
		RunE: func(_ *cobra.Command, args []string) error {
			r.Opts.ReadSize = fileproc.NoRead
			err := r.Each(run.Job{Args: args, Visit: func(it *run.Item, _ *output.Chunk) error {
				name := filepath.Base(it.Dir)
				if it.F != nil {
					name = it.F.Name()
				}
				st, err := it.Stat()
				if err == nil {
					s.count(name, usage{1, st.Size})
				}
				return err
			}})
			s.Directories = r.Totals.Directories
			s.complete(top)
			r.Found.Store(s.Files > 0)
			if asJSON {
				fmt.Fprintln(r.Out, output.JSON(&s))
			} else {
				s.tables(r.Out)
			}
			return err
		},
	}
	f := cmd.Flags()
	f.BoolVar(&asJSON, "json", false, "print one JSON object: files, bytes, directories, sizes, suffixes")
	f.IntVar(&top, "top", 10, "print the `N` suffixes with the most bytes; 0 prints all")
	r.Flags(cmd, 0)
	return cmd
}

// A summary is what stats prints.
type summary struct {
	usage
	Directories int64      `json:"directories"`
	Sizes       []sizes    `json:"sizes"`    // of the classes up to the largest one that has files
	Suffixes    []suffixes `json:"suffixes"` // those with the most bytes first

	mu   sync.Mutex        // guards usage, Sizes and all
	all  map[string]*usage // by suffix
	rest usage             // of the suffixes that are left out
}

type sizes struct {
	UpTo int64 `json:"up_to"`
	usage
}

type suffixes struct {
	Suffix json.RawMessage `json:"suffix"`
	usage
	text string
}

func (s *summary) count(name string, u usage) {
	suffix := "" // a name from its last dot on; a leading dot does not begin a suffix
	if i := strings.LastIndexByte(name, '.'); i > 0 {
		suffix = name[i:]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(u)
	s.Sizes[slices.IndexFunc(s.Sizes, func(c sizes) bool { return u.Bytes <= c.UpTo })].add(u)
	if s.all[suffix] == nil {
		s.all[strings.Clone(suffix)] = &usage{}
	}
	s.all[suffix].add(u)
}

// complete fills in what is printed.
func (s *summary) complete(top int) {
	for len(s.Sizes) > 1 && s.Sizes[len(s.Sizes)-1].Files == 0 {
		s.Sizes = s.Sizes[:len(s.Sizes)-1]
	}
	s.Suffixes = []suffixes{} // an array in JSON also if there are none
	for _, name := range slices.SortedFunc(maps.Keys(s.all), func(x, y string) int {
		a, b := s.all[x], s.all[y]
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.Files, a.Files), cmp.Compare(x, y))
	}) {
		if top > 0 && len(s.Suffixes) == top {
			s.rest.add(*s.all[name])
		} else {
			s.Suffixes = append(s.Suffixes, suffixes{json.RawMessage(output.Path(name)), *s.all[name], output.Printable(cmp.Or(name, "(none)"))})
		}
	}
}

func (s *summary) tables(out io.Writer) {
	fmt.Fprintf(out, "%s, %s (%s), %s\n", output.Count(s.Files, "file", "files"), output.Count(s.Bytes, "byte", "bytes"),
		output.Size(s.Bytes, true), output.Count(s.Directories, "directory", "directories"))
	if s.Files == 0 {
		return
	}
	row := func(t table.Writer, name string, u usage) {
		const width = 20 // of the share in all files
		share := strings.Repeat("#", int((u.Files*width+s.Files-1)/s.Files))
		t.AppendRow(table.Row{name, u.Files, share, output.Size(u.Bytes, true)})
	}
	t := output.NewTable(table.Row{"up to", "files", "", "bytes"})
	for _, u := range s.Sizes {
		row(t, output.Size(u.UpTo, true), u.usage)
	}
	fmt.Fprintf(out, "\n%s\n", t.Render())
	t = output.NewTable(table.Row{"suffix", "files", "", "bytes"})
	for _, u := range s.Suffixes {
		row(t, u.text, u.usage)
	}
	if s.rest.Files > 0 {
		row(t, fmt.Sprintf("(%d more)", len(s.all)-len(s.Suffixes)), s.rest)
	}
	fmt.Fprintf(out, "\n%s\n", t.Render())
}
