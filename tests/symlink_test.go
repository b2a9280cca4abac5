package fileproc_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// linked makes root and outside, a sibling of it.
func linked(t *testing.T, root, outside []string) string {
	t.Helper()
	dir := t.TempDir()
	if !testtree.Make(t, t.TempDir(), "l -> nowhere") {
		t.Skip("this platform, or Windows without the privilege for it, makes no symbolic links")
	}
	for name, specs := range map[string][]string{"inside": root, "outside": outside} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o755))
		require.True(t, testtree.Make(t, filepath.Join(dir, name), specs...))
	}
	return filepath.Join(dir, "inside")
}

func TestSymlinks(t *testing.T) {
	type reasons = map[fileproc.SkipReason]int64
	const content = "=content"
	for _, tc := range []struct {
		name          string
		root, outside []string
		opts          fileproc.Options
		want          []string
		skipped       reasons
	}{
		{
			name: "skipped",
			root: []string{"a" + content, "l -> a"},
			want: []string{"a"}, skipped: reasons{fileproc.SkippedNotRegular: 1},
		},
		{
			name: "files", opts: fileproc.Options{Symlinks: fileproc.SymlinksFiles},
			root: []string{"a" + content, "l -> a", "d/b" + content, "d/up -> ../a", "chain -> l", "dir -> d", "dangling -> nowhere", "through -> dir/b", "below -> a/b"},
			want: []string{"a", "l", "d/b", "d/up", "chain", "through"}, skipped: reasons{fileproc.SkippedNotRegular: 1, fileproc.SkippedDangling: 2},
		},
		{
			name: "loops", opts: fileproc.Options{Symlinks: fileproc.SymlinksFollow},
			root: []string{"a" + content, "self -> self", "x -> y", "y -> x", "root -> .", "d/up -> ..", "d/here -> ."},
			want: []string{"a"}, skipped: reasons{fileproc.SkippedDangling: 3, fileproc.SkippedDuplicate: 3},
		},
		{
			name: "a directory is come to without a link if it can", opts: fileproc.Options{Symlinks: fileproc.SymlinksFollow},
			root: []string{"a -> z/z/z", "z/z/z/f" + content, "b -> z"},
			want: []string{"z/z/z/f"}, skipped: reasons{fileproc.SkippedDuplicate: 2},
		},
		{
			name: "links out of root are not followed", opts: fileproc.Options{Symlinks: fileproc.SymlinksFollow},
			root: []string{"f -> ../outside/f", "d -> ../outside", "parent -> ..", "deep/d -> ../../outside/sub"}, outside: []string{"f" + content, "sub/g" + content},
			skipped: reasons{fileproc.SkippedOutside: 4},
		},
		{
			name: "links out of root, allowed", opts: fileproc.Options{Symlinks: fileproc.SymlinksFollow, SymlinksOutside: true},
			root: []string{"f -> ../outside/f", "d -> ../outside", "e -> ../outside", "s -> ../outside/sub"}, outside: []string{"f" + content, "sub/g" + content, "sub/back -> ../../inside"},
			// The link s is claimed before d is listed, and e after d.
			want: []string{"f", "d/f", "s/g"}, skipped: reasons{fileproc.SkippedDuplicate: 3},
		},
		{
			name: "files out of root, allowed", opts: fileproc.Options{Symlinks: fileproc.SymlinksFiles, SymlinksOutside: true},
			root: []string{"f -> ../outside/f", "d -> ../outside"}, outside: []string{"f" + content},
			want: []string{"f"}, skipped: reasons{fileproc.SkippedNotRegular: 1},
		},
		{
			name: "no way round Exclude", opts: fileproc.Options{Symlinks: fileproc.SymlinksFollow, Exclude: []string{"secret", "**/*.key"}},
			root: []string{"secret/f" + content, "d -> secret", "f -> secret/f", "e -> secret/sub", "secret/sub/g" + content, "x.key" + content, "x -> x.key", "ok" + content},
			want: []string{"ok"}, skipped: reasons{fileproc.SkippedPattern: 3},
		},
		{
			name: "no way round Exclude below a link",
			opts: fileproc.Options{Symlinks: fileproc.SymlinksFollow, Include: []string{"l/**"}, Exclude: []string{"a/secret", "a/d/*.key"}},
			root: []string{"a/secret/f" + content, "a/d/x.key" + content, "a/d/ok" + content, "l -> a"},
			want: []string{"l/d/ok"}, skipped: reasons{fileproc.SkippedPattern: 1},
		},
		{
			name: "no way round SkipHidden", opts: fileproc.Options{Symlinks: fileproc.SymlinksFollow, SkipHidden: true},
			root: []string{".h/f" + content, "d -> .h", "f -> .h/f", "ok" + content, ".l -> ok"},
			want: []string{"ok"}, skipped: reasons{fileproc.SkippedHidden: 2},
		},
		{
			name: "filters apply to the link's own path", opts: fileproc.Options{Symlinks: fileproc.SymlinksFiles, Suffixes: []string{".md"}},
			root: []string{"a" + content, "a.md -> a", "b.md" + content, "b -> b.md"},
			want: []string{"a.md", "b.md"}, skipped: reasons{fileproc.SkippedSuffix: 2},
		},
		{
			name: "depth", opts: fileproc.Options{Symlinks: fileproc.SymlinksFollow, SymlinksOutside: true, MaxDepth: 2},
			root: []string{"d -> ../outside", "x/d -> ../../outside/sub"}, outside: []string{"f" + content, "sub/g" + content},
			want: []string{"d/f"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := linked(t, tc.root, tc.outside)
			for _, workers := range []int{1, 4} {
				var report fileproc.Report
				opts := tc.opts
				opts.Workers, opts.Report = workers, &report
				descriptors := openDescriptors()
				got, err := fileproc.Process(t.Context(), root, opts, func(f *fileproc.File) (string, error) {
					s, err := f.Stat()
					if err == nil && (s.Size != int64(len(content)-1) || string(f.Data()) != content[1:]) {
						return "", os.ErrInvalid
					}
					return filepath.ToSlash(f.Rel()), err
				})
				require.Equal(t, descriptors, openDescriptors())
				require.NoError(t, err)
				require.ElementsMatch(t, tc.want, got)
				requireBalanced(t, report)
				if tc.skipped == nil {
					tc.skipped = reasons{}
				}
				require.Equal(t, tc.skipped, report.Skipped)
			}
		})
	}
}

