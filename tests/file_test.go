package fileproc_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/sys"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

func TestMaxFileSize(t *testing.T) {
	_, all := rooted(t, "a9=123456789", "b10=1234567890", "c11=12345678901", "d100000="+testtree.Content(100_000), "e0=")
	for _, tc := range []struct {
		opts    fileproc.Options
		refused []string
	}{
		{fileproc.Options{MaxFileSize: 10}, []string{"c11", "d100000"}},
		{fileproc.Options{MaxFileSize: 11}, []string{"d100000"}},
		{fileproc.Options{MaxFileSize: 1}, []string{"a9", "b10", "c11", "d100000"}},
		{fileproc.Options{MaxFileSize: 99_999}, []string{"d100000"}},
		{fileproc.Options{MaxFileSize: 100_000}, nil},
		{fileproc.Options{MaxFileSize: -1}, nil},
		{fileproc.Options{}, nil},
		{fileproc.Options{MaxFileSize: 10, Stat: true}, []string{"c11", "d100000"}},
		// These do not read whole files.
		{fileproc.Options{MaxFileSize: 10, ReadSize: 50}, nil},
		{fileproc.Options{MaxFileSize: 10, ReadSize: fileproc.NoRead}, nil},
	} {
		for _, p := range all {
			var refused []string
			var report fileproc.Report
			opts := tc.opts
			opts.FS, opts.Report = p.fsys, &report
			opts.OnError = func(err error) error {
				require.ErrorIs(t, err, fileproc.ErrTooLarge)
				var pathErr *fs.PathError
				require.ErrorAs(t, err, &pathErr)
				refused = append(refused, filepath.Base(pathErr.Path))
				return nil
			}
			got, err := fileproc.Process(t.Context(), p.root, opts, nameOf)
			require.NoError(t, err)
			slices.Sort(refused)
			require.Equal(t, tc.refused, refused, "%s, %+v", p.name, tc.opts)
			require.Len(t, got, 5-len(refused))
			requireBalanced(t, report)
		}
	}
}

// TestTooLargeSays: the failure of a file above the limit says how large it is, and what the limit is.
func TestTooLargeSays(t *testing.T) {
	_, all := rooted(t, "f="+testtree.Content(40_000))
	for _, p := range all {
		_, err := fileproc.Process(t.Context(), p.root, fileproc.Options{FS: p.fsys, MaxFileSize: 1000}, nameOf)
		require.ErrorContains(t, err, "40000 bytes, the limit is 1000")
	}
}

// TestSkipLarger: larger files are skipped, however files are read, and precede ErrTooLarge and SkipBinary.
func TestSkipLarger(t *testing.T) {
	list := []string{"a9=123456789", "b10=1234567890", "c11=\x002345678901", "d100000=" + testtree.Content(100_000), "e0="}
	for i := range 100 { // of which most are read ahead
		list = append(list, fmt.Sprintf("e/%d=%s", i, strings.Repeat("x", i%30)))
	}
	dir, all := rooted(t, list...)
	tree := take(t, dir)
	for _, largest := range []int64{1, 9, 10, 11, 99_999, 100_000} {
		larger := int64(0)
		for _, data := range tree.files {
			if int64(len(data)) > largest {
				larger++
			}
		}
		everyEntry(t, all, func(t *testing.T, p place, entry entryPoint, workers int) {
			for _, opts := range []fileproc.Options{
				{}, {Stat: true}, {ReadSize: 5}, {ReadSize: 50, Stat: true}, {ReadSize: fileproc.NoRead}, {Ordered: true}, {DisableURing: true}, {MaxFileSize: largest},
				{Select: func(*fileproc.File) bool { return true }}, asking(fileproc.Options{}, func(*fileproc.File) bool { return false }),
			} {
				opts.Workers, opts.SkipLarger, opts.FS = workers, largest, p.fsys
				opts.SkipBinary = opts.ReadSize != fileproc.NoRead && largest < 11
				got, errs, report := entry(t, t.Context(), p, opts, nameOf)
				require.Empty(t, errs)
				require.Equal(t, larger, report.Skipped[fileproc.SkippedLarger], "%+v", opts)
				require.Len(t, got, len(tree.files)-int(larger))
				n := 0
				for _, err := range fileproc.Walk(t.Context(), p.root, opts) {
					require.NoError(t, err)
					n++
				}
				require.Equal(t, len(got)+1, n, "with a directory")
			}
		})
	}
}

