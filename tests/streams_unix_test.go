//go:build unix

package fileproc_test

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/descriptors"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

// newFIFO returns the path of a FIFO, and a function that opens it as its writer and writes each piece.
func newFIFO(t *testing.T, dir string) (path string, write func(pieces ...string)) {
	if !testtree.Make(t, dir, "p|") {
		t.Skip("this platform makes no FIFOs")
	}
	path = filepath.Join(dir, "p")
	done := make(chan error)
	writers := 0
	t.Cleanup(func() {
		for range writers * map[bool]int{true: 0, false: 1}[t.Failed()] { // else they may wait for ever
			require.NoError(t, <-done)
		}
	})
	return path, func(pieces ...string) {
		writers++
		go func() {
			w, err := os.OpenFile(path, os.O_WRONLY, 0) // waits for the run
			for _, p := range pieces {
				if err == nil {
					_, err = io.WriteString(w, p)
					runtime.Gosched()
				}
			}
			if err == nil {
				err = w.Close()
			}
			done <- err
		}()
	}
}

// TestFIFOAsArgument: a FIFO that the caller names is read to its end, alone and among other roots.
func TestFIFOAsArgument(t *testing.T) {
	watchdog(t)
	dir := t.TempDir()
	require.True(t, testtree.Make(t, dir, "d/f=file", "d/p|"))
	fifo, write := newFIFO(t, dir)
	large := testtree.Content(3 << 20)
	type got struct {
		root, data, rest string
		mode             fs.FileMode
	}
	for name, opts := range map[string]fileproc.Options{
		"whole": {}, "Stat": {Stat: true}, "ReadSize": {ReadSize: 10}, "NoRead": {ReadSize: fileproc.NoRead}, "NoRead, Stat": {ReadSize: fileproc.NoRead, Stat: true},
		"SkipBinary": {SkipBinary: true, ReadSize: 5}, "Select": {Select: func(f *fileproc.File) bool { return true }}, "Symlinks": {Symlinks: fileproc.SymlinksFollow},
		"IgnoreFiles": {IgnoreFiles: []string{".ignore", "./x"}, GitIgnore: true, OneFilesystem: true}, "Workers": {Workers: 1},
	} {
		for _, roots := range [][]string{nil, {filepath.Join(dir, "d"), fifo}} {
			for _, ordered := range []bool{false, true} {
				opts.Roots, opts.Ordered, opts.Report = roots, ordered && opts.Symlinks == 0, new(fileproc.Report)
				write("ab", strings.Repeat("c", 50), large, "end")
				want := "ab" + strings.Repeat("c", 50) + large + "end"
				var all []got
				leavesNothing(t, func() {
					for g, err := range fileproc.Stream(t.Context(), fifo, opts, func(f *fileproc.File) (got, error) {
						rest, err := io.ReadAll(f.Reader())
						s, _ := f.Stat()
						return got{f.Root(), string(f.Data()), string(rest), s.Mode.Type()}, err
					}) {
						require.NoError(t, err, name)
						all = append(all, g)
					}
				})
				i := slices.IndexFunc(all, func(g got) bool { return g.root == fifo })
				require.GreaterOrEqual(t, i, 0, name)
				require.Equal(t, max(1, len(roots)), len(all), name)
				require.Equal(t, fs.ModeNamedPipe, all[i].mode, name)
				require.True(t, all[i].rest == want, "%s: %d of %d bytes", name, len(all[i].rest), len(want))
				switch {
				case opts.ReadSize > 0:
					require.Equal(t, want[:opts.ReadSize], all[i].data)
				case opts.ReadSize == 0:
					require.True(t, all[i].data == want, "%s: %d of %d bytes", name, len(all[i].data), len(want))
				}
				requireBalanced(t, *opts.Report)
				files := int64(0)
				if roots != nil {
					files = 4
				}
				require.EqualValues(t, int64(len(want))+files, opts.Report.Bytes, name)
			}
		}
	}
	for e, err := range fileproc.Walk(t.Context(), fifo, fileproc.Options{Stat: true}) {
		require.NoError(t, err)
		require.Equal(t, fs.ModeNamedPipe, e.Type())
	}
	write("more than that")
	_, err := fileproc.Process(t.Context(), fifo, fileproc.Options{MaxFileSize: 5}, nameOf)
	require.ErrorIs(t, err, fileproc.ErrTooLarge)
	err = fileproc.ForEach(t.Context(), fifo, fileproc.Options{ReadSize: fileproc.NoRead}, func(f *fileproc.File) error {
		_, err := f.Open()
		return err
	})
	require.ErrorContains(t, err, "unsupported")
}

