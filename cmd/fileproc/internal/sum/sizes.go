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
	mu                                        sync.Mutex                   // guards the fields below
	dirs                                      map[string]map[string]*usage // of each directory without its subdirectories, by run.Item.Dir and path in that
	seen                                      map[fileID]uint64            // files counted so far, of all arguments: a bit for each of 64 inode numbers
	listed                                    map[string]bool              // absolute paths of the directories counted so far, without --count-links
	real                                      string                       // the absolute path of the argument, if it is a directory
	grand                                     usage
}

// A fileID identifies 64 files, whichever of their hard links leads to them. The inode numbers of one tree mostly lie close together.
type fileID struct{ device, inodes uint64 }

// A usage is a number of files and their bytes.
type usage struct {
	Files int64 `json:"files"`
	Bytes int64 `json:"bytes"`
}

func (u *usage) add(v usage) { u.Files, u.Bytes = u.Files+v.Files, u.Bytes+v.Bytes }

// DiskUsage returns the subcommand du.
func DiskUsage(r *run.Run) *cobra.Command {
	d := diskUsage{Run: r, dirs: map[string]map[string]*usage{}, listed: map[string]bool{}, seen: map[fileID]uint64{}}
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
	var err error
	if d.List != "" {
		err = d.Each(run.Job{Args: args, Visit: d.visit})
	} else if len(args) == 0 {
		args = []string{"."}
	}
	d.Opts.SelectDir = d.enter
	for i := 0; err == nil && i < len(args); i++ { // a run for each: what two arguments have in common counts for the first
		err = d.sumUp(args[i])
	}
	for _, dir := range slices.Sorted(maps.Keys(d.dirs)) { // of --files-from
		d.printDirs(dir)
	}
	if d.total && err == nil {
		c := output.Chunk{Out: d.Out}
		d.print(&c, "total", d.grand)
		c.FileDone()
	}
	return err
}

// sumUp prints an argument, unless it lies within an earlier one.
func (d *diskUsage) sumUp(arg string) error {
	info, err := os.Stat(arg)
	isDir := err == nil && info.IsDir()
	if isDir {
		real, _ := filepath.EvalSymlinks(arg)
		d.real, _ = filepath.Abs(cmp.Or(real, arg)) // if there is none, its directories may be counted twice
		if d.listed[d.real] {
			return nil
		}
		d.usageOf(arg, "")
	}
	err = d.Each(run.Job{Args: []string{arg}, Visit: d.visit})
	d.mu.Lock() // after an interrupt, files may still be visited
	defer d.mu.Unlock()
	if isDir && (err == nil || d.Ctx.Err() != nil) {
		d.printDirs(arg)
	}
	for rel := range d.dirs[arg] {
		d.listed[d.path(rel)] = !d.countLinks
	}
	delete(d.dirs, arg)
	return err
}

// path returns the absolute path of a directory below the argument.
func (d *diskUsage) path(rel string) string { return filepath.Join(d.real, filepath.FromSlash(rel)) }

// enter is Options.SelectDir.
func (d *diskUsage) enter(e fileproc.Entry) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.listed[d.path(e.Rel())] {
		return false
	}
	d.usageOf(e.Root(), e.Rel())
	return true
}

// usageOf returns the usage of a directory. It adds the directories above too, which --files-from need not name.
func (d *diskUsage) usageOf(top, rel string) *usage {
	dirs := d.dirs[top]
	if dirs == nil {
		dirs = map[string]*usage{"": {}}
		d.dirs[top] = dirs
	}
	for up := rel; dirs[up] == nil; up = parent(up) {
		dirs[up] = &usage{}
	}
	return dirs[rel]
}

func (d *diskUsage) visit(it *run.Item, c *output.Chunk) error {
	st, err := it.F.Stat()
	if err != nil {
		return err
	}
	file, rel, isArgument := usage{1, st.Size}, it.F.Rel(), it.IsArgument() // new strings, made before the lock is taken
	d.mu.Lock()
	defer d.mu.Unlock()
	if isArgument {
		d.Found.Store(true)
		d.grand.add(file)
		d.print(c, it.Dir, file)
	} else if u := d.usageOf(it.Dir, parent(rel)); !d.alreadyCounted(st) {
		u.add(file)
	}
	return nil
}

// alreadyCounted records a file, and reports whether it was counted through another hard link. Which of the links' directories
// gets the size depends on the order of the walk.
func (d *diskUsage) alreadyCounted(st fileproc.Stat) bool {
	if d.countLinks || st.Inode == 0 {
		return false
	}
	block, bit := fileID{st.Device, st.Inode / 64}, uint64(1)<<(st.Inode%64)
	known := d.seen[block]&bit != 0
	d.seen[block] |= bit
	return known
}

// printDirs prints the usage of each directory with its subdirectories, in the order of the components of the paths: each
// directory comes after its contents, top comes last.
func (d *diskUsage) printDirs(top string) {
	c := output.Chunk{Out: d.Out}
	defer c.FileDone()
	dirs := d.dirs[top]
	var keys []string // in a key, the end of a name sorts after the separator, and before what may follow in a longer name
	for name := range dirs {
		if name != "" {
			keys = append(keys, strings.ReplaceAll(name, "/", "\x00")+"\x01")
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		name := strings.ReplaceAll(key[:len(key)-1], "\x00", "/")
		dirs[parent(name)].add(*dirs[name])
		if d.depth < 0 || strings.Count(name, "/") < d.depth {
			d.print(&c, run.Join(top, name), *dirs[name])
		}
	}
	d.Found.Store(d.Found.Load() || dirs[""].Files > 0)
	d.grand.add(*dirs[""])
	d.print(&c, cmp.Or(top, "."), *dirs[""])
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
