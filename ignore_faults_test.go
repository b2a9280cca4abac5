package fileproc

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/fileproc/fileproc/internal/gitrepo"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

// Ignored entries are not reported if the end of the run cuts short the reading of their ignore file.
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

// TestIgnoreFilesWithFaults: a fault of an ignore file is reported, and nothing else is lost.
func TestIgnoreFilesWithFaults(t *testing.T) {
	rules := "b\n!/b\nskip/\n"
	for name, tc := range map[string]struct {
		faults []func(*object)
		fails  error
		used   bool
	}{
		"none":                      {used: true},
		"short reads":               {faults: []func(*object){chunks(1)}, used: true},
		"type unknown":              {faults: []func(*object){unknown}, used: true},
		"few descriptors":           {faults: []func(*object){opening(scarceErrors[0], scarceErrors[0], scarceErrors[0])}, used: true},
		"unreadable":                {faults: []func(*object){opening(fs.ErrPermission)}, fails: fs.ErrPermission},
		"read fails in the middle":  {faults: []func(*object){readFails(3, errBroken)}, fails: errBroken},
		"becomes a FIFO":            {faults: []func(*object){becomes(fs.ModeNamedPipe)}, fails: ErrChanged},
		"becomes a link":            {faults: []func(*object){becomes(fs.ModeSymlink)}, fails: ErrChanged},
		"a directory of that name":  {faults: []func(*object){func(o *object) { o.listed, o.mode = fs.ModeDir, fs.ModeDir }}},
		"a link of that name":       {faults: []func(*object){func(o *object) { o.listed = fs.ModeSymlink }}},
		"larger than git takes one": {faults: []func(*object){sized(gitrepo.MaxIgnoreFile + 1)}, fails: ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			tree := func() *object {
				return folder("", file("a", "a"), folder("d", file("b", "beta"), folder("skip", file("s", "s")), folder("e", file("b", "b")), file(".rules", rules, tc.faults...)))
			}
			everyWorld(t, tree, func(t *testing.T, w *world, workers int) {
				out := w.process(t.Context(), Options{Workers: workers, IgnoreFiles: []string{".rules"}, Exclude: []string{"d/.rules"}}, nil)
				require.NoError(t, out.err)
				w.requireSound(t, out)
				want := map[string]string{"a": "a", "d/b": "beta"}
				if !tc.used {
					want["d/e/b"], want["d/skip/s"] = "b", "s"
				}
				require.Equal(t, want, out.got)
				require.ErrorIs(t, out.failed["/d/.rules"], tc.fails)
				if tc.fails == nil {
					require.Empty(t, out.failed)
				}
			})
		})
	}
}

// TestIgnoreFileVanishes: the run goes on as if the file had not existed.
func TestIgnoreFileVanishes(t *testing.T) {
	tree := func() *object { return folder("", file("a", "a"), file(".rules", "a\n", vanished)) }
	everyWorld(t, tree, func(t *testing.T, w *world, workers int) {
		out := w.process(t.Context(), Options{Workers: workers, IgnoreFiles: []string{".rules"}, Exclude: []string{".rules"}}, nil)
		require.NoError(t, out.err)
		require.Empty(t, out.failed)
		w.requireSound(t, out)
		require.Equal(t, map[string]string{"a": "a"}, out.got)
	})
}

// A long listing is kept until its end: an ignore file listed last may apply to entries listed first.
func TestIgnoreFilesFewDescriptorsForMany(t *testing.T) {
	tree := func() *object {
		root := forest()
		var add func(o *object)
		add = func(o *object) {
			for _, k := range o.kids {
				if k.mode == fs.ModeDir {
					add(k)
				}
			}
			o.kids = append(o.kids, file("~rules", "f1\nbeside/\n"))
		}
		add(root)
		return root
	}
	want := map[string]string{}
	for rel, data := range (&world{root: tree()}).contents() {
		if !strings.HasSuffix(rel, "/f1") && !strings.Contains(rel, "beside/") {
			want[rel] = data
		}
	}
	for limit := 3; limit <= 6; limit++ {
		for _, workers := range []int{1, 2, 8, 16} {
			inBubble(t, func(t *testing.T) {
				w := &world{root: tree(), limit: limit, scarce: scarceErrors[0]}
				start := time.Now()
				out := w.process(t.Context(), Options{Workers: workers, IgnoreFiles: []string{"~rules"}}, nil)
				require.NoError(t, out.err)
				require.Empty(t, out.failed)
				w.requireSound(t, out)
				require.Equal(t, want, out.got)
				require.Less(t, time.Since(start), 5*time.Second, "waits although each try gets further")
			})
		}
	}
}

