package fileprocbeam

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"
)

// keys is a bucket as an fs.FS that is listed. A blob.Bucket as an fs.FS names an entry by the last element of its key:
// "a//b" and the mark "d/" of a directory then pass for "a/a" and "d/d", which may be other objects.
type keys struct {
	ctx    context.Context
	bucket *blob.Bucket
}

func (k keys) Open(name string) (fs.File, error) {
	prefix := name + "/"
	if name == "." {
		prefix = ""
	}
	d := &listedDir{objectDir: objectDir{path.Base(name)}, ctx: k.ctx, prefix: prefix}
	d.items = k.bucket.List(&blob.ListOptions{Prefix: prefix, Delimiter: "/"})
	if d.next(); d.err == io.EOF && name != "." { // no directory, but perhaps an ignore file
		return (&objects{k.ctx, k.bucket, nil}).Open(name)
	}
	if d.err != nil && d.err != io.EOF {
		return nil, asPathError("open", name, d.err)
	}
	return d, nil
}

// listedDir is a directory of a bucket, listed page by page.
type listedDir struct {
	objectDir
	ctx    context.Context
	prefix string
	items  *blob.ListIterator
	item   *blob.ListObject // the next one, unless err is set
	err    error
	odd    []string // the first 10 keys that are no paths
}

func (d *listedDir) next() { d.item, d.err = d.items.Next(d.ctx) }

func (d *listedDir) ReadDir(n int) (entries []fs.DirEntry, err error) {
	for ; d.err == nil && (n <= 0 || len(entries) < n); d.next() {
		name := strings.TrimPrefix(d.item.Key, d.prefix)
		if d.item.IsDir {
			name = strings.TrimSuffix(name, "/")
		}
		switch {
		case name == "" && !d.item.IsDir && d.item.Size == 0: // the mark of this directory
		case name == "." || strings.Contains(name, "\x00") || strings.Contains(name, "/") || !fs.ValidPath(name):
			if len(d.odd) < 10 {
				d.odd = append(d.odd, d.item.Key)
			}
		case d.item.IsDir:
			entries = append(entries, fs.FileInfoToDirEntry(objectDir{name}))
		default:
			entries = append(entries, fs.FileInfoToDirEntry(objectInfo{name, d.item.Size, d.item.ModTime}))
		}
	}
	switch {
	case d.err == io.EOF && len(d.odd) > 0:
		return entries, fmt.Errorf("keys that are no paths, for example %q", d.odd)
	case d.err != io.EOF || len(entries) == 0 && n > 0:
		return entries, d.err
	}
	return entries, nil
}

// objects is the part of a bucket that a batch names. A blob.Bucket is an fs.FS too,
// but it asks whether an object exists before it opens the object, and it opens a
// directory by listing all of it: that would be one listing for each batch.
type objects struct {
	ctx    context.Context
	bucket *blob.Bucket
	dirs   map[string]bool // root and the directories between root and the names
}

var _ fs.StatFS = (*objects)(nil)

func newObjects(ctx context.Context, src source, names []string) *objects {
	o := &objects{ctx, src.bucket, map[string]bool{src.dir: true}}
	for _, name := range names {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			full := path.Join(src.dir, dir)
			if o.dirs[full] {
				break
			}
			o.dirs[full] = true
		}
	}
	return o
}

func (o *objects) Open(name string) (fs.File, error) {
	if o.dirs[name] {
		return objectDir{path.Base(name)}, nil
	}
	r, err := o.bucket.NewReader(o.ctx, name, nil)
	if err != nil {
		return nil, asPathError("open", name, err)
	}
	return &object{r, objectInfo{path.Base(name), r.Size(), r.ModTime()}}, nil
}

func (o *objects) Stat(name string) (fs.FileInfo, error) {
	if o.dirs[name] {
		return objectDir{path.Base(name)}, nil
	}
	a, err := o.bucket.Attributes(o.ctx, name)
	if err != nil {
		return nil, asPathError("stat", name, err)
	}
	return objectInfo{path.Base(name), a.Size, a.ModTime}, nil
}

func asPathError(op, name string, err error) error {
	switch gcerrors.Code(err) {
	case gcerrors.NotFound:
		err = fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	case gcerrors.PermissionDenied:
		err = fmt.Errorf("%w: %w", fs.ErrPermission, err)
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

type object struct {
	*blob.Reader
	info objectInfo
}

func (o *object) Stat() (fs.FileInfo, error) { return o.info, nil }

type objectInfo struct {
	name    string
	size    int64
	modTime time.Time
}

func (i objectInfo) Name() string       { return i.name }
func (i objectInfo) Size() int64        { return i.size }
func (i objectInfo) Mode() fs.FileMode  { return fs.ModeIrregular }
func (i objectInfo) ModTime() time.Time { return i.modTime }
func (i objectInfo) IsDir() bool        { return false }
func (i objectInfo) Sys() any           { return nil }

// objectDir is a directory and its own metadata. Nothing lists it.
type objectDir struct{ name string }

var _ fs.ReadDirFile = objectDir{}

func (d objectDir) Stat() (fs.FileInfo, error)         { return d, nil }
func (d objectDir) Read([]byte) (int, error)           { return 0, fs.ErrInvalid }
func (d objectDir) ReadDir(int) ([]fs.DirEntry, error) { return nil, io.EOF }
func (d objectDir) Close() error                       { return nil }
func (d objectDir) Name() string                       { return d.name }
func (d objectDir) Size() int64                        { return 0 }
func (d objectDir) Mode() fs.FileMode                  { return fs.ModeDir }
func (d objectDir) ModTime() time.Time                 { return time.Time{} }
func (d objectDir) IsDir() bool                        { return true }
func (d objectDir) Sys() any                           { return nil }
