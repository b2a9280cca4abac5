//go:build linux && !fileproc_unix && !fileproc_generic

package fileproc

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fileproc/fileproc/internal/dirent"
)

// listedName is an fs.DirEntry of ReadDir.
type listedName struct {
	dir  *string
	name string
	typ  fs.FileMode
}

func (e *listedName) Name() string               { return e.name }
func (e *listedName) IsDir() bool                { return e.typ.IsDir() }
func (e *listedName) Type() fs.FileMode          { return e.typ }
func (e *listedName) Info() (fs.FileInfo, error) { return os.Lstat(filepath.Join(*e.dir, e.name)) }
func (e *listedName) String() string             { return fs.FormatDirEntry(e) }

func readDir(name string) ([]fs.DirEntry, error) {
	d, err := openRoot(name)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	defer d.close()
	buf := direntBuffers.Get().(*direntBuffer)
	defer direntBuffers.Put(buf)

	var (
		names   arena
		block   []listedName // never grown, since entries are pointers into it
		entries = []fs.DirEntry{}
		fd      = d.(*linuxDir).fd
	)
	for {
		records, err := getdents(fd, buf[:])
		if err == nil && len(records) == 0 {
			return entries, nil
		}
		for len(records) > 0 && err == nil {
			var r dirent.Record
			if r, records, err = dirent.Next(records); err != nil {
				err = &sysError{"getdents64", err}
				break
			}
			if isDot(r.Name) {
				continue
			}
			e := listedName{&name, names.add(r.Name), direntType(r.Type)}
			if e.typ == typeUnknown {
				s, err2 := d.stat(e.name)
				if errors.Is(err2, fs.ErrNotExist) {
					continue // as os.ReadDir: it was removed meanwhile
				}
				err, e.typ = err2, s.Mode.Type()
			}
			if len(block) == cap(block) {
				block = make([]listedName, 0, min(max(16, 2*cap(block)), 1024))
			}
			block = append(block, e)
			entries = append(entries, &block[len(block)-1])
		}
		if err != nil {
			return entries, pathError("getdents64", name, err)
		}
	}
}
