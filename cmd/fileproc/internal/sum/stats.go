package sum

import (
	"cmp"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/cmd/fileproc/internal/output"
	"github.com/fileproc/fileproc/cmd/fileproc/internal/run"
)

// Stats returns the subcommand stats.
func Stats(r *run.Run) *cobra.Command {
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
			counts := make([]census, r.Opts.Workers)
			err := r.Each(run.Job{Args: args, Visit: func(it *run.Item, _ *output.Chunk) error {
				st, err := it.Stat()
				if err != nil {
					return err
				}
				counts[it.Worker].count(it.Name(), usage{1, st.Size})
				return nil
			}})
			all := &counts[0]
			for i := range counts[1:] {
				all.merge(&counts[i+1])
			}
			r.Found.Store(all.total.Files > 0)
			r.Out.EndProgress()
			if asJSON {
				r.Out.Write(all.json(r.Totals.Directories, top))
			} else {
				r.Out.Write(all.tables(r.Totals.Directories, top))
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

// A census holds the counts of one worker.
type census struct {
	total    usage
	sizes    [31]usage // by class
	suffixes map[string]*usage
	_        [64]byte // keeps two workers' counts on different cache lines
}

func (c *census) count(name string, u usage) {
	c.total.add(u)
	c.sizes[classOf(u.Bytes)].add(u)
	c.addSuffix(suffixOf(name), u)
}

func (c *census) addSuffix(suffix string, u usage) {
	if c.suffixes[suffix] == nil {
		if c.suffixes == nil {
			c.suffixes = map[string]*usage{}
		}
		c.suffixes[strings.Clone(suffix)] = &usage{}
	}
	c.suffixes[suffix].add(u)
}

// suffixOf returns a name from its last dot on. A leading dot does not begin a suffix.
func suffixOf(name string) string {
	if i := strings.LastIndexByte(name, '.'); i > 0 {
		return name[i:]
	}
	return ""
}

func (c *census) merge(d *census) {
	c.total.add(d.total)
	for i, u := range d.sizes {
		c.sizes[i].add(u)
	}
	for suffix, u := range d.suffixes {
		c.addSuffix(suffix, *u)
	}
}

// classOf returns the class of a size: 0 for 0 bytes, 1 for up to 64, and one more for each factor of 4.
func classOf(size int64) int {
	if size == 0 {
		return 0
	}
	return 1 + (max(bits.Len64(uint64(size-1)), 6)-5)/2
}

// classMax returns the largest size of a class.
func classMax(class int) int64 {
	if class == 0 {
		return 0
	}
	return 1 << min(4+2*class, 62)
}

// classes returns the sums of the classes up to the largest one that has files.
func (c *census) classes() []usage {
	last := len(c.sizes) - 1
	for last > 0 && c.sizes[last].Files == 0 {
		last--
	}
	return c.sizes[:last+1]
}

// bySize returns the top suffixes, the one with the most bytes first, and the sum of the others.
func (c *census) bySize(top int) (names []string, rest usage) {
	names = slices.SortedFunc(maps.Keys(c.suffixes), func(x, y string) int {
		a, b := c.suffixes[x], c.suffixes[y]
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.Files, a.Files), cmp.Compare(x, y))
	})
	if top > 0 && top < len(names) {
		for _, n := range names[top:] {
			rest.add(*c.suffixes[n])
		}
		names = names[:top]
	}
	return names, rest
}

func (c *census) tables(directories int64, top int) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "%d files, %d bytes (%s), %d directories\n", c.total.Files, c.total.Bytes, output.HumanSize(c.total.Bytes),
		directories)
	if c.total.Files == 0 {
		return []byte(b.String())
	}
	t := output.NewTable(table.Row{"up to", "files", "", "bytes"})
	for i, u := range c.classes() {
		t.AppendRow(table.Row{output.HumanSize(classMax(i)), u.Files, c.share(u), output.HumanSize(u.Bytes)})
	}
	b.WriteString("\n" + t.Render() + "\n")
	t = output.NewTable(table.Row{"suffix", "files", "", "bytes"})
	names, rest := c.bySize(top)
	for _, name := range names {
		u := c.suffixes[name]
		t.AppendRow(table.Row{output.Printable(cmp.Or(name, "(none)")), u.Files, c.share(*u), output.HumanSize(u.Bytes)})
	}
	if rest.Files > 0 {
		more := fmt.Sprintf("(%d more)", len(c.suffixes)-len(names))
		t.AppendRow(table.Row{more, rest.Files, c.share(rest), output.HumanSize(rest.Bytes)})
	}
	b.WriteString("\n" + t.Render() + "\n")
	return []byte(b.String())
}

// share draws the share of u in all files.
func (c *census) share(u usage) string {
	const width = 20
	return strings.Repeat("#", int((u.Files*width+c.total.Files-1)/c.total.Files))
}

// json returns the counts as an object.
func (c *census) json(directories int64, top int) []byte {
	type class struct {
		UpTo int64 `json:"up_to"`
		usage
	}
	type suffix struct {
		Suffix any `json:"suffix"`
		usage
	}
	v := struct {
		usage
		Directories int64    `json:"directories"`
		Sizes       []class  `json:"sizes"`
		Suffixes    []suffix `json:"suffixes"`
	}{usage: c.total, Directories: directories, Suffixes: []suffix{}} // an array in JSON also if there are none
	for i, u := range c.classes() {
		v.Sizes = append(v.Sizes, class{classMax(i), u})
	}
	names, _ := c.bySize(top)
	for _, name := range names {
		v.Suffixes = append(v.Suffixes, suffix{output.JSONPath(name), *c.suffixes[name]})
	}
	var line output.Chunk
	line.JSON(v) // numbers and strings: no error
	return line.B
}
