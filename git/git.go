// Package git says which files of a git work tree have changed, for
// [github.com/fileproc/fileproc.Options].Files:
//
//	names, err := git.Changed(ctx, ".")
//	…
//	opts := fileproc.Options{Files: slices.Values(names)}
//
// It does not run git. Options.GitIgnore and GitTracked need no such list.
package git

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/fsinfo"
	"github.com/fileproc/fileproc/internal/gitindex"
	"github.com/fileproc/fileproc/internal/gitrepo"
)

// Changed returns the files and symbolic links of the work tree that git status would list: those that
// differ from git's index, and those that git neither tracks nor ignores. The paths are relative
// to root, with slashes, and in the order of [fileproc.ComparePaths]. Root may be any directory of the
// work tree; what is outside root is not looked at. What is only staged, or no longer there, is not returned.
//
// As git does, Changed compares metadata, and reads a file only if its size is as in the index and
// other metadata differ, or if it is as new as the index. Changed reads content as it is, and runs no
// filter of git: a file that git would convert (core.autocrlf, .gitattributes) is returned if Changed
// reads it, although git might find it unchanged. Submodules and other repositories in the work tree are not
// entered. Files below a directory that a sparse index does not expand count as changed.
//
// An error joins the failures. The names that are returned with it are changed, but others may be, too.
func Changed(ctx context.Context, root string) ([]string, error) {
	c, err := open(root)
	if err != nil {
		return nil, err
	}
	opts := fileproc.Options{GitIgnore: true, AllTypes: true, Stat: true, ReadSize: fileproc.NoRead, Ordered: true, SelectDir: c.enters, Workers: runtime.GOMAXPROCS(0)}
	c.dirs = make([]dir, opts.Workers)
	return fileproc.Process(ctx, root, opts, c.name)
}

// A comparison compares a work tree with git's index.
type comparison struct {
	repo                        *gitrepo.Repository
	index                       *gitindex.Index
	top                         string    // the directory that was asked for, without links
	time                        time.Time // of the index, true to the second, as for git, unless each later change of a file shows
	trustsMode, trustsTime      bool
	checksAll, hasLinks, sparse bool
	dirs                        []dir // what each worker has looked up last
}

type dir struct {
	path  string
	isSet bool
	gitindex.Dir
}

func open(root string) (*comparison, error) {
	real, err := fsinfo.RealPath(root)
	if err != nil {
		return nil, err
	}
	c := &comparison{top: real}
	if c.repo, err = gitrepo.Find(gitrepo.Place{Dir: real}); err != nil {
		return nil, err
	}
	if c.repo == nil {
		return nil, &fs.PathError{Op: "open", Path: root, Err: gitrepo.ErrNone}
	}
	isSet, err := c.repo.Settings()
	if err != nil {
		return nil, err
	}
	c.trustsMode, c.trustsTime, c.hasLinks = isSet("core.filemode", true), isSet("core.trustctime", true), isSet("core.symlinks", true)
	c.checksAll, c.sparse = isSet("core.checkstat", true), isSet("core.sparsecheckout", false)
	if c.time, err = c.repo.IndexTime(); err == nil { // before the index is read: a later time would hide changes
		c.index, err = c.repo.ReadIndex(nil)
	}
	if !c.trustsTime || !c.checksAll || !hasFineTimes(real) {
		c.time = c.time.Truncate(time.Second)
	}
	return c, err
}

func hasFineTimes(dir string) bool {
	f, err := os.Open(dir + "/.") // does not wait if dir is a FIFO
	if err != nil {
		return false
	}
	defer f.Close()
	return fsinfo.HasFineTimes(f)
}

// enters reports whether a directory belongs to the work tree.
func (c *comparison) enters(e fileproc.Entry) bool {
	path := string(c.repo.AppendPath(nil, filepath.ToSlash(e.Rel())))
	return c.index.HasBelow(path+"/") || c.index.Kind(path) != gitindex.Repository && !gitrepo.IsTop(filepath.Join(c.top, e.Rel()))
}

// name returns the path of f if f has changed, and else ErrSkip.
func (c *comparison) name(f *fileproc.File) (string, error) {
	if f.Type() != 0 && f.Type() != fs.ModeSymlink {
		return "", fileproc.ErrSkip
	}
	rel := filepath.ToSlash(f.Rel())
	at := strings.LastIndexByte(rel, '/') + 1
	d := &c.dirs[f.Worker()]
	if !d.isSet || d.path != rel[:at] {
		d.path, d.isSet = rel[:at], true
		c.index.In(&d.Dir, string(c.repo.AppendPath(nil, d.path)))
	}
	if e := d.Find(rel[at:]); e != nil {
		switch is, err := c.isUnchanged(f, e); {
		case is, errors.Is(err, fs.ErrNotExist):
			return "", fileproc.ErrSkip
		case err != nil:
			return "", err
		}
	}
	return rel, nil
}

// isUnchanged reports whether git would find f as e says.
func (c *comparison) isUnchanged(f *fileproc.File, e *gitindex.Entry) (bool, error) {
	was := e.Stat()
	switch {
	case was.IsInConflict:
		return false, nil
	case was.IsAssumed || was.IsOutside && !c.sparse: // also if it is to be added
		return true, nil
	case was.IsToBeAdded:
		return false, nil
	}
	is, err := f.Stat()
	if err != nil {
		return false, err
	}
	isLink := f.Type() == fs.ModeSymlink
	if isUnchanged, isKnown := c.judge(&is, &was, e, isLink); isKnown {
		return isUnchanged, nil
	}
	if isLink {
		text, err := f.ReadLink()
		return err == nil && e.IsOf(strings.NewReader(text), int64(len(text))), err
	}
	file, err := f.Open()
	if err != nil {
		return false, err
	}
	defer file.Close()
	return e.IsOf(file, is.Size), nil
}

// judge compares a file's metadata with those in the index. It reports whether the file is unchanged, and whether that is
// known without its content.
func (c *comparison) judge(is *fileproc.Stat, was *gitindex.Stat, e *gitindex.Entry, isLink bool) (isUnchanged, isKnown bool) {
	switch {
	case isLink != was.IsLink && (isLink || c.hasLinks):
		return false, true
	case !was.IsLink && c.trustsMode && is.Mode&0o100 != 0 != was.IsExecutable:
		return false, true
	case !e.HasSize(is.Size) && was.Size != 0:
		return false, true
	case e.HasSize(is.Size) && c.hasMetadata(is, was) && was.ModTime.IsBefore(c.time):
		return true, true
	}
	return false, false
}

// hasMetadata reports whether a file has the metadata that are in the index, besides its size and mode.
func (c *comparison) hasMetadata(is *fileproc.Stat, was *gitindex.Stat) bool {
	if !was.ModTime.Is(is.ModTime) {
		return false
	}
	if is.ChangeTime.IsZero() || !c.checksAll { // as on Windows, where git writes other times
		return true
	}
	return (!c.trustsTime || was.ChangeTime.Is(is.ChangeTime)) && was.Inode == uint32(is.Inode) && was.UID == is.UID && was.GID == is.GID
}
