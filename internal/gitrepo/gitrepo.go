// Package gitrepo finds the git repository that contains a directory, and in its
// configuration the path of the user's global ignore file. It does not run git.
package gitrepo

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// A Repository holds the paths of a work tree and of its git directories.
type Repository struct {
	Top    string // of the work tree
	Dir    string // Top/.git, or the directory named by that file in a submodule or linked work tree
	Common string // the directory that all work trees of the repository share, mostly Dir
}

// Find returns the repository whose work tree contains dir, or nil if there is
// none. Dir is absolute and has no symbolic links.
func Find(dir string) (*Repository, error) {
	for {
		r, err := open(dir)
		up := filepath.Dir(dir)
		if r != nil || err != nil || up == dir {
			return r, err
		}
		dir = up
	}
}

// open returns the repository whose work tree has its top at top, or nil.
func open(top string) (*Repository, error) {
	dir := filepath.Join(top, ".git")
	info, err := os.Stat(dir)
	switch {
	case isAbsent(err):
		return nil, nil
	case errors.Is(err, fs.ErrPermission):
		return nil, err
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
	case !isRepository(dir, common(dir)): // git looks further up
		return nil, nil
	}
	return &Repository{top, dir, common(dir)}, nil
}

// common returns the directory that dir shares with other work trees.
func common(dir string) string {
	content, err := ReadFile(filepath.Join(dir, "commondir"), maxLink)
	if err != nil {
		return dir
	}
	return join(dir, strings.TrimRight(string(content), "\r\n"))
}

const (
	maxLink   = 1 << 20 // bytes of a file that names a directory
	maxConfig = 64 << 20
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