// A directory that has been closed since it was listed, because descriptors are short, is opened to read its ignore file and once
// more after that. Each of these opens may fail.
func TestFaultsOfADirectoryReopenedForItsIgnoreFile(t *testing.T) {
	testtree.NotInColdMode(t, "all is listed before the first file")
	for k, fails := range []string{"/d", "/d/.ignore", "/d"} {
		inBubble(t, func(t *testing.T) {
			w := &world{root: folder("", file("a", "alpha"), folder("d", file(".ignore", "x"), file("b", "beta"))), perList: 100}
			opens := 0
			w.during = func(call, name string) {
				if call == "openDir" {
					if w.find("d").openErr = nil; opens == k {
						w.find("d").openErr = []error{errBroken}
					}
					opens++
				}
			}
			out := w.process(t.Context(), Options{Workers: 1, IgnoreFiles: []string{".ignore"}}, func(f *File) error {
				if f.Name() == "a" { // which comes first
					f.w.run.dirs.newShortage()
				}
				return nil
			})
			require.NoError(t, out.err)
			out.run.dirs.short[0].end()
			w.requireSound(t, out)
			require.Len(t, out.failed, 1)
			require.ErrorIs(t, out.failed[fails], errBroken)
			_, ok := out.got["d/b"]
			require.Equal(t, fails != "/d", ok)
		})
	}
}

// A directory whose listing fails behind the marker is left out all the same, and nothing in it is opened.
func TestFaultsOfAMarkedDirectory(t *testing.T) {
	everyWorld(t, func() *object {
		return folder("", folder("d", file(".ignore", "", opening(fs.ErrPermission)), file(".mark", ""), file("b", ""), file("c", "")).with(listFails(0, errBroken)))
	}, func(t *testing.T, w *world, workers int) {
		if w.perList < 4 {
			w.perList = 4 // the marker is in the half that is given
		}
		out := w.process(t.Context(), Options{Workers: workers, IgnoreFiles: []string{".ignore"}, SkipMarked: []string{".mark"}}, nil)
		require.NoError(t, out.err)
		w.requireSound(t, out)
		require.Empty(t, out.failed)
		require.Empty(t, out.got)
		require.EqualValues(t, 1, out.report.Skipped[SkippedMarked])
	})
}

// The memory of a large ignore file, which the garbage collector does not free, is let go.
func TestIgnoreFileMemoryIsLetGo(t *testing.T) {
	pages := func() (n int) {
		statm, err := os.ReadFile("/proc/self/statm")
		if err != nil {
			t.Skip("no /proc/self/statm here")
		}
		_, err = fmt.Sscan(string(statm), &n)
		require.NoError(t, err)
		return n
	}
	const size = 16 << 20
	before := pages()
	for range 50 {
		inBubble(t, func(t *testing.T) {
			w := &world{root: folder("", file(".ignore", "x", sized(size)), file("x", ""))}
			w.requireSound(t, w.process(t.Context(), Options{Workers: 1, IgnoreFiles: []string{".ignore"}, Exclude: []string{".ignore"}}, nil))
		})
	}
	require.Less(t, (pages()-before)*os.Getpagesize(), 25*size)
}

