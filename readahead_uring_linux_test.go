//go:build linux && !fileproc_unix && !fileproc_generic

package fileproc

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/fileproc/fileproc/internal/descriptors"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Rings leave most descriptors to others, since a worker that waits for one does not get those of rings.
func TestRingsAreFew(t *testing.T) {
	most, limit := mostRings, descriptors.Limit
	defer func() { mostRings, descriptors.Limit = most, limit }()
	mostRings = func() int64 { return 2 }
	descriptors.Limit = func() uint64 { return 1 << 21 }
	var rings [2]groupReader
	for i := range rings {
		if rings[i] = newRingGroup(-1); rings[i] == nil {
			t.Log("left out: no io_uring here")
			return
		}
		defer func() { rings[i].close() }()
	}
	require.Nil(t, newRingGroup(-1))
	require.Nil(t, newRingGroup(-1))
	rings[0].close()
	rings[0] = newRingGroup(-1)
	require.NotNil(t, rings[0])

	rings[0].close()
	descriptors.Limit = func() uint64 { return 256 }
	for left := range descriptors.Kept + 2 {
		leaveDescriptors(t, left, func() { rings[0] = newRingGroup(-1) })
		if left <= descriptors.Kept {
			require.Nil(t, rings[0], "only %d descriptors are left", left)
		}
	}
	require.NotNil(t, rings[0])
	rings[0].close()
	descriptors.Limit = func() uint64 { return 1 << 21 }
	rings[0] = newRingGroup(-1)
	require.NotNil(t, rings[0])
}

// leaveDescriptors calls do while no more than left are free.
func leaveDescriptors(t *testing.T, left int, do func()) {
	var limit unix.Rlimit
	require.NoError(t, unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &limit))
	require.NoError(t, unix.Prlimit(0, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 256, Max: limit.Max}, nil))
	var held []int
	defer func() {
		for _, fd := range held {
			unix.Close(fd)
		}
		require.NoError(t, unix.Prlimit(0, unix.RLIMIT_NOFILE, &limit, nil))
	}()
	for {
		fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			break
		}
		held = append(held, fd)
	}
	for range left {
		unix.Close(held[0]) // a low number, as if most were free
		held = held[1:]
	}
	do()
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
	ring, good := newRingGroup(-1), false
	if ring != nil {
		ring.close()
	}
	if d, err := openRoot(dir); err == nil {
		good = kindOf(d) == onDiskForRings
		d.close()
	}
	if ring == nil || !good {
		t.Log("left out: no io_uring here, or not for this file system")
		require.Zero(t, run(Options{}))
		return
	}
	require.Greater(t, run(Options{}), int64(500))
}

// A ring is not set up for the rest of a small tree, but for a large one whatever its form.
func TestRingOnlyWhereMuchIsLeft(t *testing.T) {
	if ring := newRingGroup(-1); ring == nil {
		t.Log("left out: no io_uring here")
		return
	} else {
		ring.close()
	}
	tree := t.TempDir()
	if d, err := openRoot(tree); err != nil || kindOf(d) != onDiskForRings {
		t.Log("left out: not for this file system")
		return
	} else {
		d.close()
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
