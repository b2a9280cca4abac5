package fileproc

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
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

// readIgnorePaths reads the ignore files that have paths of their own.
func (r *run) readIgnorePaths() error {
	for _, p := range r.opts.ignorePaths {
		var content []byte
		read := func() (err error) {
			switch {
			case filepath.IsAbs(p):
				content, err = os.ReadFile(p)
			case r.opts.FS != nil:
				content, err = fs.ReadFile(r.opts.FS, path.Join(r.name, filepath.ToSlash(p)))
			default:
				content, err = os.ReadFile(filepath.Join(r.name, p))
			}
			return err
		}
		err := read()
		if err != nil {
			err = r.whenFree(r.local(0), err, read)
		}
		switch {
		case err == errStopped:
			return r.cause
		case err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR):
			return err // of .git/info/exclude it is ENOTDIR where .git is a file, as in a worktree
		}
		r.root.ignore = r.root.ignore.Push("", gitignore.Parse(content))
	}
	return nil
}

// readIgnoreFiles reads those that the listing of n has given.
func (r *run) readIgnoreFiles(l *local, n *node) {
	for _, name := range r.opts.ignoreNames {
		for _, found := range n.held.ignore {
			if found == name {
				r.readIgnoreFile(l, n, l.arena.add([]byte(name)))
			}
		}
	}
	l.grip.drop(&r.handles)
}

func (r *run) readIgnoreFile(l *local, n *node, name string) {
	var f File
	rd := reader{limit: maxIgnoreFile, whole: true, stopped: r.cancelled, buf: l.reader.buf}
	err := l.attempt(n, func(d directory) error { return rd.read(d, name, &f) })
	switch {
	case err == nil:
		n.ignore = n.ignore.Push(n.relPath(), gitignore.Parse(f.data))
	case err == errStopped, errors.Is(err, fs.ErrNotExist):
	default:
		l.failFound("open", n, name, err)
	}
	rd.release()
}
