//go:build linux

package floor

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fileproc/fileproc/scripts/internal/fail"
	"github.com/fileproc/fileproc/scripts/internal/record"
	"github.com/fileproc/fileproc/scripts/internal/tickets"
)

// makeTree makes n files in 7 directories, of which file i has i times step bytes, and returns the sum.
func makeTree(t *testing.T, n, step int) (dir string, bytes int) {
	dir = t.TempDir()
	for i := range n {
		sub := filepath.Join(dir, fmt.Sprint(i%7))
		require.NoError(t, os.MkdirAll(sub, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(sub, fmt.Sprint("file", i)), make([]byte, i*step), 0o644))
		bytes += i * step
	}
	return dir, bytes
}

// All modes of the C loop that read see all bytes of files smaller and larger than a read.
func TestCLoop(t *testing.T) {
	dir, want := makeTree(t, 600, 10)
	r := &run{}
	defer r.end()
	for mode, sizes := range map[string][]int{"read": {8192}, "whole": {100, 2000, 8192}, "stat": {0}, "names": {0}} {
		for _, size := range sizes {
			c := r.cLoop(dir, mode, size, 2)
			if _, err := exec.LookPath("cc"); err != nil {
				t.Skip("no C compiler: ", err)
			}
			for range 2 { // the second pass uses the memory of the first
				p, err := c.Pass()
				require.NoError(t, err, mode)
				if mode == "names" {
					assert.Equal(t, []any{7, int64(0)}, []any{p.Files, p.Bytes})
					continue
				}
				assert.Equal(t, []any{600, int64(want)}, []any{p.Files, p.Bytes}, "%s, %d bytes", mode, size)
			}
		}
	}
	_, err := r.cLoop(filepath.Join(dir, "nosuch"), "read", 1, 1).Pass()
	assert.EqualError(t, err, "cloop: openat "+filepath.Join(dir, "nosuch")+": No such file or directory")
}

func TestBadInput(t *testing.T) {
	assert.ErrorContains(t, Main(t.Context(), []string{"-case", "nosuch", "-dir", "x"}), `unknown case "nosuch"`)
	assert.ErrorContains(t, Main(t.Context(), []string{"-case", "peers"}), "-case peers needs -dir")
	assert.ErrorIs(t, Main(t.Context(), []string{"-dir", filepath.Join(t.TempDir(), "none")}), os.ErrNotExist)
}

// Every case measures a set: each side sees the same files, and each record has a value.
func TestCases(t *testing.T) {
	out := t.TempDir()
	set := tickets.Set{Layout: tickets.Flat, Count: 30, Seed: 1}
	_, err := set.Generate(t.Context(), out)
	require.NoError(t, err)
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"-c", "user.name=bench", "-c", "user.email=bench", "commit", "-q", "-m", "made"}} { // for -case git
		require.NoError(t, exec.Command("git", append([]string{"-C", out}, args...)...).Run())
	}
	t.Chdir("../../..") // as the command is started
	for name, do := range cases {
		if testing.Short() && (name == "again" || name == "programs" || name == "trees") {
			continue // they wait for seconds, build a program, or make thousands of files
		}
		r := &run{ctx: t.Context(), dir: filepath.Join(out, set.Name()), workers: "1,2", who: "fileproc", threads: 2, cancel: -1}
		r.Table, r.Data, r.Rounds, r.Passes = name, "flat_30", 1, 1
		var records []record.Record
		require.NoError(t, fail.Try(func() { records = do(r) }), name)
		require.NoError(t, r.end())
		assert.Equal(t, name == "once", records == nil, name)
		for _, rec := range records {
			assert.NotEmpty(t, rec.Values, "%s: %v", name, rec)
			assert.Equal(t, []string{name, "flat_30"}, []string{rec.Table, rec.Data})
		}
	}
}
