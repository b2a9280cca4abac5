package incremental_test

import (
	"errors"
	"io"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/incremental"
	"github.com/stretchr/testify/require"
)

// TestRecentBehindReadSize: for a young file that is longer than ReadSize, equal content proves nothing: fn may read the rest.
func TestRecentBehindReadSize(t *testing.T) {
	t.Parallel()
	incremental.NeedsTimes(t)
	inVirtualTime(t, func(t *testing.T) {
		l := newUnopened(t, fileproc.Options{ReadSize: 3})
		open := func() {
			var err error
			l.s, err = incremental.Open(l.root, l.inc, l.opts, func(f *fileproc.File) (string, error) {
				file, err := f.Open()
				if err != nil {
					return "", err
				}
				defer file.Close()
				text, err := io.ReadAll(file)
				return string(text), err
			})
			require.NoError(t, err)
		}
		open()
		l.write("a", "abc")
		require.Equal(t, []string{"a=abc new"}, l.run())
		time.Sleep(time.Millisecond)
		l.write("a", "abc1")
		require.Equal(t, []string{"a=abc1 changed"}, l.run())
		time.Sleep(time.Millisecond)
		l.write("a", "abc2")
		require.Equal(t, []string{"a=abc2 changed"}, l.run("a"))
		l.settle()
		require.Equal(t, []string{"a=abc2 unchanged"}, l.run("a"))
		require.Empty(t, l.unsettled())
	})
}

// TestRecentFailureOfAYoungFile: a failure is final once the file has settled. Until then the file is read again, since it may have
// been written again within a step of the clock, but fn is called only if the content differs.
func TestRecentFailureOfAYoungFile(t *testing.T) {
	t.Parallel()
	incremental.NeedsTimes(t)
	inVirtualTime(t, func(t *testing.T) {
		l := newLive(t, fileproc.Options{})
		l.write("a", "1!")
		require.Equal(t, []string{"a fails"}, l.run())
		require.Empty(t, l.unsettled(), "nothing is kept of it later")
		for range 2 {
			require.Empty(t, l.run("a"))
			require.Empty(t, l.calls)
			require.EqualValues(t, 2, l.report.Bytes)
		}
		l.settle()
		require.Empty(t, l.run("a"))
		require.Empty(t, l.calls)
		require.Empty(t, l.run("a"))
		require.Zero(t, l.report.Bytes, "its metadata decides")
		require.EqualValues(t, 1, l.report.Unchanged)
	})
}

// TestRecentMode: if the content of a file is the same, another mode is a change, and another time is none.
func TestRecentMode(t *testing.T) {
	t.Parallel()
	incremental.NeedsTimes(t)
	inVirtualTime(t, func(t *testing.T) {
		l := newLive(t, fileproc.Options{})
		l.write("a", "1")
		require.Equal(t, []string{"a=1 new"}, l.run())
		time.Sleep(time.Nanosecond)
		l.touch("a")
		require.Equal(t, []string{"a=1 unchanged"}, l.run("a"))
		require.Empty(t, l.calls)
		require.NoError(t, os.Chmod(l.path("a"), 0o700))
		require.Equal(t, []string{"a=1 changed"}, l.run("a"))
		require.Equal(t, []string{"a"}, l.calls)
	})
}

// TestRecentIsForgotten: once a file without a result is gone, nothing of it stays in memory.
func TestRecentIsForgotten(t *testing.T) {
	t.Parallel()
	incremental.NeedsTimes(t)
	inVirtualTime(t, func(t *testing.T) {
		l := newLive(t, fileproc.Options{})
		l.write("a", "skipped?")
		require.Empty(t, l.run())
		require.Contains(t, l.unsettled(), "a")
		require.Equal(t, []string{"a"}, incremental.Remembered(l.s))
		require.NoError(t, os.Remove(l.path("a")))
		require.Empty(t, l.run("a"))
		require.Empty(t, l.unsettled())
		require.Empty(t, incremental.Remembered(l.s))

		l.write("d/e/b", "skipped?") // below a directory that is gone
		l.write("c", "skipped?")
		require.Empty(t, l.run("c", "d"))
		require.NoError(t, os.RemoveAll(l.path("d")))
		require.Empty(t, l.run("d"))
		require.Contains(t, l.unsettled(), "c")
		require.Equal(t, []string{"c"}, incremental.Remembered(l.s))

		require.NoError(t, os.Remove(l.path("c"))) // a run over all files, or over a directory, meets no trace of it
		require.Empty(t, l.run())
		require.Empty(t, incremental.Remembered(l.s))
		l.write("d/e/b", "skipped?")
		l.write("d/e/c", "skipped?")
		require.Empty(t, l.run())
		require.NoError(t, os.Remove(l.path("d/e/b")))
		require.Empty(t, l.run("d"))
		require.Equal(t, []string{"d/e/c"}, incremental.Remembered(l.s))
		require.NoError(t, os.RemoveAll(l.path("d")))
		require.Empty(t, l.run())

		l.opts.SkipMarked = []string{"SKIP"} // what is left out now
		l.open()
		l.write("d/b", "skipped?")
		l.write("d/e", "1")
		require.Equal(t, []string{"d/e=1 new"}, l.run("d"))
		require.Len(t, l.unsettled(), 2)
		l.write("d/SKIP", "")
		require.Equal(t, []string{"d/e deleted"}, l.run("d/SKIP"))
		require.Empty(t, l.unsettled())
	})
}

