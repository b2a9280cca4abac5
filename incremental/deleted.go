package incremental

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/incremental/internal/cachefile"
	"github.com/fileproc/fileproc/internal/fsinfo"
)

// deleted returns the numbers of the records that are to be dropped, after it has
// told the caller. These are the records of files that the run has not met, that
// it would have selected, and that are not there. That a file is not there is
// looked up: what a listing has left out may have been skipped, or may lie in a
// directory that could not be read. It stops when ctx ends.
func (r *run[T]) deleted(ctx context.Context) (gone []int) {
	numbers := map[string]int{}
	candidates := r.given.unseen(r.store)
	if r.opts.Files == nil {
		candidates = r.store.Unseen()
	}
	for n, rec := range candidates {
		if rel := string(rec.Path); isBelow(rel) {
			numbers[rel] = n
		}
		if len(numbers) == judgedAtOnce {
			gone = append(gone, r.goneOf(ctx, numbers)...)
			clear(numbers)
		}
	}
	return append(gone, r.goneOf(ctx, numbers)...)
}

// judgedAtOnce bounds how many paths are in memory. Tests set it.
var judgedAtOnce = 1 << 16

// goneOf is deleted for some records, by their paths.
func (r *run[T]) goneOf(ctx context.Context, numbers map[string]int) (gone []int) {
	if len(numbers) == 0 || ctx.Err() != nil {
		return nil
	}
	dirs := r.existence()
	for _, rel := range r.selected(ctx, numbers, dirs) {
		if ctx.Err() != nil {
			break
		}
		if dirs.hasFile(rel) != no {
			continue
		}
		if r.inc.Deleted != nil {
			r.inc.Deleted(rel)
		}
		gone = append(gone, numbers[rel])
	}
	return gone
}

// A given is what matters, once the run has ended, of the paths that Options.Files
// gave: those that are in the cache file and were not there, and the directories,
// each with a slash at its end.
type given map[string]bool

// files yields the paths that Options.Files gives, but for those of files that are in
// the cache file and not there: they are deleted, and no failures.
func (r *run[T]) files(yield func(string) bool) {
	var next cachefile.Following
	var known map[string]bool // the directories of files in the cache file, made when one is missing
	dirs := r.existence()
	for name := range r.opts.Files {
		rel, isDir := strings.CutSuffix(name, "/")
		isThere := true
		switch {
		case !isBelow(rel):
		case isDir:
			r.given[name] = true
			dirs = r.existence() // the sequence may take long: what was there may be gone
			if isThere = dirs.hasDir(rel) != no; isThere {
				break
			}
			if known == nil {
				known = dirsOf(r.store.All())
			}
			isThere = !known[rel]
		default:
			if _, _, ok := r.store.Lookup(rel, &next); ok {
				isThere = dirs.hasFile(rel) != no
			}
		}
		if !isThere {
			dirs = r.existence() // what is not there now may be soon
			isThere = dirs.dirs["."] != yes
		}
		if !isThere {
			r.given[name] = true
		} else if !yield(name) {
			return
		}
	}
}

// dirsOf returns the directories of the files of records.
func dirsOf(records iter.Seq2[int, cachefile.View]) map[string]bool {
	all := map[string]bool{}
	for _, rec := range records {
		rel := "" // made if it has a directory that is new
		for i := len(rec.Path) - 1; i > 0; i-- {
			if rec.Path[i] != '/' {
				continue
			}
			if all[string(rec.Path[:i])] {
				break
			}
			if rel == "" {
				if rel = string(rec.Path); !isBelow(rel) {
					break
				}
			}
			all[rel[:i]] = true
		}
	}
	return all
}

// unseen returns the records in s of the paths in g, and of all that is below its
// directories, that were not met.
func (g given) unseen(s *cachefile.Store) iter.Seq2[int, cachefile.View] {
	return func(yield func(int, cachefile.View) bool) {
		hasDirs := false
		for name := range g {
			hasDirs = hasDirs || strings.HasSuffix(name, "/")
			if rec, n, ok := s.Lookup(name, new(cachefile.Following)); ok && !s.IsSeen(n) && !yield(n, rec) {
				return
			}
		}
		if !hasDirs {
			return
		}
		for n, rec := range s.Unseen() {
			if g.hasDirOf(string(rec.Path)) && !yield(n, rec) {
				return
			}
		}
	}
}

