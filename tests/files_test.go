package fileproc_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/knobs"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

// named returns Options.Files for names.
func named(names ...string) fileproc.Options { return fileproc.Options{Files: slices.Values(names)} }

func contentOf(f *fileproc.File) (string, error) { return f.Rel() + "=" + string(f.Data()), nil }

func TestFiles(t *testing.T) {
	_, all := rooted(t, "a=1", "d/a=2", "d/b=3", "d/e/f/c=4", "d/e/f/x=5", "other=6", "z/y/x=7", "empty/")
	for _, tt := range []struct {
		name        string
		files, want []string
		directories int64
	}{
		{"none", nil, nil, 0},
		{"one", []string{"a"}, []string{"a=1"}, 0},
		{"of several directories", []string{"d/b", "a", "d/e/f/c"}, []string{"a=1", "d/b=3", "d/e/f/c=4"}, 0},
		{"twice", []string{"d/a", "d/a", "a", "d/a"}, []string{"a=1", "d/a=2", "d/a=2", "d/a=2"}, 0},
		{"a tree", []string{"d/"}, []string{"d/a=2", "d/b=3", "d/e/f/c=4", "d/e/f/x=5"}, 3},
		{"a tree below", []string{"d/e/"}, []string{"d/e/f/c=4", "d/e/f/x=5"}, 2},
		{"a directory's own", []string{"d/."}, []string{"d/a=2", "d/b=3"}, 1},
		{"and what is below", []string{"d/.", "d/e/", "z/."}, []string{"d/a=2", "d/b=3", "d/e/f/c=4", "d/e/f/x=5"}, 4},
		{"as find prints them", []string{"./a", "./d/.", "././z/"}, []string{"a=1", "d/a=2", "d/b=3", "z/y/x=7"}, 3},
		{"an empty tree", []string{"empty/"}, nil, 1},
		{"a tree twice", []string{"z/", "z/"}, []string{"z/y/x=7", "z/y/x=7"}, 4},
		{"a tree and what is in it", []string{"d/e/f/c", "d/e/", "d/a", "d/e/f/"}, []string{"d/a=2", "d/e/f/c=4", "d/e/f/c=4", "d/e/f/c=4", "d/e/f/x=5", "d/e/f/x=5"}, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			everyEntry(t, all, func(t *testing.T, p place, entry entryPoint, workers int) {
				opts := named(tt.files...)
				opts.Workers = workers
				got, errs, report := entry(t, t.Context(), p, opts, contentOf)
				require.Empty(t, errs)
				slices.Sort(got)
				require.Equal(t, tt.want, got)
				require.Equal(t, tt.directories, report.Directories)
				require.EqualValues(t, len(tt.want), report.Found)
			})
		})
	}
}

// An absolute path below root is the file that it names, also where root is relative. An FS has no absolute paths.
func TestFilesByAbsolutePath(t *testing.T) {
	dir, _ := rooted(t, "a=1", "d/b=2", "d/e/c=3")
	t.Chdir(dir)
	here, err := os.Getwd() // as the system says it
	require.NoError(t, err)
	abs := func(rel string) string { return filepath.ToSlash(here) + "/" + rel }
	for root, want := range map[string][]string{".": {"a=1", "d/b=2"}, here: {"a=1", "d/b=2"}, "d": {"b=2"}, abs("d"): {"b=2"}} {
		opts := named(abs("a"), abs("d/b"), abs("d")+"x/b")
		opts.Ordered, opts.OnError = true, func(err error) error {
			require.True(t, errors.Is(err, fs.ErrInvalid) || strings.Contains(err.Error(), "dx"), err) // below ".", dx is only missing
			return nil
		}
		got, err := fileproc.Process(t.Context(), root, opts, func(f *fileproc.File) (string, error) {
			require.Equal(t, filepath.Join(root, f.Rel()), f.Path())
			return filepath.ToSlash(f.Rel()) + "=" + string(f.Data()), nil
		})
		require.NoError(t, err)
		require.Equal(t, want, got, root)
	}
	got, err := fileproc.Process(t.Context(), ".", named(abs("d/")), nameOf)
	require.NoError(t, err)
	require.Len(t, got, 2)
	opts := named(abs("a"))
	opts.FS = os.DirFS(dir)
	_, err = fileproc.Process(t.Context(), ".", opts, nameOf)
	require.ErrorIs(t, err, fs.ErrInvalid)
}

// The files of one directory alone, where the entries wait for an ignore file or a mark to be read.
func TestFilesOfOneDirectoryWithIgnoreFiles(t *testing.T) {
	_, all := rooted(t, "d/.ignore=b\n", "d/a=1", "d/b=2", "d/sub/c=3", ".git/HEAD=ref: refs/heads/main\n", ".git/objects/", ".git/refs/", ".gitignore=b\n")
	for _, opts := range []fileproc.Options{{IgnoreFiles: []string{".ignore"}}, {GitIgnore: true}, {SkipMarked: []string{"TAG"}}} {
		everyEntry(t, all, func(t *testing.T, p place, entry entryPoint, workers int) {
			opts := opts
			opts.Files, opts.Workers, opts.Suffixes = slices.Values([]string{"d/."}), workers, []string{"a", "b", "c"}
			got, errs, _ := entry(t, t.Context(), p, opts, contentOf)
			require.Empty(t, errs)
			require.Contains(t, got, "d/a=1")
			require.NotContains(t, got, "d/sub/c=3")
		})
	}
}

