//go:build linux && !fileproc_unix && !fileproc_generic

package fileproc

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/fileproc/fileproc/internal/content"
	"github.com/stretchr/testify/require"
)

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
	if d, err := openRoot(dir); err == nil {
		good = diskOf(d).Kind == content.OnDiskForRings
		d.close()
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
	if d, err := openRoot(tree); err != nil || diskOf(d).Kind != content.OnDiskForRings {
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
