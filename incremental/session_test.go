package incremental_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/incremental"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

// A live is a session over a tree of a test. Fn returns the content, or fails if that ends with "!", or skips the file if with "?".
type live struct {
	*testing.T
	root string
	inc  incremental.Options[string]
	opts fileproc.Options
	s    *incremental.Session[string]

	mu    sync.Mutex
	calls []string
}

func newLive(t *testing.T, opts fileproc.Options, specs ...string) *live {
	l := &live{T: t, root: t.TempDir(), inc: incremental.Options[string]{File: filepath.Join(t.TempDir(), "c")}, opts: opts}
	l.opts.Workers = 3
	testtree.Make(t, l.root, specs...)
	l.open()
	return l
}

func (l *live) open() {
	s, err := incremental.Open(l.root, l.inc, l.opts, func(f *fileproc.File) (string, error) {
		l.mu.Lock()
		l.calls = append(l.calls, f.Rel())
		l.mu.Unlock()
		text := string(f.Data())
		switch {
		case strings.HasSuffix(text, "!"):
			return "", errors.New("fails")
		case strings.HasSuffix(text, "?"):
			return "", fileproc.ErrSkip
		}
		return text, nil
	})
	require.NoError(l, err)
	l.s = s
}

func (l *live) path(rel string) string { return filepath.Join(l.root, rel) }
func (l *live) write(rel, text string) {
	require.NoError(l, os.MkdirAll(filepath.Dir(l.path(rel)), 0o755))
	require.NoError(l, os.WriteFile(l.path(rel), []byte(text), 0o644))
}

// run returns, in order, what a run yields: "path=value kind".
func (l *live) run(names ...string) []string {
	l.Helper()
	l.calls = nil
	got := []string{}
	for r, err := range l.s.Run(l.Context(), names) {
		switch {
		case err != nil:
			got = append(got, r.Rel+" fails")
		case r.Kind == incremental.Deleted:
			got = append(got, r.Rel+" deleted")
		default:
			got = append(got, fmt.Sprintf("%s=%s %v", r.Rel, r.Value, r.Kind))
		}
	}
	slices.Sort(got)
	slices.Sort(l.calls)
	return got
}

func (l *live) settle() { time.Sleep(incremental.Settled + 20*time.Millisecond) }

// TestSessionFollowsTheTree: each run yields what its names lead to now, and what is deleted.
func TestSessionFollowsTheTree(t *testing.T) {
	t.Parallel()
	l := newLive(t, fileproc.Options{}, "a=1", "d/b=2", "d/e/c=3")
	l.settle()
	require.Equal(t, []string{"a=1 new", "d/b=2 new", "d/e/c=3 new"}, l.run())
	require.Equal(t, []string{"a=1 unchanged", "d/b=2 unchanged", "d/e/c=3 unchanged"}, l.run())
	require.Empty(t, l.calls)
	require.Equal(t, []string{"d/b=2 unchanged"}, l.run("d/b"))
	require.Empty(t, l.run("never"))

	l.write("a", "one")
	l.write("d/f", "4")
	require.Equal(t, []string{"a=one changed"}, l.run("a"))
	require.Equal(t, []string{"d/b=2 unchanged", "d/e/c=3 unchanged", "d/f=4 new"}, l.run("d"))

	require.NoError(t, os.Rename(l.path("d"), l.path("g")))
	require.Equal(t, []string{"d/b deleted", "d/e/c deleted", "d/f deleted", "g/b=2 new", "g/e/c=3 new", "g/f=4 new"}, l.run("d", "g/"))
	require.NoError(t, os.RemoveAll(l.path("g/e")))
	l.write("g/e", "a file for a directory")
	require.Equal(t, []string{"g/e/c deleted", "g/e=a file for a directory new"}, l.run("g/e"))
	require.NoError(t, os.Remove(l.path("g/e")))
	l.write("g/e/c", "back")
	require.Equal(t, []string{"g/e deleted", "g/e/c=back new"}, l.run("g/e", "g/e/c"))

	for _, bad := range []string{"", "..", "../x", "/a", "a/../b", "a//b"} {
		_, err := first(l.s.Run(t.Context(), []string{bad}))
		require.ErrorIs(t, err, fs.ErrInvalid, bad)
	}
}

