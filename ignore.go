package fileproc

import (
	"cmp"
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/fileproc/fileproc/internal/backend"
	"github.com/fileproc/fileproc/internal/content"
	"github.com/fileproc/fileproc/internal/fsinfo"
	"github.com/fileproc/fileproc/internal/gitignore"
	"github.com/fileproc/fileproc/internal/gitindex"
	"github.com/fileproc/fileproc/internal/gitrepo"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
)

// readIgnorePaths reads the files that Options.IgnoreFiles names by path, for t.
func (w *worker) readIgnorePaths(t *tree) error {
	root := &t.root
	for _, p := range w.cfg.ignorePaths {
		n, rest := names.LevelsUp(p)
		dir, below, err := gitrepo.Above(w.cfg.fsys != nil, t.paths.root, n)
		if err != nil {
			return err
		}
		place := gitrepo.Place{Looks: w.calls.onRule} // absolute paths are of the system, also with an FS
		var text []byte
		read := func() (err error) {
			text, err = place.ReadFile(rest, gitrepo.MaxIgnoreFile)
			return err
		}
		if !filepath.IsAbs(p) {
			place.FS, place.Dir = w.cfg.fsys, dir
		}
		if n == 0 && !filepath.IsAbs(p) {
			err = w.withDirAside(root, func(d backend.Directory) (err error) {
				if place.At, err = backend.GitAt(d, dir); err == nil {
					err = read()
				}
				return err
			})
			w.pin.drop(&w.dirs)
		} else {
			err = w.aside(func() error { return w.retryOnResource(read) })
		}
		// Where .git is a file, as in a work tree, .git/info/exclude gives ENOTDIR.
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			return err
		}
		if list := gitignore.Parse(text); below == "" {
			root.ignore = root.ignore.Push("", list)
		} else {
			root.ignore = root.ignore.PushAbove(below, list)
		}
	}
	return nil
}

// gitPlace returns the place of n, in which git's files are looked for.
func (w *worker) gitPlace(n *node) gitrepo.Place {
	p := gitrepo.Place{FS: w.cfg.gitFS, Dir: filepath.Join(n.tree.realRoot, filepath.FromSlash(n.relPath(""))), Looks: w.calls.onRule}
	switch root := cmp.Or(w.cfg.gitRoot, n.tree.paths.root); {
	case p.FS != nil:
		p.Dir = path.Join(root, n.relPath(""))
	case n.parent == nil:
		p.Given, _ = fsinfo.Abs(root)
	}
	return p
}

// foundFailedGit counts a file of git that could not be used as a failure.
func (w *worker) foundFailedGit(err error) {
	failure := &Failure{Kind: FailedFile, PathError: fs.PathError{Op: "open", Path: ".git", Err: err}}
	if e, ok := err.(*fs.PathError); ok {
		failure.PathError = *e
	}
	if dir, name := filepath.Split(failure.Path); names.HasDotDot(failure.Path) { // as git's configuration may name it
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			failure.Path = filepath.Join(real, name)
		}
	}
	w.foundFailedRule(failure)
}

// readGitRules lets the rules of a git repository apply in n, if n is the repository's
// top, or if n is root and lies in the repository. It returns errStopped if the run is
// stopped. If n is not root and cannot be opened, it returns the reason.
func (w *worker) readGitRules(n *node) error {
	p := w.gitPlace(n)
	var rules []gitrepo.Rule
	var repo *gitrepo.Repository
	var opened bool
	var errs []error
	read := func() error {
		opened = true
		rules, repo, errs = gitrepo.Rules(p, n.parent != nil, w.cfg.ignoredAbove()...)
		return errors.Join(errs...)
	}
	err := w.withDirAside(n, func(d backend.Directory) (err error) {
		if p.At, err = backend.GitAt(d, p.Dir); err == nil {
			err = read()
		}
		return err
	})
	switch {
	case err == errStopped:
		return err
	case !opened && n.parent == nil:
		errs = append(errs, sys.PathError("open", p.Dir, err))
	case !opened:
		return err
	}
	for _, err := range errs {
		w.foundFailedGit(err)
	}
	if repo != nil {
		n.ignore = n.ignore.NewRepository(&repository{Repository: repo, at: n, length: n.pathLen()}, repo.IgnoresCase)
	}
	for _, r := range rules {
		n.ignore = n.ignore.PushRanked(w.cfg.ignoreRank(r.Name), r.Above, w.entryFilter.path.dir(n), r.Name == "" || r.Name == gitIgnoreFile, r.List)
	}
	return nil
}

// readIgnoreFiles reads the ignore files that n has, and with git also what .git says. If
// it returns an error, what n's files ignore is unknown: the error is errStopped, or the
// failure of n as a whole.
func (w *worker) readIgnoreFiles(n *node, git bool, has func(name string) bool) error {
	defer w.pin.drop(&w.dirs)
	if git && n.parent != nil && (!n.ignore.IgnoresAll() || w.isSubmodule(n)) { // root's is known
		if err := w.readGitRules(n); err != nil {
			return err
		}
	}
	files := w.cfg.ignoreNames
	if n.ignore.Repository() != nil && !slices.Contains(files, gitIgnoreFile) {
		files = append([]string{gitIgnoreFile}, files...)
	}
	for _, name := range files {
		if name == gitIgnoreFile && n.ignore.IgnoresAll() { // git reads none there
			continue
		}
		if has(name) && !w.readIgnoreFile(n, w.arena.Add([]byte(name))) {
			return errStopped
		}
	}
	return nil
}

