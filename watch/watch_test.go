package watch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/incremental"
	"github.com/fileproc/fileproc/internal/fsinfo"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/fileproc/fileproc/watch/internal/events"
	"github.com/gofrs/flock"
	"github.com/stretchr/testify/require"
)

// A follower is a loop over a tree of a test. fn returns the content. If the content ends with "!", fn fails; if with "?", fn skips the file; if with "^",
// fn replaces it.
type follower struct {
	testing.TB
	root  string
	w     *Watcher[string]
	end   context.CancelCauseFunc
	ended chan error // the last error

	mu      sync.Mutex
	results map[string]string
	got     []string // what came, as text
	running map[string]bool
	calls   map[string]int
}

var (
	errTestEnds = errors.New("the test has ended")
	errFails    = errors.New("fails")
)

func content(file *fileproc.File) (string, error) {
	text := string(file.Data())
	switch {
	case strings.HasSuffix(text, "!"):
		return "", errFails
	case strings.HasSuffix(text, "?"):
		return "", fileproc.ErrSkip
	case strings.HasSuffix(text, "^"):
		text = strings.ToUpper(text[:len(text)-1])
		return text, file.Replace([]byte(text))
	}
	return text, nil
}

// follow starts a loop. The end of the test ends it.
func follow(t testing.TB, root, file string, opts fileproc.Options, set func(*Watcher[string])) *follower {
	f := &follower{TB: t, root: root, results: map[string]string{}, running: map[string]bool{}, calls: map[string]int{}, ended: make(chan error, 1)}
	f.w = New(root, incremental.Options[string]{File: file, Version: "1"}, opts, func(file *fileproc.File) (string, error) {
		f.mu.Lock()
		if f.running[file.Rel()] {
			t.Error("two calls at once for ", file.Rel())
		}
		f.running[file.Rel()] = true
		f.calls[file.Rel()]++
		f.mu.Unlock()
		defer func() {
			f.mu.Lock()
			delete(f.running, file.Rel())
			f.mu.Unlock()
		}()
		return content(file)
	})
	f.w.Quiet = 5 * time.Millisecond
	if set != nil {
		set(f.w)
	}
	ctx, end := context.WithCancelCause(context.Background())
	f.end = end
	go f.loop(ctx)
	t.Cleanup(f.stop)
	f.sync()
	return f
}

func (f *follower) loop(ctx context.Context) {
	var last error
	for c, err := range f.w.Changes(ctx) {
		f.mu.Lock()
		last = err
		switch {
		case err != nil:
			delete(f.results, c.Rel)
			f.got = append(f.got, c.Rel+" fails")
			if errors.Is(err, ErrLimit) {
				f.Log(err)
			}
		case c.Settled:
			f.got = append(f.got, "settled")
		case c.Kind == incremental.Deleted:
			if _, ok := f.results[c.Rel]; !ok {
				f.got = append(f.got, c.Rel+" deleted, which had no result")
			} else {
				f.got = append(f.got, c.Rel+" deleted")
			}
			delete(f.results, c.Rel)
		default:
			f.results[c.Rel] = c.Value
			f.got = append(f.got, fmt.Sprintf("%s=%s %v", c.Rel, c.Value, c.Kind))
		}
		f.mu.Unlock()
	}
	f.ended <- last
}

func (f *follower) stop() {
	f.end(errTestEnds)
	err := <-f.ended
	f.ended <- err
}

func (f *follower) sync() {
	f.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	require.NoError(f, f.w.Sync(ctx))
}

// take calls Sync, and returns, in order, what has come since the last call of take.
func (f *follower) take() []string {
	f.Helper()
	f.sync()
	f.mu.Lock()
	defer f.mu.Unlock()
	got := f.got
	f.got = nil
	slices.Sort(got)
	return slices.DeleteFunc(got, func(s string) bool { return s == "settled" })
}

func (f *follower) path(rel string) string { return filepath.Join(f.root, filepath.FromSlash(rel)) }

// write writes a file at once, so that no loop can see half of it.
func (f *follower) write(rel, text string) {
	name, temp := f.path(rel), filepath.Join(f.TempDir(), "temp")
	require.NoError(f, os.MkdirAll(filepath.Dir(name), 0o755))
	if info, err := os.Stat(name); err == nil && info.Size() <= int64(len(text)) {
		file, err := os.OpenFile(name, os.O_WRONLY, 0)
		require.NoError(f, err)
		_, err = file.WriteString(text)
		require.NoError(f, errors.Join(err, file.Close()))
		return
	}
	require.NoError(f, os.WriteFile(temp, []byte(text), 0o644))
	if os.Rename(temp, name) != nil { // name is in another mount
		require.NoError(f, os.WriteFile(name, []byte(text), 0o644))
	}
}

