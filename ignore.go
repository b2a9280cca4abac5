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
)

// maxIgnoreFile is the largest ignore file, in bytes, that is used: what git's
// own limit is.
const maxIgnoreFile = 100 << 20

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
				content, err = os.ReadFile(p)
			case r.opts.FS != nil:
				content, err = fs.ReadFile(r.opts.FS, path.Join(dir, rest))
			default:
				content, err = os.ReadFile(filepath.Join(dir, rest))
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
