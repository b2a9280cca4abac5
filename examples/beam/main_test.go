package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fileproc/fileproc"
	"github.com/stretchr/testify/require"
)

// TestMain lets the test binary run as the program.
func TestMain(m *testing.M) {
	if os.Getenv("BEAM_MAIN") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestSums(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	t.Setenv("BEAM_MAIN", "1")
	root, err := filepath.Abs("../../testdata/example")
	require.NoError(t, err)
	var want []string
	for path, err := range fileproc.Stream(t.Context(), root, fileproc.Options{}, func(f *fileproc.File) (string, error) { return f.Path(), nil }) {
		require.NoError(t, err)
		want = append(want, path)
	}
	require.NotEmpty(t, want)

	sums := filepath.Join(tmp, "sums")
	require.NoError(t, os.WriteFile(sums+".failures", []byte("of an earlier run"), 0o666))
	out, err := exec.Command(os.Args[0], "-output", sums, root).CombinedOutput()
	require.NoError(t, err, "%s", out)
	text, err := os.ReadFile(sums)
	require.NoError(t, err)
	var got []string
	for line := range strings.Lines(string(text)) {
		sum, path, _ := strings.Cut(strings.TrimSpace(line), "  ")
		require.Len(t, sum, 64)
		got = append(got, path)
	}
	slices.Sort(got)
	slices.Sort(want)
	require.Equal(t, want, got)
	require.NoFileExists(t, sums+".failures")

	out, err = exec.Command(os.Args[0], "-output", sums, filepath.Join(tmp, "none")).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "none")
}
