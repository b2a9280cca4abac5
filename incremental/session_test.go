package incremental_test

import (
	"cmp"
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
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/incremental"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

// A live is a session over a tree of a test. Fn returns the content. It fails if the content ends with "!", and skips the file if it
// ends with "?".
type live struct {
	*testing.T
	root string
	inc  incremental.Options[string]
	opts fileproc.Options
	s    *incremental.Session[string]

	report fileproc.Report
	failed error // what OnError returns
	ctx    context.Context
	cancel context.CancelFunc // of the last run

	mu    sync.Mutex
	calls []string
}

// inVirtualTime runs a test with a clock that is ahead of the file system's: a file is as young as the time that the test gives
// it, and settle takes no time.
func inVirtualTime(t *testing.T, test func(t *testing.T)) {
	ahead := time.Now().Round(0).Add(24 * time.Hour)
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(ahead))
		test(t)
	})
}

func newLive(t *testing.T, opts fileproc.Options, specs ...string) *live {
	l := newUnopened(t, opts)
	testtree.Make(t, l.root, specs...)
	l.open()
	return l
}

func newUnopened(t *testing.T, opts fileproc.Options) *live {
	l := &live{T: t, root: t.TempDir(), inc: incremental.Options[string]{File: filepath.Join(t.TempDir(), "c")}, opts: opts}
	l.opts.Workers, l.opts.Report = 3, &l.report
	return l
}

func (l *live) open() {
	s, err := incremental.Open(l.root, l.inc, l.opts, func(f *fileproc.File) (string, error) {
		l.mu.Lock()
		l.calls = append(l.calls, f.Rel())
		l.mu.Unlock()
		return l.result(f)
	})
	require.NoError(l, err)
	l.s = s
}

func (l *live) result(f *fileproc.File) (string, error) {
	text := string(f.Data())
	switch {
	case text == "enough":
		return "", fs.SkipAll
	case text == "cancel":
		l.cancel()
		return "", l.ctx.Err()
	case strings.HasSuffix(text, "!"):
		return "", errors.New("fails")
	case strings.HasSuffix(text, "?"):
		return "", fileproc.ErrSkip
	}
	return text, nil
}

func (l *live) path(rel string) string { return filepath.Join(l.root, rel) }
func (l *live) write(rel, text string) {
	require.NoError(l, os.MkdirAll(filepath.Dir(l.path(rel)), 0o755))
	require.NoError(l, os.WriteFile(l.path(rel), []byte(text), 0o644))
	l.touch(rel)
}

// touch gives a file the test's time, which decides in virtual time whether it has settled.
func (l *live) touch(rel string) {
	now := time.Now()
	require.NoError(l, os.Chtimes(l.path(rel), now, now))
}

// run returns, in order, what a run yields: "path=value kind".
func (l *live) run(names ...string) []string {
	l.Helper()
	l.calls = nil
	l.ctx, l.cancel = context.WithCancel(l.Context())
	defer l.cancel()
	got := []string{}
	for r, err := range l.s.Run(l.ctx, names) {
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
	l.checkCounts()
	return got
}

// checkCounts requires that the counts of the report add up, and that the session's count of its files is right.
func (l *live) checkCounts() {
	l.Helper()
	r := l.report
	sum := r.Processed + r.Unchanged + r.Failed + r.Abandoned
	for _, n := range r.Skipped {
		sum += n
	}
	require.Equal(l, r.Found, sum, "%+v", r)
	counted, found := incremental.Known(l.s)
	require.Equal(l, found, counted)
}

func (l *live) unsettled() map[string]time.Time {
	all := maps.Collect(l.s.Unsettled())
	for rel, due := range all {
		all[rel] = due.In(time.Now().Location())
	}
	return all
}

func (l *live) settle() { time.Sleep(incremental.Settled + 20*time.Millisecond) }

// TestSessionFollowsTheTree: each run yields what its names lead to now, and what is deleted.
func TestSessionFollowsTheTree(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
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
	})
}

func first[T any](seq func(func(T, error) bool)) (v T, err error) {
	for v, err := range seq {
		return v, err
	}
	return v, err
}

// TestSessionForgetsWhatIsGone: a path at which there was something else for a moment is not looked at again for ever.
func TestSessionForgetsWhatIsGone(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
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
	})
}

// TestSessionOutcomes: a file that fn skips has no result any more. A failure stays until the file changes, and fn is not called again.
func TestSessionOutcomes(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
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
	})
}

// TestSessionSettles: a file that is too new to be kept is named, looked at again, and kept without a call of fn.
func TestSessionSettles(t *testing.T) {
	t.Parallel()
	incremental.NeedsTimes(t)
	inVirtualTime(t, func(t *testing.T) {
		l := newLive(t, fileproc.Options{}, "a=1", "b=2")
		l.run()
		begun := time.Now()
		l.write("a", "one")
		require.Equal(t, []string{"a=one changed"}, l.run("a"))
		require.Equal(t, map[string]time.Time{"a": begun.Add(incremental.Settled)}, l.unsettled())
		require.NotContains(t, incremental.Kept(l.root, l.inc, l.opts), "a")
		time.Sleep(time.Millisecond)
		l.write("a", "one") // another write of the same content
		require.Equal(t, []string{"a=one unchanged"}, l.run("a"))
		require.Empty(t, l.calls)
		require.EqualValues(t, 1, l.report.Unchanged)
		require.Equal(t, map[string]time.Time{"a": time.Now().Add(incremental.Settled)}, l.unsettled())
		l.write("a", "two")
		require.Equal(t, []string{"a=two changed"}, l.run("a"))
		time.Sleep(incremental.Settled - 1)
		require.Equal(t, []string{"a=two unchanged"}, l.run("a"))
		require.Contains(t, l.unsettled(), "a")
		time.Sleep(time.Nanosecond)
		require.Equal(t, []string{"a=two unchanged"}, l.run("a"))
		require.Empty(t, l.calls)
		require.Empty(t, l.unsettled(), "it has settled")
		require.NoError(t, l.s.Close(t.Context()))
		require.Len(t, incremental.Kept(l.root, l.inc, l.opts), 2)
		l.open()
		require.Equal(t, []string{"a=two unchanged", "b=2 unchanged"}, l.run())
		require.Empty(t, l.calls)
	})
}

