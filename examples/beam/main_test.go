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
	root, err := filepath.Abs("../../tests/testdata/example")
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

	odd := filepath.Join(tmp, "odd")
	require.NoError(t, os.Mkdir(odd, 0o777))
	for _, name := range []string{"new\nline", `back\slash`, "\xff"} {
		if err := os.WriteFile(filepath.Join(odd, name), nil, 0o666); err != nil {
			t.Skip("the file system refuses a newline, a backslash, or bytes that are not UTF-8 in a name: ", err)
		}
	}
	out, err = exec.Command(os.Args[0], "-output", sums, odd).CombinedOutput()
	require.NoError(t, err, "%s", out)
	text, err = os.ReadFile(sums)
	require.NoError(t, err)
	const empty = `\e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  `
	want = []string{empty + odd + `/back\\slash`, empty + odd + `/new\nline`}
	got = strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	require.ElementsMatch(t, want, got)
	text, err = os.ReadFile(sums + ".failures")
	require.NoError(t, err)
	require.Contains(t, string(text), "the path is not UTF-8")
}

func TestNoRoot(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	t.Setenv("BEAM_MAIN", "1")
	sums := filepath.Join(tmp, "sums")
	out, err := exec.Command(os.Args[0], "-output", sums, filepath.Join(tmp, "none")).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "none")
}
