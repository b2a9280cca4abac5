package fileproc

import (
	"os"
	"time"

	"github.com/fileproc/fileproc/internal/knobs"
)

// All tests of this package share these settings. Those in tests/ have the same.
//
// scripts/bench builds the benchmarks with this file when it counts system
// calls and allocations, and with no other one, so it uses none.
func init() {
	// On a busy machine, and in a process that is traced, any call is slow. No test
	// and no count may depend on that.
	knobs.SlowCall = time.Hour

	knobs.AlwaysCold = os.Getenv("FILEPROC_TEST_COLD") == "1"
}