// TestStringsMayBeKept overwrites, with further runs, any memory that names were read into.
func TestStringsMayBeKept(t *testing.T) {
	dir, all := rooted(t, append(testtree.Numbered("keep", 150), testtree.Numbered("d/e/keep", 150)...)...)
	_, noise := rooted(t, append(testtree.Numbered("noise", 150), testtree.Numbered("x/y/noise", 150)...)...)
	tree := take(t, dir)
	type names struct{ name, rel, path string }
	check := func(t *testing.T, p place, kept []names) {
		require.Len(t, kept, 300)
		seen := map[string]bool{}
		for _, n := range kept {
			rel := filepath.ToSlash(n.rel)
			require.Contains(t, tree.files, rel)
			require.Equal(t, path.Base(rel), n.name)
			require.Equal(t, p.path(rel), n.path)
			seen[rel] = true
		}
		require.Len(t, seen, 300)
	}
	for i, p := range all {
		kept, err := fileproc.Process(t.Context(), p.root, fileproc.Options{FS: p.fsys}, func(f *fileproc.File) (names, error) {
			return names{f.Name(), f.Rel(), f.Path()}, nil
		})
		require.NoError(t, err)
		var walked []fileproc.Entry
		for e, err := range fileproc.Walk(t.Context(), p.root, fileproc.Options{FS: p.fsys}) {
			require.NoError(t, err)
			if !e.IsDir() {
				walked = append(walked, e)
			}
		}
		runtime.GC()
		for range 2 {
			_, err := fileproc.Process(t.Context(), noise[i].root, fileproc.Options{FS: noise[i].fsys}, nameOf)
			require.NoError(t, err)
		}
		check(t, p, kept)
		kept = nil
		for _, e := range walked {
			kept = append(kept, names{e.Name(), e.Rel(), e.Path()})
		}
		check(t, p, kept)
	}
}

// TestStatIsNew: without Options.Stat, fn's first look is at what the file is then.
func TestStatIsNew(t *testing.T) {
	dir, _ := rooted(t, "a=1", "b=2")
	_, err := fileproc.Process(t.Context(), dir, fileproc.Options{}, func(f *fileproc.File) (int, error) {
		require.NoError(t, os.WriteFile(f.Path(), make([]byte, 10), 0o600))
		s, err := f.Stat()
		require.EqualValues(t, 10, s.Size)
		return 0, err
	})
	require.NoError(t, err)
}