func quiet(time time.Duration) func(*Watcher[string]) {
	return func(w *Watcher[string]) { w.Quiet = time }
}

func noEvents(string) (source, error) { return nil, events.ErrUnsupported }

// An altered source is that of this system, with more errors of Add and other results of Take, unless these fields are nil.
type altered struct {
	source
	add  func(rel string) error
	take func([]events.Hint) []events.Hint
}

// alter gives w an altered source.
func alter(w *Watcher[string], add func(rel string) error, take func([]events.Hint) []events.Hint) {
	w.open = func(root string) (source, error) {
		s, err := openEvents(root)
		if err != nil {
			return nil, err
		}
		return altered{s, add, take}, nil
	}
}

func (s altered) Add(rel string) error {
	err := s.source.Add(rel)
	if s.add != nil {
		err = errors.Join(err, s.add(rel))
	}
	return err
}

func (s altered) Take() []events.Hint {
	hints := s.source.Take()
	if s.take != nil {
		hints = s.take(hints)
	}
	return hints
}

// each runs a test with the events of this system, and with polling.
func each(t *testing.T, test func(t *testing.T, set func(*Watcher[string]))) {
	t.Run("events", func(t *testing.T) { test(t, nil) })
	t.Run("polling", func(t *testing.T) { test(t, func(w *Watcher[string]) { w.open = noEvents }) })
}

// TestChanges: the loop yields the results of all files, then each change, until its end. The next loop yields what has changed since.
func TestChanges(t *testing.T) {
	each(t, func(t *testing.T, set func(*Watcher[string])) {
		root, file := t.TempDir(), filepath.Join(t.TempDir(), "c")
		testtree.Make(t, root, "a=1", "d/b=2", "d/x=!")
		f := follow(t, root, file, fileproc.Options{}, set)
		require.Equal(t, []string{"a=1 new", "d/b=2 new", "d/x fails"}, f.take())
		f.write("d/e/f/c", "3")
		f.write("a", "one")
		f.write("d/x", "now it works")
		require.Equal(t, []string{"a=one changed", "d/e/f/c=3 new", "d/x=now it works changed"}, f.take())
		require.NoError(t, os.Rename(f.path("d"), f.path("g")))
		require.Equal(t, []string{"d/b deleted", "d/e/f/c deleted", "d/x deleted", "g/b=2 new", "g/e/f/c=3 new", "g/x=now it works new"}, f.take())
		f.write("g/e/f/c", "?")
		require.NoError(t, os.Remove(f.path("a")))
		require.Equal(t, []string{"a deleted", "g/e/f/c deleted"}, f.take())
		require.Empty(t, f.take())
		f.stop()
		require.ErrorIs(t, <-f.ended, errTestEnds)
		f.ended <- nil
		require.Error(t, f.w.Sync(timeout(t, 10*time.Millisecond)))

		f.write("g/b", "changed while nobody looked")
		f.write("new", "4")
		require.NoError(t, os.Remove(f.path("g/x")))
		f = follow(t, root, file, fileproc.Options{}, set)
		require.Equal(t, []string{"g/b=changed while nobody looked changed", "g/x deleted, which had no result", "new=4 new"}, f.take())
	})
}

func timeout(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// TestComesByItself: a change comes without Sync.
func TestComesByItself(t *testing.T) {
	each(t, func(t *testing.T, set func(*Watcher[string])) {
		f := follow(t, t.TempDir(), filepath.Join(t.TempDir(), "c"), fileproc.Options{}, func(w *Watcher[string]) {
			if w.Poll = 20 * time.Millisecond; set != nil {
				set(w)
			}
		})
		f.write("a/b/c", "1")
		require.Eventually(t, func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.results["a/b/c"] == "1" && f.got[len(f.got)-1] == "settled"
		}, 10*time.Second, time.Millisecond)
	})
}

