package fileproc_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

func TestSelect(t *testing.T) {
	_, all := rooted(t, "small=x", "large="+testtree.Content(1000), "d/small=y", "d/large="+testtree.Content(2000), "bad.skip=")
	everyEntry(t, all, func(t *testing.T, p place, entry entryPoint, workers int) {
		opts := fileproc.Options{Workers: workers, Select: func(f *fileproc.File) bool {
			s, err := f.Stat()
			return err == nil && s.Size >= 1000 && f.Data() == nil // nothing has been read yet
		}}
		got, errs, report := entry(t, t.Context(), p, opts, func(f *fileproc.File) (string, error) {
			return fmt.Sprint(filepath.ToSlash(f.Rel()), " ", len(f.Data())), nil
		})
		require.Empty(t, errs)
		require.ElementsMatch(t, []string{"large 1000", "d/large 2000"}, got)
		require.Equal(t, map[fileproc.SkipReason]int64{fileproc.SkippedSelect: 3}, report.Skipped)
		require.EqualValues(t, 3000, report.Bytes)
	})
}

// opened is an fs.FS that remembers what was opened.
type opened struct {
	fs.FS
	mu    sync.Mutex
	names []string
}

func (o *opened) Open(name string) (fs.File, error) {
	o.mu.Lock()
	o.names = append(o.names, name)
	o.mu.Unlock()
	return o.FS.Open(name)
}

// TestPruned: an entry left out by its path is not opened, nor is a directory in which nothing could be kept.
func TestPruned(t *testing.T) {
	files := fstest.MapFS{}
	for _, name := range []string{"a/f.md", "a/b/f.md", "a/b/c/f.md", "skip/f.md", "skip/b/f.md", "x/skip/f.md", ".h/f.md", "top.md"} {
		files[name] = &fstest.MapFile{Data: []byte(name)}
	}
	files[".ignore"] = &fstest.MapFile{Data: []byte("skip/\n")}
	for name, tc := range map[string]struct {
		opts  fileproc.Options
		opens []string
	}{
		"Exclude":     {fileproc.Options{Exclude: []string{"**/skip", ".*"}}, []string{".", "a", "a/b", "a/b/c", "a/b/c/f.md", "a/b/f.md", "a/f.md", "top.md", "x"}},
		"below":       {fileproc.Options{Exclude: []string{"skip/**", "x", ".*", "a/*"}}, []string{".", "a", "top.md"}},
		"Include":     {fileproc.Options{Include: []string{"a/*/f.md"}}, []string{".", "a", "a/b", "a/b/f.md"}},
		"top":         {fileproc.Options{Include: []string{"*.md"}}, []string{".", "top.md"}},
		"any depth":   {fileproc.Options{Include: []string{"a/b/**"}}, []string{".", "a", "a/b", "a/b/c", "a/b/c/f.md", "a/b/f.md"}},
		"braces":      {fileproc.Options{Include: []string{"{a,skip}/{b,c}/*.md", "{x,skip/b}/*"}}, []string{".", "a", "a/b", "a/b/f.md", "skip", "skip/b", "skip/b/f.md", "x"}},
		"classes":     {fileproc.Options{Include: []string{"a[!x]f.md", "a[.-0]b/**", "[s-x]/*/*"}}, []string{".", "x", "x/skip", "x/skip/f.md"}},
		"both":        {fileproc.Options{Include: []string{"a/**"}, Exclude: []string{"a/b"}}, []string{".", "a", "a/f.md"}},
		"IgnoreFiles": {fileproc.Options{IgnoreFiles: []string{".ignore"}, Exclude: []string{".h"}}, []string{".", ".ignore", ".ignore", "a", "a/b", "a/b/c", "a/b/c/f.md", "a/b/f.md", "a/f.md", "top.md", "x"}},
		"SkipHidden":  {fileproc.Options{SkipHidden: true, Exclude: []string{"[asx]*"}}, []string{".", "top.md"}},
		"MaxDepth":    {fileproc.Options{MaxDepth: 1, Exclude: []string{".*"}}, []string{".", "top.md"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, ordered := range []bool{false, true} {
				fsys := &opened{FS: files}
				tc.opts.FS, tc.opts.Ordered = fsys, ordered
				require.NoError(t, drain(fileproc.Stream(t.Context(), ".", tc.opts, relOf)))
				slices.Sort(fsys.names)
				require.Equal(t, tc.opens, fsys.names)
			}
		})
	}
}