// hasDirOf reports whether rel is below a directory of g.
func (g given) hasDirOf(rel string) bool {
	if strings.Count(rel, "/") > maxLevels {
		return false
	}
	for i := range rel {
		if rel[i] == '/' && g[rel[:i+1]] {
			return true
		}
	}
	return false
}

// existence returns one that has looked up nothing yet. Nothing is there without a root.
func (r *run[T]) existence() *existence {
	e := &existence{fsys: r.opts.FS, root: r.root, links: r.opts.Symlinks, dirs: map[string]answer{}}
	switch {
	case r.opts.Files != nil && r.opts.FS != nil: // which opens what a name leads to
		e.links = fileproc.SymlinksFollow
	case r.opts.Files != nil: // and Symlinks cannot be set: what the last listing would reach through links is there
		e.links = fileproc.Symlinks(r.store.Links)
	}
	e.dirs["."] = unknown
	if info, err := e.stat(".", true); err == nil && info.IsDir() { // root may be a link
		e.dirs["."] = yes
	}
	return e
}

// maxLevels bounds the work that one path may cause: it grows with the square of
// the number of levels. The entry of a file below more directories stays.
const maxLevels = 4096

// isBelow reports whether rel is a path below root: that of a hostile cache file may
// be any text.
func isBelow(rel string) bool {
	return path.Clean(rel) == rel && rel != "." && rel != ".." && !strings.HasPrefix(rel, "../") && !path.IsAbs(rel) &&
		strings.Count(rel, "/") <= maxLevels
}

type answer int

const (
	unknown answer = iota
	yes
	no
)

// An existence looks up what is below root. What a link has replaced is not there,
// unless links of that kind are followed.
type existence struct {
	fsys  fs.FS
	root  string
	links fileproc.Symlinks
	dirs  map[string]answer // whether they are there
}

func (e *existence) hasFile(rel string) answer {
	return e.has(rel, e.links != fileproc.SymlinksSkip, func(mode fs.FileMode) bool { return mode.IsRegular() || e.fsys != nil && mode&fs.ModeIrregular != 0 })
}

func (e *existence) hasDir(rel string) answer {
	a, ok := e.dirs[rel]
	if !ok {
		a = e.has(rel, e.links == fileproc.SymlinksFollow, fs.FileMode.IsDir)
		e.dirs[rel] = a
	}
	return a
}

// has reports whether rel is there as what it should be.
func (e *existence) has(rel string, follows bool, should func(fs.FileMode) bool) answer {
	if e.fsys == nil && !filepath.IsLocal(filepath.FromSlash(rel)) { // "..\\x" is a file's name to isBelow
		return unknown
	}
	if a := e.hasDir(path.Dir(rel)); a != yes {
		return a
	}
	info, err := e.stat(rel, follows)
	switch {
	case err == nil && should(info.Mode()):
		return yes
	case err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || e.fsys == nil && follows && e.isLoop(rel):
		return no
	}
	return unknown
}

// isLoop reports whether rel is a link that leads to itself.
func (e *existence) isLoop(rel string) bool {
	_, err := filepath.EvalSymlinks(filepath.Join(e.root, filepath.FromSlash(rel)))
	return fsinfo.IsLoop(err)
}

func (e *existence) stat(rel string, follows bool) (fs.FileInfo, error) {
	switch {
	case e.fsys != nil && follows:
		return fs.Stat(e.fsys, path.Join(e.root, rel))
	case e.fsys != nil:
		return fs.Lstat(e.fsys, path.Join(e.root, rel))
	case follows:
		return os.Stat(filepath.Join(e.root, filepath.FromSlash(rel)))
	}
	return os.Lstat(filepath.Join(e.root, filepath.FromSlash(rel)))
}

// read is not done through os.DirFS, which refuses paths that are not UTF-8.
func (e *existence) read(rel string) ([]byte, error) {
	if e.fsys != nil {
		return fs.ReadFile(e.fsys, path.Join(e.root, rel))
	}
	return os.ReadFile(filepath.Join(e.root, filepath.FromSlash(rel)))
}

