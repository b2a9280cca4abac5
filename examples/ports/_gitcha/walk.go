package gitcha

import (
	"context"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fileproc/fileproc"
)

// FindFirstFile returns the first entry that FindFiles would find, or a zero result. It then stops the search.
func FindFirstFile(path string, list []string) (SearchResult, error) {
	found, err := search(path, list, nil, true)
	if err != nil {
		return SearchResult{}, err
	}
	for r := range found {
		return r, nil
	}
	return SearchResult{}, nil
}

func findFiles(path string, list, ignorePatterns []string, respectGitIgnore bool) (chan SearchResult, error) {
	found, err := search(path, list, ignorePatterns, respectGitIgnore)
	if err != nil {
		return nil, err
	}
	ch := make(chan SearchResult)
	go func() {
		defer close(ch)
		for r := range found {
			ch <- r
		}
	}()
	return ch, nil
}

func search(root string, list, ignorePatterns []string, respectGitIgnore bool) (iter.Seq[SearchResult], error) {
	root, err := filepath.Abs(root)
	if err == nil {
		root, err = filepath.EvalSymlinks(root)
	}
	wanted := func(path string) bool {
		name := strings.ToLower(filepath.Base(path))
		return slices.ContainsFunc(list, func(pattern string) bool {
			ok, _ := filepath.Match(strings.ToLower(pattern), name)
			return ok || strings.EqualFold(pattern, name)
		})
	}
	ignored := func(path string) bool {
		return slices.ContainsFunc(ignorePatterns, func(pattern string) bool {
			of := path
			if !strings.ContainsRune(pattern, filepath.Separator) { // a name, in any directory
				of = filepath.Base(path)
			}
			ok, _ := filepath.Match(pattern, of)
			return ok
		})
	}
	opts := fileproc.Options{
		GitIgnore: respectGitIgnore, Ordered: true, Stat: true, Symlinks: fileproc.SymlinksFiles, SymlinksOutside: true,
		SelectDir: func(e fileproc.Entry) bool { return !ignored(e.Path()) },
		Select:    func(f *fileproc.File) bool { return wanted(f.Name()) && !ignored(f.Path()) },
	}
	return func(yield func(SearchResult) bool) {
		if ignored(root) {
			return
		}
		if info, err := os.Stat(root); err == nil && wanted(root) && !yield(SearchResult{root, info}) {
			return
		}
		for e, err := range fileproc.Walk(context.Background(), root, opts) {
			if err != nil || e.IsDir() && !wanted(e.Name()) {
				continue
			}
			if info, err := e.Info(); err == nil && !yield(SearchResult{e.Path(), info}) {
				return
			}
		}
	}, err
}