// TestEditorsSaves: an editor's save is one change, in whichever way the editor writes the file.
func TestEditorsSaves(t *testing.T) {
	root := t.TempDir()
	testtree.Make(t, root, "a=old")
	f := follow(t, root, filepath.Join(t.TempDir(), "c"), fileproc.Options{}, quiet(time.Hour)) // Sync alone begins a burst
	f.take()
	for i, save := range []func(text string){
		func(text string) { // backup, new file, no backup
			require.NoError(t, os.Rename(f.path("a"), f.path("a~")))
			f.write("a", text)
			require.NoError(t, os.Remove(f.path("a~")))
		},
		func(text string) { // a rename over it
			f.write(".a.tmp", text)
			require.NoError(t, os.Rename(f.path(".a.tmp"), f.path("a")))
		},
		func(text string) { // in place, in two parts
			f.write("a", text[:1])
			f.write("a", text)
		},
	} {
		text := fmt.Sprint("saved ", i)
		save(text)
		require.Equal(t, []string{"a=" + text + " changed"}, f.take())
		require.Equal(t, i+2, f.calls["a"])
	}
}

// TestEventBeforeItSettles: a file is still only if events cover it and none has told of a change of it or of a directory above it.
func TestEventBeforeItSettles(t *testing.T) {
	l := &loop[string]{w: &Watcher[string]{}, source: &events.Source{}, dirty: map[string]bool{"a": true, "d": true}, polled: map[string]error{"p": events.ErrLimit}}
	for rel, is := range map[string]bool{"a": false, "b": true, "d/e/f": false, "p/x": false, "e/f": true} {
		require.Equal(t, is, l.isStill(rel), rel)
	}
	l.w.opts.Symlinks = fileproc.SymlinksFiles
	require.False(t, l.isStill("b"))
	l.w.opts.Symlinks, l.source = fileproc.SymlinksSkip, nil
	require.False(t, l.isStill("b"))
}

// TestOwnReplace: what fn writes by Replace is no change for which fn is called, while the loop runs and after it begins again.
func TestOwnReplace(t *testing.T) {
	each(t, func(t *testing.T, set func(*Watcher[string])) {
		cache := filepath.Join(t.TempDir(), "c")
		testtree.Set(t, &fsinfo.Settled, 50*time.Millisecond) // so that the loop looks at new files again
		f := follow(t, t.TempDir(), cache, fileproc.Options{}, set)
		for i, text := range []string{"abc^", "xyz^"} {
			f.write("a", text)
			got := f.take()
			if slices.Contains([]string{"plan9", "js", "wasip1", "windows"}, runtime.GOOS) {
				t.Skip("files cannot be replaced on this platform: ", got)
			}
			kind := []string{"new", "changed"}[i]
			require.Equal(t, []string{fmt.Sprintf("a=%s %s", strings.ToUpper(text[:3]), kind)}, got)
			for range 20 {
				time.Sleep(10 * time.Millisecond)
				require.Empty(t, f.take())
			}
			require.Equal(t, i+1, f.calls["a"])
		}
		f.write(".fileproc-0123456789abcdef0123456789abcdef.tmp", "a temporary file")
		require.Empty(t, f.take())
		f.stop()
		again := follow(t, f.root, cache, fileproc.Options{}, set)
		require.Equal(t, []string{"a=XYZ unchanged"}, again.take())
		require.Zero(t, again.calls["a"])
	})
}

// hasEvents reports whether a source can watch root.
func hasEvents(root string) bool {
	s, err := events.Open(root)
	return err == nil && errors.Join(s.Add("."), s.Close()) == nil
}

// TestIgnoreFileFails: while a file of Options.IgnoreFiles cannot be read, all results remain. When it can be read, the changes come.
func TestIgnoreFileFails(t *testing.T) {
	for name, onError := range map[string]func(error) error{"yielded": nil, "OnError": func(error) error { return nil }} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			testtree.Make(t, root, "a=1", "b=2")
			f := follow(t, root, filepath.Join(t.TempDir(), "c"), fileproc.Options{
				IgnoreFiles: []string{".conf/rules"}, SkipHidden: true, MaxFileSize: 8, OnError: onError,
			}, nil)
			f.take()
			testtree.Make(t, root, ".conf/rules/") // before the others: a burst may come between any two
			f.write("c", "too long to be read")    // OnError is called
			f.write("a", "one")
			require.Equal(t, []string{" fails"}, f.take())
			require.Empty(t, f.take(), "it still fails")
			require.NoError(t, os.Remove(f.path(".conf/rules")))
			testtree.Make(t, root, ".conf/rules=b\n")
			require.Subset(t, []string{"a=one changed", "b deleted", "c fails"}, f.take())
			require.Equal(t, map[string]string{"a": "one"}, f.results)
		})
	}
}