func first[T any](seq func(func(T, error) bool)) (v T, err error) {
	for v, err := range seq {
		return v, err
	}
	return v, err
}

// TestSessionForgetsWhatIsGone: a path at which there was something else for a moment is not looked at for ever.
func TestSessionForgetsWhatIsGone(t *testing.T) {
	t.Parallel()
	var l *live
	l = newLive(t, fileproc.Options{Select: func(f *fileproc.File) bool {
		if f.Rel() == "d/x" {
			require.NoError(t, os.Remove(l.path("d/x")))
			require.NoError(t, os.Mkdir(l.path("d/x"), 0o755))
		}
		return true
	}}, "a=1")
	l.run()
	l.write("d/x", "2")
	require.Empty(t, l.run("d/x"))
	require.Contains(t, maps.Collect(l.s.Unsettled()), "d/x")
	require.NoError(t, os.Remove(l.path("d/x")))
	require.Empty(t, l.run("d/x"))
	require.NotContains(t, maps.Collect(l.s.Unsettled()), "d/x")
}

// TestSessionOutcomes: what fn skips has no result any more; a failure stays until the file changes, and is not called again.
func TestSessionOutcomes(t *testing.T) {
	t.Parallel()
	l := newLive(t, fileproc.Options{}, "a=1", "b=2", "c=3!")
	l.settle()
	require.Equal(t, []string{"a=1 new", "b=2 new", "c fails"}, l.run())
	require.Equal(t, []string{"a=1 unchanged", "b=2 unchanged"}, l.run())
	require.Empty(t, l.calls)
	l.write("a", "x?")
	l.write("b", "x!")
	l.write("c", "x")
	require.Equal(t, []string{"a deleted", "b fails", "c=x changed"}, l.run("a", "b", "c"))
	require.Empty(t, l.run("b"))
	require.Empty(t, l.calls, "the content is the same")
	require.NoError(t, os.Remove(l.path("b")))
	require.Equal(t, []string{"b deleted"}, l.run("b"))
	require.Empty(t, l.run("b"))
}

// TestSessionSettles: what is too new to be kept is named, looked at again, and kept without a call of fn.
func TestSessionSettles(t *testing.T) {
	t.Parallel()
	incremental.NeedsTimes(t)
	l := newLive(t, fileproc.Options{}, "a=1", "b=2")
	for range 2 {
		l.settle()
		l.run()
	}
	var names []string
	text := ""
	for names == nil {
		text += "one"
		begun := time.Now()
		l.write("a", text)
		require.Equal(t, []string{"a=" + text + " changed"}, l.run("a"))
		for name, when := range l.s.Unsettled() {
			require.WithinDuration(t, time.Now(), when, time.Minute)
			names = append(names, name)
		}
		if names == nil {
			require.Greater(t, time.Since(begun), incremental.Settled, "only a machine that stands still leaves time to settle")
		}
	}
	require.Equal(t, []string{"a"}, names)
	require.NotContains(t, incremental.Kept(l.root, l.inc, l.opts), "a")
	l.write("a", text) // another write of the same content
	require.Equal(t, []string{"a=" + text + " unchanged"}, l.run("a"))
	require.Empty(t, l.calls)
	l.write("a", "two")
	require.Equal(t, []string{"a=two changed"}, l.run("a"))
	l.settle()
	require.Equal(t, []string{"a=two unchanged"}, l.run(names...))
	require.Empty(t, l.calls)
	for range l.s.Unsettled() {
		t.Fatal("it has settled")
	}
	require.NoError(t, l.s.Close(t.Context()))
	require.Len(t, incremental.Kept(l.root, l.inc, l.opts), 2)
	l.open()
	require.Equal(t, []string{"a=two unchanged", "b=2 unchanged"}, l.run())
	require.Empty(t, l.calls)
}

