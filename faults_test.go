package fileproc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fileproc/fileproc/internal/backend"
	"github.com/fileproc/fileproc/internal/content"
	"github.com/fileproc/fileproc/internal/knobs"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/replace"
	"github.com/fileproc/fileproc/internal/sys"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

// An invalid name goes no further than its listing, whatever its type.
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
			told := map[string]int{}
			opts.OnError = func(err error) error {
				var e *fs.PathError
				require.ErrorAs(t, err, &e)
				require.ErrorIs(t, err, fs.ErrInvalid)
				require.Equal(t, filepath.Join("root", "d"), e.Path)
				told[e.Err.Error()]++
				return nil
			}
			out := w.process(t.Context(), opts, nil)
			require.NoError(t, out.err)
			require.Equal(t, map[string]string{"a": "alpha", "d/b": "beta", "d/z": "last"}, out.got)
			require.Len(t, told, len(names))
			for _, name := range names {
				require.Equal(t, 3, told[backend.BadName([]byte(name)).Error()], "%q", name)
			}
			require.EqualValues(t, 3*len(names), out.report.Failed)
			require.Empty(t, w.wrong)
			require.Zero(t, w.open, "handles left open")
			requireLedger(t, out.report)
		}
	})
}

func TestFaultsOfOneEntry(t *testing.T) {
	long := strings.Repeat("0123456789", content.FirstBuffer/5) // two first buffers
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
		{name: "removed while it is listed", faulty: dir(listFails(0, syscall.ENOENT)), fails: ErrChanged},
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
		{name: "size smaller than content", faulty: file("x", long, sized(content.FirstBuffer+5)), got: long},
		{name: "size larger than content", faulty: file("x", "gamma", sized(8<<20)), got: "gamma"},
		{name: "size larger than content, long", faulty: file("x", long, sized(8<<20)), got: long},
		{name: "the largest size, and its beginning", faulty: file("x", long, sized(math.MaxInt64)), opts: Options{ReadSize: len(long)}, got: long},
		{name: "the least size", faulty: file("x", long, sized(math.MinInt64)), opts: Options{MaxFileSize: NoLimit}, got: long},
		{name: "size beyond the limit, told before the memory is taken", faulty: file("x", "gamma", sized(1<<50)), fails: ErrTooLarge},
		{name: "at the limit", faulty: file("x", "gamma"), opts: Options{MaxFileSize: 6}, got: "gamma"},
		{name: "above the limit", faulty: file("x", "gamma+c"), opts: Options{MaxFileSize: 6}, fails: ErrTooLarge},
		{name: "above the limit by growth", faulty: file("x", "gamma+c", sized(3)), opts: Options{MaxFileSize: 6}, fails: ErrTooLarge},
		{name: "above the limit by growth, all at hand", faulty: file("x", "gamma+c", sized(3), atHand(7)), opts: Options{MaxFileSize: 6}, fails: ErrTooLarge},
		{name: "above a large limit by growth", faulty: file("x", long, sized(3)), opts: Options{MaxFileSize: content.FirstBuffer + 10}, fails: ErrTooLarge},
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

func TestFaultsOfEveryType(t *testing.T) {
	tree := func() *object {
		root := forest()
		var hide func(o *object)
		hide = func(o *object) {
			for _, k := range o.kids {
				k.listed = sys.TypeUnknown
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

// Files that are read later than the others of their batch come once, also while other workers are still at the batch.
func TestFaultsReadLaterBesideOthers(t *testing.T) {
	for _, workers := range []int{2, 5} {
		inBubble(t, func(t *testing.T) {
			w := &world{root: folder(""), perList: 10}
			w.during = func(call, _ string) {
				if call == "list" { // meanwhile others join in visiting a batch
					time.Sleep(10 * time.Millisecond)
				}
			}
			for i := range 20 {
				d := folder(fmt.Sprint("d", i))
				for k := range 30 {
					d.kids = append(d.kids, file(fmt.Sprint("f", k), fmt.Sprint("content ", i, " ", k)))
				}
				w.root.kids = append(w.root.kids, d)
			}
			opts := Options{Workers: workers, hooks: hooks{Unchanged: func(f *File) bool {
				time.Sleep(time.Duration(len(f.Rel())%5) * time.Millisecond)
				return false
			}}}
			out := w.process(t.Context(), opts, nil)
			require.NoError(t, out.err)
			w.requireSound(t, out)
			require.Len(t, out.got, 600)
		})
	}
}

// A large file's memory is let go when some small files have followed it, also if it has failed.
func TestFaultsOfALargeFile(t *testing.T) {
	long := strings.Repeat("long ", content.FirstBuffer)
	for _, opts := range []Options{{}, {SkipBinary: true}} {
		inBubble(t, func(t *testing.T) {
			w := &world{root: folder("", file("bad", long, readFails(2*content.FirstBuffer, errBroken)), file("a", ""), file("binary", long+"\x00", func(o *object) { o.content[9] = 0 }), file("b", "b"), file("long", long), file("c", ""))}
			for i := range 30 {
				w.root.kids = append(w.root.kids, file(fmt.Sprint("d", i), ""))
			}
			opts.Workers = 1
			out := w.process(t.Context(), opts, func(f *File) error {
				require.LessOrEqual(t, len(f.Data()), content.FirstBuffer+workerOf(f).reader.Held(), f.Name())
				if f.Name() == "d29" {
					require.Zero(t, workerOf(f).reader.Held())
				}
				if f.Name() == "b" {
					return errBroken
				}
				return nil
			})
			require.NoError(t, out.err)
			w.requireSound(t, out)
			require.EqualValues(t, 2, out.report.Failed)
			handed := 1 + len(long) // to fn, which has failed once
			if !opts.SkipBinary {
				handed += len(long) + 1
			}
			require.EqualValues(t, handed, out.report.Bytes)
		})
	}
}

// Each entry that a listing cannot name is a failure of its own, and no reason to end the listing.
func TestFaultsEntriesWithoutANameInOneListing(t *testing.T) {
	tree := func() *object {
		d := folder("d", file("a", "alpha"), file("b", "beta"))
		d.errs = []error{errBroken, fs.ErrPermission}
		return folder("", d)
	}
	everyWorld(t, tree, func(t *testing.T, w *world, workers int) {
		out := w.process(t.Context(), Options{Workers: workers}, nil)
		require.NoError(t, out.err)
		w.requireSound(t, out)
		require.Len(t, out.got, 2)
		require.EqualValues(t, 2, out.report.Failed)
	})
}

// Entries that a listing gave before it failed are processed.
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
			w := &world{root: tree(), perList: 4, single: true}
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

// A directory that workers list in parts, in the cold mode, is one directory: each entry comes once, whatever the number of entries,
// and it is listed if all parts are, or fails once.
func TestInvariant1DirectoryInParts(t *testing.T) {
	testtree.Set(t, &knobs.AlwaysCold, true)
	parts := 0
	for _, n := range []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 30, 100} {
		tree := func() *object {
			x := folder("x")
			for i := range n {
				x.kids = append(x.kids, file(fmt.Sprint("f", i), fmt.Sprint(i)))
				if i%7 == 3 {
					x.kids = append(x.kids, folder(fmt.Sprint("d", i), file("in", fmt.Sprint("in", i))))
				}
			}
			return folder("", x)
		}
		everyWorld(t, tree, func(t *testing.T, w *world, workers int) {
			out := w.process(t.Context(), Options{Workers: workers}, nil)
			require.NoError(t, out.err)
			w.requireSound(t, out)
			require.Equal(t, w.contents(), out.got)
			require.EqualValues(t, 2+(n+3)/7, out.report.Directories)
			require.Zero(t, out.report.Failed)
			parts += w.parts
			if workers == 1 {
				require.Zero(t, w.parts, "no other worker could list them")
			}
		})
	}
	require.NotZero(t, parts)
	for from := range 20 {
		lists := 0
		everyWorld(t, func() *object { return ofFiles(40) }, func(t *testing.T, w *world, workers int) {
			var mu sync.Mutex
			lists = 0
			w.fails = func(_ int, what string) error {
				mu.Lock()
				defer mu.Unlock()
				if what == "list" {
					lists++
				}
				if what == "list" && lists > from {
					return errBroken
				}
				return nil
			}
			out := w.process(t.Context(), Options{Workers: workers}, nil)
			require.NoError(t, out.err)
			w.requireSound(t, out)
			if lists > from {
				require.Equal(t, []int64{1, 0}, []int64{out.report.Failed, out.report.Directories}, "however many parts fail")
			}
		})
	}
}

// The parts of a directory whose own files alone are given are without its subdirectories, too.
func TestFilesOfOneDirectoryInParts(t *testing.T) {
	testtree.Set(t, &knobs.AlwaysCold, true)
	inBubble(t, func(t *testing.T) {
		x := folder("x")
		for i := range 100 {
			x.kids = append(x.kids, file(fmt.Sprint("f", i), ""), folder(fmt.Sprint("d", i), file("in", "")))
		}
		w := &world{root: folder("", x)}
		got, err := Process(t.Context(), "root", Options{Workers: 4, Files: slices.Values([]string{"x/."}), openRoot: w.openRoot}, relOf)
		require.NoError(t, err)
		require.Len(t, got, 100)
		require.NotZero(t, w.parts)
		require.Zero(t, w.open)
	})
}

// ofFiles is a directory of n files.
func ofFiles(n int) *object {
	root := folder("")
	for i := range n {
		root.kids = append(root.kids, file(fmt.Sprint("f", i), fmt.Sprint(i)))
	}
	return root
}

// Parts are listed where no filter, rule or order needs the whole listing first.
func TestWhatIsListedInParts(t *testing.T) {
	testtree.Set(t, &knobs.AlwaysCold, true)
	for name, c := range map[string]struct {
		opts  Options
		parts bool
	}{
		"all":         {Options{}, true},
		"metadata":    {Options{ReadSize: NoRead, Stat: true}, true},
		"ignore":      {Options{IgnoreFiles: []string{".ignore"}}, false},
		"marked":      {Options{SkipMarked: []string{"CACHEDIR.TAG"}}, false},
		"one worker":  {Options{Workers: 1}, false},
		"given names": {Options{Files: slices.Values([]string{"f0", "f1"})}, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := &world{root: ofFiles(100)}
				if c.opts.Workers == 0 {
					c.opts.Workers = 4
				}
				out := w.process(t.Context(), c.opts, nil)
				require.NoError(t, out.err)
				if require.Equal(t, c.parts, w.parts > 0); c.parts {
					require.Len(t, out.got, 100)
				}
				out.got = nil // those of metadata have no content
				w.requireSound(t, out)
			})
		})
	}
	inBubble(t, func(t *testing.T) {
		w := &world{root: ofFiles(100)}
		for _, err := range Stream(t.Context(), "root", Options{Workers: 4, Ordered: true, openRoot: w.openRoot}, func(f *File) (string, error) { return f.Rel(), nil }) {
			require.NoError(t, err)
		}
		require.Zero(t, w.parts, "in order")
		require.Zero(t, w.open)
	})
}

// A file that Select has looked at may change like any other.
// A name that a listing has twice, which only a broken file system gives, is two entries, whatever the options and the backend.
func TestFaultsListedTwice(t *testing.T) {
	want := map[string]int{"a": 2, "b": 1, "d": 2, "d/c": 2, "d/e": 4, "d/e/f": 4}
	tree := func() *object {
		a, e := file("a", "alpha"), folder("e", file("f", "phi"))
		d := folder("d", e, file("c", "gamma", unknown), e)
		return folder("", a, d, file("b", "beta"), a, d)
	}
	for _, opts := range []Options{{}, {Ordered: true}, {IgnoreFiles: []string{".ignore"}}, {SkipMarked: []string{"TAG"}, Ordered: true}, {Stat: true}, {ReadSize: NoRead, Stat: true},
		{hooks: hooks{Unchanged: halfOld}}} {
		everyWorld(t, tree, func(t *testing.T, w *world, workers int) {
			var report Report
			opts.Workers, opts.openRoot, opts.Report = workers, w.openRoot, &report
			got := map[string]int{}
			for rel, err := range Stream(t.Context(), "root", opts, relOf) {
				require.NoError(t, err)
				got[filepath.ToSlash(rel)]++
			}
			files := maps.Clone(want)
			delete(files, "d")
			delete(files, "d/e")
			require.Equal(t, files, got)
			requireLedger(t, report)
			require.EqualValues(t, 9, report.Found)

			got = map[string]int{}
			for e, err := range Walk(t.Context(), "root", opts) {
				require.NoError(t, err)
				got[filepath.ToSlash(e.Rel())]++
			}
			require.Equal(t, want, got)
			requireLedger(t, report)
			require.Empty(t, w.wrong)
			require.Zero(t, w.open)
		})
	}
}

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
			if opts.ReadSize != NoRead { // without an open, the file is as Select saw it
				require.NotContains(t, out.got, "x")
				require.ErrorIs(t, out.failed["/x"], ErrChanged)
			}
			require.Zero(t, w.open)
			requireLedger(t, out.report)
		})
	}
}