// TestOnErrorEndsTheLoop: any error of OnError ends the loop, in a later burst too.
func TestOnErrorEndsTheLoop(t *testing.T) {
	for _, refuse := range []func(error) error{
		func(err error) error { return err },
		func(error) error { return &fs.PathError{Op: "open", Path: "log", Err: errTestEnds} },
	} {
		root := t.TempDir()
		testtree.Make(t, root, "a=1")
		f := follow(t, root, filepath.Join(t.TempDir(), "c"), fileproc.Options{MaxFileSize: 8, OnError: refuse}, nil)
		f.take()
		f.write("a", "too long to be read")
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		require.ErrorIs(t, f.w.Sync(ctx), errEnded)
	}
}

// TestFileForADirectory: all results of a directory are deleted when an unreadable file replaces it.
func TestFileForADirectory(t *testing.T) {
	each(t, func(t *testing.T, set func(*Watcher[string])) {
		root := t.TempDir()
		testtree.Make(t, root, "d/a=1", "d/e/b=2", "d-=3")
		f := follow(t, root, filepath.Join(t.TempDir(), "c"), fileproc.Options{MaxFileSize: 8}, set)
		f.take()
		require.NoError(t, os.RemoveAll(f.path("d")))
		f.write("d", "too long to be read")
		require.Equal(t, []string{"d fails", "d/a deleted", "d/e/b deleted"}, f.take())
	})
}

