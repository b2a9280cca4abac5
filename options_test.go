package fileproc_test

import (
	"archive/zip"
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

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

// few is an fs.FS that has no descriptor left for the first opens of a name.
type few struct {
	fs.FS
	name string
	left atomic.Int64
}

func (f *few) Open(name string) (fs.File, error) {
	if name == f.name && f.left.Add(-1) >= 0 {
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.EMFILE}
	}
	return f.FS.Open(name)
}

// TestIgnoreFilesFewDescriptors: an ignore file waits for a descriptor as everything does.
func TestIgnoreFilesFewDescriptors(t *testing.T) {
	for _, file := range []string{"d/rules", "rules"} {
		fsys := &few{FS: fstest.MapFS{"d/rules": {Data: []byte("x\n")}, "d/x": {}, "rules": {Data: []byte("x\n")}, "y": {}}, name: file}
		fsys.left.Store(4)
		got, err := fileproc.Process(t.Context(), ".", fileproc.Options{FS: fsys, IgnoreFiles: []string{file}, Ordered: true}, relOf)
		require.NoError(t, err)
		require.Equal(t, []string{"d/rules", "rules", "y"}, got)
		require.Negative(t, fsys.left.Load())
	}
}

// TestPruned: what is left out by its path is not opened, nor are directories in which nothing could be kept.
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

// TestPrunedBySystem: a directory that cannot be opened is no failure where nothing is to be opened.
func TestPrunedBySystem(t *testing.T) {
	dir := t.TempDir()
	require.True(t, testtree.Make(t, dir, "skip/f=x", "ok/f=x", ".ignore=skip\n"))
	skip := filepath.Join(dir, "skip")
	require.NoError(t, os.Chmod(skip, 0))
	t.Cleanup(func() { os.Chmod(skip, 0o755) })
	if _, err := os.ReadDir(skip); err == nil {
		t.Skip("permissions do not stop this user, or not here; scripts/test.sh --all runs this as a user whom they stop")
	}
	for _, opts := range []fileproc.Options{{Exclude: []string{"skip"}}, {Include: []string{"ok/*"}}, {IgnoreFiles: []string{".ignore"}}} {
		_, err := fileproc.Process(t.Context(), dir, opts, relOf)
		require.NoError(t, err)
	}
	_, err := fileproc.Process(t.Context(), dir, fileproc.Options{}, relOf)
	require.ErrorIs(t, err, fs.ErrPermission)
}

// TestIgnoreFilesAgainstGit compares whole runs over generated trees with what git lists: the ignore files of the
// directories, and two that hold for all.
func TestIgnoreFilesAgainstGit(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("nothing to compare with: ", err)
	}
	if runtime.GOOS == "windows" || runtime.GOOS == "darwin" {
		t.Skip("the generated names are not all possible here")
	}
	trees := 120
	if testing.Short() {
		trees = 20
	}
	run := func(dir string, args ...string) string {
		cmd := exec.Command(git, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_SYSTEM="+os.DevNull, "XDG_CONFIG_HOME="+dir, "HOME="+dir)
		out, err := cmd.Output()
		require.NoError(t, err, "git %v", args)
		return string(out)
	}
	kept, all, within := 0, 0, 0
	for i := range trees {
		root := t.TempDir()
		run(root, "init", "-q")
		global := filepath.Join(t.TempDir(), "global")
		g := testtree.IgnoreGenerator{Rand: rand.New(rand.NewPCG(7, uint64(i)))}
		tree := g.Tree()
		var paths []string
		for name, content := range tree {
			paths = append(paths, name)
			full := filepath.Join(root, name)
			require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
			require.NoError(t, os.WriteFile(full, []byte(content), 0o644))
		}
		slices.Sort(paths)
		require.NoError(t, os.WriteFile(global, []byte(g.Ignore(paths)), 0o644))
		require.NoError(t, os.WriteFile(filepath.Join(root, ".git", "info", "exclude"), []byte(g.Ignore(paths)), 0o644))
		want := strings.Split(strings.TrimSuffix(run(root, "-c", "core.excludesFile="+global, "ls-files", "-co", "--exclude-standard", "-z"), "\x00"), "\x00")
		want = slices.DeleteFunc(want, func(s string) bool { return s == "" })
		slices.Sort(want)
		kept, all = kept+len(want), all+len(tree)
		for _, workers := range []int{1, 4} {
			for _, ordered := range []bool{false, true} {
				for _, p := range places(root) {
					if p.fsys != nil && slices.ContainsFunc(paths, func(s string) bool { return !fs.ValidPath(s) }) {
						continue // bytes that are no UTF-8
					}
					opts := fileproc.Options{FS: p.fsys, Workers: workers, Ordered: ordered, IgnoreFiles: []string{global, ".git/info/exclude", ".gitignore"}, Exclude: []string{".git"}}
					got := []string{}
					for rel, err := range fileproc.Stream(t.Context(), p.root, opts, relOf) {
						require.NoError(t, err)
						got = append(got, rel)
					}
					slices.Sort(got)
					require.Equal(t, append([]string{}, want...), got, "tree %d in %s", i, p.name)
				}
			}
		}

		// A run that begins in a directory that is not ignored, with the ignore files above it.
		resolved, err := filepath.EvalSymlinks(root)
		require.NoError(t, err)
		global, err = filepath.EvalSymlinks(global)
		require.NoError(t, err)
		below := map[string][]string{}
		for _, file := range want {
			for end := range file {
				if file[end] == '/' {
					below[file[:end]] = append(below[file[:end]], file[end+1:])
				}
			}
		}
		for dir, want := range below {
			up := strings.Repeat("../", strings.Count(dir, "/")+1)
			fromTop, err := filepath.Rel(resolved, global)
			require.NoError(t, err)
			files := []string{up + "./" + filepath.ToSlash(fromTop), strings.ReplaceAll(up, "/", "//") + ".git/info/exclude"}
			for ; up != ""; up = up[len("../"):] {
				files = append(files, up+".gitignore")
			}
			opts := fileproc.Options{Ordered: true, IgnoreFiles: append(files, ".gitignore")}
			got, err := fileproc.Process(t.Context(), filepath.Join(root, dir), opts, relOf)
			require.NoError(t, err)
			slices.Sort(got)
			require.Equal(t, want, got, "tree %d, %q", i, dir)
			within++
		}
	}
	require.Greater(t, within, trees, "runs in subdirectories")
	require.Greater(t, kept, all/4, "the generated patterns ignore too much to tell anything")
	require.Less(t, kept, all*3/4, "the generated patterns ignore too little to tell anything")
}

