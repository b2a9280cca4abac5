package incremental

import (
	"context"
	"iter"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/incremental/internal/cachefile"
	"github.com/fileproc/fileproc/internal/names"
)

// A deletions finds the files that are in the cache file and no longer exist.
type deletions struct {
	root   string
	prefix string            // of the paths below root in records
	opts   *fileproc.Options // as the caller gave them
	store  *cachefile.Store
	tell   func(rel string) // Options.Deleted
	given  given
}

// numbers returns the numbers of the records to drop, after it has told the caller
// of each. These are the records of files that the run has not met, that it would
// have selected, and that do not exist. It looks up whether a file exists: a file
// that no listing has shown may have been skipped, or may be in a directory that
// could not be read. It stops when ctx ends.
func (d *deletions) numbers(ctx context.Context) (gone []int) {
	byPath := map[string]int{}
	candidates := d.given.unseen(d.store)
	if d.opts.Files == nil {
		candidates = d.store.UnseenIn(func(dir string) bool { return strings.HasPrefix(dir, d.prefix) })
	}
	for n, rec := range candidates {
		if rel := strings.TrimPrefix(rec.Path(), d.prefix); isShallow(rel) && isBelow(rel) {
			byPath[rel] = n
		}
		if len(byPath) == judgedAtOnce {
			gone = append(gone, d.goneOf(ctx, byPath)...)
			clear(byPath)
		}
	}
	return append(gone, d.goneOf(ctx, byPath)...)
}

// judgedAtOnce bounds how many paths numbers has in memory. Tests set it.
var judgedAtOnce = 1 << 16

// goneOf is numbers for some records, by their paths.
func (d *deletions) goneOf(ctx context.Context, byPath map[string]int) (gone []int) {
	if len(byPath) == 0 || ctx.Err() != nil {
		return nil
	}
	dirs := d.existence()
	for _, rel := range d.selected(ctx, byPath, dirs) {
		if ctx.Err() != nil {
			break
		}
		if dirs.hasFile(rel) != no {
			continue
		}
		n := byPath[rel]
		if d.prefix != "" {
			rel = dirs.name(rel)
		}
		if d.tell != nil {
			d.tell(rel)
		}
		gone = append(gone, n)
	}
	return gone
}

// A given has the paths from Options.Files that matter once the run has ended: those
// that are in the cache file and did not exist, and the directories, with "/" or "/."
// at their ends.
type given map[string]bool

// files yields the paths from Options.Files, except those that the cache file knows and
// that do not exist: they count as deleted, not as failures.
func (d *deletions) files(yield func(string) bool) {
	known := sync.OnceValue(func() map[string]bool { return dirsOf(d.store.Dirs()) }) // the directories of files in the cache file
	dirs := d.existence()
	below := names.Below(d.root, d.opts.FS != nil)
	for name := range d.opts.Files {
		name = below(name)
		rel, isDir := strings.CutSuffix(strings.TrimSuffix(name, "."), "/")
		if !isDir { // then the dot belongs to the name
			rel = name
		}
		isThere := true
		switch {
		case !isShallow(rel) || !isBelow(rel):
		case isDir:
			d.given[name] = true
			dirs = d.existence() // the sequence may take long: a directory may be gone by now
			if isThere = dirs.hasDir(rel) != no; isThere {
				break
			}
			isThere = !known()[rel]
		default:
			if _, _, ok := d.store.Lookup(rel); ok {
				isThere = dirs.hasFile(rel) != no
			}
		}
		if !isThere {
			dirs = d.existence() // a path that is missing now may exist soon
			isThere = dirs.dirs["."] != yes
		}
		if !isThere {
			d.given[name] = true
		} else if !yield(name) {
			return
		}
	}
}

// dirsOf returns these directories and all directories above them, without root.
func dirsOf(paths iter.Seq[string]) map[string]bool {
	all := map[string]bool{}
	for dir := range paths {
		rel := strings.TrimSuffix(dir, "/")
		for isShallow(dir) && isBelow(rel) && !all[rel] {
			all[rel] = true
			rel = path.Dir(rel)
		}
	}
	return all
}

