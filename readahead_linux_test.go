//go:build linux && !fileproc_unix && !fileproc_generic

package fileproc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fileproc/fileproc/internal/backend"
	"github.com/fileproc/fileproc/internal/content"
	"github.com/fileproc/fileproc/internal/sys"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Reading ahead must give the same content as plain reads, whatever the group
// has in it: this tree has more entries than a worker visits before it reads ahead.
func TestReadAheadEqualsPlain(t *testing.T) {
	dir := t.TempDir()
	want := map[string][]byte{}
	for i := range 3000 {
		name := fmt.Sprintf("%04d", i)
		size := (i * 37) % 1500
		switch {
		case i%50 == 0:
			size = 0
		case i%61 == 0:
			size = 16<<10 - 1 + i%3 // up to which a file is read ahead
		case i%71 == 0:
			size = 512 * (i % 9)
		case i > 2500 && i%2 == 0:
			size = 20_000 // reading ahead is of no use here
		}
		want[name] = bytes.Repeat([]byte{byte(i), byte(i >> 8), 7}, size/3+1)[:size]
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), want[name], 0o644))
	}
	for _, opts := range []Options{{}, {Workers: 1}, {Workers: 8}, {DisableURing: true}, {ReadSize: 100}, {ReadSize: 1000, Workers: 1}, {MaxFileSize: 600}} {
		got := map[string][]byte{}
		var report Report
		opts.Report = &report
		type file struct {
			name string
			data []byte
		}
		files, err := Process(context.Background(), dir, opts, func(f *File) (file, error) {
			if cap(f.Data()) != len(f.Data()) {
				return file{}, fmt.Errorf("cap %d, len %d", cap(f.Data()), len(f.Data()))
			}
			if f.Truncated() != (opts.ReadSize > 0 && len(want[f.Name()]) > opts.ReadSize) {
				return file{}, fmt.Errorf("Truncated is %v", f.Truncated())
			}
			return file{f.Name(), bytes.Clone(f.Data())}, nil
		})
		tooLarge := 0
		for name, data := range want {
			if opts.MaxFileSize > 0 && int64(len(data)) > opts.MaxFileSize {
				tooLarge++
				got[name] = nil
			}
		}
		if tooLarge > 0 {
			require.ErrorIs(t, err, ErrTooLarge)
		} else {
			require.NoError(t, err)
		}
		require.EqualValues(t, tooLarge, report.Failed)
		require.Len(t, files, len(want)-tooLarge)
		for _, f := range files {
			data := want[f.name]
			if opts.ReadSize > 0 {
				data = data[:min(len(data), opts.ReadSize)]
			}
			require.True(t, bytes.Equal(data, f.data), "%s with %+v: %d bytes", f.name, opts, len(f.data))
			_, twice := got[f.name]
			require.False(t, twice, f.name)
			got[f.name] = data
		}
	}
}

// Metadata that is looked up ahead is each file's own.
func TestStatAheadEqualsPlain(t *testing.T) {
	dir := t.TempDir()
	const files = 500
	for i := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%04d", i)), make([]byte, i), 0o600))
	}
	for _, workers := range []int{1, 4} {
		seen := map[string]bool{}
		got, err := Process(context.Background(), dir, Options{ReadSize: NoRead, Stat: true, Workers: workers}, func(f *File) (string, error) {
			s, err := f.Stat()
			if err != nil {
				return "", err
			}
			info, err := os.Lstat(f.Path())
			if err != nil {
				return "", err
			}
			s.BirthTime = time.Time{} // on 32-bit systems it is there
			if want := Stat(sys.StatOfInfo(info)); s != want {
				return "", fmt.Errorf("%+v, want %+v", s, want)
			}
			return f.Name(), nil
		})
		require.NoError(t, err)
		for _, name := range got {
			seen[name] = true
		}
		require.Len(t, got, files)
		require.Len(t, seen, files)
	}
}

// A file that was replaced before its metadata was looked up ahead is ErrChanged.
func TestStatAheadMeetsChangedEntries(t *testing.T) {
	dir := t.TempDir()
	for i := range 300 {
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%04d", i)), nil, 0o600))
	}
	entries, err := ReadDir(dir)
	require.NoError(t, err)
	n := 0
	_, err = Process(context.Background(), dir, Options{ReadSize: NoRead, Stat: true, Workers: 1}, func(f *File) (struct{}, error) {
		if n++; n == 1 { // before the first group
			for i, change := range []func(path string) error{
				func(path string) error { return nil },
				func(path string) error { return os.Mkdir(path, 0o755) },
				func(path string) error { return os.Symlink("x", path) },
			} {
				path := filepath.Join(dir, entries[100+i].Name())
				if err := errors.Join(os.Remove(path), change(path)); err != nil {
					return struct{}{}, err
				}
			}
		}
		s, err := f.Stat()
		if err == nil && !s.Mode.IsRegular() {
			err = fmt.Errorf("%s is %v", f.Name(), s.Mode)
		}
		return struct{}{}, err
	})
	require.ErrorIs(t, err, ErrChanged)
	require.NotContains(t, err.Error(), " is ")
	require.Equal(t, 297, n)
}

// With no limit, or one larger than any file, files are read all the same.
func TestReadAheadWithoutLimit(t *testing.T) {
	dir := t.TempDir()
	for i := range 100 {
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), []byte("content"), 0o600))
	}
	_, err := Process(context.Background(), dir, Options{MaxFileSize: -1}, func(f *File) (int, error) {
		if string(f.Data()) != "content" {
			return 0, fmt.Errorf("%q", f.Data())
		}
		return 0, nil
	})
	require.NoError(t, err)
}

