//go:build linux

package cold

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fileproc/fileproc/scripts/internal/record"
)

// fake is a bench whose sides take the seconds that are given for them, or saw another number of files if these are negative.
func fake(t *testing.T, seconds map[string]float64) (b *bench) {
	b = &bench{runs: 3, cancels: 4, data: t.TempDir(), tmp: t.TempDir()}
	b.output = func(_ context.Context, _, name string, args ...string) (string, error) {
		if name == b.disk() && args[0] == "image" {
			if slices.Contains(args, "xfs") {
				return "", errors.New("no mkfs.xfs")
			}
			return "", os.WriteFile(args[slices.Index(args, "-o")+1], nil, 0o666)
		}
		what := args[slices.Index(args, "-side")+1]
		if i := slices.Index(args, "-threads"); strings.HasPrefix(what, "c") {
			what += args[i+1]
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
	return b
}

func TestRows(t *testing.T) {
	list := []Case{
		{"small, ext4", "≤ 1", "flat_10", "ext4", cloud, "fileproc", "c"},
		{"small, xfs", "≤ 2", "flat_10", "xfs", nil, "fileproc", "c"},
		{"small, the machine's disk", "≤ 3", "flat_10", "", nil, "fileproc", "c"},
		{"small, without a million", "≤ 4", "flat_1m", "ext4", nil, "fileproc", "c"},
	}
	defer func(old []Case) { Cases = old }(Cases)
	Cases = list
	t.Setenv("BENCH_COLD_1M", "")
	b := fake(t, map[string]float64{"fileproc": 1, "c8": 3, "c32": 4, "c64": 2})
	rows := strings.Split(Table(record.Of(b.measure(t.Context(), list), "cold")), "\n")
	require.Equal(t, "| case | fileproc: requests | time, s | usual loop: requests | time, s | target |", rows[0])
	require.Equal(t, "| small, ext4 | 70 | 1.00 (0.25) | 70 | 4.00 | ≤ 1 |", rows[2])
	require.Regexp(t, `disk \| \d+ \| 1.00 \(0.50\) \| \d+ \| 2.00 \| ≤ 3 \|$`, rows[3])
	require.Equal(t, []string{""}, rows[4:], "there is no mkfs.xfs, and BENCH_COLD_1M is not set")
}

// TestOtherWork: a side that saw other files is the reason why a case is left out.
func TestOtherWork(t *testing.T) {
	b := fake(t, map[string]float64{"fileproc": 1, "c32": -1})
	require.Empty(t, b.measure(t.Context(), []Case{{"small, ext4", "", "flat_10", "ext4", cloud, "fileproc", "c"}}))
}

func TestCancels(t *testing.T) {
	b := fake(t, map[string]float64{"fileproc": 2, "cancel": 0.04})
	records := b.measure(t.Context(), []Case{{"small, cancel", "≤ 100 ms", "flat_10", "ext4", head, "fileproc", ""}})
	require.Equal(t, map[string]float64{"whole-ms": 2000, "p95-ms": 40, "ms": 40}, records[0].Values)
}
