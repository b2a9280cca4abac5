package fileproc

import (
	"io/fs"
	"os"
	"time"

	"github.com/fileproc/fileproc/internal/names"
)

// A File is what fn gets. It is valid until fn returns, and for fn's goroutine
// alone; the strings that it gives may be kept.
type File struct { // the fields are those of currentFile
	w       *worker
	node    *node
	name    names.Name
	content content
}

// Name returns the file's name, without a directory.
func (f *File) Name() string { return f.name.String() }

// Rel returns the path relative to root, with slashes on every platform.
func (f *File) Rel() string { return f.node.relPath(f.name.String()) }

// Path returns the path of the file: root and Rel, joined as filepath.Join does,
// but for a ".." in root, which is kept, since behind a symbolic link it need
// not lead back. With Options.FS it is a path within that file system.
func (f *File) Path() string { return f.w.paths.path(f.node, f.name.String()) }

// Data returns the content that was read. It is borrowed: it must not be used
// after fn has returned. Its capacity is its length, so append copies it. fn
// may overwrite it. It is nil in Options.Select and with NoRead.
func (f *File) Data() []byte { return f.content.data }

// Truncated reports whether the file is longer than Options.ReadSize, so that
// Data is only its beginning.
func (f *File) Truncated() bool { return f.content.truncated }

// Stat returns the file's metadata: with Options.Stat that of the handle that
// was read; otherwise it is looked up at the first call, in the directory that
// was listed, without following a link.
func (f *File) Stat() (Stat, error) {
	if err := (*currentFile)(f).lookUp(); err != nil {
		return Stat{}, pathError("stat", f.Path(), err)
	}
	return f.content.stat, nil
}

// Open opens the file for the caller, who is to close it: what a large file
// takes to be read as a stream. It is opened in the directory that was listed,
// without following a link; if it is no longer a regular file the error is
// ErrChanged. Its Name is Path, in which the generic backend may have "/./" for
// "/". What is read through it does not count in Report.Bytes. With Options.FS,
// which has no *os.File to give, the error is errors.ErrUnsupported.
func (f *File) Open() (*os.File, error) {
	var file *os.File
	err := f.w.withDir(f.node, func(d directory) (err error) {
		file, err = d.openFile(f.name, f.Path())
		return err
	})
	if err != nil {
		return nil, pathError("open", f.Path(), err)
	}
	return file, nil
}

// Worker returns the number under which fn runs, 0 ≤ w < Workers. No two calls of
// fn with the same number overlap, so it can be an index into state that needs
// no lock. It is not bound to one goroutine.
func (f *File) Worker() int { return f.w.slot }

// An Entry is a file or directory that Walk found. It may be kept, and is an
// fs.DirEntry.
type Entry struct {
	paths   *pathBase
	node    *node // the directory that it is in
	name    string
	typ     fs.FileMode
	stat    Stat
	hasStat bool
}

var _ fs.DirEntry = Entry{}

// Name returns the entry's name, without a directory.
func (e Entry) Name() string { return e.name }

// Rel returns the path relative to root, with slashes on every platform.
func (e Entry) Rel() string {
	if e.node == nil { // the zero Entry, which comes with a failure
		return ""
	}
	return e.node.relPath(e.name)
}

// Path returns the path as File.Path does.
func (e Entry) Path() string {
	if e.node == nil {
		return ""
	}
	return e.paths.path(e.node, e.name)
}

// Type returns the type bits: 0 for a regular file, fs.ModeDir for a directory.
func (e Entry) Type() fs.FileMode { return e.typ }

// IsDir reports whether the entry is a directory.
func (e Entry) IsDir() bool { return e.typ.IsDir() }

// String returns what fs.FormatDirEntry makes of e.
func (e Entry) String() string { return fs.FormatDirEntry(e) }

// Stat returns the metadata. With Options.Stat it is what Walk found. Without, e
// is looked up now, by its path, as an entry of os.ReadDir is: a symbolic link
// that has taken a directory's place by then may lead elsewhere.
func (e Entry) Stat() (Stat, error) {
	if e.hasStat {
		return e.stat, nil
	}
	info, err := e.lookUp()
	if err != nil {
		return Stat{}, err
	}
	if e.paths.fsys != nil {
		return statOfStored(info), nil
	}
	return statOfInfo(info), nil
}

// Info returns Stat as an fs.FileInfo, whose Sys is nil with Options.Stat or FS.
func (e Entry) Info() (fs.FileInfo, error) {
	if e.hasStat || e.node != nil && e.paths.fsys != nil { // whose types are not as they come, see statOfStored
		s, err := e.Stat()
		if err != nil {
			return nil, err
		}
		e.stat = s
		return entryInfo(e), nil
	}
	return e.lookUp()
}

func (e Entry) lookUp() (fs.FileInfo, error) {
	if e.node == nil {
		return nil, &fs.PathError{Op: "stat", Err: fs.ErrInvalid}
	}
	return e.paths.info(e.Path())
}

// entryInfo is an Entry that has metadata.
type entryInfo Entry

func (i entryInfo) Name() string       { return i.name }
func (i entryInfo) Size() int64        { return i.stat.Size }
func (i entryInfo) Mode() fs.FileMode  { return i.stat.Mode }
func (i entryInfo) ModTime() time.Time { return i.stat.ModTime }
func (i entryInfo) IsDir() bool        { return i.stat.Mode.IsDir() }
func (i entryInfo) Sys() any           { return nil }
func (i entryInfo) String() string     { return fs.FormatFileInfo(i) }
