package incremental

import (
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
)

// A tree is an fs.FS in memory: the entries of each directory, by their names. The name
// of a directory has a slash at its end, so that a path that was a file once and a
// directory later can be both.
type tree map[string]map[string]treeEntry

type treeEntry struct {
	name    string
	dir     bool
	content string
}

func (t tree) add(rel, content string) {
	for dir, slash := false, ""; ; dir, slash = true, "/" {
		parent, name := path.Dir(rel), path.Base(rel)
		if t[parent] == nil {
			t[parent] = map[string]treeEntry{}
		}
		if _, ok := t[parent][name+slash]; ok && dir {
			return
		}
		t[parent][name+slash] = treeEntry{name, dir, content}
		if rel, content = parent, ""; rel == "." {
			return
		}
	}
}

func (t tree) Open(name string) (fs.File, error) {
	if entries, ok := t[name]; ok {
		return &treeDir{treeFile{treeEntry{path.Base(name), true, ""}, nil}, slices.Collect(maps.Values(entries))}, nil
	}
	if e, ok := t[path.Dir(name)][path.Base(name)]; ok {
		return &treeFile{e, strings.NewReader(e.content)}, nil
	}
	return nil, fs.ErrNotExist
}

type treeFile struct {
	treeEntry
	text *strings.Reader
}

func (f *treeFile) Stat() (fs.FileInfo, error) { return f.treeEntry, nil }
func (f *treeFile) Read(p []byte) (int, error) { return f.text.Read(p) }
func (f *treeFile) Close() error               { return nil }

type treeDir struct {
	treeFile
	left []treeEntry
}

func (d *treeDir) ReadDir(n int) ([]fs.DirEntry, error) {
	if len(d.left) == 0 && n > 0 {
		return nil, io.EOF
	}
	if n <= 0 {
		n = len(d.left)
	}
	n = min(n, len(d.left))
	var all []fs.DirEntry
	for _, e := range d.left[:n] {
		all = append(all, e)
	}
	d.left = d.left[n:]
	return all, nil
}

func (e treeEntry) Name() string               { return e.name }
func (e treeEntry) Size() int64                { return int64(len(e.content)) }
func (e treeEntry) IsDir() bool                { return e.dir }
func (e treeEntry) Type() fs.FileMode          { return e.Mode().Type() }
func (e treeEntry) Info() (fs.FileInfo, error) { return e, nil }
func (e treeEntry) ModTime() time.Time         { return time.Time{} }
func (e treeEntry) Sys() any                   { return nil }
func (e treeEntry) Mode() fs.FileMode {
	if e.dir {
		return fs.ModeDir | 0o755
	}
	return 0o644
}
