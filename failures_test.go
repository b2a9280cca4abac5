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
	f.add(nil, one)
	require.Equal(t, one, f.join(nil), "a failure alone is itself")
	f.add(nil, two)
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
	require.Panics(t, func() { f.add(&worker{}, errors.New("one")) })
	f.add(&worker{}, errors.New("two"))
	require.Equal(t, 1, calls)
}

func TestFailuresKeepSome(t *testing.T) {
	for _, n := range []int{maxFailures - 1, maxFailures, maxFailures + 1, 1000} {
		var f failures
		for i := range n {
			f.add(nil, fmt.Errorf("number %d", i))
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
		stop:  func(err error) { stops = append(stops, err) },
		yield: func(*worker, error) { t.Error("a failure that OnError has seen is yielded") },
	}
	for range 5 {
		f.add(&worker{}, errBroken)
	}
	require.Equal(t, 2, calls, "none after the one that stopped the run")
	require.Equal(t, []error{enough}, stops)
	require.NoError(t, f.join(nil), "reported nowhere else")
}

func TestFailuresYield(t *testing.T) {
	var got []error
	f := failures{yield: func(_ *worker, err error) { got = append(got, err) }}
	f.add(&worker{}, errBroken)
	require.Equal(t, []error{errBroken}, got)
	require.NoError(t, f.join(nil))
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
