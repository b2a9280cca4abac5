package sum

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/cmd/fileproc/internal/output"
	"github.com/fileproc/fileproc/cmd/fileproc/internal/run"
)

// A diskUsage is one run of the subcommand du.
type diskUsage struct {
	*run.Run
	depth                                     int
	summarize, human, total, countLinks, json bool

	mu     sync.Mutex        // guards the fields below
	seen   map[fileID]uint64 // files counted so far, of all arguments: a bit for each of 64 inode numbers
	listed map[string]bool   // absolute paths of the directories counted so far; nil with one argument or --count-links
	top    *top              // the directory whose files are being visited
	tops   []*top            // of --files-from
	grand  usage
}

// A top is a directory that paths are relative to.
type top struct {
	dir, prefix string
	real        string            // the absolute path; not set if listed is nil
	dirs        map[string]*usage // of each directory below it without its subdirectories, by path
}

// A fileID identifies 64 files, whichever of their hard links leads to them. Files of one tree mostly lie close together.
type fileID struct{ device, inodes uint64 }

// A usage is a number of files and their bytes.
type usage struct {
	Files int64 `json:"files"`
	Bytes int64 `json:"bytes"`
}

func (u *usage) add(v usage) { u.Files, u.Bytes = u.Files+v.Files, u.Bytes+v.Bytes }

// DiskUsage returns the subcommand du.
func DiskUsage(r *run.Run) *cobra.Command {
	d := diskUsage{Run: r, seen: map[fileID]uint64{}}
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
	if len(args) == 0 && d.List == "" {
		args = []string{"."}
	}
	if len(args) > 1 && !d.countLinks {
		d.listed = map[string]bool{}
	}
	d.Opts.ReadSize, d.Opts.Stat = fileproc.NoRead, true
	err := d.Each(run.Job{Args: args, Dir: d.begin, Visit: d.visit})
	for _, t := range d.tops {
		d.printDirs(t)
	}
	if d.total && err == nil {
		c := output.Chunk{Out: d.Out}
		d.print(&c, "total", d.grand)
		c.FileDone()
	}
	return err
}

// begin prepares to visit the files of a directory, unless it has been listed. Names in --files-from that are relative to
// the same directory are summed up together.
func (d *diskUsage) begin(dir, prefix string, opts *fileproc.Options) (done func()) {
	if opts.Files == nil {
		opts.SelectDir = func(e fileproc.Entry) bool {
			d.mu.Lock()
			defer d.mu.Unlock()
			return d.usageOf(e.Rel()) != nil
		}
	}
	d.top = &top{dir, prefix, "", map[string]*usage{"": {}}}
	switch i := slices.IndexFunc(d.tops, func(t *top) bool { return t.dir == dir }); {
	case i >= 0:
		d.top = d.tops[i]
	case d.List != "":
		d.tops = append(d.tops, d.top)
	case d.listed != nil:
		var err error
		real, _ := filepath.EvalSymlinks(dir)
		if d.top.real, err = filepath.Abs(cmp.Or(real, dir)); err != nil {
			d.top.real = dir // the directory may then be listed twice
		}
	}
	switch {
	case d.isListed(""):
		return nil
	case d.List != "":
		return func() {}
	}
	return func() {
		for name := range d.top.dirs {
			if d.listed != nil {
				d.listed[filepath.Join(d.top.real, filepath.FromSlash(name))] = true
			}
		}
		d.printDirs(d.top)
	}
}

func (d *diskUsage) isListed(rel string) bool {
	return len(d.listed) > 0 && d.listed[filepath.Join(d.top.real, filepath.FromSlash(rel))]
}

// usageOf returns the usage of a directory, or nil if it has been listed. It adds the directories above too, which
// --files-from need not name.
func (d *diskUsage) usageOf(rel string) *usage {
	dirs := d.top.dirs
	for up := rel; dirs[up] == nil && !d.isListed(up); up = parent(up) {
		dirs[up] = &usage{}
	}
	return dirs[rel]
}

func (d *diskUsage) visit(it *run.Item, c *output.Chunk) error {
	st, err := it.Stat()
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	file := usage{1, st.Size}
	if it.F == nil {
		d.Found.Store(true)
		d.grand.add(file)
		d.print(c, it.Path(), file)
	} else if u := d.usageOf(parent(it.F.Rel())); u != nil && !d.alreadyCounted(st) {
		u.add(file)
	}
	return nil
}

// alreadyCounted records a file, and reports whether it was counted through another hard link. Which of the links'
// directories gets the size depends on the order of the walk.
func (d *diskUsage) alreadyCounted(st fileproc.Stat) bool {
	if d.countLinks || st.Inode == 0 {
		return false
	}
	block, bit := fileID{st.Device, st.Inode / 64}, uint64(1)<<(st.Inode%64)
	known := d.seen[block]&bit != 0
	d.seen[block] |= bit
	return known
}

// printDirs prints the usage of each directory with its subdirectories: by component of the path, each after its contents,
// that of the top last.
func (d *diskUsage) printDirs(t *top) {
	c := output.Chunk{Out: d.Out}
	defer c.FileDone()
	var keys []string // in which an end precedes what may follow it in a longer name, and follows the separator
	for name := range t.dirs {
		if name != "" {
			keys = append(keys, strings.ReplaceAll(name, "/", "\x00")+"\x01")
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		name := strings.ReplaceAll(key[:len(key)-1], "\x00", "/")
		t.dirs[parent(name)].add(*t.dirs[name])
		if d.depth < 0 || strings.Count(name, "/") < d.depth {
			d.print(&c, t.prefix+filepath.FromSlash(name), *t.dirs[name])
		}
	}
	d.Found.Store(d.Found.Load() || t.dirs[""].Files > 0)
	d.grand.add(*t.dirs[""])
	d.print(&c, t.dir, *t.dirs[""])
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
