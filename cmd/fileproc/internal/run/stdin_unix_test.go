//go:build unix

package run

import (
	"os"
	"syscall"
	"testing"

	"github.com/fileproc/fileproc"
	"github.com/stretchr/testify/require"
)

// Without arguments, standard input is read if something is there: a pipe, a socket or a file. A device or a directory is not, nor is
// anything if there are arguments, a list or a cache, or if git says which files.
func TestOrStdin(t *testing.T) {
	opened := func(name string) *os.File {
		f, err := os.Open(name)
		require.NoError(t, err)
		return f
	}
	pipe, end, err := os.Pipe()
	require.NoError(t, err)
	defer end.Close()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	require.NoError(t, err)
	defer syscall.Close(pair[1])
	closed := opened(os.DevNull)
	closed.Close()
	defer func(f *os.File) { os.Stdin = f }(os.Stdin)
	for name, tt := range map[string]struct {
		in   *os.File
		want []string
	}{
		"pipe":      {pipe, []string{Stdin}},
		"socket":    {os.NewFile(uintptr(pair[0]), "socket"), []string{Stdin}},
		"file":      {file(t), []string{Stdin}},
		"device":    {opened(os.DevNull), nil},
		"directory": {opened(t.TempDir()), nil},
		"closed":    {closed, nil},
	} {
		os.Stdin = tt.in
		require.Equal(t, tt.want, new(Run).OrStdin(nil), name)
		require.Equal(t, []string{"x"}, new(Run).OrStdin([]string{"x"}), name)
		for _, s := range []Selection{{List: "x"}, {Cache: "x"}, {changed: true}, {Opts: fileproc.Options{GitTracked: true}}} {
			require.Empty(t, (&Run{Selection: s}).OrStdin(nil), name)
		}
		tt.in.Close()
	}
}