// With Options.Files nothing is listed: what an ignore file says is unknown, too, if the directory cannot be opened to look for it, and
// a failure of the look is not the absence of the file.
func TestIgnoreFilesWithFaultsBesideNames(t *testing.T) {
	looking := func(err error) func(*object) { return func(o *object) { o.statErr = err } }
	for name, tc := range map[string]struct {
		dir, rules, mark []func(*object)
		got, failed      []string
	}{
		"none":                         {got: []string{"a"}},
		"the rules are not there":      {rules: []func(*object){looking(fs.ErrNotExist)}, got: []string{"a", "d/b", "d/c", "d/sub/s"}},
		"a look at the rules fails":    {rules: []func(*object){looking(errBroken)}, got: []string{"a", "d/b", "d/c", "d/sub/s"}, failed: []string{"/d/.rules"}},
		"may not look at the rules":    {rules: []func(*object){looking(fs.ErrPermission)}, got: []string{"a", "d/b", "d/c", "d/sub/s"}, failed: []string{"/d/.rules"}},
		"a look at the marker fails":   {mark: []func(*object){looking(errBroken)}, got: []string{"a"}, failed: []string{"/d/.mark"}},
		"one open of the directory":    {dir: []func(*object){opening(errBroken)}, got: []string{"a"}, failed: []string{"/d/b", "/d/c", "/d/sub"}},
		"the directory is not there":   {dir: []func(*object){vanished}, got: []string{"a"}, failed: []string{"/d/b", "/d/c", "/d/sub"}},
		"few descriptors for the look": {dir: []func(*object){opening(scarceErrors[0], scarceErrors[0])}, got: []string{"a"}},
	} {
		for _, ordered := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/ordered=%v", name, ordered), func(t *testing.T) {
				tree := func() *object {
					return folder("", file("a", ""), folder("d", file(".rules", "b\nc\nsub/\n", tc.rules...), file(".mark", "", tc.mark...).with(vanishedUnless(tc.mark)), file("b", ""), file("c", ""),
						folder("sub", file("s", ""))).with(tc.dir...))
				}
				everyWorld(t, tree, func(t *testing.T, w *world, workers int) {
					out := outcome{failed: map[string]error{}}
					opts := Options{Workers: workers, Ordered: ordered, IgnoreFiles: []string{".rules"}, SkipMarked: []string{".mark"}, Files: slices.Values([]string{"a", "d/b", "d/c", "d/sub/"})}
					w.trace(&out, &opts)
					var got []string
					for rel, err := range Stream(t.Context(), "root", opts, relOf) {
						if out.fail(err); err == nil {
							got = append(got, filepath.ToSlash(rel))
						}
					}
					require.ElementsMatch(t, tc.got, got)
					require.ElementsMatch(t, tc.failed, slices.Collect(maps.Keys(out.failed)))
					require.Empty(t, w.wrong)
					require.Zero(t, w.open)
					requireLedger(t, out.report)
				})
			})
		}
	}
}

// The rules above a directory that cannot be opened hold for the names in it and below: those that are ignored are no failures.
func TestIgnoreFilesAboveNamesThatFail(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		tree := func() *object {
			return folder("", file(".rules", "*.o\n/d/e/x\nskipped/\n"), folder("d", folder("e", file("x", ""))).with(vanished), file("a", ""))
		}
		everyWorld(t, tree, func(t *testing.T, w *world, workers int) {
			list := []string{"a", "d/f", "d/f.o", "d/e/x", "d/e/y", "d/e/y.o", "d/e/tree/", "d/e/skipped/", "d/e/skipped/z", "d/skipped/z", "d/e/g/h/y", "d/e/g/h/y.o"}
			out := outcome{failed: map[string]error{}}
			opts := Options{Workers: workers, Ordered: ordered, IgnoreFiles: []string{".rules"}, Files: slices.Values(list)}
			w.trace(&out, &opts)
			got := 0
			for _, err := range Stream(t.Context(), "root", opts, relOf) {
				if out.fail(err); err == nil {
					got++
				}
			}
			require.Equal(t, 1, got)
			require.ElementsMatch(t, []string{"/d/f", "/d/e/y", "/d/e/tree", "/d/e/g/h/y"}, slices.Collect(maps.Keys(out.failed)))
			require.EqualValues(t, 6, out.report.Skipped[SkippedIgnored])
			requireLedger(t, out.report)
		})
	}
}

// A directory is closed once it is judged, if all names in it are left out.
func TestMarkedDirectoriesAreClosedWhenJudged(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		tree := func() *object {
			return folder("", file("a", ""), folder("d", file(".mark", ""), file("x", "")), folder("e", folder("g", file(".mark", ""), file("y", ""))))
		}
		everyWorld(t, tree, func(t *testing.T, w *world, workers int) {
			out := outcome{}
			opts := Options{Workers: workers, Ordered: ordered, SkipMarked: []string{".mark"}, Files: slices.Values([]string{"a", "d/x", "e/g/y"})}
			w.trace(&out, &opts)
			for rel, err := range Stream(t.Context(), "root", opts, relOf) {
				require.NoError(t, err)
				require.Equal(t, "a", rel)
			}
			require.EqualValues(t, 2, out.report.Skipped[SkippedMarked])
			w.requireSound(t, out)
		})
	}
}