// What has been read of a FIFO does not come again, so it is not closed when descriptors run out.
func TestFIFOStaysOpen(t *testing.T) {
	watchdog(t)
	dir := t.TempDir()
	fifo, write := newFIFO(t, dir)
	write("begin", "end")
	opts := fileproc.Options{Roots: []string{fifo, t.TempDir()}, ReadSize: fileproc.NoRead}
	got, err := fileproc.Process(t.Context(), ".", opts, func(f *fileproc.File) (string, error) {
		r, begin := f.Reader(), make([]byte, 2)
		if _, err := io.ReadFull(r, begin); err != nil {
			return "", err
		}
		descriptors.Holders.GiveUp()
		rest, err := io.ReadAll(r)
		return string(begin) + string(rest), err
	})
	require.NoError(t, err)
	require.Equal(t, []string{"beginend"}, got)
}

// TestWaitForAWriterIsCancelled: nobody writes, or no more.
func TestWaitForAWriterIsCancelled(t *testing.T) {
	watchdog(t)
	dir := t.TempDir()
	fifo, _ := newFIFO(t, dir)
	for _, opened := range []bool{false, true} {
		for _, size := range []int{0, 10, fileproc.NoRead} {
			for _, roots := range [][]string{nil, {fifo, fifo}} {
				leavesNothing(t, func() {
					ctx, cancel := context.WithCancelCause(t.Context())
					if opened {
						w, err := os.OpenFile(fifo, os.O_RDWR, 0)
						require.NoError(t, err)
						defer w.Close()
						_, err = w.WriteString("12345")
						require.NoError(t, err)
					}
					time.AfterFunc(30*time.Millisecond, func() { cancel(errFromFn) })
					opts := fileproc.Options{ReadSize: size, Roots: roots, Report: new(fileproc.Report)}
					_, err := fileproc.Process(ctx, fifo, opts, func(f *fileproc.File) (int, error) {
						_, err := io.ReadAll(f.Reader())
						return 0, err
					})
					require.ErrorIs(t, err, errFromFn)
					requireBalanced(t, *opts.Report)
				})
			}
		}
	}
}

// TestDevicesAsArguments: a device is read like a FIFO, and so is the end of a pipe that has no name.
func TestDevicesAsArguments(t *testing.T) {
	watchdog(t)
	content := func(f *fileproc.File) (string, error) { return fmt.Sprint(len(f.Data()), f.Truncated()), nil }
	for _, tt := range []struct {
		path  string
		opts  fileproc.Options
		want  string
		fails error
	}{
		{path: os.DevNull, want: "0 false"},
		{path: "/dev/zero", opts: fileproc.Options{ReadSize: 70_000}, want: "70000 true"},
		{path: "/dev/zero", opts: fileproc.Options{MaxFileSize: 3 << 20}, fails: fileproc.ErrTooLarge},
	} {
		if _, err := os.Stat(tt.path); err != nil {
			continue
		}
		for _, roots := range [][]string{nil, {tt.path, tt.path}} {
			tt.opts.Roots = roots
			leavesNothing(t, func() {
				got, err := fileproc.Process(t.Context(), tt.path, tt.opts, content)
				require.ErrorIs(t, err, tt.fails, tt.path)
				for _, g := range got {
					require.Equal(t, tt.want, g, tt.path)
				}
				require.True(t, tt.fails != nil || len(got) == max(1, len(roots)))
			})
		}
	}
	if runtime.GOOS != "linux" {
		t.Skip("the rest is about /dev/fd as Linux has it")
	}
	for _, text := range []string{"", "from a pipe"} {
		for _, closed := range []bool{false, true} {
			r, w, err := os.Pipe()
			require.NoError(t, err)
			end := func() {
				_, err := w.WriteString(text)
				require.NoError(t, err)
				require.NoError(t, w.Close())
			}
			if closed {
				end()
			} else {
				time.AfterFunc(20*time.Millisecond, end)
			}
			got, err := fileproc.Process(t.Context(), fmt.Sprint("/dev/fd/", r.Fd()), fileproc.Options{}, content)
			require.NoError(t, err)
			require.Equal(t, []string{fmt.Sprint(len(text), false)}, got)
			r.Close()
		}
	}
}