// TestPatternsHaveOneMeaning: whether a pattern matches a file does not depend on the other patterns.
func TestPatternsHaveOneMeaning(t *testing.T) {
	files := fstest.MapFS{}
	for _, name := range []string{"a/b", "a.b", "a0b", "axb", "ayb", "d/c/d", "a-c", "b/c/d"} {
		files[name] = &fstest.MapFile{}
	}
	for pattern, want := range map[string][]string{
		"a[!x]b":       {"a.b", "a0b", "ayb"},
		"a[.-0]b":      {"a.b", "a0b"},
		"a[/-0]b":      {"a0b"},
		"[!b][^x]c/d":  nil,
		"{a,b/c}/[!x]": {"a/b", "b/c/d"},
	} {
		for _, other := range []string{"none", "**/none", "a/none", "b/*/none", "{a,b}/none"} {
			got, err := fileproc.Process(t.Context(), ".", fileproc.Options{FS: files, Include: []string{other, pattern}, Ordered: true}, relOf)
			require.NoError(t, err)
			require.Equal(t, want, got, "%s beside %s", pattern, other)
			left, err := fileproc.Process(t.Context(), ".", fileproc.Options{FS: files, Exclude: []string{other, pattern}}, relOf)
			require.NoError(t, err)
			require.Len(t, left, len(files)-len(want))
			for _, rel := range want {
				require.NotContains(t, left, rel)
			}
		}
	}
}

func TestOneFilesystem(t *testing.T) {
	dir, _ := rooted(t, "a=x", "d/f=x", "mount/")
	if out, err := exec.Command("mount", "-t", "tmpfs", "none", filepath.Join(dir, "mount")).CombinedOutput(); err != nil {
		t.Skipf("nothing can be mounted here: %v %s", err, out)
	}
	t.Cleanup(func() { require.NoError(t, exec.Command("umount", filepath.Join(dir, "mount")).Run()) })
	require.True(t, testtree.Make(t, dir, "mount/f=x", "mount/d/f=x"))
	for _, one := range []bool{false, true} {
		var report fileproc.Report
		got, err := fileproc.Process(t.Context(), dir, fileproc.Options{OneFilesystem: one, Ordered: true, Report: &report}, relOf)
		require.NoError(t, err)
		requireBalanced(t, report)
		if !one {
			require.Equal(t, []string{"a", "d/f", "mount/d/f", "mount/f"}, got)
			continue
		}
		require.Equal(t, []string{"a", "d/f"}, got)
		require.Equal(t, map[fileproc.SkipReason]int64{fileproc.SkippedOtherFilesystem: 1}, report.Skipped)
	}
}

func TestSkipBinary(t *testing.T) {
	zeroAt := func(n, size int) string {
		b := bytes.Repeat([]byte{'x'}, size)
		b[n] = 0
		return string(b)
	}
	text := map[string]string{"empty": "", "small": "text", "8192": strings.Repeat("x", 8192), "8193": strings.Repeat("x", 8193),
		"zero at 8192": zeroAt(8192, 8193), "zero at 8192 of many": zeroAt(8192, 50_000), "long": strings.Repeat("x", 50_000)}
	binary := map[string]string{"zero": "\x00", "first": "\x00text", "last": "text\x00", "zeros": strings.Repeat("\x00", 500), "many zeros": strings.Repeat("\x00", 50_000),
		"zero at 8191": zeroAt(8191, 8192), "zero at 8191 of many": zeroAt(8191, 50_000)}
	dir := t.TempDir()
	copies := 30 // enough files to be read ahead, where possible
	if slow {
		copies = 2
	}
	for _, files := range []map[string]string{text, binary} {
		for name, content := range files {
			for i := range copies {
				require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(name, " ", i)), []byte(content), 0o644))
			}
		}
	}
	for _, size := range []int{0, 1, 100, 8191, 8192, 8193, 20_000} {
		for _, max := range []int64{0, 100, 8192, 9000} {
			for _, opts := range []fileproc.Options{{}, {DisableURing: true}, {Stat: true}, {FS: os.DirFS(dir)}, {Workers: 1}} {
				opts.SkipBinary, opts.ReadSize, opts.MaxFileSize = true, size, max
				var report fileproc.Report
				opts.Report = &report
				var tooLarge atomic.Int64
				opts.OnError = func(err error) error {
					if !errors.Is(err, fileproc.ErrTooLarge) {
						return err
					}
					tooLarge.Add(1)
					return nil
				}
				root := dir
				if opts.FS != nil {
					root = "."
				}
				got, err := fileproc.Process(t.Context(), root, opts, func(f *fileproc.File) (string, error) {
					name := f.Name()[:strings.LastIndexByte(f.Name(), ' ')]
					want, ok := text[name]
					if !ok {
						return "", fmt.Errorf("%s is binary", name)
					}
					cut := size > 0 && size < len(want)
					if cut {
						want = want[:size]
					}
					if string(f.Data()) != want || f.Truncated() != cut {
						return "", fmt.Errorf("%s: %d bytes, not %d", name, len(f.Data()), len(want))
					}
					return name, nil
				})
				require.NoError(t, err, "%+v", opts)
				large := 0
				for _, content := range text {
					if size == 0 && max > 0 && int64(len(content)) > max {
						large += copies
					}
				}
				require.EqualValues(t, large, tooLarge.Load())
				require.Len(t, got, copies*len(text)-large)
				require.EqualValues(t, copies*len(binary), report.Skipped[fileproc.SkippedBinary])
				requireBalanced(t, report)
			}
		}
	}
}