// TestSessionSaves: after saves that load and saves that do not, the next session has what this one had, and yields files that were
// deleted meanwhile.
func TestSessionSaves(t *testing.T) {
	t.Parallel()
	l := newMemory(t, fileproc.Options{}, testtree.Numbered("d/f", 3000)...)
	require.Len(t, l.run(), 3000)
	require.NoError(t, l.s.Save(t.Context())) // 3,000 are worth a load
	require.Len(t, l.run(), 3000)
	require.Empty(t, l.calls)
	l.write("a", "1")
	l.write("b", "2")
	l.remove("d/f000001.md")
	require.Len(t, l.run("a", "b", "d/f000001.md"), 3)
	require.Equal(t, []string{"a=1 unchanged", "b=2 unchanged"}, l.run("a", "b"))
	require.NoError(t, l.s.Save(t.Context()))
	l.remove("a")
	require.Equal(t, []string{"a deleted"}, l.run("a"))
	require.NoError(t, l.s.Close(t.Context()))

	l.remove("b")
	l.write("d/f000002.md", "changed")
	l.open()
	got := l.run()
	require.Equal(t, []string{"d/f000002.md"}, l.calls)
	require.Len(t, got, 3000)
	require.Contains(t, got, "b deleted")
	require.Contains(t, got, "d/f000002.md=changed changed")
}

// TestSessionGivesMemoryBack: a save loads the cache file when more than 1,024 files are new, and more than an eighth of all. Then
// the session has nothing of these files in memory, and calls fn for none of them.
func TestSessionGivesMemoryBack(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ files, bound int }{{1030, 1024}, {8208, 1026}} {
		l := newMemory(t, fileproc.Options{}, testtree.Numbered("f", c.files)...)
		require.Len(t, l.run(), c.files)
		require.NoError(t, l.s.Close(t.Context()))
		l.open()
		require.Len(t, l.run(), c.files)
		require.Empty(t, incremental.Remembered(l.s), "what the cache file has")
		l.write("g", "a failure, which is in no cache file!")
		require.Equal(t, []string{"g fails"}, l.run("g"))
		for i := range c.bound {
			l.write(fmt.Sprintf("f%06d.md", i), "changed")
		}
		for range 2 { // what is the same again counts once
			require.Len(t, l.run(), c.files)
		}
		require.NoError(t, l.s.Save(t.Context()))
		require.Len(t, incremental.Remembered(l.s), c.bound+1)
		one := fmt.Sprintf("f%06d.md", c.bound)
		for n, text := range []string{"changed", "changed again"} { // after the load, the count begins anew
			l.write(one, text)
			require.Len(t, l.run(one), 1)
			require.NoError(t, l.s.Save(t.Context()))
			require.Len(t, incremental.Remembered(l.s), n+1)
		}
		require.Len(t, l.run(), c.files)
		require.Empty(t, l.calls)
	}
}

// TestSessionSavesDeletions: only deleted files leave the cache file, whether their records were loaded or added by the session, and
// whatever has come back.
func TestSessionSavesDeletions(t *testing.T) {
	t.Parallel()
	kept := func(l *memory) []string {
		return slices.Sorted(maps.Keys(incremental.Kept(l.root, l.inc, l.opts)))
	}
	open := func(t *testing.T) *memory {
		l := newMemory(t, fileproc.Options{}, "a=1", "b=2", "c=3", "d=4")
		require.Len(t, l.run(), 4)
		require.NoError(t, l.s.Close(t.Context()))
		l.open()
		require.Len(t, l.run(), 4)
		return l
	}
	t.Run("a loaded and an added one at once", func(t *testing.T) {
		for _, rel := range []string{"a", "b", "c", "d"} {
			l := open(t)
			l.write("x", "5")
			l.write("y", "6")
			require.Equal(t, []string{"x=5 new", "y=6 new"}, l.run("x", "y"))
			require.NoError(t, l.s.Save(t.Context()))
			l.remove(rel)
			l.remove("x")
			require.Equal(t, []string{rel + " deleted", "x deleted"}, l.run(rel, "x"))
			require.NoError(t, l.s.Save(t.Context()))
			require.Equal(t, slices.DeleteFunc([]string{"a", "b", "c", "d", "y"}, func(s string) bool { return s == rel }), kept(l))
			require.Equal(t, []string{"x"}, incremental.Remembered(l.s), "as deleted")
			require.Len(t, l.run(), 4)
			require.Empty(t, l.calls)
		}
	})
	t.Run("on the way to the first run over all", func(t *testing.T) {
		l := newMemory(t, fileproc.Options{}, "a=1", "b=2")
		l.run()
		require.NoError(t, l.s.Close(t.Context()))
		l.remove("a")
		l.open()
		require.Equal(t, []string{"b=2 unchanged"}, l.run("b"))
		require.Equal(t, []string{"a deleted", "b=2 unchanged"}, l.run())
		require.Equal(t, []string{"b=2 unchanged"}, l.run())
		require.NoError(t, l.s.Save(t.Context()))
		require.Equal(t, []string{"b"}, kept(l))
		l.write("c", "3")
		l.run("c")
		require.NoError(t, l.s.Save(t.Context()))
		require.Equal(t, []string{"b", "c"}, kept(l), "what was deleted is deleted once")
	})
	t.Run("saved once, and without a load", func(t *testing.T) {
		l := open(t)
		l.write("x", "5")
		l.remove("a")
		l.run()
		require.NoError(t, l.s.Save(t.Context()))
		require.Equal(t, []string{"a", "x"}, incremental.Remembered(l.s), "the one as deleted")
		before, err := os.Stat(l.inc.File)
		require.NoError(t, err)
		require.NoError(t, l.s.Save(t.Context()))
		after, err := os.Stat(l.inc.File)
		require.NoError(t, err)
		require.Equal(t, before.Size(), after.Size())
	})
	t.Run("cancelled", func(t *testing.T) {
		l := newMemory(t, fileproc.Options{}, "a=1", "d/b=2")
		l.run()
		require.NoError(t, l.s.Close(t.Context()))
		l.remove("d/b")
		cancels := true
		l.opts.SelectDir = func(fileproc.Entry) bool { // which is asked about what is gone
			if cancels {
				l.cancel()
			}
			return true
		}
		l.open()
		require.Equal(t, []string{" fails", "a=1 unchanged"}, l.run())
		cancels = false
		require.Equal(t, []string{"a=1 unchanged", "d/b deleted"}, l.run())
	})
	t.Run("told once", func(t *testing.T) { // by the cache file and by the session, after a load
		l := newMemory(t, fileproc.Options{}, "a=1", "b=2")
		require.Len(t, l.run("a", "b"), 2)
		l.remove("b")
		require.Equal(t, []string{"b deleted"}, l.run("b"))
		require.NoError(t, l.s.Save(t.Context()))
		l.remove("a")
		require.Equal(t, []string{"a deleted"}, l.run())
		require.NoError(t, l.s.Save(t.Context()))
		require.Empty(t, kept(l))
	})
	t.Run("back before the save", func(t *testing.T) {
		l := open(t)
		l.remove("a")
		require.Equal(t, []string{"a deleted"}, l.run("a"))
		l.write("a", "1")
		require.Equal(t, []string{"a=1 new"}, l.run("a"))
		require.Empty(t, l.calls)
		require.NoError(t, l.s.Save(t.Context()))
		require.Equal(t, []string{"a", "b", "c", "d"}, kept(l))
	})
	t.Run("back after the save", func(t *testing.T) {
		l := open(t)
		l.remove("a")
		require.Equal(t, []string{"a deleted"}, l.run("a"))
		require.NoError(t, l.s.Save(t.Context()))
		l.write("a", "1")
		require.Equal(t, []string{"a=1 new"}, l.run("a"))
		require.NoError(t, l.s.Close(t.Context()))
		require.Equal(t, []string{"a", "b", "c", "d"}, kept(l))
	})
	t.Run("back before the first run over all", func(t *testing.T) {
		l := newMemory(t, fileproc.Options{}, "a=1", "b=2")
		l.run()
		require.NoError(t, l.s.Close(t.Context()))
		l.open()
		require.Equal(t, []string{"a=1 unchanged"}, l.run("a"))
		for _, saves := range []bool{false, true} {
			for _, text := range []string{"1", "2"} {
				l.remove("a")
				require.Equal(t, []string{"a deleted"}, l.run("a"))
				if saves {
					require.NoError(t, l.s.Save(t.Context()))
				}
				l.write("a", text)
				require.Equal(t, []string{"a=" + text + " new"}, l.run("a"))
			}
		}
		l.write("b", "x")
		require.Equal(t, []string{"a=2 unchanged", "b=x changed"}, l.run())
	})
	t.Run("twice before the save", func(t *testing.T) {
		l := open(t)
		l.write("a", "x")
		require.Equal(t, []string{"a=x changed"}, l.run("a"))
		l.remove("a")
		require.Equal(t, []string{"a deleted"}, l.run("a"))
		l.write("a", "1") // as it was when the cache file was loaded
		require.Equal(t, []string{"a=1 new"}, l.run("a"))
		l.remove("a")
		require.Equal(t, []string{"a deleted"}, l.run("a"))
		require.NoError(t, l.s.Close(t.Context()))
		require.Equal(t, []string{"b", "c", "d"}, kept(l))
		l.open()
		require.Len(t, l.run(), 3)
	})
}