// TestSessionSaves: the next session, after saves that load and ones that do not, has what this one had, and names what is deleted meanwhile.
func TestSessionSaves(t *testing.T) {
	t.Parallel()
	l := newLive(t, fileproc.Options{}, testtree.Numbered("d/f", 3000)...)
	l.settle()
	require.Len(t, l.run(), 3000)
	require.NoError(t, l.s.Save(t.Context())) // 3,000 are worth a load
	require.Len(t, l.run(), 3000)
	require.Empty(t, l.calls)
	l.write("a", "1")
	l.write("b", "2")
	require.NoError(t, os.Remove(l.path("d/f000001.md")))
	require.Len(t, l.run("a", "b", "d/f000001.md"), 3)
	l.settle()
	require.Equal(t, []string{"a=1 unchanged", "b=2 unchanged"}, l.run("a", "b"))
	require.NoError(t, l.s.Save(t.Context()))
	require.NoError(t, os.Remove(l.path("a")))
	require.Equal(t, []string{"a deleted"}, l.run("a"))
	require.NoError(t, l.s.Close(t.Context()))

	require.NoError(t, os.Remove(l.path("b")))
	l.write("d/f000002.md", "changed")
	l.open()
	got := l.run()
	require.Equal(t, []string{"d/f000002.md"}, l.calls)
	require.Len(t, got, 3000)
	require.Contains(t, got, "b deleted")
	require.Contains(t, got, "d/f000002.md=changed changed")
}

// TestSessionFilters: a run over names selects what a listing would, and an ignore file that changes shows as deletions and new files.
func TestSessionFilters(t *testing.T) {
	t.Parallel()
	l := newLive(t, fileproc.Options{IgnoreFiles: []string{".ignore"}, SkipMarked: []string{"SKIP"}, MaxDepth: 3},
		"a.md=1", "d/b.md=2", "d/e/c.md=3", "d/e/f/deep.md=4", "d/.ignore=x*\n")
	l.settle()
	require.Len(t, l.run(), 4)
	l.write("d/e/x.md", "ignored")
	l.write("d/e/y.md", "5")
	l.write("d/e/f/deep.md", "still too deep")
	require.Equal(t, []string{"d/e/y.md=5 new"}, l.run("d/e/x.md", "d/e/y.md", "d/e/f/deep.md"))
	l.write("d/.ignore", "y*\n")
	require.Equal(t, []string{"d/.ignore=y*\n changed", "d/b.md=2 unchanged", "d/e/c.md=3 unchanged", "d/e/x.md=ignored new", "d/e/y.md deleted"}, l.run("d/.ignore"))
	l.write("d/e/SKIP", "")
	require.Equal(t, []string{"d/e/c.md deleted", "d/e/x.md deleted"}, l.run("d/e/SKIP"))
	require.NoError(t, os.Remove(l.path("d/e/SKIP")))
	require.Equal(t, []string{"d/e/c.md=3 new", "d/e/x.md=ignored new"}, l.run("d/e/SKIP"))
	require.Empty(t, l.calls, "their results were known")
}

// TestSessionWithoutRoot: while root is away, everything counts as it was.
func TestSessionWithoutRoot(t *testing.T) {
	t.Parallel()
	l := newLive(t, fileproc.Options{}, "a=1", "d/b=2")
	l.settle()
	require.Len(t, l.run(), 2)
	aside := filepath.Join(t.TempDir(), "aside")
	require.NoError(t, os.Rename(l.root, aside))
	require.Equal(t, []string{". fails"}, l.run("a"))
	require.Empty(t, l.run(), "the same failure")
	require.NoError(t, os.Rename(aside, l.root))
	require.Equal(t, []string{"a=1 unchanged", "d/b=2 unchanged"}, l.run())
	require.NoError(t, os.RemoveAll(l.root))
	require.Equal(t, []string{". fails"}, l.run())
}

// A failingFS fails to open some files and directories.
type failingFS struct {
	fs.ReadLinkFS
	fails map[string]error
}

func (f failingFS) Open(name string) (fs.File, error) {
	if err := f.fails[name]; err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return f.ReadLinkFS.Open(name)
}

