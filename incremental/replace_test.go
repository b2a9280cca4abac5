package incremental_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/incremental"
	"github.com/stretchr/testify/require"
)

// TestReplace: the outcome of a file that fn has replaced is kept for its new content. The next run calls fn for none of the
// files, and opens none where the times of the file system show each change.
func TestReplace(t *testing.T) {
	for _, compare := range []incremental.Compare{incremental.CompareAuto, incremental.CompareContent} {
		root := t.TempDir()
		cache := filepath.Join(t.TempDir(), "cache")
		content := map[string]string{"small": "abc", "fine": "ABC"}
		for name, is := range content {
			require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(is), 0o644))
		}
		run := func() (calls int, report fileproc.Report) {
			got, err := incremental.Process(t.Context(), root, incremental.Options[string]{File: cache, Compare: compare}, fileproc.Options{Workers: 1, Durable: compare == incremental.CompareAuto, Report: &report},
				func(f *fileproc.File) (string, error) {
					calls++
					out := bytes.ToUpper(f.Data())
					if bytes.Equal(out, f.Data()) {
						return f.Rel(), nil
					}
					return f.Rel(), f.Replace(out)
				})
			if errors.Is(err, errors.ErrUnsupported) && slices.Contains([]string{"plan9", "wasip1"}, runtime.GOOS) {
				t.Skip("files cannot be replaced on this platform")
			}
			require.NoError(t, err)
			require.ElementsMatch(t, []string{"small", "fine"}, got)
			return calls, report
		}
		calls, report := run()
		require.Equal(t, 2, calls)
		require.EqualValues(t, 1, report.Replaced)
		calls, report = run()
		if compare == incremental.CompareContent {
			require.Zero(t, calls)
			continue
		}
		require.LessOrEqual(t, calls, 2, "files may be too new")
		if runtime.GOOS == "linux" && report.Unchanged > 0 {
			require.EqualValues(t, 3, report.Bytes, "the replaced file is not opened")
		}
		require.NoError(t, os.WriteFile(filepath.Join(root, "small"), []byte("xyz"), 0o644))
		calls, report = run()
		require.EqualValues(t, 1, report.Replaced, "a change after Replace is seen")
		require.Positive(t, calls)
		is, err := os.ReadFile(filepath.Join(root, "small"))
		require.NoError(t, err)
		require.Equal(t, "XYZ", string(is))
	}
}