// A directory that was closed for a while and is another one when reopened is not read.
func TestFaultsDirectoryReplacedWhileClosed(t *testing.T) {
	testtree.NotInColdMode(t, "files are not in the order of the listing")
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
			w := &world{root: folder("", folder("d", file("f", "")).with(vanished), folder("e")), perList: 100}
			for i := range orderedMin + 2*orderedAhead { // which cannot all be begun until d is over
				w.root.kids[1].kids = append(w.root.kids[1].kids, file(fmt.Sprint(i), ""))
			}
			files := len(w.root.kids[1].kids)
			var report Report
			opts.Stat, opts.Workers, opts.Report, opts.openRoot = true, 1, &report, w.openRoot
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
			require.Equal(t, FailedDir, failed[0].(*Failure).Kind)
			require.Equal(t, 1+files, seen)
			require.EqualValues(t, 1, report.Failed)
			require.EqualValues(t, 1+files, report.Found)
			requireLedger(t, report)
			require.Zero(t, w.open)
		})
	}
}

// With AllTypes, a directory that cannot be opened is an entry and a failure.
func TestFaultsEntryThatCannotBeOpened(t *testing.T) {
	denied := fs.ErrPermission
	for _, opts := range []Options{{}, {Stat: true}, {Ordered: true}, {Ordered: true, Stat: true}} {
		for _, workers := range []int{1, 3} {
			inBubble(t, func(t *testing.T) {
				w := &world{root: folder("", folder("shut", file("x", "")).with(opening(denied, denied, denied)), file("z", "z"), folder("gone").with(vanished))}
				var report Report
				opts.AllTypes, opts.Workers, opts.Report, opts.openRoot = true, workers, &report, w.openRoot
				var got []string
				for rel, err := range Stream(t.Context(), "root", opts, func(f *File) (string, error) { return f.Type().String() + f.Rel(), nil }) {
					var failure *Failure
					if errors.As(err, &failure) {
						rel = fmt.Sprint(failure.Kind, " ", filepath.ToSlash(failure.Path), " ", errors.Is(err, denied))
					}
					got = append(got, rel)
				}
				want := []string{"d---------", "d---------gone", "directory root/gone false", "d---------shut", "directory root/shut true", "----------z"}
				if opts.Stat { // the look fails
					want = slices.Delete(want, 1, 2)
				}
				if !opts.Ordered {
					require.Equal(t, want[0], got[0])
					require.Less(t, slices.Index(got, want[len(want)-3]), slices.Index(got, want[len(want)-2]))
					slices.Sort(got)
					slices.Sort(want)
				}
				require.Equal(t, want, got)
				require.EqualValues(t, len(want), report.Found)
				require.EqualValues(t, 2, report.Failed)
				requireLedger(t, report)
				require.Zero(t, w.open)
			})
		}
	}
}

