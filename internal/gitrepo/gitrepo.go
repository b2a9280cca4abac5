// Package gitrepo finds the git repository that contains a directory, and the ignore
// files that git uses there besides those in the directory. It does not run git.
package gitrepo

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/fileproc/fileproc/internal/gitignore"
)

// A Repository holds the paths of a work tree and of its git directories.
type Repository struct {
	fsys   fs.FS  // nil: the operating system's
	Top    string // of the work tree
	Dir    string // Top/.git, or the directory named by that file in a submodule or linked work tree
	Common string // the directory that all work trees of the repository share, mostly Dir
}

// Find returns the repository whose work tree contains dir, or nil if there is
// none. Dir is absolute and has no symbolic links, or is a path in fsys.
func Find(fsys fs.FS, dir string) (*Repository, error) {
	parent := filepath.Dir
	if fsys != nil {
		parent = path.Dir
	}
	for path.Base(filepath.ToSlash(dir)) != ".git" {
		r, err := open(fsys, dir)
		up := parent(dir)
		if r != nil || err != nil || up == dir {
			return r, err
		}
		dir = up
	}
	return nil, nil
}

// A Rule is the patterns of one ignore file, for a directory below its own.
type Rule struct {
	Above string // the path from the file's directory to that one, with a slash at its end, or ""
	List  *gitignore.List
}

// Rules returns, in increasing precedence, the ignore files that git uses in dir,
// without that in dir: the user's, the repository's, and those of the directories
// above dir. It reports false if dir is in no repository or, with isTop, is not the
// top of one. The errors are of files that do not apply because of them.
func Rules(fsys fs.FS, dir string, isTop bool) (rules []Rule, found bool, errs []error) {
	find := Find
	if isTop {
		find = open
	}
	repo, err := find(fsys, dir)
	if err != nil {
		return nil, false, []error{err}
	}
	if repo == nil {
		return nil, false, nil
	}
	rel, _ := filepath.Rel(repo.Top, dir) // it is a prefix of dir
	below := ""
	if rel = filepath.ToSlash(rel); rel != "." {
		below = rel + "/"
	}
	add := func(file, above string, err error) {
		if err == nil && file != "" {
			var content []byte
			if content, err = repo.read(file); err == nil {
				rules = append(rules, Rule{above, gitignore.Parse(content)})
			}
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	global, err := repo.ExcludesFile()
	add(global, below, err)
	add(filepath.Join(repo.Common, "info", "exclude"), below, nil)
	for above, top := below, repo.Top; above != ""; {
		add(filepath.Join(top, ".gitignore"), above, nil)
		name, rest, _ := strings.Cut(above, "/")
		top, above = filepath.Join(top, name), rest
	}
	return rules, true, errs
}

// read returns the content of an ignore file, which is empty if there is none. In
// the work tree, git follows no link to one.
func (r *Repository) read(file string) ([]byte, error) {
	stat := os.Stat
	if filepath.Base(file) == ".gitignore" {
		stat = os.Lstat
	}
	if r.fsys != nil {
		file = filepath.ToSlash(file)
		stat = func(name string) (fs.FileInfo, error) { return fs.Lstat(r.fsys, name) }
	}
	info, err := stat(file)
	switch {
	case isAbsent(err) || err == nil && !info.Mode().IsRegular():
		return nil, nil
	case err != nil:
		return nil, err
	case r.fsys != nil:
		return fs.ReadFile(r.fsys, file)
	}
	return ReadFile(file, MaxIgnoreFile)
}

// openFS is open in fsys, whose configuration is not read.
func openFS(fsys fs.FS, top string) (*Repository, error) {
	dir := path.Join(top, ".git")
	info, err := fs.Stat(fsys, dir)
	if err == nil && info.IsDir() {
		for _, name := range []string{"HEAD", "objects", "refs"} {
			if err == nil {
				_, err = fs.Stat(fsys, path.Join(dir, name))
			}
		}
	}
	if err != nil {
		if isAbsent(err) {
			err = nil
		}
		return nil, err
	}
	return &Repository{fsys, top, dir, dir}, nil
}

// open returns the repository whose work tree has its top at top, or nil.
func open(fsys fs.FS, top string) (*Repository, error) {
	if fsys != nil {
		return openFS(fsys, top)
	}
	dir := filepath.Join(top, ".git")
	info, err := os.Stat(dir)
	switch {
	case err != nil || !info.IsDir() && !info.Mode().IsRegular(): // git looks further up
		return nil, nil
	case !info.IsDir():
		content, err := ReadFile(dir, maxLink)
		if err != nil {
			return nil, err
		}
		to, ok := strings.CutPrefix(string(content), "gitdir: ")
		if !ok {
			return nil, &fs.PathError{Op: "read", Path: dir, Err: errors.New(`not a directory, and does not begin with "gitdir: "`)}
		}
		dir = join(top, strings.TrimRight(to, "\r\n")) // it may not exist, as in a container
	}
	shared, err := common(dir)
	if err != nil || info.IsDir() && !isRepository(dir, shared) { // git looks further up
		return nil, err
	}
	return &Repository{nil, top, dir, shared}, nil
}

// common returns the directory that dir shares with other work trees.
func common(dir string) (string, error) {
	content, err := ReadFile(filepath.Join(dir, "commondir"), maxLink)
	switch {
	case isAbsent(err):
		return dir, nil
	case err != nil:
		return "", err
	}
	return join(dir, strings.TrimRight(string(content), "\r\n")), nil
}

const (
	maxLink   = 1 << 20 // bytes of a file that names a directory
	maxConfig = 64 << 20
	// MaxIgnoreFile limits the size of an ignore file in bytes, as git does.
	MaxIgnoreFile = 100 << 20
)

// ReadFile returns the content of a regular file of at most limit bytes. The null
// device, which switches one of git's files off, counts as empty. Any other file
// is an error: a device may be endless. The open does not wait for the writer of a
// FIFO, which may take the place of a regular file at any time.
func ReadFile(name string, limit int64) ([]byte, error) {
	if name == os.DevNull {
		return nil, nil
	}
	f, err := os.OpenFile(name, os.O_RDONLY|nonBlock, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: name, Err: errors.New("not a regular file")}
	}
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(content)) > limit {
		err = &fs.PathError{Op: "read", Path: name, Err: fmt.Errorf("larger than %d bytes", limit)}
	}
	if err != nil {
		return nil, err
	}
	return content, nil
}

// isRepository reports whether dir has the entries that git requires.
func isRepository(dir, common string) bool {
	_, err := os.Lstat(filepath.Join(dir, "HEAD"))
	return err == nil && isDir(filepath.Join(common, "objects")) && isDir(filepath.Join(common, "refs"))
}

func isDir(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// isAbsent reports whether err says that there is no such file.
func isAbsent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// join returns the path name, or dir joined with it if it is relative.
func join(dir, name string) string {
	name = filepath.FromSlash(name)
	if filepath.IsAbs(name) {
		return filepath.Clean(name)
	}
	return filepath.Join(dir, name)
}
