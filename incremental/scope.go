package incremental

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/fsinfo"
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

// scopeOf looks up what names lead to.
func (s *Session[T]) scopeOf(names []string) (*scope, error) {
	sc := &scope{
		all: names == nil || s.opts.Symlinks != fileproc.SymlinksSkip, files: map[string]bool{}, trees: map[string]bool{}, missing: map[string]bool{},
		failures: map[failureKey]failure{}, failed: map[string]bool{}, changed: map[string]bool{},
	}
	there := s.r.gone.existence()
	var rels []string
	for _, name := range names {
		rel, err := s.placeOf(name)
		if err != nil {
			return nil, err
		}
		// An event in a directory may give the path through a link that has led there.
		sc.all = sc.all || rel == "." || !isShallow(rel) || there.isBehindLink(rel)
		rels = append(rels, rel)
	}
	for _, it := range there.lstatAll(rels, len(s.r.workers)) {
		s.linked = s.linked || it.err == nil && fsinfo.Names(it.info) > 1
		sc.put(it.rel, it.err == nil && it.info.IsDir(), it.err == nil && there.isFile(it.info.Mode()), it.err)
	}
	// A file may have been written by another of its names, even by a name that is missing by now.
	sc.all = sc.all || s.linked && len(sc.files)+len(sc.missing) > 0
	// Without root, a missing file is not known to be deleted: a run over all files yields what is wrong with root.
	if sc.all = sc.all || s.r.gone.existence().hasDir(".") != yes; sc.all {
		sc.files, sc.trees, sc.missing = nil, nil, nil
		return sc, nil
	}
	for _, of := range []map[string]bool{sc.files, sc.trees} {
		maps.DeleteFunc(of, func(rel string, _ bool) bool { return isIn(sc.trees, path.Dir(rel)) })
	}
	sc.lists = s.opts.MaxDepth != 0 || s.opts.OneFilesystem // fileproc does not combine these with Files
	return sc, nil
}

// placeOf returns the path of what a run must look at because of name: of a directory, or
// root's, if the file of that name decides what is selected there.
func (s *Session[T]) placeOf(name string) (string, error) {
	rel := strings.TrimSuffix(name, "/")
	if rel != "." && !isBelow(rel) {
		return "", fmt.Errorf("incremental: %q is not the path of a file below root: %w", name, fs.ErrInvalid)
	}
	switch {
	case slices.Contains(s.opts.IgnoreFiles, rel) || s.opts.GitIgnore && rel == ".git/info/exclude" || s.rules.names[rel]:
		rel = "." // it decides for all of root
	case decides(&s.opts, rel):
		rel = path.Dir(rel)
	}
	return rel, nil
}

// put adds rel, whose look-up has found a directory, a file, something else, or err.
func (sc *scope) put(rel string, isDir, isFile bool, err error) {
	switch {
	case isDir:
		sc.trees[rel] = true
	case isFile, errors.Is(err, fs.ErrPermission): // the run yields the failure
		sc.files[rel] = true
	case err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
		sc.missing[rel] = true
	default:
		sc.all = true // it may be a directory
	}
}

// decides reports whether a file of the name of rel decides what is selected in its directory.
func decides(o *fileproc.Options, rel string) bool {
	name := path.Base(rel)
	return slices.Contains(o.IgnoreFiles, name) || slices.Contains(o.SkipMarked, name) || o.GitIgnore && (name == ".gitignore" || name == dotGit)
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