// TestSessionFailuresPass: what could not be opened is named until a run over that name can open it. Its results are as they
// were below a directory, and new for a file.
func TestSessionFailuresPass(t *testing.T) {
	t.Parallel()
	l := newLive(t, fileproc.Options{}, "a=1", "d/b=2", "d/e/c=3")
	fsys := failingFS{os.DirFS(l.root).(fs.ReadLinkFS), map[string]error{}}
	l.root, l.opts.FS = ".", fsys
	l.open()
	failed := func() []string {
		return slices.Sorted(maps.Keys(maps.Collect(l.s.Failed())))
	}
	require.Len(t, l.run(), 3)
	require.Empty(t, failed())
	fsys.fails["a"], fsys.fails["d"] = syscall.EIO, syscall.EIO
	for _, names := range [][]string{nil, {"a", "d"}} {
		require.Subset(t, []string{"a fails", "d fails"}, l.run(names...))
		require.Equal(t, []string{"a", "d"}, failed())
	}
	delete(fsys.fails, "a")
	require.Equal(t, []string{"a=1 changed"}, l.run(failed()...))
	require.Equal(t, []string{"d"}, failed())
	delete(fsys.fails, "d")
	require.Equal(t, []string{"d/b=2 unchanged", "d/e/c=3 unchanged"}, l.run(failed()...))
	require.Empty(t, failed())
	fsys.fails["."] = syscall.EIO
	require.Equal(t, []string{". fails"}, l.run())
	require.Equal(t, []string{"."}, failed())
}

// TestSessionOnErrorBesideResults: OnError is called while results are yielded, and both are as without it.
func TestSessionOnErrorBesideResults(t *testing.T) {
	t.Parallel()
	var specs []string
	for i := range 600 {
		specs = append(specs, fmt.Sprintf("f%d=%s", i, strings.Repeat("x", i%2*9)))
	}
	failed := 0
	l := newLive(t, fileproc.Options{MaxFileSize: 5, OnError: func(error) error { failed++; return nil }}, specs...)
	for range 30 {
		require.Len(t, l.run(), 300)
		require.Equal(t, 300, failed, "what fails again is no news")
		require.Len(t, maps.Collect(l.s.Failed()), 300)
	}
}

// TestSessionTriesGitsFilesAgain: a file of git's outside root that cannot be read has a path that is no file's below root, and
// another try looks at all files.
func TestSessionTriesGitsFilesAgain(t *testing.T) {
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", "")
	config := filepath.Join(os.Getenv("HOME"), ".gitconfig")
	require.NoError(t, os.WriteFile(config, []byte("[broken"), 0o644))
	l := newLive(t, fileproc.Options{GitIgnore: true}, "a=1", "d/b=2", ".gitconfig=3", ".git/HEAD=x", ".git/objects/", ".git/refs/")
	t.Chdir(l.root)
	for _, root := range []string{l.root, "."} {
		require.NoError(t, os.WriteFile(config, []byte("[broken"), 0o644))
		l.root = root
		l.open()
		got := l.run()
		require.True(t, strings.HasPrefix(got[0], "../") && strings.HasSuffix(got[0], ".gitconfig fails"), got)
		require.Len(t, got, 4)
		require.Contains(t, maps.Collect(l.s.Failed()), ".")
		require.Equal(t, []string{"d/b=2 unchanged"}, l.run("d"))
		require.NoError(t, os.WriteFile(config, nil, 0o644))
		require.Len(t, l.run("."), 3)
		require.Empty(t, maps.Collect(l.s.Failed()))
	}
}

