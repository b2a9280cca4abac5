package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/fileproc/fileproc"
)

// A store keeps files for one run of the load. Paths have slashes and are relative to the store.
type store struct {
	kind   string // for the record, such as "files" or "S3 server"
	mkdir  func(dir string) error
	create func(path string, data []byte) error
	remove func(path string) error
	close  func() error
	// The first of the sides is fileproc's, the second what it is compared with. They read and list the same store in two
	// ways, and create and delete in the same way.
	sides [2]side
}

// A side is one way to read and list.
type side struct {
	name string
	// read calls check with the content of one file. It may be valid only until check returns.
	read func(ctx context.Context, dir, name string, check func(data []byte) error) error
	// list appends the names of the files in dir, in any order.
	list func(ctx context.Context, dir string, names []string) ([]string, error)
}

// kindFiles is the kind of a store of plain files.
const kindFiles = "files"

const ours = "fileproc"

// openFiles returns a store in a new directory below parent, which close removes.
func openFiles(parent string) (*store, error) {
	root, err := os.MkdirTemp(parent, "fileproc-load-")
	if err != nil {
		return nil, err
	}
	at := func(path string) string { return filepath.Join(root, filepath.FromSlash(path)) }
	return &store{
		kind:   kindFiles,
		mkdir:  func(dir string) error { return os.MkdirAll(at(dir), 0o755) },
		create: func(path string, data []byte) error { return os.WriteFile(at(path), data, 0o644) },
		remove: func(path string) error { return os.Remove(at(path)) },
		close:  func() error { return os.RemoveAll(root) },
		sides:  [2]side{fileprocSide(nil, func(dir, name string) (string, string) { return at(dir), name }), osSide(at)},
	}, nil
}

// fileprocSide reads a file by a Process of this one name, and lists by a Walk. A nil fsys is the operating system's files. At
// returns the root for a directory, and Options.Files for one of its files.
func fileprocSide(fsys fs.FS, at func(dir, name string) (root, file string)) side {
	return side{
		name: ours,
		read: func(ctx context.Context, dir, name string, check func([]byte) error) error {
			root, file := at(dir, name)
			opts := fileproc.Options{FS: fsys, Files: slices.Values([]string{file})}
			got, err := fileproc.Process(ctx, root, opts, func(f *fileproc.File) (string, error) {
				return f.Name(), check(f.Data())
			})
			if err == nil && (len(got) != 1 || got[0] != name) {
				err = fmt.Errorf("reading %s/%s gave %q", dir, name, got)
			}
			return err
		},
		list: func(ctx context.Context, dir string, names []string) ([]string, error) {
			root := dir
			if fsys == nil {
				root, _ = at(dir, "")
			}
			for e, err := range fileproc.Walk(ctx, root, fileproc.Options{FS: fsys}) {
				if err != nil {
					return names, err
				}
				names = append(names, e.Name())
			}
			return names, nil
		},
	}
}

// osSide reads with os.ReadFile and lists with filepath.WalkDir.
func osSide(at func(path string) string) side {
	return side{
		name: "os",
		read: func(_ context.Context, dir, name string, check func([]byte) error) error {
			data, err := os.ReadFile(filepath.Join(at(dir), name))
			if err != nil {
				return err
			}
			return check(data)
		},
		list: func(_ context.Context, dir string, names []string) ([]string, error) {
			err := filepath.WalkDir(at(dir), func(_ string, d fs.DirEntry, err error) error {
				if err == nil && !d.IsDir() {
					names = append(names, d.Name())
				}
				return err
			})
			return names, err
		},
	}
}