// TestSkipMarked: a regular file in the listing marks the directory, even if other options leave that file out.
func TestSkipMarked(t *testing.T) {
	fsys := fstest.MapFS{
		"a": {}, "d/.mark": {}, "d/b": {}, "d/e/c": {}, "link/.mark": {Mode: fs.ModeSymlink}, "link/f": {}, "dir/.mark/g": {},
		"both/.mark": {}, "both/.ignore": {Data: []byte("*\n")}, "both/h": {},
	}
	for _, opts := range []fileproc.Options{{}, {Ordered: true}, {SkipHidden: true}, {Suffixes: []string{"a", "b", "c", "f", "g", "h"}}, {IgnoreFiles: []string{".ignore"}}} {
		var report fileproc.Report
		opts.FS, opts.SkipMarked, opts.Report = fsys, []string{".mark"}, &report
		got, err := fileproc.Process(t.Context(), ".", opts, relOf)
		require.NoError(t, err)
		slices.Sort(got)
		want := []string{"a", "dir/.mark/g", "link/f"}
		if opts.SkipHidden {
			want = []string{"a", "link/f"}
		}
		require.Equal(t, want, got)
		require.EqualValues(t, 2, report.Skipped[fileproc.SkippedMarked])
		opts.OnSkip = func(e fileproc.Entry, _ fileproc.SkipReason) { require.Equal(t, "d", e.Path()) }
		got, err = fileproc.Process(t.Context(), "d", opts, relOf)
		require.NoError(t, err)
		require.Empty(t, got, "root too")
		require.Equal(t, fileproc.Report{Found: 1, Skipped: map[fileproc.SkipReason]int64{fileproc.SkippedMarked: 1}, Elapsed: report.Elapsed, Listed: true}, report)
	}
	for _, bad := range []string{"", ".", "..", "a/b", "a\x00"} {
		_, err := fileproc.Process(t.Context(), ".", fileproc.Options{FS: fsys, SkipMarked: []string{bad}}, relOf)
		require.ErrorContains(t, err, "Options.SkipMarked")
	}
}

// In withoutTag, no file CACHEDIR.TAG can be opened.
type withoutTag struct{ fs.FS }

func (f withoutTag) Open(name string) (fs.File, error) {
	if path.Base(name) == "CACHEDIR.TAG" {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return f.FS.Open(name)
}

// TestCacheTag: a CACHEDIR.TAG marks a directory only with its signature; with "*/" in front of its name, no file marks root.
func TestCacheTag(t *testing.T) {
	tag := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	fsys := fstest.MapFS{
		"a": {}, "CACHEDIR.TAG": tag(cacheSignature), "tagged/CACHEDIR.TAG": tag(cacheSignature + "\n# made by a test\n"), "tagged/b": {}, "tagged/sub/c": {},
		"empty/CACHEDIR.TAG": {}, "empty/d": {}, "short/CACHEDIR.TAG": tag(cacheSignature[:42]), "other/CACHEDIR.TAG": tag(" " + cacheSignature), "both/CACHEDIR.TAG": {}, "both/.mark": {},
	}
	want := []string{"CACHEDIR.TAG", "a", "empty/CACHEDIR.TAG", "empty/d", "other/CACHEDIR.TAG", "short/CACHEDIR.TAG"}
	for _, opts := range []fileproc.Options{{}, {Ordered: true}, {IgnoreFiles: []string{".ignore"}}, {Files: slices.Values(slices.Sorted(maps.Keys(fsys)))}} {
		var report fileproc.Report
		opts.FS, opts.SkipMarked, opts.Report = fsys, []string{"*/CACHEDIR.TAG", ".mark"}, &report
		got, err := fileproc.Process(t.Context(), ".", opts, relOf)
		require.NoError(t, err)
		slices.Sort(got)
		require.Equal(t, want, got)
		requireBalanced(t, report)
		opts.SkipMarked = []string{"CACHEDIR.TAG"}
		got, err = fileproc.Process(t.Context(), ".", opts, relOf)
		require.NoError(t, err)
		require.Empty(t, got)
	}
	files := withoutTag{fsys}
	got, err := fileproc.Process(t.Context(), "empty", fileproc.Options{FS: files, SkipMarked: []string{"CACHEDIR.TAG"}, Suffixes: []string{"d"}}, relOf)
	require.ErrorContains(t, err, "open empty/CACHEDIR.TAG: permission denied", "nothing is left out in silence")
	require.Equal(t, []string{"d"}, got)
}

// SelectDir is asked about the directories that are to be opened, and about no other; Walk, which yields them, asks about all.
func TestSelectDirAndDepth(t *testing.T) {
	root, _ := rooted(t, "a/b/c/f=", "d/f=")
	for depth, want := range map[int][]string{0: {"a", "a/b", "a/b/c", "d"}, 1: nil, 2: {"a", "d"}, 3: {"a", "a/b", "d"}} {
		var mu sync.Mutex
		var asked []string
		opts := fileproc.Options{MaxDepth: depth, SelectDir: func(e fileproc.Entry) bool {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, e.Rel())
			return true
		}}
		require.NoError(t, fileproc.ForEach(t.Context(), root, opts, func(*fileproc.File) error { return nil }))
		require.ElementsMatch(t, want, asked)
	}
}