// TestSessionRuleFails: a file that says what is ignored and cannot be read as such fails once. That is no failure of the file among those
// that are processed: its result neither changes nor stands for that, and none that it never had is deleted. Failed names it.
func TestSessionRuleFails(t *testing.T) {
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", "")
	repository := []string{".git/HEAD=x", ".git/objects/", ".git/refs/", ".git/config=[include]\npath = ../inc\n", "a=1"}
	failed := func(l *live) []string { return slices.Sorted(maps.Keys(maps.Collect(l.s.Failed()))) }
	open := func(t *testing.T, opts fileproc.Options, more ...string) *live {
		l := newLive(t, opts, append(repository, more...)...)
		l.settle()
		return l
	}
	t.Run("with a result", func(t *testing.T) {
		l := open(t, fileproc.Options{GitIgnore: true}, "inc=x[")
		require.Equal(t, []string{" fails", "a=1 new", "inc=x[ new"}, l.run())
		for range 2 {
			require.Equal(t, []string{"inc"}, failed(l))
			require.Equal(t, []string{"a=1 unchanged", "inc=x[ unchanged"}, l.run(failed(l)...))
		}
		l.write(".gitignore", "inc\n")
		require.Equal(t, []string{".gitignore=inc\n new", "a=1 unchanged", "inc deleted"}, l.run(".gitignore"))
		l.write("inc", "")
		require.Equal(t, []string{".gitignore=inc\n unchanged", "a=1 unchanged"}, l.run(failed(l)...))
		require.Empty(t, failed(l))
	})
	t.Run("failing too", func(t *testing.T) {
		l := open(t, fileproc.Options{GitIgnore: true, MaxFileSize: 3}, "inc=x[ is long")
		require.Equal(t, []string{" fails", "a=1 new", "inc fails"}, l.run())
		require.Equal(t, []string{"a=1 unchanged"}, l.run(failed(l)...))
		l.write("inc", "#")
		require.Equal(t, []string{"a=1 unchanged", "inc=# changed"}, l.run(failed(l)...))
		require.Empty(t, failed(l))
	})
	t.Run("for two reasons", func(t *testing.T) {
		l := open(t, fileproc.Options{GitIgnore: true, Exclude: []string{"inc"}}, "sub/.git/HEAD=x", "sub/.git/objects/", "sub/.git/refs/",
			"sub/.git/config=[include]\npath = ../../inc\n", "inc=[includeIf \"gitdir:sub/\"]\npath = inc\nx[")
		require.Equal(t, []string{" fails", " fails", "a=1 new"}, l.run())
		require.Equal(t, []string{"a=1 unchanged"}, l.run(failed(l)...))
	})
	t.Run("as a directory", func(t *testing.T) {
		l := open(t, fileproc.Options{GitIgnore: true}, "inc/x=2", "inc/y=3")
		require.Equal(t, []string{" fails", "a=1 new", "inc/x=2 new", "inc/y=3 new"}, l.run())
		require.NoError(t, os.Remove(l.path("inc/x")))
		require.Equal(t, []string{"a=1 unchanged", "inc/x deleted", "inc/y=3 unchanged"}, l.run(failed(l)...))
	})
	t.Run("left out", func(t *testing.T) {
		l := open(t, fileproc.Options{GitIgnore: true}, ".git/config=[x")
		require.Equal(t, []string{" fails", "a=1 new"}, l.run())
		require.Equal(t, []string{".git/config"}, failed(l))
		l.write(".git/config", "")
		require.Equal(t, []string{"a=1 unchanged"}, l.run(".git/config"))
		require.Empty(t, failed(l))
	})
	t.Run("listed and hidden", func(t *testing.T) {
		l := open(t, fileproc.Options{IgnoreFiles: []string{".ignore"}, SkipHidden: true}, "d/.ignore=a\n", "d/a=1")
		fsys := failingFS{os.DirFS(l.root).(fs.ReadLinkFS), map[string]error{"d/.ignore": syscall.EIO}}
		l.root, l.opts.FS = ".", fsys
		l.open()
		require.Equal(t, []string{" fails", "a=1 new", "d/a=1 new"}, l.run())
		require.Equal(t, []string{"d/.ignore"}, failed(l))
		require.Equal(t, []string{"d/a=1 unchanged"}, l.run(failed(l)...))
		delete(fsys.fails, "d/.ignore")
		require.Equal(t, []string{"d/a deleted"}, l.run(failed(l)...))
		require.Empty(t, failed(l))
	})
}

