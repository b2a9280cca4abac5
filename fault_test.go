package fileproc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

var errBroken = errors.New("input/output error")

// scarceErrors and leasedErrors are what this platform says without descriptors, and of a leased file.
var (
	scarceErrors = []error{syscall.EMFILE}
	leasedErrors []error
)

// A world is a tree in memory behind the seam, in which everything can go wrong, and which sees to it that the core
// keeps the seam's contract.
type world struct {
	root    *object
	perList int                     // entries that one list gives; 3 if zero
	eager   bool                    // the list that gives the last entry says that it was the last
	onCall  func(int)               // told of the k-th call, from 0
	during  func(what, name string) // called in the course of each call
	limit   int                     // handles that can be open at once; 0: no limit
	nth     int                     // every nth open is one too many; 0: none
	scarce  error                   // what these opens give

	mu     sync.Mutex
	calls  int
	opens  int
	open   int
	most   int // that were open at once
	wrong  []string
	maxAsk int // the longest buffer of a read
}

// An object is a file or directory with the faults that it has.
type object struct {
	name    string
	listed  fs.FileMode // type that the listing tells
	mode    fs.FileMode // type that it has when it is looked at
	gone    bool        // vanished since it was listed
	openErr []error     // of the first opens
	statErr error       // of a stat by name
	idErr   error
	device  uint64

	kids    []*object
	listErr error // of the list numbered failAt, after half of its entries
	failAt  int

	content []byte
	lies    bool // size is what the metadata says
	size    int64
	chunk   int // bytes that a read gives at most; 0: no limit
	hand    int // bytes that cached gives
	handAll bool
	readErr error // of the read at errAt
	errAt   int
	stalls  int // reads that find nothing yet
}

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

func (o *object) with(faults ...func(*object)) *object {
	for _, f := range faults {
		f(o)
	}
	return o
}

func vanished(o *object)                  { o.gone = true }
func unknown(o *object)                   { o.listed = typeUnknown }
func becomes(m fs.FileMode) func(*object) { return func(o *object) { o.mode = m } }
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

// called begins every call of the seam.
func (w *world) called(closed *bool, what, name string) {
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
}

// take takes a handle, or gives the error that there is none.
func (w *world) take() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.opens++
	if w.limit > 0 && w.open >= w.limit || w.nth > 0 && w.opens%w.nth == 0 {
		return &sysError{"openat", w.scarce}
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

func (w *world) openRoot(string) (directory, error) {
	never := false
	w.called(&never, "open", "root")
	if err := w.fault(w.root); err != nil {
		return nil, err
	}
	if err := w.take(); err != nil {
		return nil, err
	}
	return &worldDir{w: w, o: w.root}, nil
}

// fault is the next error of those that o's first opens give.
func (w *world) fault(o *object) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(o.openErr) == 0 {
		return nil
	}
	err := o.openErr[0]
	o.openErr = o.openErr[1:]
	return &sysError{"openat", err}
}

type worldDir struct {
	w       *world
	o       *object
	at      int // entries listed
	lists   int
	listing bool // a list goes on
	closed  bool
}

var _ directory = (*worldDir)(nil)

// lookup finds an entry that has not vanished.
func (d *worldDir) lookup(name string) (*object, error) {
	if unsafe.Slice(unsafe.StringData(name), len(name)+1)[len(name)] != 0 {
		d.w.objectTo("no zero behind the name %q", name)
	}
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	for _, k := range d.o.kids {
		if k.name == name && !k.gone {
			return k, nil
		}
	}
	return nil, &sysError{"openat", changed{fs.ErrNotExist}}
}

func (d *worldDir) list(s *sink) (bool, error) {
	d.w.called(&d.closed, "list", d.o.name)
	d.w.mu.Lock()
	if d.listing {
		d.w.wrong = append(d.w.wrong, "two lists of "+d.o.name+" at a time")
	}
	d.listing = true
	n := d.w.perList
	if n == 0 {
		n = 3
	}
	end := min(d.at+n, len(d.o.kids))
	fails := d.o.listErr != nil && d.lists == d.o.failAt
	if fails {
		end = d.at + (end-d.at)/2
	}
	got := d.o.kids[d.at:end]
	d.at = end
	d.lists++
	more := len(got) > 0
	if d.w.eager {
		more = end < len(d.o.kids)
	}
	d.w.mu.Unlock()
	for _, k := range got {
		name := []byte(k.name)
		s.add(name, k.listed)
		clear(name) // the core was to copy it
	}
	d.w.mu.Lock()
	d.listing = false
	d.w.mu.Unlock()
	if fails {
		return false, &sysError{"getdents64", d.o.listErr}
	}
	return more, nil
}

func (d *worldDir) openDir(name string) (directory, error) {
	d.w.called(&d.closed, "openDir", name)
	o, err := d.lookup(name)
	if err != nil {
		return nil, err
	}
	if err := d.w.fault(o); err != nil {
		return nil, err
	}
	if o.mode != fs.ModeDir {
		return nil, &sysError{"openat", changed{errors.New("not a directory")}}
	}
	if err := d.w.take(); err != nil {
		return nil, err
	}
	return &worldDir{w: d.w, o: o}, nil
}