// TestSessionSaveFails: the next save writes what a failed save could not, deletions too. A result that cannot be encoded is an
// error of one save, and stays known to the session.
func TestSessionSaveFails(t *testing.T) {
	t.Parallel()
	l := newMemory(t, fileproc.Options{}, "a=1", "b=2")
	l.run()
	require.NoError(t, l.s.Save(t.Context()))
	l.remove("a")
	l.write("c", "3")
	l.run()
	require.NoError(t, os.Rename(l.inc.File, l.inc.File+".aside"))
	require.NoError(t, os.Mkdir(l.inc.File, 0o755)) // which nothing replaces
	for range 2 {
		require.ErrorIs(t, l.s.Save(t.Context()), incremental.ErrNotSaved)
		require.ErrorIs(t, l.s.Close(t.Context()), incremental.ErrNotSaved)
	}
	require.NoError(t, os.Remove(l.inc.File))
	require.NoError(t, os.Rename(l.inc.File+".aside", l.inc.File))
	require.NoError(t, l.s.Close(t.Context()))
	require.Equal(t, []string{"b", "c"}, slices.Sorted(maps.Keys(incremental.Kept(l.root, l.inc, l.opts))))

	l.inc.Codec, l.inc.File = partly{}, l.inc.File+"2"
	l.open()
	l.write("odd", "unspeakable")
	l.write("odd too", "unspeakable")
	require.Len(t, l.run(), 4)
	err := l.s.Save(t.Context())
	require.ErrorIs(t, err, incremental.ErrNotSaved)
	require.ErrorContains(t, err, "2 cannot be encoded, such as the result for odd")
	require.NoError(t, l.s.Save(t.Context()))
	require.Equal(t, []string{"b=2 unchanged", "c=3 unchanged", "odd too=unspeakable unchanged", "odd=unspeakable unchanged"}, l.run())
	require.Empty(t, l.calls)
	require.NoError(t, l.s.Close(t.Context()))
}

// Partly is a codec that refuses one text.
type partly struct{}

func (partly) Append(b []byte, v string) ([]byte, error) {
	if v == "unspeakable" {
		return nil, errors.New("not this")
	}
	return append(b, v...), nil
}
func (partly) Decode(b []byte) (string, error) { return string(b), nil }

// TestSessionFilters: a run over names selects what a listing would, and an ignore file that changes shows as deletions and new files.
func TestSessionFilters(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
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
	})
}

// TestSessionWithoutRoot: while root is away, what is known of all files stands.
func TestSessionWithoutRoot(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
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
	})
}

// A failingFS fails to open some files and directories, and to look some up.
type failingFS struct {
	fs.ReadLinkFS
	fails, hidden map[string]error
}

func (f failingFS) Open(name string) (fs.File, error) {
	if err := f.fails[name]; err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return f.ReadLinkFS.Open(name)
}

func (f failingFS) Lstat(name string) (fs.FileInfo, error) {
	if err := f.hidden[name]; err != nil {
		return nil, &fs.PathError{Op: "lstat", Path: name, Err: err}
	}
	return f.ReadLinkFS.Lstat(name)
}

// A memory is a session over files in memory, which compares their content.
type memory struct {
	*live
	fstest.MapFS
	failingFS
}

func newMemory(t *testing.T, opts fileproc.Options, specs ...string) *memory {
	files := fstest.MapFS{}
	m := &memory{newUnopened(t, opts), files, failingFS{files, map[string]error{}, map[string]error{}}}
	m.root, m.opts.FS = ".", m.failingFS
	for _, spec := range specs {
		rel, text, _ := strings.Cut(spec, "=")
		m.write(rel, text)
	}
	m.open()
	return m
}

func (m *memory) write(rel, text string) { m.MapFS[rel] = &fstest.MapFile{Data: []byte(text)} }
func (m *memory) remove(rel string)      { delete(m.MapFS, rel) }

// TestSessionNotesWhatItHasMet: a session yields that a file is gone also if an earlier one could not keep its outcome.
func TestSessionNotesWhatItHasMet(t *testing.T) {
	t.Parallel()
	l := newMemory(t, fileproc.Options{ReadSize: 1, SkipBinary: true}, "long=12", "binary=\x00", "fails=!")
	require.Equal(t, []string{"fails fails", "long=1 new"}, l.run())
	require.NoError(t, l.s.Close(t.Context()))
	clear(l.MapFS)
	l.open()
	require.Equal(t, []string{"binary deleted", "fails deleted", "long deleted"}, l.run())
}

