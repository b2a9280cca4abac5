package fileproc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/fileproc/fileproc/internal/backend"
	"github.com/fileproc/fileproc/internal/content"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/replace"
	"github.com/fileproc/fileproc/internal/sys"
)

// A File is passed to fn. It is valid until fn returns, on the goroutine of fn
// only. The strings that its methods return may be kept.
type File struct {
	w         *access // of its worker
	node      *node   // the directory that lists it
	name      names.Name
	content   content.Content
	typ       fs.FileMode // the type bits of what was listed
	link      *string     // the text of a symbolic link
	unchanged bool        // hooks.Unchanged has returned true, or fn has called plumbing.API.SetUnchanged
	lateStat  bool        // the metadata in content were looked up after Data had been read
	replaced  bool        // by Replace
	inSelect  bool        // Options.Select runs
	prepared  *prepared   // with Options.Durable: see group
}

// reset makes f another file. It does not assign a new File, which would take 4 % of the time
// of a run that only lists.
func (f *File) reset(w *access, n *node, name names.Name) {
	f.w, f.node, f.name = w, n, name
	f.content.Clear()
	f.typ, f.link, f.prepared = 0, nil, nil
	f.unchanged, f.lateStat, f.replaced, f.inSelect = false, false, false, false
}

// NewFile returns a File that belongs to no run. It serves to test a function without
// files, and for content that comes from elsewhere, such as standard input. The path has
// slashes and need not exist. [File.Rel] returns path, [File.Path] returns path with the
// separators of the platform, and [File.Name] returns what follows the last slash, which
// may be nothing. [File.Data] is data itself. Stat has only its size, Worker is 0,
// nothing closes a Reader, Unchanged returns true, and Open fails with
// errors.ErrUnsupported.
func NewFile(path string, data []byte) *File {
	n := &node{tree: new(tree)}
	name := path
	for {
		dir, rest, found := strings.Cut(name, "/")
		if !found {
			break
		}
		sub := n.child(names.New(dir), 0)
		n, name = &sub, rest
	}
	n.dir = new(backend.FSDir) // which opens no *os.File
	w := &access{run: new(resources)}
	if data == nil {
		data = []byte{} // nil is content that was not read
	}
	c := content.Content{Data: data[:len(data):len(data)], Stat: sys.Stat{Size: int64(len(data))}, HasStat: true}
	return &File{w: w, node: n, name: names.New(name), content: c}
}

// Type returns the type bits: 0 for a regular file. It is another type only with
// [Options.AllTypes], and if root leads to a FIFO or a device.
func (f *File) Type() fs.FileMode { return f.typ | f.node.tree.stream }

// IsDir reports whether f is a directory. It can be one only with [Options.AllTypes].
func (f *File) IsDir() bool { return f.typ.IsDir() }

// Name returns the file's name, without a directory.
func (f *File) Name() string { return f.name.String() }

// Rel returns the path relative to root, with slashes on every platform.
func (f *File) Rel() string { return f.node.relPath(f.name.String()) }

// Root returns the root under which the run has found the file, as it was given: root, or
// an element of [Options.Roots]. For a File of NewFile it is "".
func (f *File) Root() string { return f.node.tree.paths.root }

// Path returns root and Rel, joined as filepath.Join does, except that a ".."
// in root is kept, since after a symbolic link ".." need not lead back. With
// [Options.FS] the result is a path within that file system.
func (f *File) Path() string {
	if f.IsDir() { // which may be root
		return f.node.path(f.name.String())
	}
	return f.node.entryPath(f.name.String())
}

// entry returns the name by which f's node knows f.
func (f *File) entry() names.Name {
	if f.IsDir() && f.name == (names.Name{}) { // root
		return names.Dot
	}
	return f.name
}

// LinkTarget returns the path without symbolic links if Rel goes through a link, and ""
// otherwise. The path has the form of [File.Path] if it lies below root; else it is
// absolute. LinkTarget does not resolve root's own path, which may have links.
func (f *File) LinkTarget() string { return linkTarget(f.node, f.name.String()) }

