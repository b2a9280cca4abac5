package fileproc_test

import (
	"testing"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

func TestBreak(t *testing.T) {
	_, all := rooted(t, append(testtree.Numbered("f", 150), testtree.Numbered("d/f", 150)...)...)
	for _, p := range all {
		for _, workers := range []int{1, 4} {
			for _, after := range []int{1, 2, 150} {
				leavesNothing(t, func() {
					var report fileproc.Report
					opts := fileproc.Options{FS: p.fsys, Workers: workers, Report: &report}
					n := 0
					for _, err := range fileproc.Stream(t.Context(), p.root, opts, nameOf) {
						require.NoError(t, err)
						if n++; n == after {
							break
						}
					}
					require.Equal(t, after, n)
					requireBalanced(t, report)
					require.GreaterOrEqual(t, report.Processed, int64(n))
				})
				leavesNothing(t, func() {
					var report fileproc.Report
					opts := fileproc.Options{FS: p.fsys, Workers: workers, Report: &report}
					n := 0
					for _, err := range fileproc.Walk(t.Context(), p.root, opts) {
						require.NoError(t, err)
						if n++; n == after {
							break
						}
					}
					require.Equal(t, after, n)
					requireBalanced(t, report)
				})
			}
		}
	}
}

// TestStreamTwice: an iter.Seq2 may be ranged over again.
func TestStreamTwice(t *testing.T) {
	dir, _ := rooted(t, testtree.Numbered("f", 20)...)
	var report fileproc.Report
	files := fileproc.Stream(t.Context(), dir, fileproc.Options{Report: &report}, nameOf)
	entries := fileproc.Walk(t.Context(), dir, fileproc.Options{})
	for range 2 {
		report = fileproc.Report{}
		n := 0
		for _, err := range files {
			require.NoError(t, err)
			n++
		}
		require.EqualValues(t, 20, report.Processed, "each loop fills in the Report")
		for _, err := range entries {
			require.NoError(t, err)
			n++
		}
		require.Equal(t, 40, n)
	}
}