// isSubmodule reports whether n's repository has n as a submodule.
func (w *worker) isSubmodule(n *node) bool {
	r, path := repositoryOf(n), n.dirPath()
	x := r.index.Load()
	return x != nil && len(path) > r.length && x.Kind(string(r.AppendPath(nil, path[r.length:]))) == gitindex.Repository
}

// readTracked lets only what git tracks below root come. What is behind links, and names of Options.Files, may
// lie anywhere: with these, all is ignored but what is tracked.
func (w *worker) readTracked(root *node) error {
	p := w.gitPlace(root)
	var repo *gitrepo.Repository
	err := w.withDirAside(root, func(d backend.Directory) (err error) {
		if p.At, err = backend.GitAt(d, p.Dir); err == nil {
			repo, err = gitrepo.Find(p)
		}
		return err
	})
	w.pin.drop(&w.dirs)
	switch {
	case err != nil:
		return err
	case repo == nil:
		return &fs.PathError{Op: "open", Path: root.tree.paths.root, Err: gitrepo.ErrNone}
	}
	r := &repository{Repository: repo, at: root}
	if root.ignore = root.ignore.NewRepository(r, false); w.given == nil && !w.cfg.followDirs {
		root.tree.tracked = r
	} else {
		root.ignore = root.ignore.IgnoreAll()
	}
	failed, err := w.readIndexOnce(r)
	return cmp.Or(failed, err)
}

// readIndex reads the index of n's repository, unless it has been read. An index that cannot be used
// is a failure, and counts as empty. ReadIndex returns errStopped if the run is stopped. No worker
// calls it while it keeps a directory open.
func (w *worker) readIndex(n *node) error {
	r := repositoryOf(n)
	failed, err := w.readIndexOnce(r)
	if failed != nil {
		w.foundFailedGit(failed)
	}
	return err
}

func (w *worker) readIndexOnce(r *repository) (failed, stopped error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.index.Load()
	if x != nil {
		return nil, nil
	}
	var err error
	if p := w.gitPlace(r.at); p.FS == nil && r.IsTop() {
		err = w.withDirAside(r.at, func(d backend.Directory) error {
			at, err := backend.GitAt(d, p.Dir)
			if err == nil {
				x, err = r.ReadIndex(at)
			}
			return err
		})
		w.pin.drop(&w.dirs)
	} else {
		err = w.aside(func() error {
			return w.retryOnResource(func() (err error) {
				x, err = r.ReadIndex(nil)
				return err
			})
		})
	}
	switch {
	case err == errStopped:
		return nil, err
	case err != nil:
		x = &gitindex.Index{}
	}
	r.index.Store(x)
	w.shared.mu.Lock()
	w.repositories = append(w.repositories, r)
	w.shared.mu.Unlock()
	return err, nil
}

// needsIndex reports whether a rule of git ignores an entry of n, and git's index, which may have the
// entry all the same, is not read.
func (w *worker) needsIndex(n *node, name names.Name, typ fs.FileMode) bool {
	f := &w.entryFilter
	f.unread = false
	if typ != fs.ModeDir {
		f.file(n, name.Bytes(), typ)
	}
	if typ == fs.ModeDir || w.cfg.followDirs { // or the name of a link to a directory
		f.dir(n, name.Bytes())
	}
	return f.unread
}

// needsNoIndex reports whether no rule of git applies in n, or git's index is read.
func needsNoIndex(n *node) bool {
	r := repositoryOf(n)
	return r == nil || r.index.Load() != nil
}

func (w *worker) readIgnoreFile(n *node, name names.Name) bool {
	return w.readRule(n, name, w.reader.Limited(gitrepo.MaxIgnoreFile), func(text []byte) {
		ofRepo := name.String() == gitIgnoreFile && n.ignore.Repository() != nil
		list := gitignore.ParseAs(text, ofRepo && repositoryOf(n).IgnoresCase)
		n.ignore = n.ignore.PushRanked(w.cfg.ignoreRank(name.String()), "", w.entryFilter.path.dir(n), ofRepo, list)
	})
}

// readRule passes the content of a file of n to use. If the file cannot be read, that is a
// failure, unless the file does not exist any more. ReadRule returns false if the run is stopped.
func (w *worker) readRule(n *node, name names.Name, r content.Reader, use func(text []byte)) bool {
	var c content.Content
	err := w.withDirAside(n, func(d backend.Directory) error { return readFile(&r, d, name, &c) })
	switch {
	case err == nil:
		use(c.Data)
	case err == errStopped, errors.Is(err, fs.ErrNotExist):
	default:
		w.foundFailedRule(w.failure(FailedFile, "open", n, name.String(), err))
	}
	r.Release()
	return err != errStopped
}

// A file with the name cacheTag marks its directory only if it begins with cacheSignature:
// the Cache Directory Tagging Specification, https://bford.info/cachedir/.
const (
	cacheTag       = "CACHEDIR.TAG"
	cacheSignature = "Signature: 8a477f597d28d172789f06886806bc55"
)

// marks returns the names of files that mark n.
func (c *config) marks(n *node) []string {
	if n.parent == nil {
		return c.skipRootMarked
	}
	return c.skipMarked
}

// hasCacheTag reports whether the file cacheTag of n marks n.
func (w *worker) hasCacheTag(n *node) (has bool) {
	defer w.pin.drop(&w.dirs)
	r := w.reader.Limited(int64(len(cacheSignature)))
	r.Truncate = true
	w.readRule(n, w.arena.Add([]byte(cacheTag)), r, func(text []byte) { has = string(text) == cacheSignature })
	return has
}