// Data returns the content that was read. The slice must not be used after fn
// has returned; until then fn may overwrite it. Its capacity is its length, so
// append copies it. Data is nil in [Options.Select], with [NoRead], and if the file is not
// a regular one.
func (f *File) Data() []byte { return f.content.Data }

// Truncated reports whether the file is longer than [Options.ReadSize], so that
// Data is only its beginning. [File.Reader] gives the whole file.
func (f *File) Truncated() bool { return f.content.Truncated }

// Stat is a file's metadata.
type Stat struct {
	Size    int64 // in bytes
	ModTime time.Time
	// ChangeTime is when the content or the metadata changed last. It is zero where
	// there is none, as on Windows or in most fs.FS.
	ChangeTime time.Time
	// BirthTime is when the file was created. It is zero where it is unknown, and
	// on Linux with [Options.Stat], where fetching it would take longer.
	BirthTime time.Time
	Mode      fs.FileMode // type and permission bits

	// The following are zero where the system, or the fs.FS, has none.
	Flags    uint32 // on BSD and macOS those of chflags(2), on Windows the attributes
	UID, GID uint32 // the numbers of the owner and of the group
	Links    uint64 // how many names the file has
	Blocks   int64  // memory on the disk, in units of 512 bytes
	Inode    uint64
	Device   uint64 // on which the inode is
	Rdev     uint64 // the device that a special file stands for
}

// Stat returns the file's metadata. With [Options.Stat] they come from the handle
// that was read. Otherwise the first call looks them up, in the directory that
// was listed, without following a link. In a run of package incremental they may
// be from before the content was read.
func (f *File) Stat() (Stat, error) {
	s, err := f.fetchStat()
	if err != nil {
		return Stat{}, sys.PathError("stat", f.Path(), err)
	}
	return Stat(s), nil
}

// Info returns the metadata as an fs.FileInfo, which may be kept. It looks the file up
// again, on Linux with three system calls. If the metadata is still what Stat returns, the
// result is one of package os, with a Sys, and serves [os.SameFile]. In three cases the
// result has what Stat returns, and no Sys: if the file has changed, with [Options.FS],
// and if the file is not regular on a Unix system other than Linux.
func (f *File) Info() (fs.FileInfo, error) {
	if info := f.osInfo(); info != nil {
		return info, nil
	}
	s, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return entryInfo{name: f.Name(), stat: &s}, nil
}

// osInfo returns the fs.FileInfo of package os, or nil if that is not to be had.
func (f *File) osInfo() (info fs.FileInfo) {
	if f.w.run.cfg == nil { // it is of NewFile
		return nil
	}
	_ = f.w.withDir(f.node, func(d backend.Directory) (err error) {
		if d, ok := d.(backend.Informed); ok {
			info, err = d.Info(f.entry(), f.Name())
		}
		return err
	})
	if info == nil || info.Name() != f.Name() {
		return nil
	}
	s := sys.StatOfInfo(info)
	if !f.content.HasStat {
		_ = f.setStat(s)
	}
	if !f.content.HasStat || !content.IsSame(f.content.Stat, s) {
		return nil
	}
	return info
}

// fetchListed is fetchStat, but if f is not of the type any more that was listed, that is an
// error.
func (f *File) fetchListed() error {
	s, err := f.fetchStat()
	if err == nil && f.node.tree.stream == 0 {
		err = f.checkType(s)
	}
	return err
}

// checkType returns nil if s is of the type that was listed.
func (f *File) checkType(s sys.Stat) error {
	if f.typ == 0 {
		return sys.CheckRegular("stat", s.Mode)
	}
	if s.Mode.Type() != f.typ {
		return &sys.Error{Op: "stat", Err: sys.Changed{Err: fmt.Errorf("it was %v, and is %v", f.typ, s.Mode)}}
	}
	return nil
}

// fetchLink fetches the text of f, a symbolic link, unless that is known.
func (f *File) fetchLink() error {
	if f.link != nil {
		return nil
	}
	var text string
	err := f.w.withDir(f.node, func(d backend.Directory) (err error) {
		l, ok := d.(backend.LinkReader)
		if !ok {
			return errors.ErrUnsupported
		}
		text, err = l.ReadLink(f.name)
		return err
	})
	if err == nil {
		f.link = &text
	}
	return err
}