// TestRulesInsideRoot: the loop follows each file that decides what is ignored, also in directories that no run lists and that come later.
func TestRulesInsideRoot(t *testing.T) {
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	t.Setenv("XDG_CONFIG_HOME", "")
	repository := func(f *follower, dir string) {
		for _, name := range []string{"objects/", "refs/", "HEAD=x"} {
			testtree.Make(t, f.root, dir+"/"+name)
		}
	}
	exclude := func(f *follower, name string) { testtree.Make(t, f.root, name+"=*.log\n") }
	for name, tc := range map[string]struct {
		files string
		links map[string]string // to their targets: both are paths relative to the directory of root and home, but for targets with dots
		paths []string          // Options.IgnoreFiles; what begins with a slash is in the same directory
		steps []func(f *follower)
		left  string // of b.log and sub/b.log
	}{
		"git init": {steps: []func(f *follower){
			func(f *follower) { testtree.Make(t, f.root, ".git/") },
			func(f *follower) { exclude(f, ".git/info/exclude") },
			func(f *follower) { repository(f, ".git") },
		}},
		"info/exclude of a new repository": {steps: []func(f *follower){
			func(f *follower) { repository(f, ".git") },
			func(f *follower) { testtree.Make(t, f.root, ".git/info/") },
			func(f *follower) { exclude(f, ".git/info/exclude") },
		}},
		"a repository in place of another": {files: ".git/", steps: []func(f *follower){
			func(f *follower) { repository(f, ".git") },
			func(f *follower) { require.NoError(t, os.RemoveAll(f.path(".git"))) },
			func(f *follower) { repository(f, ".git") },
			func(f *follower) { exclude(f, ".git/info/exclude") },
		}},
		"a repository below root": {steps: []func(f *follower){
			func(f *follower) { repository(f, "sub/.git") },
			func(f *follower) { exclude(f, "sub/.git/info/exclude") },
		}, left: "b.log"},
		"a submodule": {steps: []func(f *follower){
			func(f *follower) { repository(f, ".git/modules/sub") },
			func(f *follower) { testtree.Make(t, f.root, "sub/.git=gitdir: ../.git/modules/sub\n") },
			func(f *follower) { exclude(f, ".git/modules/sub/info/exclude") },
		}, left: "b.log"},
		"core.excludesFile": {steps: []func(f *follower){
			func(f *follower) { repository(f, ".git") },
			func(f *follower) { testtree.Make(t, f.root, ".git/config=[core]\nexcludesFile = .conf/rules\n") },
			func(f *follower) { exclude(f, ".conf/rules") },
		}},
		"an included configuration": {steps: []func(f *follower){
			func(f *follower) { repository(f, ".git") },
			func(f *follower) { exclude(f, ".rules") },
			func(f *follower) { testtree.Make(t, f.root, ".git/config=[include]\npath = ../.conf/more\n") },
			func(f *follower) { testtree.Make(t, f.root, ".conf/more=[core]\nexcludesFile = .rules\n") },
		}},
		"an ignore file by its path": {paths: []string{".conf/d/ignore"}, steps: []func(f *follower){
			func(f *follower) { testtree.Make(t, f.root, ".conf/d/") },
			func(f *follower) { exclude(f, ".conf/d/ignore") },
		}},
		"behind links": {files: ".one/ignore= .two/ignore=*.log\n", paths: []string{".conf/ignore"}, steps: []func(f *follower){
			func(f *follower) { testtree.Symlink(t, ".link", f.path(".conf")) },
			func(f *follower) { testtree.Symlink(t, ".one", f.path(".link")) },
			func(f *follower) {
				require.NoError(t, os.Remove(f.path(".link")))
				testtree.Symlink(t, ".two", f.path(".link"))
			},
			func(f *follower) { testtree.Make(t, f.root, ".two/ignore=a\n") },
			func(f *follower) { exclude(f, ".two/ignore") },
		}},
		"the user's file is a link into root": {links: map[string]string{"home/.config/git/ignore": "root/.dots/ignore"}, steps: []func(f *follower){
			func(f *follower) { repository(f, ".git") },
			func(f *follower) { testtree.Make(t, f.root, ".dots/") },
			func(f *follower) { exclude(f, ".dots/ignore") },
		}},
		"the user's configuration is a link into root": {links: map[string]string{"home/.gitconfig": "root/.dots/config"}, steps: []func(f *follower){
			func(f *follower) { repository(f, ".git") },
			func(f *follower) { exclude(f, ".rules") },
			func(f *follower) {
				testtree.Make(t, f.root, ".dots/config=[core]\nexcludesFile = "+filepath.ToSlash(f.path(".rules"))+"\n")
			},
		}},
		"a link outside leads into root": {links: map[string]string{"out": "root/.x/ignore"}, paths: []string{"/out"}, steps: []func(f *follower){
			func(f *follower) { testtree.Make(t, f.root, ".x/") },
			func(f *follower) { exclude(f, ".x/ignore") },
		}},
		"a directory outside is a link to one that comes later": {links: map[string]string{"conf": "root/.x"}, paths: []string{"/conf/d/ignore"}, steps: []func(f *follower){
			func(f *follower) { testtree.Make(t, f.root, ".x/") },
			func(f *follower) { testtree.Make(t, f.root, ".x/d/") },
			func(f *follower) { exclude(f, ".x/d/ignore") },
		}},
		"out of root and in again": {links: map[string]string{"root/.c/ignore": "out", "out": "root/.h/ignore"}, paths: []string{".c/ignore"}, steps: []func(f *follower){
			func(f *follower) { testtree.Make(t, f.root, ".h/") },
			func(f *follower) { exclude(f, ".h/ignore") },
		}},
		"dots behind a link": {files: ".sub/deep/", links: map[string]string{"root/.cur": "root/.sub/deep", "root/.conf": ".cur/../rules"}, paths: []string{".conf/ignore"}, steps: []func(f *follower){
			func(f *follower) { testtree.Make(t, f.root, ".sub/rules/") },
			func(f *follower) { exclude(f, ".sub/rules/ignore") },
		}},
		"a name with dots behind a link": {files: ".sub/deep/ .sub/rules/", links: map[string]string{"root/.cur": "root/.sub/deep"}, paths: []string{".cur/../rules/ignore"}, steps: []func(f *follower){
			func(f *follower) { exclude(f, ".sub/rules/ignore") },
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			root := filepath.Join(dir, "root")
			t.Setenv("HOME", filepath.Join(dir, "home"))
			testtree.Make(t, root, append(strings.Fields(tc.files), "b.log=1", "sub/b.log=2")...)
			for link, to := range tc.links {
				require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, link)), 0o755))
				if !strings.Contains(to, "..") {
					to = filepath.Join(dir, to)
				} else if runtime.GOOS == "windows" {
					t.Skip("this system cleans paths by their text")
				}
				testtree.Symlink(t, to, filepath.Join(dir, link))
			}
			for i, path := range tc.paths {
				if strings.HasPrefix(path, "/") {
					tc.paths[i] = filepath.Join(dir, path)
				} else if strings.Contains(path, "..") && runtime.GOOS == "windows" {
					t.Skip("this system cleans paths by their text")
				}
			}
			f := follow(t, root, filepath.Join(t.TempDir(), "c"), fileproc.Options{GitIgnore: tc.paths == nil, IgnoreFiles: tc.paths, SkipHidden: true}, nil)
			for _, step := range tc.steps {
				step(f)
				f.sync() // else a burst sees several steps
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			require.Equal(t, strings.Fields(tc.left), slices.AppendSeq([]string{}, maps.Keys(f.results)))
		})
	}
}