// What is no regular file fails if it is something else by the time of its visit.
func TestFaultsOfOtherTypes(t *testing.T) {
	for _, stat := range []bool{false, true} {
		inBubble(t, func(t *testing.T) {
			now := func(listed, mode fs.FileMode) func(*object) {
				return func(o *object) { o.listed, o.mode = listed, mode }
			}
			w := &world{root: folder("", file("link", "", now(fs.ModeSymlink, fs.ModeSymlink)), file("lost", "", now(fs.ModeSymlink, 0), vanished),
				file("pipe", "", now(fs.ModeNamedPipe, 0)), file("socket", "", now(fs.ModeSocket, fs.ModeSocket)))}
			out := w.process(t.Context(), Options{AllTypes: true, Stat: stat, Workers: 1}, nil)
			w.requireSound(t, out)
			require.NoError(t, out.err)
			require.ErrorIs(t, out.failed["/lost"], ErrChanged)
			require.Contains(t, out.got, "link")
			require.Contains(t, out.got, "socket")
			if stat {
				require.ErrorIs(t, out.failed["/pipe"], ErrChanged)
			} else {
				require.Contains(t, out.got, "pipe")
			}
		})
	}
}

// The k-th call of the backend fails, for every k: once, or like all after it. Each file that the options select comes as it is,
// or is a failure of its own or of a directory above it.
func TestFaultsOfEachCall(t *testing.T) {
	tree := func() *object {
		return folder("",
			file("a", "alpha"),
			folder("d", file("b", "beta", chunks(1)), folder("e", file("c", "gamma", atHand(2)), file("u", "upsilon", unknown)), folder("v", file("w", "w")),
				folder("left", file("out", "")), folder("other", file("out", "")).with(func(o *object) { o.device = 7 })),
			file("long", strings.Repeat("long ", content.FirstBuffer/4)),
			folder("empty"),
			folder("m", file(".ignore", "x"), file(".mark", ""), file("n", ""), file("o", "")),
			folder("i", file("f", "f"), file(".ignore", "x"), folder("x", file("out", ""))),
			file("bytes", "\x00"), file("link", "", typed(fs.ModeSymlink)), folder("p", file("pipe", "", typed(fs.ModeNamedPipe))),
		)
	}
	filters := Options{
		Workers: 1, Stat: true, OneFilesystem: true, IgnoreFiles: []string{".ignore"}, SkipMarked: []string{".mark"},
		SelectDir: func(e Entry) bool { return e.Name() != "left" },
	}
	content := Options{Workers: 2, SkipBinary: true, hooks: hooks{Unchanged: halfOld, OnBinary: func(*File) {}}}
	process := func(t *testing.T, w *world, opts Options) outcome {
		out := w.process(t.Context(), opts, nil)
		if out.err != nil {
			out.fail(out.err)
		}
		return out
	}
	files := func(t *testing.T, w *world, opts Options) outcome {
		opts.Files = slices.Values([]string{"a", "d/", "long", "empty/", "m/", "i/f", "i/.ignore", "i/x/", "bytes"})
		return process(t, w, opts)
	}
	for name, run := range map[string]func(*testing.T, *world, Options) outcome{"Process": process, "Stream": streamWorld, "Walk": walkWorld, "Files": files} {
		for _, opts := range []Options{{Workers: 1}, {Workers: 3, Stat: true}, filters, content, {Workers: 2, Stat: true, AllTypes: true}} {
			if name == "Walk" && opts.SkipBinary || name == "Files" && (opts.SelectDir != nil || opts.AllTypes) {
				continue // which have no effect there, or are refused
			}
			for _, waits := range slices.Concat(scarceErrors, leasedErrors, []error{nil}) { // after which an open waits
				for _, ever := range []bool{false, true} {
					reached := (opts.Workers == 1 || !ever) && (!ever || opts.SelectDir == nil)
					if knobs.AlwaysCold && !testtree.Cold { // the waits are those of every mode
						reached = !ever && waits == nil
					}
					for k := 0; reached; k++ {
						err := waits
						if err == nil {
							err = otherErrors[k%len(otherErrors)]
						}
						inBubble(t, func(t *testing.T) {
							w := &world{root: tree()}
							reached = callFails(t, name, run, w, opts, k, ever, err)
						})
					}
				}
			}
		}
	}
}

