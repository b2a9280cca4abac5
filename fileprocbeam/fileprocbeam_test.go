package fileprocbeam_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/stretchr/testify/require"
)

var errSkipAll = fmt.Errorf("enough: %w", fs.SkipAll)

// many makes n files in 100 directories.
func many(t *testing.T, n int) string {
	root := t.TempDir()
	for i := range 100 {
		require.NoError(t, os.MkdirAll(filepath.Join(root, fmt.Sprintf("d%d", i%10), fmt.Sprintf("s%d", i/10)), 0o777))
	}
	for i := range n {
		name := filepath.Join(root, fmt.Sprintf("d%d", i%10), fmt.Sprintf("s%d", i/10%10), fmt.Sprintf("f%06d.md", i))
		require.NoError(t, os.WriteFile(name, fmt.Appendf(nil, "content %d", i), 0o666))
	}
	return root
}

// onOneMachine is what a pipeline must equal.
func onOneMachine(t *testing.T, root string, opts fileproc.Options) []string {
	got, err := fileproc.Process(t.Context(), root, opts, func(f *fileproc.File) (string, error) {
		v, err := sum(f)
		return v.String(), err
	})
	require.NoError(t, err)
	slices.Sort(got)
	return got
}

// TestEqualsOneMachine: a pipeline over 100,000 files gives what one machine's run gives.
func TestEqualsOneMachine(t *testing.T) {
	n := 100_000
	if testing.Short() {
		n = 3_000
	}
	root := many(t, n)
	began := time.Now()
	want := onOneMachine(t, root, fileproc.Options{})
	one := time.Since(began)
	require.Len(t, want, n)

	began = time.Now()
	results, failures, counts, err := process(t, sums, root, fileproc.Options{})
	t.Logf("%d files: %v on one machine, %v in a pipeline with its output; %v", n, one, time.Since(began), counts)
	require.NoError(t, err)
	require.True(t, slices.Equal(want, results), "%d results of %d, or others", len(results), len(want))
	require.Nil(t, failures)
}

// TestFailures: a file that fails is a failure, and costs no other file its result.
func TestFailures(t *testing.T) {
	root := many(t, 300)
	for i, content := range []string{"poison", "skip", "poison"} {
		require.NoError(t, os.WriteFile(filepath.Join(root, "d3", fmt.Sprintf("m%d", i)), []byte(content), 0o666))
	}
	want := onOneMachine(t, root, fileproc.Options{Suffixes: []string{".md"}})
	results, failures, counts, err := process(t, mishaps, root, fileproc.Options{})
	require.NoError(t, err)
	require.Equal(t, want, results)
	poisoned := func(name string) string {
		path := filepath.Join(root, "d3", name)
		return fmt.Sprintf("%q %q", path, "process "+path+": poisoned")
	}
	require.Equal(t, []string{poisoned("m0"), poisoned("m2")}, failures)
	if !external {
		require.Equal(t, int64(303), counts["listed"])
		require.Equal(t, int64(300), counts["results"])
		require.Equal(t, int64(10*len("content 1")+90*len("content 11")+200*len("content 111")+len("poison")*2+len("skip")), counts["bytes"])
		require.Equal(t, int64(2), counts["failures"])
		require.Equal(t, int64(1), counts["skipped"])
	}
}

// TestBundleFails: what must not be lost fails the pipeline, and sinks write nothing.
func TestBundleFails(t *testing.T) {
	root := many(t, 2000)
	at := filepath.Join(root, "d5", "s5", "mishap")
	for content, says := range map[string]string{
		"retry":    "busy: fileprocbeam: retry the bundle",
		"panic":    "told to panic",
		"skip all": "fn returned fs.SkipAll",
	} {
		t.Run(content, func(t *testing.T) {
			require.NoError(t, os.WriteFile(at, []byte(content), 0o666))
			results, failures, _, err := process(t, mishaps, root, fileproc.Options{})
			require.ErrorContains(t, err, says)
			require.Nil(t, results)
			require.Nil(t, failures)
		})
	}
	t.Run("no root", func(t *testing.T) {
		results, failures, _, err := process(t, sums, filepath.Join(root, "none"), fileproc.Options{})
		require.ErrorContains(t, err, "none")
		require.Nil(t, results)
		require.Nil(t, failures)
	})
}

// TestKilledWorker: a worker in another process gives what one machine's run gives; if it is killed in the middle, the
// pipeline fails, and sinks write nothing.
func TestKilledWorker(t *testing.T) {
	root := many(t, 2000)
	want := onOneMachine(t, root, fileproc.Options{})
	workElsewhere(t)
	results, failures, _, err := process(t, mishaps, root, fileproc.Options{})
	require.NoError(t, err)
	require.Equal(t, want, results)
	require.Nil(t, failures)

	require.NoError(t, os.WriteFile(filepath.Join(root, "d5", "s5", "mishap"), []byte("kill"), 0o666))
	results, failures, _, err = process(t, mishaps, root, fileproc.Options{})
	t.Log(err)
	require.Error(t, err)
	require.Nil(t, results)
	require.Nil(t, failures)
}