// TestRootMoves: while root is away its results remain. When root is back, the changes come.
func TestRootMoves(t *testing.T) {
	each(t, func(t *testing.T, set func(*Watcher[string])) {
		root, aside := filepath.Join(t.TempDir(), "r"), filepath.Join(t.TempDir(), "aside")
		testtree.Make(t, filepath.Dir(root), "r/a=1", "r/d/b=2")
		f := follow(t, root, filepath.Join(t.TempDir(), "c"), fileproc.Options{}, set)
		f.take()
		require.NoError(t, os.Rename(root, aside))
		require.Equal(t, []string{". fails"}, f.take())
		require.NoError(t, os.WriteFile(filepath.Join(aside, "a"), []byte("one"), 0o644))
		require.NoError(t, os.Rename(aside, root))
		require.Equal(t, []string{"a=one changed"}, f.take())
		f.write("d/b", "two")
		require.Equal(t, []string{"d/b=two changed"}, f.take())
		require.NoError(t, os.Rename(root, aside)) // another directory in its place
		f.write("d/c", "3")
		require.Equal(t, []string{"a deleted", "d/b deleted", "d/c=3 new"}, f.take())
		f.write("d/c", "three")
		require.Equal(t, []string{"d/c=three changed"}, f.take())
	})
}

// TestRootIsAnother: the loop finds out that root is another directory, without Sync and although all files have settled.
func TestRootIsAnother(t *testing.T) {
	for name, do := range map[string]func(dir string) error{
		"made anew while it is used": func(dir string) error {
			return errors.Join(os.RemoveAll(dir+"/one"), os.MkdirAll(dir+"/one/root", 0o755), os.WriteFile(dir+"/one/root/b", []byte("2"), 0o644))
		},
		"second link": func(dir string) error {
			return errors.Join(os.Symlink("two", dir+"/new"), os.Rename(dir+"/new", dir+"/release"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, set func(*Watcher[string])) {
				dir := t.TempDir()
				testtree.Make(t, dir, "one/root/a=1", "two/root/b=2")
				testtree.Symlink(t, "release", dir+"/now")
				testtree.Symlink(t, "one", dir+"/release")
				if runtime.GOOS != "windows" { // which lets nobody remove it then
					held, err := os.Open(dir + "/now/root")
					require.NoError(t, err)
					defer held.Close()
				}
				f := follow(t, dir+"/now/root", filepath.Join(t.TempDir(), "c"), fileproc.Options{}, func(w *Watcher[string]) {
					if w.Poll = 5 * time.Millisecond; set != nil {
						set(w)
					}
				})
				time.Sleep(3 * fsinfo.Settled)
				require.NoError(t, do(dir))
				require.Eventually(t, func() bool {
					f.mu.Lock()
					defer f.mu.Unlock()
					return maps.Equal(map[string]string{"b": "2"}, f.results)
				}, 10*time.Second, time.Millisecond)
			})
		})
	}
}

// TestLongPaths: a file whose path is longer than the system accepts is delivered once for each change, and its result remains until it is gone.
func TestLongPaths(t *testing.T) {
	each(t, func(t *testing.T, set func(*Watcher[string])) {
		dir := t.TempDir()
		if !testtree.Deep(t, dir, 25, strings.Repeat("n", 200)) {
			t.Skip("this system has no such paths")
		}
		root, err := os.OpenRoot(dir)
		require.NoError(t, err)
		defer root.Close()
		rel := strings.Repeat(strings.Repeat("n", 200)+"/", 25) + "f"
		require.NoError(t, root.WriteFile(rel, []byte("1"), 0o644))
		f := follow(t, dir, filepath.Join(t.TempDir(), "c"), fileproc.Options{}, func(w *Watcher[string]) {
			if w.Quiet = time.Hour; set != nil { // no burst is between the two steps of a write
				set(w)
			}
		})
		time.Sleep(3 * fsinfo.Settled)
		require.Equal(t, []string{rel + "=1 new"}, f.take())
		require.NoError(t, root.WriteFile(rel, []byte("two"), 0o644))
		require.Equal(t, []string{rel + "=two changed"}, f.take())
		require.NoError(t, root.Remove(rel))
		require.Equal(t, []string{rel + " deleted"}, f.take())
	})
}