// callFails makes a run over w in which the k-th call fails, or each from it on, and reports whether there was such a call.
func callFails(t *testing.T, name string, run func(*testing.T, *world, Options) outcome, w *world, opts Options, k int, ever bool, err error) bool {
	calls := 0 // w.calls, once a run has ended
	w.onCall = func(int) { w.mu.Lock(); calls++; w.mu.Unlock() }
	failed := ""
	w.fails = func(i int, what string) error {
		if i == k {
			failed = what
		}
		if i == k || ever && i > k {
			return err
		}
		return nil
	}
	out := run(t, w, opts)
	for rel, data := range w.contents() {
		if got, ok := out.got[rel]; ok && got == "" && opts.hooks.Unchanged != nil && len(rel)%2 == 0 {
			out.got[rel] = data // halfOld was asked and it has not been read
		}
	}
	w.requireSound(t, out)
	require.Zero(t, out.report.Abandoned)
	for rel := range w.contents() {
		_, ok := out.got[rel]
		if isLeftOut(rel, opts) {
			require.False(t, ok && path.Dir(rel) != "i/x", rel) // unless its ignore file has failed
			continue
		}
		for at := "/" + rel; !ok && at != "/"; at = path.Dir(at) {
			ok = errors.Is(out.failed[at], err)
		}
		require.True(t, ok || errors.Is(out.failed[""], err), "%s, call %d fails with %v: %s is missing; the failures are %v", name, k, err, rel, out.failed)
	}
	if opens := failed == "open" || failed == "openDir"; !ever && opens && slices.Contains(slices.Concat(scarceErrors, leasedErrors), err) {
		require.Empty(t, out.failed, "%s, call %d fails once with %v", name, k, err)
	}
	return calls > k
}