// TestSessionInMemoryOwnsNoFile: without a cache file, no file in the working directory counts as its lock.
func TestSessionInMemoryOwnsNoFile(t *testing.T) {
	l := newUnopened(t, fileproc.Options{})
	testtree.Make(t, l.root, "..lock=1")
	l.inc.File = ""
	t.Chdir(l.root)
	l.open()
	require.Equal(t, []string{"..lock=1 new"}, l.run())
}

// TestSessionKeepsNothingOfTheLast: nothing is kept of a file at which fn ends the run.
func TestSessionKeepsNothingOfTheLast(t *testing.T) {
	t.Parallel()
	l := newMemory(t, fileproc.Options{}, "a=enough")
	require.Empty(t, l.run())
	require.NoError(t, l.s.Close(t.Context()))
	require.Empty(t, incremental.Kept(l.root, l.inc, l.opts))
}

// TestSessionCannotCompare: no later time is better for a file of which a run can compare neither metadata nor content.
func TestSessionCannotCompare(t *testing.T) {
	t.Parallel()
	l := newUnopened(t, fileproc.Options{ReadSize: 1})
	testtree.Make(t, l.root, "long=12")
	l.inc.Compare = incremental.CompareContent
	l.open()
	for _, kind := range []string{"new", "unchanged"} {
		require.Equal(t, []string{"long=1 " + kind}, l.run())
		require.Equal(t, []string{"long"}, l.calls)
		require.Empty(t, l.unsettled())
	}
}

// TestSessionKnowsWhatItHasYielded: a file for which a run over all files has not come is new when it does, whatever the cache file has.
func TestSessionKnowsWhatItHasYielded(t *testing.T) {
	t.Parallel()
	l := newMemory(t, fileproc.Options{IgnoreFiles: []string{".ignore"}, SkipHidden: true}, "a=1")
	require.Equal(t, []string{"a=1 new"}, l.run())
	require.NoError(t, l.s.Close(t.Context()))
	l.write(".ignore", "a")
	l.open()
	require.Empty(t, l.run())
	l.remove(".ignore")
	l.write("a", "2")
	require.Equal(t, []string{"a=2 new"}, l.run())
}

// TestSessionFailuresPass: a file or directory that could not be opened is named until a run over that name can open it. Below a
// directory, the results are then as they were; a file has a new result.
func TestSessionFailuresPass(t *testing.T) {
	t.Parallel()
	l := newMemory(t, fileproc.Options{}, "a=1", "d/b=2", "d/e/c=3")
	failed := func() []string {
		return slices.Sorted(maps.Keys(maps.Collect(l.s.Failed())))
	}
	require.Len(t, l.run(), 3)
	require.Empty(t, failed())
	l.fails["a"], l.fails["d"] = syscall.EIO, syscall.EIO
	for _, names := range [][]string{nil, {"a", "d"}} {
		require.Subset(t, []string{"a fails", "d fails"}, l.run(names...))
		require.Equal(t, []string{"a", "d"}, failed())
	}
	delete(l.fails, "a")
	require.Equal(t, []string{"a=1 changed"}, l.run(failed()...))
	require.Equal(t, []string{"d"}, failed())
	delete(l.fails, "d")
	require.Equal(t, []string{"d/b=2 unchanged", "d/e/c=3 unchanged"}, l.run(failed()...))
	require.Empty(t, failed())
	l.fails["."] = syscall.EIO
	require.Equal(t, []string{". fails"}, l.run())
	require.Equal(t, []string{"."}, failed())
}

// TestSessionOnErrorBesideResults: OnError is called while results are yielded. Its errors and the results are the same as without it.
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

// TestSessionTriesGitsFilesAgain: the failure of a file of git's outside root has a path that no file below root has, and another try
// looks at all files.
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

// TestSessionRuleFails: a file that says what is ignored, and cannot be read as such, fails once. If the file is processed too, this
// failure does not change its result, and a file that never had a result is not deleted. Failed names the file.
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
	t.Run("in two repositories", func(t *testing.T) {
		l := open(t, fileproc.Options{GitIgnore: true}, ".git/config=[include]\npath = ../inc\n", "sub/.git/HEAD=x", "sub/.git/objects/", "sub/.git/refs/", "sub/b=2")
		config := filepath.Join(os.Getenv("HOME"), ".gitconfig")
		require.NoError(t, os.WriteFile(config, []byte("[x"), 0o644))
		defer os.Remove(config)
		got := l.run()
		require.Len(t, got, 3)
		require.True(t, strings.HasSuffix(got[0], ".gitconfig fails"), got)
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
		fsys := failingFS{os.DirFS(l.root).(fs.ReadLinkFS), map[string]error{"d/.ignore": syscall.EIO}, nil}
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

// TestSessionEndsEarly: a run that is left or cancelled deletes nothing, and the next run yields everything.
func TestSessionEndsEarly(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
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
	})
}

// TestSessionCancelledAtTheEnd: a run deletes nothing if it was cancelled, even if that was in the loop's last turn.
func TestSessionCancelledAtTheEnd(t *testing.T) {
	t.Parallel()
	l := newMemory(t, fileproc.Options{}, "a=1", "b=2")
	require.Len(t, l.run(), 2)
	l.remove("b")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for r := range l.s.Run(ctx, nil) {
		require.NotEqual(t, incremental.Deleted, r.Kind)
		cancel()
	}
	require.Equal(t, []string{"a=1 unchanged", "b deleted"}, l.run())
}

// TestSessionFailsAnew: if a file with a failure of fn was left out, and so deleted, its failure is yielded again once the file is
// selected again.
func TestSessionFailsAnew(t *testing.T) {
	t.Parallel()
	l := newMemory(t, fileproc.Options{SkipMarked: []string{"SKIP"}}, "d/a=1!", "d/b=2", "d/c=3?")
	require.Equal(t, []string{"d/a fails", "d/b=2 new"}, l.run())
	for range 2 {
		l.write("d/SKIP", "")
		require.Equal(t, []string{"d/a deleted", "d/b deleted"}, l.run("d/SKIP"))
		require.NoError(t, l.s.Save(t.Context()))
		require.Contains(t, incremental.Kept(l.root, l.inc, l.opts), "d/b", "it is not gone")
		l.remove("d/SKIP")
		require.Equal(t, []string{"d/a fails", "d/b=2 new"}, l.run("d/SKIP"))
		require.Equal(t, []string{"d/a"}, l.calls)
		require.Equal(t, []string{"d/b=2 unchanged"}, l.run())
		require.Empty(t, l.calls)
	}
}