func TestIgnoreFiles(t *testing.T) {
	dir, _ := rooted(t,
		".one=*.a\n!k.b\n", ".two=*.b\n!k.a\n", "x.a", "x.b", "x.c", "k.a", "k.b",
		"d/.one=!*.a\n", "d/x.a", "d/x.b", "d/k.b", "sub/global=*.c\n", "sub/x.c", ".git=gitdir: elsewhere\n")
	for name, tc := range map[string]struct {
		files []string
		want  string
	}{
		"the later name counts more":         {[]string{".one", ".two"}, "d/k.a d/x.a k.a sub/x.c x.c"},
		"and in the other order":             {[]string{".two", ".one"}, "d/k.b d/x.a k.b sub/x.c x.c"},
		"a path within root":                 {[]string{"sub/global"}, "d/k.b d/x.a d/x.b k.a k.b x.a x.b"},
		"an absolute path":                   {[]string{filepath.Join(dir, "sub", "global"), ".one"}, "d/k.b d/x.a d/x.b k.b x.b"},
		"names count more than paths":        {[]string{".one", "sub/../.two"}, "d/k.b d/x.a k.b sub/x.c x.c"},
		"a path that is not there":           {[]string{"sub/none", "none/none", ".git/info/exclude"}, "d/k.b d/x.a d/x.b k.a k.b sub/x.c x.a x.b x.c"},
		"a name that is not there":           {[]string{".three"}, "d/k.b d/x.a d/x.b k.a k.b sub/x.c x.a x.b x.c"},
		"the later path counts more":         {[]string{filepath.Join(dir, ".one"), filepath.Join(dir, ".two")}, "d/k.a k.a sub/x.c x.c"},
		"a file that is ignored is yet read": {[]string{".one", ".two", "d/.one"}, "d/k.a d/x.a k.a sub/x.c x.c"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, p := range places(dir) {
				if p.fsys != nil && slices.ContainsFunc(tc.files, func(f string) bool { return strings.Contains(f, "..") }) {
					continue
				}
				opts := fileproc.Options{IgnoreFiles: tc.files, FS: p.fsys, Ordered: true, Exclude: []string{"**/.*", "sub/global"}}
				got, err := fileproc.Process(t.Context(), p.root, opts, relOf)
				require.NoError(t, err)
				want := strings.Fields(tc.want)
				want = slices.DeleteFunc(want, func(s string) bool { _, err := os.Stat(filepath.Join(dir, s)); return err != nil })
				require.Equal(t, want, got, p.name)
			}
		})
	}
	t.Run("above root", func(t *testing.T) {
		for _, p := range places(filepath.Dir(dir)) {
			root := filepath.Base(dir)
			if p.fsys == nil {
				root = dir
			}
			opts := fileproc.Options{FS: p.fsys, Ordered: true, IgnoreFiles: []string{"../.above"}, Exclude: []string{"**/.*"}}
			require.NoError(t, os.WriteFile(filepath.Join(dir, "..", ".above"), []byte("/"+filepath.Base(dir)+"/d\n/sub\nx.a\n*/k.*\n"), 0o666))
			got, err := fileproc.Process(t.Context(), root, opts, relOf)
			require.NoError(t, err)
			require.Equal(t, []string{"sub/global", "sub/x.c", "x.b", "x.c"}, got, p.name)
		}
	})
	t.Run("above the top", func(t *testing.T) {
		sub := os.DirFS(filepath.Join(dir, "sub"))
		_, err := fileproc.Process(t.Context(), ".", fileproc.Options{IgnoreFiles: []string{"../.one"}, FS: sub}, relOf)
		require.ErrorContains(t, err, "above Options.FS")
		_, err = fileproc.Process(t.Context(), dir, fileproc.Options{IgnoreFiles: []string{strings.Repeat("../", 100) + "none"}}, relOf)
		require.NoError(t, err)
	})
	t.Run("a path that cannot be read ends the run", func(t *testing.T) {
		for _, p := range places(dir) {
			_, err := fileproc.Process(t.Context(), p.root, fileproc.Options{IgnoreFiles: []string{"sub/"}, FS: p.fsys}, relOf)
			var e *fs.PathError
			require.ErrorAs(t, err, &e)
		}
	})
	t.Run("a link is not used", func(t *testing.T) {
		dir := t.TempDir()
		if !testtree.Make(t, dir, "rules=*.a\n", ".one -> rules", "x.a", "x.b") {
			t.Skip("symbolic links cannot be made here")
		}
		got, err := fileproc.Process(t.Context(), dir, fileproc.Options{IgnoreFiles: []string{".one"}, Ordered: true}, relOf)
		require.NoError(t, err)
		require.Equal(t, []string{"rules", "x.a", "x.b"}, got)
	})
	t.Run("the last of a long listing", func(t *testing.T) {
		many := 3000
		if slow {
			many = 300
		}
		files := fstest.MapFS{"~ignore": {Data: []byte("f*7\nd/\n")}, "d/f": {}}
		var want []string
		for i := range many {
			name := fmt.Sprintf("f%04d", i)
			files[name] = &fstest.MapFile{}
			if i%10 != 7 {
				want = append(want, name)
			}
		}
		want = append(want, "~ignore")
		dir := t.TempDir()
		require.NoError(t, os.CopyFS(dir, files))
		for _, p := range []place{{"os", dir, nil}, {"memory", ".", files}} {
			got, err := fileproc.Process(t.Context(), p.root, fileproc.Options{IgnoreFiles: []string{"~ignore"}, FS: p.fsys, Ordered: true}, relOf)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
	})
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
	for _, files := range []map[string]string{text, binary} {
		for name, content := range files {
			for i := range 30 { // so many that they are read ahead, if they can be
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
						large += 30
					}
				}
				require.EqualValues(t, large, tooLarge.Load())
				require.Len(t, got, 30*len(text)-large)
				require.EqualValues(t, 30*len(binary), report.Skipped[fileproc.SkippedBinary])
				requireBalanced(t, report)
			}
		}
	}
}

