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

// Rules are the files that decide what is ignored in a whole tree or repository and that no listing shows, such as
// .git/config. Names has the paths below root of these files, which need not exist, and of all that leads to them.
type rules struct {
	root  string           // absolute, and without links
	is    os.FileInfo      // root
	onDir func(rel string) // Hooks.OnDir of plumbing, which may be nil: called for the directories that lead to a file

	mu    sync.Mutex
	names map[string]bool
}

func newRules(root string, onDir func(rel string)) *rules {
	r := &rules{onDir: onDir, names: map[string]bool{}}
	r.root, _ = fsinfo.RealPath(root) // "" if root is not there: then no rules are read
	r.is, _ = os.Stat(root)
	return r
}

// maxLinks is how many links note follows on the way to a file.
const maxLinks = 40

// note is plumbing.Hooks.OnRule. It resolves the path of the file itself, name by name as the system does, and adds each name
// below root, also where a link outside leads into root: each name may lead elsewhere later. It also adds names that do not
// exist yet.
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
		if err == nil { // after an error, nothing is known of the names that follow
			info, err = os.Lstat(full)
		}
		isDir := err == nil && info.IsDir() || errors.Is(err, syscall.ENAMETOOLONG) // it may be a directory
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
		case os.SameFile(info, r.is): // root by another path, which differs in case or is that of a mount
			root = full
		case isDir && isBelow && len(names) > 0 && r.onDir != nil:
			r.onDir(rel)
		}
		dir = full
	}
}

// split returns the directory in which the lookup of path begins, dir if path is relative, and the names to look up from there.
func split(dir, path string) (from string, names []string) {
	volume := filepath.VolumeName(path)
	if path = path[len(volume):]; path != "" && os.IsPathSeparator(path[0]) {
		dir = cmp.Or(volume, filepath.VolumeName(dir)) + string(filepath.Separator)
	}
	for name := range strings.SplitSeq(filepath.ToSlash(path), "/") {
		if name != "" && name != "." {
			names = append(names, name)
		}
	}
	return dir, names
}

// add adds full, a path without links, to the names if it is below root, and returns it relative to root.
func (r *rules) add(root, full string) (rel string, isBelow bool) {
	rel, _ = filepath.Rel(root, full) // "" if there is no root
	if rel == "." || !filepath.IsLocal(rel) {
		return "", false
	}
	rel = filepath.ToSlash(rel)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names[rel] = true
	return rel, true
}
