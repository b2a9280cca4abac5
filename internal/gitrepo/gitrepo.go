// Package gitrepo finds the git repository that contains a directory, the ignore
// files that git uses for the directory and that are not in it, and the repository's index.
// It does not run git.
package gitrepo

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fileproc/fileproc/internal/fsinfo"
	"github.com/fileproc/fileproc/internal/gitignore"
	"github.com/fileproc/fileproc/internal/gitindex"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
)

// A Place is a directory and the way in which git's files there are opened. A name in a
// Place is absolute, or relative to the directory, and may then lead out of it.
type Place struct {
	FS  fs.FS  // nil: the operating system's
	Dir string // absolute and without symbolic links, or a path in FS
	At  At     // Dir, open; nil: files are reached by Dir's path

	// Given is Dir's absolute path as the caller has given it, perhaps with symbolic links, or "".
	Given string

	// Looks, if not nil, is called with the path of each file on which git's rules depend, before the file
	// is read or looked up. Looks is not called for files in FS.
	Looks func(path string)
}

// At is an open directory. Files are opened relative to At, since the directory's path may lead
// elsewhere by now, or be too long. A name may have several components, and lead
// through symbolic links, which git follows.
type At interface {
	// OpenAt opens a file and does not wait for the writer of a FIFO.
	OpenAt(name string) (fs.File, error)
	// ModeAt returns the mode of a file, or, with isLink, that of a symbolic link itself.
	ModeAt(name string, isLink bool) (fs.FileMode, error)
}

// A Repository has the paths of a git repository. They are relative to the top of the work
// tree, or absolute.
type Repository struct {
	top    Place
	dir    string // .git, or the directory named by that file in a submodule or linked work tree
	common string // the directory that all work trees of the repository share, in most cases dir
	below  string // the path from the top to the directory for which Find or Rules was called, with a slash at its end, or ""

	isConfigured bool // config has been called
	IgnoresCase  bool // core.ignoreCase, once Rules, Settings or ReadIndex has read the configuration
}

// ErrNone is the error of callers that need a repository where Find returns none.
var ErrNone = errors.New("in no git repository")

// Find returns the repository whose work tree contains p, or nil if there is none.
// Like git, it passes over directories above p in which it may not look.
func Find(p Place) (*Repository, error) {
	parent := filepath.Dir
	if p.FS != nil {
		parent = path.Dir
	}
	from := p.Dir
	for isAbove := false; path.Base(filepath.ToSlash(p.Dir)) != ".git"; isAbove = true {
		r, err := open(p)
		if isAbove && errors.Is(err, fs.ErrPermission) {
			err = nil
		}
		up := parent(p.Dir)
		if r != nil {
			rel, _ := filepath.Rel(p.Dir, from) // no error: the former is a prefix of the latter
			if rel = filepath.ToSlash(rel); rel != "." {
				r.below = rel + "/"
			}
		}
		if r != nil || err != nil || up == p.Dir {
			return r, err
		}
		p = Place{FS: p.FS, Dir: up, Looks: p.Looks}
	}
	return nil, nil
}

// Above returns the directory n levels above root, and root's path relative to that
// directory, with a slash at its end. Root is a path of the system, unless isFS is set. It stops at the file system's root.
func Above(isFS bool, root string, n int) (dir, below string, err error) {
	if n == 0 {
		return root, "", nil
	}
	split, clean := path.Split, path.Clean
	if dir = root; !isFS {
		split, clean = filepath.Split, filepath.Clean
		if dir, err = fsinfo.RealPath(dir); err != nil {
			return "", "", err
		}
	}
	for range n {
		up, name := split(dir)
		if name == "" {
			break
		}
		dir, below = clean(up), name+"/"+below
	}
	return dir, below, nil
}

// A Rule has the patterns of one ignore file, for the directory for which Rules was called.
type Rule struct {
	Name  string // of a file in a directory above, or "" for a file that applies to the whole repository
	Above string // the path from the file's directory, or the work tree's top, to that directory, with a slash at its end, or ""
	List  *gitignore.List
}