// unseen returns the records in s that the run has not met, of the paths in g and of all
// files below the directories in g.
func (g given) unseen(s *cachefile.Store) iter.Seq2[int, cachefile.View] {
	return func(yield func(int, cachefile.View) bool) {
		hasDirs := false
		for name := range g {
			hasDirs = hasDirs || strings.HasSuffix(name, "/") || strings.HasSuffix(name, "/.")
			if rec, n, ok := s.Lookup(name); ok && !s.IsSeen(n) && !yield(n, rec) {
				return
			}
		}
		if !hasDirs {
			return
		}
		for n, rec := range s.UnseenIn(g.hasDirOf) {
			if !yield(n, rec) {
				return
			}
		}
	}
}

// hasDirOf reports whether g names the files of rel, a directory with a slash at its end:
// g has rel or a directory above with "/" at its end, or rel with "/.".
func (g given) hasDirOf(rel string) bool {
	if strings.Count(rel, "/") > maxLevels {
		return false
	}
	for i := range rel {
		if rel[i] == '/' && g[rel[:i+1]] {
			return true
		}
	}
	return g[rel+"."]
}

// existence returns an existence that has looked up only root. If root is not a directory, all its answers are unknown.
func (d *deletions) existence() *existence {
	e := &existence{fsys: d.opts.FS, root: d.root, links: d.opts.Symlinks, dirs: map[string]answer{}}
	switch {
	case d.opts.Files != nil && d.opts.FS != nil: // an fs.FS opens what a name leads to
		e.links = fileproc.SymlinksFollow
	case d.opts.Files != nil: // a file that the last listing would reach through links is there
		e.links = max(e.links, fileproc.Symlinks(d.store.Links))
	}
	e.dirs["."] = unknown
	if info, err := e.stat(".", true); err == nil && info.IsDir() { // root may be a link
		e.dirs["."] = yes
	}
	return e
}

// selected returns, in order, those of the paths that the run would have passed to
// fn. To decide that, it runs fileproc over a tree in memory that has these paths and
// the files that say what to ignore. That run leaves out Select, which may ask for
// metadata, and ignore files from outside root.
func (d *deletions) selected(ctx context.Context, paths map[string]int, dirs *existence) []string {
	tree := make(tree)
	o := d.opts
	marks := marksOf(o)
	for rel := range paths {
		// A file that marks its directory is never selected, and marks nothing once it is gone.
		if !slices.Contains(marks, path.Base(rel)) {
			tree.add(rel, "")
		}
	}
	opts := fileproc.Options{
		MaxDepth: o.MaxDepth, Suffixes: o.Suffixes, Include: o.Include, Exclude: o.Exclude, IgnoreCase: o.IgnoreCase, SkipHidden: o.SkipHidden,
		SelectDir: o.SelectDir, SkipMarked: o.SkipMarked, Shard: o.Shard, Shards: o.Shards,
		FS: tree, ReadSize: fileproc.NoRead, Ordered: true, Workers: o.Workers,
	}
	if o.GitIgnore {
		opts.GitIgnore = true
		hooks := core.Hooks(&opts)
		hooks.GitFS, hooks.GitRoot = o.FS, d.root
		dirs.addReal(tree, []string{dotGit, ".gitignore"}, "")
	}
	dirs.addReal(tree, marks, "")
	for _, name := range o.IgnoreFiles {
		if !filepath.IsAbs(name) && !strings.HasPrefix(name, "../") {
			// The ignore file gets another name: a file that is gone may be below a directory with this one.
			opts.IgnoreFiles = append(opts.IgnoreFiles, name+ignoreSuffix)
			dirs.addReal(tree, []string{name}, ignoreSuffix)
		}
	}
	// An error is that of ctx, or is about git's files, which the run itself has reported: the options are those of the run, which were valid.
	all, _ := fileproc.Process(ctx, ".", opts, func(f *fileproc.File) (string, error) { return f.Rel(), nil })
	return slices.DeleteFunc(all, func(rel string) bool { _, ok := paths[rel]; return !ok })
}

const (
	ignoreSuffix = "\xff"
	dotGit       = ".git"
)