// isLeftOut reports whether the options of a run in which calls fail leave out rel.
func isLeftOut(rel string, opts Options) bool {
	return !opts.AllTypes && (rel == "link" || rel == "p/pipe") || opts.SkipBinary && rel == "bytes" || opts.SelectDir != nil && (strings.HasPrefix(rel, "m/") || path.Base(rel) == "out")
}

func walkWorld(t *testing.T, w *world, opts Options) outcome {
	out := outcome{got: map[string]string{}, failed: map[string]error{}}
	whole := w.contents()
	w.trace(&out, &opts)
	for e, err := range Walk(t.Context(), "root", opts) {
		switch {
		case err != nil:
			out.fail(err)
		case !e.IsDir():
			out.saw(w, e.node)
			rel := filepath.ToSlash(e.Rel())
			out.got[rel] = whole[rel]
		}
	}
	return out
}

func streamWorld(t *testing.T, w *world, opts Options) outcome {
	out := outcome{got: map[string]string{}, failed: map[string]error{}}
	opts.Ordered = true
	w.trace(&out, &opts)
	for f, err := range Stream(t.Context(), "root", opts, func(f *File) ([2]string, error) {
		out.called(w, f)
		return [2]string{filepath.ToSlash(f.Rel()), string(f.Data())}, nil
	}) {
		if err != nil {
			out.fail(err)
			continue
		}
		out.got[f[0]] = f[1]
	}
	return out
}

