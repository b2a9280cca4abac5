package main

import (
	"fmt"
	"iter"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/fileproc/fileproc"
)

func (a *app) duCommand() *cobra.Command {
	d := diskUsage{app: a, seen: map[fileID]uint64{}}
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
	cmd.MarkFlagsMutuallyExclusive("max-depth", "summarize")
	cmd.MarkFlagsMutuallyExclusive("json", "human-readable")
	a.sel.flags(cmd, true, false)
	return cmd
}

type diskUsage struct {
	app                                       *app
	depth                                     int
	summarize, human, total, countLinks, json bool

	seen   map[fileID]uint64 // files counted so far, of all arguments: a bit for each of 64 inode numbers
	listed map[string]bool   // absolute paths of the directories counted so far; nil with one argument or --count-links
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

func (d *diskUsage) run(args []string) error {
	if d.summarize {
		d.depth = 0
	}
	switch {
	case d.app.sel.list.file != "":
		return d.runListed(args)
	case len(args) == 0:
		args = []string{"."}
	}
	if len(args) > 1 && !d.countLinks {
		d.listed = map[string]bool{}
	}
	for _, arg := range args {
		if err := d.argument(arg); err != nil {
			return err
		}
	}
	d.printTotal()
	return nil
}

func (d *diskUsage) printTotal() {
	if d.total {
		d.print("total", d.grand)
	}
}

// runListed sums up the files of --files-from by directory, for each directory that their paths are relative to.
func (d *diskUsage) runListed(args []string) error {
	if len(args) > 0 {
		return errFilesAndArguments
	}
	type top struct {
		dir, prefix string
		dirs        map[string]*usage
	}
	var tops []top
	err := d.app.eachListed(func(dir, prefix string, names iter.Seq[string]) error {
		i := slices.IndexFunc(tops, func(t top) bool { return t.dir == dir })
		if i < 0 {
			i = len(tops)
			tops = append(tops, top{dir, prefix, map[string]*usage{"": {}}})
		}
		opts, done := d.app.runOptions(dir, d.app.sel.opts)
		opts.Files = names
		return done(d.walk(dir, opts, func(string) bool { return false }, tops[i].dirs))
	})
	for _, t := range tops {
		d.printDirs(t.dir, t.prefix, t.dirs)
	}
	d.printTotal()
	return err
}

func (d *diskUsage) argument(arg string) error {
	a := d.app
	dir, prefix, err := directory(arg)
	if dir == "" {
		var st fileproc.Stat
		if err == nil {
			st, err = (&item{name: arg}).stat()
		}
		if err != nil {
			a.fail(err)
			return nil
		}
		a.found.Store(true)
		a.totals.Found++
		a.totals.Processed++
		u := usage{1, st.Size}
		d.print(arg, u)
		d.grand.add(u)
		return nil
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		real = dir // the directory may then be listed twice
	}
	if real, err = filepath.Abs(real); err != nil {
		return err
	}
	listed := func(rel string) bool {
		return len(d.listed) > 0 && d.listed[filepath.Join(real, filepath.FromSlash(rel))]
	}
	if listed("") {
		return nil
	}
	opts, done := a.runOptions(dir, a.sel.opts)
	dirs := map[string]*usage{"": {}}
	err = done(d.walk(dir, opts, listed, dirs))
	if d.listed != nil {
		for name := range dirs {
			d.listed[filepath.Join(real, filepath.FromSlash(name))] = true
		}
	}
	d.printDirs(arg, prefix, dirs)
	return err
}

// printDirs prints the usage of each directory with its subdirectories, that of the argument last.
func (d *diskUsage) printDirs(arg, prefix string, dirs map[string]*usage) {
	a := d.app
	for _, name := range slices.SortedFunc(maps.Keys(dirs), compareDepthFirst) {
		u := dirs[name]
		if u.Files > 0 {
			a.found.Store(true)
		}
		if name == "" {
			d.print(arg, *u)
			d.grand.add(*u)
			continue
		}
		dirs[parent(name)].add(*u)
		if d.depth < 0 || strings.Count(name, "/") < d.depth {
			d.print(prefix+filepath.FromSlash(name), *u)
		}
	}
}

// walk adds to dirs the usage of each directory without its subdirectories, by path relative to dir. It leaves out the
// directories that have been listed.
func (d *diskUsage) walk(dir string, opts fileproc.Options, listed func(rel string) bool, dirs map[string]*usage) error {
	var mu sync.Mutex                // guards dirs and d.seen
	at := func(name string) *usage { // adds the directories above too, which --files-from need not name
		for up := name; dirs[up] == nil && !listed(up); up = parent(up) {
			dirs[up] = &usage{}
		}
		return dirs[name]
	}
	opts.ReadSize, opts.Stat = fileproc.NoRead, true
	if opts.Files == nil {
		opts.SelectDir = func(e fileproc.Entry) bool {
			mu.Lock()
			defer mu.Unlock()
			return at(e.Rel()) != nil
		}
	}
	return fileproc.ForEach(d.app.ctx, dir, opts, func(f *fileproc.File) error {
		st, err := f.Stat()
		if err != nil {
			return err
		}
		name := parent(f.Rel())
		mu.Lock()
		defer mu.Unlock()
		if u := at(name); u != nil && !d.alreadyCounted(st) {
			u.add(usage{1, st.Size})
		}
		return nil
	})
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

func (d *diskUsage) print(path string, u usage) {
	var c chunk
	switch {
	case d.json:
		c.json(struct { // strings and numbers: no error
			Path  any   `json:"path"`
			Bytes int64 `json:"bytes"`
			Files int64 `json:"files"`
		}{jsonPath(path), u.Bytes, u.Files})
	case d.human:
		c.b = fmt.Appendln(nil, humanSize(u.Bytes)+"\t"+d.app.out.shown(path))
	default:
		c.b = fmt.Appendf(nil, "%d\t%s\n", u.Bytes, d.app.out.shown(path))
	}
	d.app.out.Write(c.b)
}

// parent returns the directory of a slash-separated relative path, "" for the root.
func parent(rel string) string { return rel[:max(strings.LastIndexByte(rel, '/'), 0)] }

// compareDepthFirst orders slash-separated paths by component, each directory after its contents.
func compareDepthFirst(a, b string) int {
	for a != "" && b != "" {
		x, restA, _ := strings.Cut(a, "/")
		y, restB, _ := strings.Cut(b, "/")
		if c := strings.Compare(x, y); c != 0 {
			return c
		}
		a, b = restA, restB
	}
	return len(b) - len(a)
}
