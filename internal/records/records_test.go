package records

import (
	"errors"
	"io"
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
