package sum

import (
	"cmp"
	"fmt"
	"maps"
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

	mu     sync.Mutex                   // guards the fields below
	dirs   map[string]map[string]*usage // of each directory without its subdirectories, by run.Item.Dir and path in that
	top    map[string]*usage            // of dirs, of the directory whose files are being visited
	seen   map[fileID]uint64            // files counted so far, of all arguments: a bit for each of 64 inode numbers
	listed map[string]bool              // absolute paths of the directories counted so far; nil with one argument or --count-links
	real   string                       // the absolute path of the argument; not set if listed is nil
	grand  usage
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
	d := diskUsage{Run: r, dirs: map[string]map[string]*usage{}, seen: map[fileID]uint64{}}
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
	if len(args) > 1 && !d.countLinks {
		d.listed = map[string]bool{}
	}
	if len(args) == 0 && d.List == "" {
		args = []string{"."}
	}
	err := d.Each(run.Job{Args: args, Dir: d.enter, Done: d.leave, Visit: d.visit})
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

// enter is called before a directory is opened. It reports whether that has not been counted yet.
func (d *diskUsage) enter(dir, rel string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.listed != nil && rel == "" {
		real, _ := filepath.EvalSymlinks(dir)
		abs, _ := filepath.Abs(cmp.Or(real, dir))
		d.real = cmp.Or(abs, dir) // its directories may be counted twice if it is relative
	}
	if d.listed[filepath.Join(d.real, filepath.FromSlash(rel))] {
		return false
	}
	if d.dirs[dir] == nil {
		d.dirs[dir] = map[string]*usage{"": {}}
	}
	d.top = d.dirs[dir]
	d.usageOf(rel)
	return true
}

// leave is called after the files of a directory have been visited. A list may come back to it.
func (d *diskUsage) leave(dir string) {
	d.mu.Lock() // files behind it may be visited
	defer d.mu.Unlock()
	if d.List != "" {
		return
	}
	d.printDirs(dir)
	for rel := range d.top {
		if d.listed != nil {
			d.listed[filepath.Join(d.real, filepath.FromSlash(rel))] = true
		}
	}
	delete(d.dirs, dir)
}

// usageOf returns the usage of a directory. It adds the directories above too, which --files-from need not name.
func (d *diskUsage) usageOf(rel string) *usage {
	for up := rel; d.top[up] == nil; up = parent(up) {
		d.top[up] = &usage{}
	}
	return d.top[rel]
}

func (d *diskUsage) visit(it *run.Item, c *output.Chunk) error {
	st, err := it.Stat()
	if err != nil {
		return err
	}
	file, path := usage{1, st.Size}, it.Dir
	if it.F != nil {
		path = it.F.Rel() // a new string, made before the lock is taken
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if it.F == nil {
		d.Found.Store(true)
		d.grand.add(file)
		d.print(c, path, file)
	} else if u := d.usageOf(parent(path)); !d.alreadyCounted(st) {
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

// printDirs prints the usage of each directory with its subdirectories: by component of the path, each after its contents,
// that of the top last.
func (d *diskUsage) printDirs(top string) {
	c := output.Chunk{Out: d.Out}
	defer c.FileDone()
	dirs := d.dirs[top]
	var keys []string // in which an end precedes what may follow it in a longer name, and follows the separator
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
