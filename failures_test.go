package fileproc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/fileproc/fileproc/internal/sys"
	"github.com/stretchr/testify/require"
)

func TestFailuresJoin(t *testing.T) {
	one, two := errors.New("one"), errors.New("two")
	var f failures
	require.NoError(t, f.join(nil))
	require.Equal(t, context.Canceled, f.join(context.Canceled), "a cause alone is itself")
	f.add(one)
	require.Equal(t, one, f.join(nil), "a failure alone is itself")
	f.add(two)
	err := f.join(nil)
	require.ErrorIs(t, err, one)
	require.ErrorIs(t, err, two)
	require.Equal(t, "one\ntwo", err.Error())

	err = f.join(context.Canceled)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, two)
	require.Equal(t, "context canceled\none\ntwo", err.Error(), "the cause comes first")
	require.Equal(t, "one\ntwo", f.join(nil).Error(), "join changes nothing")
}

// A worker that waits to report a failure while OnError panics does not call it again.
func TestFailuresEndWithAPanicOfOnError(t *testing.T) {
	calls := 0
	f := failures{onError: func(error) error { calls++; panic("in OnError") }}
	require.Panics(t, func() { f.add(errors.New("one")) })
	f.add(errors.New("two"))
	require.Equal(t, 1, calls)
}

func TestFailuresKeepSome(t *testing.T) {
	for _, n := range []int{maxFailures - 1, maxFailures, maxFailures + 1, 1000} {
		var f failures
		for i := range n {
			f.add(fmt.Errorf("number %d", i))
		}
		err := f.join(nil)
		var j interface{ Unwrap() []error }
		require.ErrorAs(t, err, &j)
		require.Len(t, j.Unwrap(), min(n, maxFailures))
		lines := strings.Split(err.Error(), "\n")
		require.Equal(t, "number 0", lines[0])
		if more := n - maxFailures; more > 0 {
			require.Equal(t, fmt.Sprintf("fileproc: and %d more failures", more), lines[maxFailures])
		} else {
			require.Len(t, lines, n)
		}
	}
}

func TestFailuresOnError(t *testing.T) {
	enough := errors.New("enough")
	calls, stops := 0, []error(nil)
	f := failures{
		onError: func(err error) error {
			if calls++; calls == 2 {
				return enough
			}
			return nil
		},
		stop: func(err error) { stops = append(stops, err) },
	}
	for range 5 {
		f.add(errBroken)
	}
	require.Equal(t, 2, calls, "none after the one that stopped the run")
	require.Equal(t, []error{enough}, stops)
	require.NoError(t, f.join(nil), "reported nowhere else")
}

// A failure goes to the loop over a Stream if there is no OnError, and else to OnError: once the worker is short no more.
func TestFailuresGoToOne(t *testing.T) {
	for _, hasOnError := range []bool{false, true} {
		var yielded, seen []error
		calls := callbacks{yieldError: func(_ *worker, err error) { yielded = append(yielded, err) }}
		if hasOnError {
			calls.onError = func(err error) error { seen = append(seen, err); return nil }
		}
		cfg, err := (&Options{}).config("root", false)
		require.NoError(t, err)
		r := newRun(t.Context(), cfg, calls, nil)
		w := r.startWorker(0)
		w.foundFailed("open", r.root, "a", errBroken)
		w.short = new(shortage)
		w.foundFailed("open", r.root, "b", errBroken)
		if hasOnError {
			require.Len(t, seen, 1)
		}
		w.short.callDeferred()
		require.NoError(t, r.failures.join(nil), "reported nowhere else")
		require.EqualValues(t, 2, w.counts.failed)
		if !hasOnError {
			yielded, seen = seen, yielded
		}
		require.Len(t, seen, 2)
		require.ErrorContains(t, seen[1], "b")
		require.Empty(t, yielded)
		w.retire()
	}
}

// What is skipped goes to OnSkip once the worker is short no more, and is counted at once.
func TestOnSkipAfterTheDrain(t *testing.T) {
	var seen []string
	opts := Options{OnSkip: func(e Entry, _ SkipReason) { seen = append(seen, e.Name()) }}
	cfg, err := opts.config("root", false)
	require.NoError(t, err)
	r := newRun(t.Context(), cfg, opts.callbacks(), nil)
	w := r.startWorker(0)
	defer w.retire()
	name := []byte("a")
	w.short = new(shortage)
	w.foundSkipped(SkippedSuffix, r.root, stringOf(name), 0)
	name[0] = 'b' // the memory is a listing's
	require.Empty(t, seen)
	require.EqualValues(t, 1, w.counts.skipped[0].n)
	w.short.callDeferred()
	require.Equal(t, []string{"a"}, seen)
}

func TestPathError(t *testing.T) {
	var p *fs.PathError
	err := sys.PathError("open", "a/b", &sys.Error{Op: "openat", Err: sys.Changed{Err: fs.ErrNotExist}})
	require.ErrorAs(t, err, &p)
	require.Equal(t, "openat", p.Op, "the system call, where it is known")
	require.Equal(t, "a/b", p.Path)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorIs(t, err, ErrChanged)
	require.NotErrorIs(t, err, ErrTooLarge)
	require.Contains(t, err.Error(), fs.ErrNotExist.Error())

	err = sys.PathError("process", "a/b", errBroken)
	require.ErrorAs(t, err, &p)
	require.Equal(t, "process", p.Op)
	require.Equal(t, errBroken, p.Err)

	// A handle's own path is replaced and does not stay in the text.
	err = sys.PathError("open", "a/b", sys.AsError("open", &fs.PathError{Op: "readat", Path: "b", Err: errBroken}))
	require.EqualError(t, err, "readat a/b: "+errBroken.Error())
}

func TestPanicError(t *testing.T) {
	p := &PanicError{errBroken, []byte("goroutine 7 [running]:")}
	require.ErrorIs(t, p, errBroken)
	require.Contains(t, p.Error(), errBroken.Error())
	require.Contains(t, p.Error(), "goroutine 7 [running]:")
	require.NoError(t, errors.Unwrap(&PanicError{Value: "no error"}))
}
