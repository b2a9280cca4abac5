package run

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/cmd/fileproc/internal/output"
)

// file returns a new file.
func file(t *testing.T) *os.File {
	f, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// content returns what has been written to f.
func content(t *testing.T, f *os.File) string {
	b, err := os.ReadFile(f.Name())
	require.NoError(t, err)
	return string(b)
}

// The output of a file from before its failure is printed in order too.
func TestInOrderPrintsWhatCameBeforeAFailure(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o666))
	}
	stdout, stderr := file(t), file(t)
	r := &Run{Ctx: t.Context(), Out: output.New(stdout, stderr, func(err error) { t.Error(err) })}
	r.Opts.Workers, r.Opts.Ordered = 1, true
	require.NoError(t, r.Each(Job{Args: []string{dir}, Visit: func(it *Item, c *output.Chunk) error {
		c.B = append(c.B, it.F.Name()+"\n"...)
		if it.F.Name() == "a" {
			return errors.New("broken")
		}
		return nil
	}}))
	require.NoError(t, r.Out.Flush())
	require.Equal(t, "a\nb\n", content(t, stdout))
	require.EqualValues(t, 1, r.Failures.Load())
	require.Regexp(t, `^fileproc: .*[/\\]a: broken\n$`, content(t, stderr))
}

// A file that is an argument and that fails, or does not exist, ends nothing; ErrEnough ends the run. What a file has printed comes out in
// each case, in the order of the arguments.
func TestArguments(t *testing.T) {
	dir := t.TempDir()
	var args []string
	for _, name := range []string{"done", "skipped", "broken", "absent", "last", "enough", "after"} {
		args = append(args, filepath.Join(dir, name))
		if name != "absent" {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("12345"), 0o666))
		}
	}
	for _, n := range []int{3, 5, 7} { // without a failure of the system, with one, with an early end
		stdout, stderr := file(t), file(t)
		r := &Run{Out: output.New(stdout, stderr, func(err error) { t.Error(err) })}
		r.Ctx, r.Stop = context.WithCancelCause(t.Context())
		r.Opts.Workers, r.sorts = 1, true
		err := r.Each(Job{Args: args[:n], Visit: func(it *Item, c *output.Chunk) error {
			name := filepath.Base(it.Path())
			c.B = append(c.B, name+"\n"...)
			require.Contains(t, args, it.Path())
			require.True(t, it.IsArgument())
			require.EqualValues(t, "12345", it.Data)
			return map[string]error{"skipped": fileproc.ErrSkip, "broken": errors.New("no good"), "enough": ErrEnough}[name]
		}})
		require.NoError(t, r.Out.Flush())
		want := "done\nskipped\nbroken\n"
		if n > 3 {
			want += "last\n"
		}
		if n > 5 {
			require.ErrorIs(t, err, ErrEnough)
			require.Contains(t, content(t, stdout), want)
		} else {
			require.NoError(t, err)
			require.Equal(t, want, content(t, stdout))
			require.EqualValues(t, (n+1)/2, r.Totals.Processed)
			require.EqualValues(t, (n-1)/2, r.Failures.Load())
		}
		require.Contains(t, content(t, stderr), "broken: no good\n")
		require.NotContains(t, content(t, stderr), "skipped")
	}
}

// Standard input is read once, stays open, and counts, whatever its job says of it. A read fails once the run is cancelled.
func TestInput(t *testing.T) {
	stdin := file(t)
	_, err := stdin.WriteString("12345")
	require.NoError(t, err)
	defer func(f *os.File) { os.Stdin = f }(os.Stdin)
	os.Stdin = stdin
	for _, ends := range []error{nil, fileproc.ErrSkip, errors.New("broken"), ErrEnough} {
		_, err := stdin.Seek(0, io.SeekStart)
		require.NoError(t, err, "it is open")
		stdout, stderr := file(t), file(t)
		r := &Run{Out: output.New(stdout, stderr, func(err error) { t.Error(err) })}
		r.Ctx, r.Stop = context.WithCancelCause(t.Context())
		r.Opts.Workers = 1
		var got []string
		err = r.Each(Job{Args: []string{Stdin, stdin.Name(), Stdin}, Stdin: true, Visit: func(it *Item, c *output.Chunk) error {
			b, err := io.ReadAll(it.Reader())
			require.NoError(t, err)
			got = append(got, it.Path(), string(b))
			c.B = append(c.B, "printed\n"...)
			return ends
		}})
		require.NoError(t, r.Out.Flush())
		want := []string{Stdin, "12345", stdin.Name(), "12345", Stdin, ""}
		if ends == ErrEnough {
			require.Equal(t, ErrEnough, err)
			want = want[:2]
		} else {
			require.NoError(t, err)
		}
		require.Equal(t, want, got)
		require.Equal(t, strings.Repeat("printed\n", len(want)/2), content(t, stdout))
		require.EqualValues(t, 5, r.Read.Load())
		if ends != nil && ends.Error() == "broken" {
			require.EqualValues(t, 3, r.Failures.Load())
			require.Contains(t, content(t, stderr), "fileproc: -: broken\n")
		} else {
			require.Zero(t, r.Failures.Load())
		}

		r.Stop(errors.New("stop"))
		n, err := r.Input().Reader().Read(make([]byte, 5))
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, n)
	}
}
