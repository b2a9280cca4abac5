//go:build linux

package cold

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fileproc/fileproc/scripts/internal/fail"
)

// fake is a bench whose sides take the seconds that are given for them, or saw another number of files if these are negative.
func fake(t *testing.T, seconds map[string]float64) (b *bench, out *bytes.Buffer) {
	out = &bytes.Buffer{}
	b = &bench{out: out, runs: 3, cancels: 4, pattern: regexp.MustCompile("small"), data: t.TempDir(), tmp: t.TempDir()}
	b.builds = []build{{"fileproc", "ours"}, {"HEAD~1", "theirs"}}
	b.output = func(_ context.Context, name string, args ...string) (string, error) {
		if name == b.disk() && args[0] == "image" {
			if slices.Contains(args, "xfs") {
				return "", errors.New("no mkfs.xfs")
			}
			return "", os.WriteFile(args[slices.Index(args, "-o")+1], nil, 0o666)
		}
		what := args[slices.Index(args, "-side")+1]
		if i := slices.Index(args, "-threads"); strings.HasPrefix(what, "c") {
			what += args[i+1]
		} else if slices.Contains(args, "theirs") || name == "theirs" {
			what = "theirs"
		}
		if i := slices.Index(args, "-cancel"); i >= 0 {
			what = "cancel"
		}
		files, took := 10, seconds[what]
		if took < 0 {
			files, took = 9, -took
		}
		printed := fmt.Sprintf(`{"files":%d,"bytes":4000,"seconds":%g}`+"\n", files, took)
		if name == b.disk() {
			printed += `{"requests":70,"bytes":1,"seconds":9}` + "\n"
		}
		return printed, nil
	}
	return b, out
}

func TestRows(t *testing.T) {
	cases := []testCase{
		{"small, ext4", "≤ 1", "flat_10", "ext4", cloud, "fileproc", "c"},
		{"small, xfs", "≤ 2", "flat_10", "xfs", nil, "fileproc", "c"},
		{"small, the machine's disk", "≤ 3", "flat_10", "", nil, "fileproc", "c"},
		{"small, without a million", "≤ 4", "flat_1m", "ext4", nil, "fileproc", "c"},
		{"another", "", "flat_10", "ext4", nil, "fileproc", "c"},
	}
	t.Setenv("BENCH_COLD_1M", "")
	b, out := fake(t, map[string]float64{"fileproc": 1, "theirs": 1.5, "c8": 3, "c32": 4, "c64": 2, "c-order2": 0.5})
	require.NoError(t, fail.Try(func() { b.table(t.Context(), make([]string, 10), cases, b.compare) }))
	rows := strings.Split(out.String(), "\n")
	require.Equal(t, "| small, ext4 | 70 | 1.00 (0.25) | 70 | 1.50 (0.38) | 70 | 4.00 | 70 | 0.50 | ≤ 1 |", rows[2])
	require.Equal(t, "| small, xfs | not run: no mkfs.xfs |  |  |  |  |  |  |  | ≤ 2 |", rows[3])
	require.Regexp(t, `disk \| \d+ \| 1.00 \(0.50\) \| \d+ \| 1.50 \(0.75\) \| \d+ \| 2.00 \| \d+ \| 0.50 \| ≤ 3 \|$`, rows[4])
	require.Contains(t, rows[5], "not run: BENCH_COLD_1M is not set |")
	require.Len(t, rows, 7, "the pattern leaves one out")
}

// TestOtherWork: a side that saw other files is the reason why a case is left out.
func TestOtherWork(t *testing.T) {
	b, out := fake(t, map[string]float64{"fileproc": 1, "theirs": 1, "c32": -1, "c-order2": 1})
	one := []testCase{{"small, ext4", "", "flat_10", "ext4", cloud, "fileproc", "c"}}
	require.NoError(t, fail.Try(func() { b.table(t.Context(), make([]string, 10), one, b.compare) }))
	require.Contains(t, out.String(), "not run: c saw 9 files, 4000 bytes; another side 10, 4000")
}

func TestCancels(t *testing.T) {
	b, out := fake(t, map[string]float64{"fileproc": 2, "theirs": 3, "cancel": 0.04})
	one := []testCase{{"small, cancel", "≤ 100 ms", "flat_10", "ext4", head, "fileproc", ""}}
	require.NoError(t, fail.Try(func() { b.table(t.Context(), make([]string, 6), one, b.cancel) }))
	require.Contains(t, out.String(), "| small, cancel | fileproc | 2000 ms | 40 | 40 | ≤ 100 ms |\n| small, cancel | HEAD~1 | 3000 ms | 40 | 40 | ≤ 100 ms |\n")
}
