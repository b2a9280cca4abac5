//go:build fileproc_generic || !(aix || darwin || dragonfly || freebsd || linux || netbsd || openbsd || solaris)

package backend

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/fileproc/fileproc/internal/content"
	"github.com/fileproc/fileproc/internal/gitrepo"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/replace"
	"github.com/fileproc/fileproc/internal/sys"
)

// rootDir is a directory as an os.Root. An os.Root never leads outside, but it follows
// links that stay inside, so rootDir compares what it has opened with the name itself.
type rootDir struct {
	root *os.Root
	file *os.File    // nil once the listing is over
	self fs.FileInfo // nil if unknown

	mu sync.Mutex
	// listed is what the listing said of entries that are not opened yet, by name.
	// Package os has looked up each of them already.
	listed map[string]fs.FileInfo
}

// mostListed is how many entries rootDir.listed has at most, at some 250 bytes each.
const mostListed = 16 * listSize

var (
	_ Directory    = (*rootDir)(nil)
	_ MetadataList = (*rootDir)(nil)
)

func OpenRoot(name string) (Directory, error) {
	// The dot keeps the open from waiting for a writer if name is a FIFO.
	root, err := os.OpenRoot(name + sys.InDir)
	if err != nil {
		return nil, sys.AsError("open", err)
	}
	d, err := newRootDir(root)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// OpenRootToSearch is openRoot: an os.Root is for directories that can be listed.
func OpenRootToSearch(root string) (Directory, error) { return OpenRoot(root) }

func newRootDir(root *os.Root) (*rootDir, error) {
	// Without O_NONBLOCK, package os would set it and clear it again.
	f, err := root.OpenFile(".", os.O_RDONLY|sys.OpenFlags, 0)
	if err != nil {
		root.Close()
		return nil, sys.AsError("openat", err)
	}
	return &rootDir{root: root, file: f}, nil
}

// asRootError is sys.AsError for opening or looking up an entry of root. A name that
// leads outside or to itself is a link that has replaced what was listed. Package os does
// not export the error for a path that leads outside, so asRootError gets it from "..".
func asRootError(root *os.Root, err error) error {
	e := sys.AsError("openat", err).(*sys.Error)
	_, outside := root.Lstat("..")
	escapes, _ := sys.AsError("lstat", outside).(*sys.Error)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || sys.IsOtherKind(err) || outside != nil && errors.Is(err, escapes.Err) {
		e.Err = sys.Changed{Err: e.Err}
	}
	return e
}

func (d *rootDir) List(l *Listing) (bool, error) {
	more, err := listFile(d.file, l, 0, d.note)
	if !more {
		d.file.Close()
		d.file = nil
	}
	return more, err
}

// note keeps what the listing said of e, for up to mostListed entries.
func (d *rootDir) note(e fs.DirEntry) {
	if sys.OpenWaits || !e.Type().IsRegular() && !e.IsDir() {
		return
	}
	info, err := e.Info()
	if err != nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.listed == nil {
		d.listed = map[string]fs.FileInfo{}
	}
	if len(d.listed) == mostListed {
		for name := range d.listed {
			delete(d.listed, name)
			break
		}
	}
	d.listed[e.Name()] = info
}

// takeListed returns what the listing said of name, or nil if that is unknown. It does so
// only once: a second call for the name wants to know what has changed.
func (d *rootDir) takeListed(name string) fs.FileInfo {
	d.mu.Lock()
	defer d.mu.Unlock()
	info := d.listed[name]
	delete(d.listed, name)
	return info
}

// known returns what the listing said of name, or else the result of an lstat.
func (d *rootDir) known(name string, typ fs.FileMode) (fs.FileInfo, error) {
	if info := d.takeListed(name); info != nil && info.Mode().Type() == typ {
		return info, nil
	}
	return d.lstatAs(name, typ)
}

// lstat is Root.Lstat. Package os repeats most calls that a signal has interrupted,
// but not this one.
func (d *rootDir) lstat(name string) (fs.FileInfo, error) {
	for start := time.Now(); ; {
		info, err := d.root.Lstat(name)
		if !errors.Is(err, syscall.EINTR) || time.Since(start) > content.WaitSlice {
			return info, err
		}
	}
}

// lstatAs is lstat for an entry that was listed with the type typ. If it has another type
// now, lstatAs returns an error.
func (d *rootDir) lstatAs(name string, typ fs.FileMode) (fs.FileInfo, error) {
	info, err := d.lstat(name)
	switch {
	case err != nil:
		return nil, asRootError(d.root, err)
	case typ == 0:
		return info, sys.CheckRegular("lstat", info.Mode())
	case info.Mode().Type() != typ:
		return nil, &sys.Error{Op: "openat", Err: sys.Changed{Err: fmt.Errorf("not a directory: %v", info.Mode())}}
	}
	return info, nil
}

// compare returns an error if another file may have taken the place of name. It returns
// nil if opened is the file that known describes, without a change since, or the file that
// name leads to now.
func (d *rootDir) compare(name string, known, opened fs.FileInfo) error {
	if sys.Unchanged(known, opened) {
		return nil
	}
	now, err := d.lstatAs(name, known.Mode().Type())
	if err == nil && !os.SameFile(now, opened) {
		err = asRootError(d.root, sys.ErrChanged)
	}
	return err
}

// openError returns the error of an open that failed with err. For a link, a socket or a
// file in a directory's place, err differs by system, so openError makes an lstat.
func (d *rootDir) openError(name string, typ fs.FileMode, err error) error {
	if !sys.IsScarce(err) && !sys.MayPass(err) {
		if _, err := d.lstatAs(name, typ); errors.Is(err, sys.ErrChanged) {
			return err
		}
	}
	return asRootError(d.root, err)
}

func (d *rootDir) OpenDir(entry names.Name) (Directory, error) {
	name := entry.String()
	known, err := d.known(name, fs.ModeDir)
	if err != nil {
		return nil, err
	}
	// If a FIFO has taken the directory's place, the dot keeps the open from
	// waiting for a writer.
	root, err := d.root.OpenRoot(name + "/.")
	if err != nil {
		return nil, d.openError(name, fs.ModeDir, err)
	}
	sub, err := newRootDir(root)
	if err != nil {
		return nil, err
	}
	if sub.self, err = sub.file.Stat(); err != nil {
		err = sys.AsError("fstat", err)
	} else {
		err = d.compare(name, known, sub.self)
	}
	if err != nil {
		sub.Close()
		return nil, err
	}
	return sub, nil
}

func (d *rootDir) Open(name names.Name, spare content.File) (content.File, error) {
	file, info, err := d.openRegular(name.String())
	if err != nil {
		return nil, err
	}
	f, ok := spare.(*polledFile)
	if !ok {
		f = new(polledFile)
	}
	*f = newPolledFile(file, info)
	return f, nil
}

// replacedTries is how often a file that is replaced while it is opened is opened anew.
const replacedTries = 10

func (d *rootDir) openRegular(name string) (*os.File, fs.FileInfo, error) {
	if sys.NoFollow != 0 {
		d.takeListed(name)
		f, opened, err := d.openKnown(name, nil)
		if err != nil || !sys.IsReparsePoint(opened) {
			return f, opened, err
		}
		f.Close() // a driver makes the content of this file: open it without sys.NoFollow
	}
	known, err := d.known(name, 0)
	if err != nil {
		return nil, nil, err
	}
	for tries := 1; ; tries++ {
		f, opened, err := d.openKnown(name, known)
		if err == nil || tries == replacedTries || !errors.Is(err, sys.ErrChanged) {
			return f, opened, err
		}
		now, gone := d.lstatAs(name, 0)
		if gone != nil {
			return nil, nil, err
		}
		known = now
	}
}

// openKnown opens the file name, which known describes. If known is nil, it opens name
// with sys.NoFollow, which never opens the target of a link.
func (d *rootDir) openKnown(name string, known fs.FileInfo) (*os.File, fs.FileInfo, error) {
	flags := os.O_RDONLY | sys.OpenFlags
	if known == nil {
		flags |= sys.NoFollow
	}
	f, err := d.root.OpenFile(name, flags, 0)
	if err != nil {
		return nil, nil, d.openError(name, 0, err)
	}
	opened, err := f.Stat()
	switch {
	case err != nil:
		err = sys.AsError("fstat", err)
	case known == nil:
		err = sys.CheckRegular("fstat", opened.Mode())
	default:
		err = d.compare(name, known, opened)
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, opened, nil
}

func (d *rootDir) Stat(name names.Name) (sys.Stat, error) {
	info, err := d.lstat(name.String())
	if err != nil {
		return sys.Stat{}, asRootError(d.root, err)
	}
	return sys.StatOfInfo(info), nil
}

func (d *rootDir) Info(name names.Name, _ string) (fs.FileInfo, error) { return d.lstat(name.String()) }

func (d *rootDir) ReadLink(name names.Name) (string, error) {
	text, err := d.root.Readlink(name.String())
	if err != nil {
		return "", asRootError(d.root, err)
	}
	return text, nil
}

func (d *rootDir) Xattrs() (map[string][]byte, error) { return sys.Xattrs(int(d.file.Fd())) }

func (d *rootDir) ListedStat(name names.Name) (sys.Stat, bool) {
	if !sys.ListsMetadata {
		return sys.Stat{}, false
	}
	info := d.takeListed(name.String())
	if info == nil {
		return sys.Stat{}, false
	}
	return sys.StatOfInfo(info), true
}

func (d *rootDir) OpenFile(name names.Name, _ string) (*os.File, error) {
	f, _, err := d.openRegular(name.String())
	return f, err
}

func (d *rootDir) Replace(name names.Name, content []byte, check replace.Check, durable bool) (s sys.Stat, err error) {
	old, _, err := d.openRegular(name.String())
	if err != nil {
		return s, err
	}
	defer old.Close()
	return replace.InRoot(d.root, old, name, content, check, durable)
}

func (d *rootDir) Clean(name names.Name) error {
	s, err := d.Stat(name)
	if err == nil && replace.IsStale(s) {
		err = replace.RemoveIn(d.root, name)
	}
	return err
}

func (d *rootDir) Identity() (Identity, error) {
	if d.self != nil {
		return osFile{d.self}, nil
	}
	info, err := d.lstat(".")
	if err != nil {
		return nil, asRootError(d.root, err)
	}
	return osFile{info}, nil
}

// GitAt returns nil, which says that git's files are reached by path: a link or the file
// .git may lead out of d, where an os.Root does not go. It fails unless path leads to d.
func (d *rootDir) GitAt(path string) (gitrepo.At, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, sys.AsError("stat", err)
	}
	if id, err := d.Identity(); err != nil || !id.Same(osFile{info}) {
		return nil, cmp.Or(err, error(&sys.Error{Op: "stat", Err: sys.ErrChanged}))
	}
	return nil, nil
}

func (d *rootDir) Close() {
	if d.file != nil {
		d.file.Close()
	}
	d.root.Close()
}

func DiskOf(Directory) content.Dir { return content.Dir{} }