// TestSessionLeftAmongDeletions: the next run yields the deletions that a loop has not got because it ended. Until then the cache file
// has these files.
func TestSessionLeftAmongDeletions(t *testing.T) {
	t.Parallel()
	for _, names := range [][]string{nil, {"."}, {"a", "b", "d"}} {
		l := newMemory(t, fileproc.Options{}, "a=1", "b=2", "d/c=3", "e=4")
		l.run()
		require.NoError(t, l.s.Close(t.Context()))
		l.open()
		if names != nil {
			l.run()
		}
		l.remove("a")
		l.remove("b")
		l.remove("d/c")
		for r, err := range l.s.Run(t.Context(), names) {
			require.NoError(t, err)
			if r.Kind == incremental.Deleted {
				require.Equal(t, "a", r.Rel)
				break
			}
		}
		require.NoError(t, l.s.Save(t.Context()))
		require.Equal(t, []string{"b", "d/c", "e"}, slices.Sorted(maps.Keys(incremental.Kept(l.root, l.inc, l.opts))))
		want := []string{"b deleted", "d/c deleted", "e=4 unchanged"}
		if len(names) > 1 {
			want = want[:2]
		}
		require.Equal(t, want, l.run(names...))
		require.Equal(t, []string{"e=4 unchanged"}, l.run())
	}
}

// TestSessionVanishes: a file that is gone or replaced before it is opened is no failure and is not counted, and its result is deleted.
// If something else is there now, a later run looks again.
func TestSessionVanishes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err   error
		again bool
	}{{fs.ErrNotExist, false}, {fileproc.ErrChanged, true}, {syscall.ENOTDIR, true}} {
		for _, names := range [][]string{nil, {"d"}, {"d/b"}} {
			l := newMemory(t, fileproc.Options{}, "a=1", "d/b=2", "d/c=3")
			require.Len(t, l.run(), 3)
			l.fails["d/b"] = c.err
			got := l.run(names...)
			require.Contains(t, got, "d/b deleted", "%v %q", c, names)
			require.NotContains(t, got, "d/b fails", "%v %q", c, names)
			require.Zero(t, l.report.Failed, "%v %q", c, names)
			require.Equal(t, int64(len(got)-1), l.report.Found)
			require.Empty(t, maps.Collect(l.s.Failed()))
			delete(l.fails, "d/b")
			require.Equal(t, []string{"d/b=2 new"}, l.run("d/b"))
		}
		l := newMemory(t, fileproc.Options{}, "a=1")
		l.fails["a"] = c.err
		require.Empty(t, l.run())
		require.Equal(t, c.again, len(l.unsettled()) == 1, "%v", c)
		delete(l.fails, "a")
		require.Equal(t, []string{"a=1 new"}, l.run("a"))
		require.Empty(t, l.unsettled())
	}
}

// TestSessionIsStopped: a run that fn, OnError or a cancel stops deletes nothing, even if it had come to its last file.
func TestSessionIsStopped(t *testing.T) {
	t.Parallel()
	for _, files := range [][]string{{"a=1"}, {"a=1", "b=2", "c=3", "d/e=4"}} {
		stop := map[string]func(l *memory) (end func()){
			"fs.SkipAll": func(l *memory) func() {
				l.write("a", "enough")
				return func() {}
			},
			"OnError": func(l *memory) func() {
				l.fails["a"], l.failed = syscall.EIO, errors.New("enough")
				return func() { l.failed = nil; clear(l.fails) }
			},
			"OnError with the failure": func(l *memory) func() {
				l.fails["a"], l.failed = syscall.EIO, syscall.EIO
				return func() { l.failed = nil; clear(l.fails) }
			},
			"cancel": func(l *memory) func() {
				l.write("a", "cancel")
				return func() {}
			},
		}
		for how, stop := range stop {
			for _, names := range [][]string{nil, {"a", "x"}} {
				l := newMemory(t, fileproc.Options{}, files...)
				l.opts.Workers = 1
				l.opts.OnError = func(err error) error {
					if errors.Is(err, l.failed) {
						return err
					}
					return l.failed
				}
				l.open()
				require.Len(t, l.run(), len(files))
				l.write("x", "5")
				require.Len(t, l.run("x"), 1)
				l.remove("x")
				end := stop(l)
				got := l.run(names...)
				for _, res := range got {
					require.NotContains(t, res, "deleted", "%s %q %q", how, files, names)
				}
				require.Equal(t, how != "fs.SkipAll", slices.ContainsFunc(got, func(res string) bool { return strings.HasSuffix(res, " fails") }), "%s: %q", how, got)
				end()
				l.write("a", "1")
				require.Contains(t, l.run(), "x deleted")
				require.Len(t, l.run(), len(files))
			}
		}
	}
}

// TestSessionReports: each run fills in Options.Report with its own counts, also one that looks at no file.
func TestSessionReports(t *testing.T) {
	t.Parallel()
	l := newMemory(t, fileproc.Options{}, "a=1", "d/b=2")
	l.run()
	require.EqualValues(t, 2, l.report.Processed)
	require.EqualValues(t, 2, l.report.Found)
	l.run("d")
	require.EqualValues(t, 1, l.report.Unchanged)
	require.EqualValues(t, 1, l.report.Found)
	l.remove("a")
	require.Equal(t, []string{"a deleted"}, l.run("a"))
	require.Zero(t, l.report.Found)
	require.Zero(t, l.report.Unchanged)
	require.NotNil(t, l.report.Skipped)
}

// TestSessionRootIsElsewhere: a run over all files finds out again what root is: whether its file system keeps times, and whether the
// cache file, which fn does not get, is below it.
func TestSessionRootIsElsewhere(t *testing.T) {
	t.Parallel()
	incremental.NeedsTimes(t)
	inVirtualTime(t, func(t *testing.T) {
		l := newUnopened(t, fileproc.Options{})
		dir := l.root
		testtree.Make(t, dir, "one/a=1", "two/b=2")
		l.root, l.inc.File = filepath.Join(dir, "root"), filepath.Join(dir, "two", "c")
		l.open() // there is no root
		require.Equal(t, []string{". fails"}, l.run())
		testtree.Symlink(t, "one", l.root)
		for range 2 {
			require.Len(t, l.run(), 1)
		}
		require.Zero(t, l.report.Bytes, "the metadata decides")
		require.NoError(t, l.s.Save(t.Context()))
		require.NoError(t, os.Remove(l.root))
		testtree.Symlink(t, "two", l.root)
		require.Equal(t, []string{"a deleted", "b=2 new"}, l.run())
		require.Equal(t, []string{"b"}, l.calls)
	})
}

