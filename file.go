package fileproc

import (
	"io/fs"
	"os"
	"time"

	"github.com/fileproc/fileproc/internal/content"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
)

// A File is passed to fn. It is valid until fn returns, on the goroutine of fn
// only. The strings that its methods return may be kept.
type File struct { // the fields are those of currentFile
	w         *worker
	node      *node
	name      names.Name
	content   content.Content
	unchanged bool
}

// Name returns the file's name, without a directory.
func (f *File) Name() string { return f.name.String() }

// Rel returns the path relative to root, with slashes on every platform.
func (f *File) Rel() string { return f.node.relPath(f.name.String()) }

// Path returns root and Rel, joined as filepath.Join does, except that a ".."
// in root is kept, since behind a symbolic link it need not lead back. With
// [Options.FS] it is a path within that file system.
func (f *File) Path() string { return f.w.paths.path(f.node, f.name.String()) }

// LinkTarget returns what a symbolic link led to, if there is one in Rel: the path
// without links, as [File.Path] returns it for a file in root, and else an absolute
// one. Otherwise it returns "". It looks nothing up, so root itself may be a link.
func (f *File) LinkTarget() string { return f.w.paths.target(f.node, f.name.String()) }

// Data returns the content that was read. The slice must not be used after fn
// has returned; until then fn may overwrite it. Its capacity is its length, so
// append copies it. Data is nil in [Options.Select] and with [NoRead].
func (f *File) Data() []byte { return f.content.Data }

// Truncated reports whether the file is longer than [Options.ReadSize], so that
// Data is only its beginning.
func (f *File) Truncated() bool { return f.content.Truncated }

// Stat is a file's metadata.
type Stat struct {
	Size    int64 // in bytes
	ModTime time.Time
	// ChangeTime is when the content or the metadata changed last. It is zero where
	// there is none, as on Windows or in most fs.FS.
	ChangeTime time.Time
	// BirthTime is when the file was created. It is zero where that is unknown, and
	// on Linux with [Options.Stat], since to ask for it takes longer.
	BirthTime time.Time
	Mode      fs.FileMode // type and permission bits
	Inode     uint64      // 0 where there is none, as ChangeTime
	Device    uint64      // as Inode
}

// Stat returns the file's metadata. With [Options.Stat] it is that of the handle
// that was read. Otherwise the first call looks it up, in the directory that
// was listed, without following a link. In a run of package incremental it may
// be from before the content was read.
func (f *File) Stat() (Stat, error) {
	s, err := (*currentFile)(f).fetchStat()
	if err != nil {
		return Stat{}, sys.PathError("stat", f.Path(), err)
	}
	return Stat(s), nil
}

// restat is plumbing.API.Restat.
func (f *File) restat() (Stat, error) {
	var s sys.Stat
	err := f.w.withDir(f.node, func(d directory) (err error) {
		s, err = d.stat(f.name)
		return err
	})
	if err != nil {
		return Stat{}, sys.PathError("stat", f.Path(), err)
	}
	return Stat(s), nil
}

// Open opens the file, for example to read a large file as a stream. The caller
// must close it. The file is opened in the directory that was listed, without
// following a link. If it is no longer a regular file, the error is [ErrChanged].
// Its Name is Path, where the generic backend may have "/./" for "/".
// Report.Bytes does not count what is read through it. With [Options.FS], which
// has no *os.File, the error is errors.ErrUnsupported.
func (f *File) Open() (*os.File, error) {
	var file *os.File
	err := f.w.withDir(f.node, func(d directory) (err error) {
		file, err = d.openFile(f.name, f.Path())
		return err
	})
	if err != nil {
		return nil, sys.PathError("open", f.Path(), err)
	}
	return file, nil
}

// Worker returns the number under which fn runs, 0 ≤ w < Workers. Calls of fn
// with the same number never overlap, so the number can index state that needs
// no lock. It is not bound to one goroutine.
func (f *File) Worker() int { return f.w.slot }

// An Entry is a file or directory that [Walk] found. It is an [fs.DirEntry] and may
// be kept.
type Entry struct {
	paths *pathBase
	node  *node // the directory that lists it
	name  string
	typ   fs.FileMode
	stat  *Stat // nil without Options.Stat: the results that wait for the loop stay small
}

var _ fs.DirEntry = Entry{}

// Name returns the entry's name, without a directory.
func (e Entry) Name() string { return e.name }

// Rel returns the path relative to root, with slashes on every platform.
func (e Entry) Rel() string {
	if e.node == nil { // the zero Entry, yielded with a failure
		return ""
	}
	return e.node.relPath(e.name)
}

// Path returns the path as [File.Path] does.
func (e Entry) Path() string {
	if e.node == nil {
		return ""
	}
	return e.paths.path(e.node, e.name)
}

// LinkTarget returns what [File.LinkTarget] returns, also for a directory. For a link
// that [Options.OnSkip] gets, it returns "" if that leads nowhere.
func (e Entry) LinkTarget() string {
	if e.node == nil {
		return ""
	}
	return e.paths.target(e.node, e.name)
}

// Type returns the type bits: 0 for a regular file, fs.ModeDir for a directory.
func (e Entry) Type() fs.FileMode { return e.typ }

// IsDir reports whether the entry is a directory.
func (e Entry) IsDir() bool { return e.typ.IsDir() }

// String returns fs.FormatDirEntry(e).
func (e Entry) String() string { return fs.FormatDirEntry(e) }

// Stat returns the metadata. With [Options.Stat] it is what Walk found. Otherwise
// Stat looks it up by Path at each call, as Info of an os.ReadDir entry does: a
// symbolic link that has replaced a directory by then may lead elsewhere.
func (e Entry) Stat() (Stat, error) {
	if e.stat != nil {
		return *e.stat, nil
	}
	info, err := e.lookUp()
	if err != nil {
		return Stat{}, err
	}
	if e.paths.fsys != nil {
		return Stat(statOfStored(info)), nil
	}
	return Stat(sys.StatOfInfo(info)), nil
}

// Info returns Stat as an fs.FileInfo. Its Sys is nil with [Options.Stat] or
// [Options.FS].
func (e Entry) Info() (fs.FileInfo, error) {
	if e.stat != nil || e.node != nil && e.paths.fsys != nil { // an FS whose types change, see statOfStored
		s, err := e.Stat()
		if err != nil {
			return nil, err
		}
		e.stat = &s
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

// entryInfo is the fs.FileInfo of an Entry that has metadata.
type entryInfo Entry

func (i entryInfo) Name() string       { return i.name }
func (i entryInfo) Size() int64        { return i.stat.Size }
func (i entryInfo) Mode() fs.FileMode  { return i.stat.Mode }
func (i entryInfo) ModTime() time.Time { return i.stat.ModTime }
func (i entryInfo) IsDir() bool        { return i.stat.Mode.IsDir() }
func (i entryInfo) Sys() any           { return nil }
func (i entryInfo) String() string     { return fs.FormatFileInfo(i) }