// TestSymlinksManyInARow: a link is followed through up to 255 links. One with more is a failure that says so, not a link that leads
// nowhere.
func TestSymlinksString(t *testing.T) {
	for s, want := range map[fileproc.Symlinks]string{fileproc.SymlinksSkip: "skip", fileproc.SymlinksFiles: "files", fileproc.SymlinksFollow: "follow", -1: "Symlinks(-1)", 3: "Symlinks(3)"} {
		require.Equal(t, want, s.String())
	}
}

func TestSymlinksManyInARow(t *testing.T) {
	const most, many = 255, 300
	specs := []string{"0=content", "self -> self"}
	var all, followed []string
	failed := map[string]bool{}
	for i := 1; i <= many; i++ {
		specs = append(specs, fmt.Sprintf("%d -> %d", i, i-1))
		all = append(all, strconv.Itoa(i))
		if i <= most {
			followed = append(followed, strconv.Itoa(i))
		} else {
			failed[strconv.Itoa(i)] = true
		}
	}
	root := linked(t, specs, nil)
	for _, opts := range []fileproc.Options{
		{Symlinks: fileproc.SymlinksFiles}, {Symlinks: fileproc.SymlinksFollow}, {Symlinks: fileproc.SymlinksFiles, Ordered: true},
		{Symlinks: fileproc.SymlinksFiles, Files: slices.Values(append(all, "self"))},
	} {
		var report fileproc.Report
		got, gotFailed := []string{}, map[string]bool{}
		opts.Report = &report
		opts.OnError = func(err error) error {
			var failure *fileproc.Failure
			require.ErrorAs(t, err, &failure)
			require.Equal(t, fileproc.FailedFile, failure.Kind)
			require.ErrorContains(t, err, "more than 255 symbolic links in a row")
			gotFailed[filepath.Base(failure.Path)] = true
			return nil
		}
		for name, err := range fileproc.Stream(t.Context(), root, opts, nameOf) {
			require.NoError(t, err)
			if name != "0" {
				got = append(got, name)
			}
		}
		require.ElementsMatch(t, followed, got)
		require.Equal(t, failed, gotFailed)
		require.Equal(t, map[fileproc.SkipReason]int64{fileproc.SkippedDangling: 1}, report.Skipped)
		requireBalanced(t, report)
	}
}

func TestSymlinksAbsoluteIntoRoot(t *testing.T) {
	root := linked(t, []string{"a=x", "hidden/.d/f=y"}, nil)
	testtree.Symlink(t, filepath.Join(root, "a"), filepath.Join(root, "l"))
	require.NoError(t, os.Symlink(filepath.Join(root, "hidden", ".d"), filepath.Join(root, "d")))
	got, err := fileproc.Process(t.Context(), root, fileproc.Options{Symlinks: fileproc.SymlinksFollow, Exclude: []string{"hidden/*"}}, nameOf)
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"a", "l"}, got)
}