// TestShards: the parts are what they were when this was written, disjoint and complete, and of one size.
func TestShards(t *testing.T) {
	files := fstest.MapFS{}
	for i := range 500 {
		files[fmt.Sprintf("d%02d/s%d/f%03d.md", i%13, i%3, i)] = &fstest.MapFile{}
	}
	for rel := range goldenShards {
		if fs.ValidPath(rel) && rel != "a" {
			files[rel] = &fstest.MapFile{}
		}
	}
	for _, n := range []int{1, 2, 3, 8, 1000} {
		seen := map[string]bool{}
		for i := range n {
			got, err := fileproc.Process(t.Context(), ".", fileproc.Options{FS: files, Shards: n, Shard: i}, relOf)
			require.NoError(t, err)
			for _, rel := range got {
				require.False(t, seen[rel], rel)
				seen[rel] = true
				if want, ok := goldenShards[rel]; ok && n == 8 {
					require.Equal(t, want, i, rel)
				}
			}
		}
		require.Len(t, seen, len(files))
	}
}

// goldenShards are the parts of 8 that some paths belong to, as hash/fnv and MurmurHash3's finalizer give them.
var goldenShards = map[string]int{"a": 3, "a/b.txt": 5, "notes/2024/plan.md": 5, "README.md": 5, "d/é.md": 2}

