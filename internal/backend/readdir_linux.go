//go:build linux && !fileproc_unix && !fileproc_generic

package backend

import (
	"cmp"
	"errors"
	"io/fs"
	"math"
	"os"
	"runtime"
	"sync"

	"github.com/fileproc/fileproc/internal/dirent"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
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

func ReadDir(name string) ([]fs.DirEntry, error) {
	d, err := OpenRoot(name)
	for sys.IsInterrupted(err) {
		d, err = OpenRoot(name)
	}
	if err != nil {
		return nil, sys.PathError("open", name, err)
	}
	defer d.Close()
	p := &part{dir: d.(*linuxDir), name: &name}
	var (
		latter *part
		wg     sync.WaitGroup
	)
	p.list(2) // the second buffer says whether there is more
	if p.err == nil && (!p.over || len(p.blocks) > 1 || len(p.block) > oneAnswer) && p.dir.losesPosition() {
		p.dir.whole = new(wholeListing)
		*p = part{dir: p.dir, name: p.name}
		p.listWhole()
	}
	p.list(halveFrom - 2)
	if !p.over {
		if latter = p.halve(); latter != nil {
			defer latter.dir.Close()
			wg.Go(func() { latter.list(math.MaxInt) })
		}
	}
	p.list(math.MaxInt)
	wg.Wait()
	blocks, err := append(p.blocks, p.block), p.err
	if err == nil && latter != nil {
		blocks, err = append(append(blocks, latter.blocks...), latter.block), latter.err
	}
	if err != nil {
		err = sys.PathError("getdents64", name, err)
	}
	return listedEntries(blocks), err
}

// A part is the entries of a directory that dir lists.
type part struct {
	dir  *linuxDir
	name *string
	over bool
	err  error

	arena  names.Arena
	blocks [][]listedName // never grown, since entries point into them
	block  []listedName   // the last of them
}

// list lists so many buffers of the part, or fewer if the part ends.
func (p *part) list(buffers int) {
	l := listings.Get().(*Listing)
	defer listings.Put(l)
	for range buffers {
		if p.over {
			return
		}
		n, err := p.dir.getdents(l.recordBuffer(), p.addRecord)
		for sys.IsInterrupted(err) { // package os repeats the call for ever, too
			n, err = p.dir.getdents(l.recordBuffer(), p.addRecord)
		}
		p.over, p.err = n == 0 || err != nil, err
	}
}

// listWhole lists the rest of a directory by linuxDir.list.
func (p *part) listWhole() {
	l := listings.Get().(*Listing)
	defer listings.Put(l)
	for more := true; more && p.err == nil; l.Reset() {
		more, p.err = p.dir.List(l)
		if sys.IsInterrupted(p.err) {
			more, p.err = true, nil
		}
		for _, e := range l.Entries {
			p.err = cmp.Or(p.err, p.add(e))
		}
	}
	p.over = true
}

func (p *part) addRecord(r dirent.Record) error {
	if names.IsDot(r.Name) {
		return nil
	}
	return p.add(Entry{r.Name, sys.DirentType(r.Type), r.Ino})
}

// halve returns the latter half of p, or nil if there is no gain or no descriptor.
func (p *part) halve() *part {
	if runtime.GOMAXPROCS(0) > 1 {
		if d, ok := p.dir.Halve(0); ok {
			return &part{dir: d.(*linuxDir), name: p.name}
		}
	}
	return nil
}

func (p *part) add(l Entry) error {
	if !names.Valid(l.Name) {
		return BadName(l.Name)
	}
	e := listedName{p.name, p.arena.Add(l.Name), l.Type}
	if e.typ == sys.TypeUnknown {
		s, err := p.dir.Stat(e.name)
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
		p.block = make([]listedName, 0, min(16+2*cap(p.block), 1024))
	}
	p.block = append(p.block, e)
	return nil
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