// TestStat compares File.Stat and Entry.Stat, with and without Options.Stat, with os.Lstat.
func TestStat(t *testing.T) {
	dir, all := rooted(t, "a=1", "empty", "d/big="+testtree.Content(100_000))
	old := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	require.NoError(t, os.Chtimes(filepath.Join(dir, "a"), old, old))
	require.NoError(t, os.Chmod(filepath.Join(dir, "d", "big"), 0o400))
	t.Cleanup(func() { os.Chmod(filepath.Join(dir, "d", "big"), 0o600) }) // Windows does not remove read-only files
	if runtime.GOOS == "linux" {
		require.NoError(t, os.Link(filepath.Join(dir, "a"), filepath.Join(t.TempDir(), "other")))
	}
	for _, p := range all {
		for _, opts := range []fileproc.Options{{}, {Stat: true}, {ReadSize: 1}, {ReadSize: 1, Stat: true}, {ReadSize: fileproc.NoRead}, {ReadSize: fileproc.NoRead, Stat: true}} {
			opts.FS = p.fsys
			inodes := map[uint64]bool{}
			var mu sync.Mutex // guards inodes
			opts.Select = func(f *fileproc.File) bool {
				s, err := f.Stat()
				if err != nil || compareStat(dir, f.Rel(), s) != nil {
					return false
				}
				mu.Lock()
				inodes[s.Inode] = true
				mu.Unlock()
				return true
			}
			got, err := fileproc.Process(t.Context(), p.root, opts, func(f *fileproc.File) (string, error) {
				s, err := f.Stat()
				if err != nil {
					return "", err
				}
				return f.Name(), compareStat(dir, f.Rel(), s)
			})
			require.NoError(t, err, "%s, %+v", p.name, opts)
			require.Len(t, got, 3)
			if !inodes[0] {
				require.Len(t, inodes, 3, "three files have three inodes")
			}
		}
		stats := 0
		for e, err := range fileproc.Walk(t.Context(), p.root, fileproc.Options{FS: p.fsys, Stat: true}) {
			require.NoError(t, err)
			s, err := e.Stat()
			require.NoError(t, err)
			require.NoError(t, compareStat(dir, e.Rel(), s))
			stats++
		}
		require.Equal(t, 4, stats, "three files and a directory")
		for e, err := range fileproc.Walk(t.Context(), p.root, fileproc.Options{FS: p.fsys}) {
			require.NoError(t, err)
			s, err := e.Stat() // looked up now
			require.NoError(t, err)
			require.NoError(t, compareStat(dir, e.Rel(), s))
			info, err := e.Info()
			require.NoError(t, err)
			require.Equal(t, s.Size, info.Size())
		}
	}
}

// compareStat returns an error if os.Lstat says something else of a file of TestStat than s.
func compareStat(dir, rel string, s fileproc.Stat) error {
	info, err := os.Lstat(filepath.Join(dir, filepath.FromSlash(rel)))
	if err != nil {
		return err
	}
	modTime := s.ModTime
	if info.ModTime().Nanosecond() == 0 {
		modTime = modTime.Truncate(time.Second) // under qemu's s390x lstat reports no more, but fstatat does
	}
	if s.Size != info.Size() || s.Mode != info.Mode() || !modTime.Equal(info.ModTime()) {
		return fmt.Errorf("Stat is %+v, os.Lstat says %d, %v, %v", s, info.Size(), info.ModTime(), info.Mode())
	}
	want := sys.StatOfInfo(info)
	if s.Flags != want.Flags || s.UID != want.UID || s.GID != want.GID || s.Links != want.Links || s.Blocks != want.Blocks || s.Rdev != want.Rdev {
		return fmt.Errorf("Stat is %+v, os.Lstat says %+v", s, want)
	}
	if runtime.GOOS == "linux" && (int(s.UID) != os.Getuid() || !info.IsDir() && s.Links != map[bool]uint64{true: 2, false: 1}[rel == "a"]) {
		return fmt.Errorf("Stat of %s is %+v", rel, s)
	}
	return nil
}

func TestOpen(t *testing.T) {
	big := testtree.Content(200_000)
	dir, _ := rooted(t, "a.txt=hello", "d/e/big.txt="+big)
	for _, readSize := range []int{0, 10, fileproc.NoRead} {
		for _, workers := range []int{1, 4} {
			var report fileproc.Report
			var inData atomic.Int64
			opts := fileproc.Options{ReadSize: readSize, Workers: workers, Report: &report}
			files, err := fileproc.Process(t.Context(), dir, opts, func(f *fileproc.File) (*os.File, error) {
				inData.Add(int64(len(f.Data())))
				require.Equal(t, readSize == fileproc.NoRead, f.Data() == nil)
				file, err := f.Open()
				require.NoError(t, err)
				_, err = io.Copy(io.Discard, file)
				require.NoError(t, err)
				_, err = file.Seek(0, io.SeekStart)
				return file, err
			})
			require.NoError(t, err)
			require.Equal(t, inData.Load(), report.Bytes, "bytes read through the handle do not count")
			require.Len(t, files, 2)
			for _, f := range files {
				// The handle is the caller's: it outlives the run.
				data, err := io.ReadAll(f)
				require.NoError(t, err)
				require.NoError(t, f.Close())
				// If os.Root opens files, a handle's name may contain "/./".
				switch filepath.Clean(f.Name()) {
				case filepath.Join(dir, "a.txt"):
					require.Equal(t, "hello", string(data))
				case filepath.Join(dir, "d", "e", "big.txt"):
					require.True(t, string(data) == big)
				default:
					t.Errorf("a handle named %q", f.Name())
				}
			}
		}
	}
	_, err := fileproc.Process(t.Context(), ".", fileproc.Options{FS: os.DirFS(dir)}, (*fileproc.File).Open)
	require.ErrorIs(t, err, errors.ErrUnsupported)
}