// Rules returns, in increasing precedence, the ignore files that git uses in p, except the file in p: the
// user's, the repository's, and those in the directories above p. In the latter it also reads files with
// the names in also. The repository is nil if p is in none or, with isTop, is not the top of one. Each error
// is of a file that could not be used; the rules of that file do not apply.
func Rules(p Place, isTop bool, also ...string) (rules []Rule, repo *Repository, errs []error) {
	search := Find
	if isTop {
		search = openNested
	}
	repo, err := search(p)
	if err != nil {
		return nil, nil, []error{err}
	}
	if repo == nil {
		return nil, nil, nil
	}
	below := repo.below
	add := func(file, name, above string, err error) {
		if err == nil && file != "" {
			var content []byte
			if content, err = repo.read(file, name != ""); err == nil {
				rules = append(rules, Rule{name, above, gitignore.ParseAs(content, repo.IgnoresCase && (name == "" || name == ".gitignore"))})
			}
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	global, err := repo.ExcludesFile()
	add(global, "", below, err)
	add(join(repo.common, "info/exclude"), "", below, nil)
	for above, dir := below, ""; above != ""; {
		for _, name := range append([]string{".gitignore"}, also...) {
			add(filepath.Join(dir, name), name, above, nil)
		}
		name, rest, _ := strings.Cut(above, "/")
		dir, above = filepath.Join(dir, name), rest
	}
	return rules, repo, errs
}

// AppendPath appends the path of a file in the directory for which Find or Rules was called, relative to the top.
func (r *Repository) AppendPath(b []byte, path string) []byte {
	return append(append(b, r.below...), path...)
}

// Dir returns the path of .git, or of the directory that this file names.
func (r *Repository) Dir() string { return r.top.path(r.dir) }

// IsTop reports whether that directory is the top.
func (r *Repository) IsTop() bool { return r.below == "" }

// ReadIndex returns the work tree's index, which is empty if there is no such file. At is the top, if the
// caller has it open.
func (r *Repository) ReadIndex(at At) (*gitindex.Index, error) {
	r.top.At = at
	if !r.isConfigured {
		if _, err := r.config(); err != nil {
			return nil, err
		}
	}
	p := r.top
	file := join(r.dir, "index")
	open := func(name string) ([]byte, error) { return p.ReadFile(join(r.dir, name), maxIndex) }
	for again := true; ; again = false {
		content, err := open("index")
		if isAbsent(err) {
			return &gitindex.Index{}, nil
		}
		var x *gitindex.Index
		if err == nil {
			x, err = gitindex.Parse(content, open)
		}
		if err == nil && r.IgnoresCase {
			err = x.FoldCase()
		}
		switch {
		case err == nil:
			return x, nil
		case again && isAbsent(err): // another index has taken the place of the one that named a shared file
			continue
		}
		var e *fs.PathError
		if !errors.As(err, &e) {
			err = withPath(p.path(file), sys.AsError("read", err))
		}
		return nil, err
	}
}

// read returns the content of an ignore file, or nothing if there is no such file. In
// the work tree, it follows no link to an ignore file, as git does.
func (r *Repository) read(file string, inTree bool) ([]byte, error) {
	mode, err := r.top.mode(file, r.top.FS != nil || inTree)
	switch {
	case err == nil && mode.IsDir() && !inTree && r.top.FS == nil:
		return nil, notRegular(r.top.path(file)) // git does not run then
	case isAbsent(err) || err == nil && !mode.IsRegular():
		return nil, nil
	case err != nil:
		return nil, err
	}
	return r.top.ReadFile(file, MaxIgnoreFile)
}

// openFS is open for an fs.FS. It does not read the repository's configuration.
func openFS(p Place) (*Repository, error) {
	mode, err := p.mode(".git", false)
	switch {
	case err == nil && mode.IsDir():
		for _, name := range []string{"HEAD", "objects", "refs"} {
			if err == nil {
				_, err = p.mode(path.Join(".git", name), false)
			}
		}
	case err == nil && mode.Type()&^fs.ModeIrregular != 0: // an object store may call any file irregular
		return nil, nil
	case err == nil:
		_, err = p.gitDir()
	}
	if err != nil {
		if isAbsent(err) {
			err = nil
		}
		return nil, err
	}
	return &Repository{top: p, dir: ".git", common: ".git"}, nil
}

// open returns the repository whose work tree has its top at p, or nil. It fails if it cannot
// find out: without an error, a run would process files that git ignores.
func open(p Place) (*Repository, error) {
	if p.FS != nil {
		return openFS(p)
	}
	dir := ".git"
	mode, err := p.mode(dir, false)
	switch {
	case isAbsent(err) || err == nil && !mode.IsDir() && !mode.IsRegular(): // git looks further up
		return nil, nil
	case err != nil:
		return nil, err
	case !mode.IsDir():
		if dir, err = p.gitDir(); err != nil {
			return nil, err
		}
	}
	shared, err := p.common(dir)
	if err == nil && mode.IsDir() {
		var isOne bool
		if isOne, err = p.isRepository(dir, shared); !isOne { // git looks further up
			return nil, err
		}
	}
	if err != nil {
		return nil, err
	}
	return &Repository{top: p, dir: dir, common: shared}, nil
}

// openNested is open for a directory in a work tree. Like git, it takes a file .git there that does not lead to
// a repository for none. A file .git of the directory that the user has named may lead to what is not
// mounted in a container.
func openNested(p Place) (*Repository, error) {
	r, err := open(p)
	switch {
	case errors.Is(err, errNoLink):
		return nil, nil
	case r == nil || r.dir == ".git" || p.FS != nil:
		return r, err
	}
	isOne, err := p.isRepository(r.dir, r.common)
	if !isOne {
		r = nil
	}
	return r, err
}

var errNoLink = errors.New(`not a directory, and does not begin with "gitdir: "`)

// gitDir returns the directory that the file .git names. The directory may not exist, as in a container.
func (p Place) gitDir() (string, error) {
	content, err := p.ReadFile(".git", maxLink)
	if err != nil {
		return "", err
	}
	to, ok := strings.CutPrefix(string(content), "gitdir: ")
	if !ok {
		return "", &fs.PathError{Op: "read", Path: p.path(".git"), Err: errNoLink}
	}
	return join("", strings.TrimRight(to, "\r\n")), nil
}

// common returns the directory that dir shares with other work trees.
func (p Place) common(dir string) (string, error) {
	content, err := p.ReadFile(join(dir, "commondir"), maxLink)
	switch {
	case isAbsent(err):
		return dir, nil
	case err != nil:
		return "", err
	}
	to := join(dir, strings.TrimRight(string(content), "\r\n"))
	if filepath.IsAbs(to) {
		to = resolved(to)
	}
	return to, nil
}

// isRepository reports whether dir has the entries that git requires.
func (p Place) isRepository(dir, common string) (bool, error) {
	_, err := p.mode(join(dir, "HEAD"), true)
	for _, name := range []string{"objects", "refs"} {
		if err == nil {
			var mode fs.FileMode
			if mode, err = p.mode(join(common, name), false); err == nil && !mode.IsDir() {
				return false, nil
			}
		}
	}
	if isAbsent(err) {
		return false, nil
	}
	return err == nil, err
}

// path returns the path of the file name.
func (p Place) path(name string) string {
	switch {
	case p.FS != nil:
		return path.Join(p.Dir, filepath.ToSlash(name))
	case filepath.IsAbs(name):
		return name
	case names.HasDotDot(p.Dir) || names.HasDotDot(strings.TrimLeft(filepath.ToSlash(name), "./")): // Join would remove dots that may be behind a link
		return p.Dir + string(filepath.Separator) + filepath.FromSlash(name)
	}
	return filepath.Join(p.Dir, name)
}

// isAt reports whether the file name is opened relative to p.At.
func (p Place) isAt(name string) bool { return p.At != nil && !filepath.IsAbs(name) }

// mode returns the mode of the file name, or, with isLink, that of a symbolic link itself.
func (p Place) mode(name string, isLink bool) (fs.FileMode, error) {
	var info fs.FileInfo
	var err error
	full := p.path(name)
	p.looks(full)
	switch {
	case p.isAt(name):
		mode, err := p.At.ModeAt(name, isLink)
		return mode, withPath(full, err)
	case p.FS != nil && isLink:
		info, err = fs.Lstat(p.FS, full)
	case p.FS != nil:
		info, err = sys.StatFS(p.FS, full)
	case isLink:
		info, err = os.Lstat(full)
	default:
		info, err = os.Stat(full)
	}
	if err != nil {
		return 0, err
	}
	return info.Mode(), nil
}

func (p Place) looks(path string) {
	if p.Looks != nil && p.FS == nil {
		p.Looks(path)
	}
}

// withPath adds the path to err, unless err is nil.
func withPath(path string, err error) error {
	if err == nil {
		return nil
	}
	return sys.PathError("open", path, sys.AsError("open", err))
}

const (
	maxLink   = 1 << 20 // the maximum size in bytes of a file that names a directory
	maxConfig = 64 << 20
	maxIndex  = 1 << 30
	// MaxIgnoreFile limits the size of an ignore file in bytes, as git does.
	MaxIgnoreFile = 100 << 20
)

// ReadFile returns the content of the regular file name, of at most limit bytes. The null device, with
// which users switch one of git's files off, counts as empty. ReadFile fails for any other file that is not
// regular: a device may be endless. An fs.FS may call any file irregular, so that is no failure there. The
// open does not wait for the writer of a FIFO, which may take the place of a regular file at any time. An
// fs.FS has no such open, so ReadFile looks up the type first.
func (p Place) ReadFile(name string, limit int64) ([]byte, error) {
	if name == os.DevNull && p.FS == nil {
		return nil, nil
	}
	full := p.path(name)
	p.looks(full)
	f, err := p.openFile(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() && (p.FS == nil || info.Mode().Type() != fs.ModeIrregular) {
		err = notRegular(full)
	}
	if err != nil {
		return nil, withPath(full, err)
	}
	var buffer bytes.Buffer
	buffer.Grow(int(min(max(info.Size(), 0), limit, 64<<20)) + bytes.MinRead) // the size may be wrong
	_, err = buffer.ReadFrom(io.LimitReader(f, limit+1))
	content := buffer.Bytes()
	if err == nil && int64(len(content)) > limit {
		err = fmt.Errorf("larger than %d bytes", limit)
	}
	if err != nil {
		return nil, withPath(full, sys.AsError("read", err))
	}
	return content, nil
}

func (p Place) openFile(name string) (fs.File, error) {
	full := p.path(name)
	if p.isAt(name) {
		f, err := p.At.OpenAt(name)
		return f, withPath(full, err)
	}
	if p.FS == nil {
		return os.OpenFile(full, os.O_RDONLY|nonBlock, 0)
	}
	if _, waits := sys.OpenOfFSWaits(p.FS, full); waits {
		return nil, notRegular(full)
	}
	return p.FS.Open(full)
}

func notRegular(path string) error {
	return &fs.PathError{Op: "open", Path: path, Err: errors.New("not a regular file")}
}

// isAbsent reports whether err says that there is no such file.
func isAbsent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// join returns the path name, or dir joined with it if it is relative. It removes no "..": what is in front of
// that may be a link.
func join(dir, name string) string {
	name = filepath.FromSlash(name)
	switch {
	case filepath.IsAbs(name), dir == "":
		return name
	case names.HasDotDot(dir) || names.HasDotDot(name):
		return dir + string(filepath.Separator) + name
	}
	return filepath.Join(dir, name)
}

// ExcludesFile returns the path of core.excludesFile, by default git/ignore in
// the user's configuration directory, or "" if the variable is set to nothing. A path that is
// not absolute begins at the top of the work tree. ExcludesFile reads the
// configuration of the system, the user and the repository, and the files that
// these include, unconditionally or by gitdir. The returned file need not exist.
func (r *Repository) ExcludesFile() (string, error) {
	c, err := r.config()
	return c.excludesFile, err
}

// Settings returns a function that reports whether a boolean variable of git's configuration is true. If the
// configuration does not have it, the function returns byDefault. Names are in lower case.
func (r *Repository) Settings() (isSet func(name string, byDefault bool) bool, err error) {
	c, err := r.config()
	return func(name string, byDefault bool) bool {
		value, ok := c.others[name]
		return !ok && byDefault || value == "default" || isTrue(value)
	}, err
}

// Attributes returns the lines of the attributes files that apply to a directory, "" or a path with a slash at its end, and not
// to the one above it, and whether the directory has such a file.
func (r *Repository) Attributes(dir string) (lines []byte, has bool, err error) {
	files := []string{dir + ".gitattributes"}
	if dir == "" {
		c, err := r.config()
		if err != nil {
			return nil, false, err
		}
		user := c.attributesFile
		if value, isSet := c.others["core.attributesfile"]; isSet {
			if user, err = c.expand(value, ""); err != nil {
				return nil, false, err
			}
		}
		files = append(files, "/etc/gitattributes", user, join(r.common, "info/attributes"))
	}
	for i, file := range files {
		if file == "" {
			continue
		}
		content, err := r.read(file, i == 0)
		if err != nil {
			return nil, false, err
		}
		has = has || i == 0 && content != nil
		lines = append(append(lines, content...), '\n')
	}
	return lines, has, nil
}

// Submodule returns the repository whose top is at this path of the work tree, or nil.
func (r *Repository) Submodule(path string) *Repository {
	sub, _ := openNested(Place{Dir: r.top.path(path)})
	return sub
}

// IndexTime returns when the index was written, or the zero time if there is none.
func (r *Repository) IndexTime() (time.Time, error) {
	info, err := os.Stat(r.top.path(join(r.dir, "index")))
	if isAbsent(err) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}

// IsTop reports whether a directory in a work tree, with this absolute path, is the top of another repository.
func IsTop(dir string) bool {
	r, err := openNested(Place{Dir: dir})
	return r != nil && err == nil
}

// config reads the configuration.
func (r *Repository) config() (*config, error) {
	if r.isConfigured = true; r.top.FS != nil {
		return &config{}, nil
	}
	c := &config{repo: r, home: os.Getenv("HOME"), others: map[string]string{}}
	if c.home == "" {
		c.home, _ = os.UserHomeDir()
	}
	c.home = absolute(c.home)
	user := absolute(os.Getenv("XDG_CONFIG_HOME"))
	if user == "" && c.home != "" {
		user = filepath.Join(c.home, ".config")
	}
	var files []string
	if !isTrue(os.Getenv("GIT_CONFIG_NOSYSTEM")) {
		files = append(files, getenv("GIT_CONFIG_SYSTEM", "/etc/gitconfig"))
	}
	if user != "" {
		c.excludesFile, c.attributesFile = filepath.Join(user, "git", "ignore"), filepath.Join(user, "git", "attributes")
		files = append(files, getenv("GIT_CONFIG_GLOBAL", filepath.Join(user, "git", "config")))
	}
	if c.home != "" {
		files = append(files, getenv("GIT_CONFIG_GLOBAL", filepath.Join(c.home, ".gitconfig")))
	}
	for _, file := range files {
		c.skipUnreadable = file != os.Getenv("GIT_CONFIG_SYSTEM") && file != os.Getenv("GIT_CONFIG_GLOBAL")
		if err := c.read(absolute(file), 0); err != nil {
			return &config{}, err
		}
	}
	c.skipUnreadable = false
	if err := c.read(join(r.common, "config"), 0); err != nil {
		return &config{}, err
	}
	if c.worktreeConfig {
		if err := c.read(join(r.dir, "config.worktree"), 0); err != nil {
			return &config{}, err
		}
	}
	r.IgnoresCase = isTrue(c.others["core.ignorecase"])
	return c, nil
}
