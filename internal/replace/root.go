//go:build js || windows || (unix && (fileproc_generic || !(aix || darwin || dragonfly || freebsd || linux || netbsd || openbsd || solaris)))

package replace

import (
	"errors"
	"io"
	"os"
	"runtime"
	"syscall"

	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
)

// InRoot gives the file name, which is open as old, new content, unless check returns an error. It returns the metadata that the
// file then has. The last look at the name is directly before the rename. If durable is set, the file and its name are on the
// disk when InRoot returns.
func InRoot(root *os.Root, old *os.File, name names.Name, data []byte, check Check, durable bool) (s sys.Stat, err error) {
	info, err := old.Stat()
	if err != nil {
		return s, sys.AsError("fstat", err)
	}
	p := Pending{Name: name, Temporary: newName(), old: sys.StatOfInfo(info)}
	if err = check(p.old, openOld{old}); err != nil {
		return s, err
	}
	if err = mayRemove(root, name); err != nil {
		return s, err
	}
	f, err := root.OpenFile(p.Temporary.String(), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return s, sys.AsError("openat", err)
	}
	if err = p.fillFile(old, f, data); err == nil && durable {
		err = syncFile(f)
	}
	if runtime.GOOS == "windows" {
		old.Close() // an open file cannot be replaced on FAT and SMB
	} else if e := f.Close(); err == nil && e != nil {
		err = sys.AsError("close", e)
	}
	if err == nil {
		err = p.renameIn(root, info)
	}
	if err != nil {
		f.Close()
		return s, errors.Join(err, RemoveIn(root, p.Temporary))
	}
	if durable {
		err = AsUnsynced(syncName(root, f))
	}
	mine, _ := f.Stat() // nil where f is closed
	f.Close()
	if info, err := root.Lstat(name.String()); err == nil && (mine == nil || os.SameFile(mine, info)) {
		now := sys.StatOfInfo(info)
		if runtime.GOOS == "windows" {
			p.new.ModTime = now.ModTime // NTFS may set it at the close
		}
		if isFile(now, p.new) {
			p.new = now
		}
	}
	return p.new, err
}

func syncFile(f *os.File) error {
	if err := f.Sync(); err != nil {
		return sys.AsError("fsync", err)
	}
	return nil
}

// syncName makes the name of f durable. Windows cannot flush a directory, but a flush of f includes its name.
func syncName(root *os.Root, f *os.File) error {
	if runtime.GOOS == "windows" {
		return syncFile(f)
	}
	dir, err := root.Open(".")
	if err != nil {
		return sys.AsError("openat", err)
	}
	defer dir.Close()
	if err = syncFile(dir); errors.Is(err, syscall.EINVAL) { // the file system has no such call for directories
		err = nil
	}
	return err
}

func (p *Pending) fillFile(old, f *os.File, data []byte) error {
	info, err := f.Stat()
	if err == nil {
		err = keepIn(old, f, p.old, sys.StatOfInfo(info))
	}
	if err == nil && len(data) == 0 {
		err = f.Truncate(0) // takes setuid and setgid away, as a write does
	}
	if err == nil {
		_, err = f.Write(data)
	}
	if err == nil {
		info, err = f.Stat()
	}
	if err != nil {
		return sys.AsError("write", err)
	}
	p.new = sys.StatOfInfo(info)
	return isKept(p.old, p.new)
}

// renameIn gives the temporary file the name, which must still lead to the file was.
func (p *Pending) renameIn(root *os.Root, was os.FileInfo) error {
	AfterPrepare()
	info, err := root.Lstat(p.Name.String())
	if err != nil {
		return &sys.Error{Op: "lstat", Err: sys.Changed{Err: sys.AsError("lstat", err).(*sys.Error).Err}}
	}
	if s := sys.StatOfInfo(info); !os.SameFile(was, info) || !isFile(p.old, s) || !s.ChangeTime.Equal(p.old.ChangeTime) {
		return changed("lstat")
	}
	if err := root.Rename(p.Temporary.String(), p.Name.String()); err != nil {
		if e, ok := errors.AsType[*os.LinkError](err); ok {
			err = &sys.Error{Op: e.Op, Err: e.Err}
		}
		return sys.AsError("renameat", err)
	}
	return nil
}

// RemoveIn removes a temporary file. It tries again once, as Remove does.
func RemoveIn(root *os.Root, temporary names.Name) error {
	err := root.Remove(temporary.String())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		err = root.Remove(temporary.String())
	}
	if err == nil || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return sys.AsError("unlinkat", err)
}

// openOld is an Old.
type openOld struct{ file *os.File }

func (o openOld) Read(p []byte) (int, error) {
	n, err := o.file.Read(p)
	if err == io.EOF {
		err = nil
	}
	return n, err
}