// A name that leads to no regular file is a failure of its own, with its path, and the others are processed.
func TestFilesThatAreNone(t *testing.T) {
	watchdog(t)
	dir, all := rooted(t, "a=1", "d/b=2", "d/e/c=3")
	links := testtree.Make(t, dir, "link -> a", "dlink -> d", "d/up -> ..", "nowhere -> missing")
	fifos := testtree.Make(t, dir, "fifo|")
	type test struct {
		name       string
		want       error
		systemOnly bool // os.DirFS follows links, and waits for a FIFO
	}
	tests := []test{
		{name: "missing", want: fs.ErrNotExist}, {name: "d/missing", want: fs.ErrNotExist}, {name: "missing/a", want: fs.ErrNotExist}, {name: "d/missing/e/c", want: fs.ErrNotExist},
		{name: "missing/", want: fs.ErrNotExist}, {name: "d/missing/", want: fs.ErrNotExist},
		{name: "", want: fs.ErrInvalid}, {name: "/", want: fs.ErrInvalid}, {name: "//", want: fs.ErrInvalid}, {name: ".", want: fs.ErrInvalid}, {name: "./", want: fs.ErrInvalid}, {name: "..", want: fs.ErrInvalid}, {name: "../", want: fs.ErrInvalid},
		{name: "../a", want: fs.ErrInvalid}, {name: "d/../a", want: fs.ErrInvalid}, {name: "d/..", want: fs.ErrInvalid}, {name: ".//a", want: fs.ErrInvalid}, {name: "./../a", want: fs.ErrInvalid}, {name: "d/./b", want: fs.ErrInvalid}, {name: "./.", want: fs.ErrInvalid}, {name: "a/.", want: fs.ErrInvalid}, {name: "missing/.", want: fs.ErrNotExist},
		{name: "d//b", want: fs.ErrInvalid}, {name: "d/b//", want: fs.ErrInvalid}, {name: "d//", want: fs.ErrInvalid}, {name: "//a", want: fs.ErrInvalid}, {name: "/a", want: fs.ErrInvalid}, {name: "/d/b", want: fs.ErrInvalid},
		{name: filepath.ToSlash(filepath.Join(dir, "..", "a")), want: fs.ErrInvalid}, {name: filepath.ToSlash(dir) + "x/a", want: fs.ErrInvalid},
		{name: "a\x00", want: fs.ErrInvalid}, {name: "a\x00b", want: fs.ErrInvalid}, {name: "d\x00/b", want: fs.ErrInvalid}, {name: "d/e\x00/", want: fs.ErrInvalid}, {name: "\x00", want: fs.ErrInvalid},
		{name: "d", want: fs.ErrInvalid}, {name: "d/e", want: fs.ErrInvalid}, {name: "a/", want: fs.ErrInvalid}, {name: "a/b", want: fs.ErrInvalid}, {name: "d/b/x/y", want: fs.ErrInvalid},
	}
	if links {
		for _, name := range []string{"link", "nowhere", "dlink", "d/up", "dlink/b", "d/up/a", "dlink/e/c", "dlink/", "d/up/", "dlink/missing"} {
			tests = append(tests, test{name, fs.ErrInvalid, true})
		}
	}
	if fifos {
		tests = append(tests, test{"fifo", fs.ErrInvalid, true}, test{"fifo/", fs.ErrInvalid, true}, test{"fifo/x", fs.ErrInvalid, true})
	}
	for _, p := range all {
		for _, opts := range []fileproc.Options{{}, {Stat: true}, {ReadSize: fileproc.NoRead}, {ReadSize: 1}, {SkipBinary: true}} {
			for _, workers := range []int{1, 4} {
				for entry, collect := range collecting {
					for _, ordered := range []bool{false, true} {
						for _, tt := range tests {
							if p.fsys != nil && tt.systemOnly {
								continue
							}
							what := fmt.Sprintf("%s, %s, %q, ordered %t, %d workers, ReadSize %d", p.name, entry, tt.name, ordered, workers, opts.ReadSize)
							opts.Files, opts.Workers, opts.Ordered = slices.Values([]string{"a", tt.name, "d/b"}), workers, ordered
							got, errs, report := collect(t, t.Context(), p, opts, relOf)
							slices.Sort(got)
							require.Equal(t, []string{"a", filepath.Join("d", "b")}, names(got), what)
							require.Len(t, errs, 1, what)
							var at *fs.PathError
							require.ErrorAs(t, errs[0], &at, what)
							require.ErrorIs(t, errs[0], tt.want, what)
							require.NotErrorIs(t, errs[0], fileproc.ErrChanged, what)
							require.Equal(t, tt.want == fs.ErrInvalid, errors.Is(errs[0], fs.ErrInvalid), what)
							require.EqualValues(t, 1, report.Failed, what)
							require.EqualValues(t, 3, report.Found, what)
							if plain := strings.TrimSuffix(tt.name, "/"); fs.ValidPath(plain) && plain != "." && !strings.Contains(plain, "\x00") {
								require.Equal(t, filepath.ToSlash(p.path(plain)), filepath.ToSlash(at.Path), what)
							}
						}
					}
				}
			}
		}
	}
}

// A path with more bytes or elements than the bounds is one failure, and the others are processed: also one for which a call
// for each element would overflow the stack. A path at a bound is one like others.
func TestFilesTooLong(t *testing.T) {
	dir, all := rooted(t, "a=1", "d/b=2")
	fits := []string{strings.Repeat("e/", 4095) + "f", strings.Repeat(strings.Repeat("e", 254)+"/", 257) + "f", "d/" + strings.Repeat("e", 65534)}
	long := []string{
		strings.Repeat("e/", 4096) + "f", strings.Repeat("e/", 4097), strings.Repeat("e", 65537), "d/" + strings.Repeat("e", 65535) + "/",
		strings.Repeat("e/", 200_000), strings.Repeat("e/", 3_000_000) + "f",
	}
	for _, p := range all {
		for entry, collect := range collecting {
			for _, ordered := range []bool{false, true} {
				what := fmt.Sprintf("%s, %s, ordered %t", p.name, entry, ordered)
				var refused []string
				opts := named(slices.Concat([]string{"a"}, long, fits, []string{"d/b"})...)
				opts.Ordered, opts.OnError = ordered, func(err error) error {
					var at *fs.PathError
					require.ErrorAs(t, err, &at, what)
					if strings.Contains(at.Err.Error(), "more than 65536 bytes or 4096 elements") {
						require.ErrorIs(t, err, fs.ErrInvalid, what)
						require.Less(t, len(at.Err.Error()), 200, what)
						refused = append(refused, strings.TrimPrefix(filepath.ToSlash(at.Path), filepath.ToSlash(p.path("x")[:len(p.path("x"))-1])))
					}
					return nil
				}
				got, errs, report := collect(t, t.Context(), p, opts, relOf)
				slices.Sort(got)
				require.Empty(t, errs, what)
				require.Equal(t, []string{"a", filepath.Join("d", "b")}, names(got), what)
				require.EqualValues(t, len(long)+len(fits), report.Failed, what)
				slices.SortFunc(refused, func(a, b string) int { return slices.Index(long, a) - slices.Index(long, b) })
				require.True(t, slices.Equal(long, refused), what)
			}
		}
	}

	deep := filepath.Join(dir, "deep")
	require.NoError(t, os.Mkdir(deep, 0o755))
	if !testtree.Deep(t, deep, 200, strings.Repeat("n", 250), "f=deep") {
		return // testtree has logged why
	}
	below := strings.Repeat(strings.Repeat("n", 250)+"/", 200)
	got, err := fileproc.Process(t.Context(), deep, named(below+"f", below), relOf)
	require.NoError(t, err)
	require.Equal(t, names([]string{below + "f", below + "f"}), got)
}

