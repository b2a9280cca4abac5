package sum

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/cmd/fileproc/internal/output"
	"github.com/fileproc/fileproc/cmd/fileproc/internal/run"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"
)

// A diskUsage is one run of the subcommand du.
type diskUsage struct {
	*run.Run
	depth                                     int
	summarize, human, total, countLinks, json bool
	first                                     map[string]*argument // by path
	mu                                        sync.Mutex           // guards the fields below
	args                                      map[string]*argument // by run.Item.Dir; two names of a directory have one
	seen                                      map[fileID]*dir      // where a file with several hard links counts
	grand                                     usage
}

// An argument is also a directory of --files-from.
type argument struct {
	order   int
	path    string          // absolute; "" if it is no directory
	dirs    map[string]*dir // by relative path; an argument that is a file is ""
	within  []*argument     // earlier ones that have entered this directory
	printed bool            // each of dirs has what its subdirectories have
}

type dir struct {
	usage
	*argument
}

// A fileID identifies a file, whichever of its hard links leads to it.
type fileID struct{ device, inode uint64 }

// A usage is a number of files and their bytes.
type usage struct {
	Files int64 `json:"files"`
	Bytes int64 `json:"bytes"`
}

func (u *usage) add(v usage) { u.Files, u.Bytes = u.Files+v.Files, u.Bytes+v.Bytes }

// DiskUsage returns the subcommand du.
func DiskUsage(r *run.Run) *cobra.Command {
	d := diskUsage{Run: r, first: map[string]*argument{}, args: map[string]*argument{}, seen: map[fileID]*dir{}}
	cmd := &cobra.Command{
		Use:   "du [flags] [DIR|FILE]...",
		Short: "Sum up file sizes by directory",
		Long: `Print the size in bytes of the regular files below each directory, as du --bytes of coreutils 9.2 and later does.
The size is a file's length, not the blocks it takes on the disk. A file with several hard links counts once. Hidden and
ignored files count; directories and symbolic links themselves do not. A directory that lies within another argument is
printed and counted only once. A file that is an argument itself counts each time.`,
		Example: "  fileproc du -h -d 1\n  fileproc du --suffix .log --older 30d /var",
		RunE:    func(_ *cobra.Command, args []string) error { return d.run(args) },
	}
	f := cmd.Flags()
	f.IntVarP(&d.depth, "max-depth", "d", -1, "print directories down to `N` levels below the arguments; deeper ones still count (default all)")
	f.Lookup("max-depth").DefValue = "0" // so that the help does not show it
	f.BoolVarP(&d.summarize, "summarize", "s", false, "print only the sum of each argument")
	f.BoolVarP(&d.human, "human-readable", "h", false, "print sizes as 1.5K, 20M")
	f.Bool("help", false, "help for du") // without cobra's -h
	f.BoolVarP(&d.total, "total", "c", false, "print a grand total")
	f.BoolVarP(&d.countLinks, "count-links", "l", false, "count a file with several hard links, and a directory within another argument, each time")
	f.BoolVar(&d.json, "json", false, "print one JSON object per line: path, bytes, files")
	r.Flags(cmd, run.All, "max-depth summarize", "json human-readable")
	return cmd
}

func (d *diskUsage) run(args []string) error {
	if d.summarize {
		d.depth = 0
	}
	d.Opts.ReadSize, d.Opts.Stat = fileproc.NoRead, true
	if d.List == "" {
		d.Opts.SelectDir = d.enter
		if len(args) == 0 {
			args = []string{"."}
		}
	}
	j := run.Job{Visit: d.visit}
	for _, arg := range args { // an argument that is given twice is processed once and, with --count-links, printed each time
		path := ""
		if info, err := os.Stat(arg); err == nil && info.IsDir() {
			real, _ := filepath.EvalSymlinks(arg)
			path, _ = filepath.Abs(cmp.Or(real, arg)) // if there is none, its directories may be counted twice
		}
		if d.args[arg] = cmp.Or(d.args[arg], d.first[path]); d.args[arg] != nil {
			continue
		}
		j.Args = append(j.Args, arg)
		if a := d.argument(arg); path != "" {
			a.path, d.first[path] = path, a
			a.dir("")
		}
	}
	err := d.Each(j)
	d.mu.Lock() // after an interrupt, files may still be visited
	defer d.mu.Unlock()
	if err != nil && d.Ctx.Err() == nil {
		return err
	}
	if d.List != "" {
		args = slices.Sorted(maps.Keys(d.args))
	}
	c := output.Chunk{Out: d.Out}
	defer c.FileDone()
	for _, arg := range args {
		a := d.args[arg]
		if d.countLinks || a.path == "" || !a.printed && !slices.ContainsFunc(a.within, func(b *argument) bool { return b.printed }) {
			d.printDirs(&c, arg, a)
		}
	}
	if d.total && err == nil {
		d.print(&c, "total", d.grand)
	}
	return err
}

