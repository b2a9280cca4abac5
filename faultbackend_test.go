package fileproc

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fileproc/fileproc/internal/backend"
	"github.com/fileproc/fileproc/internal/content"
	"github.com/fileproc/fileproc/internal/knobs"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
)

var errBroken = errors.New("input/output error")

// scarceErrors and leasedErrors are this platform's errors for no free descriptor and for a leased file.
var (
	scarceErrors = []error{syscall.EMFILE}
	leasedErrors []error
	otherErrors  = []error{errBroken, fs.ErrPermission}
)

// A world is a tree in memory behind the seam in which everything can go wrong. It checks that the core
// obeys the seam's contract.
type world struct {
	root    *object
	perList int                     // entries that one list gives; 3 if zero
	eager   bool                    // the list that gives the last entry reports the end
	onCall  func(int)               // called with the number of each call, from 0
	during  func(what, name string) // called during each call
	// fails gives each call its error; closing and reading from the page cache have none.
	fails    func(call int, what string) error
	limit    int   // most handles open at once; 0: no limit
	hasSpare bool  // a descriptor is free, whatever opens say
	nth      int   // every nth open fails; 0: none
	scarce   error // the error of these opens

	mu     sync.Mutex
	calls  int
	opens  int
	open   int
	most   int  // handles open at once
	parts  int  // of directories that have been halved
	single bool // no directory can be
	wrong  []string
	maxAsk int // the longest buffer of a read
	listed map[*backend.Listing][][]byte
}

// find returns the object at a path below root.
func (w *world) find(p string) *object {
	o := w.root
	for _, name := range strings.Split(p, "/") {
		i := slices.IndexFunc(o.kids, func(k *object) bool { return k.name == name })
		if i < 0 {
			return nil
		}
		o = o.kids[i]
	}
	return o
}

// contents returns all regular files by path.
func (w *world) contents() map[string]string {
	all := map[string]string{}
	var add func(o *object, at string)
	add = func(o *object, at string) {
		for _, k := range o.kids {
			if k.listed == fs.ModeDir {
				add(k, path.Join(at, k.name))
			} else {
				all[path.Join(at, k.name)] = string(k.content)
			}
		}
	}
	add(w.root, "")
	return all
}

func (w *world) objectTo(format string, args ...any) {
	w.mu.Lock()
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
	w.mu.Unlock()
}

// called begins every call of the seam, and returns the error that it is to have.
func (w *world) called(closed *bool, what, name string) error {
	w.mu.Lock()
	k := w.calls
	w.calls++
	if *closed {
		w.wrong = append(w.wrong, fmt.Sprintf("%s of %q after its close", what, name))
	}
	w.mu.Unlock()
	if w.onCall != nil {
		w.onCall(k)
	}
	if w.during != nil {
		w.during(what, name)
	}
	if w.fails != nil {
		if err := w.fails(k, what); err != nil {
			return &sys.Error{Op: what, Err: err}
		}
	}
	return nil
}

// take takes a handle, or returns the error that none is free.
func (w *world) take() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.opens++
	if w.limit > 0 && w.open >= w.limit || w.nth > 0 && w.opens%w.nth == 0 {
		return &sys.Error{Op: "openat", Err: w.scarce}
	}
	w.open++
	w.most = max(w.most, w.open)
	return nil
}

func (w *world) give(closed *bool, name string) {
	w.called(closed, "close", name)
	w.mu.Lock()
	*closed = true
	w.open--
	w.mu.Unlock()
}

func (w *world) openRoot(string) (backend.Directory, error) {
	never := false
	if err := w.called(&never, "open", "root"); err != nil {
		return nil, err
	}
	if err := w.fault(w.root); err != nil {
		return nil, err
	}
	if err := w.take(); err != nil {
		return nil, err
	}
	return &worldDir{w: w, o: w.root}, nil
}

// fault returns the next of the errors for o's first opens.
func (w *world) fault(o *object) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(o.openErr) == 0 {
		return nil
	}
	err := o.openErr[0]
	o.openErr = o.openErr[1:]
	return &sys.Error{Op: "openat", Err: err}
}

