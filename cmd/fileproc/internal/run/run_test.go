package run

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/cmd/fileproc/internal/output"
)

// While the first item blocks, up to maxAhead items are taken; all are emitted in order.
func TestInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Run{Ctx: t.Context(), Out: output.New(os.Stdout, os.Stderr, nil)}
		r.Opts.Workers = 3
		const items = 2*maxAhead + 10
		taken, order := 0, []int{}
		each := func(yield func(int) bool) {
			for taken < items {
				taken++
				if !yield(taken - 1) {
					return
				}
			}
		}
		free := make(chan struct{})
		go InTurn(r, each, func(x int, wait func()) func() error {
			switch x {
			case 0:
				<-free
			case 1:
				wait()
				assert.Len(t, order, 1)
			}
			return func() error {
				order = append(order, x)
				return nil
			}
		})
		synctest.Wait()
		require.Equal(t, maxAhead, taken)
		require.Empty(t, order)
		close(free)
		synctest.Wait()
		require.Len(t, order, items)
		require.True(t, slices.IsSorted(order))
	})
}

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

// After an error that ends the run, no work begins, and what has begun is waited for; after ErrEnough it is not.
func TestInTurnWaitsForWhatHasBegun(t *testing.T) {
	for _, ends := range []error{errors.New("broken"), ErrEnough} {
		synctest.Test(t, func(t *testing.T) {
			r := &Run{Out: output.New(os.Stdout, os.Stderr, nil)}
			r.Ctx, r.Stop = context.WithCancelCause(t.Context())
			r.Opts.Workers = 2
			var done atomic.Bool
			var begun atomic.Int64
			InTurn(r, slices.Values([]int{0, 1, 2, 3}), func(x int, _ func()) func() error {
				begun.Add(1)
				time.Sleep(time.Duration(x) * time.Second)
				done.CompareAndSwap(false, x == 1)
				return func() error {
					time.Sleep(time.Millisecond) // so that the other has begun
					return ends
				}
			})
			require.Equal(t, ends != ErrEnough, done.Load())
			require.Equal(t, ends, context.Cause(r.Ctx))
			time.Sleep(time.Minute) // all goroutines end
			require.EqualValues(t, 3, begun.Load(), "the last one's turn came after the end")
		})
	}
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

// A file that is named as an argument and that its job skips has been processed; any other error is a failure, which ends nothing, and
// ErrEnough ends the run. What a file has printed comes out in each case.
func TestNamedFiles(t *testing.T) {
	dir := t.TempDir()
	var args []string
	for _, name := range []string{"done", "skipped", "broken", "absent", "enough", "after"} {
		args = append(args, filepath.Join(dir, name))
		if name != "absent" {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("12345"), 0o666))
		}
	}
	for _, n := range []int{3, 4, 6} { // without a failure of the system, with one, with an early end
		stdout, stderr := file(t), file(t)
		r := &Run{Out: output.New(stdout, stderr, func(err error) { t.Error(err) })}
		r.Ctx, r.Stop = context.WithCancelCause(t.Context())
		r.Opts.Workers = 1
		err := r.Each(Job{Args: args[:n], Visit: func(it *Item, c *output.Chunk) error {
			name := filepath.Base(it.Path())
			c.B = append(c.B, name+"\n"...)
			st, err := it.Stat()
			require.NoError(t, err)
			require.EqualValues(t, 5, st.Size)
			return map[string]error{"skipped": fileproc.ErrSkip, "broken": errors.New("no good"), "enough": ErrEnough}[name]
		}})
		require.NoError(t, r.Out.Flush())
		want, failures, processed := "done\nskipped\nbroken\n", min(n-2, 2), 2
		if n > 4 {
			want, processed = want+"enough\n", 3
			require.ErrorIs(t, err, ErrEnough)
		} else {
			require.NoError(t, err)
		}
		require.Equal(t, want, content(t, stdout))
		require.EqualValues(t, failures, r.Failures.Load())
		require.EqualValues(t, processed, r.Totals.Processed)
		require.Contains(t, content(t, stderr), "broken: no good\n")
		require.NotContains(t, content(t, stderr), "skipped")
	}
}

// A named file is open while it is visited and no longer, whatever the visit says, and what is read of it counts. A read of it fails once
// the run is cancelled. Standard input stays open for the next one.
func TestNamedFilesAreClosed(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(name, []byte("12345"), 0o666))
	stdin, err := os.Open(name)
	require.NoError(t, err)
	defer stdin.Close()
	defer func(f *os.File) { os.Stdin = f }(os.Stdin)
	os.Stdin = stdin
	for _, ends := range []error{nil, fileproc.ErrSkip, errors.New("broken")} {
		var opened []*os.File
		stdout, stderr := file(t), file(t)
		r := &Run{Out: output.New(stdout, stderr, func(err error) { t.Error(err) })}
		r.Ctx, r.Stop = context.WithCancelCause(t.Context())
		r.Opts.Workers = 1
		require.NoError(t, r.Each(Job{Args: []string{name, Stdin, name}, Stdin: true, Visit: func(it *Item, _ *output.Chunk) error {
			b, err := io.ReadAll(it.Reader())
			require.NoError(t, err)
			if it.Path() == name {
				require.Equal(t, "12345", string(b))
				opened = append(opened, it.in)
				_, err = it.in.Stat()
				require.NoError(t, err)
			}
			return ends
		}}))
		require.Len(t, opened, 2)
		for _, f := range opened {
			_, err := f.Stat()
			require.ErrorIs(t, err, os.ErrClosed)
		}
		_, err := stdin.Seek(0, io.SeekStart)
		require.NoError(t, err, "it is open")
		require.EqualValues(t, 15, r.Read.Load())

		it := r.Named(name, false, nil)
		r.Stop(errors.New("stop"))
		n, err := it.Read(make([]byte, 5))
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, n)
		it.Close()
	}
	r := &Run{Ctx: t.Context(), Out: output.New(os.Stdout, os.Stderr, nil)}
	it := r.Named(name+" absent", false, nil)
	_, err = it.Read(make([]byte, 5))
	require.ErrorIs(t, err, os.ErrNotExist)
}