func TestProgress(t *testing.T) {
	dir := spread(t, 20, 50)
	for _, entry := range []string{"Process", "Stream"} {
		for _, ordered := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/ordered=%v", entry, ordered), func(t *testing.T) {
				watchdog(t)
				var final fileproc.Report
				var reports []fileproc.Report
				var inside atomic.Int64
				enough := make(chan struct{})
				opts := fileproc.Options{Workers: 4, Ordered: ordered, Report: &final, Suffixes: []string{"1", "2", "3"}, OnProgress: func(r fileproc.Report) {
					if inside.Add(1) != 1 {
						t.Error("two calls at a time")
					}
					defer inside.Add(-1)
					if reports = append(reports, r); len(reports) == 3 {
						close(enough)
					}
				}}
				require.NoError(t, entryPoints[entry](t.Context(), dir, opts, func(*fileproc.File) (int, error) {
					select {
					case <-enough:
					case <-time.After(5 * time.Millisecond):
					}
					return 0, nil
				}))
				n := len(reports)
				require.GreaterOrEqual(t, n, 2, "300 files of 5 ms on 4 workers")
				require.Equal(t, final, reports[n-1])
				require.EqualValues(t, 300, final.Processed)
				requireBalanced(t, final)
				for i := range n - 1 {
					requireNoLess(t, reports[i], reports[i+1])
				}
				time.Sleep(150 * time.Millisecond)
				require.Len(t, reports, n, "called after the return")
			})
		}
	}
}

func requireNoLess(t *testing.T, a, b fileproc.Report) {
	t.Helper()
	require.LessOrEqual(t, a.Found, b.Found)
	require.LessOrEqual(t, a.Processed, b.Processed)
	require.LessOrEqual(t, a.Directories, b.Directories)
	require.LessOrEqual(t, a.Failed, b.Failed)
	require.LessOrEqual(t, a.Bytes, b.Bytes)
	require.LessOrEqual(t, a.Elapsed, b.Elapsed)
	for why, n := range a.Skipped {
		require.LessOrEqual(t, n, b.Skipped[why])
	}
}

// TestProgressIsFinal: however a run ends, the last call has its Report; bad input is no run.
func TestProgressIsFinal(t *testing.T) {
	dir := spread(t, 3, 5)
	for name, tc := range map[string]struct {
		root  string
		opts  fileproc.Options
		fn    func(*fileproc.File) (int, error)
		calls bool
	}{
		"nothing to do":  {t.TempDir(), fileproc.Options{}, succeed, true},
		"all":            {dir, fileproc.Options{}, succeed, true},
		"SkipAll":        {dir, fileproc.Options{}, func(*fileproc.File) (int, error) { return 0, fs.SkipAll }, true},
		"stopped":        {dir, fileproc.Options{OnError: func(err error) error { return err }}, fail, true},
		"no root":        {filepath.Join(dir, "none"), fileproc.Options{}, succeed, true},
		"no ignore file": {dir, fileproc.Options{IgnoreFiles: []string{"dir0000/"}}, succeed, true},
		"bad input":      {dir, fileproc.Options{MaxDepth: -1}, succeed, false},
		"bad pattern":    {dir, fileproc.Options{Include: []string{"["}}, succeed, false},
	} {
		for entry, call := range entryPoints {
			for _, ordered := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/%v", name, entry, ordered), func(t *testing.T) {
					var final, last fileproc.Report
					calls := 0
					tc.opts.Report, tc.opts.Ordered = &final, ordered
					tc.opts.OnProgress = func(r fileproc.Report) { calls++; last = r }
					leavesNothing(t, func() { _ = call(t.Context(), tc.root, tc.opts, tc.fn) })
					require.Equal(t, tc.calls, calls > 0)
					require.Equal(t, final, last)
					requireBalanced(t, final)
				})
			}
		}
	}
}