// An object is a file or directory with its faults.
type object struct {
	name    string
	listed  fs.FileMode // type in the listing
	mode    fs.FileMode // actual type
	gone    bool        // vanished since it was listed
	openErr []error     // of the first opens
	statErr error       // of a stat by name
	idErr   error
	device  uint64

	kids    []*object
	errs    []error // about entries without a name, in the first list
	listErr error   // of the list numbered failAt, after half of its entries; of each if that is -1
	failAt  int

	content []byte
	lies    bool // size is the metadata's, not the content's
	size    int64
	chunk   int // most bytes of one read; 0: no limit
	hand    int // bytes that cached gives
	handAll bool
	readErr error // of the read at errAt
	errAt   int
	stalls  int // reads that find nothing yet
	remote  bool
}

func (o *object) with(faults ...func(*object)) *object {
	for _, f := range faults {
		f(o)
	}
	return o
}

func (o *object) stat() sys.Stat {
	s := sys.Stat{Size: int64(len(o.content)), Mode: o.mode | 0o644, Device: o.device}
	if o.lies {
		s.Size = o.size
	}
	return s
}

func (o *object) Same(other backend.Identity) bool { return other == backend.Identity(o) }

func (o *object) Inode() (device, number uint64) { return o.device, 0 }

func file(name, content string, faults ...func(*object)) *object {
	o := &object{name: name, content: []byte(content)}
	for _, f := range faults {
		f(o)
	}
	return o
}

func folder(name string, kids ...*object) *object {
	return &object{name: name, listed: fs.ModeDir, mode: fs.ModeDir, kids: kids}
}

func vanished(o *object)                  { o.gone = true }
func unknown(o *object)                   { o.listed = sys.TypeUnknown }
func becomes(m fs.FileMode) func(*object) { return func(o *object) { o.mode = m } }
func typed(m fs.FileMode) func(*object)   { return func(o *object) { o.listed, o.mode = m, m } }
func chunks(n int) func(*object)          { return func(o *object) { o.chunk = n } }
func sized(n int64) func(*object)         { return func(o *object) { o.lies, o.size = true, n } }
func opening(errs ...error) func(*object) {
	return func(o *object) { o.openErr = slices.Clone(errs) }
}
func atHand(n int) func(*object) { return func(o *object) { o.hand = n } }
func readFails(at int, err error) func(*object) {
	return func(o *object) { o.errAt, o.readErr = at, err }
}
func listFails(at int, err error) func(*object) {
	return func(o *object) { o.failAt, o.listErr = at, err }
}

type worldDir struct {
	w       *world
	o       *object
	at      int // the entry to be listed next
	end     int // where the listing ends, of a part; 0: the end of the directory
	lists   int
	listing bool // a list is running
	closed  bool
	run     *trace // nil unless the run is traced
}

// lookup finds an entry that has not vanished.
func (d *worldDir) lookup(name names.Name) (*object, error) {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	for _, k := range d.o.kids {
		if k.name == name.String() && !k.gone {
			return k, nil
		}
	}
	return nil, &sys.Error{Op: "openat", Err: sys.Changed{Err: fs.ErrNotExist}}
}

func (d *worldDir) List(l *backend.Listing) (bool, error) {
	if err := d.w.called(&d.closed, "list", d.o.name); err != nil {
		return false, err
	}
	d.w.mu.Lock()
	if d.listing {
		d.w.wrong = append(d.w.wrong, "two lists of "+d.o.name+" at a time")
	}
	d.listing = true
	n := d.w.perList
	if n == 0 {
		n = 3
	}
	last := len(d.o.kids)
	if d.end > 0 {
		last = d.end
	}
	end := min(d.at+n, last)
	fails := d.o.listErr != nil && (d.lists == d.o.failAt || d.o.failAt < 0)
	if fails {
		end = d.at + (end-d.at)/2
	}
	got := d.o.kids[d.at:end]
	d.at = end
	d.lists++
	more := len(got) > 0
	if d.w.eager {
		more = end < last
	}
	d.w.mu.Unlock()
	d.w.mu.Lock()
	for _, name := range d.w.listed[l] {
		clear(name) // the core must have copied it before it reuses l
	}
	if len(d.w.listed) == 0 || len(d.w.listed) > 16 { // a listing that is not reused would stay in memory
		d.w.listed = map[*backend.Listing][][]byte{}
	}
	d.w.listed[l] = nil
	if d.lists == 1 {
		l.Errs = slices.Clone(d.o.errs)
	}
	for _, k := range got {
		name := []byte(k.name)
		l.Add(name, k.listed, uint64(crc32.ChecksumIEEE(name)))
		d.w.listed[l] = append(d.w.listed[l], name)
	}
	d.listing = false
	d.w.mu.Unlock()
	if fails {
		return false, &sys.Error{Op: "getdents64", Err: d.o.listErr}
	}
	return more, nil
}

