package incremental

import (
	"bytes"
	"strings"
	"sync"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/incremental/internal/cachefile"
	"github.com/fileproc/fileproc/internal/fsinfo"
	"github.com/fileproc/fileproc/internal/gitignore"
	"github.com/fileproc/fileproc/internal/gitindex"
	"github.com/fileproc/fileproc/internal/gitrepo"
)

// A gitTree is a work tree of git, for CompareGit.
//
// The record of a tracked file whose content git keeps as it is has git's hash of the content, and no times. A later run takes
// the record if the index shows that the file has this hash: its entry has the file's metadata, as it was before git wrote the
// index. Records stay right whatever the index says, since a hash is kept only of content that fn got.
type gitTree struct {
	repo  *gitrepo.Repository
	index *gitindex.Index
	time  time.Time // of the index

	mu         sync.Mutex
	submodules map[string]*gitTree        // by path; nil: it cannot be used
	filtered   map[string]*gitignore.List // by directory: what its attributes file lets git convert
}

// gitTreeOf returns the work tree that root is in, or nil if there is none whose index can be read. It shares the index with
// one of others, if it can.
func gitTreeOf(root string, others map[string]*gitTree) *gitTree {
	real, err := fsinfo.RealPath(root)
	if err != nil {
		return nil
	}
	repo, err := gitrepo.Find(gitrepo.Place{Dir: real})
	if err != nil {
		return nil
	}
	for _, o := range others {
		if o != nil && repo != nil && o.repo.Dir() == repo.Dir() {
			repo.IgnoresCase = o.repo.IgnoresCase
			return &gitTree{repo: repo, index: o.index, time: o.time, submodules: map[string]*gitTree{}, filtered: map[string]*gitignore.List{}}
		}
	}
	return newGitTree(repo)
}

func newGitTree(repo *gitrepo.Repository) *gitTree {
	if repo == nil {
		return nil
	}
	t := &gitTree{repo: repo, submodules: map[string]*gitTree{}, filtered: map[string]*gitignore.List{}}
	var err error
	if t.time, err = repo.IndexTime(); err == nil { // before the index is read: a later time would hide changes
		t.index, err = repo.ReadIndex(nil)
	}
	if err != nil {
		return nil
	}
	return t
}

// A gitDir is what git has in a directory.
type gitDir struct {
	gitindex.Dir
	time    time.Time // of the index
	filters []filter
}

// A filter has the patterns that apply in a directory, which has the path dir relative to that of their file.
type filter struct {
	list *gitignore.List
	dir  string
}

// read sets d to what git has in a directory. Path is relative to the one for which t was made, and has a slash at its end.
func (t *gitTree) read(d *gitDir, path string) {
	if d.Entries = nil; t != nil {
		t.readBelowTop(d, string(t.repo.AppendPath(nil, path)))
	}
}

func (t *gitTree) readBelowTop(d *gitDir, path string) {
	d.Entries, d.filters = d.Entries[:0], d.filters[:0]
	for i := range len(path) {
		if path[i] == '/' && t.index.Kind(path[:i]) == gitindex.Repository {
			if sub := t.submodule(path[:i]); sub != nil {
				sub.readBelowTop(d, path[i+1:])
			}
			return
		}
	}
	t.index.In(&d.Dir, path)
	d.time = t.time
	for at := 0; len(d.Entries) > 0 || t.repo.IgnoresCase; { // whose entries may be those of the directory in another case
		if list := t.filter(path[:at]); list != nil {
			d.filters = append(d.filters, filter{list, path[at:]})
		}
		n := strings.IndexByte(path[at:], '/') + 1
		if n == 0 {
			break
		}
		at += n
	}
}

func (t *gitTree) submodule(path string) *gitTree {
	t.mu.Lock()
	defer t.mu.Unlock()
	sub, ok := t.submodules[path]
	if !ok {
		sub = newGitTree(t.repo.Submodule(path))
		t.submodules[path] = sub
	}
	return sub
}

