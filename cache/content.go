package cache

import (
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fileproc/fileproc/internal/fsinfo"
)

// firm reports whether the identity of a file that is read after now shows each later
// change of the file. Only the system sets the change time, so firm uses that time where
// there is one. A file without times cannot be compared.
func firm(id fsinfo.Identity, now time.Time) bool {
	at := id.ModTime
	if id.ChangeTime > 0 {
		at = id.ChangeTime
	}
	return at > 0 && fsinfo.IsSettled(at, now.UnixNano())
}

// A stamp says which state of which file a value was made of.
type stamp struct {
	id    fsinfo.Identity
	firm  bool  // whether id shows each change since
	whole bool  // whether the content is known to be all of that state
	began int64 // on the clock of FS.data, which times all loads and comparisons: the value is not older
}

func (s *stamp) made() *stamp { return s }

// stamped is a value that can be compared with its file.
type stamped interface {
	comparable
	made() *stamp
}

// content is a file or a directory as it was read. It never changes, and it is not
// used again after its eviction: files that are open, slices and metadata that a caller
// holds are parts of it.
type content struct {
	stamp
	kind   kind
	opened atomic.Bool // whether first is in use
	info   info
	data   []byte
	names  []fs.DirEntry // of a directory, sorted
	first  file          // for the first caller that opens it: a miss allocates this file with the rest
}

// file returns a new open file of what name holds.
func (ct *content) file(name string) *file {
	f := &ct.first
	if ct.opened.Load() || !ct.opened.CompareAndSwap(false, true) {
		f = &file{}
	}
	f.of, f.name = ct, name
	return f
}

// bytes is the content. What a caller appends does not reach the memory behind it.
func (ct *content) bytes() []byte { return slices.Clip(ct.data) }

// cost returns the memory of an entry. Its data counts with the rest of the allocator's size class.
func (ct *content) cost(name string) int64 {
	cost := int64(cap(ct.data)+len(name)) + entryOverhead
	if ct.info.sys != nil {
		cost += sysMemory
	}
	return cost
}

type kind uint8

const (
	regular kind = iota
	directory
	uncachable // too large, or no regular file: it is read from the source each time
)

// info is a copy of metadata: the metadata of some fs.FS changes with the file.
type info struct {
	name  string
	size  int64
	mode  fs.FileMode
	mtime time.Time
	sys   any
}

func (i *info) Name() string       { return i.name }
func (i *info) Size() int64        { return i.size }
func (i *info) Mode() fs.FileMode  { return i.mode }
func (i *info) ModTime() time.Time { return i.mtime }
func (i *info) IsDir() bool        { return i.mode.IsDir() }
func (i *info) Sys() any           { return i.sys }

// isRegular reports whether a mode is that of a file with content. Object stores give
// their files the type fs.ModeIrregular.
func isRegular(mode fs.FileMode) bool { return mode.Type()&^fs.ModeIrregular == 0 }

func infoOf(f fs.FileInfo) info {
	return info{f.Name(), f.Size(), f.Mode(), f.ModTime(), f.Sys()}
}

const (
	entryOverhead  = 512 // bytes, about: what an entry takes besides its name and data
	sysMemory      = 256 // what the operating system's metadata takes
	dirEntryMemory = 96  // of a name in a listing, besides its bytes
)

// open opens name. The content that it returns has no data yet.
func (c *FS) open(name string) (fs.File, *content, fs.FileInfo, error) {
	now := time.Now()
	f, err := c.source.Open(name)
	if err != nil {
		return nil, nil, nil, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, nil, nil, err
	}
	id := fsinfo.Of(info)
	return f, &content{stamp: stamp{id: id, firm: firm(id, now), began: c.data.at(now)}, info: infoOf(info)}, info, nil
}

// read reads the file name, if it has at most largest bytes. It sets whole if all the content is known to be
// there: the read has reached the end at the size in the metadata, and the metadata is the same before and after.
func (c *FS) read(name string, largest int64) (*content, loaded, error) {
	f, ct, before, err := c.open(name)
	if err != nil {
		return nil, loaded{}, err
	}
	defer f.Close()
	switch {
	case before.IsDir():
		ct.kind = directory
		return ct, loaded{}, nil
	case !isRegular(before.Mode()) || before.Size() > largest:
		ct.kind = uncachable
		return ct, loaded{}, nil
	}
	switch ct.data, err = readAll(f, before.Size(), largest); err {
	case nil:
	case errLonger:
		ct.kind = uncachable
		return ct, loaded{}, nil
	case io.ErrNoProgress:
		return nil, loaded{}, &fs.PathError{Op: "read", Path: name, Err: err}
	default:
		return nil, loaded{}, err
	}
	ct.whole = int64(len(ct.data)) == before.Size() && c.isStill(name, ct.id)
	ct.firm = ct.firm && ct.whole
	return ct, loaded{cost: ct.cost(name), ttl: c.ttlOf(name, &ct.info), began: ct.began,
		keep: c.worthKeeping(&ct.stamp)}, nil
}

