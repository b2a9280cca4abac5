package cache

import (
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ErrNotRegular is the error of [FS.Open] in a directory of [NewDir], and of [Results], for
// a name that is neither a regular file nor a directory, but a FIFO, a socket or a device.
var ErrNotRegular = errors.New("not a regular file")

// dirFS is a directory of the operating system as source and store. All is opened through
// [os.Root]: no name and no link leads outside.
type dirFS struct {
	root    *os.Root
	name    string   // absolute, for fileproc
	written sync.Map // the directories into which it has written a file
}

var _ interface {
	fs.StatFS
	fs.ReadLinkFS
	Store
} = (*dirFS)(nil)

func newDirFS(name string) (*dirFS, error) {
	root, err := os.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	if abs, err := filepath.Abs(name); err == nil {
		name = abs
	}
	return &dirFS{root: root, name: name}, nil
}

func (d *dirFS) Close() error { return d.root.Close() }

// Open opens a regular file or a directory. It never waits for the other side of
// a FIFO.
func (d *dirFS) Open(name string) (fs.File, error) {
	if err := local("open", name); err != nil {
		return nil, err
	}
	f, err := d.root.OpenFile(name, os.O_RDONLY|openFlags, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		err = &fs.PathError{Op: "open", Path: name, Err: ErrNotRegular}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	if info.IsDir() {
		return listedDir{f}, nil
	}
	return f, nil
}

// listedDir is an open directory that does not list temporary files.
type listedDir struct{ fs.ReadDirFile }

func (d listedDir) ReadDir(n int) ([]fs.DirEntry, error) {
	for {
		entries, err := d.ReadDirFile.ReadDir(n)
		entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return isTemporary(e.Name()) })
		if n <= 0 || err != nil || len(entries) > 0 {
			return entries, err
		}
	}
}

func (d *dirFS) Stat(name string) (fs.FileInfo, error) {
	if err := local("stat", name); err != nil {
		return nil, err
	}
	return d.root.Stat(name)
}

func (d *dirFS) Lstat(name string) (fs.FileInfo, error) {
	if err := local("lstat", name); err != nil {
		return nil, err
	}
	return d.root.Lstat(name)
}

func (d *dirFS) ReadLink(name string) (string, error) {
	if err := local("readlink", name); err != nil {
		return "", err
	}
	return d.root.Readlink(name)
}

// temporary begins the name of a temporary file; the 26 characters of rand.Text follow.
const temporary = ".cache-"

func isTemporary(base string) bool {
	text, ok := strings.CutPrefix(base, temporary)
	return ok && len(text) == 26 && strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == ""
}

const (
	leftover       = time.Hour // an older temporary file is from a writer that was killed
	leftoversAmong = 10_000    // how many names of a directory removeLeftovers looks at
)

// removeLeftovers removes the temporary files of dir that are more than an hour older than f,
// a new temporary file: its time is from the same clock. If the writer of a removed file still
// lives, its rename fails, and the file that it would have replaced stays.
func removeLeftovers(root *os.Root, dir string, f *os.File) {
	made, err := f.Stat()
	if err != nil {
		return
	}
	d, err := root.Open(dir)
	if err != nil {
		return
	}
	defer d.Close()
	names, _ := d.Readdirnames(leftoversAmong)
	for _, base := range names {
		if !isTemporary(base) {
			continue
		}
		name := path.Join(dir, base)
		if info, err := root.Lstat(name); err == nil && info.Mode().IsRegular() && made.ModTime().Sub(info.ModTime()) > leftover {
			_ = root.Remove(name)
		}
	}
}

// WriteFile replaces the file name by a rename.
func (d *dirFS) WriteFile(name string, data []byte) (fs.FileInfo, error) {
	if err := local("write", name); err != nil {
		return nil, err
	}
	dir := path.Dir(name)
	_, known := d.written.Load(dir)
	if _, err := d.root.Stat(dir); err != nil {
		if err := d.root.MkdirAll(dir, 0o777); err != nil {
			return nil, err
		}
		known = false
	}
	perm, exists := fs.FileMode(0o666), false
	if old, err := d.root.Stat(name); err == nil && old.Mode().IsRegular() {
		perm, exists = old.Mode().Perm(), true
	}
	info, err := replace(d.root, name, perm, exists, !known, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
	if err != nil {
		return nil, writeError(name, err)
	}
	for above := dir; ; above = path.Dir(above) {
		if err := syncDir(d.root, above); err != nil {
			return nil, writeError(name, err)
		}
		if known || above == "." {
			break
		}
	}
	d.written.Store(dir, true)
	return info, nil
}

var fsync = (*os.File).Sync // a test notes the calls

// writeError returns err with the name of the file, which the caller knows, in place of the
// name of the temporary file.
func writeError(name string, err error) error {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		err = path.Err
	case errors.As(err, &link):
		err = link.Err
	}
	return &fs.PathError{Op: "write", Path: name, Err: err}
}

var testAfterRename = func() {} // a test changes the file

// replace writes a temporary file beside name and renames it to name. It returns no metadata
// on Windows, and if another process has changed the file meanwhile. clear says whether it
// removes leftovers there. exists says that perm is that of the old file, to which no umask
// applies.
func replace(root *os.Root, name string, perm fs.FileMode, exists, clear bool, write func(io.Writer) error) (info fs.FileInfo, err error) {
	dir := path.Dir(name)
	tmp := path.Join(dir, temporary+rand.Text())
	f, err := root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return nil, err
	}
	defer func() {
		f.Close()
		if err != nil {
			_ = root.Remove(tmp)
		}
	}()
	if clear {
		removeLeftovers(root, dir, f)
	}
	if err := write(f); err != nil {
		return nil, err
	}
	if exists {
		if err := f.Chmod(perm); err != nil && runtime.GOOS != "windows" {
			return nil, err
		}
	}
	if err := fsync(f); err != nil {
		return nil, err
	}
	before, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if runtime.GOOS == "windows" { // it renames no open file
		f.Close()
		return nil, root.Rename(tmp, name)
	}
	if err := root.Rename(tmp, name); err != nil {
		return nil, err
	}
	testAfterRename()
	after, err := f.Stat() // a rename may set the change time
	if err != nil || after.Size() != before.Size() || !after.ModTime().Equal(before.ModTime()) {
		return nil, nil
	}
	return after, nil
}

func (d *dirFS) Remove(name string) error {
	if err := local("remove", name); err != nil {
		return err
	}
	if err := d.root.Remove(name); err != nil {
		return err
	}
	return syncDir(d.root, path.Dir(name))
}

// local refuses names that are no names of the system, such as those with a backslash or a
// colon on Windows, which would lead to a file that has another name here.
func local(op, name string) error {
	if _, err := filepath.Localize(name); err != nil {
		return &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	return nil
}

func valid(op, name string) error {
	if !fs.ValidPath(name) {
		return &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	return nil
}

func isDirectory(op, name string) error {
	return &fs.PathError{Op: op, Path: name, Err: syscall.EISDIR}
}
