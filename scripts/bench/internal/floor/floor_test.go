//go:build linux

package floor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/fileproc/fileproc/scripts/internal/turns"
)

// makeTree makes n files in 7 directories, of which file i has i times step bytes, and returns the sum.
func makeTree(t *testing.T, n, step int) (dir string, bytes int) {
	dir = t.TempDir()
	for i := range n {
		sub := filepath.Join(dir, fmt.Sprint(i%7))
		require.NoError(t, os.MkdirAll(sub, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(sub, fmt.Sprint("file", i)), make([]byte, i*step), 0o644))
		bytes += i * step
	}
	return dir, bytes
}

// evict takes the files out of the page cache, where the file system is on a disk.
func evict(t *testing.T, dir string) {
	unix.Sync()
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		return errors.Join(unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED), f.Close())
	}))
}

// The Go loop sees all files and bytes at every ring depth and batch size.
func TestGoLoop(t *testing.T) {
	dir, want := makeTree(t, 300, 1)
	for name, newReader := range map[string]func() (reader, error){"plain": plain, "1 deep": ring(1), "16 deep": ring(16), "256 deep": ring(256)} {
		if _, err := newReader(); err != nil {
			t.Logf("left out: %s: %v", name, err)
			continue
		}
		for _, chunk := range []int{1, 16, 1024} {
			evict(t, dir)
			p, err := turns.Timed(goLoop{dir, 2, chunk, false, newReader}.read)
			require.NoError(t, err)
			assert.Equal(t, 300, p.Files, "%s, %d at a time", name, chunk)
			assert.EqualValues(t, want, p.Bytes, "%s, %d at a time", name, chunk)
		}
	}
	_, _, err := goLoop{filepath.Join(dir, "nosuch"), 1, 1, false, plain}.read()
	assert.ErrorIs(t, err, os.ErrNotExist)
}

// The loop in the order of the inodes sees all bytes of files smaller and larger than a read, and in more than one window.
func TestInOrder(t *testing.T) {
	dir, want := makeTree(t, 600, 10)
	var inodes []uint64
	_, _, err := goLoop{dir, 1, 8, true, func() (reader, error) {
		return func(files []bareFile) (int64, error) {
			for _, f := range files {
				inodes = append(inodes, f.inode)
			}
			return 0, nil
		}, nil
	}}.read()
	require.NoError(t, err)
	assert.Len(t, inodes, 600)
	assert.IsIncreasing(t, inodes)
	for _, size := range []int{100, 2000, 8192} {
		p, err := (&run{dir: dir}).inOrder(size, 2).Pass()
		if err != nil && strings.Contains(err.Error(), "io_uring") {
			t.Skipf("left out: %v", err)
		}
		require.NoError(t, err)
		assert.Equal(t, []any{600, int64(want)}, []any{p.Files, p.Bytes}, "%d bytes", size)
	}
}

// All modes of the C loop that read see all bytes of files smaller and larger than a read.
func TestCLoop(t *testing.T) {
	dir, want := makeTree(t, 600, 10)
	r := &run{}
	defer r.end()
	for mode, sizes := range map[string][]int{"read": {8192}, "whole": {100, 2000, 8192}, "stat": {0}, "stat-order": {0}, "names": {0}} {
		for _, size := range sizes {
			c := r.cLoop(dir, mode, size, 2)
			if c.Missing != "" {
				t.Skip("left out: " + c.Missing)
			}
			for range 2 { // the second pass uses the memory of the first
				p, err := c.Pass()
				require.NoError(t, err, mode)
				if mode == "names" {
					assert.Equal(t, []any{7, int64(0)}, []any{p.Files, p.Bytes})
					continue
				}
				assert.Equal(t, []any{600, int64(want)}, []any{p.Files, p.Bytes}, "%s, %d bytes", mode, size)
			}
		}
	}
	_, err := r.cLoop(filepath.Join(dir, "nosuch"), "read", 1, 1).Pass()
	assert.EqualError(t, err, "cloop: openat "+filepath.Join(dir, "nosuch")+": No such file or directory")
}

func TestFioPass(t *testing.T) {
	p, err := fioPass([]byte(`{"jobs":[{"job_runtime":300,"usr_cpu":10,"sys_cpu":40,"read":{"runtime":290,"io_bytes":800,"total_ios":2}},
		{"job_runtime":200,"usr_cpu":0,"sys_cpu":100,"read":{"runtime":200,"io_bytes":400,"total_ios":1}}]}`))
	require.NoError(t, err)
	assert.Equal(t, turns.Pass{Wall: 290e6, CPU: 350e6, Files: 3, Bytes: 1200}, p)
	_, err = fioPass([]byte("fio: a warning"))
	assert.ErrorContains(t, err, "fio said")
	_, err = fioPass([]byte("{}"))
	assert.ErrorContains(t, err, "fio said")
}

func TestBadInput(t *testing.T) {
	assert.ErrorContains(t, Main(t.Context(), []string{"-case", "nosuch", "-dir", "x"}), `unknown case "nosuch"`)
	assert.ErrorContains(t, Main(t.Context(), []string{"-case", "peers"}), "-case peers needs -dir")
	assert.ErrorContains(t, Main(t.Context(), []string{"-case", "peers", "-dir", t.TempDir()}), "make the set and its manifest with scripts/tickets")
}

func TestSlowness(t *testing.T) {
	for kind, want := range map[string][2]bool{"": {}, "busy": {true, false}, "serial": {false, true}, "busy,serial": {true, true}} {
		s, err := newSlowness("1ms", kind)
		require.NoError(t, err)
		assert.Equal(t, want, [2]bool{s.busy, s.serial}, kind)
		s.wait()
	}
	_, err := newSlowness("1ms", "busy,idle")
	assert.ErrorContains(t, err, `unknown kind "busy,idle"`)
}
