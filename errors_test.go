package fileproc

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPathError(t *testing.T) {
	var p *fs.PathError
	err := pathError("open", "a/b", &sysError{"openat", changed{fs.ErrNotExist}})
	require.ErrorAs(t, err, &p)
	require.Equal(t, "openat", p.Op, "the system call, where it is known")
	require.Equal(t, "a/b", p.Path)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorIs(t, err, ErrChanged)
	require.NotErrorIs(t, err, ErrTooLarge)
	require.Contains(t, err.Error(), fs.ErrNotExist.Error())

	err = pathError("process", "a/b", errBroken)
	require.ErrorAs(t, err, &p)
	require.Equal(t, "process", p.Op)
	require.Equal(t, errBroken, p.Err)

	// A handle's own path is replaced and does not stay in the text.
	err = pathError("open", "a/b", asSysError("open", &fs.PathError{Op: "readat", Path: "b", Err: errBroken}))
	require.EqualError(t, err, "readat a/b: "+errBroken.Error())
}

func TestPanicError(t *testing.T) {
	p := &PanicError{errBroken, []byte("goroutine 7 [running]:")}
	require.ErrorIs(t, p, errBroken)
	require.Contains(t, p.Error(), errBroken.Error())
	require.Contains(t, p.Error(), "goroutine 7 [running]:")
	require.NoError(t, errors.Unwrap(&PanicError{Value: "no error"}))
}