// ReadLink returns the text of a symbolic link, as it was when the run visited the link. The
// error is fs.ErrInvalid if f is no link, and errors.ErrUnsupported on AIX, DragonFly BSD and
// Solaris, and with an FS that is no [fs.ReadLinkFS].
func (f *File) ReadLink() (string, error) {
	err := fs.ErrInvalid
	if f.typ == fs.ModeSymlink {
		err = f.fetchLink()
	}
	if err != nil {
		return "", sys.PathError("readlink", f.Path(), err)
	}
	return *f.link, nil
}

// fetchStat fetches the metadata of f, unless that is known. If f is not of the type any
// more that was listed, its metadata is not kept.
func (f *File) fetchStat() (sys.Stat, error) {
	if f.content.HasStat {
		return f.content.Stat, nil
	}
	var s sys.Stat
	err := f.w.withDir(f.node, func(d backend.Directory) (err error) {
		if l, ok := d.(backend.MetadataList); ok && !f.w.run.cfg.statFirst { // hooks.Unchanged wants what is true now
			if s, ok = l.ListedStat(f.name); ok {
				return nil
			}
		}
		s, err = d.Stat(f.entry())
		return err
	})
	if err == nil {
		_ = f.setStat(s)
	}
	return s, err
}

// setStat keeps s, which was looked up now, unless f has another type.
func (f *File) setStat(s sys.Stat) error {
	err := f.checkType(s)
	if err == nil {
		f.content.Stat, f.content.HasStat, f.lateStat = s, true, f.content.Data != nil
	}
	return err
}

// restat is plumbing.API.Restat.
func (f *File) restat() (Stat, error) {
	var s sys.Stat
	err := f.w.withDir(f.node, func(d backend.Directory) (err error) {
		s, err = d.Stat(f.name)
		return err
	})
	if err != nil {
		return Stat{}, sys.PathError("stat", f.Path(), err)
	}
	return Stat(s), nil
}

// Unchanged reports whether the file is still what fn got. It looks the file up in the
// directory that was listed, and returns false if the file was removed, replaced or
// written to.
//
// It compares the metadata that [File.Reader] compares, if they are known: with
// [Options.Stat], or if Stat has returned them before the content was read. Otherwise
// Unchanged reads the file again and compares the content with Data, or without Data
// accepts any regular file of that name. Metadata do not show two writes between two
// ticks of the file system's clock, and in an [fs.FS] they may be no more than a size.
func (f *File) Unchanged() (bool, error) {
	if f.w.run.cfg == nil { // it is of NewFile
		return true, nil
	}
	same := false
	err := f.w.withDir(f.node, func(d backend.Directory) (err error) {
		if _, ok := d.(*backend.SoleFile); ok { // its metadata are those of an open file, which may have lost its name
			if d, err = d.OpenDir(names.Dot); err != nil {
				return err
			}
			defer d.Close()
		}
		if was, ok := f.metadata(); ok || f.content.Data == nil {
			var s sys.Stat
			s, err = d.Stat(f.entry())
			same = err == nil && f.checkType(s) == nil && (!ok || content.IsSame(was, s))
		} else {
			same, err = f.hasContentIn(d)
		}
		return err
	})
	switch {
	case errors.Is(err, ErrChanged), errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, sys.PathError("stat", f.Path(), err)
	}
	return same, nil
}

// metadata returns metadata that f had when its content was read, or before that, if any
// are known.
func (f *File) metadata() (sys.Stat, bool) {
	c := &f.content
	if c.HasStat && !f.lateStat {
		return c.Stat, true
	}
	if c.Truncated && !c.Beginning.Whole {
		return c.Beginning.Stat, true
	}
	return sys.Stat{}, false
}

// hasContentIn reports whether f's content in d is still what was read of it.
func (f *File) hasContentIn(d backend.Directory) (bool, error) {
	h, err := d.Open(f.name, nil)
	if err != nil {
		return false, err
	}
	now, err := content.NewRest(h, nil, 0, f.w.run.stopped)
	if err != nil {
		return false, err
	}
	defer now.Close()
	return f.hasContent(now)
}