// TestWorker keeps state per worker without a lock; the race detector checks it.
func TestWorker(t *testing.T) {
	_, all := rooted(t, append(testtree.Numbered("f", 60), testtree.Numbered("d/f", 60)...)...)
	for _, p := range all {
		for _, workers := range []int{1, 3, 0} {
			calls := make([]int, max(workers, runtime.GOMAXPROCS(0)))
			_, err := fileproc.Process(t.Context(), p.root, fileproc.Options{FS: p.fsys, Workers: workers}, func(f *fileproc.File) (int, error) {
				calls[f.Worker()]++
				if w := f.Worker(); workers > 0 && w >= workers {
					return 0, fmt.Errorf("worker %d of %d", w, workers)
				}
				return 0, nil
			})
			require.NoError(t, err)
			sum := 0
			for _, n := range calls {
				sum += n
			}
			require.Equal(t, 120, sum)
		}
	}
}

// TestDataMayBeAppendedTo: an append cannot reach the bytes of another file.
func TestDataMayBeAppendedTo(t *testing.T) {
	dir, all := rooted(t, testtree.Numbered("f", 100)...)
	tree := take(t, dir)
	for _, p := range all {
		got, err := fileproc.Process(t.Context(), p.root, fileproc.Options{FS: p.fsys}, func(f *fileproc.File) (string, error) {
			if len(f.Data()) != cap(f.Data()) { // append would write into memory that others use
				return "", fmt.Errorf("%d bytes, capacity %d", len(f.Data()), cap(f.Data()))
			}
			more := append(f.Data(), bytes.Repeat([]byte("x"), 100)...)
			if !bytes.Equal(more[:len(more)-100], tree.files[f.Rel()]) {
				return "", fmt.Errorf("content is %q", f.Data())
			}
			return f.Name(), nil
		})
		require.NoError(t, err)
		require.Len(t, got, 100)
	}
}