// TestRecentChangedMeanwhile: a file that changes while fn has it is looked at again, however old it looks.
func TestRecentChangedMeanwhile(t *testing.T) {
	t.Parallel()
	incremental.NeedsTimes(t)
	inVirtualTime(t, func(t *testing.T) {
		l := newLive(t, fileproc.Options{Select: func(*fileproc.File) bool { return true }}, "a=1")
		long := time.Now().Add(-time.Hour)
		changes := true
		var err error
		l.s, err = incremental.Open(l.root, l.inc, l.opts, func(f *fileproc.File) (string, error) {
			if text := string(f.Data()); !changes {
				return text, nil
			}
			require.NoError(t, os.WriteFile(l.path("a"), []byte("22"), 0o644))
			require.NoError(t, os.Chtimes(l.path("a"), long, long))
			return "1", nil
		})
		require.NoError(t, err)
		require.Equal(t, []string{"a=1 new"}, l.run())
		require.Contains(t, l.unsettled(), "a")
		require.NotContains(t, incremental.Kept(l.root, l.inc, l.opts), "a")
		changes = false
		require.Equal(t, []string{"a=22 changed"}, l.run("a"))
		require.Empty(t, l.unsettled())
	})
}

// TestRecentHeld: a session knows a result that cannot be encoded as long as it lives, also for a file that was young.
func TestRecentHeld(t *testing.T) {
	t.Parallel()
	incremental.NeedsTimes(t)
	inVirtualTime(t, func(t *testing.T) {
		l := newUnopened(t, fileproc.Options{})
		l.inc.Codec, l.opts.Workers = partly{}, 1
		l.open()
		l.write("a", "unspeakable")
		require.Equal(t, []string{"a=unspeakable new"}, l.run())
		for _, text := range []string{"x?", "y?"} {
			for range 2 {
				text += "?"
				l.write("b", text)
				require.Empty(t, l.run("b"))
				require.Equal(t, []string{"a=unspeakable unchanged"}, l.run("a"))
				require.Empty(t, l.calls)
			}
			l.settle()
		}
		require.NotContains(t, l.unsettled(), "a")
		l.write("b", "1")
		require.Equal(t, []string{"a=unspeakable unchanged", "b=1 new"}, l.run())
		time.Sleep(time.Nanosecond)
		l.touch("b")
		require.Equal(t, []string{"a=unspeakable unchanged", "b=1 unchanged"}, l.run())
	})
}

// TestRecentNothingToCompare: where neither metadata nor content can show that a file is unchanged, a run calls fn, and reports a result
// or failure that is the same as unchanged.
func TestRecentNothingToCompare(t *testing.T) {
	t.Parallel()
	l := newMemory(t, fileproc.Options{ReadSize: 1}, "a=1", "b=12", "c=!!", "d=??")
	require.Equal(t, []string{"a=1 new", "b=1 new", "c fails"}, l.run())
	l.write("c", "!x")
	for range 2 {
		require.Equal(t, []string{"a=1 unchanged", "b=1 unchanged"}, l.run())
		require.Equal(t, []string{"b", "c", "d"}, l.calls)
	}
	l.write("b", "x2")
	l.write("c", "xx")
	l.write("d", "xx")
	require.Equal(t, []string{"b=x changed", "c=x changed", "d=x new"}, l.run("b", "c", "d"))
	l.write("b", "??")
	require.Equal(t, []string{"b deleted"}, l.run("b"))
	require.Contains(t, incremental.Remembered(l.s), "b")
	l.remove("b")
	require.Empty(t, l.run("b"))
	require.NotContains(t, incremental.Remembered(l.s), "b")
}