// TestSessionSavesOnTheWay: a run that takes long saves now and then, and so does the next run.
func TestSessionSavesOnTheWay(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		l := newUnopened(t, fileproc.Options{Ordered: true})
		var kept []int
		l.opts.Workers = 1
		var err error
		pause := 40 * time.Second
		l.s, err = incremental.Open(l.root, l.inc, l.opts, func(f *fileproc.File) (string, error) {
			kept = append(kept, len(incremental.Kept(l.root, l.inc, l.opts)))
			time.Sleep(pause)
			return string(f.Data()), nil
		})
		require.NoError(t, err)
		testtree.Make(t, l.root, testtree.Numbered("a", 4)...)
		require.Len(t, l.run(), 4)
		require.Equal(t, []int{0, 1, 2, 3}, kept)
		testtree.Make(t, l.root, testtree.Numbered("b", 3)...)
		kept = nil
		require.Len(t, l.run("b000000.md", "b000001.md", "b000002.md"), 3)
		require.Equal(t, []int{4, 5, 6}, kept)
		testtree.Make(t, l.root, testtree.Numbered("c", 4)...)
		kept, pause = nil, 30*time.Second
		require.Len(t, l.run(), 11)
		require.Equal(t, []int{7, 7, 9, 9}, kept, "every two pauses")
	})
}

// TestSessionFailuresHaveTheirNames: a failure is yielded with the path relative to root, however root is written.
func TestSessionFailuresHaveTheirNames(t *testing.T) {
	t.Parallel()
	l := newUnopened(t, fileproc.Options{MaxFileSize: 5})
	dir := l.root
	testtree.Make(t, dir, "root/a=too long", "root/d/b=too long", "root/d/x=1")
	for _, root := range []string{"root", "root/", "./root", "root/.", "root/d/..", "root/d/../", "root//d/.."} {
		l.root = dir + "/" + root
		if l.inc.File += "x"; strings.Contains(root, "..") && filepath.Separator != '/' {
			continue
		}
		l.open()
		require.Equal(t, []string{"a fails", "d/b fails", "d/x=1 new"}, l.run(), root)
		require.Equal(t, []string{"a", "d/b"}, slices.Sorted(maps.Keys(maps.Collect(l.s.Failed()))))
		require.Empty(t, l.run("a", "d/b"))
	}
	m := newMemory(t, fileproc.Options{MaxFileSize: 5}, "root/a=too long", "root/d/b=too long", "x=too long")
	for _, root := range []string{".", "root", "root/d"} {
		m.root = root
		m.open()
		want := map[string][]string{".": {"root/a fails", "root/d/b fails", "x fails"}, "root": {"a fails", "d/b fails"}, "root/d": {"b fails"}}
		require.Equal(t, want[root], m.run(), root)
	}
}

// TestSessionFailureIsNewsOnce: a failure is yielded again only when it becomes another one, and is forgotten when it has passed.
func TestSessionFailureIsNewsOnce(t *testing.T) {
	t.Parallel()
	l := newMemory(t, fileproc.Options{}, "a=1", "d/b=2", "d/c=3")
	require.Len(t, l.run(), 3)
	for _, err := range []error{syscall.EIO, syscall.EACCES, syscall.EIO} {
		l.fails["d"] = err
		require.Equal(t, []string{"a=1 unchanged", "d fails"}, l.run())
		require.Equal(t, []string{"a=1 unchanged"}, l.run())
		require.ErrorIs(t, maps.Collect(l.s.Failed())["d"], err)
		require.Empty(t, l.run("d"))
		require.Equal(t, []string{"a=1 unchanged"}, l.run("a"))
		require.Contains(t, maps.Collect(l.s.Failed()), "d", "the run has not looked at it")
	}
	l.remove("d/b")
	require.Empty(t, l.run("d"), "what is there cannot be listed")
	require.Equal(t, []string{"d/b deleted"}, l.run("d/b"), "but looked up")
	clear(l.fails)
	require.Equal(t, []string{"d/c=3 unchanged"}, l.run("d"))
	for range l.s.Failed() {
		t.Fatal("it has passed")
	}
	l.fails["a"], l.fails["d/c"] = syscall.EIO, syscall.EIO
	require.Len(t, l.run(), 2)
	for range l.s.Failed() {
		break
	}
	l.remove("d/c")
	require.Equal(t, []string{"d/c deleted"}, l.run("d"))
	require.Equal(t, []string{"a"}, slices.Collect(maps.Keys(maps.Collect(l.s.Failed()))), "what is gone cannot fail")
}

// TestSessionBelowWhatFails: what is known of files below a directory that this run could not list stands, also if a name says that they
// are gone.
func TestSessionBelowWhatFails(t *testing.T) {
	t.Parallel()
	l := newMemory(t, fileproc.Options{}, "a=1", "d/b=2", "d/e/c=3")
	require.Len(t, l.run(), 3)
	l.fails["d"] = syscall.EIO
	l.remove("d/b")
	l.remove("d/e/c")
	l.write("d/x", "keeps d")
	require.Equal(t, []string{"d fails"}, l.run("d", "d/b", "d/e/c"))
	clear(l.fails)
	require.Equal(t, []string{"d/b deleted", "d/e/c deleted", "d/x=keeps d new"}, l.run("d"))
	l.remove("d/x")
	l.write("d", "a file that cannot be read, in the directory's place")
	l.fails["d"] = syscall.EIO
	require.Equal(t, []string{"a=1 unchanged", "d fails", "d/x deleted"}, l.run())
	l.remove("d")
	clear(l.fails)
	l.write("d/x", "keeps d")
	require.Equal(t, []string{"a=1 unchanged", "d deleted", "d/x=keeps d new"}, l.run())
	for _, name := range []string{"d", "d/x"} { // a link has taken the place of what leads there
		l.fails[name] = fs.ErrInvalid
		require.Equal(t, []string{"d/x deleted"}, l.run(name))
		require.Empty(t, maps.Collect(l.s.Failed()))
		for _, all := range [][]string{nil, {name, "."}} {
			require.Contains(t, l.run(all...), name+" fails", "a run over all files does not go through links")
			clear(l.fails)
			require.Len(t, l.run(), 2)
			l.fails[name] = fs.ErrInvalid
		}
		clear(l.fails)
		require.Len(t, l.run(), 2)
	}
}

