package incremental

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/fsinfo"
	"github.com/fileproc/fileproc/internal/names"
)

// maxLevels bounds the work that one path may cause: the work grows with the square of
// the number of levels. The record of a file below more directories stays in the cache file.
const maxLevels = 4096

// isBelow reports whether rel is a path below root. A path from a hostile cache file may
// be any text.
func isBelow(rel string) bool {
	return path.Clean(rel) == rel && rel != "." && rel != ".." && !strings.HasPrefix(rel, "../") && !path.IsAbs(rel)
}

// isShallow reports whether at most maxLevels directories are between root and rel, so that each can be looked at.
func isShallow(rel string) bool { return strings.Count(rel, "/") <= maxLevels }

type answer int

const (
	unknown answer = iota
	yes
	no
)

// An existence looks up which files and directories exist below root. A file or directory
// that a link has replaced does not exist, unless the run follows such links.
type existence struct {
	fsys  fs.FS
	root  string
	links fileproc.Symlinks
	dirs  map[string]answer // by path: whether the directory exists, as far as it has been looked up
}

func (e *existence) hasFile(rel string) answer {
	return e.has(rel, e.links != fileproc.SymlinksSkip, e.isFile)
}

// isFile reports whether a run takes an entry with this mode for a file: object stores have files that are not regular.
func (e *existence) isFile(mode fs.FileMode) bool {
	return mode.IsRegular() || e.fsys != nil && mode&fs.ModeIrregular != 0
}

func (e *existence) hasDir(rel string) answer {
	a, ok := e.dirs[rel]
	if !ok {
		a = e.has(rel, e.links == fileproc.SymlinksFollow, fs.FileMode.IsDir)
		e.dirs[rel] = a
	}
	return a
}

// has reports whether rel exists and should returns true for its mode. Follows says whether a link counts as its target.
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
	case err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || e.fsys == nil && e.isLoop(rel):
		return no
	}
	return unknown
}

// isBehindLink reports whether a link has taken the place of a directory above rel.
func (e *existence) isBehindLink(rel string) bool {
	for dir := path.Dir(rel); e.hasDir(dir) == no; dir = path.Dir(dir) {
		if info, err := e.stat(dir, false); err == nil && info.Mode().Type() == fs.ModeSymlink {
			return true
		}
	}
	return false
}

// standsForAll reports whether a run must look at all files because of rel: rel is root, too deep, or led through a link when an
// event gave this path.
func (e *existence) standsForAll(rel string) bool {
	return rel == "." || !isShallow(rel) || e.isBehindLink(rel)
}

// isLoop reports whether rel is a link that leads to itself.
func (e *existence) isLoop(rel string) bool {
	_, err := fsinfo.EvalSymlinks(e.name(rel))
	return err == fsinfo.ErrLoop
}

func (e *existence) stat(rel string, follows bool) (info fs.FileInfo, err error) {
	switch {
	case e.fsys != nil && follows:
		return fs.Stat(e.fsys, e.name(rel))
	case e.fsys != nil:
		return fs.Lstat(e.fsys, e.name(rel))
	case follows:
		info, err = os.Stat(e.name(rel))
	default:
		info, err = os.Lstat(e.name(rel))
	}
	if !errors.Is(err, syscall.ENAMETOOLONG) {
		return info, err
	}
	err = e.inSteps(func(root *os.Root) error {
		if info, err = root.Lstat(rel); follows {
			info, err = root.Stat(rel)
		}
		return err
	})
	return info, err
}

// name returns the path by which the system, or the FS, finds rel, as File.Path does.
func (e *existence) name(rel string) string {
	if e.fsys != nil {
		return path.Join(e.root, rel)
	}
	if names.HasDotDot(e.root) { // then the path is not cleaned: the dots may be behind a link
		const separator = string(filepath.Separator)
		isSeparator := func(r rune) bool { return strings.ContainsRune("/"+separator, r) }
		return strings.TrimRightFunc(e.root, isSeparator) + separator + filepath.FromSlash(rel)
	}
	return filepath.Join(e.root, filepath.FromSlash(rel))
}

// inSteps calls do with root open, for a path that is too long for one system call. A link that leads out of root is then an error.
func (e *existence) inSteps(do func(*os.Root) error) error {
	root, err := os.OpenRoot(e.root)
	if err != nil {
		return err
	}
	defer root.Close()
	return do(root)
}

// An lstat is what os.Lstat returns for rel.
type lstat struct {
	rel  string
	info fs.FileInfo
	err  error
}

// lstatAll calls lstat for each of rels, in parallel: a change to another branch of a repository changes thousands of files.
func (e *existence) lstatAll(rels []string, workers int) []lstat {
	all := make([]lstat, len(rels))
	for i, rel := range rels {
		all[i].rel = rel
	}
	look := func(part []lstat) {
		for i := range part {
			part[i].info, part[i].err = e.stat(part[i].rel, false)
		}
	}
	if e.fsys != nil { // an fs.FS may serve only one caller at a time, and may panic
		look(all)
		return all
	}
	var wg sync.WaitGroup
	for part := range slices.Chunk(all, len(all)/workers+1) {
		wg.Go(func() { look(part) })
	}
	wg.Wait()
	return all
}

// read returns the content of rel. It does not use os.DirFS, which refuses paths that are not UTF-8.
func (e *existence) read(rel string) ([]byte, error) {
	if e.fsys != nil {
		return fs.ReadFile(e.fsys, e.name(rel))
	}
	text, err := os.ReadFile(e.name(rel))
	if errors.Is(err, syscall.ENAMETOOLONG) {
		err = e.inSteps(func(root *os.Root) error { text, err = root.ReadFile(rel); return err })
	}
	return text, err
}

// addReal looks for files with these names in the directories of t, and adds them to t
// with suffix at the end of their names. It does not look into a directory that a link
// has replaced.
func (e *existence) addReal(t tree, names []string, suffix string) {
	for _, dir := range slices.Collect(maps.Keys(t)) {
		for _, name := range names {
			if dir != "." && strings.Contains(name, "/") || e.hasDir(dir) != yes {
				continue
			}
			rel := path.Join(dir, name)
			info, err := e.stat(rel, false)
			switch {
			case err != nil:
			case name == dotGit: // mostly a directory: t only shows that it exists
				t.add(rel, "")
			case e.isFile(info.Mode()):
				text, _ := e.read(rel) // a file that cannot be read ignores nothing, and marks its directory
				t.add(rel+suffix, string(text))
			}
		}
	}
}