// hasContent reports whether now has the content that was read of f.
func (f *File) hasContent(now replace.Old) (bool, error) {
	buf := copyBuffers.Get().(*[128 << 10]byte)
	defer copyBuffers.Put(buf)
	was, more := f.content.Data, []byte(nil)
	if b := f.content.Beginning; f.content.Truncated {
		more = b.Rest
	}
	for {
		n, err := now.Read(buf[:])
		if n == 0 || err != nil {
			return len(was)+len(more) == 0, err
		}
		for got := buf[:n]; len(got) > 0; {
			if len(was) == 0 {
				was, more = more, nil
			}
			k := min(len(got), len(was))
			if k == 0 || !bytes.Equal(got[:k], was[:k]) {
				return false, nil
			}
			got, was = got[k:], was[k:]
		}
	}
}

// Xattrs returns the extended attributes by name, such as "user.mime_type", or nil if there
// are none. It opens a regular file as [File.Open] does. If the metadata is known and has
// changed since the file was read, the error is [ErrChanged]. The error is
// errors.ErrUnsupported with Options.FS, on a file system without extended attributes, on
// systems other than Linux, macOS, FreeBSD and NetBSD, and for symbolic links and special
// files except on Linux with a /proc.
func (f *File) Xattrs() (all map[string][]byte, err error) {
	err = f.w.withDir(f.node, func(d backend.Directory) error {
		switch f.typ {
		case 0:
		case fs.ModeDir:
			all, err = f.xattrsOfDir(d)
			return err
		default:
			all, err = f.xattrsOfOther(d)
			return err
		}
		file, err := d.OpenFile(f.name, f.Path())
		if err != nil {
			return err
		}
		defer file.Close()
		if was, ok := f.metadata(); ok {
			now, err := file.Stat()
			if err == nil && !content.IsSame(was, sys.StatOfInfo(now)) {
				err = ErrChanged
			}
			if err != nil {
				return sys.AsError("fstat", err)
			}
		}
		all, err = sys.Xattrs(int(file.Fd()))
		return err
	})
	if err != nil {
		return nil, sys.PathError("open", f.Path(), err)
	}
	return all, nil
}

func (f *File) xattrsOfDir(parent backend.Directory) (map[string][]byte, error) {
	d, err := parent.OpenDir(f.entry())
	if err != nil {
		return nil, err
	}
	defer d.Close()
	if was, ok := f.metadata(); ok {
		now, err := d.Stat(names.Dot)
		if err == nil && !content.IsSame(was, now) {
			err = ErrChanged
		}
		if err != nil {
			return nil, err
		}
	}
	if d, ok := d.(backend.Attributed); ok {
		return d.Xattrs()
	}
	return nil, errors.ErrUnsupported
}

// xattrsOfOther is Xattrs for a symbolic link or a special file.
func (f *File) xattrsOfOther(parent backend.Directory) (map[string][]byte, error) {
	d, ok := parent.(backend.AnyAttributed)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	now, all, err := d.XattrsOf(f.name)
	if err == nil {
		err = f.checkType(now)
	}
	if was, ok := f.metadata(); ok && err == nil && !content.IsSame(was, now) {
		err = ErrChanged
	}
	return all, err
}

// notRegular returns the error of a method that needs content, or nil if f is a regular file.
func (f *File) notRegular(op string) error {
	if f.typ == 0 {
		return nil
	}
	return &fs.PathError{Op: op, Path: f.Path(), Err: fmt.Errorf("not a regular file: %v: %w", f.typ, fs.ErrInvalid)}
}

// Open opens the file, for example to read a large file as a stream. The caller
// must close it. The file is opened in the directory that was listed, without
// following a link. If it is no longer a regular file, the error is [ErrChanged].
// The Name of the result is Path, in which the generic backend may have "/./" for
// "/". Report.Bytes does not count what is read through the result. With
// [Options.FS], which has no *os.File, and if root leads to a FIFO or a device, the error is
// errors.ErrUnsupported.
func (f *File) Open() (*os.File, error) {
	if err := f.notRegular("open"); err != nil {
		return nil, err
	}
	var file *os.File
	err := f.w.withDir(f.node, func(d backend.Directory) (err error) {
		file, err = d.OpenFile(f.name, f.Path())
		return err
	})
	if err != nil {
		return nil, sys.PathError("open", f.Path(), err)
	}
	return file, nil
}