// TestRootWithDotsBehindALink: the dots of such a root are those of what the link leads to, for links and ignore files below root too.
func TestRootWithDotsBehindALink(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Chdir(t.TempDir())
	testtree.Make(t, ".", "root/t=of another root", "far/sub/", "far/root/t=right", "far/root/x.a=", "far/above=root/x.a\n",
		"far/root/.git/HEAD=x", "far/root/.git/objects/", "far/root/.git/refs/")
	testtree.Symlink(t, filepath.Join("far", "sub"), "link")
	testtree.Symlink(t, "t", filepath.Join("far", "root", "l"))
	here, err := os.Getwd()
	require.NoError(t, err)
	for _, root := range []string{"link/../root", here + "/link/../root"} {
		if _, err := os.Stat(root + "/x.a"); err != nil {
			t.Skip("this system cleans paths by their text: ", err)
		}
		opts := fileproc.Options{Ordered: true, GitIgnore: true, Symlinks: fileproc.SymlinksFiles, IgnoreFiles: []string{"../above"}}
		got, err := fileproc.Process(t.Context(), root, opts, func(f *fileproc.File) (string, error) { return f.Rel() + "=" + string(f.Data()), nil })
		require.NoError(t, err)
		require.Equal(t, []string{"l=right", "t=right"}, got)
		_, err = fileproc.Process(t.Context(), root, fileproc.Options{IgnoreFiles: []string{".git/refs"}}, relOf)
		var e *fs.PathError
		require.ErrorAs(t, err, &e)
		require.Equal(t, filepath.FromSlash(root+"/.git/refs"), e.Path)
	}
}

func TestSymlinksWalk(t *testing.T) {
	root := linked(t, []string{"a=x", "l -> a", "d -> ../outside"}, []string{"sub/f=y"})
	opts := fileproc.Options{Symlinks: fileproc.SymlinksFollow, SymlinksOutside: true, Stat: true}
	var got []string
	for e, err := range fileproc.Walk(t.Context(), root, opts) {
		require.NoError(t, err)
		s, err := e.Stat()
		require.NoError(t, err)
		require.Equal(t, e.IsDir(), s.Mode.IsDir(), "%s", e.Rel())
		got = append(got, filepath.ToSlash(e.Rel()))
	}
	require.Less(t, slices.Index(got, "d"), slices.Index(got, "d/sub"))
	require.ElementsMatch(t, []string{"a", "l", "d", "d/sub", "d/sub/f"}, got)
}

func TestSymlinksOpen(t *testing.T) {
	root := linked(t, []string{"d/a=content", "l -> d/a"}, nil)
	opts := fileproc.Options{Symlinks: fileproc.SymlinksFiles, ReadSize: fileproc.NoRead, Exclude: []string{"d"}}
	_, err := fileproc.Process(t.Context(), root, opts, nameOf)
	require.NoError(t, err)
	opts.Exclude = nil
	got, err := fileproc.Process(t.Context(), root, opts, func(f *fileproc.File) (string, error) {
		file, err := f.Open()
		if err != nil {
			return "", err
		}
		defer file.Close()
		p := make([]byte, 100)
		n, err := file.Read(p)
		return f.Rel() + "=" + string(p[:n]), err
	})
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"d/a=content", "l=content"}, got)
}

// TestSymlinksUnreadable: a link whose target cannot be looked up is a failure, not nothing.
func TestSymlinksUnreadable(t *testing.T) {
	root := linked(t, []string{"d/a=x", "l -> d/a"}, nil)
	d := filepath.Join(root, "d")
	testtree.Removable(t, root)
	require.NoError(t, os.Chmod(d, 0))
	if _, err := os.ReadDir(d); err == nil {
		t.Skip("permissions do not stop this user, or not here; scripts/test.sh --all runs this as a user whom they stop")
	}
	var report fileproc.Report
	_, err := fileproc.Process(t.Context(), root, fileproc.Options{Symlinks: fileproc.SymlinksFiles, Report: &report}, nameOf)
	require.ErrorIs(t, err, os.ErrPermission)
	require.ErrorContains(t, err, filepath.Join(root, "l"))
	require.EqualValues(t, 2, report.Failed)
	requireBalanced(t, report)
}

