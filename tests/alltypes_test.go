package fileproc_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/sys"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

// ofAllTypes makes a tree with what this platform has, and returns what filepath.WalkDir says of each entry.
func ofAllTypes(t *testing.T) (dir string, want []string) {
	dir = t.TempDir()
	require.True(t, testtree.Make(t, dir, "a=1", "a-b/c=2", "b/d=3", "b-c=4", "empty/", "z/y/x="))
	for _, special := range []string{"link -> a-b/c", "z/dir -> ../a-b", "z/dangling -> no/where", "loop -> loop", "z/out -> /etc/hostname", "z/long -> " + strings.Repeat("long/", 150), "pipe|", "z/socket@"} {
		testtree.Make(t, dir, special)
	}
	for i := range 200 {
		testtree.Make(t, dir, fmt.Sprintf("many/%03d=%d", i, i))
		if i%3 == 0 {
			testtree.Make(t, dir, fmt.Sprintf("many/%03dl -> %03d", i, i))
		}
	}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		text := ""
		if d.Type() == fs.ModeSymlink {
			text, err = os.Readlink(path)
		}
		want = append(want, fmt.Sprintf("%s %v %q", strings.TrimPrefix(filepath.ToSlash(rel), "."), d.Type(), text))
		return err
	}))
	return dir, want
}

// entry describes what fn or a loop gets in the form of ofAllTypes.
func entry(rel string, e interface {
	Type() fs.FileMode
	IsDir() bool
	ReadLink() (string, error)
}) (string, error) {
	text, err := e.ReadLink()
	if e.Type() != fs.ModeSymlink {
		err = nil
	}
	return fmt.Sprintf("%s %v %q", rel, e.Type(), text), err
}

// TestAllTypes compares each entry point with filepath.WalkDir, in order and not.
func TestAllTypes(t *testing.T) {
	dir, want := ofAllTypes(t)
	for _, p := range places(dir) {
		for _, opts := range []fileproc.Options{{}, {Stat: true}, {Ordered: true}, {Ordered: true, Stat: true, ReadSize: fileproc.NoRead}, {Workers: 1, ReadSize: 1}} {
			var report fileproc.Report
			opts.AllTypes, opts.FS, opts.Report = true, p.fsys, &report
			check := func(got []string, err error) {
				t.Helper()
				require.NoError(t, err)
				dirs := map[string]bool{}
				for _, line := range got {
					rel, typ, _ := strings.Cut(line, " ")
					if up := filepath.ToSlash(filepath.Dir(rel)); rel != "" {
						require.True(t, dirs[strings.TrimPrefix(up, ".")], "%s comes before its directory", rel)
					}
					dirs[rel] = typ[0] == 'd'
				}
				want := slices.Clone(want)
				if opts.Ordered {
					slices.SortFunc(want, func(a, b string) int {
						a, _, _ = strings.Cut(a, " ")
						b, _, _ = strings.Cut(b, " ")
						return fileproc.ComparePaths(a, b)
					})
				} else {
					slices.Sort(want)
					slices.Sort(got)
				}
				require.Equal(t, want, got, "%s, %+v", p.name, opts)
				requireBalanced(t, report)
				require.EqualValues(t, len(want), report.Found)
				require.EqualValues(t, len(want), report.Processed)
			}
			fn := func(f *fileproc.File) (string, error) {
				line, err := entry(f.Rel(), f)
				same, e := f.Unchanged()
				if !same {
					err = errors.Join(err, e, errors.New(f.Rel()+" has changed"))
				}
				return line, err
			}
			var got []string
			for line, err := range fileproc.Stream(t.Context(), p.root, opts, fn) {
				require.NoError(t, err)
				got = append(got, line)
			}
			check(got, nil)
			got = nil
			for e, err := range fileproc.Walk(t.Context(), p.root, opts) {
				require.NoError(t, err)
				line, err := entry(e.Rel(), e)
				require.NoError(t, err)
				got = append(got, line)
				s, err := e.Stat()
				require.NoError(t, err)
				require.Equal(t, e.Type(), s.Mode.Type(), e.Path())
				info, err := os.Lstat(filepath.Join(dir, e.Rel()))
				require.NoError(t, err)
				require.Equal(t, sys.StatOfInfo(info).Links, s.Links, e.Path())
				if now, err := e.Info(); p.fsys == nil && (e.Type() == 0 || runtime.GOOS == "linux") {
					require.NoError(t, err)
					require.True(t, os.SameFile(info, now), e.Path())
				}
			}
			check(got, nil)
			if opts.Ordered {
				check(fileproc.Process(t.Context(), p.root, opts, fn))
			}
		}
	}
}

// TestAllTypesOfARootThatIsAFile: that file is the only entry.
func TestAllTypesOfARootThatIsAFile(t *testing.T) {
	dir, all := rooted(t, "d/f=text")
	for _, p := range all {
		root := "d/f"
		if p.fsys == nil {
			root = filepath.Join(dir, "d", "f")
		}
		got, err := fileproc.Process(t.Context(), root, fileproc.Options{AllTypes: true, FS: p.fsys}, func(f *fileproc.File) (string, error) {
			return fmt.Sprint(f.Rel(), f.IsDir(), string(f.Data())), nil
		})
		require.NoError(t, err)
		require.Equal(t, []string{"ffalsetext"}, got)
	}
}