// Entries that change behind the worker's back: fn, at the first file of a
// group, replaces and removes files further on. Whatever has been read by then,
// no replacement is read.
func TestReadAheadMeetsChangedEntries(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte("secret"), 0o644))
	const files = 2000
	for i := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%04d", i)), []byte("content"), 0o644))
	}
	n := 0
	var names []string
	entries, err := ReadDir(dir) // in the order in which they are listed
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	change := []func(path string) error{
		func(path string) error { return nil },
		func(path string) error { return unix.Mkfifo(path, 0o644) },
		func(path string) error { return os.Symlink(secret, path) },
		func(path string) error { return os.Mkdir(path, 0o755) },
	}
	changed := 0
	var report Report
	_, err = Process(context.Background(), dir, Options{Workers: 1, Report: &report}, func(f *File) (struct{}, error) {
		if string(f.Data()) != "content" {
			return struct{}{}, fmt.Errorf("read %q", f.Data())
		}
		n++
		if n%3 == 0 && n+100 < files {
			path := filepath.Join(dir, names[n+99])
			if err := os.Remove(path); err != nil {
				return struct{}{}, nil
			}
			changed++
			return struct{}{}, change[n/3%len(change)](path)
		}
		return struct{}{}, nil
	})
	require.Positive(t, changed)
	require.ErrorIs(t, err, ErrChanged)
	// An entry removed or replaced before it is listed is not found, or is no file.
	require.Equal(t, report.Found, report.Processed+report.Failed+report.Skipped[SkippedNotRegular])
	require.LessOrEqual(t, report.Found, int64(files+changed)) // xfs lists some of the new ones as well
	require.GreaterOrEqual(t, report.Processed, int64(files-changed))
	require.NotContains(t, err.Error(), "read \"")
	require.NotContains(t, err.Error(), "process")
}

// Reading ahead takes no files from a worker that shares the batch.
func TestReadAheadTakesNoEntries(t *testing.T) {
	dir := t.TempDir()
	for i := range 800 {
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%04d", i)), []byte("content"), 0o644))
	}
	// After 500 quick files, 64 calls must run at once for any to return.
	const together = 64
	all := make(chan struct{})
	calls := make(chan int, 1)
	calls <- 0
	_, err := Process(context.Background(), dir, Options{Workers: together}, func(f *File) (struct{}, error) {
		n := <-calls
		calls <- n + 1
		if n < 500 || n >= 500+together {
			return struct{}{}, nil
		}
		if n == 500+together-1 {
			close(all)
		}
		<-all
		return struct{}{}, nil
	})
	require.NoError(t, err)
}

// The Report counts files read with io_uring if it is used, and only then.
func TestReportTellsOfIOUring(t *testing.T) {
	dir := t.TempDir()
	for i := range 1000 {
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%04d", i)), []byte("content"), 0o600))
	}
	run := func(opts Options) int64 {
		var report Report
		opts.Report, opts.Workers = &report, 1
		_, err := Process(context.Background(), dir, opts, func(f *File) (struct{}, error) { return struct{}{}, nil })
		require.NoError(t, err)
		require.EqualValues(t, 1000, report.Processed)
		return report.URing
	}
	require.Zero(t, run(Options{DisableURing: true}))
	require.Zero(t, run(Options{ReadSize: NoRead}))
	ring, good := content.HasRings(), false
	if d, err := backend.OpenRoot(dir); err == nil {
		good = backend.DiskOf(d).Kind == content.OnDiskForRings
		d.Close()
	}
	if !ring || !good {
		t.Log("left out: no io_uring here, or not for this file system")
		require.Zero(t, run(Options{}))
		return
	}
	require.Greater(t, run(Options{}), int64(500))
}

// A ring is not set up for the rest of a small tree, but for a large one whatever its form.
func TestRingOnlyWhereMuchIsLeft(t *testing.T) {
	if !content.HasRings() {
		t.Log("left out: no io_uring here")
		return
	}
	tree := t.TempDir()
	if d, err := backend.OpenRoot(tree); err != nil || backend.DiskOf(d).Kind != content.OnDiskForRings {
		t.Log("left out: not for this file system")
		return
	} else {
		d.Close()
	}
	fill := func(dir string) {
		require.NoError(t, os.MkdirAll(dir, 0o755))
		for i := range 50 {
			require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), []byte("content"), 0o600))
		}
	}
	run := func(root string) int64 {
		var report Report
		_, err := Process(context.Background(), root, Options{Report: &report, Workers: 1}, func(f *File) (struct{}, error) { return struct{}{}, nil })
		require.NoError(t, err)
		return report.URing
	}
	for k := range 12 {
		fill(filepath.Join(tree, "wide", fmt.Sprint(k)))
	}
	require.Zero(t, run(filepath.Join(tree, "wide")))
	for k := range 40 {
		fill(filepath.Join(tree, "wide", fmt.Sprint(k)))
	}
	require.Greater(t, run(filepath.Join(tree, "wide")), int64(1000))
	chain := filepath.Join(tree, "chain")
	for dir := chain; len(dir) < len(chain)+2*30; dir = filepath.Join(dir, "d") { // one directory is known at a time
		fill(dir)
	}
	require.Greater(t, run(chain), int64(100))
}
