package fileproc

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/fileproc/fileproc/internal/gitignore"
	"github.com/fileproc/fileproc/internal/gitrepo"
)

// maxIgnoreFile is the largest ignore file, in bytes, that is used: what git's
// own limit is.
const maxIgnoreFile = 100 << 20

// GitIgnoreFiles returns what [Options.IgnoreFiles] takes for a run over root to
// leave out what git ignores. In a repository that is, the later counting more:
// git's global file (core.excludesFile), info/exclude of the repository, the
// .gitignore files of the directories above root, up to the repository's top, and
// the name ".gitignore", for those in root. Outside a repository it is that name
// alone. Root is a directory of the operating system; it need not be the top.
//
// Names are of further ignore files that every directory may have, such as
// ".ignore", and count more than a .gitignore beside them.
//
// Git tracks files that it ignores if they were added, and these are left out
// too. Nothing says what git does with its own directory and with repositories
// in this one: Options.Exclude of "**/.git" leaves out the former. If root itself
// is ignored that changes nothing.
//
// The repository is that of the nearest directory above with a .git that git
// would take, a directory or, as in submodules and further work trees, a file.
// The configuration is that of the system (/etc/gitconfig), the user and the
// repository, with the files that they include, always or by gitdir; variables
// that say where it is (HOME, XDG_CONFIG_HOME, GIT_CONFIG_GLOBAL and the like) are
// heeded, those that say where the repository is (GIT_DIR and the like) are not. It
// is an error if one of these files is damaged or cannot be read, and then only
// the names are returned. Unlike git it looks for the repository beyond the top of
// a file system too.
func GitIgnoreFiles(root string, names ...string) ([]string, error) {
	names = append([]string{".gitignore"}, names...)
	dir, err := filepath.Abs(root)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return names, err
	}
	repo, err := gitrepo.Find(dir)
	if err != nil || repo == nil {
		return names, err
	}
	global, err := repo.ExcludesFile()
	if err != nil {
		return names, err
	}
	var levels []string // from the top to root
	if rel, err := filepath.Rel(repo.Top, dir); err == nil && rel != "." {
		levels = strings.Split(filepath.ToSlash(rel), "/")
	}
	var files []string
	for _, f := range []string{global, filepath.Join(repo.Common, "info", "exclude")} {
		if info, err := os.Stat(f); err == nil && info.Mode().IsRegular() {
			files = append(files, aboutTop(repo.Top, f, len(levels)))
		}
	}
	for i := range levels {
		above := filepath.Join(repo.Top, filepath.Join(levels[:i]...))
		for _, name := range names {
			// Git follows no link here either.
			if info, err := os.Lstat(filepath.Join(above, name)); err == nil && info.Mode().IsRegular() {
				files = append(files, strings.Repeat("../", len(levels)-i)+name)
			}
		}
	}
	return append(files, names...), nil
}

// aboutTop returns file as Options.IgnoreFiles takes one whose patterns are about
// paths in top, which is up directories above root. If that is impossible, since
// file is on another volume, they are about paths in root.
func aboutTop(top, file string, up int) string {
	rel, err := filepath.Rel(top, file)
	rel = filepath.ToSlash(rel)
	switch {
	case err != nil, up == 0 && !filepath.IsLocal(rel):
		return file
	case !filepath.IsLocal(rel) || !isPath(rel):
		rel = "./" + rel
	}
	return strings.Repeat("../", up) + rel
}

// splitIgnoreFiles divides Options.IgnoreFiles into names, which are looked for
// in each listing, and paths. Both keep their order: the later counts more.
func splitIgnoreFiles(files []string) (names, paths []string) {
	for _, f := range files {
		if isPath(f) {
			paths = append(paths, f)
		} else {
			names = append(names, f)
		}
	}
	return names, paths
}

func isPath(file string) bool {
	return strings.ContainsRune(file, '/') || strings.ContainsRune(file, filepath.Separator)
}

// levelsUp returns how many directories above root the path of an ignore file
// leads, and what follows.
func levelsUp(p string) (n int, rest string) {
	rest = filepath.ToSlash(p)
	for {
		below, up := strings.CutPrefix(rest, "../")
		if !up {
			return n, rest
		}
		n, rest = n+1, strings.TrimLeft(below, "/")
	}
}

// depthOf returns how many directories of Options.FS are above root.
func depthOf(root string) int {
	if root == "." {
		return 0
	}
	return strings.Count(root, "/") + 1
}

// readIgnorePaths reads the ignore files that have paths of their own.
func (r *run) readIgnorePaths() error {
	for _, p := range r.opts.ignorePaths {
		n, rest := levelsUp(p)
		dir, above, err := r.above(n)
		if err != nil {
			return err
		}
		var content []byte
		read := func() (err error) {
			switch {
			case filepath.IsAbs(p):
				content, err = gitrepo.ReadFile(p, maxIgnoreFile)
			case r.opts.FS != nil:
				content, err = fs.ReadFile(r.opts.FS, path.Join(dir, rest))
			default:
				content, err = gitrepo.ReadFile(filepath.Join(dir, rest), maxIgnoreFile)
			}
			return err
		}
		if err = read(); err != nil {
			err = r.whenFree(r.local(0), err, read)
		}
		switch {
		case err == errStopped:
			return r.cause
		case err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR):
			return err // of .git/info/exclude it is ENOTDIR where .git is a file, as in a worktree
		}
		if list := gitignore.Parse(content); above == "" {
			r.root.ignore = r.root.ignore.Push("", list)
		} else {
			r.root.ignore = r.root.ignore.PushAbove(above, list)
		}
	}
	return nil
}

// above returns the directory n levels above root, and root's path in it, with
// a slash at its end. There is none above the highest.
func (r *run) above(n int) (dir, below string, err error) {
	if n == 0 {
		return r.base.root, "", nil
	}
	split, clean := path.Split, path.Clean
	if dir = r.base.root; r.opts.FS == nil {
		split, clean = filepath.Split, filepath.Clean
		if dir, err = filepath.Abs(dir); err == nil {
			dir, err = filepath.EvalSymlinks(dir)
		}
		if err != nil {
			return "", "", err
		}
	}
	for range n {
		up, name := split(dir)
		if name == "" || name == "." {
			break
		}
		dir, below = clean(up), name+"/"+below
	}
	return dir, below, nil
}

// readIgnoreFiles reads those that the listing of n has given. It reports false
// when the run has been stopped: what they leave out is then not known.
func (r *run) readIgnoreFiles(l *local, n *node) bool {
	defer l.grip.drop(&r.handles)
	for _, name := range r.opts.ignoreNames {
		if slices.Contains(n.held.ignore, name) && !r.readIgnoreFile(l, n, l.arena.add([]byte(name))) {
			return false
		}
	}
	return true
}

func (r *run) readIgnoreFile(l *local, n *node, name string) bool {
	var f File
	rd := reader{limit: maxIgnoreFile, whole: true, stopped: r.cancelled, buf: l.reader.buf}
	err := l.attempt(n, func(d directory) error { return rd.read(d, name, &f) })
	switch {
	case err == nil:
		n.ignore = n.ignore.Push(l.dirPath(n), gitignore.Parse(f.data))
	case err == errStopped, errors.Is(err, fs.ErrNotExist):
	default:
		l.failFound("open", n, name, err)
	}
	rd.release()
	return err != errStopped
}
