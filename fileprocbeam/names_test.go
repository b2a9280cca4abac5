package fileprocbeam_test

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/io/textio"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/transforms/filter"
	"github.com/fileproc/fileproc"
	"github.com/stretchr/testify/require"
)

// TestNamesThatAreNotUTF8: paths, roots and patterns travel exactly, also where results are shuffled and failures are
// keys.
func TestNamesThatAreNotUTF8(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux surely lets a test create a file whose name is not UTF-8")
	}
	root := filepath.Join(t.TempDir(), "r\xff")
	dir := filepath.Join(root, "d\xfe")
	require.NoError(t, os.MkdirAll(dir, 0o777))
	for name, content := range map[string]string{"\xff\xfd.md": "1", "\xc3.md": "2", "ü\n.md": "3", "\xfc.md": "poison", "\xfc.txt": "other"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o666))
	}
	out := t.TempDir()
	p, s := beam.NewPipelineWithRoot()
	results, failures := mishaps.Process(s, root, fileproc.Options{Include: []string{"d\xfe/*.md"}})
	textio.Write(s, filepath.Join(out, "results"), beam.ParDo(s, lineOf, beam.Reshuffle(s, results)))
	textio.Write(s, filepath.Join(out, "failures"), beam.ParDo(s, lineOfFailure, filter.Distinct(s, failures)))
	_, err := run(t, p)
	require.NoError(t, err)
	got := lines(t, filepath.Join(out, "results"))
	require.Len(t, got, 3)
	for i, name := range []string{`"d\xfe/\xc3.md" 1 `, `"d\xfe/\xff\xfd.md" 1 `, `"d\xfe/ü\n.md" 1 `} {
		require.Contains(t, got[i], name)
	}
	failed := lines(t, filepath.Join(out, "failures"))
	require.Len(t, failed, 1)
	require.Contains(t, failed[0], `/r\xff/d\xfe/\xfc.md" "process /`)
	require.Contains(t, failed[0], `/r\xff/d\xfe/\xfc.md: poisoned"`)
}