// TestRulesBelowLongPaths: the loop follows the rules of a repository also where a path is longer than the system accepts.
func TestRulesBelowLongPaths(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", t.TempDir())
	if !testtree.Deep(t, dir, 25, strings.Repeat("n", 200)) {
		t.Skip("this system has no such paths")
	}
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer root.Close()
	repo := strings.Repeat(strings.Repeat("n", 200)+"/", 25)
	for _, name := range []string{".git/objects", ".git/refs", ".git/info"} {
		require.NoError(t, root.MkdirAll(repo+name, 0o755))
	}
	for _, name := range []string{".git/HEAD", ".git/info/exclude", "b.log"} {
		require.NoError(t, root.WriteFile(repo+name, []byte("x"), 0o644))
	}
	f := follow(t, dir, filepath.Join(t.TempDir(), "c"), fileproc.Options{GitIgnore: true}, nil)
	require.Equal(t, []string{repo + "b.log=x new"}, f.take())
	require.NoError(t, root.WriteFile(repo+".git/info/exclude", []byte("*.log"), 0o644))
	require.Equal(t, []string{repo + "b.log deleted"}, f.take())
}

// TestLinkToAbove: a directory with several paths, here by a link that leads above root, does not keep the loop busy.
func TestLinkToAbove(t *testing.T) {
	dir := t.TempDir()
	testtree.Make(t, dir, "root/d/a=1", "beside/b=2")
	testtree.Symlink(t, "..", filepath.Join(dir, "root", "up"))
	var looks atomic.Int64
	f := follow(t, dir+"/root", filepath.Join(t.TempDir(), "c"), fileproc.Options{
		Symlinks:  fileproc.SymlinksFollow,
		SelectDir: func(fileproc.Entry) bool { looks.Add(1); return true },
	}, func(w *Watcher[string]) { w.Poll = time.Hour })
	time.Sleep(3 * fsinfo.Settled)
	f.sync()
	before := looks.Load()
	time.Sleep(6 * fsinfo.Settled)
	require.Equal(t, before, looks.Load())
}

// TestHardLinks: a write by one name of a file is a change of its other name, too.
func TestHardLinks(t *testing.T) {
	root := t.TempDir()
	testtree.Make(t, root, "a=1", "d/")
	if err := os.Link(filepath.Join(root, "a"), filepath.Join(root, "d", "b")); err != nil {
		t.Skip("no hard links here: ", err)
	}
	f := follow(t, root, filepath.Join(t.TempDir(), "c"), fileproc.Options{}, nil)
	f.take()
	f.write("d/b", "one")
	require.Equal(t, []string{"a=one changed", "d/b=one changed"}, f.take())
}

// TestEnds: an error of OnError, fs.SkipAll, wrong arguments and a break end the loop.
func TestEnds(t *testing.T) {
	root := t.TempDir()
	testtree.Make(t, root, "a=1", "b=!")
	errStop := errors.New("stop")
	all := func(opts fileproc.Options, fn func(*fileproc.File) (string, error)) (n int, last error) {
		for _, err := range Stream(t.Context(), root, incremental.Options[string]{File: filepath.Join(t.TempDir(), "c")}, opts, fn) {
			n, last = n+1, err
		}
		return n, last
	}
	_, err := all(fileproc.Options{OnError: func(error) error { return errStop }}, content)
	require.ErrorIs(t, err, errStop)
	_, err = all(fileproc.Options{}, func(*fileproc.File) (string, error) { return "", fs.SkipAll })
	require.NoError(t, err)
	n, err := all(fileproc.Options{MaxDepth: -1}, content)
	require.Equal(t, 1, n)
	require.ErrorContains(t, err, "MaxDepth")
	n, err = all(fileproc.Options{}, nil)
	require.Equal(t, 1, n)
	require.ErrorContains(t, err, "fn is nil")
	for range Stream(t.Context(), root, incremental.Options[string]{File: filepath.Join(t.TempDir(), "c")}, fileproc.Options{}, content) {
		break
	}
}

// TestSyncEndsWhileFnRuns: Sync returns, too, when the loop ends by a call of fn that it waits for.
func TestSyncEndsWhileFnRuns(t *testing.T) {
	for name, fn := range map[string]func(){"cancel": func() {}, "panic": func() { panic("by fn") }} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			testtree.Make(t, root, "a=1")
			running, goOn := make(chan struct{}), make(chan struct{})
			w := New(root, incremental.Options[string]{File: filepath.Join(t.TempDir(), "c")}, fileproc.Options{}, func(*fileproc.File) (string, error) {
				close(running)
				<-goOn
				fn()
				return "", nil
			})
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan any)
			go func() {
				defer func() { ended <- recover() }()
				for range w.Changes(ctx) {
				}
			}()
			<-running
			synced := make(chan error, 10)
			for range cap(synced) {
				go func() { synced <- w.Sync(context.Background()) }()
			}
			cancel()
			close(goOn)
			require.Equal(t, name == "panic", <-ended != nil)
			for range cap(synced) {
				require.ErrorIs(t, <-synced, errEnded)
			}
		})
	}
}

