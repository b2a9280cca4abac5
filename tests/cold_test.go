package fileproc_test

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/knobs"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

// TestConformanceCold: the suite also holds in the cold mode, with every backend and fs.FS, whether windows can be read
// together there or not. FILEPROC_TEST_COLD=1 runs all tests so.
func TestConformanceCold(t *testing.T) {
	testtree.NotInColdMode(t, "every test runs in it")
	if slow {
		t.Skip("takes minutes here; TestFaultsInTheColdMode does not")
	}
	testtree.Set(t, &knobs.AlwaysCold, true)
	for name, test := range map[string]func(*testing.T){
		"conformance":  smallBackendsAgree,
		"prefixes":     TestPrefixes,
		"oracle":       TestOracle,
		"pairwise":     TestOptionsPairwise,
		"ends":         TestInvariant6NothingIsLeftAfterAnyEnd,
		"panic":        TestInvariant6PanicReachesTheCallerWithItsStack,
		"Goexit":       TestInvariant6GoexitDoesNotDeadlock,
		"break":        TestBreak,
		"bytes":        TestInvariant7NoFileSeesAnothersBytes,
		"cancel":       TestInvariant8CancelIsSeenBetweenFiles,
		"cancelled":    TestCancelled,
		"SkipAll":      TestSkipAllStopsEarly,
		"slow work":    TestInvariant10SlowWorkSpreads,
		"links":        TestSymlinks,
		"ignore files": TestIgnoreFiles,
		"Select":       TestSelect,
		"SelectDir":    TestPruned,
		"SkipBinary":   TestSkipBinary,
		"SkipMarked":   TestSkipMarked,
		"Stat":         TestStat,
		"shards":       TestShards,
		"worker":       TestWorker,
		"MaxFileSize":  TestMaxFileSize,
	} {
		t.Run(name, test)
	}
}

// A run in the cold mode that is cancelled in fn visits nothing that is listed ahead, and counts it as abandoned.
func TestColdCancelAbandonsWhatIsListedAhead(t *testing.T) {
	testtree.Set(t, &knobs.AlwaysCold, true)
	root := spread(t, 20, 40)
	for _, p := range places(root) {
		for _, workers := range []int{1, 4} {
			t.Run(fmt.Sprintf("%s/workers=%d", p.name, workers), func(t *testing.T) {
				watchdog(t)
				var calls atomic.Int64
				var report fileproc.Report
				opts := fileproc.Options{Workers: workers, FS: p.fsys, Report: &report, OnError: func(err error) error { return err }}
				leavesNothing(t, func() {
					err := fileproc.ForEach(t.Context(), p.root, opts, func(*fileproc.File) error {
						calls.Add(1)
						return errFromFn
					})
					require.ErrorIs(t, err, errFromFn)
				})
				require.LessOrEqual(t, calls.Load(), int64(workers))
				require.EqualValues(t, 800, report.Found, "all is listed before the first file")
				require.EqualValues(t, 800-calls.Load(), report.Abandoned)
				requireBalanced(t, report)
			})
		}
	}
}

// The loop over a Stream in the cold mode may end at each result.
func TestColdStreamLeftAtEachResult(t *testing.T) {
	testtree.Set(t, &knobs.AlwaysCold, true)
	root := spread(t, 4, 5)
	for _, ordered := range []bool{false, true} {
		for k := range 21 {
			var report fileproc.Report
			n := 0
			leavesNothing(t, func() {
				for rel, err := range fileproc.Stream(t.Context(), root, fileproc.Options{Workers: 2, Ordered: ordered, Report: &report}, relOf) {
					require.NoError(t, err)
					if ordered {
						require.Equal(t, fmt.Sprintf("dir%04d/file%04d", n/5, n%5), rel)
					}
					if n++; n > k {
						break
					}
				}
			})
			require.Equal(t, min(k+1, 20), n)
			requireBalanced(t, report)
		}
	}
}

// A failure of one file of a window is that file's alone.
func TestColdFailuresAreEachFilesOwn(t *testing.T) {
	testtree.Set(t, &knobs.AlwaysCold, true)
	root := spread(t, 3, 30)
	failing := func(f *fileproc.File) (string, error) {
		if f.Name() == "file0007" {
			return "", errFromFn
		}
		return relOf(f)
	}
	for _, opts := range []fileproc.Options{{}, {Ordered: true}, {DisableURing: true}, {Stat: true}, {ReadSize: 3}} {
		var failed atomic.Int64
		opts.OnError = func(err error) error {
			var at *fs.PathError
			if !errors.As(err, &at) || filepath.Base(at.Path) != "file0007" {
				return err
			}
			failed.Add(1)
			return nil
		}
		got, err := fileproc.Process(t.Context(), root, opts, failing)
		require.NoError(t, err)
		require.Len(t, got, 87)
		require.EqualValues(t, 3, failed.Load())
	}
}