// TestGoroutinesOfCallbacks: on which goroutine OnError and OnProgress run.
func TestGoroutinesOfCallbacks(t *testing.T) {
	dir := spread(t, 20, 15)
	goroutine := func() string {
		var stack [64]byte
		return strings.Fields(string(stack[:runtime.Stack(stack[:], false)]))[1]
	}
	for entry, call := range entryPoints {
		for _, ordered := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/ordered=%v", entry, ordered), func(t *testing.T) {
				watchdog(t)
				var onFn, onError sync.Map
				var onProgress []string
				err := call(t.Context(), dir, fileproc.Options{
					Workers: 4,
					Ordered: ordered,
					OnError: func(err error) error {
						_, metByFn := onFn.Load(goroutine() + err.(*fs.PathError).Path)
						require.True(t, metByFn, "OnError is on another goroutine than the failure")
						onError.Store(goroutine(), true)
						return nil
					},
					OnProgress: func(fileproc.Report) { onProgress = append(onProgress, goroutine()) },
				}, func(f *fileproc.File) (int, error) {
					onFn.Store(goroutine()+f.Path(), true)
					time.Sleep(3 * time.Millisecond)
					return 0, errors.New("fails")
				})
				require.NoError(t, err)
				caller := goroutine()
				_, failedHere := onError.Load(caller)
				last := len(onProgress) - 1
				require.NotContains(t, onProgress[:last], caller)
				if entry != "Stream" {
					require.True(t, failedHere, "the caller is a worker")
					require.Equal(t, caller, onProgress[last])
				} else {
					require.False(t, failedHere, "the loop's goroutine is no worker")
					require.NotEqual(t, caller, onProgress[last])
				}
			})
		}
	}
}

// TestProgressMishaps: a panic in OnProgress, and a Goexit, reach the caller.
func TestProgressMishaps(t *testing.T) {
	dir := spread(t, 20, 15)
	for name, stop := range map[string]func(){"panic": func() { panic("told too much") }, "Goexit": runtime.Goexit} {
		for entry, call := range entryPoints {
			for _, final := range []bool{false, true} {
				for _, ordered := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s/%s/final=%v/%v", name, entry, final, ordered), func(t *testing.T) {
						watchdog(t)
						var caught any
						returned := false
						var once sync.Once
						told := make(chan struct{})
						opts := fileproc.Options{Workers: 4, Ordered: ordered, OnProgress: func(fileproc.Report) {
							once.Do(func() { defer close(told); stop() })
						}}
						leavesNothing(t, func() {
							done := make(chan struct{})
							go func() {
								defer close(done)
								defer func() { caught = recover() }()
								_ = call(t.Context(), dir, opts, func(*fileproc.File) (int, error) {
									if !final {
										<-told
									}
									return 0, nil
								})
								returned = true
							}()
							<-done
						})
						require.False(t, returned)
						if name == "panic" {
							require.ErrorContains(t, asError(caught), "told too much")
						}
					})
				}
			}
		}
	}
}

func asError(v any) error {
	if err, ok := v.(error); ok {
		return err
	}
	return fmt.Errorf("%v", v)
}

func TestReportString(t *testing.T) {
	for want, r := range map[string]fileproc.Report{
		"0 files processed, 0 B read, 0 directories, in 0s":                                        {},
		"3 files processed, 999 B read, 2 directories, in 1.5ms":                                   {Processed: 3, Bytes: 999, Directories: 2, Elapsed: 1500 * time.Microsecond},
		"1 file processed, 1.0 kB read, 1 directory, in 12ms":                                      {Processed: 1, Bytes: 1000, Directories: 1, Elapsed: 12_345 * time.Microsecond},
		"1 file processed, 1.0 MB read, 1 directory, in 1m0.001s":                                  {Processed: 1, Bytes: 999_950, Directories: 1, Elapsed: time.Minute + time.Millisecond},
		"3 files delivered, 1 of them processed, 9 B read, 1 directory, 2 skipped (func 2), in 0s": {Processed: 1, Bytes: 9, Directories: 1, Skipped: map[fileproc.SkipReason]int64{fileproc.SkippedByFunc: 2}},
		"0 files processed, 9.2 EB read, 0 directories, 1 failed, in 0s":                           {Bytes: 1<<63 - 1, Failed: 1},
		"0 files processed, 0 B read, 0 directories, 5 skipped (binary 2, suffix 3), 1 failed, 4 abandoned, in 0s": {
			Skipped: map[fileproc.SkipReason]int64{fileproc.SkippedSuffix: 3, fileproc.SkippedBinary: 2}, Failed: 1, Abandoned: 4},
	} {
		require.Equal(t, want, r.String())
	}
}

//go:embed docs/*.md
var docs embed.FS

