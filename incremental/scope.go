package incremental

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"syscall"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/names"
)

// A scope is what a run of a Session looks at.
type scope struct {
	all     bool
	lists   bool            // the run lists from root on, only directories that lead to the scope, in place of Options.Files
	files   map[string]bool // paths
	trees   map[string]bool // directories, with all below
	missing map[string]bool // paths at which there is neither

	// What the run finds out.
	failures map[failureKey]failure // apart from the session's, which the loop reads meanwhile
	failed   map[string]bool        // files
	changed  map[string]bool        // paths at which something else is now
	young    []string               // what was unsettled before
	gone     int64                  // how many failures say only that a file is gone or replaced
}

func newScope(all bool) *scope {
	return &scope{
		all: all, files: map[string]bool{}, trees: map[string]bool{}, missing: map[string]bool{},
		failures: map[failureKey]failure{}, failed: map[string]bool{}, changed: map[string]bool{},
	}
}

// put adds the path of it by what the look-up has found: a directory, a file, something else, or an error.
func (sc *scope) put(it lstat, there *existence) {
	found := it.err == nil
	switch {
	case found && it.info.IsDir():
		sc.trees[it.rel] = true
	case found && there.isFile(it.info.Mode()), errors.Is(it.err, fs.ErrPermission): // the run yields the failure
		sc.files[it.rel] = true
	case found || errors.Is(it.err, fs.ErrNotExist) || errors.Is(it.err, syscall.ENOTDIR):
		sc.missing[it.rel] = true
	default:
		sc.all = true // it may be a directory
	}
}

// dropNested removes what is in a tree of the scope anyway.
func (sc *scope) dropNested() {
	for _, of := range []map[string]bool{sc.files, sc.trees} {
		maps.DeleteFunc(of, func(rel string, _ bool) bool { return isIn(sc.trees, path.Dir(rel)) })
	}
}

// decides reports whether a file of the name of rel decides what is selected in its directory.
func decides(o *fileproc.Options, rel string) bool {
	name := path.Base(rel)
	return slices.Contains(o.IgnoreFiles, name) || slices.Contains(marksOf(o), name) || (o.GitIgnore || o.GitTracked) && (name == ".gitignore" || name == dotGit)
}

// marksOf returns the names of the files that o.SkipMarked is about.
func marksOf(o *fileproc.Options) (all []string) {
	for _, m := range o.SkipMarked {
		name, _ := names.Mark(m)
		all = append(all, name)
	}
	return all
}

// above returns the directories that lead to the scope.
func (sc *scope) above() map[string]bool {
	above := map[string]bool{}
	for _, of := range []map[string]bool{sc.files, sc.trees} {
		for rel := range of {
			for rel != "." {
				rel = path.Dir(rel)
				above[rel] = true
			}
		}
	}
	return above
}

// isIn reports whether rel is one of paths or below one.
func isIn(paths map[string]bool, rel string) bool {
	for rel != "." {
		if paths[rel] {
			return true
		}
		rel = path.Dir(rel)
	}
	return false
}

// has reports whether the run looks at rel.
func (sc *scope) has(rel string) bool {
	return sc.all || sc.files[rel] || isIn(sc.missing, rel) || isIn(sc.trees, rel)
}

// limit makes a run with o look only at what is in the scope.
func (sc *scope) limit(o *fileproc.Options) {
	switch {
	case sc.all:
	case !sc.lists:
		names := slices.Collect(maps.Keys(sc.files))
		for rel := range sc.trees {
			names = append(names, rel+"/")
		}
		slices.SortFunc(names, fileproc.ComparePaths)
		o.Files = slices.Values(names)
	default:
		above := sc.above()
		selects, selectDir := o.Select, o.SelectDir
		o.Select = func(f *fileproc.File) bool { return sc.has(f.Rel()) && (selects == nil || selects(f)) }
		o.SelectDir = func(e fileproc.Entry) bool {
			rel := e.Rel()
			return (above[rel] || isIn(sc.trees, rel)) && (selectDir == nil || selectDir(e))
		}
		if onSkip := o.OnSkip; onSkip != nil {
			o.OnSkip = func(e fileproc.Entry, why fileproc.SkipReason) {
				if sc.has(cmp.Or(e.Rel(), ".")) {
					onSkip(e, why)
				}
			}
		}
	}
}