// Reader returns a reader of the whole file: of [File.Data], and then of what follows Data,
// which it reads on demand, without regard to [Options.MaxFileSize]. The reader may be used
// until the callback returns. With io.Copy, it needs little memory. Each call of Reader
// begins at the start of the file, and ends the use of earlier readers, so that at most one
// file is open.
//
// If Data is not the whole file, the first read behind Data opens the file again, as
// [File.Open] does. The file is closed at its end or when the callback returns. If the
// name now leads to another file, or the metadata show a change, the read fails with
// [ErrChanged]. The read compares the device, the inode, the size and the times of change,
// as far as the system has them. Without Data, as with [NoRead] and in [Options.Select],
// it accepts any regular file of that name. Report.Bytes counts what is read behind Data.
// If root leads to a FIFO or a device, Reader returns Data and then what nobody has read
// of it yet.
func (f *File) Reader() io.Reader {
	f.w.endReading()
	c := &f.content
	r := &fileReader{w: f.w, node: f.node, name: f.name, data: c.Data, opens: c.Data == nil, from: int64(len(c.Data)), err: f.notRegular("read")}
	if b := c.Beginning; c.Truncated && (b.Whole || b.Stream) {
		r.more, r.opens = b.Rest, b.Stream
	} else if c.Truncated {
		r.opens, r.beginning = true, *b
	}
	f.w.reading = r
	return r
}

// A fileReader is what Reader returns. Its lock is there because a caller may still use
// it when the callback has returned: such a read fails, and reads nothing of another file.
type fileReader struct {
	w         *access
	node      *node
	name      names.Name
	beginning content.Beginning // of the file to be opened, if from is not 0
	from      int64             // the offset at which to begin in that file: behind the bytes of Data

	mu         sync.Mutex // guards what follows
	data, more []byte     // what is still to be returned of what is in memory
	opens      bool       // the rest of the file follows them
	rest       *content.Rest
	given      int64 // bytes returned so far
	err        error // of all reads behind data and more
}

func (r *fileReader) Read(p []byte) (n int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.data) == 0 {
		r.data, r.more = r.more, nil
	}
	n = copy(p, r.data)
	r.data = r.data[n:]
	r.given += int64(n)
	switch {
	case n > 0 || len(p) == 0 && r.err == nil:
		return n, nil
	case r.err != nil:
	case !r.opens:
		r.err = io.EOF
	default:
		if n, err = r.readRest(p); err == nil && n == 0 {
			err = io.EOF
		} else if err != nil {
			err = sys.PathError("read", r.node.entryPath(r.name.String()), err)
		}
		r.given += int64(n)
		r.w.read.Add(int64(n))
		if r.err = err; err != nil {
			r.close()
		}
	}
	return n, r.err
}

func (r *fileReader) readRest(p []byte) (int, error) {
	if r.rest == nil {
		b := &r.beginning
		if r.from == 0 {
			b = nil
		}
		err := r.w.withDir(r.node, func(d backend.Directory) error {
			h, err := d.Open(r.name, nil)
			if err == nil {
				r.rest, err = content.NewRest(h, b, r.from, r.w.run.stopped)
			}
			return err
		})
		if err != nil {
			return 0, err
		}
	}
	return r.rest.Read(p)
}

// copyBuffers are for WriteTo. Several calls of it may run in one callback.
var copyBuffers = sync.Pool{New: func() any { return new([128 << 10]byte) }}

// WriteTo makes io.Copy fast. It does not hold the lock during a write, which may take
// for ever.
func (r *fileReader) WriteTo(to io.Writer) (int64, error) {
	buf := copyBuffers.Get().(*[128 << 10]byte)
	defer copyBuffers.Put(buf)
	return io.CopyBuffer(to, struct{ io.Reader }{r}, buf[:])
}

// end is called when the callback has returned.
func (r *fileReader) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.data, r.more = nil, nil
	r.err = &fs.PathError{Op: "read", Path: r.node.entryPath(r.name.String()), Err: fs.ErrClosed}
	r.w.counts.bytes += max(0, r.given-r.from)
	r.close()
}