func (d *worldDir) open(name string, spare content) (content, error) {
	d.w.called(&d.closed, "open", name)
	o, err := d.lookup(name)
	if err != nil {
		return nil, err
	}
	if err := d.w.fault(o); err != nil {
		return nil, err
	}
	if o.mode == fs.ModeSymlink {
		return nil, &sysError{"openat", changed{errors.New("a link")}}
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

func (d *worldDir) stat(name string) (Stat, error) {
	d.w.called(&d.closed, "stat", name)
	if name == dot {
		return d.o.stat(), nil
	}
	o, err := d.lookup(name)
	if err != nil {
		return Stat{}, err
	}
	if o.statErr != nil {
		return Stat{}, &sysError{"fstatat", o.statErr}
	}
	return o.stat(), nil
}

func (o *object) stat() Stat {
	s := Stat{Size: int64(len(o.content)), Mode: o.mode | 0o644, Device: o.device}
	if o.lies {
		s.Size = o.size
	}
	return s
}

func (d *worldDir) openFile(name, _ string) (*os.File, error) {
	c, err := d.open(name, nil)
	if err != nil {
		return nil, err
	}
	c.close()
	return nil, errors.ErrUnsupported // there is no *os.File in memory
}

func (d *worldDir) identity() (identity, error) {
	d.w.called(&d.closed, "identity", d.o.name)
	if d.o.idErr != nil {
		return nil, &sysError{"fstat", d.o.idErr}
	}
	return d.o, nil
}

func (o *object) same(other identity) bool { return other == identity(o) }

func (o *object) inode() (device, number uint64) { return 0, 0 }

func (d *worldDir) close() { d.w.give(&d.closed, d.o.name) }

type worldFile struct {
	w      *world
	o      *object
	at     int
	closed bool
}

func (f *worldFile) cached(p []byte) (int, bool) {
	f.w.called(&f.closed, "cached", f.o.name)
	n := copy(p, f.o.content[:min(f.o.hand, len(f.o.content))])
	f.at = n
	return n, f.o.handAll && f.o.mode == 0 && n == len(f.o.content) && n < len(p)
}

func (f *worldFile) read(p []byte) (int, error) {
	f.w.called(&f.closed, "read", f.o.name)
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
		time.Sleep(waitSlice)
		return 0, errWouldBlock
	}
	if f.o.chunk > 0 && len(p) > f.o.chunk {
		p = p[:f.o.chunk]
	}
	if f.o.readErr != nil {
		if f.at == f.o.errAt {
			return 0, &sysError{"read", f.o.readErr}
		}
		if f.at < f.o.errAt {
			p = p[:min(len(p), f.o.errAt-f.at)]
		}
	}
	n := copy(p, f.o.content[f.at:])
	f.at += n
	return n, nil
}

func (f *worldFile) stat() (Stat, error) {
	f.w.called(&f.closed, "fstat", f.o.name)
	return f.o.stat(), nil
}

func (f *worldFile) close() { f.w.give(&f.closed, f.o.name) }

// An outcome is what a run over a world gave.
type outcome struct {
	got    map[string]string
	failed map[string]error
	report Report
	err    error
}

// process runs Process. fn may be nil.
func (w *world) process(ctx context.Context, opts Options, fn func(*File) error) outcome {
	out := outcome{got: map[string]string{}, failed: map[string]error{}}
	var mu sync.Mutex
	opts.openRoot = w.openRoot
	opts.Report = &out.report
	if opts.OnError == nil {
		opts.OnError = func(err error) error {
			var p *fs.PathError
			if errors.As(err, &p) {
				out.failed[strings.ReplaceAll(strings.TrimPrefix(p.Path, "root"), `\`, "/")] = err
			}
			return nil
		}
	}
	_, out.err = Process(ctx, "root", opts, func(f *File) (struct{}, error) {
		rel, data := f.Rel(), string(f.Data())
		if fn != nil {
			if err := fn(f); err != nil {
				return struct{}{}, err
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if _, ok := out.got[rel]; ok {
			w.objectTo("%s is delivered twice", rel)
		}
		out.got[rel] = data
		return struct{}{}, nil
	})
	return out
}

// requireSound requires what holds after every end of a run.
func (w *world) requireSound(t *testing.T, out outcome) {
	t.Helper()
	require.Empty(t, w.wrong)
	require.Zero(t, w.open, "handles left open")
	requireLedger(t, out.report)
	whole := w.contents()
	for rel, data := range out.got {
		require.Equal(t, whole[rel], data, rel)
	}
}

func requireLedger(t *testing.T, r Report) {
	t.Helper()
	sum := r.Processed + r.Failed + r.Abandoned
	for _, n := range r.Skipped {
		sum += n
	}
	require.Equal(t, r.Found, sum, "the ledger: %+v", r)
}

// inBubble runs test in fake time. No goroutine may be left when it returns: synctest fails then.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		// Only a wait for a channel of the bubble lets its time go on.
		outside := scarce
		scarce = make(chan struct{}, 1)
		defer func() { scarce = outside }()
		test(t)
	})
}

// everyWorld runs test with each way to list and some numbers of workers.
func everyWorld(t *testing.T, tree func() *object, test func(t *testing.T, w *world, workers int)) {
	t.Helper()
	for _, workers := range []int{1, 2, 7} {
		for _, perList := range []int{1, 3, 100} {
			for _, eager := range []bool{false, true} {
				inBubble(t, func(t *testing.T) {
					test(t, &world{root: tree(), perList: perList, eager: eager}, workers)
				})
			}
		}
	}
}

// A name that is none goes no further than the listing that has it, whatever its type.
func TestInvariant3NamesThatAreNone(t *testing.T) {
	names := []string{"", ".", "..", "/", "a/b", "../a", "b/"}
	if filepath.Separator == '\\' {
		names = append(names, `..\a`, `d\b`, "C:", "b:stream", "NUL")
	}
	tree := func() *object {
		bad := folder("d", file("b", "beta"))
		for _, name := range names {
			bad.kids = append(bad.kids, file(name, "secret"), folder(name, file("in", "secret")), file(name, "secret", unknown))
		}
		bad.kids = append(bad.kids, file("z", "last"))
		return folder("", file("a", "alpha"), bad)
	}
	everyWorld(t, tree, func(t *testing.T, w *world, workers int) {
		for _, opts := range []Options{{}, {SkipHidden: true}, {IgnoreFiles: []string{".rules"}}, {Exclude: []string{"none"}}} {
			opts.Workers = workers
			told := 0
			opts.OnError = func(err error) error {
				var e *fs.PathError
				require.ErrorAs(t, err, &e)
				require.ErrorIs(t, err, fs.ErrInvalid)
				require.Equal(t, filepath.Join("root", "d"), e.Path)
				require.ErrorContains(t, err, fmt.Sprintf("%q cannot be", names[told/3%len(names)]))
				told++
				return nil
			}
			out := w.process(t.Context(), opts, nil)
			require.NoError(t, out.err)
			require.Equal(t, map[string]string{"a": "alpha", "d/b": "beta", "d/z": "last"}, out.got)
			require.EqualValues(t, 3*len(names), told)
			require.EqualValues(t, told, out.report.Failed)
			require.Empty(t, w.wrong)
			require.Zero(t, w.open, "handles left open")
			requireLedger(t, out.report)
		}
	})
}

func TestFaultsOfOneEntry(t *testing.T) {
	long := strings.Repeat("0123456789", firstBuffer/5) // two first buffers
	mine := map[string]string{"/a": "alpha", "/d/b": "beta", "/d/c": ""}
	type test struct {
		name   string
		faulty *object
		opts   Options
		got    string // "" and no fails: nothing delivered
		fails  error
		skip   SkipReason
		extra  map[string]string // delivered besides
	}
	dir := func(faults ...func(*object)) *object {
		return folder("x", file("in", "inside")).with(faults...)
	}
	tests := []test{
		{name: "nothing wrong", faulty: file("x", "gamma"), got: "gamma"},
		{name: "vanishes", faulty: file("x", "gamma", vanished), fails: fs.ErrNotExist},
		{name: "vanishes, which is a change", faulty: file("x", "gamma", vanished), fails: ErrChanged},
		{name: "file becomes directory", faulty: file("x", "g", becomes(fs.ModeDir)), fails: ErrChanged},
		{name: "file becomes FIFO", faulty: file("x", "g", becomes(fs.ModeNamedPipe)), fails: ErrChanged},
		{name: "file becomes FIFO with content at hand", faulty: file("x", "g", becomes(fs.ModeNamedPipe), atHand(1)), fails: ErrChanged},
		{name: "file becomes device", faulty: file("x", "g", becomes(fs.ModeDevice)), fails: ErrChanged},
		{name: "file becomes link", faulty: file("x", "g", becomes(fs.ModeSymlink)), fails: ErrChanged},
		{name: "file becomes device, prefix", faulty: file("x", "g", becomes(fs.ModeDevice)), opts: Options{ReadSize: 7}, fails: ErrChanged},
		{name: "file becomes device, stat alone", faulty: file("x", "g", becomes(fs.ModeDevice)), opts: Options{ReadSize: NoRead, Stat: true}, fails: ErrChanged},
		{name: "vanishes, stat alone", faulty: file("x", "g", vanished), opts: Options{ReadSize: NoRead, Stat: true}, fails: ErrChanged},
		{name: "directory becomes file", faulty: dir(becomes(0)), fails: ErrChanged},
		{name: "directory becomes link", faulty: dir(becomes(fs.ModeSymlink)), fails: ErrChanged},
		{name: "directory vanishes", faulty: dir(vanished), fails: fs.ErrNotExist},
		{name: "directory cannot be opened", faulty: dir(opening(fs.ErrPermission)), fails: fs.ErrPermission},
		{name: "file cannot be opened", faulty: file("x", "g", opening(fs.ErrPermission)), fails: fs.ErrPermission},

		{name: "type unknown", faulty: file("x", "gamma", unknown), got: "gamma"},
		{name: "type unknown, directory", faulty: dir(unknown), extra: map[string]string{"/x/in": "inside"}},
		{name: "type unknown, FIFO", faulty: file("x", "g", unknown, becomes(fs.ModeNamedPipe)), skip: SkippedNotRegular},
		{name: "type unknown and stat fails", faulty: file("x", "g", unknown, func(o *object) { o.statErr = errBroken }), fails: errBroken},
		{name: "type unknown, vanished", faulty: file("x", "g", unknown, vanished), fails: ErrChanged},

		{name: "listing fails at once", faulty: dir(listFails(0, errBroken)), fails: errBroken},
		{name: "short reads of one byte", faulty: file("x", "gamma", chunks(1)), got: "gamma"},
		{name: "short reads, long", faulty: file("x", long, chunks(4071)), got: long},
		{name: "read fails at once", faulty: file("x", "gamma", readFails(0, errBroken)), fails: errBroken},
		{name: "read fails in the middle", faulty: file("x", "gamma", readFails(3, errBroken)), fails: errBroken},
		{name: "read fails at the end", faulty: file("x", "gamma", readFails(5, errBroken)), fails: errBroken},
		{name: "read fails behind the prefix", faulty: file("x", "gamma", readFails(3, errBroken)), opts: Options{ReadSize: 2}, got: "ga"},
		{name: "part at hand", faulty: file("x", "gamma", atHand(2)), got: "gamma"},
		{name: "all at hand, not known to be all", faulty: file("x", "gamma", atHand(5)), got: "gamma"},
		{name: "part of a long one at hand", faulty: file("x", long, atHand(777)), got: long},
		{name: "a long one at hand", faulty: file("x", long, atHand(len(long))), got: long},
		{name: "all at hand", faulty: file("x", "gamma", atHand(5), func(o *object) { o.handAll = true }), got: "gamma"},

		{name: "size 0 but content", faulty: file("x", long, sized(0)), got: long},
		{name: "size smaller than content", faulty: file("x", long, sized(firstBuffer+5)), got: long},
		{name: "size larger than content", faulty: file("x", "gamma", sized(8<<20)), got: "gamma"},
		{name: "size larger than content, long", faulty: file("x", long, sized(8<<20)), got: long},
		{name: "size beyond the limit, told before the memory is taken", faulty: file("x", "gamma", sized(1<<50)), fails: ErrTooLarge},
		{name: "at the limit", faulty: file("x", "gamma"), opts: Options{MaxFileSize: 6}, got: "gamma"},
		{name: "above the limit", faulty: file("x", "gamma+c"), opts: Options{MaxFileSize: 6}, fails: ErrTooLarge},
		{name: "above the limit by growth", faulty: file("x", "gamma+c", sized(3)), opts: Options{MaxFileSize: 6}, fails: ErrTooLarge},
		{name: "above the limit by growth, all at hand", faulty: file("x", "gamma+c", sized(3), atHand(7)), opts: Options{MaxFileSize: 6}, fails: ErrTooLarge},
		{name: "above a large limit by growth", faulty: file("x", long, sized(3)), opts: Options{MaxFileSize: firstBuffer + 10}, fails: ErrTooLarge},
	}
	for i, err := range scarceErrors {
		tests = append(tests,
			test{name: fmt.Sprint("few descriptors for a file ", i), faulty: file("x", "gamma", opening(err, err, err, err)), got: "gamma"},
			test{name: fmt.Sprint("few descriptors for a directory ", i), faulty: dir(opening(err, err, err, err)), extra: map[string]string{"/x/in": "inside"}},
			test{name: fmt.Sprint("few descriptors, then another error ", i), faulty: file("x", "g", opening(err, err, fs.ErrPermission)), fails: fs.ErrPermission},
			test{name: fmt.Sprint("never a descriptor for a file ", i), faulty: file("x", "g", opening(slices.Repeat([]error{err}, 5000)...)), fails: err},
			test{name: fmt.Sprint("never a descriptor for a directory ", i), faulty: dir(opening(slices.Repeat([]error{err}, 5000)...)), fails: err})
	}
	for _, err := range leasedErrors {
		few := scarceErrors[0]
		tests = append(tests,
			test{name: "leased for a while", faulty: file("x", "gamma", opening(err, err, err, err, err)), got: "gamma"},
			test{name: "leased for ever", faulty: file("x", "g", opening(slices.Repeat([]error{err}, 5000)...)), fails: err},
			test{name: "leased, then few descriptors", faulty: file("x", "gamma", opening(err, err, few, few)), got: "gamma"},
			test{name: "few descriptors, then leased", faulty: file("x", "gamma", opening(few, few, few, err, err)), got: "gamma"})
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tree := func() *object {
				x := *tt.faulty
				return folder("", file("a", mine["/a"]), &x, folder("d", file("b", mine["/d/b"]), file("c", mine["/d/c"])))
			}
			everyWorld(t, tree, func(t *testing.T, w *world, workers int) {
				opts := tt.opts
				opts.Workers = workers
				out := w.process(t.Context(), opts, nil)
				require.NoError(t, out.err)
				require.Empty(t, w.wrong)
				require.Zero(t, w.open, "handles left open")
				requireLedger(t, out.report)

				got := map[string]string{}
				for rel, data := range out.got {
					got["/"+rel] = data
				}
				want := maps.Clone(mine)
				if tt.opts.ReadSize != 0 {
					for rel, data := range want {
						want[rel] = data[:min(len(data), max(0, tt.opts.ReadSize))]
					}
				}
				maps.Copy(want, tt.extra)
				if tt.got != "" {
					want["/x"] = tt.got
				}
				require.Equal(t, want, got)
				if tt.fails != nil {
					require.ErrorIs(t, out.failed["/x"], tt.fails)
				}
				failed := int64(0)
				if tt.fails != nil {
					failed = 1
				}
				require.Equal(t, failed, out.report.Failed, "%v", out.failed)
				if tt.skip != "" {
					require.EqualValues(t, 1, out.report.Skipped[tt.skip])
				}
			})
		})
	}
}

// forest is a tree with more directories than may stay open.
func forest() *object {
	root := folder("", file("top", "top"))
	for i := range 9 {
		d := folder(fmt.Sprint("d", i))
		for j := range 4 {
			sub := folder(fmt.Sprint("s", j))
			for k := range 3 {
				sub.kids = append(sub.kids, file(fmt.Sprint("f", k), fmt.Sprint("content of ", i, j, k)))
			}
			d.kids = append(d.kids, file(fmt.Sprint("f", j), fmt.Sprint("content of ", i, j)), sub)
		}
		root.kids = append(root.kids, d)
	}
	at := root
	for i := range 40 {
		// What waits beside the way down keeps each level needed, also if another worker goes into some of it.
		next := folder(fmt.Sprint("deep", i), file("f", fmt.Sprint("depth ", i)))
		for j := range max(1, 3-i/10) {
			next.kids = append(next.kids, folder(fmt.Sprint("beside", j), file("g", fmt.Sprint("beside ", i, j))))
		}
		at.kids = append(at.kids, next)
		at = next
	}
	return root
}

func TestFaultsOfEveryType(t *testing.T) {
	tree := func() *object {
		root := forest()
		var hide func(o *object)
		hide = func(o *object) {
			for _, k := range o.kids {
				k.listed = typeUnknown
				hide(k)
			}
		}
		hide(root)
		return root
	}
	want := (&world{root: forest()}).contents()
	everyWorld(t, tree, func(t *testing.T, w *world, workers int) {
		out := w.process(t.Context(), Options{Workers: workers}, nil)
		require.NoError(t, out.err)
		require.Equal(t, want, out.got)
		require.Empty(t, w.wrong)
		require.Zero(t, w.open)
		requireLedger(t, out.report)
	})
}

// What a listing gave before it failed is processed.
func TestFaultsListingFailsHalfWay(t *testing.T) {
	var kids []*object
	for i := range 10 {
		kids = append(kids, file(fmt.Sprint("f", i), fmt.Sprint(i)), folder(fmt.Sprint("d", i), file("in", "in")))
	}
	for at := range 4 {
		tree := func() *object {
			return folder("", file("a", "alpha"), folder("x", kids...).with(listFails(at, errBroken)))
		}
		inBubble(t, func(t *testing.T) {
			w := &world{root: tree(), perList: 4}
			out := w.process(t.Context(), Options{Workers: 3}, nil)
			require.NoError(t, out.err)
			w.requireSound(t, out)
			require.Len(t, out.got, 1+4*at+2, "the files of the lists before, and of half of the one that failed")
			require.ErrorIs(t, out.failed["/x"], errBroken)
			require.EqualValues(t, 1, out.report.Failed)
			require.EqualValues(t, 1+2*at+1, out.report.Directories, "x itself was not listed to its end")
		})
	}
}

func TestFaultsFewDescriptors(t *testing.T) {
	want := (&world{root: forest()}).contents()
	fn := map[string]func(*File) error{
		"":     nil,
		"stat": func(f *File) error { _, err := f.Stat(); return err },
		"open": func(f *File) error {
			if _, err := f.Open(); !errors.Is(err, errors.ErrUnsupported) {
				return err
			}
			return nil
		},
		"slow": func(*File) error { time.Sleep(3 * time.Millisecond); return nil },
	}
	// The least is three: root, a directory, and what is opened in it.
	for limit := 3; limit <= 8; limit++ {
		for _, workers := range []int{1, 2, 3, 8, 16} {
			for name, fn := range fn {
				t.Run(fmt.Sprintf("limit=%d/workers=%d/%s", limit, workers, name), func(t *testing.T) {
					inBubble(t, func(t *testing.T) {
						w := &world{root: forest(), limit: limit, scarce: scarceErrors[limit%len(scarceErrors)]}
						start := time.Now()
						out := w.process(t.Context(), Options{Workers: workers}, fn)
						require.NoError(t, out.err)
						require.Empty(t, out.failed)
						w.requireSound(t, out)
						require.Equal(t, want, out.got)
						require.Equal(t, limit, w.most, "this tests nothing if the limit is never reached")
						require.Less(t, time.Since(start), descriptorPatience)
					})
				})
			}
		}
	}
}

func TestFaultsFewDescriptorsForThreeRuns(t *testing.T) {
	want := (&world{root: forest()}).contents()
	// The least is five: three roots, a directory, and what is opened in it.
	for limit := 5; limit <= 8; limit++ {
		for _, workers := range []int{1, 2, 5, 16} {
			t.Run(fmt.Sprintf("limit=%d/workers=%d", limit, workers), func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					w := &world{root: forest(), limit: limit, scarce: scarceErrors[0]}
					var outs [3]outcome
					var wg sync.WaitGroup
					for i := range outs {
						wg.Go(func() {
							outs[i] = w.process(t.Context(), Options{Workers: workers}, func(*File) error {
								time.Sleep(time.Millisecond) // so that the runs get in each other's way
								return nil
							})
						})
					}
					wg.Wait()
					for _, out := range outs {
						require.NoError(t, out.err)
						require.Empty(t, out.failed)
						w.requireSound(t, out)
						require.Equal(t, want, out.got)
					}
				})
			})
		}
	}
}

// Who has all others wait for a descriptor does not itself wait for the loop that takes results, which may be among them.
func TestFaultsScarceRunWaitsForNoLoop(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const files = 3 * mailboxSize // more than the loop's mailbox holds, and then a directory, of which listing alone tells
		big := folder("big")
		for i := range files {
			big.kids = append(big.kids, file(fmt.Sprint(i), ""))
		}
		big.kids = append(big.kids, folder("end"))
		waits := folder("waits").with(opening(slices.Repeat([]error{scarceErrors[0]}, 100)...))
		w := &world{root: folder("", big, waits), eager: true}
		w.during = func(what, name string) {
			if what == "openDir" && strings.HasPrefix(name, "big") {
				time.Sleep(100 * time.Millisecond) // until a worker has come to wait
			}
		}
		inner := &world{root: folder("", file("a", "alpha", opening(scarceErrors[0], scarceErrors[0])))}
		n := 0
		for _, err := range Walk(t.Context(), "root", Options{Workers: 2, openRoot: w.openRoot}) {
			require.NoError(t, err)
			if n++; n == 1 {
				time.Sleep(time.Second) // until the mailbox is full
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				out := inner.process(ctx, Options{Workers: 1}, nil)
				cancel()
				require.NoError(t, out.err)
			}
		}
		require.Equal(t, files+3, n)
		require.Empty(t, scarce)
	})
}

// Nor does it wait for OnError, which may run something that waits for a descriptor too.
func TestFaultsScarceRunWaitsForNoOnError(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		waits := file("waits", "", opening(slices.Repeat([]error{scarceErrors[0]}, 100)...))
		w := &world{root: folder("", waits, folder("part-way", file("slow", ""), file("more", "")).with(listFails(1, errBroken))), perList: 1}
		inner := &world{root: folder("", file("a", "alpha", opening(scarceErrors[0], scarceErrors[0])))}
		told := 0
		opts := Options{Workers: 2, OnError: func(err error) error {
			require.ErrorIs(t, err, errBroken)
			told++
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			return inner.process(ctx, Options{Workers: 1}, nil).err
		}}
		out := w.process(t.Context(), opts, func(f *File) error {
			if f.Name() == "slow" {
				time.Sleep(time.Second) // who waits for a descriptor lists what is left of the directory
			}
			return nil
		})
		require.NoError(t, out.err)
		require.Equal(t, 1, told)
		require.EqualValues(t, 1, out.report.Failed)
		w.requireSound(t, out)
		require.Empty(t, scarce)
	})
}

// busy is a directory in which every other opening of a subdirectory finds no descriptor.
type busy struct {
	directory
	opens *atomic.Int32
}

func (b busy) openDir(name string) (directory, error) {
	if b.opens.Add(1)%2 == 1 {
		return nil, &sysError{"openat", scarceErrors[0]}
	}
	return b.directory.openDir(name)
}

// A directory that a link leads to is looked up without a descriptor that there may not be.
func TestFaultsFewDescriptorsForLinks(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "t", ".hidden", "d"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "t", ".hidden", "d", "f"), nil, 0o644))
	if err := os.Symlink(filepath.Join("t", ".hidden", "d"), filepath.Join(dir, "l")); err != nil {
		t.Skipf("nothing to test: this system, or Windows without the privilege for it, makes no symbolic links: %v", err)
	}
	var opens atomic.Int32
	opts := Options{Symlinks: SymlinksFollow, MaxDepth: 2, Stat: true, openRoot: func(root string) (directory, error) {
		d, err := openRoot(root)
		return busy{d, &opens}, err
	}}
	var got []string
	for e, err := range Walk(t.Context(), dir, opts) {
		require.NoError(t, err)
		if e.Rel() == "l" {
			s, _ := e.Stat()
			require.True(t, s.Mode.IsDir())
		}
		got = append(got, e.Rel())
	}
	slices.Sort(got)
	require.Equal(t, []string{"l", "l/f", "t", "t/.hidden"}, got)
	require.Greater(t, opens.Load(), int32(5))
}

// What a try has opened on its way down is there for the next one: n is less than there are levels.
func TestFaultsEveryNthOpen(t *testing.T) {
	want := (&world{root: forest()}).contents()
	for _, nth := range []int{2, 3, 4, 5, 7} {
		for _, workers := range []int{1, 4} {
			inBubble(t, func(t *testing.T) {
				w := &world{root: forest(), nth: nth, scarce: scarceErrors[0]}
				out := w.process(t.Context(), Options{Workers: workers}, nil)
				require.NoError(t, out.err)
				require.Empty(t, out.failed)
				w.requireSound(t, out)
				require.Equal(t, want, out.got)
			})
		}
	}
}

// A directory is closed when all that is in it has been listed and visited, and not only when too many are open.
func TestFaultsDirectoriesAreClosedWhenDone(t *testing.T) {
	root := folder("")
	for i := range 20 {
		root.kids = append(root.kids, folder(fmt.Sprint("d", i), file("f", "f"), folder("sub", file("g", "g"), folder("empty"))))
	}
	inBubble(t, func(t *testing.T) {
		w := &world{root: root}
		out := w.process(t.Context(), Options{Workers: 1}, nil)
		w.requireSound(t, out)
		require.Len(t, out.got, 40)
		require.LessOrEqual(t, w.most, 5, "root, one directory a level, and a file")
	})
}

// While descriptors are scarce no directory stays open for later: what is closed for one worker would be taken by the
// next one that goes through many directories.
func TestFaultsScarceRunKeepsNothingOpen(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		root := forest()
		root.kids = append([]*object{file("x", "x", opening(slices.Repeat([]error{scarceErrors[0]}, 20)...))}, root.kids...)
		w := &world{root: root, perList: 100}
		most := 0
		waiting := func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return len(root.kids[0].openErr) < 18 && len(root.kids[0].openErr) > 0
		}
		out := w.process(t.Context(), Options{Workers: 2}, func(*File) error {
			time.Sleep(time.Millisecond)
			if waiting() {
				w.mu.Lock()
				most = max(most, w.open)
				w.mu.Unlock()
			}
			return nil
		})
		require.NoError(t, out.err)
		w.requireSound(t, out)
		require.Positive(t, most)
		require.LessOrEqual(t, most, 4, "root, the directory of the other worker, and what is on the way to it")
	})
}

// Descriptors that never come are told after patience, and the next operation has its own.
func TestFaultsPatience(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for i := range 3 {
			never := opening(slices.Repeat([]error{scarceErrors[0]}, 10000)...)
			w := &world{root: folder("", file("a", "alpha"), file("x", "x", never), folder("y").with(never), file("z", "z", never))}
			start := time.Now()
			out := w.process(t.Context(), Options{Workers: i + 1}, nil)
			took := time.Since(start)
			require.NoError(t, out.err)
			w.requireSound(t, out)
			require.Equal(t, map[string]string{"a": "alpha"}, out.got)
			require.Len(t, out.failed, 3)
			for p, err := range out.failed {
				require.ErrorIs(t, err, scarceErrors[0], p)
			}
			require.GreaterOrEqual(t, took, 3*descriptorPatience)
			require.Less(t, took, 3*descriptorPatience+time.Second)
		}
	})
}

func TestFaultsRootWithoutDescriptors(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := &world{root: folder("", file("a", "alpha")).with(opening(slices.Repeat([]error{scarceErrors[0]}, 9)...))}
		out := w.process(t.Context(), Options{}, nil)
		require.NoError(t, out.err)
		require.Equal(t, map[string]string{"a": "alpha"}, out.got)

		w.root.openErr = slices.Repeat([]error{scarceErrors[0]}, 10000)
		out = w.process(t.Context(), Options{}, nil)
		require.ErrorIs(t, out.err, scarceErrors[0])
		w.requireSound(t, out)

		w.root.openErr = []error{fs.ErrPermission}
		out = w.process(t.Context(), Options{}, nil)
		require.ErrorIs(t, out.err, fs.ErrPermission)
		w.requireSound(t, out)
	})
}

// A run that waits for a descriptor or a lease ends when it is cancelled, root's open too.
func TestFaultsCancelWhileWaiting(t *testing.T) {
	for _, err := range append(slices.Clone(scarceErrors), leasedErrors...) {
		for _, what := range []string{"root", "file", "directory", "in fn"} {
			t.Run(what, func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					never := opening(slices.Repeat([]error{err}, 10000)...)
					w := &world{root: folder("", file("a", "alpha"))}
					var fn func(f *File) error
					switch what {
					case "root":
						w.root.with(never)
					case "file":
						w.root.kids = append(w.root.kids, file("x", "x", never), file("y", "y", never))
					case "directory":
						w.root.kids = append(w.root.kids, folder("x").with(never), folder("y").with(never))
					case "in fn":
						fn = func(f *File) error {
							w.find("a").openErr = slices.Repeat([]error{err}, 10000)
							_, err := f.Open()
							return err
						}
					}
					ctx, cancel := context.WithCancelCause(t.Context())
					time.AfterFunc(time.Second, func() { cancel(errBroken) })
					start := time.Now()
					out := w.process(ctx, Options{Workers: 2}, fn)
					require.ErrorIs(t, out.err, errBroken)
					require.Equal(t, time.Second, time.Since(start))
					if what != "in fn" { // where the failure is fn's
						require.Empty(t, out.failed, "what the end of the run has overtaken is no failure")
					}
					w.requireSound(t, out)
				})
			})
		}
	}
}

// A read that has nothing yet is waited for, but not for ever, and no longer than the run goes on.
func TestFaultsReadThatWaits(t *testing.T) {
	stalling := func(n int) func(*object) { return func(o *object) { o.stalls = n } }
	for _, opts := range []Options{{}, {SkipBinary: true}, {ReadSize: 10}, {Stat: true}} {
		inBubble(t, func(t *testing.T) {
			w := &world{root: folder("", file("a", "alpha"), file("late", "late", stalling(50)), file("never", "x", stalling(1<<30)))}
			opts.Workers = 3
			start := time.Now()
			out := w.process(t.Context(), opts, nil)
			require.Equal(t, readPatience, time.Since(start))
			require.Equal(t, map[string]string{"a": "alpha", "late": "late"}, out.got)
			require.Len(t, out.failed, 1)
			require.ErrorIs(t, out.failed["/never"], os.ErrDeadlineExceeded)
			w.requireSound(t, out)

			w.find("never").stalls = 1 << 30
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(readPatience/2, func() { cancel(errBroken) })
			start = time.Now()
			out = w.process(ctx, opts, nil)
			require.ErrorIs(t, out.err, errBroken)
			require.LessOrEqual(t, time.Since(start), readPatience/2+waitSlice)
			w.requireSound(t, out)
		})
	}
}

// A run that is cancelled while it takes the entries of a directory looks up no more of them.
func TestFaultsCancelWhileListing(t *testing.T) {
	for name, opts := range map[string]Options{"": {}, "ordered": {Ordered: true}, "ignore files": {IgnoreFiles: []string{"none"}}} {
		for _, kind := range []string{"directories", "untyped"} {
			inBubble(t, func(t *testing.T) {
				w := &world{root: folder(""), perList: 100}
				for i := range 100 {
					if kind == "untyped" {
						w.root.kids = append(w.root.kids, file(fmt.Sprint(i), "", unknown))
					} else {
						w.root.kids = append(w.root.kids, folder(fmt.Sprint(i)))
					}
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				stats := 0
				w.during = func(call, _ string) {
					if call == "stat" {
						if stats++; stats == 3 {
							cancel(errBroken)
						}
					}
				}
				var report Report
				opts.Stat, opts.Workers, opts.openRoot, opts.Report = true, 1, w.openRoot, &report
				for _, err := range Walk(ctx, "root", opts) {
					if err != nil {
						require.ErrorIs(t, err, errBroken)
					}
				}
				require.LessOrEqual(t, stats, 2*3, "%s %s: those that were taken may be visited", name, kind)
				if name != "" {
					require.Zero(t, report.Found, "%s %s: held entries are not taken any more", name, kind)
				}
				requireLedger(t, report)
				require.Zero(t, w.open)
			})
		}
	}
}

// What an ignore file leaves out is not told of because reading that file has come to the end of the run.
func TestFaultsCancelInAnIgnoreFile(t *testing.T) {
	for _, what := range []string{"open", "cached", "fstat", "read", "close"} {
		inBubble(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			w := &world{root: folder("", file(".ignore", "secret*", chunks(1)), file("secret", ""), folder("secrets", file("x", "")))}
			reached := false
			w.during = func(call, name string) {
				if call == what && strings.HasPrefix(name, ".ignore") {
					reached = true
					cancel(errBroken)
				}
			}
			var report Report
			opts := Options{IgnoreFiles: []string{".ignore"}, openRoot: w.openRoot, Report: &report}
			for e, err := range Walk(ctx, "root", opts) {
				if err != nil {
					require.ErrorIs(t, err, errBroken)
					continue
				}
				require.Equal(t, ".ignore", e.Rel(), what)
			}
			require.True(t, reached, what)
			requireLedger(t, report)
			require.Zero(t, w.open)
		})
	}
}

// TestFaultsPanicWhileOthersWait: a worker that waits for a descriptor does not delay the panic of another.
func TestFaultsPanicWhileOthersWait(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		never := opening(slices.Repeat([]error{scarceErrors[0]}, 10000)...)
		w := &world{root: folder("", file("a", "alpha"), file("x", "x", never), file("y", "y", never))}
		start := time.Now()
		require.Panics(t, func() {
			w.process(t.Context(), Options{Workers: 3}, func(f *File) error {
				time.Sleep(time.Second)
				panic("the caller's own mistake")
			})
		})
		require.Equal(t, time.Second, time.Since(start))
	})
}

// small is a tree for tests that interfere with each step of a run.
func small() *object {
	return folder("",
		file("a", "alpha"),
		folder("d", file("b", "beta", chunks(1)), folder("e", file("c", "gamma", atHand(2)), file("u", "upsilon", unknown))),
		file("long", strings.Repeat("long ", firstBuffer/4)),
		file("x", "x", vanished),
		folder("gone").with(vanished),
		file("few", "few", opening(scarceErrors[0], scarceErrors[0])),
		folder("empty"),
	)
}

// everyCall interferes with each call of the backend in turn, and with those that fn makes through f.Stat. Test gets
// the number of the call and what stops at it; it returns false when the run came to its end before.
func everyCall(t *testing.T, test func(t *testing.T, w *world, opts Options, k int) (reached bool)) {
	for _, workers := range []int{1, 3} {
		for _, opts := range []Options{{}, {Stat: true, ReadSize: 3}} {
			t.Run(fmt.Sprintf("workers=%d/ReadSize=%d", workers, opts.ReadSize), func(t *testing.T) {
				opts.Workers = workers
				for k := 0; ; k++ {
					reached := false
					inBubble(t, func(t *testing.T) { reached = test(t, &world{root: small()}, opts, k) })
					if !reached {
						require.Greater(t, k, 20, "this tests nothing if the run makes few calls")
						return
					}
				}
			})
		}
	}
}

// requireHonest is requireSound for runs that may have read prefixes.
func (w *world) requireHonest(t *testing.T, out outcome, opts Options) {
	t.Helper()
	if opts.ReadSize > 0 {
		whole := w.contents()
		for rel, data := range out.got {
			require.Equal(t, whole[rel][:min(opts.ReadSize, len(whole[rel]))], data, rel)
		}
		out.got = nil
	}
	w.requireSound(t, out)
}

func TestFaultsCancelAtEachCall(t *testing.T) {
	everyCall(t, func(t *testing.T, w *world, opts Options, k int) bool {
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		reached := false
		w.onCall = func(i int) {
			if i == k {
				reached = true
				cancel(errBroken)
			}
		}
		out := w.process(ctx, opts, nil)
		w.requireHonest(t, out, opts)
		if len(out.got) < 6 {
			require.ErrorIs(t, out.err, errBroken)
		}
		return reached
	})
}

func TestFaultsStreamLeftAtEachResult(t *testing.T) {
	for _, workers := range []int{1, 3} {
		for k := range 7 {
			inBubble(t, func(t *testing.T) {
				w := &world{root: small()}
				var out outcome
				opts := Options{Workers: workers, openRoot: w.openRoot, Report: &out.report}
				n := 0
				for range Stream(t.Context(), "root", opts, func(f *File) (string, error) { return f.Rel(), nil }) {
					if n == k {
						break
					}
					n++
				}
				w.requireSound(t, out)

				n = 0
				opts.Report = &out.report
				for range Walk(t.Context(), "root", opts) {
					if n == k {
						break
					}
					n++
				}
				w.requireSound(t, out)
			})
		}
	}
}

func TestFaultsStopAtEachFailure(t *testing.T) {
	everyCall(t, func(t *testing.T, w *world, opts Options, k int) bool {
		n := 0
		opts.OnError = func(error) error {
			n++
			if n > k%3 {
				return errBroken
			}
			return nil
		}
		out := w.process(t.Context(), opts, func(f *File) error {
			if f.Name() == "b" {
				return fs.ErrInvalid
			}
			return nil
		})
		require.ErrorIs(t, out.err, errBroken)
		w.requireHonest(t, out, opts)
		return k < 21
	})
}

func TestFaultsSkipAllAtEachFile(t *testing.T) {
	for _, workers := range []int{1, 3} {
		for k := range 6 {
			inBubble(t, func(t *testing.T) {
				w := &world{root: small()}
				var mu sync.Mutex
				n := 0
				out := w.process(t.Context(), Options{Workers: workers}, func(*File) error {
					mu.Lock()
					defer mu.Unlock()
					n++
					if n == k+1 {
						return fs.SkipAll
					}
					return nil
				})
				require.NoError(t, out.err)
				w.requireSound(t, out)
				require.EqualValues(t, 1, out.report.Skipped[SkippedByFunc])
			})
		}
	}
}

// The file whose fn did not return, one way or the other, is not missing from the ledger.
func TestFaultsMishapAtEachFile(t *testing.T) {
	for name, mishap := range map[string]func(){"panic": func() { panic(errBroken) }, "Goexit": runtime.Goexit} {
		for _, sel := range []bool{false, true} {
			for _, workers := range []int{1, 3} {
				for k := range 6 {
					t.Run(fmt.Sprintf("%s/select=%v/workers=%d/%d", name, sel, workers, k), func(t *testing.T) {
						inBubble(t, func(t *testing.T) {
							w := &world{root: small()}
							var mu sync.Mutex
							n := 0
							act := func(*File) error {
								mu.Lock()
								n++
								mine := n == k+1
								mu.Unlock()
								if mine {
									mishap()
								}
								return nil
							}
							var out outcome
							opts := Options{Workers: workers, openRoot: w.openRoot, Report: &out.report}
							if sel {
								selected := act
								opts.Select = func(f *File) bool { return selected(f) == nil }
								act = func(*File) error { return nil }
							}
							var caught any
							returned := false
							done := make(chan struct{})
							go func() {
								defer close(done)
								defer func() { caught = recover() }()
								_, _ = Process(t.Context(), "root", opts, func(f *File) (int, error) { return 0, act(f) })
								returned = true
							}()
							<-done
							require.False(t, returned)
							if name == "panic" {
								err, _ := caught.(error)
								require.ErrorIs(t, err, errBroken)
							} else {
								require.Nil(t, caught)
							}
							w.requireSound(t, out)
						})
					})
				}
			}
		}
	}
}

// A backend is code of others with Options.FS, and may panic too.
func TestFaultsPanicAtEachCall(t *testing.T) {
	everyCall(t, func(t *testing.T, w *world, opts Options, k int) bool {
		reached := false
		w.onCall = func(i int) {
			if i == k {
				reached = true
				panic("in the backend")
			}
		}
		func() {
			defer func() {
				if v := recover(); v != nil {
					require.Contains(t, fmt.Sprint(v), "in the backend")
				}
			}()
			w.process(t.Context(), opts, nil)
		}()
		return reached // neither a hang nor a goroutine left
	})
}

// Where no directory can be closed without a panic each is still told to, and the Report is filled in.
func TestFaultsPanicOfEveryClose(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := &world{root: folder("root", folder("d", folder("later"), folder("e", file("f", "f")))), eager: true}
		closed := map[string]bool{}
		w.during = func(call, name string) {
			if call == "close" && name != "f" {
				closed[name] = true
				panic("in the backend")
			}
		}
		var report Report
		require.Panics(t, func() {
			opts := Options{Workers: 1, openRoot: w.openRoot, Report: &report}
			_, _ = Process(t.Context(), "root", opts, func(*File) (int, error) { return 0, fs.SkipAll })
		})
		require.Equal(t, map[string]bool{"root": true, "d": true, "e": true}, closed)
		require.EqualValues(t, 1, report.Found)
		requireLedger(t, report)
	})
}

// A directory that has just been opened is closed also where the close of another one, put aside meanwhile, panics.
func TestFaultsPanicOfACloseWhileAnotherIsOpened(t *testing.T) {
	for k, reached := 0, true; reached; k++ {
		inBubble(t, func(t *testing.T) {
			tree := folder("d")
			for range 8 {
				tree = folder("d", folder("e", file("f", "f")), tree, file("g", "g"))
			}
			tree.name = ""
			w, i := &world{root: tree, limit: 5, scarce: scarceErrors[0]}, 0
			w.during = func(call, name string) {
				if call == "close" && (name == "d" || name == "e") {
					if i++; i == k+1 { // closeAll tries again
						panic("in the backend")
					}
				}
			}
			func() {
				defer func() { reached = recover() != nil }()
				opts := Options{Workers: 1, openRoot: w.openRoot}
				_, _ = Process(t.Context(), "root", opts, func(*File) (int, error) { return 0, nil })
			}()
			require.Zero(t, w.open, "handles left open")
		})
	}
}

// What was found when the backend panicked is accounted for, also where a directory's entries are held until all are listed.
func TestFaultsPanicLeavesABalancedLedger(t *testing.T) {
	for name, opts := range map[string]Options{
		"":             {},
		"ignore files": {IgnoreFiles: []string{".ignore"}},
		"ordered":      {Ordered: true},
		"both":         {Ordered: true, IgnoreFiles: []string{".ignore"}},
	} {
		t.Run(name, func(t *testing.T) {
			everyCall(t, func(t *testing.T, w *world, of Options, k int) bool {
				w.root.kids[1].kids = append(w.root.kids[1].kids, file(".ignore", "nothing"), file("untyped", "u", unknown))
				reached := false
				w.onCall = func(i int) {
					if i == k {
						reached = true
						panic("in the backend")
					}
				}
				var report Report
				opts.Workers, opts.Stat, opts.ReadSize = of.Workers, of.Stat, of.ReadSize
				opts.openRoot, opts.Report = w.openRoot, &report
				func() {
					defer func() { _ = recover() }()
					if of.Stat {
						for range Walk(t.Context(), "root", opts) {
						}
						return
					}
					for range Stream(t.Context(), "root", opts, func(*File) (int, error) { return 0, nil }) {
					}
				}()
				requireLedger(t, report)
				return reached
			})
		})
	}
}

// Where many directories have more to be done in them, one is closed for the time being as soon as another has been listed.
func TestFaultsPanicAtADirectoryThatIsPutAside(t *testing.T) {
	for _, opts := range []Options{{}, {Ordered: true}} {
		for k, reached := 0, true; reached; k++ {
			inBubble(t, func(t *testing.T) {
				tree := folder("a")
				for range 2 * fullBudget.open {
					tree = folder("a", folder("b", file("f", "f")), tree, file("f", "f"), file("g", "g"))
				}
				tree.name = ""
				w, i := &world{root: tree}, 0
				w.during = func(call, _ string) {
					if call == "identity" {
						if i++; i > k {
							panic("in the backend")
						}
					}
				}
				var report Report
				opts.Workers, opts.openRoot, opts.Report = 1, w.openRoot, &report
				func() {
					defer func() { reached = recover() != nil }()
					for range Stream(t.Context(), "root", opts, func(*File) (int, error) { return 0, nil }) {
					}
				}()
				require.True(t, reached || k > fullBudget.open, "this tests nothing if few directories are put aside")
				requireLedger(t, report)
			})
		}
	}
}

func TestFaultsPanicOfOnErrorAtEachFailure(t *testing.T) {
	tree := func() *object {
		return folder("",
			file("a", "a"), file("b", "b", vanished), file("c", "c"),
			folder("d", file("e", "e"), file("f", "f", unknown).with(func(o *object) { o.statErr = errBroken }), file("g", "g"), file("h", "h")),
			folder("i", file("j", "j"), file("k", "k"), file("l", "l")).with(listFails(0, errBroken)),
			folder("m").with(vanished), file("n", "n"), file("fn", "fn"))
	}
	for k := range 6 {
		everyWorld(t, tree, func(t *testing.T, w *world, workers int) {
			n := 0
			opts := Options{Workers: workers, OnError: func(error) error {
				if n++; n > k {
					panic("in OnError")
				}
				return nil
			}}
			var report Report
			opts.Report, opts.openRoot = &report, w.openRoot
			func() {
				defer func() { require.Equal(t, k < 5, recover() != nil) }()
				Process(t.Context(), "root", opts, func(f *File) (int, error) {
					if f.Name() == "fn" {
						return 0, errBroken
					}
					return 0, nil
				})
			}()
			require.Empty(t, w.wrong)
			require.Zero(t, w.open, "handles left open")
			requireLedger(t, report)
		})
	}
}

func TestFaultsReadsAreCappedAndStopped(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		huge := strings.Repeat("0123456789abcdef", 5<<16+1)
		w := &world{root: folder("", file("huge", huge))}
		out := w.process(t.Context(), Options{}, nil)
		w.requireSound(t, out)
		require.Len(t, out.got, 1)
		require.LessOrEqual(t, w.maxAsk, 1<<20, "bytes that one read asks for")

		ctx, cancel := context.WithCancel(t.Context())
		reads := 0
		w.find("huge").chunk = 1000
		w.calls = 0
		w.onCall = func(int) {
			if reads++; reads == 20 {
				cancel()
			}
		}
		out = w.process(ctx, Options{Workers: 1}, nil) // one, since reads has no lock
		require.ErrorIs(t, out.err, context.Canceled)
		w.requireSound(t, out)
		require.EqualValues(t, 1, out.report.Abandoned)
		require.LessOrEqual(t, reads, 24, "no read after the one that was going on: closes, and what came between")
	})
}

// A file that Select has looked at may change like any other.
func TestFaultsChangeAfterSelect(t *testing.T) {
	for _, opts := range []Options{{}, {ReadSize: 3}, {Stat: true}, {Stat: true, ReadSize: NoRead}} {
		inBubble(t, func(t *testing.T) {
			w := &world{root: folder("", file("a", "alpha"), file("x", "xi"))}
			w.find("x").chunk = 1
			opts.Workers = 1
			opts.Select = func(f *File) bool {
				s, err := f.Stat()
				require.NoError(t, err)
				if f.Name() == "x" {
					require.EqualValues(t, 2, s.Size)
					w.find("x").mode = fs.ModeNamedPipe
				}
				return true
			}
			out := w.process(t.Context(), opts, nil)
			require.Contains(t, out.got, "a")
			if opts.ReadSize != NoRead { // what is not opened is what Select has seen
				require.NotContains(t, out.got, "x")
				require.ErrorIs(t, out.failed["/x"], ErrChanged)
			}
			require.Zero(t, w.open)
			requireLedger(t, out.report)
		})
	}
}

// A directory that was closed for the time being and is another one when it is opened again is not read.
func TestFaultsDirectoryReplacedWhileClosed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		few := opening(scarceErrors[0], scarceErrors[0])
		w := &world{root: folder("", folder("d", file("a", "alpha"), file("x", "x", few), file("b", "beta")))}
		w.onCall = func(int) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if d := w.root.kids[0]; w.open == 1 && len(d.kids) == 3 && len(d.kids[1].openErr) == 0 {
				w.root.kids[0] = folder("d", file("a", "other"), file("x", "other"), file("b", "other"), file("c", "other"))
			}
		}
		out := w.process(t.Context(), Options{Workers: 1}, nil)
		require.NotContains(t, slices.Collect(maps.Values(out.got)), "other")
		require.Contains(t, out.got, "d/a")
		require.ErrorIs(t, out.failed["/d/b"], ErrChanged)
		require.Empty(t, w.wrong)
		require.Zero(t, w.open)
		requireLedger(t, out.report)
	})
}

func TestFaultsDepth(t *testing.T) {
	all := (&world{root: forest()}).contents()
	for _, depth := range []int{1, 2, 3, 30} {
		want := maps.Clone(all)
		maps.DeleteFunc(want, func(rel, _ string) bool { return strings.Count(rel, "/") >= depth })
		inBubble(t, func(t *testing.T) {
			w := &world{root: forest()}
			out := w.process(t.Context(), Options{MaxDepth: depth, Workers: 3}, nil)
			require.NoError(t, out.err)
			w.requireSound(t, out)
			require.Equal(t, want, out.got)
		})
	}
}

// A directory that vanishes after it has been listed is one failure of a Walk that wants its metadata.
func TestFaultsVanishedDirectoryOfAWalk(t *testing.T) {
	all := func(Entry) bool { return true }
	for _, opts := range []Options{{}, {Ordered: true}, {SelectDir: all}, {Ordered: true, SelectDir: all}} {
		inBubble(t, func(t *testing.T) {
			w := &world{root: folder("", folder("d", file("f", "")).with(vanished), folder("e", file("g", "")))}
			var report Report
			opts.Stat, opts.Report, opts.openRoot = true, &report, w.openRoot
			var failed []error
			seen := 0
			for _, err := range Walk(t.Context(), "root", opts) {
				if err != nil {
					failed = append(failed, err)
				} else {
					seen++
				}
			}
			require.Len(t, failed, 1)
			require.ErrorIs(t, failed[0], ErrChanged)
			require.Equal(t, 2, seen)
			require.EqualValues(t, 1, report.Failed)
			require.EqualValues(t, 2, report.Found)
			requireLedger(t, report)
			require.Zero(t, w.open)
		})
	}
}

// A wait for the descriptor that a directory's metadata takes, which the end of the run overtakes, is no failure.
func TestFaultsCancelWhileWalkWaits(t *testing.T) {
	was := descriptorBudget
	defer func() { descriptorBudget = was }()
	descriptorBudget = func() budget { return budget{0, 1, 0, 0} }
	inBubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		w := &world{root: folder("", folder("d", folder("sub", file("f", "x"))), folder("e")), scarce: syscall.EMFILE}
		var report Report
		opts := Options{Stat: true, Workers: 1, Report: &report, openRoot: w.openRoot, SelectDir: func(e Entry) bool {
			if e.Name() == "sub" {
				w.mu.Lock()
				w.limit = w.open
				w.mu.Unlock()
				time.AfterFunc(time.Second, func() { cancel(errBroken) })
			}
			return true
		}}
		var failed []error
		for _, err := range Walk(ctx, "root", opts) {
			if err != nil {
				failed = append(failed, err)
			}
		}
		require.Equal(t, []error{errBroken}, failed)
		require.Zero(t, report.Failed)
		requireLedger(t, report)
	})
}
