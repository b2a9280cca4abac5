package incremental

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/fileproc/fileproc/internal/fsinfo"
)

// Rules are the files that decide what is ignored in all of a tree, or in a repository: those that no listing has
// shown, such as .git/config. The names are of those below root, there or not, and of what leads to them.
type rules struct {
	root  string           // absolute, and without links
	is    os.FileInfo      // root
	onDir func(rel string) // of plumbing.Hooks, which may be nil: called for the directories that lead to a file

	mu    sync.Mutex
	names map[string]bool
}

func newRules(root string, onDir func(rel string)) *rules {
	r := &rules{onDir: onDir, names: map[string]bool{}}
	r.root, _ = fsinfo.RealPath(root) // "" if root is not there: then no rules are read
	r.is, _ = os.Stat(root)
	return r
}

// maxLinks is how many links may lead to a file.
const maxLinks = 40

// note is plumbing.Hooks.OnRule. It goes the way to the file by itself, name by name as the system does: each name
// below root may lead elsewhere later, also where a link outside leads into root. It takes in names that are not there yet.
func (r *rules) note(file string) {
	abs, err := fsinfo.Abs(file)
	if err != nil {
		return
	}
	root := r.root
	dir, names := split("", abs)
	for links := 0; len(names) > 0; {
		name := names[0]
		names = names[1:]
		if name == ".." { // dir has no links
			dir = filepath.Dir(dir)
			continue
		}
		full := filepath.Join(dir, name)
		rel, isBelow := r.add(root, full)
		var info os.FileInfo
		if err == nil { // else nothing is known of what comes after that
			info, err = os.Lstat(full)
		}
		isDir := err == nil && info.IsDir() || errors.Is(err, syscall.ENAMETOOLONG) // it may be one
		switch {
		case err == nil && info.Mode()&os.ModeSymlink != 0:
			to, err := os.Readlink(full)
			if links++; err != nil || links > maxLinks {
				return
			}
			var more []string
			dir, more = split(dir, to)
			names = append(more, names...)
			continue
		case err == nil && os.SameFile(info, r.is): // by another path, if that differs in case or is a mount's
			root = full
		case isDir && isBelow && len(names) > 0 && r.onDir != nil:
			r.onDir(rel)
		}
		dir = full
	}
}

// split returns where the way of a path begins that is looked up in dir, and the names on the way.
func split(dir, path string) (from string, names []string) {
	volume := filepath.VolumeName(path)
	if path = path[len(volume):]; path != "" && os.IsPathSeparator(path[0]) {
		dir = cmp.Or(volume, filepath.VolumeName(dir)) + string(filepath.Separator)
	}
	for name := range strings.FieldsFuncSeq(path, func(c rune) bool { return c == '/' || c == filepath.Separator }) {
		if name != "." {
			names = append(names, name)
		}
	}
	return dir, names
}

// add notes the name of what is at a path without links, and returns it, if that is below root.
func (r *rules) add(root, full string) (rel string, isBelow bool) {
	rel, err := filepath.Rel(root, full)
	if err != nil || rel == "." || !filepath.IsLocal(rel) {
		return "", false
	}
	rel = filepath.ToSlash(rel)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names[rel] = true
	return rel, true
}