func (d *diskUsage) argument(name string) *argument {
	if d.args[name] == nil {
		d.args[name] = &argument{order: len(d.args), dirs: map[string]*dir{}}
	}
	return d.args[name]
}

// dir returns a directory of the argument. It adds the directories above too, which --files-from need not name.
func (a *argument) dir(rel string) *dir {
	for up := rel; a.dirs[up] == nil; up = parent(up) {
		a.dirs[up] = &dir{argument: a}
	}
	return a.dirs[rel]
}

// enter is Options.SelectDir. A directory that is an argument itself counts for the first one.
func (d *diskUsage) enter(e fileproc.Entry) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.args[e.Root()]
	if b := d.first[filepath.Join(a.path, filepath.FromSlash(e.Rel()))]; b != nil && !d.countLinks {
		if b.order < a.order {
			return false
		}
		b.within = append(b.within, a)
	}
	a.dir(e.Rel())
	return true
}

func (d *diskUsage) visit(it *run.Item, _ *output.Chunk) error {
	st, err := it.F.Stat()
	if err != nil {
		return err
	}
	above := parent(it.F.Rel()) // a new string, made before the lock is taken
	d.mu.Lock()
	defer d.mu.Unlock()
	u := d.argument(it.Dir).dir(above)
	d.count(u, st, it.IsArgument())
	return nil
}

// count adds a file to u, unless it has counted through another hard link. It counts for the first argument; which of that one's
// directories has it depends on the order of the walk.
func (d *diskUsage) count(u *dir, st fileproc.Stat, isArgument bool) {
	if st.Inode != 0 && !isArgument && !d.countLinks && (st.Links != 1 || d.List != "" || d.Opts.Symlinks != fileproc.SymlinksSkip) {
		id := fileID{st.Device, st.Inode}
		if before := d.seen[id]; before != nil {
			if before.order <= u.order {
				return
			}
			before.add(usage{-1, -st.Size})
		}
		d.seen[id] = u
	}
	u.add(usage{1, st.Size})
}

// printDirs prints the usage of each directory with its subdirectories, in the order of the components of the paths: each
// directory comes after its contents, top comes last.
func (d *diskUsage) printDirs(c *output.Chunk, top string, a *argument) {
	for _, name := range slices.SortedFunc(maps.Keys(a.dirs), func(x, y string) int {
		if isBelow(x, y) || isBelow(y, x) {
			return len(y) - len(x)
		}
		return fileproc.ComparePaths(x, y)
	}) {
		u, path := a.dirs[name], cmp.Or(top, ".")
		if name == "" {
			d.grand.add(u.usage)
			d.Found.Store(d.Found.Load() || u.Files > 0)
		} else if path = run.Join(top, name); !a.printed {
			a.dirs[parent(name)].add(u.usage)
		}
		if name == "" || d.depth < 0 || strings.Count(name, "/") < d.depth {
			d.print(c, path, u.usage)
		}
	}
	a.printed = true
}

// isBelow reports whether a relative path lies below dir.
func isBelow(path, dir string) bool {
	return dir == "" || strings.HasPrefix(path, dir) && strings.HasPrefix(path[len(dir):], "/")
}

func (d *diskUsage) print(c *output.Chunk, path string, u usage) {
	if d.json {
		c.B = fmt.Appendf(c.B, `{"path":%s,"bytes":%d,"files":%d}`+"\n", output.Path(path), u.Bytes, u.Files)
	} else {
		c.B = append(c.B, output.Size(u.Bytes, d.human)+"\t"+d.Out.Shown(path)+"\n"...)
	}
	c.LineDone()
}

// parent returns the directory of a slash-separated relative path, "" for the root.
func parent(rel string) string { return rel[:max(strings.LastIndexByte(rel, '/'), 0)] }

// Stats returns the subcommand stats.
func Stats(r *run.Run) *cobra.Command {
	s := summary{Sizes: []sizes{{}}, all: map[string]*usage{}}
	for shift := 6; shift < 63; shift += 2 {
		s.Sizes = append(s.Sizes, sizes{UpTo: int64(1) << shift})
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
				st, err := it.F.Stat()
				if err == nil {
					s.count(it.F.Name(), usage{1, st.Size})
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
	Directories int64             `json:"directories"`
	Sizes       []sizes           `json:"sizes"`    // of the classes up to the largest one that has files
	Suffixes    []suffixes        `json:"suffixes"` // those with the most bytes first
	mu          sync.Mutex        // guards usage, Sizes and all
	all         map[string]*usage // by suffix
	rest        usage             // of the suffixes that are left out
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