// TestFSKinds reads what others give as an fs.FS.
func TestFSKinds(t *testing.T) {
	want := map[string]string{"a.md": "alpha", "d/b.md": "beta", "d/e/c.md": testtree.Content(70_000), "d/empty": ""}
	dir := t.TempDir()
	memory := fstest.MapFS{}
	var archive bytes.Buffer
	z := zip.NewWriter(&archive)
	for name, content := range want {
		require.True(t, testtree.Make(t, dir, name+"="+content))
		memory[name] = &fstest.MapFile{Data: []byte(content)}
		w, err := z.Create(name)
		require.NoError(t, err)
		_, err = w.Write([]byte(content))
		require.NoError(t, err)
	}
	require.NoError(t, z.Close())
	zipped, err := zip.NewReader(bytes.NewReader(archive.Bytes()), int64(archive.Len()))
	require.NoError(t, err)
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer root.Close()
	sub, err := fs.Sub(os.DirFS(filepath.Dir(dir)), filepath.Base(dir))
	require.NoError(t, err)
	for name, fsys := range map[string]fs.FS{"zip": zipped, "os.DirFS": os.DirFS(dir), "os.Root": root.FS(), "memory": memory, "fs.Sub": sub} {
		for _, ordered := range []bool{false, true} {
			opts := fileproc.Options{FS: fsys, Ordered: ordered, Workers: 3}
			got := map[string]string{}
			for f, err := range fileproc.Stream(t.Context(), ".", opts, func(f *fileproc.File) ([2]string, error) {
				s, err := f.Stat()
				if err == nil && s.Size != int64(len(f.Data())) {
					err = errors.New("another size")
				}
				return [2]string{f.Rel(), string(f.Data())}, err
			}) {
				require.NoError(t, err, name)
				got[f[0]] = f[1]
			}
			require.Equal(t, want, got, name)
		}
	}
	_, err = fileproc.Process(t.Context(), "docs", fileproc.Options{FS: docs, SkipBinary: true}, func(f *fileproc.File) (string, error) {
		content, err := docs.ReadFile(f.Path())
		if err == nil && (len(content) == 0 || !bytes.Equal(content, f.Data())) {
			err = errors.New("another content")
		}
		return f.Rel(), err
	})
	require.NoError(t, err)
}

// broken is a file of an fs.FS that breaks off with an error, of which it tells together with the last content.
type broken struct {
	fs.File
	told bool
}

var errBrokenOff = errors.New("broken off")

func (b *broken) Read(p []byte) (int, error) {
	if b.told {
		return 0, io.EOF
	}
	b.told = true
	return copy(p, "half"), errBrokenOff
}

type brokenFS struct{ fs.FS }

func (b brokenFS) Open(name string) (fs.File, error) {
	f, err := b.FS.Open(name)
	if _, lists := f.(fs.ReadDirFile); err != nil || lists {
		return f, err
	}
	return &broken{File: f}, nil
}

// What comes together with an error is not all of a file.
func TestFSReadsBreakOff(t *testing.T) {
	fsys := brokenFS{fstest.MapFS{"f": {Data: []byte("half of it")}}}
	got, err := fileproc.Process(t.Context(), ".", fileproc.Options{FS: fsys}, relOf)
	require.Empty(t, got)
	require.ErrorIs(t, err, errBrokenOff)
}

// stuck is an fs.FS of which no directory can be listed, however often it is asked.
type stuck struct{ fs.FS }

type stuckFile struct{ fs.ReadDirFile }

func (s stuck) Open(name string) (fs.File, error) {
	f, err := s.FS.Open(name)
	if d, lists := f.(fs.ReadDirFile); lists {
		return stuckFile{d}, err
	}
	return f, err
}

func (stuckFile) ReadDir(int) ([]fs.DirEntry, error) {
	return nil, &fs.PathError{Op: "lstat", Path: "there", Err: fs.ErrPermission}
}

// An error that comes again and again is that of the listing, also if it is one that package os has for an entry.
func TestFSListingIsStuck(t *testing.T) {
	told := 0
	var report fileproc.Report
	_, err := fileproc.Process(t.Context(), ".", fileproc.Options{FS: stuck{fstest.MapFS{"f": {}}}, Report: &report, OnError: func(err error) error {
		require.ErrorIs(t, err, fs.ErrPermission)
		if told++; told > 9 {
			panic("the listing does not end")
		}
		return nil
	}}, relOf)
	require.NoError(t, err)
	require.Equal(t, 1, told)
	require.EqualValues(t, 1, report.Failed)
}

// believing is an fs.FS whose directory d lists besides what it has. What is listed can be opened, by whatever path.
type believing struct {
	fstest.MapFS
	lists  []fs.DirEntry
	opened atomic.Int64
}

type believingDir struct {
	fs.ReadDirFile
	more []fs.DirEntry
}