// worthKeeping reports whether a value may be cached, and will ever be served.
func (c *FS) worthKeeping(s *stamp) bool { return s.whole && (s.firm || c.trust != 0) }

// largest is the size of the largest file that is cached under a name.
func (c *FS) largest(name string) int64 {
	return min(c.maxFile, c.data.maxCost()-entryOverhead-int64(len(name)))
}

// compare compares the identity of the file name with id.
func (c *FS) compare(name string, id fsinfo.Identity) verdict {
	after, err := fs.Stat(c.source, name)
	switch {
	case err == nil && fsinfo.Of(after) == id:
		return same
	case err == nil || errors.Is(err, fs.ErrNotExist):
		return differs
	}
	return unknown
}

// isStill reports whether the file name is known to have the identity id now.
func (c *FS) isStill(name string, id fsinfo.Identity) bool { return c.compare(name, id) == same }

var scratch = sync.Pool{New: func() any { return new([512]byte) }}

// errLonger is the error of readAll for a file that is longer than the limit, whatever size the metadata gave.
var errLonger = errors.New("cache: longer than the limit")

// believed is the largest size in bytes for which readAll allocates memory before it has read anything.
const believed = 16 << 20

// readAll reads f to its end, which only io.EOF proves. If f has the given size, the
// content takes that much memory, and the rest of its size class.
func readAll(f io.Reader, size, limit int64) ([]byte, error) {
	// Some file systems give -1 for a size that they do not know.
	data := slices.Grow([]byte(nil), int(min(max(0, size), believed)))
	more := scratch.Get().(*[512]byte)
	defer scratch.Put(more)
	for empty := 0; ; {
		into := data[len(data):cap(data)]
		if len(into) == 0 {
			into = more[:]
		}
		if left := limit - int64(len(data)); int64(len(into)) > left {
			into = into[:left+1]
		}
		n, err := f.Read(into)
		if len(data) < cap(data) {
			data = data[:len(data)+n]
		} else if n > 0 {
			if rest := size - int64(len(data)); rest >= int64(n) { // take no more than the given size, where append takes a quarter more
				data = append(slices.Grow([]byte(nil), len(data)+int(min(rest, int64(len(data))))), data...)
			}
			data = append(data, more[:n]...)
		}
		switch {
		case int64(len(data)) > limit:
			return nil, errLonger
		case err == io.EOF:
			return data, nil
		case err != nil:
			return nil, err
		case n > 0:
			empty = 0
		default:
			if empty++; empty == 100 {
				return nil, io.ErrNoProgress
			}
		}
	}
}

// list reads the directory name.
func (c *FS) list(name string) (*content, loaded, error) {
	f, ct, before, err := c.open(name)
	if err != nil {
		return nil, loaded{}, err
	}
	defer f.Close()
	if !before.IsDir() {
		return ct, loaded{}, nil
	}
	ct.kind = directory
	var found []fs.DirEntry
	if d, ok := f.(fs.ReadDirFile); ok {
		found, err = d.ReadDir(-1)
	} else {
		found, err = fs.ReadDir(c.source, name)
	}
	if err != nil {
		return nil, loaded{}, err
	}
	cost := ct.cost(name)
	ct.names = make([]fs.DirEntry, len(found))
	for i, d := range found {
		ct.names[i] = &dirEntry{c, path.Join(name, d.Name()), d.Name(), d.Type()}
		cost += dirEntryMemory + 2*int64(len(d.Name())) + int64(len(name))
	}
	slices.SortFunc(ct.names, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	ct.whole = c.isStill(name, ct.id)
	return ct, loaded{cost: cost, ttl: c.ttlOf(name, &ct.info), began: ct.began, keep: c.worthKeeping(&ct.stamp)}, nil
}

// dirEntry is an entry of a cached listing.
type dirEntry struct {
	fsys       *FS
	full, name string
	mode       fs.FileMode
}

func (d *dirEntry) Name() string               { return d.name }
func (d *dirEntry) IsDir() bool                { return d.mode.IsDir() }
func (d *dirEntry) Type() fs.FileMode          { return d.mode }
func (d *dirEntry) Info() (fs.FileInfo, error) { return d.fsys.Lstat(d.full) }
func (d *dirEntry) String() string             { return fs.FormatDirEntry(d) }