// TestRecentIsStill: an outcome for a young file stands without a look at the content if nothing has happened to the file, and its metadata
// is the same. That says nothing where metadata is not compared, or cannot be.
func TestRecentIsStill(t *testing.T) {
	t.Parallel()
	incremental.NeedsTimes(t)
	inVirtualTime(t, func(t *testing.T) {
		l := newUnopened(t, fileproc.Options{ReadSize: fileproc.NoRead})
		still := true
		incremental.SetIsStill(&l.opts, func(rel string) bool { return still && rel == "a" })
		l.open()
		l.write("a", "1")
		l.write("b", "2")
		require.Equal(t, []string{"a= new", "b= new"}, l.run())
		require.Equal(t, []string{"a= unchanged", "b= unchanged"}, l.run("a", "b"))
		require.Equal(t, []string{"b"}, l.calls)
		require.NoError(t, os.Chmod(l.path("a"), 0o700))
		l.run("a")
		require.Equal(t, []string{"a"}, l.calls)
		l.run("a")
		require.Empty(t, l.calls)
		still = false
		l.run("a")
		require.Equal(t, []string{"a"}, l.calls)
	})
	m := newMemory(t, fileproc.Options{ReadSize: 1}, "a=12", "b=3")
	incremental.SetIsStill(&m.opts, func(string) bool { return true })
	m.open()
	require.Equal(t, []string{"a=1 new", "b=3 new"}, m.run())
	require.Equal(t, []string{"a=1 unchanged"}, m.run("a"))
	require.Equal(t, []string{"a"}, m.calls)

	m = newMemory(t, fileproc.Options{SkipBinary: true}, "a=1", "b=\x00")
	m.inc.Compare = incremental.CompareMetadata
	m.open()
	for range 2 {
		m.run()
		require.Equal(t, []string{"a"}, m.calls, "it has no time")
		require.Empty(t, m.unsettled(), "nor will it")
	}
	require.Equal(t, []string{"a"}, incremental.Remembered(m.s))
}

// TestRecentIsGoneMeanwhile: a file that fn removes has its result, and nothing is kept of it except that it was there.
func TestRecentIsGoneMeanwhile(t *testing.T) {
	t.Parallel()
	incremental.NeedsTimes(t)
	inVirtualTime(t, func(t *testing.T) {
		l := newUnopened(t, fileproc.Options{})
		var err error
		l.s, err = incremental.Open(l.root, l.inc, l.opts, func(f *fileproc.File) (string, error) { return string(f.Data()), os.Remove(l.path(f.Rel())) })
		require.NoError(t, err)
		l.write("a", "1")
		require.Equal(t, []string{"a=1 new"}, l.run())
		require.Empty(t, incremental.Remembered(l.s))
		require.NoError(t, l.s.Save(t.Context()))
		require.Equal(t, map[string]string{"a": incremental.Noted}, incremental.Kept(l.root, l.inc, l.opts))
		require.Equal(t, []string{"a deleted"}, l.run("a"))
	})
}

// TestRecentWrittenForAMoment: if a file was changed while fn had it, equal content proves nothing: fn may have read the change.
func TestRecentWrittenForAMoment(t *testing.T) {
	t.Parallel()
	incremental.NeedsTimes(t)
	inVirtualTime(t, func(t *testing.T) {
		l := newUnopened(t, fileproc.Options{})
		change := true
		var err error
		l.s, err = incremental.Open(l.root, l.inc, l.opts, func(f *fileproc.File) (string, error) {
			if change {
				time.Sleep(time.Nanosecond)
				l.write("a", "2")
			}
			text, err := os.ReadFile(l.path("a"))
			return string(text), err
		})
		require.NoError(t, err)
		l.write("a", "1")
		require.Equal(t, []string{"a=2 new"}, l.run())
		change = false
		l.write("a", "1")
		require.Equal(t, []string{"a=1 changed"}, l.run("a"))
	})
}

// TestRecentIsNotUTF8: a session holds a result that JSON cannot keep.
func TestRecentIsNotUTF8(t *testing.T) {
	t.Parallel()
	incremental.NeedsTimes(t)
	inVirtualTime(t, func(t *testing.T) {
		l := newLive(t, fileproc.Options{}, "a=caf\xe9")
		require.Equal(t, []string{"a=caf\xe9 new"}, l.run())
		require.Equal(t, []string{"a=caf\xe9 unchanged"}, l.run("a"))
		require.Empty(t, l.calls)
		require.NoError(t, l.s.Close(t.Context()))
		require.Equal(t, map[string]string{"a": incremental.Noted}, incremental.Kept(l.root, l.inc, l.opts))
	})
}