// filter returns the patterns of the files that git converts by an attribute that is set in the directory dir.
func (t *gitTree) filter(dir string) *gitignore.List {
	t.mu.Lock()
	defer t.mu.Unlock()
	list, ok := t.filtered[dir]
	if !ok {
		content, has, err := t.repo.Attributes(dir)
		if err != nil || !has && t.index.Kind(dir+attributesFile) != gitindex.None { // then git takes that of the index
			content = []byte("* filter")
		}
		list = filtersIn(string(content), t.repo.IgnoresCase)
		t.filtered[dir] = list
	}
	return list
}

const attributesFile = ".gitattributes"

// filtersIn returns the patterns of the lines of an attributes file that name a conversion which may keep the size of a file.
func filtersIn(attributes string, ignoresCase bool) *gitignore.List {
	var patterns strings.Builder
	for line := range strings.Lines(attributes) {
		fields := strings.FieldsFunc(strings.TrimPrefix(line, "\ufeff"), func(r rune) bool { return strings.ContainsRune(" \t\r\n", r) })
		pattern, rest, _ := strings.Cut(strings.Join(fields, " "), " ")
		switch {
		case !strings.Contains(rest, "filter") && !strings.Contains(rest, "ident") && !strings.Contains(rest, "encoding"), pattern[0] == '!': // git ignores lines with !
			continue
		case pattern[0] == '"' || pattern[0] == '[': // it is quoted, or a macro, which any line may name
			pattern = "*"
		}
		patterns.WriteString(pattern + "\n")
	}
	return gitignore.ParseAs([]byte(patterns.String()), ignoresCase)
}

// find returns the entry of a file that git does not convert except in ways that change the size, or nil.
func (d *gitDir) find(name string) *gitindex.Entry {
	e := d.Find(name)
	for i := range d.filters {
		if e != nil && d.filters[i].list.Match(d.filters[i].dir, name, false) == gitignore.Ignored {
			return nil
		}
	}
	return e
}

// identityIn returns what runs compare of a file if the index shows that the file, with the metadata s, has the content of its
// entry, and else nothing. It follows the rule of git status, and compares the metadata but the device, whatever core.checkStat
// and core.trustctime say. Without isFine (see trust), times are true to the second, as for git: if a file changes right after
// git has looked at it, its times may stay the same.
func (d *gitDir) identityIn(name string, s fileproc.Stat, isFine bool) (id cachefile.Identity) {
	e := d.find(name)
	if e == nil {
		return id
	}
	was, written := e.Stat(), d.time
	if !isFine {
		written = written.Truncate(time.Second)
	}
	switch {
	case was.IsLink || was.IsInConflict || was.IsAssumed || was.IsOutside || was.IsToBeAdded,
		!was.ModTime.Is(s.ModTime) || !was.ChangeTime.Is(s.ChangeTime),
		!was.ModTime.IsBefore(written) || !was.ChangeTime.IsBefore(written), // it may have changed in the same moment, once more
		was.Inode != uint32(s.Inode) || was.UID != s.UID || was.GID != s.GID || !e.HasSize(s.Size):
		return id
	}
	return blobIdentity(e, s)
}

// blobIdentity is what runs compare of a file with the content of e.
func blobIdentity(e *gitindex.Entry, s fileproc.Stat) (id cachefile.Identity) {
	id.Size, id.Mode = s.Size, s.Mode
	copy(id.Content[:], e.ID())
	return id
}

// blob returns what runs compare of f, which has been read, if f has the content of its entry in git's index.
func (r *run[T]) blob(f *fileproc.File, s fileproc.Stat) (id cachefile.Identity, ok bool) {
	if r.git == nil || r.opts.ReadSize == fileproc.NoRead || f.Truncated() {
		return id, false
	}
	w := &r.workers[f.Worker()]
	r.prepareDir(w, f)
	e := w.tracked.find(f.Name())
	if e == nil || !e.IsOf(bytes.NewReader(f.Data()), int64(len(f.Data()))) {
		return id, false
	}
	return blobIdentity(e, s), true // with the size in s, which fn may use, although it may be that of older content
}