func (b *believing) Open(name string) (fs.File, error) {
	if b.opened.Add(1) > 10_000 {
		panic("the run does not end")
	}
	f, err := b.MapFS.Open(name)
	if err != nil {
		return b.MapFS.Open("secret")
	}
	if d, ok := f.(fs.ReadDirFile); ok && name == "d" {
		return &believingDir{d, b.lists}, nil
	}
	return f, nil
}

func (d *believingDir) ReadDir(n int) ([]fs.DirEntry, error) {
	entries, err := d.ReadDirFile.ReadDir(n)
	entries = append(entries, d.more...)
	if d.more = nil; len(entries) > 0 {
		err = nil
	}
	return entries, err
}

type listedEntry struct {
	fs.DirEntry
	name string
	typ  fs.FileMode
}

func (e listedEntry) Name() string      { return e.name }
func (e listedEntry) Type() fs.FileMode { return e.typ }
func (e listedEntry) IsDir() bool       { return e.typ.IsDir() }

// A name that is none is a failure of its own, that names it, and nothing is opened by it.
func TestInvariant3FSListsNamesThatAreNone(t *testing.T) {
	names := []string{"", ".", "..", "/", "a/b", "../secret", "../../secret", "/secret", "sub/", "./", "x\x00", "\x00"}
	types := []fs.FileMode{0, fs.ModeDir, fs.ModeSymlink, fs.ModeIrregular, fs.ModeType}
	fsys := &believing{MapFS: fstest.MapFS{"secret": {}, "top": {}, "d/f": {}, "d/.h": {}, "d/sub/g": {}, "d/.ignore": {Data: []byte("none\n")}}}
	for _, name := range names {
		for _, typ := range types {
			fsys.lists = append(fsys.lists, listedEntry{name: name, typ: typ})
		}
	}
	walked := func(ctx context.Context, root string, opts fileproc.Options) iter.Seq2[string, error] {
		return func(yield func(string, error) bool) {
			for e, err := range fileproc.Walk(ctx, root, opts) {
				if (err != nil || !e.IsDir()) && !yield(e.Rel(), err) {
					return
				}
			}
		}
	}
	visible := []string{"d/f", "d/sub/g", "secret", "top"}
	all := append([]string{"d/.h", "d/.ignore"}, visible...)
	for what, tc := range map[string]struct {
		opts fileproc.Options
		want []string
	}{
		"the zero Options": {fileproc.Options{}, all},
		"SkipHidden":       {fileproc.Options{SkipHidden: true}, visible},
		"IgnoreFiles":      {fileproc.Options{IgnoreFiles: []string{".ignore"}}, all},
		"both":             {fileproc.Options{SkipHidden: true, IgnoreFiles: []string{".ignore"}}, visible},
		"Include":          {fileproc.Options{Include: []string{"d/**", "*"}}, all},
		"Exclude":          {fileproc.Options{Exclude: []string{"d/sub"}}, slices.DeleteFunc(slices.Clone(all), func(s string) bool { return s == "d/sub/g" })},
		"Suffixes":         {fileproc.Options{Suffixes: []string{"f", "g", "et"}}, []string{"d/f", "d/sub/g", "secret"}},
		"Shards":           {fileproc.Options{Shards: 1}, all},
		"Stat":             {fileproc.Options{Stat: true}, all},
		"NoRead and Stat":  {fileproc.Options{ReadSize: fileproc.NoRead, Stat: true}, all},
		"Select":           {fileproc.Options{Select: func(f *fileproc.File) bool { _, err := f.Stat(); return err == nil }}, all},
	} {
		for _, ordered := range []bool{false, true} {
			for _, workers := range []int{1, 4} {
				opts := tc.opts
				var report fileproc.Report
				opts.FS, opts.Ordered, opts.Workers, opts.Report = fsys, ordered, workers, &report
				for call, results := range map[string]iter.Seq2[string, error]{
					"Stream": fileproc.Stream(t.Context(), ".", opts, relOf), "Walk": walked(t.Context(), ".", opts),
				} {
					fsys.opened.Store(0)
					var got []string
					told := map[string]int{}
					for rel, err := range results {
						if err == nil {
							got = append(got, rel)
							continue
						}
						var e *fs.PathError
						require.ErrorAs(t, err, &e)
						require.ErrorIs(t, err, fs.ErrInvalid)
						require.Equal(t, "d", e.Path, "the directory that lists it")
						name, _, _ := strings.Cut(e.Err.Error(), " cannot be the name of an entry")
						told[name]++
					}
					slices.Sort(got)
					require.Equal(t, tc.want, got, "%s, %s", what, call)
					for _, name := range names {
						require.Equal(t, len(types), told[strconv.Quote(name)], "%q: %s, %s", name, what, call)
					}
					require.EqualValues(t, len(names)*len(types), report.Failed)
					requireBalanced(t, report)
				}
			}
		}
	}
	got, err := fileproc.Process(t.Context(), "d", fileproc.Options{FS: fsys, SkipHidden: true, Ordered: true}, relOf)
	require.Equal(t, []string{"f", "sub/g"}, got)
	require.ErrorIs(t, err, fs.ErrInvalid)
}

