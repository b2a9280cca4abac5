package run

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/fileproc/fileproc/internal/records"
	"github.com/stretchr/testify/require"
)

// readNames yields the names that --files-from reads.
func readNames(ctx context.Context, r io.Reader, end byte, failed *error) iter.Seq[string] {
	return func(yield func(string) bool) {
		for name, err := range records.All(ctx, r, end) {
			if *failed = err; err != nil || !yield(name) {
				return
			}
		}
	}
}

// Names are the same however many bytes each read gives.
func TestReadNames(t *testing.T) {
	long := strings.Repeat("long/", 15_000) // longer than any buffer to begin with
	for _, tt := range []struct {
		text string
		end  byte
		want []string
	}{
		{"", '\n', nil},
		{"\n\n", '\n', nil},
		{"a", '\n', []string{"a"}},
		{"a\n\nb/\nc d\n", '\n', []string{"a", "b/", "c d"}},
		{"a\nb", '\n', []string{"a", "b"}},
		{"a\nb\x00\x00c", 0, []string{"a\nb", "", "c"}},
		{long + "\n" + long + "x", '\n', []string{long, long + "x"}},
	} {
		for name, reader := range map[string]func(io.Reader) io.Reader{
			"whole": func(r io.Reader) io.Reader { return r }, "bytes": iotest.OneByteReader, "halves": iotest.HalfReader, "end with data": iotest.DataErrReader,
		} {
			var err error
			got := slices.Collect(readNames(t.Context(), reader(bytes.NewReader([]byte(tt.text))), tt.end, &err))
			require.NoError(t, err)
			require.Equal(t, tt.want, got, name)
		}
	}
	var err error
	require.Equal(t, []string{"a"}, slices.Collect(readNames(t.Context(), io.MultiReader(strings.NewReader("a\n"), iotest.ErrReader(errors.ErrUnsupported)), '\n', &err)))
	require.ErrorIs(t, err, errors.ErrUnsupported)
}

// A cancel ends the names while a read waits.
func TestReadNamesIsCancelled(t *testing.T) {
	r, w := io.Pipe()
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go w.Write([]byte("a\nb"))
	var err error
	for name := range readNames(ctx, r, '\n', &err) {
		require.Equal(t, "a", name)
		cancel()
	}
	require.NoError(t, err)
}

func TestSplitName(t *testing.T) {
	for name, want := range map[string][2]string{
		"a": {"", "a"}, "./a": {"", "a"}, "a//b": {"", "a/b"}, "a/./b/": {"", "a/b/"}, "a/.": {"", "a/"}, ".a/.b": {"", ".a/.b"}, "...": {"", "..."},
		"../a": {"..", "a"}, "../../a/": {"../..", "a/"}, "./../a": {"..", "a"}, "a/../b": {"", "a/../b"}, "../a/../b": {"..", "a/../b"},
		"./": {"", ""}, ".": {"", "."}, "..": {"", ".."}, "../": {"..", ""}, "../..": {"..", ".."}, "": {"", "."},
		"/a": {"/", "a"}, "//a/b/": {"/", "a/b/"}, "/": {"/", ""}, "/../a": {"/", "../a"},
	} {
		if runtime.GOOS == "windows" && strings.HasPrefix(name, "//") {
			continue // a volume
		}
		want[0] = filepath.FromSlash(want[0])
		if dir, rel := records.Split(name); want != [2]string{dir, rel} {
			t.Errorf("%q: %q, %q, want %q", name, dir, rel, want)
		}
	}
}