// The same holds where links lead to files and directories some levels down: nothing stays open on the way to them.
func TestFaultsOfEachCallForLinks(t *testing.T) {
	dir := t.TempDir()
	require.True(t, testtree.Make(t, dir, "t/u/v/f=f", "t/u/g=g", "h=h"))
	for name, to := range map[string]string{"dir": "t/u/v", "file": "t/u/v/f", "t/up": "../h", "t/u/back": ".."} {
		testtree.Symlink(t, filepath.FromSlash(to), filepath.Join(dir, filepath.FromSlash(name)))
	}
	for _, opts := range []Options{{Symlinks: SymlinksFiles}, {Symlinks: SymlinksFollow, MaxDepth: 2}, {Symlinks: SymlinksFollow}} {
		whole := 0
		for _, err := range []error{nil, errBroken, scarceErrors[0]} {
			for k, reached := 0, true; reached; k++ {
				inBubble(t, func(t *testing.T) {
					w := &world{root: folder("")}
					w.fails = func(i int, what string) error {
						if i == k {
							return err
						}
						return nil
					}
					var report Report
					opts.Workers, opts.openRoot, opts.Report = 1, w.openSystem, &report
					got, all := Process(t.Context(), dir, opts, func(f *File) (string, error) { return f.Rel(), nil })
					reached = w.calls > k && err != nil
					require.Empty(t, w.wrong)
					require.Zero(t, w.open, "handles left open")
					requireLedger(t, report)
					if err == nil {
						whole = len(got)
					}
					require.GreaterOrEqual(t, whole, 4)
					require.True(t, all != nil || len(got) == whole, "%v: call %d fails with %v, and files are missing: %q", opts.Symlinks, k, err, got)
				})
			}
		}
	}
}

// An error that no system call gave stays as it is.
func TestGivenErrorOfNoCall(t *testing.T) {
	require.Equal(t, errBroken, (&node{given: true}).givenError("a", errBroken))
}

// Files about which hooks.Unchanged is asked are read in the order of the listing, all those of a batch together.
func TestReadLaterInOrder(t *testing.T) {
	testtree.NotInColdMode(t, "the order is that of the disk")
	w := &world{root: crowd(50, 0), perList: 100, eager: true}
	var asked, opened []string
	w.during = func(call, name string) {
		if call == "open" && name != "root" {
			opened = append(opened, name)
		}
	}
	opts := Options{Workers: 1, hooks: hooks{Unchanged: func(f *File) bool { asked = append(asked, f.Name()); return false }}}
	out := w.process(t.Context(), opts, nil)
	require.NoError(t, out.err)
	require.Len(t, asked, 50)
	require.Equal(t, asked, opened)
}

// A large batch is halved many times: each file is delivered once, and the halves refer to their directory until all are visited,
// also after a stop.
func TestFaultsHalves(t *testing.T) {
	const files = 1000
	for _, opts := range []Options{{}, {Stat: true}, {hooks: hooks{Unchanged: func(f *File) bool { return f.Name() == "f1" }}}} {
		for _, stopAt := range []int64{0, 1, files / 2} {
			inBubble(t, func(t *testing.T) {
				w := &world{root: crowd(files, 1), perList: 2 * files, eager: true}
				var calls atomic.Int64
				opts.Workers = 7
				out := w.process(t.Context(), opts, func(f *File) error {
					time.Sleep(time.Millisecond)
					if calls.Add(1) == stopAt {
						return fs.SkipAll
					}
					return nil
				})
				require.NoError(t, out.err)
				delete(out.got, "f1")
				w.requireSound(t, out)
				if stopAt == 0 {
					require.EqualValues(t, len(w.contents()), calls.Load())
					require.LessOrEqual(t, out.report.Elapsed, (files/7+2)*time.Millisecond)
				}
			})
		}
	}
}

// A window whose directory cannot be opened leaves nothing pinned, nor the directory before it.
func TestFaultsWindowOfADirectoryThatIsGone(t *testing.T) {
	w := &world{eager: true, root: folder("", folder("d", file("a", ""), file("b", "")))}
	opts := Options{Workers: 1}
	out := w.process(t.Context(), opts, func(f *File) error {
		gone := f.node.child(names.New("gone"), 0)
		r := toFetch{workerOf(f), &batch{node: &gone, entries: []names.Name{f.name}}, 0}
		r.OpenIn(scarceWindow{}, 1)
		require.EqualValues(t, pinNone, f.w.pin.state.Load())
		_, files, err := r.Use(1)
		require.ErrorIs(t, err, ErrChanged)
		require.Empty(t, files)
		return nil
	})
	require.NoError(t, out.err)
	require.Len(t, out.got, 2)
	w.requireSound(t, out)
}