// selected returns, in order, those of the paths that the run would have passed to
// fn. A run over a tree in memory that has nothing else decides that. It leaves out
// Select, which may ask for metadata, and ignore files from outside root.
func (r *run[T]) selected(ctx context.Context, paths map[string]int, dirs *existence) []string {
	tree := make(tree)
	o := r.opts
	for rel := range paths {
		// A file that marks its directory is never selected, and marks nothing once it is gone.
		if !slices.Contains(o.SkipMarked, path.Base(rel)) {
			tree.add(rel, "")
		}
	}
	opts := fileproc.Options{
		MaxDepth: o.MaxDepth, Suffixes: o.Suffixes, Include: o.Include, Exclude: o.Exclude, SkipHidden: o.SkipHidden,
		SelectDir: o.SelectDir, SkipMarked: o.SkipMarked, Shard: o.Shard, Shards: o.Shards,
		FS: tree, ReadSize: fileproc.NoRead, Ordered: true, Workers: o.Workers,
		OnError: func(error) error { return nil }, // there are none in memory
	}
	dirs.addReal(tree, o.SkipMarked, "")
	for _, name := range o.IgnoreFiles {
		if !filepath.IsAbs(name) && !strings.HasPrefix(name, "../") {
			// With a name of its own: what is gone may be below a directory of that name.
			opts.IgnoreFiles = append(opts.IgnoreFiles, name+ignoreSuffix)
			dirs.addReal(tree, []string{name}, ignoreSuffix)
		}
	}
	all, err := fileproc.Process(ctx, ".", opts, func(f *fileproc.File) (string, error) { return f.Rel(), nil })
	if err != nil { // a cancel: the options are those of the run, which were valid
		return nil
	}
	return slices.DeleteFunc(all, func(rel string) bool { _, ok := paths[rel]; return !ok })
}

const ignoreSuffix = "\xff"

// addReal adds the files of these names that are in directories of t, with a suffix.
// It does not look into a directory whose place a link has taken.
func (e *existence) addReal(t tree, names []string, suffix string) {
	if len(names) == 0 {
		return
	}
	for _, dir := range slices.Collect(maps.Keys(t)) {
		if e.hasDir(dir) != yes {
			continue
		}
		for _, name := range names {
			if dir != "." && strings.Contains(name, "/") {
				continue
			}
			rel := path.Join(dir, name)
			if info, err := e.stat(rel, false); err != nil || !info.Mode().IsRegular() {
				continue
			}
			if text, err := e.read(rel); err == nil {
				t.add(rel+suffix, string(text))
			}
		}
	}
}

// A tree is an fs.FS in memory: the entries of each directory, by their names, those
// of directories with a slash. A path that was a file once and a directory later is
// both.
type tree map[string]map[string]treeEntry

type treeEntry struct {
	name    string
	dir     bool
	content string
}

func (t tree) add(rel, content string) {
	for dir, slash := false, ""; ; dir, slash = true, "/" {
		parent, name := path.Dir(rel), path.Base(rel)
		if t[parent] == nil {
			t[parent] = map[string]treeEntry{}
		}
		if _, ok := t[parent][name+slash]; ok && dir {
			return
		}
		t[parent][name+slash] = treeEntry{name, dir, content}
		if rel, content = parent, ""; rel == "." {
			return
		}
	}
}

func (t tree) Open(name string) (fs.File, error) {
	if entries, ok := t[name]; ok {
		return &treeDir{treeFile{treeEntry{path.Base(name), true, ""}, nil}, slices.Collect(maps.Values(entries))}, nil
	}
	if e, ok := t[path.Dir(name)][path.Base(name)]; ok {
		return &treeFile{e, strings.NewReader(e.content)}, nil
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

type treeFile struct {
	treeEntry
	text *strings.Reader
}

func (f *treeFile) Stat() (fs.FileInfo, error) { return f.treeEntry, nil }
func (f *treeFile) Read(p []byte) (int, error) { return f.text.Read(p) }
func (f *treeFile) Close() error               { return nil }

type treeDir struct {
	treeFile
	left []treeEntry
}

func (d *treeDir) ReadDir(n int) ([]fs.DirEntry, error) {
	if n <= 0 || n > len(d.left) {
		n = len(d.left)
	}
	var all []fs.DirEntry
	for _, e := range d.left[:n] {
		all = append(all, e)
	}
	d.left = d.left[n:]
	if n == 0 {
		return nil, io.EOF
	}
	return all, nil
}

func (e treeEntry) Name() string               { return e.name }
func (e treeEntry) Size() int64                { return int64(len(e.content)) }
func (e treeEntry) IsDir() bool                { return e.dir }
func (e treeEntry) Type() fs.FileMode          { return e.Mode().Type() }
func (e treeEntry) Info() (fs.FileInfo, error) { return e, nil }
func (e treeEntry) ModTime() time.Time         { return time.Time{} }
func (e treeEntry) Sys() any                   { return nil }
func (e treeEntry) Mode() fs.FileMode {
	if e.dir {
		return fs.ModeDir | 0o755
	}
	return 0o644
}
