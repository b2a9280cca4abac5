package records

import (
	"errors"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

func all(t *testing.T, r io.Reader, end byte) (records []string, err error) {
	for record, e := range All(t.Context(), r, end) {
		require.NoError(t, err, "something follows an error")
		if err = e; err == nil {
			records = append(records, record)
		}
	}
	return records, err
}

func TestAll(t *testing.T) {
	for _, wrap := range []func(io.Reader) io.Reader{func(r io.Reader) io.Reader { return r }, iotest.OneByteReader, iotest.DataErrReader} {
		got, err := all(t, wrap(strings.NewReader("a\n\nb c\nno newline")), '\n')
		require.NoError(t, err)
		require.Equal(t, []string{"a", "b c", "no newline"}, got)
		got, err = all(t, wrap(strings.NewReader("a\n\x00\x00b")), 0)
		require.NoError(t, err)
		require.Equal(t, []string{"a\n", "", "b"}, got, "an empty name is for others to refuse")
	}
}

// TestBrokenOff: what is read of a name when its list breaks off is no name.
func TestBrokenOff(t *testing.T) {
	broken := errors.New("broken")
	got, err := all(t, io.MultiReader(strings.NewReader("whole\npar"), iotest.ErrReader(broken)), '\n')
	require.ErrorIs(t, err, broken)
	require.Equal(t, []string{"whole"}, got)
	_, err = all(t, strings.NewReader(strings.Repeat("x", 2*maxRecord)+"\n"), '\n')
	require.ErrorIs(t, err, errTooLong)
}

// FuzzAll compares with strings.Split, however the input comes in pieces: the bytes of sizes are their lengths.
func FuzzAll(f *testing.F) {
	f.Add("a\n\nb c\r\nno newline", []byte{1, 3, 0, 200}, true)
	f.Add("a\n\x00\x00b", []byte{2}, false)
	f.Add("", []byte{}, true)
	f.Fuzz(func(t *testing.T, text string, sizes []byte, lines bool) {
		end := byte(0)
		if lines {
			end = '\n'
		}
		want := strings.Split(text, string(end))
		if last := len(want) - 1; want[last] == "" { // nothing is behind the last end
			want = want[:last]
		}
		if lines && runtime.GOOS == "windows" {
			for i := range want {
				want[i] = strings.TrimSuffix(want[i], "\r")
			}
		}
		if lines {
			want = slices.DeleteFunc(want, func(s string) bool { return s == "" })
		}
		if len(want) == 0 {
			want = nil
		}
		got, err := all(t, &pieces{text, sizes}, end)
		require.NoError(t, err)
		require.Equal(t, want, got)
	})
}

type pieces struct {
	rest  string
	sizes []byte
}

func (p *pieces) Read(b []byte) (int, error) {
	size := len(p.rest)
	if len(p.sizes) > 0 {
		size, p.sizes = min(size, int(p.sizes[0])), p.sizes[1:]
	}
	n := copy(b, p.rest[:size])
	p.rest = p.rest[n:]
	if p.rest == "" {
		return n, io.EOF
	}
	return n, nil
}
