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
		names  arena
		blocks [][]listedName // never grown, since entries are pointers into them
		block  []listedName   // the last of them
		fd     = d.(*linuxDir).fd
	)
	for {
		records, err := getdents(fd, buf[:])
		if err == nil && len(records) == 0 {
			return listedEntries(append(blocks, block)), nil
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
				blocks = append(blocks, block)
				block = make([]listedName, 0, min(max(16, 2*cap(block)), 1024))
			}
			block = append(block, e)
		}
		if err != nil {
			return listedEntries(append(blocks, block)), pathError("getdents64", name, err)
		}
	}
}

// listedEntries makes one slice of all, when it is known how many they are: one
// that grows with them takes twice the time.
func listedEntries(blocks [][]listedName) []fs.DirEntry {
	n := 0
	for _, b := range blocks {
		n += len(b)
	}
	entries := make([]fs.DirEntry, 0, n)
	for _, b := range blocks {
		for i := range b {
			entries = append(entries, &b[i])
		}
	}
	return entries
}
