package fileproc

import (
	"io/fs"
	"slices"
	"strings"
	"unsafe"

	"github.com/fileproc/fileproc/internal/gitignore"
	"github.com/fileproc/fileproc/internal/gitindex"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/pattern"
)

// stringOf returns name as a string, which is valid as long as name is.
func stringOf(name []byte) string { return unsafe.String(unsafe.SliceData(name), len(name)) }

// A filter is the options that select files by name and path, prepared.
type filter struct {
	suffixes         []string
	include, exclude []pattern.Glob
	shard, shards    int
	needsPath        bool // include, exclude or shards is set
	ignoreCase       bool // suffixes and patterns are folded, and match folded names and paths
}

func newFilter(c *config) filter {
	f := filter{needsPath: len(c.include) > 0 || len(c.exclude) > 0 || c.shards > 1, shard: c.shard, shards: c.shards, suffixes: c.suffixes}
	if f.ignoreCase = c.ignoreCase; f.ignoreCase {
		f.suffixes = nil
		for _, s := range c.suffixes {
			f.suffixes = append(f.suffixes, f.fold(s))
		}
	}
	for _, p := range c.include {
		if f.ignoreCase {
			p = pattern.Fold(p)
		}
		f.include = append(f.include, pattern.Expand(p)...)
	}
	for _, p := range c.exclude {
		if f.ignoreCase {
			p = pattern.Fold(p)
		}
		f.exclude = append(f.exclude, pattern.Expand(p)...)
	}
	return f
}

// fold returns s in the form in which the methods that follow take names and paths.
func (f *filter) fold(s string) string {
	if f.ignoreCase {
		s = string(pattern.AppendFold(nil, s))
	}
	return s
}

// hasSuffix reports whether name ends as Options.Suffixes asks.
func (f *filter) hasSuffix(name string) bool {
	return len(f.suffixes) == 0 || slices.ContainsFunc(f.suffixes, func(s string) bool { return strings.HasSuffix(name, s) })
}

// keeps reports whether the patterns keep the file rel.
func (f *filter) keeps(rel string) bool {
	return !f.excludes(rel) && (len(f.include) == 0 || slices.ContainsFunc(f.include, func(g pattern.Glob) bool { return g.Match(rel) }))
}

// prunes reports whether the patterns leave out all of the directory rel.
func (f *filter) prunes(rel string) bool {
	return f.excludes(rel) || len(f.include) > 0 && !slices.ContainsFunc(f.include, func(g pattern.Glob) bool { return g.Reaches(rel) })
}

func (f *filter) excludes(rel string) bool {
	return slices.ContainsFunc(f.exclude, func(g pattern.Glob) bool { return g.Match(rel) })
}

// inShard reports whether the file rel belongs to Options.Shard.
func (f *filter) inShard(rel string) bool {
	return f.shards == 0 || names.ShardOf(rel, f.shards) == f.shard
}

// An entryFilter filters entries for one worker, before any is opened.
type entryFilter struct {
	*filter
	cfg    *config
	path   pathBuffer
	folded []byte
	inRepo []byte // a path relative to the top of a repository
	unread bool   // a call has treated an entry as ignored without git's index, which is not read yet and may have the entry
}

// fold is filter.fold without an allocation. The result is valid until the next call.
func (f *entryFilter) fold(s string) string {
	if f.ignoreCase {
		f.folded = pattern.AppendFold(f.folded[:0], s)
		s = unsafe.String(unsafe.SliceData(f.folded), len(f.folded))
	}
	return s
}

func (f *entryFilter) hasSuffix(name string) bool { return f.filter.hasSuffix(f.fold(name)) }
func (f *entryFilter) keeps(rel string) bool      { return f.filter.keeps(f.fold(rel)) }
func (f *entryFilter) prunes(rel string) bool     { return f.filter.prunes(f.fold(rel)) }
func (f *entryFilter) excludes(rel string) bool   { return f.filter.excludes(f.fold(rel)) }

// file returns why the entry name of n, which is no directory, is skipped because of
// what is known before it is opened, or notSkipped.
func (f *entryFilter) file(n *node, name []byte, typ fs.FileMode) SkipReason {
	switch {
	case !f.hasSuffix(stringOf(name)):
		return SkippedSuffix
	case f.cfg.skipHidden && name[0] == '.':
		return SkippedHidden
	}
	if f.needsPath {
		rel := f.path.rel(n, name)
		switch {
		case !f.keeps(rel), f.excludesBehind(n, name):
			return SkippedPattern
		case !f.inShard(rel):
			return SkippedShard
		}
	}
	if is, _ := f.ignores(n, name, false); is {
		return SkippedIgnored
	}
	if typ != 0 && !f.cfg.allTypes {
		return SkippedNotRegular
	}
	return notSkipped
}

// dir returns why the directory name of n is left out with all that is in it, before it
// is opened, or notSkipped and the ignore files that apply in it.
func (f *entryFilter) dir(n *node, name []byte) (SkipReason, *gitignore.Chain) {
	switch {
	case f.cfg.skipHidden && name[0] == '.':
		return SkippedHidden, nil
	case f.needsPath && (f.prunes(f.path.rel(n, name)) || f.excludesBehind(n, name)):
		return SkippedPattern, nil
	}
	is, isTracked := f.ignores(n, name, true)
	switch {
	case is:
		return SkippedIgnored, nil
	case isTracked && !n.ignore.IgnoresAll():
		return notSkipped, n.ignore.IgnoreAll()
	}
	return notSkipped, n.ignore
}

// excludesBehind reports whether n's path has a link in it, and Options.Exclude leaves
// out the entry name of n because of its path without links.
func (f *entryFilter) excludesBehind(n *node, name []byte) bool {
	if !f.cfg.followDirs || len(f.exclude) == 0 {
		return false
	}
	t := n.behindLink(f.path.rel(n, name))
	return !t.outside && f.excludes(t.path)
}

// ignores reports whether the ignore files of n and above leave out an entry, and whether those of
// git would, if its index had nothing there.
func (f *entryFilter) ignores(n *node, name []byte, isDir bool) (is, isTracked bool) {
	if n.ignore == nil {
		return false, false
	}
	v, ofRepo := n.ignore.Decide(f.path.dir(n), stringOf(name), isDir)
	if v == gitignore.Ignored && ofRepo && f.tracks(n, name, isDir) {
		return n.ignore.MatchOthers(f.path.dir(n), stringOf(name), isDir) == gitignore.Ignored, true
	}
	return v == gitignore.Ignored, false
}

// tracks reports whether git's index has the entry name of n or, if that is a directory, something in it.
func (f *entryFilter) tracks(n *node, name []byte, isDir bool) bool {
	r := repositoryOf(n)
	x := r.index.Load()
	if x == nil {
		f.unread = true
		return false
	}
	f.inRepo = r.AppendPath(f.inRepo[:0], f.path.rel(n, name)[r.length:])
	kind := x.Kind(stringOf(f.inRepo))
	if !isDir {
		return kind != gitindex.None
	}
	f.inRepo = append(f.inRepo, '/')
	return kind == gitindex.Repository && !f.cfg.gitTracked || x.HasBelow(stringOf(f.inRepo))
}

// below returns why a name is skipped whose directory is left out for the reason why: that
// reason, unless Options.Suffixes, which precede all other filters, leave the name out.
func (f *entryFilter) below(name names.Name, why SkipReason) SkipReason {
	if !f.hasSuffix(name.String()) {
		return SkippedSuffix
	}
	return why
}
