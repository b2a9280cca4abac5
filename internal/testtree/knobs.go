package testtree

import (
	"os"
	"testing"
)

// Cold says that FILEPROC_TEST_COLD=1 is to run every test in the cold mode.
var Cold = os.Getenv("FILEPROC_TEST_COLD") == "1"

// NotInColdMode skips a test that says nothing if FILEPROC_TEST_COLD keeps every run in the cold mode, because of why.
func NotInColdMode(tb testing.TB, why string) {
	if Cold {
		tb.Helper()
		tb.Skip("FILEPROC_TEST_COLD: " + why)
	}
}

// Set sets a variable of package knobs for the rest of the test.
func Set[T any](tb testing.TB, knob *T, value T) {
	was := *knob
	*knob = value
	tb.Cleanup(func() { *knob = was })
}