// The Entry of a followed link describes the link's target, also when it is looked up later.
func TestEntryOfALink(t *testing.T) {
	root := linked(t, []string{"a=text", "l -> a", "d/b=", "ld -> d"}, nil)
	for e, err := range fileproc.Walk(t.Context(), root, fileproc.Options{Symlinks: fileproc.SymlinksFollow}) {
		require.NoError(t, err)
		info, err := e.Info()
		require.NoError(t, err)
		require.Equal(t, e.Type(), info.Mode().Type(), "%s", e.Rel())
		if e.Name() == "l" {
			require.EqualValues(t, 4, info.Size())
		}
	}
	require.NoError(t, os.Symlink("x", filepath.Join(root, "none")))
	var skipped []string
	opts := fileproc.Options{Symlinks: fileproc.SymlinksFiles, OnSkip: func(e fileproc.Entry, _ fileproc.SkipReason) {
		info, err := e.Info()
		assert.NoError(t, err)
		assert.Equal(t, fs.ModeSymlink, info.Mode().Type(), "what is skipped is the link, not what it leads to")
		skipped = append(skipped, e.Rel())
	}}
	_, err := fileproc.Process(t.Context(), root, opts, nameOf)
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"ld", "none"}, skipped)
	opts.FS, opts.Symlinks, skipped = os.DirFS(root), fileproc.SymlinksSkip, nil
	_, err = fileproc.Process(t.Context(), ".", opts, nameOf)
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"l", "ld", "none"}, skipped)
}

// TestLinkTarget: what a link led to is the path of that file where it is reached without a link, also below a linked
// directory, and an absolute path if it is out of root.
func TestLinkTarget(t *testing.T) {
	root := linked(t, []string{"a=x", "d/b=x", "d/e/c=x", "l -> a", "chain -> d/up", "d/up -> ../a", "ld -> ../inside/d/e", "out -> ../outside", "f -> ../outside/f", "none -> x"},
		[]string{"f=x", "sub/g=x", "back -> ../inside/d/b"})
	outside, err := filepath.EvalSymlinks(filepath.Join(root, "..", "outside"))
	require.NoError(t, err)
	in := func(rel string) string { return filepath.Join(root, filepath.FromSlash(rel)) }
	out := func(rel string) string { return filepath.Join(outside, filepath.FromSlash(rel)) }
	require.NoError(t, os.Symlink("x", out("none")))
	require.NoError(t, os.Symlink("..", in("d/back")))
	want := map[string]string{
		"a": "", "d/b": "", "d/e/c": "", "l": in("a"), "chain": in("a"), "d/up": in("a"),
		"out/f": out("f"), "out/sub/g": out("sub/g"), "f": out("f"), "out/back": in("d/b"),
	}
	opts := fileproc.Options{Symlinks: fileproc.SymlinksFollow, SymlinksOutside: true}
	skipped := map[string]string{}
	opts.OnSkip = func(e fileproc.Entry, _ fileproc.SkipReason) { skipped[filepath.ToSlash(e.Rel())] = e.LinkTarget() }
	got := map[string]string{}
	for link, err := range fileproc.Stream(t.Context(), root, opts, func(f *fileproc.File) ([2]string, error) {
		return [2]string{filepath.ToSlash(f.Rel()), f.LinkTarget()}, nil
	}) {
		require.NoError(t, err)
		got[link[0]] = link[1]
	}
	require.Equal(t, want, got)
	require.Equal(t, map[string]string{"none": "", "out/none": "", "d/back": root, "ld": in("d/e")}, skipped)

	exclude := opts
	exclude.Exclude, exclude.OnSkip = []string{"**/outside/**"}, nil // which are no paths of what is in root
	all, err := fileproc.Process(t.Context(), root, exclude, relOf)
	require.NoError(t, err)
	require.Len(t, all, len(want))

	given, err := fileproc.Process(t.Context(), root, fileproc.Options{
		Symlinks: fileproc.SymlinksFiles, SymlinksOutside: true, Ordered: true, Files: slices.Values([]string{"a", "chain", "d/up", "f"}),
	}, func(f *fileproc.File) (string, error) { return f.LinkTarget(), nil })
	require.NoError(t, err)
	require.Equal(t, []string{"", in("a"), in("a"), out("f")}, given)

	want["d"], want["d/e"], want["out"], want["out/sub"] = "", "", out(""), out("sub")
	got = map[string]string{}
	for e, err := range fileproc.Walk(t.Context(), root, opts) {
		require.NoError(t, err)
		got[filepath.ToSlash(e.Rel())] = e.LinkTarget()
	}
	require.Equal(t, want, got)
	require.Empty(t, fileproc.Entry{}.LinkTarget())

	opts.SymlinksOutside = false
	clear(skipped)
	require.NoError(t, fileproc.ForEach(t.Context(), root, opts, func(f *fileproc.File) error { return nil }))
	require.Equal(t, map[string]string{"none": "", "d/back": root, "ld": in("d/e"), "f": out("f"), "out": out("")}, skipped)
}