func relOf(f *fileproc.File) (string, error) { return f.Rel(), nil }

// TestDependencies: who imports fileproc gets these modules and no others.
func TestDependencies(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", ".").Output()
	if err != nil {
		t.Skip("no go command, or not in the module's directory: ", err)
	}
	got := strings.Fields(string(out))
	slices.Sort(got)
	allowed := []string{"github.com/bmatcuk/doublestar/v4", "github.com/fileproc/fileproc", "golang.org/x/sync", "golang.org/x/sys"}
	require.Subset(t, allowed, slices.Compact(got))
	require.Contains(t, got, "github.com/fileproc/fileproc")

	mod, err := os.ReadFile("go.mod")
	require.NoError(t, err)
	for _, line := range strings.Split(string(mod), "\n") {
		fields := strings.Fields(strings.TrimPrefix(line, "require "))
		if len(fields) < 2 || !strings.HasPrefix(fields[1], "v") {
			continue
		}
		require.Contains(t, append(allowed, "github.com/stretchr/testify", "go.yaml.in/yaml/v3"), fields[0])
	}
}

// TestEntryIsADirEntry: an Entry tells what a file is, with Options.Stat as Walk found it and else as it is now.
func TestEntryIsADirEntry(t *testing.T) {
	dir := t.TempDir()
	require.True(t, testtree.Make(t, dir, "a=x", "d/b=xy"))
	for _, stat := range []bool{false, true} {
		var all []fileproc.Entry
		for e, err := range fileproc.Walk(t.Context(), dir, fileproc.Options{Stat: stat, Ordered: true}) {
			require.NoError(t, err)
			all = append(all, e)
		}
		require.Len(t, all, 3)
		for _, e := range all {
			want, err := os.Lstat(e.Path())
			require.NoError(t, err)
			require.Equal(t, fs.FormatDirEntry(fs.FileInfoToDirEntry(want)), e.String())
			info, err := e.Info()
			require.NoError(t, err)
			require.Equal(t, e.Name(), info.Name())
			require.Equal(t, want.Mode(), info.Mode())
			require.Equal(t, want.IsDir(), info.IsDir())
			require.True(t, want.ModTime().Equal(info.ModTime()))
			s, err := e.Stat()
			require.NoError(t, err)
			require.Equal(t, want.Size(), s.Size)
			require.Equal(t, s.Size, info.Size())
		}
		require.NoError(t, os.WriteFile(all[0].Path(), []byte("longer"), 0o666))
		info, err := all[0].Info()
		require.NoError(t, err)
		require.Equal(t, map[bool]int64{true: 1, false: 6}[stat], info.Size())
		require.NoError(t, os.Remove(all[0].Path()))
		_, err = all[0].Stat()
		if stat {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, fs.ErrNotExist)
		}
		require.NoError(t, os.WriteFile(all[0].Path(), []byte("x"), 0o666))
	}
	stored := fstest.MapFS{"a": {Mode: fs.ModeIrregular, Data: []byte("x")}}
	for e, err := range fileproc.Walk(t.Context(), ".", fileproc.Options{FS: stored}) {
		require.NoError(t, err)
		info, err := e.Info()
		require.NoError(t, err)
		require.Equal(t, e.Type(), info.Mode().Type())
		require.EqualValues(t, 1, info.Size())
	}
	_, err := fileproc.Entry{}.Info()
	require.ErrorIs(t, err, fs.ErrInvalid)
}

// TestSkipMarked: what marks a directory is a regular file that its listing gives, whatever the other options leave out.
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
		got, err = fileproc.Process(t.Context(), "d", opts, relOf)
		require.NoError(t, err)
		require.Empty(t, got, "root too")
		require.Equal(t, fileproc.Report{Found: 1, Skipped: map[fileproc.SkipReason]int64{fileproc.SkippedMarked: 1}, Elapsed: report.Elapsed}, report)
	}
	for _, bad := range []string{"", ".", "..", "a/b", "a\x00"} {
		_, err := fileproc.Process(t.Context(), ".", fileproc.Options{FS: fsys, SkipMarked: []string{bad}}, relOf)
		require.ErrorContains(t, err, "Options.SkipMarked")
	}
}
