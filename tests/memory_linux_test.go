//go:build linux

package fileproc_test

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/fileproc/fileproc"
	"github.com/stretchr/testify/require"
)

// measuredPeak prints this process's peak after a run over root, where files are large and sparse.
func measuredPeak(t *testing.T, root string) {
	want := map[string]int64{}
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			info, err := d.Info()
			want[d.Name()] = info.Size()
			return err
		}
		return err
	}))
	opts := fileproc.Options{Workers: 1}
	if filepath.Base(root) == "whole" {
		opts.MaxFileSize = -1
	}
	readsOn := filepath.Base(root) == "read on"
	if readsOn {
		opts = fileproc.Options{ReadSize: 4096, MaxFileSize: 4096}
	}
	got, err := fileproc.Process(t.Context(), root, opts, func(f *fileproc.File) (string, error) {
		n := int64(len(f.Data()))
		if readsOn {
			var err error
			if n, err = io.Copy(io.Discard, f.Reader()); err != nil {
				return "", err
			}
		}
		if n != want[f.Name()] {
			return "", fmt.Errorf("%d bytes of %d", n, want[f.Name()])
		}
		return f.Name(), nil
	})
	if filepath.Base(root) == "refused" {
		require.ErrorIs(t, err, fileproc.ErrTooLarge)
	} else {
		require.NoError(t, err)
		require.Len(t, got, len(want))
	}
	printPeak(t)
}

func printPeak(t *testing.T) {
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	fmt.Printf("\n%s\n", regexp.MustCompile(`VmHWM:\s+\d+`).Find(status))
}

var peakLine = regexp.MustCompile(`VmHWM:\s+(\d+)`)

func peakMiB(t *testing.T, task, root string, change ...func(*exec.Cmd)) (float64, bool) {
	t.Helper()
	out, ok := runTask(t, task, root, change...)
	if !ok {
		return 0, false
	}
	m := peakLine.FindStringSubmatch(out)
	require.NotNil(t, m, "%s", out)
	kib, err := strconv.ParseFloat(m[1], 64)
	require.NoError(t, err)
	return kib / 1024, true
}

func TestInvariant5LargeFilesTakeTheirSizeOnce(t *testing.T) {
	if raceDetector {
		t.Log("left out: the race detector's own memory is in the peak")
		return
	}
	cases := map[string]struct {
		sizes []int64 // in MiB, each less than the one before
		limit float64
	}{
		"whole":   {[]int64{257}, 257 + 64},
		"rising":  {[]int64{50, 75, 100, 125}, 125 + 64},
		"refused": {[]int64{300}, 64},
		"read on": {[]int64{300, 290, 280}, 64},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), name)
			dir := root
			for _, size := range c.sizes {
				require.NoError(t, os.MkdirAll(dir, 0o755))
				path := filepath.Join(dir, fmt.Sprint(size))
				require.NoError(t, os.WriteFile(path, nil, 0o644))
				require.NoError(t, os.Truncate(path, size<<20))
				dir = filepath.Join(dir, "deeper")
			}
			if peak, ok := peakMiB(t, "peak", root); ok {
				require.Less(t, peak, c.limit, "MiB")
			}
		})
	}
}

// isMapped reports whether the memory of data is mapped.
func isMapped(t *testing.T, data uintptr) bool {
	maps, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	for line := range strings.Lines(string(maps)) {
		var from, to uintptr
		_, err := fmt.Sscanf(line, "%x-%x", &from, &to)
		require.NoError(t, err)
		if from <= data && data < to {
			return true
		}
	}
	return false
}

// Memory for large files is kept for others, but not for ever in a run whose other files are small, and not after the run.
func TestInvariant6LargeMemoryIsLetGo(t *testing.T) {
	if fileproc.Backend() == "generic" {
		t.Skip("package os chooses the order")
	}
	const size, small = 3<<20 + 1, 3000
	root := memoryDir(t)
	names := []string{"large0", "large1"}
	for _, name := range names {
		require.NoError(t, os.WriteFile(filepath.Join(root, name), make([]byte, size), 0o600))
	}
	for i := range small {
		names = append(names, fmt.Sprint("small", i))
		require.NoError(t, os.WriteFile(filepath.Join(root, names[len(names)-1]), []byte("content"), 0o600))
	}
	names = append(names, "large2")
	require.NoError(t, os.WriteFile(filepath.Join(root, "large2"), make([]byte, size), 0o600))
	var at []uintptr
	n, mapped := 0, 0
	opts := fileproc.Options{Workers: 1, Files: slices.Values(names)}
	_, err := fileproc.Process(t.Context(), root, opts, func(f *fileproc.File) (struct{}, error) {
		if len(f.Data()) == size {
			at = append(at, uintptr(unsafe.Pointer(unsafe.SliceData(f.Data()))))
			require.True(t, isMapped(t, at[len(at)-1]))
		} else if n++; n%100 == 0 && isMapped(t, at[0]) {
			mapped = n
		}
		return struct{}{}, nil
	})
	require.NoError(t, err)
	require.Equal(t, small, n)
	require.Len(t, at, 3)
	require.Equal(t, at[0], at[1], "it is used again")
	require.Positive(t, mapped, "it is kept")
	require.Less(t, mapped, 2000, "not for ever")
	for _, at := range at {
		require.False(t, isMapped(t, at))
	}
}

func streaming(t *testing.T, root string) {
	n := 0
	opts := fileproc.Options{ReadSize: 4096}
	for _, err := range fileproc.Stream(t.Context(), root, opts, func(f *fileproc.File) (int, error) { return len(f.Data()), nil }) {
		require.NoError(t, err)
		n++
	}
	require.Positive(t, n)
	printPeak(t)
}

func TestInvariant5MemoryDoesNotGrowWithTheFiles(t *testing.T) {
	watchdog(t)
	large := 20_000
	if testing.Short() {
		large = 4_000
	}
	var dirs [2]string
	content := bytes.Repeat([]byte{'c'}, 400)
	for i, n := range []int{large / 10, large} {
		dirs[i] = memoryDir(t)
		for j := range n {
			require.NoError(t, os.WriteFile(filepath.Join(dirs[i], fmt.Sprintf("%05d.md", j)), content, 0o644))
		}
	}
	t.Run("peak", func(t *testing.T) {
		few, ok := peakMiB(t, "streaming", dirs[0])
		if !ok {
			return
		}
		many, _ := peakMiB(t, "streaming", dirs[1])
		require.Less(t, many-few, 16.0, "MiB more for ten times the files")
	})
	t.Run("allocations", func(t *testing.T) {
		if raceDetector || fileproc.Backend() != "linux" {
			t.Log("left out: promised of the linux backend without the race detector")
			return
		}
		for name, fn := range map[string]func(*fileproc.File) (struct{}, error){
			"ErrSkip": func(*fileproc.File) (struct{}, error) { return struct{}{}, fileproc.ErrSkip },
			"nothing": func(f *fileproc.File) (struct{}, error) { return struct{}{}, nil },
		} {
			opts := fileproc.Options{ReadSize: 4096}
			run := func() {
				_, err := fileproc.Process(t.Context(), dirs[1], opts, fn)
				require.NoError(t, err)
			}
			run()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			run()
			runtime.ReadMemStats(&after)
			const fixed = 300
			require.LessOrEqual(t, float64(after.Mallocs-before.Mallocs), float64(large)*0.02+fixed, "%s", name)
		}
	})
}
