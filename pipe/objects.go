package pipe

import (
	"io"
	"io/fs"
	"path"
	"time"
)

// An Object is an object of a store while it is read, such as a *blob.Reader of
// gocloud.dev.
type Object interface {
	io.ReadCloser
	Size() int64 // in bytes
	ModTime() time.Time
}

// Objects returns an FS for Options.FS that makes one request of a store for each file that
// Run reads: it calls open, with the name as the key. It leaves directories, and names for
// which open fails, to store. A *blob.Bucket of gocloud.dev is an fs.FS too, but asks
// whether an object exists before it opens the object.
func Objects(store fs.FS, open func(name string) (Object, error)) fs.FS {
	return objects{store, open}
}

type objects struct {
	store fs.FS
	open  func(name string) (Object, error)
}

func (o objects) Open(name string) (fs.File, error) {
	if name == "." {
		return o.store.Open(name)
	}
	r, err := o.open(name)
	if err != nil {
		return o.store.Open(name)
	}
	return object{r, path.Base(name)}, nil
}

// An object is an Object as an fs.File and its own fs.FileInfo.
type object struct {
	Object
	name string
}

func (o object) Stat() (fs.FileInfo, error) { return o, nil }
func (o object) Name() string               { return o.name }
func (o object) Mode() fs.FileMode          { return fs.ModeIrregular }
func (o object) IsDir() bool                { return false }
func (o object) Sys() any                   { return nil }