func names(rels []string) []string {
	for i, rel := range rels {
		rels[i] = filepath.FromSlash(rel)
	}
	return rels
}

// Stream yields results, and failures in their places, in the order of the names; Process sorts by path.
func TestFilesOrdered(t *testing.T) {
	dir, all := rooted(t, "a=1", "b=2", "d/a=3", "d/b=4", "d/e/c=5", "d.x=6", "z/y=7")
	many := testtree.Make(t, dir, testtree.Numbered("many/f", 300)...)
	require.True(t, many)
	var last []string
	for i := 299; i >= 0; i-- {
		last = append(last, strings.SplitN(testtree.Numbered("many/f", 300)[i], "=", 2)[0])
	}
	list := append([]string{"z/y", "b", "missing", "a", "d/", "d/e/c", "", "b", "d/b", "z/", "d.x", "a"}, last...)
	want := append([]string{"z/y", "b", "!", "a", "d/a", "d/b", "d/e/c", "d/e/c", "!", "b", "d/b", "z/y", "d.x", "a"}, last...)
	for _, p := range all {
		for _, workers := range []int{1, 2, 8} {
			opts := named(list...)
			opts.Workers, opts.Ordered, opts.FS = workers, true, p.fsys
			var got []string
			for rel, err := range fileproc.Stream(t.Context(), p.root, opts, relOf) {
				if err != nil {
					rel = "!"
				}
				got = append(got, filepath.ToSlash(rel))
			}
			require.Equal(t, want, got)
			got = nil
			for e, err := range fileproc.Walk(t.Context(), p.root, opts) {
				rel := filepath.ToSlash(e.Rel())
				if err != nil {
					rel = "!"
				}
				if err != nil || !e.IsDir() {
					got = append(got, rel)
				}
			}
			require.Equal(t, want, got)

			opts.OnError = func(error) error { return nil }
			sorted, err := fileproc.Process(t.Context(), p.root, opts, relOf)
			require.NoError(t, err)
			require.Len(t, sorted, len(want)-2)
			require.True(t, slices.IsSortedFunc(sorted, func(a, b string) int {
				return slices.Compare(strings.Split(filepath.ToSlash(a), "/"), strings.Split(filepath.ToSlash(b), "/"))
			}))
		}
	}
}

// What has been given is processed and delivered while the sequence waits for more.
func TestFilesAreDeliveredWhileTheSequenceWaits(t *testing.T) {
	_, all := rooted(t, testtree.Numbered("d/f", 40)...)
	var list []string
	for _, spec := range testtree.Numbered("d/f", 40) {
		list = append(list, strings.SplitN(spec, "=", 2)[0])
	}
	for _, ordered := range []bool{false, true} {
		everyEntry(t, all, func(t *testing.T, p place, entry entryPoint, workers int) {
			delivered := make(chan string, len(list))
			files := func(yield func(string) bool) {
				for i, name := range list {
					if !yield(name) {
						t.Error("the run is not stopped")
						return
					}
					if i%3 == 2 {
						for range 3 {
							<-delivered
						}
					}
				}
			}
			got, errs, _ := entry(t, t.Context(), p, fileproc.Options{Files: files, Workers: workers, Ordered: ordered}, func(f *fileproc.File) (string, error) {
				delivered <- f.Rel()
				return f.Rel(), nil
			})
			require.Empty(t, errs)
			require.Len(t, got, len(list))
		})
	}
}

// Several names that come one by one while fn takes long are processed by several workers.
func TestFilesSlowWorkSpreads(t *testing.T) {
	dir, _ := rooted(t, "a=1", "d/b=2", "d/c=3", "e=4")
	for _, ordered := range []bool{false, true} {
		watchdog(t)
		var running atomic.Int32
		begun, all := make(chan struct{}), make(chan struct{})
		files := func(yield func(string) bool) {
			for _, name := range []string{"a", "d/b", "d/c", "e"} {
				if !yield(name) {
					return
				}
				<-begun
			}
		}
		_, err := fileproc.Process(t.Context(), dir, fileproc.Options{Files: files, Workers: 4, Ordered: ordered}, func(f *fileproc.File) (int, error) {
			if running.Add(1) == 4 {
				close(all)
			}
			begun <- struct{}{}
			<-all
			return 0, nil
		})
		require.NoError(t, err)
		for range fileproc.Stream(t.Context(), dir, fileproc.Options{Files: slices.Values([]string{"a"}), Workers: 4, Ordered: ordered}, succeed) {
		}
	}
}

// endless yields names for ever, until it is stopped.
func endless(stopped *atomic.Bool, list ...string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := 0; ; i++ {
			if !yield(list[i%len(list)]) {
				stopped.Store(true)
				return
			}
		}
	}
}

