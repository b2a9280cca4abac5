package fileproc

import (
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/fileproc/fileproc/internal/content"
	"github.com/fileproc/fileproc/internal/gitignore"
	"github.com/fileproc/fileproc/internal/gitrepo"
	"github.com/fileproc/fileproc/internal/names"
)

// maxIgnoreFile limits the size of an ignore file in bytes, as git does.
const maxIgnoreFile = 100 << 20

// splitIgnoreFiles divides Options.IgnoreFiles into names, which are looked for
// in each listing, and paths. Both keep their order.
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
// leads, and the rest of the path.
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

// readIgnorePaths reads the files that Options.IgnoreFiles names by path.
func (w *worker) readIgnorePaths() error {
	for _, p := range w.cfg.ignorePaths {
		n, rest := levelsUp(p)
		dir, below, err := w.above(n)
		if err != nil {
			return err
		}
		var text []byte
		err = w.retryOnResource(func() (err error) {
			switch {
			case filepath.IsAbs(p):
				text, err = gitrepo.ReadFile(p, maxIgnoreFile)
			case w.cfg.fsys != nil:
				text, err = fs.ReadFile(w.cfg.fsys, path.Join(dir, rest))
			default:
				text, err = gitrepo.ReadFile(filepath.Join(dir, rest), maxIgnoreFile)
			}
			return err
		})
		// Where .git is a file, as in a work tree, .git/info/exclude gives ENOTDIR.
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			return err
		}
		if list := gitignore.Parse(text); below == "" {
			w.root.ignore = w.root.ignore.Push("", list)
		} else {
			w.root.ignore = w.root.ignore.PushAbove(below, list)
		}
	}
	return nil
}

// above returns the directory n levels above root, and root's path relative to
// it with a slash at its end. It stops at the file system's root.
func (s *shared) above(n int) (dir, below string, err error) {
	if n == 0 {
		return s.cfg.root, "", nil
	}
	split, clean := path.Split, path.Clean
	if dir = s.cfg.root; s.cfg.fsys == nil {
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

// readIgnoreFiles reads the ignore files among n's buffered entries. It returns
// false if the run is stopped: what the files ignore is then unknown.
func (w *worker) readIgnoreFiles(n *node) bool {
	defer w.pin.drop(&w.dirs)
	for _, name := range w.cfg.ignoreNames {
		if slices.Contains(n.buffer.ignore, name) && !w.readIgnoreFile(n, w.arena.Add([]byte(name))) {
			return false
		}
	}
	return true
}

func (w *worker) readIgnoreFile(n *node, name names.Name) bool {
	var c content.Content
	r := w.reader.Limited(maxIgnoreFile)
	err := w.withDir(n, func(d directory) error { return readFile(&r, d, name, &c) })
	switch {
	case err == nil:
		n.ignore = n.ignore.Push(w.skips.path.dir(n), gitignore.Parse(c.Data))
	case err == errStopped, errors.Is(err, fs.ErrNotExist):
	default:
		w.failFound("open", n, name.String(), err)
	}
	r.Release()
	return err != errStopped
}