// Halve is that of divisible, however little is left. It halves in the cold mode alone: elsewhere a
// worker must happen to have nothing to do, and tests would differ from run to run.
func (d *worldDir) Halve(int64) (backend.Directory, bool) {
	end := len(d.o.kids)
	if d.end > 0 {
		end = d.end
	}
	if !knobs.AlwaysCold || d.w.single || d.w.called(&d.closed, "halve", d.o.name) != nil || end-d.at < 2 || d.w.take() != nil {
		return nil, false
	}
	if d.listing {
		d.w.objectTo("%s is halved while it is listed", d.o.name)
	}
	middle := (d.at + end) / 2
	latter := &worldDir{w: d.w, o: d.o, at: middle, end: end, lists: 1, run: d.run}
	d.end = middle
	d.w.mu.Lock()
	d.w.parts++
	d.w.mu.Unlock()
	return latter, true
}

func (d *worldDir) OpenDir(name names.Name) (backend.Directory, error) {
	if err := d.w.called(&d.closed, "openDir", name.String()); err != nil {
		return nil, err
	}
	if name == names.Dot && (d.w.limit > 0 || d.w.hasSpare) {
		if err := d.w.take(); err != nil {
			return nil, err
		}
		return &worldDir{w: d.w, o: d.o, run: d.run}, nil
	}
	o, err := d.lookup(name)
	if err != nil {
		return nil, err
	}
	if err := d.w.fault(o); err != nil {
		return nil, err
	}
	if o.mode != fs.ModeDir {
		return nil, &sys.Error{Op: "openat", Err: sys.Changed{Err: errors.New("not a directory")}}
	}
	if err := d.w.take(); err != nil {
		return nil, err
	}
	return &worldDir{w: d.w, o: o, run: d.run}, nil
}

func (d *worldDir) Open(name names.Name, spare content.File) (content.File, error) {
	if err := d.w.called(&d.closed, "open", name.String()); err != nil {
		return nil, err
	}
	o, err := d.lookup(name)
	if err != nil {
		return nil, err
	}
	if err := d.w.fault(o); err != nil {
		return nil, err
	}
	if o.mode == fs.ModeSymlink {
		return nil, &sys.Error{Op: "openat", Err: sys.Changed{Err: errors.New("a link")}}
	}
	if err := d.w.take(); err != nil {
		return nil, err
	}
	c, ok := spare.(*worldFile)
	if !ok {
		c = new(worldFile)
	} else if !c.closed {
		d.w.objectTo("the spare for %q is still open", name)
	}
	*c = worldFile{w: d.w, o: o}
	return c, nil
}

func (d *worldDir) Stat(name names.Name) (sys.Stat, error) {
	if err := d.w.called(&d.closed, "stat", name.String()); err != nil {
		return sys.Stat{}, err
	}
	o, err := d.o, error(nil)
	if name != names.Dot {
		o, err = d.lookup(name)
	}
	if err != nil {
		return sys.Stat{}, err
	}
	if o.statErr != nil {
		return sys.Stat{}, &sys.Error{Op: "fstatat", Err: o.statErr}
	}
	return o.stat(), nil
}

func (d *worldDir) ReadLink(name names.Name) (string, error) {
	if err := d.w.called(&d.closed, "readLink", name.String()); err != nil {
		return "", err
	}
	o, err := d.lookup(name)
	if err != nil {
		return "", err
	}
	return "to " + o.name, nil
}

func (d *worldDir) OpenFile(name names.Name, _ string) (*os.File, error) {
	c, err := d.Open(name, nil)
	if err != nil {
		return nil, err
	}
	c.Close()
	return nil, errors.ErrUnsupported // there is no *os.File in memory
}