// TestSessionEndsEarly: a run that is left or cancelled deletes nothing, and the next one has it all.
func TestSessionEndsEarly(t *testing.T) {
	t.Parallel()
	l := newLive(t, fileproc.Options{}, testtree.Numbered("f", 500)...)
	l.settle()
	require.Len(t, l.run(), 500)
	require.NoError(t, os.Remove(l.path("f000007.md")))
	for range l.s.Run(t.Context(), nil) {
		break
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := first(l.s.Run(ctx, []string{"f000007.md"}))
	require.ErrorIs(t, err, context.Canceled)
	for r, err := range l.s.Run(t.Context(), nil) {
		require.NoError(t, err)
		_, err = first(l.s.Run(t.Context(), nil))
		require.ErrorContains(t, err, "one thing at a time")
		require.ErrorContains(t, l.s.Save(t.Context()), "one thing at a time")
		if r.Kind == incremental.Deleted {
			require.Equal(t, "f000007.md", r.Rel)
			return
		}
	}
	t.Fatal("the deletion is lost")
}

// TestSessionRefuses: what is wrong is said before anything is read.
func TestSessionRefuses(t *testing.T) {
	t.Parallel()
	_, err := incremental.Open(t.TempDir(), incremental.Options[int]{}, fileproc.Options{}, func(*fileproc.File) (int, error) { return 0, nil })
	require.ErrorContains(t, err, "Options.File is empty")
	_, err = incremental.Open[int](t.TempDir(), incremental.Options[int]{File: "c"}, fileproc.Options{}, nil)
	require.ErrorContains(t, err, "fn is nil")
	_, err = incremental.Open(t.TempDir(), incremental.Options[int]{File: "c"}, fileproc.Options{Files: slices.Values([]string{"a"})}, func(*fileproc.File) (int, error) { return 0, nil })
	require.ErrorContains(t, err, "Options.Files")
}

// TestSessionAtLongPaths: what is longer than the system takes as a path is found, and found to be gone, from root on.
func TestSessionAtLongPaths(t *testing.T) {
	t.Parallel()
	l := newLive(t, fileproc.Options{})
	if !testtree.Deep(t, l.root, 25, strings.Repeat("n", 200)) {
		t.Skip("this system has no such paths")
	}
	root, err := os.OpenRoot(l.root)
	require.NoError(t, err)
	defer root.Close()
	dir := strings.TrimSuffix(strings.Repeat(strings.Repeat("n", 200)+"/", 25), "/")
	require.NoError(t, errors.Join(root.WriteFile(dir+"/f", []byte("1"), 0o644), root.WriteFile(dir+"/g", []byte("2"), 0o644)))
	l.settle()
	require.Len(t, l.run(), 2)
	require.Equal(t, []string{dir + "/f=1 unchanged", dir + "/g=2 unchanged"}, l.run(dir))
	require.Equal(t, []string{dir + "/f=1 unchanged"}, l.run(dir+"/f"))
	require.NoError(t, root.Remove(dir+"/f"))
	require.Equal(t, []string{dir + "/f deleted"}, l.run(dir+"/f"))
	require.Equal(t, []string{dir + "/g=2 unchanged"}, l.run(dir))
}

// TestSessionAtManyLevels: a name below any number of directories is one that a run takes.
func TestSessionAtManyLevels(t *testing.T) {
	t.Parallel()
	const levels = 4200
	l := newLive(t, fileproc.Options{}, "a=1")
	if !testtree.Deep(t, l.root, levels, "d") {
		t.Skip("this system has no such paths")
	}
	dir := strings.TrimSuffix(strings.Repeat("d/", levels), "/")
	require.Equal(t, []string{"a=1 new"}, l.run())
	for _, name := range []string{dir, dir + "/f"} {
		require.Equal(t, []string{"a=1 unchanged"}, l.run(name))
	}
}

// TestSessionRootBehindALink: the dots of a root behind a link are those of what the link leads to.
func TestSessionRootBehindALink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testtree.Make(t, dir, "far/sub/", "far/root/a=1", "far/root/b=2", "far/root/.c/ignore=none\n")
	testtree.Symlink(t, filepath.Join("far", "sub"), filepath.Join(dir, "link"))
	l := newLive(t, fileproc.Options{SkipHidden: true, IgnoreFiles: []string{".c/ignore"}})
	l.root = dir + "/link/../root"
	if _, err := os.Stat(l.root); err != nil {
		t.Skip("this system cleans paths by their text: ", err)
	}
	l.open()
	l.settle()
	require.Equal(t, []string{"a=1 new", "b=2 new"}, l.run())
	require.Equal(t, []string{"a=1 unchanged"}, l.run("a"))
	require.NoError(t, l.s.Close(t.Context()))
	require.NoError(t, os.Remove(filepath.Join(dir, "far/root/b")))
	l.open()
	require.Equal(t, []string{"a=1 unchanged", "b deleted"}, l.run())
	require.NoError(t, os.Rename(filepath.Join(dir, "far/root/.c/ignore"), filepath.Join(dir, "far/root/.c/rules")))
	testtree.Symlink(t, "rules", filepath.Join(dir, "far/root/.c/ignore"))
	require.Equal(t, []string{"a=1 unchanged"}, l.run())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "far/root/.c/rules"), []byte("a\n"), 0o644))
	require.Equal(t, []string{"a deleted"}, l.run(".c/rules"))
}
