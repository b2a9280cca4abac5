package fileproc_test

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fileproc/fileproc"
	"github.com/stretchr/testify/require"
)

// TestNamesThatWindowsChanges: a name that a path would lead elsewhere is a failure that names it, and never another file.
func TestNamesThatWindowsChanges(t *testing.T) {
	dir := t.TempDir()
	exact := `\\?\` + dir // as it stands
	changed := []string{"dot.", "dot ", "dot. .", "dir."}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "dot"), []byte("dot"), 0o644))
	require.NoError(t, os.Mkdir(exact+`\dir.`, 0o755))
	for _, name := range changed[:3] {
		require.NoError(t, os.WriteFile(exact+`\`+name, []byte("another"), 0o644))
	}
	t.Cleanup(func() { // os.RemoveAll does not find them
		for _, name := range changed {
			os.Remove(exact + `\` + name)
		}
	})
	content := func(f *fileproc.File) (string, error) { return f.Rel() + ": " + string(f.Data()), nil }

	for _, opts := range []fileproc.Options{{}, {Stat: true}, {Ordered: true}, {Suffixes: []string{"t", ".", " "}}} {
		var report fileproc.Report
		opts.Report = &report
		got, err := fileproc.Process(t.Context(), dir, opts, content)
		require.Equal(t, []string{"dot: dot"}, got)
		require.ErrorIs(t, err, fs.ErrInvalid)
		for _, name := range changed {
			require.ErrorContains(t, err, "\""+name+"\"")
		}
		require.EqualValues(t, 5, report.Found)
		require.EqualValues(t, 4, report.Failed)
	}

	// In Options.Files too, and in front of a slash.
	wrong := append(changed, "dot./x", "dir./", "a:b", "NUL", "con.txt", "dot?")
	opts := fileproc.Options{Files: slices.Values(append(wrong, "dot"))}
	var failed []string
	opts.OnError = func(err error) error { // one at a time
		failed = append(failed, err.Error())
		return nil
	}
	got, err := fileproc.Process(t.Context(), dir, opts, content)
	require.NoError(t, err)
	require.Equal(t, []string{"dot: dot"}, got)
	require.Len(t, failed, len(wrong))
}

// TestPathsAbove260: relative to an open directory, a path may be longer than Windows allows for a whole one.
func TestPathsAbove260(t *testing.T) {
	dir := t.TempDir()
	parts := slices.Repeat([]string{strings.Repeat("d", 100)}, 5)
	deep := filepath.Join(append([]string{dir}, parts...)...)
	require.NoError(t, os.MkdirAll(deep, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(deep, "f"), []byte("text"), 0o644))
	rel := strings.Join(append(parts, "f"), "/")
	for _, opts := range []fileproc.Options{{}, {Stat: true}, {ReadSize: fileproc.NoRead, Stat: true}, {Files: slices.Values([]string{rel})}} {
		got, err := fileproc.Process(t.Context(), dir, opts, func(f *fileproc.File) (int64, error) {
			require.Equal(t, rel, f.Rel())
			s, err := f.Stat()
			return s.Size, err
		})
		require.NoError(t, err)
		require.Equal(t, []int64{4}, got)
	}
	for e, err := range fileproc.Walk(context.Background(), deep, fileproc.Options{Stat: true}) { // root is long itself
		require.NoError(t, err)
		require.Equal(t, "f", e.Rel())
	}
}