// However a run ends, the sequence is stopped, and nothing is left.
func TestInvariant6FilesAreStopped(t *testing.T) {
	root := spread(t, 10, 20)
	list := []string{"dir0001/file0001", "dir0002/file0002", "dir0003/", "missing", "dir0001/file0004"}
	skipOthers := func(error) error { return nil }
	for _, ordered := range []bool{false, true} {
		for _, workers := range []int{1, 4} {
			opts := fileproc.Options{Workers: workers, Ordered: ordered, OnError: skipOthers}
			for name, run := range map[string]func(*testing.T, fileproc.Options){
				"cancel": func(t *testing.T, opts fileproc.Options) {
					ctx, cancel := context.WithCancelCause(t.Context())
					var calls atomic.Int64
					_, err := fileproc.Process(ctx, root, opts, func(*fileproc.File) (int, error) {
						if calls.Add(1) == 100 {
							cancel(errFromFn)
						}
						return 0, nil
					})
					require.ErrorIs(t, err, errFromFn)
				},
				"SkipAll": func(t *testing.T, opts fileproc.Options) {
					var calls atomic.Int64
					err := fileproc.ForEach(t.Context(), root, opts, func(*fileproc.File) error {
						if calls.Add(1) == 100 {
							return fs.SkipAll
						}
						return nil
					})
					require.NoError(t, err)
				},
				"break": func(t *testing.T, opts fileproc.Options) {
					n := 0
					for range fileproc.Stream(t.Context(), root, opts, succeed) {
						if n++; n == 100 {
							break
						}
					}
				},
				"break of a Walk": func(t *testing.T, opts fileproc.Options) {
					n := 0
					for range fileproc.Walk(t.Context(), root, opts) {
						if n++; n == 100 {
							break
						}
					}
				},
				"OnError": func(t *testing.T, opts fileproc.Options) {
					opts.OnError = func(err error) error { return errFromFn }
					require.ErrorIs(t, fileproc.ForEach(t.Context(), root, opts, func(*fileproc.File) error { return nil }), errFromFn)
				},
				"panic in fn": func(t *testing.T, opts fileproc.Options) {
					require.Panics(t, func() {
						fileproc.ForEach(t.Context(), root, opts, func(*fileproc.File) error { panic("fn") })
					})
				},
			} {
				t.Run(fmt.Sprintf("%s/ordered=%t/workers=%d", name, ordered, workers), func(t *testing.T) {
					watchdog(t)
					var stopped atomic.Bool
					var report fileproc.Report
					opts.Files, opts.Report = endless(&stopped, list...), &report
					leavesNothing(t, func() { run(t, opts) })
					require.True(t, stopped.Load())
					requireBalanced(t, report)
				})
			}
		}
	}
}

// A panic in the sequence, or Goexit, is one in fn.
func TestInvariant6FilesMayPanic(t *testing.T) {
	root := spread(t, 2, 3)
	for _, at := range []int{0, 1, 5} {
		for _, ordered := range []bool{false, true} {
			mishap := func(end func()) fileproc.Options {
				return fileproc.Options{Ordered: ordered, Files: func(yield func(string) bool) {
					for range at {
						if !yield("dir0001/file0001") {
							return
						}
					}
					end()
				}}
			}
			for name, run := range map[string]func(fileproc.Options){
				"Process": func(o fileproc.Options) { fileproc.Process(t.Context(), root, o, succeed) },
				"Stream": func(o fileproc.Options) {
					for range fileproc.Stream(t.Context(), root, o, succeed) {
					}
				},
				"Walk": func(o fileproc.Options) {
					for range fileproc.Walk(t.Context(), root, o) {
					}
				},
			} {
				watchdog(t)
				leavesNothing(t, func() {
					var caught any
					func() {
						defer func() { caught = recover() }()
						run(mishap(func() { panic(errFromFn) }))
					}()
					var p *fileproc.PanicError
					require.ErrorAs(t, caught.(error), &p, name)
					require.ErrorIs(t, p, errFromFn)
					require.Contains(t, string(p.Stack), "files_test.go")
				})
				leavesNothing(t, func() {
					ended, returned := make(chan struct{}), false
					go func() {
						defer close(ended)
						run(mishap(runtime.Goexit))
						returned = true
					}()
					<-ended
					require.False(t, returned, name)
				})
			}
		}
	}
}