// A directory that is gone when it is listed has changed, and the failure says how.
func TestFaultsOfADirectoryThatIsGone(t *testing.T) {
	w := &world{root: folder("", folder("d", file("a", "alpha")).with(listFails(0, fs.ErrNotExist)))}
	out := w.process(t.Context(), Options{}, nil)
	require.NoError(t, out.err)
	require.ErrorIs(t, out.failed["/d"], ErrChanged)
	require.ErrorIs(t, out.failed["/d"], fs.ErrNotExist)
	w.requireSound(t, out)
}

// Walk yields no directory behind a link that cannot be listed because its device is unknown, but the failure.
func TestFaultsDeviceOfALinkedDirectory(t *testing.T) {
	dir := t.TempDir()
	require.True(t, testtree.Make(t, dir, "t/u/v/f=f"))
	testtree.Symlink(t, filepath.FromSlash("t/u/v"), filepath.Join(dir, "link")) // v is too deep without the link
	whole := 0
	for _, fails := range []bool{false, true} {
		w := &world{}
		looks, last := 0, ""
		w.during = func(what, name string) { last = what + " " + name }
		w.fails = func(int, string) error {
			if last == "stat ." {
				if looks++; looks == whole && fails { // links come last
					return errBroken
				}
			}
			return nil
		}
		opts := Options{Workers: 1, Symlinks: SymlinksFollow, OneFilesystem: true, MaxDepth: 2, openRoot: w.openSystem}
		var got, failed []string
		for e, err := range Walk(t.Context(), dir, opts) {
			if err != nil {
				require.ErrorIs(t, err, errBroken)
				failed = append(failed, filepath.Base(err.(*Failure).Path))
				continue
			}
			got = append(got, e.Rel())
		}
		whole = looks
		require.Zero(t, w.open)
		if fails {
			require.Equal(t, []string{"link"}, failed)
			require.Equal(t, []string{"t", "t/u"}, got)
		} else {
			require.Empty(t, failed)
			require.Equal(t, []string{"t", "t/u", "link", "link/f"}, got)
		}
	}
}

// A directory that Walk does not yield is one failure, also if it is too deep to be listed.
func TestFaultsOfADirectoryThatIsTooDeep(t *testing.T) {
	for _, depth := range []int{1, 0} {
		w := &world{root: folder("", folder("a"), folder("b", file("c", "")))}
		w.find("b").statErr = errBroken
		var got []string
		failed := 0
		for e, err := range Walk(t.Context(), "root", Options{Stat: true, MaxDepth: depth, openRoot: w.openRoot}) {
			if err != nil {
				require.ErrorIs(t, err, errBroken)
				failed++
				continue
			}
			got = append(got, e.Rel())
		}
		require.Equal(t, []string{"a"}, got)
		require.Equal(t, 1, failed)
		require.Zero(t, w.open)
	}
}

// What becomes of a name in Options.Files that is no regular file is said in words.
func TestWhatAMisnamedFileIs(t *testing.T) {
	for err, want := range map[error]string{
		sys.Irregular(fs.ModeDir): "a directory, named without", sys.Irregular(fs.ModeSocket): "not a regular file: S", errBroken: "symbolic link: input/output error",
	} {
		require.ErrorContains(t, sys.Misnamed{Err: err}, want)
		require.ErrorIs(t, sys.Misnamed{Err: err}, err)
	}
}

// Who wants to know of binary files gets each, without its content.
func TestBinaryFilesAreTold(t *testing.T) {
	w := &world{root: folder("", file("a", "a\x00b"), file("b", "text"))}
	var told []string
	opts := Options{Workers: 1, SkipBinary: true, hooks: hooks{OnBinary: func(f *File) {
		require.Empty(t, f.Data())
		told = append(told, f.Rel())
	}}}
	out := w.process(t.Context(), opts, nil)
	require.NoError(t, out.err)
	require.Equal(t, []string{"a"}, told)
	require.Equal(t, map[string]string{"b": "text"}, out.got)
	require.Equal(t, map[SkipReason]int64{SkippedBinary: 1}, out.report.Skipped)
	w.requireSound(t, out)
}