// TestRecentFailsAfterItsReturn: a file that was deleted, is back and fails is noted again.
func TestRecentFailsAfterItsReturn(t *testing.T) {
	t.Parallel()
	l := newMemory(t, fileproc.Options{}, "a=1")
	require.Equal(t, []string{"a=1 new"}, l.run())
	require.NoError(t, l.s.Close(t.Context()))
	l.open()
	require.Equal(t, []string{"a=1 unchanged"}, l.run())
	l.remove("a")
	require.Equal(t, []string{"a deleted"}, l.run("a"))
	require.NoError(t, l.s.Save(t.Context()))
	require.Empty(t, incremental.Kept(l.root, l.inc, l.opts))
	l.write("a", "x?")
	require.Empty(t, l.run("a"))
	l.write("a", "x!")
	require.Equal(t, []string{"a fails"}, l.run("a"))
	require.NoError(t, l.s.Save(t.Context()))
	require.Contains(t, incremental.Kept(l.root, l.inc, l.opts), "a")
	l.remove("a")
	require.Equal(t, []string{"a deleted"}, l.run("a"))
	require.NoError(t, l.s.Save(t.Context()))
	l.write("a", "fails at once!")
	require.Equal(t, []string{"a fails"}, l.run("a"))
	require.NoError(t, l.s.Save(t.Context()))
	require.Contains(t, incremental.Kept(l.root, l.inc, l.opts), "a")
}

// TestRecentCannotBeDecoded: if the result of a young file cannot be decoded, fn is called.
func TestRecentCannotBeDecoded(t *testing.T) {
	t.Parallel()
	incremental.NeedsTimes(t)
	inVirtualTime(t, func(t *testing.T) {
		l := newUnopened(t, fileproc.Options{})
		fails := new(atomic.Int32)
		l.inc.Codec = flaky{fails}
		l.open()
		l.write("a", "1")
		require.Equal(t, []string{"a=1 new"}, l.run())
		fails.Store(1)
		require.Equal(t, []string{"a=1 unchanged"}, l.run("a"))
		require.Equal(t, []string{"a"}, l.calls)
		l.run("a")
		require.Empty(t, l.calls)
	})
}

// TestRecentCacheFile: fn does not get the cache file by another name, also after a save has made it longer.
func TestRecentCacheFile(t *testing.T) {
	t.Parallel()
	l := newLive(t, fileproc.Options{}, "a=1")
	l.run()
	require.NoError(t, l.s.Save(t.Context()))
	if err := os.Link(l.inc.File, l.path("second")); err != nil {
		t.Skip("no hard links: ", err)
	}
	l.open()
	require.Len(t, l.run(), 1)
	for _, name := range []string{"b", "c"} {
		l.write(name, "1")
		require.Len(t, l.run(), 2+int(name[0]-'b'))
		require.NotContains(t, l.calls, "second")
		require.NoError(t, l.s.Save(t.Context()))
	}
}

// TestRecentGoneInTheLoop: a file that the run has met stays unsettled, though it is gone at the end of the run.
func TestRecentGoneInTheLoop(t *testing.T) {
	t.Parallel()
	incremental.NeedsTimes(t)
	inVirtualTime(t, func(t *testing.T) {
		l := newLive(t, fileproc.Options{})
		l.write("a", "1")
		require.Equal(t, []string{"a=1 new"}, l.run())
		for r, err := range l.s.Run(t.Context(), nil) {
			require.NoError(t, err)
			require.Equal(t, incremental.Unchanged, r.Kind)
			require.NoError(t, os.Remove(l.path("a")))
		}
		require.Contains(t, l.unsettled(), "a")
		require.Equal(t, []string{"a deleted"}, l.run("a"))
		require.Empty(t, l.unsettled())
	})
}

// TestRecentFailsOtherwise: where nothing can be compared, a failure is yielded again once it is another one.
func TestRecentFailsOtherwise(t *testing.T) {
	t.Parallel()
	l := newMemory(t, fileproc.Options{ReadSize: 1, Ordered: true}, "a=12", "b=34")
	text := "one"
	var err error
	l.opts.Workers = 1
	l.s, err = incremental.Open(l.root, l.inc, l.opts, func(f *fileproc.File) (string, error) {
		if f.Name() == "b" {
			return "same", nil
		}
		return "", errors.New(text)
	})
	require.NoError(t, err)
	require.Equal(t, []string{"a fails", "b=same new"}, l.run())
	for _, text = range []string{"two", "one"} {
		require.Equal(t, []string{"a fails", "b=same unchanged"}, l.run())
		require.Equal(t, []string{"b=same unchanged"}, l.run())
	}
}

// TestRecentEmptyResult: where nothing can be compared, an empty result is told from none.
func TestRecentEmptyResult(t *testing.T) {
	t.Parallel()
	l := newMemory(t, fileproc.Options{ReadSize: 1}, "a=12")
	skips := true
	l.inc.Codec = incremental.Raw[string]()
	var err error
	l.s, err = incremental.Open(l.root, l.inc, l.opts, func(f *fileproc.File) (string, error) {
		if skips {
			return "", fileproc.ErrSkip
		}
		return "", nil
	})
	require.NoError(t, err)
	require.Empty(t, l.run("a"))
	skips = false
	require.Equal(t, []string{"a= new"}, l.run("a"))
	require.Equal(t, []string{"a= unchanged"}, l.run("a"))
	skips = true
	require.Equal(t, []string{"a deleted"}, l.run("a"))
}
