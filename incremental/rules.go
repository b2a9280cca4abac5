package incremental

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// Rules are the files that decide what is ignored in all of a tree, or in a repository: those that no listing has
// shown, such as .git/config. The names are of those below root, there or not, and of what leads to them.
type rules struct {
	root, real string           // absolute; real is without links
	onDir      func(rel string) // of plumbing.Hooks, which may be nil: called for the directories that lead to a file

	mu    sync.Mutex
	names map[string]bool
}

func newRules(root string, onDir func(rel string)) *rules {
	r := &rules{onDir: onDir, names: map[string]bool{}}
	r.root, _ = filepath.Abs(root)
	if r.real, _ = filepath.EvalSymlinks(r.root); r.real == "" {
		r.real = r.root
	}
	return r
}

// maxLinks is how many links may lead to a file.
const maxLinks = 40

// note is plumbing.Hooks.OnRule. It follows links by itself: each may be switched.
func (r *rules) note(file string) {
	for range maxLinks {
		if file = r.follow(r.relOf(file)); file == "" {
			return
		}
	}
}

// relOf returns the path relative to root of a file, "" if it is not below root.
func (r *rules) relOf(file string) string {
	abs, err := filepath.Abs(file)
	if err != nil {
		return ""
	}
	behind, _ := filepath.EvalSymlinks(filepath.Dir(abs))
	for _, file := range []string{abs, filepath.Join(behind, filepath.Base(abs))} {
		for _, root := range []string{r.root, r.real} {
			if rel, err := filepath.Rel(root, file); err == nil && rel != "." && filepath.IsLocal(rel) {
				return rel
			}
		}
	}
	return ""
}

// follow notes the names that lead to the file rel, up to the first link, and returns the file behind that, or "".
func (r *rules) follow(rel string) (behind string) {
	for end := 0; end < len(rel); end++ {
		next := strings.IndexByte(rel[end:], filepath.Separator)
		if end += next; next < 0 {
			end = len(rel)
		}
		name := rel[:end]
		slashed := filepath.ToSlash(name)
		r.mu.Lock()
		r.names[slashed] = true
		r.mu.Unlock()
		full := filepath.Join(r.real, name)
		info, err := os.Lstat(full)
		switch {
		case err != nil: // the watch of the directory above tells when it is there
			return ""
		case info.Mode()&os.ModeSymlink != 0:
			to, err := os.Readlink(full)
			if err != nil {
				return ""
			}
			if !filepath.IsAbs(to) {
				to = filepath.Join(filepath.Dir(full), to)
			}
			return filepath.Join(to, rel[end:])
		case info.IsDir() && end < len(rel) && r.onDir != nil:
			r.onDir(slashed)
		}
	}
	return ""
}