// TestSessionKindsOfNamedFiles: a session that has had no run over all files knows what it has yielded, and what the cache file has.
func TestSessionKindsOfNamedFiles(t *testing.T) {
	t.Parallel()
	l := newMemory(t, fileproc.Options{}, "a=1", "b=2")
	require.Equal(t, []string{"a=1 new"}, l.run("a"))
	l.write("a", "2")
	require.Equal(t, []string{"a=2 changed"}, l.run("a"))
	require.NoError(t, l.s.Close(t.Context()))
	l.open()
	require.Equal(t, []string{"a=2 unchanged", "b=2 new"}, l.run("a", "b"))
	l.open()
	l.write("a", "3")
	require.Equal(t, []string{"a=3 changed", "b=2 new"}, l.run("a", "b"))
	l.open()
	require.Equal(t, []string{"a=3 changed", "b=2 new"}, l.run())
}

// TestSessionKinds: a kind has a name.
func TestSessionKinds(t *testing.T) {
	t.Parallel()
	for kind, name := range map[incremental.Kind]string{incremental.Unchanged: "unchanged", incremental.New: "new", incremental.Changed: "changed",
		incremental.Deleted: "deleted", -1: "Kind(-1)", 4: "Kind(4)"} {
		require.Equal(t, name, kind.String())
	}
}

// TestSessionDeletionsAreInOrder: deletions come in the order of their paths, compared name by name.
func TestSessionDeletionsAreInOrder(t *testing.T) {
	t.Parallel()
	want := []string{"a/a", "a/b/a", "a/b/b", "a/b!", "a/c", "a b", "a!/x", "a-", "a.b", "ab/c", "b"}
	l := newMemory(t, fileproc.Options{})
	for _, rel := range want {
		l.write(rel, "1")
	}
	require.Len(t, l.run(), len(want))
	clear(l.MapFS)
	l.write("z", "1")
	var got []string
	for r, err := range l.s.Run(t.Context(), nil) {
		if require.NoError(t, err); r.Kind == incremental.Deleted {
			got = append(got, r.Rel)
		}
	}
	require.Equal(t, want, got)
	for i, a := range want {
		for j, b := range want {
			require.Equal(t, cmp.Compare(i, j), fileproc.ComparePaths(a, b), "%q %q", a, b)
		}
	}
	for _, longer := range []string{"a/b", "ab", "a!"} {
		require.Equal(t, -1, fileproc.ComparePaths("a", longer), longer)
		require.Equal(t, 1, fileproc.ComparePaths(longer, "a"), longer)
	}
}

// TestSessionDoesOneThingAtATime: in the loop over a run, no other run, save or close is begun.
func TestSessionDoesOneThingAtATime(t *testing.T) {
	t.Parallel()
	l := newMemory(t, fileproc.Options{}, "a=1")
	for range l.s.Run(t.Context(), nil) {
		_, err := first(l.s.Run(t.Context(), nil))
		for _, err := range []error{err, l.s.Save(t.Context()), l.s.Close(t.Context())} {
			require.ErrorContains(t, err, "one thing at a time")
		}
	}
	require.NoFileExists(t, l.inc.File)
	require.Equal(t, []string{"a=1 unchanged"}, l.run())
	require.NoError(t, l.s.Close(t.Context()))
	require.FileExists(t, l.inc.File)
}

// TestSessionForgetsDirectories: once the files of a directory are gone, nothing of the directory stays in memory.
func TestSessionForgetsDirectories(t *testing.T) {
	t.Parallel()
	for _, names := range [][]string{nil, {"d", "g/h/x", "i/j"}, {"d/e/f/x", "d/y", "g", "i/j/x"}} {
		l := newMemory(t, fileproc.Options{}, "a=1", "d/e/f/x=2", "d/y=3", "g/h/x=4", "i/j/x=5", "i/z=6")
		require.Len(t, l.run(), 6)
		require.Equal(t, 7, incremental.KnownDirs(l.s))
		for _, rel := range []string{"d/e/f/x", "d/y", "g/h/x", "i/j/x"} {
			l.remove(rel)
		}
		l.run(names...)
		require.Equal(t, 1, incremental.KnownDirs(l.s), names)
		require.Equal(t, []string{"a=1 unchanged", "i/z=6 unchanged"}, l.run())
		require.Equal(t, 1, incremental.KnownDirs(l.s))
	}
}

// TestSessionFindsADirectoryAgain: a directory that was forgotten is known again with its next file.
func TestSessionFindsADirectoryAgain(t *testing.T) {
	t.Parallel()
	l := newMemory(t, fileproc.Options{}, "d/a=1", "z=2")
	for range 2 {
		require.Equal(t, []string{"d/a=1 new"}, l.run("d"))
		l.remove("d/a")
		require.Equal(t, []string{"d/a deleted"}, l.run("d"))
		l.write("d/a", "1")
	}
}

// TestSessionSavesInOrder: of two results for a file, the cache file has the later one, whichever workers made them.
func TestSessionSavesInOrder(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		l := newMemory(t, fileproc.Options{}, testtree.Numbered("f", 100)...)
		var mu sync.Mutex
		workers := map[string]int{}
		open := func() {
			clear(workers)
			var err error
			l.s, err = incremental.Open(l.root, l.inc, l.opts, func(f *fileproc.File) (string, error) {
				time.Sleep(time.Second) // of all workers at once
				mu.Lock()
				defer mu.Unlock()
				workers[f.Rel()] = f.Worker()
				return string(f.Data()), nil
			})
			require.NoError(t, err)
		}
		open()
		require.Len(t, l.run(), 100)
		others := slices.DeleteFunc(slices.Sorted(maps.Keys(workers)), func(rel string) bool { return workers[rel] == 0 })
		require.NotEmpty(t, others)
		for _, text := range []string{"later", "even later"} {
			for _, rel := range others {
				l.write(rel, text)
			}
			require.Len(t, l.run(others...), len(others))
		}
		require.NoError(t, l.s.Close(t.Context()))
		open()
		require.Len(t, l.run(), 100)
		require.Empty(t, workers, "fn is called for none")
	})
}

// TestSessionOnOneFilesystem: on one file system, a run over names gives the same with OneFilesystem as without it.
func TestSessionOnOneFilesystem(t *testing.T) {
	t.Parallel()
	l := newLive(t, fileproc.Options{OneFilesystem: true}, "a=1", "d/b=2", "d/e/c=3")
	require.Len(t, l.run(), 3)
	require.Equal(t, []string{"d/b=2 unchanged"}, l.run("d/b"))
	require.Equal(t, []string{"a=1 unchanged", "d/b=2 unchanged", "d/e/c=3 unchanged"}, l.run("a", "d"))
}