// TestSyncEndsWithTheLoop: Sync fails when the loop ends while its body runs, and after that until another loop begins.
func TestSyncEndsWithTheLoop(t *testing.T) {
	root := t.TempDir()
	testtree.Make(t, root, "a=1")
	w := New(root, incremental.Options[string]{File: filepath.Join(t.TempDir(), "c")}, fileproc.Options{}, content)
	errs := make(chan error)
	sync := func() { errs <- w.Sync(context.Background()) }
	end := func() error {
		select {
		case err := <-errs:
			return err
		case <-time.After(20 * time.Second):
			return nil
		}
	}
	for range 2 {
		for range w.Changes(t.Context()) {
			for range 10 {
				go sync()
			}
			time.Sleep(10 * time.Millisecond) // some wait by now
			break
		}
		for range 10 {
			require.ErrorIs(t, end(), errEnded)
		}
		go sync()
		require.ErrorIs(t, end(), errEnded)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		for range w.Changes(ctx) {
		}
		close(ended)
	}()
	require.Eventually(t, func() bool { return w.Sync(t.Context()) == nil }, 20*time.Second, time.Millisecond)
	cancel()
	<-ended

	for _, wrong := range []struct {
		compare incremental.Compare // no session opens
		depth   int                 // no run begins
	}{{compare: -1}, {depth: -1}} {
		inc := incremental.Options[string]{File: filepath.Join(t.TempDir(), "c"), Compare: wrong.compare}
		w = New(root, inc, fileproc.Options{MaxDepth: wrong.depth}, content)
		go sync() // waits for the first loop, which ends at once
		time.Sleep(10 * time.Millisecond)
		for _, err := range w.Changes(t.Context()) {
			require.Error(t, err)
		}
		require.ErrorIs(t, end(), errEnded)
	}
}

// lock takes the lock of a cache file, as another process does. The caller releases it by unlock.
func lock(t *testing.T, file string) (unlock func()) {
	t.Helper()
	l := flock.New(file + ".lock")
	if ok, err := l.TryLock(); !ok {
		t.Skip("this system has no locks: ", err)
	}
	t.Cleanup(func() { _ = l.Unlock() })
	return func() { require.NoError(t, l.Unlock()) }
}

// TestNoGrowth: after many saves of an editor, a loop uses as little memory as after some, although each save has temporary files with new
// names. There are six saves for each round of FILEPROC_WATCHED.
func TestNoGrowth(t *testing.T) {
	root := t.TempDir()
	testtree.Make(t, root, testtree.Numbered("d", 50)...)
	f := follow(t, root, filepath.Join(t.TempDir(), "c"), fileproc.Options{}, func(w *Watcher[string]) { w.saveAfter = 10 * time.Millisecond })
	saves := 0
	memory := func(n int) uint64 {
		for range n {
			saves++
			name, temp := f.path(fmt.Sprintf("d/i%06d.md", saves%50)), f.path(fmt.Sprint("d/e/", saves, "~"))
			require.NoError(t, os.MkdirAll(filepath.Dir(temp), 0o755))
			require.NoError(t, os.WriteFile(temp, []byte(temp), 0o644))
			if saves%3 == 0 {
				f.take()
			}
			require.NoError(t, os.Rename(temp, name))
			if saves%100 == 0 {
				require.NoError(t, os.RemoveAll(filepath.Dir(temp)))
			}
			f.take()
		}
		f.mu.Lock()
		f.calls = map[string]int{}
		f.mu.Unlock()
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	rounds := testtree.Rounds(t, "FILEPROC_WATCHED", 60)
	memory(300)
	before := memory(rounds * 3)
	after := memory(rounds * 3)
	for i := 0; i < 1000 && after >= before+512<<10; i++ { // a save may run at the moment
		after = memory(0)
	}
	t.Logf("%d KiB after %d saves, %d after %d", before>>10, 300+rounds*3, after>>10, saves)
	require.Less(t, after, before+512<<10, "beyond what differs between two moments")
}