// TestFaultsRoots: several roots take no more descriptors than one. Each may be closed and opened again, and the run may end at any
// call.
func TestFaultsRoots(t *testing.T) {
	for _, workers := range []int{1, 3} {
		for _, opts := range []Options{{}, {Ordered: true}, {IgnoreFiles: []string{".ignore"}}} {
			for k, reached := 0, true; reached; k++ {
				inBubble(t, func(t *testing.T) {
					reached = false
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					w := &world{root: small(), limit: 2 * workers, scarce: scarceErrors[0]}
					w.onCall = func(n int) {
						if n == k {
							reached = true
							cancel()
						}
					}
					opts := opts
					opts.Roots, opts.Workers, opts.openRoot, opts.Report = []string{"a", "b", "c"}, workers, w.openRoot, new(Report)
					got := map[string]int{}
					failed := 0
					for f, err := range Stream(ctx, "root", opts, func(f *File) (string, error) { return f.Rel() + "=" + string(f.Data()), nil }) {
						if err == nil {
							got[f]++
						} else {
							failed++
						}
					}
					require.Empty(t, w.wrong)
					require.Zero(t, w.open)
					requireLedger(t, *opts.Report)
					if !reached {
						want := map[string]int{}
						for rel, data := range w.contents() {
							if rel != "x" {
								want[rel+"="+data] = 3
							}
						}
						require.Equal(t, want, got)
						require.Equal(t, 6, failed) // what has vanished
					}
				})
			}
		}
	}
}

// TestFaultsRootIsReplaced: a root that has been closed and is another directory when it is opened again is ErrChanged.
func TestFaultsRootIsReplaced(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		opens, scarce := 0, &world{root: folder("", folder("d", file("f", "")), folder("e", file("f", ""))), limit: 2, scarce: scarceErrors[0]}
		opts := Options{Roots: []string{"a", "b"}, Workers: 1, Report: new(Report), openRoot: func(root string) (backend.Directory, error) {
			if root == "b" {
				return nil, errBroken
			}
			opens++
			d, err := scarce.openRoot(root)
			if opens > 1 && err == nil {
				d.(*worldDir).o = folder("", scarce.root.kids...)
			}
			return d, err
		}}
		_, err := Process(t.Context(), "root", opts, func(f *File) (string, error) { return f.Rel(), nil })
		require.Greater(t, opens, 1)
		require.ErrorIs(t, err, ErrChanged)
		require.ErrorIs(t, err, errBroken)
		require.Empty(t, scarce.wrong)
		require.Zero(t, scarce.open)
	})
}

// Metadata that a callback has looked up are not looked up again.
func TestMetadataAreFetchedOnce(t *testing.T) {
	w := &world{root: folder("", file("a", "alpha"))}
	looks := 0
	w.during = func(what, _ string) {
		if what == "stat" {
			looks++
		}
	}
	opts := Options{Workers: 1, ReadSize: NoRead, Stat: true, openRoot: w.openRoot, Select: func(f *File) bool { _, err := f.Stat(); return err == nil }}
	require.NoError(t, ForEach(t.Context(), "root", opts, func(f *File) error { _, err := f.Stat(); return err }))
	require.Equal(t, 1, looks)
}

// A relisted is a directory that lists a file again once it has been replaced, as some file systems do.
type relisted struct {
	backend.Directory
	listed   int
	replaced []string
}

func (d *relisted) List(l *backend.Listing) (more bool, err error) {
	d.listed++
	for _, name := range [][]string{{"a", "b"}, {"c"}, nil}[d.listed-1] {
		l.Add([]byte(name), 0, 0)
	}
	for _, name := range d.replaced {
		l.Add([]byte(name), 0, 0)
	}
	return d.listed < 3, nil
}

func (d *relisted) Replace(name names.Name, _ []byte, _ replace.Check, _ bool) (sys.Stat, error) {
	d.replaced = append(d.replaced, name.String())
	return sys.Stat{}, nil
}

// A file that was replaced is delivered once, also if its name is listed anew. What a run keeps for that goes with the
// directory's listing.
func TestInvariant11FaultsListedAgain(t *testing.T) {
	w := &world{root: folder("", file("a", "alpha"), file("b", "beta"), file("c", "gamma"))}
	for _, ordered := range []bool{false, true} {
		var report Report
		opts := Options{Workers: 1, Ordered: ordered, Report: &report, openRoot: func(root string) (backend.Directory, error) {
			d, err := w.openRoot(root)
			return &relisted{Directory: d}, err
		}}
		var run *resources
		got, err := Process(t.Context(), "root", opts, func(f *File) (string, error) {
			run = f.w.run
			return f.Rel(), f.Replace(nil)
		})
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"a", "b", "c"}, got)
		require.EqualValues(t, 3, report.Found)
		require.EqualValues(t, 3, report.Replaced)
		require.Zero(t, run.replaced.Load().Len())
	}
}