// TestSessionInMemory: without a cache file, results are as fn has returned them, whatever their type, and no file is written. A file that
// fn has skipped, or for which it has failed, is not read again, also after a save.
func TestSessionInMemory(t *testing.T) {
	t.Chdir(t.TempDir())
	inVirtualTime(t, sessionInMemory)
}

func sessionInMemory(t *testing.T) {
	root := t.TempDir()
	require.True(t, testtree.Make(t, root, "a=1", "skipped=2", "failing=3"))
	type parsed struct {
		text string
		call func() string
	}
	calls := 0
	s, err := incremental.Open(root, incremental.Options[*parsed]{Compare: incremental.CompareMetadata}, fileproc.Options{Workers: 1}, func(f *fileproc.File) (*parsed, error) {
		calls++
		p := &parsed{text: string(f.Data())}
		p.call = func() string { return p.text }
		return p, map[string]error{"skipped": fileproc.ErrSkip, "failing": errors.New("bad")}[f.Rel()]
	})
	require.NoError(t, err)
	run := func() (got []string, p *parsed) {
		calls = 0
		for r, err := range s.Run(t.Context(), nil) {
			if err != nil {
				got = append(got, r.Rel+" fails")
			} else if got = append(got, fmt.Sprint(r.Rel, " ", r.Kind)); r.Value != nil {
				p = r.Value
			}
		}
		slices.Sort(got)
		return got, p
	}
	got, first := run()
	require.Equal(t, []string{"a new", "failing fails"}, got)
	require.Equal(t, "1", first.call())
	for range 2 {
		got, p := run()
		require.Equal(t, []string{"a unchanged"}, got)
		require.Same(t, first, p)
		require.Zero(t, calls)
		require.NoError(t, s.Save(t.Context()))
	}
	require.NoError(t, os.Remove(filepath.Join(root, "a")))
	got, _ = run()
	require.Equal(t, []string{"a deleted"}, got)
	require.NoError(t, s.Save(t.Context()))
	got, _ = run()
	require.Empty(t, got)
	require.Zero(t, calls, "what was skipped is known after a save")
	require.NoError(t, incremental.SaveStore(s), "there is nothing to save")
	require.Equal(t, []string{"failing", "skipped"}, incremental.Remembered(s))
	require.NoError(t, s.Close(t.Context()))
	for _, dir := range []string{".", root} {
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, entries, map[string]int{".": 0, root: 2}[dir])
	}
}

// TestSessionRefuses: mistakes are reported before anything is read.
func TestSessionRefuses(t *testing.T) {
	t.Parallel()
	_, err := incremental.Open(t.TempDir(), incremental.Options[int]{File: "c"}, fileproc.Options{Roots: []string{"a"}}, func(*fileproc.File) (int, error) { return 0, nil })
	require.ErrorContains(t, err, "Options.Roots")
	_, err = incremental.Open[int](t.TempDir(), incremental.Options[int]{File: "c"}, fileproc.Options{}, nil)
	require.ErrorContains(t, err, "fn is nil")
	_, err = incremental.Open(t.TempDir(), incremental.Options[int]{File: "c"}, fileproc.Options{Files: slices.Values([]string{"a"})}, func(*fileproc.File) (int, error) { return 0, nil })
	require.ErrorContains(t, err, "Options.Files")
}

// TestSessionDoesNotCallDeleted: runs of a session yield deletions, and do not call Options.Deleted.
func TestSessionDoesNotCallDeleted(t *testing.T) {
	t.Parallel()
	l := newMemory(t, fileproc.Options{}, "a=1", "b=2", "c=3")
	l.inc.Deleted = func(rel string) { t.Error(rel) }
	l.open()
	require.Len(t, l.run("a", "b"), 2)
	l.remove("a")
	require.Equal(t, []string{"a deleted", "b=2 unchanged"}, l.run("a", "b"))
	l.remove("b")
	require.Equal(t, []string{"b deleted", "c=3 new"}, l.run())
}

// TestSessionGathersWhatItSaves: many runs over few files add as much to the cache file as one run over all of these files.
func TestSessionGathersWhatItSaves(t *testing.T) {
	t.Parallel()
	var sizes []int64
	for _, runs := range [][][]string{{{"a", "b", "c", "d"}}, {{"a"}, {"b"}, {"c"}, {"d"}}} {
		l := newMemory(t, fileproc.Options{}, "first=0", "a=1", "b=2", "c=3", "d=4")
		require.Len(t, l.run("first"), 1)
		require.NoError(t, l.s.Save(t.Context()))
		for _, names := range runs {
			require.Len(t, l.run(names...), len(names))
		}
		require.NoError(t, l.s.Save(t.Context()))
		info, err := os.Stat(l.inc.File)
		require.NoError(t, err)
		sizes = append(sizes, info.Size())
	}
	require.Equal(t, sizes[0], sizes[1])
}

// TestSessionRefusedOptions: a run whose options are refused deletes nothing.
func TestSessionRefusedOptions(t *testing.T) {
	t.Parallel()
	l := newMemory(t, fileproc.Options{}, "a=1", "b=2")
	require.Len(t, l.run(), 2)
	require.NoError(t, l.s.Close(t.Context()))
	l.remove("b")
	l.opts.Symlinks = fileproc.SymlinksFiles // an FS has none
	l.open()
	require.Equal(t, []string{" fails"}, l.run())
}

// TestSessionAtLongPaths: a session finds a file whose path is longer than the system takes, or finds that it is gone, from root on.
func TestSessionAtLongPaths(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
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
	})
}

// TestSessionAtManyLevels: a run takes names below any number of directories.
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

// TestSessionRootBehindALink: if ".." follows a link in root, it is the parent of the directory that the link leads to.
func TestSessionRootBehindALink(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
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
	})
}

// TestSessionRootIsAFile: if root is a file that cannot be read, that is a failure of root, and no file of that name is known.
func TestSessionRootIsAFile(t *testing.T) {
	t.Parallel()
	l := newMemory(t, fileproc.Options{}, "a=1")
	l.root = "a"
	l.fails["a"] = syscall.EIO
	l.open()
	for _, want := range [][]string{{". fails"}, {}} {
		require.Equal(t, want, l.run())
		counted, _ := incremental.Known(l.s)
		require.Zero(t, counted)
	}
	require.Equal(t, []string{"."}, slices.Collect(maps.Keys(maps.Collect(l.s.Failed()))))
	clear(l.fails)
	require.Len(t, l.run(), 1)
	l.opts.MaxFileSize = 2
	l.write("a", "too long")
	l.open()
	require.Equal(t, []string{". fails"}, l.run())
	counted, _ := incremental.Known(l.s)
	require.Zero(t, counted)
}