func (d *worldDir) Identity() (backend.Identity, error) {
	if err := d.w.called(&d.closed, "identity", d.o.name); err != nil {
		return nil, err
	}
	if d.o.idErr != nil {
		return nil, &sys.Error{Op: "fstat", Err: d.o.idErr}
	}
	return d.o, nil
}

func (d *worldDir) Close() {
	if d.run != nil && d.run.report.Found > 0 && d.o != d.w.root {
		d.run.late = append(d.run.late, d.o.name)
	}
	d.w.give(&d.closed, d.o.name)
}

var _ backend.Directory = (*worldDir)(nil)

type worldFile struct {
	w      *world
	o      *object
	at     int
	closed bool
}

func (f *worldFile) IsRemote() bool { return f.o.remote }

func (f *worldFile) Cached(p []byte) (int, bool) {
	if f.w.called(&f.closed, "cached", f.o.name) != nil {
		return 0, false
	}
	n := copy(p, f.o.content[:min(f.o.hand, len(f.o.content))])
	f.at = n
	return n, f.o.handAll && f.o.mode == 0 && n == len(f.o.content) && n < len(p)
}

func (f *worldFile) Read(p []byte) (int, error) {
	if err := f.w.called(&f.closed, "read", f.o.name); err != nil {
		return 0, err
	}
	if f.o.mode != 0 {
		f.w.objectTo("read of %q, which is no regular file", f.o.name)
	}
	f.w.mu.Lock()
	f.w.maxAsk = max(f.w.maxAsk, len(p))
	f.w.mu.Unlock()
	if len(p) == 0 {
		f.w.objectTo("read of %q into nothing", f.o.name)
	}
	if f.o.stalls > 0 {
		f.o.stalls--
		time.Sleep(content.WaitSlice)
		return 0, content.ErrWouldBlock
	}
	if f.o.chunk > 0 && len(p) > f.o.chunk {
		p = p[:f.o.chunk]
	}
	if f.o.readErr != nil {
		if f.at == f.o.errAt {
			return 0, &sys.Error{Op: "read", Err: f.o.readErr}
		}
		if f.at < f.o.errAt {
			p = p[:min(len(p), f.o.errAt-f.at)]
		}
	}
	n := copy(p, f.o.content[f.at:])
	f.at += n
	return n, nil
}

func (f *worldFile) Stat() (sys.Stat, error) {
	if err := f.w.called(&f.closed, "fstat", f.o.name); err != nil {
		return sys.Stat{}, err
	}
	return f.o.stat(), nil
}

func (f *worldFile) Close() { f.w.give(&f.closed, f.o.name) }

// A systemDir is a directory of the system whose calls are a world's: they fail as it says, and it counts what is open.
type systemDir struct {
	backend.Directory
	w      *world
	closed bool
}

func (w *world) openSystem(root string) (backend.Directory, error) {
	never := false
	if err := w.called(&never, "open", "root"); err != nil {
		return nil, err
	}
	return w.opened(backend.OpenRoot(root))
}

func (w *world) opened(d backend.Directory, err error) (backend.Directory, error) {
	if err != nil {
		return nil, err
	}
	w.open++
	return &systemDir{Directory: d, w: w}, nil
}

func (d *systemDir) List(l *backend.Listing) (bool, error) {
	if err := d.w.called(&d.closed, "list", ""); err != nil {
		return false, err
	}
	return d.Directory.List(l)
}

func (d *systemDir) OpenDir(name names.Name) (backend.Directory, error) {
	if err := d.w.called(&d.closed, "openDir", name.String()); err != nil {
		return nil, err
	}
	return d.w.opened(d.Directory.OpenDir(name))
}

func (d *systemDir) Open(name names.Name, spare content.File) (content.File, error) {
	if err := d.w.called(&d.closed, "open", name.String()); err != nil {
		return nil, err
	}
	return d.Directory.Open(name, spare)
}

func (d *systemDir) Stat(name names.Name) (sys.Stat, error) {
	if err := d.w.called(&d.closed, "stat", name.String()); err != nil {
		return sys.Stat{}, err
	}
	return d.Directory.Stat(name)
}

func (d *systemDir) Identity() (backend.Identity, error) {
	if err := d.w.called(&d.closed, "identity", ""); err != nil {
		return nil, err
	}
	return d.Directory.Identity()
}

func (d *systemDir) Close() {
	d.w.give(&d.closed, "")
	d.Directory.Close()
}
