package fileproc_test

import (
	"errors"
	"github.com/stretchr/testify/assert"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

// TestBadInput: each error names the field or the path, and comes before anything is read.
func TestBadInput(t *testing.T) {
	dir, _ := rooted(t, "file=x", "d/f=y")
	missing, file := filepath.Join(dir, "missing"), filepath.Join(dir, "file")
	system := os.DirFS(dir)
	type opts = fileproc.Options
	for _, tc := range []struct {
		name, root string
		opts       opts
		says       []string
		is         error
	}{
		{name: "empty root", says: []string{"root is empty"}},
		{name: "empty root in FS", opts: opts{FS: system}, says: []string{"root is empty"}},
		{name: "NUL in root", root: "a\x00b", says: []string{"root", `a\x00b`, "NUL"}},
		{name: "NUL first in root", root: "\x00", says: []string{"NUL"}},
		{name: "NUL in root in FS", root: "a\x00b", opts: opts{FS: system}, says: []string{"root", `a\x00b`, "NUL"}},
		{name: "root missing", root: missing, says: []string{missing}, is: fs.ErrNotExist},
		{name: "root missing in FS", root: "missing", opts: opts{FS: system}, says: []string{"missing"}, is: fs.ErrNotExist},
		{name: "Files below a file", root: file, opts: opts{Files: slices.Values([]string{"a"})}, says: []string{file, "Files"}},
		{name: "Files below a file in FS", root: "file", opts: opts{FS: system, Files: slices.Values([]string{"a"})}, says: []string{"file", "Files"}},
		{name: "root below a file", root: filepath.Join(file, "f"), says: []string{filepath.Join(file, "f")}},
		{name: "negative MaxDepth", root: dir, opts: opts{MaxDepth: -1}, says: []string{"MaxDepth", "-1"}},
		{name: "negative Workers", root: dir, opts: opts{Workers: -7}, says: []string{"Workers", "-7"}},
		{name: "MaxFileSize below -1", root: dir, opts: opts{MaxFileSize: -2}, says: []string{"MaxFileSize", "-2"}},
		{name: "negative SkipLarger", root: dir, opts: opts{SkipLarger: -3}, says: []string{"SkipLarger", "-3"}},
		{name: "root climbs out of FS", root: "../x", opts: opts{FS: system}, says: []string{"root", "../x", "FS"}},
		{name: "root climbs inside FS", root: "d/../d", opts: opts{FS: system}, says: []string{"root", "d/../d", "FS"}},
		{name: "absolute root in FS", root: "/d", opts: opts{FS: system}, says: []string{"root", "/d", "FS"}},
		{name: "Symlinks unknown", root: dir, opts: opts{Symlinks: 3}, says: []string{"Symlinks", "3"}},
		{name: "Symlinks negative", root: dir, opts: opts{Symlinks: -1}, says: []string{"Symlinks", "-1"}},
		{name: "Symlinks in FS", root: ".", opts: opts{FS: system, Symlinks: fileproc.SymlinksFiles}, says: []string{"Symlinks", "FS"}},
		{name: "SymlinksOutside alone", root: dir, opts: opts{SymlinksOutside: true}, says: []string{"SymlinksOutside", "Symlinks skips"}},
		{name: "Durable in FS", root: ".", opts: opts{FS: system, Durable: true}, says: []string{"Durable", "FS"}},
		{name: "OneFilesystem in FS", root: ".", opts: opts{FS: system, OneFilesystem: true}, says: []string{"OneFilesystem", "FS"}},
		{name: "negative Shards", root: dir, opts: opts{Shards: -3}, says: []string{"Shards", "-3"}},
		{name: "Shard beyond", root: dir, opts: opts{Shards: 3, Shard: 3}, says: []string{"Shard is 3", "0 to 2"}},
		{name: "path in SkipMarked", root: dir, opts: opts{SkipMarked: []string{"d/TAG"}}, says: []string{"SkipMarked", "d/TAG", "slash"}},
		{name: "NUL in SkipMarked", root: dir, opts: opts{SkipMarked: []string{"\x00TAG"}}, says: []string{"SkipMarked"}},
		{name: "no name in SkipMarked", root: dir, opts: opts{SkipMarked: []string{"*/"}}, says: []string{"SkipMarked", `"*/"`}},
		{name: "negative Shard", root: dir, opts: opts{Shards: 3, Shard: -1}, says: []string{"Shard is -1"}},
		{name: "Shard without Shards", root: dir, opts: opts{Shard: 1}, says: []string{"Shard is 1", "0 to 0"}},
		{name: "Workers without end", root: dir, opts: opts{Workers: 1 << 17}, says: []string{"Workers", "131072", "65536"}},
		{name: "ignore files without a name", root: dir, opts: opts{IgnoreFiles: []string{"", ".", "..", "a\x00", "\x00b"}}, says: []string{`IgnoreFiles has ""`, `"."`, `".."`, `a\x00`, `\x00b`}},
		{name: "malformed patterns", root: dir, opts: opts{Include: []string{"ok", "[a"}, Exclude: []string{"{a"}}, says: []string{`Include has the pattern "[a"`, `Exclude has the pattern "{a"`, "malformed"}},
		{name: "braces that stand for too much", root: dir, opts: opts{Include: []string{strings.Repeat("{a,b}", 40)}}, says: []string{"braces", "more than 65536 patterns"}},
		{name: "empty patterns", root: dir, opts: opts{Include: []string{""}, Exclude: []string{""}}, says: []string{`Include has the pattern "", which is empty`, `Exclude has the pattern "", which is empty`}},
		{name: "suffixes that are patterns", root: dir, opts: opts{Suffixes: []string{".md", "*.md", "**/*.go", "*"}}, says: []string{`Suffixes has "*.md": want the end of a name, such as ".md", or a pattern in Options.Include`, `"**/*.go": want the end of a name, such as ".go"`, `"*": want the end of a name, such as ".md"`}},
		{name: "suffixes that no name has", root: dir, opts: opts{Suffixes: []string{"x/a", "/", "a\x00"}}, says: []string{`Suffixes has "x/a": want the end of a name, such as "a"`, `"/"`, `a\x00`}},
		{name: "absolute pattern", root: dir, opts: opts{Exclude: []string{"/d"}}, says: []string{`"/d"`, "begins with a slash"}},
		{name: "pattern with a slash at its end", root: dir, opts: opts{Exclude: []string{"d/"}}, says: []string{`"d/"`, "ends with a slash", `"d/**"`}},
		{name: "negated pattern", root: dir, opts: opts{Include: []string{"!d"}}, says: []string{`"!d"`, "negates nothing", `\!d`}},
		{name: "patterns with parts that are no names", root: dir, opts: opts{Include: []string{"./d", "d/../e", "d//e"}}, says: []string{`"./d"`, `the part "."`, `the part ".."`, `the part ""`}},
		{name: "all at once", opts: opts{MaxDepth: -1, Workers: -1, MaxFileSize: -9}, says: []string{"root", "MaxDepth", "Workers", "MaxFileSize"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sameError(t, tc.root, tc.opts, true, func(err error) {
				for _, s := range tc.says {
					require.ErrorContains(t, err, s)
				}
				if tc.is != nil {
					require.ErrorIs(t, err, tc.is)
					var pathErr *fs.PathError
					require.ErrorAs(t, err, &pathErr)
					require.Equal(t, tc.root, pathErr.Path)
				}
			})
		})
	}
	t.Run("ReadSize below NoRead", func(t *testing.T) {
		// Walk reads nothing and does not look at it.
		sameError(t, dir, opts{ReadSize: -2}, false, func(err error) {
			require.ErrorContains(t, err, "ReadSize")
			require.ErrorContains(t, err, "-2")
		})
	})
	t.Run("SkipBinary without content", func(t *testing.T) {
		sameError(t, dir, opts{ReadSize: fileproc.NoRead, SkipBinary: true}, false, func(err error) {
			require.ErrorContains(t, err, "SkipBinary")
			require.ErrorContains(t, err, "NoRead")
		})
	})
	t.Run("nil fn", func(t *testing.T) {
		_, err := fileproc.Process[int](t.Context(), dir, opts{}, nil)
		require.ErrorContains(t, err, "fn is nil")
		_, ordered := fileproc.Process[int](t.Context(), dir, opts{Ordered: true}, nil)
		require.Equal(t, err, ordered)
		require.Equal(t, err, fileproc.ForEach(t.Context(), dir, opts{}, nil))
		n := 0
		for v, streamErr := range fileproc.Stream[int](t.Context(), dir, opts{}, nil) {
			require.Zero(t, v)
			require.EqualError(t, streamErr, err.Error())
			n++
		}
		require.Equal(t, 1, n)
	})
	t.Run("unreadable root", func(t *testing.T) {
		root := filepath.Join(dir, "d")
		testtree.Removable(t, root)
		require.NoError(t, os.Chmod(root, 0))
		if _, err := os.ReadDir(root); err == nil {
			// Permissions have no effect: root, or a system without them.
			got, err := fileproc.Process(t.Context(), root, opts{}, nameOf)
			require.NoError(t, err)
			require.Equal(t, []string{"f"}, got)
			return
		}
		for _, p := range []place{{"os", root, nil}, {"fs", "d", system}} {
			sameError(t, p.root, opts{FS: p.fsys}, true, func(err error) {
				require.ErrorIs(t, err, fs.ErrPermission)
				require.ErrorContains(t, err, p.root)
			})
		}
	})
}

// sameError requires an error of Process, and that Stream and Walk yield the same error and nothing else.
func sameError(t *testing.T, root string, opts fileproc.Options, walk bool, check func(error)) {
	t.Helper()
	unwanted := func(*fileproc.File) (int, error) { return 0, errors.New("fn was called") }
	got, err := fileproc.Process(t.Context(), root, opts, unwanted)
	require.Error(t, err)
	require.Empty(t, got)
	check(err)
	n := 0
	for v, streamErr := range fileproc.Stream(t.Context(), root, opts, unwanted) {
		require.Zero(t, v)
		require.EqualError(t, streamErr, err.Error())
		check(streamErr)
		n++
	}
	require.Equal(t, 1, n, "yields of Stream")
	if !walk {
		return
	}
	n = 0
	for e, walkErr := range fileproc.Walk(t.Context(), root, opts) {
		require.Zero(t, e)
		require.EqualError(t, walkErr, err.Error())
		check(walkErr)
		n++
	}
	require.Equal(t, 1, n, "yields of Walk")
}

// TestRootIsLink: a root that is a link is followed, as os.ReadDir does, and paths begin with the root as given.
func TestRootIsLink(t *testing.T) {
	dir := t.TempDir()
	if !testtree.Make(t, dir, "real/a.md=1", "real/d/b.md=2", "link -> real", "dangling -> nowhere") {
		return // testtree has logged why
	}
	tree := take(t, filepath.Join(dir, "real"))
	for _, p := range []place{
		{"os", filepath.Join(dir, "link"), nil},
		{"os", filepath.Join(dir, "link") + string(filepath.Separator), nil},
		{"os", dir + "/./link", nil},
		{"fs", "link", os.DirFS(dir)},
	} {
		for entry, verify := range verifiers {
			require.NoError(t, verify(t.Context(), p, fileproc.Options{}, expect(tree, fileproc.Options{}, nil)), "%s of %s", entry, p.root)
		}
	}
	_, err := fileproc.Process(t.Context(), filepath.Join(dir, "dangling"), fileproc.Options{}, nameOf)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// TestRelativeRoot: a root that is not absolute gives paths that are not.
func TestRelativeRoot(t *testing.T) {
	dir, _ := rooted(t, "a.md=1", "d/e/b.md=2", "d..d/c.md=3")
	t.Chdir(dir)
	for _, tc := range []struct {
		root string
		want []string
	}{
		{".", []string{"a.md", "d/e/b.md", "d..d/c.md"}},
		{"./", []string{"a.md", "d/e/b.md", "d..d/c.md"}},
		{"d", []string{"d/e/b.md"}},
		{"d/", []string{"d/e/b.md"}},
		{"./d//e", []string{"d/e/b.md"}},
		{"./d..d//", []string{"d..d/c.md"}},
		// Not cleaned: if d were a link, d/.. would be elsewhere.
		{"d/../d", []string{"d/../d/e/b.md"}},
		{"d/../d/", []string{"d/../d/e/b.md"}},
	} {
		got, err := fileproc.Process(t.Context(), tc.root, fileproc.Options{}, func(f *fileproc.File) (string, error) {
			return filepath.ToSlash(f.Path()), nil
		})
		require.NoError(t, err)
		require.ElementsMatch(t, tc.want, got, tc.root)
	}
}

// TestRootIsFile: a root that leads to a file is processed as that file. No filter about names or listings applies.
func TestRootIsFile(t *testing.T) {
	dir := t.TempDir()
	text := testtree.Content(40_000)
	require.True(t, testtree.Make(t, dir, "d/.f.md="+text, "d/.gitignore=*\n", ".gitignore=*\n", "d/binary=\x00"))
	full := filepath.Join(dir, "d", ".f.md")
	t.Chdir(dir)
	all := []place{
		{"os", full, nil}, {"relative", filepath.Join("d", ".f.md"), nil}, {"dot", filepath.FromSlash("./d/../d/.f.md"), nil}, {"bare", ".gitignore", nil},
		{"fs", "d/.f.md", os.DirFS(dir)}, {"fs root", ".gitignore", os.DirFS(dir)},
		{"memory", "d/.f.md", fstest.MapFS{"d/.f.md": {Data: []byte(text)}}},
		{"store", "d/.f.md", bareFS{fstest.MapFS{"d/.f.md": {Data: []byte(text), Mode: fs.ModeIrregular}}}},
	}
	if testtree.Make(t, dir, "link -> d/.f.md", "chain -> link") {
		all = append(all, place{"link", filepath.Join(dir, "link"), nil}, place{"chain", "chain", nil}, place{"link in fs", "link", os.DirFS(dir)})
	}
	every := fileproc.Options{
		Suffixes: []string{".none"}, Include: []string{"none"}, Exclude: []string{"**"}, IgnoreFiles: []string{".gitignore", "d/.gitignore"}, SkipHidden: true, IgnoreCase: true, GitIgnore: true,
		SkipMarked: []string{".f.md", ".gitignore", "link", "chain"}, MaxDepth: 1, SelectDir: func(fileproc.Entry) bool { return false },
		OnSkip: func(e fileproc.Entry, why fileproc.SkipReason) { t.Errorf("%v: %v", e, why) },
	}
	onOS := every
	onOS.Symlinks, onOS.OneFilesystem = fileproc.SymlinksFiles, true
	following := onOS
	following.Symlinks = fileproc.SymlinksFollow
	everyEntry(t, all, func(t *testing.T, p place, entry entryPoint, workers int) {
		want := text
		name := filepath.Base(filepath.FromSlash(p.root))
		if name == ".gitignore" {
			want = "*\n"
		}
		options := []fileproc.Options{{}, every, {Stat: true}, {ReadSize: 1}, {ReadSize: fileproc.NoRead}, {ReadSize: fileproc.NoRead, Stat: true}, {Ordered: true}}
		if p.fsys == nil {
			options = append(options, onOS, following)
		}
		for _, opts := range options {
			opts.Workers = workers
			fn := func(f *fileproc.File) (string, error) {
				s, err := f.Stat()
				require.NoError(t, err)
				require.EqualValues(t, len(want), s.Size)
				require.True(t, s.Mode.IsRegular())
				require.Equal(t, []string{name, name, p.root, ""}, []string{f.Name(), f.Rel(), f.Path(), f.LinkTarget()})
				require.Equal(t, opts.ReadSize == 1, f.Truncated())
				if p.fsys != nil {
					_, err := f.Open()
					require.ErrorIs(t, err, errors.ErrUnsupported)
					return string(f.Data()), nil
				}
				file, err := f.Open()
				require.NoError(t, err)
				defer file.Close()
				require.Equal(t, p.root, file.Name())
				data, err := io.ReadAll(file)
				require.Equal(t, want, string(data))
				return string(f.Data()), err
			}
			before := openDescriptors()
			got, errs, report := entry(t, t.Context(), p, opts, fn)
			require.Equal(t, before, openDescriptors())
			require.Empty(t, errs)
			switch opts.ReadSize {
			case 0:
				require.Equal(t, []string{want}, got)
			case 1:
				require.Equal(t, []string{want[:1]}, got)
			default:
				require.Equal(t, []string{""}, got)
			}
			require.EqualValues(t, 1, report.Found)
			require.Zero(t, report.Directories)

			opts.FS = p.fsys
			n := 0
			for e, err := range fileproc.Walk(t.Context(), p.root, opts) {
				require.NoError(t, err)
				require.Equal(t, []string{name, name, p.root}, []string{e.Name(), e.Rel(), e.Path()})
				require.Zero(t, e.Type())
				info, err := e.Info()
				require.NoError(t, err)
				require.EqualValues(t, len(want), info.Size())
				n++
			}
			require.Equal(t, 1, n)
		}

		found := 0
		for shard := range 3 {
			got, errs, report := entry(t, t.Context(), p, fileproc.Options{Shard: shard, Shards: 3}, nameOf)
			require.Empty(t, errs)
			require.EqualValues(t, 1-len(got), report.Skipped[fileproc.SkippedShard])
			requireBalanced(t, report)
			found += len(got)
		}
		require.Equal(t, 1, found, "shards")
		for why, opts := range map[fileproc.SkipReason]fileproc.Options{
			fileproc.SkippedSelect: {Select: func(*fileproc.File) bool { return false }},
			fileproc.SkippedLarger: {SkipLarger: 1},
		} {
			_, errs, report := entry(t, t.Context(), p, opts, nameOf)
			require.Empty(t, errs)
			require.EqualValues(t, 1, report.Skipped[why])
		}
		_, errs, _ := entry(t, t.Context(), p, fileproc.Options{MaxFileSize: 1}, nameOf)
		require.Len(t, errs, 1)
		require.ErrorIs(t, errs[0], fileproc.ErrTooLarge)
		require.Equal(t, fileproc.FailedFile, errs[0].(*fileproc.Failure).Kind)
	})
	binaries := []place{{"binary", filepath.Join(dir, "d", "binary"), nil}, {"binary in fs", "d/binary", os.DirFS(dir)}}
	everyEntry(t, binaries, func(t *testing.T, p place, entry entryPoint, workers int) {
		_, errs, report := entry(t, t.Context(), p, fileproc.Options{SkipBinary: true, Workers: workers}, nameOf)
		require.Empty(t, errs)
		require.EqualValues(t, 1, report.Skipped[fileproc.SkippedBinary])
	})
	_, err := fileproc.Process(t.Context(), full+string(filepath.Separator), fileproc.Options{}, nameOf)
	var failure *fileproc.Failure
	if runtime.GOOS != "windows" && runtime.GOOS != "plan9" {
		require.ErrorAs(t, err, &failure, "a slash asks for a directory")
		require.Equal(t, fileproc.FailedRoot, failure.Kind)
	}
}

// bareFS has files that list nothing.
type bareFS struct{ fs.FS }

func (b bareFS) Open(name string) (fs.File, error) {
	f, err := b.FS.Open(name)
	return struct{ fs.File }{f}, err
}

// TestRootIsFileOnce: a file that takes root's place during the run is not read, and not opened.
func TestRootIsFileOnce(t *testing.T) {
	if runtime.GOOS == "windows" || runtime.GOOS == "plan9" {
		t.Skip("an open file cannot be replaced here")
	}
	dir := t.TempDir()
	require.True(t, testtree.Make(t, dir, "f=old", "g=new"))
	opts := fileproc.Options{Select: func(f *fileproc.File) bool {
		return assert.NoError(t, os.Rename(filepath.Join(dir, "g"), f.Path()))
	}}
	got, err := fileproc.Process(t.Context(), filepath.Join(dir, "f"), opts, func(f *fileproc.File) (string, error) {
		_, err := f.Open()
		return string(f.Data()), fileproc.WithResult(err)
	})
	require.Equal(t, []string{"old"}, got)
	require.ErrorIs(t, err, fileproc.ErrChanged)
	opts.Select = func(f *fileproc.File) bool { return assert.NoError(t, os.Remove(f.Path())) }
	_, err = fileproc.Process(t.Context(), filepath.Join(dir, "f"), opts, func(f *fileproc.File) (string, error) {
		_, err := f.Open()
		return string(f.Data()), err
	})
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// TestRootIsNeither: a socket as root is an error that says so, and so is a FIFO or a device in an fs.FS. The run does not hang.
func TestRootIsNeither(t *testing.T) {
	dir := t.TempDir()
	var roots []string
	for _, spec := range []string{"p|", "s@"} {
		if testtree.Make(t, dir, spec) {
			roots = append(roots, filepath.Join(dir, spec[:1]))
		}
	}
	if info, err := os.Stat(os.DevNull); err == nil && info.Mode()&fs.ModeDevice != 0 && runtime.GOOS != "windows" { // where it is no path
		roots = append(roots, os.DevNull)
	}
	if len(roots) == 0 {
		t.Skip("there are no such files here")
	}
	watchdog(t)
	for _, root := range roots {
		memory := fstest.MapFS{filepath.Base(root): {Mode: fs.ModeDevice}}
		for _, p := range []place{{"os", root, nil}, {"fs", filepath.Base(root), os.DirFS(filepath.Dir(root))}, {"memory", filepath.Base(root), memory}} {
			if p.name == "fs" && filepath.Base(root) == "p" {
				continue // os.DirFS opens it, and waits for a writer
			}
			if p.name == "os" && filepath.Base(root) != "s" {
				continue // see TestFIFOAsArgument and TestDevicesAsArguments
			}
			before := openDescriptors()
			_, err := fileproc.Process(t.Context(), p.root, fileproc.Options{FS: p.fsys}, nameOf)
			require.Equal(t, before, openDescriptors())
			var failure *fileproc.Failure
			require.ErrorAs(t, err, &failure)
			require.Equal(t, fileproc.FailedRoot, failure.Kind)
			if p.name != "fs" || filepath.Base(root) != "s" { // which os.DirFS cannot open
				require.ErrorContains(t, err, "neither a directory nor a regular file")
			}
		}
	}
}

// A root that is not there is a failure also while another run is under way, whose descriptors it would have to leave.
func TestBadRootBesideARun(t *testing.T) {
	dir := t.TempDir()
	require.True(t, testtree.Make(t, dir, "f="))
	calls := 0
	require.NoError(t, fileproc.ForEach(t.Context(), dir, fileproc.Options{}, func(*fileproc.File) error {
		calls++
		var failure *fileproc.Failure
		_, err := fileproc.Process(t.Context(), filepath.Join(dir, "none"), fileproc.Options{}, nameOf)
		require.ErrorAs(t, err, &failure)
		require.Equal(t, fileproc.FailedRoot, failure.Kind)
		require.ErrorIs(t, err, fs.ErrNotExist)
		return nil
	}))
	require.Equal(t, 1, calls)
}
