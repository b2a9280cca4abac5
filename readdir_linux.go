//go:build linux && !fileproc_unix && !fileproc_generic

package fileproc

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"runtime"
	"sync"

	"github.com/fileproc/fileproc/internal/dirent"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
	"golang.org/x/sys/unix"
)

// listedName is an fs.DirEntry of ReadDir.
type listedName struct {
	dir  *string
	name names.Name
	typ  fs.FileMode
}

func (e *listedName) Name() string               { return e.name.String() }
func (e *listedName) IsDir() bool                { return e.typ.IsDir() }
func (e *listedName) Type() fs.FileMode          { return e.typ }
func (e *listedName) Info() (fs.FileInfo, error) { return os.Lstat(*e.dir + "/" + e.name.String()) }
func (e *listedName) String() string             { return fs.FormatDirEntry(e) }

// halveFrom is how many buffers of entries ReadDir lists before it opens a second
// descriptor for the latter half of the rest. They take about a millisecond.
const halveFrom = 4

func readDir(name string) ([]fs.DirEntry, error) {
	d, err := openRoot(name)
	for sys.IsInterrupted(err) {
		d, err = openRoot(name)
	}
	if err != nil {
		return nil, sys.PathError("open", name, err)
	}
	defer d.close()
	p := &part{dir: d.(*linuxDir), name: &name}
	var (
		latter part
		wg     sync.WaitGroup
	)
	p.list(2) // the second buffer says whether there is more
	if p.err == nil && (!p.over || len(p.blocks) > 1 || len(p.block) > oneAnswer) && p.dir.losesPosition() {
		p.dir.whole = new(wholeListing)
		*p = part{dir: p.dir, name: p.name}
		p.listWhole()
	}
	p.list(halveFrom - 2)
	if !p.over && p.halve(&latter) {
		defer latter.dir.close()
		wg.Go(func() { latter.list(math.MaxInt) })
	}
	p.list(math.MaxInt)
	wg.Wait()
	blocks, err := append(p.blocks, p.block), p.err
	if err == nil {
		blocks, err = append(append(blocks, latter.blocks...), latter.block), latter.err
	}
	if err != nil {
		err = sys.PathError("getdents64", name, err)
	}
	return listedEntries(blocks), err
}

// A part is the entries of a directory from the position of dir up to the position end.
type part struct {
	dir  *linuxDir
	name *string
	at   int64 // the position of the next entry
	end  int64 // 0: the end of the directory
	over bool
	err  error

	arena  names.Arena
	blocks [][]listedName // never grown, since entries point into them
	block  []listedName   // the last of them
}

// list lists so many buffers of the part, or fewer if the part ends.
func (p *part) list(buffers int) {
	l := listings.Get().(*listing)
	defer listings.Put(l)
	for range buffers {
		if p.over {
			return
		}
		n, err := getdents(p.dir.fd, l.recordBuffer(), p.addRecord)
		for sys.IsInterrupted(err) { // package os repeats the call for ever, too
			n, err = getdents(p.dir.fd, l.recordBuffer(), p.addRecord)
		}
		p.over = n == 0 || err != nil
		if err != errPartEnds {
			p.err = err
		}
	}
}

// listWhole lists the rest of a directory by linuxDir.list.
func (p *part) listWhole() {
	l := listings.Get().(*listing)
	defer listings.Put(l)
	for more := true; more && p.err == nil; l.reset() {
		more, p.err = p.dir.list(l)
		if sys.IsInterrupted(p.err) {
			more, p.err = true, nil
		}
		for _, e := range l.entries {
			if err := p.add(e); err != nil && p.err == nil {
				p.err = err
			}
		}
	}
	p.over = true
}

// errPartEnds is the error of addRecord at the last entry of a part.
var errPartEnds = errors.New("fileproc: end of the part")

func (p *part) addRecord(r dirent.Record) error {
	p.at = r.Off
	if !names.IsDot(r.Name) {
		if err := p.add(listedEntry{r.Name, sys.DirentType(r.Type), r.Ino}); err != nil {
			return err
		}
	}
	if p.end > 0 && p.at >= p.end {
		return errPartEnds
	}
	return nil
}

func (p *part) add(l listedEntry) error {
	if !names.Valid(l.name) {
		return badName(l.name)
	}
	e := listedName{p.name, p.arena.Add(l.name), l.typ}
	if e.typ == sys.TypeUnknown {
		s, err := p.dir.stat(e.name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed meanwhile; os.ReadDir leaves it out too
		}
		if err != nil {
			return err
		}
		e.typ = s.Mode.Type()
	}
	if len(p.block) == cap(p.block) {
		p.blocks = append(p.blocks, p.block)
		p.block = make([]listedName, 0, min(max(16, 2*cap(p.block)), 1024))
	}
	p.block = append(p.block, e)
	return nil
}

// halve makes latter the latter half of p, with a descriptor of its own, and reports
// whether it could. The file system must allow a seek to any position, also to one that it
// has not given, must keep the positions of entries, and must list entries in their order.
func (p *part) halve(latter *part) bool {
	if runtime.GOMAXPROCS(0) == 1 {
		return false
	}
	var last int64
	switch p.dir.fileSystem() {
	case unix.EXT4_SUPER_MAGIC:
		last = math.MaxInt64 // positions are hashes of names, of 63 bits
	case unix.XFS_SUPER_MAGIC:
		var st unix.Stat_t
		_ = unix.Fstat(p.dir.fd, &st) // an error leaves the size at 0: then there is no middle
		last = st.Size / 8            // positions are offsets, in units of 8 bytes
	}
	middle := p.at/2 + last/2
	if middle <= p.at {
		return false
	}
	fd, err := sys.Openat(p.dir.fd, names.Dot, sys.DirFlags)
	if err != nil {
		return false
	}
	// Without hashes, or with hashes of 31 bits, ext4 refuses a position like middle.
	if off, err := unix.Seek(fd, middle, unix.SEEK_SET); err != nil || off != middle {
		unix.Close(fd)
		return false
	}
	*latter = part{dir: &linuxDir{fdDir: fdDir{fd: fd}}, name: p.name, at: middle, end: p.end}
	p.end = middle
	return true
}

// listedEntries makes one slice of all entries once their number is known. To grow the
// slice entry by entry takes twice the time.
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