// TestAllTypesOfRoots: each of several roots is an entry.
func TestAllTypesOfRoots(t *testing.T) {
	dir, all := rooted(t, "a/f=1", "b/c/", "g=2")
	for _, p := range all {
		for _, ordered := range []bool{false, true} {
			var report fileproc.Report
			opts := fileproc.Options{AllTypes: true, Stat: true, Ordered: ordered, FS: p.fsys, Report: &report, OnError: func(error) error { return nil }}
			for _, root := range []string{"b", "a", "g", "nowhere"} {
				if p.fsys == nil {
					root = filepath.Join(dir, root)
				}
				opts.Roots = append(opts.Roots, root)
			}
			got, err := fileproc.Process(t.Context(), p.root, opts, func(f *fileproc.File) (string, error) {
				return fmt.Sprintf("%s:%s:%v %v", filepath.Base(f.Root()), f.Rel(), f.IsDir(), f.Path() == f.Root()), nil
			})
			require.NoError(t, err)
			want := []string{"b::true true", "b:c:true false", "a::true true", "a:f:false false", "g:g:false true"}
			if !ordered {
				slices.Sort(want)
				slices.Sort(got)
			}
			require.Equal(t, want, got, p.name)
			require.EqualValues(t, 6, report.Found)
			require.EqualValues(t, 1, report.Failed)
			requireBalanced(t, report)
		}
	}
}

// TestAllTypesEnds: a directory, or a link, at which fn fails, stops or panics is in the ledger once.
func TestAllTypesEnds(t *testing.T) {
	dir, want := ofAllTypes(t)
	for _, at := range []string{"", "a-b", "link", "z", "z/dir", "z/y"} {
		for _, ordered := range []bool{false, true} {
			for name, end := range map[string]func() error{
				"failure": func() error { return errFromFn },
				"skip":    func() error { return fileproc.ErrSkip },
				"stop":    func() error { return fs.SkipAll },
				"panic":   func() error { panic(errFromFn) },
				"Goexit":  func() error { runtime.Goexit(); return nil },
				"cancel":  nil,
			} {
				ctx, cancel := context.WithCancel(t.Context())
				var report fileproc.Report
				opts := fileproc.Options{AllTypes: true, Ordered: ordered, Report: &report, OnError: func(error) error { return nil }}
				done := make(chan struct{})
				leavesNothing(t, func() {
					go func() {
						defer close(done)
						defer func() { _ = recover() }()
						for range fileproc.Stream(ctx, dir, opts, func(f *fileproc.File) (int, error) {
							if f.Rel() != at {
								return 0, nil
							}
							if end == nil {
								cancel()
								return 0, nil
							}
							return 0, end()
						}) {
						}
					}()
					<-done
				})
				cancel()
				requireBalanced(t, report)
				switch name {
				case "failure":
					require.EqualValues(t, len(want), report.Found, "%s at %q", name, at)
					require.EqualValues(t, 1, report.Failed)
				case "skip":
					require.EqualValues(t, len(want), report.Found, "%s at %q", name, at)
					require.EqualValues(t, 1, report.Skipped[fileproc.SkippedByFunc])
				}
			}
		}
	}
}

// TestAllTypesWithoutReadLink: an FS that knows no text of a link lists it all the same.
func TestAllTypesWithoutReadLink(t *testing.T) {
	dir, want := ofAllTypes(t)
	opts := fileproc.Options{AllTypes: true, FS: struct{ fs.FS }{os.DirFS(dir)}}
	got, err := fileproc.Process(t.Context(), ".", opts, func(f *fileproc.File) (string, error) {
		if _, err := f.ReadLink(); f.Type() == fs.ModeSymlink {
			require.ErrorIs(t, err, errors.ErrUnsupported)
		}
		return f.Rel(), nil
	})
	require.NoError(t, err)
	require.Len(t, got, len(want))
}

// TestAllTypesSelect: Select and OnSkip are asked of and told about each type, and Select may read a link.
func TestAllTypesSelect(t *testing.T) {
	dir, _ := ofAllTypes(t)
	var skipped []string
	opts := fileproc.Options{AllTypes: true, OnSkip: func(e fileproc.Entry, why fileproc.SkipReason) {
		text, _ := e.ReadLink()
		skipped = append(skipped, fmt.Sprint(e.Rel(), " ", e.Type(), " ", text, " ", why))
	}}
	opts.Select = func(f *fileproc.File) bool {
		text, err := f.ReadLink()
		if f.Type() == fs.ModeSymlink {
			require.NoError(t, err)
		}
		return text != "a-b/c"
	}
	require.NoError(t, fileproc.ForEach(t.Context(), dir, opts, func(f *fileproc.File) error { return nil }))
	if _, err := os.Lstat(filepath.Join(dir, "link")); err == nil {
		require.Equal(t, []string{"link L--------- a-b/c select"}, skipped)
	}
}