// A cancel is seen while the sequence waits: fn is not called any more. The run returns when the sequence has.
func TestInvariant8CancelWhileFilesWait(t *testing.T) {
	root := spread(t, 2, 3)
	for _, ordered := range []bool{false, true} {
		watchdog(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		var calls atomic.Int64
		files := func(yield func(string) bool) {
			if yield("dir0001/file0001") {
				<-ctx.Done()
				time.Sleep(100 * time.Millisecond)
				if yield("dir0001/file0002") {
					t.Error("the sequence is not stopped")
				}
			}
		}
		leavesNothing(t, func() {
			got, err := fileproc.Process(ctx, root, fileproc.Options{Files: files, Ordered: ordered}, func(*fileproc.File) (int, error) {
				calls.Add(1)
				time.AfterFunc(20*time.Millisecond, func() { cancel(errFromFn) }) // fn has returned long before
				return 0, nil
			})
			require.ErrorIs(t, err, errFromFn)
			require.Len(t, got, 1)
			require.EqualValues(t, 1, calls.Load())
		})
	}
}

// The sequence is not pulled far ahead of what is processed.
func TestInvariant5FilesArePulledAsNeeded(t *testing.T) {
	testtree.Set(t, &knobs.MaxBacklog, 10_000)
	root := spread(t, 3, 3)
	for _, ordered := range []bool{false, true} {
		watchdog(t)
		var pulled, done atomic.Int64
		most := int64(0)
		names := 20_000
		if slow {
			names = 6000
		}
		files := func(yield func(string) bool) {
			for i := range names {
				most = max(most, pulled.Add(1)-done.Load())
				if !yield(fmt.Sprintf("dir%04d/file%04d", i%3, i/3%3)) {
					return
				}
			}
		}
		n := 0
		for _, err := range fileproc.Stream(t.Context(), root, fileproc.Options{Files: files, Workers: 2, Ordered: ordered}, succeed) {
			require.NoError(t, err)
			n++
			done.Add(1)
		}
		require.Equal(t, names, n)
		require.Less(t, most, int64(4000), "three windows, and the results that wait for the loop")
	}
}

// Each loop over a Stream pulls the sequence anew.
func TestFilesEachLoop(t *testing.T) {
	dir, _ := rooted(t, "a=1", "b=2")
	seq := fileproc.Stream(t.Context(), dir, named("a", "b"), relOf)
	for range 2 {
		n := 0
		for _, err := range seq {
			require.NoError(t, err)
			n++
		}
		require.Equal(t, 2, n)
	}
}

// Walk yields what is below a directory that is named, and of the others the files alone.
func TestFilesWalk(t *testing.T) {
	_, all := rooted(t, "a=1", "d/b=2", "d/e/c=3", "z/y=4")
	for _, p := range all {
		for _, stat := range []bool{false, true} {
			opts := named("d/", "z/y", "a")
			opts.FS, opts.Stat = p.fsys, stat
			var got []string
			for e, err := range fileproc.Walk(t.Context(), p.root, opts) {
				require.NoError(t, err)
				s, err := e.Stat()
				require.NoError(t, err)
				if !e.IsDir() {
					require.EqualValues(t, 1, s.Size)
				}
				got = append(got, filepath.ToSlash(e.Rel())+map[bool]string{true: "/"}[e.IsDir()])
			}
			slices.Sort(got)
			require.Equal(t, []string{"a", "d/b", "d/e/", "d/e/c", "z/y"}, got)
		}
	}
}

// Filters leave out a name as they do one that is listed, and each name is counted.
func TestFilesFiltered(t *testing.T) {
	_, all := rooted(t, "a.md=1", ".h.md=2", ".d/e/f.md=3", "d/.e/f.md=4", "v/f.md=5", "v/w/g.md=6", "v/w/g.txt=7", "d/x.md=8")
	list := []string{"a.md", ".h.md", ".d/e/f.md", "d/.e/f.md", "v/f.md", "v/w/g.md", "v/w/g.txt", "v/w/", "d/x.md", "d/.e/", "missing"}
	everyEntry(t, all, func(t *testing.T, p place, entry entryPoint, workers int) {
		for _, ordered := range []bool{false, true} {
			opts := named(list...)
			opts.Workers, opts.Ordered = workers, ordered
			opts.SkipHidden, opts.Suffixes, opts.Exclude = true, []string{".md"}, []string{"v"}
			got, errs, report := entry(t, t.Context(), p, opts, relOf)
			slices.Sort(got)
			require.Empty(t, errs, "what is skipped by name is not looked up")
			require.Equal(t, names([]string{"a.md", "d/x.md"}), names(got))
			require.EqualValues(t, 9, report.Found)
			require.Equal(t, map[fileproc.SkipReason]int64{fileproc.SkippedHidden: 3, fileproc.SkippedPattern: 2, fileproc.SkippedSuffix: 2}, report.Skipped)
		}
	})
}

// TestFilesBelowWhatIsLeftOut: below a directory that SelectDir or SkipMarked leaves out, each path given counts and OnSkip gets it, a
// directory as well. One left out by path or name is not counted, as in a listing.
func TestFilesBelowWhatIsLeftOut(t *testing.T) {
	_, all := rooted(t, "no/f=1", "no/d/g=2", "no/d/e/h=3", "m/TAG", "m/f=4", "m/d/g=5", "m/d/e/h=6", ".h/d/g=7", "ok/d/g=8")
	list := []string{"no/f", "no/d/", "no/d/e/", "no/d/.", "no/d/", "m/d/", "m/d/e/h", "m/d/e/", "m/none/", ".h/d/", ".h/d/g", "no/", "m/", "ok/d/"}
	want := map[string]int{
		"select-dir no/f": 1, "select-dir no/d/": 3, "select-dir no/d/e/": 1, "select-dir no/": 1,
		"marked m/d/": 1, "marked m/d/e/h": 1, "marked m/d/e/": 1, "marked m/none/": 1, "marked m/": 1, "hidden .h/d/g": 1,
	}
	for _, backlog := range []int{1, 1 << 20} {
		testtree.Set(t, &knobs.MaxBacklog, backlog)
		everyEntry(t, all, func(t *testing.T, p place, entry entryPoint, workers int) {
			for _, ordered := range []bool{false, true} {
				told := map[string]int{}
				opts := named(list...)
				opts.Workers, opts.Ordered, opts.SkipHidden, opts.SkipMarked = workers, ordered, true, []string{"TAG"}
				opts.SelectDir = func(e fileproc.Entry) bool { return e.Name() != "no" }
				opts.OnSkip = func(e fileproc.Entry, why fileproc.SkipReason) {
					rel := filepath.ToSlash(e.Rel())
					if e.IsDir() {
						rel += "/"
					}
					told[fmt.Sprint(why, " ", rel)]++
				}
				got, errs, report := entry(t, t.Context(), p, opts, relOf)
				require.Empty(t, errs)
				require.Equal(t, []string{filepath.Join("ok", "d", "g")}, names(got))
				require.Equal(t, want, told)
				require.EqualValues(t, 13, report.Found)
				require.Equal(t, map[fileproc.SkipReason]int64{fileproc.SkippedSelectDir: 6, fileproc.SkippedMarked: 5, fileproc.SkippedHidden: 1}, report.Skipped)
			}
		})
	}
}

// TestFilesOfAMarkedRoot: so it is if SkipMarked leaves root out.
func TestFilesOfAMarkedRoot(t *testing.T) {
	_, all := rooted(t, "TAG", "f=1", "d/g=2", "d/e/h=3")
	everyEntry(t, all, func(t *testing.T, p place, entry entryPoint, workers int) {
		for _, ordered := range []bool{false, true} {
			opts := named("f", "d/", "d/e/", "d/g")
			opts.Workers, opts.Ordered, opts.SkipMarked = workers, ordered, []string{"TAG"}
			got, errs, report := entry(t, t.Context(), p, opts, relOf)
			require.Empty(t, errs)
			require.Empty(t, got)
			require.Equal(t, map[fileproc.SkipReason]int64{fileproc.SkippedMarked: 4}, report.Skipped)
		}
	})
}

// The filters come first, whether or not anything is where a name leads: also below what is no directory, or is not there, and in
// any order. What they leave out is no failure.
func TestFilesFiltersComeFirst(t *testing.T) {
	_, all := rooted(t, "file=1", "d/b.md=2", "d/.h=3")
	list := []string{
		"file/a.txt", "file/a.md", "file/.h.md", "file/x/a.md", "file/x/a.txt", "file/x/y/z/a.md", "file/.x/a.md", "file/v/a.md", "file/v/w/a.md", "file/v/a.txt",
		"file/", "file/v/", "file/x/", "file/.x/", "gone/a.txt", "gone/a.md", "gone/v/a.md", "gone/v/", "gone/x/y/", "gone/select.md", "file/select.md", "d/b.md", "../a.txt",
	}
	everyEntry(t, all, func(t *testing.T, p place, entry entryPoint, workers int) {
		for _, ordered := range []bool{false, true} {
			opts := named(list...)
			opts.Workers, opts.Ordered = workers, ordered
			opts.SkipHidden, opts.Suffixes, opts.Exclude = true, []string{".md"}, []string{"*/v"}
			opts.Select = func(f *fileproc.File) bool { return f.Name() != "select.md" }
			var failed []string
			opts.OnError = func(err error) error {
				failed = append(failed, filepath.ToSlash(err.(*fileproc.Failure).Path))
				return nil
			}
			got, errs, report := entry(t, t.Context(), p, opts, relOf)
			require.Empty(t, errs)
			require.Equal(t, []string{filepath.Join("d", "b.md")}, names(got))
			var want []string
			for _, rel := range []string{"file/a.md", "file/x/a.md", "file/x/y/z/a.md", "file", "file/x", "gone/a.md", "gone/x/y"} {
				want = append(want, filepath.ToSlash(p.path(rel)))
			}
			failed = slices.DeleteFunc(failed, func(name string) bool { return strings.HasSuffix(name, "../a.txt") })
			require.ElementsMatch(t, want, failed)
			require.EqualValues(t, 20, report.Found)
			require.EqualValues(t, 8, report.Failed)
			require.Equal(t, map[fileproc.SkipReason]int64{
				fileproc.SkippedHidden: 2, fileproc.SkippedPattern: 3, fileproc.SkippedSuffix: 4, fileproc.SkippedSelect: 2,
			}, report.Skipped)
		}
	})
}

// TestFilesOracle names random files of random trees in random order, in windows of every size, some of them several times,
// and compares what is delivered with os.ReadFile.
func TestFilesOracle(t *testing.T) {
	inRandomTrees(t, 100, func(r *rand.Rand) []string { return randomSpecs(r, false) }, 6, askForNames)
}

// TestFilesHostileOracle gives names of every kind below random trees, with random filters, and compares with the reference,
// name by name.
func TestFilesHostileOracle(t *testing.T) {
	specs := func(r *rand.Rand) []string { return append(variedSpecs(t, r), "d1/", "afile=x", "up -> .", "fifo|") }
	inRandomTrees(t, 50, specs, 10, askForHostileNames)
}

// inRandomTrees calls ask several times in each of some trees, of which specs makes what they hold.
func inRandomTrees(t *testing.T, trees int, specs func(*rand.Rand) []string, times int, ask func(*testing.T, *rand.Rand, string) error) {
	seed := rand.Uint64()
	if s := os.Getenv("FILEPROC_SEED"); s != "" {
		_, err := fmt.Sscan(s, &seed)
		require.NoError(t, err, "FILEPROC_SEED")
	}
	if testing.Short() || slow {
		trees = 15
	}
	r := rand.New(rand.NewPCG(seed, 1))
	for range trees {
		dir, err := os.MkdirTemp(t.TempDir(), "")
		require.NoError(t, err)
		if !testtree.Make(t, dir, specs(r)...) {
			continue // what this platform lacks or changes; Make has logged it
		}
		for range times {
			if err := ask(t, r, dir); err != nil {
				t.Fatalf("FILEPROC_SEED=%d\n%v", seed, err)
			}
		}
		os.RemoveAll(dir)
	}
}

func hostileName(r *rand.Rand, entries []string) string {
	name := pick(r, entries...)
	for range r.IntN(3) {
		at := strings.LastIndexByte(name, '/') + 1
		switch r.IntN(14) {
		case 0, 1:
			name += "/"
		case 2, 3:
			name += "/" + pick(r, "x", "f.md", ".h", "sub", "a-b/f1.md")
		case 4:
			name = pick(r, "/", "./", "../", "missing/", ".h/", "\x00/") + name
		case 5:
			name = name[:at] + pick(r, "./", "../", "/", "gone/", "afile/", "up/") + name[at:]
		case 6:
			name += pick(r, "/.", "/..", "//", "\x00", "/\x00")
		case 7:
			name = name[:max(0, at-1)]
		case 8:
			name = pick(r, "", "/", ".", "..", "...", "\x00", "*", strings.Repeat("e", 300), strings.Repeat("e/", 30)+"f.md")
		}
	}
	return name
}

func askForHostileNames(t *testing.T, r *rand.Rand, dir string) error {
	testtree.Set(t, &knobs.MaxBacklog, pick(r, 1, 100, 1000, 1<<20))
	p := place{name: "os", root: dir}
	fsys := r.IntN(3) == 0
	list := hostileNames(r, take(t, dir), fsys)
	var report fileproc.Report
	opts := named(list...)
	if fsys {
		p = place{name: "fs", root: ".", fsys: os.DirFS(dir)}
	}
	opts.FS, opts.Report, opts.Ordered, opts.Workers = p.fsys, &report, r.IntN(2) == 0, pick(r, 0, 1, 2, 4, 17)
	opts.Stat, opts.ReadSize, opts.SkipHidden = r.IntN(2) == 0, pick(r, 0, 0, 100, fileproc.NoRead), r.IntN(2) == 0
	if r.IntN(3) == 0 {
		opts.Suffixes = []string{".md", "x", "1"}
	}
	if r.IntN(3) == 0 {
		opts.Exclude = []string{pick(r, "**/sub", "d1", "*/f*", "gone/**", "afile")}
	}
	if r.IntN(3) == 0 {
		opts.Shards, opts.Shard = 3, r.IntN(3)
	}
	ref := reference{dir: dir, opts: opts}
	if r.IntN(3) == 0 {
		ref.selected = func(rel string, _ int) bool { return len(rel)%3 != 0 }
		opts.Select = func(f *fileproc.File) bool { return ref.selected(filepath.ToSlash(f.Rel()), 0) }
	}
	key := func(name string) string { // an empty name fails with the path of root
		rel, isFlat := strings.CutSuffix(withoutDots(name), "/.")
		if name = rel; !isFlat {
			name = strings.TrimSuffix(name, "/")
		}
		if name == p.root {
			return ""
		}
		return name
	}
	want := fileproc.Report{Skipped: map[fileproc.SkipReason]int64{}}
	deliveries, failures := map[string]int{}, map[string]int{}
	for _, name := range list {
		e := ref.runNames([]string{name})
		for rel, c := range e.files {
			deliveries[rel+"="+c.data+"="+c.whole]++
		}
		if e.report.Failed > 0 {
			failures[key(name)]++
		}
		for why, n := range e.report.Skipped {
			want.Skipped[why] += n
		}
		want.Directories += e.report.Directories
		want.Found += e.report.Found
		want.Processed += e.report.Processed
		want.Failed += e.report.Failed
		want.Bytes += e.report.Bytes
	}
	failed, prefix := map[string]int{}, strings.TrimSuffix(p.path("x"), "x")
	opts.OnError = func(err error) error {
		failed[key(strings.TrimPrefix(err.(*fileproc.Failure).Path, prefix))]++
		return nil
	}
	got := map[string]int{}
	for s, err := range fileproc.Stream(t.Context(), p.root, opts, func(f *fileproc.File) (string, error) {
		whole, err := io.ReadAll(f.Reader())
		return filepath.ToSlash(f.Rel()) + "=" + string(f.Data()) + "=" + string(whole), err
	}) {
		if err != nil {
			return err
		}
		got[s]++
	}
	err := errors.Join(differ("deliveries", got, deliveries), differ("failures", failed, failures), expectation{report: want}.compareReport(report, false))
	if err != nil {
		err = fmt.Errorf("%q below %s, %+v: %w", list, p.name, opts, err)
	}
	return err
}

func hostileNames(r *rand.Rand, tree snapshot, fsys bool) (list []string) {
	entries := []string{"afile"}
	for rel, typ := range tree.types {
		if !fsys || typ.IsRegular() || typ.IsDir() {
			entries = append(entries, rel)
		}
	}
	slices.Sort(entries)
	for range pick(r, 1, 5, 100) {
		name := hostileName(r, entries)
		if at := ""; fsys && slices.ContainsFunc(strings.Split(name, "/"), func(part string) bool {
			at = path.Join(at, part)
			return tree.types[at]&fs.ModeSymlink != 0
		}) {
			continue // os.DirFS follows links
		}
		for range 1 + r.IntN(20)/19 {
			list = append(list, name)
		}
	}
	return list
}

func askForNames(t *testing.T, r *rand.Rand, dir string) error {
	testtree.Set(t, &knobs.MaxBacklog, pick(r, 1, 100, 1000, 1<<20))
	tree := take(t, dir)
	var files []string
	for rel := range tree.files {
		files = append(files, rel)
	}
	slices.Sort(files)
	var list []string
	want, failures := map[string]int{}, int64(0)
	deliver := func(rel string) { want[rel+"="+string(tree.files[rel])]++ }
	for range pick(r, 0, 1, 20, 300) {
		switch k := r.IntN(20); {
		case k == 0:
			list = append(list, pick(r, "missing", "no/such/file", "/", "", "../x"))
			failures++
		case k == 1 && len(files) > 0:
			if up := path.Dir(pick(r, files...)); up != "." {
				list = append(list, up+"/")
				for _, rel := range files {
					if strings.HasPrefix(rel, up+"/") {
						deliver(rel)
					}
				}
			}
		case len(files) > 0:
			rel := pick(r, files...)
			list = append(list, rel)
			deliver(rel)
		}
	}
	p := place{name: "os", root: dir}
	if r.IntN(3) == 0 {
		p = place{name: "fs", root: ".", fsys: os.DirFS(dir)}
	}
	var report fileproc.Report
	opts := named(list...)
	opts.FS, opts.Report, opts.Ordered, opts.Workers = p.fsys, &report, r.IntN(2) == 0, pick(r, 0, 1, 2, 4, 17)
	opts.Stat, opts.OnError = r.IntN(2) == 0, func(error) error { return nil }
	got := map[string]int{}
	for s, err := range fileproc.Stream(t.Context(), p.root, opts, func(f *fileproc.File) (string, error) {
		return filepath.ToSlash(f.Rel()) + "=" + string(f.Data()), nil
	}) {
		if err != nil {
			return err
		}
		got[s]++
	}
	if report.Failed != failures {
		return fmt.Errorf("%d failures, want %d: %q", report.Failed, failures, list)
	}
	return errors.Join(differ("deliveries", got, want))
}

// TestFilesEmptyPath: an empty path is a failure of its own, not of root.
func TestFilesEmptyPath(t *testing.T) {
	_, all := rooted(t, "f=x")
	everyEntry(t, all, func(t *testing.T, p place, entry entryPoint, workers int) {
		for _, ordered := range []bool{false, true} {
			got, errs, _ := entry(t, t.Context(), p, fileproc.Options{Workers: workers, Ordered: ordered, Files: slices.Values([]string{"", "f"})}, nameOf)
			require.Equal(t, []string{"f"}, got)
			require.Len(t, errs, 1)
			require.Equal(t, fileproc.FailedFile, errs[0].(*fileproc.Failure).Kind)
		}
	})
}

// TestFilesAreJudgedAsListed: a run that gets all paths of a tree, in any order, delivers what a run without Files does, and skips
// what that skips for the same reasons. What is in a directory that is left out has the directory's reason.
func TestFilesAreJudgedAsListed(t *testing.T) {
	newHome(t)
	rounds := 300
	if slow {
		rounds = 100
	}
	counted := map[fileproc.SkipReason]int{}
	for i := range rounds {
		seed := rand.Uint64()
		if s := os.Getenv("FILEPROC_SEED"); s != "" {
			_, err := fmt.Sscan(s, &seed)
			require.NoError(t, err, "FILEPROC_SEED")
		}
		r := rand.New(rand.NewPCG(seed, 1))
		dir := filepath.Join(t.TempDir(), "root")
		require.NoError(t, os.Mkdir(dir, 0o777))
		testtree.Make(t, dir, variedSpecs(t, r)...)
		opts := randomListing(r, dir)
		run := func(files []string) (delivered []string, skipped map[string]fileproc.SkipReason) {
			root, opts := dir, opts
			if opts.FS != nil {
				root = "."
			}
			if files != nil {
				opts.Files = slices.Values(files)
			}
			skipped = map[string]fileproc.SkipReason{}
			var report fileproc.Report
			opts.Report = &report
			opts.OnSkip = func(e fileproc.Entry, why fileproc.SkipReason) { skipped[filepath.ToSlash(e.Rel())] = why }
			opts.OnError = func(err error) error { // such as of a .git that names a link to itself
				require.ErrorContains(t, err, "commondir", "FILEPROC_SEED=%d", seed)
				skipped[err.Error()] = "failed"
				return nil
			}
			got, err := fileproc.Process(t.Context(), root, opts, relOf)
			require.NoError(t, err, "FILEPROC_SEED=%d", seed)
			requireBalanced(t, report)
			slices.Sort(got)
			return slash(got), skipped
		}
		var paths []string
		tree := take(t, dir)
		for rel, typ := range tree.types {
			if typ.IsRegular() || typ == fs.ModeSymlink && opts.Symlinks != fileproc.SymlinksSkip {
				paths = append(paths, rel)
			}
		}
		slices.Sort(paths)
		r.Shuffle(len(paths), func(i, j int) { paths[i], paths[j] = paths[j], paths[i] })
		want, listed := run(nil)
		got, given := run(paths)
		require.Equal(t, want, got, "round %d, FILEPROC_SEED=%d\n%+v", i, seed, opts)
		for rel, why := range given {
			counted[why]++
			if listed[rel] == why {
				continue
			}
			require.NotContains(t, listed, rel, "FILEPROC_SEED=%d: %s, %s", seed, why, listed[rel])
			if left := whyAbove(rel, tree, listed); left != "" && why != fileproc.SkippedSuffix {
				require.Equal(t, left, why, "FILEPROC_SEED=%d: %s", seed, rel)
			}
		}
		for rel, why := range listed {
			if slices.Contains(paths, rel) {
				require.Equal(t, why, given[rel], "FILEPROC_SEED=%d: %s", seed, rel)
			}
		}
	}
	for _, why := range []fileproc.SkipReason{fileproc.SkippedIgnored, fileproc.SkippedHidden, fileproc.SkippedPattern, fileproc.SkippedMarked, fileproc.SkippedSelectDir, fileproc.SkippedDangling} {
		if runtime.GOOS != "windows" || why != fileproc.SkippedDangling {
			require.Positive(t, counted[why], why)
		}
	}
}

// randomListing returns options that say which entries of dir are listed.
func randomListing(r *rand.Rand, dir string) fileproc.Options {
	opts := fileproc.Options{ReadSize: pick(r, 0, fileproc.NoRead), Workers: pick(r, 1, 2, 4), Ordered: r.IntN(2) == 0, GitIgnore: r.IntN(2) == 0,
		SkipHidden: r.IntN(3) == 0, Symlinks: pick(r, fileproc.SymlinksSkip, fileproc.SymlinksFiles)}
	opts.IgnoreFiles = pick(r, nil, []string{".ignore"}, []string{".gitignore", ".ignore"})
	opts.SkipMarked = pick(r, nil, nil, []string{"CACHEDIR.TAG", ".nobackup"}, []string{"*/CACHEDIR.TAG", "*/.nobackup"})
	opts.Exclude = pick(r, nil, nil, []string{"**/d1"}, []string{"e/**"})
	opts.Suffixes = pick(r, nil, nil, []string{".md", ".txt"})
	if r.IntN(3) == 0 {
		opts.SelectDir = func(e fileproc.Entry) bool { return selectsDir(filepath.ToSlash(e.Rel())) }
	}
	if opts.Symlinks == fileproc.SymlinksSkip && r.IntN(3) == 0 {
		opts.FS = os.DirFS(dir)
	}
	return opts
}

// whyAbove returns the reason of the highest directory above rel that a listing has left out, or "".
func whyAbove(rel string, tree snapshot, listed map[string]fileproc.SkipReason) (left fileproc.SkipReason) {
	for dir := path.Dir(rel); dir != "."; dir = path.Dir(dir) {
		if tree.types[dir].IsDir() {
			left = cmp.Or(listed[dir], left)
		}
	}
	return cmp.Or(listed[""], left)
}

// In an object store, where nothing says more of a file than that it is no directory, markers and ignore files are found beside
// names as in a listing.
func TestFilesBesideMarkersOfAnObjectStore(t *testing.T) {
	for _, typ := range []fs.FileMode{0, fs.ModeIrregular, fs.ModeDir, fs.ModeNamedPipe} {
		for _, ordered := range []bool{false, true} {
			store := fstest.MapFS{
				"a": {}, "marked/x": {}, "marked/CACHEDIR.TAG": {Data: []byte(cacheSignature), Mode: typ}, "rules/x": {}, "rules/y": {}, "rules/.ignore": {Data: []byte("x\n"), Mode: typ},
			}
			if typ.IsDir() {
				store["marked/CACHEDIR.TAG/in"], store["rules/.ignore/in"] = &fstest.MapFile{}, &fstest.MapFile{}
			}
			var report fileproc.Report
			var got []string
			for rel, err := range fileproc.Stream(t.Context(), ".", fileproc.Options{
				FS: store, SkipMarked: []string{"CACHEDIR.TAG"}, IgnoreFiles: []string{".ignore"}, Ordered: ordered,
				Files: slices.Values([]string{"marked/x", "rules/x", "rules/y", "a"}), Report: &report,
			}, func(f *fileproc.File) (string, error) { return f.Rel(), nil }) {
				require.NoError(t, err)
				got = append(got, rel)
			}
			if typ&^fs.ModeIrregular == 0 {
				require.ElementsMatch(t, []string{"rules/y", "a"}, got, typ)
				require.EqualValues(t, 1, report.Skipped[fileproc.SkippedMarked])
				require.EqualValues(t, 1, report.Skipped[fileproc.SkippedIgnored])
			} else {
				require.ElementsMatch(t, []string{"marked/x", "rules/x", "rules/y", "a"}, got, typ)
			}
			requireBalanced(t, report)
		}
	}
}

// A name that leads to a link is followed, one that leads to a file is no link, in order too, and whatever stands beside it.
func TestFilesThatAreLinks(t *testing.T) {
	root, _ := rooted(t, "a=1", "b=2", "d/c=3", "out=x")
	for _, link := range []string{"l1", "l2", "d/l3"} {
		testtree.Symlink(t, map[string]string{"l1": "a", "l2": "d/c", "d/l3": "../b"}[link], filepath.Join(root, filepath.FromSlash(link)))
	}
	testtree.Symlink(t, "none", filepath.Join(root, "dangling"))
	want := []string{"a=1 ", "l1=1 a", "b=2 ", "l2=3 d/c", "l1=1 a", "d/c=3 ", "d/l3=2 b", "d/c=3 "}
	for _, ordered := range []bool{false, true} {
		for _, workers := range []int{1, 4} {
			opts := named("a", "l1", "b", "out", "l2", "l1", "dangling", "d/c", "d/l3", "d/c")
			var report fileproc.Report
			opts.Symlinks, opts.Ordered, opts.Workers, opts.Exclude, opts.Report = fileproc.SymlinksFiles, ordered, workers, []string{"out"}, &report
			var got []string
			for s, err := range fileproc.Stream(t.Context(), root, opts, func(f *fileproc.File) (string, error) {
				target := f.LinkTarget()
				if target != "" {
					rel, err := filepath.Rel(root, target)
					require.NoError(t, err)
					target = filepath.ToSlash(rel)
				}
				s, err := contentOf(f)
				return s + " " + target, err
			}) {
				require.NoError(t, err)
				got = append(got, s)
			}
			if ordered {
				require.Equal(t, want, got)
			} else {
				require.ElementsMatch(t, want, got)
			}
			requireBalanced(t, report)
		}
	}
}