// TestFileInfo: a File describes itself as os.Lstat does, with Options.Stat and without, also when the run has ended.
func TestFileInfo(t *testing.T) {
	dir := t.TempDir()
	require.True(t, testtree.Make(t, dir, "a=x", "d/b=xy"))
	for _, stat := range []bool{false, true} {
		infos, err := fileproc.Process(t.Context(), dir, fileproc.Options{Stat: stat, Ordered: true}, func(f *fileproc.File) (fs.FileInfo, error) {
			return f.Info()
		})
		require.NoError(t, err)
		require.Len(t, infos, 2)
		for i, name := range []string{"a", "d/b"} {
			want, err := os.Lstat(filepath.Join(dir, name))
			require.NoError(t, err)
			require.Equal(t, fs.FormatFileInfo(want), fs.FormatFileInfo(infos[i]))
			require.True(t, want.ModTime().Equal(infos[i].ModTime()))
			require.False(t, infos[i].IsDir())
			require.True(t, os.SameFile(want, infos[i]))
			require.NotNil(t, infos[i].Sys())
		}
		require.NoError(t, fileproc.ForEach(t.Context(), filepath.Join(dir, "a"), fileproc.Options{Stat: stat}, func(f *fileproc.File) error {
			info, err := f.Info()
			require.NoError(t, err)
			require.NotNil(t, info.Sys())
			require.Equal(t, "a", info.Name())
			return nil
		}))
		infos, err = fileproc.Process(t.Context(), ".", fileproc.Options{FS: os.DirFS(dir), Stat: stat}, func(f *fileproc.File) (fs.FileInfo, error) {
			return f.Info()
		})
		require.NoError(t, err)
		require.Nil(t, infos[0].Sys())
	}
	require.NoError(t, fileproc.ForEach(t.Context(), filepath.Join(dir, "d"), fileproc.Options{Stat: true}, func(f *fileproc.File) error {
		require.NoError(t, os.WriteFile(f.Path(), []byte("longer than it was"), 0o600))
		info, err := f.Info()
		require.NoError(t, err)
		require.EqualValues(t, 2, info.Size(), "Info is of what was read")
		require.Nil(t, info.Sys())
		return nil
	}))
	if os.Symlink("a", filepath.Join(dir, "link")) == nil {
		infos, err := fileproc.Process(t.Context(), dir, fileproc.Options{Symlinks: fileproc.SymlinksFiles, Suffixes: []string{"link"}}, func(f *fileproc.File) (fs.FileInfo, error) {
			return f.Info()
		})
		require.NoError(t, err)
		require.Len(t, infos, 1)
		require.Equal(t, "link", infos[0].Name())
		require.EqualValues(t, 1, infos[0].Size())
		require.NoError(t, os.Remove(filepath.Join(dir, "link")))
	}
	require.NoError(t, fileproc.ForEach(t.Context(), dir, fileproc.Options{ReadSize: fileproc.NoRead}, func(f *fileproc.File) error {
		require.NoError(t, os.Remove(f.Path()))
		_, err := f.Info()
		if runtime.GOOS == "windows" || runtime.GOOS == "plan9" { // the listing has it
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, fs.ErrNotExist)
		}
		return nil
	}))
}

// TestEntryIsADirEntry: an Entry describes its file, with Options.Stat as Walk found it and otherwise as it is now.
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
			require.True(t, os.SameFile(want, info))
			require.NotNil(t, info.Sys())
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
	opts := fileproc.Options{FS: stored, OnSkip: func(e fileproc.Entry, _ fileproc.SkipReason) {
		delete(stored, "a")
		_, err := e.Info()
		require.ErrorIs(t, err, fs.ErrNotExist)
	}, Suffixes: []string{".md"}}
	_, err := fileproc.Process(t.Context(), ".", opts, nameOf)
	require.NoError(t, err)
	_, err = fileproc.Entry{}.Info()
	require.ErrorIs(t, err, fs.ErrInvalid)
	require.Empty(t, fileproc.Entry{}.Path())
}