func vanishedUnless(faults []func(*object)) func(*object) {
	if len(faults) > 0 {
		return func(*object) {}
	}
	return vanished
}

// A root that has no path any more, once it is open, ends a run that needs the path.
func TestFaultsRootWithoutAPath(t *testing.T) {
	for name, tc := range map[string]struct {
		opts  Options
		fails bool // as any root that fails
	}{
		"links":                  {Options{Symlinks: SymlinksFiles}, true},
		"git":                    {Options{GitIgnore: true}, true},
		"ignore file above root": {Options{IgnoreFiles: []string{"../rules"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{root: folder("", file("a", "alpha"))}
			out := w.process(t.Context(), tc.opts, nil)
			if tc.fails {
				require.NoError(t, out.err)
				require.Len(t, out.failed, 1)
				out.err = out.failed[""]
			}
			require.ErrorIs(t, out.err, fs.ErrNotExist)
			require.NotErrorIs(t, out.err, ErrChanged)
			require.Empty(t, out.got)
			w.requireSound(t, out)
		})
	}
}

// A directory with a .git in it that cannot be opened again, when all is listed, is a failure, and nothing in it is visited.
func TestFaultsOfARepositoryReopened(t *testing.T) {
	testtree.NotInColdMode(t, "all is listed before the first file")
	for _, fails := range []bool{false, true} {
		inBubble(t, func(t *testing.T) {
			w := &world{root: folder("", file("a", "alpha"), folder("d", folder(".git"), file("b", "beta"))), perList: 100}
			opens := 0
			w.during = func(call, _ string) {
				if call == "openDir" {
					if opens++; opens == 2 && fails {
						w.find("d").openErr = []error{errBroken}
					}
				}
			}
			out := outcome{got: map[string]string{}, failed: map[string]error{}}
			opts := Options{Workers: 1, GitIgnore: true, OnError: func(err error) error { out.fail(err); return nil }}
			w.trace(&out, &opts)
			root := t.TempDir()
			require.NoError(t, ForEach(t.Context(), root, opts, func(f *File) error {
				if f.Name() == "a" {
					f.w.run.dirs.limit = 0 // what nobody uses is closed
				}
				out.got[f.Rel()] = string(f.Data())
				return nil
			}))
			require.Equal(t, fails, out.got["d/b"] == "", out.got)
			require.Equal(t, fails, len(out.failed) == 1)
			w.requireSound(t, out)
		})
	}
}

// A failure of a file that says what is ignored can be told from that of another file.
func TestFaultsOfARule(t *testing.T) {
	w := &world{root: folder("", file(".ignore", "", opening(errBroken, errBroken)), file("a", "", opening(errBroken)))}
	ofRules := 0
	opts := Options{IgnoreFiles: []string{".ignore"}, SkipHidden: true}
	opts.OnError = func(err error) error {
		require.ErrorIs(t, err, errBroken)
		require.Equal(t, strings.HasSuffix(err.(*Failure).Path, ".ignore"), isOfRule(err))
		if isOfRule(err) {
			ofRules++
		}
		return nil
	}
	out := w.process(t.Context(), opts, nil)
	require.NoError(t, out.err)
	require.EqualValues(t, 2, out.report.Failed)
	require.Equal(t, 1, ofRules)
	require.False(t, isOfRule(errBroken))
}

// What a session has in memory is judged by the repository of the directory that it stands for.
func TestGitRulesOfAnotherRoot(t *testing.T) {
	dir := t.TempDir()
	require.True(t, testtree.Make(t, dir, ".git/HEAD=ref: refs/heads/main\n", ".git/objects/", ".git/refs/", ".git/info/exclude=*.log\n"))
	for root, want := range map[string][]string{"": {"a.log", "b"}, dir: {"b"}} {
		opts := Options{FS: fstest.MapFS{"a.log": {}, "b": {}}, GitIgnore: true, hooks: hooks{GitRoot: root}}
		got, err := Process(t.Context(), ".", opts, relOf)
		require.NoError(t, err)
		require.ElementsMatch(t, want, got)
	}
}
