// Package fsinfo says what metadata tells of a file, and what the system tells of the
// machine and the file system that keep the file.
package fsinfo

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// maxLinks is how many links filepath.EvalSymlinks follows.
const maxLinks = 255

var (
	// ErrLoop is the error of EvalSymlinks for a link that leads to itself.
	ErrLoop = errors.New("the symbolic link leads to itself")
	// ErrManyLinks is the error of EvalSymlinks for a path that it cannot follow to the end.
	ErrManyLinks = errors.New("more than 255 symbolic links in a row")
)

// EvalSymlinks is filepath.EvalSymlinks with two errors in place of one: that function returns the same error, with
// the same text on all platforms, for links that lead to themselves and for too many links.
func EvalSymlinks(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil && strings.Contains(err.Error(), "too many links") {
		if _, err = (&resolver{under: map[string]bool{}}).resolve(path); err == nil {
			err = ErrManyLinks // resolve got to the end: the links have changed meanwhile
		}
	}
	return real, err
}

// Abs is filepath.Abs for a system that looks up one name after the other. It does not clean
// the path: a .. behind a link is the parent of the directory to which the link leads.
func Abs(path string) (string, error) {
	switch {
	case runtime.GOOS == "windows" || runtime.GOOS == "plan9" || runtime.GOOS == "wasip1": // these systems clean a path by its text
		return filepath.Abs(path)
	case filepath.IsAbs(path):
		return path, nil
	}
	dir, err := os.Getwd()
	return strings.TrimSuffix(dir, "/") + "/" + path, err
}

// RealPath returns the absolute path, without links, of the file to which path leads.
func RealPath(path string) (string, error) {
	abs, err := Abs(path)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(abs)
}

// A resolver follows links in order to find one that leads to itself.
type resolver struct {
	under map[string]bool // the links that are being resolved
	links int             // the number of links followed so far
}

// resolve returns path without links. It leaves the part that does not exist as it is.
func (r *resolver) resolve(path string) (string, error) {
	end := len(path)
	for end > 0 && os.IsPathSeparator(path[end-1]) {
		end--
	}
	dir, name := filepath.Split(path[:end])
	if name == "" {
		return path, nil // the root
	}
	dir, err := r.resolve(dir)
	switch {
	case err != nil || name == ".":
		return dir, err
	case name == "..":
		return filepath.Dir(dir), nil
	}
	full := filepath.Join(dir, name)
	to, err := os.Readlink(full)
	if err != nil || to == "" {
		return full, nil
	}
	if r.under[full] {
		return "", ErrLoop
	}
	if r.links++; r.links > maxLinks {
		return "", ErrManyLinks
	}
	r.under[full] = true
	defer delete(r.under, full)
	switch {
	case filepath.IsAbs(to):
	case os.IsPathSeparator(to[0]): // on Windows
		to = filepath.VolumeName(dir) + to
	default:
		to = dir + string(filepath.Separator) + to
	}
	return r.resolve(to)
}
