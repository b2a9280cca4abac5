package fileprocbeam

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fileproc/fileproc"
	"github.com/stretchr/testify/require"
	"gocloud.dev/blob/memblob"
)

var paths = Register("paths", func(f *fileproc.File) (string, error) { return f.Rel(), nil })

// list returns the batches of a job.
func list(t *testing.T, root string) (b []byte, batches [][]byte) {
	b, err := newJob(root, fileproc.Options{})
	require.NoError(t, err)
	l := listFn{Job: b}
	require.NoError(t, l.Setup(t.Context()))
	require.NoError(t, l.ProcessElement(t.Context(), nil, func(b []byte) { batches = append(batches, b) },
		func(f Failure) { t.Error(f) }))
	require.NoError(t, l.Teardown())
	return b, batches
}

// TestVanished: a file that vanishes after it was listed is a failure, also in a bucket, and others have their results.
func TestVanished(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(root, "d"), 0o777))
	for _, name := range []string{"d/a", "d/b", "c"} {
		require.NoError(t, os.WriteFile(filepath.Join(root, filepath.FromSlash(name)), nil, 0o666))
	}
	job, batches := list(t, root)
	require.Len(t, batches, 1)
	require.NoError(t, os.Remove(filepath.Join(root, "d", "b")))

	p := processFn[string]{Name: paths.name, Job: job}
	require.NoError(t, p.Setup(t.Context()))
	check := func(dir, want string) {
		var results []string
		var failures []Failure
		require.NoError(t, p.ProcessElement(t.Context(), batches[0], func(s string) { results = append(results, s) },
			func(f Failure) { failures = append(failures, f) }))
		require.ElementsMatch(t, []string{"d/a", "c"}, results)
		require.Len(t, failures, 1)
		require.Equal(t, want, failures[0].Path)
		require.Contains(t, failures[0].Error, want)
	}
	check(root, filepath.Join(root, "d", "b"))

	bucket := memblob.OpenBucket(nil)
	defer bucket.Close()
	for _, name := range []string{"d/a", "c"} {
		require.NoError(t, bucket.WriteAll(t.Context(), name, nil, nil))
	}
	p.src = source{".", bucket}
	check(".", "d/b")
}

// TestUnknownName: a worker without the function fails the bundle.
func TestUnknownName(t *testing.T) {
	for _, p := range []interface{ Setup(context.Context) error }{&processFn[string]{Name: "other"}, &processFn[int]{Name: "paths"}} {
		require.ErrorContains(t, p.Setup(t.Context()), "this worker has no Register(")
	}
}

// TestBatches: their sizes are as documented, and each name is in one.
func TestBatches(t *testing.T) {
	root := t.TempDir()
	const n = 5000
	long := strings.Repeat("d", 200)
	require.NoError(t, os.MkdirAll(filepath.Join(root, long, long), 0o777))
	for i := range n {
		dir := root
		if i < n/2 {
			dir = filepath.Join(root, long, long)
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o666))
	}
	_, batches := list(t, root)
	seen := map[string]bool{}
	for i, b := range batches {
		names := strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
		require.LessOrEqual(t, len(b), maxBytes)
		require.LessOrEqual(t, len(names), min(maxNames, max(minNames, (len(seen)+len(names))/64+1)))
		if i < len(batches)-1 {
			require.GreaterOrEqual(t, len(names), minNames)
		}
		for _, name := range names {
			require.False(t, seen[name])
			seen[name] = true
		}
	}
	require.Len(t, seen, n)
}

func TestFailureCoder(t *testing.T) {
	for _, f := range []Failure{{}, {"a", "b"}, {"\xff", "\xfe\x00"}, {strings.Repeat("p", 300), "e"}, {"", "e"}} {
		got, err := decodeFailure(encodeFailure(f))
		require.NoError(t, err)
		require.Equal(t, f, got)
	}
	for _, b := range []string{"", "\x05abc", "\xff"} {
		_, err := decodeFailure([]byte(b))
		require.Error(t, err)
	}
}

// TestObjects: what a batch does not name is not asked for, and no directory is listed.
func TestObjects(t *testing.T) {
	o := newObjects(t.Context(), source{"r", nil}, []string{"a/b/c", "a/d", "e"}) // a bucket that is asked would panic
	for _, dir := range []string{"r", "r/a", "r/a/b"} {
		f, err := o.Open(dir)
		require.NoError(t, err)
		s, err := f.Stat()
		require.NoError(t, err)
		require.True(t, s.IsDir())
		s, err = o.Stat(dir)
		require.NoError(t, err)
		require.True(t, s.IsDir())
	}
	require.Panics(t, func() { o.Open("r/e") })
}