func (r *fileReader) close() {
	if rest := r.rest; rest != nil {
		r.rest = nil // also when Close panics
		rest.Close()
	}
}

// Worker returns the number under which fn runs, 0 ≤ w < Workers. Calls of fn
// with the same number never overlap, so the number can index state that needs
// no lock. It is not bound to one goroutine.
func (f *File) Worker() int { return f.w.slot }

// An Entry is a file or directory that [Walk], [Options.OnSkip] or
// [Options.SelectDir] gives. It is an [fs.DirEntry] and may be kept.
type Entry struct {
	node *node // the directory that lists it
	name string
	typ  fs.FileMode
	stat *Stat // nil without Options.Stat: the results that wait for the loop stay small
	link *string
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

// Root returns what [File.Root] returns.
func (e Entry) Root() string {
	if e.node == nil {
		return ""
	}
	return e.node.tree.paths.root
}

// Path returns the path as [File.Path] does.
func (e Entry) Path() string {
	if e.node == nil {
		return ""
	}
	return e.node.path(e.name)
}

// LinkTarget returns what [File.LinkTarget] returns, also for a directory. For a link
// that [Options.OnSkip] gets, it returns "" if the link leads nowhere.
func (e Entry) LinkTarget() string {
	if e.node == nil {
		return ""
	}
	return linkTarget(e.node, e.name)
}

// Type returns the type bits: 0 for a regular file, fs.ModeDir for a directory.
func (e Entry) Type() fs.FileMode { return e.typ }

// IsDir reports whether the entry is a directory.
func (e Entry) IsDir() bool { return e.typ.IsDir() }

// ReadLink returns the text of a symbolic link. With [Options.AllTypes] it is the text that
// [Walk] found. Otherwise, and where [File.ReadLink] is not supported, ReadLink looks it up
// by Path.
func (e Entry) ReadLink() (string, error) {
	switch {
	case e.link != nil:
		return *e.link, nil
	case e.node == nil:
		return "", &fs.PathError{Op: "readlink", Err: fs.ErrInvalid}
	case e.node.tree.paths.fsys != nil:
		return fs.ReadLink(e.node.tree.paths.fsys, e.Path())
	}
	return os.Readlink(e.Path())
}

// String returns fs.FormatDirEntry(e).
func (e Entry) String() string { return fs.FormatDirEntry(e) }

// Stat returns the metadata. With [Options.Stat] they are those that [Walk] found.
// Otherwise, and in OnSkip, each call looks them up by Path, as Info of an os.ReadDir
// entry does: a symbolic link that has replaced a directory may then lead elsewhere.
func (e Entry) Stat() (Stat, error) {
	if e.stat != nil {
		return *e.stat, nil
	}
	info, err := e.fetchInfo()
	if err != nil {
		return Stat{}, err
	}
	if e.node.tree.paths.fsys != nil {
		return Stat(backend.StatOfStored(info)), nil
	}
	return Stat(sys.StatOfInfo(info)), nil
}

// Info looks up Path and returns an fs.FileInfo of package os. In two cases the result has
// what Stat returns, and no Sys: with Options.FS, and if [Options.Stat] is set and Path now
// has other metadata.
func (e Entry) Info() (fs.FileInfo, error) {
	inFS := e.node != nil && e.node.tree.paths.fsys != nil // StatOfStored may change the type that an FS gives
	if e.stat != nil && !inFS {
		if info, err := e.fetchInfo(); err == nil && content.IsSame(sys.Stat(*e.stat), sys.StatOfInfo(info)) {
			return info, nil
		}
	}
	if e.stat != nil || inFS {
		s, err := e.Stat()
		if err != nil {
			return nil, err
		}
		e.stat = &s
		return entryInfo(e), nil
	}
	return e.fetchInfo()
}

func (e Entry) fetchInfo() (fs.FileInfo, error) {
	if e.node == nil {
		return nil, &fs.PathError{Op: "stat", Err: fs.ErrInvalid}
	}
	return e.node.tree.paths.info(e.Path(), e.typ == fs.ModeSymlink)
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