// TestFileUnchanged: each change is seen that metadata or content show, whatever fn got of a file.
func TestFileUnchanged(t *testing.T) {
	then := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	replace := func(path, text string) error {
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			return err
		}
		return os.Rename(path+".new", path)
	}
	const text = "some text"
	dir, ps := rooted(t, "d/f="+text)
	all := []fileproc.Options{{}, {Stat: true}, {ReadSize: 4}, {ReadSize: 4, Stat: true}, {ReadSize: fileproc.NoRead}, {ReadSize: fileproc.NoRead, Stat: true}}
	byStatOrData := func(hasStat, hasData bool) bool { return hasStat || hasData }
	for name, c := range map[string]struct {
		change func(path string) error
		seen   func(hasStat, hasData bool) bool
	}{
		"none":        {func(string) error { return nil }, func(bool, bool) bool { return false }},
		"removed":     {os.Remove, func(bool, bool) bool { return true }},
		"touched":     {func(path string) error { return os.Chtimes(path, then, then) }, func(hasStat, _ bool) bool { return hasStat }},
		"replaced":    {func(path string) error { return errors.Join(replace(path, text), os.Chtimes(path, then, then)) }, func(hasStat, _ bool) bool { return hasStat }},
		"longer":      {func(path string) error { return os.WriteFile(path, []byte(text+"!"), 0o600) }, byStatOrData},
		"shorter":     {func(path string) error { return os.Truncate(path, 3) }, byStatOrData},
		"other":       {func(path string) error { return errors.Join(replace(path, "more text"), os.Chtimes(path, then, then)) }, byStatOrData},
		"a directory": {func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) }, func(bool, bool) bool { return true }},
		"its directory removed": {func(path string) error {
			if filepath.Base(filepath.Dir(path)) != "d" {
				return os.Remove(path)
			}
			return os.RemoveAll(filepath.Dir(path))
		}, func(bool, bool) bool { return true }},
	} {
		for _, root := range []string{".", "d/f"} {
			for _, opts := range all {
				for _, late := range []bool{false, true} { // a Stat after the read tells nothing of what was read
					if runtime.GOOS == "windows" && root != "." {
						continue // a file that is open can be neither removed nor replaced
					}
					for _, p := range ps {
						require.NoError(t, os.MkdirAll(filepath.Join(dir, "d"), 0o700))
						require.NoError(t, os.RemoveAll(filepath.Join(dir, "d", "f")))
						require.NoError(t, os.WriteFile(filepath.Join(dir, "d", "f"), []byte(text), 0o600))
						path := filepath.Join(dir, "d", "f")
						if opts.FS = p.fsys; p.fsys != nil {
							p.root = root
						} else {
							p.root = filepath.Join(p.root, filepath.FromSlash(root))
						}
						calls := 0
						require.NoError(t, fileproc.ForEach(t.Context(), p.root, opts, func(f *fileproc.File) error {
							calls++
							if late {
								_, err := f.Stat()
								require.NoError(t, err)
							}
							require.NoError(t, c.change(path))
							same, err := f.Unchanged()
							hasStat := opts.Stat || f.Truncated() || late && f.Data() == nil
							require.NoError(t, err)
							if (name == "replaced" || name == "other") && root != "." && p.fsys == nil {
								hasStat = true // a root that is a file is known as long as it is open
							}
							require.Equal(t, c.seen(hasStat, f.Data() != nil), !same, "%s: %s, root %s, %+v, late %v", name, p.name, root, opts, late)
							return nil
						}))
						require.Equal(t, 1, calls)
					}
				}
			}
		}
	}
}

// TestFileUnchangedOfALongFile compares the metadata of the handle that was read, without Options.Stat too.
func TestFileUnchangedOfALongFile(t *testing.T) {
	dir, all := rooted(t, "f="+testtree.Content(100_000))
	for _, p := range all {
		require.NoError(t, fileproc.ForEach(t.Context(), p.root, fileproc.Options{ReadSize: 10, FS: p.fsys}, func(f *fileproc.File) error {
			same, err := f.Unchanged()
			require.NoError(t, err)
			require.True(t, same)
			require.NoError(t, os.Chtimes(filepath.Join(dir, "f"), time.Time{}, time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)))
			same, err = f.Unchanged()
			require.False(t, same)
			return err
		}))
		require.NoError(t, os.Chtimes(filepath.Join(dir, "f"), time.Time{}, time.Now()))
	}
}

// TestFileUnchangedBehindData compares also what was read behind Data.
func TestFileUnchangedBehindData(t *testing.T) {
	dir, all := rooted(t, "f=12345678")
	for _, p := range all {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "f"), []byte("12345678"), 0o600))
		require.NoError(t, fileproc.ForEach(t.Context(), p.root, fileproc.Options{ReadSize: 4, SkipBinary: true, FS: p.fsys}, func(f *fileproc.File) error {
			same, err := f.Unchanged()
			require.NoError(t, err)
			require.True(t, same)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "f"), []byte("1234567"), 0o600))
			same, err = f.Unchanged()
			require.False(t, same)
			return err
		}))
	}
}
