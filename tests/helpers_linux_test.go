//go:build linux

package fileproc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// openDescriptors counts this process's descriptors.
func openDescriptors() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return -1
	}
	return len(entries)
}

// read returns the content of every file that Process delivers, by its path relative to root.
func read(ctx context.Context, root string, opts fileproc.Options) (map[string]string, error) {
	type file struct{ rel, data string }
	files, err := fileproc.Process(ctx, root, opts, func(f *fileproc.File) (file, error) {
		return file{f.Rel(), string(f.Data())}, nil
	})
	got := map[string]string{}
	for _, f := range files {
		if _, twice := got[f.rel]; twice {
			return got, fmt.Errorf("%s delivered twice", f.rel)
		}
		got[f.rel] = f.data
	}
	return got, err
}

// memoryDir is a directory for thousands of files, in memory if possible.
func memoryDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "fileproc")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// dropCaches empties the page cache, which only root may.
func dropCaches() error {
	unix.Sync() // dirty pages cannot be dropped
	return os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0)
}

func limitDescriptors(t *testing.T, n uint64) {
	t.Helper()
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: n}))
}

// complete requires every file below root, each of which holds its own relative path.
func complete(ctx context.Context, root string, opts fileproc.Options, want int64) error {
	var report fileproc.Report
	opts.Report = &report
	var delivered atomic.Int64
	_, err := fileproc.Process(ctx, root, opts, func(f *fileproc.File) (struct{}, error) {
		delivered.Add(1)
		if string(f.Data()) != filepath.ToSlash(f.Rel()) {
			return struct{}{}, fmt.Errorf("it holds %q", f.Data())
		}
		return struct{}{}, nil
	})
	if err != nil {
		return err
	}
	if delivered.Load() != want || report.Processed != want || report.Found != want {
		return fmt.Errorf("%d files of %d; report %+v", delivered.Load(), want, report)
	}
	return nil
}

func countFiles(t *testing.T, root string) (n int64) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(root, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			n++
		}
		return err
	}))
	return n
}

func plant(t *testing.T, root string, rels ...string) {
	t.Helper()
	for _, rel := range rels {
		path := filepath.Join(root, rel)
		err := os.WriteFile(path, []byte(rel), 0o644)
		if errors.Is(err, fs.ErrNotExist) {
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
			err = os.WriteFile(path, []byte(rel), 0o644)
		}
		require.NoError(t, err)
	}
}

// exact returns what is wrong with the content that fn got of a planted file.
func exact(f *fileproc.File, readSize int) error {
	want := testtree.BytesOf(filepath.ToSlash(f.Rel()))
	part := want
	if readSize > 0 {
		part = want[:min(readSize, len(want))]
	}
	switch data := f.Data(); {
	case !bytes.Equal(data, part):
		return fmt.Errorf("wrong bytes: %d of %d, want %d", len(data), len(want), len(part))
	case len(data) != cap(data):
		return fmt.Errorf("wrong capacity: %d for %d bytes", cap(data), len(data))
	case f.Truncated() != (len(part) < len(want)):
		return fmt.Errorf("wrong Truncated: %v with %d of %d bytes", f.Truncated(), len(part), len(want))
	}
	return nil
}

// plantMany writes files files in each of dirs directories below a new one, whose path it returns.
func plantMany(t *testing.T, dirs, files int) (root string, rels []string) {
	t.Helper()
	root = t.TempDir()
	for d := range dirs {
		dir := fmt.Sprintf("d%02d", d)
		require.NoError(t, os.Mkdir(filepath.Join(root, dir), 0o755))
		for f := range files {
			rel := fmt.Sprintf("%s/f%04d", dir, f)
			require.NoError(t, os.WriteFile(filepath.Join(root, rel), testtree.BytesOf(rel), 0o644))
			rels = append(rels, rel)
		}
	}
	return root, rels
}

// requireExact requires each of rels once with its bytes, and nothing else.
func requireExact(t *testing.T, root string, opts fileproc.Options, rels []string) {
	t.Helper()
	var report fileproc.Report
	opts.Report = &report
	got, err := fileproc.Process(t.Context(), root, opts, func(f *fileproc.File) (string, error) {
		return filepath.ToSlash(f.Rel()), exact(f, opts.ReadSize)
	})
	require.NoError(t, err, "%+v", opts)
	seen := map[string]bool{}
	for _, rel := range got {
		require.False(t, seen[rel], "%s twice", rel)
		seen[rel] = true
	}
	for _, rel := range rels {
		require.True(t, seen[rel], "%s was not delivered", rel)
	}
	require.Len(t, got, len(rels))
	require.EqualValues(t, len(rels), report.Processed)
	requireBalanced(t, report)
}

func relsOf(t *testing.T, root string) (rels []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			rel, _ := filepath.Rel(root, path)
			rels = append(rels, rel)
		}
		return err
	}))
	return rels
}
